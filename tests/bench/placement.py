# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner of placement beside Ganeti's hail: CPU seconds and peak memory of whole processes.

hail takes minutes for some requests. It gets only some of their VMs then, and what it takes for them is multiplied,
without what it takes to read the cluster.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tree import BUILD, ROOT

Raw = dict[str, Any]
WORK = BUILD / "bench" / "placement"
HAIL = Path("/usr/lib/ganeti/iallocators/hail")
OURS = ROOT / "extensions" / "iallocator" / "flexdisk_iallocator.py"
MEMORY, DISK, CPUS = 131072, 4 << 20, 32  # of a node
VMS = 10  # of a node
MOST_MEMORY = 1.5  # times hail's
SIZES = (10, 30, 100, 300, 1000)


class Request(NamedTuple):
    """What is measured. kind: C(change-group), C(one-group) (into one group that is named), or the mode of an
    evacuation. all: number of VMs. sampled: as many for hail. times: how many times less than hail our own mode shall
    take, and --like-hail.
    """

    name: str
    nodes: int
    groups: int
    template: str
    kind: str
    all: int
    sampled: int
    times: tuple[float, float]
    options: tuple[str, ...] = ()


UNCHECKED = ("--no-capacity-checks",)
REQUESTS = (
    Request("change-group, shared storage", 200, 10, "ext", "change-group", 100, 2, (100, 100)),
    Request("change-group, drbd, one target", 1000, 10, "drbd", "one-group", 100, 10, (50, 10), UNCHECKED),
    Request("evacuate all, drbd", 200, 1, "drbd", "all", 18, 1, (50, 10)),
    Request("evacuate primary-only, drbd", 1000, 10, "drbd", "primary-only", 10, 10, (1, 1)),
)


class Usage(NamedTuple):
    """CPU seconds and MiB of a process."""

    seconds: float
    peak: float


def limits(cpus: int, disks: int, disk: int, memory: int, spindles: int) -> Raw:
    """One end of a group's limits."""
    words = ("cpu-count", "disk-count", "disk-size", "memory-size", "nic-count", "spindle-use")
    return dict(zip(words, (cpus, disks, disk, memory, 1, spindles), strict=True))


def group(name: str) -> Raw:
    """A group as Ganeti describes it."""
    pair = {"min": limits(1, 1, 128, 128, 1), "max": limits(16, 16, 1 << 20, 65536, 12)}
    rules = {"disk-templates": ["drbd", "ext"], "minmax": [pair], "std": limits(1, 1, 1024, 128, 1)}
    ratios = {"vcpu-ratio": 4.0, "spindle-ratio": 32.0}
    return {"name": name, "alloc_policy": "preferred", "networks": [], "tags": [], "ipolicy": {**rules, **ratios}}


def node(key: str, memory: int, disk: int) -> Raw:
    """A node of which so much is taken."""
    return {
        "group": key,
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "tags": [],
        "ndparams": {"exclusive_storage": False, "oob_program": None, "spindle_count": 12},
        "total_memory": MEMORY,
        "reserved_memory": 1024,
        "free_memory": MEMORY - 1024 - memory,
        "total_disk": DISK,
        "free_disk": DISK - disk,
        "free_spindles": 0,
        "total_spindles": 0,
        "total_cpus": CPUS,
        "reserved_cpus": 1,
    }


def cluster(nodes: int, groups: int, template: str) -> Raw:
    """A cluster with so many nodes in so many groups, each with VMs of this template. The same each time."""
    rng = random.Random(1)
    names = [f"n{number:04d}" for number in range(nodes)]
    keys = {name: f"uuid-{number * groups // nodes}" for number, name in enumerate(names)}
    near = {key: [name for name in names if keys[name] == key] for key in keys.values()}
    taken = {name: [0, 0] for name in names}
    vms: Raw = {}
    for name in names:
        for number in range(VMS):
            here = [name]
            if template == "drbd":
                here.append(rng.choice([other for other in near[keys[name]] if other != name]))
            memory, size = rng.choice([1024, 2048, 4096]), rng.choice([10240, 20480, 40960])
            taken[name][0] += memory
            for one in here if template == "drbd" else ():
                taken[one][1] += size + 128
            vms[f"vm-{name}-{number}"] = vm(template, here, memory, size)
    return {
        "version": 2,
        "cluster_name": "bench",
        "cluster_tags": [],
        "enabled_hypervisors": ["xen-pvm"],
        "ipolicy": {},
        "nodegroups": {key: group(f"g{key[5:]}") for key in near},
        "nodes": {name: node(keys[name], *taken[name]) for name in names},
        "instances": vms,
    }


def vm(template: str, nodes: list[str], memory: int, size: int) -> Raw:
    """A VM with one disk."""
    return {
        "nodes": nodes,
        "memory": memory,
        "vcpus": 2,
        "spindle_use": 1,
        "disk_template": template,
        "disks": [{"size": size, "mode": "rw", "spindles": None}],
        "disk_space_total": size + 128 if template == "drbd" else size,
        "nics": [],
        "tags": [],
        "admin_state": "up",
    }


def asked(found: Raw, kind: str, count: int) -> Raw:
    """The request: so many VMs leave the first group, or the first node."""
    vms = found["instances"]
    if kind in ("change-group", "one-group"):
        targets = [list(found["nodegroups"])[-1]] if kind == "one-group" else []
        return {"type": "change-group", "instances": list(vms)[:count], "target_groups": targets}
    first = next(iter(found["nodes"]))
    here = [name for name in vms if first in (vms[name]["nodes"] if kind == "all" else vms[name]["nodes"][:1])]
    return {"type": "node-evacuate", "instances": here[:count], "evac_mode": kind}


def measure(command: list[str | Path], file: Path) -> Usage:
    """What a command takes to answer the request in a file, which must move all VMs."""
    with subprocess.Popen([*map(str, command), str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    left = json.loads(said)["result"][1] if process.returncode == 0 else said
    if left:
        raise SystemExit(f"{command[0]} did not move all VMs of {file}: {str(left)[:500]}")
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def ours(file: Path, *options: str) -> Usage:
    """What our program takes."""
    return measure([sys.executable, OURS, *options], file)


def written(found: Raw, kind: str, count: int) -> Path:
    """A file with the cluster and a request."""
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / "request.json"
    file.write_text(json.dumps({**found, "request": asked(found, kind, count)}))
    return file


def theirs(found: Raw, request: Request) -> Usage:
    """What hail takes for all VMs, from what it takes for some and for reading."""
    some = measure([HAIL, *request.options], written(found, request.kind, request.sampled))
    if request.sampled == request.all:
        return some
    base = measure([HAIL], written(found, "primary-only", 1)).seconds if "drbd" in request.template else 0.0
    return Usage(base + (some.seconds - base) * request.all / request.sampled, some.peak)


def compared(request: Request) -> list[str]:
    """Measures one request, prints a row, and returns the targets that were missed."""
    found = cluster(request.nodes, request.groups, request.template)
    hail = theirs(found, request)
    file = written(found, request.kind, request.all)
    modes = [ours(file, *request.options), ours(file, *request.options, "--like-hail")]
    times = [hail.seconds / mode.seconds for mode in modes]
    memory = max(mode.peak for mode in modes) / hail.peak
    sampled = "" if request.sampled == request.all else f" (from {request.sampled} of {request.all} VMs)"
    where = f"{request.nodes} nodes in {request.groups} groups" if request.groups > 1 else f"{request.nodes} nodes"
    print(
        f"{request.name}, {where}, {request.all} VMs: hail {hail.seconds:.1f} s"
        f"{sampled}, ours {modes[0].seconds:.2f} s ({times[0]:.1f} times), --like-hail {modes[1].seconds:.2f} s"
        f" ({times[1]:.1f} times); memory {memory:.2f} times hail's",
        flush=True,
    )
    missed = [
        f"{request.name}, {mode}"
        for mode, got, wanted in zip(("own mode", "--like-hail"), times, request.times, strict=True)
        if got < wanted
    ]
    return missed + ([f"{request.name}, memory"] if memory > MOST_MEMORY else [])


def growth(sizes: tuple[int, ...]) -> None:
    """Prints how the time grows with the number of nodes, for 10 VMs that change their group."""
    words = []
    for nodes in sizes:
        file = written(cluster(nodes, max(2, nodes // 100), "drbd"), "change-group", 10)
        usage = ours(file, "--no-capacity-checks")
        words.append(f"{nodes}: {usage.seconds:.2f} s, {usage.peak:.0f} MiB")
    print(f"change-group of 10 drbd VMs by the number of nodes: {'; '.join(words)}", flush=True)


def placement(requests: tuple[Request, ...] = REQUESTS, sizes: tuple[int, ...] = SIZES) -> list[str]:
    """The whole part. Returns the targets that were missed."""
    growth(sizes)
    if not HAIL.exists():
        print("no hail here (Debian's package ganeti-htools), so nothing is compared")
        return ["hail is not there"]
    return [missed for request in requests for missed in compared(request)]
