# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the steps of disks that stay in their VM: size, type, properties."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...model.sizes import MIB, render_apart
from ...model.vm import SPARSE, THICK
from ...plan.disk_steps import (
    Convert,
    Copying,
    DiscardCopy,
    EditDisks,
    LiftGuard,
    Resize,
    SetCompression,
    SyncFacts,
    WriteIdentity,
)
from ...rules import identity, released_identity
from ...rules.layout import is_partial_copy
from ...rules.space import expected_quota
from ...zfs.commands import Zfs
from ...zfs.guard import lift
from . import file_disks
from .perform import Change, Tools, stamp
from .storage import storage_of
from .volumes import RESERVATION, destroy_volume, is_auto


def resize(step: Resize, tools: Tools, change: Change) -> None:
    vm, after, geometry = change
    size = step.size_mib * MIB
    storage_of(tools).resize(step, tools.read(step.volume, step.guid), change)
    now = tools.read(step.volume, step.guid)
    if now.volsize != size:
        wanted, actual = render_apart(size, now.volsize)
        raise FlexdiskError("NotApplied", f"{now.name} should have {wanted} and has {actual}")
    wrong_reservation = step.type == THICK and not is_auto(now, geometry)
    if wrong_reservation:
        tools.zfs.set(now.name, refreservation="auto")
    # vmadm changes quota and reservation by the change of the overhead, whatever they were before.
    if (
        wrong_reservation
        or not tools.capabilities.keeps_storage
        or (vm.flexible and vm.root.quota != expected_quota(vm, geometry))
    ):
        tools.settle(after)
    tools.zfs.set_facts(now.name, stamp(now.user))


def convert(step: Convert, tools: Tools, change: Change) -> None:
    """Convert a disk. The property that says it is sparse is set whenever the disk has no reservation."""
    if step.copying is not None:
        _convert_by_copy(step, step.copying, tools, change)
        return
    now, fact = tools.read(step.volume, step.guid), identity.type_fact(step.type)
    if step.type == SPARSE:
        tools.zfs.set_facts(now.name, fact)
    tools.zfs.set(now.name, **RESERVATION[step.type])
    tools.zfs.set_facts(now.name, {**fact, **stamp(now.user)})


def _convert_by_copy(step: Convert, copying: Copying, tools: Tools, change: Change) -> None:
    now = tools.read(step.volume, step.guid)
    tools.make_container(now.pool)
    file_disks.copy(tools.zfs, now, step.type, copying, stamp(now.user), change.geometry)
    destroy_volume(tools, now.dataset_id, copying.snapshots)
    file_disks.replace_original(tools.zfs, copying.partial_copy, now)


def discard_copy(step: DiscardCopy, tools: Tools, change: Change) -> None:
    copy, original = tools.read(step.partial_copy), tools.read(step.volume, step.guid)
    if not is_partial_copy(original, copy):
        raise FlexdiskError("Changed", f"{copy.name} changed since it was read: it is not a copy of {original.name}")
    file_disks.discard(tools.zfs, copy)


def edit_disks(step: EditDisks, tools: Tools, change: Change) -> None:
    vm = change.vm
    tools.hypervisor.edit_disks(vm.config.uuid, [dict(edit.changes, path=edit.path) for edit in step.edits])
    for volume in (v for v in vm.volumes if v.name in step.volumes and released_identity.has_whole_identity(v)):
        tools.zfs.set_facts(volume.name, stamp(volume.user))


def set_compression(step: SetCompression, tools: Tools, change: Change) -> None:
    storage_of(tools).set_compression(step, change.vm)
    tools.zfs.set_facts(step.volume, stamp(tools.read(step.volume).user))


def write_identity(step: WriteIdentity, tools: Tools, change: Change) -> None:
    vm = change.vm
    known = next((d.volume for d in vm.disks + vm.orphans + vm.detached if d.volume.name == step.volume), None)
    volume = known or tools.read(step.volume)
    facts = {**stamp(volume.user), **step.facts}
    if facts.get(released_identity.RELEASED_PROPERTY) == "" and released_identity.RELEASED_PROPERTY in volume.user:
        _replace_saved(tools.zfs, step.volume, facts)
    else:
        tools.zfs.set_facts(step.volume, facts)


def _replace_saved(zfs: Zfs, volume: str, facts: t.Mapping[str, str]) -> None:
    """Write an identity. The saved one is removed only after the new one could be read back."""
    written = {key: value for key, value in facts.items() if value}
    zfs.set_facts(volume, written)
    if dict(zfs.local_facts(volume, [*written])) != written:
        text = f"the identity of {volume} was not written, although zfs reported no error; the saved one is kept"
        raise FlexdiskError("NotApplied", text)
    zfs.set_facts(volume, {key: value for key, value in facts.items() if not value})


def sync_facts(step: SyncFacts, tools: Tools, change: Change) -> None:
    tools.zfs.set_facts(step.volume, step.facts)


def lift_guard(step: LiftGuard, tools: Tools, change: Change) -> None:
    lift(tools.zfs, step.volume)
