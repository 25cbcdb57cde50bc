# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User properties: what is written comes back, what others wrote does no harm."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import identity, property_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
@example("-")
@example("%2D")
@example("a\tb\nc\r\0 %")
@example(" ")
def test_texts_come_back(text):
    value = property_text.encode_text(text)
    assert property_text.decode_text(value) == text
    assert re.fullmatch(r"[\x20-\x7e]*", value)
    assert value != "-", "zfs prints a dash where there is no value"


@given(st.dictionaries(TEXT, TEXT))
def test_tags_come_back(tags):
    value = property_text.encode_tags(tags)
    assert property_text.decode_tags(value) == tags
    assert re.fullmatch(r"[\x20-\x7e]*", value)


@pytest.mark.parametrize("junk", ["", "x", "[]", "[1]", "1", "null", '{"a": 1}', '{"a": null}', "%", "{", '{"a":"b"'])
def test_other_tags_are_none(junk):
    assert property_text.decode_tags(junk) == {}


@given(st.text())
def test_decoding_never_raises(text):
    property_text.decode_text(text)
    property_text.decode_tags(text)
    assert identity.decode_time(text) in ("", text)
    assert 0 <= identity.decode_index(text) < 100000


def test_times_and_indexes():
    assert identity.decode_time("2026-01-02T03:04:05Z") == "2026-01-02T03:04:05Z"
    assert identity.decode_time("2026-01-02T03:04:05Z\n") == ""
    junk = ("-7", "", "x", "100000", "\u0664", "\u00b2", "7\n")
    assert [identity.decode_index(v) for v in ("7", *junk)] == [7, *([0] * len(junk))]
    assert [identity.next_serial(v) for v in ("7", "", "x", "\u00b2", "9" * 16)] == ["8", "1", "1", "1", "1"]


def test_the_limit_is_in_bytes_as_written():
    assert property_text.check_value("description", "x" * 8191) == "x" * 8191
    with pytest.raises(FlexdiskError, match=r"description takes 8192 bytes .* limit is 8191"):
        property_text.check_value("description", "x" * 8192)


def test_facts():
    facts = identity.facts("u", "n", "v", 3, "0:4:1", "virtio", True, {"description": "a\nb", "tags": {"k": "v"}}, "")
    assert facts == {
        "uuid": "u",
        "name": "n",
        "vm": "v",
        "index": "3",
        "slot": "0:4:1",
        "model": "virtio",
        "boot": "true",
        "preserve": "false",
        "description": "a%0Ab",
        "tags": '{"k":"v"}',
        "remaining": "",
        "type": "",
    }
    assert identity.facts("", "", "", 0, "", "", False, {}, "", "sparse")["type"] == "sparse"
    assert set(facts) < set(identity.NAMES)


def test_uuids():
    assert identity.is_uuid("aaaaaaaa-0000-4000-8000-000000000001")
    for junk in ("", "AAAAAAAA-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000001\n", "../x"):
        assert not identity.is_uuid(junk)
    assert identity.is_uuid(identity.uuid_of(12345))
    assert identity.uuid_of(12345) == identity.uuid_of(12345) != identity.uuid_of(12346)


@pytest.mark.parametrize("name", ["a", "A1", "a.b-c_d", "0", "a" * 64])
def test_names(name):
    assert identity.DISK_NAME.match(name)


@pytest.mark.parametrize("name", ["", ".", "-a", "a b", "a/b", "a@b", "a" * 65, "a\n", "\u00fc"])
def test_no_names(name):
    assert not identity.DISK_NAME.match(name)
