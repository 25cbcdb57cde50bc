# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm disk rescan`: the files follow what the storages have."""

from __future__ import annotations

from typing import Dict, List

from simnode.pve import config_text, drive, storage, vmfile
from simnode.pve.config_text import VmConfig
from simnode.pve.host import vms_of_node
from simnode.pve.storage import Listed
from simnode.pve.task import Run, ordered

Options = Dict[str, str]


def rescan(run: Run, options: Options) -> None:
    """`qm disk rescan`. Raises PveError."""
    dry = options.get("dryrun") == "1"
    if dry:
        run.say("NOTE: running in dry-run mode, won't write changes out!")
    run.say("rescan volumes...")
    found = {storage.dataset(run, item.volume): item for one in storage.pools(run) for item in storage.listed(run, one)}
    if "vmid" in options:
        vmids = [int(options["vmid"])]
    else:
        vmids = [int(name) for name in ordered(run, [str(vmid) for vmid in vms_of_node(run.host)])]
    for vmid in vmids:
        vmfile.text_of(run, vmid)
        with run.lock(vmfile.lock_path(vmid)):
            config = vmfile.load(run, vmid)
            vmfile.check_lock(config)
            before = dict(config.main)
            _sizes(run, vmid, config, found)
            _unknown(run, vmid, config, [found[name] for name in sorted(found)], dry)
            config_text.drop_used(config)
            if config.main != before and not dry:
                vmfile.save(run, vmid, config)


def _sizes(run: Run, vmid: int, config: VmConfig, found: Dict[str, Listed]) -> None:
    for key, disk in config_text.drives(config.main).items():
        item = found.get(vmfile.place(run, disk.volume))
        if item is None or disk.is_cdrom or item.volume.owner != vmid:
            continue
        old = drive.size_of(disk.options.get("size", "0")) or 0
        if old == item.size:
            continue
        run.say(
            f"VM {vmid} ({key}): size of disk '{disk.volume}' updated from "
            f"{drive.size_text(old)} to {drive.size_text(item.size)}"
        )
        options = {**disk.options, "size": drive.size_text(item.size)}
        config.main[key] = drive.write(key, drive.Drive(disk.volume, options))


def _unknown(run: Run, vmid: int, config: VmConfig, found: List[Listed], dry: bool) -> None:
    main = config.main
    known = {vmfile.place(run, name) for name in config_text.volumes(main).values()}
    known |= {vmfile.place(run, name) for name in config_text.unused(main).values()}
    for item in found:
        name, volume = item.volume.id(), item.volume
        if volume.owner != vmid or storage.dataset(run, volume) in known or volume.name.startswith(f"vm-{vmid}-state-"):
            continue
        if volume.name == f"vm-{vmid}-cloudinit":
            run.say(f"found unused cloudinit disk '{name}', removing it")
            if not dry:
                storage.destroy(run, volume)
            run.err.append("Use of uninitialized value $key in concatenation (.) or string at simulated.\n")
            key = ""
        else:
            key = config_text.add_unused(main, name)
        run.say(f"VM {vmid} add unreferenced volume '{name}' as '{key}' to config")
