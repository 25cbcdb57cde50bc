# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of disk_adopt: disks get their identity, or lose it. It stops no VM and touches no data."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...hypervisor.protocol import Hypervisor
from ...model.desired import AdoptionDeclaration, Approval, Policy
from ...model.errors import FlexdiskError, Problem
from ...model.vm import Intent, Vm
from ...parse.disk_adopt import parse_adoption
from ...plan import recovery
from ...plan.disk_adopt import plan_adoption, plan_release, released, would_become_unknown
from ...plan.disk_steps import ReleaseDisk
from ...plan.planner import find_vm
from ...plan.steps import VmPlan
from ...plan.vm_steps import WritePackage
from ...rules import released_identity
from ...rules.inventory import Host
from ...rules.power import interrupted_run_text
from ...rules.skipped import lines
from ...rules.unfinished import is_over
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task
from ..steps.perform import Change, Performers, Tools
from .vm_info import skipped

_Dict = t.Dict[str, t.Any]


@dataclass
class IdentityOutcome:
    """What was adopted or released."""

    outcome: Outcome = field(default_factory=Outcome)
    released: t.List[_Dict] = field(default_factory=list)
    """The released identities, in the form that adoption takes."""
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    """VMs that are left out."""


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Optional[t.Sequence[t.Mapping[str, t.Any]]],
    state: str,
    forget: bool,
    pool: t.Optional[str],
    check_mode: bool,
    continue_on_refusal: bool = False,
    approval: t.Optional[Approval] = None,
) -> IdentityOutcome:
    """Adopt the disks of the named VMs, or of all, or release them (state C(released)), or predict it.

    forget: also remove the saved copies of a release.
    """
    policy = Policy(continue_on_refusal=continue_on_refusal, approval=approval)
    outcome = Outcome()
    task = _IdentityTask(raw, state, forget, Context(zfs, hypervisor, policy, check_mode, pool), outcome)
    task.run()
    return IdentityOutcome(outcome, task.released, task.skipped)


class _IdentityTask(Task):
    """No plan needs space or another VM's disk. No journal is needed: a release saves the identity on the volume."""

    journal = False
    admits = False

    # Any: entries of a module are of several types.
    def __init__(
        self,
        raw: t.Optional[t.Sequence[t.Mapping[str, t.Any]]],
        state: str,
        forget: bool,
        context: Context,
        outcome: Outcome,
    ) -> None:
        super().__init__(context, outcome)
        self._raw = raw
        self._state = state
        self._forget = forget
        self._asked: t.Dict[str, str] = {}
        self.released: t.List[_Dict] = []
        self.skipped: t.List[t.Dict[str, str]] = []

    def performers(self) -> Performers:
        return {**super().performers(), **PERFORM_ADOPTION}

    def plan(self, host: Host) -> t.List[VmPlan]:
        wanted = _wanted(host, self._raw, self._state, self.outcome)
        self.skipped = skipped(host) if self._raw is None else []
        self._asked = {vm.config.uuid: spec.vm for spec, vm in wanted}
        if self._state == "released":
            return self._releases(host, [vm for _spec, vm in wanted])
        if self._forget:
            self.outcome.problems.append(Problem("InvalidArgument", "forget works only with state=released"))
            return []
        return [plan_adoption(host, vm, spec) for spec, vm in wanted]

    def _releases(self, host: Host, vms: t.Sequence[Vm]) -> t.List[VmPlan]:
        """Plan a release. A VM with the intent of an interrupted run gets no plan, only a problem."""
        self.outcome.problems += _unknown(host, None if self._raw is None else [vm.config.uuid for vm in vms])
        interrupted = {uuid for (_pool, uuid), entry in host.intents.items() if not _is_settled(host, uuid, entry)}
        plans = [plan_release(host, vm, self._forget) for vm in vms]
        return [plan for plan in plans if plan.problems or plan.vm not in interrupted]

    def warnings(self, host: Host, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[str]:
        """Return warnings about all interrupted runs, because this module completes none, and about VMs left out."""
        return [*recovery.warnings(host, ()), *lines(self.skipped, "is left out")]

    def shown(self, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[VmPlan]:
        """Return the plans that are carried out. Remember released identities for the result."""
        if self._state == "released":
            self.released = [entry for entry in (released(plan.before) for plan in good) if entry is not None]
        return list(good)

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        if vm is not None:
            self.outcome.vms.append(report.plan_result(plan, vm, self._asked[plan.vm], not self.check_mode))

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        if vm is None:
            return []
        planned_facts, actual_facts = _facts(plan.after), _facts(vm)
        return (
            report.differences(plan.after, vm)
            + [
                f"properties of {name}: planned {', '.join(facts)}, found {', '.join(actual_facts.get(name, ()))}"
                for name, facts in planned_facts.items()
                if facts != actual_facts.get(name)
            ]
            + [f"{name} still has {', '.join(remaining)}" for name, remaining in _stamps_left(plan, vm)]
        )


def _stamps_left(plan: VmPlan, vm: Vm) -> t.Iterator[t.Tuple[str, t.List[str]]]:
    """Yield datasets that still have stamps which the plan removes, with these stamps."""
    before, after = ({d.name: d.user for d in (one.root, *one.volumes)} for one in (plan.before, plan.after))
    for dataset in vm.volumes:
        removed = {*before.get(dataset.name, ())} - {*after.get(dataset.name, ())}
        remaining = [key for key in report.VOLATILE if key in removed and key in dataset.user]
        if remaining:
            yield dataset.name, remaining


def _wanted(
    host: Host, raw: t.Optional[t.Sequence[t.Mapping[str, t.Any]]], state: str, outcome: Outcome
) -> t.List[t.Tuple[AdoptionDeclaration, Vm]]:
    """Return the valid declarations with their VMs. Add problems of the others to the outcome."""
    if raw is None:
        return [(AdoptionDeclaration(vm.config.alias or vm.config.uuid), vm) for vm in host.vms]
    result: t.List[t.Tuple[AdoptionDeclaration, Vm]] = []
    seen: t.Set[str] = set()
    for entry in raw:
        spec, problems = parse_adoption(entry, state)
        vm = find_vm(host, spec.vm) if spec.vm else None
        if isinstance(vm, Problem):
            problems.append(vm)
        elif vm is not None and vm.config.uuid in seen:
            problems.append(Problem("InvalidArgument", "listed twice", spec.vm))
            result = [(other, other_vm) for other, other_vm in result if other_vm is not vm]
        elif vm is not None:
            seen.add(vm.config.uuid)
            if not problems:
                result.append((spec, vm))
        outcome.problems += problems
    return result


def _unknown(host: Host, asked: t.Optional[t.Collection[str]]) -> t.List[Problem]:
    """Return problems of a release: detached disks that nothing would identify, and interrupted runs."""
    vms = {vm.config.uuid: vm for vm in host.vms}
    result = []
    for disk in host.detached if asked is None else ():
        if disk.vm not in vms:  # a detached disk of a VM is a problem of the VM's plan
            result.append(Problem("InUse", would_become_unknown(disk), disk.vm, disk.label))
    for (pool, uuid), intent in sorted(host.intents.items()):
        if (asked is None or uuid in asked) and not _is_settled(host, uuid, intent):
            is_ours = intent is not None and intent.host == host.name
            message = (
                interrupted_run_text(intent, vms.get(uuid))
                if intent and is_ours
                else f"an interrupted run left its record in pool {pool}"
            )
            result.append(Problem("InUse", message, vms[uuid].label if uuid in vms else uuid))
    return result


def _is_settled(host: Host, uuid: str, entry: t.Optional[Intent]) -> bool:
    """Return whether an entry is about a rollback of which nothing is left to do."""
    vm = next((one for one in host.vms if one.config.uuid == uuid), None)
    return entry is not None and bool(entry.rollback) and is_over(host, vm, entry)


def _facts(vm: Vm) -> t.Dict[str, t.Tuple[str, ...]]:
    """Return our properties of each dataset, without those that a clock sets."""
    return {
        d.name: tuple(sorted(f"{key}={value}" for key, value in d.user.items() if key not in report.VOLATILE))
        for d in (vm.root, *vm.volumes)
    }


def _release(step: t.Union[ReleaseDisk, WritePackage], tools: Tools, change: Change) -> None:
    """Write facts. The saved copy of an identity is written before the first of its properties is removed."""
    saved = {key: value for key, value in step.facts.items() if key == released_identity.RELEASED_PROPERTY and value}
    if saved:
        tools.zfs.set_facts(step.dataset, saved)
        if dict(tools.zfs.local_facts(step.dataset, [released_identity.RELEASED_PROPERTY])) != saved:
            text = f"the identity of {step.dataset} was not saved, although zfs reported no error; nothing is removed"
            raise FlexdiskError("NotApplied", text)
    tools.zfs.set_facts(step.dataset, {key: value for key, value in step.facts.items() if key not in saved})


PERFORM_ADOPTION: Performers = {ReleaseDisk: _release, WritePackage: _release}
