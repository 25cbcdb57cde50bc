# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine's own apt configuration: where it gets Debian from, and how. No mirror is named in this project."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCES = Path("/etc/apt")
NOT_TRANSPORT = ("IndexTargets", "Changelogs", "cdrom", "CompressionTypes")


class Source(NamedTuple):
    """One (URI, suite) pair of a sources file."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str


def acquire_options() -> list[str]:
    """apt's settings for fetching (proxy, certificates, dates), as `NAME "value";` lines; honours APT_CONFIG."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in dump.splitlines() if line.startswith("Acquire::") and not line.endswith(' "";')]
    return [line for line in lines if line.split("::")[1].split(" ")[0] not in NOT_TRANSPORT]


def source_lines(release: str, components: Sequence[str], folder: Path = SOURCES) -> list[str]:
    """One-line sources of the Debian release with the given components, from this machine's own sources."""
    result: dict[tuple[str, str], Source] = {}
    for source in sources(folder):
        if "main" in source.components and source.suite in (release, f"{release}-updates", f"{release}-security"):
            result.setdefault((source.uri, source.suite), source)
    return [_one_line(source, components) for source in result.values()]


def _one_line(source: Source, components: Sequence[str]) -> str:
    options = f"[signed-by={source.signed_by}] " if source.signed_by else ""
    return f"deb {options}{source.uri} {source.suite} {' '.join(components)}"


def sources(folder: Path = SOURCES) -> Iterator[Source]:
    """Every enabled binary source below an apt folder, both formats."""
    for path in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]:
        if path.is_file():
            yield from _from_list(path.read_text(encoding="utf-8"))
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        yield from _from_deb822(path.read_text(encoding="utf-8"))


def _from_list(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match:
            options = dict(option.partition("=")[::2] for option in (match[1] or "").split())
            yield Source(match[2], match[3], tuple(match[4].split()), options.get("signed-by", ""))


def _from_deb822(text: str) -> Iterator[Source]:
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        signed_by = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                path = signed_by if signed_by.startswith("/") else ""
                yield Source(uri, suite, tuple(fields.get("components", "").split()), path)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        elif ":" in line:
            name, _colon, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields
