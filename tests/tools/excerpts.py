# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Excerpts of real runs in the documentation: which lines of an output they show, and how they are renewed.

An excerpt is a `console` block: commands after `$ `, each with the telling lines of its output, or with none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOISE = re.compile(
    r"(PLAY|TASK) \[|(ok|changed|skipping|included): \[?[^]=]*\]?( => \(item=.*\))?( => changed=.*)?$|fatal: |$"
)
VOLATILE = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\bserial=[0-9a-f]{20}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    r"|((\d+ h )?\d+ min\b( \d+ s\b)?|\d+(\.\d+)? s\b)( {2,})?"
    # how ssh says that a host cannot be reached depends on what it was doing
    r"|(Data could not be sent to remote host|Failed to connect to the host).*"
)


def telling(output: str) -> list[str]:
    """The output of ansible-playbook without headings, mere ok lines, places in source files, and the recap."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    output = re.sub(r"^Origin: .*?^ +\^ column \d+$", "", output, flags=re.MULTILINE | re.DOTALL)
    lines = output.split("\nPLAY RECAP ")[0].splitlines()
    return [line.rstrip() for line in lines if not NOISE.match(line.rstrip())]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, continuation lines included, each with the lines shown of its output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def runs(output: str) -> dict[str, list[str]]:
    """What the last run of each command has printed, in an output that shows commands after `$ `."""
    parts = re.split(r"^\$ (.*)$", output, flags=re.MULTILINE)
    return {command: telling(text) for command, text in zip(parts[1::2], parts[2::2], strict=True)}


def same(shown: list[str], printed: list[str]) -> bool:
    """Whether these are the same lines, but for UUIDs, times, what ssh says of a host that is off, the order in which
    hosts have answered, and the places of warnings, which Ansible writes to another stream.
    """
    return _parts(shown) == _parts(printed)


def renewed(page: str, printed: Callable[[str], list[str]]) -> str:
    """The page with what `printed` says of each command that has an excerpt."""

    def block(match: re.Match[str]) -> str:
        lines = []
        for command, shown in commands(match[1]):
            lines += [f"$ {command}", *(printed(command) if shown else [])]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(block, page)


def _parts(lines: list[str]) -> list[str]:
    warnings = [line for line in lines if line.startswith("[WARNING]")]
    text = VOLATILE.sub("...", "\n".join(line for line in lines if line not in warnings))
    return sorted(re.split(r"\n(?=\w+: \[)", text)) + sorted(VOLATILE.sub("...", line) for line in warnings)
