# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group R: size and resize."""

from __future__ import annotations

import json

import pytest

from tests.conformance.support import GIB, IMAGE, MIB, UUID, Backend, Vm, base, boot_disk, data_disk, made, ok, refused

NO_ROOM = "size is greater than available space"


def test_r01_boot_disk_grown_at_create(backend: Backend) -> None:
    vm = Vm(backend)
    ok(vm.create({**base(), "disks": [boot_disk(size=11264)]}))
    disk = vm.disk(0)
    assert (disk["size"], disk["image_uuid"], disk["boot"]) == (11264, IMAGE, True)


def test_r02_boot_disk_smaller_than_image(backend: Backend) -> None:
    vm = Vm(backend)
    result = refused(vm.create({**base(), "disks": [boot_disk(size=9216)]}), "Invalid value(s) for: size")
    assert result.err.startswith("Invalid value(s) for: size")
    assert not vm.exists()
    assert not vm.dataset_exists(vm.root)


@pytest.mark.zfs_decides
def test_r03_grow_boot_disk(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=11264)
    ok(vm.grow(0, 11264))
    disk = vm.disk(0)
    assert (disk["size"], disk["image_uuid"], disk["boot"]) == (11264, IMAGE, True)
    assert vm.prop(vm.volume(0), "volsize") == 11264 * MIB


@pytest.mark.zfs_decides
def test_r04_grow_data_disk(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=13312)
    ok(vm.grow(1, 3072))
    assert [disk["size"] for disk in vm.disks()] == [10240, 3072]


@pytest.mark.zfs_decides
def test_r05_shrink_without_flexible_space(backend: Backend) -> None:
    vm = made(backend, data_disk(2048))
    ok(vm.grow(1, 1024, dangerous_allow_shrink=True))
    assert vm.disk(1)["size"] == 1024


def test_r06_shrink_refused_without_its_flag(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=12288)
    result = vm.grow(1, 1024)
    refused(result, "cannot resize disk: new size must be greater than current size. (2048 > 1024)")
    assert result.err.startswith("first of 1 error: cannot resize ")
    assert vm.disk(1)["size"] == 2048


@pytest.mark.zfs_decides
def test_r07_grow_beyond_the_slack(backend: Backend) -> None:
    vm = made(backend, data_disk(2048))
    ok(vm.grow(1, 2049))
    start = f"first of 1 error: Command failed: cannot set property for '{vm.volume(1)}': {NO_ROOM}"
    assert refused(vm.grow(1, 2051), NO_ROOM).err.startswith(start)
    assert vm.disk(1)["size"] == 2049


@pytest.mark.zfs_decides
def test_r08_add_a_disk(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=11264)
    ok(vm.update(add_disks=[data_disk(1024)]))
    assert vm.disk(1)["size"] == 1024
    assert vm.drift() == (0, 0)


def test_r09_same_size_changes_nothing(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=13312)
    ok(vm.zfs("set", "refreservation=2048M", vm.volume(1)))
    quota = vm.root_prop("quota")
    ok(vm.grow(1, 2048))
    assert (vm.root_prop("quota"), vm.prop(vm.volume(1), "refreservation")) == (quota, 2048 * MIB)


def test_r10_no_resize_while_running(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=13312)
    ok(vm.start())
    text = "at least one specified update to disks is only allowed when state is "
    text += '"stopped", currently: running (running)'
    refused(vm.grow(1, 3072), text)
    assert vm.disk(1)["size"] == 2048


def _poisoned(backend: Backend) -> Vm:
    vm = made(backend, data_disk(2048), flexible_disk_size=12288)
    result = vm.update(flexible_disk_size=14336, update_disks=[{"path": vm.path(1), "size": 4096}])
    refused(result, NO_ROOM)
    return vm


@pytest.mark.zfs_decides
def test_r11_raise_flex_and_grow_in_one_update(backend: Backend) -> None:
    vm = _poisoned(backend)
    found = vm.get()
    assert (found["flexible_disk_size"], found["disks"][1]["size"]) == (14336, 2048)
    assert vm.drift() == (-2048 * MIB, -2048 * MIB)


@pytest.mark.zfs_decides
def test_r12_raise_flex_then_grow(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=12288)
    ok(vm.update(flexible_disk_size=14336))
    ok(vm.grow(1, 4096))
    assert vm.disk(1)["size"] == 4096
    assert vm.drift() == (0, 0)


def _too_low(backend: Backend) -> Vm:
    vm = made(backend, data_disk(2048), flexible_disk_size=20480)
    refused(vm.update(flexible_disk_size=5000), "size is less than current used or reserved space")
    return vm


@pytest.mark.zfs_decides
def test_r13_flex_below_use(backend: Backend) -> None:
    vm = _too_low(backend)
    found = vm.get()
    assert (found["flexible_disk_size"], found["free_space"]) == (5000, 5000 - 12288)


@pytest.mark.zfs_decides
def test_r14_feasible_flex_repairs(backend: Backend) -> None:
    vm = _too_low(backend)
    ok(vm.update(flexible_disk_size=20480))
    assert vm.drift() == (0, 0)
    assert vm.root_prop("refreservation") == GIB - MIB


@pytest.mark.zfs_decides
def test_r14a_same_flex_again_does_nothing(backend: Backend) -> None:
    vm = _poisoned(backend)
    quota = vm.root_prop("quota")
    ok(vm.update(flexible_disk_size=14336))
    assert vm.root_prop("quota") == quota


@pytest.mark.zfs_decides
def test_r14b_poisoned_flex_has_no_room(backend: Backend) -> None:
    vm = _poisoned(backend)
    ok(vm.update(flexible_disk_size=14336))
    assert vm.get()["free_space"] == 2048
    refused(vm.grow(1, 4096), NO_ROOM)


@pytest.mark.zfs_decides
def test_r14c_change_and_change_back(backend: Backend) -> None:
    vm = _poisoned(backend)
    ok(vm.update(flexible_disk_size=14337))
    ok(vm.update(flexible_disk_size=14336))
    ok(vm.grow(1, 4096))
    assert vm.get()["free_space"] == 0
    assert vm.drift() == (0, 0)


def test_r15_misspelt_flag_is_dropped(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=12288)
    refused(vm.grow(1, 1024, dangrous_allow_shrink=True), "cannot resize disk: new size must be greater")
    assert vm.disk(1)["size"] == 2048


def test_r16_unknown_path_aborts(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=13312)
    refused(vm.grow(5, 3072), "index (number) is required", rc=134)


def test_r17_size_as_string_aborts(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=13312)
    refused(vm.update(add_disks=[data_disk("100")]), "volume.size (number) is required", rc=134)
    assert len(vm.disks()) == 1


@pytest.mark.parametrize("size", [-1, 1.5, "remaining"])
def test_r18_bad_sizes(backend: Backend, size: object) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=13312)
    for result in (vm.grow(1, size), vm.update(add_disks=[data_disk(size)])):
        refused(result, "Invalid value(s) for: disks.*.size")
    created = vm.create(base(data_disk(size), uuid=UUID.replace("c", "e")))
    refused(created, "Invalid value(s) for: disks.*.size")
    assert [disk["size"] for disk in vm.disks()] == [10240, 2048]


def test_r19_size_missing(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=13312)
    refused(vm.update(add_disks=[{"model": "virtio"}]), "Missing required properties: add_disks.0.size")
    payload = base({"model": "virtio"}, uuid=UUID.replace("c", "e"))
    refused(vm.vmadm("create", stdin=json.dumps(payload)), "Missing required properties: disks.1.size")


@pytest.mark.zfs_decides
def test_r20_first_entry_is_done_when_the_second_is_refused(backend: Backend) -> None:
    vm = made(backend, data_disk(1024), data_disk(2048), flexible_disk_size=15360)
    changes = [{"path": vm.path(1), "size": 2048}, {"path": vm.path(2), "size": 1024}]
    refused(vm.update(update_disks=changes), "cannot resize disk")
    assert [disk["size"] for disk in vm.disks()] == [10240, 2048, 2048]
