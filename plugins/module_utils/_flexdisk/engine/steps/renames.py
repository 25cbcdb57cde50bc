# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renames datasets and snapshots. Every rename goes through here, so that no inherited value is lost."""

from __future__ import annotations

import typing as t

from ...rules import effective
from ...rules.inventory import Host
from ...zfs.commands import Zfs


def rename(zfs: Zfs, name: str, target: str) -> None:
    """Rename a dataset. Inherited values that it would lose there are set on the dataset itself before.

    An interruption in between does no harm, because the dataset had these values anyway.
    """
    keep_values(zfs, name, target)
    zfs.rename(name, target)


def rename_out(zfs: Zfs, name: str, target: str) -> None:
    """Rename a volume as rename() does, and remove the devices of its partitions."""
    keep_values(zfs, name, target)
    zfs.move_out(name, target)


def rename_snapshot(zfs: Zfs, volume: str, old_name: str, new_name: str) -> None:
    """Rename a snapshot within its dataset, by its short names."""
    zfs.rename(f"{volume}@{old_name}", f"{volume}@{new_name}")


def keep_values(zfs: Zfs, name: str, target: str) -> None:
    """Set the inherited values on a dataset that it would lose as target. Within one parent it loses none."""
    above = _parent(target)
    if above == _parent(name):
        return
    rows = zfs.properties(name, above)
    wanted = effective.to_preserve(rows[name], rows[above], above)
    if wanted:
        zfs.set(name, **wanted)


def copy_values(zfs: Zfs, name: str, copy: str) -> None:
    """Set the values of a disk, also inherited ones, on its copy, before data is written to that."""
    rows = zfs.properties(name, copy)
    wanted = effective.carried(rows[name], rows[copy])
    if wanted:
        zfs.set(copy, **wanted)


def predicted_changes(zfs: Zfs, host: Host, pairs: t.Sequence[t.Tuple[str, str]]) -> t.List[str]:
    """Return warnings about properties of other tools that these renames change. It takes at most one process."""
    known = [(name, _existing_parent(host, target)) for name, target in pairs if name in host.datasets]
    names = sorted({one for name, above in known if above != _parent(name) for one in (name, above)})
    rows = zfs.properties(*names) if names else {}
    result = []
    for name, above in known:
        if name in rows and above in rows:
            for prop, (now, then) in effective.changes(rows[name], rows[above]).items():
                result.append(_render_change(name, prop, now, then, above))
    return result


def _render_change(name: str, prop: str, now: str, new_value: str, parent: str) -> str:
    if not new_value:
        return f"{name} loses {prop}={now}, which holds only for detached disks"
    return f"{name} gets {prop}={new_value} from {parent}{f' instead of {now}' if now else ''}"


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _existing_parent(host: Host, target: str) -> str:
    """Return the nearest existing dataset above a target."""
    above = _parent(target)
    while above not in host.datasets and "/" in above:
        above = _parent(above)
    return above
