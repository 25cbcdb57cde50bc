# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the payload: vmadm ends with one of its exit codes, and a refused update has changed no disk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.simnode.vmadm_support import ROOT, UUID, Machine

DISK0 = f"/dev/zvol/rdsk/{ROOT}/disk0"
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 70000), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "4:1", "0:6:0", "virtio", "cdrom", "64", "lz4", "auto", DISK0, "zones", UUID]),
)  # fmt: skip
VALUES = st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2))
DISK_KEYS = ("size", "model", "path", "pci_slot", "uuid", "boot", "media", "nocreate", "block_size", "zpool",
             "refreservation", "compression", "notrim", "image_uuid", "image_size", "dangerous_allow_shrink",
             "junk")  # fmt: skip
KEYS = ("flexible_disk_size", "quota", "alias", "ram", "vcpus", "autoboot", "resolvers", "tags", "set_tags", "state",
        "remove_tags", "zfs_root_recsize", "zfs_root_compression", "indestructible_zoneroot", "max_swap", "disks",
        "limit_priv", "cpu_cap", "nics", "brand", "uuid", "owner_uuid", "junk")  # fmt: skip
DISKS = st.one_of(
    st.lists(st.dictionaries(st.sampled_from(DISK_KEYS), LEAVES, max_size=5), max_size=2),
    st.lists(LEAVES, max_size=2),
    LEAVES,
)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, VALUES),
        **dict.fromkeys(("add_disks", "update_disks", "remove_disks"), DISKS),
    },
)
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def machine() -> Machine:
    machine = Machine()
    machine.create({"size": 64, "model": "virtio"}, flexible_disk_size=4096)
    return machine


def run(machine: Machine, *argv: str, payload: Any) -> int:
    status, out, err = machine.node.run(["vmadm", *argv], json.dumps(payload))
    assert status in (0, 1, 134), (status, payload)
    assert out == ""
    assert err
    return status


@SETTINGS
@given(payload=PAYLOADS)
def test_any_update(machine: Machine, payload: dict[str, Any]) -> None:
    run(machine, "update", UUID, payload=payload)
    assert machine.get()["uuid"] == UUID


@SETTINGS
@given(payload=PAYLOADS)
def test_any_validation(machine: Machine, payload: dict[str, Any]) -> None:
    before = machine.zfs("list", "-Hpr", "-o", "name,quota,volsize", "zones")
    run(machine, "validate", "create", payload={"brand": "bhyve", **payload})
    run(machine, "validate", "update", "kvm", payload=payload)
    assert machine.zfs("list", "-Hpr", "-o", "name,quota,volsize", "zones") == before


@SETTINGS
@given(payload=PAYLOADS)
def test_any_create(machine: Machine, payload: dict[str, Any]) -> None:
    uuid = "cccccccc-0000-4000-8000-00000000eeee"
    before = machine.zfs("list", "-Hpr", "-o", "name", "zones")
    status = run(machine, "create", payload={"brand": "bhyve", **payload, "uuid": uuid, "autoboot": False})
    if status == 0:
        machine.node.run(["vmadm", "update", uuid], '{"indestructible_zoneroot": false}')
        machine.good("delete", uuid)
    elif status == 134:
        machine.node.run(["zfs", "destroy", "-r", f"zones/{uuid}"])
    assert machine.zfs("list", "-Hpr", "-o", "name", "zones") == before


@pytest.mark.parametrize("payload", [None, [], "text", 5, True])
def test_payload_that_is_no_object(machine: Machine, payload: Any) -> None:
    assert run(machine, "update", UUID, payload=payload) == 134
