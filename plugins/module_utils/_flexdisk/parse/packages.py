# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option packages: named size classes."""

from __future__ import annotations

import typing as t

from ..model.desired import Package
from ..model.errors import Problem, Problems
from ..model.sizes import parse_size
from ..rules import identity
from ..rules.packages import NAME_RULE
from .values import Raw, optional_size


def parse_packages(raw: t.Sequence[Raw]) -> t.Tuple[t.Dict[str, Package], t.List[Problem]]:
    """Return the packages by their names, and all problems of the list."""
    problems = Problems("")
    packages: t.Dict[str, Package] = {}
    for entry in raw:
        name = str(entry.get("name") or "")
        if not identity.VM_NAME.match(name):
            problems.add("InvalidArgument", f"package name {name!r} is not valid: {NAME_RULE}")
        elif name in packages:
            problems.add("InvalidArgument", f"two packages are called {name}")
        else:
            packages[name] = _package(name, entry, problems)
    return packages, problems


def _package(name: str, raw: Raw, problems: Problems) -> Package:
    disks = raw.get("disks")
    if disks is not None and not raw.get("flexible_disk"):
        problems.add("InvalidArgument", f"package {name} has disks, so it needs flexible_disk: true")
    return Package(
        name=name,
        disk=problems.attempt("", lambda: parse_size(raw.get("disk"), name=f"disk of package {name}")) or 0,
        flexible_disk=bool(raw.get("flexible_disk")),
        memory=optional_size(raw.get("memory"), f"memory of package {name}", problems),
        vcpus=parse_vcpus(raw, problems, f" of package {name}"),
        disks=disks,
    )


def parse_vcpus(raw: Raw, problems: Problems, of: str = "") -> t.Optional[int]:
    """Return the number of virtual CPUs. of: what they belong to, in messages."""
    count = raw.get("vcpus")
    if count is not None and not 1 <= count <= 255:
        problems.add("InvalidArgument", f"vcpus{of} is {count}; it must be from 1 to 255")
    return count
