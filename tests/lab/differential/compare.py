# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares what was foretold with what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from differential.generator import tolerance
from differential.model import EXACT, FIGURES, POOL, Contents, Row, Script, Seen, State, Step

METADATA = 1 << 14
"""Bytes that may be written without a change of contents: a rollback of a volume writes a log, for example."""


@dataclass(frozen=True)
class Reality:
    """What a sequence did to a real pool: one look for each command, and the contents at the end."""

    seen: list[Seen]
    contents: Contents


@dataclass
class Verdict:
    """The outcome of a sequence.

    `judged` steps were compared. `unjudged` ones were too close to call or left open; `abandoned`: one of those went
    another way, so that the sequence ends there. `differences` are words about the first step that differs
    (`failed_at`).
    """

    script: Script
    judged: list[Step] = field(default_factory=list)
    unjudged: list[Step] = field(default_factory=list)
    abandoned: bool = False
    differences: list[str] = field(default_factory=list)
    failed_at: int | None = None
    widest: dict[str, float] = field(default_factory=dict)
    """For each figure, the largest share of its tolerance that was used up."""


def judge(script: Script, reality: Reality) -> Verdict:
    """Compare step by step, up to the first difference."""
    verdict = Verdict(script)
    for index, (step, real) in enumerate(zip(script.steps, reality.seen, strict=True)):
        if step.close:
            verdict.unjudged.append(step)
            if list(_outcome(step.foretold, real)) or list(_exact(step.foretold.state, real.state)):
                verdict.abandoned = True
                return verdict
            continue
        verdict.judged.append(step)
        mismatches = list(differences(step, real, verdict.widest))
        if mismatches:
            verdict.differences, verdict.failed_at = mismatches, index
            return verdict
    if not script.steps[-1].last:
        verdict.differences = list(_contents(script.contents, reality.contents))
        verdict.failed_at = len(script.steps) - 1 if verdict.differences else None
    return verdict


def differences(step: Step, real: Seen, widest: dict[str, float]) -> Iterator[str]:
    """All that differs after one step."""
    if step.last:
        if not real.rc:
            yield f"outcome: {_say(step.foretold)} was foretold, {_say(real)} happened"
    else:
        yield from _outcome(step.foretold, real)
        yield from _exact(step.foretold.state, real.state)
        yield from _figures(step.foretold.state, real.state, widest)


def _outcome(foretold: Seen, real: Seen) -> Iterator[str]:
    if bool(foretold.rc) != bool(real.rc) or foretold.error != real.error:
        yield f"outcome: {_say(foretold)} was foretold, {_say(real)} happened"
    elif foretold.rc != real.rc or _lines(foretold) != _lines(real):
        yield f"words: {_say(foretold)} was foretold, {_say(real)} happened"


def _lines(seen: Seen) -> list[str]:
    """Words on stderr but for the help and a token; in what order zfs goes through children is left open."""
    lines = seen.stderr.partition("\nusage:\n")[0].splitlines()
    return sorted(line for line in lines if not line.startswith("    zfs send -t "))


def _say(seen: Seen) -> str:
    return f"{seen.rc} {seen.error or 'success'} {seen.stderr.strip()!r}"


def _exact(foretold: State, real: State) -> Iterator[str]:
    for name in sorted(foretold.keys() - real.keys()):
        yield f"existence: {name} was foretold, it is not there"
    for name in sorted(real.keys() - foretold.keys()):
        yield f"existence: {name} is there, it was not foretold"
    for name in sorted(foretold.keys() & real.keys()):
        ours, theirs = foretold[name]["written"][0], real[name]["written"][0]
        if (ours == "0" and int(theirs) > METADATA) or (theirs == "0" and int(ours) > METADATA):
            yield f"written of {name}: {ours} was foretold, it is {theirs}"
    for name in sorted(foretold.keys() & real.keys()):
        for prop in EXACT:
            if foretold[name][prop] != real[name][prop]:
                yield f"{prop} of {name}: {_pair(foretold[name], prop)} was foretold, it is {_pair(real[name], prop)}"
    if foretold.keys() != real.keys():
        return
    here, there = _copies(foretold), _copies(real)
    if here != there:
        yield f"equal guids: {sorted(here - there)} was foretold, it is {sorted(there - here)}"


def _copies(state: State) -> set[tuple[str, ...]]:
    """The names that share a guid."""
    result: dict[str, list[str]] = {}
    for name, row in state.items():
        result.setdefault(row["guid"][0], []).append(name)
    return {tuple(sorted(names)) for names in result.values() if len(names) > 1}


def _pair(row: Row, prop: str) -> str:
    return "{} ({})".format(*row[prop])


def _figures(foretold: State, real: State, widest: dict[str, float]) -> Iterator[str]:
    for name in sorted(foretold.keys() & real.keys()):
        for prop in (
            FIGURES if name != POOL else ("available", "referenced")
        ):  # its `used` counts the pool's own metadata
            ours, theirs = foretold[name][prop][0], real[name][prop][0]
            if "-" in (ours, theirs):
                if ours != theirs:
                    yield f"{prop} of {name}: {ours} was foretold, it is {theirs}"
                continue
            share = abs(int(ours) - int(theirs)) / tolerance(max(int(ours), int(theirs)))
            widest[prop] = max(widest.get(prop, 0.0), share)
            if share > 1:
                yield f"{prop} of {name}: {ours} was foretold, it is {theirs} ({int(theirs) - int(ours):+d})"


def _contents(foretold: Contents, real: Contents) -> Iterator[str]:
    for name in sorted(foretold.keys() | real.keys()):
        if foretold.get(name) != real.get(name):
            ours, theirs = foretold.get(name, {}), real.get(name, {})
            where = sorted(index for index in ours.keys() | theirs.keys() if ours.get(index) != theirs.get(index))
            yield f"contents of {name} at MiB {where}"


def replayable(steps: Sequence[Step]) -> str:
    """Steps as a script that `run.py --replay` takes."""
    return "".join(step.command.line + "\n" for step in steps)
