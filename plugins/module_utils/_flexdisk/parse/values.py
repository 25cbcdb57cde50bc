# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that entries of several modules have: names of VMs, sizes, quotas, slots, images."""

from __future__ import annotations

import typing as t

from ..model.errors import Problems
from ..model.sizes import parse_quota, parse_size
from ..rules import identity, naming, slots

Raw = t.Mapping[str, t.Any]


def check_vm(vm: t.Any, problems: Problems) -> None:
    """Check the name of a VM."""
    if not vm:
        problems.add("InvalidArgument", "vm is empty, but must be a uuid, a unique prefix of one, or an alias")
    check_seen("vm", vm, problems)


def check_seen(option: str, name: object, problems: Problems, label: str = "") -> None:
    """Check that a name has no invisible characters. option: where it was given."""
    wrong = naming.why_not_seen(option, str(name or ""))
    if wrong:
        problems.add("InvalidArgument", wrong, label)


def optional_size(value: object, option: str, problems: Problems) -> t.Optional[int]:
    """Return a size in MiB, None if there is none or it is wrong. option: its name in messages."""
    return (
        None if value is None else t.cast(t.Optional[int], problems.attempt("", lambda: parse_size(value, name=option)))
    )


def optional_quota(value: object, problems: Problems) -> t.Optional[int]:
    """Return a quota in bytes, None if there is none or it is wrong."""
    return None if value is None else t.cast(t.Optional[int], problems.attempt("", parse_quota, value))


def optional_slot(value: object, label: str, problems: Problems) -> t.Optional[str]:
    """Return a PCI slot as it is stored, None if there is none or it is wrong."""
    if value is None:
        return None
    return t.cast(t.Optional[str], problems.attempt(label, slots.normalise, str(value)))


def check_image(image: object, problems: Problems, label: str = "") -> None:
    """Check that it is a UUID."""
    if not identity.is_uuid(str(image)):
        problems.add("InvalidArgument", f"image must be the uuid of an image; got {image!r}", label)
