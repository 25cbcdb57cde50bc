# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_snapshot on the node: figures to the byte, nothing lost that was not given up, every interruption finished."""

from __future__ import annotations

import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_snapshot import parse_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import snapshots_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps
from tests.unit.parse.test_vm_snapshot import DEFAULTS

from ..conftest import VM, Simulated, running
from . import test_vm

MIB = 1 << 20
ROOT = f"zones/{VM}"
NOW = 1_800_000_000
UNKNOWN = {"allocatable", "created", "frees_bytes"}


def wanted(**options):
    """The declaration, which must be valid."""
    declaration, problems = parse_snapshot({**DEFAULTS, "vms": [VM], **options})
    assert problems == []
    return declaration


def go(sim, check=False, restart=False, vms=(VM,), **options):
    zfs, hypervisor = Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner, sim.waits.append)
    return vm_snapshot.run(zfs, hypervisor, vms, wanted(**options), Policy(allow_restart=restart), None, check, NOW)


def snapshot(sim, **options):
    """A task in four steps."""
    return four_steps(sim, lambda check: go(sim, check=check, **options), holds=sim.assert_lawful)


def refusal(sim, code, **options):
    """Texts of the problems; nothing has changed."""
    before = sim.fingerprint()
    predicted, refused = (go(sim, check=check, **options).problems for check in (True, False))
    assert sim.fingerprint() == before
    assert predicted == refused
    assert {p.code for p in refused} == {code}
    return "; ".join(p.message for p in refused)


def names(sim):
    return sorted(s["name"] for s in sim.get()["snapshots"])


@pytest.fixture
def sim():
    sim = Simulated()
    sim.adopted(2048, 1024, autoboot=False)
    for number in range(3):
        sim.write(f"{ROOT}/disk{number}", 10 + number, 0, 40)
    return sim


def test_a_snapshot_of_all_disks_takes_what_they_have_written(sim):
    before = space.allocatable(sim.vm())
    done = snapshot(sim, name="one")
    assert done.vms[0]["snapshots"][0]["disks"] == ["root", "a", "b"]
    assert names(sim) == ["one"]
    assert re.fullmatch(
        r"1 VM: 1 change, .*\nweb01 .*\n  \+ snapshot one of 3 disks, holds \S+ MiB at once", done.diff.strip()
    ), done.diff
    taken = before - space.allocatable(sim.vm())
    assert 3 * 39 * MIB < taken < 3 * 48 * MIB
    assert done.vms[0]["snapshots"][0]["frees_bytes"] == taken


def test_what_deleting_one_frees_is_true(sim):
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 77, 0, 20)
    go(sim, name="two")
    sim.write(f"{ROOT}/disk1", 78, 10, 50)
    sim.write(f"{ROOT}/disk2", 79, 0, 5)
    go(sim, name="three")
    for name in ("two", "three", "one"):
        frees = {s["name"]: s["frees_bytes"] for s in go(sim, name="one", check=True).vms[0]["snapshots"]}
        room = space.allocatable(sim.vm())
        done = snapshot(sim, name=name, state="absent")
        assert "DESTROYED" in done.diff
        assert space.allocatable(sim.vm()) - room == frees[name]
    assert names(sim) == []


def test_a_snapshot_that_does_not_fit_names_the_flexible_disk_size_that_does():
    sim = Simulated()
    sim.adopted(2048, flexible=10240 + 2048)
    sim.write(f"{ROOT}/disk1", 7, 0, 300)
    sizes = {"small": 10240 + 2048 + 290, "right": 10240 + 2048 + 330, "huge": 102400}
    packages = [{"name": name, "disk": disk, "flexible_disk": True} for name, disk in sizes.items()]
    message = refusal(sim, "InsufficientSpace", name="one", packages=[*packages, {"name": "no", "disk": 12600}])
    assert f"with package right ({sizes['right']} MiB)" in message
    assert re.search(r"snapshot one needs 3\d\d\.\d MiB at once, and [\d.]+ KiB is left; ", message), message
    fits = int(re.search(r"flexible_disk_size must be at least (\d+) MiB", message)[1])
    assert 10240 + 2048 + 300 <= fits < 10240 + 2048 + 320
    assert "disk a 2 GiB" in message
    sim.converge({"vm": VM, "flexible_disk_size": fits - 1})
    refusal(sim, "InsufficientSpace", name="one")
    sim.converge({"vm": VM, "flexible_disk_size": fits})
    snapshot(sim, name="one")
    assert 0 <= space.allocatable(sim.vm()) < MIB


def test_what_is_said_to_be_freed_makes_room_for_the_next():
    sim = Simulated()
    sim.adopted(2048, flexible=10240 + 2048 + 350)
    sim.write(f"{ROOT}/disk1", 7, 0, 300)
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 8, 0, 100)
    message = refusal(sim, "InsufficientSpace", name="two")
    assert re.search(r"these would free: snapshot one 3\d\d\S* MiB, disk a", message), message
    go(sim, name="one", state="absent")
    snapshot(sim, name="two")


def test_a_drifted_quota_is_put_right_first(sim):
    sim.run("zfs", "set", "quota=60G", "reservation=60G", ROOT)
    done = snapshot(sim, name="one")
    assert [s["step"] for s in done.vms[0]["steps"]] == ["law", "snapshot"]


def test_an_inflexible_vm_has_no_room():
    sim = Simulated()
    sim.adopted(flexible=None)
    sim.write(f"{ROOT}/disk0", 7, 0, 300)
    assert "a VM without flexible disk space has no room" in refusal(sim, "InsufficientSpace", name="one")


def test_an_unknown_vm(sim):
    refusal(sim, "ResourceNotFound", name="one", vms=("nobody",))


def test_a_snapshot_with_a_clone_or_a_hold_stays(sim):
    go(sim, name="one")
    sim.run("zfs", "clone", f"{ROOT}/disk1@vmsnap-one", "zones/copy")
    sim.run("zfs", "hold", "mine", f"{ROOT}/disk2@vmsnap-one")
    message = refusal(sim, "InUse", name="one", state="absent")
    assert "zones/copy" in message
    assert "disk2@vmsnap-one has 1 hold" in message


def test_keep_destroys_what_the_rule_does_not_keep(sim):
    for number in range(5):
        go(sim, name=f"n{number}")
    sim.run("zfs", "snapshot", "-r", f"{ROOT}@by-hand")
    done = go(sim, name="n5", keep={"last": 2, "daily": None, "weekly": None})
    assert names(sim) == ["n4", "n5"]
    assert done.diff.count("DESTROYED") == 4
    snapshot(sim, state="absent", keep={"last": 1, "daily": None, "weekly": None, "names": ["n*"]})
    assert names(sim) == ["n5"]
    assert "by-hand" in sim.run("zfs", "list", "-t", "snapshot", "-H", "-o", "name", "-r", ROOT)


def test_keep_counts_only_its_own_series_and_says_so(sim):
    """The two examples of the documentation, together on one VM."""
    go(sim, name="before-upgrade")
    for night in range(24, 27):
        go(sim, name=f"2026-11-{night}", keep={"last": 7, "daily": None, "weekly": None})
    go(sim, name="before-upgrade-2")
    done = snapshot(sim, name="2026-11-27", keep={"last": 2, "daily": None, "weekly": None})
    assert names(sim) == ["2026-11-26", "2026-11-27", "before-upgrade", "before-upgrade-2"]
    text = (
        "  - snapshot 2026-11-24 DESTROYED by keep, which counts 4 called like 2026-11-27, not before-upgrade, before-u"
    )
    assert text in done.diff
    done = snapshot(sim, state="absent", keep={"last": 1, "daily": None, "weekly": None, "names": ["before-*", "x"]})
    assert names(sim) == ["2026-11-26", "2026-11-27", "before-upgrade-2"]
    assert "counts 2 called like before-*, x, not 2026-11-26, 2026-11-27" in done.diff


def test_keep_leaves_the_snapshot_that_the_task_declares(sim):
    """It may be old. The repeated task would take it again and destroy another one."""
    for number in range(1, 4):
        go(sim, name=f"s-{number}")
    done = snapshot(sim, name="s-1", keep={"last": 1, "daily": None, "weekly": None})
    assert (names(sim), done.failure) == (["s-1", "s-3"], None)
    assert not go(sim, name="s-1", keep={"last": 1, "daily": None, "weekly": None}).changed


LAST = {"last": 1, "daily": None, "weekly": None}


def test_a_file_system_below_the_vm_is_in_its_snapshots_and_goes_with_them(sim):
    extra = f"{ROOT}/extra/deep"
    sim.run("zfs", "create", "-p", extra)
    snapshot(sim, name="n1")
    done = snapshot(sim, name="n2", keep=LAST)
    assert f"- snapshot n1 (also of {ROOT}/extra, {extra}) DESTROYED by keep" in "".join(done.plan)
    sim.write(f"{ROOT}/disk1", 5)
    done = snapshot(sim, name="n2", state="rolled_back")
    assert f"web01 ({VM}): {extra} is none of the VM's disks and stays as it is" in done.warnings
    snapshot(sim, name="n2", state="absent")
    assert "@" not in sim.run("zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-r", ROOT)


def test_a_snapshot_of_such_a_file_system_that_is_used_or_was_not_taken_with_it_stays(sim):
    extra = f"{ROOT}/extra"
    sim.run("zfs", "create", extra)
    go(sim, name="n1")
    sim.run("zfs", "clone", f"{extra}@vmsnap-n1", "zones/copy")
    assert f"{extra}@vmsnap-n1 has clones: zones/copy" in refusal(sim, "InUse", name="n1", state="absent")
    assert f"keep leaves snapshot n1: {extra}@vmsnap-n1 has clones" in go(sim, name="n2", keep=LAST).warnings[0]
    sim.run("zfs", "destroy", "zones/copy")
    sim.run("zfs", "destroy", f"{extra}@vmsnap-n1")
    sim.run("zfs", "snapshot", f"{extra}@vmsnap-n1")
    text = "was not taken with it. Give it another name with zfs rename, one that does not begin with vmsnap-"
    assert text in refusal(sim, "Ambiguous", name="n1", state="absent")


def test_a_remainder_below_the_vm_is_removed(sim):
    """Former releases left it with libvirt."""
    sim.run("zfs", "create", f"{ROOT}/extra")
    sim.run("zfs", "snapshot", f"{ROOT}/extra@vmsnap-n1")
    assert "is a remainder of a deleted snapshot" in refusal(sim, "Ambiguous", name="n1")
    snapshot(sim, name="n1", state="absent")
    snapshot(sim, name="n1")


def test_keep_never_destroys_the_snapshot_that_its_own_task_declares(sim):
    for name in ("n1", "n2"):
        go(sim, name=name)
    snapshot(sim, name="n1", keep={"last": 1, "daily": None, "weekly": None})
    assert names(sim) == ["n1", "n2"]


def test_keep_leaves_a_snapshot_that_is_in_use_and_takes_the_new_one(sim):
    for number in range(4):
        go(sim, name=f"n{number}")
    sim.run("zfs", "clone", f"{ROOT}/disk1@vmsnap-n0", "zones/copy")
    sim.run("zfs", "hold", "mine", f"{ROOT}/disk2@vmsnap-n1")
    sim.run("zfs", "destroy", f"{ROOT}/disk1@vmsnap-n2")
    sim.run("zfs", "snapshot", f"{ROOT}/disk1@vmsnap-n2")
    done = snapshot(sim, name="n5", keep={"last": 2, "daily": None, "weekly": None})
    assert names(sim) == ["n0", "n1", "n2", "n3", "n5"]
    assert done.warnings == [
        f"web01 ({VM}): keep leaves snapshot n0: {ROOT}/disk1@vmsnap-n0 has clones: zones/copy",
        f"web01 ({VM}): keep leaves snapshot n1: {ROOT}/disk2@vmsnap-n1 has 1 hold (zfs holds {ROOT}/disk2@vmsnap-n1)",
        f"web01 ({VM}): keep leaves snapshot n2: {ROOT}/disk1@vmsnap-n2 has the name of snapshot n2, but was not taken "
        "with it. Give it another name with zfs rename, one that does not begin with vmsnap-",
    ]
    sim.run("zfs", "release", "mine", f"{ROOT}/disk2@vmsnap-n1")
    snapshot(sim, name="n5", keep={"last": 2, "daily": None, "weekly": None})
    assert names(sim) == ["n0", "n2", "n3", "n5"]


def test_a_rollback_brings_contents_and_sizes_back(sim):
    volume = f"{ROOT}/disk1"
    go(sim, name="one")
    was = sim.digest(volume)
    sim.write(volume, 99, 0, 60)
    sim.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a", "size": 4096}, {"name": "b"}]})
    done = snapshot(sim, name="one", state="rolled_back")
    assert "a 4 GiB -> 2 GiB" in done.diff
    assert sim.digest(volume) == was
    assert {d.name: d.size_mib for d in sim.vm().disks} == {"root": 10240, "a": 2048, "b": 1024}
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("stopped", False)


def full(power="stopped"):
    """A VM without room for what its disks have written since the snapshot one."""
    sim = Simulated()
    sim.adopted(2048, 1024, flexible=10240 + 2048 + 1024 + 96, autoboot=False)
    for number in range(3):
        sim.write(f"{ROOT}/disk{number}", 10 + number, 0, 30)
    assert go(sim, name="one").failure is None
    for number in range(3):
        sim.write(f"{ROOT}/disk{number}", 20 + number, 0, 80)
    if power == "running":
        sim.run("vmadm", "start", VM)
    return sim


def reserve(sim, left):
    """Leave so many bytes in the pool."""
    room = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={room - left}", "zones/others")


def test_a_rollback_of_a_full_vm_has_room_for_the_moment():
    sim = full()
    root, was = sim.vm().root, sim.digest(f"{ROOT}/disk1")
    assert root.quota - root.used < 80 * MIB
    snapshot(sim, name="one", state="rolled_back")
    assert sim.digest(f"{ROOT}/disk1") != was
    assert sim.vm().root.quota == root.quota


def test_a_pool_without_room_for_the_moment_is_a_refusal():
    sim = full()
    reserve(sim, 40 * MIB)
    message = refusal(sim, "InsufficientSpace", name="one", state="rolled_back")
    assert re.fullmatch(r"pool zones has 40 MiB left, but this task needs \S+ MiB \(.*\)", message), message
    sim.run("zfs", "set", "reservation=none", "zones/others")
    snapshot(sim, name="one", state="rolled_back")


def test_a_pool_whose_room_goes_meanwhile_ends_no_rollback_half_way(monkeypatch):
    sim = full("running")
    stop, was = Vmadm.stop, sim.digest(f"{ROOT}/disk1")

    def stopped(self, *arguments):
        stop(self, *arguments)
        reserve(sim, 40 * MIB)

    monkeypatch.setattr(Vmadm, "stop", stopped)
    failure = go(sim, restart=True, name="one", state="rolled_back").failure
    assert failure["error_code"] == "InsufficientSpace"
    assert "the rollback takes" in failure["message"]
    assert (sim.get()["state"], sim.digest(f"{ROOT}/disk1")) == ("running", was)
    sim.assert_lawful()
    monkeypatch.undo()
    sim.run("zfs", "set", "reservation=none", "zones/others")
    assert go(sim, restart=True, name="one", state="rolled_back").failure is None
    assert sim.digest(f"{ROOT}/disk1") != was


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_rollback_of_a_full_vm_ends_wherever_it_was_killed(after):
    number = 0
    while True:
        number += 1
        sim = full("running")
        restore = kill(sim, number, after)
        try:
            go(sim, restart=True, name="one", state="rolled_back")
            break
        except Killed:
            pass
        finally:
            restore()
        done = go(sim, restart=True, name="one", state="rolled_back")
        assert (done.problems, done.failure) == ([], None), number
        assert sim.get()["state"] == "running"
        sim.assert_lawful()
        assert not go(sim, restart=True, name="one", state="rolled_back").changed
    assert number > 10


def test_a_rollback_over_a_shrink_wants_the_space_first():
    sim = Simulated()
    sim.adopted(4096, flexible=10240 + 4096 + 64)
    sim.write(f"{ROOT}/disk1", 7, 4000, 8)
    was = sim.digest(f"{ROOT}/disk1")
    go(sim, name="one")
    entries = [{"name": "root"}, {"name": "a", "size": 1024, "dangerous_allow_shrink": True}]
    sim.converge({"vm": VM, "disks": entries, "flexible_disk_size": 10240 + 1024 + 64})
    message = refusal(sim, "InsufficientSpace", name="one", state="rolled_back")
    fits = int(re.search(r"set it in this task to at least (\d+) MiB", message)[1])
    refusal(sim, "InsufficientSpace", name="one", state="rolled_back", flexible_disk_size=fits - 1)
    snapshot(sim, name="one", state="rolled_back", flexible_disk_size=fits)
    assert sim.digest(f"{ROOT}/disk1") == was
    assert sim.vm().disks[1].size_mib == 4096


def test_a_running_vm_is_stopped_for_a_rollback_and_runs_again():
    sim = running(autoboot=False)
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 5)
    assert "allow_restart" in refusal(sim, "VmNotStopped", name="one", state="rolled_back")
    done = go(sim, name="one", state="rolled_back", restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert [s["step"] for s in done.vms[0]["steps"]] == ["stop", "rollback", "start", "autoboot"]
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", False)


def test_newer_snapshots_are_given_up_by_name(sim):
    for name in ("one", "two", "three"):
        go(sim, name=name)
    sim.run("zfs", "snapshot", f"{ROOT}/disk2@by-hand")
    message = refusal(sim, "InvalidArgument", name="one", state="rolled_back", newer=["two"])
    assert "newer snapshots: by-hand, three;" in message
    snapshot(sim, name="one", state="rolled_back", newer=["two", "three", "by-hand"])
    assert names(sim) == ["one"]


def test_a_protection_that_came_later_stands_against_a_rollback(sim):
    """Its own snapshot is nobody's to name, and vmadm holds it; it goes with the protection."""
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 9, 0, 8)
    sim.run("vmadm", "update", VM, stdin='{"indestructible_zoneroot": true}')
    for more in ({}, {"newer": ["indestructible"]}, {"destroy_newer": True}):
        message = refusal(sim, "Indestructible", name="one", state="rolled_back", **more)
        assert f"the protection's own snapshot {ROOT}@indestructible prevents a rollback" in message
        assert "indestructible=false of the module vm removes both" in message
    sim.run("vmadm", "update", VM, stdin='{"indestructible_zoneroot": false}')
    snapshot(sim, name="one", state="rolled_back")


def test_destroy_newer_gives_all_up_but_clones(sim):
    go(sim, name="one")
    go(sim, name="two")
    sim.run("zfs", "clone", f"{ROOT}/disk1@vmsnap-two", "zones/copy")
    assert "zones/copy" in refusal(sim, "InUse", name="one", state="rolled_back", destroy_newer=True)
    sim.run("zfs", "destroy", "zones/copy")
    snapshot(sim, name="one", state="rolled_back", destroy_newer=True)


def test_a_disk_that_came_after_the_snapshot_stays(sim):
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 5)
    sim.converge({"vm": VM, "unlisted": "keep", "disks": [{"name": "late", "size": 512}]})
    late = sim.disks()["late"].volume.name
    sim.write(late, 6)
    was = sim.digest(late)
    done = go(sim, name="one", state="rolled_back")
    assert done.failure is None
    assert any("late is not in snapshot one" in warning for warning in done.warnings)
    assert sim.digest(late) == was


def test_a_disks_past_in_another_vm_is_not_brought_back(sim):
    sim.run("zfs", "snapshot", f"{ROOT}/disk1@vmsnap-one")
    sim.run("zfs", "snapshot", f"{ROOT}/disk2@vmsnap-other")
    sim.run("zfs", "snapshot", f"{ROOT}@vmsnap-one")
    sim.write(f"{ROOT}/disk1", 5)
    assert "was not taken with it" in refusal(sim, "Ambiguous", name="one", state="rolled_back")
    assert "was not taken with it" in refusal(sim, "Ambiguous", name="one", state="absent")
    assert "there is no snapshot other; existing ones: one" in refusal(
        sim, "ResourceNotFound", name="other", state="rolled_back"
    )


class Killed(BaseException):
    """The module is gone."""


def kill(sim, number, after):
    """The module dies before or after its change with this number; False if there are not so many."""
    real, left = sim.runner, [number]

    def dying(argv, stdin="", timeout=300):
        if changes(argv):
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
        answer = real(argv, stdin, timeout)
        if left[0] == 0 and changes(argv):
            raise Killed
        return answer

    sim.runner = dying
    return lambda: setattr(sim, "runner", real)


def state_of(sim):
    vm = sim.vm()
    return {
        "sizes": [(d.name, d.size_mib, d.volume.refreservation) for d in vm.disks],
        "data": [sim.digest(d.volume.name) for d in vm.disks],
        "snapshots": [(s.name, len(s.parts)) for s in snapshots_of(vm)],
        "root": (vm.root.quota, vm.root.reservation, vm.root.refreservation),
        "power": (vm.config.state, vm.config.autoboot),
        "flexible": vm.config.flexible_disk_size,
        "interrupted": vm.interrupted,
    }


def prepared(power, idle=False):
    sim = running(autoboot=False) if power == "running" else Simulated()
    if power == "stopped":
        sim.adopted(2048, autoboot=False)
    for name in ("one", "two"):
        sim.write(f"{ROOT}/disk1", len(name), 0, 30)
        go(sim, name=name)
    if idle:
        return sim
    sim.write(f"{ROOT}/disk1", 9, 0, 30)
    grown = {"vm": VM, "disks": [{"name": "root"}, {"name": "a", "size": 3072}]}
    done = sim.converge(grown, allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    if power == "running":
        sim.run("vmadm", "update", VM, "autoboot=false")
    return sim


@pytest.mark.parametrize("power", ["stopped", "running"])
@pytest.mark.parametrize(
    "options",
    [
        {"name": "three", "keep": {"last": 1, "daily": None, "weekly": None, "names": ["*"]}},
        {"name": "one", "state": "absent"},
        {"name": "one", "state": "rolled_back", "destroy_newer": True, "restart": True, "flexible_disk_size": 40960},
        {"name": "two", "state": "rolled_back", "flexible_disk_size": 40960},
    ],
    ids=["take", "delete", "rollback", "raise"],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_change_the_same_task_ends_it(options, power, after):
    """Without another module in between."""
    idle = options["name"] == "two"  # there is nothing to roll back
    sim = prepared(power, idle)
    assert go(sim, **options).failure is None
    wanted_end, number = state_of(sim), 0
    while True:
        number += 1
        sim = prepared(power, idle)
        restore = kill(sim, number, after)
        try:
            go(sim, **options)
            break
        except Killed:
            pass
        finally:
            restore()
        rolled = sim.vm().interrupted is not None and sim.vm().interrupted.rollback
        if rolled:
            refused = sim.converge({"vm": VM, "disks": None})
            assert "a rollback to snapshot one was interrupted" in refused.problems[0].message
        done = go(sim, **options)
        assert (done.problems, done.failure) == ([], None), number
        assert state_of(sim) == wanted_end, number
        assert not go(sim, **options).changed or power == "running"
    assert number > 1


def test_a_rollback_that_fails_leaves_the_vm_down_and_says_so():
    sim = running()
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 5)
    sim.fault = lambda argv: "rollback failed" if argv[1:2] == ["rollback"] else None
    done = go(sim, name="one", state="rolled_back", restart=True)
    sim.fault = None
    assert done.failure["restarted"] is False
    assert sim.get()["state"] == "stopped"
    assert "disks may be of different times" in sim.converge({"vm": VM, "disks": None}).problems[0].message
    done = go(sim, name="one", state="rolled_back", restart=True)
    assert done.failure is None
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", True)
    assert done.vms[0]["recovered"]


def failing_at(sim, number, after, states):
    """A runner whose change of this number fails, before it is done or after. states: gets the VM's."""
    real, left = sim.runner, number

    def run(argv, stdin="", timeout=300):
        nonlocal left
        left -= changes(argv)
        if changes(argv) and left == 0:
            if after:
                real(argv, stdin, timeout)
            raise FlexdiskError("CommandTimeout", "it did not end within 300 s")
        answer = real(argv, stdin, timeout)
        states.add(sim.get()["state"])
        return answer

    return run


@pytest.mark.parametrize("autoboot", [True, False])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_rollback_of_a_stopped_vm_that_fails_anywhere_does_not_start_it(autoboot, after):
    """Whatever fails, and whether it was done all the same: nothing runs for a moment, nor after the next run."""
    number, failed = 0, True
    while failed:
        number += 1
        sim = Simulated()
        sim.adopted(2048, autoboot=False)
        sim.run("vmadm", "update", VM, f"autoboot={autoboot}".lower())
        go(sim, name="one")
        sim.write(f"{ROOT}/disk1", 5)
        real, states = sim.runner, set()
        sim.runner = failing_at(sim, number, after, states)
        failed = go(sim, name="one", state="rolled_back", restart=True).failure is not None
        sim.runner = real
        assert go(sim, name="one", state="rolled_back", restart=True).failure is None
        assert states | {sim.get()["state"]} == {"stopped"}, number
        assert sim.get()["autoboot"] is autoboot
    assert number > 3


def test_nothing_else_that_fails_starts_a_vm_whose_rollback_was_interrupted():
    sim = running()
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 5)
    sim.fault = lambda argv: "rollback failed" if argv[1:2] == ["rollback"] else None
    assert go(sim, name="one", state="rolled_back", restart=True).failure["restarted"] is False
    sim.fault = None
    sim.run("zfs", "set", "quota=300G", ROOT)
    sim.fault = lambda argv: "out of space" if argv[0] == "zfs" and argv[1] == "set" else None
    done = sim.quota()
    sim.fault = None
    assert done.failure is not None
    assert (done.failure["restarted"], sim.get()["state"]) == (False, "stopped")
    assert sim.vm().interrupted.rollback == "one"
    assert go(sim, name="one", state="rolled_back", restart=True).failure is None
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", True)


def test_a_run_that_others_left_is_not_ours_to_end(sim):
    restore = kill(sim, 3, True)
    with pytest.raises(Killed):
        sim.converge({"vm": VM, "unlisted": "keep", "disks": [{"name": "late", "size": 512}]})
    restore()
    assert "vm_disks finishes it" in refusal(sim, "InUse", name="one")


def test_a_rollback_that_could_not_begin_has_changed_nothing(sim):
    assert go(sim, name="one").failure is None
    sim.write(sim.vm().disks[1].volume.name, 7, 0, 8)
    before = sim.fingerprint()
    sim.fault = lambda argv: "cannot set property: pool I/O is read-only" if changes(argv) else None
    done = go(sim, name="one", state="rolled_back")
    sim.fault = None
    assert done.failure is not None
    assert sim.fingerprint() == before
    assert (done.changed, [vm["changed"] for vm in done.vms]) == (False, [False])


# -- a rollback that cannot go on


def half_back(end):
    """web01 was killed after its first disk had gone back, and then somebody has done more."""
    sim = running()
    go(sim, name="one")
    sim.write(f"{ROOT}/disk1", 5)
    restore = kill(sim, 5, True)
    with pytest.raises(Killed):
        go(sim, name="one", state="rolled_back", restart=True)
    restore()
    if end == "destroyed":
        sim.run("zfs", "destroy", "-r", f"{ROOT}@vmsnap-one")
    else:
        sim.run("zfs", "snapshot", "-r", f"{ROOT}@hourly")
        sim.run("zfs", "clone", f"{ROOT}/disk1@hourly", "zones/mine")
    assert sim.vm().interrupted.rollback == "one"
    return sim


AGAIN = {"name": "one", "state": "rolled_back", "restart": True, "destroy_newer": True}
GONE = {"state": "absent", "destroy_disks": True, "destroy_snapshots": True}


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [
        ("destroyed", "ResourceNotFound", "there is no snapshot one"),
        ("cloned", "InUse", f"{ROOT}/disk1@hourly has clones: zones/mine"),
    ],
)
def test_a_rollback_that_cannot_go_on_names_the_way_out(end, code, why):
    """Followed literally, it frees the VM, and loses nothing."""
    sim = half_back(end)
    refused = sim.converge({"vm": VM, "disks": None}).problems[0].message
    assert "vm_snapshot with state=rolled_back and this name ends it, or says what does" in refused
    first, *_more, last = go(sim, **AGAIN).problems
    assert (first.code, last.code) == (code, "InUse")
    assert why in first.message
    before = [sim.digest(disk.volume.name) for disk in sim.vm().disks]
    command = re.search(r"zfs inherit \S+ \S+", last.message)[0]
    sim.run(*command.split())
    assert [sim.digest(disk.volume.name) for disk in sim.vm().disks] == before
    assert sim.vm().interrupted is None
    assert not sim.converge({"vm": VM, "disks": None}).changed
    sim.run("vmadm", "start", VM)


def test_a_vm_whose_rollback_cannot_go_on_can_be_deleted():
    sim = half_back("destroyed")
    done = test_vm.settle(sim, {"vm": "web01", **GONE})
    assert (done.problems, done.failure) == ([], None)
    assert not sim.node.vmadm_state["vms"]
    assert observe(Zfs(sim.runner), Vmadm(sim.runner), complete=True).intents == {}


def test_a_deletion_that_fails_leaves_the_rollback_to_be_ended():
    sim = half_back("destroyed")
    sim.fault = lambda argv: "out of order" if argv[:2] == ["vmadm", "delete"] else None
    assert test_vm.go(sim, {"vm": "web01", **GONE}).failure is not None
    sim.fault = None
    assert (sim.vm().interrupted.rollback, sim.get()["state"]) == ("one", "stopped")
    assert test_vm.go(sim, {"vm": "web01", **GONE}).failure is None


def test_no_disk_is_kept_of_which_nobody_knows_whether_it_has_gone_back():
    sim = half_back("destroyed")
    sim.run("zfs", "set", "flexdisk:preserve=true", f"{ROOT}/disk1")
    message = test_vm.refusal(sim, "InUse", {"vm": "web01", **GONE})
    assert "before a is detached" in message
