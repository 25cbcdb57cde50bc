# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random clusters as Ganeti describes them, and random requests to them. The same seed makes the same request."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

Raw = dict[str, Any]
TEMPLATES = ("sharedfile", "diskless", "plain", "blockdev", "drbd", "file", "rbd", "ext", "gluster")
DYNAMIC = ("memory", "disk", "cpus", "spindles")
MODES = ("primary-only", "secondary-only", "all")


class Shape(NamedTuple):
    """How many groups, hosts of each group and VMs there can be, and templates. What is there twice is twice as likely.
    astray: how likely a host of another group could have the replica of a VM.
    """

    groups: Sequence[int] = (1, 2, 2, 3)
    hosts: Sequence[int] = (2, 3, 3, 4, 5, 6)
    vms: Sequence[int] = (2, 4, 8, 15, 25)
    templates: Sequence[str] = (*TEMPLATES, "drbd", "drbd", "drbd")
    astray: float = 0.02


USUAL = Shape()


def limits(cpus: int, disks: int, disk: int, memory: int, spindles: int) -> Raw:
    return {
        "cpu-count": cpus,
        "disk-count": disks,
        "disk-size": disk,
        "memory-size": memory,
        "nic-count": 1,
        "spindle-use": spindles,
    }


def group(rng: random.Random, name: str) -> Raw:
    most = limits(16, 16, 1 << 20, rng.choice([65536, 65536, 4096]), 12)
    return {
        "name": name,
        "alloc_policy": rng.choice(["preferred"] * 3 + ["last_resort", "unallocable"]),
        "networks": rng.choice([["net"], ["net"], []]),
        "tags": [],
        "ipolicy": {
            "disk-templates": list(TEMPLATES),
            "minmax": [{"min": limits(1, 1, 128, 128, 1), "max": most}],
            "std": limits(1, 1, 1024, 128, 1),
            "vcpu-ratio": rng.choice([4.0, 4.0, 1.0, 0.5]),
            "spindle-ratio": rng.choice([32.0, 64.0, 1.0]),
        },
    }


def node(rng: random.Random, key: str) -> Raw:
    memory, disk = rng.choice([16384, 32768, 32768, 65536]), rng.choice([1 << 18, 1 << 20])
    tags = [f"{word}:{rng.choice([1, 2])}" for word in ("hv", "rack") if rng.random() < 0.6]
    return {
        "group": key,
        "offline": rng.random() < 0.08,
        "drained": rng.random() < 0.08,
        "vm_capable": rng.random() > 0.03,
        "tags": tags,
        "ndparams": {"exclusive_storage": False, "oob_program": None, "spindle_count": rng.choice([1, 2, 12])},
        "total_memory": memory,
        "reserved_memory": 1024,
        "free_memory": memory - 1024,
        "total_disk": disk,
        "free_disk": disk,
        "free_spindles": 12,
        "total_spindles": 12,
        "total_cpus": rng.choice([4, 16, 16]),
        "reserved_cpus": rng.choice([0, 1]),
    }


def instance(rng: random.Random, template: str, nodes: list[str]) -> Raw:
    size, count = rng.choice([1024, 20480, 20480, 102400]), rng.choice([1, 1, 2])
    count = 0 if template == "diskless" else count
    space = {"drbd": size + 128, "diskless": 0, "blockdev": 0}.get(template, size) * count
    tags = [f"service:{rng.choice([1, 2, 3])}"] if rng.random() < 0.3 else []
    tags += [f"rack:{rng.choice([1, 2])}"] if rng.random() < 0.2 else []
    return {
        "admin_state": rng.choice(["up"] * 4 + ["down", "offline"]),
        "disk_space_total": space,
        "disk_template": template,
        "disks": [{"mode": "rw", "size": size, "spindles": None}] * count,
        "memory": rng.choice([512, 1024, 2048, 2048, 4096, 8192]),
        "nics": [{"ip": None, "mac": "auto", **({"network": "net"} if rng.random() < 0.1 else {})}],
        "nodes": nodes,
        "spindle_use": rng.choice([1, 1, 2]),
        "tags": tags,
        "vcpus": rng.choice([1, 1, 2, 4]),
    }


def cluster(rng: random.Random, shape: Shape = USUAL) -> Raw:
    words = (
        ("iextags:service", 0.3),
        ("migration:hv", 0.2),
        ("nlocation:rack", 0.2),
        ("desiredlocation:rack", 0.15),
        ("allowmigration:hv:1::hv:2", 0.2),
    )
    groups = {f"uuid-{n}": group(rng, f"g{n}") for n in range(rng.choice(shape.groups))}
    nodes = {f"g{n}n{m}": node(rng, key) for n, key in enumerate(groups) for m in range(rng.choice(shape.hosts))}
    found: Raw = {
        "version": 2,
        "cluster_name": "cluster",
        "cluster_tags": [f"htools:{word}" for word, likely in words if rng.random() < likely],
        "enabled_hypervisors": [rng.choice(["xen-pvm", "xen-pvm", "kvm"])],
        "nodegroups": groups,
        "nodes": nodes,
        "instances": {},
    }
    for number in range(rng.choice(shape.vms)):
        template = rng.choice(shape.templates)
        primary = rng.choice(list(nodes))
        near = [n for n in nodes if nodes[n]["group"] == nodes[primary]["group"] or rng.random() < shape.astray]
        others = [name for name in near if name != primary]
        here = [primary, rng.choice(others)] if template == "drbd" and others else [primary]
        made = instance(rng, template if template != "drbd" or others else "plain", here)
        found["instances"][f"vm{number}"] = made
        nodes[primary]["free_memory"] -= made["memory"] if made["admin_state"] == "up" else 0
        for name in here if made["disk_template"] in ("drbd", "plain") else ():
            nodes[name]["free_disk"] -= made["disk_space_total"]
    for one in nodes.values():
        report(rng, one)
    return found


def report(rng: random.Random, one: Raw) -> None:
    """What the node says of itself, which is not always what its books say."""
    one["free_memory"] -= rng.choice([1000, 5000]) if rng.random() < 0.1 else 0
    one["free_memory"] = max(0, one["free_memory"] + (1000 if rng.random() < 0.05 else 0))
    one["free_disk"] = max(0, one["free_disk"])
    if one["offline"] or not one["vm_capable"]:
        for key in [key for key in one if key.split("_")[-1] in DYNAMIC]:
            del one[key]


def tight(seed: int) -> tuple[Raw, list[str]]:
    """A request to empty a host of a group whose hosts are nearly full: what one VM gives up another one needs."""
    rng = random.Random(seed)
    one = {**group(rng, "g0"), "networks": ["net"], "alloc_policy": "preferred"}
    one["ipolicy"].update({"vcpu-ratio": 64.0, "spindle-ratio": 64.0})
    nodes = {f"n{n}": {**node(rng, "uuid-0"), "tags": []} for n in range(rng.choice([3, 4, 5, 6]))}
    found: Raw = {
        "version": 2,
        "cluster_name": "cluster",
        "cluster_tags": [],
        "enabled_hypervisors": ["xen-pvm"],
        "nodegroups": {"uuid-0": one},
        "nodes": nodes,
        "instances": {},
    }
    taken = {name: [0, 0] for name in nodes}
    for number in range(rng.randrange(3, 4 * len(nodes))):
        here = rng.sample(list(nodes), 2)
        made = instance(rng, "drbd", here)
        found["instances"][f"vm{number}"] = {**made, "tags": [], "nics": []}
        taken[here[0]][0] += made["memory"] if made["admin_state"] == "up" else 0
        for name in here:
            taken[name][1] += made["disk_space_total"]
    for name, (memory, disk) in taken.items():
        more = [rng.choice([2000, 5000, 12000, 30000]), rng.choice([2000, 30000, 110000, 250000])]
        nodes[name].update(offline=False, drained=False, vm_capable=True, free_memory=more[0], free_disk=more[1])
        nodes[name].update(total_memory=memory + more[0] + 1024, total_disk=disk + more[1], total_cpus=16)
    out = rng.choice(list(nodes))
    names = [name for name, vm in found["instances"].items() if out in vm["nodes"]]
    found["request"] = {"type": "node-evacuate", "instances": names, "evac_mode": rng.choice(["all", "all", *MODES])}
    return found, ["--ignore-soft-errors"] if rng.random() < 0.7 else []


def request(seed: int) -> tuple[Raw, list[str]]:
    """A request, and the options of the command."""
    rng = random.Random(seed)
    found = cluster(rng)
    names = list(found["instances"])
    kind = rng.choice(["node-evacuate"] * 3 + ["change-group"] * 4 + ["allocate", "relocate"])
    options = ["--no-capacity-checks"] if rng.random() < 0.5 else []
    options += ["--ignore-soft-errors"] if kind == "node-evacuate" and rng.random() < 0.2 else []
    some = rng.sample(names, min(len(names), rng.choice([1, 2, 4, 9])))
    wanted = {
        "node-evacuate": lambda: {"instances": some, "evac_mode": rng.choice(MODES)},
        "change-group": lambda: change_group(rng, found, names),
        "allocate": lambda: allocate(rng, found, options),
        "relocate": lambda: relocate(rng, found, names[0]),
    }
    found["request"] = {"type": kind, **wanted[kind]()}
    return found, options


def change_group(rng: random.Random, found: Raw, names: list[str]) -> Raw:
    """VMs of one group, mostly: those of several leave no group to go to."""
    homes = {name: found["nodes"][found["instances"][name]["nodes"][0]]["group"] for name in names}
    inside = [name for name in names if homes[name] == homes[names[0]] or rng.random() < 0.02]
    targets = rng.sample(list(found["nodegroups"]), 1) if rng.random() < 0.4 else []
    return {"instances": inside[: rng.choice([1, 3, 9])], "target_groups": targets}


def new(rng: random.Random) -> Raw:
    template = rng.choice(["drbd", "plain", "ext"])
    made = instance(rng, template, [])
    del made["nodes"], made["admin_state"]
    return {**made, "name": "new", "hypervisor": "any", "os": "noop", "required_nodes": 1 + (template == "drbd")}


def astray(seed: int) -> tuple[Raw, list[str]]:
    """A request to change the group, where many replicas are in other groups than their VMs."""
    rng = random.Random(seed)
    found = cluster(rng, Shape((2, 2, 3), (2, 2, 3), (2, 4, 8), ("drbd",), 0.6))
    found["request"] = {"type": "change-group", **change_group(rng, found, list(found["instances"]))}
    return found, ["--no-capacity-checks"] if rng.random() < 0.7 else []


def allocate(rng: random.Random, found: Raw, options: list[str]) -> Raw:
    """In groups that give CPUs away more than once: for others hail counts in another way. And without a check of
    redundancy if a group is named: hail crashes in some of these.
    """
    key = rng.choice([None, None, "g0"])
    options[:] = ["--no-capacity-checks"] if key else options
    for one in found["nodegroups"].values():
        one["ipolicy"]["vcpu-ratio"] = 4.0
    return {**new(rng), "group_name": key}


def relocate(rng: random.Random, found: Raw, name: str) -> Raw:
    nodes = found["instances"][name]["nodes"]
    return {
        "name": name,
        "required_nodes": 1,
        "disk_space_total": 0,
        "relocate_from": [rng.choice([nodes[-1], nodes[0]])],
    }
