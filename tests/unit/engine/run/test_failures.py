# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A command that fails in the middle, each in turn: the result says how far it came, no data is lost, and the same
task, run again, ends in the wanted state.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import differences

from ..conftest import IMAGE, VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
ROOT = {"name": "root"}
REST = {"name": "rest", "size": "remaining"}
SHRUNK = {"name": "a", "size": 512, "dangerous_allow_shrink": True}


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def attached(sim):
    sim.adopted(2048)
    sim.write(sim.disks()["a"].volume.name, 7, 0, 100)


def snapshots(sim):
    attached(sim)
    sim.run("vmadm", "create-snapshot", VM, "s1")


def detached(sim):
    attached(sim)
    assert sim.converge(one(unlisted="detach")).failure is None


def detached_and_running(sim):
    detached(sim)
    sim.run("vmadm", "start", VM)


def running(sim):
    attached(sim)
    sim.run("vmadm", "start", VM)


def running_by_hand(sim):
    running(sim)
    sim.run("vmadm", "update", VM, "autoboot=false")


def inflexible(sim):
    sim.adopted(2048, flexible=None)
    sim.write(sim.disks()["a"].volume.name, 7, 0, 100)


def drifted(sim):
    attached(sim)
    sim.run("zfs", "set", "quota=100G", f"zones/{VM}")


def preserved(sim):
    attached(sim)
    assert sim.converge(one({"name": "a", "preserve": True})).failure is None


SECOND = IMAGE.replace("1", "5")
NEW_ROOT = {"name": "root", "boot": True, "image": SECOND, "recreate": True}


def second_image(sim):
    sim.admin("image-import", SECOND, "1024")
    running(sim)


def preserved_root(sim):
    second_image(sim)
    assert sim.converge({"vm": "web01", "disks": [{"name": "root", "preserve": True}, {"name": "a"}]}).failure is None


SCENARIOS = {
    "recreate the boot disk": (second_image, {"vm": "web01", "disks": [NEW_ROOT, {"name": "a"}]}),
    "recreate a boot disk that is preserved": (
        preserved_root,
        {"vm": "web01", "disks": [{**NEW_ROOT, "preserve": True}, {"name": "a"}]},
    ),
    "grow": (attached, one({"name": "a", "size": 4096})),
    "grow running": (running, one({"name": "a", "size": 4096})),
    "shrink": (attached, one(SHRUNK)),
    "create": (attached, one({"name": "a"}, {"name": "n", "size": 64, "description": "new"})),
    "clone": (attached, one({"name": "a"}, {"name": "n", "image": IMAGE, "size": 11264})),
    "detach": (attached, one(unlisted="detach")),
    "detach with snapshots": (snapshots, one(unlisted="detach")),
    "detach inflexible": (inflexible, one(unlisted="detach")),
    "grow running without autoboot": (running_by_hand, one({"name": "a", "size": 4096})),
    "drift running": (running_by_hand, one({"name": "a", "size": 4096}, quota="2GiB", flexible_disk_size=32768)),
    "detach running": (running, one(unlisted="detach")),
    "attach": (detached, one({"name": "a"})),
    "attach grown": (detached, one({"name": "a", "size": 4096})),
    "attach shrunk": (detached, one(SHRUNK)),
    "attach running": (detached_and_running, one({"name": "a"})),
    "destroy": (attached, one({"name": "a", "state": "absent"})),
    "destroy with snapshots": (snapshots, one({"name": "a", "state": "absent", "destroy_snapshots": True})),
    "destroy detached": (detached, one({"name": "a", "state": "absent"})),
    "recreate": (attached, one({"name": "a", "size": 64, "block_size": 4096, "recreate": True})),
    "recreate preserved": (
        attached,
        one({"name": "a", "size": 64, "block_size": 4096, "recreate": True, "preserve": True}),
    ),
    "recreate what is preserved": (
        preserved,
        one({"name": "a", "size": 64, "block_size": 4096, "recreate": True, "preserve": True}),
    ),
    "flexible up and grow": (attached, one({"name": "a", "size": 25600}, flexible_disk_size=40960)),
    "shrink and flexible down": (attached, one(SHRUNK, flexible_disk_size=11264)),
    "quota": (attached, one({"name": "a"}, quota="3GiB")),
    "edit": (attached, one({"name": "a", "pci_slot": "0:4:6", "model": "nvme"})),
    "facts": (attached, one({"name": "a", "description": "d", "tags": {"k": "v"}, "compression": "lz4"})),
    "drift": (drifted, one({"name": "a"})),
    "one goes, one comes": (
        detached,
        one({"name": "n", "size": 256}, {"name": "rest", "size": "remaining"}, unlisted="detach"),
    ),
}


class Killed(BaseException):
    """The module is gone: nothing after this runs, no clean-up either."""


class Failing:
    """Fails the n-th command that changes something: before it does anything, after it has taken effect, or so that
    the module is killed there.
    """

    def __init__(self, sim: Simulated, nth: int, how: str) -> None:
        self.sim, self.left, self.how = sim, nth, how
        self.hit: list[str] = []

    def __call__(self, argv: list[str]) -> str | None:
        if self.hit and self.how == "killed":
            raise Killed
        if self.hit or not changes(argv):
            return None
        self.left -= 1
        if self.left:
            return None
        self.hit = argv
        if self.how != "before":
            self.sim.node.run(argv, self.sim.stdin)
        if self.how == "killed":
            raise Killed
        return "injected: failure"


def changes(argv: list[str]) -> bool:
    if argv[0] == "vmadm":
        return argv[1] not in ("get", "lookup")
    return argv[0] == "zfs" and argv[1] not in ("get", "list") and argv[1:3] != ["create", "-nP"]


def data(sim: Simulated, guid: int) -> str:
    """What the first 100 MiB of the disk that was written hold, wherever it lies; "" if it is gone."""
    for line in sim.run("zfs", "list", "-Hr", "-t", "volume", "-o", "name", "zones").split():
        if str(guid) == sim.run("zfs", "get", "-Hpo", "value", "guid", line).strip():
            return sim.digest(line, "0", "100")
    return ""


def final(sim: Simulated) -> Any:
    """The end state without what differs from run to run."""
    host = observe(Zfs(sim.runner), Vmadm(sim.runner))
    vm = host.vms[0]
    disks = [
        (
            d.name,
            d.size,
            d.pci_slot,
            d.model,
            d.boot,
            d.index,
            d.user_properties["description"],
            d.preserve,
            d.volume.refreservation,
            d.volume.compression,
            d.image,
        )
        for d in vm.disks
    ]
    gone = sorted((d.name, d.size, len(d.snapshots)) for d in vm.detached)
    root = vm.root
    return disks, gone, vm.config.state, vm.config.autoboot, vm.missing, len(vm.orphans), root.quota, root.reservation


def run(sim: Simulated, fault: Failing, spec: dict[str, Any]) -> Any:
    """The outcome, None if the module was killed."""
    sim.fault = fault
    try:
        return sim.converge(spec, allow_restart=True)
    except Killed:
        return None
    finally:
        sim.fault = None


def check_told(broken: Any, sim: Simulated, was_running: bool) -> None:
    statuses = [s["status"] for s in broken.failure["steps"]]
    middle = statuses.index("failed")
    assert statuses == ["done"] * middle + ["failed"] + ["not done"] * (len(statuses) - middle - 1)
    assert "injected" in broken.failure["message"]
    assert results.ending(broken)["error_code"] == broken.failure["error_code"]
    if was_running and broken.failure["restarted"] is not None:
        assert broken.failure["restarted"] == (sim.get()["state"] == "running")


def litter(sim: Simulated) -> list[str]:
    """What no run may leave: guards and intents."""
    snapshots = sim.run("zfs", "list", "-Hr", "-t", "snapshot", "-o", "name", "zones").split()
    leftovers = [name for name in snapshots if "guard" in name]
    if "zones/flexdisk" in sim.run("zfs", "list", "-H", "-o", "name").split():
        lines = sim.run("zfs", "get", "-H", "-s", "local", "-o", "property", "all", "zones/flexdisk").split()
        leftovers += [name for name in lines if "intent" in name]
    return leftovers


SETTINGS = "guid,volsize,quota,refquota,reservation,refreservation,origin,compression,userrefs"


def settings(sim: Simulated) -> Any:
    """What commands have made of VMs and disks, but for our bookkeeping on the container."""
    argv = ("zfs", "get", "-Hpr", "-t", "filesystem,volume,snapshot", "-o", "name,property,value,source")
    lines = [line.split("\t") for line in sim.run(*argv, "all", "zones").splitlines()]
    known = [line for line in lines if line[1] in SETTINGS or (line[1].startswith("flexdisk:") and line[3] == "local")]
    config = {key: value for key, value in sim.get().items() if key != "last_modified"}
    return [line for line in known if line[0] not in ("zones", "zones/flexdisk")], config


def check_changed(broken: Any, sim: Simulated, before: Any, where: str) -> None:
    """changed says what is so, of the task and of the VM, and so do the steps."""
    failure, vm = broken.failure, broken.vms[0]
    done = [s for s in failure["steps"] if s["status"] == "done" and s["step"] not in ("copy", "recover")]
    assert broken.changed == vm["changed"], where
    assert [s["status"] for s in vm["steps"]] == [s["status"] for s in failure["steps"] if s["step"] != "copy"][
        : len(vm["steps"])
    ], where
    if settings(sim) != before:
        assert broken.changed, where
    elif failure["restarted"] is None and not done and not litter(sim):
        assert not broken.changed, where


HOW = ("before", "after", "killed")
EVERY = 1 if os.environ.get("FLEXDISK_FULL") else len(HOW)  # then each command fails in one of these ways
POINTS = [(name, how) for how in HOW for name in SCENARIOS]


@pytest.mark.parametrize(("name", "how"), POINTS)
def test_every_command_in_turn(name: str, how: str) -> None:
    prepare, spec = SCENARIOS[name]
    whole = Simulated()
    prepare(whole)
    done = whole.converge(spec, allow_restart=True)
    assert (done.failure, done.problems) == (None, [])
    wanted, given_up = final(whole), "DESTROYED" in done.diff
    for nth in itertools.count(1 + HOW.index(how) % EVERY, EVERY):
        sim = Simulated()
        prepare(sim)
        vm = sim.vm()
        guid = next(d for d in vm.disks + vm.detached if d.name == "a").volume.guid
        before, fault, was = data(sim, guid), Failing(sim, nth, how), settings(sim)
        broken = run(sim, fault, spec)
        if not fault.hit:
            break
        where = "%s, command %d: %s" % (name, nth, fault.hit)
        if broken is not None and broken.failure is not None:
            check_told(broken, sim, vm.config.state == "running")
            check_changed(broken, sim, was, where)
        assert given_up or data(sim, guid) == before, where
        predicted = sim.converge(spec, allow_restart=True, check=True)
        again = sim.converge(spec, allow_restart=True)
        assert (again.problems, again.failure) == ([], None), where
        assert (again.diff, differences(again, predicted)) == (predicted.diff, []), where
        if broken is not None and broken.failure and fault.hit[1] != "inherit" and "inflexible" not in name:
            stays_down = broken.failure["restarted"] is False or broken.failure["step"].startswith("autoboot")
            assert bool(again.vms[0]["recovered"]) == stays_down, where
        assert given_up or data(sim, guid) == before, where
        assert final(sim) == wanted, where
        third = sim.converge(spec, allow_restart=True)
        assert (third.problems, third.changed) == ([], False), (where, third.diff)
        sim.assert_lawful()
        assert (third.vms[0]["recovered"], litter(sim)) == ([], []), where
    assert nth > 1


RESTART = one({"name": "a", "pci_slot": "0:4:6"})


def restarting(left, error="vmadm: vminfod is not running"):
    """Fails the edit of a disk, with vmadm killed, and then vmadm as often as left says: its tool is coming back."""
    begun = []

    def fault(argv):
        if argv[:2] == ["vmadm", "update"] and not begun:
            begun.append(argv)
            return "injected: killed"
        if begun and argv[0] == "vmadm" and left[0]:
            left[0] -= 1
            return error
        return None

    return fault


@pytest.mark.parametrize(("failures", "text"), [(0, ""), (1, "2 attempts in 1 s"), (4, "5 attempts in 15 s")])
def test_a_restart_is_tried_until_the_tool_is_back(sim, failures, text):
    running(sim)
    sim.fault = restarting([failures])
    sim.calls.clear()
    done = sim.converge(RESTART, allow_restart=True)
    sim.fault = None
    assert (done.failure["restarted"], sim.get()["state"], sim.get()["autoboot"]) == (True, "running", True)
    assert done.failure["restart"].startswith(text)
    assert sim.waits == [1, 2, 4, 8][:failures]
    edits = [call for call in sim.calls if call[:2] == ["vmadm", "update"]]
    assert len(edits) == 2, "the edit, and autoboot: what failed is not tried again"
    assert litter(sim) == []
    assert sim.converge(RESTART, allow_restart=True).failure is None


def test_only_starting_is_tried_again_where_that_fails(sim):
    """vmadm answers, and start does not work yet."""
    running(sim)
    begun = []

    def fault(argv):
        if argv[:2] == ["vmadm", "start"]:
            begun.append(argv)
            return "injected: cannot start" if len(begun) < 3 else None
        return "injected: killed" if argv[:2] == ["vmadm", "update"] and not begun else None

    sim.fault = fault
    done = sim.converge(RESTART, allow_restart=True)
    assert (done.failure["restarted"], sim.get()["state"], len(begun)) == (True, "running", 3)
    assert "3 attempts in 3 s to start it, the last error: " in results.ending(done)["msg"]
    assert "cannot start" in done.failure["restart"]


def test_a_restart_is_given_up_in_the_end_and_says_what_was_tried(sim):
    running(sim)
    sim.fault = restarting([1000])
    done = sim.converge(RESTART, allow_restart=True)
    sim.fault = None
    assert (done.failure["restarted"], sim.get()["state"]) == (False, "stopped")
    assert sum(sim.waits) == 15
    message = results.ending(done)["msg"]
    assert "The VM is down; 5 attempts in 15 s to start it, the last error: " in message
    assert "vminfod is not running" in message
    again = sim.converge(RESTART, allow_restart=True)
    assert (again.failure, sim.get()["state"]) == (None, "running")


def test_a_start_that_worked_and_was_killed_is_not_made_twice(sim):
    running(sim)
    starts = []

    def fault(argv):
        if argv[:2] == ["vmadm", "start"]:
            starts.append(argv)
            sim.node.run(argv, sim.stdin)
            return "injected: killed"
        return "injected: killed" if argv[:2] == ["vmadm", "update"] and not starts else None

    sim.fault = fault
    done = sim.converge(RESTART, allow_restart=True)
    assert (done.failure["restarted"], sim.get()["state"], len(starts)) == (True, "running", 1)


@pytest.mark.parametrize("how", ["read-only", "suspended"])
@pytest.mark.parametrize("name", ["grow", "detach", "create", "facts", "drift"])
def test_a_pool_that_takes_no_change_has_not_been_changed(sim, name, how):
    """Every command that changes something fails, those of bookkeeping too; what reads still works."""
    prepare, spec = SCENARIOS[name]
    prepare(sim)
    before = settings(sim)
    answer, _codes = ANSWERS[how]
    sim.fault = lambda argv: answer(argv).stderr if changes(argv) else None
    done = sim.converge(spec, allow_restart=True)
    sim.fault = None
    assert (settings(sim), done.changed, done.vms[0]["changed"]) == (before, False, False)
    assert results.ending(done)["changed"] is False
    assert [s["status"] for s in done.vms[0]["steps"]][:1] == ["failed"]


def test_what_cannot_be_read_again_counts_as_changed(sim):
    attached(sim)
    broken = []

    def fault(argv):
        if argv[:2] == ["vmadm", "update"]:
            broken.append(argv)
        return "injected: gone" if broken else None

    sim.fault = fault
    done = sim.converge(one({"name": "a", "size": 4096}))
    assert (done.changed, done.vms) == (True, [])


def test_later_vms_are_listed_as_not_done(sim):
    sim.adopted(64)
    sim.adopted(64, uuid=OTHER, alias="web02")
    specs = [{"vm": alias, "disks": [ROOT, {"name": "a", "size": 128}]} for alias in ("web01", "web02")]
    sim.fault = lambda argv: "injected" if argv[:3] == ["vmadm", "update", VM] else None
    done = sim.converge(*specs)
    sim.fault = None
    assert done.failure["vm"] == "web01"
    assert done.failure["vms_not_done"] == ["web02"]
    assert sim.disks(OTHER)["a"].size_mib == 64
    assert [(vm["alias"], vm["changed"], [s["status"] for s in vm["steps"]]) for vm in done.vms] == [
        ("web01", False, ["failed"]),
        ("web02", False, ["not done"]),
    ]
    assert not done.changed, "the first command failed, and nothing else was done"
    result = results.ending(done)
    assert "web01" in result["msg"]
    assert result["failure"]["vms_not_done"] == ["web02"]
    assert sim.converge(*specs).failure is None


def test_a_failure_is_told_even_if_the_last_read_fails(sim):
    sim.adopted(64)
    broken: list[list[str]] = []

    def fault(argv):
        if argv[:2] == ["vmadm", "update"]:
            broken.append(argv)
        return "injected: gone" if broken else None

    sim.fault = fault
    done = sim.converge(one({"name": "a", "size": 128}))
    assert done.failure["step"] == "~ a 64 MiB -> 128 MiB"


def test_a_volume_exchanged_behind_our_back(sim):
    """Another volume under the name that was read is not resized, moved or destroyed."""
    sim.adopted(64)
    volume = sim.disks()["a"].volume.name

    def exchange(argv):
        if argv[:2] == ["zfs", "set"] and argv[-1] == volume:
            sim.fault = None
            sim.run("zfs", "destroy", volume)
            sim.run("zfs", "create", "-V", "64M", volume)
        return

    sim.fault = exchange
    done = sim.converge(one(unlisted="detach"))
    assert done.failure["error_code"] == "Changed"
    assert sim.run("zfs", "list", "-H", "-o", "name", volume).strip() == volume


@pytest.mark.parametrize("text", ["imgadm get: error (Internal): I/O error", ""])
def test_an_image_that_cannot_be_asked_for_is_not_forgotten(sim, text):
    sim.adopted()
    spec = one({"name": "n", "image": IMAGE})
    sim.fault = lambda argv: text if argv[0] == "imgadm" else None
    assert sim.converge(spec).failure["step"].startswith("+ n 10 GiB")
    sim.fault = None
    assert sim.converge(spec).failure is None
    assert sim.get()["disks"][-1]["image_uuid"] == IMAGE


def counting_down(real, left, answer):
    """A runner that counts down the one item of left, and gives the answer at 0."""

    def runner(argv, stdin="", timeout=300):
        left[0] -= 1
        answered = answer(list(argv)) if left[0] == 0 else None
        return answered or real(argv, stdin, timeout)

    return runner


def at_every_command(name, answer):
    """Outcomes of a scenario with the n-th command of all, reads too, answered so; what had changed until then."""
    prepare, spec = SCENARIOS[name]
    nth = 0
    while True:
        nth += 1
        sim = Simulated()
        prepare(sim)
        real, left = sim.runner, [nth]
        sim.calls.clear()
        sim.runner = counting_down(real, left, answer)
        try:
            done = sim.converge(spec, allow_restart=True)
        except FlexdiskError as exc:
            done = exc
        if left[0] > 0:
            return
        sim.runner = real
        yield sim, spec, done


def missing(argv):
    raise FlexdiskError("CommandNotFound", f"{argv[0]} is not on this host's PATH")


def too_slow(argv):
    raise FlexdiskError("CommandTimeout", f"{argv[0]} did not end")


ANSWERS = {
    "killed": (lambda argv: Answer(-9, "", ""), {"ZfsCrashed", "VmadmCrashed"}),
    "missing": (missing, {"CommandNotFound"}),
    "too slow": (too_slow, {"CommandTimeout", "VmNotStopped"}),
    "silent": (lambda argv: None if changes(argv) else Answer(0, "", ""), None),
    "read-only": (lambda argv: Answer(1, "", "cannot open 'zones': pool is read-only"), {"ReadOnly"}),
    "suspended": (lambda argv: Answer(1, "", "cannot open 'zones': pool I/O is currently suspended"), {"Suspended"}),
    "no space": (lambda argv: Answer(1, "", "cannot set property: out of space"), {"InsufficientSpace"}),
}


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("name", ["detach running", "clone"])
def test_whatever_a_program_does(name, how):
    """Never a traceback: a typed error with the steps, or before the first change of the whole task."""
    answer, codes = ANSWERS[how]
    count = 0
    for sim, spec, done in at_every_command(name, answer):
        count += 1
        changed = [c for c in sim.calls if changes(c)]
        if isinstance(done, FlexdiskError):
            assert changed == []
            assert codes is None or done.code in codes
        elif done.failure is not None:
            assert codes is None or done.failure["error_code"] in codes
            assert {s["status"] for s in done.failure["steps"]} <= {"done", "failed", "not done"}
            assert results.ending(done)["msg"]
            tried = [s for s in done.failure["steps"] if s["status"] != "not done"]
            if how in ("read-only", "suspended") and not changed and done.failure["restarted"] is None:
                assert (done.changed, [vm["changed"] for vm in done.vms], len(tried)) == (False, [False], 1)
        again = sim.converge(spec, allow_restart=True)
        assert (again.problems, again.failure) == ([], None)
        assert litter(sim) == []
        assert sim.get()["state"] == ("running" if "running" in name else "stopped")
    assert count > 12


def grown(sim, volume):
    sim.run("zfs", "set", "quota=none", f"zones/{VM}")
    sim.run("zfs", "set", "volsize=128M", volume)


BEHIND = {
    "size": (grown, f"volsize of zones/{VM}/disk1 67108864 -> 134217728"),
    "another volume": (
        lambda sim, volume: (sim.run("zfs", "destroy", volume), sim.run("zfs", "create", "-V", "64M", volume)),
        f"guid of zones/{VM}/disk1 ",
    ),
    "new volume": (lambda sim, volume: sim.run("zfs", "create", "-V", "8M", volume + "1"), "disk11 is new"),
    "volume gone": (lambda sim, volume: sim.run("zfs", "rename", volume, "zones/away"), "disk1 is gone"),
    "started": (lambda sim, volume: sim.run("vmadm", "start", VM), "state stopped -> running"),
    "autoboot": (lambda sim, volume: sim.run("vmadm", "update", VM, "autoboot=true"), "autoboot False -> True"),
    "flexible": (
        lambda sim, volume: sim.run("vmadm", "update", VM, "flexible_disk_size=40960"),
        "flexible_disk_size 30720 -> 40960",
    ),
    "slot": (
        lambda sim, volume: sim.run(
            "vmadm",
            "update",
            VM,
            stdin=json.dumps({"update_disks": [{"path": "/dev/zvol/rdsk/" + volume, "pci_slot": "0:4:6"}]}),
        ),
        "disks of the configuration",
    ),
    "deleted": (lambda sim, volume: sim.run("vmadm", "delete", VM), "does not exist"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_changed_between_plan_and_apply(sim, name):
    """Somebody else changes the VM after it was read: it fails, nothing is done, and the VMs after it are left."""
    act, message = BEHIND[name]
    sim.adopted(64)
    sim.adopted(64, uuid=OTHER, alias="web02")
    sim.run("zfs", "set", "quota=200G", "zones/" + OTHER)

    def meddle(argv):
        if argv[:2] == ["zfs", "get"] and argv[-1] == f"zones/{VM}":
            sim.fault = None
            act(sim, sim.disks()["a"].volume.name)
            sim.calls.clear()

    sim.fault = meddle
    specs = [{"vm": alias, "disks": [ROOT, {"name": "a", "size": 256}]} for alias in ("web01", "web02")]
    done = sim.converge(*specs)
    assert done.failure["error_code"] == "Changed"
    assert done.failure["message"].startswith(
        ("the VM changed since it was read: ", "the host changed since it was read: ")
    )
    assert message in done.failure["message"]
    assert {s["status"] for s in done.failure["steps"]} <= {"failed", "not done"}
    assert done.failure["restarted"] is None
    assert [c for c in sim.calls if changes(c)] == []
    assert done.failure["vms_not_done"] == ["web02"]


def test_a_forecast_that_zfs_does_not_share(sim):
    sim.adopted(64)
    real = sim.runner

    def lying(argv, stdin="", timeout=300):
        answer = real(argv, stdin, timeout)
        if list(argv[:3]) == ["zfs", "create", "-nP"]:
            return type(answer)(0, "create\tx\nproperty\trefreservation\t1\n", "")
        return answer

    sim.runner = lying
    sim.calls.clear()
    done = sim.converge(one({"name": "a", "size": 128}))
    assert done.failure["error_code"] == "ForecastMismatch"
    assert not [call for call in sim.calls if changes(call)]


def test_a_busy_volume_is_tried_again(sim):
    sim.adopted(64)
    sim.node.pools.faults["busy:" + sim.disks()["a"].volume.name] = 3
    waits: list[float] = []
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge

    zfs = Zfs(sim.runner, waits.append)
    done = converge(zfs, Vmadm(sim.runner), [one(unlisted="detach")], Policy(), None, False)
    assert done.failure is None
    assert len(waits) == 3


def test_a_vm_whose_boot_disk_is_gone_stays_down_until_it_has_one(sim):
    """Neither this run nor another task starts it; the same task ends it."""
    second_image(sim)
    wanted = {"vm": "web01", "disks": [NEW_ROOT, {"name": "a"}]}
    sim.fault = lambda argv: "injected" if argv[:2] == ["zfs", "clone"] else None
    broken = sim.converge(wanted, allow_restart=True)
    sim.fault = None
    assert (broken.failure["restarted"], broken.failure["restart"]) == (
        False, "1 attempt in 0 s to start it, the last error: it has no boot disk",
    )  # fmt: skip
    assert sim.get()["state"] == "stopped"
    before = sim.fingerprint()
    for other in (one({"name": "a", "size": 4096}), {"vm": "web01", "flexible_disk_size": 40960}):
        refused = sim.converge(other, allow_restart=True)
        assert [p.code for p in refused.problems] == ["InUse"]
        assert "its boot disk left it in a run that was interrupted" in refused.problems[0].message
    raw = {"name": "a", "vm": "web01", "state": "detached", "take": False}
    moved = disk.run(Zfs(sim.runner), Vmadm(sim.runner), [raw], Policy(allow_restart=True), None, False)
    assert [p.code for p in moved.problems] == ["InUse"]
    assert sim.fingerprint() == before
    done = sim.converge(wanted, allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert (sim.get()["state"], sim.disks()["root"].image) == ("running", SECOND)
    assert not litter(sim)
