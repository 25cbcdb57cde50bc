# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Destroy exactly what was planned. All destruction goes through here, and is compared with the plan at that moment.

Datasets are compared by guid, snapshots as a set, by name and guid. If anything differs, it is an error C(Changed), and
nothing of the dataset is destroyed. The command line compares and destroys in two calls, so each snapshot is named and
nothing is destroyed recursively: ZFS itself refuses a dataset that has got a snapshot in between.
"""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset, DatasetId
from ..model.errors import FlexdiskError, Unchanged
from ..rules.identity import GUARD_SNAPSHOT
from ..rules.layout import is_below
from ..rules.replicas import is_synced
from .commands import Zfs
from .errors import ZfsError

# A channel program runs within one transaction: what it has compared cannot become another volume before it destroys.
# Everything is tried before anything is done, for nothing is undone.
PROGRAM = b"""
local args = ...
local argv = args["argv"]
local volume, guid, uuid = argv[1], argv[2], argv[3]
if tostring(zfs.get_prop(volume, "guid")) ~= guid then
    return "guid"
end
if uuid ~= "" and zfs.get_prop(volume, "flexdisk:uuid") ~= uuid then
    return "uuid"
end
local known = {}
for n = 4, #argv, 2 do
    known[argv[n]] = argv[n + 1]
end
local snapshots = {}
for snapshot in zfs.list.snapshots(volume) do
    if known[snapshot] ~= tostring(zfs.get_prop(snapshot, "guid")) then
        return "snapshots"
    end
    snapshots[#snapshots + 1] = snapshot
end
if #snapshots * 2 ~= #argv - 3 then
    return "snapshots"
end
for n = 1, #snapshots do
    if zfs.check.destroy(snapshots[n]) ~= 0 then
        return "busy"
    end
end
for n = 1, #snapshots do
    local errno = zfs.sync.destroy(snapshots[n])
    if errno ~= 0 then
        return "errno " .. errno
    end
end
local errno = zfs.sync.destroy(volume)
if errno ~= 0 then
    return "errno " .. errno
end
return "destroyed"
"""

_DIFFERS = ("guid", "uuid", "snapshots")
# The number of snapshots in one call, because the kernel limits the length of an argument.
_AT_ONCE = 100
_AGAIN = "run the task again, its plan then names what is there"


class Destroyed(t.NamedTuple):
    """A dataset right before it was destroyed, and the backend that destroyed it: C(libzfs_core) or C(cli)."""

    dataset: Dataset
    by: str


# -- compare


def changed(name: str, changes: t.Sequence[str]) -> FlexdiskError:
    """Return the error for a dataset that differs from the plan. Nothing of it was destroyed."""
    return FlexdiskError("Changed", f"{name} changed since it was read: {'; '.join(changes)}; {_AGAIN}")


def differences(present: t.Iterable[DatasetId], planned: t.Iterable[DatasetId], partly: bool = False) -> t.List[str]:
    """Return how what exists differs from the plan, as text. partly: some of it may be gone already."""
    now, then = dict(present), dict(planned)
    added = [f"{name} was added" for name in sorted({*now} - {*then})]
    gone = [] if partly else [f"{name} is gone" for name in sorted({*then} - {*now})]
    others = [f"{name} is another one now" for name in sorted({*now} & {*then}) if now[name] != then[name]]
    return [*added, *gone, *others]


def confirm(
    zfs: Zfs,
    root: DatasetId,
    below: t.Sequence[DatasetId] = (),
    snapshots: t.Sequence[DatasetId] = (),
    partly: bool = False,
) -> t.List[Dataset]:
    """Return the dataset, and everything below it, if it is exactly what was planned. Raises C(Changed) otherwise.

    snapshots: full names of those of the dataset and of those below. partly: some of them may be gone already.
    """
    try:
        present = zfs.datasets(root.name)
    except ZfsError as exc:
        if exc.code != "ResourceNotFound":
            raise
        raise changed(root.name, [f"{root.name} is gone"]) from None
    if not any(one.name == root.name for one in present):
        raise FlexdiskError("UnexpectedOutput", f"zfs get reports nothing about {root.name}")
    datasets = [one.dataset_id for one in present if one.kind != "snapshot"]
    changes = differences(datasets, [root, *below])
    changes += differences([one.dataset_id for one in present if one.kind == "snapshot"], snapshots, partly)
    if changes:
        raise changed(root.name, changes)
    return present


def confirm_snapshots(zfs: Zfs, root: str, short: str, planned: t.Sequence[DatasetId]) -> None:
    """Raise C(Changed) unless the snapshots with one short name at and below a dataset are the planned ones."""
    present = [one.dataset_id for one in zfs.datasets(root) if one.kind == "snapshot" and _short(one.name) == short]
    changes = differences(present, [one for one in planned if _within(_dataset(one.name), root)])
    if changes:
        raise changed(f"{root}@{short}", changes)


def confirm_rollback(
    zfs: Zfs, parts: t.Sequence[DatasetId], newer: t.Sequence[DatasetId]
) -> t.Tuple[t.Dict[str, int], t.List[DatasetId], t.List[Dataset]]:
    """Raise Unchanged unless a rollback to these snapshots would destroy exactly the newer ones that were planned.

    Those of syncs may be gone already, because an earlier step releases their space. Returns the transaction group of
    the snapshot of each dataset, the newer snapshots that exist, and everything that was read.
    """
    names = [_dataset(part.name) for part in parts]
    present = zfs.datasets(*(name for name in names if not any(is_below(name, other) for other in names)))
    there = {one.name: one for one in present if one.kind == "snapshot"}
    changes = differences([there[part.name].dataset_id for part in parts if part.name in there], parts)
    since = {_dataset(part.name): there[part.name].createtxg for part in parts if part.name in there}
    after = [s.dataset_id for s in there.values() if s.parent in since and s.createtxg > since[s.parent]]
    left = [one for one in newer if one in after or not is_synced(_short(one[0]))]
    changes += differences(after, left)
    if changes:
        raise Unchanged(changed(_dataset(parts[0].name), [*changes, "it was not rolled back"]))
    return since, left, present


# -- destroy


def destroy(
    zfs: Zfs, dataset: DatasetId, snapshots: t.Sequence[DatasetId] = (), library: t.Optional[t.Any] = None
) -> Destroyed:
    """Destroy a dataset without children, with exactly these snapshots (full names).

    library: libzfs_core, which compares and destroys a volume in one transaction. It cannot unmount a file system.
    Raises FlexdiskError Changed if anything differs from the plan.
    """
    name = dataset.name
    present = confirm(zfs, dataset, (), snapshots)
    now = next(one for one in present if one.name == name)
    answer = ""
    if library is not None and now.kind == "volume":
        left = [one.dataset_id for one in present if one.kind == "snapshot"]
        answer = _run(library, now, left)
    if answer in _DIFFERS:
        raise changed(name, [f"another {answer}"])
    if answer == "destroyed":
        return Destroyed(now, "libzfs_core")
    if answer:  # it may have destroyed some snapshots
        present = confirm(zfs, dataset, (), snapshots, partly=True)
    _destroy_all(zfs, name, [one.name for one in present if one.kind == "snapshot"])
    _destroy_bare(zfs, name)
    # Later steps rely on it. For example, a resumed run could not tell a new disk of the same name from the old one.
    if zfs.exists(name):
        raise FlexdiskError("NotApplied", f"zfs destroy reported success, but {name} is still there")
    return Destroyed(now, "cli")


def _destroy_bare(zfs: Zfs, name: str) -> None:
    """Destroy a dataset that has no snapshots left. ZFS refuses it if it has got one in the meantime."""
    try:
        zfs.destroy(name)
    except ZfsError as exc:
        if exc.code != "HasChildren":
            raise
        came = [f"{one.name} was added" for one in zfs.datasets(name) if one.name != name]
        raise changed(name, came or [exc.message]) from exc


def _run(library: t.Any, volume: Dataset, snapshots: t.Sequence[DatasetId]) -> str:
    """Return the output of the channel program, "" if it could not be run."""
    parts = [volume.name, _signed(volume.guid), volume.user.get("uuid", "")]
    parts += [word for name, guid in snapshots for word in (name, _signed(guid))]
    try:
        output = library.lzc_channel_program(volume.pool.encode(), PROGRAM, params=[word.encode() for word in parts])
    except Exception:  # pylint: disable=broad-except  # its errors share no base class with ours
        return ""
    return output.decode() if isinstance(output, bytes) else ""


def _signed(guid: int) -> str:
    """Return the guid as channel programs have it: a signed number."""
    return str(guid - (1 << 64) if guid >= 1 << 63 else guid)


def _destroy_all(zfs: Zfs, dataset: str, snapshots: t.Sequence[str]) -> None:
    """Destroy these snapshots of one dataset. Those that fit into one call are destroyed together or not at all."""
    for start in range(0, len(snapshots), _AT_ONCE):
        shorts = [_short(name) for name in snapshots[start : start + _AT_ONCE]]
        zfs.destroy(f"{dataset}@{shorts[0]}", *shorts[1:])


def destroy_snapshots(zfs: Zfs, snapshots: t.Sequence[DatasetId]) -> None:
    """Destroy these snapshots (full names) in this order, if all of them are the planned ones."""
    if not snapshots:
        return
    try:
        present = zfs.datasets(*(one.name for one in snapshots))
    except ZfsError as exc:
        if exc.code != "ResourceNotFound":
            raise
        raise changed(_dataset(snapshots[0].name), [exc.message]) from exc
    changes = differences([one.dataset_id for one in present], snapshots)
    if changes:
        raise changed(_dataset(snapshots[0].name), changes)
    for name, _guid in snapshots:
        zfs.destroy(name)


def destroy_own(zfs: Zfs, *names: str) -> None:
    """Destroy snapshots and bookmarks by names that only this collection uses: guards and those of syncs."""
    for name in names:
        short = name.replace("#", "@").partition("@")[2]
        if short != GUARD_SNAPSHOT and not is_synced(short):
            raise ValueError(f"{name} may be somebody else's")
    for dataset in dict.fromkeys(_dataset(name) for name in names if "@" in name):
        _destroy_all(zfs, dataset, [name for name in names if _dataset(name) == dataset])
    for name in names:
        if "#" in name:
            zfs.destroy(name)


def destroy_tree(zfs: Zfs, planned: t.Sequence[DatasetId]) -> None:
    """Destroy datasets with exactly these snapshots (full names): the first, with all below it, leaf by leaf."""
    snapshots = [one for one in planned if "@" in one.name]
    root, *below = datasets = [one for one in planned if "@" not in one.name]
    confirm(zfs, root, below, snapshots)
    for name, _guid in sorted(datasets, key=lambda one: one.name.count("/"), reverse=True):
        _destroy_all(zfs, name, [one.name for one in snapshots if _dataset(one.name) == name])
        _destroy_bare(zfs, name)


# -- roll back


def roll_back(
    zfs: Zfs,
    parts: t.Sequence[DatasetId],
    newer: t.Sequence[DatasetId],
    done: t.Callable[[str], None] = lambda name: None,
    ready: t.Callable[[t.Sequence[Dataset]], None] = lambda datasets: None,
) -> None:
    """Roll datasets back to these snapshots, one after the other.

    done: called with each dataset that was rolled back. ready: called with all datasets and snapshots right before the
    first change. Exactly the newer snapshots that were planned are destroyed, by name. So are newer bookmarks, which
    hold no data: ZFS refuses to roll back over them.
    """
    since, left, present = confirm_rollback(zfs, parts, newer)
    bookmarks = zfs.bookmarks(*since)
    ready(present)
    for part in parts:
        dataset = _dataset(part.name)
        _destroy_all(zfs, dataset, [one.name for one in left if _dataset(one.name) == dataset])
        for bookmark, createtxg in bookmarks.items():
            if bookmark.partition("#")[0] == dataset and createtxg > since[dataset]:
                zfs.destroy(bookmark)
        try:
            zfs.rollback(part.name)
        except ZfsError as exc:
            if exc.code != "HasNewer":
                raise
            raise changed(dataset, [exc.message]) from exc
        done(dataset)


# -- names


def _dataset(name: str) -> str:
    return name.partition("@")[0]


def _short(name: str) -> str:
    return name.partition("@")[2]


def _within(name: str, root: str) -> bool:
    return name == root or is_below(name, root)
