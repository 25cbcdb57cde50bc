# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A partition table as sfdisk shows it, and the input of sfdisk that writes a changed one."""

from __future__ import annotations

import json
import re
import struct
import typing as t
from dataclasses import dataclass, replace

from ..model.errors import FlexdiskError
from ..model.sizes import MIB, render_bytes

HEAD_BYTES = 8192  # the first two sectors of a disk, whatever their size
ACTIVE = 0x80  # the first byte of an active entry of an MBR
_EXTENDED = ("5", "f", "85")
_PROTECTIVE = 0xEE
_MBR_SECTORS = 2**32 - 1


@dataclass(frozen=True)
class Partition:
    """One partition. start and size are sectors of its disk."""

    number: int
    # Its device.
    node: str
    start: int
    size: int
    # Its type in the table.
    kind: str = ""
    # That of GPT, "" in an MBR.
    uuid: str = ""

    @property
    def end(self) -> int:
        """The first sector behind it."""
        return self.start + self.size

    @property
    def extended(self) -> bool:
        """Whether it is the container of an MBR's logical partitions."""
        return self.kind.lower() in _EXTENDED

    @property
    def name(self) -> str:
        """Its name for a reader."""
        return self.node.rpartition("/")[2]


@dataclass(frozen=True)
class Table:
    """A partition table."""

    label: str
    identity: str
    # Bytes of a sector.
    sector: int
    # The size of the disk.
    sectors: int
    # A sector that no partition may reach.
    limit: int
    partitions: t.Tuple[Partition, ...]  # by start
    # The protective MBR of a GPT has the flag without which some BIOSes do not boot.
    active: bool = False

    @property
    def step(self) -> int:
        """Sectors of one MiB, to which starts and ends are aligned."""
        return MIB // self.sector

    def description(self) -> str:
        """Return all partitions for people."""
        return ", ".join(
            f"{part.name} ({render_bytes(part.size * self.sector)}, type {part.kind})" for part in self.partitions
        )


def parse_table(text: str, head: bytes, size: int, sector: int) -> Table:
    """Return the table in the output of sfdisk -J. head: the first HEAD_BYTES of the disk. size: its bytes.

    sector: the bytes of a sector, 0 if the kernel does not report it. An old sfdisk does not print it. Raises
    FlexdiskError UnknownLayout for a table that cannot be changed safely, UnexpectedOutput.
    """
    try:
        data = json.loads(text)["partitiontable"]
        sector = int(data.get("sectorsize") or sector)
        device = data["device"]
        parts = [_partition(device, part) for part in data.get("partitions", [])]
        label, identity = data["label"], data.get("id", "")
    except (ValueError, KeyError, TypeError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"sfdisk -J printed something unknown: {text[:200]!r}") from exc
    if not sector:
        raise FlexdiskError("UnexpectedOutput", "neither sfdisk nor the kernel tells the size of the disk's sectors")
    _check_label(label, head)
    sectors = size // sector
    limit = _gpt_limit(head, sector, sectors) if label == "gpt" else min(sectors, _MBR_SECTORS)
    active = label == "gpt" and head[protective(head)] == ACTIVE
    table = Table(label, identity, sector, sectors, limit, tuple(sorted(parts, key=lambda part: part.start)), active)
    _check_places(table)
    return table


def activate(device: str) -> t.Tuple[str, ...]:
    """Return the command that sets the active flag of a protective MBR."""
    return ("sfdisk", "--no-reread", "--activate", device, "1")


def changed(table: Table, parts: t.Iterable[Partition]) -> Table:
    """Return the table with these partitions in place of those with the same numbers."""
    new = {part.number: part for part in parts}
    places = sorted((new.get(part.number, part) for part in table.partitions), key=lambda part: part.start)
    return replace(table, partitions=tuple(places))


def script(dump: str, parts: t.Iterable[Partition]) -> str:
    """Return the output of sfdisk -d with other places for some partitions, as input of sfdisk.

    Everything else stays as it is. Without last-lba, sfdisk puts GPT's backup at the end of the disk.
    """
    dump = restorable(dump)
    places = {part.node: part for part in parts}
    lines = []
    for line in dump.splitlines():
        part = places.get(line.split(" :", 1)[0].strip())
        if part is not None:
            line = re.sub(r"start=\s*\d+", f"start={part.start}", line, count=1)
            line = re.sub(r"size=\s*\d+", f"size={part.size}", line, count=1)
        if not line.startswith("last-lba:"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def restorable(dump: str) -> str:
    """Return the output of sfdisk -d as every sfdisk accepts it: some refuse the sector size that they print."""
    return "".join(line for line in dump.splitlines(keepends=True) if not line.startswith("sector-size:"))


def protective(head: bytes) -> int:
    """Return the offset of the protective entry of an MBR, 0 if it has none."""
    return next((at for at in range(446, 510, 16) if head[at + 4 : at + 5] == bytes([_PROTECTIVE])), 0)


def _partition(device: str, part: t.Mapping[str, t.Any]) -> Partition:
    number = re.search(r"\d+\Z", part["node"][len(device) :])
    if number is None:
        raise ValueError(part["node"])
    start, size = int(part["start"]), int(part["size"])
    return Partition(int(number.group()), part["node"], start, size, part.get("type", ""), part.get("uuid", ""))


def _check_label(label: str, head: bytes) -> None:
    kinds = [head[446 + 16 * index + 4] for index in range(4)] if len(head) >= 512 else []
    if label == "gpt" and [kind for kind in kinds if kind] != [_PROTECTIVE]:
        shown = ", ".join(f"{kind:02x}" for kind in kinds if kind) or "nothing"
        raise FlexdiskError("UnknownLayout", f"the table is a hybrid of GPT and MBR; the MBR has types {shown}")
    if label == "dos" and _PROTECTIVE in kinds:
        raise FlexdiskError("UnknownLayout", "the MBR says that there is a GPT, but no valid GPT is there")
    if label not in ("gpt", "dos"):
        raise FlexdiskError("UnknownLayout", f"the partition table is of type {label}, not gpt or dos")


def _gpt_limit(head: bytes, sector: int, sectors: int) -> int:
    header = head[sector : sector + 92]
    if header[:8] != b"EFI PART":
        raise FlexdiskError("UnknownLayout", "the first header of the GPT is damaged; repair it with sfdisk or gdisk")
    where, count, size = t.cast(t.Tuple[int, int, int], struct.unpack_from("<QII", header, 72))
    if where != 2:
        raise FlexdiskError(
            "UnknownLayout",
            f"the entries of the GPT begin at sector {where}, not 2: sfdisk would overwrite what lies before them",
        )
    return sectors - 1 - -(-count * size // sector)


def _check_places(table: Table) -> None:
    outer = inner = (0, "")
    for part in table.partitions:
        if part.end > table.sectors:
            raise FlexdiskError("UnknownLayout", f"{part.name} ends behind the end of the disk")
        around = [other for other in table.partitions if other.extended and other.start < part.start]
        inside = part.number > 4 and any(other.end >= part.end for other in around)
        end, last = inner if inside else outer
        if part.start < end:
            raise FlexdiskError("UnknownLayout", f"{last} and {part.name} overlap")
        if inside:
            inner = (part.end, part.name)
        else:
            outer = (part.end, part.name)
