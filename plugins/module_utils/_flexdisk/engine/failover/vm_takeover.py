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
from ...rules.failover import (
    FAILOVER_PROPERTY,
    RIVALS_PROPERTY,
    decode_setting,
    encode_rivals,
    encode_setting,
    rivals_of,
)
from ...rules.inventory import Host
from ...rules.keys import KEY_NOT_LOADED, locked_pool
from ...rules.layout import container, last_part
from ...rules.moves import COMING, Move
from ...rules.naming import Identifiers, find_by_name
from ...rules.power import NOT_HOME, why_possibly_stale
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.journal import host_name
from ..host.observe import observe
from ..moves.vm_arrival import MoveTarget, disks_here
from ..replication import records
from ..replication import trust as keys
from ..replication.receivers import end_receiver
from ..replication.replica_info import stored_replicas
from ..replication.way_back import roll_back_replica


class KnownVm(t.NamedTuple):
    """The record of a VM that this host can take over, and the pool with its replicas."""

    record: Record
    pool: str


class TakeoverPlan(t.NamedTuple):
    """What a takeover of a VM would do."""

    known: t.Optional[KnownVm]
    """None without a record of the VM."""
    takeover: t.Optional[Takeover]
    """The sets that its disks come back to, None if the VM is here or has no record."""
    begun: bool
    """An earlier run has begun the takeover."""
    here: bool
    """The VM is here already."""
    problems: t.List[Problem]


def known_vms() -> t.List[KnownVm]:
    """Return all VMs that this host can take over."""
    return [_known(uuid) for uuid in records.known(records.FAILOVER)]


def _known(uuid: str) -> KnownVm:
    stored = records.load(uuid, records.FAILOVER)
    return KnownVm(read_record(stored["record"]), str(stored["pool"]))


def find_known(name: str) -> t.Optional[KnownVm]:
    """Return the VM of this name, UUID or beginning of a UUID, None for none. Raises FlexdiskError Ambiguous."""
    matches = [one for one in known_vms() if is_named(one.record.uuid, one.record.alias, name)]
    if len(matches) > 1:
        raise FlexdiskError("Ambiguous", f"{host_name()} has records of several VMs {name}; give the whole uuid")
    return matches[0] if matches else None


def is_named(uuid: str, alias: str, name: str) -> bool:
    """Return whether a VM has this name, UUID or beginning of a UUID."""
    return bool(find_by_name(name, [Identifiers(uuid, alias)]))


def read_replicas(zfs: Zfs, copies: Copies, pool: str) -> takeover.LocalReplicas:
    """Return the replicas in a pool, by the UUIDs of their disks."""
    stored = stored_replicas(copies, [container(pool)]) if zfs.exists(container(pool)) else []
    return {
        last_part(one.replica.dataset): takeover.LocalReplica(one.replica, one.vm, one.times, one.back)
        for one in stored
    }


class TakeOver:
    """Takes a VM over on this host. authorized: the file authorized_keys through which its home sends."""

    def __init__(
        self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str, policy: t.Optional[Policy] = None
    ) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._runner = runner
        self._copies = Copies(runner)
        self._authorized = os.path.expanduser(authorized)
        self._arrival = MoveTarget(zfs, hypervisor, runner, policy or Policy())

    def look(self, name: str, leave_out: t.Collection[str] = (), rehearse: bool = True) -> TakeoverPlan:
        """Return what a failover of the VM would do, with all problems. Read only.

        Args:
            leave_out: names or UUIDs of disks that have left the VM since its record was stored.
            rehearse: also plan the last steps, as take() does before it destroys anything.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        known = find_known(name)
        if known is None:
            return self._without_record(host, name)
        uuid = known.record.uuid
        move = host.moves.get(uuid)
        if move is None and any(config.uuid == uuid and config.disks for config in host.configs):
            return _of_vm_here(known, next((vm for vm in host.vms if vm.config.uuid == uuid), None))
        begun = move is not None and move.phase == COMING and bool(move.back_to)
        known = known._replace(record=_chosen_disks(known.record, leave_out, begun))
        done = {*disks_here(host, uuid)} if move is not None and move.phase == COMING else ()
        restore_point, problems = takeover.plan(
            known.record,
            read_replicas(self._zfs, self._copies, known.pool),
            done,
            t.cast(Move, move).back_to if begun else "",
        )
        if not begun or not any(config.uuid == uuid for config in host.configs):  # take would make it again
            problems += self._target_problems(known, restore_point if rehearse and not begun else None)
            missing = locked_pool(host.datasets, known.pool)
            problems += [Problem(KEY_NOT_LOADED, missing, known.record.label)] if missing else []
        return TakeoverPlan(known, restore_point, begun, False, problems)

    def _target_problems(self, known: KnownVm, restore_point: t.Optional[Takeover]) -> t.List[Problem]:
        """Return why this host cannot have the VM. restore_point: also check that its replicas fit, None: do not."""
        if restore_point is None or not restore_point.disks:
            return self._arrival.refusals(known.record, known.pool, taking=True)
        return self._arrival.predict_problems(known.record, known.pool, restore_point.name)

    def predict_problems(self, known: KnownVm, replicas: bool) -> t.List[Problem]:
        """Return the problems that a failover of the VM would have now. Read only. replicas: also require these.

        A key that is not loaded is none: replicas may stay locked until a failover.
        """
        replicas_here = read_replicas(self._zfs, self._copies, known.pool)
        restore_point, problems = takeover.plan(known.record, replicas_here, needs_keys=False)
        return (problems if replicas else []) + self._target_problems(known, restore_point)

    def _without_record(self, host: Host, name: str) -> TakeoverPlan:
        vm = find_vm(host, name)
        if not isinstance(vm, Problem) and vm.config.failover and vm.config.uuid not in host.moves:
            return _of_vm_here(None, vm)
        text = f"{host_name()} has no record of VM {name}; the playbook replicate with flexdisk_failover=true makes one"
        return TakeoverPlan(
            None, None, False, False, [Problem("ResourceNotFound", f"{text}, as long as its home is there")]
        )

    def take(
        self,
        name: str,
        max_age: t.Optional[int],
        leave_out: t.Collection[str] = (),
        rivals: t.Collection[str] = (),
        here: str = "",
        plan: t.Optional[TakeoverPlan] = None,
    ) -> bool:
        """Take the VM over. Return whether there was anything to do.

        Nothing is destroyed before the set that the disks go back to is written down. Only partly received streams are
        discarded before, so that no newer set can become complete.

        Args:
            max_age: seconds of data that may be lost, None for any number.
            leave_out: as for look().
            rivals: other hosts that could take the VM over, too.
            here: the name of this host, which is none of the rivals.
            plan: the result of look() under the same lock, without problems. Without it, the host is read again.
        """
        plan = plan or self._checked_plan(name, max_age, leave_out)
        if plan.here or plan.known is None or plan.takeover is None:
            if plan.known is not None:
                self._arrival.remove_records(plan.known.record.uuid)
            return False
        record = plan.known.record
        uuids = [disk.uuid for disk in record.disks]
        keys.remove_authorized(self._authorized, uuids)
        for uuid in uuids:
            end_receiver(self._runner, uuid)
        plan = self._checked_plan(name, max_age, leave_out)  # until now a stream may have come to its end
        partly_received = [back.replica for back in t.cast(Takeover, plan.takeover).disks if back.replica.token]
        for replica in partly_received:
            self._copies.give_up(replica.dataset)
        if partly_received:
            plan = self._checked_plan(name, max_age, leave_out)
        restore_point = t.cast(Takeover, plan.takeover)
        if not any(config.uuid == record.uuid for config in self._hypervisor.vms()) or not plan.begun:
            next_record = _with_next_term(record, {*rivals_of(record.marks), *rivals} - {here})
            self._expect(next_record, t.cast(KnownVm, plan.known).pool, restore_point.name, plan.begun)
        self._go_back(restore_point)
        self._arrival.arrive(record.uuid, record.host, taking=True)
        return True

    def _expect(self, record: Record, pool: str, back_to: str, begun: bool) -> None:
        """Create the VM without disks. If that fails, remove it again, unless an earlier run has begun it."""
        try:
            self._arrival.expect(record, pool, back_to)
        except FlexdiskError:
            if not begun:
                self._arrival.cancel(record.uuid, taking=True)
            raise

    def _checked_plan(self, name: str, max_age: t.Optional[int], leave_out: t.Collection[str]) -> TakeoverPlan:
        plan = self.look(name, leave_out, rehearse=False)
        problems = plan.problems or list(problems_of_age(plan, max_age, time.time()))
        if problems:
            raise FlexdiskError(problems[0].code, problems[0].message)
        return plan

    def _go_back(self, restore_point: Takeover) -> None:
        """Destroy exactly the snapshots that were planned, and roll back."""
        for back in restore_point.disks:
            progress.current().now("", back.disk.name, f"back to @{back.to.name}")
            if back.lost or back.replica.written or back.discards_writes:
                roll_back_replica(self._zfs, self._copies, back.replica, back.to, [point.name for point in back.lost])


def _of_vm_here(known: t.Optional[KnownVm], vm: t.Optional[Vm]) -> TakeoverPlan:
    """Return a plan without steps for a VM that is here, with a problem if another host may have taken it over."""
    reason = why_possibly_stale(vm) if vm is not None else ""
    problems = [Problem(NOT_HOME, f"{host_name()} {reason}", vm.label)] if vm is not None and reason else []
    return TakeoverPlan(known, None, False, not problems, problems)


def problems_of_age(plan: TakeoverPlan, max_age: t.Optional[int], now: float) -> t.Iterator[Problem]:
    """Yield a problem if the replicas are older than max_age seconds."""
    if max_age is None or plan.begun or plan.takeover is None:
        return
    age = plan.takeover.age(now)
    if age is None or age > max_age:
        text = f"{age} s old" if age is not None else "of a time that is not known"
        text = f"what the replicas have is {text}; flexdisk_max_data_loss allows {max_age} s"
        yield Problem("TooOld", text, t.cast(KnownVm, plan.known).record.label)


def _chosen_disks(record: Record, leave_out: t.Collection[str], begun: bool) -> Record:
    """Return the record with only the disks that come back. A takeover that began without a disk continues so."""
    if begun and record.uuid in records.known(records.MOVES):
        coming = {disk.uuid for disk in read_record(records.load(record.uuid)).disks}
        return replace(record, disks=tuple(disk for disk in record.disks if disk.uuid in coming))
    return takeover.without_disks(record, leave_out)


def _with_next_term(record: Record, rivals: t.Collection[str]) -> Record:
    """Return the record of the VM on its new home, with the next term. rivals: all that could take it over."""
    setting = decode_setting(record.marks.get(FAILOVER_PROPERTY, ""))
    if setting is None:
        raise FlexdiskError("InvalidArgument", f"the record of VM {record.label} does not say that it has failover")
    marks = {
        FAILOVER_PROPERTY: encode_setting(setting._replace(term=setting.term + 1)),
        RIVALS_PROPERTY: encode_rivals(rivals),
    }
    return replace(record, marks={**record.marks, **marks})
