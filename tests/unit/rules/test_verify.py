# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings on hosts that no command can make, and the table of kinds."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import findings, property_text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import link
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import PoolGeometry
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.slots import SMARTOS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.verify import findings as look

DISK = "dddddddd-0000-4000-8000-000000000001"
VM = "cccccccc-0000-4000-8000-000000000001"
ROOT = f"zones/{VM}"


def host(*configs, **user):
    """A detached disk with these properties, beside VMs of these configurations."""
    facts = {"uuid": DISK, "index": "1", **user}
    volume = Dataset(f"zones/flexdisk/{DISK}", "volume", guid=1, referenced=1 << 30, user=facts)
    names = ["zones", "zones/flexdisk", *(config.dataset for config in configs)]
    datasets = [*(Dataset(name, "filesystem") for name in names), volume]
    return link(configs, datasets, {"zones": PoolGeometry((), "classic")}, "bhyve")


def kinds(at):
    return [finding.kind for finding in look(at, 0, 30, 7)]


def test_a_property_that_zfs_does_not_keep():
    assert kinds(host(description="x" * property_text.LIMIT)) == []
    [finding] = look(host(description="ä" * (property_text.LIMIT // 2 + 1)), 0, 30, 7)
    assert (finding.kind, finding.repair) == ("property_too_long", None)
    assert "flexdisk:description has 8192 bytes, but the limit is 8191" in finding.message


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("index", ["-1", "x", "1.0", "100000"]),
        ("slot", ["1:2:3:4", "0:99:0", "a"]),
        ("boot", ["yes", "True", "1"]),
        ("preserve", ["no"]),
        ("tags", ["[]", "{", '{"a":1}', "x"]),
        ("serial_no", ["-1", "one", "1" * 16]),
        ("ctime", ["2026-01-01", "now"]),
        ("mtime", ["2026-01-01T00:00:00+01:00"]),
        ("vm", ["web01"]),
    ],
)
def test_values_that_do_not_validate(name, values):
    for value in values:
        [finding] = [f for f in look(host(**{name: value}), 0, 30, 7) if f.kind == "invalid_property"]
        assert f"flexdisk:{name} = {value!r}" in finding.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tags", "{}"),
        ("tags", '{"a":"b"}'),
        ("slot", "4:1"),
        ("index", "0"),
        ("serial_no", "7"),
        ("description", "%0A"),
    ],
)
def test_values_that_do(name, value):
    assert kinds(host(**{name: value})) == []


@pytest.mark.parametrize("name", ["a", "data-1", "x.y_z", "4a", "A" * 64])
def test_names_that_a_disk_can_have(name):
    assert kinds(host(name=name)) == []


@pytest.mark.parametrize("name", ["42", "0", "a b", "-a", "A" * 65, "ä", "a/b"])
def test_names_that_it_cannot_have(name):
    assert kinds(host(name=name)) == ["invalid_name"]


def config(slots, **more):
    disks = tuple(
        DiskConfig(f"/dev/zvol/rdsk/{ROOT}/disk{n}", f"{ROOT}/disk{n}", pci_slot=s) for n, s in enumerate(slots)
    )
    return VmConfig(VM, "web01", "bhyve", "stopped", False, "zones", ROOT, None, disks=disks, pci=SMARTOS, **more)


@pytest.mark.parametrize(("slots", "clash"), [(("0:4:0", "4:0"), 1), (("1:0:0", "1:0:0"), 1), (("0:4:0", "0:4:1"), 0)])
def test_slots_are_compared_normalised_and_on_every_bus(slots, clash):
    assert kinds(host(config(slots))).count("slot_conflict") == clash


def test_every_missing_volume_is_named():
    result = [f for f in look(host(config(("0:4:0", "0:4:1"))), 0, 30, 7) if f.kind == "dangling_reference"]
    assert [f.volume for f in result] == [f"{ROOT}/disk0", f"{ROOT}/disk1"]


def test_the_table_of_kinds():
    for kind, entry in findings.KINDS.items():
        assert entry.severity in findings.SEVERITIES, kind
        assert entry.meaning.endswith("."), kind
    assert set(findings.INTENTS) <= set(findings.REPAIRABLE)
    for kind, left in findings.LEAVES.items():
        assert {kind, *left} <= set(findings.REPAIRABLE)


@pytest.mark.parametrize(
    ("kind", "fails"),
    [("slot_conflict", {"error", "warning"}), ("guard", {"warning"}), ("never_used", set())],
)
def test_what_a_task_fails_on(kind, fails):
    finding = findings.Finding(kind, "")
    for limit in ("never", "warning", "error"):
        assert findings.fails([finding], limit) == (limit in fails)
    assert findings.counts([finding])[finding.severity] == 1
