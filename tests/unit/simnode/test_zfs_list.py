# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs get`, `zfs list` and `zpool`: selection, columns, sources."""

from __future__ import annotations

import re

import pytest
from simnode.zfs import numbers

from tests.unit.simnode.zfs_support import GIB, VM, Zfs

DISK = f"{VM}/disk0"


@pytest.fixture
def zfs() -> Zfs:
    made = Zfs()
    made.vm(1024, 2048, 1024, 64)
    made.ok(f"set x:vm=a {VM}")
    made.ok(f"set x:disk=b {DISK}")
    made.ok(f"snapshot -r {VM}@s1")
    made.ok(f"snapshot {DISK}@a0")
    return made


def test_default_list(zfs):
    lines = zfs.ok("list").splitlines()
    assert lines[0].split() == ["NAME", "USED", "AVAIL", "REFER", "MOUNTPOINT"]
    assert [line.split()[0] for line in lines[1:]] == ["zones", VM, DISK, f"{VM}/disk1"]
    assert len({line.index(word) for line, word in zip(lines[:2], ("MOUNTPOINT", "/zones"), strict=True)}) == 1


def test_order_is_by_name_and_snapshots_follow_by_age(zfs):
    zfs.ok("create zones/vm-x")
    assert zfs.names() == [
        "zones", "zones/vm", "zones/vm@s1", "zones/vm-x", DISK, f"{DISK}@s1", f"{DISK}@a0", f"{VM}/disk1",
        f"{VM}/disk1@s1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"-t volume -r {VM}", [DISK, f"{VM}/disk1"]),
        ("-t volume", [DISK, f"{VM}/disk1"]),
        ("-r -d 1 zones", ["zones", VM]),
        ("-d 0 zones", ["zones"]),
        (f"-t snapshot {DISK}", [f"{DISK}@s1", f"{DISK}@a0"]),
        (f"-t snap -r {VM}", [f"{VM}@s1", f"{DISK}@s1", f"{DISK}@a0", f"{VM}/disk1@s1"]),
        (f"-t filesystem,snapshot,volume -d 1 {VM}",
         [VM, f"{VM}@s1", DISK, f"{VM}/disk1"]),
        (f"-t all -d 2 {VM}", [VM, f"{VM}@s1", DISK, f"{DISK}@s1", f"{DISK}@a0", f"{VM}/disk1", f"{VM}/disk1@s1"]),
        (f"{DISK}@s1", [f"{DISK}@s1"]),
        (f"{DISK} {VM} {DISK}", [VM, DISK]),
        (f"-s volsize -t volume -r {VM}", [f"{VM}/disk1", DISK]),
        (f"-S volsize -r {VM}", [DISK, f"{VM}/disk1", VM]),
        (f"-S name -t volume -r {VM}", [f"{VM}/disk1", DISK]),
        (f"-s x:disk -r {VM}", [DISK, VM, f"{VM}/disk1"]),
    ],
)  # fmt: skip
def test_selection(zfs, line, expected):
    assert zfs.ok(f"list -H -o name {line}").splitlines() == expected


def test_list_columns(zfs):
    row = zfs.ok(f"list -Hp -o name,volsize,usedbysnapshots,refreservation,x:disk,quota,origin {DISK}")
    assert row == f"{DISK}\t{GIB}\t0\t1109393408\tb\t-\t-\n"
    assert zfs.ok(f"list -H -o volsize,refreservation {DISK}") == "1G\t1.03G\n"
    assert zfs.ok(f"list -o volsize,x:disk {DISK}") == "VOLSIZE  X:DISK\n     1G  b\n"
    assert len(zfs.ok(f"list -Hp -o space {DISK}").split("\t")) == 7


def test_list_of_nothing(zfs):
    empty = Zfs()
    code, out, err = empty.run("zfs list -t volume")
    assert (code, out, err) == (0, "", "no datasets available\n")
    assert empty.ok("list -H -t volume") == ""


def test_missing_datasets_do_not_hide_the_others(zfs):
    code, out, err = zfs.run(f"zfs list -H -o name zones/no {DISK} nopool")
    assert (code, out) == (1, DISK + "\n")
    assert err == "cannot open 'zones/no': dataset does not exist\ncannot open 'nopool': dataset does not exist\n"
    code, out, err = zfs.run(f"zfs get -Hp -o value volsize zones/no {DISK}")
    assert (code, out, err) == (1, f"{GIB}\n", "cannot open 'zones/no': dataset does not exist\n")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("list -t nonsense", "invalid type 'nonsense'"),
        ("list -o nonsense", "bad property list: invalid property 'nonsense'"),
        ("list -s nonsense", "invalid property 'nonsense'"),
        ("list -d x", "x is not an integer"),
        ("get", "missing property argument"),
        ("get -o nonsense all", "invalid column name 'nonsense'"),
        ("get -s nonsense all", "invalid source 'nonsense'"),
        ("get nonsense", "bad property list: invalid property 'nonsense'"),
        ("get -Z all", "invalid option 'Z'"),
    ],
)
def test_usage(zfs, line, text):
    err = zfs.bad(line, code=2)
    assert err.startswith(text + "\nusage:\n\t")


def test_wrong_type(zfs):
    why = "operation not applicable to datasets of this type"
    assert zfs.bad(f"list -t volume {VM}") == f"cannot open '{VM}': {why}\n"


def test_get_one_line_per_property(zfs):
    out = zfs.ok(f"get -Hp volsize,quota,x:vm,x:disk,x:none,readonly {DISK}")
    assert out.splitlines() == [
        f"{DISK}\tvolsize\t{GIB}\tlocal",
        f"{DISK}\tquota\t-\t-",
        f"{DISK}\tx:vm\ta\tinherited from {VM}",
        f"{DISK}\tx:disk\tb\tlocal",
        f"{DISK}\tx:none\t-\t-",
        f"{DISK}\treadonly\toff\tdefault",
    ]


def test_what_was_written_since_a_bookmark(zfs):
    """Only `zfs get` knows it, and only of bookmarks that there are."""
    zfs.ok(f"snapshot {DISK}@mark")
    zfs.ok(f"bookmark {DISK}@mark {DISK}#mark")
    assert zfs.ok(f"get -Hp -o property,value written#mark,written#none {DISK}") == "written#mark\t0\nwritten#none\t-\n"


def test_unset_numbers(zfs):
    assert zfs.ok("get -Hp -o value,source quota,reservation,refquota zones") == "0\tdefault\n" * 3
    assert zfs.ok("get -H -o value quota zones") == "none\n"
    zfs.ok("set quota=none zones")
    assert zfs.ok("get -Hp -o value,source quota zones") == "0\tlocal\n"


def test_get_all_recursively(zfs):
    rows = [line.split("\t") for line in zfs.ok("get -Hpr -o name,property,value,source all zones").splitlines()]
    by_name: dict[str, dict[str, tuple[str, str]]] = {}
    for name, prop, value, source in rows:
        by_name.setdefault(name, {})[prop] = (value, source)
    assert list(by_name) == zfs.names()
    assert by_name[DISK]["type"] == ("volume", "-")
    assert by_name[VM]["refquota"] == (str(GIB), "local")
    assert by_name[f"{DISK}@s1"]["volsize"][0] == str(GIB)
    assert by_name[f"{DISK}@s1"]["x:disk"] == ("b", f"inherited from {DISK}")
    assert "quota" not in by_name[DISK]
    assert "volsize" not in by_name[VM]
    assert "origin" not in by_name[DISK]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("local", {"x:disk", "volsize", "refreservation"}),
        ("inherited", {"x:vm"}),
        ("local,inherited", {"x:disk", "volsize", "refreservation", "x:vm"}),
        ("received", set()),
    ],
)
def test_get_by_source(zfs, sources, expected):
    out = zfs.ok(f"get -Hp -s {sources} -o property all {DISK}")
    assert set(out.splitlines()) == expected


def test_get_hides_no_markers_that_are_inherited(zfs):
    rows = zfs.ok("get -Hpr -s local -o name,value x:vm zones").splitlines()
    assert rows == [f"{VM}\ta"]


def test_get_types_and_depth(zfs):
    assert zfs.ok(f"get -Hr -t volume -o name type {VM}").splitlines() == [DISK, f"{VM}/disk1"]
    assert zfs.ok(f"get -H -d 1 -t filesystem,volume -o name type {VM}").splitlines() == [VM, DISK, f"{VM}/disk1"]
    assert zfs.ok("get -H -o name type").splitlines() == zfs.names()


def test_get_for_people(zfs):
    assert zfs.ok(f"get volsize,creation {DISK}").splitlines() == [
        "NAME            PROPERTY  VALUE                  SOURCE",
        "zones/vm/disk0  volsize   1G                     local",
        "zones/vm/disk0  creation  Thu Jan  1  0:00 2026  -",
    ]


def test_mountpoints(zfs):
    assert (zfs.get(VM, "mountpoint"), zfs.source(VM, "mountpoint")) == ("/zones/vm", "default")
    zfs.ok("set mountpoint=/data zones")
    assert (zfs.get(VM, "mountpoint"), zfs.source(VM, "mountpoint")) == ("/data/vm", "inherited from zones")
    zfs.ok("create -o mountpoint=none -o canmount=off zones/flexdisk")
    assert (zfs.get("zones/flexdisk", "mountpoint"), zfs.get("zones/flexdisk", "mounted")) == ("none", "no")


def test_version():
    assert Zfs(version="2.1").ok("version") == "zfs-2.1.11-1\nzfs-kmod-2.1.11-1\n"
    assert Zfs().bad("version", code=2).startswith("unrecognized command 'version'\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("8192", 8192), ("10M", 10 << 20), ("1.5g", 3 << 29), ("1GiB", 1 << 30), ("2kb", 2048), (".5K", 512)],
)
def test_numbers_in(text, value):
    assert numbers.parse(text) == value


@pytest.mark.parametrize("text", ["", "-1", "M", "1Q", "1BB", "1MiBx", "99999999999999999999", "17000000T"])
def test_no_numbers(text):
    with pytest.raises(ValueError, match="numeric"):
        numbers.parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1K"), (10239, "10.0K"), (1536, "1.50K"), (1109393408, "1.03G"),
     (1 << 40, "1T"), (123 << 30, "123G"), ((123 << 30) + (1 << 29), "124G")],
)  # fmt: skip
def test_numbers_out(value, text):
    assert numbers.nice(value, "B") == text


# -- zpool -----------------------------------------------------------------------------------------------------------


def test_zpool_list(zfs):
    code, out, _err = zfs.run("zpool list -Hp -o name,size,health")
    assert (code, out) == (0, f"zones\t{64 * GIB}\tONLINE\n")
    assert zfs.run("zpool list")[1].splitlines()[0].split()[:4] == ["NAME", "SIZE", "ALLOC", "FREE"]
    assert zfs.run("zpool list nopool")[0::2] == (1, "cannot open 'nopool': no such pool\n")
    assert zfs.run("zpool get -Hp -o value ashift zones")[1] == "12\n"
    assert zfs.run("zpool list -o nonsense")[0] == 2


def test_zpool_features(zfs):
    asked = "zpool get -H -o name,property,value,source feature@encryption zones"
    assert zfs.run(asked) == (0, "zones\tfeature@encryption\tenabled\tlocal\n", "")
    assert zfs.run("zfs create -o encryption=on -o keyformat=passphrase zones/secret", "a passphrase\n")[0] == 0
    assert zfs.run(asked)[1].split("\t")[2] == "active"
    assert zfs.run("zpool list -o feature@encryption")[0] == 2


def test_zpool_allocation_follows_the_data(zfs):
    before = int(zfs.run("zpool list -Hp -o alloc")[1])
    zfs.guest(f"write {DISK} 0 100 1")
    assert 100 << 20 < int(zfs.run("zpool list -Hp -o alloc")[1]) - before < 102 << 20


@pytest.mark.parametrize(
    ("vdevs", "names"),
    [
        ([{"type": "disk", "disks": 1}] * 2, ["c0t0d0", "c0t1d0"]),
        ([{"type": "mirror", "disks": 2}] * 2, ["mirror-0", "c0t0d0", "c0t1d0", "mirror-1", "c0t2d0", "c0t3d0"]),
        ([{"type": "raidz1", "disks": 3}], ["raidz1-0", "c0t0d0", "c0t1d0", "c0t2d0"]),
        ([{"type": "draid1:2d", "disks": 3}], ["draid1:2d:3c:0s-0", "c0t0d0", "c0t1d0", "c0t2d0"]),
    ],
)
def test_zpool_status_shows_the_layout(vdevs, names):
    lines = Zfs(vdevs=vdevs).run("zpool status zones")[1].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("\tNAME"))
    tree = [line.split()[0] for line in lines[start + 1 : lines.index("", start)]]
    assert tree == ["zones", *names]
    depth = {line.split()[0]: len(line) - len(line.lstrip()) for line in lines[start + 1 : lines.index("", start)]}
    assert depth["c0t0d0"] == (3 if names[0] == "c0t0d0" else 5)


def test_zdb_shows_the_sector_size_of_each_vdev():
    """Indented as on a real node: `ashift` stands beside the type of a top-level vdev, and disks are below it."""
    zfs = Zfs(ashift=9, vdevs=[{"type": "raidz2", "disks": 3}, {"type": "disk", "disks": 1}])
    code, out, err = zfs.run("zdb -C zones")
    assert (code, err) == (0, "")
    assert "\n        name: 'zones'\n" in out
    tops = out.split("\n            children[")[1:]
    assert [re.findall(r"\n {16}(type|nparity|ashift|is_log): (.*)", top) for top in tops] == [
        [("type", "'raidz'"), ("nparity", "2"), ("ashift", "9"), ("is_log", "0")],
        [("type", "'disk'"), ("ashift", "9"), ("is_log", "0")],
    ]
    assert [top.count("\n                children[") for top in tops] == [3, 0]
    assert zfs.run("zdb -C nosuch") == (1, "", "zdb: can't open 'nosuch': No such file or directory\n")
    assert zfs.run("zdb zones")[0] == 2


def test_zpool_history(zfs):
    zfs.ok(f"list {VM}")
    history = zfs.run("zpool history zones")[1]
    assert history.startswith("History for 'zones':\n2026-01-01.00:00:00 zfs create zones/vm\n")
    assert "zfs list" not in history
