# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The door: what a module needs to reach everything else."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ..hypervisor.libvirt_connection import Connection
from ..hypervisor.libvirt_driver import Libvirt
from ..hypervisor.protocol import Hypervisor
from ..hypervisor.vmadm import Vmadm
from ..model.errors import FlexdiskError, Problem
from ..rules import core_version
from ..zfs.commands import Zfs
from ..zfs.devices import at
from . import lock
from .arguments import check_figures
from .runner import SYSTEM_PATH, SubprocessRunner
from .vm_disks import Outcome

# Where a libvirt daemon listens, the old one and those of single drivers.
_SOCKETS = tuple("/%srun/libvirt/%s-sock" % (var, name) for var in ("", "var/") for name in ("libvirt", "virtqemud"))


def open_host(params: t.Mapping[str, t.Any], runner: SubprocessRunner, core: str) -> t.Tuple[Zfs, Hypervisor]:
    """Storage and hypervisor of this host; C(auto) takes vmadm if that is there, else a libvirt that can be reached.

    core is the version of ansible-core. Raises FlexdiskError AnsibleTooOld, InvalidArgument, CommandNotFound.
    """
    too_old = core_version.refusal(core)
    if too_old:
        raise FlexdiskError("AnsibleTooOld", too_old)
    check_figures(params)
    choice, uri = params["hypervisor"], params["libvirt_uri"]
    if choice == "vmadm" or (choice == "auto" and (shutil.which("vmadm") or shutil.which("vmadm", path=SYSTEM_PATH))):
        return Zfs(runner, pipe=runner.pipe), Vmadm(runner)
    if choice == "libvirt" or any(map(os.path.exists, _SOCKETS)):
        return Zfs(runner, pipe=runner.pipe), Libvirt(Connection(uri, at), uri, runner)
    raise FlexdiskError(
        "CommandNotFound", "no hypervisor found on this host: neither the program vmadm nor the socket of a libvirtd"
    )


@contextlib.contextmanager
def turn(
    runner: SubprocessRunner, params: t.Mapping[str, t.Any], task: str, check_mode: bool
) -> t.Iterator[t.List[str]]:
    """Only the body changes the host. Check mode takes no lock and gets warnings of those who have it."""
    if check_mode:
        yield lock.busy(params["pool"])
    else:
        with lock.exclusive(runner, params["pool"], params["lock_timeout"], task):
            yield []


def failure_text(problems: t.Sequence[Problem]) -> str:
    """All problems in one message, one a line."""
    lines = []
    for problem in problems:
        where = [
            part for part in ("VM " + problem.vm if problem.vm else "", problem.disk and "disk " + problem.disk) if part
        ]
        lines.append("%s%s [%s]" % (": ".join(where) + ": " if where else "", problem.message, problem.code))
    return "\n".join(lines)


def refusal(problems: t.Sequence[Problem]) -> t.Dict[str, t.Any]:
    """Arguments of fail_json for problems found before any change."""
    return {
        "msg": failure_text(problems),
        "error_code": problems[0].code,
        "problems": [problem.as_dict() for problem in problems],
    }


def error(exc: FlexdiskError) -> t.Dict[str, t.Any]:
    """Arguments of fail_json for an error that no VM's declaration caused."""
    return refusal([Problem(exc.code, exc.message)])


def result(outcome: Outcome) -> t.Dict[str, t.Any]:
    """The keys of a result, the same in check mode and for real but for what only a real detach or removal has."""
    found = {"changed": outcome.changed, "msg": outcome.msg, "vms": outcome.vms, "diff": {"prepared": outcome.diff}}
    real = {"guard": outcome.guard, "destroyed_by": outcome.destroyed_by}
    return dict(found, **{key: value for key, value in real.items() if value})


def ending(outcome: Outcome) -> t.Optional[t.Dict[str, t.Any]]:
    """Arguments of fail_json if the run failed, with what was done, else None."""
    if outcome.failure is not None:
        failure = outcome.failure
        problem = Problem(failure["error_code"], "%s: %s" % (failure["step"], failure["message"]), failure["vm"])
        tail = ""
        if failure["restarted"] is not None:
            tail = " The VM %s" % ("is running again" if failure["restarted"] else "is down")
            tail += "; %s." % failure["restart"] if failure["restart"] else "."
        text = failure_text([problem]) + tail + "".join("\n" + failure_text([other]) for other in outcome.problems)
        return dict(result(outcome), **dict(refusal([problem, *outcome.problems]), msg=text, failure=failure))
    if outcome.problems:
        return dict(result(outcome), **refusal(outcome.problems))
    return None
