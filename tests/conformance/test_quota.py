# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group Q: quota, flexible_disk_size and free_space."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.support import (
    GIB,
    LX_IMAGE,
    MIB,
    UUID,
    ZONE_IMAGE,
    Backend,
    Result,
    Vm,
    base,
    data_disk,
    made,
    ok,
    refused,
)

DISK0_RESERVATION = 11075584000
BRANDS = ["kvm", "joyent", "joyent-minimal", "lx"]


def create_brand(backend: Backend, brand: str, **more: Any) -> tuple[Vm, Result]:
    vm = Vm(backend)
    payload: dict[str, Any] = {"uuid": UUID, "brand": brand, "autoboot": False, "ram": 512, **more}
    if brand == "kvm":
        payload["disks"] = [{**data_disk(100), "boot": True}]
    else:
        payload["image_uuid"] = LX_IMAGE if brand == "lx" else ZONE_IMAGE
    if brand == "lx":
        payload["kernel_version"] = "4.10"
    return vm, vm.create(payload)


def figures(vm: Vm) -> tuple[int, int, int, int]:
    """refquota, refreservation, quota and reservation of the VM's dataset."""
    names = ("refquota", "refreservation", "quota", "reservation")
    values = [vm.root_prop(name) for name in names]
    return values[0], values[1], values[2], values[3]


@pytest.mark.zfs_decides
def test_q01_inflexible(backend: Backend) -> None:
    vm = made(backend, quota=1)
    found = vm.get()
    assert found["quota"] == 1
    assert "flexible_disk_size" not in found
    assert vm.prop(vm.volume(0), "refreservation") == DISK0_RESERVATION
    assert figures(vm) == (GIB, GIB - MIB, 12149325824, 12149325824)


@pytest.mark.zfs_decides
def test_q02_flexible(backend: Backend) -> None:
    vm = made(backend, quota=1, flexible_disk_size=15360)
    assert vm.get()["flexible_disk_size"] == 15360
    assert figures(vm) == (GIB, GIB - MIB, 17518034944, 17518034944)


@pytest.mark.zfs_decides
def test_q03_larger_quota(backend: Backend) -> None:
    vm = made(backend, quota=10)
    assert vm.get()["quota"] == 10
    assert figures(vm) == (10 * GIB, 10 * GIB - MIB, 21813002240, 21813002240)


@pytest.mark.zfs_decides
@pytest.mark.parametrize(("quota", "flexible"), [(1, None), (1, 15360), (10, None)])
def test_q04_quota_doubled_and_back(backend: Backend, quota: int, flexible: int | None) -> None:
    flex: dict[str, Any] = {} if flexible is None else {"flexible_disk_size": flexible}
    vm = made(backend, quota=quota, **flex)
    before = figures(vm)
    ok(vm.update(quota=quota * 2))
    assert vm.get()["quota"] == quota * 2
    more = quota * GIB
    assert figures(vm) == (before[0] + more, before[1] + more, before[2] + more, before[3] + more)
    ok(vm.update(quota=quota))
    assert figures(vm) == before


def test_q05_default_quota(backend: Backend) -> None:
    assert made(backend).get()["quota"] == 1


@pytest.mark.parametrize("brand", BRANDS, ids=["Q06", "Q07", "Q08", "Q09"])
def test_q06_to_q09_default_quota_of_other_brands(backend: Backend, brand: str) -> None:
    vm, result = create_brand(backend, brand)
    ok(result)
    assert vm.get()["quota"] == 10


@pytest.mark.parametrize("brand", ["joyent-minimal", "joyent", "kvm", "lx"], ids=["Q10", "Q11", "Q12", "Q13"])
def test_q10_to_q13_other_brands_have_no_flexible_space(backend: Backend, brand: str) -> None:
    vm, result = create_brand(backend, brand, flexible_disk_size=12288)
    ok(result)
    found = vm.get()
    assert "flexible_disk_size" not in found
    assert found["quota"] == 10


def test_q14_quota_none(backend: Backend) -> None:
    _vm, result = create_brand(backend, "joyent-minimal", quota="none")
    refused(result, "Invalid value for quota: null:number")


@pytest.mark.parametrize("quota", [0, 1024, 1048576])
def test_q15_quota_of_other_brands_follows(backend: Backend, quota: int) -> None:
    vm, result = create_brand(backend, "joyent-minimal", quota=quota)
    ok(result)
    assert vm.root_prop("quota") == quota * GIB
    for size in (quota * 2, quota):
        ok(vm.update(quota=size))
        assert (vm.get()["quota"], vm.root_prop("quota")) == (size, size * GIB)


@pytest.mark.zfs_decides
def test_q16_flexible_space_of_a_running_vm(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=10240)
    ok(vm.start())
    ok(vm.update(flexible_disk_size=11264))
    assert vm.get()["flexible_disk_size"] == 11264
    assert vm.drift() == (0, 0)


def test_q17_same_flexible_space(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=15360)
    ok(vm.zfs("set", "quota=20G", "reservation=20G", vm.root))
    ok(vm.update(flexible_disk_size=15360))
    assert vm.root_prop("quota") == 20 * GIB


@pytest.mark.zfs_decides
def test_q18_more_than_any_pool_has(backend: Backend) -> None:
    vm = Vm(backend)
    result = vm.create(base(flexible_disk_size=10 * 2**40))
    assert result.rc == 1
    assert not vm.exists()
    assert not vm.dataset_exists(vm.root)


def test_q19_failed_kvm_leaves_nothing(backend: Backend) -> None:
    vm = Vm(backend)
    huge = 10 * 2**40
    disks = [{**data_disk(100), "boot": True}, data_disk(huge, refreservation=huge)]
    result = vm.create({"uuid": UUID, "brand": "kvm", "autoboot": False, "ram": 512, "disks": disks})
    assert result.rc == 1
    assert not any(vm.dataset_exists(f"{vm.root}{suffix}") for suffix in ("", "-disk0", "-disk1"))


@pytest.mark.zfs_decides
def test_q20_removal_leaves_the_quota(backend: Backend) -> None:
    vm = made(backend, data_disk(1024), flexible_disk_size=15360)
    before = figures(vm)
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert figures(vm) == before
    assert vm.drift() == (35651584, 35651584)


@pytest.mark.zfs_decides
def test_q21_free_space(backend: Backend) -> None:
    assert made(backend, data_disk(2048), flexible_disk_size=20480).get()["free_space"] == 8192


def test_q22_cdrom_hides_free_space(backend: Backend) -> None:
    vm = made(backend, data_disk(2048), flexible_disk_size=20480)
    ok(vm.update(add_disks=[{"path": "/isos/x.iso", "model": "ahci", "media": "cdrom", "boot": False}]))
    assert "free_space" not in vm.get()


def test_q23_no_flexible_space_no_free_space(backend: Backend) -> None:
    assert "free_space" not in made(backend).get()
