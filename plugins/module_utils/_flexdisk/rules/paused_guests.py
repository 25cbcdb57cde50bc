# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an interrupted move with the memory of a guest leaves: a paused guest, or memory. Somebody must notice it."""

from __future__ import annotations

import typing as t

from .inventory import Host
from .layout import last_part, memory_below
from .moves import COMING, MOVED, Move, has_memory, is_place, memory_is_there, stands_still


def paused_guests(host: Host) -> t.Dict[str, str]:
    """Return what is said of each guest that stands still in its move, by the UUID of the VM.

    Whatever is left of its memory: a guest that nobody lets go on is worse than one too many that is named.
    """
    result = {}
    for vm in host.vms:
        move = host.moves.get(vm.config.uuid)
        if move is not None and stands_still(move, vm.config.state):
            text = "its guest stands still: its memory is being saved or restored, or that was interrupted"
            result[vm.config.uuid] = f"{text}; {_way_on(move)}"
    return result


def closed_guests(host: Host) -> t.Dict[str, str]:
    """Return what is said of each VM that is stopped in its move, and that only this starts again, by their UUIDs."""
    result = {}
    for vm in host.vms:
        move = host.moves.get(vm.config.uuid)
        if move is None or vm.config.state != "stopped" or move.phase == MOVED or move.taken or move.back_to:
            continue
        saved = has_memory(move, host.datasets, host.geometry)
        if (saved or move.closed) and vm.disks:
            text = "it is stopped in its move, and its disks are read-only, unless a run was interrupted that opened "
            text += "them. Do not start it by hand: this would be without "
            text += "its memory, which is saved" if saved else "what its guest had in memory"
            result[vm.config.uuid] = f"{text}; {_way_on(move)}"
    return result


def memory_left(host: Host, move: Move) -> str:
    """Return the dataset with the memory of a guest that has left this host, "" without any."""
    places = [memory_below(name) for name in host.datasets if is_place(name) and last_part(name) == move.vm]
    left = [one for one in places if memory_is_there(host.datasets, one)] if move.phase == MOVED else []
    return left[0] if left else ""


def _way_on(move: Move) -> str:
    """Return what goes on with a move that was interrupted, and what gives it up."""
    if move.phase == COMING:
        return f"the playbook move_vm, from {move.host} to this host, goes on"
    goes_on = f"the playbook move_vm with flexdisk_target={move.host} goes on"
    return f"{goes_on}, and flexdisk_move_state=stays lets the guest go on here"
