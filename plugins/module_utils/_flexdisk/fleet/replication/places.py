# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM is that is to move, by the reports of all hosts of a run, and why the run must not go on."""

from __future__ import annotations

import typing as t

from ...rules.knobs import for_playbooks
from ...rules.moves import COMING, MOVED, UNKNOWN, Sighting

Seen = t.Mapping[str, Sighting]


class Wanted(t.NamedTuple):
    """What a run was asked for."""

    vm: str
    """The name or UUID that was given."""
    target: str
    """The host that the VM moves to, "" for none."""
    state: str
    """moved, stays or forgotten."""
    unasked: bool
    """Whether to go on although a host that could have taken the VM over cannot be asked."""


class Places(t.NamedTuple):
    """Where the VM is."""

    homes: t.List[str]
    """The hosts that have it, or are about to part with it. One that it had left long ago does not count."""
    source: str
    """The host that it leaves, "" for none: its home, or the one that it had left for the target. It may be lost."""
    problems: t.List[str]
    """Why nothing may be done."""


def find(seen: Seen, wanted: Wanted) -> Places:
    """Return where the VM is. seen: what each host of the run says."""
    coming = {host: one for host, one in seen.items() if one.phase == COMING}
    have = [host for host, one in seen.items() if one.vm and one.phase != COMING]
    outdated = [host for host in have if seen[host].is_older_than(_latest(seen, seen[host].vm))]
    homes = [host for host in have if host not in outdated]
    source = [*homes, *([coming[wanted.target].target] if wanted.target in coming else [])]
    if wanted.state == "forgotten":
        text = f"{wanted.vm} is on its way to {_all(coming)}, and its tombstone is needed until it is there; go on with"
        return Places(homes, "", [f"{text} flexdisk_target={next(iter(coming))}"] if coming else [])
    problems = [*_where(seen, wanted, homes, outdated, source), *_elsewhere(seen, coming, wanted)]
    problems += _taken_over(seen, wanted, source)
    return Places(homes, source[0] if source else "", problems)


def _latest(seen: Seen, vm: str) -> int:
    """Return the term that the VM had when it began to move, by the records of its moves."""
    return max((one.term for one in seen.values() if one.moving == vm and not one.taking), default=UNKNOWN)


def _where(
    seen: Seen, wanted: Wanted, homes: t.Sequence[str], outdated: t.Sequence[str], source: t.Sequence[str]
) -> t.Iterator[str]:
    """Yield why the host that the VM leaves is not clear."""
    if len(homes) > 1 or not source:
        alone = [f"{wanted.vm} is on {host}, but {one.unmanaged}" for host, one in seen.items() if one.unmanaged]
        alone = [] if homes else list(map(for_playbooks, alone))
        parts = alone or [f"{wanted.vm} is on {_all(homes) or f'none of {_listed(seen)}'}"]
        parts += [f"what {_all(outdated)} has is from before it was taken over"] if outdated else []
        gone = [(host, one.target) for host, one in seen.items() if one.phase == MOVED and not homes]
        yield "; ".join([*parts, *(f"{host} says that it has gone to {target}" for host, target in gone)])
    elif wanted.state == "stays" and _has_left(seen, source[0]):
        text = f"{wanted.vm} has left {source[0]} for {wanted.target}, so it is too late to give the move up; the same"
        yield f"{text} command without flexdisk_move_state goes on"
    elif wanted.state == "stays" and not homes and source[0] not in seen:
        yield f"{wanted.vm} comes from {source[0]}, which is not among the hosts of this run"


def _has_left(seen: Seen, host: str) -> bool:
    """Return whether a host says that the VM has gone, with all its disks."""
    return host in seen and seen[host].phase == MOVED and not seen[host].vm


def _elsewhere(seen: Seen, coming: Seen, wanted: Wanted) -> t.Iterator[str]:
    """Yield to which other hosts the VM is on its way."""
    for host, one in coming.items():
        if host == wanted.target:
            continue
        if one.taking:
            text = (
                f"{wanted.vm} is being taken over from {one.target} on {host}; the playbook failover_vm goes on there,"
            )
            yield f"{text} or gives that up with flexdisk_failover_state=stays"
        elif one.has_left:
            text = f"{wanted.vm} has left {one.target}, and {host} has all that it had; go on with"
            yield f"{text} flexdisk_target={host}"
        elif _has_left(seen, one.target):
            yield f"{wanted.vm} has left {one.target} for {host}; go on with flexdisk_target={host}"
        else:
            yield (
                f"{wanted.vm} is on its way to {host}; go on there, or give that up with flexdisk_target={host} and"
                " flexdisk_move_state=stays"
            )


def _taken_over(seen: Seen, wanted: Wanted, source: t.Sequence[str]) -> t.Iterator[str]:
    """Yield why the VM may have been taken over since it had left its host."""
    leaves = [seen[host] for host in source if host in seen and seen[host].asks]
    if wanted.state != "moved" or not leaves:
        return
    unheard = sorted({host for one in leaves for host in one.asks if host not in seen})
    if unheard and not wanted.unasked:
        text = f"{wanted.vm} has left its host, and {_all(unheard)} could not be asked whether it"
        text += " has been taken over. --limit must not leave it out; if it is gone for good,"
        yield f"{text} flexdisk_start_unasked=true goes on"
    term = max(one.term for one in leaves)
    raised = [host for host, one in seen.items() if one.phase == MOVED and one.term > term]
    if raised:
        yield f"{wanted.vm} was taken over while it moved: {_all(raised)} says that it went on from there"


def _all(hosts: t.Iterable[str]) -> str:
    return " and ".join(hosts)


def _listed(hosts: t.Iterable[str]) -> str:
    return ", ".join(hosts)
