# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The differential test from the command line, on the running lab.

python3 tests/lab/differential/run.py --seed 1 --sequences 20
python3 tests/lab/differential/run.py --full
python3 tests/lab/differential/run.py --replay FILE        one command in each line
"""

from __future__ import annotations

import argparse
import importlib
import random
import shlex
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LAB = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(LAB)
    sys.path.append(str(LAB.parents[1]))
    importlib.import_module("tests.conftest")  # makes collection and simulator importable

from differential import streams
from differential.compare import Verdict, judge, replayable
from differential.generator import generate, replay
from differential.profile import GENERAL, Profile
from differential.runners import Runner, in_lab, usable_in_lab
from differential.shrinking import shrink
from differential.tally import Tally

FULL_COMMANDS = 2000
MOST_SEQUENCES = 120
LANES = 2
"""Sequences at a time: the lab has two processors."""


def compare(
    seeds: Iterable[int],
    usable: int,
    runners: Sequence[Runner],
    *,
    until_full: bool = False,
    profile: Profile = GENERAL,
) -> Tally:
    """Run the sequences of these seeds, one on each runner at a time.

    With `until_full` begin no more when all counts are reached; nor when a runner breaks.
    """
    tally = Tally(profile)
    left = iter(seeds)
    lock = threading.Lock()

    def lane(runner: Runner) -> None:
        nonlocal left
        while True:
            with lock:
                seed = next(left, None)
                if seed is None or (until_full and tally.total >= FULL_COMMANDS and not tally.missing()):
                    return
            script = generate(seed, usable, profile=profile)
            try:
                verdict = judge(script, runner(script))
            except BaseException:
                left = iter(())
                raise
            with lock:
                tally.add(verdict)
                print(f"seed {seed}: {len(verdict.judged)} compared, {_state(verdict)}", flush=True)

    try:
        with ThreadPoolExecutor(len(runners)) as lanes:
            for _nothing in lanes.map(lane, runners):
                pass
    except BaseException:
        print(tally.report(), flush=True)
        raise
    return tally


def _state(verdict: Verdict) -> str:
    if verdict.differences:
        return f"DIFFERS at {verdict.script.steps[verdict.failed_at or 0].command.line}: {verdict.differences[0]}"
    return "abandoned after a close call" if verdict.abandoned else "equal"


def explain(verdict: Verdict) -> str:
    """A failing sequence as one can replay it, and what differs."""
    steps = verdict.script.steps[: (verdict.failed_at or 0) + 1]
    differences = "".join(f"  {text}\n" for text in verdict.differences)
    failing = f"{replayable(steps)}differs in the last one:\n{differences}"
    return f"seed {verdict.script.seed}, {len(steps)} commands:\n{failing}"


def main() -> int:
    """Exit status 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--seeds", type=int, nargs="+", help="these, one after the other")
    parser.add_argument("--sequences", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="until every command and error has been seen often enough")
    parser.add_argument("--streams", action="store_true", help="sequences that send and receive")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--shrink", type=float, default=300, metavar="SECONDS", help="for each failing sequence")
    arguments = parser.parse_args()
    usable = usable_in_lab()
    if arguments.replay:
        tally = Tally()
        lines = [shlex.split(line) for line in arguments.replay.read_text(encoding="utf-8").splitlines() if line]
        script = replay(lines, usable)
        tally.add(judge(script, in_lab()(script)))
    else:
        count = MOST_SEQUENCES if arguments.full else arguments.sequences
        seeds = arguments.seeds or range(arguments.seed, arguments.seed + count)
        tally = compare(
            seeds,
            usable,
            [in_lab(lane) for lane in range(LANES)],
            until_full=arguments.full,
            profile=streams.PROFILE if arguments.streams else GENERAL,
        )
    print(tally.report())
    for verdict in tally.failures:
        print("\n" + explain(shrink(verdict, in_lab(), usable, arguments.shrink)))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
