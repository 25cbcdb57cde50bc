# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The records of VMs that a host with their replicas can take over."""

from __future__ import annotations

import typing as t

from ..fleet.replication.record import Record, told
from ..model.errors import Problem
from ..rules.layout import container, last_part
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from . import records
from .journal import host_name
from .replica_info import kept
from .vm_takeover import known_vms


def store(
    zfs: Zfs, copies: Copies, given: t.Sequence[Record], pools: t.Mapping[str, str], check_mode: bool
) -> t.Tuple[t.List[str], t.List[Problem]]:
    """Keep the records of VMs. pools: those with their replicas, by the VMs' uuids. The labels of those that are new or
    different, and why those of others are not kept.
    """
    news = [one for one in given if records.differs(one.uuid, _stored(one, pools), records.FAILOVER)]
    if check_mode:
        return [one.label for one in news], []
    places = {container(pools[one.uuid]) for one in news}
    found = kept(copies, [place for place in places if zfs.exists(place)])
    here = {(last_part(one.replica.dataset), one.vm, one.replica.home) for one in found}
    words = f"{host_name()} has no replica of it: the VM has changed since; sync again"
    lacking = [(one, disk) for one in news for disk in one.disks if (disk.uuid, one.uuid, one.home) not in here]
    whole = [one for one in news if one not in [bad for bad, _disk in lacking]]
    for one in whole:
        records.save(one.uuid, _stored(one, pools), records.FAILOVER)
    return [one.label for one in whole], [Problem("Changed", words, one.label, disk.name) for one, disk in lacking]


def _stored(record: Record, pools: t.Mapping[str, str]) -> t.Dict[str, t.Any]:
    return {"pool": pools[record.uuid], "record": told(record)}


def drop(vms: t.Collection[str], homes: t.Collection[int], check_mode: bool) -> t.List[str]:
    """Remove the records of these VMs. homes: only of those whose home has such a pool; none: all. Their labels."""
    gone = [one.record for one in known_vms() if one.record.uuid in vms and (not homes or one.record.home in homes)]
    for one in gone if not check_mode else ():
        records.remove(one.uuid, records.FAILOVER)
    return [one.label for one in gone]
