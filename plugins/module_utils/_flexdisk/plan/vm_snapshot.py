# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Plans for snapshots of whole VMs: take one, delete one, roll back to one."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Keep, Policy, SnapshotDeclaration
from ..model.errors import Problems
from ..model.sizes import MIB, render_apart, render_bytes, render_change
from ..model.vm import Vm
from ..rules import pins, snapshots, space
from ..rules.replicas import is_synced
from ..rules.reservation import PoolGeometry
from ..rules.snapshots import VmSnapshot
from . import ordering, predict, recovery
from .ordering import Sequence
from .steps import Told, VmPlan
from .vm_steps import DeleteSnapshot, RollBack, SetFlexibleSize, TakeSnapshot


def plan_snapshot(
    vm: Vm, spec: SnapshotDeclaration, policy: Policy, capabilities: Capabilities, geometry: PoolGeometry, now: int
) -> VmPlan:
    """Steps for one VM, or every problem. now is the time in seconds since 1970."""
    problems = Problems(vm.config.alias or vm.config.uuid)
    seq = Sequence(vm, geometry)
    if vm.interrupted is not None and not _resumes(vm, spec):
        problems.add("InUse", recovery.unfinished(vm.interrupted))
    elif spec.state == "present":
        _take(seq, spec, now, problems)
    elif spec.state == "absent" and spec.name:
        _delete(seq, snapshots.find(vm, spec.name), problems)
    elif spec.state == "rolled_back":
        seq = _roll_back(vm, spec, policy, capabilities, geometry, problems)
    if spec.keep is not None and not problems:
        _prune(seq, spec.keep, problems)
    if seq.steps:
        ordering.check_ready(vm, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), tuple(_warnings(vm, spec)))


def _resumes(vm: Vm, spec: SnapshotDeclaration) -> bool:
    left = vm.interrupted
    return left is not None and spec.state == "rolled_back" and left.rollback == spec.name


def _warnings(vm: Vm, spec: SnapshotDeclaration) -> t.Iterator[str]:
    """Warnings about disks that a rollback leaves as they are."""
    snapshot = snapshots.find(vm, spec.name)
    if spec.state == "rolled_back" and snapshot is not None:
        for disk in vm.disks + vm.orphans:
            if snapshot.of(disk.volume.name) is None:
                yield f"{vm.label}: disk {disk.label} is not in snapshot {spec.name} and stays as it is"


# -- take


def _take(seq: Sequence, spec: SnapshotDeclaration, now: int, problems: Problems) -> None:
    name = spec.name
    vm, there = seq.vm, snapshots.find(seq.vm, name)
    if there is not None and snapshots.whole(vm, there):
        return
    if there is not None:
        problems.add(
            "Ambiguous", f"{there.parts[0].name} is a remainder of a deleted snapshot; state=absent removes it"
        )
        return
    seq.extend(ordering.repairs(vm, seq.geometry, False))
    vm = seq.vm
    charge = sum(map(pins.holds, (vm.root, *vm.volumes)))
    text = f"+ snapshot {name} of {len(vm.volumes)} disks, holds {render_bytes(charge)} at once"
    step = TakeSnapshot(Told(text), name=name, full_name=snapshots.PREFIX + name, creation=now)
    after = predict.apply(vm, step, seq.geometry)
    short = _shortfall(vm, after)
    if short > 0:
        problems.add("InsufficientSpace", _short_text(vm, after, spec, charge, short))
    seq.add(step)


def _shortfall(vm: Vm, after: Vm) -> int:
    """Bytes that are missing for the snapshot, in the flexible disk space or in an inflexible VM's quota."""
    room = space.allocatable(after)
    if room is not None:
        return -room
    held = vm.root.used + sum(a.used - b.used for a, b in zip(after.volumes, vm.volumes)) + _of_root(vm, after)
    return held - vm.root.quota


def _of_root(vm: Vm, after: Vm) -> int:
    return after.root.usedbyrefreservation - vm.root.usedbyrefreservation


def _short_text(vm: Vm, after: Vm, spec: SnapshotDeclaration, charge: int, short: int) -> str:
    words = "snapshot %s needs %s at once, and %s is left" % (spec.name, *render_apart(charge, max(0, charge - short)))
    if vm.flexible:
        smallest = space.smallest_flexible_mib(after) - vm.hidden_mib
        words += f"; flexible_disk_size must be at least {smallest} MiB"
        would = [p for p in sorted(spec.packages, key=lambda p: p.disk) if p.flexible_disk and p.disk >= smallest]
        words += f", with package {would[0].name} ({would[0].disk} MiB)" if would else ""
    else:
        words += "; a VM without flexible disk space has no room for snapshots of data that its disks have written"
    relief = [f"snapshot {s.name} {render_bytes(snapshots.freed(vm, s))}" for s in snapshots.snapshots_of(vm)]
    relief += [f"disk {d.label} {render_bytes(d.size + d.volume.pinned)}" for d in vm.disks if not d.boot]
    return words + (f"; these would free: {', '.join(relief)}" if relief and vm.flexible else "")


# -- delete


def _deletion(vm: Vm, snapshot: VmSnapshot) -> DeleteSnapshot:
    return DeleteSnapshot(
        Told(f"- snapshot {snapshot.name} DESTROYED", destroys=True),
        name=snapshot.name,
        # The VM's dataset comes last, because an interrupted deletion is found again by that part.
        parts=tuple(part.name for part in reversed(snapshot.parts)),
        whole=snapshots.whole(vm, snapshot),
    )


def _delete(seq: Sequence, snapshot: t.Optional[VmSnapshot], problems: Problems) -> None:
    if snapshot is None:
        return
    _unowned(snapshot, problems)
    _used(snapshot.parts, problems)
    seq.add(_deletion(seq.vm, snapshot))


def _unowned(snapshot: VmSnapshot, problems: Problems) -> None:
    names = ", ".join(part.name for part in snapshot.strange)
    if names:
        problems.add(
            "Ambiguous",
            f"{names} has the name of snapshot {snapshot.name}, but was not taken with it; rename it",
        )


def _used(parts: t.Iterable[Dataset], problems: Problems) -> None:
    for part in parts:
        if part.clones:
            problems.add("InUse", f"{part.name} has clones: {', '.join(part.clones)}")
        if part.userrefs:
            problems.add("InUse", f"{part.name} has {part.userrefs} holds (zfs holds {part.name})")


def _prune(seq: Sequence, keep: Keep, problems: Problems) -> None:
    every = [s for s in snapshots.snapshots_of(seq.vm) if snapshots.whole(seq.vm, s)]
    stay = snapshots.kept(every, keep.last, keep.daily, keep.weekly)
    for snapshot in every:
        if snapshot.name not in stay:
            _delete(seq, snapshot, problems)


# -- roll back


def _roll_back(
    vm: Vm,
    spec: SnapshotDeclaration,
    policy: Policy,
    capabilities: Capabilities,
    geometry: PoolGeometry,
    problems: Problems,
) -> Sequence:
    seq = Sequence(vm, geometry)
    snapshot = snapshots.find(vm, spec.name)
    if snapshot is None or not snapshots.whole(vm, snapshot):
        have = ", ".join(s.name for s in snapshots.snapshots_of(vm) if snapshots.whole(vm, s)) or "none"
        problems.add("ResourceNotFound", f"there is no snapshot {spec.name}; existing ones: {have}")
        return seq
    if vm.interrupted is None and not snapshots.changed_since(vm, snapshot):
        seq.add(_raised(vm, spec, capabilities, problems))
        return seq
    _refuse_losses(vm, snapshot, spec, problems)
    state = vm.config.state
    if vm.interrupted is not None:
        state = vm.interrupted.state
        seq.add(recovery.recover(vm))
    if vm.config.state == "running":
        # An interrupted rollback itself may have started a VM that was stopped.
        if state == "running" and not policy.allow_restart:
            problems.add(
                "VmNotStopped", "the VM is running and must be stopped for a rollback; allow_restart=true allows it"
            )
        seq.add(ordering.stop(capabilities))
    raised = _raised(vm, spec, capabilities, problems)
    if raised is not None:
        seq.add(ordering.retire_syncs(vm, capabilities))
    seq.add(raised)
    seq.add(_rollback(vm, snapshot, capabilities))
    seq.extend(ordering.repairs(seq.vm, geometry, False))
    _refuse_excess(seq.vm, problems)
    if state == "stopped" and seq.vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    elif state == "running" and seq.vm.config.state == "stopped":
        seq.add(recovery.start(capabilities))
    seq.extend(recovery.power(vm, seq.vm, capabilities))
    return seq


def _refuse_losses(vm: Vm, snapshot: VmSnapshot, spec: SnapshotDeclaration, problems: Problems) -> None:
    _unowned(snapshot, problems)
    for disk in vm.disks + vm.orphans:
        if disk.guarded:
            problems.add(
                "InUse", f"{disk.volume.name} is still guarded by an interrupted run; vm_disks removes the guard"
            )
    newer, protection = snapshots.newer(vm, snapshot), snapshots.protection(vm)
    if protection in newer:
        newer.remove(protection)
        words = "the VM was protected after snapshot %s, and the protection's own snapshot %s prevents a rollback"
        words += "; indestructible=false of the module vm removes both"
        problems.add("Indestructible", words % (snapshot.name, protection.name))
    _used(newer, problems)
    names = sorted({part.name.partition("@")[2] for part in newer})
    given_up = {word for name in spec.newer or () for word in (name, snapshots.PREFIX + name)}
    # Those of a sync are no data: replicas go back, too.
    lost = [] if spec.newer is None else [name for name in names if name not in given_up and not is_synced(name)]
    if lost:
        problems.add(
            "InvalidArgument",
            "a rollback to %s destroys newer snapshots: %s; name them in newer, or set destroy_newer=true"
            % (snapshot.name, ", ".join(name[len(snapshots.PREFIX) :] if _ours(name) else name for name in lost)),
        )


def _ours(name: str) -> bool:
    return name.startswith(snapshots.PREFIX)


def _raised(
    vm: Vm, spec: SnapshotDeclaration, capabilities: Capabilities, problems: Problems
) -> t.Optional[SetFlexibleSize]:
    if spec.flexible_disk_size is None:
        return None
    now, wanted = vm.declared_flexible, spec.flexible_disk_size
    if now is None or wanted < now:
        has = "none" if now is None else f"{now} MiB"
        problems.add(
            "InvalidArgument",
            f"flexible_disk_size {wanted} MiB is not valid: a rollback can only raise it, and it is {has}",
        )
        return None
    if wanted == now:
        return None
    return SetFlexibleSize(
        Told(f"flexible_disk_size {render_change(now * MIB, wanted * MIB)}"),
        stored_mib=wanted + vm.hidden_mib,
        resets=capabilities.keeps_storage,
    )


def _rollback(vm: Vm, snapshot: VmSnapshot, capabilities: Capabilities) -> RollBack:
    sizes = []
    for disk in vm.disks + vm.orphans:
        part = snapshot.of(disk.volume.name)
        if part is not None and part.volsize != disk.size:
            sizes.append(f"{disk.label} {render_change(disk.size, part.volsize)}")
    newer = sorted({part.name.partition("@")[2] for part in snapshots.newer(vm, snapshot)})
    text = "~ rolled back to %s of %s: %s%s%s" % (
        snapshot.name,
        snapshot.moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        ", ".join(snapshots.disks_in(vm, snapshot)),
        " (%s)" % ", ".join(sizes) if sizes else "",
        "; newer snapshots DESTROYED: %s" % ", ".join(newer) if newer else "",
    )
    return RollBack(
        Told(text, destroys=True),
        name=snapshot.name,
        parts=tuple(part.name for part in snapshot.parts),
        starts_vm=capabilities.keeps_storage,
    )


def _refuse_excess(after: Vm, problems: Problems) -> None:
    room = space.allocatable(after)
    if room is not None and room < 0:
        problems.add(
            "InsufficientSpace",
            "after the rollback, disks and snapshots need %s more than flexible_disk_size; set it in this task to at "
            "least %d MiB" % (render_bytes(-room), space.smallest_flexible_mib(after) - after.hidden_mib),
        )
