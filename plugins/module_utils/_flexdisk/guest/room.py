# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How small a disk can become without cutting a partition, its table, or its content. In doubt, it cannot shrink."""

from __future__ import annotations

import json
import re
import struct
import typing as t
from dataclasses import dataclass

from ..model.errors import FlexdiskError
from ..model.sizes import MIB, render_bytes
from .layers import crypt_layer, ext_layer
from .table import Table, activate

_ALTERNATE, _LAST_USABLE = 32, 48  # where a header of a GPT says where the other one is, and how far partitions reach
_BEYOND_STATUS = re.compile(r"^\s*(integrity|reencryption):", re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """The space that a disk needs. All figures are bytes."""

    device: str
    size: int
    # The smallest size that the disk can have.
    min_bytes: int
    # gpt, dos or "".
    table: str = ""
    # The content of a disk without a table.
    content: str = ""
    # End of the last partition, or of the content.
    end: int = 0
    # Bytes that the second header of a GPT takes behind the end.
    backup: int = 0
    # The value of min_bytes after relocate.
    compact: int = 0
    # Commands that put the second header behind the last partition.
    relocate: t.Tuple[t.Tuple[str, ...], ...] = ()
    # Why it cannot shrink.
    why: str = ""

    @property
    def reason(self) -> str:
        """Why it cannot shrink, "" if it can."""
        return self.why if whole_mib(self.min_bytes) * MIB >= self.size else ""

    def description(self) -> str:
        """Return the result for people."""
        text = f"{self.device}: {render_bytes(self.size)}, "
        text += f"cannot shrink: {self.reason}" if self.reason else f"can shrink to {whole_mib(self.min_bytes)} MiB"
        if self.relocate:
            text += f"; to {whole_mib(self.compact)} MiB after {shown(self.relocate)}"
        return text


def shown(commands: t.Iterable[t.Sequence[str]]) -> str:
    """Return commands for a shell."""
    return " && ".join(" ".join(argv) for argv in commands)


def whole_mib(size: int) -> int:
    """Return bytes in MiB, rounded up."""
    return -(-size // MIB)


def unknown(device: str, size: int, why: str, content: str = "") -> Room:
    """Return a disk that cannot shrink."""
    return Room(device, size, size, content=content, end=size, why=why)


def filled(device: str, size: int, content: str, end: int) -> Room:
    """Return a disk without a table, with content that reaches to end."""
    end = min(end, size)
    return Room(device, size, end, content=content, end=end, why=f"the {content} on it takes all of it")


def partitioned(device: str, size: int, table: Table, head: bytes, ends: t.Iterable[int]) -> Room:
    """Return a disk with a table. head: its first bytes. ends: those of the partitions that the kernel knows, in bytes.

    The header of a GPT says how far partitions may reach. If that is behind the end of the disk, the GPT counts as
    damaged, and the guest does not find its partitions. So the disk cannot be smaller than that.
    """
    end = max([part.end * table.sector for part in table.partitions] + list(ends) + [0])
    if table.label != "gpt":
        return Room(device, size, min(size, max(end, table.sector)), table.label, end=end, why=_full(table))
    backup = (table.sectors - table.limit) * table.sector
    used = max(end, table.sector + backup)  # before the first partition: an MBR, the header, and the same entries
    (last,) = struct.unpack_from("<Q", head, table.sector + _LAST_USABLE)
    (other,) = struct.unpack_from("<Q", head, table.sector + _ALTERNATE)
    other = other + 1 if other < table.sectors else 0
    min_bytes = min(size, max(max(used, (last + 1) * table.sector) + backup, other * table.sector))
    # sfdisk lets one sector more be usable.
    compact = min(size, used + table.sector + backup)
    relocate: t.Tuple[t.Tuple[str, ...], ...] = ()
    if whole_mib(compact) < whole_mib(min_bytes):
        relocate = (("sfdisk", "--relocate", "gpt-bak-mini", device),)
        if table.active:  # sfdisk clears the flag
            relocate += (activate(device),)
    why = "its GPT lets partitions reach to its end" if relocate else _full(table)
    return Room(device, size, min_bytes, "gpt", end=end, backup=backup, compact=compact, relocate=relocate, why=why)


def ext_end(device: str, text: str, mounted: bool) -> int:
    """Return the end of an ext file system (2 to 4) from dumpe2fs -h. Raises UnknownLayout, UnexpectedOutput."""
    if not mounted and re.search(r"^Filesystem features:.*\bneeds_recovery\b", text, re.MULTILINE):
        raise FlexdiskError("UnknownLayout", f"the file system on {device} was not unmounted; its journal may grow it")
    return ext_layer(device, device, text, 0).size


def crypt_end(name: str, text: str) -> int:
    """Return the end of an open LUKS device from cryptsetup status. Raises UnknownLayout, UnexpectedOutput."""
    match = _BEYOND_STATUS.search(text)
    if match:
        raise FlexdiskError("UnknownLayout", f"{name} has {match.group(1)}, so it may use more than it shows")
    layer = crypt_layer(name, "", text, True, 0)
    return layer.offset + layer.size


def physical_end(device: str, pvs: str) -> int:
    """Return the end of a physical volume, from a JSON report of pvs in bytes. Raises UnknownLayout, UnexpectedOutput.

    LVM records a size that is up to one extent larger than all extents, and warns about a smaller device.
    """
    try:
        (row,) = json.loads(pvs)["report"][0]["pv"]
        start, extents, extent, copies = (
            int(row[key]) for key in ("pe_start", "pv_size", "vg_extent_size", "pv_mda_count")
        )
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"pvs printed something unknown: {pvs[:200]!r}") from exc
    if not extent:
        raise FlexdiskError("UnknownLayout", f"{device} is a physical volume without volume group")
    if copies > 1:
        raise FlexdiskError("UnknownLayout", f"{device} has a second copy of LVM's metadata at its end")
    return start + extents + extent


def _full(table: Table) -> str:
    parts = [part for part in table.partitions if not part.extended]
    return f"{max(parts, key=lambda part: part.end).name} reaches to its end" if parts else "it is too small"
