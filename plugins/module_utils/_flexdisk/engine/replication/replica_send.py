# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a sync do on the home of VMs: plan a sync and take its snapshots, send the streams, tidy up."""

from __future__ import annotations

import os
import time
import typing as t
from dataclasses import dataclass, field, replace

from ...fleet.replication import last, sync, trust
from ...fleet.replication.copies import Original, Replica, rope
from ...fleet.replication.peers import Peer, lacking, refusals
from ...fleet.replication.retention import gone_here, synced
from ...fleet.replication.room import coming_space, lacks_room, takes
from ...fleet.replication.streams import Full, Stream, Travelling, send_words
from ...fleet.replication.transfers import DiskTransfer, VmTransfer, transfer
from ...hypervisor import whole_files
from ...hypervisor.protocol import Hypervisor
from ...model.command import Carrier
from ...model.errors import FlexdiskError, Problem
from ...model.vm import Vm
from ...rules.failover import RIVALS, encode_rivals, rivals_of
from ...rules.identity import PREFIX, render_time
from ...rules.inventory import Host
from ...rules.layout import replicas
from ...rules.power import NOT_HOME, why_home_unknown
from ...rules.replicas import REPLICAS_PROPERTY, Note, decode, encode, short_peer
from ...rules.space import sync_needs
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import EVERYTHING, Copies, Table
from ..host.journal import host_name
from ..host.observe import observe
from ..host.progress import Progress
from . import rates, replica_info, sync_space
from . import trust as keys
from .at_once import at_once

_Dict = t.Dict[str, t.Any]
_FACT = PREFIX + REPLICAS_PROPERTY


class Space(t.NamedTuple):
    """The space that a pool must give for a sync."""

    # The pool is one of this host.
    here: bool
    pool: str
    # Bytes.
    needs: int
    # Bytes.
    available: int


@dataclass
class Planned:
    """The plan of a sync of many VMs. failures: why some of them are left out."""

    transfers: t.List[VmTransfer] = field(default_factory=list)
    syncs: t.List[sync.VmSync] = field(default_factory=list)
    vms: t.List[Vm] = field(default_factory=list)
    host: t.Optional[Host] = None
    problems: t.List[Problem] = field(default_factory=list)
    space: t.List[Space] = field(default_factory=list)
    failures: t.List[str] = field(default_factory=list)

    @property
    def rate(self) -> int:
        """Bytes a second of the last transfer to the slowest of the pools, 0 if one is not known."""
        return min((rates.measured(peer) for peer in {vm.peer for vm in self.transfers}), default=0)


class Removed(t.NamedTuple):
    """What ended with the syncs of VMs."""

    # The VMs whose sync was ended.
    uuids: t.List[str]
    # The guids of the pools from which replicas have come.
    homes: t.List[int]
    # The snapshots and bookmarks that went.
    gone: t.List[str]
    # A disk had said that it has replicas.
    noted: bool
    # Why the names are refused.
    problems: t.List[Problem]
    # The uuids of those that have failover.
    failover: t.Sequence[str] = ()
    # The aliases of the VMs, or the UUID of one without.
    names: t.Sequence[str] = ()


class Sender:
    """What the steps need on the home."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Carrier, pool: t.Optional[str]) -> None:
        self.zfs = zfs
        self.hypervisor = hypervisor
        self.runner = runner
        self.copies = Copies(runner)
        self.pool = pool

    # -- prepare

    def plan(self, names: t.Sequence[str], peer: Peer, fresh: bool = False) -> Planned:
        """What a sync of these VMs would do. Nothing is changed. fresh: as in sync.plan.

        Nothing is sent of a VM that another host may have taken over: its age would count as that of the VM. Others are
        sent, unless there are none.
        """
        seen = replica_info.look(self.zfs, self.copies, self.hypervisor, names, self.pool)
        result = Planned(host=seen.host, problems=list(seen.problems))
        needs: t.Dict[str, int] = {}
        away = [(vm, words) for vm, words in ((vm, why_home_unknown(vm)) for vm in seen.vms) if words]
        if len(away) == len(seen.vms):
            result.problems += [Problem(NOT_HOME, words, vm.label) for vm, words in away]
        result.failures = [f"{vm.label}: {words} [{NOT_HOME}]" for vm, words in away]
        left_out = {vm.config.uuid for vm, _words in away}
        for vm in (vm for vm in seen.vms if vm.config.uuid not in left_out):
            place = peer.pool or vm.config.pool
            problems = refusals(vm, seen.host, peer, place)
            if not problems:
                planned, made, problems = self._plan_vm(vm, seen, peer, place, fresh)
                result.vms.append(vm)
                result.syncs.append(planned)
                result.transfers.append(made)
                needs[place] = needs.get(place, 0) + sum(disk.needs for disk in planned.disks)
            result.problems += problems
        result.problems += lacking(needs, peer)
        result.space = [
            *(Space(True, pool, _takes(result, pool), seen.host.available(pool)) for pool in _pools(result)),
            *(Space(False, place, needed, peer.pools[place][1]) for place, needed in sorted(needs.items())),
        ]
        return result

    def _plan_vm(
        self, vm: Vm, seen: replica_info.Seen, peer: Peer, place: str, fresh: bool
    ) -> t.Tuple[sync.VmSync, VmTransfer, t.List[Problem]]:
        here, there = seen.host.datasets[vm.config.pool].guid, peer.pools[place][0]
        originals = seen.originals[vm.config.uuid]
        pairs = [(one, self._with_token(peer.replicas.get(_place(place, one)))) for one in originals]
        planned, wrong = sync.plan(pairs, here, there, fresh)
        names = {replica_info.uuid_of(disk): disk.label for disk in vm.disks}
        problems = [Problem(exc.code, exc.message, vm.config.label, names[uuid]) for uuid, exc in wrong]
        if planned.new:
            failed = planned.failed
            quota = sync_space.quota_of(vm, coming_space(vm, failed), seen.host)
            problems += lacks_room(vm, failed, quota, seen.host.available(vm.config.pool))
        elif sync_space.is_off(vm, seen.host):
            planned = replace(planned, settles=True)
        disks = tuple(transfer(one, names[one.disk.uuid]) for one in planned.disks)
        config = vm.config
        made = VmTransfer(config.uuid, config.alias, planned.name, here, there, place, host_name(), disks, planned.idle)
        return planned, made, problems

    def _with_token(self, found: t.Optional[Replica]) -> t.Optional[Replica]:
        if found is None or not found.token:
            return found
        return replace(found, token_guid=self.copies.token_guid(found.token))

    def prepare(self, planned: Planned, peer: str) -> t.Tuple[t.List[VmTransfer], t.List[str]]:
        """Take the snapshots of the sync, and make keys for its streams. What fails leaves one VM out."""
        done: t.List[VmTransfer] = []
        failures: t.List[str] = []
        for vm, planning, known in zip(planned.vms, planned.syncs, planned.transfers):
            try:
                if planning.new:
                    self._make_room(vm, planning, t.cast(Host, planned.host))
                done.append(self._ready(planning, known, peer))
            except FlexdiskError as exc:
                failures.append(f"{known.label}: {exc.message} [{exc.code}]")
        return done, failures

    def announce(self, planned: Planned) -> t.List[VmTransfer]:
        """Give VMs that are about to stop the room for their last set, and make the keys with which it goes. planned:
        with fresh. Raises FlexdiskError Changed if replicas are not as a sync leaves them.
        """
        for known in planned.transfers:
            last.check(known)
        for vm, planning in zip(planned.vms, planned.syncs):
            self._make_room(vm, planning, t.cast(Host, planned.host))
        return [self._with_keys(known, known.uuid) for known in planned.transfers]

    def _make_room(self, vm: Vm, planning: sync.VmSync, host: Host) -> None:
        """Destroy the sets that have not come, and give the VM the space for the next one."""
        for disk in planning.disks:
            for point in disk.failed:
                exact.destroy_own(self.zfs, disk.disk.dataset + point.word)
        sync_space.settle(self.zfs, vm, coming_space(vm, planning.failed), host)

    def _ready(self, planning: sync.VmSync, vm: VmTransfer, peer: str) -> VmTransfer:
        fresh: t.Dict[str, t.Tuple[int, int]] = {}
        if planning.new:
            fresh = self._take(planning, vm, peer)
        disks = []
        for planned, known in zip(planning.disks, vm.disks):
            disk = planned.disk
            if planning.new:
                disk = sync.taken(disk, planning.name, *fresh[f"{disk.dataset}@{planning.name}"])
            streams, _then = sync.streams_to(disk, planned.replica, planning.name)
            self._tie(disk, streams, vm.peer)
            disks.append(replace(known, streams=streams, snapshots=tuple(p.guid for p in disk.snapshots)))
        return self._with_keys(replace(vm, disks=tuple(disks)))

    def _with_keys(self, vm: VmTransfer, *more: str) -> VmTransfer:
        """The transfer with new keys for the disks that have something to send. more: uuids of further keys."""
        wanted = [*(disk.uuid for disk in vm.disks if disk.sent), *more]
        made = keys.make_keys(self.runner, vm.uuid, wanted) if wanted else {}
        disks = tuple(replace(disk, key=made.get(disk.uuid, "")) for disk in vm.disks)
        return replace(vm, disks=disks, asks=made.get(vm.uuid, ""))

    def _take(self, planning: sync.VmSync, vm: VmTransfer, peer: str) -> t.Dict[str, t.Tuple[int, int]]:
        """Take the snapshots. Guid and createtxg of each, by name."""
        names = [disk.disk.dataset for disk in planning.disks]
        if any(short_peer(vm.peer) not in disk.disk.peers for disk in planning.disks):
            table = self.copies.table(names, [_FACT], EVERYTHING, depth=0)
            self._note(table, dict.fromkeys(names, (short_peer(vm.peer), Note(short_peer(vm.peer), peer, ""))), set())
        taken = [f"{name}@{planning.name}" for name in names]
        self.zfs.snapshot(*taken)
        found = self.copies.table(taken, ("guid", "createtxg"), "snapshot", depth=0)
        return {name: (int(row["guid"][0]), int(row["createtxg"][0])) for name, row in found.items()}

    def _tie(self, disk: Original, streams: t.Sequence[Stream], peer: int) -> None:
        """The first snapshot of a new replica gets a bookmark, so that it is a base even if somebody destroys it."""
        for stream in streams:
            if isinstance(stream, Full):
                old = next((point for point in disk.bookmarks if point.name == rope(peer)), None)
                if old is not None and old.guid != stream.to.guid:
                    exact.destroy_own(self.zfs, disk.dataset + old.word)
                if old is None or old.guid != stream.to.guid:
                    self.copies.bookmark(disk.dataset + stream.to.word, rope(peer))

    # -- send

    def send(
        self, transfers: t.Sequence[VmTransfer], address: trust.Address, known: t.Sequence[str], progress: Progress
    ) -> t.List[_Dict]:
        """Send all streams, disk by disk. What became of each VM; one that fails does not stop the others."""
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
            rates.note(vm.peer, sent, took)
        return {"vm": vm.uuid, "alias": vm.alias, "sent_bytes": sent, "seconds": round(took, 1), "failure": failure}

    def stream(self, vm: VmTransfer, address: trust.Address, known: t.Sequence[str], progress: Progress) -> None:
        """Send the streams of a VM. Raises FlexdiskError TransferFailed, or OSError."""
        folder = keys.keys_folder(vm.uuid)
        path = os.path.join(folder, keys.KNOWN_HOSTS)
        whole_files.replace(path, trust.known_hosts(address, known).encode(), durable=False)
        for disk in vm.disks:
            for stream in disk.sent:
                progress.now(vm.label, disk.name or disk.uuid, "sending")
                self._carry(disk, stream, trust.ssh(address, os.path.join(folder, disk.uuid), path), progress)

    def _check_snapshots(self, vm: VmTransfer) -> None:
        """The snapshots are those that were planned: names say nothing."""
        wanted = {f"{disk.dataset}{stream.to.word}": stream.to.guid for disk in vm.disks for stream in disk.sent}
        table = self.copies.table(sorted(wanted), ("guid",), "snapshot", depth=0)
        wrong = [name for name, guid in wanted.items() if int(table[name]["guid"][0]) != guid]
        if wrong:
            raise FlexdiskError("Changed", f"{', '.join(wrong)}: not the snapshots that the sync was planned with")

    def _carry(self, disk: DiskTransfer, stream: Travelling, ssh: t.Sequence[str], progress: Progress) -> None:
        sender, receiver = self.runner.carry(send_words(disk.dataset, stream), ssh, progress.add)
        if receiver.rc != 0 or sender.rc != 0:
            parts = [said for said in map(_complaint, (receiver.stderr, sender.stderr)) if said]
            ended = f"ssh ended with {receiver.rc}, zfs send with {sender.rc}"
            raise FlexdiskError("TransferFailed", f"{disk.dataset}: {'; '.join(parts) or ended}")

    # -- finish

    def finish(
        self, transfers: t.Sequence[VmTransfer], complete: t.Collection[str], peer: str
    ) -> t.Tuple[bool, t.List[str]]:
        """Keep the set of each VM whose replicas all have it (its uuid is in complete), with a bookmark for each
        snapshot; older sets and keys go. Whether anything but the time was changed, and what failed.
        """
        failures: t.List[str] = []
        whole: t.List[VmTransfer] = []
        changed: t.Set[str] = set()
        for vm in transfers:
            try:
                keys.forget_keys(vm.uuid)
                whole += [vm] if vm.uuid in complete else []
            except FlexdiskError as exc:
                failures.append(f"{vm.label}: {exc.message} [{exc.code}]")
        at_once(whole, lambda some: self._keep(some, peer, changed), failures)
        busy = [vm.uuid for vm in transfers if not vm.idle and vm.uuid in complete]
        return self._settle(busy) or bool(changed), failures

    def _settle(self, vms: t.Sequence[str]) -> bool:
        """Give VMs the space that their snapshots of syncs need now. Whether something was changed."""
        if not vms:
            return False
        host = observe(self.zfs, self.hypervisor, self.pool)
        found = [vm for vm in host.vms if vm.config.uuid in vms]
        return True in [sync_space.settle(self.zfs, vm, sync_needs(vm), host) for vm in found]

    def _keep(self, vms: t.Sequence[VmTransfer], peer: str, changed: t.Set[str]) -> None:
        """changed: gets the disks of which something is changed."""
        disks = [(vm, disk) for vm in vms for disk in vm.disks]
        table = self.copies.table([disk.dataset for _vm, disk in disks], ("guid", "createtxg", _FACT), EVERYTHING)
        found = replica_info.by_dataset(table)
        for vm, disk in disks:
            points, peers = found[disk.dataset], tuple(note.peer for note in _notes(table[disk.dataset]))
            original = Original(disk.uuid, disk.dataset, disk.volsize, points, peers=peers)
            if not any(point.name == vm.set for point in original.bookmarks):
                self.copies.bookmark(f"{disk.dataset}@{vm.set}", vm.set)
                changed.add(disk.dataset)
            for point in gone_here(original, vm.set, vm.home, vm.peer):
                exact.destroy_own(self.zfs, disk.dataset + point.word)
                changed.add(disk.dataset)
        notes = {vm.uuid: Note(short_peer(vm.peer), peer, render_time(time.time())) for vm in vms}
        self._note(table, {disk.dataset: (short_peer(vm.peer), notes[vm.uuid]) for vm, disk in disks}, changed)

    def _note(self, table: Table, wanted: t.Mapping[str, t.Tuple[str, t.Optional[Note]]], news: t.Set[str]) -> None:
        """Note on disks, by dataset, that a peer has their replicas, or has none. news: gets those of which it is."""
        texts: t.Dict[str, t.List[str]] = {}
        said: t.Set[str] = set()
        for name, (peer, note) in wanted.items():
            before = _notes(table[name])
            after = [one for one in before if one.peer != peer] + ([note] if note is not None else [])
            texts.setdefault(encode(after), []).append(name)
            if {one.peer for one in before} != {one.peer for one in after}:
                said.add(name)
        for text, some in texts.items():
            self.zfs.set_facts(some, {REPLICAS_PROPERTY: text})
            news |= said.intersection(some)

    # -- remove

    def remove(self, names: t.Sequence[str], peer: str, check_mode: bool) -> Removed:
        """Destroy the snapshots and bookmarks of the sync of these VMs with a host, which need not answer any more.

        Their detached disks count, too, and names may be UUIDs of VMs that have gone and left some.
        """
        seen = replica_info.look(self.zfs, self.copies, self.hypervisor, names, self.pool, detached=True)
        if seen.problems:
            return Removed([], [], [], False, seen.problems)
        gone: t.List[str] = []
        noted = False
        homes = {seen.host.datasets[vm.config.pool].guid for vm in seen.vms}
        for vm in seen.vms:
            originals = seen.originals[vm.config.uuid]
            volumes = [disk.volume for disk in (*vm.disks, *vm.detached)]
            notes = [
                note for one in volumes for note in decode(one.user.get(REPLICAS_PROPERTY, "")) if note.host == peer
            ]
            homes |= {seen.host.datasets[one.pool].guid for one in volumes}
            known = {note.peer for note in notes}
            homes |= {note.home for note in notes if note.home}
            found = [one.dataset + p.word for one in originals for p in synced(one, [int(text, 16) for text in known])]
            gone += found
            takers = rivals_of(vm.root.user)
            noted = noted or bool(known) or peer in takers
            if not check_mode:
                keys.forget_keys(vm.config.uuid)
                for name in found:
                    exact.destroy_own(self.zfs, name)
                datasets = [one.dataset for one in originals]
                for text in sorted(known):
                    table = self.copies.table(datasets, [_FACT], EVERYTHING, depth=0)
                    self._note(table, dict.fromkeys(datasets, (text, None)), set())
                if peer in takers:
                    self.zfs.set_facts(vm.root.name, {RIVALS: encode_rivals(one for one in takers if one != peer)})
        if not check_mode:
            self._settle([vm.config.uuid for vm in seen.vms])
        marked = [vm.config.uuid for vm in seen.vms if vm.config.failover]
        names = [vm.config.alias or vm.config.uuid for vm in seen.vms]
        return Removed([vm.config.uuid for vm in seen.vms], sorted(homes), gone, noted, [], marked, names)


def _notes(row: t.Mapping[str, t.Tuple[str, ...]]) -> t.List[Note]:
    """The notes of a disk about its replicas, by its row in a table."""
    value, source = row[_FACT]
    return decode(value) if source == "local" else []


def _pools(planned: Planned) -> t.List[str]:
    return sorted({vm.config.pool for vm in planned.vms})


def _takes(planned: Planned, pool: str) -> int:
    """Bytes that the snapshots of a sync take of a pool of this host."""
    host = t.cast(Host, planned.host)
    pairs = [(vm, one.failed) for vm, one in zip(planned.vms, planned.syncs) if one.new and vm.config.pool == pool]
    return sum(takes(vm, failed, sync_space.quota_of(vm, coming_space(vm, failed), host)) for vm, failed in pairs)


def _place(pool: str, disk: Original) -> str:
    return f"{replicas(pool)}/{disk.uuid}"


def _complaint(stderr: str) -> str:
    """Return what a program complained about, without warnings: one for each left-out property that volumes lack."""
    return "\n".join(line for line in stderr.strip().splitlines() if not line.startswith("Warning: "))
