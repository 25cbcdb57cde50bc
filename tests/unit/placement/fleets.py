# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts as host_info reports them, requests to move_plan, and what hosts say after moves."""

from __future__ import annotations

import copy
import random
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.action import move_plan

Raw = dict[str, Any]
NOW = 1_800_000_000


def uuid(number: int) -> str:
    return f"44444444-0000-4000-8000-{number:012d}"


def vm(number: int, memory: int = 4096, disk: int = 20480, pool: str = "zones", **more: Any) -> Raw:
    return {
        "uuid": uuid(number),
        "alias": f"vm{number}",
        "state": "running",
        "memory": memory,
        "vcpus": 2,
        "drained": False,
        "disks": {pool: disk},
        "tags": {},
        **more,
    }


def info(number: int, *vms: Raw, memory: int = 32768, size: int = 1_000_000, pool: str = "zones", **more: Any) -> Raw:
    """A host of its own number, whose figures fit its VMs."""
    running = sum(one["memory"] for one in vms if one["state"] == "running")
    taken = sum(figure for one in vms for figure in one["disks"].values())
    return {
        "driver": "vmadm",
        "collected": NOW - 5,
        "memory": {"total": memory, "own": 2048, "free": memory - 2048 - running},
        "cpus": 8,
        "pools": [{"name": pool, "guid": number, "size": size, "available": size - taken, "parked": 0, "replicas": 0}],
        "vms": list(vms),
        **more,
    }


def host(name: str, told: Raw | None = None, **more: Any) -> Raw:
    return {"name": name, "info": told, **more}


def filled(options: Raw, given: Raw) -> Raw:
    """Arguments as Ansible hands them over: with each option, also of the entries of lists."""
    found = {}
    for name, spec in options.items():
        value = given.get(name, spec.get("default"))
        found[name] = [filled(spec["options"], one) for one in value] if value and "options" in spec else value
    return found


def plan(request: str, hosts: list[Raw], now: float = NOW, **given: Any) -> Raw:
    arguments = filled(move_plan.ARGUMENTS, {"request": request, "hosts": hosts, **given})
    return move_plan.move_plan(arguments, now)


def pool_of(hosts: list[Raw], name: str, pool: str) -> Raw:
    told = next(one["info"] for one in hosts if one["name"] == name)
    return next(one for one in told["pools"] if one["name"] == pool)


def carry_out(hosts: list[Raw], jobs: list[Raw]) -> list[Raw]:
    """What the hosts say after the jobs. Asserts that each can be done; disks stay where a VM was."""
    hosts = copy.deepcopy(hosts)
    told = {one["name"]: one["info"] for one in hosts}
    for job in jobs:
        for operation in job["operations"]:
            source, target = told[operation["from"]], told[operation["to"]]
            (moving,) = [one for one in source["vms"] if one["uuid"] == operation["vm"]]
            assert operation["disks"] == moving["disks"]
            needed = moving["memory"] if moving["state"] == "running" else 0
            for pool, figure in moving["disks"].items():
                there = pool_of(hosts, operation["to"], pool)
                there["available"] -= figure
                assert there["available"] >= 0, job
            target["memory"]["free"] -= needed
            source["memory"]["free"] += needed
            assert target["memory"]["free"] >= 0, job
            source["vms"].remove(moving)
            target["vms"].append(moving)
    return hosts


def random_fleet(rng: random.Random) -> list[Raw]:
    """Up to three groups of up to five hosts, some full, drained or not to be read."""
    hosts, number = [], 0
    for group in "abc"[: rng.randint(1, 3)]:
        for index in range(rng.randint(1, 5)):
            number += 1
            sizes = [rng.choice([1024, 2048, 4096, 8192]) for _vm in range(rng.randint(0, 5))]
            vms = [
                vm(
                    number * 100 + place,
                    memory,
                    rng.choice([10240, 40960, 102400]),
                    state=rng.choice(["running"] * 3 + ["stopped"]),
                    tags=rng.choice([{}, {"role": "web"}, {"role": "db"}]),
                )
                for place, memory in enumerate(sizes)
            ]
            size = sum(figure for one in vms for figure in one["disks"].values()) + rng.choice([0, 50_000, 500_000])
            told = info(number, *vms, memory=sum(sizes) + 2048 + rng.choice([512, 4096, 32768]), size=size + 1)
            drained = rng.random() < 0.1
            hosts.append(host(f"{group}{index}", None if rng.random() < 0.07 else told, group=group, drained=drained))
    return hosts
