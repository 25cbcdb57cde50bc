# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of a VM: kept as pending first, then applied at once, by hot-plug, or when the VM has stopped."""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, Set

from simnode.pve import config_text, drive, qemu, settings, storage, vmfile
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.task import Run

# Options of a plugged disk that QEMU cannot change: the whole new value waits for the next start.
AT_START = ("aio", "cache", "discard", "iothread", "queues", "product", "vendor", "ro", "ssd")
DEFAULT_HOTPLUG = "network,disk,usb"


class Change:
    """A change of one VM, whose lock is held. `errors` are the keys that could not be applied, and why."""

    def __init__(self, run: Run, vmid: int, config: config_text.VmConfig) -> None:
        self.run = run
        self.vmid = vmid
        self.config = config
        self.errors: Dict[str, str] = {}

    def save(self) -> None:
        """Write the file, and read it again."""
        self.config = vmfile.save(self.run, self.vmid, self.config)

    # -- volumes that lose their key ---------------------------------------------------------------------------------

    def let_go(self, volume: str) -> None:
        """Keep a volume that has lost its key as an unused one. What is not the VM's own is only forgotten."""
        if vmfile.is_owned(self.run, self.vmid, volume):
            config_text.add_unused(self.config.main, volume)

    def destroy(self, key: str, volume: str) -> None:
        """Destroy the volume of a key. What is not the VM's own is only forgotten. Raises PveError."""
        if not vmfile.is_owned(self.run, self.vmid, volume):
            return
        where = vmfile.place(self.run, volume)
        others = [name for other, name in config_text.volumes(self.config.main).items() if other != key]
        used = any(vmfile.place(self.run, name) == where for name in others)
        if used or vmfile.snapshot_users(self.run, self.config, where):
            raise PveError(f"unable to delete '{volume}' - volume is still in use (snapshot?)")
        storage.destroy(self.run, storage.volume(volume))

    def remove(self, key: str, force: bool) -> None:
        """Take a key out of the configuration, and what it had with it. Raises PveError."""
        main = self.config.main
        if drive.is_drive(key):
            disk = drive.parse(key, main[key])
            if disk.is_cdrom:
                if drive.split_volume(disk.volume) is not None:
                    raise NotRecorded(f"the removal of a drive with '{disk.volume}'")
            elif force:
                self.destroy(key, disk.volume)
            else:
                self.let_go(disk.volume)
        main.pop(key, None)

    def tidy(self) -> None:
        """Forget what is pending and is so already."""
        config = self.config
        for key in [key for key in config.pending if key != "delete" and config.pending[key] == config.main.get(key)]:
            del config.pending[key]
        config.deletes = {key: force for key, force in config.deletes.items() if key in config.main}

    # -- a stopped VM ------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply all that is pending to the stopped VM. What cannot be applied stays, and is in `errors`."""
        self.tidy()
        for key, force in sorted(self.config.deletes.items()):
            with self._cold(key):
                self.remove(key, force)
                self._delete_done(key)
        for key in sorted(self.config.pending):
            if key == "delete":
                continue
            with self._cold(key):
                self._replace(key)
                self.config.main[key] = self.config.pending.pop(key)
        self.save()

    @contextlib.contextmanager
    def _cold(self, key: str) -> Iterator[None]:
        try:
            yield
        except NotRecorded:
            raise
        except PveError as error:
            text = f"unable to apply pending change {key} : {error.text}"
            self.errors[key] = text + "\n"
            self.run.warn(text)

    def _delete_done(self, key: str) -> None:
        self.config.deletes = {other: force for other, force in self.config.deletes.items() if other != key}

    def _replace(self, key: str) -> None:
        """Let the volume go that a key has now, unless it is that of the new value."""
        if not drive.is_drive(key) or key not in self.config.main:
            return
        old = drive.parse(key, self.config.main[key])
        if not old.is_cdrom and old.volume != drive.parse(key, self.config.pending[key]).volume:
            self.let_go(old.volume)

    # -- a running VM ------------------------------------------------------------------------------------------------

    def hot_plug(self, touched: Set[str]) -> None:
        """Apply to the running VM what can be applied of these keys. What fails stays pending, and is in `errors`."""
        self.tidy()
        for key, force in sorted(self.config.deletes.items()):
            if key in touched:
                with self._hot(key):
                    self._hot_delete(key, force)
        for key in sorted(self.config.pending):
            if key in touched and key != "delete":
                with self._hot(key):
                    self._hot_set(key)
        self.save()

    @contextlib.contextmanager
    def _hot(self, key: str) -> Iterator[None]:
        try:
            yield
        except NotRecorded:
            raise
        except PveError as error:
            self.errors[key] = f"hotplug problem - {error.text}\n"

    def can_hot_plug(self, key: str) -> bool:
        """Return whether a disk at this key is plugged into a running VM at once."""
        hotplug = self.config.main.get("hotplug", DEFAULT_HOTPLUG)
        allowed = DEFAULT_HOTPLUG if hotplug == "1" else hotplug
        return "disk" in allowed.split(",") and drive.bus_of(key) in ("virtio", "scsi")

    def _hot_delete(self, key: str, force: bool) -> None:
        main = self.config.main
        if drive.is_drive(key):
            if not self.can_hot_plug(key):
                return
            if key in (settings.boot_order(main) or []):
                raise PveError(f"can't unplug bootdisk '{key}'")
            qemu.unplug(self.run, self.vmid, main, key)
        elif key not in settings.AT_ONCE:
            return
        self.remove(key, force)
        self._delete_done(key)

    def _hot_set(self, key: str) -> None:
        config = self.config
        if drive.is_drive(key):
            if self._hot_disk(key):
                config.main[key] = config.pending.pop(key)
        elif key in settings.AT_ONCE or drive.is_unused(key):
            config.main[key] = config.pending.pop(key)

    def _hot_disk(self, key: str) -> bool:
        """Bring a disk to its new value. Return whether that is done; else it waits for the next start."""
        main = self.config.main
        new = drive.parse(key, self.config.pending[key])
        if not self.can_hot_plug(key):
            return False
        if new.is_cdrom:
            raise NotRecorded(f"another medium in {key} of a running VM")
        if key in main:
            old = drive.parse(key, main[key])
            if old.volume == new.volume:
                return all(old.options.get(name) == new.options.get(name) for name in AT_START)
            qemu.unplug(self.run, self.vmid, main, key)
            self.let_go(old.volume)
            del main[key]
        qemu.plug(self.run, self.vmid, main, key, new)
        return True
