# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that exist nowhere, for the planner, and plans for them."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_disks import parse_vm_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import planner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import link
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    PoolGeometry,
    automatic_reservation,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.slots import SMARTOS

MIB = 1 << 20
GIB = 1 << 30
GEOMETRY = PoolGeometry((), "classic")
CAPABILITIES = Vmadm.capabilities


def uuid(number: int) -> str:
    return "cccccccc-0000-4000-8000-%012d" % number


def volume(name: str, size: int, user: dict[str, str]) -> Dataset:
    reserved = automatic_reservation(size * MIB, 8192, GEOMETRY)
    return Dataset(
        name,
        "volume",
        guid=abs(hash(name)),
        volsize=size * MIB,
        volblocksize=8192,
        refreservation=reserved,
        usedbyrefreservation=reserved,
        used=reserved,
        compression="off",
        user=user,
    )


def host(*vms: dict[str, t.Any], available: int = 100 * GIB, detached: t.Sequence[Dataset] = ()) -> t.Any:
    """VMs of keys number, sizes (of root, a, b, c), and fields of VmConfig."""
    configs, datasets = [], [Dataset("zones", "filesystem", available=available), *detached]
    for made in vms:
        number = made.pop("number", 1)
        root, entries = "zones/" + uuid(number), []
        for index, size in enumerate(made.pop("sizes", (1024, 64))):
            name = "%s/disk%d" % (root, index)
            disk = "dddddddd-0000-4000-8000-%06d%06d" % (number, index)
            facts = {"uuid": disk, "name": ("root", "a", "b", "c")[index], "vm": uuid(number), "index": str(index)}
            facts.update(slot="0:4:%d" % index, model="virtio", boot=str(index == 0).lower(), preserve="false")
            datasets.append(volume(name, size, facts))
            path = "/dev/zvol/rdsk/" + name
            entries.append(DiskConfig(path, name, index == 0, "virtio", pci_slot="0:4:%d" % index, uuid=disk))
        fields = {"alias": "vm%d" % number, "state": "stopped", "autoboot": False, "flexible_disk_size": 4096, **made}
        fields = {"brand": "bhyve", "pool": "zones", "dataset": root, "pci": SMARTOS, **fields}
        configs.append(VmConfig(uuid=uuid(number), disks=tuple(entries), **fields))
        datasets.append(
            Dataset(root, "filesystem", refquota=GIB, refreservation=GIB - MIB, usedbyrefreservation=GIB - MIB)
        )
    linked = link(configs, datasets, {"zones": GEOMETRY}, "bhyve")
    lawful = []
    for vm in linked.vms:
        quota = space.expected_quota(vm, GEOMETRY)
        lawful.append(replace(vm, root=replace(vm.root, quota=quota, reservation=quota)))
    return replace(linked, vms=tuple(lawful))


def plan(machine: t.Any, entry: dict[str, t.Any], which: int = 0, **policy: t.Any) -> t.Any:
    spec, problems = parse_vm_disks({"vm": "vm", **entry})
    assert problems == []
    return planner.plan_vm(machine, machine.vms[which], spec, Policy(**policy), CAPABILITIES)


def kinds(planned: t.Any) -> list[str]:
    assert planned.problems == ()
    return [step.kind for step in planned.steps]


ROOT = {"name": "root"}
