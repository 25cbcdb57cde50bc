# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of group_lease: a run takes, renews or releases the lease of a group; and what leases a host has.

The property is set by one command, so a run that is killed leaves the lease as it was or as it was to be. The lock of
the pool is held from the read to the write.
"""

from __future__ import annotations

import time
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.desired import LeaseDeclaration
from ...model.errors import FlexdiskError, Problem
from ...parse.group_lease import parse_lease
from ...rules import lease
from ...rules.identity import PREFIX
from ...rules.inventory import Host
from ...rules.layout import container, pools_in_use
from ...zfs.commands import Zfs
from ...zfs.errors import ZfsError
from ..host.container import make_container
from ..run.arguments import check_figures

_Dict = t.Dict[str, t.Any]


class LeaseAnswer(t.NamedTuple):
    """How the run ended."""

    result: _Dict
    problem: t.Optional[Problem] = None
    """Why the run is refused."""
    warnings: t.Tuple[str, ...] = ()


def parse(params: t.Mapping[str, t.Any]) -> t.Tuple[LeaseDeclaration, t.List[Problem]]:
    """Return the arguments of the module and all their problems."""
    declared, problems = parse_lease(params)
    try:
        check_figures(params)
    except FlexdiskError as exc:
        problems.append(Problem(exc.code, exc.message))
    return declared, problems


def run(
    zfs: Zfs, hypervisor: Hypervisor, wanted: LeaseDeclaration, pool: t.Optional[str], check_mode: bool
) -> LeaseAnswer:
    """Take, renew or release the lease, or predict it."""
    lease_pool = pool or hypervisor.capabilities.default_pool or _only_pool(zfs)
    name, dataset = lease.lease_property(wanted.group), container(lease_pool)
    value = _read(zfs, lease_pool, name)
    clear = f"zfs inherit {PREFIX}{name} {dataset}"
    decision = lease.decide(value or "", wanted, int(time.time()), clear)
    if decision.writes and not check_mode:
        if value is None:
            make_container(zfs, hypervisor.capabilities, lease_pool)
        _write(zfs, dataset, name, "" if decision.lease is None else lease.encode(decision.lease))
    result = {
        "changed": decision.changed,
        "msg": decision.msg,
        "pool": lease_pool,
        "lease": lease.result(decision.lease),
        "previous": lease.result(decision.previous),
        "diff": {"prepared": f"{decision.msg}\n" if decision.changed else ""},
    }
    problem = Problem(decision.code, decision.msg) if decision.code else None
    return LeaseAnswer(result, problem, (decision.warning,) if decision.warning else ())


def look(zfs: Zfs, hypervisor: Hypervisor, wanted: LeaseDeclaration, pool: t.Optional[str]) -> LeaseAnswer:
    """Return the leases of the group in all pools of this host, and the pools that could have one. Read only."""
    guids, now, name = zfs.top_guids(), int(time.time()), lease.lease_property(wanted.group)
    pools = sorted(top for top in guids if "/" not in top)
    values = {top: zfs.local_fact(container(top), name) for top in pools if container(top) in guids}
    default, named = ([top] if top in pools else [] for top in (hypervisor.capabilities.default_pool, pool))
    usable_pools = default or pools_in_use(guids) or named or (pools if len(pools) == 1 else [])
    if hypervisor.capabilities.only_read:  # nothing is written there, so it has no lease, and gets none
        usable_pools = []
    leases_here = [dict(lease.seen(value, wanted, now), pool=top) for top, value in values.items() if value]
    texts = [entry["msg"] for entry in leases_here] or [f"{wanted.group}: no lease here"]
    places = [{"pool": top, "guid": guids[top]} for top in usable_pools]
    return LeaseAnswer({"changed": False, "msg": "; ".join(texts), "leases": leases_here, "places": places})


def _only_pool(zfs: Zfs) -> str:
    """Return the only pool that has a container or VMs, or the only pool at all. Raises FlexdiskError."""
    names = zfs.tops()
    every = sorted(name for name in names if "/" not in name)
    candidates = pools_in_use(names) or every
    if len(candidates) != 1:
        pools = ", ".join(candidates) or "none"
        wanted = "a lease needs a pool, the same in every run"
        raise FlexdiskError("MissingParameter", f"{wanted}; pools on this host: {pools}")
    return candidates[0]


def _read(zfs: Zfs, pool: str, name: str) -> t.Optional[str]:
    """Return the value of the property, "" for none, None if the pool has no container."""
    try:
        return zfs.local_fact(container(pool), name)
    except ZfsError as exc:
        if exc.code != "ResourceNotFound":
            raise
    if not zfs.exists(pool):
        raise FlexdiskError("ResourceNotFound", f"no such pool: {pool}")
    return None


def _write(zfs: Zfs, dataset: str, name: str, value: str) -> None:
    """Set the property, or remove it for "", and read it back."""
    zfs.set_facts(dataset, {name: value})
    actual = zfs.local_fact(dataset, name)
    if actual != value:
        raise FlexdiskError("NotApplied", f"{PREFIX}{name} of {dataset} was set to {value!r}, but is {actual!r:.200}")


def leases(zfs: Zfs, host: Host) -> t.Tuple[t.List[_Dict], t.List[str]]:
    """Return all leases of a host, and warnings about pools that cannot be read. It takes one process per container."""
    result, warnings, now = [], [], int(time.time())
    for pool in sorted(pool for pool in host.geometry if container(pool) in host.datasets):
        try:
            facts = zfs.local_facts(container(pool))
        except FlexdiskError as exc:
            warnings.append(f"the leases of pool {pool} cannot be read: {exc.message}")
            continue
        shown = (lease.reported(name, value, now) for name, value in sorted(facts.items()))
        result += [dict(entry, pool=pool) for entry in shown if entry is not None]
    return result, warnings
