# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who runs a sequence for real: the lab, or a second simulated node for tests of this package."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import remote
from recipe import LabError
from simnode import Node

from differential.compare import Reality
from differential.model import IMAGE_MIB, KEY_FILE, LOOK, POOL, Script, Seen, contents_of, new_node, parse_state, run

EXECUTOR = Path(__file__).with_name("executor.py")
SECONDS = 1800.0
Runner = Callable[[Script], Reality]


def _ask(commands: Sequence[Sequence[str]], lane: int = 0) -> dict[str, object]:
    writes = [range(int(argv[3]), int(argv[3]) + int(argv[4])) for argv in commands if argv[:2] == ("guest", "write")]
    request = {
        "pool": POOL,
        "lane": lane,
        "size_mib": IMAGE_MIB,
        "key_file": KEY_FILE,
        "look": LOOK,
        "commands": commands,
        "written": sorted({index for span in writes for index in span}),
    }
    argv = ["python3", "-c", EXECUTOR.read_text(encoding="utf-8")]
    done = remote.run(argv, stdin=json.dumps(request), seconds=SECONDS)
    if done.returncode:
        raise LabError(f"the executor ended with status {done.returncode}: {done.stderr.strip()}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def usable_in_lab() -> int:
    """Bytes that the datasets of the lab's test pool may use."""
    return int(str(_ask([])["usable"]))


def in_lab(lane: int = 0) -> Runner:
    """A runner on real ZFS, a whole sequence in one call; those of different lanes may run side by side."""

    def runner(script: Script) -> Reality:
        answer = _ask([step.command.argv for step in script.steps], lane)
        results = answer["results"]
        contents = answer["contents"]
        if not isinstance(results, list) or not isinstance(contents, dict):
            raise LabError("the executor's answer makes no sense")
        seen = [Seen(rc, err, parse_state(text)) for rc, err, text in results]
        return Reality(seen, {name: {int(at): text for at, text in found.items()} for name, found in contents.items()})

    return runner


def simulated(usable: int, spoil: Callable[[Node], None] = lambda node: None) -> Runner:
    """A runner on a second simulated node, which `spoil` may make differ."""

    def runner(script: Script) -> Reality:
        node = new_node(usable)
        spoil(node)
        return Reality([run(node, step.command.argv) for step in script.steps], contents_of(node))

    return runner
