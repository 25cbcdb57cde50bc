# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failover was killed, and a third host took the VM over: what was begun is ended. Three simulated nodes."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_start
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
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, take
from .test_failover_elsewhere import fail_over
from .test_failover_elsewhere import refused as refused_run
from .test_failover_return import APART
from .test_move import EVERY
from .test_start_claims import between, powers, three, world
from .test_start_door import boot
from .world import REPLICAS, VM, Fuse, Killed

__all__ = ["three", "world"]
LEFT = "what was made here of VM db01 from hv01 goes, for hv03 has it"


class Died:
    """Three hosts when hv01 has died. hv03 has taken the VM over, and hv02 has not begun to."""

    def __init__(self, three):
        self.world, self.uuids = three, list(three.disks())
        between(three, "hv01", "hv03")
        protect(three)
        boot(three.home)
        take(three)
        between(three, "hv01", "hv02")
        self.saved = {name: host.state() for name, host in three.hv.items()}
        self.kept = three.folder.with_name(f"{three.folder.name}-kept")  # of this test alone
        shutil.copytree(three.folder, self.kept, dirs_exist_ok=True)

    def begins(self, at=0, after=False):
        """hv02 takes the VM over, too, and is killed at a command."""
        for name, state in self.saved.items():
            self.world.hv[name].restore(state)
        shutil.rmtree(self.world.folder)
        shutil.copytree(self.kept, self.world.folder)
        self.world.acting(self.world.hv["hv02"])
        self.world.fuse = Fuse(at, after)
        if at:
            with pytest.raises(Killed):
                take(self.world)
        else:
            take(self.world)
        self.world.fuse, count = Fuse(), self.world.fuse.counted
        return count

    def look(self, name="hv03"):
        """What a host says of the VM."""
        host = self.world.hv[name]
        self.world.acting(host)
        answer = failover_start.look(host.zfs(), host.driver(), Copies(host), VM)
        self.world.acting(self.world.hv["hv02"])
        return json.loads(json.dumps(answer))["vms"]

    def host(self):
        """What hv02 has."""
        host = self.world.hv["hv02"]
        self.world.acting(host)
        return observe(host.zfs(), host.driver(), all_pools=True)

    def back(self):
        host = self.world.hv["hv02"]
        self.world.acting(host)
        return FailoverReturn(host.zfs(), host.driver(), host)

    def stay(self):
        host = self.world.hv["hv02"]
        self.world.acting(host)
        return GiveUpTakeover(host.zfs(), host.driver(), host).stay(VM, True)


def has_begun(host):
    return VM in host.moves and host.moves[VM].phase == "coming"


def ended(died):
    """Nothing is left on hv02 but replicas and what is kept, and hv03 has the VM."""
    host = died.host()
    assert (host.configs, host.vms, host.detached, host.intents) == ((), (), (), {})
    assert not [name for name in host.datasets if name.startswith(f"zones/{VM}")]
    places = [[f"{place}/{uuid}" in host.datasets for place in (REPLICAS, APART)] for uuid in died.uuids]
    assert all(map(any, places)), places
    assert not list(died.world.folder.glob("hv02/moves/*"))
    assert powers(died.world) == {"hv01": "stopped", "hv02": "", "hv03": "running"}
    return host.moves.get(VM)


@pytest.fixture
def died(three):
    return Died(three)


def test_what_was_begun_ends_anywhere(died):
    """Whatever hv02 has made of it, and however far. A second run changes nothing."""
    counts = Counter()
    claims = read_claims({"hv01": "", "hv03": died.look()})
    for at, after in itertools.product(range(1, died.begins() + 1), (False, True)):
        if (at * 2 + after) % EVERY:
            continue
        died.begins(at, after)
        host = died.host()
        if not has_begun(host):
            continue
        if died.world.hv["hv02"].runs(VM):
            assert [one.code for one in died.back().look(EndRequest(VM, claims, False, True)).problems] == [
                "VmNotStopped"
            ]
            died.world.hv["hv02"].power_off(VM)
        ending = died.back().look(EndRequest(VM, claims, False, True))
        assert ending.problems == []
        assert ending.messages[0] == LEFT
        attached = [disk.uuid for vm in host.vms for disk in vm.disks + vm.orphans]
        detached = [disk.uuid for disk in host.detached]
        counts[(len(attached), len(detached))] += 1
        assert len(ending.messages) == 1 + len(attached + detached)
        died.back().end(EndRequest(VM, claims, False, True))
        stone = ended(died)
        assert (stone.phase, stone.host, stone.taken) == ("moved", "hv03", True) if attached + detached else not stone
        assert died.back().look(EndRequest(VM, claims, False, True)).move is None
    assert {(0, 0), (2, 0)} < counts.keys(), counts
    print(counts)


def one_attached(died):
    """hv02 was killed when it had given the VM one of its two disks."""
    host = died.world.hv["hv02"]

    def watch():
        if len(host.disks(VM)) == 1:
            raise Killed

    died.world.watch = watch
    with pytest.raises(Killed):
        died.begins()
    died.world.watch, died.world.fuse = lambda: None, Fuse()


def test_one_disk_is_attached_and_the_other_is_not(died):
    """Killed at any command of the end, the same command goes on."""
    one_attached(died)
    assert [len(vm.disks) for vm in died.host().vms] == [1]
    assert len(died.host().detached) == 1
    claims = read_claims({"hv01": "", "hv03": died.look()})
    with pytest.raises(FlexdiskError, match=r"flexdisk_old_host=.* of the playbook failover_vm end it here"):
        died.stay()
    code, message = refused_run(fail_over(died.world, "hv02", ["hv01"]))
    assert (code, "flexdisk_failover_state=returned and flexdisk_old_host=hv02" in message) == ("InUse", True)
    state = died.world.hv["hv02"].state()
    shutil.copytree(died.world.folder, died.kept / "begun")
    died.world.fuse = Fuse()
    died.back().end(EndRequest(VM, claims, False, True))
    count = died.world.fuse.counted
    assert ended(died).host == "hv03"
    for at, after in list(itertools.product(range(1, count + 1), (False, True)))[::EVERY]:
        died.world.hv["hv02"].restore(state)
        shutil.rmtree(died.world.folder)
        shutil.copytree(died.kept / "begun", died.world.folder)
        died.world.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            died.back().end(EndRequest(VM, claims, False, True))
        died.world.fuse = Fuse()
        died.back().end(EndRequest(VM, claims, False, True))
        assert ended(died).host == "hv03"


def test_it_ends_only_if_another_host_has_it(died):
    """Nothing is done as long as no host says that it has the VM, or as it is not clear whose it is."""
    one_attached(died)
    before = died.world.hv["hv02"].stored()
    answer = died.look()
    for claims, old, code, message in (
        ({"hv01": "", "hv03": ""}, True, "Ambiguous", "no other host has it"),
        ({"hv01": "", "hv03": answer}, False, "Ambiguous", "flexdisk_old_host with the name of this host"),
        ({"hv03": answer, "hv04": answer}, True, "Ambiguous", "hv03 and hv04 has it"),
    ):
        ending = died.back().look(EndRequest(VM, read_claims(claims), False, old))
        assert [problem.code for problem in ending.problems] == [code]
        assert message in ending.problems[0].message
    died.world.hv["hv02"].power_on(VM)
    there_again = read_claims({"hv01": died.look("hv01"), "hv03": answer})
    (problem,) = died.back().look(EndRequest(VM, there_again, False, True)).problems
    assert problem.code == "VmNotStopped"
    died.world.hv["hv02"].power_off(VM)
    assert died.world.hv["hv02"].stored() == before
    assert died.back().look(EndRequest(VM, there_again, False, True)).problems == []  # the copy on hv01 is older


def test_the_word_about_a_vm_that_no_other_host_has(died):
    """A host that has it whole does not end it, and says why."""
    host = died.world.hv["hv03"]
    died.world.acting(host)
    back = FailoverReturn(host.zfs(), host.driver(), host)
    (problem,) = back.look(EndRequest(VM, read_claims({"hv02": ""}), False, True)).problems[:1]
    assert (problem.code, "no other host has it" in problem.message) == ("Ambiguous", True)
    assert back.look(EndRequest(VM, read_claims({"hv02": ""})))[:5] == (None, None, [], [], [])
