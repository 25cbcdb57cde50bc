# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of a VM's configuration file, read and written as `qm` does it: what does not parse is lost."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import Callable, Dict, List, Optional, Set

from simnode.pve import drive, settings

Values = Dict[str, str]
Warn = Callable[[str], None]
_SECTION = re.compile(r"\[([^\]]+)\]\s*")
_SNAPSHOT = re.compile(r"[a-z][a-z0-9_-]+", re.IGNORECASE)
_LINE = re.compile(r"([a-z][a-z_-]*\d*):\s*(.+?)\s*")
_DELETE = re.compile(r"delete:\s*(.*\S)\s*")
PENDING, CLOUDINIT, FLEECING = "pending", "special:cloudinit", "special:fleecing"


@dataclasses.dataclass
class VmConfig:
    """A VM's file. A description is kept under its key, decoded. `delete` of pending is the list as it is written."""

    main: Values = dataclasses.field(default_factory=dict)
    pending: Values = dataclasses.field(default_factory=dict)
    special: Dict[str, Values] = dataclasses.field(default_factory=dict)
    snapshots: Dict[str, Values] = dataclasses.field(default_factory=dict)

    @property
    def deletes(self) -> Dict[str, bool]:
        """Which keys are to be deleted, and whether by force."""
        words = [word for word in re.split(r"[,; ]+", self.pending.get("delete", "")) if word]
        return {word.lstrip("!"): word.startswith("!") for word in words}

    @deletes.setter
    def deletes(self, value: Dict[str, bool]) -> None:
        self.pending.pop("delete", None)
        if value:
            self.pending["delete"] = ",".join(("!" if value[key] else "") + key for key in sorted(value))


def parse(vmid: int, text: str, warn: Warn) -> VmConfig:
    """Return the configuration. Each line that is lost is told to `warn`."""
    config = VmConfig()
    reader = _Reader(vmid, config, warn)
    for line in text.split("\n"):
        reader.line(line)
    return config


class _Reader:
    def __init__(self, vmid: int, config: VmConfig, warn: Warn) -> None:
        self.config = config
        self.section: Optional[Values] = config.main
        self.in_pending = self.is_special = False
        self._name = f"vm {vmid} - "
        self._warn = warn

    def line(self, line: str) -> None:
        if not line.strip():
            return
        match = _SECTION.fullmatch(line)
        if match:
            self._begin(match.group(1))
        elif self.section is None:
            return
        elif line.startswith("#"):
            self._describe(line[1:].rstrip("\r"))
        elif self.in_pending and _DELETE.fullmatch(line):
            self.section["delete"] = line.partition(":")[2].strip()
        else:
            self._setting(line)

    def _begin(self, title: str) -> None:
        config = self.config
        self.in_pending = title.lower() == PENDING
        self.is_special = title.lower() in (CLOUDINIT, FLEECING)
        if self.in_pending:
            self._twice(title, bool(config.pending))
            config.pending = self.section = {}
        elif self.is_special:
            self._twice(title, title.lower() in config.special)
            self.section = config.special[title.lower()] = {}
        elif _SNAPSHOT.fullmatch(title):
            self._twice(title, title in config.snapshots)
            self.section = config.snapshots[title] = {}
        else:
            self.section = None
            self._warn(f"{self._name}skipping unknown section: '{title}'")

    def _twice(self, title: str, known: bool) -> None:
        if known:  # that it warns was seen, its words were not kept
            self._warn(f"{self._name}simulated: section '{title}' is there twice, only the later one counts")

    def _describe(self, text: str) -> None:
        section = self.section
        if section is not None:
            before = section.get("description")
            section["description"] = _decoded(text) if before is None else f"{before}\n{_decoded(text)}"

    def _setting(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            self._warn(f"{self._name}unable to parse config: {line.rstrip()}")
            return
        key, value = match.groups()
        if key == "description":
            self._describe(value)
            return
        problem = "" if self.is_special else settings.problem_in_file(key, value)
        if problem:
            self._warn(f"{self._name}unable to parse value of '{key}' - {problem}")
        elif self.section is not None:
            self.section[key] = value


def write(config: VmConfig) -> str:
    """Return the text of the file. Unused volumes that a disk of main or pending has are left out."""
    used = drop_used(config)
    parts = [_section("", config.main)]
    if config.pending:
        parts.append(_section("PENDING", config.pending))
    if CLOUDINIT in config.special and any("cloudinit" in volume for volume in used):
        parts.append(_section(CLOUDINIT, config.special[CLOUDINIT]))
    if FLEECING in config.special:
        parts.append(_section(FLEECING, config.special[FLEECING]))
    parts.extend(_section(name, config.snapshots[name]) for name in sorted(config.snapshots))
    return "\n".join(parts)


def drop_used(config: VmConfig) -> Set[str]:
    """Drop unused volumes that a disk of main or pending has. Return the volumes of these disks."""
    used = {volume for values in (config.main, config.pending) for volume in volumes(values).values()}
    for key in [key for key in config.main if drive.is_unused(key) and config.main[key] in used]:
        del config.main[key]
    return used


def _section(title: str, values: Values) -> str:
    lines = [f"[{title}]\n"] if title else []
    description = values.get("description", "").rstrip()
    if description:
        lines.extend(f"#{encoded(line)}\n" for line in description.split("\n"))
    lines.extend(f"{key}: {values[key]}\n" for key in sorted(values) if key != "description")
    return "".join(lines)


def volumes(values: Values) -> Values:
    """Return the volumes of the disks by key, in the order of the buses; without unused ones."""
    return {key: drive.parse(key, values[key]).volume for key in drive.DRIVES if key in values}


def drives(values: Values) -> Dict[str, drive.Drive]:
    """Return the disks by key, in the order of the buses; without unused ones."""
    return {key: drive.parse(key, values[key]) for key in drive.DRIVES if key in values}


def unused(values: Values) -> Values:
    """Return the unused volumes by key."""
    return {key: drive.parse(key, values[key]).volume for key in drive.UNUSED if key in values}


def encoded(text: str) -> str:
    """Return a description in one line: %, : and all but printable ASCII as the bytes of UTF-8."""
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"%:" else f"%{byte:02X}" for byte in data)


def _decoded(text: str) -> str:
    return urllib.parse.unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def add_unused(values: Values, volume: str) -> str:
    """Put a volume below the lowest free `unused` key, unless one has it. Return the key."""
    for key, known in unused(values).items():
        if known == volume:
            return key
    free: List[str] = [key for key in drive.UNUSED if key not in values]
    values[free[0]] = volume
    return free[0]
