# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands before the Python module libvirt: its calls that change something are counted and spoiled like commands.

Copy it to FOLDER/modules/libvirt.py, where FOLDER is that of shim.py, and put FOLDER/modules first on PYTHONPATH. Who
imports libvirt gets the real one, the next on the path, with the calls that `CALLS` names replaced.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

CALLS = {
    "virConnect": ("defineXML", "restoreFlags"),
    "virDomain": (
        "attachDeviceFlags",
        "blockResize",
        "create",
        "destroy",
        "detachDeviceFlags",
        "resume",
        "saveFlags",
        "setAutostart",
        "shutdown",
        "suspend",
        "undefineFlags",
    ),
}


def wrapped(name: str, real: Callable[..., Any], library: Any, shim: Any, folder: str) -> Callable[..., Any]:
    """The call as FOLDER/fault wants it; faults that only a process can have are not for calls."""

    @functools.wraps(real)
    def call(*arguments: Any) -> Any:
        argv = ["libvirt", name]
        number, fault = shim.count(os.path.join(folder, "calls"), argv), shim.read_fault(folder)
        if fault is None or not fault.hits(number, argv):
            return real(*arguments)
        if fault.kill == "first":
            os.kill(os.getpid(), shim.SIGKILL)
        time.sleep(fault.seconds)
        result = real(*arguments) if fault.effect else None
        if fault.kill == "last":
            os.kill(os.getpid(), shim.SIGKILL)
        if fault.status:
            raise library.libvirtError(shim.complain(fault, argv))
        return result

    return call


def replace(modules: str) -> None:
    """Put the real module, with the calls replaced, in the place of the one that is being imported from there."""
    folder = os.path.dirname(modules)
    path = list(sys.path)
    del sys.modules["libvirt"]
    try:
        sys.path[:] = [folder, *(entry for entry in path if os.path.realpath(entry) != modules)]
        library, shim = importlib.import_module("libvirt"), importlib.import_module("shim")
    finally:
        sys.path[:] = path
    for owner, names in CALLS.items():
        for name in names:
            kind = getattr(library, owner)
            setattr(kind, name, wrapped(name, getattr(kind, name), library, shim, folder))


if __name__ == "libvirt":
    replace(os.path.dirname(os.path.realpath(__file__)))
