# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions of tasks that consist of several parts: each part decides once, whatever a play comes by."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from .tasks import ROOT, every_task

ITEM = [{"name": "a"}]
HERE = {"inventory_hostname": "hv1"}
UNDEFINED: Any = object()  # the variable is left out

SHOWN: tuple[bool, dict[str, Any], list[dict[str, Any]]] = (
    True,
    {"_flexdisk_done": {"plan": []}, "ansible_diff_mode": False},
    [{"_flexdisk_done": {}}, {"ansible_diff_mode": True}],
)


# By play or role, task and keyword: what a condition says of some variables, and what each makes the opposite of that
CASES: dict[str, tuple[bool, dict[str, Any], list[dict[str, Any]]]] = {
    **{f"{name}: Show what changes: when": SHOWN
       for name in ("add_disk", "attach_disk", "change_package", "delete_vm", "detach_disk", "resize_disk",
                    "restart_vm", "restore_disk", "rollback", "snapshot", "start_vm", "stop_vm")},
    "adopt: Write the saved identities to the controller: when": (
        True, {"_flexdisk": {"flexdisk_adopt_papers": "f"}, "flexdisk_adopted": {"released": ITEM}},
        [{"_flexdisk": {}}, {"flexdisk_adopted": {"released": []}}, {"flexdisk_adopted": {}}]),
    "create_vm: Show what changes: when": (
        True, {"virtual_machine_result": {"plan": []}, "ansible_diff_mode": False},
        [{"virtual_machine_result": {}}, {"ansible_diff_mode": True}]),
    "move_vm: Say that there was no tombstone: when": (
        True, {"_flexdisk_state": "forgotten", "_flexdisk_forgotten": []},
        [{"_flexdisk_state": "moved"}, {"_flexdisk_forgotten": ITEM}]),
    "parts/stage: Read them, too: when": (
        True, {**HERE, "_flexdisk_stage": "left", "_flexdisk_others": {"hosts": ["hv1"]}},
        [{"_flexdisk_stage": "planned"}, {"_flexdisk_others": {"hosts": []}}]),
    "tasks/grow_batch: Let the guests of the batch grow: when": (
        True, {"inventory_hostname": "g", "_flexdisk_batch": {"guests": ["g"]}, "_flexdisk_lost": {"unreached": []}},
        [{"_flexdisk_batch": {"guests": []}}, {"_flexdisk_lost": {"unreached": ["g"]}}]),
    "instance_group: Wait for their guest agents: until": (
        True, {"_instance_group_answer": {"vms": [{"guest_agent": "connected"}]}},
        [{"_instance_group_answer": {}}, {"_instance_group_answer": {"vms": [{"guest_agent": "none"}]}}]),
    "instance_group: Give the lease back: when": (
        True, {**HERE, "_instance_group_turn": {"memory": {"places": {"hv1": "p"}}}, "ansible_check_mode": False},
        [{"_instance_group_turn": {"memory": {"places": {}}}}, {"ansible_check_mode": True},
         {"_instance_group_turn": {}}]),
    "instance_group: Say what failed: when": (
        False, {"_instance_group_answer": {}},
        [{"_instance_group_answer": {"error_code": "InUse"}}, {"_instance_group_answer": {"unreachable": True}}]),
    "vm_placement: Ask whether this host can take the VMs: when": (
        True, {"vm_placement_vms": ITEM, "_vm_placement_info": {}},
        [{"vm_placement_vms": []}, {"_vm_placement_info": {"skipped": True}}]),
    "disk_registry: Say that nothing is declared for this host: when": (
        True, {"disk_registry_adopt": "false", "disk_registry_verify": "false", "disk_registry_disks": []},
        [{"disk_registry_adopt": "true"}, {"disk_registry_verify": "true"}, {"disk_registry_disks": ITEM}]),
    "flexible_disks: Compare the plans of all hosts with the approved ones: when": (
        True, {"flexible_disks_plan_only": "false", "flexible_disks_expect_plan": "d"},
        [{"flexible_disks_plan_only": "true"}, {"flexible_disks_expect_plan": UNDEFINED}]),
}  # fmt: skip


@cache
def conditions() -> dict[str, str]:
    """The conditions of several parts, by play or role, task and keyword."""
    found: dict[str, str] = {}
    for task in every_task():
        parts = task.path.relative_to(ROOT).with_suffix("").parts
        place = parts[1] if parts[0] == "roles" else "/".join(parts[1:])
        asserted = (task.here.get("ansible.builtin.assert") or {}).get("that")
        for keyword, told in (*task.here.items(), ("that", asserted)):
            if keyword in ("when", "that", "until", "failed_when") and told is not None:
                texts = [str(text) for text in (told if isinstance(told, list) else [told])]
                if len(texts) > 1 or re.search(" (and|or) ", texts[0]):
                    name = f"{place}: {task.here['name']}: {keyword}"
                    if f"{name} ({parts[-1]})" in CASES:
                        name += f" ({parts[-1]})"
                    found[name] = " and ".join(f"({text})" for text in texts)
    return found


TEMPLAR = Templar(DataLoader())


def says(name: str, variables: dict[str, Any]) -> bool:
    TEMPLAR.available_variables = {key: value for key, value in variables.items() if value is not UNDEFINED}
    return bool(TEMPLAR.evaluate_conditional(trust_as_template(conditions()[name])))


@pytest.mark.parametrize("name", CASES)
def test_each_part_of_a_condition_decides(name):
    expected, base, opposites = CASES[name]
    assert says(name, base) == expected
    assert [change for change in opposites if says(name, {**base, **change}) == expected] == []


def test_every_condition_of_several_parts_is_tested():
    assert sorted(conditions()) == sorted(CASES)
