# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and write the value of a disk in the file of a VM on Proxmox VE."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError

# How many keys each bus has.
BUSES: t.Mapping[str, int] = {"ide": 4, "sata": 6, "scsi": 31, "virtio": 16}
# Disks of the firmware. They are left alone.
FIRMWARE = ("efidisk0", "tpmstate0")
UNUSED_KEYS = 256
_KEY = re.compile(r"([a-z]+)(0|[1-9][0-9]{0,2})")
_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)")
_VOLUME = ("file", "volume")
_UNITS = ("", "K", "M", "G", "T")


class PveDisk(t.NamedTuple):
    """The value of a disk: its volume, and its options as they are written."""

    volume: str  # STORAGE:NAME, a path, or none
    options: t.Mapping[str, str]

    @property
    def is_cdrom(self) -> bool:
        """Whether this is a drive for discs."""
        return self.options.get("media") == "cdrom"

    @property
    def is_path(self) -> bool:
        """Whether the volume is named by its path, so that Proxmox VE never destroys it."""
        return self.volume.startswith("/")


def is_disk_key(key: str) -> bool:
    """Return whether a disk of a VM can have this key."""
    match = _KEY.fullmatch(key)
    return match is not None and int(match.group(2)) < BUSES.get(match.group(1), 0)


def is_unused_key(key: str) -> bool:
    """Return whether the key is that of a volume that the VM has, but does not use."""
    match = _KEY.fullmatch(key)
    return match is not None and match.group(1) == "unused" and int(match.group(2)) < UNUSED_KEYS


def parse(text: str) -> PveDisk:
    """Return the disk. Raises FlexdiskError C(UnexpectedOutput) for a value that Proxmox VE does not read either."""
    volume = ""
    options: t.Dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if not word:
            continue
        if not equals and not volume:
            volume = word
        elif name in _VOLUME and value and not volume:
            volume = value
        elif name and value and name not in options and name not in _VOLUME:
            options[name] = value
        else:
            raise FlexdiskError("UnexpectedOutput", f"'{word}' in the disk '{text}' cannot be read")
    if not volume:
        raise FlexdiskError("UnexpectedOutput", f"the disk '{text}' names no volume")
    return PveDisk(volume, options)


def render(disk: PveDisk) -> str:
    """Return the value of a disk as Proxmox VE writes it: the volume, then the options by name."""
    return ",".join([disk.volume, *(f"{name}={disk.options[name]}" for name in sorted(disk.options))])


def parse_size(text: str) -> t.Optional[int]:
    """Return the bytes of C(size=), which is informational only. None for what is no size."""
    match = _SIZE.fullmatch(text)
    return int(match.group(1)) << 10 * _UNITS.index(match.group(2)) if match else None
