# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node of Proxmox VE, on which modules run as Ansible runs them."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from simnode import Node
from simnode.__main__ import install_programs
from simnode.node import PoolSpec
from simnode.pve import on_node

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from in_process import call

PLUGINS = "ansible_collections.flexdisk.hypervisor.plugins.modules."
WEB, DB = "cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002"
ROOT_DISK, DATA = "aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002"
STORAGE = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup

zfspool: local-zfs
\tpool rpool/data
\tcontent images,rootdir
\tsparse 1

zfspool: tank
\tpool tank/vms
\tcontent images

zfspool: elsewhere
\tpool far/vms
\tcontent images
\tnodes pve2

rbd: ceph
\tpool rbd
\tcontent images
"""


class PveHost:
    """The node below `directory`; call it to run a module."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.capsys = directory, capsys
        self.files = directory / on_node.FOLDER
        self.commands: list[list[str]] = []
        node = Node.create(directory, [PoolSpec(name, 64 << 30, version="2.3") for name in ("rpool", "tank")])
        on_node.install(node, "rpool")
        node.save()
        install_programs(directory)
        self.node("zfs", "create", "tank/vms")
        self.write("storage.cfg", STORAGE)

    def write(self, name: str, text: str) -> None:
        """Write a file below /etc/pve."""
        path = self.files / "etc" / "pve" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")

    def vm(self, vmid: int, *lines: str, uuid: str = "") -> None:
        """Write the file of a VM."""
        smbios = [f"smbios1: uuid={uuid}"] if uuid else []
        self.write(f"nodes/pve1/qemu-server/{vmid}.conf", "".join(f"{line}\n" for line in (*smbios, *lines)))

    def volume(self, volume: str, size: str = "1G", /, **properties: str) -> None:
        words = [word for key, value in properties.items() for word in ("-o", f"flexdisk:{key}={value}")]
        self.node("zfs", "create", "-s", *words, "-V", size, volume)

    def node(self, *argv: str) -> str:
        with Node.open(self.directory) as node:
            status, out, err = node.run(argv)
        assert status == 0, err
        return out

    def everything(self) -> dict[str, bytes]:
        """All files of the node: its ZFS and /etc/pve."""
        paths = [self.directory / "state.json", *sorted(self.files.rglob("*"))]
        return {str(path): path.read_bytes() for path in paths if path.is_file()}

    def __call__(self, module: str, check: bool = False, **args: Any) -> dict[str, Any]:
        self.capsys.readouterr()
        with patch_module_args({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit) as ended:
            import_module(PLUGINS + module).main()
        result = json.loads(self.capsys.readouterr().out)
        assert bool(ended.value.code) == bool(result.get("failed"))
        return dict(result)


@pytest.fixture
def pve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PveHost:
    """A node with two VMs: web has disks in two pools, and one of every kind that is left alone."""
    made = PveHost(tmp_path, capsys)

    def noted(runner: SubprocessRunner, argv: Any, *more: Any, **named: Any) -> Any:
        made.commands.append(list(argv))
        return call(runner, argv, *more, **named)

    monkeypatch.setattr(SubprocessRunner, "__call__", noted)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    made.volume("rpool/data/vm-100-disk-0", "8G", uuid=ROOT_DISK, name="root")
    made.volume("tank/vms/vm-100-disk-0", "20G", uuid=DATA, name="data", preserve="true")
    for name in ("rpool/data/vm-100-disk-1", "rpool/data/vm-100-disk-2", "rpool/data/vm-100-disk-3"):
        made.volume(name)
    made.volume("rpool/data/vm-101-disk-0", "4G")
    made.volume("rpool/data/vm-100-cloudinit", "4M")
    made.vm(
        100,
        "boot: order=virtio0;net0",
        "cores: 2",
        "efidisk0: local-zfs:vm-100-disk-1,size=1M",
        "ide2: local-zfs:vm-100-cloudinit,media=cdrom",
        "memory: 2048",
        "name: web",
        "onboot: 1",
        f"scsi1: tank:vm-100-disk-0,serial={DATA.replace('-', '')[:20]},size=20G",
        "tags: prod;web",
        "unused0: local-zfs:vm-100-disk-2",
        f"virtio0: local-zfs:vm-100-disk-0,serial={ROOT_DISK.replace('-', '')[:20]},size=8G",
        uuid=WEB,
    )
    made.vm(101, "bootdisk: sata0", "name: db", "sata0: local-zfs:vm-101-disk-0,serial=a%2Cb,size=4G", uuid=DB)
    made.commands.clear()
    return made
