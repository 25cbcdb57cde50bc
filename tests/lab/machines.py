# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines of the lab made ready to work in, from the image to vmadm."""

from __future__ import annotations

import boot
import recipe
import remote
from recipe import step


def bring_up() -> None:
    """Build the image if needed, boot, make the pool, install vmadm. LabError if one of it fails."""
    with recipe.locked(recipe.cache_dir() / "run.lock"):
        if boot.pid() is not None:
            print(f"lab: {boot.current()} is already up")
            return
        recipe.install_tools(build=False)
        image = recipe.ensure_image()
        try:
            with step(f"booting {boot.current()}"):
                boot.start(image)
                remote.wait_for_ssh()
                remote.join_network()
            with step("making the pool"):
                remote.create_pool()
                remote.push_zipcache()
        except BaseException:
            boot.stop()
            raise
    print(f"lab: inventory {remote.write_inventory()}")
    push()


def push() -> None:
    """Copy the simulated node's package into the machine, again if it has one."""
    if remote.has_node():
        with step("installing vmadm"):
            remote.push_node()
    else:
        print(f"lab: {remote.NODE_SOURCE.relative_to(remote.ROOT)} lacks simnode/real.py, vmadm not installed")
