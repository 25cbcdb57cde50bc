# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failover beside a third host: the VM was about to move there when its home died. Three simulated nodes."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    failover_start,
    vm_failover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_departure
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import take, taker
from .test_move import gone, hosts
from .test_start_claims import begun, between, powers
from .test_start_claims import three as three_hosts
from .test_start_claims import world as world_of_claims
from .test_start_door import boot
from .world import VM, Killed

world = world_of_claims
three = three_hosts


def refused(world, most=None):
    """What hv02 says to a failover, asked with what hv03 says."""
    host = world.hv["hv03"]
    world.acting(host)
    seen = json.loads(json.dumps(failover_start.look(host.zfs(), host.driver(), Copies(host), VM)))
    between(world, "hv01", "hv02")
    ready = taker(world).look("db01")
    assert ready.problems == []
    given = {"name": "hv02", "elsewhere": {"hv03": seen["records"] + seen["moved"]}, "max_data_loss": most}
    return vm_failover._problems_of_rivals(ready, given)


@pytest.mark.parametrize("left", [True, False])
def test_the_third_host_has_more(three, left):
    """Whether the VM has left its home or not, which nobody can say while that is down."""
    between(three, "hv01", "hv03")
    result = begun(three)
    if left:
        gone(three, result)
    else:
        boot(three.hv["hv01"])
    (problem,) = refused(three)
    assert problem.code == "TooOld"
    assert "its move from hv01 to hv03 has not ended" in problem.message
    assert "end the move with flexdisk_target=hv03 of the playbook move_vm" in problem.message
    assert "flexdisk_move_state=stays" in problem.message
    assert refused(three, 900) == []
    take(three)
    between(three, "hv02", "hv03")
    assert hosts(three)[1].cancel(VM)
    assert powers(three) == {"hv01": "" if left else "stopped", "hv02": "running", "hv03": ""}


@pytest.mark.parametrize("ahead", [0, 24 * 3600])
def test_a_move_from_before_the_failover_is_cleaned_up(three, monkeypatch, ahead):
    """A move was given up by a clock that was ahead, and another one had begun when the home died."""
    between(three, "hv01", "hv03")
    with monkeypatch.context() as patched:
        patched.setattr(vm_departure.time, "time", lambda now=time.time: now() + ahead)
        hosts(three)[0].stay(VM)
    begun(three)
    boot(three.hv["hv01"])
    between(three, "hv01", "hv02")
    take(three)
    between(three, "hv02", "hv03")
    source, target = hosts(three)
    source.stay(VM)
    assert target.cancel(VM, given_up=source.given_up)


def test_the_third_host_has_less(three):
    """The replicas were brought up to date after the last stream to the third host."""
    between(three, "hv01", "hv03")
    begun(three)
    between(three, "hv01", "hv02")
    three.write(0, 1, 5)
    assert three.sync()[1]
    assert refused(three) == []


def test_the_third_host_has_begun_to_make_its_disks(three):
    """Then it has all that the VM had, and no word allows to go on without it."""
    between(three, "hv01", "hv03")
    gone(three, begun(three))
    host = three.hv["hv03"]

    def watch():
        if host.ok("zfs", "list", "-H", "-o", "name").count(f"zones/{VM}/disk"):
            raise Killed

    three.watch = watch
    with pytest.raises(Killed):
        hosts(three)[1].arrive(VM, "hv01")
    three.watch = lambda: None
    for most in (None, 900):
        (problem,) = refused(three, most)
        assert problem.code == "InUse"
        assert (
            "hv03 has all that it had; flexdisk_target=hv03 of the playbook move_vm goes on there, also without hv01"
            in problem.message
        )
