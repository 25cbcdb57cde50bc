# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of Proxmox VE in memory, and short ways to talk to its qm."""

from __future__ import annotations

import json
from typing import Any

from simnode import Node, PoolSpec
from simnode.pve import on_node
from simnode.pve.admin import COMMANDS
from simnode.pve.host import config_path

BASE = """boot: order=virtio0
memory: 128
name: web01
scsihw: virtio-scsi-single
virtio0: local-zfs:vm-100-disk-0,size=1G
"""
THICK = """
zfspool: thick
\tpool rpool/thick
\tcontent images
"""


class PveNode:
    """A node with VM 100, which has a boot disk of 1 GiB."""

    def __init__(self, text: str = BASE) -> None:
        self.node = Node.create(None, [PoolSpec(name="rpool", size=64 << 30, version="2.3")])
        on_node.install(self.node, "rpool")
        self.host = on_node.NodeHost(self.node)
        self.write("/etc/pve/storage.cfg", (self.host.read("/etc/pve/storage.cfg") or "") + THICK)
        self.zfs("create", "rpool/thick")
        self.zfs("create", "-s", "-V", "1G", "rpool/data/vm-100-disk-0")
        self.write(config_path(100), text)

    def write(self, path: str, text: str) -> None:
        self.host.write(path, text)

    def file(self, vmid: int = 100) -> str | None:
        """The text of a VM's file."""
        return self.host.read(config_path(vmid))

    def values(self, vmid: int = 100) -> dict[str, str]:
        """The lines of the main section of a VM's file."""
        main = (self.file(vmid) or "").partition("\n[")[0]
        return dict(line.split(": ", 1) for line in main.splitlines() if not line.startswith("#"))

    def run(self, *argv: str) -> tuple[int, str, str]:
        return self.node.run(list(argv))

    def good(self, line: str) -> str:
        """The stdout of a command that has to succeed."""
        status, out, err = self.run(*line.split())
        assert (status, err) == (0, "")
        return out

    def bad(self, line: str) -> str:
        """The stderr of a command that has to fail."""
        status, _out, err = self.run(*line.split())
        assert status not in (0, -9), line
        return err

    def unknown(self, line: str) -> str:
        """What a command says of which nothing is known. It has changed nothing."""
        before = self.everything()
        status, _out, err = self.run(*line.split())
        assert status == 96
        assert self.everything() == before
        return err

    def zfs(self, *argv: str) -> str:
        status, out, err = self.node.zfs(list(argv))
        assert status == 0, err
        return out

    def volumes(self) -> dict[str, int]:
        """Every volume with its size."""
        found = self.zfs("list", "-Hp", "-t", "volume", "-o", "name,volsize")
        return {name: int(size) for name, size in (line.split("\t") for line in found.splitlines())}

    def admin(self, *argv: str) -> str:
        status, out, err = COMMANDS[argv[0]](self.node, list(argv[1:]))
        assert (status, err) == (0, "")
        return out

    def plugged(self, vmid: int = 100) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.admin("pve-plugged", str(vmid)))
        return found

    def everything(self) -> tuple[Any, ...]:
        """The files, volumes and QEMUs of the node."""
        state = self.host.state
        return dict(state["files"]), self.volumes(), json.dumps(state.get("running", {}), sort_keys=True)
