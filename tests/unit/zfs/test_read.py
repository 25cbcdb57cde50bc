# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsers of what zfs, zpool and zdb print, on recorded output."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    Vdev,
    automatic_reservation,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import read

MIB = 1 << 20


def lines(*rows):
    return "".join("\t".join(row) + "\n" for row in rows)


def test_a_volume():
    (dataset,) = read.parse_get(
        lines(
            ("zones/u/disk0", "type", "volume", "-"),
            ("zones/u/disk0", "guid", "123", "-"),
            ("zones/u/disk0", "used", "69206016", "-"),
            ("zones/u/disk0", "volsize", "67108864", "local"),
            ("zones/u/disk0", "volblocksize", "8192", "default"),
            ("zones/u/disk0", "refreservation", "69206016", "local"),
            ("zones/u/disk0", "quota", "-", "-"),
            ("zones/u/disk0", "origin", "zones/i@final", "-"),
            ("zones/u/disk0", "compression", "lz4", "inherited from zones"),
            ("zones/u/disk0", "clones", "-", "-"),
            ("zones/u/disk0", "flexdisk:name", "data disk", "local"),
            ("zones/u/disk0", "flexdisk:uuid", "u", "received"),
            ("zones/u/disk0", "flexdisk:preserve", "true", "inherited from zones/u"),
            ("zones/u/disk0", "flexdisk:tags", "-", "-"),
        )
    )
    assert dataset == Dataset(
        "zones/u/disk0",
        "volume",
        guid=123,
        used=69206016,
        volsize=67108864,
        volblocksize=8192,
        refreservation=69206016,
        origin="zones/i@final",
        compression="lz4",
        user={"name": "data disk", "uuid": "u"},
    )


def test_where_own_properties_come_from():
    rows = [
        "p/v\ttype\tvolume\t-",
        "p/v\tflexdisk:name\ta\tlocal",
        "p/v\tflexdisk:uuid\tu\treceived",
        "p/v\tflexdisk:tags\tx\tinherited from p/a b",
        "p/v\tflexdisk:slot\t-\t-",
        "p/v@s\tflexdisk:name\ta\tinherited from p/v",
    ]
    volume, snapshot = read.parse_get("\n".join(rows) + "\n")
    assert dict(volume.user) == {"name": "a", "uuid": "u"}
    assert (volume.received, volume.inherited) == ({"uuid"}, {"tags": "p/a b"})
    assert (snapshot.received, snapshot.inherited) == (set(), {}), "a snapshot shows what its volume has"


def test_file_systems_and_snapshots():
    root, snapshot = read.parse_get(
        lines(
            ("zones/u", "type", "filesystem", "-"),
            ("zones/u", "quota", "1073741824", "local"),
            ("zones/u", "volsize", "-", "-"),
            ("zones/u", "reservation", "0", "default"),
            ("zones/u@s", "type", "snapshot", "-"),
            ("zones/u@s", "userrefs", "2", "-"),
            ("zones/u@s", "clones", "zones/a,zones/b", "-"),
        )
    )
    assert (root.quota, root.volsize, root.reservation, root.parent) == (1 << 30, 0, 0, "zones")
    assert (snapshot.userrefs, snapshot.clones, snapshot.parent) == (2, ("zones/a", "zones/b"), "zones/u")
    assert Dataset("zones", "filesystem").parent == ""


def test_nothing():
    assert read.parse_get("") == []


@pytest.mark.parametrize("text", ["zones\n", "a\tb\tc\n", "a\tb\tc\td\te\n", "\n"])
def test_other_lines_are_said_not_guessed(text):
    with pytest.raises(FlexdiskError, match="not 4 fields") as caught:
        read.parse_get(text)
    assert caught.value.code == "UnexpectedOutput"


def test_a_figure_that_is_none():
    with pytest.raises(FlexdiskError, match=r"volsize of zones/v as '10G', which is not a number"):
        read.parse_get(lines(("zones/v", "volsize", "10G", "local")))


@given(st.text())
def test_any_text_is_parsed_or_refused(text):
    read.parse_status(text)
    with contextlib.suppress(FlexdiskError):
        read.parse_get(text)


HEAD = """  pool: {pool}
 state: ONLINE
  scan: scrub repaired 0B in 00:01:02 with 0 errors on Sun Jan  4 00:25:03 2026
config:

\tNAME        STATE     READ WRITE CKSUM
"""
TAIL = "\nerrors: No known data errors\n"


def status(pool, *rows):
    body = "".join(f"\t{'  ' * depth}{name}  ONLINE       0     0     0\n" for depth, name in rows)
    return HEAD.format(pool=pool) + body + TAIL


PLAIN = Vdev("plain", 0, 1, 0, 0)
LAYOUTS = {
    "disk": ([(0, "zones"), (1, "c1t0d0")], (PLAIN,)),
    "two disks": ([(0, "zones"), (1, "c1t0d0"), (1, "c1t1d0")], (PLAIN, PLAIN)),
    "mirror": ([(0, "zones"), (1, "mirror-0"), (2, "sda"), (2, "sdb")], (Vdev("plain", 0, 2, 0, 0),)),
    "raidz": ([(0, "zones"), (1, "raidz1-0"), *((2, "d%d" % n) for n in range(5))], (Vdev("raidz", 0, 5, 1, 0),)),
    "raidz without a number": ([(0, "zones"), (1, "raidz-0"), (2, "a"), (2, "b")], (Vdev("raidz", 0, 2, 1, 0),)),
    "two raidz2": (
        [
            (0, "zones"), (1, "raidz2-0"), *((2, "a%d" % n) for n in range(6)),
            (1, "raidz2-1"), *((2, "b%d" % n) for n in range(6)),
        ],
        (Vdev("raidz", 0, 6, 2, 0),) * 2,
    ),
    "draid": (
        [(0, "zones"), (1, "draid2:4d:11c:1s-0"), *((2, "d%d" % n) for n in range(11))],
        (Vdev("draid", 0, 11, 2, 4),),
    ),
    "a vdev of each kind that holds no data": (
        [
            (0, "zones"), (1, "raidz2-0"), *((2, "d%d" % n) for n in range(6)),
            (0, "logs"), (1, "mirror-1"), (2, "l0"), (2, "l1"),
            (0, "cache"), (1, "c0"),
            (0, "spares"), (1, "s0"),
        ],
        (Vdev("raidz", 0, 6, 2, 0),),
    ),
    "being replaced": (
        [(0, "zones"), (1, "raidz1-0"), (2, "d0"), (2, "replacing-1"), (3, "old"), (3, "new"), (2, "d2")],
        (Vdev("raidz", 0, 3, 1, 0),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    rows, expected = LAYOUTS[layout]
    assert read.parse_status(status("zones", *rows)) == {"zones": expected}


def test_a_special_mirror_holds_no_volumes_data():
    rows = [(0, "zones"), (1, "sda"), (0, "special"), (1, "mirror-1"), (2, "s0"), (2, "s1")]
    assert read.parse_status(status("zones", *rows))["zones"] == (PLAIN,)


def test_several_pools_and_their_names():
    text = status("zones", (0, "zones"), (1, "mirror-0"), (2, "a"), (2, "b"))
    text += "\n" + status("tank-1", (0, "tank-1"), (1, "raidz3-0"), *((2, "d%d" % n) for n in range(7)))
    vdevs = read.parse_status(text)
    assert vdevs == {"zones": (Vdev("plain", 0, 2, 0, 0),), "tank-1": (Vdev("raidz", 0, 7, 3, 0),)}


def test_a_pool_called_like_a_section():
    assert read.parse_status(status("logs", (0, "logs"), (1, "sda")))["logs"] == (PLAIN,)


def zdb(*children):
    """What C(zdb -C) prints of a pool with these top-level vdevs: type, ashift, is_log, disks."""
    lines = ["", "MOS Configuration:", "        version: 5000", "        name: 'zones'", "        hole_array[0]: 1"]
    lines += [
        "        vdev_tree:",
        "            type: 'root'",
        "            id: 0",
        "            guid: 1485797724320141",
    ]
    for n, (kind, ashift, is_log, disks) in enumerate(children):
        lines += [
            "            children[%d]:" % n,
            f"                type: '{kind}'",
            "                id: %d" % n,
            "                metaslab_shift: 34",
            "                ashift: %d" % ashift,
            "                asize: 47999446155264",
            "                is_log: %d" % is_log,
            "                com.delphix:vdev_zap_top: 129",
        ]
        for m in range(disks):
            lines += ["                children[%d]:" % m, "                    type: 'disk'"]
            lines += ["                    path: '/dev/dsk/c1t%dd0s0'" % m, "                    whole_disk: 1"]
    return "\n".join([*lines, "        features_for_read:", "            com.delphix:hole_birth", ""])


RAIDZ = Vdev("raidz", 0, 5, 1, 0)
DRAID = Vdev("draid", 0, 11, 2, 4)
SECTORS = {
    "as they stand": ((RAIDZ, PLAIN), [("raidz", 12, 0, 5), ("mirror", 9, 0, 2)], [12, 9]),
    "a log between": ((RAIDZ, RAIDZ), [("raidz", 12, 0, 5), ("disk", 9, 1, 0), ("raidz", 12, 0, 5)], [12, 12]),
    "a log before a disk": ((PLAIN, PLAIN), [("disk", 12, 0, 0), ("mirror", 9, 1, 2), ("disk", 13, 0, 0)], [12, 13]),
    "a hole where a log was": ((RAIDZ, PLAIN), [("raidz", 12, 0, 5), ("hole", 0, 0, 0), ("disk", 9, 0, 0)], [12, 9]),
    "a removed vdev": ((PLAIN, DRAID), [("indirect", 9, 0, 0), ("disk", 12, 0, 0), ("draid", 9, 0, 11)], [12, 9]),
    # A special vdev, always a disk or a mirror, looks there like any other one.
    "a special mirror": ((RAIDZ, RAIDZ), [("raidz", 12, 0, 5), ("mirror", 9, 0, 2), ("raidz", 13, 0, 5)], [12, 13]),
}  # fmt: skip


@pytest.mark.parametrize("case", SECTORS)
def test_sector_sizes(case):
    vdevs, children, expected = SECTORS[case]
    assert [v.ashift for v in read.with_ashift(vdevs, zdb(*children))] == expected


def test_whose_sector_size_matters():
    assert read.needs_ashift((PLAIN, RAIDZ))
    assert not read.needs_ashift((PLAIN,))


@pytest.mark.parametrize(
    "text", ["", "no pool", zdb(("raidz", 12, 0, 5), ("disk", 9, 0, 0)), zdb(("raidz", 12, 0, 5), ("raidz", 0, 0, 5))]
)
def test_a_sector_size_that_is_not_told(text):
    with pytest.raises(FlexdiskError, match=r"zdb -C does not tell the ashift of vdev [01] \(raidz\)"):
        read.with_ashift((RAIDZ, RAIDZ), text)


def test_the_rounding_is_told_by_the_volumes():
    vdevs = (Vdev("raidz", 12, 5, 1, 0),)
    sizes = {r: automatic_reservation(64 * MIB, 8192, read.PoolGeometry(vdevs, r)) for r in ("classic", "modern")}
    assert sizes["classic"] != sizes["modern"]
    for rounding, reserved in sizes.items():
        others = [Dataset("z/a", "volume", volsize=MIB, volblocksize=8192), Dataset("z/b", "filesystem")]
        known = Dataset("z/c", "volume", volsize=64 * MIB, volblocksize=8192, refreservation=reserved)
        assert read.geometry(vdevs, [*others, known]).rounding == rounding
    assert read.geometry(vdevs, []).rounding == "classic"


ROWS = [("p", "type"), ("p", "guid"), ("p/v", "type"), ("p/v", "guid"), ("p/v@s", "type"), ("p/v@s", "guid")]


def whole(rows, names=("p",)):
    read.check_whole("".join(f"{name}\t{prop}\t1\t-\n" for name, prop in rows), names, ("type", "guid"))


def test_an_answer_is_whole():
    whole(ROWS)
    whole(ROWS[2:], ["p/v"])
    whole(ROWS, ())
    whole([], ())


@pytest.mark.parametrize(
    ("rows", "message"),
    [([], "nothing of p,"), (ROWS[2:], "nothing of p,"), (ROWS[:2] + ROWS[4:], "nothing of p/v,")]
    + [(ROWS[:n] + ROWS[n + 1 :], "not all of ") for n in range(len(ROWS))]
    + [([*ROWS, ROWS[-1]], "not all of p/v@s,")],
)
def test_an_answer_that_is_not_whole(rows, message):
    with pytest.raises(FlexdiskError, match=message) as caught:
        whole(rows)
    assert caught.value.code == "UnexpectedOutput"


def test_bookmarks_alone_are_whole():
    read.check_whole("", ["p/v"], ["guid"], datasets=False)
    read.check_whole("p/v#b\tguid\t1\t-\n", ["p/v"], ["guid"], datasets=False)
    with pytest.raises(FlexdiskError, match="not all of p/v#b,"):
        read.check_whole("p/v#b\tguid\t1\t-\n", ["p/v"], ["guid", "createtxg"], datasets=False)


def test_a_last_line_that_was_cut():
    with pytest.raises(FlexdiskError, match="not all of p/v,"):
        read.check_whole("p\tguid\t1\t-\np/v\tguid\t12\t", ["p"], ["guid"])
