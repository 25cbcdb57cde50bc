# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""disk_verify on a Linux host: what libvirt keeps in another way, and that the rest is found there, too."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

from .conftest import OTHER, VM, LinuxHost, domain

ROOT = f"tank/{VM}"
BOX = "tank/flexdisk"
FOREIGN = "dddddddd-0000-4000-8000-000000000001"


def go(linux, *repair, check=False, vms=None):
    zfs = Zfs(linux.runner, lambda seconds: None, lambda name: "")
    return verify(zfs, linux.driver(), vms, repair, None, 30, check, int(linux.node.now()))


def kinds(result):
    return [finding.kind for finding in result.findings]


def findings(result):
    return [finding.as_dict() for finding in result.findings]


def detached(linux):
    [disk] = linux.host().detached
    return disk.volume.name


def world():
    """web01 with root and a, and b detached from it."""
    linux = LinuxHost()
    linux.adopted(32, 16)
    done = linux.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}], "unlisted": "detach"})
    assert (done.problems, done.failure) == ([], None)
    return linux


def settle(linux, *repair):
    """Repairs in four steps; the findings that are left are those that check mode tells."""

    def told(result):
        return {"findings": findings(result), "steps": result.steps, "repaired": [f.as_dict() for f in result.repaired]}

    done = four_steps(linux, lambda check: go(linux, *repair, check=check), told, planned=False)
    assert done.outcome.changed
    return done


def entry(linux, number):
    return linux.domains.configs[VM].findall("devices/disk")[number]


def other_serial(linux):
    entry(linux, 1).find("serial").text = "f" * 20


def no_serial(linux):
    disk = entry(linux, 1)
    disk.remove(disk.find("serial"))


def own_serial(linux):
    """One that its operator has chosen says nothing of identities."""
    entry(linux, 1).find("serial").text = "DATA"


def destroyed(linux):
    linux.run("zfs", "destroy", f"{ROOT}/disk1")


def moved_by_hand(linux):
    linux.run("zfs", "rename", f"{ROOT}/disk1", "tank/elsewhere")


def shared(linux):
    linux.domains.add(domain([f"{ROOT}/disk1"], uuid=OTHER, name="web02"))


def twice(linux):
    again = copy.deepcopy(entry(linux, 1))
    again.find("target").set("dev", "vdz")
    again.remove(again.find("address"))
    linux.domains.configs[VM].find("devices").append(again)


def strayed(linux):
    moved_by_hand(linux)
    entry(linux, 1).find("source").set("dev", "/dev/zvol/tank/elsewhere")


def unplugged(linux):
    linux.domains.boot(VM)
    devices = linux.domains.lives[VM].find("devices")
    devices.remove(devices.findall("disk")[1])


def stale(linux):
    linux.run("zfs", "set", "flexdisk:slot=0:9:0", "flexdisk:model=ide", f"{ROOT}/disk1")


def set_above(linux):
    linux.run("zfs", "set", "flexdisk:flexible_disk_size=99", "flexdisk:remaining=x", "tank")


def received(linux):
    name = detached(linux)
    linux.run("zfs", "snapshot", name + "@backup")
    stream = linux.run("zfs", "send", "-p", name + "@backup")
    linux.run("zfs", "destroy", "-r", name)
    status, _out, err = linux.node.run(["zfs", "receive", name], stream)
    assert status == 0, err


def received_by_the_vm(linux):
    dataset = linux.node.pools.pools["tank"].datasets[ROOT]
    dataset.received["flexdisk:flexible_disk_size"] = dataset.props.pop("flexdisk:flexible_disk_size")


def orphaned(linux):
    linux.run("zfs", "create", "-V", "8M", f"{ROOT}/disk9")


def misplaced(linux):
    linux.run("zfs", "rename", detached(linux), f"{BOX}/data")


def drifted(linux):
    linux.run("zfs", "set", "quota=8G", "reservation=8G", ROOT)


def thin(linux):
    linux.run("zfs", "set", "refreservation=8M", f"{ROOT}/disk1")


def guarded(linux):
    for name in (f"{ROOT}/disk1", detached(linux)):
        linux.run("zfs", "snapshot", name + "@flexdisk-guard")
        linux.run("zfs", "hold", "flexdisk-guard", name + "@flexdisk-guard")


def marked(linux):
    linux.run("zfs", "set", "flexdisk:from=tank/old", f"{ROOT}/disk1")


def half_adopted(linux):
    """The volume is in its place, and the configuration names the old one."""
    strayed(linux)
    linux.run("zfs", "set", "flexdisk:from=tank/elsewhere", "tank/elsewhere")
    linux.run("zfs", "rename", "tank/elsewhere", f"{ROOT}/disk1")


def unreadable(linux):
    linux.run("zfs", "set", f"flexdisk:intent.{VM}=garbage", BOX)


DEFECTS = [
    (other_serial, {"serial_mismatch"}, {"serial_mismatch"}),
    (no_serial, {"uuid_not_configured"}, {"uuid_not_configured"}),
    (own_serial, set(), set()),
    (destroyed, {"dangling_reference", "quota_drift"}, {"dangling_reference"}),
    (
        moved_by_hand,
        {"dangling_reference", "stranger_volume", "quota_drift"},
        {"dangling_reference", "stranger_volume"},
    ),
    (shared, {"shared_volume"}, {"shared_volume"}),
    (twice, {"disk_twice"}, {"disk_twice"}),
    (strayed, {"stray_volume", "stranger_volume", "quota_drift"}, {"stray_volume", "stranger_volume"}),
    (unplugged, {"not_plugged"}, {"not_plugged"}),
    (stale, {"stale_copy"}, set()),
    (set_above, {"inherited_property"}, set()),
    (received, {"received_property"}, set()),
    (received_by_the_vm, {"received_property"}, set()),
    (orphaned, {"orphan_volume", "quota_drift"}, set()),
    (misplaced, {"parked_place"}, set()),
    (drifted, {"quota_drift"}, set()),
    (thin, {"reservation_off_auto"}, set()),
    (guarded, {"guard"}, set()),
    (marked, {"from_mark"}, set()),
    (half_adopted, {"from_mark"}, {"from_mark"}),
    (unreadable, {"intent_unreadable", "intent_index"}, set()),
]


def named(value):
    return getattr(value, "__name__", "-")


def test_nothing_is_wrong_with_a_clean_host():
    linux = world()
    assert findings(go(linux, *REPAIRABLE)) == []
    linux.domains.boot(VM)
    assert findings(go(linux)) == []
    plain = LinuxHost()
    plain.create()
    assert findings(go(plain)) == []


@pytest.mark.parametrize(("make", "found", "left"), DEFECTS, ids=named)
def test_each_defect_is_found_and_repaired(make, found, left):
    linux = world()
    make(linux)
    assert set(kinds(go(linux))) == found
    if found != left:
        settle(linux, *REPAIRABLE)
    assert set(kinds(go(linux))) == left


def test_a_running_domain_is_repaired():
    linux = world()
    linux.domains.boot(VM)
    for make in (stale, orphaned, drifted, guarded, misplaced, set_above):
        make(linux)
    settle(linux, *REPAIRABLE)
    assert kinds(go(linux)) == []
    linux.assert_whole()


@pytest.mark.parametrize(("make", "specs"), [(no_serial, 1), (half_adopted, 1), (strayed, 1)], ids=named)
def test_the_task_that_a_finding_gives_ends_it(make, specs):
    linux = world()
    make(linux)
    [spec] = [
        spec
        for finding in go(linux, "quota_drift").findings
        if finding.repair and "flexdisk.hypervisor.vm_disks" in finding.repair
        for spec in finding.repair["flexdisk.hypervisor.vm_disks"]["vms"]
    ][:specs]
    done = linux.converge({"disks": None, **spec})
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert kinds(go(linux, *REPAIRABLE)) == []


class Killed(BaseException):
    """The module is gone."""


def fuse(number, word):
    """A hook that kills the module before or after its change with this number."""
    left = [number]

    def hook(who, arguments, when):
        if when == word:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

    return hook


@pytest.mark.parametrize("word", ["before", "after"])
@pytest.mark.parametrize("kind", ["orphan_volume", "reservation_off_auto", "parked_place", "guard"])
def test_killed_at_every_change_the_same_task_ends_it(kind, word):
    number = 0
    while True:
        number += 1
        linux = world()
        for make in (orphaned, misplaced, thin, guarded):
            make(linux)
        linux.hook = linux.domains.hook = fuse(number, word)
        try:
            go(linux, kind)
            break
        except Killed:
            pass
        finally:
            linux.hook = linux.domains.hook = None
        done = go(linux, kind)
        assert (done.outcome.problems, done.outcome.failure) == ([], None), number
        assert kind not in kinds(go(linux)), number
    assert number > 1


def test_reading_takes_as_many_processes_as_for_one_disk():
    linux = world()
    for number in range(200):
        linux.run("zfs", "create", "-s", "-V", "1M", "-o", f"flexdisk:uuid={place(number)}", f"{BOX}/{place(number)}")
    linux.calls.clear()
    assert kinds(go(linux)) == []
    assert [call[0] for call in linux.calls] == ["zfs", "zpool", "zfs"]
    assert not any(changes(call) for call in linux.calls)


def place(number):
    return "dddddddd-0000-4000-8000-%012d" % number
