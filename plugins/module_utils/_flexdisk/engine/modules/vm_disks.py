# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of vm_disks: every VM of the list gets the disks that are declared for it."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Policy, VmDisksDeclaration
from ...model.errors import Problem
from ...model.vm import Vm
from ...parse.vm_disks import parse_vm_disks
from ...plan.planner import find_vm, plan_vm
from ...plan.steps import VmPlan
from ...rules.inventory import Host
from ...rules.slots import slot_problems, with_places
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task


def converge(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[t.Mapping[str, t.Any]],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> Outcome:
    """Change the disks as declared, or predict it. raw: the entries of the module, checked by Ansible."""
    return _VmDisksTask(raw, Context(zfs, hypervisor, policy, check_mode, pool)).run()


class _VmDisksTask(Task):
    # Any: entries of a module are of several types.
    def __init__(self, raw: t.Sequence[t.Mapping[str, t.Any]], context: Context) -> None:
        super().__init__(context, Outcome())
        self._raw = raw
        self._asked: t.Dict[str, str] = {}

    def plan(self, host: Host) -> t.List[VmPlan]:
        wanted = _declarations(host, self._raw, self.outcome)
        capabilities = self.hypervisor.capabilities
        plans = [(spec, plan_vm(host, vm, spec, self.policy, capabilities)) for spec, vm in wanted]
        self._asked = {plan.vm: spec.vm for spec, plan in plans}
        return [plan for _spec, plan in plans]

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        if vm is not None:
            live = self.hypervisor.capabilities.live
            self.outcome.vms.append(report.plan_result(plan, vm, self._asked[plan.vm], not self.check_mode, live))


def _declarations(
    host: Host, raw: t.Sequence[t.Mapping[str, t.Any]], outcome: Outcome
) -> t.List[t.Tuple[VmDisksDeclaration, Vm]]:
    """Return the valid declarations with their VMs. Add problems of the others to the outcome."""
    result: t.List[t.Tuple[VmDisksDeclaration, Vm]] = []
    seen: t.Dict[str, str] = {}
    for entry in raw:
        spec, problems = parse_vm_disks(entry)
        target = find_vm(host, spec.vm, spec.adopt) if spec.vm else None
        if isinstance(target, Problem):
            problems.append(target)
        elif target is not None and target.config.uuid in seen:
            problems.append(Problem("InvalidArgument", f"listed twice, also as {seen[target.config.uuid]}", spec.vm))
            result = [(other, vm) for other, vm in result if vm is not target]
        elif target is not None:
            seen[target.config.uuid] = spec.vm
            spec = with_places(spec, target.config.pci)
            problems += slot_problems(spec, target.config)
        outcome.problems += problems
        if not problems and isinstance(target, Vm):
            result.append((spec, target))
    return result
