# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm template` and `qm clone`."""

from __future__ import annotations

import re
from typing import Dict

from simnode.pve import config_text, drive, qemu, settings, storage, vmfile
from simnode.pve.config_text import VmConfig
from simnode.pve.create import new_uuid
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.host import home_of
from simnode.pve.task import Run
from simnode.pve.update import full_copy

Options = Dict[str, str]
_NOT_CLONED = ("lock", "parent", "template", "vmstate", "snaptime", "snapstate")


def template(run: Run, vmid: int) -> None:
    """`qm template`. Raises PveError."""
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        vmfile.check_lock(config)
        if settings.is_on(config.main, "template"):
            raise PveError("you can't convert a template to a template")
        if config.snapshots:
            raise PveError("unable to create template, because VM contains snapshots")
        if qemu.is_running(run, vmid):
            raise PveError("you can't convert a VM to template if VM is running", 25)
        run.worker = True
        config.main["template"] = "1"
        config = vmfile.save(run, vmid, config)
        for key, disk in config_text.drives(config.main).items():
            if disk.is_cdrom:
                continue
            if drive.split_volume(disk.volume) is None:
                raise NotRecorded(f"a template with '{disk.volume}'")
            one = storage.make_base(run, storage.volume(disk.volume))
            config.main[key] = drive.write(key, drive.Drive(one.id(), disk.options))
            config = vmfile.save(run, vmid, config)


def clone(run: Run, vmid: int, target: int, options: Options) -> None:
    """`qm clone`. Raises PveError."""
    if options.get("storage") or options.get("target"):
        raise NotRecorded("a clone in another storage or on another node")
    config = vmfile.load(run, vmid)
    vmfile.check_lock(config)
    is_template = settings.is_on(config.main, "template")
    full = options.get("full", "0" if is_template else "1") == "1"
    if home_of(run.host, target) is not None:
        raise PveError(f"unable to create VM {target}: config file already exists", 2)
    _check(run, vmid, config, is_template, full, options.get("snapname", ""))
    run.worker = True
    with run.lock(vmfile.lock_path(target)):
        vmfile.save(run, target, VmConfig({"description": " qmclone temporary file", "lock": "clone"}))
        run.say(f"creating a clone of VM {vmid} with ID {target}")
        values = _settings(run, config, options)
        for key, disk in config_text.drives(config.main).items():
            values[key] = config.main[key] if disk.is_cdrom else _disk(run, target, key, disk, full)
        vmfile.save(run, target, VmConfig(values))


def _check(run: Run, vmid: int, config: VmConfig, is_template: bool, full: bool, snapshot: str) -> None:
    if snapshot and snapshot not in config.snapshots:
        raise PveError(f"snapshot '{snapshot}' does not exist")
    if qemu.is_running(run, vmid):
        raise NotRecorded("a clone of a running VM")
    for key, disk in config_text.drives(config.snapshots[snapshot] if snapshot else config.main).items():
        if disk.is_cdrom:
            continue
        if not full and not is_template:
            raise PveError(f"Linked clone feature is not supported for '{disk.volume}' ({key})", 2)
        if snapshot:
            raise PveError(f"Full clone feature is not supported for a snapshot of '{disk.volume}' ({key})", 2)


def _settings(run: Run, config: VmConfig, options: Options) -> config_text.Values:
    main = config.main
    skipped = (*_NOT_CLONED, *config_text.unused(main), *config_text.drives(main))
    values = {key: value for key, value in main.items() if key not in skipped}
    if "name" in options:
        values["name"] = options["name"]
    elif "name" in main:
        values["name"] = f"Copy-of-VM-{main['name']}"
    else:
        raise NotRecorded("the name of a clone of a VM without a name")
    fresh = f"uuid={new_uuid(run)}"
    values["smbios1"] = re.sub(r"uuid=[^,]*", fresh, main["smbios1"]) if "uuid=" in main.get("smbios1", "") else fresh
    if "vmgenid" in main:
        values["vmgenid"] = new_uuid(run)
    if "description" in options:
        values["description"] = options["description"]
    return values


def _disk(run: Run, target: int, key: str, disk: drive.Drive, full: bool) -> str:
    if drive.split_volume(disk.volume) is None:
        raise NotRecorded(f"a clone of a VM with '{disk.volume}'")
    source = storage.volume(disk.volume)
    if full:
        one, size = full_copy(run, target, disk.volume, storage.for_images(run, source.storage), key)
    else:
        run.say(f"create linked clone of drive {key} ({disk.volume})")
        one = storage.clone(run, source, target)
        size = storage.size(run, one)
    return drive.write(key, drive.Drive(one.id(), {**disk.options, "size": drive.size_text(size)}))
