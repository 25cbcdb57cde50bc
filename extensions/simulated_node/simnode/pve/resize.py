# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm disk resize`: a task whose failure only stderr tells."""

from __future__ import annotations

import re
from typing import Dict

from simnode.pve import drive, qemu, storage, vmfile
from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.task import Run

Options = Dict[str, str]
_SIZE = re.compile(r"\+?\d+(\.\d+)?[KMGT]?")
_MIB_OF_KIB = 1024


def resize(run: Run, vmid: int, key: str, size: str, options: Options) -> None:
    """`qm disk resize`. Raises ParameterError; every other error is printed, and the status is 0."""
    if key not in drive.DRIVES:
        kinds = ", ".join(drive.DRIVES)
        raise ParameterError({"disk": f"value '{key}' does not have a value in the enumeration '{kinds}'"})
    if _SIZE.fullmatch(size) is None:
        raise ParameterError({"size": "value does not match the regex pattern"})
    run.worker = True
    try:
        _resize(run, vmid, key, size, options)
    except NotRecorded:
        raise
    except PveError as error:
        run.err.append(error.text + "\n")


def _resize(run: Run, vmid: int, key: str, size: str, options: Options) -> None:
    vmfile.text_of(run, vmid)
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        vmfile.check_digest(run, vmid, options.get("digest"))
        vmfile.check_lock(config, options.get("skiplock") == "1")
        if key not in config.main:
            raise PveError(f"disk '{key}' does not exist")
        disk = drive.parse(key, config.main[key])
        if drive.split_volume(disk.volume) is None:
            if disk.is_path:
                raise NotRecorded(f"the resize of '{disk.volume}'")
            raise PveError(f"unable to parse volume ID '{disk.volume}'")
        if disk.is_cdrom:
            raise NotRecorded(f"the resize of the disc in {key}")
        one = storage.volume(disk.volume)
        storage.wait_for_device(run, one)
        now = storage.size(run, one)
        asked = drive.size_of(size.lstrip("+")) or 0
        wanted = now + asked if size.startswith("+") else asked
        if wanted < now:
            raise PveError("shrinking disks is not supported")
        if wanted == now:
            return
        kib = -(-wanted // (_MIB_OF_KIB * 1024)) * _MIB_OF_KIB
        run.zfs("set", f"volsize={kib}k", storage.dataset(run, one))
        if qemu.is_running(run, vmid):
            qemu.resized(run, vmid, key, kib * 1024)
        value = drive.Drive(disk.volume, {**disk.options, "size": drive.size_text(wanted)})
        config.main[key] = drive.write(key, value)
        vmfile.save(run, vmid, config)
