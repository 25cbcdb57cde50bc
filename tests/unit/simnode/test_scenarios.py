# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes that users begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simnode import Node, scenarios

MIB = 1 << 20


def vms(node: Node) -> dict[str, dict[str, Any]]:
    return {vm["alias"]: vm for vm in json.loads(node.run(["vmadm", "lookup", "-j"])[1])}


def quota_drift(node: Node, vm: dict[str, Any]) -> int:
    """Actual quota minus the formula's."""
    rows = node.run(["zfs", "list", "-Hpr", "-t", "volume", "-o", "volsize,refreservation", vm["zfs_filesystem"]])[1]
    figures = [int(value) for value in rows.split()]
    sizes, reserved = sum(figures[0::2]), sum(figures[1::2])
    expected = (1 << 30) + reserved
    if "flexible_disk_size" in vm:
        expected += vm["flexible_disk_size"] * MIB - sizes
    return int(node.run(["zfs", "get", "-Hpo", "value", "quota", vm["zfs_filesystem"]])[1]) - expected


def test_demo() -> None:
    node = scenarios.build("demo", None)
    found = vms(node)
    assert sorted(found) == ["db01", "legacy01", "web01"]
    web, database, legacy = found["web01"], found["db01"], found["legacy01"]
    assert (web["state"], web["flexible_disk_size"]) == ("stopped", 102400)
    assert [disk["size"] for disk in web["disks"]] == [10240, 20480]
    assert database["state"] == legacy["state"] == "running"
    assert [disk["size"] for disk in database["disks"]] == [10240, 16384, 4096]
    assert "flexible_disk_size" not in legacy
    assert [disk["size"] for disk in legacy["disks"]] == [10240, 10240]
    assert quota_drift(node, web) == quota_drift(node, legacy) == 0
    assert quota_drift(node, database) == 270532608


def test_demo_in_a_directory(tmp_path: Path) -> None:
    node = scenarios.build("demo", tmp_path / "node")
    node.save()
    with Node.open(tmp_path / "node") as again:
        assert vms(again) == vms(node)


def test_empty() -> None:
    node = scenarios.build("empty", None)
    assert vms(node) == {}
    images = json.loads(node.run(["imgadm", "list", "-j"])[1])
    assert [(image["manifest"]["uuid"], image["manifest"]["image_size"]) for image in images] == [
        (scenarios.IMAGE, scenarios.IMAGE_MIB)
    ]


@pytest.mark.parametrize("count", [1, 10])
def test_bench(count: int) -> None:
    node = scenarios.build(f"bench:{count}", None)
    found = list(vms(node).values())
    assert [vm["uuid"] for vm in found] == [scenarios.bench_uuid(index) for index in range(count)]
    for vm in found:
        assert (vm["state"], vm["flexible_disk_size"]) == ("stopped", 20480)
        assert [disk["size"] for disk in vm["disks"]] == [10240, 4096, 2048, 1024]
        assert quota_drift(node, vm) == 0


@pytest.mark.parametrize("name", ["nonsense", "bench", "bench:x"])
def test_unknown_scenario(name: str) -> None:
    with pytest.raises(scenarios.ScenarioError, match="no scenario"):
        scenarios.build(name, None)
