# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node exported and loaded again is the same node, without its secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simnode import Node, PoolSpec, export, scenarios
from simnode.export_pool import ExportError, layout

MIB = 1 << 20
EXACT = "type,volsize,volblocksize,refreservation,reservation,quota,refquota,origin,guid,flexdisk:name"
SPACE = "used,usedbysnapshots,referenced,available"


def exported(node: Node) -> tuple[str, str]:
    zfs = node.run(["zfs", "get", "-Hp", "-r", "-t", "filesystem,volume,snapshot", "all", "zones"])
    vms = node.run(["vmadm", "lookup", "-j"])
    assert (zfs[0], vms[0]) == (0, 0)
    return vms[1], zfs[1]


def loaded(vms: str, zfs: str, status: str = "") -> Node:
    node = Node.create(None, [PoolSpec()])
    export.load(node, vms, zfs, status)
    return node


@pytest.fixture
def original() -> Node:
    node = scenarios.build("demo", None)
    for argv in (
        ["vmadm", "create-snapshot", scenarios.WEB01, "s1"],
        ["guest", "write", f"zones/{scenarios.WEB01}/disk1", "0", "500", "after"],
        ["zfs", "set", "flexdisk:name=data", f"zones/{scenarios.WEB01}/disk1"],
        ["zfs", "set", "other:secret=word", f"zones/{scenarios.WEB01}/disk1"],
    ):
        assert node.run(argv)[0] == 0
    payload = {"set_tags": {"t": "secret"}, "set_customer_metadata": {"root_pw": "secret"}, "vnc_password": "secret",
               "set_internal_metadata": {"x": "secret", "cloudinit_datasource": "nocloud"}}  # fmt: skip
    assert node.run(["vmadm", "update", scenarios.DB01], json.dumps(payload))[0] == 0
    return node


def lines(node: Node, props: str) -> list[str]:
    argv = ["zfs", "get", "-Hp", "-r", "-t", "filesystem,volume,snapshot", "-o", "name,property,value", props, "zones"]
    return node.run(argv)[1].splitlines()


def test_datasets_are_the_same(original: Node) -> None:
    copy = loaded(*exported(original))
    mine = [line for line in lines(copy, EXACT) if not line.startswith("zones\t") and "@" not in line]
    theirs = [line for line in lines(original, EXACT) if not line.startswith("zones\t") and "@" not in line]
    assert mine == theirs


def test_space_is_close(original: Node) -> None:
    copy = loaded(*exported(original))
    for mine, theirs in zip(lines(copy, SPACE), lines(original, SPACE), strict=True):
        name, prop, value = mine.split("\t")
        other = theirs.split("\t")[2]
        if value != "-":
            assert abs(int(value) - int(other)) <= 8 * MIB + int(other) // 50, (name, prop, value, other)


def test_vms_are_the_same_but_for_secrets(original: Node) -> None:
    vms, zfs = exported(original)
    copy = loaded(vms, zfs)
    mine, theirs = json.loads(copy.run(["vmadm", "lookup", "-j"])[1]), json.loads(vms)
    assert [vm["uuid"] for vm in mine] == [vm["uuid"] for vm in theirs]
    for vm, other in zip(mine, theirs, strict=True):
        for key in ("alias", "state", "disks", "flexible_disk_size", "quota", "autoboot", "ram"):
            assert vm.get(key) == other.get(key), key
        assert [snap["name"] for snap in vm["snapshots"]] == [snap["name"] for snap in other["snapshots"]]
        assert (vm["tags"], vm["customer_metadata"]) == ({}, {})
    assert "secret" not in json.dumps(copy.state)
    assert "secret" not in json.dumps(copy.pools.to_json())
    database = next(vm for vm in mine if vm["alias"] == "db01")
    assert database["internal_metadata"] == {"cloudinit_datasource": "nocloud"}


def test_a_change_can_be_rehearsed(original: Node) -> None:
    copy = loaded(*exported(original))
    path = f"/dev/zvol/rdsk/zones/{scenarios.WEB01}/disk1"
    change = {"update_disks": [{"path": path, "size": 30720}], "add_disks": [{"size": 1024, "model": "virtio"}]}
    for node in (original, copy):
        assert node.run(["vmadm", "update", scenarios.WEB01], json.dumps(change)) == (
            0, "", f"Successfully updated VM {scenarios.WEB01}\n"
        )  # fmt: skip
    assert json.loads(copy.run(["imgadm", "list", "-j"])[1])[0]["manifest"]["image_size"] == scenarios.IMAGE_MIB


STATUS = """  pool: zones
 state: ONLINE
config:

\tNAME          STATE     READ WRITE CKSUM
\tzones         ONLINE       0     0     0
\t  raidz1-0    ONLINE       0     0     0
\t    c0t0d0    ONLINE       0     0     0
\t    c0t1d0    ONLINE       0     0     0
\t    c0t2d0    ONLINE       0     0     0
\tlogs
\t  c0t9d0      ONLINE       0     0     0

errors: No known data errors
"""


def test_layout_of_the_pool() -> None:
    assert layout(STATUS) == [{"type": "raidz1", "disks": 3}]
    assert layout("") == [{"type": "disk", "disks": 1}]


@pytest.mark.parametrize(
    ("vms", "zfs", "text"),
    [
        ("{", "zones\ttype\tfilesystem\t-\n", "the VMs are not JSON"),
        ("{}", "zones\ttype\tfilesystem\t-\n", "not a list of VM objects"),
        ("[]", "zones type\n", "line 1 of the zfs export has 1 fields"),
        ("[]", "", "the zfs export is empty"),
        ("[]", "zones\ttype\tfilesystem\t-\nzones/a/b\ttype\tfilesystem\t-\n", "the zfs export has no zones/a"),
    ],
)
def test_bad_exports(vms: Any, zfs: str, text: str) -> None:
    with pytest.raises(ExportError, match=text):
        loaded(vms, zfs)
