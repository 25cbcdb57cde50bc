# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports every module of the named packages. Runs on any Python.

Usage: import_all.py package ...
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

for name in sys.argv[1:]:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
