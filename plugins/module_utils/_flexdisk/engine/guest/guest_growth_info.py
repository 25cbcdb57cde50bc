# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of guest_growth_info: find the disk, and report how small it can become."""

from __future__ import annotations

import os

from ...model.errors import FlexdiskError
from ..host.runner import SubprocessRunner
from ..run.module import Module, check_core, error
from .guest_growth import wanted_serial
from .guest_room import RoomReader, result


def run_guest_growth_info(module: Module, core: str) -> None:
    """Run the module to its end. core: the version of ansible-core."""
    params = module.params
    try:
        check_core(core)
        if os.geteuid() != 0:
            raise FlexdiskError("NotPermitted", "only root can read disks; set become")
        guest = RoomReader(SubprocessRunner())
        room = guest.room(guest.find(wanted_serial(params), params["pci_address"]))
    except FlexdiskError as exc:
        module.fail_json(**error(exc))
    module.exit_json(**result(room))
