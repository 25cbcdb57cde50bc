# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Group V: validation of payloads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.support import (
    BIOS_IMAGE,
    IMAGE,
    UEFI_IMAGE,
    UUID,
    Backend,
    Vm,
    base,
    boot_disk,
    data_disk,
    made,
    ok,
    refused,
)

UNKNOWN_IMAGE = "aaaaaaaa-0000-4000-8000-0000000000ff"
Findings = dict[str, list[str]]


def validate(backend: Backend, payload: dict[str, Any], *words: str) -> Findings | None:
    """None if the payload is valid."""
    result = backend.run(["vmadm", "validate", *(words or ("create",))], json.dumps(payload))
    assert result.out == ""
    if result.rc == 0:
        assert result.err.startswith("VALID '")
        return None
    assert result.rc == 1
    found: Findings = json.loads(result.err)
    assert set(found) == {"bad_values", "bad_properties", "missing_properties"}
    return found


def create(*disks: dict[str, Any], brand: str = "bhyve", **more: Any) -> dict[str, Any]:
    return {"brand": brand, "disks": list(disks), **more}


@pytest.mark.parametrize("brand", ["bhyve", "kvm"])
def test_v01_minimal(backend: Backend, brand: str) -> None:
    assert validate(backend, {"brand": brand}) is None


@pytest.mark.parametrize(("brand", "valid"), [("kvm", True), ("bhyve", False)])
def test_v02_documented_payload(backend: Backend, brand: str, valid: bool) -> None:
    disk = boot_disk(image_name="base", image_size=10240)
    found = validate(backend, create(disk, brand=brand, alias="a", ram=1024, vcpus=4, autoboot=False))
    # image_name is a key of kvm alone.
    assert (found is None) is valid


@pytest.mark.parametrize("brand", ["bhyve", "kvm"])
def test_v03_added_image_with_size(backend: Backend, brand: str) -> None:
    found = validate(backend, {"add_disks": [data_disk(20480, image_uuid=IMAGE)]}, "update", brand)
    assert found is not None
    assert found["bad_properties"] == ["add_disks.0.size"]


@pytest.mark.parametrize("brand", ["bhyve", "kvm"])
def test_v04_created_image_with_size(backend: Backend, brand: str) -> None:
    found = validate(backend, create(boot_disk(size=20480), brand=brand))
    assert found is not None
    assert found["bad_properties"] == ["disks.0.size"]


def test_v05_image_with_block_size(backend: Backend) -> None:
    found = validate(backend, create(boot_disk(block_size=4096)))
    assert found is not None
    assert found["bad_properties"] == ["disks.0.block_size"]
    result = Vm(backend).create(base(boot_disk(boot=False, block_size=4096)))
    refused(result, "setting both .block_size and .image_uuid")


def test_v06_added_image_with_image_size(backend: Backend) -> None:
    payload = {"add_disks": [{"image_uuid": IMAGE, "image_size": 10240, "model": "virtio"}]}
    assert validate(backend, payload, "update", "bhyve") is None


def test_v07_created_image_with_image_size(backend: Backend) -> None:
    assert validate(backend, create(boot_disk(image_size=10240))) is None


def test_v08_added_disk_with_size(backend: Backend) -> None:
    assert validate(backend, {"add_disks": [data_disk(100)]}, "update", "bhyve") is None


def test_v09_created_disk_with_size(backend: Backend) -> None:
    assert validate(backend, create(data_disk(100))) is None


def test_v10_unknown_image(backend: Backend) -> None:
    found = validate(backend, create({"image_uuid": UNKNOWN_IMAGE, "model": "virtio"}))
    assert found is not None
    assert found["bad_values"] == ["disks.0.image_uuid"]
    payload = {"add_disks": [{"image_uuid": UNKNOWN_IMAGE, "model": "virtio"}]}
    found = validate(backend, payload, "update", "bhyve")
    assert found is not None
    assert found["bad_values"] == ["add_disks.0.image_uuid"]


def test_v11_wrong_image_size(backend: Backend) -> None:
    vm = Vm(backend)
    refused(vm.create({**base(), "disks": [boot_disk(image_size=31337)]}), "Invalid value(s) for: disks.0.image_size")
    assert not vm.exists()


def test_v12_image_size_from_manifest(backend: Backend) -> None:
    disk = made(backend).disk(0)
    assert (disk["image_size"], disk["size"]) == (10240, 10240)


def test_v13_kvm_block_size(backend: Backend) -> None:
    vm = Vm(backend)
    disks = [{**data_disk(100, block_size="65536"), "boot": True}]
    ok(vm.create({"uuid": UUID, "brand": "kvm", "autoboot": False, "ram": 512, "disks": disks}))
    assert vm.disks()[0]["block_size"] == 65536


@pytest.mark.parametrize("size", [256, 132096, 31337], ids=["V14", "V15", "V16"])
def test_v14_to_v16_block_size(backend: Backend, size: int) -> None:
    vm = made(backend, flexible_disk_size=13312)
    result = vm.update(add_disks=[data_disk(100, block_size=size)])
    refused(result, f"invalid .block_size({size}), must be 512-131072 and a power of 2.")
    assert len(vm.disks()) == 1


@pytest.mark.zfs_decides
def test_v17_compression(backend: Backend) -> None:
    vm = made(backend, data_disk(100, compression="gzip"))
    assert vm.disk(1)["compression"] == "gzip"
    ok(vm.update(update_disks=[{"path": vm.path(1), "compression": "off"}]))
    assert vm.disk(1)["compression"] == "off"
    refused(vm.update(update_disks=[{"path": vm.path(1), "compression": "rar"}]), "invalid compression type for disk")


def test_v18_bootrom_from_image(backend: Backend) -> None:
    vm = Vm(backend)
    assert validate(backend, create({**boot_disk(), "image_uuid": UEFI_IMAGE})) is None
    ok(vm.create({**base(), "disks": [{**boot_disk(), "image_uuid": UEFI_IMAGE}]}))
    assert vm.get()["bootrom"] == "uefi"


MATCHES = [("V19", UEFI_IMAGE, "uefi", True), ("V20", BIOS_IMAGE, "bios", True),
           ("V21", UEFI_IMAGE, "bios", False), ("V22", BIOS_IMAGE, "uefi", False)]  # fmt: skip


@pytest.mark.parametrize(
    ("image", "bootrom", "valid"), [case[1:] for case in MATCHES], ids=[case[0] for case in MATCHES]
)
def test_v19_to_v22_bootrom(backend: Backend, image: str, bootrom: str, valid: bool) -> None:
    found = validate(backend, create({**boot_disk(), "image_uuid": image}, bootrom=bootrom))
    assert found is None if valid else (found is not None and found["bad_values"] == ["bootrom"])


MIXES = [("V23", BIOS_IMAGE, UEFI_IMAGE, None, True), ("V24", BIOS_IMAGE, UEFI_IMAGE, "bios", True),
         ("V25", BIOS_IMAGE, UEFI_IMAGE, "uefi", False), ("V26", UEFI_IMAGE, BIOS_IMAGE, "bios", False),
         ("V27", UEFI_IMAGE, BIOS_IMAGE, None, True), ("V28", UEFI_IMAGE, BIOS_IMAGE, "uefi", True)]  # fmt: skip


@pytest.mark.parametrize(
    ("boot", "data", "bootrom", "valid"), [case[1:] for case in MIXES], ids=[case[0] for case in MIXES]
)
def test_v23_to_v28_only_the_boot_image_counts(
    backend: Backend, boot: str, data: str, bootrom: str | None, valid: bool
) -> None:
    more = {} if bootrom is None else {"bootrom": bootrom}
    disks = [{**boot_disk(), "image_uuid": boot}, {"image_uuid": data, "model": "virtio"}]
    found = validate(backend, create(*disks, **more))
    assert found is None if valid else (found is not None and found["bad_values"] == ["bootrom"])
