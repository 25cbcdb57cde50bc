# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks add_disk, resize_disk, remove_disk, attach_disk and detach_disk: one disk of one VM."""

from __future__ import annotations

import json
import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import is_uuid
from . import refusals
from .declared import declarations_of_disks
from .disks import is_unadopted, orphans_meant, vm_disk, why_not_new
from .order import Order, Play, Raw, given_options


class _Disk(t.NamedTuple):
    """The disk that a playbook is about."""

    host: str
    variables: Raw
    """Those of the host."""
    uuid: str
    """Of the VM; of the disk if the user has named no VM."""
    name: str
    """What the user calls the disk."""

    @property
    def by_name_or_uuid(self) -> t.Dict[str, str]:
        return {"uuid" if is_uuid(self.name.lower()) else "name": self.name}

    @property
    def vm(self) -> str:
        """What the user calls the VM."""
        return str(self.variables["flexdisk_vm"])


def add_disk(play: Play) -> Order:
    """The VM gets a disk that it does not have, in a free slot."""
    disk = _named_disk(play)
    entry = given_options(
        disk.variables,
        name="flexdisk_disk",
        size="flexdisk_disk_size",
        pci_slot="flexdisk_pci_slot",
        preserve="flexdisk_preserve",
        description="flexdisk_description",
    )
    problems = _declared(play, disk, entry)
    slot = str(entry.get("pci_slot") or "")
    why = why_not_new(play.read[disk.host], disk.uuid, disk.name, entry["size"], slot)
    if why:
        problems.append(f"VM {disk.vm} on {disk.host}: {why}. Nothing was changed.")
    return Order(problems, calls={disk.host: {"vms": [{"vm": disk.uuid, "unlisted": "keep", "disks": [entry]}]}})


def resize_disk(play: Play) -> Order:
    """Resize a disk that the VM has."""
    disk = _named_disk(play)
    known = vm_disk(play.read[disk.host], disk.uuid, disk.name)
    options = given_options(
        disk.variables, size="flexdisk_disk_size", dangerous_allow_shrink="flexdisk_dangerous_allow_shrink"
    )
    unmanaged = _unmanaged(play, disk)
    problems = unmanaged.problems + _declared(play, disk, {"name": known.get("name") or disk.name, **options})
    if not (unmanaged.problems or unmanaged.orphans or known.get("uuid")):
        there = [one["name"] for vm in _read_vm(play, disk) for one in (*vm["disks"], *vm["parked"]) if one["name"]]
        problems.append(
            f"VM {disk.vm} on {disk.host} has no disk {disk.name} with a UUID. "
            f"It has {', '.join(there) or 'none with a name'}. Nothing was changed."
        )
    call = {"uuid": known.get("uuid", ""), "vm": disk.uuid, **options}
    return Order(problems, orphans=unmanaged.orphans, calls={disk.host: call})


def remove_disk(play: Play) -> Order:
    """A disk is destroyed. One that is not there is none to destroy, but an unfinished run goes on."""
    disk = _named_disk(play)
    known = vm_disk(play.read[disk.host], disk.uuid, disk.name)
    unmanaged = _unmanaged(play, disk)
    entry = {"name": known.get("name") or disk.name, "state": "absent"}
    order = Order(unmanaged.problems + _declared(play, disk, entry), orphans=unmanaged.orphans)
    which = "uuid" if known.get("uuid") == disk.name.lower() else "name"
    gone = {which: known["uuid"] if which == "uuid" else disk.name, "state": "absent"}
    gone.update(given_options(disk.variables, destroy_snapshots="flexdisk_destroy_snapshots"))
    vms = _read_vm(play, disk)
    if known or any(vm["intent"] for vm in vms):
        order.calls[disk.host] = {"vms": [{"vm": disk.uuid, "unlisted": "keep", "disks": [gone]}]}
    if not known:
        there = ", ".join(one["name"] for vm in vms for one in vm["disks"] if one["name"])
        order.lines[disk.host] = [f"VM {disk.vm} has no disk {disk.name}. Its disks: {there or 'none has a name'}"]
    return order


def attach_disk(play: Play) -> Order:
    """A disk is attached to the VM, wherever on its host it is."""
    disk = _named_disk(play)
    entry = {**disk.by_name_or_uuid, **given_options(disk.variables, pci_slot="flexdisk_pci_slot")}
    more = given_options(disk.variables, from_vm="flexdisk_from_vm", take="flexdisk_take", index="flexdisk_index")
    vm_disk(play.read[disk.host], disk.uuid, disk.name)
    problems = _declared(play, disk, entry, attaches=True)
    return Order(problems, calls={disk.host: {**entry, "vm": disk.uuid, "state": "attached", **more}})


def detach_disk(play: Play) -> Order:
    """A disk is detached, of a VM or of whichever VM has it."""
    disk = _named_disk(play)
    call = {**disk.by_name_or_uuid, "state": "detached"}
    if "flexdisk_vm" not in disk.variables:
        return Order(_refuse_detaching(play, disk, f"disk {disk.name}"), calls={disk.host: call})
    unmanaged = _unmanaged(play, disk)
    problems = unmanaged.problems + _refuse_detaching(play, disk, f"the disks of VM {disk.vm}")
    return Order(problems, orphans=unmanaged.orphans, calls={disk.host: {**call, "vm": disk.uuid}})


def _named_disk(play: Play) -> _Disk:
    """Return the disk that is meant. Raises FlexdiskError Ambiguous if the hosts of the run mean several."""
    meant: t.Dict[t.Tuple[str, ...], t.List[str]] = {}
    for host, one in play.variables.items():
        key = tuple(f"{name}={one[name]}" for name in ("flexdisk_vm", "flexdisk_disk") if name in one)
        meant.setdefault(key, []).append(host)
    if len(meant) > 1:
        each = "; ".join(f"{', '.join(hosts)}: {' '.join(key)}" for key, hosts in meant.items())
        raise FlexdiskError(
            "Ambiguous", f"the hosts of this run mean several disks ({each}). Name one with -e, or use --limit"
        )
    host, here = next((host, here) for host, here in play.here.items() if here)
    variables = play.variables[host]
    (uuid,) = next(iter(here.values())).values()
    return _Disk(host, variables, uuid, str(variables["flexdisk_disk"]))


def _read_vm(play: Play, disk: _Disk) -> t.List[Raw]:
    """Return the VM, or nothing if it is skipped."""
    return [vm for vm in play.read[disk.host]["vms"] if vm["uuid"] == disk.uuid]


def _unmanaged(play: Play, disk: _Disk) -> Order:
    """Return the refusal of a disk without a name, or of an orphan, which may be known as one only after a look."""
    read = play.read[disk.host]
    if is_unadopted(read, disk.uuid, disk.name):
        return Order([refusals.unadopted(disk.vm, disk.name)])
    if vm_disk(read, disk.uuid, disk.name) or not any(vm["unmanaged"] for vm in _read_vm(play, disk)):
        return Order()
    if play.orphans is None:
        return Order(orphans={disk.host: disk.uuid})
    orphans = orphans_meant(play.orphans, disk.name)
    return Order([refusals.orphaned(disk.host, disk.vm, disk.name, orphans)] if orphans else [])


def _declared(play: Play, disk: _Disk, entry: Raw, attaches: bool = False) -> t.List[str]:
    """Return the refusal to change a declared disk. entry: what is to be written there."""
    places = declarations_of_disks(play.read, play.variables, disk.uuid, disk.name, attaches)
    instead = (
        f"Write {json.dumps(entry)} to {', or to '.join(places)}; then use converge, plan and apply, or the playbook "
        "for that variable."
    )
    return [refusals.declared(f"the disks of VM {disk.vm}", disk.host, instead)] if places else []


def _refuse_detaching(play: Play, disk: _Disk, subject: str) -> t.List[str]:
    """Return the refusal to detach what the inventory declares."""
    places = declarations_of_disks(play.read, play.variables, disk.uuid, disk.name, True)
    instead = (
        f"Take disk {disk.name} out of {', and out of '.join(places)}, which needs unlisted: detach (in "
        "disk_registry_disks, give it state: detached); then use converge, plan and apply, or the playbook for that "
        "variable."
    )
    return [refusals.declared(subject, disk.host, instead)] if places else []
