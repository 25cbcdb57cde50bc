# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated qm beyond the recorded cases: several commands, guests that change their mind, and what is unknown."""

from __future__ import annotations

import pytest

from tests.unit.simnode.pve_support import BASE, PveNode

RICH = """#the owner's words
agent: 1
balloon: 0
boot: order=scsi0;ide2;net0
cores: 2
cpu: host
hostpci0: 0000:01:00
ide2: none,media=cdrom
machine: q35
memory: 2048
meta: creation-qemu=9.2.0,ctime=1700000000
name: db
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1
numa: 0
ostype: l26
scsi0: local-zfs:vm-100-disk-0,discard=on,iothread=1,size=1G,ssd=1
scsihw: virtio-scsi-single
serial0: socket
smbios1: uuid=aaaaaaaa-0000-4000-8000-000000000001
sockets: 1
tags: prod;web
unused0: local-zfs:vm-100-disk-7
usb0: host=1234:5678
vga: qxl
vmgenid: aaaaaaaa-0000-4000-8000-000000000002

[special:fleecing]
fleecing-images: local-zfs:vm-100-fleece-0

[before-upgrade]
#before the upgrade
memory: 1024
scsi0: local-zfs:vm-100-disk-0,size=1G
snaptime: 1767225600
"""


@pytest.fixture
def node() -> PveNode:
    return PveNode()


def test_settings_as_people_have_them_survive_a_write(node: PveNode) -> None:
    node.write("/etc/pve/qemu-server/100.conf", RICH)
    node.good("qm set 100 --onboot 1")
    assert "\nonboot: 1\n" in (node.file() or "")
    assert (node.file() or "").replace("onboot: 1\n", "") == RICH


def test_a_disk_is_made_grown_detached_and_destroyed(node: PveNode) -> None:
    node.good("qm set 100 --virtio1 local-zfs:2,serial=abc")
    node.good("qm resize 100 virtio1 3G")
    assert node.values()["virtio1"] == "local-zfs:vm-100-disk-1,serial=abc,size=3G"
    node.good("qm unlink 100 --idlist virtio1")
    assert node.values()["unused0"] == "local-zfs:vm-100-disk-1"
    node.good("qm set 100 --delete unused0")
    assert node.file() == BASE
    assert node.volumes() == {"rpool/data/vm-100-disk-0": 1 << 30}


def test_a_guest_that_keeps_a_disk_may_let_it_go_later(node: PveNode) -> None:
    node.good("qm set 100 --virtio1 local-zfs:2")
    node.good("qm start 100")
    node.admin("pve-guest", "100", "deaf")
    assert "still busy in guest?" in node.bad("qm set 100 --delete virtio1")
    assert "[PENDING]\ndelete: virtio1\n" in (node.file() or "")
    assert [*node.plugged()] == ["virtio0", "virtio1"]
    node.admin("pve-guest", "100", "answers")
    assert [*node.plugged()] == ["virtio0"]
    assert "virtio1" in node.values()
    node.admin("pve-power-off", "100")
    assert node.values()["unused0"] == "local-zfs:vm-100-disk-1"
    assert "[PENDING]" not in (node.file() or "")


def test_the_guest_sees_a_new_serial_after_a_restart_alone(node: PveNode) -> None:
    node.good("qm set 100 --virtio1 local-zfs:2,serial=old")
    node.good("qm start 100")
    node.good("qm set 100 --virtio1 local-zfs:vm-100-disk-1,serial=new")
    assert node.plugged()["virtio1"]["serial"] == "old"
    node.good("qm stop 100")
    node.good("qm start 100")
    assert node.plugged()["virtio1"]["serial"] == "new"


def test_a_volume_that_qemu_has_cannot_be_destroyed_under_any_name(node: PveNode) -> None:
    node.good("qm start 100")
    node.zfs("rename", "rpool/data/vm-100-disk-0", "rpool/data/vm-100-other")
    status, _out, err = node.run("zfs", "destroy", "rpool/data/vm-100-other")
    assert (status, err) == (1, "cannot destroy 'rpool/data/vm-100-other': dataset is busy\n")
    node.good("qm stop 100")
    node.zfs("destroy", "rpool/data/vm-100-other")


def test_power_that_is_lost_applies_nothing(node: PveNode) -> None:
    node.good("qm start 100")
    node.good("qm set 100 --memory 256")
    node.admin("pve-lose-power")
    assert node.good("qm status 100") == "status: stopped\n"
    assert node.values()["memory"] == "128"
    node.good("qm start 100")
    assert node.values()["memory"] == "256"


def test_without_a_quorum_nothing_can_be_written(node: PveNode) -> None:
    node.admin("pve-quorum", "off")
    assert "read-only" in node.bad("qm set 100 --memory 256")
    assert node.file() == BASE
    node.admin("pve-quorum", "on")
    node.good("qm set 100 --memory 256")


def test_a_lock_of_another_process(node: PveNode) -> None:
    path = "/var/lock/qemu-server/lock-100.conf"
    node.admin("pve-lock", path, "on")
    assert "got timeout" in node.bad("qm set 100 --memory 256")
    node.admin("pve-lock", path, "off")
    node.good("qm set 100 --memory 256")


def test_contents_are_copied_to_another_storage_and_to_a_clone(node: PveNode) -> None:
    node.run("guest", "write", "rpool/data/vm-100-disk-0", "0", "10", "7")
    before = node.good("guest hash rpool/data/vm-100-disk-0 0 64")
    node.good("qm clone 100 101")
    assert node.good("guest hash rpool/data/vm-101-disk-0 0 64") == before
    node.good("qm disk move 100 virtio0 thick --delete 1")
    assert node.good("guest hash rpool/thick/vm-100-disk-0 0 64") == before
    assert "rpool/data/vm-100-disk-0" not in node.volumes()


def test_a_rollback_brings_contents_back(node: PveNode) -> None:
    node.run("guest", "write", "rpool/data/vm-100-disk-0", "0", "10", "7")
    before = node.good("guest hash rpool/data/vm-100-disk-0")
    node.good("qm snapshot 100 s1")
    node.run("guest", "write", "rpool/data/vm-100-disk-0", "0", "10", "8")
    node.good("qm rollback 100 s1")
    assert node.good("guest hash rpool/data/vm-100-disk-0") == before


def test_options_may_be_abbreviated(node: PveNode) -> None:
    node.good("qm set 100 --mem 256")
    assert node.values()["memory"] == "256"
    assert node.bad("qm set 100 --s 1").startswith("Option s is ambiguous")


def test_a_long_description(node: PveNode) -> None:
    status, _out, err = node.run("qm", "set", "100", "--description", "x" * 8193)
    assert (status, "may only be 8192 characters" in err) == (2, True)


def test_a_disk_of_two_new_ones_in_a_call_has_any_number(node: PveNode) -> None:
    """As with the real one, whose order is that of a hash: one disk a call, who wants to know its name."""
    first = set()
    for _attempt in range(12):
        node.good("qm set 100 --virtio1 local-zfs:1 --virtio2 local-zfs:1")
        first.add(node.values()["virtio1"])
        node.good("qm set 100 --delete virtio1,virtio2 --force 1")
    assert len(first) == 2


UNKNOWN = {
    "a setting": "qm set 100 --cpu host",
    "a cloud-init drive": "qm set 100 --ide2 local-zfs:cloudinit",
    "a disc": "qm set 100 --ide2 local:iso/debian.iso,media=cdrom",
    "another type of storage": "qm set 100 --virtio1 local:vm-100-disk-0",
    "a new tpmstate": "qm set 100 --tpmstate0 local-zfs:1",
    "a wait without an end": "qm wait 101",
    "a clone elsewhere": "qm clone 100 102 --storage thick",
    "a move of both": "qm disk move 100 virtio0 thick --target-vmid 101",
    "details of a running VM": "qm status 101 --verbose",
    "a storage of another type": "pvesm add dir more",
}


@pytest.mark.parametrize("line", [pytest.param(line, id=name) for name, line in UNKNOWN.items()])
def test_what_was_never_seen_is_not_done(node: PveNode, line: str) -> None:
    node.good("qm create 101 --name other --memory 128 --virtio0 local-zfs:1")
    node.good("qm start 101")
    assert node.unknown(line).startswith("simulated Proxmox VE: nothing is known about ")


UNPARSED = {
    "qm nosuch": "ERROR: unknown command 'qm nosuch'",
    "qm config": "400 not enough arguments\nqm config <vmid> [OPTIONS]",
    "qm set 100 --memory": "Option memory requires an argument\n400 unable to parse option\nqm set <vmid> [OPTIONS]",
    "qm destroy 100 --purge 2": "400 Parameter verification failed.\npurge: type check ('boolean') failed - got '2'",
    "qm set 100 --memory x": "400 Parameter verification failed.\nmemory: type check ('integer') failed - got 'x'",
    "qm set 100 --virtio1 discard=on": "400 Parameter verification failed.\nvirtio1: invalid format - format error\n"
    "virtio1.file: property is missing and it is not optional",
    "qm snapshot 100 1st": "400 Parameter verification failed.\nsnapname: invalid format",
}


@pytest.mark.parametrize("line", [*UNPARSED])
def test_what_does_not_parse(node: PveNode, line: str) -> None:
    before = node.everything()
    assert node.bad(line).startswith(UNPARSED[line])
    assert node.everything() == before


LOST = {
    "two sections": ("[s1]\nmemory: 64\nsnaptime: 1\n\n[s1]\nmemory: 32\nsnaptime: 2\n", "section 's1' is there twice"),
    "a wrong number": (
        "cores: many\n",
        "unable to parse value of 'cores' - type check ('integer') failed - got 'many'",
    ),
    "a wrong switch": ("onboot: maybe\n", "unable to parse value of 'onboot' - type check ('boolean') failed"),
    "a blank first": (" cores: 2\n", "unable to parse config:  cores: 2"),
}


@pytest.mark.parametrize("name", [*LOST])
def test_lines_that_a_write_loses(node: PveNode, name: str) -> None:
    text, warning = LOST[name]
    node.write("/etc/pve/qemu-server/100.conf", BASE + ("\n" if text.startswith("[") else "") + text)
    status, _out, err = node.run("qm", "set", "100", "--memory", "256")
    assert status == 0
    assert warning in err
    kept = BASE.replace("128", "256") + ("\n[s1]\nmemory: 32\nsnaptime: 2\n" if text.startswith("[") else "")
    assert node.file() == kept
