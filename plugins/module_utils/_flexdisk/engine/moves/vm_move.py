# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a move that the module host_step carries out: their arguments and results."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field, replace

from ...fleet.replication import last, trust
from ...fleet.replication.record import Record, read_record, record_as_result
from ...fleet.replication.transfers import HOST_KEY, VmTransfer, read_transfers
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem, Problems, failure_text, refusal
from ...model.sizes import MIB, parse_size
from ...rules import incoming
from ...rules.identity import is_pool, is_uuid
from ...rules.moves import GivenUp, Sighting, read_sightings
from ...rules.replicas import is_host
from ...rules.saved_memory import PATIENT_SECONDS, read_traveller
from ..host import lock, progress
from ..host.journal import host_name
from ..replication.replica_send import Sender
from ..run.arguments import seconds
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from ..run.module_run import locked as module_locked
from ..run.settled import read_settled
from .replica_last import LastTransfer
from .vm_arrival import MoveTarget
from .vm_departure import MoveSource

_Params = t.Mapping[str, t.Any]
_Log = t.Callable[[str], None]
_DONE = {
    "stop": "the VM is stopped",
    "leave": "the VM has left",
    "stay": "the VM stays",
    "cancel": "the VM does not come",
    "renew": "the UEFI variables are here",
    "go": "the VM has left",
    "expect": "the VM can come",
    "arrive": "the VM is here",
    "tidy": "older snapshots of the sync are gone",
    "forget": "the name is free",
}
_IDLE = {
    "stay": "no move of the VM has begun here",
    "cancel": "the VM was not expected here",
    "forget": "there is no tombstone of the VM here",
}


@dataclass(frozen=True)
class MoveArguments:
    """The checked arguments of one step of a move."""

    params: _Params
    record: t.Optional[Record]
    transfer: t.Optional[VmTransfer]
    policy: Policy
    memory: t.Optional[t.Dict[str, t.Any]] = None
    """What the other host says of the memory that is to come."""
    limit: int = 0
    """Bytes per second, 0 for no limit."""
    seen: t.Mapping[str, t.Optional[Sighting]] = field(default_factory=dict)
    """What other hosts say of the VM, None for a host that could not be asked."""

    @property
    def address(self) -> trust.Address:
        """The SSH address of the other host."""
        return trust.Address(self.params["address"], self.params["port"])


def parse(params: _Params) -> t.Tuple[MoveArguments, t.List[Problem]]:
    """Return the checked arguments and all their problems.

    Raises FlexdiskError if the record or the last transfer cannot be read at all.
    """
    problems = Problems("")
    if params["step"] not in ("look", "forget") and not is_uuid(params["vm"]):
        problems.add("InvalidArgument", f"vm {params['vm']!r:.100} is not a UUID")
    for key in ("name", "peer_name"):
        if params[key] is not None and not is_host(params[key]):
            problems.add("InvalidArgument", f"{key} {params[key]!r:.100} is not the name of a host")
    if params["target_pool"] is not None and not is_pool(params["target_pool"]):
        problems.add("InvalidArgument", f"target_pool {params['target_pool']!r:.100} is not the name of a pool")
    record = read_record(params["record"]) if params["record"] is not None else None
    if record is not None and record.uuid != params["vm"]:
        problems.add("InvalidArgument", f"record is that of VM {record.uuid}, not of {params['vm']}")
    transfer = read_transfers([params["transfer"]])[0] if params["transfer"] is not None else None
    memory = read_traveller(params["memory"]) if params.get("memory") is not None else None
    for message in incoming.problems(params["incoming_allowed"]):
        problems.add("InvalidArgument", message)
    policy = Policy(
        stop_timeout=problems.attempt("", seconds, params, "stop_timeout"),
        allow_force_stop=params["allow_force_stop"],
        incoming_allowed=tuple(params["incoming_allowed"]),
    )
    limit = params["bandwidth_limit"]
    limit_mib = problems.attempt("", lambda: parse_size(limit, name="bandwidth_limit")) if limit is not None else None
    arguments = MoveArguments(
        params, record, transfer, policy, memory, (limit_mib or 0) * MIB, read_sightings(params.get("peers") or {})
    )
    if transfer is not None and params["step"] == "leave":
        _check_way(arguments, transfer, problems)
    return arguments, list(problems)


def _check_way(arguments: MoveArguments, transfer: VmTransfer, problems: Problems) -> None:
    last.check(transfer)
    if transfer.uuid != arguments.params["vm"] or not transfer.asks:
        problems.add("InvalidArgument", f"transfer is none that was announced for VM {arguments.params['vm']}")
    for message in trust.check_address(arguments.address):
        problems.add("InvalidArgument", message)
    keys = arguments.params["host_keys"]
    if not keys or not all(HOST_KEY.fullmatch(key) for key in keys):
        problems.add("InvalidArgument", "host_keys are not public keys of a host")


def run(call: Call, log: _Log, arguments: MoveArguments) -> Answer:
    """Carry out the step. log writes a line to the host's log."""
    params = arguments.params
    common = (call.zfs, call.hypervisor, call.runner, arguments.policy)
    source, target = MoveSource(*common), MoveTarget(*common, params["authorized_keys"], params["name"] or "")
    step, uuid = params["step"], params["vm"]
    if step == "look":
        return _look(source, call, arguments)
    if step == "expect" and call.check_mode:
        record, pool = t.cast(Record, arguments.record), params["target_pool"]
        problems = target.predict_problems(record, pool, memory=arguments.memory)
        ready = {"changed": False, "msg": _DONE[step], "ready": True}
        return Answer(ready, refusal(problems) if problems else None)
    _check_others(source, target, arguments)
    if call.check_mode and step == "arrive":
        target.check_memory(uuid, params["allow_memory_loss"])
    if call.check_mode and step == "arrive" and params["peers"] is not None:
        comes = target.is_expected(uuid)
        return Answer({"changed": comes, "msg": "the VM arrives, and starts if it ran" if comes else _DONE[step]})
    if call.check_mode and step in ("stay", "cancel"):
        changes = source.would_stay(uuid, params["allow_memory_loss"]) if step == "stay" else target.would_cancel(uuid)
        return Answer({"changed": changes, "msg": _DONE[step] if changes else _IDLE[step]})
    if call.check_mode and step != "forget":
        return Answer({"changed": False, "msg": "nothing is moved in check mode"})
    if step == "renew":
        variables = target.renew(t.cast(Record, arguments.record))
        return Answer({"changed": True, "msg": _DONE[step], "variables": variables})
    changed = _change(source, target, call, log, arguments)
    message = _DONE[step] if changed else _IDLE.get(step, _DONE[step])
    result = {"changed": changed, "msg": message, **({"ready": True} if step == "expect" else {})}
    if step == "stay":
        result.update(stayed=source.given_up.number, term=source.given_up.term)
    lost = source.memory_lost or target.memory_lost
    if step in ("stay", "arrive") or lost:
        result.update(_memory_end(source, target, lost))
    warnings = [f"VM {uuid}: memory lost: {lost}"] if lost else []
    warnings += [source.left_down, source.memory_left or target.memory_left, source.seals_left]
    return Answer(result, None, [*filter(None, warnings)])


def _memory_end(source: MoveSource, target: MoveTarget, lost: str) -> t.Dict[str, t.Any]:
    """Return what the result says of the memory of the guest. lost: why it is."""
    word = "restored" if source.memory_restored or target.memory_restored else ""
    if lost:
        word = "kept_down" if source.left_down else "lost"
    return {"memory": word, "memory_lost": lost}


def _check_others(source: MoveSource, target: MoveTarget, arguments: MoveArguments) -> None:
    """Raise FlexdiskError if other hosts say that they have the VM, or may have it."""
    params, step, uuid = arguments.params, arguments.params["step"], arguments.params["vm"]
    if step == "go":
        source.check_can_leave(uuid, params["peer_name"], arguments.seen, params["unasked"])
    if step == "arrive" and params["peers"] is not None:
        target.check_can_arrive(uuid, params["name"] or host_name(), arguments.seen, params["unasked"])
    if step == "stay" and params.get("peers") is not None:  # the run that fails asks nobody
        source.check_can_stay(uuid, arguments.seen, params["unasked"])


def _change(source: MoveSource, target: MoveTarget, call: Call, log: _Log, arguments: MoveArguments) -> bool:
    """Carry out a step that changes something. Return whether there was anything to do."""
    params, step, uuid = arguments.params, arguments.params["step"], arguments.params["vm"]
    if step == "arrive":
        return target.arrive(uuid, params["peer_name"], allow_memory_loss=params["allow_memory_loss"])
    if step == "tidy":
        return source.tidy(uuid)
    if step == "forget":
        return source.forget(uuid, arguments.seen, params["unseen"], call.check_mode)
    if step == "stay":
        return source.stay(uuid, params["allow_memory_loss"])
    if step == "cancel":
        return target.cancel(uuid, given_up=GivenUp(params["term"], params["stayed"]))
    if step == "expect":
        target.expect(t.cast(Record, arguments.record), params["target_pool"], memory=arguments.memory)
    elif step == "stop":
        pool = t.cast(VmTransfer, arguments.transfer).peer
        source.leave(uuid, params["name"], params["peer_name"], pool, params["digest"], params["suspends"])
        with _or_stays(source, params, contextlib.nullcontext()):
            source.save_memory(uuid, params["allow_memory_loss"])
    elif step == "leave":
        _leave(source, call, log, arguments)
    else:
        source.go(uuid, params["peer_name"])
    return True


def _leave(source: MoveSource, call: Call, log: _Log, arguments: MoveArguments) -> None:
    """Stop the VM, send what is left and end it here.

    The host's lock is held while the host changes, but not during the last transfer.
    """
    params, transfer = arguments.params, t.cast(VmTransfer, arguments.transfer)
    uuid, here, peer = params["vm"], params["name"], params["peer_name"]
    last_transfer = LastTransfer(Sender(call.zfs, call.hypervisor, call.runner, None))

    def locked() -> t.ContextManager[t.List[str]]:
        waits = {**params, "lock_timeout": PATIENT_SECONDS} if source.memory_is_saved else params
        return module_locked(call.runner, None, waits, f"the move of VM {uuid} to {peer}", log)

    with lock.transfers(call.runner, [uuid], f"the move to {peer}") as transfer_lock:
        with locked():
            description = source.leave(uuid, here, peer, transfer.peer, params["digest"], params["suspends"])
            with _or_stays(source, params, contextlib.nullcontext()):
                source.save_memory(uuid, params["allow_memory_loss"])
                taken = last_transfer.take(transfer if source.memory_is_saved else replace(transfer, memory=None))
        with _or_stays(source, params, locked()), progress.reporting(transfer_lock, log, arguments.limit) as meter:
            last_transfer.send(taken, arguments.address, params["host_keys"], meter, here)
        with _or_stays(source, params, locked()), locked():
            source.go(uuid, peer, taken, description, params["variables"] or "")


@contextlib.contextmanager
def _or_stays(source: MoveSource, params: _Params, locked: t.ContextManager[t.Any]) -> t.Iterator[None]:
    """Give the move up if the body fails while the VM is down. The controller may be gone and not do so itself.

    locked: the lock that stay() needs.
    """
    try:
        yield
    except FlexdiskError as exc:
        uuid = params["vm"]
        try:
            with locked:
                source.stay(uuid, params["allow_memory_loss"])
            lost = f"memory lost, so it has booted: {source.memory_lost}" if source.memory_lost else ""
            why_down = "; ".join(
                filter(None, (source.left_down, lost if not source.left_down else "", source.memory_left))
            )
        except FlexdiskError as other:
            why_down = (
                f"VM {uuid} could not be started again, and is down: {other.message}. The playbook move_vm goes on, or"
            )
            why_down += " gives the move up with flexdisk_move_state=stays"
        raise FlexdiskError(exc.code, "; ".join(filter(None, (exc.message, why_down)))) from exc


def _look(source: MoveSource, call: Call, arguments: MoveArguments) -> Answer:
    params = arguments.params

    def read() -> t.Dict[str, t.Any]:
        words = (params["suspends"], params["allow_memory_loss"])
        return source.look(params["vm"], params["name"], params["peer_name"] or "", arguments.seen, *words)

    task = f"a look at VM {params['vm']}"
    seen = read_settled(call, params, task, read, lambda seen: not seen["vm"] and not seen["move"])
    problems = seen["refusals"] + _under_way(seen["vm"], seen["record"])
    record = seen["record"]
    phase = seen["move"]["phase"] if seen["move"] else ""
    summary = f"has VM {record.label}" if record is not None else "does not have this VM"
    return Answer(
        {
            **seen,
            "changed": False,
            "msg": f"the host {summary}{f' ({phase})' if phase else ''}",
            "record": record_as_result(record) if record is not None else None,
            "refusals": [failure_text([problem]) for problem in problems],
        }
    )


def _under_way(uuid: str, record: t.Optional[Record]) -> t.List[Problem]:
    """Return why the VM cannot be moved now: a run whose controller is gone may still be at work on it."""
    who = lock.transfer_of(uuid) if uuid else ""
    text = f"its disks are being replicated by {who}; run the same command again when that has ended"
    return [Problem("Locked", text, record.label if record is not None else uuid)] if who else []


MOVE = HostRun(
    task=lambda params: f"the move of VM {params['vm']}, step {params['step']}",
    parse=parse,
    run=lambda call, log, _params, given: run(call, log, given),
    reads=("look", "leave"),  # which locks by itself
)
