# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of a move: a VM goes to another host, or stays where it is, or its tombstone is given up."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...rules.moves import LEAVING, MOVED, RESTORED
from ...rules.saved_memory import PATIENT_SECONDS
from . import outlook
from .calls import Answer, Call, Flow, Message, Part, Run, Stopped
from .sync_arguments import Sync
from .sync_calls import announce, keep_replicas

_Dict = t.Dict[str, t.Any]
_SEEN = ("vm", "move", "pool", "asks", "record", "memory", "digest", "refusals", "lost")
_ENDED = ("memory", "memory_lost")
SUSPENDED = "suspended"


@dataclass(frozen=True)
class Move:
    """The variables of the role vm_move."""

    vm: str
    sync: Sync
    """Of its disks, from the host that it leaves (home) to the one that it comes to (peer)."""
    state: str = "moved"
    """moved, stays or forgotten."""
    target_pool: str = ""
    """"" for the one with the name of the VM's own pool."""
    hosts: t.Sequence[str] = ()
    """The hosts that are asked whether they have the VM, too."""
    seen: t.Mapping[str, t.Any] = field(default_factory=dict)
    """What others have said already."""
    unasked: bool = False
    forget_unseen: bool = False
    incoming_allowed: t.Sequence[str] = ()
    stop_timeout: t.Union[int, str] = 180
    """Seconds, or ISO 8601, as the lock_timeout of the sync."""
    allow_force_stop: bool = False
    how: str = "stopped"
    """stopped, or suspended: the memory of a guest that runs goes with the VM."""
    allow_memory_loss: bool = False
    """Start the VM without the memory that was saved, if that does not belong to its disks any more."""

    @property
    def suspends(self) -> bool:
        """Whether the memory of a guest that runs goes with the VM."""
        return self.how == SUSPENDED

    @property
    def source(self) -> str:
        """The host that it leaves."""
        return self.sync.home

    @property
    def target(self) -> str:
        """The host that it comes to."""
        return self.sync.peer

    @property
    def host_names(self) -> outlook.Hosts:
        """Both, for messages."""
        return outlook.Hosts(self.source, self.target)

    @property
    def lock_options(self) -> _Dict:
        """How long a call waits for others of the host."""
        return {"lock_timeout": self.sync.lock_timeout}

    @property
    def stop_options(self) -> _Dict:
        """How a call stops the VM."""
        return {**self.lock_options, "stop_timeout": self.stop_timeout, "allow_force_stop": self.allow_force_stop}

    @property
    def patience(self) -> _Dict:
        """How long a call waits that lets a guest go on."""
        return {"lock_timeout": PATIENT_SECONDS} if self.suspends else {}

    def source_arguments(self, step: str, /, **more: t.Any) -> _Dict:
        """Return arguments of a step of the move on the host that it leaves."""
        return {"step": step, **self.sync.home_options, **more}

    def target_arguments(self, step: str, /, **more: t.Any) -> _Dict:
        """Return arguments of a step of the move on the host that it comes to."""
        return {"step": step, **self.sync.peer_options, **more}


class _Known(t.NamedTuple):
    """What is known of the VM before anything is done."""

    uuid: str
    seen: t.Mapping[str, t.Any]
    """What the host that it leaves has told."""
    others: _Dict
    """What other hosts have told."""

    @property
    def phase(self) -> str:
        """How far an interrupted move has come, "" without any."""
        return str((self.seen["move"] or {}).get("phase", ""))

    @property
    def memory_lost(self) -> str:
        """Why the VM had to leave without the memory that was saved, "" if it had not."""
        end = str((self.seen["move"] or {}).get("memory_end", ""))
        return "" if end == RESTORED else end


class _Left(t.NamedTuple):
    """How a VM has left its host in this run."""

    stopped: float = 0.0
    """When it was about to be stopped, 0.0 if that was done before."""
    memory_lost: str = ""
    """Why it goes without the memory that was saved, "" if it does not."""


def move_vm(move: Move, run: Run) -> Flow:
    """Move the VM, or give its move or tombstone up. The result has outlook (check mode), downtime and forgotten."""
    if move.state == "forgotten":
        forgotten: _Dict = yield from _forget(move, run)
        return forgotten
    if move.target == move.source or run.options(move.target) is None:
        here = "the host that has the VM" if move.target == move.source else "not in the inventory"
        raise Stopped(f"{move.target} is {here}")
    known = yield from _look(move, run)
    if move.state == "stays":
        others = yield from _ask_takers(move, run, known)
        yield from _stay(move, run, known.uuid, others)
        return {}
    message = outlook.resume_message(move.vm, move.host_names, known.seen["move"])
    if message:
        yield Message("Say that a move goes on that was interrupted", message)
    shown: _Dict = {}
    left = _Left(memory_lost=known.memory_lost)
    if known.phase == MOVED:
        yield from _go_on(move, run, known)
    else:
        shown, left = yield from _leave(move, run, known)
    if run.check and known.phase == MOVED:
        yield _arrival(move, known)
    if run.check:
        return shown
    ended: _Dict = yield from _arrive(move, known, left)
    return ended


def _look(move: Move, run: Run) -> Part:
    """Ask all hosts what they have of the VM. Return what is known."""
    wanted = [host for host in move.hosts if host != move.source and host not in move.seen]
    others = yield from _ask(run, move.vm, wanted if move.state == "moved" else [], move.seen)
    arguments = move.source_arguments("look", vm=move.vm, name=move.source, peer_name=move.target, peers=others)
    arguments.update(suspends=move.suspends and move.state == "moved", allow_memory_loss=move.allow_memory_loss)
    looked = yield Call("Look at the VM", move.source, "move", arguments, _SEEN, hidden=True)
    seen = looked.result
    going = seen["move"] or {}
    problems = []
    if not seen["vm"] and not going:
        problems.append(f"{move.vm} is not on {move.source}")
    if going and going["host"] != move.target:
        problems.append(f"{move.vm} is on its way to {going['host']}, not to {move.target}")
    if move.state == "moved" and going.get("phase") != MOVED:
        problems += seen["refusals"]
    if problems:
        raise Stopped(" ".join(problems))
    return _Known(seen["vm"] or going["vm"], seen, others)


def _ask(
    run: Run,
    vm: str,
    hosts: t.Sequence[str],
    before: t.Mapping[str, t.Any],
    name: str = "Ask other hosts what they have of the VM",
    keeps: t.Sequence[str] = ("vm", "move", "term"),
) -> Part:
    """Ask hosts what they have of the VM. Return that with what is known before, "" for those that do not say it."""
    answers = {**before, **dict.fromkeys(hosts, "")}
    for host in hosts:
        options = run.options(host)
        if options is None:
            continue
        arguments = {"step": "look", "vm": vm, "name": host, **options}
        answer = yield Call(name, host, "move", arguments, keeps, hidden=True, may_fail=True, may_be_lost=True)
        if "vm" in answer.result:
            answers[host] = {key: answer.result[key] for key in keeps}
    return answers


def _ask_takers(move: Move, run: Run, known: _Known) -> Part:
    """Ask the hosts that could have taken the VM over. Return what they say."""
    begun = known.seen["move"] or {}
    takers = [host for host in begun.get("asks", "").split(",") if host]
    hosts = [host for host in dict.fromkeys([move.target, *takers]) if host != move.source and host not in move.seen]
    answers: _Dict = yield from _ask(run, known.uuid, hosts if begun else [], {})
    return {**{host: one for host, one in move.seen.items() if host != move.source}, **answers}


def _leave(move: Move, run: Run, known: _Known) -> Part:
    """Bring the disks over and end the VM on its host. Return what check mode shows, and how it has left."""
    record, pool = known.seen["record"], move.target_pool or known.seen["pool"]
    arguments = move.target_arguments("expect", vm=known.uuid, name=move.target, record=record, target_pool=pool)
    arguments.update(move.lock_options, incoming_allowed=move.incoming_allowed, memory=known.seen["memory"])
    name = "Ask the target whether the VM can come"
    expects = Call(name, move.target, "move", arguments, ("ready",), hidden=True, may_fail=True)
    _refuse(move, known, (yield expects._replace(check=True, may_be_lost=True)))
    sync = replace(move.sync, vms=[known.uuid], peer_pool=pool, moves=True)
    planned = yield from keep_replicas(sync, run)
    runs = record["state"] == "running"
    if run.check:
        takes = record["quota"] + (record["flexible"] or 0) * 1048576
        sent = known.seen["memory"] or {}
        memory = int(sent.get("memory", 0)) * 1048576
        saved = bool(sent.get("saved"))
        lines = outlook.lines(planned, move.vm, move.host_names, runs, takes, known.seen["lost"], memory, saved)
        yield Message("Say what would happen", lines)
        return {"outlook": {"lines": lines, "downtime": outlook.downtime(planned, runs, memory)}}, _Left()
    try:
        _refuse(move, known, (yield expects._replace(name="Make the VM on the target, without disks")))
        if runs:
            yield from keep_replicas(sync, run)  # what was written meanwhile
        return {}, (yield from _switch(move, sync, known))
    except Stopped as exc:
        try:
            yield from _stay(move, run, known.uuid)
        except Stopped as other:
            raise Stopped(str(exc) if str(other) in str(exc) else f"{exc}; then: {other}") from exc
        raise Stopped(f"{move.vm} stays on {move.source}: {exc}") from exc


def _refuse(move: Move, known: _Known, expected: Answer) -> None:
    """Refuse a move that the target cannot take."""
    if expected.lost:
        raise Stopped(
            f"{move.target} could not be reached, so this run has begun nothing and changed nothing: {move.vm} is on"
            f" {move.source}. The same command goes on when {move.target} answers"
        )
    if not expected.result.get("ready"):
        stands = "Its guest stands still" if known.seen["memory"] else "The VM is stopped"
        down = f". {stands} for its move; flexdisk_move_state=stays gives it back"
        message = expected.msg or "the target did not answer"
        raise Stopped(f"{message}{down if known.phase == LEAVING else ''}")


def _switch(move: Move, sync: Sync, known: _Known) -> Part:
    """Stop the VM, send what it has written last, and end it where it was. Return how it has left."""
    transfer, host_keys = yield from announce(sync, move.suspends)
    leave_arguments = move.source_arguments(
        "leave", vm=known.uuid, name=move.source, digest=known.seen["digest"], peer_name=move.target
    )
    leave_arguments.update(move.stop_options, transfer=transfer)
    leave_arguments.update(suspends=move.suspends, allow_memory_loss=move.allow_memory_loss)
    left, variables = _Left(), None
    if known.seen["record"]["description"].get("variables"):
        stop_arguments = {**leave_arguments, "step": "stop"}
        name = "Stop the VM before its UEFI variables are read"
        asked = yield Call(name, move.source, "move", stop_arguments, _ENDED)
        left = _Left(asked.began, asked.result.get("memory_lost", ""))
        variables = yield from _bring_variables(move, known.uuid)
        leave_arguments.update(move.patience)
    leave_arguments.update(address=sync.address, port=sync.port, host_keys=host_keys)
    leave_arguments.update(bandwidth_limit=sync.bandwidth_limit, variables=variables)
    # From here to its start on the target, the VM is down: each is one call of a module, and needs no other one.
    name = "Stop the VM, send what it has written last, and end it here"
    gone = yield Call(name, move.source, "move", leave_arguments, _ENDED)
    if not gone.changed:
        raise Stopped(gone.msg)  # what follows must not run while the VM is there
    return _Left(left.stopped or gone.began, left.memory_lost or gone.result.get("memory_lost", ""))


def _bring_variables(move: Move, uuid: str) -> Part:
    """Give the UEFI variables of the VM that was stopped to the target. Return their digest."""
    look_arguments = move.source_arguments("look", vm=uuid, name=move.source, peer_name=move.target)
    name = "Look at the UEFI variables of the VM that was stopped"
    looked = yield Call(name, move.source, "move", look_arguments, ("record",), hidden=True)
    waits = {**move.lock_options, **move.patience}
    renew_arguments = move.target_arguments("renew", vm=uuid, record=looked.result["record"] or {}, **waits)
    renewed = yield Call("Give them to the target", move.target, "move", renew_arguments, ("variables",), hidden=True)
    return renewed.result["variables"]


def _go_on(move: Move, run: Run, known: _Known) -> Part:
    """Make replicas of the disks that are left, unless another host has taken the VM over since it had left."""
    asks = dict.fromkeys([*known.seen["asks"], *known.others]) if known.seen["asks"] else {}
    hosts = [host for host in asks if host not in (move.source, move.target)]
    others = yield from _ask(run, known.uuid, hosts, known.others)  # again by UUID: it may be called differently there
    arguments = move.source_arguments(
        "go", vm=known.uuid, peer_name=move.target, peers=others, unasked=move.unasked, **move.stop_options
    )
    name = "Make replicas of the disks that are left, unless it was taken over"
    yield Call(name, move.source, "move", arguments)


def _arrival(move: Move, known: _Known) -> Call:
    keys = {"authorized_keys": move.sync.authorized_keys}
    arguments = move.target_arguments("arrive", vm=known.uuid, peer_name=move.source, **keys, **move.stop_options)
    arguments.update(incoming_allowed=move.incoming_allowed, allow_memory_loss=move.allow_memory_loss)
    arguments.update(move.patience)
    return Call("Give the VM its disks, and start it", move.target, "move", arguments, _ENDED)


def _arrive(move: Move, known: _Known, left: _Left) -> Part:
    """Start the VM on its new host, and tidy up where it was."""
    came = yield _arrival(move, known)
    before = known.seen["move"]
    runs = (before or known.seen["record"])["state"] == "running"
    lost = left.memory_lost or came.result.get("memory_lost", "")
    memory = outlook.MemoryEnd("lost" if lost else came.result.get("memory", ""), lost)
    ended = outlook.move_end(move.vm, move.host_names, before, runs, left.stopped, came.ended, memory)
    yield Message("Say how long the VM was down", ended.line)
    tidy_arguments = move.source_arguments("tidy", vm=known.uuid, **move.stop_options)
    # The VM is there, and the next sync does it, too.
    name = "Tidy up where the VM was"
    tidied = yield Call(name, move.source, "move", tidy_arguments, may_fail=True, may_be_lost=True)
    if memory.word and (tidied.lost or tidied.failed):
        text = f"{move.source} may still have the saved memory of {move.vm} ({tidied.msg or 'it did not answer'})"
        text += f"; the same command destroys it, and so does the next sync from {move.target}"
        yield Message("Say that memory is left", text)
    return {"downtime": ended.downtime, "memory": memory.word, "memory_lost": lost}


def _stay(move: Move, run: Run, uuid: str, others: t.Optional[_Dict] = None) -> Part:
    """Give the VM back what it had, and remove what the target has made of it.

    others: what other hosts say of the VM if somebody has asked for this, None if this run has failed.
    """
    wait_options = {**move.lock_options, "stop_timeout": move.stop_timeout, **move.patience}
    name, keeps = "Give the VM back what it had", ("stayed", "term", *_ENDED)
    stay_arguments = move.source_arguments("stay", vm=uuid, allow_memory_loss=move.allow_memory_loss, **wait_options)
    stay_arguments.update({} if others is None else {"peers": others, "unasked": move.unasked})
    stayed = yield Call(name, move.source, "move", stay_arguments, keeps)
    given_up = {"stayed": stayed.result.get("stayed", 0), "term": stayed.result.get("term", 0)}  # none in check mode
    keys = {"authorized_keys": move.sync.authorized_keys}
    arguments = move.target_arguments("cancel", vm=uuid, **given_up, **keys, **move.lock_options)
    name = "Remove what the target has made of it"
    canceled = yield Call(name, move.target, "move", arguments, may_be_lost=True)
    if others is None:
        return
    if not stayed.changed and not canceled.changed and not canceled.lost:
        yield Message("Say that there was nothing to end", f"there is no move of {move.vm} to end")
        return
    memory = outlook.MemoryEnd(stayed.result.get("memory", ""), stayed.result.get("memory_lost", ""))
    rest = f"; {move.target} did not answer, and may still have what was made of it: run this again"
    yield Message(
        "Say that the move was given up",
        f"the move of {move.vm} to {move.target} {'would be' if run.check else 'is'} given up; it stays on"
        f" {move.source}{outlook.memory_text(memory)}{rest if canceled.lost else ''}",
    )


def _forget(move: Move, run: Run) -> Part:
    """Give the tombstone up, if the host where the VM went says that it has it."""
    look_arguments = move.source_arguments("look", vm=move.vm, name=move.source)
    looked = yield Call("Look at the tombstone", move.source, "move", look_arguments, ("move",), hidden=True)
    stone = looked.result["move"] or {}
    went, peers = stone.get("host", ""), dict(move.seen)
    vm_there = (move.seen.get(went) or {}).get("vm", "")
    if went and run.options(went) is not None and vm_there != stone["vm"]:  # it may have another name there
        name = "Ask the host where the VM went"
        peers.update((yield from _ask(run, stone["vm"], [went], {}, name, ("vm", "move"))))
    forget_arguments = move.source_arguments(
        "forget", vm=move.vm, peers=peers, unseen=move.forget_unseen, **move.lock_options
    )
    forgotten = yield Call("Give a tombstone up", move.source, "move", forget_arguments)
    if forgotten.changed:
        gone = f", which had gone to {went}," if stone else ""
        ends = "would be given up" if run.check else "is gone, and its name is free there"
        yield Message("Say that the tombstone is gone", f"the tombstone of {move.vm} on {move.source}{gone} {ends}")
    return {"forgotten": forgotten.changed}
