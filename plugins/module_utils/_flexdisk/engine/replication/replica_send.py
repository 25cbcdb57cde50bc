# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The home's side of a sync: plan it, take its snapshots, send the streams, and remove old sets."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from dataclasses import dataclass, field, replace

from ...fleet.replication import last, sync, trust
from ...fleet.replication.copies import Original, Point, Replica, anchor_bookmark
from ...fleet.replication.peers import Peer, peer_space_problems, refusals, without_room
from ...fleet.replication.retention import obsolete_here, retained_sets, synced
from ...fleet.replication.room import snapshot_bytes, snapshot_space_problems, space_with_next_set
from ...fleet.replication.streams import Full, Stream, Travelling, send_command
from ...fleet.replication.transfers import DiskTransfer, VmTransfer, transfer
from ...hypervisor import whole_files
from ...hypervisor.protocol import Hypervisor
from ...model.command import Carrier
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import MIB
from ...model.vm import Vm
from ...rules.failover import RIVALS_PROPERTY, encode_rivals, rivals_of
from ...rules.identity import PREFIX, render_time
from ...rules.inventory import Host
from ...rules.layout import memory_dataset, moves_container, pool_of, replicas_container
from ...rules.moves import COMING, LEAVING, has_memory, memory_is_there, stands_still, why_frozen
from ...rules.paused_guests import paused_guests
from ...rules.power import NOT_HOME, why_home_unknown
from ...rules.replicas import REPLICAS_PROPERTY, Note, decode_notes, encode_notes, short_peer
from ...rules.retention import Keep, RetainCounts, decode_keep
from ...rules.saved_memory import is_seal, key_name
from ...rules.space import sync_needs
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import EVERYTHING, Copies, Table
from ...zfs.errors import ZfsError
from ..host.journal import host_name
from ..host.observe import observe
from ..host.progress import Progress
from . import rates, replica_info, sync_space
from . import trust as keys
from .at_once import at_once

_Dict = t.Dict[str, t.Any]
_NOTE_PROPERTY = PREFIX + REPLICAS_PROPERTY


class Space(t.NamedTuple):
    """The space that a pool must give for a sync."""

    here: bool
    """Whether it is a pool of this host, not of the peer."""
    pool: str
    needs: int
    """Bytes."""
    available: int
    """Bytes."""


@dataclass
class SyncPlan:
    """The plan of a sync of many VMs."""

    transfers: t.List[VmTransfer] = field(default_factory=list)
    syncs: t.List[sync.VmSync] = field(default_factory=list)
    vms: t.List[Vm] = field(default_factory=list)
    host: t.Optional[Host] = None
    problems: t.List[Problem] = field(default_factory=list)
    space: t.List[Space] = field(default_factory=list)
    failures: t.List[str] = field(default_factory=list)
    """Why some VMs are left out. Each begins with the label of its VM."""
    labels: t.Dict[str, str] = field(default_factory=dict)
    """What all named VMs are called, by their UUIDs."""

    @property
    def rate(self) -> int:
        """Bytes per second of the last transfer to the slowest of the pools, 0 if one is not known."""
        return min((rates.load(peer) for peer in {vm.peer for vm in self.transfers}), default=0)


class SyncPolicy(t.NamedTuple):
    """How a sync treats its VMs, apart from what is sent."""

    fresh: bool = False
    """Take a new set although the replicas may have all that there is."""
    keep: t.Sequence[t.Optional[RetainCounts]] = (None, None)
    """The older sets that stay on the peer and on the home. None: as the last sync had it."""
    goes_on: bool = False
    """Leave out a VM that has a problem, instead of refusing all of them."""


class EndedSync(t.NamedTuple):
    """What was removed when the syncs of VMs with a host ended."""

    uuids: t.List[str]
    """The VMs."""
    homes: t.List[int]
    """The guids of the pools from which replicas were sent."""
    gone: t.List[str]
    """The destroyed snapshots and bookmarks."""
    had_notes: bool
    """Whether a disk or a VM had a note of the host."""
    problems: t.List[Problem]
    """Why the names are refused."""
    failover: t.Sequence[str] = ()
    """The UUIDs of the VMs that have failover."""
    names: t.Sequence[str] = ()
    """The aliases of the VMs, or the UUID of a VM without one."""


class Sender:
    """The home's side of a sync."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Carrier, pool: t.Optional[str]) -> None:
        self.zfs = zfs
        self.hypervisor = hypervisor
        self.runner = runner
        self.copies = Copies(runner)
        self.pool = pool

    # -- prepare

    def plan(self, names: t.Sequence[str], peer: Peer, policy: SyncPolicy) -> SyncPlan:
        """Plan a sync of these VMs. Read only.

        A VM that another host may have taken over is left out, because its replicas would pass for newer than they
        are, and so is one in the middle of a move that a sync would destroy. If only such VMs are named, that is a
        problem.
        """
        began = int(time.time())
        view = replica_info.read_vms(self.zfs, self.copies, self.hypervisor, names, self.pool)
        result = SyncPlan(host=view.host, problems=list(view.problems))
        result.labels = {vm.config.uuid: vm.label for vm in view.vms}
        needs: t.Dict[str, int] = {}
        unsure = {vm.config.uuid: one for vm in view.vms for one in _why_left_out(vm, view.host, peer.name)}
        if len(unsure) == len(view.vms):
            result.problems += unsure.values()
        result.failures = [f"{one.vm}: {one.message} [{one.code}]" for one in unsure.values()]
        for vm in (vm for vm in view.vms if vm.config.uuid not in unsure):
            place = peer.pool or vm.config.pool
            problems = refusals(vm, view.host, peer, place)
            if not problems:
                vm_sync, vm_transfer, problems = self._plan_vm(vm, view, peer, place, policy, began)
                needed = sum(disk.needed_bytes for disk in vm_sync.disks)
                if policy.goes_on:
                    problems += without_room(vm, place, needs.get(place, 0) + needed, needed, peer)
                if not (problems and policy.goes_on):
                    result.vms.append(vm)
                    result.syncs.append(vm_sync)
                    result.transfers.append(vm_transfer)
                    needs[place] = needs.get(place, 0) + needed
            if policy.goes_on:
                result.failures += [f"{vm.label}: {one.message} [{one.code}]" for one in problems]
            else:
                result.problems += problems
        result.problems += peer_space_problems(needs, peer)
        result.space = [
            *(Space(True, pool, _needed_bytes(result, pool), view.host.available(pool)) for pool in _pools(result)),
            *(
                Space(False, place, needed_bytes, peer.pools[place].available)
                for place, needed_bytes in sorted(needs.items())
            ),
        ]
        return result

    def _plan_vm(
        self, vm: Vm, view: replica_info.SyncView, peer: Peer, place: str, policy: SyncPolicy, began: int
    ) -> t.Tuple[sync.VmSync, VmTransfer, t.List[Problem]]:
        here, there = view.host.datasets[vm.config.pool].guid, peer.pools[place].guid
        originals = view.originals[vm.config.uuid]
        pairs = [(one, self._with_token(peer.replicas.get(_replica_dataset(place, one)))) for one in originals]
        before = next((decode_keep(one.keep) for _disk, one in pairs if one is not None and one.keep), Keep())
        keep = Keep(*(old if given is None else given for given, old in zip(policy.keep, before)))
        vm_sync, errors = sync.plan(pairs, here, there, policy.fresh, keep, sync.Clocks(began, peer.collected))
        names = {replica_info.uuid_of(disk): disk.label for disk in vm.disks}
        problems = [Problem(exc.code, exc.message, vm.config.label, names[uuid]) for uuid, exc in errors]
        if vm_sync.new:
            failed = vm_sync.failed
            quota = sync_space.quota_of(vm, space_with_next_set(vm, failed), view.host)
            problems += snapshot_space_problems(vm, failed, quota, view.host.available(vm.config.pool))
        elif sync_space.is_off(vm, view.host):
            vm_sync = replace(vm_sync, settles=True)
        disks = tuple(transfer(one, names[one.disk.uuid]) for one in vm_sync.disks)
        config = vm.config
        vm_transfer = VmTransfer(
            config.uuid,
            config.alias,
            vm_sync.name,
            here,
            there,
            place,
            host_name(),
            disks,
            vm_sync.idle,
            keep=keep,
            taken=began,
        )
        return vm_sync, vm_transfer, problems

    def _with_token(self, replica: t.Optional[Replica]) -> t.Optional[Replica]:
        if replica is None or not replica.token:
            return replica
        return replace(replica, token_guid=self.copies.token_guid(replica.token))

    def prepare(self, planned: SyncPlan, peer: str) -> t.Tuple[t.List[VmTransfer], t.List[str]]:
        """Take the snapshots of the sync, and make keys for its streams. A VM that fails is left out."""
        done: t.List[VmTransfer] = []
        failures: t.List[str] = []
        for vm, planning, known in zip(planned.vms, planned.syncs, planned.transfers):
            try:
                if planning.new:
                    self._make_room(vm, planning, t.cast(Host, planned.host))
                done.append(self._prepare_vm(planning, known, peer))
            except FlexdiskError as exc:
                failures.append(f"{known.full_label}: {exc.message} [{exc.code}]")
        return done, failures

    def announce(self, planned: SyncPlan, suspends: bool = False) -> t.List[VmTransfer]:
        """Reserve space for the last set of VMs that are about to stop, and make the keys for its transfer.

        planned: with fresh=True. suspends: the memory of guests that run is to be sent, too. What was saved is sent in
        any case. Raises FlexdiskError Changed if replicas are not as a sync leaves them.
        """
        for known in planned.transfers:
            last.check(known)
        for vm, planning in zip(planned.vms, planned.syncs):
            self._make_room(vm, planning, t.cast(Host, planned.host))
        pairs = zip(planned.vms, planned.transfers)
        transfers = [_with_memory(known, vm, t.cast(Host, planned.host), suspends) for vm, known in pairs]
        return [self._with_keys(known, known.uuid) for known in transfers]

    def _make_room(self, vm: Vm, planning: sync.VmSync, host: Host) -> None:
        """Destroy sets that were never sent completely, and give the VM space for the next one."""
        for disk in planning.disks:
            for point in disk.failed:
                exact.destroy_own(self.zfs, disk.disk.dataset + point.suffix)
        sync_space.settle(self.zfs, vm, space_with_next_set(vm, planning.failed), host)

    def _prepare_vm(self, planning: sync.VmSync, vm: VmTransfer, peer: str) -> VmTransfer:
        fresh: t.Dict[str, t.Tuple[int, int]] = {}
        if planning.new:
            vm = replace(vm, taken=int(time.time()))
            fresh = self._take_snapshots(planning, vm, peer)
        disks = []
        for planned, known in zip(planning.disks, vm.disks):
            disk = planned.disk
            if planning.new:
                disk = sync.taken(disk, planning.name, *fresh[f"{disk.dataset}@{planning.name}"])
            streams, _then = sync.streams_to(disk, planned.replica, planning.name)
            self._bookmark_base(disk, streams, vm.peer)
            disks.append(replace(known, streams=streams, snapshots=tuple(p.guid for p in disk.snapshots)))
        return self._with_keys(replace(vm, disks=tuple(disks)))

    def _with_keys(self, vm: VmTransfer, *more: str) -> VmTransfer:
        """Return the transfer with new keys for the disks that have something to send. more: names of further keys."""
        wanted = [*(disk.uuid for disk in vm.disks if disk.sent), *more]
        wanted += [key_name(vm.uuid)] if vm.memory is not None else []
        new_keys = keys.make_keys(self.runner, vm.uuid, wanted) if wanted else {}
        disks = tuple(replace(disk, key=new_keys.get(disk.uuid, "")) for disk in vm.disks)
        memory = vm.memory and replace(vm.memory, key=new_keys[key_name(vm.uuid)])
        return replace(vm, disks=disks, memory=memory, asks=new_keys.get(vm.uuid, ""))

    def _take_snapshots(self, planning: sync.VmSync, vm: VmTransfer, peer: str) -> t.Dict[str, t.Tuple[int, int]]:
        """Take the snapshots. Return guid and createtxg of each by name."""
        names = [disk.disk.dataset for disk in planning.disks]
        if any(short_peer(vm.peer) not in disk.disk.peers for disk in planning.disks):
            table = self.copies.table(names, [_NOTE_PROPERTY], EVERYTHING, depth=0)
            self._write_notes(
                table, dict.fromkeys(names, (short_peer(vm.peer), Note(short_peer(vm.peer), peer, ""))), set()
            )
        taken = [f"{name}@{planning.name}" for name in names]
        self.zfs.snapshot(*taken)
        rows = self.copies.table(taken, ("guid", "createtxg"), "snapshot", depth=0)
        return {name: (int(row["guid"][0]), int(row["createtxg"][0])) for name, row in rows.items()}

    def _bookmark_base(self, disk: Original, streams: t.Sequence[Stream], peer: int) -> None:
        """Bookmark the first snapshot of a new replica, so that it stays usable as a base if somebody destroys it."""
        for stream in streams:
            if isinstance(stream, Full):
                existing = next((point for point in disk.bookmarks if point.name == anchor_bookmark(peer)), None)
                if existing is not None and existing.guid != stream.to.guid:
                    exact.destroy_own(self.zfs, disk.dataset + existing.suffix)
                if existing is None or existing.guid != stream.to.guid:
                    self.copies.bookmark(disk.dataset + stream.to.suffix, anchor_bookmark(peer))

    # -- send

    def send(
        self, transfers: t.Sequence[VmTransfer], address: trust.Address, known: t.Sequence[str], progress: Progress
    ) -> t.List[_Dict]:
        """Send all streams, disk by disk. Return a result for each VM. One that fails does not stop the others."""
        progress.begin(sum(vm.sends for vm in transfers))
        return [self._send_vm(vm, address, known, progress) for vm in transfers if any(d.sent for d in vm.disks)]

    def _send_vm(self, vm: VmTransfer, address: trust.Address, known: t.Sequence[str], progress: Progress) -> _Dict:
        began, before = time.monotonic(), progress.carried
        failure = ""
        try:
            self._check_snapshots(vm)
            self.stream(vm, address, known, progress)
        except (FlexdiskError, OSError) as exc:
            failure = f"{exc.message} [{exc.code}]" if isinstance(exc, FlexdiskError) else str(exc)
        took = time.monotonic() - began
        sent = progress.carried - before
        if not failure:
            rates.store(vm.peer, sent, took)
        return {"vm": vm.uuid, "alias": vm.alias, "sent_bytes": sent, "seconds": round(took, 1), "failure": failure}

    def stream(self, vm: VmTransfer, address: trust.Address, known: t.Sequence[str], progress: Progress) -> None:
        """Send the streams of a VM. Raises FlexdiskError TransferFailed, or OSError."""
        folder = keys.keys_folder(vm.uuid)
        path = os.path.join(folder, keys.KNOWN_HOSTS)
        whole_files.replace(path, trust.known_hosts(address, known).encode(), durable=False)
        every = [(disk, disk.uuid) for disk in vm.disks]
        every += [(vm.memory, key_name(vm.uuid))] if vm.memory is not None else []
        for disk, key in every:
            for stream in disk.sent:
                progress.now(vm.label, disk.name or disk.uuid, "sending")
                self._carry(disk, stream, trust.ssh(address, os.path.join(folder, key), path), progress)

    def _check_snapshots(self, vm: VmTransfer) -> None:
        """Raise FlexdiskError Changed unless the snapshots have the planned guids."""
        wanted = {f"{disk.dataset}{stream.to.suffix}": stream.to.guid for disk in vm.disks for stream in disk.sent}
        table = self.copies.table(sorted(wanted), ("guid",), "snapshot", depth=0)
        wrong = [name for name, guid in wanted.items() if int(table[name]["guid"][0]) != guid]
        if wrong:
            raise FlexdiskError("Changed", f"{', '.join(wrong)}: not the snapshots that the sync was planned with")

    def _carry(self, disk: DiskTransfer, stream: Travelling, ssh: t.Sequence[str], progress: Progress) -> None:
        sender, receiver = self.runner.carry(send_command(disk.dataset, stream, disk.raw), ssh, progress.add)
        if receiver.rc != 0 or sender.rc != 0:
            parts = [complaint for complaint in map(_complaint, (receiver.stderr, sender.stderr)) if complaint]
            exit_codes = f"ssh ended with {receiver.rc}, zfs send with {sender.rc}"
            raise FlexdiskError("TransferFailed", f"{disk.dataset}: {'; '.join(parts) or exit_codes}")

    # -- finish

    def finish(
        self, transfers: t.Sequence[VmTransfer], complete: t.Collection[str], peer: str
    ) -> t.Tuple[bool, t.List[str]]:
        """Bookmark the set of each VM whose replicas are complete, and remove older sets and the keys.

        Return whether anything but times was changed, and the failures.
        """
        failures: t.List[str] = []
        complete_vms: t.List[VmTransfer] = []
        changed: t.Set[str] = set()
        for vm in transfers:
            try:
                keys.forget_keys(vm.uuid)
                complete_vms += [vm] if vm.uuid in complete else []
            except FlexdiskError as exc:
                failures.append(f"{vm.full_label}: {exc.message} [{exc.code}]")
        at_once(complete_vms, lambda some: self._complete_sets(some, peer, changed), failures)
        busy = [vm.uuid for vm in transfers if not vm.idle and vm.uuid in complete]
        return self._settle(busy) or bool(changed), failures

    def _settle(self, vms: t.Sequence[str]) -> bool:
        """Adjust the space of VMs to what their snapshots of syncs need now. Return whether that changed anything."""
        if not vms:
            return False
        host = observe(self.zfs, self.hypervisor, self.pool)
        matching = [vm for vm in host.vms if vm.config.uuid in vms]
        return True in [sync_space.settle(self.zfs, vm, sync_needs(vm), host) for vm in matching]

    def _complete_sets(self, vms: t.Sequence[VmTransfer], peer: str, changed: t.Set[str]) -> None:
        """Bookmark complete sets and destroy older ones. Add the changed disks to `changed`."""
        disks = [(vm, disk) for vm in vms for disk in vm.disks]
        table = self.copies.table(
            [disk.dataset for _vm, disk in disks], ("guid", "createtxg", "creation", _NOTE_PROPERTY), EVERYTHING
        )
        points_by_dataset = replica_info.by_dataset(table)
        stays = {vm.uuid: _stay_here(vm, points_by_dataset) for vm in vms}
        for vm, disk in disks:
            points, peers = points_by_dataset[disk.dataset], tuple(note.peer for note in _notes(table[disk.dataset]))
            original = Original(disk.uuid, disk.dataset, disk.volsize, points, peers=peers)
            if not any(point.name == vm.set for point in original.bookmarks):
                self.copies.bookmark(f"{disk.dataset}@{vm.set}", vm.set)
                changed.add(disk.dataset)
            for point in obsolete_here(original, vm.set, vm.home, vm.peer, stays[vm.uuid]):
                if self._destroy_unless_cloned(disk.dataset + point.suffix):
                    changed.add(disk.dataset)
            self._drop_seals(vm.uuid, original)
        notes = {vm.uuid: Note(short_peer(vm.peer), peer, render_time(_synced_at(vm))) for vm in vms}
        self._write_notes(table, {disk.dataset: (short_peer(vm.peer), notes[vm.uuid]) for vm, disk in disks}, changed)

    def _drop_seals(self, vm: str, disk: Original) -> None:
        """Destroy the seals that an ended move of the VM could not destroy, because others held them."""
        seals = [disk.dataset + point.suffix for point in disk.snapshots if is_seal(point.name)]
        if seals and not self.zfs.exists(f"{moves_container(pool_of(disk.dataset))}/{vm}"):
            for name in seals:
                with contextlib.suppress(ZfsError):
                    exact.destroy_own(self.zfs, name)

    def _destroy_unless_cloned(self, name: str) -> bool:
        """Destroy an older snapshot or bookmark. Return False if somebody has cloned it: the next sync tries again."""
        try:
            exact.destroy_own(self.zfs, name)
        except ZfsError as exc:
            if exc.code != "HasClones":
                raise
            return False
        return True

    def _write_notes(
        self, table: Table, wanted: t.Mapping[str, t.Tuple[str, t.Optional[Note]]], changed: t.Set[str]
    ) -> None:
        """Note on disks that a peer has their replicas, or has none. Add disks with a new or removed peer to `changed`.

        wanted: the peer and the note by dataset, None to remove the note.
        """
        texts: t.Dict[str, t.List[str]] = {}
        new_or_gone: t.Set[str] = set()
        for name, (peer, note) in wanted.items():
            before = _notes(table[name])
            after = [one for one in before if one.peer != peer] + ([note] if note is not None else [])
            texts.setdefault(encode_notes(after), []).append(name)
            if {one.peer for one in before} != {one.peer for one in after}:
                new_or_gone.add(name)
        for value, datasets in texts.items():
            self.zfs.set_facts(datasets, {REPLICAS_PROPERTY: value})
            changed |= new_or_gone.intersection(datasets)

    # -- remove

    def remove(self, names: t.Sequence[str], peer: str, check_mode: bool) -> EndedSync:
        """End the syncs of these VMs with a host: destroy their snapshots and bookmarks. The host need not answer.

        Detached disks are included. names may be UUIDs of deleted VMs that have left detached disks.
        """
        view = replica_info.read_vms(self.zfs, self.copies, self.hypervisor, names, self.pool, detached=True)
        if view.problems:
            return EndedSync([], [], [], False, view.problems)
        destroyed: t.List[str] = []
        had_notes = False
        homes = {view.host.datasets[vm.config.pool].guid for vm in view.vms}
        for vm in view.vms:
            originals = view.originals[vm.config.uuid]
            volumes = [disk.volume for disk in (*vm.disks, *vm.detached)]
            notes = [
                note
                for one in volumes
                for note in decode_notes(one.user.get(REPLICAS_PROPERTY, ""))
                if note.host == peer
            ]
            homes |= {view.host.datasets[one.pool].guid for one in volumes}
            known = {note.peer for note in notes}
            homes |= {note.home for note in notes if note.home}
            points = [
                one.dataset + p.suffix for one in originals for p in synced(one, [int(text, 16) for text in known])
            ]
            destroyed += points
            takers = rivals_of(vm.root.user)
            had_notes = had_notes or bool(known) or peer in takers
            if not check_mode:
                keys.forget_keys(vm.config.uuid)
                for name in points:
                    exact.destroy_own(self.zfs, name)
                datasets = [one.dataset for one in originals]
                for text in sorted(known):
                    table = self.copies.table(datasets, [_NOTE_PROPERTY], EVERYTHING, depth=0)
                    self._write_notes(table, dict.fromkeys(datasets, (text, None)), set())
                if peer in takers:
                    self.zfs.set_facts(
                        vm.root.name, {RIVALS_PROPERTY: encode_rivals(one for one in takers if one != peer)}
                    )
        if not check_mode:
            self._settle([vm.config.uuid for vm in view.vms])
        with_failover = [vm.config.uuid for vm in view.vms if vm.config.failover]
        names = [vm.config.alias or vm.config.uuid for vm in view.vms]
        return EndedSync(
            [vm.config.uuid for vm in view.vms], sorted(homes), destroyed, had_notes, [], with_failover, names
        )


def _with_memory(known: VmTransfer, vm: Vm, host: Host, suspends: bool) -> VmTransfer:
    """Return the transfer with the memory of the guest, if that is saved or about to be. It is not sent raw: what
    arrives is encrypted as the pool there is.
    """
    name = memory_dataset(vm.config.pool, known.uuid)
    goes = vm.config.uuid in paused_guests(host) or (suspends and vm.config.state == "running")
    if not (memory_is_there(host.datasets, name) or goes):
        return known
    size = vm.config.memory * MIB
    return replace(known, memory=DiskTransfer(known.uuid, "memory", name, "filesystem", 0, 0, sends=size))


def _why_left_out(vm: Vm, host: Host, peer: str) -> t.Iterator[Problem]:
    """Yield why nothing of a VM is sent to a host.

    A VM that comes has what proves that its memory belongs to its disks, and the base of its way back, in snapshots and
    bookmarks that a sync destroys. The memory of a guest that leaves belongs to the sync of its move alone.
    """
    reason, move = why_home_unknown(vm), host.moves.get(vm.config.uuid)
    if reason:
        yield Problem(NOT_HOME, reason, vm.label)
    elif move is not None and not (move.back_to or move.taken):
        memory = has_memory(move, host.datasets, host.geometry) or stands_still(move, vm.config.state)
        if (move.phase == COMING and vm.disks) or (move.phase == LEAVING and memory and move.host != peer):
            yield Problem("InUse", f"{why_frozen(move, memory)}, and it is not replicated before", vm.label)


def _stay_here(vm: VmTransfer, points: t.Mapping[str, t.Tuple[Point, ...]]) -> t.Set[str]:
    """Return the sets that the disks of a VM retain."""
    disks = [Original(disk.uuid, disk.dataset, disk.volsize, points[disk.dataset]) for disk in vm.disks]
    return retained_sets(disks, (vm.home, vm.peer), vm.keep.home)


def _synced_at(vm: VmTransfer) -> float:
    """Return when the disks were last like their replicas: no time from the future, as the clock may have been set."""
    return min(time.time(), vm.taken)


def _notes(row: t.Mapping[str, t.Tuple[str, ...]]) -> t.List[Note]:
    """Return the notes of a disk about its replicas, from its row in a table."""
    value, source = row[_NOTE_PROPERTY]
    return decode_notes(value) if source == "local" else []


def _pools(planned: SyncPlan) -> t.List[str]:
    return sorted({vm.config.pool for vm in planned.vms})


def _needed_bytes(planned: SyncPlan, pool: str) -> int:
    """Return the bytes that the snapshots of a sync need in a pool of this host."""
    host = t.cast(Host, planned.host)
    pairs = [(vm, one.failed) for vm, one in zip(planned.vms, planned.syncs) if one.new and vm.config.pool == pool]
    return sum(
        snapshot_bytes(vm, failed, sync_space.quota_of(vm, space_with_next_set(vm, failed), host))
        for vm, failed in pairs
    )


def _replica_dataset(pool: str, disk: Original) -> str:
    return f"{replicas_container(pool)}/{disk.uuid}"


def _complaint(stderr: str) -> str:
    """Return what a program complained about, without warnings: one for each left-out property that volumes lack."""
    return "\n".join(line for line in stderr.strip().splitlines() if not line.startswith("Warning: "))
