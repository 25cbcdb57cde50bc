# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives up a failover on the host that has begun to take the VM over. The host keeps its replicas."""

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
from ...rules.layout import detached_dataset, last_part, pool_of, replicas_container
from ...rules.moves import COMING, Move
from ...rules.power import stop_command_of
from ...rules.replicas import ROLE
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host.observe import observe
from ..moves.vm_arrival import MoveTarget, advice_to_end
from ..replication import records
from ..replication.replica_info import HOLD
from ..steps import renames


class GiveUpTakeover:
    """Gives up a takeover that this host has begun."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._arrival = MoveTarget(zfs, hypervisor, runner, Policy())

    def stay(self, name: str, check_mode: bool) -> str:
        """Give up a failover that was begun here. Return the label of the VM, "" if there is none.

        Raises FlexdiskError InUse if a disk cannot become a replica again. Then the failover can only be completed.
        """
        host = observe(self._zfs, self._hypervisor, all_pools=True)
        begun = [move for move in moves.find_by_name(host.moves, name) if move.phase == COMING and move.back_to]
        if len(begun) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs {name} are being taken over; give the whole uuid")
        for move in begun:
            former = _former_replicas(
                host, move, stop_command_of(move.vm, self._hypervisor.capabilities.name == "libvirt")
            )
            for name_of_disk in former if not check_mode else ():
                self._become_replica(name_of_disk, move)
            if not check_mode:
                self._arrival.cancel(move.vm, taking=True)
        return begun[0].label if begun else ""

    def _become_replica(self, name: str, move: Move) -> None:
        base = f"{name}@{move.back_to}"
        if base not in self._copies.on_hold(HOLD, [base]):
            self._zfs.hold(HOLD, base)
        renames.rename(self._zfs, name, f"{replicas_container(pool_of(name))}/{last_part(name)}")


def _former_replicas(host: Host, move: Move, stop: str) -> t.List[str]:
    """Return the detached disks that were replicas. Raises FlexdiskError InUse if one cannot become one again.

    stop: the command that stops the VM on its old home.
    """
    coming = _coming(move)
    disks = [disk for disk in host.detached if disk.vm == move.vm and disk.uuid in coming]
    attached = any(vm.disks or vm.orphans for vm in host.vms if vm.config.uuid == move.vm)
    if attached or not all(_can_become_replica(host, disk, move) for disk in disks):
        text = f"VM {move.label} has got its disks here already; flexdisk_failover_state=taken_over of the playbook"
        text += f" failover_vm goes on. If it runs on {move.host}, stop it there first: {stop}. If"
        text += f" another host has taken it over since, {advice_to_end()}"
        raise FlexdiskError("InUse", text)
    return [disk.volume.name for disk in disks]


def _can_become_replica(host: Host, disk: Disk, move: Move) -> bool:
    volume = disk.volume
    in_place = volume.name == detached_dataset(volume.pool, disk.uuid)
    return in_place and volume.user.get(ROLE) == disk.uuid and f"{volume.name}@{move.back_to}" in host.datasets


def _coming(move: Move) -> t.Set[str]:
    """Return the UUIDs of the disks that come. Without the record there are none: all are replicas again."""
    if move.vm not in records.known(records.MOVES):
        return set()
    return {disk.uuid for disk in read_record(records.load(move.vm)).disks}
