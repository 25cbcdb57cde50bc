# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes to begin with: built by running the commands that would have made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from simnode.node import Node, PoolSpec
from simnode.pve import on_node
from simnode.vmadm.images import import_image

GIB = 1 << 30
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
IMAGE_MIB = 10240
WEB01 = "11111111-0000-4000-8000-000000000001"
DB01 = "22222222-0000-4000-8000-000000000001"
LEGACY01 = "33333333-0000-4000-8000-000000000001"
BENCH_GIB_PER_VM = 24


class ScenarioError(Exception):
    """A command of a scenario failed, or there is no such scenario."""


def build(name: str, directory: Optional[Path], seed: int = 1) -> Node:
    """Make the node of a scenario: demo, proxmox, empty or bench:N.

    `directory` None keeps it in memory. seed: of its guids.
    """
    kind, _colon, count = name.partition(":")
    if kind == "bench" and count.isdigit():
        return _bench(int(count), directory, seed)
    if name not in _SCENARIOS:
        raise ScenarioError(f"there is no scenario {name!r}, use one of demo, proxmox, empty, bench:N")
    return _SCENARIOS[name](directory, seed)


def _run(node: Node, argv: Sequence[str], stdin: str = "") -> str:
    status, out, err = node.run(argv, stdin)
    if status != 0:
        raise ScenarioError(f"{' '.join(argv)}: {err}")
    return out


def _create(node: Node, uuid: str, alias: str, disks: List[Dict[str, Any]], **more: Any) -> None:
    payload = {"uuid": uuid, "brand": "bhyve", "alias": alias, "autoboot": False, "ram": 2048, "vcpus": 2,
               "disks": disks, **more}  # fmt: skip
    _run(node, ["vmadm", "create"], json.dumps(payload))


def _update(node: Node, uuid: str, **payload: Any) -> None:
    _run(node, ["vmadm", "update", uuid], json.dumps(payload))


def _boot_disk() -> Dict[str, Any]:
    return {"image_uuid": IMAGE, "boot": True, "model": "virtio"}


def _data_disk(size: int) -> Dict[str, Any]:
    return {"size": size, "model": "virtio"}


def _empty(directory: Optional[Path], seed: int = 1, size: int = 256 * GIB) -> Node:
    node = Node.create(directory, [PoolSpec(name="zones", size=size)], seed)
    import_image(node, IMAGE, IMAGE_MIB, name="debian-13", version="20260101")
    return node


def _demo(directory: Optional[Path], seed: int = 1) -> Node:
    """Three VMs in disorder: one to be reshaped, one whose quota has drifted, one without flexible space."""
    node = _empty(directory, seed)
    _create(node, WEB01, "web01", [_boot_disk(), _data_disk(20480)], flexible_disk_size=102400)
    _create(node, DB01, "db01", [_boot_disk(), *(_data_disk(size) for size in (8192, 16384, 4096))],
            flexible_disk_size=61440)  # fmt: skip
    _update(node, DB01, remove_disks=[f"/dev/zvol/rdsk/zones/{DB01}/disk1"])
    _create(node, LEGACY01, "legacy01", [_boot_disk(), _data_disk(10240)])
    for uuid, disk, length in ((WEB01, 0, 900), (WEB01, 1, 2048), (DB01, 0, 700), (DB01, 2, 4096), (LEGACY01, 0, 800)):
        _run(node, ["guest", "write", f"zones/{uuid}/disk{disk}", "0", str(length), f"{uuid} {disk}"])
    for uuid in (DB01, LEGACY01):
        _run(node, ["vmadm", "start", uuid])
    return node


def _proxmox(directory: Optional[Path], seed: int = 1) -> Node:
    """A node of Proxmox VE with two storages and two VMs, whose disks have no names yet. One of them runs."""
    node = proxmox_node(directory, seed, ("rpool", "tank"))
    _run(node, ["zfs", "create", "tank/vms"])
    _run(node, ["pvesm", "add", "zfspool", "tank", "--pool", "tank/vms", "--content", "images"])
    _machine(node, 100, "web", "local-zfs:20", "tank:50")
    _machine(node, 101, "db", "local-zfs:10", "tank:16", "tank:4")
    _run(node, ["qm", "start", "100"])
    return node


def proxmox_node(directory: Optional[Path], seed: int, pools: Sequence[str], size: int = 256 * GIB) -> Node:
    """Return a node of Proxmox VE with these pools, the storage local-zfs in the first of them, and no VM."""
    node = Node.create(directory, [PoolSpec(name=name, size=size, version="2.3") for name in pools], seed)
    on_node.install(node, pools[0])
    return node


def _machine(node: Node, vmid: int, name: str, boot: str, *more: str) -> None:
    """Create a VM of Proxmox VE with a boot disk at virtio0, and more from scsi1 on; each STORAGE:GIB."""
    words = ["--name", name, "--memory", "2048", "--scsihw", "virtio-scsi-single"]
    _run(node, ["qm", "create", str(vmid), *words, "--virtio0", boot])
    for number, disk in enumerate(more, 1):
        _run(node, ["qm", "set", str(vmid), f"--scsi{number}", disk])


def bench_uuid(index: int) -> str:
    """Return the UUID of the VM of that index (from 0) in a bench scenario."""
    return f"bbbbbbbb-0000-4000-8000-{index:012d}"


def _bench(count: int, directory: Optional[Path], seed: int = 1) -> Node:
    node = _empty(directory, seed, (count * BENCH_GIB_PER_VM + 64) * GIB)
    for index in range(count):
        disks = [_boot_disk(), _data_disk(4096), _data_disk(2048), _data_disk(1024)]
        _create(node, bench_uuid(index), f"bench{index:04d}", disks, flexible_disk_size=20480)
    return node


_SCENARIOS: Dict[str, Callable[[Optional[Path], int], Node]] = {
    "demo": _demo,
    "empty": _empty,
    "proxmox": _proxmox,
}
