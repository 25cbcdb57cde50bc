# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What interrupted runs have left in the journal of a pool."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_bytes
from ..model.vm import Intent, Vm
from . import identity, journal
from .findings import OURS, Finding, Task, own_task
from .inventory import Host
from .layout import container, vm_dataset
from .unfinished import is_unfinished, words_for
from .verify_facts import Facts, Findings, listed, vm_disks


def interrupted_runs(facts: Facts) -> Findings:
    """Entries of interrupted runs that no later run has finished."""
    vms = {vm.config.uuid: vm for vm in facts.host.vms}
    for (pool, uuid), record in sorted(facts.host.intents.items()):
        vm, alias = vms.get(uuid), facts.alias(uuid)
        about: t.Dict[str, t.Any] = {"vm": uuid, "alias": alias, "volume": container(pool)}
        if record is None:
            yield _forgotten("intent_unreadable", f"what was written down for VM {uuid} is unreadable", about)
        elif record.host != facts.host.name:
            message = f"run of {record.since} on host {record.host}: {listed(record.steps) or 'no steps'}"
            yield _forgotten("intent_of_other_host", message, about)
        elif uuid in facts.configs and is_unfinished(facts.configs[uuid]):
            message = f"run of {record.since}: {words_for(facts.configs[uuid], record)}"
            yield Finding("intent", message, **about)
        elif vm is not None and record.late and vm.interrupted is None:
            continue  # the run has ended; its guest still runs, or the VM was stopped much later
        elif vm is not None:
            message = f"run of {record.since}: {listed(record.steps) or 'no steps'}"
            yield Finding("intent", message, repair=_taken_up(vm, record), **about)
        elif uuid in facts.configs:
            yield Finding("intent", f"run of {record.since}; the VM itself cannot be used", **about)
        elif record.creates and vm_dataset(pool, uuid) in facts.host.datasets:
            message = f"VM {record.creates} was being made at {record.since}, and parts of it are there"
            yield Finding("intent_without_vm", f"{message}; the same task of vm makes it", **about)
        elif record.deletes and vm_dataset(pool, uuid) in facts.host.datasets:
            held = render_bytes(facts.host.datasets[vm_dataset(pool, uuid)].reservation)
            message = f"VM {record.deletes} was being deleted at {record.since}, and {vm_dataset(pool, uuid)} is left"
            message += f" with its reservation of {held}; the same task of vm (state=absent) destroys it"
            yield Finding("intent_without_vm", message, **about)
        else:
            yield _forgotten("intent_without_vm", f"run of {record.since}: VM {uuid} is not here", about)


def _forgotten(kind: str, message: str, about: t.Mapping[str, t.Any]) -> Finding:
    return Finding(kind, message, repair=own_task(kind), repairable=True, **about)


def _taken_up(vm: Vm, record: Intent) -> Task:
    if record.rollback:
        return {OURS + "vm_snapshot": {"vms": [vm.config.uuid], "name": record.rollback, "state": "rolled_back"}}
    return vm_disks(vm)


def listed_intents(host: Host, pool: str) -> str:
    """What the list of VMs with an intent should be, as the property has it."""
    return journal.encode_index(vm for of, vm in host.intents if of == pool)


def index_of_runs(facts: Facts) -> Findings:
    """Lists of VMs with an entry that do not agree with the entries."""
    host = facts.host
    for pool in sorted(host.geometry):
        box = host.datasets.get(container(pool))
        said, right = box.user.get(journal.INDEX, "") if box else "", listed_intents(host, pool)
        if said != right:
            name = f"{identity.PREFIX}{journal.INDEX} of {container(pool)}"
            message = f"{name} is {said!r:.200}, and there is {right!r}"
            task = own_task("intent_index")
            yield Finding("intent_index", message, volume=container(pool), repair=task, repairable=True)
