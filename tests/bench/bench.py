# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Speed and memory of a run that changes nothing: processes, wall time, peak memory, payload, and how they grow.

Numbers that depend on the machine are only ever shown beside another measured in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from payload import payload, zipped_kib
from tree import BUILD, ROOT, dev_tree

COLLECTIONS = dev_tree()
WORK = BUILD / "bench"
SIMNODE = ROOT / "extensions" / "simulated_node"
PREFIX = "ansible_collections.flexdisk.hypervisor."
PEER = "ansible==12.3.0"  # the PyPI package that carries community.general 11.4.2
TARGETS = {
    "processes": 4,
    "processes_proxmox": 3,
    "floors_proxmox": 5.0,
    "times_faster": 30.0,
    "floors": 1.5,
    "step_ms": 50.0,
}
NOISE = 1.25  # by how much a figure of linear growth may come out too large

sys.path[:0] = [str(SIMNODE), str(COLLECTIONS), str(Path(__file__).resolve().parent)]

import controller
import group
import pages
import placement
import proxmox
import replicas

MEASURE = """
import json, resource, runpy, sys, time
report, module = sys.argv[1], sys.argv[2]
sys.argv = [module, sys.argv[3]]
started = time.monotonic()
try:
    runpy.run_module(module, run_name="__main__")
finally:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open(report, "w") as stream:
        json.dump({"seconds": time.monotonic() - started, "peak_kib": usage.ru_maxrss}, stream)
"""

# What no module that looks at such a node can save: a module, and the two commands that read everything.
FLOOR = """
import subprocess
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"vms": {"type": "raw"}, "commands": {"type": "raw"}, "hypervisor": {}})
for command in module.params["commands"]:
    subprocess.run(command, stdout=subprocess.PIPE, check=True)
module.exit_json(changed=False)
"""


def make_node(vms: int) -> Path:
    """A simulated node whose VMs' disks have their identity already. Returns its folder."""
    from simnode import Node

    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

    folder = WORK / f"node{vms}"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    command = [sys.executable, "-m", "simnode", "--dir", str(folder), "init", "--scenario", f"bench:{vms}"]
    subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=str(SIMNODE)), stdout=subprocess.DEVNULL)
    with Node.open(folder) as node:

        def runner(argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
            return Answer(*node.run(list(argv), stdin))

        wanted = declarations(json.loads(node.run(["vmadm", "lookup", "-j"])[1]))
        outcome = converge(Zfs(runner), Vmadm(runner), wanted, Policy(), None, False)
        if outcome.problems or outcome.failure:
            raise SystemExit(f"the node cannot be prepared: {outcome.problems or outcome.failure}")
    (folder / "args.json").write_text(json.dumps({"vms": wanted}))
    return folder


def declarations(vms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the VMs have, declared."""
    return [
        {
            "vm": vm["uuid"],
            "disks": [
                {"name": f"disk{n}", "uuid": disk["uuid"], "size": disk["size"]} for n, disk in enumerate(vm["disks"])
            ],
        }
        for vm in vms
    ]


def counting_path(folder: Path, programs: Sequence[str] = ("zfs", "zpool", "vmadm", "zdb")) -> tuple[str, Path]:
    """A PATH whose programs note each start before they run, and where they note it."""
    shim, log = folder / "shim", folder / "processes.log"
    shim.mkdir(exist_ok=True)
    if (folder / "root").exists():  # the files of a node of Proxmox VE are found beside its zfs
        (shim / "flexdisk-root").symlink_to(folder / "root")
    for program in programs:
        script = f'#!/bin/sh\necho "{program} $*" >> {log}\nexec {folder}/bin/{program} "$@"\n'
        (shim / program).write_text(script)
        (shim / program).chmod(0o755)
    return f"{shim}:{folder}/bin:{os.environ['PATH']}", log


def run_module(
    folder: Path, path: str, module: str = f"{PREFIX}plugins.modules.vm_disks", more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One run of a module as a plain process; its seconds and peak memory. more are arguments beside the VMs."""
    arguments, report = folder / "module.json", folder / "usage.json"
    wanted = {**json.loads((folder / "args.json").read_text()), **(more or {})}
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": wanted}))
    command = [sys.executable, "-c", MEASURE, str(report), module, str(arguments)]
    # As on a target, where the sources arrive anew each time and nothing is compiled before.
    unpacked = {"PATH": path, "PYTHONPATH": f"{COLLECTIONS}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=dict(os.environ, **unpacked), capture_output=True, text=True, check=False)
    result = json.loads(done.stdout) if done.returncode == 0 else {}
    if result.get("changed") is not False:
        raise SystemExit(f"the run did not end as one without changes: {done.stdout[:2000]} {done.stderr[:2000]}")
    return dict(json.loads(report.read_text()))


def best_of_three(folder: Path, commands: list[list[str]]) -> tuple[dict[str, Any], float]:
    """The fastest of three uncounted runs, and the seconds of the fastest of three floors, in turns."""
    path = f"{folder}/bin:{os.environ['PATH']}"
    (folder / "floor.py").write_text(FLOOR)
    runs, floors = [], []
    for _run in range(3):
        runs.append(run_module(folder, path))
        floors.append(run_module(folder, path, "floor", {"commands": commands})["seconds"])
    return min(runs, key=lambda usage: usage["seconds"]), min(floors)


def reads(log: Path) -> list[list[str]]:
    """Of the commands that a run has noted, the one that reads all datasets and the one that reads all VMs."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [next(words for words in lines if words[:2] == start) for start in (["zfs", "get"], ["vmadm", "lookup"])]


def peer_collections() -> Path:
    """community.general as the PyPI package carries it."""
    target = WORK / "peer" / "ansible_collections" / "community" / "general"
    if not target.exists():
        wheels = WORK / "wheels"
        print(f"       fetching {PEER} for the comparison, once, some minutes", flush=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), PEER]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(wheels.glob("ansible-*.whl"))) as wheel:
            members = [n for n in wheel.namelist() if n.startswith("ansible_collections/community/general/")]
            wheel.extractall(WORK / "peer", members)
    return WORK / "peer"


def play(folder: Path, tasks: list[dict[str, Any]]) -> float:
    """Seconds of a play with these tasks on the node."""
    book, inventory = folder / "play.json", folder / "inventory.json"
    python = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(json.dumps({"all": {"hosts": {"node": python}}}))
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    plays = [{"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}]
    book.write_text(json.dumps(plays))
    paths = f"{COLLECTIONS}:{peer_collections()}"
    started = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(book)],
        env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=paths, ANSIBLE_DEPRECATION_WARNINGS="false"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or "changed=0" not in done.stdout:
        raise SystemExit(
            f"a play that should change nothing did not end so:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )
    return time.monotonic() - started


def compare(folder: Path) -> tuple[float, float]:
    """Seconds of our one task, and of a loop of community.general.zfs over the same volumes."""
    wanted = json.loads((folder / "args.json").read_text())
    ours = play(folder, [{"flexdisk.hypervisor.vm_disks": wanted}])
    return ours, play(folder, [zfs_loop(wanted)])


def zfs_loop(wanted: dict[str, Any]) -> dict[str, Any]:
    """A task that does with community.general.zfs what it can of the same: one process or more for each volume."""
    volumes = [
        {"name": f"zones/{vm['vm']}/disk{n}", "size": disk["size"] * 1048576}
        for vm in wanted["vms"]
        for n, disk in enumerate(vm["disks"])
    ]
    return {
        "community.general.zfs": {
            "name": "{{ item.name }}",
            "state": "present",
            "extra_zfs_properties": {"volsize": "{{ item.size }}"},
        },
        "loop": volumes,
        "loop_control": {"label": "{{ item.name }}"},
    }


def on_proxmox(vms: int) -> list[str]:
    """Show a run on a node of Proxmox VE beside the same reads in a shell. Returns the targets that it has missed."""
    folder = WORK / "proxmox"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    proxmox.make_node(folder, vms)
    path, log = counting_path(folder, proxmox.PROGRAMS)
    log.write_text("")
    run_module(folder, path)
    processes = log.read_text().splitlines()
    usage, floor = best_of_three(folder, proxmox.reads(folder, log))
    floors = usage["seconds"] / floor
    text = (
        f"{len(processes)} processes, {usage['seconds']:.2f} s, {usage['peak_kib'] / 1024:.0f} MiB, {floors:.1f} floors"
    )
    print(f"Proxmox VE, {vms} VMs with {len(proxmox.SIZES)} disks: {text}")
    missed = ["processes on Proxmox VE"] if len(processes) > TARGETS["processes_proxmox"] else []
    missed += ["qm on Proxmox VE"] if any(line.startswith(("qm ", "pvesm ")) for line in processes) else []
    return missed + (["floors on Proxmox VE"] if vms >= 100 and floors > TARGETS["floors_proxmox"] else [])


def growth(measured: list[tuple[int, float, float]]) -> list[str]:
    """What grows faster than the number of VMs, of rows of VMs, seconds and MiB. What a run costs without any VM makes
    each VM of a small node dearer, so linear growth never shows as a VM that is dearer than on the next smaller node.
    """
    missed = []
    rows = sorted(measured)
    for smaller, larger in itertools.pairwise(rows):
        for column, what in ((1, "time"), (2, "memory")):
            if larger[column] / larger[0] > NOISE * smaller[column] / smaller[0]:
                missed.append(f"growth of {what} from {smaller[0]} to {larger[0]} VMs")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10,100,1000", help="numbers of VMs, of 4 disks each")
    parser.add_argument("--compare", type=int, default=100, help="number of VMs beside community.general.zfs; 0: not")
    parser.add_argument("--hosts", type=int, default=10, help="number of hosts of a real roll; 0: none")
    parser.add_argument("--placement", type=int, default=1, help="the planner of placement beside hail; 0: not")
    parser.add_argument("--replicas", type=int, default=100, help="number of VMs of a run of replicate; 0: none")
    parser.add_argument("--proxmox", type=int, default=100, help="number of VMs of a node of Proxmox VE; 0: none")
    parser.add_argument(
        "--controller", default="10,100", help="numbers of hosts of one controller (10,100,1000); 0: none"
    )
    parser.add_argument("--play", action="append", default=[], help="of --controller, only this: update_group, ...")
    parser.add_argument("--forks", default=str(controller.FORKS), help="of --controller, numbers of forks")
    parser.add_argument("--delay", type=float, default=0, help="of --controller, how many seconds each module takes")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    missed = []
    texts = payload("vm_disks")
    sources = sum(len(text.encode()) for text in texts.values()) / 1024
    print(
        f"payload: {zipped_kib(texts):.0f} KiB zipped, {sources:.0f} KiB of our own sources; tests/unit/test_payload.py"
    )
    for count in (10, 100, 1000):
        step, whole, look = group.planner(count)
        words = f"{step:.1f} ms to plan a step, {whole:.0f} ms to plan the whole roll"
        print(f"group of {count:>4} members: {words}, {look:.0f} ms to read what 10 hosts say")
        if count == 1000 and step > TARGETS["step_ms"]:
            missed.append("step of a group")
    for count in (10, 100, 1000):
        seconds, size = pages.page(count)
        print(f"report of {count:>4} VMs as a page: {seconds * 1000:.0f} ms, {size / 1024:.0f} KiB")
    if options.hosts:
        missed += group.calls(options.hosts)
    if options.controller != "0":
        hosts, forks = ([int(n) for n in text.split(",")] for text in (options.controller, options.forks))
        missed += controller.controller(WORK / "controller", hosts, options.play, forks, options.delay)
    missed += placement.placement() if options.placement else []
    missed += replicas.replicas(options.replicas) if options.replicas else []
    missed += on_proxmox(options.proxmox) if options.proxmox else []
    print("   VMs  disks  processes  seconds  ms per VM  peak MiB  MiB per VM  floors")
    measured = []
    for vms in (int(n) for n in options.sizes.split(",")):
        folder = make_node(vms)
        path, log = counting_path(folder)
        log.write_text("")
        run_module(folder, path)
        processes = len(log.read_text().splitlines())
        usage, floor = best_of_three(folder, reads(log))
        floors = usage["seconds"] / floor
        per_vm = usage["seconds"] * 1000 / vms
        peak = usage["peak_kib"] / 1024
        row = f"{vms:>6} {vms * 4:>6} {processes:>10} {usage['seconds']:>8.2f} {per_vm:>10.1f} {peak:>9.0f}"
        print(f"{row} {peak / vms:>11.2f} {floors:>7.1f}")
        measured.append((vms, usage["seconds"], peak))
        if vms == 100 and floors > TARGETS["floors"]:
            missed.append("floors with 100 VMs")
        if processes > TARGETS["processes"]:
            missed.append(f"processes with {vms} VMs")
        if vms == options.compare:
            ours, theirs = compare(folder)
            ratio = theirs / ours
            print(f"       one task {ours:.1f} s, a loop of community.general.zfs {theirs:.1f} s: {ratio:.0f} times")
            if ratio < TARGETS["times_faster"]:
                missed.append("times faster")
    missed += growth(measured)
    print("targets missed: " + ", ".join(missed) if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
