# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a VM has in common with the host that it has left outlives its syncs with other hosts. Three simulated nodes."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import short_peer

from .test_move import guid, move
from .test_start_claims import between
from .test_start_claims import three as three_hosts
from .test_start_claims import world as world_of_claims
from .world import VM

world = world_of_claims
three = three_hosts


def given_up(world, home, peer):
    """replicate with flexdisk_replica_state=absent."""
    between(world, home, peer)
    removed = world.sender().remove([VM], peer, False)
    assert not removed.problems
    world.receiver().remove(["zones"], removed.uuids, removed.homes, False)


def marks(world, name):
    """The bookmarks of the first disk of the VM on a host."""
    return world.hv[name].points(f"zones/{VM}/disk0", "bookmark")


def test_the_way_back_is_an_increment_after_syncs_with_a_third_host(three):
    """The sets of the way there are named after the host where the VM is, like those of other ways to it."""
    between(three, "hv01", "hv03")
    assert move(three)
    given_up(three, "hv03", "hv02")
    came = marks(three, "hv03")
    for written in range(3):
        three.write(0, 2, written)
        assert three.sync() == (True, True)
        assert three.sync() == (False, True)
        assert set(came) <= set(marks(three, "hv03"))
    between(three, "hv03", "hv01")
    planned = three.planned([VM])
    assert planned.problems == []
    assert {type(one).__name__ for sync in planned.syncs for disk in sync.disks for one in disk.streams} == {
        "Increment"
    }
    assert move(three)


def test_what_nobody_needs_any_more_goes(three):
    """Each other host has a set of its own."""
    between(three, "hv01", "hv03")
    assert move(three)
    came = f"-{short_peer(guid(three.hv['hv03']))}-"
    assert came in "".join(marks(three, "hv03"))
    given_up(three, "hv03", "hv02")
    between(three, "hv03", "hv01")
    assert three.sync()[1]
    between(three, "hv03", "hv02")
    assert three.sync()[1]
    assert came not in "".join(marks(three, "hv03"))
    assert three.sync() == (False, True)
