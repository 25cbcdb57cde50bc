# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is in use on the node: by another VM, in a pool that is not read, under another name, in a taken slot."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk_adopt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run as run_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM
from ..modules import test_vm_snapshot

OTHER = "cccccccc-0000-4000-8000-000000000002"
FOREIGN = "dddddddd-0000-4000-8000-000000000001"
ROOT = f"zones/{VM}"
GONE = {"state": "absent", "unlisted": "refuse", "destroy_disks": True, "destroy_snapshots": True}


def devices(sim, uuid=VM):
    """The VM's disks in its configuration, which a test changes behind vmadm's back."""
    return sim.node.vmadm_state["vms"][uuid]["devices"]


def absent(sim, vm="web01", check=False):
    return run_vm(Zfs(sim.runner), Vmadm(sim.runner), [{"vm": vm, **GONE}], [], Policy(allow_restart=True), None, check)


def findings(sim, *repair):
    return verify(Zfs(sim.runner), Vmadm(sim.runner), None, repair, None, 30, False, int(sim.node.now()))


def refused(sim, go):
    """The only problem of a task: check mode tells it, and nothing changes."""
    before = sim.fingerprint()
    [problem] = go(True).problems
    done = go(False)
    assert (done.problems, done.failure) == ([problem], None)
    assert sim.fingerprint() == before
    return problem


@pytest.fixture
def two(sim):
    """web01 with root, a and b, and web02 with root, which runs and has b of web01 as well."""
    sim.adopted(1024, 512)
    sim.adopted(uuid=OTHER, alias="web02")
    devices(sim, OTHER).append({**devices(sim)[2], "uuid": FOREIGN, "pci_slot": "0:4:7"})
    sim.run("vmadm", "start", OTHER)
    return sim


TASKS = {
    "absent": lambda sim, check: absent(sim, check=check),
    "grow": lambda sim, check: sim.converge(
        {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b", "size": 1024}]}, check=check
    ),
    "detach": lambda sim, check: sim.converge(
        {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}], "unlisted": "detach"}, check=check
    ),
    "destroy": lambda sim, check: sim.converge(
        {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b", "state": "absent"}]}, check=check
    ),
}


@pytest.mark.parametrize("preserve", ["true", "false"])
@pytest.mark.parametrize("task", TASKS)
def test_a_disk_that_another_vm_has_too(two, task, preserve):
    two.run("zfs", "set", f"flexdisk:preserve={preserve}", f"{ROOT}/disk2")
    problem = refused(two, lambda check: TASKS[task](two, check))
    assert problem.code == "InUse"
    assert f"{ROOT}/disk2 is also attached to web02 ({OTHER})" in problem.message


def test_an_orphan_that_another_vm_has_is_not_detached_with_its_vm(two):
    """The disk lies below the deleted VM, and only the other one is configured with it."""
    del devices(two)[2]
    problem = refused(two, lambda check: absent(two, check=check))
    assert f"{ROOT}/disk2 is also attached to web02" in problem.message


@pytest.mark.parametrize(
    "change",
    [{"media": "cdrom"}, {"path": f"/dev/zvol/dsk/{ROOT}/disk2"}],
)
def test_other_ways_to_have_a_volume(two, change):
    devices(two, OTHER)[-1].update(change)
    assert "web02" in refused(two, lambda check: TASKS["grow"](two, check)).message


def test_a_detached_disk_that_a_vm_has_is_left_where_it_is(two):
    """Its repair would rename it, and the task that is given for one that was never used would destroy it."""
    devices(two, OTHER).pop()
    names = [{"name": name} for name in ("root", "a")]
    assert two.converge({"vm": VM, "disks": names, "unlisted": "detach"}).failure is None
    place = two.detached()["b"].volume.name
    two.run("zfs", "rename", place, place[:-1] + "x")
    path = f"/dev/zvol/rdsk/{place[:-1]}x"
    devices(two, OTHER).append({**devices(two)[1], "uuid": FOREIGN, "pci_slot": "0:4:7", "path": path})
    two.run("vmadm", "update", OTHER, "autoboot=false")
    before = two.fingerprint()
    done = verify(Zfs(two.runner), Vmadm(two.runner), None, ["parked_place"], None, 0, False, int(two.node.now()) + 10)
    assert two.fingerprint() == before
    assert not done.outcome.changed
    [finding] = [f for f in done.findings if f.kind == "parked_place"]
    assert f"web02 ({OTHER}) has it open or configured" in finding.message
    assert "never_used" not in [f.kind for f in done.findings]


# -- a pool that is not read


@pytest.fixture
def wide(sim):
    """web01 with root and a, and a disk in the pool data, where no VM is."""
    specs = [PoolSpec(name, 64 << 30, 12, [{"type": "disk", "disks": 1}], "illumos") for name in ("zones", "data")]
    sim.node = Node.create(None, specs)
    sim.admin("image-import", "aaaaaaaa-0000-4000-8000-000000000001", "10240")
    sim.adopted(1024)
    sim.run("zfs", "create", "data/vm")
    sim.run("zfs", "create", "-V", "512M", "data/vm/disk7")
    path = "/dev/zvol/rdsk/data/vm/disk7"
    devices(sim).append({**devices(sim)[1], "path": path, "uuid": FOREIGN, "pci_slot": "0:4:7"})
    return sim


def test_a_volume_in_a_pool_that_is_not_read_is_not_called_missing(wide):
    [finding] = findings(wide, *REPAIRABLE).findings
    assert (finding.kind, finding.volume) == ("unread_pool", "data/vm/disk7")
    assert "lies in pool data, which this task does not read" in finding.message
    assert "by hand" not in finding.message
    done = wide.four_steps({"vm": VM, "disks": [{"name": "root"}, {"name": "a", "size": 2048}]})
    assert "lies in another pool" in done.warnings[0]


def test_a_vm_is_not_deleted_with_what_is_not_read(wide):
    """vmadm delete would destroy the volume, which no plan names."""
    problem = refused(wide, lambda check: absent(wide, check=check))
    assert problem.code == "InUse"
    assert "data/vm/disk7" in problem.message
    assert "pool data" in problem.message


@pytest.mark.parametrize("power", ["stopped", "running"])
def test_the_advice_for_a_disk_that_is_not_read_keeps_it_and_what_is_preserved(wide, power):
    """Followed literally."""
    if power == "running":
        wide.run("vmadm", "start", VM)
    wide.run("zfs", "set", "flexdisk:preserve=true", f"{ROOT}/disk1")
    wide.write(f"{ROOT}/disk1", 3, 0, 20)
    written = wide.digest(f"{ROOT}/disk1")
    [problem] = absent(wide, check=True).problems
    rename = re.search(r"zfs rename (\S+) NEWNAME", problem.message)[1]
    removal, uuid = re.search(r"echo '(.*)' \| vmadm update ([0-9a-f-]+)", problem.message).groups()
    assert ("vmadm stop" in problem.message) == (power == "running")
    if power == "running":
        wide.run(*re.search(r"vmadm stop \S+(?=\))", problem.message)[0].split())
    wide.run("zfs", "rename", rename, "data/vm/kept")
    wide.run("vmadm", "update", uuid, stdin=removal)
    done = absent(wide)
    assert (done.problems, done.failure) == ([], None)
    assert not wide.node.vmadm_state["vms"]
    names = wide.run("zfs", "list", "-H", "-o", "name", "-t", "volume").split()
    assert "data/vm/kept" in names
    assert [wide.digest(name) for name in names if name.startswith("zones/flexdisk/")] == [written]


def test_a_volume_that_is_missing_in_a_pool_that_is_read(wide):
    devices(wide)[-1]["path"] = "/dev/zvol/rdsk/zones/vm/disk7"
    assert [f.kind for f in findings(wide).findings] == ["dangling_reference"]


# -- renamed by hand


@pytest.fixture
def renamed(sim):
    sim.adopted(1024, 512)
    sim.run("vmadm", "start", VM)
    sim.run("zfs", "rename", f"{ROOT}/disk1", f"{ROOT}/disk9")
    return sim


@pytest.mark.parametrize(
    "declared",
    [
        {"disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}]},
        {"disks": [{"name": "root"}, {"name": "b"}], "unlisted": "detach"},
        {"disks": [{"name": "root"}, {"name": "b"}, {"name": "a", "state": "absent"}]},
    ],
)
def test_a_volume_that_somebody_renamed_within_its_vm(renamed, declared):
    problem = refused(renamed, lambda check: renamed.converge({"vm": VM, **declared}, check=check, allow_restart=True))
    assert f"zfs rename {ROOT}/disk9 {ROOT}/disk1" in problem.message
    renamed.run("zfs", "rename", f"{ROOT}/disk9", f"{ROOT}/disk1")
    renamed.four_steps({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}]})


def test_no_repair_takes_a_renamed_volume_away(renamed):
    before = renamed.fingerprint()
    done = findings(renamed, *REPAIRABLE)
    assert renamed.fingerprint() == before
    [orphan] = [f for f in done.findings if f.kind == "orphan_volume"]
    assert f"zfs rename {ROOT}/disk9 {ROOT}/disk1" in orphan.message


# -- a slot that a disk without a name has


def test_a_slot_alone_with_another_size_is_no_handle(sim):
    sim.create(sizes=(1024,))
    disk = sim.vm().disks[1]
    entry = {"name": "data", "pci_slot": disk.pci_slot}
    for size in (2048, 512):
        wanted = {"vm": VM, "disks": [{**entry, "size": size}], "unlisted": "keep"}
        problem = refused(sim, lambda check, wanted=wanted: sim.converge(wanted, check=check))
        assert problem.code == "Ambiguous"
        assert f"uuid: {disk.uuid}" in problem.message
        assert "another pci_slot" in problem.message
        assert "shrink" not in problem.message
    boot = sim.vm().disks[0]
    wanted = {"vm": VM, "disks": [{"name": "new", "pci_slot": boot.pci_slot, "size": 512}], "unlisted": "keep"}
    assert "boot disk" in refused(sim, lambda check: sim.converge(wanted, check=check)).message
    done = sim.four_steps({"vm": VM, "disks": [{**entry, "size": 1024}], "unlisted": "keep"})
    assert "adopted" in done.diff
    sim.four_steps({"vm": VM, "disks": [{"uuid": disk.uuid, "size": 2048}], "unlisted": "keep"})


# -- a read that is not whole


@pytest.mark.parametrize(
    ("bytes_left", "boundary"),
    [
        (0, True),
        (0.3, True),
        (0.6, True),
        (0.9, True),
        (1, False),
        (0.3, False),
        (0.6, False),
        (0.9, False),
        (-1, False),
    ],
)
def test_a_cut_answer_is_an_error(sim, bytes_left, boundary):
    """Cut at any line or between two datasets: no VM is left out, no disk is called missing, and no KeyError comes."""
    sim.adopted(1024, 512)
    sim.adopted(1024, uuid=OTHER, alias="web02")
    real = sim.runner

    def cut(argv, stdin="", timeout=300):
        answer = real(argv, stdin, timeout)
        if list(argv[:3]) != ["zfs", "get", "-Hpr"]:
            return answer
        lines = answer.stdout.splitlines(True)
        number = int(len(lines) * bytes_left) if isinstance(bytes_left, float) else bytes_left % len(lines)
        name = lines[number].split("\t")[0]
        while boundary and number and lines[number - 1].split("\t")[0] == name:
            number -= 1
        return replace(answer, stdout="".join(lines[:number]))

    sim.runner = cut
    before = sim.fingerprint()
    with pytest.raises(FlexdiskError, match="not whole") as caught:
        sim.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}]})
    assert caught.value.code == "UnexpectedOutput"
    assert sim.fingerprint() == before


def test_what_is_really_missing_costs_one_process(sim):
    sim.adopted(1024)
    sim.run("zfs", "destroy", f"{ROOT}/disk1")
    sim.calls.clear()
    assert findings(sim).findings[0].kind == "dangling_reference"
    assert sum(call[:2] == ["zfs", "list"] for call in sim.calls) == 1


def test_a_path_of_something_else_than_a_volume(sim):
    """It was printed, and is no disk: that is no cut answer."""
    sim.adopted(1024)
    sim.run("zfs", "rename", f"{ROOT}/disk1", f"{ROOT}/away")
    sim.run("zfs", "create", f"{ROOT}/disk1")
    assert "dangling_reference" in [f.kind for f in findings(sim).findings]


# -- a command that says nothing is wrong, and did nothing


def lazy(sim, *beginning):
    """From now on commands that begin so end with success, and do nothing."""
    real = sim.runner

    def runner(argv, stdin="", timeout=300):
        if tuple(argv[: len(beginning)]) == beginning:
            sim.calls.append(list(argv))
            return Answer(0, "", "")
        return real(argv, stdin, timeout)

    sim.runner = runner
    return real


def test_a_quota_that_is_not_set(sim):
    sim.adopted(1024)
    sim.run("zfs", "set", "quota=40G", ROOT)
    real = lazy(sim, "zfs", "set")
    done = sim.quota()
    assert done.failure["error_code"] == "NotApplied"
    sim.runner = real
    assert sim.quota().failure is None
    assert not sim.quota().changed


def release(sim, check=False):
    return disk_adopt.run(Zfs(sim.runner), Vmadm(sim.runner), [{"vm": VM}], "released", False, None, check).outcome


@pytest.mark.parametrize("command", ["set", "inherit"])
def test_a_release_that_is_not_written(sim, command):
    """What is not saved is not removed either."""
    sim.adopted(1024)
    names = sorted(sim.disks())
    real = lazy(sim, "zfs", command)
    assert release(sim).failure["error_code"] == "NotApplied"
    sim.runner = real
    if command == "set":
        assert sorted(sim.disks()) == names
    assert release(sim).failure is None
    assert disk_adopt.run(Zfs(real), Vmadm(real), [{"vm": VM}], "adopted", False, None, False).outcome.failure is None
    assert sorted(sim.disks()) == names


def test_a_guard_that_is_not_lifted(sim):
    """The VM is there until its guards are gone, so that the same task finds them."""
    sim.adopted(1024)
    sim.run("zfs", "set", "flexdisk:preserve=true", f"{ROOT}/disk1")
    real = sim.runner

    def runner(argv, stdin="", timeout=300):
        if list(argv[:2]) == ["zfs", "destroy"] and argv[-1].endswith("@flexdisk-guard"):
            return Answer(0, "", "")
        return real(argv, stdin, timeout)

    sim.runner = runner
    done = absent(sim)
    assert done.failure["error_code"] == "NotApplied"
    assert VM in sim.node.vmadm_state["vms"]
    sim.runner = real
    assert absent(sim).failure is None
    assert VM not in sim.node.vmadm_state["vms"]
    assert [f.kind for f in findings(sim).findings if f.kind in ("guard", "intent")] == []


# -- a deletion that was disturbed after its end


@pytest.mark.parametrize("named", [VM, "web01"])
@pytest.mark.parametrize("how", ["killed", "lazy"])
def test_what_a_disturbed_deletion_leaves_goes_with_the_same_task(sim, named, how):
    sim.adopted(1024)
    sim.run("zfs", "set", "flexdisk:preserve=true", f"{ROOT}/disk1")
    sim.adopted(uuid=OTHER, alias="web02")
    real = sim.runner

    def runner(argv, stdin="", timeout=300):
        if VM not in sim.node.vmadm_state["vms"] and list(argv[:2]) == ["zfs", "inherit"]:
            if how == "killed":
                raise KeyboardInterrupt
            return Answer(0, "", "")
        return real(argv, stdin, timeout)

    sim.runner = runner
    if how == "killed":
        with pytest.raises(KeyboardInterrupt):
            absent(sim, named)
    else:
        absent(sim, named)
    sim.runner = real
    assert "intent" in sim.run("zfs", "get", "-Hp", "all", "zones/flexdisk")
    predicted, done = absent(sim, named, check=True), absent(sim, named)
    assert (predicted.changed, predicted.diff) == (done.changed, done.diff) == (True, done.diff)
    assert (done.problems, done.failure) == ([], None)
    assert f"flexdisk:intent.{VM}" not in sim.run("zfs", "get", "-Hp", "all", "zones/flexdisk")
    assert not absent(sim, named, check=True).changed
    assert not absent(sim, named).changed
    assert VM not in sim.node.vmadm_state["vms"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/zvol/rdsk/data/vm/disk7", "it lies in pool data, which this task does not read"),
        ("/dev/zvol/rdsk/zones/vm/disk7", "zones/vm/disk7 does not exist"),
    ],
)
def test_a_rollback_names_the_disks_that_it_cannot_take_back(wide, path, why):
    devices(wide)[-1]["path"] = path
    test_vm_snapshot.go(wide, name="one")
    wide.write(f"{ROOT}/disk1", 5)
    [warning] = test_vm_snapshot.snapshot(wide, name="one", state="rolled_back").warnings
    assert f"{path} is not in snapshot one and stays as it is, because {why}; its data may not fit" in warning
