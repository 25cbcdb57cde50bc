# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node exported and loaded again is the same node, without its secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simnode import Node, PoolSpec, export, scenarios
from simnode.__main__ import main
from simnode.export_layout import ExportError, layout
from simnode.export_pool import parse

MIB = 1 << 20
EXACT = "type,volsize,volblocksize,refreservation,reservation,quota,refquota,origin,guid,encryptionroot,flexdisk:name"
SPACE = "used,usedbysnapshots,referenced,available"


def exported(node: Node) -> tuple[str, str]:
    zfs = node.run(["zfs", "get", "-Hp", "-r", "-t", "filesystem,volume,snapshot", "all", "zones"])
    vms = node.run(["vmadm", "lookup", "-j"])
    assert (zfs[0], vms[0]) == (0, 0)
    return vms[1], zfs[1]


def loaded(vms: str, zfs: str, status: str = "", zdb: str = "") -> Node:
    node = Node.create(None, [PoolSpec()])
    export.load(node, vms, zfs, status, zdb)
    return node


@pytest.fixture
def original() -> Node:
    node = scenarios.build("demo", None)
    for argv in (
        ["vmadm", "create-snapshot", scenarios.WEB01, "s1"],
        ["guest", "write", f"zones/{scenarios.WEB01}/disk1", "0", "500", "after"],
        ["zfs", "set", "flexdisk:name=data", f"zones/{scenarios.WEB01}/disk1"],
        ["zfs", "set", "other:secret=word", f"zones/{scenarios.WEB01}/disk1"],
        ["zfs", "set", "other:lines=secret\n\nlines\tof secret\twords\tlocal\n a\tb", f"zones/{scenarios.WEB01}"],
        ["zfs", "create", "-o", "encryption=aes-128-gcm", "-o", "keyformat=passphrase", "zones/locked"],
        ["zfs", "create", "zones/locked/box"],
        ["zfs", "create", "-V", "64M", "zones/locked/box/disk"],
        ["zfs", "snapshot", "zones/locked/box/disk@s"],
        ["zfs", "clone", "zones/locked/box/disk@s", "zones/locked/clone"],
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


def test_encryption_roots_are_known(original: Node) -> None:
    vms, zfs = exported(original)
    copy = loaded(vms, zfs.replace("\tkeystatus\tavailable\t", "\tkeystatus\tunavailable\t"))
    for node in (original, copy):
        assert node.run(["zfs", "get", "-H", "-o", "value", "keystatus", "zones/locked"])[1] == "available\n"
        status, _out, err = node.run(["zfs", "rename", "zones/locked/box/disk", f"zones/{scenarios.DB01}/disk7"])
        assert status == 1
        assert "cannot move encrypted child outside of its encryption root" in err
        assert node.run(["zfs", "get", "-H", "-o", "value", "encryption", "zones/locked/clone"])[1] == "aes-128-gcm\n"


def test_a_pool_that_is_encrypted_as_a_whole() -> None:
    original = Node.create(None, [PoolSpec()])
    root = original.pools.pools["zones"].root
    root.cryptroot, root.props["encryption"] = root.guid, "on"
    assert original.run(["zfs", "create", "zones/a"])[0] == 0
    copy = loaded(*exported(original))
    assert lines(copy, "encryptionroot") == [f"{name}\tencryptionroot\tzones" for name in ("zones", "zones/a")]


def test_what_is_left_behind() -> None:
    original = Node.create(None, [PoolSpec()])
    for line in (
        "create -o copies=2 -o recordsize=64K zones/a",
        "set flexdisk:x=1 zones",
        "snapshot -r zones@s",
        "hold why zones/a@s",
    ):
        assert original.run(["zfs", *line.split()])[0] == 0
    copy = loaded(*exported(original))
    assert copy.run(["zfs", "list", "-H", "-o", "name", "-t", "snapshot"])[1] == "zones/a@s\n"
    assert copy.run(["zfs", "get", "-H", "-o", "value", "copies,recordsize,flexdisk:x", "zones/a"])[1] == "1\n64K\n-\n"
    assert copy.run(["zfs", "holds", "-H", "zones/a@s"])[1].split("\t")[1] == "held-in-export"


def rows(*text: str) -> str:
    """The zfs export of a pool whose root has this user property; its value holds these lines."""
    value = "\n".join(text)
    return f"zones\ttype\tfilesystem\t-\nzones\tother:x\t{value}\tlocal\nzones/a\ttype\tfilesystem\t-\n"


@pytest.mark.parametrize(
    "value",
    [
        ("a", "b"), ("a\tlocal", "zones\tb"), ("a\tb\tc", "", "d"), ("", "local"), ("a", "zones/a\tguid\t7\tlocal"),
        ("a", "zones/a\tflexdisk:name\tdata"), ("a\vb\fc\u2028d\x85e",),
    ],
)  # fmt: skip
def test_values_of_others_are_of_any_shape(value: tuple[str, ...]) -> None:
    found = parse(rows(*value))
    assert found == {name: {"type": ("filesystem", "-")} for name in ("zones", "zones/a")}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (("a\tlocal", "zones\ttype\tvolume"), "line 3 of the zfs export repeats type of zones"),
        (
            ("a\tlocal", "zones/a\ttype\tvolume\t-", "zones/a\tguid\t7"),
            "line 5 .* repeats type of zones/a",
        ),
        (
            ("a\tlocal", "zones/b\ttype\tvolume\t-", "zones\tguid\t7"),
            "line 4 .* belongs to zones, but the rows of zones ended earlier",
        ),
    ],
)
def test_values_that_look_like_the_export_are_refused(value: tuple[str, ...], text: str) -> None:
    with pytest.raises(ExportError, match=text):
        parse(rows(*value))


ROW = "{:<30}  ONLINE       0     0     0\n"
DISKS = [(2, f"c0t{n}d0") for n in range(5)]


def status(pool: str, *vdevs: tuple[int, str]) -> str:
    """Output of `zpool status`."""
    tree = "".join("\t" + ROW.format("  " * depth + name) for depth, name in vdevs)
    scan = "  scan: scrub in progress since Sun Jan  4 00:25:03 2026\n\t1.2T scanned at 1G/s, 1T issued\n"
    head = f"  pool: {pool}\n state: DEGRADED\n{scan}config:\n\n\tNAME  STATE     READ WRITE CKSUM\n"
    return f"{head}\t{ROW.format(pool)}{tree}\nerrors: No known data errors\n"


LAYOUTS = {
    "raidz, a log": ([(1, "raidz1-0"), *DISKS[:3], (0, "logs"), (1, "c0t9d0")], [("raidz1", 3)]),
    "a mirrored log": ([(1, "raidz1-0"), *DISKS, (0, "logs"), (1, "mirror-1"), *DISKS[:2]], [("raidz1", 5)]),
    "special": ([(1, "mirror-0"), *DISKS[:2], (0, "special"), (1, "mirror-1"), *DISKS[:3]], [("mirror", 2)]),
    "two disks": ([(1, "c0t0d0"), (1, "c0t1d0"), (0, "cache"), (1, "c0t2d0")], [("disk", 1), ("disk", 1)]),
    "spares": ([(1, "raidz2-0"), *DISKS, (0, "spares"), (1, "c0t9d0")], [("raidz2", 5)]),
    "a spare in use": (
        [(1, "raidz1-0"), *DISKS[:2], (2, "spare-2"), (3, "c0t7d0"), (3, "c0t8d0"), (0, "spares"), (1, "c0t8d0")],
        [("raidz1", 3)],
    ),
    "a disk being replaced": (
        [(1, "raidz1-0"), (2, "replacing-0"), (3, "old"), (3, "new"), *DISKS[:2], (1, "raidz1-1"), *DISKS[:3]],
        [("raidz1", 3), ("raidz1", 3)],
    ),
    "a spare of a disk being replaced": (
        [(1, "raidz3-0"), *DISKS[:4], (2, "spare-4"), (3, "replacing-0"), (4, "old"), (4, "new"), (3, "c0t8d0")],
        [("raidz3", 5)],
    ),
    "a single disk being replaced": ([(1, "replacing-0"), (2, "old"), (2, "new")], [("disk", 1)]),
    "dRAID": ([(1, "draid1:2d:5c:1s-0"), *DISKS, (0, "spares"), (1, "draid1-0-0")], [("draid1:2d:5c:1s", 5)]),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("margin", ["\t", "        "])
def test_layout_of_the_pool(case: str, margin: str) -> None:
    vdevs, expected = LAYOUTS[case]
    text = status("zones", *vdevs) + status("tank", (1, "mirror-0"), *DISKS[:2])
    text = text.replace("\t", margin)
    assert [(vdev["type"], vdev["disks"]) for vdev in layout(text, "zones")] == expected
    assert layout(text, "tank") == [{"type": "mirror", "disks": 2}]
    assert layout(text, "other") == layout("", "zones") == [{"type": "disk", "disks": 1}]


def raidz(ashift: int, kind: str = "raidz1") -> Node:
    node = Node.create(None, [PoolSpec(ashift=ashift, vdevs=[{"type": kind, "disks": 5}])])
    assert node.run(["zfs", "create", "-o", "volblocksize=8K", "-V", "1G", "zones/v"])[0] == 0
    return node


@pytest.mark.parametrize(
    ("kind", "ashift", "reserved"),
    [("raidz1", 9, 1109393408), ("raidz1", 12, 1753638502), ("mirror", 9, 1109393408), ("mirror", 12, 1109393408)],
)
def test_reservations_are_forecast_as_on_the_node(kind: str, ashift: int, reserved: int) -> None:
    original = raidz(ashift, kind)
    described = [original.run(argv)[1] for argv in (["zpool", "status"], ["zdb", "-C", "zones"])]
    copy = loaded(*exported(original), *described)
    assert copy.pools.pools["zones"].ashift == ashift
    assert lines(copy, "refreservation")[1:] == [f"zones/v\trefreservation\t{reserved}"]
    forecast = copy.run(["zfs", "create", "-nP", "-o", "volblocksize=8K", "-V", "1G", "zones/w"])[1]
    assert f"property\trefreservation\t{reserved}\n" in forecast


def top(number: int, kind: str, ashift: int, is_log: int = 0) -> str:
    """A top-level vdev in the output of `zdb -C`."""
    facts = (f"type: '{kind}'", f"id: {number}", f"ashift: {ashift}", f"is_log: {is_log}", "children[0]:")
    below = f"{' ' * 20}type: 'disk'\n"
    return f"            children[{number}]:\n" + "".join(f"{' ' * 16}{fact}\n" for fact in facts) + below


def configuration(*tops: str, pool: str = "zones") -> str:
    head = f"\nMOS Configuration:\n        version: 5000\n        name: '{pool}'\n        vdev_tree:\n"
    return f"{head}            type: 'root'\n{''.join(tops)}        features_for_read:\n"


@pytest.mark.parametrize(
    ("tops", "ashift"),
    [
        ([top(0, "raidz", 9)], 9),
        ([top(0, "mirror", 12, is_log=1), top(1, "raidz", 9), top(2, "hole", 0)], 9),
        ([top(0, "raidz", 9), top(1, "mirror", 12)], 9),
        ([top(0, "raidz", 9), top(1, "raidz", 9)], 9),
    ],
)
def test_sector_size_of_the_pool(tops: list[str], ashift: int) -> None:
    text = configuration(top(0, "raidz", 13), pool="tank") + configuration(*tops) + configuration(pool="other")
    _vms, zfs = exported(raidz(9))
    copy = loaded("[]", zfs, status("zones", (1, "raidz1-0"), *DISKS), text)
    assert copy.pools.pools["zones"].ashift == ashift


@pytest.mark.parametrize(
    ("zdb", "text"),
    [
        ("", "zones has raidz or dRAID vdevs: their sector size is needed \\(zdb -C zones\\)"),
        (configuration(top(0, "raidz", 9), pool="tank"), "their sector size is needed"),
        (configuration(top(0, "mirror", 9)), "their sector size is needed"),
        (configuration(top(0, "raidz", 0)), "their sector size is needed"),
        (configuration(top(0, "raidz", 9).replace("9", "auto")), "their sector size is needed"),
        (
            configuration(top(0, "raidz", 9), top(1, "raidz", 12)),
            "zones has vdevs with sectors of 512, 4096 bytes, but a simulated pool has one size",
        ),
    ],
)
def test_a_sector_size_is_never_guessed(zdb: str, text: str) -> None:
    _vms, zfs = exported(raidz(9))
    with pytest.raises(ExportError, match=text):
        loaded("[]", zfs, status("zones", (1, "raidz1-0"), *DISKS), zdb)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    original = raidz(9)
    vms, zfs = exported(original)
    contents = {"vms": vms, "zfs": zfs, "pool-status": original.run(["zpool", "status"])[1]}
    arguments = ["--dir", str(tmp_path / "node"), "load"]
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        arguments += [f"--{name}", str(tmp_path / name)]
    assert main(["--dir", str(tmp_path / "node"), "init"]) == 0
    with pytest.raises(SystemExit, match="simnode: zones has raidz or dRAID vdevs"):
        main(arguments)
    (tmp_path / "zdb").write_text(original.run(["zdb", "-C", "zones"])[1])
    assert main([*arguments, "--zdb", str(tmp_path / "zdb")]) == 0
    with Node.open(tmp_path / "node") as node:
        assert node.pools.pools["zones"].ashift == 9


@pytest.mark.parametrize(
    ("vms", "zfs", "text"),
    [
        ("{", "zones\ttype\tfilesystem\t-\n", "the export of the VMs is not valid JSON"),
        ("{}", "zones\ttype\tfilesystem\t-\n", "not a list of VM objects"),
        ("[]", "zones type\n", "line 1 of the zfs export has 1 fields"),
        ("[]", "", "the zfs export is empty"),
        (
            "[]",
            "zones\tguid\t7\t-\n",
            "line 1 of the zfs export belongs to zones, but the rows of zones do not begin with its type",
        ),
        ("[]", "zones\ttype\tfilesystem\t-\nzones\tflexdisk:name\ta\nb\tlocal\n", "line 2 .* has 3 fields"),
        (
            "[]",
            "zones\ttype\tfilesystem\t-\nzones/a/b\ttype\tfilesystem\t-\n",
            "the zfs export does not contain zones/a",
        ),
    ],
)
def test_bad_exports(vms: Any, zfs: str, text: str) -> None:
    with pytest.raises(ExportError, match=text):
        loaded(vms, zfs)
