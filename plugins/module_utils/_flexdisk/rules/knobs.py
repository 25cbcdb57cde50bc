# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that messages name as a remedy, and the variables of playbooks and roles for them.

Modules name an option as in a task: C(allow_restart: true). Users of a playbook set a variable instead.
"""

from __future__ import annotations

import json
import re
import shlex
import typing as t

_POWER = ("flexible_disks", "virtual_machine", "disk_registry", "vm_move", "instance_group")

# The variables that stand for each option, in playbooks and in roles. Without one, the option is a word of an entry,
# which is spelled in the inventory as it is in a task.
KNOBS: t.Mapping[str, t.Sequence[str]] = {
    "allow_restart": tuple(f"{role}_allow_restart" for role in _POWER[:3]),
    "allow_force_stop": tuple(f"{role}_allow_force_stop" for role in _POWER),
    "dangerous_allow_shrink": ("flexdisk_dangerous_allow_shrink",),
    "destroy_disks": ("flexdisk_destroy_disks",),
    "destroy_snapshots": ("flexdisk_destroy_snapshots",),
    "destroy_newer": ("flexdisk_snapshot_destroy_newer",),
    "newer": ("flexdisk_snapshot_newer",),
    "take": ("flexdisk_take",),
    "take_over": ("flexdisk_take_over", "instance_group_take_over"),
    "preserve": ("flexdisk_preserve",),
    "adopt": (),
    "boot": (),
    "flexible_disk": (),
    "recreate": (),
    "renew": (),
}
_KNOB = re.compile(rf"(?<![\w.-])({'|'.join(KNOBS)}): (true|\[[^\]\n]*\])(?!\w)")

_TIMEOUT = re.compile(r"(?<![\w.-])(stop_timeout|lock_timeout)(?==\d|\))")

# What a message says of other modules, and the same for one who has playbooks. The first that fits counts.
_CONVERGE = "the playbook converge (flexible_disks_vms)"
_OF_MODULES: t.Sequence[t.Tuple[str, str]] = (
    (r"vm_disks makes it with the entry (- \{.*?\})(?=;|$| \[)",
     r"the playbook converge makes it, with the line \1 in flexible_disks_vms"),
    (r"vm_disks with adopt: true", "the playbook converge, with adopt: true in flexible_disks_vms,"),
    (r"vm_disks", _CONVERGE),
    (r"disk_adopt finishes it \(state=released\) or undoes it \(state=adopted\)",
     "the playbook adopt finishes it (-e flexdisk_adopt_state=released) or undoes it"),
    (r"disk_adopt", "the playbook adopt"),
    (r"disk_verify with repair: (\w+)", r"""the playbook verify_disks with -e '{"flexdisk_verify_repair": ["\1"]}'"""),
    (r"disk_verify", "the playbook verify_disks"),
    (r"zfs_quota", "the playbook recalculate_quota"),
    (r"vm_snapshot with state=rolled_back", "the playbook rollback"),
    (r"vm_snapshot with state=absent deletes", "the playbook snapshot with -e flexdisk_snapshot_state=absent deletes"),
    (r"vm_snapshot deletes", "the playbook snapshot with -e flexdisk_snapshot_state=absent deletes"),
    (r"vm with state=absent", "the playbook delete_vm"),
    (r"the same task of vm makes it anew, and state=absent removes",
     "the same playbook makes it again, and delete_vm removes"),
    (r"the same task of vm \(state=absent\)", "a task of the module vm with state=absent"),
    (r"state=present of flexdisk\.hypervisor\.disk", "the role disk_registry"),
)  # fmt: skip


def for_playbooks(text: str) -> str:
    """Return a message with playbooks in place of the modules that it names.

    A module that "changed" something stays: the change may come from any playbook, or from none.
    """
    for module, replacement in _OF_MODULES:
        text = re.sub(rf"(?<![\w./=-])(?<!changed by )(?:{module})(?!\w)", replacement, text)
    return text


def with_variables(text: str, variables: t.Collection[str]) -> str:
    """Return a message of a module for a user who can set these variables: C(-e flexible_disks_allow_restart=true)."""
    if not variables:
        return text

    def variable(match: t.Match[str]) -> str:
        known = next((name for name in KNOBS[match[1]] if name in variables), "")
        if not known:
            return match[0]
        if match[2] == "true":
            return f"-e {known}=true"
        names = [name.strip() for name in match[2][1:-1].split(",")]
        return f"-e '{json.dumps({known: names}, ensure_ascii=False)}'"

    def waits(match: t.Match[str]) -> str:
        return min((name for name in variables if name.endswith("_" + match[0])), default=match[0])

    return _KNOB.sub(variable, _TIMEOUT.sub(waits, for_playbooks(text)))


def with_user_names(text: str, names: t.Mapping[str, str]) -> str:
    """Return a message with VMs named as the user named them. names: by the UUIDs that a task was given."""
    for uuid, name in names.items():
        new = f"{name} ({uuid}):".replace("\\", r"\\")
        text = re.sub(rf"(?m)^(VM |){uuid}:", rf"\g<1>{new}", text)
    return text


def limit_without(host: str) -> str:
    """Return the option that leaves a host out of a run: C(--limit 'all:!hv02')."""
    return f"--limit {shlex.quote(f'all:!{host}')}"


# The playbook that does what a task of a module does, and its variables for the module's options.
_PLAYBOOKS: t.Mapping[str, t.Tuple[str, t.Mapping[str, str]]] = {
    "disk_verify": ("verify_disks", {"vms": "flexdisk_verify_vms", "repair": "flexdisk_verify_repair"}),
    "zfs_quota": ("recalculate_quota", {"vms": "flexdisk_quota_vms", "reclaim": "flexdisk_quota_reclaim"}),
    "vm_snapshot": ("rollback", {"vms": "flexdisk_snapshot_vms", "name": "flexdisk_snapshot_name"}),
}


def command(task: t.Mapping[str, t.Mapping[str, t.Any]], host: str, alias: str) -> str:
    """Return the command that does the same as a task on a host. alias: that of its VM, if it has one. If no playbook
    can do it, return the task as YAML in one line.
    """
    ((module, options),) = task.items()
    collection, _dot, name = module.rpartition(".")
    if name not in _PLAYBOOKS or (name == "vm_snapshot" and options.get("state") != "rolled_back"):
        return f"- {module}: {json.dumps(options, ensure_ascii=False)}"
    playbook, variables = _PLAYBOOKS[name]
    given = {variables[key]: value for key, value in options.items() if key in variables}
    if alias and len(options.get("vms") or ()) == 1:
        given[variables["vms"]] = [alias]
    parts = [
        "ansible-playbook",
        f"{collection}.{playbook}",
        "--limit",
        host,
        "-e",
        json.dumps(given, ensure_ascii=False),
    ]
    return " ".join(map(shlex.quote, parts))
