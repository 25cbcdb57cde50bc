# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The runs of replica_receive on the peer: let streams in, take stock of what came, give replicas up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import typing as t

from ..fleet.replication import trust
from ..fleet.replication.copies import VOLUME, Original
from ..fleet.replication.retention import gone_there
from ..fleet.replication.streams import GiveUp, Rollback
from ..fleet.replication.transfers import DiskTransfer, VmTransfer
from ..hypervisor.protocol import Hypervisor
from ..model.errors import FlexdiskError
from ..rules.identity import PREFIX
from ..rules.layout import container, replicas
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from . import lock
from . import trust as keys
from .container import make_container
from .replica_info import HOME, HOST, OF_VM, ROLE, SENT, SYNCED, Kept, kept
from .runner import SubprocessRunner, search_path

HOLD = "flexdisk-replica"


class Receiver:
    """What the steps need on the peer. authorized: the file of keys that may come in."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: SubprocessRunner, authorized: str) -> None:
        self._zfs = zfs
        self._capabilities = hypervisor.capabilities
        self._runner = runner
        self._copies = Copies(runner)
        self._authorized = os.path.expanduser(authorized)

    def _found(self, pools: t.Iterable[str]) -> t.Dict[str, Kept]:
        """The replicas in these pools by the names of their datasets."""
        places = [container(pool) for pool in set(pools) if self._zfs.exists(container(pool))]
        return {one.replica.dataset: one for one in kept(self._copies, places)}

    def _checked(self, vms: t.Sequence[VmTransfer]) -> t.Dict[str, Kept]:
        """The replicas that are there. Raises FlexdiskError InUse for another dataset in their place."""
        found = self._found(vm.pool for vm in vms)
        for vm in vms:
            for disk in vm.disks:
                there = found.get(place(vm, disk))
                if there is not None and there.replica.uuid != disk.uuid:
                    raise FlexdiskError("InUse", f"{place(vm, disk)} does not say that it is a replica of {disk.uuid}")
        return found

    # -- open

    def open(self, vms: t.Sequence[VmTransfer], host_keys: str) -> t.List[str]:
        """Let the streams of these VMs in. The public keys of this host.

        A receiver that an earlier run has left is ended first: after its sender lost power, it would wait for ever.
        """
        found = self._checked(vms)
        lines: t.Dict[str, str] = {}
        for vm in vms:
            self._make_place(vm.pool)
            for disk in vm.disks:
                if disk.streams:
                    end_receiver(self._runner, disk.uuid)
                    self._make_way(place(vm, disk), disk, found)
                if disk.sent:
                    lines[disk.uuid] = self._line(vm, disk)
        keys.let_in(self._authorized, lines)
        return keys.host_keys(host_keys)

    def _make_place(self, pool: str) -> None:
        if not self._zfs.exists(container(pool)):
            make_container(self._zfs, self._capabilities, pool)
        if not self._zfs.exists(replicas(pool)):
            # Nobody looks into a replica, and it shows no device.
            hidden = {} if self._capabilities.platform == "illumos" else {"volmode": "none"}
            self._zfs.create_container(replicas(pool), readonly="on", **hidden)

    def _make_way(self, name: str, disk: DiskTransfer, found: t.Mapping[str, Kept]) -> None:
        """Do what comes before the streams: give up what arrived, go back."""
        for stream in disk.streams:
            if isinstance(stream, GiveUp):
                self._copies.give_up(name)
            elif isinstance(stream, Rollback):
                points = found[name].replica.snapshots
                lost = [f"{name}@{point.name}" for point in points if point.name in stream.lost]
                self._release(lost)
                self._copies.roll_back(f"{name}@{stream.to.name}")

    def _release(self, snapshots: t.Sequence[str]) -> None:
        """Release those that we hold."""
        table = self._copies.table(snapshots, ("userrefs",), "snapshot", depth=0)
        self._copies.release(HOLD, [name for name in snapshots if table[name]["userrefs"][0] != "0"])

    def _line(self, vm: VmTransfer, disk: DiskTransfer) -> str:
        own = {"readonly": "on", **{PREFIX + key: value for key, value in _identity(vm, disk).items()}}
        zfs = shutil.which("zfs", path=search_path()) or "zfs"
        command = trust.receiver(zfs, place(vm, disk), own, note_of(disk.uuid))
        return trust.authorized(command, disk.key, disk.uuid, keys.expiry())

    # -- close

    def close(self, vms: t.Sequence[VmTransfer], since: str) -> t.Tuple[t.List[str], bool]:
        """Shut the keys out, and take stock: replicas that came are made what they must be, and those that have the
        whole set lose what is older. The uuids of the VMs whose replicas are complete, and whether anything was changed
        beside the time. since: when the home was not read yet, by this host's clock.
        """
        keys.shut_out(self._authorized, [disk.uuid for vm in vms for disk in vm.disks])
        found = self._checked(vms)
        complete, changed = [], False
        for uuid in (disk.uuid for vm in vms for disk in vm.disks):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note_of(uuid))
        for vm in vms:
            there = [(disk, found.get(place(vm, disk))) for disk in vm.disks]
            came = [(disk, one) for disk, one in there if one is not None and one.replica.snapshots]
            for disk, one in came:
                changed = self._settle(vm, disk, one) or changed
            if len(came) == len(there) and all(_has(disk, one, vm.set) for disk, one in came):
                changed = self._keep_set(vm, came) or changed
                self._copies.set_facts([place(vm, disk) for disk in vm.disks], {SYNCED: since})
                complete.append(vm.uuid)
        return complete, changed

    def _settle(self, vm: VmTransfer, disk: DiskTransfer, there: Kept) -> bool:
        """Mark what has come, and reserve what the disk reserves. Whether anything was to do."""
        replica, name = there.replica, there.replica.dataset
        came = [f"{name}@{p.name}" for p in replica.snapshots if not p.sent and p.guid in disk.snapshots]
        self._copies.set_facts(came, {SENT: "on"})
        changed = bool(came)
        if (there.vm, there.home, there.host) != (vm.uuid, vm.home, vm.host):
            self._copies.set_facts([name], _identity(vm, disk))
        if not replica.readonly:
            self._zfs.set(name, readonly="on")
            changed = True
        return self._reserve(disk, there) or changed

    def _reserve(self, disk: DiskTransfer, there: Kept) -> bool:
        """A replica reserves as its disk, so that there is room when it is needed."""
        replica = there.replica
        if replica.token or not disk.refreservation:
            return False
        if disk.kind != VOLUME:
            if replica.refreservation == disk.refreservation:
                return False
            self._zfs.set(replica.dataset, refreservation=disk.refreservation)
        elif replica.refreservation < replica.volsize:
            self._zfs.set(replica.dataset, refreservation="auto")
        else:
            return False
        return True

    def _keep_set(self, vm: VmTransfer, came: t.Sequence[t.Tuple[DiskTransfer, Kept]]) -> bool:
        pools = (vm.home, vm.peer)
        names = [f"{one.replica.dataset}@{vm.set}" for _disk, one in came]
        table = self._copies.table(names, ("userrefs",), "snapshot", depth=0)
        fresh = [name for name in names if table[name]["userrefs"][0] == "0"]
        self._copies.hold(HOLD, fresh)
        gone = [
            f"{one.replica.dataset}@{point.name}"
            for disk, one in came
            for point in gone_there(_known(disk, one, vm.set), one.replica, vm.set, pools)
        ]
        if gone:
            self._release(gone)
        for name in gone:
            self._copies.destroy(name)
        return bool(fresh or gone)

    # -- remove

    def remove(self, pools: t.Sequence[str], vms: t.Collection[str], check_mode: bool) -> t.List[str]:
        """Give the replicas of these VMs up (by uuids). The names of those that go."""
        gone = [one for one in self._found(pools).values() if one.vm in vms and one.replica.uuid]
        for one in gone if not check_mode else ():
            keys.shut_out(self._authorized, [one.replica.uuid])
            end_receiver(self._runner, one.replica.uuid)
            name = one.replica.dataset
            self._release([f"{name}@{point.name}" for point in one.replica.snapshots])
            self._zfs.destroy(name, snapshots=True)
        return [one.replica.dataset for one in gone]


def place(vm: VmTransfer, disk: DiskTransfer) -> str:
    """The dataset of a replica."""
    return f"{replicas(vm.pool)}/{disk.uuid}"


def _identity(vm: VmTransfer, disk: DiskTransfer) -> t.Dict[str, str]:
    return {ROLE: disk.uuid, OF_VM: vm.uuid, HOME: str(vm.home), HOST: vm.host}


def _has(disk: DiskTransfer, there: Kept, name: str) -> bool:
    """Whether a replica has the snapshot of this name, which is one of its disk, and nothing is under way."""
    points = there.replica.snapshots
    return not there.replica.token and points[-1].name == name and points[-1].guid in disk.snapshots


def _known(disk: DiskTransfer, there: Kept, name: str) -> Original:
    """The disk, as far as this host knows which of its snapshots it still has."""
    here = tuple(p for p in there.replica.snapshots if p.guid in disk.snapshots)
    return Original(disk.uuid, disk.dataset, disk.volsize, here)


def note_of(uuid: str) -> str:
    """The file in which the receiver of a disk notes its process."""
    return os.path.join(lock.place(), f"receive-{uuid}")


def end_receiver(runner: SubprocessRunner, uuid: str) -> None:
    """End what receives for a disk, if it is there."""
    note = note_of(uuid)
    try:
        with open(note, encoding="ascii") as file:
            process = int(file.read(32))
    except (FileNotFoundError, ValueError):
        return
    said = runner(("ps", "-o", "args=", "-p", str(process))).stdout
    if process > 1 and "receive" in said:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    os.unlink(note)
