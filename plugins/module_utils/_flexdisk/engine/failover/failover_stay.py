# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failover that was begun is given up on the host that would have taken the VM over: it keeps its replicas."""

from __future__ import annotations

import typing as t

from ...fleet.replication.record import read_record
from ...hypervisor.protocol import Hypervisor
from ...model.command import Runner
from ...model.desired import Policy
from ...model.errors import FlexdiskError
from ...model.vm import Disk
from ...rules import moves
from ...rules.inventory import Host
from ...rules.layout import detached_dataset, last_part, pool_of, replicas
from ...rules.moves import COMING, Move
from ...rules.replicas import ROLE
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.observe import observe
from ..moves.vm_arrival import Arrival, ends_here
from ..replication import records
from ..replication.replica_info import HOLD
from ..steps import renames


class Stay:
    """What the host needs that has begun to take a VM over."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._arrival = Arrival(zfs, hypervisor, runner, Policy())

    def stay(self, name: str, check_mode: bool) -> str:
        """Give a failover up that was begun here. The label of the VM, "" if there is none. Raises FlexdiskError
        InUse if a disk of the VM is a replica no more: then it only goes on.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        begun = [move for move in moves.find_by_name(host.moves, name) if move.phase == COMING and move.back_to]
        if len(begun) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs {name} are being taken over; give the whole uuid")
        for move in begun:
            were = _were_replicas(host, move)
            for was in were if not check_mode else ():
                self._become_replica(was, move)
            if not check_mode:
                self._arrival.unexpect(move.vm, taking=True)
        return begun[0].label if begun else ""

    def _become_replica(self, name: str, move: Move) -> None:
        base = f"{name}@{move.back_to}"
        if base not in self._copies.on_hold(HOLD, [base]):
            self._zfs.hold(HOLD, base)
        renames.rename(self._zfs, name, f"{replicas(pool_of(name))}/{last_part(name)}")


def _were_replicas(host: Host, move: Move) -> t.List[str]:
    """The detached disks that were replicas. Each must still have all that makes one."""
    coming = _coming(move)
    disks = [disk for disk in host.detached if disk.vm == move.vm and disk.uuid in coming]
    attached = any(vm.disks or vm.orphans for vm in host.vms if vm.config.uuid == move.vm)
    if attached or not all(_is_whole(host, disk, move) for disk in disks):
        text = f"VM {move.label} has got its disks here already; flexdisk_failover_state=taken_over of the playbook"
        text += f" failover_vm goes on. If it runs on {move.host}, stop it there first: vmadm stop {move.vm}. If"
        text += f" another host has taken it over since, {ends_here()}"
        raise FlexdiskError("InUse", text)
    return [disk.volume.name for disk in disks]


def _is_whole(host: Host, disk: Disk, move: Move) -> bool:
    volume = disk.volume
    in_place = volume.name == detached_dataset(volume.pool, disk.uuid)
    return in_place and volume.user.get(ROLE) == disk.uuid and f"{volume.name}@{move.back_to}" in host.datasets


def _coming(move: Move) -> t.Set[str]:
    """The uuids of the disks that come. None once the record has gone: then all are replicas again."""
    if move.vm not in records.known(records.MOVES):
        return set()
    return {disk.uuid for disk in read_record(records.load(move.vm)).disks}
