# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules hand each argument over to the parameter of the engine that it is meant for."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.changing import CHANGING
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import (
    VMS_THAT_ARE_THERE,
    Call,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.reading import READING
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.snapshotting import SNAPSHOTTING
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.whole_vms import WHOLE_VMS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Approval, Policy

MODULES = "ansible_collections.flexdisk.hypervisor.plugins.modules"
APPROVAL = {"expect_plan": "d", "expect_lines": ["a"]}
POWER = {
    "allow_restart": "restart",
    "stop_timeout": 7,
    "allow_force_stop": "force",
    "on_refusal": "continue",
    **APPROVAL,
}
POLICY = Policy(
    allow_restart="restart",
    stop_timeout=7,
    allow_force_stop="force",
    continue_on_refusal=True,
    approval=Approval("d", ("a",)),
)
PARAMS = {
    **{
        name: name
        for name in ("vms", "packages", "state", "forget", "repair", "unused_days", "replica_days", "reclaim")
    },
    **{name: name for name in ("space", "leases", "hidden", "fail_on")},
    **POWER,
}
ON_REFUSAL = {"continue_on_refusal": True, "approval": Approval("d", ("a",))}


@pytest.mark.parametrize(
    ("name", "function", "given", "expected"),
    [
        ("disk_adopt", "disk_adopt.run", PARAMS, {"raw": "vms", "state": "state", "forget": "forget", **ON_REFUSAL}),
        ("disk_info", "disks_info", ("f", PARAMS), {"filters": "f", "figures": "space", "hidden": "hidden"}),
        ("disk_verify", "verify", PARAMS,
         {"names": "vms", "repair": "repair", "unused_days": "unused_days", "replica_days": "replica_days"}),
        ("vm", "run", PARAMS, {"raw": "vms", "raw_packages": "packages", "policy": POLICY}),
        ("vm_disks", "converge", {**PARAMS, "matching": "slot"},
         {"raw": "vms", "policy": Policy(**{**vars(POLICY), "matching": "slot"})}),
        ("vm_info", "info", PARAMS, {"names": "vms", "figures": "space", "leased": "leases"}),
        ("vm_snapshot", "vm_snapshot.run", ("spec", PARAMS), {"names": "vms", "spec": "spec", "policy": POLICY}),
        ("zfs_quota", "recalculate", PARAMS, {"names": "vms", "reclaim": "reclaim", **ON_REFUSAL}),
    ],
)  # fmt: skip
def test_each_argument_is_handed_to_its_parameter(monkeypatch, name, function, given, expected):
    module = importlib.import_module(f"{MODULES}.{name}")
    *holders, last = function.split(".")
    holder = getattr(module, holders[0]) if holders else module
    signature, handed = inspect.signature(getattr(holder, last)), {}

    def record(*values, **named):
        handed.update(signature.bind(*values, **named).arguments)
        return MagicMock() if name != "zfs_quota" else (MagicMock(), [])

    monkeypatch.setattr(holder, last, record)
    for other in ("answer", "result", "failure", "under_way"):
        monkeypatch.setattr(module, other, lambda *_any, **_more: None, raising=False)
    try:
        module.body(Call("zfs", "hypervisor", "pool", "check", "runner"), given)
    except TypeError:  # what becomes of the result is no matter
        assert handed
    host = {"zfs": "zfs", "hypervisor": "hypervisor", "pool": "pool", "check_mode": "check"}
    wanted = {**{key: value for key, value in host.items() if key in signature.parameters}, **expected}
    assert {key: handed[key] for key in handed if key != "now"} == wanted


VMS = {"vms": ["web01", "db01"]}
ALL = {"vms": None, "vm": None}
READS = {"reads": True, "drivers": READING}
REPAIRS = {"reads": False, "drivers": VMS_THAT_ARE_THERE}


@pytest.mark.parametrize(
    ("name", "params", "task", "more"),
    [
        (
            "disk_adopt",
            {"vms": [{"vm": "web01"}], "state": "adopted"},
            "disk_adopt (adopted) of web01",
            {"drivers": CHANGING},
        ),
        ("disk_adopt", {**ALL, "state": "released"}, "disk_adopt (released) of all VMs", {"drivers": CHANGING}),
        ("disk_verify", {**VMS, "repair": []}, "disk_verify of web01, db01", READS),
        ("disk_verify", {**ALL, "repair": ["x"]}, "disk_verify of all VMs", REPAIRS),
        ("vm", {"vms": [{"vm": "web01"}]}, "vm of web01", {"every_pool": True, "drivers": WHOLE_VMS}),
        ("vm_disks", {"vms": [{"vm": "web01"}, {"vm": "b"}]}, "vm_disks of web01, b", {"drivers": CHANGING}),
        ("vm_snapshot", VMS, "vm_snapshot of web01, db01", {"drivers": SNAPSHOTTING}),
        ("vm_snapshot", ALL, "vm_snapshot of all VMs", {"drivers": SNAPSHOTTING}),
        ("zfs_quota", VMS, "zfs_quota of web01, db01", {"drivers": READING}),
        ("zfs_quota", ALL, "zfs_quota of all VMs", {"drivers": READING}),
        *((name, {}, "", READS) for name in ("disk_info", "host_info", "replica_info", "vm_info")),
    ],
)
def test_what_others_wait_for(monkeypatch, name, params, task, more):
    """Modules that only read take no lock, and have no words for those who would wait for it."""
    module, ran = importlib.import_module(f"{MODULES}.{name}"), []
    made = SimpleNamespace(params=params, no_log_values=set())
    for kind in ("AnsibleModule", "Module"):
        monkeypatch.setattr(module, kind, lambda **_arguments: made, raising=False)
    monkeypatch.setattr(module, "named", lambda given: given["vms"], raising=False)
    monkeypatch.setattr(module, "run_module", lambda _module, _core, *given, **named: ran.append((given[0], named)))
    module.main()
    assert ran == [(task, more)]
