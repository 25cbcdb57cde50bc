# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request of a task to the planner: which VMs move, where to, and which new ones need a host."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ...model.errors import Problems
from ...rules.naming import did_you_mean, find_by_name
from .facts import Facts
from .known import UNALLOCABLE
from .new_vms import NewVm, parse_new_vms

PLACE, CHANGE_GROUP, EVACUATE, REBALANCE = "place", "change_group", "evacuate", "rebalance"
_SELECTING = ("vms", "vm_tags", "from_hosts", "from_groups")
TAKES = {
    PLACE: ("new_vms", "to_groups"),
    CHANGE_GROUP: (*_SELECTING, "to_groups"),
    EVACUATE: ("vms", "vm_tags", "from_hosts"),
    REBALANCE: (*_SELECTING, "max_moves", "min_gain"),
}
_NEEDS = {
    PLACE: (("new_vms",),),
    CHANGE_GROUP: (_SELECTING,),
    EVACUATE: (("from_hosts",),),
    REBALANCE: (),
}
_WIDE = ("vm_tags", "from_hosts", "from_groups", "to_groups")  # without them, more VMs or groups are meant
_Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Request:
    """What is asked of a plan."""

    kind: str
    # UUIDs of the VMs that are asked for.
    names: t.Tuple[str, ...] = ()
    # Hosts that they leave.
    leaves: t.FrozenSet[str] = frozenset()
    # Groups where VMs may go, empty for any.
    targets: t.Tuple[str, ...] = ()
    new: t.Tuple[NewVm, ...] = ()
    # No host may become one whose VMs could not go elsewhere if it were lost.
    redundancy: bool = False
    max_moves: int = 10
    min_gain: float = 0.01


def parse_request(raw: _Raw, facts: Facts, exclusive: t.Sequence[str], problems: Problems) -> Request:
    """Return the request of a task, whose types Ansible has checked. All that is wrong with it goes to the problems.

    exclusive: as in Settings.
    """
    kind = raw["request"]
    _check_options(kind, raw, problems)
    selection = _Selection(raw, facts, problems)
    names = selection.names() if kind != PLACE else ()
    selection.check_targets(names)
    for key in ("max_moves", "min_gain"):
        if raw[key] is not None and not 0 <= raw[key] < math.inf:
            text = "must not be negative" if raw[key] < 0 else "must be a number"
            problems.add("InvalidArgument", f"{key} is {raw[key]}, but {text}")
    figures = {key: raw[key] for key in ("max_moves", "min_gain") if raw[key] is not None}
    return Request(
        kind,
        names,
        frozenset(raw["from_hosts"] or ()),
        tuple(raw["to_groups"] or ()),
        parse_new_vms(raw["new_vms"] or (), facts, exclusive, problems) if kind == PLACE else (),
        raw["redundancy"],
        **figures,
    )


def _check_options(kind: str, raw: _Raw, problems: Problems) -> None:
    every = dict.fromkeys(key for keys in TAKES.values() for key in keys)
    for key in every:
        if raw[key] is not None and key not in TAKES[kind]:
            has = ", ".join(TAKES[kind])
            problems.add("InvalidArgument", f"{key} means nothing to {kind}, which has {has}")
        elif key in _WIDE and raw[key] in ([], {}) and (key,) not in _NEEDS[kind]:
            problems.add("InvalidArgument", f"{key} is empty, which would mean all; leave it out for that")
    for keys in _NEEDS[kind]:
        if all(not raw[key] for key in keys):
            problems.add("InvalidArgument", f"{kind} needs {' or '.join(keys)}")


class _Selection:
    """Which VMs are meant, and which groups."""

    def __init__(self, raw: _Raw, facts: Facts, problems: Problems) -> None:
        self._raw = raw
        self._facts = facts
        self._problems = problems

    def names(self) -> t.Tuple[str, ...]:
        """Return the UUIDs of the VMs. One that is named must fit what else is said; without names, all that fit it."""
        raw, known = self._raw, self._facts.known
        hosts = self._known("from_hosts", known.hosts, "host")
        groups = self._known("from_groups", known.groups, "host group")
        for host in hosts:
            if host in self._facts.unread:
                text = f"host {host} could not be read, so its VMs are not known: {self._facts.unread[host]}"
                self._problems.add("ResourceNotFound", text)
        named = raw["vms"] is not None
        asked = self._named(raw["vms"]) if named else sorted(known.vms)
        selected = []
        for name in asked:
            why = self._why_not(name, hosts, groups)
            if not why:
                selected.append(name)
            elif named:
                self._problems.add("InvalidArgument", f"VM {self._facts.alias(name)}: {why}")
        if not selected and not named and raw["vm_tags"]:
            self._problems.add("ResourceNotFound", f"no VM has {_tags(raw['vm_tags'])}{self._unread_hint()}")
        return tuple(selected)

    def _why_not(self, name: str, hosts: t.Collection[str], groups: t.Collection[str]) -> str:
        known, vm = self._facts.known, self._facts.known.vms[name]
        group = known.hosts[vm.primary].group
        if hosts and vm.primary not in hosts:
            return f"is on {vm.primary}, not on {' or '.join(hosts)}"
        if groups and group not in groups:
            return f"is in the host group {group}, not in {' or '.join(groups)}"
        tags = self._facts.tags.get(name, {})
        wanted = self._raw["vm_tags"] or {}
        missing = {key: value for key, value in wanted.items() if not has_tag(tags, key, value)}
        return f"has not {_tags(missing)}" if missing else ""

    def _named(self, wanted: t.Sequence[str]) -> t.List[str]:
        """Return the UUIDs of what is named. Each name must mean exactly one VM, and no VM may be named twice."""
        names_by_uuid: t.Dict[str, str] = {}
        for name in wanted:
            fits = find_by_name(name, self._facts.names, prefixes=False)
            if not fits and find_by_name(name, self._facts.moving, prefixes=False):
                self._problems.add("InUse", f"VM {name} is being moved already; the playbook move_vm goes on")
            elif len(fits) != 1:
                places = [f"{one.uuid} on {self._facts.known.vms[one.uuid].primary}" for one in fits]
                text = f"VM {name} is {' and '.join(places)}. Name the one that you mean by its UUID."
                self._problems.add("Ambiguous" if fits else "ResourceNotFound", text if fits else self._nobody(name))
            elif fits[0].uuid in names_by_uuid:
                self._problems.add(
                    "InvalidArgument", f"VM {name} is named more than once, also as {names_by_uuid[fits[0].uuid]}"
                )
            else:
                names_by_uuid[fits[0].uuid] = name
        return list(names_by_uuid)

    def _nobody(self, name: str) -> str:
        """C(there is no VM wbe01 on hv01, hv02. Did you mean web01?)."""
        similar = did_you_mean(name, {one.alias: one.alias for one in self._facts.names if one.alias})
        text = f"there is no VM {name} on {', '.join(self._facts.known.hosts)}{self._unread_hint()}"
        return f"{text}. {similar}" if similar else text

    def _unread_hint(self) -> str:
        unread = ", ".join(self._facts.unread)
        return f"; {unread} could not be read and may have it" if unread else ""

    def _known(self, key: str, known: t.Mapping[str, t.Any], kind: str) -> t.List[str]:
        wanted = self._raw[key] or []
        for name in dict.fromkeys(wanted):
            if name not in known:
                self._problems.add("ResourceNotFound", f"{key}: there is no {kind} {name}, but {', '.join(known)}")
            if wanted.count(name) > 1:
                self._problems.add("InvalidArgument", f"{key}: {kind} {name} is named more than once")
        return [name for name in dict.fromkeys(wanted) if name in known]

    def check_targets(self, names: t.Sequence[str]) -> None:
        """The groups where VMs shall go."""
        known = self._facts.known
        for group in self._known("to_groups", known.groups, "host group"):
            already_there = [name for name in names if known.hosts[known.vms[name].primary].group == group]
            if already_there:
                text = ", ".join(map(self._facts.alias, already_there))
                self._problems.add("InvalidArgument", f"to_groups: {text}: in the host group {group} already")
            check_usable(group, self._facts, self._problems)


def check_usable(group: str, facts: Facts, problems: Problems) -> None:
    """A group that is named as a target must take VMs, and one of its hosts must have been read."""
    if facts.known.groups[group].policy == UNALLOCABLE:
        problems.add("InvalidArgument", f"to_groups: the host group {group} is {UNALLOCABLE}, so it takes no VMs")
    members = [name for name, host in facts.known.hosts.items() if host.group == group]
    if all(name in facts.unread for name in members):
        text = "; ".join(f"{name}: {facts.unread[name]}" for name in members)
        problems.add("ResourceNotFound", f"to_groups: no host of {group} could be read: {text}")


def has_tag(tags: _Raw, key: str, value: object) -> bool:
    """Return whether a VM with these tags has this one; any value will do for None."""
    return key in tags and (value is None or str(tags[key]) == str(value))


def _tags(tags: _Raw) -> str:
    return "the tag " + " and the tag ".join(key if tags[key] is None else f"{key}={tags[key]}" for key in tags)
