# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""One read of everything: the hypervisor's VMs, every dataset of their pools, the pools' layout."""

from __future__ import annotations

import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.errors import FlexdiskError
from ..rules.identity import check_pool
from ..rules.inventory import Host, link
from ..rules.layout import container
from ..zfs.commands import Zfs
from ..zfs.errors import ZfsError
from .journal import with_journal


def observe(
    zfs: Zfs,
    hypervisor: Hypervisor,
    pool: t.Optional[str] = None,
    snapshots: bool = True,
    more: str = "",
    complete: bool = False,
) -> Host:
    """What is now. pool restricts the VMs to those of one pool; without it every pool that has VMs is read, and on a
    host without VMs every pool with detached disks. more is a pool that is read besides.

    snapshots=False leaves snapshots unread: cheaper where there are many, and enough without space figures. complete:
    intents that are not listed, too.
    """
    if pool is not None:
        check_pool(pool)
    asked = {pool for pool in (pool, more and check_pool(more)) if pool}
    configs, elsewhere = hypervisor.vms(), []
    if pool is not None:
        elsewhere = [c for c in configs if c.pool != pool and (c.pool or not c.bare)]
        configs = [c for c in configs if c.pool == pool or (c.bare and not c.pool)]
    pools = sorted({c.pool for c in configs if c.pool} | asked)
    if pool is None and any(c.bare and not c.pool for c in configs):
        # Where it lies only its dataset tells.
        pools = []
    try:
        datasets = zfs.datasets(*pools, snapshots=snapshots)
    except ZfsError as exc:
        if exc.code == "ResourceNotFound":
            raise FlexdiskError("ResourceNotFound", f"no such pool: {', '.join(pools)} ({exc.message})") from exc
        raise
    if not pools:
        uuids = {c.uuid for c in configs}
        ours = (d.pool for d in datasets if d.name == container(d.pool) or d.name[len(d.pool) + 1 :] in uuids)
        pools = sorted({*ours, *asked, *(c.pool for c in configs if c.pool)})
    brand = hypervisor.capabilities.brand
    host = link(configs, datasets, zfs.geometries(pools, datasets) if pools else {}, brand, elsewhere)
    return with_journal(zfs, host, complete)
