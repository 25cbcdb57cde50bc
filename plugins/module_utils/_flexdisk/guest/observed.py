# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsers of what a guest reports about its disks: lsblk, blkid, findmnt, /proc/swaps and fstab."""

from __future__ import annotations

import json
import re
import struct
import typing as t
from dataclasses import dataclass

from ..model.errors import FlexdiskError

AMBIGUOUS = "several signatures"
SWAP_HEADER_BYTES = 65536  # enough for each size of page
_SWAP_MAGIC = b"SWAPSPACE2"
_PAGES = (4096, 8192, 16384, 32768, 65536)
_BAD_PAGES = 1032  # where the header of a swap has their number
_BLKID_NOTHING, _BLKID_AMBIGUOUS = 2, 8


@dataclass(frozen=True)
class Device:
    """A block device."""

    name: str
    # The name in /sys/class/block.
    kname: str
    kind: str
    # Bytes.
    size: int
    serial: str = ""
    # MAJOR:MINOR of the kernel.
    numbers: str = ""
    # The devices that use this one.
    above: t.Tuple[Device, ...] = ()


@dataclass(frozen=True)
class Content:
    """What blkid finds on a device."""

    # "" for nothing, AMBIGUOUS for too much.
    kind: str = ""
    uuid: str = ""
    label: str = ""
    # The type of the partition table, "" for none.
    table: str = ""

    @property
    def name(self) -> str:
        """The content for people, if sfdisk has reported no partition table."""
        if self.table and not self.kind:
            why = "before util-linux 2.27 it has no -J"
            return f"a partition table ({self.table}), of which sfdisk -J tells nothing ({why})"
        return self.kind or "nothing that is known"


@dataclass(frozen=True)
class Mount:
    """One mounted file system."""

    # A device as the kernel names it.
    source: str
    target: str
    kind: str
    options: t.Tuple[str, ...]
    # MAJOR:MINOR of the source. A btrfs has other ones.
    numbers: str = ""


@dataclass(frozen=True)
class Swap:
    """A swap in use."""

    device: str
    # Bytes.
    used: int
    priority: int
    # MAJOR:MINOR of the device, "" for a file: the device's name can be anything.
    numbers: str = ""


def parse_lsblk(text: str) -> t.Tuple[Device, ...]:
    """Return the devices from lsblk -J -b -o NAME,KNAME,TYPE,SIZE,SERIAL,MAJ:MIN. Raises UnexpectedOutput."""
    try:
        return tuple(map(_device, json.loads(text)["blockdevices"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"lsblk printed something unknown: {text[:200]!r}") from exc


def _device(row: t.Mapping[str, t.Any]) -> Device:
    above = tuple(map(_device, row.get("children") or ()))
    serial = (row.get("serial") or "").strip()
    numbers = (row.get("maj:min") or "").strip()
    return Device(row["name"], row["kname"], row["type"], int(row["size"]), serial, numbers, above)


def parse_blkid(rc: int, text: str) -> Content:
    """Return the content of a device from the output and exit status of blkid -p -o export. Raises UnexpectedOutput."""
    if rc == _BLKID_NOTHING:
        return Content()
    if rc == _BLKID_AMBIGUOUS:
        return Content(AMBIGUOUS)
    if rc:
        raise FlexdiskError("UnexpectedOutput", f"blkid ended with status {rc}")
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key] = re.sub(r"\\(.)", r"\1", value)
    return Content(values.get("TYPE", ""), values.get("UUID", ""), values.get("LABEL", ""), values.get("PTTYPE", ""))


def parse_findmnt(text: str) -> t.Tuple[Mount, ...]:
    """Return the mounts from findmnt -J -l -o SOURCE,TARGET,FSTYPE,OPTIONS,MAJ:MIN. Raises UnexpectedOutput."""
    try:
        rows = json.loads(text)["filesystems"]
        return tuple(
            Mount(
                _plain(each["source"]),
                each["target"],
                each["fstype"],
                tuple(each["options"].split(",")),
                (each.get("maj:min") or "").strip(),
            )
            for each in rows
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"findmnt printed something unknown: {text[:200]!r}") from exc


def _plain(source: t.Optional[str]) -> str:
    return (source or "").partition("[")[0]  # a subvolume or a bind mount follows in brackets


def parse_swaps(text: str) -> t.Tuple[Swap, ...]:
    """Return the swaps of /proc/swaps, which has spaces and the like in names as octal numbers."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return tuple(Swap(_unescaped(row[0]), int(row[3]) * 1024, int(row[4])) for row in rows if len(row) >= 5)


def _unescaped(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), name)


def swap_page(head: bytes) -> t.Tuple[int, str]:
    """Return the page size in the first bytes of a swap, and why the swap cannot be moved, "" if it can."""
    page = next((page for page in _PAGES if head[page - len(_SWAP_MAGIC) : page] == _SWAP_MAGIC), 0)
    if not page:
        return 0, "no header of version 1"
    bad = t.cast(int, struct.unpack_from("=I", head, _BAD_PAGES)[0])
    return page, f"{bad} bad pages" if bad else ""


def available_memory(text: str) -> int:
    """Return bytes that /proc/meminfo says are available, 0 if it does not say."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def fstab_swap(text: str, names: t.Iterable[str]) -> t.Optional[str]:
    """Return the options in fstab of a swap with one of these names. None if it is not turned on at boot."""
    wanted = {name.lower() for name in names}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[2] == "swap" and fields[0].replace('"', "").lower() in wanted:
            options = fields[3] if len(fields) > 3 else "defaults"
            return None if "noauto" in options.split(",") else options
    return None
