# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a sync on the host of the replicas, for host_step: their arguments and results."""

from __future__ import annotations

import typing as t

from ...fleet.replication.transfers import VmTransfer, read_transfers
from ...model.errors import Problem, Problems
from ...model.text import count
from ...rules.identity import is_uuid, render_time
from ..run.host_run import HostRun
from ..run.module_run import Answer, Call
from .replica_receive import Receiver

_LATEST = 253402300800  # the year 10000
_Params = t.Mapping[str, t.Any]


def parse(params: _Params) -> t.Tuple[t.List[VmTransfer], t.List[Problem]]:
    """Return the transfers and all problems of the arguments. Raises FlexdiskError if a transfer cannot be read."""
    problems = Problems("")
    if params["since"] is not None and not 0 <= params["since"] < _LATEST:
        problems.add("InvalidArgument", f"since {params['since']} are not seconds since 1970")
    for uuid in params["vms"] or ():
        if not is_uuid(uuid):
            problems.add("InvalidArgument", f"vms: {uuid!r:.100} is not a UUID: names do not tell whose replicas go")
    return read_transfers(params["transfers"] or ()), list(problems)


def run(call: Call, params: _Params, transfers: t.Sequence[VmTransfer]) -> Answer:
    """Carry out the step."""
    receiver = Receiver(call.zfs, call.hypervisor, call.runner, params["authorized_keys"])
    if params["step"] == "remove":
        pools = [call.pool] if call.pool else [name for name in call.zfs.tops() if "/" not in name]
        gone, stays = receiver.remove(pools, params["vms"], params["homes"], call.check_mode)
        diff = {"prepared": "".join(f"- {name}\n" for name in gone)}
        result = {"changed": bool(gone), "msg": f"{len(gone)} replicas destroyed", "gone": gone, "diff": diff}
        return Answer(result, warnings=stays)
    if call.check_mode:
        return Answer({"changed": False, "msg": "nothing is received in check mode", "host_keys": [], "complete": []})
    if params["step"] == "open":
        refused = receiver.refused(transfers) if params["goes_on"] else {}
        allowed = [vm for vm in transfers if vm.uuid not in refused]
        keys = receiver.open(allowed, params["ssh_directories"]) if allowed else []
        msg = f"{count(len(allowed), 'VM')} may send"
        return Answer({"changed": bool(allowed), "msg": msg, "host_keys": keys, "refused": refused})
    stock = receiver.close(transfers, render_time(params["since"]))
    msg = f"{len(stock.complete)} of {count(len(transfers), 'VM')} with complete replicas"
    return Answer({"msg": msg, **stock._asdict()})


RECEIVE = HostRun(
    task=lambda params: f"a sync from another host, step {params['step']}",
    parse=parse,
    run=lambda call, _log, params, transfers: run(call, params, transfers),
    every_pool=False,
)
