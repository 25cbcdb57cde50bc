# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of Proxmox VE with many VMs, for a run that changes nothing there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIZES = (10, 4, 2, 1)  # GiB of the disks of each VM
PROGRAMS = ("zfs", "zpool", "qm", "pvesm")


def make_node(folder: Path, vms: int) -> None:
    """Make a node whose disks have their names and serials already, and args.json with what they have, declared."""
    from simnode import Node
    from simnode.__main__ import install_programs
    from simnode.scenarios import proxmox_node

    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_disks import ProxmoxDisks
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

    node = proxmox_node(folder, 1, ("rpool",), (vms * 2 * sum(SIZES) + 64) << 30)
    wanted = []
    for number in range(100, 100 + vms):
        disks = [word for key, size in enumerate(SIZES) for word in (f"--virtio{key}", f"local-zfs:{size}")]
        status, _out, err = node.run(["qm", "create", str(number), "--name", f"vm{number}", "--memory", "128", *disks])
        if status:
            raise SystemExit(f"the node cannot be prepared: {err}")
        entries = [
            {"name": f"disk{key}", "pci_slot": f"virtio{key}", "size": f"{size}GiB"} for key, size in enumerate(SIZES)
        ]
        wanted.append({"vm": f"vm{number}", "disks": entries})
    node.save()
    install_programs(folder)
    with Node.open(folder) as saved:

        def runner(argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
            return Answer(*saved.run(list(argv), stdin))

        outcome = converge(Zfs(runner), ProxmoxDisks(runner, str(folder / "root")), wanted, Policy(), None, False)
        if outcome.problems or outcome.failure:
            raise SystemExit(f"the node cannot be prepared: {outcome.problems or outcome.failure}")
    (folder / "args.json").write_text(json.dumps({"vms": wanted, "hypervisor": "proxmox"}))


def reads(folder: Path, log: Path) -> list[list[str]]:
    """Of the commands that a run has noted, the one that reads all datasets; and one that reads the files of VMs."""
    lines = [line.split() for line in log.read_text().splitlines()]
    files = sorted(str(path) for path in (folder / "root/etc/pve").rglob("*.conf"))
    return [next(words for words in lines if words[:2] == ["zfs", "get"]), ["cat", *files]]
