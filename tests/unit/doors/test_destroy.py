# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever destroys datasets, snapshots or bookmarks goes through zfs/exact.py, which compares first."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[3] / "plugins"
DOOR = "module_utils/_flexdisk/zfs/exact.py"
# The commands themselves: here is what zfs destroy and zfs rollback are called with.
COMMANDS = ("module_utils/_flexdisk/zfs/commands.py", "module_utils/_flexdisk/zfs/copies.py")
# Where a hypervisor destroys by itself, right after the last look.
BY_HYPERVISOR = {
    "delete_vm": {"module_utils/_flexdisk/engine/steps/apply_vm.py"},
    "delete_snapshot": {
        "module_utils/_flexdisk/engine/steps/storage.py",
        "module_utils/_flexdisk/engine/steps/apply_vm.py",
    },
}
# What may stay beside the door, and why. Its words are those of the call.
ALLOWED = {
    "plan/ordering.py: departures.destroy": "makes a step of a plan",
    "hypervisor/libvirt_connection.py: domain.destroy": "libvirt's word for switching a domain off",
    "hypervisor/libvirt_driver.py: self._domains.destroy": "libvirt's word for switching a domain off",
    "engine/replication/own_copies.py: copies.destroy": "snapshots of a copy that is ours alone, named one by one",
    "engine/replication/own_copies.py: zfs.destroy": "a copy that is ours alone: ZFS refuses one with snapshots",
    "engine/failover/failover_return.py: self._copies.destroy": "snapshots that were named one by one",
    "engine/failover/failover_return.py: self._zfs.destroy": "a disk, after its snapshots: ZFS refuses one with others",
    "engine/failover/failover_return.py: self._copies.roll_back": "to the newest snapshot: ZFS refuses any other",
    "engine/replication/way_back.py: copies.roll_back": "a copy that is ours alone, to its newest snapshot",
    "engine/steps/apply_vm.py: storage_of(tools).roll_back": "the storage, which goes through the door",
}


@functools.cache
def files():
    return {str(path.relative_to(HOUSE)): ast.parse(path.read_text()) for path in sorted(HOUSE.rglob("*.py"))}


def calls(tree, name):
    """The calls of a method of this name, each as it is written."""
    found = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [ast.unparse(func) for func in found if isinstance(func, ast.Attribute) and func.attr == name]


def test_nothing_is_destroyed_or_rolled_back_beside_the_door():
    around = set()
    for file, tree in files().items():
        if file == DOOR or file in COMMANDS:
            continue
        short = file.replace("module_utils/_flexdisk/", "")
        around |= {f"{short}: {call}" for call in calls(tree, "destroy") if call != "exact.destroy"}
        around |= {f"{short}: {call}" for call in calls(tree, "rollback")}
        around |= {f"{short}: {call}" for call in calls(tree, "roll_back") if call != "exact.roll_back"}
    assert around - {*ALLOWED} == set()
    assert {*ALLOWED} - around == set(), "no longer needed"


def test_only_the_commands_say_destroy_and_rollback_and_never_recursively():
    for file, tree in files().items():
        for node in (node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.List, ast.Tuple))):
            words = [n.value for n in ast.iter_child_nodes(node) if isinstance(n, ast.Constant)]
            if words[:1] == ["zfs"] and {"destroy", "rollback"} & {*words}:
                assert file in COMMANDS, (file, words)
                assert not {"-r", "-R", "-f", "-rf"} & {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}


def test_a_hypervisor_destroys_only_where_a_last_look_comes_before():
    for name, allowed in BY_HYPERVISOR.items():
        assert {file for file, tree in files().items() if calls(tree, name)} <= allowed
    where = {"apply_vm.delete_vm": "confirm", "storage.delete_snapshot": "confirm_snapshots"}
    trees = files()
    for place, look in where.items():
        file, function = place.split(".")
        tree = trees[f"module_utils/_flexdisk/engine/steps/{file}.py"]
        bodies = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function]
        assert any(f"exact.{look}" in calls(body, look) for body in bodies), function
