# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reasons why a VM cannot be moved to another host, as far as its present host knows them."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from ..model.errors import Problem
from ..model.sizes import MIB, render_apart, render_bytes, render_exact
from ..model.text import cut
from ..model.vm import SAVED, SAVED_STATE, Disk, Vm
from ..rules import exchange, pins, snapshots, space, usage
from ..rules.inventory import Host
from ..rules.keys import leaves_its_root
from ..rules.layout import container, disk_dataset, index_of, replicas_container
from ..rules.unmanaged import unmanaged

_SHOWN = 5


def refusals(host: Host, vm: Vm, stays: t.Sequence[str]) -> t.List[Problem]:
    """Return why a VM cannot be moved, without what the sync reports. stays: host_bound of its Description."""
    if vm.overlaid:
        return [Problem("InUse", vm.overlaid, vm.label)]
    saved = [SAVED_STATE] if vm.config.state == SAVED else []  # power_problem says so, with what helps
    result = _of_vm(host, vm, [text for text in stays if text not in saved])
    for disk in vm.disks:
        result += _of_disk(host, vm, disk)
    taken = snapshots.snapshots_of(vm)
    result += _of_snapshots(vm, taken)
    odd = [*(disk.volume.name for disk in vm.orphans), *vm.missing, *vm.unread]
    begun = exchange.why_refused(vm)
    if begun:
        text = f"{begun}. If another host has the VM as well, give --limit with this host, too"
        result.append(Problem("InUse", text, vm.label))
    elif odd:
        result.append(Problem("InUse", f"it is not whole: {', '.join(odd)}; vm_disks puts it right", vm.label))
    pinned = [one.name for one in strange_snapshots(vm) if one.clones or one.userrefs]
    if pinned:
        message = (
            f"{', '.join(pinned)} has clones or holds, and would go with the VM's own dataset, which does not travel"
        )
        result.append(Problem("InUse", message, vm.label))
    state = usage.power_problem(vm)
    if state:
        result.append(Problem("VmInTransition", state, vm.label))
    result += [Problem("NotSupported", f"{text}; it does not travel", vm.label) for text in _staying(vm)]
    result += _of_clones(vm)
    result += _of_room(vm)
    if vm.other_used:
        result.append(Problem("NotSupported", f"it has {_others(host, vm)}, which do not travel", vm.label))
    if vm.interrupted is not None and not begun:
        result.append(Problem("InUse", "a task was interrupted; run it again first", vm.label))
    return result


def _others(host: Host, vm: Vm) -> str:
    """Return the VM's datasets that are not its disks."""
    every = (d for d in host.datasets.values() if d.kind == "filesystem" and d.parent == vm.root.name and not d.backs)
    return f"other datasets ({', '.join(cut(sorted(d.name for d in every), 'dataset', _SHOWN))})"


def strange_snapshots(vm: Vm) -> t.List[Dataset]:
    """Return the snapshots that others took of the VM's own dataset. They stay, and are destroyed with it."""
    known = [snapshots.protection(vm), *(part for one in snapshots.snapshots_of(vm) for part in one.parts)]
    return [one for one in vm.snapshots if one not in known]


def _of_vm(host: Host, vm: Vm, stays: t.Sequence[str]) -> t.List[Problem]:
    result = []
    if stays:
        text = f"it has what does not travel to another host: {', '.join(stays)}"
        result.append(Problem("NotSupported", text, vm.label))
    if not vm.flexible:
        text = "it has no flexible_disk_size, and no disk can be attached to such a VM; vm_disks gives it one"
        result.append(Problem("VmWithoutFlexibleDiskSize", text, vm.label))
    if vm.config.frozen and vm.config.uuid not in host.moves:
        result.append(Problem("NotSupported", vm.config.frozen, vm.label))
    return result


def _of_disk(host: Host, vm: Vm, disk: Disk) -> t.Iterator[Problem]:
    if disk.hidden:
        if disk.volume.name != disk_dataset(vm.root.name, index_of(disk.volume.name)):
            text = f"{disk.volume.name} is a disk of the platform, and lies where it cannot be made again"
            yield Problem("NotSupported", text, vm.label, disk.label)
        return
    if not disk.uuid:
        yield Problem("NotSupported", "it has no uuid yet; vm_disks gives it one", vm.label, disk.label)
    if vm.config.models and disk.model not in vm.config.models:
        text = f"it is on the bus {disk.model}; only disks on {' or '.join(vm.config.models)} travel"
        yield Problem("NotSupported", text, vm.label, disk.label)
    others = host.usage.of(disk.volume.name, vm.config.uuid)
    if others:
        text = f"{disk.volume.name} is used by {usage.labels(others)} as well"
        yield Problem("InUse", text, vm.label, disk.label)
    above = host.datasets.get(container(vm.config.pool)) or host.datasets[vm.config.pool]
    if leaves_its_root(disk.volume, above):
        text = f"it has its key from {disk.volume.encryptionroot}, and could not become a replica below {above.name}"
        text += f", whose encryption root is {above.encryptionroot or 'none'}"
        yield Problem("EncryptionRoot", text, vm.label, disk.label)
    place = f"{replicas_container(vm.config.pool)}/{disk.uuid}"
    if place in host.datasets:
        text = f"{place} exists, where its own replica would be; disk_verify says what it is"
        yield Problem("AlreadyExists", text, vm.label, disk.label)


def _staying(vm: Vm) -> t.Iterator[str]:
    """Yield what the VM has besides its disks on volumes: disks that are not managed, drives, and files."""
    yield from unmanaged(vm)
    for entry in (entry for entry in vm.unbacked if not entry.left_out):
        media = {"cdrom": "CD-ROM", "floppy": "floppy disk", "disk": "file"}.get(entry.media, entry.media)
        yield f"it has a {media} ({entry.path})" if entry.path not in ("", "none") else f"it has a {media} drive"


def _of_snapshots(vm: Vm, taken: t.Iterable[snapshots.VmSnapshot]) -> t.Iterator[Problem]:
    going = {disk.volume.name for disk in vm.disks if not disk.hidden}
    for one in taken:
        used = [part.name for part in one.parts if part.parent not in going and (part.clones or part.userrefs)]
        if not snapshots.is_complete(vm, one):
            text = f"{one.parts[0].name} is all that is left of snapshot {one.name}; vm_snapshot deletes it"
            yield Problem("NotSupported", text, vm.label)
        elif used:
            text = f"{', '.join(used)} has clones or holds, and cannot be destroyed here"
            yield Problem("InUse", text, vm.label)


def _of_room(vm: Vm) -> t.Iterator[Problem]:
    """Yield a problem if the VM holds too much because of others' snapshots: it would not fit elsewhere."""
    lacks = -(space.allocatable(vm) or 0)
    others = [part.name for disk in vm.disks for part in disk.snapshots if snapshots.is_of_others(part.name)]
    if lacks > 0 and others:
        text = f"its disks and snapshots take {render_bytes(lacks)} more than flexible_disk_size"
        yield Problem("InsufficientSpace", text + snapshots.foreign_snapshots_text(others), vm.label)


def _of_clones(vm: Vm) -> t.Iterator[Problem]:
    more, room = pins.of_origins(vm), max(0, space.allocatable(vm) or 0)
    if more > room:
        min_mib = space.smallest_flexible_mib(vm) + -(-more // MIB) - vm.hidden_mib
        text = "disks that are clones of images are none there, so their snapshots need %s more, and %s is left"
        text += f"; flexible_disk_size must be at least {render_exact(min_mib)}"
        yield Problem("InsufficientSpace", text % render_apart(more, room), vm.label)
