# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds of findings: what can be wrong with a host's disks, its severity, its meaning and its repair."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "info")
OURS = "flexdisk.hypervisor."
Task = t.Mapping[str, t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class Kind:
    """A kind of finding."""

    # error (data or a VM are in danger, or a task is refused), warning (to be put right) or info (to know).
    severity: str
    meaning: str
    # What disk_verify does about it, "" if it does nothing.
    repair: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong on a host."""

    kind: str
    message: str
    # A uuid.
    vm: str = ""
    alias: str = ""
    # A label.
    disk: str = ""
    # The dataset concerned.
    volume: str = ""
    # The task that puts it right.
    repair: t.Optional[Task] = None
    repairable: bool = False
    # Arguments of our own repair.
    args: t.Mapping[str, t.Any] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """error, warning or info."""
        return KINDS[self.kind].severity

    def as_dict(self) -> t.Dict[str, t.Any]:
        """Return the finding as disk_verify returns it."""
        keys = ("kind", "severity", "vm", "alias", "disk", "volume", "message", "repair", "repairable")
        return {**{key: getattr(self, key) for key in keys}, "meaning": KINDS[self.kind].meaning}


def own_task(kind: str, vm: str = "") -> Task:
    """Return the task in which disk_verify repairs a kind of finding."""
    return {OURS + "disk_verify": {**({"vms": [vm]} if vm else {}), "repair": [kind]}}


def counts(findings: t.Iterable[Finding]) -> t.Dict[str, int]:
    """Return the number of findings of each severity."""
    every = [finding.severity for finding in findings]
    return {severity: every.count(severity) for severity in SEVERITIES}


def fails(findings: t.Iterable[Finding], limit: str) -> bool:
    """Whether a finding is at least as severe as limit, one of SEVERITIES or C(never)."""
    bad = SEVERITIES[: SEVERITIES.index(limit) + 1] if limit in SEVERITIES else ()
    return any(finding.severity in bad for finding in findings)


KINDS: t.Dict[str, Kind] = {
    # what the hypervisor's configuration and the volumes say of each other
    "dangling_reference": Kind(
        "error",
        "The VM's configuration names a volume that does not exist. The VM does not start, or starts without the disk.",
    ),
    "unread_pool": Kind(
        "info",
        "A disk of the VM lies in a pool that this task does not read, so nothing is known of its volume.",
    ),
    "overlaid_disk": Kind(
        "error",
        "The VM uses a volume of its own in a way that its list of disks does not show, such as below an overlay. All "
        "tasks that concern the VM are refused.",
    ),
    "parked_still_configured": Kind(
        "warning",
        "The disk is detached with its data, but the VM's configuration still names it. An interrupted detach leaves "
        "that.",
        "takes the disk out of the configuration; the VM must be stopped",
    ),
    "unused_without_volume": Kind(
        "warning",
        "A VM of Proxmox VE names a volume as unused that is not there: an interrupted detach has left the line, or "
        "somebody has taken the volume away by hand.",
    ),
    "shared_volume": Kind(
        "error",
        "Several VMs have the same volume. If two of them run, they destroy its file system.",
    ),
    "disk_twice": Kind(
        "error",
        "The VM has the same volume as two disks. A guest that uses both destroys its file system.",
    ),
    "stray_volume": Kind(
        "warning",
        "A disk of the VM lies outside the VM's dataset. The quota does not cover it, and snapshots leave it out.",
    ),
    "slot_conflict": Kind(
        "error",
        "Several disks of the VM, or a disk and a device of the host, have the same PCI slot. The VM does not start.",
    ),
    "not_plugged": Kind(
        "warning",
        "The running VM does not have a disk that it is configured with. It will after its next start.",
    ),
    "vm_unfinished": Kind(
        "error",
        "The hypervisor is making or deleting the VM, or was interrupted in that. The VM cannot be changed.",
    ),
    "vm_without_dataset": Kind(
        "error",
        "The VM has no dataset any more, or is described in a form that is not supported. The VM cannot be changed.",
    ),
    # identity
    "duplicate_uuid": Kind(
        "error",
        "Several volumes have the same uuid, so no task knows which is meant. All tasks that concern them are refused.",
    ),
    "uuid_mismatch": Kind(
        "error",
        "The hypervisor and the volume name different uuids: somebody has moved or copied something by hand. Tasks "
        "that destroy or detach the disk are refused.",
        "writes the hypervisor's uuid to the volume, unless another disk has the uuid that the volume carries",
    ),
    "serial_mismatch": Kind(
        "error",
        "The guest is shown the serial number of another disk than the volume says to be: somebody has moved or copied "
        "something by hand. Tasks that destroy or detach the disk are refused.",
    ),
    "uuid_not_configured": Kind(
        "info",
        "The volume has an identity that its VM's configuration does not have yet, so a volume put into its place by "
        "hand would not be noticed.",
    ),
    "stale_copy": Kind(
        "warning",
        "The volume's copy of what the hypervisor says of the disk is out of date. The hypervisor's word counts; the "
        "copy is what a detached disk, or one of a lost VM, is known by.",
        "copies the hypervisor's word to the volume",
    ),
    "record_differs": Kind(
        "warning",
        "The record of a VM on Proxmox VE, a file below /etc/pve/flexdisk, is not what its volumes say. A volume with "
        "any property of this collection wins. For a volume without, the record counts.",
    ),
    "unfinished_snapshot": Kind(
        "warning",
        "A snapshot of a VM on Proxmox VE is half made or half deleted, or the VM is locked for that or a rollback. "
        "Either a task of Proxmox VE is still at work, or it was interrupted.",
    ),
    "duplicate_name": Kind(
        "error",
        "Several disks of one VM, attached or detached from it, have the same name: an entry with it matches none.",
    ),
    "invalid_name": Kind(
        "warning",
        "The name is not valid for a disk, so the disk counts as unnamed; or it is a number, which people and programs "
        "take for an index.",
    ),
    # properties
    "invalid_property": Kind(
        "warning",
        "A property of the volume has a value that does not validate. It counts as not set.",
    ),
    "property_too_long": Kind(
        "error",
        "A property is longer than ZFS keeps one. It is lost when the volume is sent elsewhere or written again.",
    ),
    "inherited_property": Kind(
        "warning",
        "A property that belongs to single volumes is set on a dataset above, and shows through where they lack it. It "
        "counts for nothing here, but zfs list shows it, and a volume may seem to be what it is not.",
        "takes the property away from the dataset above",
    ),
    "received_property": Kind(
        "info",
        "A property came with zfs receive and is not set here. It counts, until the next incremental receive changes "
        "it or zfs inherit hides it.",
        "sets it here, to the same value",
    ),
    # volumes without a VM
    "orphan_volume": Kind(
        "warning",
        "The volume lies below a VM's dataset and the VM's configuration does not know it. It takes space of the VM, "
        "goes when the VM is deleted, and no guest sees it.",
        "detaches it, with its data and snapshots, so that it outlives the VM",
    ),
    "parked_place": Kind(
        "warning",
        "A detached disk does not lie where its uuid says, or has none.",
        "gives it a uuid if it has none, and renames its volume to it",
    ),
    "never_used": Kind(
        "info",
        "Nothing has ever been written to the detached disk. It takes its whole size from the pool.",
    ),
    "unknown_vm": Kind(
        "info",
        "The detached disk remembers a VM that this host does not have. It waits for a VM to attach it to, or goes "
        "for good.",
    ),
    "stranger_volume": Kind(
        "info",
        "The volume has the identity of a disk and lies where no task looks: a copy, a backup, or what is left of "
        "a VM.",
    ),
    # replicas of disks of other hosts
    "replica_without_role": Kind(
        "warning",
        "A dataset in the place of replicas was not made by a sync, or has lost its properties. No stream is received "
        "into it.",
    ),
    "replica_of_own_disk": Kind(
        "error",
        "The host has a disk and a replica of the same disk. Only one of them is the disk that a VM uses.",
    ),
    "replica_changed": Kind(
        "error",
        "Somebody has written to the replica. It is no copy of its disk any more, and takes no stream. zfs rollback to "
        "its newest snapshot gives up what was written.",
    ),
    "replica_stale": Kind(
        "warning",
        "The replica was not brought up to date for days, because no sync runs, or because its disk has gone. "
        "A failover would lose what was written since.",
    ),
    "replica_locked": Kind(
        "info",
        "The key of an encrypted replica is not loaded. A sync needs none, but a failover or a move to this host is "
        "refused until it is (zfs load-key).",
    ),
    # space
    "quota_drift": Kind(
        "warning",
        "Quota or reservation of the VM's dataset are not what the law gives: its disks can get less than they were "
        "promised, or take more.",
        "applies the law, as zfs_quota does",
    ),
    "reservation_off_auto": Kind(
        "warning",
        "A thick volume's reservation is not the one that ZFS gives by itself: too small, and writes to it may fail; "
        "too large, and space is lost.",
        "sets it to auto and applies the law, as zfs_quota does",
    ),
    "unused_quota": Kind(
        "info",
        "The VM has no flexible disk space, and its quota is above the law: room for a disk that was removed.",
    ),
    # what interrupted runs leave
    "guard": Kind(
        "warning",
        "An interrupted detach has left its guard, a held snapshot: the volume cannot be destroyed, and what is "
        "overwritten stays allocated.",
        "lifts the guard",
    ),
    "from_mark": Kind(
        "warning",
        "An interrupted run has left a mark on a volume that it was about to move or to fill.",
        "takes the mark away where the move has come to its end",
    ),
    "move_unreadable": Kind(
        "error",
        "The record of a move or failover cannot be read, so tasks treat the VM as if it did not move. Find out which "
        "host has the VM.",
    ),
    "guest_paused": Kind(
        "error",
        "A move with the memory of a guest was interrupted, and the guest stands still. It loses nothing, and answers "
        "nobody, until the move goes on or is given up.",
    ),
    "disks_closed": Kind(
        "error",
        "A move with the memory of a guest was interrupted, and the disks of the VM are read-only until the move goes "
        "on or is given up. Nothing else can start the VM. A guest that somebody has let go on writes until it ends.",
    ),
    "memory_left": Kind(
        "warning",
        "A VM has moved with the memory of its guest, which still lies on this host: it takes space, and holds what "
        "the guest knew.",
    ),
    "intent": Kind(
        "warning",
        "A run on this host was interrupted. The next task that names the VM finishes it.",
    ),
    "intent_of_other_host": Kind(
        "warning",
        "A run on another host was interrupted, and only that host can finish it. If the host is gone or was renamed, "
        "nothing will.",
        "removes the record; none of its steps are done",
    ),
    "intent_unreadable": Kind(
        "warning",
        "What an interrupted run wrote down cannot be read, so nothing will finish it.",
        "removes the record; none of its steps are done",
    ),
    "intent_without_vm": Kind(
        "warning",
        "An interrupted run concerned a VM that this host does not have.",
        "removes the record; none of its steps are done",
    ),
    "intent_index": Kind(
        "warning",
        "The list of interrupted runs is wrong. A run that it does not name is never finished.",
        "writes the list anew",
    ),
}
REPAIRABLE = tuple(kind for kind, entry in KINDS.items() if entry.repair)
# Kinds of findings that an interrupted repair may leave.
LEAVES: t.Dict[str, t.Tuple[str, ...]] = {
    "orphan_volume": ("guard", "quota_drift"),
    "reservation_off_auto": ("quota_drift",),
    "intent_of_other_host": ("intent_index",),
    "intent_unreadable": ("intent_index",),
    "intent_without_vm": ("intent_index",),
}
INTENTS = ("intent_of_other_host", "intent_unreadable", "intent_without_vm", "intent_index")
