# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""A VM leaves this host: it is stopped, its disks become replicas, and a tombstone takes its place."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..fleet.replication.record import (
    OWN,
    DiskRecord,
    PlatformDisk,
    Record,
    SnapshotRecord,
    digest,
)
from ..fleet.replication.retention import outlived
from ..fleet.replication.transfers import VmTransfer
from ..hypervisor.protocol import Hypervisor
from ..model.command import Runner
from ..model.dataset import Dataset
from ..model.desired import Description, Policy
from ..model.errors import FlexdiskError, Problem
from ..model.vm import FILE, Disk, Vm
from ..plan.changes import facts_of
from ..plan.planner import find_vm
from ..plan.steps import VmPlan
from ..plan.vm import plan_departure
from ..plan.vm_move import refusals
from ..rules import moves, snapshots, uefi
from ..rules.identity import render_time
from ..rules.inventory import Host
from ..rules.layout import container, pool_of, replicas
from ..rules.layout import moves as place_of_moves
from ..rules.moves import LEAVING, MOVED, Move
from ..rules.replicas import FACT as NOTE
from ..rules.replicas import (
    HOME,
    HOST,
    MARKS,
    OF_VM,
    RESERVED,
    ROLE,
    SENT,
    SYNCED,
    elsewhere,
    encode,
    is_changed,
    is_synced,
)
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from . import autoboot, file_disks, progress
from . import trust as keys
from .journal import forget_vm
from .move_marks import rewrite_move, write_move
from .observe import observe
from .outcome import Outcome
from .replica_info import HOLD, kept, uuid_of
from .run import Task

_Dict = t.Dict[str, t.Any]


class Departure:
    """What the steps of a move need on the host that a VM leaves. policy: how a guest is stopped."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, policy: Policy) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._policy = policy

    # -- look

    def look(self, name: str, here: str, target: str = "") -> _Dict:
        """What this host has of a VM: the VM with its record, or what is written down of it. Nothing is changed.

        here: the name of this host for the other one, which is target.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        found = find_vm(host, name)
        if isinstance(found, Problem):
            known = moves.named(host.moves, name)
            if len(known) > 1:
                raise FlexdiskError("Ambiguous", f"several VMs that have moved are called {name}; give the whole uuid")
            if not known and found.code != "ResourceNotFound":
                raise FlexdiskError(found.code, found.message)
            left = known[0]._asdict() if known else None
            return {"vm": "", "pool": "", "move": left, "record": None, "digest": "", "refusals": []}
        move = host.moves.get(found.config.uuid)
        told = self._hypervisor.description(found.config.uuid)
        record = self.record(host, found, told, here, target)
        return {
            "vm": found.config.uuid,
            "pool": found.config.pool,
            "move": move._asdict() if move else None,
            "record": record,
            "digest": digest(record),
            "refusals": refusals(host, found, told.stays),
        }

    def _check_movable(self, host: Host, vm: Vm, told: Description) -> None:
        problems = refusals(host, vm, told.stays)
        if problems:
            raise FlexdiskError(problems[0].code, f"VM {vm.label}: {problems[0].message}")

    def record(self, host: Host, vm: Vm, told: Description, here: str, target: str = "") -> Record:
        """What the other host must know of a VM to make it again. told: by the driver. here and target: as for look."""
        config, move = vm.config, host.moves.get(vm.config.uuid)
        home = host.datasets[config.pool].guid
        return Record(
            uuid=config.uuid,
            alias=config.alias,
            host=here,
            home=home,
            hypervisor=self._hypervisor.capabilities.name,
            memory=config.memory,
            vcpus=config.vcpus,
            quota=vm.root.refquota,
            flexible=config.flexible_disk_size,
            state=move.state if move else config.state,
            autoboot=move.autoboot if move else config.autoboot,
            indestructible=config.indestructible,
            marks={key: value for key, value in vm.root.user.items() if key in OWN},
            description=told.of_new,
            disks=tuple(
                _disk(disk, told.disks.get(disk.path, ""), encode(elsewhere(disk, target, home)))
                for disk in _travelling(vm)
            ),
            snapshots=tuple(_snapshot(vm, one) for one in snapshots.snapshots_of(vm) if snapshots.whole(vm, one)),
            hidden=tuple(_hidden(disk) for disk in vm.disks if disk.hidden),
        )

    # -- leave

    def leave(self, uuid: str, here: str, target: str, pool: int, known: str) -> Description:
        """Write down that the VM leaves for a host whose pool has this guid, and stop it. What its driver says of it.

        here: as for look. known: the digest that look told. A VM that has changed since is refused.
        """
        host, vm = self._vm(uuid)
        move, told = host.moves.get(uuid), self._hypervisor.description(uuid)
        self._check_movable(host, vm, told)
        if digest(self.record(host, vm, told, here, target)) != known:
            raise FlexdiskError("Changed", f"VM {vm.label} was changed while it was brought over; run the move again")
        if move is None:
            config = vm.config
            since = render_time(time.time())
            move = Move(LEAVING, uuid, config.alias, target, pool, config.state, config.autoboot, since)
            write_move(self._zfs, self._hypervisor, config.pool, move)
        elif (move.phase, move.pool) != (LEAVING, pool):
            raise FlexdiskError("InUse", f"VM {vm.label}: {moves.why_frozen(move)} to {move.host}, not to {target}")
        if vm.config.state == "running":
            progress.current().now(move.label, "", "stop")
            self._hypervisor.stop(uuid, self._policy.stop_timeout, self._policy.allow_force_stop)
        return told

    def stay(self, uuid: str) -> None:
        """Give the move up as long as no disk has left: the VM gets back what it had."""
        keys.forget_keys(uuid)
        host, vm = self._vm(uuid)
        move = host.moves.get(uuid)
        if move is None:
            return
        if move.phase == MOVED and not self._whole(host, vm):
            words = f"VM {vm.label} has left for {move.host}; the playbook move_vm goes on"
            raise FlexdiskError("MovedAway", words)
        self._zfs.set_facts([disk.volume.name for disk in vm.disks], dict.fromkeys(MARKS, ""))
        for disk in (one for one in vm.disks if one.type == FILE):
            file_disks.show(self._zfs, disk.volume.name, disk.uuid)
            file_disks.ensure(self._zfs, disk.volume, disk.size)
        if move.state == "running":
            progress.current().now(move.label, "", "start it again")
            if self._down(vm):
                autoboot.start(self._hypervisor, vm)
        if not vm.config.failover and self._hypervisor.vm(uuid).autoboot != move.autoboot:
            self._hypervisor.set_autoboot(uuid, move.autoboot)
        self._zfs.destroy(f"{place_of_moves(vm.config.pool)}/{uuid}")

    def _whole(self, host: Host, vm: Vm) -> bool:
        """Whether the VM still has all its disks."""
        gone = [disk for disk in host.detached if disk.volume.user.get(OF_VM) == vm.config.uuid]
        return not (gone or vm.missing or vm.orphans)

    def _down(self, vm: Vm) -> bool:
        """Whether the VM is down. A guest that was told to shut down may still be about to."""
        for _second in range(self._policy.stop_timeout):
            if self._hypervisor.vm(vm.config.uuid).state == "stopped":
                return True
            self._hypervisor.pause(1)
        return False

    # -- go

    def go(
        self,
        uuid: str,
        target: str,
        transfer: t.Optional[VmTransfer] = None,
        told: t.Optional[Description] = None,
        variables: str = "",
    ) -> None:
        """The disks become replicas, and the VM ends here. The tombstone is written first.

        transfer: the last one, whose set the target has whole. told: what leave has returned. variables: the digest of
        the UEFI variables that the target has. None is needed by a run that goes on after that point.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        vm = next((one for one in host.vms if one.config.uuid == uuid), None)
        move = host.moves.get(uuid)
        if move is None or move.phase not in (LEAVING, MOVED) or move.host != target:
            raise FlexdiskError("Changed", f"VM {uuid} is not leaving for {target}")
        known: t.Optional[Host] = host
        if vm is not None:
            _check_still(vm, move.phase == MOVED)
        if move.phase == LEAVING:
            if vm is None or transfer is None or told is None:
                raise FlexdiskError("Changed", f"VM {move.label} has gone before its disks had been sent")
            if told.variables or variables:
                told = self._hypervisor.description(uuid)
            self._check_movable(host, vm, told)
            _check_sent(vm, transfer, move)
            if uefi.digest(told.variables) != variables:
                words = f"{move.host} does not have the UEFI variables that it has now"
                raise FlexdiskError("Changed", f"VM {vm.label}: {words}")
            now_here = self._hypervisor.vm(uuid)
            if now_here.state != "stopped":
                raise FlexdiskError("Changed", f"VM {vm.label} was started while it was moved")
            if now_here.autoboot:  # of a VM with failover, vm has the wish
                self._hypervisor.set_autoboot(uuid, False)
                known = None
            rewrite_move(self._zfs, vm.config.pool, move._replace(phase=MOVED))
        now = None
        progress.current().now(move.label, "", "its disks become replicas")
        if vm is not None:
            self._mark(vm, move)
            now = self._end(vm, known)
        for config in host.configs if vm is None else ():
            if config.uuid == uuid and not config.disks:  # all that is left: the VM's dataset goes before it
                self._hypervisor.delete_vm(uuid)
        self._park(uuid, now or observe(self._zfs, self._hypervisor, every=True))

    def _mark(self, vm: Vm, move: Move) -> None:
        """What makes a disk a replica. Its snapshots count as come from the VM's new host: they are there, too."""
        now = render_time(time.time())
        disks = _travelling(vm)
        for disk in disks:
            own = {ROLE: disk.uuid, OF_VM: vm.config.uuid, HOME: str(move.pool), HOST: move.host, SYNCED: now}
            own[RESERVED] = str(disk.volume.volsize) if disk.volume.refreservation else ""
            self._zfs.set_facts(disk.volume.name, {k: v for k, v in own.items() if v})
            if disk.type == FILE:
                file_disks.hide(self._zfs, disk.volume)
        self._zfs.set_facts([s.name for disk in disks for s in disk.snapshots], {SENT: "on"})

    def _end(self, vm: Vm, known: t.Optional[Host]) -> t.Optional[Host]:
        """The host afterwards, as far as it was read. known: as for EndOfVm."""
        what = (self._zfs, self._hypervisor, self._policy, False, Outcome())
        outcome = EndOfVm(vm.config.uuid, *what, known=known).run()
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems:
            problem = outcome.problems[0]
            raise FlexdiskError(problem.code, problem.message)
        return outcome.now if outcome.now is not None and vm.config.pool in outcome.now.geometry else None

    def _park(self, uuid: str, host: Host) -> None:
        """The detached disks go where replicas lie."""
        forget_vm(self._zfs, host, uuid)
        of_vm = {disk.uuid: disk for disk in host.detached if disk.volume.user.get(OF_VM) == uuid}
        parked = [disk for disk in of_vm.values() if disk.volume.user.get(ROLE) == disk.uuid]
        if not parked:
            return
        self._hold([s.name for disk in parked for s in disk.snapshots[-1:]])
        for place in {replicas(disk.volume.pool) for disk in parked} - host.datasets.keys():
            self._zfs.create_container(place, readonly="on")
        names = [disk.volume.name for disk in parked]
        self._zfs.set(*names, readonly="on")
        self._zfs.set_facts(names, {NOTE: ""})  # as long as the VM can stay, it knows its replicas
        for disk in parked:
            self._zfs.rename(disk.volume.name, f"{replicas(disk.volume.pool)}/{disk.uuid}")

    def _hold(self, base: t.List[str]) -> None:
        missing = sorted(set(base) - self._copies.held(HOLD, base))
        if missing:
            self._zfs.hold(HOLD, *missing)

    # -- tidy

    def tidy(self, uuid: str) -> bool:
        """What the disks of a VM that has left still have of older sets goes. Whether there was anything."""
        tops = self._copies.tops(("guid",))
        gone = False
        for one in kept(self._copies, [name for name in tops if name == container(pool_of(name))]):
            if one.vm == uuid:
                pools = (one.replica.home, int(tops[pool_of(one.replica.dataset)]["guid"][0]))
                for point in outlived(one.replica.points, pools):
                    self._copies.destroy(one.replica.dataset + point.word)
                    gone = True
        return gone

    # -- forget

    def forget(self, name: str) -> bool:
        """Give the tombstone of a VM up: its name is free here. Whether there was one."""
        host = observe(self._zfs, self._hypervisor, every=True)
        known = moves.named(host.moves, name)
        if len(known) > 1 or any(move.phase != MOVED for move in known):
            raise FlexdiskError("InUse", f"{name}: only what has moved away is forgotten, one VM at a time")
        for move in known:
            if any(vm.config.uuid == move.vm for vm in host.vms):
                raise FlexdiskError("InUse", f"VM {move.label} is still here; the playbook move_vm goes on")
            names = [d for d in host.datasets if moves.is_place(d) and d.endswith(move.vm)]
            for one in names:
                self._zfs.destroy(one)
        return bool(known)

    def _vm(self, uuid: str) -> t.Tuple[Host, Vm]:
        host = observe(self._zfs, self._hypervisor, every=True)
        found = find_vm(host, uuid)
        if isinstance(found, Problem):
            raise FlexdiskError(found.code, found.message)
        return host, found


class EndOfVm(Task):
    """All disks are detached, and the VM is deleted. known: the host if only marks were set since it was read."""

    admits = False

    def __init__(self, uuid: str, *what: t.Any, known: t.Optional[Host] = None) -> None:
        super().__init__(*what)
        self._uuid, self._known = uuid, known

    def seen(self) -> Host:
        return self._known if self._known is not None else super().seen()

    def plan(self, host: Host) -> t.List[VmPlan]:
        vm = next(one for one in host.vms if one.config.uuid == self._uuid)
        self.check(vm)
        thawed = replace(vm, config=replace(vm.config, frozen=""))
        return [plan_departure(host, thawed, self.hypervisor.capabilities)]

    def check(self, vm: Vm) -> None:
        """Raise FlexdiskError if the VM must not end."""
        _check_still(vm, True)

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        return [] if vm is None else ["it still exists"]


def _disk(disk: Disk, element: str, notes: str) -> DiskRecord:
    kept = {**{k: v for k, v in disk.volume.user.items() if k in OWN}, **({"image": disk.image} if disk.image else {})}
    facts = {**kept, **{k: v for k, v in facts_of(disk).items() if v and k in OWN}}
    volume = disk.volume
    figures = (disk.uuid, disk.label, disk.boot, disk.model, disk.pci_slot, volume.compression, disk.size)
    return DiskRecord(*figures, facts, notes, element, tuple(_sizes(disk)))


def _sizes(disk: Disk) -> t.Iterator[t.Tuple[int, int]]:
    for part in disk.snapshots if disk.type == FILE else ():
        if part.volsize != disk.size and not is_synced(_short(part)):
            yield part.guid, part.volsize


def _hidden(disk: Disk) -> PlatformDisk:
    volume = disk.volume
    return PlatformDisk(volume.name, uuid_of(disk), disk.model, disk.pci_slot, volume.volsize, volume.volblocksize)


def _snapshot(vm: Vm, snapshot: snapshots.VmSnapshot) -> SnapshotRecord:
    """A snapshot without its parts on disks that are made again."""
    origin = snapshots.origin_of(snapshot)
    stay = [part.guid for disk in vm.disks if disk.hidden for part in disk.snapshots]
    return SnapshotRecord(snapshot.name, origin.creation, tuple(guid for guid in origin.guids if guid not in stay))


def _travelling(vm: Vm) -> t.List[Disk]:
    return [disk for disk in vm.disks if not disk.hidden]


def _check_still(vm: Vm, left: bool) -> None:
    """Nothing was written since the last snapshot, which the other host has. left: there is a tombstone already, and
    since then the host may have lost power, which counts as written.
    """
    if vm.config.state != "stopped":
        raise FlexdiskError("Changed", f"VM {vm.label} is {vm.config.state}: it was started while it was moved")
    for disk in _travelling(vm):
        written = is_changed(disk.volume.written) if left else disk.volume.written
        if written or not (disk.snapshots and is_synced(_short(disk.snapshots[-1]))):
            raise FlexdiskError("Changed", f"VM {vm.label}: disk {disk.label} was written to after it had been sent")


def _check_sent(vm: Vm, transfer: VmTransfer, move: Move) -> None:
    """The target has just these disks, by one snapshot of all."""
    known = {disk.uuid: disk.snapshots for disk in transfer.disks}
    newest = {disk.uuid: disk.snapshots[-1] for disk in _travelling(vm)}
    same = all(one.guid in known.get(uuid, ()) and _short(one) == transfer.set for uuid, one in newest.items())
    if not same or known.keys() != newest.keys() or transfer.peer != move.pool:
        raise FlexdiskError("Changed", f"VM {vm.label}: its disks are not those that were sent to {move.host}")


def _short(snapshot: Dataset) -> str:
    return snapshot.name.partition("@")[2]
