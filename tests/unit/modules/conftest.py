# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules run as Ansible runs them, with the programs of a simulated node on PATH."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from simnode import Node
from simnode.__main__ import install_programs
from simnode.node import PoolSpec
from simnode.vmadm.admin import COMMANDS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from in_process import call

IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
VM = "cccccccc-0000-4000-8000-000000000001"
PLUGINS = "ansible_collections.flexdisk.hypervisor.plugins.modules."


class Host:
    """The node below `directory`; call it to run a module."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.capsys = capsys
        node = Node.create(directory, [PoolSpec("zones", 64 << 30)])
        COMMANDS["image-import"](node, [IMAGE, "1024"])
        disks = [{"image_uuid": IMAGE, "boot": True, "model": "virtio"}, {"size": 64, "model": "virtio"}]
        payload = {"uuid": VM, "brand": "bhyve", "alias": "web01", "disks": disks, "flexible_disk_size": 4096}
        status, _out, err = node.run(["vmadm", "create"], json.dumps({**payload, "autoboot": False}))
        assert status == 0, err
        node.save()
        install_programs(directory)

    def state(self) -> str:
        return (self.directory / "state.json").read_text()

    def node(self, *argv: str) -> str:
        with Node.open(self.directory) as node:
            status, out, err = node.run(argv)
        assert status == 0, err
        return out

    def __call__(self, module: str, check: bool = False, **args: Any) -> dict[str, Any]:
        self.capsys.readouterr()
        with patch_module_args({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit) as ended:
            import_module(PLUGINS + module).main()
        result = json.loads(self.capsys.readouterr().out)
        assert bool(ended.value.code) == bool(result.get("failed"))
        return dict(result)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "processes: the node's programs are processes, as on a host")


@pytest.fixture
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    made = Host(tmp_path, capsys)
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setattr(SubprocessRunner, "__call__", call)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return made
