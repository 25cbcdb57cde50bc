# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `vmadm` and `imgadm` programs over any machine that offers a zfs."""

from __future__ import annotations

from simnode.vmadm.arguments import reads_stdin
from simnode.vmadm.cli import main
from simnode.vmadm.images import imgadm as imgadm_main

__all__ = ["imgadm_main", "main", "reads_stdin"]
