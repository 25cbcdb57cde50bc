# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of the module vm: VMs are created, changed and deleted."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Policy, VmDeclaration
from ...model.errors import Problem, Problems
from ...model.sizes import MIB, render_apart
from ...model.vm import Disk, Vm, VmConfig
from ...parse.packages import parse_packages
from ...parse.vm import parse_vm
from ...plan.creation import Import, check_import, decide, image_import, plan_creation, with_image
from ...plan.planner import find_vm
from ...plan.steps import VmPlan
from ...plan.vm import addressed, machine, plan_change, plan_deletion, plan_ended, plan_left, plan_remains
from ...plan.vm_steps import SetProperties
from ...rules import packages
from ...rules.inventory import Host, moved_in, without
from ...rules.layout import final, image_dataset
from ...rules.reservation import PoolGeometry
from ...rules.space import settled_quota
from ...rules.unfinished import Leftovers, is_unfinished, leftovers_by_name, leftovers_of
from ...rules.usage import uses
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task
from ..steps.perform import Performers

_Raw = t.Mapping[str, t.Any]
_Declarations = t.Sequence[t.Tuple[VmDeclaration, t.Sequence[Problem]]]
_Arriving = t.Tuple[str, t.Sequence[Disk], t.Optional[VmDeclaration]]


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[_Raw],
    raw_packages: t.Sequence[_Raw],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
    arriving: str = "",
    coming: t.Sequence[Disk] = (),
    shell: t.Optional[_Raw] = None,
) -> Outcome:
    """Makes the VMs as declared, or predicts it. pool is where new VMs are made. arriving: the uuid of a VM that comes
    from another host; for all other tasks it is being moved. coming: its disks, as if they were detached here already.
    shell: how this VM is made first if it is not here, without its disks; that is only predicted.
    """
    outcome = Outcome()
    known, outcome.problems = parse_packages(raw_packages)
    wrong_packages = bool(outcome.problems)
    own = hypervisor.capabilities.new_vm_options
    parsed = [parse_vm(entry, known) for entry in raw]
    declarations = [(declared, [*problems, *packages.foreign(declared, own)]) for declared, problems in parsed]
    outcome.problems += [problem for _declared, problems in declarations for problem in problems]
    if wrong_packages or (outcome.problems and not policy.continue_on_refusal):
        return outcome
    place = pool or hypervisor.capabilities.default_pool
    context = Context(zfs, hypervisor, policy, check_mode, more=place)
    first = parse_vm(shell, known)[0] if shell is not None and check_mode else None
    return _Vms(declarations, (arriving, coming, first), context, outcome).run()


class _Vms(Task):
    def __init__(self, declarations: _Declarations, arriving: _Arriving, context: Context, outcome: Outcome) -> None:
        super().__init__(context, outcome)
        self._arriving = arriving
        self._declarations = declarations
        self._asked: t.Mapping[str, str] = {}
        self._geometry: t.Mapping[str, PoolGeometry] = {}

    def performers(self) -> Performers:
        from ..steps.performers_of_vms import PERFORM_OF_VMS

        return PERFORM_OF_VMS

    def plan(self, host: Host) -> t.List[VmPlan]:
        uuid, coming, shell = self._arriving
        host = moved_in(host, uuid, coming) if uuid else host
        self._geometry = host.geometry
        if shell is None or any(config.uuid == uuid for config in host.configs):
            return self._plans(host, self._declarations)
        first = self._plans(host, [(shell, ())])
        with_shell = replace(host, vms=(*host.vms, *(plan.after for plan in first)))
        plans = self._plans(with_shell, self._declarations) if first else []
        return [replace(plan, before=made.before, steps=(*made.steps, *plan.steps)) for made, plan in zip(first, plans)]

    def _plans(self, host: Host, declarations: _Declarations) -> t.List[VmPlan]:
        planner = _Planner(host, self.hypervisor, self.policy, self.more)
        plans = planner.plans(declarations)
        self._asked = planner.asked
        self.outcome.problems += planner.problems
        return plans

    def tell(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        gone = not plan.after.exists and self.outcome.failure is None
        shown = plan.after if vm is None or gone else vm
        live = self.hypervisor.capabilities.live
        result = report.plan_result(plan, shown, self._asked[plan.vm], not self.check_mode, live)
        self.outcome.vms.append({**result, **machine(shown), "takes": self._takes(shown) if shown.exists else {}})

    def _takes(self, vm: Vm) -> t.Dict[str, int]:
        """MiB that the quota law reserves for the VM, by pool, rounded up."""
        pool = vm.config.pool
        return {pool: -(-settled_quota(vm, self._geometry[pool]) // MIB)}

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        if not plan.after.exists:
            return [] if vm is None else ["it still exists"]
        if vm is None:
            return ["it does not exist"]
        wanted, have = machine(plan.after), machine(vm)
        odd = [f"{key}: planned {wanted[key]!r}, found {have[key]!r}" for key in wanted if wanted[key] != have[key]]
        return report.differences(plan.after, vm) + odd


class _Planner:
    """Plans one declaration after the other, and no VM twice. asked has the VM's name in the task by uuid."""

    def __init__(self, host: Host, hypervisor: Hypervisor, policy: Policy, pool: str) -> None:
        self._host = host
        self._hypervisor = hypervisor
        self._policy = policy
        self._pool = pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
        self._seen: t.Dict[str, str] = {}
        self.asked: t.Dict[str, str] = {}
        self._twice: t.Set[str] = set()
        self.problems: t.List[Problem] = []

    def plans(self, declarations: _Declarations) -> t.List[VmPlan]:
        """Plans, refused ones too. A declaration that is wrong by itself has no plan, and neither has its VM."""
        found = [self._plan(declared, bool(problems)) for declared, problems in declarations]
        return [plan for plan in found if plan is not None and not {plan.vm, plan.name} & self._twice]

    def _plan(self, declared: VmDeclaration, wrong: bool) -> t.Optional[VmPlan]:
        """The plan of a declaration; None if there is nothing to plan, or if problems has the reason."""
        found = self._find(declared)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        uuid = (
            found.uuid if isinstance(found, VmConfig) else found.config.uuid if found else declared.uuid or declared.vm
        )
        if uuid in self._seen:
            self.problems.append(Problem("InvalidArgument", f"listed twice, also as {self._seen[uuid]}", declared.vm))
            self._twice.add(uuid)
            return None
        self._seen[uuid] = declared.vm
        plan = None if wrong else self._planned(found, declared)
        if plan is not None:
            self.asked[plan.vm] = declared.vm
        return plan

    def _planned(self, found: t.Union[Vm, VmConfig, None], declared: VmDeclaration) -> t.Optional[VmPlan]:
        capabilities, absent = self._hypervisor.capabilities, declared.state == "absent"
        config = found.config if isinstance(found, Vm) else found
        unfinished = self._unfinished(config) if config is not None else None
        if unfinished is not None and not absent and unfinished.is_called(declared.vm):
            return self._creation(replace(declared, uuid=unfinished.uuid), unfinished)
        if isinstance(found, VmConfig):
            return plan_remains(self._host, found)
        if found is None:
            left = leftovers_by_name(self._host, declared.vm) if absent else None
            if left is not None:
                return plan_left(self._host, left, declared.vm)
            return plan_ended(self._host, declared) if absent else self._creation(declared)
        if absent:
            return plan_deletion(self._host, found, declared, capabilities, unfinished)
        plan = plan_change(self._host, found, declared, self._policy, capabilities)
        return plan if self._has_memory(plan, found, declared.vm) else None

    def _has_memory(self, plan: VmPlan, vm: Vm, name: str) -> bool:
        """Whether the host has the memory that a VM gets. Otherwise only its next start would show that."""
        most = max((step.memory_mib or 0 for step in plan.steps if isinstance(step, SetProperties)), default=0)
        if most <= (vm.config.memory or 0):
            return True
        there = self._hypervisor.resources().memory
        if most > there:
            text = "memory %s is more than the host has, %s" % render_apart(most * MIB, there * MIB)
            self.problems.append(Problem("InsufficientMemory", text, name))
        return most <= there

    def _find(self, declared: VmDeclaration) -> t.Union[Vm, VmConfig, Problem, None]:
        """The VM, its remaining configuration, the problem why it cannot be used, or None if it does not exist."""
        config = addressed(self._host, declared)
        if config is None or isinstance(config, Problem):
            return config
        if declared.state == "absent" and self._is_remains(config):
            return config
        unfinished = self._unfinished(config) if config in self._host.unlinked else None
        if unfinished is not None and unfinished.is_called(declared.vm) and declared.state != "absent":
            return config
        return find_vm(self._host, config.uuid)

    def _is_remains(self, config: VmConfig) -> bool:
        """Whether the VM's dataset has gone, and its disks lie nowhere else."""
        host = self._host
        named = [name for name in uses(config) if name[:1] != "/"]
        gone = not any(name in host.datasets or not host.reads(name) for name in named)
        ended = config.state == "stopped" or self._unfinished(config) is not None
        return config in host.unlinked and ended and gone and bool(host.geometry)

    def _unfinished(self, config: VmConfig) -> t.Optional[Leftovers]:
        """What there is of a VM that a task of this host was making or deleting; None of any other."""
        if not is_unfinished(config) or config.frozen or not config.pool:
            return None
        return leftovers_of(self._host, config.pool, config.uuid)

    def _creation(self, declared: VmDeclaration, unfinished: t.Optional[Leftovers] = None) -> t.Optional[VmPlan]:
        """The plan of a new VM. unfinished: what the hypervisor has made of it before."""
        problems = Problems(declared.vm)
        capabilities = self._hypervisor.capabilities
        host, pool = self._host, self._pool
        if unfinished is not None:
            host, pool = without(host, unfinished.uuid), unfinished.pool
        new = decide(host, declared, pool, capabilities, problems, unfinished)
        plan = None
        if new is not None and not problems:
            draft = problems.attempt("", lambda: self._hypervisor.draft(new))
            image = problems.attempt("", lambda: self._import(declared, new.pool))
            hidden = (
                problems.attempt("", lambda: self._hypervisor.hidden_disks(declared.image)) if declared.image else []
            )
            host = host if image is None else with_image(host, image)
            if not problems:
                plan = plan_creation(host, new, declared, draft, hidden, image, capabilities, problems, unfinished)
        if plan is None:
            self.problems += problems
        return plan

    def _import(self, declared: VmDeclaration, pool: str) -> t.Optional[Import]:
        """The image to import first; None if it is there, or is in no file."""
        volume = image_dataset(pool, declared.image)
        if not declared.image_file or final(volume) in self._host.datasets:
            return None
        check_import(self._host, volume)
        file = self._hypervisor.image_file(declared.image_file)
        return image_import(self._host, volume, file, self._hypervisor.capabilities)
