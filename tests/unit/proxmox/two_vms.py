# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of Proxmox VE without VMs, for suites that all drivers share."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_disks import ProxmoxDisks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy

from .world import World

CONFIGS = "etc/pve/nodes/pve1/qemu-server"
STORAGE = """zfspool: local-zfs
\tpool rpool/data
\tcontent images

zfspool: other
\tpool other/vms
\tcontent images
\tdisable 1
"""


class ProxmoxHost(World):
    """The node. It can be pickled: its files go with it."""

    def __init__(self) -> None:
        super().__init__()
        self.path.unlink()
        self.run("zfs", "destroy", "rpool/data/vm-100-disk-0")
        self.run("zfs", "destroy", "tank/vms/vm-100-disk-0")
        self.write("storage.cfg", STORAGE)
        self.numbers: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        paths = [path for path in self.files.rglob("*") if path.is_file()]
        content = {str(path.relative_to(self.files)): path.read_bytes() for path in paths}
        links = {str(one.relative_to(self.files)): one.readlink() for one in self.files.rglob("*") if one.is_symlink()}
        return {**self.__dict__, "content": content, "links": links}

    def __setstate__(self, state: dict[str, Any]) -> None:
        content, links = state.pop("content"), state.pop("links")
        self.__dict__.update(state)
        directory = Path(tempfile.mkdtemp(prefix="pve"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.node.directory = directory
        self.files = directory / self.files.name
        for name in content:
            (self.files / name).parent.mkdir(parents=True, exist_ok=True)
            if not any(name.startswith(f"{link}/") for link in links):
                (self.files / name).write_bytes(content[name])
        for name, target in links.items():
            (self.files / name).symlink_to(target)

    def create(self, sizes: Sequence[int], uuid: str, name: str, storage: str = "local-zfs:rpool/data") -> None:
        """Make a VM with disks of these sizes in MiB."""
        number = self.numbers[uuid] = 100 + len(self.numbers)
        storage, _colon, parent = storage.partition(":")
        lines = ["boot: order=virtio0", f"name: {name}", f"smbios1: uuid={uuid}", "scsihw: virtio-scsi-single"]
        for at, size in enumerate(sizes):
            self.run("zfs", "create", "-V", f"{size}M", f"{parent}/vm-{number}-disk-{at}")
            lines.append(f"virtio{at}: {storage}:vm-{number}-disk-{at},size={size}M")
        self.config(uuid).write_text("".join(f"{line}\n" for line in lines))

    def config(self, uuid: str) -> Path:
        """The file of a VM."""
        return self.files / CONFIGS / f"{self.numbers[uuid]}.conf"

    def runner(self, argv: Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        return self._runner(argv, stdin, timeout)

    def driver_with(self, runner: Callable[..., Answer]) -> ProxmoxDisks:
        """The driver, whose commands go through a runner."""
        driver = ProxmoxDisks(runner, str(self.files), self.node.sleep)
        driver._blocks = lambda vmid: self._blocks(f"/run/{vmid}.qmp")  # type: ignore[method-assign]
        return driver

    def converge(self, wanted: dict[str, Any]) -> Outcome:  # type: ignore[override]
        return converge(self.zfs, self.driver, [wanted], Policy(), None, False)
