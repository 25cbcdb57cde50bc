# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Identities of released disks: written and read back, and nothing believed that we would not have written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import ReleasedIdentity
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import (
    identity,
    inventory,
    released_identity,
)

UUID = "cccccccc-0000-4000-8000-000000000001"
WHOLE = ReleasedIdentity(
    uuid=UUID,
    name="data",
    user_properties={"preserve": True, "description": "a\tb", "tags": {"owner": "müller"}},
    ctime="2026-01-31T23:59:59Z",
    mtime="2026-02-01T00:00:00Z",
    serial_no=7,
    remaining="30720:2048",
)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(
    name=st.sampled_from(["", "data", "42"]),
    user_properties=st.fixed_dictionaries(
        {},
        optional={
            "preserve": st.booleans(),
            "description": TEXT.filter(bool),
            "tags": st.dictionaries(TEXT, TEXT, min_size=1, max_size=3),
        },
    ),
    serial=st.integers(1, released_identity.MOST_SERIAL),
)
def test_what_is_written_is_read(name, user_properties, serial):
    written = ReleasedIdentity(uuid=UUID, name=name, user_properties=user_properties, serial_no=serial)
    value = released_identity.encode(written)
    assert value.isascii()
    assert value.isprintable()
    assert released_identity.decode(value) == written


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "x"},
        {"name": "a/b"},
        {"preserve": 1},
        {"preserve": "yes"},
        {"tags": {"a": 1}},
        {"tags": []},
        {"serial_no": True},
        {"serial_no": "7"},
        {"serial_no": 0},
        {"ctime": "today"},
        {"remaining": "../"},
        {"path": "/etc"},
        {"description": None},
    ],
)
def test_what_we_would_not_write_is_no_released_identity(change):
    assert released_identity.decode(json.dumps({**released_identity.entry(WHOLE), **change})) is None


@pytest.mark.parametrize("value", ["", "x", "[]", "1", "null", "[" * 100000])
def test_junk_is_no_released_identity(value):
    assert released_identity.decode(value) is None


@pytest.mark.parametrize(
    ("user", "counts", "halfway"),
    [
        ({}, True, False),
        ({"description": "x"}, True, True),
        ({"name": "data", "uuid": UUID}, True, True),
        ({"serial_no": "1"}, True, False),
        ({"name": "data", "serial_no": "1"}, False, False),
        ({"uuid": UUID, "serial_no": "1", "tags": "x"}, False, False),
    ],
)
def test_a_released_identity_counts_where_the_own_is_not_whole(user, counts, halfway):
    volume = Dataset("v", "volume", user={**user, released_identity.RELEASED_PROPERTY: released_identity.encode(WHOLE)})
    assert (released_identity.saved_identity(volume) == WHOLE) is counts
    assert released_identity.release_interrupted(volume) is halfway
    assert not released_identity.release_interrupted(Dataset("v", "volume", user=user))


def test_what_a_task_says_wins():
    declared = ReleasedIdentity(index=1, name="new", user_properties={"description": "", "preserve": False})
    merged = released_identity.merged(declared, WHOLE)
    assert (merged.name, merged.user_properties) == (
        "new",
        {**WHOLE.user_properties, "description": "", "preserve": False},
    )
    assert (merged.serial_no, merged.uuid) == (7, UUID)
    assert released_identity.merged(declared, None) is declared


def test_a_serial_is_the_beginning_of_the_uuid_that_is_made_of_it():
    serial = identity.serial_of(UUID)
    made = identity.uuid_with(serial, 12345)
    assert identity.is_uuid(made)
    assert identity.serial_of(made) == serial
    assert made != identity.uuid_with(serial, 12346)


@pytest.mark.parametrize(
    ("entry", "agrees"),
    [
        (DiskConfig("p", uuid=UUID), True),
        (DiskConfig("p", uuid=UUID[:-1] + "2"), False),
        (DiskConfig("p"), True),
        (DiskConfig("p", serial="WD-1234"), True),
        (DiskConfig("p", serial=identity.serial_of(UUID)), True),
        (DiskConfig("p", serial="0" * 20), False),
    ],
)
def test_only_a_contradiction_tells_of_another_disk(entry, agrees):
    assert inventory.may_have_uuid(entry, UUID) is agrees
