# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vmadm lookup` and `list`: filters, columns, order."""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, List, Tuple

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties, vmobj
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import VmadmHost

Vm = Dict[str, Any]
COLUMNS: Dict[str, Tuple[str, int]] = {
    "alias": ("ALIAS", 10),
    "autoboot": ("AUTOBOOT", 8),
    "billing_id": ("BILLING_ID", 36),
    "boot_timestamp": ("BOOT_TIMESTAMP", 24),
    "brand": ("BRAND", 14),
    "cpu_cap": ("CPU_CAP", 7),
    "cpu_shares": ("CPU_SHARE", 9),
    "cpu_type": ("CPU_TYPE", 8),
    "create_timestamp": ("CREATE_TIMESTAMP", 24),
    "dns_domain": ("DOMAIN", 32),
    "do_not_inventory": ("DNI", 5),
    "docker": ("DOCKER", 6),
    "exit_status": ("EXIT", 4),
    "exit_timestamp": ("EXIT_TIMESTAMP", 24),
    "firewall_enabled": ("FIREWALL_ENABLED", 16),
    "flexible_disk_size": ("FLEX_DISK_SIZE", 14),
    "free_space": ("FREE_SPACE", 14),
    "hostname": ("HOSTNAME", 32),
    "hvm": ("HVM", 5),
    "image_uuid": ("IMAGE_UUID", 36),
    "indestructible_delegated": ("INDESTR_DATA", 12),
    "indestructible_zoneroot": ("INDESTR_ROOT", 12),
    "ram": ("RAM", 7),
    "max_locked_memory": ("MAX_LOCKED", 10),
    "max_lwps": ("MAX_LWP", 7),
    "max_physical_memory": ("MAX_PHYS", 8),
    "max_swap": ("MAX_SWAP", 8),
    "owner_uuid": ("OWNER_UUID", 36),
    "package_name": ("PACKAGE_NAME", 32),
    "package_version": ("PACKAGE_VER", 11),
    "pid": ("PID", 6),
    "qemu_extra_opts": ("QEMU_EXTRA_OPTS", 15),
    "quota": ("QUOTA", 5),
    "zone_state": ("ZONE_STATE", 10),
    "state": ("STATE", 16),
    "tmpfs": ("TMPFS", 5),
    "type": ("TYPE", 4),
    "uuid": ("UUID", 36),
    "vcpus": ("VCPUS", 5),
    "zfs_io_priority": ("IO_PRIORITY", 11),
    "zpool": ("ZPOOL", 12),
    "zonename": ("ZONENAME", 12),
    "zonepath": ("ZONEPATH", 40),
    "zoneid": ("ZONEID", 6),
}
DEFAULT_COLUMNS = "uuid,type,ram,state,alias"
DEFAULT_SORT = "ram,uuid"
_LISTS = ("disks", "nics", "pci_devices")
_MAPS = ("customer_metadata", "internal_metadata", "routes", "tags")
_ARRAYS = ("resolvers", "internal_metadata_namespaces")
_FILTERS = (
    re.compile(r"disks.[*0-9]*.(boot|image_name|image_size|image_uuid|size|media|model|zpool)\Z"),
    re.compile(r".*nics.[*0-9]*.(dhcp_server|gateway|interface|ip|mac|model|netmask|nic_tag|vlan_id)\Z"),
    re.compile(r"(tags|customer_metadata|internal_metadata)\..*"),
)


def valid_filter(key: str) -> bool:
    return key in COLUMNS or any(pattern.match(key) for pattern in _FILTERS)


def add_columns(vm: Vm) -> Vm:
    """With the columns that no VM object has: type, and ram for those that have none."""
    vm["type"] = properties.TYPES.get(vm["brand"], "OS")[:4]
    if vm["brand"] not in properties.HVM:
        vm["ram"] = vm.get("max_physical_memory")
    return vm


def flatten(vm: Vm, key: str) -> Any:
    """Return the value of a key such as disks.0.size, UNDEFINED if there is none."""
    parts = key.split(".")
    value = vm.get(parts[0], js.UNDEFINED)
    if len(parts) == 1:
        return value
    if len(parts) == 3 and parts[0] in _LISTS:
        member = _member(value, parts[1])
        return member.get(parts[2], js.UNDEFINED) if isinstance(member, dict) else js.UNDEFINED
    if parts[0] in _MAPS and isinstance(value, dict):
        return value.get(key[len(parts[0]) + 1 :], js.UNDEFINED)
    return _member(value, parts[1]) if len(parts) == 2 and parts[0] in _ARRAYS else js.UNDEFINED


def _member(value: Any, index: str) -> Any:
    if isinstance(value, list) and index.isdigit() and int(index) < len(value):
        return value[int(index)]
    return js.UNDEFINED


def matches(vm: Vm, search: Dict[str, str]) -> bool:
    """Return whether every filter matches. A value that begins with ~ is a regular expression without case."""
    return all(_matches_one(vm, key, target) for key, target in search.items())


def _matches_one(vm: Vm, key: str, target: str) -> bool:
    parts = key.split(".")
    keys = [key]
    if len(parts) == 3 and parts[1] == "*" and parts[0] in _LISTS and parts[0] in vm:
        keys = ["%s.%d.%s" % (parts[0], index, parts[2]) for index in range(len(vm[parts[0]]))]
    values = [value for value in (flatten(vm, one) for one in keys) if value is not js.UNDEFINED]
    if target.startswith("~"):
        pattern = re.compile(target[1:], re.IGNORECASE)
        return any(pattern.search(js.to_string(value)) for value in values)
    return any(js.to_string(value) == target for value in values)


def lookup(host: VmadmHost, search: Dict[str, str]) -> List[Vm]:
    for key in search:
        if not valid_filter(key):
            raise VmError('Invalid lookup key: "%s"' % key)
    return [vm for vm in map(add_columns, vmobj.load_all(host)) if matches(vm, search)]


def only(vms: List[Vm], fields: str) -> List[Vm]:
    """Return the objects with only these fields. Objects without any are dropped."""
    wanted = fields.split(",")
    reduced = [{key: value for key, value in vm.items() if key in wanted} for vm in vms]
    return [vm for vm in reduced if vm]


def table(host: VmadmHost, search: Dict[str, str], order: str, sortby: str, parsable: bool, header: bool) -> str:
    """Return the output of `vmadm list`."""
    for key in search:
        if not valid_filter(key):
            raise VmError('Invalid filter key: "%s"' % key)
    columns = [(name, _column(name, "order")) for name in order.split(",")]
    sorting = [(name.lstrip("+-"), -1 if name.startswith("-") else 1) for name in sortby.split(",")]
    for name, _direction in sorting:
        _column(name, "sort")
    vms = [vm for vm in map(add_columns, vmobj.load_all(host)) if matches(vm, search)]
    vms.sort(key=functools.cmp_to_key(lambda left, right: _compare(left, right, sorting)))
    lines = [_line([shape[0] for _name, shape in columns], columns, parsable)] if header else []
    for vm in vms:
        lines.append(_line([_shown(flatten(vm, name), parsable) for name, _shape in columns], columns, parsable))
    return "".join(line + "\n" for line in lines)


def _column(name: str, purpose: str) -> Tuple[str, int]:
    if re.match(r"(disks|filesystems|nics)\.\*\.*", name):
        raise VmError('Invalid %s key: "%s"' % (purpose, name))
    if name in COLUMNS:
        return COLUMNS[name]
    parts = name.split(".")
    if (len(parts) == 3 and parts[0] in _LISTS) or (len(parts) == 2 and parts[0] in _MAPS):
        return name.upper(), 20
    raise VmError("invalid %s field: %s" % (purpose, name))


def _line(values: List[str], columns: List[Tuple[str, Tuple[str, int]]], parsable: bool) -> str:
    if parsable:
        return ":".join(values).rstrip()
    return "  ".join(value.ljust(shape[1]) for value, (_name, shape) in zip(values, columns)).rstrip()


def _shown(value: Any, parsable: bool) -> str:
    if value is js.UNDEFINED or value is None or value is False or value == "":
        return "" if parsable else "-"
    return js.to_string(value)


def _compare(left: Vm, right: Vm, sorting: List[Tuple[str, int]]) -> int:
    for name, direction in sorting:
        one, other = _rank(flatten(left, name)), _rank(flatten(right, name))
        if one != other:
            return direction if one > other else -direction
    return 0


def _rank(value: Any) -> Tuple[int, float, str]:
    """Numbers, then strings, then what is unset."""
    if value is js.UNDEFINED or value is None:
        return 2, 0, ""
    return (0, float(value), "") if js.is_number(value) else (1, 0, js.to_string(value))
