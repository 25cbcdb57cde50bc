# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM comes to this host: it is created again from its record, and its replicas become its disks."""

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
    record_as_result,
    variables_of,
    with_variables,
)
from ...fleet.replication.retention import foreign_snapshots, superseded
from ...hypervisor.protocol import Hypervisor, whole_vms
from ...model.command import Runner
from ...model.dataset import RECORD, Dataset, DatasetId
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import MIB, render_apart, render_pair
from ...model.vm import FILE, Disk, Vm, VmConfig
from ...rules import moves, saved_memory, snapshots, uefi
from ...rules.failover import FAILOVER_PROPERTY, decode_setting, term_of
from ...rules.identity import PREFIX, render_time
from ...rules.incoming import way_out
from ...rules.inventory import Host, detached_disk
from ...rules.journal import datasets_in_use
from ...rules.keys import KEY_NOT_LOADED, key_missing, locked_pool
from ...rules.layout import (
    container,
    detached_dataset,
    memory_below,
    memory_dataset,
    moves_container,
    pool_of,
    replicas_container,
    vm_dataset,
)
from ...rules.moves import COMING, MOVE_PROPERTY, MOVED, Move
from ...rules.paused_guests import paused_guests
from ...rules.pins import charge, held_without_syncs
from ...rules.power import ARRIVAL
from ...rules.replicas import (
    COMING_SNAPSHOTS,
    MARKS,
    REPLICAS_PROPERTY,
    ROLE,
    SENT,
    Note,
    decode_notes,
    encode_notes,
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
from ..replication.own_copies import clear_memory, drop_memory, drop_move_entry, drop_own_copy, why_memory_stays
from ..replication.receivers import end_receiver
from ..replication.replica_info import HOLD, by_dataset, check_alone, stored_replicas
from ..run.outcome import Outcome
from ..steps import file_disks, power, renames
from .guest_memory import (
    ENDED_SINCE,
    MEMORY_GONE,
    MovedMemory,
    drop_seals,
    is_encrypted,
    make_writable,
    memory_refusal,
    size_with_devices,
    why_closed,
)
from .move_marks import rewrite_move, write_move
from .platform_disks import make_again

_Dict = t.Dict[str, t.Any]
_Replicas = t.Dict[str, t.Tuple[Dataset, t.List[Dataset]]]
# Nothing of a VM without disks is worth keeping, even if somebody has taken snapshots of it.
_FILE = "file://"
_OTHER_SETS = "its newest snapshot and those of its disks are not of one set, for some are missing"
_SHELL_ENDS = {"indestructible": False, "destroy_snapshots": True}


class Arrival(t.NamedTuple):
    """A VM whose disks are here, and that has not ended its move yet."""

    record: Record
    place: str
    """The dataset with the entry of the move."""
    move: Move
    memory: t.Optional[MovedMemory]
    """The memory that has come with it."""
    allow_memory_loss: bool
    """As for MoveSource.stay()."""


class MoveTarget:
    """The host that a VM moves to.

    Args:
        authorized: the file authorized_keys through which the source sends.
        host_label: the name of this host in messages, "" for its own host name.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        runner: Runner,
        policy: Policy,
        authorized: str = "",
        host_label: str = "",
    ) -> None:
        self._host_label = host_label or host_name()
        self._authorized = os.path.expanduser(authorized)
        self._runner = runner
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._policy = policy
        self.memory_restored = False
        """Whether the guest goes on with its memory. arrive() sets it."""
        self.memory_lost = ""
        """Why arrive() has started the VM without the memory that was saved, "" if it has not."""
        self.memory_left = ""
        """Why the saved memory could not be destroyed, "" if it was."""
        self._seals_left = ""

    # -- expect

    def refusals(
        self, record: Record, pool: str, taking: bool = False, memory: t.Optional[_Dict] = None
    ) -> t.List[Problem]:
        """Return the problems that keep the VM from coming to this pool. Read only.

        Args:
            taking: its home has failed.
            memory: what its home says of the memory that is to come with it, None if none is.
        """
        name, problems = record.label, []
        pools = [one for one in self._zfs.tops() if "/" not in one]
        if pool not in pools:
            text = f"{self._host_label} has no pool {pool}, but {', '.join(sorted(pools)) or 'none'}"
            return [Problem("ResourceNotFound", text, name)]
        host = observe(self._zfs, self._hypervisor, extra_pool=pool, all_pools=True)
        if record.hypervisor != self._hypervisor.capabilities.name:
            text = f"{self._host_label} runs {self._hypervisor.capabilities.name}, and the VM {record.hypervisor}"
            problems.append(Problem("NotSupported", text, name))
        for disk in record.hidden:
            if pool_of(disk.volume) != pool:
                text = f"the platform knows its disk only as {disk.volume}, so the VM cannot come to another pool"
                problems.append(Problem("NotSupported", text, name))
        if host.datasets[pool].guid == record.home:
            return [*problems, Problem("InvalidArgument", f"{self._host_label} is the host that has the VM", name)]
        move = host.moves.get(record.uuid)
        coming = move is not None and move.phase == COMING
        if not taking:
            problems += self._memory_problems(record, memory)
        reason = why_not_cancelled(host, move, taking)
        if reason:
            problems.append(Problem("InUse", reason, name))
        for config in host.configs:
            if config.uuid == record.uuid and not coming:
                text = f"{self._host_label} has a VM {config.label} with this uuid already"
                problems.append(Problem("AlreadyExists", text, name))
        problems += _disks_in_the_way(host, record, self._host_label)
        problems += self._closed_places(record, host, pool)
        for place in _places(host, record.uuid):
            if pool_of(place) != pool:
                text = f"{place} of {self._host_label} says that the VM has been or comes there, to another pool;"
                text += " the playbook move_vm with flexdisk_move_state=forgotten or stays gives that up"
                problems.append(Problem("MovedAway", text, name))
        problems += self._memory_in_the_way(record, host, pool, memory) if memory is not None else []
        return problems or self._missing_features(record) or self._make_shell(record, pool, True).problems

    def _closed_places(self, record: Record, host: Host, pool: str) -> t.Iterator[Problem]:
        """Yield why the disks could not be written to here."""
        root = host.datasets.get(vm_dataset(pool, record.uuid))
        above = root.name if root is not None and root.kind == "filesystem" else pool
        for text in why_closed(self._copies, [above]):
            text = f"its disks could not be written to on {self._host_label}: {text}"
            yield Problem("InUse", text, record.label)

    def _memory_in_the_way(self, record: Record, host: Host, pool: str, memory: _Dict) -> t.Iterator[Problem]:
        """Yield why the memory of the guest could not be restored here."""
        restores = whole_vms(self._hypervisor).guest_memory
        if restores is None:
            return  # it is no libvirt, which is a problem already
        lacks = restores.lacks(record.uuid, memory, self._policy.incoming_allowed)
        if lacks:
            text = f"{self._host_label} lacks what its memory needs: {', '.join(lacks)}"
            yield Problem("NotSupported", text, record.label)
        place = f"{moves_container(pool)}/{record.uuid}"
        stays = why_memory_stays(self._zfs, self._copies, host.datasets, place, comes_anew=True)
        if stays:
            yield Problem("InUse", f"{self._host_label}: {stays}", record.label)
        if memory["encrypted"] and not is_encrypted(host, pool):
            text = f"its memory comes from an encrypted pool, and would lie unencrypted in pool {pool}"
            yield Problem("EncryptionRoot", f"{text} of {self._host_label}", record.label)
        if not self._copies.knowing_writes(pool):
            text = f"pool {pool} of {self._host_label} has no feature bookmark_written, so nobody would know whether"
            text += " its disks were written to before its memory is restored; it moves only stopped"
            yield Problem("NotSupported", f"{text} (flexdisk_move_how=stopped)", record.label)
        needs, free = size_with_devices(memory["memory"]), host.available(pool)
        if vm_dataset(pool, record.uuid) not in host.datasets:
            needs += record.quota + (record.flexible or 0) * MIB
        if needs > free:
            text = f"it takes %s in pool {pool} of {self._host_label} with its saved memory, and %s is free"
            yield Problem("InsufficientSpace", text % render_apart(needs, free), record.label)

    def _memory_problems(self, record: Record, memory: t.Optional[_Dict]) -> t.Iterator[Problem]:
        """Yield a problem if the free memory does not suffice for a VM that runs. memory: as for refusals()."""
        free = self._hypervisor.resources().free_memory
        needs = max(record.memory, memory["memory"] if memory is not None else 0)
        if record.state == "running" and needs > free:
            text = f"memory: {render_pair(needs, free)} on {self._host_label}"
            yield Problem("InsufficientMemory", text, record.label)

    def _missing_features(self, record: Record) -> t.List[Problem]:
        elements = [disk.element for disk in record.disks]
        not_permitted = whole_vms(self._hypervisor).refuses(record.description, elements, self._policy.incoming_allowed)
        if not_permitted:
            remedy = way_out(not_permitted, record.host, self._host_label, self._policy.incoming_allowed)
            text = (
                f"its description from {record.host} asks for what another host may not ask {self._host_label} for: "
                f"{'; '.join(not_permitted)}; {remedy}"
            )
            return [Problem("NotPermitted", text, record.label)]
        lacks = whole_vms(self._hypervisor).lacks(record.uuid, record.description, elements)
        text = f"{self._host_label} lacks what it needs: {', '.join(lacks)}"
        return [Problem("NotSupported", text, record.label)] if lacks else []

    def predict_problems(
        self, record: Record, pool: str, back_to: str = "", memory: t.Optional[_Dict] = None
    ) -> t.List[Problem]:
        """Like refusals(), plus what the replicas on this host already rule out. Read only. back_to: as in Move."""
        result = self.refusals(record, pool, taking=bool(back_to), memory=memory) or self._key_problems(
            record, pool, back_to
        )
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

    def expect(self, record: Record, pool: str, back_to: str = "", memory: t.Optional[_Dict] = None) -> None:
        """Write down that the VM comes, and create it without disks, so that every problem shows before the VM stops.

        Until the VM is here, nothing else gets its name. back_to: as in Move. memory: as for refusals(). Raises
        FlexdiskError.
        """
        problems = self.refusals(record, pool, taking=bool(back_to), memory=memory)
        _raise_all(problems or self._key_problems(record, pool, back_to))
        end_receiver(self._runner, saved_memory.key_name(record.uuid))
        earlier = f"{moves_container(pool)}/{record.uuid}"
        if memory is not None:
            clear_memory(self._zfs, self._copies, earlier)
        else:  # what others keep of it is in nobody's way
            self.memory_left = drop_memory(self._zfs, self._copies, earlier)
        if not back_to:
            self._check_parts(record, pool)
        if records.differs(record.uuid, record_as_result(record)):
            self._end_shell(record.uuid, pool)
        records.save(record.uuid, record_as_result(record))
        self._write_move(pool, record, back_to, MEMORY_GONE if memory is not None else "")
        self._make_shell(record, pool, False)
        self._check_room(record)
        self._rehearse(record, pool, back_to)

    def _key_problems(self, record: Record, pool: str, back_to: str = "") -> t.List[Problem]:
        """Return a problem for each key that is not loaded. The VM cannot start without the keys of its replicas, and
        its datasets cannot be made without the key of the pool.

        back_to: as in Move. The plan of a takeover has asked already.
        """
        if back_to:
            return []
        missing = [_key_missing(one) for one, _parts in self._replicas(record, pool).values() if one.locked]
        missing += filter(None, [locked_pool(self._zfs.top_keys(), pool)])
        return [Problem(KEY_NOT_LOADED, f"{self._host_label}: {text}", record.label) for text in missing]

    def _check_parts(self, record: Record, pool: str, sync_follows: bool = False) -> None:
        """Raise FlexdiskError if the replicas lack a part of a snapshot of the VM that no later sync can bring.

        sync_follows: one more sync brings newer snapshots than the replicas have. Creation times do not tell which,
        because each host has its own clock. But a replica that has a later snapshot cannot receive an earlier one.
        """
        if not record.snapshots:
            return
        parts_of_replicas = [parts for _replica, parts in self._replicas(record, pool).values()]
        there = {part.guid for parts in parts_of_replicas for part in parts}
        for number, taken in enumerate(record.snapshots, 1):
            later = {guid for one in record.snapshots[number:] for guid in one.guids}
            lacking = [
                parts for parts in parts_of_replicas if not {part.guid for part in parts}.intersection(taken.guids)
            ]
            too_late = [parts for parts in lacking if {part.guid for part in parts}.intersection(later)]
            coming = sync_follows and (
                len(parts_of_replicas) < len(record.disks) or not too_late or len(too_late) < len(lacking)
            )
            if not (there.issuperset(taken.guids) or coming):
                text = f"the replicas of VM {record.label} lack a part of its snapshot {taken.name}, and get no older"
                text += " snapshot any more; give them up, and they are made again with all parts"
                raise FlexdiskError("ReplicaChanged", text)

    def _has_known_parts(self, record: Record, pool: str) -> bool:
        """Return False if a replica has a snapshot that its disk may have lost. The next sync destroys such ones."""
        known = {guid for taken in record.snapshots for guid in taken.guids}
        parts = [
            part for _replica, snapshots_there in self._replicas(record, pool).values() for part in snapshots_there
        ]
        return all(part.guid in known or is_synced(part.name.partition("@")[2]) for part in parts)

    def _is_unfinished(self, uuid: str, pool: str) -> bool:
        """Return whether a killed run has left an incomplete VM here. expect() removes it before it rehearses."""
        config = next((one for one in self._hypervisor.vms() if one.uuid == uuid), None)
        return self._zfs.exists(vm_dataset(pool, uuid)) if config is None else is_unfinished(config)

    def _check_room(self, record: Record) -> None:
        """Raise FlexdiskError unless the VM's dataset has room for its snapshots when all disks are full."""
        if not record.snapshots:
            return
        host = observe(self._zfs, self._hypervisor)
        root = next(one.root for one in host.vms if one.config.uuid == record.uuid)
        room = max(0, root.refquota - root.refreservation)
        if charge(root) > room:
            text = "a snapshot of %s needs %s, and %s is left beside its reservation"
            raise FlexdiskError("InsufficientSpace", text % (root.name, *render_apart(charge(root), room)))

    def _rehearse(self, record: Record, pool: str, back_to: str = "") -> None:
        """Plan in check mode what arrive() will do, if all replicas are there. Raises FlexdiskError for each problem.

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
            stored = stored_replicas(self._copies, [container(pool)])
            foreign = {
                f"{one.replica.dataset}@{point.name}" for one in stored for point in foreign_snapshots(one.replica)
            }
            without_foreign = {
                uuid: (one, [p for p in parts if p.name not in foreign]) for uuid, (one, parts) in there.items()
            }
            with self._naming_foreign_snapshots(
                [part for _replica, parts in without_foreign.values() for part in parts]
            ):
                self._rehearse_with(record, pool, without_foreign, back_to)

    def _rehearse_with(self, record: Record, pool: str, there: _Replicas, back_to: str) -> None:
        coming = [_as_detached(disk, *there[disk.uuid], record.uuid, back_to) for disk in record.disks]
        self._run(_declared_with_disks(record), pool, True, coming, {**_declared(record), "disks": []})

    @contextlib.contextmanager
    def _naming_foreign_snapshots(self, parts: t.Sequence[Dataset]) -> t.Iterator[None]:
        """Append the snapshots that others have taken, of these, to an error about missing space."""
        try:
            yield
        except FlexdiskError as exc:
            holders = (
                snapshots.foreign_snapshots_text(part.name for part in parts) if exc.code == "InsufficientSpace" else ""
            )
            holders += f"; {self._seals_left}" if self._seals_left and exc.code == "InsufficientSpace" else ""
            raise FlexdiskError(exc.code, exc.message + holders) from exc

    def _replicas(self, record: Record, pool: str) -> _Replicas:
        """Return the replicas of the VM's disks on this host, each with its snapshots, by the UUIDs of the disks."""
        there = observe(self._zfs, self._hypervisor, all_pools=True).datasets
        names = {f"{replicas_container(pool)}/{disk.uuid}": disk.uuid for disk in record.disks}
        result: _Replicas = {uuid: (there[name], []) for name, uuid in names.items() if name in there}
        for one in there.values():
            if one.kind == "snapshot" and one.parent in names:
                result[names[one.parent]][1].append(one)
        return result

    def _end_shell(self, uuid: str, pool: str) -> None:
        """Delete the VM that was created without disks, also if its creation was interrupted."""
        config = next((one for one in self._hypervisor.vms() if one.uuid == uuid), None)
        if config is not None and config.disks and not is_unfinished(config):
            text = f"VM {config.label} has its disks here already; the playbook move_vm goes on. If another host has"
            raise FlexdiskError("InUse", f"{text} taken it over, {advice_to_end()}")
        if config is not None:
            self._run({"vm": uuid, "uuid": uuid, "state": "absent", **_SHELL_ENDS}, pool, False)
        elif self._zfs.exists(vm_dataset(pool, uuid)):
            self._remove_leftovers(vm_dataset(pool, uuid))

    def _remove_leftovers(self, root: str) -> None:
        """Destroy the datasets of an interrupted creation. Raises FlexdiskError if something was written to them."""
        (empty,) = (one for one in self._zfs.datasets(container(pool_of(root))) if one.name == container(pool_of(root)))
        datasets = self._zfs.datasets(root)
        in_use = datasets_in_use(datasets, empty)
        if in_use:
            raise FlexdiskError("InUse", f"{', '.join(in_use)} belongs to no VM, and may still be needed")
        drop_own_copy(self._zfs, self._copies, root, next(one.guid for one in datasets if one.name == root))

    def _make_shell(self, record: Record, pool: str, check_mode: bool) -> Outcome:
        """Create the VM without disks. A complete VM that is here already keeps its disks."""
        configs = [one for one in self._hypervisor.vms() if one.uuid == record.uuid and not is_unfinished(one)]
        has_disks = any(config.disks for config in configs)
        return self._run({**_declared(record), **({} if has_disks else {"disks": []})}, pool, check_mode)

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

    def _write_move(self, pool: str, record: Record, back_to: str, memory_end: str) -> None:
        """Write down that the VM comes. memory_end: what is said if the memory of its guest does not come with it."""
        since = render_time(time.time())
        known = observe(self._zfs, self._hypervisor, extra_pool=pool).moves.get(record.uuid)
        was = "" if known is None else moves.encode(known) if known.phase == MOVED else known.was
        origin = (record.uuid, record.alias, record.host, record.home, record.state, record.autoboot)
        move = Move(COMING, *origin, since, was, back_to, term_of(record.marks.get(FAILOVER_PROPERTY, "")))
        move = move._replace(memory_end=memory_end)
        write_move(self._zfs, self._hypervisor, pool, move)

    def is_expected(self, uuid: str) -> bool:
        """Return whether the VM is expected, so that arrive() has something to do."""
        return bool(_expected(observe(self._zfs, self._hypervisor, all_pools=True), uuid))

    def would_cancel(self, uuid: str) -> bool:
        """Return whether cancel() has something to remove. Raises FlexdiskError if the VM is not only expected."""
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        place = _expected(host, uuid)
        if place:
            _check_only_expected(host, host.moves[uuid])
        return bool(place) or not records.absent(uuid)

    def cancel(self, uuid: str, taking: bool = False, given_up: t.Optional[moves.GivenUp] = None) -> bool:
        """Remove the expected VM. Its replicas stay. Return whether there was anything to remove.

        Args:
            taking: as for refusals().
            given_up: as in MoveSource, None if the host of the VM is down. A move that began later may have left its
                host already, and is refused.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        place = _expected(host, uuid)
        if place and not taking:
            _check_only_expected(host, host.moves[uuid])
        if given_up is not None:
            _check_given_up(uuid, given_up)
        if place:
            self.end_transfers(uuid)
            self._end_shell(uuid, pool_of(place))
            if all(config.uuid != uuid for config in host.configs):  # a run that was killed had deleted it
                forget_vm(self._zfs, host, uuid)
            records.remove(uuid)
            was = host.moves[uuid].was
            if was:
                drop_memory(self._zfs, self._copies, place)
                self._zfs.set_facts(place, {MOVE_PROPERTY: was})
            else:
                drop_move_entry(self._zfs, self._copies, place, host.datasets[place].guid)
        return records.remove(uuid) or bool(place)

    def end_transfers(self, uuid: str) -> None:
        """Remove the keys of the last transfer, and end its receivers."""
        if not self._authorized or records.absent(uuid):
            return
        disks = [disk.uuid for disk in read_record(records.load(uuid)).disks]
        memory = saved_memory.key_name(uuid)
        keys.remove_authorized(self._authorized, [uuid, memory, *disks])
        for name in (*disks, memory):
            end_receiver(self._runner, name)

    def renew(self, record: Record) -> str:
        """Store the UEFI variables of an expected VM that is stopped now. Return the digest of the stored ones."""
        known = read_record(records.load(record.uuid))
        if digest(known) != digest(record):
            raise FlexdiskError("Changed", f"VM {record.label} is not the one that {self._host_label} expects")
        records.save(record.uuid, record_as_result(with_variables(known, variables_of(record))))
        return uefi.digest(variables_of(read_record(records.load(record.uuid))))

    # -- arrive

    def check_can_arrive(
        self, uuid: str, here: str, seen: t.Mapping[str, t.Optional[moves.Sighting]], unasked: bool
    ) -> None:
        """Raise FlexdiskError unless the VM can arrive without an answer of the host that it has left.

        This host must know by itself that the VM has left, because the other host may have given the move up.

        Args:
            here: the name of this host for others.
            seen: what other hosts say of the VM.
            unasked: arrive even if a host that could have taken the VM over does not answer.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        move = host.moves.get(uuid)
        if move is None or move.phase != COMING or move.back_to:
            return
        if not is_arriving(host, move):
            reason = f"{here} does not know whether it has left {move.host}, for its arrival has not begun. Bring"
            reason += f" {move.host} up, and the same command goes on. If {move.host} is gone for good, the playbook"
            raise FlexdiskError("InUse", f"VM {move.label}: {reason} failover_vm brings back what other hosts have")
        record = read_record(records.load(uuid))
        fails_over = decode_setting(record.marks.get(FAILOVER_PROPERTY, "")) is not None
        asks = {note.host for disk in record.disks for note in decode_notes(disk.replicas)} if fails_over else ()
        reason = moves.why_not_on(uuid, here, seen, sorted(asks), move.term, unasked)
        if reason:
            raise FlexdiskError("InUse", f"VM {move.label}: {reason}")

    def arrive(self, uuid: str, source: str, taking: bool = False, allow_memory_loss: bool = False) -> bool:
        """Turn the replicas into the VM's disks, and start the VM if it ran. Return whether there was anything to do.

        To be called only when the source no longer has the VM. taking: as for refusals(); then the replicas have been
        rolled back to one common set. allow_memory_loss: as for MoveSource.stay().
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        place = _expected(host, uuid)
        there = next((one for one in host.configs if one.uuid == uuid and not is_unfinished(one)), None)
        if not place:
            if there is None or not there.disks:
                raise FlexdiskError("Changed", f"{self._host_label} does not expect VM {uuid}, and does not have it")
            self.remove_records(uuid)
            return False
        if host.moves[uuid].host != source:
            text = f"{self._host_label} expects VM {uuid} from {host.moves[uuid].host}, not from {source}"
            raise FlexdiskError("Changed", text)
        if host.moves[uuid].back_to and not taking:
            raise FlexdiskError("InUse", f"VM {host.moves[uuid].label}: {moves.why_frozen(host.moves[uuid])}")
        record = read_record(records.load(uuid))
        pool = pool_of(place)
        if not (taking or host.moves[uuid].has_left):
            rewrite_move(self._zfs, pool, host.moves[uuid]._replace(has_left=True))
        self.end_transfers(uuid)
        _raise_all(self._key_problems(record, pool))
        memory = self._memory(record, pool, host, taking, allow_memory_loss)
        progress.current().now(record.label, "", "its replicas become disks")
        self._become_disks(record, pool, host, memory is not None)
        now = None
        # A run that was killed may have started it already, or restored its memory.
        if there is None or not (there.state == "running" or (memory is not None and there.state == "paused")):
            now = self._attach_disks(record, pool, there)
        arrival = Arrival(record, place, host.moves[uuid], memory, allow_memory_loss)
        self._finish(arrival, now or observe(self._zfs, self._hypervisor))
        return True

    def _memory(
        self, record: Record, pool: str, host: Host, taking: bool, allow_memory_loss: bool
    ) -> t.Optional[MovedMemory]:
        """Return the memory that has come with the VM, None without, or if it is given up.

        host: as it was before anything became a disk.
        """
        name = memory_dataset(pool, record.uuid)
        if not moves.memory_is_there(host.datasets, name):
            return self._moved_memory(record.uuid) if record.uuid in paused_guests(host) else None
        memory = self._moved_memory(record.uuid)
        has_journal = bool(self._zfs.local_fact(name, moves.MEMORY_PROPERTY))
        common = self._common_set(record, pool, host)
        if not (has_journal or common or taking or allow_memory_loss):
            raise memory_refusal(record.label, _OTHER_SETS)
        if not (has_journal or common or taking):
            self.memory_lost = _OTHER_SETS
            rewrite_move(self._zfs, pool, host.moves[record.uuid]._replace(has_left=True, memory_end=_OTHER_SETS))
        if taking or self.memory_lost:
            drop_memory(self._zfs, self._copies, f"{moves_container(pool)}/{record.uuid}")
            return None
        if not has_journal:
            replicas = [f"{replicas_container(pool)}/{disk.uuid}" for disk in record.disks]
            memory.arrived(pool, {one: host.datasets[f"{one}@{common}"].guid for one in replicas}, common)
        return memory

    def _common_set(self, record: Record, pool: str, host: Host) -> str:
        """Return the newest set of the memory and of all replicas, "" if they do not belong together.

        host: as for _memory().
        """
        places = [
            memory_dataset(pool, record.uuid),
            *(f"{replicas_container(pool)}/{disk.uuid}" for disk in record.disks),
        ]
        names: t.Dict[str, t.List[str]] = {one: [] for one in places}
        for one in host.datasets.values():
            if one.kind == "snapshot" and one.parent in names:
                names[one.parent].append(one.name.partition("@")[2])
        memory, *disks = names.values()
        return saved_memory.common_set(memory, disks)

    def check_memory(self, uuid: str, allow_memory_loss: bool) -> None:
        """Raise what arrive() would refuse because of the memory that has come with a VM. Read only."""
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        place = _expected(host, uuid)
        if not (place and moves.memory_is_there(host.datasets, memory_below(place))):
            return
        pool, record = pool_of(place), read_record(records.load(uuid))
        if self._zfs.local_fact(memory_dataset(pool, uuid), moves.MEMORY_PROPERTY):
            attached = {disk.uuid for one in host.vms if one.config.uuid == uuid for disk in one.disks}
            if attached.issuperset(disk.uuid for disk in record.disks):
                self._moved_memory(uuid).check(False, allow_memory_loss)
        elif not (self._common_set(record, pool, host) or allow_memory_loss):
            raise memory_refusal(record.label, _OTHER_SETS)

    def _moved_memory(self, uuid: str) -> MovedMemory:
        patience, allowed = max(60, self._policy.stop_timeout), self._policy.incoming_allowed
        return MovedMemory(self._zfs, self._copies, self._hypervisor, uuid, ARRIVAL, patience, allowed)

    def _attach_disks(self, record: Record, pool: str, there: t.Optional[VmConfig]) -> t.Optional[Host]:
        """Attach the disks to the VM. Disks of the platform come first, so that they get their own slots.

        Return the host as read afterwards, None if there was nothing to do.
        """
        if record.hidden and there is None:
            self._make_shell(record, pool, False)
        if there is None or not there.disks:  # a VM with disks may have been started, and has changed them since
            whole_vms(self._hypervisor).restore_variables(record.description)
        make_again(self._zfs, self._hypervisor, record)
        try:
            return self._run(_declared_with_disks(record), pool, False).now
        except FlexdiskError as exc:
            if exc.code != "InsufficientSpace":
                raise
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        disks = _disks_of(host, record)
        detached = [disk.volume.name for disk in host.detached]
        for disk in disks:  # what was attached may have been written to, if somebody has started the VM by hand
            newest = {part.name for part in disk.snapshots[-1:] if not disk.volume.written}
            self._drop_foreign_snapshots(disk.volume.name, None if disk.volume.name in detached else newest)
        with self._naming_foreign_snapshots([part for disk in disks for part in disk.snapshots]):
            return self._run(_declared_with_disks(record), pool, False).now

    def _drop_foreign_snapshots(self, name: str, among: t.Optional[t.Set[str]]) -> None:
        """Destroy snapshots of a former replica that others took on this host and that the VM has no room for.

        They hold no data of their own: snapshots that came with the disk are marked, and nobody has written since.
        among: destroy only these, None for all.
        """
        points = by_dataset(self._copies.table([name], ("guid", "createtxg", "userrefs", PREFIX + SENT), "snapshot"))
        for point in points.get(name, ()):
            snapshot = name + point.suffix
            if not (point.sent or point.pinned or is_synced(point.name)) and (among is None or snapshot in among):
                exact.destroy_snapshots(self._zfs, [DatasetId(snapshot, point.guid)])

    def _become_disks(self, record: Record, pool: str, host: Host, read_only: bool) -> None:
        """Turn the replicas into detached disks of the VM: write the identity, rename, then drop the replica's state.

        host: as it was before. A killed run may have done a part of it. read_only: they stay so, as long as there is
        memory of the guest that belongs to them.
        """
        stored = {one.replica.dataset: one.replica for one in stored_replicas(self._copies, [container(pool)])}
        places = {disk.uuid: f"{replicas_container(pool)}/{disk.uuid}" for disk in record.disks}
        waiting = [(disk, stored[places[disk.uuid]]) for disk in record.disks if places[disk.uuid] in stored]
        for disk, replica in waiting:
            check_alone(replica.dataset, stored)
            if replica.token or replica.written or replica.uuid != disk.uuid:
                raise FlexdiskError("Changed", f"{replica.dataset} is not the whole replica of disk {disk.name}")
        unmarked = [
            f"{r.dataset}@{p.name}"
            for _d, r in waiting
            for p in r.snapshots
            if p not in foreign_snapshots(r) and not p.sent
        ]
        self._zfs.set_facts([name for name in unmarked if not is_synced(name.partition("@")[2])], {SENT: "on"})
        on_hold = [f"{r.dataset}@{p.name}" for _disk, r in waiting for p in r.snapshots if p.held and is_synced(p.name)]
        if on_hold:
            self._zfs.release(HOLD, *on_hold)
        for disk, replica in waiting:
            here = replica.dataset
            stale = {name: "" for name in host.datasets[here].user if name in OWN and name not in disk.facts}
            self._zfs.set_facts(here, {**stale, **disk.facts, "vm": record.uuid})
            renames.rename(self._zfs, here, detached_dataset(pool, disk.uuid))
        renamed = {disk.uuid for disk, _replica in waiting}
        shown = [d for d in record.disks if d.uuid in renamed or detached_dataset(pool, d.uuid) in host.datasets]
        pools = () if host.moves[record.uuid].back_to else (record.home, host.datasets[pool].guid)
        sizes = {guid: size for disk in shown for guid, size in disk.sizes}
        names = [detached_dataset(pool, disk.uuid) for disk in shown]
        self._drop_replica_state(names, pools, sizes, read_only)
        for disk in shown:
            if disk.facts.get("type") == FILE:
                file_disks.become_disk(self._zfs, detached_dataset(pool, disk.uuid), disk.uuid)

    def _drop_replica_state(
        self, names: t.Sequence[str], pools: t.Collection[int], sizes: t.Mapping[int, int], read_only: bool
    ) -> None:
        """Remove what only a replica has. Snapshots of syncs become bookmarks, because the VM's quota has no room yet.

        Args:
            pools: the guids of both pools of the move. Older sets between these are not needed any more.
            sizes: volume sizes of snapshots of file disks by guid, which a stream does not carry.
            read_only: as for _become_disks().
        """
        table = self._copies.table(names, ("guid", "createtxg"), "snapshot,bookmark")
        points = by_dataset(table)
        for name in names:
            synced = [point for point in points.get(name, ()) if is_synced(point.name)]
            outdated, known = superseded(synced, pools), {point.name for point in synced if point.bookmark}
            gone = [point for point in synced if not (point.bookmark or saved_memory.is_seal(point.name))]
            for point in gone:
                if point not in outdated and point.name not in known:
                    self._copies.bookmark(name + point.suffix, point.name)
            if gone:
                exact.destroy_own(self._zfs, *(name + point.suffix for point in gone))
        self._seals_left = drop_seals(self._zfs, self._copies, names)
        illumos = self._hypervisor.capabilities.platform == "illumos"
        self._zfs.inherit(names, *([] if read_only else ["readonly"]), *([] if illumos else ["volmode"]))
        self._zfs.set_facts(names, {ROLE: ""})
        left = [one for one in table if "@" in one and not is_synced(one.partition("@")[2])]
        for one, row in table.items():
            size = sizes.get(int(row["guid"][0])) if one in left else None
            if size is not None:
                self._zfs.set_facts(one, {"size": str(size)})

    def _finish(self, arrival: Arrival, host: Host) -> None:
        """Set the VM's properties and power, note the replicas at its old host, and remove the entry of the move last.

        host: as it is now.
        """
        record, place = arrival.record, arrival.place
        made = next(one for one in host.vms if one.config.uuid == record.uuid)
        lacking = {disk.uuid for disk in record.disks} - {disk.uuid for disk in made.disks}
        if lacking:
            text = "was started before it had its disks; stop it, and run the move again"
            raise FlexdiskError("VmNotStopped", f"VM {record.label} {text}")
        self._make_snapshots(record, made)
        self._zfs.set_facts(made.root.name, {k: v for k, v in record.marks.items() if v})
        if decode_setting(record.marks.get(FAILOVER_PROPERTY, "")) is not None:
            power.note_home(self._zfs, self._hypervisor, made)
        if made.config.state == "stopped":
            known = {disk.uuid: disk.element for disk in record.disks if disk.element}
            whole_vms(self._hypervisor).dress(
                record.uuid, {d.path: known[d.uuid] for d in made.disks if d.uuid in known}
            )
        try:
            if arrival.memory is not None:
                arrival.memory.run(arrival.allow_memory_loss)
                self.memory_restored, self.memory_lost = arrival.memory.restored, arrival.memory.lost
                self.memory_left = arrival.memory.left
            else:
                self._opens(made)
                self.memory_lost = self.memory_lost or arrival.move.memory_lost
                self.memory_restored = arrival.move.memory_end == moves.RESTORED
            if arrival.memory is None and record.state == "running" and made.config.state == "stopped":
                progress.current().now(record.label, "", "start")
                power.start(self._hypervisor, made, ARRIVAL)
                if self.memory_restored:
                    self.memory_restored, self.memory_lost = False, ENDED_SINCE
        finally:  # a start turns it on, also one that fails
            wanted = record.autoboot and decode_setting(record.marks.get(FAILOVER_PROPERTY, "")) is None
            if self._hypervisor.vm(record.uuid).autoboot != wanted:
                self._hypervisor.set_autoboot(record.uuid, wanted)
        self._write_replica_notes(record, made, arrival.move)
        parts = [part.name for disk in made.disks if not disk.hidden for part in disk.snapshots]
        self._zfs.set_facts(parts, {SENT: ""})
        drop_move_entry(
            self._zfs,
            self._copies,
            place,
            int(self._copies.table([place], ("guid",), "filesystem", 0)[place]["guid"][0]),
        )
        self.remove_records(record.uuid)

    def _opens(self, made: Vm) -> None:
        """Make disks writable whose memory somebody has destroyed."""
        if made.config.state == "stopped" and whole_vms(self._hypervisor).guest_memory is not None:
            make_writable(self._zfs, self._copies, made)

    def _write_replica_notes(self, record: Record, made: Vm, move: Move) -> None:
        """Write on the disks which hosts have replicas, and remove their properties as replicas."""
        back = Note(short_peer(record.home), record.host, "" if move.back_to else render_time(time.time()))
        left = {disk.uuid: decode_notes(disk.replicas) for disk in record.disks}
        texts: t.Dict[str, t.List[str]] = {}
        for disk in made.disks:
            if not disk.hidden:
                texts.setdefault(encode_notes([back, *left.get(disk.uuid, ())]), []).append(disk.volume.name)
        for text, names in texts.items():
            self._zfs.set_facts(names, {REPLICAS_PROPERTY: text})
        self._zfs.set_facts(
            [n for names in texts.values() for n in names],
            {key: "" for key in (*MARKS, COMING_SNAPSHOTS) if key != ROLE},
        )

    def remove_records(self, uuid: str) -> None:
        """Remove the records of a VM that is here."""
        for kind in (records.MOVES, records.FAILOVER):
            records.remove(uuid, kind)

    def _make_snapshots(self, record: Record, made: Vm) -> None:
        """Take the VM's snapshots of its own dataset again, the oldest first, before the VM starts."""
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


def _raise_all(problems: t.Sequence[Problem]) -> None:
    """Raise FlexdiskError with all problems, if there is any."""
    if problems:
        raise FlexdiskError(problems[0].code, "; ".join(dict.fromkeys(problem.message for problem in problems)))


def _key_missing(replica: Dataset) -> str:
    """Return that the key of a replica is not loaded, and whether ZFS would find it."""
    path = replica.keylocation[len(_FILE) :] if replica.keylocation.startswith(_FILE) else ""
    lacks = f"; there is no {path} on this host" if path and not os.path.exists(path) else ""
    return key_missing(replica.encryptionroot, replica.keylocation) + lacks


def _disks_in_the_way(host: Host, record: Record, host_label: str) -> t.Iterator[Problem]:
    """Yield a problem for each disk of this host with the UUID or name of a disk that comes."""
    uuids, names = {one.uuid for one in record.disks}, {one.name for one in record.disks}
    move = host.moves.get(record.uuid)
    coming = move is not None and move.phase == COMING
    others = [disk for one in host.vms if one.config.uuid != record.uuid for disk in one.disks + one.orphans]
    for disk in others:
        if disk.uuid in uuids:
            text = f"{host_label} has a disk with this uuid already, {disk.volume.name}"
            yield Problem("AlreadyExists", text, record.label, disk.uuid)
    for disk in host.detached if not coming else ():
        if disk.uuid in uuids or (disk.vm == record.uuid and disk.name in names):
            text = f"{host_label} has a detached disk of it already, {disk.volume.name}"
            yield Problem("AlreadyExists", text, record.label, disk.label)


def disks_here(host: Host, uuid: str) -> t.Dict[str, Disk]:
    """Return those disks of an expected VM that are disks of this host already, attached or not, by UUID.

    Disks that the VM had left here detached at an earlier time do not count.
    """
    disks = [disk for vm in host.vms if vm.config.uuid == uuid for disk in vm.disks + vm.orphans if not disk.hidden]
    disks += [disk for disk in host.detached if disk.vm == uuid]
    with contextlib.suppress(FlexdiskError):  # without a record, each may have come
        coming = {disk.uuid for disk in read_record(records.load(uuid)).disks}
        disks = [disk for disk in disks if disk.uuid in coming]
    return {disk.uuid: disk for disk in disks}


def is_arriving(host: Host, move: Move) -> bool:
    """Return whether the arrival of the VM has begun. Then it has left the other host, and all its data is here.

    Older versions did not write that down. There, replicas that have become disks show it.
    """
    return move.phase == COMING and not move.back_to and (move.has_left or bool(disks_here(host, move.vm)))


def why_not_cancelled(host: Host, move: t.Optional[Move], taking: bool = False) -> str:
    """Return why an expected VM cannot be cancelled: a failover brings it, or it has left its host. "" if it can."""
    if move is not None and move.back_to and not taking:
        return moves.why_frozen(move)
    if move is None or not is_arriving(host, move):
        return ""
    text = f"it has left {move.host}, and {host_name()} has all that it had: the playbook move_vm with this host as"
    text += f" flexdisk_target goes on, also without {move.host}. If another host has taken it over, "
    return text + advice_to_end()


def _check_only_expected(host: Host, move: Move) -> None:
    reason = why_not_cancelled(host, move)
    if reason:
        raise FlexdiskError("InUse", f"VM {move.label}: {reason}")


def advice_to_end(host: str = "") -> str:
    """Return the advice how to end a VM here that another host has. host: the name of this host for others."""
    text = f"flexdisk_failover_state=returned and flexdisk_old_host={host or 'NAME'} of the playbook failover_vm end it"
    return f"{text} here, and keep what only this host has{'' if host else '; NAME is that of this host'}"


def _places(host: Host, uuid: str) -> t.List[str]:
    """Return the datasets that hold an entry of a move of the VM, in all pools."""
    places = [name for name in sorted(host.datasets) if moves.is_place(name) and name.endswith("/" + uuid)]
    return [name for name in places if MOVE_PROPERTY in host.datasets[name].user]


def _expected(host: Host, uuid: str) -> str:
    """Return the dataset with the entry that the VM comes, "" for none. Raises FlexdiskError if there are several."""
    move, places = host.moves.get(uuid), _places(host, uuid)
    if move is None or move.phase != COMING:
        return ""
    if len(places) > 1:
        raise FlexdiskError("Ambiguous", f"{' and '.join(places)} both have an entry of VM {uuid}")
    return places[0]


def _check_given_up(uuid: str, given_up: moves.GivenUp) -> None:
    """Raise FlexdiskError if the VM is expected by a move that its host has not given up. given_up: as for cancel()."""
    if records.absent(uuid):
        return
    record = read_record(records.load(uuid))
    if moves.given_up_at(record.marks) >= given_up:
        text = "another move of it has begun since it was given up; the playbook move_vm goes on with that, or gives"
        raise FlexdiskError("Changed", f"VM {record.label}: {text} it up with flexdisk_move_state=stays")


def _disks_of(host: Host, record: Record) -> t.List[Disk]:
    """Return the disks of the VM, both attached and still to be attached."""
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


def _declared_with_disks(record: Record) -> _Dict:
    """Return the declaration with all disks. Space of the platform's disks cannot be declared and is left out."""
    declared = {**_declared(record), "disks": [_entry(disk) for disk in record.disks]}
    if record.flexible is not None:
        declared["flexible_disk_size"] = record.flexible - sum(disk.size // MIB for disk in record.hidden)
    return declared


def _as_detached(disk: DiskRecord, replica: Dataset, parts: t.List[Dataset], vm_uuid: str, back_to: str) -> Disk:
    """Return the disk as it will be here, detached and without snapshots of syncs. back_to: as in Move."""
    newest = next((one.createtxg for one in parts if one.name.partition("@")[2] == back_to), None)
    held_bytes, written = held_without_syncs(
        replica, [one for one in parts if newest is None or one.createtxg <= newest]
    )
    volume = replace(
        replica.renamed(detached_dataset(replica.pool, disk.uuid)),
        volsize=disk.size,
        volblocksize=replica.volblocksize or RECORD,
        used=held_bytes + max(replica.refreservation, written),
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
