# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Partitions of a grown disk: which one takes the new space, and where the swap behind it is moved."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.errors import FlexdiskError
from ..model.sizes import MIB
from .observed import Content
from .table import Partition, Table

# Less is left as it is: installers and file systems round by that much.
MIN_GROWTH_BYTES = 16 * MIB
ZFS = "zfs_member"
GROWABLE = ("ext2", "ext3", "ext4", "xfs", "btrfs", "LVM2_member", "crypto_LUKS", ZFS)
SWAP = "swap"


@dataclass(frozen=True)
class Growth:
    """The partitions that change. container: the extended partition of a logical one."""

    grown: Partition
    swap: t.Optional[Partition] = None
    container: t.Optional[Partition] = None

    def parts(self) -> t.Tuple[Partition, ...]:
        """All of them: the grown one first, a container before its partitions."""
        swap_side = (self.container, self.swap) if self.swap else (self.container,)
        return (self.grown, *(part for part in swap_side if part is not None))


def find_growth(table: Table, contents: t.Mapping[int, Content]) -> Growth:
    """Return which partition grows: the last one, or the one before a last swap. contents: by number of partition.

    Raises FlexdiskError UnknownLayout with the partitions found.
    """
    plain = [part for part in table.partitions if not part.extended]
    swap = plain.pop() if plain and contents[plain[-1].number].kind == SWAP else None
    if not plain:
        raise _unknown(table, contents, "there is no partition that can grow")
    grown = plain[-1]
    if contents[grown.number].kind not in GROWABLE:
        content = contents[grown.number].kind or "nothing that is known"
        where = "before the swap at the end" if swap else "the last one"
        raise _unknown(table, contents, f"{grown.name}, {where}, has {content} on it")
    return Growth(grown, swap, _container(table, contents, grown, swap))


def places(table: Table, growth: Growth) -> t.Tuple[Partition, ...]:
    """Return the changed partitions, or none if the growth is less than MIN_GROWTH_BYTES.

    A swap that would move by less than a MiB, or towards the start, is not moved: its new header would overwrite the
    one at the old place, which the table still names.
    """
    if growth.swap is None:
        new = _last(table, growth)
    elif growth.container is None:
        start = _down(table, table.limit - growth.swap.size)
        if start - growth.swap.start < table.step:
            new = (_until(growth.grown, _down(table, growth.swap.start)),)
        else:
            new = (_until(growth.grown, start), replace(growth.swap, start=start))
    else:
        new = _logical_swap(table, growth, growth.swap, growth.container)
    gained = (new[0].size - growth.grown.size) * table.sector
    return new if gained >= MIN_GROWTH_BYTES else ()


def _last(table: Table, growth: Growth) -> t.Tuple[Partition, ...]:
    end = _down(table, table.limit)
    grown = _until(growth.grown, end)
    return (grown,) if growth.container is None else (grown, _until(growth.container, end))


def _logical_swap(table: Table, growth: Growth, swap: Partition, container: Partition) -> t.Tuple[Partition, ...]:
    before, behind = swap.start - container.start, container.end - swap.end
    start = _down(table, table.limit - swap.size - behind)
    if start - swap.start < table.step:
        return (_until(growth.grown, _down(table, container.start)),)
    moved = replace(container, start=start - before)
    return _until(growth.grown, _down(table, moved.start)), moved, replace(swap, start=start)


def _container(
    table: Table, contents: t.Mapping[int, Content], grown: Partition, swap: t.Optional[Partition]
) -> t.Optional[Partition]:
    logical = swap if swap is not None and swap.number > 4 and table.label == "dos" else None
    if table.label == "dos" and grown.number > 4:
        if swap is not None:
            raise _unknown(table, contents, f"{grown.name} is logical and {swap.name} lies behind it")
        logical = grown
    holding = [part for part in table.partitions if part.extended]
    enclosing = next((part for part in holding if logical and part.start < logical.start < part.end), None)
    inside = [
        part
        for part in table.partitions
        if enclosing and not part.extended and enclosing.start < part.start < enclosing.end
    ]
    if logical is swap is not None and len(inside) > 1:
        raise _unknown(
            table, contents, f"{enclosing.name if enclosing else ''} has more in it than the swap at the end"
        )
    if any(part is not enclosing and part.end > grown.start for part in holding):
        raise _unknown(table, contents, f"an extended partition lies behind {grown.name}")
    return enclosing


def _down(table: Table, sector: int) -> int:
    return sector - sector % table.step


def _until(part: Partition, end: int) -> Partition:
    return replace(part, size=end - part.start)


def _unknown(table: Table, contents: t.Mapping[int, Content], why: str) -> FlexdiskError:
    growth = [f"{part.name} {contents[part.number].kind or '?'}" for part in table.partitions if not part.extended]
    return FlexdiskError("UnknownLayout", f"{why}; found: {table.label}: {', '.join(growth) or 'no partition'}")
