# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running VMs of libvirt: what the modules did is what their guests see, before and after a cold boot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import guests
import pytest
from guests import Disk, Guest, Seen
from harness import Lab

MIB = 1 << 20
SIZE = 64
PORTS = (3, 4, 5)
SPARE_PORTS = 4
NAMES = ("root", "data", "logs")
ROOT, DATA, LOGS = ({"name": name} for name in NAMES)
ENDS = (0, SIZE - 1)  # the MiB that a guest writes and reads; all of them would take an emulated guest many minutes
NOTHING = hashlib.sha256(bytes(len(ENDS) * MIB)).hexdigest()
Make = Callable[[int], Guest]
POOL = """<pool type='dir'><name>vms</name><target><path>/dev/zvol/{root}</path></target></pool>"""
OTHER = """<domain type='qemu'><name>other</name><memory>32768</memory><os><type>hvm</type></os><devices>
  <disk type='{kind}' device='disk'><source {source}/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


class Host:
    """The lab as the modules see it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def converge(self, vm: str, *disks: dict[str, Any], changed: bool = True, **more: Any) -> dict[str, Any]:
        """Check mode and vm_disks, which do the same; the VM afterwards. More is of the VM."""
        words = {"hypervisor": "libvirt", "vms": [{"vm": vm, "disks": list(disks), **more}]}
        found = []
        for options in (["--check"], []):
            done = self.lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps(words), *options)
            result = json.loads(done.stdout.partition("=>")[2])
            assert result["changed"] is changed, result
            found.append([step["text"] for step in result["vms"][0]["steps"]])
        assert found[0] == found[1]
        after: dict[str, Any] = result["vms"][0]
        return after

    def refusal(self, vm: str, *disks: dict[str, Any], **more: Any) -> dict[str, Any]:
        """What vm_disks says that refuses it or fails."""
        words = {"hypervisor": "libvirt", "vms": [{"vm": vm, "disks": list(disks), **more}]}
        done = self.lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps(words), check=False)
        found: dict[str, Any] = json.loads(done.stdout.partition("FAILED! =>")[2])
        return found

    def quiet(self, vm: str, *disks: dict[str, Any], **more: Any) -> None:
        """Nothing is left to do."""
        self.converge(vm, *disks, changed=False, **more)


@pytest.fixture
def host(lab: Lab) -> Iterator[Host]:
    lab.reset()
    yield Host(lab)
    lab.reset()


@pytest.fixture
def make(lab: Lab, host: Host) -> Iterator[Make]:
    """Makes stopped VMs with the disks root, data and logs, each behind a root port of its own."""
    made = []

    def one(number: int) -> Guest:
        guest = Guest(lab, f"guest{number}", "q35", number)
        made.append(guest)
        guest.remove()
        root = f"{lab.pool}/{guests.uuid(number)}"
        lab.zfs("create", "-o", "mountpoint=none", "-o", "volmode=dev", root)
        disks = [Disk(f"{root}/disk{at}", port, f"unknown-{at}") for at, port in enumerate(PORTS)]
        for disk in disks:
            lab.zfs("create", "-V", f"{SIZE}M", disk.dataset)
        lab.run(["udevadm", "settle"])
        guest.define(disks)
        slots = [{"name": name, "pci_slot": f"{port}:0:0"} for name, port in zip(NAMES, PORTS, strict=True)]
        host.converge(guest.name, *slots, flexible_disk_size="1GiB")
        return guest

    yield one
    for guest in made:
        guest.remove()


def seen(vm: dict[str, Any]) -> dict[str, tuple[str, int, str]]:
    """The disks as their guest should see them, by name: address, bytes, serial number."""
    found = {}
    for disk in vm["disks"]:
        bus, device, function = map(int, disk["pci_slot"].split(":"))
        serial = disk["uuid"].replace("-", "")[:20]
        found[disk["name"]] = (f"0000:{bus:02x}:{device:02x}.{function}", disk["size"] * MIB, serial)
    return found


def without_device(listing: list[Seen]) -> list[tuple[str, int, str]]:
    return sorted((one.address, one.size, one.serial) for one in listing)


def digest(guest: Guest, device: str) -> str:
    """Of both ends of a disk, computed in the guest."""
    parts = "; ".join(f"dd if={device} bs=1M count=1 skip={end} 2> /dev/null" for end in ENDS)
    return guest.ask(f"({parts}) | sha256sum").split()[0]


def declared(host: Host, guest: Guest, *disks: dict[str, Any], unlisted: str = "refuse") -> dict[str, Any]:
    """Declare the disks of a running guest. They are what it should see, and does by then."""
    expected = seen(host.converge(guest.name, *disks, unlisted=unlisted))
    guest.wait_until(lambda now: without_device(now) == sorted(expected.values()))
    return expected


def test_a_guest_sees_what_was_declared(host: Host, make: Make) -> None:
    guest = make(1)
    assert len(guest.start()) == 3

    three = declared(host, guest, {**ROOT, "size": 96}, DATA, LOGS)
    assert three["root"][:2] == ("0000:03:00.0", 96 * MIB)

    new = {"name": "new", "size": 32, "type": "file", "pci_slot": "7:0:0"}
    others = declared(host, guest, ROOT, LOGS, new, unlisted="detach")
    assert others == {"root": three["root"], "logs": three["logs"], "new": ("0000:07:00.0", 32 * MIB, others["new"][2])}


@pytest.mark.full
def test_a_guest_sees_the_same_after_a_restart(host: Host, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    guest = make(1)
    guest.start()
    new = {"name": "new", "type": "file", "pci_slot": "7:0:0"}
    before = declared(host, guest, ROOT, LOGS, {**new, "size": 32}, unlisted="detach")

    two = declared(host, guest, ROOT, {**new, "size": 48}, unlisted="detach")
    assert two == {"root": before["root"], "new": ("0000:07:00.0", 48 * MIB, before["new"][2])}
    host.quiet(guest.name, ROOT, new, unlisted="detach")

    guest.shut_down()
    assert without_device(guest.start()) == sorted(two.values())
    host.quiet(guest.name, ROOT, new, unlisted="detach")
    with capsys.disabled():
        print(f"\nconsole of {guest.name}, {len(guests.listings(guest.transcript()))} lists:\n{guest.transcript()}")


@pytest.mark.full
def test_data_goes_from_one_running_vm_to_another(host: Host, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    giver, taker = make(1), make(2)
    root, data, logs = ({"name": name} for name in NAMES)
    vm = host.converge("guest1", root, {**data, "preserve": True}, logs)
    uuid = next(disk["uuid"] for disk in vm["disks"] if disk["name"] == "data")
    digests = []
    giver.start()
    giver.virsh("suspend")  # two guests that are emulated at once may both be too slow to boot
    taker.start()
    giver.virsh("resume")
    device = giver.device_of(seen(vm)["data"][2])
    for end in ENDS:
        giver.ask(f"dd if=/dev/urandom of={device} bs=1M count=1 seek={end} 2> /dev/null && sync")
    digests.append(digest(giver, device))

    host.converge("guest1", root, logs, unlisted="destroy")
    vm = host.converge("guest2", root, data, logs, {"uuid": uuid, "name": "theirs"})
    serial = seen(vm)["theirs"][2]
    taker.wait_until(lambda now: serial in [one.serial for one in now])
    digests.append(digest(taker, taker.device_of(serial)))
    with capsys.disabled():
        print(f"\nin {giver.name}, then in {taker.name}: {digests}")
    assert digests[0] == digests[1]
    assert digests[0] != NOTHING


@pytest.mark.full
def test_a_playbook_reaches_a_guest_by_the_inventory(lab: Lab, make: Make) -> None:
    guest = make(1)
    shown = guest.start()
    folder = lab.workdir / "vms"
    folder.mkdir()
    # The inventory ends with the variables of the group.
    hypervisors = lab.inventory.read_text(encoding="utf-8") + "flexible_disks_hypervisor=libvirt\n"
    (folder / "hosts.ini").write_text(hypervisors, encoding="utf-8")
    source = {
        "plugin": "flexdisk.hypervisor.vms",
        "inventory": ["hosts.ini"],
        "compose": {"ansible_host": f"'{guests.address(1)}'"},
    }
    (folder / "flexdisk_vms.yml").write_text(json.dumps(source), encoding="utf-8")
    play = {
        "hosts": "hypervisor_lab01:&state_running",
        "gather_facts": False,
        "vars": guests.ssh_variables(),
        "tasks": [
            {"ansible.builtin.raw": "disks", "register": "told"},
            {"ansible.builtin.debug": {"var": "told.stdout"}},
        ],
    }
    book = lab.workdir / "reach.json"
    book.write_text(json.dumps([play]), encoding="utf-8")
    done = lab.playbook(book, "-i", str(folder))
    assert f"ok: [{guest.name}]" in done.stdout
    assert all(f"DISK {one.address} {one.size} {one.serial}" in done.stdout for one in shown), done.stdout


@pytest.mark.full
def test_detached_disks_show_the_host_no_partitions(host: Host, make: Make) -> None:
    """Those of attached disks are the host's own business: docs/libvirt.md."""
    lab, guest, root = host.lab, make(1), f"{Lab.pool}/{guests.uuid(1)}"
    declared = [{"name": name} for name in NAMES]
    lab.run(["udevadm", "settle"])
    lab.zfs("inherit", "volmode", root)
    lab.run(["udevadm", "settle"])
    one, data, logs = (f"/dev/zvol/{root}/disk{number}" for number in range(len(NAMES)))

    def parked() -> list[int]:
        lab.run(["udevadm", "settle"])
        volumes = lab.zfs("list", "-Hro", "name", "-t", "volume", f"{lab.pool}/flexdisk").split()
        return [lab.partitions(f"/dev/zvol/{volume}") for volume in volumes]

    lab.partition(data)
    assert lab.partitions(data) == 1
    host.converge(guest.name, declared[0], declared[2], unlisted="detach")
    assert parked() == [0]

    guest.start()  # with a table on its first disk it would be started from that
    for device in (one, logs):
        lab.partition(device)
    host.converge(guest.name, declared[0], unlisted="detach")
    assert parked() == [0, 0]
    assert lab.partitions(one) == 1


@pytest.mark.full
def test_two_writers_are_refused_by_every_name_of_a_volume(host: Host, make: Make) -> None:
    lab, guest, root = host.lab, make(1), f"{Lab.pool}/{guests.uuid(1)}"
    declared: list[dict[str, Any]] = [{"name": name} for name in NAMES]
    lab.zfs("inherit", "volmode", root)
    lab.run(["udevadm", "settle"])
    link = f"/dev/zvol/{root}/disk1"
    lab.partition(link)
    lab.run(["udevadm", "settle"])
    device = lab.run(["readlink", "-f", link]).stdout.strip()
    assert device.startswith("/dev/zd")
    lab.run(["virsh", "-q", "pool-define", "/dev/stdin"], stdin=POOL.format(root=root))
    try:
        for kind, source in (
            ("block", f"dev='{device}'"),
            ("block", f"dev='{device}p1'"),
            ("file", f"file='{link}-part1'"),
            ("volume", "pool='vms' volume='disk1'"),
        ):
            lab.run(["virsh", "-q", "define", "/dev/stdin"], stdin=OTHER.format(kind=kind, source=source))
            refused = host.refusal(guest.name, declared[0], {**declared[1], "size": 96}, declared[2])
            assert refused["error_code"] == "InUse", source
            assert "other" in refused["msg"], refused
            lab.run(["virsh", "-q", "undefine", "other"])
    finally:
        lab.run(["virsh", "-q", "undefine", "other"], check=False)
        lab.run(["virsh", "-q", "pool-undefine", "vms"])
    assert host.converge(guest.name, declared[0], {**declared[1], "size": 96}, declared[2])["changed"]


@pytest.mark.full
def test_a_disk_that_the_guest_lets_go_of_too_late_is_detached_by_the_next_task(host: Host, make: Make) -> None:
    guest = make(1)
    root, _data, logs = ({"name": name} for name in NAMES)
    three = guest.start()
    guest.virsh("schedinfo", "--live", "--set", "vcpu_quota=1000")  # microseconds of each 100,000
    for _asked in range(2):
        held = host.refusal(guest.name, root, logs, unlisted="detach")
        assert held["error_code"] == "GuestHoldsDisk", held
    assert sorted(guest.virsh("domblklist").split()[1::2]) == sorted(
        guest.virsh("domblklist", "--inactive").split()[1::2]
    )
    guest.virsh("schedinfo", "--live", "--set", "vcpu_quota=-1")
    guest.wait_until(lambda now: len(now) == len(three) - 1)
    vm = host.converge(guest.name, root, logs, unlisted="detach")
    assert [disk["name"] for disk in vm["disks"]] == ["root", "logs"]
    host.quiet(guest.name, root, logs, unlisted="detach")


@pytest.mark.full
def test_ports_are_added_for_the_disks_of_a_stopped_guest(host: Host, make: Make) -> None:
    guest = make(1)
    three = [{"name": name} for name in NAMES]
    more = [{"name": f"more{number}", "size": 8} for number in range(5)]
    vm = host.converge(guest.name, *three, *more)
    assert guest.virsh("dumpxml").count("model='pcie-root-port'") == guests.ROOT_PORTS + SPARE_PORTS
    host.quiet(guest.name, *three, *more)
    assert without_device(guest.start()) == sorted(seen(vm).values())
