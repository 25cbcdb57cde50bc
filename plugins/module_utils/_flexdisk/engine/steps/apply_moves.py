# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the steps of disks that leave a VM or come to one."""

from __future__ import annotations

import contextlib
import typing as t
import uuid

from ...model.dataset import DatasetId
from ...model.errors import FlexdiskError
from ...model.vm import FILE
from ...plan.disk_steps import (
    AttachDisk,
    Attachment,
    CreateDisk,
    Destroy,
    DestroyDetached,
    Detach,
    DiskDeparture,
    ForgetDisk,
)
from ...rules import disk_element, identity
from ...rules.layout import image_of, pool_of
from ...rules.usage import uses
from ...zfs import exact
from ...zfs.guard import Guard
from . import file_disks, renames
from .perform import Change, Tools, stamp
from .volumes import destroy_volume, full_names, make_disk, resize_before_move, resize_file_after_move

# A disk as drivers take it.
Entry = t.Dict[str, t.Union[str, int, bool, t.Tuple[str, ...]]]

# -- disks that go


def _remove_from_vm(step: DiskDeparture, tools: Tools, change: Change, facts: t.Mapping[str, str]) -> None:
    """Remove a disk from its VM. If the hypervisor destroys volumes that it forgets, the volume is renamed first.

    facts: properties for the renamed volume.
    """
    vm, root, zfs = change.vm, change.vm.root, tools.zfs
    tools.make_container(pool_of(step.target))
    tools.read(step.volume, step.guid)
    if not tools.capabilities.removal_destroys:
        if step.path:
            tools.hypervisor.forget_disk(vm.config.uuid, step.path)
        elif not vm.config.prefixes and step.volume in uses(tools.hypervisor.vm(vm.config.uuid)):
            raise FlexdiskError("Changed", f"the VM uses {step.volume} since it was read")
        used = tools.read(step.volume, step.guid).used
        tools.lower_reservation(vm, used)
        with contextlib.ExitStack() if step.path else tools.unused(vm, step.volume):
            renames.rename_out(zfs, step.volume, step.target)
        zfs.set_facts(step.target, facts)
        if vm.config.prefixes:
            tools.hypervisor.forget_disk(vm.config.uuid, tools.capabilities.device_prefix + step.volume)
        return
    with Guard(zfs, tools.library) as guard:
        guard.protect(step.volume, step.newest)
        tools.guards.add(guard.backend)
        used = tools.read(step.volume, step.guid).used
        zfs.set(root.name, reservation=max(0, root.reservation - used))
        guard.moving(step.target)
        renames.rename(zfs, step.volume, step.target)
        zfs.set_facts(step.target, facts)
        if step.path:
            tools.hypervisor.forget_disk(vm.config.uuid, step.path)


def detach(step: Detach, tools: Tools, change: Change) -> None:
    vm = change.vm
    disk = next(d for d in vm.disks + vm.orphans if d.volume.name == step.volume)
    facts = {**step.facts, **stamp(disk.volume.user)}
    nameless = not facts.get("name", "-")
    if nameless:
        # Nothing would match an attached disk without a name after an interruption, so the name goes later. It goes
        # before the VM forgets the disk: until then, the configuration shows which disk it is.
        del facts["name"]
    tools.zfs.set_facts(step.volume, facts)
    for old_name, new_name in step.renames:
        renames.rename_snapshot(tools.zfs, step.volume, old_name, new_name)
    _remove_from_vm(step, tools, change, {"name": ""} if nameless else {})
    tools.settle(change.after)


def destroy(step: Destroy, tools: Tools, change: Change) -> None:
    # If a run is interrupted from here on, the disk is found by its identity, and destroyed if that is still declared.
    exact.confirm(tools.zfs, DatasetId(step.volume, step.guid), (), full_names(step.volume, step.snapshots))
    tools.zfs.set_facts(step.volume, step.facts)
    _remove_from_vm(step, tools, change, {})
    destroy_volume(tools, DatasetId(step.target, step.guid), step.snapshots)
    tools.settle(change.after)


def destroy_detached(step: DestroyDetached, tools: Tools, change: Change) -> None:
    destroy_volume(tools, DatasetId(step.volume, step.guid), step.snapshots, step.on_hold)
    if change.after.orphans != change.vm.orphans:
        tools.settle(change.after)


def forget_disk(step: ForgetDisk, tools: Tools, change: Change) -> None:
    if tools.zfs.exists(step.volume):
        raise FlexdiskError("Changed", f"{step.volume} exists again since the host was read")
    tools.hypervisor.forget_disk(change.vm.config.uuid, step.path)


# -- disks that come


def attach_disk(step: AttachDisk, tools: Tools, change: Change) -> None:
    zfs, volume = tools.zfs, step.attached.volume
    now = tools.read(step.source, step.guid)
    with tools.unused(change.vm, step.source):
        after_move = resize_before_move(step, tools, change.geometry)
    tools.make_room(change.after)
    if step.source != step.volume:
        renames.rename(zfs, step.source, step.volume)
    if after_move:
        zfs.set(step.volume, **after_move)
    if step.compression != volume.compression:
        zfs.set(step.volume, compression=step.compression)
    if step.type == FILE:
        resize_file_after_move(step, tools, change.geometry)
    marks = {key: "" for key in file_disks.COPY_MARKS if now.user.get(key, identity.MAKING) != identity.MAKING}
    marks.update({disk_element.ELEMENT_PROPERTY: ""} if disk_element.ELEMENT_PROPERTY in now.user else {})
    zfs.set_facts(step.volume, {**step.facts, **stamp(volume.user)})
    _configure(tools, change, step.attachment, volume.origin, step.attached.image_size)
    # The marks stay until the VM has the disk, because they say what it was in the VM.
    zfs.set_facts(step.volume, marks)


def create_disk(step: CreateDisk, tools: Tools, change: Change) -> None:
    disk_uuid = step.attachment.uuid or str(uuid.uuid4())
    tools.make_room(change.after)
    make_disk(step, tools, {**step.facts, **stamp({}), "uuid": disk_uuid}, change.geometry)
    _configure(tools, change, step.attachment._replace(uuid=disk_uuid), step.origin, step.image_size_mib)
    if disk_element.ELEMENT_PROPERTY in step.facts:
        tools.zfs.set_facts(step.volume, {disk_element.ELEMENT_PROPERTY: ""})


def _configure(tools: Tools, change: Change, attachment: Attachment, origin: str, image_size_mib: int) -> None:
    entry = entry_of(attachment)
    image = image_of(origin)
    if image and image_size_mib:
        entry.update(image_uuid=image, image_size=image_size_mib)
    tools.hypervisor.attach_disk(change.vm.config.uuid, entry)
    tools.settle(change.after)


def entry_of(attachment: Attachment) -> Entry:
    """Return the entry of a disk for the driver; size is MiB."""
    return {
        "path": attachment.path,
        "size": attachment.size_mib,
        "model": attachment.model,
        "boot": attachment.boot,
        "pci_slot": attachment.pci_slot,
        "uuid": attachment.uuid,
        "element": attachment.element.text,
        "without": attachment.without,
    }
