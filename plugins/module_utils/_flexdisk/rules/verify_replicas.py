# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the replicas on a host: written to, stale, or on the same host as the disk itself."""

from __future__ import annotations

from ..model.sizes import render_bytes
from .findings import Finding
from .identity import decode_time
from .keys import key_missing
from .layout import is_below, replicas_container
from .replicas import HOST, OF_VM, ROLE, SYNCED, empty_size, is_changed
from .verify_facts import Facts, Findings, listed


def replicas_here(facts: Facts, before: str) -> Findings:
    """Yield findings about replicas. One that was last complete before a time, as a time stamp, is stale."""
    datasets = facts.host.datasets
    places = [replicas_container(pool) for pool in facts.host.geometry]
    synced = {d.parent for d in datasets.values() if d.kind == "snapshot"}
    for name in sorted(datasets):
        dataset = datasets[name]
        uuid = dataset.user.get(ROLE, "")
        if dataset.kind == "snapshot" or not any(is_below(name, place) for place in places):
            continue
        if not uuid:
            yield _finding("replica_without_role", f"{name} does not say whose replica it is", name, "", "")
            continue
        vm, host = dataset.user.get(OF_VM, ""), dataset.user.get(HOST, "")
        text = f"{name}, the replica of a disk of VM {vm} on {host},"
        if uuid in facts.taken:
            holders = listed([one for one in facts.by_uuid.get(uuid, ()) if one != name] or ["a VM of this host"])
            yield _finding("replica_of_own_disk", f"{text} is beside the disk itself, {holders}", name, vm, uuid)
        if is_changed(dataset.written, empty_size(datasets, dataset.pool)) and name in synced:
            message = f"{text} was written to: {render_bytes(dataset.written)} since its newest snapshot"
            yield _finding("replica_changed", message, name, vm, uuid)
        if dataset.locked:
            message = f"{text} is locked: {key_missing(dataset.encryptionroot, dataset.keylocation)}"
            yield _finding("replica_locked", message, name, vm, uuid)
        last = decode_time(dataset.user.get(SYNCED, ""))
        if name in synced and last < before:
            yield _finding("replica_stale", f"{text} was last up to date {last or 'never'}", name, vm, uuid)


def _finding(kind: str, message: str, volume: str, vm: str, disk: str) -> Finding:
    return Finding(kind, message, vm, disk=disk, volume=volume)
