# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a guest that moves lies in a dataset of its own, and is restored at most once (rules/saved_memory.py).

Whatever is killed, the same call goes on: save() on the host that the VM leaves, and run() where the guest goes on.
"""

from __future__ import annotations

import typing as t

from ...hypervisor.libvirt_memory import GuestMemory
from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError
from ...model.sizes import MIB
from ...model.vm import Disk, Vm
from ...rules import saved_memory as rules
from ...rules.layout import memory_dataset
from ...rules.power import check_start
from ...rules.replicas import is_synced
from ...rules.saved_memory import MEMORY_PROPERTY, SAVED, SAVING, Guest, Journal, SavedDisk
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.observe import observe
from ..replication.own_copies import drop_own_copy
from ..steps import power

FOLDER = "/var/lib/flexdisk/memory"
_FILE = "memory"
# Beside the memory of the guest: its devices, such as the memory of graphics.
_DEVICES_MIB = 64
_PRIVATE = {"canmount": "noauto", "atime": "off", "setuid": "off", "devices": "off", "exec": "off"}
_MEMORY_LOST = "MemoryLost"
_BY_HAND = "it was started by hand since its memory was saved"
_NOT_KNOWN = "nobody knows whether it was started since its memory was saved"


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
        memory: GuestMemory,
        uuid: str,
        requester: str,
        patience: int = 180,
        allowed: t.Collection[str] = (),
    ) -> None:
        self._zfs = zfs
        self._copies = copies
        self._hypervisor = hypervisor
        self._memory = memory
        self._uuid = uuid
        self._requester = requester
        self._patience = patience
        self._allowed = allowed
        self.lost = ""
        """Why the VM runs without the memory that was saved, "" if it does not. run() sets it."""

    # -- the host that the VM leaves

    def save(self, take: t.Callable[[Vm], t.Mapping[str, int]]) -> bool:
        """Save the guest, and have snapshots taken of its disks and of the file. Return False if it does not run.

        take: takes these snapshots, and returns the guids for Journal.points. Raises FlexdiskError.
        """
        for _second in range(self._patience):
            vm, journal = self._now()
            action = rules.to_leave(journal.word if journal else "", self._guest(vm, journal))
            if action == rules.SEND:
                return journal is not None
            if action == rules.SAVE:
                self._save(vm, journal)
            elif action == rules.KEEP:
                self._keep(vm, t.cast(Journal, journal), take(vm))
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
            size = (vm.config.memory + _DEVICES_MIB) * MIB
            options = {**_PRIVATE, "mountpoint": self._folder, "refreservation": str(size)}
            text = rules.encode(Journal(SAVING, self._uuid))
            self._zfs.create_filesystem(name, options, {MEMORY_PROPERTY: text})
        self._mount(vm)
        progress.current().now(vm.label, "", "its memory is saved")
        self._memory.save(self._uuid, self._path)

    def _keep(self, vm: Vm, journal: Journal, points: t.Mapping[str, int]) -> None:
        """Write down that all is saved, unless somebody has started the VM before the snapshots were taken."""
        if self._memory.ended_with_save(self._uuid):
            self._write(vm, rules.taken(journal, points))

    # -- the host where the guest goes on

    def arrived(self, points: t.Mapping[str, int]) -> None:
        """Write down that the file and the disks, by Journal.points, have come to this host as they were saved."""
        vm, journal = self._now()
        if journal is None and self._zfs.exists(memory_dataset(vm.config.pool, self._uuid)):
            self._write(vm, Journal(SAVED, self._uuid, dict(points)))

    def run(self, give_up: bool = False) -> None:
        """Let the guest go on, and destroy the saved memory.

        give_up: start the VM without its memory if that does not belong to its disks any more. Raises FlexdiskError.
        """
        for _second in range(self._patience):
            vm, journal = self._now()
            guest = self._guest(vm, journal)
            action = rules.to_run(journal.word if journal else "", guest)
            if action in (rules.RESTORE, rules.RESUME):
                check_start(vm, self._requester)
            if action == rules.DONE:
                if journal is not None and journal.word == SAVED:
                    self.lost = self.lost or _BY_HAND
                self.drop(vm)
                return
            if action == rules.RESTORE:
                self._restore(vm, t.cast(Journal, journal))
            elif action == rules.RESUME:
                self._resume(vm, t.cast(Journal, journal))
            elif action == rules.BOOT or (action == rules.GIVE_UP and give_up):
                self._boot(vm, journal, guest)
            elif action == rules.WAIT:
                self._hypervisor.pause(1)
            else:
                raise self._lost(vm, journal)
        raise self._not_ready(vm)

    def _restore(self, vm: Vm, journal: Journal) -> None:
        """Restore the guest, for the first and only time. If it cannot be, the VM is booted next."""
        self._mount(vm)
        saved = self._memory.saved_domain(self._uuid, self._path, self._allowed)  # what can be refused, is
        self._write(vm, rules.advance(journal, rules.RESTORING))
        progress.current().now(vm.label, "", "its memory is restored")
        try:
            self._memory.restore(self._uuid, self._path, saved)
        except FlexdiskError as exc:
            self.lost = exc.message

    def _resume(self, vm: Vm, journal: Journal) -> None:
        if journal.word != rules.RESTORED:
            journal = rules.advance(journal, rules.RESTORED)
            self._write(vm, journal)
        self._memory.resume(self._uuid)
        self._write(vm, rules.advance(journal, rules.RUNNING))

    def _boot(self, vm: Vm, journal: t.Optional[Journal], guest: Guest) -> None:
        if journal is not None and not self.lost:
            self.lost = guest.apart or _why_lost(journal)
        progress.current().now(vm.label, "", "start")
        power.start(self._hypervisor, vm, self._requester)

    def drop(self, vm: Vm) -> None:
        """Destroy the saved memory, if there is any: the guest runs, or somebody has given its memory up."""
        name = memory_dataset(vm.config.pool, self._uuid)
        if self._zfs.exists(name):
            guid = int(self._copies.table([name], ("guid",), "filesystem", depth=0)[name]["guid"][0])
            drop_own_copy(self._zfs, self._copies, name, guid)
        self._zfs.files.remove_folder(self._folder)

    # -- what is there

    @property
    def _folder(self) -> str:
        return f"{FOLDER}/{self._uuid}"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{_FILE}"

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
        if journal is None and text:
            raise FlexdiskError("UnexpectedOutput", f"VM {vm.label}: the journal of {name} cannot be read")
        return vm, journal

    def _guest(self, vm: Vm, journal: t.Optional[Journal]) -> Guest:
        apart = rules.why_apart(journal.points, _disks(vm)) if journal is not None and journal.points else ""
        return Guest(vm.config.state, self._memory.ended_with_save(self._uuid), apart)

    def _write(self, vm: Vm, journal: Journal) -> None:
        self._zfs.set_facts(memory_dataset(vm.config.pool, self._uuid), {MEMORY_PROPERTY: rules.encode(journal)})

    def _mount(self, vm: Vm) -> None:
        name = memory_dataset(vm.config.pool, self._uuid)
        if not self._zfs.files.mounted(self._folder, name):
            self._zfs.mount(name)
        if not self._zfs.files.mounted(self._folder, name):
            raise FlexdiskError("Changed", f"{name} is mounted, but not at {self._folder}")

    def _lost(self, vm: Vm, journal: t.Optional[Journal]) -> FlexdiskError:
        guest = self._guest(vm, journal)
        reason = guest.apart or _NOT_KNOWN
        if vm.config.state != "stopped":
            reason = f"{_BY_HAND}, and is {vm.config.state}"
        return FlexdiskError(_MEMORY_LOST, f"VM {vm.label}: {reason}; its memory is not restored")

    def _not_ready(self, vm: Vm) -> FlexdiskError:
        text = f"VM {vm.label} is still {vm.config.state} after {self._patience} s"
        return FlexdiskError("VmInTransition", f"{text}: its memory is still being saved, or somebody has paused it")


def _why_lost(journal: Journal) -> str:
    if journal.word == SAVING:
        return _NOT_KNOWN
    return f"its memory was {journal.word} when a run was interrupted, and is restored only once"


def _disks(vm: Vm) -> t.Dict[str, SavedDisk]:
    return {disk.uuid: _saved_disk(disk) for disk in vm.disks if not disk.hidden}


def _saved_disk(disk: Disk) -> SavedDisk:
    synced = [n for n, one in enumerate(disk.snapshots) if is_synced(one.name.partition("@")[2])]
    if not synced:
        return SavedDisk(disk.label, 0, disk.volume.written)
    later = sum(one.written for one in disk.snapshots[synced[-1] + 1 :])
    return SavedDisk(disk.label, disk.snapshots[synced[-1]].guid, later + disk.volume.written)
