# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm set` and `qm disk unlink`: what is asked for becomes pending, key by key, and is applied as far as it can be."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Dict, List, Set, Tuple

from simnode.pve import cluster, config_text, drive, qemu, settings, storage, vmfile
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.pending import Change
from simnode.pve.task import Run, ordered

_NEW = re.compile(r"([a-zA-Z][a-zA-Z0-9_.-]*):(\d+(?:\.\d+)?)")
_KIB_OF_GIB = 1 << 20
_CONTROL = ("digest", "skiplock", "force", "delete", "revert")
Options = Dict[str, str]


def words(text: str) -> List[str]:
    """Return the entries of a list: comma, semicolon and blanks are between them."""
    return [word for word in re.split(r"[,;\s]+", text) if word]


def set_vm(run: Run, vmid: int, options: Options) -> None:
    """`qm set`. Raises PveError."""
    params = {key: value for key, value in options.items() if key not in _CONTROL}
    if not {*options} - {"digest", "skiplock", "force"}:
        raise PveError("no options specified", 2)
    for name in ("delete", "revert"):
        for key in words(options.get(name, "")):
            if key not in settings.KNOWN:
                raise ParameterError({name: f"unknown option '{key}'"}, 255)
    check_values(params)
    vmfile.text_of(run, vmid)
    check_volumes(run, vmid, params)
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        vmfile.check_digest(run, vmid, options.get("digest"))
        vmfile.check_lock(config, options.get("skiplock") == "1")
        told = {key: value for key, value in options.items() if key != "digest"}
        run.say(f"update VM {vmid}: " + " ".join(f"-{key} {_shown(told[key])}" for key in sorted(told)))
        update = Update(run, vmid, config)
        update.ask(params, words(options.get("delete", "")), words(options.get("revert", "")), "force" in options)
        update.finish()


def _shown(value: str) -> str:
    """Return a value as the real program prints it: what is not ASCII is no UTF-8."""
    return "".join(char if ord(char) < 128 else "\ufffd" for char in value)


def check_values(params: Options) -> None:
    """Refuse values that the schema does not know. Raises ParameterError."""
    problems = {key: settings.problem(key, params[key]) for key in sorted(params)}
    found = {key: problem for key, problem in problems.items() if problem}
    if found:
        raise ParameterError(found)
    for key in params:
        if key not in settings.SETTABLE and not drive.is_drive(key) and not drive.is_unused(key):
            raise NotRecorded(f"the setting {key}")


def check_volumes(run: Run, vmid: int, params: Options) -> None:
    """Refuse volumes that cannot be, before anything is locked or printed. Raises PveError."""
    for key in sorted(params):
        if not drive.is_drive(key) and not drive.is_unused(key):
            continue
        disk = drive.parse(key, params[key])
        if disk.is_path and cluster.replication_jobs(run.host, vmid):
            raise PveError("cannot add non-managed/pass-through volume to a replicated VM")
        if drive.split_volume(disk.volume) is None:
            if not disk.is_path and not disk.is_cdrom:
                raise NotRecorded(f"the value '{params[key]}' of {key}")
            continue
        if disk.is_cdrom or disk.volume.endswith(":cloudinit"):
            raise NotRecorded(f"the value '{params[key]}' of {key}")
        new = _NEW.fullmatch(disk.volume)
        if new:
            storage.for_images(run, new.group(1))
        else:
            storage.zfs_storage(run, disk.volume.partition(":")[0])
            storage.volume(disk.volume)


class Update(Change):
    """A `qm set` in progress."""

    def __init__(self, run: Run, vmid: int, config: config_text.VmConfig) -> None:
        super().__init__(run, vmid, config)
        self.touched: Set[str] = set()

    def ask(self, params: Options, deletes: List[str], reverts: List[str], force: bool = False) -> None:
        """Make everything pending, one key after the other. Raises PveError: what was asked before that, stays."""
        self.touched = {*params, *deletes}
        for key in reverts:
            self._revert(key)
        for key in deletes:
            self._ask_delete(key, force)
        for key in ordered(self.run, sorted(params)):
            self._ask_set(key, params[key], params)

    def finish(self) -> None:
        """Apply what can be applied. Raises ParameterError with what could not be."""
        if qemu.is_running(self.run, self.vmid):
            self.hot_plug(self.touched)
        else:
            self.apply()
        if self.errors:
            raise ParameterError({key: self.errors[key] for key in sorted(self.errors)}, 255)

    # -- delete and revert -------------------------------------------------------------------------------------------

    def _ask_delete(self, key: str, force: bool) -> None:
        main, pending = self.config.main, self.config.pending
        if key not in main and key not in pending:
            self.run.warn(f"cannot delete '{key}' - not set in current configuration!")
            return
        protected = settings.is_on(main, "protection")
        if drive.is_unused(key) and key in main:
            volume = drive.parse(key, main[key]).volume
            if protected:
                raise PveError(f"can't remove unused disk '{volume}' - protection mode enabled")
            self.destroy(key, volume)
            self.config.main.pop(key)
            self.save()
            return
        if drive.is_drive(key) and protected:
            raise PveError(f"can't remove drive '{key}' - protection mode enabled")
        if key in pending:
            self._drop_pending(key)
        if key in self.config.main:
            self.config.deletes = {**self.config.deletes, key: force}
        if drive.is_drive(key):
            self._boot_without(key)
        self.save()

    def _boot_without(self, key: str) -> None:
        config = self.config
        values = config.pending if "boot" in config.pending else config.main
        order = settings.boot_order(values) or []
        if key in order:
            config.pending["boot"] = settings.order_text([device for device in order if device != key])

    def _drop_pending(self, key: str) -> None:
        """Forget a pending value. The volume of a disk that is nowhere else becomes an unused one."""
        value = self.config.pending.pop(key)
        if not drive.is_drive(key):
            return
        volume = drive.parse(key, value).volume
        current = self.config.main.get(key)
        if current is None or drive.parse(key, current).volume != volume:
            self.let_go(volume)

    def _revert(self, key: str) -> None:
        config = self.config
        config.deletes = {other: force for other, force in config.deletes.items() if other != key}
        if key in config.pending:
            self._drop_pending(key)
        self.save()
        if drive.is_drive(key) and key in self.config.main:
            volume = drive.parse(key, self.config.main[key]).volume
            if drive.split_volume(volume) is not None:
                storage.size(self.run, storage.volume(volume))

    # -- set ---------------------------------------------------------------------------------------------------------

    def _ask_set(self, key: str, value: str, params: Options) -> None:
        if drive.is_drive(key):
            value = self._disk_value(key, drive.parse(key, value))
            if key in self.config.pending:
                self._drop_pending(key)
        elif drive.is_unused(key):
            value = drive.parse(key, value).volume
        elif key == "boot":
            self._check_boot(value, params)
        self.config.deletes = {other: force for other, force in self.config.deletes.items() if other != key}
        self.config.pending[key] = settings.normal(key, value)
        self.save()

    def _check_boot(self, value: str, params: Options) -> None:
        known = {*self.config.main, *self.config.pending, *params}
        for device in settings.boot_order({"boot": value}) or []:
            if device not in known:
                raise PveError(f"invalid bootorder: device '{device}' does not exist'")

    def _disk_value(self, key: str, disk: drive.Drive) -> str:
        return disk_value(self.run, self.vmid, key, disk, settings.is_on(self.config.main, "template"))


def disk_value(run: Run, vmid: int, key: str, disk: drive.Drive, is_template: bool = False) -> str:
    """Return the value of a disk that is asked for. Its volume is made, or its size is read. Raises PveError."""
    if disk.is_cdrom:
        return drive.write(key, disk)
    new = _NEW.fullmatch(disk.volume)
    if new:
        value = _new_volume(run, vmid, key, disk, is_template)
        run.say(f"{key}: successfully created disk '{value}'")
        return value
    given = disk.options.get("format", "raw")
    if disk.is_path:
        size = qemu.device_of(run, disk.volume).size
    else:
        one = storage.volume(disk.volume)
        storage.wait_for_device(run, one)
        if given != "raw":
            raise PveError(
                f"drive '{key}' - volume '{disk.volume}' - 'format={given}' option different from storage format 'raw'"
            )
        size = storage.size(run, one)
    return drive.write(key, drive.Drive(disk.volume, {**disk.options, "size": drive.size_text(size)}))


def _new_volume(run: Run, vmid: int, key: str, disk: drive.Drive, is_template: bool) -> str:
    name, gib = disk.volume.split(":")
    place = storage.for_images(run, name)
    options = {option: value for option, value in disk.options.items() if option != "import-from"}
    kib = -int(-Fraction(gib) * _KIB_OF_GIB // 1)
    if "import-from" in disk.options:
        one, size = full_copy(run, vmid, disk.options["import-from"], place)
    elif drive.bus_of(key) == "efidisk":
        one = storage.create(run, place, vmid, 1024)
        run.say("transferred 1.0 MiB of 1.0 MiB (100.00%)")
        size = storage.size(run, one)
    elif drive.bus_of(key) == "tpmstate":
        raise NotRecorded("a new tpmstate0")
    else:
        one = storage.create(run, place, vmid, kib)
        size = kib * 1024
    if is_template:
        one = storage.make_base(run, one)
    return drive.write(key, drive.Drive(one.id(), {**options, "size": drive.size_text(size)}))


def full_copy(run: Run, vmid: int, source: str, place: storage.Storage, key: str = "") -> Tuple[storage.Volume, int]:
    """Return a full copy of a volume in a storage, and the size of it in bytes."""
    if drive.split_volume(source) is None:
        raise NotRecorded(f"a copy of '{source}'")
    one = storage.volume(source)
    imported = not key
    storage.wait_for_device(run, one)
    size = storage.size(run, one)
    if imported:
        size = storage.size(run, one)
    run.say(f"create full clone of drive {key} ({source})" if key else f"create full clone of drive ({source})")
    target = storage.create(run, place, vmid, size // 1024)
    run.say(f"allocated target volume '{target.id()}'")
    run.host.copy(storage.dataset(run, one), storage.dataset(run, target))
    run.say(f"transferred {size} B of {size} B (100.00%)")
    return target, storage.size(run, target)
