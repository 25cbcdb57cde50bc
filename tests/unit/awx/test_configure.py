# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook over awx.awx makes everything in an AWX, once; a stand-in for its API has AWX's rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from fetched import awx_collection

from .controller import PASSWORD, USER, Controller, Server

ROOT = Path(__file__).resolve().parents[3]
AWX = ROOT / "extensions" / "awx"
FULL = bool(os.environ.get("FLEXDISK_FULL"))
EXPECTED = "has encrypted data and may inaccurately report task is changed"  # of approvals, from the second run on


def objects(kind):
    """Those of a kind, as they are configured."""
    return yaml.safe_load((AWX / "objects" / f"{kind}.yml").read_text())[f"controller_{kind}"]


LAUNCHED = {node["unified_job_template"]["name"] for flow in objects("workflows") for node in flow["workflow_nodes"]}
LAUNCHED |= {schedule["unified_job_template"] for schedule in objects("schedules")}
TEMPLATES = [template for template in objects("templates") if FULL or template["name"] in LAUNCHED]


@pytest.fixture
def server():
    serving = Server(Controller(AWX / "project"))
    yield serving
    serving.stop()


def configure(server, tmp_path, *words):
    """The tasks of a run, each with the states of its objects."""
    (tmp_path / "key").write_text("a private key\n")
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") or "CALLBACK" in name},
        "ANSIBLE_COLLECTIONS_PATH": str(awx_collection()),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(tmp_path / "ansible"),
        "CONTROLLER_HOST": server.url,
        "CONTROLLER_USERNAME": USER,
        "CONTROLLER_PASSWORD": PASSWORD,
    }
    command = [
        sys.executable,
        "-m",
        "ansible.cli.playbook",
        "configure.yml",
        "-e",
        f"flexdisk_awx_ssh_key_file={tmp_path}/key",
    ]
    done = subprocess.run([*command, *words], cwd=AWX, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    warned = [line for line in (done.stdout + done.stderr).splitlines() if "[WARNING]" in line]
    assert [line for line in warned if EXPECTED not in line] == []
    states = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"TASK \[(.*)\]", line):
            states[match[1]] = []
        elif match := re.match(r"(ok|changed): ", line):
            states[list(states)[-1]].append(match[1])
    return states


def some():
    """Words that leave out most templates, which are all alike."""
    settings = yaml.safe_load((AWX / "objects" / "settings.yml").read_text())
    text = json.dumps({"controller_templates": TEMPLATES})
    return ("-e", text.replace("{{ flexdisk_awx_organization }}", settings["flexdisk_awx_organization"]))


def test_all_is_made_once(server, tmp_path):
    controller = server.controller
    first = configure(server, tmp_path, *some())
    assert {state for states in first.values() for state in states} == {"changed"}
    made = {name: json.dumps(objects) for name, objects in controller.objects.items() if name != "project_updates"}
    second = configure(server, tmp_path, *some())
    assert {task for task, states in second.items() if "changed" in states} == {"Make the workflows"}
    assert made == {name: json.dumps(controller.objects[name]) for name in made}

    templates = controller.named("job_templates")
    assert set(templates) == {template["name"] for template in TEMPLATES}
    survey = controller.surveys[templates["flexdisk apply"]["id"]]["spec"]
    assert survey[0]["variable"] == "flexdisk_plan_digests"
    (galaxy,) = controller.linked[
        "organizations", controller.named("organizations")["Hypervisors"]["id"], "galaxy_credentials"
    ]
    assert controller.objects["credentials"][galaxy]["name"] == "Ansible Galaxy"
    keys = [one["inputs"] for one in controller.objects["credentials"].values() if "inputs" in one]
    assert keys == [{"username": "root", "ssh_key_data": "a private key\n"}, {"ssh_key": "a private key\n"}]
    (kind,) = (one for one in controller.objects["credential_types"].values() if one["kind"] == "cloud")
    assert kind["injectors"]["env"] == {"HYPERVISOR_SSH_KEY_FILE": "{{ tower.filename.ssh_key }}"}

    nodes = controller.named("workflow_job_template_nodes")
    after = {
        name: controller.linked.get(("workflow_job_template_nodes", node["id"], "success_nodes"), [])
        for name, node in nodes.items()
    }
    assert after == {"plan": [nodes["approve"]["id"]], "approve": [nodes["apply"]["id"]], "apply": []}
    assert not any(name in ("failure_nodes", "always_nodes") for _collection, _number, name in controller.linked)
    runs = {
        name: controller.find("unified_job_templates", node["unified_job_template"])["name"]
        for name, node in nodes.items()
    }
    assert runs == {"plan": "flexdisk plan", "approve": "Approve the plan", "apply": "flexdisk apply"}


def test_check_mode_writes_nothing(server, tmp_path):
    """A new AWX has not what later objects need, so that only the first can be foretold."""
    words = ("--check", "-e", '{"controller_credential_types": []}')
    for name in (
        "credentials",
        "execution_environments",
        "projects",
        "inventories",
        "inventory_sources",
        "templates",
        "workflows",
        "schedules",
    ):
        words += ("-e", json.dumps({f"controller_{name}": []}))
    assert configure(server, tmp_path, *words)["Make the organization"] == ["changed"]
    assert {write.split("/")[0] for write in server.controller.writes} <= {"POST tokens", "DELETE tokens"}


@pytest.mark.parametrize(
    ("collection", "fields", "words"),
    [
        ("job_templates", {"name": "a", "project": 1, "playbook": "plan.yml"}, "Invalid pk"),
        ("credential_types", {"name": "a", "kind": "cloud", "injectors": {"env": {"ANSIBLE_X": "a"}}}, "ANSIBLE_X"),
        ("organizations", {}, "required"),
        ("unknown", {"name": "a"}, "Not found"),
    ],
)
def test_the_stand_in_refuses(server, collection, fields, words):
    request = urllib.request.Request(f"{server.url}/api/v2/{collection}/", json.dumps(fields).encode())
    request.add_header("Authorization", "Bearer a-token")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert words in answer.read().decode()
