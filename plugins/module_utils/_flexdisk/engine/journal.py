# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The journal on the containers: an entry is written before a VM's first change, and cleared after the last."""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from dataclasses import replace

from ..model.vm import JournalEntry
from ..plan.disk_steps import AttachDisk, Departure
from ..plan.steps import VmPlan
from ..plan.vm_steps import Relocate, RollBack
from ..rules import journal
from ..rules.inventory import Host
from ..rules.layout import container
from ..zfs.commands import Zfs


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
            found.update({(pool, vm): journal.decode(values[key]) for vm, key in journal.written(values)})
        elif listed:
            values = zfs.local_facts(container(pool), [journal.property_of(vm) for vm in listed])
            for vm in listed:
                if journal.property_of(vm) in values:
                    found[pool, vm] = journal.decode(values[journal.property_of(vm)])
    if not found:
        return host
    ours = {key: r for key, r in found.items() if r is not None and r.host == host_name()}
    vms = tuple(replace(vm, interrupted=ours.get((vm.config.pool, vm.config.uuid))) for vm in host.vms)
    return replace(host, vms=vms, intents=found, name=host_name())


class Journal:
    """Writes and clears the entries of one run."""

    def __init__(self, zfs: Zfs, host: Host) -> None:
        self._zfs = zfs
        self._plan = str(uuid.uuid4())
        self._there: t.Dict[str, t.Set[str]] = {pool: set() for pool in host.geometry}
        for pool, vm in host.intents:
            self._there[pool].add(vm)
        self._stale = {p for p in host.geometry if _index(host, p) != journal.encode_index(self._there[p])}

    def write(self, plan: VmPlan, stops: bool) -> None:
        """Write the entry of a plan. stops: the VM is about to be stopped, or an interrupted run has stopped it."""
        vm, left = plan.before, plan.before.interrupted
        pool = vm.config.pool
        record = JournalEntry(
            plan=self._plan,
            host=host_name(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            state=left.state if left is not None and left.powers else vm.config.state if vm.there else "stopped",
            autoboot=vm.autoboot_before,
            stops=stops,
            steps=tuple(step.text or step.kind for step in plan.steps if not step.silent),
            moves=tuple(_moves(plan)),
            rollback=next((step.name for step in plan.steps if isinstance(step, RollBack)), ""),
            creates=_creates(plan),
            boots=vm.booted,
        )
        self._there[pool].add(plan.vm)
        facts = {journal.property_of(plan.vm): journal.encode(record), journal.INDEX: self._listed(pool)}
        self._zfs.set_facts(container(pool), facts)
        self._stale.discard(pool)

    def _listed(self, pool: str) -> str:
        return journal.encode_index(self._there[pool])

    def clear(self, plan: VmPlan) -> None:
        """Remove the entry, and only then its name from the index: an entry without its name there is never found."""
        self.forget(plan.before.config.pool, plan.vm)

    def forget(self, pool: str, vm: str) -> None:
        """Remove the entry of the VM with this uuid, as clear does."""
        if vm in self._there[pool]:
            self._zfs.set_facts(container(pool), {journal.property_of(vm): ""})
            self._there[pool].discard(vm)
            self._stale.add(pool)
        self.tidy()

    def tidy(self) -> None:
        """Make each index name the entries that exist, even if a run was killed or an entry was cleared by hand."""
        for pool in sorted(self._stale):
            self._zfs.set_facts(container(pool), {journal.INDEX: self._listed(pool)})
        self._stale.clear()


def _creates(plan: VmPlan) -> str:
    """The name of the VM that is being made, also by a run that goes on with it."""
    left = plan.before.interrupted
    if not plan.before.there:
        return plan.before.config.alias
    return left.creates if left is not None and plan.after.there else ""


def _moves(plan: VmPlan) -> t.Iterator[t.Tuple[int, str, str]]:
    for step in plan.steps:
        if isinstance(step, Relocate):
            yield from ((disk.volume.guid, entry.volume, disk.volume.name) for entry, disk in step.moves)
        elif isinstance(step, Departure):
            yield step.guid, step.volume, step.target
        elif isinstance(step, AttachDisk) and step.source != step.volume:
            yield step.guid, step.source, step.volume


def forget_vm(zfs: Zfs, host: Host, vm: str) -> None:
    """Remove what an interrupted run has left in the journals of a VM that has ended here."""
    intents = Journal(zfs, host)
    for pool in [pool for pool, one in host.intents if one == vm]:
        intents.forget(pool, vm)
    intents.tidy()
