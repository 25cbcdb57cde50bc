# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests of Ganeti's IAllocator protocol, version 2, and their answers: as hail 3.0.2 would answer, or better."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_allocation import (
    Demand,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_change_group import (
    change_group,
    possible_groups,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    MODES,
    MOVABLE,
    PRIMARY,
    REPLICATED,
    SECONDARY,
    Known,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Moved
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.raw import (
    string_list,
    typed_value,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.search import plan
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wanted_moves import (
    to_change_group,
    to_leave,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .allocation import allocate, replicate
from .answers import failed, moves, planned, success
from .evacuation import evacuate
from .places import GanetiPlaces
from .requests import KVM_MEMORY, new_vm, read
from .ways import hosts_to_leave

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]


class Options(t.NamedTuple):
    """How requests are answered."""

    # Exactly as hail does.
    like_hail: bool = False
    # No host may have VMs that could not go elsewhere if it were lost.
    checked: bool = True
    # Soft limits hold.
    soft: bool = True
    # MiB that a host of the hypervisor kvm needs itself.
    kvm_memory: int = KVM_MEMORY
    # The only hosts for new VMs, None for all.
    allowed: t.Optional[t.FrozenSet[str]] = None


def answer(raw: _Raw, options: Options) -> _Dict:
    """Return the answer to a request. Raises FlexdiskError InvalidArgument for one that is not valid."""
    known = read(raw, options.kvm_memory)
    request = typed_value(raw, "request", "request", dict)
    kind = typed_value(request, "request", "type", str)
    if kind not in _ANSWERS:
        raise FlexdiskError("InvalidArgument", f"request: type is {kind}, but must be {' or '.join(sorted(_ANSWERS))}")
    return _ANSWERS[kind](raw, known, request, options)


def _names(known: Known, request: _Raw) -> t.List[str]:
    """Return the VMs of a request to move some."""
    names = string_list(request, "request", "instances")
    for name in names:
        _known_name(known, name)
    return names


def _known_hosts(known: Known, names: t.Iterable[str]) -> None:
    unknown = sorted(name for name in names if name not in known.hosts)
    if unknown:
        raise FlexdiskError("InvalidArgument", f"request: no such node: {', '.join(unknown)}")


def _known_name(known: Known, name: str) -> str:
    if name not in known.vms:
        raise FlexdiskError("InvalidArgument", f"request: no such instance: {name}")
    return name


def _node_evacuate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    mode = typed_value(request, "request", "evac_mode", str)
    if mode not in MODES:
        raise FlexdiskError("InvalidArgument", f"request: evac_mode is {mode}, but must be {' or '.join(MODES)}")
    places, names = GanetiPlaces(known, force=not options.soft), _names(known, request)
    if options.like_hail:
        return moves(known, evacuate(places, names, mode))
    wanted_moves = to_leave(known, _once(names), mode, hosts_to_leave(known, names, mode))
    return planned(places, wanted_moves, plan(places, wanted_moves, lambda there: evacuate(there, names, mode)))


def _change_group(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """Groups can be named by their keys or their names."""
    target_names = string_list(request, "request", "target_groups")
    targets = [group_key(known, name) for name in target_names] or None
    places, names = GanetiPlaces(known), _names(known, request)
    if options.like_hail:
        return moves(known, change_group(places, names, targets, options.checked))
    wanted_moves = to_change_group(known, _once(names), possible_groups(places, names, targets), options.checked)
    best_plan = plan(places, wanted_moves, lambda there: change_group(there, names, targets, options.checked))
    return planned(places, wanted_moves, best_plan)


def _once(names: t.Sequence[str]) -> t.Sequence[str]:
    """Return the names. Raises FlexdiskError InvalidArgument if one is there twice."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise FlexdiskError("InvalidArgument", f"request: named more than once: {', '.join(twice)}")
    return names


def group_key(known: Known, name: str) -> str:
    """Return the key of the group that has this key or this name."""
    keys = [key for key, group in known.groups.items() if name in (key, group.name)]
    if len(keys) != 1:
        raise FlexdiskError("InvalidArgument", f"request: {len(keys)} groups are called {name}")
    return keys[0]


def _allocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    demand = Demand(new_vm(raw, request), options.checked, alone=not options.like_hail)
    allowed = options.allowed
    if request.get("restrict-to-nodes") is not None:
        allowed = frozenset(string_list(request, "request", "restrict-to-nodes"))
    _known_hosts(known, allowed or ())
    name = request.get("group_name")
    choice = allocate(GanetiPlaces(known), demand, group_key(known, name) if name else None, allowed)
    return success(choice.text, list(choice.hosts)) if choice.hosts else failed(choice.text)


def _multi_allocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """One after the other. Those that fit nowhere are named, and the others get their hosts, unlike with hail."""
    places = GanetiPlaces(known)
    _known_hosts(known, options.allowed or ())
    placed: t.List[t.List[t.Any]] = []
    left: t.List[str] = []
    for entry in typed_value(request, "request", "instances", list):
        vm = new_vm(raw, entry)
        choice = allocate(places, Demand(vm, options.checked, alone=not options.like_hail), None, options.allowed)
        accounts = places.copied(vm, choice.hosts) if choice.hosts else ""
        if isinstance(accounts, str):
            left.append(vm.name)
            continue
        primary, secondary = (*choice.hosts, "")[:2]
        places.settle(Moved(vm.at(primary, secondary), accounts))
        placed.append([vm.name, list(choice.hosts)])
    return success(
        f"{len(left)} instances failed to allocate and {len(placed)} were allocated successfully", [placed, left]
    )


def _relocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """Return a new host for the replica, or for a VM on shared storage."""
    vm = known.vms[_known_name(known, typed_value(request, "request", "name", str))]
    if vm.template != REPLICATED and vm.template not in MOVABLE:
        return failed("Can't relocate non-mirrored instances")
    mode, current = (SECONDARY, vm.secondary) if vm.template == REPLICATED else (PRIMARY, vm.primary)
    excluded = string_list(request, "request", "relocate_from")
    if excluded != [current]:
        role = "secondary" if mode == SECONDARY else "primary"
        text = f"Unsupported request: excluded nodes not equal to instance's {role}"
        return failed(f"{text} ({current} versus {', '.join(excluded)})")
    ((_name, solution),) = evacuate(GanetiPlaces(known, force=not options.soft), [vm.name], mode)
    if solution.moved is None:
        return failed(solution.why)
    after = solution.moved.vm
    return success("success", [after.secondary if mode == SECONDARY else after.primary])


def _allocate_secondary(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    vm = known.vms[_known_name(known, typed_value(request, "request", "name", str))]
    if vm.secondary:
        return failed("Instance already has a secondary")
    choice = replicate(GanetiPlaces(known), Demand(vm, options.checked))
    return success(choice.text, choice.hosts[1]) if choice.hosts else failed(choice.text)


_ANSWERS: t.Mapping[str, t.Callable[[_Raw, Known, _Raw, Options], _Dict]] = {
    "allocate": _allocate,
    "allocate-secondary": _allocate_secondary,
    "change-group": _change_group,
    "multi-allocate": _multi_allocate,
    "node-evacuate": _node_evacuate,
    "relocate": _relocate,
}
