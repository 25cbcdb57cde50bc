# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repeat the probes of a gate until each member counts as in service or has failed too often."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.text import count
from .gate import Gate, ProbedMember

NOTICE_INTERVAL = 30  # seconds
NOT_RUNNING = "not running"
NO_AGENT = "guest agent not connected"
ProbeAll = t.Callable[[t.Sequence[ProbedMember]], t.Mapping[str, str]]


class Clock(t.NamedTuple):
    """A clock that never goes back, and how to wait for it. Both are seconds."""

    now: t.Callable[[], float]
    sleep: t.Callable[[float], None]


@dataclass
class _MemberState:
    """The state of a member while its gate is decided."""

    member: ProbedMember
    # Why it is not in service, "" if it is.
    why: str = ""
    # Failed probes.
    failures: int = 0
    # Since when it succeeds, None if it does not.
    healthy_since: t.Optional[float] = None
    # When it is probed next.
    next_at: float = 0.0


def watch(gate: Gate, probe_all: ProbeAll, clock: Clock, notify: t.Callable[[str], None]) -> t.Dict[str, t.Any]:
    """Probe the members until all are decided, and return the result. A member without probes is decided at once.

    probe_all: probes members at the same time, and returns why each fails, "" for success. notify: gets a line about
    undecided members now and then.
    """
    states = [_MemberState(member, _known_reason(member)) for member in gate.members]
    undecided = [one for one in states if one.member.probes]
    start = last_notice = clock.now()
    for one in undecided:
        one.next_at = start
    while undecided:
        next_at = min(one.next_at for one in undecided)
        if gate.limit and max(next_at, clock.now()) >= start + gate.limit:
            _give_up(undecided, gate)
            break
        clock.sleep(max(0.0, next_at - clock.now()))
        began = clock.now()
        due_now = [one for one in undecided if one.next_at <= began]
        answers = probe_all([one.member for one in due_now])
        ended = clock.now()
        decided = {one.member.name for one in due_now if _decides(gate, one, answers[one.member.name], began, ended)}
        undecided = [one for one in undecided if one.member.name not in decided]
        if undecided and ended - last_notice >= NOTICE_INTERVAL:
            last_notice = ended
            notify(f"after {ended - start:.0f} s still waiting for {', '.join(one.member.name for one in undecided)}")
    return result([(one.member.name, one.why) for one in states])


def _give_up(undecided: t.Iterable[_MemberState], gate: Gate) -> None:
    for one in undecided:
        one.why = f"{one.why or 'not yes for long enough'}; given up after {gate.limit} s (limit)"


def _known_reason(member: ProbedMember) -> str:
    """Return why a member fails without a probe, "" if it does not."""
    if not member.running:
        return NOT_RUNNING
    return "" if member.agent else NO_AGENT


def _decides(gate: Gate, one: _MemberState, why: str, began: float, ended: float) -> bool:
    """Return whether a member is decided after this answer. If not, it is probed again.

    A success counts from the end of its probe, and is confirmed by one that begins stable_for seconds later.
    """
    one.why = why
    if why:
        one.failures += 1
        one.healthy_since = None
        one.next_at = ended + gate.delay
        return one.failures > gate.retries
    if one.healthy_since is None:
        one.healthy_since = ended
        confirmed = gate.stable_for == 0
    else:
        confirmed = began >= one.healthy_since + gate.stable_for
    one.next_at = min(ended + gate.delay, one.healthy_since + gate.stable_for)
    return confirmed


def result(reasons: t.Sequence[t.Tuple[str, str]]) -> t.Dict[str, t.Any]:
    """Return the keys of a result, from each member's name and why it is not in service, "" if it is."""
    failing = [f"{name}: {why}" for name, why in reasons if why]
    return {
        "changed": False,
        "msg": "; ".join([f"{len(reasons) - len(failing)} of {count(len(reasons), 'member')} in service", *failing]),
        "members": [{"name": name, "in_service": not why, "why": why} for name, why in reasons],
        "serving": [name for name, why in reasons if not why],
        "failing": [name for name, why in reasons if why],
    }
