# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs of SmartOS, `vmadm` and others, over any machine that offers a zfs."""

from __future__ import annotations

from typing import List

from simnode.vmadm import cli, images, machine
from simnode.vmadm.arguments import reads_stdin
from simnode.vmadm.host import Result, VmadmHost

PROGRAMS = ("vmadm", "imgadm", "sysinfo", "kstat")

__all__ = ["PROGRAMS", "reads_stdin", "run"]


def run(program: str, host: VmadmHost, argv: List[str], stdin: str = "") -> Result:
    """One of the programs with these arguments."""
    if program == "vmadm":
        return cli.main(host, argv, stdin)
    if program == "imgadm":
        return images.imgadm(host, argv, stdin)
    return (machine.sysinfo if program == "sysinfo" else machine.kstat)(host, argv)
