# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the exchange of volumes. Each part looks where the volumes are, so an interrupted one goes on."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...plan.disk_steps import Exchanged, ExchangeDisks
from ...rules.exchange import EXCHANGE, READY
from . import renames
from .perform import Change, Performers, Tools, stamp
from .volumes import RESERVATION, Properties, is_auto


def exchange_disks(step: ExchangeDisks, tools: Tools, change: Change) -> None:
    """Exchange all volumes. The marks are there from before the first rename until after the last one."""
    tools.make_container(change.vm.root.pool)
    for one in step.exchanged:
        _prepare(one, tools, change)
    for one in step.exchanged:
        _take_out(one, tools, change)
        _put_in(one, tools, change)
        _name_former(one, tools)
    for one in step.exchanged:
        tools.zfs.set_facts(one.place, {READY: "", EXCHANGE: ""})
    tools.settle(change.after)


def _find(tools: Tools, guid: int, names: t.Sequence[str]) -> str:
    """Return the one of these names that the volume with this guid has. Raises FlexdiskError Changed if it has none."""
    for name in names:
        if tools.zfs.exists(name) and tools.read(name).guid == guid:
            return name
    raise FlexdiskError("Changed", f"the volume with the guid {guid} is none of {', '.join(names)} any more")


def _prepare(one: Exchanged, tools: Tools, change: Change) -> None:
    """Give the restored volume the size, type and settings of the other one, and mark it."""
    former = _find(tools, one.former_guid, (one.place, one.aside, one.spare))
    name = _find(tools, one.restored_guid, (one.spare, one.place))
    if name == one.place:
        return
    now = tools.read(name)
    renames.copy_values(tools.zfs, former, name)
    resized: Properties = {"volsize": one.size_bytes} if now.volsize != one.size_bytes else {}
    fits = is_auto(now, change.geometry) if one.type == "thick" else not now.refreservation
    if resized or not fits:
        tools.zfs.set(name, **resized, **RESERVATION[one.type])
    if now.user.get(EXCHANGE) != one.mark:
        tools.zfs.set_facts(name, {EXCHANGE: one.mark})


def _take_out(one: Exchanged, tools: Tools, change: Change) -> None:
    """Move the former volume out of the VM. It keeps the identity of the disk until the other one has it."""
    if _find(tools, one.former_guid, (one.place, one.aside, one.spare)) != one.place:
        return
    zfs, root = tools.zfs, change.vm.root
    zfs.set_facts(one.place, one.facts_leaving)
    for old_name, new_name in one.renames:
        renames.rename_snapshot(zfs, one.place, old_name, new_name)
    reserved = tools.read(root.name).reservation
    zfs.set(root.name, reservation=max(0, reserved - tools.read(one.place).used))
    if tools.capabilities.removal_destroys:
        renames.rename(zfs, one.place, one.aside)
    else:
        renames.rename_out(zfs, one.place, one.aside)


def _put_in(one: Exchanged, tools: Tools, change: Change) -> None:
    """Move the restored volume into the VM, and give it the identity of the disk."""
    if _find(tools, one.restored_guid, (one.spare, one.place)) == one.spare:
        tools.zfs.set(change.vm.root.name, quota=max(change.vm.root.quota, change.after.root.quota))
        renames.rename(tools.zfs, one.spare, one.place)
    if not tools.capabilities.removal_destroys:
        tools.zfs.await_device(one.place)  # the VM is started right after this
    if one.facts:
        tools.zfs.set_facts(one.place, {**one.facts, **stamp(one.facts)})


def _name_former(one: Exchanged, tools: Tools) -> None:
    """Give the former volume the identity that the restored one had, and the place."""
    name = _find(tools, one.former_guid, (one.aside, one.spare))
    user = tools.read(name).user
    if {key: user.get(key, "") for key in one.facts_former} != dict(one.facts_former):
        tools.zfs.set_facts(name, {**one.facts_former, **stamp(user)})
    if name != one.spare:
        renames.rename(tools.zfs, name, one.spare)


PERFORM_EXCHANGE: Performers = {ExchangeDisks: exchange_disks}
