# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Disks as objects of their own: what an entry may say of one, and which disk it means."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.desired import DiskWish
from ..model.errors import FlexdiskError, Problem
from ..model.vm import Disk, Vm
from . import identity, slots
from .declaration import Collector, disk_spec
from .inventory import Host
from .released_identity import MOST_SERIAL

_Raw = t.Mapping[str, t.Any]

# What an entry can say besides which disk it means, and the states that take it.
_OF_STATE = {
    "size": ("present", "attached"),
    "image": ("present",),
    "block_size": ("present",),
    "type": ("present", "attached"),
    "source": ("present",),
    "source_snapshot": ("present",),
    "model": ("present", "attached"),
    "compression": ("present", "attached"),
    "preserve": ("present", "attached"),
    "description": ("present", "attached"),
    "tags": ("present", "attached"),
    "dangerous_allow_shrink": ("present", "attached"),
    "from_vm": ("attached",),
    "take": ("attached",),
    "destroy_snapshots": ("absent",),
    "release_holds": ("absent",),
    "destroy_clones": ("absent",),
}


@dataclass(frozen=True)
class Place:
    """A disk and where it is: attached to vm, orphaned in its dataset, or detached (vm None)."""

    disk: Disk
    vm: t.Optional[Vm] = None

    @property
    def state(self) -> str:
        if self.vm is None:
            return "detached"
        return "attached" if self.disk.path else "orphaned"

    @property
    def words(self) -> str:
        """For a message: what it is called, its uuid, its volume and who has it."""
        owner = "detached" if self.vm is None else "%s in %s" % (self.state, self.vm.label)
        name = self.disk.name or "no name"
        return "%s (uuid %s, %s, %s)" % (name, self.disk.uuid or "none", self.disk.volume.name, owner)


def places(host: Host) -> t.Iterator[Place]:
    """Every disk of the host but the platform's own."""
    for vm in host.vms:
        for disk in (*vm.disks, *vm.orphans):
            if not disk.hidden:
                yield Place(disk, vm)
    for disk in host.parked:
        yield Place(disk)


def parse_wish(raw: _Raw, number: int) -> t.Tuple[DiskWish, t.List[Problem]]:
    """One entry of O(disks)."""
    state = str(raw.get("state") or "present")
    found = Collector(str(raw.get("vm") or ""))
    label = str(raw.get("name") or raw.get("uuid") or "disks[%d]" % number)
    arrives = state == "attached"
    slot = raw.get("pci_slot")
    if slot is not None:
        slot = found.attempt(label, slots.normalise, str(slot))
    _check_size(found, label, raw)
    entry = {**raw, "state": "present", "pci_slot": slot if arrives else None, "boot": None, "recreate": False}
    spec = disk_spec(found, label, entry)
    # -1 is the first one that is free, as without an index.
    index = None if raw.get("index") == -1 else raw.get("index")
    wish = DiskWish(
        state=state,
        spec=replace(spec, index=index) if arrives else spec,
        vm=str(raw.get("vm") or ""),
        from_vm=str(raw.get("from_vm") or ""),
        index=None if arrives else raw.get("index"),
        slot="" if arrives else str(slot or ""),
        take=bool(raw.get("take")),
        serial=raw.get("serial_no"),
        source=str(raw.get("source") or ""),
        source_snapshot=str(raw.get("source_snapshot") or ""),
        clone=raw.get("source_method") == "clone",
        release_holds=bool(raw.get("release_holds")),
        destroy_clones=frozenset(map(str, raw.get("destroy_clones") or ())),
    )
    _check_wish(found, label, wish, raw)
    return wish, found.problems


def _check_size(found: Collector, label: str, raw: _Raw) -> None:
    if raw.get("size") == "remaining":
        found.add(
            "InvalidArgument", "size=remaining works only in vm_disks, which has the list of all disks of a VM", label
        )


def _check_wish(found: Collector, label: str, wish: DiskWish, raw: _Raw) -> None:
    """What an entry says must suit its state, and name a disk that a second run finds again."""
    for option, states in _OF_STATE.items():
        if option == "destroy_snapshots" and wish.spec.type is not None:
            # A conversion may give them up, too.
            continue
        if raw.get(option) not in (None, False, []) and wish.state not in states:
            found.add("InvalidArgument", "%s works only with state=%s" % (option, " and ".join(states)), label)
    _check_address(found, label, wish)
    _check_numbers(found, label, wish)
    _check_origin(found, label, wish)


def _check_numbers(found: Collector, label: str, wish: DiskWish) -> None:
    if wish.index is not None and not -1 <= wish.index < 100000:
        words = f"index {wish.index} is not valid: it must be from 0 to 99999, or -1 for the last disk"
        found.add("InvalidArgument", words, label)
    if wish.spec.index is not None and not 0 <= wish.spec.index < 100000:
        words = f"index {wish.spec.index} is not valid: it must be from 0 to 99999, or -1"
        found.add("InvalidArgument", words, label)
    if wish.serial is not None and not 0 <= wish.serial <= MOST_SERIAL:
        words = f"serial_no {wish.serial} is not valid: it must be from 0 to {MOST_SERIAL}"
        found.add("InvalidArgument", words, label)


def _check_origin(found: Collector, label: str, wish: DiskWish) -> None:
    """What a new disk is made of: an image, or another disk, as a copy or as a clone of its snapshot."""
    if wish.source and wish.spec.image:
        found.add("InvalidArgument", "source and image exclude each other", label)
    if wish.source and wish.spec.block_size:
        found.add("InvalidArgument", "block_size and source exclude each other: the source has its own", label)
    if wish.source_snapshot and not wish.source:
        found.add("InvalidArgument", "source_snapshot needs source, the disk that has it", label)
    if wish.clone and wish.source and not wish.source_snapshot:
        found.add("InvalidArgument", "a clone needs source_snapshot, the snapshot that it will depend on", label)


def _check_address(found: Collector, label: str, wish: DiskWish) -> None:
    by_place = wish.index is not None or bool(wish.slot)
    if not (wish.spec.name or wish.spec.uuid or by_place):
        found.add("InvalidArgument", "a disk needs a name, a uuid, or a VM and its index or pci_slot there", label)
    elif by_place and (wish.spec.name or wish.spec.uuid):
        found.add(
            "InvalidArgument",
            "index and pci_slot work only for a disk without name and uuid, or with state=attached",
            label,
        )
    elif by_place and not wish.vm:
        found.add("InvalidArgument", "index and pci_slot need vm", label)
    elif by_place and wish.state == "absent":
        found.add("InvalidArgument", "state=absent needs a name or a uuid: a detached disk has no index or slot", label)
    elif wish.index == -1 and wish.state == "detached":
        found.add("InvalidArgument", "index -1 would mean another disk the next time; give its name or uuid", label)
    if wish.state == "attached" and not wish.vm:
        found.add("InvalidArgument", "state=attached needs vm", label)


def locate(host: Host, wish: DiskWish, vm: t.Optional[Vm], source_vm: t.Optional[Vm]) -> t.Optional[Place]:
    """The disk that an entry means, None if there is none. Raises FlexdiskError Ambiguous with all candidates.

    vm and source_vm are those that wish.vm and wish.from_vm name.
    """
    every = list(places(host))
    if wish.spec.uuid:
        return _one([p for p in every if p.disk.uuid == wish.spec.uuid], "uuid %s" % wish.spec.uuid)
    if wish.index is not None or wish.slot:
        return _at(every, wish, t.cast(Vm, vm))
    named = [p for p in every if p.disk.name == wish.spec.name]
    for scope in (source_vm, vm):
        within = [p for p in named if scope is not None and _belongs(p, scope)]
        if within:
            return _one(within, "name %s of VM %s" % (wish.spec.name, t.cast(Vm, scope).label))
    if vm is not None and wish.state != "attached":
        return None
    return None if source_vm is not None else _one(named, "name %s" % wish.spec.name)


def find_source(host: Host, wanted: str) -> Place:
    """The disk of a uuid, else of a name. Raises FlexdiskError ResourceNotFound or Ambiguous."""
    every = list(places(host))
    found = [p for p in every if p.disk.uuid == wanted.lower()] or [p for p in every if p.disk.name == wanted]
    place = _one(found, "source %s" % wanted)
    if place is None:
        raise FlexdiskError("ResourceNotFound", "source %s: no disk has this uuid or name" % wanted)
    return place


def _belongs(place: Place, vm: Vm) -> bool:
    """In the VM, or detached from it: one name space."""
    return place.disk.vm == vm.config.uuid


def _at(every: t.Sequence[Place], wish: DiskWish, vm: Vm) -> t.Optional[Place]:
    here = [p for p in every if p.vm is vm and p.disk.path]
    if wish.slot:
        return next((p for p in here if p.disk.pci_slot == wish.slot), None)
    if wish.index == -1:
        return here[-1] if here else None
    return next((p for p in here if p.disk.index == wish.index), None)


def _one(found: t.Sequence[Place], what: str) -> t.Optional[Place]:
    if len(found) > 1:
        raise FlexdiskError(
            "Ambiguous", "%s: %d disks have it: %s" % (what, len(found), "; ".join(p.words for p in found))
        )
    return found[0] if found else None


def label_of(place: Place) -> str:
    return place.disk.name or place.disk.uuid or place.disk.volume.name


def serial_of(disk: Disk) -> int:
    """The serial_no that a volume carries, 0 for none."""
    return int(identity.next_serial(disk.volume.user.get("serial_no", ""))) - 1
