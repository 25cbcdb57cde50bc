# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Requests of Ganeti's IAllocator protocol, version 2, answered as hail 3.0.2 answers them."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from .hail_allocation import Demand, allocate, replicate
from .hail_change_group import change_group
from .hail_evacuation import MODES, PRIMARY, SECONDARY, evacuate
from .iallocator_answer import failed, moves, success
from .iallocator_read import KVM_MEMORY, new_vm, of, read
from .known import MOVABLE, REPLICATED, Known
from .places import Moved, Places

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]


class Options(t.NamedTuple):
    """How a request is answered. checked: no host may have VMs that could not go elsewhere if it were lost. soft:
    limits that are no physical ones hold. kvm_memory: MiB that a host of the hypervisor kvm needs itself. allowed: the
    only hosts that new VMs get, None for all.
    """

    checked: bool = True
    soft: bool = True
    kvm_memory: int = KVM_MEMORY
    allowed: t.Optional[t.FrozenSet[str]] = None


def answer(raw: _Raw, options: Options) -> _Dict:
    """The answer to a request. Raises FlexdiskError InvalidArgument for one that is not valid."""
    known = read(raw, options.kvm_memory)
    request = of(raw, "request", "request", dict)
    kind = of(request, "request", "type", str)
    if kind not in _ANSWERS:
        raise FlexdiskError("InvalidArgument", f"request: type is {kind}, but must be {' or '.join(sorted(_ANSWERS))}")
    return _ANSWERS[kind](raw, known, request, options)


def _names(known: Known, request: _Raw) -> t.List[str]:
    """The VMs of a request to move some."""
    names: t.List[str] = of(request, "request", "instances", list)
    for name in names:
        _known_name(known, name)
    return names


def _known_name(known: Known, name: str) -> str:
    if name not in known.vms:
        raise FlexdiskError("InvalidArgument", f"request: no such instance: {name}")
    return name


def _node_evacuate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    mode = of(request, "request", "evac_mode", str)
    if mode not in MODES:
        raise FlexdiskError("InvalidArgument", f"request: evac_mode is {mode}, but must be {' or '.join(MODES)}")
    return moves(known, evacuate(Places(known, force=not options.soft), _names(known, request), mode))


def _change_group(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """Groups can be named by their keys or their names."""
    told = of(request, "request", "target_groups", list)
    targets = [group_key(known, name) for name in told] or None
    return moves(known, change_group(Places(known), _names(known, request), targets, options.checked))


def group_key(known: Known, name: str) -> str:
    """The key of the group that has this key or this name."""
    keys = [key for key, group in known.groups.items() if name in (key, group.name)]
    if len(keys) != 1:
        raise FlexdiskError("InvalidArgument", f"request: {len(keys)} groups are called {name}")
    return keys[0]


def _allocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    demand = Demand(new_vm(raw, request), options.checked)
    told = request.get("restrict-to-nodes")
    allowed = options.allowed if told is None else frozenset(told)
    name = request.get("group_name")
    choice = allocate(Places(known), demand, group_key(known, name) if name else None, allowed)
    return success(choice.text, list(choice.hosts)) if choice.hosts else failed(choice.text)


def _multi_allocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """One after the other. Those that fit nowhere are named, and the others get their hosts, unlike with hail."""
    places = Places(known)
    found: t.List[t.List[t.Any]] = []
    left: t.List[str] = []
    for entry in of(request, "request", "instances", list):
        vm = new_vm(raw, entry)
        choice = allocate(places, Demand(vm, options.checked), None, options.allowed)
        accounts = places.copied(vm, choice.hosts) if choice.hosts else ""
        if isinstance(accounts, str):
            left.append(vm.name)
            continue
        primary, secondary = (*choice.hosts, "")[:2]
        places.settle(Moved(vm.at(primary, secondary), accounts))
        found.append([vm.name, list(choice.hosts)])
    return success(
        f"{len(left)} instances failed to allocate and {len(found)} were allocated successfully", [found, left]
    )


def _relocate(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    """A new host for the replica, or for a VM on shared storage."""
    vm = known.vms[_known_name(known, of(request, "request", "name", str))]
    if vm.template != REPLICATED and vm.template not in MOVABLE:
        return failed("Can't relocate non-mirrored instances")
    mode, old = (SECONDARY, vm.secondary) if vm.template == REPLICATED else (PRIMARY, vm.primary)
    told = of(request, "request", "relocate_from", list)
    if told != [old]:
        role = "secondary" if mode == SECONDARY else "primary"
        words = f"Unsupported request: excluded nodes not equal to instance's {role}"
        return failed(f"{words} ({old} versus {', '.join(told)})")
    ((_name, solution),) = evacuate(Places(known, force=not options.soft), [vm.name], mode)
    if solution.moved is None:
        return failed(solution.why)
    after = solution.moved.vm
    return success("success", [after.secondary if mode == SECONDARY else after.primary])


def _allocate_secondary(raw: _Raw, known: Known, request: _Raw, options: Options) -> _Dict:
    vm = known.vms[_known_name(known, of(request, "request", "name", str))]
    if vm.secondary:
        return failed("Instance already has a secondary")
    choice = replicate(Places(known), Demand(vm, options.checked))
    return success(choice.text, choice.hosts[1]) if choice.hosts else failed(choice.text)


_ANSWERS: t.Mapping[str, t.Callable[[_Raw, Known, _Raw, Options], _Dict]] = {
    "allocate": _allocate,
    "allocate-secondary": _allocate_secondary,
    "change-group": _change_group,
    "multi-allocate": _multi_allocate,
    "node-evacuate": _node_evacuate,
    "relocate": _relocate,
}
