# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that no task manages: each is named with its reason, and the others are managed."""

from __future__ import annotations

import pytest
from simnode import Node
from simnode.node import PoolSpec

from .conftest import VM, LinuxHost, domain, killed
from .files import FakeFiles
from .test_disk_adopt import settle
from .test_vm_disks import spec, strays

PLAIN = "<source dev='/dev/zvol/tank/vms/web01-1'/>"


def pooled() -> LinuxHost:
    """A host with two pools. The name of the other one comes first."""
    linux = LinuxHost()
    pools = [PoolSpec(p, 64 << 30, 12, [{"type": "disk", "disks": 1}], "openzfs-2.1") for p in ("data", "tank")]
    linux.node = Node.create(None, pools)
    linux.files = FakeFiles(linux.node.pools)
    return linux


def change(linux, old, new, kind="block"):
    """web01 with volumes in a folder, and another text and type for the second disk."""
    strays(linux, 64, 32)
    text = domain(["tank/vms/web01-0", "tank/vms/web01-1"])
    for before, after in ((old, new), ("type='block'", f"type='{kind}'")):
        head, result, tail = text.rpartition(before)
        assert result
        text = head + after + tail
    linux.domains.add(text)


@pytest.mark.parametrize(
    ("kind", "old", "new", "reason"),
    [
        ("block", "device='disk'", "device='lun'", "(/dev/zvol/tank/vms/web01-1) is left alone: its guest talks to"),
        (
            "block",
            PLAIN,
            "<source dev='/dev/sdx'/>",
            "(/dev/sdx) is left alone: its path is not that of a volume below",
        ),
        (
            "volume",
            PLAIN,
            "<source pool='p' volume='v'/>",
            "it is volume v of libvirt's storage pool p, and not a path",
        ),
        ("file", PLAIN, "<source file='/x.qcow2'/>", "(/x.qcow2) is left alone: it is a file, and no volume of ZFS"),
        ("network", PLAIN, "<source protocol='nbd'/>", "(network) is left alone: it is of type network, and no volume"),
    ],
)
def test_a_disk_that_is_left_out_is_named(linux, kind, old, new, reason):
    change(linux, old, new, kind)
    done = linux.four_steps(spec(adopt=True, flexible_disk_size="1GiB"))
    [warning] = done.warnings
    assert warning.startswith("web01: disk vdb (")
    assert reason in warning
    assert list(linux.disks()) == ["root"]
    assert reason in "".join(settle(linux).outcome.warnings)


def test_a_vm_of_which_nothing_can_be_adopted():
    linux = pooled()
    linux.domains.add(domain(["x", "y"]).replace("/dev/zvol/x", "/dev/sdx").replace("/dev/zvol/y", "/dev/sdy"))
    [problem] = linux.converge(spec(adopt=True)).problems
    assert (
        "and adopt: true makes none: which pool it belongs to is not clear, for no disk of it can be" in problem.message
    )
    for name, path in (("vda", "/dev/sdx"), ("vdb", "/dev/sdy")):
        assert f"disk {name} ({path}) is left alone: its path is not that of a volume" in problem.message


def test_drives_are_not_named(linux):
    linux.create((64,))
    cdrom = "<disk type='file' device='cdrom'><source file='/x.iso'/><target dev='vdr' bus='virtio'/></disk>"
    linux.domains.add(linux.domains.xml(VM, False).replace("</devices>", f"{cdrom}</devices>"))
    assert linux.converge(spec(flexible_disk_size="1GiB")).warnings == []


def test_a_vm_in_two_pools_is_managed_where_it_boots():
    linux = pooled()
    linux.run("zfs", "create", "-V", "32M", "data/big")
    change(linux, "tank/vms/web01-1", "data/big")
    done = linux.four_steps(spec(adopt=True, unlisted="keep", flexible_disk_size="1GiB"))
    assert done.warnings == [
        "web01: /dev/zvol/data/big lies in pool data, not in tank as the VM does, and is left alone"
    ]
    assert linux.disks()["root"].volume.name == f"tank/{VM}/disk0"
    assert "/dev/zvol/data/big" in linux.domains.paths(VM)
    linux.four_steps(spec({"name": "a", "size": 16}))
    settle(linux)
    assert linux.vm().strays == ("/dev/zvol/data/big",)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("block", "<source dev='/dev/zd16'/>"),
        ("block", "<source dev='/dev/zvol//tank/vms/web01-1'/>"),
        ("volume", "<source pool='guests' volume='web01-1'><seclabel model='dac' relabel='no'/></source>"),
    ],
)
def test_another_name_of_a_volume_is_taken_in_by_an_adoption(linux, kind, source):
    change(linux, PLAIN, source, kind)
    linux.domains.pools["guests"] = "/dev/zvol/tank/vms"
    volume = "tank/vms/web01-1"
    linux.domains.links.update({"/dev/zd16": volume, f"/dev/zvol/{volume}": volume})
    linux.run("guest", "write", volume, "0", "8", "7")
    digest = linux.run("guest", "hash", volume)
    done = linux.four_steps(spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB"))
    assert done.warnings == []
    disk = linux.disks()["a"]
    assert (disk.volume.name, linux.run("guest", "hash", disk.volume.name)) == (f"tank/{VM}/disk1", digest)
    written = linux.domains.configs[VM].findall("devices/disk")[1]
    assert (written.get("type"), written.find("source").get("dev")) == ("block", disk.path)
    assert (written.find("source/seclabel") is not None) == ("seclabel" in source)
    linux.domains.create(VM)


def test_a_vm_is_adopted_whose_disks_all_have_other_names():
    linux = pooled()
    change(linux, PLAIN, "<source dev='/dev/zd16'/>")
    text = linux.domains.xml(VM, False).replace("/dev/zvol/tank/vms/web01-0", "/dev/zd0")
    linux.domains.add(text)
    linux.domains.links.update({"/dev/zd0": "tank/vms/web01-0", "/dev/zd16": "tank/vms/web01-1"})
    linux.four_steps(spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB"))
    assert linux.domains.paths(VM) == [f"/dev/zvol/tank/{VM}/disk0", f"/dev/zvol/tank/{VM}/disk1"]


def test_another_name_is_told_without_an_adoption(linux):
    linux.create((64,))
    linux.run("zfs", "create", "-V", "32M", "tank/x")
    linux.domains.add(domain([f"tank/{VM}/disk0", "tank/x"]).replace("/dev/zvol/tank/x", "/dev/zd16"))
    linux.domains.links["/dev/zd16"] = "tank/x"
    [warning] = linux.converge(spec(flexible_disk_size="1GiB")).warnings
    assert warning.endswith("below /dev/zvol/; its volume is tank/x, and adopt: true takes it in")


@pytest.mark.parametrize("path", ["/dev/zd16p1", "/dev/disk/by-id/x-part1", "/dev/mapper/vg-lv"])
def test_a_partition_is_no_volume(linux, path):
    change(linux, PLAIN, f"<source dev='{path}'/>")
    if "mapper" not in path:
        linux.domains.links[path] = "tank/vms/web01-1"
    [warning] = linux.four_steps(spec(adopt=True, flexible_disk_size="1GiB")).warnings
    assert f"({path}) is left alone" in warning
    assert "adopt: true" not in warning


@pytest.mark.parametrize("number", range(1, 9))
def test_an_adoption_of_another_name_that_is_killed_goes_on(linux, number):
    change(linux, PLAIN, "<source dev='/dev/zd16'/>")
    linux.domains.links["/dev/zd16"] = "tank/vms/web01-1"
    declaration = spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB")
    killed(linux, number, declaration)
    here = [v for v in ("tank/vms/web01-1", f"tank/{VM}/disk1") if v in linux.host().datasets]
    linux.domains.links["/dev/zd16"] = here[0]
    done = linux.converge(declaration)
    assert (done.problems, done.failure) == ([], None)
    assert linux.disks()["a"].volume.name == f"tank/{VM}/disk1"
    assert not linux.converge(declaration).changed
