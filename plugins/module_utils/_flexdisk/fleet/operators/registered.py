# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tasks of a playbook have registered, as lines for its user."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import FlexdiskError
from ...model.sizes import render_change, render_mib
from ...model.text import count, visible
from ...rules.knobs import command, for_playbooks
from ...rules.skipped import not_looked_at
from ..failures import failures, has_failed, without_prefix
from .replica_list import replica_list
from .replicate import gives_up
from .replicate_report import report
from .status import status

_Raw = t.Mapping[str, t.Any]
SEVERE: t.Mapping[str, t.Sequence[str]] = {"never": (), "error": ("error",), "warning": ("error", "warning")}
ELSEWHERE = "see the output of the playbook"
MOVES_AS_JSON = ("moved", "failures", "jobs", "digest", "score", "unread")
NOT_HERE = "approved, but not among the hosts of this run, so nothing was done there"


class Shown(t.NamedTuple):
    """What a task shows."""

    lines: t.Union[t.Sequence[str], _Raw]
    """Lines, or what is shown as JSON. Nothing is shown without any."""
    problem: str = ""
    """Why the playbook fails. "" if it does not."""


@dataclass(frozen=True)
class Registered:
    """The hosts of a play, and what its tasks have registered."""

    all_hosts: t.Sequence[str]
    hosts: t.Sequence[str]
    """The hosts that have not failed."""
    variables: t.Callable[[str], _Raw]
    """The variables of a host. Those of another host take half a millisecond and more."""
    host: str
    """The host of the task."""
    names: t.Sequence[str]
    """What tasks have registered, the first task first."""

    @property
    def failed(self) -> t.List[str]:
        """The hosts that have failed."""
        there = set(self.hosts)
        return [host for host in self.all_hosts if host not in there]

    @property
    def own(self) -> _Raw:
        """The variables of the host of the task."""
        return self.variables(self.host)

    @property
    def meant(self) -> _Raw:
        """The variables of the playbook for the host of the task, as they are meant."""
        return t.cast("_Raw", self.own["_flexdisk"])

    def last(self, hosts: t.Iterable[str]) -> t.Dict[str, _Raw]:
        """Return the last result of each host."""
        return {host: self.variables(host)[self.names[-1]] for host in hosts}

    def failures(self, host: str) -> t.Dict[str, _Raw]:
        """Return the failures of tasks. Those of earlier plays of the run do not count, if the host was in this one."""
        variables = self.variables(host)
        before = ((variables.get("_flexdisk") or {}).get("stands") or {}).get("failed_before", ())
        names = [name for name in self.names if name not in before and has_failed(variables.get(name))]
        return {name: variables[name] for name in names}

    def reasons(self, name: str) -> t.Dict[str, str]:
        """Return why hosts have failed, as this result of each says."""
        messages = {host: str(self.failures(host).get(name, {}).get("msg") or "") for host in self.failed}
        return {host: without_prefix(message) or ELSEWHERE for host, message in messages.items()}


def show_failures(registered: Registered) -> Shown:
    """Show which hosts failed, and why. No lines if none did."""
    results = {host: list(registered.failures(host).values()) for host in registered.failed}
    return Shown(failures(results) if results else [])


def show_status(registered: Registered) -> Shown:
    """Show what is half done on all hosts. The results are those of host_status."""
    lines, counts = status(registered.last(registered.hosts), registered.failed)
    fails = counts["half_done"] and registered.meant.get("flexdisk_status_fail_on", "half_done") == "half_done"
    return Shown(lines, f"{counts['half_done']} half done" if fails else "")


def show_replicas(registered: Registered) -> Shown:
    """Show the replicas of all hosts. The results are those of vm_info and replica_info."""
    of_vms, _stored = registered.names
    read = {host: registered.variables(host)[of_vms] for host in registered.hosts}
    order, stored = registered.own["_flexdisk_order"], registered.last(registered.hosts)
    vm = registered.meant.get("flexdisk_list_vm", "")
    try:
        return Shown(replica_list(read, stored, order["calls"], registered.failed, order["left_out"], vm))
    except FlexdiskError as exc:
        return Shown([], exc.message)


def show_plan(registered: Registered) -> Shown:
    """Show the plans of all hosts, for the person who approves them."""
    return Shown(_plans(registered, "NO PLAN", {}))


def show_applied(registered: Registered) -> Shown:
    """Show what was done of the plans that the user has approved."""
    first = registered.variables(registered.all_hosts[0])["_flexdisk"]
    approved = [host for host, digest in first["flexdisk_plan_digests"].items() if digest]
    absent = {host: NOT_HERE for host in approved if host not in registered.all_hosts}
    return Shown(_plans(registered, "FAILED", {**absent, **first["stands"]["elsewhere"]}))


def _plans(registered: Registered, failed: str, absent: t.Mapping[str, str]) -> t.List[str]:
    """Return a line for each host, and then the plans. failed: what is said before the reason of a host that failed."""
    calls, vm = registered.own["_flexdisk_order"]["calls"], registered.meant.get("flexdisk_vm")
    plans = registered.last(host for host in registered.hosts if host in calls)
    heads = {host: f"{plan['plan'][0]}, digest {plan['plan_digest']}" for host, plan in plans.items()}
    idle = "nothing is declared" if vm is None else f"does not have {vm}"
    heads.update((host, idle) for host in registered.hosts if host not in calls)
    heads.update(
        (host, f"{failed}: {why.splitlines()[0]}") for host, why in registered.reasons(registered.names[-1]).items()
    )
    heads.update(absent)
    lines = [f"{host}: {head}" for host, head in heads.items()]
    for host, plan in plans.items():
        lines += _plan(host, plan) if plan["plan"][1:] else []
    return [visible(line) for line in lines]


def _plan(host: str, plan: _Raw) -> t.Iterator[str]:
    yield f"{host}:"
    yield from (f"  {line}" for line in plan["plan"][1:])
    before, after = (sum(vm["quota_bytes"][when] for vm in plan["vms"]) for when in ("before", "after"))
    left = [f"pool {pool['name']} has {render_mib(pool['available'])} left now" for pool in plan.get("pools", ())]
    yield f"  space: quotas of these VMs {render_change(before, after)}{''.join(', ' + text for text in left)}"


def show_moves(registered: Registered) -> Shown:
    """Show the plan of moves: the table, the hosts that could not be read, and the digest; or all of it as JSON."""
    plan = registered.own[registered.names[-1]]
    if registered.meant.get("flexdisk_move_format") == "json":
        return Shown({key: plan[key] for key in MOVES_AS_JSON if key in plan})
    unread = [f"{host} could not be read: {why}" for host, why in plan["unread"].items()]
    digest = [f"digest {plan['digest']}"] if plan["jobs"] else []
    return Shown([plan["msg"].splitlines()[0], *plan["table"], *unread, *digest])


def show_replicated(registered: Registered) -> Shown:
    """Show what was replicated, and what failed. No table of one VM, nor where replicas are given up: it has a plan."""
    if gives_up(registered.meant):
        return Shown([])
    order, check = registered.own["_flexdisk_order"], registered.own["ansible_check_mode"]
    results = {host: registered.variables(host).get(registered.names[-1], ()) for host in order["calls"]}
    lines, failed = report(order["calls"], results, order["left_out"], check)
    return Shown([] if "flexdisk_vm" in registered.meant else lines, ". ".join(failed))


def show_findings(registered: Registered) -> Shown:
    """Show the findings of disk_verify on this host, each with the command that repairs it."""
    result = registered.own[registered.names[-1]]
    lines = [f"repaired: {_finding(one)}" for one in result["repaired"]]
    for one in result["findings"]:
        lines.append(f"{one['severity']}: {_finding(one)}")
        if one["repair"]:
            lines.append(f"    {command(one['repair'], registered.host, str(one['alias'] or ''))}")
    known = {one["vm"] for one in result["findings"]}
    others = not_looked_at([vm for vm in result.get("skipped_vms", ()) if vm["uuid"] not in known])
    fine = "nothing is wrong with the VMs that were looked at" if others else "nothing is wrong"
    fail_on = registered.meant.get("flexdisk_verify_fail_on", "never")
    severities = SEVERE[fail_on]
    severe = sum(result["counts"][severity] for severity in severities)
    text = [visible(line) for line in [*(lines or [fine]), *map(for_playbooks, others)]]
    return Shown(text, count(severe, "finding") if severe else "")


def _finding(one: _Raw) -> str:
    return f"{one['kind']} {one['alias'] or one['vm']}: {for_playbooks(one['message'])}"


def show_quotas(registered: Registered) -> Shown:
    """Show which quotas and reservations of this host were wrong. No lines if the module has not come so far."""
    result = registered.own[registered.names[-1]]
    if "vms" not in result:
        return Shown([])
    lines = [
        f"{vm['alias'] or vm['uuid']}: {vm['cause']}, quota {vm['drift']['quota_bytes']:+d} bytes, "
        f"reservation {vm['drift']['reservation_bytes']:+d} bytes"
        for vm in result["vms"]
        if vm["cause"]
    ]
    return Shown([visible(line) for line in lines] or ["nothing"])


ABOUT: t.Mapping[str, t.Callable[[Registered], Shown]] = {
    "applied": show_applied,
    "failures": show_failures,
    "findings": show_findings,
    "moves": show_moves,
    "plan": show_plan,
    "quotas": show_quotas,
    "replicas": show_replicas,
    "replicated": show_replicated,
    "status": show_status,
}
