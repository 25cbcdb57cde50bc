# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Properties that a dataset inherits, and which of them would change when it is renamed below another dataset."""

from __future__ import annotations

import typing as t

from .identity import PREFIX
from .layout import container, is_below, pool_of

# Value and source of each property that zfs shows of a dataset.
Row = t.Mapping[str, t.Tuple[str, str]]

_INHERITED = "inherited from "
# Properties that a dataset inherits, and that can be set on one that exists. One with its default inherits, too.
_INHERITABLE = frozenset((
    "aclinherit", "aclmode", "acltype", "atime", "checksum", "compression", "copies", "dedup", "devices", "direct",
    "dnodesize", "exec", "logbias", "nbmand", "overlay", "prefetch", "primarycache", "recordsize",
    "redundant_metadata", "relatime", "secondarycache", "setuid", "snapdev", "snapdir", "special_small_blocks",
    "sync", "volmode", "vscan", "xattr",
))  # fmt: skip
# Properties that depend on the place of a dataset: detached disks have no partitions, and replicas are read-only.
_OF_PLACE = ("readonly", "volmode")
# Properties that cannot be set on an existing dataset, or that say where it is mounted or shared.
_FIXED = frozenset((
    "encryption", "jailed", "keyformat", "keylocation", "mlslabel", "mountpoint", "pbkdf2iters", "sharenfs",
    "sharesmb", "zoned",
))  # fmt: skip
# Properties that depend on the type of a disk: a volume and a file system need different values.
_OF_KIND = frozenset(("atime", "canmount", "recordsize", "special_small_blocks"))


def is_user(name: str) -> bool:
    """Whether it is a user property of somebody else. Properties of this collection are never inherited."""
    return ":" in name and not name.startswith(PREFIX)


def _inherited_from(source: str) -> str:
    """Return the dataset that a value is inherited from, "" for a default or a value of the dataset itself."""
    return source[len(_INHERITED) :] if source.startswith(_INHERITED) else ""


def _in_container(name: str) -> bool:
    """Whether it is the container of detached disks, or below it."""
    place = container(pool_of(name))
    return name == place or is_below(name, place)


def to_preserve(row: Row, above: Row, place: str) -> t.Dict[str, str]:
    """Return the properties to set so that a dataset renamed below `place` keeps its values. above: those of place."""
    result = {}
    for name, (value, source) in sorted(row.items()):
        if _comes_from_place(name, source, place) and above.get(name, ("", ""))[0] != value:
            result[name] = value
    return result


def _comes_from_place(name: str, source: str, place: str) -> bool:
    """Whether the value would change with the place, and should not."""
    origin = _inherited_from(source)
    if is_user(name):
        return bool(origin) and not _in_container(origin)
    if name in _OF_PLACE:
        return bool(origin) and not (_in_container(origin) or _in_container(place))
    if origin and origin != container(pool_of(origin)) and _in_container(origin):
        return False  # what is set for replicas, such as sync=disabled, is nothing for a disk
    if origin:
        return name not in _FIXED and not name.startswith(PREFIX)
    return source == "default" and name in _INHERITABLE


def changes(row: Row, above: Row) -> t.Dict[str, t.Tuple[str, str]]:
    """Return user properties of others that change with the place, each with the value before and after, "" for none.

    A property that the dataset lacks cannot be kept away from it, and values that are set on the container of detached
    disks are meant for detached disks only.
    """
    result = {}
    for name in sorted({n for n in (*row, *above) if is_user(n)}):
        now, source = row.get(name, ("", ""))
        origin = _inherited_from(source)
        if now and (not origin or not _in_container(origin)):
            continue
        then = above.get(name, ("", ""))[0]
        if now != then:
            result[name] = (now, then)
    return result


def carried(row: Row, copy: Row) -> t.Dict[str, str]:
    """Return the properties to set on a copy of a disk, of any type, so that it has the original's values."""
    result = {}
    for name, (value, source) in sorted(row.items()):
        native = name in _INHERITABLE and name not in (*_OF_PLACE, *_OF_KIND) and name in copy
        origin = _inherited_from(source)
        theirs = is_user(name) and source != "-" and not (origin and _in_container(origin))
        if (native or theirs) and copy.get(name, ("", ""))[0] != value:
            result[name] = value
    return result
