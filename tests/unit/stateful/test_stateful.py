# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random sequences of actions on a simulated node, with invariants after each.

FLEXDISK_SEED chooses them, FLEXDISK_SEQUENCES says how many there are. tests/mutations shows that 200 find what each
invariant is there for.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .core import COUNTS
from .machine import Node

SHARES = 10
STEPS = 30
SEQUENCES = int(os.environ.get("FLEXDISK_SEQUENCES") or (500 if os.environ.get("FLEXDISK_FULL") else 150))
FAST = settings(
    max_examples=-(-SEQUENCES // SHARES),
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if "FLEXDISK_NO_SHRINK" not in os.environ else [Phase.generate],
    print_blob=False,
)


@pytest.mark.parametrize("share", range(SHARES))
def test_random_sequences(share, record_property):
    first = int(os.environ["FLEXDISK_SEED"])
    COUNTS.clear()
    machine = seed(first * SHARES + share)(type("Seeded", (Node,), {}))
    run_state_machine_as_test(machine, settings=FAST)
    for what, count in COUNTS.items():
        record_property(what, count)
    assert COUNTS["sequences"] >= FAST.max_examples
