# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the steps of detached disks: create, copy and resize them."""

from __future__ import annotations

import typing as t
import uuid
from dataclasses import replace

from ...model.dataset import Dataset
from ...model.sizes import MIB
from ...model.vm import FILE
from ...plan.disk_steps import CreateDetached, EndConversion, FinishDetached, ResizeDetached
from ...rules import identity
from ...rules.layout import container
from ...zfs.guard import SNAPSHOT, lift
from . import file_disks, renames
from .perform import Change, Tools, stamp
from .volumes import RESERVATION, Properties, confirm_origin, make_disk


def create(step: CreateDetached, tools: Tools, change: Change) -> None:
    """Create a disk with its identity from the start. If that takes several commands, it is marked until the last."""
    pool, new_uuid = change.vm.root.pool, str(uuid.uuid4())
    tools.make_container(pool)
    step = replace(step, volume=f"{container(pool)}/{new_uuid}")
    facts = {**step.facts, **stamp({}), "uuid": new_uuid}
    if not (step.copy_of or step.origin):
        make_disk(step, tools, facts, change.geometry)
        return
    confirm_origin(tools, step.copy_of or step.origin, step.origin_guid)
    if step.copy_of:
        _copy(tools, step.copy_of, step.volume, {**facts, "from": identity.IMPORTING})
    else:
        options = {"compression": step.own_compression} if step.own_compression else {}
        tools.zfs.clone(step.origin, step.volume, options, {**facts, "from": identity.IMPORTING})
    _end(tools, tools.read(step.volume), step.size_mib, step.type)
    if step.copy_of and step.own_compression:
        tools.zfs.set(step.volume, compression=step.own_compression)


def _copy(tools: Tools, source: str, volume: str, facts: t.Mapping[str, str]) -> None:
    """Copy a snapshot, or a disk by way of a temporary snapshot."""
    copied = f"{volume}@{SNAPSHOT}"
    if "@" in source:
        tools.zfs.copy(source, copied, facts)
        return
    snapshot = f"{source}@{SNAPSHOT}"
    lift(tools.zfs, source)
    tools.zfs.snapshot(snapshot)
    try:
        tools.zfs.copy(snapshot, copied, facts)
    finally:
        lift(tools.zfs, source)


def _end(tools: Tools, volume: Dataset, size: int, kind: str) -> None:
    """Finish the creation of a disk that has all its data: set size (MiB) and reservation, remove guard and mark."""
    lift(tools.zfs, volume.name)
    new_size: Properties = {} if volume.volsize == size * MIB else {"volsize": size * MIB}
    tools.zfs.set(volume.name, **new_size, **RESERVATION[kind])
    tools.zfs.set_facts(volume.name, {"from": ""})


def finish(step: FinishDetached, tools: Tools, change: Change) -> None:
    _end(tools, tools.read(step.volume, step.guid), step.size_mib, step.type)


def end_conversion(step: EndConversion, tools: Tools, change: Change) -> None:
    now = tools.read(step.volume, step.guid)
    if step.target != step.volume:
        renames.rename(tools.zfs, step.volume, step.target)
    tools.zfs.set_facts(step.target, {key: v for key, v in step.facts.items() if v or key in now.user})


def resize(step: ResizeDetached, tools: Tools, change: Change) -> None:
    now, size = tools.read(step.volume, step.guid), step.size_mib * MIB
    if step.type == FILE:
        file_disks.resize(tools.zfs, now, size, change.geometry)
    else:
        tools.zfs.set(now.name, volsize=size, **RESERVATION[step.type])
    tools.zfs.set_facts(now.name, stamp(now.user))
