# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same as bench.py on the running lab: processes, wall time and peak memory of a run that changes nothing there."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "lab"), str(Path(__file__).resolve().parent)]

import bench_pair
import boot
from bench import TARGETS, WORK, declarations, peer_collections, zfs_loop
from harness import Lab

SHIM = "/root/bench"
REAL_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOG = f"{SHIM}/processes.log"
PEAK = f"{SHIM}/peak.json"
PYTHON = f"{SHIM}/python"
MEASURE = f"""#!/usr/bin/python3
import json, os, resource, subprocess, sys
status = subprocess.call(["/usr/bin/python3", *sys.argv[1:]])
with open("{PEAK}", "w") as stream:
    json.dump(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, stream)
sys.exit(status)
"""


def install(lab: Lab) -> None:
    """Programs that note each start by us, not by vmadm, and a Python that notes the peak of what it started."""
    lab.run(["mkdir", "-p", SHIM])
    scripts = {PYTHON: MEASURE}
    for program in ("zfs", "zpool", "vmadm", "zdb"):
        real = lab.run(["sh", "-c", f"command -v {program}"]).stdout.strip()
        scripts[f"{SHIM}/{program}"] = f'#!/bin/sh\necho "{program} $*" >> {LOG}\nPATH={REAL_PATH} exec {real} "$@"\n'
    for path, text in scripts.items():
        lab.run(["sh", "-c", f"cat > {path} && chmod 755 {path}"], stdin=text)


def populate(lab: Lab, vms: int) -> list[dict[str, Any]]:
    """An empty lab with this many VMs of 4 disks. Returns their declarations."""
    lab.reset()
    for number in range(vms):
        payload = {
            "uuid": f"bbbbbbbb-0000-4000-8000-{number:012d}",
            "alias": f"bench{number}",
            "brand": "bhyve",
            "autoboot": False,
            "flexible_disk_size": 256,
            "disks": [{"size": 32, "model": "virtio", "boot": disk == 0} for disk in range(4)],
        }
        lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    return declarations(json.loads(lab.run(["vmadm", "lookup", "-j"]).stdout))


def play(lab: Lab, tasks: list[dict[str, Any]], *arguments: str, idle: bool = True) -> float:
    """Seconds of a play with these tasks."""
    book = lab.workdir / "play.json"
    environment = {"PATH": f"{SHIM}:{REAL_PATH}"}
    plays = [{"hosts": "hypervisors", "gather_facts": False, "environment": environment, "tasks": tasks}]
    book.write_text(json.dumps(plays), encoding="utf-8")
    started = time.monotonic()
    paths = str(peer_collections())
    done = lab.playbook(book, *arguments, ANSIBLE_DEPRECATION_WARNINGS="false", ANSIBLE_COLLECTIONS_PATH=paths)
    if idle and "changed=0" not in done.stdout:
        raise SystemExit(f"a play that should change nothing did not end so:\n{done.stdout[-3000:]}")
    return time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, default=25, help="number of VMs, of 4 disks each")
    parser.add_argument("--part", choices=bench_pair.PARTS, help="what bench_pair.py measures on both machines instead")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if options.part:
        with boot.alone(), tempfile.TemporaryDirectory() as scratch:
            return bench_pair.run(options.part, Path(scratch))
    with boot.alone(), tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch))
        wanted = {"vms": populate(lab, options.vms)}
        install(lab)
        ours = [{"flexdisk.hypervisor.vm_disks": wanted}]
        play(lab, ours, idle=False)
        lab.run(["truncate", "-s", "0", LOG])
        play(lab, ours, "-e", f"ansible_python_interpreter={PYTHON}")
        processes = len(lab.run(["cat", LOG]).stdout.splitlines())
        peak = int(lab.run(["cat", PEAK]).stdout) / 1024
        seconds = play(lab, ours)
        theirs = play(lab, [zfs_loop(wanted)])
    ratio = theirs / seconds
    print(f"lab, {options.vms} VMs of 4 disks: {processes} processes, peak {peak:.0f} MiB")
    print(f"one task {seconds:.1f} s, a loop of community.general.zfs {theirs:.1f} s: {ratio:.0f} times")
    missed = processes > TARGETS["processes"] or ratio < TARGETS["times_faster"]
    print("targets missed" if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
