# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the collection and the simulated node importable from a plain checkout, for every test below this folder."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "ansible_collections.flexdisk.hypervisor"


def register_collection(root: Path = ROOT) -> None:
    """Let `import ansible_collections.flexdisk.hypervisor...` find `root`, unless it is already found somewhere.

    Under ansible-test the collection lies in a proper ansible_collections tree and nothing is done.
    """
    try:
        if importlib.util.find_spec(COLLECTION) is not None:
            return
    except ModuleNotFoundError:
        pass
    parts = COLLECTION.split(".")
    for depth, path in enumerate(([], [], [str(root)]), start=1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = path
            sys.modules[name] = module


register_collection()
sys.path.insert(0, str(ROOT / "extensions" / "simulated_node"))
