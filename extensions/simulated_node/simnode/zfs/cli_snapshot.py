# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs snapshot`, `rollback`, `hold`, `release` and `holds`."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from simnode.zfs import kernel
from simnode.zfs.cli_destroy import dependents, destroy_each
from simnode.zfs.errors import UsageError, ZfsError
from simnode.zfs.model import VOLUME, Dataset, Snapshot
from simnode.zfs.session import Session, assignments, checked, name_problem, options
from simnode.zfs.values import name_of

_TAG_MAX = 255


def snapshot(session: Session, argv: List[str]) -> int:
    """`zfs snapshot`: all of the named snapshots in one transaction group, or none."""
    given, names = options(argv, "ro:")
    recursive = any(flag == "-r" for flag, _value in given)
    props = assignments([value for flag, value in given if flag == "-o"])
    if not names:
        raise UsageError("missing snapshot argument")
    wanted: List[str] = []
    for name in names:
        above, at, short = name.partition("@")
        dataset = session.dataset(above) if at else None
        if dataset is None:
            raise UsageError("".join(session.err.pop().rstrip("\n") if session.err else "invalid snapshot name"))
        nodes = [node for node in dataset.walk() if node is dataset or not node.incomplete] if recursive else [dataset]
        wanted.extend(f"{node.name}@{short}" for node in nodes)
    wanted = list(dict.fromkeys(wanted))
    for name in wanted:
        wrong = name_problem(name, "s")
        if wrong:
            return session.fail(f"cannot create snapshot '{name}'", wrong)
    stored = checked(props, "s", False, "cannot create snapshots ")
    status = _take(session, wanted, stored)
    if status and (recursive or len(names) > 1):
        session.err.append("no snapshots were created\n")
    return status


def _take(session: Session, wanted: List[str], props: Dict[str, Any]) -> int:
    if len({name.partition("@")[0] for name in wanted}) < len(wanted):
        return session.fail("cannot create snapshots ", "multiple snapshots of same fs not allowed")
    try:
        errors = kernel.take_snapshots(session.storage, wanted, props)
    except ZfsError as refusal:
        return session.fail("cannot create snapshots ", refusal.text)
    for name, code in errors:
        session.fail(f"cannot create snapshot '{name}'", ZfsError(code).text)
    return 1 if errors else 0


def rollback(session: Session, argv: List[str]) -> int:
    """`zfs rollback`."""
    given, names = options(argv, "rRf")
    flags = {flag for flag, _value in given}
    if len(names) != 1:
        raise UsageError("too many arguments" if names else "missing dataset argument")
    snap = session.open(names[0], "s")
    if not isinstance(snap, Snapshot):
        return 1
    dataset = snap.dataset
    newer = dataset.snapshots[dataset.snapshots.index(snap) + 1 :]
    bookmarks = [bookmark for bookmark in dataset.bookmarks if bookmark.createtxg > snap.createtxg]
    if (newer or bookmarks) and not flags & {"-r", "-R"}:
        session.err.append(
            f"cannot rollback to '{names[0]}': more recent snapshots or bookmarks exist\n"
            "use '-r' to force deletion of the following snapshots and bookmarks:\n"
            + "".join(f"{name}\n" for name in [*(one.fullname for one in newer), *(one.fullname for one in bookmarks)])
        )
        return 1
    clones = [name_of(item) for one in newer for item in dependents(one)]
    if clones and "-R" not in flags:
        session.err.append(
            f"cannot rollback to '{names[0]}': clones of previous snapshots exist\n"
            "use '-R' to force deletion of the following clones and dependents:\n" + "".join(f"{c}\n" for c in clones)
        )
        return 1
    if _rollback(session, dataset, snap, newer):
        return 1
    for bookmark in bookmarks:
        dataset.bookmarks.remove(bookmark)
    return 0


def _rollback(session: Session, dataset: Dataset, snap: Snapshot, newer: List[Snapshot]) -> int:
    if not destroy_each(session, newer):
        return 1
    exact = dataset.kind == VOLUME and dataset.volsize == dataset.refreservation != snap.volsize
    try:
        kernel.rollback(session.storage, dataset, snap)
    except ZfsError as refusal:
        return session.fail(f"cannot rollback '{dataset.name}'", refusal.text)
    if exact:
        kernel.set_props(session.storage, dataset, {"refreservation": dataset.volsize})
    return 0


def _targets(session: Session, name: str, recursive: bool) -> List[Snapshot]:
    """Return the snapshots for a hold or release. Missing ones are printed."""
    above, at, short = name.partition("@")
    if not at:
        session.err.append(f"'{name}' is not a snapshot\n")
        return []
    dataset = session.dataset(above)
    if dataset is None:
        return []
    nodes = dataset.walk() if recursive else [dataset]
    return [snap for snap in (node.snapshot(short) for node in nodes) if snap is not None]


def hold(session: Session, argv: List[str]) -> int:
    """`zfs hold`."""
    given, names = options(argv, "rt")
    if len(names) < 2:
        raise UsageError("missing arguments")
    tag = names[0]
    if tag.startswith("."):
        raise UsageError("tag may not start with '.'")
    status = 0
    for name in names[1:]:
        before = len(session.err)
        snaps = _targets(session, name, bool(given))
        if not snaps:
            status = 1
            if len(session.err) == before:
                session.fail(f"cannot hold snapshot '{name}'", "dataset does not exist")
        clash = [snap for snap in snaps if tag in snap.holds]
        if len(tag) > _TAG_MAX:
            status = session.fail(f"cannot hold snapshot '{name}'", "tag too long")
        elif clash:
            status = session.fail(f"cannot hold snapshot '{clash[0].fullname}'", "tag already exists on this dataset")
        else:
            for snap in snaps:
                kernel.hold(session.storage, snap, tag)
    return status


def release(session: Session, argv: List[str]) -> int:
    """`zfs release`."""
    given, names = options(argv, "r")
    if len(names) < 2:
        raise UsageError("missing arguments")
    tag, status = names[0], 0
    for name in names[1:]:
        before = len(session.err)
        snaps = _targets(session, name, bool(given))
        tagged = [snap for snap in snaps if tag in snap.holds]
        if not tagged:
            status = 1
            if len(session.err) == before:
                reason = "no such tag on this dataset" if snaps else "dataset does not exist"
                session.fail(f"cannot release hold from snapshot '{name}'", reason)
        for snap in tagged:
            kernel.release(session.storage, snap, tag)
    return status


def holds(session: Session, argv: List[str]) -> int:
    """`zfs holds`."""
    given, names = options(argv, "rHp")
    flags = {flag for flag, _value in given}
    if not names:
        raise UsageError("missing snapshot argument")
    rows: List[List[str]] = []
    status = 0
    for name in names:
        before = len(session.err)
        snaps = _targets(session, name, "-r" in flags)
        if not snaps and len(session.err) == before and "-r" not in flags:
            session.fail(f"cannot open '{name}'", "dataset does not exist")
        if len(session.err) > before:
            status = 1
        for snap in snaps:
            for tag, when in sorted(snap.holds.items()):
                stamp = str(when) if "-p" in flags else time.strftime("%a %b %d %H:%M %Y", time.gmtime(when))
                rows.append([snap.fullname, tag, stamp])
    _print_holds(session, rows, "-H" in flags)
    return status


def _print_holds(session: Session, rows: List[List[str]], scripted: bool) -> None:
    if scripted:
        session.out.extend("\t".join(row) + "\n" for row in rows)
        return
    table = [["NAME", "TAG", "TIMESTAMP"], *rows]
    wide = [max(len(row[column]) for row in table) for column in (0, 1)]
    session.out.extend(f"{row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]}\n" for row in table)
