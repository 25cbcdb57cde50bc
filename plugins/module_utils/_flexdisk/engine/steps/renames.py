# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renames datasets and snapshots. Every rename goes through here, so that no value of a property is lost on the way."""

from __future__ import annotations

import typing as t

from ...rules import effective
from ...rules.inventory import Host
from ...zfs.commands import Zfs


def rename(zfs: Zfs, name: str, target: str) -> None:
    """Rename a dataset. What it has inherited so far and would not inherit there is set on itself before.

    An interruption leaves values that the dataset had anyway.
    """
    keep_values(zfs, name, target)
    zfs.rename(name, target)


def rename_out(zfs: Zfs, name: str, target: str) -> None:
    """Rename a volume as rename() does, and remove the devices of its partitions."""
    keep_values(zfs, name, target)
    zfs.move_out(name, target)


def rename_snapshot(zfs: Zfs, volume: str, old: str, new: str) -> None:
    """Rename a snapshot within its dataset, by its short names."""
    zfs.rename(f"{volume}@{old}", f"{volume}@{new}")


def keep_values(zfs: Zfs, name: str, target: str) -> None:
    """Set on a dataset what it inherits and would lose as target. A rename within one parent changes nothing."""
    above = _parent(target)
    if above == _parent(name):
        return
    rows = zfs.properties(name, above)
    wanted = effective.to_preserve(rows[name], rows[above], above)
    if wanted:
        zfs.set(name, **wanted)


def carry_over(zfs: Zfs, name: str, copy: str) -> None:
    """Give the copy of a disk the values that the disk has, inherited ones too, before its data is written."""
    rows = zfs.properties(name, copy)
    wanted = effective.carried(rows[name], rows[copy])
    if wanted:
        zfs.set(copy, **wanted)


def foreseen(zfs: Zfs, host: Host, pairs: t.Sequence[t.Tuple[str, str]]) -> t.List[str]:
    """Return, in words, the properties of other tools that these renames change all the same. At most one process."""
    known = [(name, _standing(host, target)) for name, target in pairs if name in host.datasets]
    names = sorted({one for name, above in known if above != _parent(name) for one in (name, above)})
    rows = zfs.properties(*names) if names else {}
    result = []
    for name, above in known:
        if name in rows and above in rows:
            for prop, (now, then) in effective.changes(rows[name], rows[above]).items():
                result.append(_words(name, prop, now, then, above))
    return result


def _words(name: str, prop: str, now: str, then: str, above: str) -> str:
    if not then:
        return f"{name} loses {prop}={now}, which holds only for detached disks"
    return f"{name} gets {prop}={then} from {above}{f' instead of {now}' if now else ''}"


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _standing(host: Host, target: str) -> str:
    """The dataset above a target that is there already."""
    above = _parent(target)
    while above not in host.datasets and "/" in above:
        above = _parent(above)
    return above
