# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disk of a VM a name means, and whether a disk can be a new one."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...model.sizes import REMAINING, parse_size_or_remaining, render_mib
from ...rules.naming import names_volume
from ...rules.slots import normalise

_Dict = t.Mapping[str, t.Any]


def vm_disk(read: _Dict, uuid: str, disk: str) -> t.Dict[str, t.Any]:
    """Return the disk of this name or UUID, or nothing. Several of one name raise FlexdiskError, such as an attached
    one and one that was detached. read: the result of vm_info of the host that has the VM.
    """
    disks = [one for vm in read["vms"] if vm["uuid"] == uuid for one in (*vm["disks"], *vm["parked"])]
    by_uuid = [entry for entry in disks if entry.get("uuid") and entry["uuid"] == disk.lower()]
    named = by_uuid or [entry for entry in disks if disk and entry["name"] == disk]
    if len(named) > 1:
        which = " and ".join(f"{entry.get('uuid') or entry['volume']} ({_state(entry)})" for entry in named)
        text = f"VM {uuid} has {len(named)} disks {disk}: {which}. Name the one that you mean by its UUID"
        raise FlexdiskError("InvalidArgument", text)
    return dict(named[0]) if named else {}


def is_unadopted(read: _Dict, uuid: str, disk: str) -> bool:
    """Return whether this is how reports show a disk of the VM that has no name yet: C((disk1))."""
    disks = [one for vm in read["vms"] if vm["uuid"] == uuid for one in vm["disks"]]
    if any(one["name"] == disk for one in disks):
        return False
    return any(names_volume(disk, str(one["name"] or ""), str(one["volume"])) for one in disks)


def orphans_meant(orphans: t.Sequence[_Dict], disk: str) -> t.List[_Dict]:
    """Return those of the orphaned volumes of a VM that this means: by name, else by UUID, else as reports show them.

    orphans: as disk_info returns them.
    """
    return (
        [one for one in orphans if one["name"] == disk]
        or [one for one in orphans if one["uuid"] == disk.lower()]
        or [one for one in orphans if names_volume(disk, str(one["name"] or ""), str(one["volume"]))]
    )


def why_not_new(read: _Dict, uuid: str, disk: str, size: str, pci_slot: str = "") -> str:
    """Return why a disk of this name and size cannot be a new one of the VM in a slot; "" if it can, or is there."""
    try:
        wanted = parse_size_or_remaining(size)
    except FlexdiskError as exc:
        return exc.message
    there = vm_disk(read, uuid, disk)
    taken = _in_slot(read, uuid, pci_slot)
    if taken and taken != there:
        who = taken["name"] or f"without a name ({taken.get('uuid') or taken['volume']})"
        kind = "its boot disk" if taken["boot"] else "a disk"
        text = f"pci_slot {pci_slot} has {kind} {who} of {render_mib(taken['size'])}, and a new disk needs a free one"
        return text if taken["name"] else f"{text}. The playbook adopt gives names to disks that have none"
    if not there:
        return ""
    if there["state"] == "parked":
        return f"a disk {disk} of {render_mib(there['size'])} has been detached from the VM. attach_disk brings it back"
    if there["remaining"] if wanted == REMAINING else there["size"] == wanted:
        return ""
    return f"the VM has a disk {disk} of {render_mib(there['size'])} already. resize_disk changes its size"


def _state(disk: _Dict) -> str:
    return "detached" if disk["state"] == "parked" else "attached"


def _in_slot(read: _Dict, uuid: str, pci_slot: str) -> _Dict:
    """Return the disk of a VM that has a slot, or nothing."""
    wanted = normalise(pci_slot) if pci_slot else ""
    disks = [one for vm in read["vms"] if vm["uuid"] == uuid for one in vm["disks"]]
    return next((one for one in disks if wanted and one["pci_slot"] == wanted), {})
