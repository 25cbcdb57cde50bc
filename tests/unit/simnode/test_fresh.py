# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures of disks that hold nothing, or very little: those that real ZFS has (tests/lab/suite/test_unwritten.py)."""

from __future__ import annotations

import pytest
from simnode.node import Node, PoolSpec

FRESH = (57344, 28672, 28672, 57344)


@pytest.fixture
def node() -> Node:
    node = Node.create(None, [PoolSpec("zones", 64 << 30)])
    run(node, "zfs", "create", "-s", "-o", "volblocksize=8192", "-V", "64M", "zones/v")
    return node


def run(node: Node, *argv: str) -> str:
    code, out, err = node.run(list(argv), "")
    assert code == 0, err
    return out


def figures(node: Node, name: str = "zones/v") -> tuple[int, ...]:
    return tuple(
        int(run(node, "zfs", "get", "-Hpo", "value", prop, name))
        for prop in ("referenced", "logicalreferenced", "logicalused", "written")
    )


def test_a_fresh_volume_and_a_fresh_file_system(node: Node) -> None:
    run(node, "zfs", "create", "zones/f")
    assert figures(node) == FRESH
    assert figures(node, "zones/f") == (98304, 43008, 43008, 98304)


@pytest.mark.parametrize(
    ("start", "length", "blocks"),
    [("0", "512B", 1), ("8K", "8K", 1), ("8191B", "2B", 2), ("4K", "8K", 2), ("0", "700K", 88), ("63", "1", 128)],
)
def test_blocks_count_whole(node: Node, start: str, length: str, blocks: int) -> None:
    for seed in ("7", "text"):
        run(node, "guest", "write", "zones/v", start, length, seed)
        assert figures(node)[1:3] == (28672 + blocks * 8192,) * 2
    run(node, "guest", "write", "zones/v", start, length, "zeros")
    run(node, "guest", "trim", "zones/v", "0", "64")
    assert figures(node) == FRESH


def test_a_block_that_is_written_twice_counts_once(node: Node) -> None:
    for start in ("0", "512B", "1K"):
        run(node, "guest", "write", "zones/v", start, "512B", start)
    assert figures(node)[1] == 28672 + 8192


def test_text_takes_next_to_nothing(node: Node) -> None:
    run(node, "guest", "write", "zones/v", "0", "32", "text")
    referenced, logical, *_others = figures(node)
    assert referenced == 98304
    assert logical == 28672 + (32 << 20)


def test_what_only_a_snapshot_has_and_what_a_clone_has_beside_its_origin(node: Node) -> None:
    run(node, "guest", "write", "zones/v", "0", "512B", "7")
    run(node, "zfs", "snapshot", "zones/v@s")
    run(node, "zfs", "clone", "zones/v@s", "zones/c")
    assert figures(node, "zones/c")[1:] == (36864, 0, 0)
    run(node, "guest", "write", "zones/c", "0", "512B", "8")
    assert figures(node, "zones/c")[1:3] == (36864, 36864)
    run(node, "guest", "trim", "zones/v", "0", "64")
    assert figures(node)[1:3] == (28672, 28672 + 36864)


def test_wrong_figures_are_refused(node: Node) -> None:
    for figure in ("-1", "1G", "K", "", "0x1"):
        code, _out, err = node.run(["guest", "write", "zones/v", "0", figure, "7"], "")
        assert code == 2
        assert "usage" in err
