# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One convention for figures: whole MiB without a suffix, bytes with the suffix _bytes, counters are ints."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
import yaml

from .conftest import PLUGINS, VM
from .test_modules import MODULES, ROOT

NO_SIZES = {"vcpus", "cpus", "index", "serial_no", "snapshots", "created", "collected", "guid", "ttl", "age", "home"}
NO_SIZES |= {"silent", "vmid", "pid", "at_step", "steps", "up", "together"}
OPTION = "block_size"  # the name and the unit of the option, and of vmadm's property
MIB = 1 << 20
DISKS = [
    {"name": "root", "boot": True, "preserve": True},
    {"name": "data", "size": 64, "pci_slot": "0:4:1"},
    {"name": "new", "size": 64},
]


def returned(module):
    text = getattr(import_module(PLUGINS + module), "RETURN", None)
    return (
        yaml.safe_load(text)
        if text
        else yaml.safe_load((ROOT / "plugins" / "modules" / (module + ".yml")).read_text())["RETURN"]
    )


def misnamed(documented, where=()):
    """What the documentation of results has against the convention."""
    for key, told in documented.items():
        place, words = (*where, key), str(told["description"])
        exact = any(part.endswith("_bytes") for part in place)
        if told["type"] == "int" and key != OPTION and key not in NO_SIZES and ("MiB" in words) == exact:
            yield f"{'.'.join(place)}: {words}"
        if key != OPTION and not exact and re.search(r"\b[Bb]ytes?\b", words):
            yield f"{'.'.join(place)}: {words}"
        if key in NO_SIZES and told["type"] not in ("int", "list"):
            yield f"{'.'.join(place)}: {told['type']}"
        if exact and told["type"] not in ("int", "dict"):
            yield f"{'.'.join(place)}: {told['type']}"
        yield from misnamed(told.get("contains") or {}, place)


@pytest.mark.parametrize("module", MODULES)
def test_documented_figures(module):
    assert list(misnamed(returned(module))) == []


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("quota", {"description": "Bytes of the quota.", "type": "int"}),
        ("quota", {"description": "The quota.", "type": "int"}),
        ("quota", {"description": "C(before) and C(after) in bytes.", "type": "dict"}),
        ("quota_bytes", {"description": "MiB of the quota.", "type": "int"}),
        ("quota_bytes", {"description": "The quota.", "type": "str"}),
        ("serial_no", {"description": "Number of its changes.", "type": "str"}),
    ],
)
def test_what_the_check_finds(key, told):
    assert list(misnamed({"vms": {"description": "", "type": "list", "contains": {key: told}}}))


def wrong(value, where=()):
    """What a result has against the convention. On this node a figure of 1 Mi and more is one in bytes, and any other
    quota or reservation is none.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from wrong(inner, (*where, key))
    elif isinstance(value, list):
        for inner in value:
            yield from wrong(inner, where)
    exact = any(part.endswith("_bytes") for part in where)
    key = where[-1] if where else ""
    number = isinstance(value, int) and not isinstance(value, bool)
    if number and not exact and key not in ("created", "collected", "guid") and abs(value) >= MIB:
        yield "%s: %d" % (".".join(where), value)
    limits = any(part in ("quota_bytes", "reservation_bytes", "vm_quota_bytes", "expected_bytes") for part in where)
    if number and limits and 0 < abs(value) < MIB:
        yield "%s: %d" % (".".join(where), value)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value):
        yield f"{'.'.join(where)}: {value!r}"


def test_real_figures(host):
    """Of every module, where there is drift, a snapshot, a detached disk and a new one."""
    results = {
        "vm_disks": host("vm_disks", vms=[{"vm": "web01", "disks": DISKS}]),
        "disk": host("disk", name="spare", size=32),
        "vm_snapshot": host("vm_snapshot", vms=["web01"], name="one"),
        "detached": host("disk", name="new", vm="web01", state="detached"),
        "vm_info": host("vm_info"),
        "disk_info": host("disk_info", space=True),
        "host_info": host("host_info"),
        "host_metrics": host("host_metrics"),
        "host_status": host("host_status"),
        "progress_info": host("progress_info"),
        "replica_info": host("replica_info"),
        "vm": host("vm", vms=[{"name": "web01", "memory": 2048, "state": "stopped"}]),
    }
    dataset = results["vm_info"]["vms"][0]["disks"][0]["volume"].rpartition("/")[0]
    host.node("zfs", "set", "quota=8G", dataset)
    results["disk_verify"] = host("disk_verify")
    results["zfs_quota"] = host("zfs_quota")
    results["disk_adopt"] = host("disk_adopt")
    results["group_lease"] = host("group_lease", group="web", token=VM, holder="deploy")
    assert {*MODULES} <= {*results}
    for module, result in results.items():
        assert "msg" not in result or not result.get("failed"), (module, result["msg"])
        plain = {key: value for key, value in result.items() if key not in ("invocation", "diff")}
        assert list(wrong(plain)) == [], module
    drift = results["zfs_quota"]["vms"][0]["drift"]
    assert drift["quota_bytes"] > MIB
    snapshot = results["vm_snapshot"]["vms"][0]["snapshots"][0]
    assert isinstance(snapshot["frees_bytes"], int)
    disks = {disk["name"]: disk for disk in results["disk_info"]["disks"]}
    assert isinstance(disks["data"]["serial_no"], int)
    assert 64 * MIB <= disks["data"]["frees_bytes"]["allocatable"] < 65 * MIB
