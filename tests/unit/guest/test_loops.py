# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of guests that have grown, as loop devices with real file systems: all grows, and nothing else changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest import guest_apply, guest_grow
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.table import restorable
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import hashes, may_grow_ext4, run

SMALL, GROWN, ROOT = 700, 900, 550
LAYOUTS = {
    "gpt": f"label: gpt\nsize=10MiB, type=21686148-6449-6E6F-744E-656564454649\nsize={ROOT}MiB, name=root\n",
    "gpt swap": f'label: gpt\nsize={ROOT}MiB, name=root\nsize=40MiB, type=swap, name="swap space"\n',
    "dos": f"label: dos\nsize={ROOT}MiB, bootable\n",
    "dos swap": f"label: dos\nsize={ROOT}MiB, bootable\nsize=40MiB, type=82\n",
    # As Debian's installer has it
    "dos logical swap": (
        f"label: dos\nsize={ROOT}MiB, bootable\nstart=1130494, size=81922, type=5\nstart=1130496, size=81920, type=82\n"
    ),
    "dos logical": (
        f"label: dos\nsize=20MiB, bootable\nstart=49150, size={ROOT * 2048 + 2}, type=5\n"
        f"start=49152, size={ROOT * 2048}, type=83\n"
    ),
}
GROWS = {"gpt": 2, "dos logical": 5}
SWAPS = {"gpt swap": 2, "dos swap": 2, "dos logical swap": 5}
FULL = bool(os.environ.get("FLEXDISK_FULL"))


class Killed(BaseException):
    """Nothing in the collection catches it, as nothing can catch a SIGKILL."""


def space(target):
    figures = os.statvfs(target)
    return figures.f_blocks * figures.f_frsize


def swap_entry(disk, number):
    """What blkid says of a swap partition, read at its place in the table, not in the kernel's."""
    line = next(line for line in disk.dump().splitlines() if line.startswith(f"{disk.part(number)} "))
    start, size = (int(word.split("=")[1]) for word in line.split(" : ")[1].split(",")[:2])
    where = ("-O", str(start * 512), "-S", str(size * 512), disk.device)
    run("blockdev", "--flushbufs", disk.device)  # read before mkswap wrote through the partition, it would be old
    lines = run("blkid", "-p", "-o", "export", *where).splitlines()
    identity = [each for each in lines if each.startswith(("UUID", "LABEL", "TYPE", "VERSION"))]
    return identity, size, line.split(",", 2)[2]


def guest(new_disk, layout, kind, *, swap_on=True):
    """(disk, folder with files, number of the swap partition) of a guest whose disk has grown."""
    disk = new_disk(SMALL)
    disk.partition(LAYOUTS[layout])
    target = disk.put(kind, disk.part(GROWS.get(layout, 1)))
    swap = SWAPS.get(layout)
    if swap:
        run("mkswap", "-q", "-L", "my swap", disk.part(swap))
        uuid = run("blkid", "-p", "-o", "value", "-s", "UUID", disk.part(swap)).strip()
        disk.fstab(f"UUID={uuid} none swap sw 0 0\n")
        if swap_on:
            run("swapon", disk.part(swap))
    disk.to_size(GROWN)
    return disk, target, swap


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_grows(new_disk, layout, kind):
    disk, target, swap = guest(new_disk, layout, kind)
    before, size, table = hashes(target), space(target), disk.dump()
    swap_before = swap and swap_entry(disk, swap)
    predicted = disk.grow(check_mode=True)
    assert disk.dump() == table
    done = disk.grow()
    assert done == predicted
    assert done["changed"]
    assert restorable(table) in Path(done["backup"]).read_text()
    assert space(target) > size + (150 << 20)
    assert hashes(target) == before
    if swap:
        assert disk.part(swap) in Path("/proc/swaps").read_text()
        assert swap_entry(disk, swap) == swap_before
    assert not disk.grow()["changed"]
    disk.boot()
    assert hashes(target) == before
    disk.check()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_file_system_on_the_whole_disk_grows(new_disk, kind):
    disk = new_disk(SMALL)
    target = disk.put(kind, disk.device)
    before, size = hashes(target), space(target)
    disk.to_size(GROWN)
    done = disk.grow()
    assert (done["changed"], done["backup"]) == (True, "")
    assert space(target) > size + (150 << 20)
    assert hashes(target) == before
    assert not disk.grow()["changed"]
    disk.check()


class Writer(threading.Thread):
    """Appends to a file until it is stopped; all that it wrote must be there."""

    def __init__(self, path):
        super().__init__()
        self.path, self.going, self.digest, self.pieces = path, True, hashlib.sha256(), 0

    def run(self):
        with self.path.open("wb") as file:
            while self.going:
                piece = os.urandom(20_000)
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                self.digest.update(piece)
                self.pieces += 1


@pytest.mark.parametrize("kind", ["xfs", "btrfs", *(["ext4"] if may_grow_ext4() else [])])
@pytest.mark.parametrize("layout", ["gpt swap", "dos logical swap"])
def test_all_grows_while_a_process_writes(new_disk, layout, kind):
    disk, target, _swap = guest(new_disk, layout, kind)
    writer = Writer(target / "growing")
    writer.start()
    try:
        while not writer.pieces:
            time.sleep(0.01)
        before = writer.pieces
        disk.grow()
        after = writer.pieces
    finally:
        writer.going = False
        writer.join()
    assert after > before
    assert space(target) > 700 << 20
    assert hashlib.sha256(writer.path.read_bytes()).digest() == writer.digest.digest()
    disk.check()


class OldSfdisk(SubprocessRunner):
    """It does not say the size of sectors."""

    def __call__(self, argv, stdin="", timeout=300):
        answer = super().__call__(argv, stdin, timeout)
        text = re.sub(r'"sectorsize":\s*\d+,?|sector-size: \d+\n', "", answer.stdout)
        return replace(answer, stdout=text) if argv[0] == "sfdisk" else answer


class Sfdisk235(SubprocessRunner):
    """It refuses the size of sectors that it prints."""

    def __call__(self, argv, stdin="", timeout=300):
        if argv[0] == "sfdisk" and "sector-size:" in stdin:
            return Answer(1, "", "line 5: unsupported header 'sector-size'")
        return super().__call__(argv, stdin, timeout)


class NoSfdisk(SubprocessRunner):
    """It refuses every table."""

    def __call__(self, argv, stdin="", timeout=300):
        self.called = [*getattr(self, "called", []), argv[0]]
        return Answer(1, "", "line 1: no") if stdin else super().__call__(argv, stdin, timeout)


def test_a_table_that_sfdisk_does_not_take_is_refused_before_the_swap_is_off(new_disk):
    disk = new_disk(SMALL)
    disk.partition(LAYOUTS["gpt swap"])
    disk.put("xfs", disk.part(1))
    run("mkswap", "-q", disk.part(2))
    disk.to_size(GROWN)
    runner = NoSfdisk()
    for check_mode in (True, False):
        with pytest.raises(FlexdiskError, match="line 1: no"):
            disk.grow(runner, check_mode=check_mode)
    assert not {"swapoff", "partx"} & {*runner.called}


@pytest.mark.parametrize("runner", [SubprocessRunner, OldSfdisk, Sfdisk235])
def test_sectors_of_4096_bytes(new_disk, runner):
    disk = new_disk(SMALL, sector=4096)
    disk.partition(LAYOUTS["gpt swap"])
    target = disk.put("xfs", disk.part(1))
    run("mkswap", "-q", disk.part(2))
    before = hashes(target)
    disk.to_size(GROWN)
    assert disk.grow(runner())["changed"]
    assert space(target) > 700 << 20
    assert hashes(target) == before
    assert run("blkid", "-p", "-o", "value", "-s", "TYPE", disk.part(2)).strip() == "swap"
    assert not disk.grow(runner())["changed"]
    disk.check()


def killed_before(monkeypatch, disk, number):
    """Whether a run has been killed before its step of this number."""
    steps = count()
    plain = guest_apply.GuestApplier.step

    def step(self, device, label):
        if next(steps) == number:
            raise Killed
        plain(self, device, label)

    with monkeypatch.context() as patch:
        patch.setattr(guest_apply.GuestApplier, "step", step)
        try:
            disk.grow()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("boot", [False, True], ids=["", "booted"])
@pytest.mark.parametrize("kind", ["xfs", *(("ext4", "btrfs") if FULL else ())])
@pytest.mark.parametrize("layout", [*SWAPS, "gpt"] if FULL else ["gpt swap", "dos logical swap"])
def test_a_killed_run_is_continued(new_disk, monkeypatch, layout, kind, boot):
    """Killed before each step, sampled without FLEXDISK_FULL=1. Each time, what lies on the disk can be booted."""
    for number in count(0 if FULL else boot, 1 if FULL else 2):
        disk, target, swap = guest(new_disk, layout, kind)
        before, swap_before = hashes(target), swap and swap_entry(disk, swap)
        if not killed_before(monkeypatch, disk, number):
            assert number > 3
            break
        assert not swap or swap_entry(disk, swap) == swap_before
        if boot:
            disk.boot()
        again = disk.grow()
        assert again["changed"]
        assert space(target) > 700 << 20
        assert hashes(target) == before
        if swap:
            assert disk.part(swap) in Path("/proc/swaps").read_text()
            assert swap_entry(disk, swap) == swap_before
        assert not disk.grow()["changed"]
        disk.check()
        disk.close()


def mbr_entry(disk):
    """The first bytes of the protective MBR's entry: its flag, its place in the old way of counting, its type."""
    with open(disk.device, "rb") as file:
        return file.read(512)[446:451]


@pytest.mark.parametrize("active", [True, False])
def test_the_active_flag_of_a_protective_mbr_is_kept(new_disk, active):
    disk, _target, _swap = guest(new_disk, "gpt", "xfs")
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "-A", disk.device, "1" if active else "-")
    before = mbr_entry(disk)
    assert before[0] == 0x80 * active
    done = disk.grow()
    assert mbr_entry(disk) == before
    assert ("--activate" in Path(done["backup"]).read_text()) == active
    assert [path.name for path in (disk.folder / "backups").iterdir()] == [Path(done["backup"]).name]
    assert not disk.grow()["changed"]


def test_the_active_flag_is_kept_by_a_killed_run_and_the_next(new_disk, monkeypatch):
    count_retained = 0
    for number in count():
        disk, _target, _swap = guest(new_disk, "gpt", "xfs")
        run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", "-A", disk.device, "1")
        before = mbr_entry(disk)
        if not killed_before(monkeypatch, disk, number):
            break
        count_retained += mbr_entry(disk) == before
        disk.grow()
        assert mbr_entry(disk) == before
        assert not list((disk.folder / "backups").glob("*.active"))
        assert not disk.grow()["changed"]
        disk.close()
    assert number - 1 == count_retained, "it is off before one of the steps only"


def test_a_failed_write_of_the_table_leaves_the_swap_on(new_disk, monkeypatch):
    disk, _target, swap = guest(new_disk, "gpt swap", "xfs")
    table = disk.dump()

    def fail(*_words):
        raise FlexdiskError("FileFailed", "no")

    monkeypatch.setattr(guest_apply, "copy_swap_header", fail)
    with pytest.raises(FlexdiskError, match="no"):
        disk.grow()
    assert disk.dump() == table
    assert disk.part(swap) in Path("/proc/swaps").read_text()
    monkeypatch.undo()
    assert disk.grow()["changed"]


def test_a_swap_with_bad_pages_is_found_before_anything_changes(new_disk):
    disk, _target, swap = guest(new_disk, "gpt swap", "xfs")
    table = disk.dump()
    start = int(Path(f"/sys/class/block/{disk.kname}p{swap}/start").read_text()) * 512
    with open(disk.device, "r+b") as file:
        file.seek(start + 1032)
        file.write(b"\3")
    for check_mode in (True, False):
        with pytest.raises(FlexdiskError, match=r"p2 cannot be moved: it has 3 bad pages"):
            disk.grow(check_mode=check_mode)
    assert disk.dump() == table
    assert not (disk.folder / "backups").exists()
    assert disk.part(swap) in Path("/proc/swaps").read_text()


@pytest.mark.parametrize("removed", [False, True])
def test_a_swap_that_was_turned_on_by_another_name(new_disk, removed):
    """The kernel tells the name by which it was turned on, and whether that has been removed since."""
    disk, target, swap = guest(new_disk, "gpt swap", "xfs", swap_on=False)
    disk.fstab("")
    other, where = disk.folder / "a device", os.stat(disk.part(swap)).st_rdev
    os.mknod(other, 0o600 | stat.S_IFBLK, where)
    run("swapon", str(other))
    if removed:
        other.unlink()
        os.mknod(other, 0o600 | stat.S_IFBLK, where)
    assert disk.grow()["changed"]
    assert disk.part(swap) in Path("/proc/swaps").read_text()
    assert space(target) > 700 << 20
    assert not disk.grow()["changed"]


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("limit", ["size=256k", "nr_inodes=2"])
def test_a_full_file_system_has_no_room_for_the_backup(new_disk, monkeypatch, limit, seen):
    """Whether it is seen before, or another program takes the room meanwhile."""
    disk, _target, _swap = guest(new_disk, "gpt swap", "xfs")
    table, full = disk.dump(), disk.folder / "full"
    full.mkdir()
    run("mount", "-t", "tmpfs", "-o", limit, "tmpfs", str(full))
    try:
        with contextlib.suppress(OSError), (full / "file").open("wb", buffering=0) as file:
            while limit.startswith("size"):
                file.write(bytes(4096))
        folder = str(full / "backups") if seen else str(full)
        if not seen:
            monkeypatch.setattr(guest_apply, "check_room", lambda *_what: None)
        for check_mode in (True, False) if seen else (False,):
            with pytest.raises(FlexdiskError, match=rf"backup {folder}/.* needs \d+ bytes, and its .* full") as refused:
                disk.grow(backup_dir=folder, check_mode=check_mode)
            assert refused.value.code == "InsufficientSpace"
        assert [path.name for path in full.iterdir()] == ["file"]
    finally:
        run("umount", str(full))
    assert disk.dump() == table
    assert disk.grow()["changed"]


def test_a_swap_that_is_off_stays_off_if_fstab_does_not_name_it(new_disk):
    disk, _target, swap = guest(new_disk, "gpt swap", "xfs", swap_on=False)
    disk.fstab("")
    assert disk.grow()["changed"]
    assert disk.part(swap) not in Path("/proc/swaps").read_text()


def test_somebody_changes_the_table_meanwhile(new_disk, monkeypatch):
    disk, _target, _swap = guest(new_disk, "gpt", "xfs")
    plan = guest_grow.plan

    def slow(result):
        run("sfdisk", "-q", "--no-reread", "--part-label", disk.device, "1", "other")
        return plan(result)

    monkeypatch.setattr(guest_grow, "plan", slow)
    with pytest.raises(FlexdiskError, match="somebody has changed"):
        disk.grow()
    assert "other" in disk.dump()


@pytest.mark.parametrize("first", [1, 2])
def test_a_btrfs_on_several_devices_is_refused_with_what_to_do(new_disk, first):
    """Whichever of its devices the mount names."""
    disk = new_disk(SMALL)
    disk.partition("label: gpt\nsize=200MiB\nsize=200MiB\n")
    run("mkfs.btrfs", "-q", "-f", disk.part(first), disk.part(3 - first))
    run("btrfs", "device", "scan", disk.part(1), disk.part(2))
    target = disk.folder / "mount"
    target.mkdir()
    run("mount", "-t", "btrfs", disk.part(1), str(target))
    disk.mounts.append((disk.part(1), target, "btrfs"))
    disk.to_size(GROWN)
    table = disk.dump()
    with pytest.raises(FlexdiskError, match=rf"p2 has 2 devices .* run: btrfs filesystem resize {3 - first}:max"):
        disk.grow()
    assert disk.dump() == table


def test_refused_layouts(new_disk):
    unknown = new_disk(SMALL)
    unknown.partition(LAYOUTS["gpt"] + "size=20MiB\n")
    unknown.put("xfs", unknown.part(2))
    unknown.to_size(GROWN)
    read_only = new_disk(SMALL)
    read_only.partition(LAYOUTS["dos"])
    target = read_only.put("xfs", read_only.part(1))
    run("mount", "-o", "remount,ro", str(target))
    read_only.to_size(GROWN)
    for disk, message in ((unknown, "the last one, has nothing that is known"), (read_only, "mounted read-only at")):
        table = disk.dump()
        for check_mode in (True, False):
            with pytest.raises(FlexdiskError, match=message):
                disk.grow(check_mode=check_mode)
        assert disk.dump() == table
