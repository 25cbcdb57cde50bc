# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a guest that moves lies in a dataset of its own, and is restored at most once (rules/saved_memory.py).

Whatever is killed, the same call goes on: save() on the host that the VM leaves, and run() where the guest goes on.
From the moment in which the memory is known to be whole until somebody begins to restore it, all disks are read-only.
"""

from __future__ import annotations

import contextlib
import typing as t

from ...hypervisor.protocol import GuestMemory, Hypervisor, whole_vms
from ...model.dataset import ZVOL
from ...model.errors import FlexdiskError
from ...model.sizes import MIB
from ...model.vm import FILE, Vm
from ...rules import saved_memory as rules
from ...rules.layout import memory_dataset, moves_container
from ...rules.power import check_start
from ...rules.saved_memory import MEMORY_PROPERTY, SAVED, SAVING, Guest, Journal
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.observe import observe
from ..replication.own_copies import drop_memory
from ..steps import power

_FILE = "memory"
# Beside the memory of the guest: its devices, such as the memory of graphics.
_DEVICES_MIB = 64
_READ_ONLY = "readonly"
_MOST_SECONDS = 15  # the guest stands still
_MEMORY_LOST = "MemoryLost"
_BY_HAND = "it was started by hand since its memory was saved"
_NOT_KNOWN = "nobody knows whether it was started since its memory was saved"
_WRITABLE = "its disks were made writable since its memory was saved, so they may have been changed"
_BOOTED = "a run that was interrupted had started it without its memory"
_WAY_OUT = "flexdisk_allow_memory_loss=true starts it without the memory, as after a power failure"


def size_with_devices(memory_mib: int) -> int:
    """Return the bytes that the saved memory of a guest takes at most."""
    return (memory_mib + _DEVICES_MIB) * MIB


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
        """Why the VM runs without the memory that was saved, "" if it does not. run() sets it."""

    # -- the host that the VM leaves

    def save(self) -> bool:
        """Save the guest, and make its disks read-only. Return False if it does not run. Raises FlexdiskError."""
        for _second in range(self._patience):
            vm, journal = self._now()
            action = rules.to_leave(journal.word if journal else "", self._guest(vm, journal))
            if action == rules.SEND:
                return journal is not None
            if action == rules.SAVE:
                self._save(vm, journal)
            elif action == rules.KEEP:
                self._keep(vm, t.cast(Journal, journal))
            elif action == rules.WAIT:
                self._hypervisor.pause(1)
            elif action == rules.STAYS:
                text = f"VM {vm.label}: its move was given up, and its memory is being restored here"
                raise FlexdiskError("InUse", f"{text}; flexdisk_move_state=stays goes on")
            else:
                raise self._lost(vm, journal)
        raise self._not_ready(vm)

    def _save(self, vm: Vm, journal: t.Optional[Journal]) -> None:
        name = memory_dataset(vm.config.pool, self._uuid)
        if journal is None:
            options = {**rules.properties(self._uuid), "refreservation": str(size_with_devices(vm.config.memory))}
            text = rules.encode(Journal(SAVING, self._uuid))
            self._zfs.create_filesystem(name, options, {MEMORY_PROPERTY: text})
        else:
            self._make_writable(vm)
        self._mount(vm)
        progress.current().now(vm.label, "", "its memory is saved")
        self._memory.save(self._uuid, self._path)

    def _keep(self, vm: Vm, journal: Journal) -> None:
        """Write down that all is saved, unless somebody has started the VM before its disks were read-only.

        The file has its space now. As long as that were reserved, the snapshot that is sent would need it once more.
        """
        self._zfs.set(memory_dataset(vm.config.pool, self._uuid), refreservation="none")
        for name in _disks(vm)[:1]:
            self._zfs.set(name, *_disks(vm)[1:], readonly="on")
        held = self._wait_until(vm, True, _MOST_SECONDS)
        if held:
            text = f"another program has {', '.join(held)} open, so read-only disks would not keep the VM from being"
            raise FlexdiskError("InUse", f"VM {vm.label}: {text} started without its memory; end that program")
        if self._memory.ended_with_save(self._uuid):
            self._write(vm, rules.advance(journal, SAVED))
        else:
            self._make_writable(vm)

    # -- the host where the guest goes on

    def arrived(self, pool: str) -> None:
        """Write down that the file and the disks have come to this pool as they were saved."""
        text = rules.encode(Journal(SAVED, self._uuid))
        self._zfs.set_facts(memory_dataset(pool, self._uuid), {MEMORY_PROPERTY: text})

    def run(self, give_up: bool = False) -> None:
        """Let the guest go on, and destroy the saved memory.

        give_up: start the VM without its memory if that does not belong to its disks any more. Raises FlexdiskError.
        """
        for _second in range(self._patience):
            vm, journal = self._now()
            action = rules.to_run(journal.word if journal else "", self._guest(vm, journal))
            if action in (rules.RESTORE, rules.RESUME):
                check_start(vm, self._requester)
            if action == rules.DONE:
                self._done(vm, journal)
                return
            if action == rules.RESTORE:
                self._restore(vm, t.cast(Journal, journal))
            elif action == rules.RESUME:
                self._resume(vm, t.cast(Journal, journal))
            elif action == rules.BOOT or (action == rules.GIVE_UP and give_up):
                self._boot(vm, journal)
            elif action == rules.WAIT:
                self._hypervisor.pause(1)
            else:
                raise self._lost(vm, journal)
        raise self._not_ready(vm)

    def _done(self, vm: Vm, journal: t.Optional[Journal]) -> None:
        word = journal.word if journal is not None else ""
        self.restored = word == rules.RUNNING
        if word in (SAVED, rules.LOST):
            self.lost = self.lost or (_BY_HAND if word == SAVED else _BOOTED)
        if journal is not None:
            self._make_writable(vm)
        self._drop(vm)

    def _restore(self, vm: Vm, journal: Journal) -> None:
        """Restore the guest, for the first and only time. If it cannot be, the VM is booted next."""
        self._mount(vm)
        saved = self._memory.saved_domain(self._uuid, self._path, self._allowed)  # what can be refused, is
        self._write(vm, rules.advance(journal, rules.RESTORING))
        self._zfs.inherit(_disks(vm), _READ_ONLY)  # a run that is killed here costs the memory: nothing is read before
        self._wait_until(vm, False, self._patience)
        progress.current().now(vm.label, "", "its memory is restored")
        try:
            self._memory.restore(self._uuid, self._path, saved)
        except FlexdiskError as exc:
            self.lost = exc.message

    def _resume(self, vm: Vm, journal: Journal) -> None:
        self.lost = ""
        if journal.word != rules.RESTORED:
            journal = rules.advance(journal, rules.RESTORED)
            self._write(vm, journal)
        self._memory.resume(self._uuid)
        self._write(vm, rules.advance(journal, rules.RUNNING))

    def _boot(self, vm: Vm, journal: t.Optional[Journal]) -> None:
        if journal is not None and journal.word not in (rules.RUNNING, rules.LOST):
            self.lost = self.lost or _why_lost(journal)
            self._write(vm, rules.advance(journal, rules.LOST))
        self._make_writable(vm)
        self._wait_until(vm, False, self._patience)
        progress.current().now(vm.label, "", "start")
        power.start(self._hypervisor, vm, self._requester)

    def drop(self, vm: Vm) -> None:
        """Destroy the saved memory, if there is any: somebody has given it up."""
        self._make_writable(vm)
        self._drop(vm)

    def _drop(self, vm: Vm) -> None:
        drop_memory(self._zfs, self._copies, f"{moves_container(vm.config.pool)}/{self._uuid}")

    # -- what is there

    @property
    def _path(self) -> str:
        return f"{rules.folder(self._uuid)}/{_FILE}"

    def _now(self) -> t.Tuple[Vm, t.Optional[Journal]]:
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        vm = next((one for one in host.vms if one.config.uuid == self._uuid), None)
        if vm is None:
            raise FlexdiskError("ResourceNotFound", f"VM {self._uuid} is not on this host")
        name = memory_dataset(vm.config.pool, self._uuid)
        if name not in host.datasets:
            return vm, None
        text = self._zfs.local_fact(name, MEMORY_PROPERTY)
        journal = rules.decode(text)
        if (journal is None and text) or (journal is not None and journal.vm != self._uuid):
            raise FlexdiskError("UnexpectedOutput", f"VM {vm.label}: the journal of {name} cannot be read")
        return vm, journal

    def _guest(self, vm: Vm, journal: t.Optional[Journal]) -> Guest:
        guarded = journal is not None and journal.word == SAVED and self._read_only(vm) == _disks(vm)
        return Guest(vm.config.state, self._memory.ended_with_save(self._uuid), guarded)

    def _read_only(self, vm: Vm) -> t.List[str]:
        """Return the disks that somebody has made read-only."""
        table = self._copies.table(_disks(vm), (_READ_ONLY,), "filesystem,volume", depth=0)
        return [name for name in _disks(vm) if table[name][_READ_ONLY] == ("on", "local")]

    def _make_writable(self, vm: Vm) -> None:
        names = self._read_only(vm)
        if names:
            self._zfs.inherit(names, _READ_ONLY)

    def _wait_until(self, vm: Vm, read_only: bool, seconds: int) -> t.List[str]:
        """Wait until the kernel treats the volumes so. Return those that another program has open even then.

        udev looks into each device that was renamed or closed, and is done soon.
        """
        names = [disk.volume.name for disk in vm.disks if not disk.hidden and disk.type != FILE]
        for _second in range(seconds):
            with contextlib.suppress(FlexdiskError):  # a device without its name: the next step says so
                names = [name for name in names if self._zfs.files.is_read_only(ZVOL + name) is not read_only]
            if not names:
                break
            self._hypervisor.pause(1)
        return names

    def _write(self, vm: Vm, journal: Journal) -> None:
        self._zfs.set_facts(memory_dataset(vm.config.pool, self._uuid), {MEMORY_PROPERTY: rules.encode(journal)})

    def _mount(self, vm: Vm) -> None:
        name, folder = memory_dataset(vm.config.pool, self._uuid), rules.folder(self._uuid)
        if not self._zfs.files.mounted(folder, name):
            self._zfs.mount(name)
        if not self._zfs.files.mounted(folder, name):
            raise FlexdiskError("Changed", f"{name} is mounted, but not at {folder}")

    def _lost(self, vm: Vm, journal: t.Optional[Journal]) -> FlexdiskError:
        reason = _why_lost(journal) if journal is not None else _NOT_KNOWN
        if vm.config.state != "stopped":
            reason = f"{_BY_HAND}, and is {vm.config.state}"
        return FlexdiskError(_MEMORY_LOST, f"VM {vm.label}: {reason}; its memory is not restored. {_WAY_OUT}")

    def _not_ready(self, vm: Vm) -> FlexdiskError:
        text = f"VM {vm.label} is still {vm.config.state} after {self._patience} s"
        return FlexdiskError("VmInTransition", f"{text}: its memory is still being saved, or somebody has paused it")


def _guest_memory(hypervisor: Hypervisor) -> GuestMemory:
    memory = whole_vms(hypervisor).guest_memory
    if memory is None:
        text = f"{hypervisor.capabilities.name} cannot save the memory of a guest here"
        raise FlexdiskError("NotSupported", text)
    return memory


def _why_lost(journal: Journal) -> str:
    if journal.word == SAVING:
        return _NOT_KNOWN
    if journal.word == SAVED:
        return _WRITABLE
    return f"its memory was {journal.word} when a run was interrupted, and is restored only once"


def _disks(vm: Vm) -> t.List[str]:
    return [disk.volume.name for disk in vm.disks if not disk.hidden]
