# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a dataset inherits, and what of it would change when the dataset is renamed below another one."""

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
# What a place decides for what lies there: detached disks have no partitions, and replicas are read-only.
_OF_PLACE = ("readonly", "volmode")
# What cannot be set on a dataset that exists, or says where it is shown.
_FIXED = frozenset((
    "encryption", "jailed", "keyformat", "keylocation", "mlslabel", "mountpoint", "pbkdf2iters", "sharenfs",
    "sharesmb", "zoned",
))  # fmt: skip
# What belongs to a disk's own kind: a volume and a file system need other values.
_OF_KIND = frozenset(("atime", "canmount", "recordsize", "special_small_blocks"))


def is_user(name: str) -> bool:
    """Whether it is a user property of somebody else. Those of this collection are never inherited."""
    return ":" in name and not name.startswith(PREFIX)


def _inherited_from(source: str) -> str:
    """The dataset that a value comes from, "" for one that is set on the dataset itself, or for a default."""
    return source[len(_INHERITED) :] if source.startswith(_INHERITED) else ""


def _in_container(name: str) -> bool:
    """Whether it is our container or lies below it."""
    place = container(pool_of(name))
    return name == place or is_below(name, place)


def to_preserve(row: Row, above: Row, place: str) -> t.Dict[str, str]:
    """What must be set on a dataset so that its values stay when it is renamed below place, whose values are above."""
    result = {}
    for name, (value, source) in sorted(row.items()):
        if _comes_from_place(name, source, place) and above.get(name, ("", ""))[0] != value:
            result[name] = value
    return result


def _comes_from_place(name: str, source: str, place: str) -> bool:
    """Whether the value changes with the place, and is to stay."""
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
    """User properties of others that change all the same, with the value before and after, "" for none.

    One that a dataset lacks cannot be kept away from it, and one that our container has is for what lies there.
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
    """What must be set on a copy of a disk, of another kind perhaps, so that it has the values of the original."""
    result = {}
    for name, (value, source) in sorted(row.items()):
        native = name in _INHERITABLE and name not in (*_OF_PLACE, *_OF_KIND) and name in copy
        origin = _inherited_from(source)
        theirs = is_user(name) and source != "-" and not (origin and _in_container(origin))
        if (native or theirs) and copy.get(name, ("", ""))[0] != value:
            result[name] = value
    return result
