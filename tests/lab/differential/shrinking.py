# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a failing sequence shorter."""

from __future__ import annotations

import time
from collections.abc import Sequence

from differential.compare import Verdict, judge
from differential.generator import replay
from differential.runners import Runner

Lines = Sequence[Sequence[str]]


def shrink(verdict: Verdict, runner: Runner, usable: int, seconds: float) -> Verdict:
    """The shortest sequence found within `seconds` that still differs in the same way; at worst the one given."""
    deadline = time.monotonic() + seconds
    best = verdict
    size = max(1, _length(best) // 2)
    while time.monotonic() < deadline:
        smaller = _without(best, size, runner, usable, deadline)
        if smaller is not None:
            best = smaller
            size = min(size, max(1, _length(best) // 2))
        elif size == 1:
            break
        else:
            size //= 2
    return best


def _length(verdict: Verdict) -> int:
    return (verdict.failed_at or 0) + 1


def _without(verdict: Verdict, size: int, runner: Runner, usable: int, deadline: float) -> Verdict | None:
    """The sequence without one of its runs of `size` commands, if it still differs; the failing command stays."""
    lines = [step.command.argv for step in verdict.script.steps[: _length(verdict)]]
    for begin in range(max(0, len(lines) - 1 - size), -1, -size):
        if time.monotonic() > deadline:
            return None
        remaining = lines[:begin] + lines[min(begin + size, len(lines) - 1) :]
        if len(remaining) == len(lines):
            continue
        script = replay(remaining, usable, verdict.script.seed)
        tried = judge(script, runner(script))
        if tried.differences and _sort(tried) == _sort(verdict):
            return tried
    return None


def _sort(verdict: Verdict) -> str:
    """What kind of difference it is: the words before the first colon, without names."""
    return verdict.differences[0].split(":")[0].split(" of ")[0]
