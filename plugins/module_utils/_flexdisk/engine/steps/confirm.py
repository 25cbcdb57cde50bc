# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks before the first step of a plan that the VM is unchanged, and that ZFS reserves as forecast."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.errors import FlexdiskError
from ...model.sizes import render_apart
from ...model.vm import Vm
from ...plan.steps import VmPlan
from ...plan.vm_steps import ClearRemains, RemoveUnfinished
from ...rules.differences import since_read
from ...rules.inventory import completed
from ...rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from .perform import Tools


def confirm_unchanged(tools: Tools, plan: VmPlan) -> None:
    """Raise FlexdiskError Changed if the VM has changed since it was read. The lock excludes only our own tasks.

    Steps for detached disks check each disk by themselves.
    """
    if not plan.vm:
        return
    if not plan.before.exists:
        _confirm_absent(tools, plan)
        return
    try:
        root = plan.before.root
        # Without a dataset of its own, the VM has nothing but its volumes.
        names = [root.name] if root.kind else [v.name for v in plan.before.volumes if plan.before.config.prefixes]
        datasets = tools.zfs.datasets(*names, snapshots=False) if names else []
        config = completed(tools.hypervisor.vm(plan.vm), {d.name: d for d in datasets})
        if not root.kind and not config.pool:
            config = replace(config, pool=root.pool, dataset=root.name)
        differences = since_read(plan.before, config, datasets)
    except FlexdiskError as exc:
        if exc.code != "ResourceNotFound":
            raise
        differences = [exc.message]
    if differences:
        raise FlexdiskError("Changed", f"the VM changed since it was read: {'; '.join(differences)}; nothing was done")


def confirm_forecasts(tools: Tools, plan: VmPlan, geometry: PoolGeometry) -> None:
    """Compare the forecast with what ZFS itself would reserve, once for each kind of volume that the plan makes."""
    for volsize, block in sorted(_kinds(plan.after) - _kinds(plan.before)):
        forecast = automatic_reservation(volsize, block, geometry)
        parent = plan.before.root.name if plan.before.root.kind else plan.before.root.pool
        by_zfs = tools.zfs.forecast_reservation(parent, volsize, block)
        if not is_automatic(by_zfs, volsize, block, geometry):
            raise FlexdiskError(
                "ForecastMismatch",
                "ZFS would reserve %s for a volume of %s, not %s as forecast; nothing was changed"
                % (*render_apart(by_zfs, volsize, forecast),),
            )


def _confirm_absent(tools: Tools, plan: VmPlan) -> None:
    """Raise FlexdiskError Changed if the VM to be created, or its dataset, exists by now and is not cleared first."""
    root = plan.before.root.name
    cleared = any(isinstance(step, (ClearRemains, RemoveUnfinished)) for step in plan.steps)
    known = any(isinstance(step, RemoveUnfinished) and step.configured for step in plan.steps)
    if not known and any(config.uuid == plan.vm for config in tools.hypervisor.vms()):
        raise FlexdiskError("Changed", f"the host changed since it was read: VM {plan.vm} now exists")
    if not cleared and tools.zfs.exists(root):
        raise FlexdiskError("Changed", f"the host changed since it was read: {root} now exists")


def _kinds(vm: Vm) -> t.Set[t.Tuple[int, int]]:
    """Return size and block size (bytes) of all volumes of the VM, also detached ones."""
    every = (*vm.volumes, *(disk.volume for disk in vm.detached))
    return {(v.volsize, v.volblocksize) for v in every if v.kind == "volume"}
