# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random sequences of actions of all modules on a simulated node. FLEXDISK_SEED and FLEXDISK_SEQUENCES: as in
test_stateful.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .core import COUNTS
from .modules import Modules
from .test_stateful import FAST

SHARES = 4
SEQUENCES = int(os.environ.get("FLEXDISK_SEQUENCES") or (500 if os.environ.get("FLEXDISK_FULL") else 24))


@pytest.mark.parametrize("share", range(SHARES))
def test_random_sequences_of_all_modules(share, record_property):
    first = int(os.environ["FLEXDISK_SEED"])
    COUNTS.clear()
    chosen = settings(FAST, max_examples=-(-SEQUENCES // SHARES))
    machine = seed(first * SHARES + share)(type("Seeded", (Modules,), {}))
    run_state_machine_as_test(machine, settings=chosen)
    for what, count in COUNTS.items():
        record_property(what, count)
    assert COUNTS["sequences"] >= chosen.max_examples
