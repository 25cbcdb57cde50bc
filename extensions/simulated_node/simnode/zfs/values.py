# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `zfs get` and `zfs list` say of a dataset: (value, source) of each property."""

from __future__ import annotations

import time
from operator import is_
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from simnode.zfs import crypt, numbers, stream
from simnode.zfs import extents as ext
from simnode.zfs.model import VOLUME, Bookmark, Dataset, Pool, Snapshot
from simnode.zfs.properties import AUTO, INHERIT, NUMBER, SINCE_BOOKMARK, SIZE, TABLE, Prop

Item = Union[Dataset, Snapshot]
Listed = Union[Item, Bookmark]
Value = Tuple[str, str]
_NOTHING: Value = ("-", "-")


def kind_of(item: Listed) -> str:
    """f, v, s or b."""
    if isinstance(item, (Snapshot, Bookmark)):
        return "s" if isinstance(item, Snapshot) else "b"
    return "v" if item.kind == VOLUME else "f"


def name_of(item: Listed) -> str:
    """Full name."""
    return item.name if isinstance(item, Dataset) else item.fullname


class Reader:
    """Reads properties of one pool; `literal` prints exact numbers."""

    def __init__(self, pool: Pool, literal: bool) -> None:
        self.pool = pool
        self.literal = literal
        self.byte = "" if pool.version == "illumos" else "B"
        self._users: Dict[int, Dict[str, Value]] = {}

    def get(self, item: Listed, name: str) -> Value:
        """(value, source); ("-", "-") when it does not apply or is not set."""
        if ":" in name:
            return _NOTHING if isinstance(item, Bookmark) else self._user(item).get(name, _NOTHING)
        if name.startswith(SINCE_BOOKMARK):
            return self._written_since(item, name[len(SINCE_BOOKMARK) :])
        return self.native(item, TABLE[name]) or _NOTHING

    def _written_since(self, item: Listed, bookmark: str) -> Value:
        """("-", "-") without such a bookmark."""
        mark = item.bookmark(bookmark) if isinstance(item, Dataset) else None
        if mark is None or not isinstance(item, Dataset):
            return _NOTHING
        return str(self.pool.weigh(item, [e for e in item.extents if e[3] > mark.createtxg])), "local"

    def _user(self, item: Item) -> Dict[str, Value]:
        """The user properties that a dataset or snapshot has, and inherits."""
        known = self._users.get(id(item))
        if known is None:
            above = item.dataset if isinstance(item, Snapshot) else item.parent
            known = {}
            if above is not None:
                origin_text = f"inherited from {above.name}"
                for name, (value, source) in self._user(above).items():
                    known[name] = (value, origin_text if source in ("local", "received") else source)
            for name, value in item.received.items():
                if ":" in name and name not in item.props:
                    known[name] = (str(value), "received")
            for name, value in item.props.items():
                if ":" in name and value is not None:
                    known[name] = (str(value), "local")
            self._users[id(item)] = known
        return known

    def native(self, item: Listed, prop: Prop) -> Optional[Value]:
        """(value, source), or None when the property does not apply."""
        reader = _READERS.get(prop.name)
        if reader is not None:
            if kind_of(item) not in prop.types:
                return None
            raw = reader(self, item)
            return None if raw is None else (self.show(prop, raw), "-")
        if kind_of(item) not in prop.types or isinstance(item, Bookmark):
            return None
        return self._stored(item, prop)

    def all(self, item: Listed) -> List[Tuple[str, str, str]]:
        """(name, value, source) of every property that applies, then the user properties."""
        rows = []
        for prop in TABLE.values():
            if prop.name == "name":
                continue
            values = self.native(item, prop)
            if values is not None:
                rows.append((prop.name, values[0], values[1]))
        for name in user_names(item):
            value, source = self.get(item, name)
            if source != "-":
                rows.append((name, value, source))
        return rows

    def show(self, prop: Prop, raw: Any) -> str:
        """Return a stored value as text."""
        if isinstance(raw, str):
            return raw
        if prop.name == "creation":
            return str(raw) if self.literal else _date(raw)
        if raw == AUTO:
            return "none"
        if prop.name in ("quota", "refquota", "reservation", "refreservation") and raw == 0:
            return "0" if self.literal else "none"
        if self.literal or prop.form not in (SIZE, NUMBER) or prop.name in ("guid", "createtxg"):
            return str(raw)
        return numbers.nice(raw, self.byte if prop.form == SIZE else "")

    def _stored(self, item: Item, prop: Prop) -> Value:
        if prop.name == "volsize":
            return self._volsize(item)
        if prop.name == "volblocksize" and isinstance(item, Dataset):
            source = "default" if item.volblocksize == self.pool.base_block else "-"
            return self.show(prop, item.volblocksize), source
        if prop.name == "encryption":
            return self._encryption(item)
        value, source, where = _lookup(item, prop.name, prop.mode == INHERIT)
        if source == "default":
            value = "on" if prop.name == "compression" and self.pool.version == "2.3" else prop.default
        if prop.name == "mountpoint":
            value = _mountpoint(item, str(value), source, where)
        return self.show(prop, value), source

    def _volsize(self, item: Item) -> Value:
        prop = TABLE["volsize"]
        if item.volsize == 0 and kind_of(item) != "v":
            return _NOTHING
        return self.show(prop, item.volsize), "local" if item.volsize else "default"

    def _encryption(self, item: Item) -> Value:
        dataset = item.dataset if isinstance(item, Snapshot) else item
        root = crypt.root_of(self.pool, dataset)
        if root is None:
            return "off", "default"
        value = str(root.props.get("encryption", "on"))
        return ("aes-256-gcm" if value == "on" else value), "-"


def _date(seconds: int) -> str:
    parts = time.gmtime(seconds)
    return f"{time.strftime('%a %b', parts)} {parts.tm_mday:>2} {parts.tm_hour:>2}:{parts.tm_min:02} {parts.tm_year}"


def _lookup(item: Item, name: str, inherited: bool) -> Tuple[Any, str, str]:
    """(value, source, dataset it comes from); source "default" when nobody has it."""
    if name in item.props:
        value = item.props[name]
        if value is not None:
            return value, "local", ""
    elif name in item.received:
        return item.received[name], "received", ""
    if not inherited:
        return None, "default", ""
    node: Optional[Dataset] = item.dataset if isinstance(item, Snapshot) else item.parent
    while node is not None:
        value = node.props.get(name)
        if value is None and name not in node.props:
            value = node.received.get(name)
        if value is not None:
            return value, f"inherited from {node.name}", node.name
        node = node.parent
    return None, "default", ""


def user_names(item: Listed) -> List[str]:
    """Names of the user properties seen from here, sorted."""
    if isinstance(item, Bookmark):
        return []
    names = {name for name in (*item.props, *item.received) if ":" in name}
    node: Optional[Dataset] = item.dataset if isinstance(item, Snapshot) else item.parent
    while node is not None:
        names.update(name for name in (*node.props, *node.received) if ":" in name)
        node = node.parent
    return sorted(names)


def _mountpoint(item: Item, value: str, source: str, where: str) -> str:
    name = name_of(item)
    if not value.startswith("/"):
        return value
    below = name
    if source in ("local", "received"):
        return value
    if where:
        below = name[len(where) :].lstrip("/")
    return f"{value.rstrip('/')}/{below}"


# -- read-only properties --------------------------------------------------------------------------------------------


def _head(item: Item) -> Dataset:
    return item.dataset if isinstance(item, Snapshot) else item


def _used(reader: Reader, item: Item) -> int:
    return item.used


def _written(reader: Reader, item: Item) -> int:
    if isinstance(item, Dataset):
        return item.unique
    chain = item.dataset.snapshots
    at = chain.index(item)
    before = chain[at - 1].createtxg if at else (item.dataset.origin.createtxg if item.dataset.origin else 0)
    return reader.pool.weigh(item.dataset, [e for e in item.extents if e[3] > before])


def _logicalreferenced(reader: Reader, item: Item) -> int:
    return reader.pool.logical(_head(item), item.extents)


def _logicalused(reader: Reader, item: Dataset) -> int:
    """Its own blocks, those that only its snapshots have, and everything below it; none of its origin's."""
    return _own_logical(reader.pool, item) + sum(_logicalused(reader, child) for child in item.children.values())


def _own_logical(pool: Pool, item: Dataset) -> int:
    """That of the dataset alone. It is kept: no list of extents changes in place."""
    lists = [item.extents, *(snap.extents for snap in item.snapshots)]
    origin = item.origin.createtxg if item.origin else 0
    known = item.logical
    if known and known[1] == origin and len(known[0]) == len(lists) and all(map(is_, known[0], lists)):
        return known[2]
    total = pool.logical(item, [e for e in item.extents if e[3] > origin])
    for at, snap in enumerate(item.snapshots):
        later = item.snapshots[at + 1].extents if at + 1 < len(item.snapshots) else item.extents
        total += pool.logical(item, [e for e in ext.difference(snap.extents, later) if e[3] > origin])
    item.logical = (lists, origin, total)
    return total


def _mounted(reader: Reader, item: Listed) -> str:
    mountpoint = reader.get(item, "mountpoint")[0]
    usable = mountpoint.startswith("/") and reader.get(item, "canmount")[0] == "on"
    return "yes" if usable else "no"


def _origin(reader: Reader, item: Listed) -> Optional[str]:
    return item.origin.fullname if isinstance(item, Dataset) and item.origin else None


def _encryptionroot(reader: Reader, item: Item) -> Optional[str]:
    root = crypt.root_of(reader.pool, _head(item))
    return root.name if root else None


def _keystatus(reader: Reader, item: Item) -> Optional[str]:
    dataset = _head(item)
    if not dataset.cryptroot:
        return None
    return "available" if crypt.is_loaded(reader.pool, dataset) else "unavailable"


_READERS: Dict[str, Callable[[Reader, Any], Any]] = {
    "name": lambda reader, item: name_of(item),
    "type": lambda reader, item: item.kind if isinstance(item, Dataset) else type(item).__name__.lower(),
    "creation": lambda reader, item: item.created,
    "used": _used,
    "available": lambda reader, item: reader.pool.available(item),
    "referenced": lambda reader, item: item.referenced,
    "compressratio": lambda reader, item: "1.00" if reader.literal else "1.00x",
    "refcompressratio": lambda reader, item: "1.00" if reader.literal else "1.00x",
    "mounted": _mounted,
    "origin": _origin,
    "createtxg": lambda reader, item: item.createtxg,
    "guid": lambda reader, item: item.guid,
    "usedbysnapshots": lambda reader, item: item.snapused,
    "usedbydataset": lambda reader, item: item.head,
    "usedbychildren": lambda reader, item: item.charge,
    "usedbyrefreservation": lambda reader, item: item.refreserved,
    "receive_resume_token": lambda reader, item: stream.token(item.partial) if item.partial else None,
    "defer_destroy": lambda reader, item: "on" if item.defer else "off",
    "userrefs": lambda reader, item: len(item.holds),
    "written": _written,
    "clones": lambda reader, item: ",".join(sorted(clone.name for clone in item.clones)),
    "logicalused": _logicalused,
    "logicalreferenced": _logicalreferenced,
    "encryptionroot": _encryptionroot,
    "keystatus": _keystatus,
}
