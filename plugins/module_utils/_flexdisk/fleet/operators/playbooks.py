# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of operators, and how each of them decides what it does on which host."""

from __future__ import annotations

import typing as t

from . import create, one_disk, replicate, restore, vms
from .order import Playbook, Raw


def _deletes(variables: Raw) -> bool:
    """Return whether snapshots are deleted, so that another VM of the name must not be meant."""
    return "flexdisk_snapshot_keep" in variables or variables.get("flexdisk_snapshot_state") == "absent"


def _power(state: str) -> Playbook:
    """A playbook that starts or stops VMs."""
    names = ("flexdisk_vm", "flexdisk_power_vms")
    return Playbook(vms.in_state(state), names=vms.vms_of(*names), check=vms.one_way(names[1]))


PLAYBOOKS: t.Mapping[str, Playbook] = {
    "add_disk": Playbook(one_disk.add_disk),
    "resize_disk": Playbook(one_disk.resize_disk),
    "remove_disk": Playbook(one_disk.remove_disk, exact=True),
    "attach_disk": Playbook(one_disk.attach_disk),
    "detach_disk": Playbook(
        one_disk.detach_disk,
        names=lambda given: [given.get("flexdisk_vm", given["flexdisk_disk"])],
        finds_disks=lambda given: "flexdisk_vm" not in given,
    ),
    "change_package": Playbook(vms.change_package),
    "delete_vm": Playbook(vms.delete_vm, exact=True),
    "rollback": Playbook(
        vms.chosen("flexdisk_vm", "flexdisk_snapshot_vms"),
        names=vms.vms_of("flexdisk_vm", "flexdisk_snapshot_vms"),
        check=vms.one_way("flexdisk_snapshot_vms"),
    ),
    "snapshot": Playbook(
        vms.chosen("flexdisk_vm", "flexdisk_snapshot_vms"),
        names=vms.vms_of("flexdisk_vm", "flexdisk_snapshot_vms"),
        strict=_deletes,
        check=vms.not_two_ways,
    ),
    "adopt": Playbook(
        vms.adopt,
        names=vms.vms_of("flexdisk_adopt_vms"),
        strict=lambda given: given.get("flexdisk_adopt_state") == "released",
        check=vms.odd_names,
    ),
    "recalculate_quota": Playbook(
        vms.chosen("flexdisk_quota_vms"), names=vms.vms_of("flexdisk_quota_vms"), strict=lambda given: False
    ),
    "verify_disks": Playbook(
        vms.chosen("flexdisk_verify_vms"),
        names=vms.vms_of("flexdisk_verify_vms"),
        strict=lambda given: bool(given.get("flexdisk_verify_repair")),
    ),
    "list_disks": Playbook(
        vms.chosen("flexdisk_list_vm"),
        names=vms.vms_of("flexdisk_list_vm"),
        strict=lambda given: False,
        gone=lambda given: True,
    ),
    "create_vm": Playbook(create.create_vm, names=create.asked_for, check_all=create.not_for_one_host, optional=True),
    "replicate": Playbook(
        replicate.replicate,
        names=replicate.names,
        strict=replicate.gives_up,
        check=replicate.contradictions,
        check_all=replicate.without_entry,
        gone=replicate.gives_up,
        reads=replicate.names_groups,
        goes_on=True,
    ),
    "list_replicas": Playbook(
        replicate.wanted,
        names=replicate.names,
        strict=lambda given: False,
        check=replicate.contradictions,
        reads=lambda given: True,
        goes_on=True,
    ),
    "restore_disk": Playbook(
        restore.restore_disk, names=restore.names, strict=restore.in_place, check=restore.contradictions
    ),
    "restore_vm": Playbook(restore.restore_vm, strict=restore.in_place, check=restore.vm_contradictions),
    "start_vm": _power("running"),
    "stop_vm": _power("stopped"),
    "restart_vm": _power("restarted"),
    "plan": Playbook(vms.declared_disks, names=vms.vms_of("flexdisk_vm")),
    "apply": Playbook(vms.approved_disks, names=vms.vms_of("flexdisk_vm")),
}
