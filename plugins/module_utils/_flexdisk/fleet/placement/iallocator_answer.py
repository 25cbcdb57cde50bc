# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Answers of Ganeti's IAllocator protocol, version 2, in the words of hail 3.0.2."""

from __future__ import annotations

import typing as t

from .hail_evacuation import FAILOVER, Operation, Solution
from .known import REPLICATED, Known

_Dict = t.Dict[str, t.Any]


def success(info: str, result: t.Any) -> _Dict:
    """The answer to a request that succeeds."""
    return {"success": True, "info": f"Request successful: {info}", "result": result}


def failed(info: str) -> _Dict:
    """The answer to a request that fails as a whole."""
    return {"success": False, "info": f"Request failed: {info}", "result": []}


def moves(known: Known, solutions: t.Iterable[t.Tuple[str, Solution]]) -> _Dict:
    """The answer to a request to move VMs: those that move, with their group and hosts, those that do not, with the
    reason, and a job for each move.
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


def _opcode(name: str, replicated: bool, operation: Operation) -> _Dict:
    """An opcode. A VM with a replica can only go to the replica's host, so no target is named."""
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
