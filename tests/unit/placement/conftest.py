# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ganeti's hail for the tests beside it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "lab"))
import recipe

HAIL = "/usr/lib/ganeti/iallocators/hail"


@pytest.fixture(scope="session")
def hail():
    """The program, which Debian has. Elsewhere only the recorded answers are compared."""
    if not Path(HAIL).exists():
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            pytest.skip("no hail here, and only root on Debian can install ganeti-htools")
        recipe.install(["ganeti-htools"])
    return HAIL
