# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of the module vm: validate, observe, plan, admit, apply, read again."""

from __future__ import annotations

import contextlib
import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.desired import Policy, Wish
from ..model.errors import Collector, FlexdiskError, Problem
from ..model.vm import Vm, VmConfig
from ..plan import recovery
from ..plan.creation import Import, check_import, decide, image_import, plan_creation, with_image
from ..plan.planner import admitted, find_vm
from ..plan.steps import VmPlan
from ..plan.vm import addressed, machine, plan_change, plan_deletion, plan_remains
from ..rules import packages
from ..rules.inventory import Host
from ..spec.packages import parse_packages
from ..spec.vm import parse_vm
from ..zfs.commands import Zfs
from . import report
from .apply_vm import VERBS
from .journal import Intents
from .observe import observe
from .vm_disks import Outcome, apply_plans, by_uuid, look_again, told

_Raw = t.Mapping[str, t.Any]


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[_Raw],
    raw_packages: t.Sequence[_Raw],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> Outcome:
    """Makes the VMs so, or predicts it. pool is where new ones are made."""
    outcome = Outcome()
    known, outcome.problems = parse_packages(raw_packages)
    wrong_packages = bool(outcome.problems)
    own = hypervisor.capabilities.of_new_vms
    parsed = [parse_vm(entry, known) for entry in raw]
    wishes = [(wish, [*problems, *packages.foreign(wish, own)]) for wish, problems in parsed]
    outcome.problems += [problem for _wish, problems in wishes for problem in problems]
    if wrong_packages or (outcome.problems and not policy.continue_on_refusal):
        return outcome
    place = pool or hypervisor.capabilities.default_pool
    host = observe(zfs, hypervisor, more=place)
    planner = _Planner(host, hypervisor, policy, place)
    plans = planner.plans(wishes)
    outcome.problems += planner.problems
    outcome.warnings = recovery.warnings(host, [plan.vm for plan in plans])
    good = [plan for plan in plans if not plan.problems]
    plans, ordered, lacking = admitted(host, good, policy.continue_on_refusal)
    outcome.problems += lacking
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    outcome.tell(plans, host)
    outcome.warnings += [warning for plan in plans for warning in plan.warnings]
    after: t.Optional[t.Mapping[str, Vm]] = {plan.vm: plan.after for plan in plans}
    if not check_mode and any(plan.steps for plan in plans):
        intents = Intents(zfs, host)
        apply_plans(zfs, hypervisor, host, ordered, policy, outcome, intents, VERBS)
        with contextlib.suppress(FlexdiskError):
            intents.tidy()
        plans, now = look_again(zfs, hypervisor, host, None, plans, outcome, place)
        after = None if now is None else by_uuid(now)
    if after is not None:
        for plan in plans:
            _tell(plan, after, planner.asked[plan.vm], hypervisor.capabilities.live, check_mode, outcome)
    return outcome


class _Planner:
    """Plans for one wish after the other, no VM twice. asked has the words of the task by the VM's uuid."""

    def __init__(self, host: Host, hypervisor: Hypervisor, policy: Policy, pool: str) -> None:
        self._host = host
        self._hypervisor = hypervisor
        self._policy = policy
        self._pool = pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
        self._seen: t.Dict[str, str] = {}
        self.asked: t.Dict[str, str] = {}
        self._twice: t.Set[str] = set()
        self.problems: t.List[Problem] = []

    def plans(self, wishes: t.Sequence[t.Tuple[Wish, t.Sequence[Problem]]]) -> t.List[VmPlan]:
        """Plans, those that are refused too; a wish that is wrong by itself has none, and neither has its VM."""
        found = [self._plan(wish, bool(problems)) for wish, problems in wishes]
        plans = [plan for plan in found if plan is not None and not {plan.vm, plan.name} & self._twice]
        self.problems += [problem for plan in plans for problem in plan.problems]
        return plans

    def _plan(self, wish: Wish, wrong: bool) -> t.Optional[VmPlan]:
        """None where nothing is to be planned, or problems has why it cannot be."""
        found = self._find(wish)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        uuid = found.uuid if isinstance(found, VmConfig) else found.config.uuid if found else wish.uuid or wish.vm
        if uuid in self._seen:
            self.problems.append(Problem("InvalidArgument", "listed twice, also as %s" % self._seen[uuid], wish.vm))
            self._twice.add(uuid)
            return None
        self._seen[uuid] = wish.vm
        plan = None if wrong else self._planned(found, wish)
        if plan is not None:
            self.asked[plan.vm] = wish.vm
        return plan

    def _planned(self, found: t.Union[Vm, VmConfig, None], wish: Wish) -> t.Optional[VmPlan]:
        capabilities = self._hypervisor.capabilities
        if isinstance(found, VmConfig):
            return plan_remains(self._host, found)
        if found is None:
            return None if wish.state == "absent" else self._creation(wish)
        if wish.state == "absent":
            return plan_deletion(self._host, found, wish, capabilities)
        return plan_change(self._host, found, wish, self._policy, capabilities)

    def _find(self, wish: Wish) -> t.Union[Vm, VmConfig, Problem, None]:
        """The VM, the configuration that is left of it, why it cannot be used, or None where there is none."""
        config = addressed(self._host, wish)
        if config is None or isinstance(config, Problem):
            return config
        if wish.state == "absent" and self._is_remains(config):
            return config
        return find_vm(self._host, config.uuid)

    def _is_remains(self, config: VmConfig) -> bool:
        """A configuration whose dataset has gone, and whose disks lie nowhere else."""
        host = self._host
        gone = not any(entry.volume in host.datasets for entry in config.disks)
        return config in host.unlinked and config.state == "stopped" and gone and bool(host.geometry)

    def _creation(self, wish: Wish) -> t.Optional[VmPlan]:
        found = Collector(wish.vm)
        capabilities = self._hypervisor.capabilities
        new = decide(self._host, wish, self._pool, capabilities, found)
        plan = None
        if new is not None and not found.problems:
            draft = found.attempt("", lambda: self._hypervisor.draft(new))
            image = found.attempt("", lambda: self._import(wish, new.pool))
            hidden = found.attempt("", lambda: self._hypervisor.hidden_disks(wish.image)) if wish.image else []
            host = self._host if image is None else with_image(self._host, image)
            if not found.problems:
                plan = plan_creation(host, new, wish, draft, hidden, image, capabilities, found)
        if plan is None:
            self.problems += found.problems
        return plan

    def _import(self, wish: Wish, pool: str) -> t.Optional[Import]:
        """The image that is to be imported first, None where it is there or in no file."""
        volume = "%s/%s" % (pool, wish.image)
        if not wish.image_file or volume + "@final" in self._host.datasets:
            return None
        check_import(self._host, volume)
        file = self._hypervisor.image_file(wish.image_file)
        return image_import(self._host, volume, file, self._hypervisor.capabilities)


def _tell(
    plan: VmPlan, after: t.Mapping[str, Vm], asked: str, live: t.Collection[str], check_mode: bool, outcome: Outcome
) -> None:
    """The result of one VM as it is now, which must be what was planned."""
    vm = after.get(plan.vm)
    undone = outcome.failure is not None
    gone = not plan.after.there
    there = vm is not None and (undone or not gone)
    shown = vm if vm is not None and there else plan.after
    outcome.vms.append({**report.plan_result(plan, shown, asked, not check_mode, live), **machine(shown)})
    if undone or not plan.steps or check_mode:
        return
    if gone:
        wrong = ["it still exists"] if vm is not None else []
    elif vm is None:
        wrong = ["it does not exist"]
    else:
        wrong = report.differences(plan.after, vm)
        wanted, have = machine(plan.after), machine(vm)
        wrong += ["%s: planned %r, found %r" % (k, wanted[k], have[k]) for k in wanted if wanted[k] != have[k]]
    if wrong:
        error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
        outcome.failure = told(plan, error, "read again")
