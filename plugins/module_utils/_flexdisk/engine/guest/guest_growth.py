# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of guest_growth: find the disk, and grow what lies on it."""

from __future__ import annotations

import os
import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import is_uuid, serial_of
from ..host.runner import SubprocessRunner
from ..run.module import Module, check_core, error
from .guest_grow import grow
from .guest_observe import Guest


def run_guest_growth(module: Module, core: str) -> None:
    """Run the module to its end. core: the version of ansible-core."""
    params = module.params
    try:
        check_core(core)
        if os.geteuid() != 0:
            raise FlexdiskError("NotPermitted", "only root can grow file systems; set become")
        runner = SubprocessRunner()
        kname = Guest(runner).find(wanted_serial(params), params["pci_address"])
        result = grow(runner, kname, params, module.check_mode)
    except FlexdiskError as exc:
        module.fail_json(**error(exc))
    module.exit_json(**result)


def wanted_serial(params: t.Mapping[str, t.Any]) -> t.Optional[str]:
    """Return the serial number of the disk by the arguments, None if they have none. Raises InvalidArgument."""
    if params["disk_uuid"] is None:
        return t.cast(t.Optional[str], params["serial"])
    uuid = params["disk_uuid"].lower()
    if not is_uuid(uuid):
        raise FlexdiskError("InvalidArgument", f"disk_uuid {uuid} is not a UUID")
    return serial_of(uuid)
