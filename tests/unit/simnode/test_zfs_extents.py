# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Extents against the plainest model, byte by byte, and how the work for a stream grows with its pieces."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from simnode.zfs import extents as ext
from simnode.zfs import stream

from tests.unit.simnode.zfs_support import GIB, Zfs

SIZE = 60
DISK = "zones/disk"


def picture(extents):
    """The content and the birth of each byte. Extents are sorted, not empty, and free of overlaps."""
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(extents))
    assert all(one[0] < one[1] for one in extents)
    return {at: one[2:] for one in extents for at in range(one[0], one[1])}


def some_pieces(chance, contents):
    """Sorted pieces without overlaps."""
    ends = sorted(chance.sample(range(SIZE + 1), 2 * chance.randint(0, 8)))
    return [(one, other, chance.choice(contents)) for one, other in zip(ends[::2], ends[1::2], strict=True)]


@pytest.mark.parametrize("seed", range(200))
def test_as_byte_by_byte(seed):
    chance = random.Random(seed)
    extents, model, older = [], {}, [([], {})]
    for birth in range(1, 12):
        start, end = sorted(chance.sample(range(SIZE + 1), 2))
        kind = chance.choice(("write", "cut", "overlay"))
        if kind == "write":
            extents = ext.write(extents, start, end, "a", birth)
            model = {**model, **dict.fromkeys(range(start, end), ("a", birth))}
        elif kind == "cut":
            extents = ext.cut(extents, start, end)
            model = {at: one for at, one in model.items() if not start <= at < end}
        else:
            pieces = some_pieces(chance, ("a", "b", None))
            extents = ext.overlay(extents, pieces, birth)
            model = dict(model)
            for first, last, content in pieces:
                for at in range(first, last):
                    model.pop(at, None)
                    model.update({} if content is None else {at: (content, birth)})
        assert picture(extents) == model
        before, before_model = chance.choice(older)
        gone = {at: one for at, one in before_model.items() if model.get(at, ("", 0))[1] != one[1]}
        assert picture(ext.difference(before, extents)) == gone
        older.append((extents, model))


def test_pieces_that_touch_are_one():
    pieces = [(0, 4, "a"), (4, 8, "a"), (8, 12, "b"), (12, 16, None)]
    assert ext.overlay([], pieces, 3) == [(0, 8, "a", 3), (8, 12, "b", 3)]
    assert ext.overlay([(0, 4, "a", 2)], [(4, 8, "a")], 3) == [(0, 4, "a", 2), (4, 8, "a", 3)]


@pytest.fixture
def zfs() -> Zfs:
    made = Zfs(size=512 * GIB)
    made.ok(f"create -V 20000M {DISK}")
    return made


def receive(zfs, name, text):
    assert zfs.run(f"zfs receive {name}", text) == (0, "", "")


def test_a_disk_that_is_sent_on_and_on_has_no_more_pieces(zfs):
    """A replica of a replica, as after a move there and back. Each send cuts long extents into pieces."""
    zfs.guest(f"write {DISK} 0 20000 1")
    zfs.ok(f"snapshot {DISK}@s")
    name, sent = DISK, set()
    for hop in range(4):
        text = zfs.ok(f"send {name}@s")
        sent.add(len(text.splitlines()))
        name = f"zones/hop{hop}"
        receive(zfs, f"{name}@s", text)
        assert zfs.hash(name) == zfs.hash(DISK)
    assert len(sent) == 1


def test_twenty_thousand_pieces(zfs):
    """A full stream, and an increment with each second piece. Piece by piece, each of them would take minutes."""
    began = time.process_time()
    zfs.ok(f"snapshot {DISK}@s")
    block, count = 131072, 20000
    (part,) = stream.read(zfs.ok(f"send {DISK}@s"))
    full = [(at * block, (at + 1) * block, f"{at % 2}") for at in range(count)]
    receive(zfs, "zones/copy@s", stream.write(part.header, full))
    (first,) = stream.read(zfs.ok("send zones/copy@s"))
    assert len(first.pieces) >= count
    names = {"snapshot": "t", "toname": "zones/copy@t"}
    header = {**first.header, "fromguid": first.header["toguid"], "toguid": 77, **names}
    increment = [(start, end, "new") for start, end, _content in full[::2]]
    receive(zfs, "zones/copy@t", stream.write(header, increment))
    (second,) = stream.read(zfs.ok("send -i zones/copy@s zones/copy@t"))
    assert [piece for piece in second.pieces if piece[2]] == increment
    assert time.process_time() - began < 30
