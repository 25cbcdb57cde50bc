# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lets hosts of the connection local run the collection's modules in forks of Ansible's workers.

What they import is imported once, before there are workers: Ansible's own finder compiles each file anew in each
process, which took half of the time of a play.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path

from ansible.plugins.callback import CallbackBase
from ansible.plugins.connection.local import Connection
from ansible.plugins.loader import action_loader, filter_loader

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = "ansible_collections.flexdisk.hypervisor.plugins"
DOCUMENTATION = """
name: in_process
type: aggregate
short_description: Run modules of the collection in forks
description: Where the connection is local, and pipelining is on.
"""


class Compiled:
    """Finds the shared code of the collection as Python does, which keeps what it has compiled."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if path is None or not name.startswith(f"{COLLECTION}.module_utils._flexdisk"):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path)
        return next(filter(None, (finder.find_spec(name) for finder in finders)), None)


class CallbackModule(CallbackBase):
    """Nothing but its making counts."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "in_process"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        sys.meta_path.insert(0, Compiled())
        sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "extensions" / "simulated_node")]
        here = importlib.import_module("in_process")
        here.take_over(Connection)
        plugins = ROOT / "plugins"
        for path in sorted((plugins / "module_utils" / "_flexdisk" / "engine").rglob("*.py")):
            importlib.import_module(".".join((COLLECTION, *path.relative_to(plugins).with_suffix("").parts)))
        for loader, kind, suffix in ((filter_loader, "filter", "yml"), (action_loader, "action", "py")):
            for path in sorted((ROOT / "plugins" / kind).glob(f"*.{suffix}")):
                loader.get(f"flexdisk.hypervisor.{path.stem}", class_only=True)
