# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal on the containers: an intent is written before a VM's first change, and cleared after the last."""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from dataclasses import replace

from ...model.vm import Intent, Vm
from ...plan.disk_steps import AttachDisk, DiskDeparture
from ...plan.steps import VmPlan
from ...plan.vm_steps import Relocate, RollBack
from ...rules import identity, journal
from ...rules.inventory import Host
from ...rules.layout import container
from ...rules.usage import as_it_ran
from ...zfs.commands import Zfs


def host_name() -> str:
    """Return the name of this host as intents have it."""
    return os.uname().nodename or "unknown"


def _index(host: Host, pool: str) -> str:
    dataset = host.datasets.get(container(pool))
    return dataset.user.get(journal.INDEX_PROPERTY, "") if dataset is not None else ""


def with_journal(zfs: Zfs, host: Host, complete: bool = False) -> Host:
    """Return the host with the intents of its journal. VMs get those that this host has written.

    It takes one process for each pool with intents. complete: also read intents that the index does not list, by one
    process for each pool with a container.
    """
    intents: t.Dict[t.Tuple[str, str], t.Optional[Intent]] = {}
    for pool in host.geometry:
        listed = journal.decode_index(_index(host, pool))
        if complete and container(pool) in host.datasets:
            values = zfs.local_facts(container(pool))
            intents.update({(pool, vm): journal.decode(values[key]) for vm, key in journal.written_entries(values)})
        elif listed:
            values = zfs.local_facts(container(pool), [journal.intent_property(vm) for vm in listed])
            for vm in listed:
                if journal.intent_property(vm) in values:
                    intents[pool, vm] = journal.decode(values[journal.intent_property(vm)])
    if not intents and not any(vm.config.waiting for vm in host.vms):
        return host
    of_this_host = {key: r for key, r in intents.items() if r is not None and r.host == host_name()}
    vms = tuple(_with_intent(vm, _intent_of(vm, of_this_host)) for vm in host.vms)
    vms = tuple(_with_foreign_waiting(vm) for vm in vms)
    return replace(host, vms=vms, intents=intents, name=host_name())


def _intent_of(vm: Vm, intents: t.Mapping[t.Tuple[str, str], Intent]) -> t.Optional[Intent]:
    """Return the intent of a VM. One without a dataset of its own may boot from another pool by now."""
    pools = [pool for pool, uuid in sorted(intents) if uuid == vm.config.uuid] if vm.config.prefixes else []
    return next(
        (intents[key] for key in (_key(vm), *((pool, vm.config.uuid) for pool in pools)) if key in intents), None
    )


def _with_foreign_waiting(vm: Vm) -> Vm:
    """Return the VM, frozen if changes wait in it that no interrupted run of ours can have begun."""
    config, left = vm.config, vm.interrupted
    going = {one.volume for one in config.waiting if one.leaves}
    if not config.waiting or (left is not None and going <= {source for _guid, source, _target in left.moves}):
        return vm
    return replace(vm, config=replace(config, frozen=config.frozen or config.why_waiting))


def _with_intent(vm: Vm, intent: t.Optional[Intent]) -> Vm:
    """Return the VM with its intent.

    The work of a killed run is continued. An intent that an ended run has left for a late shutdown counts only if the
    VM is down because of it. Either way, a VM is started only if it is down because of that run.
    """
    if intent is not None and vm.config.prefixes:  # no task sets autoboot there: whoever has changed it meant it
        intent = intent._replace(autoboot=vm.config.autoboot)
    if intent is not None and intent.late and vm.config.state == "running":
        return replace(vm, asked=intent if journal.may_shut_down(intent, vm.config, time.time()) else None)
    if intent is not None and intent.late and not journal.has_shut_down(intent, vm.config, time.time()):
        intent = None
    if intent is not None and journal.ended_otherwise(intent, vm.config, time.time()):
        intent = intent._replace(state="stopped", autoboot=vm.config.autoboot)
    vm = replace(vm, interrupted=intent)
    # The VM ran when that run was planned, so the hypervisor reported its disks completely then.
    return as_it_ran(vm) if vm.halted and vm.doubted else vm


class Journal:
    """Writes and clears the intents of one run."""

    def __init__(self, zfs: Zfs, host: Host) -> None:
        self._zfs = zfs
        self._plan = str(uuid.uuid4())
        self._vms: t.Dict[str, t.Set[str]] = {pool: set() for pool in host.geometry}
        for pool, vm in host.intents:
            self._vms[pool].add(vm)
        self._stale = {p for p in host.geometry if _index(host, p) != journal.encode_index(self._vms[p])}
        self._last: t.Dict[str, Intent] = {}
        self._obsolete = [
            (vm.config.pool, vm.config.uuid)
            for vm in host.vms
            if _is_obsolete(vm, host.intents.get(_key(vm)), host.name)
        ]

    def write(self, plan: VmPlan, stops: bool, asks: bool = False) -> None:
        """Write the intent of a plan.

        Args:
            stops: the VM is about to be stopped, or an interrupted run has stopped it.
            asks: this run is about to ask the guest to shut down, or has asked it.
        """
        vm, pool = plan.before, plan.before.config.pool
        earlier = vm.interrupted or vm.asked
        vm_stays = vm.exists and plan.after.exists
        intent = Intent(
            plan=self._plan,
            host=host_name(),
            since=identity.render_time(time.time()),
            state="running" if vm.exists and plan.runs_after else "stopped",
            autoboot=plan.after.config.autoboot if vm_stays else vm.autoboot_before,
            stops=stops,
            steps=tuple(step.text or step.kind for step in plan.steps if not step.facts_only),
            moves=tuple(dict.fromkeys((*_moves(plan), *_moves_before(vm)))),
            rollback=_rollback(plan),
            creates=_creates(plan),
            boots=vm.booted,
            member=(plan.after.member or "") if _creates(plan) else "",
            deletes=_deletes(plan),
            asked=journal.run_id(vm.config) if asks else earlier.asked if earlier is not None else "",
        )
        self._store(pool, plan.vm, intent)

    def _store(self, pool: str, vm: str, intent: Intent) -> None:
        self._last[vm] = intent
        self._vms[pool].add(vm)
        facts = {journal.intent_property(vm): journal.encode(intent), journal.INDEX_PROPERTY: self._index_of(pool)}
        self._zfs.set_facts(container(pool), facts)
        self._stale.discard(pool)

    def leave_for_next_run(self, plan: VmPlan) -> None:
        """Leave the last intent of the plan for the next run: the guest was asked to shut down, and still runs."""
        if plan.vm in self._last:
            self._store(plan.before.config.pool, plan.vm, _as_ended(self._last[plan.vm]))

    def write_asked(self, vm: Vm, autoboot: bool) -> None:
        """Write an intent: the guest was asked to shut down and still runs, and the VM should run."""
        intent = Intent(
            plan=self._plan,
            host=host_name(),
            since=identity.render_time(time.time()),
            state="running",
            autoboot=autoboot,
            stops=True,
            boots=vm.booted,
            asked=journal.run_id(vm.config),
        )
        self._store(vm.config.pool, vm.config.uuid, _as_ended(intent))

    def _index_of(self, pool: str) -> str:
        return journal.encode_index(self._vms[pool])

    def clear(self, plan: VmPlan) -> None:
        """Remove the intent, and only then its name from the index, because without its name it is never found.

        An intent of an earlier run that has asked the guest to shut down stays as long as that can still happen.
        """
        earlier = plan.before.interrupted or plan.before.asked
        if earlier is not None and _still_matters(earlier, plan):
            if plan.vm in self._last or not earlier.late:
                self._store(plan.before.config.pool, plan.vm, _as_ended(earlier))
            return
        for pool in sorted(self._vms) if plan.before.config.prefixes else [plan.before.config.pool]:
            self.forget(pool, plan.vm)

    def forget(self, pool: str, vm: str) -> None:
        """Remove the intent of the VM with this UUID."""
        if vm in self._vms[pool]:
            self._zfs.set_facts(container(pool), {journal.intent_property(vm): ""})
            self._vms[pool].discard(vm)
            self._stale.add(pool)
        self.tidy()

    def tidy(self) -> None:
        """Remove obsolete intents, and correct each index, also after a killed run or a removal by hand."""
        obsolete, self._obsolete = self._obsolete, []
        for pool, vm in obsolete:
            if vm not in self._last:
                self.forget(pool, vm)
        for pool in sorted(self._stale):
            self._zfs.set_facts(container(pool), {journal.INDEX_PROPERTY: self._index_of(pool)})
        self._stale.clear()


def _key(vm: Vm) -> t.Tuple[str, str]:
    return vm.config.pool, vm.config.uuid


def _is_obsolete(vm: Vm, intent: t.Optional[Intent], host: str) -> bool:
    """Return whether a guest that was asked to shut down has refused, or the VM was started again since."""
    late = intent is not None and intent.late and intent.host == host
    return late and vm.interrupted is None and vm.asked is None


def _still_matters(earlier: Intent, plan: VmPlan) -> bool:
    """Return whether the guest can still shut down because of an earlier run, if the plan leaves the VM running."""
    keeps_running = plan.runs_after and not plan.stops and earlier.state == "running"
    return keeps_running and journal.may_shut_down(earlier, plan.before.config, time.time())


def _as_ended(intent: Intent) -> Intent:
    """Return the intent of a run that has ended, except that a guest may still shut down because of it."""
    return intent._replace(late=True, steps=(), moves=(), rollback="", creates="")


def _creates(plan: VmPlan) -> str:
    """Return the name of the VM that is being created, also by a run that continues this. "" for none."""
    earlier = plan.before.interrupted
    if not plan.before.exists:
        return plan.before.config.alias if plan.after.exists else ""
    return earlier.creates if earlier is not None and plan.after.exists else ""


def _rollback(plan: VmPlan) -> str:
    """Return the snapshot to which the plan, or an interrupted run of a VM that is deleted now, rolls back."""
    earlier = plan.before.interrupted
    repeated = earlier.rollback if earlier is not None and _deletes(plan) else ""
    return next((step.name for step in plan.steps if isinstance(step, RollBack)), repeated)


def _deletes(plan: VmPlan) -> str:
    """Return the name of the VM that is being deleted, also by a run that continues this. "" for none."""
    return "" if plan.after.exists or not plan.changed else plan.before.config.alias or plan.vm


def _moves(plan: VmPlan) -> t.Iterator[t.Tuple[int, str, str]]:
    for step in plan.steps:
        if isinstance(step, Relocate):
            yield from ((disk.volume.guid, entry.volume, disk.volume.name) for entry, disk in step.moves)
        elif isinstance(step, DiskDeparture):
            yield step.guid, step.volume, step.target
        elif isinstance(step, AttachDisk) and step.source != step.volume:
            yield step.guid, step.source, step.volume


def _moves_before(vm: Vm) -> t.Sequence[t.Tuple[int, str, str]]:
    """Return the moves of an interrupted run. Of a VM without a dataset of its own, other things than its volumes tell
    of them as well: what its configuration calls unused, what waits, and its record.
    """
    return vm.interrupted.moves if vm.interrupted is not None and vm.config.prefixes else ()


def forget_vm(zfs: Zfs, host: Host, vm: str) -> None:
    """Remove the intents of a VM that has ended here."""
    written_journal = Journal(zfs, host)
    for pool in [pool for pool, one in host.intents if one == vm]:
        written_journal.forget(pool, vm)
    written_journal.tidy()
