# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of vm_info: observe and report."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

from ...hypervisor.protocol import Hypervisor
from ...model.errors import Problem
from ...model.sizes import MIB
from ...model.vm import Vm
from ...plan import recovery
from ...plan.planner import find_vm
from ...plan.relocation import not_managed
from ...plan.vm import machine
from ...rules import moves, replicas
from ...rules.inventory import Host
from ...rules.skipped import of_brand
from ...zfs.commands import Zfs
from ..host.observe import observe
from ..run import report
from .group_lease import leases


@dataclass
class Info:
    """VMs and detached disks as results."""

    vms: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    detached: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    # VMs of other brands and VMs without a dataset.
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    problems: t.List[Problem] = field(default_factory=list)
    # Journal entries of VMs that do not exist.
    intents: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    pools: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    # What is written down of VMs that leave or come.
    moves: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    # None if they were not asked for.
    leases: t.Optional[t.List[t.Dict[str, t.Any]]] = None
    warnings: t.List[str] = field(default_factory=list)


def chosen(host: Host, names: t.Optional[t.Sequence[str]]) -> t.Tuple[t.List[Vm], t.List[Problem]]:
    """The named VMs, each once, or all VMs; and the problems of names."""
    if names is None:
        return list(host.vms), []
    vms: t.List[Vm] = []
    problems = []
    for name in names:
        found = find_vm(host, name)
        if isinstance(found, Problem):
            problems.append(found)
        elif found not in vms:
            vms.append(found)
    return vms, problems


def skipped(host: Host) -> t.List[t.Dict[str, str]]:
    """VMs that the laws of this collection do not cover, with the reason."""
    result = [{"uuid": c.uuid, "alias": c.alias, "reason": of_brand(c.brand)} for c in host.other_brands]
    result += [{"uuid": c.uuid, "alias": c.alias, "reason": not_managed(host, c)} for c in host.unlinked]
    return result


def info(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    pool: t.Optional[str],
    figures: bool,
    leased: bool = False,
) -> Info:
    """Reads the VMs with their disks. figures adds figures that need the accounting of snapshots, leased the leases."""
    host = observe(zfs, hypervisor, pool, snapshots=figures)
    vms, problems = chosen(host, names)
    result = Info(problems=problems, skipped=skipped(host) if names is None else [])
    result.pools = [{"name": name, "guid": host.datasets[name].guid} for name in sorted(host.geometry)]
    found = {key: recovery.intent_result(record) for key, record in host.intents.items()}
    result.vms = [
        dict(
            _with_more(report.vm_result(vm, True, figures), vm, figures),
            intent=found.get((vm.config.pool, vm.config.uuid)),
            tags=dict(vm.config.tags),
            disk_template=report.disk_template(vm),
            **machine(vm),
            **({"snapshots": report.snapshots_result(vm, True)} if figures else {}),
        )
        for vm in vms
    ]
    there = {(vm.config.pool, vm.config.uuid) for vm in host.vms}
    if names is None:
        result.intents = [dict(found[key], pool=key[0], vm=key[1]) for key in sorted(found) if key not in there]
        result.moves = [moves.result(move) for _uuid, move in sorted(host.moves.items())]
    if leased:
        result.leases, result.warnings = leases(zfs, host)
    everywhere = [disk for disk in host.detached if names is None or disk.vm in {vm.config.uuid for vm in vms}]
    result.detached = [
        dict(report.disk_result(disk, "parked", True, figures), vm=disk.vm)
        for disk in sorted(everywhere, key=lambda d: (d.vm, d.name, d.volume.name))
    ]
    return result


def _with_more(result: t.Dict[str, t.Any], vm: Vm, figures: bool) -> t.Dict[str, t.Any]:
    """Add the replicas of each disk, and snapshot_size as in RFD 154: MiB that ZFS charges to snapshots so far."""
    for disk, entry in zip(vm.disks, result["disks"]):
        entry["replicas"] = replicas.as_result(disk, time.time())
        if figures:
            entry["snapshot_size"] = disk.volume.usedbysnapshots // MIB
    return result
