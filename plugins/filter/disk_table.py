# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter disk_table: what vm_info or disk_info returns, for a reader."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import (
    render_bytes,
    render_mib,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

COLUMNS = ("VM", "DISK", "SLOT", "SIZE", "PRESERVE", "PARKED", "FREE", "ALLOCATABLE")
DISK_COLUMNS = ("VM", "DISK", "STATE", "TYPE", "SLOT", "SIZE", "USED", "FREES POOL", "FREES VM", "UUID")
FIGURES = ("SIZE", "FREE", "ALLOCATABLE", "FREES POOL", "FREES VM")
_Dict = t.Mapping[str, t.Any]
_Row = t.Tuple[str, ...]


def disk_table(found: _Dict) -> t.List[str]:
    """The result of vm_info or disk_info as lines of a table."""
    try:
        return _disks(found["disks"]) if "disks" in found else _table(found)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(
            "disk_table wants a result of flexdisk.hypervisor.vm_info, with vms and parked, or of disk_info, with disks"
            f" ({exc!r})"
        ) from exc


def _table(found: _Dict) -> t.List[str]:
    rows: t.List[_Row] = []
    for vm in found["vms"]:
        space = (_size(vm.get("free_space")), _size(vm.get("allocatable")))
        rows += _vm_rows(vm["alias"] or vm["uuid"], [*vm["disks"], *vm["parked"]], space)
    known = {vm["uuid"] for vm in found["vms"]}
    strays: t.Dict[str, t.List[_Dict]] = {}
    for disk in found["parked"]:
        if disk["vm"] not in known:
            strays.setdefault(disk["vm"], []).append(disk)
    for uuid, disks in sorted(strays.items()):
        rows += _vm_rows(uuid, disks, ("-", "-"))
    return _aligned([COLUMNS, *rows])


def _disks(disks: t.Sequence[_Dict]) -> t.List[str]:
    """One row for each disk; what destroying it would free only where that was asked for."""
    rows: t.List[_Row] = [DISK_COLUMNS]
    for disk in disks:
        frees = disk.get("frees_bytes") or {}
        name, slot, size, _preserve, _detached = _disk_cells(disk)
        rows.append((
            disk["alias"] or disk["vm"] or "-",
            name,
            disk["state"],
            disk["type"],
            slot,
            size,
            "never" if disk["never_used"] else "yes",
            *("-" if frees.get(key) is None else render_bytes(frees[key]) for key in ("pool", "allocatable")),
            disk["uuid"] or "-",
        ))  # fmt: skip
    return _aligned(rows)


def _vm_rows(label: str, disks: t.Sequence[_Dict], space: t.Tuple[str, str]) -> t.List[_Row]:
    """One row for each disk, at least one; the VM's own figures in the first."""
    cells = [_disk_cells(disk) for disk in disks] or [("-",) * 5]
    return [
        (label, *cells[0], *space),
        *(("", *row, "", "") for row in cells[1:]),
    ]


def _disk_cells(disk: _Dict) -> _Row:
    name = disk["name"] or f"({disk['volume'].rsplit('/', 1)[-1]})"
    detached = _word(disk["state"] == "parked")
    return name, disk["pci_slot"] or "-", render_mib(disk["size"]), _word(disk["preserve"]), detached


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _size(mib: t.Optional[int]) -> str:
    return "-" if mib is None else render_mib(mib)


def _aligned(rows: t.Sequence[_Row]) -> t.List[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(_cell(*cell) for cell in zip(rows[0], row, widths)).rstrip() for row in rows]


def _cell(column: str, text: str, width: int) -> str:
    return text.rjust(width) if column in FIGURES else text.ljust(width)


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"disk_table": disk_table})
