# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group U: uuids of disks."""

from __future__ import annotations

import re

import pytest

from tests.conformance.support import DISK_UUID, OTHER_DISK_UUID, Backend, Vm, data_disk, made, ok, refused


def two_disks(backend: Backend) -> Vm:
    return made(backend, data_disk(100), flexible_disk_size=15360)


def uuids(vm: Vm) -> list[str]:
    return [disk["uuid"] for disk in vm.disks()]


def test_u01_given_at_create(backend: Backend) -> None:
    found = uuids(two_disks(backend))
    assert len(set(found)) == 2
    assert all(re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", uuid) for uuid in found)


def test_u02_given_at_add(backend: Backend) -> None:
    vm = two_disks(backend)
    ok(vm.update(add_disks=[data_disk(10)]))
    assert len(set(uuids(vm))) == 3


def test_u03_explicit(backend: Backend) -> None:
    vm = two_disks(backend)
    ok(vm.update(add_disks=[data_disk(10, uuid=DISK_UUID)]))
    assert vm.disk(2)["uuid"] == DISK_UUID


def test_u04_two_explicit(backend: Backend) -> None:
    vm = two_disks(backend)
    ok(vm.update(add_disks=[data_disk(10, uuid=DISK_UUID), data_disk(10, uuid=OTHER_DISK_UUID)]))
    assert uuids(vm)[2:] == [DISK_UUID, OTHER_DISK_UUID]


def test_u05_equal_in_payload(backend: Backend) -> None:
    vm = two_disks(backend)
    result = vm.update(add_disks=[data_disk(10, uuid=DISK_UUID), data_disk(10, uuid=DISK_UUID)])
    assert refused(result, "duplicate disk uuid").err == f"duplicate disk uuid {DISK_UUID}\n"
    assert len(vm.disks()) == 2


def test_u06_equal_to_an_existing_one(backend: Backend) -> None:
    vm = two_disks(backend)
    result = vm.update(add_disks=[data_disk(10, uuid=uuids(vm)[1])])
    assert refused(result, "duplicate disk uuid").err.startswith("duplicate disk uuid")
    assert len(vm.disks()) == 2


@pytest.mark.parametrize("bad", ["", "not-a-uuid", 0, []], ids=["U07", "U08", "U09", "U10"])
def test_u07_to_u10_malformed(backend: Backend, bad: object) -> None:
    vm = two_disks(backend)
    result = vm.update(add_disks=[data_disk(10, uuid=bad)])
    assert refused(result, "disks.*.uuid").err.startswith("Invalid value(s) for: disks.*.uuid")
    assert len(vm.disks()) == 2


def test_u11_kept_over_start_and_stop(backend: Backend) -> None:
    vm = two_disks(backend)
    before = uuids(vm)
    ok(vm.start())
    ok(vm.stop())
    assert uuids(vm) == before


def test_u12_given_to_old_vms_at_start(backend: Backend) -> None:
    vm = two_disks(backend)
    ok(backend.admin("vm-make-legacy", vm.uuid, "uuids"))
    assert all("uuid" not in disk for disk in vm.disks())
    ok(vm.start())
    assert len(set(uuids(vm))) == 2
