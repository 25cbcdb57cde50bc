# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why Proxmox VE would not take a snapshot of a VM, delete one or go back to it, or would end in the middle."""

from __future__ import annotations

import re
import typing as t

from ..model.dataset import Dataset
from ..model.errors import Problems
from ..model.text import count
from ..model.vm import ListedSnapshot, Vm
from ..rules.inventory import Host
from ..rules.snapshots import listed_as

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,39}")
_RESERVED = ("current", "pending")
_NAMED = 20


def check_taking(host: Host, vm: Vm, name: str, problems: Problems) -> None:
    """Check a snapshot that the VM does not have yet, or has only in part."""
    one = listed_as(vm, name)
    if one is not None:
        text = "is not whole" if one.unfinished else f"lacks {', '.join(_missing(host, one))}"
        problems.add("Ambiguous", f"snapshot {name} is there already, and {text}; state=absent removes it")
        return
    if not _NAME.fullmatch(name) or name in _RESERVED:
        text = "Proxmox VE takes names of 2 to 40 letters, digits, - and _, a letter first, but not current and pending"
        problems.add("InvalidArgument", f"snapshot name {name!r} is not valid: {text}")
    for taken in (f"{disk.volume.name}@{name}" for disk in vm.disks):
        if taken in host.datasets:
            problems.add("AlreadyExists", f"{taken} is there already, and is none of the VM's: take another name")
    for why in vm.config.unsnapshotted:
        problems.add("NotSupported", f"a snapshot has all disks of a VM: {why}")


def check_deletion(host: Host, vm: Vm, name: str, problems: Problems) -> None:
    """Check a snapshot that is deleted, if the VM has it."""
    one = listed_as(vm, name)
    if one is None:
        return
    _check_known(host, one, problems)
    known = {disk.volume.name for disk in vm.disks}
    known.update(volume for other in vm.config.snapshots if other is not one for volume in other.volumes)
    for volume in (volume for volume in one.volumes if volume not in known):
        text = f"{volume} is in snapshot {name}, and no disk of the VM any more: qm delsnapshot leaves it as an unusedN"
        problems.add("NotSupported", f"{text}. Attach it again, or delete the snapshot with qm")
    missing = [] if one.unfinished else _missing(host, one)
    if missing:
        text = f"there is no {', '.join(missing)}, so that qm delsnapshot would end in the middle; with --force 1"
        problems.add("ResourceNotFound", f"{text} it deletes the rest of snapshot {name}")


def check_rollback(host: Host, vm: Vm, name: str, problems: Problems) -> None:
    """Check a rollback to a snapshot that the VM has."""
    one = listed_as(vm, name)
    if one is None:
        return
    _check_known(host, one, problems)
    if vm.config.state != "stopped":
        text = "the VM is running and must be stopped for a rollback; stop it first: no task does so there"
        problems.add("VmNotStopped", text)
    missing = _missing(host, one)
    if missing:
        problems.add("ResourceNotFound", f"there is no {', '.join(missing)} to go back to")
    if one.disks_differ:
        text = f"qm rollback also brings back {', '.join(one.disks_differ)} as in snapshot {name}: the VM would have"
        problems.add("NotSupported", f"{text} other disks, or boot otherwise. Let qm do it, if that is wanted")
    newer = _newer(host, one)
    if newer:
        ours = {f"{volume}@{other.name}" for other in vm.config.snapshots for volume in other.volumes}
        names = {part.partition("@")[2]: None for part in newer if part in ours}
        others = [part for part in newer if part not in ours]
        ways = [f"state=absent deletes {', '.join(names)}"] if names else []
        ways += [f"zfs destroy {', '.join(others[:_NAMED])}{_more(others)}"] if others else []
        number = count(len(newer), "snapshot is", "snapshots are")
        text = f"Proxmox VE goes back to the newest snapshot of a disk only, and {number}"
        text = f"{text} newer than {name}: {', '.join(newer[:_NAMED])}{_more(newer)}"
        problems.add("HasSnapshots", f"{text}; {'; '.join(ways)}")


def _more(names: t.Sequence[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def _check_known(host: Host, one: ListedSnapshot, problems: Problems) -> None:
    beyond = [*one.beyond, *(volume for volume in one.volumes if not host.reads(volume))]
    if beyond:
        text = f"snapshot {one.name} also has {', '.join(beyond)}, of which nothing is known here"
        problems.add("NotSupported", f"{text}; qm delsnapshot and qm rollback may know more")


def _missing(host: Host, one: ListedSnapshot) -> t.List[str]:
    """Return the parts of a snapshot that are not in ZFS."""
    names = [f"{volume}@{one.name}" for volume in one.volumes if host.reads(volume)]
    return [name for name in names if name not in host.datasets]


def _newer(host: Host, one: ListedSnapshot) -> t.List[str]:
    """Return the snapshots of its volumes that are newer, whoever took them, the oldest first."""
    parts = [host.datasets.get(f"{volume}@{one.name}") for volume in one.volumes]
    since = {part.parent: part.createtxg for part in parts if part is not None}
    every: t.List[Dataset] = [d for d in host.datasets.values() if d.kind == "snapshot" and d.parent in since]
    newer = [d for d in every if d.createtxg > since[d.parent]]
    return [d.name for d in sorted(newer, key=lambda d: (d.createtxg, d.name))]
