# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM comes to this host: it is made again from its record, and its replicas become its disks."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from dataclasses import replace

from ...fleet.replication.record import (
    OWN,
    DiskRecord,
    Record,
    digest,
    read_record,
    variables_of,
    with_variables,
)
from ...fleet.replication.record import told as told_of
from ...fleet.replication.retention import outlived, taken_beside
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.dataset import RECORD, Dataset, DatasetId
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import MIB, render_apart, render_pair
from ...model.vm import FILE, Disk, Vm, VmConfig
from ...rules import moves, snapshots, uefi
from ...rules.failover import FAILOVER_PROPERTY, term_of
from ...rules.failover import decode as wish_in
from ...rules.identity import PREFIX, render_time
from ...rules.incoming import way_out
from ...rules.inventory import Host, detached_disk
from ...rules.journal import datasets_in_use
from ...rules.layout import container, detached_dataset, pool_of, replicas, vm_dataset
from ...rules.moves import COMING, MOVE_PROPERTY, MOVED, Move
from ...rules.pins import charge, held_without_syncs
from ...rules.power import ARRIVAL
from ...rules.replicas import (
    COMING_SNAPSHOTS,
    MARKS,
    REPLICAS_PROPERTY,
    ROLE,
    SENT,
    Note,
    decode,
    encode,
    is_synced,
    short_peer,
)
from ...rules.unfinished import is_unfinished
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.journal import forget_vm, host_name
from ..host.observe import observe
from ..modules import vm
from ..replication import records
from ..replication import trust as keys
from ..replication.own_copies import drop_mark, drop_own_copy
from ..replication.receivers import end_receiver
from ..replication.replica_info import HOLD, by_dataset, check_alone, kept
from ..run.outcome import Outcome
from ..steps import file_disks, power, renames
from .move_marks import rewrite_move, write_move
from .platform_disks import make_again

_Dict = t.Dict[str, t.Any]
_Replicas = t.Dict[str, t.Tuple[Dataset, t.List[Dataset]]]
# What was made without disks is this collection's own, whoever has taken snapshots of it.
_SHELL_ENDS = {"indestructible": False, "destroy_snapshots": True}


class Arrival:
    """What the steps of a move need on the host that a VM comes to. authorized: the file of keys that may come in.
    called: the name of this host in messages, "" for its own host name.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        runner: Runner,
        policy: Policy,
        authorized: str = "",
        called: str = "",
    ) -> None:
        self._called = called or host_name()
        self._authorized = os.path.expanduser(authorized)
        self._runner = runner
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._policy = policy

    # -- expect

    def refusals(self, record: Record, pool: str, taking: bool = False) -> t.List[Problem]:
        """Why the VM cannot come to this pool. Nothing is changed. taking: its home has failed."""
        name, found = record.label, []
        pools = [one for one in self._zfs.tops() if "/" not in one]
        if pool not in pools:
            text = f"{self._called} has no pool {pool}, but {', '.join(sorted(pools)) or 'none'}"
            return [Problem("ResourceNotFound", text, name)]
        host = observe(self._zfs, self._hypervisor, more=pool, every=True)
        if record.hypervisor != self._hypervisor.capabilities.name:
            text = f"{self._called} runs {self._hypervisor.capabilities.name}, and the VM {record.hypervisor}"
            found.append(Problem("NotSupported", text, name))
        for disk in record.hidden:
            if pool_of(disk.volume) != pool:
                text = f"the platform knows its disk only as {disk.volume}, so the VM cannot come to another pool"
                found.append(Problem("NotSupported", text, name))
        if host.datasets[pool].guid == record.home:
            return [*found, Problem("InvalidArgument", f"{self._called} is the host that has the VM", name)]
        move = host.moves.get(record.uuid)
        coming = move is not None and move.phase == COMING
        if not taking:
            found += self._memory(record)
        why = why_it_comes(host, move, taking)
        if why:
            found.append(Problem("InUse", why, name))
        for config in host.configs:
            if config.uuid == record.uuid and not coming:
                text = f"{self._called} has a VM {config.label} with this uuid already"
                found.append(Problem("AlreadyExists", text, name))
        found += _taken(host, record, self._called)
        for place in _places(host, record.uuid):
            if pool_of(place) != pool:
                text = (
                    f"{place} of {self._called} says that the VM has been or comes there, to another pool; the playbook"
                )
                text += " move_vm with flexdisk_move_state=forgotten or stays gives that up"
                found.append(Problem("MovedAway", text, name))
        return found or self._lacks(record) or self._shell(record, pool, True).problems

    def _memory(self, record: Record) -> t.Iterator[Problem]:
        """What is free must do, as a plan of moves counts it. A VM that does not run needs none."""
        free = self._hypervisor.resources().free_memory
        if record.state == "running" and record.memory > free:
            text = f"memory: {render_pair(record.memory, free)} on {self._called}"
            yield Problem("InsufficientMemory", text, record.label)

    def _lacks(self, record: Record) -> t.List[Problem]:
        elements = [disk.element for disk in record.disks]
        refused = self._hypervisor.refuses(record.description, elements, self._policy.incoming_allowed)
        if refused:
            way = way_out(refused, record.host, self._called, self._policy.incoming_allowed)
            text = (
                f"its description from {record.host} asks for what another host may not ask {self._called} for: "
                f"{'; '.join(refused)}; {way}"
            )
            return [Problem("NotPermitted", text, record.label)]
        lacks = self._hypervisor.lacks(record.uuid, record.description, elements)
        text = f"{self._called} lacks what it needs: {', '.join(lacks)}"
        return [Problem("NotSupported", text, record.label)] if lacks else []

    def foresee(self, record: Record, pool: str, back_to: str = "") -> t.List[Problem]:
        """Why the VM cannot come, as refusals has it, and as far as the replicas that are there tell it. Nothing is
        changed. back_to: as in Move.
        """
        result = self.refusals(record, pool, taking=bool(back_to))
        if result:
            return result
        try:
            if back_to:
                self._rehearse(record, pool, back_to)
                return []
            self._check_parts(record, pool, True)
            if self._has_known_parts(record, pool) and not self._is_unfinished(record.uuid, pool):
                self._rehearse(record, pool)
        except FlexdiskError as exc:
            return [Problem(exc.code, exc.message, record.label)]
        return []

    def expect(self, record: Record, pool: str, back_to: str = "") -> None:
        """Write down that the VM comes, and make it without disks: whatever could refuse it does so now. Until the VM
        is here, nothing else gets its name. back_to: as in Move.
        """
        problems = self.refusals(record, pool, taking=bool(back_to))
        if problems:
            raise FlexdiskError(problems[0].code, problems[0].message)
        if not back_to:
            self._check_parts(record, pool)
        if records.differs(record.uuid, told_of(record)):
            self._end_shell(record.uuid, pool)
        records.save(record.uuid, told_of(record))
        self._write(pool, record, back_to)
        self._shell(record, pool, False)
        self._check_room(record)
        self._rehearse(record, pool, back_to)

    def _check_parts(self, record: Record, pool: str, before: bool = False) -> None:
        """Refuse a snapshot of the VM whose parts have not come with the disks. An older one cannot come later.

        before: a sync is still to come, and brings parts that are newer than what the replicas have. Times tell nothing
        of that, for hosts have clocks of their own; but a replica with a part of a later snapshot gets no older one.
        """
        if not record.snapshots:
            return
        found = [parts for _replica, parts in self._replicas(record, pool).values()]
        there = {part.guid for parts in found for part in parts}
        for number, taken in enumerate(record.snapshots, 1):
            later = {guid for one in record.snapshots[number:] for guid in one.guids}
            lacking = [parts for parts in found if not {part.guid for part in parts}.intersection(taken.guids)]
            passed = [parts for parts in lacking if {part.guid for part in parts}.intersection(later)]
            coming = before and (len(found) < len(record.disks) or not passed or len(passed) < len(lacking))
            if not (there.issuperset(taken.guids) or coming):
                text = f"the replicas of VM {record.label} lack a part of its snapshot {taken.name}, and get no older"
                text += " snapshot any more; give them up, and they are made again with all parts"
                raise FlexdiskError("ReplicaChanged", text)

    def _has_known_parts(self, record: Record, pool: str) -> bool:
        """Whether the replicas have no snapshot that their disks may have lost: the sync destroys those there, too."""
        known = {guid for taken in record.snapshots for guid in taken.guids}
        parts = [part for _replica, found in self._replicas(record, pool).values() for part in found]
        return all(part.guid in known or is_synced(part.name.partition("@")[2]) for part in parts)

    def _is_unfinished(self, uuid: str, pool: str) -> bool:
        """Whether a run that was killed has left a part of the VM here. expect() removes that, and rehearses then."""
        config = next((one for one in self._hypervisor.vms() if one.uuid == uuid), None)
        return self._zfs.exists(vm_dataset(pool, uuid)) if config is None else is_unfinished(config)

    def _check_room(self, record: Record) -> None:
        """The VM's own dataset must have room for its snapshots even if the disks take all that they can get."""
        if not record.snapshots:
            return
        host = observe(self._zfs, self._hypervisor)
        root = next(one.root for one in host.vms if one.config.uuid == record.uuid)
        room = max(0, root.refquota - root.refreservation)
        if charge(root) > room:
            text = "a snapshot of %s needs %s, and %s is left beside its reservation"
            raise FlexdiskError("InsufficientSpace", text % (root.name, *render_apart(charge(root), room)))

    def _rehearse(self, record: Record, pool: str, back_to: str = "") -> None:
        """Plan what arrive will do with the replicas, if all are there. What could refuse the disks does so now.

        back_to: as in Move.
        """
        there = self._replicas(record, pool)
        if len(there) < len(record.disks):
            return
        try:
            self._rehearse_with(record, pool, there, back_to)
        except FlexdiskError as exc:
            if exc.code != "InsufficientSpace":
                raise
            found = kept(self._copies, [container(pool)])
            beside = {f"{one.replica.dataset}@{point.name}" for one in found for point in taken_beside(one.replica)}
            left = {uuid: (one, [p for p in parts if p.name not in beside]) for uuid, (one, parts) in there.items()}
            with self._naming([part for _replica, parts in left.values() for part in parts]):
                self._rehearse_with(record, pool, left, back_to)

    def _rehearse_with(self, record: Record, pool: str, there: _Replicas, back_to: str) -> None:
        coming = [_as_detached(disk, *there[disk.uuid], record.uuid, back_to) for disk in record.disks]
        self._run(_whole(record), pool, True, coming, {**_declared(record), "disks": []})

    @contextlib.contextmanager
    def _naming(self, parts: t.Sequence[Dataset]) -> t.Iterator[None]:
        """If there is no room, name the snapshots among these that others have taken."""
        try:
            yield
        except FlexdiskError as exc:
            words = (
                snapshots.foreign_snapshots_text(part.name for part in parts) if exc.code == "InsufficientSpace" else ""
            )
            raise FlexdiskError(exc.code, exc.message + words) from exc

    def _replicas(self, record: Record, pool: str) -> _Replicas:
        """The replicas of the VM's disks that are there, with their snapshots, by the disks' uuids."""
        there = observe(self._zfs, self._hypervisor, every=True).datasets
        names = {f"{replicas(pool)}/{disk.uuid}": disk.uuid for disk in record.disks}
        result: _Replicas = {uuid: (there[name], []) for name, uuid in names.items() if name in there}
        for one in there.values():
            if one.kind == "snapshot" and one.parent in names:
                result[names[one.parent]][1].append(one)
        return result

    def _end_shell(self, uuid: str, pool: str) -> None:
        """Delete the VM that was made without disks, or what was made of it, if there is any."""
        config = next((one for one in self._hypervisor.vms() if one.uuid == uuid), None)
        if config is not None and config.disks and not is_unfinished(config):
            text = f"VM {config.label} has its disks here already; the playbook move_vm goes on. If another host has"
            raise FlexdiskError("InUse", f"{text} taken it over, {ends_here()}")
        if config is not None:
            self._run({"vm": uuid, "uuid": uuid, "state": "absent", **_SHELL_ENDS}, pool, False)
        elif self._zfs.exists(vm_dataset(pool, uuid)):
            self._clear(vm_dataset(pool, uuid))

    def _clear(self, root: str) -> None:
        """Destroy what an interrupted creation has left, if nothing has been written to it."""
        (empty,) = (one for one in self._zfs.datasets(container(pool_of(root))) if one.name == container(pool_of(root)))
        there = self._zfs.datasets(root)
        lasting = datasets_in_use(there, empty)
        if lasting:
            raise FlexdiskError("InUse", f"{', '.join(lasting)} belongs to no VM, and may still be needed")
        drop_own_copy(self._zfs, self._copies, root, next(one.guid for one in there if one.name == root))

    def _shell(self, record: Record, pool: str, check_mode: bool) -> Outcome:
        """The VM without its disks. Another one here keeps the disks that it has got."""
        known = [one for one in self._hypervisor.vms() if one.uuid == record.uuid and not is_unfinished(one)]
        has = any(config.disks for config in known)
        return self._run({**_declared(record), **({} if has else {"disks": []})}, pool, check_mode)

    def _run(
        self,
        declared: _Dict,
        pool: str,
        check_mode: bool,
        coming: t.Sequence[Disk] = (),
        shell: t.Optional[_Dict] = None,
    ) -> Outcome:
        policy, uuid = self._policy, declared["uuid"]
        outcome = vm.run(self._zfs, self._hypervisor, [declared], [], policy, pool, check_mode, uuid, coming, shell)
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems and (coming or not check_mode):
            problem = outcome.problems[0]
            raise FlexdiskError(problem.code, f"{problem.disk + ': ' if problem.disk else ''}{problem.message}")
        return outcome

    def _write(self, pool: str, record: Record, back_to: str) -> None:
        since = render_time(time.time())
        known = observe(self._zfs, self._hypervisor, more=pool).moves.get(record.uuid)
        was = "" if known is None else moves.encode(known) if known.phase == MOVED else known.was
        whence = (record.uuid, record.alias, record.host, record.home, record.state, record.autoboot)
        move = Move(COMING, *whence, since, was, back_to, term_of(record.marks.get(FAILOVER_PROPERTY, "")))
        write_move(self._zfs, self._hypervisor, pool, move)

    def comes(self, uuid: str) -> bool:
        """Whether arrive() has something to do."""
        return bool(_expected(observe(self._zfs, self._hypervisor, every=True), uuid))

    def expects(self, uuid: str) -> bool:
        """Whether unexpect() has something to remove. Raises FlexdiskError if another host is taking the VM over."""
        host = observe(self._zfs, self._hypervisor, every=True)
        place = _expected(host, uuid)
        if place:
            _check_only_expected(host, host.moves[uuid])
        return bool(place) or not records.absent(uuid)

    def unexpect(self, uuid: str, taking: bool = False, stayed: t.Optional[moves.GivenUp] = None) -> bool:
        """The VM does not come: what was made of it goes. Its replicas stay. Return whether there was anything.

        taking: as for refusals. stayed: as in Departure; a move that has begun after that may have left its host
        already, and is refused. None if the host of the VM is down.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        place = _expected(host, uuid)
        if place and not taking:
            _check_only_expected(host, host.moves[uuid])
        if stayed is not None:
            _check_given_up(uuid, stayed)
        if place:
            self.shut_out(uuid)
            self._end_shell(uuid, pool_of(place))
            if all(config.uuid != uuid for config in host.configs):  # a run that was killed had deleted it
                forget_vm(self._zfs, host, uuid)
            records.remove(uuid)
            was = host.moves[uuid].was
            if was:
                self._zfs.set_facts(place, {MOVE_PROPERTY: was})
            else:
                drop_mark(self._zfs, self._copies, place, host.datasets[place].guid)
        return records.remove(uuid) or bool(place)

    def shut_out(self, uuid: str) -> None:
        """No key of the last transfer opens anything any more, and nothing is received."""
        if not self._authorized or records.absent(uuid):
            return
        disks = [disk.uuid for disk in read_record(records.load(uuid)).disks]
        keys.shut_out(self._authorized, [uuid, *disks])
        for disk in disks:
            end_receiver(self._runner, disk)

    def renew(self, record: Record) -> str:
        """Take the UEFI variables of a VM that is expected and has been stopped. The digest of those that lie here."""
        known = read_record(records.load(record.uuid))
        if digest(known) != digest(record):
            raise FlexdiskError("Changed", f"VM {record.label} is not the one that {self._called} expects")
        records.save(record.uuid, told_of(with_variables(known, variables_of(record))))
        return uefi.digest(variables_of(read_record(records.load(record.uuid))))

    # -- arrive

    def check_goes_on(
        self, uuid: str, here: str, seen: t.Mapping[str, t.Optional[moves.Sighting]], unasked: bool
    ) -> None:
        """Raise FlexdiskError unless the VM can arrive although nobody asks the host that it has left.

        This host must know that the VM has left: the last words of the other host may have been that it stays. here:
        the name of this host for others. seen: what other hosts say. unasked: although one that could have taken the VM
        over does not answer.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        move = host.moves.get(uuid)
        if move is None or move.phase != COMING or move.back_to:
            return
        if not is_arriving(host, move):
            words = f"{here} does not know whether it has left {move.host}, for its arrival has not begun. Bring"
            words += f" {move.host} up, and the same command goes on. If {move.host} is gone for good, the playbook"
            raise FlexdiskError("InUse", f"VM {move.label}: {words} failover_vm brings back what other hosts have")
        record = read_record(records.load(uuid))
        fails_over = wish_in(record.marks.get(FAILOVER_PROPERTY, "")) is not None
        asks = {note.host for disk in record.disks for note in decode(disk.replicas)} if fails_over else ()
        words = moves.why_not_on(uuid, here, seen, sorted(asks), move.term, unasked)
        if words:
            raise FlexdiskError("InUse", f"VM {move.label}: {words}")

    def arrive(self, uuid: str, source: str, taking: bool = False) -> bool:
        """Make the VM with its disks, and start it if it ran. Whether there was anything to do.

        Called when the other host, source, says that it has neither the VM nor its disks as disks. taking: as for
        refusals; its disks have gone back to one moment then.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        place = _expected(host, uuid)
        there = next((one for one in host.configs if one.uuid == uuid and not is_unfinished(one)), None)
        if not place:
            if there is None or not there.disks:
                raise FlexdiskError("Changed", f"{self._called} does not expect VM {uuid}, and does not have it")
            self.forget(uuid)
            return False
        if host.moves[uuid].host != source:
            text = f"{self._called} expects VM {uuid} from {host.moves[uuid].host}, not from {source}"
            raise FlexdiskError("Changed", text)
        if host.moves[uuid].back_to and not taking:
            raise FlexdiskError("InUse", f"VM {host.moves[uuid].label}: {moves.why_frozen(host.moves[uuid])}")
        record = read_record(records.load(uuid))
        pool = pool_of(place)
        if not (taking or host.moves[uuid].has_left):
            rewrite_move(self._zfs, pool, host.moves[uuid]._replace(has_left=True))
        self.shut_out(uuid)
        progress.current().now(record.label, "", "its replicas become disks")
        self._become_disks(record, pool, host)
        now = None
        if there is None or there.state != "running":  # a run that was killed may have started it already
            now = self._fill(record, pool, there)
        self._end(record, place, host.moves[uuid], now or observe(self._zfs, self._hypervisor))
        return True

    def _fill(self, record: Record, pool: str, there: t.Optional[VmConfig]) -> t.Optional[Host]:
        """Give the VM its disks. Those of the platform come first, so that none of the others gets their places.

        The host afterwards, if there was anything to do.
        """
        if record.hidden and there is None:
            self._shell(record, pool, False)
        if there is None or not there.disks:  # a VM with disks may have been started, and has changed them since
            self._hypervisor.restore_variables(record.description)
        make_again(self._zfs, self._hypervisor, record)
        try:
            return self._run(_whole(record), pool, False).now
        except FlexdiskError as exc:
            if exc.code != "InsufficientSpace":
                raise
        host = observe(self._zfs, self._hypervisor, every=True)
        disks = _disks_of(host, record)
        detached = [disk.volume.name for disk in host.detached]
        for disk in disks:  # what was attached may have been written to, if somebody has started the VM by hand
            newest = {part.name for part in disk.snapshots[-1:] if not disk.volume.written}
            self._drop_beside(disk.volume.name, None if disk.volume.name in detached else newest)
        with self._naming([part for disk in disks for part in disk.snapshots]):
            return self._run(_whole(record), pool, False).now

    def _drop_beside(self, name: str, among: t.Optional[t.Set[str]]) -> None:
        """Destroy the snapshots that others have taken here of what has become a disk, and that the VM has no room for.

        Nothing is new in them: whatever has come with the disk is marked, and nobody has written since. among: no
        others than these, None for all.
        """
        points = by_dataset(self._copies.table([name], ("guid", "createtxg", "userrefs", PREFIX + SENT), "snapshot"))
        for point in points.get(name, ()):
            whole = name + point.word
            if not (point.sent or point.pinned or is_synced(point.name)) and (among is None or whole in among):
                exact.destroy_snapshots(self._zfs, [DatasetId(whole, point.guid)])

    def _become_disks(self, record: Record, pool: str, host: Host) -> None:
        """The replicas become detached disks of the VM. Their identity comes first, and what they were goes last.

        host: as it was before. A run that was killed may have begun.
        """
        found = {one.replica.dataset: one.replica for one in kept(self._copies, [container(pool)])}
        places = {disk.uuid: f"{replicas(pool)}/{disk.uuid}" for disk in record.disks}
        waiting = [(disk, found[places[disk.uuid]]) for disk in record.disks if places[disk.uuid] in found]
        for disk, replica in waiting:
            check_alone(replica.dataset, found)
            if replica.token or replica.written or replica.uuid != disk.uuid:
                raise FlexdiskError("Changed", f"{replica.dataset} is not the whole replica of disk {disk.name}")
        came = [
            f"{r.dataset}@{p.name}" for _d, r in waiting for p in r.snapshots if p not in taken_beside(r) and not p.sent
        ]
        self._zfs.set_facts([name for name in came if not is_synced(name.partition("@")[2])], {SENT: "on"})
        held = [f"{r.dataset}@{p.name}" for _disk, r in waiting for p in r.snapshots if p.held and is_synced(p.name)]
        if held:
            self._zfs.release(HOLD, *held)
        for disk, replica in waiting:
            here = replica.dataset
            stale = {name: "" for name in host.datasets[here].user if name in OWN and name not in disk.facts}
            self._zfs.set_facts(here, {**stale, **disk.facts, "vm": record.uuid})
            renames.rename(self._zfs, here, detached_dataset(pool, disk.uuid))
        renamed = {disk.uuid for disk, _replica in waiting}
        shown = [d for d in record.disks if d.uuid in renamed or detached_dataset(pool, d.uuid) in host.datasets]
        old = () if host.moves[record.uuid].back_to else (record.home, host.datasets[pool].guid)
        sizes = {guid: size for disk in shown for guid, size in disk.sizes}
        self._shed([detached_dataset(pool, disk.uuid) for disk in shown], old, sizes)
        for disk in shown:
            if disk.facts.get("type") == FILE:
                file_disks.show(self._zfs, detached_dataset(pool, disk.uuid), disk.uuid)

    def _shed(self, names: t.Sequence[str], pools: t.Collection[int], sizes: t.Mapping[int, int]) -> None:
        """What only a replica has. The snapshots of syncs become bookmarks: the VM's quota has no room for them yet.
        pools: between these, older sets are of no use any more. sizes: those of files in snapshots, which have not come
        with them.
        """
        table = self._copies.table(names, ("guid", "createtxg"), "snapshot,bookmark")
        points = by_dataset(table)
        for name in names:
            synced = [point for point in points.get(name, ()) if is_synced(point.name)]
            old, known = outlived(synced, pools), {point.name for point in synced if point.bookmark}
            gone = [point for point in synced if not point.bookmark]
            for point in gone:
                if point not in old and point.name not in known:
                    self._copies.bookmark(name + point.word, point.name)
            if gone:
                exact.destroy_own(self._zfs, *(name + point.word for point in gone))
        illumos = self._hypervisor.capabilities.platform == "illumos"
        self._zfs.inherit(names, "readonly", *([] if illumos else ["volmode"]))
        self._zfs.set_facts(names, {ROLE: ""})
        left = [one for one in table if "@" in one and not is_synced(one.partition("@")[2])]
        for one, row in table.items():
            size = sizes.get(int(row["guid"][0])) if one in left else None
            if size is not None:
                self._zfs.set_facts(one, {"size": str(size)})

    def _end(self, record: Record, place: str, move: Move, host: Host) -> None:
        """Marks of the VM, power, and the note of the way back. What was written down goes last. host: as it is now."""
        made = next(one for one in host.vms if one.config.uuid == record.uuid)
        lacking = {disk.uuid for disk in record.disks} - {disk.uuid for disk in made.disks}
        if lacking:
            text = "was started before it had its disks; stop it, and run the move again"
            raise FlexdiskError("VmNotStopped", f"VM {record.label} {text}")
        self._make_snapshots(record, made)
        self._zfs.set_facts(made.root.name, {k: v for k, v in record.marks.items() if v})
        if wish_in(record.marks.get(FAILOVER_PROPERTY, "")) is not None:
            power.note_home(self._zfs, self._hypervisor, made)
        if made.config.state == "stopped":
            known = {disk.uuid: disk.element for disk in record.disks if disk.element}
            self._hypervisor.dress(record.uuid, {d.path: known[d.uuid] for d in made.disks if d.uuid in known})
        try:
            if record.state == "running" and made.config.state == "stopped":
                progress.current().now(record.label, "", "start")
                power.start(self._hypervisor, made, ARRIVAL)
        finally:  # a start turns it on, also one that fails
            wanted = record.autoboot and wish_in(record.marks.get(FAILOVER_PROPERTY, "")) is None
            if self._hypervisor.vm(record.uuid).autoboot != wanted:
                self._hypervisor.set_autoboot(record.uuid, wanted)
        self._note(record, made, move)
        parts = [part.name for disk in made.disks if not disk.hidden for part in disk.snapshots]
        self._zfs.set_facts(parts, {SENT: ""})
        drop_mark(
            self._zfs,
            self._copies,
            place,
            int(self._copies.table([place], ("guid",), "filesystem", 0)[place]["guid"][0]),
        )
        self.forget(record.uuid)

    def _note(self, record: Record, made: Vm, move: Move) -> None:
        """The disks say which hosts have replicas, and nothing of what they have been."""
        back = Note(short_peer(record.home), record.host, "" if move.back_to else render_time(time.time()))
        left = {disk.uuid: decode(disk.replicas) for disk in record.disks}
        texts: t.Dict[str, t.List[str]] = {}
        for disk in made.disks:
            if not disk.hidden:
                texts.setdefault(encode([back, *left.get(disk.uuid, ())]), []).append(disk.volume.name)
        for text, names in texts.items():
            self._zfs.set_facts(names, {REPLICAS_PROPERTY: text})
        self._zfs.set_facts(
            [n for names in texts.values() for n in names],
            {key: "" for key in (*MARKS, COMING_SNAPSHOTS) if key != ROLE},
        )

    def forget(self, uuid: str) -> None:
        """The VM is here: nobody needs its records any more."""
        for kind in (records.MOVES, records.FAILOVER):
            records.remove(uuid, kind)

    def _make_snapshots(self, record: Record, made: Vm) -> None:
        """The parts of the VM's snapshots on its own dataset. They come before its start, in the order of their age."""
        there = {part.name: part for part in made.snapshots}
        came = {part.guid for disk in made.disks for part in disk.snapshots}
        for one in record.snapshots:
            if not came.issuperset(one.guids):  # a failover goes back to a set that is older
                continue
            name, fact = f"{made.root.name}@{snapshots.PREFIX}{one.name}", snapshots.encode(one.origin)
            if name not in there:
                self._zfs.snapshot(name)
            if name not in there or there[name].user.get(snapshots.PARTS_PROPERTY) != fact:
                self._zfs.set_facts(name, {snapshots.PARTS_PROPERTY: fact})


def _taken(host: Host, record: Record, called: str) -> t.Iterator[Problem]:
    """Disks of this host that have the uuids, or the names, of those that come."""
    uuids, names = {one.uuid for one in record.disks}, {one.name for one in record.disks}
    move = host.moves.get(record.uuid)
    coming = move is not None and move.phase == COMING
    others = [disk for one in host.vms if one.config.uuid != record.uuid for disk in one.disks + one.orphans]
    for disk in others:
        if disk.uuid in uuids:
            text = f"{called} has a disk with this uuid already, {disk.volume.name}"
            yield Problem("AlreadyExists", text, record.label, disk.uuid)
    for disk in host.detached if not coming else ():
        if disk.uuid in uuids or (disk.vm == record.uuid and disk.name in names):
            text = f"{called} has a detached disk of it already, {disk.volume.name}"
            yield Problem("AlreadyExists", text, record.label, disk.label)


def disks_here(host: Host, uuid: str) -> t.Dict[str, Disk]:
    """Return the disks of a VM that comes which are disks of this host already, by their UUIDs, attached or not.

    One that the VM had left here, detached, before it comes back is none of them, nor is a volume of somebody else's.
    """
    found = [disk for vm in host.vms if vm.config.uuid == uuid for disk in vm.disks + vm.orphans if not disk.hidden]
    found += [disk for disk in host.detached if disk.vm == uuid]
    with contextlib.suppress(FlexdiskError):  # without a record, each may have come
        coming = {disk.uuid for disk in read_record(records.load(uuid)).disks}
        found = [disk for disk in found if disk.uuid in coming]
    return {disk.uuid: disk for disk in found}


def is_arriving(host: Host, move: Move) -> bool:
    """Whether this host has all that a VM had which moves here: its arrival has begun, so it had left the other host.

    Older versions have not written that down, but had made disks of replicas.
    """
    return move.phase == COMING and not move.back_to and (move.has_left or bool(disks_here(host, move.vm)))


def why_it_comes(host: Host, move: t.Optional[Move], taking: bool = False) -> str:
    """Return why the VM is not only expected here: by a failover, or because it has left the other host already."""
    if move is not None and move.back_to and not taking:
        return moves.why_frozen(move)
    if move is None or not is_arriving(host, move):
        return ""
    text = f"it has left {move.host}, and {host_name()} has all that it had: the playbook move_vm with this host as"
    text += f" flexdisk_target goes on, also without {move.host}. If another host has taken it over, "
    return text + ends_here()


def _check_only_expected(host: Host, move: Move) -> None:
    why = why_it_comes(host, move)
    if why:
        raise FlexdiskError("InUse", f"VM {move.label}: {why}")


def ends_here(host: str = "") -> str:
    """Return what ends a VM that began to come to this host, if another one has it. host: as others call it."""
    text = f"flexdisk_failover_state=returned and flexdisk_old_host={host or 'NAME'} of the playbook failover_vm end it"
    return f"{text} here, and keep what only this host has{'' if host else '; NAME is that of this host'}"


def _places(host: Host, uuid: str) -> t.List[str]:
    """Where something is written down of the VM, in any pool. A place may be empty."""
    found = [name for name in sorted(host.datasets) if moves.is_place(name) and name.endswith("/" + uuid)]
    return [name for name in found if MOVE_PROPERTY in host.datasets[name].user]


def _expected(host: Host, uuid: str) -> str:
    """The only place where it is written down that the VM comes; "" for none."""
    move, places = host.moves.get(uuid), _places(host, uuid)
    if move is None or move.phase != COMING:
        return ""
    if len(places) > 1:
        raise FlexdiskError("Ambiguous", f"{' and '.join(places)} both tell of VM {uuid}")
    return places[0]


def _check_given_up(uuid: str, stayed: moves.GivenUp) -> None:
    """Raise FlexdiskError if the VM is expected by a move that its host has not given up. stayed: as for unexpect."""
    if records.absent(uuid):
        return
    record = read_record(records.load(uuid))
    if moves.given_up_at(record.marks) >= stayed:
        text = "another move of it has begun since it was given up; the playbook move_vm goes on with that, or gives"
        raise FlexdiskError("Changed", f"VM {record.label}: {text} it up with flexdisk_move_state=stays")


def _disks_of(host: Host, record: Record) -> t.List[Disk]:
    """The disks of the VM that it has, and those that are still to be attached."""
    attached = [disk for one in host.vms if one.config.uuid == record.uuid for disk in one.disks + one.orphans]
    uuids = {disk.uuid for disk in record.disks}
    return [disk for disk in (*attached, *host.detached) if disk.uuid in uuids]


def _declared(record: Record) -> _Dict:
    return {
        "vm": record.label,
        "uuid": record.uuid,
        "state": "stopped",
        "memory": record.memory,
        "vcpus": record.vcpus,
        "quota": f"{record.quota // MIB}MiB",
        "flexible_disk_size": record.flexible,
        "indestructible": record.indestructible or None,
        "options": record.description["options"],
        "customer_metadata": record.description["metadata"],
        "template": record.description["template"],
    }


def _whole(record: Record) -> _Dict:
    """The VM with all its disks. What those of the platform take of its space is none that can be declared."""
    declared = {**_declared(record), "disks": [_entry(disk) for disk in record.disks]}
    if record.flexible is not None:
        declared["flexible_disk_size"] = record.flexible - sum(disk.size // MIB for disk in record.hidden)
    return declared


def _as_detached(disk: DiskRecord, replica: Dataset, parts: t.List[Dataset], vm_uuid: str, back_to: str) -> Disk:
    """The disk as it will be detached here, without the snapshots of syncs. back_to: as in Move."""
    newest = next((one.createtxg for one in parts if one.name.partition("@")[2] == back_to), None)
    held, written = held_without_syncs(replica, [one for one in parts if newest is None or one.createtxg <= newest])
    volume = replace(
        replica,
        name=detached_dataset(replica.pool, disk.uuid),
        volsize=disk.size,
        volblocksize=replica.volblocksize or RECORD,
        used=held + max(replica.refreservation, written),
        usedbysnapshots=0,
        usedbyrefreservation=max(0, replica.refreservation - written),
        written=written,
        user={**disk.facts, "vm": vm_uuid},
    )
    return detached_disk(volume, 0)


def _entry(disk: DiskRecord) -> t.Dict[str, t.Any]:
    entry: t.Dict[str, t.Any] = {"uuid": disk.uuid, "name": disk.name}
    if disk.boot:
        entry["boot"] = True
    for key, value in (("pci_slot", disk.pci_slot), ("model", disk.model), ("compression", disk.compression)):
        if value:
            entry[key] = value
    return entry
