# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model of a cluster that carries out jobs, operation by operation, and knows nothing but memory and disks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from .clusters import Raw

ORDERS = 200
ALREADY = "has already"


class Cluster:
    """What hosts have left in MiB, and the hosts of each VM. It complains about a host that gives what it lacks, and
    about a replica that shall go where its VM or itself is: Ganeti refuses that.
    """

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.hosts = {name: list(vm["nodes"]) for name, vm in raw["instances"].items()}
        self.memory = {name: self._memory(name, node) for name, node in raw["nodes"].items()}
        self.disk = {name: node.get("free_disk", 0) for name, node in raw["nodes"].items()}

    def _memory(self, name: str, node: Raw) -> int:
        own = 4096 if self.raw["enabled_hypervisors"][0] == "kvm" else node.get("reserved_memory", 0)
        here = [vm for vm in self.raw["instances"].values() if vm["nodes"][0] == name]
        left = node.get("total_memory", 0) - own - sum(_memory(vm) for vm in here)
        return int(min(left, node.get("free_memory", 0)))

    def execute(self, code: dict[str, Any]) -> str:
        """Do it. What it lacked, "" for nothing."""
        name = code["instance_name"]
        vm, nodes = self.raw["instances"][name], self.hosts[name]
        if "remote_node" in code:
            assert vm["disk_template"] == "drbd"
            if code["remote_node"] in nodes:
                return f"{code['remote_node']} {ALREADY} {name}"
            old, nodes[1] = nodes[1], code["remote_node"]
            self.disk[old] += vm["disk_space_total"]
            return self._take(self.disk, nodes[1], vm["disk_space_total"], name)
        old, new = nodes[0], code.get("target_node") or nodes[1]
        nodes[:] = [new, old] if vm["disk_template"] == "drbd" else [new]
        self.memory[old] += _memory(vm)
        return self._take(self.memory, new, _memory(vm), name)

    @staticmethod
    def _take(figures: dict[str, int], host: str, amount: int, name: str) -> str:
        figures[host] -= amount
        lacks = amount and figures[host] <= 0
        return f"{host} lacks {1 - figures[host]} MiB for {name}" if lacks else ""


def impossible(raw: Raw, jobs: list[Any]) -> set[str]:
    """The VMs whose replica shall go where it cannot."""
    cluster = Cluster(raw)
    return {job[0]["instance_name"] for job in jobs if any(ALREADY in cluster.execute(code) for code in job)}


def _memory(vm: Raw) -> int:
    running = vm.get("admin_state", "up") == "up"
    memory: int = vm["memory"]
    return memory if running else 0


def needs(jobs: list[Any]) -> list[set[int]]:
    """The numbers of the jobs that must have ended before each one."""
    return [{number + other for other, _states in job[0].get("depends", [])} for number, job in enumerate(jobs)]


def orders(jobs: list[Any], rng: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Orders of operations that depends allows: of up to 6 jobs all orders of whole jobs, and random ones."""
    before = needs(jobs)
    if len(jobs) <= 6:
        for order in itertools.permutations(range(len(jobs))):
            places = {number: place for place, number in enumerate(order)}
            if all(places[other] < places[number] for number in order for other in before[number]):
                yield [code for number in order for code in jobs[number]]
    for _time in range(ORDERS // 10 if len(jobs) <= 6 else ORDERS):
        yield list(_mixed(jobs, before, rng))


def _mixed(jobs: list[Any], before: list[set[int]], rng: random.Random) -> Iterator[dict[str, Any]]:
    done = [0] * len(jobs)
    ended: set[int] = set()
    while len(ended) < len(jobs):
        number = rng.choice([n for n in range(len(jobs)) if n not in ended and before[n] <= ended])
        yield jobs[number][done[number]]
        done[number] += 1
        if done[number] == len(jobs[number]):
            ended.add(number)


def first_lack(raw: Raw, jobs: list[Any], seed: int) -> str:
    """What a host lacks in any of the orders, "" for nothing."""
    for order in orders(jobs, random.Random(seed)):
        cluster = Cluster(raw)
        for code in order:
            lack = cluster.execute(code)
            if lack:
                return f"{lack} in {[(one['instance_name'], one.get('remote_node')) for one in order]}"
    return ""
