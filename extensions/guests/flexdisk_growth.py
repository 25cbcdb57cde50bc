# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program in the user-data of new guests: the root file system gets the whole disk. Python runs it packed."""

from __future__ import annotations

import os
import sys

from _flexdisk.engine.guest.guest_grow import grow
from _flexdisk.engine.guest.guest_observe import Guest
from _flexdisk.engine.host.runner import SubprocessRunner
from _flexdisk.model.errors import FlexdiskError

BACKUPS = "var/lib/flexdisk"  # as the module guest_growth has it by default


def main(mount_point: str = "/", root: str = "/") -> None:
    """Grow what lies on the disk below mount_point, and print what was done.

    What is refused goes to standard error, with status 1. root is where the guest's /sys, /proc, /etc and /var are.
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


if __name__ == "__main__":
    main(*sys.argv[1:])
