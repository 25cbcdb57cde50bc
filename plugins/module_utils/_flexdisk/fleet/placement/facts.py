# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner's input: reports of hosts (results of host_info) and their declarations."""

from __future__ import annotations

import math
import typing as t
from dataclasses import replace

from ...model.errors import FlexdiskError, Problems
from ...rules.moves import MOVED
from ...rules.naming import Identifiers
from ...rules.one_host import same_host_problems
from .known import COPIED, DOWN, PREFERRED, UP, Known, KnownGroup, KnownHost, KnownVm
from .raw import typed_value

_Raw = t.Mapping[str, t.Any]
ONLY = "all"  # the name of the group where no host has one
# What vmadm and libvirt say of a VM.
_STATES = (
    *("configured", "down", "failed", "incomplete", "installed", "provisioning", "ready", "receiving", "running"),
    *("shutting_down", "stopped", "stopping", "unknown"),
    *("crashed", "paused", "saved", "shutting down", "suspended"),
)


class Settings(t.NamedTuple):
    """How facts are judged."""

    # Seconds since 1970.
    now: float
    # Seconds that what a host says may be old.
    max_age: int
    # Keys of tags. Two VMs with the same value shall not be on one host.
    exclusive: t.Tuple[str, ...] = ()
    # Pairs of host tags, from and to, that are allowed although the target lacks the first.
    moves: t.FrozenSet[t.Tuple[str, str]] = frozenset()


class Facts(t.NamedTuple):
    """What is known of hosts and VMs."""

    # VMs are called by their UUIDs here.
    known: Known
    # UUID and alias of each VM.
    names: t.Tuple[Identifiers, ...]
    # By UUID.
    tags: t.Mapping[str, _Raw]
    # The hosts that could not be read, with the reason.
    unread: t.Mapping[str, str]
    # The VMs that are being moved, which no plan moves.
    moving: t.Tuple[Identifiers, ...] = ()

    def alias(self, uuid: str) -> str:
        """Return what people call a VM."""
        return next((names.alias for names in self.names if names.uuid == uuid and names.alias), uuid)


def read_facts(hosts: t.Sequence[_Raw], groups: t.Sequence[_Raw], settings: Settings, problems: Problems) -> Facts:
    """Return the facts. Contradictions become problems.

    hosts: C(name), C(group), C(info) (what host_info returned, None if the host could not be read), C(error),
    C(drained), C(tags) and C(locations). groups: C(name), C(alloc_policy) and C(cpu_ratio).
    """
    hosts = [_movable(host) for host in hosts]
    _once("host", [host["name"] for host in hosts], problems)
    known_groups = _groups(hosts, groups, problems)
    known_hosts: t.Dict[str, KnownHost] = {}
    vms: t.List[_Vm] = []
    for raw in hosts:
        host, vm_facts = _Host(raw, settings, problems).read()
        known_hosts[host.name] = host
        vms += vm_facts
    _check_pools(hosts, problems)
    _check_uuids([vm_facts.vm for vm_facts in vms], problems)
    known_hosts = _with_replicas(known_hosts, hosts, [vm_facts.vm for vm_facts in vms])
    known = Known(known_groups, known_hosts, {vm_facts.vm.name: vm_facts.vm for vm_facts in vms}, settings.moves)
    names = tuple(Identifiers(vm_facts.vm.name, vm_facts.alias) for vm_facts in vms)
    return Facts(
        known,
        names,
        {vm_facts.vm.name: vm_facts.tags for vm_facts in vms},
        {raw["name"]: _silence(raw) for raw in hosts if raw["info"] is None},
        tuple(
            Identifiers(move["uuid"], move["alias"])
            for raw in hosts
            for move in _moves(raw["info"] or {})
            if move["phase"] != MOVED
        ),
    )


def _movable(raw: _Raw) -> _Raw:
    """Return the host, without facts if nothing is moved there: it counts as one that could not be read."""
    if not raw["info"] or raw["info"].get("driver") != "proxmox":
        return raw
    return {**raw, "info": None, "error": "it runs Proxmox VE, from and to which this collection moves nothing"}


def _with_replicas(
    known: t.Mapping[str, KnownHost], hosts: t.Sequence[_Raw], vms: t.Sequence[KnownVm]
) -> t.Dict[str, KnownHost]:
    """Return the hosts, each with the VMs whose replicas there have come from another pool than the VM's own."""
    infos = {raw["name"]: raw["info"] or {} for raw in hosts}
    guids = {(name, pool["name"]): pool.get("guid") for name, info in infos.items() for pool in info.get("pools", ())}
    homes = {vm.name: (vm.pool, guids.get((vm.primary, vm.pool))) for vm in vms}
    result = {}
    for name, host in known.items():
        entries = [(one["vm"], one["pool"], one["home"]) for one in infos[name].get("replicas") or ()]
        outdated = [vm for vm, pool, home in entries if vm in homes and homes[vm][0] == pool and homes[vm][1] != home]
        result[name] = replace(host, replicas=frozenset(outdated)) if outdated else host
    return result


def _moves(info: _Raw) -> t.List[_Raw]:
    """Return the recorded moves of a host; nothing for an older host_info."""
    return list(info.get("moves") or ())


def _silence(raw: _Raw) -> str:
    return raw["error"] or "no reason is given"


class _Vm(t.NamedTuple):
    vm: KnownVm
    alias: str
    tags: _Raw


def group_of(raw: _Raw) -> str:
    """Return the group of a host, ONLY if it has none."""
    return str(raw["group"] or ONLY)


def _once(kind: str, names: t.Sequence[str], problems: Problems) -> None:
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("InvalidArgument", f"{kind} {name} is listed more than once")


def _groups(hosts: t.Sequence[_Raw], raw: t.Sequence[_Raw], problems: Problems) -> t.Dict[str, KnownGroup]:
    without = [host["name"] for host in hosts if not host["group"]]
    names = list(dict.fromkeys(map(group_of, hosts)))
    if without and len(without) < len(hosts):
        used = ", ".join(name for name in names if name != ONLY)
        text = f"{', '.join(without)}: in no host group, but other hosts are in {used}. Each host must be in one."
        problems.add("InvalidArgument", text)
    _once("host group", [group["name"] for group in raw], problems)
    for group in raw:
        if group["name"] not in names:
            problems.add("InvalidArgument", f"host group {group['name']} has no host; there are {', '.join(names)}")
        ratio = group.get("cpu_ratio")
        if ratio is not None and not 0 < ratio < math.inf:
            text = f"host group {group['name']}: cpu_ratio is {ratio}, but must be a number above 0"
            problems.add("InvalidArgument", text)
    declared = {group["name"]: group for group in raw}
    return {name: _group(name, declared.get(name, {})) for name in names}


def _group(name: str, raw: _Raw) -> KnownGroup:
    ratio = raw.get("cpu_ratio")
    ratio = -1.0 if ratio is None else ratio
    policy = raw.get("alloc_policy") or PREFERRED
    return KnownGroup(name, name, policy, templates=frozenset([COPIED]), cpu_ratio=ratio)


class _Host:
    """Reads one host."""

    def __init__(self, raw: _Raw, settings: Settings, problems: Problems) -> None:
        self._raw = raw
        self._name = raw["name"]
        self._settings = settings
        self._problems = problems

    def read(self) -> t.Tuple[KnownHost, t.List[_Vm]]:
        """Return the host and its VMs."""
        raw = self._raw
        if raw["info"] is None:
            return KnownHost(self._name, group_of(raw), False, unusable=f"could not be read: {_silence(raw)}"), []
        try:
            moving = {move["uuid"] for move in _moves(raw["info"])}
            vms = [vm for vm in typed_value(raw["info"], self._label, "vms", list) if vm.get("uuid") not in moving]
            return self._host(raw["info"]), [self._vm(vm, raw["info"]) for vm in vms]
        except FlexdiskError as exc:
            self._problems.add(exc.code, exc.message)
            return KnownHost(self._name, group_of(raw), False), []

    @property
    def _label(self) -> str:
        return f"host {self._name}"

    def _host(self, info: _Raw) -> KnownHost:
        self._check_age(typed_value(info, self._label, "collected", int))
        memory = typed_value(info, self._label, "memory", dict)
        total, own_memory, free = (
            self._figure(memory, f"{self._label}, memory", key) for key in ("total", "own", "free")
        )
        for key, value in (("own", own_memory), ("free", free)):
            self._check(value <= total, f"{self._label}: {value} MiB of memory are {key}, but it has {total} MiB")
        pools = typed_value(info, self._label, "pools", list)
        names = [typed_value(pool, f"{self._label}, pools", "name", str) for pool in pools]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._check(False, f"{self._label}: pool {name} is listed more than once")
        sizes = {name: self._pool(pool) for name, pool in zip(names, pools)}
        raw = self._raw
        return KnownHost(
            self._name,
            group_of(raw),
            usable=not raw["drained"],
            unusable="is drained",
            memory=total,
            own_memory=own_memory,
            free_memory=free,
            disk=sum(size for size, _available in sizes.values()),
            free_disk=sum(available for _size, available in sizes.values()),
            cpus=self._figure(info, self._label, "cpus"),
            tags=frozenset(raw["tags"] or ()),
            locations=frozenset(raw["locations"] or ()),
            pools={name: available for name, (_size, available) in sizes.items()},
        )

    def _pool(self, raw: _Raw) -> t.Tuple[int, int]:
        text = f"{self._label}, pool {raw['name']}"
        size, available = (self._figure(raw, text, key) for key in ("size", "available"))
        self._check(available <= size, f"{text}: {available} MiB are available, but it has {size} MiB")
        return size, available

    def _vm(self, raw: _Raw, info: _Raw) -> _Vm:
        uuid = typed_value(raw, f"{self._label}, vms", "uuid", str)
        alias = typed_value(raw, f"{self._label}, VM {uuid}", "alias", str)
        text = f"{self._label}, VM {alias or uuid}"
        disks = typed_value(raw, text, "disks", dict)
        self._check(len(disks) == 1, f"{text}: has its disks in {len(disks)} pools, but must have them in one")
        for pool in disks:
            self._check(
                any(one["name"] == pool for one in info["pools"]), f"{text}: has disks in {pool}, a pool unknown here"
            )
        pool = next(iter(disks), "")
        disk = self._figure(disks, f"{text}, disks", pool) if disks else 0
        tags, state = typed_value(raw, text, "tags", dict), typed_value(raw, text, "state", str)
        self._check(state in _STATES, f"{text}: state is {state:.40}, which no hypervisor says of a VM")
        vm = KnownVm(
            uuid,
            self._name,
            memory=self._figure(raw, text, "memory"),
            cpus=self._figure(raw, text, "vcpus"),
            template=COPIED,
            disks=(disk,),
            disk=disk,
            state=UP if state == "running" else DOWN,
            exclusive=exclusive_tags(tags, self._settings.exclusive),
            pool=pool,
            home=self._name,
        )
        return _Vm(vm, alias, tags)

    def _figure(self, raw: _Raw, label: str, key: str) -> int:
        value: int = typed_value(raw, label, key, int)
        self._check(value >= 0, f"{label}: {key} is {value}, but must not be negative")
        return value

    def _check(self, fine: bool, message: str) -> None:
        if not fine:
            self._problems.add("InvalidArgument", message)

    def _check_age(self, collected: int) -> None:
        age, most = int(self._settings.now) - collected, self._settings.max_age
        if most < 0:  # which is refused for itself
            return
        self._check(age <= most, f"{self._label}: what it says is {age} s old, but max_age is {most} s")
        self._check(
            -age <= most, f"{self._label}: what it says is of {-age} s from now: the clocks differ, max_age is {most} s"
        )


def exclusive_tags(tags: _Raw, keys: t.Iterable[str]) -> t.FrozenSet[str]:
    """Return the tags of a VM with one of the keys, as texts."""
    return frozenset(f"{key}={tags[key]}" for key in keys if key in tags)


def _check_pools(hosts: t.Sequence[_Raw], problems: Problems) -> None:
    """One pool on two hosts means one host with two names: its space would count twice."""
    guids = {host["name"]: [pool.get("guid") for pool in (host["info"] or {}).get("pools", ())] for host in hosts}
    for message in same_host_problems(guids):
        problems.add("Ambiguous", message)


def _check_uuids(vms: t.Sequence[KnownVm], problems: Problems) -> None:
    places: t.Dict[str, t.List[str]] = {}
    for vm in vms:
        places.setdefault(vm.name, []).append(vm.primary)
    for uuid, hosts in places.items():
        if len(hosts) > 1:
            problems.add("Ambiguous", f"VM {uuid} is on several hosts: {', '.join(hosts)}")
