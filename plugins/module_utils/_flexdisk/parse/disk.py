# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of the module disk: one disk, wherever it is, and where it should be."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.desired import PlacedDiskDeclaration
from ..model.errors import Problem, Problems
from ..rules import disk_properties
from ..rules.identity import is_uuid
from ..rules.released_identity import MOST_SERIAL
from .disk_entry import parse_disk_entry
from .values import Raw, check_seen, optional_slot

_MOST_INDEX = 99999

# Options of an entry besides those that select the disk, and the states that accept them.
_OF_STATE = {
    "size": ("present", "attached"),
    "image": ("present",),
    "block_size": ("present",),
    "type": ("present", "attached"),
    "source": ("present",),
    "source_snapshot": ("present",),
    "replica": ("present",),
    "model": ("present", "attached"),
    "compression": ("present", "attached"),
    **dict.fromkeys(disk_properties.PROPERTIES, ("present", "attached")),
    "dangerous_allow_shrink": ("present", "attached"),
    "min_size_from_guest": ("present", "attached"),
    "from_vm": ("attached",),
    "take": ("attached",),
    "destroy_snapshots": ("absent",),
    "release_holds": ("absent",),
    "destroy_clones": ("absent",),
}


def parse_disk(raw: Raw, number: int) -> t.Tuple[PlacedDiskDeclaration, t.List[Problem]]:
    """Return one entry of O(disks), and all its problems. number: its place in the list, counted from 0."""
    state = str(raw.get("state") or "present")
    problems = Problems(str(raw.get("vm") or ""))
    label = str(raw.get("name") or raw.get("uuid") or f"disks[{number}]")
    arrives = state == "attached"
    slot = optional_slot(raw.get("pci_slot"), label, problems)
    for key in ("vm", "from_vm", "source"):
        check_seen(key, raw.get(key), problems, label)
    _check_size(problems, label, raw)
    entry = {**raw, "state": "present", "pci_slot": slot if arrives else None, "boot": None, "recreate": False}
    spec = parse_disk_entry(entry, label, problems)
    # -1 is the first one that is free, as without an index.
    index = None if raw.get("index") == -1 else raw.get("index")
    declared = PlacedDiskDeclaration(
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
        replica=str(raw.get("replica") or "").lower(),
        release_holds=bool(raw.get("release_holds")),
        destroy_clones=frozenset(map(str, raw.get("destroy_clones") or ())),
    )
    _check_state(problems, label, declared, raw)
    _check_address(problems, label, declared)
    _check_numbers(problems, label, declared)
    _check_source(problems, label, declared)
    return declared, problems


def _check_size(problems: Problems, label: str, raw: Raw) -> None:
    if raw.get("size") == "remaining":
        problems.add(
            "InvalidArgument", "size=remaining works only in vm_disks, which has the list of all disks of a VM", label
        )


def _check_state(problems: Problems, label: str, declared: PlacedDiskDeclaration, raw: Raw) -> None:
    """Refuse options that do not suit the state of the entry."""
    for option, states in _OF_STATE.items():
        if option == "destroy_snapshots" and declared.spec.type is not None:
            # A conversion may give them up, too.
            continue
        if raw.get(option) not in (None, False, []) and declared.state not in states:
            problems.add("InvalidArgument", f"{option} works only with state={' and '.join(states)}", label)


def _check_address(problems: Problems, label: str, declared: PlacedDiskDeclaration) -> None:
    """Refuse an address that would not find the same disk in a second run."""
    by_place = declared.index is not None or bool(declared.slot)
    if not (declared.spec.name or declared.spec.uuid or by_place):
        problems.add("InvalidArgument", "a disk needs a name, a uuid, or a VM and its index or pci_slot there", label)
    elif by_place and (declared.spec.name or declared.spec.uuid):
        problems.add(
            "InvalidArgument",
            "index and pci_slot work only for a disk without name and uuid, or with state=attached",
            label,
        )
    elif by_place and not declared.vm:
        problems.add("InvalidArgument", "index and pci_slot need vm", label)
    elif by_place and declared.state == "absent":
        text = "state=absent needs a name or a uuid: a detached disk has no index or slot"
        problems.add("InvalidArgument", text, label)
    elif declared.index == -1 and declared.state == "detached":
        problems.add("InvalidArgument", "index -1 would mean another disk the next time; give its name or uuid", label)
    if declared.state == "attached" and not declared.vm:
        problems.add("InvalidArgument", "state=attached needs vm", label)


def _check_numbers(problems: Problems, label: str, declared: PlacedDiskDeclaration) -> None:
    index, new_index, serial = declared.index, declared.spec.index, declared.serial
    if index is not None and not -1 <= index <= _MOST_INDEX:
        text = f"index {index} is not valid: it must be from 0 to {_MOST_INDEX}, or -1 for the last disk"
        problems.add("InvalidArgument", text, label)
    if new_index is not None and not 0 <= new_index <= _MOST_INDEX:
        text = f"index {new_index} is not valid: it must be from 0 to {_MOST_INDEX}, or -1"
        problems.add("InvalidArgument", text, label)
    if serial is not None and not 0 <= serial <= MOST_SERIAL:
        problems.add("InvalidArgument", f"serial_no {serial} is not valid: it must be from 0 to {MOST_SERIAL}", label)


def _check_source(problems: Problems, label: str, declared: PlacedDiskDeclaration) -> None:
    if declared.source and declared.spec.image:
        problems.add("InvalidArgument", "source and image exclude each other", label)
    if declared.source and declared.spec.block_size:
        problems.add("InvalidArgument", "block_size and source exclude each other: the source has its own", label)
    if declared.source_snapshot and not (declared.source or declared.replica):
        problems.add("InvalidArgument", "source_snapshot needs source or replica, which has it", label)
    if declared.clone and declared.source and not declared.source_snapshot:
        problems.add("InvalidArgument", "a clone needs source_snapshot, the snapshot that it will depend on", label)
    if declared.replica:
        _check_replica(problems, label, declared)


def _check_replica(problems: Problems, label: str, declared: PlacedDiskDeclaration) -> None:
    spec = declared.spec
    for option, given in (("source", declared.source), ("image", spec.image), ("block_size", spec.block_size)):
        if given:
            problems.add("InvalidArgument", f"replica and {option} exclude each other", label)
    if not is_uuid(declared.replica):
        text = f"replica {declared.replica!r:.100} is not the UUID of a disk"
        problems.add("InvalidArgument", text, label)
    if declared.clone:
        text = "a disk is restored as a copy: a clone would keep the syncs from destroying the snapshot of the replica"
        problems.add("InvalidArgument", text, label)
    if not spec.name:
        problems.add("MissingParameter", "a restored disk needs a name of its own", label)
