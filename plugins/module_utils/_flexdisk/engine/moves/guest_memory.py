# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a guest that moves lies in a dataset of its own, and is restored at most once (rules/saved_memory.py).

Whatever is killed, the same call goes on: save() on the host that the VM leaves, and run() where the guest goes on.
From before the save until somebody begins to restore the memory, all disks are read-only. The guest itself has them
open since it could write, and stands still: so nobody is hurt, and once the save has ended, nobody can open them.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ...hypervisor.protocol import GuestMemory, Hypervisor, whole_vms
from ...model.dataset import ZVOL
from ...model.errors import FlexdiskError
from ...model.sizes import MIB
from ...model.vm import FILE, Vm
from ...rules import saved_memory as rules
from ...rules.inventory import Host
from ...rules.layout import container, memory_dataset, moves_container
from ...rules.moves import COMING, MEMORY_PROPERTY, MOVE_PROPERTY, RESTORED, Move, decode_at, memory_is_there
from ...rules.power import check_start
from ...rules.replicas import empty_size, is_changed
from ...rules.saved_memory import OPENING, SAVED, SAVING, Guest, Journal
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ...zfs.errors import ZfsError
from ..host import progress
from ..host.journal import host_name
from ..host.observe import observe
from ..replication import records
from ..replication.own_copies import clear_memory, drop_memory
from ..steps import power
from .move_marks import rewrite_move

_FILE = "memory"
# Beside the memory of the guest: its devices, such as the memory of graphics.
_DEVICES_MIB = 64
_READ_ONLY = "readonly"
_INHERITED = "inherited from "
_FIGURES = ("guid", "referenced", "logicalreferenced")
_MOST_SECONDS = 15  # the guest stands still
_OPENS_SECONDS = 60  # nobody waits who could go on: udev looks into disks that were renamed
_ATTEMPTS = 3
_OF_THE_FILE = ("Changed", "NotPermitted")  # errors that no second attempt changes
_BUSY = ("Held", "HasClones", "Busy")
_MEMORY_LOST = "MemoryLost"
_BY_HAND = "it was started by hand since its memory was saved"
_NOTHING = "nothing of its memory was saved, because its guest had ended before"
_CHANGED = "its disks were made writable or changed since its memory was saved"
_UNSEALED = "the snapshots that prove that nothing was written since its memory was saved are gone"
_UNREADABLE = "the journal of its saved memory is gone, or cannot be read"
MEMORY_GONE = "its saved memory is gone"
_ELSEWHERE = "its memory was saved by hand, into another file"
_BOOTED = "a run that was interrupted had started it without its memory"
ENDED_SINCE = "its guest had gone on with it, and has ended since"
_WAY_OUT = "flexdisk_allow_memory_loss=true starts it without the memory, as after a power failure"


def size_with_devices(memory_mib: int) -> int:
    """Return the bytes that the saved memory of a guest takes at most."""
    return (memory_mib + _DEVICES_MIB) * MIB


def is_encrypted(host: Host, pool: str) -> bool:
    """Whether the memory of a guest lies encrypted in a pool."""
    return bool((host.datasets.get(container(pool)) or host.datasets[pool]).encryptionroot)


def is_secret(host: Host, vm: Vm) -> bool:
    """Whether the memory of a guest must lie encrypted, as its disks or its pool are."""
    return is_encrypted(host, vm.config.pool) or any(disk.volume.encryptionroot for disk in vm.disks)


class MovedMemory:
    """The memory of one guest on this host.

    Args:
        requester: what wants the guest to run here, one of the constants of rules/power.py.
        patience: seconds to wait for a save that is under way.
        allowed: as for GuestMemory.saved_domain().
    """

    def __init__(
        self,
        zfs: Zfs,
        copies: Copies,
        hypervisor: Hypervisor,
        uuid: str,
        requester: str,
        patience: int = 180,
        allowed: t.Collection[str] = (),
    ) -> None:
        self._zfs = zfs
        self._copies = copies
        self._hypervisor = hypervisor
        self._memory = _guest_memory(hypervisor)
        self._uuid = uuid
        self._requester = requester
        self._patience = patience
        self._allowed = allowed
        self.restored = False
        """Whether the guest goes on with its memory. run() sets it."""
        self.lost = ""
        """Why the VM goes on without the memory that was saved, "" if it does not."""
        self.left = ""
        """Why the saved memory could not be destroyed, "" if it was."""
        self._went_on = self._is_saving = self._has_booted = False
        self._empty = 0
        self._unreadable = Journal(rules.UNREADABLE, uuid)

    # -- the host that the VM leaves

    def save(self, give_up: bool = False) -> bool:
        """Save the guest, and keep everybody from its disks. Return False if there is no memory to go with the VM.

        give_up: as for run(). Raises FlexdiskError.
        """
        for _second in range(self._patience):
            vm, journal = self._now()
            guest = self._guest(vm, journal)
            action = rules.to_leave(journal.word if journal else "", guest)
            if action == rules.SEND:
                return journal is not None
            if action == rules.SAVE:
                self._save(vm, journal, guest)
            elif action == rules.KEEP:
                self._keep(vm, t.cast(Journal, journal), give_up)
            elif action == rules.WAIT:
                self._hypervisor.pause(1)
            elif action in (rules.STAYS, rules.BY_HAND):
                raise self._refusal(vm, action)
            elif action == rules.FORGET or give_up:
                self.lose(vm, self._why_lost(vm, journal, guest))
            else:
                raise memory_refusal(vm.label, self._why_lost(vm, journal, guest))
        raise self._not_ready(vm)

    def _save(self, vm: Vm, journal: t.Optional[Journal], guest: Guest) -> None:
        """Let the guest stand still, close its disks, and save it into a new file."""
        self._make_place(vm, journal if guest.state == "paused" or journal != self._unreadable else None)
        if guest.state == "running":
            self._memory.pause(self._uuid)
        self._note(vm, closed=True)
        for first, *more in [_disks(vm)] if vm.disks else []:
            self._zfs.set(first, *more, readonly="on")
        self._write(vm, Journal(SAVING, self._uuid, self._seal(vm)))
        progress.current().now(vm.label, "", "its memory is saved")
        self._memory.save(self._uuid, self._path)

    def _make_place(self, vm: Vm, journal: t.Optional[Journal]) -> None:
        """Make a file system for the memory, without a file. One with a journal stays: the guest may stand still."""
        name, shown = memory_dataset(vm.config.pool, self._uuid), self._memory.traveller(self._uuid)
        reserved = str(size_with_devices(shown["memory"]))
        if journal is None:
            clear_memory(self._zfs, self._copies, self._place(vm))
            self._note(vm, memory_end="")
            options = {**rules.properties(self._uuid), "refreservation": reserved}
            self._zfs.create_filesystem(name, options, {MEMORY_PROPERTY: rules.encode(Journal(SAVING, self._uuid))})
        else:
            self._write(vm, Journal(SAVING, self._uuid))  # without a seal, no file belongs to the disks
        records.save(rules.key_name(self._uuid), shown)
        self._mount(vm)
        if journal is not None:
            self._zfs.files.remove(self._path)
            self._zfs.set(name, refreservation=reserved)

    def _seal(self, vm: Vm) -> str:
        """Take the snapshots after which nothing may be written. Return their guids."""
        drop_seals(self._zfs, self._copies, _disks(vm))
        names = [f"{name}@{rules.seal_name(int(time.time()))}" for name in _disks(vm)]
        if names:
            self._zfs.snapshot(*names)
        return ",".join(row["guid"][0] for row in self._copies.table(names, ("guid",), "snapshot", depth=0).values())

    def _keep(self, vm: Vm, journal: Journal, give_up: bool) -> None:
        """Write down that all is saved, if nobody can open the disks any more, and the file can be restored.

        The file has its space now. As long as that were reserved, the snapshot that is sent would need it once more.
        """
        open_still = self._wait_until(vm, True, _MOST_SECONDS)
        if open_still:
            text = (
                f"another program has {', '.join(open_still)} open, so read-only disks would not keep the VM from being"
            )
            raise FlexdiskError("InUse", f"VM {vm.label}: {text} started without its memory; end that program")
        self._mount(vm)
        reason = self._saved_domain()[1]
        if reason and not give_up:
            raise memory_refusal(vm.label, reason)
        if reason:
            self.lose(vm, reason)
            return
        self._zfs.set(memory_dataset(vm.config.pool, self._uuid), refreservation="none")
        if self._is_guarded(vm, journal):  # by figures that have all that was written before the last command
            self._write(vm, rules.advance(journal, SAVED))

    # -- the host where the guest goes on

    def arrived(self, pool: str, replicas: t.Mapping[str, int], name: str) -> None:
        """Write down that the file and the disks have come to this pool as they were saved.

        replicas: the disks, and the guids of their newest snapshots. name: of the set of these.
        """
        journal = Journal(SAVED, self._uuid, ",".join(map(str, replicas.values())), self._figures([*replicas]), name)
        self._zfs.set_facts(memory_dataset(pool, self._uuid), {MEMORY_PROPERTY: rules.encode(journal)})

    def run(self, give_up: bool = False) -> None:
        """Let the guest go on, and destroy the saved memory.

        give_up: start the VM without its memory if that cannot be restored. Raises FlexdiskError.
        """
        for _second in range(self._patience):
            vm, journal = self._now()
            guest = self._guest(vm, journal)
            action = rules.to_run(journal.word if journal else "", guest)
            if action in (rules.RESTORE, rules.RESUME, rules.GO_ON):
                check_start(vm, self._requester)
            if action == rules.DONE:
                self._done(vm, journal, guest)
                return
            if action == rules.BY_HAND:
                raise self._refusal(vm, action)
            if action == rules.RESTORE:
                self._restore(vm, t.cast(Journal, journal), give_up)
            elif action == rules.RESUME:
                self._resume(vm, t.cast(Journal, journal))
            elif action == rules.GO_ON:
                self._go_on(vm)
            elif action == rules.BOOT or (action == rules.GIVE_UP and give_up):
                self._boot(vm, journal, self._why_lost(vm, journal, guest))
            elif action == rules.WAIT:
                self._hypervisor.pause(1)
            else:
                raise memory_refusal(vm.label, self._why_lost(vm, journal, guest))
        raise self._not_ready(vm)

    def _done(self, vm: Vm, journal: t.Optional[Journal], guest: Guest) -> None:
        word = journal.word if journal is not None else ""
        self.restored = word in (rules.RESTORED, rules.RUNNING)
        by_hand = word in (SAVED, OPENING, rules.RESTORING) or (word == SAVING and guest.has_file and not self._went_on)
        if by_hand or word == rules.LOST:
            self.lost = self.lost or (_BY_HAND if by_hand else self._noted(vm) or _BOOTED)
        if self.restored and (self._has_booted or self._other_boot(journal)):
            self.restored, self.lost = False, ENDED_SINCE if word == rules.RUNNING else _only_once(word)
        self._note(vm, memory_end=RESTORED if self.restored else self.lost)
        self.drop(vm)

    def _restore(self, vm: Vm, journal: Journal, give_up: bool) -> None:
        """Restore the guest, for the first and only time. If it cannot be, the VM is booted next."""
        self._mount(vm)
        saved, reason = self._saved_domain()  # what can be refused, is
        if reason and not give_up:
            raise memory_refusal(vm.label, reason)
        if reason:
            self._boot(vm, journal, reason)
            return
        if not self._open_for_restore(vm, journal):
            return  # look again: somebody may have started it meanwhile, or written to its disks
        begun = journal._replace(boot=self._hypervisor.boot_id())
        self._write(vm, rules.advance(begun, rules.RESTORING))  # a run that is killed after this costs the memory
        progress.current().now(vm.label, "", "its memory is restored")
        try:
            self._memory.restore(self._uuid, self._path, saved)
        except FlexdiskError as exc:
            self.lost = exc.message

    def _open_for_restore(self, vm: Vm, journal: Journal) -> bool:
        """Make the disks writable. Return whether they were. If that cannot be, close them again, and refuse."""
        is_open = journal.word == OPENING and not read_only(self._copies, vm)
        if is_open and not self._wait_until(vm, False, 1):  # a run may have been killed in the wait
            return True
        if journal.word != OPENING:
            self._write(vm, rules.advance(journal, OPENING))
        self._zfs.inherit(_disks(vm), _READ_ONLY)
        closed = self._wait_until(vm, False, _OPENS_SECONDS)
        if not closed:
            return False
        refusal = self._stays_closed(vm, closed)
        for first, *more in [_disks(vm)]:
            self._zfs.set(first, *more, readonly="on")
        if not self._wait_until(vm, True, _MOST_SECONDS):
            self._zfs.set(memory_dataset(vm.config.pool, self._uuid), refreservation="none")  # as of each that is whole
            self._write(vm, journal._replace(word=SAVED))
        raise refusal

    def _stays_closed(self, vm: Vm, names: t.Sequence[str]) -> FlexdiskError:
        text = f"VM {vm.label}: {self._why_closed(vm, names)}. Its memory stays saved, and is restored then"
        return FlexdiskError("InUse", text)

    def _why_closed(self, vm: Vm, names: t.Sequence[str]) -> str:
        """Return why disks are read-only that nobody has made so by themselves."""
        above = closed_above(self._copies, vm)
        if above:
            return f"{', '.join(names)} cannot be written to, because {above[0]}"
        text = f"a program has {', '.join(names)} open since it was read-only, and keeps it so; end that program"
        return f"{text} (LVM, multipath, a backup)"

    def _resume(self, vm: Vm, journal: Journal) -> None:
        self.lost = ""
        if journal.word != rules.RESTORED:
            journal = rules.advance(journal, rules.RESTORED)
            self._write(vm, journal)
        self._memory.resume(self._uuid)
        self._write(vm, rules.advance(journal, rules.RUNNING))

    def _go_on(self, vm: Vm) -> None:
        self._open(vm)
        self._memory.resume(self._uuid)
        self._went_on = True

    def _boot(self, vm: Vm, journal: t.Optional[Journal], reason: str) -> None:
        self._has_booted = True
        if journal is not None and journal.word not in (rules.RUNNING, rules.LOST):
            self.lost = self.lost or reason
            self._note(vm, memory_end=self.lost)  # should the start fail, the next run knows it
            self._write(vm, rules.advance(journal, rules.LOST))
        self._open(vm)
        self._wait_until(vm, False, self._patience)
        progress.current().now(vm.label, "", "start")
        power.start(self._hypervisor, vm, self._requester)

    def lose(self, vm: Vm, reason: str) -> None:
        """Destroy the saved memory that the VM goes on without. Whoever goes on with the move is told why."""
        self.lost = reason
        self._note(vm, memory_end=reason)
        self.drop(vm)

    def drop(self, vm: Vm) -> None:
        """Destroy the saved memory, if there is any: the guest runs, or somebody has given it up."""
        self._open(vm)
        seals = drop_seals(self._zfs, self._copies, _disks(vm))
        memory = drop_memory(self._zfs, self._copies, self._place(vm))
        self.left = "; ".join(filter(None, (memory, seals)))
        records.remove(rules.key_name(self._uuid))  # also if somebody has destroyed the memory

    def _open(self, vm: Vm) -> None:
        """Make the disks writable again, unless somebody else has made them read-only."""
        move = self._move(vm)
        if move is None or move.closed or move.phase == COMING:
            make_writable(self._zfs, self._copies, vm)

    def _move(self, vm: Vm) -> t.Optional[Move]:
        place = self._place(vm)
        return decode_at(place, self._zfs.local_fact(place, MOVE_PROPERTY))

    def _noted(self, vm: Vm) -> str:
        """Return why an earlier run has started the VM without its memory, "" if that is not known."""
        move = self._move(vm)
        return move.memory_lost if move is not None else ""

    def _other_boot(self, journal: t.Optional[Journal]) -> bool:
        """Whether the host has booted since the memory was restored."""
        here = self._hypervisor.boot_id()
        return journal is not None and bool(journal.boot and here) and journal.boot != here

    def _note(self, vm: Vm, **fields: t.Any) -> None:
        """Write down in the entry of the move what must outlive the memory. fields: as in Move."""
        move = self._move(vm)
        if move is not None and move._replace(**fields) != move:
            rewrite_move(self._zfs, vm.config.pool, move._replace(**fields))

    # -- look

    def check(self, leaves: bool, give_up: bool) -> bool:
        """Raise what save() or run() would refuse at once. Return whether the memory is lost. Read only.

        leaves: save(), else run().
        """
        vm, journal = self._now()
        guest = self._guest(vm, journal)
        action = (rules.to_leave if leaves else rules.to_run)(journal.word if journal else "", guest)
        if action in (rules.STAYS, rules.BY_HAND):
            raise self._refusal(vm, action)
        reason = self._why_lost(vm, journal, guest) if action == rules.GIVE_UP else ""
        if action == rules.RESTORE and closed_above(self._copies, vm):
            raise self._stays_closed(vm, _disks(vm))
        if action in (rules.KEEP, rules.RESTORE):
            self._check_mountpoint(vm)
            reason = self._saved_domain()[1] if self.is_mounted(vm) else ""
        if reason and not give_up:
            raise memory_refusal(vm.label, reason)
        return bool(reason) or action == rules.FORGET

    def was_saved(self) -> bool:
        """Whether something of the memory was saved, or nobody knows that. Read only."""
        vm, journal = self._now()
        guest = self._guest(vm, journal)
        return rules.to_run(journal.word if journal else "", guest) in (rules.RESTORE, rules.GIVE_UP)

    def traveller(self, host: Host, vm: Vm) -> t.Dict[str, t.Any]:
        """Return what the target must know of memory that is being saved, or was: the same before and after a boot."""
        saved, name = vm.config.state == "stopped", rules.key_name(self._uuid)
        if saved and records.absent(name):
            text = f"VM {vm.label}: what another host must know of its saved memory is gone"
            raise FlexdiskError("ResourceNotFound", f"{text}; flexdisk_move_state=stays restores it here")
        shown = records.load(name) if saved else self._memory.traveller(self._uuid)
        return {**shown, "encrypted": is_secret(host, vm), "saved": saved}

    def is_mounted(self, vm: Vm) -> bool:
        """Whether the file can be read without a change of the host."""
        return self._zfs.files.mounted(rules.folder(self._uuid), memory_dataset(vm.config.pool, self._uuid))

    # -- what is there

    def _place(self, vm: Vm) -> str:
        """Return the dataset with the entry of the move."""
        return f"{moves_container(vm.config.pool)}/{self._uuid}"

    @property
    def _path(self) -> str:
        return f"{rules.folder(self._uuid)}/{_FILE}"

    def _now(self) -> t.Tuple[Vm, t.Optional[Journal]]:
        self._is_saving = self._memory.is_saving(
            self._uuid
        )  # before its state is read, which the end of a save changes
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vm = next((one for one in host.vms if one.config.uuid == self._uuid), None)
        if vm is None:
            raise FlexdiskError("ResourceNotFound", f"VM {self._uuid} is not on this host")
        self._empty = empty_size(host.datasets, vm.config.pool)
        name = memory_dataset(vm.config.pool, self._uuid)
        if not memory_is_there(host.datasets, name):
            return vm, None
        journal = rules.decode(self._zfs.local_fact(name, MEMORY_PROPERTY))
        if journal is None or journal.vm != self._uuid:
            return vm, self._unreadable
        return vm, journal

    def _guest(self, vm: Vm, journal: t.Optional[Journal]) -> Guest:
        state = vm.config.state
        if journal is None or journal.word not in (SAVING, SAVED, OPENING):
            return Guest(state, is_saving=self._is_saving)
        ended = state == "stopped" and self._memory.ended_with_save(self._uuid)
        return Guest(state, self._is_guarded(vm, journal), self._has_file(vm), self._is_saving, ended)

    def _is_guarded(self, vm: Vm, journal: Journal) -> bool:
        if journal.word != OPENING and read_only(self._copies, vm) != _disks(vm):
            return False
        if journal.set:
            return journal.figures == self._figures(_disks(vm)) and self._unwritten_since_set(vm, journal)
        return len(self._unwritten(vm, journal.seal.split(","))) == len(_disks(vm))

    def _unwritten_since_set(self, vm: Vm, journal: Journal) -> bool:
        """Whether nothing was written to the disks since they have come, by the bookmarks of the set.

        OpenZFS before 2.0, and pools without its feature bookmark_written, do not know.
        """
        name, table = f"written#{journal.set}", {}
        try:
            table = self._copies.table(_disks(vm), (name,), "volume", depth=0)
        except ZfsError as exc:
            if "invalid property" not in exc.message:
                raise
        written = [int(row[name][0]) for row in table.values() if row[name][0] != "-"]
        return self._has_seal(vm, journal) and not any(is_changed(one, self._empty) for one in written)

    def _unwritten(self, vm: Vm, seal: t.Collection[str]) -> t.Set[str]:
        """Return the disks to which nothing was written since the seal. A loss of power changes none."""
        table = self._copies.table(_disks(vm), ("guid", "createtxg", "written"), "volume,snapshot")
        since = {
            name.partition("@")[0]: int(row["createtxg"][0]) for name, row in table.items() if row["guid"][0] in seal
        }
        result = {*since}
        for name, row in table.items():
            disk, _at, snapshot = name.partition("@")
            later = not snapshot or int(row["createtxg"][0]) > since.get(disk, 0)
            if later and is_changed(int(row["written"][0]), self._empty):
                result.discard(disk)
        return result

    def _has_file(self, vm: Vm) -> bool:
        """Whether there is a file. After a boot it is not mounted, and the figures of ZFS tell."""
        if self.is_mounted(vm):
            return self._zfs.files.size(self._path) > 0
        name = memory_dataset(vm.config.pool, self._uuid)
        return int(self._copies.table([name], ("referenced",), "filesystem", depth=0)[name]["referenced"][0]) > MIB

    def _figures(self, names: t.Sequence[str]) -> str:
        table = self._copies.table(names, _FIGURES, "volume", depth=0)
        return ",".join(sorted("/".join(row[key][0] for key in _FIGURES) for row in table.values()))

    def _wait_until(self, vm: Vm, closed: bool, seconds: int) -> t.List[str]:
        """Wait until the kernel treats the volumes as read-only or not. Return those that a program has open even then.

        udev looks into each device that was renamed or closed, and is done soon.
        """
        names = [disk.volume.name for disk in vm.disks if not disk.hidden and disk.type != FILE]
        for _second in range(seconds):
            with contextlib.suppress(FlexdiskError):  # a device without its name: the next step says so
                names = [name for name in names if self._zfs.files.is_read_only(ZVOL + name) is not closed]
            if not names:
                break
            self._hypervisor.pause(1)
        return names

    def _write(self, vm: Vm, journal: Journal) -> None:
        self._zfs.set_facts(memory_dataset(vm.config.pool, self._uuid), {MEMORY_PROPERTY: rules.encode(journal)})

    def _mount(self, vm: Vm) -> None:
        self._check_mountpoint(vm)
        if not self.is_mounted(vm):
            self._zfs.mount(memory_dataset(vm.config.pool, self._uuid))

    def _check_mountpoint(self, vm: Vm) -> None:
        name, folder = memory_dataset(vm.config.pool, self._uuid), rules.folder(self._uuid)
        table = self._copies.table([name], ("mountpoint",), "filesystem", depth=0)
        if table[name]["mountpoint"][0] != folder:
            text = f"somebody mounts its saved memory, {name}, elsewhere; zfs set mountpoint={folder} {name} ends that"
            raise FlexdiskError("Changed", f"VM {vm.label}: {text}")

    def _saved_domain(self) -> t.Tuple[str, str]:
        """Return the domain in the file, and why it cannot be restored, "" if nothing is known. It must be mounted.

        An error is one of the file only if it comes again while the hypervisor answers. Raises FlexdiskError.
        """
        reason = ""
        for _attempt in range(_ATTEMPTS):
            try:
                return self._memory.saved_domain(self._uuid, self._path, self._allowed), ""
            except FlexdiskError as exc:
                reason = exc.message
                if exc.code in _OF_THE_FILE:
                    break
            self._hypervisor.pause(1)
            self._memory.is_saving(self._uuid)
        return "", reason

    def _why_lost(self, vm: Vm, journal: t.Optional[Journal], guest: Guest) -> str:
        word = journal.word if journal is not None else ""
        if word == rules.UNREADABLE:
            return _UNREADABLE
        if word not in (SAVING, SAVED, OPENING):
            return _only_once(word)
        if guest.state != "stopped":
            return f"{_BY_HAND}, and is {guest.state}"
        if not guest.has_file:
            return MEMORY_GONE if word != SAVING else _ELSEWHERE if guest.ended_with_save else _NOTHING
        return _CHANGED if self._has_seal(vm, t.cast(Journal, journal)) else _UNSEALED

    def _has_seal(self, vm: Vm, journal: Journal) -> bool:
        """Whether all snapshots of the seal are there, or bookmarks of them."""
        table = self._copies.table(_disks(vm), ("guid",), "snapshot,bookmark")
        there = {row["guid"][0] for row in table.values()}
        return there.issuperset(journal.seal.split(","))

    def _refusal(self, vm: Vm, action: str) -> FlexdiskError:
        if action == rules.BY_HAND:
            closed = read_only(self._copies, vm)
            first = f"zfs inherit readonly {' '.join(closed)}, then " if closed else ""
            text = f"VM {vm.label}: somebody has saved its guest (virsh managedsave). {first}virsh start {self._uuid}"
            return FlexdiskError("InUse", f"{text} goes on with all that it had; then run the same command again")
        text = f"VM {vm.label}: its move was given up, and its memory is being restored here"
        return FlexdiskError("InUse", f"{text}; flexdisk_move_state=stays goes on")

    def _not_ready(self, vm: Vm) -> FlexdiskError:
        text = f"VM {vm.label} is still {vm.config.state} after {self._patience} s"
        return FlexdiskError("VmInTransition", f"{text}: its memory is still being saved, or somebody has paused it")


def _only_once(word: str) -> str:
    return f"its memory was {word} when a run was interrupted, and is restored only once"


def memory_refusal(label: str, reason: str) -> FlexdiskError:
    """Return the error that the memory of a VM cannot be restored."""
    return FlexdiskError(_MEMORY_LOST, f"VM {label}: {reason}; its memory is not restored. {_WAY_OUT}")


def _guest_memory(hypervisor: Hypervisor) -> GuestMemory:
    memory = whole_vms(hypervisor).guest_memory
    if memory is None:
        text = f"{hypervisor.capabilities.name} cannot save the memory of a guest here"
        raise FlexdiskError("NotSupported", text)
    return memory


def _disks(vm: Vm) -> t.List[str]:
    return [disk.volume.name for disk in vm.disks if not disk.hidden]


def read_only(copies: Copies, vm: Vm) -> t.List[str]:
    """Return the disks that somebody has made read-only."""
    table = copies.table(_disks(vm), (_READ_ONLY,), "filesystem,volume", depth=0)
    return [name for name in _disks(vm) if table[name][_READ_ONLY] == ("on", "local")]


def closed_above(copies: Copies, vm: Vm) -> t.List[str]:
    """Return why disks of a VM could not be written to if nobody had made them read-only, as text."""
    by_hand = read_only(copies, vm)
    return why_closed(
        copies, [*(name for name in _disks(vm) if name not in by_hand), *([vm.root.name] if by_hand else [])]
    )


def why_closed(copies: Copies, names: t.Sequence[str]) -> t.List[str]:
    """Return which datasets make these, and what is below them, read-only, as text.

    A file system that is mounted read-only shows that, and leaves what is below it alone.
    """
    table = copies.table(names, (_READ_ONLY,), "filesystem,volume", depth=0)
    above = set()
    for name, row in table.items():
        value, source = row[_READ_ONLY]
        if value == "on" and source != "temporary":
            above.add(source[len(_INHERITED) :] if source.startswith(_INHERITED) else name)
    return [f"{name} is read-only, with all below it; zfs inherit readonly {name} ends that" for name in sorted(above)]


def drop_seals(zfs: Zfs, copies: Copies, disks: t.Sequence[str]) -> str:
    """Destroy the snapshots that prove that nothing was written since a save. Return which stay, and why."""
    reasons = {}
    for name in copies.table(disks, ("guid",), "snapshot"):
        if rules.is_seal(name.partition("@")[2]):
            try:
                exact.destroy_own(zfs, name)
            except ZfsError as exc:
                if exc.code not in _BUSY:
                    raise
                reasons[name] = exc.message
    if not reasons:
        return ""
    text = f"{', '.join(reasons)} of {host_name()}: of no use any more, and kept by others"
    text += f" ({'; '.join(dict.fromkeys(reasons.values()))}; zfs release frees what is held)"
    return f"{text}; the next sync or move after that destroys it"


def make_writable(zfs: Zfs, copies: Copies, vm: Vm) -> bool:
    """Make the disks writable again. Return whether one was read-only."""
    names = read_only(copies, vm)
    if names:
        zfs.inherit(names, _READ_ONLY)
    return bool(names)
