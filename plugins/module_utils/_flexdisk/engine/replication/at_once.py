# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work that is done for many VMs with as few commands as for one."""

from __future__ import annotations

import typing as t

from ...fleet.replication.transfers import VmTransfer
from ...model.errors import FlexdiskError

_Vms = t.Sequence[VmTransfer]


def at_once(vms: _Vms, work: t.Callable[[_Vms], None], failures: t.List[str]) -> t.List[VmTransfer]:
    """Do the work for all VMs at once. If that fails, do it for each alone, so that one does not stop the others.

    Args:
        work: can be done again after it has failed.
        failures: a message for each VM that fails is appended.

    Returns:
        The VMs for which it was done.
    """
    try:
        work(vms)
    except FlexdiskError as exc:
        if len(vms) > 1:
            return [done for vm in vms for done in at_once([vm], work, failures)]
        failures.append(f"{vms[0].full_label}: {exc.message} [{exc.code}]")
        return []
    return list(vms)
