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
from .raw import typed_value

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
    """Return the VMs as a task declares them. exclusive: as in Settings. What is wrong goes to the problems."""
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
        self._label = f"new_vms: {raw['name']}"

    def read(self) -> NewVm:
        """Return the VM, with what it takes of each host."""
        raw, known = self._raw, self._facts.known
        hosts: _Raw = raw["hosts"] if raw["hosts"] is not None else dict.fromkeys(known.hosts)
        for host in hosts:
            if host not in known.hosts:
                text = f"{self._label}: there is no host {host}, but {', '.join(known.hosts)}"
                self._problems.add("ResourceNotFound", text)
        by_host: t.Dict[str, t.Union[KnownVm, str, None]] = {}
        if not all(hosts.values()):  # those that say nothing of their own are read once, so that problems are told once
            alike = self._problems.attempt("", self._at, "", {})
            by_host = {host: alike for host, host_values in hosts.items() if not host_values}
        specific = {
            host: self._problems.attempt("", self._at, host, host_values)
            for host, host_values in hosts.items()
            if host_values
        }
        at = {host: vm for host, vm in {**by_host, **specific}.items() if vm is not None}
        beside = {host: int((host_values or {}).get("beside", 0)) for host, host_values in hosts.items()}
        return NewVm(raw["name"], at, raw["spread"] or "", beside)

    def _at(self, host: str, host_values: _Raw) -> t.Union[KnownVm, str]:
        label = f"{self._label}, host {host}" if host else self._label
        unknown = sorted(set(host_values) - {"refused", "disks", "memory", "vcpus", "beside"})
        if unknown:
            text = f"{label}: {', '.join(unknown)} is unknown. There are refused, disks, memory, vcpus and beside."
            raise FlexdiskError("InvalidArgument", text)
        if host_values.get("refused"):
            return str(host_values["refused"])
        raw = {**self._raw, **host_values}
        memory, cpus = self._size(raw, label, "memory"), typed_value(raw, label, "vcpus", int)
        if cpus < 1:
            raise FlexdiskError("InvalidArgument", f"{label}: vcpus is {cpus}, but must be at least 1")
        pool, disk = self._disks(raw, label)
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

    def _disks(self, raw: _Raw, label: str) -> t.Tuple[str, int]:
        disks = raw["disks"] or {}
        if len(disks) != 1:
            raise FlexdiskError("InvalidArgument", f"{label}: disks must have one pool, but has {len(disks)}")
        (pool,) = disks
        return str(pool), self._size(disks, f"{label}, disks", pool)

    @staticmethod
    def _size(raw: _Raw, label: str, key: str) -> int:
        if raw[key] is None:
            raise FlexdiskError("MissingParameter", f"{label}: {key} is missing")
        try:
            return parse_size(raw[key], name=key)
        except FlexdiskError as exc:
            raise FlexdiskError(exc.code, f"{label}: {exc.message}") from exc
