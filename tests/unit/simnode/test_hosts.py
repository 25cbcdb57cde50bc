# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes are made by commands: several at once that reach each other, and none over another one."""

from __future__ import annotations

import json

import pytest
import yaml
from simnode import Node
from simnode.__main__ import main


def guid(directory):
    with Node.open(directory) as node:
        return node.pools.pools["zones"].guid


def refused(*words):
    with pytest.raises(SystemExit) as caught:
        main([*map(str, words)])
    return str(caught.value)


def test_hosts_that_reach_each_other(tmp_path):
    assert main(["--dir", str(tmp_path), "hosts", "hv01", "hv02", "hv03"]) == 0
    assert len({guid(tmp_path / name) for name in ("hv01", "hv02", "hv03")}) == 3
    known = json.loads((tmp_path / "hv02" / "ssh" / "addresses.json").read_text())
    assert known == {name: str(tmp_path / name) for name in ("hv01", "hv03")}
    hosts = yaml.safe_load((tmp_path / "hosts.yml").read_text())["hypervisors"]
    assert list(hosts["hosts"]) == ["hv01", "hv02", "hv03"]
    assert hosts["vars"]["flexdisk_transfer_address"] == "{{ inventory_hostname }}"
    assert "has hosts.yml, ansible.cfg already; remove them" in refused("--dir", tmp_path, "hosts", "hv04")
    assert "has hv01, hosts.yml" in refused("--dir", tmp_path, "hosts", "hv01")


def test_hosts_of_proxmox(tmp_path):
    """The first one has VMs."""
    assert main(["--dir", str(tmp_path), "hosts", "--proxmox", "pve1", "pve2"]) == 0
    listed = []
    for name in ("pve1", "pve2"):
        with Node.open(tmp_path / name) as node:
            listed.append(node.run(["qm", "list"])[1].split()[7::6])
    assert listed == [["web", "db"], []]


@pytest.mark.parametrize("names", [["hv01", "hv01"], ["../hv"], ["-x y"]])
def test_names_that_are_no_good(tmp_path, names):
    assert "is not the name of a host, or is given twice" in refused("--dir", tmp_path, "hosts", "--", *names)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scenario", [[], ["--scenario", "empty"], ["--scenario", "demo"]])
def test_the_seed_makes_other_pools_and_disks(tmp_path, scenario):
    for seed in "12":
        assert main(["--dir", str(tmp_path / seed), "init", *scenario, "--seed", seed]) == 0
    assert guid(tmp_path / "1") != guid(tmp_path / "2")
    disks = []
    for seed in "12":
        with Node.open(tmp_path / seed) as node:
            disks.append(
                [disk["uuid"] for vm in json.loads(node.run(["vmadm", "lookup", "-j"])[1]) for disk in vm["disks"]]
            )
    assert not {*disks[0]} & {*disks[1]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pool", "tank:-5G"], "--pool tank:-5G: bad numeric value '-5G'"),
        (["--pool", "tank:5Q"], "--pool tank:5Q: "),
        (["--pool", ":5G"], "a pool has a name and 1G at least"),
        (["--pool", "tank:0"], "a pool has a name and 1G at least"),
        (["--scenario", "nosuch"], "there is no scenario 'nosuch'"),
        (["--scenario", "demo", "--pool", "tank:5G"], "give --scenario or --pool"),
    ],
)
def test_what_is_no_node(tmp_path, words, said):
    assert said in refused("--dir", tmp_path / "node", "init", *words)
    assert not (tmp_path / "node" / "state.json").exists()


def test_a_node_is_not_made_over_another_one(tmp_path):
    assert main(["--dir", str(tmp_path), "init"]) == 0
    before = (tmp_path / "state.json").read_text()
    assert "has a node already; remove the folder" in refused("--dir", tmp_path, "init")
    assert (tmp_path / "state.json").read_text() == before


@pytest.mark.parametrize(
    "words", [["advance", "5"], ["machine", "cpus=4"], ["vm-finish"], ["load", "--vms", "x", "--zfs", "y"]]
)
def test_a_folder_that_is_no_node(tmp_path, words):
    assert "is no node; `init` makes one" in refused("--dir", tmp_path, *words)


def test_an_export_that_is_not_there(tmp_path):
    assert main(["--dir", str(tmp_path), "init"]) == 0
    assert "No such file" in refused("--dir", tmp_path, "load", "--vms", tmp_path / "x", "--zfs", tmp_path / "y")


def test_a_host_boots(tmp_path):
    """Only what starts by itself runs afterwards."""
    assert main(["--dir", str(tmp_path), "init", "--scenario", "demo"]) == 0
    with Node.open(tmp_path) as node:
        before = node.run(["kstat", "-p", "unix:0:system_misc:boot_time"])[1]
        assert node.run(["vmadm", "update", "22222222-0000-4000-8000-000000000001", "autoboot=false"])[0] == 0
    assert main(["--dir", str(tmp_path), "vm-boot"]) == 0
    with Node.open(tmp_path) as node:
        vms = {vm["alias"]: vm["state"] for vm in json.loads(node.run(["vmadm", "lookup", "-j"])[1])}
        assert node.run(["kstat", "-p", "unix:0:system_misc:boot_time"])[1] != before
    assert vms == {"web01": "stopped", "db01": "stopped", "legacy01": "running"}
