# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put steps in order: those that free space first, those that need it last, and a stop only if a step needs it."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.desired import Policy
from ..model.errors import Problems
from ..model.sizes import MIB, render_bytes, render_change
from ..model.text import count
from ..model.vm import Disk, Vm
from ..rules import exchange, identity, slots, space, usage, vm_record
from ..rules.differences import config_changes, crosses, in_conversion
from ..rules.replicas import is_synced
from ..rules.reservation import PoolGeometry, default_block_size
from ..rules.unfinished import is_unfinished, unfinished_vm_text
from ..rules.unused import left_unused
from . import arrivals, changes, departures, disk_travel, predict, recovery
from .disk_steps import DiskEdit, EditDisks
from .hot_plug import why_cold
from .resolve import Resolved, Target, slots_after
from .steps import Step, StepReport
from .vm_steps import GiveUp, Remember, RetireSyncs, SetFlexibleSize, SettleQuota, SettleVolumes, SetVmQuota, Stop


class Sequence:
    """Steps in order, with the VM as it is after the last one. The next step is planned on that VM."""

    def __init__(self, vm: Vm, geometry: PoolGeometry) -> None:
        self.vm = vm
        self.geometry = geometry
        self.steps: t.List[Step] = []

    def add(self, step: t.Optional[Step]) -> None:
        """Add a step that has been planned on the VM as it is now; None adds nothing."""
        if step is not None:
            self.steps.append(step)
            self.vm = predict.apply(self.vm, step, self.geometry)

    def extend(self, steps: t.Iterable[Step]) -> None:
        """Add steps that do not depend on each other."""
        for step in steps:
            self.add(step)

    def volume_of(self, disk: Disk) -> Disk:
        """Return the disk as it is at this point."""
        return next(d for d in self.vm.disks + self.vm.orphans if d.volume.name == disk.volume.name)


def order(
    resolved: Resolved, geometry: PoolGeometry, capabilities: Capabilities, policy: Policy, problems: Problems
) -> Sequence:
    """Return all steps of one VM in order, with a stop and a start around them if that is needed and allowed."""
    vm = resolved.vm
    config = vm.config
    work = _work(resolved, geometry, capabilities, policy)
    needs_stop = [s for s in work.steps if (s.cold or s.late(capabilities.live)) and not s.facts_only]
    first: t.List[Step] = [*departures.remove_unused(vm, capabilities.device_prefix)]
    if needs_stop or config.state == "stopped":
        first += _overdue(resolved, bool(needs_stop))
    if first:
        work = _work(resolved, geometry, capabilities, policy, first)
    if work.steps or vm.interrupted:
        check_ready(vm, problems)
    _check_converting(resolved, problems)
    _check_unused(vm, work, problems)
    if _beyond(work, capabilities, problems):
        return work
    if not needs_stop or config.state != "running":
        return _resumed(vm, work, geometry, capabilities)
    if not policy.allow_restart or config.unstoppable:
        way = config.unstoppable or "allow_restart: true allows a shutdown and a start"
        problems.add(
            "VmNotStopped",
            "the VM is running and must be stopped for: "
            f"{'; '.join(f'{s.text} ({s.cold})' if s.cold else s.text for s in needs_stop)}; {way}",
        )
        return work
    return _resumed(vm, _wrapped(vm, work, geometry, capabilities), geometry, capabilities)


def _check_unused(vm: Vm, work: Sequence, problems: Problems) -> None:
    """Refuse a task that would only end an interrupted detach, if Proxmox VE does not let it. Others get a warning."""
    if vm.interrupted is not None and all(step.facts_only or isinstance(step, Remember) for step in work.steps):
        for volume in left_unused(vm):
            why = departures.why_still_unused(vm, volume)
            if why:
                text = f"{volume} is detached already, and the configuration still names it as unused: {why}"
                problems.add("NotSupported", text)


def _beyond(work: Sequence, capabilities: Capabilities, problems: Problems) -> bool:
    """Whether the driver does not carry out some of the steps. Each of these is a problem."""
    able = capabilities.abilities
    refused = [step for step in work.steps if able and not able.issuperset(step.abilities)]
    for step in refused:
        problems.add("NotSupported", f"{step.text or step.kind}: {capabilities.scope}", step.disk)
    return bool(refused)


def _check_converting(resolved: Resolved, problems: Problems) -> None:
    """Refuse to go on without a disk whose conversion was interrupted, or with another disk in its place."""
    vm, claimed = resolved.vm, [g.disk for g in resolved.targets] + [leaver.disk for leaver in resolved.leavers]
    for disk in (d for d in vm.detached if in_conversion(vm, d) and not any(d is other for other in claimed)):
        if vm.interrupted is not None or disk.volume.user["from"] == identity.CONVERTING:
            text = (
                f"its conversion was interrupted; list it ({disk.volume.name}, uuid {disk.uuid}), or "
                "the VM would run without it"
            )
            problems.add("InUse", text, disk.label)


def check_ready(vm: Vm, problems: Problems) -> None:
    """Add problems if the VM is in no state to be changed."""
    state = usage.power_problem(vm)
    if state:
        problems.add(
            "VmInTransition", unfinished_vm_text(vm.config, vm.interrupted) if is_unfinished(vm.config) else state
        )
    if usage.check_whole(vm, problems) and vm.config.frozen:
        problems.add("NotSupported", f"{vm.config.frozen}; it cannot be changed")
    if exchange.begun(vm):
        problems.add("InUse", exchange.why_refused(vm))
    # Completing an interrupted run announces the sizes of its disks to a running guest.
    for disk in vm.disks if vm.interrupted is not None and vm.config.state == "running" else ():
        disk_travel.check_busy(disk, disk.label, problems)


def _resumed(vm: Vm, work: Sequence, geometry: PoolGeometry, capabilities: Capabilities) -> Sequence:
    """The steps of this run, with the end of an interrupted run around them."""
    if vm.interrupted is None:
        return work
    sequence = Sequence(vm, geometry)
    sequence.add(recovery.recover(vm))
    sequence.extend(work.steps)
    sequence.extend(recovery.power(vm, sequence.vm, capabilities))
    return sequence


def _overdue(resolved: Resolved, changing: bool) -> t.List[Step]:
    """Return steps that a stopped VM gets first: they finish an interrupted detach, add the PCIe ports that its disks
    need with some to spare, and configure UUIDs and slots that an old vmadm left out, if its disks are managed.
    """
    steps: t.List[Step] = [*departures.remove_ghosts(resolved.vm)]
    steps += changes.ports(slots.new_ports(*slots_after(resolved), resolved.vm.config.pci))
    edits = changes.configure_defaults(resolved.vm, changing) if resolved.targets or resolved.leavers else None
    return [*steps, edits] if edits is not None else steps


def stop(capabilities: Capabilities) -> Stop:
    """Return the step that shuts a VM down."""
    return Stop(StepReport("stop"), autoboot_off=capabilities.moves_autoboot)


def _wrapped(vm: Vm, work: Sequence, geometry: PoolGeometry, capabilities: Capabilities) -> Sequence:
    wrapped = Sequence(vm, geometry)
    early = [s for s in work.steps if s.before_stop]
    wrapped.extend(early)
    wrapped.add(stop(capabilities))
    for step in work.steps:
        if step not in early:
            wrapped.add(step)
    wrapped.add(recovery.start(capabilities))
    wrapped.extend(recovery.power(vm, wrapped.vm, capabilities))
    return wrapped


def _work(
    resolved: Resolved,
    geometry: PoolGeometry,
    capabilities: Capabilities,
    policy: Policy,
    first: t.Sequence[Step] = (),
) -> Sequence:
    """The steps without stop and start. first: steps to do before those that need a stop."""
    seq = Sequence(resolved.vm, geometry)
    concerned = _concerned(resolved)
    seq.extend((*departures.lift_guards(concerned), *departures.discard_copies(concerned)))
    figures = _space_changes(resolved, capabilities.keeps_storage)
    if figures:
        seq.add(retire_syncs(seq.vm, capabilities))
    seq.extend(repairs(seq.vm, geometry, policy.reclaim, resolved.flexible, recomputed=bool(figures)))
    seq.add(_reservations(resolved, geometry))
    for leaver in (v for v in resolved.leavers if not v.destroy and v.disk.detached):
        seq.add(changes.remove_name(leaver.disk).for_disk(leaver.replaced))
    seq.extend(first)
    _departures(seq, resolved, capabilities)
    standing = [g for g in resolved.targets if g.stays and g.disk is not None]
    for target in standing:
        seq.add(changes.shrink(target))
    seq.extend(_feasible(seq.vm, figures, geometry))
    seq.add(_edits(standing))
    copied = [g for g in resolved.targets if g.disk is not None and crosses(g.type, g.disk)]
    for target in copied:
        _copied(seq, target, capabilities)
    standing = [g for g in standing if g not in copied]
    for target in standing:
        _in_place(seq, target)
    _arrivals(seq, [g for g in resolved.targets if not (g.stays or g in copied)], capabilities)
    _facts(seq, standing, resolved.unlisted)
    _remember(seq, resolved)
    return seq


def _reservations(resolved: Resolved, geometry: PoolGeometry) -> t.Optional[SettleVolumes]:
    """Return the step that gives thick disks of a VM without a dataset of its own their automatic reservations again,
    None if they have them. A rollback to another size changes them. Disks in pools of another layout are left out.
    """
    vm, leaving = resolved.vm, [leaver.disk.volume.name for leaver in resolved.leavers]
    if not vm.config.prefixes or vm.config.frozen:
        return None
    off = space.thick_off_automatic(vm, dict.fromkeys(resolved.pools_alike, geometry))
    off = tuple(disk for disk in off if disk.volume.name not in leaving)
    # Disks that release space come first.
    off = tuple(sorted(off, key=lambda d: predict.resized(d.volume, d.size, geometry).used - d.volume.used))
    report = StepReport(f"refreservation of {', '.join(disk.label for disk in off)} -> auto")
    return SettleVolumes(report, names=tuple(disk.volume.name for disk in off), flexible_mib=None) if off else None


def _remember(seq: Sequence, resolved: Resolved) -> None:
    """Add that the record of a VM without a dataset of its own is brought up to date, if anything may have changed."""
    vm, given_up = resolved.vm, resolved.given_up
    if given_up:
        names = ", ".join(name or serial for serial, name in given_up.items())
        text = f"- {names} forgotten: only the record of the VM has it"
        seq.add(GiveUp(StepReport(text), serials=tuple(given_up)))
    differs = bool(vm_record.differences(vm.config, vm.disks)) and not vm.config.frozen
    gone = vm_record.gone(vm, (leaver.disk for leaver in resolved.leavers))
    detached = vm_record.detached(vm, seq.vm.detached)
    known = vm.config.record.detached if vm.config.record is not None else {}
    moved = any(detached.get(uuid) != one for uuid, one in known.items())  # others are added with the next change
    if vm.config.prefixes and (seq.steps or differs or ((gone or moved) and not vm.config.frozen)):
        seq.add(Remember(StepReport(""), serials=gone, detached=detached))


def _arrivals(seq: Sequence, arriving: t.Sequence[Target], capabilities: Capabilities) -> None:
    """Add the disks that come. Existing disks come before new ones, which must not take the index of a replaced one."""
    for target in sorted(arriving, key=lambda g: (g.disk is None, not g.replaces_another)):
        target = replace(target, disk=target.disk and predict.unguarded(target.disk))
        seq.add(arrivals.arrive(seq.vm, target, capabilities).for_disk(target.replaces_another))


def _facts(seq: Sequence, standing: t.Sequence[Target], unlisted: t.Sequence[Disk]) -> None:
    """Add the steps that write facts of the disks that stay, hidden disks too."""
    for target in standing:
        disk = changes.with_uuid(seq.vm.config, seq.volume_of(t.cast(Disk, target.disk)))
        seq.add(changes.write_identity(disk, target))
    there = {disk.volume.name for disk in seq.vm.disks}
    unlisted = [disk for disk in unlisted if disk.volume.name in there]  # a boot disk may leave without being listed
    for disk in [*unlisted, *(d for d in seq.vm.disks if d.hidden)]:
        seq.add(changes.sync_facts(changes.with_uuid(seq.vm.config, seq.volume_of(disk))))
    for disk in unlisted if seq.vm.config.prefixes and not seq.vm.config.frozen else ():
        seq.add(changes.write_recorded(seq.vm.config, seq.volume_of(disk)))


def _in_place(seq: Sequence, target: Target) -> None:
    if target.spec.type is not None:
        disk = seq.volume_of(t.cast(Disk, target.disk))
        seq.add(changes.convert(disk, target.type, seq.geometry, target.label))
    seq.add(changes.set_compression(target))
    seq.add(changes.grow(target))


def _copied(seq: Sequence, target: Target, capabilities: Capabilities) -> None:
    """Convert between file and volume outside the VM, so that an interruption leaves a detached disk."""
    was = changes.with_uuid(seq.vm.config, t.cast(Disk, target.disk))
    uuid, attached = was.uuid or identity.uuid_of(was.volume.guid), not was.detached
    if attached:
        seq.add(departures.detach_to_copy(seq.vm, seq.volume_of(was), target.label))
    detached = next((d for d in seq.vm.detached if d.uuid == uuid), predict.unguarded(was))
    block = target.spec.block_size or default_block_size(seq.geometry, platform=capabilities.platform)
    why = "its data is copied" if was.path else ""
    step = changes.convert(detached, target.type, seq.geometry, target.label, block, why)
    if step is None:
        return
    step = replace(step, vm_waits=attached)
    seq.add(step)
    if detached not in seq.vm.detached:
        # It belongs to another VM, so it is predicted by itself.
        other = predict.apply(replace(seq.vm, detached=(detached,)), step, seq.geometry)
        detached = other.detached[0]
    else:
        detached = next(d for d in seq.vm.detached if d.uuid == uuid)
    arrival = arrivals.attach(seq.vm, replace(target, current_type=target.type), detached, capabilities)
    seq.add(replace(arrival, vm_waits=attached))


def _concerned(resolved: Resolved) -> t.List[Disk]:
    """Return every disk of the VM, and disks of other VMs that it takes or destroys."""
    of_vm = resolved.vm.disks + resolved.vm.orphans + resolved.vm.detached
    claimed = [g.disk for g in resolved.targets if g.disk is not None] + [leaver.disk for leaver in resolved.leavers]
    return [*of_vm, *(disk for disk in claimed if not any(disk is other for other in of_vm))]


def _departures(seq: Sequence, resolved: Resolved, capabilities: Capabilities) -> None:
    """Add the steps of leavers. Disks that are not attached come first, because they give their space back."""

    def for_leaver(step: Step, disk: Disk, replaced: bool) -> Step:
        why = why_cold(resolved.vm, disk.model, disk.pci_slot, capabilities)
        return step.for_disk(replaced, why)

    for leaver in (v for v in resolved.leavers if v.destroy and not v.disk.path):
        seq.add(departures.destroy(leaver, bool(resolved.vm.config.prefixes)).for_disk(leaver.replaced))
    for leaver in (v for v in resolved.leavers if not v.destroy and v.moves):
        leaver = replace(leaver, disk=changes.with_uuid(seq.vm.config, seq.volume_of(leaver.disk)))
        step = departures.detach(seq.vm, leaver, _settles_later(resolved))
        seq.add(for_leaver(step, leaver.disk, leaver.replaced))
    for leaver in (v for v in resolved.leavers if v.destroy and v.disk.path):
        leaver = replace(leaver, disk=changes.with_uuid(seq.vm.config, leaver.disk))
        seq.add(for_leaver(departures.destroy(leaver), leaver.disk, leaver.replaced))


def _settles_later(resolved: Resolved) -> bool:
    """Whether a step after the detaches gives space back to the pool and sets the VM's reservation."""
    flexible = resolved.vm.config.flexible_disk_size
    falls = resolved.flexible is not None and flexible is not None and resolved.flexible < flexible
    comes = any(g.disk is not None and g.disk.detached for g in resolved.targets)
    return falls or resolved.quota < resolved.vm.root.refquota or comes


def _space_changes(resolved: Resolved, thick: bool) -> t.List[Step]:
    """Return the steps for flexible_disk_size and quota, those that release space first.

    thick: the hypervisor sets the refreservation of every volume to auto.
    """
    root, config = resolved.vm.root, resolved.vm.config
    steps: t.List[t.Tuple[int, Step]] = []
    if resolved.quota != root.refquota:
        report = StepReport(f"VM quota {render_change(root.refquota, resolved.quota)}")
        quota = SetVmQuota(report, quota_bytes=resolved.quota, sets_volumes_to_auto=thick)
        steps.append((resolved.quota - root.refquota, quota))
    if resolved.flexible is not None and resolved.flexible != config.flexible_disk_size:
        now, hidden = config.flexible_disk_size, resolved.vm.hidden_mib
        wanted = (resolved.flexible - hidden) * MIB
        change = f"none -> {render_bytes(wanted)}" if now is None else render_change((now - hidden) * MIB, wanted)
        flexible = SetFlexibleSize(
            StepReport(f"flexible_disk_size {change}"), stored_mib=resolved.flexible, sets_volumes_to_auto=thick
        )
        steps.append((resolved.flexible - (now or 0), flexible))
    return [step for _more, step in sorted(steps, key=lambda s: s[0])]


def retire_syncs(vm: Vm, capabilities: Capabilities) -> t.Optional[RetireSyncs]:
    """Return the step that destroys snapshots of syncs, before a hypervisor computes the VM's quota without the space
    for them; None if it is not needed. The next sync continues from the bookmarks of these snapshots.
    """
    if not (capabilities.keeps_storage and space.sync_space(vm)):
        return None
    parts = [s.dataset_id for disk in vm.disks + vm.orphans for s in disk.snapshots]
    syncs = tuple(part for part in parts if is_synced(part.name.partition("@")[2]))
    return RetireSyncs(
        StepReport(f"- {count(len(syncs), 'snapshot')} of syncs, the next sync makes others"), snapshots=syncs
    )


def _feasible(vm: Vm, figures: t.List[Step], geometry: PoolGeometry) -> t.List[Step]:
    """Put the change of flexible_disk_size first if the VM holds more than it: no quota could be set before."""
    if not figures or not isinstance(figures[0], SetVmQuota):
        return figures
    room = space.allocatable(predict.apply(vm, figures[0], geometry))
    return figures if room is None or room >= 0 else figures[::-1]


def _edits(standing: t.Sequence[Target]) -> t.Optional[EditDisks]:
    """All changes of configuration in one step, so that two disks can swap their slots."""
    edits, parts = [], []
    for target in standing:
        disk = t.cast(Disk, target.disk)
        wanted = config_changes(target.spec, disk)
        if "model" in wanted and "pci_slot" not in wanted and target.slot != disk.pci_slot:
            wanted["pci_slot"] = (disk.pci_slot or "none", target.slot)
        if wanted:
            edits.append(DiskEdit(disk.volume.name, disk.path, {key: then for key, (_now, then) in wanted.items()}))
            parts += [f"{target.label} {key} {_word(now)} -> {_word(then)}" for key, (now, then) in wanted.items()]
    if not edits:
        return None
    return EditDisks(StepReport(f"~ {', '.join(parts)}"), edits=tuple(edits))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def repairs(
    vm: Vm, geometry: PoolGeometry, reclaim: bool, flexible: t.Optional[int] = None, recomputed: bool = False
) -> t.List[Step]:
    """Return the steps that set quota and reservations by the quota law again, where they have drifted.

    reclaim: lower the quota of an inflexible VM, too. flexible: the flexible_disk_size (MiB) that a later step sets.
    recomputed: a later step sets quota and reservation anyway.
    """
    if vm.config.prefixes:  # there is no quota law without a dataset of the VM
        return []
    seq = Sequence(vm, geometry)
    off = space.off_automatic(vm, geometry)
    if off:
        # Volumes that release space come first.
        off = tuple(sorted(off, key=lambda v: predict.resized(v, v.volsize, geometry).used - v.used))
        names = ", ".join(v.name.rsplit("/", 1)[-1] for v in off)
        report = StepReport(f"refreservation of {names} -> auto")
        seq.add(SettleVolumes(report, names=tuple(v.name for v in off), flexible_mib=flexible))
    if recomputed:
        return seq.steps
    root = seq.vm.root
    base_ok = space.base_reservation_ok(root)
    lasting = not vm.flexible and not reclaim
    # While a detach is interrupted, the reservation is lower. That is no drift to tolerate.
    tolerated = lasting and not vm.interrupted and min(space.quota_drift(seq.vm, geometry)) >= 0
    quota = max(space.settled_quota(seq.vm, geometry), root.quota if lasting else 0)
    if (not tolerated and (root.quota, root.reservation) != (quota, quota)) or not base_ok:
        base = vm.root.refreservation if base_ok else max(0, vm.root.refquota - MIB)
        now, cause = vm.root, space.drift_cause(vm, geometry) or "interrupted"
        text = f"quota {render_change(now.quota, quota)}, reservation {render_change(now.reservation, quota)} ({cause})"
        seq.add(SettleQuota(StepReport(text), quota_bytes=quota, refreservation_bytes=base))
    return seq.steps
