# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the map of the rooms into docs/architecture.md: each file with the first sentence of its docstring.

Usage: house_map.py
"""

from __future__ import annotations

import ast
from pathlib import Path

from tree import ROOT

PAGE = ROOT / "docs" / "architecture.md"
HOUSE = ROOT / "plugins" / "module_utils" / "_flexdisk"
BEGIN, END = "<!-- map: begin -->\n", "<!-- map: end -->\n"
# From what everything may import to what imports everything.
ROOMS = {
    "model": "nouns, without any rule",
    "rules": "laws and decisions about what is there",
    "parse": "what users write becomes declarations",
    "plan": "from what is there and what is declared to steps",
    "fleet": "what concerns many hosts",
    "fleet/groups": "rolling updates of groups of VMs, for all hosts together",
    "fleet/operators": "playbooks for operators: where a named VM is, what is refused, what is done on which host",
    "fleet/replication": "copies of disks on other hosts: which snapshots, which base, what is kept",
    "fleet/placement": "where VMs go, decided as Ganeti's hail does, or better",
    "fleet/page": "the report of all hosts as an HTML page",
    "guest": "how the partitions and file systems of a guest take the space of a grown disk, and what they need of it",
    "zfs": "the storage",
    "hypervisor": "one driver for each hypervisor, behind one protocol",
    "engine/host": "what every run needs of its host: programs, locks, progress, the journal, one read of everything",
    "engine/steps": "carries out a plan; here disks and VMs are changed",
    "engine/run": "the parts that all runs share: open the host, plan, admit, apply, compare, report",
    "engine/modules": "one run of each module about the VMs and disks of one host",
    "engine/replication": "replicas of disks on other hosts: sent, received, kept",
    "engine/moves": "a VM leaves this host, or comes to it",
    "engine/failover": "a VM comes back on the host of its replicas, and its old home gives it up",
    "engine/guest": "what lies on a guest's disk takes the space that has come",
}
BESIDE = {"extensions/iallocator/ganeti": "what only Ganeti asks of the planner of placement"}


def sentence(path: Path) -> str:
    """What a file says of itself, up to the first full stop at the end of a line or sentence."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    return text.split(". ", maxsplit=1)[0].rstrip(".")


def render() -> str:
    """The map as Markdown."""
    lines = []
    for room, words in {**ROOMS, **BESIDE}.items():
        lines += ["", f"### {room}: {words}", "", "| file | what it is |", "|---|---|"]
        folder = (ROOT if room in BESIDE else HOUSE) / room
        for path in sorted(folder.glob("*.py")):
            lines.append(f"| `{room}/{path.name}` | {sentence(path)} |")
    return "\n".join([*lines, ""]) + "\n"


def main() -> None:
    """Replace the map."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN, 1)
    PAGE.write_text(before + BEGIN + render() + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
