# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends a VM on its old home, after another host has taken it over. Data that only its disks have is kept."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...rules import moves
from ...rules.inventory import Host
from ...rules.layout import diverged_container, last_part, memory_below, pool_of, replicas_container
from ...rules.moves import MOVED, Move
from ...rules.replicas import DIVERGED, ROLE, SENT, is_synced
from ...zfs import guard
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.errors import ZfsError
from ..host.journal import forget_vm
from ..host.observe import observe
from ..moves.move_marks import rewrite_move, write_move
from ..moves.vm_arrival import MoveTarget
from ..moves.vm_departure import EndOfVm, remove_leftovers
from ..replication import records
from ..replication.own_copies import destroy_with_holds, drop_memory
from ..replication.replica_info import HOLD
from ..run.run import Context
from ..steps import renames
from .diverged import (
    DivergedDisk,
    diverged_disks,
    diverged_facts,
    diverged_replicas,
    is_retained,
    new_home_of,
    render_given_up,
)
from .failover_ending import Ending, EndRequest, ending_of


class FailoverReturn:
    """Ends, on the old home, a VM that another host has taken over. authorized: as for MoveTarget."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str = "") -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._arrival = MoveTarget(zfs, hypervisor, runner, Policy(), authorized)

    # -- end

    def look(self, request: EndRequest) -> Ending:
        """Return how the VM ends here. Read only."""
        return ending_of(observe(self._zfs, self._hypervisor, all_pools=True), request)

    def end(self, request: EndRequest) -> None:
        """End the VM: write the tombstone, mark each disk with its base, and delete the VM. Its disks are kept."""
        ending = self.look(request)
        if ending.problems:
            raise FlexdiskError(ending.problems[0].code, ending.problems[0].message)
        move = ending.move
        if move is None:
            return
        if ending.only_shell:
            self._arrival.cancel(move.vm, taking=True)
            return
        self._arrival.end_transfers(move.vm)
        self._write_tombstone(ending, move)
        if ending.vm is not None:
            self._end_vm(ending.vm.config.uuid)
        else:
            remove_leftovers(self._zfs, self._hypervisor, observe(self._zfs, self._hypervisor, all_pools=True), move.vm)
        self._drop_memory(move.vm)
        self._rename_diverged(move.vm)
        for disk in diverged_disks(observe(self._zfs, self._hypervisor, all_pools=True), move.vm):
            if disk.difference.is_empty and not disk.replicated:
                self._become_replica(disk)
        if not records.absent(move.vm):
            self._arrival.remove_records(move.vm)
        if move.has_left:  # until now, no sync was let in
            places = observe(self._zfs, self._hypervisor, all_pools=True).datasets
            for name in [name for name in places if moves.is_place(name) and last_part(name) == move.vm]:
                rewrite_move(self._zfs, pool_of(name), move._replace(has_left=False))

    def _drop_memory(self, uuid: str) -> None:
        """Destroy the memory of the guest that a move of the VM had saved here: another home has gone on since."""
        names = observe(self._zfs, self._hypervisor, all_pools=True).datasets
        for place in [name for name in names if moves.is_place(name) and last_part(name) == uuid]:
            if memory_below(place) in names:
                drop_memory(self._zfs, self._copies, place)

    def _write_tombstone(self, ending: Ending, move: Move) -> None:
        if ending.vm is not None or ending.disks or ending.unchanged_replicas:
            write_move(self._zfs, self._hypervisor, ending.pool, move)
        for diverged_disk in ending.disks:
            self._zfs.set_facts(diverged_disk.disk.volume.name, diverged_facts(diverged_disk, move))
        if ending.unchanged_replicas:
            self._zfs.set_facts(ending.unchanged_replicas, new_home_of(move))

    def _end_vm(self, uuid: str) -> None:
        outcome = _EndOfWrittenVm(uuid, Context(self._zfs, self._hypervisor, Policy(), check_mode=False)).run()
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems:
            raise FlexdiskError(outcome.problems[0].code, outcome.problems[0].message)

    def _rename_diverged(self, uuid: str) -> None:
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        forget_vm(self._zfs, host, uuid)
        for disk in (disk for disk in host.detached if is_retained(disk.volume, uuid)):
            volume, place = disk.volume, diverged_container(disk.volume.pool)
            if disk.guarded:
                guard.lift(self._zfs, volume.name)
            if not self._zfs.exists(place):
                self._zfs.create_container(place, readonly="on")
            self._zfs.set(volume.name, readonly="on")
            renames.rename(self._zfs, volume.name, f"{place}/{last_part(volume.name)}")
        for volume in diverged_replicas(host, uuid):
            if not self._zfs.exists(diverged_container(volume.pool)):
                self._zfs.create_container(diverged_container(volume.pool), readonly="on")
            self._zfs.set_facts(volume.name, {ROLE: ""})  # first: what has it is brought up to date
            self._zfs.set_facts(volume.name, new_home_of(host.moves[uuid]))
            renames.rename(self._zfs, volume.name, f"{diverged_container(volume.pool)}/{last_part(volume.name)}")

    def _become_replica(self, disk: DivergedDisk) -> None:
        """Roll the disk back to the common snapshot, and rename it to where replicas lie.

        Exactly the known newer snapshots are destroyed. ZFS does not roll back over one that was taken since.
        """
        name = disk.volume.name
        destroy_with_holds(self._zfs, self._copies, disk.lost)  # a move holds the newest one
        for bookmark in self._newer_bookmarks(disk):
            self._copies.destroy(bookmark)
        if disk.lost or disk.volume.written:
            self._roll_back(disk)
        uuid = last_part(name)
        self._zfs.set_facts(name, {ROLE: uuid, DIVERGED: ""})  # it counts as diverged until it is renamed
        self._zfs.set_facts([*disk.shared], {SENT: "on"})
        if disk.common not in self._copies.on_hold(HOLD, [disk.common]):
            self._zfs.hold(HOLD, disk.common)
        place = replicas_container(disk.volume.pool)
        if not self._zfs.exists(place):
            self._zfs.create_container(place, readonly="on")
        renames.rename(self._zfs, name, f"{place}/{uuid}")

    def _roll_back(self, disk: DivergedDisk) -> None:
        try:
            self._copies.roll_back(disk.common)
        except ZfsError as exc:
            if exc.code != "HasNewer":
                raise
            text = f"{disk.volume.name} has got a snapshot since it was read, so it was not rolled back to "
            text += f"{disk.common}, and its data is all there; run the same command again, which looks what to keep"
            raise FlexdiskError("Changed", f"{text}: {exc.message}") from exc

    def _newer_bookmarks(self, disk: DivergedDisk) -> t.List[str]:
        """Return newer bookmarks of syncs with other hosts. ZFS does not roll back over them."""
        rows = self._copies.table([disk.volume.name], ("createtxg",), "snapshot,bookmark")
        base = int(rows[disk.common]["createtxg"][0])
        bookmarks = [name for name in rows if "#" in name and is_synced(name.partition("#")[2])]
        return [name for name in bookmarks if int(rows[name]["createtxg"][0]) > base]

    # -- give up

    def give_up(self, name: str, check_mode: bool) -> t.Tuple[str, t.List[str]]:
        """Give up the data that only the disks here have. Disks without a replica become one, others are destroyed.

        Return the UUID of the VM that has left, "" for none, and a message for each disk.

        Raises FlexdiskError InUse, before anything is destroyed, if others hold or have cloned one of the snapshots.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        tombstones = [move for move in moves.find_by_name(host.moves, name) if move.phase == MOVED]
        if len(tombstones) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs that have left are called {name}; give the whole uuid")
        uuid = tombstones[0].vm if tombstones else name.lower()  # its tombstone may have been given up before
        of_this_host = {disk.uuid for vm in host.vms for disk in vm.disks + vm.orphans} | {
            disk.uuid for disk in host.detached
        }
        given_up_disks = diverged_disks(host, uuid) if uuid not in host.moves or tombstones else []
        to_replicas = [
            a for a in given_up_disks if a.common and not a.replicated and last_part(a.volume.name) not in of_this_host
        ]
        self._check_unused(
            host, [one for a in given_up_disks for one in (a.lost if a in to_replicas else (*a.lost, *a.shared))]
        )
        for diverged_disk in () if check_mode else given_up_disks:
            if diverged_disk in to_replicas:
                self._become_replica(diverged_disk)
            else:
                self._destroy(diverged_disk)
        return uuid if given_up_disks else "", [
            render_given_up(diverged_disk, diverged_disk in to_replicas) for diverged_disk in given_up_disks
        ]

    def _check_unused(self, host: Host, snapshots: t.Sequence[str]) -> None:
        points = [host.datasets[name] for name in snapshots]
        on_hold = self._copies.on_hold(HOLD, [point.name for point in points if point.userrefs])
        used = [f"{point.name} has the clone {', '.join(point.clones)}" for point in points if point.clones]
        foreign = [point.name for point in points if point.userrefs > (point.name in on_hold)]
        used += [f"{name} is held by others (zfs holds {name})" for name in foreign]
        if used:
            raise FlexdiskError("InUse", f"nothing was given up: {'; '.join(used)}")

    def _destroy(self, disk: DivergedDisk) -> None:
        """Destroy exactly the known snapshots, then the volume. ZFS refuses that if there is another snapshot."""
        destroy_with_holds(self._zfs, self._copies, [*disk.lost, *reversed(disk.shared)])
        self._zfs.destroy(disk.volume.name)


class _EndOfWrittenVm(EndOfVm):
    """End the VM even if it was written to. Its disks are kept."""

    def check(self, vm: Vm, host: Host) -> None:
        if vm.config.state != "stopped":
            raise FlexdiskError("VmNotStopped", f"VM {vm.label} is {vm.config.state}")
