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


class Ended(t.NamedTuple):
    """How the run ended. problem refuses it; result has what is true in both cases."""

    result: _Dict
    problem: t.Optional[Problem] = None
    warnings: t.Tuple[str, ...] = ()


def parse(params: t.Mapping[str, t.Any]) -> t.Tuple[LeaseDeclaration, t.List[Problem]]:
    """The arguments of the module, and all their problems."""
    declared, problems = parse_lease(params)
    try:
        check_figures(params)
    except FlexdiskError as exc:
        problems.append(Problem(exc.code, exc.message))
    return declared, problems


def run(zfs: Zfs, hypervisor: Hypervisor, wanted: LeaseDeclaration, pool: t.Optional[str], check_mode: bool) -> Ended:
    """Take, renew or release the lease, or predict it."""
    place = pool or hypervisor.capabilities.default_pool or _only_pool(zfs)
    name, box = lease.property_of(wanted.group), container(place)
    value = _read(zfs, place, name)
    clear = f"zfs inherit {PREFIX}{name} {box}"
    done = lease.decide(value or "", wanted, int(time.time()), clear)
    if done.writes and not check_mode:
        if value is None:
            make_container(zfs, hypervisor.capabilities, place)
        _write(zfs, box, name, "" if done.lease is None else lease.encode(done.lease))
    result = {
        "changed": done.changed,
        "msg": done.msg,
        "pool": place,
        "lease": lease.result(done.lease),
        "previous": lease.result(done.previous),
        "diff": {"prepared": f"{done.msg}\n" if done.changed else ""},
    }
    problem = Problem(done.code, done.msg) if done.code else None
    return Ended(result, problem, (done.warning,) if done.warning else ())


def look(zfs: Zfs, hypervisor: Hypervisor, wanted: LeaseDeclaration, pool: t.Optional[str]) -> Ended:
    """Where the lease of the group lies on this host, in any pool, and where it could. Changes nothing."""
    guids, now, name = zfs.top_guids(), int(time.time()), lease.property_of(wanted.group)
    pools = sorted(top for top in guids if "/" not in top)
    values = {top: zfs.local_fact(container(top), name) for top in pools if container(top) in guids}
    default, named = ([top] if top in pools else [] for top in (hypervisor.capabilities.default_pool, pool))
    could = default or pools_in_use(guids) or named or (pools if len(pools) == 1 else [])
    found = [dict(lease.seen(value, wanted, now), pool=top) for top, value in values.items() if value]
    texts = [entry["msg"] for entry in found] or [f"{wanted.group}: no lease here"]
    places = [{"pool": top, "guid": guids[top]} for top in could]
    return Ended({"changed": False, "msg": "; ".join(texts), "leases": found, "places": places})


def _only_pool(zfs: Zfs) -> str:
    """The only pool that has a container or VMs, or the only one at all."""
    names = zfs.tops()
    every = sorted(name for name in names if "/" not in name)
    found = pools_in_use(names) or every
    if len(found) != 1:
        have = ", ".join(found) or "none"
        wanted = "a lease needs a pool, the same in every run"
        raise FlexdiskError("MissingParameter", f"{wanted}; pools on this host: {have}")
    return found[0]


def _read(zfs: Zfs, pool: str, name: str) -> t.Optional[str]:
    """The value of the property, "" for none, None where there is no container."""
    try:
        return zfs.local_fact(container(pool), name)
    except ZfsError as exc:
        if exc.code != "ResourceNotFound":
            raise
    if not zfs.exists(pool):
        raise FlexdiskError("ResourceNotFound", f"no such pool: {pool}")
    return None


def _write(zfs: Zfs, box: str, name: str, value: str) -> None:
    """Set the property, or remove it for "", and read it back."""
    zfs.set_facts(box, {name: value})
    found = zfs.local_fact(box, name)
    if found != value:
        raise FlexdiskError("NotApplied", f"{PREFIX}{name} of {box} was set to {value!r}, but is {found!r:.200}")


def leases(zfs: Zfs, host: Host) -> t.Tuple[t.List[_Dict], t.List[str]]:
    """All leases of a host, by one process for each pool with a container; and warnings about what cannot be read."""
    found, warnings, now = [], [], int(time.time())
    for pool in sorted(pool for pool in host.geometry if container(pool) in host.datasets):
        try:
            facts = zfs.local_facts(container(pool))
        except FlexdiskError as exc:
            warnings.append(f"the leases of pool {pool} cannot be read: {exc.message}")
            continue
        shown = (lease.reported(name, value, now) for name, value in sorted(facts.items()))
        found += [dict(entry, pool=pool) for entry in shown if entry is not None]
    return found, warnings
