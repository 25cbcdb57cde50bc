# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans for snapshots of whole VMs: take, delete, roll back."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Keep, Policy, SnapshotDeclaration
from ..model.errors import Problem, Problems
from ..model.sizes import MIB, render_apart, render_bytes, render_change, render_exact
from ..model.text import count
from ..model.vm import DiskConfig, Vm
from ..rules import exchange, pins, snapshots, space
from ..rules.identity import render_time
from ..rules.inventory import Host
from ..rules.layout import pool_of
from ..rules.power import interrupted_run_text, why_not_started
from ..rules.replicas import is_synced
from ..rules.snapshots import VmSnapshot
from ..rules.unmanaged import unmanaged, unread
from ..rules.usage import check_whole, labels
from . import ordering, predict, pve_snapshots, recovery
from .ordering import Sequence
from .steps import StepReport, VmPlan
from .vm_steps import DeleteSnapshot, RollBack, SetFlexibleSize, TakeSnapshot

_MOST_NAMED = 5


def plan_snapshot(
    host: Host, vm: Vm, spec: SnapshotDeclaration, policy: Policy, capabilities: Capabilities, now: int
) -> VmPlan:
    """Return the plan for one VM. now: seconds since 1970."""
    problems = Problems(vm.config.alias or vm.config.uuid)
    seq = Sequence(vm, host.geometry[vm.config.pool])
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    _check_others(vm, problems)
    stopped_late = vm.interrupted is not None and vm.interrupted.late
    if stopped_late and spec.state != "rolled_back":
        seq.add(recovery.recover(vm))
    if vm.interrupted is not None and not (stopped_late or _resumes(vm, spec)):
        problems.add("InUse", exchange.why_refused(vm) or interrupted_run_text(vm.interrupted))
    elif spec.state == "present":
        _take(host, seq, spec, now, problems)
    elif spec.state == "absent" and spec.name:
        _delete(host, seq, spec.name, problems)
    elif spec.state == "rolled_back" and vm.config.prefixes:
        seq = _roll_back_listed(host, vm, spec, problems)
    elif spec.state == "rolled_back":
        seq = _roll_back(host, vm, spec, policy, capabilities, problems)
    left: t.List[str] = []
    if spec.keep is not None and not problems:
        left = _prune(host, seq, spec.keep, spec.name, spec.state == "present")
    if stopped_late and spec.state != "rolled_back":
        seq.extend(recovery.power(vm, seq.vm, capabilities))
    if seq.steps or (problems and vm.config.prefixes):
        ordering.check_ready(vm, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), (*problems, *_way_out(vm, spec)))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), (*_warnings(vm, spec), *left))


def _resumes(vm: Vm, spec: SnapshotDeclaration) -> bool:
    left = vm.interrupted
    return left is not None and spec.state == "rolled_back" and left.rollback == spec.name


def _check_others(vm: Vm, problems: Problems) -> None:
    """Refuse to resume a run that stopped the VM, if another writer prevents its start: the entry must stay."""
    if vm.halted and vm.shared:
        problems.add(
            "InUse", f"an interrupted run has stopped the VM, and it cannot be started: {why_not_started(vm)[1]}"
        )


def _way_out(vm: Vm, spec: SnapshotDeclaration) -> t.Iterator[Problem]:
    """Yield how to end an interrupted rollback that is refused."""
    if _resumes(vm, spec):
        text = f"the rollback to snapshot {spec.name} was interrupted, so the VM's disks may be of different times"
        text += f". If nothing makes it possible again, {recovery.gives_up(vm)} accepts the disks as they are now: it "
        text += "changes no data, and the VM stays stopped until somebody starts it"
        if not vm.config.prefixes:
            text += ". Or give the VM up: the module vm with state=absent"
        yield Problem("InUse", text, vm.config.alias or vm.config.uuid)


def _warnings(vm: Vm, spec: SnapshotDeclaration) -> t.Iterator[str]:
    """Yield warnings about disks that a new snapshot does not have, and that a rollback leaves as they are."""
    if spec.state == "present" and not vm.config.prefixes:  # those of Proxmox VE have all disks, managed or not
        for text in (*unmanaged(vm), *unread(vm)):
            yield f"{vm.label}: {text}; snapshot {spec.name} does not have it"
    snapshot = snapshots.find(vm, spec.name)
    if spec.state == "rolled_back" and vm.config.prefixes:
        yield from _warnings_about_listed(vm, spec.name)
    elif spec.state == "rolled_back" and snapshot is not None:
        for disk in vm.disks + vm.orphans:
            if snapshot.of(disk.volume.name) is None:
                yield f"{vm.label}: disk {disk.label} is not in snapshot {spec.name} and stays as it is"
        for part in snapshot.below:
            yield f"{vm.label}: {part.parent} is none of the VM's disks and stays as it is"
        known = {disk.path for disk in vm.disks}.union(vm.ghosts)
        for entry in vm.config.disks:
            if entry.media == "disk" and entry.path not in known:
                message = f"{entry.path} is not in snapshot {spec.name} and stays as it is"
                yield f"{vm.label}: {message}, because {_beyond(vm, entry)}; its data may not fit that of the others"


def _warnings_about_listed(vm: Vm, name: str) -> t.Iterator[str]:
    """Yield warnings about a rollback by Proxmox VE. It is refused if the VM would have other disks after it."""
    listed = snapshots.listed_as(vm, name)
    for orphan in vm.orphans:
        yield f"{vm.label}: {orphan.volume.name} is in no disk of the VM and stays as it is"
    if listed is not None and listed.serials:
        text = f"{', '.join(sorted(listed.serials))} will have the serial of then, which does not stand for its UUID"
        yield f"{vm.label}: {text}; the next task of vm_disks about the disk writes that again while the VM is stopped"


def _beyond(vm: Vm, entry: DiskConfig) -> str:
    """Return why no snapshot of the VM includes a disk of its list."""
    if entry.path in vm.unread:
        return f"it lies in pool {pool_of(entry.volume)}, which this task does not read"
    if entry.path in vm.missing:
        return f"{entry.volume} does not exist"
    return f"{entry.volume or 'it'} is not below {vm.root.name}"


# -- take


def _take(host: Host, seq: Sequence, spec: SnapshotDeclaration, now: int, problems: Problems) -> None:
    name = spec.name
    vm, there = seq.vm, snapshots.find(seq.vm, name)
    if vm.config.prefixes:
        if not pve_snapshots.check_taking(host, vm, name, problems):
            return
    elif there is not None and snapshots.is_complete(vm, there):
        return
    elif there is not None:
        problems.add(
            "Ambiguous", f"{there.parts[0].name} is a remainder of a deleted snapshot; state=absent removes it"
        )
    if problems:
        return
    seq.extend(ordering.repairs(vm, seq.geometry, False))
    vm = seq.vm
    charge = sum(map(pins.holds, snapshots.taken_of(vm)))
    disks = snapshots.taken_of(vm) if vm.config.prefixes else vm.volumes
    text = f"+ snapshot {name} of {count(len(disks), 'disk')}, holds {render_bytes(charge)} at once"
    step = TakeSnapshot(StepReport(text), name=name, full_name=snapshots.full_name(vm, name), creation=now)
    after = predict.apply(vm, step, seq.geometry)
    short = _shortfall(vm, after)
    if short > 0:
        problems.add("InsufficientSpace", _short_text(vm, after, spec, charge, short))
    seq.add(step)


def _shortfall(vm: Vm, after: Vm) -> int:
    """Return the bytes that are missing for the snapshot, in the flexible disk space or in an inflexible VM's quota."""
    room = space.allocatable(after)
    if room is not None:
        return -room
    if vm.config.prefixes:  # nothing but the pool limits its snapshots
        return 0
    used = vm.root.used + sum(a.used - b.used for a, b in zip(after.volumes, vm.volumes)) + _of_root(vm, after)
    return used - vm.root.quota


def _of_root(vm: Vm, after: Vm) -> int:
    return after.root.usedbyrefreservation - vm.root.usedbyrefreservation


def _short_text(vm: Vm, after: Vm, spec: SnapshotDeclaration, charge: int, short: int) -> str:
    text = "snapshot %s needs %s at once, and %s is left" % (spec.name, *render_apart(charge, max(0, charge - short)))
    if vm.flexible:
        smallest = space.smallest_flexible_mib(after) - vm.hidden_mib
        text += f"; flexible_disk_size must be at least {render_exact(smallest)}"
        would = [p for p in sorted(spec.packages, key=lambda p: p.disk) if p.flexible_disk and p.disk >= smallest]
        text += f", with package {would[0].name} ({render_exact(would[0].disk)})" if would else ""
    else:
        text += "; a VM without flexible disk space has no room for snapshots of data that its disks have written"
    relief = [f"snapshot {s.name} {render_bytes(snapshots.freed(vm, s))}" for s in snapshots.snapshots_of(vm)]
    relief += [f"disk {d.label} {render_bytes(d.size + d.volume.pinned)}" for d in vm.disks if not d.boot]
    return text + (f"; these would free: {', '.join(relief)}" if relief and vm.flexible else "")


# -- delete


def _deletion(vm: Vm, snapshot: VmSnapshot, why: str = "") -> DeleteSnapshot:
    below = f" (also of {', '.join(part.parent for part in snapshot.below)})" if snapshot.below else ""
    return DeleteSnapshot(
        StepReport(f"- snapshot {snapshot.name}{below} DESTROYED{why}", destroys=True),
        name=snapshot.name,
        # The part of the VM's dataset is destroyed last: by it, the next run finds an interrupted deletion.
        parts=tuple(part.dataset_id for part in reversed(snapshot.whole_parts)),
        complete=snapshots.is_complete(vm, snapshot),
    )


def _delete(host: Host, seq: Sequence, name: str, problems: Problems) -> None:
    snapshot = snapshots.find(seq.vm, name)
    if snapshot is None and snapshots.listed_as(seq.vm, name) is not None:
        snapshot = VmSnapshot(name, (), listed=True)  # nothing of it is left in ZFS
    pve_snapshots.check_deletion(host, seq.vm, name, problems)
    if snapshot is None:
        return
    _check_taken_together(snapshot, snapshot.whole_parts, problems)
    _check_unused(snapshot.whole_parts, problems)
    seq.add(_deletion(seq.vm, snapshot))


def _check_taken_together(snapshot: VmSnapshot, parts: t.Iterable[Dataset], problems: Problems) -> None:
    names = ", ".join(part.name for part in snapshot.strangers(parts))
    if names and snapshot.listed:
        text = f"{names} was not taken with snapshot {snapshot.name} of the VM, but before it, or long after"
        problems.add("Ambiguous", f"{text}; zfs rename gives it another name")
    elif names:
        problems.add(
            "Ambiguous",
            f"{names} has the name of snapshot {snapshot.name}, but was not taken with it. Give it another name"
            f" with zfs rename, one that does not begin with {snapshots.PREFIX}",
        )


def _check_unused(parts: t.Iterable[Dataset], problems: Problems) -> None:
    for part in parts:
        if part.clones:
            problems.add("InUse", f"{part.name} has clones: {', '.join(part.clones)}")
        if part.userrefs:
            problems.add("InUse", f"{part.name} has {count(part.userrefs, 'hold')} (zfs holds {part.name})")


def _prune(host: Host, seq: Sequence, keep: Keep, name: str, declared: bool) -> t.List[str]:
    """Delete the snapshots that the rule does not keep. Return warnings about those that cannot be deleted: holds and
    clones of old snapshots do not prevent a new one.

    declared: the same task declares that snapshot name exists, so it stays even if it is old.
    """
    vm = seq.vm
    warnings = [*_not_counted(host, vm, keep, name)]
    every = [s for s in snapshots.snapshots_of(vm) if snapshots.is_complete(vm, s)]
    counted = snapshots.counted(every, keep.names, name)
    stay = snapshots.retained(counted, keep.last, keep.daily, keep.weekly) | ({name} if declared else set())
    why = f" by keep, which counts {_counts(every, counted, keep, name)}"
    doomed = [s for s in counted if s.name not in stay]
    unclear = snapshots.out_of_order(counted) if doomed and vm.config.prefixes else ""
    if unclear:  # the clock of the host was set back
        return [
            *warnings,
            f"{vm.label}: keep deletes nothing: {unclear}; vm_snapshot with state=absent deletes them by name",
        ]
    for snapshot in doomed:
        problems = Problems("")
        pve_snapshots.check_deletion(host, seq.vm, snapshot.name, problems)
        _check_taken_together(snapshot, snapshot.whole_parts, problems)
        _check_unused(snapshot.whole_parts, problems)
        if problems:
            reasons = "; ".join(problem.message for problem in problems)
            warnings.append(f"{vm.label}: keep leaves snapshot {snapshot.name}: {reasons}")
        else:
            seq.add(_deletion(seq.vm, snapshot, why))
    return warnings


def _not_counted(host: Host, vm: Vm, keep: Keep, name: str) -> t.Iterator[str]:
    """Yield warnings about snapshots that the rule would count if they were whole, and about what a command has left
    of them in a locked VM.
    """
    begun = {one.name: one for one in vm.config.snapshots if pve_snapshots.why_not_whole(host, vm, one)}
    named = snapshots.counted([VmSnapshot(one, (), listed=True) for one in begun], keep.names, name)
    for one in (begun[snapshot.name] for snapshot in named if snapshot.name != name):
        text = f"keep does not count snapshot {one.name}, which {pve_snapshots.why_not_whole(host, vm, one)}"
        yield f"{vm.label}: {text}"
    if begun and vm.config.frozen:
        yield f"{vm.label}: {vm.config.frozen}"


def _counts(every: t.Sequence[VmSnapshot], counted: t.Sequence[VmSnapshot], keep: Keep, name: str) -> str:
    """Return a text about which snapshots a rule counts, and which it does not."""
    others = [s.name for s in every if s not in counted]
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    without = f", not {', '.join(others[:_MOST_NAMED])}{more}" if others else ""
    return f"{len(counted)} called like {', '.join(keep.names) or name}{without}"


# -- roll back


def _roll_back(
    host: Host,
    vm: Vm,
    spec: SnapshotDeclaration,
    policy: Policy,
    capabilities: Capabilities,
    problems: Problems,
) -> Sequence:
    geometry = host.geometry[vm.config.pool]
    seq = Sequence(vm, geometry)
    snapshot = _found(vm, spec.name, problems)
    if snapshot is None:
        return seq
    if vm.interrupted is None and not snapshots.changed_since(vm, snapshot, host.datasets):
        # The quota, too: a run that raised it may have been cut off.
        seq.extend(ordering.repairs(vm, geometry, False))
        seq.add(_raised(vm, spec, capabilities, problems))
        return seq
    _refuse_users(host, vm, snapshot, problems)
    _refuse_losses(vm, snapshot, spec, problems)
    state = vm.config.state
    if vm.interrupted is not None:
        state = vm.interrupted.state
        seq.add(recovery.recover(vm))
    if vm.config.state == "running":
        # An interrupted rollback itself may have started a VM that was stopped.
        if state == "running" and not policy.allow_restart:
            problems.add(
                "VmNotStopped", "the VM is running and must be stopped for a rollback; allow_restart: true allows it"
            )
        seq.add(ordering.stop(capabilities))
    raised = _raised(vm, spec, capabilities, problems)
    if raised is not None:
        seq.add(ordering.retire_syncs(vm, capabilities))
    seq.add(raised)
    seq.add(_rollback(vm, snapshot))
    seq.extend(ordering.repairs(seq.vm, geometry, False))
    _refuse_excess(seq.vm, problems)
    if state == "stopped" and seq.vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    elif state == "running" and seq.vm.config.state == "stopped" and not why_not_started(seq.vm)[0]:
        seq.add(recovery.start(capabilities))
    seq.extend(recovery.power(vm, seq.vm, capabilities))
    return seq


def _found(vm: Vm, name: str, problems: Problems) -> t.Optional[VmSnapshot]:
    """Return a complete snapshot, None if the VM has none of this name. That is a problem."""
    snapshot = snapshots.find(vm, name)
    if snapshot is not None and snapshots.is_complete(vm, snapshot):
        return snapshot
    have = ", ".join(s.name for s in snapshots.snapshots_of(vm) if snapshots.is_complete(vm, s)) or "none"
    problems.add("ResourceNotFound", f"there is no snapshot {name}; existing ones: {have}")
    return None


def _roll_back_listed(host: Host, vm: Vm, spec: SnapshotDeclaration, problems: Problems) -> Sequence:
    """Let Proxmox VE go back. It brings back the settings of the VM, too, and destroys no newer snapshot."""
    seq = Sequence(vm, host.geometry[vm.config.pool])
    if spec.flexible_disk_size is not None:
        problems.add("NotSupported", "flexible_disk_size is not raised with a rollback there; vm_disks raises it")
    snapshot, listed = _found(vm, spec.name, problems), snapshots.listed_as(vm, spec.name)
    if snapshot is None or listed is None:
        return seq
    pve_snapshots.check_contents(host, listed, problems)
    changed = snapshots.changed_since(vm, snapshot, host.datasets) or listed.settings_differ or listed.disks_differ
    if vm.interrupted is None and not changed:
        return seq
    pve_snapshots.check_rollback(host, vm, spec.name, problems)
    _check_taken_together(snapshot, snapshot.parts, problems)
    if vm.interrupted is not None:
        seq.add(recovery.recover(vm))
    seq.add(_rollback(vm, snapshot, listed.settings_differ))
    _refuse_excess(seq.vm, problems)
    return seq


def _refuse_users(host: Host, vm: Vm, snapshot: VmSnapshot, problems: Problems) -> None:
    """Refuse to roll back data that another VM has written, or reads."""
    for disk in vm.disks + vm.orphans:
        name = disk.volume.name
        users = host.usage.of(name, vm.config.uuid) if snapshot.of(name) is not None else []
        if users:
            text = f"{name} is also attached to {labels(users)}, whose data a rollback would take back"
            problems.add("InUse", f"{text}; take it out of the configuration of one VM", disk.label)


def _refuse_losses(vm: Vm, snapshot: VmSnapshot, spec: SnapshotDeclaration, problems: Problems) -> None:
    _check_taken_together(snapshot, snapshot.parts, problems)
    for disk in vm.disks + vm.orphans:
        if disk.guarded:
            problems.add(
                "InUse", f"{disk.volume.name} is still guarded by an interrupted run; vm_disks removes the guard"
            )
    newer, protection = snapshots.newer(vm, snapshot), snapshots.protection(vm)
    if protection in newer:
        newer.remove(protection)
        text = "the VM was protected after snapshot %s, and the protection's own snapshot %s prevents a rollback"
        text += "; indestructible=false of the module vm removes both"
        problems.add("Indestructible", text % (snapshot.name, protection.name))
    _check_unused(newer, problems)
    names = sorted({part.name.partition("@")[2] for part in newer})
    given_up = {word for name in spec.newer or () for word in (name, snapshots.PREFIX + name)}
    # Those of a sync are no data: replicas go back, too.
    lost = [] if spec.newer is None else [name for name in names if name not in given_up and not is_synced(name)]
    if lost:
        shown = [name[len(snapshots.PREFIX) :] if _ours(name) else name for name in lost]
        problems.add(
            "InvalidArgument",
            "a rollback to %s destroys newer snapshots: %s; allow that with newer: [%s], or with destroy_newer: true"
            % (snapshot.name, ", ".join(shown), ", ".join([*(spec.newer or ()), *shown])),
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
        current = "none" if now is None else render_exact(now)
        problems.add(
            "InvalidArgument",
            f"flexible_disk_size {render_exact(wanted)} is not valid: a rollback can only raise it, and it is "
            f"{current}",
        )
        return None
    if wanted == now:
        return None
    return SetFlexibleSize(
        StepReport(f"flexible_disk_size {render_change(now * MIB, wanted * MIB)}"),
        stored_mib=wanted + vm.hidden_mib,
        sets_volumes_to_auto=capabilities.keeps_storage,
    )


def _rollback(vm: Vm, snapshot: VmSnapshot, settings: t.Sequence[str] = ()) -> RollBack:
    """Return the step. settings: what the hypervisor brings back of the VM beside its disks."""
    sizes = []
    for disk in snapshots.volumes_of(vm):
        part = snapshot.of(disk.volume.name)
        if part is not None and part.volsize != disk.size:
            sizes.append(f"{disk.label} {render_change(disk.size, part.volsize)}")
    newer = sorted({part.name.partition("@")[2] for part in snapshots.newer(vm, snapshot)})
    text = "~ rolled back to %s of %s: %s%s%s%s" % (
        snapshot.name,
        render_time(snapshot.creation),
        ", ".join(snapshots.disks_in(vm, snapshot)),
        " (%s)" % ", ".join(sizes) if sizes else "",
        "; also as it was then: %s" % ", ".join(settings) if settings else "",
        "; newer snapshots DESTROYED: %s" % ", ".join(newer) if newer else "",
    )
    return RollBack(
        StepReport(text, destroys=True),
        name=snapshot.name,
        parts=tuple(part.dataset_id for part in snapshot.parts),
        newer=tuple(part.dataset_id for part in snapshots.newer(vm, snapshot)),
        beside_bytes=_beside(vm, snapshot),
    )


def _beside(vm: Vm, snapshot: VmSnapshot) -> int:
    """Return the bytes that the rollback of one disk needs for a moment, for the disk that needs most."""
    newer, beside = snapshots.newer(vm, snapshot), [0]
    for dataset in (vm.root, *(disk.volume for disk in snapshots.volumes_of(vm))):
        if snapshot.of(dataset.name) is not None:
            beside.append(pins.beside_rollback(dataset, [part for part in newer if part.parent == dataset.name]))
    return max(beside)


def _refuse_excess(after: Vm, problems: Problems) -> None:
    room = space.allocatable(after)
    if room is not None and room < 0:
        smallest = space.smallest_flexible_mib(after) - after.hidden_mib
        way = "set it in this task to" if not after.config.prefixes else "vm_disks raises it: flexible_disk_size of"
        problems.add(
            "InsufficientSpace",
            "after the rollback, disks and snapshots need %s more than flexible_disk_size; %s at least %d MiB"
            % (render_bytes(-room), way, smallest),
        )
