# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of VMs that a host with their replicas can take over."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...fleet.replication.record import Record, record_as_result
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import Problem
from ...rules.failover import RIVALS_PROPERTY, encode_rivals, rivals_of
from ...rules.layout import container, last_part
from ...rules.moves import COMING
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.journal import host_name
from ..host.observe import observe
from ..host.read_once import ReadOnce, vms_once
from ..replication import records
from ..replication.replica_info import stored_replicas
from .guests_service import why_host_starts_all
from .vm_takeover import KnownVm, TakeOver, known_vms


def store(
    zfs: Zfs,
    hypervisor: Hypervisor,
    runner: Runner,
    given: t.Sequence[Record],
    pools: t.Mapping[str, str],
    check_mode: bool,
    policy: t.Optional[Policy] = None,
) -> t.Tuple[t.List[str], t.List[Problem]]:
    """Store the records of VMs. Return the labels of new or changed ones, and all problems.

    Problems are records that cannot be stored, and whatever would refuse a failover of the VMs now. A host that starts
    all VMs after a boot gets no first record of a VM. Those that it has are renewed.

    Args:
        pools: the pools with the replicas, by the UUIDs of the VMs.
        policy: what this host allows of VMs from other hosts.
    """
    cached_runner = ReadOnce(runner)
    take_over = TakeOver(Zfs(cached_runner), vms_once(hypervisor), cached_runner, "", policy)
    changed = [one for one in given if records.differs(one.uuid, _stored(one, pools), records.FAILOVER)]
    all_start = why_host_starts_all(hypervisor)
    refused = [Problem("NotSupported", f"{host_name()}: {all_start}", "")] if given and all_start else []
    if refused:
        known = records.known(records.FAILOVER)
        given = [one for one in given if one.uuid in known]
        changed = [one for one in changed if one.uuid in known]
    if check_mode:
        return [one.label for one in changed], refused + _predict_problems(take_over, given, pools, False)
    places = {container(pools[one.uuid]) for one in changed}
    stored = stored_replicas(Copies(runner), [place for place in places if zfs.exists(place)])
    here = {(last_part(one.replica.dataset), one.vm, one.replica.home) for one in stored}
    text = f"{host_name()} has no replica of it: the VM has changed since; sync again"
    lacking = [(one, disk) for one in changed for disk in one.disks if (disk.uuid, one.uuid, one.home) not in here]
    complete = [one for one in changed if one not in [bad for bad, _disk in lacking]]
    for one in complete:
        records.save(one.uuid, _stored(one, pools), records.FAILOVER)
    problems = [Problem("Changed", text, one.label, disk.name) for one, disk in lacking]
    checkable = [one for one in given if one not in changed or one in complete]
    problems = refused + problems
    return [one.label for one in complete], problems + _predict_problems(take_over, checkable, pools, True)


def _predict_problems(
    take_over: TakeOver, given: t.Sequence[Record], pools: t.Mapping[str, str], replicas: bool
) -> t.List[Problem]:
    """Return all problems that a failover of these VMs would have now. replicas: as for TakeOver.predict_problems()."""
    return [problem for one in given for problem in take_over.predict_problems(KnownVm(one, pools[one.uuid]), replicas)]


def _stored(record: Record, pools: t.Mapping[str, str]) -> t.Dict[str, t.Any]:
    return {"pool": pools[record.uuid], "record": record_as_result(record)}


def note(vms: t.Collection[str], host: str, check_mode: bool) -> t.List[str]:
    """Write down in the records of these VMs that another host can take them over from now on, too.

    Return the labels of the VMs of which that was not known.
    """
    labels = []
    for known in (one for one in known_vms() if one.record.uuid in vms):
        record = known.record
        rivals = rivals_of(record.marks)
        if host not in rivals:
            labels.append(record.label)
            marks = {**record.marks, RIVALS_PROPERTY: encode_rivals([*rivals, host])}
            if not check_mode:
                stored = _stored(replace(record, marks=marks), {record.uuid: known.pool})
                records.save(record.uuid, stored, records.FAILOVER)
    return labels


def in_use(zfs: Zfs, hypervisor: Hypervisor, vms: t.Collection[str]) -> t.List[Problem]:
    """Return why the records of these VMs must stay: this host has the VMs, or takes them over from an old home."""
    host = observe(zfs, hypervisor, snapshots=False, all_pools=True)
    names = {config.uuid: config.alias or config.uuid for config in host.configs if config.uuid in vms}
    coming = {uuid: move for uuid, move in host.moves.items() if uuid in vms and move.phase == COMING}
    names.update({uuid: move.label for uuid, move in coming.items()})
    text = f"{host_name()} has it, or brings it here; the host that asks is not its home any more. On that host,"
    text += " flexdisk_failover_state=returned of the playbook failover_vm ends it"
    return [Problem("InUse", text, label) for _uuid, label in sorted(names.items())]


def drop(vms: t.Collection[str], homes: t.Collection[int], check_mode: bool) -> t.List[str]:
    """Remove the records of these VMs, if homes is not empty only of those from these pools. Return the labels."""
    gone = [one.record for one in known_vms() if one.record.uuid in vms and (not homes or one.record.home in homes)]
    for one in gone if not check_mode else ():
        records.remove(one.uuid, records.FAILOVER)
    return [one.label for one in gone]
