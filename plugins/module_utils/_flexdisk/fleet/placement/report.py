# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer to a request as a task returns it, and as a table for a reader."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_mib
from ...model.text import visible
from ...rules.digest import digest_of
from ..tables import aligned
from .answers import Answer, JobDependencies
from .declared import PLACE, Request
from .facts import Facts
from .jobs import Job
from .known import KnownVm

_Dict = t.Dict[str, t.Any]
_COLUMNS = ("JOB", "VM", "FROM", "TO", "HOST GROUP", "MEMORY", "DISKS", "AFTER")
NO_HOST = "NoHost"  # the code of a plan that lacks VMs


def result(
    facts: Facts, request: Request, answer: Answer, dependencies: t.Sequence[JobDependencies], partial: bool
) -> _Dict:
    """Return the keys of a result. partial: a plan that lacks VMs is one, too."""
    moved = [_moved(facts, job) for job in answer.jobs]
    jobs = [_job(number, facts, one, after) for number, (one, after) in enumerate(zip(answer.jobs, dependencies))]
    failed = [_failed(facts, name, why) for name, why in answer.failed.items()]
    output: _Dict = {
        "changed": False,
        "msg": _summary(request, moved, failed, answer),
        "moved": moved,
        "failures": failed,
        "jobs": jobs,
        "digest": digest_of(jobs),
        "score": {"before": round(answer.before, 6), "after": round(answer.after, 6)},
        "unread": dict(facts.unread),
        "table": _table(facts, answer, dependencies) + _reasons(failed),
    }
    if failed and not partial:
        lines = [visible(f"{entry['name']}: {entry['reason']}") for entry in failed]
        more = "Nothing is planned without them, because allow_partial is false"
        output["msg"] = "\n".join([f"{output['msg']}. {more}:", *lines])
        output["error_code"] = NO_HOST
    return output


def _summary(request: Request, moved: t.Sequence[_Dict], failed: t.Sequence[_Dict], answer: Answer) -> str:
    """C(evacuate: 3 VMs move, 1 cannot, score 2.104 -> 1.811)."""
    verb = ("gets a host", "get hosts") if request.kind == PLACE else ("moves", "move")
    parts = [f"{len(moved)} VM{' ' + verb[0] if len(moved) == 1 else 's ' + verb[1]}"]
    parts += [f"{len(failed)} cannot"] if failed else []
    parts += [f"score {answer.before:.3f} -> {answer.after:.3f}"] if moved else []
    return f"{request.kind}: {', '.join(parts)}"


def _vm(job: Job) -> KnownVm:
    if job.solution.moved is None:
        raise AssertionError("a job without a move")
    return job.solution.moved.vm


def _from(facts: Facts, job: Job) -> str:
    return facts.known.vms[job.name].primary if job.name in facts.known.vms else ""


def _moved(facts: Facts, job: Job) -> _Dict:
    vm = _vm(job)
    return {
        "name": facts.alias(job.name),
        "uuid": job.name if job.name in facts.known.vms else "",
        "from": _from(facts, job),
        "to": vm.primary,
        "group": facts.known.hosts[vm.primary].group,
    }


def _failed(facts: Facts, name: str, why: t.Mapping[str, str]) -> _Dict:
    hosts = {host: reason or "could take it, but not in any order of the moves" for host, reason in why.items()}
    text = "; ".join(f"{host}: {reason}" for host, reason in hosts.items())
    uuid = name if name in facts.known.vms else ""
    return {"name": facts.alias(name), "uuid": uuid, "reason": text or "no host group takes it", "hosts": hosts}


def _job(number: int, facts: Facts, job: Job, dependencies: JobDependencies) -> _Dict:
    moved, vm = _moved(facts, job), _vm(job)
    do = "move" if moved["from"] else "create"
    operation = {"do": do, "vm": moved["uuid"] or moved["name"], "from": moved["from"], "to": moved["to"]}
    disks = {vm.pool: vm.disk} if vm.pool else {}
    return {
        "job": number + 1,
        "name": moved["name"],
        "operations": [{**operation, "disks": disks}],
        "depends": [other + 1 for other in dependencies.depends],
        "needs": [other + 1 for other in dependencies.needs],
    }


def _table(facts: Facts, answer: Answer, dependencies: t.Sequence[JobDependencies]) -> t.List[str]:
    rows = []
    for number, (job, after) in enumerate(zip(answer.jobs, dependencies), 1):
        moved, vm = _moved(facts, job), _vm(job)
        hosts = (moved["from"] or "-", moved["to"], moved["group"])
        waited = ", ".join(str(other + 1) for other in after.depends) or "-"
        rows.append((str(number), moved["name"], *hosts, render_mib(vm.memory), render_mib(vm.disk), waited))
    return aligned(_COLUMNS, rows)


def _reasons(failed: t.Sequence[_Dict]) -> t.List[str]:
    """Return a VM that has no host, and below it each host with the reason."""
    lines = []
    for entry in failed:
        lines.append(f"{entry['name']}: no host")
        width = max(map(len, entry["hosts"]), default=0)
        lines += [f"  {host.ljust(width)}  {why}" for host, why in entry["hosts"].items()] or [f"  {entry['reason']}"]
    return list(map(visible, lines))
