# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the place of a group's lease in the reports of all hosts, and check whether a run still holds it."""

from __future__ import annotations

import json
import typing as t

from ...model.durations import parse_seconds
from ...model.errors import FlexdiskError
from ...rules import lease
from .policy import RollPolicy

_Raw = t.Mapping[str, t.Any]
MAX_NAMED = 20  # so many hosts are named in one message


def lease_place(reports: t.Mapping[str, _Raw], hosts: t.Sequence[str], wanted: _Raw) -> t.Dict[str, t.Any]:
    """Return the pools in which a run takes the lease (C(places), by host), and why it cannot be taken (C(problems)).

    reports: what group_lease reported, by host. hosts: all that could have the lease. wanted: group, without (hosts
    that are known to be off), take_over, and host, "" if the rule decides.

    An existing lease is taken where it is, so that its last holder cannot renew it. Only a new lease gets a place.
    """
    read = {host: report for host, report in reports.items() if report.get("leases") is not None}
    unread = [host for host in hosts if host not in read and host not in wanted["without"]]
    problems = [_unread(unread, reports)] if unread else []
    places: t.Dict[str, str] = {}
    for host, report in read.items():
        for entry in report["leases"]:
            if host in places:
                problems.append(f"{host}: the lease lies in the pools {places[host]} and {entry['pool']}; remove one")
            places[host] = entry["pool"]
            if entry["standing"] in (lease.HELD, lease.UNREADABLE) and not (wanted["take_over"] or entry["died"]):
                problems.append(f"{host}: {entry['msg']}. With flexdisk_take_over=true this run takes it all the same")
    if not places and not problems:
        places = _new_place(read, wanted, problems)
    return {"places": {} if problems else places, "problems": problems}


def _new_place(read: t.Mapping[str, _Raw], wanted: _Raw, problems: t.List[str]) -> t.Dict[str, str]:
    named = wanted["host"]
    if named and named not in read:
        problems.append(f"{named}: this host of the lease is not in the play")
        return {}
    guids = {
        (host, place["pool"]): place["guid"]
        for host, report in read.items()
        for place in report["places"]
        if named in ("", host)
    }
    if not guids:
        problems.append(f"no host has a pool for the lease of {wanted['group']}: name one with instance_group_pool")
        return {}
    host, pool = lease.place_of(wanted["group"], guids)
    return {host: pool}


def _unread(unread: t.Sequence[str], reports: t.Mapping[str, _Raw]) -> str:
    why = ", ".join(f"{host}{_why(reports.get(host) or {})}" for host in unread[:MAX_NAMED])
    more = f" and {len(unread) - MAX_NAMED} more" if len(unread) > MAX_NAMED else ""
    word = json.dumps({"flexdisk_lease_without": list(unread)})
    return (
        f"cannot be read, but could have the lease of another run: {why}{more}. If no run can be at work from there, "
        f"such as on a host that is off, go on with -e '{word}'"
    )


def _why(report: _Raw) -> str:
    text = str(report.get("msg") or "").splitlines()
    return f" ({text[0]:.120})" if text else " (not in the play)"


def lease_problems(answers: t.Mapping[str, _Raw], places: t.Mapping[str, str]) -> t.List[str]:
    """Return why a run does not have the lease in these places, by what group_lease returned for each host."""
    texts = []
    for host in places:
        answer = answers.get(host) or {}
        if answer.get("lease") is None or answer.get("error_code") is not None:  # an error shows the lease of another
            texts.append(f"{host}: {answer.get('msg') or 'this host of the lease is not in the play'}")
    return texts


def check_others(results: t.Mapping[str, _Raw], group: str, token: str) -> t.List[str]:
    """Return a message for each lease of the group that another run has now. results: of vm_info, by host."""
    return [
        f"{host}: {group}: {entry['holder'] if entry['readable'] else 'somebody'} has a lease of this group, too, in "
        f"pool {entry['pool']}; this run stops"
        for host, result in results.items()
        for entry in result.get("leases") or ()
        if entry["group"] == group and not (entry["readable"] and (entry["expired"] or entry["token"] == token))
    ]


def check_waits(gate: _Raw, policy: RollPolicy, size: int, ttl: int, stop_timeout: int) -> t.List[str]:
    """Return a message for each wait that is too long for the lease. Nobody renews it while a gate or a guest is waited
    for.

    A pause is no such wait: the lease is renewed in between.
    """
    waits: t.List[str] = []
    gated = (gate.get("retries", 60), gate.get("delay", 5), gate.get("stable_for", 0))
    try:
        retries, delay, stable_for = (parse_seconds(value) for value in gated)
    except FlexdiskError as exc:
        return [f"gate: {exc.message}"]
    if retries * delay + stable_for > ttl // 2:
        details = f"{retries} retries, {delay} s apart, and stable_for {stable_for} s"
        waits.append(f"the gate can wait for {retries * delay + stable_for} s ({details})")
    batch = min(policy.max_down_per_host, policy.limits(size).max_batch_size)
    if batch * stop_timeout > ttl // 2:
        waits.append(
            f"{batch} guests of a host can take {batch * stop_timeout} s to stop (stop_timeout {stop_timeout} s)"
        )
    return [f"{text}, but half of instance_group_lease_ttl is {ttl // 2} s; raise it, or wait less" for text in waits]


def pause_parts(seconds: int, ttl: int) -> t.List[int]:
    """Return a pause in parts, between which a lease of ttl seconds is renewed."""
    part = max(1, ttl // 4)
    full, rest = divmod(max(0, seconds), part)
    return [part] * full + ([rest] if rest else [])
