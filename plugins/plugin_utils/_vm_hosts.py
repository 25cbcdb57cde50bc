# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs as hosts of an inventory: their variables, names and groups. Names of VMs are untrusted data."""

from __future__ import annotations

import re
import typing as t
from collections import Counter

from ansible.plugins.inventory import to_safe_group_name

from ._core import trust_as_template

VARIABLE = "flexdisk_vm"
SKIPPED = "skipped_vms"
PREFIXES = ("hypervisor_", "state_", "package_", "tag_", SKIPPED)  # of our groups
LONGEST_GROUP = 200
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PLAIN = re.compile(r"[A-Za-z0-9_./:-]*")
_Vm = t.Dict[str, t.Any]


class Named(t.NamedTuple):
    """A name for each VM, in their order, and for those that did not get the first one wished for, why."""

    names: t.List[str]
    warnings: t.List[str]


def safe(name: object) -> bool:
    """True for what can be a host name: no pattern, range, port or line end, and not the name of a group of ours."""
    return isinstance(name, str) and bool(_SAFE.fullmatch(name)) and not name.startswith(PREFIXES)


def vms(hypervisor: str, result: t.Mapping[str, t.Any], skipped: bool = False) -> t.List[_Vm]:
    """Return the variable flexdisk_vm of each VM in a result of vm_info, on demand of those that it skips, too.

    Raises ValueError for anything else.
    """
    listed = result.get("vms")
    if skipped and isinstance(listed, list):
        listed = listed + result.get(SKIPPED, [])
    if not isinstance(listed, list) or not all(isinstance(vm, dict) and safe(vm.get("uuid")) for vm in listed):
        raise ValueError("not a result of vm_info")
    return [dict(vm, hypervisor=hypervisor) for vm in listed]


def marked(value: t.Any) -> t.Any:
    """Return the value with every string in it trusted that cannot be a template or an expression, and no other.

    For an untrusted string ansible-inventory exports a dictionary, which is not what AWX and others look for.
    """
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) and _PLAIN.fullmatch(value) else value


def groups(vm: _Vm) -> t.List[str]:
    """Return the names of the groups that a VM is in without being asked for."""
    tags = vm.get("tags") or {}
    values = [
        ("hypervisor_", vm["hypervisor"]),
        ("state_", vm.get("state")),
        ("package_", vm.get("package")),
        *(("tag_", f"{key}_{value}" if value != "" else key) for key, value in sorted(tags.items())),
    ]
    names = [to_safe_group_name(f"{prefix}{value}") for prefix, value in values if value]
    return [name for name in names if len(name) <= LONGEST_GROUP] + ([SKIPPED] if "reason" in vm else [])


def named(listed: t.Sequence[_Vm], preferences: t.Sequence[t.Sequence[object]], taken: t.AbstractSet[str]) -> Named:
    """Give each VM the first of its preferred names that is safe, unique at its position, and free.

    preferences: equally many names for each VM; "" or None is no name. taken: names of others. Then comes the uuid, and
    last the uuid with the hypervisor, for a VM that two hypervisors have. Raises ValueError for a VM that is in the
    inventory already.
    """
    names: t.List[str] = [""] * len(listed)
    reasons: t.Dict[int, str] = {}
    uuids = {vm["uuid"] for vm in listed}
    rows = [
        [*preferred, vm["uuid"], f"{vm['uuid']}.{_text(vm['hypervisor'])}"]
        for vm, preferred in zip(listed, preferences)
    ]
    for column in zip(*rows):
        wanted = Counter(name for name in column if isinstance(name, str))
        gone = taken | set(names)
        for n, (vm, name) in enumerate(zip(listed, column)):
            if names[n] or name is None or name == "":
                continue
            if not isinstance(name, str) or not safe(name):
                reason = "this is not a valid host name"
            elif wanted[name] > 1:
                reason = "more than one VM would have this name"
            elif name in gone or (name[:36] in uuids and not name.startswith(vm["uuid"])):
                reason = "this name is already taken"
            else:
                names[n] = str(name)
                continue
            reasons.setdefault(n, f"not {name!r}: {reason}")
    if not all(names):
        lost = listed[names.index("")]
        raise ValueError(f"VM {lost['uuid']} of {lost['hypervisor']} is already in the inventory")
    return Named(
        names, [f"A VM of {listed[n]['hypervisor']} is named {names[n]}, {reasons[n]}." for n in sorted(reasons)]
    )


def _text(hypervisor: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", hypervisor)
