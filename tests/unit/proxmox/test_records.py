# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Proxmox VE does not carry to the volumes that it makes, the cluster carries: a record of each VM."""

from __future__ import annotations

import contextlib
import errno
import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import whole_files
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import VmRecord
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import vm_record
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .world import DATA, FILE, STORAGE, VM, Killed, World, faults

RECORD = f"flexdisk/{VM}.json"
SERIAL = serial_of(DATA)
SHOP = {"name": "data", "preserve": True, "description": "of the shop"}


def record(world):
    return json.loads((world.files / "etc/pve" / RECORD).read_text())


def moved_to_another_storage(world):
    """As qm disk move makes it: a new volume without our properties, the same serial, the old one destroyed."""
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs", "--delete", "1")
    assert world.setting("scsi1").startswith("local-zfs:")


def test_it_is_written_after_the_volumes():
    world = World()
    world.four_steps(SHOP)
    saved = record(world)["disks"][SERIAL]
    assert (saved["name"], saved["preserve"], saved["description"], saved["uuid"]) == (
        "data",
        True,
        "of the shop",
        DATA,
    )
    assert {one["name"] for one in record(world)["disks"].values()} == {"root", "data"}
    world.done({"name": "new", "size": "1GiB"})
    assert record(world)["disks"][serial_of(world.disks()["new"].uuid)]["name"] == "new"


def test_a_moved_disk_keeps_its_name_and_all_else():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    disk = world.disks()["data"]
    assert (disk.uuid, disk.preserve, disk.volume.user.get("name")) == (DATA, True, None)
    done = world.four_steps({"name": "data"})
    assert "= data adopted" in done.diff
    user = world.disks()["data"].volume.user
    assert (user["name"], user["preserve"], user["uuid"], user["vm"]) == ("data", "true", DATA, VM)


def test_the_volume_wins():
    """Whatever it says: the record is written after it, so it may be older."""
    world = World()
    world.done(SHOP)
    world.run("zfs", "set", "flexdisk:name=other", "tank/vms/vm-100-disk-0")
    assert {*world.disks()} == {"root", "other"}
    world.done({"name": "other"})
    assert record(world)["disks"][SERIAL]["name"] == "other"


def test_a_part_of_an_identity_wins_too():
    world = World()
    world.done(SHOP)
    for name in ("name", "preserve", "description", "serial_no"):
        world.run("zfs", "inherit", f"flexdisk:{name}", "tank/vms/vm-100-disk-0")
    assert [disk.name for disk in world.vm().disks if disk.uuid == DATA] == [""]


def test_another_serial_is_another_disk():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    world.file = world.file.replace(SERIAL, "c" * 20)
    assert {*world.disks()} == {"root", ""}


def test_a_serial_that_two_disks_have_means_none():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-100-disk-7")
    world.file += f"virtio7: local-zfs:vm-100-disk-7,serial={SERIAL},size=1G\n"
    assert [disk.name for disk in world.vm().disks] == ["root", "", ""]


def test_a_clone_has_no_record():
    """qm clone copies the serials, but the clone is another VM."""
    world = World()
    world.done(SHOP)
    world.run("qm", "clone", "100", "101", "--full", "1")
    assert world.disks()["data"].uuid == DATA
    world.done({"name": "data"})


def test_flexible_disk_size_is_the_limit_of_disks_and_snapshots():
    world = World()
    world.four_steps({"name": "data"}, vm={"flexible_disk_size": "8GiB"})
    assert record(world)["flexible_disk_size"] == 8192
    said = world.refusal({"name": "data", "size": "5GiB"})
    assert "flexible_disk_size 8 GiB is 1 GiB too small: disks and snapshots need 9 GiB" in said
    world.four_steps({"name": "data", "size": "remaining"})
    assert world.volsize("tank/vms/vm-100-disk-0") == 4096
    assert "[InsufficientSpace]" in world.refusal({"name": "new", "size": "1MiB"})
    world.four_steps({"name": "data"}, vm={"flexible_disk_size": "9GiB"})


def test_size_remaining_needs_it():
    """And nothing else does."""
    said = World().refusal({"name": "root", "size": "remaining"}, {"name": "data", "size": "3GiB"})
    assert said.count("[VmWithoutFlexibleDiskSize]") == 1
    assert "growing" not in said


def test_size_remaining_of_nothing():
    """It says what is lacking, and of no size below zero."""
    entries = {"name": "data", "size": "9GiB"}, {"name": "root", "size": "remaining"}
    said = World().refusal(*entries, vm={"flexible_disk_size": "8GiB"})
    assert "leaves 0 MiB of flexible_disk_size 8 GiB and lacks 1 GiB besides" in said
    assert "-> -" not in said


def test_what_somebody_else_has_written_is_left_alone():
    world = World()
    world.done(SHOP)
    world.write(RECORD, '{"disks": {"x": {}}}')
    assert "has not what this collection has written" in world.refusal({"name": "data", "size": "3GiB"})
    assert (world.files / "etc/pve" / RECORD).read_text() == '{"disks": {"x": {}}}'


def test_no_record_without_anything_to_say():
    world = World()
    for volume in ("rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"):
        for name in ("uuid", "name", "vm"):
            world.run("zfs", "inherit", f"flexdisk:{name}", volume)
    world.done()
    assert not (world.files / "etc/pve" / RECORD).exists()


def test_a_record_that_cannot_be_written(monkeypatch):
    """As without a quorum: what was done is said, and the next run ends it."""
    world = World()
    with monkeypatch.context() as patched:
        patched.setattr(whole_files, "replace", _read_only)
        failure = world.converge(SHOP).failure
    assert failure["error_code"] == "FileFailed"
    assert f"/etc/pve/{RECORD} cannot be written: Read-only file system" in failure["message"]
    assert world.disks()["data"].preserve
    world.done(SHOP)
    assert record(world)["disks"][SERIAL]["preserve"]


def _read_only(*_arguments, **_named):
    raise OSError(errno.EROFS, "Read-only file system")


NO_RECORDS = (
    "",
    "{",
    "[]",
    "{}",
    "[" * 100000,
    '{"disks": []}',
    '{"disks": {}, "flexible_disk_size": "8"}',
    '{"disks": {}, "flexible_disk_size": true}',
    '{"disks": {"zz": {}}}',
    '{"disks": {"%s": {"name": 7}}}' % SERIAL,
    '{"disks": {}, "detached": []}',
    '{"disks": {}, "detached": {"%s": {"name": "data"}}}' % DATA,
    '{"disks": {}, "detached": {"%s": {"name": "data", "volume": 7}}}' % DATA,
    '{"disks": {}, "detached": {"x": {"name": "data", "volume": "tank/x"}}}',
)


@pytest.mark.parametrize("number", range(len(NO_RECORDS)))
def test_what_is_no_record(number):
    with pytest.raises(ValueError, match=r"\w"):
        vm_record.parse(NO_RECORDS[number].encode())


def test_a_record_is_read_as_it_was_written():
    made = VmRecord({SERIAL: {"name": "data", "uuid": DATA}}, 1024, {DATA: {"name": "data", "volume": "tank/x"}})
    assert vm_record.parse(vm_record.render(made)) == made


def test_interrupted_at_every_command():
    wanted = ({**SHOP, "size": "3GiB"},)
    straight = World()
    straight.done(*wanted, vm={"flexible_disk_size": "9GiB"})
    for fault in faults(World, *wanted, vm={"flexible_disk_size": "9GiB"}):
        world = World()
        fault(world)
        with contextlib.suppress(Killed):
            world.converge(*wanted, vm={"flexible_disk_size": "9GiB"})
        world.spoil = None
        world.done(*wanted, vm={"flexible_disk_size": "9GiB"})
        assert _plain(record(world)) == _plain(record(straight)), fault
        assert not world.converge(*wanted, vm={"flexible_disk_size": "9GiB"}).changed


def _plain(saved):
    stamps = ("ctime", "mtime", "serial_no")
    disks = {serial: {k: v for k, v in one.items() if k not in stamps} for serial, one in saved["disks"].items()}
    return {**saved, "disks": disks}


def findings(world):
    found = verify(world.zfs, world.driver, None, (), None, 30, True, 0).findings
    return {one.disk or one.message.split()[3]: one.message for one in found if one.kind == "record_differs"}


def test_disk_verify_shows_where_the_two_differ():
    """Nothing after a task; then what only one of them has, and what they have otherwise."""
    world = World()
    world.done(SHOP)
    assert findings(world) == {}
    world.run("zfs", "set", "flexdisk:name=other", "tank/vms/vm-100-disk-0")
    assert findings(world) == {"other": "the record has it as data, or with other properties"}
    world.done({"name": "other"})
    moved_to_another_storage(world)
    assert "is known by the record alone" in findings(world)["other"]
    world.done({"name": "other"})
    assert findings(world) == {}
    (world.files / "etc/pve" / RECORD).unlink()
    assert findings(world)["root"] == "the record has nothing of it"
    world.done()
    assert findings(world) == {}
    world.run("qm", "set", "100", "--delete", "scsi1")
    assert list(findings(world).values()) == [f"the record has other with serial {SERIAL}, which no disk has"]


THIRD = "\nzfspool: third\n\tpool tank/x\n\tcontent images\n"


def in_a_third_storage():
    """The disk is called what only the record says."""
    world = World()
    world.run("zfs", "create", "tank/x")
    world.write("storage.cfg", STORAGE + THIRD)
    world.done(SHOP)
    world.run("qm", "disk", "move", "100", "scsi1", "third", "--delete", "1")
    return world


def test_identity_is_written_to_what_only_the_record_knows():
    world = in_a_third_storage()
    done = world.four_steps({"name": "root", "description": "x"})
    assert "= data adopted" in done.diff
    user = world.disks()["data"].volume.user
    assert (user["name"], user["preserve"], user["uuid"]) == ("data", "true", DATA)


def test_a_disk_of_a_storage_that_is_off_keeps_its_entry():
    world = in_a_third_storage()
    world.write("storage.cfg", STORAGE + THIRD + "\tdisable\n")
    world.four_steps({"name": "root", "size": "5GiB"})
    said = world.refusal({"name": "data", "size": "2GiB"})
    assert f"the record of the VM has data with serial {SERIAL}" in said
    assert "{name: data, state: absent}" in said
    assert "[NameConflict]" in world.refusal({"uuid": world.disks()["root"].uuid, "name": "data"})
    assert "cannot be read: it is not given up" in world.refusal({"name": "data", "state": "absent"})
    world.write("storage.cfg", STORAGE + THIRD)
    disk = world.disks()["data"]
    assert (disk.uuid, disk.preserve, disk.volume.name) == (DATA, True, "tank/x/vm-100-disk-0")


def test_a_disk_that_was_detached_by_hand_keeps_its_entry():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    line = world.setting("scsi1")
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.four_steps({"name": "root", "size": "5GiB"})
    assert "[NameConflict]" in world.refusal({"name": "data", "size": "2GiB"})
    world.run("qm", "set", "100", "--scsi1", line)
    assert (world.disks()["data"].uuid, world.disks()["data"].preserve) == (DATA, True)


def test_what_is_gone_for_good_is_given_up_by_name():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    world.run("qm", "set", "100", "--delete", "scsi1")
    done = world.four_steps({"name": "data", "state": "absent"})
    assert "- data forgotten" in done.diff
    assert SERIAL not in record(world)["disks"]
    world.four_steps({"name": "data", "size": "2GiB"})


def test_a_disk_that_is_there_is_destroyed_and_not_only_forgotten():
    world = World()
    world.done({**SHOP, "preserve": False})
    done = world.four_steps({"name": "data", "state": "absent"})
    assert ("DESTROYED" in done.diff, "forgotten" in done.diff) == (True, False)
    assert SERIAL not in record(world)["disks"]


def test_a_line_without_a_volume():
    """Every task on other disks goes on, and its entry stays."""
    world = World()
    world.done(SHOP)
    world.file = FILE + "scsi5: local-zfs:vm-100-disk-9,size=1G\n"
    world.four_steps({"name": "data", "size": "3GiB"})
    world.four_steps({"name": "new", "size": "1GiB"})
    world.run("zfs", "destroy", "tank/vms/vm-100-disk-0")
    world.four_steps({"name": "root", "size": "5GiB"})
    assert record(world)["disks"][SERIAL]["name"] == "data"
    assert "[NameConflict]" in world.refusal({"name": "data", "size": "1GiB"})


def gone_for_good():
    world = World()
    world.done(SHOP)
    moved_to_another_storage(world)
    world.run("qm", "set", "100", "--delete", "scsi1")
    return world


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (in_a_third_storage, {"name": "root", "description": "x"}),
        (gone_for_good, {"name": "data", "state": "absent"}),
    ],
)
def test_interrupted_with_a_disk_that_only_the_record_knows(make, wanted):
    straight = make()
    straight.done(wanted)
    found = [*faults(make, wanted)]
    assert found
    for fault in found:
        world = make()
        fault(world)
        with contextlib.suppress(Killed):
            world.converge(wanted)
        world.spoil = None
        world.done(wanted)
        assert _plain(record(world)) == _plain(record(straight)), fault
        assert {(d.name, d.preserve) for d in world.vm().disks} == {
            (d.name, d.preserve) for d in straight.vm().disks
        }, fault
        assert not world.converge(wanted).changed, fault
