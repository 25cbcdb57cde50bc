# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of vm_snapshot: snapshots of whole VMs."""

from __future__ import annotations

import typing as t

from ..model.desired import Keep, SnapshotDeclaration
from ..model.errors import Problem, Problems
from ..rules import snapshots
from .packages import parse_packages
from .values import Raw, optional_size

MOST_KEPT = 100000  # far more than a host has snapshots


def parse_snapshot(raw: Raw) -> t.Tuple[SnapshotDeclaration, t.List[Problem]]:
    """Return the arguments of the module, and all their problems."""
    problems = Problems("")
    state, name = raw["state"], raw["name"] or ""
    _check_name(raw, problems)
    if state == "rolled_back" and not raw["vms"]:
        problems.add("InvalidArgument", "state=rolled_back needs vms, the VMs to roll back")
    keep = _keep(raw, problems)
    flexible = optional_size(raw["flexible_disk_size"], "flexible_disk_size", problems)
    if state != "rolled_back" and _rolls_back(raw):
        problems.add("InvalidArgument", "newer, destroy_newer and flexible_disk_size work only with state=rolled_back")
    if raw["destroy_newer"] and raw["newer"] is not None:
        problems.add(
            "InvalidArgument",
            "destroy_newer: true gives all newer snapshots up, so that newer adds none; leave one of them out",
        )
    newer = None if raw["destroy_newer"] else tuple(raw["newer"] or ())
    packages, wrong = parse_packages(raw["packages"] or ())
    return SnapshotDeclaration(state, name, keep, newer, flexible, tuple(packages.values())), [
        *problems,
        *wrong,
    ]


def _check_name(raw: Raw, problems: Problems) -> None:
    """Require a name, unless a retention rule selects the snapshots."""
    if raw["name"]:
        problems.attempt("", snapshots.check_name, raw["name"])
    elif raw["state"] != "absent" or raw["keep"] is None:
        problems.add("InvalidArgument", f"state={raw['state']} needs the name of a snapshot")


def _keep(raw: Raw, problems: Problems) -> t.Optional[Keep]:
    """Return the retention rule, None if there is none."""
    given = raw["keep"]
    if given is None:
        return None
    if raw["state"] == "rolled_back":
        problems.add("InvalidArgument", "keep works only with state=present and state=absent")
    names = tuple(map(str, given.get("names") or ()))
    keep = Keep(**{key: count or 0 for key, count in given.items() if key != "names"}, names=names)
    counts = (keep.last, keep.daily, keep.weekly)
    if min(counts) < 0 or not any(counts):
        text = "keep needs at least one number above 0 and no negative ones"
        problems.add("InvalidArgument", f"{text}: it has {_counts(given)}")
    if not (names or raw["name"]):
        text = "keep needs the name of a snapshot, or names, the patterns of those that it counts, such as '2026-*'"
        problems.add("InvalidArgument", text)
    if "" in names:
        problems.add("InvalidArgument", "keep.names: a pattern is empty")
    if max(counts) > MOST_KEPT:
        problems.add("InvalidArgument", f"keep: no number can be above {MOST_KEPT}: it has {_counts(given)}")
    return keep


def _counts(given: t.Mapping[str, t.Any]) -> str:
    """Return the numbers of a retention rule as they were written: C(daily -1)."""
    written = [f"{key} {value}" for key, value in given.items() if key != "names" and value is not None]
    return ", ".join(written) or "none"


def _rolls_back(raw: Raw) -> bool:
    """Whether the task has an option that only a rollback takes."""
    return bool(raw["destroy_newer"] or raw["newer"] or raw["flexible_disk_size"] is not None)
