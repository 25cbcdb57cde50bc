# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of a restore over the network: disks are made on one host from replicas on another one. In place, they then
take the places of the disks that they were.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...rules.restore import RESTORED, is_from
from .calls import Call, CallFailed, Flow, Message, Part, Run, Stopped
from .sync_arguments import Sync

_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Restore:
    """What is restored from where."""

    disks: t.Sequence[t.Mapping[str, str]]
    """disk: the UUID of the disk that it was. new_name: of the restored disk; in place, of what the disk has now."""
    sync: Sync
    """Its home has the replicas, and its peer gets the disks."""
    snapshot: t.Optional[str] = None
    """None for the newest one of a sync. Several disks are restored from snapshots of one moment."""
    in_place: bool = False
    """The disks themselves get the contents, and what they have becomes the new disks."""
    allow_restart: bool = False
    """Their VM may be stopped for that."""
    stop_timeout: t.Union[int, str, None] = None
    begun: bool = False
    """An earlier run of the same restore was interrupted while volumes changed places. All has come, so no replica is
    needed: home is the peer then."""

    def on_target(self, name: str, step: str, keeps: t.Sequence[str], /, check: bool = False, **more: t.Any) -> Call:
        """Return a call of a step on the host that gets the disks."""
        arguments = {"step": step, **self.sync.peer_options, "lock_timeout": self.sync.lock_timeout}
        return Call(name, self.sync.peer, "restore", {**arguments, **more}, keeps, check)

    def on_source(self, name: str, step: str, keeps: t.Sequence[str], /, check: bool = False, **more: t.Any) -> Call:
        """Return a call of a step on the host that has the replicas."""
        arguments = {"step": step, **self.sync.home_options, "lock_timeout": self.sync.lock_timeout}
        return Call(name, self.sync.home, "restore", {**arguments, **more}, keeps, check)

    def of_disk(self, disk: t.Mapping[str, str]) -> _Dict:
        """Return the arguments of the steps of one disk on the host that gets it."""
        return {**disk, "target_pool": self.sync.peer_pool, "in_place": self.in_place or None}

    def exchange(self, name: str, disks: t.Sequence[t.Mapping[str, t.Any]], check: bool = False) -> Call:
        """Return the call that gives restored disks the places and identities of the disks that they were."""
        power = {"allow_restart": self.allow_restart or None, "stop_timeout": self.stop_timeout}
        return self.on_target(name, "exchange", ("plan",), check, exchanges=[*disks], **power)


class _Found(t.NamedTuple):
    """What is known of a disk before anything is done."""

    disk: t.Mapping[str, str]
    target: _Dict
    """What the other host has of it."""
    transfers: t.List[_Dict]
    """What is sent. Nothing if it is there already."""
    origin: str
    when: str
    outlook: str
    """What a restore in place means for the replica, for people."""


def restore_disks(restore: Restore, run: Run) -> Flow:
    """Make detached disks on the target, and in place exchange them for the disks that they were. Everything is planned
    before anything is done. plan of the result says what was done: it is empty if that was so already.
    """
    sync = restore.sync
    if run.options(sync.peer) is None:
        raise Stopped(f"{sync.peer} is not in the inventory")
    if restore.begun:
        return {"plan": (yield from _exchange(restore, run, [], restore.disks))}
    targets: t.List[_Dict] = []
    for disk in restore.disks:
        looked = yield restore.on_target("Look what is there already", "look", ("target",), **restore.of_disk(disk))
        targets.append(looked.result["target"])
    if restore.in_place:
        _check_together(restore, targets)
    if restore.in_place and any(target["begun"] for target in targets):
        return {"plan": (yield from _exchange(restore, run, [], restore.disks))}
    snapshot = restore.snapshot
    if len(restore.disks) > 1 and not _have_come(restore, targets):
        given: _Dict = {"disks": [disk["disk"] for disk in restore.disks], "snapshot": snapshot}
        chosen = yield restore.on_source("Choose the set of snapshots", "choose", ("snapshot",), **given)
        snapshot = chosen.result["snapshot"]
    disks: t.List[_Found] = []
    for disk, target in zip(restore.disks, targets):
        disks.append((yield from _find(restore, disk, target, snapshot, True)))
    plan, exchanges = yield from _plan(restore, run, disks)
    for one in [] if run.check else disks:
        found = yield from _find(restore, one.disk, one.target, snapshot)
        if found.transfers:
            yield from _transfer(restore, found)
    if restore.in_place and not run.check:
        return {"plan": (yield from _exchange(restore, run, plan, exchanges))}
    yield from _tell(restore, run, plan)
    return {"plan": plan}


def _check_together(restore: Restore, targets: t.Sequence[_Dict]) -> None:
    """Refuse to exchange disks if others of them have been exchanged by another run, and were written to since.

    An interrupted run of this restore has marked all disks before it exchanges the first one.
    """
    disks = list(zip(restore.disks, targets))
    done = [disk["new_name"] for disk, target in disks if target["replaced"]]
    left = [disk["new_name"] for disk, target in disks if not (target["replaced"] or target["begun"])]
    if done and left:
        raise Stopped(
            f"{restore.sync.peer}: disks were restored already, and what they had before is {', '.join(done)}; of "
            f"{', '.join(left)} this is not so. The VM would have data of different times. Give another suffix to "
            "restore all disks together, or restore single disks with restore_disk"
        )


def _have_come(restore: Restore, targets: t.Sequence[_Dict]) -> bool:
    """Return whether all disks have come from the named snapshot, which the replicas need not have any more."""
    origins = [target["replaced"] or target["existing"] for target in targets]
    known = all(
        is_from({RESTORED: origin}, disk["disk"], restore.snapshot or "")
        for disk, origin in zip(restore.disks, origins)
    )
    return known and not any(target["unfinished"] for target in targets)


def _tell(restore: Restore, run: Run, plan: t.List[str]) -> Part:
    name = "Say what would be restored" if run.check else "Say what was restored"
    yield Message(name, plan or f"{restore.sync.peer}: this was restored from this snapshot already")


def _find(
    restore: Restore, disk: t.Mapping[str, str], target: _Dict, snapshot: t.Optional[str], check: bool = False
) -> Part:
    """Return what is sent for a disk. check: a key for it is made later, and the one of a killed run goes later."""
    way: _Dict = {"address": restore.sync.address, "port": restore.sync.port, "peer_name": restore.sync.peer}
    more = {"disk": disk["disk"], "snapshot": snapshot, "peer": target, **way}
    name = "Find the snapshot of the replica" if check else "Make the key"
    found = (yield restore.on_source(name, "prepare", ("transfers", "when", "origin", "outlook"), check, **more)).result
    return _Found(disk, target, found["transfers"], found["origin"], found["when"], found["outlook"])


def _plan(restore: Restore, run: Run, disks: t.Sequence[_Found]) -> Part:
    """Return the plan, and the arguments of the exchange. Nothing is changed yet, and all must have room together."""
    asks = not run.check  # in check mode, what is predicted counts as a change
    plan: t.List[str] = []
    exchanges: t.List[_Dict] = []
    needed = 0
    for one in disks:
        exchange = {**one.disk, "origin": one.origin, "source": restore.sync.home}
        if one.transfers:
            transfer = one.transfers[0]["disks"][0]
            more = {**restore.of_disk(one.disk), "transfers": one.transfers, "needed": needed or None}
            opened = yield restore.on_target("Check the room", "open", ("plan",), asks, **more)
            plan += [f"{line} of {restore.sync.home}, as it was at {one.when}" for line in opened.result["plan"]]
            needed += transfer["refreservation"]
            exchange["size"] = transfer["volsize"]
        exchanges.append(exchange)
    if restore.in_place:
        checked = yield restore.exchange("Check that the disks can get their places", exchanges, asks)
        steps = checked.result["plan"][1:]
        outlooks = dict.fromkeys(f"{restore.sync.home}: {one.outlook}" for one in disks if one.outlook)
        plan += [*steps, *(outlooks if steps else ())]
    return plan, [{key: value for key, value in one.items() if key != "size"} for one in exchanges]


def _transfer(restore: Restore, found: _Found) -> Part:
    """Make a detached disk on the target of what is sent."""
    sync, transfers = restore.sync, found.transfers
    of_disk = {**restore.of_disk(found.disk), "authorized_keys": sync.authorized_keys, "transfers": transfers}
    more = {**of_disk, "ssh_directories": sync.ssh_directories}
    opened = yield restore.on_target("Let the stream in", "open", ("host_keys",), **more)
    failed: t.Optional[CallFailed] = None
    failures: t.List[str] = []
    if any(stream["kind"] in ("full", "resume") for stream in transfers[0]["disks"][0]["streams"]):
        way: _Dict = {"address": sync.address, "port": sync.port, "bandwidth_limit": sync.bandwidth_limit}
        try:
            host_keys = opened.result["host_keys"]
            sent = yield sync.send_call("Send", "send", ("sent",), transfers=transfers, host_keys=host_keys, **way)
            failures = [one["failure"] for one in sent.result["sent"] if one["failure"]]
        except CallFailed as exc:
            failed = exc
    closed = yield restore.on_target("Make the disk", "close", ("complete",), **of_disk)
    yield sync.send_call("Remove the key", "finish", transfers=transfers, complete=[])
    if not closed.result["complete"]:
        if failed is not None:
            raise failed
        text = f"The snapshot has not come to {sync.peer} completely. Run this again: it goes on"
        raise Stopped(". ".join([*failures, text]))


def _exchange(restore: Restore, run: Run, plan: t.List[str], disks: t.Sequence[t.Mapping[str, t.Any]]) -> Part:
    """Exchange the disks, and return the plan of everything. plan: as it was before, [] if an earlier run has begun."""
    done = yield restore.exchange("Exchange the disks", disks)
    plan = plan or done.result["plan"][1:]
    yield from _tell(restore, run, plan)
    return plan
