# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of the playbook replicate costs of which most VMs are fresh: processes on the hosts, and seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

from tree import BIN, BUILD, dev_tree

COLLECTIONS = dev_tree()
SIMNODE = COLLECTIONS / "ansible_collections/flexdisk/hypervisor/extensions/simulated_node"
WORK = BUILD / "bench" / "replicas"
HOSTS = ("hv01", "hv02")
PROGRAMS = ("zfs", "zpool", "vmadm", "zdb", "ssh", "ssh-keygen")
DUE = 5
NOISE = 3  # processes that a run has more or less than another, as it takes longer or shorter
PATH = "{{ inventory_dir }}/{{ inventory_hostname }}/shim:{{ inventory_dir }}/{{ inventory_hostname }}/bin:"


def replicas(vms: int) -> list[str]:
    """Print the costs. Return the targets that were missed."""
    _make(vms)
    entries = [{"vm": f"vm{number:03}", "host": "hv02", "every": "PT10H"} for number in range(vms)]
    _play(entries)
    fresh, due = entries[DUE:], [{"vm": entry["vm"], "host": "hv02"} for entry in entries[:DUE]]
    costs = {}
    for name, some in {"due": due, "all": fresh + due, "fresh": fresh}.items():
        _write()
        costs[name] = _play(some)
    words = {"all": f"{vms} VMs, {DUE} of them due", "due": f"these {DUE} alone", "fresh": f"the other {vms - DUE}"}
    for name, (processes, seconds) in costs.items():
        print(f"replicate of {words[name]:<22} {processes:>4} processes on both hosts, {seconds:.1f} s")
    return ["processes of fresh VMs"] if costs["all"][0] > costs["due"][0] + NOISE else []


def _make(vms: int) -> None:
    """Two hosts, the first with VMs of one disk each, and programs that note each start."""
    sys.path.insert(0, str(SIMNODE))
    from simnode import Node, hosts

    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    hosts.make(WORK, HOSTS)
    (WORK / "collections").symlink_to(COLLECTIONS)
    for name in HOSTS:
        (WORK / name / "shim").mkdir()
        for program in PROGRAMS:
            path = WORK / name / "shim" / program
            path.write_text(
                f'#!/bin/sh\necho "{program} $1" >> {WORK}/processes.log\nexec {WORK}/{name}/bin/{program} "$@"\n'
            )
            path.chmod(0o755)
    with Node.open(WORK / "hv01") as node:
        for uuid in node.run(["vmadm", "lookup"])[1].split():  # those of the walks take much of the pool
            node.run(["vmadm", "delete", uuid])
        for number in range(vms):
            payload = {
                "uuid": f"bbbbbbbb-0000-4000-8000-{number:012}",
                "alias": f"vm{number:03}",
                "brand": "bhyve",
                "ram": 128,
                "vcpus": 1,
                "quota": 1,
                "flexible_disk_size": 128,
                "disks": [{"boot": True, "model": "virtio", "size": 32}],
            }
            rc, _out, err = node.run(["vmadm", "create"], json.dumps(payload))
            if rc:
                raise SystemExit(err)


def _write() -> None:
    """The guests of the VMs that are due write something."""
    sys.path.insert(0, str(SIMNODE))
    from simnode import Node

    with Node.open(WORK / "hv01") as node:
        for number in range(DUE):
            node.run(
                ["guest", "write", f"zones/bbbbbbbb-0000-4000-8000-{number:012}/disk0", "0", "1", str(time.time())]
            )


def _play(entries: list[dict[str, Any]]) -> tuple[int, float]:
    """Processes and seconds of a run."""
    log = WORK / "processes.log"
    log.write_text("")
    given = {"flexdisk_replicas": entries, "flexdisk_environment": {"PATH": f"{PATH}{os.environ['PATH']}"}}
    command = [str(BIN / "ansible-playbook"), "flexdisk.hypervisor.replicate", "-e", json.dumps(given)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    return len(log.read_text().splitlines()), time.monotonic() - began
