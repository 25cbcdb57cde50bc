# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How old the replicas of a VM on a host are, why that is not known, and when they are due."""

from __future__ import annotations

import typing as t

from ...model.text import count

DUE = 0.9  # of the interval: the age counts from the snapshots, which a run takes some time after it has begun
NEVER = "never"
_Dict = t.Mapping[str, t.Any]


class ReplicaAge(t.NamedTuple):
    """The age of the replicas of a VM on one host."""

    seconds: t.Optional[int]
    """Since the replicas of all its disks were complete. None if that is not known, or never was."""
    reason: str = ""
    """Why it is not known, although disks have replicas there."""


def replica_age(vm: _Dict, host: str) -> ReplicaAge:
    """Return the age of the replicas of a VM on a host. vm: as vm_info reports it."""
    disks = [disk for disk in vm.get("disks", ()) if not disk.get("hidden")]
    notes = [next((note for note in disk.get("replicas", ()) if note["host"] == host), None) for disk in disks]
    ages = [note["age"] for note in notes if note is not None and note["age"] is not None]
    if ages and len(ages) == len(disks):
        return ReplicaAge(max(ages))
    unsynced = [disk for disk, note in zip(disks, notes) if note is None or not note["synced"]]
    if len(unsynced) == len(disks):
        return ReplicaAge(None)
    return ReplicaAge(None, _without_sync(unsynced) if unsynced else "not known: by another clock")


def _without_sync(disks: t.Sequence[_Dict]) -> str:
    if len(disks) > 1:
        return f"{count(len(disks), 'disk')} have no sync yet"
    name = disks[0].get("name") or str(disks[0].get("volume", "")).rsplit("/", 1)[-1]
    return f"disk {name} has no sync yet"


def is_due(age: t.Optional[int], every: t.Optional[int]) -> bool:
    """Return whether a replica of this age needs a sync. every: seconds, None for one in each run."""
    return age is None or every is None or age >= every * DUE


def due_in(age: t.Optional[int], every: t.Optional[int]) -> int:
    """Return the seconds until a replica is due. 0 if it is."""
    return 0 if age is None or every is None else max(0, -int(age - every * DUE))


def due_text(age: t.Optional[int], every: t.Optional[int]) -> str:
    """Return for people when a replica is due."""
    return "next run" if is_due(age, every) else f"in {age_text(due_in(age, every))}"


def age_text(seconds: t.Optional[int], reason: str = "") -> str:
    """Return an age for people, in at most two units. reason: why there is none."""
    if seconds is None:
        return reason or NEVER
    if seconds < 120:
        return f"{seconds} s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        number, seconds = divmod(seconds, size)
        parts += [f"{number} {unit}"] if number else []
    return " ".join(parts[:2])
