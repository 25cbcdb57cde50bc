# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The module vm_move: its arguments, and what it tells."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..fleet.replication.record import Record, read_record
from ..fleet.replication.record import told as told_of
from ..fleet.replication.transfers import VmTransfer, read_transfers
from ..model.desired import Policy
from ..model.errors import Problem, Problems
from ..rules.identity import is_pool, is_uuid
from ..rules.replicas import is_host
from .module_run import Answer, Call, failure_text, refusal
from .vm_arrival import Arrival
from .vm_departure import Departure

_Params = t.Mapping[str, t.Any]
_DONE = {
    "leave": "the VM is stopped",
    "stay": "the VM stays",
    "cancel": "the VM does not come",
    "go": "the VM has left",
    "expect": "the VM can come",
    "arrive": "the VM is here",
    "forget": "the name is free",
}


@dataclass(frozen=True)
class Told:
    """The arguments after a check."""

    params: _Params
    record: t.Optional[Record]
    transfer: t.Optional[VmTransfer]
    policy: Policy


def parse(params: _Params) -> t.Tuple[Told, t.List[Problem]]:
    """The arguments, and all their problems. Raises FlexdiskError for a record or transfer that is none."""
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
    given = read_transfers([params["transfer"]]) if params["transfer"] is not None else [None]
    policy = Policy(stop_timeout=params["stop_timeout"], allow_force_stop=params["allow_force_stop"])
    return Told(params, record, given[0], policy), list(problems)


def run(call: Call, told: Told) -> Answer:
    """Do the step."""
    what = (call.zfs, call.hypervisor, call.runner, told.policy)
    departure, arrival, params = Departure(*what), Arrival(*what), told.params
    step, uuid = params["step"], params["vm"]
    if step == "look":
        return _look(departure, uuid, params["name"], params["peer_name"] or "")
    if step == "expect" and call.check_mode:
        problems = arrival.foresee(t.cast(Record, told.record), params["target_pool"])
        ready = {"changed": False, "msg": _DONE[step], "ready": True}
        return Answer(ready, refusal(problems) if problems else None)
    changed = True
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is moved in check mode"})
    if step == "expect":
        arrival.expect(t.cast(Record, told.record), params["target_pool"])
    elif step == "leave":
        departure.leave(uuid, params["name"], params["peer_name"], params["peer_guid"], params["digest"])
    elif step == "stay":
        departure.stay(uuid)
    elif step == "cancel":
        arrival.unexpect(uuid)
    elif step == "go":
        departure.go(uuid, params["peer_name"], told.transfer)
    elif step == "arrive":
        changed = arrival.arrive(uuid, params["peer_name"])
    else:
        changed = departure.forget(uuid)
    return Answer({"changed": changed, "msg": _DONE[step], **({"ready": True} if step == "expect" else {})})


def _look(departure: Departure, name: str, here: str, target: str) -> Answer:
    seen = departure.look(name, here, target)
    record = seen["record"]
    phase = seen["move"]["phase"] if seen["move"] else ""
    has = f"has VM {record.label}" if record is not None else "does not have this VM"
    return Answer(
        {
            **seen,
            "changed": False,
            "msg": f"the host {has}{f' ({phase})' if phase else ''}",
            "record": told_of(record) if record is not None else None,
            "refusals": [failure_text([problem]) for problem in seen["refusals"]],
        }
    )
