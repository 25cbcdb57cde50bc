# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two runs of ansible-playbook that want different disks of one VM at the same time: one whole wish comes true.

FLEXDISK_SEED fixes who begins, and by how much.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults_backend import LOCKS, LabBackend
from harness import Lab

from tests.faults import world

VM = "eeeeeeee-0000-4000-8000-00000000000e"
SEED = int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))
PATIENT, IMPATIENT = 600, 1
HEAD_START_SECONDS = 3.0
WISHES: dict[str, dict[str, Any]] = {
    "wide": {
        "flexible_disk_size": 1024,
        "disks": [
            {"name": "root", "boot": True, "size": 128},
            {"name": "data", "size": 96, "preserve": True},
            {"name": "logs", "size": 32, "pci_slot": "0:4:5"},
            {"name": "scratch", "size": "remaining"},
        ],
    },
    "narrow": {
        "flexible_disk_size": 640,
        "disks": [{"name": "root", "boot": True, "size": 160}, {"name": "queue", "size": 64, "pci_slot": "0:4:5"}],
    },
}
HOLDER = re.compile(r"being changed by .*\(pid \d+ on lab01 since [0-9TZ:-]+\)(?:, .*)?; waited 1 s \(lock_timeout\)")


@dataclass
class Ended:
    """One run of a playbook."""

    wish: str
    status: int
    stdout: str
    moment: float


def playbook(lab: Lab, wish: str, patience: int) -> Path:
    """A play with one task that wants this."""
    declared = {"vm": VM, "unlisted": "detach", **WISHES[wish]}
    shrinking = [{**disk, "dangerous_allow_shrink": True} for disk in declared["disks"]]
    task = {
        "name": f"Make it {wish}",
        "flexdisk.hypervisor.vm_disks": {"vms": [{**declared, "disks": shrinking}], "lock_timeout": patience},
    }
    path = lab.workdir / f"{wish}-{patience}.json"
    path.write_text(json.dumps([{"hosts": "hypervisors", "gather_facts": False, "tasks": [task]}]), encoding="utf-8")
    return path


def race(lab: Lab, first: str, second: str, patience: int, head_start: float) -> list[Ended]:
    """Both at once; in the order in which they ended."""

    def play(wish: str, delay: float) -> Ended:
        time.sleep(delay)
        done = lab.playbook(playbook(lab, wish, patience), check=False)
        return Ended(wish, done.returncode, done.stdout + done.stderr, time.monotonic())

    with ThreadPoolExecutor(2) as lanes:
        both = lanes.map(play, (first, second), (0, head_start))
    return sorted(both, key=lambda one: one.moment)


def state(lab: Lab, backend: LabBackend) -> dict[str, Any]:
    """Everything on the hypervisor but what differs from run to run, and who holds a lock."""
    now = world.comparable(world.read(backend, contents=False), set())
    return {**now, "locks": lab.python(LOCKS).split()}


@pytest.fixture(scope="module")
def raced(lab: Lab) -> dict[str, Any]:
    """A VM that has been both, so that it goes to and fro; by wish the state that it ends in when it runs alone."""
    payload = {
        "uuid": VM, "alias": "raced", "brand": "bhyve", "autoboot": False, "flexible_disk_size": 1024,
        "disks": [{"size": 128, "boot": True, "model": "virtio"}],
    }  # fmt: skip
    backend = LabBackend(lab, lambda host: host.run("vmadm", "create", stdin=json.dumps(payload)))
    states = {}
    for wish in ["wide", "narrow"] * 2:
        lab.playbook(playbook(lab, wish, PATIENT))
        states[wish] = state(lab, backend)
    assert states["wide"] != states["narrow"]
    return {"backend": backend, "states": states}


def judge(lab: Lab, raced: dict[str, Any], ended: list[Ended]) -> str:
    """Which of the allowed endings it was."""
    good = [one for one in ended if one.status == 0]
    told = "\n".join(one.stdout for one in ended)
    assert good, told
    for one in ended:
        if one.status:
            assert "Locked" in one.stdout, told
            assert HOLDER.search(one.stdout.replace("\\n", " ")), told
    assert state(lab, raced["backend"]) == raced["states"][good[-1].wish], told
    return "both" if len(good) == 2 else "one"


def rounds(lab: Lab, raced: dict[str, Any], count: int, patience: int) -> list[str]:
    dice = random.Random(f"{patience}:{SEED}")
    found = []
    for _round in range(count):
        first, second = dice.sample(sorted(WISHES), 2)
        found.append(judge(lab, raced, race(lab, first, second, patience, dice.uniform(0, HEAD_START_SECONDS))))
    return found


@pytest.mark.full
@pytest.mark.parametrize("patience", [PATIENT, IMPATIENT])
def test_contradicting_playbooks(
    lab: Lab, raced: dict[str, Any], patience: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rounds(lab, raced, 10, patience)
    with capsys.disabled():
        print(f"\nFLEXDISK_SEED={SEED}, lock_timeout {patience}: {found.count('both')} times both, "
              f"{found.count('one')} times one of them")  # fmt: skip
    if patience == PATIENT:
        assert found == ["both"] * 10
    else:
        assert "one" in found
