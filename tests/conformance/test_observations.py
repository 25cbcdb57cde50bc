# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups Z-d to Z-j: what vmadm was seen to do over a real ZFS."""

from __future__ import annotations

import json

import pytest

from tests.conformance.support import (
    DISK_UUID,
    GIB,
    MIB,
    OTHER_DISK_UUID,
    OTHER_UUID,
    PARKED,
    POOL,
    Backend,
    Vm,
    attach,
    base,
    data_disk,
    detached,
    digest,
    ok,
    overhead,
    park,
    raise_quota,
    refused,
    vm_with,
    write,
)

pytestmark = pytest.mark.zfs_decides
NO_ROOM = "size is greater than available space"
TOO_LOW = "size is less than current used or reserved space"
OVERHEAD_64 = 4 * MIB


# -- d: drift


def test_zd1_operations_without_drift(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)

    def check(*results: object) -> None:
        assert vm.drift() == (0, 0), results

    check(ok(vm.update(add_disks=[data_disk(32)])))
    check(ok(vm.grow(1, 128)))
    check(ok(vm.grow(1, 96, dangerous_allow_shrink=True)))
    check(ok(vm.start()))
    check(ok(vm.update(flexible_disk_size=1200)), ok(vm.update(flexible_disk_size=1100)))
    check(ok(vm.update(quota=2)), ok(vm.update(quota=1)))
    check(ok(write(vm, vm.volume(0), 0, 50, "x")))
    check(ok(vm.snapshot("create", "s1")))
    check(ok(vm.snapshot("delete", "s1")))
    check(ok(vm.stop()))


def test_zd2_removals_accumulate(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    for cycle in (1, 2, 3):
        ok(vm.update(add_disks=[data_disk(760)]))
        extra = overhead(vm, vm.volume(1))
        ok(vm.update(remove_disks=[vm.path(1)]))
        assert vm.drift() == (cycle * extra, cycle * extra)


def test_zd3_removal_with_flex_change(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(remove_disks=[vm.path(1)], flexible_disk_size=512))
    assert vm.drift() == (0, 0)


def test_zd4_detach(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    park(vm)
    ok(vm.update(remove_disks=[vm.path(1)]))
    assert vm.drift() == (OVERHEAD_64, OVERHEAD_64)


def test_zd5_attach_without_room_for_metadata(backend: Backend) -> None:
    vm = detached(backend)
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    ok(attach(vm))
    assert vm.drift() == (-OVERHEAD_64, -OVERHEAD_64)


def test_zd6_second_of_two_fails(backend: Backend) -> None:
    vm = vm_with(backend, 128, flexible=256)
    refused(vm.update(add_disks=[data_disk(64), data_disk(4096)]), "out of space")
    assert not vm.dataset_exists(vm.volume(1))
    assert vm.drift() == (OVERHEAD_64, OVERHEAD_64)


def test_zd7_custom_refreservation(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    automatic = vm.prop(vm.volume(1), "refreservation")
    ok(vm.update(update_disks=[{"path": vm.path(1), "refreservation": 10}]))
    assert vm.drift() == (automatic - 10 * MIB, automatic - 10 * MIB)


def test_zd8_growth_with_custom_refreservation(backend: Backend) -> None:
    vm = vm_with(backend, 128, 128)
    ok(vm.update(update_disks=[{"path": vm.path(1), "refreservation": 10}]))
    before = vm.root_prop("quota")
    ok(vm.grow(1, 160))
    assert vm.prop(vm.volume(1), "refreservation") == 10 * MIB
    assert vm.root_prop("quota") - before > 118 * MIB


def test_zd9_unmanaged_volume(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    ok(vm.zfs("create", "-o", "volblocksize=8192", "-V", "64M", f"{vm.root}/orphan"))
    assert vm.drift() == (-OVERHEAD_64, -OVERHEAD_64)
    ok(vm.update(flexible_disk_size=900))
    assert vm.drift() == (0, 0)
    assert vm.get()["free_space"] == 900 - 128


def test_zd10_rollback_over_a_resize(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.snapshot("create", "small"))
    ok(vm.grow(1, 160))
    reserved = vm.prop(vm.volume(1), "refreservation")
    ok(vm.snapshot("rollback", "small"))
    assert vm.prop(vm.volume(1), "volsize") == 64 * MIB
    assert vm.prop(vm.volume(1), "refreservation") == reserved
    assert vm.drift() == (-96 * MIB, -96 * MIB)


def test_zd11_failed_lowering(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    quota = vm.root_prop("quota")
    refused(vm.update(flexible_disk_size=100), TOO_LOW)
    assert vm.root_prop("quota") == quota
    assert vm.root_prop("reservation") == quota - 924 * MIB
    assert vm.root_prop("refreservation") == GIB - MIB


def test_zd12_failed_raising(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    quota = vm.root_prop("quota")
    result = refused(vm.update(flexible_disk_size=4000000), NO_ROOM)
    assert result.err.startswith(f"first of 1 error: cannot set property for '{vm.root}'")
    assert vm.root_prop("quota") == quota + (4000000 - 1024) * MIB
    assert vm.root_prop("reservation") == quota
    assert vm.get()["free_space"] == 4000000 - 192
    ok(vm.update(flexible_disk_size=1024))
    assert vm.drift() == (0, 0)


@pytest.mark.parametrize("order", [("quota", "reservation"), ("reservation", "quota")])
def test_zd13_quota_by_hand(backend: Backend, order: tuple[str, str]) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.start())
    for by in (100 * MIB, -100 * MIB):
        size = vm.root_prop("quota") + by
        ok(vm.zfs("set", *[f"{name}={size}" for name in order], f"refreservation={GIB - MIB}", vm.root))
        assert (vm.root_prop("quota"), vm.root_prop("reservation")) == (size, size)
    raise_quota(vm, 50 * MIB)
    ok(vm.stop())
    ok(vm.grow(1, 96))
    assert vm.drift() == (50 * MIB, 50 * MIB)


# -- e: poisoned flexible_disk_size


def poisoned(backend: Backend) -> Vm:
    vm = vm_with(backend, 128, 64, flexible=192)
    result = vm.update(flexible_disk_size=320, update_disks=[{"path": vm.path(1), "size": 128}])
    text = f"first of 1 error: Command failed: cannot set property for '{vm.volume(1)}': {NO_ROOM}"
    assert refused(result, text).err.startswith(text)
    return vm


def test_ze1_raise_and_grow(backend: Backend) -> None:
    vm = poisoned(backend)
    assert vm.get()["flexible_disk_size"] == 320
    assert vm.drift() == (-128 * MIB, -128 * MIB)
    ok(vm.update(flexible_disk_size=320))
    refused(vm.grow(1, 128), NO_ROOM)


def test_ze2_raise_and_add_is_not_poisoned(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, flexible=192)
    result = vm.update(flexible_disk_size=320, add_disks=[data_disk(128)])
    refused(result, f"cannot create '{vm.volume(2)}': out of space")
    assert vm.get()["flexible_disk_size"] == 192
    assert vm.drift() == (0, 0)


def test_ze3_zfs_set_repairs(backend: Backend) -> None:
    vm = poisoned(backend)
    raise_quota(vm, 128 * MIB)
    ok(vm.grow(1, 128))
    assert vm.drift() == (0, 0)


def test_ze4_the_slack(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(flexible_disk_size=191))
    assert vm.get()["free_space"] == -1
    refused(vm.update(flexible_disk_size=190), TOO_LOW)
    ok(vm.update(flexible_disk_size=192))
    assert vm.drift() == (0, 0)


def test_ze5_lowering_with_removal_or_shrink(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, 64, flexible=256)
    ok(vm.update(remove_disks=[vm.path(2)], flexible_disk_size=192))
    assert vm.drift() == (0, 0)
    shrink = {"path": vm.path(1), "size": 32, "dangerous_allow_shrink": True}
    ok(vm.update(update_disks=[shrink], flexible_disk_size=160))
    assert vm.drift() == (0, 0)
    assert vm.get()["free_space"] == 0


@pytest.mark.parametrize("value", [0, None])
def test_ze6_no_flexible_space_any_more(backend: Backend, value: int | None) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(flexible_disk_size=value))
    assert "flexible_disk_size" not in vm.get()
    assert vm.drift() == (0, 0)


# -- f: what remains


def test_zf1_exactly_what_remains(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(add_disks=[data_disk(832)]))
    assert vm.get()["free_space"] == 0
    other = vm_with(backend, 128, 64, uuid=OTHER_UUID)
    ok(other.grow(1, 896))
    assert other.get()["free_space"] == 0
    assert (vm.drift(), other.drift()) == ((0, 0), (0, 0))


def test_zf2_all_at_create(backend: Backend) -> None:
    vm = vm_with(backend, 128, 896)
    assert vm.get()["free_space"] == 0
    assert vm.drift() == (0, 0)


@pytest.mark.parametrize("flexible", [1024, 0])
def test_zf3_one_more_fits_two_do_not(backend: Backend, flexible: int) -> None:
    vm = vm_with(backend, 128, 896, flexible=flexible)
    refused(vm.grow(1, 898), NO_ROOM)
    ok(vm.grow(1, 897))


# -- g: user properties, delete


def test_zg1_user_properties_stay(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.zfs("set", "flexdisk:name=data", vm.volume(1)))
    ok(vm.snapshot("create", "s1"))
    ok(vm.zfs("set", "flexdisk:name=renamed", vm.volume(1)))
    ok(vm.grow(1, 96))
    ok(vm.update(flexible_disk_size=900))
    ok(vm.snapshot("rollback", "s1"))
    value = vm.zfs("get", "-Hpo", "value,source", "flexdisk:name", vm.volume(1)).out.split()
    assert value == ["renamed", "local"]


def test_zg2_delete(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, 64)
    park(vm, 2)
    ok(vm.update(remove_disks=[vm.path(2)]))
    ok(vm.zfs("create", "-V", "16M", f"{vm.root}/orphan"))
    ok(vm.zfs("create", f"{vm.root}/child"))
    ok(vm.snapshot("create", "s1"))
    ok(vm.vmadm("delete", vm.uuid))
    assert not vm.exists()
    assert not vm.dataset_exists(vm.root)
    assert vm.dataset_exists(PARKED)


# -- h: snapshots


def test_zh1_no_room_for_a_snapshot(backend: Backend) -> None:
    vm = vm_with(backend, 32, 160, flexible=340)
    ok(write(vm, vm.volume(1), 0, 160, "full"))
    result = vm.snapshot("create", "s1")
    start = "first of 1 error: Command failed: cannot create snapshot"
    assert refused(result, "out of space").err.startswith(start)
    assert "no snapshots were created" in result.err
    assert vm.get()["snapshots"] == []
    ok(vm.update(flexible_disk_size=357))
    ok(vm.snapshot("create", "s1"))
    assert [snapshot["name"] for snapshot in vm.get()["snapshots"]] == ["s1"]


def test_zh2_rollback_of_a_shrink(backend: Backend) -> None:
    vm = vm_with(backend, 128, 160)
    ok(write(vm, vm.volume(1), 100, 50, "end"))
    content = digest(vm, vm.volume(1))
    ok(vm.snapshot("create", "big"))
    ok(vm.grow(1, 64, dangerous_allow_shrink=True))
    ok(vm.snapshot("rollback", "big"))
    disk = vm.disk(1)
    assert (disk["size"], disk["refreservation"]) == (160, 68)
    assert digest(vm, vm.volume(1)) == content
    assert vm.drift() == (96 * MIB, 96 * MIB)
    ok(vm.zfs("set", "refreservation=auto", vm.volume(1)))
    raise_quota(vm, -vm.drift()[0])
    assert vm.drift() == (0, 0)


def test_zh3_rolled_back_beyond_a_lowered_flex(backend: Backend) -> None:
    vm = vm_with(backend, 64, 160, flexible=300)
    ok(vm.snapshot("create", "big"))
    ok(vm.grow(1, 64, dangerous_allow_shrink=True))
    ok(vm.update(flexible_disk_size=200))
    ok(vm.snapshot("rollback", "big"))
    ok(vm.stop())
    assert vm.get()["free_space"] == -24
    failed = vm.zfs("set", "refreservation=auto", vm.volume(1))
    assert failed.rc != 0
    assert NO_ROOM in failed.err
    ok(vm.update(flexible_disk_size=300))
    assert vm.drift() == (0, 0)
    assert vm.disk(1)["refreservation"] > 160


def test_zh4_rollback_starts_the_vm(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(set_tags={"role": "old"}))
    ok(vm.snapshot("create", "s1"))
    ok(vm.update(set_tags={"role": "new"}, flexible_disk_size=1100))
    assert vm.get()["state"] == "stopped"
    ok(vm.snapshot("rollback", "s1"))
    found = vm.get()
    assert (found["state"], found["autoboot"], found["tags"]) == ("running", True, {"role": "old"})
    assert found["flexible_disk_size"] == 1100


def test_zh5_lowering_under_snapshots(backend: Backend) -> None:
    vm = vm_with(backend, 160, flexible=512)
    ok(write(vm, vm.volume(0), 0, 160, "full"))
    ok(vm.snapshot("create", "s1"))
    refused(vm.update(flexible_disk_size=300), TOO_LOW)


# -- i: orphans


def orphan(vm: Vm, index: int) -> None:
    ok(vm.zfs("create", "-V", "16M", vm.volume(index)))
    ok(write(vm, vm.volume(index), 0, 4, "precious"))


def test_zi1_orphan_is_destroyed(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    orphan(vm, 1)
    refused(vm.update(add_disks=[data_disk(32)]), f"cannot create '{vm.volume(1)}': dataset already exists")
    assert not vm.dataset_exists(vm.volume(1))


def test_zi2_second_of_two_collides(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    orphan(vm, 2)
    refused(vm.update(add_disks=[data_disk(64), data_disk(64)]), "dataset already exists")
    assert not vm.dataset_exists(vm.volume(1))
    assert not vm.dataset_exists(vm.volume(2))
    assert vm.drift() == (OVERHEAD_64, OVERHEAD_64)


def test_zi3_orphan_of_another_name(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    orphan(vm, 5)
    ok(vm.update(add_disks=[data_disk(32)]))
    assert vm.dataset_exists(vm.volume(5))


def test_zi4_held_orphan_survives(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    orphan(vm, 1)
    content = digest(vm, vm.volume(1))
    ok(vm.zfs("snapshot", f"{vm.volume(1)}@keep"))
    ok(vm.zfs("hold", "keep", f"{vm.volume(1)}@keep"))
    refused(vm.update(add_disks=[data_disk(32)]), "dataset already exists")
    assert digest(vm, vm.volume(1)) == content


# -- j: further observations


def test_zj1_attached_disk_is_destroyed_by_a_new_one(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    orphan(vm, 2)
    disk = {"path": vm.path(2), "nocreate": True, "size": 16, "model": "virtio"}
    refused(vm.update(add_disks=[disk, data_disk(16)]), f"cannot create '{vm.volume(2)}': dataset already exists")
    assert not vm.dataset_exists(vm.volume(2))


def test_zj2_attached_disk_at_a_far_index_survives(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    orphan(vm, 7)
    disk = {"path": vm.path(7), "nocreate": True, "size": 16, "model": "virtio"}
    ok(vm.update(add_disks=[disk, data_disk(16)]))
    assert [disk["path"] for disk in vm.disks()] == [vm.path(index) for index in (0, 1, 2, 7)]


def test_zj3_create_and_attach(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    raise_quota(vm, OVERHEAD_64)
    ok(vm.zfs("create", "-o", f"flexdisk:uuid={DISK_UUID}", "-o", "flexdisk:name=data", "-o", "volblocksize=8192",
              "-V", "64M", vm.volume(1)))  # fmt: skip
    text = '"floppy" is not a valid disk model for bhyve brand. Valid are: virtio,ahci,nvme'
    refused(attach(vm, model="floppy"), text)
    refused(attach(vm, pci_slot="0:4:0"), "VM has multiple disks in pci_slot")
    assert vm.dataset_exists(vm.volume(1))
    ok(attach(vm, uuid=DISK_UUID))
    assert vm.drift() == (0, 0)


def test_zj4_empty_disks_fit_in_the_slack(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, flexible=192)
    ok(vm.snapshot("create", "s1"))
    refused(vm.grow(1, 65), NO_ROOM)


def test_zj5_rename_out_of_a_full_pool(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, flexible=192)
    _fill(vm)
    ok(vm.zfs("create", "-o", "mountpoint=none", "-o", "canmount=off", f"{POOL}/flexdisk"))
    failed = vm.zfs("rename", vm.volume(1), PARKED)
    assert "out of space" in failed.err
    used = vm.prop(vm.volume(1), "used")
    ok(vm.zfs("set", f"reservation={vm.root_prop('reservation') - used}", vm.root))
    ok(vm.zfs("rename", vm.volume(1), PARKED))
    ok(vm.update(remove_disks=[vm.path(1)]))


def _fill(vm: Vm) -> None:
    """Reserve what the pool has left, but for a little."""
    ok(vm.zfs("create", "-o", "mountpoint=none", f"{POOL}/filler"))
    left = vm.prop(POOL, "available")
    ok(vm.zfs("set", f"reservation={left - 2 * MIB}", f"{POOL}/filler"))


def test_zj6_attach_in_a_full_pool(backend: Backend) -> None:
    vm = detached(backend, 64)
    _fill(vm)
    size = vm.root_prop("quota") + 64 * MIB + OVERHEAD_64
    failed = vm.zfs("set", f"quota={size}", f"reservation={size}", vm.root)
    assert NO_ROOM in failed.err
    assert vm.root_prop("quota") == size
    ok(vm.zfs("set", f"quota={size}", vm.root))
    ok(vm.zfs("rename", PARKED, vm.volume(1)))
    ok(vm.zfs("set", "flexdisk:uuid=x", vm.volume(1)))
    ok(attach(vm))


def test_zj7_sparse_volume_under_the_plain_formula(backend: Backend) -> None:
    vm = Vm(backend)
    ok(vm.create({**base(flexible_disk_size=300), "disks": [{**data_disk(200), "boot": True}]}))
    ok(vm.zfs("set", "refreservation=none", vm.volume(0)))
    plain = GIB + 300 * MIB - 200 * MIB
    ok(vm.zfs("set", f"reservation={plain}", f"quota={plain}", vm.root))
    assert write(vm, vm.volume(0), 0, 90, "x").rc == 0
    assert write(vm, vm.volume(0), 90, 110, "x").rc == 1


def test_zj8_inflexible_replacement(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, flexible=0)
    refused(vm.update(add_disks=[data_disk(64)]), "out of space")
    ok(vm.update(remove_disks=[vm.path(1)]))
    ok(vm.update(add_disks=[data_disk(64)]))


def test_zj9_slots_in_one_update(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64, 64)
    disk = data_disk(16, pci_slot="0:4:2")
    refused(vm.update(remove_disks=[vm.path(2)], add_disks=[disk]), "VM has multiple disks in pci_slot")
    swap = [{"path": vm.path(1), "pci_slot": "0:4:2"}, {"path": vm.path(2), "pci_slot": "0:4:1"}]
    ok(vm.update(update_disks=swap))
    assert [disk["pci_slot"] for disk in vm.disks()] == ["0:4:0", "0:4:2", "0:4:1"]
    ok(vm.start())


def test_zj10_snapshot_names_of_parked_disks(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    for name in ("s1", "s2"):
        ok(vm.snapshot("create", name))
    volume = vm.volume(1)
    ok(vm.zfs("rename", f"{volume}@vmsnap-s1", f"{volume}@flexdisk-parked"))
    failed = vm.zfs("rename", f"{volume}@vmsnap-s2", f"{volume}@flexdisk-parked")
    assert "dataset already exists" in failed.err


def test_zj11_refquota_zero(backend: Backend) -> None:
    vm = vm_with(backend, 128)
    assert vm.zfs("set", "refquota=0", vm.root).rc != 0


def test_zj_lookup_shows_the_same(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    ok(vm.update(update_disks=[{"path": vm.path(1), "uuid": OTHER_DISK_UUID}]))
    assert json.loads(ok(vm.vmadm("lookup", "-j")).out)[0]["disks"] == vm.disks()


def test_zj12_one_snapshot_pins_what_is_written(backend: Backend) -> None:
    vm = vm_with(backend, 64, 128, flexible=320)
    ok(write(vm, vm.volume(1), 0, 61, "x"))
    ok(vm.snapshot("create", "s1"))
    assert vm.get()["free_space"] == 128
    refused(vm.grow(0, 64 + 80), NO_ROOM)
    ok(vm.grow(0, 64 + 60))


def test_zj13_recursive_snapshot_pins_the_root(backend: Backend) -> None:
    vm = vm_with(backend, 128, flexible=255)
    ok(write(vm, vm.root, 0, 40, "x"))
    ok(vm.snapshot("create", "s1"))
    refused(vm.grow(0, 128 + 100), NO_ROOM)
    ok(vm.grow(0, 128 + 80))


def test_zj14_rename_across_encryption_roots(backend: Backend) -> None:
    vm = vm_with(backend, 128, 64)
    options = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "mountpoint=none"]
    result = backend.run(["zfs", "create", *options, f"{POOL}/flexdisk"], "secret phrase\nsecret phrase\n")
    if result.rc != 0:
        pytest.skip("no encryption here: " + result.err)
    ok(vm.zfs("create", "-V", "16M", PARKED))
    failed = vm.zfs("rename", PARKED, vm.volume(2))
    assert "cannot move encrypted child outside of its encryption root" in failed.err
    assert vm.dataset_exists(PARKED)
