# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rollbacks on Proxmox VE: what counts as a difference, and when a rollback counts as done."""

from __future__ import annotations

import contextlib
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Keep
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .test_snapshots import DATA, ROOT, Snapshots
from .world import Killed

LOCK = "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout\n"


@pytest.fixture
def world():
    """A VM with a snapshot."""
    made = Snapshots()
    made.done({"name": "data"})
    made.made()
    return made


def written(world, volume=DATA):
    return world.run("zfs", "get", "-Hpo", "value", "written", volume).strip()


def spoiled(world, act):
    """Let something happen right before qm rolls back. Return what the task says."""

    def spoil(number, argv, real):
        return act(argv, real) if argv[:2] == ["qm", "rollback"] else real(argv)

    world.spoil = spoil
    outcome = world.snapshot(state="rolled_back")
    world.spoil = None
    return outcome.failure


# -- nothing is believed from what qm says


@pytest.mark.parametrize("status", [0, 255])
def test_only_settings_would_have_come_back(world, status):
    """The volumes are as in the snapshot already."""
    world.run("qm", "set", "100", "--memory", "1024")
    failure = spoiled(world, lambda argv, real: Answer(status, "", LOCK))
    assert failure["error_code"] == "Busy"
    assert world.setting("memory") == "1024" or "memory: 1024" in world.file.split("[one]")[0]
    assert (world.vm().interrupted is None) == (status == 255)
    world.steps(state="rolled_back")


def test_a_setting_that_did_not_come_back(world):
    world.run("qm", "set", "100", "--memory", "1024")
    world.write_to(DATA)

    def half(argv, real):
        answer = real(argv)
        world.file = world.file.replace("memory: 512", "memory: 1024", 1)
        return answer

    assert "memory of the VM is not as in snapshot one" in spoiled(world, half)["message"]
    world.steps(state="rolled_back")


def test_somebody_takes_a_snapshot_meanwhile(world):
    """Then nothing was written since the newest snapshot, which is another one."""
    world.write_to(DATA)

    def meanwhile(argv, real):
        world.run("zfs", "snapshot", f"{DATA}@mine")
        return real(argv)

    failure = spoiled(world, meanwhile)
    assert "can't rollback, 'one' is not most recent snapshot" in failure["message"]
    assert "it was not rolled back" in failure["message"]
    assert world.vm().interrupted is None


@pytest.mark.parametrize("volume", [ROOT, DATA])
def test_a_volume_that_did_not_go_back(world, volume):
    """Whatever qm says."""
    world.write_to(ROOT)

    def half(argv, real):
        answer = real(argv)
        world.write_to(volume)
        return answer

    assert f"{volume} is not as in snapshot one" in spoiled(world, half)["message"]
    assert world.vm().interrupted is not None
    world.steps(state="rolled_back")


def test_what_zfs_itself_writes_to_a_volume_that_goes_back(world):
    """It drops the log of the volume, which takes two sectors (tests/lab/suite/test_unwritten.py). That is no
    difference, for a second run only if an empty file system of the pool tells how large a sector is.
    """
    world.write_to(ROOT)
    back = []

    def logs(number, argv, real):
        answer = real(argv)
        back.extend(argv[1:2] if argv[:2] == ["qm", "rollback"] else ())
        if argv[:2] != ["zfs", "get"] or not back:
            return answer
        return Answer(answer.rc, re.sub(r"(disk-[0-9]\twritten\t)0\b", r"\g<1>8192", answer.stdout), answer.stderr)

    world.spoil = logs
    assert world.snapshot(state="rolled_back").failure is None
    assert len(back) == 1
    world.run("zfs", "create", "-o", "canmount=off", "-o", "mountpoint=none", "tank/flexdisk")
    again = world.snapshot(state="rolled_back")
    assert (again.failure, again.changed, len(back)) == (None, False, 1)


def test_another_volume_has_the_name(world):
    """One that was exchanged, with a snapshot of the same name."""
    world.write_to(DATA)

    def exchanged(argv, real):
        answer = real(argv)
        world.run("zfs", "rename", DATA, "tank/vms/former")
        world.volume(DATA, "2G")
        world.run("zfs", "snapshot", f"{DATA}@one")
        return answer

    assert f"{DATA} is not as in snapshot one" in spoiled(world, exchanged)["message"]


def test_zfs_does_not_answer_afterwards(world):
    world.write_to(DATA)

    def spoil(number, argv, real):
        return Answer(1, "", "I/O error") if "guid,createtxg,written,volsize" in argv else real(argv)

    world.spoil = spoil
    failure = world.snapshot(state="rolled_back").failure
    assert "nobody knows whether its disks are as in snapshot one: I/O error" in failure["message"]
    world.spoil = None
    world.steps(state="rolled_back")


def test_the_vm_is_started_after_the_plan(world):
    """Proxmox VE would stop it hard."""
    world.write_to(DATA)

    def spoil(number, argv, real):
        if argv[:2] == ["zfs", "set"] and not world.running:
            world.run("qm", "start", "100")
        return real(argv)

    world.spoil = spoil
    failure = world.snapshot(state="rolled_back").failure
    world.spoil = None
    assert "VM 100 runs by now; it was not rolled back" in failure["message"]
    assert not any(argv[0] == "qm" for argv in world.calls)
    assert world.running
    assert written(world) != "0"


# -- something else changes the VM meanwhile

_MEANWHILE = {
    "description": lambda world: world.run("qm", "set", "100", "--description", "edited"),
    "backup": lambda world: setattr(world, "file", world.file.replace("memory:", "lock: backup\nmemory:", 1)),
    "snapshot": lambda world: world.run("qm", "snapshot", "100", "other"),
    "resize": lambda world: world.run("qm", "disk", "resize", "100", "scsi1", "+1G"),
}


@pytest.mark.parametrize("at", ["intent", "qm"])
@pytest.mark.parametrize("what", sorted(_MEANWHILE))
def test_a_rollback_that_never_began_is_not_remembered(world, what, at):
    """Nothing has gone back, so that no task must end it. qm compares no digest: it refuses what it sees itself."""
    world.write_to(DATA)
    before, did = written(world), []

    def spoil(number, argv, real):
        first = argv[:2] == ["zfs", "set"] if at == "intent" else argv[:2] == ["qm", "rollback"]
        if first and not did:
            did.append(argv)
            answer = real(argv) if at == "intent" else None
            _MEANWHILE[what](world)
            return answer or (real(argv) if what in ("backup", "snapshot") else Answer(255, "", LOCK))
        return real(argv)

    world.spoil = spoil
    failure = world.snapshot(state="rolled_back").failure
    world.spoil = None
    assert len(did) == 1
    assert "it was not rolled back" in failure["message"]
    assert what == "snapshot" or written(world) == before
    assert world.vm().interrupted is None


def test_a_rollback_that_began_is_remembered_though_the_file_has_changed(world):
    """One volume has gone back, and then the lock is taken away and qm fails."""
    world.write_to(DATA)
    world.write_to(ROOT)

    def half(argv, real):
        world.admin("pve-kill", "5")
        real(argv)
        world.admin("pve-kill", "0")
        world.file = world.file.replace("lock: rollback\n", "", 1).replace("memory: 512", "memory: 640", 1)
        return Answer(255, "", "it was killed\n")

    failure = spoiled(world, half)
    assert sorted({written(world), written(world, ROOT)})[0] == "0" != max(written(world), written(world, ROOT))
    assert "it was not rolled back" not in failure["message"]
    assert world.vm().interrupted is not None
    world.steps(state="rolled_back")


def right_after(state, act):
    """Let something happen right after qm has done what a task asks for. Return the world, and how the task ends."""
    world = Snapshots()
    world.done({"name": "data"})
    if state != "present":
        world.made()
        world.write_to(DATA)

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[0] == "qm":
            act(world)
        return answer

    world.spoil = spoil
    outcome = world.snapshot(state=state)
    world.spoil = None
    return world, outcome


@pytest.mark.parametrize("state", ["present", "absent", "rolled_back"])
def test_a_backup_begins_right_after(state):
    """Nothing lacks, so it is done."""
    world, outcome = right_after(state, _MEANWHILE["backup"])
    assert (outcome.failure, outcome.changed) == (None, True)
    assert "lock: backup" in world.file
    world.run("qm", "unlock", "100")
    assert world.vm().interrupted is None
    assert not world.made(state=state).changed


@pytest.mark.parametrize("state", ["present", "absent", "rolled_back"])
def test_the_vm_is_started_right_after(state):
    """The failure says so, and no task goes back again: that would take what the guest has written since."""

    def start(world):
        world.run("qm", "start", "100")
        world.write_to(ROOT)

    world, outcome = right_after(state, start)
    text = "all steps were done, but: the VM was stopped when the task began, and is running by now"
    assert outcome.failure["message"] == text
    assert world.vm().interrupted is None
    assert written(world, ROOT) != "0"


def test_the_vm_is_started_after_a_rollback_that_has_failed(world):
    """Nobody knows what its guest has written by now, and what another rollback would take back."""
    world.write_to(DATA)
    world.write_to(ROOT)

    def half(argv, real):
        world.admin("pve-kill", "5")
        real(argv)
        world.admin("pve-kill", "0")
        world.file = world.file.replace("lock: rollback\n", "", 1)
        world.run("qm", "start", "100")
        return Answer(255, "", "it was killed\n")

    assert "VM 100 runs by now, and another rollback takes back what it writes, too" in spoiled(world, half)["message"]
    assert world.vm().interrupted is not None


# -- what is no difference


def test_each_rollback_gives_the_vm_another_generation(world):
    """The VM's number for that is no setting that comes back."""
    number = "5212c5c4-e126-43fc-88a6-57a1a94f3963"
    world = Snapshots()
    world.file += f"vmgenid: {number}\n"
    world.made()
    world.write_to(ROOT)
    world.steps(state="rolled_back")
    assert f"vmgenid: {number}" not in world.file.split("[one]")[0]
    world.run("qm", "start", "100")
    assert not world.made(state="rolled_back").changed


def adopted_after_snapshot():
    world = Snapshots()
    world.file = re.sub(r"serial=[0-9a-f]+,", "", world.file)
    for volume in (ROOT, DATA):
        for name in ("uuid", "name", "vm"):
            world.run("zfs", "inherit", f"flexdisk:{name}", volume)
    world.made()
    world.done({"name": "data", "pci_slot": "scsi1"}, {"name": "root", "boot": True})
    return world


def test_the_first_rollback_after_an_adoption():
    """The serials of then come back. The volumes keep their UUIDs and names, and the next task writes the serials."""
    world = adopted_after_snapshot()
    before = world.disks()
    world.write_to(DATA)
    outcome = world.steps(state="rolled_back")
    assert "; also as it was then: serial of scsi1, serial of virtio0" in outcome.diff
    (warning,) = outcome.warnings
    assert "scsi1, virtio0 will have the serial of then, which does not stand for its UUID; the next task" in warning
    assert warning.endswith("of vm_disks about the disk writes that again while the VM is stopped")
    assert "serial=" not in world.file
    assert {kind for kind in told(world)[0] if "record" in kind or "uuid" in kind} == {"uuid_not_configured"}
    world.run("qm", "start", "100")
    assert not world.done({"name": "data"}, {"name": "root"}).changed
    world.run("qm", "stop", "100")
    assert {name: disk.uuid for name, disk in world.disks().items()} == {n: d.uuid for n, d in before.items()}
    world.four_steps({"name": "data"}, {"name": "root"})
    assert world.file.split("[one]")[0].count("serial=") == 2


def test_a_serial_of_another_disk(world):
    """It stands for a UUID that the volume does not have."""
    world.file = world.file.replace("serial=bbbbbbbb000040008000", "serial=bbbbbbbb000040008001")
    head, tail = world.file.split("[one]")
    world.file = head.replace("8001", "8000") + "[one]" + tail
    world.write_to(DATA)
    assert "qm rollback also brings back scsi1 as in snapshot one" in world.refused(state="rolled_back")


def test_a_disc_was_ejected(world):
    world = Snapshots()
    world.file = world.file.replace("ide2: none", "ide2: local:iso/debian.iso")
    world.made()
    world.run("qm", "set", "100", "--ide2", "none,media=cdrom")
    world.write_to(ROOT)
    outcome = world.steps(state="rolled_back")
    assert "; also as it was then: ide2" in outcome.diff
    assert "debian.iso" in world.setting("ide2")


# -- interrupted


def killed(world, torn):
    """The rollback is killed before qm (0), or qm itself with it."""

    def spoil(number, argv, real):
        if argv[:2] == ["qm", "rollback"]:
            if torn:
                world.admin("pve-kill", str(torn))
                real(argv)
            raise Killed
        return real(argv)

    world.spoil = spoil
    with contextlib.suppress(Killed):
        world.snapshot(state="rolled_back")
    world.spoil = None


def test_advice_of_an_interrupted_rollback_can_be_followed(world):
    """No other task deletes the newer snapshot then."""
    world.write_to(DATA)
    killed(world, 0)
    world.run("qm", "snapshot", "100", "two")
    said = world.refused(state="rolled_back")
    assert "; qm delsnapshot 100 two [HasSnapshots]" in said
    assert "the module vm" not in said
    world.run("qm", "delsnapshot", "100", "two")
    world.steps(state="rolled_back")


@pytest.mark.parametrize(
    ("state", "torn", "says"),
    [
        ("present", 2, "VM 100 is locked now (snapshot), and a task of Proxmox VE may still work on it: wait for the"),
        ("absent", 4, "VM 100 is locked now (snapshot-delete), and a task of Proxmox VE may still work on it"),
        ("rolled_back", 4, "VM 100 is locked now (rollback), and a task of Proxmox VE may still work on it"),
        ("rolled_back", 0, "VM 100 is not locked, and a task of Proxmox VE may still work on it"),
    ],
)
def test_qm_takes_too_long(state, torn, says):
    """The failure says that the VM is locked, and what ends that, with which the same task ends it."""
    world = Snapshots()
    world.done({"name": "data"})
    if state != "present":
        world.made()
        world.write_to(DATA)

    def spoil(number, argv, real):
        if argv[0] != "qm":
            return real(argv)
        if torn:
            world.admin("pve-kill", str(torn))
            real(argv)
        raise FlexdiskError("CommandTimeout", f"{argv[0]} did not end within 600 s and was killed: {' '.join(argv)}")

    world.spoil = spoil
    failure = world.snapshot(state=state).failure
    world.spoil = None
    assert failure["error_code"] == "CommandTimeout"
    assert says in failure["message"]
    if torn:
        assert "if no task of Proxmox VE works on it any more, qm unlock 100" in failure["message"]
        world.run("qm", "unlock", "100")
    if state == "present":
        assert "and then vm_snapshot with state=absent deletes what is left of snapshot one" in failure["message"]
        world.made(state="absent")
    world.steps(state=state)


# -- what is told of it


def told(world):
    """What disk_verify finds, and what vm_info shows."""
    found = verify(world.zfs, world.driver, None, (), None, 30, True, int(world.node.now())).findings
    shown = info(world.zfs, world.driver, ["web"], None, True).vms[0]
    return {one.kind: one for one in found}, shown["proxmox"], shown["intent"]


def test_nothing_is_told_of_whole_snapshots(world):
    findings, proxmox, intent = told(world)
    assert "unfinished_snapshot" not in findings
    assert (proxmox["snapshots"], proxmox["unfinished"], proxmox["lock"], intent) == (["one"], [], "", None)


@pytest.mark.parametrize(("command", "lock"), [("snapshot", "snapshot"), ("delsnapshot", "snapshot-delete")])
def test_a_snapshot_that_is_half_made_or_half_deleted(world, command, lock):
    name = "two" if command == "snapshot" else "one"
    world.admin("pve-kill", "3")
    with contextlib.suppress(AssertionError):
        world.run("qm", command, "100", name)
    findings, proxmox, _intent = told(world)
    assert f"VM 100 is locked by Proxmox VE ({lock}); if no task" in findings["unfinished_snapshot"].message
    assert (proxmox["unfinished"], proxmox["lock"]) == ([name], lock)
    world.run("qm", "unlock", "100")
    findings, proxmox, _intent = told(world)
    found = findings["unfinished_snapshot"]
    assert found.message == f"snapshot {name} is half made or half deleted; vm_snapshot with state=absent deletes it"
    ((module, task),) = found.repair.items()
    assert (module, task["name"], task["state"]) == ("flexdisk.hypervisor.vm_snapshot", name, "absent")
    world.steps(name, task["state"])
    assert "unfinished_snapshot" not in told(world)[0]


def test_a_rollback_that_was_interrupted(world):
    world.write_to(DATA)
    killed(world, 4)
    findings, proxmox, intent = told(world)
    assert "and then the same rollback again, end it" in findings["unfinished_snapshot"].message
    assert "rolled back to one" in findings["intent"].message
    assert (proxmox["lock"], intent["rollback"]) == ("rollback", "one")
    world.run("qm", "unlock", "100")
    world.steps(state="rolled_back")
    assert not {"unfinished_snapshot", "intent"} & told(world)[0].keys()


# -- deletion


def test_a_snapshot_of_a_user_outlives_the_rest_of_another():
    """qm was killed when it found that a user has a snapshot of this name; --force would destroy that."""
    world = Snapshots()
    world.done({"name": "data"})
    world.run("zfs", "snapshot", f"{DATA}@one")
    world.node.sleep(60)
    world.admin("pve-kill", "1")
    with contextlib.suppress(AssertionError):
        world.run("qm", "snapshot", "100", "one")
    assert "snapstate: prepare" in world.file
    world.run("qm", "unlock", "100")
    begun, file = "snaptime: 1767", world.file
    world.file = file.replace(begun, "snaptime: x1767")
    assert "does not say when it was begun" in world.refused(state="absent")
    world.file = file
    said = world.refused(state="absent")
    assert f"{DATA}@one was not taken with snapshot one of the VM, but before it, or long after; zfs rename" in said
    world.run("zfs", "rename", f"{DATA}@one", f"{DATA}@mine")
    world.steps(state="absent")
    assert world.parts("mine") == [f"{DATA}@mine"]


def test_a_part_that_somebody_has_replaced(world):
    """It is of another time than the others, and not given up with them."""
    world.run("zfs", "destroy", f"{DATA}@one")
    world.node.sleep(7200)
    world.run("zfs", "snapshot", f"{DATA}@one")
    world.write_to(DATA)
    text = f"{DATA}@one was not taken with snapshot one of the VM, but before it, or long after"
    for state in ("absent", "rolled_back"):
        assert text in world.refused(state=state)
    world.run("qm", "snapshot", "100", "one2")
    (warning,) = world.made("", "absent", keep=Keep(names=("one*",), last=1)).warnings
    assert f"keep leaves snapshot one: {text}" in warning


def test_somebody_takes_a_snapshot_of_this_name_before_the_rest_is_deleted():
    """It was not there when the plan was made."""
    world = Snapshots()
    world.done({"name": "data"})
    world.admin("pve-kill", "2")
    with contextlib.suppress(AssertionError):
        world.run("qm", "snapshot", "100", "one")
    world.run("qm", "unlock", "100")
    there = world.parts()
    (late,) = {f"{ROOT}@one", f"{DATA}@one"} - {*there}

    def spoil(number, argv, real):
        if argv[:2] == ["zfs", "list"] and late not in world.parts():
            world.run("zfs", "snapshot", late)
        return real(argv)

    world.spoil = spoil
    failure = world.snapshot(state="absent").failure
    world.spoil = None
    assert failure["error_code"] == "Changed"
    assert late in world.parts()


def test_a_part_that_was_not_destroyed():
    """With --force, qm takes the snapshot out of the file all the same."""
    world = Snapshots()
    world.done({"name": "data"})
    world.admin("pve-kill", "5")
    with contextlib.suppress(AssertionError):
        world.run("qm", "snapshot", "100", "one")
    world.file = world.file.replace("snaptime:", "snapstate: delete\nsnaptime:", 1).replace("lock: snapshot\n", "")
    held = world.parts()[0]

    def spoil(number, argv, real):
        if argv[:2] == ["qm", "delsnapshot"]:
            world.run("zfs", "hold", "k", held)
        return real(argv)

    world.spoil = spoil
    failure = world.snapshot(state="absent").failure
    assert f"the VM does not have snapshot one any more, but {held} is left; zfs destroy does it" in failure["message"]


# -- what the advice of a refusal or a finding is worth: it can be followed


def begun(world, command, name, torn, *options):
    """The command of qm is killed, and somebody takes the lock away."""
    world.admin("pve-kill", str(torn))
    with contextlib.suppress(AssertionError):
        world.run("qm", command, "100", name, *options)
    world.admin("pve-kill", "0")
    locked = world.vm().config.frozen
    world.run("qm", "unlock", "100")
    return locked


def test_keep_tells_what_it_does_not_count(world):
    """A half deleted snapshot, and one that lacks a part, which would stay for ever."""
    for name in ("daily1", "daily2", "daily3"):
        world.made(name)
    world.run("zfs", "destroy", f"{DATA}@daily1")
    begun(world, "delsnapshot", "daily2", 3)
    outcome = world.steps("daily4", keep=Keep(last=1))
    lacking, half = outcome.warnings
    assert "keep does not count snapshot daily1, which lacks " + DATA + "@daily1; " in lacking
    assert lacking.endswith("qm delsnapshot 100 daily1 --force 1 deletes it")
    assert half.endswith("daily2, which is half made or half deleted; vm_snapshot with state=absent deletes it")
    world.run("qm", "delsnapshot", "100", "daily1", "--force", "1")
    world.steps("daily2", "absent")
    assert sorted(world.sections) == ["daily4", "one"]
    assert world.made("daily4", keep=Keep(last=1)).warnings == []


def test_keep_tells_that_the_vm_is_locked(world):
    world.made("daily1")
    world.admin("pve-kill", "3")
    with contextlib.suppress(AssertionError):
        world.run("qm", "delsnapshot", "100", "daily1")
    warnings = world.made("", "absent", keep=Keep(last=1, names=("daily*",))).warnings
    assert any("locked by Proxmox VE (snapshot-delete)" in one for one in warnings)


def test_a_snapshot_that_lacks_a_part(world):
    """Present and absent say the same."""
    world.run("zfs", "destroy", f"{DATA}@one")
    command = "qm delsnapshot 100 one --force 1"
    assert f"snapshot one is there already, and lacks {DATA}@one; {command} deletes it" in world.refused()
    assert command in world.refused(state="absent")
    world.run(*command.split())
    world.steps()


@pytest.mark.parametrize("torn", [2, 3, 4, 5])
@pytest.mark.parametrize("named", [True, False])
def test_a_half_deleted_snapshot_with_a_disk_that_has_left(world, torn, named):
    """qm would add it to the unused volumes of the VM, which no plan has."""
    world.run("qm", "set", "100", "--delete", "scsi1")
    if not named:
        world.file = world.file.replace("unused0: thick:vm-100-disk-0\n", "", 1)
    begun(world, "delsnapshot", "one", torn)
    command = "qm delsnapshot 100 one --force 1"
    for said in (world.refused(), world.refused(state="absent"), told(world)[0]["unfinished_snapshot"].message):
        assert command in said
    assert told(world)[0]["unfinished_snapshot"].repair is None
    world.run(*command.split())
    assert world.sections == []
    world.steps()


@pytest.mark.parametrize("name", ["vm-100-cloudinit", "cloudinit"])
def test_a_drive_for_cloud_init_that_came_since(world, name):
    world.run("zfs", "create", "-V", "4M", f"rpool/data/{name}")
    world.file = world.file.replace("ide2:", f"ide0: local-zfs:{name},media=cdrom,size=4M\nide2:", 1)
    world.write_to(DATA)
    assert "qm rollback also brings back ide0 as in snapshot one" in world.refused(state="rolled_back")


def test_only_an_option_of_a_disk_has_changed(world):
    world.run("qm", "set", "100", "--scsi1", world.setting("scsi1").replace(",size=2G", ",cache=none"))
    assert "the VM would have other disks, other options of them, or boot otherwise" in world.refused(
        state="rolled_back"
    )


def test_a_half_made_snapshot_with_the_memory(world):
    """Nothing is known of the memory here."""
    world = Snapshots(running=True)
    world.done({"name": "data"})
    command = "qm delsnapshot 100 one --force 1"
    assert f"and then {command} deletes what is left of it" in begun(world, "snapshot", "one", 4, "--vmstate", "1")
    assert "[one]" in world.file
    assert f"{command} deletes it" in world.refused()
    found = told(world)[0]["unfinished_snapshot"]
    assert (f"{command} deletes it" in found.message, found.repair) == (True, None)


def test_a_half_made_newer_snapshot(world):
    """Without --force, qm ends in the middle, because a part of it was never taken."""
    world.write_to(DATA)
    killed(world, 0)
    begun(world, "snapshot", "two", 2)
    said = world.refused(state="rolled_back")
    (command,) = re.findall(r"qm delsnapshot 100 two[^;\[]*", said)
    world.run(*command.split())
    world.steps(state="rolled_back")


def test_newer_snapshots_of_others_are_destroyed_one_by_one(world):
    for volume in (ROOT, DATA):
        world.run("zfs", "snapshot", f"{volume}@mine")
    world.write_to(DATA)
    commands = re.findall(r"zfs destroy [^;\[ ]*", world.refused(state="rolled_back"))
    assert len(commands) == 2
    for command in commands:
        world.run(*command.split())
    world.steps(state="rolled_back")


def test_the_base_of_a_replication_job_is_not_given_up(world):
    """Without it, the job sends the whole disk again, or fails."""
    base = f"{ROOT}@__replicate_100-0_1767225600__"
    world.run("zfs", "snapshot", base)
    world.write("replication.cfg", "local: 100-0\n\ttarget pve2\n")
    world.write_to(DATA)
    said = world.refused(state="rolled_back")
    assert f"{base} is the base of replication job 100-0, and goes with it: pvesr delete 100-0 ends the job" in said
    assert "zfs destroy" not in said


@pytest.mark.parametrize("how", ["disabled", "not imported"])
def test_a_storage_that_cannot_be_reached(world, how):
    """qm would end in the middle there."""
    path = world.files / "etc/pve/storage.cfg"
    why = "scsi1 lies in storage thick, which is not active on node pve1; make it available first"
    if how == "disabled":
        world.write("storage.cfg", path.read_text().replace("zfspool: thick\n", "zfspool: thick\n\tdisable\n"))
    else:
        (world.files / "proc/spl/kstat/zfs/rpool").mkdir(parents=True)
        why = "scsi1 lies in storage thick, whose pool tank is not imported; make it available first"
    world.write_to(ROOT)
    assert f"a snapshot has all disks of a VM: {why}" in world.refused("two")
    for state in ("absent", "rolled_back"):
        said = world.refused(state=state)
        assert f"snapshot one has a disk that cannot be reached: {why}: qm would end in the middle" in said
        assert "may know more" not in said


def test_the_lock_names_the_snapshots_that_are_being_deleted(world):
    """Not another one that is half made."""
    world.made("two")
    begun(world, "snapshot", "half", 3)
    locked = begun(world, "delsnapshot", "two", 3)
    assert locked.endswith("and then vm_snapshot with state=absent deletes what is left of snapshot two")


def test_too_little_flexible_disk_space(world):
    """The rollback does not raise it there, so it is vm_disks that is named."""
    small = {"name": "data", "size": "1GiB", "dangerous_allow_shrink": True}
    world.done(small, vm={"flexible_disk_size": "5300MiB"})
    said = world.refused(state="rolled_back")
    assert "set it in this task" not in said
    needed = re.search(r"vm_disks raises it: flexible_disk_size of at least (\d+) MiB", said)[1]
    world.done(small, vm={"flexible_disk_size": f"{needed}MiB"})
    world.made(state="rolled_back")
