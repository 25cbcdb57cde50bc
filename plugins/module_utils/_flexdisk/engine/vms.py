# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of the module vm: validate, observe, plan, admit, apply, read again."""

from __future__ import annotations

import contextlib
import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.desired import Policy, Wish
from ..model.errors import FlexdiskError, Problem
from ..model.vm import Vm, VmConfig
from ..plan import recovery
from ..plan.creation import Import, check_import, decide, image_import, plan_creation, with_image
from ..plan.planner import admit, find_vm, share
from ..plan.steps import VmPlan
from ..plan.vms import machine, plan_change, plan_deletion, plan_remains
from ..rules import packages
from ..rules.declaration import Collector
from ..rules.linking import Host
from ..zfs.commands import Zfs
from . import report
from .converge import Outcome, apply_plans, look_again, told
from .intent import Intents
from .observe import observe
from .whole import VERBS

_Dict = t.Dict[str, t.Any]
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
    known, outcome.problems = packages.parse_packages(raw_packages)
    wishes = [packages.parse_wish(entry, known) for entry in raw]
    outcome.problems += [problem for _wish, problems in wishes for problem in problems]
    own = hypervisor.capabilities.of_new_vms
    outcome.problems += [problem for wish, _none in wishes for problem in packages.foreign(wish, own)]
    if outcome.problems:
        return outcome
    place = pool or hypervisor.capabilities.default_pool
    host = observe(zfs, hypervisor, more=place)
    planner = _Planner(host, hypervisor, policy, place)
    plans = [plan for plan in map(planner.plan, (wish for wish, _none in wishes)) if plan is not None]
    outcome.problems += planner.problems + [problem for plan in plans for problem in plan.problems]
    plans, lacking = share(plans)
    ordered, short = admit(host, plans)
    outcome.problems += lacking + short
    outcome.warnings = recovery.warnings(host, [plan.vm for plan in plans])
    if outcome.problems:
        return outcome
    outcome.changed = any(plan.changed for plan in plans)
    outcome.diff = report.diff_text(plans)
    outcome.warnings += [warning for plan in plans for warning in plan.warnings]
    after: t.Optional[t.Mapping[str, Vm]] = {plan.vm: plan.after for plan in plans}
    if not check_mode and any(plan.steps for plan in plans):
        intents = Intents(zfs, host)
        apply_plans(zfs, hypervisor, host, ordered, policy, outcome, intents, VERBS)
        with contextlib.suppress(FlexdiskError):
            intents.tidy()
        after = look_again(zfs, hypervisor, None, plans, outcome)
    if after is not None:
        for plan in plans:
            _tell(plan, after, check_mode, outcome)
    return outcome


class _Planner:
    """Plans for one wish after the other, no VM twice."""

    def __init__(self, host: Host, hypervisor: Hypervisor, policy: Policy, pool: str) -> None:
        self._host = host
        self._hypervisor = hypervisor
        self._policy = policy
        self._pool = pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
        self._seen: t.Dict[str, str] = {}
        self.problems: t.List[Problem] = []

    def plan(self, wish: Wish) -> t.Optional[VmPlan]:
        """None where nothing is to be planned, or problems has why it cannot be."""
        found = self._find(wish)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        uuid = found.uuid if isinstance(found, VmConfig) else found.config.uuid if found else wish.uuid or wish.name
        if uuid in self._seen:
            self.problems.append(Problem("InvalidArgument", "listed twice, also as %s" % self._seen[uuid], wish.name))
            return None
        self._seen[uuid] = wish.name
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
        host = self._host
        configs = [*(vm.config for vm in host.vms), *host.other_brands, *host.unlinked]
        found = [c for c in configs if c.alias == wish.name or c.uuid == wish.uuid]
        if not found:
            return None
        if len(found) > 1:
            return Problem("Ambiguous", "several VMs: %s" % ", ".join(sorted(c.label for c in found)), wish.name)
        config = found[0]
        if config.alias != wish.name or (wish.uuid and config.uuid != wish.uuid):
            return Problem("InvalidArgument", "there is a VM %s: another name or uuid" % config.label, wish.name)
        if wish.state == "absent" and self._is_remains(config):
            return config
        return find_vm(host, config.uuid)

    def _is_remains(self, config: VmConfig) -> bool:
        """A configuration whose dataset has gone, and whose disks lie nowhere else."""
        host = self._host
        gone = not any(entry.volume in host.datasets for entry in config.disks)
        return config in host.unlinked and config.state == "stopped" and gone and bool(host.geometry)

    def _creation(self, wish: Wish) -> t.Optional[VmPlan]:
        found = Collector(wish.name)
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


def _tell(plan: VmPlan, after: t.Mapping[str, Vm], check_mode: bool, outcome: Outcome) -> None:
    """The result of one VM as it is now, which must be what was planned."""
    vm = after.get(plan.vm)
    undone = outcome.failure is not None
    gone = not plan.after.there
    there = vm is not None and (undone or not gone)
    outcome.vms.append(_result(plan, vm if vm is not None and there else plan.after, check_mode))
    if undone or not plan.steps or check_mode:
        return
    if gone:
        wrong = ["it is there still"] if vm is not None else []
    elif vm is None:
        wrong = ["it is not there"]
    else:
        wrong = report.differences(plan.after, vm)
        wanted, have = machine(plan.after), machine(vm)
        wrong += ["%s: planned %r, found %r" % (k, wanted[k], have[k]) for k in wanted if wanted[k] != have[k]]
    if wrong:
        error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
        outcome.failure = told(plan, error, "read again")


def _result(plan: VmPlan, vm: Vm, check_mode: bool) -> _Dict:
    asked = plan.name
    return {**report.plan_result(plan, vm, asked, not check_mode), **machine(vm)}
