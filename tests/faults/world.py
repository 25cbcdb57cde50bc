# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All that is on a hypervisor, read with its own commands and none of the collection's code, and made comparable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.backend import POOL, Backend

NATIVE = frozenset(
    ["type", "guid", "volsize", "volblocksize", "quota", "refquota", "reservation", "refreservation", "compression",
     "origin", "userrefs", "canmount"]
)  # fmt: skip
VM_KEYS = ("alias", "state", "autoboot", "flexible_disk_size", "ram", "vcpus", "zfs_filesystem")
DISK_KEYS = ("path", "boot", "model", "media", "pci_slot", "uuid", "image_uuid", "image_size")
STAMPS = ("flexdisk:ctime", "flexdisk:mtime", "flexdisk:serial_no")
OWN = ("local", "received")
SERIAL = 20  # digits of the UUID that a guest sees as the serial of its disk
_NUMBERED = re.compile(r".*/(vm-\d+-disk-\d+)")
# A snapshot that was renamed when its disk was detached has the disk's transaction group in its name.
_DETACHED_SNAPSHOT = re.compile(r"(flexdisk-parked-[0-9a-f]{8}-)\d+-")

Properties = dict[str, str]


@dataclass
class World:
    """Datasets and snapshots by name with their properties, VMs by uuid, digests of contents by dataset or snapshot."""

    datasets: dict[str, Properties]
    vms: dict[str, dict[str, Any]]
    contents: dict[str, str] = field(default_factory=dict)

    def uuids(self) -> set[str]:
        """The uuids of all disks."""
        configured = {disk["uuid"] for vm in self.vms.values() for disk in vm["disks"] if "uuid" in disk}
        return configured | {found for props in self.datasets.values() if (found := props.get("flexdisk:uuid"))}

    def size(self, name: str) -> int:
        """Bytes of a volume or a volume's snapshot, 0 of anything else."""
        size = self.datasets[name].get("volsize", "-")
        return int(size) if size.isdigit() else 0


def read(backend: Backend, *, contents: bool = True) -> World:
    """Everything that is."""
    types, columns = "filesystem,volume,snapshot", "name,property,value,source"
    datasets: dict[str, Properties] = {}
    for line in backend.run("zfs", "get", "-Hpr", "-t", types, "-o", columns, "all", POOL).splitlines():
        name, prop, value, source = line.split("\t")
        if prop in NATIVE or (":" in prop and source in OWN):
            datasets.setdefault(name, {})[prop] = value
    vms = {vm["uuid"]: _vm(vm) for vm in json.loads(backend.run("vmadm", "lookup", "-j"))}
    world = World(datasets, vms)
    if contents:
        world.contents = backend.digests({name: size for name in datasets if (size := world.size(name))})
    return world


def _vm(row: Mapping[str, Any]) -> dict[str, Any]:
    disks = [{key: disk[key] for key in DISK_KEYS if key in disk} for disk in row["disks"]]
    return {**{key: row.get(key) for key in VM_KEYS}, "disks": sorted(disks, key=lambda disk: str(disk["path"]))}


def _is_number(dataset: str, prop: str) -> bool:
    """Whether the property is the number of a volume on Proxmox VE, in its VM or detached from it."""
    return prop == "flexdisk:index" and not dataset.startswith(f"{POOL}/")


def comparable(world: World, known: set[str]) -> dict[str, Any]:
    """The world without what differs from run to run: stamps, identities of datasets, uuids other than the known; and
    the numbers of volumes on Proxmox VE, of which a new one may be that of a volume that has gone.
    """
    names = {
        props["flexdisk:uuid"]: f"<uuid of {props.get('flexdisk:name', '?')}>"
        for props in world.datasets.values()
        if props.get("flexdisk:uuid", "") not in known | {""}
    }
    datasets = {
        name: {p: "*" if p in STAMPS or _is_number(name, p) else value for p, value in props.items() if p != "guid"}
        for name, props in world.datasets.items()
    }
    text = json.dumps({"datasets": datasets, "vms": world.vms, "contents": world.contents}, sort_keys=True)
    for dataset, props in world.datasets.items():
        numbered = _NUMBERED.fullmatch(dataset)
        if numbered and props.get("flexdisk:name"):
            text = re.sub(rf"\b{numbered[1]}\b", f"<volume of {props['flexdisk:name']}>", text)
    for uuid, name in names.items():
        text = text.replace(uuid, name).replace(uuid.replace("-", "")[:SERIAL], name)
    state: dict[str, Any] = json.loads(_DETACHED_SNAPSHOT.sub(r"\1", text))
    return state
