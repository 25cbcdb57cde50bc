# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boundaries between the commands that vmadm runs one after another, and what can go wrong at them.

A boundary is called as the vmadm command and its part: `delete uninstall`. A test gives it a list of faults, each for
one time, with the administration command `vm-fault` (or `plan`), in process and for programs:

kill            vmadm is killed when the part is done. Exit status -9: a program of the node ends by that signal.
late:SECONDS    who waits gives up when the part is done, and the rest is done so much later. Exit status -15.
timeout         the part is done, but vminfod does not confirm it: vmadm ends with 1. Where it waits for vminfod only.
fail            the part is not done. Where vmadm only logs that, it goes on; else it ends with 1.

A node in process can have a function `at_boundary`, which is called with each boundary when its part is done. What it
raises ends vmadm there. `patience` of such a node is how many seconds its caller waits for vmadm; then the exit status
is -15, too.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Sequence, Tuple

from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import Cut, VmError
from simnode.vmadm.host import VmadmHost

Context = Dict[str, Any]
Part = Tuple[str, Callable[[VmadmHost, Context], None]]
KILLED, GIVEN_UP = -9, -15
WATCH_TIMEOUT = 60
LATE_SECONDS = 30
# What vmadm waits for, in its own words.
WATCHES = {
    "create zonecfg": 'watchForEvent "VM.js createZone (%s)"',
    "create install": 'watchForEvent "VM.js installZone zoneadm (%s)"',
    "create metadata": 'watchForEvent "VM.js installZone (%s)"',
    "create provisioned": 'watchForChanges "VM.js installZone (%s)"',
    "delete uninstall": 'watchForChanges "VM.js deleteZone (%s)"',
    "delete zonecfg": 'watchForEvent "VM.js deleteZone (%s)"',
    "start boot": 'watchForEvent "VM.js startZone (%s)"',
}
# Parts whose failure vmadm only logs.
LOGGED = frozenset(("delete autoboot", "delete halt", "delete uninstall"))
POINTS = (
    "create root",
    "create volumes",
    "create quota",
    "create zonecfg",
    "create dataset",
    "create install",
    "create metadata",
    "create provisioned",
    "delete autoboot",
    "delete halt",
    "delete uninstall",
    "delete volumes",
    "delete zonecfg",
    "start boot",
    "stop autoboot",
    "stop signal",
)


def plan(host: VmadmHost, point: str, faults: Sequence[str]) -> None:
    """Let these faults happen at the boundary, one after the other. None: no more of them."""
    kinds = {fault.partition(":")[0] for fault in faults}
    if point not in POINTS or not kinds <= {"kill", "late", "timeout", "fail"}:
        raise ValueError(point)
    if "timeout" in kinds and point not in WATCHES:
        raise ValueError("vmadm does not wait for vminfod at " + point)
    planned = host.state.setdefault("vmadm_faults", {})
    planned[point] = list(faults)
    if not faults:
        del planned[point]


def run(host: VmadmHost, command: str, parts: Sequence[Part], context: Context, first: int = 0) -> None:
    """Do the parts of a command in order. Raises VmError, or Cut where vmadm ends in between."""
    for number, (name, act) in enumerate(parts):
        if number >= first:
            reach(host, "%s %s" % (command, name), functools.partial(act, host, context), context, number + 1)


def reach(host: VmadmHost, point: str, act: Callable[[], None], context: Context, following: int = 0) -> None:
    """Do the part before a boundary, and what happens at it. following: the number of the next part, 0 if none can be
    done later.
    """
    fault, _colon, seconds = _take(host, point).partition(":")
    try:
        if fault == "fail":
            raise VmError("Command failed: %s: simulated failure" % point)
        act()
    except VmError:
        if point not in LOGGED:
            raise
    hook = getattr(host, "at_boundary", None)
    if hook is not None:
        hook(point)
    if fault == "late" and following:
        known = {key: value for key, value in context.items() if value is not js.UNDEFINED}
        due = host.now() + float(seconds or LATE_SECONDS)
        rest = {"command": point.partition(" ")[0], "first": following, "context": known, "due": due}
        host.state.setdefault("vmadm_late", []).append(rest)
        raise Cut(GIVEN_UP)
    if fault in ("kill", "late"):
        raise Cut(KILLED)
    if fault == "timeout":
        host.sleep(WATCH_TIMEOUT)
        watch = WATCHES[point] % context["uuid"]
        raise VmError("first of 1 error: vminfod %s timeout exceeded" % watch)


def _take(host: VmadmHost, point: str) -> str:
    planned: Dict[str, List[str]] = host.state.get("vmadm_faults", {})
    faults = planned.get(point)
    if not faults:
        return ""
    fault = faults.pop(0)
    if not faults:
        del planned[point]
    return str(fault)


def wait(host: VmadmHost, seconds: float) -> None:
    """Let time pass, but no more than the caller of vmadm waits for it. Raises Cut then."""
    patience = getattr(host, "patience", None)
    if patience is not None and seconds > patience:
        host.sleep(patience)
        raise Cut(GIVEN_UP)
    host.sleep(seconds)


def due(host: VmadmHost, at_once: bool = False) -> List[Dict[str, Any]]:
    """Take the commands out whose rest is to be done now."""
    late: List[Dict[str, Any]] = host.state.get("vmadm_late", [])
    ready = [rest for rest in late if at_once or rest["due"] <= host.now()]
    if ready:
        host.state["vmadm_late"] = [rest for rest in late if rest not in ready]
    return ready
