# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a declaration gives up, judged by its words alone: which disks may go, which may lose their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .picture import Picture, Snap, Volume

Spec = dict[str, Any]


@dataclass
class Allowance:
    """guids of volumes that may be lost (with their snapshots if in bare), become shorter, or change by a guest's
    write; what a rollback brings back; guids of snapshots that may go.
    """

    destroyed: set[int] = field(default_factory=set)
    bare: set[int] = field(default_factory=set)
    shrunk: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    rolled: dict[int, Snap] = field(default_factory=dict)
    snapshots: set[int] = field(default_factory=set)


def given_up(picture: Picture, specs: Sequence[Spec]) -> Allowance:
    """What these declarations permit together."""
    allowed = Allowance()
    for spec in specs:
        vm = vm_of(picture, spec)
        for entry in spec.get("disks") or []:
            for volume in named(picture, vm, entry):
                _entry(picture, vm, entry, volume, allowed)
        if spec.get("unlisted") == "destroy":
            allowed.destroyed |= {v.guid for v in _unlisted(picture, vm, spec) if not v.preserve}
    return allowed


def vm_of(picture: Picture, spec: Spec) -> str:
    return next(vm.uuid for vm in picture.vms.values() if spec["vm"] in (vm.uuid, vm.alias))


def named(picture: Picture, vm: str, entry: Spec) -> Iterator[Volume]:
    """The disks that an entry can mean: by uuid, by name, and one without a name by its slot or as the boot disk."""
    if entry.get("uuid"):
        yield from (v for v in picture.of(vm) + picture.detached() if picture.uuid(v) == entry["uuid"])
        return
    yield from (v for v in picture.of(vm) if v.disk_name == entry["name"])
    for volume, device in picture.attached(vm):
        wanted = entry.get("pci_slot") == device["pci_slot"] or (entry.get("boot") and device["boot"])
        if not volume.disk_name and wanted and entry.get("state") != "absent":
            yield volume


def _entry(picture: Picture, vm: str, entry: Spec, volume: Volume, allowed: Allowance) -> None:
    machine = picture.vms[vm]
    if (machine.device_of(volume) or {}).get("boot") and volume.vm == vm:
        gone = False
    elif entry.get("state") == "absent":
        gone = True
    else:
        fixed = entry.get("block_size") is not None or entry.get("image") is not None
        gone = bool(entry.get("recreate")) and fixed and not volume.preserve
    if gone:
        allowed.destroyed.add(volume.guid)
        if entry.get("destroy_snapshots"):
            allowed.bare.add(volume.guid)
    if entry.get("dangerous_allow_shrink") and entry.get("state") != "absent":
        allowed.shrunk.add(volume.guid)


def _unlisted(picture: Picture, vm: str, spec: Spec) -> Iterator[Volume]:
    entries = spec.get("disks") or []
    names = {entry.get("name") for entry in entries}
    uuids = {entry.get("uuid") for entry in entries}
    for volume, device in picture.attached(vm):
        known = volume.disk_name or volume.user.get("uuid")
        if known and not device["boot"] and volume.disk_name not in names and device.get("uuid") not in uuids:
            yield volume
