# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random partition tables in sparse files, grown by the real sfdisk: nothing is cut, and only what is named changes."""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest import growth
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.observed import Content
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.plan import (
    Disk,
    KernelPartition,
    plan,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.steps import Backup, Run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.table import HEAD_BYTES, parse_table
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import run

SEED = seed(int(os.environ["FLEXDISK_SEED"]))
BOOT_CODE = 440
EXAMPLES = 250 if os.environ.get("FLEXDISK_FULL") else 8
MIB_SECTORS = 2048
TYPES = {
    "gpt": ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"),
    "dos": ("83", "8e", "ef"),
}

extents = st.tuples(st.integers(0, 5000), st.integers(MIB_SECTORS, 60 * MIB_SECTORS))  # a gap, then a partition


@st.composite
def layouts(draw, label, logical):
    """(script of sfdisk, sectors in use): plain partitions, then perhaps an extended one with logical ones."""
    count = draw(st.integers(2, 6 if label == "gpt" else 3))
    numbers = draw(st.permutations(range(1, count + 1)))
    at, lines = draw(st.sampled_from([34, 63, MIB_SECTORS])), []
    for number in numbers:
        gap, size = draw(extents)
        lines.append(f"disk{number} : start={at + gap}, size={size}, {draw(more_of(label))}")
        at += gap + size
    if logical:
        more, at = draw(extended_at(at + draw(st.integers(0, 5000)), count + 1))
        lines += more
    head = f"label: {label}\n" + ("first-lba: 34\n" if label == "gpt" else "")
    return head + "\n" + "\n".join(lines) + "\n", at


def more_of(label):
    """What a line of sfdisk has beside start and size."""
    names = st.sampled_from(["", ', name="a name"', ', name="root"']) if label == "gpt" else st.just("")
    marks = ["", ', attrs="RequiredPartition LegacyBIOSBootable GUID:49"'] if label == "gpt" else [""]
    return st.tuples(st.sampled_from(TYPES[label]), names, st.sampled_from(marks)).map(
        lambda message: f"type={message[0]}{message[1]}{message[2]}"
    )


@st.composite
def extended_at(draw, start, number):
    """(lines, end) of an extended partition with logical ones in it."""
    at, inside = start, []
    for logical in range(5, 5 + draw(st.sampled_from([1, 1, 2, 3]))):
        # sfdisk makes no second logical partition closer than that
        gap = draw(st.sampled_from([2, 63, MIB_SECTORS])) if logical == 5 else MIB_SECTORS
        _gap, size = draw(extents)
        inside.append(f"disk{logical} : start={at + gap}, size={size}, type=83")
        at += gap + size
    at += draw(st.sampled_from([0, 0, 100]))
    kind = draw(st.sampled_from(["5", "f"]))
    return [f"disk{number} : start={start}, size={at - start}, type={kind}", *inside], at


def read(path):
    """(table, dump) as the module reads them."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    return parse_table(run("sfdisk", "-J", path), head, os.path.getsize(path), 512), run("sfdisk", "-d", path)


def places(dump):
    """Number of each partition: (start, size, the rest of its line)."""
    places_by_number = {}
    for line in dump.splitlines():
        match = re.match(r"\S+?(\d+) : start=\s*(\d+), size=\s*(\d+),(.*)", line)
        if match:
            places_by_number[int(match[1])] = (int(match[2]), int(match[3]), match[4])
    return places_by_number


def head_lines(dump):
    return [line for line in dump.splitlines() if ":" in line and " : " not in line and "last-lba" not in line]


def no_overlap(partitions, extended):
    inner = sorted(where for number, where in partitions.items() if number not in extended)
    assert all(one[0] + one[1] <= two[0] for one, two in pairwise(inner))
    for number in extended:
        start, size, _rest = partitions[number]
        for other, (at, length, _more) in partitions.items():
            inside = other >= 5 and start < at and at + length <= start + size
            assert other == number or inside or at + length <= start or start + size <= at


def check_gpt(path):
    """Both headers where they belong, each naming the other, with the checksum of its own entries."""
    data, last = Path(path), os.path.getsize(path) // 512 - 1
    with data.open("rb") as file:
        for variables, other in ((1, last), (last, 1)):
            file.seek(variables * 512)
            header = file.read(92)
            assert header[:8] == b"EFI PART"
            assert struct.unpack_from("<QQ", header, 24) == (variables, other)


def disk_with(folder, script, mib):
    """A sparse file with a table and random boot code."""
    path = os.path.join(folder, "disk")
    with open(path, "wb") as file:
        file.write(os.urandom(BOOT_CODE))
        file.truncate(mib << 20)
    run("sfdisk", "-q", path, stdin=script)
    return path


def boot_code(path):
    with open(path, "rb") as file:
        return file.read(BOOT_CODE)


def planned(path, table, dump, cast, contents):
    """(texts of backups, programs that write the table) of the plan for a disk whose kernel knows the same table."""
    kernel = {part.number: KernelPartition(part.start, part.size) for part in table.partitions}
    steps = plan(Disk(path, os.path.getsize(path), (), table, dump, cast, kernel, contents)).steps
    written = [step for step in steps if isinstance(step, Run) and step.argv[0] == "sfdisk"]
    return [step.text for step in steps if isinstance(step, Backup)], written


def check_kept(cast, before, new, named):
    """What is not named is as it was, the grown one begins where it began, and none has become smaller."""
    assert before.keys() == new.keys()
    assert {number: before[number] for number in before.keys() - named} == {
        number: new[number] for number in before.keys() - named
    }
    assert all(before[number][2] == new[number][2] for number in before)
    assert new[cast.grown.number][0] == before[cast.grown.number][0]
    assert all(new[number][1] >= before[number][1] for number in before)
    if cast.swap is not None:
        assert new[cast.swap.number][1] == before[cast.swap.number][1]


@pytest.mark.parametrize("swap", [False, True], ids=["last", "swap behind"])
@pytest.mark.parametrize(("label", "logical"), [("gpt", False), ("dos", False), ("dos", True)])
def test_random_tables_grow(tools, record_property, label, logical, swap):
    counted = Counter()

    @SEED
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(layouts(label, logical), st.integers(2, 8), st.one_of(st.integers(0, 40), st.integers(40, 3000)))
    def one(layout, free, more):
        counted[grows(label, layout, free, more, swap)] += 1

    one()
    for case, count in counted.items():
        record_property(f"random partition tables {case}", count)
    assert counted["grown"] > 0


def grows(label, layout, free, more, swap):
    """What has become of a table when its disk has grown by some MiB."""
    script, used = layout
    with tempfile.TemporaryDirectory() as folder:
        path = disk_with(folder, script, used // MIB_SECTORS + free)
        boot = boot_code(path)
        os.truncate(path, os.path.getsize(path) + (more << 20))
        table, dump = read(path)
        numbers = [part.number for part in table.partitions if not part.extended]
        contents = {number: Content("ext4") for number in numbers}
        if swap:
            contents[numbers[-1]] = Content("swap")
        try:
            cast = growth.find_growth(table, contents)
        except FlexdiskError:
            return "refused"
        backups, written = planned(path, table, dump, cast, contents)
        assert written or more << 20 < growth.MIN_GROWTH_BYTES + (3 << 20)
        for step in written:
            run(*step.argv, stdin=step.stdin)
        after, dump_after = read(path)
        new = places(dump_after)
        assert head_lines(dump) == head_lines(dump_after)
        check_kept(cast, places(dump), new, {part.number for part in cast.parts()} if written else set())
        no_overlap(new, [part.number for part in table.partitions if part.extended])
        assert boot_code(path) == boot
        if written:
            assert sum(new[cast.grown.number][:2]) % MIB_SECTORS == 0
            where = new[cast.swap.number][0] if cast.swap else 0
            assert where % MIB_SECTORS == 0 or (cast.swap and where == cast.swap.start)
        if label == "gpt" and written:
            check_gpt(path)
        assert growth.places(after, growth.find_growth(after, contents)) == ()
        assert len(backups) == len(written)
        for text in backups:
            run("sfdisk", "-q", "--no-reread", path, stdin=text)
            assert places(read(path)[1]) == places(dump)
        return "grown" if written else "left"
