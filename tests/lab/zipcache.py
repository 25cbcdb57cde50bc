# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs whenever Python starts, in .venv and in the lab: what Ansible sends in its archives is compiled once.

To compile it again in each task takes a third of a task's time, and most of it in emulation. To look for garbage takes
a tenth more: that is done seldom, and not when the interpreter ends. Imports only what costs nothing.
"""

from __future__ import annotations

import _imp
import atexit
import gc
import marshal
import os
import zipimport

FOLDER = f"{os.path.abspath(__file__)}.d"
KEY = 0
compile_source = zipimport._compile_source  # type: ignore[attr-defined]


def remembered(place: str) -> object:
    """The code that is kept in this file; None when there is none."""
    try:
        with open(place, "rb") as stream:
            return marshal.load(stream)
    except (OSError, EOFError, ValueError):
        return None


def cached(path: str, source: bytes) -> object:
    """The code of a module in an archive, by the digest of its source."""
    place = f"{FOLDER}/{_imp.source_hash(KEY, source).hex()}-{len(source)}"
    if (code := remembered(place)) is not None:
        return code
    code = compile_source(path, source)
    try:
        os.makedirs(FOLDER, exist_ok=True)
        with open(f"{place}.{os.getpid()}", "wb") as stream:
            marshal.dump(code, stream)
        os.replace(f"{place}.{os.getpid()}", place)
    except OSError:
        pass
    return code


gc.set_threshold(100_000, 20, 20)
atexit.register(gc.freeze)
zipimport._compile_source = cached  # type: ignore[attr-defined]
