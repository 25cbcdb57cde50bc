# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random requests to clusters so small that every plan can be tried. The same seed makes the same request."""

from __future__ import annotations

import random

from .clusters import MODES, Raw, Shape, cluster, limits

SHARED = ("sharedfile", "diskless", "blockdev", "rbd", "ext", "gluster")
OPTIONS = ("--no-capacity-checks",)
HOSTS = 4
_NO_LIMITS = [{"min": limits(1, 0, 0, 0, 0), "max": limits(64, 64, 1 << 30, 1 << 30, 64)}]
_VMS, _TEMPLATES = (1, 2, 3, 4, 5, 6, 6, 6), (*["drbd"] * len(SHARED), *SHARED)
_SHAPES = {
    "node-evacuate": Shape((1, 1, 1, 2), (2, 3, 4, 4), _VMS, _TEMPLATES, 0.0),
    "change-group": Shape((2, 2, 3), (1, 2, 2, 3), _VMS, _TEMPLATES, 0.0),
}


def request(seed: int) -> Raw:
    """A request to a cluster with 2 to 4 hosts in 1 to 3 groups and 1 to 6 VMs. In some clusters limits are narrow."""
    rng = random.Random(seed)
    kind = rng.choice(list(_SHAPES))
    found = cluster(rng, _SHAPES[kind])
    while not 2 <= len(found["nodes"]) <= HOSTS:
        found = cluster(rng, _SHAPES[kind])
    if rng.random() < 0.8:
        _widen(rng, found)
    if rng.random() < 0.5:
        _fill(rng, found)
    wanted = _evacuate(rng, found) if kind == "node-evacuate" else _change_group(rng, found)
    found["request"] = {"type": kind, **wanted}
    return found


def _widen(rng: random.Random, found: Raw) -> None:
    """Let few things but memory and disks refuse a VM."""
    for group in found["nodegroups"].values():
        group.update(networks=["net"], alloc_policy=rng.choice(["preferred", "preferred", "last_resort"]))
        group["ipolicy"].update({"vcpu-ratio": 64.0, "spindle-ratio": 64.0, "minmax": _NO_LIMITS})
    for node in found["nodes"].values():
        if "free_memory" in node and rng.random() < 0.9:
            node.update(drained=False, total_cpus=16)


def _fill(rng: random.Random, found: Raw) -> None:
    """Let hosts report less than they have."""
    for node in found["nodes"].values():
        for key, few in (("free_memory", [6000, 12000, 20000]), ("free_disk", [30000, 110000, 250000])):
            if key in node:
                node[key] = min(node[key], rng.choice([*few, 1 << 20]))


def _evacuate(rng: random.Random, found: Raw) -> Raw:
    """What is on one host; sometimes VMs of several hosts."""
    mode, vms = rng.choice(MODES), found["instances"]
    parts = {"primary-only": slice(0, 1), "secondary-only": slice(1, 2), "all": slice(0, 2)}
    host = rng.choice([host for vm in vms.values() for host in vm["nodes"][parts[mode]]] or list(found["nodes"]))
    names = [name for name, vm in vms.items() if host in vm["nodes"][parts[mode]]]
    if not names or rng.random() < 0.2:
        names = rng.sample(list(vms), rng.randint(1, len(vms)))
    return {"instances": names, "evac_mode": mode}


def _change_group(rng: random.Random, found: Raw) -> Raw:
    """The VMs of one group, or some of them, go to any other group, or to one that is named."""
    homes = {name: found["nodes"][vm["nodes"][0]]["group"] for name, vm in found["instances"].items()}
    left = rng.choice(list(homes.values()))
    names = [name for name, home in homes.items() if home == left]
    targets = [key for key in found["nodegroups"] if key != left and rng.random() < 0.2]
    return {"instances": names if rng.random() < 0.9 else names[:2], "target_groups": targets}
