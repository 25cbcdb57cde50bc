# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of a restore over the network: a disk is made on one host from a replica on another one."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .calls import Call, CallFailed, Flow, Message, Run, Stopped
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

    def on_target(self, name: str, step: str, keeps: t.Sequence[str], /, **more: t.Any) -> Call:
        """Return a call of a step on the host that gets the disk."""
        arguments = {"step": step, **self.sync.peer_options, "disk": self.disk, "new_name": self.new_name}
        arguments.update(target_pool=self.sync.peer_pool, lock_timeout=self.sync.lock_timeout)
        return Call(name, self.sync.peer, "restore", {**arguments, **more}, keeps)

    def on_source(self, name: str, step: str, keeps: t.Sequence[str], /, **more: t.Any) -> Call:
        """Return a call of a step on the host that has the replica."""
        arguments = {"step": step, **self.sync.home_options, "lock_timeout": self.sync.lock_timeout}
        return Call(name, self.sync.home, "restore", {**arguments, "peer_name": self.sync.peer, **more}, keeps)


def restore_disk(restore: Restore, run: Run) -> Flow:
    """Make a detached disk on the target. The result has what was made: plan is empty if it was there already."""
    sync = restore.sync
    if run.options(sync.peer) is None:
        raise Stopped(f"{sync.peer} is not in the inventory")
    looked = yield restore.on_target("Look what is there already", "look", ("target",))
    way: _Dict = {"address": sync.address, "port": sync.port}
    more = {"disk": restore.disk, "snapshot": restore.snapshot, "peer": looked.result["target"], **way}
    name = "Find the snapshot of the replica"
    prepared = yield restore.on_source(name, "prepare", ("transfers", "when"), **more)
    transfers = prepared.result["transfers"]
    if not transfers:
        yield Message("Say that there is nothing to do", f"{sync.peer}: {prepared.msg}")
        return {"plan": []}
    files = {"authorized_keys": sync.authorized_keys}
    letting = {**files, "transfers": transfers, "ssh_directories": sync.ssh_directories}
    opened = yield restore.on_target("Let the stream in", "open", ("plan", "host_keys"), **letting)
    plan = [f"{line} of {sync.home}, as it was at {prepared.result['when']}" for line in opened.result["plan"]]
    if run.check:
        yield Message("Say what would be restored", plan)
        return {"plan": plan}
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
    yield Message("Say what was restored", plan)
    return {"plan": plan}
