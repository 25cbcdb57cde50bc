# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Plans that put right what rules/verify.py finds. Nothing is ever destroyed by them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.dataset import Dataset
from ..model.vm import Disk, Vm
from ..rules import identity
from ..rules.findings import INTENTS, Finding
from ..rules.inventory import Host, duplicates
from ..rules.journal import INDEX, property_of
from ..rules.verify_journal import listed_intents
from . import ordering, predict, verbs
from .ordering import Sequence
from .resolve import Leaver
from .steps import Step, VmPlan

_LAW = ("quota_drift", "reservation_off_auto")
_STAMPS = ("mtime", "serial_no")


@dataclass(frozen=True)
class Mending:
    """plans of VMs, and steps for what lies outside them."""

    plans: t.Tuple[VmPlan, ...]
    outside: t.Tuple[Step, ...]

    @property
    def changed(self) -> bool:
        return bool(self.outside) or any(plan.changed for plan in self.plans)


def mend(host: Host, wanted: t.Sequence[Finding]) -> Mending:
    """What repairs the findings, all of them repairable."""
    plans, left = [], list(wanted)
    for vm in host.vms:
        mine = [finding for finding in wanted if _within(vm, finding)]
        left = [finding for finding in left if not _within(vm, finding)]
        if mine:
            plans.append(_plan(host, vm, mine))
    return Mending(tuple(plans), tuple(_outside(host, left)))


def _within(vm: Vm, finding: Finding) -> bool:
    """Whether it concerns the VM's own datasets, or its configuration."""
    if finding.vm != vm.config.uuid:
        return False
    places = (vm.root.name, *(dataset.name for dataset in vm.volumes))
    return finding.volume in places or finding.kind == "parked_still_configured"


def _of(found: t.Iterable[Finding], *kinds: str) -> t.List[Finding]:
    return [finding for finding in found if finding.kind in kinds]


def _plan(host: Host, vm: Vm, found: t.Sequence[Finding]) -> VmPlan:
    geometry = host.geometry[vm.config.pool]
    seq = Sequence(vm, geometry)
    guarded = {finding.volume for finding in _of(found, "guard")}
    for step in verbs.unguard(d for d in (*vm.disks, *vm.orphans) if d.volume.name in guarded):
        seq.add(step)
    for step in _corrections(found):
        seq.add(step)
    for step in verbs.forget(seq.vm) if _of(found, "parked_still_configured") else ():
        seq.add(step)
    lost = {finding.volume for finding in _of(found, "orphan_volume")}
    for name in [disk.volume.name for disk in vm.orphans if disk.volume.name in lost]:
        disk = next(d for d in seq.vm.orphans if d.volume.name == name)
        names = {d.name for d in (*seq.vm.disks, *seq.vm.parked) if d.name}
        seq.add(_parked(verbs.detach(seq.vm, Leaver(disk, False, nameless=disk.name in names), False), disk))
    for step in ordering.repairs(seq.vm, geometry, False) if _of(found, *_LAW) else ():
        seq.add(step)
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps))


def _parked(step: Step, disk: Disk) -> Step:
    """A volume that has no identity gets that of its place."""
    facts = {"uuid": disk.uuid or identity.uuid_of(disk.volume.guid), **step.args["facts"]}
    return step if disk.uuid else replace(step, args={**step.args, "facts": facts})


def _corrections(found: t.Sequence[Finding]) -> t.Iterator[Step]:
    """One step for each dataset. What the hypervisor says is later in the list than what came with a receive."""
    facts: t.Dict[str, t.Dict[str, str]] = {}
    labels: t.Dict[str, str] = {}
    for finding in sorted(found, key=lambda f: f.kind != "received_property"):
        if "facts" in finding.args:
            facts.setdefault(finding.volume, {}).update(finding.args["facts"])
            labels[finding.volume] = finding.disk
    for volume, values in facts.items():
        words = ", ".join("%s %s" % (name, value or "none") for name, value in values.items())
        text = "~ properties of %s: %s" % (labels[volume] or volume, words)
        yield Step("correct", text, labels[volume], args={"volume": volume, "facts": values})


# -- outside VMs


def _outside(host: Host, found: t.Sequence[Finding]) -> t.Iterator[Step]:
    for finding in _of(found, "inherited_property"):
        names = finding.args["names"]
        text = "~ %s no longer has %s" % (finding.volume, ", ".join(names))
        yield Step("correct", text, args={"volume": finding.volume, "facts": dict.fromkeys(names, "")})
    yield from _corrections(found)
    guarded = {finding.volume for finding in _of(found, "guard")}
    parked = {disk.volume.name: disk for disk in host.parked}
    yield from verbs.unguard(parked[name] for name in sorted(guarded))
    for finding in _of(found, "parked_place"):
        yield _moved(finding, parked[finding.volume])
    forgotten = _of(found, *INTENTS)
    for finding in [f for f in forgotten if f.kind != "intent_index"]:
        args = {"volume": finding.volume, "facts": {property_of(finding.vm): ""}, "vm": finding.vm}
        yield Step("forget_intent", "- intent of VM %s" % (finding.alias or finding.vm), args=args)
    gone = {(f.volume.split("/", 1)[0], f.vm) for f in forgotten if f.kind != "intent_index"}
    left = replace(host, intents={key: record for key, record in host.intents.items() if key not in gone})
    for place in sorted({finding.volume for finding in forgotten}):
        listed = listed_intents(left, place.split("/", 1)[0])
        text = "~ list of intents of %s: %s" % (place, listed or "none")
        yield Step("correct", text, args={"volume": place, "facts": {INDEX: listed}})


def _moved(finding: Finding, disk: Disk) -> Step:
    args = {"volume": finding.volume, "guid": disk.volume.guid, **finding.args}
    return Step("place", "~ %s -> %s" % (finding.volume, finding.args["target"]), finding.disk, args=args)


# -- the host afterwards


def after(host: Host, mending: Mending) -> Host:
    """The host when all has been done, as a later read shows it."""
    vms = {plan.vm: plan.after for plan in mending.plans}
    known = {disk.volume.name for disk in host.parked}
    datasets = dict(host.datasets)
    for plan in mending.plans:
        for volume in plan.before.volumes:
            del datasets[volume.name]
        datasets.update({d.name: d for d in (plan.after.root, *plan.after.volumes)})
    parked = list(host.parked)
    for plan in mending.plans:
        parked += [_fresh(disk, plan.before) for disk in plan.after.parked if disk.volume.name not in known]
    found = replace(host, vms=tuple(vms.get(vm.config.uuid, vm) for vm in host.vms), parked=tuple(parked))
    datasets.update({disk.volume.name: disk.volume for disk in parked})
    found = replace(found, datasets=datasets)
    for step in mending.outside:
        found = _OUTSIDE[step.kind](found, step)
    owners: t.Dict[str, t.List[Disk]] = {}
    for disk in found.parked:
        owners.setdefault(disk.vm, []).append(disk)
    vms_now = tuple(replace(vm, parked=tuple(owners.get(vm.config.uuid, ()))) for vm in found.vms)
    return replace(found, vms=vms_now, duplicates=duplicates(vms_now, found.parked))


def _fresh(disk: Disk, vm: Vm) -> Disk:
    """A disk that has just been parked: stamped, and out of what shows through from the VM's dataset."""
    volume = disk.volume
    user = {name: value for name, value in volume.user.items() if name not in _STAMPS}
    inherited = {n: s for n, s in volume.inherited.items() if not (s + "/").startswith(vm.root.name + "/")}
    received = volume.received.difference(_STAMPS)
    volume = replace(volume, user=user, inherited=inherited, received=received)
    return replace(disk, volume=volume, uuid=disk.uuid or user["uuid"])


def _each(host: Host, change: t.Callable[[Dataset], Dataset]) -> Host:
    """The host with every dataset changed, wherever it is kept."""

    def disks(found: t.Iterable[Disk]) -> t.Tuple[Disk, ...]:
        return tuple(replace(disk, volume=change(disk.volume)) for disk in found)

    vms = tuple(replace(vm, root=change(vm.root), disks=disks(vm.disks), orphans=disks(vm.orphans)) for vm in host.vms)
    datasets = [change(dataset) for dataset in host.datasets.values()]
    return replace(host, vms=vms, parked=disks(host.parked), datasets={d.name: d for d in datasets})


def _correct(host: Host, step: Step) -> Host:
    """Also what showed through from the dataset is gone where it was taken away."""
    place, facts = step.args["volume"], step.args["facts"]

    def change(dataset: Dataset) -> Dataset:
        if dataset.name == place:
            user = {name: value for name, value in {**dataset.user, **facts}.items() if value}
            return replace(dataset, user=user, received=dataset.received - facts.keys())
        hidden = {n: s for n, s in dataset.inherited.items() if not (s == place and n in facts)}
        return dataset if len(hidden) == len(dataset.inherited) else replace(dataset, inherited=hidden)

    return _each(host, change)


def _forget_intent(host: Host, step: Step) -> Host:
    gone = (step.args["volume"].split("/", 1)[0], step.args["vm"])
    return replace(host, intents={key: record for key, record in host.intents.items() if key != gone})


def _place(host: Host, step: Step) -> Host:
    args = step.args

    def moved(disk: Disk) -> Disk:
        if disk.volume.name != args["volume"]:
            return disk
        disk = predict.believed(disk, {"uuid": args["uuid"]})
        return replace(disk, uuid=args["uuid"], volume=replace(disk.volume, name=args["target"]))

    parked = tuple(map(moved, host.parked))
    datasets = {name: dataset for name, dataset in host.datasets.items() if name != args["volume"]}
    datasets.update({disk.volume.name: disk.volume for disk in parked})
    return replace(host, parked=parked, datasets=datasets)


def _unguard(host: Host, step: Step) -> Host:
    place = step.args["volume"]
    parked = tuple(predict.unguarded(disk) if disk.volume.name == place else disk for disk in host.parked)
    return replace(host, parked=parked)


_OUTSIDE: t.Dict[str, t.Callable[[Host, Step], Host]] = {
    "correct": _correct,
    "forget_intent": _forget_intent,
    "place": _place,
    "unguard": _unguard,
}
