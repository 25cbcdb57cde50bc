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
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import Problems
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import relocation
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.disk_adopt import plan_adoption
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .build import host

MINE, OTHER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def machine(uuid="", serial=""):
    """A VM whose second disk has no identity but a uuid that the hypervisor may know, or a serial."""
    host_with_vm = host({})
    (vm,) = host_with_vm.vms
    volume = replace(vm.disks[1].volume, user={})
    entry = replace(vm.config.disks[1], uuid=uuid, serial=serial)
    disk = replace(vm.disks[1], volume=volume, uuid=uuid, name="")
    config = replace(vm.config, identity_in_zfs=True, disks=(vm.config.disks[0], entry))
    root = replace(vm.disks[0], volume=replace(vm.disks[0].volume, user={**vm.disks[0].volume.user, "serial_no": "1"}))
    return replace(host_with_vm, vms=(replace(vm, disks=(root, disk), config=config),))


@pytest.mark.parametrize(
    ("known", "released", "fits"),
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
def test_an_entry_fits_by_its_place_and_its_uuid(known, released, fits):
    (vm,) = machine(**known).vms
    entry = ReleasedIdentity(name="logs", **released)
    planned = plan_adoption(machine(**known), vm, AdoptionDeclaration("vm1", disks=(entry,)))
    assert [problem.code for problem in planned.problems] == ([] if fits else ["ResourceNotFound"])
    assert [step.kind for step in planned.steps if "logs" in step.text] == (["identity"] if fits else [])


@pytest.mark.parametrize(
    ("state", "frozen", "message"),
    [
        ("stopped", "", ""),
        ("stopped", "it is moving to hv2", "it is moving to hv2"),
        ("running", "it is moving to hv2", "it is moving to hv2"),
        ("running", "", "the VM must be stopped to be adopted: its paths change"),
    ],
)
def test_only_a_stopped_vm_that_may_change_comes_into_the_layout(state, frozen, message):
    host_with_vm = host({})
    (vm,) = host_with_vm.vms
    config = replace(vm.config, state=state, frozen=frozen)
    problems = Problems(vm.label)
    step = relocation.adopt(
        host_with_vm, replace(vm, config=config, root=replace(vm.root, kind="")), "/dev/zvol/", problems
    )
    assert step is not None
    assert [(problem.code, problem.message) for problem in problems] == ([("VmNotStopped", message)] if message else [])
