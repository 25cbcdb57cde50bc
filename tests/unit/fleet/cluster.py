# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts in process, and the role instance_group as a function: the same filters, planner and modules in the same order.

Whatever the role does from outside, a module call or a hook, can be interrupted here before it, after it, and at every
command of a module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.filter import groups
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.results import answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.declared import parse_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.plan import plan_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import refusal
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
    """One run of the role. tick is called before and after each thing that it does outside, and may raise Killed."""

    def __init__(self, cluster: Cluster, group: Raw, tick: Callable[[str], None] = lambda what: None) -> None:
        self.cluster = cluster
        self.group = group
        self.recreate = group["policy"].get("action_ceiling") == "recreate"
        self.tick = tick
        self.failed: list[str] = []
        self.last: list[Raw] = []
        self.steps = 0

    def look(self) -> Raw:
        """roles/instance_group/tasks/plan.yml."""
        up = [host for host in self.cluster.hosts if host not in self.cluster.cut]
        read = {host: self.info(host) for host in up}
        found = groups.group_found(read, self.group, sorted(self.cluster.cut))
        assert found["problems"] == [], found["problems"]
        self.members = found["members"]
        checks = {}
        for host in up:
            here = [m for m in self.here(host) if m["there"] or m["index"] < self.group["size"]]
            if here:
                checks[host] = self.vm(
                    host, groups.group_entries(here, self.group, self.recreate, {"restart": True}), check=True
                )
        vms = self.cluster.vms()
        serving = [
            m["name"] for m in self.members if m["there"] and m["running"] and self.cluster.healthy(vms[m["name"]][1])
        ]
        members = groups.group_members(self.members, checks, serving, self.group["size"], self.recreate)
        declared, problems = parse_group({
            "name": "web", "size": self.group["size"], "policy": self.group["policy"], "hosts": self.group["hosts"],
            "keeps_disks": found["keeps_disks"], "failed": self.failed, "after": self.last, "members": members,
        })  # fmt: skip
        assert not problems, problems
        plan = plan_group(declared.group, declared.policy, declared.homes)
        if plan.problems:
            return {**refusal(plan.problems, noun=""), "failures": sorted(declared.group.failed)}
        return report.result(declared.group, plan)

    def here(self, host: str) -> list[Raw]:
        return [member for member in self.members if member["host"] == host and member["reachable"]]

    def run(self) -> Raw:
        """roles/instance_group/tasks/main.yml: the last plan, or a refusal."""
        plan = self.look()
        while plan.get("next"):
            self.step(plan["next"])
            plan = self.look()
            self.failed = plan["failures"]
        return plan

    def step(self, step: Raw) -> None:
        """roles/instance_group/tasks/step.yml and back.yml."""
        self.steps += 1
        do = {action["member"]: action["do"] for action in step["actions"]}
        live = "live" in do.values()
        mine = {host: [m for m in self.here(host) if m["name"] in do] for host in self.cluster.hosts}
        leaving = {
            host: [m for m in several if do[m["name"]] not in ("live", "create", "return")]
            for host, several in mine.items()
        }
        for host, several in leaving.items():
            new = [{"vm": member["name"], "drained": True} for member in several if not member["marked"]]
            self.call(host, new)
        for several in leaving.values():
            for member in several:
                self.hook(f"before {member['name']}", self.cluster.pooled.discard, member["name"])
        ended: set[str] = set()
        for host, every in mine.items():
            several = [member for member in every if do[member["name"]] != "return"]
            mark = {} if live else {"drained": True}
            entries = groups.group_entries(several, self.group, self.recreate, {"restart": True, **mark})
            ended |= set(groups.group_ended(self.call(host, entries, allow_restart=not live)))
        vms = self.cluster.vms()
        back = [
            name
            for name in do
            if (name in ended or do[name] == "return")
            and do[name] not in ("live", "remove")
            and self.cluster.healthy(vms[name][1])
        ]
        for name in back:
            self.hook(f"after {name}", self.cluster.pooled.add, name)
        for host, several in mine.items():
            self.call(host, [{"vm": m["name"], "drained": False} for m in several if m["name"] in back])
        self.last = step["actions"]

    def call(self, host: str, entries: list[Raw], **policy: Any) -> Raw:
        if not entries:
            return {}
        self.tick(f"vm on {host}")
        result = self.vm(host, entries, **policy)
        self.tick(f"vm on {host} is done")
        return result

    def hook(self, what: str, does: Callable[[str], None], name: str) -> None:
        self.tick(what)
        does(name)
        self.tick(f"{what} is done")

    def vm(self, host: str, entries: list[Raw], check: bool = False, allow_restart: bool = True) -> Raw:
        """The module vm."""
        runner, policy = self.cluster.runner(host), Policy(allow_restart=allow_restart, continue_on_refusal=True)
        vms = [{"state": "present", **DEFAULTS, **entry} for entry in entries]
        zfs, hypervisor = Zfs(runner, lambda seconds: None), Vmadm(runner)
        done = answer(run(zfs, hypervisor, vms, PACKAGES, policy, None, check))
        return {"failed": True, **done.failure} if done.failure is not None else done.result

    def info(self, host: str) -> Raw:
        """The module vm_info."""
        runner = self.cluster.runner(host)
        found = vm_info.info(Zfs(runner), Vmadm(runner), None, None, False)
        keys = {"vms": found.vms, "parked": found.detached, "skipped_vms": found.skipped, "intents": found.intents}
        return {**keys, "pools": found.pools, "moves": found.moves}
