# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the entry of a move: a VM leaves this host or comes to it."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ...rules import moves
from ...rules.layout import container, moves_container
from ...zfs.commands import Zfs
from ..host.container import make_container


def rewrite_move(zfs: Zfs, pool: str, move: moves.Move) -> None:
    """Replace the entry of a move that write_move() has written."""
    zfs.set_facts(f"{moves_container(pool)}/{move.vm}", {moves.MOVE_PROPERTY: moves.encode(move)})


def write_move(zfs: Zfs, hypervisor: Hypervisor, pool: str, move: moves.Move) -> None:
    """Write the entry of a move on the VM's dataset below the container of the pool. An older entry is replaced."""
    if not zfs.exists(container(pool)):
        make_container(zfs, hypervisor.capabilities, pool)
    above = moves_container(pool)
    if not zfs.exists(above):
        zfs.create_container(above)
    name = f"{above}/{move.vm}"
    if zfs.exists(name):
        zfs.set_facts(name, {moves.MOVE_PROPERTY: moves.encode(move)})
    else:
        zfs.create_filesystem(
            name, {"mountpoint": "none", "canmount": "off"}, {moves.MOVE_PROPERTY: moves.encode(move)}
        )
