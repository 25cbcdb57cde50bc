# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which moves of a plan wait for which, for the sake of hosts and host groups."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.answers import (
    job_dependencies,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.jobs import Job
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    Known,
    KnownGroup,
    KnownHost,
    KnownVm,
)

HOSTS = {"a1": "a", "a2": "a", "a3": "a", "a4": "a", "b1": "b", "b2": "b", "c1": "c"}
KNOWN = Known(
    {key: KnownGroup(key, key) for key in "abc"},
    {name: KnownHost(name, group) for name, group in HOSTS.items()},
    {f"vm{number}": KnownVm(f"vm{number}", "") for number in range(9)},
)


def depends(moves, per_host, between_groups):
    """What each move waits for. A move is the names of two hosts; "" is one that makes a VM."""
    vms = {f"vm{number}": KnownVm("", move[:2]) for number, move in enumerate(moves) if move}
    jobs = [
        Job(f"vm{number}" if move else "new", SimpleNamespace(moved=SimpleNamespace(vm=KnownVm("", move[3:]))), {})
        for number, move in enumerate(moves)
    ]
    known = Known(KNOWN.groups, KNOWN.hosts, vms)
    return [sorted(one.depends) for one in job_dependencies(known, jobs, per_host, between_groups)]


@pytest.mark.parametrize(
    ("moves", "per_host", "between_groups", "expected"),
    [
        (["a1 a2", "a1 a3"], 0, 0, [[], []]),
        (["a1 a2", "a1 a3"], 1, 0, [[], [0]]),
        (["a1 a2", "a3 a2"], 1, 0, [[], [0]]),  # the host that it comes to counts as well
        (["a1 a2", "a3 a4"], 1, 0, [[], []]),
        (["a1 a2", "a1 a3", "a1 a4"], 2, 0, [[], [], [0]]),
        (["a1 b1", "a2 b2"], 0, 1, [[], [0]]),
        (["a1 b1", "b2 a2"], 0, 1, [[], [0]]),  # whichever way
        (["a1 b1", "a2 c1"], 0, 1, [[], []]),
        (["a1 a2", "a3 a4"], 0, 1, [[], []]),  # within a group
        (["a1 b1", "a2 b2"], 0, 2, [[], []]),
        (["a1 b1", "", "a1 b2"], 1, 1, [[], [], [0]]),  # a new VM moves nothing
    ],
)
def test_no_more_at_a_time(moves, per_host, between_groups, expected):
    assert depends(moves, per_host, between_groups) == expected
