# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The value of a disk in a VM's file: keys, options, sizes."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

BUSES = {"ide": 4, "scsi": 31, "virtio": 16, "sata": 6, "efidisk": 1, "tpmstate": 1}
"""How many keys a bus has; in the order in which commands go through the disks of a VM."""
DRIVES = tuple(f"{bus}{number}" for bus, count in BUSES.items() for number in range(count))
UNUSED = tuple(f"unused{number}" for number in range(256))
CDROM = ("none", "cdrom")
VOLUME_ID = re.compile(r"([a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]):(.+)", re.DOTALL)
_ITEM = re.compile(r"([^=]+)=(.+)", re.DOTALL)
_SIZE = re.compile(r"(\d+)(\.\d+)?([KMGT])?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TRUE, _FALSE = ("1", "on", "yes", "true"), ("0", "off", "no", "false")
BOOLEAN, SIZE, TEXT, NUMBER = "boolean", "size", "text", "number"
_LIMITS = {f"{kind}{way}{tail}": NUMBER for kind in ("mbps", "iops") for way in ("", "_rd", "_wr")
           for tail in ("", "_max", "_max_length")}  # fmt: skip
_DISK: Dict[str, str] = {
    "format": "raw, cow, qcow, qed, qcow2, vmdk, cloop",
    "media": "cdrom, disk",
    "size": SIZE,
    "backup": BOOLEAN,
    "replicate": BOOLEAN,
    "cache": "none, writethrough, writeback, unsafe, directsync",
    "aio": "native, threads, io_uring",
    "discard": "ignore, on",
    "detect_zeroes": BOOLEAN,
    "snapshot": BOOLEAN,
    "shared": BOOLEAN,
    "rerror": "ignore, report, stop",
    "werror": "enospc, ignore, report, stop",
    "serial": TEXT,
    "import-from": TEXT,
    **_LIMITS,
}
_OF_BUS: Dict[str, Dict[str, str]] = {
    "ide": {"ssd": BOOLEAN, "wwn": TEXT},
    "sata": {"ssd": BOOLEAN, "wwn": TEXT},
    "scsi": {"ssd": BOOLEAN, "wwn": TEXT, "iothread": BOOLEAN, "ro": BOOLEAN, "queues": NUMBER, "product": TEXT,
             "vendor": TEXT, "scsiblock": BOOLEAN},
    "virtio": {"iothread": BOOLEAN, "ro": BOOLEAN, "media": "disk"},
}  # fmt: skip
_PLAIN = {"size": SIZE, "format": _DISK["format"]}
_MISSING = "property is missing and it is not optional"
_FOREIGN = "property is not defined in schema and the schema does not allow additional properties"


class BadDrive(ValueError):
    """Why a value is no disk, in the words of the real parser."""


def refusal(bad: BadDrive) -> str:
    """Return what a command says of a value that is no disk."""
    return "invalid format - " + str(bad).rstrip("\n") + "\n" * max(1, len(str(bad)) - len(str(bad).rstrip("\n")))


class Drive(NamedTuple):
    """A disk: its volume, and its options as text."""

    volume: str
    options: Dict[str, str]

    @property
    def is_cdrom(self) -> bool:
        return self.options.get("media") == "cdrom"

    @property
    def is_path(self) -> bool:
        return self.volume.startswith("/")


def bus_of(key: str) -> str:
    """Return the bus of a disk's key."""
    return key.rstrip("0123456789")


def is_drive(key: str) -> bool:
    """Return whether the key is that of a disk of a VM (not of an unused one)."""
    return key in DRIVES


def is_unused(key: str) -> bool:
    """Return whether the key is that of an unused volume."""
    return key in UNUSED


def options_of(key: str) -> Dict[str, str]:
    """Return the options of a disk at this key, with the kind of their values."""
    bus = bus_of(key)
    if bus == "unused":
        return {}
    if bus in ("efidisk", "tpmstate"):
        extra = {"efitype": "2m, 4m", "pre-enrolled-keys": BOOLEAN} if bus == "efidisk" else {"version": "v1.2, v2.0"}
        return {**_PLAIN, **extra, "import-from": TEXT}
    return {**_DISK, **_OF_BUS[bus]}


def parse(key: str, text: str, prefix: str = "") -> Drive:
    """Return the disk. Raises BadDrive. `prefix` stands before the names of options in errors."""
    values = _items(text)
    kinds = options_of(key)
    problems: List[str] = []
    for name in sorted(values):
        problem = _file_problem(values[name]) if name == "file" else _problem(kinds.get(name), values[name])
        if problem:
            problems.append(f"{prefix}{name}: {problem}\n")
    if "file" not in values:
        problems.append(f"{prefix}file: {_MISSING}\n")
    if problems:
        raise BadDrive("format error\n" + "".join(problems))
    volume = values.pop("file")
    return Drive(volume, values)


def _items(text: str) -> Dict[str, str]:
    values: Dict[str, str] = {}
    for item in text.split(","):
        if not item:
            continue
        pair = _ITEM.fullmatch(item)
        if pair is None and ("=" in item or "file" in values):
            raise BadDrive("missing key in comma-separated list property")
        name, value = pair.groups() if pair else ("file", item)
        name = "file" if name == "volume" else name
        if name in values:
            raise BadDrive(f"duplicate key in comma-separated list property: {name}")
        values[name] = value
    return values


def _file_problem(volume: str) -> str:
    if volume in CDROM or volume.startswith("/") or VOLUME_ID.fullmatch(volume):
        return ""
    return f"invalid format - unable to parse volume ID '{volume}'\n"


def _problem(kind: Optional[str], value: str) -> str:
    if kind is None:
        return _FOREIGN
    if kind == BOOLEAN and boolean(value) is None:
        return f"type check ('boolean') failed - got '{value}'"
    if kind == NUMBER and re.fullmatch(r"\d+(\.\d+)?", value) is None:
        return f"type check ('number') failed - got '{value}'"
    if kind == SIZE and size_of(value) is None:
        return f"invalid format - value does not look like a valid disk size: {value}\n"
    if kind not in (BOOLEAN, NUMBER, SIZE, TEXT) and value not in kind.split(", "):
        return f"value '{value}' does not have a value in the enumeration '{kind}'"
    return ""


def write(key: str, drive: Drive) -> str:
    """Return the value of a disk as commands write it: the volume, then the options by name."""
    kinds = options_of(key)
    words = [drive.volume]
    for name in sorted(drive.options):
        value = drive.options[name]
        if kinds.get(name) == BOOLEAN:
            value = boolean(value) or value
        elif kinds.get(name) == SIZE:
            value = size_text(size_of(value) or 0)
        words.append(f"{name}={value}")
    return ",".join(words)


def boolean(value: str) -> Optional[str]:
    """Return 1 or 0 for the words of a switch, None for others."""
    if value.lower() in _TRUE:
        return "1"
    return "0" if value.lower() in _FALSE else None


def size_of(text: str) -> Optional[int]:
    """Return the bytes of a size such as 1536M, None for what is no size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    whole, fraction, unit = match.groups()
    factor = _UNITS[unit or ""]
    digits = (fraction or ".0")[1:]
    fraction_bytes: int = int(digits) * factor // 10 ** len(digits)
    return int(whole) * factor + fraction_bytes


def size_text(size: int) -> str:
    """Return a size in the largest unit in which it is whole: 1536M. Zero is 0T."""
    for unit in ("", "K", "M", "G"):
        if size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def split_volume(volume: str) -> Optional[Tuple[str, str]]:
    """Return the storage and the name of a volume, None for a path or an empty drive."""
    if volume.startswith("/") or volume in CDROM:
        return None
    match = VOLUME_ID.fullmatch(volume)
    return (match.group(1), match.group(2)) if match else None
