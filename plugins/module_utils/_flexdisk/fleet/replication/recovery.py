# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of the playbook failover_vm: a VM comes back on another host, or its old host ends it, or gives it up."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...rules.knobs import limit_without
from ...rules.naming import similar
from . import host_steps
from .calls import Answer, AtOnce, Call, CallFailed, Message, PlayFlow, PlayPart, Run, Stopped

_Dict = t.Dict[str, t.Any]
_Answers = t.Mapping[str, t.Mapping[str, t.Any]]  # what hosts have answered
_LOOKS = ("vms", "moved", "records", "known")
_PARTS = ("vms", "moved", "records")


@dataclass(frozen=True)
class Recovery:
    """The variables of the playbook."""

    vm: str
    hosts: t.Sequence[str]
    """Those of the run, in its order."""
    every: t.Sequence[str] = ()
    """Those that there are, also if --limit leaves them out."""
    state: str = "taken_over"
    """taken_over, stays, returned or given_up."""
    target: str = ""
    fenced: bool = False
    max_data_loss: t.Optional[int] = None
    leave_out: t.Optional[t.Sequence[str]] = None
    incoming_allowed: t.Optional[t.Sequence[str]] = None
    """Of the target."""
    old_host: str = ""
    authorized_keys: t.Mapping[str, str] = field(default_factory=dict)
    """The file of the keys that SSH accepts, by hosts; "" for the usual one."""


class _Known(t.NamedTuple):
    """What the hosts have said."""

    uuid: str
    """Of the VM that is meant; as it was given if that is not clear."""
    answers: _Answers
    """By the hosts that have answered."""
    reasons: t.Mapping[str, str]
    """What a host has said that has not answered; "" without a word."""
    unreachable: t.Sequence[str]
    """The hosts that could not be reached."""

    @property
    def begun(self) -> t.Dict[str, str]:
        """The hosts that have begun to take the VM over, each with the host from which."""
        return {
            host: one["vms"][0]["taking"]
            for host, one in self.answers.items()
            if one["vms"] and one["vms"][0]["taking"]
        }

    @property
    def complete_on(self) -> t.List[str]:
        """The hosts that have the VM with all its disks."""
        here = [host for host, one in self.answers.items() if one["vms"] and not one["vms"][0]["left"]]
        return here + [host for host, one in self.answers.items() if one["moved"] and one["moved"][0].get("begun")]

    @property
    def uuids(self) -> t.List[str]:
        """Of the VMs that hosts have."""
        return _unique(vm["vm"] for one in self.answers.values() for vm in one["vms"])

    @property
    def moved(self) -> _Dict:
        """What hosts say of moves of the VM."""
        return {host: one["moved"] for host, one in self.answers.items()}


def recover(wanted: Recovery, _run: Run) -> PlayFlow:
    """Do what the user wants. There is no result."""
    if wanted.state == "taken_over":
        _refuse_incomplete(wanted)
    known = yield from _look(wanted)
    if wanted.state == "taken_over":
        yield from _take_over(wanted, known)
    elif wanted.state == "stays":
        yield from _stay(wanted, known)
    else:
        yield from _end(wanted, known)
    return {}


def _refuse_incomplete(wanted: Recovery) -> None:
    """Refuse a failover without a target, or without the word that the old host is down."""
    lacks = [] if wanted.target else ["flexdisk_target is missing, the host that the VM comes back on"]
    if not wanted.fenced:
        lacks.append(
            f"flexdisk_fenced=true is missing. It says that the host of {wanted.vm} is down, and that the VM does not"
            " start there again"
        )
    _refuse(lacks)


def _refuse(problems: t.Sequence[str]) -> None:
    if problems:
        raise Stopped(". ".join(problems))


def _look(wanted: Recovery) -> PlayPart:
    """Ask each host which VM has this name, then what it has of that VM, whatever it is called there."""
    by_name: t.Dict[str, Answer] = yield _look_calls("Ask each host which VM has this name", wanted, wanted.hosts)
    answers = {host: one.result for host, one in by_name.items() if "vms" in one.result}
    name, uuids = "Ask each host what it has of that VM, whatever it is called there", _uuids(answers.values())
    seen: t.Dict[str, Answer] = {}
    if answers:
        seen = yield _look_calls(name, wanted, list(answers), vms=uuids)
    details = {host: one.result for host, one in seen.items() if "vms" in one.result}
    recorded: t.Any = answers.get(wanted.target, {}).get("records") if wanted.state == "taken_over" else None
    uuids_meant = _unique(one["vm"] for one in recorded) if recorded else _uuids(details.values())
    reasons = {host: one.msg for host, one in {**by_name, **seen}.items() if host not in details}
    unreachable = [host for host, one in by_name.items() if one.lost]
    return _Known(uuids_meant[0] if len(uuids_meant) == 1 else wanted.vm, details, reasons, unreachable)


def _look_calls(name: str, wanted: Recovery, hosts: t.Sequence[str], **more: t.Any) -> AtOnce:
    """Return one look per host. A host that fails once is still asked for the rest."""
    how: _Dict = {"may_fail": True, "may_be_lost": True}
    return AtOnce([_call(wanted, name, host, "look", _LOOKS, how, vm=wanted.vm, **more) for host in hosts])


def _call(
    wanted: Recovery,
    task: str,
    host: str,
    step: str,
    keeps: t.Sequence[str] = (),
    how: t.Optional[_Dict] = None,
    /,
    **more: t.Any,
) -> Call:
    takes = host_steps.STEPS["failover"][step]
    keys = {"authorized_keys": wanted.authorized_keys.get(host) or None} if "authorized_keys" in takes.may else {}
    return Call(task, host, "failover", {"step": step, **keys, **more}, keeps, **(how or {}))


def _uuids(answers: t.Iterable[t.Mapping[str, t.Any]]) -> t.List[str]:
    return _unique(one["vm"] for answer in answers for part in _PARTS for one in answer[part])


def _unique(names: t.Iterable[str]) -> t.List[str]:
    return list(dict.fromkeys(names))


# -- the VM comes back


def _take_over(wanted: Recovery, known: _Known) -> PlayPart:
    """Bring the VM back on the target. If that was begun and its old host is there again, it ends there first."""
    target = wanted.target
    _refuse(list(_take_over_problems(wanted, known)))
    peers = {
        host: known.answers[host]["vms"] + known.answers[host]["moved"] if host in known.answers else ""
        for host in wanted.hosts
    }
    elsewhere = {host: one["records"] + one["moved"] for host, one in known.answers.items()}
    arguments: _Dict = {"vm": known.uuid, "name": target, "peers": peers, "elsewhere": {**elsewhere, target: []}}
    arguments.update(leave_out=wanted.leave_out, incoming_allowed=wanted.incoming_allowed)
    old_host = known.begun.get(target, "")
    if old_host in known.answers:
        name = "Ask whether the failover can go on, before the VM ends on its old host"
        yield _call(wanted, name, target, "take_over", (), {"check": True}, **arguments)
        end_arguments = {"vm": known.uuid, "peers": {target: known.answers[target]["vms"]}, "begun": True}
        yield _call(wanted, "End the VM on its old host, which is there again", old_host, "end", **end_arguments)
    arguments["left_out"] = [host for host in wanted.every if host not in wanted.hosts]
    taken = yield _call(
        wanted, "Bring the VM back", target, "take_over", ("lost",), max_data_loss=wanted.max_data_loss, **arguments
    )
    yield Message("Say what has come back", "; ".join([taken.msg, *taken.result["lost"]]), target)


def _take_over_problems(wanted: Recovery, known: _Known) -> t.Iterator[str]:
    """Yield why the VM cannot come back without a guess."""
    target, name = wanted.target, wanted.vm
    if target not in known.answers:
        why = known.reasons.get(target) or "it is unknown"
        yield f"{target} is not among the hosts of this run, or could not be asked: {why}"
        return
    homes = [one["host"] for one in known.answers[target]["records"]]
    if len(homes) != 1 and not known.answers[target]["vms"]:
        yield _no_record(wanted, known)
    unknown = [host for host in homes if host not in wanted.hosts]
    if unknown:
        text = f"{''.join(unknown)}, the host of {name}, is not among the hosts of this run: it has to be asked whether"
        yield f"{text} it answers"
    unheard = [host for host in wanted.hosts if host not in known.unreachable and host not in known.answers]
    unheard_homes = [host for host in homes if host in unheard]
    if unheard_homes:
        why = "".join(known.reasons.get(host, "") for host in homes)
        text = f"{''.join(unheard_homes)}, the host of {name}, may be there, but does not say what it has of the VM"
        yield f"{text}: {why}"
    others = [host for host in unheard if host not in homes]
    if homes and others:
        text = (
            f"{', '.join(others)} may be there, but does not say whether it has {name}; find out, and leave it out with"
        )
        yield f"{text} --limit 'all:!{':!'.join(others)}'"


def _no_record(wanted: Recovery, known: _Known) -> str:
    """Say that the target has not exactly one record of the VM."""
    records = known.answers[wanted.target]["records"]
    if records:
        text = f"{wanted.target} has {len(records)} records of {wanted.vm}; give the whole UUID: "
        return text + ", ".join(sorted(one["vm"] for one in records))
    with_record = [host for host, one in known.answers.items() if one["records"]]
    with_vm = [host for host, one in known.answers.items() if one["vms"]]
    text = f"{wanted.target} has no record of {wanted.vm}; "
    text += f"{' and '.join(with_record)} has one" if with_record else "replicate makes them for VMs with failover"
    names = {host: one.get("known") or [] for host, one in known.answers.items()}
    meant = "" if with_vm or with_record else similar(wanted.vm, names)
    return f"{text}. {meant}" if meant else text


# -- it stays where it was


def _stay(wanted: Recovery, known: _Known) -> PlayPart:
    """Give a failover up that was begun, unless the VM would be on no host then."""
    begun, name = known.begun, wanted.vm
    complete = " and ".join(host for host in known.complete_on if host not in begun)
    _refuse(list(_stay_problems(wanted, known, complete)))
    for host in begun:
        yield _call(wanted, "Keep only the replicas", host, "stay", vm=known.uuid)
    text = f"{name} is whole on {complete}, and is not taken over" if begun else f"{name} is not being taken over"
    yield Message("Say what was done", text)


def _stay_problems(wanted: Recovery, known: _Known, complete: str) -> t.Iterator[str]:
    """Yield why a failover cannot be given up."""
    begun, name = known.begun, wanted.vm
    unasked = [host for host in wanted.hosts if host not in known.answers]
    if len(begun) != 1 and unasked:
        yield f"{' and '.join(unasked)} could not be asked whether the failover of {name} has begun there"
    if len(begun) > 1:
        text = f"{' and '.join(begun)} have begun to take {name} over; leave one out, as with"
        yield f"{text} {limit_without(min(begun))}"
    if len(known.uuids) > 1:
        yield f"several VMs are called {name}; give the whole UUID: {', '.join(known.uuids)}"
    if begun and not complete:
        text = (
            f"{''.join(begun.values())}, the host of {name}, does not say that it still has it whole, nor does another"
        )
        yield f"{text} host; flexdisk_failover_state=taken_over goes on"


# -- the old host ends it


def _end(wanted: Recovery, known: _Known) -> PlayPart:
    """End the VM on its old host, or give up what only that host has."""
    step = "end" if wanted.state == "returned" else "give_up"
    arguments: t.Dict[str, _Dict] = {}
    for host in known.answers if not wanted.old_host else [one for one in known.answers if one == wanted.old_host]:
        peers = {one: known.answers[one]["vms"] if one in known.answers else "" for one in wanted.hosts if one != host}
        arguments[host] = {"vm": known.uuid, "peers": peers, "old": bool(wanted.old_host), "elsewhere": known.moved}
    dry_runs: t.Dict[str, Answer] = {}
    if arguments:
        calls = [
            _call(wanted, "Look where that is", host, step, ("disks", "vm"), {"check": True}, **given)
            for host, given in arguments.items()
        ]
        dry_runs = yield AtOnce(calls)
        for call in calls:
            if dry_runs[call.host].failed or dry_runs[call.host].lost:
                raise CallFailed(call, dry_runs[call.host])
    _refuse(list(_end_problems(wanted, known, dry_runs)))
    idle = [host for host, one in dry_runs.items() if not one.result["disks"]]
    if idle:
        text = f"{', '.join(idle)}: nothing of {wanted.vm} is to be {'ended' if step == 'end' else 'given up'}"
        yield Message("Say that there is nothing to do", text)
    for host in dry_runs:
        if host not in idle:
            ended = yield _call(wanted, "Do it", host, step, ("disks",), **arguments[host])
            yield Message("Say what becomes of the disks", ended.result["disks"], host)


def _end_problems(wanted: Recovery, known: _Known, dry_runs: t.Mapping[str, Answer]) -> t.Iterator[str]:
    """Yield why it is not clear which host is meant, or which VM."""
    name, returns = wanted.vm, wanted.state == "returned"
    old_hosts = [host for host, one in dry_runs.items() if one.result["disks"]]
    if wanted.old_host and wanted.old_host not in known.answers:
        yield f"{wanted.old_host} is not among the hosts of this run, or could not be asked"
    unheard = [host for host in _unique([*wanted.every, *wanted.hosts]) if host not in known.answers]
    if returns and not old_hosts and unheard and not any(known.moved.values()):
        text = f"{', '.join(known.answers)} say that nothing of {name} is to be ended there, but {', '.join(unheard)}"
        text += " could not be asked, or was left out with --limit: that may be the old host, or the one that has taken"
        yield f"{text} the VM over"
    if len(old_hosts) > 1:
        yield f"{' and '.join(old_hosts)} have something of {name}; flexdisk_old_host says which of them is meant"
    if not returns and not old_hosts and len(known.complete_on) > 1:
        text = (
            f"{' and '.join(known.complete_on)} have {name}; flexdisk_failover_state=returned ends it on its old host"
        )
        yield f"{text} first"
    names = _unique([*known.uuids, *(one.result["vm"] for one in dry_runs.values() if one.result.get("vm"))])
    if old_hosts and len(names) != 1:
        yield f"several VMs are called {name}; give the whole UUID: {', '.join(names)}"
