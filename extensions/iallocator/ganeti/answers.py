# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of Ganeti's IAllocator protocol, version 2, in the words of hail 3.0.2."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_change_group import (
    NO_GROUPS,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.jobs import dependencies
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    REPLICATED,
    Known,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.search import Plan
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wanted_moves import (
    WantedMove,
    why_nowhere,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import (
    FAILOVER,
    Operation,
    Solution,
)

from .ways import why_never

_Dict = t.Dict[str, t.Any]


def success(info: str, result: t.Any) -> _Dict:
    """Return the answer to a request that succeeds."""
    return {"success": True, "info": f"Request successful: {info}", "result": result}


def failed(info: str) -> _Dict:
    """Return the answer to a request that fails as a whole."""
    return {"success": False, "info": f"Request failed: {info}", "result": []}


def moves(known: Known, solutions: t.Iterable[t.Tuple[str, Solution]]) -> _Dict:
    """Return the answer to a request to move VMs: those that move, with their group and hosts, those that do not, with
    the reason, and a job for each move.
    """
    moved: t.List[t.Any] = []
    left: t.List[t.Any] = []
    jobs: t.List[t.List[_Dict]] = []
    for name, solution in solutions:
        if solution.moved is None:
            left.append([name, solution.why])
            continue
        vm = solution.moved.vm
        hosts = [vm.primary, vm.secondary] if vm.secondary else [vm.primary]
        moved.append([name, known.groups[known.hosts[vm.primary].group].name, hosts])
        jobs.append([_opcode(name, vm.template == REPLICATED, operation) for operation in solution.operations])
    info = f"{len(left)} instances failed to move and {len(moved)} were moved successfully"
    return success(info, [moved, left, jobs])


def planned(start: Places, wanted_moves: t.Sequence[WantedMove], plan: Plan) -> _Dict:
    """Return the answer with a plan of our own: jobs say which others must have ended, and reasons name hosts and
    figures.
    """
    answer = moves(start.known, [(job.name, job.solution) for job in plan.jobs])
    for number, (job, earlier) in enumerate(zip(answer["result"][2], dependencies(start, plan.jobs))):
        if earlier:
            job[0]["depends"] = [[other - number, ["success"]] for other in earlier]
    left = [wanted for wanted in wanted_moves if wanted.name in plan.failed]
    answer["result"][1] = [[wanted.name, why_not(plan.places, wanted)] for wanted in left]
    info = f"{len(left)} instances failed to move and {len(plan.jobs)} were moved successfully"
    return success(info, answer["result"])


def why_not(places: Places, wanted: WantedMove) -> str:
    """Return why a VM cannot move, in one line."""
    reasons = why_nowhere(places, wanted).items()
    text = "; ".join(f"{name}: {why}" for name, why in reasons if why)
    return why_never(places.vms[wanted.name], wanted.mode) or text or NO_GROUPS


def _opcode(name: str, replicated: bool, operation: Operation) -> _Dict:
    """Return an opcode. A VM with a replica can only go to the replica's host, so no target is named."""
    if operation.kind == FAILOVER:
        target = {} if replicated else {"target_node": operation.target}
        settings = {"allow_runtime_changes": False, "ignore_ipolicy": False, "cleanup": False}
        later = {"allow_failover": True, "ignore_hvversions": True}
        return {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name, **target, **settings, **later}
    return {
        "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
        "instance_name": name,
        "early_release": False,
        "ignore_ipolicy": False,
        "mode": "replace_new_secondary",
        "disks": [],
        "remote_node": operation.target,
    }
