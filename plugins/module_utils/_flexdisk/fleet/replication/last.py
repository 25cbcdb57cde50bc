# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last transfer of a VM that moves: planned before the VM is stopped, and verified before the VM may leave."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.errors import FlexdiskError
from ...rules import layout, moves
from ...rules.identity import PREFIX
from ...rules.replicas import ROLE
from .copies import Point
from .streams import Full, Increment
from .transfers import DiskTransfer, VmTransfer, memory_place, place

_Cells = t.Mapping[str, t.Tuple[str, str]]
DatasetProperties = t.Mapping[str, _Cells]  # value and source by dataset and property
_ROLE, _MOVE = PREFIX + ROLE, PREFIX + moves.MOVE_PROPERTY
_TYPES = "filesystem,volume,snapshot"


def check(vm: VmTransfer) -> None:
    """Raise FlexdiskError Changed unless one increment is all that each disk must send: nothing else goes so quickly.

    A replica may have to go back first. It does so when its host lets the streams in.
    """
    for disk in vm.disks:
        ways = [s for s in disk.sent if isinstance(s, Increment) and not s.base.bookmark and s.to.name == vm.set]
        if len(disk.sent) != 1 or not ways:
            text = f"VM {vm.label}: the replica of disk {disk.name} is not what the sync has left; run the move again"
            raise FlexdiskError("Changed", text)


def taken(vm: VmTransfer, taken_snapshots: t.Mapping[str, t.Tuple[int, int]]) -> VmTransfer:
    """Return the transfer with the snapshots taken. taken_snapshots: guid and createtxg by dataset of the disk."""
    memory = vm.memory
    if memory is not None:
        memory = replace(memory, streams=(Full(Point(vm.set, *taken_snapshots[memory.dataset])),))
    return replace(vm, disks=tuple(_taken(disk, *taken_snapshots[disk.dataset]) for disk in vm.disks), memory=memory)


def _taken(disk: DiskTransfer, guid: int, createtxg: int) -> DiskTransfer:
    (stream,) = disk.sent
    increment = replace(stream, to=stream.to._replace(guid=guid, createtxg=createtxg))
    return replace(disk, streams=(increment,), snapshots=(*disk.snapshots, guid))


def question(vm: VmTransfer) -> t.Tuple[t.Tuple[str, ...], t.Tuple[str, ...], str, int]:
    """Datasets, properties, types and depth of what the other host is asked for."""
    places = [place(vm, disk) for disk in vm.disks]
    depth = 1 if vm.memory is None else 2  # it lies below the entry of the move, unless it was given up
    return (*places, _expected_at(vm)), ("guid", "written", "receive_resume_token", _ROLE, _MOVE), _TYPES, depth


def lacking(vm: VmTransfer, properties: DatasetProperties, here: str) -> str:
    """Return why the VM must not leave, by the properties on the other host; "" if it may.

    The other host must expect the VM from here, and have the whole set, also of the memory if that is sent. here: this
    host's name for the other one.
    """
    where = _expected_at(vm)
    move = moves.decode_at(where, _local(properties.get(where, {}), _MOVE))
    if move is None or move.phase != moves.COMING or move.back_to or (move.host, move.pool) != (here, vm.home):
        return "it does not expect the VM"
    lacks = [disk.name or disk.uuid for disk in vm.disks if not _has(vm, disk, properties)]
    if vm.memory is not None and not _is_complete(vm, vm.memory, memory_place(vm), properties):
        lacks.append("the memory of its guest")
    return f"it does not have everything of {', '.join(lacks)}" if lacks else ""


def _has(vm: VmTransfer, disk: DiskTransfer, properties: DatasetProperties) -> bool:
    """Return whether a replica has the last snapshot, and nothing else is under way."""
    name = place(vm, disk)
    return _is_complete(vm, disk, name, properties) and _local(properties.get(name, {}), _ROLE) == disk.uuid


def _is_complete(vm: VmTransfer, sent: DiskTransfer, name: str, properties: DatasetProperties) -> bool:
    """Return whether a dataset has the last snapshot, and nothing else is under way."""
    dataset, snapshot = properties.get(name, {}), properties.get(f"{name}@{vm.set}", {})
    complete = _value(dataset, "written") == "0" and _value(dataset, "receive_resume_token") == "-"
    (stream,) = sent.sent
    return complete and _value(snapshot, "guid") == str(stream.to.guid)


def _expected_at(vm: VmTransfer) -> str:
    return f"{layout.moves_container(vm.pool)}/{vm.uuid}"


def _local(row: _Cells, name: str) -> str:
    value, source = row.get(name, ("", ""))
    return value if source == "local" else ""


def _value(row: _Cells, name: str) -> str:
    return row.get(name, ("", ""))[0]
