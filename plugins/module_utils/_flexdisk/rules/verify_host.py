# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the host as a whole: UUIDs used twice, VMs without datasets, unknown volumes."""

from __future__ import annotations

from ..model.dataset import Dataset
from . import identity, moves
from .findings import Finding
from .inventory import unlinked_reason
from .layout import (
    container,
    diverged_container,
    is_below,
    last_part,
    memory_below,
    replicas_container,
    restoring_container,
)
from .paused_guests import closed_guests, memory_left, paused_guests
from .replicas import DIVERGED, ROLE
from .unfinished import is_unfinished, reason
from .verify_facts import Facts, Findings


def duplicate_uuids(facts: Facts) -> Findings:
    """Yield UUIDs that are on more than one volume."""
    for uuid, volumes in sorted(facts.host.duplicates.items()):
        if len({*volumes}) > 1:
            places = ", ".join(volumes)
            message = f"uuid {uuid}: {places}; decide by hand which one it belongs to"
            yield Finding("duplicate_uuid", message, disk=uuid, volume=volumes[0])


def vms_without_dataset(facts: Facts) -> Findings:
    """VMs whose dataset is not there."""
    for config in facts.host.unlinked:
        if not config.identity_in_zfs and not config.unsupported and not is_unfinished(config):
            place = config.dataset or next((entry.volume for entry in config.disks if entry.volume), "")
            message = f"{config.label}: {unlinked_reason(config)}; zfs rename or a backup may bring it back"
            yield Finding("vm_without_dataset", message, config.uuid, config.alias, volume=place)


def unfinished_vms(facts: Facts) -> Findings:
    """Yield the VMs whose creation or deletion was interrupted, with what completes or removes them."""
    for config in (*(vm.config for vm in facts.host.vms), *facts.host.unlinked):
        if is_unfinished(config):
            message = f"{config.label}: {reason(facts.host, config)}"
            yield Finding("vm_unfinished", message, config.uuid, config.alias, volume=config.dataset)


def unknown_volumes(facts: Facts) -> Findings:
    """Yield volumes with the identity of a disk that are outside of every VM and container."""
    host = facts.host
    known = {disk.volume.name for vm in host.vms for disk in (*vm.disks, *vm.orphans)}
    known |= {disk.volume.name for disk in host.detached}
    roots = tuple(config.dataset + "/" for config in facts.configs.values() if config.dataset)
    for uuid in sorted(filter(identity.is_uuid, facts.by_uuid)):
        for name in facts.by_uuid[uuid]:
            if name not in known and not name.startswith(roots) and not _is_copy(host.datasets[name], uuid):
                text = f"{name} has the identity of disk {uuid} but no task looks there"
                message = f"{text}; ask its owner what it is for"
                yield Finding("stranger_volume", message, disk=uuid, volume=name)


def _is_copy(dataset: Dataset, uuid: str) -> bool:
    """Whether the volume was the disk itself before its VM moved, and is now its replica, or diverged; or whether it
    is a restored disk that is not whole yet.
    """
    if is_below(dataset.name, diverged_container(dataset.pool)):
        return bool(dataset.user.get(DIVERGED) or dataset.user.get(ROLE))
    if is_below(dataset.name, restoring_container(dataset.pool)):
        return True  # it is about to become a detached disk
    return is_below(dataset.name, replicas_container(dataset.pool)) and dataset.user.get(ROLE) == uuid


def unreadable_moves(facts: Facts) -> Findings:
    """Yield records of moves that cannot be read."""
    for name in moves.unreadable(facts.host.datasets.values()):
        vm = last_part(name)
        record = f"{identity.PREFIX}{moves.MOVE_PROPERTY} of {name}"
        message = f"{record}, the record of a move of VM {vm}, cannot be read; find out which host has the VM"
        yield Finding("move_unreadable", message, vm, facts.alias(vm), volume=name)


def guests_left_paused(facts: Facts) -> Findings:
    """Yield the guests that stand still because of their move."""
    known = paused_guests(facts.host)
    for vm in facts.host.vms:
        if vm.config.uuid in known:
            text = f"{vm.label}: {known[vm.config.uuid]}"
            yield Finding("guest_paused", text, vm.config.uuid, vm.config.alias, volume=vm.root.name)


def disks_left_closed(facts: Facts) -> Findings:
    """Yield the VMs in the middle of a move which has made their disks read-only: stopped, or somebody runs them."""
    stopped = closed_guests(facts.host)
    for vm in facts.host.vms:
        if vm.config.uuid in stopped:
            text = f"{vm.label}: {stopped[vm.config.uuid]}"
            yield Finding("disks_closed", text, vm.config.uuid, vm.config.alias, volume=vm.root.name)
        move = facts.host.moves.get(vm.config.uuid)
        if move is not None and move.phase == moves.LEAVING and move.closed and vm.config.state == "running":
            text = f"{vm.label}: it runs, but its move to {move.host} has made its disks read-only, so it could not be"
            text += " started again. The playbook move_vm goes on, and flexdisk_move_state=stays makes them writable"
            yield Finding("disks_closed", text, vm.config.uuid, vm.config.alias, volume=vm.root.name)


def memory_that_stays(facts: Facts) -> Findings:
    """Yield the memory of guests that have left this host."""
    for _uuid, move in sorted(facts.host.moves.items()):
        name = memory_left(facts.host, move)
        if name:
            text = f"{move.label} has left for {move.host}, and the memory of its guest is still in {name}; the next"
            text += " sync of it to this host destroys it, and so does the playbook move_vm with the host that has the"
            yield Finding("memory_left", f"{text} VM as flexdisk_target", move.vm, move.alias, volume=name)
    yield from _memory_of_nobody(facts)


def _memory_of_nobody(facts: Facts) -> Findings:
    """Yield the memory that no move goes on with. It is of use as long as its VM is here, and nobody has started it."""
    host = facts.host
    waits = {config.uuid for config in host.configs if config.state != "running"}
    for place in sorted(filter(moves.is_place, host.datasets)):
        name, vm = memory_below(place), last_part(place)
        if name not in host.datasets or (vm in host.moves and moves.memory_is_there(host.datasets, name)):
            continue
        if vm in waits and moves.memory_is_there(host.datasets, name):
            text = f"{name} has the saved memory of a VM that does not run here, and the entry of its move is gone or"
            text += " cannot be read, so nothing restores it; whoever starts the VM gives it up"
        else:
            text = f"{name} has the memory of a guest that has moved, and is of no use any more; when nobody holds it,"
            text += f" zfs destroy -r {name} ends that"
        yield Finding("memory_left", text, vm, facts.alias(vm), volume=name)


def interrupted_imports(facts: Facts) -> Findings:
    """Images whose import was interrupted."""
    containers = tuple(container(pool) + "/" for pool in facts.host.geometry)
    for dataset in facts.host.datasets.values():
        if dataset.user.get("from") == identity.IMPORTING and not dataset.name.startswith(containers):
            text = f"the import of image {last_part(dataset.name)} was interrupted"
            message = f"{text}; the next task that needs the image imports it anew"
            yield Finding("from_mark", message, volume=dataset.name)
