# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Approval of plans: the lines that people read, and the digest of what will be done."""

from __future__ import annotations

import typing as t
from dataclasses import fields, is_dataclass, replace

from ..model.dataset import DatasetId
from ..model.desired import Approval, Policy
from ..model.sizes import render_change
from ..model.text import visible
from ..model.vm import Disk, DiskConfig, Vm
from ..rules import space
from ..rules.digest import digest_of
from ..rules.replicas import is_synced
from . import summary
from .steps import Step, VmPlan
from .vm_steps import RollBack, SettleQuota

_Plain = t.Any  # what JSON has

# Fields of steps that do not change what is done: texts, the clock, names that snapshots get when their disk leaves a
# VM, and space that is only foreseen.
_ASIDE = frozenset(("report", "creation", "newest", "renames", "beside_bytes"))
# Fields whose order does not matter: all parts are done at once.
_AT_ONCE = frozenset(("edits",))
# Fields that may be secret: a digest could be compared with guesses.
_SECRET = frozenset(("metadata", "template"))
# Fields by the names that digests have for them. A digest that was approved must not change when a field is renamed.
_DIGEST_NAMES = {
    "on_hold": "held",
    "complete": "whole",
    "reservation_set_later": "lean",
    "sets_volumes_to_auto": "resets",
    "fingerprint": "mark",
}


def lines(plans: t.Sequence[VmPlan]) -> t.List[str]:
    """Return the plans for a human: one block for each VM that changes, and the number of the others."""
    if not any(plan.changed for plan in plans):
        return []
    idle = summary.unchanged(plans)
    return [*(visible(line) for plan in plans if plan.changed for line in _block(plan)), *([idle] if idle else [])]


def in_order(plans: t.Iterable[VmPlan]) -> t.List[VmPlan]:
    """Return the plans in an order that does not depend on the declaration: by the names of the VMs."""
    return sorted(plans, key=lambda plan: (plan.name, plan.vm))


def _block(plan: VmPlan) -> t.Iterator[str]:
    yield f"{plan.before.label}:"
    yield from (f"  {step.text}" for step in plan.steps if step.text and not isinstance(step, SettleQuota))
    before, after = plan.before.root, plan.after.root
    if not (plan.before.exists and plan.after.exists):
        return
    if before.quota != after.quota:
        yield f"  quota {render_change(before.quota, after.quota)}"
    elif before.reservation != after.reservation:
        yield f"  reservation {render_change(before.reservation, after.reservation)}"


def changed(approved: Approval, now: t.Sequence[str], digest_now: str) -> str:
    """Return the message for a plan that differs from the approved one. now: its lines."""
    text = f"the plan has changed since it was approved: its digest is {digest_now}, not {approved.digest}"
    if not approved.lines:
        return "\n".join([f"{text}. Nothing was changed. The plan is now:", *now])
    before, after = [dict.fromkeys(_standing_alone(those)) for those in (approved.lines, now)]
    differ = [f"- {line}" for line in before if line not in after] + [
        f"+ {line}" for line in after if line not in before
    ]
    shown = differ or ["nothing that the lines of a plan show"]
    return "\n".join([f"{text}. Nothing was changed. The differences are:", *shown])


def _standing_alone(those: t.Sequence[str]) -> t.Iterator[str]:
    """Put the name of its VM before each line about a VM, so that the line can be read alone."""
    head = ""
    for number, line in enumerate(those):
        if line.startswith(" "):
            yield f"{head} {line.strip()}"
        elif any(following.startswith(" ") for following in those[number + 1 : number + 2]):
            head = line
        else:
            yield line


def digest(plans: t.Iterable[VmPlan], policy: t.Optional[Policy] = None) -> str:
    """Return the digest of what the plans do, and to which datasets. policy: how a VM is stopped.

    It does not depend on the order of VMs and disks in the declaration, the clock, the free space, or VMs that do not
    change.
    """
    return digest_of([_plan(plan, policy or Policy()) for plan in in_order(plans) if plan.changed])


def _plan(plan: VmPlan, policy: Policy) -> t.Dict[str, _Plain]:
    steps = [_without_syncs(step, plan.after) for step in plan.steps if not step.facts_only]
    guids = _guids(plan.before)
    return {
        "vm": plan.vm,
        "pool": plan.before.root.pool,
        "steps": sorted(map(_step, steps), key=digest_of),
        "guids": sorted({name: guids[name] for step in steps for name in step.datasets if name in guids}.items()),
        "stopping": [policy.stop_timeout, policy.allow_force_stop] if plan.stops else [],
        "figures": _changes(_figures(plan.before), _figures(plan.after)),
        "disks": _changes(_disks(plan.before), _disks(plan.after)),
        "lost": _lost(plan),
        "back": _back(plan),
    }


def _without_syncs(step: Step, vm: Vm) -> Step:
    """Return the step without the space that each sync of a replica adds to the quota."""
    if not isinstance(step, SettleQuota):
        return step
    return replace(step, quota_bytes=_without_sync_space(step.quota_bytes, vm))


def _without_sync_space(quota: int, vm: Vm) -> int:
    """Return a quota without the space for syncs; 0 stays 0."""
    return quota and quota - space.sync_space(vm)


def _step(step: Step) -> t.Dict[str, _Plain]:
    report = step.report
    return {
        "kind": step.kind,
        "disk": report.disk,
        "destroys": report.destroys,
        "anew": report.recreates,
        **_fields(step),
    }


def _fields(thing: _Plain) -> t.Dict[str, _Plain]:
    result = {}
    for name in (field.name for field in fields(thing)):
        value = getattr(thing, name)
        if name in _ASIDE or isinstance(value, Vm) or (name == "snapshots" and isinstance(value, bool)):
            continue
        plain = _keys(value) if name in _SECRET else _plain(value)
        result[_DIGEST_NAMES.get(name, name)] = sorted(plain, key=digest_of) if name in _AT_ONCE else plain
    return result


def _keys(secret: _Plain) -> _Plain:
    return sorted(secret) if isinstance(secret, t.Mapping) else bool(secret)


def _plain(value: _Plain) -> _Plain:
    if isinstance(value, Disk):
        return {"volume": value.volume.name, "guid": value.volume.guid}
    if isinstance(value, DiskConfig):
        return value.path
    if isinstance(value, Step):
        return _step(value)
    if is_dataclass(value):
        return _fields(value)
    if hasattr(value, "_asdict"):
        fields_of = value._asdict().items()
        return {_DIGEST_NAMES.get(name, name): _plain(part) for name, part in fields_of if name not in _ASIDE}
    if isinstance(value, t.Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value if not _of_sync(part)]
    return value


def _of_sync(value: _Plain) -> bool:
    """Whether this is the name of a snapshot of a sync. Each sync replaces them, and they hold no data of the VM."""
    name = value.name if isinstance(value, DatasetId) else value
    return isinstance(name, str) and is_synced(name.rpartition("@")[2])


def _guids(vm: Vm) -> t.Dict[str, int]:
    """Return the guids of the VM's datasets by name: another dataset of the same name is not the approved one."""
    disks = (*vm.disks, *vm.orphans, *vm.detached)
    return {dataset.name: dataset.guid for dataset in (vm.root, *(disk.volume for disk in disks))}


def _changes(before: t.Mapping[str, _Plain], after: t.Mapping[str, _Plain]) -> t.List[_Plain]:
    """Return name, value before and value after, where the two values differ."""
    names = sorted({*before, *after})
    pairs = [(name, before.get(name), after.get(name)) for name in names]
    return [[name, was, will] for name, was, will in pairs if was != will]


def _figures(vm: Vm) -> t.Dict[str, _Plain]:
    config, root = vm.config, vm.root
    return {
        "state": config.state,
        "autoboot": config.autoboot,
        "indestructible": config.indestructible,
        "memory_mib": config.memory,
        "vcpus": config.vcpus,
        "flexible_mib": config.flexible_disk_size,
        "vm_quota": root.refquota,
        "quota": _without_sync_space(root.quota, vm),
        "reservation": _without_sync_space(root.reservation, vm),
    }


def _disks(vm: Vm) -> t.Dict[str, _Plain]:
    return {
        disk.volume.name: {
            "uuid": disk.uuid,
            "name": disk.name,
            "path": disk.path,
            "size_bytes": disk.size,
            "block_size_bytes": disk.volume.volblocksize,
            "type": disk.type,
            "compression": disk.volume.compression,
            "pci_slot": disk.pci_slot,
            "model": disk.model,
            "boot": disk.boot,
            "own": _plain(disk.user_properties),
        }
        for disk in vm.disks + vm.orphans + vm.detached
    }


def _lost(plan: VmPlan) -> t.List[_Plain]:
    """Return the snapshots that are destroyed, without those of syncs."""
    before, after = _snapshots(plan.before), _snapshots(plan.after)
    return sorted([*moment, before[moment]] for moment in {*before} - {*after})


def _back(plan: VmPlan) -> t.List[_Plain]:
    """Return the snapshots that the VM is rolled back to, with the guids of their datasets. The step does not have
    these, and another dataset may have received the same snapshots.
    """
    names = {part for step in plan.steps if isinstance(step, RollBack) for part, _guid in step.parts}
    return sorted([*moment, name] for moment, name in _snapshots(plan.before).items() if name in names)


def _snapshots(vm: Vm) -> t.Dict[t.Tuple[int, int], str]:
    """Return the names of snapshots by the guid of their dataset and createtxg, without those of syncs."""
    disks = vm.disks + vm.orphans + vm.beside + vm.detached
    places = [(vm.root, vm.snapshots), *((disk.volume, disk.snapshots) for disk in disks)]
    return {
        (dataset.guid, snapshot.createtxg): snapshot.name
        for dataset, snapshots in places
        for snapshot in snapshots
        if not _of_sync(snapshot.name)
    }
