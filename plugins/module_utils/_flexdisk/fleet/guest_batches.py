# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which guests a run touches, in which batches, and how many of them may fail."""

from __future__ import annotations

import typing as t

from .groups.members import index_of, member_name
from .groups.policy import CONTINUE, RollPolicy, parse_policy

_Raw = t.Mapping[str, t.Any]


class _Group(t.NamedTuple):
    name: str
    size: int
    policy: RollPolicy


def batches(
    vms: t.Mapping[str, _Raw], group: t.Optional[str], declared: t.Sequence[_Raw], unseen: t.Sequence[str] = ()
) -> t.Dict[str, t.Any]:
    """Return the guests that are touched, batch by batch, those that are left out, and all that is wrong with the
    group.

    vms: the variable flexdisk_vm by host, empty for a host without one. group: the name of one of those declared, None
    for all guests at once. unseen: hypervisors whose variables are not known. A batch has its guests and the pause
    after it, in seconds. absent: members that no host is. budget: so many guests may fail before the next batch; -1 is
    no limit.
    """
    parsed, texts = (None, []) if group is None else _group(group, declared, unseen)
    names = {host: str(vm.get("alias") or host) for host, vm in vms.items()}
    meant = [host for host in vms if group is None or index_of(names[host], group) >= 0]
    if group is not None:
        texts += _doubled(meant, names, vms)
    off = {host: why for host, why in ((host, _off(vms[host])) for host in meant) if why}
    guests = [host for host in meant if host not in off]
    absent: t.List[str] = []
    if group is None:
        planned = [(guests, 0)] if guests else []
    elif parsed is None or texts:
        planned = []
    else:
        guests.sort(key=lambda host: -index_of(names[host], group))
        planned = _rolled(guests, names, parsed.policy, parsed.size)
        absent = sorted({member_name(group, index) for index in range(parsed.size)} - {names[host] for host in meant})
        off.update(dict.fromkeys(absent, "not among the guests of this run"))
    limited = parsed is not None and parsed.policy.on_failure != CONTINUE
    return {
        "batches": [{"guests": several, "pause": pause} for several, pause in planned],
        "left_out": [f"{host}: {why}" for host, why in off.items()],
        "absent": absent,
        "budget": parsed.policy.failure_budget.of(parsed.size) if parsed is not None and limited else -1,
        "problems": texts,
    }


def _off(vm: _Raw) -> str:
    """Return why a VM is left out, "" for one that runs, or whose state is unknown."""
    if vm.get("reason"):
        return str(vm["reason"])
    state = vm.get("state", "running")
    return "" if state == "running" else f"it is {state}"


def _group(name: str, declared: t.Sequence[_Raw], unseen: t.Sequence[str]) -> t.Tuple[t.Optional[_Group], t.List[str]]:
    """Return the group of that name. All hosts that declare it must agree on its size and policy."""
    declarations: t.List[t.Tuple[t.Any, t.Any]] = []
    for entry in declared:
        declaration = (entry.get("size"), entry.get("policy") or {})
        if entry.get("name") == name and declaration not in declarations:
            declarations.append(declaration)
    if len(declarations) != 1:
        others = ", ".join(sorted({str(entry.get("name")) for entry in declared})) or "no group"
        how = f"is declared in {len(declarations)} ways" if declarations else "is not declared"
        where = f"these hypervisors of the VMs are not in this inventory: {', '.join(unseen)}"
        return None, [
            f"group {name} {how}; flexdisk_groups has {others}",
            *([where] if unseen and not declarations else []),
        ]
    size, policy = declarations[0]
    if not isinstance(policy, t.Mapping):
        return None, [f"policy of group {name} is {policy!r}, which is not a dictionary"]
    parsed, problems = parse_policy(policy)
    texts = [problem.message for problem in problems]
    if isinstance(size, bool) or not str(size).isdigit():
        texts.append(f"size is {size!r}, which is not a whole number")
    return (None if texts else _Group(name, int(size), parsed)), texts


def _doubled(hosts: t.Sequence[str], names: t.Mapping[str, str], vms: t.Mapping[str, _Raw]) -> t.List[str]:
    """Return the problems with names that several VMs have."""
    by_name: t.Dict[str, t.List[str]] = {}
    for host in hosts:
        home = vms[host].get("hypervisor")
        by_name.setdefault(names[host], []).append(f"{host} of {home}" if home else host)
    return [f"{name} is {' and '.join(several)}" for name, several in sorted(by_name.items()) if len(several) > 1]


def _rolled(
    guests: t.Sequence[str], names: t.Mapping[str, str], policy: RollPolicy, size: int
) -> t.List[t.Tuple[t.List[str], int]]:
    """Return the batches, canaries first, with the pause after each."""
    wanted = policy.canary
    first = list(guests[:wanted]) if isinstance(wanted, int) else [host for host in guests if names[host] in wanted]
    rest = [host for host in guests if host not in first]
    most = policy.limits(size).max_batch_size
    rolled = [(batch, policy.pause) for part in (first, rest) for batch in _cut(part, most)]
    last_canary = len(_cut(first, most)) - 1
    if last_canary >= 0 and policy.canary_pause is not None:
        rolled[last_canary] = (rolled[last_canary][0], policy.canary_pause)
    return [(batch, pause if number + 1 < len(rolled) else 0) for number, (batch, pause) in enumerate(rolled)]


def _cut(guests: t.Sequence[str], most: int) -> t.List[t.List[str]]:
    return [list(guests[start : start + most]) for start in range(0, len(guests), most)]


def planned_guests(growth: _Raw) -> t.List[str]:
    """Return the guests of all batches. growth: the result of batches()."""
    return [host for batch in growth["batches"] for host in batch["guests"]]


def lines(growth: _Raw, unreached: t.Sequence[str], failed: t.Sequence[str]) -> t.List[str]:
    """Return for a reader which guests are touched, and why others are not."""
    rows = [f"batch {number}: {', '.join(batch['guests'])}" for number, batch in enumerate(growth["batches"], start=1)]
    return [
        *(rows or ["no guest is touched"]),
        *(f"left out: {text}" for text in growth["left_out"]),
        *(f"cannot be reached: {host}" for host in unreached),
        *(f"failed above: {host}" for host in failed),
    ]


def too_many_lost(growth: _Raw, healthy: t.Container[str], of_all: bool) -> t.List[str]:
    """Return the guests that keep the next batch from being begun: those that are lost, if they exceed the budget.

    of_all: the run was to have all members, so one that is not there counts: its hypervisor may be lost.
    """
    lost = [host for host in planned_guests(growth) if host not in healthy] + (growth["absent"] if of_all else [])
    return lost if 0 <= growth["budget"] < len(lost) else []
