# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics of a host, as gauges: space, findings, detached disks, replicas, and what is unfinished.

Times are given as seconds since 1970, not as ages. The monitoring computes the age, also when this text is no longer
written.
"""

from __future__ import annotations

import typing as t

from ..model.vm import Disk, Vm
from .exposition import Family, Labels
from .findings import KINDS, SEVERITIES, Finding
from .half_done import is_ending
from .identity import decode_time, is_uuid, member_of, seconds_of
from .inventory import Host
from .layout import diverged_container, is_below, replicas_container
from .replicas import HOST, OF_VM, REPLICAS_PROPERTY, ROLE, SYNCED, Note, decode_notes, sync_number
from .space import allocatable, flexible_bytes, quota_drift
from .unfinished import is_over

_Samples = t.List[t.Tuple[Labels, int]]
_Pairs = t.Iterable[t.Tuple[Labels, t.Optional[int]]]


class ReplicaPolicy(t.NamedTuple):
    """How often a VM is replicated to a host, or all members of a group."""

    vm: str
    """A UUID or an alias, "" for a group."""
    group: str
    host: str
    every: int
    """Seconds."""

    def concerns(self, vm: Vm) -> bool:
        """Return whether the VM, or its group, is meant."""
        if self.vm:
            return self.vm in (vm.config.uuid, vm.config.alias)
        return bool(self.group) and member_of(vm.member or "")[0] == self.group


def families(
    host: Host,
    driver: str,
    findings: t.Sequence[Finding],
    leases: t.Sequence[t.Mapping[str, t.Any]],
    policies: t.Sequence[ReplicaPolicy] = (),
) -> t.List[Family]:
    """Return the metrics of a host. leases: those of its pools, as vm_info reports them."""
    return [
        Family("flexdisk_host_info", "The hypervisor of the host. Always 1.", [({"driver": driver}, 1)]),
        *_of_pools(host),
        *_of_vms(host),
        *_of_detached_disks(host),
        *_of_originals(host),
        _of_policies(host, policies),
        *_of_replicas(host),
        *_of_findings(findings),
        *_half_done(host, leases),
    ]


def _family(name: str, meaning: str, samples: _Pairs) -> Family:
    """Return a family without the samples that have no value."""
    return Family(f"flexdisk_{name}", meaning, [(labels, value) for labels, value in samples if value is not None])


def _of_pools(host: Host) -> t.Iterator[Family]:
    pools = sorted(host.geometry)
    roots = {pool: host.datasets[pool] for pool in pools}
    detached = {pool: sum(d.volume.used for d in host.detached if d.volume.pool == pool) for pool in pools}

    def of(name: str, meaning: str, value: t.Callable[[str], int]) -> Family:
        return _family(f"pool_{name}_bytes", meaning, [({"pool": pool}, value(pool)) for pool in pools])

    yield of("size", "Bytes that are used or available.", lambda pool: roots[pool].used + roots[pool].available)
    yield of("available", "Bytes that the pool can still give.", lambda pool: roots[pool].available)
    yield of("detached", "Bytes that detached disks take.", detached.__getitem__)
    yield of(
        "replicas",
        "Bytes that replicas of other hosts' disks take.",
        lambda pool: _used(host, replicas_container(pool)),
    )
    yield of(
        "diverged",
        "Bytes of disks that are kept aside after a failover.",
        lambda pool: _used(host, diverged_container(pool)),
    )


def _used(host: Host, name: str) -> int:
    return host.datasets[name].used if name in host.datasets else 0


def _of_vms(host: Host) -> t.Iterator[Family]:
    vms = sorted(host.vms, key=lambda vm: vm.config.uuid)

    def of(name: str, meaning: str, value: t.Callable[[Vm], t.Optional[int]]) -> Family:
        return _family(f"vm_{name}_bytes", meaning, [(_labels(vm), value(vm)) for vm in vms])

    drifts = {vm.config.uuid: quota_drift(vm, host.geometry[vm.config.pool]) for vm in vms}
    yield of("flexible_disk_size", "The space that the disks and snapshots of the VM share.", flexible_bytes)
    yield of("allocatable", "Bytes that disks of the VM can still get. Negative if more is taken.", allocatable)
    yield of("quota_drift", "The quota of the VM, less what it should be.", lambda vm: drifts[vm.config.uuid][0])
    yield of(
        "reservation_drift", "The reservation of the VM, less what it should be.", lambda vm: drifts[vm.config.uuid][1]
    )


def _labels(vm: Vm) -> t.Dict[str, str]:
    return {"vm": vm.config.uuid, "name": vm.config.alias, "pool": vm.config.pool}


def _of_detached_disks(host: Host) -> t.Iterator[Family]:
    disks = sorted(host.detached, key=lambda disk: disk.volume.name)
    labels = {d.volume.name: {"disk": d.uuid, "name": d.name, "vm": d.vm, "pool": d.volume.pool} for d in disks}
    sizes = [(labels[disk.volume.name], disk.size) for disk in disks]
    yield _family("detached_disk_size_bytes", "The size of a disk that no VM has.", sizes)
    times = [(labels[disk.volume.name], disk.volume.creation) for disk in disks]
    yield _family("detached_disk_created_timestamp_seconds", "When a disk that no VM has was made.", times)


def _of_originals(host: Host) -> t.Iterator[Family]:
    """Yield the metrics of disks that have replicas on other hosts."""
    notes = [
        ({**_labels(vm), "disk": disk.uuid, "disk_name": disk.name, "replica_host": note.host}, disk, note)
        for vm in sorted(host.vms, key=lambda vm: vm.config.uuid)
        for disk in vm.disks
        for note in decode_notes(disk.volume.user.get(REPLICAS_PROPERTY, ""))
    ]
    times = [(labels, seconds_of(note.synced) if note.synced else 0) for labels, _disk, note in notes if not note.home]
    text = "When the replica last had all that the disk had. 0 if it never had."
    yield _family("disk_replica_synced_timestamp_seconds", text, times)
    lags = [(labels, _lag(disk, note)) for labels, disk, note in notes]
    yield _family("disk_replica_lag_bytes", "Bytes that were written to the disk since.", lags)


def _of_policies(host: Host, policies: t.Sequence[ReplicaPolicy]) -> Family:
    """Return the metric of how old replicas may become. The policy of a VM comes before that of its group."""
    every: t.Dict[t.Tuple[str, str], int] = {}
    vms = {vm.config.uuid: vm for vm in sorted(host.vms, key=lambda vm: vm.config.uuid)}
    for policy in sorted(policies, key=lambda one: not one.vm):
        for uuid, vm in vms.items():
            if policy.concerns(vm):
                every.setdefault((uuid, policy.host), policy.every)
    samples = [({**_labels(vms[uuid]), "replica_host": peer}, every[uuid, peer]) for uuid, peer in sorted(every)]
    return _family("vm_replica_every_seconds", "How often the policy of the VM asks for a sync.", samples)


def _lag(disk: Disk, note: Note) -> t.Optional[int]:
    """Return the bytes written since the newest snapshot of the sync with this peer. None if it is gone."""
    peer, later = int(note.peer, 16), disk.volume.written
    for snapshot in reversed(disk.snapshots):
        if sync_number(snapshot.name.partition("@")[2], peer) is not None:
            return later
        later += snapshot.written
    return None


def _of_replicas(host: Host) -> t.Iterator[Family]:
    """Yield the metrics of the replicas on this host."""
    rows = [
        ({"disk": one.user[ROLE], "vm": one.user.get(OF_VM, ""), "home": one.user.get(HOST, ""), "pool": one.pool}, one)
        for name, one in sorted(host.datasets.items())
        if one.kind != "snapshot" and is_below(name, replicas_container(one.pool)) and is_uuid(one.user.get(ROLE, ""))
    ]
    times = [(labels, decode_time(one.user.get(SYNCED, ""))) for labels, one in rows]
    text = "When a replica here last had all that its disk had. 0 if it never had."
    yield _family("replica_synced_timestamp_seconds", text, [(key, seconds_of(at) if at else 0) for key, at in times])
    yield _family(
        "replica_used_bytes", "Bytes that a replica takes here.", [(labels, one.used) for labels, one in rows]
    )
    text = "Whether the key of an encrypted replica is loaded here (1), as a failover needs it, or not (0)."
    keys = [(labels, int(not one.locked)) for labels, one in rows if one.encryptionroot]
    yield _family("replica_key_loaded", text, keys)


def _of_findings(findings: t.Sequence[Finding]) -> t.Iterator[Family]:
    """Yield the number of findings by severity, with zeros so that alerts end, and by kind."""
    numbers: t.Dict[str, int] = {}
    for finding in findings:
        numbers[finding.kind] = numbers.get(finding.kind, 0) + 1
    of_severity: _Samples = [
        ({"severity": severity}, sum(number for kind, number in numbers.items() if KINDS[kind].severity == severity))
        for severity in SEVERITIES
    ]
    yield _family("findings", "What disk_verify finds, by severity.", of_severity)
    of_kind = [({"kind": kind, "severity": KINDS[kind].severity}, number) for kind, number in sorted(numbers.items())]
    yield _family("findings_by_kind", "What disk_verify finds, by kind.", of_kind)


def _half_done(host: Host, leases: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[Family]:
    vms = {vm.config.uuid: vm for vm in host.vms}
    names = {uuid: vm.config.alias for uuid, vm in vms.items()}
    journal = [
        ({"vm": uuid, "name": names.get(uuid, ""), "pool": pool}, seconds_of(entry.since) if entry is not None else 0)
        for (pool, uuid), entry in sorted(host.intents.items())
        if not is_over(host, vms.get(uuid), entry)
    ]
    text = "When a run began that has not ended: it works now, or was interrupted. 0 if its record cannot be read."
    yield _family("unfinished_run_since_timestamp_seconds", text, journal)
    moves = [
        (
            {
                "vm": uuid,
                "name": move.alias,
                "phase": "ending" if is_ending(host, move) else move.phase,
                "host": move.host,
            },
            seconds_of(move.since),
        )
        for uuid, move in sorted(host.moves.items())
    ]
    text = (
        "When a VM began to leave this host, or to come. One that has moved is there until its tombstone is given up."
    )
    yield _family("move_since_timestamp_seconds", text, moves)
    expiries = [
        ({"group": one["group"], "pool": one["pool"]}, seconds_of(one["expires"])) for one in leases if one["readable"]
    ]
    yield _family("lease_expires_timestamp_seconds", "When the lease of a group of VMs expires.", expiries)
