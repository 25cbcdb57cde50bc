# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the inventory to the file system: `converge` and `grow_guests` for a running guest with its root on the disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guest_image
import guests
import pytest
import recipe
import remote
from guests import Disk, Guest
from harness import Lab

pytestmark = pytest.mark.full

MIB, SECTOR = 1 << 20, 512
SMALL, GROWN, ROOT = 2048, 3072, 1980  # MiB
EDGE = 64 * 1024  # of a disk: more than a table takes there
MEMORY_MIB = 256
PORT = 3
SWAP_UUID = "4ad4a3a8-0000-4000-8000-00000000beef"
TABLE = f"label: gpt\nsize={ROOT}MiB, name=root\ntype=swap, name=swap\n"
INITRD = f"{guests.FOLDER}/small.img"
MAKE = (recipe.IMAGE / "small_guest.sh").read_text(encoding="utf-8")
PACK = (recipe.IMAGE / "small_root.sh").read_text(encoding="utf-8")
EDGES = """
import os, sys
disk = os.open(sys.argv[1], os.O_WRONLY)
first, last = (sys.stdin.buffer.read(int(sys.argv[2])) for _edge in range(2))
os.pwrite(disk, first, 0)
os.pwrite(disk, last, os.lseek(disk, 0, os.SEEK_END) - len(last))
os.fsync(disk)
"""
# Seldom, since each process takes seconds of the guest
WRITER = "n=0; while :; do n=$((n + 1)); echo $n >> /srv/written; sleep 20; done"


class Clock:
    """Says what took how long."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def done(self, what: str) -> None:
        now = time.monotonic()
        print(f"{now - self._since:6.0f} s  {what}", flush=True)
        self._since = now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guest(lab: Lab, tmp_path: Path, clock: Clock) -> Iterator[Guest]:
    """A running domain with one disk, adopted as `root`: a root file system, and swap behind it."""
    if os.geteuid() != 0:
        pytest.skip("only root can build the root file system")
    guest_image.install_tools()
    packed = small_root()
    clock.done(f"packed {len(packed) // MIB} MiB of programs")
    lab.reset()
    guest = Guest(lab, "guest1")
    dataset = f"{lab.pool}/{guests.uuid(guest.number)}"
    disk = Disk(f"{dataset}/disk0", PORT, "unknown")
    lab.zfs("create", "-o", "mountpoint=none", "-o", "volmode=dev", dataset)
    lab.zfs("create", "-V", f"{SMALL}M", disk.dataset)
    lab.run(["udevadm", "settle"])
    make_disk(f"/dev/zvol/{disk.dataset}", packed, tmp_path / "table")
    clock.done("made its disk")
    guest.define([disk], MEMORY_MIB, INITRD)
    words = {"vm": guest.name, "flexible_disk_size": "4GiB", "disks": [{"name": "root", "pci_slot": f"{PORT}:0:0"}]}
    lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"hypervisor": "libvirt", "vms": [words]}))
    clock.done("adopted it")
    guest.start()
    guest.ask("/usr/sbin/swapon -a")
    clock.done("booted it")
    yield guest
    guest.remove()
    lab.reset()


def small_root() -> bytes:
    """An archive of what the guest has beside busybox."""
    argv = ["chroot", str(guest_image.ensure()), "sh", "-eu"]
    return subprocess.run(argv, input=PACK.encode(), stdout=subprocess.PIPE, check=True).stdout


def make_disk(device: str, packed: bytes, table: Path) -> None:
    """Give a volume of the lab, which has no program for it, a table that is made here, and fill its partitions."""
    table.touch()
    os.truncate(table, SMALL * MIB)
    environment = {**os.environ, "PATH": recipe.SEARCH_PATH}
    subprocess.run(["sfdisk", "-q", str(table)], input=TABLE.encode(), check=True, env=environment)
    shown = subprocess.run(["sfdisk", "-J", str(table)], capture_output=True, check=True, env=environment).stdout
    parts = json.loads(shown)["partitiontable"]["partitions"]
    with table.open("rb") as source:
        edges = source.read(EDGE)
        source.seek(-EDGE, os.SEEK_END)
        edges += source.read()
    done = remote.run(["python3", "-c", EDGES, device, str(EDGE)], stdin=edges)
    assert done.returncode == 0, done
    places = [str(part[key] * SECTOR) for part in parts for key in ("start", "size")]
    done = remote.run(["sh", "-euc", MAKE, "sh", device, INITRD, *places, SWAP_UUID], stdin=packed, seconds=600)
    assert done.returncode == 0, done


class Inventory:
    """The hypervisor, and its VMs as the plugin finds them. The size of the disk is declared."""

    def __init__(self, lab: Lab, guest: Guest, folder: Path) -> None:
        self._lab, self._guest, self._folder = lab, guest, folder
        for name in ("host_vars", "group_vars"):
            (folder / name).mkdir(parents=True)
        hypervisors = lab.inventory.read_text(encoding="utf-8") + "flexible_disks_hypervisor=libvirt\n"
        (folder / "hosts.ini").write_text(hypervisors, encoding="utf-8")
        source = {
            "plugin": "flexdisk.hypervisor.vms",
            "inventory": ["hosts.ini"],
            "timeout": 600,
            "compose": {"ansible_host": f"'{guests.address(guest.number)}'"},
        }
        self._write("flexdisk_vms.yml", source)
        variables = guests.ssh_variables()
        shared = {"ControlMaster": "auto", "ControlPersist": "120", "ControlPath": lab.workdir / "guest.sock"}
        own = {
            "ansible_ssh_common_args": " ".join(f"-o {name}={value}" for name, value in shared.items()),
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        self._write(f"group_vars/hypervisor_{lab.name}.json", {**variables, **own})

    def declare(self, size: str) -> None:
        """The root disk has this size."""
        vm = {"vm": self._guest.name, "disks": [{"name": "root", "size": size}]}
        self._write(f"host_vars/{self._lab.name}.json", {"flexible_disks_vms": [vm]})

    def play(self, playbook: str) -> tuple[str, int]:
        """What a playbook of this collection prints, and how many tasks have changed something."""
        printed = self._lab.playbook(Path(f"flexdisk.hypervisor.{playbook}"), "-i", str(self._folder)).stdout
        _before, _recap, counts = printed.partition("PLAY RECAP")
        return printed, sum(map(int, re.findall(r" changed=(\d+) ", counts)))

    def _write(self, name: str, content: Any) -> None:
        (self._folder / name).write_text(json.dumps(content), encoding="utf-8")


def space(guest: Guest) -> int:
    """MiB of the root file system, as df says."""
    return int(guest.ask("df -k / | tail -n 1").split()[1]) // 1024


def seen(guest: Guest) -> tuple[str, str, str]:
    """What a reboot, a lost file or another swap would change."""
    boot_id, digest = guest.ask("cat /proc/sys/kernel/random/boot_id; sha256sum /srv/file").splitlines()
    (swap,) = (line.split()[0] for line in guest.ask("cat /proc/swaps").splitlines()[1:])
    return boot_id, digest, guest.ask(f"/usr/sbin/blkid -p -o value -s UUID {swap}").strip()


def written(guest: Guest) -> int:
    """How many lines the writer has written."""
    return int(guest.ask("wc -l < /srv/written"))


def test_space_goes_from_the_inventory_to_the_file_system(lab: Lab, guest: Guest, tmp_path: Path, clock: Clock) -> None:
    inventory = Inventory(lab, guest, tmp_path / "inventory")
    inventory.declare("2GiB")
    assert inventory.play("converge")[1] == 0
    clock.done("converge, idle")
    guest.ask("dd if=/dev/urandom of=/srv/file bs=1M count=4 2> /dev/null && sync")
    guest.ask(f"({WRITER}) > /dev/null 2>&1 & echo $! > /run/writer")
    before, small = seen(guest), space(guest)
    assert ROOT * 0.9 < small < ROOT
    assert before[2] == SWAP_UUID
    clock.done("file and writer")

    inventory.declare("3GiB")
    assert inventory.play("converge")[1] == 1
    guest.wait_until(lambda now: [one.size for one in now] == [GROWN * MIB])
    assert space(guest) == small
    clock.done("converge")
    lines = written(guest)
    printed, changed = inventory.play("grow_guests")
    assert changed == 1
    clock.done("grow_guests")
    print("\n".join(re.findall(r'^ +"(?:DISK|root|  ).*', printed, re.MULTILINE)))

    assert space(guest) > small + (GROWN - SMALL) * 0.95
    assert seen(guest) == before
    assert written(guest) > lines
    guest.ask("kill $(cat /run/writer) && sync && seq $(wc -l < /srv/written) | cmp - /srv/written")
    print(guest.ask("df -k /; cat /proc/swaps /proc/partitions; dmesg | tail -n 5"))
    clock.done("looked at")

    assert [inventory.play(playbook)[1] for playbook in ("converge", "grow_guests")] == [0, 0]
    assert seen(guest) == before
    clock.done("both again, idle")
