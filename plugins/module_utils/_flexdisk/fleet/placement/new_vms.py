# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that do not exist yet, and need a host."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError, Problems
from ...model.sizes import parse_size
from ...rules.naming import find_by_name
from .facts import Facts, exclusive_tags
from .known import COPIED, DOWN, UP, KnownVm
from .raw import of

_Raw = t.Mapping[str, t.Any]


class NewVm(t.NamedTuple):
    """A VM that needs a host."""

    name: str
    # What it takes of each host that it may get, or why the host refuses it.
    at: t.Mapping[str, t.Union[KnownVm, str]]
    # The set whose VMs are spread over hosts, "" for none.
    spread: str = ""
    # How many VMs of this set hosts have.
    beside: t.Mapping[str, int] = {}


def parse_new_vms(
    raw: t.Sequence[_Raw], facts: Facts, exclusive: t.Sequence[str], problems: Problems
) -> t.Tuple[NewVm, ...]:
    """The VMs as a task declares them. exclusive: as in Settings. What is wrong goes to the problems."""
    names = [entry["name"] for entry in raw]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("InvalidArgument", f"new_vms: {name} is listed more than once")
    for name in dict.fromkeys(names):
        for one in find_by_name(name, facts.names, prefixes=False):
            host = facts.known.vms[one.uuid].primary
            problems.add("AlreadyExists", f"new_vms: {name} is on {host} already ({one.uuid})")
    return tuple(_New(entry, facts, exclusive, problems).read() for entry in raw)


class _New:
    """Reads one VM."""

    def __init__(self, raw: _Raw, facts: Facts, exclusive: t.Sequence[str], problems: Problems) -> None:
        self._raw = raw
        self._facts = facts
        self._exclusive = exclusive
        self._problems = problems
        self._what = f"new_vms: {raw['name']}"

    def read(self) -> NewVm:
        """The VM, with what it takes of each host."""
        raw, known = self._raw, self._facts.known
        told: _Raw = raw["hosts"] if raw["hosts"] is not None else dict.fromkeys(known.hosts)
        for host in told:
            if host not in known.hosts:
                text = f"{self._what}: there is no host {host}, but {', '.join(known.hosts)}"
                self._problems.add("ResourceNotFound", text)
        found: t.Dict[str, t.Union[KnownVm, str, None]] = {}
        if not all(told.values()):  # those that say nothing of their own are read once, so that problems are told once
            alike = self._problems.attempt("", self._at, "", {})
            found = {host: alike for host, own in told.items() if not own}
        own_ones = {host: self._problems.attempt("", self._at, host, own) for host, own in told.items() if own}
        at = {host: vm for host, vm in {**found, **own_ones}.items() if vm is not None}
        beside = {host: int((own or {}).get("beside", 0)) for host, own in told.items()}
        return NewVm(raw["name"], at, raw["spread"] or "", beside)

    def _at(self, host: str, own: _Raw) -> t.Union[KnownVm, str]:
        what = f"{self._what}, host {host}" if host else self._what
        unknown = sorted(set(own) - {"refused", "disks", "memory", "vcpus", "beside"})
        if unknown:
            text = f"{what}: {', '.join(unknown)} is unknown. There are refused, disks, memory, vcpus and beside."
            raise FlexdiskError("InvalidArgument", text)
        if own.get("refused"):
            return str(own["refused"])
        raw = {**self._raw, **own}
        memory, cpus = self._size(raw, what, "memory"), of(raw, what, "vcpus", int)
        if cpus < 1:
            raise FlexdiskError("InvalidArgument", f"{what}: vcpus is {cpus}, but must be at least 1")
        pool, disk = self._disks(raw, what)
        return KnownVm(
            self._raw["name"],
            host,
            memory=memory,
            cpus=cpus,
            template=COPIED,
            disks=(disk,),
            disk=disk,
            state=UP if raw["running"] else DOWN,
            exclusive=exclusive_tags(raw["tags"] or {}, self._exclusive),
            pool=pool,
        )

    def _disks(self, raw: _Raw, what: str) -> t.Tuple[str, int]:
        disks = raw["disks"] or {}
        if len(disks) != 1:
            raise FlexdiskError("InvalidArgument", f"{what}: disks must have one pool, but has {len(disks)}")
        (pool,) = disks
        return str(pool), self._size(disks, f"{what}, disks", pool)

    @staticmethod
    def _size(raw: _Raw, what: str, key: str) -> int:
        if raw[key] is None:
            raise FlexdiskError("MissingParameter", f"{what}: {key} is missing")
        try:
            return parse_size(raw[key], name=key)
        except FlexdiskError as exc:
            raise FlexdiskError(exc.code, f"{what}: {exc.message}") from exc
