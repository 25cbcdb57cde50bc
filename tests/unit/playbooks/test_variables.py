# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the playbooks: what is wrong is refused in words before a host is reached, and all is documented."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.filter.disk_table import FIELDS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_info import (
    STATES,
    TYPES,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import MAX_MEMBERS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.declared import TAKES
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
VARS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())
ARGUMENTS = VARS["_flexdisk_arguments"]
OURS = r"\b(?:flexdisk|disk_registry|flexible_disks|virtual_machine|instance_group)_[a-z_0-9]+"
LEFT_BY_ROLES = {"flexible_disks_plan", "flexible_disks_result", "virtual_machine_result"}
TWO = [{"vm": "n1"}, {"name": "n2"}]
WEB = {"name": "web", "size": 2, "template": {"package": "small"}}
EVERYWHERE = {
    "flexdisk_hosts",
    "flexdisk_environment",
    "flexdisk_progress",
    "flexdisk_host_count",
    *VARS["_flexdisk_placement"],
}


def parts(path):
    """Header and tasks of a playbook."""
    header, play = path.read_text().split("\n- name: ", 1)
    return header.split("\n# Usage: ")[1], play


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_variable_is_checked_and_documented(path):
    header, play = parts(path)
    handed = set(re.findall(rf"^ +({OURS}): ", play, re.MULTILINE))  # to a role
    used = set(re.findall(OURS, play)) - handed - {path.stem, *VARS["_flexdisk_left"], *LEFT_BY_ROLES}
    known = set(ARGUMENTS[path.stem])
    assert used <= known, used - known
    told = set(re.findall(OURS, header)) - {path.stem}
    assert known - EVERYWHERE <= told
    assert {name for name in told if name.startswith("flexdisk_")} <= known | set(VARS["_flexdisk_left"])
    assert re.search(rf"^ +(_flexdisk_)?playbook: {path.stem}$", play, re.MULTILINE)


def test_truth_in_roles_may_be_text():
    """An INI inventory has only text, and "false" is true. Modules read it by themselves."""
    options = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        options.update(yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"])
    names = "|".join(name for name, spec in options.items() if spec["type"] == "bool")
    odd = [
        f"{path.parts[-3]}/{path.name}: {line.strip()}"
        for path in [*(ROOT / "roles").glob("*/tasks/*.yml"), *(ROOT / "roles").glob("*/vars/*.yml")]
        for line in path.read_text().splitlines()
        for _one in re.finditer(rf"(?<!set )(?<!')\b(?:{names})\b(?! \| bool| \}}\}}\"$|:)", line.partition(" # ")[0])
    ]
    assert odd == []


def test_names_that_roles_have():
    """What they read, and what they leave."""
    kinds = "|".join(sorted(path.name for path in (ROOT / "roles").iterdir()))
    texts = [path.read_text() for path in (ROOT / "roles").glob("*/tasks/*.yml")]
    left = {name for text in texts for name in re.findall(rf"(?:register: |^ +)((?:{kinds})_\w+)(?::|$)", text, re.M)}
    specs = [yaml.safe_load(path.read_text()) for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")]
    read = {name for spec in specs for name in spec["argument_specs"]["main"]["options"]}
    assert sorted(left | read) == sorted(VARS["_flexdisk_of_roles"])


def test_no_play_has_vars_files():
    """Ansible parses them again for every task of every host."""
    plays = [play for path in (ROOT / "playbooks").rglob("*.yml") for play in yaml.safe_load(path.read_text())]
    assert [play["name"] for play in plays if "vars_files" in play] == []


def test_playbooks_that_move_read_what_their_requests_take():
    """The module refuses the others in its own words."""
    names = {"vms": "vms", "vm_tags": "tags"}
    plays = {"evacuate": "evacuate_host", "change_group": "change_group", "rebalance": "rebalance"}
    every = {f"flexdisk_move_{names.get(key, key)}" for request in plays for key in TAKES[request]}
    for request, playbook in plays.items():
        takes = {f"flexdisk_move_{names.get(key, key)}" for key in TAKES[request]}
        assert every & set(ARGUMENTS[playbook]) == takes
        plans = {name: spec.get("only", {}).get("flexdisk_move_request", plays)
                 for name, spec in ARGUMENTS["plan_moves"].items()}  # fmt: skip
        assert {name for name in every if request in plans[name]} == takes


def test_sizes_of_groups_are_those_of_the_planner():
    sizes = [ARGUMENTS["scale_group"]["flexdisk_size"], ARGUMENTS["scale_group"]["flexdisk_groups"]["options"]["size"]]
    assert [(size["least"], size["most"]) for size in sizes] == [(0, MAX_MEMBERS)] * 2


def test_choices_are_those_of_the_modules():
    assert ARGUMENTS["verify_disks"]["flexdisk_verify_repair"]["choices"] == list(REPAIRABLE)
    assert ARGUMENTS["list_disks"]["flexdisk_list_state"]["choices"] == list(STATES)
    assert ARGUMENTS["list_disks"]["flexdisk_list_type"]["choices"] == list(TYPES)
    assert ARGUMENTS["list_disks"]["flexdisk_list_fields"]["choices"] == VARS["_flexdisk_fields"] == list(FIELDS)


def test_what_must_not_be_an_empty_list():
    """Each list or dictionary that chooses, but those of which a survey lets choose: AWX makes an empty list of none.
    All others mean the same with nothing in them as without them, or are asked for more.
    """
    words = "adopt_members adopt_vms guests hosts list_sort list_tags move_from_groups move_from_hosts move_tags"
    words += " move_to_groups move_vms power_vms quota_vms replace snapshot_keep snapshot_vms verify_vms"
    found = {name for own in ARGUMENTS.values() for name, spec in own.items() if spec.get("filled")}
    assert found == {f"flexdisk_{word}" for word in words.split()}


def test_roles_of_playbooks_are_those_that_they_run():
    """Also through files of tasks, other playbooks, other roles, and the action that reads the variables of one."""

    def roles_of(path, seen):
        if path in seen:
            return set()
        seen.add(path)
        text = path.read_text()
        names = re.findall(r"_role:\n +name: flexdisk\.hypervisor\.(\w+)", text)
        names += ["flexible_disks"] if "flexdisk.hypervisor.declared_disks:" in text else []
        files = re.findall(r"_(?:tasks|playbook): ([\w/.]+\.yml)", text) + re.findall(
            r"_tasks:\n +file: (\S+\.yml)", text
        )
        inner = [(path.parent / file).resolve() for file in files]
        inner += [file for name in names for file in (ROOT / "roles" / name / "tasks").glob("*.yml")]
        return set(names).union(*(roles_of(file, seen) for file in inner if file.exists()))

    found = {path.stem: roles_of(path, set()) for path in PLAYBOOKS}
    assert {name: sorted(roles) for name, roles in found.items() if roles} == {
        name: sorted(roles) for name, roles in VARS["_flexdisk_roles"].items()
    }


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collections")
    (folder / "ansible_collections" / "flexdisk").mkdir(parents=True)
    (folder / "ansible_collections" / "flexdisk" / "hypervisor").symlink_to(ROOT)
    return folder


def play(collections, name, variables, *words):
    """What the playbook says; it fails before it reaches a host."""
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "hv01,", "-c", "ssh"]
    command += ["-e", "flexdisk_hosts=all", "-e", json.dumps(variables), *words, "flexdisk.hypervisor." + name]
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_NOCOLOR="1")
    done = subprocess.run(command, env=env, cwd=collections, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return re.search(r'"msg": "(.*?)"}$', done.stdout, re.MULTILINE)[1]


@pytest.mark.parametrize(
    ("name", "variables", "words"),
    [
        ("report", {"flexdisk_report_format": "xml"}, ["flexdisk_report_format", "table, json", "xml"]),
        ("delete_vm", {"flexdisk_destroy_disk": True}, ["flexdisk_destroy_disk is unknown", "flexdisk_destroy_disks"]),
        ("delete_vm", {"flexdisk_destroy_disks": "maybe"}, ["missing", "flexdisk_vm", "_disks", "maybe"]),
        ("attach_disk", {"flexdisk_index": "first"}, ["flexdisk_disk", "flexdisk_vm", "flexdisk_index", "first"]),
        ("change_package", {"flexdisk_packages": [{"disk": 1}]}, ["flexdisk_vm", "name found in flexdisk_packages"]),
        ("rollback", {"flexdisk_vm": "web01"}, ["flexdisk_snapshot_name"]),
        ("apply", {"flexdisk_vm": "web01"}, ["missing", "flexdisk_plan_digests"]),
        ("move_vm", {"flexdisk_vm": "web01", "flexdisk_target": "localhost"}, ["localhost is none of the hyper"]),
        ("failover_vm", {"flexdisk_vm": "a", "flexdisk_target": "hv9"}, ["flexdisk_target: hv9 is none of"]),
        ("replicate", {"flexdisk_vm": "web01", "flexdisk_replica_host": "localhost"}, ["_replica_host: localhost"]),
        ("replicate", {"flexdisk_replicas": [{"vm": "web01", "host": "hv9"}]}, ["replicas, vm web01: hv9 is none"]),
        ("apply", {"flexdisk_plan_digests": "{hv01"}, ["flexdisk_plan_digests must be a dict", "neither JSON"]),
        ("apply", {"flexdisk_plan_digests": "hv9=a"}, ["hv9 is in flexdisk_plan_digests, but not in the inv"]),
        ("scale_group", {"flexdisk_group": "web", "flexdisk_size": "1e3"}, ["flexdisk_size is 1e3", "digits only"]),
        ("apply", {"flexdisk_plan_digests": {"hv9": "a"}}, ["hv9 is in flexdisk_plan_digests, but not in the inv"]),
        ("add_disk", {"flexdisk_disk_size": 50}, ["missing", "flexdisk_vm", "flexdisk_disk_size must be text"]),
        ("resize_disk", {"flexdisk_dangerous_allow_shrink": "maybe"}, ["flexdisk_disk_size", "maybe"]),
        ("remove_disk", {"flexdisk_vm": "web01", "flexdisk_list_vm": "x"}, ["flexdisk_disk", "_list_vm is unknown"]),
        ("rollback", {"flexdisk_snapshot_name": "now"}, ["flexdisk_vm", "flexdisk_snapshot_vms"]),
        ("snapshot", {"flexdisk_vm": "web01", "flexdisk_snapshot_vms": ["web01"]}, ["but not both"]),
        ("verify_disks", {"flexdisk_verify_fail_on": "info"}, ["_fail_on", "never, warning, error", "info"]),
        ("verify_disks", {"flexdisk_verify_repair": ["quota"]}, ["flexdisk_verify_repair", "quota_drift"]),
        ("list_disks", {"flexdisk_list_state": "parked"}, ["flexdisk_list_state", "detached", "parked"]),
        ("snapshot", {"flexdisk_vm": " ", "flexible_disks_pool": ""}, ["flexdisk_vm is empty", "_pool is empty"]),
        ("list_disks", {"flexible_disks_hypervisor": "xen"}, ["flexible_disks_hypervisor", "vmadm", "xen"]),
        ("adopt", {"flexdisk_adopt_vms": [{"disks": []}]}, ["vm found in flexdisk_adopt_vms"]),
        ("create_vm", {"flexdisk_vm": "n9", "virtual_machine_vms": TWO}, ["n9 is declared for none of hv01", "n1, n2"]),
        ("adopt", {"flexdisk_vm": "web01"}, ["flexdisk_vm is unknown", "flexdisk_adopt_vms"]),
        ("converge", {"flexdisk_vm": "web01"}, ["flexdisk_vm is unknown"]),
        ("verify_disks", {"flexdisk_quota_vms": ["web01"]}, ["flexdisk_quota_vms is unknown", "flexdisk_verify_vms"]),
        ("adopt", {"flexdisk_adopt_vms": [{"vm": 12345678}]}, ["vms[0].vm must be text", "12345678"]),
        ("adopt", {"flexdisk_adopt_vms": [{"vm": " a"}]}, ["without blanks", " a"]),
        ("update_group", {"flexdisk_groups": [WEB]}, ["missing", "flexdisk_group"]),
        ("update_group", {"flexdisk_group": "db"}, ["group db is declared 0 times", "flexdisk_groups has no group"]),
        ("update_group", {"flexdisk_group": "db", "flexdisk_groups": [WEB, {**WEB, "name": "api"}]},
         ["group db is declared 0 times", "flexdisk_groups has api, web."]),
        ("restart_group", {"flexdisk_group": "web", "flexdisk_groups": [WEB, WEB]}, ["group web is declared 2 times"]),
        ("update_group", {"flexdisk_group": "web", "flexdisk_groups": [{**WEB, "poliy": {}}]}, ["poliy", "policy"]),
        ("restart_group", {"flexdisk_group": "web", "flexdisk_groups": [{"name": "web", "size": "two"}]},
         ["template found in flexdisk_groups", "two"]),
        ("scale_group", {"flexdisk_group": "web", "flexdisk_groups": [WEB]}, ["missing", "flexdisk_size"]),
        ("scale_group", {"flexdisk_group": "web", "flexdisk_size": "more", "flexdisk_groups": [WEB]}, ["more"]),
        ("grow_guests", {"flexdisk_guests": "all", "flexdisk_vm": "web01"},
         ["flexdisk_hosts is unknown", "flexdisk_guests", "argument 'flexdisk_vm'", "dict"]),
        ("add_disk", {"flexible_disk_allow_restart": True}, ["Did you mean flexible_disks_allow_restart?"]),
        ("add_disk", {"allow_restart": True}, ["allow_restart is an option of modules", "disks_allow_restart"]),
        ("restart_group", {"flexdisk_generation": " "}, ["flexdisk_generation is empty"]),
        ("restart_group", {"flexdisk_replace": []}, ["flexdisk_replace is an empty list"]),
        ("move_vm", {"flexdisk_vm": "a", "flexdisk_target_pool": ""}, ["flexdisk_target_pool is empty"]),
        ("move_vm", {"flexdisk_vm": "a", "flexdisk_move_state": ""}, ["flexdisk_move_state is empty"]),
        ("failover_vm", {"flexdisk_vm": "a", "flexdisk_old_host": ""}, ["flexdisk_old_host is empty"]),
        ("snapshot", {"flexdisk_snapshot_vms": []}, ["flexdisk_snapshot_vms is an empty list"]),
        ("verify_disks", {"flexdisk_verify_vms": []}, ["flexdisk_verify_vms is an empty list"]),
        ("update_group", {"flexdisk_group": "web", "flexdisk_groups": [{**WEB, "hosts": ""}]},
         ["flexdisk_groups[0].hosts is empty"]),
        ("converge", {"flexible_disks_only": ""}, ["flexible_disks_only is empty"]),
        ("converge", {"flexible_disks_vms": None}, ["flexible_disks_vms is empty. Leave it out"]),
        ("converge", {"flexible_disks_vms": [{"vm": "web01", "diskss": []}]},
         ["flexible_disks_vms[0].diskss (web01) is unknown. Did you mean disks?"]),
        ("add_disk", {"flexdisk_vm": "", "flexdisk_disk": "a", "flexdisk_disk_size": "1GiB"},
         ["flexdisk_vm is empty, but is needed"]),
        ("evacuate_host", {"flexdisk_move_from_hosts": []}, ["_from_hosts is an empty list, but is needed"]),
        ("evacuate_host", {"flexdisk_move_from_hosts": "hv01", "flexdisk_target": "hv02"},
         ["flexdisk_target is not read by evacuate_host, but by failover_vm, move_vm, restore_disk, restore_vm. "
          "Leave it out"]),
        ("evacuate_host", {"flexdisk_move_from_hosts": "hv01", "flexdisk_move_max_moves": 3},
         ["flexdisk_move_max_moves is not read by evacuate_host, but by plan_moves, rebalance. Leave it out"]),
        ("list_disks", {"flexdisk_list_long": True, "flexdisk_list_fields": ["name"]}, ["leave one of them out"]),
        ("change_package", {"virtual_machine_allow_restart": True},
         ["virtual_machine_allow_restart is not read by change_package, but by create_vm. Leave it out"]),
        ("adopt", {"flexdisk_adopt_forget": True}, ["_forget works only with flexdisk_adopt_state=released"]),
        ("replicate", {"flexdisk_vm": "a", "flexdisk_replica_host": "hv01", "flexdisk_replica_state": "absent",
                       "flexdisk_failover": True}, ["flexdisk_failover=true needs the replicas"]),
        ("delete_vm", {"flexdisk_vm": "a", "indestructible": False},
         ["indestructible is an option of modules, which delete_vm does not read. Leave it out"]),
        ("create_vm", {"flexible_disks_libvirt_uri": "x"}, ["Use virtual_machine_libvirt_uri"]),
        ("update_group", {"flexdisk_most_steps": -1}, ["flexdisk_most_steps is -1, but must be at least 1"]),
        ("scale_group", {"flexdisk_size": 10**18}, ["flexdisk_size is 1000000000000000000, but must be 0 to 10000"]),
        ("move_vm", {"flexdisk_transfer_authorized_keys": "../../keys"}, ["but must be an absolute path"]),
        ("move_vm", {"flexdisk_transfer_address": "-oProxyCommand=x"}, ["must be a name or an IP address"]),
    ],
)  # fmt: skip
def test_wrong_variables_are_refused(collections, name, variables, words):
    said = play(collections, name, variables)
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize("limit", ["", " , "])
def test_an_empty_limit_is_not_all_hosts(collections, limit):
    assert "--limit is empty" in play(collections, "converge", {}, "--limit", limit)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (
            "report",
            ["-e", "flexdisk_hosts=nosuch"],
            "host of the inventory fits nosuch. Nothing was done. flexdisk_hosts",
        ),
        ("evacuate_host", ["-e", "flexdisk_hosts=localhost"], "no host of the inventory fits localhost"),
        (
            "delete_vm",
            ["-e", "flexdisk_hosts=hv01", "--limit", "hv02"],
            "hv02 leaves none of the hosts that fit hv01",
        ),
        ("report", [], "no host of the inventory fits hypervisors"),
        ("grow_guests", ["-e", "flexdisk_guests=web9"], "fits web9. Nothing was done. flexdisk_guests says which"),
    ],
)
def test_a_run_that_would_have_no_host_fails(collections, name, words, said):
    """Ansible skips such a play, and succeeds."""
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "hv01,hv02", f"flexdisk.hypervisor.{name}", *words]
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_NOCOLOR="1")
    done = subprocess.run(command, env=env, cwd=collections, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    assert said in " ".join((done.stdout + done.stderr).split())
    assert "TASK" not in done.stdout


def test_every_playbook_refuses_to_have_no_host():
    playbooks = [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "playbooks" / "parts").glob("*.yml")]
    plays = [play for path in playbooks for play in yaml.safe_load(path.read_text()) if "hosts" in play]
    jobs = [play for play in plays if play["name"] == "Carry out moves"]  # of a run that has hosts
    assert len(jobs) == 1
    assert [play["name"] for play in plays if "play_hosts(groups, ansible_limit" not in play["hosts"]] == [
        jobs[0]["name"]
    ]
