# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs destroy` of datasets and of snapshots."""

from __future__ import annotations

from typing import Iterator, List, Set

from simnode.zfs import cli_bookmark, kernel, numbers
from simnode.zfs.errors import UsageError, ZfsError
from simnode.zfs.model import FILESYSTEM, Dataset, Snapshot
from simnode.zfs.session import Session, options, type_name
from simnode.zfs.values import Item, name_of


def dependents(item: Item) -> Iterator[Item]:
    """Everything that must go before `item`, in the order it must go: children, snapshots, clones of snapshots."""
    if isinstance(item, Snapshot):
        for clone in list(item.clones):
            yield from dependents(clone)
            yield clone
        return
    for leaf in sorted(item.children):
        yield from dependents(item.children[leaf])
        yield item.children[leaf]
    for snap in list(item.snapshots):
        yield from dependents(snap)
        yield snap


def destroy(session: Session, argv: List[str]) -> int:
    """`zfs destroy`; -F is illumos's."""
    given, names = options(argv, "vpndfrRF")
    flags = {flag[1] for flag, _value in given}
    if len(names) != 1:
        raise UsageError("too many arguments" if names else "missing dataset argument")
    if flags & {"R"}:
        flags.add("r")
    if flags & {"p"}:
        flags.add("v")
    if "#" in names[0]:
        return cli_bookmark.destroy(session, names[0])
    if "@" in names[0]:
        return _destroy_snapshots(session, names[0], flags)
    item = session.open(names[0], "s" if "d" in flags else "fv")
    if not isinstance(item, Dataset):
        return 1
    return _destroy_dataset(session, item, flags)


# -- datasets --------------------------------------------------------------------------------------------------------


def _destroy_dataset(session: Session, target: Dataset, flags: Set[str]) -> int:
    if "r" not in flags and target.parent is None and target.kind == FILESYSTEM:
        name = target.name
        session.err.append(
            f"cannot destroy '{name}': operation does not apply to pools\n"
            f"use 'zfs destroy -r {name}' to destroy all datasets in the pool\n"
            f"use 'zpool destroy {name}' to destroy the pool itself\n"
        )
        return 1
    if "R" not in flags and _blocked(session, target, flags):
        return 1
    batch: List[Snapshot] = []
    status = 0
    for item in dict.fromkeys([*dependents(target), target]):
        _announce(session, item, flags)
        if "n" in flags or (isinstance(item, Dataset) and item.parent is None):
            continue
        if isinstance(item, Snapshot):
            batch.append(item)
            continue
        if not _destroy_batch(session, batch) or not _destroy_one(session, item):
            status = 1
            if "r" not in flags:
                return 1
        batch = []
    return status if _destroy_batch(session, batch) else 1


def _announce(session: Session, item: Item, flags: Set[str]) -> None:
    if "v" not in flags:
        return
    verb = "destroy\t" if "p" in flags else "would destroy " if "n" in flags else "will destroy "
    session.out.append(f"{verb}{name_of(item)}\n")


def _blocked(session: Session, target: Item, flags: Set[str]) -> bool:
    """`destroy_check_dependent`: print what stands in the way without -r or -R, a child that is a clone twice."""
    below = name_of(target)
    children: List[str] = []
    clones: List[str] = []
    for item in dependents(target):
        name = name_of(item)
        direct = name.startswith((below + "/", below + "@"))
        (children if direct else clones).append(name)
    if isinstance(target, Snapshot) and target.dataset.receiving_from(target):
        clones.append(f"{target.dataset.name}/%recv")
    if children and "r" not in flags:
        why, option, listed = "children", "-r", children
    elif clones and ("r" in flags or isinstance(target, Snapshot)):
        why, option, listed = "dependent clones", "-R", clones
    else:
        return False
    session.err.append(
        f"cannot destroy '{below}': {type_name(target)} has {why}\n"
        f"use '{option}' to destroy the following datasets:\n" + "".join(f"{name}\n" for name in listed)
    )
    return True


def _destroy_one(session: Session, item: Item) -> bool:
    try:
        if isinstance(item, Dataset):
            kernel.destroy(session.storage, item)
        else:
            errors = kernel.destroy_snapshots(session.storage, [item], False)
            if errors:
                raise ZfsError(errors[0][1])
    except ZfsError as refusal:
        session.fail(f"cannot destroy '{name_of(item)}'", refusal.text)
        return False
    return True


def _destroy_batch(session: Session, snaps: List[Snapshot], defer: bool = False) -> bool:
    if not snaps:
        return True
    try:
        errors = kernel.destroy_snapshots(session.storage, snaps, defer)
    except ZfsError as refusal:
        session.fail("cannot destroy snapshots", refusal.text)
        return False
    for name, code in errors:
        why = ZfsError(code).text
        if code == "EEXIST":
            why = "snapshot is cloned"
        elif session.version == "2.3":
            why = f"it's being held. Run 'zfs holds -r {name}' to see holders."
        session.fail(f"cannot destroy snapshot {name}", why)
    return not errors


def destroy_each(session: Session, snaps: List[Snapshot]) -> bool:
    """Destroy these snapshots and what depends on them, one by one; what refuses (printed) keeps no other. Whether all
    are gone.
    """
    items = dict.fromkeys(item for snap in snaps for item in [*dependents(snap), snap])
    refused = [item for item in items if not _destroy_one(session, item)]
    return not refused


def _destroy_clones(session: Session, snaps: List[Snapshot]) -> bool:
    """Destroy all clones of these snapshots with what depends on them; False (printed) when one refuses."""
    for snap in snaps:
        batch: List[Snapshot] = []
        for item in dict.fromkeys(dependents(snap)):
            if isinstance(item, Snapshot):
                batch.append(item)
                continue
            if not _destroy_batch(session, batch) or not _destroy_one(session, item):
                return False
            batch = []
    return True


# -- snapshots -------------------------------------------------------------------------------------------------------


def _spec(dataset: Dataset, text: str) -> List[Snapshot]:
    """Snapshots of `a`, `a,b`, `a%b`, `%b`, `a%` or `%`."""
    snapshots: List[Snapshot] = []
    names = [snap.name for snap in dataset.snapshots]
    for part in text.split(","):
        first, percent, last = part.partition("%")
        if not percent:
            snapshots.extend(snap for snap in dataset.snapshots if snap.name == part)
            continue
        if (first and first not in names) or (last and last not in names):
            continue
        start = names.index(first) if first else 0
        stop = names.index(last) + 1 if last else len(names)
        snapshots.extend(dataset.snapshots[start:stop])
    return list(dict.fromkeys(snapshots))


def _destroy_snapshots(session: Session, name: str, flags: Set[str]) -> int:
    above, _at, spec = name.partition("@")
    dataset = session.dataset(above)
    if dataset is None:
        return 1
    snaps: List[Snapshot] = []
    for node in dataset.walk() if "r" in flags else [dataset]:
        snaps.extend(_spec(node, spec))
    if not flags & {"R", "d"}:
        blocked = [_blocked(session, snap, flags) for snap in snaps]
        if any(blocked):
            return 1
    if not snaps:
        session.err.append("could not find any snapshots to destroy; check snapshot names.\n")
        return 1
    if "v" in flags:
        _announce_snapshots(session, snaps, flags)
    if "n" in flags:
        return 0
    if "R" in flags and not _destroy_clones(session, snaps):
        return 1
    return 0 if _destroy_batch(session, snaps, "d" in flags) else 1


def _announce_snapshots(session: Session, snaps: List[Snapshot], flags: Set[str]) -> None:
    for snap in snaps:
        _announce(session, snap, flags)
    space = sum(snap.used for snap in snaps)
    if "p" in flags:
        session.out.append(f"reclaim\t{space}\n")
    else:
        verb = "would" if "n" in flags else "will"
        session.out.append(f"{verb} reclaim {numbers.nice(space, 'B')}\n")
