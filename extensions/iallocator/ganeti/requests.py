# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse the hosts, host groups and VMs in a request of Ganeti's IAllocator protocol, version 2."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    DOWN,
    OFFLINE,
    POLICIES,
    TEMPLATES,
    UP,
    Known,
    KnownGroup,
    KnownHost,
    KnownVm,
    Size,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.raw import (
    string_list,
    typed_value,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

_Raw = t.Mapping[str, t.Any]
_LIMITS = ("memory-size", "cpu-count", "disk-size", "disk-count", "spindle-use")
_TAG = "htools:"
KVM_MEMORY = 4096  # MiB that a host of the hypervisor kvm needs itself, whatever it reports


def read(request: _Raw, kvm_memory: int = KVM_MEMORY) -> Known:
    """Return what a request says. kvm_memory: MiB that a host of the hypervisor kvm needs itself, 0: what it reports.

    Raises FlexdiskError InvalidArgument for anything that is missing, of another type, or unknown.
    """
    tags = _Tags(string_list(request, "request", "cluster_tags"))
    hypervisors = string_list(request, "request", "enabled_hypervisors")
    own_memory = kvm_memory if hypervisors[:1] == ["kvm"] else 0
    groups = {key: _group(key, raw) for key, raw in typed_value(request, "request", "nodegroups", dict).items()}
    hosts = {
        name: _host(name, raw, groups, tags, own_memory)
        for name, raw in typed_value(request, "request", "nodes", dict).items()
    }
    vms = {
        name: _vm(name, raw, hosts, tags) for name, raw in typed_value(request, "request", "instances", dict).items()
    }
    return Known(groups, hosts, vms, tags.moves)


class _Tags:
    """What the tags of a cluster say of other tags."""

    def __init__(self, tags: t.Sequence[str]) -> None:
        self._exclusive = self._after(tags, "iextags:")
        self._locations = [tag + ":" for tag in self._after(tags, "nlocation:")]
        self._wanted = [tag + ":" for tag in self._after(tags, "desiredlocation:")]
        self._migration = [tag + ":" for tag in self._after(tags, "migration:")]
        pairs = [tag.split("::", 1) for tag in self._after(tags, "allowmigration:")]
        self.moves = frozenset((pair[0], pair[1]) for pair in pairs if len(pair) == 2)

    @staticmethod
    def _after(tags: t.Sequence[str], word: str) -> t.List[str]:
        return [tag[len(_TAG + word) :] for tag in tags if tag.startswith(_TAG + word)]

    def exclusive(self, tags: t.Iterable[str]) -> t.FrozenSet[str]:
        """Return the tags of which a host may have one VM at most."""
        return _beginning(tags, self._exclusive)

    def wanted(self, tags: t.Iterable[str]) -> t.FrozenSet[str]:
        """Return the locations where a VM should be."""
        return _beginning(tags, self._wanted)

    def locations(self, tags: t.Iterable[str]) -> t.FrozenSet[str]:
        """Return the failure domains of a host."""
        return _beginning(tags, self._locations)

    def migration(self, tags: t.Iterable[str]) -> t.FrozenSet[str]:
        """Return the tags of a host that a target must have, too."""
        return _beginning(tags, self._migration)


def _beginning(tags: t.Iterable[str], prefixes: t.Sequence[str]) -> t.FrozenSet[str]:
    return frozenset(tag for tag in tags if any(tag.startswith(prefix) for prefix in prefixes))


def _ratio(raw: _Raw, label: str, key: str) -> float:
    ratio = float(typed_value(raw, label, key, (int, float)))
    if not math.isfinite(ratio):
        raise FlexdiskError("InvalidArgument", f"{label}: {key} is {ratio}, which is no ratio")
    return ratio


def _group(key: str, raw: _Raw) -> KnownGroup:
    label = f"node group {key}"
    rules = typed_value(raw, label, "ipolicy", dict)
    pairs = [
        tuple(_size(typed_value(pair, f"{label}, minmax", end, dict), f"{label}, minmax") for end in ("min", "max"))
        for pair in typed_value(rules, label, "minmax", list)
    ]
    policy = typed_value(raw, label, "alloc_policy", str)
    if policy not in POLICIES:
        raise FlexdiskError(
            "InvalidArgument", f"{label}: alloc_policy is {policy}, but must be {' or '.join(POLICIES)}"
        )
    return KnownGroup(
        name=typed_value(raw, label, "name", str),
        key=key,
        policy=policy,
        networks=frozenset(string_list(raw, label, "networks")),
        sizes=tuple((minimum, maximum) for minimum, maximum in pairs),
        templates=frozenset(string_list(rules, label, "disk-templates")),
        cpu_ratio=_ratio(rules, label, "vcpu-ratio"),
        spindle_ratio=_ratio(rules, label, "spindle-ratio"),
    )


def _size(raw: _Raw, label: str) -> Size:
    return Size(*(typed_value(raw, label, key, int) for key in _LIMITS))


def _host(name: str, raw: _Raw, groups: t.Mapping[str, KnownGroup], tags: _Tags, own_memory: int) -> KnownHost:
    label = f"node {name}"
    group = typed_value(raw, label, "group", str)
    if group not in groups:
        raise FlexdiskError("InvalidArgument", f"{label}: group {group} is unknown")
    host_tags = string_list(raw, label, "tags", ())
    kinds = tags.migration(host_tags), tags.locations(host_tags)
    there = not typed_value(raw, label, "offline", bool) and typed_value(raw, label, "vm_capable", bool, True)
    usable = there and not typed_value(raw, label, "drained", bool)
    if not there:
        return KnownHost(name, group, False, tags=kinds[0], locations=kinds[1])
    figure = {key: typed_value(raw, label, key, int) for key in _FIGURES}
    return KnownHost(
        *(name, group, usable, figure["total_memory"], own_memory or figure["reserved_memory"], figure["free_memory"]),
        *(figure["total_disk"], figure["free_disk"], figure["total_cpus"], figure["reserved_cpus"]),
        spindles=typed_value(typed_value(raw, label, "ndparams", dict), label, "spindle_count", int),
        tags=kinds[0],
        locations=kinds[1],
    )


_FIGURES = ("total_memory", "reserved_memory", "free_memory", "total_disk", "free_disk", "total_cpus", "reserved_cpus")


def new_vm(given: _Raw, wanted: _Raw) -> KnownVm:
    """Return the VM that a request wants to be made. It has no host yet."""
    tags = _Tags(string_list(given, "request", "cluster_tags"))
    return _known_vm(typed_value(wanted, "request", "name", str), wanted, [""], tags)


def _vm(name: str, raw: _Raw, hosts: t.Mapping[str, KnownHost], tags: _Tags) -> KnownVm:
    label = f"instance {name}"
    nodes = string_list(raw, label, "nodes")
    unknown = [node for node in nodes if node not in hosts]
    if unknown or not nodes:
        raise FlexdiskError("InvalidArgument", f"{label}: node {', '.join(unknown) or 'of its own'} is unknown")
    return _known_vm(name, raw, nodes, tags)


def _known_vm(name: str, raw: _Raw, nodes: t.Sequence[str], tags: _Tags) -> KnownVm:
    label = f"instance {name}"
    template = typed_value(raw, label, "disk_template", str)
    if template not in TEMPLATES:
        raise FlexdiskError("InvalidArgument", f"{label}: disk_template is {template}, which is unknown")
    vm_tags = string_list(raw, label, "tags")
    networks = [
        typed_value(nic, f"{label}, nic", "network", (str, type(None)), "")
        for nic in typed_value(raw, label, "nics", list)
    ]
    state = typed_value(raw, label, "admin_state", str, UP)
    if state not in (UP, DOWN, OFFLINE):
        raise FlexdiskError("InvalidArgument", f"{label}: admin_state is {state}, which is unknown")
    return KnownVm(
        name=name,
        primary=nodes[0],
        secondary=nodes[1] if len(nodes) > 1 else "",
        memory=typed_value(raw, label, "memory", int),
        cpus=typed_value(raw, label, "vcpus", int),
        spindles=typed_value(raw, label, "spindle_use", int),
        template=template,
        disks=tuple(
            typed_value(disk, f"{label}, disk", "size", int) for disk in typed_value(raw, label, "disks", list)
        ),
        disk=typed_value(raw, label, "disk_space_total", int),
        state=state,
        networks=frozenset(network for network in networks if network),
        exclusive=tags.exclusive(vm_tags),
        wanted=tags.wanted(vm_tags),
    )
