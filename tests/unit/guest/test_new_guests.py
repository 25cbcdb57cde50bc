# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user-data of new guests: what it writes, and what its program does with real disks, file systems and tools."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import yaml
from tree import python_folders

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.table import restorable
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_growth

from .conftest import hashes, may_grow_ext4, run
from .test_loops import FULL, GROWN, SMALL, SWAPS, guest, space, swap_entry

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "extensions" / "guests" / "flexdisk_user_data.py"
PROGRAM = TOOL.with_name("flexdisk_growth.py")
PYTHONS = [sys.executable, *(str(folder / f"python{version}") for version, folder in python_folders().items())]
CLOUD = "/var/lib/cloud"
# Each program that changes something. $COUNT has a line for each start; the one that makes it $LAST lines kills first.
KILLER = """\
#!/bin/sh
name=${0##*/}
case "$name $*" in
"sfdisk -J"* | "sfdisk -d"* | "xfs_growfs -n"*) ;;
*)
    echo "$name" >> "$COUNT"
    [ "$(wc -l < "$COUNT")" -ne "$LAST" ] || { kill -9 $PPID; exit 1; }
    ;;
esac
PATH=${PATH#*:} exec "$name" "$@"
"""


@pytest.fixture(scope="session")
def user_data():
    return subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def program(user_data, tmp_path_factory):
    """What the shell makes of bootcmd, as cloud-init runs it, in another folder."""
    folder = tmp_path_factory.mktemp("cloud")
    (folder / "scripts" / "per-boot").mkdir(parents=True)
    for _boot in range(2):
        bootcmd(user_data, folder, check=True)
    (made,) = (folder / "scripts" / "per-boot").iterdir()
    assert [*(folder / "scripts").iterdir()] == [made.parent]
    return made


def bootcmd(user_data, folder, *, check=False, path=os.environ["PATH"]):
    (command,) = yaml.safe_load(user_data)["bootcmd"]
    (folder / "boot.sh").write_text(f"#!/bin/sh\n{command.replace(CLOUD, str(folder))}\n")
    return subprocess.run(["/bin/sh", folder / "boot.sh"], check=check, env={"PATH": path})


def test_a_program_that_cannot_be_written_leaves_the_old_one(user_data, tmp_path):
    (tmp_path / "scripts" / "per-boot").mkdir(parents=True)
    bootcmd(user_data, tmp_path, check=True)
    (made,) = (tmp_path / "scripts" / "per-boot").iterdir()
    before = made.read_bytes()
    (tmp_path / "bin").mkdir()
    failing = tmp_path / "bin" / "base64"
    failing.write_text("#!/bin/sh\necho half\nexit 1\n")
    failing.chmod(0o755)
    done = bootcmd(user_data, tmp_path, path=f"{failing.parent}:{os.environ['PATH']}")
    assert done.returncode != 0
    assert [(file, file.read_bytes()) for file in made.parent.iterdir()] == [(made, before)]
    assert os.access(made, os.X_OK)


def test_the_user_data_is_a_cloud_config_of_one_key(user_data):
    assert user_data.startswith("#cloud-config\n")
    assert user_data.isascii()
    assert {*yaml.safe_load(user_data)} == {"bootcmd"}
    assert len(user_data) < 64_000, "the limit of OpenStack, the lowest of those that could take it"


def test_it_is_the_same_each_time(user_data):
    again = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=True).stdout
    assert again == user_data


def test_the_program_needs_no_other_file(program):
    """Started as cloud-init does it. Nothing is there that it could grow."""
    done = subprocess.run([program, "/proc"], cwd="/", env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("flexdisk: no disk is below proc on proc at /proc")
    assert done.stderr.endswith("[ResourceNotFound]\n")


def test_tables_are_saved_where_the_module_has_them():
    options = yaml.safe_load(guest_growth.DOCUMENTATION)["options"]
    (folder,) = re.findall(r'^BACKUPS = "(.*?)"', PROGRAM.read_text(), re.MULTILINE)
    assert f"/{folder}" == options["backup_dir"]["default"]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_of_a_guest_runs_it(program, python):
    done = subprocess.run([python, "-I", program, "/nonesuch"], capture_output=True, text=True, check=False)
    assert done.stderr == "flexdisk: nothing is mounted at /nonesuch [NotMounted]\n"


def boots(program, disk, target, **environment):
    """The program in a guest that has a disk, mounted at target."""
    argv = [sys.executable, program, target, disk.root]
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["xfs", *(["ext4"] if may_grow_ext4() else [])])
@pytest.mark.parametrize("layout", [*SWAPS, "gpt", "dos logical"])
def test_the_whole_disk_is_used(program, new_disk, layout, kind):
    disk, target, swap = guest(new_disk, layout, kind)
    before, table, swap_before = hashes(target), disk.dump(), swap and swap_entry(disk, swap)
    done = boots(program, disk, target)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"flexdisk: {disk.device}: ~ {disk.kname}p")
    assert ("moves to the end, 40 MiB, UUID kept" in lines[0]) == bool(swap)
    (backup,) = (disk.root / "var" / "lib" / "flexdisk").iterdir()
    assert lines[1:] == [f"flexdisk: the partition table as it was is in {backup}"]
    assert restorable(table) in backup.read_text()
    assert space(target) > 700 << 20
    if swap:
        assert disk.part(swap) in Path("/proc/swaps").read_text()
        assert swap_entry(disk, swap) == swap_before
    grown = disk.dump()
    again = boots(program, disk, target)
    assert (again.returncode, again.stdout) == (0, f"flexdisk: {disk.device}: nothing to grow\n")
    assert disk.dump() == grown
    disk.boot()
    assert hashes(target) == before
    disk.check()


@pytest.mark.parametrize("booted", [False, True], ids=["", "booted"])
@pytest.mark.parametrize("layout", [*SWAPS, "gpt"] if FULL else ["gpt swap", "dos logical swap"])
def test_the_next_boot_goes_on_where_a_killed_one_was(program, new_disk, layout, booted):
    for number in count(1 if FULL else 1 + booted, 1 if FULL else 2):
        disk, target, swap = guest(new_disk, layout, "xfs")
        before, swap_before = hashes(target), swap and swap_entry(disk, swap)
        folder, started = disk.folder / "killers", disk.folder / "started"
        folder.mkdir()
        for name in ("sfdisk", "partx", "swapoff", "swapon", "xfs_growfs"):
            (folder / name).write_text(KILLER)
            (folder / name).chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}:/usr/sbin:/sbin"
        done = boots(program, disk, target, PATH=path, COUNT=str(started), LAST=str(number))
        assert done.returncode in (0, -9), done.stderr
        if not done.returncode:
            assert number > 3
            assert len(started.read_text().splitlines()) < number
            break
        assert not swap or swap_entry(disk, swap) == swap_before
        if booted:
            disk.boot()
        again = boots(program, disk, target)
        assert (again.returncode, again.stderr) == (0, "")
        assert space(target) > 700 << 20
        assert hashes(target) == before
        if swap:
            assert disk.part(swap) in Path("/proc/swaps").read_text()
            assert swap_entry(disk, swap) == swap_before
        assert boots(program, disk, target).stdout == f"flexdisk: {disk.device}: nothing to grow\n"
        disk.check()
        disk.close()


def outside(disk, end):
    """The hash of what lies on a disk before the first partition, behind the first one, and at the end."""
    run("blockdev", "--flushbufs", disk.device)
    digest = hashlib.sha256()
    with open(disk.device, "rb") as file:
        for start, size in ((0, 1), (end, 60), (SMALL - 1, 2), (GROWN - 1, 1)):
            file.seek(start << 20)
            digest.update(file.read(size << 20))
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("label: gpt\nsize=300MiB\nsize=20MiB\n", "p2, the last one, has nothing that is known on it"),
        ("label: dos\nsize=300MiB\nsize=20MiB, type=27\nsize=20MiB, type=82\n", "p2, before the swap at the end, has"),
        ("label: gpt\nsize=300MiB\n", "hybrid of GPT and MBR"),
        ("label: gpt\nsize=300MiB\n", "mounted read-only at"),
    ],
)
def test_what_is_not_known_stays_as_it_is(program, new_disk, script, message):
    disk = new_disk(SMALL)
    disk.partition(script)
    target = disk.put("xfs", disk.part(1))
    if "swap" in message:
        run("mkswap", "-q", disk.part(3))
    if "hybrid" in message:
        with open(disk.device, "r+b") as file:
            file.seek(446 + 16)
            file.write(bytes([0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x60, 9, 0]))
    if "read-only" in message:
        run("mount", "-o", "remount,ro", str(target))
    disk.to_size(GROWN)
    before = outside(disk, 301)
    done = boots(program, disk, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "[UnknownLayout]" in done.stderr or "[NotMounted]" in done.stderr
    assert outside(disk, 301) == before
    assert not (disk.root / "var").exists()
