# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host of a replica sends a snapshot of it to another host, where a disk is restored from it."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ...fleet.replication.copies import VOLUME, Point
from ...fleet.replication.restores import Target
from ...fleet.replication.streams import Full, GiveUp, Resume, Stream
from ...fleet.replication.transfers import DiskTransfer, VmTransfer
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError
from ...rules import identity, restore
from ...rules.inventory import Host
from ...rules.layout import pool_of
from ...rules.replicas import OF_VM, ROLE, sync_name
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.journal import host_name
from ..host.observe import observe
from . import trust as keys


class Planned(t.NamedTuple):
    """What is sent. Without a transfer, the other host has the restored disk already."""

    transfer: t.Optional[VmTransfer]
    when: str
    """When the disk was like the snapshot."""
    origin: str = ""
    """The snapshot, as a restored disk notes it."""
    vm: str = ""
    """The VM of the disk, under whose UUID keys are kept. "" if it is not known."""
    outlook: str = ""
    """What a restore in place means for the replica, "" for nothing."""


class RestoreSource:
    """The host that has the replica."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, pool: t.Optional[str]) -> None:
        self._zfs, self._hypervisor, self._runner, self._pool = zfs, hypervisor, runner, pool
        self._copies = Copies(runner)

    def choose(self, disks: t.Sequence[str], name: str) -> str:
        """Return the name of the snapshots from which several disks are restored. Read only.

        Raises FlexdiskError as restore.choose_set() does.
        """
        host = observe(self._zfs, self._hypervisor, self._pool, all_pools=True)
        return restore.choose_set(host, disks, name)

    def plan(self, disk: str, name: str, target: Target) -> Planned:
        """Return what is sent for a disk, by its UUID. name: the snapshot, "" for the newest one of a sync. Read only.

        Raises FlexdiskError ResourceNotFound, Ambiguous, NameConflict, EncryptionRoot or NotSupported.
        """
        host = observe(self._zfs, self._hypervisor, self._pool, all_pools=True)
        made = {restore.RESTORED: target.replaced or target.existing}
        try:
            replica = restore.find_replica(host, disk)
            snapshot = restore.choose(host, replica, name)
        except FlexdiskError:
            if restore.is_from(made, disk, name):
                return Planned(None, "", made[restore.RESTORED], outlook=restore.lost_text(name))
            raise
        outlook = restore.outlook(host, replica, snapshot)
        wanted = restore.Origin(disk, snapshot.guid, restore.short_name(snapshot))
        if target.exists:
            why = restore.why_not_same(made, wanted, bool(name))
            if why:
                was = "is what the disk had before: it" if target.replaced else ""
                raise FlexdiskError("NameConflict", " ".join(filter(None, (target.exists, was, why))))
            if not target.unfinished:
                return Planned(None, "", restore.encode_origin(wanted), _vm(replica), outlook)
        restore.check_restorable(replica)
        streams = () if target.exists else self._streams(wanted, snapshot, target)
        transfer = _transfer(host, replica, snapshot, streams, target)
        return Planned(transfer, restore.time_of(snapshot), restore.encode_origin(wanted), outlook=outlook)

    def _streams(self, wanted: restore.Origin, snapshot: Dataset, target: Target) -> t.Tuple[Stream, ...]:
        """Return what the other host still needs of the snapshot. What it has of another one is given up."""
        point = Point(wanted.snapshot, wanted.guid, snapshot.createtxg)
        if target.partial and target.partial == restore.encode_origin(wanted):
            if wanted.guid in target.guids:
                return ()
            if target.token and self._copies.token_guid(target.token) == wanted.guid:
                return (Resume(target.token, point),)
        return (*([GiveUp(target.token)] if target.is_partial else []), Full(point))

    def forget_key(self, vm: str) -> None:
        """Remove the key of a run that was killed when all had come. Another transfer of the VM makes its own."""
        if vm and os.path.lexists(keys.keys_folder(vm)):
            keys.forget_keys(vm)

    def make_key(self, transfer: VmTransfer) -> VmTransfer:
        """Return the transfer with a new key, if there is something to send."""
        wanted = [disk.uuid for disk in transfer.disks if disk.sent]
        made = keys.make_keys(self._runner, transfer.uuid, wanted) if wanted else {}
        return replace(transfer, disks=tuple(replace(disk, key=made.get(disk.uuid, "")) for disk in transfer.disks))


def _transfer(
    host: Host, replica: Dataset, snapshot: Dataset, streams: t.Tuple[Stream, ...], target: Target
) -> VmTransfer:
    uuid = replica.user[ROLE]
    home = host.datasets[pool_of(replica.name)].guid
    size = snapshot.volsize or replica.volsize
    disk = DiskTransfer(
        uuid,
        restore.short_name(snapshot),
        replica.name,
        VOLUME,
        size,
        max(size, replica.refreservation),
        streams,
        (snapshot.guid,),
        snapshot.referenced if any(isinstance(one, Full) for one in streams) else 0,
    )
    # No set is synced, so it has a number that no set has.
    no_set = sync_name(target.pool_guid, 0)
    return VmTransfer(_vm(replica), "", no_set, home, target.pool_guid, target.pool, host_name(), (disk,))


def _vm(replica: Dataset) -> str:
    """Return the UUID of the VM whose disk it is; the disk's own if the replica does not say it."""
    vm = replica.user.get(OF_VM, "")
    return vm if identity.is_uuid(vm) else replica.user[ROLE]
