# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tasks hand over: options of modules, variables of roles. A play finds what is left out only if it matters."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from .tasks import FILES, ROLES, ROOT, every_task, read

# What every call of a module (or of one of its steps), or of a role, is given; behind a colon, those of a file besides
GIVEN = {
    "check_variables": "playbook",
    "declared_disks": "",
    "declared_disks change": "",
    "declared_disks compare": "",
    "declared_disks plan": "",
    "disk": "hypervisor libvirt_uri pool",
    "disk_adopt": "hypervisor libvirt_uri pool vms",
    "disk_info": "hypervisor libvirt_uri pool state vm",
    "disk_verify": "hypervisor libvirt_uri pool",
    "group_gate": "guest_agent http members tcp",
    "group_lease": "group hypervisor libvirt_uri lock_timeout pool state ttl",
    "group_turn": "group",
    "guest_batches": "do",
    "playbooks/tasks/grow_batch: guest_batches": "batch",
    "guest_growth": "backup_dir disk_uuid logical_volume luks_passphrase pci_address serial",
    "host_order": "playbook",
    "host_info": "hypervisor libvirt_uri pool",
    "host_metrics": "hypervisor libvirt_uri path pool",
    "host_status": "hypervisor libvirt_uri pool",
    "move_jobs": "do",
    "move_plan": "allow_partial exclusive_tags host_groups hosts max_age redundancy request to_groups",
    "show_results": "about results",
    "playbooks/tasks/report_page: show_results": "page_hosts path",
    "replica_info": "hypervisor libvirt_uri pool",
    "role flexible_disks": "",
    "role guest_growth": "",
    "role instance_group": (
        "adopt after_member after_step all_hosts before_member before_step gate generation host_groups hosts "
        "lease_host lease_without members most_steps name only_size policy replace size take_over template"
    ),
    "role virtual_machine": "only vms",
    "role vm_move": (
        "allow_force_stop allow_memory_loss bandwidth_limit hosts how hypervisor libvirt_uri lock_timeout state "
        "stop_timeout target target_pool vm"
    ),
    "next_call": "arguments task",
    "next_turn": "do",
    "roles/vm_move/tasks/main: role vm_replica": "authorized_keys home lock_timeout peer_hypervisor peer_libvirt_uri",
    "role vm_placement": "hypervisor libvirt_uri",
    "role vm_replica": "bandwidth_limit hypervisor libvirt_uri peer",
    "start_order": "do",
    "vm": "hypervisor libvirt_uri vms",
    "vm_disks": "allow_restart hypervisor libvirt_uri pool stop_timeout vms",
    "failover look": "hypervisor libvirt_uri",
    "failover start": "boot hypervisor libvirt_uri name peers unasked",
    "vm_info": "hypervisor libvirt_uri",
    "vm_snapshot": "hypervisor libvirt_uri name pool state vms",
    "zfs_quota": "hypervisor libvirt_uri pool",
    "playbooks/adopt: disk_adopt": "forget state",
    "playbooks/apply: declared_disks change": "variables",
    "playbooks/apply: declared_disks compare": "variables",
    "playbooks/attach_disk: disk": "allow_restart from_vm index name pci_slot state stop_timeout take uuid vm",
    "playbooks/change_package: vm": "packages",
    "playbooks/delete_vm: vm": "stop_timeout",
    "playbooks/detach_disk: disk": "allow_restart name state stop_timeout uuid vm",
    "playbooks/list_disks: disk_info": "name space tags type uuid",
    "playbooks/move_vm: role vm_move": "forget_unseen seen unasked",
    "playbooks/tasks/turns: next_turn": "arguments do flow",
    "playbooks/parts/stage: role vm_placement": "involved",
    "playbooks/plan: declared_disks plan": "pools variables",
    "playbooks/recalculate_quota: zfs_quota": "on_refusal reclaim vms",
    "playbooks/tasks/replicate_round: role vm_replica": (
        "failover forget_unseen keep keep_home on_failure peer_pool state vms"
    ),
    "playbooks/report: vm_info": "pool space",
    "playbooks/resize_disk: disk": "allow_restart dangerous_allow_shrink size stop_timeout uuid vm",
    "playbooks/restore_disk: role vm_replica": "peer_pool",
    "playbooks/restore_disk: disk": "name replica source_snapshot",
    "playbooks/restore_vm: role vm_replica": "peer_pool",
    "playbooks/restart_vm: vm": "allow_force_stop allow_restart stop_timeout",
    "playbooks/stop_vm: vm": "allow_force_stop stop_timeout",
    "playbooks/rollback: vm_snapshot": "allow_restart destroy_newer flexible_disk_size newer stop_timeout",
    "playbooks/snapshot: vm_snapshot": "keep on_refusal packages",
    "playbooks/tasks/carry_out_move: role vm_move": "source",
    "playbooks/tasks/orphans: host_order": "orphans read",
    "playbooks/tasks/place: host_order": "placed read",
    "playbooks/tasks/place: role vm_placement": "packages pool vms",
    "playbooks/tasks/plan_moves: move_plan": (
        "allowed_moves from_groups from_hosts max_moves min_gain moves_between_groups moves_per_host vm_tags vms"
    ),
    "playbooks/verify_disks: disk_verify": "repair replica_days unused_days vms",
    "roles/disk_registry/tasks/main: disk": "allow_force_stop allow_restart disks lock_timeout on_refusal stop_timeout",
    "roles/disk_registry/tasks/main: disk_adopt": "lock_timeout on_refusal",
    "roles/disk_registry/tasks/verify: disk_verify": "lock_timeout repair",
    "roles/flexible_disks/tasks/others: vm_info": "pool",
    "roles/flexible_disks/tasks/others: zfs_quota": "lock_timeout vms",
    "roles/instance_group/tasks/agents: vm_info": "vms",
    "roles/instance_group/tasks/gate: group_gate": "delay limit retries stable_for",
    "roles/instance_group/tasks/info: vm_info": "leases",
    "roles/instance_group/tasks/lease: group_lease": "renew take_over",
    "roles/instance_group/tasks/place: role vm_placement": "beside optional packages pool spread to_groups vms",
    "roles/instance_group/tasks/turn: group_turn": "answers bad last placed serving",
    **dict.fromkeys(
        ("roles/instance_group/tasks/ask: vm", "roles/instance_group/tasks/vm: vm"),
        "allow_force_stop allow_restart lock_timeout on_refusal packages pool stop_timeout",
    ),
    "roles/virtual_machine/tasks/main: vm": (
        "allow_force_stop allow_restart expect_lines expect_plan lock_timeout on_refusal packages pool stop_timeout"
    ),
    "roles/vm_placement/tasks/main: move_plan": "answers",
    "roles/vm_placement/tasks/main: vm": "on_refusal packages pool",
}
DEFAULTS = {  # of variables that no role has: what docs/variables.md tells, or what stands for nothing said
    "flexdisk_adopt_state": "adopted",
    "flexdisk_failover_state": "taken_over",
    "flexdisk_hosts": "hypervisors",
    "flexdisk_report_page_hosts": "100",
    "flexdisk_list_format": "table",
    "flexdisk_list_header": "true",
    "flexdisk_metrics_path": "/var/lib/prometheus/node-exporter/flexdisk.prom",
    "flexdisk_move_format": "table",
    "flexdisk_move_how": "stopped",
    "flexdisk_move_state": "moved",
    "flexdisk_moves_per_host": "2",
    "flexdisk_replica_state": "present",
    "flexdisk_report_format": "table",
    "flexdisk_snapshot_state": "present",
    "flexdisk_transfer_authorized_keys": "~/.ssh/authorized_keys",
    "flexdisk_transfer_port": "22",
    "flexdisk_transfer_ssh_directories": "['/etc/ssh', '/var/ssh']",
    "flexdisk_status_fail_on": "half_done",
    "flexdisk_verify_fail_on": "never",
}
NOTHING = ("none", "false", "0", "[]", "{}", "''")
SEVERAL = {"flexdisk_hosts", "flexdisk_vm", "guest_growth_disks"}  # what they are without a value depends on the place
SPECS = {
    name: option
    for role in ROLES.iterdir()
    for name, option in read(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"].items()
}


class Call(NamedTuple):
    """A call of a module or a role: which one, where, and the names of what it is given."""

    name: str
    file: str
    label: str
    given: frozenset[str]


def calls() -> list[Call]:
    found = []
    for task in every_task():
        file = str(task.path.relative_to(ROOT).with_suffix(""))
        for key, value in task.here.items():
            module = key.removeprefix("flexdisk.hypervisor.")
            if module != key and isinstance(value, dict | None):
                options = dict(value or {})
                options.update(options.get("arguments") or {} if module == "host_step" else {})
                step = str(options.get("step", ""))
                name = f"{options.get('run', module)} {'end or give_up' if '{{' in step else step}".strip()
                defaults = {option.partition(".")[2] for option in task.options if option.startswith(f"{module}.")}
                found.append(Call(name, file, task.label, frozenset(options) | defaults))
        if role := task.here.get("ansible.builtin.include_role"):
            name = role["name"].rpartition(".")[2]
            given = (key.removeprefix(f"{name}_") for key in task.here.get("vars") or () if key in SPECS)
            found.append(Call(f"role {name}", file, task.label, frozenset(given)))
    return found


def test_calls_are_given_what_they_need():
    found = calls()
    assert {call.name for call in found} | {f"{call.file}: {call.name}" for call in found} >= set(GIVEN)
    assert {call.name for call in found} <= set(GIVEN)
    missing = [
        f"{call.label}: {option}"
        for call in found
        for key in (call.name, f"{call.file}: {call.name}")
        for option in sorted(set(GIVEN.get(key, "").split()) - call.given)
    ]
    assert missing == []


def test_a_variable_has_one_default():
    """That of the role that has it. The others have those of DEFAULTS, or stand for nothing."""
    names = "|".join(sorted((path.name for path in ROLES.iterdir()), reverse=True))
    pattern = rf"\b((?:flexdisk|{names})_\w+) \| default\(([^()]*?)(?:, true)?\)"
    defaults = defaultdict(set)
    for path in [*FILES, *ROLES.glob("*/defaults/main.yml"), *ROLES.glob("*/vars/main.yml")]:
        for name, default in re.findall(pattern, path.read_text()):
            defaults[name].add(default)
    odd = {}
    for name, found in defaults.items():
        own = SPECS.get(name, {}).get("default", DEFAULTS.get(name))
        told = {
            default for default in found if not re.fullmatch(r"omit|_?[a-z]+[_.][a-z_.]+", default)
        }  # no other variable
        wanted = NOTHING if own is None else {repr(own), str(own).lower() if isinstance(own, bool) else str(own)}
        if not (told <= set(wanted) and len(told) < 2):
            odd[name] = sorted(told)
    assert odd.keys() <= SEVERAL, odd
