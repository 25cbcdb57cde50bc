# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restored disks that take the places of others: the mark of an exchange that has begun, and what is refused then."""

from __future__ import annotations

import re
import typing as t

from ..model.dataset import Dataset
from ..model.vm import Disk, Vm
from . import identity

EXCHANGE = "exchange"  # our property of the restored volume, until all volumes of the task are in their places
REPLACED = "replaced"  # our property of what a disk had before: what it was exchanged for, as RESTORED says it
READY = "exchange.ready"  # our property of a volume restored for an exchange: it has not been attached since
_MARK = re.compile(
    r"([0-9a-f-]{36})/([0-9]{1,20})/([A-Za-z0-9_.:-]{1,200})/([0-9a-f-]{36})/([A-Za-z0-9._-]{1,64})/([0-9]{1,3})\Z"
)


class Exchange(t.NamedTuple):
    """An exchange that has begun."""

    # The UUID of the disk.
    disk: str
    # The guid of the volume that the disk had before.
    former: int
    # The last part of the name of the disk's volume.
    place: str
    # The UUID and the name that the former volume gets: those that the restored one had.
    uuid: str
    name: str
    # How many disks are exchanged together.
    together: int = 1


def encode(exchange: Exchange) -> str:
    """Return the value of EXCHANGE."""
    return "/".join(map(str, exchange))


def decode(value: str) -> t.Optional[Exchange]:
    """Return what a value of EXCHANGE says, None for an invalid one."""
    match = _MARK.match(value)
    if not (match and identity.is_uuid(match[1]) and identity.is_uuid(match[4]) and identity.DISK_NAME.match(match[5])):
        return None
    return Exchange(match[1], int(match[2]), match[3], match[4], match[5], int(match[6]))


def exchange_of(volume: Dataset) -> t.Optional[Exchange]:
    """Return the exchange that a volume is marked for. A mark that a stream has brought does not count."""
    return None if EXCHANGE in volume.received else decode(volume.user.get(EXCHANGE, ""))


def is_ready(volume: Dataset) -> bool:
    """Return whether a restored volume still has what it was restored from, and the bookmark that syncs need."""
    return volume.user.get(READY) == "on" and READY not in volume.received


def begun(vm: Vm) -> t.List[Exchange]:
    """Return the exchanges of a VM's disks that have begun and not ended."""
    known = (exchange_of(disk.volume) for disk in (*vm.disks, *vm.orphans, *vm.detached))
    return [one for one in known if one is not None]


def why_refused(vm: Vm) -> str:
    """Return why nothing else is done with a VM: such an exchange was interrupted. "" if none was."""
    names = ", ".join(f"{one.disk} (its former contents become {one.name})" for one in begun(vm))
    if not names:
        return ""
    return (
        f"the restore of its disks was interrupted while volumes changed places: {names}. The playbook that restores "
        "them (restore_disk or restore_vm) ends it, with the same variables"
    )


def why_held(vms: t.Iterable[Vm], disk: Disk) -> str:
    """Return why no task takes a disk, also for another VM: a restore of its VM was interrupted. "" if none was."""
    for vm in vms:
        marks = begun(vm)
        its_own = disk.vm == vm.config.uuid or any(disk.volume.name == one.name for one in vm.volumes)
        if marks and (its_own or any(one.former == disk.volume.guid for one in marks)):
            return why_refused(vm)
    return ""
