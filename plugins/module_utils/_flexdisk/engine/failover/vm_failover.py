# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a failover that the module host_step does: their arguments, and what they tell."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ...fleet.replication.claims import Claims, Rival, better_elsewhere, read_claims, read_rivals
from ...fleet.replication.record import Record, read_record
from ...fleet.replication.record import told as told_of
from ...fleet.replication.whereabouts import Gone, Recorded, has_it, home_answers, moved_on, not_heard
from ...model.desired import Policy
from ...model.errors import Problem, Problems, refusal
from ...model.text import count
from ...rules import incoming
from ...rules.failover import FAILOVER_PROPERTY, decode
from ...rules.identity import is_pool, is_uuid
from ...rules.knobs import limit_without
from ...rules.replicas import is_host
from ...zfs.copies import Copies
from ..host.journal import host_name
from ..moves.vm_arrival import ends_here
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from ..run.settled import read_settled
from . import failover_records, failover_start
from .failover_home import FailoverHome
from .failover_return import FailoverReturn
from .failover_stay import Stay
from .vm_takeover import Ready, TakeOver, too_old

_Params = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Told:
    """The arguments after a check."""

    params: _Params
    records: t.List[Record]
    claims: Claims


def parse(params: _Params) -> t.Tuple[Told, t.List[Problem]]:
    """The arguments, and all their problems. Raises FlexdiskError for records that are none."""
    problems = Problems("")
    for key in ("name", "peer_name"):
        if params[key] is not None and not is_host(params[key]):
            problems.add("InvalidArgument", f"{key} {params[key]!r:.100} is not the name of a host")
    for words in incoming.problems(params["incoming_allowed"]):
        problems.add("InvalidArgument", words)
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
    return Told(params, records, read_claims(params["peers"] or {})), list(problems)


def run(call: Call, given: Told) -> Answer:
    """Do the step."""
    return _STEPS[given.params["step"]](call, given)


def _mark(call: Call, given: Told) -> Answer:
    params = given.params
    home = FailoverHome(call.zfs, call.hypervisor, call.runner)
    done = home.mark(params["vms"], params["failover"], params["name"], call.check_mode, params["peer_name"] or "")
    if done.problems:
        return Answer({}, refusal(done.problems))
    msg = f"{count(len(done.records), 'VM has', 'VMs have')} failover"
    told = [told_of(record) for record in done.records]
    return Answer({"changed": done.changed, "msg": msg, "records": told, "failures": done.failures})


def _store(call: Call, given: Told) -> Answer:
    pools = given.params["pools"]
    what = (call.zfs, call.hypervisor, call.runner)
    policy = Policy(incoming_allowed=tuple(given.params["incoming_allowed"]))
    news, problems = failover_records.store(*what, given.records, pools, call.check_mode, policy)
    if problems:
        return Answer({}, refusal(problems))
    return Answer({"changed": bool(news), "msg": f"{count(len(news), 'record')} taken in", "stored": True})


def _note(call: Call, given: Told) -> Answer:
    labels = failover_records.note(given.params["vms"], given.params["peer_name"], call.check_mode)
    msg = f"{count(len(labels), 'record names', 'records name')} {given.params['peer_name']} from now on"
    return Answer({"changed": bool(labels), "msg": msg, "noted": labels})


def _drop(call: Call, given: Told) -> Answer:
    problems = failover_records.in_use(call.zfs, call.hypervisor, given.params["vms"])
    if problems:
        return Answer({}, refusal(problems))
    gone = failover_records.drop(given.params["vms"], given.params["homes"], call.check_mode)
    return Answer({"changed": bool(gone), "msg": f"{count(len(gone), 'record')} removed", "gone": gone})


def _look(call: Call, given: Told) -> Answer:
    which = (given.params["vm"] or "", given.params["vms"] or ())

    def read() -> t.Dict[str, t.Any]:
        return failover_start.look(call.zfs, call.hypervisor, Copies(call.runner), *which)

    found = read_settled(call, given.params, "a look at VMs with failover", read, lambda found: not found["vms"])
    return Answer({"changed": False, "msg": f"{count(len(found['vms']), 'VM is', 'VMs are')} here", **found})


def _start(call: Call, given: Told) -> Answer:
    unasked, here = given.params["unasked"], given.params["name"] or ""
    what = (call.zfs, call.hypervisor, given.claims, unasked, call.check_mode)
    done = failover_start.start(*what, here, given.params["boot"] or "")
    msg = f"{count(len(done.started), 'VM')} started"
    return Answer({"changed": bool(done.started or done.repaired), "msg": msg, **done._asdict()})


def _take_over(call: Call, given: Told) -> Answer:
    params, now = given.params, time.time()
    name, most = params["vm"], params["max_data_loss"]
    policy = Policy(incoming_allowed=tuple(params["incoming_allowed"]))
    what = TakeOver(call.zfs, call.hypervisor, call.runner, params["authorized_keys"], policy)
    leave_out = params["leave_out"] or []
    ready = what.look(name, leave_out)
    claims = {host: said for host, said in given.claims.items() if host != params["name"]}
    problems = _elsewhere(ready, claims, params) or ready.problems
    gone = _moved_on(ready, claims, params, now)
    left = [Problem("TooOld", one.words, ready.known.record.label) for one in gone if one.refuses and ready.known]
    problems = problems or left or list(too_old(ready, most, now)) or _better(ready, params)
    if problems:
        return Answer({}, refusal(problems))
    if not call.check_mode:
        what.take(name, most, leave_out, _rivals(ready, params), params["name"] or "", ready)
    return Answer(_told(ready, name, now, [*(one.words for one in gone), *_left_out(params["left_out"])]))


def _left_out(hosts: t.Sequence[str]) -> t.Iterator[str]:
    """Yield what may be on hosts that were not asked."""
    if hosts:
        yield f"not asked: {', '.join(hosts)}, where the VM, or newer data of it, may be"


def _elsewhere(ready: Ready, claims: Claims, params: _Params) -> t.List[Problem]:
    """Why the VM may run on another host."""
    if ready.known is None or ready.here:
        return []
    record, here = ready.known.record, params["name"] or host_name()
    found = list(has_it(record.uuid, record.alias, claims, record.host))
    for host in not_heard(_recorded(record, params), claims):
        found.append(
            f"{host} could not be asked whether it has it; find out, and leave it out with {limit_without(host)}"
        )
    if found and ready.begun:
        found[-1] += f". Its failover to {here} has begun; {ends_here(here)}"
    home = "" if ready.begun else home_answers(record.uuid, record.label, record.host, claims)  # it ends there first
    return [Problem("InUse", words, record.label) for words in [home, *found] if words]


def _rivals(ready: Ready, params: _Params) -> t.List[str]:
    """The other hosts that have a record of the VM."""
    uuid = ready.known.record.uuid if ready.known is not None else ""
    return [one.host for one in read_rivals(params["elsewhere"] or {}, uuid) if not one.comes]


def _better(ready: Ready, params: _Params) -> t.List[Problem]:
    """Why the VM shall come back on another host. A failover that has begun goes on unless a host has all that the VM
    had, or a record from after a later failover.
    """
    if ready.known is None or ready.takeover is None:
        return []
    record = ready.known.record
    found = ready.takeover
    points = {disk: tuple(guids) for disk, guids in found.points.items()}
    mine = Rival(params["name"] or host_name(), record.host, record.home, _term(record), found.synced, points)
    rivals = read_rivals(params["elsewhere"] or {}, record.uuid)
    rivals = [one for one in rivals if one.begun or one.term > mine.term or not ready.begun]
    better = better_elsewhere(mine, rivals, params["max_data_loss"])
    return [Problem(code, words, record.label) for code, words in better]


def _moved_on(ready: Ready, claims: Claims, params: _Params, now: float) -> t.List[Gone]:
    """Where the VM has gone since its record was stored."""
    if ready.known is None or ready.begun or ready.takeover is None:
        return []
    record, age = ready.known.record, ready.takeover.age(now)
    text = f"{age} s old" if age is not None else "of a time that is not known"
    return list(moved_on(_recorded(record, params), claims, text, params["max_data_loss"]))


def _recorded(record: Record, params: _Params) -> Recorded:
    return Recorded(record.uuid, record.host, _term(record), params["name"] or host_name())


def _term(record: Record) -> int:
    wish = decode(record.marks.get(FAILOVER_PROPERTY, ""))
    return wish.term if wish is not None else 0


def _told(ready: Ready, name: str, now: float, gone: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    if ready.here or ready.known is None or ready.takeover is None:
        return {"changed": False, "msg": f"VM {name} is here", "age": None, "lost": [], "diff": {"prepared": ""}}
    record, found = ready.known.record, ready.takeover
    age = found.age(now)
    text = f"{age} s ago" if age is not None else "a time that is not known"
    msg = f"VM {record.label} of {record.host} comes back as of {text}"
    if ready.begun:
        msg = f"the failover of VM {record.label} of {record.host} goes on"
    lost = [*gone, *found.words]
    lines = [msg, *(f"  - {words}" for words in lost)]
    lines += [f"  = disk {back.disk.name} as of @{back.to.name}" for back in found.disks]
    return {"changed": True, "msg": msg, "age": age, "lost": lost, "diff": {"prepared": "\n".join(lines) + "\n"}}


def _end(call: Call, given: Told) -> Answer:
    what = FailoverReturn(call.zfs, call.hypervisor, call.runner, given.params["authorized_keys"])
    moved = read_claims(given.params["elsewhere"] or {})
    how = (given.params["vm"], given.claims, given.params["begun"], given.params["old"], moved)
    ending = what.look(*how)
    if ending.problems:
        return Answer({}, refusal(ending.problems))
    if not call.check_mode:
        what.end(*how)
    msg = "the VM has ended here" if ending.move else "nothing is left"
    return _of_words(ending.uuid, ending.words, ending.move is not None, msg)


def _stay(call: Call, given: Told) -> Answer:
    label = Stay(call.zfs, call.hypervisor, call.runner).stay(given.params["vm"], call.check_mode)
    msg = f"the failover of VM {label} is given up" if label else "no failover has begun here"
    return Answer({"changed": bool(label), "msg": msg})


def _give_up(call: Call, given: Told) -> Answer:
    what = FailoverReturn(call.zfs, call.hypervisor, call.runner)
    uuid, words = what.give_up(given.params["vm"], call.check_mode)
    return _of_words(uuid, words, bool(words), f"{count(len(words), 'disk')} given up")


def _of_words(uuid: str, words: t.List[str], changed: bool, msg: str) -> Answer:
    diff = {"prepared": "".join(f"{line}\n" for line in words)}
    return Answer({"changed": changed, "msg": msg, "vm": uuid, "disks": words, "diff": diff})


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
