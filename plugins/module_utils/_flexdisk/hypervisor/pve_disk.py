# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and write the value of a disk in the file of a VM on Proxmox VE."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError
from ..model.vm import DiskElement
from ..rules.disk_element import ONLY

# How many keys each bus has.
BUSES: t.Mapping[str, int] = {"ide": 4, "sata": 6, "scsi": 31, "virtio": 16}
# Disks of the firmware. They are left alone.
FIRMWARE = ("efidisk0", "tpmstate0")
UNUSED_KEYS = 256
_KEY = re.compile(r"([a-z]+)(0|[1-9][0-9]{0,2})")
_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)")
_VOLUME = ("file", "volume")
_VOLUME_ID = re.compile(r"none|cdrom|/.*|[a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]:.+")
_UNITS = ("", "K", "M", "G", "T")
_BOOLEANS = {"1": True, "on": True, "yes": True, "true": True, "0": False, "off": False, "no": False, "false": False}
_SWITCHES = {"backup", "replicate", "detect_zeroes", "snapshot", "shared", "ssd", "iothread", "ro", "scsiblock"}
# Options of a disk by its bus, with the values that Proxmox VE 9.2.6 reads. With any other, it drops the line.
_TEXT, _NUMBER = re.compile(r".+"), re.compile(r"\d+(\.\d+)?")
_LIMIT = re.compile(r"(mbps|iops)(_rd|_wr)?(_max)?|iops(_rd|_wr)?_max_length")
_PLAIN: t.Mapping[str, t.Pattern[str]] = {
    "size": re.compile(r"\d+(\.\d+)?[KMGT]?"),
    "format": re.compile("raw|cow|qcow|qed|qcow2|vmdk|cloop"),
    "import-from": _TEXT,
}
_SWITCH = re.compile("|".join(_BOOLEANS), re.IGNORECASE)
_COMMON: t.Mapping[str, t.Pattern[str]] = {
    **_PLAIN,
    "media": re.compile("cdrom|disk"),
    "cache": re.compile("none|writethrough|writeback|unsafe|directsync"),
    "aio": re.compile("native|threads|io_uring"),
    "discard": re.compile("ignore|on"),
    "rerror": re.compile("ignore|report|stop"),
    "werror": re.compile("enospc|ignore|report|stop"),
    "serial": _TEXT,
    **dict.fromkeys(("backup", "replicate", "detect_zeroes", "snapshot", "shared"), _SWITCH),
}
_SATA = {**_COMMON, "ssd": _SWITCH, "wwn": re.compile(r"0x[0-9a-fA-F]{16}")}
_SCSI = {**dict.fromkeys(("iothread", "ro", "scsiblock"), _SWITCH), "queues": _NUMBER}
_OPTIONS: t.Mapping[str, t.Mapping[str, t.Pattern[str]]] = {
    "ide": _SATA,
    "sata": _SATA,
    "scsi": {**_SATA, **_SCSI, "product": re.compile(".{1,16}"), "vendor": re.compile(".{1,8}")},
    "virtio": {**_COMMON, "media": re.compile("disk"), "iothread": _SWITCH, "ro": _SWITCH},
    "efidisk": {
        **_PLAIN,
        "efitype": re.compile("2m|4m"),
        "pre-enrolled-keys": _SWITCH,
        "ms-cert": re.compile("2011|2023[kw]?"),
    },
    "tpmstate": {**_PLAIN, "version": re.compile(r"v1\.2|v2\.0")},
}


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


def is_beyond(key: str) -> bool:
    """Return whether a key is that of a disk on a bus that has no such place."""
    match = _KEY.fullmatch(key)
    return match is not None and match.group(1) in BUSES and not is_disk_key(key)


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


def boolean(text: str) -> t.Optional[bool]:
    """Return the value of a switch, None for what is none."""
    return _BOOLEANS.get(text.lower())


def check_options(key: str, disk: PveDisk) -> None:
    """Raise FlexdiskError C(UnexpectedOutput) for an option, or a value of one, that Proxmox VE is not known to read.

    It drops a line with an option that it does not read. A line that is wrongly taken for such a one is only refused.
    """
    bus = key.rstrip("0123456789")
    if not _VOLUME_ID.fullmatch(disk.volume):
        raise FlexdiskError("UnexpectedOutput", f"'{disk.volume}' names no volume, so the line cannot be read")
    for name, value in disk.options.items():
        known = _values_of(bus, name)
        if known is None:
            raise FlexdiskError("UnexpectedOutput", f"{bus} disks have no option {name}, so the line cannot be read")
        if not known.fullmatch(value):
            raise FlexdiskError("UnexpectedOutput", f"{name}={value} is no value of {name}, so it cannot be read")


def _values_of(bus: str, name: str) -> t.Optional[t.Pattern[str]]:
    return _NUMBER if bus in BUSES and _LIMIT.fullmatch(name) else _OPTIONS[bus].get(name)


def element(disk: PveDisk) -> DiskElement:
    """Return the options of a disk that it keeps while it is detached: all but its serial and its size."""
    needs, claims = [], []
    for name, value in but_for(disk, "serial").items():
        buses = [bus for bus in BUSES if _values_of(bus, name)]
        needs += [f"{name}={value}{ONLY}{' and '.join(buses)} disks have"] if len(buses) < len(BUSES) else []
        claims += [f"{name}={value}"] if name == "wwn" else []
    return DiskElement(",".join(words(disk)), needs=tuple(sorted(needs)), claims=tuple(claims))


def words(disk: PveDisk) -> t.Tuple[str, ...]:
    """Return the options of a disk but for its serial and its size, each as it is written."""
    return tuple(f"{name}={value}" for name, value in sorted(but_for(disk, "serial").items()))


def options_of(text: str, without: t.Iterable[str]) -> t.Dict[str, str]:
    """Return the options in the text of an element(). without: the needs and claims that the VM cannot meet."""
    lost = {reason.partition("=")[0] for reason in without}
    pairs = (word.partition("=") for word in text.split(",") if word)
    return {name: value for name, _equals, value in pairs if name not in lost}


def render(disk: PveDisk) -> str:
    """Return the value of a disk as Proxmox VE writes it: the volume, then the options by name."""
    return ",".join([disk.volume, *(f"{name}={disk.options[name]}" for name in sorted(disk.options))])


def but_for(disk: PveDisk, *names: str) -> t.Dict[str, str]:
    """Return the options of a disk without these and its size, to be compared."""
    return plain({name: value for name, value in disk.options.items() if name not in ("size", *names)})


def plain(options: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Return options to be compared: Proxmox VE writes switches as 1 and 0, whatever they were."""
    values = {name: boolean(value) if name in _SWITCHES else None for name, value in options.items()}
    return {name: value if values[name] is None else str(int(bool(values[name]))) for name, value in options.items()}


def parse_size(text: str) -> t.Optional[int]:
    """Return the bytes of C(size=), which is informational only. None for what is no size."""
    match = _SIZE.fullmatch(text)
    return int(match.group(1)) << 10 * _UNITS.index(match.group(2)) if match else None
