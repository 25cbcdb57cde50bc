# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of disk_adopt: a VM, and what is known about the identity of its disks."""

from __future__ import annotations

import typing as t

from ..model.desired import AdoptionDeclaration
from ..model.errors import Problem, Problems
from ..rules.property_text import check_value
from ..rules.released_identity import parse_identity
from .values import Raw, check_seen, check_vm


def parse_adoption(raw: Raw, state: str = "adopted") -> t.Tuple[AdoptionDeclaration, t.List[Problem]]:
    """Return one entry of O(vms), and all its problems. state: that of the whole task."""
    vm = str(raw.get("vm") or "")
    problems = Problems(vm)
    check_vm(raw.get("vm"), problems)
    package = raw.get("package") or ""
    if package:
        problems.attempt("", lambda: check_value("package", package))
        check_seen("package", package, problems)
    disks = tuple(parse_identity(disk, number, problems) for number, disk in enumerate(raw.get("disks") or ()))
    for attribute in ("name", "uuid"):
        values = [getattr(disk, attribute) for disk in disks if getattr(disk, attribute)]
        for value in sorted({v for v in values if values.count(v) > 1}):
            problems.add("InvalidArgument", f"two disks have the {attribute} {value}", value)
    for key in ("disks", "package"):
        if state == "released" and raw.get(key):
            problems.add("InvalidArgument", f"{key} cannot be used with state=released, which takes whole VMs")
    return AdoptionDeclaration(vm, package, disks), problems
