# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays of two hosts that are not there, for the decisions of playbooks."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.order import Play, decide
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.playbooks import PLAYBOOKS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import Registered

WEB, DB, ZONE = (f"{start}0000-0000-4000-8000-000000000000" for start in ("cafe", "abcd", "beef"))
DATA, OLD = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2))


def disk(name, uuid, size=20480, state="running", volume="zones/web/disk1", slot="0:4:1"):
    named = {"name": name, "uuid": uuid, "size": size, "state": state, "volume": volume}
    return {**named, "remaining": False, "pci_slot": slot, "boot": False}


def vm(uuid, alias, *disks, parked=(), unmanaged=(), intent=None, restoring=()):
    found = {"uuid": uuid, "alias": alias, "disks": list(disks), "parked": list(parked)}
    return {**found, "unmanaged": list(unmanaged), "intent": intent, "restoring": list(restoring)}


def host(*vms, skipped=()):
    parked = [{**one, "vm": found["uuid"]} for found in vms for one in found["parked"]]
    return {"vms": list(vms), "parked": parked, "skipped_vms": list(skipped)}


READ = {
    "hv01": host(vm(WEB, "web", disk("data", DATA), parked=[disk("old", OLD, 1024, "parked", "zones/old", "")])),
    "hv02": host(vm(DB, "db"), skipped=[{"uuid": ZONE, "alias": "zone", "reason": "brand joyent"}]),
}


def order(playbook, given, read=None, inventory=None, **more):
    """What a playbook decides with these variables. inventory: variables of single hosts."""
    hosts = ("hv01", "hv02")
    variables = {name: {**given, **(inventory or {}).get(name, {})} for name in hosts}
    return decide(PLAYBOOKS[playbook], Play(variables, READ if read is None else read, **more))


def refused(playbook, given, **more):
    """The problems of a playbook, which calls nothing then."""
    found = order(playbook, given, **more)
    assert found.problems
    return found.problems


def calls(playbook, given, **more):
    """The arguments of the module by host, of a playbook that refuses nothing."""
    found = order(playbook, given, **more)
    assert (found.problems, found.reads and not more.get("read", READ), found.orphans) == ([], False, {})
    return found.calls


def registered(variables, *names, hosts=None):
    """What tasks have registered for the first host. variables: of all hosts. hosts: those that have not failed."""
    every = list(variables)
    return Registered(every, every if hosts is None else hosts, variables.__getitem__, every[0], names)
