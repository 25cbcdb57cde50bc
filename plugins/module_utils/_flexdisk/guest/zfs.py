# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""ZFS on a device of a guest: its label, its pool, and how it takes the new space."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..model.errors import FlexdiskError
from .growth import MIN_GROWTH_BYTES, ZFS
from .layers import Layer
from .observed import Content
from .table import Partition, Table

LABEL_BYTES = 256 * 1024  # there are two at each end, and a device is used in multiples of it
_OVERHEAD = (4 << 20) + 2 * LABEL_BYTES  # the labels, and the room for a boot loader behind the first two
_RESERVED_TYPE = "6A945A3B-1DD2-11B2-99A6-080020736631"
_RESERVED_SECTORS = 16384
_STEP_SECTORS = 2048
_NOT_DATA = ("3", "4")  # POOL_STATE_SPARE, POOL_STATE_L2CACHE
_EXPANDSZ, _HEALTH = 6, 10  # columns of zpool list -Hv
_SHARED = re.compile(r"mirror|raidz|draid")
_SUFFIX = re.compile(r"(-part|(?<=\d)p|(?<=[a-z]))1\Z")


@dataclass(frozen=True)
class Label:
    """The content of the ZFS label on a device."""

    pool: str
    guid: str
    # The type of its top-level vdev.
    kind: str
    # ZFS has made the partition table.
    whole_disk: bool
    path: str
    # The pool grows in steps of 2 to the power of this.
    shift: int


def parse_label(device: str, text: str) -> Label:
    """Return the label in the output of zdb -l. Raises FlexdiskError UnknownLayout, UnexpectedOutput."""
    labels = [_label(device, part, text) for part in re.split(r"^LABEL \d.*$", text, flags=re.MULTILINE)[1:]]
    if not labels:
        raise FlexdiskError("UnexpectedOutput", f"zdb -l {device} printed no label: {text[:200]!r}")
    if len({(label.pool, label.guid) for label in labels}) > 1:
        raise FlexdiskError("UnknownLayout", f"{device} has ZFS labels of several devices, one of them an old one")
    return labels[0]


def _label(device: str, part: str, text: str) -> Label:
    if _value(part, 4, "state") in _NOT_DATA:  # many releases write no pool_guid then
        raise FlexdiskError("UnknownLayout", f"{device} is a spare or cache of a ZFS pool, which does not grow")
    pool, guid = (_value(part, 4, key) for key in ("pool_guid", "guid"))
    if not (pool.isdigit() and guid.isdigit()):
        raise FlexdiskError("UnexpectedOutput", f"zdb -l printed something unknown: {text[:200]!r}")
    kind, path = _value(part, 8, "type"), _value(part, 8, "path")
    return Label(
        pool, guid, kind, _value(part, 8, "whole_disk") == "1", path, int(_value(part, 8, "metaslab_shift", "0"))
    )


def _value(part: str, indent: int, key: str, missing: str = "") -> str:
    match = re.search(rf"^ {{{indent}}}{key}: '?(.*?)'?\s*$", part, re.MULTILINE)
    return match.group(1) if match else missing


def pool_name(device: str, label: Label, text: str) -> str:
    """Return the name of the imported pool, from the output of zpool list -Hp -o guid,health,readonly,name.

    Raises FlexdiskError NotMounted; UnknownLayout if it cannot grow.
    """
    rows = [line.split("\t") for line in text.splitlines()]
    pool_row = next((row for row in rows if len(row) == 4 and row[0] == label.pool), None)
    if pool_row is None:
        raise FlexdiskError("NotMounted", f"the ZFS pool on {device} is not imported")
    _guid, health, readonly, name = pool_row
    if readonly != "off":
        raise FlexdiskError("NotMounted", f"the ZFS pool {name} on {device} is imported read-only")
    if health != "ONLINE":
        raise FlexdiskError("UnknownLayout", f"the ZFS pool {name} on {device} is {health}, not ONLINE")
    return name


def pool_layer(name: str, device: str, label: Label, pool: str, text: str) -> Layer:
    """Return the vdev on a device, from the output of zpool list -HpvLP of its pool.

    Its size is that of its metaslabs. SIZE is not, but ALLOC and FREE together are. Raises FlexdiskError UnknownLayout,
    UnexpectedOutput.
    """
    _above, row = _rows(device, pool, text)
    try:
        size = int(row[3]) + int(row[4])
    except ValueError as exc:
        raise _unexpected(text) from exc
    unit = 1 << label.shift
    return Layer(name, ("zpool", "online", "-e", pool, label.guid), size, _OVERHEAD, unit, unit)


def alone(label: Label) -> bool:
    """Whether the device is a vdev of its own, so that the pool gets all new space of the device."""
    return label.kind == "disk" and bool(label.shift)


def check_member(device: str, label: Label, pool: str, text: str, gained: int) -> None:
    """Check that one of several devices of a vdev has nothing to grow. gained: the bytes that its partition would get.

    text: the output of zpool list -HpvLP of the pool. Raises FlexdiskError UnknownLayout, UnexpectedOutput.
    """
    above, _row = _rows(device, pool, text)
    if gained < MIN_GROWTH_BYTES and _SHARED.match("".join(above[1:2])) and above[_EXPANDSZ : _EXPANDSZ + 1] == ["-"]:
        return
    raise FlexdiskError(
        "UnknownLayout",
        f"{device} is part of a {label.kind} in the ZFS pool {pool}; a mirror or raidz grows when all its devices have "
        f"grown: make their partitions larger, and run for each: zpool online -e {pool} DEVICE",
    )


def sole_device(pool: str, text: str) -> str:
    """Return the only device of a pool, from the output of zpool list -HvLP. Raises FlexdiskError Ambiguous."""
    names = [row[1] for row in (line.split("\t") for line in text.splitlines()) if row[0] == "" and len(row) > 1]
    devices = [name for name in names if name.startswith("/")]
    if len(devices) != 1:
        raise FlexdiskError("Ambiguous", f"the ZFS pool {pool} has several devices: {', '.join(devices) or 'none'}")
    return devices[0]


def _rows(device: str, pool: str, text: str) -> t.Tuple[t.List[str], t.List[str]]:
    """Return the row of zpool list -HpvLP for a device, and the last row before it that is not a device."""
    above: t.List[str] = []
    for row in (line.split("\t") for line in text.splitlines()):
        if row[:2] == ["", device]:
            if len(row) <= _HEALTH:
                raise _unexpected(text)
            if row[_HEALTH] != "ONLINE":
                raise FlexdiskError("UnknownLayout", f"{device} is {row[_HEALTH]} in the ZFS pool {pool}, not ONLINE")
            return above, row
        if not "".join(row[1:2]).startswith("/"):
            above = row
    raise FlexdiskError(
        "UnknownLayout", f"{device} has the label of a device of the ZFS pool {pool}, which does not use it"
    )


def _unexpected(text: str) -> FlexdiskError:
    return FlexdiskError("UnexpectedOutput", f"zpool list printed something unknown: {text[:200]!r}")


def data_partition(table: Table, contents: t.Mapping[int, Content]) -> t.Optional[Partition]:
    """Return the partition with ZFS, if the one behind it is the one that ZFS adds on a whole disk."""
    if table.label != "gpt" or len(table.partitions) < 2:
        return None
    data, reserved = table.partitions[-2:]
    return data if reserved.kind.upper() == _RESERVED_TYPE and contents[data.number].kind == ZFS else None


def whole_size(table: Table, data: Partition) -> int:
    """Return the bytes of the partition that ZFS would create on a whole disk. The rule is that of libefi."""
    end = table.limit - 1 - _RESERVED_SECTORS
    return (end - end % _STEP_SECTORS - data.start) * table.sector


def check_whole(layer: Layer, label: Label, device: str, pool: str, below: int) -> None:
    """Raise FlexdiskError UnknownLayout if ZFS would have to write the table to grow."""
    if label.whole_disk and layer.grown(below) != layer.size:
        disk = _SUFFIX.sub("", label.path)
        raise FlexdiskError(
            "UnknownLayout",
            f"the ZFS pool {pool} has got the whole disk of {device}, and ZFS writes its partition table itself; run: "
            f"zpool online -e {pool} {disk}",
        )


def old_label(data: bytes) -> bool:
    """Whether there is already a label where the last two labels will be. ZFS would take it for its own."""
    return b"pool_guid" in data
