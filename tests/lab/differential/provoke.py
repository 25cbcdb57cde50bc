# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Provokers of errors: each wish names the words of stderr it is after. None: it cannot be provoked just now."""

from __future__ import annotations

from collections.abc import Callable

from differential import makers
from differential.makers import Argv
from differential.model import KEY_FILE, MIB, POOL
from differential.world import ENCRYPTED, World

Provoker = Callable[[World], "Argv | None"]
WALL = 64 * MIB
"""How far beyond the available space a refused request lies at least, so that the refusal is beyond doubt."""


def _beyond(world: World, room: int) -> int:
    return (room + WALL + world.amount(0, 300 * MIB)) // MIB * MIB


def out_of_space(world: World) -> Argv | None:
    """A thick volume or clone too big for its place, a move or a snapshot that does not fit."""
    way = world.rng.randrange(4)
    parent = world.filesystem()
    if parent is None:
        return None
    if way == 0:
        size = _beyond(world, world.room(parent))
        return "zfs", "create", "-V", str(size), f"{parent.name}/{world.rng.choice(('big', 'disk3'))}"
    if way == 1:
        snap = world.snapshot()
        if snap is None or snap.dataset.kind != "volume":
            return None
        size = _beyond(world, world.room(parent))
        return "zfs", "clone", "-o", f"refreservation={size}", snap.fullname, f"{parent.name}/disk3"
    volumes = [one for one in world.datasets if one.kind == "volume"]
    tight = [one for one in volumes if min(one.unique, one.refreservation) > world.room(one)]
    if way == 2 and (volume := world.pick(tight)):
        return "zfs", "snapshot", f"{volume.name}@{world.free_snapshot(volume)}"
    room = world.room(parent)
    heavy = [one for one in volumes if one.used > room + MIB and one.parent is not parent]
    volume = world.pick(heavy)
    return ("zfs", "rename", volume.name, f"{parent.name}/disk3") if volume else None


def no_room_for_write(world: World) -> Argv | None:
    """A sparse volume that its quota lets down, soon: near a quota ZFS writes 1 MiB at a time."""
    for volume in world.writable():
        room = world.available(volume)
        length = min(volume.volsize // MIB, 20)
        if room < min(length - 12, 6) * MIB and not volume.extents[1:]:
            return "guest", "write", volume.name, "0", str(length), f"z{world.amount(1, 9999)}"
    return None


def more_than_available(world: World) -> Argv | None:
    """A reservation, refreservation or thick size beyond what there is."""
    dataset = world.volume() if world.rng.random() < 0.6 else world.any()
    if dataset is None:
        return None
    way = world.rng.randrange(4)
    size = _beyond(world, world.room(dataset) + dataset.refreservation)
    if way == 0:
        return "zfs", "set", f"refreservation={size}", dataset.name
    if way == 1 or dataset.kind != "volume":
        return "zfs", "set", f"reservation={_beyond(world, world.room(dataset.parent) + dataset.used)}", dataset.name
    size = (dataset.volsize + size) // MIB * MIB
    more = world.rng.choice(
        ((), ("refreservation=auto",), (f"refreservation={size}",), (f"{world.user()}={world.text()}",))
    )
    return "zfs", "set", f"volsize={size}", *more, dataset.name


def less_than_used(world: World) -> Argv | None:
    """A quota or refquota below what it has to hold."""
    full = [one for one in world.datasets if one.kind == "filesystem" and one.used > 8 * MIB]
    dataset = world.pick(full)
    if dataset is None:
        return None
    if dataset.refreservation and world.rng.random() < 0.4:
        return "zfs", "set", f"refquota={world.rng.randint(1, dataset.refreservation - 1) or 1}", dataset.name
    most = dataset.used - 2 * MIB - dataset.used // 50
    pairs: Argv = (f"quota={world.rng.randint(MIB, max(most, MIB + 1))}",)
    if world.rng.random() < 0.3:
        pairs += (f"{world.user()}={world.text()}",)
    return "zfs", "set", *pairs, dataset.name


def missing(world: World) -> Argv | None:
    """All kinds of commands on what is not there."""
    dataset = world.any()
    name = dataset.name if dataset else POOL
    gone = f"{name}-gone"
    snap = f"{name}@gone"
    return world.rng.choice((
        ("zfs", "set", "quota=1G", gone),
        ("zfs", "set", f"{world.user()}=x", snap),
        ("zfs", "set", f"{world.user()}=x", gone, name),
        ("zfs", "destroy", gone),
        ("zfs", "destroy", "-r", f"{gone}@s0"),
        ("zfs", "rename", gone, f"{POOL}/new"),
        ("zfs", "rename", snap, f"{name}@new"),
        ("zfs", "clone", snap, f"{POOL}/new"),
        ("zfs", "rollback", snap),
        ("zfs", "hold", "keep", snap),
        ("zfs", "release", "keep", snap),
        ("zfs", "inherit", world.user(), gone),
        ("zfs", "snapshot", f"{gone}@s0"),
    ))  # fmt: skip


def missing_snapshots(world: World) -> Argv | None:
    dataset = world.any()
    return ("zfs", "destroy", *world.rng.choice(((), ("-r",))), f"{dataset.name}@gone") if dataset else None


def existing(world: World) -> Argv | None:
    """A name that is taken."""
    first, second, snap = world.any(), world.any(), world.snapshot()
    way = world.rng.randrange(6)
    if first is None or second is None:
        return None
    if way == 0:
        return "zfs", "create", first.name
    if way == 1:
        return "zfs", "create", "-V", "16M", first.name
    if way == 2:
        return "zfs", "rename", first.name, second.name
    if snap is None:
        return None
    if way == 3:
        return "zfs", "clone", snap.fullname, first.name
    if way == 4:
        return "zfs", "snapshot", *world.rng.choice(((), ("-r",))), snap.fullname
    flags = world.rng.choice(((), ("-r",)))
    return (
        "zfs",
        "rename",
        *flags,
        snap.fullname,
        f"{snap.dataset.name}@{world.rng.choice(snap.dataset.snapshots).name}",
    )


def tag_twice(world: World) -> Argv | None:
    snap = world.snapshot(held=True)
    if snap is None:
        return makers.hold(world) or makers.snapshot(world)
    return "zfs", "hold", *world.rng.choice(((), ("-r",))), world.rng.choice(sorted(snap.holds)), snap.fullname


def held(world: World) -> Argv | None:
    """Destroying what a hold protects."""
    snap = world.snapshot(held=True)
    if snap is None:
        return makers.hold(world) or makers.snapshot(world)
    oldest = snap.dataset.snapshots[0]
    way = world.rng.randrange(4)
    if way == 0 and not snap.dataset.children:
        return "zfs", "destroy", "-r", snap.dataset.name
    if way == 1 and oldest is not snap:
        return "zfs", "rollback", "-r", oldest.fullname
    return "zfs", "destroy", *world.rng.choice(((), ("-r",))), snap.fullname


def cloned(world: World) -> Argv | None:
    snap = world.snapshot(cloned=True)
    if snap is None:
        return makers.clone(world) or makers.snapshot(world)
    return world.rng.choice((
        ("zfs", "destroy", snap.fullname),
        ("zfs", "destroy", "-r", snap.dataset.name),
        ("zfs", "destroy", "-r", snap.fullname),
    ))  # fmt: skip


def with_children(world: World) -> Argv | None:
    dataset = world.pick([one for one in world.datasets if one.children or one.snapshots])
    return ("zfs", "destroy", dataset.name) if dataset else None


def encryption_root(world: World) -> Argv | None:
    """Moving a volume out of its encryption root; makes the root and the volume first."""
    root = f"{POOL}/{ENCRYPTED}"
    root_dataset = world.node.pools.pools[POOL].datasets.get(root)
    if root_dataset is None:
        key = ("-o", "encryption=on", "-o", "keyformat=raw", "-o", f"keylocation=file://{KEY_FILE}")
        return "zfs", "create", *key, root
    volume = world.pick([one for one in root_dataset.children.values() if one.cryptroot == root_dataset.guid])
    if volume is None:
        return "zfs", "create", "-s", "-V", "16M", f"{root}/disk0"
    return "zfs", "rename", volume.name, f"{POOL}/moved"


def read_only_volume(world: World) -> Argv | None:
    volume = world.pick([one for one in world.datasets if one.kind == "volume" and one not in world.writable()])
    if volume is None:
        other = world.volume()
        return ("zfs", "set", "readonly=on", other.name) if other else None
    return world.rng.choice((
        ("zfs", "set", f"volsize={world.size(volume)}", volume.name),
        ("zfs", "set", f"volsize={world.size(volume)}", f"{world.user()}={world.text()}", volume.name),
        ("zfs", "inherit", "used", volume.name),
    ))  # fmt: skip


def unaligned(world: World) -> Argv | None:
    volume = world.volume()
    if volume is None:
        return None
    size = volume.volsize + world.rng.choice((1, 512, 1000))
    more = world.rng.choice(((), (f"{world.user()}={world.text()}",), ("refreservation=auto",)))
    return "zfs", "set", *more, f"volsize={size}", volume.name


def wrong_type(world: World) -> Argv | None:
    volume, filesystem = world.volume(), world.filesystem()
    if volume is None or filesystem is None:
        return None
    return world.rng.choice((
        ("zfs", "set", "quota=1G", volume.name),
        ("zfs", "set", "refquota=1G", volume.name),
        ("zfs", "set", "volsize=16M", filesystem.name),
        ("zfs", "set", "refreservation=auto", filesystem.name),
        ("zfs", "create", f"{volume.name}/below"),
        ("zfs", "rename", volume.name, f"{volume.name}/below"),
        ("zfs", "rename", filesystem.name, f"{filesystem.name}/below"),
        ("zfs", "rename", volume.name, f"{POOL}/none/below"),
        ("zfs", "create", f"{POOL}/none/below"),
        ("zfs", "rollback", volume.name),
        ("zfs", "inherit", "volsize", volume.name),
        ("zfs", "inherit", "quota", filesystem.name),
        ("zfs", "create", "-V", "16M", "-o", "quota=1G", f"{filesystem.name}/below"),
    ))  # fmt: skip


def bad_value(world: World) -> Argv | None:
    volume, filesystem = world.volume(), world.filesystem()
    if volume is None or filesystem is None:
        return None
    return world.rng.choice((
        ("zfs", "set", "volsize=0", volume.name),
        ("zfs", "set", "volsize=ten", volume.name),
        ("zfs", "set", "volblocksize=4096", volume.name),
        ("zfs", "set", "refreservation=-1", volume.name),
        ("zfs", "set", "quota=0", filesystem.name),
        ("zfs", "set", "nonsense=1", filesystem.name),
        ("zfs", "set", "quota=10Q", filesystem.name),
        ("zfs", "set", "readonly=maybe", filesystem.name),
        ("zfs", "create", "-V", "0", f"{filesystem.name}/zero"),
        ("zfs", "create", "-V", "16M", "-b", "3000", f"{filesystem.name}/odd"),
        ("zfs", "create", f"{filesystem.name}/a+b"),
        ("zfs", "snapshot", f"{volume.name}@a/b"),
        ("zfs", "set", f"volsize={16 * MIB}", f"volsize={16 * MIB}", volume.name),
    ))  # fmt: skip


def snapshot_order(world: World) -> Argv | None:
    """Rolling back past newer snapshots; releasing what is not held; moving a snapshot."""
    snap = world.snapshot()
    if snap is None:
        return None
    oldest = snap.dataset.snapshots[0]
    return world.rng.choice((
        ("zfs", "rollback", oldest.fullname),
        ("zfs", "rollback", oldest.fullname),
        ("zfs", "rollback", "-r", oldest.fullname),
        ("zfs", "release", "never", snap.fullname),
        ("zfs", "rename", snap.fullname, f"{POOL}@elsewhere"),
        ("zfs", "set", "quota=1G", snap.fullname),
    ))  # fmt: skip


WISHES: dict[str, Provoker] = {
    "out of space": out_of_space,
    "size is greater than available space": more_than_available,
    "size is less than current used or reserved space": less_than_used,
    "dataset does not exist": missing,
    "could not find any snapshots to destroy": missing_snapshots,
    "dataset already exists": existing,
    "tag already exists": tag_twice,
    "dataset is busy": held,
    "has dependent clones": cloned,
    "has children": with_children,
    "outside of its encryption root": encryption_root,
    "read-only": read_only_volume,
    "must be a multiple of volume block size": unaligned,
    "(wrong type or place)": wrong_type,
    "(bad value)": bad_value,
    "(order of snapshots, holds)": snapshot_order,
}
OFTEN = {
    "dataset is busy": 2,
    "outside of its encryption root": 2,
    "read-only": 2,
    "tag already exists": 2,
    "has dependent clones": 1.5,
}
"""How often a wish is wished for, where that is not 1: many of these can seldom be granted."""
