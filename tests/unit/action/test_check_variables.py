# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action check_variables: what it takes of the variables of a host, what it says, and what it keeps to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import check_variables
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse import layout
from ansible_collections.flexdisk.hypervisor.plugins.modules import check_variables as documented

from .actions import ROOT, plain

COLUMNS = ["vm", "name", "size"]


def play(tmp_path, playbook, variables, *words, extra=None):
    """The status, and what a play says that checks the variables of a host, and shows what they mean."""
    link = tmp_path / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
    link.parent.mkdir(parents=True)
    link.symlink_to(ROOT)
    task = {"flexdisk.hypervisor.check_variables": {"playbook": playbook}, "register": "_flexdisk"}
    then = {"ansible.builtin.debug": {"msg": "{{ 'MEANT' ~ _flexdisk | to_json }}"}}
    book, inventory = tmp_path / "book.yml", tmp_path / "inventory.yml"
    book.write_text(yaml.safe_dump([{"name": "P", "hosts": "all", "gather_facts": False, "tasks": [task, then]}]))
    inventory.write_text(yaml.safe_dump({"hypervisors": {"hosts": {"hv01": variables}}}))
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", str(inventory), *words, str(book)]
    command += ["-e", json.dumps(extra)] if extra else []
    env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def meant(said):
    (line,) = [line for line in said.splitlines() if '"MEANT' in line]
    text = json.loads("{" + line.strip() + "}")["msg"].removeprefix("MEANT")
    return {key: value for key, value in json.loads(text).items() if key not in ("changed", "failed", "stands")}


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(check_variables.ARGUMENTS)


def test_a_variable_has_one_meaning_wherever_it_is_set(tmp_path):
    """Templates are resolved, what is omitted is not set, and -e wins."""
    given = {
        "flexible_disks_pool": "{{ omit }}",
        "flexible_disks_libvirt_uri": "{{ uri }}",
        "uri": "qemu:///{{ inventory_hostname }}",
        "flexdisk_disk_size": "1GiB",
        "flexible_disks_allow_restart": "no",
        "flexible_disks_stop_timeout": "PT2M",
        "flexdisk_environment": {"A": "{{ omit }}", "B": "b"},
    }
    extra = {"flexdisk_disk_size": "2GiB", "flexdisk_vm": "web01", "flexdisk_disk": "{{ 'da' ~ 'ta' }}"}
    status, said = play(tmp_path, "resize_disk", given, extra=extra)
    assert status == 0, said
    assert meant(said) == {
        "flexdisk_vm": "web01",
        "flexdisk_disk": "data",
        "flexdisk_disk_size": "2GiB",
        "flexible_disks_libvirt_uri": "qemu:///hv01",
        "flexible_disks_allow_restart": False,
        "flexible_disks_stop_timeout": 120,
        "flexdisk_environment": ["B"],
    }


def test_each_host_but_the_first_keeps_its_own_digest():
    """Otherwise a run of apply would keep as many digests as hosts times hosts."""
    whole = {"flexdisk_plan_digests": {"hv01": "a", "hv02": "b", "hv03": "c"}, "flexdisk_vm": "web01"}
    specification = check_variables.specifications().arguments["apply"]

    def kept(host, hosts):
        known = {"inventory_hostname": host, "ansible_play_hosts_all": hosts}
        return check_variables._of_host(whole, specification, known)

    assert kept("hv01", ["hv01", "hv02"]) == whole
    assert kept("hv02", ["hv01", "hv02"]) == {**whole, "flexdisk_plan_digests": {"hv02": "b"}}
    assert kept("hv04", ["hv01", "hv04"]) == {**whole, "flexdisk_plan_digests": {}}
    assert kept("hv01", []) == whole


def test_the_variables_of_others_are_not_read(tmp_path):
    """They may be slow, or fail."""
    others = {
        "theirs": "{{ nosuch }}",
        "flexible_disks_pool": "{{ lookup('pipe', 'touch ' ~ inventory_dir ~ '/read') }}",
    }
    status, said = play(tmp_path, "converge", others)
    assert (status, meant(said), (tmp_path / "read").exists()) == (0, {}, False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{ nosuch }}", "The variable flexible_disks_vms cannot be read: 'nosuch' is undefined"),
        ("{{ 1 / 0 }}", "The variable flexible_disks_vms cannot be read: Error rendering template: division by zero"),
    ],
)
def test_a_template_that_fails_is_named(tmp_path, value, words):
    status, said = play(tmp_path, "converge", {"flexible_disks_vms": [{"vm": value, "disks": []}]})
    assert status == 2
    assert words in said


def test_secrets_are_not_shown_and_refusals_are(tmp_path):
    given = {"virtual_machine_vms": [{"name": "web01", "secret_metadata": {"root_pw": "hidden-one"}}]}
    status, said = play(tmp_path / "a", "create_vm", given, "-vvv")
    shown = [line for line in said.splitlines() if "hidden-one" in line and "MEANT" not in line]
    assert (status, shown, said.count("the output has been hidden")) == (0, [], 1)
    status, said = play(tmp_path / "b", "create_vm", {**given, "flexdisk_vmm": "x"}, "-vvv")
    assert (status, "hidden-one" in said, "flexdisk_vmm is unknown" in said) == (2, False, True)
    given["virtual_machine_vms"].append({"name": "{{ nosuch('hidden-one') }}"})
    status, said = play(tmp_path / "c", "create_vm", given, "-vvv")
    assert (status, "hidden-one" in said, "The variable virtual_machine_vms cannot be read" in said) == (2, False, True)


def test_the_values_of_environment_variables_are_not_shown(tmp_path):
    """They may be tokens. Their names are no secret, and say at -v what the tasks get."""
    given = {"flexdisk_environment": {"HTTPS_PROXY": "http://u:hidden-one@proxy", "PATH": "/hidden-two"}}
    status, said = play(tmp_path, "plan", given, "-vvv")
    assert status == 0, said
    assert meant(said)["flexdisk_environment"] == ["HTTPS_PROXY", "PATH"]
    assert "hidden" not in said


def test_it_notes_which_results_are_failures_of_an_earlier_play(tmp_path):
    """So that they are not taken for those of this play. Templates are not read."""
    given = {
        "flexible_disks_result": {"failed": True, "msg": "it is full"},
        "_flexdisk_read": {"unreachable": True},
        "flexdisk_list": {"failed": False},
        "flexdisk_quota": "{{ nosuch }}",
        "theirs": {"failed": True},
    }
    status, said = play(tmp_path, "plan", given)
    assert status == 0, said
    (line,) = [line for line in said.splitlines() if '"MEANT' in line]
    stands = json.loads(json.loads("{" + line.strip() + "}")["msg"].removeprefix("MEANT"))["stands"]
    assert sorted(stands["failed_before"]) == ["_flexdisk_read", "flexible_disks_result"]


def test_all_that_is_wrong_is_said_together(tmp_path):
    status, said = play(tmp_path, "move_vm", {}, extra={"flexdisk_target": "localhost", "flexdisk_move_state": "gone"})
    assert status == 2
    parts = (
        "missing required arguments: flexdisk_vm",
        "must be one of: moved",
        "localhost is none of the hypervisors, hv01",
    )
    assert [part for part in parts if part not in said] == [], said


def test_it_wants_the_name_of_a_playbook(tmp_path):
    status, said = play(tmp_path, "nosuch", {})
    assert (status, "check_variables wants the name of a playbook" in said) == (2, True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"flexdisk_list_sort": ["vm", "-size"], "flexdisk_list_format": "json"}, []),
        ({"flexdisk_list_fields": ["vm"], "flexdisk_list_header": False, "flexdisk_list_format": "table"}, []),
        ({"flexdisk_list_sort": ["-vm", "-x", "y"]},
         ["flexdisk_list_sort has x, y, but the columns are vm, name, size"]),
        ({"flexdisk_list_header": True, "flexdisk_list_format": "json"},
         ["flexdisk_list_header works only with a table; flexdisk_list_format=json shows everything"]),
        ({"flexdisk_list_long": False, "flexdisk_list_fields": ["vm"]},
         ["flexdisk_list_fields names the columns, so flexdisk_list_long does nothing; leave one of them out"]),
    ],
)  # fmt: skip
def test_the_layout_of_a_list(variables, expected):
    assert layout.problems(variables, COLUMNS) == expected
