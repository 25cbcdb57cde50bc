# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of a host, each with the command that repairs it, and its quotas."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_findings,
    show_quotas,
)

from .plays import registered

ARGUMENTS = yaml.safe_load((Path(__file__).resolve().parents[3] / "playbooks" / "vars" / "arguments.yml").read_text())
WEB = "cccccccc-0000-4000-8000-000000000001"
OURS = "flexdisk.hypervisor."


COUNTS = {"error": 2, "warning": 3, "info": 4}


def shown(findings, **meant):
    result = {"repaired": [], "findings": findings, "counts": COUNTS}
    return show_findings(registered({"hv01": {"_flexdisk": meant, "flexdisk_verify": result}}, "flexdisk_verify"))


def verify_lines(findings):
    return shown(findings).lines


def lines(repair, alias="web"):
    finding = {"severity": "error", "kind": "quota_drift", "alias": alias, "vm": WEB, "message": "no", "repair": repair}
    return verify_lines([finding])


@pytest.mark.parametrize(
    ("module", "options", "playbook", "given"),
    [
        ("disk_verify", {"vms": [WEB], "repair": ["quota_drift"]}, "verify_disks",
         {"flexdisk_verify_vms": ["web"], "flexdisk_verify_repair": ["quota_drift"]}),
        ("disk_verify", {"repair": ["intent_index"]}, "verify_disks", {"flexdisk_verify_repair": ["intent_index"]}),
        ("zfs_quota", {"vms": [WEB], "reclaim": True}, "recalculate_quota",
         {"flexdisk_quota_vms": ["web"], "flexdisk_quota_reclaim": True}),
        ("vm_snapshot", {"vms": [WEB], "name": "a", "state": "rolled_back"}, "rollback",
         {"flexdisk_snapshot_vms": ["web"], "flexdisk_snapshot_name": "a"}),
    ],
)  # fmt: skip
def test_a_repair_is_the_call_of_a_playbook(module, options, playbook, given):
    head, call = lines({OURS + module: options})
    assert head == "error: quota_drift web: no"
    words = shlex.split(call)
    assert words[:5] == ["ansible-playbook", OURS + playbook, "--limit", "hv01", "-e"]
    assert json.loads(words[5]) == given
    assert set(given) <= set(ARGUMENTS["_flexdisk_arguments"][playbook])


def test_a_vm_without_an_alias_is_named_by_its_uuid():
    assert f'"flexdisk_verify_vms": ["{WEB}"]' in lines({OURS + "disk_verify": {"vms": [WEB], "repair": ["a"]}}, "")[1]


def test_what_no_playbook_does_is_a_task():
    task = yaml.safe_load(lines({OURS + "disk": {"uuid": WEB, "state": "absent"}})[1])
    assert task == [{OURS + "disk": {"uuid": WEB, "state": "absent"}}]


def test_nothing_is_wrong():
    assert verify_lines([]) == ["nothing is wrong"]
    assert lines(None) == ["error: quota_drift web: no"]


@pytest.mark.parametrize(
    ("meant", "problem"),
    [({}, ""), ({"flexdisk_verify_fail_on": "never"}, ""), ({"flexdisk_verify_fail_on": "error"}, "2 findings"),
     ({"flexdisk_verify_fail_on": "warning"}, "5 findings")],
)  # fmt: skip
def test_findings_that_are_severe_enough_are_a_problem(meant, problem):
    assert shown([], **meant).problem == problem


def quotas(result):
    return show_quotas(registered({"hv01": {"flexdisk_quota": result}}, "flexdisk_quota"))


def test_quotas_that_were_wrong_are_listed():
    vms = [
        {"alias": "a", "uuid": "u1", "cause": "set by hand", "drift": {"quota_bytes": 1, "reservation_bytes": -2}},
        {"alias": "", "uuid": "u2", "cause": "older", "drift": {"quota_bytes": 3, "reservation_bytes": 4}},
        {"alias": "b", "uuid": "u3", "cause": "", "drift": None},
    ]
    assert quotas({"vms": vms}).lines == [
        "a: set by hand, quota +1 bytes, reservation -2 bytes",
        "u2: older, quota +3 bytes, reservation +4 bytes",
    ]
    assert quotas({"vms": vms[2:]}).lines == ["nothing"]
    assert quotas({"failed": True, "msg": "no pool"}) == ([], "")
