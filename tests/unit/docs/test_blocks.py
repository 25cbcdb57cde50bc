# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every block of YAML and every command of ansible-playbook on the pages is one that Ansible and the collection take.

Beside this, test_docs.py checks declarations to the last key, and other tests here run whole pages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")})
CALLED = [
    page for page in PAGES if page.name != "playbook-reference.md"
]  # that one shows what can be left out, in brackets
OURS = "flexdisk.hypervisor."
ARGUMENTS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())["_flexdisk_arguments"]
ROLES = {
    name: spec
    for path in ROOT.glob("roles/*/meta/argument_specs.yml")
    for name, spec in yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"].items()
}
SPECS = {**ROLES, **{name: spec for specs in ARGUMENTS.values() for name, spec in specs.items()}}
FRAGMENTS = ("policy", "gate", "members")  # of a group, checked by test_groups.py
COMMAND = re.compile(rf"^(?: {{4}}|\$ | {{4}}\$ )ansible-playbook {OURS}(\w+)((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
WITH_VALUE, ALONE = ("--limit", "-i"), ("--check", "--diff")


def blocks(page):
    return [
        yaml.safe_load(block)
        for _indent, block in re.findall(r"^( *)```yaml\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


BLOCKS = [(f"{page.relative_to(ROOT)}-{n}", block) for page in PAGES for n, block in enumerate(blocks(page))]
LISTS = [(name, block) for name, block in BLOCKS if isinstance(block, list)]
MAPS = [(name, block) for name, block in BLOCKS if isinstance(block, dict)]


def named(pairs):
    return pytest.mark.parametrize("block", [block for _name, block in pairs], ids=[name for name, _block in pairs])


@pytest.fixture(scope="module")
def ansible(tmp_path_factory):
    """Runs a program of Ansible that finds the collection."""
    folder = tmp_path_factory.mktemp("collections")
    (folder / "ansible_collections" / "flexdisk").mkdir(parents=True)
    (folder / "ansible_collections" / "flexdisk" / "hypervisor").symlink_to(ROOT)
    env = {**os.environ, "HOME": str(folder), "ANSIBLE_COLLECTIONS_PATH": str(folder)}
    env["ANSIBLE_HOST_PATTERN_MISMATCH"] = "ignore"  # only localhost is there

    def run(program, *words):
        command = [Path(sys.executable).with_name(program), *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout

    return run


def test_plays_and_tasks_are_read_by_ansible(ansible, tmp_path):
    files = []
    for name, block in LISTS:
        plays = all("hosts" in entry or "ansible.builtin.import_playbook" in entry for entry in block)
        files.append(tmp_path / f"{name.replace('/', '-')}.yml")
        files[-1].write_text(yaml.safe_dump(block if plays else [{"hosts": "all", "tasks": block}]))
    assert len(files) > 30
    ansible("ansible-playbook", "--syntax-check", "-i", "localhost,", *files)


@pytest.fixture(scope="module")
def documented(ansible):
    """The options of modules, and of the inventory plugin, with those that they share."""
    found = {}
    for kind in ("module", "inventory"):
        told = ansible("ansible-doc", "--type", kind, "--json", "--no-fail-on-errors", *plugins(kind))
        found |= {name.removeprefix(OURS): one["doc"].get("options", {}) for name, one in json.loads(told).items()}
    return found


def plugins(kind):
    """The names of ours that the blocks have."""
    names = {key for _name, block in LISTS for task in tasks(block) for key in task if key.startswith(OURS)}
    return sorted(names) if kind == "module" else [block["plugin"] for _name, block in MAPS if "plugin" in block]


def tasks(node):
    """All tasks below a piece of YAML."""
    for entry in node if isinstance(node, list) else []:
        yield entry
        for key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(key))


@named(LISTS)
def test_tasks_give_options_that_their_modules_have(documented, block):
    defaults = {key: value for play in block for key, value in play.get("module_defaults", {}).items()}
    for task in tasks(block):
        for key, own in task.items():
            if key.startswith(OURS):
                options = documented[key.removeprefix(OURS)]
                aliases = {alias: name for name, option in options.items() for alias in option.get("aliases", ())}
                given = {aliases.get(name, name) for name in {**defaults.get(key, {}), **(own or {})}}
                assert given <= {*options}
                assert {name for name, option in options.items() if option.get("required")} <= given


def inventory(block):
    """Whether it is one: groups with hosts, variables and groups."""
    return all(isinstance(group, dict) and {*group} <= {"hosts", "vars", "children"} for group in block.values())


def check_variables(given):
    """No value is a template here, so that each can be checked as the role or the playbook does."""
    ours = {name: value for name, value in given.items() if not name.startswith("ansible_")}
    assert {*ours} <= {*SPECS}
    plain = {name: value for name, value in ours.items() if "{{" not in json.dumps(value)}
    checked = ArgumentSpecValidator({name: checkable(SPECS[name]) for name in plain}).validate(plain)
    assert checked.error_messages == []


def checkable(spec):
    """Without what is for documentation."""
    plain = {key: value for key, value in spec.items() if key not in ("description", "version_added", "as_is")}
    if plain.pop("duration", False):
        plain["type"] = "raw"
    if "options" in plain:
        plain["options"] = {name: checkable(option) for name, option in plain["options"].items()}
    return plain


@named(MAPS)
def test_other_blocks_are_of_a_kind_that_is_known(documented, block):
    if "plugin" in block:
        assert {*block} <= {*documented[block["plugin"].removeprefix(OURS)]}
    elif "collections" in block:
        assert all({*entry} <= {"name", "type", "version"} for entry in block["collections"])
    elif inventory(block):
        for group in block.values():
            for variables in (group.get("vars"), *group.get("hosts", {}).values()):
                check_variables(variables or {})
    elif not {*FRAGMENTS} & {*block} and [*block] != ["ANSIBLE_COLLECTIONS_PATH"]:
        check_variables(block)


CALLS = [(page, match[1], match[2]) for page in CALLED for match in COMMAND.finditer(page.read_text())]


def given(words):
    """The variables that a command line gives, all but those of files."""
    found = {}
    rest = iter(words)
    for word in rest:
        if word in ("-e", "--extra-vars"):
            value = next(rest)
            if value.startswith("{"):
                found.update(json.loads(value))
            elif not value.startswith("@"):
                found.update([value.split("=", 1)])
        elif word in WITH_VALUE:
            next(rest)
        else:
            assert word in ALONE, word
    return found


@pytest.mark.parametrize(
    ("playbook", "words"),
    [(playbook, words) for _page, playbook, words in CALLS],
    ids=[f"{page.stem}-{playbook}" for page, playbook, _words in CALLS],
)
def test_commands_give_variables_that_their_playbooks_take(playbook, words):
    specs = ARGUMENTS[playbook]
    variables = given(shlex.split(words.replace("\\\n", " "), comments=True))
    of_roles = {name for name in variables if name in ROLES and playbook in ("converge", "create_vm")}
    assert {*variables} <= {*specs} | of_roles
    told = {name: value for name, value in variables.items() if name in specs}
    assert answers(told, specs)["problems"] == []


def test_there_are_commands():
    assert len(CALLS) > 50
    assert len({playbook for _page, playbook, _words in CALLS}) > 15


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_tools_that_are_named_are_there(page):
    """But for the changelog, which tells of those that there were."""
    named = re.findall(r"(?<![\w/])(?:tests|extensions|examples)/[\w/.-]*\w", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
