# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last transfer of a move, from the home, after the VM has stopped. Sender.announce prepares it."""

from __future__ import annotations

import os
import typing as t

from ...fleet.replication import last, trust
from ...fleet.replication.room import space_with_next_set
from ...fleet.replication.transfers import VmTransfer
from ...model.errors import FlexdiskError
from ...rules.replicas import is_synced
from ...zfs import copies, exact
from ...zfs.errors import ZfsError
from ..host.progress import Progress
from ..replication import replica_info, sync_space
from ..replication import trust as keys
from ..replication.replica_send import Sender


class LastTransfer:
    """The last transfer of a move, after the VM has stopped, on the host that the VM leaves."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def take(self, vm: VmTransfer) -> VmTransfer:
        """Take the snapshots of a stopped VM. Return the transfer with them.

        They may need more space than was announced, because the guest has written since then.
        """
        if vm.memory is not None:
            self._drop_old_snapshots(vm.memory.dataset)
        names = [f"{one.dataset}@{vm.set}" for one in (*vm.disks, *filter(None, [vm.memory]))]
        try:
            self._sender.zfs.snapshot(*names)
        except ZfsError as exc:
            if exc.code != "InsufficientSpace" or not self._make_room(vm):
                raise
            self._sender.zfs.snapshot(*names)
        rows = self._sender.copies.table(names, ("guid", "createtxg"), "snapshot", depth=0)
        points = {name.partition("@")[0]: (int(r["guid"][0]), int(r["createtxg"][0])) for name, r in rows.items()}
        return last.taken(vm, points)

    def _drop_old_snapshots(self, memory: str) -> None:
        """Destroy the snapshots of the memory that a killed run has taken: the next set may have the same name."""
        table = self._sender.copies.table([memory], ("guid",), "snapshot")
        names = [name for name in table if is_synced(name.partition("@")[2])]
        if names:
            exact.destroy_own(self._sender.zfs, *names)

    def _make_room(self, vm: VmTransfer) -> bool:
        """Give the VM room for snapshots. Return whether something was changed."""
        sender = self._sender
        seen = replica_info.read_vms(sender.zfs, sender.copies, sender.hypervisor, [vm.uuid], sender.pool)
        return True in [sync_space.settle(sender.zfs, one, space_with_next_set(one, ()), seen.host) for one in seen.vms]

    def send(
        self, vm: VmTransfer, address: trust.Address, known: t.Sequence[str], progress: Progress, here: str
    ) -> None:
        """Send the snapshots, then check that the other host has everything and still expects the VM.

        The keys are removed afterwards. here: the name of this host for the other one.

        Raises FlexdiskError TransferFailed, or Changed if the VM must not leave.
        """
        progress.begin(vm.sends)
        try:
            self._sender.stream(vm, address, known, progress)
            self._check_target(vm, address, here)
        except OSError as exc:
            raise FlexdiskError("TransferFailed", f"VM {vm.label}: {exc}") from exc
        finally:
            keys.forget_keys(vm.uuid)

    def _check_target(self, vm: VmTransfer, address: trust.Address, here: str) -> None:
        folder = keys.keys_folder(vm.uuid)
        argv = trust.ssh(address, os.path.join(folder, vm.uuid), os.path.join(folder, keys.KNOWN_HOSTS))
        answer = self._sender.runner(argv)
        if answer.rc != 0:
            error = answer.stderr.strip() or f"ssh ended with {answer.rc}"
            raise FlexdiskError("TransferFailed", f"VM {vm.label}: {address.host} cannot report what it has: {error}")
        mismatch = last.lacking(vm, copies.rows(answer.stdout), here)
        if mismatch:
            raise FlexdiskError("Changed", f"VM {vm.label} does not leave for {address.host}: {mismatch}")
