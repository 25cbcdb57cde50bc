# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan what is declared from what is observed: one plan for each VM, and a check that the pool has room."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Policy, VmDisksDeclaration
from ..model.errors import FlexdiskError, Problem, Problems
from ..model.sizes import render_apart, render_bytes
from ..model.text import count
from ..model.vm import Disk, Vm, VmConfig
from ..rules import exchange, pins, released_identity
from ..rules.inventory import Host
from ..rules.layout import pool_of
from ..rules.matching import Match, match
from ..rules.moves import why_moved_away
from ..rules.naming import did_you_mean, find_by_name
from ..rules.power import interrupted_run_text, why_kept_down
from ..rules.reservation import PoolGeometry
from ..rules.unfinished import is_unfinished, unfinished_vm_text
from ..rules.usage import check_whole
from . import ordering, predict
from .checks import check
from .disk_steps import AttachDisk, Convert, DestroyDetached, ExchangeDisks
from .recovery import stays_down
from .relocation import adopt, as_configured, by_other_names, not_managed, without_dataset
from .resolve import Resolved, resolve
from .steps import Step, VmPlan
from .unseen import check_copies, check_given_up, check_names, check_out_of_place, check_readable
from .vm_steps import ClearRemains, Relocate, Remember, RemoveUnfinished, RollBack
from .warnings import warnings_of


def find_config(host: Host, wanted: str) -> t.Union[VmConfig, Problem, None]:
    """Return the VM with this uuid, else the only one with this alias or uuid prefix; a Problem if several match."""
    matches = find_by_name(wanted, host.configs)
    if len(matches) > 1:
        text = (
            "several VMs have this alias or a uuid that begins so: "
            f"{', '.join(sorted(c.label for c in matches))}; give the whole uuid"
        )
        return Problem("Ambiguous", text, wanted)
    return matches[0] if matches else None


def find_vm(host: Host, wanted: str, adopt: bool = False) -> t.Union[Vm, Problem]:
    """Return the VM that find_config() finds, or a Problem if it is unusable. adopt: accept one without a dataset."""
    config = find_config(host, wanted)
    if config is None:
        return why_moved_away(host.moves, wanted) or _unknown(host, wanted)
    if isinstance(config, Problem):
        return config
    vm = next((v for v in host.vms if v.config is config), None)
    if vm is not None:
        return vm
    if config in host.other_brands:
        return Problem("BrandNotSupported", f"it has brand {config.brand}", wanted)
    if adopt and not config.unsupported:
        made = without_dataset(host, config)
        if made is not None:
            return made
    code = "VmInTransition" if is_unfinished(config) else "ResourceNotFound"
    return Problem(code, not_managed(host, config), wanted)


def _unknown(host: Host, wanted: str) -> Problem:
    similar = did_you_mean(wanted, {config.alias: config.alias for config in host.configs if config.alias})
    text = f"no VM with this uuid, uuid prefix or alias{'. ' if similar else ''}{similar}"
    return Problem("ResourceNotFound", text, wanted)


def plan_vm(host: Host, vm: Vm, spec: VmDisksDeclaration, policy: Policy, capabilities: Capabilities) -> VmPlan:
    """Return the plan for one VM."""
    problems = Problems(spec.vm)
    if spec.adopt and vm.config.prefixes:
        text = "adopt: true moves volumes below the dataset of a VM, and this VM needs none; leave it out"
        problems.add("NotSupported", text)
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    adopts = spec.adopt and vm.config.identity_in_zfs
    before = vm = by_other_names(host, vm) if adopts else vm
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    first = adopt(host, vm, capabilities.device_prefix, problems) if adopts else None
    check_begun(vm, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    if first is not None:
        vm = predict.apply(vm, first, host.geometry[vm.config.pool])
    of_other_vms = [d for d in host.detached if d.vm != vm.config.uuid]
    if spec.disks is None:
        spec = replace(spec, disks=(), unlisted="keep")
    matched = match(vm, t.cast(t.Any, spec.disks), of_other_vms, policy.matching, problems, spec.unlisted)
    plan = plan_matched(host, vm, spec, matched, policy, capabilities, problems)
    if plan.problems:
        reworded = tuple(replace(one, message=as_configured(one.message, first)) for one in plan.problems)
        return replace(plan, before=before, after=before, problems=reworded)
    warnings = tuple(f"{spec.vm}: {as_configured(text, first)}" for text in matched.warnings)
    steps = (*([first] if first else []), *plan.steps)
    return replace(plan, before=before, steps=steps, warnings=warnings + plan.warnings)


def check_begun(vm: Vm, problems: Problems) -> None:
    """Refuse all other changes until an interrupted creation, deletion, rollback or release is finished."""
    if is_unfinished(vm.config) and (vm.interrupted is not None or vm.config.state != "provisioning"):
        problems.add("VmInTransition", unfinished_vm_text(vm.config, vm.interrupted))
    if exchange.begun(vm):
        problems.add("InUse", exchange.why_refused(vm))
    if vm.interrupted is not None and vm.interrupted.rollback:
        problems.add("InUse", interrupted_run_text(vm.interrupted))
    # A run with a journal entry is no release, so facts that it has written only in part are no interrupted release.
    ours = vm.interrupted is not None and not vm.interrupted.late
    for disk in (d for d in vm.disks if not ours and released_identity.release_interrupted(d.volume)):
        problems.add(
            "InUse",
            "the release of its identity was interrupted; disk_adopt finishes it (state=released) or undoes it "
            "(state=adopted)",
            disk.label,
        )


def plan_matched(
    host: Host,
    vm: Vm,
    spec: VmDisksDeclaration,
    matched: Match,
    policy: Policy,
    capabilities: Capabilities,
    problems: Problems,
) -> VmPlan:
    """Return the plan for a VM whose entries are matched with disks. problems: those found before."""
    why = why_kept_down(vm)
    if why and not (problems or _boots_again(matched)):
        problems.add("InUse", why)
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    _duplicates(host, vm, [disk for _spec, disk in matched.pairs], problems)
    check_out_of_place(vm, spec, matched, host, problems)
    check_given_up(vm, spec, matched, problems)
    check_names(vm, matched, host, problems)
    check_copies(vm, matched, problems)
    check_readable(vm, matched, host.geometry, problems)
    resolved = resolve(vm, spec, matched, host, capabilities, problems)
    sound = not problems
    check(resolved, host, capabilities, problems)
    sequence = None
    if not problems:
        sequence = ordering.order(resolved, host.geometry[vm.config.pool], capabilities, policy, problems)
    elif sound:
        _add_of_order(resolved, host, capabilities, policy, problems)
    if sequence is None or problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    warnings = (*warnings_of(sequence.vm, spec, resolved), *stays_down(vm, sequence.vm))
    return VmPlan(vm.config.uuid, vm, sequence.vm, tuple(sequence.steps), (), warnings)


def _add_of_order(
    resolved: Resolved, host: Host, capabilities: Capabilities, policy: Policy, problems: Problems
) -> None:
    """Add what the order of steps shows, if a check has refused something else, so that the user sees all at once: that
    the VM must be stopped, and what the driver does not do.
    """
    others = Problems(resolved.vm.label)
    with contextlib.suppress(FlexdiskError):  # what cannot be planned has been refused already
        ordering.order(resolved, host.geometry[resolved.vm.config.pool], capabilities, policy, others)
    for one in others:
        if one.code == "VmNotStopped" or (capabilities.scope and one.message.endswith(capabilities.scope)):
            problems.add(one.code, one.message, one.disk)


def _boots_again(matched: Match) -> bool:
    """Whether an entry gives a boot disk to a VM that has lost its own: a new one, or one that is not attached.

    A data disk does not suffice, because it has nothing to boot from.
    """
    new = any(entry.image for entry in matched.creates if entry.boot)
    there = [(entry, disk) for entry, disk in matched.pairs if entry.boot and not disk.path]
    return new or any(entry.image or disk.image or (entry.recreate and entry.uuid) for entry, disk in there)


def _duplicates(host: Host, vm: Vm, claimed: t.Iterable[Disk], problems: Problems) -> None:
    """Refuse a VM that has, or would get, a disk whose uuid is on several volumes."""
    told: t.Set[t.Tuple[str, str]] = set()
    for disk in {id(d): d for d in (*vm.disks, *vm.orphans, *vm.detached, *claimed)}.values():
        places = host.duplicates.get(disk.uuid)
        if places and (disk.uuid, disk.label) not in told:
            told.add((disk.uuid, disk.label))
            text = f"the uuid {disk.uuid} is on several volumes: {', '.join(places)}{_way_out(vm, disk.uuid)}"
            problems.add("Ambiguous", text, disk.label)


def _way_out(vm: Vm, uuid: str) -> str:
    """Return what helps if a VM without a dataset of its own has the uuid also on a volume that is not attached, as the
    end of a text.
    """
    attached = [disk.volume.name for disk in vm.disks if disk.uuid == uuid]
    left = [disk.volume.name for disk in vm.orphans if disk.uuid == uuid]
    away = [disk.volume.name for disk in vm.detached if disk.uuid == uuid]
    if vm.config.prefixes and len(attached) == 1 and len(away) == 1 and not left:
        return _way_out_of_detached(vm, uuid, attached[0], away[0])
    if not (vm.config.prefixes and len(attached) == 1 and left):
        return ""
    ways = "; ".join(f"zfs inherit flexdisk:uuid {name}" for name in left)
    text = f"; {attached[0]} is attached. If the VM has the right one, take the uuid off the other"
    return f"{text} ({ways}), or destroy that when nobody needs it"


def _way_out_of_detached(vm: Vm, uuid: str, attached: str, detached: str) -> str:
    """Return what helps if an attached disk and a detached one are the same disk, as after a restore."""
    entry = next(one for one in vm.config.disks if one.volume == attached)
    text = f"; {attached} is attached, and may have been restored. If {detached} is the right one, give {entry.key}"
    text += f" another serial (qm set {vm.config.proxmox['vmid']} --{entry.key})"
    return f"{text}; if {attached} is, destroy the other when nobody needs it (zfs destroy {detached})"


class Demand(t.NamedTuple):
    """Bytes that a plan takes from the pool: net after it, and peak at most meanwhile."""

    net: int
    peak: int


def demand(plan: VmPlan, geometry: PoolGeometry, pool: str = "") -> Demand:
    """Return what a plan takes from a pool: the change of the VM's reservation, and what detached disks keep.

    pool: "" for the pool of the VM. Only a VM without a dataset of its own has disks in several pools.
    """
    vm, pool = plan.before, pool or plan.before.config.pool
    guests: t.Dict[str, int] = {}
    for step in plan.steps:
        if isinstance(step, Relocate):
            guests.update({entry.volume: moved.volume.used for entry, moved in step.moves})
        if isinstance(step, AttachDisk) and step.attached.detached and step.attached.vm != vm.config.uuid:
            guests[step.source] = step.attached.volume.used
    freed = sum(step.frees_bytes for step in plan.steps if isinstance(step, (ClearRemains, RemoveUnfinished)))
    start = _reserved_bytes(vm, pool) + sum(guests.values()) + freed
    course = [0]
    for step in plan.steps:
        if isinstance(step, (ClearRemains, RemoveUnfinished)):
            freed -= step.frees_bytes
        if isinstance(step, Convert):
            course.append(course[-1] + (step.copying.beside_bytes if step.copying is not None else 0))
        elif isinstance(step, RollBack):
            course.append(course[-1] + pins.beyond_reservation(vm.root, step.beside_bytes))
        vm = predict.apply(vm, step, geometry)
        if isinstance(step, AttachDisk):
            guests.pop(step.source, None)
        elif isinstance(step, Relocate):
            guests = {}
        course.append(_reserved_bytes(vm, pool) + sum(guests.values()) + freed - start)
    return Demand(course[-1], max(course))


def resolve_claims(plans: t.Sequence[VmPlan]) -> t.Tuple[t.List[VmPlan], t.List[Problem]]:
    """Return the plans, with detached disks that are taken off their VMs. One that two VMs take is refused to both."""
    takers: t.Dict[str, t.List[VmPlan]] = {}
    for plan in plans:
        for step in plan.steps:
            if isinstance(step, (AttachDisk, DestroyDetached)):
                taken = step.source if isinstance(step, AttachDisk) else step.volume
                takers.setdefault(taken, []).append(plan)
    problems = [
        Problem("Ambiguous", f"{volume} is claimed by {len(claims)} VMs in this task", plan.name)
        for volume, claims in takers.items()
        for plan in claims
        if len(claims) > 1
    ]
    left = [tuple(d for d in plan.after.detached if d.volume.name not in takers) for plan in plans]
    return [replace(p, after=replace(p.after, detached=detached)) for p, detached in zip(plans, left)], problems


def _reserved_bytes(vm: Vm, pool: str) -> int:
    if vm.config.prefixes:
        return sum(v.used for v in (*vm.volumes, *(disk.volume for disk in vm.detached)) if v.pool == pool)
    return vm.root.reservation + sum(d.volume.used for d in vm.detached)


def _pools(plan: VmPlan) -> t.Set[str]:
    """Return the pools with disks of the VM. Only one without a dataset of its own has disks in several."""
    volumes = (*plan.before.volumes, *plan.after.volumes) if plan.before.config.prefixes else ()
    return {plan.before.config.pool, *(volume.pool for volume in volumes)}


def admit(host: Host, plans: t.Sequence[VmPlan]) -> t.Tuple[t.List[VmPlan], t.List[Problem]]:
    """Return the plans in an order in which the pool has room, those that release space first; and its problems."""
    ordered = sorted(plans, key=lambda plan: rank(host, plan))
    return ordered, lacking(host, ordered)


def admitted(
    host: Host, plans: t.Sequence[VmPlan], carry_on: bool
) -> t.Tuple[t.List[VmPlan], t.List[VmPlan], t.List[Problem]]:
    """Return the plans that fit together; the same plans in the order of work; all problems.

    carry_on: leave out the VMs with problems until the rest fits. In a pool without room, that is the VM that needs
    most.
    """
    problems: t.List[Problem] = []
    left = list(plans)
    while True:
        shared, wrong = resolve_claims(left)
        ordered, short = admit(host, shared)
        wrong += short
        problems += wrong
        if not (wrong and carry_on):
            return shared, ordered, problems
        named = {problem.vm for problem in wrong}
        left = [plan for plan in left if plan.name not in named]


def handed_on(plans: t.Sequence[VmPlan]) -> t.List[VmPlan]:
    """Return the plans of a task, with records that do not keep a disk as detached which another VM gets by then."""
    given = {step.attached.uuid: plan.vm for plan in plans for step in plan.steps if isinstance(step, AttachDisk)}

    def settled(step: Step, vm: str) -> Step:
        if not isinstance(step, Remember) or not step.detached:
            return step
        return replace(step, detached={u: one for u, one in step.detached.items() if given.get(u, vm) == vm})

    result = [(plan, tuple(settled(step, plan.vm) for step in plan.steps)) for plan in plans]
    return [replace(plan, steps=steps) if steps != plan.steps else plan for plan, steps in result]


def lacking(host: Host, ordered: t.Sequence[VmPlan]) -> t.List[Problem]:
    """Return problems of pools that lack room for the plans in this order."""
    problems = []
    for pool in sorted({pool for plan in ordered for pool in _pools(plan)}):
        plans = [plan for plan in ordered if plan.steps and pool in _pools(plan)]
        here = [(plan, demand(plan, host.geometry[plan.before.config.pool], pool)) for plan in plans]
        need = so_far = 0
        for _plan, needed in here:
            need = max(need, so_far + needed.peak)
            so_far += needed.net
        room = host.available(pool)
        if need > room:
            biggest, most = max(here, key=lambda pair: pair[1].peak)
            problems.append(
                Problem(
                    "InsufficientSpace",
                    "pool %s has %s left, but this task needs %s (at most %s of it for this VM)"
                    % (pool, *render_apart(room, need), render_bytes(most.peak))
                    + _of_former_disks(biggest),
                    biggest.name,
                )
            )
    return problems + _lacking_below(host, ordered)


def _lacking_below(host: Host, ordered: t.Sequence[VmPlan]) -> t.List[Problem]:
    """Return problems of datasets that may take less than their pool has, for VMs without a dataset of their own."""
    plans = [plan for plan in ordered if plan.steps and plan.before.config.prefixes]
    problems = []
    for parent in sorted({_parent(volume) for plan in plans for volume in plan.after.volumes}):
        room = host.datasets[parent].available if parent in host.datasets else None
        if room is None or room >= host.available(pool_of(parent)):
            continue
        needs = [(_used_below(plan.after, parent) - _used_below(plan.before, parent), plan.name) for plan in plans]
        need, (most, biggest) = sum(needed for needed, _name in needs), max(needs)
        if need > room:
            figures = (*render_apart(room, need), render_bytes(most))
            text = "%s has %s left, but this task needs %s (at most %s of it for this VM)" % (parent, *figures)
            problems.append(Problem("InsufficientSpace", text, biggest))
    return problems


def _parent(volume: Dataset) -> str:
    return volume.name.rpartition("/")[0]


def _used_below(vm: Vm, parent: str) -> int:
    return sum(volume.used for volume in vm.volumes if _parent(volume) == parent)


def _of_former_disks(plan: VmPlan) -> str:
    """Return what disks that leave for restored ones take with them, as the end of a text; "" for none."""
    formers = [one.former for step in plan.steps if isinstance(step, ExchangeDisks) for one in step.exchanged]
    parts = [
        f"{disk.name} keeps {render_bytes(disk.volume.used)} with {count(len(disk.snapshots), 'snapshot')}"
        for disk in formers
    ]
    return f"; detached, {', '.join(parts)}" if parts else ""


def rank(host: Host, plan: VmPlan) -> t.Tuple[bool, int]:
    """Sort key: plans that release space, least peak first; then those that release most after their peak."""
    need = demand(plan, host.geometry[plan.before.config.pool])
    return need.net >= 0, need.peak if need.net < 0 else need.net - need.peak
