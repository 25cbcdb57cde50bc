# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that repair what rules/verify.py finds. They never destroy anything."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.dataset import Dataset
from ..model.vm import Disk, Vm
from ..rules import identity
from ..rules.findings import INTENTS, Finding
from ..rules.inventory import Host, duplicates
from ..rules.journal import INDEX_PROPERTY, intent_property
from ..rules.verify_journal import listed_intents
from . import departures, ordering, predict
from .disk_steps import CorrectFacts, Detach, ForgetRun, LiftGuard, MoveDetached
from .ordering import Sequence
from .resolve import Leaver
from .steps import Step, StepReport, VmPlan

_LAW = ("quota_drift", "reservation_off_auto")
_STAMPS = ("mtime", "serial_no")


@dataclass(frozen=True)
class HostRepairs:
    """The repairs of a host: plans for its VMs, and steps for what lies outside of VMs."""

    plans: t.Tuple[VmPlan, ...]
    outside: t.Tuple[Step, ...]

    @property
    def changed(self) -> bool:
        return bool(self.outside) or any(plan.changed for plan in self.plans)


def plan_repairs(host: Host, wanted: t.Sequence[Finding]) -> HostRepairs:
    """Return the repairs for these findings, which must all be repairable."""
    plans, left = [], list(wanted)
    for vm in host.vms:
        mine = [finding for finding in wanted if _within(vm, finding)]
        left = [finding for finding in left if not _within(vm, finding)]
        if mine:
            plans.append(_plan(host, vm, mine))
    return HostRepairs(tuple(plans), tuple(_outside(host, left)))


def _within(vm: Vm, finding: Finding) -> bool:
    """Whether the finding is about the VM's own datasets, or its configuration."""
    if finding.vm != vm.config.uuid:
        return False
    places = (vm.root.name, *(dataset.name for dataset in vm.volumes))
    return finding.volume in places or finding.kind == "parked_still_configured"


def _of(findings: t.Iterable[Finding], *kinds: str) -> t.List[Finding]:
    return [finding for finding in findings if finding.kind in kinds]


def _plan(host: Host, vm: Vm, findings: t.Sequence[Finding]) -> VmPlan:
    geometry = host.geometry[vm.config.pool]
    seq = Sequence(vm, geometry)
    guarded = {finding.volume for finding in _of(findings, "guard")}
    seq.extend(departures.lift_guards(d for d in (*vm.disks, *vm.orphans) if d.volume.name in guarded))
    seq.extend(_corrections(findings))
    seq.extend(departures.remove_ghosts(seq.vm) if _of(findings, "parked_still_configured") else ())
    lost = {finding.volume for finding in _of(findings, "orphan_volume")}
    for name in [disk.volume.name for disk in vm.orphans if disk.volume.name in lost]:
        disk = next(d for d in seq.vm.orphans if d.volume.name == name)
        names = {d.name for d in (*seq.vm.disks, *seq.vm.detached) if d.name}
        seq.add(_detached(departures.detach(seq.vm, Leaver(disk, False, nameless=disk.name in names), False), disk))
    seq.extend(ordering.repairs(seq.vm, geometry, False) if _of(findings, *_LAW) else ())
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps))


def _detached(step: Detach, disk: Disk) -> Detach:
    """Return the step with a uuid: a disk without one gets the uuid that follows from its guid."""
    facts = {"uuid": disk.uuid or identity.uuid_of(disk.volume.guid), **step.facts}
    return step if disk.uuid else replace(step, facts=facts)


def _corrections(findings: t.Sequence[Finding]) -> t.Iterator[Step]:
    """Yield one step for each dataset. What the hypervisor says overrides what was received."""
    facts: t.Dict[str, t.Dict[str, str]] = {}
    labels: t.Dict[str, str] = {}
    for finding in sorted(findings, key=lambda f: f.kind != "received_property"):
        if "facts" in finding.args:
            facts.setdefault(finding.volume, {}).update(finding.args["facts"])
            labels[finding.volume] = finding.disk
    for volume, values in facts.items():
        changes = ", ".join(f"{name} {value or 'none'}" for name, value in values.items())
        text = f"~ properties of {labels[volume] or volume}: {changes}"
        yield CorrectFacts(StepReport(text, labels[volume]), volume=volume, facts=values)


# -- outside VMs


def _outside(host: Host, findings: t.Sequence[Finding]) -> t.Iterator[Step]:
    for finding in _of(findings, "inherited_property"):
        names = finding.args["names"]
        text = f"~ {finding.volume} no longer has {', '.join(names)}"
        yield CorrectFacts(StepReport(text), volume=finding.volume, facts=dict.fromkeys(names, ""))
    yield from _corrections(findings)
    guarded = {finding.volume for finding in _of(findings, "guard")}
    detached = {disk.volume.name: disk for disk in host.detached}
    yield from departures.lift_guards(detached[name] for name in sorted(guarded))
    for finding in _of(findings, "parked_place"):
        yield _moved(finding, detached[finding.volume])
    forgotten = _of(findings, *INTENTS)
    for finding in [f for f in forgotten if f.kind != "intent_index"]:
        report = StepReport(f"- intent of VM {finding.alias or finding.vm}")
        yield ForgetRun(report, volume=finding.volume, facts={intent_property(finding.vm): ""}, vm=finding.vm)
    gone = {(f.volume.split("/", 1)[0], f.vm) for f in forgotten if f.kind != "intent_index"}
    left = replace(host, intents={key: entry for key, entry in host.intents.items() if key not in gone})
    for place in sorted({finding.volume for finding in forgotten}):
        listed = listed_intents(left, place.split("/", 1)[0])
        text = f"~ list of intents of {place}: {listed or 'none'}"
        yield CorrectFacts(StepReport(text), volume=place, facts={INDEX_PROPERTY: listed})


def _moved(finding: Finding, disk: Disk) -> MoveDetached:
    uuid, target = finding.args["uuid"], finding.args["target"]
    report = StepReport(f"~ {finding.volume} -> {target}", finding.disk)
    return MoveDetached(report, volume=finding.volume, guid=disk.volume.guid, uuid=uuid, target=target)


# -- the host afterwards


def after(host: Host, repairs: HostRepairs) -> Host:
    """Return the host after all repairs, as a later read would show it."""
    vms = {plan.vm: plan.after for plan in repairs.plans}
    known = {disk.volume.name for disk in host.detached}
    datasets = dict(host.datasets)
    for plan in repairs.plans:
        for volume in plan.before.volumes:
            del datasets[volume.name]
        datasets.update({d.name: d for d in (plan.after.root, *plan.after.volumes)})
    detached = list(host.detached)
    for plan in repairs.plans:
        detached += [_fresh(disk, plan.before) for disk in plan.after.detached if disk.volume.name not in known]
    repaired = replace(host, vms=tuple(vms.get(vm.config.uuid, vm) for vm in host.vms), detached=tuple(detached))
    datasets.update({disk.volume.name: disk.volume for disk in detached})
    repaired = replace(repaired, datasets=datasets)
    for step in repairs.outside:
        repaired = AFTER_OUTSIDE[type(step)](step, repaired)
    owners: t.Dict[str, t.List[Disk]] = {}
    for disk in repaired.detached:
        owners.setdefault(disk.vm, []).append(disk)
    vms_now = tuple(replace(vm, detached=tuple(owners.get(vm.config.uuid, ()))) for vm in repaired.vms)
    return replace(repaired, vms=vms_now, duplicates=duplicates(vms_now, repaired.detached))


def _fresh(disk: Disk, vm: Vm) -> Disk:
    """Return a disk that was just detached: without its old stamps and what it inherited from the VM's dataset."""
    volume = disk.volume
    user = {name: value for name, value in volume.user.items() if name not in _STAMPS}
    inherited = {n: s for n, s in volume.inherited.items() if not (s + "/").startswith(vm.root.name + "/")}
    received = volume.received.difference(_STAMPS)
    volume = replace(volume, user=user, inherited=inherited, received=received)
    return replace(disk, volume=volume, uuid=disk.uuid or user["uuid"])


def _each(host: Host, change: t.Callable[[Dataset], Dataset]) -> Host:
    """Return the host with every dataset changed, in all places where the host has it."""

    def disks(group: t.Iterable[Disk]) -> t.Tuple[Disk, ...]:
        return tuple(replace(disk, volume=change(disk.volume)) for disk in group)

    vms = tuple(replace(vm, root=change(vm.root), disks=disks(vm.disks), orphans=disks(vm.orphans)) for vm in host.vms)
    datasets = [change(dataset) for dataset in host.datasets.values()]
    return replace(host, vms=vms, detached=disks(host.detached), datasets={d.name: d for d in datasets})


def _correct(step: CorrectFacts, host: Host) -> Host:
    """Return the host after a correction. Datasets below no longer inherit the property."""
    place, facts = step.volume, step.facts

    def change(dataset: Dataset) -> Dataset:
        if dataset.name == place:
            user = {name: value for name, value in {**dataset.user, **facts}.items() if value}
            return replace(dataset, user=user, received=dataset.received - facts.keys())
        hidden = {n: s for n, s in dataset.inherited.items() if not (s == place and n in facts)}
        return dataset if len(hidden) == len(dataset.inherited) else replace(dataset, inherited=hidden)

    return _each(host, change)


def _forget_run(step: ForgetRun, host: Host) -> Host:
    gone = (step.volume.split("/", 1)[0], step.vm)
    return replace(host, intents={key: entry for key, entry in host.intents.items() if key != gone})


def _move_detached(step: MoveDetached, host: Host) -> Host:
    def moved(disk: Disk) -> Disk:
        if disk.volume.name != step.volume:
            return disk
        disk = predict.with_written_facts(disk, {"uuid": step.uuid})
        return replace(disk, uuid=step.uuid, volume=disk.volume.renamed(step.target))

    detached = tuple(map(moved, host.detached))
    datasets = {name: dataset for name, dataset in host.datasets.items() if name != step.volume}
    datasets.update({disk.volume.name: disk.volume for disk in detached})
    return replace(host, detached=detached, datasets=datasets)


def _lift_guard(step: LiftGuard, host: Host) -> Host:
    detached = tuple(predict.unguarded(disk) if disk.volume.name == step.volume else disk for disk in host.detached)
    return replace(host, detached=detached)


# The host after each class of steps that concern no VM. Any: each function takes its own class.
AFTER_OUTSIDE: t.Mapping[t.Type[Step], t.Callable[[t.Any, Host], Host]] = {
    CorrectFacts: _correct,
    ForgetRun: _forget_run,
    MoveDetached: _move_detached,
    LiftGuard: _lift_guard,
}
