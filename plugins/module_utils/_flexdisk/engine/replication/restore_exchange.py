# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restored disks take the places of the disks that they were restored from."""

from __future__ import annotations

import typing as t

from ...model.vm import Vm
from ...plan.exchange import Wanted, plan_exchange
from ...plan.steps import VmPlan
from ...rules.inventory import Host
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task
from ..steps.perform import Performers


class ExchangeTask(Task):
    """The exchange of disks of one VM, with a plan as each task has."""

    def __init__(self, wanted: t.Sequence[Wanted], context: Context) -> None:
        super().__init__(context, Outcome())
        self._wanted = wanted

    def performers(self) -> Performers:
        from ..steps.apply_exchange import PERFORM_EXCHANGE
        from ..steps.performers import PERFORM

        return {**PERFORM, **PERFORM_EXCHANGE}

    def plan(self, host: Host) -> t.List[VmPlan]:
        return [plan_exchange(host, self._wanted, self.policy, self.hypervisor.capabilities)]

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        if vm is not None:
            self.outcome.vms.append(report.plan_result(plan, vm, plan.name, not self.check_mode))
