# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_snapshot on a Linux host, where ZFS alone knows of snapshots: the engine takes and deletes them and goes back."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Policy,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import snapshots_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .conftest import OTHER, VM, LinuxHost, domain

ROOT = f"tank/{VM}"
DROP = SnapshotDeclaration("absent", "one")
TAKE = SnapshotDeclaration("present", "one")
BACK = SnapshotDeclaration("rolled_back", "one", newer=None)


def go(linux, spec, check=False, restart=False):
    zfs = Zfs(linux.runner, lambda seconds: None, lambda name: "")
    return vm_snapshot.run(zfs, linux.driver(), [VM], spec, Policy(allow_restart=restart), None, check, 1_800_000_000)


def write(linux, disk, seed):
    linux.run("guest", "write", f"{ROOT}/{disk}", "0", "4", str(seed))


def digest(linux, disk):
    return linux.run("guest", "hash", f"{ROOT}/{disk}").strip()


@pytest.fixture
def host(linux):
    linux.adopted(32, 32)
    for number in range(3):
        write(linux, f"disk{number}", number)
    return linux


FILE = "<disk type='file' device='disk'><source file='/x.qcow2'/><target dev='vdx' bus='virtio'/></disk>"


def test_disks_that_a_snapshot_leaves_out_are_named(host):
    """Each with its reason, in check mode too; of all VMs, also those that are not adopted."""
    host.domains.add(host.domains.xml(VM, False).replace("</devices>", f"{FILE}</devices>"))
    host.domains.add(domain(["tank/x"], uuid=OTHER, name="db01"))
    for check in (True, False):
        [warning] = go(host, TAKE, check=check).warnings
        assert warning.startswith("web01 (")
        assert "disk vdx (/x.qcow2) is left alone: it is a file, and no volume of ZFS; snapshot one" in warning
        assert warning.endswith("snapshot one does not have it")
        assert go(host, DROP, check=True).warnings == []
    zfs = Zfs(host.runner, lambda seconds: None, lambda name: "")
    every = vm_snapshot.run(zfs, host.driver(), None, TAKE, Policy(), None, True, 1_800_000_000)
    assert "db01 is left out: not adopted" in "".join(every.warnings)


def test_take_change_go_back_delete(host: LinuxHost):
    assert go(host, TAKE, check=True).diff == go(host, TAKE).diff
    assert not go(host, TAKE).changed
    assert [(s.name, len(s.parts)) for s in snapshots_of(host.vm())] == [("one", 4)]
    assert len({s.createtxg for d in host.vm().disks for s in d.snapshots}) == 1
    was = digest(host, "disk1")
    write(host, "disk1", 99)
    host.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a", "size": 64}, {"name": "b"}]})
    done = go(host, BACK)
    assert (done.problems, done.failure) == ([], None)
    assert "a 64 MiB -> 32 MiB" in done.diff
    assert digest(host, "disk1") == was
    host.assert_whole()
    assert not go(host, BACK).changed
    done = go(host, SnapshotDeclaration("absent", "one"))
    assert done.failure is None
    assert snapshots_of(host.vm()) == []


def test_a_running_domain_is_shut_down_for_a_rollback_and_started_again(host: LinuxHost):
    host.domains.boot(VM)
    go(host, TAKE)
    write(host, "disk1", 99)
    assert [p.code for p in go(host, BACK).problems] == ["VmNotStopped"]
    done = go(host, BACK, restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert [s["step"] for s in done.vms[0]["steps"]] == ["stop", "rollback", "start"]
    assert host.vm().config.state == "running"
    host.assert_whole()


class Killed(BaseException):
    """The module is gone."""


def fuse(number, word):
    """A hook that kills the module before or after its change with this number."""

    def hook(_program, _argv, when):
        nonlocal number
        number -= when == word
        if when == word and number == 0:
            raise Killed

    return hook


@pytest.mark.parametrize("word", ["before", "after"])
def test_killed_between_two_disks_the_vm_stays_down_until_all_are_back(word):
    number = 0
    while True:
        number += 1
        linux = LinuxHost()
        linux.adopted(32, 32)
        linux.domains.boot(VM)
        go(linux, TAKE)
        was = [digest(linux, f"disk{n}") for n in range(3)]
        for disk in range(3):
            write(linux, f"disk{disk}", 50 + disk)
        linux.hook = fuse(number, word)
        try:
            go(linux, BACK, restart=True)
            break
        except Killed:
            pass
        linux.hook = None
        if linux.vm().interrupted is not None:
            refused = linux.converge({"vm": VM, "disks": None}, allow_restart=True)
            assert "a rollback to snapshot one was interrupted" in refused.problems[0].message
        done = go(linux, BACK, restart=True)
        assert (done.problems, done.failure) == ([], None), number
        assert [digest(linux, f"disk{n}") for n in range(3)] == was
        assert linux.vm().config.state == "running"
        assert linux.vm().interrupted is None
        linux.assert_whole()
    assert number > 5
