# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wrong values of every variable of every playbook: each is refused in words that name the variable."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.unread import Readers
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers, unknown_variables

ROOT = Path(__file__).resolve().parents[3]
VARS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())
ARGUMENTS = VARS["_flexdisk_arguments"]
READERS = Readers(VARS)


def wrong(spec):
    """Values that a variable cannot have, by its type and limits."""
    kind, values = spec["type"], []
    if kind in ("int", "float"):
        values = ["many", "1_000", "0x10", True, [1, 2], {"a": 1}, -1, "-1", float("nan"), "nan", 10**400]
        values += [spec["most"] + 1, str(spec["most"] + 1)] if "most" in spec else []
        values += [1.5, "1e3"] if kind == "int" else []
    elif kind == "bool":
        values = ["maybe", 2, -1, "2", [True, False], {"a": True}]
    elif kind in ("str", "path"):
        values = [7, 241, True, 1.5, datetime.date(2026, 1, 2), ["a", "b"], {"a": 1}]
        values += ["nosuch", "NOSUCH", "a,b"] if "choices" in spec else []
        values += ["../../keys", "-oProxyCommand=x", "a b", "$(id)"] if "matches" in spec else []
    elif kind == "list" and spec["elements"] in ("str", "path"):
        values = [[""], ["a", " "], "a,,b", [["a"]], [{"a": 1}], {"a": 1}, [7], [True], "[a"]
        values += [["nosuch"], "nosuch"] if "choices" in spec else []
        values += [["keys"], "keys"] if "matches" in spec else []
        values += [[]] if spec.get("filled") else []
    elif kind == "list":
        values = [7, "x", [7], [["a"]], ["x"], "[{", [None]]
        values += [[{"nosuch": 1}]] if "options" in spec or "role" in spec else []
        values += [[], "[]"] if spec.get("filled") else []
    elif kind == "dict":
        values = [{}] if spec.get("filled") else []
        values += [7, "x", [7], "{a", True]
        values += [{"nosuch": 1}] if "options" in spec else []
    elif spec.get("filled"):
        values = [[], {}, 0]
    return ["", " ", *values]


OWN = [  # names that users give to variables of their own, or build from ours
    "flex", "virtual_hosts", "vm_memory", "instance_id", "ansible_host", "libvirt_uri", "host_group", "host_groups",
    "host_tags", "max_age", "disk_size", "stop_timeout", "snapshot_name", "report_format", "bandwidth_limit",
    "transfer_port", "target_pool", "take_over", "flexible_disks_vms_all", "flexible_disks_vms_web",
    "virtual_machine_vms_web", "disk_registry_disks_web", "instance_group_members_web", "virtual_machine_name",
    "flexible_disks_common", "flexible_disks_host", "vm_replica_host", "vm_replicas", "virtual_machines",
    "instance_groups",
]  # fmt: skip


CASES = {
    (name, kind): (playbook, spec, wrong(spec))
    for playbook, own in ARGUMENTS.items()
    for name, spec in own.items()
    for kind in [repr(sorted(spec.items(), key=str))]
}


ENTRY = {"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "data", "siez": "1GiB"}]}
OTHERS = {"vm": "web01", "diskss": [], "pakage": "small", "zone": "a"}
KEYS = [
    ("flexible_disks_vms", [ENTRY], ["_vms[0].disks[1].siez (web01, data) is unknown. Did you mean size?"]),
    (
        "virtual_machine_vms",
        [{"vm": "db01"}, OTHERS],
        [f"virtual_machine_vms[1].{key} (web01) is unknown. Did you mean {meant}?" for key, meant in
         (("diskss", "disks"), ("pakage", "package"))] + ["virtual_machine_vms[1].zone (web01) is unknown. Known are "],
    ),
    ("disk_registry_disks", [{"nmae": "a"}], ["disk_registry_disks[0].nmae is unknown. Did you mean name?"]),
    ("flexdisk_replicas", [{"vm": "web01", "hots": "hv02"}], ["hots (web01) is unknown. Did you mean host?"]),
    ("flexdisk_snapshot_keep", {"wekly": 1}, ["flexdisk_snapshot_keep.wekly is unknown. Did you mean weekly?"]),
    ("flexdisk_snapshot_keep", {"wekly": None}, ["flexdisk_snapshot_keep.wekly is unknown. Did you mean weekly?"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), KEYS, ids=lambda label: label if isinstance(label, str) else "")
def test_a_misspelt_key_of_an_entry_is_told_in_short(name, value, expected):
    """Ansible would refuse it with the whole argument specification of the role."""
    readers = [playbook for playbook, specification in ARGUMENTS.items() if name in specification]
    assert readers
    for playbook in readers:
        specification = {name: ARGUMENTS[playbook][name]}
        text = ". ".join(answers({name: value}, specification)["problems"])
        assert [part for part in expected if part not in text] == [], (playbook, text)
        assert len(text) < 700


@pytest.mark.parametrize("name", ["flexible_disks_vms", "virtual_machine_vms", "disk_registry_disks"])
def test_what_a_role_reads_is_checked_by_each_playbook_that_has_it(name):
    role = name.rpartition("_")[0]
    assert {
        spec.get("role") for specification in ARGUMENTS.values() for key, spec in specification.items() if key == name
    } == {role}
    assert [playbook for playbook, roles in VARS["_flexdisk_roles"].items()
            if role in roles and name not in ARGUMENTS[playbook]] == []  # fmt: skip


def test_keys_that_a_playbook_reads_itself_are_known():
    readers = [specification for specification in ARGUMENTS.values() if "virtual_machine_vms" in specification]
    assert readers
    for specification in readers:
        given = {"virtual_machine_vms": [{"vm": "web-0", "hypervisor": "auto"}]}
        assert answers(given, {"virtual_machine_vms": specification["virtual_machine_vms"]})["problems"] == []


def test_what_is_needed_is_not_to_be_left_out():
    """Neither text nor a list."""
    count = 0
    for playbook, specification in ARGUMENTS.items():
        for name, spec in specification.items():
            for value in ["", " ", *([[]] if spec.get("filled") else [])]:
                (problem,) = [
                    problem for problem in answers({name: value}, {name: spec})["problems"] if name in problem
                ]
                assert ("Leave it out" in problem) is not spec.get("required", False), (playbook, problem)
                assert (", but is needed" in problem) is spec.get("required", False), (playbook, problem)
                count += spec.get("required", False)
    assert count > 40


def test_the_table_is_long():
    assert sum(len(values) for _playbook, _spec, values in CASES.values()) > 700


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_each_is_refused(case):
    (name, _kind), (playbook, _spec, values) = case, CASES[case]
    for value in values:
        checked = answers({name: value}, {**ARGUMENTS[playbook]})
        problems = [problem for problem in checked["problems"] if name in problem and "missing required" not in problem]
        assert problems, (playbook, name, value, checked)
        assert all(len(problem) < 700 for problem in problems), problems


FRONT = {
    "fexdisk_vm": "flexdisk_vm",
    "flxedisk_vm": "flexdisk_vm",
    "lfexdisk_vm": "flexdisk_vm",
    "gflexdisk_vm": "flexdisk_vm",
    "felxible_disks_pool": "flexible_disks_pool",
    "lexible_disks_pool": "flexible_disks_pool",
    "glexible_disks_allow_restart": "flexible_disks_allow_restart",
    "vritual_machine_hypervisor": "virtual_machine_hypervisor",
    "irtual_machine_hypervisor": "virtual_machine_hypervisor",
    "nistance_group_hypervisor": "instance_group_hypervisor",
}


@pytest.mark.parametrize("name", FRONT)
def test_wrong_letters_in_front_are_found(name):
    problems = [problem for playbook in ARGUMENTS for problem in unknown_variables([name], playbook, READERS)]
    assert problems
    assert all(problem.startswith(f"{name} is unknown. Did you mean {FRONT[name]}?") for problem in problems), problems


@pytest.mark.parametrize(
    "name",
    [*OWN, "vertical_vm", "flexdata_vm", "exdisk", "flexdis", "felxible", "vritual", "instances_group", "feldisk_vm"],
)
def test_names_of_a_users_own_are_not_refused(name):
    assert [problem for playbook in ARGUMENTS for problem in unknown_variables([name], playbook, READERS)] == []


@pytest.mark.parametrize("playbook", ARGUMENTS)
def test_each_misspelt_variable_is_found(playbook):
    """A letter is missing, doubled, or has changed its place with the next. Names so made may be others that exist."""
    known = {name for specification in ARGUMENTS.values() for name in specification}.union(
        VARS["_flexdisk_left"], VARS["_flexdisk_of_roles"]
    )
    count = 0
    for name in ARGUMENTS[playbook]:
        at = len(name) - 3
        made = {
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :],
        }
        for misspelt in made - known:
            problems = unknown_variables([misspelt], playbook, READERS)
            assert [problem for problem in problems if f"{misspelt} is unknown" in problem], misspelt
            count += 1
    assert count >= len(ARGUMENTS[playbook])
    assert (
        unknown_variables(["flex", "virtual_hosts", "vm_memory", "instance_id", "ansible_host"], playbook, READERS)
        == []
    )
    assert unknown_variables([*known], "grow_guests", Readers({**VARS, "_flexdisk_choosing": "nothing"})) == []
