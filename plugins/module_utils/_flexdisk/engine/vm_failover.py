# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The module vm_failover: its arguments, and what it tells."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ..fleet.replication.claims import Claims, Rival, better_elsewhere, read_claims, read_rivals
from ..fleet.replication.record import Record, read_record
from ..fleet.replication.record import told as told_of
from ..model.errors import Problem, Problems
from ..rules.failover import FACT, decode
from ..rules.identity import is_pool, is_uuid
from ..rules.replicas import is_host
from ..zfs.copies import Copies
from . import failover_records, failover_start
from .failover_home import FailoverHome
from .failover_return import FailoverReturn
from .failover_stay import Stay
from .module_run import Answer, Call, refusal
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
    for uuid, pool in (params["pools"] or {}).items():
        if not is_uuid(uuid) or not is_pool(str(pool)):
            problems.add("InvalidArgument", f"pools: {pool!r:.100} of {uuid!r:.100} is not the pool of a VM")
    if params["max_data_loss"] is not None and params["max_data_loss"] < 0:
        problems.add("InvalidArgument", f"max_data_loss {params['max_data_loss']} is negative")
    if params["step"] == "drop":
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
    msg = f"{len(done.records)} VMs have failover"
    told = [told_of(record) for record in done.records]
    return Answer({"changed": done.changed, "msg": msg, "records": told, "failures": done.failures})


def _store(call: Call, given: Told) -> Answer:
    pools = given.params["pools"]
    news, problems = failover_records.store(call.zfs, Copies(call.runner), given.records, pools, call.check_mode)
    if problems:
        return Answer({}, refusal(problems))
    return Answer({"changed": bool(news), "msg": f"the records of {len(news)} VMs are new", "stored": True})


def _drop(call: Call, given: Told) -> Answer:
    gone = failover_records.drop(given.params["vms"], given.params["homes"], call.check_mode)
    return Answer({"changed": bool(gone), "msg": f"the records of {len(gone)} VMs are gone", "gone": gone})


def _look(call: Call, given: Told) -> Answer:
    found = failover_start.look(call.zfs, call.hypervisor, Copies(call.runner), given.params["vm"] or "")
    return Answer({"changed": False, "msg": f"{len(found['vms'])} VMs are here", **found})


def _start(call: Call, given: Told) -> Answer:
    unasked = given.params["unasked"]
    done = failover_start.start(call.zfs, call.hypervisor, given.claims, unasked, call.check_mode)
    return Answer({"changed": bool(done.started), "msg": f"{len(done.started)} VMs started", **done._asdict()})


def _take_over(call: Call, given: Told) -> Answer:
    params, now = given.params, time.time()
    name, most = params["vm"], params["max_data_loss"]
    what = TakeOver(call.zfs, call.hypervisor, call.runner, params["authorized_keys"])
    leave_out = params["leave_out"] or []
    ready = what.look(name, leave_out)
    problems = ready.problems or list(too_old(ready, most, now)) or _better(ready, params)
    if problems:
        return Answer({}, refusal(problems))
    if not call.check_mode:
        what.take(name, most, leave_out)
    return Answer(_told(ready, name, now))


def _better(ready: Ready, params: _Params) -> t.List[Problem]:
    """Why the VM shall come back on another host."""
    if ready.known is None or ready.begun or ready.takeover is None:
        return []
    record = ready.known.record
    wish = decode(record.marks.get(FACT, ""))
    mine = Rival("", record.host, wish.term if wish is not None else 0, ready.takeover.synced)
    found = better_elsewhere(mine, read_rivals(params["elsewhere"] or {}, record.uuid), params["max_data_loss"])
    return [Problem(code, words, record.label) for code, words in found]


def _told(ready: Ready, name: str, now: float) -> t.Dict[str, t.Any]:
    if ready.here or ready.known is None or ready.takeover is None:
        return {"changed": False, "msg": f"VM {name} is here", "age": None, "lost": [], "diff": {"prepared": ""}}
    record, found = ready.known.record, ready.takeover
    age = found.age(now)
    told = f"{age} s ago" if age is not None else "a time that is not known"
    msg = f"VM {record.label} of {record.host} comes back as of {told}"
    if ready.begun:
        msg = f"the failover of VM {record.label} of {record.host} goes on"
    lost = found.words
    lines = [msg, *(f"  - {words}" for words in lost)]
    lines += [f"  = disk {back.disk.name} as of @{back.to.name}" for back in found.disks]
    return {"changed": True, "msg": msg, "age": age, "lost": lost, "diff": {"prepared": "\n".join(lines) + "\n"}}


def _end(call: Call, given: Told) -> Answer:
    what = FailoverReturn(call.zfs, call.hypervisor, call.runner)
    ending = what.look(given.params["vm"], given.claims, given.params["begun"])
    if ending.problems:
        return Answer({}, refusal(ending.problems))
    if not call.check_mode:
        what.end(given.params["vm"], given.claims, given.params["begun"])
    msg = "the VM has ended here" if ending.move else "nothing is left"
    return _of_words(ending.uuid, ending.words, ending.move is not None, msg)


def _stay(call: Call, given: Told) -> Answer:
    label = Stay(call.zfs, call.hypervisor, call.runner).stay(given.params["vm"], call.check_mode)
    msg = f"the failover of VM {label} is given up" if label else "no failover has begun here"
    return Answer({"changed": bool(label), "msg": msg})


def _give_up(call: Call, given: Told) -> Answer:
    what = FailoverReturn(call.zfs, call.hypervisor, call.runner)
    uuid, words = what.give_up(given.params["vm"], call.check_mode)
    return _of_words(uuid, words, bool(words), f"{len(words)} disks given up")


def _of_words(uuid: str, words: t.List[str], changed: bool, msg: str) -> Answer:
    diff = {"prepared": "".join(f"{line}\n" for line in words)}
    return Answer({"changed": changed, "msg": msg, "vm": uuid, "disks": words, "diff": diff})


_STEPS = {
    "end": _end,
    "give_up": _give_up,
    "mark": _mark,
    "store": _store,
    "drop": _drop,
    "look": _look,
    "take_over": _take_over,
    "start": _start,
    "stay": _stay,
}
