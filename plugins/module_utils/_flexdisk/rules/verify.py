# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that can be wrong with the disks of a host, found in one read of it. Nothing is changed here."""

from __future__ import annotations

import typing as t

from ..model.vm import Vm
from .findings import Finding
from .identity import render_time
from .inventory import Host
from .verify_detached import detached
from .verify_facts import Facts, Findings
from .verify_host import (
    disks_left_closed,
    duplicate_uuids,
    guests_left_paused,
    interrupted_imports,
    memory_that_stays,
    unfinished_vms,
    unknown_volumes,
    unreadable_moves,
    vms_without_dataset,
)
from .verify_identity import duplicate_names, identities, records
from .verify_journal import index_of_runs, interrupted_runs
from .verify_properties import inherited_properties, properties_of_vm
from .verify_references import orphans, references, shared_volumes, slot_conflicts, unused_without_volume
from .verify_replicas import replicas_here
from .verify_snapshots import unfinished_snapshots
from .verify_space import quota_and_reservation

_DAY = 86400
UNUSED_DAYS, REPLICA_DAYS = 30, 7  # after which a disk counts as unused, and a replica as stale, by default

_OF_A_VM: t.Tuple[t.Callable[[Facts, Vm], Findings], ...] = (
    references,
    unused_without_volume,
    shared_volumes,
    slot_conflicts,
    orphans,
    identities,
    records,
    duplicate_names,
    unfinished_snapshots,
    properties_of_vm,
    quota_and_reservation,
)
_OF_THE_HOST: t.Tuple[t.Callable[[Facts], Findings], ...] = (
    duplicate_uuids,
    unfinished_vms,
    vms_without_dataset,
    inherited_properties,
    unknown_volumes,
    interrupted_imports,
    unreadable_moves,
    guests_left_paused,
    disks_left_closed,
    memory_that_stays,
    interrupted_runs,
    index_of_runs,
)


def findings(host: Host, now: int, unused_days: int, replica_days: int) -> t.List[Finding]:
    """Return all findings: first VM by VM, then those that concern no VM. now: seconds since 1970. The days say when a
    disk counts as unused, and a replica as stale.
    """
    facts = Facts(host)
    result: t.List[Finding] = []
    for vm in host.vms:
        for check in _OF_A_VM:
            result += check(facts, vm)
    for disk in sorted(host.detached, key=lambda d: d.volume.name):
        result += detached(facts, disk, now - unused_days * _DAY)
    for of_host in _OF_THE_HOST:
        result += of_host(facts)
    result += replicas_here(facts, render_time(now - replica_days * _DAY))
    return result
