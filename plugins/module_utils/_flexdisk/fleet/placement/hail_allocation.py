# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best hosts for a VM or a copy of it, as hail 3.0.2 decides: by the score afterwards."""

from __future__ import annotations

import typing as t
from collections import Counter

from .account import NO_CPU, NO_DISK, NO_MEMORY, NO_MIGRATION, NO_TAGS
from .known import POLICIES, REPLICATED, UNALLOCABLE, KnownGroup, KnownVm
from .limits import NO_DISK_COUNT, NO_SPINDLES, why_too_large
from .places import Places
from .redundancy import are_safe
from .score import NEAR, Score

NO_REDUNDANCY = "FailN1"
_ORDER = (NO_MEMORY, NO_DISK, NO_CPU, NO_REDUNDANCY, NO_TAGS, NO_MIGRATION, NO_DISK_COUNT, NO_SPINDLES)


class Choice(t.NamedTuple):
    """What is best: the hosts and the score, or None, with the text that hail prints."""

    text: str
    hosts: t.Tuple[str, ...] = ()
    score: t.Optional[float] = None


class Demand(t.NamedTuple):
    """A VM that needs hosts."""

    vm: KnownVm
    # No host of the cluster may have VMs that could not go elsewhere if it were lost.
    checked: bool
    # The VM exists, and is counted on its present host if a host is lost.
    moves: bool = False
    # The VM is on the first of its hosts already.
    stays: bool = False
    # Only the group of the hosts is checked.
    alone: bool = False


def best_group(
    places: Places, demand: Demand, keys: t.Sequence[str], allowed: t.Optional[t.Collection[str]] = None
) -> t.Tuple[t.Optional[str], t.Dict[str, Choice], str]:
    """Return the key of the best group, or None, with the choice of each group and the texts of all. allowed: the only
    hosts that are considered, None for all. Of equal groups the later one is taken.
    """
    score = places.score()
    groups = [places.known.groups[key] for key in keys]
    astray = [group for group in groups if not demand.vm.networks <= group.networks]
    texts = [f"group {group.name} {not_connected(demand.vm)}" for group in astray]
    choices: t.Dict[str, Choice] = {}
    best: t.Optional[t.Tuple[int, float, str]] = None
    for group in groups:
        if group in astray:
            continue
        choice = choices[group.key] = best_hosts(places, demand, group, score, allowed)
        texts.append(choice.text)
        if choice.score is None or group.policy == UNALLOCABLE:
            continue
        rank = (POLICIES.index(group.policy), choice.score, group.key)
        if best is None or rank[0] < best[0] or (rank[0] == best[0] and rank[1] <= best[1] + NEAR):
            best = rank
    return best[2] if best else None, choices, ", ".join(texts)


def best_hosts(
    places: Places,
    demand: Demand,
    group: KnownGroup,
    score: Score,
    allowed: t.Optional[t.Collection[str]] = None,
) -> Choice:
    """Return the best host of a group, or host and that of the replica. score: of the hosts that count."""
    hosts = [name for name in places.hosts_of(group.key) if places.usable(name)]
    hosts = [name for name in hosts if allowed is None or name in allowed]
    replicated = demand.vm.template == REPLICATED
    if len(hosts) < 1 + replicated:
        return Choice(f"Group {group.name}: error {'Not enough' if replicated else 'No'} online nodes")
    large = why_too_large(demand.vm, group)
    if large:
        choice = no_choice({large: len(hosts) * (len(hosts) - 1 if replicated else 1)})
    else:
        candidates = places.candidates(demand, score, hosts) or listed(
            places, demand, score, [(host,) for host in hosts]
        )
        read = not demand.moves or group.policy == UNALLOCABLE
        choice = first_safe(places, demand, candidates._replace(read=read))
    return choice._replace(text=f"Group {group.name} ({group.policy}): {choice.text}")


def first_safe(places: Places, demand: Demand, candidates: Candidates) -> Choice:
    """Return the best of the candidates after which no host is unsafe."""
    for value, candidate in candidates.in_order:
        if demand.checked and _unsafe(places, demand, candidate):
            candidates.failures[NO_REDUNDANCY] += 1
            continue
        return _chosen(candidates, candidate, value)
    return no_choice(candidates.failures + candidates.more())


class Candidates(t.NamedTuple):
    """The possible hosts for a demand."""

    # How many candidates there are.
    every: int
    # Why some are not possible.
    failures: t.Counter[str]
    # Returns further reasons, which are expensive.
    more: t.Callable[[], t.Counter[str]]
    # The possible ones with their scores, best first.
    in_order: t.Iterator[t.Tuple[float, t.Tuple[str, ...]]]
    # The reasons are shown beside a choice.
    read: bool = True


def listed(places: Places, demand: Demand, score: Score, candidates: t.Iterable[t.Tuple[str, ...]]) -> Candidates:
    """Return each of the candidates with the score if the VM came there, or why it cannot."""
    failures: t.Counter[str] = Counter()
    scored: t.List[t.Tuple[float, t.Tuple[str, ...]]] = []
    for candidate in candidates:
        accounts = places.copied(demand.vm, candidate, demand.stays)
        if isinstance(accounts, str):
            failures[accounts] += 1
            continue
        value = score.after((places.accounts[name], account) for name, account in accounts.items())
        scored.append((value, candidate))
    scored.reverse()  # of equal ones the later one is taken
    count = len(scored) + sum(failures.values())
    return Candidates(count, failures, Counter, iter(sorted(scored, key=lambda one: one[0])))


def _chosen(candidates: Candidates, candidate: t.Tuple[str, ...], value: float) -> Choice:
    failures = candidates.failures + candidates.more() if candidates.read else candidates.failures
    numbers = f"successes {candidates.every - sum(failures.values())}, failures {sum(failures.values())}"
    text = f"score: {value:.8f}, {numbers} ({_counts(failures)}) for node(s) {'/'.join(candidate)}"
    return Choice(text, candidate, value)


def no_choice(failures: t.Mapping[str, int]) -> Choice:
    """No hosts: how often each reason ruled some out."""
    return Choice(f"No valid allocation solutions, failure reasons: {_counts(failures)}")


def _unsafe(places: Places, demand: Demand, candidate: t.Tuple[str, ...]) -> bool:
    copied = places.copied(demand.vm, candidate, demand.stays)
    accounts = {} if isinstance(copied, str) else copied
    primary, secondary = (*candidate, "")[:2]
    vm = demand.vm if demand.moves else demand.vm.at(primary, secondary)
    groups = [places.known.hosts[primary].group] if demand.alone else list(places.known.groups)
    if demand.stays:
        return not are_safe(places.having(vm), groups, {}, accounts)
    return not are_safe(places, groups, {primary: [vm]}, accounts)


def not_connected(vm: KnownVm) -> str:
    """Return the reason where a group lacks a network of the VM."""
    return f"is not connected to a network required by instance {vm.name}"


def _counts(failures: t.Mapping[str, int]) -> str:
    reasons = sorted((reason for reason, count in failures.items() if count), key=_ORDER.index)
    return ", ".join(f"{reason}: {failures[reason]}" for reason in reasons)
