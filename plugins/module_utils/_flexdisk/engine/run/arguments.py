# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that several modules share, and what is made of them."""

from __future__ import annotations

import typing as t

from ...model.desired import Approval, Policy
from ...model.errors import FlexdiskError
from ...rules import disk_properties

_Spec = t.Dict[str, t.Dict[str, t.Any]]

HOST: _Spec = {
    "hypervisor": {"type": "str", "default": "auto", "choices": ["auto", "vmadm", "libvirt"]},
    "libvirt_uri": {"type": "str", "default": "qemu:///system"},
    "pool": {"type": "str"},
}
LOCK: _Spec = {"lock_timeout": {"type": "int", "default": 60}}
POWER: _Spec = {
    "allow_restart": {"type": "bool", "default": False},
    "stop_timeout": {"type": "int", "default": 180},
    "allow_force_stop": {"type": "bool", "default": False},
}
REFUSAL: _Spec = {"on_refusal": {"type": "str", "default": "stop", "choices": ["stop", "continue"]}}
APPROVAL: _Spec = {"expect_plan": {"type": "str"}, "expect_lines": {"type": "list", "elements": "str"}}
OWN: _Spec = {name: {"type": kind.option} for name, kind in disk_properties.PROPERTIES.items()}
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
    **OWN,
    "dangerous_allow_shrink": {"type": "bool", "default": False},
    "min_size_from_guest": {"type": "raw"},
    "destroy_snapshots": {"type": "bool", "default": False},
    "recreate": {"type": "bool", "default": False},
    "recreate_for": {"type": "str"},
}

# The range of each figure. No guest needs more than a day to shut down, and a task that waits longer is forgotten.
LIMITS = {"lock_timeout": (0, 86400), "stop_timeout": (1, 86400), "unused_days": (0, 36500), "replica_days": (0, 36500)}


def check_figures(params: t.Mapping[str, t.Any]) -> None:
    """Raises FlexdiskError InvalidArgument with all figures that are out of range."""
    wrong = [
        f"{key} {params[key]}: from {least} to {most}"
        for key, (least, most) in LIMITS.items()
        if params.get(key) is not None and not least <= params[key] <= most
    ]
    if wrong:
        raise FlexdiskError("InvalidArgument", "; ".join(wrong))


def policy(params: t.Mapping[str, t.Any], **more: t.Any) -> Policy:
    """The policy from the arguments POWER, REFUSAL and APPROVAL, with more fields that only some modules have."""
    return Policy(
        allow_restart=params["allow_restart"],
        stop_timeout=params["stop_timeout"],
        allow_force_stop=params["allow_force_stop"],
        continue_on_refusal=params["on_refusal"] == "continue",
        approval=approval(params),
        **more,
    )


def approval(params: t.Mapping[str, t.Any]) -> t.Optional[Approval]:
    """The approved plan from the arguments APPROVAL, or None. Raises FlexdiskError InvalidArgument."""
    digest, lines = params["expect_plan"], params["expect_lines"]
    if digest is None and lines is not None:
        raise FlexdiskError("InvalidArgument", "expect_lines: give expect_plan, too, which is what a plan must match")
    return None if digest is None else Approval(digest, tuple(lines or ()))


def checked_disks(entries: t.Sequence[t.Mapping[str, t.Any]], key: str, validator: t.Any) -> t.List[t.Dict[str, t.Any]]:
    """Entries whose disks are checked against DISK, with all defaults. Raises FlexdiskError InvalidArgument.

    key is the field that names an entry in messages; validator is Ansible's ArgumentSpecValidator of DISK.
    """
    found, wrong = [], []
    for entry in entries:
        disks = entry["disks"]
        results = [validator.validate(disk) for disk in disks or ()]
        wrong += [
            f"{entry[key]}: disks[{n}]: {message}"
            for n, result in enumerate(results)
            for message in result.error_messages
        ]
        found.append(dict(entry, disks=disks if disks is None else [result.validated_parameters for result in results]))
    if wrong:
        raise FlexdiskError("InvalidArgument", "; ".join(wrong))
    return found
