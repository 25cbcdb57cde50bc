# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is half done on a host: interrupted runs, moves, transfers, leases, drained members, overlays."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from . import replicas
from .findings import Finding, Task
from .identity import PREFIX, member_of
from .inventory import Host
from .journal import intent_property
from .layout import (
    container,
    detached_dataset,
    diverged_container,
    is_below,
    last_part,
    replicas_container,
    restoring_container,
    vm_dataset,
)
from .lease import lease_property
from .moves import COMING, LEAVING, MOVE_PROPERTY, Move, has_memory, unreadable
from .paused_guests import paused_guests
from .power import why_home_unknown
from .replicas import HOST, OF_VM, ROLE, is_synced
from .restore import RESTORED, decode_origin
from .restoring import restoring
from .unfinished import is_unfinished

RUN, REPLICA, RESTORE, LEASE, DRAINED, OVERLAY, STOPPED, DIVERGED, UNREADABLE = (
    "run",
    "replica",
    "restore",
    "lease",
    "drained",
    "overlay",
    "stopped",
    "diverged",
    "unreadable",
)
# Of a move: the VM leaves, or has left and its name is taken here; it comes; it was taken over, or is being taken over.
LEAVES, TOMBSTONE, COMES, TAKEN_OVER, TAKES_OVER = "leaves", "tombstone", "comes", "taken_over", "takes_over"
KINDS = (
    RUN,
    LEAVES,
    COMES,
    TAKEN_OVER,
    TAKES_OVER,
    TOMBSTONE,
    REPLICA,
    RESTORE,
    LEASE,
    DRAINED,
    OVERLAY,
    STOPPED,
    DIVERGED,
    UNREADABLE,
)

_OF_RUNS = ("intent", "intent_of_other_host", "intent_unreadable", "intent_without_vm", "vm_unfinished")
_LEFT_BY_RUNS = ("guard", "from_mark")  # a run that is listed has left them, too
_BY_HAND = ("intent",)  # nothing but a command of ZFS gives it up


class HalfDone(t.NamedTuple):
    """One thing that is half done on a host."""

    kind: str
    """One of KINDS."""
    text: str
    vm: str = ""
    """The UUID of the VM."""
    alias: str = ""
    since: str = ""
    """When it began, by the clock of the host. "" if that is not known."""
    host: str = ""
    """The other host of a move or a replica."""
    group: str = ""
    """The group of a lease, of a drained member, or of a member that a run was making or deleting."""
    volume: str = ""
    repair: t.Optional[Task] = None
    """The task that goes on, or puts it right."""
    repairable: bool = False
    """Whether disk_verify does that."""
    creates: str = ""
    """The name of the VM that the run was making."""
    deletes: str = ""
    """The name of the VM that the run was deleting."""
    unfinished: bool = False
    """Whether the hypervisor has the VM, and has made or deleted only a part of it."""
    inherit: t.Tuple[str, ...] = ()
    """A property and its dataset: C(zfs inherit) gives it up."""
    restoring: t.Sequence[t.Mapping[str, t.Any]] = ()
    """The disks of an interrupted restore in place whose volumes change places, as vm_info reports them."""
    works: bool = False
    """Whether a task works on it, or may work on it, at the moment."""


class AtWork(t.NamedTuple):
    """The tasks that change the host at the moment."""

    pools: bool
    """Whether one changes VMs and disks."""
    transfers: t.Collection[str]
    """The VMs that are moved or replicated, by UUID."""


def half_done(
    host: Host,
    findings: t.Sequence[Finding],
    leases: t.Sequence[t.Mapping[str, t.Any]],
    streams: t.Sequence[str],
    at_work: AtWork,
) -> t.List[HalfDone]:
    """Return all that is half done on a host.

    findings: those of disk_verify. leases: those of its pools, as vm_info reports them. streams: the replicas whose
    transfer has begun and not ended.
    """
    return [
        *_runs(host, findings, at_work),
        *(_move(host, move, at_work) for _uuid, move in sorted(host.moves.items())),
        *_unreadable(host),
        *_streams(host, streams, at_work),
        *_restores(host, at_work),
        *_leases(leases),
        *_members(host),
        *_overlays(host),
        *_stopped(host),
        *_diverged(host),
    ]


def _runs(host: Host, findings: t.Sequence[Finding], at_work: AtWork) -> t.Iterator[HalfDone]:
    """What interrupted runs have left: what disk_verify finds of it, once for each VM."""
    listed = {finding.vm for finding in findings if finding.kind in _OF_RUNS} - {""}
    unfinished = {config.uuid for config in host.configs if is_unfinished(config)}
    seen: t.Set[t.Tuple[str, str]] = set()
    for finding in findings:
        if finding.kind not in (*_OF_RUNS, *_LEFT_BY_RUNS):
            continue
        if finding.kind in _LEFT_BY_RUNS and finding.vm in listed:
            continue
        if finding.kind == "vm_unfinished" and any(one[0] == finding.vm for one in seen):
            continue
        seen.add((finding.vm, finding.kind))
        pool = next((pool for pool, vm in host.intents if vm == finding.vm), "")
        entry = host.intents.get((pool, finding.vm))
        ours = entry if entry is not None and entry.host == host.name else None
        yield HalfDone(
            RUN,
            finding.message,
            finding.vm,
            finding.alias,
            since=entry.since if entry is not None else "",
            volume=finding.volume,
            repair=finding.repair,
            repairable=finding.repairable,
            creates=ours.creates if ours is not None else "",
            deletes=ours.deletes if ours is not None else "",
            unfinished=finding.vm in unfinished,
            group=member_of(ours.member)[0] if ours is not None else "",
            inherit=(PREFIX + intent_property(finding.vm), container(pool))
            if finding.kind in _BY_HAND and pool
            else (),
            restoring=[disk for vm in host.vms if vm.config.uuid == finding.vm for disk in restoring(vm)],
            works=at_work.pools,
        )


def _move(host: Host, move: Move, at_work: AtWork) -> HalfDone:
    kind, text = TOMBSTONE, f"it has moved to {move.host}, and its name is taken here"
    if is_ending(host, move):
        kind, text = TAKEN_OVER, f"{move.host} has taken it over, and its end here is not complete"
    elif move.phase == LEAVING:
        kind, text = LEAVES, f"it is about to leave for {move.host}"
    elif move.phase == COMING and move.back_to:
        kind, text = TAKES_OVER, f"it is being taken over from {move.host}"
    elif move.phase == COMING:
        kind, text = COMES, f"it is about to come from {move.host}"
    if has_memory(move, host.datasets, host.geometry):
        text += "; the memory of its guest is saved here, and its disks may be read-only until that is restored"
    if move.vm in paused_guests(host):
        text += "; its guest stands still until then"
    return HalfDone(kind, text, move.vm, move.alias, move.since, move.host, works=move.vm in at_work.transfers)


def is_ending(host: Host, move: Move) -> bool:
    """Whether another host has taken the VM over, and something is left to do for its end here.

    Without anything left, the record is a tombstone as any other.
    """
    if not move.taken:
        return False
    if move.has_left or any(config.uuid == move.vm for config in host.configs):
        return True
    if any(vm == move.vm for _pool, vm in host.intents) or any(
        _is_empty(host, pool, move.vm) for pool in host.geometry
    ):
        return True
    return any(
        _goes_back(host, volume)
        for volume in host.datasets.values()
        if volume.backs and volume.user.get(OF_VM) == move.vm
    )


def _is_empty(host: Host, pool: str, vm: str) -> bool:
    """Return whether the dataset of a VM is left, with nothing in it."""
    root = vm_dataset(pool, vm)
    return root in host.datasets and not any(name.startswith((f"{root}/", f"{root}@")) for name in host.datasets)


def _goes_back(host: Host, volume: Dataset) -> bool:
    """Return whether a disk of a VM that was taken over has not come yet to where it will stay."""
    uuid = last_part(volume.name)
    if volume.name == detached_dataset(volume.pool, uuid):
        return bool(volume.user.get(replicas.DIVERGED)) or volume.user.get(ROLE) == uuid
    base, points = volume.user.get(replicas.DIVERGED, ""), _snapshots(host, volume)
    at = next((number for number, point in enumerate(points) if f"{point.guid:x}" == base), -1)
    newer = points[at + 1 :]
    written = bool(volume.written) or any(point.written for point in newer)
    if volume.parent == replicas_container(volume.pool):
        return bool(base) and (written or bool(newer))
    if not is_below(volume.name, diverged_container(volume.pool)):
        return False
    if volume.user.get(ROLE) and not base:
        return True
    beside = f"{replicas_container(volume.pool)}/{uuid}" in host.datasets
    of_users = [point for point in newer if not is_synced(point.name.partition("@")[2])]
    return at >= 0 and not (written or of_users or beside)


def _snapshots(host: Host, volume: Dataset) -> t.List[Dataset]:
    """Return the snapshots of a volume, the oldest first."""
    points = [one for one in host.datasets.values() if one.kind == "snapshot" and one.parent == volume.name]
    return sorted(points, key=lambda point: point.createtxg)


def _unreadable(host: Host) -> t.Iterator[HalfDone]:
    for name in unreadable(host.datasets.values()):
        text = f"the record of its move or failover cannot be read: look at zfs get {PREFIX}{MOVE_PROPERTY} {name},"
        text += " and find out which host has the VM"
        yield HalfDone(UNREADABLE, text, last_part(name), volume=name)


def _streams(host: Host, streams: t.Sequence[str], at_work: AtWork) -> t.Iterator[HalfDone]:
    for name in sorted(streams):
        user = host.datasets[name].user if name in host.datasets else {}
        vm = user.get(OF_VM, "")
        text = f"the transfer to {name} has begun and not ended"
        works = at_work.pools or vm in at_work.transfers
        yield HalfDone(REPLICA, text, vm, host=user.get(HOST, ""), volume=name, works=works)


def _restores(host: Host, at_work: AtWork) -> t.Iterator[HalfDone]:
    """Disks that are restored from another host and are not whole yet."""
    for name, dataset in sorted(host.datasets.items()):
        if dataset.kind == "snapshot" or dataset.parent != restoring_container(dataset.pool):
            continue
        disk = last_part(name)
        vm = next((one.config for one in host.vms if disk in {each.uuid for each in one.disks}), None)
        known = decode_origin(dataset.user.get(RESTORED, ""))
        text = f"disk {disk} is restored from another host to {name}, and not whole yet"
        text += f"; it comes from @{known.snapshot}" if known is not None else ""
        uuid, alias = (vm.uuid, vm.alias) if vm is not None else ("", "")
        yield HalfDone(RESTORE, text, uuid, alias, volume=name, works=at_work.pools or uuid in at_work.transfers)


def _leases(leases: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[HalfDone]:
    for one in leases:
        inherit = (PREFIX + lease_property(one["group"]), container(one["pool"]))
        if not one["readable"]:
            yield HalfDone(LEASE, "its lease cannot be read", group=one["group"], inherit=inherit)
        elif one["expired"]:
            text = f"{one['holder']} has not given its lease back, which has expired at {one['expires']}"
            yield HalfDone(LEASE, text, since=one["since"], group=one["group"])
        else:
            text = f"{one['holder']} has its lease until {one['expires']}"
            yield HalfDone(LEASE, text, since=one["since"], group=one["group"], works=True)


def _members(host: Host) -> t.Iterator[HalfDone]:
    for vm in host.vms:
        if vm.drained:
            group = member_of(vm.member or "")[0]
            text = f"this member of {group} is out of service" if group else "it is marked as out of service"
            yield HalfDone(DRAINED, f"{text} (drained)", vm.config.uuid, vm.config.alias, group=group)


def _overlays(host: Host) -> t.Iterator[HalfDone]:
    """VMs that write to an overlay, or whose volume a job of the hypervisor copies."""
    for vm in host.vms:
        if vm.overlaid:
            yield HalfDone(OVERLAY, vm.overlaid, vm.config.uuid, vm.config.alias)


def _stopped(host: Host) -> t.Iterator[HalfDone]:
    """VMs with failover that nobody has asked for since the boot."""
    for vm in host.vms:
        if why_home_unknown(vm) and not vm.config.frozen:
            text = "it has failover and does not run, and nobody has asked since the boot whether it was taken over"
            yield HalfDone(STOPPED, text, vm.config.uuid, vm.config.alias)


def _diverged(host: Host) -> t.Iterator[HalfDone]:
    """Disks that are kept whole on the old home of a VM that was taken over."""
    for name, dataset in sorted(host.datasets.items()):
        if dataset.kind != "snapshot" and is_below(name, diverged_container(dataset.pool)) and dataset.user.get(OF_VM):
            text = f"{name} is kept: what it has is not on {dataset.user.get(HOST, 'the new home')}"
            yield HalfDone(DIVERGED, text, dataset.user[OF_VM], volume=name)
