# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failover was killed, and the old home is up again: it goes on, or is given up, and nothing is lost."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_stay import (
    GiveUpTakeover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .test_engine import TWIN
from .test_failover import cut, said_by, start, take, taken, taker
from .test_failover_return import APART
from .test_move import EVERY, config, findings, never_both, startable
from .test_move import pair as on_both
from .world import REPLICAS, VM, Fuse, Killed

world = on_both


@pytest.fixture
def died(world):
    """The second sync was cut, and the home has lost power. It has what the VM wrote last."""
    world.before = config(world.home)
    world.synced = cut(world)
    world.home.power_off(VM)
    world.uuids, world.left, world.kept = list(world.disks()), world.hashes(), records.load(VM, records.FAILOVER)
    world.restored = world.saved()
    return world


def points(world):
    """How often a failover can be killed."""
    world.fuse = Fuse()
    take(world)
    return list(itertools.product(range(1, world.fuse.counted + 1), (False, True)))


def killed(world, at, after):
    """The failover is killed there. Whether it has begun."""
    world.restore(world.restored)
    records.save(VM, world.kept, records.FAILOVER)
    records.remove(VM)
    world.fuse = Fuse(at, after)
    with pytest.raises(Killed):
        take(world)
    world.fuse = Fuse()
    return bool(said_by(world.peer, "db01")) and said_by(world.peer, "db01")[0]["taking"] == "hv01"


def stay(world, check=False):
    return GiveUpTakeover(world.peer.zfs(), world.peer.driver(), world.peer).stay("db01", check)


def end(world, begun=True):
    home = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    claims = read_claims({"hv02": said_by(world.peer, "db01")})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "_FOLDER", str(world.folder / "home"))  # each host has records of its own
        return home.end(EndRequest("db01", claims, begun))


def given_up(world):
    """The other host has its replicas and nothing else. The home has all, and starts the VM."""
    host = observe(world.peer.zfs(), world.peer.driver(), all_pools=True)
    assert (host.configs, host.moves, host.detached) == ((), {}, ())
    assert not [name for name in host.datasets if name.startswith(f"zones/{VM}")]
    assert not list(world.folder.glob("moves/*"))
    assert world.hashes() == world.left
    assert start(world, {"hv02": said_by(world.peer)}).started


def works_on(world):
    """The next sync is an increment, and the next failover takes all."""
    (planned,) = world.planned().syncs
    assert [type(disk.streams[0]).__name__ for disk in planned.disks] == ["Increment"] * 2
    assert world.sync()[1]
    assert world.hashes_there() == world.left
    world.home.power_off(VM)
    assert take(world)
    taken(world, {**world.before, "state": "running"}, world.left)


def refused(world):
    """Why it cannot be given up, "" if it can."""
    try:
        stay(world, check=True)
    except FlexdiskError as exc:
        return exc.message
    return ""


def test_given_up_anywhere(died):
    """As long as all disks are replicas. Then it only goes on, and the home starts the VM no more."""
    early, late = 0, 0
    for at, after in points(died)[::EVERY]:
        if not killed(died, at, after):
            continue
        if refused(died):
            assert "has got its disks here already; flexdisk_failover_state=taken_over" in refused(died)
            late += 1
            assert start(died, {"hv02": said_by(died.peer)}, unasked=True).started == []
            assert take(died)
            taken(died, died.before, died.synced)
        else:
            early += 1
            assert [stay(died), stay(died)] == ["db01", ""]
            given_up(died)
            assert died.sync()[1]
            assert died.hashes_there() == died.left
    assert early > 2 < late


def test_a_failover_that_was_given_up(died):
    """Killed while it is given up, the same command ends it. Then all is as it was."""
    early = [point for point in points(died)[1::2] if killed(died, *point) and not refused(died)]
    assert killed(died, *early[-1])  # the last moment at which it can be given up
    saved, stored = died.saved(), records.load(VM)
    died.fuse = Fuse()
    stay(died)
    assert died.fuse.counted > 6
    for at, after in itertools.product(range(1, died.fuse.counted + 1), (False, True)):
        died.restore(saved)
        records.save(VM, stored)
        died.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            stay(died)
        died.fuse = Fuse()
        stay(died)
        given_up(died)
        assert died.hashes_there() == died.synced
    assert set(findings(died)) <= {"replica_stale"}
    works_on(died)


def test_it_goes_on_anywhere(died):
    """The VM ends on the old home first. What it wrote last is kept there."""
    for at, after in points(died)[::EVERY]:
        died.guard = lambda: None  # the home is down, and has the VM
        if not killed(died, at, after):
            continue
        end(died)
        died.guard = lambda: never_both(died)
        assert not startable(died.home)
        contents = [died.home.ok("guest", "hash", f"{APART}/{uuid}") for uuid in died.uuids]
        assert contents == died.left
        assert take(died)
        taken(died, died.before, died.synced)
        home = FailoverReturn(died.home.zfs(), died.home.driver(), died.home)
        home.give_up("db01", False)
        assert [died.home.ok("guest", "hash", f"{REPLICAS}/{uuid}") for uuid in died.uuids] == died.synced


def test_refusals(died):
    """Without the word, or while the VM runs on its old home."""
    begun = next(point for point in points(died) if killed(died, *point))
    killed(died, *begun)
    before = died.home.stored()
    for running, word, result in (
        (False, False, "hv02 has begun to take it over; flexdisk_failover_state=taken_over"),
        (
            True,
            True,
            f"stop it here .(vmadm stop|virsh shutdown) {VM}., or give that up with flexdisk_failover_state=stays",
        ),
    ):
        if running:
            died.home.power_on(VM)
        with pytest.raises(FlexdiskError, match=result):
            end(died, word)
    assert died.home.stored() == before
    died.home.power_off(VM)
    (message,) = start(died, {"hv02": said_by(died.peer)}).left
    assert "hv02 has begun to take it over; the playbook failover_vm goes on, or gives that up" in message
    assert stay(died) == "db01"


def test_the_target_is_asked_before_the_vm_ends_on_its_old_home(died):
    """Also when the failover has begun: what it would make again is asked for again."""
    begun = next(point for point in points(died) if killed(died, *point) and not refused(died))
    killed(died, *begun)
    assert taker(died).look("db01").problems == []
    assert observe(died.peer.zfs(), died.peer.driver(), all_pools=True).configs == ()
    died.peer.create({**TWIN, "alias": "db01"})
    assert {problem.code for problem in taker(died).look("db01").problems} == {"InvalidArgument"}


def test_a_vm_that_has_begun_to_end_on_its_old_home_is_told_apart(died):
    """Whatever does not count as ended can stay there."""
    begun = next(point for point in points(died) if killed(died, *point) and not refused(died))
    killed(died, *begun)
    saved, record = died.saved(), records.load(VM)
    died.fuse = Fuse()
    end(died)
    whole, left = 0, 0
    for at in range(1, died.fuse.counted, EVERY // 3 or 1):
        died.restore(saved)
        records.save(VM, record)
        records.save(VM, died.kept, records.FAILOVER)
        died.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            end(died)
        died.fuse = Fuse()
        answers = said_by(died.home, "db01")
        if answers and not answers[0]["left"]:
            whole += 1
            stay(died)
            given_up(died)
        else:
            left += 1
            end(died)
            assert take(died)
            taken(died, died.before, died.synced)
    assert left > 2 < whole
