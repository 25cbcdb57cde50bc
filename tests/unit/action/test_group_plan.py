# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_plan: its documentation, its refusals, and its examples as ansible-playbook runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import group_plan
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.declared import parse_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.plan import plan_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import OPTIONS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import refusal
from ansible_collections.flexdisk.hypervisor.plugins.modules import group_plan as documented

from .actions import plain, playbook

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTATION = yaml.safe_load(documented.DOCUMENTATION)
EXAMPLES = yaml.safe_load(documented.EXAMPLES)
FILTER_EXAMPLES = [
    task
    for name in ("rolling_batches", "duration")
    for task in yaml.safe_load(
        yaml.safe_load((ROOT / "plugins" / "filter" / f"{name}.yml").read_text(encoding="utf-8"))["EXAMPLES"]
    )
]

PAGE = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")
TASKS = PAGE.split("\n## With HAProxy")[0].split("\n## Ask before you roll")[1]  # docs/test_groups.py has the others
BLOCKS = [task for block in re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL) for task in yaml.safe_load(block)]


def test_the_options_are_as_documented():
    assert plain(DOCUMENTATION["options"], told=True) == plain(group_plan.ARGUMENTS)


def test_every_option_of_a_policy_is_documented():
    told = " ".join(DOCUMENTATION["options"]["policy"]["description"])
    assert [name for name in OPTIONS if f"C({name})" not in told] == []


def arguments(**given):
    """Arguments as Ansible hands them over, with every option of members."""
    members = [
        {**{name: spec.get("default") for name, spec in group_plan.MEMBER.items()}, **entry}
        for entry in given.pop("members", ())
    ]
    defaults = {name: spec.get("default") for name, spec in group_plan.ARGUMENTS.items()}
    return {**defaults, "name": "web", "size": 2, "hosts": ["hv01"], **given, "members": members}


def refused(**given):
    declared, problems = parse_group(arguments(**given))
    if not problems:
        problems = plan_group(declared.group, declared.policy, declared.homes).problems
    return refusal(problems, noun="")["msg"].splitlines() if problems else []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name": "we\u202eb"}, "name"),
        ({"hosts": ["h\u202ev01"]}, "hosts"),
        ({"hosts": {"h\u202ev01": 1}}, "hosts"),
        ({"members": [{"name": "web-0", "host": "h\u202ev01"}]}, "host"),
        ({"failed": ["web-\u202e0"]}, "failed"),
    ],
)
def test_names_have_no_hidden_characters(given, what):
    said = refused(**given)
    wanted = "has [U+202E]: a name has no control characters and no invisible ones [InvalidArgument]"
    assert [line for line in said if line.startswith(f'{what} "') and line.endswith(wanted)], said
    assert "\u202e" not in "".join(said)


def test_how_many_members_may_be_deleted():
    three = [{"name": f"web-{index}", "host": f"hv0{index}", "loses": ["root 1 GiB"]} for index in range(3)]
    two = "web-2 on hv02: root 1 GiB destroyed; web-1 on hv01: root 1 GiB destroyed"
    (said,) = refused(size=1, members=three)
    assert said.startswith(
        f"size is 1, so 2 would be deleted, but max_removed is 0: {two}. Write size: 3 to keep them, or max_removed: 2 "
        "in the policy to delete them"
    )
    assert refused(size=1, members=three, policy={"max_removed": 2}) == []
    assert refused(size=1, members=three, only_size=True) == []
    (said,) = refused(size=1, members=three, only_size=True, policy={"max_removed": 1})
    assert "max_removed is 1" in said
    assert "Write -e flexdisk_size=3 to keep them, or max_removed: 2 in" in said
    (said,) = refused(size=2, members=three)
    assert "Write size: 3 to keep it, or max_removed: 1 in the policy to delete it" in said
    (said,) = refused(size=1, members=three, keeps_disks=False)
    assert "but max_removed is 1" in said, "as many as a step makes for a while"
    assert refused(size=1, members=three, keeps_disks=False, policy={"max_batch_size": 2}) == []
    surge = {"min_in_service": 3, "max_batch_size": 1}
    stale = [{**member, "change": "restart"} for member in three]
    assert refused(size=3, members=stale, keeps_disks=False, policy=surge) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"size": -1}, ["size is -1, but must not be negative [InvalidArgument]"]),
        ({"size": 10**18}, [f"size is {10**18}, but a group has at most 10000 members [InvalidArgument]"]),
        ({"members": [{"name": "web-0", "host": "hv01", "destroys": -5}]},
         ["web-0 destroys -5 MiB, but that must not be negative [InvalidArgument]"]),
        ({"hosts": "hv01"}, ["hosts is a list of hosts, or a map from members to hosts; got 'hv01' [InvalidArgument]"]),
        (
            {"members": [{"name": "db-0"}, {"name": "web-00"}]},
            [
                '"db-0" is not a member of web: those are called web-0, web-1 [InvalidArgument]',
                '"web-00" is not a member of web: those are called web-0, web-1 [InvalidArgument]',
            ],
        ),
        (
            {"members": [{"name": "web-0", "host": "hv01"}, {"name": "web-0", "host": "hv02"}]},
            ["web-0 is on several hosts: hv01, hv02 [Ambiguous]"],
        ),
        (
            {"policy": {"Foo": 1, "max_batch_size": 0}, "size": -2},
            [
                "size is -2, but must not be negative [InvalidArgument]",
                f'policy has no option "Foo"; it has {", ".join(OPTIONS)} [InvalidArgument]',
                "max_batch_size: 0 is not a whole number of 1 or more [InvalidArgument]",
            ],
        ),
        ({"members": [{"name": "web-0", "host": "hv01", "change": "refused", "why": ["no image"]}]},
         ["web-0: no image [InvalidArgument]"]),
    ],
)  # fmt: skip
def test_refusals(given, said):
    assert refused(**given) == said


def test_a_table_has_a_line_for_each_member_of_a_step():
    declared, _problems = parse_group(
        arguments(
            size=3,
            hosts=["hv01", "hv02"],
            policy={"max_batch_size": 2, "pause_time": 60},
            members=[{"name": f"web-{n}", "host": f"hv0{n + 1}", "change": "restart"} for n in (0, 1)],
        )
    )
    plan = plan_group(declared.group, declared.policy, declared.homes)
    found = report.result(declared.group, plan)
    assert found["msg"] == "web: 2 steps, 1 created, 2 restarted, 2 at a time, at least 1 of 3 in service, pauses 60 s"
    assert found["table"] == [
        "STEP  MEMBER  HOST  DONE TO IT  IN SERVICE  DESTROYS",
        "1     web-2   hv01  create      1           -",
        "1     web-1   hv02  restart     1           -",
        "2     web-0   hv01  restart     2           -",
    ]
    assert found["next"] == found["steps"][0]


def test_nothing_to_do():
    declared, _problems = parse_group(arguments(size=1, members=[{"name": "web-0", "host": "hv01"}]))
    found = report.result(declared.group, plan_group(declared.group, declared.policy, declared.homes))
    assert (found["done"], found["next"], found["table"]) == (True, {}, [])
    assert found["msg"] == "web: 1 member, nothing to do"


REFUSED = [
    "refused.error_code == 'InvalidArgument'",
    "refused.msg == 'size is -1, but must not be negative [InvalidArgument]'",
    "refused.failures == ['web-0', 'web-1']",
]


def test_examples_documentation_and_a_refusal_run(tmp_path):
    """As a user runs them, on a host that does not exist: nothing is asked of it."""
    tasks = [
        *EXAMPLES,
        *FILTER_EXAMPLES,
        *BLOCKS,
        {
            "flexdisk.hypervisor.group_plan": {"name": "web", "size": -1, "members": [], "failed": ["web-1", "web-0"]},
            "register": "refused",
            "ignore_errors": True,
        },
        {"ansible.builtin.assert": {"that": REFUSED}},
    ]
    command, env = playbook(tmp_path, *tasks)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok={len(tasks)} " in done.stdout
    assert done.stdout.count("All assertions passed") == sum("ansible.builtin.assert" in task for task in tasks)
