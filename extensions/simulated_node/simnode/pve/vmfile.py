# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of a VM: loaded, checked, saved, locked."""

from __future__ import annotations

import hashlib
from typing import Callable, Optional

from simnode.pve import config_text, drive, storage
from simnode.pve.config_text import VmConfig
from simnode.pve.errors import PveError
from simnode.pve.host import NODE, config_path
from simnode.pve.task import Run


def lock_path(vmid: int) -> str:
    """Return the file whose flock every change of a VM takes."""
    return f"/var/lock/qemu-server/lock-{vmid}.conf"


def missing(vmid: int) -> PveError:
    """Return the error that this node has no such VM."""
    return PveError(f"Configuration file 'nodes/{NODE}/qemu-server/{vmid}.conf' does not exist", 2)


def exists(run: Run, vmid: int) -> bool:
    """Return whether this node has the VM."""
    return run.host.read(config_path(vmid)) is not None


def text_of(run: Run, vmid: int) -> str:
    """Return the text of a VM's file. Raises PveError."""
    text = run.host.read(config_path(vmid))
    if text is None:
        raise missing(vmid)
    return text


def load(run: Run, vmid: int, quiet: bool = False) -> VmConfig:
    """Return a VM's configuration. Lines that are lost are warned of, unless `quiet`."""
    warn: Callable[[str], None] = (lambda _line: None) if quiet else (lambda line: run.err.append(line + "\n"))
    return config_text.parse(vmid, text_of(run, vmid), warn)


def save(run: Run, vmid: int, config: VmConfig) -> VmConfig:
    """Write a VM's file. Return it as it is read again: a value of nothing becomes one blank by that."""
    run.host.write(config_path(vmid), config_text.write(config))
    return load(run, vmid, quiet=True)


def digest(text: str) -> str:
    """Return the digest of a file."""
    return hashlib.sha1(text.encode("utf-8", "surrogateescape")).hexdigest()


def check_digest(run: Run, vmid: int, given: Optional[str]) -> None:
    """Refuse when the file is no longer what the caller has read. Raises PveError."""
    if given and digest(text_of(run, vmid)) != given:
        raise PveError("checksum mismatch (file change by other user?)")


def check_lock(config: VmConfig, skip: bool = False) -> None:
    """Refuse when somebody has locked the VM. Raises PveError."""
    if "lock" in config.main and not skip:
        raise PveError(f"VM is locked ({config.main['lock']})")


def is_owned(run: Run, vmid: int, name: str) -> bool:
    """Return whether a volume belongs to the VM, which only its name says. Raises PveError for unknown storages."""
    parts = drive.split_volume(name)
    if parts is None:
        return False
    storage.zfs_storage(run, parts[0])
    return storage.volume(name).owner == vmid


def place(run: Run, name: str) -> str:
    """Return what tells a volume from others: its dataset, or its path."""
    parts = drive.split_volume(name)
    known = storage.storages(run).get(parts[0]) if parts else None
    if parts is None or known is None or known.kind != "zfspool":
        return name
    return f"{known.dataset}/{storage.volume(name).name}"


def snapshot_users(run: Run, config: VmConfig, where: str) -> bool:
    """Return whether a snapshot of the VM has the volume that is at this place."""
    for section in config.snapshots.values():
        for name in [*config_text.volumes(section).values(), *config_text.unused(section).values()]:
            if place(run, name) == where:
                return True
    return False
