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
from ..rules.layout import pool_of, sibling_number, within
from ..rules.snapshots import deletion_command, left_over, listed_as, what_deletes
from ..rules.usage import labels

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,39}")
_RESERVED = ("current", "pending")  # PENDING in the file of a VM would begin its pending changes
_OURS = "flexdisk-"
_NAMED = 20


def check_taking(host: Host, vm: Vm, name: str, problems: Problems) -> bool:
    """Check a snapshot. Return whether it is to be taken: the VM does not have it yet."""
    one = listed_as(vm, name)
    if one is not None:
        _check_read(host, one.volumes, f"snapshot {name}", problems)
        why = why_not_whole(host, vm, one)
        if why:
            problems.add("Ambiguous", f"snapshot {name} is there already, and {why}")
        return False
    _check_name(name, problems)
    volumes = vm.config.snapshotted
    for taken in (f"{volume}@{name}" for volume in sorted({*volumes.values()})):
        if taken in host.datasets:
            problems.add("AlreadyExists", f"{taken} is there already, and is none of the VM's: take another name")
    for why in vm.config.unsnapshotted:
        problems.add("NotSupported", f"a snapshot has all disks of a VM: {why}")
    _check_read(host, volumes.values(), "a snapshot has all disks of a VM, and this one", problems)
    for key, volume in volumes.items():
        first = next(other for other in volumes if volumes[other] == volume)
        if host.reads(volume) and volume not in host.datasets:
            text = f"a snapshot has all disks of a VM, and there is no {volume}, the volume of {key}"
            problems.add("ResourceNotFound", f"{text}; qm set {_vmid(vm)} --delete {key} takes the disk out of the VM")
        elif key != first:
            text = f"{first} and {key} have the same volume {volume}, of which Proxmox VE would take the snapshot twice"
            problems.add("InUse", f"{text}; take one of them out of the VM")
    _check_others(host, vm, volumes.values(), "of whose data the snapshot would be taken, too", problems)
    return True


def why_not_whole(host: Host, vm: Vm, one: ListedSnapshot) -> str:
    """Return what is wrong with a snapshot that is half made, half deleted or lacks a part, and what deletes it."""
    missing = _missing(host, one)
    if one.unfinished:
        return f"is half made or half deleted; {what_deletes(vm, one)}"
    return f"lacks {', '.join(missing)}; {what_deletes(vm, one, lacks=True)}" if missing else ""


def _check_name(name: str, problems: Problems) -> None:
    text = ""
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        text = "Proxmox VE takes names of 2 to 40 letters, digits, - and _, a letter first, but not current and pending"
    elif name.startswith(_OURS):
        text = f"snapshots that this collection takes for itself begin with {_OURS}"
    if text:
        problems.add("InvalidArgument", f"snapshot name {name!r} is not valid: {text}")


def _vmid(vm: Vm) -> t.Any:
    return vm.config.proxmox["vmid"]


def _check_others(host: Host, vm: Vm, volumes: t.Iterable[str], effect: str, problems: Problems) -> None:
    """Refuse a snapshot with volumes of other VMs. effect: what it would be for another VM, as a relative clause."""
    for volume in sorted({*volumes}):
        users, number = host.usage.of(volume, vm.config.uuid), sibling_number(volume)
        if users:
            text = f"{volume} is also attached to {labels(users)}, {effect}"
            problems.add("InUse", f"{text}; take it out of the configuration of one VM")
        elif not within(vm.config, volume):
            known = [one.label for one in host.configs if one.proxmox.get("vmid") == number]
            text = f"{volume} is called after VM {number}{''.join(f' ({one})' for one in known)}, whose it is for"
            problems.add("NotSupported", f"{text} Proxmox VE. Let qm do it, if that is wanted")


def _check_read(host: Host, volumes: t.Iterable[str], what: str, problems: Problems) -> None:
    unread = sorted(volume for volume in {*volumes} if not host.reads(volume))
    if unread:
        pools = ", ".join(sorted({*map(pool_of, unread)}))
        text = f"{what} has {', '.join(unread)} in pool {pools}, which this task does not read"
        problems.add("NotSupported", f"{text}; leave out the option pool")


def check_deletion(host: Host, vm: Vm, name: str, problems: Problems) -> None:
    """Check a snapshot that is deleted, if the VM has it."""
    one = listed_as(vm, name)
    if one is None:
        return
    check_contents(host, one, problems)
    _check_others(host, vm, one.volumes, "which may know the snapshot, too", problems)
    left = left_over(vm, one)
    for volume in (volume for volume in one.volumes if volume in left):
        then = "it is an unusedN already" if volume in vm.config.unused else "qm delsnapshot leaves it as an unusedN"
        text = f"{volume} is in snapshot {name}, and no disk of the VM any more: {then}"
        problems.add(
            "NotSupported", f"{text}. Attach it again, or delete the snapshot with {deletion_command(vm, one)}"
        )
    unused = [volume for volume in one.unused if volume in left]
    if unused:
        text = f"snapshot {name} is half deleted, and the rest of it has {', '.join(unused)}, which is no disk of"
        text = f"{text} the VM any more: qm delsnapshot {_vmid(vm)} {name} --force 1 deletes it"
        problems.add("NotSupported", f"{text}, and leaves that as an unusedN")
    if one.unfinished and not one.taken_at:
        text = f"snapshot {name} is not whole, and does not say when it was begun, so nobody knows what is part of it"
        problems.add("Ambiguous", f"{text}; qm delsnapshot deletes what is called {name} of all its disks")
    missing = [] if one.unfinished else _missing(host, one)
    if missing:
        text = f"there is no {', '.join(missing)}, so that qm delsnapshot would end in the middle; with --force 1"
        text = f"{text} it deletes the rest of snapshot {name}: qm delsnapshot {_vmid(vm)} {name} --force 1"
        problems.add("ResourceNotFound", text)


def check_rollback(host: Host, vm: Vm, name: str, problems: Problems) -> None:
    """Check a rollback to a snapshot that the VM has."""
    one = listed_as(vm, name)
    if one is None:
        return
    _check_others(host, vm, one.volumes, "whose data a rollback would take back", problems)
    if vm.config.state != "stopped":
        text = "the VM is running and must be stopped for a rollback; stop it first: no task does so there"
        problems.add("VmNotStopped", text)
    missing = _missing(host, one)
    if missing:
        problems.add("ResourceNotFound", f"there is no {', '.join(missing)} to go back to")
    if one.disks_differ:
        text = f"qm rollback also brings back {', '.join(one.disks_differ)} as in snapshot {name}: the VM would have"
        text = f"{text} other disks, other options of them, or boot otherwise"
        problems.add("NotSupported", f"{text}. Let qm do it, if that is wanted")
    newer = _newer(host, one)
    if newer:
        ours = {f"{volume}@{other.name}" for other in vm.config.snapshots for volume in other.volumes}
        names = {part.partition("@")[2]: None for part in newer if part in ours}
        others = [part for part in newer if part not in ours]
        ways = [*_deletes(host, vm, names)] if names else []
        ways += _ways(vm, others)
        number = count(len(newer), "snapshot is", "snapshots are")
        text = f"Proxmox VE goes back to the newest snapshot of a disk only, and {number}"
        text = f"{text} newer than {name}: {', '.join(newer[:_NAMED])}{_more(newer)}"
        problems.add("HasSnapshots", f"{text}; {'; '.join(ways)}")


def _deletes(host: Host, vm: Vm, names: t.Container[str]) -> t.Iterator[str]:
    """Yield what deletes snapshots of the VM."""
    every = [other for other in vm.config.snapshots if other.name in names]
    commands = {other.name: deletion_command(vm, other, bool(_missing(host, other))) for other in every}
    by_task = [name for name, command in commands.items() if not command]
    if by_task:
        yield f"vm_snapshot with state=absent deletes {', '.join(by_task)}"
    yield from filter(None, commands.values())


def _ways(vm: Vm, parts: t.Sequence[str]) -> t.Iterator[str]:
    """Yield what destroys snapshots that are none of the VM. Those of a replication job go with the job."""
    jobs = {part: job for part in parts for job in vm.config.proxmox["replication"] if f"@__replicate_{job}_" in part}
    for job in sorted({*jobs.values()}):
        bases = ", ".join(part for part in parts if jobs.get(part) == job)
        yield f"{bases} is the base of replication job {job}, and goes with it: pvesr delete {job} ends the job"
    others = [part for part in parts if part not in jobs]
    yield from (f"zfs destroy {part}" for part in others[:_NAMED])
    if others[_NAMED:]:
        yield f"the same for {len(others) - _NAMED} more"


def check_contents(host: Host, one: ListedSnapshot, problems: Problems) -> None:
    """Check that everything of a snapshot is known, so that it can be said whether the VM differs from it."""
    _check_read(host, one.volumes, f"snapshot {one.name}", problems)
    _check_known(one, problems)


def _more(names: t.Sequence[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def _check_known(one: ListedSnapshot, problems: Problems) -> None:
    for why in one.off:
        text = f"snapshot {one.name} has a disk that cannot be reached: {why}; make it available first"
        problems.add("NotSupported", f"{text}: qm would end in the middle, and leave the VM locked")
    if one.beyond:
        text = f"snapshot {one.name} also has {', '.join(one.beyond)}, of which nothing is known here"
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
