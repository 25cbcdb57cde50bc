# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ZFS in a guest: zpool and zdb are played, as OpenZFS 2.1 prints; tables, partitions and blkid are real."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import guest_grow
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_room import RoomReader
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest import zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB

from .conftest import run

POOL, GUID, SHIFT = "1620330189465436878", "10088765877944140567", 26
LABEL = """------------------------------------
LABEL 0 
------------------------------------
    version: 5000
    name: 'tank'
    state: 0
    txg: 1002
    pool_guid: {pool}
    errata: 0
    hostid: 104614418
    hostname: 'web01'
    top_guid: {guid}
    guid: {guid}
    vdev_children: 1
    vdev_tree:
        type: '{kind}'
        id: 0
        guid: {guid}
        path: '{path}'
        whole_disk: {whole}
        metaslab_array: 256
        metaslab_shift: {shift}
        ashift: 9
        asize: 30750015488
        is_log: 0
        create_txg: 4
    features_for_read:
        com.delphix:hole_birth
        com.delphix:embedded_data
    labels = 0 1 
failed to unpack label 2
failed to unpack label 3
"""  # noqa: W291
# As 0.8 prints it, and others, which write more.
SPARE = f"""------------------------------------
LABEL 0 
------------------------------------
    version: 5000
    state: 3
    guid: {GUID}
    labels = 0 1 2 3 
"""  # noqa: W291
CACHE = SPARE.replace("state: 3", "state: 4").replace("    labels", f"    pool_guid: {POOL}\n    labels")
ONLINE = ("zpool", "online", "-e", "tank", GUID)
RESERVED = "type=6A945A3B-1DD2-11B2-99A6-080020736631"


def label_text(path="/dev/sdb1", kind="disk", whole=0, guid=GUID):
    return LABEL.format(pool=POOL, guid=guid, kind=kind, path=path, whole=whole, shift=SHIFT)


def rows(device, size, health="ONLINE"):
    """As zpool list -HpvLP prints. SIZE of a device is that of the partition since 2.1.3."""
    alloc = 5 * MIB + 512
    figures = f"{alloc}\t{size - alloc}\t-\t-\t0\t1"
    return f"tank\t{size}\t{figures}\t1.00\tONLINE\t-\n\t{device}\t{size + 7 * MIB}\t{figures}\t-\t{health}\n"


def shared_rows(device, kind="mirror-0", expandsz="-", health="ONLINE"):
    """As zpool list -HpvLP prints a vdev of two devices, behind one of a single device."""
    figures = f"{512 * MIB}\t5243392\t{507 * MIB}\t-\t{expandsz}\t0\t1\t-\tONLINE"
    members = "".join(f"\t{name}\t{519 * MIB}\t-\t-\t-\t-\t-\t-\t-\t{health}\n" for name in ("/dev/sdz1", device))
    return rows("/dev/sdy1", 512 * MIB) + f"\t{kind}\t{figures}\n{members}"


class Killed(BaseException):
    """Nothing in the collection catches it."""


class Guest(SubprocessRunner):
    """A pool on a device. Some looks after it was told to, it takes all space that there is."""

    def __init__(self, device, whole=0):
        super().__init__()
        self.device, self.whole, self.told, self.looks, self.grows = device, whole, [], 0, True
        self.kind, self.expandsz = "disk", "-"
        self.line = f"{POOL}\tONLINE\toff\ttank\n"
        self.size = self.wanted = self.space()
        with open(device, "r+b") as file:
            for index in range(8):  # what blkid looks for
                file.seek(131072 + 1024 * index)
                file.write(struct.pack("<QQQQQ", 0x00BAB10C, 5000, index, 0, 1))

    def space(self):
        return (int(run("blockdev", "--getsize64", self.device)) - 4718592) >> SHIFT << SHIFT

    def __call__(self, argv, stdin="", timeout=300):
        if argv[0] == "zdb":
            assert argv == ("zdb", "-l", self.device)
            return Answer(1, label_text(self.device, self.kind, self.whole), "")
        if argv[0] != "zpool":
            return super().__call__(argv, stdin, timeout)
        if argv[1] == "online":
            self.told.append(argv)
            if not self.grows:
                raise Killed
            self.wanted, self.looks = self.space(), 2
            return Answer(0, "", "")
        if argv == ("zpool", "list", "-Hp", "-o", "guid,health,readonly,name"):
            return Answer(0, f"77\tONLINE\toff\trpool\n{self.line}", "")
        assert argv == ("zpool", "list", "-HpvLP", "tank")
        if self.kind != "disk":
            return Answer(0, shared_rows(self.device, f"{self.kind}-0", self.expandsz), "")
        self.looks -= 1
        self.size = self.wanted if self.looks < 0 else self.size
        return Answer(0, rows(self.device, self.size), "")


@pytest.fixture
def grown(new_disk):
    """A function that makes a disk with this table, and a pool on a partition of it; then the disk grows."""

    def make(table, number, *, whole=0, mib=900):
        disk = new_disk(700)
        if table:
            disk.partition(table)
        guest = Guest(disk.part(number) if number else disk.device, whole)
        disk.to_size(mib)
        return disk, guest

    return make


@pytest.mark.parametrize(
    ("table", "number"),
    [("label: gpt\nsize=10MiB\nsize=550MiB\n", 2), ("label: dos\nsize=550MiB\nsize=40MiB, type=82\n", 1), ("", 0)],
)
def test_a_pool_grows(grown, table, number):
    disk, guest = grown(table, number)
    if "82" in table:
        run("mkswap", "-q", disk.part(2))
    before, dump = guest.size, number and disk.dump()
    predicted = disk.grow(guest, check_mode=True)
    assert (guest.told, number and disk.dump()) == ([], dump)
    done = disk.grow(guest)
    assert done == predicted
    assert guest.told == [ONLINE]
    name = guest.device.rpartition("/")[2]
    assert done["steps"][-1] == f"~ ZFS pool tank on {name} {before // MIB} MiB -> {guest.size // MIB} MiB"
    assert guest.size == guest.space() > before
    assert bool(done["backup"]) == bool(number)
    assert not disk.grow(guest)["changed"]


def test_a_killed_run_is_continued(grown):
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    guest.grows = False
    with pytest.raises(Killed):
        disk.grow(guest)
    guest.grows = True
    done = disk.grow(guest)
    assert [line[:6] for line in done["steps"]] == ["~ ZFS "]
    assert guest.told == [ONLINE, ONLINE]
    assert not disk.grow(guest)["changed"]


def test_less_than_a_metaslab_is_left(grown):
    disk, guest = grown("label: gpt\nsize=650MiB\n", 1, mib=702)
    assert len(disk.grow(guest)["steps"]) == 1
    assert not disk.grow(guest)["changed"]
    assert guest.told == []


def test_what_is_unknown_after_the_steps_is_no_refusal(grown, monkeypatch):
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    planned = []

    def plan_once(result):
        if planned:
            raise FlexdiskError("UnknownLayout", "nobody knows it")
        planned.append(plan(result))
        return planned[0]

    plan = guest_grow.plan
    monkeypatch.setattr(guest_grow, "plan", plan_once)
    with pytest.raises(FlexdiskError, match="the disk has changed, and now: nobody knows it") as failed:
        disk.grow(guest)
    assert failed.value.code == "NotApplied"


def test_a_pool_that_does_not_grow_is_told(grown, monkeypatch):
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    monkeypatch.setattr(guest_grow, "LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr(Guest, "space", lambda self: self.size)
    with pytest.raises(FlexdiskError, match="left: ~ ZFS pool tank on") as failed:
        disk.grow(guest)
    assert failed.value.code == "NotApplied"


def test_an_old_label_at_the_new_end_is_refused(grown):
    """It would be a label of the pool then, with a higher number of transaction perhaps."""
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    table = disk.dump()
    with open(disk.device, "r+b") as file:
        file.seek((899 << 20) - 262144 + 20000)
        file.write(b"pool_guid")
    with pytest.raises(FlexdiskError, match="there are labels of an old ZFS pool") as refused:
        disk.grow(guest)
    assert (refused.value.code, guest.told, disk.dump()) == ("UnknownLayout", [], table)


def test_a_whole_disk_is_grown_by_zfs_itself(grown):
    # As zpool create does it with 700 MiB: up to a multiple of 2048 sectors.
    table = f"label: gpt\nstart=2048, size=1412096\nstart=1414144, size=16384, {RESERVED}\n"
    disk, guest = grown(table, 1, whole=1, mib=700)
    assert not disk.grow(guest)["changed"]
    disk.to_size(900)
    before = disk.dump()
    with pytest.raises(FlexdiskError, match=f"run: zpool online -e tank {disk.device}$") as refused:
        disk.grow(guest)
    assert (refused.value.code, guest.told, disk.dump()) == ("UnknownLayout", [], before)
    guest.whole = 0
    with pytest.raises(FlexdiskError, match="the last one, has nothing that is known on it"):
        disk.grow(guest)


def test_a_refusal_changes_nothing(grown):
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    before, guest.line = disk.dump(), ""
    with pytest.raises(FlexdiskError, match="is not imported") as refused:
        disk.grow(guest)
    assert (refused.value.code, guest.told, disk.dump()) == ("NotMounted", [], before)


@pytest.mark.parametrize("kind", ["mirror", "raidz"])
@pytest.mark.parametrize(("table", "number"), [("label: gpt\nsize=550MiB\n", 1), ("", 0)])
def test_one_of_several_devices_has_nothing_to_grow_or_is_refused(grown, kind, table, number):
    disk, guest = grown(table.replace("550", "690"), number, mib=700)
    guest.kind = kind
    assert not disk.grow(guest)["changed"]
    guest.expandsz = str(200 * MIB)
    with pytest.raises(FlexdiskError, match=f"part of a {kind} in the ZFS pool tank"):
        disk.grow(guest)
    assert guest.told == []


@pytest.mark.parametrize("kind", ["mirror", "raidz"])
def test_one_of_several_devices_is_refused_on_a_grown_disk(grown, kind):
    disk, guest = grown("label: gpt\nsize=550MiB\n", 1)
    guest.kind = kind
    before = disk.dump()
    with pytest.raises(FlexdiskError, match=f"part of a {kind} in .* for each: zpool online -e tank DEVICE") as refused:
        disk.grow(guest)
    assert (refused.value.code, guest.told, disk.dump()) == ("UnknownLayout", [], before)


def test_a_pool_takes_the_whole_disk(grown):
    disk, guest = grown("", 0)
    free = RoomReader(guest, str(disk.root)).room(disk.kname)
    assert (free.reason, free.min_bytes) == ("a ZFS pool cannot shrink", 900 * MIB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cannot open '/dev/sdb1': No such file", "printed no label"),
        ("LABEL 0 \n    version: 5000\n", "printed something unknown"),
        (label_text() + label_text(guid="1"), "labels of several devices"),
        (SPARE, "/dev/sdb1 is a spare or cache of a ZFS pool"),
        (CACHE, "/dev/sdb1 is a spare or cache of a ZFS pool"),
    ],
)
def test_labels_that_are_refused(text, message):
    with pytest.raises(FlexdiskError, match=message):
        zfs.parse_label("/dev/sdb1", text)


def test_a_label_is_read():
    label = zfs.parse_label("/dev/sdb1", label_text("/dev/disk/by-id/ata-x-part1", whole=1))
    assert label == zfs.Label(POOL, GUID, "disk", True, "/dev/disk/by-id/ata-x-part1", SHIFT)


@pytest.mark.parametrize(
    ("text", "line", "code", "message"),
    [
        (label_text(), "", "NotMounted", "is not imported"),
        (label_text(), f"{POOL}\tONLINE\ton\ttank\n", "NotMounted", "tank on /dev/sdb1 is imported read-only"),
        (label_text(), f"{POOL}\tDEGRADED\toff\ttank\n", "UnknownLayout", "is DEGRADED, not ONLINE"),
    ],
)
def test_pools_that_are_refused(text, line, code, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        zfs.pool_name("/dev/sdb1", zfs.parse_label("/dev/sdb1", text), f"5\tONLINE\toff\trpool\n{line}")
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rows("/dev/sda1", 512 * MIB), "which does not use it"),  # sdb is a copy of sda
        (rows("/dev/sdb1", 512 * MIB, "FAULTED"), "/dev/sdb1 is FAULTED in the ZFS pool tank"),
        ("tank\t1\n\t/dev/sdb1\t-\t-\t-\n", "printed something unknown"),
    ],
)
def test_devices_that_are_refused(text, message):
    label = zfs.parse_label("/dev/sdb1", label_text())
    with pytest.raises(FlexdiskError, match=message):
        zfs.pool_layer("tank", "/dev/sdb1", label, "tank", text)


@pytest.mark.parametrize(
    ("text", "gained", "message"),
    [
        (shared_rows("/dev/sdb1"), 16 * MIB, "part of a mirror"),
        (shared_rows("/dev/sdb1", expandsz="1048576"), 0, "part of a mirror"),
        (shared_rows("/dev/sdb1", "replacing-0"), 0, "part of a mirror"),
        (rows("/dev/sdb1", 512 * MIB), 0, "part of a mirror"),
        ("logs  -  -  -\n" + shared_rows("/dev/sdb1", health="OFFLINE"), 0, "/dev/sdb1 is OFFLINE"),
        ("\tmirror-0\t1\n" + shared_rows("/dev/sdb1").splitlines()[-1], 0, "part of a mirror"),
    ],
)
def test_one_of_several_devices_that_is_refused(text, gained, message):
    label = zfs.parse_label("/dev/sdb1", label_text(kind="mirror"))
    zfs.check_member("/dev/sdb1", label, "tank", shared_rows("/dev/sdb1"), 16 * MIB - 1)
    with pytest.raises(FlexdiskError, match=message):
        zfs.check_member("/dev/sdb1", label, "tank", text, gained)


@pytest.mark.parametrize(
    ("path", "disk"),
    [
        ("/dev/vdb1", "/dev/vdb"),
        ("/dev/nvme0n1p1", "/dev/nvme0n1"),
        ("/dev/disk/by-id/virtio-11c1a5a7aaaa-part1", "/dev/disk/by-id/virtio-11c1a5a7aaaa"),
    ],
)
def test_the_disk_that_zpool_online_wants(path, disk):
    """zpool compares names: it must be the path in the label without the partition."""
    label = zfs.parse_label("/dev/x", label_text(path, whole=1))
    layer = zfs.pool_layer("tank", "/dev/x", label, "tank", rows("/dev/x", 512 * MIB))
    with pytest.raises(FlexdiskError, match=f"run: zpool online -e tank {disk}$"):
        zfs.check_whole(layer, label, "/dev/x", "tank", 900 * MIB)
    zfs.check_whole(layer, replace(label, whole_disk=False), "/dev/x", "tank", 900 * MIB)
    zfs.check_whole(layer, label, "/dev/x", "tank", 520 * MIB)
