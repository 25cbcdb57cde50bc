# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups Z-0, Z-a, Z-b, Z-c: volumes that are renamed out of a VM and into one, and what vminfod sees of it."""

from __future__ import annotations

import pytest

from tests.conformance.support import (
    DISK_UUID,
    MIB,
    OTHER_UUID,
    PARKED,
    POOL,
    SMALL_IMAGE,
    UUID,
    Backend,
    Result,
    Vm,
    attach,
    base,
    boot_disk,
    data_disk,
    detached,
    digest,
    made,
    ok,
    overhead,
    park,
    raise_quota,
    refused,
    vm_with,
    write,
)

pytestmark = pytest.mark.zfs_decides
TIMEOUT = f'first of 1 error: vminfod watchForChanges "VM.js update ({UUID})" timeout exceeded'


# -- 0: the cache


def test_z01_renamed_in_is_unseen_until_an_event(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    park(vm)
    assert vm.disk(1)["missing"] is True
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.root))
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    assert vm.disk(1)["missing"] is True
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    assert vm.disk(1)["size"] == 64


def test_z02_an_event_on_the_parent_will_do(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    park(vm)
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    assert "size" not in vm.disk(1)
    ok(vm.zfs("set", "flexdisk:x=y", vm.root))
    assert vm.disk(1)["size"] == 64


def test_z03_the_refresh_after_five_minutes_will_do(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    park(vm)
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    assert "size" not in vm.disk(1)
    backend.advance(300)
    assert vm.disk(1)["size"] == 64


def test_z04_guest_writes_after_a_snapshot_are_unseen(backend: Backend) -> None:
    vm = vm_with(backend, 160, flexible=512)
    ok(write(vm, vm.volume(0), 0, 100, "old"))
    ok(vm.snapshot("create", "s1"))
    before = vm.get()["free_space"]
    ok(write(vm, vm.volume(0), 0, 100, "new"))
    held = vm.prop(vm.volume(0), "usedbysnapshots")
    assert held >= 100 * MIB
    assert vm.get()["free_space"] == before
    ok(vm.zfs("set", "flexdisk:x=y", vm.volume(0)))
    assert vm.get()["free_space"] == (352 * MIB - held) // MIB


def test_z05_free_space_after_snapshot_deletion_is_too_low(backend: Backend) -> None:
    vm = vm_with(backend, 160, flexible=512)
    ok(write(vm, vm.volume(0), 0, 100, "old"))
    ok(vm.snapshot("create", "s1"))
    ok(write(vm, vm.volume(0), 0, 100, "new"))
    ok(vm.zfs("set", "flexdisk:x=y", vm.volume(0)))
    low = vm.get()["free_space"]
    ok(vm.snapshot("delete", "s1"))
    assert vm.prop(vm.volume(0), "usedbysnapshots") == 0
    assert vm.get()["free_space"] == low < 352


# -- a: detach


def test_za1_renamed_away_is_missing(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    before = vm.disk(1)
    park(vm)
    found = vm.disk(1)
    assert found["missing"] is True
    assert not {"size", "refreservation", "zfs_filesystem", "zpool"} & set(found)
    assert all(found[key] == before[key] for key in ("uuid", "pci_slot", "model"))
    assert "free_space" not in vm.get()


def test_za2_removal_after_rename_leaves_the_volume(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(write(vm, vm.volume(1), 0, 8, "data"))
    content = digest(vm, vm.volume(1))
    park(vm)
    since = backend.now()
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert backend.now() - since < 60
    assert digest(vm, PARKED) == content
    assert len(vm.disks()) == 1


def test_za3_removal_with_an_addition(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    park(vm)
    ok(vm.update(remove_disks=[vm.path(1)], add_disks=[data_disk(32)]))
    assert [disk["path"] for disk in vm.disks()] == [vm.path(0), vm.path(2)]
    assert vm.dataset_exists(PARKED)


def test_za4_what_travels(backend: Backend) -> None:
    vm = Vm(backend)
    small = {"image_uuid": SMALL_IMAGE, "model": "virtio"}
    ok(vm.create({**base(flexible_disk_size=16384), "disks": [boot_disk(), small]}))
    ok(vm.zfs("snapshot", f"{vm.volume(1)}@mine"))
    ok(vm.zfs("hold", "keep", f"{vm.volume(1)}@mine"))
    ok(vm.snapshot("create", "s1"))
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    reserved = vm.prop(vm.volume(1), "refreservation")
    park(vm)
    assert vm.prop(PARKED, "refreservation") == reserved
    assert vm.prop(f"{PARKED}@mine", "userrefs") == 1
    assert vm.dataset_exists(f"{PARKED}@vmsnap-s1")
    values = vm.zfs("get", "-Hpo", "value", "origin,flexdisk:uuid", PARKED).out.split()
    assert values == [f"{POOL}/{SMALL_IMAGE}@final", "x"]


def test_za5_removal_without_rename_destroys(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.zfs("snapshot", f"{vm.volume(1)}@mine"))
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert not vm.dataset_exists(vm.volume(1))


def test_za6_hold_guards_against_removal(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.zfs("snapshot", f"{vm.volume(1)}@mine"))
    ok(vm.zfs("hold", "keep", f"{vm.volume(1)}@mine"))
    result = vm.update(remove_disks=[vm.path(1)])
    assert result.rc == 1
    assert result.err.startswith("first of 1 error: Command failed: cannot destroy snapshot")
    assert vm.disk(1)["size"] == 64
    park(vm)
    assert vm.dataset_exists(f"{PARKED}@mine")


def test_za7_running(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.start())
    park(vm)
    refused(vm.update(remove_disks=[vm.path(1)]), 'updates to disks are only allowed when state is "stopped"')
    ok(vm.stop())
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert vm.dataset_exists(PARKED)


def test_za8_snapshots_of_the_old_vm(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.snapshot("create", "s1"))
    ok(vm.snapshot("create", "s2"))
    park(vm)
    ok(vm.update(remove_disks=[vm.path(1)]))
    ok(vm.snapshot("rollback", "s1"))
    ok(vm.snapshot("delete", "s1"))
    assert vm.get()["snapshots"] == []
    assert vm.dataset_exists(f"{PARKED}@vmsnap-s1")
    assert vm.dataset_exists(f"{PARKED}@vmsnap-s2")


def test_za9_boot_clone_moves_away_and_back(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=16384)
    disk = vm.disk(0)
    ok(write(vm, vm.volume(0), 0, 4, "boot"))
    content = digest(vm, vm.volume(0))
    park(vm, 0)
    ok(vm.update(remove_disks=[vm.path(0)]))
    ok(vm.zfs("rename", PARKED, vm.volume(0)))
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(0)))
    ok(attach(vm, "disk0", 10240, boot=True, uuid=disk["uuid"], pci_slot=disk["pci_slot"]))
    assert digest(vm, vm.volume(0)) == content
    found = vm.disk(0)
    keys = ("uuid", "pci_slot", "boot", "size", "refreservation", "zfs_filesystem")
    assert all(found[key] == disk[key] for key in keys)
    ok(vm.start())


# -- b: attach


def reattach(vm: Vm, name: str = "disk1", **more: object) -> Result:
    extra = overhead(vm, PARKED)
    raise_quota(vm, extra)
    ok(vm.zfs("rename", PARKED, f"{vm.root}/{name}"))
    ok(vm.zfs("set", f"flexdisk:uuid={DISK_UUID}", f"{vm.root}/{name}"))
    return attach(vm, name, **more)


def test_zb1_the_recipe(backend: Backend) -> None:
    vm = detached(backend)
    ok(reattach(vm, uuid=DISK_UUID, pci_slot="0:4:5"))
    disk = vm.disk(1)
    assert (disk["size"], disk["uuid"], disk["pci_slot"], disk["media"]) == (64, DISK_UUID, "0:4:5", "disk")
    assert (disk["refreservation"], disk["block_size"], disk["zfs_filesystem"]) == (68, 8192, vm.volume(1))
    assert "nocreate" not in disk
    assert vm.drift() == (0, 0)


def test_zb2_a_normal_disk_afterwards(backend: Backend) -> None:
    vm = detached(backend)
    ok(reattach(vm))
    disk = vm.disk(1)
    assert disk["pci_slot"] == "0:4:1"
    assert disk["uuid"]
    ok(vm.start())
    ok(vm.vmadm("reboot", vm.uuid))
    ok(vm.stop())
    ok(vm.grow(1, 96))
    ok(vm.grow(1, 80, dangerous_allow_shrink=True))
    ok(vm.update(flexible_disk_size=900))
    ok(vm.snapshot("create", "s1"))
    ok(vm.snapshot("rollback", "s1"))
    ok(vm.stop())
    assert vm.drift() == (0, 0)
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert not vm.dataset_exists(vm.volume(1))


def test_zb3_without_an_event_applied_but_timed_out(backend: Backend) -> None:
    vm = detached(backend)
    raise_quota(vm, overhead(vm, PARKED))
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    since = backend.now()
    refused(attach(vm), TIMEOUT)
    assert backend.now() - since >= 60
    assert vm.disk(1)["missing"] is True
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    assert vm.disk(1)["size"] == 64


def test_zb4_wrong_size(backend: Backend) -> None:
    vm = detached(backend)
    refused(reattach(vm, size=999), TIMEOUT)
    assert vm.disk(1)["size"] == 64


def test_zb5_size_that_is_no_whole_mib(backend: Backend) -> None:
    vm = detached(backend)
    ok(vm.zfs("set", f"volsize={40 * MIB + 16384}", PARKED))
    refused(reattach(vm, size=40), TIMEOUT)
    assert vm.disk(1)["size"] == 40.015625


def test_zb6_no_volume(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    refused(attach(vm), TIMEOUT)
    assert vm.disk(1)["missing"] is True


def test_zb7_size_is_required(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    result = vm.update(add_disks=[{"path": vm.path(1), "nocreate": True, "model": "virtio"}])
    refused(result, "Missing required properties: add_disks.0.size")


def test_zb8_quota_is_left_alone(backend: Backend) -> None:
    vm = detached(backend)
    extra = overhead(vm, PARKED)
    quota = vm.root_prop("quota")
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    ok(attach(vm))
    assert vm.root_prop("quota") == quota
    assert vm.drift() == (-extra, -extra)
    ok(vm.update(flexible_disk_size=900))
    assert vm.drift() == (0, 0)


def test_zb9_rename_in_is_checked_against_the_quota(backend: Backend) -> None:
    vm = detached(backend, 64)
    ok(vm.update(flexible_disk_size=192))
    failed = vm.zfs("rename", PARKED, vm.volume(1))
    assert failed.rc != 0
    assert "out of space" in failed.err
    assert vm.dataset_exists(PARKED)
    ok(reattach(vm))
    assert vm.get()["free_space"] == 0
    assert vm.drift() == (0, 0)


def test_zb10_a_gap_in_the_names(backend: Backend) -> None:
    vm = detached(backend)
    ok(reattach(vm, "disk7"))
    ok(vm.update(add_disks=[data_disk(16)]))
    assert [disk["path"] for disk in vm.disks()] == [vm.path(0), vm.path(1), vm.path(7)]


def test_zb11_another_name_sorts_as_the_first(backend: Backend) -> None:
    vm = detached(backend)
    ok(vm.update(add_disks=[data_disk(16)]))
    ok(reattach(vm, "data1"))
    assert [disk["path"] for disk in vm.disks()][-1] == vm.path(1)
    assert next(disk for disk in vm.disks() if disk["path"] == vm.path("data1"))["size"] == 64


def test_zb12_outside_the_vm(backend: Backend) -> None:
    vm = detached(backend)
    path = f"/dev/zvol/rdsk/{PARKED}"
    disk = {"path": path, "nocreate": True, "size": 64, "model": "virtio"}
    refused(vm.update(add_disks=[disk]), TIMEOUT)
    result = vm.update(update_disks=[{"path": path, "size": 128}])
    refused(result, "failed to identify device to resize")
    ok(vm.vmadm("delete", vm.uuid))
    assert vm.dataset_exists(PARKED)


def test_zb13_sparse_becomes_thick(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    ok(vm.zfs("create", "-s", "-V", "64M", "-o", "volblocksize=8192", vm.volume(1)))
    ok(attach(vm))
    assert vm.disk(1)["refreservation"] == 0
    ok(vm.update(flexible_disk_size=900))
    assert vm.disk(1)["refreservation"] == 68
    assert vm.drift() == (0, 0)


# -- c: from one VM to another


def move(source: Vm, target: Vm, **more: object) -> None:
    raise_quota(target, overhead(source, source.volume(1)))
    ok(source.zfs("rename", source.volume(1), target.volume(1)))
    ok(source.update(remove_disks=[source.path(1)]))
    ok(source.zfs("set", "flexdisk:uuid=x", target.volume(1)))
    ok(attach(target, **more))


def test_zc1_move(backend: Backend) -> None:
    source, target = vm_with(backend, 128, 64), vm_with(backend, 128, uuid=OTHER_UUID)
    ok(write(source, source.volume(1), 0, 16, "moved"))
    content, uuid = digest(source, source.volume(1)), source.disk(1)["uuid"]
    move(source, target, uuid=uuid, pci_slot="0:4:3")
    disk = target.disk(1)
    assert (disk["uuid"], disk["pci_slot"]) == (uuid, "0:4:3")
    assert digest(target, target.volume(1)) == content
    assert target.drift() == (0, 0)


def test_zc2_uuid_is_new_unless_given(backend: Backend) -> None:
    source, target = vm_with(backend, 128, 64), vm_with(backend, 128, uuid=OTHER_UUID)
    uuid = source.disk(1)["uuid"]
    move(source, target)
    assert target.disk(1)["uuid"] != uuid


def test_zc3_foreign_snapshot_blocks_its_name(backend: Backend) -> None:
    source, target = vm_with(backend, 128, 64), vm_with(backend, 128, uuid=OTHER_UUID)
    ok(source.snapshot("create", "s1"))
    move(source, target)
    result = target.snapshot("create", "s1")
    refused(result, "dataset already exists")
    assert "no snapshots were created" in result.err
    assert target.get()["snapshots"] == []


def test_zc4_foreign_snapshot_is_rolled_back_to(backend: Backend) -> None:
    source, target = vm_with(backend, 128, 64), vm_with(backend, 128, uuid=OTHER_UUID)
    ok(write(source, source.volume(1), 0, 16, "old"))
    old = digest(source, source.volume(1))
    ok(source.snapshot("create", "s1"))
    ok(target.snapshot("create", "s1"))
    move(source, target)
    ok(write(target, target.volume(1), 0, 16, "new"))
    ok(target.snapshot("rollback", "s1"))
    assert digest(target, target.volume(1)) == old
    ok(target.snapshot("delete", "s1"))
    assert not target.dataset_exists(f"{target.volume(1)}@vmsnap-s1")


def test_zc5_renamed_snapshot_is_harmless(backend: Backend) -> None:
    source, target = vm_with(backend, 128, 64), vm_with(backend, 128, uuid=OTHER_UUID)
    ok(source.snapshot("create", "s1"))
    ok(target.snapshot("create", "s1"))
    ok(source.zfs("rename", f"{source.volume(1)}@vmsnap-s1", f"{source.volume(1)}@flexdisk-s1"))
    move(source, target)
    ok(write(target, target.volume(1), 0, 16, "new"))
    new = digest(target, target.volume(1))
    ok(target.snapshot("rollback", "s1"))
    assert digest(target, target.volume(1)) == new
