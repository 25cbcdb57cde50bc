# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The program that new guests run at each boot: the root file system gets the whole disk. It needs no Ansible."""

from __future__ import annotations

import os
import sys

from ..model.errors import FlexdiskError
from .guest_grow import grow
from .guest_observe import Guest
from .runner import SubprocessRunner

BACKUPS = "var/lib/flexdisk"  # as the module guest_growth has it by default


def main(mount_point: str = "/", root: str = "/") -> None:
    """Grow, and print what was done. What is refused goes to standard error, with status 1.

    root is where the guest's /sys, /proc, /etc and /var are.
    """
    runner = SubprocessRunner()
    try:
        kname, volume = Guest(runner, root).below(mount_point)
        wishes = {"logical_volume": volume, "luks_passphrase": None, "backup_dir": os.path.join(root, BACKUPS)}
        done = grow(runner, kname, wishes, root=root)
    except FlexdiskError as exc:
        sys.exit(f"flexdisk: {exc.message} [{exc.code}]")
    print(f"flexdisk: {done['msg']}")
    if done["backup"]:
        print(f"flexdisk: the partition table as it was is in {done['backup']}")
