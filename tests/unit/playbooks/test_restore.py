# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook restore_disk on two simulated nodes, as a user runs it."""

from __future__ import annotations

import json
import re

import pytest

from .nodes import Nodes
from .test_replicate import vm_with_disks

REPLICAS = "zones/flexdisk/replica"
NAMED = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_disk=disk1", "-e", "flexdisk_restored_name=before"]


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    made.connect("hv01", "hv02")
    made.connect("hv02", "hv01")
    made.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv02"}]}
    return made


def replicated(nodes):
    """The dataset and the UUID of the second disk of a VM, after a sync."""
    disks = vm_with_disks(nodes)
    assert nodes.play("adopt", "-e", '{"flexdisk_adopt_vms": [{"vm": "db01"}]}')[0] == 0
    status, printed = nodes.play("replicate")
    assert status == 0, printed
    uuid, dataset = list(disks.items())[1]
    return dataset, uuid


def play(nodes, *words, status=0, **more):
    ended, printed = nodes.play("restore_disk", *words, **more)
    assert ended == status, printed
    return printed


def changed(printed, host):
    return " changed=0 " not in next(line for line in printed.splitlines() if re.match(rf"{host} +: ok", line))


def detached(nodes, host):
    """The detached disks of a host, by name."""
    options = ("-Hp", "-d", "1", "-t", "volume", "-o", "name,value")
    found = nodes.run(host, "zfs", "get", *options, "flexdisk:name", "zones/flexdisk")
    return {line.split("\t")[1]: line.split("\t")[0] for line in found.splitlines()}


def test_four_steps(nodes):
    """A guest has written nonsense since the sync."""
    dataset, uuid = replicated(nodes)
    before = nodes.run("hv01", "guest", "hash", dataset)
    nodes.run("hv01", "guest", "write", dataset, "0", "9", "nonsense")
    printed = play(nodes, *NAMED, "--check")
    assert f"+ before 1 GiB detached as a copy of {REPLICAS}/{uuid}@flexdisk-sync-" in printed
    assert changed(printed, "hv02")
    options = ("-Hr", "-s", "local", "-o", "property")
    assert "flexdisk:name" not in nodes.run("hv02", "zfs", "get", *options, "all", "zones")
    assert changed(play(nodes, *NAMED), "hv02")
    volume = detached(nodes, "hv02")["before"]
    assert nodes.run("hv02", "guest", "hash", volume) == before
    assert nodes.run("hv01", "guest", "hash", dataset) != before
    for words in (("--check",), ()):
        assert not changed(play(nodes, *NAMED, *words), "hv02")


def test_the_host_of_the_vm_is_down(nodes):
    _dataset, uuid = replicated(nodes)
    given = ["-e", f"flexdisk_disk={uuid}", "-e", "flexdisk_restored_name=before", "-e", "flexdisk_replica_host=hv02"]
    status, printed = nodes.play("restore_disk", *given, unreachable="hv01")
    assert "+ before 1 GiB detached as a copy of" in printed
    assert [*detached(nodes, "hv02")] == ["before"]
    assert status in (0, 4)


def test_over_the_network(nodes):
    """The host of the VM gets the disk. Another name for it is another disk."""
    dataset, uuid = replicated(nodes)
    before = nodes.run("hv01", "guest", "hash", dataset)
    nodes.run("hv01", "guest", "write", dataset, "0", "9", "nonsense")
    there = [*NAMED, "-e", "flexdisk_target=hv01"]
    line = f"+ before 1 GiB detached as a copy of {REPLICAS}/{uuid}@flexdisk-sync-"
    assert line in play(nodes, *there, "--check")
    assert "zones/flexdisk/restoring" not in nodes.run("hv01", "zfs", "list", "-Ho", "name", "-r", "zones")
    printed = play(nodes, *there)
    assert line in printed
    assert changed(printed, "hv02")
    assert nodes.run("hv01", "guest", "hash", detached(nodes, "hv01")["before"]) == before
    for words in (("--check",), ()):
        printed = play(nodes, *there, *words)
        assert "was restored from this snapshot already" in printed
        assert not changed(printed, "hv02")


def test_an_unknown_snapshot(nodes):
    """What there is, with its times."""
    replicated(nodes)
    printed = play(nodes, *NAMED, "-e", "flexdisk_replica_snapshot=weekly", status=2)
    text = " ".join(printed.split())
    assert "has no snapshot weekly that has come from its disk; it has: flexdisk-sync-" in text
    assert json.loads(nodes.run("hv02", "vmadm", "lookup", "-j")) == []


IN_PLACE = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_disk=disk1", "-e", "flexdisk_replaced_name=wrong"]
ALLOWED = ["-e", "flexible_disks_allow_restart=true", "-e", "flexible_disks_stop_timeout=9"]


def test_in_place(nodes):
    """The disk gets what it had, in its place. What it had meanwhile is another disk."""
    dataset, uuid = replicated(nodes)
    before = nodes.run("hv01", "guest", "hash", dataset)
    nodes.run("hv01", "guest", "write", dataset, "0", "9", "nonsense")
    wrong = nodes.run("hv01", "guest", "hash", dataset)
    lines = [
        f"+ wrong 1 GiB detached as a copy of {REPLICAS}/{uuid}@flexdisk-sync-",
        "~ disk1 1 GiB gets back what it had at flexdisk-sync-",
        "; what it has now stays detached as wrong",
    ]
    printed = play(nodes, *IN_PLACE, *ALLOWED, "--check")
    assert [line for line in lines if line not in printed] == []
    assert changed(printed, "hv02")
    assert "zones/flexdisk/restoring" not in nodes.run("hv01", "zfs", "list", "-Ho", "name", "-r", "zones")
    printed = play(nodes, *IN_PLACE, *ALLOWED)
    assert [line for line in lines if line not in printed] == []
    assert changed(printed, "hv02")
    assert nodes.run("hv01", "guest", "hash", dataset) == before
    assert nodes.run("hv01", "guest", "hash", detached(nodes, "hv01")["wrong"]) == wrong
    for words in (("--check",), ()):
        printed = play(nodes, *IN_PLACE, *ALLOWED, *words)
        assert "this was restored from this snapshot already" in printed
        assert not changed(printed, "hv02")


def test_in_place_of_a_running_vm(nodes):
    """It is refused before anything is sent, with the command that stops the VM."""
    dataset, _uuid = replicated(nodes)
    vm = dataset.split("/")[1]
    nodes.run("hv01", "vmadm", "start", vm)
    text = " ".join(play(nodes, *IN_PLACE, status=2).split())
    assert f"the VM is running and must be stopped while its disks get other contents: vmadm stop {vm}" in text
    assert "zones/flexdisk" not in nodes.run("hv01", "zfs", "list", "-Ho", "name", "-r", "zones").split()


def test_all_disks_of_a_vm(nodes):
    """They get back what they had at one moment."""
    replicated(nodes)
    (vm,) = json.loads(nodes.run("hv01", "vmadm", "lookup", "-j"))
    places = [disk["path"].removeprefix("/dev/zvol/rdsk/") for disk in vm["disks"]]
    before = [nodes.run("hv01", "guest", "hash", place) for place in places]
    for place in places:
        nodes.run("hv01", "guest", "write", place, "0", "9", "nonsense")
    given = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_replaced_suffix=wrong", *ALLOWED]
    for words in (("--check",), ()):
        status, printed = nodes.play("restore_vm", *given, *words)
        assert status == 0, printed
        assert "what they have now stays detached as disk0-wrong, disk1-wrong" in printed
        assert changed(printed, "hv02")
    assert [nodes.run("hv01", "guest", "hash", place) for place in places] == before
    assert sorted(detached(nodes, "hv01")) == [f"disk{number}-wrong" for number in range(len(places))]
    status, printed = nodes.play("restore_vm", *given)
    assert (status, changed(printed, "hv02")) == (0, False)
