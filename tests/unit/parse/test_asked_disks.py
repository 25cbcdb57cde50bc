# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role flexible_disks asks of vm_disks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.flexdisk.hypervisor.plugins.action import declared_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.asked_disks import (
    PASSED,
    PREFIX,
    arguments,
    contradicted,
    refusal,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import declared_disks as documented
from tests.unit.action.actions import plain

ROOT = Path(__file__).resolve().parents[3]
ROLE = yaml.safe_load((ROOT / "roles" / "flexible_disks" / "meta" / "argument_specs.yml").read_text())
OPTIONS = {name[len(PREFIX) :] for name in ROLE["argument_specs"]["main"]["options"]}
HAS = {"only": "", "vms": [{"vm": "a"}, {"vm": "b"}, {"vm": "a"}]}


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(declared_disks.ARGUMENTS)


def test_each_variable_of_the_role_counts():
    assert {"vms", "only", "plan_only", "recalculate_quota", *PASSED} == OPTIONS


def test_the_defaults_of_the_role_are_those_of_its_specification():
    """The action takes them from there."""
    defaults = yaml.safe_load((ROOT / "roles" / "flexible_disks" / "defaults" / "main.yml").read_text())
    options = ROLE["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in options.items() if "default" in option} == defaults


def test_what_is_set_is_passed_on():
    given = {name: name for name in PASSED}
    assert arguments({**HAS, **given}) == {"vms": HAS["vms"], **given}
    assert arguments({**HAS, "only": "b"}) == {"vms": [{"vm": "b"}]}
    assert arguments({**HAS, "expect_plan": None})["expect_plan"] == "", "it approves nothing"


@pytest.mark.parametrize(
    ("variables", "plans_only", "recalculates", "message"),
    [
        ({}, False, True, ""),
        ({}, True, False, ""),
        ({"expect_plan": ""}, True, False, ""),
        ({"only": "b"}, False, False, ""),
        ({"only": "b"}, True, True,
         "flexible_disks_only chooses the disks of the declared VMs only; set flexible_disks_recalculate_quota to fal"),
        ({"expect_plan": ""}, True, True, "flexible_disks_plan_only plans the disks"),
        ({"expect_plan": ""}, False, True, "flexible_disks_expect_plan approves the disks"),
        ({"only": "a"}, False, False,
         "flexible_disks_only is a, which flexible_disks_vms declares 2 times; it has to be there once"),
        ({"only": "c"}, False, False, "flexible_disks_only is c, which flexible_disks_vms declares 0 times"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(variables, plans_only, recalculates, message):
    result = refusal({**HAS, **variables}, plans_only, recalculates)
    assert result.startswith(message)
    assert bool(result) == bool(message)


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ({}, ""),
        ({"flexible_disks_pool": "tank", "flexible_disks_recalculate_quota": "true"}, ""),
        ({"flexible_disks_plan_only": "true"}, "-e flexible_disks_plan_only"),
        ({"flexible_disks_plan_only": "False", "flexible_disks_only": "db"}, ""),
        ({"flexible_disks_only": "web01"}, "-e flexible_disks_only"),
        (
            {"flexible_disks_only": "web01", "flexible_disks_expect_plan": "x"},
            "-e flexible_disks_only and -e flexible_disks_expect_plan",
        ),
    ],
)
def test_extra_variables_that_restrict_are_not_ignored(extra, names):
    given = {"flexible_disks_only": "db", "flexible_disks_plan_only": False, "flexible_disks_expect_plan": "1f"}
    text = contradicted(given, extra)
    assert text.partition(" cannot count here")[0] == names
    assert contradicted({}, extra) == ""


def test_a_host_without_declarations_refuses_as_others_do(monkeypatch):
    """Else the quotas of all its VMs would be set by a task that shall only plan."""
    action = declared_disks.ActionModule(*[None] * 6)
    monkeypatch.setattr(declared_disks._core, "check", lambda: None)
    monkeypatch.setattr(declared_disks._extra, "variables", dict)
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_any: (None, {"step": "change", "variables": {}}))
    variables = {"only": "", "vms": [], "plan_only": "true", "recalculate_quota": "true"}
    monkeypatch.setattr(action, "_variables", lambda *_any: variables)
    with pytest.raises(AnsibleActionFail, match="set flexible_disks_recalculate_quota to false"):
        action.run(None, {})
    variables["recalculate_quota"] = "false"
    assert action.run(None, {})["skipped"]
