# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases on the hosts of both drivers: where they lie, runs that are killed, and who else reads the container."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    disk_verify,
    group_lease,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import LeaseDeclaration
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import lease
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.domains.conftest import LinuxHost

from ..conftest import VM, Simulated
from ..run.test_failures import Killed

BOX = "zones/flexdisk"
NOW = 1767225600
NAME = "flexdisk:lease.web"
MINE, THEIRS = VM, VM[:-1] + "9"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    faked = SimpleNamespace(now=NOW)
    monkeypatch.setattr(group_lease, "time", SimpleNamespace(time=lambda: faked.now + 0.9))
    return faked


def ask(sim, token=MINE, pool=None, check=False, **options):
    wanted = LeaseDeclaration("web", token, "run " + token[-1], **options)
    return group_lease.run(Zfs(sim.runner), Vmadm(sim.runner), wanted, pool, check)


def value(sim, name=NAME):
    return sim.run("zfs", "get", "-H", "-o", "value", name, BOX).strip()


def holder(sim):
    result = lease.decode(value(sim))
    return result.holder if result is not None else ""


def with_container(sim):
    sim.run("zfs", "create", "-o", "mountpoint=none", "-o", "canmount=off", BOX)
    return sim


# -- what it does


@pytest.mark.parametrize("there", [False, True])
def test_taken_renewed_released(sim, clock, there):
    """In four steps each: check mode says what the real run does, and changes nothing."""
    if there:
        with_container(sim)
    for options, first in (({}, True), ({"hold": False}, True), ({"hold": False}, False)):
        for changed in (first, False):
            before = sim.fingerprint()
            predicted = ask(sim, check=True, **options)
            assert sim.fingerprint() == before
            done = ask(sim, **options)
            assert done == predicted
            assert done.result["changed"] is changed
            assert bool(done.result["diff"]["prepared"]) is changed
            assert (done.result["lease"] is None) is bool(options)
            clock.now += 10
    assert value(sim) == "-"


def test_a_renewal_is_three_processes_and_asks_no_hypervisor(sim):
    ask(sim)
    sim.calls.clear()
    ask(sim)
    assert [call[:2] for call in sim.calls] == [["zfs", "get"], ["zfs", "set"], ["zfs", "get"]]


def test_a_renewal_is_written(sim, clock):
    ask(sim)
    clock.now += 800
    assert not ask(sim).result["changed"]
    clock.now += 800
    refused = ask(sim, THEIRS)
    assert refused.problem.code == "InUse"
    assert "renewed 800 s ago" in refused.problem.message
    assert refused.result["lease"]["token"] == MINE
    clock.now += 100
    assert ask(sim, THEIRS).result["changed"]
    assert holder(sim) == "run 9"


def test_taken_over_and_lost(sim):
    ask(sim)
    assert ask(sim, THEIRS, take_over=True).result["previous"]["token"] == MINE
    lost = ask(sim, renew=True)
    assert (lost.problem.code, "run 9 has the lease" in lost.problem.message) == ("InUse", True)
    left = ask(sim, hold=False)
    assert (left.result["changed"], left.problem, "run 9 has" in left.warnings[0]) == (False, None, True)
    assert ask(sim, THEIRS, hold=False).result["changed"]
    assert ask(sim, renew=True).problem.code == "LeaseLost"
    assert ask(sim).result["changed"]


@pytest.mark.parametrize("text", ["x", "a\tb\nzones\tguid\t1\t-", '{"token": 1}', "\u00fc" * 3000])
def test_a_property_that_somebody_else_wrote(sim, text):
    with_container(sim).run("zfs", "set", f"{NAME}={text}", BOX)
    refused = ask(sim)
    assert refused.problem.code == "LeaseUnreadable"
    assert f"{len(text.encode())} bytes" in refused.problem.message
    command = f"zfs inherit {NAME} {BOX}"
    assert f"'{command}' removes it" in refused.problem.message
    assert ask(sim, hold=False).warnings
    assert ask(sim, check=True, take_over=True).result["changed"]
    assert ask(sim, THEIRS, take_over=True).result["changed"]
    sim.run("zfs", "set", f"{NAME}={text}", BOX)
    sim.run(*command.split())
    assert ask(sim).result["changed"]


def test_what_shows_through_from_above_does_not_count(sim):
    with_container(sim).run("zfs", "set", f"{NAME}=x", "zones")
    assert ask(sim).result["changed"]
    assert ask(sim, hold=False).result["changed"]
    assert ask(sim, hold=False).result["lease"] is None


def test_groups_are_told_apart(sim):
    zfs, hypervisor = Zfs(sim.runner), Vmadm(sim.runner)
    for group in ("web", "Web", "web-1", "w.e_b"):
        done = group_lease.run(zfs, hypervisor, LeaseDeclaration(group, MINE, group), None, False)
        assert done.result["changed"]
    assert {entry["group"]: entry["holder"] for entry in seen(sim)} == {g: g for g in ("web", "Web", "web-1", "w.e_b")}


def test_a_set_that_did_nothing_is_told(sim, monkeypatch):
    with_container(sim)
    monkeypatch.setattr(Zfs, "set_facts", lambda *_args: None)
    with pytest.raises(FlexdiskError) as caught:
        ask(sim)
    assert caught.value.code == "NotApplied"


# -- where it lies


@pytest.mark.parametrize(
    ("datasets", "pool", "message"),
    [
        ([], None, ""),
        (["rpool/flexdisk"], None, "rpool"),
        ([f"tank/{VM}"], None, "tank"),
        ([f"tank/{VM}", "rpool/home"], None, "tank"),
        ([f"tank/{VM}", "rpool/flexdisk"], None, ""),
        ([f"tank/{VM}"], "rpool", "rpool"),
    ],
)
def test_the_pool_of_a_libvirt_host(datasets, pool, message):
    linux = LinuxHost()
    specs = [PoolSpec(name, 64 << 30, 12, [{"type": "disk", "disks": 1}], "openzfs-2.1") for name in ("rpool", "tank")]
    linux.node = Node.create(None, specs)
    for name in datasets:
        linux.run("zfs", "create", name)
    wanted = LeaseDeclaration("web", MINE, "me")
    if not message:
        with pytest.raises(FlexdiskError, match="pools on this host: rpool, tank") as caught:
            group_lease.run(linux.zfs(), linux.driver(), wanted, pool, False)
        assert caught.value.code == "MissingParameter"
        return
    assert group_lease.run(linux.zfs(), linux.driver(), wanted, pool, False).result["pool"] == message
    assert linux.run("zfs", "get", "-H", "-o", "source", NAME, message + "/flexdisk").strip() == "local"
    assert not group_lease.run(linux.zfs(), linux.driver(), wanted, pool, False).result["changed"]


def test_the_container_of_a_libvirt_host_is_as_the_other_modules_make_it():
    linux = LinuxHost()
    done = group_lease.run(linux.zfs(), linux.driver(), LeaseDeclaration("web", MINE, "me"), None, False)
    assert done.result["pool"] == "tank"
    out = linux.run("zfs", "get", "-H", "-o", "value", "volmode,mountpoint,canmount", "tank/flexdisk")
    assert out.split() == ["dev", "none", "off"]


def test_there_is_no_pool():
    zfs = Zfs(lambda _argv: Answer(0, "", ""))
    with pytest.raises(FlexdiskError, match="pools on this host: none"):
        group_lease.run(zfs, LinuxHost().driver(), LeaseDeclaration("web", MINE, "me"), None, False)


def test_no_such_pool(sim):
    for check in (True, False):
        with pytest.raises(FlexdiskError, match="no such pool: tank") as caught:
            ask(sim, pool="tank", check=check)
        assert caught.value.code == "ResourceNotFound"


# -- runs that are killed


@pytest.mark.parametrize("options", [{}, {"hold": False}, {"take_over": True}])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", range(5))
def test_a_kill_leaves_the_old_lease_or_the_new_one(sim, options, after, nth):
    """At every command, before or after it; then the same run, or another one after a while, goes on."""
    token = THEIRS if "take_over" in options else MINE
    if options:
        ask(sim)
    before, count = text(sim), 0
    new = ask(sim, token, check=True, **options).result["lease"]

    def fault(argv):
        nonlocal count
        count += 1
        if count > nth:
            if after and count == nth + 1:
                sim.node.run(argv, sim.stdin)
            raise Killed

    sim.fault = fault
    with contextlib.suppress(Killed):
        ask(sim, token, **options)
    sim.fault = None
    left = text(sim)
    assert left == before or lease.result(lease.decode(left)) == new
    assert ask(sim, token, **options).problem is None
    assert lease.result(lease.decode(text(sim))) == new


def text(sim):
    zfs = Zfs(sim.runner)
    return zfs.local_fact(BOX, "lease.web") if zfs.exists(BOX) else ""


# -- where it lies, and where it could


def look(sim, token=MINE, pool=None):
    sim.calls.clear()
    result = group_lease.look(Zfs(sim.runner), Vmadm(sim.runner), LeaseDeclaration("web", token), pool).result
    assert not any(changes(call) for call in sim.calls)
    return result


def test_a_look_tells_of_all_pools(sim, clock):
    guid = int(sim.run("zfs", "get", "-Hpo", "value", "guid", "zones"))
    could = [{"pool": "zones", "guid": guid}]
    empty = {"changed": False, "msg": "web: no lease here", "leases": [], "places": could}
    assert look(sim) == empty
    with_container(sim)
    assert look(sim) == empty
    ask(sim)
    for token, standing in ((MINE, "mine"), (THEIRS, "held")):
        (lease_here,) = look(sim, token)["leases"]
        assert (lease_here["pool"], lease_here["standing"], lease_here["lease"]["token"]) == ("zones", standing, MINE)
        assert lease_here["msg"].startswith("web: run 1 has the lease since 2026-01-01T00:00:00Z, renewed 0 s ago")
    clock.now += 900
    assert look(sim, THEIRS)["leases"][0]["standing"] == "expired"
    sim.run("zfs", "set", f"{NAME}=x", BOX)
    (lease_here,) = look(sim)["leases"]
    assert (lease_here["standing"], lease_here["lease"], "has not written, 'x'" in lease_here["msg"]) == (
        "unreadable",
        None,
        True,
    )


def test_a_lease_in_a_pool_that_this_run_does_not_name_is_found():
    """One run names the pool tank, the next none: they see each other."""
    sim = Simulated(64 << 30)
    kinds = [{"type": "disk", "disks": 1}]
    sim.node = Node.create(None, [PoolSpec(name, 64 << 30, 12, kinds, "openzfs-2.1") for name in ("tank", "zones")])
    ask(sim, pool="tank")
    result = look(sim, THEIRS)
    assert [entry["pool"] for entry in result["leases"]] == ["tank"]
    assert [place["pool"] for place in result["places"]] == ["zones"]
    assert look(sim, THEIRS, pool="tank")["places"] == result["places"], (
        "the place does not follow from a word of the run"
    )


# -- who else reads the container


def seen(sim, names=None):
    return info(Zfs(sim.runner), Vmadm(sim.runner), names, None, False, True).leases


def test_vm_info_reports_leases(sim, clock):
    sim.create()
    assert seen(sim) == []
    ask(sim)
    times = {"since": "2026-01-01T00:00:00Z", "renewed": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:15:00Z"}
    reported = {"group": "web", "pool": "zones", "readable": True, "token": MINE, "holder": "run 1", **times}
    reported["expired"] = False
    assert seen(sim) == [reported]
    assert seen(sim, ["web01"]) == [reported]
    assert info(Zfs(sim.runner), Vmadm(sim.runner), None, None, False).leases is None
    clock.now += 900
    sim.run("zfs", "set", "flexdisk:lease.db=x", BOX)
    sim.run("zfs", "set", "flexdisk:lease.no:1=x", BOX)
    assert seen(sim) == [{"group": "db", "pool": "zones", "readable": False}, {**reported, "expired": True}]
    sim.calls.clear()
    seen(sim)
    assert len(sim.calls) == 4
    assert not any(changes(call) for call in sim.calls)


def test_foreign_properties_with_tabs_cost_the_leases_and_nothing_else(sim):
    sim.create()
    ask(sim)
    sim.run("zfs", "set", "com.example:note=a\tb", BOX)
    result = info(Zfs(sim.runner), Vmadm(sim.runner), None, None, False, True)
    assert (len(result.vms), result.leases) == (1, [])
    assert "the leases of pool zones cannot be read" in result.warnings[0]
    assert not ask(sim).result["changed"], "the module itself reads its own property only"


def findings(sim):
    return disk_verify.verify(Zfs(sim.runner), Vmadm(sim.runner), None, (), None, 0, True, NOW).findings


def test_it_is_nothing_to_the_journal_and_to_disk_verify(sim):
    """Nor is it a property of the disks that lie below the container, which inherit it."""
    sim.adopted(64)
    assert sim.converge({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"}).failure is None
    before = findings(sim)
    ask(sim)
    sim.run("zfs", "set", "flexdisk:lease.db=garbage", BOX)
    host = observe(Zfs(sim.runner), Vmadm(sim.runner), complete=True)
    assert host.intents == {}
    assert findings(sim) == before
    assert sim.converge({"vm": "web01", "disks": [{"name": "root"}, {"name": "a"}]}).failure is None
    assert holder(sim) == "run 1"
    assert value(sim, "flexdisk:lease.db") == "garbage"
    listed = sim.run("zfs", "get", "-Hr", "-s", "local", "-o", "name,property", "all", "zones")
    assert {line.split("\t")[0] for line in listed.splitlines() if "lease" in line} == {BOX}
