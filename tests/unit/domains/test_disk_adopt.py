# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adopt and release with libvirt, which knows of a disk no more than the first 20 digits of its uuid."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_adopt import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps import perform
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import identity, released_identity
from tests.unit.four_steps import four_steps

from .conftest import OTHER, VM, LinuxHost, domain

KEPT_BY_ZFS = {"flexible_disk_size", "indestructible"}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time stands still, so that what two hosts say of it is the same."""
    stopped = SimpleNamespace(time=lambda: 1770091506.0)
    monkeypatch.setattr(perform, "time", stopped)


def go(linux, *vms, check=False, state="adopted", forget=False):
    return run(linux.zfs(), linux.driver(), list(vms) or None, state, forget, None, check)


def settle(linux, *vms, **more):
    """A task in four steps."""
    return four_steps(
        linux,
        lambda check: go(linux, *vms, check=check, **more),
        lambda done: {"vms": done.outcome.vms, "released": done.released, "skipped": done.skipped},
    )


def refusal(linux, *codes, vms=(), **more):
    before = linux.fingerprint()
    predicted, refused = (go(linux, *vms, check=check, **more).outcome.problems for check in (True, False))
    assert linux.fingerprint() == before
    assert predicted == refused
    assert sorted(p.code for p in refused) == sorted(codes), refused
    return "; ".join(f"{p.disk}: {p.message}" for p in refused)


def ours(linux):
    facts = {}
    for line in linux.run("zfs", "get", "-Hp", "-o", "name,property,value,source", "all").splitlines():
        name, key, value, source = line.split("\t")
        if key.startswith("flexdisk:") and source in ("local", "received"):
            facts[name, key[len("flexdisk:") :]] = value
    return facts


def rest(linux):
    """ZFS but for our properties, and the domains' texts."""
    lines = linux.run("zfs", "get", "-Hp", "-o", "name,property,value", "all").splitlines()
    texts = [linux.domains.xml(uuid, False) for uuid in sorted(linux.domains.configs)]
    data = [linux.run("guest", "hash", disk.volume.name) for disk in linux.vm().disks]
    return [line for line in lines if "\tflexdisk:" not in line], texts, data


def rich(*more):
    """web01 with root and a, whose serials are no guid's, and b, whose uuid follows from its guid; more are further."""
    linux = LinuxHost()
    linux.adopted(32, machine="pc-q35-7.2")
    new = {"name": "b", "size": 16, "preserve": True, "tags": {"n": "1"}, "description": "träge"}
    entries = [{"name": "root"}, {"name": "a"}, new]
    assert linux.converge({"vm": VM, "disks": [*entries, *more]}).failure is None
    linux.run("zfs", "set", "flexdisk:package=flexible", f"tank/{VM}")
    linux.run("zfs", "set", "flexdisk:indestructible=true", f"tank/{VM}")
    linux.run("zfs", "set", "flexdisk:serial_no=12", f"tank/{VM}/disk2")
    return linux


def test_a_stopped_domain_gets_serials(linux):
    linux.create((64, 32))
    done = settle(linux)
    assert "~ uuid and slot of disk0, disk1 written down" in done.outcome.diff
    for disk in linux.vm().disks:
        assert disk.volume.user["uuid"] == disk.uuid == identity.uuid_of(disk.volume.guid)
        assert f"<serial>{identity.serial_of(disk.uuid)}</serial>" in linux.domains.xml(VM, False)
    assert list(linux.disks()) == ["disk0", "disk1"]


def test_a_running_domain_is_not_touched(linux):
    linux.create((64, 32))
    linux.domains.boot(VM)
    before = rest(linux)
    done = settle(linux, {"vm": "web01", "disks": [{"index": 1, "name": "data"}]})
    assert rest(linux) == before
    assert [w.rpartition(": ")[2] for w in done.outcome.warnings] == [
        f"disk {n} has no uuid yet" for n in ("disk0", "data")
    ]
    linux.domains.halt(VM)
    settle(linux)
    assert all(disk.uuid == disk.volume.user["uuid"] != "" for disk in linux.vm().disks)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(("forget", "handed"), [(False, True), (False, False), (True, True)])
def test_up_down_up_again_loses_nothing(running, forget, handed):
    linux = rich()
    if running:
        linux.domains.boot(VM)
    before, others = ours(linux), rest(linux)
    down = settle(linux, state="released", forget=forget)
    assert {key for _name, key in ours(linux)} == KEPT_BY_ZFS | (
        set() if forget else {released_identity.RELEASED_PROPERTY}
    )
    assert rest(linux) == others
    linux.assert_whole()
    settle(linux, *(down.released if handed else ()))
    assert (ours(linux), rest(linux)) == (before, others)
    b = down.released[0]["disks"][2]
    assert (b["name"], b["serial_no"], b["tags"], down.released[0]["package"]) == ("b", 12, {"n": "1"}, "flexible")


def test_a_serial_that_the_guest_knows_stays_also_without_a_released_identity():
    linux = rich()
    uuids = {disk.index: disk.uuid for disk in linux.vm().disks}
    settle(linux, state="released", forget=True)
    texts = rest(linux)
    settle(linux)
    assert rest(linux) == texts
    assert {disk.index: disk.uuid[:24] for disk in linux.vm().disks} == {n: uuid[:24] for n, uuid in uuids.items()}


def test_a_released_identity_whose_serial_disagrees():
    linux = rich()
    down = go(linux, state="released", forget=True)
    other = {**down.released[0]["disks"][2], "uuid": OTHER}
    assert f"no disk with uuid {OTHER}, index 2" in refusal(
        linux, "ResourceNotFound", vms=[{"vm": VM, "disks": [other]}]
    )


def test_disks_outside_the_layout(linux):
    linux.create((64,))
    linux.run("zfs", "create", "-V", "32M", "tank/stray")
    linux.domains.add(domain([f"tank/{VM}/disk0", "tank/stray"]))
    assert "vm_disks with adopt: true moves it in" in refusal(linux, "NotSupported")
    linux.domains.add(domain(["tank/stray"], uuid=OTHER, name="web02"))
    assert "{vm: web02, adopt: true}" in refusal(linux, "ResourceNotFound", vms=[{"vm": "web02"}])


def test_a_transient_domain(linux):
    linux.run("zfs", "create", f"tank/{VM}")
    linux.run("zfs", "create", "-V", "64M", f"tank/{VM}/disk0")
    linux.domains.add(domain([f"tank/{VM}/disk0"]), transient=True)
    refusal(linux, "NotSupported")


class Killed(BaseException):
    pass


def interrupted(linux, number, **options):
    """A run that is killed before or after a change, at that point of all; whether it came so far."""
    left = [number]

    def hook(*_ignored):
        left[0] -= 1
        if left[0] < 0:
            linux.hook = linux.domains.hook = None
            raise Killed

    linux.hook = linux.domains.hook = hook
    try:
        go(linux, **options)
    except Killed:
        return True
    finally:
        linux.hook = linux.domains.hook = None
    return False


def plain():
    linux = LinuxHost()
    linux.create((64, 32))
    return linux


def with_file():
    """Its uuid, which is its path, is not that of its dataset's guid."""
    linux = rich({"name": "c", "size": 16, "type": "file"})
    linux.run("guest", "write", linux.disks()["c"].volume.name, "0", "4", "7")
    return linux


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(("forget", "handed"), [(False, True), (False, False), (True, True)])
def test_a_file_keeps_its_path(running, forget, handed):
    linux = with_file()
    if running:
        linux.domains.boot(VM)
    before, others, file = ours(linux), rest(linux), linux.disks()["c"]
    down = settle(linux, state="released", forget=forget)
    left = {key for name, key in ours(linux) if name == file.volume.name}
    assert left == {"uuid", "type", "size"} | (set() if forget else {released_identity.RELEASED_PROPERTY})
    assert rest(linux) == others
    vm = linux.vm()
    assert (vm.missing, vm.orphans, [d.adopted for d in vm.disks]) == ((), (), [False] * 4)
    assert not linux.converge({"vm": VM, "unlisted": "destroy"}, check=True).changed
    linux.assert_whole()
    settle(linux, *(down.released if handed else ()))
    assert (ours(linux), rest(linux)) == (before, others)


def test_a_released_file_can_be_declared():
    linux = with_file()
    was = linux.disks()["c"]
    settle(linux, state="released", forget=True)
    names = ["root", "a", "b", "c"]
    entries = [{"name": n, "pci_slot": d.pci_slot} for n, d in zip(names, linux.vm().disks, strict=True)]
    linux.four_steps({"vm": VM, "disks": entries})
    assert (linux.disks()["c"].uuid, linux.disks()["c"].path) == (was.uuid, was.path)


def down():
    linux = rich()
    go(linux, state="released")
    return linux


SCENARIOS = {
    "adopt": (plain, {}),
    "release": (rich, {"state": "released"}),
    "release a file": (with_file, {"state": "released"}),
    "release and forget": (rich, {"state": "released", "forget": True}),
    "adopt again": (down, {}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_change_the_same_task_ends_it(name):
    make, options = SCENARIOS[name]
    world = pickle.dumps(make())
    before = ours(with_file() if "file" in name else rich())
    number, came = 0, True
    while came:
        linux = pickle.loads(world)
        data = rest(linux)[2]
        if name in ("release", "release a file", "adopt again"):
            retained = [released_identity.identity_of(d) for d in linux.vm().disks]
            uuids = {one.name: one.uuid for one in retained}
        came = interrupted(linux, number, **options)
        predicted = go(linux, check=True, **options)
        again = go(linux, **options)
        assert (again.outcome.problems, again.outcome.failure) == ([], None), number
        assert again.outcome.diff == predicted.outcome.diff, number
        assert not go(linux, **options).outcome.changed, number
        assert rest(linux)[2] == data
        linux_ours = ours(linux)
        if name in ("release", "release a file"):
            go(linux, *again.released)
            linux_ours = ours(linux)
        if name in ("release", "release a file", "adopt again"):
            assert {d.name: d.volume.user["uuid"] for d in linux.vm().disks} == uuids
            clean = [{k: v for k, v in o.items() if k[1] != "uuid"} for o in (linux_ours, before)]
            assert clean[0] == clean[1], number
        number += 1
    assert number > 6


def test_a_saved_identity_counts_where_the_serial_is_the_beginning_of_its_uuid():
    linux = rich()
    disks = {disk.name: (disk.uuid, disk.preserve) for disk in linux.vm().disks}
    go(linux, state="released")
    assert {disk.name: (disk.uuid, disk.preserve) for disk in linux.vm().disks} == disks
    spec = {"vm": VM, "unlisted": "destroy", "disks": [{"name": "root"}, {"name": "a"}]}
    linux.run("zfs", "inherit", "flexdisk:indestructible", f"tank/{VM}")
    done = linux.four_steps(spec)
    assert (done.problems, done.failure) == ([], None)
    assert [(disk.name, disk.uuid, disk.preserve) for disk in linux.vm().detached] == [("b", *disks["b"])]
