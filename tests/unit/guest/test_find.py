# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disk of a guest is meant: by serial number, uuid or PCI address, never by the name that it has today."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_observe import (
    GrowthOptions,
    Guest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_room import RoomReader
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

DISKS = {
    "vda": ("pci0000:00/0000:00:04.0/virtio1/block/vda", "11c1a5a7aaaabbbbcccc"),
    "vdb": ("pci0000:00/0000:00:02.0/0000:01:00.0/virtio2/block/vdb", ""),
    "sda": ("pci0000:00/0000:00:05.0/virtio3/host0/block/sda", "A"),
    "sdb": ("pci0000:00/0000:00:05.0/virtio3/host0/block/sdb", "B"),
}


@pytest.fixture
def guest(tmp_path):
    (tmp_path / "sys/block").mkdir(parents=True)
    rows = []
    for name, (path, serial) in DISKS.items():
        (tmp_path / "sys/devices" / path).mkdir(parents=True)
        (tmp_path / "sys/block" / name).symlink_to(f"../devices/{path}")
        rows.append({"name": name, "kname": name, "type": "disk", "size": 1, "serial": serial or None})
    (tmp_path / "sys/block/vdb/serial").write_text("fromsysfs\n")
    rows.append({"name": "loop0", "kname": "loop0", "type": "loop", "size": 1, "serial": "L"})

    def run(argv, stdin="", timeout=0):
        assert argv[0] == "lsblk"
        return Answer(0, json.dumps({"blockdevices": rows}), "")

    return Guest(run, str(tmp_path))


def test_a_table_of_which_sfdisk_tells_nothing_is_named(tmp_path):
    """An old sfdisk has no -J."""
    row = {"name": "vda", "kname": "vda", "type": "disk", "size": 1}
    answers = {
        "lsblk": Answer(0, json.dumps({"blockdevices": [row]}), ""),
        "blockdev": Answer(0, "", ""),
        "blkid": Answer(0, "DEVNAME=/dev/vda\nPTUUID=1\nPTTYPE=gpt\n", ""),
        "sfdisk": Answer(1, "", "sfdisk: invalid option -- 'J'"),
    }
    reader = RoomReader(lambda argv, **_more: answers[argv[0]], str(tmp_path))
    message = r"has a partition table \(gpt\), of which sfdisk -J tells nothing \(before util-linux 2.27 it has no -J\)"
    with pytest.raises(FlexdiskError, match=message):
        reader.read("vda", GrowthOptions())
    assert "a partition table (gpt), of which" in reader.room("vda").reason


@pytest.mark.parametrize(
    ("serial", "address", "kname"),
    [
        ("11c1a5a7aaaabbbbcccc", None, "vda"),
        ("fromsysfs", None, "vdb"),
        (None, "0000:00:04.0", "vda"),
        (None, "00:04.0", "vda"),
        (None, "01:00.0", "vdb"),
    ],
)
def test_found(guest, serial, address, kname):
    assert guest.find(serial, address) == kname


@pytest.mark.parametrize(
    ("serial", "address", "code", "message"),
    [
        (
            "11c1",
            None,
            "ResourceNotFound",
            r"no disk with the serial number 11c1; there are vda \(11c1a5a7aaaabbbbcccc\)",
        ),
        ("L", None, "ResourceNotFound", "no disk with"),
        ("", None, "ResourceNotFound", "no disk with"),
        (None, "00:05.0", "Ambiguous", "several disks at the PCI address 0000:00:05.0: sda, sdb"),
        (None, "00:02.0", "ResourceNotFound", "no disk at the PCI address 0000:00:02.0"),
        (None, "/dev/vda", "InvalidArgument", "pci_address /dev/vda is not like"),
    ],
)
def test_not_found(guest, serial, address, code, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        guest.find(serial, address)
    assert refused.value.code == code


def node(name, kind, numbers, *above, kname=""):
    """A device as lsblk -J shows it."""
    row = {"name": name, "kname": kname or name, "type": kind, "size": 1, "serial": None, "maj:min": numbers}
    return {**row, "children": list(above)} if above else row


ROOT = node("vg0-my--root", "lvm", "254:0", kname="dm-0")
SWAP = node("vg0-swap", "lvm", "254:1", kname="dm-1")
PLAIN = node("vda", "disk", "254:0", node("vda1", "part", "8:1"), node("vda2", "part", "8:2"))
LUKS = node("vdb", "disk", "254:16", node("vdb1", "part", "254:17", node("crypt", "crypt", "254:2", ROOT, SWAP)))
OTHER = node("vdc", "disk", "254:32", ROOT)
MOUNTS = {
    "plain": ("/dev/vda1", "ext4", "8:1"),
    "old name": ("/dev/root", "ext4", "8:2"),
    "btrfs": ("/dev/vda2[/@rootfs]", "btrfs", "0:25"),
    "lvm": ("/dev/mapper/vg0-my--root", "xfs", "254:0"),
    "zfs": ("rpool/ROOT/debian", "zfs", "0:27"),
    "zfs mirror": ("bpool", "zfs", "0:28"),
    "overlay": ("overlay", "overlay", "0:31"),
}
# As zpool list -HvLP prints; of the rest only names are looked at.
POOLS = {
    "rpool": "rpool\t19G\t1G\t18G\t-\t-\t0%\t5%\t1.0x\tONLINE\t-\n\t/dev/vda2\t19G\t1G\t18G\t-\t-\t0%\t5%\t-\tONLINE\n",
    "bpool": "bpool\t1G\n\tmirror-0\t1G\t1G\t1G\t-\t-\t0%\t5%\t-\tONLINE\n\t/dev/vda1\t-\n\t/dev/vdb1\t-\n",
}


def booted(tmp_path, disks, mount):
    source, kind, numbers = MOUNTS[mount]
    rows = [{"source": source, "target": "/", "fstype": kind, "options": "rw", "maj:min": numbers}]

    def run(argv, stdin="", timeout=0):
        if argv[0] == "lvs":
            assert argv[-1] == "/dev/mapper/vg0-my--root"
            return Answer(0, "  my-root\n", "")
        if argv[0] == "zpool":
            assert argv[1:3] == ("list", "-HvLP")
            return Answer(0, POOLS[argv[3]], "")
        answer = {"lsblk": {"blockdevices": disks}, "findmnt": {"filesystems": rows}}[argv[0]]
        return Answer(0, json.dumps(answer), "")

    return Guest(run, str(tmp_path))


@pytest.mark.parametrize(
    ("disks", "mount", "expected"),
    [
        ([PLAIN, LUKS], "plain", ("vda", None)),
        ([LUKS, PLAIN], "old name", ("vda", None)),
        ([LUKS, PLAIN], "btrfs", ("vda", None)),
        ([node("vda", "disk", "8:0"), LUKS], "lvm", ("vdb", "my-root")),
        ([LUKS, PLAIN], "zfs", ("vda", None)),
    ],
)
def test_the_disk_below_a_mount_point(tmp_path, disks, mount, expected):
    assert booted(tmp_path, disks, mount).below("/") == expected


@pytest.mark.parametrize(
    ("disks", "mount", "where", "code", "message"),
    [
        ([PLAIN], "plain", "/home", "NotMounted", "nothing is mounted at /home"),
        ([PLAIN], "overlay", "/", "ResourceNotFound", "no disk is below overlay on overlay at /"),
        ([PLAIN, LUKS], "zfs mirror", "/", "Ambiguous", "pool bpool has several devices: /dev/vda1, /dev/vdb1"),
        ([LUKS], "zfs", "/", "ResourceNotFound", "no disk is below zfs on /dev/vda2 at /"),
        ([LUKS, OTHER], "lvm", "/", "Ambiguous", "several disks are below /: vdb, vdc"),
    ],
)
def test_no_disk_below_a_mount_point(tmp_path, disks, mount, where, code, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        booted(tmp_path, disks, mount).below(where)
    assert refused.value.code == code
