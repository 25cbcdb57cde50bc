# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of a restore over the network: a disk is made on one host from a replica on another one."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .calls import Call, CallFailed, Flow, Message, Part, Run, Stopped
from .sync_arguments import Sync

_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Restore:
    """What is restored from where."""

    disk: str
    """The UUID of the disk that it was."""
    new_name: str
    sync: Sync
    """Its home has the replica, and its peer gets the disk."""
    snapshot: t.Optional[str] = None
    """None for the newest one of a sync."""
    in_place: bool = False
    """The disk itself gets the contents, and what it had becomes the disk new_name."""
    allow_restart: bool = False
    """Its VM may be stopped for that."""
    stop_timeout: t.Union[int, str, None] = None

    def on_target(self, name: str, step: str, keeps: t.Sequence[str], /, **more: t.Any) -> Call:
        """Return a call of a step on the host that gets the disk."""
        arguments = {"step": step, **self.sync.peer_options, "disk": self.disk, "new_name": self.new_name}
        arguments.update(target_pool=self.sync.peer_pool, lock_timeout=self.sync.lock_timeout)
        arguments.update(in_place=self.in_place or None)
        return Call(name, self.sync.peer, "restore", {**arguments, **more}, keeps)

    def on_source(self, name: str, step: str, keeps: t.Sequence[str], /, **more: t.Any) -> Call:
        """Return a call of a step on the host that has the replica."""
        arguments = {"step": step, **self.sync.home_options, "lock_timeout": self.sync.lock_timeout}
        return Call(name, self.sync.home, "restore", {**arguments, "peer_name": self.sync.peer, **more}, keeps)

    def exchange(self, name: str, check: bool = False, **of_disk: t.Any) -> Call:
        """Return the call that gives the disk the place and the identity of the disk that it was restored from.

        of_disk: what is restored, and its size if it has not come yet.
        """
        one = {"disk": self.disk, "new_name": self.new_name, **of_disk}
        arguments = {"step": "exchange", **self.sync.peer_options, "lock_timeout": self.sync.lock_timeout}
        arguments.update(exchanges=[one], allow_restart=self.allow_restart or None, stop_timeout=self.stop_timeout)
        return Call(name, self.sync.peer, "restore", arguments, ("plan",), check)


def restore_disk(restore: Restore, run: Run) -> Flow:
    """Make a detached disk on the target, and in place exchange it for the disk. plan of the result says what was done:
    it is empty if that was so already.
    """
    sync = restore.sync
    if run.options(sync.peer) is None:
        raise Stopped(f"{sync.peer} is not in the inventory")
    looked = yield restore.on_target("Look what is there already", "look", ("target",))
    target = looked.result["target"]
    if target["begun"] and restore.in_place:
        return (yield from _exchange(restore, run, []))
    way: _Dict = {"address": sync.address, "port": sync.port}
    more = {"disk": restore.disk, "snapshot": restore.snapshot, "peer": target, **way}
    name = "Find the snapshot of the replica"
    prepared = yield restore.on_source(name, "prepare", ("transfers", "when", "origin"), **more)
    transfers, origin = prepared.result["transfers"], prepared.result["origin"]
    if not transfers and restore.in_place:
        return (yield from _exchange(restore, run, [], origin=origin))
    if not transfers:
        yield Message("Say that there is nothing to do", f"{sync.peer}: {prepared.msg}")
        return {"plan": []}
    then = (yield from _check_exchange(restore, run, prepared.result)) if restore.in_place else []
    plan = yield from _transfer(restore, run, prepared.result)
    if restore.in_place and not run.check:
        return (yield from _exchange(restore, run, plan, origin=origin))
    yield Message("Say what would be restored" if run.check else "Say what was restored", [*plan, *then])
    return {"plan": [*plan, *then]}


def _check_exchange(restore: Restore, run: Run, prepared: t.Mapping[str, t.Any]) -> Part:
    """Return the plan of the exchange that follows, before anything is sent."""
    transfers = prepared["transfers"]
    coming = {"origin": prepared["origin"], "size": transfers[0]["disks"][0]["volsize"]}
    try:
        checked = yield restore.exchange("Check that the disk can take its place", True, **coming)
    except CallFailed:
        if not run.check:
            yield restore.sync.send_call("Remove the key", "finish", transfers=transfers, complete=[])
        raise
    return checked.result["plan"][1:]


def _transfer(restore: Restore, run: Run, prepared: t.Mapping[str, t.Any]) -> Part:
    """Make a detached disk on the target of what is sent. Return the plan."""
    sync, transfers = restore.sync, prepared["transfers"]
    way: _Dict = {"address": sync.address, "port": sync.port}
    files = {"authorized_keys": sync.authorized_keys}
    letting = {**files, "transfers": transfers, "ssh_directories": sync.ssh_directories}
    opened = yield restore.on_target("Let the stream in", "open", ("plan", "host_keys"), **letting)
    plan = [f"{line} of {sync.home}, as it was at {prepared['when']}" for line in opened.result["plan"]]
    if run.check:
        return plan
    failed: t.Optional[CallFailed] = None
    failures: t.List[str] = []
    if any(stream["kind"] in ("full", "resume") for stream in transfers[0]["disks"][0]["streams"]):
        way.update(bandwidth_limit=sync.bandwidth_limit, host_keys=opened.result["host_keys"])
        try:
            sent = yield sync.send_call("Send", "send", ("sent",), transfers=transfers, **way)
            failures = [one["failure"] for one in sent.result["sent"] if one["failure"]]
        except CallFailed as exc:
            failed = exc
    closed = yield restore.on_target("Make the disk", "close", ("complete",), **files, transfers=transfers)
    yield sync.send_call("Remove the key", "finish", transfers=transfers, complete=[])
    if not closed.result["complete"]:
        if failed is not None:
            raise failed
        text = f"The snapshot has not come to {sync.peer} completely. Run this again: it goes on"
        raise Stopped(". ".join([*failures, text]))
    return plan


def _exchange(restore: Restore, run: Run, plan: t.List[str], **of_disk: t.Any) -> Part:
    done = yield restore.exchange("Exchange the disks", **of_disk)
    plan = [*plan, *done.result["plan"][1:]]
    name = "Say what would be restored" if run.check else "Say what was restored"
    yield Message(name, plan or f"{restore.sync.peer}: the disk was restored from this snapshot already")
    return {"plan": plan}
