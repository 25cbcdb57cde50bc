# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group M: update of disks, and how a VM's disks are read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.support import (
    DISK_UUID,
    MIB,
    POOL,
    UUID,
    Backend,
    Result,
    Vm,
    base,
    boot_disk,
    data_disk,
    made,
    ok,
    refused,
)

TIMEOUT = f'first of 1 error: vminfod watchForChanges "VM.js update ({UUID})" timeout exceeded'


def timed_out(vm: Vm, result: Result, since: float) -> None:
    refused(result, TIMEOUT)
    assert vm.backend.now() - since >= 60


def kvm(backend: Backend, *disks: dict[str, Any]) -> Vm:
    vm = Vm(backend)
    ok(vm.create({"uuid": UUID, "brand": "kvm", "autoboot": False, "ram": 512, "disks": list(disks)}))
    return vm


def test_m01_model_from_first_disk(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=13312)
    ok(vm.update(add_disks=[{"size": 512}]))
    assert [disk["model"] for disk in vm.disks()] == ["virtio", "virtio"]
    assert "media" not in vm.disk(1)


@pytest.mark.zfs_decides
def test_m02_compression_while_running(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.start())
    for value in ("gzip", "off"):
        ok(vm.update(update_disks=[{"path": vm.path(index), "compression": value} for index in (0, 1)]))
        assert [disk["compression"] for disk in vm.disks()] == [value, value]


def test_m03_no_removal_while_running(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.start())
    text = 'updates to disks are only allowed when state is "stopped", currently: running (running)'
    refused(vm.update(remove_disks=[vm.path(0), vm.path(1)]), text)
    assert len(vm.disks()) == 2


@pytest.mark.zfs_decides
def test_m04_all_disks_removed(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.start())
    ok(vm.stop("-F"))
    ok(vm.update(remove_disks=[vm.path(0), vm.path(1)]))
    assert vm.disks() == []
    assert "dataset does not exist" in vm.zfs("list", vm.volume(0)).err


@pytest.mark.zfs_decides
def test_m05_refreservation(backend: Backend) -> None:
    vm = made(backend, data_disk(512, refreservation=10))
    for sizes in ((5120, 256), (7680, 384)):
        changes = [{"path": vm.path(index), "refreservation": size} for index, size in enumerate(sizes)]
        ok(vm.update(update_disks=changes))
        assert [disk["refreservation"] for disk in vm.disks()] == list(sizes)


def test_m06_kvm_refreservation(backend: Backend) -> None:
    vm = kvm(backend, {**data_disk(100, refreservation=100), "boot": True}, data_disk(100, refreservation=10))
    assert [disk["refreservation"] for disk in vm.disks()] == [100, 10]


def test_m07_kvm_no_refreservation(backend: Backend) -> None:
    vm = kvm(backend, {**data_disk(100, refreservation=0), "boot": True}, data_disk(100, refreservation=0))
    assert [disk["refreservation"] for disk in vm.disks()] == [0, 0]


def test_m08_kvm_default_refreservation(backend: Backend) -> None:
    vm = kvm(backend, {**data_disk(100), "boot": True}, data_disk(100))
    assert [disk["refreservation"] for disk in vm.disks()] == [106, 106]


@pytest.mark.zfs_decides
def test_m09_bhyve_refreservation_at_create_is_undone(backend: Backend) -> None:
    vm = made(backend, data_disk(512, refreservation=10))
    assert vm.disk(1)["refreservation"] == 530


def test_m10_kvm_cdroms(backend: Backend) -> None:
    isos = [{"path": path, "model": "ide", "media": "cdrom", "boot": False} for path in ("/foo.iso", "/bar.iso")]
    vm = kvm(backend, {**data_disk(100), "boot": True}, *isos)
    assert [disk["path"] for disk in vm.disks()] == [f"/dev/zvol/rdsk/{vm.root}-disk0", "/foo.iso", "/bar.iso"]


LIVE_REFUSED = {
    "uuid": DISK_UUID,
    "model": "nvme",
    "pci_slot": "0:4:7",
    "boot": True,
    "notrim": True,
    "guest_block_size": "4096",
}


@pytest.mark.parametrize("key", sorted(LIVE_REFUSED))
def test_m11_not_while_running(backend: Backend, key: str) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.start())
    before = vm.disk(1)
    result = vm.update(update_disks=[{"path": vm.path(1), key: LIVE_REFUSED[key]}])
    refused(result, 'at least one specified update to disks is only allowed when state is "stopped"')
    assert vm.disk(1) == before


def test_m12_path_needs_nocreate(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=13312)
    result = vm.update(add_disks=[data_disk(64, path=vm.path(1))])
    refused(result, "you cannot specify a path for a disk unless you set nocreate=true")


def test_m13_removal_of_an_unknown_path(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    since = backend.now()
    timed_out(vm, vm.update(remove_disks=[vm.path(5)], alias="changed"), since)
    found = vm.get()
    assert (found["alias"], len(found["disks"])) == ("changed", 2)


def test_m14_removal_takes_paths(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    refused(vm.update(remove_disks=[{"path": vm.path(1)}]), "Invalid value(s) for: remove_disks")
    assert len(vm.disks()) == 2


def test_m15_media_is_never_applied(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    since = backend.now()
    timed_out(vm, vm.update(update_disks=[{"path": vm.path(1), "media": "cdrom"}]), since)
    assert vm.disk(1)["media"] == "disk"


@pytest.mark.parametrize("key", ["block_size", "image_uuid", "image_size", "zpool", "bootindex"])
def test_m16_not_updatable_is_dropped(backend: Backend, key: str) -> None:
    vm = made(backend, data_disk(512))
    before = vm.disk(1)
    value = {"block_size": 4096, "image_uuid": DISK_UUID, "image_size": 5, "zpool": POOL, "bootindex": 1}[key]
    ok(vm.update(update_disks=[{"path": vm.path(1), key: value}]))
    assert vm.disk(1) == before


def test_m17_guest_block_size_as_number_aborts(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    result = vm.update(update_disks=[{"path": vm.path(1), "guest_block_size": 4096}])
    refused(result, "str.split is not a function", rc=134)
    ok(vm.update(update_disks=[{"path": vm.path(1), "guest_block_size": "512/4096"}]))
    assert vm.disk(1)["guest_block_size"] == "512/4096"
    refused(vm.update(update_disks=[{"path": vm.path(1), "guest_block_size": "500"}]), "disks.*.guest_block_size")


def test_m18_second_boot_disk_shows_at_start(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.update(update_disks=[{"path": vm.path(1), "boot": True}]))
    refused(vm.start(), f"Unable to start VM {UUID}: multiple boot disks:")


@pytest.mark.zfs_decides
def test_m19_second_of_two_too_big(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=10752)
    result = vm.update(add_disks=[data_disk(256), data_disk(4096)])
    refused(result, f"cannot create '{vm.volume(2)}': out of space")
    assert not vm.dataset_exists(vm.volume(1))
    assert len(vm.disks()) == 1


def test_m21_disks_are_sorted(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    # An update of disk0 alone writes it behind disk1 into the zone's configuration.
    ok(vm.update(update_disks=[{"path": vm.path(0), "notrim": True}]))
    assert [disk["path"] for disk in vm.disks()] == [vm.path(0), vm.path(1)]


@pytest.mark.zfs_decides
def test_m22_figures_of_a_volume(backend: Backend) -> None:
    vm = made(backend, data_disk(512, block_size=16384))
    disk = vm.disk(1)
    assert (disk["zfs_filesystem"], disk["size"], disk["block_size"]) == (vm.volume(1), 512, 16384)
    assert disk["path"] == "/dev/zvol/rdsk/" + vm.volume(1)
    ok(vm.zfs("set", f"volsize={64 * MIB + 16384}", vm.volume(1)))
    assert vm.disk(1)["size"] == 64.015625


def test_m_disks_and_add_disks(backend: Backend) -> None:
    vm = Vm(backend)
    result = vm.create({**base(), "add_disks": [boot_disk()]})
    refused(result, 'Cannot specify both "disks" and "add_disks"')
    vm = made(backend)
    ok(vm.update(disks=[data_disk(16)]))
    assert len(vm.disks()) == 1
