# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a failover that the module host_step carries out: their arguments and results."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ...fleet.replication.claims import Claims, Rival, better_elsewhere, read_claims, read_rivals
from ...fleet.replication.record import Record, read_record, record_as_result
from ...fleet.replication.whereabouts import MovedOn, Recorded, has_it, home_answers, moved_on, not_heard
from ...model.desired import Policy
from ...model.errors import Problem, Problems, refusal
from ...model.text import count
from ...rules import incoming
from ...rules.failover import FAILOVER_PROPERTY, decode_setting
from ...rules.identity import is_pool, is_uuid
from ...rules.knobs import limit_without
from ...rules.replicas import is_host
from ...zfs.copies import Copies
from ..host.journal import host_name
from ..moves.vm_arrival import advice_to_end
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from ..run.settled import read_settled
from . import failover_records, failover_start
from .failover_ending import EndRequest
from .failover_home import FailoverHome
from .failover_return import FailoverReturn
from .failover_stay import GiveUpTakeover
from .guests_service import why_host_starts_all
from .vm_takeover import TakeOver, TakeoverPlan, problems_of_age

_Params = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class FailoverArguments:
    """The checked arguments of one step of a failover."""

    params: _Params
    records: t.List[Record]
    claims: Claims


def parse(params: _Params) -> t.Tuple[FailoverArguments, t.List[Problem]]:
    """Return the checked arguments and all their problems. Raises FlexdiskError if a record cannot be read at all."""
    problems = Problems("")
    for key in ("name", "peer_name"):
        if params[key] is not None and not is_host(params[key]):
            problems.add("InvalidArgument", f"{key} {params[key]!r:.100} is not the name of a host")
    for message in incoming.problems(params["incoming_allowed"]):
        problems.add("InvalidArgument", message)
    for uuid, pool in (params["pools"] or {}).items():
        if not is_uuid(uuid) or not is_pool(str(pool)):
            problems.add("InvalidArgument", f"pools: {pool!r:.100} of {uuid!r:.100} is not the pool of a VM")
    if params["max_data_loss"] is not None and params["max_data_loss"] < 0:
        problems.add("InvalidArgument", f"max_data_loss {params['max_data_loss']} is negative")
    if params["step"] in ("drop", "note"):
        for uuid in params["vms"] or ():
            if not is_uuid(uuid):
                problems.add("InvalidArgument", f"vms: {uuid!r:.100} is not a UUID")
    records = [read_record(record) for record in params["records"] or ()]
    for record in records:
        if record.uuid not in (params["pools"] or {}):
            problems.add("MissingParameter", f"pools does not have VM {record.label}")
    return FailoverArguments(params, records, read_claims(params["peers"] or {})), list(problems)


def run(call: Call, arguments: FailoverArguments) -> Answer:
    """Carry out the step."""
    return _STEPS[arguments.params["step"]](call, arguments)


def _mark(call: Call, arguments: FailoverArguments) -> Answer:
    params = arguments.params
    home = FailoverHome(call.zfs, call.hypervisor, call.runner)
    marked = home.set_failover(
        params["vms"], params["failover"], params["name"], call.check_mode, params["peer_name"] or ""
    )
    if marked.problems:
        return Answer({}, refusal(marked.problems))
    msg = f"{count(len(marked.records), 'VM has', 'VMs have')} failover"
    written_records = [record_as_result(record) for record in marked.records]
    return Answer({"changed": marked.changed, "msg": msg, "records": written_records, "failures": marked.failures})


def _store(call: Call, arguments: FailoverArguments) -> Answer:
    pools = arguments.params["pools"]
    common = (call.zfs, call.hypervisor, call.runner)
    policy = Policy(incoming_allowed=tuple(arguments.params["incoming_allowed"]))
    news, problems = failover_records.store(*common, arguments.records, pools, call.check_mode, policy)
    if problems:
        return Answer({}, refusal(problems))
    return Answer({"changed": bool(news), "msg": f"{count(len(news), 'record')} taken in", "stored": True})


def _note(call: Call, arguments: FailoverArguments) -> Answer:
    labels = failover_records.note(arguments.params["vms"], arguments.params["peer_name"], call.check_mode)
    msg = f"{count(len(labels), 'record names', 'records name')} {arguments.params['peer_name']} from now on"
    return Answer({"changed": bool(labels), "msg": msg, "noted": labels})


def _drop(call: Call, arguments: FailoverArguments) -> Answer:
    problems = failover_records.in_use(call.zfs, call.hypervisor, arguments.params["vms"])
    if problems:
        return Answer({}, refusal(problems))
    gone = failover_records.drop(arguments.params["vms"], arguments.params["homes"], call.check_mode)
    return Answer({"changed": bool(gone), "msg": f"{count(len(gone), 'record')} removed", "gone": gone})


def _look(call: Call, arguments: FailoverArguments) -> Answer:
    which = (arguments.params["vm"] or "", arguments.params["vms"] or ())

    def read() -> t.Dict[str, t.Any]:
        return failover_start.look(call.zfs, call.hypervisor, Copies(call.runner), *which)

    result = read_settled(call, arguments.params, "a look at VMs with failover", read, lambda result: not result["vms"])
    return Answer({"changed": False, "msg": f"{count(len(result['vms']), 'VM is', 'VMs are')} here", **result})


def _start(call: Call, arguments: FailoverArguments) -> Answer:
    unasked, here = arguments.params["unasked"], arguments.params["name"] or ""
    fixed = (call.zfs, call.hypervisor, arguments.claims, unasked, call.check_mode)
    started = failover_start.start(*fixed, here, arguments.params["boot"] or "")
    msg = f"{count(len(started.started), 'VM')} started"
    result = {**started._asdict(), "lines": started.lines}
    return Answer({"changed": bool(started.started or started.repaired), "msg": msg, **result})


def _take_over(call: Call, arguments: FailoverArguments) -> Answer:
    params, now = arguments.params, time.time()
    name, max_data_loss = params["vm"], params["max_data_loss"]
    policy = Policy(incoming_allowed=tuple(params["incoming_allowed"]))
    take_over = TakeOver(call.zfs, call.hypervisor, call.runner, params["authorized_keys"], policy)
    leave_out = params["leave_out"] or []
    plan = take_over.look(name, leave_out)
    claims = {host: of_host for host, of_host in arguments.claims.items() if host != params["name"]}
    problems = _problems_of_homes(plan, claims, params) or plan.problems
    departures = _moved_on(plan, claims, params, now)
    outdated = [
        Problem("TooOld", one.text, plan.known.record.label) for one in departures if one.refuses and plan.known
    ]
    problems = (
        problems or outdated or list(problems_of_age(plan, max_data_loss, now)) or _problems_of_rivals(plan, params)
    )
    if problems:
        return Answer({}, refusal(problems))
    if not call.check_mode:
        take_over.take(name, max_data_loss, leave_out, _rivals(plan, params), params["name"] or "", plan)
    all_start = why_host_starts_all(call.hypervisor)
    notes = [*(one.text for one in departures), *_left_out(params["left_out"])]
    notes += [f"{params['name'] or host_name()}: {all_start}"] if all_start else []
    return Answer(_takeover_result(plan, name, now, notes))


def _left_out(hosts: t.Sequence[str]) -> t.Iterator[str]:
    """Yield a message about hosts that were not asked."""
    if hosts:
        yield f"not asked: {', '.join(hosts)}, where the VM, or newer data of it, may be"


def _problems_of_homes(plan: TakeoverPlan, claims: Claims, params: _Params) -> t.List[Problem]:
    """Return why the VM may run on another host."""
    if plan.known is None or plan.here:
        return []
    record, here = plan.known.record, params["name"] or host_name()
    reasons = list(has_it(record.uuid, record.alias, claims, record.host))
    for host in not_heard(_recorded(record, params), claims):
        reasons.append(
            f"{host} could not be asked whether it has it; find out, and leave it out with {limit_without(host)}"
        )
    if reasons and plan.begun:
        reasons[-1] += f". Its failover to {here} has begun; {advice_to_end(here)}"
    home_reason = (
        "" if plan.begun else home_answers(record.uuid, record.label, record.host, claims)
    )  # it ends there first
    return [Problem("InUse", reason, record.label) for reason in [home_reason, *reasons] if reason]


def _rivals(plan: TakeoverPlan, params: _Params) -> t.List[str]:
    """Return the other hosts that have a record of the VM."""
    uuid = plan.known.record.uuid if plan.known is not None else ""
    return [one.host for one in read_rivals(params["elsewhere"] or {}, uuid) if not one.comes]


def _problems_of_rivals(plan: TakeoverPlan, params: _Params) -> t.List[Problem]:
    """Return why the VM should come back on another host.

    A failover that has begun continues, unless a host has all data of the VM, or a record of a later term.
    """
    if plan.known is None or plan.takeover is None:
        return []
    record = plan.known.record
    takeover = plan.takeover
    points = {disk: tuple(guids) for disk, guids in takeover.points.items()}
    own_offer = Rival(params["name"] or host_name(), record.host, record.home, _term(record), takeover.synced, points)
    rivals = read_rivals(params["elsewhere"] or {}, record.uuid)
    rivals = [one for one in rivals if one.begun or one.term > own_offer.term or not plan.begun]
    better = better_elsewhere(own_offer, rivals, params["max_data_loss"])
    return [Problem(code, message, record.label) for code, message in better]


def _moved_on(plan: TakeoverPlan, claims: Claims, params: _Params, now: float) -> t.List[MovedOn]:
    """Return where the VM has gone since its record was stored."""
    if plan.known is None or plan.begun or plan.takeover is None:
        return []
    record, age = plan.known.record, plan.takeover.age(now)
    text = f"{age} s old" if age is not None else "of a time that is not known"
    return list(moved_on(_recorded(record, params), claims, text, params["max_data_loss"]))


def _recorded(record: Record, params: _Params) -> Recorded:
    return Recorded(record.uuid, record.host, _term(record), params["name"] or host_name())


def _term(record: Record) -> int:
    setting = decode_setting(record.marks.get(FAILOVER_PROPERTY, ""))
    return setting.term if setting is not None else 0


def _takeover_result(plan: TakeoverPlan, name: str, now: float, departures: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    if plan.here or plan.known is None or plan.takeover is None:
        return {"changed": False, "msg": f"VM {name} is here", "age": None, "lost": [], "diff": {"prepared": ""}}
    record, takeover = plan.known.record, plan.takeover
    age = takeover.age(now)
    text = f"{age} s ago" if age is not None else "a time that is not known"
    msg = f"VM {record.label} of {record.host} comes back as of {text}"
    if plan.begun:
        msg = f"the failover of VM {record.label} of {record.host} goes on"
    lost = [*departures, *takeover.losses]
    lines = [msg, *(f"  - {message}" for message in lost)]
    lines += [f"  = disk {disk.disk.name} as of @{disk.to.name}" for disk in takeover.disks]
    return {"changed": True, "msg": msg, "age": age, "lost": lost, "diff": {"prepared": "\n".join(lines) + "\n"}}


def _end(call: Call, arguments: FailoverArguments) -> Answer:
    failover_return = FailoverReturn(call.zfs, call.hypervisor, call.runner, arguments.params["authorized_keys"])
    moved = read_claims(arguments.params["elsewhere"] or {})
    params = arguments.params
    request = EndRequest(params["vm"], arguments.claims, params["begun"], params["old"], moved)
    ending = failover_return.look(request)
    if ending.problems:
        return Answer({}, refusal(ending.problems))
    if not call.check_mode:
        failover_return.end(request)
    msg = "the VM has ended here" if ending.move else "nothing is left"
    return _disks_result(ending.uuid, ending.messages, ending.move is not None, msg)


def _stay(call: Call, arguments: FailoverArguments) -> Answer:
    label = GiveUpTakeover(call.zfs, call.hypervisor, call.runner).stay(arguments.params["vm"], call.check_mode)
    msg = f"the failover of VM {label} is given up" if label else "no failover has begun here"
    return Answer({"changed": bool(label), "msg": msg})


def _give_up(call: Call, arguments: FailoverArguments) -> Answer:
    failover_return = FailoverReturn(call.zfs, call.hypervisor, call.runner)
    uuid, messages = failover_return.give_up(arguments.params["vm"], call.check_mode)
    return _disks_result(uuid, messages, bool(messages), f"{count(len(messages), 'disk')} given up")


def _disks_result(uuid: str, messages: t.List[str], changed: bool, msg: str) -> Answer:
    diff = {"prepared": "".join(f"{line}\n" for line in messages)}
    return Answer({"changed": changed, "msg": msg, "vm": uuid, "disks": messages, "diff": diff})


_STEPS = {
    "end": _end,
    "give_up": _give_up,
    "mark": _mark,
    "store": _store,
    "drop": _drop,
    "note": _note,
    "look": _look,
    "take_over": _take_over,
    "start": _start,
    "stay": _stay,
}

FAILOVER = HostRun(
    task=lambda params: f"a failover, step {params['step']}",
    parse=parse,
    run=lambda call, _log, _params, given: run(call, given),
    reads=("look",),
)
