# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The invariants. Each compares pictures of the node, and is broken by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from .picture import MIB, Picture, Volume, same
from .words import Allowance, Spec, named, vm_of


class Broken(AssertionError):
    """An invariant does not hold; the message starts with its name."""

    def __init__(self, invariant: str, details: str) -> None:
        super().__init__(f"{invariant}: {details}")


INVARIANTS = {
    "LOSS": "nothing is lost that nobody gave up by name: volumes, their contents, their snapshots",
    "LAW": "quota and reservation follow the formula after every successful run",
    "SLOT": "no two disks of a VM have one slot",
    "STICKY": "a disk keeps its slot, and finds it again after it was detached",
    "IDENTITY": "the uuid of a disk never changes",
    "FIGURES": "free_space and allocatable are what the node has",
    "IDLE": "the same declaration again changes nothing, whatever guests and snapshots did meanwhile",
    "PREDICTION": "check mode says what the real run does, and changes nothing",
    "WANTED": "a successful run leaves what was declared",
    "FINISHED": "what is planned is done without failure, and after a crash the same declaration ends well",
    "POWER": "a VM runs afterwards if it ran before",
}


def demand(holds: object, invariant: str, details: object = "") -> None:
    assert invariant in INVARIANTS
    if not holds:
        raise Broken(invariant, str(details))


def no_loss(before: Picture, after: Picture, allowed: Allowance) -> None:
    for guid, volume_before in before.volumes.items():
        new = after.volumes.get(guid)
        if new is None:
            demand(guid in allowed.destroyed, "LOSS", f"{volume_before.name} ({volume_before.disk_name}) was destroyed")
            demand(
                not volume_before.snaps or guid in allowed.bare, "LOSS", f"{volume_before.name} went with its snapshots"
            )
            continue
        _contents(volume_before, new, allowed)
        for snap in volume_before.snaps.values():
            snapshot_now = new.snaps.get(snap.guid)
            demand(snapshot_now or snap.guid in allowed.snapshots, "LOSS", f"{volume_before.name}@{snap.name} is gone")
            is_intact = snapshot_now is None or (
                snapshot_now.size == snap.size and same(snapshot_now.extents, snap.extents, snap.size)
            )
            demand(is_intact, "LOSS", f"{volume_before.name}@{snap.name} changed")


def _contents(volume_before: Volume, volume_now: Volume, allowed: Allowance) -> None:
    guid = volume_before.guid
    if guid in allowed.rolled:
        snap = allowed.rolled[guid]
        exact = volume_now.size == snap.size and same(volume_now.extents, snap.extents, snap.size)
        demand(exact, "LOSS", f"{volume_before.name} is not what its snapshot {snap.name} holds")
        return
    demand(
        volume_now.size >= volume_before.size or guid in allowed.shrunk, "LOSS", f"{volume_before.name} was shortened"
    )
    if guid not in allowed.written:
        common = min(volume_before.size, volume_now.size)
        demand(
            same(volume_before.extents, volume_now.extents, common), "LOSS", f"{volume_before.name} has other contents"
        )
        demand(
            same([], volume_now.extents, volume_now.size, common),
            "LOSS",
            f"{volume_before.name} has contents in its new part",
        )


def law(after: Picture, vm: str) -> None:
    machine, wanted = after.vms[vm], after.law(vm)
    actual = (machine.quota, machine.reservation)
    if machine.flexible is None:
        demand(min(actual) >= wanted, "LAW", f"{actual} is below {wanted}")
        return
    demand(actual == (wanted, wanted), "LAW", f"{actual} is not {wanted}")
    for volume in after.below(vm):
        demand(volume.refreservation in (0, volume.auto), "LAW", f"{volume.name} has {volume.refreservation}")


def slots_differ(after: Picture) -> None:
    for vm in after.vms:
        taken = [device["pci_slot"] for device in after.vms[vm].devices]
        demand(len(taken) == len(set(taken)), "SLOT", taken)


def slots_stick(before: Picture, after: Picture, specs: Sequence[Spec]) -> None:
    asked = {guid for spec in specs for guid in _asked(before, vm_of(before, spec), spec)}
    for vm in after.vms:
        taken = {device["pci_slot"]: volume.guid for volume, device in after.attached(vm)}
        for volume, device in after.attached(vm):
            volume_before = before.volumes.get(volume.guid)
            if volume_before is None or volume.guid in asked:
                continue
            if volume_before.detached:
                slot = volume_before.user.get("slot", "")
                free = not slot or taken.get(slot, volume.guid) == volume.guid
                demand(not free or slot in ("", device["pci_slot"]), "STICKY", f"{volume.name} did not come back")
            elif volume_before.vm == vm and before.vms[vm].device_of(volume_before):
                slot = (before.vms[vm].device_of(volume_before) or {})["pci_slot"]
                demand(slot == device["pci_slot"], "STICKY", f"{volume.name} left {slot}")


def _asked(before: Picture, vm: str, spec: Spec) -> Iterator[int]:
    """The disks whose entries name a slot; one without a name may be told by its size, too."""
    for entry in spec.get("disks") or []:
        if entry.get("pci_slot") is not None:
            yield from (v.guid for v in named(before, vm, entry))
            size = entry["size"] * MIB if isinstance(entry.get("size"), int) else 0
            yield from (v.guid for v in before.below(vm) if not v.disk_name and v.size == size)


def identity_stays(known: dict[int, str], after: Picture) -> None:
    """known remembers every uuid that a disk was ever seen with."""
    for guid, volume in after.volumes.items():
        uuid = after.uuid(volume)
        if uuid:
            demand(known.setdefault(guid, uuid) == uuid, "IDENTITY", f"{volume.name}: {known[guid]} became {uuid}")
        stored_uuid = volume.user.get("uuid", uuid)
        demand(stored_uuid in ("", uuid), "IDENTITY", f"{volume.name} carries {stored_uuid}")
    uuids = [uuid for guid, uuid in known.items() if guid in after.volumes]
    demand(len(uuids) == len(set(uuids)), "IDENTITY", f"one uuid on two disks: {uuids}")


def figures(after: Picture, results: Sequence[dict[str, Any]], lawful: bool) -> None:
    for result in results:
        vm = result["uuid"]
        for key, figure in (("free_space", after.free_space(vm)), ("allocatable", after.allocatable(vm))):
            reported = None if figure is None else figure // MIB
            demand(result[key] == reported, "FIGURES", f"{key} of {vm} is {reported}, told {result[key]}")
        room = after.allocatable(vm)
        thick = all(volume.refreservation for volume in after.below(vm))
        if lawful and thick and room is not None:
            demand(after.room(vm) == room, "FIGURES", f"ZFS gives {after.room(vm)}, promised {room}")


def wanted(before: Picture, after: Picture, spec: Spec) -> None:
    vm = vm_of(after, spec)
    machine = after.vms[vm]
    if spec.get("flexible_disk_size") is not None:
        demand(machine.flexible == spec["flexible_disk_size"] * MIB, "WANTED", f"F is {machine.flexible}")
    if spec.get("disks") is None:
        return
    listed = {guid for entry in spec["disks"] for guid in [_entry(before, after, vm, entry)] if guid}
    if spec.get("unlisted", "refuse") != "keep":
        rest = [v.name for v, device in after.attached(vm) if v.guid not in listed and not device["boot"]]
        demand(not rest, "WANTED", f"not listed, and attached: {rest}")


def _entry(before: Picture, after: Picture, vm: str, entry: Spec) -> int:
    """The guid of the entry's disk, 0 for one that is absent as it should be."""
    if entry.get("state") == "absent":
        left = [v for v in named(before, vm, entry) if v.guid in after.volumes]
        demand(not left, "WANTED", f"{entry} is there")
        return 0
    matches = [
        (v, d)
        for v, d in after.attached(vm)
        if (v.disk_name == entry["name"] if entry.get("name") else d.get("uuid") == entry["uuid"])
    ]
    demand(len(matches) == 1, "WANTED", f"{entry} is {[v.name for v, _d in matches]}")
    volume, device = matches[0]
    size, volume_before = entry.get("size"), before.volumes.get(volume.guid)
    if size == "remaining" and (volume_before is None or volume_before.detached):
        demand(0 <= (after.allocatable(vm) or 0) < MIB, "WANTED", f"{entry} leaves {after.allocatable(vm)}")
    demand(not isinstance(size, int) or volume.size == size * MIB, "WANTED", f"{entry} has {volume.size}")
    reported = {
        "pci_slot": device["pci_slot"],
        "model": device["model"],
        "block_size": volume.block,
        "preserve": volume.preserve,
        "description": unquote(volume.user.get("description", "")),
        "compression": volume.compression,
    }
    for key, value in reported.items():
        demand(entry.get(key) in (None, value), "WANTED", f"{entry}: {key} is {value}")
    return volume.guid
