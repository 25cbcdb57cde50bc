# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of host_info: observe, and report what a planner of placements must know.

No figure promises too much: what there is and what is free is rounded down to whole MiB, what is taken is rounded up.
"""

from __future__ import annotations

import time
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.resources import Resources
from ...model.sizes import MIB
from ...model.vm import Vm
from ...plan.vm import machine
from ...rules.identity import is_uuid
from ...rules.inventory import Host
from ...rules.layout import diverged_container, last_part, pool_of, replicas_container
from ...rules.moves import Move, has_memory, is_place, result, to_ask
from ...rules.replicas import HOME, OF_VM
from ...rules.space import taken
from ...zfs.commands import Zfs
from ..host.observe import observe

_Dict = t.Dict[str, t.Any]


def host_info(zfs: Zfs, hypervisor: Hypervisor, pool: t.Optional[str]) -> _Dict:
    """Return the host as a result. collected is the time before the host was read."""
    began = int(time.time())
    capabilities = hypervisor.capabilities
    host = observe(zfs, hypervisor, pool, snapshots=False, all_pools=True)
    resources = hypervisor.resources()
    places = {last_part(name): pool_of(name) for name in host.datasets if is_place(name)}
    default = [capabilities.default_pool] if pool is None and capabilities.default_pool in host.datasets else []
    return {
        "driver": capabilities.name,
        "collected": began,
        "memory": _memory(resources, host.vms),
        "cpus": resources.cpus,
        "pools": [_pool(host, name) for name in sorted({*host.geometry, *default})],
        "vms": [_vm(host, vm) for vm in sorted(host.vms, key=lambda vm: vm.config.uuid)],
        "replicas": _replicas(host),
        "moves": [_move(host, host.moves[uuid], places.get(uuid, "")) for uuid in sorted(host.moves)],
    }


def _memory(resources: Resources, vms: t.Iterable[Vm]) -> _Dict:
    running = sum(vm.config.memory for vm in vms if vm.config.state == "running")
    used_by_host = max(0, resources.memory - resources.free_memory - running)
    return {"total": resources.memory, "own": used_by_host, "free": resources.free_memory}


def _pool(host: Host, name: str) -> _Dict:
    root, replicas_root, diverged_root = (
        host.datasets[name],
        host.datasets.get(replicas_container(name)),
        host.datasets.get(diverged_container(name)),
    )
    detached_bytes = sum(disk.volume.used for disk in host.detached if disk.volume.pool == name)
    return {
        "name": name,
        "guid": root.guid,
        "size": (root.used + root.available) // MIB,
        "available": root.available // MIB,
        "parked": _to_mib(detached_bytes + (diverged_root.used if diverged_root is not None else 0)),
        "replicas": _to_mib(replicas_root.used if replicas_root is not None else 0),
    }


def _vm(host: Host, vm: Vm) -> _Dict:
    config, values = vm.config, machine(vm)
    return {
        "uuid": config.uuid,
        "alias": config.alias,
        "state": config.state,
        **{key: values[key] for key in ("memory", "vcpus", "drained")},
        "disks": {config.pool: _to_mib(taken(vm, host.geometry[config.pool]))},
        "tags": dict(config.tags),
    }


def _replicas(host: Host) -> t.List[_Dict]:
    """Return the VMs with replicas, by pool, with the guids of their homes' pools, 0 if unknown."""
    sources = {
        (one.user[OF_VM], one.pool, int(home) if home.isdigit() else 0)
        for one, home in ((one, one.user.get(HOME, "")) for one in host.datasets.values())
        if one.parent == replicas_container(one.pool) and is_uuid(one.user.get(OF_VM, ""))
    }
    return [{"vm": vm, "pool": pool, "home": home} for vm, pool, home in sorted(sources)]


def _move(host: Host, move: Move, pool: str) -> _Dict:
    failover = move.taken or bool(move.back_to)
    return {
        **result(move, has_memory(move, host.datasets, host.geometry)),
        "pool": pool,
        "asks": to_ask(move),
        "failover": failover,
    }


def _to_mib(size: int) -> int:
    return -(-size // MIB)
