# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real guests, booted beside the lab: their disks grow while they run and write, and they boot again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import booted
import guest_image
import pytest
import recipe
import remote
from booted import MIB, Disk, Guest, Layout, Root, Writer
from harness import PARTITION

pytestmark = pytest.mark.full

SMALL, GROWN = 2048, 3072
BIOS = "size=1MiB, type=21686148-6449-6E6F-744E-656564454649\n"
BEHIND = (1 + 1750) * 2048  # the first sector behind the root of an MBR
GPT = f"label: gpt\n{BIOS}size=1750MiB, name=root\ntype=swap, name=swap\n"
LAYOUTS = {
    "gpt-ext4-swap": Layout(GPT, "ext4", root=2, swap=3, grub=True),
    "mbr-ext4-logical-swap": Layout(
        # As Debian's installer has it
        f"label: dos\nsize=1750MiB, bootable\nstart={BEHIND + 2046}, type=5\nstart={BEHIND + 2048}, type=82\n",
        "ext4",
        root=1,
        swap=5,
        grub=True,
    ),
    "gpt-xfs-swap": Layout(GPT, "xfs", root=2, swap=3),
    "mbr-btrfs": Layout("label: dos\ntype=83, bootable\n", "btrfs", root=1),
    "gpt-lvm": Layout(f"label: gpt\n{BIOS}type=lvm\n", "ext4", root=2, group="guest-vg"),
}


USER_DATA = remote.ROOT / "extensions" / "guests" / "flexdisk_user_data.py"
CLOUD_LOG = "/var/log/cloud-init-output.log"


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """The root file system of the guests. One test of guests at a time uses this machine."""
    if os.geteuid() != 0:
        pytest.skip("only root can build the guests' root file system and make loop devices")
    guest_image.install_tools()
    with recipe.locked(recipe.cache_dir() / "guest.lock"):
        yield guest_image.ensure()


@pytest.fixture
def guest(base: Path, tmp_path: Path) -> Iterator[Guest]:
    """A guest that is off."""
    guest = Guest(tmp_path / "ansible", booted.new_key(tmp_path))
    yield guest
    guest.stop()


def swap_entry(guest: Guest) -> str:
    """What identifies the swap that is on."""
    (device,) = guest.run(["swapon", "--noheadings", "--raw", "--show=NAME"]).stdout.split()
    found = guest.run(["blkid", "-p", "-o", "export", device]).stdout.splitlines()
    return "\n".join(line for line in found if line.startswith(("UUID", "LABEL", "PART_ENTRY_UUID", "PART_ENTRY_NAME")))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_root_grows_while_its_guest_writes(guest: Guest, tmp_path: Path, name: str) -> None:
    layout, began = LAYOUTS[name], time.monotonic()

    def done(what: str) -> None:
        print(f"{name}: {what} after {time.monotonic() - began:.0f} s", flush=True)

    root = booted.make_root(tmp_path / "root", guest.key, layout, SMALL)
    done("disk made")
    source = "" if layout.grub else root.source
    guest.start([root.disk], source)
    done("booted")
    arguments = {"logical_volume": "root"} if layout.group else {}
    guest.run(["sh", "-euc", "cd /srv; for i in 1 2 3 4 5 6 7 8; do head -c 2500000 /dev/urandom > file$i; done; sync"])
    before, space, this_boot = guest.hashes("/srv/file*"), guest.space(), guest.boot_id()
    has_swap = bool(layout.swap or layout.group)
    swap_before = has_swap and swap_entry(guest)

    writer = Writer(guest, "/var/tmp/growing")
    writer.start()
    guest.resize(root.disk, GROWN)
    predicted = guest.grow(root.disk, "--check", **arguments)
    assert predicted["changed"], predicted
    assert guest.space() == space
    pieces = writer.pieces()
    grown = guest.grow(root.disk, **arguments)
    assert writer.pieces() > pieces
    assert grown["changed"], grown
    assert grown["steps"] == predicted["steps"]
    writer.stop()
    print("\n".join(grown["steps"]))
    done("grown")

    def all_is_there() -> None:
        assert space + 980 < guest.space() < GROWN
        assert guest.hashes("/srv/file*") == before
        assert not has_swap or swap_entry(guest) == swap_before
        again = guest.grow(root.disk, **arguments)
        assert (again["changed"], again["steps"], again["size_bytes"]) == (False, [], GROWN * MIB), again

    all_is_there()
    assert guest.boot_id() == this_boot
    guest.power_off()
    booted.check(root)
    done("off and checked")
    guest.start([root.disk], source)
    done("booted again")
    all_is_there()
    assert guest.boot_id() != this_boot
    done("all found again")


PASSPHRASE = "what only the test knows"
UNLOCK = ("cryptsetup", "open", "--key-file=-")
FILL = "for i in 1 2 3 4; do head -c 2500000 /dev/urandom > $1/file$i; done; sync"


class DataDisks:
    """LUKS in a partition, whose key the kernel's keyring has, with ext4; and LVM on a whole disk, with XFS."""

    def __init__(self, guest: Guest, folder: Path) -> None:
        self._guest = guest
        self._luks, self._group = self.disks = (Disk(folder / "luks", "luks"), Disk(folder / "group", "group"))
        for disk in self.disks:
            disk.to_size(400)
        self._tasks: dict[str, tuple[Disk, dict[str, object]]] = {
            "/mnt": (self._luks, {"luks_passphrase": PASSPHRASE}),
            "/home": (self._group, {}),
        }

    def make(self) -> None:
        guest, part = self._guest, f"{self._guest.device(self._luks)}1"
        guest.run(["sfdisk", "-q", guest.device(self._luks)], stdin="label: gpt\nsize=398MiB\n")
        quick = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file=-")
        guest.run(["cryptsetup", "luksFormat", "-q", *quick, part], stdin=PASSPHRASE)
        guest.run([*UNLOCK, part, "secret"], stdin=PASSPHRASE)
        guest.run(["mkfs.ext4", "-q", "/dev/mapper/secret"])
        guest.run(["vgcreate", "-q", "data", guest.device(self._group)])
        guest.run(["lvcreate", "-q", "-l", "100%FREE", "-n", "home", "data"])
        guest.run(["mkfs.xfs", "-q", "/dev/data/home"])
        self._mount()
        for target in self._tasks:
            guest.run(["sh", "-euc", FILL, "sh", target])
        self._before = [guest.hashes(f"{target}/file*") for target in self._tasks]
        self._spaces = [guest.space(target) for target in self._tasks]

    def open(self) -> None:
        """After a boot: have both checked by their own programs, and mount them."""
        self._guest.run([*UNLOCK, f"{self._guest.device(self._luks)}1", "secret"], stdin=PASSPHRASE)
        self._guest.run(["vgchange", "-q", "-ay", "data"])
        self._guest.run(["e2fsck", "-fn", "/dev/mapper/secret"])
        self._guest.run(["xfs_repair", "-n", "/dev/data/home"])
        self._mount()

    def _mount(self) -> None:
        self._guest.run(["mount", "/dev/mapper/secret", "/mnt"])
        self._guest.run(["mount", "/dev/data/home", "/home"])

    def grow(self) -> None:
        for target, (disk, arguments) in self._tasks.items():
            writer = Writer(self._guest, f"{target}/growing")
            writer.start()
            self._guest.resize(disk, 600)
            if arguments:
                self._refused({}, "MissingParameter", "the key is in the kernel's keyring; give luks_passphrase")
                self._refused({"luks_passphrase": "another"}, "InvalidArgument", "luks_passphrase is none of those of")
            pieces = writer.pieces()
            grown = self._guest.grow(disk, **arguments)
            assert writer.pieces() > pieces
            assert grown["changed"], grown
            print("\n".join(grown["steps"]))
            writer.stop()

    def _refused(self, arguments: dict[str, object], code: str, words: str) -> None:
        look = ["sfdisk", "-d", self._guest.device(self._luks)]
        table = self._guest.run(look).stdout
        result = self._guest.grow(self._luks, **arguments)
        assert (result["error_code"], words in result["msg"]) == (code, True), result
        assert self._guest.run(look).stdout == table

    def check(self) -> None:
        """All is there, and larger."""
        assert [self._guest.hashes(f"{target}/file*") for target in self._tasks] == self._before
        assert all(self._guest.space(each) > old + 180 for each, old in zip(self._tasks, self._spaces, strict=True))
        for disk, arguments in self._tasks.values():
            again = self._guest.grow(disk, **arguments)
            assert (again["changed"], again["steps"], again["size_bytes"]) == (False, [], 600 * MIB), again


def refuse(guest: Guest, root: Root, message: str) -> None:
    """In check mode and without, the root is refused with these words. Table and backups are as before."""
    device = guest.device(root.disk)
    look = ["sh", "-c", f"head -c 17408 {device} | sha256sum; ls -A /var/lib/flexdisk || true"]
    before = guest.run(look).stdout
    for options in (["--check"], []):
        result = guest.grow(root.disk, *options)
        assert result["error_code"] == "UnknownLayout", result
        said = message.format(name=device.rpartition("/")[2], device=device)
        assert result["msg"] == f"{said} [UnknownLayout]"
        print(result["msg"])
    assert guest.run(look).stdout == before


def test_data_disks_grow_while_they_are_used_and_unknown_roots_are_refused(guest: Guest, tmp_path: Path) -> None:
    table = f"label: gpt\n{BIOS}size=1750MiB\nsize=200MiB, type=swap\nsize=40MiB\n"
    root = booted.make_root(tmp_path / "root", guest.key, Layout(table, "ext4", root=2, swap=3), SMALL)
    data = DataDisks(guest, tmp_path)
    guest.start([root.disk, *data.disks], root.source)
    data.make()
    data.grow()
    data.check()

    space, device = guest.space(), guest.device(root.disk)
    guest.resize(root.disk, GROWN)
    refuse(
        guest,
        root,
        "{name}4, the last one, has nothing that is known on it; "
        "found: gpt: {name}1 ?, {name}2 ext4, {name}3 swap, {name}4 ?",
    )
    guest.run(["sfdisk", "-q", "--no-reread", "--no-tell-kernel", "--delete", device, "4"])
    guest.run(["partx", "-d", "--nr", "4", device])
    assert guest.grow(root.disk, "--check")["changed"]
    write = f"import os, sys; os.pwrite(os.open({device!r}, os.O_RDWR), bytes.fromhex(sys.argv[1]), 462)"
    guest.run(["python3", "-c", write, PARTITION.hex()])
    refuse(guest, root, "the table is a hybrid of GPT and MBR; the MBR has types ee, 83")
    guest.run(["python3", "-c", write, bytes(16).hex()])
    assert guest.grow(root.disk, "--check")["changed"]
    assert guest.space() == space

    guest.power_off()
    guest.start([root.disk, *data.disks], root.source)
    data.open()
    data.check()


def test_an_overlay_as_root_is_refused(guest: Guest, tmp_path: Path) -> None:
    root = booted.make_root(tmp_path / "root", guest.key, LAYOUTS["gpt-ext4-swap"], SMALL)
    root.disk.to_size(GROWN)
    guest.start([root.disk], f"{root.source} flexdisk.overlay")
    assert guest.run(["findmnt", "-n", "-o", "FSTYPE", "/"]).stdout == "overlay\n"
    refuse(guest, root, "the root file system is an overlay; {device}2 may be what lies below it")


def test_a_new_guest_grows_at_its_first_boot(guest: Guest, tmp_path: Path) -> None:
    """By cloud-init, with the user-data of this collection; Debian's own growpart is there and cannot pass the swap."""
    root = booted.make_root(tmp_path / "root", guest.key, LAYOUTS["gpt-ext4-swap"], SMALL)
    before = booted.partitions(root)
    root.disk.to_size(GROWN)
    told = booted.host(sys.executable, str(USER_DATA)) + "locale: false\n"  # the guest has no programs for it
    seed = booted.make_cloud_disk(tmp_path, told)
    seen: list[list[str]] = []
    for _boot in range(2):
        guest.start([root.disk, seed], root.source, cloud=True)
        status = guest.run(["cloud-init", "status", "--wait", "--long"], check=False).stdout
        assert "status: done" in status, status + guest.run(["cat", CLOUD_LOG]).stdout
        lines = guest.run(["cat", CLOUD_LOG]).stdout.splitlines()
        seen.append([line for line in lines if line.startswith("flexdisk: ")])
        assert guest.space() > 1750 + 900
        assert f"UUID={root.swap_uuid}" in swap_entry(guest).splitlines()
        again = guest.grow(root.disk)
        assert (again["changed"], again["steps"]) == (False, []), again
        guest.power_off()
        booted.check(root)
        after = booted.partitions(root)
        assert [{**part, "start": 0, "size": 0} for part in after] == [
            {**part, "start": 0, "size": 0} for part in before
        ]
        assert after[0] == before[0]
        assert (after[1]["start"], after[2]["size"]) == (before[1]["start"], before[2]["size"])
        assert after[2]["start"] > before[2]["start"]
    print(*seen, sep="\n")
    assert "moves to the end" in seen[0][0]
    assert seen[1][len(seen[0]) :] == [f"flexdisk: {seen[0][0].split()[1]} nothing to grow"]
