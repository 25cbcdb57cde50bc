# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module guest_growth_info: on loop devices with real file systems, by programs that are played, and its words."""

from __future__ import annotations

import json
import os
import re
from functools import partial

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import (
    guest_growth_info as engine,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import guest_room
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_room import (
    RoomReader,
    result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_growth_info

from .conftest import hashes, new_runner, run

UUID = "11c1a5a7-aaaa-4bbb-8ccc-000000000001"
DOCUMENTED = yaml.safe_load(guest_growth_info.RETURN)
MIB = 1 << 20


def asked(disk):
    return result(RoomReader(new_runner(), str(disk.root)).room(disk.kname))


# -- loop devices


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_gpt_shrinks_to_its_last_partition(new_disk, sector):
    """As the page says: the second header first, then the disk, then the header again. Nothing is lost."""
    disk = new_disk(700, sector)
    disk.partition("label: gpt\nsize=100MiB\nsize=400MiB\n")
    target = disk.put("ext4", disk.part(2))
    before, table = hashes(target), disk.dump()
    whole = asked(disk)
    assert (whole["min_size_mib"], whole["reason"]) == (700, "its GPT lets partitions reach to its end")
    assert whole["end_bytes"] == 501 * MIB
    assert whole["backup_bytes"] == (33 if sector == 512 else 5) * sector
    assert whole["relocated_min_size_mib"] == 502
    assert disk.dump() == table
    run(*whole["relocate"].split())
    actual = asked(disk)
    assert (actual["min_size_mib"], actual["relocate"], actual["reason"]) == (502, "", "")
    assert not actual["changed"]
    disk.to_size(actual["min_size_mib"])
    run("sfdisk", "-q", "--relocate", "gpt-bak-std", disk.device)
    assert asked(disk)["min_size_mib"] == 502
    disk.boot()
    assert hashes(target) == before
    disk.check()


def test_growth_puts_the_second_header_back(new_disk):
    disk = new_disk(700)
    disk.partition("label: gpt\nsize=550MiB\n")
    disk.put("xfs", disk.part(1))
    run(*asked(disk)["relocate"].split())
    assert asked(disk)["min_size_mib"] == 552
    assert disk.grow()["changed"]
    assert (asked(disk)["min_size_mib"], asked(disk)["relocate"]) == (700, "")
    assert "No errors" in run("sfdisk", "--verify", disk.device)
    disk.check()


def test_an_mbr_shrinks_to_its_last_partition(new_disk):
    disk = new_disk(700)
    disk.partition("label: dos\nsize=400MiB\nstart=821248, size=100000, type=5\nstart=823296, size=97951, type=82\n")
    actual = asked(disk)
    assert (actual["table"], actual["min_size_bytes"], actual["min_size_mib"]) == ("dos", 921248 * 512, 450)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_file_system_on_the_whole_disk(new_disk, kind):
    disk = new_disk(400)
    target = disk.put(kind, disk.device)
    disk.to_size(700)
    actual = asked(disk)
    assert (actual["table"], actual["content"], actual["min_size_mib"]) == ("", kind, 400)
    before = hashes(target)
    disk.to_size(actual["min_size_mib"])
    assert asked(disk)["reason"] == f"the {kind} on it takes all of it"
    assert hashes(target) == before
    run("umount", str(target))
    disk.to_size(700)
    closed = asked(disk)
    assert closed["min_size_mib"] == (400 if kind == "ext4" else 700)
    assert ("is not mounted" in closed["reason"]) == (kind != "ext4")
    disk.mounts = []


def test_real_lvm_on_the_whole_disk(new_disk, monkeypatch, tmp_path):
    folder = tmp_path / "lvm"
    folder.mkdir()
    (folder / "lvm.conf").write_text("global { activation = 0 }\ndevices { use_devicesfile = 0 }\n")
    monkeypatch.setenv("LVM_SYSTEM_DIR", str(folder))
    disk = new_disk(300)
    run("pvcreate", "-q", disk.device)
    assert "without volume group" in asked(disk)["reason"]
    group = f"flexdisk-{os.getpid()}"
    run("vgcreate", "-q", group, disk.device)
    disk.to_size(400)
    assert 297 <= asked(disk)["min_size_mib"] <= 301
    run("pvresize", "-q", "-y", "--setphysicalvolumesize", "200M", disk.device)
    actual = asked(disk)
    assert (actual["content"], actual["min_size_mib"]) == ("LVM2_member", 201)
    disk.to_size(actual["min_size_mib"])
    assert "smaller" not in run("vgck", group)
    disk.to_size(400)
    run("vgremove", "-q", "-y", group)
    run("pvcreate", "-q", "-ff", "-y", "--metadatacopies", "2", disk.device)
    run("vgcreate", "-q", group, disk.device)
    assert "second copy" in asked(disk)["reason"]


def test_what_is_not_known_takes_the_whole_disk(new_disk):
    disk = new_disk(300)
    assert asked(disk)["reason"] == "it has nothing that is known on it"
    run("mkswap", "-q", disk.device)
    assert (asked(disk)["content"], asked(disk)["reason"]) == ("swap", "how far its swap reaches is not known")
    run("wipefs", "-q", "-a", disk.device)
    run("sfdisk", "-q", disk.device, stdin="label: sun\n")
    assert asked(disk)["reason"] == "the partition table is of type sun, not gpt or dos"
    assert asked(disk)["min_size_bytes"] == 300 * MIB


# -- programs that are played


class Played:
    """A disk vdb of 50 MiB with LUKS or something else on it."""

    def __init__(self, kind="crypto_LUKS", above=(("data", "crypt"),), table=1):
        self.kind, self.above, self.table = kind, above, table

    def __call__(self, argv, stdin="", timeout=0):
        return getattr(self, argv[0])(argv)

    def blockdev(self, _argv):
        return Answer(0, "", "")

    def sfdisk(self, _argv):
        return Answer(self.table, "junk", "")

    def lsblk(self, _argv):
        above = [{"name": name, "kname": "dm-0", "type": kind, "size": 1} for name, kind in self.above]
        disk = {"name": "vdb", "kname": "vdb", "type": "disk", "size": 50 * MIB, "children": above}
        return Answer(0, json.dumps({"blockdevices": [disk]}), "")

    def blkid(self, _argv):
        return Answer(0, f"TYPE={self.kind}\n" if self.kind else "PTTYPE=gpt\n", "")

    def cryptsetup(self, argv):
        assert argv == ("cryptsetup", "status", "data")
        return Answer(0, "  offset:  32768 sectors\n  size:    20480 sectors\n", "")

    def pvs(self, _argv):
        return Answer(5, "", "no such volume")

    def findmnt(self, _argv):
        return Answer(0, json.dumps({"filesystems": []}), "")


def played(*changes, **more):
    return result(RoomReader(Played(*changes, **more), "/nowhere").room("vdb"))


def test_luks_ends_with_what_is_open():
    actual = played()
    assert (actual["content"], actual["min_size_bytes"], actual["min_size_mib"]) == ("crypto_LUKS", 26 * MIB, 26)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"above": ()}, "its LUKS device is not open, or nothing uses it"),
        ({"above": [("data", "crypt"), ("more", "crypt")]}, "its LUKS device is not open, or data, more uses it"),
        ({"kind": "LVM2_member"}, "pvs --reportformat json .* no such volume"),
        ({"kind": "ext4"}, "it has ext4 on it, but data uses it"),
        ({"kind": "zfs_member", "above": ()}, "a ZFS pool cannot shrink"),
        ({"kind": "ext4", "table": 0}, "it has a partition table and ext4 on it"),
        ({"kind": "", "table": 0, "above": [("md0", "raid1")]}, "md0 uses it as a whole"),
    ],
)
def test_what_takes_the_whole_disk(changes, reason):
    actual = played(**changes)
    assert re.fullmatch(reason, actual["reason"])
    assert (actual["min_size_bytes"], actual["min_size_mib"]) == (50 * MIB, 50)


def test_a_table_that_sfdisk_does_not_print_is_an_error(monkeypatch):
    monkeypatch.setattr(guest_room, "read_bytes", lambda _path, _start, size: bytes(size))
    with pytest.raises(FlexdiskError, match="sfdisk -J printed something unknown"):
        played(kind="", above=(), table=0)


def test_a_damaged_gpt_takes_the_whole_disk(new_disk):
    """sfdisk answers from the other header. After a shrink, there would be none."""
    disk = new_disk(100)
    disk.partition('label: gpt\nstart=2048, size=20480, name="a"\n')
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--relocate", "gpt-bak-mini", disk.device)
    assert asked(disk)["min_size_mib"] == 12
    with open(disk.device, "r+b") as file:
        file.seek(1024 + 56)
        file.write(b"b")
    actual = asked(disk)
    assert (actual["min_size_mib"], actual["reason"][:20]) == (100, "sfdisk says of it: T")


def test_a_disk_that_cannot_be_read():
    with pytest.raises(FlexdiskError, match="/dev/nosuchdisk cannot be read"):
        guest_room.read_bytes("/dev/nosuchdisk", 0, 512)


# -- the module


@pytest.fixture
def module(answer_of):
    return partial(answer_of, guest_growth_info)


def test_results_are_as_documented(module, monkeypatch):
    looked_for = []
    monkeypatch.setattr(engine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "SubprocessRunner", Played)
    monkeypatch.setattr(engine.RoomReader, "find", lambda _self, *label: looked_for.append(label) or "vdb")
    predicted, done = (module(check, disk_uuid=UUID.upper()) for check in (True, False))
    assert looked_for == [("11c1a5a7aaaa4bbb8ccc", None)] * 2
    assert predicted == done
    success = {key for key, value in DOCUMENTED.items() if value["returned"] != "failure"}
    assert set(done) - {"changed", "invocation"} == success
    assert done["msg"] == "/dev/vdb: 50 MiB, can shrink to 26 MiB"
    assert module(pci_address="00:04.0")["min_size_mib"] == 26
    assert looked_for[-1] == (None, "00:04.0")


def test_an_ansible_core_that_is_too_old_is_refused(answer_of, monkeypatch):
    monkeypatch.setattr(guest_growth_info, "__version__", "2.18.19")
    assert answer_of(guest_growth_info, serial="none")["error_code"] == "AnsibleTooOld"
