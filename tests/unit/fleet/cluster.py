# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts in process, and the role instance_group as a function: the same turns and modules in the same order.

Whatever the role does from outside, a module call or a hook, can be interrupted here before it, after it, and at every
command of a module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.results import answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import turn
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.memory import (
    Memory,
    Turn,
    TurnInput,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.engine.conftest import IMAGE, Simulated

SECOND = IMAGE.replace("1", "5")
PACKAGES = [{"name": "p", "disk": 4096, "flexible_disk": True, "memory": 512, "vcpus": 1}]
DEFAULTS = {"unlisted": "refuse", "destroy_disks": False, "destroy_snapshots": False}
DATA = {"name": "data", "size": 16, "preserve": True}

Raw = dict[str, Any]


class Killed(Exception):
    """The run ends here."""


class Cluster:
    """The hosts, the load balancer before the members, and what is broken. on_change is called after each command that
    changes something. cut: names of hosts that cannot be reached.
    """

    def __init__(self, hosts: int = 4, image_mib: int = 32) -> None:
        self.hosts = {f"hv{number}": Simulated(64 << 30, seed=number + 1) for number in range(hosts)}
        self.pooled: set[str] = set()
        self.broken: set[str] = set()  # UUIDs of images of which no VM becomes healthy
        self.cut: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.commands = 0
        self.kill_at = 0
        for sim in self.hosts.values():
            sim.run("zfs", "destroy", "-r", f"zones/{IMAGE}")
            for image in (IMAGE, SECOND):
                sim.admin("image-import", image, str(image_mib))

    def runner(self, host: str) -> Callable[..., Answer]:
        sim = self.hosts[host]

        def runner(argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
            changing = changes(list(argv))
            self.commands += changing
            if changing and self.commands == self.kill_at:
                raise Killed
            result = sim.runner(argv, stdin, timeout)
            if changing:
                self.on_change()
            return result

        return runner

    def vms(self) -> dict[str, tuple[str, Raw]]:
        """Every VM by its name, with its host, as vmadm reports it."""
        found = {}
        for host, sim in self.hosts.items():
            for vm in json.loads(sim.run("vmadm", "lookup", "-j")):
                assert vm["alias"] not in found, "a member is on two hosts"
                found[vm["alias"]] = (host, vm)
        return found

    def healthy(self, vm: Raw) -> bool:
        return vm["state"] == "running" and boot_image(vm) not in self.broken

    def serving(self) -> set[str]:
        """The members that the load balancer asks, and that answer."""
        return {name for name, (_host, vm) in self.vms().items() if name in self.pooled and self.healthy(vm)}

    def volume(self, name: str, disk: int = 1) -> tuple[Simulated, str]:
        host, vm = self.vms()[name]
        return self.hosts[host], f"zones/{vm['uuid']}/disk{disk}"

    def digests(self) -> dict[str, str]:
        """The contents of the data disks of all members."""
        every = {name: self.volume(name) for name in self.vms()}
        return {name: sim.digest(volume, "0", "16") for name, (sim, volume) in every.items()}


def boot_image(vm: Raw) -> str:
    return str(next((disk["image_uuid"] for disk in vm["disks"] if disk.get("boot")), ""))


ROLE = {
    "host_groups": [], "gate": {}, "before_step": [], "before_member": ["out.yml"], "after_member": ["in.yml"],
    "after_step": [], "adopt": [], "only_size": False, "most_steps": 0, "lease_host": "", "lease_without": [],
    "lease_ttl": 1800, "take_over": False, "stop_timeout": 60,
}  # fmt: skip


def group_of(size: int, image: str = IMAGE, **more: Any) -> Raw:
    """A group as the role has it in its variables."""
    policy = {"action_ceiling": "recreate", "max_removed": max(size, 9), **more.pop("policy", {})}
    template = {
        "package": "p",
        "image": image,
        "disks": [{"name": "root"}, DATA],
        **more.pop("template", {}),
    }
    own = {
        "name": "web",
        "size": size,
        "hosts": [f"hv{number}" for number in range(4)],
        "members": {},
        "replace": [],
        "generation": "",
    }
    return {**own, "template": template, "policy": policy, **more}


class Roll:
    """One run of the role: hosts and a clock that carry out what the turns say. tick is called before and after each
    thing that it does outside, and may raise Killed.
    """

    def __init__(self, cluster: Cluster, group: Raw, tick: Callable[[str], None] = lambda what: None) -> None:
        self.cluster = cluster
        self.group = {**ROLE, "all_hosts": list(cluster.hosts), **group}
        self.tick = tick
        self.now = 0.0
        self.heard: dict[str, Any] = {}  # what group_turn is told of the last task file, and of those before it
        self.turn = Turn(Memory(), "info", "look")  # without a lease: the nodes of rolls/ have one
        self.plan: Raw = {}
        self.paused: list[int] = []

    @property
    def members(self) -> Sequence[Raw]:
        """The members of the last look."""
        return self.turn.memory.members

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.turn.memory.number

    def find(self, then: str = "look") -> Turn:
        """What the hosts are asked about the members, or why the group is refused."""
        self.turn = Turn(self.turn.memory, "info", then)
        return self.take()

    def look(self) -> Raw:
        """The plan, or a refusal. Nothing is changed."""
        self.find()
        self.run_until("show", "")
        return self.plan

    def run(self) -> Raw:
        """The last plan, or a refusal."""
        self.run_until("")
        return self.plan

    def step(self) -> None:
        """The first step of the plan, and the look after it."""
        self.take()
        self.run_until("ask")

    def run_until(self, *ends: str) -> None:
        while self.turn.do not in ends:
            self.take()
        assert self.plan or not self.turn.reasons, self.turn.reasons

    def take(self) -> Turn:
        """roles/instance_group/tasks/turn.yml. The turn passes through YAML."""
        last = json.loads(json.dumps(self.turn.result()))
        getattr(self, f"do_{self.turn.do}")(last)
        self.now += 1
        self.turn = turn.take(self.group, last, TurnInput(self.now, list(self.cluster.hosts), **self.heard))
        self.plan = self.turn.plan or self.plan
        return self.turn

    # -- the task files of the role

    def do_info(self, _last: Raw) -> None:
        self.heard["answers"] = {host: self.info(host) for host in self.cluster.hosts}

    def do_ask(self, last: Raw) -> None:
        asked = {host: vms for host, vms in last["vms"].items() if vms}
        self.heard["answers"] = {host: self.vm(host, vms, check=True) for host, vms in asked.items()}
        self.heard["serving"] = self.healthy(member["name"] for member in last["gate"]["members"] if member["running"])

    def do_show(self, last: Raw) -> None:
        assert last["text"]

    def do_vm(self, last: Raw) -> None:
        answers = self.heard["answers"] = {}
        for host, entries in last["vms"].items():
            if entries and host not in self.cluster.cut:
                self.tick(f"vm on {host}")
                answers[host] = self.vm(host, entries, allow_restart=last["allow_restart"])
                self.tick(f"vm on {host} is done")

    def do_hooks(self, last: Raw) -> None:
        self.heard["bad"] = []
        does = {"out.yml": self.cluster.pooled.discard, "in.yml": self.cluster.pooled.add}
        for member in (member for several in last["members"].values() for member in several):
            for hook in last["hooks"]:
                what = f"{'before' if hook == 'out.yml' else 'after'} {member['name']}"
                self.tick(what)
                does[hook](member["name"])
                self.tick(f"{what} is done")

    def do_pause(self, last: Raw) -> None:
        self.paused.append(last["seconds"])

    def do_gate(self, last: Raw) -> None:
        self.heard["serving"] = self.healthy(member["name"] for member in last["gate"]["members"])

    # -- what modules return

    def healthy(self, names: Iterable[str]) -> list[str]:
        """The members whose gate says yes."""
        vms = self.cluster.vms()
        return [name for name in names if name in vms and self.cluster.healthy(vms[name][1])]

    def vm(self, host: str, entries: list[Raw], check: bool = False, allow_restart: bool = True) -> Raw:
        """The module vm."""
        runner, policy = self.cluster.runner(host), Policy(allow_restart=allow_restart, continue_on_refusal=True)
        vms = [{"state": "present", **DEFAULTS, **entry} for entry in entries]
        zfs, hypervisor = Zfs(runner, lambda seconds: None), Vmadm(runner)
        done = answer(run(zfs, hypervisor, vms, PACKAGES, policy, None, check))
        return {"failed": True, **done.failure} if done.failure is not None else done.result

    def info(self, host: str) -> Raw:
        """The module vm_info."""
        if host in self.cluster.cut:
            return {"unreachable": True}
        runner = self.cluster.runner(host)
        found = vm_info.info(Zfs(runner), Vmadm(runner), None, None, False)
        keys = {"vms": found.vms, "parked": found.detached, "skipped_vms": found.skipped, "intents": found.intents}
        return {**keys, "pools": found.pools, "moves": found.moves}
