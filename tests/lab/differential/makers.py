# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makers of commands that should mostly succeed, one for each kind. None: nothing to do it to."""

from __future__ import annotations

from collections.abc import Callable

from differential.model import KEY_FILE, MIB, POOL
from differential.world import BLOCKS, ENCRYPTED, TAGS, World

Argv = tuple[str, ...]
Maker = Callable[[World], "Argv | None"]


def create_filesystem(world: World) -> Argv | None:
    if world.crowded():
        return None
    name = world.free_filesystem()
    if world.rng.random() < 0.15 and world.free(f"{POOL}/{ENCRYPTED}"):
        key = ("-o", "encryption=on", "-o", "keyformat=raw", "-o", f"keylocation=file://{KEY_FILE}")
        return "zfs", "create", *key, f"{POOL}/{ENCRYPTED}"
    options: Argv = ()
    if world.rng.random() < 0.5:
        options += "-o", f"quota={world.amount(40 * MIB, 600 * MIB)}"
    if world.rng.random() < 0.3:
        options += "-o", f"{world.user()}={world.text()}"
    if world.rng.random() < 0.3:
        options += "-o", f"reservation={world.amount(MIB, 30 * MIB)}"
    return "zfs", "create", *options, name


def create_volume(world: World) -> Argv | None:
    if world.crowded():
        return None
    options: Argv = ()
    if world.rng.random() < 0.6:
        options += "-b", str(world.rng.choice(BLOCKS))
    if world.rng.random() < 0.3:
        options += "-o", f"{world.user()}={world.text()}"
    if world.rng.random() < 0.15:
        options += "-o", f"refreservation={world.rng.choice(('none', 'auto', str(world.amount(MIB, 64 * MIB))))}"
    return "zfs", "create", *options, "-V", str(world.size()), world.free_volume()


def create_sparse(world: World) -> Argv | None:
    made = create_volume(world)
    return None if made is None else (*made[:2], "-s", *made[2:])


def clone(world: World) -> Argv | None:
    snap = world.snapshot()
    if snap is None or world.crowded():
        return None
    target = world.free_volume() if snap.dataset.kind == "volume" else world.free_filesystem()
    options: Argv = ()
    if world.rng.random() < 0.3:
        options += "-o", f"{world.user()}={world.text()}"
    if snap.dataset.kind == "volume" and world.rng.random() < 0.4:
        options += "-o", f"refreservation={world.rng.choice(('auto', str(world.amount(MIB, 64 * MIB))))}"
    return "zfs", "clone", *options, snap.fullname, target


def set_volsize(world: World) -> Argv | None:
    volume = world.volume()
    if volume is None:
        return None
    value = f"volsize={world.size(volume)}"
    chance = world.rng.random()
    extra: Argv = ()
    if chance < 0.3:
        extra = ("refreservation=auto",)
    elif chance < 0.4:
        extra = (f"refreservation={world.amount(0, 100 * MIB) or 'none'}",)
    pairs = (value, *extra) if world.rng.random() < 0.7 else (*extra, value)
    return "zfs", "set", *pairs, volume.name


def set_refreservation(world: World) -> Argv | None:
    dataset = world.volume() if world.rng.random() < 0.85 else world.any()
    if dataset is None:
        return None
    values = ["none", str(world.amount(MIB, 120 * MIB))]
    if dataset.kind == "volume":
        values += ["auto", "auto", str(dataset.volsize)]
    return "zfs", "set", f"refreservation={world.rng.choice(values)}", dataset.name


def set_quota(world: World) -> Argv | None:
    dataset = world.filesystem()
    if dataset is None:
        return None
    value = str(world.quota_of(dataset, dataset.used)) if world.rng.random() < 0.75 else "none"
    return "zfs", "set", f"quota={value}", dataset.name


def set_reservation(world: World) -> Argv | None:
    dataset = world.any()
    if dataset is None:
        return None
    most = dataset.quota or dataset.used + 60 * MIB
    values = ["none", str(world.amount(0, most) or 1), str(dataset.used), str(dataset.quota or MIB)]
    return "zfs", "set", f"reservation={world.rng.choice(values)}", dataset.name


def set_refquota(world: World) -> Argv | None:
    dataset = world.filesystem()
    if dataset is None:
        return None
    value = str(world.amount(2 * MIB, 100 * MIB) + dataset.refreservation) if world.rng.random() < 0.75 else "none"
    return "zfs", "set", f"refquota={value}", dataset.name


def set_user(world: World) -> Argv | None:
    dataset = world.any()
    snap = world.snapshot() if world.rng.random() < 0.25 else None
    name = snap.fullname if snap else dataset.name if dataset else ""
    return ("zfs", "set", f"{world.user()}={world.text()}", name) if name else None


def set_many(world: World) -> Argv | None:
    if world.rng.random() < 0.4:
        volume = world.volume()
        if volume is None:
            return None
        size = world.size(volume)
        pairs = [f"volsize={size}", f"{world.user()}={world.text()}"]
        pairs.append(world.rng.choice(("refreservation=auto", "refreservation=none", "compression=lz4")))
        name = volume.name
    else:
        dataset = world.filesystem()
        if dataset is None:
            return None
        quota = world.quota_of(dataset, dataset.used)
        pairs = [f"quota={quota}", f"reservation={world.rng.choice((quota, dataset.used, world.amount(1, quota)))}"]
        if world.rng.random() < 0.5:
            pairs.append(f"{world.user()}={world.text()}")
        if world.rng.random() < 0.4:
            pairs += [f"refquota={world.amount(8 * MIB, 64 * MIB)}", f"refreservation={world.amount(MIB, 12 * MIB)}"]
        name = dataset.name
    world.rng.shuffle(pairs)
    return "zfs", "set", *pairs, name


def inherit(world: World) -> Argv | None:
    dataset = world.any()
    if dataset is None:
        return None
    prop = "readonly" if world.rng.random() < 0.25 else world.user()
    flags = ("-r",) if world.rng.random() < 0.25 else ()
    snap = world.snapshot() if prop != "readonly" and world.rng.random() < 0.2 else None
    return "zfs", "inherit", *flags, prop, snap.fullname if snap else dataset.name


def snapshot(world: World) -> Argv | None:
    dataset = world.volume() if world.rng.random() < 0.8 else world.any()
    if dataset is None or world.crowded():
        return None
    options = ("-o", f"{world.user()}={world.text()}") if world.rng.random() < 0.2 else ()
    return "zfs", "snapshot", *options, f"{dataset.name}@{world.free_snapshot(dataset)}"


def snapshot_below(world: World) -> Argv | None:
    dataset = world.filesystem()
    if dataset is None or world.crowded():
        return None
    return "zfs", "snapshot", "-r", f"{dataset.name}@{world.free_snapshot(dataset, below=True)}"


def rollback(world: World) -> Argv | None:
    candidates = [dataset for dataset in world.datasets if dataset.snapshots]
    dataset = world.pick([one for one in candidates if one.kind == "volume"] or candidates)
    if dataset is None:
        return None
    if world.rng.random() < 0.7:
        return "zfs", "rollback", dataset.snapshots[-1].fullname
    # Which of several go before a held one stops it is left to the order of a hash.
    last_held = max((index for index, snap in enumerate(dataset.snapshots) if snap.holds), default=0)
    flag = "-R" if world.rng.random() < 0.3 else "-r"
    return "zfs", "rollback", flag, world.rng.choice(dataset.snapshots[last_held:]).fullname


def rename_dataset(world: World) -> Argv | None:
    volume = world.volume() if world.rng.random() < 0.85 else world.filesystem()
    if volume is None:
        return None
    target = world.free_volume() if volume.kind == "volume" else world.free_filesystem()
    return "zfs", "rename", volume.name, target


def rename_snapshot(world: World) -> Argv | None:
    snap = world.snapshot()
    if snap is None:
        return None
    if world.rng.random() < 0.3:
        return (
            "zfs",
            "rename",
            "-r",
            snap.fullname,
            f"{snap.dataset.name}@{world.free_snapshot(snap.dataset, below=True)}",
        )
    short = world.free_snapshot(snap.dataset)
    return "zfs", "rename", snap.fullname, world.rng.choice((f"{snap.dataset.name}@{short}", f"@{short}"))


def destroy(world: World) -> Argv | None:
    leaves = [one for one in world.datasets if not one.children and not one.snapshots]
    dataset = world.pick([one for one in leaves if one.kind == "volume"] or leaves)
    return ("zfs", "destroy", dataset.name) if dataset else None


def destroy_snapshot(world: World) -> Argv | None:
    snap = world.snapshot(held=False, cloned=False)
    if snap is None:
        return None
    chance = world.rng.random()
    if chance < 0.15:
        other = world.snapshot()
        return "zfs", "destroy", "-d", other.fullname if other else snap.fullname
    names = [one.name for one in snap.dataset.snapshots]
    if chance < 0.25 and len(names) > 1:
        return "zfs", "destroy", f"{snap.dataset.name}@{names[0]}%{snap.name}"
    return "zfs", "destroy", snap.fullname


def destroy_below(world: World) -> Argv | None:
    dataset = world.volume() if world.rng.random() < 0.7 else world.any()
    if dataset is None:
        return None
    if world.rng.random() < 0.2 and dataset.snapshots:
        return "zfs", "destroy", "-r", world.rng.choice(dataset.snapshots).fullname
    return "zfs", "destroy", "-R" if world.rng.random() < 0.15 else "-r", dataset.name


def hold(world: World) -> Argv | None:
    snap = world.snapshot()
    if snap is None:
        return None
    flags = ("-r",) if world.rng.random() < 0.2 else ()
    return (
        "zfs",
        "hold",
        *flags,
        world.rng.choice([tag for tag in TAGS if tag not in snap.holds] or TAGS),
        snap.fullname,
    )


def release(world: World) -> Argv | None:
    snap = world.snapshot(held=True)
    if snap is None:
        return None
    flags = ("-r",) if world.rng.random() < 0.2 else ()
    return "zfs", "release", *flags, world.rng.choice(sorted(snap.holds)), snap.fullname


def _span(world: World) -> tuple[str, int, int] | None:
    """Where ZFS is not afraid of a quota: it counts a write 24 times until it is on disk, and else waits for that."""
    volume = world.pick([one for one in world.writable() if one.volsize >= MIB and world.available(one) >= 24 * MIB])
    if volume is None:
        return None
    longest = min(volume.volsize, world.available(volume) // 24) // MIB
    length = min(world.rng.choice((1, 2, 3, 4, 6, 9, 14)), longest)
    return volume.name, world.rng.randint(0, volume.volsize // MIB - length), length


def write(world: World) -> Argv | None:
    span = _span(world)
    if span is None:
        return None
    world.serial += 1
    return "guest", "write", span[0], str(span[1]), str(span[2]), f"w{world.serial}"


def trim(world: World) -> Argv | None:
    volume = world.pick(world.written())
    if volume is None:
        return None
    first, last, _content, _birth = world.rng.choice([piece for piece in volume.extents if piece[0] >= 0])
    start = first // MIB
    length = max(1, (min(last, volume.volsize) // MIB - start) // world.rng.choice((1, 2)))
    return ("guest", "trim", volume.name, str(start), str(length)) if (start + length) * MIB <= volume.volsize else None


def set_readonly(world: World) -> Argv | None:
    dataset = world.any()
    value = world.rng.choice(("on", "off", "off"))
    return ("zfs", "set", f"readonly={value}", dataset.name) if dataset else None


MAKERS: dict[str, Maker] = {
    "create filesystem": create_filesystem,
    "create volume": create_volume,
    "create sparse volume": create_sparse,
    "clone": clone,
    "set volsize": set_volsize,
    "set refreservation": set_refreservation,
    "set quota": set_quota,
    "set reservation": set_reservation,
    "set refquota": set_refquota,
    "set user property": set_user,
    "set several": set_many,
    "set readonly": set_readonly,
    "inherit": inherit,
    "snapshot": snapshot,
    "snapshot -r": snapshot_below,
    "rollback": rollback,
    "rename dataset": rename_dataset,
    "rename snapshot": rename_snapshot,
    "destroy": destroy,
    "destroy snapshot": destroy_snapshot,
    "destroy -r": destroy_below,
    "hold": hold,
    "release": release,
    "guest write": write,
    "guest discard": trim,
}
PLENTY = {
    "create volume": 2, "guest write": 2.5, "guest discard": 2, "snapshot": 1.5, "release": 2, "destroy snapshot": 1.5,
    "destroy -r": 0.6, "create sparse volume": 1.2, "snapshot -r": 1.3,
}  # fmt: skip
"""How often a kind is wished for, where that is not 1."""
