# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What VMAPI (W) and CloudAPI (C) do with disks and packages, at the level of the modules, by the table's case ids."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import IMAGE, Simulated

I = 10240  # noqa: E741
REST = {"size": "remaining"}


def ask(sim, packages=(), check=False, **vm):
    wanted = {"vm": "vm", "state": "present", "image": IMAGE, "memory": 1024, **vm}
    return run(Zfs(sim.runner), Vmadm(sim.runner), [wanted], packages, Policy(), None, check)


def flexible(mib, **more):
    return {"name": "p%d" % mib, "disk": mib, "flexible_disk": True, **more}


def made(sim, package, **vm):
    """Sizes of the disks after the task, which must succeed."""
    done = ask(sim, [package], package=package["name"], **vm)
    assert (done.problems, done.failure) == ([], None)
    return [disk["size"] for disk in done.vms[0]["disks"]]


def refused(sim, package, **vm):
    """Code and message; nothing has changed."""
    before = sim.fingerprint()
    problems = ask(sim, [package], package=package["name"], **vm).problems
    assert problems
    assert sim.fingerprint() == before
    return problems[0].code, problems[0].message


def vm(sim):
    return info(Zfs(sim.runner), Vmadm(sim.runner), ["vm"], None, True).vms[0]


@pytest.fixture
def sim():
    sim = Simulated(1 << 40)
    sim.run("vmadm", "lookup")
    return sim


@pytest.mark.parametrize(
    ("package", "disks", "sizes"),
    [
        pytest.param(flexible(I + 1024), [{}, REST], [I, 1024], id="W02"),
        pytest.param(flexible(22528), [{}, REST], [I, 22528 - I], id="W03"),
        pytest.param({"name": "i", "disk": 4096}, None, [I, 4096], id="C07"),
        pytest.param(flexible(20480, disks=[{}, {"size": 512}]), None, [I, 512], id="C12"),
        pytest.param(flexible(15360), [{}, {"size": 512}, REST], [I, 512, 15360 - I - 512], id="C13"),
        pytest.param(flexible(15360), [{"size": 14336}, {"size": 512}, {"size": 512}], [14336, 512, 512], id="C19"),
        pytest.param(flexible(15360), [{}, REST, {"size": 512}], [I, 15360 - I - 512, 512], id="C20"),
        pytest.param(flexible(15360), None, [I, 15360 - I], id="C21"),
        pytest.param(flexible(15360, disks=[REST]), None, [15360], id="C22"),
    ],
)
def test_made(sim, package, disks, sizes):
    assert made(sim, package, disks=disks) == sizes
    seen = vm(sim)
    assert [disk["size"] for disk in seen["disks"]] == sizes
    assert [disk["boot"] for disk in seen["disks"]] == [True] + [False] * (len(sizes) - 1)
    assert seen["flexible"] is bool(package.get("flexible_disk"))
    if seen["flexible"]:
        assert seen["free_space"] == package["disk"] - sum(sizes)


@pytest.mark.parametrize(
    ("package", "disks", "code", "text"),
    [
        pytest.param(flexible(I // 2), [{}, REST], "InsufficientSpace", "5 GiB and lacks 5 GiB", id="W01"),
        pytest.param(flexible(20480), [{}, REST, REST], "InvalidArgument", "only one disk", id="W21"),
        pytest.param(flexible(20480), [{}, {"size": 0}], "InvalidArgument", "at least 1 MiB", id="W22"),
        pytest.param(flexible(20480), [{}, {"size": -1024}], "InvalidArgument", "at least 1 MiB", id="W23"),
        pytest.param(
            {"name": "i", "disk": 99}, [{}, {"size": 512}], "InvalidArgument", "flexible_disk: true", id="C01"
        ),
        pytest.param(flexible(20480), [{}] + [{"size": 1}] * 8, "InvalidArgument", "can have at most 8", id="C02"),
        pytest.param(flexible(20480), [{}, REST, REST], "InvalidArgument", "only one disk", id="C03"),
        pytest.param(flexible(15360), [{"size": 14336}, {"size": 1025}], "InsufficientSpace", "15361 MiB", id="C04"),
        pytest.param(flexible(15360), [{}, {"size": 5120}, REST], "InsufficientSpace", "leaves 0 MiB", id="C05"),
        pytest.param(flexible(20480), [{"size": I // 2}], "InvalidArgument", "is too small: image", id="C06"),
    ],
)
def test_refused(sim, package, disks, code, text):
    problems, message = refused(sim, package, disks=disks)
    assert problems == code
    assert text in message


def test_disks_of_an_inflexible_vm(sim):
    """W04, C08, C10, C11. Unlike CloudAPI we shrink and remove them, which needs no room."""
    package = {"name": "i", "disk": 4096}
    made(sim, package)
    root, data = vm(sim)["disks"]
    assert [(d["pci_slot"], d["boot"], d["state"]) for d in (root, data)] == [
        ("0:4:0", True, "stopped"),
        ("0:4:1", False, "stopped"),
    ]
    assert len({root["uuid"], data["uuid"]}) == 2
    both = [{"name": "disk0"}, {"name": "disk1"}]
    for change in ([*both, {"name": "new", "size": 1536}], [both[0], {**both[1], "size": 5000}]):
        assert ask(sim, disks=change).problems[0].code == "VmWithoutFlexibleDiskSize"
    smaller = [both[0], {**both[1], "size": 128, "dangerous_allow_shrink": True}]
    for change in (smaller, [both[0], {**both[1], "state": "absent"}]):
        done = ask(sim, disks=change)
        assert (done.problems, done.failure) == ([], None)


def test_the_life_of_a_disk(sim):
    """W05 to W20, and with them C14 to C18."""
    package = flexible(11264)
    boot, one = {"name": "disk0"}, {"name": "disk1"}
    made(sim, package, disks=[{}])
    assert "not valid" in refused(sim, package, disks=[boot, {**one, "size": "not-remaining"}])[1]
    code, message = refused(sim, package, disks=[boot, {**one, "size": 1536}])
    assert (code, "512 MiB too small" in message) == ("InsufficientSpace", True)
    for size in (0, -1530):
        assert refused(sim, package, disks=[boot, {**one, "size": size}])[0] == "InvalidArgument"
    assert made(sim, package, disks=[boot, {**one, "size": 1024}]) == [I, 1024]
    assert vm(sim)["disks"][1]["pci_slot"] == "0:4:1"
    assert refused(sim, package, disks=[boot, one, {"size": 128}])[0] == "InsufficientSpace"
    code, message = refused(sim, package, disks=[boot, {**one, "size": 512}])
    assert (code, "would cut off data" in message) == ("InvalidArgument", True)
    assert made(sim, package, disks=[boot, {**one, "size": 512, "dangerous_allow_shrink": True}]) == [I, 512]
    assert made(sim, package, disks=[boot, {**one, "size": 1024}]) == [I, 1024]
    assert refused(sim, package, disks=[boot, {**one, "size": 1536}])[0] == "InsufficientSpace"
    assert made(sim, package, disks=[boot, {**one, "state": "absent"}]) == [I]
    five = {"name": "five", "pci_slot": "0:4:5"}
    assert made(sim, package, disks=[boot, {**five, "size": 512}]) == [I, 512]
    assert vm(sim)["disks"][1]["pci_slot"] == "0:4:5"
    code, message = refused(sim, package, disks=[boot, five, {"name": "six", "size": 256, "pci_slot": "0:4:5"}])
    assert (code, '"0:4:5" is asked for by five and six' in message) == ("InvalidArgument", True)
    assert made(sim, package, disks=[boot, five, {"name": "six", "size": 256}]) == [I, 512, 256]
    assert vm(sim)["disks"][2]["pci_slot"] == "0:4:1"
    assert made(sim, package, disks=[boot, {"name": "five", "state": "absent"}, {"name": "six", **REST}]) == [I, 1024]


@pytest.mark.parametrize(
    ("sizes", "package", "code", "text"),
    [
        pytest.param([512], {"name": "i", "disk": 99}, "InvalidArgument", "it cannot be taken away", id="W25"),
        pytest.param([], flexible(2 << 20), "InsufficientSpace", "pool zones has", id="W26"),
        pytest.param([15360], flexible(10240), "InsufficientSpace", "usage is 25 GiB", id="W28"),
        pytest.param([20480], flexible(24576), "InsufficientSpace", "usage is 30 GiB", id="W31"),
    ],
)
def test_packages_that_do_not_fit(sim, sizes, package, code, text):
    made(sim, flexible(40960), disks=[{}, *({"size": size} for size in sizes)])
    problems, message = refused(sim, package)
    assert problems == code
    assert text in message


def test_snapshots_count_for_a_package(sim):
    """W29: our figure is what they pin, at once; RFD 154's follows as ZFS charges them."""
    made(sim, flexible(61440), disks=[{}, {"size": 2048}])
    uuid = vm(sim)["uuid"]
    sim.write(f"zones/{uuid}/disk1", 3, 0, 1024)
    sim.run("vmadm", "create-snapshot", uuid, "one")
    assert refused(sim, flexible(I + 2048 + 512))[0] == "InsufficientSpace"
    assert made(sim, flexible(I + 2048 + 1200)) == [I, 2048]


def test_a_package_that_fits_exactly(sim):
    """W24, W27, W32."""
    made(sim, {"name": "i", "disk": 4096})
    assert made(sim, flexible(I + 4096)) == [I, 4096]
    assert vm(sim)["flexible_disk_size"] == I + 4096
    room = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones")) // (1 << 20)
    assert refused(sim, flexible(I + 4096 + room + 1))[0] == "InsufficientSpace"
    assert made(sim, flexible(I + 4096 + room)) == [I, 4096]
