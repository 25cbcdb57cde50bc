# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs of Proxmox VE, `qm` and `pvesm`, over any machine that offers a zfs.

They do what was seen of PVE 9.2.6, as tests/conformance/data/proxmox has it. Where nothing was seen, they do nothing,
say so and end with status 96.
"""

from __future__ import annotations

from typing import List

from simnode.pve.host import PveHost, Result

PROGRAMS = ("qm", "pvesm")

__all__ = ["PROGRAMS", "run"]


def run(program: str, host: PveHost, argv: List[str]) -> Result:
    """One of the programs with these arguments."""
    if program == "qm":
        from simnode.pve import qm

        return qm.main(host, argv)
    from simnode.pve import pvesm

    return pvesm.main(host, argv)
