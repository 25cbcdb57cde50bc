# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing starts a VM but engine/steps/power.py, which asks rules/power.py whether the VM may run on this host."""

from __future__ import annotations

import ast
from pathlib import Path

PLUGINS = Path(__file__).parents[3] / "plugins"
FILES = {path.relative_to(PLUGINS).as_posix(): ast.parse(path.read_text()) for path in sorted(PLUGINS.rglob("*.py"))}
DOOR = "module_utils/_flexdisk/engine/steps/power.py"
# What vmadm, virsh and qm start VMs with. A rollback by vmadm starts the VM, whatever it was before.
PROGRAMS = {"start", "reboot", "rollback-snapshot", "reset", "sysrq", "boot", "resume"}
DRIVERS = tuple(f"module_utils/_flexdisk/hypervisor/{name}.py" for name in ("vmadm_disks", "libvirt_disks"))
PROXMOX = "module_utils/_flexdisk/hypervisor/pve_disks.py"
MEMORY_OF_GUESTS = "module_utils/_flexdisk/hypervisor/libvirt_memory.py"
RESTORES = "module_utils/_flexdisk/engine/moves/guest_memory.py"
MAKES_VMS = "module_utils/_flexdisk/hypervisor/vmadm.py"


def calls(tree: ast.Module) -> list[tuple[str, str, ast.Call]]:
    """The calls of methods: of what, the method, and the whole call."""
    found = [(node.func, node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(ast.unparse(func.value), func.attr, node) for func, node in found if isinstance(func, ast.Attribute)]


def test_one_function_starts_vms():
    """A driver is called hypervisor everywhere."""
    starts = {
        (name, receiver)
        for name, tree in FILES.items()
        for receiver, method, _call in calls(tree)
        if method == "start" and receiver.endswith("hypervisor")
    }
    assert starts == {(DOOR, "hypervisor")}


def test_it_asks_first():
    (door,) = [node for node in FILES[DOOR].body if isinstance(node, ast.FunctionDef) and node.name == "start"]
    text = [ast.unparse(node) for node in door.body[1:]]
    assert text[0] == "check_start(_with_states_of_sharers(hypervisor, vm), requester)"
    assert "hypervisor.start" in text[1]


def test_every_caller_has_a_right_to_ask():
    """Only the three tasks that look at other hosts name themselves. All others ask as a task."""
    askers = {
        name.rpartition("/")[2]: [ast.unparse(argument) for argument in call.args[2:]]
        for name, tree in FILES.items()
        for receiver, method, call in calls(tree)
        if (receiver, method) == ("power", "start")
    }
    assert askers == {
        "apply_figures.py": [],
        "failover_start.py": ["START_HOST"],
        "guest_memory.py": ["self._requester"],
        "restart.py": [],
        "vm_arrival.py": ["ARRIVAL"],
        "vm_departure.py": ["GIVEN_UP"],
    }


def test_no_program_starts_a_vm_beside():
    """No command line of vmadm has such a word but that of the driver's own start; nobody creates a running domain."""
    words = {
        (name, method, argument.value)
        for name, tree in FILES.items()
        for _receiver, method, call in calls(tree)
        for argument in call.args
        if isinstance(argument, ast.Constant)
        and argument.value in PROGRAMS
        and method in ("_checked", "_confirmed", "_vmadm")
    }
    assert words == {(DRIVERS[0], "_confirmed", "start")}
    commands = {
        (name, node.elts[1].value)
        for name, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple) and [ast.unparse(one) for one in node.elts[:1]] == ["'qm'"]
        if isinstance(node.elts[1], ast.Constant) and node.elts[1].value in PROGRAMS
    }
    assert commands == {(PROXMOX, "start")}
    domains = [
        (name, method)
        for name, tree in FILES.items()
        for receiver, method, _call in calls(tree)
        if method in ("create", "createXML", "createWithFlags", "resume") and "domain" in receiver.lower()
    ]
    assert sorted(set(domains)) == [
        ("module_utils/_flexdisk/hypervisor/libvirt_connection.py", "create"),
        (DRIVERS[1], "create"),
        (MEMORY_OF_GUESTS, "resume"),
    ]


def test_one_function_restores_guests():
    """It asks first, as a start does, and is told by rules/saved_memory.py that nobody has begun before."""
    restores = {
        (name, method)
        for name, tree in FILES.items()
        for receiver, method, _call in calls(tree)
        if (method in ("restore", "resume") and receiver.endswith("_memory"))
        or (method in ("restore_memory", "restoreFlags", "restore", "managedSave") and "connection" in receiver)
    }
    assert restores == {(RESTORES, "restore"), (RESTORES, "resume"), (MEMORY_OF_GUESTS, "restoreFlags")}
    (made,) = [node for node in FILES[RESTORES].body if isinstance(node, ast.ClassDef)]
    (run,) = [node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    text = ast.unparse(run)
    asks, begins = text.index("check_start(vm, self._requester)"), text.index("self._restore(")
    assert "if action in (rules.RESTORE, rules.RESUME, rules.GO_ON):\n            check_start" in text
    assert asks < begins < min(text.index("self._resume("), text.index("self._go_on("))


def test_a_new_vm_does_not_boot_by_itself():
    """vmadm create starts a VM that has autoboot."""
    created = ast.unparse(
        next(
            node
            for node in ast.walk(FILES[MAKES_VMS])
            if isinstance(node, ast.FunctionDef) and node.name == "create_vm"
        )
    )
    assert "'autoboot': False" in created
