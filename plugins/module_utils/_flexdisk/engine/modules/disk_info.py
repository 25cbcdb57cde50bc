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
    """Which disks are asked for: all that match each filter that is there. A tag whose value is None: any value."""

    uuid: t.Optional[str] = None
    name: t.Optional[str] = None
    vm: t.Optional[str] = None
    state: t.Optional[t.Sequence[str]] = None
    type: t.Optional[t.Sequence[str]] = None
    tags: t.Mapping[str, t.Optional[str]] = field(default_factory=dict)


@dataclass
class Disks:
    """Disks as results."""

    disks: t.List[_Dict] = field(default_factory=list)
    # The VMs whose disks are not among them, with the reason. None of a choice.
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    problems: t.List[Problem] = field(default_factory=list)


def disks_info(
    zfs: Zfs, hypervisor: Hypervisor, filters: Filters, pool: t.Optional[str], figures: bool, hidden: bool
) -> Disks:
    """Disks of the host, those of VMs first. figures adds what destroying each would free, and what stands against it;
    hidden the platform's own.
    """
    problems = Problems("")
    disk_properties.parsed(
        problems, "", {"tags": {key: value for key, value in filters.tags.items() if value is not None}}
    )
    if problems:
        return Disks(problems=problems)
    host = observe(zfs, hypervisor, pool, snapshots=figures)
    owner = filters.vm
    if owner is not None:
        found = find_vm(host, owner)
        remembered = {disk.vm for disk in host.detached if disk.vm}
        if isinstance(found, Problem) and owner.lower() not in remembered:
            return Disks(problems=[found])
        owner = owner.lower() if isinstance(found, Problem) else found.config.uuid
    result = Disks(skipped=skipped(host) if filters == Filters() else [])
    for disk, state, vm in _every(host):
        if (hidden or not disk.hidden) and (owner is None or disk.vm == owner) and matches(disk, state, filters):
            result.disks.append(_result(host, disk, state, vm, figures))
    if figures:
        _add_releases(host, result.disks)
    return result


def _every(host: Host) -> t.Iterator[t.Tuple[Disk, str, t.Optional[Vm]]]:
    by_uuid = {vm.config.uuid: vm for vm in host.vms}
    for vm in host.vms:
        for disk in vm.disks:
            yield disk, "attached", vm
        for disk in vm.orphans:
            yield disk, "orphaned", vm
    for disk in sorted(host.detached, key=lambda d: (d.vm, d.name, d.volume.name)):
        yield disk, "detached", by_uuid.get(disk.vm)


def matches(disk: Disk, state: str, filters: Filters) -> bool:
    """Whether a disk is asked for, as far as that does not depend on its VM."""
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
    found = {disk.volume.name: releases.of_detached(disk) for disk in host.detached}
    asked = {disk["vm"] for disk in disks if disk["state"] != "detached"}
    for vm in host.vms:
        if vm.config.uuid in asked:
            found.update(releases.of_vm(vm, host.geometry[vm.config.pool]))
    for disk in disks:
        disk["frees_bytes"] = asdict(found[disk["volume"]])
