# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the container of a pool: the place of its detached disks, of the journal and of leases."""

from __future__ import annotations

from ...model.capabilities import Capabilities
from ...rules.layout import container
from ...zfs.commands import Zfs


def make_container(zfs: Zfs, capabilities: Capabilities, pool: str) -> None:
    """Make the container of the pool, which must not exist."""
    # Detached volumes get devices without partitions. illumos lacks this property, and looks for no partitions.
    hidden = {} if capabilities.platform == "illumos" else {"volmode": "dev"}
    zfs.create_container(container(pool), **hidden)
