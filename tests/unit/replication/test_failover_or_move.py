# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a failover has begun is not ended by a move, nor the other way round. Three simulated nodes."""

from __future__ import annotations

import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.execution import (
    Wanted,
    unfinished_moves,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import Sighting

from .test_failover import said_by, take
from .test_failover_elsewhere import fail_over
from .test_failover_elsewhere import refused as refused_run
from .test_move import hosts, move
from .test_start_claims import begun, between, infos, powers, taken_over, three, world
from .test_start_door import boot
from .world import VM, Killed

__all__ = ["three", "world"]
RETURNED = "flexdisk_failover_state=returned of the playbook failover_vm"


def killed_when(world, ready, do):
    """The run is killed at the first command after which this is so."""

    def watch():
        if ready():
            raise Killed

    world.watch = watch
    with pytest.raises(Killed):
        do()
    world.watch = lambda: None


def marked(host, phase):
    """Whether a host has written down that a VM leaves it, has left it, or comes."""
    return f'"{phase}"' in host.node.run(["zfs", "get", "-rHo", "value", "flexdisk:move", "zones/flexdisk"])[1]


def begins(world):
    """A failover to the other host, which is killed as soon as that host expects the VM. Its home comes back."""
    boot(world.home)
    killed_when(world, lambda: marked(world.peer, "coming") and world.peer.power(VM), lambda: take(world))


def ends(world):
    """What the old home does, which has heard of the other host."""
    back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    back.end(EndRequest("db01", read_claims({"hv02": said_by(world.peer, "db01")}), True))


def refused(act, *arguments):
    with pytest.raises(FlexdiskError) as caught:
        act()
    for part in arguments:
        assert part in caught.value.message
    return caught.value.code


def test_a_move_does_not_make_a_vm_of_two_moments(three):
    """A sync died between its streams, so that the root disk has come, and the data disk has not."""
    synced = three.hashes()
    for disk in (0, 1):
        three.write(disk, 3, 20)
    carry, streams = type(three.home).carry, []

    def second_dies(self, *given):
        streams.append(given)
        if len(streams) == 2:
            raise Killed
        return carry(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(three.home), "carry", second_dies)
        with pytest.raises(Killed):
            three.sync()
    begins(three)
    ends(three)
    (job,) = unfinished_moves(infos(three), Wanted())
    assert (job["operations"][0]["do"], job["why"]) == (
        "nothing", "hv02 takes it over from hv01; the playbook failover_vm goes on",
    )  # fmt: skip
    source, target = hosts(three)
    source.go(VM, "hv02")  # it has ended here already
    assert refused(lambda: target.arrive(VM, "hv01"), "it is being taken over from hv01") == "InUse"
    assert take(three)
    assert powers(three)["hv02"] == "running"
    assert [three.peer.ok("guest", "hash", disk["dataset"]) for disk in three.peer.disks(VM)] == synced


@pytest.mark.parametrize("whole", [False, True])
def test_a_move_does_not_end_what_the_return_keeps(three, whole):
    """The old home has data that has not come, and its end is killed at once. whole: the failover is over."""
    three.write(0, 3, 20)
    left = three.hashes()
    three.sender().prepare(three.planned(), "hv02")  # a sync that dies before its streams
    if whole:
        boot(three.home)
        take(three)
    else:
        begins(three)
    killed_when(three, lambda: marked(three.home, "moved"), lambda: ends(three))
    source, _target = hosts(three)
    for act in (lambda: source.go(VM, "hv02"), lambda: source.forget(VM, {}), lambda: source.stay(VM)):
        assert refused(act, "hv02 has taken it over", RETURNED) == "InUse"
    assert refused(lambda: source.would_stay(VM), RETURNED) == "InUse"
    assert [job["operations"][0]["do"] for job in unfinished_moves(infos(three), Wanted())] == ["nothing"]
    ends(three)
    if not whole:
        assert take(three)
    diverged = three.home.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", "zones/flexdisk/diverged").split()
    assert left[0] in [three.home.ok("guest", "hash", name) for name in diverged]
    assert powers(three)["hv01"] == ""


def test_a_way_back_that_has_begun_hides_no_tombstone(three):
    """hv02 has a record from before the VM moved to hv03, which is left out."""
    between(three, "hv01", "hv03")
    assert move(three)
    before = refused_run(fail_over(three, "hv02", left_out=["hv03"], max_data_loss=900))
    assert "hv01 says that it has moved on to hv03" in before[1]
    between(three, "hv03", "hv01")
    begun(three)
    after = refused_run(fail_over(three, "hv02", left_out=["hv03"], max_data_loss=900))
    assert [re.sub(r"\d+ s old", "", text) for text in after] == [re.sub(r"\d+ s old", "", text) for text in before]


def test_a_tombstone_that_an_old_home_needs_is_kept(three):
    """hv02 has taken the VM over from hv01 and moved it on: hv01 learns of that from hv02 alone."""
    taken_over(three)
    between(three, "hv02", "hv03")
    assert move(three)
    source, _target = hosts(three)
    there = {"hv03": Sighting(VM, "")}
    texts = ("hv01 could not be asked", "starts the VM a second time", "flexdisk_forget_unseen=true")
    assert refused(lambda: source.forget(VM, {**there, "hv01": None}), *texts) == "InUse"
    assert source.forget(VM, {**there, "hv01": None}, unseen=True, check_mode=True)
    assert source.forget(VM, there)
