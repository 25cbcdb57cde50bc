# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each check bites: a disk, a figure or a word that is not as it should be is complained of."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from tests.faults import checks, driver, world
from tests.faults.driver import Point
from tests.faults.node import NodeBackend
from tests.faults.scenarios import SCENARIOS, WEB

FAULTS = Path(__file__).resolve().parents[2] / "tools" / "faults.py"

DISK = f"zones/{WEB}/disk1"


@pytest.fixture
def snapshots():
    backend = NodeBackend()
    SCENARIOS["remove-snapshots"].prepare(backend)
    return backend


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ((), ""),
        (("guest", "write", DISK, "0", "1", "x"), "other contents"),
        (("guest", "trim", DISK, "0", "1"), "other contents"),
        (("zfs", "destroy", "-r", DISK), "is gone"),
        (("zfs", "destroy", DISK + "@own"), "is gone"),
        (("zfs", "rollback", DISK + "@own"), "other contents"),
        (("zfs", "set", "volsize=8M", DISK), "other contents"),
        (("zfs", "rename", DISK, f"zones/{WEB}/elsewhere"), ""),
        (("zfs", "rename", DISK + "@own", DISK + "@other"), ""),
    ],
)
def test_lost_data(snapshots, damage, complaint):
    before = world.read(snapshots)
    contents = checks.ledger(snapshots, before, before)
    assert len(contents) == 9
    if damage:
        snapshots.run(*damage)
    found = checks.lost_data(snapshots, contents, world.read(snapshots))
    assert bool(found) == bool(complaint)
    assert all(complaint in line for line in found)


def test_what_an_undisturbed_run_gives_up_is_not_missed(snapshots):
    before = world.read(snapshots)
    after = world.read(snapshots)
    for name in [n for n in after.datasets if n.startswith(DISK)]:
        del after.datasets[name]
    after.datasets[f"zones/{WEB}/disk2"]["volsize"] = str(32 << 20)
    contents = {content.name: content.length for content in checks.ledger(snapshots, before, after)}
    assert DISK not in contents
    assert contents[f"zones/{WEB}/disk2"] == 32 << 20


@pytest.mark.parametrize("change", ["quota=8G", "reservation=1G", "refquota=2G"])
def test_quota_law(snapshots, change):
    assert checks.quota_law(world.read(snapshots)) == []
    snapshots.run("zfs", "set", change, f"zones/{WEB}")
    assert len(checks.quota_law(world.read(snapshots))) == 1


@pytest.mark.parametrize(
    "litter",
    [
        ("zfs", "create", "-V", "8M", "zones/left"),
        ("zfs", "snapshot", DISK + "@left"),
        ("zfs", "hold", "left", DISK + "@own"),
        ("zfs", "set", "flexdisk:intent.left=x", f"zones/{WEB}"),
        ("zfs", "set", "flexdisk:description=x", DISK),
        ("vmadm", "update", WEB, "alias=left"),
        ("vmadm", "start", WEB),
    ],
)
def test_everything_is_compared(snapshots, litter):
    before = world.read(snapshots)
    snapshots.run(*litter)
    known = before.uuids()
    pair = (world.comparable(before, known), world.comparable(world.read(snapshots), known))
    assert list(checks.differences(pair[0], pair[0])) == []
    assert list(checks.differences(*pair)) != []


def test_what_differs_from_run_to_run_is_not_compared(snapshots):
    before = world.read(snapshots)
    snapshots.run("zfs", "set", "flexdisk:serial_no=77", DISK)
    uuid = before.datasets[DISK]["flexdisk:uuid"]
    known = before.uuids() - {uuid}
    first = world.comparable(before, known)
    assert list(checks.differences(first, world.comparable(world.read(snapshots), known))) == []
    assert uuid not in str(first)
    assert uuid in str(world.comparable(before, before.uuids()))


def test_results():
    fine = {"changed": False, "diff": {"prepared": ""}}
    failed = {"failed": True, "msg": "m", "error_code": "c"}
    assert checks.succeeded(fine, "x") == checks.idle(fine, [], "x") == checks.honest(failed) == []
    assert checks.succeeded(failed, "x") == checks.idle(failed, [], "x") == ["the x run failed: m"]
    assert checks.succeeded({"killed": True}, "x") == ["the x run was killed"]
    assert len(checks.idle({**fine, "changed": True}, [], "x")) == 1
    assert len(checks.idle(fine, [["zfs"]] * 5, "x")) == 1
    assert len(checks.honest({"failed": True, "msg": "Traceback (most recent"})) == 2
    assert len(checks.honest({**failed, "failure": {"steps": [{"step": "grow"}]}})) == 1
    assert checks.foretold(fine, fine) == []
    assert len(checks.foretold(fine, failed)) == len(checks.foretold(fine, {**fine, "changed": True})) == 1


def test_an_engine_that_loses_data_is_caught(monkeypatch):
    """Each step that goes wrong in an undisturbed run, or in the run after an interruption, is complained of."""
    backend = NodeBackend()
    SCENARIOS["shrink"].prepare(backend)
    state = backend.save()
    baseline = driver.undisturbed(SCENARIOS["shrink"], NodeBackend(pickle.loads(state)))
    point = Point("shrink", (("kill-before", 5),))
    assert baseline.complaints == driver.judge(point, baseline, NodeBackend(pickle.loads(state))) == []

    def too_far(self, vm, path, size, planned):
        whole(self, vm, path, size, planned)
        self._runner(["zfs", "set", "flexdisk:left=x", path[len("/dev/zvol/rdsk/") :]])
        self._runner(["guest", "trim", path[len("/dev/zvol/rdsk/") :], "0", "1"])

    whole = Vmadm.resize_disk
    monkeypatch.setattr(Vmadm, "resize_disk", too_far)
    found = driver.judge(point, baseline, NodeBackend(pickle.loads(state)))
    assert any("other contents" in line for line in found)
    assert any("flexdisk:left" in line for line in found)


def test_what_cannot_be_read_afterwards_is_complained_of(monkeypatch):
    """Beside what the runs have said before."""
    backend = NodeBackend()
    SCENARIOS["grow"].prepare(backend)
    state = backend.save()
    baseline = driver.undisturbed(SCENARIOS["grow"], NodeBackend(pickle.loads(state)))

    def unreadable(*_arguments):
        raise AssertionError("two disks at once")

    monkeypatch.setattr(driver, "verdict", unreadable)
    monkeypatch.setattr(checks, "succeeded", lambda _result, which: [f"the {which} run failed"])
    found = driver.judge(Point("grow", (("kill-before", 5),)), baseline, NodeBackend(pickle.loads(state)))
    assert found == ["the second run failed", "what is there cannot be read: two disks at once"]


def test_points_can_be_written_and_read():
    point = Point("grow", (("lost", 3), ("kill-after", 12)))
    assert Point.parse(str(point)) == point
    for text in ("grow", "grow:lost", "grow:lost:x", ":lost:1", "grow:lots:1"):
        with pytest.raises(ValueError, match=r"no such point|invalid literal|shorter"):
            Point.parse(text)


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "shrunk:lost:1"],
        ["--scenario", "shrunk"],
        ["--only", "vm-make:lost:1", "--driver", "proxmox"],
        ["--scenario", "unused-attach"],
    ],
)
def test_a_driver_has_scenarios_of_its_own(words):
    done = subprocess.run([sys.executable, FAULTS, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(r"(vmadm|proxmox) has no scenario \S+; it has: \S+, ", done.stderr), done.stderr
