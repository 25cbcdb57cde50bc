# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that are booted beside the lab: Debian on disks with real partition tables, and Ansible in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boot
import guest_image
import recipe
import remote
from harness import Lab
from progress import Patience
from recipe import LabError

MIB = 1 << 20
CPUS = 2
MEMORY_MIB = 512
BOOT_SECONDS = 300.0
MODULE = "flexdisk.hypervisor.guest_growth"
MAKE_ROOT = recipe.IMAGE / "root.sh"
NO_CLOUD = "cloud-init=disabled"
KERNEL_ARGUMENTS = f"{boot.KERNEL_ARGUMENTS} systemd.default_timeout_start_sec=3600"  # on a busy host, a swap is late
BYTES = ("--noheadings", "--units", "b", "--nosuffix")
# Without udev and the kernel's device mapper, and so that the guests' root file system stays as it was built
LVM = (
    "--driverloaded",
    "n",
    "--config",
    'devices { obtain_device_list_from_udev=0 external_device_info_source="none" use_devicesfile=0 } '
    "activation { udev_sync=0 udev_rules=0 } backup { backup=0 archive=0 }",
)
LV_ROOT_MIB, LV_SWAP_MIB = 1700, 200
CHECKS = {"ext4": ("e2fsck", "-fn"), "xfs": ("xfs_repair", "-n"), "btrfs": ("btrfs", "check")}


@dataclass(frozen=True)
class Layout:
    """A disk with a root file system. table is for sfdisk, numbers are those of partitions.

    root is the partition with the root file system, or with the physical volume of `group`. grub: whether it boots by
    itself.
    """

    table: str
    kind: str
    root: int
    swap: int = 0
    group: str = ""
    grub: bool = False


@dataclass(frozen=True)
class Disk:
    """A disk of a guest, a sparse file. The serial is the name by which a task finds it."""

    file: Path
    serial: str

    def to_size(self, mib: int) -> None:
        """While it is not in use."""
        self.file.touch()
        os.truncate(self.file, mib * MIB)


@dataclass(frozen=True)
class Root:
    """A disk with a root file system, and how it is booted."""

    disk: Disk
    layout: Layout
    uuid: str
    swap_uuid: str

    @property
    def source(self) -> str:
        """What the kernel is told of its root."""
        subvolume = " rootflags=subvol=@rootfs" if self.layout.kind == "btrfs" else ""
        name = f"/dev/mapper/{mapped(self.layout.group)}-root" if self.layout.group else f"UUID={self.uuid}"
        return f"root={name}{subvolume} ro"


def mapped(group: str) -> str:
    """The name of a volume group in /dev/mapper."""
    return group.replace("-", "--")


def host(*argv: str, stdin: str = "") -> str:
    """Run a program here; AssertionError with what it said when it fails."""
    environment = {**os.environ, "PATH": recipe.SEARCH_PATH, "LC_ALL": "C"}
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def by_its_programs(*argv: str) -> str:
    """Run a program of the guests' root file system on a device of this machine."""
    mounts = 'mount --bind /dev "$base/dev"; mount --bind /sys "$base/sys"; mount -t proc proc "$base/proc"'
    script = f'base=$1; shift; {mounts}; mount -t tmpfs tmpfs "$base/run"; exec chroot "$base" "$@"'
    return host("unshare", "--mount", "--", "sh", "-euc", script, "sh", str(guest_image.ensure()), *argv)


@contextmanager
def attached(file: Path) -> Iterator[str]:
    """A disk as a loop device, with its partitions."""
    device = host("losetup", "--show", "-f", str(file)).strip()
    try:
        host("partx", "-a", device)
        yield device
    finally:
        subprocess.run(["partx", "-d", device], capture_output=True, check=False)
        host("losetup", "-d", device)


def partitions(root: Root) -> list[dict[str, Any]]:
    """What the table of a guest that is off has."""
    table = json.loads(host("sfdisk", "-J", str(root.disk.file)))["partitiontable"]
    return [dict(part) for part in table["partitions"]]


@contextmanager
def behind(device: str, offset: int, size: int) -> Iterator[str]:
    """Part of a device as another one: a logical volume where there is no device mapper."""
    part = host("losetup", "--show", "-o", str(offset), "--sizelimit", str(size), "-f", device).strip()
    try:
        yield part
    finally:
        host("losetup", "-d", part)


def new_key(folder: Path) -> Path:
    """A key by which a guest is reached."""
    path = folder / "key"
    boot.call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", str(path)])
    return path


def make_root(folder: Path, key: Path, layout: Layout, mib: int) -> Root:
    """A disk of so many MiB that boots, in a folder of its own."""
    folder.mkdir()
    root = Root(Disk(folder / "disk", "root"), layout, str(uuid.uuid4()), str(uuid.uuid4()))
    root.disk.to_size(mib)
    host("sfdisk", "-q", str(root.disk.file), stdin=layout.table)
    options = "subvol=@rootfs" if layout.kind == "btrfs" else "defaults"
    fstab = f"UUID={root.uuid} / {layout.kind} {options} 0 {int(layout.kind == 'ext4')}\n"
    if layout.swap or layout.group:
        fstab += f"UUID={root.swap_uuid} none swap sw 0 0\n"
    (folder / "fstab").write_text(fstab, encoding="utf-8")
    shutil.copy(key.with_name("key.pub"), folder / "authorized_keys")
    with attached(root.disk.file) as device:
        part = f"{device}p{layout.root}"
        if layout.group:
            _make_volumes(root, part)
        else:
            _copy(root, part, device)
            if layout.swap:
                by_its_programs("mkswap", "-q", "-L", "swap", "-U", root.swap_uuid, f"{device}p{layout.swap}")
    return root


def _copy(root: Root, part: str, device: str) -> None:
    values = [str(guest_image.ensure()), part, root.layout.kind, root.uuid, str(root.disk.file.parent)]
    arguments = f"{root.source} {KERNEL_ARGUMENTS} {NO_CLOUD}"
    script = ["sh", "-eu", str(MAKE_ROOT), *values, arguments, device if root.layout.grub else ""]
    host("unshare", "--mount", "--", *script)


def _make_volumes(root: Root, part: str) -> None:
    """Root and swap as logical volumes, as Debian's installer has them."""
    group = root.layout.group
    by_its_programs("pvcreate", "-q", *LVM, part)
    by_its_programs("vgcreate", "-q", *LVM, group, part)
    start, offset = int(by_its_programs("pvs", *LVM, *BYTES, "-o", "pe_start", part)), 0
    for name, mib in (("root", LV_ROOT_MIB), ("swap_1", LV_SWAP_MIB)):
        by_its_programs("lvcreate", "-q", *LVM, "-an", "-Zn", "-Wn", "-L", f"{mib}M", "-n", name, group)
        with behind(part, start + offset, mib * MIB) as volume:
            if name == "root":
                _copy(root, volume, "")
            else:
                by_its_programs("mkswap", "-q", "-U", root.swap_uuid, volume)
        offset += mib * MIB


def make_cloud_disk(folder: Path, user_data: str) -> Disk:
    """A disk from which cloud-init's NoCloud takes what a new guest is told."""
    disk = Disk(folder / "cidata.img", "cidata")
    disk.to_size(4)
    host("mkfs.vfat", "-n", "CIDATA", str(disk.file))
    for name, text in {"meta-data": "instance-id: guest-1\nlocal-hostname: guest\n", "user-data": user_data}.items():
        (folder / name).write_text(text, encoding="utf-8")
        host("mcopy", "-i", str(disk.file), str(folder / name), "::")
    return disk


def check(root: Root) -> None:
    """Have the file system of a guest that is off checked by its own program, and what was put there compared."""
    with attached(root.disk.file) as device:
        part = f"{device}p{root.layout.root}"
        if not root.layout.group:
            _check(part, root)
            return
        gathered = root.disk.file.with_name("volume")
        _gather(part, gathered)
    with behind(str(gathered), 0, gathered.stat().st_size) as volume:
        _check(volume, root)
    gathered.unlink()


def _gather(part: str, gathered: Path) -> None:
    """The pieces of the logical volume root, in one file."""
    columns = "lv_name,seg_start,pe_start,pvseg_start,pvseg_size,vg_extent_size"
    for line in by_its_programs(
        "pvs", *LVM, *BYTES, "--segments", "--separator", ":", "-o", columns, part
    ).splitlines():
        name, *numbers = line.strip().split(":")
        if name == "root":
            at, first, start, size, extent = map(int, numbers)
            where = (f"skip={first + start * extent}", f"count={size * extent}", f"seek={at}")
            flags = ("bs=4M", "iflag=skip_bytes,count_bytes", "oflag=seek_bytes", "conv=sparse,notrunc", "status=none")
            host("dd", f"if={part}", f"of={gathered}", *where, *flags)
            os.truncate(gathered, at + size * extent)


def _check(device: str, root: Root) -> None:
    by_its_programs(*CHECKS[root.layout.kind], device)
    source = guest_image.ensure() / "usr"
    script = 'mount -t "$1" -o "$2" "$3" "$4"; diff -r --no-dereference "$5" "$4/usr" | grep -v "^Only in $4" || true'
    options = "ro,subvol=@rootfs" if root.layout.kind == "btrfs" else "ro"
    target = str(root.disk.file.with_name("target"))
    fields = (root.layout.kind, options, device, target, str(source))
    assert host("unshare", "--mount", "--", "sh", "-euc", script, "sh", *fields) == ""


class Guest(Lab):
    """The guest of this machine. There is one at a time.

    Args:
        workdir: scratch folder for Ansible's files.
        key: by which it is reached.
    """

    def __init__(self, workdir: Path, key: Path) -> None:
        super().__init__(workdir, boot.GUEST)
        self.key = key

    def start(self, disks: Sequence[Disk], source: str = "", *, cloud: bool = False) -> None:
        """Power on and wait until it answers: by what is on its first disk, or by the kernel with this root.

        cloud: cloud-init looks for its data.
        """
        options = []
        for disk in disks:
            drive = f"if=none,id={disk.serial},file={disk.file},format=raw,cache=unsafe"
            options += ["-drive", drive, "-device", f"virtio-blk-pci,drive={disk.serial},serial={disk.serial}"]
        if source:
            kernel, ramdisk = map(str, guest_image.kernel())
            arguments = f"{source} {KERNEL_ARGUMENTS} {'' if cloud else NO_CLOUD}"
            options += ["-kernel", kernel, "-initrd", ramdisk, "-append", arguments]
        with boot.machine(self.name):
            boot.stop()
            run = boot.run_dir()
            run.mkdir(parents=True, mode=0o700)
            for name in ("key", "key.pub"):
                shutil.copy(self.key.with_name(name), run / name)
            number = boot.free_port()
            (run / "port").write_text(f"{number}\n", encoding="utf-8")
            boot.call(boot.hardware(CPUS, MEMORY_MIB, number, options))
            remote.wait_for_ssh()
            remote.write_inventory()
            remote.push_zipcache()

    def power_off(self) -> None:
        """Shut down, as the power button does it, and wait until it is off."""
        self.run(["systemctl", "poweroff"], check=False)
        self._until(lambda: boot.pid() is None, "it to switch off")

    def stop(self) -> None:
        """Without a word."""
        with boot.machine(self.name):
            boot.stop()

    def resize(self, disk: Disk, mib: int) -> None:
        """Make a disk larger while the guest runs, and wait until it knows."""
        with boot.machine(self.name):
            boot.control("block_resize", device=disk.serial, size=mib * MIB)
        self._until(lambda: self.size(self.device(disk)) == mib * MIB, "the new size of its disk")

    def device(self, disk: Disk) -> str:
        """Where the guest has a disk now."""
        return self.run(["readlink", "-f", f"/dev/disk/by-id/virtio-{disk.serial}"]).stdout.strip()

    def size(self, device: str) -> int:
        """Bytes of a block device."""
        return int(self.run(["blockdev", "--getsize64", device]).stdout)

    def space(self, target: str = "/") -> int:
        """MiB of a mounted file system."""
        return int(self.run(["df", "-BM", "--output=size", target]).stdout.split()[1].rstrip("M"))

    def hashes(self, pattern: str) -> str:
        """Of all files that match."""
        return self.run(["sh", "-euc", f"sha256sum {pattern}"]).stdout

    def grow(self, disk: Disk, *options: str, **arguments: object) -> dict[str, Any]:
        """What the module says, run by Ansible. A failure is a result, too."""
        module_arguments = json.dumps({"serial": disk.serial, **arguments})
        with boot.machine(self.name):
            answer = self.ad_hoc(MODULE, module_arguments, *options, check=False)
        _before, arrow, result = answer.stdout.partition("=> ")
        assert arrow, answer
        return dict(json.JSONDecoder().raw_decode(result)[0])

    def boot_id(self) -> str:
        """What the kernel calls this boot."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout

    def _until(self, done: Callable[[], bool], condition: str) -> None:
        patience = Patience(BOOT_SECONDS)
        with boot.machine(self.name):
            while not done():
                if why := patience.over():
                    raise LabError(f"waited for {condition} ({why}):\n{boot.console_tail()}")
                time.sleep(0.5)


WRITER = """
import hashlib, os, signal, sys, time
going = [1]
signal.signal(signal.SIGTERM, lambda *_: going.clear())
digest, pieces = hashlib.sha256(), 0
with open(sys.argv[1], "wb") as file:
    while going:
        piece = os.urandom(20000)
        file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        digest.update(piece)
        pieces += 1
        with open("/run/pieces.new", "w") as count:
            count.write(str(pieces))
        os.rename("/run/pieces.new", "/run/pieces")
        time.sleep(0.05)
with open("/run/digest", "w") as said:
    said.write(digest.hexdigest())
"""


class Writer:
    """A process in a guest that appends to a file until it is stopped, and knows the hash of what it wrote."""

    def __init__(self, guest: Guest, path: str) -> None:
        self._guest, self._path = guest, path

    def start(self) -> None:
        """Return when it has written something."""
        self._guest.run(["sh", "-c", "rm -f /run/pieces; cat > /run/writer.py"], stdin=WRITER)
        self._guest.run(["systemd-run", "-q", "--unit=writer", "python3", "/run/writer.py", self._path])
        self._guest.run(["sh", "-c", "until test -s /run/pieces; do sleep 0.2; done"])

    def pieces(self) -> int:
        """How many it has written."""
        return int(self._guest.run(["cat", "/run/pieces"]).stdout)

    def stop(self) -> None:
        """All that it wrote must be there. Its file is closed before systemctl returns."""
        self._guest.run(["systemctl", "stop", "writer"])
        written = self._guest.run(["sha256sum", self._path]).stdout.split()[0]
        assert written == self._guest.run(["cat", "/run/digest"]).stdout
