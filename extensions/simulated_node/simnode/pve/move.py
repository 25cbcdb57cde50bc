# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm disk move`: a disk goes to another VM, or its contents to another storage."""

from __future__ import annotations

from typing import Dict

from simnode.pve import config_text, drive, qemu, settings, storage, vmfile
from simnode.pve.config_text import VmConfig
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.host import NODE, home_of
from simnode.pve.task import Run
from simnode.pve.update import Update, full_copy

Options = Dict[str, str]
_REPLICATION = "__replicate_"


def move(run: Run, vmid: int, key: str, place: str, options: Options) -> None:
    """`qm disk move`. Raises PveError."""
    allowed = (*drive.DRIVES, *drive.UNUSED)
    for name, value in (("disk", key), ("target-disk", options.get("target-disk", key))):
        if value not in allowed:
            kinds = ", ".join(allowed)
            raise ParameterError({name: f"value '{value}' does not have a value in the enumeration '{kinds}'"})
    target = options.get("target-vmid", "")
    place = place or options.get("storage", "")
    if not target and not place:
        text = "both 'storage' and 'target-vmid' missing, either needs to be set"
        raise ParameterError({"target-vmid": text, "storage": text}, 255)
    if target and place:
        raise NotRecorded("a move to another VM and to another storage in one")
    if target:
        _Reassign(run, vmid, key, int(target), options.get("target-disk", key)).do(options)
    else:
        _copy(run, vmid, key, place, options)


class _Reassign:
    """A disk that goes to another VM of this node."""

    def __init__(self, run: Run, vmid: int, key: str, target: int, target_key: str) -> None:
        self.run, self.vmid, self.key, self.target, self.target_key = run, vmid, key, target, target_key

    def do(self, options: Options) -> None:
        run = self.run
        if self.target == self.vmid:
            problem = "must be different than source VMID to reassign disk"
            raise ParameterError({"target-vmid": problem}, 255)
        node = home_of(run.host, self.target)
        if node is None:
            raise PveError(f"could not find target VM {self.target}")
        if node != NODE:
            raise PveError(f"Both VMs need to be on the same node ({NODE} != {node})")
        run.worker = True
        first, second = sorted((self.vmid, self.target))
        with run.lock(vmfile.lock_path(first)), run.lock(vmfile.lock_path(second)):
            source, target = vmfile.load(run, self.vmid), vmfile.load(run, self.target)
            self._check(source, target, options)
            run.say(f"reassign disk '{self.key}' from VM '{self.vmid}' as '{self.target_key}' to VM '{self.target}'")
            disk = drive.parse(self.key, source.main[self.key])
            one = storage.rename(run, storage.volume(disk.volume), self.target)
            self._take(source)
            self._give(target, drive.Drive(one.id(), disk.options))
            self._drop_replication(one)

    def _check(self, source: VmConfig, target: VmConfig, options: Options) -> None:
        run = self.run
        for vmid, config, digest in (
            (self.vmid, source, options.get("digest")),
            (self.target, target, options.get("target-digest")),
        ):
            if digest and vmfile.digest(vmfile.text_of(run, vmid)) != digest:
                raise PveError(f"VM {vmid}: detected modified configuration - file changed by other user? Try again.")
            if settings.is_on(config.main, "template"):
                raise PveError("Can't move disks from or to template VMs")
            vmfile.check_lock(config)
        if self.key not in source.main:
            raise PveError(f"Disk '{self.key}' for VM '{self.vmid}' does not exist")
        if self.target_key in target.main:
            raise PveError(f"Target disk key '{self.target_key}' is already in use for VM '{self.target}'")
        disk = drive.parse(self.key, source.main[self.key])
        if disk.is_cdrom or disk.is_path:
            raise NotRecorded(f"the reassignment of '{disk.volume}'")
        storage.zfs_storage(run, disk.volume.partition(":")[0])
        if vmfile.snapshot_users(run, source, vmfile.place(run, disk.volume)):
            raise PveError("Can't move disk used by a snapshot to another VM")
        if qemu.is_running(run, self.vmid) and not drive.is_unused(self.key):
            raise PveError("Cannot move disk to another VM while the source VM is running - detach first", 25)
        self._check_options(disk)

    def _check_options(self, disk: drive.Drive) -> None:
        if drive.is_unused(self.target_key):
            return
        try:
            drive.parse(self.target_key, drive.write(self.target_key, disk), self.target_key + ".")
        except drive.BadDrive as bad:
            raise ParameterError({self.target_key: drive.refusal(bad)}) from None

    def _take(self, source: VmConfig) -> None:
        order = settings.boot_order(source.main) or []
        if self.key in order:
            self.run.say(f"removing disk '{self.key}' from boot order config")
            source.main["boot"] = settings.order_text([device for device in order if device != self.key])
        self.run.say(f"removing disk '{self.key}' from VM '{self.vmid}' config")
        del source.main[self.key]
        vmfile.save(self.run, self.vmid, source)

    def _give(self, target: VmConfig, disk: drive.Drive) -> None:
        if drive.is_unused(self.target_key):
            target.main[self.target_key] = disk.volume
            vmfile.save(self.run, self.target, target)
            return
        value = drive.write(self.target_key, disk)
        self.run.say(f"update VM {self.target}: -{self.target_key} {value}")
        update = Update(self.run, self.target, target)
        update.ask({self.target_key: value}, [], [])
        update.finish()

    def _drop_replication(self, one: storage.Volume) -> None:
        dataset = storage.dataset(self.run, one)
        options = ("-Hp", "-r", "-t", "snapshot", "-o", "name,guid,creation")
        for line in self.run.zfs("list", *options, dataset).splitlines():
            snapshot = line.split("\t")[0]
            name = snapshot.partition("@")[2]
            if name.startswith(_REPLICATION):
                self.run.say(f"delete stale replication snapshot '{name}' on {one.id()}")
                self.run.zfs("destroy", snapshot)


def _copy(run: Run, vmid: int, key: str, place: str, options: Options) -> None:
    """Copy a disk to another storage. The old volume becomes an unused one, or is destroyed."""
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        if options.get("digest") and vmfile.digest(vmfile.text_of(run, vmid)) != options["digest"]:
            raise PveError(f"VM {vmid}: detected modified configuration - file changed by other user? Try again.")
        vmfile.check_lock(config)
        if key not in config.main:
            raise PveError(f"disk '{key}' does not exist")
        disk = drive.parse(key, config.main[key])
        source = drive.split_volume(disk.volume)
        if source is None or disk.is_cdrom or drive.is_unused(key):
            raise NotRecorded(f"the move of '{disk.volume}' to another storage")
        if source[0] == place:
            raise PveError("you can't move to the same storage with same format")
        target = storage.for_images(run, place)
        if qemu.is_running(run, vmid) or vmfile.snapshot_users(run, config, vmfile.place(run, disk.volume)):
            raise NotRecorded("a move to another storage of a running VM, or of a disk that a snapshot has")
        run.worker = True
        run.say(f"copying volume '{disk.volume}' from current storage '{source[0]}' to target storage '{place}'")
        one, size = full_copy(run, vmid, disk.volume, target, key)
        config.main[key] = drive.write(key, drive.Drive(one.id(), {**disk.options, "size": drive.size_text(size)}))
        _leave(run, vmid, config, disk.volume, options.get("delete") == "1")


def _leave(run: Run, vmid: int, config: VmConfig, volume: str, destroy: bool) -> None:
    if not vmfile.is_owned(run, vmid, volume):
        raise NotRecorded(f"a move to another storage of '{volume}', which is another VM's")
    if destroy:
        vmfile.save(run, vmid, config)
        storage.destroy(run, storage.volume(volume))
        return
    key = config_text.add_unused(config.main, volume)
    run.say(f"adding source volume '{volume}' as '{key}' to config")
    vmfile.save(run, vmid, config)
