# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of simulated nodes, run in the process of the module that calls them: a tenth of the time.

What a program says, and does to its node, is the same (tests/unit/simnode/test_in_process.py). What is killed is not: a
module that is killed takes the program with it.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ansible.module_utils._internal._ansiballz import _loader
from simnode.__main__ import program_text
from simnode.node import Node

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import runner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_KEYWORD = re.compile(r"^(module_fqn|params|profile)=(.*),$", re.MULTILINE)
AS_PROCESSES = ("ssh", "ssh-keygen", "getent")  # they read and write more than a node


forks = 0  # that this process has made
_as_process = runner.SubprocessRunner.__call__


def call(self: runner.SubprocessRunner, argv: Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
    """SubprocessRunner.__call__, but for the programs of nodes."""
    directory = node_of(argv[0], self._environment["PATH"])
    if directory is None:
        return _as_process(self, argv, stdin, timeout)
    self.calls += 1
    with Node.open(directory) as node:
        return Answer(*node.run(argv, stdin))


def node_of(program: str, path: str) -> Path | None:
    """The directory of the node whose program this is; None if it is another's, has been changed, has to be killed by
    its caller, or starts guests that are processes.
    """
    found = shutil.which(program, path=path)
    if found is None or os.path.basename(found) in AS_PROCESSES:
        return None
    directory = Path(found).parents[1]
    vmadm = directory / "vmadm.json"
    if not vmadm.exists() or Path(found).read_text() != program_text(directory, os.path.basename(found)):
        return None
    if (directory / "guests").exists() or '"stop_hangs":"really"' in vmadm.read_text():
        return None
    return directory


def take_over(connection: type) -> None:
    """Let a class of connections run in forks what can be."""
    otherwise = connection.exec_command  # type: ignore[attr-defined]

    def exec_command(self, cmd, in_data=None, sudoable=True):  # type: ignore[no-untyped-def]
        return (in_data and run_module(cmd, in_data)) or otherwise(self, cmd, in_data, sudoable)

    connection.exec_command = exec_command  # type: ignore[attr-defined]


def run_module(cmd: str, payload: bytes) -> tuple[int, bytes, bytes] | None:
    """What a module that Ansible has packed says, run in a fork of this process; None if it is not one of the
    collection.

    cmd: what would run it, /bin/sh -c 'NAME=VALUE ... python'.
    """
    words = _words(payload)
    if words is None:
        return None
    global forks
    forks += 1
    environment = dict(word.split("=", 1) for word in shlex.split(shlex.split(cmd)[-1]) if _ASSIGNED.match(word))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become_module(words, environment, out.fileno(), err.fileno())
        _pid, status = os.waitpid(child, 0)
        for file in (out, err):
            file.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), err.read()


def _words(payload: bytes) -> dict[str, str] | None:
    """The name of a packed module of the collection, its parameters, and how results are written."""
    text = payload[payload.rfind(b"\n    _ansiballz_main(") :].decode()
    found = {name: ast.literal_eval(value) for name, value in _KEYWORD.findall(text)}
    return found if found.get("module_fqn", "").startswith("ansible_collections.flexdisk.") else None


def _become_module(words: dict[str, str], environment: dict[str, str], out: int, err: int) -> NoReturn:
    """What the interpreter of a host would do."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  until the end
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.update(environment)
        runner.SubprocessRunner.__call__ = call  # type: ignore[method-assign]
        try:
            _loader.run_module(
                json_params=words["params"].encode(),
                profile=words["profile"],
                module_fqn=words["module_fqn"],
                modlib_path="",
                extensions={},
            )
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
