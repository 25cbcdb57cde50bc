# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM knows which hosts may take it over, whatever becomes of its disks and their notes. Three simulated nodes."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records as stored

from .plays import NAMES, POOL, Plays, Refused
from .test_move import PAIR
from .world import VM

ROOT = f"zones/{VM}"
RIVALS = "flexdisk:failover.rivals"


@pytest.fixture(params=[*PAIR])
def plays(request, tmp_path, monkeypatch):
    return Plays(PAIR[request.param](tmp_path, monkeypatch), monkeypatch)


def rivals(plays, name):
    matches = plays.hv[name].ok("zfs", "get", "-Ho", "value", RIVALS, ROOT)
    return [] if matches == "-" else matches.split(",")


def records(plays):
    return [name for name, result in plays._looks().items() if result["records"]]


def dies(plays, name):
    plays.hv[name].power_off(VM)
    plays.dead.add(name)


def taken(plays):
    """hv02 has taken the VM over, and hv03 has a record. hv01 is back, and its disks are replicas."""
    plays.replicate("hv02")
    plays.replicate("hv03")
    dies(plays, "hv01")
    plays.failover_vm("hv02", 10**9)
    plays.dead.clear()
    plays.ends("returned")


def new_disks(plays, name):
    """All disks of the VM have been made anew: no note says which hosts have replicas."""
    for disk in plays.hv[name].disks(VM):
        plays.hv[name].ok("zfs", "inherit", "flexdisk:replicas", disk["dataset"])


def test_who_may_take_it_over_is_written_down_before(plays):
    plays.replicate("hv02")
    assert rivals(plays, "hv01") == ["hv02"]
    plays.replicate("hv03")
    assert rivals(plays, "hv01") == ["hv02", "hv03"]


def test_new_disks_forget_no_host(plays):
    plays.replicate("hv02")
    new_disks(plays, "hv01")
    plays.replicate("hv03")
    dies(plays, "hv01")
    plays.failover_vm("hv02", 10**9)
    plays.dead = {"hv02"}
    (result,) = plays.start_host("hv01")
    assert "hv02 could not be asked" in result
    assert not plays.hv["hv01"].runs(VM)


def test_the_host_that_gets_a_record_is_written_down_without_the_notes_of_disks(plays):
    """The disks may have been made anew since the sync."""
    plays.replicate("hv02")
    mark = {"step": "mark", "vms": [VM], "failover": True, "name": "hv01", "peer_name": "hv03"}
    for check, known in ((True, ["hv02"]), (False, ["hv02", "hv03"])):
        marked = plays._failover("hv01", check, **mark)
        assert (marked["changed"], marked["failures"], len(marked["records"])) == (True, [], 1)
        assert rivals(plays, "hv01") == known
    assert not plays._failover("hv01", **mark)["changed"]


def test_new_disks_do_not_keep_a_record(plays):
    plays.replicate("hv02")
    new_disks(plays, "hv01")
    plays.replicate("hv03")
    plays.no_failover("hv03")
    assert (records(plays), rivals(plays, "hv01")) == ([], [])


def test_the_last_replica_goes_and_a_record_stays(plays):
    taken(plays)
    assert rivals(plays, "hv02") == ["hv03"]
    plays.replicate("hv01")
    plays.absent("hv01")
    assert rivals(plays, "hv02") == ["hv03"]
    assert plays._looks()["hv02"]["vms"][0]["failover"], "hv03 can still take it over"
    plays.absent("hv03")
    assert (records(plays), rivals(plays, "hv02")) == ([], [])
    assert not plays._looks()["hv02"]["vms"][0]["failover"]


def test_a_host_with_a_record_is_a_rival_although_that_of_the_new_home_does_not_say_so(plays):
    plays.replicate("hv02")
    plays.replicate("hv03")
    plays.world.acting(plays.hv["hv02"])
    record = stored.load(VM, stored.FAILOVER)
    assert record["record"]["marks"].pop("failover.rivals") == "hv03"
    stored.save(VM, record, stored.FAILOVER)
    dies(plays, "hv01")
    plays.failover_vm("hv02", 10**9)
    assert rivals(plays, "hv02") == ["hv03"]


def test_a_home_is_none_of_its_own_rivals(plays):
    taken(plays)
    old = int(plays.hv["hv01"].ok("zfs", "get", "-Hpo", "value", "guid", "zones"))
    plays.between("hv02", "hv03")
    plays.world.acting(plays.hv["hv03"])
    plays.world.receiver().remove([POOL], [VM], [old], False)  # by hand there, so hv02 still counts it
    plays.move_vm("hv03")
    assert "hv03" not in rivals(plays, "hv03")
    plays.replicate("hv02")
    plays.no_failover("hv02")
    assert records(plays) == []


def test_a_host_that_is_given_up_is_asked_no_more(plays):
    taken(plays)
    plays.dead.add("hv03")
    with pytest.raises(Refused, match="hv03 could take that over, too, and could not be told"):
        plays.replicate("hv01")
    plays.between("hv02", "hv03")
    plays.world.acting(plays.hv["hv02"])
    plays.world.sender().remove([VM], "hv03", False)  # flexdisk_forget_unseen
    assert "hv03" not in rivals(plays, "hv02")
    plays.replicate("hv01")
    assert plays.start_host("hv02") == []


@pytest.mark.parametrize("home", NAMES[1:])
def test_the_home_has_no_record_of_its_own(plays, home):
    plays.replicate("hv02")
    plays.replicate("hv03")
    plays.move_vm(home)
    assert home not in records(plays)
    assert home not in rivals(plays, home)
