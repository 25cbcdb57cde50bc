# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs get` and `zfs list`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from simnode.zfs.errors import UsageError
from simnode.zfs.model import Bookmark
from simnode.zfs.properties import NUMBER, SIZE, SPACE_COLUMNS, TABLE, known
from simnode.zfs.session import Selection, Session, depth_of, options, types_of
from simnode.zfs.values import Listed, Reader, kind_of, name_of, user_names

_COLUMNS = ("name", "property", "value", "received", "source")
_SOURCES = ("local", "default", "inherited", "received", "temporary", "none")
_EVERYTHING = 1 << 30
Row = Tuple[str, ...]


def _properties(text: str) -> List[str]:
    names: List[str] = []
    for word in text.split(","):
        if word == "space":
            names.extend(SPACE_COLUMNS.split(","))
            continue
        try:
            names.append(known(word))
        except KeyError:
            raise UsageError(f"bad property list: invalid property '{word}'") from None
    return names


def _table(session: Session, header: Row, rows: List[Row], right: Set[int]) -> None:
    """Aligned columns, two spaces apart, the last one unpadded when it is left-aligned."""
    wide = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    last = len(header) - 1
    for row in [header, *rows]:
        cells = []
        for column, text in enumerate(row):
            if column in right:
                cells.append(text.rjust(wide[column]))
            else:
                cells.append(text if column == last else text.ljust(wide[column]))
        session.out.append("  ".join(cells) + "\n")


class _Common:
    """Options that `get` and `list` share."""

    def __init__(self, given: List[Tuple[str, str]]) -> None:
        self.flags = {flag for flag, _value in given}
        self.types: Optional[str] = None
        self.depth: Optional[int] = _EVERYTHING if "-r" in self.flags else None
        for flag, value in given:
            if flag == "-d":
                self.depth = depth_of(value)
            elif flag == "-t":
                self.types = types_of(value)

    def selection(self, default: str, snapshots: bool, names: List[str]) -> Selection:
        """Return the selection of datasets. Snapshots of a dataset are one level below it."""
        types = default if self.types is None else self.types
        depth = self.depth
        if types in ("s", "b") and names and not depth:
            depth = 1
        return Selection(types, snapshots or self.types is not None, depth)


# -- get -------------------------------------------------------------------------------------------------------------


def get(session: Session, argv: List[str]) -> int:
    """`zfs get`."""
    given, rest = options(argv, "d:o:s:rt:Hp")
    common = _Common(given)
    columns, sources = _get_options(given)
    if not rest:
        raise UsageError("missing property argument")
    names = None if rest[0] == "all" else _properties(rest[0])
    items, status = common.selection("fvsb", True, rest[1:]).pick(session, rest[1:])
    rows = _rows(session, items, names, "-p" in common.flags, sources)
    picked = [_COLUMNS.index(column) for column in columns]
    if "-H" in common.flags:
        if picked == [0, 1, 2, 4]:
            session.out.extend([f"{row[0]}\t{row[1]}\t{row[2]}\t{row[4]}\n" for row in rows])
        else:
            session.out.extend(["\t".join([row[column] for column in picked]) + "\n" for row in rows])
    elif rows:
        header = tuple(column.upper() for column in columns)
        _table(session, header, [tuple(row[column] for column in picked) for row in rows], set())
    return status


def _get_options(given: List[Tuple[str, str]]) -> Tuple[List[str], Optional[Set[str]]]:
    columns = ["name", "property", "value", "source"]
    sources: Optional[Set[str]] = None
    for flag, value in given:
        if flag == "-o":
            columns = list(_COLUMNS) if value == "all" else value.split(",")
            for column in columns:
                if column not in _COLUMNS:
                    raise UsageError(f"invalid column name '{column}'")
        elif flag == "-s":
            sources = set(value.split(","))
            for source in value.split(","):
                if source not in _SOURCES:
                    raise UsageError(f"invalid source '{source}'")
    return columns, sources


def _rows(
    session: Session, items: List[Listed], names: Optional[List[str]], literal: bool, sources: Optional[Set[str]]
) -> List[Row]:
    readers = {name: Reader(pool, literal) for name, pool in session.storage.pools.items()}
    rows: List[Row] = []
    for item in items:
        full = name_of(item)
        reader = readers[session.pool(item).name]
        values = reader.all(item) if names is None else [(name, *reader.get(item, name)) for name in names]
        for name, value, source in values:
            if sources is not None and _class(source) not in sources:
                continue
            received = "-" if isinstance(item, Bookmark) else str(item.received.get(name, "-"))
            rows.append((full, name, value, received, source))
    return rows


def _class(source: str) -> str:
    if source == "-":
        return "none"
    return "inherited" if source.startswith("inherited") else source


# -- list ------------------------------------------------------------------------------------------------------------


def list_(session: Session, argv: List[str]) -> int:
    """`zfs list`."""
    given, names = options(argv, "HS:d:o:prs:t:")
    common = _Common(given)
    fields = "name,used,available,referenced,mountpoint"
    for flag, value in given:
        if flag == "-o":
            fields = value
    literal, scripted = "-p" in common.flags, "-H" in common.flags
    items, status = common.selection("fvs", False, names).pick(session, names)
    for flag, value in reversed(given):
        if flag in ("-s", "-S"):
            items = _sorted(session, items, value, flag == "-S")
    readers = {name: Reader(pool, literal) for name, pool in session.storage.pools.items()}
    properties = _all_fields(items) if fields == "all" else _properties(fields)
    rows: List[Row] = []
    for item in items:
        reader = readers[session.pool(item).name]
        rows.append(tuple(reader.get(item, name)[0] for name in properties))
    if scripted:
        session.out.extend(["\t".join(row) + "\n" for row in rows])
    elif rows:
        header = tuple(name.upper() if ":" in name else TABLE[name].column for name in properties)
        right = {at for at, name in enumerate(properties) if ":" not in name and _right(name)}
        _table(session, header, rows, right)
    elif status == 0:
        session.err.append("no datasets available\n")
    return status


def _right(name: str) -> bool:
    return TABLE[name].form in (SIZE, NUMBER) and name not in ("creation", "guid", "createtxg")


def _all_fields(items: List[Listed]) -> List[str]:
    users: Dict[str, None] = {}
    for item in items:
        users.update(dict.fromkeys(user_names(item)))
    return [*TABLE, *sorted(users)]


def _sorted(session: Session, items: List[Listed], word: str, backwards: bool) -> List[Listed]:
    """Stable sort by one property; datasets it does not apply to come last."""
    try:
        name = known(word)
    except KeyError:
        raise UsageError(f"invalid property '{word}'") from None
    numeric = ":" not in name and TABLE[name].form in (SIZE, NUMBER)
    valued: List[Tuple[Any, Listed]] = []
    without: List[Listed] = []
    for item in items:
        value, source = Reader(session.pool(item), True).get(item, name)
        if (value == "-" and source == "-") or (":" not in name and kind_of(item) not in TABLE[name].types):
            without.append(item)
        else:
            valued.append((int(value) if numeric and value.isdigit() else value, item))
    valued.sort(key=lambda pair: pair[0], reverse=backwards)
    return [item for _value, item in valued] + without
