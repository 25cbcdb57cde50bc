# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs whose host is chosen, on simulated nodes: create_vm with hypervisor auto, and update_group with hosts auto."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from .nodes import Nodes

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
PACKAGES = [
    {"name": "small", "disk": "8GiB", "flexible_disk": True, "memory": "2GiB", "vcpus": 1},
    {"name": "wide", "disk": "100GiB", "flexible_disk": True, "memory": "1GiB", "vcpus": 1},
]
HOSTS = ("hv01", "hv02", "hv03")


def where(nodes):
    """The host of each VM."""
    found = {}
    for host in nodes.groups:
        for vm in json.loads(nodes.run(host, "vmadm", "lookup", "-j")):
            assert vm["alias"] not in found
            found[vm["alias"]] = host
    return found


@pytest.fixture
def nodes(tmp_path):
    """hv01 has a large VM, and hv03 lacks the image."""
    made = Nodes(tmp_path, dict.fromkeys(HOSTS, ""))
    made.create("hv01", "large", 24576, 10, {})
    for host in ("hv01", "hv02"):
        made.simnode(host, "image-import", IMAGE, "64")
    made.variables["all"] = {"flexdisk_packages": PACKAGES}
    return made


def declare(nodes, *names, **more):
    words = {"state": "running", "package": "small", "image": IMAGE, "disks": [{"name": "root"}], "hypervisor": "auto"}
    vms = [{"vm": name, **words, **more} for name in names]
    nodes.variables["all"]["virtual_machine_vms"] = vms
    return vms


def test_new_vms_go_where_there_is_room_and_stay_there(nodes):
    declare(nodes, "web-0", "web-1")
    status, printed = nodes.play("create_vm", "--check")
    assert status == 0, printed
    assert where(nodes) == {"large": "hv01"}
    status, printed = nodes.play("create_vm", "-e", "flexdisk_vm=web-1")
    assert status == 0, printed
    assert where(nodes) == {"large": "hv01", "web-1": "hv02"}
    status, printed = nodes.play("create_vm")
    assert status == 0, printed
    assert where(nodes) == {"large": "hv01", "web-1": "hv02", "web-0": "hv02"}
    status, printed = nodes.play("create_vm")
    assert status == 0, printed
    assert "changed=1" not in printed
    declare(nodes, "web-2", memory="40GiB")
    status, printed = nodes.play("create_vm")
    assert status == 2
    assert "web-2: no host: hv01: memory: 40 GiB needed" in printed
    assert "hv03: imgadm get: error (ImageNotInstalled)" in printed
    assert len(where(nodes)) == 3


def test_a_host_that_cannot_be_read_may_have_the_vm(nodes):
    declare(nodes, "web-0")
    status, printed = nodes.play("create_vm", unreachable="hv03")
    assert status == 4, printed
    assert "hv03 could not be read and may have a VM of this name" in printed
    assert where(nodes) == {"large": "hv01"}


def test_the_example_of_the_role(nodes, tmp_path):
    page = (ROOT / "roles" / "vm_placement" / "README.md").read_text()
    (block,) = re.findall(r"(?ms)^    - hosts: .*?(?=^<!-- generated)", page)
    play = re.sub(r"image: [0-9a-f-]{36}", f"image: {IMAGE}", textwrap.dedent(block))
    play = play.replace("  gather_facts", '  environment: "{{ flexdisk_environment }}"\n  gather_facts')
    (tmp_path / "example.yml").write_text(play)
    status, printed = nodes.play(str(tmp_path / "example.yml"))
    assert status == 0, printed
    assert "web01 goes to hv02" in printed
    status, printed = nodes.play(str(tmp_path / "example.yml"), unreachable="hv03")
    assert status == 2, printed
    assert "hv03 could not be read, and may have one of the VMs: " in printed


def test_one_host_says_auto_and_another_does_not(nodes):
    (vm,) = declare(nodes, "web-0")
    nodes.variables["hv02"] = {"virtual_machine_vms": [{key: vm[key] for key in vm if key != "hypervisor"}]}
    status, printed = nodes.play("create_vm")
    assert status == 2
    assert "web-0 must have hypervisor: auto on each host for which it is declared, or on none" in printed
    assert where(nodes) == {"large": "hv01"}


def test_members_that_are_nowhere_get_hosts(nodes):
    """A host that cannot take all of them at once takes one of them."""
    nodes.simnode("hv03", "image-import", IMAGE, "64")
    group = {
        "name": "web",
        "size": 3,
        "hosts": "auto",
        "template": {"package": "wide", "image": IMAGE, "disks": [{"name": "root"}]},
        "policy": {"max_batch_size": 3, "max_down_per_host": 3},
    }
    nodes.variables["all"]["flexdisk_groups"] = [group]
    words = ("update_group", "-e", "flexdisk_group=web")
    status, printed = nodes.play(*words)
    assert status == 0, printed
    found = where(nodes)
    assert sorted(found[f"web-{n}"] for n in range(3)) == list(HOSTS)
    nodes.groups.update(hv01="a", hv02="b", hv03="b")
    group.update(size=4, host_groups=["b"], hosts=[*HOSTS])
    status, printed = nodes.play(*words, "--check")
    assert status == 2
    assert "web: host_groups (b) chooses hosts only with `hosts: auto`; leave it out, or write `hosts: auto`" in printed
    group["hosts"] = "auto"
    status, printed = nodes.play(*words, "--check")
    assert status == 0, printed
    assert re.search(r"web-3 +hv0[23] +create", printed)
    assert re.findall(r"skipping: \[(hv01)\]", printed), "hosts of other groups are not asked"
    del group["host_groups"]
    group["size"] = 7
    status, printed = nodes.play(*words)
    assert status == 2
    for number in range(3, 6):
        assert f"web-{number}: no host" not in printed
    assert re.search(r"web-6: no host: hv01: pool zones: \d+ MiB needed, \d+ MiB free; hv02: pool", printed)
    assert where(nodes) == found


@pytest.mark.parametrize("hosts", ["auto", list(HOSTS)])
def test_members_are_made_on_the_hosts_that_the_plan_shows(nodes, hosts):
    """The canary first, alone, although its index is the highest. Each step is planned anew, but not its hosts."""
    nodes.simnode("hv03", "image-import", IMAGE, "64")
    group = {
        "name": "web",
        "size": 6,
        "hosts": hosts,
        "template": {"package": "small", "image": IMAGE, "disks": [{"name": "root"}]},
        "policy": {"max_batch_size": 3, "max_down_per_host": 3, "canary": 1},
    }
    nodes.variables["all"]["flexdisk_groups"] = [group]
    nodes.create("hv03", "web-spare", 8192, 100, {})
    words = ("update_group", "-e", "flexdisk_group=web")
    status, printed = nodes.play(*words, "--check")
    assert status == 0, printed
    shown = re.findall(r"(\d) +(web-\d) +(hv0\d) +create", printed)
    assert [(step, name) for step, name, _host in shown] == [
        ("1", "web-5"), ("2", "web-0"), ("2", "web-1"), ("2", "web-2"), ("3", "web-3"), ("3", "web-4"),
    ]  # fmt: skip
    status, printed = nodes.play(*words)
    assert status == 0, printed
    assert {name: host for name, host in where(nodes).items() if name in {name for _step, name, _host in shown}} == {
        name: host for _step, name, host in shown
    }
