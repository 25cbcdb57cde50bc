# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What AWX 24.6.1 accepts and hands on, as its own code has it: surveys, schedules, credential types, playbooks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml
from jinja2 import sandbox

TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "textarea": (str,),
    "password": (str,),
    "multiplechoice": (str,),
    "multiselect": (str,),
    "integer": (int,),
    "float": (float, int),
}
TEXTS = ("text", "textarea", "password")
PLAYBOOK = re.compile(
    r"^\s*?-?\s*?(?:hosts|(ansible\.builtin\.)?include|(ansible\.builtin\.)?import_playbook):\s*?.*?$"
)


def survey_error(spec: Mapping[str, Any]) -> str:
    """Why a survey is refused (JobTemplateSurveySpec in awx/api/views), or nothing."""
    for field, kind in (("name", str), ("description", str), ("spec", list)):
        if not isinstance(spec.get(field), kind):
            return f"{field} must be a {kind.__name__}"
    if not spec["spec"]:
        return "'spec' doesn't contain any items."
    seen: set[str] = set()
    for number, question in enumerate(spec["spec"]):
        said = _question_error(question) or ("duplicated" if question["variable"] in seen else "")
        if said:
            return f"survey question {number}: {said}"
        seen.add(question["variable"])
    return ""


def _question_error(question: Mapping[str, Any]) -> str:
    for field, kind in (("type", str), ("question_name", str), ("variable", str), ("required", bool)):
        if not isinstance(question.get(field), kind):
            return f"{field} must be a {kind.__name__}"
    if question["type"] not in TYPES:
        return f"{question['type']} is not one of {', '.join(TYPES)}"
    default = question.get("default", "")
    if default != "" and not isinstance(default, TYPES[question["type"]]):
        return f"Default value {default} expected to be {question['type']}"
    if any(not isinstance(question.get(limit), int | None) for limit in ("min", "max")):
        return "The min or max limit expected to be integer"
    if question["type"] in ("multiplechoice", "multiselect"):
        if "choices" not in question:
            return "must specify choices"
        defaults = str(default).splitlines()
        if question["type"] == "multiplechoice" and len(defaults) > 1:
            return "can only have one default value"
        if any(choice not in question["choices"] for choice in defaults):
            return "Default choice must be answered from the choices listed"
    if str(default).startswith("$encrypted$"):
        return "$encrypted$ is a reserved keyword"
    return ""


def answer_errors(question: Mapping[str, Any], answers: Mapping[str, object]) -> list[str]:
    """What is wrong with the answer to a question (_survey_element_validation in awx/main/models/mixins.py)."""
    name, kind = question["variable"], question["type"]
    if name not in answers:
        return [f"'{name}' value missing"] if question["required"] else []
    answer = answers[name]
    if kind in TEXTS:
        fits = isinstance(answer, str)
        figure = len(str(answer))
    elif kind in ("integer", "float"):
        fits = type(answer) in ((int,) if kind == "integer" else (int, float))
        figure = answer if fits else 0  # type: ignore[assignment]
    else:
        given = answer if kind == "multiselect" else [answer]
        if not isinstance(given, list):
            return [f"'{name}' value is expected to be a list."]
        strange = [choice for choice in given if choice not in question["choices"]]
        return [f"Value {choice} for '{name}' expected to be one of {question['choices']}." for choice in strange]
    if not fits:
        return [f"Value {answer} for '{name}' expected to be {kind}."]
    low, high = question.get("min"), question.get("max")
    if (low is not None and figure < low) or (high is not None and figure > high):
        return [f"'{name}' value {answer} is too small or too large"]
    return []


def launched(template: Mapping[str, Any], answers: Mapping[str, object]) -> dict[str, object]:
    """The extra variables of a job with these answers. Raises ValueError for what AWX refuses or does not pass on."""
    questions = template.get("survey_spec", {}).get("spec", []) if template.get("survey_enabled") else []
    errors = [error for question in questions for error in answer_errors(question, answers)]
    errors += [f"{name} is not passed on" for name in set(answers) - {question["variable"] for question in questions}]
    if errors:
        raise ValueError("; ".join(errors))
    defaults = {question["variable"]: question["default"] for question in questions if "default" in question}
    good = {name: default for name, default in defaults.items() if not _refused(questions, name, default)}
    return {**template.get("extra_vars", {}), **good, **answers}


def _refused(questions: Iterable[Mapping[str, Any]], name: str, default: object) -> bool:
    """A default that is no valid answer is dropped without a word: that of every multiselect, because it is text."""
    return any(question["variable"] == name and answer_errors(question, {name: default}) for question in questions)


class _Unsafe(yaml.SafeDumper):
    def represent_data(self, data: Any) -> yaml.Node:
        return self.represent_scalar("!unsafe", data) if isinstance(data, str) else super().represent_data(data)


def extra_vars(variables: Mapping[str, object], trusted: Mapping[str, object]) -> str:
    """The file env/extravars (awx/main/utils/safe_yaml.py): all texts are !unsafe but for those of the template."""
    return "".join(
        yaml.dump({name: value}, Dumper=yaml.SafeDumper if trusted.get(name) == value else _Unsafe)
        for name, value in variables.items()
    )


def rrule_errors(rule: str) -> list[str]:
    """What is wrong with the rule of a schedule (SchedulePreviewSerializer in awx/api/serializers.py)."""
    starts = re.findall(r".*?(DTSTART(;[^:]+)?\:[0-9]+T[0-9]+Z?)", rule)
    rules = re.findall(r".*?(RULE\:[^\s]*)", rule)
    errors = [] if len(starts) == 1 else ["one DTSTART required"]
    if re.findall(r".*?(DTSTART:[0-9]+T[0-9]+) ", rule):
        errors.append("DTSTART cannot be a naive datetime")
    if not rules or re.search("exdate:|rdate:", rule, re.IGNORECASE):
        errors.append("One or more rule required, and no other dates")
    for one in rules:
        if "INTERVAL" not in one or "SECONDLY" in one or ("COUNT" in one and "UNTIL" in one):
            errors.append(f"INTERVAL required, no SECONDLY, not both COUNT and UNTIL: {one}")
    return errors


def injector_error(inputs: Mapping[str, Any], injectors: Mapping[str, Any]) -> str:
    """Why a credential type is refused (CredentialTypeInjectorField in awx/main/fields.py), or nothing."""
    if strange := set(injectors) - {"file", "env", "extra_vars"}:
        return f"Additional properties are not allowed: {strange}"
    if forbidden := [name for name in injectors.get("env", {}) if name.startswith("ANSIBLE_")]:
        return f"Environment variable {forbidden[0]} may affect Ansible configuration so its use is not allowed"
    files = [name for name in injectors.get("file", {}) if re.fullmatch(r"template(\.[a-zA-Z_]+[a-zA-Z0-9_]*)?", name)]
    if files != list(injectors.get("file", {})) or ("template" in files and len(files) > 1):
        return "files must be called template, or all of them template.NAME"
    names = {name.partition(".")[2]: "EXAMPLE" for name in files}
    known = {field["id"]: "EXAMPLE" for field in inputs.get("fields", [])}
    known["tower"] = {"filename": names if "" not in names else "EXAMPLE"}  # type: ignore[assignment]
    environment = sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
    for kind in injectors.values():
        for name, template in kind.items():
            try:
                environment.from_string(template).render(known)
            except jinja2.TemplateError as exc:
                return f"{name} uses an undefined field ({exc})"
    return ""


def playbooks(project: Path) -> list[str]:
    """The files of a project that AWX lists as playbooks (awx/main/utils/ansible.py)."""
    return sorted(
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if path.suffix in (".yml", ".yaml")
        and not {"roles", "tasks", "group_vars", "host_vars"} & set(path.relative_to(project).parts)
        and any(PLAYBOOK.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    )


def cyclic(children: Mapping[int, Iterable[int]]) -> bool:
    """True if a node of a workflow comes after itself."""

    def after(node: int, seen: frozenset[int]) -> bool:
        return node in seen or any(after(child, seen | {node}) for child in children.get(node, ()))

    return any(after(node, frozenset()) for node in children)
