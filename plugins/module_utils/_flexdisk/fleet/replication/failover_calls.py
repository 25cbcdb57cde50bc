# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls that prepare the failover of VMs, or give it up."""

from __future__ import annotations

import typing as t

from .calls import Call, Part, Run, Stopped
from .sync_arguments import Sync, commands_to_forget

_Dict = t.Dict[str, t.Any]
_REFUSE = "Refuse VMs that another host may have taken over"
_UNPREPARED = "The replicas are complete, but the failover of a VM is not prepared"
_READ_HOSTS = "Read which hosts have replicas of the VMs"


class Unprepared(Stopped):
    """The replicas are complete, but the failover of VMs is not prepared. failures: why, each begins with its VM."""

    def __init__(self, failures: t.Sequence[str]) -> None:
        super().__init__(f"{_UNPREPARED}: {'. '.join(failures)}")
        self.failures = failures

    def of(self, label: str, others: t.Iterable[str]) -> str:
        """Return the failures that concern a VM, "" if none does. others: the labels of the other VMs."""
        begins, mine = tuple(f"VM {other}: " for other in others), f"VM {label}: "
        failures = [
            text[len(mine) :] if text.startswith(mine) else text
            for text in self.failures
            if not text.startswith(begins)
        ]
        return f"{_UNPREPARED}: {'. '.join(failures)}" if failures else ""


def check_fit(sync: Sync) -> Part:
    """Refuse VMs that cannot have failover, before the first snapshot: data that was sent for it would be of no use.

    If the sync goes on, return why, by the names of these VMs.
    """
    asked = yield _fitness_call(sync, sync.vms)
    if not asked.failed or len(sync.vms) == 1:
        return {vm: asked.msg for vm in sync.vms if asked.failed}
    unfit = {}
    for vm in sync.vms:
        asked = yield _fitness_call(sync, [vm])
        if asked.failed:
            unfit[vm] = asked.msg
    return unfit


def _fitness_call(sync: Sync, vms: t.Sequence[str]) -> Call:
    name = "Ask whether the VMs can have failover"
    arguments = {"vms": vms, "failover": True, "name": sync.home, "peer_name": sync.peer}
    return sync.home_failover_call(name, "mark", check=True, hidden=True, may_fail=sync.goes_on, **arguments)


def check_at_home(sync: Sync, vms: t.Sequence[str]) -> Part:
    """Refuse VMs that another host may have taken over, before anything of their failover is given up. Problems of
    other kinds are those of the calls that follow.
    """
    arguments = {"vms": vms, "failover": False, "name": sync.home}
    asked = yield sync.home_failover_call(
        _REFUSE, "mark", ("problems",), check=True, hidden=True, may_fail=True, **arguments
    )
    if "NotAtHome" in [one["code"] for one in asked.result.get("problems", ())]:
        raise Stopped(asked.msg)


def mark_without(sync: Sync, vms: t.Sequence[str], name: str) -> Part:
    """Let VMs start with their host again."""
    wanted = None if sync.failover == "unchanged" else False
    yield sync.home_failover_call(name, "mark", hidden=True, vms=vms, failover=wanted, name=sync.home)


def drop_everywhere(sync: Sync, run: Run, vms: t.Sequence[str]) -> Part:
    """Remove the records of the VMs from all other hosts. VMs without failover start with their host, so none may still
    have a record with which it could take them over.
    """
    looked = yield sync.look_call(_READ_HOSTS, sync.home, sync.home_options)
    losing = [one for one in looked.result["vms"] if one["vm"] in vms]
    left, messages = [], []
    for host in _others(sync, losing):
        name = "Remove the records of the VMs from the other hosts with replicas"
        gone = yield from _call_other_host(sync, run, host, name, "drop", ("gone", "problems"), vms=vms)
        if gone is None or "gone" not in gone.result:
            left.append(host)
            messages += [gone.msg] if gone is not None and "problems" in gone.result else []
    if left:
        names = [one["alias"] for one in losing]
        why = f" ({'. '.join(messages)})" if messages else ""
        raise Stopped(
            f"{' and '.join(left)} could not be told to forget {', '.join(names)}, and could still take that over{why}."
            " So the VM keeps its failover. Run this again when the host can be reached. If it is gone for good, with"
            f" that host in the inventory: {commands_to_forget(names, left[0])}"
        )


def prepare_failover(sync: Sync, run: Run, peer_info: _Dict, planned: _Dict) -> Part:
    """Give the peer what it needs to take the VMs over, or take it away. peer_info: the result of replica_info on the
    peer. planned: what the step prepare on the home returns.
    """
    uuids = [vm["uuid"] for vm in planned["transfers"]]
    stale = [] if sync.failover == "present" else [u for u in uuids if u in peer_info["failover"]]
    stale = [uuid for uuid in stale if uuid not in planned["failover"]]  # no old record takes such a VM over
    if sync.failover == "unchanged" and not planned["failover"] and not stale:
        return
    if sync.failover == "absent":
        yield from check_at_home(sync, uuids)
    if sync.failover == "absent" or stale:
        homes = sorted({vm["home"] for vm in planned["transfers"]})
        lose = uuids if sync.failover == "absent" else stale
        yield sync.peer_failover_call("Remove the records of the VMs from the peer", "drop", vms=lose, homes=homes)
    if sync.failover == "absent":
        yield from drop_everywhere(sync, run, uuids)
    name = "Mark VMs with failover, and read what the peer must know of them"
    arguments = {"vms": uuids, "failover": sync.wants_failover, "name": sync.home, "peer_name": sync.peer}
    marked = yield sync.home_failover_call(name, "mark", ("records", "failures"), hidden=True, **arguments)
    yield from _store(sync, run, peer_info, planned, marked.result)


def _store(sync: Sync, run: Run, peer_info: _Dict, planned: _Dict, marked: t.Mapping[str, t.Any]) -> Part:
    """Give the peer its records. It gets a first one of a VM only if all hosts that have one, too, know of that."""
    records = marked["records"]
    new = [one["uuid"] for one in records if one["uuid"] not in peer_info["failover"]]
    unreached, names = (yield from _announce_peer(sync, run, new)) if new else ([], [])
    given = [one for one in records if not unreached or one["uuid"] not in new]
    unprepared = list(marked["failures"])
    if given:
        pools = {vm["uuid"]: vm["pool"] for vm in planned["transfers"]}
        arguments = {"records": given, "pools": pools, "incoming_allowed": sync.incoming_allowed}
        name = "Give the peer what it needs to take the VMs over"
        stored = yield sync.peer_failover_call(name, "store", ("stored",), hidden=True, may_fail=True, **arguments)
        if not stored.result.get("stored"):
            unprepared.append(stored.msg or "the records could not be stored")
    if unreached and not sync.moves:
        raise Stopped(_unreached_message(sync, unreached, names))
    if unprepared:
        raise Unprepared(unprepared)


def _announce_peer(sync: Sync, run: Run, new: t.Sequence[str]) -> Part:
    """Tell all that could take these VMs over that the peer can, too: whoever does it asks the peer before each start,
    whatever --limit leaves out. Return the hosts that could not be told, and the names of the VMs.
    """
    looked = yield sync.look_call("Read which hosts could take the VMs over", sync.home, sync.home_options)
    known = [one for one in looked.result["vms"] if one["vm"] in new]
    unreached = []
    for host in _others(sync, known):
        name = "Tell the other hosts that could take the VMs over of one more"
        noted = yield from _call_other_host(sync, run, host, name, "note", ("noted",), vms=new, peer_name=sync.peer)
        unreached += [host] if noted is None or "noted" not in noted.result else []
    return unreached, [one["alias"] for one in known]


def _unreached_message(sync: Sync, unreached: t.Sequence[str], names: t.Sequence[str]) -> str:
    return (
        f"The replicas are complete, but {sync.peer} cannot take {', '.join(names)} over yet: {' and '.join(unreached)}"
        f" could take that over, too, and could not be told. Run this again when {unreached[0]} can be reached. If it"
        f" is gone for good, give up what it has first: {commands_to_forget(names, unreached[0])}"
    )


def _others(sync: Sync, vms: t.Sequence[_Dict]) -> t.List[str]:
    """Return the other hosts that have replicas of these VMs."""
    peers = dict.fromkeys(host for one in vms for host in one["peers"])
    return [host for host in peers if host not in (sync.peer, sync.home)]


def _call_other_host(
    sync: Sync, run: Run, host: str, name: str, step: str, keeps: t.Sequence[str], **more: t.Any
) -> Part:
    """Do a step on another host. Return its answer, None for a host that the inventory lacks."""
    options = run.options(host)
    if options is None:
        return None
    return (yield sync.failover_call(host, options, name, step, keeps, may_fail=True, may_be_lost=True, **more))
