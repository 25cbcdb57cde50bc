# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of disk_info: observe, choose, report."""

from __future__ import annotations

import time
import typing as t
from dataclasses import asdict, dataclass, field

from ...hypervisor.protocol import Hypervisor
from ...model.errors import Problem, Problems
from ...model.vm import FILE, SPARSE, THICK, Disk, Vm
from ...plan.planner import find_vm
from ...rules import disk_properties, releases, replicas
from ...rules.inventory import Host
from ...rules.unwritten import never_used
from ...zfs.commands import Zfs
from ..host.observe import observe
from ..run import report
from .vm_info import skipped

STATES = ("attached", "detached", "orphaned")
TYPES = (THICK, SPARSE, FILE)
_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Filters:
    """Which disks are returned: those that match all filters that are given."""

    uuid: t.Optional[str] = None
    name: t.Optional[str] = None
    vm: t.Optional[str] = None
    state: t.Optional[t.Sequence[str]] = None
    type: t.Optional[t.Sequence[str]] = None
    tags: t.Mapping[str, t.Optional[str]] = field(default_factory=dict)
    """None stands for any value."""


@dataclass
class DisksInfo:
    """Disks as results."""

    disks: t.List[_Dict] = field(default_factory=list)
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    """Without filters, the VMs whose disks are not included, with the reason."""
    problems: t.List[Problem] = field(default_factory=list)


def disks_info(
    zfs: Zfs, hypervisor: Hypervisor, filters: Filters, pool: t.Optional[str], figures: bool, hidden: bool
) -> DisksInfo:
    """Return the disks of the host, those of VMs first.

    figures: also what destroying each would free, and what prevents that. hidden: also the platform's own disks.
    """
    problems = Problems("")
    disk_properties.parsed(
        problems, "", {"tags": {key: value for key, value in filters.tags.items() if value is not None}}
    )
    if problems:
        return DisksInfo(problems=problems)
    host = observe(zfs, hypervisor, pool, snapshots=figures)
    owner = filters.vm
    if owner is not None:
        named_vm = find_vm(host, owner)
        former_vms = {disk.vm for disk in host.detached if disk.vm}
        if isinstance(named_vm, Problem) and owner.lower() not in former_vms:
            return DisksInfo(problems=[named_vm])
        owner = owner.lower() if isinstance(named_vm, Problem) else named_vm.config.uuid
    result = DisksInfo(skipped=skipped(host) if filters == Filters() else [])
    for disk, state, vm in _all_disks(host):
        if (hidden or not disk.hidden) and (owner is None or disk.vm == owner) and matches(disk, state, filters):
            result.disks.append(_result(host, disk, state, vm, figures))
    if figures:
        _add_releases(host, result.disks)
    return result


def _all_disks(host: Host) -> t.Iterator[t.Tuple[Disk, str, t.Optional[Vm]]]:
    by_uuid = {vm.config.uuid: vm for vm in host.vms}
    for vm in host.vms:
        for disk in vm.disks:
            yield disk, "attached", vm
        for disk in vm.orphans:
            yield disk, "orphaned", vm
    for disk in sorted(host.detached, key=lambda d: (d.vm, d.name, d.volume.name)):
        yield disk, "detached", by_uuid.get(disk.vm)


def matches(disk: Disk, state: str, filters: Filters) -> bool:
    """Return whether a disk matches the filters, except the one for its VM."""
    tags = filters.tags.items()
    return (
        (filters.uuid is None or disk.uuid == filters.uuid.lower())
        and (filters.name is None or disk.name == filters.name)
        and (filters.state is None or state in filters.state)
        and (filters.type is None or disk.type in filters.type)
        and all(
            key in disk.user_properties["tags"] and value in (None, disk.user_properties["tags"][key])
            for key, value in tags
        )
    )


def _result(host: Host, disk: Disk, state: str, vm: t.Optional[Vm], figures: bool) -> _Dict:
    config = vm.config if vm is not None else None
    result = report.disk_result(disk, state, True, figures)
    result.update(
        uuid=disk.uuid,
        vm=disk.vm,
        alias=config.alias if config is not None else _alias(host, disk.vm),
        vm_state=config.state if config is not None and state != "detached" else "",
        never_used=never_used(host, disk.volume),
        adopted=disk.adopted,
        replicas=replicas.as_result(disk, time.time()),
    )
    if figures:
        result["clones"] = sorted(clone for snapshot in disk.snapshots for clone in snapshot.clones)
        result["held_snapshots"] = sorted(s.name for s in disk.snapshots if s.userrefs)
    return result


def _alias(host: Host, uuid: str) -> str:
    others = (*host.other_brands, *host.unlinked)
    return next((config.alias for config in others if config.uuid == uuid), "")


def _add_releases(host: Host, disks: t.Sequence[_Dict]) -> None:
    releases_by_volume = {disk.volume.name: releases.of_detached(disk) for disk in host.detached}
    vms = {disk["vm"] for disk in disks if disk["state"] != "detached"}
    for vm in host.vms:
        if vm.config.uuid in vms:
            releases_by_volume.update(releases.of_vm(vm, host.geometry[vm.config.pool]))
    for disk in disks:
        disk["frees_bytes"] = asdict(releases_by_volume[disk["volume"]])
