# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are disks, on a real file system."""

from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import files as module
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.files import Files

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path):
    return str(tmp_path / "disk.raw")


def test_a_file_is_made_and_sized(disk):
    files = Files()
    assert files.size(disk) == -1
    files.make(disk, 8 * MIB)
    assert (files.size(disk), stat.S_IMODE(os.stat(disk).st_mode)) == (8 * MIB, 0o600)
    with open(disk, "r+b") as handle:
        handle.write(b"x" * MIB)
    files.make(disk, 8 * MIB)
    files.resize(disk, 16 * MIB)
    with open(disk, "rb") as handle:
        assert handle.read() == b"x" * MIB + bytes(15 * MIB)
    files.resize(disk, MIB // 2)
    assert files.size(disk) == MIB // 2


def test_a_link_in_its_place_is_not_followed(disk, tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    os.symlink(tmp_path / "other", disk)
    for method in (Files().make, Files().resize):
        with pytest.raises(ZfsError, match=r"disk\.raw"):
            method(disk, 1)
    assert (tmp_path / "other").read_bytes() == b"precious"


def test_a_copy_is_whole_leaves_holes_and_tells(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", MIB)
    source = tmp_path / "source"
    content = os.urandom(MIB + 5) + bytes(3 * MIB) + b"end"
    source.write_bytes(content)
    Files().make(disk, len(content))
    progress = []
    Files().copy(str(source), disk, len(content), progress.append)
    with open(disk, "rb") as handle:
        assert handle.read() == content
    assert progress == [MIB, 2 * MIB, 3 * MIB, 4 * MIB, len(content)]
    assert os.stat(disk).st_blocks * 512 < 4 * MIB, "zeros are not written"


def test_what_is_too_short_is_told(disk, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 10)
    Files().make(disk, 20)
    with pytest.raises(ZfsError, match="ends after 10 of 20 bytes"):
        Files().copy(str(source), disk, 20, lambda done: None)


def test_what_is_not_there_is_named(disk):
    with pytest.raises(ZfsError, match=r"disk\.raw: No such file") as caught:
        Files().resize(disk, 1)
    assert caught.value.code == "FileFailed"


def test_only_an_empty_folder_goes(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "none"):
        Files().remove_folder(str(tmp_path / name))
    assert [p.name for p in tmp_path.iterdir()] == ["full"]


def test_a_file_goes_once(tmp_path):
    (tmp_path / "file").touch()
    assert Files().exists(str(tmp_path / "file"))
    for _again in range(2):
        Files().remove(str(tmp_path / "file"))
    assert not Files().exists(str(tmp_path / "file"))
    assert Files().exists(str(tmp_path))
    with pytest.raises(ZfsError, match=str(tmp_path)):
        Files().remove(str(tmp_path))


MOUNTED = """rootfs / rootfs rw 0 0
/dev/vda1 / ext4 rw 0 0
tank/a /disks/a zfs rw,xattr 0 0
tank/a\\040b /disks/a\\040b zfs rw,xattr 0 0
"""


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    def told(text):
        (tmp_path / "mounts").write_text(text)
        monkeypatch.setattr(module, "MOUNTS", str(tmp_path / "mounts"))
        return Files().mounted

    return told


def test_what_is_mounted_by_its_name(mounts):
    mounted = mounts(MOUNTED)
    assert mounted("/disks/a", "tank/a")
    assert mounted("/disks/a b", "tank/a b")
    assert not mounted("/disks", "tank")
    assert not mounted("/disks/b", "tank/b")


@pytest.mark.parametrize(
    "more", ["backup/a /disks/a zfs rw 0 0\n", "tmpfs /disks tmpfs rw 0 0\n"], ids=["there", "above"]
)
def test_another_that_covers_it_is_told(mounts, more):
    mounted = mounts(MOUNTED + more)
    with pytest.raises(ZfsError, match=r"is mounted at /disks.*, where tank/a belongs") as caught:
        mounted("/disks/a", "tank/a")
    assert caught.value.code == "Changed"
    assert mounts(MOUNTED + more + "tank/a /disks/a zfs rw 0 0\n")("/disks/a", "tank/a")


def test_what_this_system_has_mounted():
    assert not Files().mounted("/no/such/folder", "tank/a")
    with pytest.raises(ZfsError, match="where tank/a belongs"):
        Files().mounted("/", "tank/a")


def test_a_device_is_found_by_a_link(tmp_path, monkeypatch):
    """As udev makes them; and what is no block device is not written to."""
    monkeypatch.setattr(module, "DEVICES", f"{tmp_path}/")
    monkeypatch.setattr(module.stat, "S_ISBLK", stat.S_ISREG)
    (tmp_path / "zd0").write_bytes(bytes(10))
    (tmp_path / "disk0").symlink_to("zd0")
    (tmp_path / "source").write_bytes(b"0123456789")
    Files().copy(str(tmp_path / "source"), str(tmp_path / "disk0"), 10, lambda done: None)
    assert (tmp_path / "zd0").read_bytes() == b"0123456789"
    monkeypatch.undo()
    monkeypatch.setattr(module, "DEVICES", f"{tmp_path}/disk0")
    with pytest.raises(ZfsError, match="disk0 is no block device"):
        Files().copy(str(tmp_path / "source"), str(tmp_path / "disk0"), 10, lambda done: None)


def test_a_copy_is_synced(disk, tmp_path, monkeypatch):
    """What it was made of goes after it."""
    (tmp_path / "source").write_bytes(b"x")
    Files().make(disk, 1)
    synced = []
    monkeypatch.setattr(module.os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    Files().copy(str(tmp_path / "source"), disk, 1, lambda done: None)
    assert synced == [disk]


def test_who_keeps_a_file_system_busy(tmp_path, monkeypatch):
    """A place or an open file on its device does, also one that was deleted. What has ended meanwhile does not."""
    for process, link, to in (
        ("7", "cwd", "/proc"),
        ("12", "fd/3", "/proc/version"),
        ("13", "map_files/1-2", "/proc/version"),
        ("14", "cwd", tmp_path),
        ("15", "fd/3", tmp_path / "gone"),
        ("self", "cwd", "/proc"),
    ):
        path = tmp_path / process / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)
        (tmp_path / process / "comm").write_text(f"of{process}\n")
    (tmp_path / "12" / "comm").unlink()
    monkeypatch.setattr(module, "PROCESSES", str(tmp_path))
    assert Files().programs("/proc") == ["of7 (7)", "? (12)", "of13 (13)"]
