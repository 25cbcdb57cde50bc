# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The old home of a VM that another host has taken over: the VM ends here, and what only its disks have is kept."""

from __future__ import annotations

import typing as t

from ...fleet.replication.claims import Claims
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...rules import moves
from ...rules.inventory import Host
from ...rules.layout import diverged, last_part, pool_of, replicas
from ...rules.moves import MOVED, Move
from ...rules.replicas import DIVERGED, ROLE, SENT, is_synced
from ...zfs import guard
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.errors import ZfsError
from ..host.journal import forget_vm
from ..host.observe import observe
from ..moves.move_marks import rewrite_move, write_move
from ..moves.vm_arrival import Arrival
from ..moves.vm_departure import EndOfVm, end_rest
from ..replication import records
from ..replication.own_copies import destroy_held
from ..replication.replica_info import HOLD
from ..run.run import Context
from ..steps import renames
from .diverged import Apart, disks_apart, diverged_replicas, facts_of, given_up, is_kept_of, whose
from .failover_ending import Ending, ending_of


class FailoverReturn:
    """What the old home does when it is there again. authorized: as for Arrival."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str = "") -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._arrival = Arrival(zfs, hypervisor, runner, Policy(), authorized)

    # -- end

    def look(
        self,
        name: str,
        claims: Claims,
        begun: bool = False,
        old: bool = False,
        moved: t.Optional[Claims] = None,
    ) -> Ending:
        """What becomes of a VM of this host that another one has taken over. Nothing is changed. begun, old and moved:
        as for ending_of.
        """
        return ending_of(observe(self._zfs, self._hypervisor, every=True), name, claims, begun, old, moved)

    def end(
        self, name: str, claims: Claims, begun: bool = False, old: bool = False, moved: t.Optional[Claims] = None
    ) -> None:
        """The VM ends here. First the tombstone is written; then each disk says what it has in common with its VM.
        begun, old and moved: as for look.
        """
        ending = self.look(name, claims, begun, old, moved)
        if ending.problems:
            raise FlexdiskError(ending.problems[0].code, ending.problems[0].message)
        move = ending.move
        if move is None:
            return
        if ending.only_shell:
            self._arrival.unexpect(move.vm, taking=True)
            return
        self._arrival.shut_out(move.vm)
        self._write_down(ending, move)
        if ending.vm is not None:
            self._end(ending.vm.config.uuid)
        else:
            end_rest(self._zfs, self._hypervisor, observe(self._zfs, self._hypervisor, every=True), move.vm)
        self._set_apart(move.vm)
        for apart in disks_apart(observe(self._zfs, self._hypervisor, every=True), move.vm):
            if apart.becomes_replica and not apart.replicated:
                self._become_replica(apart)
        if not records.absent(move.vm):
            self._arrival.forget(move.vm)
        if move.has_left:  # until now, no sync was let in
            places = observe(self._zfs, self._hypervisor, every=True).datasets
            for name in [name for name in places if moves.is_place(name) and last_part(name) == move.vm]:
                rewrite_move(self._zfs, pool_of(name), move._replace(has_left=False))

    def _write_down(self, ending: Ending, move: Move) -> None:
        if ending.vm is not None or ending.disks or ending.even:
            write_move(self._zfs, self._hypervisor, ending.pool, move)
        for one in ending.disks:
            self._zfs.set_facts(one.disk.volume.name, facts_of(one, move))
        if ending.even:
            self._zfs.set_facts(ending.even, whose(move))

    def _end(self, uuid: str) -> None:
        outcome = _EndAnyway(uuid, Context(self._zfs, self._hypervisor, Policy(), check_mode=False)).run()
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems:
            raise FlexdiskError(outcome.problems[0].code, outcome.problems[0].message)

    def _set_apart(self, uuid: str) -> None:
        host = observe(self._zfs, self._hypervisor, every=True)
        forget_vm(self._zfs, host, uuid)
        for disk in (disk for disk in host.detached if is_kept_of(disk.volume, uuid)):
            volume, place = disk.volume, diverged(disk.volume.pool)
            if disk.guarded:
                guard.lift(self._zfs, volume.name)
            if not self._zfs.exists(place):
                self._zfs.create_container(place, readonly="on")
            self._zfs.set(volume.name, readonly="on")
            renames.rename(self._zfs, volume.name, f"{place}/{last_part(volume.name)}")
        for volume in diverged_replicas(host, uuid):
            if not self._zfs.exists(diverged(volume.pool)):
                self._zfs.create_container(diverged(volume.pool), readonly="on")
            self._zfs.set_facts(volume.name, {ROLE: ""})  # first: what has it is brought up to date
            self._zfs.set_facts(volume.name, whose(host.moves[uuid]))
            renames.rename(self._zfs, volume.name, f"{diverged(volume.pool)}/{last_part(volume.name)}")

    def _become_replica(self, apart: Apart) -> None:
        """The disk goes back to the common snapshot, and lies where replicas lie. What it was goes last.

        Exactly the known newer snapshots are destroyed. ZFS does not roll back over one that has come since.
        """
        name = apart.volume.name
        destroy_held(self._zfs, self._copies, apart.lost)  # a move has held its last one
        for bookmark in self._newer_bookmarks(apart):
            self._copies.destroy(bookmark)
        if apart.lost or apart.volume.written:
            self._roll_back(apart)
        uuid = last_part(name)
        self._zfs.set_facts(name, {ROLE: uuid, DIVERGED: ""})  # it lies apart until it has its place
        self._zfs.set_facts([*apart.shared], {SENT: "on"})
        if apart.common not in self._copies.on_hold(HOLD, [apart.common]):
            self._zfs.hold(HOLD, apart.common)
        place = replicas(apart.volume.pool)
        if not self._zfs.exists(place):
            self._zfs.create_container(place, readonly="on")
        renames.rename(self._zfs, name, f"{place}/{uuid}")

    def _roll_back(self, apart: Apart) -> None:
        try:
            self._copies.roll_back(apart.common)
        except ZfsError as exc:
            if exc.code != "HasNewer":
                raise
            text = f"{apart.volume.name} has got a snapshot since it was read, so it was not rolled back to "
            text += f"{apart.common}, and its data is all there; run the same command again, which looks what to keep"
            raise FlexdiskError("Changed", f"{text}: {exc.message}") from exc

    def _newer_bookmarks(self, apart: Apart) -> t.List[str]:
        """Those of syncs with other hosts after the common snapshot. ZFS does not roll back over them."""
        rows = self._copies.table([apart.volume.name], ("createtxg",), "snapshot,bookmark")
        at = int(rows[apart.common]["createtxg"][0])
        marks = [name for name in rows if "#" in name and is_synced(name.partition("#")[2])]
        return [name for name in marks if int(rows[name]["createtxg"][0]) > at]

    # -- give up

    def give_up(self, name: str, check_mode: bool) -> t.Tuple[str, t.List[str]]:
        """What only the disks here have is given up: those without a replica become one, the others go. The uuid of
        the VM that has left, "" for none, and what was done, in words.

        Raises FlexdiskError InUse, before anything goes, if others hold one of the snapshots or have cloned it.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        known = [move for move in moves.find_by_name(host.moves, name) if move.phase == MOVED]
        if len(known) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs that have left are called {name}; give the whole uuid")
        uuid = known[0].vm if known else name.lower()  # its tombstone may have been given up before
        own = {disk.uuid for vm in host.vms for disk in vm.disks + vm.orphans} | {disk.uuid for disk in host.detached}
        found = disks_apart(host, uuid) if uuid not in host.moves or known else []
        becomes = [a for a in found if a.common and not a.replicated and last_part(a.volume.name) not in own]
        self._check_unused(host, [one for a in found for one in (a.lost if a in becomes else (*a.lost, *a.shared))])
        for apart in () if check_mode else found:
            if apart in becomes:
                self._become_replica(apart)
            else:
                self._destroy(apart)
        return uuid if found else "", [given_up(apart, apart in becomes) for apart in found]

    def _check_unused(self, host: Host, snapshots: t.Sequence[str]) -> None:
        points = [host.datasets[name] for name in snapshots]
        ours = self._copies.on_hold(HOLD, [point.name for point in points if point.userrefs])
        used = [f"{point.name} has the clone {', '.join(point.clones)}" for point in points if point.clones]
        foreign = [point.name for point in points if point.userrefs > (point.name in ours)]
        used += [f"{name} is held by others (zfs holds {name})" for name in foreign]
        if used:
            raise FlexdiskError("InUse", f"nothing was given up: {'; '.join(used)}")

    def _destroy(self, apart: Apart) -> None:
        """Exactly the known snapshots go. ZFS does not destroy a volume with another one."""
        destroy_held(self._zfs, self._copies, [*apart.lost, *reversed(apart.shared)])
        self._zfs.destroy(apart.volume.name)


class _EndAnyway(EndOfVm):
    """Whatever was written: nothing of it is lost."""

    def check(self, vm: Vm, host: Host) -> None:
        if vm.config.state != "stopped":
            raise FlexdiskError("VmNotStopped", f"VM {vm.label} is {vm.config.state}")
