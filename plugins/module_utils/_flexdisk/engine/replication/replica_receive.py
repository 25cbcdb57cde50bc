# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a sync do on the peer: let streams in, take stock of what came, give replicas up."""

from __future__ import annotations

import os
import shutil
import typing as t

from ...fleet.replication import last, trust
from ...fleet.replication.copies import VOLUME, Original
from ...fleet.replication.retention import gone_there
from ...fleet.replication.streams import GiveUp, Rollback, check_role, check_ways_back
from ...fleet.replication.sync import lacks_reservation
from ...fleet.replication.transfers import DiskTransfer, VmTransfer, place
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.errors import FlexdiskError
from ...rules import moves
from ...rules.identity import PREFIX
from ...rules.layout import container, replicas
from ...rules.layout import moves as place_of_moves
from ...rules.replicas import COMING_SNAPSHOTS, HOME, HOST, OF_VM, RESERVED, ROLE, SENT, SYNCED
from ...zfs import copies
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.container import make_container
from ..host.journal import host_name
from ..host.runner import search_path
from . import trust as keys
from .at_once import at_once
from .own_copies import destroy_held, drop_own_copy
from .receivers import end_receiver, note_of
from .replica_info import HOLD, Kept, check_alone, kept
from .way_back import go_back

_MOST = 400  # guids in a property, which is at most 8 KiB


class Stock(t.NamedTuple):
    """The uuids of the VMs whose replicas have the whole set, what failed, and whether anything but times changed."""

    complete: t.List[str]
    failures: t.List[str]
    changed: bool


class Removed(t.NamedTuple):
    """The replicas that go, and a warning about each that stays: it is of a disk in another pool."""

    gone: t.List[str]
    stays: t.List[str]


class Receiver:
    """What the steps need on the peer. authorized: the file of keys that may come in."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str) -> None:
        self._zfs = zfs
        self._capabilities = hypervisor.capabilities
        self._runner = runner
        self._copies = Copies(runner)
        self._authorized = os.path.expanduser(authorized)

    def _found(self, pools: t.Iterable[str]) -> t.Dict[str, Kept]:
        """The replicas in these pools by the names of their datasets."""
        places = [container(pool) for pool in set(pools) if self._zfs.exists(container(pool))]
        return {one.replica.dataset: one for one in kept(self._copies, places)}

    # -- open

    def open(self, vms: t.Sequence[VmTransfer], host_keys: t.Sequence[str]) -> t.List[str]:
        """Let the streams of these VMs in. The public keys of this host, which are in one of these directories.

        A receiver that an earlier run has left is ended first: after its sender lost power, it would wait for ever.
        Raises FlexdiskError before any replica is touched if one is not what was planned with.
        """
        for disk in (disk for vm in vms for disk in vm.disks if disk.streams):
            end_receiver(self._runner, disk.uuid)
        for pool in {vm.pool for vm in vms}:
            self._check_lets_in(pool, [vm.uuid for vm in vms])
        found = self._found(vm.pool for vm in vms)
        busy = [(vm, disk, found.get(place(vm, disk))) for vm in vms for disk in vm.disks if disk.streams]
        for vm, disk, there in busy:
            check_alone(place(vm, disk), found)
            if there is not None:
                _check_identity(vm, disk, there)
                check_ways_back(there.settled, disk.streams)
        for pool in {vm.pool for vm in vms}:
            self._make_place(pool)
        amount = sum(vm.sends for vm in vms)
        lines: t.Dict[str, str] = {}
        for vm, disk, there in busy:
            self._make_way(disk, there)
            if disk.sent:
                lines[disk.uuid] = self._line(vm, disk, there, amount)
        lines.update({vm.uuid: self._telling(vm, amount) for vm in vms if vm.asks})
        keys.let_in(self._authorized, lines)
        return keys.host_keys(host_keys)

    def _check_lets_in(self, pool: str, vms: t.Collection[str]) -> None:
        """Raise FlexdiskError InUse if the replicas of one of the VMs here may have more than the VM: it was on its way
        here, and had left its host, or is being taken over.
        """
        place = place_of_moves(pool)
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
        if not self._zfs.exists(replicas(pool)):
            self._zfs.create_container(replicas(pool), readonly="on", **self._hidden(VOLUME))

    def _hidden(self, kind: str) -> t.Dict[str, str]:
        """Nobody looks into a replica: it is not mounted, and shows no device where ZFS can hide it."""
        if kind != VOLUME:
            return {"mountpoint": "none", "canmount": "off"}
        return {} if self._capabilities.platform == "illumos" else {"volmode": "none"}

    def _make_way(self, disk: DiskTransfer, there: t.Optional[Kept]) -> None:
        """Do what comes before the streams: give up what arrived, go back."""
        if there is None:
            return
        name = there.replica.dataset
        if any(isinstance(stream, GiveUp) for stream in disk.streams):
            self._copies.give_up(name)
        ways = [stream for stream in disk.streams if isinstance(stream, Rollback)]
        if there.back and not ways:
            ways = [Rollback(there.replica.snapshots[-1], ())]
        for way in ways:
            go_back(self._zfs, self._copies, there.replica, way.to, way.lost)
        if there.replica.points:
            came = [f"{name}@{one.name}" for one in there.replica.snapshots if one.coming and not one.sent]
            self._zfs.set_facts(came, {SENT: "on"})
            self._zfs.set_facts([name], {COMING_SNAPSHOTS: _coming(disk)})

    def _line(self, vm: VmTransfer, disk: DiskTransfer, there: t.Optional[Kept], amount: int) -> str:
        """A new replica gets its identity in the command, so it is never without."""
        own = {PREFIX + ROLE: disk.uuid, "readonly": "on", **self._hidden(disk.kind)}
        if there is None or not there.replica.points:
            facts = {**_identity(vm, disk), COMING_SNAPSHOTS: _coming(disk)}
            own.update({PREFIX + key: value for key, value in facts.items() if value})
        command = trust.receiver(_zfs(), place(vm, disk), own, note_of(disk.uuid))
        return trust.authorized(command, disk.key, disk.uuid, keys.expiry(amount))

    def _telling(self, vm: VmTransfer, amount: int) -> str:
        """What lets the home ask what has come. It can neither change nor read anything else."""
        command = trust.teller(_zfs(), copies.arguments(*last.question(vm)))
        return trust.authorized(command, vm.asks, vm.uuid, keys.expiry(amount))

    # -- close

    def close(self, vms: t.Sequence[VmTransfer], since: str) -> Stock:
        """Shut the keys out, and take stock: replicas that came are made what they must be, and those that have the
        whole set lose what is older. A VM that fails does not stop the others. since: when the home was not read yet,
        by this host's clock.
        """
        uuids = [disk.uuid for vm in vms for disk in vm.disks]
        keys.shut_out(self._authorized, [*uuids, *(vm.uuid for vm in vms)])
        for uuid in uuids:
            end_receiver(self._runner, uuid)
        found = self._found(vm.pool for vm in vms)
        whole, failures, changes = [], [], False
        for vm in vms:
            try:
                has_all, changed = self._close_vm(vm, found)
            except FlexdiskError as exc:
                failures.append(f"{vm.label}: {exc.message} [{exc.code}]")
                continue
            whole += [vm] if has_all else []
            changes = changes or changed
        complete = at_once(whole, lambda some: self._date(some, since), failures)
        return Stock([vm.uuid for vm in complete], failures, changes)

    def _date(self, vms: t.Sequence[VmTransfer], since: str) -> None:
        names = [(place(vm, disk), vm.set) for vm in vms for disk in vm.disks]
        self._zfs.set_facts([f"{name}@{one}" for name, one in names] + [name for name, _one in names], {SYNCED: since})

    def _close_vm(self, vm: VmTransfer, found: t.Mapping[str, Kept]) -> t.Tuple[bool, bool]:
        """Whether its replicas have the whole set, and whether anything was changed."""
        there = [(disk, found.get(place(vm, disk))) for disk in vm.disks]
        came = [(disk, one) for disk, one in there if one is not None and one.replica.snapshots]
        for disk, one in came:
            check_alone(one.replica.dataset, found)
            _check_identity(vm, disk, one)
        changed = False
        for disk, one in came:
            changed = self._settle(vm, disk, one) or changed
        if len(came) < len(there) or not all(_has(disk, one, vm.set) for disk, one in came):
            return False, changed
        return True, self._keep_set(vm, came) or changed

    def _settle(self, vm: VmTransfer, disk: DiskTransfer, there: Kept) -> bool:
        """Mark what has come, and reserve what the disk reserves. Whether anything was to do."""
        replica, name = there.replica, there.replica.dataset
        came = [f"{name}@{p.name}" for p in replica.snapshots if not p.sent and p.guid in disk.snapshots]
        self._zfs.set_facts(came, {SENT: "on"})
        if (there.vm, replica.host) != (vm.uuid, vm.host):
            self._zfs.set_facts([name], _identity(vm, disk))
        if not replica.readonly:
            self._zfs.set(name, readonly="on")
        return self._reserve(disk, there) or bool(came) or not replica.readonly

    def _reserve(self, disk: DiskTransfer, there: Kept) -> bool:
        """A replica reserves as its disk, so that there is room when it is needed. Whether that was to do."""
        replica = there.replica
        if replica.token or not lacks_reservation(disk.refreservation, replica):
            return False
        if disk.kind != VOLUME:
            self._zfs.set(replica.dataset, refreservation=disk.refreservation)
        else:
            self._zfs.set(replica.dataset, refreservation="auto")
            self._zfs.set_facts([replica.dataset], {RESERVED: str(replica.volsize)})
        return True

    def _keep_set(self, vm: VmTransfer, came: t.Sequence[t.Tuple[DiskTransfer, Kept]]) -> bool:
        fresh = [
            f"{one.replica.dataset}@{point.name}"
            for _disk, one in came
            for point in one.replica.snapshots
            if point.name == vm.set and not (point.held or point.pinned)
        ]
        if fresh:
            self._zfs.hold(HOLD, *fresh)
        gone = [
            f"{one.replica.dataset}@{point.name}"
            for disk, one in came
            for point in gone_there(_known(disk, one), one.replica, vm.set, (vm.home, vm.peer))
        ]
        destroy_held(self._zfs, self._copies, gone)
        return bool(fresh or gone)

    # -- remove

    def remove(
        self, pools: t.Sequence[str], vms: t.Collection[str], homes: t.Collection[int], check_mode: bool
    ) -> Removed:
        """Give the replicas of these VMs up (by uuids). homes: only of disks in these pools, by guid; none: wherever
        the disks are.
        """
        for pool in pools:
            self._check_lets_in(pool, vms)
        found = self._found(pools).values()
        theirs = [one for one in found if one.vm in vms and one.replica.uuid]
        gone = [one for one in theirs if not homes or one.replica.home in homes]
        for one in gone if not check_mode else ():
            keys.shut_out(self._authorized, [one.replica.uuid])
            end_receiver(self._runner, one.replica.uuid)
            drop_own_copy(self._zfs, self._copies, one.replica.dataset, one.guid)
        stays = [_of_another_home(one) for one in theirs if one not in gone]
        return Removed([one.replica.dataset for one in gone], stays)


def _of_another_home(there: Kept) -> str:
    replica = there.replica
    text = f"{replica.dataset} stays: it is a replica of a disk of VM {there.vm} in another pool"
    text = f"{text}, of {replica.host} (guid {replica.home}). If nothing of that one is needed any more,"
    given = f'"vms": ["{there.vm}"], "homes": [{replica.home}]'
    command = f'{{"run": "receive", "step": "remove", "arguments": {{{given}}}}}'
    return f"{text} ansible HOST -m flexdisk.hypervisor.host_step -a '{command}' gives it up"


def _zfs() -> str:
    return shutil.which("zfs", path=search_path()) or "zfs"


def _check_identity(vm: VmTransfer, disk: DiskTransfer, there: Kept) -> None:
    check_role(Original(disk.uuid, disk.dataset, disk.volsize, kind=disk.kind), there.replica, vm.home)


def _identity(vm: VmTransfer, disk: DiskTransfer) -> t.Dict[str, str]:
    return {ROLE: disk.uuid, OF_VM: vm.uuid, HOME: str(vm.home), HOST: vm.host}


def _coming(disk: DiskTransfer) -> str:
    """The snapshots that the disk has. If they arrive, they are known as its own, even if nobody comes to mark them."""
    return ",".join(f"{guid:x}" for guid in disk.snapshots[-_MOST:])


def _has(disk: DiskTransfer, there: Kept, name: str) -> bool:
    """Whether a replica has the snapshot of this name, which is one of its disk, and nothing is under way."""
    return not there.replica.token and any(p.name == name and p.guid in disk.snapshots for p in there.replica.snapshots)


def _known(disk: DiskTransfer, there: Kept) -> Original:
    """The disk, as far as this host knows which of its snapshots it still has."""
    here = tuple(p for p in there.replica.snapshots if p.guid in disk.snapshots)
    return Original(disk.uuid, disk.dataset, disk.volsize, here)
