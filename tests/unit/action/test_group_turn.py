# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_turn: its documentation, what of it is shown, and how it fails. fleet/test_turn.py has its turns."""

from __future__ import annotations

import subprocess

import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import group_turn
from ansible_collections.flexdisk.hypervisor.plugins.modules import group_turn as documented
from tests.unit.fleet.cluster import ROLE, group_of

from .actions import plain, playbook

GROUP = {**group_of(1), **ROLE, "hosts": ["nowhere.invalid"], "all_hosts": ["nowhere.invalid"]}


def play(tmp_path, **arguments):
    """The status and the output of a play that takes a turn and shows what was registered."""
    task = {"flexdisk.hypervisor.group_turn": arguments, "register": "turn"}
    then = {"ansible.builtin.debug": {"msg": "next {{ turn.do }} {{ turn.vms | default('') }}"}}
    command, env = playbook(tmp_path, task, then)
    done = subprocess.run([*command, "-vv"], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(group_turn.ARGUMENTS)


def test_what_is_to_be_done_is_registered_but_not_shown(tmp_path):
    """The entries for the module vm have the secrets of the template."""
    status, said = play(tmp_path, group=GROUP)
    assert status == 0, said
    assert "next lease" in said
    assert said.count("the output has been hidden") == 1
    assert "resumes" not in said


def test_a_refusal_is_shown(tmp_path):
    status, said = play(tmp_path, group={**GROUP, "before_step": ["/nowhere/a.yml", "elsewhere.yml"]})
    assert status != 0
    assert "no such task file: /nowhere/a.yml" in said
    assert "elsewhere.yml" not in said.split("no such task file")[1]


def test_a_group_of_a_strange_form_is_an_error_in_words(tmp_path):
    status, said = play(tmp_path, group={"name": "web"})
    assert status != 0
    assert "group_turn wants what flexdisk.hypervisor.instance_group gives it (KeyError('before_step'))" in said
