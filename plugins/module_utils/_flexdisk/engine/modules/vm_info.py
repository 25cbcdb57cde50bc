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
from ...rules.paused_guests import closed_guests, paused_guests
from ...rules.restoring import restoring
from ...rules.skipped import of_brand
from ...zfs.commands import Zfs
from ..host.observe import observe
from ..run import report
from .group_lease import leases


@dataclass
class VmsInfo:
    """VMs and detached disks as results."""

    vms: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    detached: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    """VMs of other brands and VMs without a dataset."""
    problems: t.List[Problem] = field(default_factory=list)
    intents: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    """Intents of VMs that do not exist."""
    pools: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    moves: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    """The entries of VMs that leave or come."""
    leases: t.Optional[t.List[t.Dict[str, t.Any]]] = None
    """None if they were not asked for."""
    warnings: t.List[str] = field(default_factory=list)


def chosen(host: Host, names: t.Optional[t.Sequence[str]]) -> t.Tuple[t.List[Vm], t.List[Problem]]:
    """Return the named VMs, each once, or all VMs, and the problems of names."""
    if names is None:
        return list(host.vms), []
    vms: t.List[Vm] = []
    problems = []
    for name in names:
        vm = find_vm(host, name)
        if isinstance(vm, Problem):
            problems.append(vm)
        elif vm not in vms:
            vms.append(vm)
    return vms, problems


def skipped(host: Host) -> t.List[t.Dict[str, str]]:
    """Return the VMs that this collection does not manage, with the reason."""
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
) -> VmsInfo:
    """Return the VMs with their disks. figures: also figures about snapshots. leased: also the leases."""
    host = observe(zfs, hypervisor, pool, snapshots=figures)
    vms, problems = chosen(host, names)
    result = VmsInfo(problems=problems, skipped=skipped(host) if names is None else [])
    result.pools = [{"name": name, "guid": host.datasets[name].guid} for name in sorted(host.geometry)]
    intents = {key: recovery.intent_result(intent) for key, intent in host.intents.items()}
    result.vms = [
        dict(
            _with_replicas(report.vm_result(vm, True, figures), vm, figures),
            intent=intents.get((vm.config.pool, vm.config.uuid)),
            tags=dict(vm.config.tags),
            disk_template=report.disk_template(vm),
            restoring=restoring(vm),
            **machine(vm),
            **({"proxmox": dict(vm.config.proxmox)} if vm.config.proxmox else {}),
            **({"snapshots": report.snapshots_result(vm, True)} if figures else {}),
        )
        for vm in vms
    ]
    existing = {(vm.config.pool, vm.config.uuid) for vm in host.vms}
    if names is None:
        result.intents = [dict(intents[key], pool=key[0], vm=key[1]) for key in sorted(intents) if key not in existing]
        known = [move for _uuid, move in sorted(host.moves.items())]
        result.moves = [moves.result(one, moves.has_memory(one, host.datasets, host.geometry)) for one in known]
    if leased:
        result.leases, result.warnings = leases(zfs, host)
    waiting = {**paused_guests(host), **closed_guests(host)}
    result.warnings += [f"VM {vm.label}: {waiting[vm.config.uuid]}" for vm in vms if vm.config.uuid in waiting]
    detached = [disk for disk in host.detached if names is None or disk.vm in {vm.config.uuid for vm in vms}]
    result.detached = [
        dict(report.disk_result(disk, "parked", True, figures), vm=disk.vm)
        for disk in sorted(detached, key=lambda d: (d.vm, d.name, d.volume.name))
    ]
    return result


def _with_replicas(result: t.Dict[str, t.Any], vm: Vm, figures: bool) -> t.Dict[str, t.Any]:
    """Add the replicas of each disk, and snapshot_size as in RFD 154: MiB that ZFS charges to snapshots so far."""
    for disk, entry in zip(vm.disks, result["disks"]):
        entry["replicas"] = replicas.as_result(disk, time.time())
        if figures:
            entry["snapshot_size"] = disk.volume.usedbysnapshots // MIB
    return result
