# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Destroys datasets that are this collection's alone, with the snapshots that others have taken of them meanwhile."""

from __future__ import annotations

import typing as t

from ...model.dataset import Dataset
from ...model.errors import FlexdiskError
from ...rules import saved_memory
from ...rules.layout import last_part, memory_below
from ...rules.moves import MEMORY_ENDED, MEMORY_PROPERTY, MOVE_PROPERTY, is_place, memory_is_there
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.errors import ZfsError
from . import records
from .replica_info import HOLD

_ATTEMPTS = 5  # somebody may take one more snapshot right before the dataset goes
_CANNOT_DESTROY = ("Held", "HasClones", "HasChildren", "Busy")


def drop_own_copy(zfs: Zfs, copies: Copies, name: str, guid: int) -> None:
    """Destroy a replica, a VM without disks or the dataset of a move, with each snapshot by its name.

    guid: the guid of the dataset when it was read.

    Raises FlexdiskError Changed for another dataset, InUse for one with datasets below, and ZfsError for a snapshot
    that others hold or have cloned.
    """
    for attempt in range(_ATTEMPTS):
        table = copies.table([name], ("guid",), "filesystem,volume,snapshot")
        below = sorted(one for one in table if one.startswith(name + "/"))
        if below:
            raise FlexdiskError("InUse", f"{name} is not destroyed, for it has {', '.join(below)}")
        if int(table[name]["guid"][0]) != guid:
            raise FlexdiskError("Changed", f"{name} changed since it was read: it is another dataset")
        # Oldest first: a run that is killed leaves a replica that has its newest set, and nothing that looks written.
        destroy_with_holds(zfs, copies, [one for one in table if "@" in one])
        try:
            zfs.destroy(name)
            return
        except ZfsError as exc:
            if exc.code != "HasChildren" or attempt + 1 == _ATTEMPTS:
                raise


def clear_memory(zfs: Zfs, copies: Copies, place: str) -> None:
    """Destroy the saved memory of a guest, if there is any. place: the dataset of its move. Raises ZfsError.

    The guest runs, or somebody has given its memory up, or another host has it.
    """
    name = memory_below(place)
    if zfs.exists(name):
        records.remove(saved_memory.key_name(last_part(place)))
        guid = int(copies.table([name], ("guid",), "filesystem", depth=0)[name]["guid"][0])
        drop_own_copy(zfs, copies, name, guid)
    zfs.files.remove_folder(saved_memory.folder(last_part(place)))  # a run that was killed may have left it


def drop_memory(zfs: Zfs, copies: Copies, place: str) -> str:
    """As clear_memory(). If others keep it, write down that it has ended, and return why: no move waits for them."""
    try:
        clear_memory(zfs, copies, place)
    except FlexdiskError as exc:
        if exc.code not in (*_CANNOT_DESTROY, "InUse"):
            raise
        zfs.set_facts(memory_below(place), {MEMORY_PROPERTY: MEMORY_ENDED})
        return f"{memory_below(place)} has the memory of a guest, is of no use any more, and stays: {exc.message}"
    return ""


def why_memory_stays(
    zfs: Zfs, copies: Copies, datasets: t.Mapping[str, Dataset], place: str, comes_anew: bool = False
) -> str:
    """Return why memory that has ended cannot be destroyed, as far as that shows; "" if it can. Read only.

    Args:
        datasets: all that there are.
        comes_anew: also memory that has not ended, since it is about to come once more.
    """
    name = memory_below(place)
    if name not in datasets or (memory_is_there(datasets, name) and not comes_anew):
        return ""
    reasons = [*_others_of(copies, datasets, name), *_programs_of(zfs, name, last_part(place))]
    return f"the memory of an earlier move or run is still there: {'; '.join(reasons)}" if reasons else ""


def _others_of(copies: Copies, datasets: t.Mapping[str, Dataset], name: str) -> t.Iterator[str]:
    """Yield what others have made of a file system, or of its snapshots, that keeps it."""
    table = copies.table([name], ("userrefs", "clones"), "snapshot")
    held = [snapshot for snapshot, row in table.items() if row["userrefs"][0] not in ("0", "-")]
    clones = [row["clones"][0] for row in table.values() if row["clones"][0] not in ("", "-")]
    below = [one for one in datasets if one.startswith(f"{name}/")]
    if held:
        yield f"others hold {', '.join(held)}; zfs release frees it"
    for text, others in (("is cloned as", clones), ("has below it", below)):
        if others:
            yield f"{name} {text} {', '.join(others)}; zfs destroy removes that"


def _programs_of(zfs: Zfs, name: str, vm: str) -> t.Iterator[str]:
    """Yield which programs have a file system with saved memory in use."""
    folder = saved_memory.folder(vm)
    programs = zfs.files.programs(folder) if zfs.files.mounted(folder, name) else []
    if programs:
        yield f"{', '.join(programs)} has {folder} open; end that program"


def drop_move_entry(zfs: Zfs, copies: Copies, place: str, guid: int) -> None:
    """Remove the entry of a move, and the saved memory of the guest, which is of no use any more.

    If others hold a snapshot of the dataset of the entry, or of the memory, that stays, without the entry.
    """
    if not is_place(place):
        raise ValueError(f"{place} is no place of a move")
    drop_memory(zfs, copies, place)
    try:
        drop_own_copy(zfs, copies, place, guid)
    except FlexdiskError as exc:
        if exc.code not in (*_CANNOT_DESTROY, "InUse"):
            raise
        zfs.set_facts(place, {MOVE_PROPERTY: ""})


def destroy_with_holds(zfs: Zfs, copies: Copies, snapshots: t.Sequence[str]) -> None:
    """Destroy exactly these snapshots of replicas, and release our holds on them first."""
    on_hold = copies.on_hold(HOLD, snapshots)
    if on_hold:
        zfs.release(HOLD, *sorted(on_hold))
    for name in snapshots:
        copies.destroy(name)
