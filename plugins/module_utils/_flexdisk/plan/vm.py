# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that change or delete existing VMs."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Policy, VmDeclaration, VmDisksDeclaration
from ..model.errors import Problem, Problems
from ..model.sizes import MIB, render_apart, render_bytes, render_exact, render_mib
from ..model.text import count, verb
from ..model.vm import ABSENT, Disk, Vm, VmConfig
from ..parse.vm_disks import parse_vm_disks
from ..rules import identity, packages, snapshots, space
from ..rules.inventory import Host
from ..rules.layout import is_below, pool_of, vm_dataset
from ..rules.power import NOT_HOME, interrupted_run_text, why_home_unknown, why_not_started
from ..rules.released_identity import has_any_identity
from ..rules.reservation import PoolGeometry
from ..rules.slots import slot_problems
from ..rules.unfinished import Leftovers, is_unfinished
from ..rules.usage import as_it_ran, check_whole, power_problem
from . import changes, checks, departures, ordering, predict, recovery
from .ordering import Sequence
from .planner import find_config, plan_vm
from .resolve import Leaver, Resolved, former_boots
from .steps import Step, StepReport, VmPlan
from .vm_steps import DeleteVm, Recover, RemoveUnfinished, SetAutoboot, SetProperties, SettleQuota


def addressed(host: Host, declared: VmDeclaration) -> t.Union[VmConfig, Problem, None]:
    """Return the VM that a declaration means, None if there is none, or a Problem if this is not clear.

    A deletion accepts only names that cannot mean another VM once it is done.
    """
    config = find_config(host, declared.vm)
    if isinstance(config, Problem):
        return config
    if config is None:
        owner = next((c for c in host.configs if c.uuid == declared.uuid), None)
        if owner is None:
            return None
        text = f"no VM has this name, and the uuid {owner.uuid} is that of VM {owner.label}"
        return Problem("InvalidArgument", text, declared.vm)
    if declared.uuid not in ("", config.uuid):
        text = f"the uuid of VM {config.label} is not {declared.uuid}; a VM keeps its uuid"
        return Problem("InvalidArgument", text, declared.vm)
    reason = _why_ambiguous(config, declared)
    return Problem("InvalidArgument", reason, declared.vm) if reason else config


def _why_ambiguous(config: VmConfig, declared: VmDeclaration) -> str:
    """Return why the declared name could mean a new VM, or another VM after this one is deleted; "" if it cannot."""
    lower, absent = declared.vm.lower(), declared.state == "absent"
    if lower == config.uuid:
        return ""
    if declared.vm != config.alias:
        if not absent and len(lower) >= identity.SURE_PREFIX:
            return ""
        takes = "state=absent takes" if absent else "a task that could make a VM of this name takes"
        either = " or its alias" if config.alias else ""
        return f"this is only the beginning of the uuid of VM {config.label}; {takes} its whole uuid{either}"
    if absent and identity.is_uuid(lower):
        return f"no VM has this uuid, and it is the alias of VM {config.label}; state=absent takes the VM's own uuid"
    return ""


def plan_change(host: Host, vm: Vm, declared: VmDeclaration, policy: Policy, capabilities: Capabilities) -> VmPlan:
    """Return the plan that changes an existing VM.

    If it is only doubtful what the disks of a stopped VM are based on, it can still be started: the start changes no
    volume, and resolves the doubt.
    """
    if vm.doubted and declared.state == "running":
        start = _plan_change(host, as_it_ran(vm), declared, policy, capabilities)
        if _only_starts(start):
            return start
    return _plan_change(host, vm, declared, policy, capabilities)


def _only_starts(plan: VmPlan) -> bool:
    """Whether a plan only starts the VM, and changes nothing but its quota, which counts every volume anyway."""
    return any(s.starts for s in plan.steps) and all(s.starts or isinstance(s, SettleQuota) for s in plan.steps)


def _plan_change(host: Host, vm: Vm, declared: VmDeclaration, policy: Policy, capabilities: Capabilities) -> VmPlan:
    problems = Problems(declared.vm)
    if check_whole(vm, problems) and is_unfinished(vm.config):
        ordering.check_ready(vm, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    geometry = host.geometry[vm.config.pool]
    spec = _spec(vm, declared, problems)
    problems += slot_problems(spec, vm.config)
    _check_package(vm, declared, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    seq = Sequence(vm, geometry)
    if declared.state == "stopped":
        seq.vm = recovery.left_stopped(vm, capabilities)
    if declared.state == "stopped" and vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    properties = _properties(seq.vm, declared)
    _check_machine(vm, properties, problems)
    restarts = _restarts(vm, declared, properties)
    if restarts and not policy.allow_restart:
        problems.add(
            "VmNotStopped",
            f"the VM is running and must be restarted{f' for: {properties.text}' if properties else ''}; "
            "allow_restart: true allows a shutdown and a start",
        )
    elif restarts:
        seq.add(ordering.stop(capabilities))
        _check_start(seq.vm, declared, problems)
    seq.add(properties)
    disks = plan_vm(host, seq.vm, spec, policy, capabilities)
    if problems or disks.problems:
        return VmPlan(vm.config.uuid, vm, vm, (), (*problems, *disks.problems))
    seq.extend(disks.steps)
    if restarts and seq.vm.config.state == "stopped":
        seq.add(recovery.start(capabilities))
    if restarts:
        seq.extend(recovery.power(vm, seq.vm, capabilities))
    _check_start(seq.vm, declared, problems)
    seq.extend(power(seq.vm, declared, capabilities))
    _check_ready(vm, declared, seq, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    warnings = (*disks.warnings, *_pending(vm, seq))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), warnings)


def _spec(vm: Vm, declared: VmDeclaration, problems: Problems) -> VmDisksDeclaration:
    """Return the declaration for vm_disks. A VM whose creation was interrupted gets the disks of a new VM."""
    left = vm.interrupted
    creating = left is not None and bool(left.creates)
    disks = packages.initial_disks(declared, problems) if creating else None
    if not creating and declared.disks is not None:
        disks = packages.named(declared.disks)
    boots = next((disk for disk in vm.disks if disk.boot and not disk.hidden), None)
    exchanges = not creating or (boots is not None and boots.image not in ("", declared.image))
    replaces_boot = exchanges and packages.with_new_image(declared, disks or [], boots, problems)
    if not replaces_boot:
        _check_image(declared, _coming_back(vm, disks or []) or boots, problems)
    if creating:
        uuids = {disk.uuid for disk in vm.disks}
        for number, entry in enumerate(disks or ()):
            made = uuid_of_new(vm.config.uuid, number, ())
            if not entry.get("uuid") and made in uuids and not (replaces_boot and entry.get("boot")):
                entry["uuid"] = made
    spec, wrong = parse_vm_disks({"vm": declared.vm, "disks": disks, "unlisted": declared.unlisted})
    problems += wrong
    return replace(spec, flexible_disk_size=packages.flexible_of(declared), quota=declared.quota)


def _coming_back(vm: Vm, entries: t.Sequence[t.Mapping[str, t.Any]]) -> t.Optional[Disk]:
    """Return the detached disk that an entry makes the boot disk again, if there is one."""
    named = {str(e.get("uuid")).lower() for e in entries if e.get("boot") and e.get("recreate")}
    return next((disk for disk in vm.detached if disk.uuid in named), None)


def uuid_of_new(vm: str, number: int, taken: t.Collection[str]) -> str:
    """Return the uuid of a new VM's disk, which follows from its place in the list: the first that no disk has."""
    return next(
        u for u in (identity.uuid_for(vm, number, attempt) for attempt in range(len(taken) + 1)) if u not in taken
    )


def _check_package(vm: Vm, declared: VmDeclaration, problems: Problems) -> None:
    """Check that the VM fits into its package. RFD 154 only demands that sizes and snapshots do not exceed the disk."""
    package = declared.package
    if package is None:
        return
    if not package.flexible_disk:
        if vm.flexible:
            problems.add(
                "InvalidArgument",
                f"package {package.name} has no flexible disk space, but the VM has; it cannot be taken away",
            )
        return
    usage = rfd_usage_mib(vm)
    need = space.smallest_flexible_mib(vm) - vm.hidden_mib
    if declared.disks is None and need > package.disk:
        available, needed = render_apart(package.disk * MIB, need * MIB)
        problems.add(
            "InsufficientSpace",
            f"package {package.name} has {available}, disks and snapshots need {needed}; "
            f"{render_exact(need)} is the smallest that fits (by RFD 154 existing "
            f"disk usage is {render_exact(usage)})",
        )


def _check_image(declared: VmDeclaration, boots: t.Optional[Disk], problems: Problems) -> None:
    """Refuse another image for an existing VM. The image that a disk was made from is not always known."""
    named = {declared.image, *(entry.get("image") for entry in declared.disks or ())}
    if declared.image and boots is not None and boots.image and boots.image not in named:
        problems.add(
            "FixedAtBirth",
            f"the VM boots from image {boots.image}, and only a new boot disk gets image {declared.image}; "
            "declare its image or none to keep the disk, or set recreate: true in the entry of its name, which "
            "detaches the old one",
            boots.label,
        )


def rfd_usage_mib(vm: Vm) -> int:
    """Return what RFD 154 compares with a package's disk: sizes, and snapshots in MiB, without hidden disks."""
    shown = [d.volume for d in vm.disks if not d.hidden]
    return sum(-(-v.volsize // MIB) + -(-v.usedbysnapshots // MIB) for v in shown)


def _properties(vm: Vm, declared: VmDeclaration) -> t.Optional[SetProperties]:
    """Return one step for the properties of a VM besides its disks; None if nothing changes."""
    package = declared.package
    wanted: t.Dict[str, t.Any] = {
        "memory": declared.memory if declared.memory is not None else package and package.memory,
        "vcpus": declared.vcpus if declared.vcpus is not None else package and package.vcpus,
        "indestructible": declared.indestructible,
        "drained": declared.drained,
        "package": package and package.name,
        "generation": declared.generation or None,
        "member": declared.member,
    }
    now = dict(machine(vm))
    changes = {key: value for key, value in wanted.items() if value is not None and value != now[key]}
    if not changes:
        return None
    parts = [f"{key} {_word(key, now[key])} -> {_word(key, value)}" for key, value in changes.items()]
    protection = snapshots.protection(vm) if "indestructible" in changes else None
    with_it = f"; the protection's own snapshot {snapshots.PROTECTION} goes with it" if protection is not None else ""
    return SetProperties(
        StepReport(f"~ {', '.join(parts)}{with_it}"),
        memory_mib=changes.get("memory"),
        vcpus=changes.get("vcpus"),
        indestructible=changes.get("indestructible"),
        package=changes.get("package"),
        drained=changes.get("drained"),
        generation=changes.get("generation"),
        member=changes.get("member"),
    )


def _check_machine(vm: Vm, properties: t.Optional[SetProperties], problems: Problems) -> None:
    """Refuse memory or vcpus if another part of the configuration has that figure, or names a removed vcpu."""
    for key, value in properties.machine.items() if properties is not None else ():
        change = f"{key} {_word(key, getattr(vm.config, key))} -> {_word(key, value)}"
        for why in _holders(vm.config, key, value):
            text = f"{change} is refused: {why}, and would not follow"
            problems.add("NotSupported", f"{text}; change both with virsh edit {vm.config.alias}")


def _holders(config: VmConfig, key: str, value: int) -> t.Iterator[str]:
    """Yield the parts of a configuration that do not allow other memory or vcpus, each with the reason."""
    if key in config.fixed:
        yield f"{config.fixed[key]} says the same"
    for part, minimum in config.min_vcpus.items() if key == "vcpus" else ():
        if minimum > value:
            yield f"{part} names vcpu {minimum - 1}"


def _restarts(vm: Vm, declared: VmDeclaration, properties: t.Optional[SetProperties]) -> bool:
    """Whether a running VM is restarted: as the task says, for a generation, or for memory or CPUs where wanted."""
    if vm.config.state != "running" or declared.state == "stopped":
        return False
    if properties is None or declared.restarted:
        return declared.restarted
    return properties.generation is not None or (declared.restart and bool(properties.machine))


def _word(key: str, value: t.Any) -> str:
    if key == "memory":
        return render_mib(value)
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def machine(vm: Vm) -> t.Dict[str, t.Any]:
    """Return the properties of a VM besides its disks; memory is MiB."""
    config = vm.config
    return {
        "memory": config.memory,
        "vcpus": config.vcpus,
        "indestructible": config.indestructible,
        "drained": vm.drained,
        "package": vm.package,
        "generation": vm.generation,
        "member": vm.member,
        "guest_agent": config.guest_agent,
    }


def power(vm: Vm, declared: VmDeclaration, capabilities: Capabilities) -> t.Iterator[Step]:
    """Yield steps that bring a VM into the declared state at the end."""
    autoboot = vm.config.autoboot
    if declared.state == "running" and vm.config.state == "stopped":
        yield recovery.start(capabilities)
        autoboot = autoboot or (capabilities.moves_autoboot and not vm.config.failover)
    if declared.autoboot is not None and declared.autoboot != autoboot:
        word = "on" if declared.autoboot else "off"
        yield SetAutoboot(StepReport(f"autoboot {word}"), autoboot=declared.autoboot)


def _check_ready(vm: Vm, declared: VmDeclaration, seq: Sequence, problems: Problems) -> None:
    """Add a problem if the VM is in no state to be changed, and would change or has a power state declared."""
    if seq.steps or (power_problem(vm) and declared.state in ("running", "stopped")):
        ordering.check_ready(vm, problems)


def _check_start(vm: Vm, declared: VmDeclaration, problems: Problems) -> None:
    """Add a problem if a stopped VM is declared running, and may not start on this host, unless it moves."""
    if declared.state == "running" and vm.config.state == "stopped" and not vm.config.frozen:
        code, reason = why_not_started(vm)
        if code:
            problems.add(code, f"state=running is refused: {reason}")


def _pending(vm: Vm, seq: Sequence) -> t.Iterator[str]:
    late = [key for step in seq.steps if isinstance(step, SetProperties) for key in step.machine]
    restarts = any(step.stops for step in seq.steps)
    if late and vm.config.state == "running" and not restarts:
        yield f"{vm.label}: {' and '.join(late)} {verb(len(late), 'change')} at its next start"


# -- delete


def plan_deletion(
    host: Host, vm: Vm, declared: VmDeclaration, capabilities: Capabilities, left: t.Optional[Leftovers] = None
) -> VmPlan:
    """Return the plan that deletes the VM. Its disks with preserve: true are detached first, with their snapshots.

    left: what is left of a VM whose creation or deletion was interrupted.
    """
    problems = Problems(declared.vm)
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    geometry = host.geometry[vm.config.pool]
    if vm.config.indestructible and declared.indestructible is not False:
        problems.add(
            "Indestructible",
            "the VM is indestructible; indestructible=false of the module vm in the same task allows its deletion",
        )
    _check_member(vm, declared, problems)
    _check_home(vm, left, problems)
    unused = left is not None and bool(left.entry.creates) and not left.still_needed
    gives_up = declared.destroy_snapshots or unused
    leavers = [Leaver(d, not d.preserve, gives_up) for d in vm.disks if not d.hidden] + _orphans(vm)
    checks.check_departures(Resolved(vm, None, vm.root.refquota, [], leavers, []), host, problems)
    _check_rollback(vm, [leaver.disk for leaver in leavers if not leaver.destroy], problems)
    _check_unread(vm, capabilities, problems)
    _check_unknown_datasets(host, vm, problems)
    if left is None or left.entry.deletes or left.still_needed:
        _check_losses(vm, declared, problems)
    if left is None or any(not leaver.destroy for leaver in leavers):
        ordering.check_ready(vm, problems)
    elif vm.config.frozen:
        problems.add("NotSupported", f"{vm.config.frozen}; it cannot be changed")
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    return _deletion(vm, [leaver for leaver in leavers if not leaver.destroy], geometry, capabilities)


def _check_rollback(vm: Vm, staying: t.Sequence[Disk], problems: Problems) -> None:
    """Refuse to keep disks that an interrupted rollback may not have reached. Destroyed ones do not matter."""
    if vm.interrupted is not None and vm.interrupted.rollback and staying:
        labels_of_staying = ", ".join(disk.label for disk in staying)
        text = f"{interrupted_run_text(vm.interrupted, vm)}, before {labels_of_staying} is detached"
        problems.add("InUse", text)


def _check_home(vm: Vm, left: t.Optional[Leftovers], problems: Problems) -> None:
    """Refuse to delete a VM that another host may have taken over, or could bring back, unless it moves."""
    if vm.config.frozen or not vm.config.failover:
        return
    reason = why_home_unknown(vm)
    if reason:
        problems.add(NOT_HOME, f"state=absent is refused: {reason}")
    elif left is None:
        reason = "the VM has failover: another host keeps its configuration, and would bring it back after its deletion"
        problems.add("Replicated", f"{reason}; the playbook replicate with flexdisk_failover=false gives that up first")


def _check_member(vm: Vm, declared: VmDeclaration, problems: Problems) -> None:
    """Refuse to delete a VM that is not the declared member, and was not about to become it."""
    becomes = vm.interrupted.member if vm.interrupted is not None else ""
    current = vm.member if vm.member is not None else becomes or None
    if declared.member is not None and current != declared.member:
        now = "not marked as a member" if current is None else f"marked as {current or 'a VM of no group'}"
        meant, name = declared.member or "a VM of no group", vm.config.alias or vm.config.uuid
        word = declared.member or '""'
        way = f"if it is {meant} all the same, say so first ({{vm: {name}, member: {word}}})"
        problems.add("NotMarked", f"only {meant} is deleted here, but the VM is {now}; {way}")


def plan_departure(host: Host, vm: Vm, capabilities: Capabilities) -> VmPlan:
    """Return the plan that deletes a VM which moves away: its disks are detached, with their snapshots."""
    leavers = [Leaver(disk, False) for disk in vm.disks if not disk.hidden] + _orphans(vm)
    moving = [replace(leaver, becomes_replica=True) for leaver in leavers]
    return _deletion(vm, moving, host.geometry[vm.config.pool], capabilities)


def _orphans(vm: Vm) -> t.List[Leaver]:
    """Return the disks that an interrupted run has removed from the configuration, but not from the VM's dataset. They
    are detached.

    A boot disk loses its name, because a new VM has a boot disk of its own.
    """
    names = {d.name for d in vm.disks + vm.detached}
    return [Leaver(d, False, nameless=d.name in names or d.boot) for d in vm.orphans if has_any_identity(d) and d.uuid]


def _check_unread(vm: Vm, capabilities: Capabilities, problems: Problems) -> None:
    """Refuse to delete volumes that this task has not read: some hypervisors destroy them with the VM."""
    entries = [entry for entry in vm.config.disks if entry.path in vm.unread]
    if capabilities.removal_destroys:
        for entry in entries:
            removal = json.dumps({"remove_disks": [entry.path]})
            text = f"{entry.volume} lies in pool {pool_of(entry.volume)}, which this task does not read, and would be "
            stop = f"stop the VM (vmadm stop {vm.config.uuid}), " if vm.config.state == "running" else ""
            text += f"destroyed with the VM unnamed. To keep it, {stop}rename it (zfs rename {entry.volume} NEWNAME), "
            text += f"then take its entry out (echo '{removal}' | vmadm update {vm.config.uuid}), and run this task "
            text += "again. While a volume has the name of the entry, vmadm destroys it with the entry"
            problems.add("InUse", text)


def _check_unknown_datasets(host: Host, vm: Vm, problems: Problems) -> None:
    """Refuse unknown datasets below the VM's dataset, because they would be destroyed with it."""
    known = {disk.volume.name for disk in vm.disks} | {leaver.disk.volume.name for leaver in _orphans(vm)}
    below = [d for d in host.datasets.values() if is_below(d.name, vm.root.name) and d.kind != "snapshot"]
    strange = sorted(d.name for d in below if d.name not in known)
    if strange:
        problems.add("InUse", f"{', '.join(strange)} would be destroyed with the VM, but is not one of its disks")


def _check_losses(vm: Vm, declared: VmDeclaration, problems: Problems) -> None:
    data = [d for d in vm.disks if not (d.boot or d.hidden or d.preserve)]
    if data and not declared.destroy_disks:
        names = ", ".join(f"{d.label} ({render_mib(d.size_mib)}, uuid {d.uuid})" for d in data)
        problems.add(
            "DataDisks",
            f"the VM has data disks that would be destroyed: {names}; destroy_disks: true allows it, "
            "preserve: true keeps one",
        )
    protection = snapshots.protection(vm)
    counted = [s for s in vm.snapshots if s is not protection]
    if counted and not declared.destroy_snapshots:
        problems.add(
            "HasSnapshots",
            "the VM has snapshots that would be destroyed with it: "
            f"{', '.join(_snapshot_text(vm, s) for s in counted)}; destroy_snapshots: true allows it",
        )
    used = [s.name for s in counted if s.clones or s.userrefs]
    if used:
        problems.add("InUse", f"snapshots cannot be destroyed because they have clones or holds: {', '.join(used)}")


def _snapshot_text(vm: Vm, snapshot: Dataset) -> str:
    left = not vm.config.identity_in_zfs and snapshot.name == vm.root.name + snapshots.PROTECTION
    name = snapshot.name.partition("@")[2]
    return name + (" (left of a protection whose hold somebody has released)" if left else "")


def _deletion(vm: Vm, detaching: t.Sequence[Leaver], geometry: PoolGeometry, capabilities: Capabilities) -> VmPlan:
    seq = Sequence(vm, geometry)
    seq.extend(departures.lift_guards(vm.disks + vm.orphans + vm.detached))
    if vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    seq.extend(changes.remove_name(disk) for disk in former_boots(vm))
    seq.extend(departures.remove_ghosts(vm))
    seq.add(_properties(seq.vm, VmDeclaration(vm.label, indestructible=False)))
    for leaver in detaching:
        seq.add(departures.detach(seq.vm, replace(leaver, disk=seq.volume_of(leaver.disk)), True))
    seq.add(delete(seq.vm))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps))


def delete(vm: Vm) -> DeleteVm:
    """Return the step that deletes the VM. Its text names what is destroyed."""
    gone = [_described(disk) for disk in vm.disks]
    snapshots = len({s.name.partition("@")[2] for s in (*vm.snapshots, *(s for d in vm.disks for s in d.snapshots))})
    gone += [count(snapshots, "snapshot")] if snapshots else []
    text = f"- VM {vm.config.alias or vm.config.uuid} DESTROYED{' with ' + ', '.join(gone) if gone else ''}"
    parts = tuple(disk.volume.dataset_id for disk in vm.disks)
    lost = (*vm.snapshots, *(snapshot for disk in vm.disks for snapshot in disk.snapshots))
    return DeleteVm(StepReport(text, destroys=True), parts=parts, snapshots=tuple(one.dataset_id for one in lost))


def plan_ended(host: Host, declared: VmDeclaration) -> t.Optional[VmPlan]:
    """Return the plan that finishes a deletion that was interrupted after the VM was deleted: it removes the journal
    entry, and the guards of its disks. None if nothing is left of it.
    """
    for (pool, uuid), left in sorted(host.intents.items()):
        place = vm_dataset(pool, uuid)
        if left is None or left.host != host.name or uuid in host.known or place in host.datasets:
            continue
        # Releases before 0.3.0 wrote the name only into the text of the step. Nothing but the record depends on it.
        deleted = left.deletes == declared.vm or any(
            step.partition(" DESTROYED")[0] == f"- VM {declared.vm}" for step in left.steps
        )
        if deleted or uuid in (declared.uuid, declared.vm.lower()):
            alias = declared.vm if deleted else ""
            config = VmConfig(uuid, alias, "", ABSENT, False, pool, place, None)
            detached = tuple(disk for disk in host.detached if disk.vm == uuid)
            vm = Vm(config, Dataset(place, ""), detached=detached, interrupted=left)
            seq = Sequence(vm, host.geometry[pool])
            seq.add(Recover(StepReport(f"= deletion of {left.since} ended: only its record was left")))
            seq.extend(departures.lift_guards(detached))
            return VmPlan(uuid, vm, seq.vm, tuple(seq.steps))
    return None


def _described(disk: Disk) -> str:
    suffix = f" and its snapshots ({render_bytes(disk.volume.pinned)})" if disk.snapshots else ""
    return f"{disk.label} {render_mib(disk.size_mib)}{suffix}"


def remove_left(left: Leftovers, problems: Problems, configured: bool) -> t.Optional[RemoveUnfinished]:
    """Return the step that removes what is left of a VM; None with a problem if somebody may still need it."""
    doing = "creation" if left.entry.creates else "deletion"
    if left.still_needed:
        message = (
            f"{', '.join(left.still_needed)} is left of a VM whose {doing} was interrupted, and may still be needed"
        )
        problems.add("AlreadyExists", f"{message}; if nobody does, zfs destroy -r {left.root} removes it")
        return None
    datasets = f": {', '.join(name for name, _guid in left.parts)}" if left.parts else ""
    text = f"- what is left of the VM, whose {doing} was interrupted{datasets}"
    report = StepReport(text, destroys=True)
    return RemoveUnfinished(
        report, left.uuid, left.root, left.parts, configured, bool(left.entry.deletes), left.frees_bytes
    )


def plan_left(host: Host, left: Leftovers, name: str) -> VmPlan:
    """Return the plan that removes the datasets of a VM that the hypervisor does not know any more."""
    problems = Problems(name)
    alias = left.entry.creates or left.entry.deletes
    config = VmConfig(left.uuid, alias, "", ABSENT, False, left.pool, left.root, None)
    gone = Vm(config, Dataset(left.root, ""), detached=tuple(d for d in host.detached if d.vm == left.uuid))
    step = remove_left(left, problems, False)
    return VmPlan(left.uuid, gone, gone, (step,) if step is not None else (), tuple(problems))


def plan_remains(host: Host, config: VmConfig) -> VmPlan:
    """Return the plan that deletes a VM without a dataset, as after an interrupted deletion: its configuration goes."""
    pool = config.pool if config.pool in host.geometry else next(iter(host.geometry))
    config = replace(config, pool=pool, dataset=config.dataset or vm_dataset(pool, config.uuid))
    vm = Vm(config, Dataset(config.dataset, ""))
    step = delete(vm)
    return VmPlan(config.uuid, vm, predict.apply(vm, step, host.geometry[pool]), (step,))
