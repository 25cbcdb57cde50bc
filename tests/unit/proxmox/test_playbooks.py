# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks on a node of Proxmox VE beside a SmartOS host, as a user runs them."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import NOT_THERE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.whole_vms import LEFT_TO_PROXMOX
from tests.unit.playbooks.nodes import Nodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": ""})
    made.create("hv01", "db", 1024, 7, {})
    made.groups["pve1"] = ""
    made.simnode("pve1", "init", "--proxmox")
    words = ("--name", "web", "--memory", "128", "--virtio0", "local-zfs:8", "--scsi1", "local-zfs:2")
    made.run("pve1", "qm", "create", "100", *words)
    made.run("pve1", "zfs", "set", "flexdisk:name=data", "rpool/data/vm-100-disk-0")
    made.run("pve1", "qm", "create", "101", "--name", "free", "--memory", "128", "--virtio0", "local-zfs:1")
    made.variables["pve1"] = {"flexible_disks_vms": [{"vm": "web", "disks": [{"name": "root", "size": "9GiB"}]}]}
    return made


def files(nodes):
    folder = nodes.folder / "pve1"
    paths = [folder / "state.json", *(folder / "root").rglob("*")]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def test_disks_are_listed_by_their_keys(nodes):
    status, printed = nodes.play("list_disks")
    assert status == 0, printed
    rows = re.findall(r'"web +(\S+) +(\S+) +sparse +(\S+) +(\S+ \S+)', printed)
    assert sorted(rows) == [("(vm-100-disk-1)", "attached", "virtio0", "8 GiB"), ("data", "attached", "scsi1", "2 GiB")]


@pytest.mark.parametrize("playbook", ["report", "verify_disks", "status", "recalculate_quota"])
def test_what_only_reads(nodes, playbook):
    before = files(nodes)
    page = nodes.folder / "report.html"
    words = ("-e", f"flexdisk_report_html={page}") if playbook == "report" else ()
    status, printed = nodes.play(playbook, *words)
    assert status == 0, printed
    assert files(nodes) == before
    if playbook == "report":
        assert ">web<" in page.read_text()


REFUSED = {
    "verify_disks -e flexdisk_verify_repair=orphan_volume": NOT_THERE,
    "stop_vm -e flexdisk_vm=web": LEFT_TO_PROXMOX,
    "delete_vm -e flexdisk_vm=web": LEFT_TO_PROXMOX,
}


@pytest.mark.parametrize("call", sorted(REFUSED))
def test_what_would_change_something(nodes, call):
    """Not in check mode: tests of the modules have both."""
    before = files(nodes)
    playbook, *words = call.split()
    status, printed = nodes.play(playbook, "--limit", "pve1", *words)
    assert status != 0
    assert REFUSED[call] in printed, printed
    assert files(nodes) == before


def test_disks_are_planned_and_changed(nodes):
    """As on any other host: the plan, then what it says, then nothing."""
    entries = [
        {"name": "data", "size": "3GiB"},
        {"pci_slot": "virtio0", "name": "root"},
        {"name": "logs", "size": "1GiB"},
    ]
    declared = json.dumps({"flexible_disks_vms": [{"vm": "web", "disks": entries}]})
    before = files(nodes)
    status, printed = nodes.play("plan", "--limit", "pve1", "-e", declared)
    assert status == 0, printed
    assert files(nodes) == before
    for line in ("~ data 2 GiB -> 3 GiB", "+ logs 1 GiB sparse at scsi0", "= root adopted"):
        assert line in printed
    status, printed = nodes.play("converge", "--limit", "pve1", "-e", declared)
    assert status == 0, printed
    file = (nodes.folder / "pve1/root/etc/pve/nodes/pve1/qemu-server/100.conf").read_text()
    assert re.search(r"^scsi0: local-zfs:vm-100-disk-2,serial=[0-9a-f]{20},size=1G$", file, re.MULTILINE)
    settled = files(nodes)
    status, printed = nodes.play("converge", "--limit", "pve1", "-e", declared)
    assert (status, re.search(r"pve1 .*changed=0 ", printed) is None) == (0, False), printed
    assert files(nodes) == settled


def test_one_disk_from_its_beginning_to_its_end(nodes):
    """By the playbooks for one disk, each of them twice: the second time, nothing changes."""

    def line():
        return re.search(r"^virtio1: (.*)$", config.read_text(), re.MULTILINE)

    config = nodes.folder / "pve1/root/etc/pve/nodes/pve1/qemu-server/101.conf"
    words = ("--limit", "pve1", "-e", "flexdisk_vm=free", "-e", "flexdisk_disk=logs")
    calls = {
        "add_disk": ("-e", "flexdisk_disk_size=1GiB"),
        "resize_disk": ("-e", "flexdisk_disk_size=2GiB"),
        "detach_disk": (),
        "attach_disk": (),
        "remove_disk": (),
    }
    for playbook, more in calls.items():
        status, printed = nodes.play(playbook, *words, *more)
        assert (status, re.search(r"pve1 .*changed=1 ", printed) is None) == (0, False), printed
        assert (line() is None) == (playbook in ("detach_disk", "remove_disk")), playbook
        assert "unused" not in config.read_text()
        if playbook != "add_disk":
            status, printed = nodes.play(playbook, *words, *more)
            assert (status, re.search(r"pve1 .*changed=0 ", printed) is None) == (0, False), printed
        if playbook == "resize_disk":
            assert line()[1].endswith("size=2G")
    assert "rpool/flexdisk/" not in nodes.run("pve1", "zfs", "list", "-Ho", "name", "-t", "volume")


def test_disks_are_adopted(nodes):
    named = {"flexdisk_adopt_vms": [{"vm": "free", "disks": [{"pci_slot": "virtio0", "name": "system"}]}]}
    status, printed = nodes.play("adopt", "--limit", "pve1", "-e", json.dumps(named))
    assert status == 0, printed
    assert "system" in nodes.run("pve1", "zfs", "get", "-Ho", "value", "flexdisk:name", "rpool/data/vm-101-disk-0")


def test_a_snapshot_is_taken(nodes):
    """The VM's file lists it, as Proxmox VE does."""
    words = ("--limit", "pve1", "-e", "flexdisk_vm=web", "-e", "flexdisk_snapshot_name=before")
    status, printed = nodes.play("snapshot", *words)
    assert status == 0, printed
    assert "[before]" in (nodes.folder / "pve1/root/etc/pve/nodes/pve1/qemu-server/100.conf").read_text()


def test_names_are_taken_off_again(nodes):
    """The command of docs/proxmox.md, which changes no file of a VM; twice, and then without what it keeps."""
    config = nodes.folder / "pve1/root/etc/pve/nodes/pve1/qemu-server/100.conf"
    before = config.read_text()
    words = ("--limit", "pve1", "-e", '{"flexdisk_adopt_vms": [{"vm": "web"}]}', "-e", "flexdisk_adopt_state=released")
    for more, changed in (((), True), ((), False), (("-e", "flexdisk_adopt_forget=true"), True)):
        status, printed = nodes.play("adopt", *words, *more)
        assert (status, re.search(r"pve1 .*changed=0 ", printed) is None) == (0, changed), printed
    assert config.read_text() == before
    volumes = nodes.run(
        "pve1", "zfs", "get", "-Hrt", "volume", "-s", "local", "-o", "name,property", "all", "rpool/data"
    )
    assert "vm-100-disk-0\tflexdisk" not in volumes
