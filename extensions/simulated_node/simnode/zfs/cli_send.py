# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs send`: whole snapshots, increments from a snapshot or a bookmark, and the rest of an interrupted stream."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple, Union

from simnode.zfs import crypt, stream
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.model import Bookmark, Snapshot
from simnode.zfs.session import Session, options

_NO_KEY = "dataset key must be loaded"
Base = Optional[Union[Snapshot, Bookmark]]


def send(session: Session, argv: List[str]) -> int:
    """`zfs send [-pnvPLecw] [-i|-I BASE] SNAPSHOT` or `zfs send [-nvPe] -t TOKEN`."""
    given, names = options(argv, "pvnPLecwi:I:t:")
    flags = {flag for flag, _value in given}
    raw = "-w" in flags
    values = dict(given)
    if "-t" in values:
        if names:
            raise UsageError("invalid flags combined with -t")
        return _resume(session, values["-t"], flags)
    if len(names) != 1:
        raise UsageError("too many arguments" if names else "missing snapshot argument")
    snap = session.open(names[0], "s")
    if not isinstance(snap, Snapshot):
        return 1
    base = _base(session, snap, values.get("-i", values.get("-I", "")))
    if base is None and flags & {"-i", "-I"}:
        return 1
    steps = _steps(snap, base, "-I" in flags)
    if "-n" in flags:
        _estimate(session, steps, flags)
        return 0
    if not raw and not crypt.can_read(session.pool(snap), snap.dataset):
        return session.fail(f"warning: cannot send '{snap.fullname}'", _NO_KEY)
    for earlier, later in steps:
        header = _header(session, earlier, later, "-p" in flags, raw)
        session.out.append(stream.write(header, stream.pieces(later, _since(earlier))))
    return 0


def _base(session: Session, snap: Snapshot, name: str) -> Base:
    """Return the base of that name, which may lack its dataset."""
    if not name:
        return None
    if not set(name) & set("@#"):
        name = f"@{name}"
    point = session.point(snap.dataset.name + name if name[0] in "@#" else name)
    if point is None:
        return None
    origin = snap.dataset.origin
    if point.createtxg >= snap.createtxg or (point.dataset is not snap.dataset and point is not origin):
        session.fail(f"warning: cannot send '{snap.fullname}'", "not an earlier snapshot from the same fs")
        return None
    return point


def _steps(snap: Snapshot, base: Base, all_between: bool) -> List[Tuple[Base, Snapshot]]:
    if not all_between or base is None:
        return [(base, snap)]
    between = [one for one in snap.dataset.snapshots if base.createtxg < one.createtxg <= snap.createtxg]
    bases: List[Base] = [base, *between[:-1]]
    return list(zip(bases, between))


def _since(base: Base) -> int:
    return base.createtxg if base else 0


def _estimate(session: Session, steps: List[Tuple[Base, Snapshot]], flags: Set[str], done: int = 0) -> None:
    """Print the sizes of the streams. done: the number of pieces of the first one that were sent already."""
    if not flags & {"-v", "-P"}:
        return
    total = 0
    for base, snap in steps:
        size = stream.size(snap, stream.pieces(snap, _since(base))[done:])
        done = 0
        total += size
        base_name = "" if base is None else base.name if len(steps) > 1 else base.fullname
        _print_row(
            session,
            ["incremental", base_name, snap.fullname, str(size)] if base else ["full", snap.fullname, str(size)],
        )
    _print_row(session, ["size", str(total)])


def _print_row(session: Session, fields: List[str]) -> None:
    session.out.append("\t".join(fields) + "\n")


def _header(session: Session, base: Base, snap: Snapshot, with_props: bool, raw: bool) -> Dict[str, Any]:
    dataset = snap.dataset
    props = {name: value for name, value in dataset.props.items() if value is not None}
    return {
        "kind": dataset.kind,
        "block": dataset.volblocksize,
        "volsize": snap.volsize,
        "toguid": snap.guid,
        "fromguid": base.guid if base else 0,
        "toname": snap.fullname,
        "created": snap.created,
        "snapshot": snap.name,
        "clone": base is not None and base.dataset is not dataset,
        "raw": crypt.raw_header(session.pool(dataset), dataset) if raw else {},
        "props": {**dataset.received, **props} if with_props else {},
        "snapprops": snap.props if with_props else {},
    }


def _resume(session: Session, text: str, flags: Set[str]) -> int:
    failure = "cannot resume send"
    try:
        content = stream.read_token(text)
    except (ValueError, KeyError):
        return session.fail(failure, "resume token is corrupt (invalid format)")
    if flags & {"-v", "-P"}:
        session.out.append("resume token contents:\nnvlist version: 0\n")
        session.out.append(f"\ttoguid = {content['toguid']:#x}\n\ttoname = {content['toname']}\n")
    snap = _by_guid(session, content["toguid"])
    if not isinstance(snap, Snapshot):
        raise CliError(f"{failure}: {_why_gone(session, content['toname'])}", 255)
    base = _by_guid(session, content["fromguid"]) if content["fromguid"] else None
    if base is None and content["fromguid"]:
        raise CliError(f"{failure}: incremental source {content['fromguid']:#x} no longer exists", 255)
    if "-n" in flags:
        _estimate(session, [(base, snap)], flags, content["pieces"])
        return 0
    raw = bool(content.get("rawok"))
    if not raw and not crypt.can_read(session.pool(snap), snap.dataset):
        raise CliError(f"{failure}: {_NO_KEY}")
    header = {**_header(session, base, snap, False, raw), "resume": content["pieces"]}
    session.out.append(stream.write(header, stream.pieces(snap, _since(base))[content["pieces"] :]))
    return 0


def _why_gone(session: Session, name: str) -> str:
    try:
        session.storage.snapshot(name)
    except ZfsError:
        return f"'{name}' used in the initial send no longer exists"
    return f"'{name}' is no longer the same snapshot used in the initial send"


def _by_guid(session: Session, guid: int) -> Base:
    for pool in session.storage.pools.values():
        for dataset in pool.datasets.values():
            points: List[Union[Snapshot, Bookmark]] = [*dataset.snapshots, *dataset.bookmarks]
            for point in points:
                if point.guid == guid:
                    return point
    return None
