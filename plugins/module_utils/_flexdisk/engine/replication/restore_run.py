# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a restore over the network, for host_step: their arguments, locks and results."""

from __future__ import annotations

import contextlib
import typing as t

from ...fleet.replication import restores, trust
from ...fleet.replication.transfers import VmTransfer, read_transfers, transfer_as_result
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem, Problems
from ...plan.exchange import Wanted
from ...rules import identity
from ...rules.replicas import is_host
from ...rules.restore import decode_origin
from ..host import lock
from ..run.arguments import seconds
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from ..run.results import answer
from ..run.run import Context
from .restore_exchange import ExchangeTask
from .restore_source import RestoreSource
from .restore_target import RestoreTarget
from .trust import unresolved

_Params = t.Mapping[str, t.Any]


def parse(params: _Params) -> t.Tuple[t.List[VmTransfer], t.List[Problem]]:
    """Return the transfers and all problems of the arguments. Raises FlexdiskError if a transfer cannot be read."""
    problems = Problems("")
    exchanges = params["exchanges"] or ()
    for disk in [one.get("disk") for one in exchanges] or params["disks"] or [params["disk"]]:
        if not (isinstance(disk, str) and identity.is_uuid(disk)):
            problems.add("InvalidArgument", f"disk {disk!r:.100} is not a UUID")
    for one in exchanges:
        if one.get("size") and not decode_origin(str(one.get("origin", ""))):
            problems.add("InvalidArgument", f"origin {one.get('origin')!r:.100} says nothing of a snapshot")
    for name in [one.get("new_name") for one in exchanges] or [params["new_name"]]:
        if name is not None and (not identity.DISK_NAME.match(str(name)) or identity.mistakable(str(name))):
            why = identity.mistakable(str(name)) or "letters, digits and ._-, at most 64"
            problems.add("InvalidArgument", f"{name!r:.80} is not a name for a new disk: {why}", str(name))
    problems.attempt("", seconds, params, "stop_timeout")
    if params["peer_name"] is not None and not is_host(params["peer_name"]):
        problems.add("InvalidArgument", f"peer_name {params['peer_name']!r:.100} is not the name of a host")
    if params["address"] is not None:
        for message in trust.check_address(trust.Address(params["address"], params["port"])):
            problems.add("InvalidArgument", message)
    transfers = read_transfers(params["transfers"] or ())
    if params["transfers"] is not None and [len(vm.disks) for vm in transfers] != [1]:
        problems.add("InvalidArgument", "transfers: not those of one disk")
    return transfers, list(problems)


def run(call: Call, params: _Params, transfers: t.Sequence[VmTransfer]) -> Answer:
    """Carry out the step."""
    if params["step"] == "prepare":
        return _prepare(call, params)
    if params["step"] == "choose":
        source = RestoreSource(call.zfs, call.hypervisor, call.runner, call.pool)
        name = source.choose(params["disks"], params["snapshot"] or "")
        return Answer({"changed": False, "msg": name, "snapshot": name})
    if params["step"] == "exchange":
        return _exchange(call, params)
    target = RestoreTarget(
        call.zfs,
        call.hypervisor,
        call.runner,
        params["disk"],
        params["new_name"],
        params["target_pool"] or call.pool or "",
        params["authorized_keys"],
        params["in_place"],
    )
    if params["step"] == "look":
        return Answer({"changed": False, "msg": "looked", "target": restores.as_result(target.look())})
    (vm,) = transfers
    if params["step"] == "open":
        line = target.plan(vm, params["needed"])
        opened = [] if call.check_mode else target.open(vm, params["ssh_directories"])
        diff = {"prepared": line + "\n"}
        return Answer({"changed": True, "msg": line, "plan": [line], "host_keys": opened, "diff": diff})
    complete = False if call.check_mode else target.close(vm)
    msg = f"{params['new_name']} is {'there' if complete else 'not whole yet'}"
    return Answer({"changed": complete, "msg": msg, "complete": complete})


def _exchange(call: Call, params: _Params) -> Answer:
    policy = Policy(
        allow_restart=params["allow_restart"],
        stop_timeout=seconds(params, "stop_timeout"),
        allow_force_stop=params["allow_force_stop"],
    )
    wanted = [
        Wanted(
            one["disk"],
            str(one["new_name"]),
            decode_origin(str(one.get("origin", ""))),
            int(one.get("size", 0)),
            str(one.get("source", "")),
        )
        for one in params["exchanges"]
    ]
    return answer(ExchangeTask(wanted, Context(call.zfs, call.hypervisor, policy, call.check_mode)).run())


def _prepare(call: Call, params: _Params) -> Answer:
    source = RestoreSource(call.zfs, call.hypervisor, call.runner, call.pool)
    target = restores.read_target(params["peer"])
    planned = source.plan(params["disk"], params["snapshot"] or "", target)
    vm = planned.transfer
    if vm is None:
        if not call.check_mode and planned.vm:
            with contextlib.suppress(FlexdiskError), lock.transfers(call.runner, [planned.vm], "the end of a restore"):
                source.forget_key(planned.vm)
        text = f"{target.exists} was restored from this snapshot already"
        if target.replaced:
            text = f"the disk was restored from this snapshot already; what it had before is {target.exists}"
        found = {"transfers": [], "when": "", "origin": planned.origin, "outlook": planned.outlook}
        return Answer({"changed": False, "msg": text, **found})
    address = trust.Address(params["address"], params["port"]) if params["address"] is not None else None
    wrong = unresolved(call.runner, address) if address is not None else ""
    if wrong:
        raise FlexdiskError("ResourceNotFound", wrong)
    if not call.check_mode:
        with lock.transfers(call.runner, [vm.uuid], f"a restore to {params['peer_name']}"):
            vm = source.make_key(vm)
    text = f"{vm.disks[0].dataset}@{vm.disks[0].name} of {planned.when}"
    more = {"transfers": [transfer_as_result(vm)], "when": planned.when, "origin": planned.origin}
    more["outlook"] = planned.outlook
    return Answer({"changed": False, "msg": text, **more})


def _disks(params: _Params) -> str:
    return ", ".join(params["disks"] or [str(one.get("disk")) for one in params["exchanges"] or [params]])


RESTORE = HostRun(
    task=lambda params: f"a restore of disk {_disks(params)}, step {params['step']}",
    parse=parse,
    run=lambda call, _log, params, transfers: run(call, params, transfers),
    reads=("look", "choose"),
    every_pool=False,
)
