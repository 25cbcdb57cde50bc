# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a volume is in use, and whether a VM is in a state to be changed, is answered in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[3] / "plugins" / "module_utils" / "_flexdisk"
DOOR = "rules/usage.py"
# Who tells what a hypervisor says. fleet/placement has a field of this name, too, of jobs.
TELL = {
    "hypervisor/domain_uses.py",
    "hypervisor/libvirt_disks.py",
    "hypervisor/pve_vm.py",
    "hypervisor/vmadm_read.py",
    "fleet/placement/jobs.py",
}
# Plans of a VM that are made only after the door was asked, with the function that asks.
AFTERWARDS = {"plan_matched", "plan_departure", "plan_remains"}

FILES = {path.relative_to(HOUSE).as_posix(): ast.parse(path.read_text()) for path in sorted(HOUSE.rglob("*.py"))}


def found(wanted):
    """The files in which wanted is true of a node."""
    return {name for name, tree in FILES.items() if any(wanted(node) for node in ast.walk(tree))}


@pytest.mark.parametrize("field", ["uses", "unclear"])
def test_only_the_door_reads_what_a_vm_uses(field):
    readers = found(lambda node: isinstance(node, ast.Attribute) and node.attr == field)
    assert readers - TELL == {DOOR}


def test_nobody_makes_a_table_of_users_for_himself():
    """host.users was one: it did not know the disks of vmadm's VMs."""
    assert not found(lambda node: isinstance(node, ast.Attribute) and node.attr == "users")
    makers = found(lambda node: isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Usage"))
    assert makers == {"rules/inventory.py"}


def test_only_the_door_says_why_a_vm_is_in_no_state_to_be_changed():
    """By the state of a configuration; the others are states that were written down."""

    def compares(node):
        return (
            isinstance(node, ast.Compare)
            and ast.unparse(node.comparators[0]) in ("('running', 'stopped')", "('stopped', 'running')")
            and isinstance(node.ops[0], ast.NotIn)
            and ast.unparse(node.left).endswith("config.state")
        )

    assert found(compares) - {"engine/failover/failover_start.py"} == {DOOR}


def test_every_plan_of_a_vm_asks_first_whether_its_list_of_disks_is_whole():
    """Even a task that would change nothing compares with that list."""
    silent = set()
    for tree in (tree for name, tree in FILES.items() if name.startswith("plan/")):
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        asks = {node.name for node in functions if "check_whole(" in ast.unparse(node)}
        for node in functions:
            if ast.unparse(node.returns or ast.Constant("")) == "VmPlan" and not node.name.startswith("_"):
                takes = [one.arg for one in node.args.args if ast.unparse(one.annotation or ast.Constant("")) == "Vm"]
                if takes and not {node.name, f"_{node.name}"} & asks:
                    silent.add(node.name)
    assert silent <= AFTERWARDS
    callers = {"plan/planner.py": "plan_vm", "plan/disk.py": "_visited", "plan/vm_move.py": "refusals"}
    for name, function in callers.items():
        [body] = [n for n in ast.walk(FILES[name]) if isinstance(n, ast.FunctionDef) and n.name == function]
        assert "check_whole(" in ast.unparse(body) or "overlaid" in ast.unparse(body)


def test_what_is_not_read_is_not_called_missing():
    """A volume is missing only in a pool that was read."""
    [link] = [
        n for n in ast.walk(FILES["rules/inventory.py"]) if isinstance(n, ast.FunctionDef) and n.name == "_link_vm"
    ]
    text = ast.unparse(link)
    assert text.index("not in pools") < text.index("missing.append")
