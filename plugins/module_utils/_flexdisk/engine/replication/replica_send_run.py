# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a sync on the home, for host_step: their arguments, locks and results."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...fleet.replication import report, trust
from ...fleet.replication.peers import Peer, read_peer
from ...fleet.replication.transfers import HOST_KEY, VmTransfer, read_transfers, transfer_as_result
from ...model.errors import Problem, Problems, refusal
from ...model.sizes import MIB, parse_size, render_bytes
from ...model.text import count
from ...rules.identity import is_pool, is_uuid
from ...rules.replicas import is_host
from ...rules.retention import RetainCounts, read_counts
from ...rules.unmanaged import unmanaged
from ..host import lock, progress
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from .replica_send import Sender, SyncPolicy
from .trust import unresolved


@dataclass(frozen=True)
class StepCall:
    """The call of a step."""

    params: t.Mapping[str, t.Any]
    log: t.Callable[[str], None]
    """Writes a line to the host's log."""


@dataclass(frozen=True)
class SendArguments:
    """The checked arguments of a step."""

    transfers: t.List[VmTransfer]
    peer: t.Optional[Peer]
    limit: int
    """Bytes per second, 0 for no limit."""
    keep: t.Sequence[t.Optional[RetainCounts]] = (None, None)
    """The older sets that stay on the peer and on the home, None if they stay as the last sync had it."""


def parse(params: t.Mapping[str, t.Any]) -> t.Tuple[SendArguments, t.List[Problem]]:
    """Return the checked arguments and all their problems. Raises FlexdiskError if one cannot be read at all."""
    problems = Problems("")
    limit = params["bandwidth_limit"]
    limit_mib = problems.attempt("", lambda: parse_size(limit, name="bandwidth_limit")) if limit is not None else None
    if not is_host(params["peer_name"]):
        problems.add("InvalidArgument", f"peer_name {params['peer_name']!r:.100} is not the name of a host")
    if params["peer_pool"] is not None and not is_pool(params["peer_pool"]):
        problems.add("InvalidArgument", f"peer_pool {params['peer_pool']!r} is not the name of a pool")
    for message in trust.check_address(_address(params)) if params["address"] is not None else ():
        problems.add("InvalidArgument", message)
    if params["step"] == "send":
        if not params["transfers"]:
            problems.add("MissingParameter", "transfers has no VM")
        if not params["host_keys"] or not all(HOST_KEY.fullmatch(key) for key in params["host_keys"]):
            problems.add("InvalidArgument", "host_keys are not public keys of a host")
    for uuid in params["complete"] or ():
        if not is_uuid(uuid):
            problems.add("InvalidArgument", f"complete: {uuid!r:.100} is not a UUID")
    if params["vms"] is not None and not params["vms"]:
        problems.add("MissingParameter", "vms names no VM")
    peer = None
    if params["peer"] is not None:
        peer = read_peer(params["peer_name"], params["peer_pool"] or "", params["peer"])
    keep = _keep(params, problems)
    return SendArguments(read_transfers(params["transfers"] or ()), peer, (limit_mib or 0) * MIB, keep), list(problems)


def _keep(params: t.Mapping[str, t.Any], problems: Problems) -> t.List[t.Optional[RetainCounts]]:
    counts: t.List[t.Optional[RetainCounts]] = []
    for name in ("keep", "keep_home"):
        try:
            counts.append(read_counts(params[name]) if params[name] is not None else None)
        except ValueError as exc:
            problems.add("InvalidArgument", f"{name}: {exc}")
    return counts


def run(call: Call, step_call: StepCall, arguments: SendArguments) -> Answer:
    """Carry out the step."""
    sender = Sender(call.zfs, call.hypervisor, call.runner, call.pool)
    step = step_call.params["step"]
    return _STEPS[step](sender, call, step_call, arguments)


def _address(params: t.Mapping[str, t.Any]) -> trust.Address:
    return trust.Address(params["address"], params["port"])


def _prepare(sender: Sender, call: Call, step_call: StepCall, arguments: SendArguments) -> Answer:
    peer, last = t.cast(Peer, arguments.peer), step_call.params["step"] == "announce"
    policy = SyncPolicy(last, arguments.keep, step_call.params["goes_on"])
    planned = sender.plan(step_call.params["vms"], peer, policy)
    address_error = (
        unresolved(call.runner, _address(step_call.params)) if step_call.params["address"] is not None else ""
    )
    problems = [*planned.problems, *([Problem("ResourceNotFound", address_error)] if address_error else [])]
    if problems:
        return Answer({}, refusal(problems))
    transfers = planned.transfers
    failures: t.List[str] = []
    if not call.check_mode:
        with _transfers(call, transfers, f"a sync to {peer.name}"):
            if last:
                transfers = sender.announce(planned, step_call.params["suspends"])
            else:
                transfers, failures = sender.prepare(planned, peer.name)
    labelled = list(zip((vm.config.label for vm in planned.vms), planned.syncs))
    idle = all(one.idle for one in planned.syncs)
    msg = report.summary(labelled, peer.name)
    return Answer(
        {
            "changed": not idle,
            "msg": msg,
            "transfers": [transfer_as_result(vm) for vm in transfers],
            "stream_bytes": sum(vm.sends for vm in transfers),
            "rate": planned.rate,
            "space": [one._asdict() for one in planned.space],
            "idle": idle,
            "failover": [vm.config.uuid for vm in planned.vms if vm.config.failover],
            "failures": planned.failures + failures,
            "labels": planned.labels,
            "diff": {"prepared": "" if idle else msg + "\n" + report.diff_text(labelled)},
        },
        warnings=[f"{vm.label}: {text}; it is not replicated" for vm in planned.vms for text in unmanaged(vm)],
    )


def _send(sender: Sender, call: Call, step_call: StepCall, arguments: SendArguments) -> Answer:
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is sent in check mode", "sent": []})
    params = step_call.params
    address = _address(params)
    locks = _transfers(call, arguments.transfers, f"a transfer to {params['peer_name']}")
    with locks as transfer_lock, progress.reporting(transfer_lock, step_call.log, arguments.limit) as meter:
        sent = sender.send(arguments.transfers, address, params["host_keys"], meter)
    failed = [one["alias"] or one["vm"] for one in sent if one["failure"]]
    msg = f"{render_bytes(meter.carried)} sent to {params['peer_name']}"
    msg += f"; failed: {', '.join(failed)}" if failed else ""
    return Answer({"changed": bool(meter.carried), "msg": msg, "sent": sent})


def _finish(sender: Sender, call: Call, step_call: StepCall, arguments: SendArguments) -> Answer:
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is tidied in check mode"})
    with _transfers(call, arguments.transfers, "the end of a sync"):
        changed, failures = sender.finish(
            arguments.transfers, step_call.params["complete"], step_call.params["peer_name"]
        )
    msg = f"{count(len(step_call.params['complete']), 'VM has', 'VMs have')} complete replicas"
    return Answer({"changed": changed, "msg": msg, "failures": failures})


def _remove(sender: Sender, call: Call, step_call: StepCall, arguments: SendArguments) -> Answer:
    peer = step_call.params["peer_name"]
    ended = sender.remove(step_call.params["vms"], peer, call.check_mode)
    if ended.problems:
        return Answer({}, refusal(ended.problems))
    diff = "".join(f"- {name}\n" for name in ended.gone)
    msg = (
        f"{count(len(ended.gone), 'snapshot or bookmark', 'snapshots and bookmarks')} of the sync with {peer} destroyed"
    )
    changed = bool(ended.gone) or ended.had_notes
    removed = {"uuids": ended.uuids, "names": ended.names, "homes": ended.homes, "gone": ended.gone}
    return Answer({"changed": changed, "msg": msg, **removed, "failover": ended.failover, "diff": {"prepared": diff}})


def _transfers(call: Call, vms: t.Sequence[VmTransfer], task: str) -> t.ContextManager[progress.HeldLock]:
    return lock.transfers(call.runner, [vm.uuid for vm in vms], task)


_STEPS: t.Mapping[str, t.Callable[[Sender, Call, StepCall, SendArguments], Answer]] = {
    "prepare": _prepare,
    "announce": _prepare,
    "send": _send,
    "finish": _finish,
    "remove": _remove,
}


def _task(params: t.Mapping[str, t.Any]) -> str:
    vms = f" of {', '.join(params['vms'])}" if params["vms"] else ""
    return f"a sync{vms} to {params['peer_name']}, step {params['step']}"


SEND = HostRun(
    task=_task,
    parse=parse,
    run=lambda call, log, params, told_: run(call, StepCall(params, log), told_),
    reads=("send",),  # which takes long and changes no disk of this host, so that others need not wait for it
    every_pool=False,
)
