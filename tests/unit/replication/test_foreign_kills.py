# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tests that kill moves, failovers and returns at every command. Then others take snapshots of whole pools."""

from __future__ import annotations

import os
from unittest.mock import ANY

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records

from . import test_failover, test_failover_begun, test_failover_return, test_move, test_move_snapshots
from .linux import LinuxWorld
from .test_move import FILE
from .test_other_tasks import DATA, ROOT, done
from .world import Foreign

EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 149  # an odd number: before and after a command by turns

died, old = test_failover_begun.died, test_failover_return.old
test_a_move = test_move.test_killed_anywhere
test_a_move_that_is_given_up = test_move.test_given_up_anywhere
test_a_failover = test_failover.test_killed_anywhere
test_a_failover_that_is_given_up = test_failover_begun.test_given_up_anywhere
test_a_failover_that_goes_on = test_failover_begun.test_it_goes_on_anywhere
test_a_return = test_failover_return.test_killed_anywhere
vm_with_snapshots = test_move_snapshots.world


@pytest.fixture
def world(request, tmp_path, monkeypatch):
    """A VM with room for snapshots of others."""
    for module in (test_move, test_failover, test_failover_return):
        monkeypatch.setattr(module, "EVERY", EVERY)
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = test_move.MAKE[getattr(request, "param", "vmadm")](tmp_path, monkeypatch)
    done(made, ROOT, DATA, *([FILE] if isinstance(made, LinuxWorld) else []), flexible_disk_size=2048)
    made.allocatable = ANY
    made.foreign = Foreign(killed=True)
    return made


class TestWithSnapshots:
    """The VM has snapshots of its own."""

    test_a_move = staticmethod(test_move_snapshots.test_killed_anywhere)
    test_a_rollback = staticmethod(test_move_snapshots.test_a_rollback_killed_anywhere)

    @pytest.fixture
    def world(self, vm_with_snapshots, monkeypatch):
        """What a snapshot alone holds is left out: as soon as others have taken theirs, it is less."""
        shown = test_move_snapshots.shown
        monkeypatch.setattr(test_move_snapshots, "SOME", EVERY if EVERY == 1 else 3 * EVERY)
        monkeypatch.setattr(
            test_move_snapshots,
            "shown",
            lambda host: [{key: value for key, value in one.items() if key != "frees_bytes"} for one in shown(host)],
        )
        vm_with_snapshots.foreign = Foreign(killed=True)
        return vm_with_snapshots
