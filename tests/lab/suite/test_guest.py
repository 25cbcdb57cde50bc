# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's guests: real libvirt, QEMU and Linux, told by hand what the collection's driver tells them."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import guests
import pytest
import remote
from guests import Disk, Guest, Seen
from harness import Lab

MIB = 1 << 20
PAGE = remote.ROOT / "docs" / "libvirt.md"
ALL_DEVICES = 'devices { global_filter = [ "a|.*|" ] }'


@pytest.fixture
def guest(lab: Lab, scratch: str, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A domain to be defined; its disks are in `scratch`, which goes after it."""
    guest = Guest(lab, Path(scratch).name, getattr(request, "param", "q35"))
    guest.remove()
    yield guest
    guest.remove()


def volume(lab: Lab, scratch: str, slot: int, size: int) -> Disk:
    """A new volume of so many bytes."""
    disk = Disk(f"{scratch}/disk{slot}", slot, f"serial-{slot:013}")
    make_volume(lab, disk.dataset, str(size))
    return disk


def make_volume(lab: Lab, dataset: str, size: str, mode: str = "dev") -> None:
    """A volume that inherits its `volmode`: its own is set after the device is there, and lost if that is open."""
    lab.zfs("set", f"volmode={mode}", dataset.rpartition("/")[0])
    lab.zfs("create", "-V", size, dataset)
    lab.run(["sh", "-euc", f"udevadm settle; test -b /dev/zvol/{dataset}"])


@pytest.mark.full
@pytest.mark.parametrize("guest", ["q35", "pc"], indirect=True)
def test_a_guest_sees_its_disks_come_grow_and_go(lab: Lab, scratch: str, guest: Guest) -> None:
    one, two, three = (volume(lab, scratch, slot, 64 * MIB) for slot in (3, 5, 4))
    guest.define([one, two])
    first, second = one.seen(64 * MIB, "vda", guest.machine), two.seen(64 * MIB, "vdb", guest.machine)
    assert guest.start() == [first, second]

    guest.virsh("attach-device", "/dev/stdin", "--live", "--config", stdin=three.xml(guest.machine))
    third = three.seen(64 * MIB, "vdc", guest.machine)
    guest.wait_for([first, second, third])

    lab.zfs("set", f"volsize={96 * MIB}", one.dataset)
    guest.virsh("blockresize", one.target, f"{96 * MIB}B")
    first = first._replace(size=96 * MIB)
    guest.wait_for([first, second, third])

    guest.virsh("detach-disk", three.target, "--live", "--config")
    guest.wait_for([first, second])

    guest.shut_down()
    assert guest.start() == [first, second]


@pytest.mark.full
def test_a_guest_is_worked_in_over_console_and_ssh(lab: Lab, scratch: str, guest: Guest, tmp_path: Path) -> None:
    disk = volume(lab, scratch, 3, 16 * MIB)
    guest.define([disk])
    seen = guest.start()
    assert guest.virsh("domuuid").strip() == guests.uuid(guest.number)
    text = ("what the guest wrote\n" * MIB)[:MIB]
    guest.ask(f"yes what the guest wrote | head -c {MIB} > /dev/vda && sync")
    assert guest.ask(f"head -c {MIB} /dev/vda | sha256sum").split()[0] == hashlib.sha256(text.encode()).hexdigest()
    assert lab.run(["head", "-c", str(MIB), f"/dev/zvol/{disk.dataset}"]).stdout == text
    with pytest.raises(AssertionError, match="no-such"):
        guest.ask("no-such")

    inventory = tmp_path / "guests.json"
    inventory.write_text(guest.host_variables(), encoding="utf-8")
    argv = [*lab.ansible_argv("ansible", "-i", str(inventory), guest.name), "-m", "ansible.builtin.raw", "-a", "disks"]
    done = subprocess.run(argv, env=lab.environment(), capture_output=True, text=True, check=False)
    assert f"DISK {seen[0].address} {16 * MIB} {disk.serial} vda" in done.stdout, done


def test_reset_leaves_no_domain(lab: Lab) -> None:
    Guest(lab, "left").define([])
    lab.reset()
    assert lab.run(["virsh", "list", "--all", "--name"]).stdout.split() == []


def test_partitions_in_a_volume_stay_unknown_to_the_hypervisor(lab: Lab, scratch: str) -> None:
    for mode, parts in (("full", 1), ("dev", 0)):
        device = f"/dev/zvol/{scratch}/{mode}"
        make_volume(lab, f"{scratch}/{mode}", "16M", mode)
        lab.partition(device)
        assert lab.partitions(device) == parts


def test_lvm_in_a_volume_stays_unknown_to_the_hypervisor(lab: Lab, scratch: str) -> None:
    """With the filter of docs/libvirt.md. One that accepts the rest finds volumes under /dev/disk/by-diskseq."""
    told = re.search(r"^ *(devices { global_filter = .* })$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told
    lab.run(["dd", "status=none", "of=/etc/lvm/lvmlocal.conf"], stdin=f"{told[1]}\n")
    device = f"/dev/zvol/{scratch}/disk0"
    make_volume(lab, f"{scratch}/disk0", "16M")
    lab.run(["pvcreate", "-q", "--config", ALL_DEVICES, device])
    assert lab.run(["pvs", "--noheadings", "-o", "pv_name"]).stdout.split() == []
    assert len(lab.run(["pvs", "--noheadings", "-o", "pv_name", "--config", ALL_DEVICES]).stdout.split()) == 1


def test_lists_are_taken_from_a_console_when_they_are_complete() -> None:
    said = "SeaBIOS\nDISKS 1\nDISK 0000:01:00.0 512 s-1 vda\n[    9.1] noise\nDISKS 0\n\nDISKS 2\nDISK 0000:0"
    assert guests.listings(said) == [[Seen("0000:01:00.0", 512, "s-1", "vda")], []]
    assert guests.listings(said + "1:00.0 512 s-1 vda\nDISK 0000:00:05.0/0:0:1:2 1024 - sd") == guests.listings(said)
    last = guests.listings(said + "1:00.0 512 s-1 vda\nDISK 0000:00:05.0/0:0:1:2 1024 - sda\n")[-1]
    assert last[1] == Seen("0000:00:05.0/0:0:1:2", 1024, "-", "sda")
