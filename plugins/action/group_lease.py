# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_lease: says which run it is, and takes over from a run of this controller that has died."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import re
import socket
import typing as t
import uuid
from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase

_PROCESS = re.compile(r", process ([1-9][0-9]{0,9})\Z")
_NAMESPACE = uuid.UUID("5b0f6f0e-2f0c-4f4e-9d0c-0d6a5c6c3e21")


class ActionModule(ActionBase):
    """The action. The module of the same name does the work on the host."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[t.Dict[str, t.Any]] = None) -> t.Dict[str, t.Any]:
        answer: t.Dict[str, t.Any] = super().run(tmp, task_vars)
        del tmp
        run = controller()
        arguments = {key: value for key, value in self._task.args.items() if value is not None}
        given = {"token": token_of(run), "holder": f"{_user()} on {socket.gethostname()}, process {run}", **arguments}
        done = self._execute_module(module_args=given, task_vars=task_vars)
        taking = given.get("state", "held") == "held" and not arguments.get("renew")
        if taking and done.get("error_code") == "InUse" and has_died(done.get("lease") or {}):
            done = self._execute_module(module_args={**given, "take_over": True}, task_vars=task_vars)
        for entry in done.get("leases") or ():
            entry["died"] = has_died(entry.get("lease") or {})
        return {**answer, **done}


def controller() -> int:
    """Return the process of ansible-playbook, also when it is no more: actions run in processes that it forks."""
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def token_of(process: int) -> str:
    """Return a token for the run that is this process.

    No process with the same number has it: not on another machine, in another container, or before the last boot.

    Without /proc it follows from the folder that ansible-playbook has made for this run alone, which all its processes
    know. So it is the same for all tasks of a run, too, but nobody can tell the token of a run that has died.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        folder = constants.DEFAULT_LOCAL_TMP  # type: ignore[attr-defined]
        return str(uuid.uuid5(_NAMESPACE, f"{socket.gethostname()} {folder} {process}"))
    return str(uuid.uuid5(_NAMESPACE, f"{boot} {space} {process}"))


def has_died(lease: t.Mapping[str, t.Any]) -> bool:
    """Return whether the run that has a lease was one of this controller, and is no more."""
    match = _PROCESS.search(str(lease.get("holder", "")))
    if match is None or lease.get("token") != token_of(int(match[1])):
        return False
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
