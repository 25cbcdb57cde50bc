# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook replicate on two simulated nodes, as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from .nodes import Nodes

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "replicas.md").read_text()
REPLICAS = "zones/flexdisk/replica"
PAIR = [{"vm": "db01", "host": "hv02"}]


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    made.connect("hv01", "hv02")
    made.variables["all"] = {"flexdisk_replicas": PAIR}
    return made


def vm_with_disks(nodes, name="db01", host="hv01"):
    """A VM with two disks that have data. The datasets of the disks by their uuids."""
    uuid = nodes.create(host, name, 1024, 2, {}, flexible=6, more=[1])
    found = json.loads(nodes.run(host, "vmadm", "get", uuid))["disks"]
    disks = {disk["uuid"]: disk["zfs_filesystem"] for disk in found}
    for number, dataset in enumerate(disks.values()):
        nodes.run(host, "guest", "write", dataset, "0", "9", f"{name}-{number}")
    return disks


def replicated(nodes, *words, status=0):
    """What the playbook prints."""
    ended, printed = nodes.play("replicate", *words)
    assert ended == status, printed
    return printed


def changed(printed):
    return " changed=0 " not in next(line for line in printed.splitlines() if re.match(r"hv01 +: ok", line))


def diff(printed):
    """The lines of the plan."""
    return re.findall(r"^(?:VM|  )(?! +\").*(?:zones|snapshot|VM).*$", printed, re.MULTILINE)


def same(nodes, disks, home="hv01", peer="hv02"):
    """Whether each replica has what its disk has."""
    pairs = [
        (nodes.run(home, "guest", "hash", d), nodes.run(peer, "guest", "hash", f"{REPLICAS}/{u}"))
        for u, d in disks.items()
    ]
    return all(here == there for here, there in pairs)


def points(nodes, host, dataset, kind="snapshot"):
    found = nodes.run(host, "zfs", "list", "-H", "-o", "name", "-t", kind, "-s", "createtxg", "-d", "1", dataset)
    return [re.split("[@#]", line)[1] for line in found.split()]


def prop(nodes, host, dataset, name):
    return nodes.run(host, "zfs", "get", "-Hp", "-o", "value", name, dataset).strip()


def test_four_steps(nodes):
    """As the page has it. The transfer is slow enough to be watched."""
    block, *_policies = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    told = yaml.safe_load(block)["hypervisors"]
    assert (set(told["hosts"]), told["vars"]) == ({"hv01", "hv02"}, {"flexdisk_replicas": PAIR})
    disks = vm_with_disks(nodes)
    predicted = replicated(nodes, "--check", "--diff")
    assert "1 VM to hv02: 2 streams, about" in predicted
    assert diff(predicted)
    assert nodes.run("hv02", "zfs", "list", "-H", "-o", "name").split() == ["zones"]
    assert diff(replicated(nodes, "--diff", "-e", "flexdisk_bandwidth_limit=1MiB")) == diff(predicted)
    assert same(nodes, disks)
    for uuid, dataset in disks.items():
        (name,) = points(nodes, "hv02", f"{REPLICAS}/{uuid}")
        assert points(nodes, "hv01", dataset) == points(nodes, "hv01", dataset, "bookmark") == [name]
        for each in ("volsize", "refreservation"):
            assert prop(nodes, "hv02", f"{REPLICAS}/{uuid}", each) == prop(nodes, "hv01", dataset, each)
        assert prop(nodes, "hv02", f"{REPLICAS}/{uuid}", "readonly") == "on"
    assert not changed(replicated(nodes, "--check"))
    assert not changed(replicated(nodes))


def test_a_replicated_vm_is_not_deleted(nodes):
    """Its replicas are given up first. Then nothing is left of them on either side."""
    disks = vm_with_disks(nodes)
    replicated(nodes)
    words = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_destroy_disks=true", "-e", "flexdisk_destroy_snapshots=true"]
    status, printed = nodes.play("delete_vm", *words)
    assert status == 2
    assert printed.count("it has replicas on hv02") >= 2
    absent = ["-e", "flexdisk_vm=db01", "-e", "flexdisk_replica_state=absent"]
    printed = replicated(nodes, *absent, "--check", "--diff")
    assert changed(printed)
    assert "db01: the replicas on hv02 would be given up" in printed
    assert same(nodes, disks)
    printed = replicated(nodes, *absent)
    assert changed(printed)
    assert "db01: the replicas on hv02 are given up" in printed
    assert nodes.run("hv02", "zfs", "list", "-H", "-o", "name").split() == ["zones", "zones/flexdisk", REPLICAS]
    assert [points(nodes, "hv01", where) for where in disks.values()] == [[], []]
    printed = replicated(nodes, *absent)
    assert not changed(printed)
    assert "db01: the replicas on hv02 had been given up already" in printed
    status, printed = nodes.play("delete_vm", *words)
    assert status == 0, printed


def test_refusals(nodes):
    """Each is one error, before anything is changed."""
    disks = vm_with_disks(nodes)
    nodes.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv01"}]}
    assert "hv01 is the host that has the VMs" in replicated(nodes, status=2)
    nodes.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv09"}]}
    assert "hv09 is none of the hypervisors, hv01, hv02" in replicated(nodes, status=2)
    nodes.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv02", "pool": "tank"}]}
    assert "hv02 has no pool tank, but zones [ResourceNotFound]" in replicated(nodes, status=2)
    nodes.variables["all"] = {"flexdisk_replicas": PAIR}
    printed = replicated(nodes, "-e", "flexdisk_replica_state=absent", status=2)
    assert "flexdisk_replica_state=absent needs flexdisk_vm" in printed
    assert [points(nodes, "hv01", where) for where in disks.values()] == [[], []]


def test_a_transfer_that_cannot_be_is_refused_before_the_first_snapshot(nodes):
    """An address that nobody knows, and a host without a key of its own: in check mode, too."""
    disks = vm_with_disks(nodes)
    nodes.variables["hv02"]["flexdisk_transfer_address"] = "hv02.nowhere"
    told = {"flexdisk_transfer_ssh_directories": "no public key of this host"}
    for wrong, words in {"flexdisk_transfer_address": "address hv02.nowhere is not known here", **told}.items():
        for check in (["--check"], []):
            assert words in replicated(nodes, *check, status=2)
        assert [points(nodes, "hv01", where) for where in disks.values()] == [[], []], wrong
        nodes.variables["hv02"].update(flexdisk_transfer_address="hv02", flexdisk_transfer_ssh_directories=["/nowhere"])


def test_failover_that_cannot_be_is_refused_before_the_first_snapshot(nodes):
    """In check mode, too. The snapshot on hold stays behind in a move, so the VM cannot have failover."""
    disks = vm_with_disks(nodes)
    (root,) = {dataset.rpartition("/")[0] for dataset in disks.values()}
    nodes.run("hv01", "zfs", "snapshot", f"{root}@mine")
    nodes.run("hv01", "zfs", "hold", "keep", f"{root}@mine")
    for check in ("--check", "--diff"):
        printed = replicated(nodes, "-e", "flexdisk_failover=true", check, status=2)
        assert f"{root}@mine has clones or holds" in printed
        assert [points(nodes, "hv01", where) for where in disks.values()] == [[], []]
    assert "replica/" not in nodes.run("hv02", "zfs", "list", "-H", "-o", "name")


def test_a_peer_that_is_off(nodes):
    disks = vm_with_disks(nodes)
    for check in ([], ["--check"]):
        status, printed = nodes.play("replicate", *check, "--limit", "hv01", unreachable="hv02")
        assert status != 0
        assert "hv02 could not be reached, so nothing was sent to it and no snapshot was taken: " in printed
    assert [points(nodes, "hv01", where) for where in disks.values()] == [[], []]


def test_a_vm_on_two_hosts_does_not_stop_the_others(nodes):
    """It is refused with both hosts, and nothing is done with it."""
    nodes.connect("hv02", "hv01")
    disks, doubled = vm_with_disks(nodes), vm_with_disks(nodes, "web01")
    vm_with_disks(nodes, "web01", "hv02")
    nodes.variables["all"] = {"flexdisk_replicas": [*PAIR, {"vm": "web01", "host": "hv02"}]}
    printed = replicated(nodes, status=2)
    assert re.search(r"VM web01 is on hv01 \(\S+\) and on hv02 \(", printed)
    assert same(nodes, disks)
    assert [points(nodes, "hv01", where) for where in doubled.values()] == [[], []]


def test_a_host_that_is_another_one(nodes):
    """The key of the host is the one that came over the connection of the inventory, or nothing is sent."""
    vm_with_disks(nodes)
    nodes.simnode("other", "init")
    nodes.simnode("hv01", "connect", "hv02", str(nodes.folder / "other"))
    printed = replicated(nodes, status=2)
    assert "db01 to hv02: " in printed
    assert "Host key verification failed" in printed
    for host in ("hv02", "other"):
        assert "replica/" not in nodes.run(host, "zfs", "list", "-H", "-o", "name")
    nodes.connect("hv01", "hv02")
    replicated(nodes)


def test_policies(nodes):
    """What is fresh is left alone, what fails stops nothing else, and the run ends with a table."""
    disks = vm_with_disks(nodes)
    vm_with_disks(nodes, "web01")
    entries = [
        {"vm": "web01", "host": "hv02", "pool": "tank", "every": "PT15M"},
        {"vm": "db01", "host": "hv02", "every": "PT1H", "keep": {"hourly": 2}, "bandwidth_limit": "50MiB"},
    ]
    nodes.variables["all"] = {"flexdisk_replicas": entries}
    printed = replicated(nodes, "--check", status=2)
    assert re.search(r"db01 +hv01 +hv02 +about 18.9 MiB +never", printed)
    assert "2 replicas would be due, 1 failed" in printed
    printed = replicated(nodes, status=2)
    assert re.search(r"web01 +hv01 +hv02 +0 B +0 s +never +never +next run +yes", printed)
    assert "web01 to hv02: hv02 has no pool tank, but zones [ResourceNotFound]" in printed
    assert same(nodes, disks)
    nodes.variables["all"] = {"flexdisk_replicas": entries[1:]}
    for words in (["--check"], []):
        printed = replicated(nodes, *words)
        assert "no replica is due, 1 replica is fresh" in printed
        assert "Plan the sync" not in printed
    assert "db01: its replicas on hv02 have everything" in replicated(nodes, "-e", "flexdisk_vm=db01")
