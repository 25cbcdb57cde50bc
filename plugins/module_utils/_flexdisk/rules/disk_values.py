# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the values of a disk may be, wherever they come from: a task, or what a release has kept."""

from __future__ import annotations

from ..model.errors import Problems
from . import identity


def check_uuid(problems: Problems, label: str, uuid: str) -> None:
    """Check that it is a UUID or ""."""
    if uuid and not identity.is_uuid(uuid):
        problems.add("InvalidArgument", f"disk uuid {uuid!r} is not a uuid", label)


def check_name(problems: Problems, label: str, name: str) -> bool:
    """Whether a disk can have the name, or the name is ""."""
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
    """Check a name that a disk does not have yet. Disks keep a mistakable name until they are renamed."""
    why = identity.mistakable(name)
    if why:
        problems.add(
            "InvalidArgument", f"disk name {name!r} is not valid: {why}; add a letter, as in disk-{name}", label
        )
