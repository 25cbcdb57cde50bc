# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether detached disks lie where they should, and whether anybody still needs them."""

from __future__ import annotations

from datetime import datetime, timezone

from ..model.sizes import render_mib
from ..model.vm import Disk
from . import identity
from .findings import OURS, Finding
from .layout import detached_place, last_part
from .unwritten import never_used
from .usage import labels
from .verify_facts import About, Facts, Findings
from .verify_properties import marks, properties


def detached(facts: Facts, disk: Disk, before: int) -> Findings:
    """Yield findings about a detached disk. Disks created before a time (seconds since 1970) may count as unused."""
    about, volume = About(facts, disk), disk.volume
    yield from properties(about)
    yield from marks(about)
    yield from _misplaced(about)
    if disk.vm and disk.vm not in facts.host.known:
        text = f"{disk.label} was a disk of VM {disk.vm}, which is not on this host"
        yield about("unknown_vm", f"{text}; ask its owner whether it is still needed")
    unused = never_used(facts.host, volume) and not disk.snapshots and not facts.host.usage.of(volume.name)
    if volume.creation <= before and unused:
        yield _never_used(about)


def _misplaced(about: About) -> Findings:
    """Yield a finding if a disk is not at the place for its UUID, or has no UUID."""
    facts, disk, volume = about.facts, about.disk, about.disk.volume
    place = detached_place(disk) if disk.uuid or not identity.is_uuid(last_part(volume.name)) else volume.name
    if place == volume.name and disk.uuid:
        return
    uuid = last_part(place)
    clash = place != volume.name and place in facts.host.datasets
    why_not = f"{place} already exists" if clash else ""
    others = [name for name in facts.by_uuid.get(uuid, ()) if name != volume.name]
    if others or disk.uuid in facts.host.duplicates or (not disk.uuid and uuid in facts.taken):
        why_not = "another volume has its uuid"
    users = facts.host.usage.of(volume.name)
    if place != volume.name and users:
        why_not = f"{labels(users)} has it open or configured"
    message = f"{volume.name} has uuid {disk.uuid} and should be {place}"
    message = message if disk.uuid else f"{volume.name} has no uuid; {uuid} is its own"
    yield about.repairable("parked_place", message, why_not, args={"uuid": uuid, "target": place})


def _never_used(about: About) -> Finding:
    disk = about.disk
    made = f"{disk.label} ({render_mib(disk.size_mib)}) was made on {_date(disk.volume.creation)}"
    message = f"{made}, and nothing has been written to it; the task given here DESTROYS it"
    task = {OURS + "disk": {"uuid": disk.uuid, "state": "absent"}} if disk.uuid else None
    return about("never_used", message, repair=task)


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")
