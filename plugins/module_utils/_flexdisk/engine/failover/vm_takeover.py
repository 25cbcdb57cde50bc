# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM whose home has failed comes back on this host, from its replicas and its record."""

from __future__ import annotations

import os
import time
import typing as t
from dataclasses import replace

from ...fleet.replication import takeover
from ...fleet.replication.record import Record, read_record
from ...fleet.replication.takeover import Takeover
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem
from ...model.vm import Vm
from ...plan.planner import find_vm
from ...rules.failover import FAILOVER_PROPERTY, RIVALS, decode, encode, encode_rivals, rivals_of
from ...rules.inventory import Host
from ...rules.layout import container, last_part
from ...rules.moves import COMING, Move
from ...rules.naming import Identifiers, find_by_name
from ...rules.power import NOT_HOME, why_possibly_stale
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.journal import host_name
from ..host.observe import observe
from ..moves.vm_arrival import Arrival, disks_here
from ..replication import records
from ..replication import trust as keys
from ..replication.receivers import end_receiver
from ..replication.replica_info import kept
from ..replication.way_back import go_back


class Known(t.NamedTuple):
    """The record of a VM that this host can take over, and the pool with its replicas."""

    record: Record
    pool: str


class Ready(t.NamedTuple):
    """What would be done."""

    known: t.Optional[Known]
    takeover: t.Optional[Takeover]
    # An earlier run has begun it.
    begun: bool
    # The VM is here already.
    here: bool
    problems: t.List[Problem]


def known_vms() -> t.List[Known]:
    """All VMs that this host can take over."""
    return [_known(uuid) for uuid in records.known(records.FAILOVER)]


def _known(uuid: str) -> Known:
    stored = records.load(uuid, records.FAILOVER)
    return Known(read_record(stored["record"]), str(stored["pool"]))


def named(name: str) -> t.Optional[Known]:
    """The VM of this name, UUID or beginning of a UUID, None if there is none. Raises FlexdiskError Ambiguous."""
    found = [one for one in known_vms() if is_named(one.record.uuid, one.record.alias, name)]
    if len(found) > 1:
        raise FlexdiskError("Ambiguous", f"{host_name()} has records of several VMs {name}; give the whole uuid")
    return found[0] if found else None


def is_named(uuid: str, alias: str, name: str) -> bool:
    """Whether a VM has this name, UUID or beginning of a UUID."""
    return bool(find_by_name(name, [Identifiers(uuid, alias)]))


def held(zfs: Zfs, copies: Copies, pool: str) -> takeover.Kept:
    """The replicas in a pool."""
    found = kept(copies, [container(pool)]) if zfs.exists(container(pool)) else []
    return {last_part(one.replica.dataset): takeover.Held(one.replica, one.vm, one.times, one.back) for one in found}


class TakeOver:
    """What a failover needs on the host that takes a VM over. authorized: the file of keys that may come in."""

    def __init__(
        self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str, policy: t.Optional[Policy] = None
    ) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._runner = runner
        self._copies = Copies(runner)
        self._authorized = os.path.expanduser(authorized)
        self._arrival = Arrival(zfs, hypervisor, runner, policy or Policy())

    def look(self, name: str, leave_out: t.Collection[str] = (), rehearse: bool = True) -> Ready:
        """What a failover of the VM would do, and all that speaks against it. Nothing is changed. leave_out: the names
        or uuids of disks that have left the VM since its record was stored. rehearse: also plan its last steps, as take
        does before it destroys anything.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        known = named(name)
        if known is None:
            return self._without_record(host, name)
        uuid = known.record.uuid
        move = host.moves.get(uuid)
        if move is None and any(config.uuid == uuid and config.disks for config in host.configs):
            return _of_vm_here(known, next((vm for vm in host.vms if vm.config.uuid == uuid), None))
        begun = move is not None and move.phase == COMING and bool(move.back_to)
        known = known._replace(record=_chosen(known.record, leave_out, begun))
        done = {*disks_here(host, uuid)} if move is not None and move.phase == COMING else ()
        found, problems = takeover.plan(
            known.record, held(self._zfs, self._copies, known.pool), done, t.cast(Move, move).back_to if begun else ""
        )
        if not begun or not any(config.uuid == uuid for config in host.configs):  # take would make it again
            problems += self._against(known, found if rehearse and not begun else None)
        return Ready(known, found, begun, False, problems)

    def _against(self, known: Known, found: t.Optional[Takeover]) -> t.List[Problem]:
        """Why this host cannot have the VM. found: what it would come back to, None if that is not asked."""
        if found is None or not found.disks:
            return self._arrival.refusals(known.record, known.pool, taking=True)
        return self._arrival.foresee(known.record, known.pool, found.name)

    def foresee(self, known: Known, replicas: bool) -> t.List[Problem]:
        """All that would refuse a failover of the VM now, if its home failed. Nothing is changed. replicas: they must
        be there already.
        """
        found, problems = takeover.plan(known.record, held(self._zfs, self._copies, known.pool))
        return (problems if replicas else []) + self._against(known, found)

    def _without_record(self, host: Host, name: str) -> Ready:
        vm = find_vm(host, name)
        if not isinstance(vm, Problem) and vm.config.failover and vm.config.uuid not in host.moves:
            return _of_vm_here(None, vm)
        text = f"{host_name()} has no record of VM {name}; the playbook replicate with flexdisk_failover=true makes one"
        return Ready(None, None, False, False, [Problem("ResourceNotFound", f"{text}, as long as its home is there")])

    def take(
        self,
        name: str,
        most: t.Optional[int],
        leave_out: t.Collection[str] = (),
        rivals: t.Collection[str] = (),
        here: str = "",
        ready: t.Optional[Ready] = None,
    ) -> bool:
        """Take the VM over. most: seconds of what it wrote that may be lost, None for any. leave_out: as for look.
        rivals: the other hosts that could take it over, too. here: this host, which is none of them. ready: what look
        has said under the same lock, without problems; without it, the host is read once more. Whether anything was to
        do.

        Nothing is destroyed before it is written down which set the disks go back to, except what has arrived of
        interrupted streams: with it a newer set can become complete no more.
        """
        ready = ready or self._ready(name, most, leave_out)
        if ready.here or ready.known is None or ready.takeover is None:
            if ready.known is not None:
                self._arrival.forget(ready.known.record.uuid)
            return False
        record = ready.known.record
        uuids = [disk.uuid for disk in record.disks]
        keys.shut_out(self._authorized, uuids)
        for uuid in uuids:
            end_receiver(self._runner, uuid)
        ready = self._ready(name, most, leave_out)  # until now a stream may have come to its end
        partial = [back.replica for back in t.cast(Takeover, ready.takeover).disks if back.replica.token]
        for replica in partial:
            self._copies.give_up(replica.dataset)
        if partial:
            ready = self._ready(name, most, leave_out)
        found = t.cast(Takeover, ready.takeover)
        if not any(config.uuid == record.uuid for config in self._hypervisor.vms()) or not ready.begun:
            raised = _raised(record, {*rivals_of(record.marks), *rivals} - {here})
            self._expect(raised, t.cast(Known, ready.known).pool, found.name, ready.begun)
        self._go_back(found)
        self._arrival.arrive(record.uuid, record.host, taking=True)
        return True

    def _expect(self, record: Record, pool: str, back_to: str, begun: bool) -> None:
        """Make the VM without disks. If that is refused, nothing of it is left, unless an earlier run has begun it."""
        try:
            self._arrival.expect(record, pool, back_to)
        except FlexdiskError:
            if not begun:
                self._arrival.unexpect(record.uuid, taking=True)
            raise

    def _ready(self, name: str, most: t.Optional[int], leave_out: t.Collection[str]) -> Ready:
        ready = self.look(name, leave_out, rehearse=False)
        problems = ready.problems or list(too_old(ready, most, time.time()))
        if problems:
            raise FlexdiskError(problems[0].code, problems[0].message)
        return ready

    def _go_back(self, found: Takeover) -> None:
        """Destroy exactly the snapshots that were planned, and roll back."""
        for back in found.disks:
            progress.current().now("", back.disk.name, f"back to @{back.to.name}")
            if back.lost or back.replica.written or back.back:
                go_back(self._zfs, self._copies, back.replica, back.to, [point.name for point in back.lost])


def _of_vm_here(known: t.Optional[Known], vm: t.Optional[Vm]) -> Ready:
    """What is to do for a VM that is here: nothing, unless another host may have taken it over."""
    words = why_possibly_stale(vm) if vm is not None else ""
    problems = [Problem(NOT_HOME, f"{host_name()} {words}", vm.label)] if vm is not None and words else []
    return Ready(known, None, False, not problems, problems)


def too_old(ready: Ready, most: t.Optional[int], now: float) -> t.Iterator[Problem]:
    """Why what the replicas have is not good enough. most: as in take."""
    if most is None or ready.begun or ready.takeover is None:
        return
    age = ready.takeover.age(now)
    if age is None or age > most:
        text = f"{age} s old" if age is not None else "of a time that is not known"
        text = f"what the replicas have is {text}; flexdisk_max_data_loss allows {most} s"
        yield Problem("TooOld", text, t.cast(Known, ready.known).record.label)


def _chosen(record: Record, leave_out: t.Collection[str], begun: bool) -> Record:
    """The record with the disks that come back. A run that has begun without a disk goes on without it."""
    if begun and record.uuid in records.known(records.MOVES):
        coming = {disk.uuid for disk in read_record(records.load(record.uuid)).disks}
        return replace(record, disks=tuple(disk for disk in record.disks if disk.uuid in coming))
    return takeover.without(record, leave_out)


def _raised(record: Record, rivals: t.Collection[str]) -> Record:
    """The record of the VM on its new home: the old one has a lower term. rivals: all that could take it over."""
    wish = decode(record.marks.get(FAILOVER_PROPERTY, ""))
    if wish is None:
        raise FlexdiskError("InvalidArgument", f"the record of VM {record.label} does not say that it has failover")
    marks = {FAILOVER_PROPERTY: encode(wish._replace(term=wish.term + 1)), RIVALS: encode_rivals(rivals)}
    return replace(record, marks={**record.marks, **marks})
