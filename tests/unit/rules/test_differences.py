# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between an entry and its disk, and how it can be changed."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import DiskDeclaration
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.differences import (
    birth_differences,
    config_changes,
    fact_changes,
)

DISK = Disk(
    volume=Dataset("zones/v/disk1", "volume", volblocksize=8192),
    vm="v",
    index=1,
    name="a",
    boot=False,
    model="virtio",
    image="i",
    pci_slot="0:4:1",
    user_properties={"preserve": True, "description": "d", "tags": {"k": "v"}},
)
CHANGES = (birth_differences, config_changes, fact_changes)


def test_what_is_not_said_does_not_differ():
    assert [compare(DiskDeclaration(), DISK) for compare in CHANGES] == [{}, {}, {}]


def test_what_is_so_does_not_differ():
    spec = DiskDeclaration(
        name="a",
        boot=False,
        model="virtio",
        image="i",
        pci_slot="0:4:1",
        block_size=8192,
        user_properties={"preserve": True, "description": "d", "tags": {"k": "v"}},
    )
    assert [compare(spec, DISK) for compare in CHANGES] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("wanted", "kinds", "now"),
    [
        ({"block_size": 4096}, birth_differences, 8192),
        ({"image": "j"}, birth_differences, "i"),
        ({"model": "nvme"}, config_changes, "virtio"),
        ({"pci_slot": "0:4:2"}, config_changes, "0:4:1"),
        ({"boot": True}, config_changes, False),
        ({"name": "b"}, fact_changes, "a"),
        ({"user_properties": {"preserve": False}}, fact_changes, True),
        ({"user_properties": {"description": ""}}, fact_changes, "d"),
        ({"user_properties": {"tags": {}}}, fact_changes, {"k": "v"}),
    ],
)
def test_each_difference_is_of_one_kind(wanted, kinds, now):
    ((key, value),) = wanted.get("user_properties", wanted).items()
    for other in CHANGES:
        expected = {key: (now, value)} if other is kinds else {}
        assert other(DiskDeclaration(**wanted), DISK) == expected
