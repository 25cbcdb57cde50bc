# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One read of everything: the hypervisor's VMs, every dataset of their pools, the pools' layout."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError
from ...model.vm import VmConfig
from ...rules.identity import check_pool
from ...rules.inventory import Host, link
from ...rules.layout import container, is_below, pool_of
from ...rules.power import with_home_state
from ...zfs.commands import Zfs
from ...zfs.errors import ZfsError
from .journal import with_journal


def observe(
    zfs: Zfs,
    hypervisor: Hypervisor,
    pool: t.Optional[str] = None,
    snapshots: bool = True,
    extra_pool: str = "",
    complete: bool = False,
    all_pools: bool = False,
) -> Host:
    """Read the host.

    Args:
        pool: read only VMs of this pool, with all their disks. None: read all pools with VMs; without any VM, all pools
            with detached disks.
        snapshots: False skips snapshots, which is faster, and enough where used space does not matter.
        extra_pool: one further pool to read.
        complete: also read intents that the index does not list.
        all_pools: without pool, read all pools, also those with detached disks only.
    """
    asked = {check_pool(name) for name in (pool, extra_pool) if name}
    configs, elsewhere = _split_by_pool(hypervisor.vms(), pool)
    unplaced = pool is None and (all_pools or any(c.identity_in_zfs and not c.pool for c in configs))
    known = {c.pool for c in configs if c.pool} | asked
    # A VM without a dataset of its own has disks in all pools, also those that were detached from it.
    known |= {pool_of(prefix) for c in configs for prefix in c.prefixes}
    named = [] if unplaced else sorted(known)
    datasets = _datasets(zfs, named, snapshots)
    pools = named or sorted(known | _pools_in_use(datasets, configs))
    brand = hypervisor.capabilities.brand
    host = link(configs, datasets, zfs.geometries(pools, datasets) if pools else {}, brand, elsewhere)
    _check_complete(zfs, host)
    return _with_homes(hypervisor, with_journal(zfs, host, complete))


def _with_homes(hypervisor: Hypervisor, host: Host) -> Host:
    """Mark the VMs with failover that are known to be at home. It takes one process, if there are any."""
    if not any(vm.config.failover for vm in host.vms):
        return host
    boot = hypervisor.boot_id()
    return replace(host, vms=tuple(with_home_state(vm, boot) for vm in host.vms))


def _check_complete(zfs: Zfs, host: Host) -> None:
    """Raise FlexdiskError UnexpectedOutput if a configured dataset was not printed, but exists.

    Then the output was cut off between two datasets, which nothing else shows.
    """
    expected = [c.dataset for c in host.unlinked if c.dataset and (not c.identity_in_zfs or _lies_below(c))]
    for vm in host.vms:
        ghosts = {*vm.ghosts}
        expected += [e.volume for e in vm.config.disks if e.path in vm.missing and e.path not in ghosts]
    there = zfs.existing(sorted({*expected} - host.datasets.keys()))
    if there:
        text = f"zfs get printed nothing of {', '.join(there)}, which exists: its answer is not whole"
        raise FlexdiskError("UnexpectedOutput", f"{text}, or it was just made; run the task again")


def _lies_below(config: VmConfig) -> bool:
    """Return whether a VM without a dataset is configured with disks below it."""
    return any(is_below(entry.volume, config.dataset) for entry in config.disks)


def _split_by_pool(configs: t.List[VmConfig], pool: t.Optional[str]) -> t.Tuple[t.List[VmConfig], t.List[VmConfig]]:
    """Return the VMs that a task for the pool (None: all) reads, and the others.

    A VM with its identity in ZFS only, and of unknown pool, is always read.
    """
    if pool is None:
        return configs, []
    read = [c for c in configs if c.pool == pool or (c.identity_in_zfs and not c.pool)]
    return read, [c for c in configs if c.pool != pool and (c.pool or not c.identity_in_zfs)]


def _datasets(zfs: Zfs, pools: t.Sequence[str], snapshots: bool) -> t.List[Dataset]:
    """Return the datasets of the pools, of all pools if none is given."""
    try:
        return zfs.datasets(*pools, snapshots=snapshots)
    except ZfsError as exc:
        if exc.code == "ResourceNotFound":
            raise FlexdiskError("ResourceNotFound", f"no such pool: {', '.join(pools)} ({exc.message})") from exc
        raise


def _pools_in_use(datasets: t.Sequence[Dataset], configs: t.Sequence[VmConfig]) -> t.Set[str]:
    """Return the pools that have VMs or detached disks."""
    uuids = {c.uuid for c in configs}
    return {d.pool for d in datasets if d.name == container(d.pool) or d.name[len(d.pool) + 1 :] in uuids}
