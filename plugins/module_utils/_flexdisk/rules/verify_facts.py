# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all checks of a host need: its facts, and constructors of findings about a disk or a VM."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.vm import Disk, Vm
from . import layout
from .findings import OURS, Finding, Task, own_task
from .inventory import Host
from .usage import power_problem

_SHOWN = 5
Findings = t.Iterator[Finding]


class Facts:
    """Facts of the host that several checks need."""

    def __init__(self, host: Host) -> None:
        self.host = host
        configs = [*(vm.config for vm in host.vms), *host.other_brands, *host.unlinked]
        self.configs = {config.uuid: config for config in configs}
        self.by_uuid: t.Dict[str, t.List[str]] = {}
        # A copy that a conversion has not ended is no disk.
        guids = {str(dataset.guid) for dataset in host.datasets.values()}
        for dataset in host.datasets.values():
            if dataset.backs and "uuid" in dataset.user and dataset.user.get("from") not in guids:
                self.by_uuid.setdefault(dataset.user["uuid"], []).append(dataset.name)
        self.taken = {disk.uuid for vm in host.vms for disk in vm.disks} | {disk.uuid for disk in host.detached}

    def others(self, volume: str, vm: str) -> t.List[str]:
        """Return labels of the other VMs that have a volume."""
        return [user.label for user in self.host.usage.of(volume, vm)]

    def alias(self, vm: str) -> str:
        """Return the alias of a VM, "" for one that is not on the host."""
        return self.configs[vm].alias if vm in self.configs else ""


def busy(vm: Vm) -> str:
    """Return why disk_verify does not repair anything of a VM now, "" if it does."""
    config = vm.config
    if vm.interrupted is not None:
        return "an interrupted run must be finished first"
    if config.prefixes:
        return "no finding about a VM on Proxmox VE is repaired by this release"
    state = power_problem(vm)
    if state:
        return state
    outside = [disk.volume.name for disk in vm.disks if not within(vm, disk.volume.name)]
    return config.frozen or (f"{outside[0]} lies outside {vm.root.name}" if outside else "")


@dataclass
class About:
    """The disk that findings are about, in a VM or detached."""

    facts: Facts
    disk: Disk
    vm: t.Optional[Vm] = None

    def __call__(self, kind: str, message: str, **more: t.Any) -> Finding:
        uuid = self.disk.vm
        more.setdefault("volume", self.disk.volume.name)
        return Finding(kind, message, uuid, self.facts.alias(uuid), self.disk.label, **more)

    def repairable(self, kind: str, message: str, why_not: str = "", **more: t.Any) -> Finding:
        """Return a finding that disk_verify repairs, unless why_not or the state of the VM forbids it."""
        why_not = why_not or (busy(self.vm) if self.vm is not None else "")
        if why_not:
            return self(kind, f"{message}; not repaired here: {why_not}", repair=more.get("repair"))
        task = own_task(kind, self.vm.config.uuid if self.vm is not None else "")
        return self(kind, message, repairable=True, **{"repair": task, **more})


def of_vm(vm: Vm, kind: str, message: str, **more: t.Any) -> Finding:
    """Return a finding about a VM, not about one of its disks."""
    more.setdefault("volume", vm.root.name)
    return Finding(kind, message, vm.config.uuid, vm.config.alias, **more)


def vm_disks(vm: Vm, **more: t.Any) -> Task:
    """Return a task that calls the module vm_disks for a VM."""
    return {OURS + "vm_disks": {"vms": [{"vm": vm.config.uuid, **more}]}}


def listed(items: t.Sequence[str]) -> str:
    """Return the items in one line, only the first ones if there are many."""
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def within(vm: Vm, volume: str) -> bool:
    """Whether a volume is where those of the VM belong."""
    return layout.within(vm.config, volume)
