# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random sequences of moves and of failovers between two simulated nodes, with kills at any command, snapshots of whole
pools that others take at any command, interrupted runs of other tasks, and hosts that die and come back.

After each action nothing is lost, the VM never runs twice, and the documented commands bring it to one host where all
tasks work. FLEXDISK_SEED chooses the sequences, FLEXDISK_JOURNEYS says how many there are, FLEXDISK_ACTIONS how long.
"""

from __future__ import annotations

import os

import pytest

from .journey import Journey

FULL = bool(os.environ.get("FLEXDISK_FULL"))
SEQUENCES = int(os.environ.get("FLEXDISK_JOURNEYS") or (20 if FULL else 4))
ACTIONS = int(os.environ.get("FLEXDISK_ACTIONS") or (300 if FULL else 10))


@pytest.mark.parametrize("number", range(SEQUENCES))
@pytest.mark.parametrize("backend", ["vmadm", "libvirt"])
def test_random_sequences(backend, number, tmp_path, monkeypatch, record_property):
    seed = int(os.environ["FLEXDISK_SEED"]) * 1000 + number
    journey = Journey(seed, tmp_path, monkeypatch, backend)
    try:
        for _action in range(ACTIONS):
            journey.act()
    except BaseException:
        print(f"seed {seed}, after {len(journey.trace)} actions: {'; '.join(journey.trace[-30:])}")
        raise
    for label, count in journey.counts.items():
        record_property(label, count)
    print(dict(journey.counts))
