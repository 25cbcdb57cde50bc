# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks evacuate_host, change_group and rebalance on simulated nodes, as a user runs them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from .nodes import Nodes
from .test_replicate import changed

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "moves.md").read_text()
FROM = ["-e", "flexdisk_move_from_hosts=hv01"]


class Fleet(Nodes):
    """Hosts that reach each other. All VMs run on the first one. contents: what their disks have."""

    def __init__(self, folder, groups, vms, pools=("zones",)):
        super().__init__(folder, groups, memory=65536, pools=pools)
        for host in groups:
            self.connect(host, *sorted(set(groups) - {host}))
        self.contents = {}
        for number in range(vms):
            name = f"vm{number:02}"
            uuid = self.create("hv01", name, 1024, 1, {"kind": "odd" if number % 2 else "even"}, flexible=2)
            (disk,) = json.loads(self.run("hv01", "vmadm", "get", uuid))["disks"]
            self.run("hv01", "guest", "write", disk["zfs_filesystem"], "0", "3", uuid)
            self.run("hv01", "vmadm", "start", uuid)
            self.contents[name] = self.run("hv01", "guest", "hash", disk["zfs_filesystem"])

    def vms(self):
        """The VMs of each host that are whole and run. No VM is on two hosts with its disks."""
        found = {}
        for host in self.groups:
            has = [vm for vm in json.loads(self.run(host, "vmadm", "lookup", "-j")) if vm["disks"]]
            found[host] = sorted(vm["alias"] for vm in has if vm["state"] == "running")
            for vm in has:
                whole = self.run(host, "guest", "hash", vm["disks"][0]["zfs_filesystem"])
                assert whole == self.contents[vm["alias"]], vm["alias"]
        every = [name for names in found.values() for name in names]
        assert len(every) == len(set(every))
        return found

    def kill_at(self, words, times=1):
        """Watches for the n-th line with these words."""
        seen = []

        def watch(line):
            seen.extend([line] if words in line else [])
            return len(seen) == times

        return watch


def told(printed, name):
    """What the tables say of a VM."""
    return re.findall(rf'"{name}  (hv\d+  hv\d+  .*?)"', printed)


def test_a_host_is_emptied(tmp_path):
    """Checked, approved, killed while the VM is down, and ended after its target has died."""
    assert "evacuate_host -e flexdisk_move_from_hosts=hv01 --check\n" in PAGE
    fleet = Fleet(tmp_path, {"hv01": "", "hv02": "", "hv03": ""}, 1)
    status, printed = fleet.play("evacuate_host", *FROM, "--check")
    assert status == 0, printed
    (digest,) = re.findall(r'"digest (\w+)"', printed)
    ((target,),) = [
        re.findall(r"hv01  (hv\d+)  can move, downtime not known before its disks are there", line)
        for line in told(printed, "vm00")
    ]
    (other,) = {"hv02", "hv03"} - {target}
    assert fleet.vms()["hv01"] == ["vm00"]
    words = [*FROM, "-e", f"flexdisk_move_digest={digest}"]
    status, printed = fleet.play("evacuate_host", *words, watch=fleet.kills_at_stop("hv01", "vm00"))
    assert status < 0, printed
    assert fleet.vms() == {"hv01": [], "hv02": [], "hv03": []}
    status, printed = fleet.play("evacuate_host", *words)
    assert status == 2
    assert "moves have begun that no plan has: vm00" in printed
    fleet.die(target)
    status, printed = fleet.play("evacuate_host", *FROM)
    assert status == 0, printed
    back, there = told(printed, "vm00")
    assert back == f"hv01  {target}  put back: {target} cannot be read"
    assert re.fullmatch(rf"hv01  {other}  moved, down for [\d.]+ s", there)
    assert f"{target} could not be read: " in printed
    fleet.die(target, False)
    assert fleet.vms() == {"hv01": [], target: [], other: ["vm00"]}


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes a minute")
def test_a_move_to_another_pool_and_another_group_goes_on(tmp_path):
    """It goes where it was on its way to, although no plan of an evacuation would have it there."""
    fleet = Fleet(tmp_path, {"hv01": "a", "hv02": "b"}, 1, ("zones", "tank"))
    words = ["-e", "flexdisk_vm=vm00", "-e", "flexdisk_target=hv02", "-e", "flexdisk_target_pool=tank"]
    status, printed = fleet.play("move_vm", *words, watch=fleet.kill_at("Give the VM its disks, and start it"))
    assert status < 0, printed
    assert fleet.vms() == {"hv01": [], "hv02": []}
    status, printed = fleet.play("evacuate_host", *FROM, "-e", "flexdisk_hosts=hv01")
    assert status == 0, printed
    goes_on = "ansible-playbook flexdisk.hypervisor.move_vm -e flexdisk_vm=vm00 -e flexdisk_target=hv02"
    assert (
        f"vm00 has left hv01 for hv02, which this run does not read. If it has not come to its end: {goes_on}"
        in printed
    )
    status, printed = fleet.play("evacuate_host", *FROM)
    assert status == 0, printed
    assert fleet.vms() == {"hv01": [], "hv02": ["vm00"]}
    (vm,) = json.loads(fleet.run("hv02", "vmadm", "lookup", "-j"))
    assert vm["zfs_filesystem"].startswith("tank/")
    assert "has left hv01" not in fleet.play("evacuate_host", *FROM)[1]


def test_refusals(tmp_path):
    """Each is one error, before anything is changed."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    nodes.create("hv01", "vm00", 1024, 1, {})
    status, printed = nodes.play("evacuate_host", *FROM, "--limit", "hypervisors")
    assert status == 2
    assert "--limit would leave out the jobs" in printed
    status, printed = nodes.play("evacuate_host", *FROM, "-e", "flexdisk_move_digest=0123")
    assert status == 2
    assert re.search(r"its digest is \w{32}, not 0123", printed)
    status, printed = nodes.play("evacuate_host")
    assert status == 2
    assert "missing required arguments: flexdisk_move_from_hosts" in printed
    status, printed = nodes.play("rebalance", "--check")
    assert status == 0, printed
    assert "no VM moves" in printed
    assert not changed(printed)


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes a quarter of an hour")
def test_twenty_vms_leave(tmp_path):
    """Two at a time to three hosts. The run is killed twice, and one of the hosts dies in the middle and comes back."""
    fleet = Fleet(tmp_path, {f"hv{number:02}": "" for number in range(1, 5)}, 20)
    given = [*FROM, "-e", "flexdisk_moves_per_host=2"]
    for words in ("Stop the VM", "Give the VM its disks"):
        status, printed = fleet.play("evacuate_host", *given, watch=fleet.kill_at(words, 5))
        assert status < 0, printed

    def dies(line):
        if not (tmp_path / "hv03" / "dead").exists() and ": Stop the VM" in line:
            seen.append(line)
            if len(seen) == 4:
                fleet.die("hv03")
        return False

    seen = []
    status, printed = fleet.play("evacuate_host", *given, watch=dies)
    assert len(seen) == 4
    print(printed[printed.index("Show what has become") :])
    again, printed = fleet.play("evacuate_host", *given)
    print(status, again, printed[printed.index("Show what has become") :])
    fleet.die("hv03", False)
    assert fleet.play("evacuate_host", *given)[0] == 0
    found = fleet.vms()
    assert found.pop("hv01") == []
    assert sorted(name for names in found.values() for name in names) == sorted(fleet.contents)


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes")
def test_a_vm_with_failover_leaves(tmp_path):
    """The sync of the move keeps its failover, though a job is no host that has VMs."""
    fleet = Fleet(tmp_path, {"hv01": "", "hv02": ""}, 1)
    prepare = ["-e", "flexdisk_vm=vm00", "-e", "flexdisk_replica_host=hv02", "-e", "flexdisk_failover=true"]
    assert fleet.play("replicate", *prepare)[0] == 0
    status, printed = fleet.play("evacuate_host", *FROM)
    assert status == 0, printed
    assert fleet.vms() == {"hv01": [], "hv02": ["vm00"]}
    (vm,) = json.loads(fleet.run("hv02", "vmadm", "lookup", "-j"))
    assert vm["autoboot"] is False
    assert fleet.run("hv02", "zfs", "get", "-Ho", "value", "flexdisk:failover", f"zones/{vm['uuid']}").startswith("on:")


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes")
def test_others(tmp_path):
    """VMs with a tag change their group, and the others are spread; each playbook ends idle."""
    fleet = Fleet(tmp_path, {"hv01": "a", "hv02": "a", "hv03": "b"}, 4)
    words = ["-e", json.dumps({"flexdisk_move_tags": {"kind": "odd"}, "flexdisk_move_to_groups": ["b"]})]
    assert fleet.play("change_group", *words)[0] == 0
    assert fleet.vms() == {"hv01": ["vm00", "vm02"], "hv02": [], "hv03": ["vm01", "vm03"]}
    status, printed = fleet.play("rebalance")
    assert status == 0, printed
    assert sorted(map(len, fleet.vms().values())) == [1, 1, 2]
    status, printed = fleet.play("rebalance")
    assert status == 0
    assert "no VM moves" in printed
    assert not changed(printed)
