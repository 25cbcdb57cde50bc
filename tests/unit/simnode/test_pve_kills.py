# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""qm is killed after each of its steps: no volume is lost of which nothing was said, and the files can be read."""

from __future__ import annotations

import pytest

from tests.unit.simnode.pve_support import PveNode

COMMANDS = {
    "a new disk": "qm set 100 --virtio2 local-zfs:1,serial=new",
    "an attached disk": "qm set 100 --scsi1 local-zfs:vm-100-disk-1,serial=abc --delete virtio1",
    "a disk unused": "qm set 100 --delete virtio1",
    "a larger disk": "qm disk resize 100 virtio1 3G",
    "a disk of another VM": "qm disk move 100 virtio1 --target-vmid 101 --target-disk virtio1",
    "a snapshot": "qm snapshot 100 s2",
    "a rollback": "qm rollback 100 s1",
    "a snapshot less": "qm delsnapshot 100 s1",
    "a copy": "qm disk move 100 virtio1 thick",
    "a start": "qm start 100",
    "a template": "qm template 101",
    "a clone": "qm clone 101 102",
    "a rescan": "qm disk rescan",
}
DESTROYING = {
    "an unused disk": ("qm set 100 --delete unused0", {"vm-100-disk-2"}),
    "a disk by force": ("qm set 100 --delete virtio1 --force 1", {"vm-100-disk-1"}),
    "a VM": ("qm destroy 101", {"vm-101-disk-0"}),
}
MAX_STEPS = 40


def prepared(snapshot: bool = True) -> PveNode:
    node = PveNode()
    node.good("qm set 100 --virtio1 local-zfs:2,serial=abc")
    node.good("qm set 100 --virtio2 local-zfs:1")
    node.good("qm set 100 --delete virtio2")
    node.good("qm create 101 --name other --memory 128 --virtio0 local-zfs:1")
    if snapshot:
        node.good("qm snapshot 100 s1")
    return node


def guids(node: PveNode) -> dict[str, str]:
    lines = node.zfs("get", "-Hp", "-r", "-t", "volume", "-o", "name,value", "guid", "rpool").splitlines()
    return {guid: name.rpartition("/")[2] for name, guid in (line.split("\t") for line in lines)}


def killed_everywhere(line: str, snapshot: bool) -> list[tuple[PveNode, dict[str, str]]]:
    """The node after each place where the command can be killed, with the volumes of before by guid."""
    found = []
    for steps in range(1, MAX_STEPS):
        node = prepared(snapshot)
        before = guids(node)
        node.admin("pve-kill", str(steps))
        status, _out, err = node.run(*line.split())
        found.append((node, before))
        if status != -9:
            assert (status, err) == (0, "")
            return found
    raise AssertionError(f"{line} has not ended")


@pytest.mark.parametrize("name", [*COMMANDS])
def test_no_volume_is_lost(name: str) -> None:
    snapshot = name not in ("a disk of another VM", "a copy")
    places = killed_everywhere(COMMANDS[name], snapshot)
    assert len(places) > 2
    for node, before in places:
        assert {*before} <= {*guids(node)}
        for vmid in (100, 101):
            status, _out, err = node.run("qm", "config", str(vmid))
            assert (status, err) == (0, "")


@pytest.mark.parametrize("name", [*DESTROYING])
def test_no_other_volume_is_destroyed(name: str) -> None:
    line, wanted = DESTROYING[name]
    places = killed_everywhere(line, False)
    for node, before in places:
        gone = {before[guid] for guid in {*before} - {*guids(node)}}
        assert gone <= wanted
    assert {before[guid] for guid in {*before} - {*guids(node)}} == wanted


def test_the_next_command_is_not_killed() -> None:
    node = prepared()
    node.admin("pve-kill", "1")
    assert node.run("qm", "set", "100", "--memory", "256")[0] == -9
    assert "[PENDING]\nmemory: 256\n" in (node.file() or "")
    node.good("qm set 100 --cores 2")
    assert (node.values()["memory"], node.values()["cores"]) == ("256", "2")


def test_a_command_that_ends_before_takes_the_kill_with_it() -> None:
    node = prepared()
    node.admin("pve-kill", "99")
    node.good("qm set 100 --memory 256")
    node.good("qm set 100 --memory 128")
