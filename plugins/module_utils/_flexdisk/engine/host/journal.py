# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal on the containers: an entry is written before a VM's first change, and cleared after the last."""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from dataclasses import replace

from ...model.vm import JournalEntry, Vm
from ...plan.disk_steps import AttachDisk, DiskDeparture
from ...plan.steps import VmPlan
from ...plan.vm_steps import Relocate, RollBack
from ...rules import identity, journal
from ...rules.inventory import Host
from ...rules.layout import container
from ...rules.usage import as_it_ran
from ...zfs.commands import Zfs


def host_name() -> str:
    """The name of this host as it is in entries."""
    return os.uname().nodename or "unknown"


def _index(host: Host, pool: str) -> str:
    box = host.datasets.get(container(pool))
    return box.user.get(journal.INDEX, "") if box is not None else ""


def with_journal(zfs: Zfs, host: Host, complete: bool = False) -> Host:
    """The host with the entries of its journal, by one process for each pool that has any. VMs get those of this host.

    complete: read also entries that the index does not list, by one process for each pool with a container.
    """
    found: t.Dict[t.Tuple[str, str], t.Optional[JournalEntry]] = {}
    for pool in host.geometry:
        listed = journal.decode_index(_index(host, pool))
        if complete and container(pool) in host.datasets:
            values = zfs.local_facts(container(pool))
            found.update({(pool, vm): journal.decode(values[key]) for vm, key in journal.written_entries(values)})
        elif listed:
            values = zfs.local_facts(container(pool), [journal.property_of(vm) for vm in listed])
            for vm in listed:
                if journal.property_of(vm) in values:
                    found[pool, vm] = journal.decode(values[journal.property_of(vm)])
    if not found:
        return host
    ours = {key: r for key, r in found.items() if r is not None and r.host == host_name()}
    vms = tuple(_with_entry(vm, ours.get((vm.config.pool, vm.config.uuid))) for vm in host.vms)
    return replace(host, vms=vms, intents=found, name=host_name())


def _with_entry(vm: Vm, record: t.Optional[JournalEntry]) -> Vm:
    """The VM with its entry. That of a run which has ended interrupts only a VM that is down because of it.

    That of a run which was killed has its work taken up. It starts only a VM that is down because of it.
    """
    if record is not None and record.late and vm.config.state == "running":
        return replace(vm, asked=record if journal.may_shut_down(record, vm.config, time.time()) else None)
    if record is not None and record.late and not journal.has_shut_down(record, vm.config, time.time()):
        record = None
    if record is not None and journal.ended_otherwise(record, vm.config, time.time()):
        record = record._replace(state="stopped", autoboot=vm.config.autoboot)
    vm = replace(vm, interrupted=record)
    # It ran when the plan of that run was made, so its disks were told to the end.
    return as_it_ran(vm) if vm.halted and vm.doubted else vm


class Journal:
    """Writes and clears the entries of one run."""

    def __init__(self, zfs: Zfs, host: Host) -> None:
        self._zfs = zfs
        self._plan = str(uuid.uuid4())
        self._there: t.Dict[str, t.Set[str]] = {pool: set() for pool in host.geometry}
        for pool, vm in host.intents:
            self._there[pool].add(vm)
        self._stale = {p for p in host.geometry if _index(host, p) != journal.encode_index(self._there[p])}
        self._last: t.Dict[str, JournalEntry] = {}
        self._over = [
            (vm.config.pool, vm.config.uuid) for vm in host.vms if _is_over(vm, host.intents.get(_key(vm)), host.name)
        ]

    def write(self, plan: VmPlan, stops: bool, asks: bool = False) -> None:
        """Write the entry of a plan. stops: the VM is about to be stopped, or an interrupted run has stopped it. asks:
        its guest is about to be asked, or has been asked by this run.
        """
        vm, pool = plan.before, plan.before.config.pool
        left = vm.interrupted or vm.asked
        changes = vm.exists and plan.after.exists
        record = JournalEntry(
            plan=self._plan,
            host=host_name(),
            since=identity.render_time(time.time()),
            state="running" if vm.exists and plan.runs_after else "stopped",
            autoboot=plan.after.config.autoboot if changes else vm.autoboot_before,
            stops=stops,
            steps=tuple(step.text or step.kind for step in plan.steps if not step.facts_only),
            moves=tuple(_moves(plan)),
            rollback=_rollback(plan),
            creates=_creates(plan),
            boots=vm.booted,
            member=(plan.after.member or "") if _creates(plan) else "",
            deletes=_deletes(plan),
            asked=journal.run_id(vm.config) if asks else left.asked if left is not None else "",
        )
        self._put(pool, plan.vm, record)

    def _put(self, pool: str, vm: str, record: JournalEntry) -> None:
        self._last[vm] = record
        self._there[pool].add(vm)
        facts = {journal.property_of(vm): journal.encode(record), journal.INDEX: self._listed(pool)}
        self._zfs.set_facts(container(pool), facts)
        self._stale.discard(pool)

    def leave(self, plan: VmPlan) -> None:
        """Leave the last entry of the plan for the next run: the guest was asked to shut down, and still runs."""
        if plan.vm in self._last:
            self._put(plan.before.config.pool, plan.vm, _ended(self._last[plan.vm]))

    def note_asked(self, vm: Vm, autoboot: bool) -> None:
        """Write down that the guest of a VM was asked to shut down and still runs, and that the VM shall run."""
        record = JournalEntry(
            plan=self._plan,
            host=host_name(),
            since=identity.render_time(time.time()),
            state="running",
            autoboot=autoboot,
            stops=True,
            boots=vm.booted,
            asked=journal.run_id(vm.config),
        )
        self._put(vm.config.pool, vm.config.uuid, _ended(record))

    def _listed(self, pool: str) -> str:
        return journal.encode_index(self._there[pool])

    def clear(self, plan: VmPlan) -> None:
        """Remove the entry, and only then its name from the index: an entry without its name there is never found.

        If an earlier run has asked the guest to shut down, and it still can, the next run must know.
        """
        left = plan.before.interrupted or plan.before.asked
        if left is not None and _outlasts(left, plan):
            if plan.vm in self._last or not left.late:
                self._put(plan.before.config.pool, plan.vm, _ended(left))
            return
        self.forget(plan.before.config.pool, plan.vm)

    def forget(self, pool: str, vm: str) -> None:
        """Remove the entry of the VM with this uuid, as clear does."""
        if vm in self._there[pool]:
            self._zfs.set_facts(container(pool), {journal.property_of(vm): ""})
            self._there[pool].discard(vm)
            self._stale.add(pool)
        self.tidy()

    def tidy(self) -> None:
        """Make each index name the entries that exist, even if a run was killed or an entry was cleared by hand.

        Entries that tell of nothing any more go first.
        """
        over, self._over = self._over, []
        for pool, vm in over:
            if vm not in self._last:
                self.forget(pool, vm)
        for pool in sorted(self._stale):
            self._zfs.set_facts(container(pool), {journal.INDEX: self._listed(pool)})
        self._stale.clear()


def _key(vm: Vm) -> t.Tuple[str, str]:
    return vm.config.pool, vm.config.uuid


def _is_over(vm: Vm, record: t.Optional[JournalEntry], host: str) -> bool:
    """Whether a guest that was asked to shut down has refused, or the VM was started again since."""
    late = record is not None and record.late and record.host == host
    return late and vm.interrupted is None and vm.asked is None


def _outlasts(left: JournalEntry, plan: VmPlan) -> bool:
    """Whether the guest can still shut down because of an earlier run, after a plan that leaves the VM running."""
    stays = plan.runs_after and not plan.stops and left.state == "running"
    return stays and journal.may_shut_down(left, plan.before.config, time.time())


def _ended(record: JournalEntry) -> JournalEntry:
    """The entry of a run that has ended, but for a guest that it has asked to shut down."""
    return record._replace(late=True, steps=(), moves=(), rollback="", creates="")


def _creates(plan: VmPlan) -> str:
    """The name of the VM that is being made, also by a run that goes on with it."""
    left = plan.before.interrupted
    if not plan.before.exists:
        return plan.before.config.alias if plan.after.exists else ""
    return left.creates if left is not None and plan.after.exists else ""


def _rollback(plan: VmPlan) -> str:
    """The snapshot to which the disks go back, or went when the VM was given up."""
    left = plan.before.interrupted
    again = left.rollback if left is not None and _deletes(plan) else ""
    return next((step.name for step in plan.steps if isinstance(step, RollBack)), again)


def _deletes(plan: VmPlan) -> str:
    """The name of the VM that is being deleted, also by a run that goes on with it."""
    return "" if plan.after.exists or not plan.changed else plan.before.config.alias or plan.vm


def _moves(plan: VmPlan) -> t.Iterator[t.Tuple[int, str, str]]:
    for step in plan.steps:
        if isinstance(step, Relocate):
            yield from ((disk.volume.guid, entry.volume, disk.volume.name) for entry, disk in step.moves)
        elif isinstance(step, DiskDeparture):
            yield step.guid, step.volume, step.target
        elif isinstance(step, AttachDisk) and step.source != step.volume:
            yield step.guid, step.source, step.volume


def forget_vm(zfs: Zfs, host: Host, vm: str) -> None:
    """Remove what an interrupted run has left in the journals of a VM that has ended here."""
    intents = Journal(zfs, host)
    for pool in [pool for pool, one in host.intents if one == vm]:
        intents.forget(pool, vm)
    intents.tidy()
