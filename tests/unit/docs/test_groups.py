# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/groups.md: its commands print what it shows, on two simulated hosts, and its declarations are good ones.

The blocks of tasks at its end are run by action/test_group_plan.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import group_gate
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import (
    OPTIONS,
    parse_policy,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import vm

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8").split("\n## With HAProxy")[0]
ROLE = yaml.safe_load((ROOT / "roles" / "instance_group" / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
OPTIONS_OF_ROLE = ROLE["argument_specs"]["main"]["options"]
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
FRAGMENTS = [block for block in BLOCKS if isinstance(block, dict)]
GROUPS = [group for block in FRAGMENTS for group in block.get("flexdisk_groups", ())]


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import excerpts
    import walk

    return excerpts, walk


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; 8_groups.yml runs the same playbooks")
def test_the_commands_print_what_the_page_shows(tools, tmp_path):
    """Made, given another image in two runs, cleaned up, and larger."""
    excerpts, walk = tools
    shown = []
    for step in walk.groups(tmp_path):
        assert step.status == 0, step
        if step.shown:
            shown.append(step.command)
            assert excerpts.same(step.shown, step.printed), ("tests/tools/renew_excerpts.py writes it", step)
    assert [words.split("flexdisk.hypervisor.")[-1].split()[0] for words in shown][:2] == ["update_group"] * 2
    assert (tmp_path / "groups" / "balancer.txt").read_text() == "web-1 hv02\nweb-0 hv01\nweb-2 hv01\n"


def test_every_fragment_is_of_a_kind_that_is_checked():
    kinds = [sorted(set(block) & {"flexdisk_groups", "policy", "gate", "members"}) for block in FRAGMENTS]
    assert sorted(kind for several in kinds for kind in several) == [
        "flexdisk_groups", "flexdisk_groups", "flexdisk_groups", "gate", "members", "policy",
    ]  # fmt: skip


def test_policies_are_good_and_the_long_one_has_nearly_all():
    policies = [block["policy"] for block in [*FRAGMENTS, *GROUPS] if "policy" in block]
    assert [parse_policy(policy)[1] for policy in policies] == [[]] * len(policies)
    assert set(OPTIONS) - {name for policy in policies for name in policy} == {"max_unavailable", "max_surge"}


def test_groups_are_good():
    for group in GROUPS:
        assert {f"instance_group_{word}" for word in group} <= set(OPTIONS_OF_ROLE)
        assert template.check_template(group["name"], group["template"], {}) == []
        assert set(group["template"]) <= set(vm.VM)


def test_gates_are_good():
    (gate,) = [block["gate"] for block in FRAGMENTS if "gate" in block]
    assert set(gate) == set(OPTIONS_OF_ROLE["instance_group_gate"]["options"])
    assert set(gate["tcp"]) <= set(group_gate.TCP)
    assert set(gate["http"]) <= set(group_gate.HTTP)


def test_own_values_are_good():
    (block,) = [block for block in FRAGMENTS if "members" in block]
    whole = dict(block)
    own = whole.pop("members")
    assert template.check_template("web", whole, own) == []
    assert set(whole) | {word for values in own.values() for word in values} <= {*vm.VM, template.ADDRESS}


def test_the_keys_of_a_hook_are_those_that_members_have():
    table = PAGE.split("| key | meaning |")[1].split("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    words = " ".join(OPTIONS_OF_ROLE["instance_group_before_member"]["description"])
    assert told == set(re.findall(r"C\((\w+)\)", words)) - {"instance_group_member"}
