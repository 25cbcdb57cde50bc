# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages about a move: its phases, the downtime, and the space that it needs."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_bytes
from ...rules.identity import seconds_of
from ...rules.moves import MOVED

_Raw = t.Mapping[str, t.Any]


class Hosts(t.NamedTuple):
    """The names of the hosts that the VM leaves and reaches."""

    source: str
    target: str


class MemoryEnd(t.NamedTuple):
    """What has become of the memory of a guest that was saved."""

    word: str = ""
    """restored, lost, kept_down (lost, and the VM waits for start_host), or "" if none was saved."""
    reason: str = ""
    """Why it is lost."""


_NO_MEMORY = MemoryEnd()


def memory_text(memory: MemoryEnd) -> str:
    """Return what has become of the memory, to be added to a sentence."""
    if memory.word == "lost":
        return f"; memory lost, so it has booted: {memory.reason}"
    if memory.word == "kept_down":
        return f"; memory lost, and it does not run: {memory.reason}"
    return "; its guest goes on" if memory.word else ""


def downtime(sync: _Raw, running: bool, memory: int = 0) -> str:
    """Return the estimated downtime of a move: all that has changed since the last sync is sent while the VM is down.

    sync: what the step prepare returns. memory: the bytes of the guest's memory if that is sent, too.
    """
    if not running:
        return "none, for it does not run"
    streams = [stream for vm in sync["transfers"] for disk in vm["disks"] for stream in disk["streams"]]
    if any(stream["kind"] not in ("increment", "rollback") for stream in streams):
        return "not known before its disks are there"
    changed = render_bytes(sync["stream_bytes"])
    parts = f"{changed} and {render_bytes(memory)} of memory" if memory else changed
    if not sync["rate"]:
        have = f"{changed} have changed" + (f", {render_bytes(memory)} are its memory" if memory else "")
        return f"not known: {have}, and no rate has been measured yet"
    seconds = -(-(sync["stream_bytes"] + memory) // sync["rate"])
    beside = "beside writing and reading the memory" if memory else "beside shutdown and start"
    return f"about {seconds} s for {parts} at {render_bytes(sync['rate'])}/s, {beside}"


def lines(
    sync: _Raw,
    vm: str,
    hosts: Hosts,
    running: bool,
    takes: int,
    lost: t.Sequence[str] = (),
    memory: int = 0,
    saved: bool = False,
) -> t.List[str]:
    """Return the phases of a move, the downtime, and the space on both sides.

    Args:
        takes: bytes that the VM itself takes there.
        lost: snapshots that others have taken of its own dataset.
        memory: as for downtime().
        saved: the memory is saved already.
    """
    leaves = f"leave: {vm} is stopped on {hosts.source}" if running else f"leave: {vm} is kept from being started"
    starts = ", and it starts" if running else ""
    if memory:
        done = "is saved already" if saved else "is saved"
        leaves = f"leave: the memory of {vm} ({render_bytes(memory)}) {done} on {hosts.source}; its guest stands still"
        starts = ", and its guest goes on"
    return [
        f"sync: {sync['msg']}, while it runs" if running else f"sync: {sync['msg']}",
        f"expect: {vm} is made on {hosts.target}, without disks",
        leaves,
        "last sync: what was written since is sent" + (", and then the memory" if memory else ""),
        f"go: {vm} ends on {hosts.source}, and its disks become replicas",
        *(f"go: {name} goes with the VM's own dataset" for name in lost),
        f"arrive: the replicas become its disks on {hosts.target}{starts}",
        f"{'pause' if memory else 'downtime'}: {downtime(sync, running, memory)}",
        *(_space(one, hosts, takes) for one in sync["space"]),
    ]


class MoveEnd(t.NamedTuple):
    """How a move has ended."""

    line: str
    """Where the VM is, and how long it was down."""
    downtime: t.Optional[float]
    """Seconds, None if the VM did not run before its move."""


def resume_message(vm: str, hosts: Hosts, move: t.Optional[_Raw]) -> str:
    """Return where the VM is of an interrupted move that is about to go on; "" for a move that only begins now.

    move: what the host that the VM leaves had written down before this run.
    """
    if not move:
        return ""
    where = f"{hosts.source} still has the VM"
    if move["phase"] == MOVED:
        where = f"the VM has left {hosts.source}, and is down until it is on {hosts.target}"
    return f"the move of {vm} to {hosts.target}, begun at {move['since']}, was interrupted: {where}; this run goes on"


def move_end(
    vm: str,
    hosts: Hosts,
    move: t.Optional[_Raw],
    runs: bool,
    stopped: float,
    now: float,
    memory: MemoryEnd = _NO_MEMORY,
) -> MoveEnd:
    """Return where the VM is after its move. move: as for goes_on. runs: whether it ran before its move. stopped: when
    this run was about to stop it, in seconds since 1970, as now.
    """
    line = f"{vm} is on {hosts.target}{memory_text(memory)}"
    if not runs:
        return MoveEnd(f"{line}; it did not run before", None)
    if not move:
        down = round(now - stopped, 1)
        return MoveEnd(f"{line}; it was down for {down} s", down)
    since = move["since"]
    down = max(0.0, round(now - seconds_of(since)))
    text = f"it was down for about {down} s, since {since} by the clock of {hosts.source}"
    return MoveEnd(f"{line}; its move had been interrupted, and {text}", down)


def _space(one: _Raw, hosts: Hosts, takes: int) -> str:
    has = f"has {render_bytes(one['available'])} free"
    if one["here"]:
        needs = f"the snapshots take at most {render_bytes(one['needs'])}"
        return f"space: pool {one['pool']} of {hosts.source} {has}; {needs}"
    needs = f"its replicas take {render_bytes(one['needs'])} more, and the VM {render_bytes(takes)} beside them"
    return f"space: pool {one['pool']} of {hosts.target} {has}; {needs}"
