# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disk an entry of a task for disk_adopt means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    AdoptionDeclaration,
    ReleasedIdentity,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.disk_adopt import plan_adoption
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .build import host

MINE, OTHER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def machine(uuid="", serial=""):
    """A VM whose second disk has no identity but a uuid that the hypervisor may know, or a serial."""
    found = host({})
    (vm,) = found.vms
    volume = replace(vm.disks[1].volume, user={})
    entry = replace(vm.config.disks[1], uuid=uuid, serial=serial)
    disk = replace(vm.disks[1], volume=volume, uuid=uuid, name="")
    config = replace(vm.config, identity_in_zfs=True, disks=(vm.config.disks[0], entry))
    root = replace(vm.disks[0], volume=replace(vm.disks[0].volume, user={**vm.disks[0].volume.user, "serial_no": "1"}))
    return replace(found, vms=(replace(vm, disks=(root, disk), config=config),))


@pytest.mark.parametrize(
    ("known", "said", "fits"),
    [
        ({}, {"index": 1}, True),
        ({}, {"index": 2}, False),
        ({}, {"pci_slot": "0:4:1"}, True),
        ({}, {"pci_slot": "0:4:2"}, False),
        ({}, {"index": 1, "pci_slot": "0:4:2"}, False),
        ({}, {"uuid": MINE}, False),  # nothing confirms it
        ({}, {"uuid": MINE, "index": 1}, True),
        ({}, {"uuid": MINE, "pci_slot": "0:4:1"}, True),
        ({"uuid": MINE}, {"uuid": MINE}, True),
        ({"uuid": MINE}, {"uuid": OTHER}, False),
        ({"uuid": MINE}, {"uuid": OTHER, "index": 1}, False),
        ({"serial": serial_of(MINE)}, {"uuid": OTHER, "index": 1}, False),
    ],
)
def test_an_entry_fits_by_its_place_and_its_uuid(known, said, fits):
    (vm,) = machine(**known).vms
    entry = ReleasedIdentity(name="logs", **said)
    planned = plan_adoption(machine(**known), vm, AdoptionDeclaration("vm1", disks=(entry,)))
    assert [problem.code for problem in planned.problems] == ([] if fits else ["ResourceNotFound"])
    assert [step.kind for step in planned.steps if "logs" in step.text] == (["identity"] if fits else [])
