# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action host_order: its documentation, what it reads of a play, and how it fails."""

from __future__ import annotations

import subprocess

import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import host_order
from ansible_collections.flexdisk.hypervisor.plugins.modules import host_order as documented
from tests.unit.operators.plays import READ, WEB

from .actions import plain, playbook

GIVEN = {"flexdisk_vm": "web", "flexdisk_disk": "more", "flexdisk_disk_size": "1GiB"}


def play(tmp_path, facts, **arguments):
    """The status and the output of a play that decides and shows what was registered."""
    fact = {"ansible.builtin.set_fact": facts}
    task = {"flexdisk.hypervisor.host_order": {"playbook": "add_disk", **arguments}, "register": "order"}
    then = {"ansible.builtin.debug": {"msg": "calls {{ order.calls }} reads {{ order.reads }}"}}
    command, env = playbook(tmp_path, fact, task, then)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(host_order.ARGUMENTS)


def test_what_was_read_counts_only_when_told_so(tmp_path):
    """It may be that of an earlier play."""
    facts = {"_flexdisk": GIVEN, "_flexdisk_read": READ["hv01"]}
    status, said = play(tmp_path, facts)
    assert status == 0, said
    assert "calls {} reads True" in said


def test_the_call_of_the_host_that_has_the_vm(tmp_path):
    status, said = play(tmp_path, {"_flexdisk": GIVEN, "_flexdisk_read": READ["hv01"]}, read=True)
    assert status == 0, said
    assert f"calls {{'nowhere.invalid': {{'vms': [{{'vm': '{WEB}', 'unlisted': 'keep'" in said


def test_a_refusal_has_all_problems(tmp_path):
    given = {**GIVEN, "flexdisk_disk": "data", "flexible_disks_vms": [{"vm": "web", "disks": []}]}
    status, said = play(tmp_path, {"_flexdisk": given, "_flexdisk_read": READ["hv01"]}, read=True)
    assert status != 0
    assert "The inventory declares the disks of VM web, which is on nowhere.invalid" in said
    assert "the VM has a disk data of 20 GiB already" in said


def test_what_no_playbook_gives_is_an_error_in_words(tmp_path):
    status, said = play(tmp_path, {"_flexdisk": GIVEN, "_flexdisk_read": {"msg": "skipped"}}, read=True)
    assert status != 0
    assert "host_order wants what the playbooks of flexdisk.hypervisor give it (KeyError(" in said


def test_new_vms_are_registered_but_not_shown(tmp_path):
    """Their entries can have secrets."""
    given = {"virtual_machine_vms": [{"name": "new", "options": {"secret_metadata": {"key": "p4ssw0rd"}}}]}
    facts = {"ansible.builtin.set_fact": {"_flexdisk": given}, "no_log": True}
    task = {"flexdisk.hypervisor.host_order": {"playbook": "create_vm"}, "register": "order"}
    then = {"ansible.builtin.debug": {"msg": "makes {{ order.calls['nowhere.invalid'].vms | length }}"}}
    command, env = playbook(tmp_path, facts, task, then)
    done = subprocess.run([*command, "-vv"], env=env, capture_output=True, text=True, check=False)
    assert "makes 1" in done.stdout
    assert "p4ssw0rd" not in done.stdout + done.stderr
