# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds what a failed run has changed, by the host before and after it."""

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
class FailedRun:
    """Where the plans of a failed run ended."""

    plan: VmPlan
    """The plan that failed."""
    done: int
    """The number of its steps that were done."""
    begun: bool
    """A command of the failed step may have changed something."""
    tried_start: bool
    """A start of the VM was tried."""
    waiting: t.Tuple[VmPlan, ...]
    """The plans that were not begun."""


def with_endings(
    plans: t.Sequence[VmPlan], failed_run: t.Optional[FailedRun], before: Host, now: t.Optional[Host]
) -> t.List[VmPlan]:
    """Return the plans, each with how it ended. now: the host read again. None, if that failed, counts as changed."""
    if failed_run is None:
        return list(plans)
    result = []
    for plan in plans:
        if any(plan is other for other in failed_run.waiting):
            ended = PlanOutcome(-1, False)
        elif plan is failed_run.plan:
            ended = PlanOutcome(failed_run.done, _changed(failed_run, before, now))
        else:
            ended = PlanOutcome(len(plan.steps), plan.changed)
        result.append(replace(plan, outcome=ended))
    return result


def _changed(failed_run: FailedRun, before: Host, now: t.Optional[Host]) -> bool:
    plan = failed_run.plan
    if failed_run.tried_start or any(
        not (step.facts_only or isinstance(step, Recover)) for step in plan.steps[: failed_run.done]
    ):
        return True
    if not failed_run.begun or now is None:
        return failed_run.begun
    key = (plan.before.config.pool, plan.vm)
    if _config(before, plan.vm) != _config(now, plan.vm) or before.intents.get(key) != now.intents.get(key):
        return True
    return has_changed(before, now, plan.steps, plan.before.root.name)


def has_changed(before: Host, now: Host, steps: t.Sequence[Step], root: str = "") -> bool:
    """Return whether a dataset below root, or one that a step names, has changed."""
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
    """Return the properties that only commands change, not a guest that writes."""
    return (
        *(dataset.guid, dataset.kind, dataset.volsize, dataset.origin, dataset.compression, dataset.userrefs),
        *(dataset.quota, dataset.refquota, dataset.reservation, dataset.refreservation),
        dict(dataset.user),
    )


def _config(host: Host, uuid: str) -> t.Optional[VmConfig]:
    configs = (*(vm.config for vm in host.vms), *host.other_brands, *host.unlinked)
    return next((config for config in configs if config.uuid == uuid), None) if uuid else None
