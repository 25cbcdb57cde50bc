# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a sync on the home, done by host_step: their arguments, locks, and what they tell."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...fleet.replication import report, trust
from ...fleet.replication.peers import Peer, read_peer
from ...fleet.replication.transfers import HOST_KEY, VmTransfer, read_transfers, told
from ...model.errors import Problem, Problems, refusal
from ...model.sizes import MIB, parse_size, render_bytes
from ...model.text import count
from ...rules.identity import is_pool, is_uuid
from ...rules.replicas import is_host
from ...rules.unmanaged import unmanaged
from ..host import lock, progress
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from .replica_send import Sender
from .trust import unresolved


@dataclass(frozen=True)
class Given:
    """The call of a step. log writes a line to the host's log."""

    params: t.Mapping[str, t.Any]
    log: t.Callable[[str], None]


@dataclass(frozen=True)
class Told:
    """The arguments after a check."""

    transfers: t.List[VmTransfer]
    peer: t.Optional[Peer]
    limit: int


def parse(params: t.Mapping[str, t.Any]) -> t.Tuple[Told, t.List[Problem]]:
    """The arguments, and all their problems. Raises FlexdiskError for transfers or a peer that are none."""
    problems = Problems("")
    limit = params["bandwidth_limit"]
    rate = problems.attempt("", lambda: parse_size(limit, name="bandwidth_limit")) if limit is not None else None
    if not is_host(params["peer_name"]):
        problems.add("InvalidArgument", f"peer_name {params['peer_name']!r:.100} is not the name of a host")
    if params["peer_pool"] is not None and not is_pool(params["peer_pool"]):
        problems.add("InvalidArgument", f"peer_pool {params['peer_pool']!r} is not the name of a pool")
    for words in trust.check_address(_address(params)) if params["address"] is not None else ():
        problems.add("InvalidArgument", words)
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
    return Told(read_transfers(params["transfers"] or ()), peer, (rate or 0) * MIB), list(problems)


def run(call: Call, given: Given, told_: Told) -> Answer:
    """Do the step."""
    sender = Sender(call.zfs, call.hypervisor, call.runner, call.pool)
    step = given.params["step"]
    return _STEPS[step](sender, call, given, told_)


def _address(params: t.Mapping[str, t.Any]) -> trust.Address:
    return trust.Address(params["address"], params["port"])


def _prepare(sender: Sender, call: Call, given: Given, told_: Told) -> Answer:
    peer, last = t.cast(Peer, told_.peer), given.params["step"] == "announce"
    planned = sender.plan(given.params["vms"], peer, fresh=last)
    lost = unresolved(call.runner, _address(given.params)) if given.params["address"] is not None else ""
    problems = [*planned.problems, *([Problem("ResourceNotFound", lost)] if lost else [])]
    if problems:
        return Answer({}, refusal(problems))
    transfers = planned.transfers
    failures: t.List[str] = []
    if not call.check_mode:
        with _transfers(call, transfers, f"a sync to {peer.name}"):
            transfers, failures = (sender.announce(planned), []) if last else sender.prepare(planned, peer.name)
    shown = list(zip((vm.config.label for vm in planned.vms), planned.syncs))
    idle = all(one.idle for one in planned.syncs)
    msg = report.summary(shown, peer.name)
    return Answer(
        {
            "changed": not idle,
            "msg": msg,
            "transfers": [told(vm) for vm in transfers],
            "stream_bytes": sum(vm.sends for vm in transfers),
            "rate": planned.rate,
            "space": [one._asdict() for one in planned.space],
            "idle": idle,
            "failover": [vm.config.uuid for vm in planned.vms if vm.config.failover],
            "failures": planned.failures + failures,
            "diff": {"prepared": "" if idle else msg + "\n" + report.diff_text(shown)},
        },
        warnings=[f"{vm.label}: {text}; it is not replicated" for vm in planned.vms for text in unmanaged(vm)],
    )


def _send(sender: Sender, call: Call, given: Given, told_: Told) -> Answer:
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is sent in check mode", "sent": []})
    params = given.params
    address = _address(params)
    lock_of = _transfers(call, told_.transfers, f"a transfer to {params['peer_name']}")
    with lock_of as held, progress.telling(held, given.log, told_.limit) as meter:
        sent = sender.send(told_.transfers, address, params["host_keys"], meter)
    failed = [one["alias"] or one["vm"] for one in sent if one["failure"]]
    msg = f"{render_bytes(meter.carried)} sent to {params['peer_name']}"
    msg += f"; failed: {', '.join(failed)}" if failed else ""
    return Answer({"changed": bool(meter.carried), "msg": msg, "sent": sent})


def _finish(sender: Sender, call: Call, given: Given, told_: Told) -> Answer:
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is tidied in check mode"})
    with _transfers(call, told_.transfers, "the end of a sync"):
        changed, failures = sender.finish(told_.transfers, given.params["complete"], given.params["peer_name"])
    msg = f"{count(len(given.params['complete']), 'VM has', 'VMs have')} complete replicas"
    return Answer({"changed": changed, "msg": msg, "failures": failures})


def _remove(sender: Sender, call: Call, given: Given, told_: Told) -> Answer:
    peer = given.params["peer_name"]
    done = sender.remove(given.params["vms"], peer, call.check_mode)
    if done.problems:
        return Answer({}, refusal(done.problems))
    diff = "".join(f"- {name}\n" for name in done.gone)
    msg = (
        f"{count(len(done.gone), 'snapshot or bookmark', 'snapshots and bookmarks')} of the sync with {peer} destroyed"
    )
    changed = bool(done.gone) or done.noted
    removed = {"uuids": done.uuids, "names": done.names, "homes": done.homes, "gone": done.gone}
    return Answer({"changed": changed, "msg": msg, **removed, "failover": done.failover, "diff": {"prepared": diff}})


def _transfers(call: Call, vms: t.Sequence[VmTransfer], task: str) -> t.ContextManager[progress.Held]:
    return lock.transfers(call.runner, [vm.uuid for vm in vms], task)


_STEPS: t.Mapping[str, t.Callable[[Sender, Call, Given, Told], Answer]] = {
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
    run=lambda call, log, params, told_: run(call, Given(params, log), told_),
    reads=("send",),  # which takes long and changes no disk of this host, so that others need not wait for it
    every_pool=False,
)
