# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm create`."""

from __future__ import annotations

import hashlib
from typing import Dict, List

from simnode.pve import config_text, drive, settings, storage, vmfile
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.host import config_path, home_of
from simnode.pve.task import Run
from simnode.pve.update import check_values, check_volumes, disk_value

Options = Dict[str, str]
_BOOT_BUSES = ("ide", "scsi", "virtio", "sata")


def new_uuid(run: Run) -> str:
    """Return a UUID that no other call gets."""
    count = int(run.host.state.get("uuids", 0)) + 1
    run.host.state["uuids"] = count
    text = hashlib.sha256(f"{run.host.state.get('seed', '')}:{count}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def create(run: Run, vmid: int, options: Options) -> None:
    """`qm create`. Raises PveError: nothing is left then."""
    check_values(options)
    check_volumes(run, vmid, options)
    run.worker = True
    node = home_of(run.host, vmid)
    if node is not None:
        raise PveError(f"unable to create VM {vmid} - VM {vmid} already exists on node '{node}'")
    with run.lock(vmfile.lock_path(vmid)):
        vmfile.save(run, vmid, config_text.VmConfig({"lock": "create"}))
        made: List[str] = []
        try:
            values = _values(run, vmid, options, made)
        except PveError as error:
            for name in made:
                storage.destroy(run, storage.volume(name))
            run.host.remove(config_path(vmid))
            if isinstance(error, NotRecorded):
                raise
            raise PveError(f"unable to create VM {vmid} - {error.text}") from None
        run.host.write(config_path(vmid), config_text.write(config_text.VmConfig(values)))


def _values(run: Run, vmid: int, options: Options, made: List[str]) -> config_text.Values:
    values: config_text.Values = {}
    for key in sorted(options):
        if not drive.is_drive(key):
            values[key] = settings.normal(key, options[key])
            continue
        asked = drive.parse(key, options[key])
        values[key] = disk_value(run, vmid, key, asked)
        if drive.parse(key, values[key]).volume != asked.volume:
            made.append(drive.parse(key, values[key]).volume)
    if "boot" not in values:
        values["boot"] = settings.order_text(_boot_devices(values))
    values["meta"] = f"creation-qemu=10.1.2,ctime={int(run.host.now())}"
    values["smbios1"] = f"uuid={new_uuid(run)}"
    values["vmgenid"] = new_uuid(run)
    return values


def _boot_devices(values: config_text.Values) -> List[str]:
    """Return the first disk by bus and number, then the drives for discs, then the first network card."""
    drives = config_text.drives(values)
    keys = [key for bus in _BOOT_BUSES for key in drives if drive.bus_of(key) == bus]
    disks = [key for key in keys if not drives[key].is_cdrom]
    discs = [key for key in keys if drives[key].is_cdrom]
    return [*disks[:1], *discs, *(["net0"] if "net0" in values else [])]
