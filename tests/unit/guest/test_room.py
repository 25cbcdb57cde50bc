# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How small a disk can become: never smaller than what is on it, and the whole disk where that is not known."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest import room
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.table import HEAD_BYTES, parse_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import run

SEED = seed(int(os.environ["FLEXDISK_SEED"]))
MIB = 1 << 20
GPT = 'label: gpt\nstart=2048, size={}, name="root"\n'


class FileDisk:
    """A disk in a sparse file, with a table made by the real sfdisk."""

    def __init__(self, path, size, script):
        self.path, self.size = path, size
        path.write_bytes(b"")
        os.truncate(path, size)
        run("sfdisk", "-q", str(path), stdin=script)

    def table(self):
        with self.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        return parse_table(run("sfdisk", "-J", str(self.path)), head, self.size, 512), head

    def room(self, ends=()):
        return room.partitioned("disk", self.size, *self.table(), ends)

    def relocate(self, how="mini"):
        run("sfdisk", "-q", "--relocate", f"gpt-bak-{how}", str(self.path))

    def shrink(self, size):
        self.size = size
        os.truncate(self.path, size)

    def places(self):
        return [(part.number, part.start, part.size, part.uuid) for part in self.table()[0].partitions]


@pytest.fixture
def disk(tools, tmp_path):
    def new(script, mib=100, **more):
        return FileDisk(tmp_path / "disk", mib * MIB, script, **more)

    return new


def test_a_gpt_counts_with_all_that_its_header_allows(disk):
    free = disk(GPT.format(102400)).room()
    assert (free.end, free.backup) == (51 * MIB, 33 * 512)
    assert (free.min_bytes, free.reason) == (free.size, "its GPT lets partitions reach to its end")
    assert free.relocate == (("sfdisk", "--relocate", "gpt-bak-mini", "disk"),)
    assert free.compact == 51 * MIB + 34 * 512
    assert free.description() == (
        "disk: 100 MiB, cannot shrink: its GPT lets partitions reach to its end; "
        "to 52 MiB after sfdisk --relocate gpt-bak-mini disk"
    )


def test_a_gpt_whose_second_header_has_moved_leaves_room(disk):
    made = disk(GPT.format(102400))
    before, foretold = made.places(), made.room().compact
    made.relocate()
    free = made.room()
    assert (free.min_bytes, free.relocate, free.reason) == (foretold, (), "")
    assert free.description() == "disk: 100 MiB, can shrink to 52 MiB"
    made.shrink(free.min_bytes)
    assert made.places() == before
    assert (made.room().min_bytes, made.room().reason) == (free.min_bytes, "disk1 reaches to its end")
    made.relocate("std")
    assert "No errors" in run("sfdisk", "--verify", str(made.path))
    assert made.places() == before


def test_a_second_header_behind_what_partitions_may_use_is_not_cut(disk):
    made = disk("label: gpt\nlast-lba: 100000\nstart=2048, size=20480\n")
    assert made.room().min_bytes == made.size
    made.relocate()
    made.shrink(made.room().min_bytes)
    assert "No errors" in run("sfdisk", "--verify", str(made.path))


def test_the_active_flag_is_set_again(disk):
    made = disk(GPT.format(102400))
    run("sfdisk", "-q", "--no-reread", "--activate", str(made.path), "1")
    first, second = made.room().relocate
    assert first[1:3] == ("--relocate", "gpt-bak-mini")
    run(*first[:-1], str(made.path))
    assert made.room().relocate == made.table()[0].active * (second,)
    assert not made.table()[0].active
    run(*(str(made.path) if word == "disk" else word for word in second))
    assert made.table()[0].active


def test_a_gpt_that_is_shrunk_as_it_is_is_lost(disk):
    """What the figure guards against: one sector less than the first header allows, and sfdisk finds no GPT."""
    made = disk(GPT.format(102400))
    before = made.places()
    last = json.loads(run("sfdisk", "-J", str(made.path)))["partitiontable"]["lastlba"]
    made.shrink(last * 512)
    with pytest.raises(FlexdiskError, match="the MBR says that there is a GPT"):
        made.places()
    for size in ((last + 1) * 512, 100 * MIB):  # it is only lost as long as the disk is too small
        made.shrink(size)
        assert made.places() == before


@pytest.mark.parametrize(("entries", "backup"), [(128, 33), (256, 65), (12, 4)])
def test_the_room_of_the_second_header_is_that_of_its_entries(disk, entries, backup):
    free = disk(f"label: gpt\ntable-length: {entries}\nstart=2048, size=8192\n").room()
    assert (free.backup, free.end) == (backup * 512, 5 * MIB)


def test_an_empty_gpt_keeps_its_first_header(disk):
    made = disk("label: gpt\n")
    made.relocate()
    free = made.room()
    assert free.end == 0
    assert 67 * 512 <= free.min_bytes <= 2 * MIB + 33 * 512


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("label: dos\nstart=2048, size=4096\nstart=65536, size=2049\n", (65536 + 2049) * 512),
        ("label: dos\nstart=65536, size=2048\nstart=2048, size=4096\n", (65536 + 2048) * 512),
        ("label: dos\nstart=2048, size=40960, type=5\nstart=4096, size=2048\n", 43008 * 512),
    ],
    ids=["last", "not the last number", "extended"],
)
def test_an_mbr_ends_with_its_last_partition(disk, script, end):
    free = disk(script).room()
    assert (free.table, free.end, free.min_bytes, free.backup, free.relocate) == ("dos", end, end, 0, ())


def test_an_empty_mbr_keeps_its_sector(disk):
    assert disk("label: dos\n").room().min_bytes == 512


def test_what_only_the_kernel_knows_counts(disk):
    """A table was written and the kernel has not read it: the guest goes on to use what it knows."""
    made = disk("label: dos\nstart=2048, size=4096\n")
    assert made.room([MIB, 70 * MIB + 512]).min_bytes == 70 * MIB + 512
    assert made.room([101 * MIB]).min_bytes == 100 * MIB


@st.composite
def layouts(draw):
    at, lines = 2048, []
    for _number in range(draw(st.integers(1, 4))):
        at += draw(st.integers(0, 3000))
        size = draw(st.integers(1, 40000))
        lines.append(f"start={at}, size={size}\n")
        at += size
    return draw(st.permutations(lines)), at


@SEED
@settings(max_examples=40 if os.environ.get("FLEXDISK_FULL") else 8, deadline=None)
@given(layout=layouts())
def test_a_shrunk_gpt_is_whole(tools, tmp_path_factory, layout):
    lines, end = layout
    made = FileDisk(tmp_path_factory.mktemp("disk") / "disk", 120 * MIB, "label: gpt\n" + "".join(lines))
    before = made.places()
    made.relocate()
    free = made.room()
    assert free.end == end * 512
    assert 33 * 512 <= free.min_bytes - free.end <= 34 * 512
    made.shrink(room.whole_mib(free.min_bytes) * MIB)
    made.relocate("std")
    assert made.places() == before
    assert "No errors" in run("sfdisk", "--verify", str(made.path))


# -- disks without a table


def test_what_is_not_known_takes_the_whole_disk():
    free = room.unknown("/dev/vda", 5 * MIB + 512, "nobody knows")
    assert (free.min_bytes, free.end, room.whole_mib(free.min_bytes)) == (5 * MIB + 512, 5 * MIB + 512, 6)
    assert free.description() == "/dev/vda: 5.0 MiB, cannot shrink: nobody knows"


def test_what_fills_a_disk_ends_it():
    free = room.filled("/dev/vda", 9 * MIB, "xfs", 5 * MIB + 1)
    assert (free.min_bytes, free.reason, free.description()) == (
        5 * MIB + 1,
        "",
        "/dev/vda: 9 MiB, can shrink to 6 MiB",
    )
    for end in (9 * MIB, 10 * MIB):
        full = room.filled("/dev/vda", 9 * MIB, "xfs", end)
        assert (full.min_bytes, full.reason) == (9 * MIB, "the xfs on it takes all of it")


EXT = (
    "Filesystem features:      has_journal needs_recovery extent\n"
    "Filesystem state:         clean\nBlock count:  2560\nBlock size:   4096\n"
)


def test_an_ext4_ends_with_its_last_block():
    assert room.ext_end("vda", EXT, mounted=True) == 10 * MIB
    assert room.ext_end("vda", EXT.replace("needs_recovery ", ""), mounted=False) == 10 * MIB


@pytest.mark.parametrize(
    ("text", "mounted", "code"),
    [
        (EXT, False, "UnknownLayout"),
        (EXT.replace("clean", "clean with errors"), True, "UnknownLayout"),
        ("what", True, "UnexpectedOutput"),
    ],
    ids=["journal", "errors", "junk"],
)
def test_an_ext4_that_is_not_known(text, mounted, code):
    with pytest.raises(FlexdiskError) as refused:
        room.ext_end("vda", text, mounted)
    assert refused.value.code == code


CRYPT = "  type:    LUKS2\n  offset:  32768 sectors\n  size:    163840 sectors\n  mode:    read/write\n"


def test_a_luks_device_ends_with_its_mapping():
    assert room.crypt_end("secret", CRYPT) == 96 * MIB


@pytest.mark.parametrize("more", ["  integrity: hmac(sha256)\n", "  reencryption:  in-progress\n"])
def test_a_luks_device_that_is_not_plain(more):
    with pytest.raises(FlexdiskError, match=r"has (integrity|reencryption)"):
        room.crypt_end("secret", CRYPT + more)


def report(**more):
    row = {"pe_start": 1 << 20, "pv_size": 40 << 20, "vg_extent_size": 4 << 20, "pv_mda_count": 1, **more}
    return json.dumps({"report": [{"pv": [{key: str(value) for key, value in row.items()}]}]})


def test_a_physical_volume_ends_with_its_extents():
    assert room.physical_end("vda", report()) == 45 * MIB
    assert room.physical_end("vda", report(pv_mda_count=0)) == 45 * MIB


@pytest.mark.parametrize(
    ("pvs", "code", "message"),
    [
        (report(vg_extent_size=0), "UnknownLayout", "vda is a physical volume without volume group"),
        (report(pv_mda_count=2), "UnknownLayout", "a second copy of LVM's metadata at its end"),
        (report(pv_size=""), "UnexpectedOutput", "pvs printed"),
        ("{}", "UnexpectedOutput", "pvs printed"),
    ],
)
def test_a_physical_volume_that_is_not_known(pvs, code, message):
    with pytest.raises(FlexdiskError, match=message) as refused:
        room.physical_end("vda", pvs)
    assert refused.value.code == code
