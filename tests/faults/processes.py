# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated node behind programs on PATH, the shim before them, and the module as a process of its own.

The programs are processes, too, but hand their command lines to the node in this one: a program that loads the node
itself takes four times as long, and a module's run consists of little else.
"""

from __future__ import annotations

import fcntl
import json
import marshal
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ansible.module_utils.testing import patch_module_args
from simnode import Node
from simnode.__main__ import LOCKS

from tests.faults import shim
from tests.faults.backend import arguments_of, module_of
from tests.faults.node import NodeBackend
from tests.faults.shim import Fault

MODULES = "ansible_collections.flexdisk.hypervisor.plugins.modules"
MODULE_SECONDS = 300
FORK = multiprocessing.get_context("fork")
PROGRAM = """#!{python} -IS
import _socket, marshal, sys

question = marshal.dumps((sys.argv, sys.stdin.read()))
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect({address!r})
link.sendall(question)
link.shutdown(_socket.SHUT_WR)
answer = b""
while part := link.recv(1 << 16):
    answer += part
status, out, err = marshal.loads(answer)
sys.stdout.write(out)
sys.stdout.flush()
sys.stderr.write(err)
sys.exit(status)
"""


class ProcessBackend:
    """A Backend in `folder`, beginning with that node. To be closed."""

    def __init__(self, folder: Path, node: Node) -> None:
        self._folder = folder
        self._node = node
        self._plain = NodeBackend(node)
        self._shim = folder / "shim"
        self._programs = socket.socket(socket.AF_UNIX)
        self._programs.bind(str(folder / "node"))
        self._programs.listen()
        _install(folder)
        shim.install(self._shim)
        path = [str(self._shim), str(folder / "bin"), os.environ.get("PATH", os.defpath)]
        self._environment = dict(os.environ, PATH=os.pathsep.join(path))
        self._locks = self._shim / LOCKS
        self._locks.mkdir(mode=0o700)

    def __enter__(self) -> ProcessBackend:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._programs.close()

    def run(self, *argv: str, stdin: str = "") -> str:
        return self._plain.run(*argv, stdin=stdin)

    def admin(self, command: str, *argv: str) -> None:
        self._plain.admin(command, *argv)

    def digests(self, lengths: Mapping[str, int]) -> dict[str, str]:
        return self._plain.digests(lengths)

    def litter(self) -> Sequence[str]:
        """Locks that are still held."""
        locked = []
        for path in self._locks.glob("*.lock"):
            with path.open() as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    locked.append(path.name)
        return locked

    def calls(self) -> list[list[str]]:
        return shim.calls(self._shim)

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        """Run the module as a process and return its result; in check mode in this process."""
        if check:
            return self._plain.task(arguments, check=True)
        shim.tell(self._shim, fault)
        # Forked from here, where Ansible has been imported already: half of what a process of its own would cost.
        answer = self._folder / "answer"
        process = FORK.Process(
            target=_run_module, args=(module_of(arguments), arguments_of(arguments), self._environment, answer)
        )
        process.start()
        self._serve(process)
        if process.exitcode == -signal.SIGKILL:
            return {"killed": True}
        assert process.exitcode is not None, "the module does not end"
        result: dict[str, Any] = json.loads(answer.read_text())
        return result

    def _serve(self, module: BaseProcess) -> None:
        """Answer the programs until the module ends. One that outlives its module waits for the next."""
        deadline = time.monotonic() + MODULE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            ready = wait([self._programs, module.sentinel], left)
            if self._programs in ready:
                self._answer()
            elif ready:
                break
        module.join(max(0, left))

    def _answer(self) -> None:
        link, _address = self._programs.accept()
        with link, link.makefile("rb") as stream:
            argv, stdin = marshal.loads(stream.read())
            # A program may be killed before it is told.
            with suppress(BrokenPipeError):
                link.sendall(marshal.dumps(self._node.run(argv, stdin)))


def _install(folder: Path) -> None:
    text = PROGRAM.format(python=sys.executable, address=str(folder / "node"))
    (folder / "bin").mkdir()
    for program in shim.PROGRAMS:
        path = folder / "bin" / program
        path.write_text(text)
        path.chmod(0o755)


def _run_module(module: str, arguments: dict[str, Any], environment: dict[str, str], answer: Path) -> None:
    os.environ.update(environment)
    with answer.open("w") as stream, redirect_stdout(stream), patch_module_args(arguments):
        import_module(f"{MODULES}.{module}").main()
