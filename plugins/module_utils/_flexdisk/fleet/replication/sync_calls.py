# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of a sync: bring replicas up to date, or give them up."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...rules.identity import render_time
from . import report
from .calls import Answer, Call, CallFailed, Flow, Message, Part, Run, Stopped
from .failover_calls import Unprepared, check_at_home, check_fit, drop_everywhere, mark_without, prepare_failover
from .sync_arguments import Sync, commands_to_forget

_Dict = t.Dict[str, t.Any]
_PREPARED = ("transfers", "stream_bytes", "rate", "space", "idle", "failover", "failures", "labels")
_THERE = ("pools", "vms", "replicas", "failover", "collected")


@dataclass
class _Outcome:
    """What has become of a sync, as far as it has come."""

    planned: _Dict = field(default_factory=dict)
    """The result of the step prepare on the home."""
    complete: t.Sequence[str] = ()
    """The VMs whose replicas are complete."""
    sent: t.Sequence[_Dict] = ()
    """What was sent, by VM."""
    failures: t.List[str] = field(default_factory=list)
    untidied: t.Sequence[str] = ()
    """Why the home could not end the sync of VMs, some of them with complete replicas. Each begins with its VM."""
    left_out: t.Dict[str, str] = field(default_factory=dict)
    """Why VMs were left out before anything was sent for them."""
    seconds: float = 0.0
    """Since the snapshots were taken."""


def keep_replicas(sync: Sync, run: Run) -> Flow:
    """Bring the replicas of VMs up to date. The result is what the step prepare on the home returns."""
    _refuse_unknown_peer(sync, run)
    if not sync.vms:
        return {}
    outcome = _Outcome()
    yield from _keep(sync, run, outcome)
    return outcome.planned


def replicate(sync: Sync, run: Run) -> Flow:
    """Like keep_replicas(), but what fails is a part of the result: C(peer), and in C(rows) what became of each VM."""
    outcome = _Outcome()
    stopped: t.Optional[Stopped] = None
    try:
        _refuse_unknown_peer(sync, run)
        yield from _keep(sync, run, outcome)
    except Stopped as exc:
        stopped = exc
    transfers = {vm["uuid"]: vm for vm in outcome.planned.get("transfers", ())}
    sent = {one["vm"]: one for one in outcome.sent}
    rows = [
        _row(vm, transfers.get(vm), sent.get(vm), outcome, _reason(stopped, vm, outcome), run.check) for vm in sync.vms
    ]
    return {"peer": sync.peer, "rows": rows, "changed": bool(outcome.planned) and not outcome.planned["idle"]}


def _row(
    vm: str, transfer: t.Optional[_Dict], sent: t.Optional[_Dict], outcome: _Outcome, reason: str, check: bool
) -> _Dict:
    complete = vm in outcome.complete
    failed = [sent["failure"]] if sent is not None and sent["failure"] else _failures_of(vm, outcome)
    failed = [*(_untidied(vm, outcome) if complete else failed), *filter(None, [reason])]
    planned_bytes = sum(disk["sends"] for disk in transfer["disks"]) if transfer is not None else 0
    return {
        "vm": vm,
        "complete": complete,
        "sent_bytes": planned_bytes if check else sent["sent_bytes"] if sent is not None else 0,
        "seconds": sent["seconds"] if sent is not None else 0.0,
        "age": round(outcome.seconds),
        "failure": ". ".join(failed) or ("" if complete else "its replicas are not complete"),
    }


def _reason(stopped: t.Optional[Stopped], vm: str, outcome: _Outcome) -> str:
    """Return why the sync stopped, as far as that concerns a VM."""
    if not isinstance(stopped, Unprepared):
        return str(stopped) if stopped is not None else ""
    labels: t.Mapping[str, str] = outcome.planned.get("labels", {})
    return stopped.of(labels.get(vm, vm), [label for uuid, label in labels.items() if uuid != vm])


def _untidied(vm: str, outcome: _Outcome) -> t.List[str]:
    """Return why the home could not end the sync of a VM."""
    label = outcome.planned.get("labels", {}).get(vm, vm)
    mine = f"{label}: "
    return [text[len(mine) :] for text in outcome.untidied if text.startswith(mine)]


def _failures_of(vm: str, outcome: _Outcome) -> t.List[str]:
    """Return the failures that are about a VM: one of a single VM begins with what that is called."""
    if vm in outcome.left_out:
        return [outcome.left_out[vm]]
    labels: t.Mapping[str, str] = outcome.planned.get("labels", {})
    mine = f"{labels.get(vm, vm)}: "
    others = tuple(f"{label}: " for uuid, label in labels.items() if uuid != vm)
    return [
        text[len(mine) :] if text.startswith(mine) else text for text in outcome.failures if not text.startswith(others)
    ]


def _keep(sync: Sync, run: Run, outcome: _Outcome) -> Part:
    vms = sync.vms
    if sync.failover == "present":
        outcome.left_out = yield from check_fit(sync)
        vms = [vm for vm in vms if vm not in outcome.left_out]
        if not vms:
            return
    peer_info = yield _read(sync, ssh_directories=sync.ssh_directories, may_be_lost=True)
    if peer_info.lost:
        raise Stopped(
            f"{sync.peer} could not be reached, so nothing was sent to it and no snapshot was taken: {peer_info.msg}"
        )
    name = "Plan the sync, and take the snapshots"
    more = {"peer": peer_info.result, "peer_pool": sync.peer_pool, "address": sync.address, "port": sync.port}
    keeps = {"keep": sync.keep, "keep_home": sync.keep_home, "goes_on": sync.goes_on or None}
    prepared = yield sync.send_call(name, "prepare", _PREPARED, vms=vms, **more, **keeps)
    outcome.planned = planned = dict(prepared.result)
    if run.check or not planned["transfers"]:
        outcome.complete = [vm["uuid"] for vm in planned["transfers"]]
        outcome.failures = list(planned["failures"])
        ended = prepared.ended
    else:
        ended = yield from _transfer(sync, peer_info.result["collected"], outcome)
    outcome.seconds = ended - prepared.began
    if not sync.goes_on:
        _fail(outcome.failures)
    if not sync.moves and not (run.check and run.diff):  # the diff has it
        began = render_time(prepared.began)
        lines = report.done(planned["transfers"], outcome.sent, outcome.complete, sync.peer, began, outcome.seconds)
        text = f"{planned['msg']}, would be sent" if run.check and not planned["idle"] else lines
        if text:
            yield Message("Say what was sent", text)
    whole = [vm for vm in planned["transfers"] if vm["uuid"] in outcome.complete]
    if whole:
        yield from prepare_failover(sync, run, dict(peer_info.result), {**planned, "transfers": whole})


def announce(sync: Sync, suspends: bool = False) -> Part:
    """Make the last transfer of a VM that is about to stop ready. Return it, and the keys of the peer.

    suspends: with the memory of its guest.
    """
    peer_info = yield _read(sync)
    more = {"vms": sync.vms, "peer": peer_info.result, "peer_pool": sync.peer_pool, "suspends": suspends}
    announced = yield sync.send_call("Plan the last transfer", "announce", ("transfers",), **more)
    transfers = announced.result["transfers"]
    opened = yield _open(sync, transfers)
    return transfers[0], opened.result["host_keys"]


def _read(sync: Sync, **more: t.Any) -> Call:
    fields = {"may_be_lost": more.pop("may_be_lost", False)}
    return Call("Read what the peer has", sync.peer, "replica_info", {**sync.peer_options, **more}, _THERE, **fields)


def _open(sync: Sync, transfers: t.Sequence[_Dict]) -> Call:
    more = {"transfers": transfers, "ssh_directories": sync.ssh_directories, "may_be_lost": sync.goes_on}
    more["goes_on"] = sync.goes_on or None
    return sync.receive_call("Let the streams in", "open", ("host_keys", "refused"), **more)


def _transfer(sync: Sync, since: t.Any, outcome: _Outcome) -> Part:
    """Send what was planned, and note what came of it. Return when that ended. Whatever fails, stock is taken."""
    failed: t.Optional[Stopped] = None
    planned = outcome.planned
    if not planned["idle"]:
        try:
            outcome.sent = yield from _send(sync, planned["transfers"], outcome.left_out)
        except CallFailed as exc:
            failed = exc
    transfers, keeps = planned["transfers"], ("complete", "failures")
    more = {"transfers": transfers, "since": since}
    closed = yield sync.receive_call("Take stock on the peer", "close", keeps, may_be_lost=sync.goes_on, **more)
    if closed.lost:
        failed = Stopped(f"{sync.peer} was lost in the middle of the sync: {closed.msg}")
    complete, failures = (closed.result.get(key, []) for key in ("complete", "failures"))
    done = yield sync.send_call("Tidy up", "finish", ("failures",), transfers=transfers, complete=complete)
    outcome.complete, outcome.untidied = complete, done.result["failures"]
    if failed is not None and not sync.goes_on:
        raise failed
    if sync.goes_on:
        outcome.failures = [str(failed)] if failed is not None else []
    else:
        incomplete = [vm["label"] for vm in transfers if vm["uuid"] not in complete]
        outcome.failures = [f"The replicas of this VM are not complete: {label}" for label in incomplete]
        outcome.failures += [one["failure"] for one in outcome.sent if one["failure"]]
    outcome.failures += planned["failures"]
    outcome.failures += [*failures, *done.result["failures"]]
    return done.ended


def _send(sync: Sync, transfers: t.Sequence[_Dict], left_out: t.Dict[str, str]) -> Part:
    """Send the streams. VMs whose replicas take none are added to left_out."""
    opened = yield _open(sync, transfers)
    left_out.update(opened.result.get("refused") or {})
    transfers = [vm for vm in transfers if vm["uuid"] not in left_out]
    more = {"address": sync.address, "port": sync.port, "bandwidth_limit": sync.bandwidth_limit}
    if opened.lost or not transfers:
        return []  # the end of the sync says why
    keys = opened.result["host_keys"]
    sent: Answer = yield sync.send_call("Send", "send", ("sent",), transfers=transfers, host_keys=keys, **more)
    return sent.result["sent"]


def _fail(failures: t.Sequence[str]) -> None:
    if failures:
        raise Stopped(". ".join(failures))


def _refuse_unknown_peer(sync: Sync, run: Run) -> None:
    """Refuse a peer that is not in the inventory, or the host itself."""
    if sync.peer == sync.home:
        raise Stopped(f"{sync.peer} is the host that has the VMs")
    if run.options(sync.peer) is None:
        raise Stopped(f"{sync.peer} is not in the inventory")


def give_up_replicas(sync: Sync, run: Run) -> Flow:
    """Give up the replicas of VMs on the peer, and what both hosts know of them."""
    _refuse_unknown_peer(sync, run)
    if not sync.vms:
        return {}
    name = "Ask the peer whether it has taken a VM over"
    asked = yield sync.look_call(name, sync.peer, sync.peer_options, may_be_lost=True)
    _refuse_taken(sync, asked)
    yield from check_at_home(sync, sync.vms)
    name, keeps = "Look which of the VMs have failover", ("names", "uuids", "failover", "homes")
    dry_run = yield sync.send_call(name, "remove", keeps, vms=sync.vms, check=True)
    _refuse_unreachable(sync, asked, dry_run)
    if not asked.lost:
        yield from _drop_records(sync, dry_run)
    name = "Destroy the snapshots and bookmarks of the sync"
    removed = yield sync.send_call(name, "remove", ("uuids", "homes", "failover"), vms=sync.vms)
    lose, changed = removed.result["failover"], removed.changed
    if sync.failover == "absent" and lose:
        yield from drop_everywhere(sync, run, lose)
        yield from mark_without(sync, lose, "Let VMs start with the host again, without asking the peer")
    if not asked.lost:
        given = {"vms": removed.result["uuids"], "homes": removed.result["homes"]}
        destroyed = yield sync.receive_call("Destroy the replicas", "remove", **given)
        changed = changed or destroyed.changed
    yield from _report_end(sync, run, dry_run.result["names"], asked.lost, changed)
    if lose:
        yield from mark_without(sync, lose, "Let VMs without replicas start with the host again")
    return {}


def _refuse_taken(sync: Sync, asked: Answer) -> None:
    """Refuse to end what a VM that was taken over needs for its way back."""
    known = asked.result.get("vms", ())
    names = [one[key] for one in known for key in ("vm", "alias")]
    taken = [vm for vm in sync.vms if vm in names]
    if taken:
        aliases = [one["alias"] for one in known if one["vm"] in taken and one["alias"]]
        raise Stopped(f"{sync.peer} has {', '.join(aliases or taken)}: it has taken it over")


def _refuse_unreachable(sync: Sync, asked: Answer, dry_run: Answer) -> None:
    """Refuse to forget a host that cannot be asked."""
    if not asked.lost or sync.forget_unseen:
        return
    names, peer = dry_run.result["names"], sync.peer
    risk = ", and could still take that over. So it keeps counting as a host with replicas"
    raise Stopped(
        f"{peer} could not be told to give up its replicas of {', '.join(names)}"
        f"{risk if dry_run.result['failover'] else ''}. Run this again when {peer} can be reached. If it is gone for"
        f" good: {commands_to_forget(names, peer)}"
    )


def _drop_records(sync: Sync, dry_run: Answer) -> Part:
    """Remove the records of the VMs from the peer, before the home forgets that it has some. The home of a VM with
    failover ends all records of it; for others, another home may have given one.
    """
    name = "Remove the records of the VMs from the peer, before the home forgets that it has some"
    with_failover = dry_run.result["failover"]
    others = [uuid for uuid in dry_run.result["uuids"] if uuid not in with_failover]
    if with_failover:
        yield sync.peer_failover_call(name, "drop", vms=with_failover)
    if others:
        yield sync.peer_failover_call(name, "drop", vms=others, homes=dry_run.result["homes"])


def _report_end(sync: Sync, run: Run, names: t.Sequence[str], lost: bool, changed: bool) -> Part:
    """Say what was given up, or that the replicas are still there."""
    vms, peer = ", ".join(names), sync.peer
    if not lost:
        ends = "would be given up" if run.check else "are given up"
        yield Message(
            "Say what was given up", f"{vms}: the replicas on {peer} {ends if changed else 'had been given up already'}"
        )
    elif not run.check:
        yield Message(
            "Say that the replicas are still there",
            f"{sync.home} does not count {peer} as a host with replicas of {vms} any more. What {peer} has stays there:"
            " if it is there again, the same command without flexdisk_forget_unseen gives it up",
        )
