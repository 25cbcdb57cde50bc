# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated node in a folder, its programs on PATH behind the shim, and the module as a process of its own."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ansible.module_utils.testing import patch_module_args
from simnode import Node
from simnode.__main__ import install_programs
from simnode.vmadm.admin import COMMANDS
from simnode.zfs import extents

from ansible_collections.flexdisk.hypervisor.plugins.modules import vm_disks
from tests.faults import shim
from tests.faults.node import NodeBackend
from tests.faults.shim import Fault

MODULE_SECONDS = 300
FORK = multiprocessing.get_context("fork")


class ProcessBackend:
    """A Backend in `folder`, beginning with that node."""

    def __init__(self, folder: Path, node: Node) -> None:
        self._folder = folder
        self._node = folder / "node"
        self._shim = folder / "shim"
        self._node.mkdir(parents=True)
        node.directory = self._node
        node.pools.dirty = True
        node.save()
        install_programs(self._node)
        shim.install(self._shim)
        path = [str(self._shim), str(self._node / "bin"), os.environ.get("PATH", os.defpath)]
        self._environment = dict(
            os.environ,
            PATH=os.pathsep.join(path),
            FLEXDISK_LOCK_DIR=str(folder / "locks"),
        )

    def run(self, *argv: str, stdin: str = "") -> str:
        with Node.open(self._node) as node:
            status, out, err = node.run(argv, stdin)
        assert status == 0, f"{argv}: {err}"
        return out

    def admin(self, command: str, *argv: str) -> None:
        with Node.open(self._node) as node:
            status, _out, err = COMMANDS[command](node, list(argv))
        assert status == 0, f"{command} {argv}: {err}"

    def digest(self, name: str, length: int) -> str:
        with Node.open(self._node) as node:
            return extents.digest(node.pools.find(name).extents, 0, length)

    def litter(self) -> Sequence[str]:
        """Locks that are still held."""
        held = []
        for path in (self._folder / "locks").glob("*.lock"):
            with path.open() as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(path.name)
        return held

    def calls(self) -> list[list[str]]:
        return shim.calls(self._shim)

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        """Run the module as a process and return its result; in check mode in this process, on a copy."""
        if check:
            with Node.open(self._node) as node:
                return NodeBackend(node).task(arguments, check=True)
        shim.tell(self._shim, fault)
        # Forked from here, where Ansible has been imported already: half of what a process of its own would cost.
        answer = self._folder / "answer"
        process = FORK.Process(target=_run_module, args=(dict(arguments), self._environment, answer))
        process.start()
        process.join(MODULE_SECONDS)
        if process.exitcode == -signal.SIGKILL:
            return {"killed": True}
        assert process.exitcode is not None, "the module does not end"
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _run_module(arguments: dict[str, Any], environment: dict[str, str], answer: Path) -> None:
    os.environ.update(environment)
    with answer.open("w") as stream, redirect_stdout(stream), patch_module_args(arguments):
        vm_disks.main()
