# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and change the file of a VM on Proxmox VE: bytes in, bytes out. All other bytes stay the same."""

from __future__ import annotations

import hashlib
import re
import typing as t
from urllib.parse import unquote_to_bytes

MAIN, PENDING, SNAPSHOT, OTHER = "main", "pending", "snapshot", "other"
DELETE = "delete"
_SPECIAL = ("special:cloudinit", "special:fleecing")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADER = re.compile(r"\[([^\]]+)\][ \t\r]*")
_SNAPSHOT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
_SETTING = re.compile(r"([a-z][a-z_-]*[0-9]*):(?=.)\s*(.*?)\s*", re.DOTALL)


class Line(t.NamedTuple):
    """A line of the file."""

    raw: str  # with its end, if it has one
    key: str = ""  # of a setting, "" for another line
    value: str = ""
    comment: t.Optional[str] = None  # what stands behind #, as it is written

    @property
    def unreadable(self) -> bool:
        """The line is neither a setting nor a comment nor blank. Proxmox VE drops it whenever it writes the file."""
        return not self.key and self.comment is None and bool(self.raw.strip())


class Section:
    """A section of the file: its header, which the main section lacks, and its lines."""

    def __init__(self, kind: str, name: str, header: str) -> None:
        self.kind = kind
        self.name = name
        self.header = header
        self.lines: t.List[Line] = []

    @property
    def values(self) -> t.Dict[str, str]:
        """The settings. Of a key that is there twice, the last one counts."""
        return {line.key: line.value for line in self.lines if line.key}

    @property
    def overridden(self) -> t.List[str]:
        """The lines whose key is there again later. They mean nothing, and Proxmox VE drops them."""
        lines = [line for line in self.lines if line.key and line.key != "description"]
        return [
            line.raw.rstrip("\r\n")
            for at, line in enumerate(lines)
            if any(line.key == other.key for other in lines[at + 1 :])
        ]

    @property
    def description(self) -> str:
        """The text of the comments and of C(description), in order."""
        texts = [line.value if line.key else line.comment for line in self.lines if line.key in ("", "description")]
        return "\n".join(_decoded(text) for text in texts if text is not None).rstrip()


class VmFile:
    """The file of a VM. It keeps every byte; C(content) gives them back."""

    def __init__(self, content: bytes) -> None:
        self.sections = [Section(MAIN, "", "")]
        for raw in _LINE.findall(_text(content)):
            self._add(raw)

    def _add(self, raw: str) -> None:
        text = raw.rstrip("\n")
        header = _HEADER.fullmatch(text)
        if header:
            name = header.group(1)
            self.sections.append(Section(_kind(name), name, raw))
            return
        setting = _SETTING.fullmatch(text)
        line = Line(raw)
        if text.startswith("#"):
            line = Line(raw, comment=text[1:].rstrip("\r"))
        elif setting:
            line = Line(raw, setting.group(1), setting.group(2))
        self.sections[-1].lines.append(line)

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        parts = [part for one in self.sections for part in (one.header, *(line.raw for line in one.lines))]
        return "".join(parts).encode("utf-8", "surrogateescape")

    @property
    def digest(self) -> str:
        """What C(qm --digest) compares."""
        return hashlib.sha1(self.content).hexdigest()  # nosec: Proxmox VE has chosen it

    @property
    def main(self) -> Section:
        """The main section: the settings that the VM has now."""
        return self.sections[0]

    @property
    def pending(self) -> t.Dict[str, str]:
        """The new values that wait for a stop of the VM; without those that are to be deleted."""
        found = self._last(PENDING)
        return {key: value for key, value in found.items() if key != DELETE}

    @property
    def deletes(self) -> t.Dict[str, bool]:
        """Keys that wait to be deleted, and whether with their volume."""
        words = re.split(r"[,;\s]+", self._last(PENDING).get(DELETE, ""))
        return {word.lstrip("!"): word.startswith("!") for word in words if word}

    def _last(self, kind: str) -> t.Dict[str, str]:
        values = [section.values for section in self.sections if section.kind == kind]
        return values[-1] if values else {}

    @property
    def snapshots(self) -> t.Dict[str, t.Dict[str, str]]:
        """The settings of each snapshot. Of a section that is there twice, the last one counts."""
        return {section.name: section.values for section in self.sections if section.kind == SNAPSHOT}

    @property
    def unreadable(self) -> t.List[str]:
        """Lines and headers of sections that Proxmox VE drops whenever it writes the file, whatever else is in them."""
        unreadable: t.List[str] = []
        headers: t.List[t.Tuple[str, str]] = []
        for section in self.sections:
            name = section.name if section.kind == SNAPSHOT else section.name.lower()
            unknown = section.kind == OTHER and name not in _SPECIAL
            if unknown or (section.kind, name) in headers:
                unreadable.append(section.header.strip())
            headers.append((section.kind, name))
            unreadable += [line.raw.rstrip("\r\n") for line in section.lines if line.unreadable]
            unreadable += section.overridden
        return unreadable

    def set(self, key: str, value: str) -> None:
        """Give a setting of the main section another value, or add it at the end of the section."""
        lines = self.main.lines
        places = [at for at, line in enumerate(lines) if line.key == key]
        if places:
            end = "\r\n" if lines[places[-1]].raw.endswith("\r\n") else "\n"
            lines[places[-1]] = Line(f"{key}: {value}{end}", key, value)
            return
        at = max((at + 1 for at, line in enumerate(lines) if line.raw.strip()), default=0)
        if at and not lines[at - 1].raw.endswith("\n"):
            lines[at - 1] = lines[at - 1]._replace(raw=lines[at - 1].raw + "\n")
        lines.insert(at, Line(f"{key}: {value}\n", key, value))

    def remove(self, key: str) -> None:
        """Remove a setting from the main section, wherever it stands there."""
        self.main.lines[:] = [line for line in self.main.lines if line.key != key]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _kind(name: str) -> str:
    if name.lower() == PENDING:
        return PENDING
    return SNAPSHOT if _SNAPSHOT_NAME.fullmatch(name) else OTHER


def _decoded(text: str) -> str:
    return _text(unquote_to_bytes(text.encode("utf-8", "surrogateescape")))
