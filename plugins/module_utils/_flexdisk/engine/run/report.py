# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a task. Check mode and the real run use the same functions, on predicted VMs and on VMs read back."""

from __future__ import annotations

import typing as t

from ...model.sizes import MIB
from ...model.vm import Disk, Vm
from ...plan import approval, recovery
from ...plan.disk_steps import AttachDisk, Grow, LiftGuard, Shrink
from ...plan.steps import VmPlan
from ...rules import disk_properties, identity, space
from ...rules.snapshots import disks_in, freed, snapshots_of

TIMES = ("ctime", "mtime")
VOLATILE = (*TIMES, "serial_no")
_Dict = t.Dict[str, t.Any]


def disk_result(disk: Disk, state: str, volatile: bool, figures: bool = True) -> _Dict:
    """Return the result of a disk. block_size is bytes. volatile=False omits what check mode cannot know."""
    result: _Dict = {
        "name": disk.name,
        "boot": disk.boot,
        "type": disk.type,
        "size": disk.size_mib,
        "block_size": disk.volume.volblocksize,
        "pci_slot": disk.address if disk.key else disk.pci_slot,
        "model": disk.model,
        "image": disk.image,
        "index": disk.index,
        "path": disk.path,
        "volume": disk.volume.name,
        **disk_properties.result(disk.user_properties),
        "remaining": bool(disk.remaining),
        "compression": disk.volume.compression,
        "refreservation": -(-disk.volume.refreservation // MIB),
        "hidden": disk.hidden,
        "state": state,
    }
    if figures:
        result["snapshots"] = len(disk.snapshots)
        result["pinned"] = disk.volume.pinned // MIB
    if disk.uuid:
        result["uuid"] = disk.uuid
    if disk.key:
        result["key"] = disk.key
    if not volatile and disk.detached and not disk.volume.guid:
        # A disk that is to be made will lie under its uuid, which is not known yet.
        del result["volume"]
    if volatile:
        user = disk.volume.user
        result.update({key: user[key] for key in TIMES if key in user})
        if identity.is_valid("serial_no", user.get("serial_no", "")):
            result["serial_no"] = int(user["serial_no"])
    return result


def vm_result(vm: Vm, volatile: bool, figures: bool = True) -> _Dict:
    """Return the result of a VM, with its disks and those detached from it."""
    result: _Dict = {
        "uuid": vm.config.uuid,
        "alias": vm.config.alias,
        "state": vm.config.state,
        "autoboot": vm.config.autoboot,
        "flexible": vm.flexible,
        "flexible_disk_size": vm.declared_flexible,
        "hidden_disk_size": vm.hidden_mib,
        "vm_quota_bytes": vm.root.refquota,
        "disks": [disk_result(d, vm.config.state, volatile, figures) for d in vm.disks],
        "parked": [disk_result(d, "parked", volatile, figures) for d in _by_name(vm.detached)],
        "unmanaged": [d.volume.name for d in vm.orphans],
        "missing": list(vm.missing),
    }
    if figures:
        room = space.allocatable(vm)
        result["free_space"] = space.free_space_mib(vm)
        result["allocatable"] = None if room is None else room // MIB
    return result


def _remove_shared_figures(result: _Dict) -> None:
    """Remove the figures that cannot be predicted while a guard shares blocks with snapshots."""
    for key in ("free_space", "allocatable"):
        result.pop(key, None)
    for disk in (*result["disks"], *result["parked"]):
        del disk["pinned"]


def disk_template(vm: Vm) -> str:
    """Return the type of all disks of the VM, C(mixed) or C(diskless)."""
    kinds = {disk.type for disk in vm.disks if not disk.hidden}
    return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "diskless"


def snapshots_result(vm: Vm, figures: bool) -> t.List[_Dict]:
    """Return the VM's snapshots, the oldest first. created is seconds since 1970."""
    result = []
    for snapshot in snapshots_of(vm):
        entry: _Dict = {"name": snapshot.name, "disks": disks_in(vm, snapshot)}
        if figures:
            entry.update(created=snapshot.creation, frees_bytes=freed(vm, snapshot))
        result.append(entry)
    return result


def _by_name(disks: t.Iterable[Disk]) -> t.List[Disk]:
    return sorted(disks, key=lambda d: (d.name, d.volume.name))


def steps_result(plan: VmPlan) -> t.List[_Dict]:
    """Return the steps for the user, without silent ones. They have a status if the run failed."""
    return [
        dict(
            {"step": step.kind, "disk": step.disk, "text": step.text, "destroys": step.destroys},
            **({"status": plan.outcome.status(number)} if plan.outcome is not None else {}),
        )
        for number, step in enumerate(plan.steps)
        if not step.facts_only
    ]


def steps_with_class(plan: VmPlan, live: t.Collection[str]) -> t.List[_Dict]:
    """Return the steps for the user, each with its class. live: the kinds of steps that a running VM takes."""
    shown = [step for step in plan.steps if not step.facts_only]
    return [{**result, "class": plan.class_of(step, live)} for step, result in zip(shown, steps_result(plan))]


def plan_result(
    plan: VmPlan, after: Vm, asked: str, volatile: bool, live: t.Optional[t.Collection[str]] = None
) -> _Dict:
    """Return the result of a VM with what was, or would be, done.

    Args:
        after: the predicted VM, or the VM as read back.
        live: as in steps_with_class(), None for steps without classes.
    """
    result = vm_result(after, volatile)
    resizes = [step for step in plan.steps if isinstance(step, (Grow, Shrink, AttachDisk))]
    if not volatile and any(step.snapshots for step in resizes):
        # A resize moves blocks to snapshots alone. Only ZFS knows how many.
        del result["free_space"]
    if not volatile and any(isinstance(step, LiftGuard) and step.snapshots for step in plan.steps):
        _remove_shared_figures(result)
    result.update(
        vm=asked,
        changed=plan.changed,
        steps=steps_result(plan) if live is None else steps_with_class(plan, live),
        warnings=list(plan.warnings),
        recovered=recovery.recovered(plan),
        quota_bytes={"before": plan.before.root.quota, "after": after.root.quota},
        reservation_bytes={"before": plan.before.root.reservation, "after": after.root.reservation},
    )
    return result


def diff_text(plans: t.Sequence[VmPlan]) -> str:
    """Return the plans as a diff."""
    return "".join(line + "\n" for line in approval.lines(plans))


def differences(expected: Vm, actual: Vm) -> t.List[str]:
    """Return how a VM that was read back differs from the planned one. Changes by guests and clocks do not count."""
    planned_result, actual_result = vm_result(expected, False, False), vm_result(actual, False, False)
    planned_result.update(quota=expected.root.quota, reservation=expected.root.reservation)
    actual_result.update(quota=actual.root.quota, reservation=actual.root.reservation)
    for side in (planned_result, actual_result):
        for disk in side["disks"] + side["parked"]:
            disk.pop("uuid", None)
    return [
        f"{key}: planned {planned_result[key]!r}, found {actual_result[key]!r}"
        for key in planned_result
        if planned_result[key] != actual_result[key]
    ]
