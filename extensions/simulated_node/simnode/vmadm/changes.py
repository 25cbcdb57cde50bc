# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes that an update waits to see in vminfod, and whether they have been seen.

An update that vminfod never confirms fails after 60 s although it has been applied. What is waited for follows from the
payload alone, so a payload can ask for what never comes.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties
from simnode.vmadm.errors import Abort

Vm = Dict[str, Any]
Payload = Dict[str, Any]
Path = Tuple[Optional[str], ...]
ANY: Any = object()
_NEVER_WAITED_FOR = frozenset(
    (
        "brand",
        "hvm",
        "last_modified",
        "server_uuid",
        "uuid",
        "zonename",
        "nics",
        "disks",
        "customer_metadata",
        "internal_metadata",
        "tags",
        "routes",
    )
)
_METADATA = re.compile(r"(set_|remove_)?(customer_metadata|internal_metadata|tags|routes)\Z")
_IDENTITY = {"disks": "path", "nics": "mac"}
_ADDED_KEYS = {"disks": ("model", "size"), "nics": ("nic_tag", "mac", "interface")}


class Change:
    """A change of a VM object: where, what kind, from what, to what, and in which member of a list."""

    def __init__(self, path: Path, action: Any = ANY, old: Any = ANY, new: Any = ANY, ident: Any = ANY) -> None:
        self.path = path
        self.action = action
        self.old = old
        self.new = new
        self.ident = ident

    def matches(self, seen: Change) -> bool:
        """Return whether `seen` is the change that this one waits for."""
        if len(self.path) != len(seen.path):
            return False
        if any(wanted is not None and wanted != actual for wanted, actual in zip(self.path, seen.path)):
            return False
        return all(
            wanted is ANY or _matches(wanted, actual)
            for wanted, actual in (
                (self.action, seen.action),
                (self.old, seen.old),
                (self.new, seen.new),
                (self.ident, seen.ident),
            )
        )


def _matches(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(key in actual and _matches(value, actual[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, list):
        return wanted == actual
    if wanted is js.UNDEFINED:
        return actual is ANY
    return js.same(wanted, actual)


def diff(before: Vm, after: Vm) -> List[Change]:
    """Return the changes between two objects. Disks and nics are compared member by member."""
    changes: List[Change] = []
    for key in list(before) + [key for key in after if key not in before]:
        if key not in after:
            changes.append(Change((key,), "removed", old=before[key]))
        elif key not in before:
            changes.append(Change((key,), "added", new=after[key]))
        elif isinstance(before[key], list) and isinstance(after[key], list):
            changes.extend(_diff_lists(key, before[key], after[key]))
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            changes.extend(_nested(key, before[key], after[key]))
        elif not js.same(before[key], after[key]):
            changes.append(Change((key,), "changed", before[key], after[key]))
    return changes


def _nested(key: str, before: Dict[str, Any], after: Dict[str, Any]) -> List[Change]:
    return [Change((key, *change.path), change.action, change.old, change.new) for change in diff(before, after)]


def _diff_lists(key: str, before: List[Any], after: List[Any]) -> List[Change]:
    removed = [item for item in before if item not in after]
    added = [item for item in after if item not in before]
    changes: List[Change] = []
    identity = _IDENTITY.get(key)
    for item in list(removed):
        if identity is None:
            break
        partner = next((other for other in added if other.get(identity) == item.get(identity)), None)
        if partner is not None:
            removed.remove(item)
            added.remove(partner)
            for change in diff(item, partner):
                changes.append(Change((key, None, *change.path), change.action, change.old, change.new, item[identity]))
    changes.extend(Change((key, None), "removed", old=item) for item in removed)
    changes.extend(Change((key, None), "added", new=item) for item in added)
    return changes


def unseen(wanted: List[List[Change]], seen: List[Change]) -> List[List[Change]]:
    """Return the wanted changes (each a list of alternatives) that no seen change satisfies."""
    remaining = list(wanted)
    for change in seen:
        for index, alternatives in enumerate(remaining):
            if any(alternative.matches(change) for alternative in alternatives):
                del remaining[index]
                break
    return remaining


def expected(vm: Vm, payload: Payload, keys: List[str]) -> List[List[Change]]:
    """Return the changes that an update waits for. keys: as in the payload. Raises Abort where vmadm crashes."""
    changes: List[List[Change]] = []
    for key in keys:
        if key in _NEVER_WAITED_FOR or _METADATA.match(key):
            continue
        value = payload.get(key, js.UNDEFINED)
        verb, _sep, noun = key.partition("_")
        if verb in ("add", "update", "remove") and noun in ("disks", "nics", "filesystems", "pci_devices"):
            if value and noun in _IDENTITY:
                changes.extend([change] for change in _EXPECT[verb](vm, noun, value))
        elif key in ("resolvers", "internal_metadata_namespaces"):
            changes.extend([change] for change in _diff_lists(key, vm.get(key) or [], value or []))
        elif key == "ram":
            changes.extend([change] for change in _ram(vm, payload, value))
        else:
            alternatives = _plain(vm, key, value)
            if alternatives:
                changes.append(alternatives)
    return changes


def _expect_added(_vm: Vm, noun: str, value: Any) -> List[Change]:
    changes = []
    for item in value:
        values = {key: item[key] for key in _ADDED_KEYS[noun] if key in item}
        if not values:
            raise Abort("AssertionError: at least one property must beset: [%s]" % ",".join(_ADDED_KEYS[noun]))
        changes.append(Change((noun, None), "added", new=values))
    return changes


def _expect_updated(vm: Vm, noun: str, value: Any) -> List[Change]:
    identity = _IDENTITY[noun]
    by_identity = {item[identity]: item for item in vm.get(noun, [])}
    changes = []
    for item in value:
        if item.get(identity) not in by_identity:
            raise Abort("AssertionError: index (number) is required")
        current = by_identity[item[identity]]
        for key, new in item.items():
            if key in (identity, "dangerous_allow_shrink") or js.same(current.get(key, js.UNDEFINED), new):
                continue
            described = properties.PROPERTIES.get("%s.*.%s" % (noun, key))
            if (
                described is not None
                and described.default is not properties.NO_DEFAULT
                and js.same(described.default, new)
            ):
                changes.append(Change((noun, None, key), "removed", ident=item[identity]))
            else:
                changes.append(Change((noun, None, key), new=new, ident=item[identity]))
    return changes


def _expect_removed(_vm: Vm, noun: str, value: Any) -> List[Change]:
    return [Change((noun, None), "removed", old={_IDENTITY[noun]: item}) for item in value]


_EXPECT = {"add": _expect_added, "update": _expect_updated, "remove": _expect_removed}


def _ram(vm: Vm, payload: Payload, value: Any) -> List[Change]:
    changes = []
    for key in ("max_physical_memory", "max_locked_memory", "ram" if vm["hvm"] else "tmpfs"):
        if key != "ram" and key in payload:
            continue
        new = value if key == "ram" else value + properties.MEMORY_OVERHEAD.get(vm["brand"], 0)
        if not js.same(vm.get(key, js.UNDEFINED), new):
            changes.append(Change((key,), new=new))
    return changes


def _plain(vm: Vm, key: str, value: Any) -> List[Change]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    present = vm.get(key, js.UNDEFINED)
    if key in vm and js.same(present, value):
        return []
    described = properties.PROPERTIES.get(key)
    is_default = (
        described is not None and described.default is not properties.NO_DEFAULT and js.same(described.default, value)
    )
    if value is js.UNDEFINED or value is None or value == "" or is_default:
        if key not in vm:
            return []
        return [Change((key,), "removed"), Change((key,), new=value)]
    if js.same(value, 0):
        return [Change((key,), new=0), Change((key,), "removed")]
    return [Change((key,), new=value)]
