# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs of a plan of moves: which of them are begun."""

from __future__ import annotations

import json

import yaml

from .nodes import ROOT, Nodes

JOBS = {"job1": {"fine": True}, "job2": {"fine": False}, "job3": None}


def test_a_job_waits_for_those_that_it_needs_to_have_ended_well(tmp_path):
    """One that has ended badly has not made the room that the next one takes."""
    nodes = Nodes(tmp_path, {})
    move = {"do": "move", "vm": "u", "from": "hv01", "to": "hv02", "pool": "", "why": ""}
    hosts = {name: {"_flexdisk_ended": end} if end else {} for name, end in JOBS.items()}
    hosts["job4"] = {"_flexdisk_job": {"needs": list(JOBS), "move": move}, "ansible_connection": "local"}
    inventory = tmp_path / "jobs.yml"
    inventory.write_text(yaml.safe_dump({"flexdisk_planned": {"hosts": hosts}}))
    play = {"hosts": "job4", "gather_facts": False, "vars": {"_flexdisk_stage": "planned"}}
    ended = {"ansible.builtin.debug": {"msg": "ended: {{ _flexdisk_ended.words }}"}}
    tasks = [{"ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "carry_out_move.yml")}, ended]
    book = tmp_path / "book.yml"
    book.write_text(json.dumps([{**play, "tasks": tasks}]))
    status, printed = nodes.play(str(book), "-i", str(inventory))
    assert status == 0, printed
    assert "ended: it needs that of job2 and job3" in printed
