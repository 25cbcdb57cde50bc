# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter verify_lines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.verify_lines import FilterModule

verify_lines = FilterModule().filters()["verify_lines"]
ARGUMENTS = yaml.safe_load((Path(__file__).resolve().parents[3] / "playbooks" / "vars" / "arguments.yml").read_text())
WEB = "cccccccc-0000-4000-8000-000000000001"
OURS = "flexdisk.hypervisor."


def lines(repair, alias="web"):
    finding = {"severity": "error", "kind": "quota_drift", "alias": alias, "vm": WEB, "message": "no", "repair": repair}
    return verify_lines({"repaired": [], "findings": [finding]}, "hv01")


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
    assert verify_lines({"repaired": [], "findings": []}, "hv01") == ["nothing is wrong"]
    assert lines(None) == ["error: quota_drift web: no"]


def test_what_is_no_result():
    with pytest.raises(AnsibleFilterError, match="disk_verify"):
        verify_lines({}, "hv01")
