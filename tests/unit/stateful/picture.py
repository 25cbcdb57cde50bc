# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the simulated node really holds, read from its memory: no program, no parser, no rule of the collection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simnode import Node
from simnode.vmadm import slots
from simnode.vmadm.errors import VmError
from simnode.vmadm.vmobj import disk_index
from simnode.zfs import extents as ext
from simnode.zfs.model import Dataset, Pool, Snapshot

MIB = 1 << 20
POOL = "zones"
DETACHED = POOL + "/flexdisk/"
ZVOL = "/dev/zvol/rdsk/"
GUARD = "flexdisk-guard"


@dataclass(frozen=True)
class Snap:
    """A snapshot of a volume: its short name, and what it holds."""

    guid: int
    name: str
    size: int
    extents: ext.Extents
    txg: int


@dataclass(frozen=True)
class Volume:
    """A volume with everything an invariant asks of it; all sizes are bytes. vm is the dataset it lies below."""

    guid: int
    name: str
    vm: str
    detached: bool
    size: int
    block: int
    extents: ext.Extents
    snaps: dict[int, Snap]
    user: dict[str, str]
    compression: str
    auto: int
    refreservation: int
    pinned: int
    snapused: int

    @property
    def disk_name(self) -> str:
        return self.user.get("name", "") or str(self._saved.get("name", ""))

    @property
    def preserve(self) -> bool:
        return self.user.get("preserve") == "true" or self._saved.get("preserve") is True

    @property
    def _saved(self) -> dict[str, Any]:
        """The identity that a release has left: it counts as long as the disk has no other."""
        identity: dict[str, Any] = json.loads(self.user.get("released", "{}")) if "serial_no" not in self.user else {}
        return identity


@dataclass(frozen=True)
class Machine:
    """A VM: its configuration as the guest sees it, and the figures of its dataset in bytes."""

    uuid: str
    alias: str
    state: str
    autoboot: bool
    flexible: int | None
    devices: tuple[dict[str, Any], ...]
    q: int
    quota: int
    reservation: int
    used: int
    own: int

    @property
    def power(self) -> tuple[str, bool]:
        return self.state, self.autoboot

    def device_of(self, volume: Volume) -> dict[str, Any] | None:
        return next((d for d in self.devices if d["path"] == ZVOL + volume.name), None)


@dataclass(frozen=True)
class Picture:
    """The whole node at one moment. Volumes by guid, VMs by uuid; images are left out."""

    volumes: dict[int, Volume]
    vms: dict[str, Machine]

    def attached(self, vm: str) -> Iterator[tuple[Volume, dict[str, Any]]]:
        """The volumes that a VM's configuration names, with their entries, in the order of their names."""
        for volume in sorted(self.volumes.values(), key=lambda v: v.name):
            device = self.vms[vm].device_of(volume) if volume.vm == vm else None
            if device is not None:
                yield volume, device

    def below(self, vm: str) -> list[Volume]:
        return [v for v in self.volumes.values() if v.vm == vm]

    def detached(self, vm: str | None = None) -> list[Volume]:
        """Volumes outside any VM, or those of them that a VM had last."""
        volumes = [v for v in self.volumes.values() if v.detached and vm in (None, v.user.get("vm"))]
        return sorted(volumes, key=lambda v: v.name)

    def of(self, vm: str) -> list[Volume]:
        """The name space of a VM: everything below its dataset, and what is detached from it."""
        return self.below(vm) + self.detached(vm)

    def uuid(self, volume: Volume) -> str:
        """The hypervisor's word for an attached disk, the volume's own for any other."""
        device = self.vms[volume.vm].device_of(volume) if volume.vm in self.vms else None
        return str((device or {}).get("uuid") or volume.user.get("uuid", ""))

    def law(self, vm: str) -> int:
        """q + F + what ZFS needs for the metadata of every volume; without F the whole of their reservations."""
        machine, volumes = self.vms[vm], self.below(vm)
        if machine.flexible is None:
            return machine.q + sum(v.auto for v in volumes)
        return machine.q + max(0, machine.flexible + sum(v.auto - v.size for v in volumes))

    def allocatable(self, vm: str) -> int | None:
        """F less all that is held, the VM's own file system as far as it outgrows its quota."""
        machine = self.vms[vm]
        if machine.flexible is None:
            return None
        used = sum(v.size + v.pinned for v in self.below(vm))
        return machine.flexible - used - max(0, machine.own - machine.q)

    def room(self, vm: str) -> int:
        """What ZFS itself would still give below the VM's quota, without what is left of its own file system's."""
        machine = self.vms[vm]
        return machine.quota - machine.used - max(0, machine.q - machine.own)

    def free_space(self, vm: str) -> int | None:
        """RFD 154's figure in bytes."""
        machine = self.vms[vm]
        if machine.flexible is None:
            return None
        return machine.flexible - sum(v.size + v.snapused for v, _device in self.attached(vm))


def take(node: Node) -> Picture:
    """A picture of the node as it is now. Contents are shared with it: they are never changed in place."""
    pool = node.pools.pools[POOL]
    records = node.vmadm_state["vms"]
    volumes = [_volume(pool, d, records) for d in pool.datasets.values() if d.kind == "volume"]
    return Picture(
        {v.guid: v for v in volumes if v.vm or v.detached},
        {uuid: _machine(pool.datasets[f"{POOL}/{uuid}"], record) for uuid, record in records.items()},
    )


def _volume(pool: Pool, dataset: Dataset, vms: dict[str, Any]) -> Volume:
    above = dataset.name.split("/")[1]
    auto = pool.auto(dataset.volsize, dataset.volblocksize)
    return Volume(
        guid=dataset.guid,
        name=dataset.name,
        vm=above if above in vms else "",
        detached=dataset.name.startswith(DETACHED),
        size=dataset.volsize,
        block=dataset.volblocksize,
        extents=dataset.extents,
        snaps={
            s.guid: Snap(s.guid, s.name, s.volsize, s.extents, s.createtxg)
            for s in dataset.snapshots
            if s.name != GUARD
        },
        user={key.partition(":")[2]: str(value) for key, value in dataset.props.items() if key.startswith("flexdisk:")},
        compression=str(dataset.props.get("compression", "off")),
        auto=auto,
        refreservation=dataset.refreservation,
        pinned=dataset.head + dataset.snapused - min(auto, dataset.unique),
        snapused=dataset.snapused,
    )


def _snap(snapshot: Snapshot) -> Snap:
    return Snap(snapshot.guid, snapshot.name, snapshot.volsize, snapshot.extents, snapshot.createtxg)


def _machine(root: Dataset, record: dict[str, Any]) -> Machine:
    flexible = record["cfg"].get("flexible_disk_size")
    return Machine(
        uuid=record["uuid"],
        alias=record["cfg"].get("alias", ""),
        state="running" if record["zone_state"] == "running" else "stopped",
        autoboot=bool(record["cfg"].get("autoboot")),
        flexible=int(flexible) * MIB if flexible else None,
        devices=_devices(record),
        q=root.refquota,
        quota=root.quota,
        reservation=root.reservation,
        used=root.used,
        own=root.head + root.snapused + root.refreserved,
    )


def _devices(record: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The disks as configured, each with the slot where the guest sees it, written down or not."""
    devices = sorted((dict(d) for d in record["devices"]), key=lambda d: disk_index(d["path"]))
    try:
        given = slots.assign(devices, {}, legacy=True)
    except VmError:  # Two in one slot, which an update does not notice.
        given = slots.assign([device for device in devices if "pci_slot" not in device], {}, legacy=True)
    for device, slot in given:
        device["pci_slot"] = slot
    return tuple(devices)


def same(one: ext.Extents, other: ext.Extents, end: int, start: int = 0) -> bool:
    """Whether two contents agree in the bytes [start, end)."""
    return one is other or ext.digest(one, start, end) == ext.digest(other, start, end)
