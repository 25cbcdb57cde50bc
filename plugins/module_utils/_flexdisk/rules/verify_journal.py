# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about entries in the journal that interrupted runs have left."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_bytes
from ..model.vm import Intent, Vm
from . import exchange, identity, journal
from .findings import OURS, Finding, Task, own_task
from .inventory import Host
from .layout import container, vm_dataset
from .unfinished import is_over, is_unfinished, unfinished_vm_text
from .verify_facts import Facts, Findings, listed, vm_disks


def interrupted_runs(facts: Facts) -> Findings:
    """Yield the entries of interrupted runs that no later run has completed."""
    vms = {vm.config.uuid: vm for vm in facts.host.vms}
    for (pool, uuid), entry in sorted(facts.host.intents.items()):
        vm, alias = vms.get(uuid), facts.alias(uuid)
        about: t.Dict[str, t.Any] = {"vm": uuid, "alias": alias, "volume": container(pool)}
        if entry is None:
            yield _forgotten("intent_unreadable", f"what was written down for VM {uuid} is unreadable", about)
        elif entry.host != facts.host.name:
            message = f"run of {entry.since} on host {entry.host}: {listed(entry.steps) or 'no steps'}"
            yield _forgotten("intent_of_other_host", message, about)
        elif uuid in facts.configs and is_unfinished(facts.configs[uuid]):
            message = f"run of {entry.since}: {unfinished_vm_text(facts.configs[uuid], entry)}"
            yield Finding("intent", message, **about)
        elif is_over(facts.host, vm, entry):
            continue
        elif vm is not None and exchange.begun(vm):
            yield Finding("intent", f"run of {entry.since}: {exchange.why_refused(vm)}", **about)
        elif vm is not None:
            message = f"run of {entry.since}: {listed(entry.steps) or 'no steps'}"
            yield Finding("intent", message, repair=_taken_up(vm, entry), **about)
        elif uuid in facts.configs:
            yield Finding("intent", f"run of {entry.since}; the VM itself cannot be used", **about)
        elif entry.creates and vm_dataset(pool, uuid) in facts.host.datasets:
            message = f"VM {entry.creates} was being made at {entry.since}, and parts of it are there"
            yield Finding("intent_without_vm", f"{message}; the same task of vm makes it", **about)
        elif entry.deletes and vm_dataset(pool, uuid) in facts.host.datasets:
            reserved = render_bytes(facts.host.datasets[vm_dataset(pool, uuid)].reservation)
            message = f"VM {entry.deletes} was being deleted at {entry.since}, and {vm_dataset(pool, uuid)} is left"
            message += f" with its reservation of {reserved}; the same task of vm (state=absent) destroys it"
            yield Finding("intent_without_vm", message, **about)
        else:
            yield _forgotten("intent_without_vm", f"run of {entry.since}: VM {uuid} is not here", about)


def _forgotten(kind: str, message: str, about: t.Mapping[str, t.Any]) -> Finding:
    return Finding(kind, message, repair=own_task(kind), repairable=True, **about)


def _taken_up(vm: Vm, entry: Intent) -> Task:
    if entry.rollback:
        return {OURS + "vm_snapshot": {"vms": [vm.config.uuid], "name": entry.rollback, "state": "rolled_back"}}
    return vm_disks(vm)


def listed_intents(host: Host, pool: str) -> str:
    """Return what the list of VMs with an intent should be, as the value of its property."""
    return journal.encode_index(vm for of, vm in host.intents if of == pool)


def index_of_runs(facts: Facts) -> Findings:
    """Yield the lists of VMs that do not agree with the entries of the journal."""
    host = facts.host
    for pool in sorted(host.geometry):
        box = host.datasets.get(container(pool))
        stored, right = box.user.get(journal.INDEX_PROPERTY, "") if box else "", listed_intents(host, pool)
        if stored != right:
            name = f"{identity.PREFIX}{journal.INDEX_PROPERTY} of {container(pool)}"
            message = f"{name} is {stored!r:.200}, and there is {right!r}"
            task = own_task("intent_index")
            yield Finding("intent_index", message, volume=container(pool), repair=task, repairable=True)
