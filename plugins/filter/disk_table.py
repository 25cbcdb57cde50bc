# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters disk_table and sort_disks: results of vm_info or disk_info as a table."""

from __future__ import annotations

import json
import re
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import (
    render_bytes,
    render_mib,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import visible
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.knobs import for_playbooks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.skipped import lines
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_Row = t.Tuple[str, ...]
_Value = t.Callable[[_Dict], t.Any]

COLUMNS = ("VM", "DISK", "SLOT", "SIZE", "PRESERVE", "PARKED", "FREE", "ALLOCATABLE")
SHORT = ("vm", "name", "state", "type", "pci_slot", "size", "used", "frees_pool", "frees_vm", "uuid")
LONG = (
    "vm", "name", "uuid", "state", "pci_slot", "boot", "size", "block_size", "type", "image", "preserve", "snapshots",
    "used", "frees_pool", "frees_vm", "tags", "ctime", "mtime", "description",
)  # fmt: skip


def _plain(key: str) -> _Value:
    return lambda disk: disk.get(key)


def _frees(key: str) -> _Value:
    return lambda disk: (disk.get("frees_bytes") or {}).get(key)


def _slot(text: str) -> t.Union[str, t.List[t.Tuple[str, int]]]:
    """A slot, or the key of a disk of Proxmox VE, so that its numbers are sorted as numbers; "" for none."""
    return [(word, int(number)) for word, number in re.findall(r"(\D*)(\d+)", text)] or ""


# The value of each column, which the disks are sorted by.
_VALUES: t.Mapping[str, _Value] = {
    **{key: _plain(key) for key in dict.fromkeys((*SHORT, *LONG))},
    "vm": lambda disk: disk["alias"] or disk["vm"],
    "pci_slot": lambda disk: _slot(disk.get("key") or disk["pci_slot"]),
    "used": lambda disk: not disk["never_used"],
    "frees_pool": _frees("pool"),
    "frees_vm": _frees("allocatable"),
    "tags": lambda disk: json.dumps(disk["tags"], sort_keys=True) if disk["tags"] else "",
}
FIELDS = tuple(_VALUES)
_HEADINGS = {"name": "DISK", "pci_slot": "SLOT", "used": "EVER USED"}
_TEXTS: t.Mapping[str, t.Callable[[t.Any], str]] = {
    "size": render_mib,
    "block_size": render_bytes,
    "frees_pool": render_bytes,
    "frees_vm": render_bytes,
    "pci_slot": lambda parts: "".join(f"{word}{number}" for word, number in parts),
    "used": lambda value: "yes" if value else "no",
}
FIGURES = ("SIZE", "FREE", "ALLOCATABLE", "FREES POOL", "FREES VM", "BLOCK SIZE", "SNAPSHOTS")


def disk_table(
    result: _Dict, fields: t.Optional[t.Sequence[str]] = None, long: bool = False, header: bool = True
) -> t.List[str]:
    """The result of vm_info or disk_info as lines of a table. fields: the columns for disk_info; long: more of them."""
    try:
        table = (
            _disks(result["disks"], _known(fields or (LONG if long else SHORT)))
            if "disks" in result
            else _table(result)
        )
        return [*(table if header else table[1:]), *_not_shown(result.get("skipped_vms") or ())]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(
            "disk_table wants a result of flexdisk.hypervisor.vm_info, with vms and parked, or of disk_info, with disks"
            f" ({exc!r})"
        ) from exc


def sort_disks(disks: t.Sequence[_Dict], by: t.Sequence[str]) -> t.List[_Dict]:
    """The disks of disk_info in the order of these columns; C(-size) from the largest. What has no value is last."""
    _known([column.lstrip("-") for column in by])
    result = list(disks)
    try:
        for column in reversed(by):
            value = _VALUES[column.lstrip("-")]
            having = [disk for disk in result if value(disk) not in (None, "")]
            having.sort(key=value, reverse=column.startswith("-"))
            result = having + [disk for disk in result if value(disk) in (None, "")]
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(
            f"sort_disks wants the disks that flexdisk.hypervisor.disk_info returns ({exc!r})"
        ) from exc
    return result


def _known(fields: t.Sequence[str]) -> t.Sequence[str]:
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise AnsibleFilterError(f"disks have no column {', '.join(unknown)}. The columns are {', '.join(FIELDS)}")
    return fields


def _table(result: _Dict) -> t.List[str]:
    rows: t.List[_Row] = []
    for vm in result["vms"]:
        space = (_size(vm.get("free_space")), _size(vm.get("allocatable")))
        rows += _vm_rows(vm["alias"] or vm["uuid"], [*vm["disks"], *vm["parked"]], space)
    known = {vm["uuid"] for vm in result["vms"]}
    strays: t.Dict[str, t.List[_Dict]] = {}
    for disk in result["parked"]:
        if disk["vm"] not in known:
            strays.setdefault(disk["vm"], []).append(disk)
    for uuid, disks in sorted(strays.items()):
        rows += _vm_rows(uuid, disks, ("-", "-"))
    return _aligned([COLUMNS, *rows])


def _not_shown(skipped: t.Sequence[_Dict]) -> t.List[str]:
    return [visible(for_playbooks(line)) for line in lines(skipped)]


def _disks(disks: t.Sequence[_Dict], fields: t.Sequence[str]) -> t.List[str]:
    """One row for each disk; what destroying it would free only where that was asked for."""
    heading = tuple(_HEADINGS.get(field, field.replace("_", " ").upper()) for field in fields)
    return _aligned([heading, *(tuple(_text(field, disk) for field in fields) for disk in disks)])


def _text(field: str, disk: _Dict) -> str:
    value = _VALUES[field](disk)
    if field == "name":
        return _name(disk)
    if value in (None, ""):
        return "-"
    if field in _TEXTS:
        return _TEXTS[field](value)
    return _word(value) if isinstance(value, bool) else str(value)


def _vm_rows(label: str, disks: t.Sequence[_Dict], space: t.Tuple[str, str]) -> t.List[_Row]:
    """One row for each disk, at least one; the VM's own figures in the first."""
    cells = [_disk_cells(disk) for disk in disks] or [("-",) * 5]
    return [
        (label, *cells[0], *space),
        *(("", *row, "", "") for row in cells[1:]),
    ]


def _disk_cells(disk: _Dict) -> _Row:
    detached = _word(disk["state"] == "parked")
    return (
        _name(disk),
        disk.get("key") or disk["pci_slot"] or "-",
        render_mib(disk["size"]),
        _word(disk["preserve"]),
        detached,
    )


def _name(disk: _Dict) -> str:
    return disk["name"] or f"({disk['volume'].rsplit('/', 1)[-1]})"


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _size(mib: t.Optional[int]) -> str:
    return "-" if mib is None else render_mib(mib)


def _aligned(cells: t.Sequence[_Row]) -> t.List[str]:
    rows = [tuple(map(visible, row)) for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(_cell(*cell) for cell in zip(rows[0], row, widths)).rstrip() for row in rows]


def _cell(column: str, text: str, width: int) -> str:
    return text.rjust(width) if column in FIGURES else text.ljust(width)


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"disk_table": disk_table, "sort_disks": sort_disks})
