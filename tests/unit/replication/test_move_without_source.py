# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM has left its host for another one, and that host is gone for good: the move ends. Three simulated nodes."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from contextlib import suppress

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    failover_start,
    vm_failover,
)
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
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_receive import (
    Receiver,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import host_steps, places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import HOME
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import take
from .test_failover_elsewhere import fail_over, look
from .test_failover_elsewhere import refused as refused_run
from .test_failover_return import APART
from .test_move import EVERY, gone, guid, hosts
from .test_start_claims import begun, between, powers, start, three, world
from .test_start_door import boot
from .world import REPLICAS, VM, Fuse, Killed

__all__ = ["three", "world"]


@pytest.fixture
def left(request, three):
    """The VM has written after its last sync with hv02, to one disk, or to so many, and has left hv01 for hv03, which
    knows nothing of that yet.
    """
    three.newer = getattr(request, "param", 1)
    for disk in range(three.newer):
        three.write(disk, 3, 20)
    between(three, "hv01", "hv03")
    three.newest = three.hashes()
    gone(three, begun(three))
    three.restored = {name: host.state() for name, host in three.hv.items()}
    three.kept = three.folder.parent / "kept"
    shutil.copytree(three.folder, three.kept, dirs_exist_ok=True)
    return three


def arrives(world, at=0, after=False):
    """hv03 makes the VM, and is killed at a command. How many commands there were."""
    for name, state in world.restored.items():
        world.hv[name].restore(state)
    shutil.rmtree(world.folder)
    shutil.copytree(world.kept, world.folder)
    between(world, "hv01", "hv03")
    world.fuse = Fuse(at, after)
    if at:
        with pytest.raises(Killed):
            hosts(world)[1].arrive(VM, "hv01")
    else:
        hosts(world)[1].arrive(VM, "hv01")
    world.fuse, count = Fuse(), world.fuse.counted
    return count


def one_disk(world):
    """hv03 is killed when the VM has one of its two disks."""
    host = world.hv["hv03"]

    def watch():
        if len(host.disks(VM)) == 1:
            raise Killed

    world.watch = watch
    with pytest.raises(Killed):
        arrives(world)
    world.watch, world.fuse = lambda: None, Fuse()


def says(world, name):
    """What a host says to the playbook move_vm."""
    between(world, name, "hv03")
    world.acting(world.home)
    seen = hosts(world)[0].look(VM, name)
    return json.loads(json.dumps({key: seen[key] for key in ("vm", "move", "term", "asks")}))


def ends(world, peers, check=False, unasked=False, source="hv01"):
    """What the playbook move_vm does on hv03 without hv01. Whether it has changed something."""
    given = host_steps.defaults()
    given.update(step="arrive", vm=VM, name="hv03", peer_name=source, peers=peers, unasked=unasked)
    given["authorized_keys"] = str(world.authorized)
    host = world.hv["hv03"]
    world.acting(host)
    arguments, problems = vm_move.parse(given)
    assert problems == []
    return vm_move.run(Call(host.zfs(), host.driver(), None, check, host), print, arguments).result["changed"]


def refused(world, peers, **how):
    for check in (True, False):
        before = world.hv["hv03"].node.pools.to_json()
        with pytest.raises(FlexdiskError) as caught:
            ends(world, peers, check, **how)
        assert caught.value.code == "InUse"
        assert world.hv["hv03"].node.pools.to_json() == before
    return caught.value.message


def on_hv03(world):
    """The VM is there with all that it had."""
    assert powers(world)["hv03"] == "running"
    assert powers(world)["hv02"] == ""
    host = world.hv["hv03"]
    assert [host.ok("guest", "hash", disk["dataset"]) for disk in host.disks(VM)] == world.newest


def test_hv03_does_not_know_that_it_has_left(left):
    """Nothing is done: hv01 may have given the move up before it died, or may be alive and run the VM."""
    message = refused(left, {"hv01": "", "hv02": says(left, "hv02")})
    assert "hv03 does not know whether it has left hv01" in message
    assert "the playbook failover_vm brings back" in message
    assert powers(left) == {"hv01": "", "hv02": "", "hv03": "stopped"}


def test_the_move_ends_anywhere(left):
    """Wherever its arrival was killed, but for its first command, which writes down that the VM has left."""
    counts = Counter()
    peers = {"hv01": "", "hv02": says(left, "hv02")}
    points = itertools.product(range(1, arrives(left) + 1), (False, True))
    for at, after in (one for one in points if one[0] < 3 or (one[0] * 2 + one[1]) % EVERY == 0):
        arrives(left, at, after)
        known = '"has_left":true' in left.hv["hv03"].ok(
            "zfs", "get", "-rHo", "value", "flexdisk:move", "zones/flexdisk"
        )
        over = '"coming"' not in left.hv["hv03"].ok("zfs", "get", "-rHo", "value", "flexdisk:move", "zones/flexdisk")
        counts[known, over] += 1
        if known or over:
            ends(left, peers)
            on_hv03(left)
            assert not ends(left, peers)
        else:
            assert "does not know" in refused(left, peers)
    assert counts[True, False] > 2 < counts[False, False] + 2, counts
    print(counts)


def test_a_failover_elsewhere_names_the_host_that_has_everything(left):
    """Whatever may be lost: nothing needs to be."""
    one_disk(left)
    for most in (None, 10**9):
        code, message = refused_run(fail_over(left, "hv02", ["hv01"], max_data_loss=most))
        assert code == "InUse"
        assert "it has left hv01: hv03 has all that it had" in message
        assert "flexdisk_target=hv03 of the playbook move_vm goes on there, also without hv01" in message
    assert ends(left, {"hv01": "", "hv02": says(left, "hv02")})
    on_hv03(left)


def test_a_host_that_may_have_taken_it_over_is_asked(left):
    one_disk(left)
    for silent in ({"hv01": "", "hv02": ""}, {}):
        message = refused(left, silent)
        assert "hv02 could not be asked whether it has been taken over; flexdisk_start_unasked=true goes on" in message
    assert ends(left, {}, unasked=True)
    on_hv03(left)


def test_it_was_taken_over_meanwhile(left):
    """hv03 was left out. Its data is kept when what it has made of the VM ends there, and the messages name that."""
    one_disk(left)
    boot(left.hv["hv01"])
    between(left, "hv01", "hv02")
    take(left)
    assert "hv02 has it, too" in refused(left, {"hv01": "", "hv02": says(left, "hv02")}, unasked=True)
    between(left, "hv02", "hv03")
    source, target = hosts(left)
    source.stay(VM)
    record = source.look(VM, "hv02", "hv03")["record"]
    (problem,) = target.refusals(record, "zones")
    with pytest.raises(FlexdiskError) as caught:
        target.cancel(VM, given_up=source.given_up)
    for message in (problem.message, caught.value.message):
        assert "hv03" not in message or "has left hv01" in message
        assert "flexdisk_failover_state=returned and flexdisk_old_host=NAME" in message
    host = left.hv["hv02"]
    left.acting(host)
    answer = json.loads(json.dumps(failover_start.look(host.zfs(), host.driver(), Copies(host), VM)))["vms"]
    host = left.hv["hv03"]
    left.acting(host)
    back = FailoverReturn(host.zfs(), host.driver(), host)
    assert len(back.look(EndRequest(VM, read_claims({"hv02": answer}))).messages) == 3
    back.end(EndRequest(VM, read_claims({"hv02": answer})))
    observed = observe(host.zfs(), host.driver(), all_pools=True)
    assert (observed.configs, observed.detached, observed.moves[VM].host) == ((), (), "hv02")
    diverged = host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", APART).split()
    assert left.newest[0] in [host.ok("guest", "hash", name) for name in diverged]
    assert powers(left) == {"hv01": "", "hv02": "running", "hv03": ""}


def test_a_disk_that_it_had_left_here_before_has_not_come(left):
    """It was detached when the VM was here for the first time, and says nothing about the move."""
    for name, state in left.restored.items():
        left.hv[name].restore(state)
    host = left.hv["hv03"]
    name = "zones/flexdisk/dddddddd-0000-4000-8000-000000000001"
    host.ok("zfs", "create", "-V", "16M", name)
    for key, value in (("uuid", name[-36:]), ("vm", VM), ("name", "old")):
        host.ok("zfs", "set", f"flexdisk:{key}={value}", name)
    observed = observe(host.zfs(), host.driver(), all_pools=True)
    assert [disk.vm for disk in observed.detached] == [VM]
    assert "does not know whether it has left hv01" in refused(left, {"hv01": "", "hv02": says(left, "hv02")})


def test_a_volume_of_somebody_else_has_not_come(three):
    """The VM runs on hv01, and hv03 expects it. A volume below its dataset there says nothing."""
    between(three, "hv01", "hv03")
    begun(three)
    three.hv["hv03"].ok("zfs", "create", "-V", "16M", f"zones/{VM}/disk7")
    assert "hv03 does not know whether it has left hv01" in refused(three, {"hv01": "", "hv02": says(three, "hv02")})
    assert powers(three)["hv01"] == "running"


def killed_when(world, name, noted, run):
    """The run is killed as soon as it has written that down on a host."""

    def watch():
        if re.search(noted, world.hv[name].ok("zfs", "get", "-rHo", "value", "flexdisk:move", "zones/flexdisk")):
            raise Killed

    world.watch = watch
    with pytest.raises(Killed):
        run()
    world.watch, world.fuse = lambda: None, Fuse()


def has_left(world, source):
    """hv03 is killed as soon as it has written down that the VM has left."""
    killed_when(world, "hv03", '"has_left":true', lambda: hosts(world)[1].arrive(VM, source))


def returns(world, name):
    """What returned needs on a host, and what the others say."""
    host = world.hv[name]
    answers = {other: look(world, other, VM)["vms"] for other in world.hv if other != name}
    world.acting(host)
    return FailoverReturn(host.zfs(), host.driver(), host, str(world.authorized)), read_claims(answers)


def ending(world, name, old=False, begun=False):
    """What returned would do on a host, by what the others say that answer."""
    back, claims = returns(world, name)
    return back.look(EndRequest(VM, claims, begun, old))


def taken_and_left(world):
    """hv02 has taken the VM over from hv01, and it has left hv02 for hv03, where it has begun to arrive."""
    boot(world.home)
    between(world, "hv01", "hv02")
    take(world)
    between(world, "hv02", "hv03")
    world.newest = world.hashes()
    gone(world, begun(world))
    has_left(world, "hv02")


def test_the_newest_does_not_end_for_an_older_home(three):
    """hv02 has taken the VM over from hv01, and it has left hv02 for hv03 since. hv02 is gone for good."""
    taken_and_left(three)
    result = ending(three, "hv03", old=True)
    assert [problem.code for problem in result.problems] == ["Ambiguous", "InUse"]
    assert (
        "has all that it had: the playbook move_vm with this host as flexdisk_target goes on"
        in result.problems[1].message
    )
    assert "or only an older copy of it" in result.problems[0].message


def test_a_vm_that_is_on_its_way_does_not_end(three):
    """It runs on hv02, which has taken it over from hv01, and its disks are being copied to hv03."""
    boot(three.home)
    between(three, "hv01", "hv02")
    take(three)
    between(three, "hv02", "hv03")
    begun(three)
    assert (ending(three, "hv03").messages, ending(three, "hv03").problems) == ([], [])
    assert "disk root" in ending(three, "hv01").messages[0]


def test_an_old_home_is_no_source(three):
    """hv01 is back with its old copy, and hv02 is gone for good. The VM ends its way to hv03."""
    taken_and_left(three)
    seen = {name: says(three, name) for name in ("hv01", "hv03")}
    result = places.find(read_sightings(seen), places.Wanted("db01", "hv03", "moved", False))
    assert (result.homes, result.source, result.problems) == ([], "hv02", [])
    (message,) = places.find(read_sightings(seen), places.Wanted("db01", "hv01", "moved", False)).problems[1:]
    assert message == "db01 has left hv02, and hv03 has all that it had; go on with flexdisk_target=hv03"
    assert ends(three, {"hv01": says(three, "hv01"), "hv02": ""}, source="hv02")
    assert powers(three) == {"hv01": "stopped", "hv02": "", "hv03": "running"}


@pytest.fixture
def newer(left):
    """hv03 has all, as replicas. hv02 has begun a failover meanwhile, and was killed."""
    has_left(left, "hv01")
    boot(left.hv["hv01"])
    between(left, "hv01", "hv02")
    killed_when(left, "hv02", '"back_to":"[^"]', lambda: take(left))
    assert look(left, "hv02")["vms"][0]["taking"] == "hv01"
    return left


def test_a_failover_that_has_begun_ends_if_a_host_has_everything(newer):
    """Whatever may be lost. It is given up, and the move ends."""
    for most in (None, 10**9):
        code, message = refused_run(fail_over(newer, "hv02", ["hv01"], max_data_loss=most))
        assert (code, "hv03 has all that it had" in message) == ("InUse", True)
    seen = {name: says(newer, name) for name in ("hv02", "hv03")}
    (message,) = places.find(read_sightings(seen), places.Wanted("db01", "hv03", "moved", False)).problems
    assert "is being taken over from hv01 on hv02; the playbook failover_vm goes on there, or gives that up" in message
    between(newer, "hv01", "hv02")
    assert GiveUpTakeover(newer.peer.zfs(), newer.peer.driver(), newer.peer).stay(VM, False)
    assert ends(newer, {"hv01": "", "hv02": says(newer, "hv02")})
    on_hv03(newer)


def test_what_has_arrived_does_not_end_for_a_failover_that_has_begun(newer):
    (problem,) = ending(newer, "hv03", begun=True).problems
    assert (problem.code, "has all that it had" in problem.message) == ("InUse", True)


def contents(host):
    names = host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", "zones").split()
    return {host.ok("guest", "hash", name) for name in names}


@pytest.mark.parametrize("left", [1, 2], indirect=True)
def test_newer_replicas_are_kept_anywhere(left):
    """hv03 was left out, and hv02 has taken the VM over. The replicas of hv03 have what the VM wrote last, one of them
    or both. A sync that comes between the killed run and the next one brings nothing to them.
    """
    has_left(left, "hv01")
    boot(left.hv["hv01"])
    between(left, "hv01", "hv02")
    take(left)
    before, folder = left.hv["hv03"].state(), {path: path.read_text() for path in left.folder.rglob("*.json")}
    lines = ending(left, "hv03").messages
    assert len(lines) == 1 + left.newer
    assert [one for one in lines[1:] if f"is kept as {APART}/" in one and "that hv02 lacks" in one] == lines[1:]
    assert {" ".join(one.split()[:2]) for one in lines[1:]} <= {"disk root", "disk data"}
    host = left.hv["hv03"]
    home = left.hv["hv02"].state()
    for at in itertools.count(1):
        host.restore(before)
        left.hv["hv02"].restore(home)
        for path, text in folder.items():
            path.write_text(text)
        back, claims = returns(left, "hv03")
        left.fuse = Fuse(at, bool(at % 2))
        try:
            back.end(EndRequest(VM, claims))
            break
        except Killed:
            left.fuse = Fuse()
        between(left, "hv02", "hv03")
        with suppress(FlexdiskError, AssertionError):
            left.sync()
        assert set(left.newest) <= contents(host), at
        back, claims = returns(left, "hv03")
        back.end(EndRequest(VM, claims))
        observed = observe(host.zfs(), host.driver(), all_pools=True)
        diverged = host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", APART).split()
        assert {host.ok("guest", "hash", name) for name in diverged} == {*left.newest[: left.newer]}, at
        assert (observed.configs, observed.moves[VM].taken, len(observed.datasets) > 3) == ((), True, True)
        assert ending(left, "hv03").messages == []
    left.fuse = Fuse()
    assert at > 5
    _uuid, messages = returns(left, "hv03")[0].give_up(VM, False)
    assert len(messages) == left.newer
    assert powers(left)["hv02"] == "running"


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_only_expected_ends_by_the_word_of_the_user(three, leaves):
    """hv02 has taken over, and is gone for good while the VM was on its way to hv03. The old copy on hv01 can start."""
    boot(three.home)
    between(three, "hv01", "hv02")
    take(three)
    between(three, "hv02", "hv03")
    known = begun(three)
    if leaves:
        gone(three, known)
    back, claims = returns(three, "hv03")
    claims = {**claims, "hv02": None}
    assert (back.look(EndRequest(VM, claims)).messages, back.look(EndRequest(VM, claims)).problems) == ([], [])
    result = back.look(EndRequest(VM, claims, False, True))
    assert (result.messages, result.problems) == (
        ["what was made here of VM db01, which was to come from hv02, goes; its replicas stay"], [],
    )  # fmt: skip
    moved = read_claims({"hv02": look(three, "hv02", VM)["moved"]})
    back, claims = returns(three, "hv03")
    if leaves:  # hv02 answers, and says so
        assert back.look(EndRequest(VM, {**claims, "hv02": []}, False, True, moved)).problems
    before = contents(three.hv["hv03"])
    back.end(EndRequest(VM, {**claims, "hv02": None}, False, True))
    assert (powers(three)["hv03"], contents(three.hv["hv03"])) == ("", before)
    assert start(three, {"hv02": "", "hv03": look(three, "hv03", VM)["vms"]}, check=False).failures
    between(three, "hv01", "hv03")
    host = three.hv["hv01"]
    done = failover_start.start(host.zfs(), host.driver(), read_claims({"hv02": "", "hv03": []}), True, False, "hv01")
    assert (len(done.started), powers(three)["hv01"]) == (1, "running")


@pytest.fixture
def both(three):
    """hv02 has taken the VM over, and is gone for good while the VM was arriving on hv03. hv01 runs the old copy."""
    taken_and_left(three)
    host = three.hv["hv01"]
    three.acting(host)
    unasked = read_claims({"hv02": "", "hv03": ""})
    assert failover_start.start(host.zfs(), host.driver(), unasked, True, False, "hv01").started
    host.ok("guest", "write", f"zones/{VM}/disk0", "50", "1", "on the old copy")
    three.written = host.ok("guest", "hash", f"zones/{VM}/disk0")
    return three


def test_a_copy_that_runs_is_no_old_one(both):
    """The move to hv03 does not make a second one."""
    host = both.hv["hv01"]
    for stopped in (False, True):  # it still counts as at home
        if stopped:
            host.power_off(VM)
        seen = {name: says(both, name) for name in ("hv01", "hv03")}
        assert places.find(read_sightings(seen), places.Wanted("db01", "hv03", "moved", False)).homes == ["hv01"]
        assert "hv01 has it, too" in refused(both, {"hv01": says(both, "hv01"), "hv02": ""}, unasked=True)


def test_the_copy_that_was_started_unasked_is_given_up_for_the_newer_one(both):
    """It is stopped, and its host boots. Then it is an old home, and what it wrote is kept."""
    boot(both.hv["hv01"])
    seen = {name: says(both, name) for name in ("hv01", "hv03")}
    assert places.find(read_sightings(seen), places.Wanted("db01", "hv03", "moved", False)).homes == []
    assert ends(both, {"hv01": says(both, "hv01"), "hv02": ""}, source="hv02")
    back, claims = returns(both, "hv01")
    back.end(EndRequest(VM, {**claims, "hv02": None}))
    assert powers(both) == {"hv01": "", "hv02": "", "hv03": "running"}
    assert both.written in contents(both.hv["hv01"])


def test_what_is_expected_stays_if_no_other_host_has_it(three):
    """hv01 has ended the VM, and cannot be reached. What hv03 knows of it may be all that is left."""
    between(three, "hv01", "hv03")
    gone(three, begun(three))
    back, claims = returns(three, "hv03")
    for silent in ({**claims, "hv01": None}, claims):
        result = back.look(EndRequest(VM, silent, False, True))
        assert (result.messages, [problem.code for problem in result.problems]) == ([], ["Ambiguous"])


def test_no_sync_overwrites_what_has_arrived(left):
    """The VM is back on hv01, whose pool the replicas of hv03 are from. They have what it wrote before it left."""
    has_left(left, "hv01")
    boot(left.hv["hv01"])
    between(left, "hv01", "hv02")
    take(left)
    host = left.hv["hv03"]
    left.acting(host)
    receiver = Receiver(host.zfs(), host.driver(), host, str(left.authorized))
    with pytest.raises(FlexdiskError, match="has what it wrote on hv01 last"):
        receiver.remove(["zones"], [VM], [], False)
    between(left, "hv02", "hv03")
    for name in host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", REPLICAS).split():
        host.ok("zfs", "set", f"flexdisk:{HOME}={guid(left.hv['hv02'])}", name)  # then only the mark of the move tells
    with pytest.raises(FlexdiskError, match="has what it wrote on hv01 last"):
        left.sync()
    assert set(left.newest) <= contents(host)
    back, claims = returns(left, "hv03")
    back.end(EndRequest(VM, claims))
    assert ending(left, "hv03").messages == []
    between(left, "hv02", "hv03")
    assert left.sync()[1]


def test_a_failover_that_has_begun_knows_of_a_later_one(three):
    """hv02 had begun to take over, hv03 did, and hv02 goes on. A record of hv03 with a higher term is on hv01."""
    boot(three.hv["hv01"])
    between(three, "hv01", "hv02")
    killed_when(three, "hv02", '"back_to":"[^"]', lambda: take(three))
    message = look(three, "hv02", VM)["records"]
    later = [{**one, "term": 1, "host": "hv03", "home": 99} for one in message]
    given = host_steps.defaults()
    given.update(
        step="take_over", vm=VM, name="hv02", authorized_keys=str(three.authorized), peers={"hv01": "", "hv04": []}
    )
    host = three.hv["hv02"]
    three.acting(host)
    for elsewhere, problems in (({"hv04": later}, ["TooOld"]), ({"hv04": []}, [])):
        arguments, _wrong = vm_failover.parse({**given, "elsewhere": elsewhere})
        answer = vm_failover.run(Call(host.zfs(), host.driver(), None, True, host), arguments)
        assert [one["code"] for one in (answer.failure or {"problems": []})["problems"]] == problems


def test_a_host_that_has_not_booted_asks_as_well(left):
    """hv03 was dead when hv02 took the VM over, and hv01, which it had left, has not booted."""
    between(left, "hv01", "hv02")
    assert fail_over(left, "hv02", ["hv03"], False, max_data_loss=10**9).failure is None
    assert powers(left)["hv02"] == "running"
    between(left, "hv01", "hv03")
    source = hosts(left)[0]
    for seen in ({"hv02": None}, {}):
        with pytest.raises(FlexdiskError) as caught:
            source.check_can_leave(VM, "hv03", seen, False)
        assert "hv02 could not be asked whether it has been taken over" in caught.value.message
    answers = {"hv01": says(left, "hv01"), "hv03": says(left, "hv03")}
    (message,) = places.find(read_sightings(answers), places.Wanted("db01", "hv03", "moved", False)).problems
    assert "hv02 could not be asked whether it has been taken over" in message
