# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group P: PCI slots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.support import UUID, Backend, Vm, base, boot_disk, data_disk, made, ok, refused

ISO = {"path": "/isos/install.iso", "model": "ahci", "media": "cdrom", "boot": False}


def slots_of(vm: Vm) -> dict[str, str]:
    return {disk["path"].rpartition("/")[2]: disk["pci_slot"] for disk in vm.disks()}


def test_p01_two_disks(backend: Backend) -> None:
    assert slots_of(made(backend, data_disk(512))) == {"disk0": "0:4:0", "disk1": "0:4:1"}


def test_p02_cdrom(backend: Backend) -> None:
    vm = made(backend, ISO)
    assert slots_of(vm) == {"disk0": "0:4:0", "install.iso": "0:3:0"}
    cdrom = next(disk for disk in vm.disks() if disk["path"] == ISO["path"])
    assert (cdrom["media"], cdrom["model"], cdrom["missing"]) == ("cdrom", "ahci", True)
    assert not {"size", "zfs_filesystem"} & set(cdrom)


def test_p03_eight_disks(backend: Backend) -> None:
    vm = made(backend, *[data_disk(256) for _n in range(7)])
    assert slots_of(vm) == {f"disk{index}": f"0:4:{index}" for index in range(8)}


def test_p04_slots_are_sticky(backend: Backend) -> None:
    vm = made(backend, *[data_disk(256, pci_slot=f"0:4:{function}") for function in (5, 6, 7)])
    expected = {"disk0": "0:4:0", "disk1": "0:4:5", "disk2": "0:4:6", "disk3": "0:4:7"}
    assert slots_of(vm) == expected
    ok(vm.start())
    ok(vm.vmadm("reboot", vm.uuid))
    assert slots_of(vm) == expected


def test_p05_short_forms_are_kept_as_given(backend: Backend) -> None:
    vm = made(backend, data_disk(256, pci_slot="4:1"), data_disk(256, pci_slot="5"), flexible_disk_size=20480)
    assert slots_of(vm) == {"disk0": "0:4:0", "disk1": "4:1", "disk2": "5"}
    refused(vm.update(add_disks=[data_disk(16, pci_slot="0:5:0")]), 'VM has multiple disks in pci_slot "0:5:0"')
    refused(vm.update(add_disks=[data_disk(16, pci_slot="0:4:1")]), 'VM has multiple disks in pci_slot "0:4:1"')


def test_p06_lowest_hole(backend: Backend) -> None:
    vm = made(backend, data_disk(512, pci_slot="0:4:2"), flexible_disk_size=13312)
    ok(vm.update(add_disks=[data_disk(512)]))
    assert slots_of(vm) == {"disk0": "0:4:0", "disk1": "0:4:2", "disk2": "0:4:1"}


def test_p07_legacy_positions_at_start(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(backend.admin("vm-make-legacy", vm.uuid, "slots"))
    assert all("pci_slot" not in disk for disk in vm.disks())
    ok(vm.start())
    assert slots_of(vm) == {"disk0": "0:4:0", "disk1": "0:5:0"}


def test_p08_collision_at_create(backend: Backend) -> None:
    vm = Vm(backend)
    payload = {**base(), "disks": [boot_disk(pci_slot="0:4:0"), data_disk(512, pci_slot="0:4:0")]}
    result = refused(vm.create(payload), 'VM has multiple disks in pci_slot "0:4:0": "undefined" and "undefined\n')
    assert result.err.startswith("VM has multiple disks")
    assert not vm.exists()


def test_p09_two_boot_disks(backend: Backend) -> None:
    vm = Vm(backend)
    result = vm.create(base(data_disk(512, boot=True)))
    assert refused(result, "multiple boot disks:").err.startswith("multiple boot disks:")
    assert not vm.exists()


def test_p10_collision_at_update(backend: Backend) -> None:
    vm = made(backend, flexible_disk_size=13312)
    result = refused(vm.update(add_disks=[data_disk(512, pci_slot="0:4:0")]), "VM has multiple disks")
    assert result.err == f'VM has multiple disks in pci_slot "0:4:0": "{vm.path(0)}" and "undefined\n'
    assert len(vm.disks()) == 1


RESERVED = ["0:0:0", "0:0:1", "0:6:0", "0:6:1", "0:30:0", "0:30:1", "0:31:0", "0:31:1"]


@pytest.mark.parametrize("slot", RESERVED, ids=[f"P{number}" for number in range(11, 19)])
def test_p11_to_p18_reserved_devices(backend: Backend, slot: str) -> None:
    vm = Vm(backend)
    device = slot.split(":")[1]
    text = f'pci_slot "{slot}" invalid: PCI device {device} is reserved'
    refused(vm.create({**base(), "disks": [boot_disk(pci_slot=slot)]}), text)
    assert not vm.exists()


MALFORMED = ["foo", "4:0:0:0", "256:0:0", "-1:0:0", "4:32:0", "4:0:8"]


def validated(backend: Backend, **more: Any) -> dict[str, list[str]]:
    result = backend.run(["vmadm", "validate", "create"], json.dumps(base(**more)))
    assert result.rc in (0, 1)
    found: dict[str, list[str]] = json.loads(result.err) if result.rc else {}
    return found


@pytest.mark.parametrize("slot", MALFORMED, ids=[f"P{number}" for number in range(19, 25)])
def test_p19_to_p24_malformed_slots(backend: Backend, slot: str) -> None:
    device = {"path": "/devices/pci@0,0", "pci_slot": slot, "model": "passthru"}
    assert "pci_devices.0.pci_slot" in validated(backend, pci_devices=[device])["bad_values"]
    vm = Vm(backend)
    refused(vm.create(base(data_disk(64, pci_slot=slot))), f'pci_slot "{slot}" is not valid')


def test_p25_pci_device_path(backend: Backend) -> None:
    found = validated(backend, pci_devices=[{"path": "/dev/pci", "pci_slot": "7:0:0"}])
    assert found["bad_values"] == ["pci_devices.0.path"]


def test_p26_pci_device_model(backend: Backend) -> None:
    found = validated(backend, pci_devices=[{"path": "/devices/x", "pci_slot": "7:0:0", "model": "passover"}])
    assert "pci_devices.0.model" in found["bad_values"]


@pytest.mark.parametrize("key", ["path", "pci_slot"], ids=["P27", "P28"])
def test_p27_p28_pci_device_keys_missing(backend: Backend, key: str) -> None:
    device = {"path": "/devices/x", "pci_slot": "7:0:0"}
    del device[key]
    assert validated(backend, pci_devices=[device])["missing_properties"] == [f"pci_devices.0.{key}"]


def test_p29_nine_disks(backend: Backend) -> None:
    vm = Vm(backend)
    refused(vm.create(base(*[data_disk(16) for _n in range(8)])), "VM has more than 8 disk devices on PCI device 4")
    assert not vm.exists()


def test_p30_ninth_disk_elsewhere(backend: Backend) -> None:
    vm = made(backend, *[data_disk(16) for _n in range(7)], flexible_disk_size=20480)
    refused(vm.update(add_disks=[data_disk(16)]), "VM has more than 8 undefined devices on PCI device 4")
    ok(vm.update(add_disks=[data_disk(16, pci_slot="5:0")]))
    assert slots_of(vm)["disk8"] == "5:0"


@pytest.mark.zfs_decides
def test_p31_replaced_in_one_update_and_in_two(backend: Backend) -> None:
    vm = made(backend, data_disk(512), flexible_disk_size=13312)
    ok(vm.update(remove_disks=[vm.path(1)], add_disks=[data_disk(256)]))
    assert slots_of(vm) == {"disk0": "0:4:0", "disk2": "0:4:2"}
    ok(vm.update(add_disks=[data_disk(128)]))
    assert slots_of(vm) == {"disk0": "0:4:0", "disk1": "0:4:1", "disk2": "0:4:2"}


def test_p32_changed_slot_is_checked_at_start(backend: Backend) -> None:
    vm = made(backend, data_disk(512))
    ok(vm.update(update_disks=[{"path": vm.path(1), "pci_slot": "0:6:0"}]))
    assert slots_of(vm)["disk1"] == "0:6:0"
    text = f'Unable to start VM {UUID}: pci_slot "0:6:0" invalid: PCI device 6 is reserved'
    refused(vm.start(), text)
    assert vm.get()["state"] == "stopped"
