# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever destroys datasets, snapshots or bookmarks goes through zfs/exact.py, which compares first; and who goes
there is known by name.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from ..playbooks.tasks import every_task

HOUSE = Path(__file__).resolve().parents[3] / "plugins"
OURS = "module_utils/_flexdisk/"
DOOR = "zfs/exact.py"
# The commands themselves: here is what zfs destroy and zfs rollback are called with.
COMMANDS = ("zfs/commands.py", "zfs/copies.py")
WORDS = {"destroy", "rollback"}
NAMES = {*WORDS, "roll_back", "destroy_tree", "destroy_snapshots", "destroy_own", "destroy_with_holds",
         "roll_back_replica", "drop_own_copy", "delete_vm", "delete_config_only", "delete_snapshot",
         "remove_unfinished"}  # fmt: skip
# Who names them, as FILE FUNCTION: what, how often; and why. The rooms that are not here start no process.
ROOMS = ("engine/", "hypervisor/", "zfs/")
THROUGH_THE_DOOR = {
    "engine/moves/vm_arrival.py MoveTarget._drop_foreign_snapshots: exact.destroy_snapshots": 1,
    "engine/moves/vm_arrival.py MoveTarget._drop_replica_state: exact.destroy_own": 1,
    "engine/moves/vm_departure.py MoveSource.tidy: exact.destroy_own": 1,
    "engine/moves/vm_departure.py remove_leftovers: exact.destroy": 1,
    "engine/replication/replica_send.py Sender._make_room: exact.destroy_own": 1,
    "engine/replication/replica_send.py Sender._bookmark_base: exact.destroy_own": 1,
    "engine/replication/replica_send.py Sender._destroy_unless_cloned: exact.destroy_own": 1,
    "engine/replication/replica_send.py Sender._drop_seals: exact.destroy_own": 1,
    "engine/replication/replica_send.py Sender.remove: exact.destroy_own": 1,
    "engine/replication/way_back.py roll_back_replica: exact.destroy_own": 1,
    "engine/steps/apply_figures.py retire_syncs: exact.destroy_snapshots": 1,
    "engine/steps/apply_vm.py clear_remains: exact.destroy_tree": 1,
    "engine/steps/apply_vm.py _destroy_datasets: exact.destroy": 1,
    "engine/steps/file_disks.py discard: exact.destroy": 1,
    "engine/steps/storage.py ByZfs.destroy_before_delete: exact.destroy": 2,
    "engine/steps/storage.py ByZfs.delete_snapshot: exact.destroy_snapshots": 1,
    "engine/steps/storage.py ByZfs.roll_back: exact.roll_back": 1,
    "engine/steps/volumes.py destroy_volume: exact.destroy": 1,
    "engine/moves/replica_last.py LastTransfer._drop_old_snapshots: exact.destroy_own": 1,
    "zfs/guard.py lift: exact.destroy_own": 1,
}
OF_COPIES = {  # copies on this host of disks that are elsewhere, and disks of a VM that has another home now
    "engine/replication/own_copies.py drop_own_copy: destroy_with_holds": 1,
    "engine/replication/own_copies.py drop_own_copy: zfs.destroy": 1,  # ZFS refuses one with snapshots
    "engine/replication/own_copies.py drop_move_entry: drop_own_copy": 1,
    "engine/replication/own_copies.py destroy_with_holds: copies.destroy": 1,  # snapshots, named one by one
    "engine/replication/replica_receive.py Receiver._prepare_replica: roll_back_replica": 1,
    "engine/replication/replica_receive.py Receiver._destroy_unless_cloned: destroy_with_holds": 1,
    "engine/replication/replica_receive.py Receiver.remove: drop_own_copy": 1,
    "engine/replication/restore_target.py RestoreTarget._give_up: drop_own_copy": 1,
    "engine/replication/way_back.py roll_back_replica: destroy_with_holds": 1,
    "engine/replication/way_back.py roll_back_replica: copies.roll_back": 1,  # to the newest: ZFS refuses any other
    # The memory of a guest that goes on, that another host has, or that somebody has given up.
    "engine/replication/own_copies.py clear_memory: drop_own_copy": 1,
    "engine/moves/guest_memory.py drop_seals: exact.destroy_own": 1,
    "engine/moves/vm_arrival.py MoveTarget._remove_leftovers: drop_own_copy": 1,
    "engine/failover/vm_takeover.py TakeOver._go_back: roll_back_replica": 1,
    "engine/failover/failover_return.py FailoverReturn._become_replica: destroy_with_holds": 1,
    "engine/failover/failover_return.py FailoverReturn._become_replica: self._copies.destroy": 1,  # bookmarks
    "engine/failover/failover_return.py FailoverReturn._roll_back: self._copies.roll_back": 1,  # as above
    "engine/failover/failover_return.py FailoverReturn._destroy: destroy_with_holds": 1,
    "engine/failover/failover_return.py FailoverReturn._destroy: self._zfs.destroy": 1,  # as drop_own_copy
}
BY_HYPERVISOR = {  # right after the last look
    "engine/steps/apply_vm.py delete_vm: whole_vms(tools.hypervisor).delete_vm": 1,
    "engine/steps/apply_vm.py delete_config_only: whole_vms(hypervisor).delete_vm": 1,
    "engine/steps/apply_vm.py remove_unfinished: whole_vms(tools.hypervisor).delete_vm": 1,
    "engine/moves/vm_departure.py remove_leftovers: delete_config_only": 1,
    "engine/steps/storage.py ByHypervisor.delete_snapshot: self._storage.delete_snapshot": 1,
    "engine/steps/storage.py ByHypervisor.delete_snapshot: super().delete_snapshot": 1,
    "engine/steps/storage.py ByZfs.delete_snapshot: snapshots.delete_snapshot": 1,  # qm delsnapshot
    "engine/steps/storage.py ByZfs.roll_back: snapshots.roll_back": 1,  # qm rollback
    "hypervisor/libvirt_connection.py Connection.destroy: domain.destroy": 1,  # it switches a domain off
    "hypervisor/libvirt_disks.py LibvirtDisks.stop: self._domains.destroy": 1,  # as above
}
TABLES = {  # who carries out a step of a plan, and which storage a VM has
    "engine/steps/performers.py: apply_moves.destroy": 1,
    "engine/steps/performers_of_vms.py: apply_vm.delete_snapshot": 1,
    "engine/steps/performers_of_vms.py: apply_vm.roll_back": 1,
    "engine/steps/performers_of_vms.py: apply_vm.remove_unfinished": 1,
    "engine/steps/performers_of_vms.py: apply_vm.delete_vm": 1,
    "engine/steps/apply_vm.py delete_snapshot: storage_of(tools).delete_snapshot": 1,
    "engine/steps/apply_vm.py roll_back: storage_of(tools).roll_back": 1,
}
FACTS = {  # that an interrupted run was going back to a snapshot
    "engine/host/journal.py _rollback: earlier.rollback": 1,
    "engine/host/journal.py _before_rollback: vm.interrupted.rollback": 1,
    "engine/host/journal.py _is_obsolete: intent.rollback": 1,
    "engine/host/journal.py _is_settled: intent.rollback": 1,
    "engine/modules/disk_adopt.py _is_settled: entry.rollback": 1,
    "engine/steps/apply.py Applier.__init__: plan.before.interrupted.rollback": 1,
}
# Words of commands in the rooms above and in what they send to other hosts, beside the commands themselves
SAID = {
    "hypervisor/pve_disks.py: destroy",  # the name of a step that the driver carries out
    "hypervisor/libvirt_disks.py: destroy",  # a word of libvirt's XML: what happens when a guest has ended
    "hypervisor/pve_snapshots.py: rollback",  # a command of qm, right after the last look
    "hypervisor/pve_vm.py: rollback",  # what a VM is locked for
    "fleet/replication/trust.py: receive",  # the receiver of a replica, which the next one is for
    "fleet/replication/trust.py: -F",
}


@functools.cache
def files():
    found = {str(path.relative_to(HOUSE)): ast.parse(path.read_text()) for path in sorted(HOUSE.rglob("*.py"))}
    return {name.removeprefix(OURS): tree for name, tree in found.items()}


def mentions(node, where=""):
    """Every mention of what destroys, called or not, with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = where
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inner = f"{where}.{child.name}".strip(".")
        if isinstance(child, ast.Attribute) and child.attr in NAMES:
            yield inner, ast.unparse(child)
        if isinstance(child, ast.Name) and child.id in NAMES:
            yield inner, child.id
        yield from mentions(child, inner)


def test_whoever_destroys_or_rolls_back_is_known_by_name():
    """A further one is a decision: it goes through the door, and its line comes here."""
    found = {}
    for file, tree in files().items():
        if not file.startswith(ROOMS) or file == DOOR or file in COMMANDS:
            continue
        for where, what in mentions(tree):
            name = f"{file} {where}".strip() + f": {what}"
            found[name] = found.get(name, 0) + 1
    assert found == {**THROUGH_THE_DOOR, **OF_COPIES, **BY_HYPERVISOR, **TABLES, **FACTS}


def test_what_destroys_is_imported_under_its_own_name():
    for file, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert not [one.name for one in node.names if one.name in NAMES and one.asname], file


def test_only_the_commands_say_destroy_and_rollback_and_never_recursively():
    """Also in the middle of a text, which could be one for a shell."""
    said = set()
    for file, tree in files().items():
        for node in ast.walk(tree):
            words = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            sent = file.startswith((*ROOMS, "fleet/replication/trust.py", "action/", "plugin_utils/"))
            if file not in COMMANDS and sent and words in {*WORDS, "receive", "recv", "-F"}:
                said.add(f"{file}: {words}")
    assert said == SAID
    for file in COMMANDS:
        for node in (node for node in ast.walk(files()[file]) if isinstance(node, (ast.Call, ast.List, ast.Tuple))):
            whole = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not (WORDS & whole and {"-r", "-R", "-f", "-rf", "-fr"} & whole), (file, whole)


def test_no_play_runs_commands():
    free = {"command", "shell", "raw", "script"}
    found = {(task.label, key) for task in every_task() for key in task.here if key.rpartition(".")[2] in free}
    assert {key for _label, key in found} == set(), found


def test_a_hypervisor_destroys_only_where_a_last_look_comes_before():
    where = {
        "apply_vm.delete_vm": "confirm",
        "storage.delete_snapshot": "confirm_snapshots",
        "storage.roll_back": "confirm_rollback",
    }
    for place, look in where.items():
        file, function = place.split(".")
        tree = files()[f"engine/steps/{file}.py"]
        bodies = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function]
        assert any(re.search(rf"\bexact\.{look}\(", ast.unparse(body)) for body in bodies), function
