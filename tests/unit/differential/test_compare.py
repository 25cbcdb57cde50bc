# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparer notices every sort of difference, and nothing where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from differential import compare, run, tally
from differential.compare import Reality, Verdict, judge
from differential.generator import generate, replay
from differential.model import MIB, POOL, Script
from differential.runners import simulated
from differential.shrinking import shrink
from simnode import Node

USABLE = 1792 * MIB
LINES = [
    line.split()
    for line in (
        f"zfs create -o quota=400M {POOL}/a",
        f"zfs create -o test:a=v -V 64M {POOL}/a/disk0",
        f"zfs set test:b=w {POOL}/a",
        f"guest write {POOL}/a/disk0 0 4 seed",
        f"zfs snapshot {POOL}/a/disk0@s",
        f"guest write {POOL}/a/disk0 0 8 more",
        f"zfs set volsize=96M {POOL}/a/disk0",
        f"zfs rollback {POOL}/a/disk0@s",
        f"zfs destroy {POOL}/a/disk0",
    )
]


@pytest.fixture(scope="module")
def script() -> Script:
    return replay(LINES, USABLE)


@pytest.fixture(scope="module")
def reality(script) -> Reality:
    return simulated(USABLE)(script)


def changed(reality: Reality, index: int, name: str, prop: str, value: str, source: str | None = None) -> Reality:
    """Reality with another value of one property from one step on."""
    seen = list(reality.seen)
    for at in range(index, len(seen)):
        row = dict(seen[at].state[name])
        row[prop] = (value, row[prop][1] if source is None else source)
        seen[at] = dataclasses.replace(seen[at], state={**seen[at].state, name: row})
    return Reality(seen, reality.contents)


def outcome(reality: Reality, index: int, rc: int, stderr: str) -> Reality:
    seen = list(reality.seen)
    seen[index] = dataclasses.replace(seen[index], rc=rc, stderr=stderr)
    return Reality(seen, reality.contents)


def test_equal_is_equal(script, reality):
    verdict = judge(script, reality)
    assert verdict.differences == []
    assert len(verdict.judged) == len(LINES)
    assert max(verdict.widest.values()) == 0


@pytest.mark.parametrize(
    ("prop", "value", "source"),
    [
        ("volsize", "100", None),
        ("volblocksize", "4096", None),
        ("refreservation", "1", None),
        ("refreservation", "71303168", "default"),
        ("reservation", "1", None),
        ("origin", f"{POOL}/x@y", None),
        ("test:a", "other", None),
        ("test:a", "v", f"inherited from {POOL}/a"),
        ("test:b", "w", "local"),
    ],
)
def test_exact_properties(script, reality, prop, value, source):
    verdict = judge(script, changed(reality, 2, f"{POOL}/a/disk0", prop, value, source))
    assert verdict.failed_at == 2
    assert verdict.differences[0].startswith(f"{prop} of {POOL}/a/disk0: ")


@pytest.mark.parametrize("prop", ["used", "available", "referenced", "usedbysnapshots", "usedbydataset",
                                  "usedbychildren", "usedbyrefreservation"])  # fmt: skip
def test_figures_beyond_the_tolerance(script, reality, prop):
    name = f"{POOL}/a/disk0"
    value = int(reality.seen[5].state[name][prop][0])
    verdict = judge(script, changed(reality, 5, name, prop, str(value + 2 * MIB + value // 50)))
    assert verdict.failed_at == 5
    assert verdict.differences[0].startswith(f"{prop} of {name}: ")


def test_figures_within_the_tolerance(script, reality):
    name = f"{POOL}/a/disk0"
    value = int(reality.seen[1].state[name]["used"][0])
    seen = changed(reality, 1, name, "used", str(value + MIB)).seen
    seen = [*seen[:2], *reality.seen[2:]]
    verdict = judge(script, Reality(seen, reality.contents))
    assert verdict.differences == []
    assert 0.5 < verdict.widest["used"] < 1


@pytest.mark.parametrize(
    ("rc", "stderr", "sort"),
    [
        (1, "cannot set property for 'x': out of space\n", "outcome"),
        (0, "a warning\n", "words"),
    ],
)
def test_outcomes(script, reality, rc, stderr, sort):
    verdict = judge(script, outcome(reality, 2, rc, stderr))
    assert verdict.failed_at == 2
    assert verdict.differences[0].startswith(f"{sort}: ")


def test_existence(script, reality):
    seen = list(reality.seen)
    lost = {name: row for name, row in seen[4].state.items() if "@" not in name}
    seen[4] = dataclasses.replace(seen[4], state=lost)
    verdict = judge(script, Reality(seen, {}))
    assert verdict.differences == [f"existence: {POOL}/a/disk0@s was foretold, it is not there"]
    seen[4] = dataclasses.replace(seen[4], state={**reality.seen[4].state, f"{POOL}/new": {}})
    assert judge(script, Reality(seen, {})).differences == [f"existence: {POOL}/new is there, it was not foretold"]


def test_contents(script, reality):
    assert script.contents[f"{POOL}/a/disk0"].keys() == {0, 1, 2, 3}
    other = {f"{POOL}/a/disk0": {**reality.contents[f"{POOL}/a/disk0"], 2: "0123"}}
    verdict = judge(script, Reality(reality.seen, other))
    assert verdict.differences == [f"contents of {POOL}/a/disk0 at MiB [2]"]


def test_close_calls_are_not_judged_and_end_the_sequence_when_they_differ(script, reality):
    steps = [dataclasses.replace(step, close=index == 2) for index, step in enumerate(script.steps)]
    close = Script(0, steps, script.contents)
    equal = judge(close, reality)
    assert (len(equal.judged), len(equal.unjudged), equal.abandoned) == (len(LINES) - 1, 1, False)
    other = judge(close, outcome(reality, 2, 1, "out of space"))
    assert (len(other.judged), len(other.unjudged), other.abandoned, other.differences) == (2, 1, True, [])


# -- a simulator with a flaw -------------------------------------------------------------------------------------------


def spoiled(
    method: str, replacement: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Node], None]:
    def spoil(node: Node) -> None:
        pool: Any = node.pools.pools[POOL]
        setattr(pool, method, replacement(pool, getattr(pool, method)))

    return spoil


FLAWS = {
    "auto": spoiled("auto", lambda pool, old: lambda size, block: old(size, block) + 1),
    "room": spoiled("room", lambda pool, old: lambda *given: old(*given) - (8 * MIB if len(given) == 1 else 0)),
    "weigh": spoiled("weigh", lambda pool, old: lambda dataset, pieces: 2 * old(dataset, pieces)),
    "settle": spoiled("settle", lambda pool, old: lambda dataset: old(dataset) if dataset.kind != "volume" else None),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_flaws_are_found(flaw):
    runner = simulated(USABLE, FLAWS[flaw])
    verdicts = [judge(script, runner(script)) for script in (generate(seed, USABLE) for seed in (1, 2))]
    assert all(verdict.differences for verdict in verdicts)


def test_no_flaw_is_found_where_there_is_none():
    counted = run.compare([1, 2], USABLE, [simulated(USABLE)] * 2)
    assert counted.failures == []
    assert counted.total >= 110
    assert counted.shares() == []
    assert counted.missing() != []


def test_a_runner_that_breaks_ends_the_others_too():
    done = []

    def sound(script: Script) -> Reality:
        done.append(script)
        return simulated(USABLE)(script)

    def broken(script: Script) -> Reality:
        raise ValueError("the lab is gone")

    with pytest.raises(ValueError, match="the lab is gone"):
        run.compare(range(50), USABLE, [broken, sound])
    assert len(done) < 5


def test_failing_sequence_is_shrunk_and_printed():
    runner = simulated(USABLE, FLAWS["weigh"])
    script = generate(1, USABLE)
    verdict = judge(script, runner(script))
    short = shrink(verdict, runner, USABLE, 60)
    assert compare.judge(short.script, runner(short.script)).differences
    assert len(short.script.steps) <= 6
    text = run.explain(short)
    lines = [line.split() for line in text.splitlines() if line.startswith(("zfs ", "guest "))]
    again = replay(lines, USABLE)
    assert judge(again, runner(again)).differences == short.differences


# -- counts ------------------------------------------------------------------------------------------------------------


def test_tally_counts(script, reality):
    counted = tally.Tally()
    counted.add(judge(script, reality))
    steps = [dataclasses.replace(step, close=True) for step in script.steps]
    counted.add(judge(Script(0, steps), reality))
    assert counted.total == len(LINES)
    assert counted.errors == {"HasChildren": 1}
    assert counted.phrases == {"has children": 1}
    assert counted.shares() == ["more than 5% of the commands are not judged"]
    assert "clone: 0 of 100" in counted.missing()
    assert "'has children': 1 of 20" in counted.missing()
    assert f"{len(LINES)} commands compared, {len(LINES) - 1} succeed" in counted.report()


def test_tally_wants_most_to_succeed(script):
    counted = tally.Tally()
    failed = script.steps[-1]
    counted.add(Verdict(script, judged=[failed, failed]))
    assert counted.shares() == ["less than 60% of the commands succeed"]
