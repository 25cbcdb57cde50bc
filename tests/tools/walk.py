# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does what pages to type along say, as it is written there: docs/walk.md, docs/groups.md and others.

A walk begins in an empty home folder, the how-to of groups in one with two simulated hosts.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import excerpts
from tree import BIN, ROOT

PAGE = ROOT / "docs" / "walk.md"
MOVES = ROOT / "docs" / "walk-moves.md"
GROUPS = ROOT / "docs" / "groups.md"
FILE = r"^[^\n]*`~/((?:walk|groups|status|proxmox)/[\w./]+)`:\n\n```\w+\n(?P<content>.*?)^```$"
SECOND_IMAGE = "bbbbbbbb-0000-4000-8000-000000000002"
STEP = re.compile(FILE + "|" + excerpts.BLOCK.pattern, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A command of the page, the lines that the page shows of its output, and what came."""

    command: str
    shown: list[str]
    printed: list[str]
    status: int


def newcomer(home: Path) -> dict[str, str]:
    """The environment of somebody who has ansible-core on PATH and nothing else of this project."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHONPATH"))}
    return env | {"HOME": str(home), "PATH": f"{BIN}{os.pathsep}{env['PATH']}", "ANSIBLE_FORCE_COLOR": "0"}


def groups(home: Path) -> Iterator[Step]:
    """Do what the how-to of groups says. Two hosts are there, with two images, but without a VM."""
    folder = home / "groups"
    (folder / "collections" / "ansible_collections" / "flexdisk").mkdir(parents=True)
    (folder / "collections" / "ansible_collections" / "flexdisk" / "hypervisor").symlink_to(ROOT)
    walked = PAGE.read_text()
    for name in ("hosts.yml", "ansible.cfg"):
        text = re.search(rf"`~/walk/{name}`:\n\n```\w+\n(.*?)^```$", walked, re.MULTILINE | re.DOTALL)
        if text is None:
            raise RuntimeError(f"{PAGE} has no {name}")
        (folder / name).write_text(text[1])
    env = newcomer(home) | {"PYTHONPATH": str(ROOT / "extensions" / "simulated_node")}
    for number, host in enumerate(("hv01", "hv02"), 1):
        simnode: list[str | Path] = [BIN / "python", "-m", "simnode", "--dir", folder / host]
        for words in (["init", "--scenario", "empty", "--seed", str(number)], ["image-import", SECOND_IMAGE, "10240"]):
            subprocess.run([*simnode, *words], env=env, check=True, capture_output=True)
    yield from walk(home, GROUPS.read_text(), folder)


def walk(home: Path, page: str, cwd: Path = ROOT, more: Mapping[str, str] | None = None) -> Iterator[Step]:
    """Do all that the page says, in its order: write files, run commands in one shell. more: of the environment."""
    with subprocess.Popen(
        ["bash"],
        cwd=cwd,
        env=newcomer(home) | dict(more or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        for match in STEP.finditer(page):
            if match["content"] is not None:
                path = home / match[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(match["content"])
                continue
            for command, shown in excerpts.commands(match[3]):
                status, output = _run(shell, command)
                yield Step(command, shown, excerpts.telling(output), status)
        if shell.stdin:
            shell.stdin.close()


def _run(shell: subprocess.Popen[str], command: str) -> tuple[int, str]:
    """The exit status and the output of one command in the shell."""
    if not shell.stdin or not shell.stdout:
        raise RuntimeError("the shell has no pipes")
    shell.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\nEND-OF-COMMAND %d\\n' $?\n")
    shell.stdin.flush()
    output = ""
    for line in shell.stdout:
        end = re.fullmatch(r"END-OF-COMMAND (\d+)\n", line)
        if end:
            return int(end[1]), output
        output += line
    raise RuntimeError(f"the shell ended at {command}: {output}")
