# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makers of bookmarks and streams, and of streams that are refused. Source and target are in one pool."""

from __future__ import annotations

from collections.abc import Iterator

from simnode.zfs import stream
from simnode.zfs.model import Bookmark, Dataset, Snapshot

from differential import makers, provoke
from differential.makers import Argv, Maker
from differential.model import MIB
from differential.profile import Profile
from differential.world import World

READONLY = ("-o", "readonly=on")
LEAST = 2048
"""Bytes of a stream with which zfs begins to receive."""


def bookmark(world: World) -> Argv | None:
    snap = world.snapshot()
    if snap is None or len(snap.dataset.bookmarks) > 1:
        return None
    free = [name for name in ("m0", "m1", "m2") if snap.dataset.bookmark(name) is None]
    return "zfs", "bookmark", snap.fullname, f"{snap.dataset.name}#{world.rng.choice(free)}"


def destroy_bookmark(world: World) -> Argv | None:
    bookmarks = [one for dataset in world.datasets for one in dataset.bookmarks]
    return ("zfs", "destroy", world.rng.choice(bookmarks).fullname) if bookmarks else None


def full(world: World) -> Argv | None:
    snap = _plain(world)
    if snap is None or world.crowded() or snap.dataset.cryptroot:
        return None
    return "stream", "0", "send", *_flags(world), snap.fullname, "|", "receive", *_options(world), _free(world, snap)


def cut_full(world: World) -> Argv | None:
    snap = _plain(world)
    if snap is None or world.crowded() or _size(snap) < 3 * MIB:
        return None
    command = "send", snap.fullname, "|", "receive", *_saved(world), *_options(world)
    return "stream", _somewhere(world, _size(snap)), *command, _free(world, snap)


def increment(world: World) -> Argv | None:
    increments = list(_increments(world))
    if not increments:
        return None
    base, snap, target = world.rng.choice(increments)
    command = "send", *_flags(world), "-i", base.fullname, snap.fullname, "|", "receive", "-s", *_options(world)
    return "stream", "0", *command, target.name


def cut_increment(world: World) -> Argv | None:
    increments = [one for one in _increments(world) if _size(one[1], one[0].createtxg) > 2 * MIB]
    if not increments:
        return None
    base, snap, target = world.rng.choice(increments)
    size = _size(snap, base.createtxg)
    command = "send", "-i", base.fullname, snap.fullname, "|", "receive", *_saved(world), target.name
    return "stream", _somewhere(world, size), *command


def rest(world: World) -> Argv | None:
    target = world.pick(world.unfinished)
    if target is None:
        return None
    return "stream", "0", "send", "-t", f"TOKEN:{target.name}", "|", "receive", "-s", target.name


def abort(world: World) -> Argv | None:
    target = world.pick(world.unfinished) or world.any()
    return ("zfs", "receive", "-A", target.name) if target else None


def exists(world: World) -> Argv | None:
    snap, target = _plain(world), world.any()
    return ("stream", "0", "send", snap.fullname, "|", "receive", target.name) if snap and target else None


def unfinished(world: World) -> Argv | None:
    """A stream for a dataset that waits for the rest of another one."""
    target = world.pick([one for one in world.unfinished if one.snapshots])
    if target is None:
        return None
    pairs = [pair for source in world.datasets for pair in _steps(source, target)]
    if not pairs:
        return None
    base, snap = world.rng.choice(pairs)
    return "stream", "0", "send", "-i", base.fullname, snap.fullname, "|", "receive", "-s", target.name


def unrelated(world: World) -> Argv | None:
    """An increment for a dataset that has not its base."""
    sources = [one for one in world.datasets if len(one.snapshots) > 1 and not one.cryptroot]
    source = world.pick(sources)
    if source is None:
        return None
    guids = {snap.guid for snap in source.snapshots}
    others = [
        one
        for one in world.datasets
        if one.kind == source.kind and not {snap.guid for snap in one.snapshots} & guids
        and not {snap.name for snap in one.snapshots} & {snap.name for snap in source.snapshots}
    ]  # fmt: skip
    target = world.pick(others)
    if target is None:
        return None
    command = "send", "-i", source.snapshots[-2].fullname, source.snapshots[-1].fullname, "|", "receive", target.name
    return "stream", "0", *command


def modified(world: World) -> Argv | None:
    """An increment for a dataset that was written to since."""
    increments = [one for one in _increments(world) if one[2].extents != one[2].snapshots[-1].extents]
    if not increments:
        return None
    base, snap, target = world.rng.choice(increments)
    return "stream", "0", "send", "-i", base.fullname, snap.fullname, "|", "receive", "-s", target.name


def absent(world: World) -> Argv | None:
    """An increment for a dataset that is not there."""
    source = world.pick([one for one in world.datasets if len(one.snapshots) > 1])
    if source is None:
        return None
    command = "send", "-i", source.snapshots[-2].fullname, source.snapshots[-1].fullname, "|", "receive"
    return "stream", "0", *command, _free(world, source.snapshots[-1])


def _plain(world: World) -> Snapshot | None:
    """A snapshot that is not encrypted, mostly of a volume."""
    snapshots = [snap for snap in world.snapshots if not snap.dataset.cryptroot]
    volumes = [snap for snap in snapshots if snap.dataset.kind == "volume"]
    return world.rng.choice(volumes or snapshots) if snapshots else None


def _size(snap: Snapshot, since: int = 0) -> int:
    return stream.size(snap, stream.pieces(snap, since))


def _free(world: World, snap: Snapshot) -> str:
    for _attempt in range(9):
        name = world.free_volume() if snap.dataset.kind == "volume" else world.free_filesystem()
        if not world.node.pools.dataset(name.rpartition("/")[0]).cryptroot:
            break
    return name


def _flags(world: World) -> Argv:
    return ("-Lec",) if world.rng.random() < 0.5 else ()


def _options(world: World) -> Argv:
    options: Argv = ("-u",)
    if world.rng.random() < 0.5:
        options += "-o", f"{world.user()}={world.text()}"
    return options + (READONLY if world.rng.random() < 0.3 else ())


def _saved(world: World) -> Argv:
    return ("-s",) if world.rng.random() < 0.75 else ()


def _somewhere(world: World, size: int) -> str:
    return str(world.rng.randint(LEAST, max(LEAST, size - MIB)))


def _increments(world: World) -> Iterator[tuple[Snapshot | Bookmark, Snapshot, Dataset]]:
    for source in world.datasets:
        for target in world.datasets:
            if source is not target:
                yield from ((base, snap, target) for base, snap in _steps(source, target))


def _steps(source: Dataset, target: Dataset) -> Iterator[tuple[Snapshot | Bookmark, Snapshot]]:
    """What the newest snapshot of a target can be followed by."""
    if not target.snapshots or source.cryptroot:
        return
    points: list[Snapshot | Bookmark] = [*source.snapshots, *source.bookmarks]
    for base in points:
        if base.guid == target.snapshots[-1].guid:
            yield from ((base, snap) for snap in source.snapshots if snap.createtxg > base.createtxg)


_MAKERS: dict[str, Maker] = {
    "bookmark": bookmark,
    "destroy bookmark": destroy_bookmark,
    "full stream": full,
    "cut full stream": cut_full,
    "increment stream": increment,
    "cut increment stream": cut_increment,
    "rest stream": rest,
    "receive -A": abort,
}
_WISHES: dict[str, Maker] = {
    "must specify -F": exists,
    "contains partially-complete state": unfinished,
    "match incremental source": unrelated,
    "has been modified": modified,
    "' does not exist": absent,
}
_ALSO = (
    "create filesystem", "create volume", "clone", "set volsize", "set refreservation", "set quota",
    "set user property", "set readonly", "snapshot", "snapshot -r", "rollback", "rename dataset", "rename snapshot",
    "destroy snapshot", "destroy -r", "hold", "release", "guest write", "guest discard",
)  # fmt: skip
_ALSO_WISHED = ("out of space", "dataset is busy", "has dependent clones", "has children", "read-only")
PROFILE = Profile(
    {**{name: makers.MAKERS[name] for name in _ALSO}, **_MAKERS},
    {
        "guest write": 4, "snapshot": 4, "full stream": 2, "increment stream": 8, "cut increment stream": 4,
        "rest stream": 6, "cut full stream": 2, "destroy -r": 0.3, "rename dataset": 0.6, "set quota": 0.5,
        "set readonly": 0.3, "create filesystem": 0.6, "clone": 0.4, "rollback": 0.5,
    },
    {**{name: provoke.WISHES[name] for name in _ALSO_WISHED}, **_WISHES},
    {"contains partially-complete state": 2, "has been modified": 2},
    (12, 36),
    0.1,
)  # fmt: skip
