# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action move_plan: its documentation, and its examples and a refusal as ansible-playbook runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import move_plan
from ansible_collections.flexdisk.hypervisor.plugins.modules import move_plan as documented

from .actions import plain, playbook

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = yaml.safe_load(documented.EXAMPLES)


def test_the_options_are_as_documented():
    told = plain(yaml.safe_load(documented.DOCUMENTATION)["options"], told=True)
    assert told == plain(move_plan.ARGUMENTS)


@pytest.mark.parametrize(
    "given",
    [
        {"hosts": [{"name": "h\u202ev01"}]},
        {"from_hosts": ["h\u202ev01"], "hosts": [{"name": "hv01"}]},
        {"vms": ["web\u202e"], "hosts": [{"name": "hv01"}]},
        {"host_groups": [{"name": "a\u202e", "alloc_policy": "preferred"}]},
        {"vm_tags": {"a\u202e": None}},
    ],
)
def test_names_have_no_hidden_characters(given):
    host = {name: spec.get("default") for name, spec in move_plan.HOST.items()}
    defaults = {name: spec.get("default") for name, spec in move_plan.ARGUMENTS.items()}
    given = {"hosts": [], **given, "request": "evacuate"}
    given["hosts"] = [{**host, **one} for one in given["hosts"]]
    said = move_plan.move_plan({**defaults, **given}, 0)["msg"]
    assert "has [U+202E]: a name has no control characters and no invisible ones [InvalidArgument]" in said
    assert "\u202e" not in said


def test_the_examples_and_a_refusal_run(tmp_path):
    """As a user runs them, on a host that does not exist: nothing is asked of it."""
    asked = {"request": "evacuate", "from_hosts": ["hv09"], "hosts": [{"name": "hv01"}]}
    tasks = [
        *EXAMPLES,
        {"flexdisk.hypervisor.move_plan": asked, "register": "refused", "ignore_errors": True},
        {
            "ansible.builtin.assert": {
                "that": [
                    "refused is failed",
                    "refused.error_code == 'ResourceNotFound'",
                    "refused.msg == 'from_hosts: there is no host hv09, but hv01 [ResourceNotFound]'",
                ]
            }
        },
    ]
    command, env = playbook(tmp_path, *tasks)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok={len(tasks)} " in done.stdout
    assert done.stdout.count("All assertions passed") == 4


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"answers": {"hv01": {"vms": []}}, "new_vms": []}, "mutually exclusive: new_vms|answers"),
        ({"answers": {"hv01": {"checks": []}}}, "answers wants vms, checks (results of flexdisk.hypervisor.vm) and"),
    ],
)
def test_answers_that_are_none(tmp_path, more, text):
    asked = {"request": "place", "hosts": [{"name": "hv01"}], **more}
    command, env = playbook(tmp_path, {"flexdisk.hypervisor.move_plan": asked})
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert text in done.stdout + done.stderr


LISTENER = """
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_NAME = "listener"

    def v2_runner_on_ok(self, result):
        with open(FILE, "a") as heard:
            heard.write(f"{result.task.args} {result.result} {dict(result.task_fields)}")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result)
"""


@pytest.mark.parametrize(
    ("checks", "more", "fails"),
    [([], {}, False), ([], {"nosuch": 1}, True), (None, {}, True), ([], {"new_vms": []}, True)],
)
def test_no_callback_gets_the_secrets_of_new_vms(tmp_path, checks, more, fails):
    """Ansible gives callbacks the options of a task, and AWX keeps them if it is told to show arguments."""
    entry = {"name": "web", "secret_metadata": {"root_pw": "hidden-one"}, "options": {"tags": {"role": "web"}}}
    answer = {"vms": [entry], "checks": checks, "beside": 0}
    asked = {"request": "place", "hosts": [{"name": "hv01"}], "answers": {"hv01": answer}, "allow_partial": True}
    command, env = playbook(tmp_path, {"flexdisk.hypervisor.move_plan": {**asked, **more}})
    heard = tmp_path / "heard"
    (tmp_path / "listener.py").write_text(LISTENER.replace("FILE", repr(str(heard))))
    env = {**env, "ANSIBLE_CALLBACK_PLUGINS": str(tmp_path), "ANSIBLE_CALLBACKS_ENABLED": "listener"}
    done = subprocess.run([*command, "-vvv"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stdout
    assert "'request': 'place'" in heard.read_text()
    assert "hidden-one" not in heard.read_text() + done.stdout + done.stderr
