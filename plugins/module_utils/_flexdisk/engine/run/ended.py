# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a failed run has really changed, from the host before and after it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...model.dataset import Dataset
from ...model.vm import VmConfig
from ...plan.steps import PlanOutcome, Step, VmPlan
from ...plan.vm_steps import Recover
from ...rules.inventory import Host
from ...rules.layout import container, is_below


@dataclass(frozen=True)
class Broken:
    """Where the plans of a run ended."""

    plan: VmPlan
    # The number of steps done in the plan that failed.
    done: int
    # A command of it may have changed something.
    begun: bool
    # A start of the VM was tried.
    powered: bool
    waiting: t.Tuple[VmPlan, ...]


def as_it_went(
    plans: t.Sequence[VmPlan], broken: t.Optional[Broken], before: Host, now: t.Optional[Host]
) -> t.List[VmPlan]:
    """The plans, each with how it ended. now is the host read again; None, if it cannot be read, counts as changed."""
    if broken is None:
        return list(plans)
    result = []
    for plan in plans:
        if any(plan is other for other in broken.waiting):
            ended = PlanOutcome(-1, False)
        elif plan is broken.plan:
            ended = PlanOutcome(broken.done, _changed(broken, before, now))
        else:
            ended = PlanOutcome(len(plan.steps), plan.changed)
        result.append(replace(plan, outcome=ended))
    return result


def _changed(broken: Broken, before: Host, now: t.Optional[Host]) -> bool:
    plan = broken.plan
    if broken.powered or any(not (step.facts_only or isinstance(step, Recover)) for step in plan.steps[: broken.done]):
        return True
    if not broken.begun or now is None:
        return broken.begun
    key = (plan.before.config.pool, plan.vm)
    if _config(before, plan.vm) != _config(now, plan.vm) or before.intents.get(key) != now.intents.get(key):
        return True
    return touched(before, now, plan.steps, plan.before.root.name)


def touched(before: Host, now: Host, steps: t.Sequence[Step], root: str = "") -> bool:
    """Whether a dataset has changed: any below root, or one that a step names."""
    names = {name for step in steps for name in step.datasets}
    return _state(before, names, root) != _state(now, names, root)


def _state(host: Host, names: t.Collection[str], root: str) -> t.Dict[str, t.Tuple[t.Any, ...]]:
    return {
        name: _settings(dataset)
        for name, dataset in host.datasets.items()
        if _belongs(dataset, names, root) and name != container(dataset.pool)
    }


def _belongs(dataset: Dataset, names: t.Collection[str], root: str) -> bool:
    owner = dataset.name.split("@", 1)[0]
    return owner in names or bool(root and (owner == root or is_below(owner, root)))


def _settings(dataset: Dataset) -> t.Tuple[t.Any, ...]:
    """What only commands change. Writes of a guest do not change it."""
    return (
        *(dataset.guid, dataset.kind, dataset.volsize, dataset.origin, dataset.compression, dataset.userrefs),
        *(dataset.quota, dataset.refquota, dataset.reservation, dataset.refreservation),
        dict(dataset.user),
    )


def _config(host: Host, uuid: str) -> t.Optional[VmConfig]:
    configs = (*(vm.config for vm in host.vms), *host.other_brands, *host.unlinked)
    return next((config for config in configs if config.uuid == uuid), None) if uuid else None
