# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects for AWX: surveys ask what their playbooks take, as AWX allows it, and names lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.slices import MAY_BE_SLICED
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers

from . import rules

ROOT = Path(__file__).resolve().parents[3]
AWX = ROOT / "extensions" / "awx"
ARGUMENTS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())["_flexdisk_arguments"]
OBJECTS = {}
for _path in sorted((AWX / "objects").glob("*.yml")):
    OBJECTS.update(DataLoader().load_from_file(str(_path)))
PAGE = (ROOT / "docs" / "awx.md").read_text()
TEMPLATES = {template["playbook"].removesuffix(".yml"): template for template in OBJECTS["controller_templates"]}
(WORKFLOW,) = OBJECTS["controller_workflows"]
WITH_SURVEYS = {name: template for name, template in TEMPLATES.items() if template.get("survey_enabled")}
# What belongs to the site or to a host, or is lost with the container of a job: nothing for operators to answer
NOT_ASKED = {
    "flexdisk_hosts",  # the limit of the job
    "flexdisk_progress",
    "flexdisk_host_count",
    "flexdisk_guests",
    "flexible_disks_hypervisor",
    "flexible_disks_libvirt_uri",
    "flexible_disks_pool",
    "virtual_machine_hypervisor",
    "virtual_machine_libvirt_uri",
    "flexdisk_groups",
    "flexdisk_allowed_moves",
    "flexdisk_replicas",
    "flexdisk_transfer_authorized_keys",
    "flexdisk_incoming_allowed",
    "flexdisk_metrics_path",
    "flexdisk_report_html",
    "flexdisk_report_page_hosts",
    "flexdisk_adopt_papers",
}
NATURAL = {
    "text": ["web01", "4:1", "0:4:1", "0123", "no", "2026-11-23", "11111111", "1e5", "1.5", "50GiB", "null", "~", " a"],
    "textarea": ["web01", "web01\nweb02", "role: web", "{a: '4:1'}", "- vm: web01", '["no"]', "0123", "no", "12"],
    "integer": [1, 12],
    "float": [0, 1, 0.5],
}
SIZES = ["50GiB", "200 GiB", "remaining"]
DURATIONS = {"180": 180, "PT1M30S": 90, "1M30S": None}


def questions(template):
    return template.get("survey_spec", {}).get("spec", [])


def asked(playbook):
    """What a survey must ask for."""
    own = ARGUMENTS[playbook]
    return {name: wanted for name, wanted in own.items() if not wanted.get("as_is") and name not in NOT_ASKED}


def kind(wanted):
    """The type of the question for a variable, and its choices."""
    of = wanted.get("type", "str")
    choices = wanted.get("choices")
    if wanted.get("duration"):
        return "text", None  # seconds, or ISO 8601
    if of == "bool":
        return "multiplechoice", ["false", "true"]
    if of == "list":
        return ("multiselect", choices) if choices else ("textarea", None)
    if of == "str" and choices:
        return "multiplechoice", choices
    return {"int": "integer", "float": "float", "dict": "textarea"}.get(of, "text"), None


def test_each_playbook_has_a_wrapper_that_awx_lists_and_a_template():
    wanted = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
    listed = [name for name in rules.playbooks(AWX / "project") if "/" not in name]
    assert listed == [f"{name}.yml" for name in wanted]
    for name in wanted:
        (play,) = yaml.safe_load((AWX / "project" / f"{name}.yml").read_text())
        (own, *_others) = yaml.safe_load((ROOT / "playbooks" / f"{name}.yml").read_text())
        assert play == {"name": own["name"], "ansible.builtin.import_playbook": f"flexdisk.hypervisor.{name}"}
    assert sorted(TEMPLATES) == wanted
    assert {name: template["name"] for name, template in TEMPLATES.items()} == {
        name: f"flexdisk {name}" for name in wanted
    }


@pytest.mark.parametrize("playbook", TEMPLATES)
def test_a_survey_asks_for_each_variable_of_its_playbook(playbook):
    template = TEMPLATES[playbook]
    found = {question["variable"]: question for question in questions(template)}
    assert bool(found) == bool(template.get("survey_enabled")) == bool(asked(playbook))
    assert set(found) == set(asked(playbook))
    for name, wanted in asked(playbook).items():
        question = found[name]
        assert question["required"] == bool(wanted.get("required")), name
        assert (question["type"], question.get("choices")) == kind(wanted), name


def test_variables_of_roles_have_the_type_that_the_roles_want():
    told = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        told.update(yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"])
    names = {name for playbook in TEMPLATES for name in asked(playbook)} & set(told)
    assert {"flexible_disks_allow_restart", "flexible_disks_stop_timeout", "virtual_machine_stop_timeout"} <= names
    for playbook in TEMPLATES:
        for name in names & set(asked(playbook)):
            wanted = asked(playbook)[name]
            kind_of_role = "raw" if wanted.get("duration") else wanted["type"]
            assert kind_of_role == told[name]["type"], (playbook, name)


@pytest.mark.parametrize("template", [*WITH_SURVEYS.values(), WORKFLOW], ids=lambda template: template["name"])
def test_awx_takes_the_survey(template):
    assert rules.survey_error(template["survey_spec"]) == ""
    for question in questions(template):
        assert "default" not in question, "the defaults of the playbooks count, and that of a multiselect is dropped"
        assert question["type"] != "password", "its template would be changed by every run of configure.yml"
        assert question.get("question_description", "").isascii()


@pytest.mark.parametrize("playbook", WITH_SURVEYS)
def test_no_natural_answer_loses_its_meaning(playbook):
    """What the playbook takes is what was written; anything else it refuses."""
    for question in questions(TEMPLATES[playbook]):
        name = question["variable"]
        wanted = ARGUMENTS[playbook][name]
        tried = SIZES if wanted["type"] == "raw" else NATURAL.get(question["type"]) or question["choices"]
        tried = DURATIONS if wanted.get("duration") else tried
        for answer in [[choice] for choice in tried] if question["type"] == "multiselect" else tried:
            given = rules.launched({"survey_enabled": True, "survey_spec": {"spec": [question]}}, {name: answer})
            arrived = DataLoader().load(rules.extra_vars(given, {}))
            means = answers(arrived, {name: wanted})
            if means["problems"] or means["variables"] == {}:
                assert means["variables"] == {} or answer in NATURAL["textarea"] or answer == " a", (
                    name,
                    answer,
                    means,
                )
                assert means["problems"] or answer in ("null", "~"), (name, answer, means)
            elif wanted.get("duration"):
                assert means["variables"][name] == DURATIONS[answer], (name, answer)
            elif wanted.get("type") not in ("list", "dict"):
                meant = answer == "true" if wanted.get("type") == "bool" else answer
                assert means["variables"][name] == meant, (name, answer)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "number"}, "is not one of"),
        ({"required": "yes"}, "required must be"),
        ({"default": 5}, "Default value 5"),
        ({"type": "integer", "default": "5"}, "Default value 5"),
        ({"type": "float", "min": 0.5}, "expected to be integer"),
        ({"type": "multiselect"}, "must specify choices"),
        ({"type": "multiselect", "choices": ["a"], "default": ["a"]}, "Default value"),
        ({"type": "multiplechoice", "choices": ["a", "b"], "default": "a\nb"}, "only have one default"),
        ({"type": "multiplechoice", "choices": ["a"], "default": "c"}, "from the choices"),
        ({"type": "password", "default": "$encrypted$"}, "reserved"),
    ],
)
def test_the_rules_find_what_awx_refuses(change, words):
    question = {"variable": "flexdisk_vm", "question_name": "VM", "type": "text", "required": False}
    assert words in rules.survey_error({"name": "", "description": "", "spec": [{**question, **change}]})
    assert "duplicated" in rules.survey_error({"name": "", "description": "", "spec": [question, question]})
    assert rules.survey_error({"name": "", "description": "", "spec": []})
    assert rules.survey_error({"name": "", "spec": [question]})


@pytest.mark.parametrize(
    ("question", "answers", "words"),
    [
        ({"type": "integer"}, {"x": "7"}, "expected to be integer"),
        ({"type": "integer", "min": 8}, {"x": 7}, "too small"),
        ({"type": "text", "max": 2}, {"x": "abc"}, "too large"),
        ({"type": "multiselect", "choices": ["a"]}, {"x": "a"}, "expected to be a list"),
        ({"type": "multiplechoice", "choices": ["a"]}, {"x": "b"}, "expected to be one of"),
        ({"type": "text", "required": True}, {}, "value missing"),
        ({"type": "text"}, {"y": "a"}, "not passed on"),
    ],
)
def test_the_rules_find_answers_that_awx_refuses(question, answers, words):
    spec = {"spec": [{"variable": "x", "required": False, **question}]}
    with pytest.raises(ValueError, match=words):
        rules.launched({"survey_enabled": True, "survey_spec": spec}, answers)


def test_the_default_of_a_multiselect_is_dropped():
    question = {
        "variable": "x",
        "question_name": "X",
        "required": False,
        "type": "multiselect",
        "choices": ["a", "b"],
        "default": "a\nb",
    }
    assert rules.survey_error({"name": "", "description": "", "spec": [question]}) == ""
    template = {"survey_enabled": True, "survey_spec": {"spec": [question]}, "extra_vars": {"y": 1}}
    assert rules.launched(template, {}) == {"y": 1}
    assert rules.launched({**template, "survey_spec": {"spec": [{**question, "type": "text"}]}}, {}) == {
        "x": "a\nb",
        "y": 1,
    }


def test_names_lead_somewhere():
    known = {
        name: {one["name"] for one in objects}
        for name, objects in OBJECTS.items()
        if name.startswith("controller_") and not isinstance(objects, str)
    }
    credentials = {one["name"]: one["credential_type"] for one in OBJECTS["flexdisk_awx_credentials"]}
    for template in TEMPLATES.values():
        assert {template["project"]} <= known["controller_projects"]
        assert {template["inventory"]} <= known["controller_inventories"]
        assert {template["execution_environment"]} <= known["controller_execution_environments"]
        assert [credentials[name] for name in template["credentials"]] == ["Machine"]
    for source in OBJECTS["controller_inventory_sources"]:
        assert (AWX / "project" / source["source_path"]).is_file()
        assert {source["inventory"]} <= known["controller_inventories"]
        assert "credential" not in source or {credentials[source["credential"]]} <= known["controller_credential_types"]
    nodes = {node["identifier"]: node for node in WORKFLOW["workflow_nodes"]}
    assert list(nodes) == ["plan", "approve", "apply"]
    for node in nodes.values():
        assert {after["identifier"] for after in node.get("related", {}).get("success_nodes", [])} <= set(nodes)
        if node["unified_job_template"]["type"] == "job_template":
            assert node["unified_job_template"]["name"] in known["controller_templates"]
    for schedule in OBJECTS["controller_schedules"]:
        template = TEMPLATES[schedule["unified_job_template"].removeprefix("flexdisk ")]
        assert rules.rrule_errors(schedule["rrule"]) == []
        rules.launched(template, schedule.get("extra_data", {}))


def test_only_a_plan_that_was_made_and_approved_is_applied():
    """A node after any end of another one would run after a denial, and after the approval's time is over, too."""
    after = {node["identifier"]: node.get("related", {}) for node in WORKFLOW["workflow_nodes"]}
    expected = {"plan": "approve", "approve": "apply"}
    assert after.pop("apply") == {}
    assert after == {name: {"success_nodes": [{"identifier": other}]} for name, other in expected.items()}


def test_the_workflow_hands_on_what_its_jobs_take():
    """AWX gives the answers of the workflow's survey and what the plan has set to all jobs below, asked for or not."""
    answered = {question["variable"] for question in questions(WORKFLOW)}
    assert answered <= set(ARGUMENTS["plan"]) & set(ARGUMENTS["apply"])
    text = (ROOT / "playbooks" / "plan.yml").read_text()
    left = set(re.findall(r"^ +\"\{\{ '(flexdisk_plan_\w+)' ~ ", text, re.MULTILINE))
    assert left == {"flexdisk_plan_digests", "flexdisk_plan_lines"} <= set(ARGUMENTS["apply"])
    for template in (TEMPLATES["plan"], TEMPLATES["apply"], WORKFLOW):
        assert template["ask_limit_on_launch"], "or the limit of the workflow would not reach its jobs"
        assert template["allow_simultaneous"] is False


@pytest.mark.parametrize("playbook", TEMPLATES)
def test_a_limit_is_asked_for_where_it_is_taken(playbook):
    header = (ROOT / "playbooks" / f"{playbook}.yml").read_text().split("\n- name: ")[0]
    wrong = "--limit is refused" in header or playbook.endswith("_group")
    assert not (wrong and TEMPLATES[playbook]["ask_limit_on_launch"])
    assert TEMPLATES[playbook]["job_slice_count"] == 1, "without flexdisk_host_count, slices are not noticed"
    assert TEMPLATES[playbook].get("ask_job_slice_count_on_launch", False) == (playbook in MAY_BE_SLICED)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("RRULE:FREQ=DAILY;INTERVAL=1", "DTSTART"),
        ("DTSTART:20260101T050000Z RRULE:FREQ=DAILY", "INTERVAL"),
        ("DTSTART:20260101T050000 RRULE:FREQ=DAILY;INTERVAL=1", "naive"),
        ("DTSTART:20260101T050000Z", "rule required"),
    ],
)
def test_the_rules_find_schedules_that_awx_refuses(rule, words):
    assert words in " ".join(rules.rrule_errors(rule))


@pytest.mark.parametrize(
    ("injectors", "words"),
    [
        ({"file": {"template.ssh_key": "{{ ssh_key }}"}, "env": {"ANSIBLE_PRIVATE_KEY_FILE": "a"}}, "not allowed"),
        ({"env": {"X": "{{ tower.filename.ssh_key }}"}}, "undefined"),
        ({"file": {"template.ssh_key": "{{ key }}"}}, "undefined"),
        ({"file": {"template": "a", "template.ssh_key": "a"}}, "template.NAME"),
        ({"files": {}}, "not allowed"),
    ],
)
def test_the_rules_find_credential_types_that_awx_refuses(injectors, words):
    (kind_of_credential,) = OBJECTS["controller_credential_types"]
    inputs = kind_of_credential["inputs"]
    assert rules.injector_error(inputs, kind_of_credential["injectors"]) == ""
    assert words in rules.injector_error(inputs, injectors)


def test_a_graph_with_a_cycle_is_found():
    assert rules.cyclic({1: [2], 2: [3], 3: [1]})
    assert rules.cyclic({1: [1]})
    assert not rules.cyclic({1: [2, 3], 2: [3], 3: []})


def test_the_page_tells_what_is_there():
    (play,) = yaml.safe_load((AWX / "configure.yml").read_text())
    made = [re.search(r"\w+", task["loop"].strip("{ "))[0] for task in play["tasks"]]
    section = PAGE.split("| list | what it makes |")[1].split("\n\n")[0]
    assert re.findall(r"^ *\| `(\w+)` \|", section, re.MULTILINE) == made
    assert set(made) | {name for name in OBJECTS if name.startswith("flexdisk_awx_")} == set(OBJECTS)
    names = {one["name"] for name in made if isinstance(OBJECTS[name], list) for one in OBJECTS[name]}
    told = re.findall(r"`(flexdisk [a-z_ ]+)`", PAGE)
    assert len(told) > 15
    assert set(told) <= names
    for path in re.findall(r"^\| `([\w./-]+)` \|", PAGE.split("## What to do")[0], re.MULTILINE):
        assert (AWX / path).exists(), path
    (timeout,) = (
        node["unified_job_template"].get("timeout")
        for node in WORKFLOW["workflow_nodes"]
        if node["identifier"] == "approve"
    )
    assert ("within a day" in PAGE) == (timeout == 24 * 3600)
    (source,) = (one for one in OBJECTS["controller_inventory_sources"] if "credential" in one)
    assert ("every five minutes" in PAGE) == (source["update_cache_timeout"] == 300)
    assert f"{OBJECTS['flexdisk_awx_image']}\n" in PAGE
