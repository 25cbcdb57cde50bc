# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`qm destroy`: the VM's own volumes, as their names say it, and its file."""

from __future__ import annotations

from typing import Dict, List

from simnode.pve import cluster, config_text, drive, qemu, settings, storage, vmfile
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.host import config_path
from simnode.pve.task import Run

Options = Dict[str, str]


def destroy(run: Run, vmid: int, options: Options) -> None:
    """`qm destroy`. Raises PveError."""
    config = vmfile.load(run, vmid)
    purge = options.get("purge") == "1"
    vmfile.check_lock(config, options.get("skiplock") == "1")
    if settings.is_on(config.main, "protection"):
        raise PveError(f"can't remove VM {vmid} - protection mode enabled")
    _check_cluster(run, vmid, purge)
    if qemu.is_running(run, vmid):
        raise PveError(f"VM {vmid} is running - destroy failed", 25)
    run.worker = True
    with run.lock(vmfile.lock_path(vmid)):
        names = _volumes(run, vmid, config)
        _check_bases(run, names)
        for name in names:
            _destroy_volume(run, vmid, name)
        if options.get("destroy-unreferenced-disks") == "1":
            _destroy_others(run, vmid)
        run.host.remove(config_path(vmid))
        if purge:
            run.say(f"purging VM {vmid} from related configurations..")
            cluster.leave_backup_jobs(run.host, vmid)
            if run.host.read(f"/etc/pve/firewall/{vmid}.fw") is not None:
                run.host.remove(f"/etc/pve/firewall/{vmid}.fw")
    if run.warnings:
        run.err.append(f"Task finished with {run.warnings} warning(s)!\n")


def _check_cluster(run: Run, vmid: int, purge: bool) -> None:
    jobs = cluster.replication_jobs(run.host, vmid)
    if jobs and purge:
        raise NotRecorded(f"the removal of a VM with the replication job {jobs[0]}")
    if jobs:
        raise PveError(f"There is a replication job '{jobs[0]}' for guest '{vmid}' - Please remove that first.")
    if cluster.is_highly_available(run.host, vmid):
        if purge:
            raise NotRecorded(f"the removal of VM {vmid} from HA")
        raise PveError(f"unable to remove VM {vmid} - used in HA resources and purge parameter not set.")


def _volumes(run: Run, vmid: int, config: config_text.VmConfig) -> List[str]:
    """Return the volumes of disks, unused and pending ones and the saved state: each once; not those of snapshots."""
    names: List[str] = []
    for values in (config.main, config.pending):
        names.extend(config_text.volumes(values).values())
        names.extend(config_text.unused(values).values())
    names.append(config.main.get("vmstate", ""))
    found: Dict[str, str] = {}
    for name in names:
        if not name or drive.split_volume(name) is None:
            continue
        found.setdefault(vmfile.place(run, name), name)
    return list(found.values())


def _check_bases(run: Run, names: List[str]) -> None:
    for name in names:
        if ":base-" in name and "/" not in name and storage.clones(run, storage.volume(name)):
            raise PveError(f"base volume '{name}' is still in use by linked cloned")


def _destroy_volume(run: Run, vmid: int, name: str) -> None:
    try:
        owned = vmfile.is_owned(run, vmid, name)
    except NotRecorded:
        raise
    except PveError as error:
        run.task_warning(f"failed to get path and owner of volume '{name}': {error.text}")
        return
    if not owned:
        return
    try:
        storage.destroy(run, storage.volume(name))
    except PveError as error:
        run.task_warning(f"Could not remove disk '{name}', check manually: {error.text}")


def _destroy_others(run: Run, vmid: int) -> None:
    found = [item for one in storage.pools(run) for item in storage.listed(run, one)]
    for item in found:
        if item.volume.owner == vmid:
            _destroy_volume(run, vmid, item.volume.id())
