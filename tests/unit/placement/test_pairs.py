# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best pair of hosts, found by bounds, is that of a search through all pairs."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.places import GanetiPlaces
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.requests import read
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.ways import to_pairs, to_primary
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import measure

from . import clusters
from .test_hail import FIRST, REQUESTS

NOISE = 1e-7  # the square root of what is left where all hosts have the same is no more exact


def every_pair(places, starts, seconds, by):
    """The scores of all pairs, by their hosts."""
    found = {}
    for start in starts:
        for second in seconds if start.moved is not None else ():
            moved = places.replace_secondary(start.moved, second)
            if not isinstance(moved, str):
                found[moved.vm.primary, second] = by.score.after(places.changes(moved, by.group))
    return found


@pytest.mark.parametrize(("make", "known"), [(clusters.request, 41001160), (clusters.tight, 42000429)])
@pytest.mark.parametrize("whole", [False, True])
def test_the_pairs_are_all_that_there_are_and_the_first_is_the_best(make, known, whole):
    """known: where the best pair has the host from which the replica came."""
    compared = 0
    for seed in (known, *range(FIRST, FIRST + REQUESTS)):
        raw, _words = make(seed)
        places = GanetiPlaces(read(raw))
        for vm in [one for one in places.vms.values() if one.template == "drbd" and one.secondary]:
            for group in places.known.groups:
                by = measure(places, None if whole else group)
                hosts = [host for host in places.hosts_of(group) if places.usable(host)]
                starts = [to_primary(places, vm, host) for host in hosts if host not in (vm.primary, vm.secondary)]
                seconds = [host for host in hosts if host != vm.primary]
                if not by.score.count:
                    continue
                wanted = every_pair(places, starts, seconds, by)
                found = [
                    ((way.moved.vm.primary, way.moved.vm.secondary), way.value)
                    for way in to_pairs(places, starts, seconds, by)
                ]
                assert {hosts for hosts, _value in found} == set(wanted), (seed, vm.name, group)
                assert len(found) == len(wanted)
                far = max([abs(value - wanted[hosts]) for hosts, value in found], default=0)
                assert far < NOISE, (seed, vm.name, group, far)
                if wanted:
                    compared += 1
                    assert found[0][1] <= min(wanted.values()) + NOISE, (seed, vm.name, group)
    assert compared > REQUESTS
