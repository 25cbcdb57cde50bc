# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM leaves this host: it is stopped, its disks become replicas, and a tombstone takes its place."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ...fleet.replication.record import (
    OWN,
    DiskRecord,
    PlatformDisk,
    Record,
    SnapshotRecord,
    digest,
)
from ...fleet.replication.retention import superseded
from ...fleet.replication.transfers import VmTransfer
from ...hypervisor.protocol import Hypervisor, whole_vms
from ...model.command import Runner
from ...model.dataset import Dataset
from ...model.desired import Description, Policy
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import render_apart
from ...model.vm import FILE, Disk, Vm, VmConfig
from ...plan.changes import facts_of
from ...plan.planner import find_config, find_vm
from ...plan.steps import VmPlan
from ...plan.vm import plan_departure
from ...plan.vm_move import refusals, strange_snapshots
from ...rules import moves, snapshots, uefi
from ...rules.failover import properties_at, setting_of, takers_of
from ...rules.identity import render_time
from ...rules.inventory import Host
from ...rules.keys import KEY_NOT_LOADED
from ...rules.layout import (
    container,
    last_part,
    memory_below,
    memory_dataset,
    moves_container,
    pool_of,
    replicas_container,
    vm_dataset,
)
from ...rules.moves import COMING, LEAVING, MOVED, Move
from ...rules.paused_guests import memory_left, paused_guests
from ...rules.power import GIVEN_UP, NOT_HOME, is_off, why_home_unknown, why_not_started
from ...rules.replicas import (
    HOME,
    HOST,
    MARKS,
    OF_VM,
    REPLICAS_PROPERTY,
    RESERVED,
    ROLE,
    SENT,
    SYNCED,
    elsewhere,
    empty_size,
    encode_notes,
    is_changed,
    is_synced,
)
from ...rules.saved_memory import key_name
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.journal import Journal, forget_vm, host_name
from ..host.observe import observe
from ..replication import records
from ..replication import trust as keys
from ..replication.own_copies import drop_memory, drop_move_entry, why_memory_stays
from ..replication.replica_info import HOLD, stored_replicas, uuid_of
from ..run.outcome import Outcome
from ..run.run import Context, Task
from ..steps import file_disks, power, renames
from ..steps.perform import Performers
from .guest_memory import (
    ENDED_SINCE,
    MEMORY_GONE,
    MovedMemory,
    closed_above,
    drop_seals,
    is_encrypted,
    is_secret,
    make_writable,
    read_only,
    size_with_devices,
    why_closed,
)
from .move_marks import rewrite_move, write_move

_SEPARATOR = "/"  # between the digests of a VM, and of what its guest demands
_Dict = t.Dict[str, t.Any]
_Seen = t.Mapping[str, t.Optional[moves.Sighting]]


class MoveSource:
    """The host that a VM moves away from. policy: how a guest is stopped."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, policy: Policy) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._policy = policy
        self.left_down = ""
        """Why stay() has not started a VM that ran before its move, "" if it has."""
        self.given_up = moves.GivenUp(0, 0)
        """When stay() gave the move up. No move that began earlier may leave."""
        self._stayed_before: t.Optional[int] = None
        """The number in `stayed` when leave() was called, None before that."""
        self._saves_memory = False
        """Whether save_memory() has something to do. leave() sets it."""
        self.memory_is_saved = False
        """Whether the guest's memory was saved. save_memory() sets it."""
        self.memory_restored = False
        """Whether the guest goes on here with its memory. stay() sets it."""
        self.memory_lost = ""
        """Why the VM goes on without the memory that was saved, "" if it does not."""
        self.memory_left = ""
        """Why the saved memory could not be destroyed, "" if it was."""
        self.seals_left = ""
        """Why the snapshots that belong to it could not be destroyed. go() sets it."""

    # -- look

    def look(
        self,
        name: str,
        here: str,
        target: str = "",
        seen: t.Optional[_Seen] = None,
        suspends: bool = False,
        allow_memory_loss: bool = False,
    ) -> _Dict:
        """Return what this host has of a VM: the VM with its record, or the entry of its move. Read only.

        here: the name of this host for the other one, target. seen: what other hosts say of the VM. suspends: the
        memory of the guest is to go with it. Then, or if memory was saved, `memory` is what the target must know of it.
        allow_memory_loss: as for stay().
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vm = find_vm(host, name)
        if isinstance(vm, Problem):
            known = moves.find_by_name(host.moves, name)
            if len(known) > 1:
                raise FlexdiskError("Ambiguous", f"several VMs that have moved are called {name}; give the whole uuid")
            if not known and vm.code != "ResourceNotFound":
                raise FlexdiskError(vm.code, vm.message)
            entry = known[0]._asdict() if known else None
            empty: _Dict = {"vm": "", "pool": "", "record": None, "digest": "", "refusals": [], "lost": []}
            empty["memory"] = None
            empty["memory_left"] = bool(known and memory_left(host, known[0]))
            empty["unmanaged"] = vm.message if find_config(host, name) is not None and not known else ""
            others = [] if known else sorted(config.alias for config in host.configs if config.alias)
            asks = self._hosts_to_ask(known[0] if known else None)
            return {**empty, "move": entry, "term": moves.UNKNOWN, "asks": asks, "known": others}
        move = host.moves.get(vm.config.uuid)
        description = whole_vms(self._hypervisor).description(vm.config.uuid)
        record = self.record(host, vm, description, here, target)
        memory, problems = self._memory_to_send(host, vm, suspends, allow_memory_loss)
        return {
            "vm": vm.config.uuid,
            "memory": memory,
            "memory_left": False,
            "pool": vm.config.pool,
            "move": move._asdict() if move else None,
            "term": _term_of_old_copy(vm),
            "asks": self._hosts_to_ask(move),
            "record": record,
            "digest": f"{digest(record)}{_SEPARATOR}{self._demands(vm, suspends)}",
            "refusals": self._refusals(host, vm, description) + _seen_elsewhere(vm, target, seen or {}) + problems,
            "lost": [one.name for one in strange_snapshots(vm)],
            "unmanaged": "",
            "known": [],
        }

    def _memory_to_send(
        self, host: Host, vm: Vm, suspends: bool, allow_memory_loss: bool
    ) -> t.Tuple[t.Optional[_Dict], t.List[Problem]]:
        """Return what the target must know of the memory that goes with the VM, and why it cannot. Read only."""
        uuid, running = vm.config.uuid, vm.config.state == "running"
        move = host.moves.get(uuid)
        if not _has_memory(host, vm):
            return self._running_memory(host, vm) if running and suspends else (None, [])
        if move is None or move.phase != LEAVING:
            return None, []
        memory = self._memory(uuid)
        code, reason = why_not_started(vm, GIVEN_UP)
        if code == KEY_NOT_LOADED:
            return None, [Problem(code, f"{reason}; its memory is saved, and is sent then", vm.label)]
        try:
            if memory.check(True, allow_memory_loss):
                return None, []
            if not (running or not _has_place(host, vm)):
                return memory.traveller(host, vm), []
        except FlexdiskError as exc:
            return None, [Problem(exc.code, exc.message, vm.label)]
        return self._running_memory(host, vm)

    def _running_memory(self, host: Host, vm: Vm) -> t.Tuple[t.Optional[_Dict], t.List[Problem]]:
        """Return what the target must know of the memory of a running guest, and why it cannot be saved. Read only."""
        memory = whole_vms(self._hypervisor).guest_memory
        if memory is None:
            text = f"{self._hypervisor.capabilities.name} cannot save the memory of a guest, so it moves only stopped"
            return None, [Problem("NotSupported", f"{text} (flexdisk_move_how=stopped)", vm.label)]
        shown = memory.traveller(vm.config.uuid)
        problems = [
            Problem("NotSupported", f"its memory cannot go with it: {text}", vm.label)
            for text in memory.refuses(vm.config.uuid)
        ]
        for disk in vm.disks:
            if disk.type == FILE:
                text = "its disk is a file, and only volumes can be kept as they are while the memory is saved"
                problems.append(Problem("NotSupported", text, vm.label, disk.label))
        above = why_closed(self._copies, [vm.root.name])
        if above and not closed_above(self._copies, vm):  # its disks are writable by a property of their own
            text = f"its memory could not be restored here, should the move fail: {above[0]}; it moves only stopped"
            problems.append(Problem("InUse", text, vm.label))
        place = f"{moves_container(vm.config.pool)}/{vm.config.uuid}"
        stays = why_memory_stays(self._zfs, self._copies, host.datasets, place)
        problems += [Problem("InUse", stays, vm.label)] if stays else []
        needs, free = size_with_devices(shown["memory"]), host.available(vm.config.pool)
        if needs > free:
            text = "its memory takes up to %s in pool " + vm.config.pool + ", which has %s free"
            problems.append(Problem("InsufficientSpace", text % render_apart(needs, free), vm.label))
        secret = is_secret(host, vm)
        if secret and not is_encrypted(host, vm.config.pool):
            text = f"its disks are encrypted, and its memory would lie unencrypted in pool {vm.config.pool}"
            problems.append(Problem("EncryptionRoot", f"{text}; it moves only stopped", vm.label))
        return {**shown, "encrypted": secret, "saved": False}, problems

    def _demands(self, vm: Vm, suspends: bool) -> str:
        """Return a digest of what a guest that runs demands of the target, "" if its memory does not go there."""
        memory = whole_vms(self._hypervisor).guest_memory
        is_saved = suspends and memory is not None and vm.config.state == "running"
        return memory.demands(vm.config.uuid) if is_saved and memory is not None else ""

    def _hosts_to_ask(self, move: t.Optional[Move]) -> t.List[str]:
        return moves.to_ask(move) if move is not None else []

    def _refusals(self, host: Host, vm: Vm, description: Description) -> t.List[Problem]:
        """Return the problems that keep the VM from leaving. A guest that this move has paused is as one that runs."""
        reason = why_home_unknown(vm)
        if vm.config.uuid in paused_guests(host):
            vm = replace(vm, config=replace(vm.config, state="running"))
        problems = [Problem(NOT_HOME, reason, vm.label)] if reason else []
        return [*problems, *self._closed_by_others(host, vm), *refusals(host, vm, description.host_bound)]

    def _closed_by_others(self, host: Host, vm: Vm) -> t.Iterator[Problem]:
        """Yield the disks that somebody keeps from being written to. There, they could be, and nobody would know."""
        move = host.moves.get(vm.config.uuid)
        ours = move is not None and move.closed
        if whole_vms(self._hypervisor).guest_memory is None:
            return
        for text in closed_above(self._copies, vm):
            yield Problem("InUse", f"its disks would be writable there, and are not here: {text}", vm.label)
        if not ours:
            for name in read_only(self._copies, vm):
                text = f"somebody has made its disk {name} read-only, and it would be writable there;"
                yield Problem("InUse", f"{text} zfs inherit readonly {name} ends that", vm.label)

    def _check_movable(self, host: Host, vm: Vm, description: Description) -> None:
        problems = self._refusals(host, vm, description)
        if problems:
            raise FlexdiskError(problems[0].code, f"VM {vm.label}: {problems[0].message}")

    def record(self, host: Host, vm: Vm, description: Description, here: str, target: str = "") -> Record:
        """Return what the other host must know to create the VM again. here and target: as for look()."""
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
            marks={key: value for key, value in properties_at(vm, here, target).items() if key in OWN},
            description=description.of_new,
            disks=tuple(
                _disk(disk, description.disks.get(disk.path, ""), encode_notes(elsewhere(disk, target, home)))
                for disk in _travelling(vm)
            ),
            snapshots=tuple(_snapshot(vm, one) for one in snapshots.snapshots_of(vm) if snapshots.is_complete(vm, one)),
            hidden=tuple(_hidden(disk) for disk in vm.disks if disk.hidden),
        )

    # -- leave

    def leave(self, uuid: str, here: str, target: str, pool: int, approved: str, suspends: bool = False) -> Description:
        """Write down that the VM leaves, and stop it, unless save_memory() is to do that. Return its description.

        Args:
            here: as for look().
            pool: the guid of the target's pool.
            approved: the digest from look(). A VM that has changed since is refused.
            suspends: the memory of the guest goes with it.
        """
        host, vm = self._vm(uuid)
        move, description = host.moves.get(uuid), whole_vms(self._hypervisor).description(uuid)
        running = vm.config.state == "running"
        self._check_movable(host, vm, description)
        as_seen, _separator, demands = approved.partition(_SEPARATOR)
        is_same = digest(self.record(host, vm, description, here, target)) == as_seen
        if not is_same or (running and suspends and self._demands(vm, suspends) != demands):
            text = "was changed while it was brought over, or its move was given up; run the move again"
            raise FlexdiskError("Changed", f"VM {vm.label} {text}")
        self._stayed_before = moves.stayed_at(vm.root.user)
        if move is None:
            config = vm.config
            since = render_time(time.time())
            term = setting_of(config, vm.root).term
            fields = (uuid, config.alias, target, pool, config.state, config.autoboot, since)
            move = Move(LEAVING, *fields, term=term)
            if config.failover:
                move = move._replace(asks=",".join(one for one in takers_of(vm, here) if one != target))
            write_move(self._zfs, self._hypervisor, config.pool, move)
        elif (move.phase, move.pool) != (LEAVING, pool):
            raise FlexdiskError("InUse", f"VM {vm.label}: {moves.why_frozen(move)} to {move.host}, not to {target}")
        if running and vm.config.failover and not vm.at_home:  # it runs, so it is; it is known also while it is down
            power.note_home(self._zfs, self._hypervisor, vm)
        self._saves_memory = _has_memory(host, vm) or (running and suspends)
        if running and move.closed and not self._saves_memory:
            make_writable(self._zfs, self._copies, vm)
        if not (running or self._saves_memory):
            self._goes_without_memory(vm, move)
        if running and not self._saves_memory:
            progress.current().now(move.label, "", "stop")
            self._hypervisor.stop(uuid, self._policy.stop_timeout, self._policy.allow_force_stop)
        return description

    def save_memory(self, uuid: str, allow_memory_loss: bool = False) -> None:
        """Save the memory of the guest after leave(), if that is to go with it, or an interrupted run has begun so.

        allow_memory_loss: as for stay().
        """
        if self._saves_memory:
            memory = self._memory(uuid)
            self.memory_is_saved = memory.save(allow_memory_loss)
            self.memory_lost, self.memory_left = memory.lost, memory.left

    def _memory(self, uuid: str) -> MovedMemory:
        patience = max(60, self._policy.stop_timeout)
        allowed = self._policy.incoming_allowed
        return MovedMemory(self._zfs, self._copies, self._hypervisor, uuid, GIVEN_UP, patience, allowed)

    def check_can_stay(self, uuid: str, seen: _Seen, unasked: bool) -> None:
        """Raise FlexdiskError if another host may run the VM, so that its guest must not go on here. Read only.

        seen: what the hosts say that could have taken it over. unasked: go on even if they do not answer. Without
        failover, none takes it over. A VM that was stopped is known to be at home, or waits for start_host.
        """
        host, vm = self._vm(uuid)
        move = host.moves.get(uuid)
        if move is None or vm.config.state == "running":
            return
        reason = moves.why_not_here(move, host_name(), seen)
        silent = sorted(one for one in {move.host, *move.asks.split(",")} - {""} if seen.get(one) is None)
        if not reason and silent and vm.config.failover and _has_memory(host, vm) and not unasked:
            reason = f"it has failover, and {' and '.join(silent)} could not be asked whether its guest runs there"
            reason += f", so it does not go on here ({host_name()}); flexdisk_start_unasked=true lets it go on"
        if reason:
            raise FlexdiskError("InUse", f"VM {vm.label}: {reason}")

    def would_stay(self, uuid: str, allow_memory_loss: bool = False) -> bool:
        """Return whether stay() has a move to give up. Raises what stay() raises. Read only."""
        host, vm = self._vm(uuid)
        self._check_stays(host, vm)
        if uuid in host.moves and _has_memory(host, vm) and not self._gives_up(vm, allow_memory_loss):
            self._memory(uuid).check(False, allow_memory_loss)
        return uuid in host.moves

    def stay(self, uuid: str, allow_memory_loss: bool = False) -> bool:
        """Give the move up and start the VM again if it ran. Return whether a move had begun.

        A guest whose memory was saved goes on with it. allow_memory_loss: start it without, if there is no other way.
        Raises FlexdiskError MovedAway as soon as a disk has left, MemoryLost if it needs allow_memory_loss.

        A move that has not reached leave() yet is refused there, because this changes the digest of the VM.
        """
        had_keys = keys.forget_keys(uuid)
        host, vm = self._vm(uuid)
        move = host.moves.get(uuid)
        self._check_stays(host, vm)
        number = moves.stays_at(vm.root.user, time.time())
        self.given_up = moves.given_up_at(vm.root.user)._replace(number=number)
        self._zfs.set_facts(vm.root.name, {moves.STAYED_PROPERTY: str(number)})
        if move is None:
            self.seals_left = drop_seals(self._zfs, self._copies, [d.volume.name for d in vm.disks if not d.hidden])
            return had_keys
        self._zfs.set_facts([disk.volume.name for disk in vm.disks], dict.fromkeys(MARKS, ""))
        for disk in (one for one in vm.disks if one.type == FILE):
            file_disks.become_disk(self._zfs, disk.volume.name, disk.uuid)
            file_disks.ensure(self._zfs, disk.volume, disk.size)
        if _has_memory(host, vm):
            self._go_on(vm, allow_memory_loss)
        else:
            self._start_again(host, vm, move)
        if not vm.config.failover and self._hypervisor.vm(uuid).autoboot != move.autoboot:
            self._hypervisor.set_autoboot(uuid, move.autoboot)
        self._drop_mark(host, f"{moves_container(vm.config.pool)}/{uuid}")
        return True

    def _start_again(self, host: Host, vm: Vm, move: Move) -> None:
        """Start a VM again that ran, and whose memory was not saved, or is gone."""
        self._goes_without_memory(vm, move)
        if move.state == "running":
            progress.current().now(move.label, "", "start it again")
            # A VM with failover whose host has booted since waits for start_host.
            if not self._is_down(vm):
                Journal(self._zfs, host).write_asked(vm, move.autoboot)
            elif not why_not_started(vm, GIVEN_UP)[0]:
                power.start(self._hypervisor, vm, GIVEN_UP)
                if self.memory_restored:
                    self.memory_restored, self.memory_lost = False, ENDED_SINCE
            else:
                self.left_down = (
                    f"VM {vm.label} ran before its move, and is stopped now: {why_not_started(vm, GIVEN_UP)[1]}"
                )

    def _goes_without_memory(self, vm: Vm, move: Move) -> None:
        """Tell what has become of the memory that was saved, if any was, and make the disks writable."""
        self.memory_lost, self.memory_restored = move.memory_lost, move.memory_end == moves.RESTORED
        if not (move.closed and read_only(self._copies, vm)):
            return
        if vm.config.state == "running":  # somebody has let it go on
            make_writable(self._zfs, self._copies, vm)
            return
        self.memory_lost = self.memory_lost or MEMORY_GONE
        self._memory(vm.config.uuid).lose(vm, self.memory_lost)

    def _go_on(self, vm: Vm, allow_memory_loss: bool) -> None:
        """Let the guest go on with the memory that was saved.

        A VM with failover whose host has booted since waits for start_host, which knows of no memory.
        """
        memory = self._memory(vm.config.uuid)
        reason = self._gives_up(vm, allow_memory_loss)
        if reason:
            memory.lose(vm, "its host has booted since it was saved" if memory.was_saved() else "")
            self.memory_lost = memory.lost
            self.left_down = f"VM {vm.label} ran before its move, and is stopped now: {reason}"
        else:
            memory.run(allow_memory_loss)
            self.memory_lost, self.memory_restored = memory.lost, memory.restored
        self.memory_left = memory.left

    def _gives_up(self, vm: Vm, allow_memory_loss: bool) -> str:
        """Return why the VM must not be started here by this task, so that its memory is given up; "" if it may."""
        code, reason = why_not_started(vm, GIVEN_UP)
        if not code or vm.config.state == "running":
            return ""
        if code != NOT_HOME:
            raise FlexdiskError(
                code, f"VM {vm.label}: {reason}; its memory is saved, and the same command restores it then"
            )
        if not allow_memory_loss and self._memory(vm.config.uuid).was_saved():
            text = f"{reason}. Its memory is saved, and cannot be restored after that; flexdisk_allow_memory_loss=true"
            raise FlexdiskError("MemoryLost", f"VM {vm.label}: {text} gives it up")
        return reason

    def _check_stays(self, host: Host, vm: Vm) -> None:
        move = host.moves.get(vm.config.uuid)
        if move is not None:
            _check_not_taken(move)
        if move is not None and move.phase == COMING:
            raise FlexdiskError("InUse", f"VM {vm.label}: {moves.why_frozen(move)}")
        if move is not None and move.phase == MOVED and not self._has_all_disks(host, vm):
            text = f"VM {vm.label} has left for {move.host}; the playbook move_vm goes on"
            raise FlexdiskError("MovedAway", text)

    def _drop_mark(self, host: Host, place: str) -> None:
        drop_move_entry(self._zfs, self._copies, place, host.datasets[place].guid)

    def _has_all_disks(self, host: Host, vm: Vm) -> bool:
        """Return whether no disk of the VM has been detached yet."""
        gone = [disk for disk in host.detached if disk.volume.user.get(OF_VM) == vm.config.uuid]
        return not (gone or vm.missing or vm.orphans)

    def _is_down(self, vm: Vm) -> bool:
        """Return whether the VM is down. Wait up to stop_timeout, because a guest may still be shutting down."""
        for _second in range(self._policy.stop_timeout):
            if self._hypervisor.vm(vm.config.uuid).state == "stopped":
                return True
            self._hypervisor.pause(1)
        return False

    # -- go

    def check_can_leave(self, uuid: str, target: str, seen: _Seen, unasked: bool) -> None:
        """Raise FlexdiskError if other hosts say that a VM that has left must not go on to the target.

        seen: what they say. unasked: go on even if a host that could have taken the VM over does not answer.
        """
        move = observe(self._zfs, self._hypervisor, all_pools=True).moves.get(uuid)
        if move is None or move.phase != MOVED:
            return
        reason = moves.why_not_on(uuid, target, seen, self._hosts_to_ask(move), move.term, unasked)
        if reason:
            raise FlexdiskError("InUse", f"VM {move.label}: {reason}")

    def go(
        self,
        uuid: str,
        target: str,
        transfer: t.Optional[VmTransfer] = None,
        description: t.Optional[Description] = None,
        variables: str = "",
    ) -> None:
        """Write the tombstone, turn the disks into replicas, and delete the VM here.

        A run that continues after the tombstone needs none of the optional arguments.

        Args:
            transfer: the last transfer, which the target has completely.
            description: what leave() has returned.
            variables: the digest of the UEFI variables that the target has.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vm = next((one for one in host.vms if one.config.uuid == uuid), None)
        move = host.moves.get(uuid)
        if move is None or move.phase not in (LEAVING, MOVED) or move.host != target:
            raise FlexdiskError("Changed", f"VM {uuid} is not leaving for {target}")
        known_host: t.Optional[Host] = host
        if vm is not None:
            _check_not_taken(move)
            _check_unwritten(vm, move.phase == MOVED, host)
        if move.phase == LEAVING:
            if vm is None or transfer is None or description is None:
                raise FlexdiskError("Changed", f"VM {move.label} has gone before its disks had been sent")
            if description.variables or variables:
                description = whole_vms(self._hypervisor).description(uuid)
            home_known = bool(self._hypervisor.boot_id())  # when it was stopped
            self._check_movable(host, vm if home_known else replace(vm, at_home=True), description)
            if self._stayed_before not in (None, moves.stayed_at(vm.root.user)):
                raise FlexdiskError("Changed", f"VM {vm.label}: this move was given up, and another one has begun")
            _check_sent(vm, transfer, move, _has_memory(host, vm))
            if uefi.digest(description.variables) != variables:
                text = f"{move.host} does not have the UEFI variables that it has now"
                raise FlexdiskError("Changed", f"VM {vm.label}: {text}")
            now_here = self._hypervisor.vm(uuid)
            if now_here.state != "stopped":
                raise FlexdiskError("Changed", f"VM {vm.label} was started while it was moved")
            if now_here.autoboot:  # of a VM with failover, vm has the wish
                self._hypervisor.set_autoboot(uuid, False)
                known_host = None
            rewrite_move(self._zfs, vm.config.pool, move._replace(phase=MOVED))
        now = None
        progress.current().now(move.label, "", "its disks become replicas")
        if vm is not None:
            self._mark_as_replicas(vm, move)
            now = self._end_vm(vm, known_host)
        if vm is None:
            remove_leftovers(self._zfs, self._hypervisor, host, uuid)
        self._rename_to_replicas(uuid, now or observe(self._zfs, self._hypervisor, all_pools=True))

    def _mark_as_replicas(self, vm: Vm, move: Move) -> None:
        """Write the properties of a replica on the disks. Their snapshots count as received from the VM's new host."""
        now = render_time(time.time())
        disks = _travelling(vm)
        for disk in disks:
            properties = {ROLE: disk.uuid, OF_VM: vm.config.uuid, HOME: str(move.pool), HOST: move.host, SYNCED: now}
            properties[RESERVED] = str(disk.volume.volsize) if disk.volume.refreservation else ""
            self._zfs.set_facts(disk.volume.name, {k: v for k, v in properties.items() if v})
            if disk.type == FILE:
                file_disks.become_replica(self._zfs, disk.volume)
        self._zfs.set_facts([s.name for disk in disks for s in _sent(disk)], {SENT: "on"})

    def _end_vm(self, vm: Vm, known_host: t.Optional[Host]) -> t.Optional[Host]:
        """Detach all disks and delete the VM. Return the host if it was read afterwards. known_host: as in EndOfVm."""
        context = Context(self._zfs, self._hypervisor, self._policy, check_mode=False)
        outcome = EndOfVm(vm.config.uuid, context, known_host).run()
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems:
            problem = outcome.problems[0]
            raise FlexdiskError(problem.code, problem.message)
        return outcome.now if outcome.now is not None and vm.config.pool in outcome.now.geometry else None

    def _rename_to_replicas(self, uuid: str, host: Host) -> None:
        """Rename the detached disks to where replicas lie."""
        forget_vm(self._zfs, host, uuid)
        by_uuid = {disk.uuid: disk for disk in host.detached if disk.volume.user.get(OF_VM) == uuid}
        replicas_to_be = [disk for disk in by_uuid.values() if disk.volume.user.get(ROLE) == disk.uuid]
        if not replicas_to_be:
            return
        self._hold([s.name for disk in replicas_to_be for s in _sent(disk)[-1:]])
        for place in {replicas_container(disk.volume.pool) for disk in replicas_to_be} - host.datasets.keys():
            self._zfs.create_container(place, readonly="on")
        names = [disk.volume.name for disk in replicas_to_be]
        self._zfs.set(*names, readonly="on")
        self._zfs.set_facts(names, {REPLICAS_PROPERTY: ""})  # as long as the VM can stay, it knows its replicas
        for disk in replicas_to_be:
            renames.rename(self._zfs, disk.volume.name, f"{replicas_container(disk.volume.pool)}/{disk.uuid}")
        replicas = [f"{replicas_container(disk.volume.pool)}/{disk.uuid}" for disk in replicas_to_be]
        self.seals_left = drop_seals(self._zfs, self._copies, replicas)

    def _hold(self, base: t.List[str]) -> None:
        missing = sorted(set(base) - self._copies.on_hold(HOLD, base))
        if missing:
            self._zfs.hold(HOLD, *missing)

    # -- tidy

    def tidy(self, uuid: str) -> bool:
        """Destroy what is of no use any more once a VM is on its target. Return whether there was anything.

        This is the memory of its guest, and older sets of snapshots on its replicas.
        """
        tops = self._copies.tops(("guid",))
        gone = False
        places = [name for name in tops if moves.is_place(name) and last_part(name) == uuid]
        if any(self._moves_again(place) for place in places):
            return False
        for place in places:
            known = self._zfs.exists(memory_below(place))
            self.memory_left = drop_memory(self._zfs, self._copies, place)
            gone = known and not self.memory_left
        records.remove(key_name(uuid))
        for one in stored_replicas(self._copies, [name for name in tops if name == container(pool_of(name))]):
            if one.vm == uuid:
                pools = (one.replica.home, int(tops[pool_of(one.replica.dataset)]["guid"][0]))
                for point in superseded(one.replica.points, pools):
                    exact.destroy_own(self._zfs, one.replica.dataset + point.suffix)
                    gone = True
        return gone

    def _moves_again(self, place: str) -> bool:
        """Whether the VM leaves this host once more, or comes back: then what is here is of that move."""
        move = moves.decode_at(place, self._zfs.local_fact(place, moves.MOVE_PROPERTY))
        return move is not None and move.phase != MOVED

    # -- forget

    def forget(
        self,
        name: str,
        seen: t.Mapping[str, t.Optional[moves.Sighting]],
        unseen: bool = False,
        check_mode: bool = False,
    ) -> bool:
        """Remove the tombstone of a VM, so that its name is free here. Return whether there was one.

        seen and unseen: as for moves.why_needed().
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        known = moves.find_by_name(host.moves, name)
        if len(known) > 1 or any(move.phase != MOVED for move in known):
            raise FlexdiskError("InUse", f"{name}: only what has moved away is forgotten, one VM at a time")
        for move in known:
            if any(vm.config.uuid == move.vm for vm in host.vms):
                remedy = moves.why_frozen(move) if move.taken else "the playbook move_vm goes on"
                raise FlexdiskError("InUse", f"VM {move.label} is still here; {remedy}")
            data = [d.name for d in host.datasets.values() if d.backs and d.user.get(OF_VM) == move.vm]
            reason = moves.why_needed(move, seen, sorted(data), unseen)
            if reason:
                raise FlexdiskError("InUse", f"VM {move.label} ({move.vm}): {reason}")
            if not unseen and any(disk.volume.user.get(OF_VM) == move.vm for disk in host.detached):
                text = f"VM {move.label}: its disks here have not become replicas yet; the playbook move_vm with"
                text += f" flexdisk_target={move.host} goes on, or, if another host has taken it over, the playbook"
                raise FlexdiskError("InUse", f"{text} failover_vm with flexdisk_failover_state=returned")
            names = [d for d in host.datasets if moves.is_place(d) and d.endswith(move.vm)]
            for one in names if not check_mode else ():
                self._drop_mark(host, one)
        return bool(known)

    def _vm(self, uuid: str) -> t.Tuple[Host, Vm]:
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vm = find_vm(host, uuid)
        if isinstance(vm, Problem):
            raise FlexdiskError(vm.code, vm.message)
        return host, vm


def _has_memory(host: Host, vm: Vm) -> bool:
    """Return whether memory of the guest was saved, or a run has begun to save it: the guest stands still at least."""
    return _has_place(host, vm) or vm.config.uuid in paused_guests(host)


def _has_place(host: Host, vm: Vm) -> bool:
    """Return whether there is a file system with memory of the guest, or for it."""
    return moves.memory_is_there(host.datasets, memory_dataset(vm.config.pool, vm.config.uuid))


class EndOfVm(Task):
    """Detach all disks of a VM and delete it. known: the host as read, if only properties were set since then."""

    admits = False

    def __init__(self, uuid: str, context: Context, known: t.Optional[Host] = None) -> None:
        super().__init__(context, Outcome())
        self._uuid, self._known = uuid, known

    def performers(self) -> Performers:
        from ..steps.performers_of_vms import PERFORM_OF_VMS

        return PERFORM_OF_VMS

    def read_host(self) -> Host:
        return self._known if self._known is not None else super().read_host()

    def plan(self, host: Host) -> t.List[VmPlan]:
        vm = next(one for one in host.vms if one.config.uuid == self._uuid)
        self.check(vm, host)
        thawed = replace(vm, config=replace(vm.config, frozen=""))
        return [plan_departure(host, thawed, self.hypervisor.capabilities)]

    def check(self, vm: Vm, host: Host) -> None:
        """Raise FlexdiskError if the VM must not end."""
        _check_unwritten(vm, True, host)

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        return [] if vm is None else ["it still exists"]


def _check_not_taken(move: Move) -> None:
    """Raise FlexdiskError if another host has taken the VM over, because then its disks must be kept."""
    if move.taken:
        raise FlexdiskError("InUse", f"VM {move.label}: {moves.why_frozen(move)}")


def leftovers_of(host: Host, uuid: str) -> t.Tuple[t.List[VmConfig], t.List[Dataset]]:
    """Return what an interrupted deletion has left of a VM: configurations without volumes, and empty datasets."""
    configs = [c for c in host.configs if c.uuid == uuid and not any(e.volume in host.datasets for e in c.disks)]
    roots = [
        host.datasets[name] for name in (vm_dataset(pool, uuid) for pool in host.geometry) if name in host.datasets
    ]
    full = {
        root.name for root in roots for name in host.datasets if name.startswith((f"{root.name}/", f"{root.name}@"))
    }
    return configs, [root for root in roots if root.kind == "filesystem" and root.name not in full]


def remove_leftovers(zfs: Zfs, hypervisor: Hypervisor, host: Host, uuid: str) -> None:
    """Delete what an interrupted deletion has left of a VM that has gone to another host."""
    from ..steps.apply_vm import delete_config_only  # few runs come here

    configs, roots = leftovers_of(host, uuid)
    for config in configs:
        delete_config_only(zfs, hypervisor, config)
    for root in roots:
        if zfs.exists(root.name):
            exact.destroy(zfs, root.dataset_id)


def _disk(disk: Disk, element: str, notes: str) -> DiskRecord:
    user_properties = {
        **{k: v for k, v in disk.volume.user.items() if k in OWN},
        **({"image": disk.image} if disk.image else {}),
    }
    facts = {**user_properties, **{k: v for k, v in facts_of(disk).items() if v and k in OWN}}
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
    """Return the record of a snapshot without its parts on the platform's disks, which are created again."""
    origin = snapshots.origin_of(snapshot)
    stay = [part.guid for disk in vm.disks if disk.hidden for part in disk.snapshots]
    return SnapshotRecord(snapshot.name, origin.creation, tuple(guid for guid in origin.guids if guid not in stay))


def _term_of_old_copy(vm: Vm) -> int:
    """Return the term of a VM that may be an old copy: with failover, not running, and not known to be at home.

    moves.UNKNOWN for every other VM.
    """
    may_be_old = vm.config.failover and is_off(vm.config) and not vm.at_home
    return setting_of(vm.config, vm.root).term if may_be_old else moves.UNKNOWN


def _travelling(vm: Vm) -> t.List[Disk]:
    return [disk for disk in vm.disks if not disk.hidden]


def _check_unwritten(vm: Vm, left: bool, host: Host) -> None:
    """Raise FlexdiskError if a disk was written to since the last snapshot of a sync, which the other host has.

    left: there is a tombstone already. Then a write may also be ZFS's own, after a loss of power (is_changed).
    """
    if vm.config.state != "stopped":
        raise FlexdiskError("Changed", f"VM {vm.label} is {vm.config.state}: it was started while it was moved")
    for disk in _travelling(vm):
        sent, empty = _sent(disk), empty_size(host.datasets, disk.volume.pool)
        written = [disk.volume.written, *(one.written for one in disk.snapshots[len(sent) :])]
        if not sent or any(is_changed(one, empty) if left else one for one in written):
            raise FlexdiskError("Changed", f"VM {vm.label}: disk {disk.label} was written to after it had been sent")


def _seen_elsewhere(vm: Vm, target: str, seen: _Seen) -> t.List[Problem]:
    reason = moves.why_not_on(vm.config.uuid, target, seen)
    return [Problem("InUse", reason, vm.label)] if reason else []


def _check_sent(vm: Vm, transfer: VmTransfer, move: Move, memory: bool) -> None:
    """Raise FlexdiskError unless the target has exactly these disks, all by the same set of snapshots.

    memory: that of the guest is saved, so the target must have it as well.
    """
    if memory != (transfer.memory is not None):
        raise FlexdiskError("Changed", f"VM {vm.label}: its saved memory is not what was sent to {move.host}")
    known = {disk.uuid: disk.snapshots for disk in transfer.disks}
    newest = {disk.uuid: _sent(disk)[-1] for disk in _travelling(vm)}
    same = all(one.guid in known.get(uuid, ()) and _short(one) == transfer.set for uuid, one in newest.items())
    if not same or known.keys() != newest.keys() or transfer.peer != move.pool:
        raise FlexdiskError("Changed", f"VM {vm.label}: its disks are not those that were sent to {move.host}")


def _sent(disk: Disk) -> t.List[Dataset]:
    """Return the snapshots up to the newest one of a sync. Later ones, by others, hold nothing new."""
    last = max((number for number, one in enumerate(disk.snapshots, 1) if is_synced(_short(one))), default=0)
    return list(disk.snapshots[:last])


def _short(snapshot: Dataset) -> str:
    return snapshot.name.partition("@")[2]
