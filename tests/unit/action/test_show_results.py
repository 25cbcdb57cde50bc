# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action show_results: its documentation, what it shows of a play, and how it fails."""

from __future__ import annotations

import json
import re
import subprocess

import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import show_results
from ansible_collections.flexdisk.hypervisor.plugins.modules import show_results as documented

from .actions import plain, playbook

STATUS: dict[str, list[object]] = {"half_done": [], "vms": [], "transfers": [], "pools": []}


def play(tmp_path, about, result, **meant):
    """The status and the output of a play that shows the result of a task."""
    fact = {"ansible.builtin.set_fact": {"_flexdisk": meant, "result": result}}
    task = {"flexdisk.hypervisor.show_results": {"about": about, "results": ["result"]}}
    command, env = playbook(tmp_path, fact, task)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(show_results.ARGUMENTS)


def test_lines_are_shown(tmp_path):
    status, printed = play(tmp_path, "status", STATUS)
    assert status == 0, printed
    assert '"nothing is half done on 1 host"' in printed


PLAN = {"msg": "evacuate: 1 VM moves\nmore", "table": ["a  hv01"], "unread": {"hv02": "away"}, "jobs": [1],
        "digest": "1f", "moved": [], "failures": [], "score": {}}  # fmt: skip


def test_a_plan_of_moves_is_a_table_or_json(tmp_path):
    status, printed = play(tmp_path / "a", "moves", PLAN)
    assert status == 0, printed
    lines = ["evacuate: 1 VM moves", "a  hv01", "hv02 could not be read: away", "digest 1f"]
    assert [line for line in lines if f'"{line}"' not in printed] == []
    assert "digest" not in play(tmp_path / "b", "moves", {**PLAN, "jobs": []})[1]
    printed = play(tmp_path / "c", "moves", PLAN, flexdisk_move_format="json")[1]
    shown = json.loads(re.search(r'"msg": (\{\n.*?\n    \})', printed, re.DOTALL)[1])
    assert shown == {key: value for key, value in PLAN.items() if key not in ("msg", "table")}


def test_without_lines_it_is_skipped(tmp_path):
    status, printed = play(tmp_path, "failures", {})
    assert (status, "skipping: [nowhere.invalid]" in printed) == (0, True), printed


def test_a_playbook_that_fails_shows_the_lines_and_the_reason(tmp_path):
    findings = {"repaired": [], "findings": [], "counts": {"error": 1, "warning": 0}}
    status, printed = play(tmp_path, "findings", findings, flexdisk_verify_fail_on="error")
    assert status == 2
    assert '"nothing is wrong"' in printed
    assert '"msg": "1 finding"' in printed


def test_what_no_playbook_gives_is_an_error_in_words(tmp_path):
    status, printed = play(tmp_path, "status", {"msg": "skipped"})
    assert status == 2
    assert "show_results wants what the playbooks of flexdisk.hypervisor give it (KeyError(" in printed


def test_pages_need_a_path(tmp_path):
    status, printed = play(tmp_path, "pages", {})
    assert (status, "about is pages but all of the following are missing: path" in printed) == (2, True), printed
