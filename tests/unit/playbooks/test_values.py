# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of tasks that consist of several parts, or are chosen: each part, and each choice, is seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from .tasks import INNER, ROOT, every_task

CONDITIONS = ("name", "when", "that", "until", "failed_when", "changed_when", "fail_msg", "msg", "label")


def values(here: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All values that are written in something, by their keys; conditions and what is told are tested elsewhere."""
    if isinstance(here, str):
        yield key, here
    elif isinstance(here, list):
        for part in here:
            yield from values(part, key)
    elif isinstance(here, dict):
        for name, part in here.items():
            if name not in (*INNER, *CONDITIONS):
                yield from values(part, name)


def is_composed(text: str) -> bool:
    """Whether an expression has several parts, or chooses."""
    expressions = re.findall(r"{{(.*?)}}", text, re.DOTALL)
    return any(re.search(r" (\+|or|and|if) ", re.sub(r"'[^']*'", "''", part)) for part in expressions)


def values_of_tasks() -> Iterator[tuple[str, str, str]]:
    """All values, with their play or role and task, and with their keys."""
    for task in every_task():
        parts = task.path.relative_to(ROOT).with_suffix("").parts
        place = parts[1] if parts[0] == "roles" else "/".join(parts[1:])
        for key, text in values(task.here):
            yield f"{place}: {task.here.get('name')}", key, text


@cache
def composed() -> dict[str, str]:
    """The values of several parts, by play or role, task and key."""
    return {f"{name}: {key}": text for name, key, text in values_of_tasks() if is_composed(text)}


OMIT = "left out"  # what `omit` gives here

Case = tuple[dict[str, Any], Any]


def meant(**variables: Any) -> dict[str, Any]:
    """Variables of a playbook, as its first task leaves them."""
    return {"_flexdisk": variables}


def sums(*names: str) -> list[Case]:
    """Lists that are put together: a member of each is there."""
    return [({name: [name] for name in names}, list(names))]


def approved(role: str) -> list[Case]:
    """A digest; an empty one approves nothing, and without one nothing is compared."""
    name = f"{role}_expect_plan"
    return [({name: "1f"}, "1f"), ({name: ""}, ""), ({name: None}, ""), ({}, OMIT)]


def only(role: str, parts: dict[str, Any], of_parts: list[Any]) -> list[Case]:
    return [({f"{role}_only": "a", f"{role}_vms": ["x", "y"], **parts}, of_parts),
            ({f"{role}_only": "", f"{role}_vms": ["x", "y"], **parts}, ["x", "y"])]  # fmt: skip


VIRTUAL_MACHINE = only(
    "virtual_machine", {"virtual_machine_by_name": ["n"], "virtual_machine_by_vm": ["v"]}, ["n", "v"]
)
ROLES = {
    "virtual_machine": (["Create, change or delete the declared VMs"], VIRTUAL_MACHINE),
}  # fmt: skip
SKIPPED: dict[str, Any] = {"skipped": True}
READ: dict[str, Any] = {"vms": []}
FOUR = {"vm_placement_vms": ["a", "b"], "_vm_placement_by_vm": ["v"], "_vm_placement_by_name": ["n"]}


# By play or role, task and key: variables, and what the value is with them
CASES: dict[str, list[Case]] = {
    **{f"{role}: {task}: {role}_chosen": cases for role, (names, cases) in ROLES.items()
       for task in ("Refuse the name of a VM that is not declared", *names)},
    **{f"{role}: {task}: expect_plan": approved(role) for role, (names, _cases) in ROLES.items() for task in names},
    "restart_group: Restart a group of VMs: _flexdisk_more": [
        ({**meant(flexdisk_replace=True), "_flexdisk_generation": "g", "_flexdisk_anew": {"replace": True}},
         {"generation": "g", "replace": True}),
        ({**meant(), "_flexdisk_generation": "g", "_flexdisk_anew": {"replace": True}}, {"generation": "g"})],
    "tasks/replicate_round: Note what became of it: _flexdisk_ended_syncs": [
        ({"_vm_replica_ended": {"peer": "hv02"}}, [{"peer": "hv02"}]),
        ({"_flexdisk_ended_syncs": [1], "_vm_replica_ended": 2}, [1, 2])],
    "instance_group: Note that it failed: _instance_group_bad": [
        ({"_instance_group_bad": ["a"], "instance_group_member": {"name": "b"}}, ["a", "b"])],
    "vm_placement: Ask again for each of those that it cannot take beside the others: loop": [
        ({**FOUR, "_vm_placement_info": READ}, ["v", "n"]), ({**FOUR, "_vm_placement_info": SKIPPED}, []),
        ({**FOUR, "vm_placement_vms": ["a"], "_vm_placement_info": READ}, [])],
    "vm_placement: Note the answers: vms": [
        ({**FOUR, "_vm_placement_info": READ}, ["a", "b"]), ({**FOUR, "_vm_placement_info": SKIPPED}, [])],
    "vm_placement: Note the answers: checks": [
        ({"_vm_placement_check": "c", "_vm_placement_alone": {"results": ["d"]}}, ["c", "d"]),
        ({"_vm_placement_check": "c", "_vm_placement_alone": {}}, ["c"])],
    "vm_placement: Choose hosts: to_groups": [
        ({"vm_placement_to_groups": ["g"]}, ["g"]), ({"vm_placement_to_groups": []}, OMIT)],
    "vm_placement: Note what the planner must know: _vm_placement_told": [
        ({"_vm_placement_info": SKIPPED, "_vm_placement_host": {"h": 1}}, {}),
        ({"_vm_placement_info": READ, "_vm_placement_host": {"h": 1}}, {"h": 1})],
    "vm_placement: Work out which host groups are involved: _vm_placement_groups": [
        ({"_vm_placement_named": [{"name": "a"}, {"name": "b"}], "_vm_placement_elsewhere": ["b"],
          "_vm_placement_nameless": [{"hosts": 1}]}, [{"name": "a"}, {"hosts": 1}])],
    "move_vm: Move the VM, or forget it: vm_move_lock_timeout": [
        (meant(flexible_disks_stop_timeout=5), 65), (meant(), 240)],
    "parts/stage: Read them, too: run_once": [
        ({"_flexdisk_stage": "planned"}, True), ({"_flexdisk_stage": "left", "_flexdisk_others": {"hosts": []}}, True),
        ({"_flexdisk_stage": "left", "_flexdisk_others": {"hosts": ["hv1"]}}, False)],
    "parts/stage: Carry out moves: hosts": [
        ({"_flexdisk_of_stage": "g", "groups": {"g": ["a"]}}, "g"),
        ({"_flexdisk_of_stage": "g", "groups": {}}, "all:!all")],
    "parts/stage: Carry out moves: serial": [
        ({"_flexdisk_of_stage": "g", "groups": {"g": ["a"]}, "hostvars": {"a": {"_flexdisk_sizes": [2]}}}, [2]),
        ({"_flexdisk_of_stage": "g", "groups": {"g": []}, "hostvars": {}}, 1),
        ({"_flexdisk_of_stage": "g", "groups": {"g": ["a"]}}, 1)],
    "disk_registry: Give existing disks their identity: vms": [
        ({"disk_registry_adopt_vms": ["a"]}, ["a"]), ({"disk_registry_adopt_vms": []}, OMIT)],
}  # fmt: skip
ELSEWHERE = {  # they ask filters of the collection: plays test them
    "grow_guests: Let guests use what their disks have got: hosts",
}
TEMPLAR = Templar(DataLoader())


@pytest.mark.parametrize("name", CASES)
def test_each_part_of_a_value_is_seen(name):
    for variables, value in CASES[name]:
        TEMPLAR.available_variables = {"omit": OMIT, **variables}
        assert TEMPLAR.template(trust_as_template(composed()[name])) == value, variables


# They are about to be decided in Python
COMING = ("tasks/carry_out_move",)


def test_every_value_of_several_parts_is_tested():
    assert sorted(name for name in composed() if not name.startswith(COMING)) == sorted({*CASES, *ELSEWHERE})


# Where an empty value means the same as none
EMPTY_IS_NONE = {"start_host: Ask the other hosts: hypervisor", "start_host: Ask the other hosts: libvirt_uri"}


def test_an_empty_value_is_handed_on():
    """It can mean something else than none, as logical_volume does."""
    found = {f"{name}: {key}" for name, key, text in values_of_tasks() if re.search(r"default\(omit, true\)", text)}
    assert found == EMPTY_IS_NONE
