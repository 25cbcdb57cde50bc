# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of the module vm: VMs are created, changed and deleted."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...hypervisor.protocol import Hypervisor, whole_vms
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
    """Change the VMs as declared, or predict it.

    Args:
        pool: where new VMs are created.
        arriving: the UUID of a VM that comes from another host. All other tasks are refused while it is moved.
        coming: its disks, as if they were detached here already.
        shell: the declaration without disks with which this VM is created first. In check mode only.
    """
    outcome = Outcome()
    known, outcome.problems = parse_packages(raw_packages)
    wrong_packages = bool(outcome.problems)
    options_of_driver = hypervisor.capabilities.new_vm_options
    parsed = [parse_vm(entry, known) for entry in raw]
    declarations = [
        (declared, [*problems, *packages.foreign(declared, options_of_driver)]) for declared, problems in parsed
    ]
    outcome.problems += [problem for _declared, problems in declarations for problem in problems]
    if wrong_packages or (outcome.problems and not policy.continue_on_refusal):
        return outcome
    default_pool = pool or hypervisor.capabilities.default_pool
    context = Context(zfs, hypervisor, policy, check_mode, extra_pool=default_pool)
    shell_declaration = parse_vm(shell, known)[0] if shell is not None and check_mode else None
    return _VmTask(declarations, (arriving, coming, shell_declaration), context, outcome).run()


class _VmTask(Task):
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
        shell_plans = self._plans(host, [(shell, ())])
        with_shell = replace(host, vms=(*host.vms, *(plan.after for plan in shell_plans)))
        plans = self._plans(with_shell, self._declarations) if shell_plans else []
        return [
            replace(plan, before=shell_plan.before, steps=(*shell_plan.steps, *plan.steps))
            for shell_plan, plan in zip(shell_plans, plans)
        ]

    def _plans(self, host: Host, declarations: _Declarations) -> t.List[VmPlan]:
        planner = _Planner(host, self.hypervisor, self.policy, self.extra_pool)
        plans = planner.plans(declarations)
        self._asked = planner.asked
        self.outcome.problems += planner.problems
        return plans

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        is_deleted = not plan.after.exists and self.outcome.failure is None
        reported = plan.after if vm is None or is_deleted else vm
        live = self.hypervisor.capabilities.live
        result = report.plan_result(plan, reported, self._asked[plan.vm], not self.check_mode, live)
        self.outcome.vms.append(
            {**result, **machine(reported), "takes": self._takes(reported) if reported.exists else {}}
        )

    def _takes(self, vm: Vm) -> t.Dict[str, int]:
        """Return the MiB that the quota law reserves for the VM, by pool, rounded up."""
        pool = vm.config.pool
        return {pool: -(-settled_quota(vm, self._geometry[pool]) // MIB)}

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        if not plan.after.exists:
            return [] if vm is None else ["it still exists"]
        if vm is None:
            return ["it does not exist"]
        wanted, actual = machine(plan.after), machine(vm)
        machine_differences = [
            f"{key}: planned {wanted[key]!r}, found {actual[key]!r}" for key in wanted if wanted[key] != actual[key]
        ]
        return report.differences(plan.after, vm) + machine_differences


class _Planner:
    """Plans one declaration after the other, and no VM twice. asked: the names of VMs in the task, by UUID."""

    def __init__(self, host: Host, hypervisor: Hypervisor, policy: Policy, pool: str) -> None:
        self._host = host
        self._hypervisor = hypervisor
        self._policy = policy
        self._pool = pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
        self._names_by_uuid: t.Dict[str, str] = {}
        self.asked: t.Dict[str, str] = {}
        self._listed_twice: t.Set[str] = set()
        self.problems: t.List[Problem] = []

    def plans(self, declarations: _Declarations) -> t.List[VmPlan]:
        """Return the plans, also refused ones. An invalid declaration gets no plan, and neither does its VM."""
        plans = [self._plan(declared, bool(problems)) for declared, problems in declarations]
        return [plan for plan in plans if plan is not None and not {plan.vm, plan.name} & self._listed_twice]

    def _plan(self, declared: VmDeclaration, wrong: bool) -> t.Optional[VmPlan]:
        """Return the plan of a declaration, None if there is nothing to plan, or a problem was added."""
        target = self._find(declared)
        if isinstance(target, Problem):
            self.problems.append(target)
            return None
        uuid = (
            target.uuid
            if isinstance(target, VmConfig)
            else target.config.uuid
            if target
            else declared.uuid or declared.vm
        )
        if uuid in self._names_by_uuid:
            self.problems.append(
                Problem("InvalidArgument", f"listed twice, also as {self._names_by_uuid[uuid]}", declared.vm)
            )
            self._listed_twice.add(uuid)
            return None
        self._names_by_uuid[uuid] = declared.vm
        plan = None if wrong else self._planned(target, declared)
        if plan is not None:
            self.asked[plan.vm] = declared.vm
        return plan

    def _planned(self, target: t.Union[Vm, VmConfig, None], declared: VmDeclaration) -> t.Optional[VmPlan]:
        capabilities, absent = self._hypervisor.capabilities, declared.state == "absent"
        config = target.config if isinstance(target, Vm) else target
        unfinished = self._unfinished(config) if config is not None else None
        if unfinished is not None and not absent and unfinished.is_called(declared.vm):
            return self._creation(replace(declared, uuid=unfinished.uuid), unfinished)
        if isinstance(target, VmConfig):
            return plan_remains(self._host, target)
        if target is None:
            remains = leftovers_by_name(self._host, declared.vm) if absent else None
            if remains is not None:
                return plan_left(self._host, remains, declared.vm)
            return plan_ended(self._host, declared) if absent else self._creation(declared)
        if absent:
            return plan_deletion(self._host, target, declared, capabilities, unfinished)
        plan = plan_change(self._host, target, declared, self._policy, capabilities)
        return plan if self._has_memory(plan, target, declared.vm) else None

    def _has_memory(self, plan: VmPlan, vm: Vm, name: str) -> bool:
        """Return whether the host has the memory that a VM gets. Otherwise only its next start would fail."""
        wanted_mib = max((step.memory_mib or 0 for step in plan.steps if isinstance(step, SetProperties)), default=0)
        if wanted_mib <= (vm.config.memory or 0):
            return True
        host_mib = self._hypervisor.resources().memory
        if wanted_mib > host_mib:
            text = "memory %s is more than the host has, %s" % render_apart(wanted_mib * MIB, host_mib * MIB)
            self.problems.append(Problem("InsufficientMemory", text, name))
        return wanted_mib <= host_mib

    def _find(self, declared: VmDeclaration) -> t.Union[Vm, VmConfig, Problem, None]:
        """Return the VM, its remaining configuration, a problem why it cannot be used, or None if it does not exist."""
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
        """Return whether only the configuration of a VM is left, without its dataset and disks."""
        host = self._host
        named = [name for name in uses(config) if name[:1] != "/"]
        is_gone = not any(name in host.datasets or not host.reads(name) for name in named)
        is_down = config.state == "stopped" or self._unfinished(config) is not None
        return config in host.unlinked and is_down and is_gone and bool(host.geometry)

    def _unfinished(self, config: VmConfig) -> t.Optional[Leftovers]:
        """Return what is left of a VM that a task of this host was creating or deleting, None of any other VM."""
        if not is_unfinished(config) or config.frozen or not config.pool:
            return None
        return leftovers_of(self._host, config.pool, config.uuid)

    def _creation(self, declared: VmDeclaration, unfinished: t.Optional[Leftovers] = None) -> t.Optional[VmPlan]:
        """Plan a new VM. unfinished: what an interrupted run has created of it."""
        problems = Problems(declared.vm)
        capabilities = self._hypervisor.capabilities
        host, pool = self._host, self._pool
        if unfinished is not None:
            host, pool = without(host, unfinished.uuid), unfinished.pool
        new = decide(host, declared, pool, capabilities, problems, unfinished)
        plan = None
        if new is not None and not problems:
            draft = problems.attempt("", lambda: whole_vms(self._hypervisor).draft(new))
            image = problems.attempt("", lambda: self._import(declared, new.pool))
            hidden = (
                problems.attempt("", lambda: whole_vms(self._hypervisor).hidden_disks(declared.image))
                if declared.image
                else []
            )
            host = host if image is None else with_image(host, image)
            if not problems:
                plan = plan_creation(host, new, declared, draft, hidden, image, capabilities, problems, unfinished)
        if plan is None:
            self.problems += problems
        return plan

    def _import(self, declared: VmDeclaration, pool: str) -> t.Optional[Import]:
        """Return the image to import first, None if it exists, or no file is given."""
        volume = image_dataset(pool, declared.image)
        if not declared.image_file or final(volume) in self._host.datasets:
            return None
        check_import(self._host, volume)
        file = whole_vms(self._hypervisor).image_file(declared.image_file)
        return image_import(self._host, volume, file, self._hypervisor.capabilities)
