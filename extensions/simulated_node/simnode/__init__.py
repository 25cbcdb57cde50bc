# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated SmartOS node: zfs, vmadm and other programs over a model of pools, for tests and rehearsals."""

from __future__ import annotations

from simnode.clock import Clock
from simnode.node import Node, PoolSpec

__all__ = ["Clock", "Node", "PoolSpec"]
