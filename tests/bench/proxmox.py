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
_DATASET = "rpool/data"


def make_node(folder: Path, vms: int) -> None:
    """Make a node whose disks have their identity already, and args.json with what they have, declared.

    Volumes and files are written as the simulated qm would: it reads all files for each command.
    """
    from simnode import Node
    from simnode.__main__ import install_programs
    from simnode.scenarios import proxmox_node

    node = proxmox_node(folder, 1, ("rpool",), (vms * 2 * sum(SIZES) + 64) << 30)
    files, wanted = folder / "root/etc/pve/local/qemu-server", []
    for number in range(100, 100 + vms):
        vm, lines = (
            f"cccccccc-0000-4000-8000-{number:012d}",
            ["boot: order=virtio0", "memory: 128", f"name: vm{number}"],
        )
        for key, size in enumerate(SIZES):
            uuid, name = f"{number:08d}-000{key}-4000-8000-000000000001", f"vm-{number}-disk-{key}"
            facts = [f"flexdisk:uuid={uuid}", f"flexdisk:name=disk{key}", f"flexdisk:vm={vm}"]
            words = [word for fact in facts for word in ("-o", fact)]
            node.run(["zfs", "create", "-s", *words, "-V", f"{size}G", f"{_DATASET}/{name}"])
            lines.append(f"virtio{key}: local-zfs:{name},serial={uuid.replace('-', '')[:20]},size={size}G")
        files.joinpath(f"{number}.conf").write_text("".join(f"{line}\n" for line in [*lines, f"smbios1: uuid={vm}"]))
        entries = [{"name": f"disk{key}", "size": f"{size}GiB"} for key, size in enumerate(SIZES)]
        wanted.append({"vm": f"vm{number}", "disks": entries})
    node.save()
    install_programs(folder)
    with Node.open(folder) as saved:
        _settle(saved, folder / "root", wanted)
    (folder / "args.json").write_text(json.dumps({"vms": wanted, "hypervisor": "proxmox"}))


def _settle(node: Any, root: Path, wanted: list[dict[str, Any]]) -> None:
    """Write the records, and the properties that repeat what the files say."""
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_vm
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_disks import ProxmoxDisks
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import vm_record
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

    def runner(argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        return Answer(*node.run(list(argv), stdin))

    driver = ProxmoxDisks(runner, str(root))
    for vm in observe(Zfs(runner), driver).vms:
        path = Path(f"{root}{pve_vm.record_file(vm.config.uuid)}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(vm_record.render(vm_record.of_disks(vm.config, vm.disks)))
    outcome = converge(Zfs(runner), driver, wanted, Policy(), None, False)
    if outcome.problems or outcome.failure or outcome.changed:
        raise SystemExit(f"the node cannot be prepared: {outcome.problems or outcome.failure or outcome.plan}")


def reads(folder: Path, log: Path) -> list[list[str]]:
    """Of the commands that a run has noted, the one that reads all datasets; and one that reads the files of VMs."""
    lines = [line.split() for line in log.read_text().splitlines()]
    files = sorted(str(path) for path in (folder / "root/etc/pve").rglob("*.conf"))
    return [next(words for words in lines if words[:2] == ["zfs", "get"]), ["cat", *files]]
