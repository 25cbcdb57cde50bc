# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of surveys, as AWX writes them (!unsafe text) and ansible-core reads them: each variable of each playbook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import cut
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers

from .nodes import Nodes

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = ROOT / "playbooks"
ARGUMENTS = yaml.safe_load((PLAYBOOKS / "vars" / "arguments.yml").read_text())["_flexdisk_arguments"]
IN_PLAYS = r"(?<![\w.])(?:%s)\b" % "|".join(sorted({name for own in ARGUMENTS.values() for name in own}, key=len)[::-1])


def full(wanted):
    """An answer, and what it means."""
    kind = wanted.get("type", "str")
    first = "/srv/web01" if "path" in wanted.get("like", "") else wanted.get("choices", ["web01"])[0]
    options = wanted.get("options", {})
    entry = {key: full(one)[1] for key, one in options.items() if one.get("required")}
    if kind == "list":
        if wanted.get("elements") != "dict":
            return (first, [first]) if wanted.get("as_is") else (first + "\n" + first, [first, first])
        return (None, [entry]) if wanted.get("as_is") else (json.dumps([entry]), [entry])
    if kind == "dict":
        least = {key: full(one)[1] for key, one in [*options.items()][: bool(wanted.get("filled"))]}
        meant = entry or (least if options else {"a": "b"})
        return (None, meant) if wanted.get("as_is") else (json.dumps(meant), meant)
    simple = {"bool": ("no", False), "int": ("12", 12), "float": ("0.5", 0.5), "raw": ("50GiB", "50GiB")}
    return simple.get(kind, (first, first))


def lost(wanted):
    """An answer that arrives as something else."""
    kinds = {"str": "4:1", "path": "0123", "bool": "2026-11-23", "int": "no", "float": "yes", "raw": "2026-11-23"}
    return kinds.get(wanted.get("type", "str"), "2026-11-23")


def quoted(text):
    return "!unsafe '" + text.replace("'", "''").replace("\n", "\n\n") + "'"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collections")
    (folder / "ansible_collections" / "flexdisk").mkdir(parents=True)
    (folder / "ansible_collections" / "flexdisk" / "hypervisor").symlink_to(ROOT)
    return dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(folder), ANSIBLE_NOCOLOR="1")


def ansible(environment, *arguments):
    command = [sys.executable, "-m", "ansible.cli.playbook", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def survey(playbook, kind):
    """What a survey of a playbook leaves, as YAML, and what the variables mean then."""
    lines, meant = [], {}
    for name, wanted in ARGUMENTS[playbook].items():
        if kind == "empty":
            if not wanted.get("as_is"):
                lines.append(f"{name}: !unsafe ''")
            continue
        answer, meaning = full(wanted) if kind == "full" else (lost(wanted), None)
        lines.append(f"{name}: {json.dumps(meaning) if answer is None else quoted(answer)}")
        meant[name] = meaning
    return "\n".join(lines) + "\n", meant


@pytest.mark.parametrize("playbook", ARGUMENTS)
def test_every_answer_is_understood_or_refused(playbook):
    own = ARGUMENTS[playbook]
    found = {}
    for kind in ("full", "empty", "lost"):
        given = DataLoader().load(survey(playbook, kind)[0]) or {}
        found[kind] = answers(given, own)
    assert found["full"] == {"variables": survey(playbook, "full")[1], "problems": []}
    required = [name for name, wanted in own.items() if wanted.get("required")]
    missing = [f"missing required arguments: {', '.join(sorted(required))}"] if required else []
    assert found["empty"] == {"variables": {}, "problems": missing}
    assert found["lost"]["variables"] == {}
    assert found["lost"]["problems"][20:] == cut([""] * len(own))[20:]
    for name, value in DataLoader().load(survey(playbook, "lost")[0]).items():
        (words,) = answers({name: value}, {name: own[name]})["problems"]
        assert re.match(rf"{name}(\[0\])? must be", words)


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.rglob("*.yml")), ids=lambda path: path.stem)
def test_plays_use_the_variables_that_were_checked(path):
    """Extra variables cannot be replaced, so that their checked values have another name; but environment variables,
    whose values are in no result.
    """
    if path.parent.name == "vars":
        return
    code = re.findall(
        r"\{\{.*?\}\}|^ +(?:- )?(?:when|that): .*?$|\{%.*?%\}", path.read_text(), re.DOTALL | re.MULTILINE
    )
    raw = {name for text in code for name in re.findall(IN_PLAYS, re.sub(r"'[^']*'|\"[^\"]*\"(?=[^}]*\})", "", text))}
    hosts = "flexdisk_guests" if path.stem == "grow_guests" else "flexdisk_hosts"
    assert raw - {hosts, "virtual_machine_vms", "flexdisk_environment"} == set()


@pytest.mark.parametrize(
    ("playbook", "given", "words"),
    [
        ("attach_disk", {"flexdisk_vm": "no", "flexdisk_disk": "2026-11-23", "flexdisk_pci_slot": "4:1"},
         ["flexdisk_vm must be text, but has arrived as the truth value false", "date 2026-11-23", "number 241"]),
        ("delete_vm", {"flexdisk_vm": "", "flexdisk_destroy_disks": "no"},
         ["missing required arguments: flexdisk_vm"]),
    ],
)  # fmt: skip
def test_answers_of_a_survey_are_refused_in_words(environment, tmp_path, playbook, given, words):
    lines = [f"{name}: {quoted(text)}" for name, text in {**given, "flexdisk_hosts": "all", "awx_job_id": "7"}.items()]
    (tmp_path / "extravars").write_text("\n".join(lines) + "\n")
    done = ansible(environment, "-i", "hv01,", "-e", f"@{tmp_path}/extravars", "flexdisk.hypervisor." + playbook)
    assert done.returncode == 2, done.stdout + done.stderr
    assert [word for word in words if word not in done.stdout] == [], done.stdout
    assert "WARNING" not in done.stdout + done.stderr


def test_answers_reach_the_module(tmp_path):
    """A VM that is called no, and a snapshot that is called as a date; what is empty is not set."""
    nodes = Nodes(tmp_path, {"hv01": ""})
    uuids = [nodes.create("hv01", name, 1024, 5, {}) for name in ("no", "web", "db")]
    given = {
        "flexdisk_hosts": "",
        "flexdisk_vm": "",
        "flexdisk_snapshot_vms": '"no"\nweb',
        "flexdisk_snapshot_name": '"2026-11-23"',
        "flexdisk_snapshot_on_refusal": "",
        "flexible_disks_pool": "",
    }
    lines = [f"{name}: {quoted(text)}" for name, text in given.items()]
    (tmp_path / "extravars").write_text("\n".join(lines) + "\n")
    status, printed = nodes.play("snapshot", "-e", f"@{tmp_path}/extravars")
    assert status == 0, printed
    found = nodes.run("hv01", "zfs", "list", "-H", "-o", "name", "-t", "snapshot")
    assert {name.split("/")[1].split("@")[0] for name in found.split() if "2026-11-23" in name} == set(uuids[:2]), found


SECTION = (ROOT / "docs" / "variables.md").read_text().split("\n## Answers of surveys")[1].split("\n## ")[0]


def test_the_page_says_what_roles_read():
    told = re.findall(r"`(\w+_\w*)`", SECTION.split("\nSome variables are read by roles")[1])
    found = {name for own in ARGUMENTS.values() for name, wanted in own.items() if wanted.get("as_is")}
    patterns = [word + (r"\w+" if word.endswith("_") else "") for word in told]
    assert [name for name in found if not any(re.fullmatch(one, name) for one in patterns)] == []
    assert [one for one in patterns if not any(re.fullmatch(one, name) for name in found | set(ARGUMENTS))] == []


def test_the_page_says_what_is_refused():
    kinds = {"slot": "str", "name": "str", "number": "int", "list": "list", "dictionary": "dict"}
    tried = 0
    for written, does in re.findall(r"^\| (`.*?) for a .*? \| .*? \| (.*?) \|$", SECTION, re.MULTILINE):
        kind = kinds[re.search(re.escape(written) + r" for a (\w+)", SECTION)[1]]
        for text in re.findall(r"`(.*?)`", written):
            given = DataLoader().load(f"x: {quoted(text)}")
            assert bool(answers(given, {"x": {"type": kind}})["problems"]) == (does == "refuses it"), text
            tried += 1
    assert tried == 15
