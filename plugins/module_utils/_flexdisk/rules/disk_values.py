# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of a disk's values, whether a task declares them or a release has saved them."""

from __future__ import annotations

from ..model.errors import Problems
from . import identity


def check_uuid(problems: Problems, label: str, uuid: str) -> None:
    """Add a problem unless it is a UUID or ""."""
    if uuid and not identity.is_uuid(uuid):
        problems.add("InvalidArgument", f"disk uuid {uuid!r} is not a uuid", label)


def check_name(problems: Problems, label: str, name: str) -> bool:
    """Whether a disk can have this name, or the name is "". Adds a problem if not."""
    if name and not identity.DISK_NAME.match(name):
        problems.add(
            "InvalidArgument",
            f"disk name {name!r} is not valid: use up to 64 letters, digits, dots, dashes and underscores, the first a "
            "letter or digit",
            label,
        )
        return False
    return True


def check_new_name(problems: Problems, label: str, name: str) -> None:
    """Add a problem if the name is mistakable. Only new names are checked; disks keep the names that they have."""
    why = identity.mistakable(name)
    if why:
        problems.add(
            "InvalidArgument", f"disk name {name!r} is not valid: {why}; add a letter, as in disk-{name}", label
        )
