# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of guests as loop devices, and the programs that a guest has. A test that cannot have them says why."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

sys.path.append(str(Path(__file__).resolve().parents[2] / "lab"))
import recipe

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest.guest_grow import grow
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner

SEARCH_PATH = recipe.SEARCH_PATH
CAP_SYS_RESOURCE = 24
# The Debian packages of the programs that tests of guests need
PACKAGES = {
    "sfdisk": "fdisk",
    "pvs": "lvm2",
    "cryptsetup": "cryptsetup-bin",
    "mkfs.xfs": "xfsprogs",
    "btrfs": "btrfs-progs",
    "mkfs.ext4": "e2fsprogs",
}


def install(*tools):
    """Install programs from Debian. What apt cannot do is a failure, not a skip."""
    missing = sorted({PACKAGES[tool] for tool in tools if not shutil.which(tool, path=SEARCH_PATH)})
    if missing and (os.geteuid() != 0 or not shutil.which("apt-get")):
        pytest.skip(f"needs {', '.join(missing)}, and only root on a system with apt can install them")
    recipe.install(missing)


def run(*argv, stdin="", check=True):
    environment = {**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C"}
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, env=environment)
    if check and done.returncode:
        raise AssertionError(f"{argv}: {done.stdout}{done.stderr}")
    return done.stdout


class Ext4Offline(SubprocessRunner):
    """For machines where not even root may grow a mounted ext4 (no CAP_SYS_RESOURCE): it is unmounted meanwhile."""

    def __call__(self, argv, stdin="", timeout=300):
        if argv[0] != "resize2fs":
            return super().__call__(argv, stdin, timeout)
        target = run("findmnt", "-n", "-o", "TARGET", argv[1]).strip()
        run("umount", target)
        try:
            run("e2fsck", "-fp", argv[1])
            return super().__call__(argv, stdin, timeout)
        finally:
            run("mount", argv[1], target)


def may_grow_ext4():
    status = Path("/proc/self/status").read_text()
    may = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    return bool(may >> CAP_SYS_RESOURCE & 1)


def new_runner():
    return SubprocessRunner() if may_grow_ext4() else Ext4Offline()


class LoopDisk:
    """A sparse file as a disk of a guest. etc is where the guest's /etc/fstab is."""

    def __init__(self, folder, mib, sector):
        self.folder, self.mounts = folder, []
        self.file = folder / "disk"
        self.file.touch()
        os.truncate(self.file, mib << 20)
        self.device = run("losetup", "--show", "-b", str(sector), "-f", str(self.file)).strip()
        self.kname = self.device.rpartition("/")[2]
        self.root = folder / "root"
        self.root.mkdir()
        (self.root / "etc").mkdir()
        for name in ("sys", "proc"):
            (self.root / name).symlink_to(f"/{name}")
        self.fstab("")

    def fstab(self, text):
        (self.root / "etc" / "fstab").write_text(text)

    def part(self, number):
        return f"{self.device}p{number}"

    def partition(self, script):
        run("sfdisk", "--no-reread", "--no-tell-kernel", "-q", self.device, stdin=script)
        run("partx", "-a", self.device)

    def put(self, kind, device, *, files=True):
        """A mounted file system with some files, and their hash."""
        force = {"ext4": "-F", "xfs": "-f", "btrfs": "-f"}[kind]
        run(f"mkfs.{kind}", "-q", force, device)
        target = self.folder / f"mnt{len(self.mounts)}"
        target.mkdir()
        run("mount", "-t", kind, device, str(target))
        self.mounts.append((device, target, kind))
        for index in range(20 if files else 0):
            (target / f"file{index}").write_bytes(os.urandom(50_000 + index))
        os.sync()
        return target

    def to_size(self, mib):
        os.truncate(self.file, mib << 20)
        run("losetup", "-c", self.device)

    def grow(self, runner=None, check_mode=False, **more):
        params = {
            "logical_volume": None,
            "luks_passphrase": None,
            "backup_dir": str(self.folder / "backups"),
            **more,
        }
        return grow(runner or new_runner(), self.kname, params, check_mode, str(self.root))

    def boot(self):
        """As after a reset: the kernel reads the table anew, mounts, and turns the swaps of fstab on."""
        for _device, target, _kind in self.mounts:
            run("umount", str(target))
        self.swaps_off()
        run("partx", "-d", self.device)
        run("partx", "-a", self.device)
        for device, target, kind in self.mounts:
            run("mount", "-t", kind, device, str(target))
        for line in (self.root / "etc" / "fstab").read_text().splitlines():
            run("swapon", line.split()[0])

    def swaps_off(self):
        for part in Path("/dev").glob(f"{self.kname}p*"):
            run("swapoff", str(part), check=False)

    def dump(self):
        return run("sfdisk", "-d", self.device)

    def check(self):
        """Unmount all, and have each file system checked by its own program."""
        for device, target, kind in self.mounts:
            run("umount", str(target))
            checks = {"ext4": ("e2fsck", "-fn"), "xfs": ("xfs_repair", "-n"), "btrfs": ("btrfs", "check")}
            run(*checks[kind], device)
        self.mounts = []

    def close(self):
        """Once: the next disk may get the same loop device."""
        if not self.device:
            return
        self.swaps_off()
        for _device, target, _kind in self.mounts:
            run("umount", str(target), check=False)
        run("partx", "-d", self.device, check=False)
        run("losetup", "-d", self.device)
        self.device = ""


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("file*")}


@pytest.fixture(scope="session")
def tools():
    """The programs of a guest."""
    install(*PACKAGES)
    return run


def _no_loop():
    """Why there is no loop device here, "" if there is one."""
    if os.geteuid() != 0:
        return "only root can make loop devices"
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 20)
        try:
            device = run("losetup", "--show", "-f", file.name).strip()
        except (AssertionError, FileNotFoundError) as exc:
            return f"there are no loop devices here: {exc}"
        run("losetup", "-d", device)
    return ""


@pytest.fixture(scope="session")
def loops(tools):
    """Loop devices."""
    why = _no_loop()
    if why:
        pytest.skip(why)


@pytest.fixture
def new_disk(loops, tmp_path):
    """A function that makes a disk of some MiB."""
    made = []

    def new(mib, sector=512):
        folder = tmp_path / f"disk{len(made)}"
        folder.mkdir()
        made.append(LoopDisk(folder, mib, sector))
        return made[-1]

    yield new
    for disk in made:
        disk.close()


@pytest.fixture
def answer_of(capsys):
    """A function that runs a module and returns its result."""

    def run_it(module, check_mode=False, **arguments):
        capsys.readouterr()
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check_mode}),
            pytest.raises(SystemExit),
        ):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run_it
