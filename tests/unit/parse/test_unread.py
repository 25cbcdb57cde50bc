# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of -e that a playbook does not read: each is refused, of each playbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible.utils import vars as of_ansible

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.unread import Readers, problems
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _extra
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import unknown_variables

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
VARS = yaml.safe_load((PLAYBOOKS / "vars" / "arguments.yml").read_text())
READERS = Readers(VARS)
TARGET = {"flexdisk_target": "hv02"}
SAID = [
    "flexdisk_target is not read by evacuate_host, but by failover_vm, move_vm, restore_disk, restore_vm. Leave it out"
]


@pytest.mark.parametrize("playbook", VARS["_flexdisk_arguments"])
def test_each_variable_is_read_or_refused(playbook):
    variables = VARS["_flexdisk_arguments"][playbook]
    roles = tuple(role + "_" for role in VARS["_flexdisk_roles"].get(playbook, ()))
    for name in READERS.known:
        beside = {other: values[0] for other, values in variables.get(name, {}).get("only", {}).items()}
        texts = problems({name: "x", **beside}, [playbook], READERS)
        if name in variables or (name.startswith(roles or "?") and name in VARS["_flexdisk_of_roles"]):
            assert texts == []
        else:
            (text,) = texts
            assert text.startswith(f"{name} is not read by {playbook}")


@pytest.mark.parametrize(
    ("extra", "playbooks", "expected"),
    [
        (TARGET, ["evacuate_host"], SAID),
        ({"flexdisk_target": None}, ["evacuate_host"], []),
        (TARGET, ["evacuate_host", "move_vm"], []),
        ({"flexible_disks_only": " "}, ["converge"], ["flexible_disks_only is empty. Leave it out instead"]),
        ({**TARGET, "awx_workflow_job_id": 7}, ["evacuate_host"], []),
        ({"my_target": "x", "ansible_user": "x"}, ["evacuate_host"], []),
        (
            {"flexible_disks_allow_restart": True},
            ["move_vm"],
            [
                "flexible_disks_allow_restart is not read by move_vm, but by add_disk, apply, attach_disk, converge, "
                "detach_disk, and 4 more playbooks. Leave it out"
            ],
        ),
        (
            {"flexdisk_old_host": "hv01", "flexdisk_failover_state": "stays"},
            ["failover_vm"],
            ["flexdisk_old_host works only with flexdisk_failover_state=returned or given_up, but that is stays"],
        ),
        ({"flexdisk_old_host": "hv01", "flexdisk_failover_state": "returned"}, ["failover_vm"], []),
        (
            {"flexdisk_adopt_papers": "/srv"},
            ["adopt"],
            ["flexdisk_adopt_papers works only with flexdisk_adopt_state=released, but that is adopted"],
        ),
        ({"flexdisk_adopt_papers": "/srv", "flexdisk_adopt_state": "relased"}, ["adopt"], []),
        ({"flexdisk_forget_unseen": True}, ["move_vm", "replicate"], []),
        (
            {"flexdisk_move_max_moves": 3, "flexdisk_move_request": "evacuate"},
            ["plan_moves"],
            ["flexdisk_move_max_moves works only with flexdisk_move_request=rebalance, but that is evacuate"],
        ),
        (
            {"indestructible": False, "destroy_disks": True},
            ["report"],
            [
                f"{name} is an option of modules, which report does not read. Leave it out"
                for name in ("destroy_disks", "indestructible")
            ],
        ),
        ({"destroy_disks": True}, ["delete_vm"], []),  # where it is told how the playbook has it
        ({"flexdisk_report": 1}, ["report"], ["flexdisk_report is not read by report. Leave it out"]),
    ],
)
def test_what_is_said(extra, playbooks, expected):
    assert problems(extra, playbooks, READERS) == expected


def test_the_first_choice_is_what_a_playbook_takes():
    """Without the variable with which others count."""
    choosers = {
        (playbook, other)
        for playbook, variables in VARS["_flexdisk_arguments"].items()
        for spec in variables.values()
        for other in spec.get("only", {})
    }
    assert len(choosers) == 5
    for playbook, other in choosers:
        spec = VARS["_flexdisk_arguments"][playbook][other]
        if spec.get("required"):
            continue
        text = (PLAYBOOKS / f"{playbook}.yml").read_text()
        text += "".join((PLAYBOOKS / "tasks" / name).read_text() for name in re.findall(r"\btasks/(\w+\.yml)", text))
        if f'state: "{{{{ _flexdisk.{other} | default(omit) }}}}"' in text:  # then the module has the default
            (module,) = re.findall(r"flexdisk\.hypervisor\.(\w+):\n(?:        .*\n)*?        state: ", text)
            source = (PLAYBOOKS.parent / "plugins" / "modules" / f"{module}.py").read_text()
            assert f'"state": {{"type": "str", "default": "{spec["choices"][0]}"' in source, playbook
        else:
            assert f"_flexdisk.{other} | default('{spec['choices'][0]}')" in text, playbook


@pytest.fixture
def started(monkeypatch):
    """As if Ansible had been started so."""

    def start(extra, *arguments):
        monkeypatch.setattr(context, "CLIARGS", ImmutableDict(args=arguments))
        monkeypatch.setattr(of_ansible.load_extra_vars, "extra_vars", extra, raising=False)

    return start


def test_a_run_of_our_playbooks_alone(started, tmp_path):
    """A play of somebody else may read what ours do not."""
    started(TARGET, "flexdisk.hypervisor.evacuate_host")
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == SAID
    assert _extra.variables() == TARGET
    started(TARGET, str(PLAYBOOKS / "evacuate_host.yml"))
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == SAID
    site = tmp_path / "site.yml"
    site.write_text("- name: Empty it\n  ansible.builtin.import_playbook: flexdisk.hypervisor.evacuate_host\n")
    started(TARGET, str(site))
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == SAID
    started(TARGET, str(site), "flexdisk.hypervisor.move_vm")
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == []
    site.write_text(site.read_text() + "- name: Other work\n  hosts: all\n")
    assert _extra.playbooks() is None
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == []


def test_without_extra_variables_the_inventory_may_have_more(started):
    started({}, "flexdisk.hypervisor.evacuate_host")
    assert unknown_variables([*TARGET], "evacuate_host", READERS) == []
