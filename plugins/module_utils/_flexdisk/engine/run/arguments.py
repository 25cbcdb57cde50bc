# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that several modules share, and their values."""

from __future__ import annotations

import typing as t

from ...model.desired import Approval, Policy
from ...model.durations import parse_seconds
from ...model.errors import FlexdiskError
from ...rules import disk_properties

_Spec = t.Dict[str, t.Dict[str, t.Any]]

HOST: _Spec = {
    "hypervisor": {"type": "str", "default": "auto", "choices": ["auto", "vmadm", "libvirt", "proxmox"]},
    "libvirt_uri": {"type": "str", "default": "qemu:///system"},
    "pool": {"type": "str"},
}
LOCK: _Spec = {"lock_timeout": {"type": "raw", "default": 60}}
POWER: _Spec = {
    "allow_restart": {"type": "bool", "default": False},
    "stop_timeout": {"type": "raw", "default": 180},
    "allow_force_stop": {"type": "bool", "default": False},
}
REFUSAL: _Spec = {"on_refusal": {"type": "str", "default": "stop", "choices": ["stop", "continue"]}}
APPROVAL: _Spec = {"expect_plan": {"type": "str"}, "expect_lines": {"type": "list", "elements": "str"}}
USER_PROPERTIES: _Spec = {name: {"type": kind.option} for name, kind in disk_properties.PROPERTIES.items()}
DISK: _Spec = {
    "name": {"type": "str"},
    "uuid": {"type": "str"},
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "size": {"type": "raw"},
    "boot": {"type": "bool"},
    "image": {"type": "str"},
    "pci_slot": {"type": "str"},
    "model": {"type": "str"},
    "block_size": {"type": "int"},
    "type": {"type": "str"},
    "compression": {"type": "str"},
    **USER_PROPERTIES,
    "dangerous_allow_shrink": {"type": "bool", "default": False},
    "min_size_from_guest": {"type": "raw"},
    "destroy_snapshots": {"type": "bool", "default": False},
    "recreate": {"type": "bool", "default": False},
    "recreate_for": {"type": "str"},
}

# The range of each number. No guest needs more than a day to shut down.
LIMITS = {"lock_timeout": (0, 86400), "stop_timeout": (1, 86400), "unused_days": (0, 36500), "replica_days": (0, 36500)}


_DURATIONS = ("lock_timeout", "stop_timeout")


def seconds(params: t.Mapping[str, t.Any], key: str) -> int:
    """Return the seconds of a duration. Raises FlexdiskError InvalidArgument with the name of the option."""
    value = params[key]
    if isinstance(value, float) and value.is_integer():  # Ansible reads it so where a number is asked for
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_seconds(value)
    except FlexdiskError as exc:
        raise FlexdiskError(exc.code, f"{key}: {exc.message}") from None


def check_figures(params: t.Mapping[str, t.Any]) -> None:
    """Raise FlexdiskError InvalidArgument with all numbers that are out of range, or no durations."""
    wrong = [_why_wrong(params, key) for key in LIMITS if params.get(key) is not None]
    if any(wrong):
        raise FlexdiskError("InvalidArgument", "; ".join(filter(None, wrong)))


def _why_wrong(params: t.Mapping[str, t.Any], key: str) -> str:
    min_value, max_value = LIMITS[key]
    try:
        value = seconds(params, key) if key in _DURATIONS else params[key]
    except FlexdiskError as exc:
        return exc.message
    return "" if min_value <= value <= max_value else f"{key} {value}: from {min_value} to {max_value}"


def policy(params: t.Mapping[str, t.Any], **more: t.Any) -> Policy:
    """Return the policy from the arguments POWER, REFUSAL and APPROVAL. more: fields that only some modules have."""
    return Policy(
        allow_restart=params["allow_restart"],
        stop_timeout=seconds(params, "stop_timeout"),
        allow_force_stop=params["allow_force_stop"],
        continue_on_refusal=params["on_refusal"] == "continue",
        approval=approval(params),
        **more,
    )


def approval(params: t.Mapping[str, t.Any]) -> t.Optional[Approval]:
    """Return the approved plan from the arguments APPROVAL, or None. Raises FlexdiskError InvalidArgument."""
    digest, lines = params["expect_plan"], params["expect_lines"]
    if digest is None and lines is not None:
        raise FlexdiskError("InvalidArgument", "expect_lines: give expect_plan, too, which is what a plan must match")
    return None if digest is None else Approval(digest, tuple(lines or ()))


def checked_disks(entries: t.Sequence[t.Mapping[str, t.Any]], key: str, validator: t.Any) -> t.List[t.Dict[str, t.Any]]:
    """Return entries with their disks checked against DISK, with all defaults. Raises FlexdiskError InvalidArgument.

    key: the field that names an entry in messages. validator: Ansible's ArgumentSpecValidator of DISK.
    """
    checked, wrong = [], []
    for entry in entries:
        disks = entry["disks"]
        results = [validator.validate(disk) for disk in disks or ()]
        wrong += [
            f"{entry[key]}: disks[{n}]: {message}"
            for n, result in enumerate(results)
            for message in result.error_messages
        ]
        checked.append(
            dict(entry, disks=disks if disks is None else [result.validated_parameters for result in results])
        )
    if wrong:
        raise FlexdiskError("InvalidArgument", "; ".join(wrong))
    return checked
