# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The peer's side of a sync: allow streams, complete received replicas, and give replicas up."""

from __future__ import annotations

import os
import shutil
import typing as t

from ...fleet.replication import last, trust
from ...fleet.replication.copies import VOLUME, Original
from ...fleet.replication.retention import obsolete_there, retained_sets, with_dates
from ...fleet.replication.streams import GiveUp, Rollback, check_encryption, check_role, check_rollbacks
from ...fleet.replication.sync import lacks_reservation
from ...fleet.replication.transfers import DiskTransfer, VmTransfer, memory_place, place
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.errors import FlexdiskError
from ...rules import moves, saved_memory
from ...rules.identity import PREFIX, render_time, seconds_of
from ...rules.layout import container, memory_below, moves_container, replicas_container
from ...rules.replicas import COMING_SNAPSHOTS, HOME, HOST, KEEP, OF_VM, RESERVED, ROLE, SENT, SYNCED, TAKEN
from ...rules.retention import encode_keep
from ...zfs import copies
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.errors import ZfsError
from ..host.container import make_container
from ..host.journal import host_name
from ..host.runner import search_path
from . import trust as keys
from .at_once import at_once
from .own_copies import clear_memory, destroy_with_holds, drop_memory, drop_own_copy
from .receivers import end_receiver, pid_file
from .replica_info import HOLD, StoredReplica, check_alone, stored_replicas
from .way_back import roll_back_replica

_MAX_GUIDS = 400  # guids in a property, which is at most 8 KiB


class ClosedSync(t.NamedTuple):
    """The end of a sync on the peer."""

    complete: t.List[str]
    """The UUIDs of the VMs whose replicas have the complete set."""
    failures: t.List[str]
    changed: bool
    """Whether anything but times was changed."""


class RemovedReplicas(t.NamedTuple):
    """Replicas that were given up."""

    gone: t.List[str]
    stays: t.List[str]
    """A warning about each replica that stays, because it is of a disk in another pool."""


class Receiver:
    """The peer's side of a sync. authorized: the file authorized_keys through which the home sends."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str) -> None:
        self._zfs = zfs
        self._capabilities = hypervisor.capabilities
        self._runner = runner
        self._copies = Copies(runner)
        self._authorized = os.path.expanduser(authorized)

    def _replicas_in(self, pools: t.Iterable[str]) -> t.Dict[str, StoredReplica]:
        """Return the replicas in these pools by the names of their datasets."""
        places = [container(pool) for pool in set(pools) if self._zfs.exists(container(pool))]
        return {one.replica.dataset: one for one in stored_replicas(self._copies, places)}

    # -- open

    def refused(self, vms: t.Sequence[VmTransfer]) -> t.Dict[str, str]:
        """Return why VMs may not send, by their UUIDs. Receivers of earlier runs are ended first."""
        self._end_receivers(vms)
        stored = self._replicas_in(vm.pool for vm in vms)
        reasons: t.Dict[str, str] = {}
        for vm in vms:
            try:
                self._check_may_receive(vm.pool, [vm.uuid])
                self._check_replicas(vm, stored)
            except FlexdiskError as exc:
                reasons[vm.uuid] = f"{exc.message} [{exc.code}]"
        return reasons

    def open(self, vms: t.Sequence[VmTransfer], host_keys: t.Sequence[str]) -> t.List[str]:
        """Prepare the replicas of these VMs, and allow their streams. Return the public keys of this host.

        Receivers of earlier runs are ended first, because they wait forever if their sender has lost power. Raises
        FlexdiskError before any replica is touched if one is not as planned.

        host_keys: directories that may have the public keys of this host.
        """
        self._end_receivers(vms)
        for pool in {vm.pool for vm in vms}:
            self._check_may_receive(pool, [vm.uuid for vm in vms])
        stored = self._replicas_in(vm.pool for vm in vms)
        for vm in vms:
            self._check_replicas(vm, stored)
        for pool in {vm.pool for vm in vms}:
            self._make_place(pool)
        amount = sum(vm.sends for vm in vms)
        busy = [(vm, disk, stored.get(place(vm, disk))) for vm in vms for disk in vm.disks if disk.streams]
        lines: t.Dict[str, str] = {}
        for vm, disk, replica in busy:
            self._prepare_replica(disk, replica)
            if disk.sent:
                lines[disk.uuid] = self._authorized_line(vm, disk, replica, amount)
        for vm in (vm for vm in vms if vm.memory is not None):
            clear_memory(self._zfs, self._copies, f"{moves_container(vm.pool)}/{vm.uuid}")  # of a run that was killed
            lines[saved_memory.key_name(vm.uuid)] = self._memory_line(vm, amount)
        lines.update({vm.uuid: self._question_line(vm, amount) for vm in vms if vm.asks})
        keys.add_authorized(self._authorized, lines)
        return keys.host_keys(host_keys)

    def _end_receivers(self, vms: t.Sequence[VmTransfer]) -> None:
        for disk in (disk for vm in vms for disk in vm.disks if disk.streams):
            end_receiver(self._runner, disk.uuid)
        for vm in (vm for vm in vms if vm.memory is not None):
            end_receiver(self._runner, saved_memory.key_name(vm.uuid))

    def _check_replicas(self, vm: VmTransfer, stored: t.Mapping[str, StoredReplica]) -> None:
        """Raise FlexdiskError if a replica is not as planned."""
        for disk in (disk for disk in vm.disks if disk.streams):
            replica = stored.get(place(vm, disk))
            check_alone(place(vm, disk), stored)
            if replica is not None:
                _check_identity(vm, disk, replica)
                check_rollbacks(replica.settled, disk.streams)

    def _check_may_receive(self, pool: str, vms: t.Collection[str]) -> None:
        """Raise FlexdiskError InUse if replicas here may have newer data than their VM.

        That is so if the VM is being taken over, or was on its way here and had left its host.
        """
        place = moves_container(pool)
        known = moves.find(self._zfs.datasets(place)) if self._zfs.exists(place) else {}
        for move in (move for uuid, move in known.items() if uuid in vms):
            if move.back_to:
                text = f"{host_name()} is taking it over from {move.host}; the playbook failover_vm goes on"
                raise FlexdiskError("InUse", f"VM {move.label}: {text}")
            if move.has_left:
                text = (
                    f"{host_name()} has what it wrote on {move.host} last, and its replicas there are left as they are"
                )
                text += (
                    ". The playbook move_vm goes on; if another host has the VM, flexdisk_failover_state=returned and"
                )
                text += " flexdisk_old_host with the name of this host, of the playbook failover_vm, come first"
                raise FlexdiskError("InUse", f"VM {move.label}: {text}")

    def _make_place(self, pool: str) -> None:
        if not self._zfs.exists(container(pool)):
            make_container(self._zfs, self._capabilities, pool)
        if not self._zfs.exists(replicas_container(pool)):
            self._zfs.create_container(replicas_container(pool), readonly="on", **self._hidden(VOLUME))

    def _hidden(self, kind: str) -> t.Dict[str, str]:
        """Return the properties that keep a replica unmounted and, where ZFS can do so, without a device."""
        if kind != VOLUME:
            return {"mountpoint": "none", "canmount": "off"}
        return {} if self._capabilities.platform == "illumos" else {"volmode": "none"}

    def _prepare_replica(self, disk: DiskTransfer, stored: t.Optional[StoredReplica]) -> None:
        """Discard a partly received stream, and roll the replica back, as far as planned."""
        if stored is None:
            return
        name = stored.replica.dataset
        if any(isinstance(stream, GiveUp) for stream in disk.streams):
            self._copies.give_up(name)
        rollbacks = [stream for stream in disk.streams if isinstance(stream, Rollback)]
        if stored.back and not rollbacks:
            rollbacks = [Rollback(stored.replica.snapshots[-1], ())]
        for planned in rollbacks:
            roll_back_replica(self._zfs, self._copies, stored.replica, planned.to, planned.lost)
        if stored.replica.points:
            unmarked = [f"{name}@{one.name}" for one in stored.replica.snapshots if one.coming and not one.sent]
            self._zfs.set_facts(unmarked, {SENT: "on"})
            self._zfs.set_facts([name], {COMING_SNAPSHOTS: _expected_snapshots(disk)})

    def _authorized_line(
        self, vm: VmTransfer, disk: DiskTransfer, stored: t.Optional[StoredReplica], amount: int
    ) -> str:
        """Return the line of authorized_keys for a disk. A new replica gets its identity with the stream."""
        properties = {PREFIX + ROLE: disk.uuid, "readonly": "on", **self._hidden(disk.kind)}
        if stored is None or not stored.replica.points:
            facts = {**_identity(vm, disk), COMING_SNAPSHOTS: _expected_snapshots(disk)}
            properties.update({PREFIX + key: value for key, value in facts.items() if value})
        command = trust.receive_command(zfs_program(), place(vm, disk), properties, pid_file(disk.uuid))
        return trust.authorized(command, disk.key, disk.uuid, keys.expiry(amount))

    def _memory_line(self, vm: VmTransfer, amount: int) -> str:
        """Return the line of authorized_keys for the memory of the guest. Only root can read what comes."""
        name, memory = saved_memory.key_name(vm.uuid), t.cast(DiskTransfer, vm.memory)
        own = saved_memory.properties(vm.uuid)
        command = trust.receive_command(zfs_program(), memory_place(vm), own, pid_file(name))
        return trust.authorized(command, memory.key, name, keys.expiry(amount))

    def _question_line(self, vm: VmTransfer, amount: int) -> str:
        """Return the line of authorized_keys with which the home asks what was received. It allows nothing else."""
        command = trust.get_command(zfs_program(), copies.arguments(*last.question(vm)))
        return trust.authorized(command, vm.asks, vm.uuid, keys.expiry(amount))

    # -- close

    def close(self, vms: t.Sequence[VmTransfer], since: str) -> ClosedSync:
        """Remove the keys, set the properties of received replicas, and destroy older sets of complete ones.

        A VM that fails does not stop the others. since: a time before the home was read, by this host's clock.
        """
        uuids = [disk.uuid for vm in vms for disk in vm.disks]
        keys.remove_authorized(self._authorized, [*uuids, *(vm.uuid for vm in vms)])
        for uuid in uuids:
            end_receiver(self._runner, uuid)
        stored = self._replicas_in(vm.pool for vm in vms)
        complete_vms, failures, changes = [], [], False
        for vm in vms:
            try:
                has_all, changed = self._close_vm(vm, stored, since)
                changed = self._tidy_memory(vm) or changed
            except FlexdiskError as exc:
                failures.append(f"{vm.full_label}: {exc.message} [{exc.code}]")
                continue
            complete_vms += [vm] if has_all else []
            changes = changes or changed
        complete = at_once(complete_vms, lambda some: self._write_times(some, since), failures)
        return ClosedSync([vm.uuid for vm in complete], failures, changes)

    def _write_times(self, vms: t.Sequence[VmTransfer], since: str) -> None:
        names = [(place(vm, disk), vm.set) for vm in vms for disk in vm.disks]
        self._zfs.set_facts([f"{name}@{one}" for name, one in names] + [name for name, _one in names], {SYNCED: since})

    def _close_vm(self, vm: VmTransfer, stored: t.Mapping[str, StoredReplica], since: str) -> t.Tuple[bool, bool]:
        """Return whether the VM's replicas have the complete set, and whether anything was changed."""
        pairs = [(disk, stored.get(place(vm, disk))) for disk in vm.disks]
        received = [(disk, one) for disk, one in pairs if one is not None and one.replica.snapshots]
        for disk, one in received:
            check_alone(one.replica.dataset, stored)
            _check_identity(vm, disk, one)
        changed = False
        for disk, one in received:
            changed = self._settle(vm, disk, one) or changed
        if len(received) < len(pairs) or not all(_has_snapshot(disk, one, vm.set) for disk, one in received):
            return False, changed
        return True, self._keep_set(vm, received, since) or changed

    def _tidy_memory(self, vm: VmTransfer) -> bool:
        """Destroy the memory of a guest that has left this host, if its move could not do so any more.

        Return whether there was any.
        """
        at = f"{moves_container(vm.pool)}/{vm.uuid}"
        if not (self._zfs.files.exists(saved_memory.folder(vm.uuid)) and self._zfs.exists(memory_below(at))):
            return False
        move = moves.decode_at(at, self._zfs.local_fact(at, moves.MOVE_PROPERTY))
        if move is None or move.phase != moves.MOVED:
            return False
        drop_memory(self._zfs, self._copies, at)
        return True

    def _settle(self, vm: VmTransfer, disk: DiskTransfer, stored: StoredReplica) -> bool:
        """Mark received snapshots, and reserve what the disk reserves. Return whether there was anything to do."""
        replica, name = stored.replica, stored.replica.dataset
        unmarked = [f"{name}@{p.name}" for p in replica.snapshots if not p.sent and p.guid in disk.snapshots]
        self._zfs.set_facts(unmarked, {SENT: "on"})
        if (stored.vm, replica.host) != (vm.uuid, vm.host):
            self._zfs.set_facts([name], _identity(vm, disk))
        if not replica.readonly:
            self._zfs.set(name, readonly="on")
        return self._reserve(disk, stored) or bool(unmarked) or not replica.readonly

    def _reserve(self, disk: DiskTransfer, stored: StoredReplica) -> bool:
        """Reserve as much for a replica as its disk does. Return whether there was anything to do."""
        replica = stored.replica
        if replica.token or not lacks_reservation(disk.refreservation, replica):
            return False
        if disk.kind != VOLUME:
            self._zfs.set(replica.dataset, refreservation=disk.refreservation)
        else:
            self._zfs.set(replica.dataset, refreservation="auto")
            self._zfs.set_facts([replica.dataset], {RESERVED: str(replica.volsize)})
        return True

    def _keep_set(self, vm: VmTransfer, received: t.Sequence[t.Tuple[DiskTransfer, StoredReplica]], since: str) -> bool:
        keep = encode_keep(vm.keep)
        others = [one.replica.dataset for _disk, one in received if one.replica.keep != keep]
        self._zfs.set_facts(others, {KEEP: keep})
        pools = (vm.home, vm.peer)
        dated = with_dates([one.replica for _disk, one in received], pools, seconds_of(since))
        stays = retained_sets(dated, pools, vm.keep.replica)
        fresh = [
            f"{one.replica.dataset}@{point.name}"
            for _disk, one in received
            for point in one.replica.snapshots
            if point.name == vm.set and not (point.held or point.pinned)
        ]
        if fresh:
            if any(vm.keep.replica):  # the time of the newest set moves as long as its disks are like it
                self._zfs.set_facts(fresh, {TAKEN: since})
            self._zfs.hold(HOLD, *fresh)
        undated: t.Dict[int, t.List[str]] = {}
        for before, after in zip((one.replica for _disk, one in received), dated):
            for point, its_date in zip(before.points, after.points):
                if point.name in stays and point.name != vm.set and not (point.bookmark or point.time):
                    undated.setdefault(its_date.time, []).append(f"{before.dataset}@{point.name}")
        for moment, names in undated.items():
            self._zfs.set_facts(names, {TAKEN: render_time(moment)})
        outdated = [
            f"{one.replica.dataset}@{point.name}"
            for disk, one in received
            for point in obsolete_there(_known_original(disk, one), one.replica, vm.set, pools, stays)
        ]
        self._destroy_unless_cloned(outdated)
        return bool(fresh or undated or outdated or others)

    def _destroy_unless_cloned(self, snapshots: t.Sequence[str]) -> None:
        """Destroy older snapshots, but those that somebody has cloned: the next sync tries again."""
        for name in snapshots:
            try:
                destroy_with_holds(self._zfs, self._copies, [name])
            except ZfsError as exc:
                if exc.code != "HasClones":
                    raise

    # -- remove

    def remove(
        self, pools: t.Sequence[str], vms: t.Collection[str], homes: t.Collection[int], check_mode: bool
    ) -> RemovedReplicas:
        """Destroy the replicas of these VMs.

        homes: the guids of pools. If there are any, only replicas of disks in these pools are destroyed.
        """
        for pool in pools:
            self._check_may_receive(pool, vms)
        stored = self._replicas_in(pools).values()
        of_vms = [one for one in stored if one.vm in vms and one.replica.uuid]
        gone = [one for one in of_vms if not homes or one.replica.home in homes]
        for one in gone if not check_mode else ():
            keys.remove_authorized(self._authorized, [one.replica.uuid])
            end_receiver(self._runner, one.replica.uuid)
            drop_own_copy(self._zfs, self._copies, one.replica.dataset, one.guid)
        stays = [_of_another_home(one) for one in of_vms if one not in gone]
        return RemovedReplicas([one.replica.dataset for one in gone], stays)


def _of_another_home(stored: StoredReplica) -> str:
    replica = stored.replica
    text = f"{replica.dataset} stays: it is a replica of a disk of VM {stored.vm} in another pool"
    text = f"{text}, of {replica.host} (guid {replica.home}). If nothing of that one is needed any more,"
    arguments = f'"vms": ["{stored.vm}"], "homes": [{replica.home}]'
    command = f'{{"run": "receive", "step": "remove", "arguments": {{{arguments}}}}}'
    return f"{text} ansible HOST -m flexdisk.hypervisor.host_step -a '{command}' gives it up"


def zfs_program() -> str:
    """Return the program of ZFS, with its path if it is known."""
    return shutil.which("zfs", path=search_path()) or "zfs"


def _check_identity(vm: VmTransfer, disk: DiskTransfer, stored: StoredReplica) -> None:
    check_role(Original(disk.uuid, disk.dataset, disk.volsize, kind=disk.kind), stored.replica, vm.home)
    check_encryption(disk.dataset, disk.raw, stored.replica)


def _identity(vm: VmTransfer, disk: DiskTransfer) -> t.Dict[str, str]:
    return {ROLE: disk.uuid, OF_VM: vm.uuid, HOME: str(vm.home), HOST: vm.host}


def _expected_snapshots(disk: DiskTransfer) -> str:
    """Return the guids of the disk's snapshots. Received ones are recognised by them even before they are marked."""
    return ",".join(f"{guid:x}" for guid in disk.snapshots[-_MAX_GUIDS:])


def _has_snapshot(disk: DiskTransfer, stored: StoredReplica, name: str) -> bool:
    """Return whether a replica has this snapshot of its disk, and no partly received stream."""
    return not stored.replica.token and any(
        p.name == name and p.guid in disk.snapshots for p in stored.replica.snapshots
    )


def _known_original(disk: DiskTransfer, stored: StoredReplica) -> Original:
    """Return the disk with those of its snapshots that this host knows."""
    here = tuple(p for p in stored.replica.snapshots if p.guid in disk.snapshots)
    return Original(disk.uuid, disk.dataset, disk.volsize, here)
