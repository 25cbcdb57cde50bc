# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that messages name: each has a spelling for those who run playbooks and roles."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.knobs import (
    KNOBS,
    limit_without,
    with_user_names,
    with_variables,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._standing import for_user

ROOT = Path(__file__).resolve().parents[3]
CODE = ROOT / "plugins" / "module_utils" / "_flexdisk"
VARS = yaml.safe_load((ROOT / "playbooks" / "vars" / "arguments.yml").read_text())
SPECS = [
    yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
]
WEB = "cccccccc-0000-4000-8000-000000000001"


def texts(path):
    """All text of a file but its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def words_of_entries(options):
    """Names of options at any depth."""
    for name, spec in (options or {}).items():
        yield name
        yield from words_of_entries(spec.get("options"))


def test_each_option_in_a_message_is_in_the_table():
    odd, named = [], set()
    for path in sorted(path for path in CODE.rglob("*.py") if path.parent.name != "page"):  # which has a script
        for text in texts(path):
            named |= set(re.findall(r"(?<![\w.])([a-z_]+): true\b", text))
            odd += [f"{path.name}: {word}" for word in re.findall(r"\b([a-z_]+)=true\b", text)]
    assert named - set(KNOBS) <= {"become"}
    # Variables of playbooks and roles stand in messages as -e takes them.
    assert [one for one in odd if not re.search(": (flexdisk|vm_move)_", one)] == []


def test_each_variable_of_the_table_is_there():
    known = {name for variables in VARS["_flexdisk_arguments"].values() for name in variables} | {
        *VARS["_flexdisk_of_roles"]
    }
    assert {name for names in KNOBS.values() for name in names} <= known


def test_each_option_without_a_variable_is_a_word_of_an_entry():
    keys = {name for options in SPECS for name in words_of_entries(options)}
    packages = {*VARS["_flexdisk_packages"]["options"]}
    leases = {"renew"}  # the roles say it themselves
    assert {option for option, names in KNOBS.items() if not names} <= keys | packages | leases


@pytest.mark.parametrize("playbook", VARS["_flexdisk_arguments"])
def test_a_playbook_with_such_a_variable_has_it_in_the_table(playbook):
    """Such as flexdisk_destroy_snapshots, which stands for destroy_snapshots."""
    variables = VARS["_flexdisk_arguments"][playbook]
    for option, names in KNOBS.items():
        form = re.compile(rf"[a-z0-9]+(_disks|_machine|_snapshot)?_{option}")
        assert {name for name in variables if form.fullmatch(name)} <= {*names}


MODULES = sorted({path.stem for path in (ROOT / "plugins" / "modules").glob("*_*.py")})
# What only a call of the module can be about: its own arguments, or what no playbook does.
OF_CALLS = ("size=remaining works only", "are no results of", "has no results of", " ansible HOST -m ")


def test_no_message_names_a_module_to_who_runs_a_playbook():
    left = []
    for path in sorted(path for path in CODE.rglob("*.py") if path.parent.name != "page"):
        for text in (one for one in texts(path) if " " in one.strip() and not any(call in one for call in OF_CALLS)):
            message = with_variables(text, {"flexible_disks_stop_timeout"})
            left += [f"{path.name}: {message}" for name in MODULES if re.search(rf"(?<![\w.]){name}\b(?!:)", message)]
    assert left == []


@pytest.mark.parametrize(
    ("module", "playbook"),
    [
        ("it is not whole: x; vm_disks puts it right", "x; the playbook converge (flexible_disks_vms) puts it right"),
        (
            "; vm_snapshot with state=absent deletes two",
            "; the playbook snapshot with -e flexdisk_snapshot_state=absent deletes two",
        ),
        ("vm_disks with adopt: true moves it in", "with adopt: true in flexible_disks_vms, moves it in"),
        (
            "disk_verify with repair: received_property sets it",
            """verify_disks with -e '{"flexdisk_verify_repair": ["received_property"]}' sets it""",
        ),
        ("did not shut down within stop_timeout=5 s", "within flexible_disks_stop_timeout=5 s"),
        ("flexdisk.hypervisor.vm_disks", "flexdisk.hypervisor.vm_disks"),
        ("the host is being changed by vm_disks of web01", "the host is being changed by vm_disks of web01"),
    ],
)
def test_modules_in_a_message_are_playbooks(module, playbook):
    assert with_variables(module, {"flexible_disks_stop_timeout"}).endswith(playbook)
    assert with_variables(module, set()) == module


def test_a_message_for_a_playbook():
    message = "the VM is running; allow_restart: true allows a shutdown"
    assert with_variables(message, {"flexible_disks_allow_restart"}) == (
        "the VM is running; -e flexible_disks_allow_restart=true allows a shutdown"
    )
    assert with_variables(message, {"virtual_machine_allow_restart"}) == (
        "the VM is running; -e virtual_machine_allow_restart=true allows a shutdown"
    )
    assert with_variables(message, set()) == message
    lost = "allow that with newer: [a, b], or with destroy_newer: true"
    assert with_variables(lost, VARS["_flexdisk_arguments"]["rollback"]) == (
        """allow that with -e '{"flexdisk_snapshot_newer": ["a", "b"]}', or """
        "with -e flexdisk_snapshot_destroy_newer=true"
    )
    entry = "- {uuid: u, name: a, boot: true}"
    assert with_variables(entry, VARS["_flexdisk_arguments"]["converge"]) == entry


def test_a_vm_is_called_as_the_user_called_it():
    """Problems begin with VM, warnings with its name alone."""
    message = f"VM {WEB}: disk a: no\nVM {WEB}: b\n{WEB}: c\nVM other: {WEB}: d"
    new = f"web\\1 ({WEB})"
    assert (
        with_user_names(message, {WEB: "web\\1"}) == f"VM {new}: disk a: no\nVM {new}: b\n{new}: c\nVM other: {WEB}: d"
    )


def standing(playbook="resize_disk", play="Resize", at="Resize"):
    return {
        "_flexdisk": {"stands": {"play": play, "playbook": playbook}},
        "inventory_hostname": "hv01",
        "_flexdisk_order": {"here": {"hv01": {"web": {"vm": WEB}}, "hv02": {}}},
        "ansible_play_name": at,
    }


FAILED = {
    "failed": True,
    "msg": f"VM {WEB}: take: true [InUse]\nVM {WEB}: allow_restart: true [VmNotStopped]",
    "problems": [{"message": "allow_restart: true", "vm": WEB}],
    "warnings": ["dangerous_allow_shrink: true"],
    "failure": {"message": "allow_restart: true", "step": "stop"},
}


def test_a_result_in_a_playbook():
    result = for_user(FAILED, SimpleNamespace(_role=None), standing())
    restart = "-e flexible_disks_allow_restart=true"
    assert result["msg"] == f"VM web ({WEB}): take: true [InUse]\nVM web ({WEB}): {restart} [VmNotStopped]"
    assert result["problems"] == [{"message": restart, "vm": WEB}]
    assert result["warnings"] == ["-e flexdisk_dangerous_allow_shrink=true"]
    assert result["failure"] == {"message": restart, "step": "stop"}


def test_a_result_in_a_play_of_somebody_else_stays():
    assert for_user(FAILED, SimpleNamespace(_role=None), standing(at="Another")) == FAILED
    assert for_user(FAILED, SimpleNamespace(_role=None), {}) == FAILED


def test_a_result_in_a_role():
    """Also of a task in a role that another one of this collection includes."""
    outer = _role("flexdisk.hypervisor.virtual_machine", {"virtual_machine_allow_restart": False})
    for role in (outer, _role("flexdisk.hypervisor.vm_placement", {}, outer)):
        result = for_user(FAILED, SimpleNamespace(_role=role), {})
        assert result["problems"][0]["message"] == "-e virtual_machine_allow_restart=true"
    role = _role("somebody.else.role", {"virtual_machine_allow_restart": False})
    assert for_user(FAILED, SimpleNamespace(_role=role), {}) == FAILED


def _role(name, defaults, *chain):
    """A role of ansible-core. chain: the roles that have included it."""
    return SimpleNamespace(get_name=lambda: name, get_default_vars=lambda: defaults, get_dep_chain=lambda: list(chain))


def test_a_host_that_is_left_out_is_quoted_for_a_shell():
    """An exclamation mark in bash asks for its history, but between single quotes."""
    assert limit_without("hv02") == "--limit 'all:!hv02'"
