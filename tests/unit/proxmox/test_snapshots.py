# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of VMs of Proxmox VE: those of qm, in check mode as for real."""

from __future__ import annotations

import contextlib
from unittest.mock import patch

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_monitor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_snapshots import (
    ProxmoxSnapshots,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Keep,
    Policy,
    SnapshotDeclaration,
)
from tests.unit.four_steps import four_steps

from .world import Fault, Killed, World

ROOT, DATA = "rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"
GROWN = {"name": "data", "size": "3GiB"}


class Snapshots(World):
    """A node on which vm_snapshot runs."""

    @property
    def driver(self):
        return ProxmoxSnapshots(self._runner, str(self.files), self.node.sleep)

    def snapshot(self, name="one", state="present", check=False, keep=None, **policy):
        self.calls.clear()
        spec = SnapshotDeclaration(state, name, keep, (), None, ())
        now = int(self.node.now())
        with patch.object(pve_monitor, "blocks", self._blocks):
            return vm_snapshot.run(self.zfs, self.driver, ["web"], spec, Policy(**policy), None, check, now)

    def steps(self, *words, **more):
        return four_steps(self, lambda check: self.snapshot(*words, check=check, **more))

    def made(self, *words, **more):
        outcome = self.snapshot(*words, **more)
        assert (outcome.problems, outcome.failure) == ([], None)
        return outcome

    def refused(self, *words, **more):
        """Why it is refused: in check mode, too, and nothing has changed."""
        before = self.fingerprint()
        predicted, real = (self.snapshot(*words, check=check, **more).problems for check in (True, False))
        assert self.fingerprint() == before
        assert predicted == real
        assert real != []
        return "\n".join(f"{one.message} [{one.code}]" for one in real)

    def parts(self, name="one"):
        listed = self.run("zfs", "list", "-Ht", "snapshot", "-o", "name").split()
        return sorted(part for part in listed if part.endswith("@" + name))

    @property
    def sections(self):
        return [line.strip("[]") for line in self.file.splitlines() if line.startswith("[")]

    def write_to(self, volume):
        self.run("guest", "write", volume, "0", "64", "x")


@pytest.fixture
def world():
    return Snapshots()


@pytest.fixture
def taken(world):
    """A VM with a snapshot, whose disks were written to since."""
    world.done({"name": "data"})
    world.made()
    world.write_to(ROOT)
    return world


@pytest.mark.parametrize("running", [False, True])
def test_a_snapshot_is_taken_and_deleted(running):
    world = Snapshots(running)
    before = world.file
    outcome = world.steps()
    assert outcome.vms[0]["snapshots"][0]["disks"] == ["root", "data"]
    assert world.parts() == [f"{ROOT}@one", f"{DATA}@one"]
    assert (world.sections, world.setting("parent")) == (["one"], "one")
    world.steps(state="absent")
    assert (world.parts(), world.sections) == ([], [])
    assert world.file.replace("iothread=1", "iothread=on") == before


def test_two_snapshots_and_a_rule(world):
    """The retention rule deletes what it does not keep."""
    for name in ("daily1", "daily2"):
        world.steps(name)
    world.steps("daily3", keep=Keep(last=2))
    assert world.sections == ["daily2", "daily3"]
    assert [one["name"] for one in world.made("daily3").vms[0]["snapshots"]] == ["daily2", "daily3"]


def test_a_disk_goes_back(taken):
    """It has its old size again; names and other properties stay, and so does the record."""
    taken.done(GROWN, {"name": "root", "description": "of the shop"})
    outcome = taken.steps(state="rolled_back")
    assert "~ rolled back to one of " in outcome.diff
    assert "data 3 GiB -> 2 GiB" in outcome.diff
    assert taken.volsize(DATA) == 2048
    assert "size=2G" in taken.setting("scsi1")
    assert taken.disks()["root"].user_properties["description"] == "of the shop"


def test_settings_come_back_too(taken):
    """The plan names them."""
    taken.run("qm", "set", "100", "--memory", "1024", "--onboot", "1", "--name", "other")
    taken.run("qm", "set", "100", "--name", "web")
    outcome = taken.steps(state="rolled_back")
    assert "; also as it was then: memory, onboot" in outcome.diff
    assert (taken.setting("memory"), taken.setting("onboot")) == ("512", "")


def test_other_settings_alone_are_a_difference(world):
    world.made()
    world.run("qm", "set", "100", "--memory", "1024")
    world.steps(state="rolled_back")
    assert world.setting("memory") == "512"


# -- refused


@pytest.mark.parametrize("name", ["current", "pending", "PENDING", "Current", "x", "a" * 41, "1st", "a.b"])
def test_names_that_proxmox_does_not_take(world, name):
    assert f"snapshot name {name!r} is not valid: Proxmox VE takes names of 2 to 40" in world.refused(name)


@pytest.mark.parametrize("name", ["flexdisk-guard", "flexdisk-sync-12345678-1"])
def test_names_of_our_own(world, name):
    """A guard is no snapshot of a VM, and would be destroyed like one that was left."""
    text = f"snapshot name {name!r} is not valid: snapshots that this collection takes for itself begin with flexdisk-"
    assert text in world.refused(name)


def test_proxmox_goes_back_to_the_newest_only(taken):
    """The refusal names what is newer, and what deletes it, whoever took it."""
    taken.made("two")
    taken.run("zfs", "snapshot", f"{DATA}@mine")
    said = taken.refused(state="rolled_back")
    assert "Proxmox VE goes back to the newest snapshot of a disk only, and 3 snapshots are newer than one: " in said
    for part in (f"{ROOT}@two", f"{DATA}@two", f"{DATA}@mine"):
        assert part in said
    assert f"; vm_snapshot with state=absent deletes two; zfs destroy {DATA}@mine [HasSnapshots]" in said


def test_a_rollback_needs_a_stop():
    world = Snapshots(running=True)
    world.made()
    world.write_to(ROOT)
    assert "stop it first: no task does so there [VmNotStopped]" in world.refused(state="rolled_back")


def test_other_disks_would_come_back(taken):
    """All that is wrong is told at once."""
    taken.done({"name": "logs", "size": "1GiB"})
    taken.run("zfs", "snapshot", f"{DATA}@mine")
    said = taken.refused(state="rolled_back")
    assert "qm rollback also brings back virtio1 as in snapshot one: the VM would have other disks" in said
    assert "1 snapshot is newer than one" in said
    assert f"zfs destroy {DATA}@mine" in said


def test_a_snapshot_that_is_not_there(world):
    world.made()
    assert "there is no snapshot two; existing ones: one [ResourceNotFound]" in world.refused("two", "rolled_back")
    assert not world.made("two", "absent").changed


def test_the_name_is_taken_on_a_volume(world):
    world.run("zfs", "snapshot", f"{DATA}@one")
    assert f"{DATA}@one is there already, and is none of the VM's" in world.refused()


def test_a_part_is_missing(taken):
    """qm delsnapshot would fail in the middle, and leave the VM locked."""
    taken.run("zfs", "destroy", f"{DATA}@one")
    assert f"there is no {DATA}@one, so that qm delsnapshot would end in the middle" in taken.refused(state="absent")
    assert "snapshot one is there already, and lacks" in taken.refused()
    assert "[ResourceNotFound]" in taken.refused(state="rolled_back")


def test_a_disk_that_has_left_the_vm(taken):
    taken.run("qm", "set", "100", "--delete", "scsi1")
    said = taken.refused(state="absent")
    assert f"{DATA} is in snapshot one, and no disk of the VM any more" in said


def test_the_memory_of_the_vm():
    world = Snapshots(running=True)
    world.run("qm", "snapshot", "100", "one", "--vmstate", "1")
    world.write_to(ROOT)
    for state in ("absent", "rolled_back"):
        assert "snapshot one also has the memory of the VM, of which nothing is known" in world.refused(state=state)


def test_disks_of_other_storages(world):
    world.write("storage.cfg", (world.files / "etc/pve/storage.cfg").read_text() + "\nrbd: ceph\n\tpool rbd\n")
    world.file = world.file.replace("scsihw:", "scsi2: ceph:vm-100-disk-5,size=1G\nscsihw:")
    assert "a snapshot has all disks of a VM: scsi2 (ceph:vm-100-disk-5,size=1G) is no volume" in world.refused()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lock: backup\n", "VM 100 is locked by Proxmox VE (backup)"),
        ("[PENDING]\nmemory: 1024\n", "has changes that wait for its stop (memory)"),
    ],
)
def test_what_others_do_is_named(world, line, why):
    world.file += line
    assert why in world.refused()


def test_flexible_disk_size_limits_them(world):
    world.done({"name": "data"}, vm={"flexible_disk_size": "7GiB"})
    for _time in range(3):
        world.run("guest", "write", DATA, "0", "2048", "x")
    assert "[InsufficientSpace]" in world.refused()


# -- commands that fail


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("VM is locked (backup)\n", "InUse"),
        ("can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout\n", "Busy"),
        ("", "NotApplied"),
    ],
)
@pytest.mark.parametrize("state", ["present", "absent", "rolled_back"])
def test_status_0_and_nothing_done(state, text, code):
    world = Snapshots()
    world.done({"name": "data"})
    if state != "present":
        world.made()
        world.write_to(ROOT)
    world.spoil = lambda number, argv, real: Answer(0, "", text) if argv[0] == "qm" else real(argv)
    failure = world.snapshot(state=state).failure
    assert failure["error_code"] == code
    assert text.strip() in failure["message"]
    world.spoil = None
    world.steps(state=state)


def test_a_rollback_that_is_refused_has_not_begun(taken):
    """A snapshot that somebody has taken in between."""

    def meanwhile(number, argv, real):
        if argv[:2] == ["qm", "rollback"]:
            taken.run("zfs", "snapshot", f"{DATA}@mine")
        return real(argv)

    taken.spoil = meanwhile
    failure = taken.snapshot(state="rolled_back").failure
    assert "can't rollback, 'one' is not most recent snapshot" in failure["message"]
    assert "it was not rolled back" in failure["message"]
    taken.spoil = None
    assert taken.vm().interrupted is None
    taken.run("zfs", "destroy", f"{DATA}@mine")
    taken.steps(state="rolled_back")


# -- interrupted


def made(state):
    world = Snapshots()
    world.done({"name": "data"})
    if state != "present":
        world.made()
        world.write_to(ROOT)
        world.write_to(DATA)
    return world


def points(state):
    """Every command that changes something, killed before and after it; and qm killed after each of its steps."""
    world = made(state)
    seen = []

    def spoil(number, argv, real):
        world.node.at_boundary = seen.append if argv[0] == "qm" else None
        return real(argv)

    world.spoil = spoil
    world.made(state=state)
    for number, argv in enumerate(world.calls, 1):
        if not changes(argv):
            continue
        yield from (Fault(number, effect, kills=kills) for effect in (False, True) for kills in (False, True))
        if argv[0] == "qm":
            yield from (Fault(number, torn=torn, kills=k) for torn in range(1, len(seen) + 1) for k in (False, True))


def give_up(world, problems):
    """Type what the refusal of a VM says that is locked."""
    assert "VM 100 is locked by Proxmox VE" in problems
    assert "if no task of Proxmox VE works on it any more, qm unlock 100" in problems
    world.run("qm", "unlock", "100")
    if "and then vm_snapshot with state=absent deletes what is left of snapshot one" in problems:
        world.made(state="absent")


@pytest.mark.parametrize("state", ["present", "absent", "rolled_back"])
def test_interrupted_at_every_command(state):
    """The next run ends it, or says with what it is given up. Nothing is lost, and the VM is whole in the end."""
    straight = made(state)
    straight.made(state=state)
    found = [*points(state)]
    assert len(found) >= 12
    for fault in found:
        world = made(state)
        fault(world)
        with contextlib.suppress(Killed):
            world.snapshot(state=state)
        world.spoil = None
        if "lock: " in world.file:
            give_up(world, world.refused(state=state))
        world.made(state=state)
        assert not world.made(state=state).changed, fault
        assert (world.parts(), world.sections) == (straight.parts(), straight.sections), fault
        assert world.vm().interrupted is None
        written = [world.run("zfs", "get", "-Hpo", "value", "written", volume) for volume in (ROOT, DATA)]
        assert (state != "rolled_back") or written == ["0\n", "0\n"], fault
