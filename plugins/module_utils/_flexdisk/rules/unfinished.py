# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that the hypervisor has not finished to make or to delete, and what is left of them: what it is, and whose.

vmadm makes and deletes a VM by several commands. If it ends between two of them, the VM stays as far as it came.
"""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset, DatasetId
from ..model.vm import Intent, Vm, VmConfig
from .inventory import Host, unlinked_reason
from .journal import datasets_in_use
from .layout import container, is_below, vm_dataset

STATES = ("configured", "incomplete", "provisioning")


def is_unfinished(config: VmConfig) -> bool:
    """Whether the creation or deletion of the VM is under way or was interrupted."""
    return config.state in STATES


def intent_of(host: Host, uuid: str) -> t.Optional[Intent]:
    """Return the intent of a run of this host that was creating or deleting the VM; None if there is none."""
    entries = (entry for (_pool, vm), entry in host.intents.items() if vm == uuid)
    return next((e for e in entries if e is not None and e.host == host.name and (e.creates or e.deletes)), None)


def is_over(host: Host, vm: t.Optional[Vm], entry: t.Optional[Intent]) -> bool:
    """Whether a run of this host has ended, and its record only waits: its guest still runs, or was stopped much later;
    or nothing is left to do of a rollback.
    vm: as it is now, None if the host cannot use it.
    """
    if vm is None or entry is None or entry.host != host.name or is_unfinished(vm.config):
        return False
    return (entry.late or bool(entry.rollback)) and vm.interrupted is None


def reason(host: Host, config: VmConfig) -> str:
    """Return why no task changes a VM that has no dataset, or is unfinished, and what helps."""
    if not is_unfinished(config):
        return unlinked_reason(config)
    return unfinished_vm_text(config, intent_of(host, config.uuid))


def unfinished_vm_text(config: VmConfig, entry: t.Optional[Intent]) -> str:
    """Return the message about an unfinished VM, and what completes or removes it. entry: see intent_of()."""
    state = f"the VM is {config.state}"
    if config.frozen:
        return f"{state}: {config.frozen}"
    if entry is not None and entry.deletes:
        return f"{state}: its deletion was interrupted at {entry.since}; vm with state=absent deletes what is left"
    if entry is not None and entry.creates:
        text = f"{state}: its creation was interrupted at {entry.since}; the same task of vm makes it anew"
        return f"{text}, and state=absent removes it"
    return (
        f"{state}: it is being created or deleted, or that was interrupted, and no task of this collection has begun "
        f"that; if it stays so, vmadm delete {config.uuid} removes it with its disks"
    )


class Leftovers(t.NamedTuple):
    """What is left of a VM whose creation or deletion was interrupted: its own dataset, and all below it."""

    uuid: str
    pool: str
    entry: Intent
    parts: t.Tuple[DatasetId, ...]
    """The datasets and snapshots."""
    still_needed: t.Tuple[str, ...]
    """Datasets that somebody may still need. They are never removed."""
    frees_bytes: int
    """The space that the pool gets back when all of it is destroyed."""

    @property
    def root(self) -> str:
        """The VM's own dataset."""
        return vm_dataset(self.pool, self.uuid)

    def is_called(self, name: str) -> bool:
        """Whether the task called the VM by this name."""
        return name in (self.entry.creates, self.entry.deletes)


def leftovers_of(host: Host, pool: str, uuid: str) -> t.Optional[Leftovers]:
    """Return what is left of a VM that a task of this host was creating or deleting; None if there was no such task."""
    entry = intent_of(host, uuid)
    if entry is None:
        return None
    root = vm_dataset(pool, uuid)
    there = in_place(host, root)
    known = any(config.uuid == uuid for config in host.configs)
    lasting = still_needed(there, root, host.datasets.get(container(pool)), known, bool(entry.deletes))
    parts = tuple(d.dataset_id for d in there)
    frees = space_taken(host.datasets[root]) if root in host.datasets else 0
    return Leftovers(uuid, pool, entry, parts, tuple(lasting), frees)


def in_place(host: Host, root: str) -> t.List[Dataset]:
    """Return the dataset of a VM with all below it and their snapshots, sorted by name: the root is the first."""
    there = [d for d in host.datasets.values() if d.name == root or is_below(d.name, root) or d.parent == root]
    return sorted(there, key=lambda d: d.name)


def still_needed(
    there: t.Iterable[Dataset], root: str, empty: t.Optional[Dataset], known: bool, deletes: bool
) -> t.List[str]:
    """Return the datasets that somebody may still need of a VM whose creation or deletion was interrupted. The plan and
    the last check before a removal both call this.

    known: the hypervisor still has the VM. vmadm itself writes metadata and logs of the zone to the dataset of such a
    VM. deletes: the VM was being deleted, so its dataset may have been in use.
    """
    if deletes:
        return datasets_in_use((d for d in there if d.name != root), empty)
    return datasets_in_use(there, empty, root if known else "")


def space_taken(root: Dataset) -> int:
    """Return the bytes that a VM's dataset takes from its pool."""
    return max(root.used, root.reservation)


def leftovers_by_name(host: Host, name: str) -> t.Optional[Leftovers]:
    """Return what is left of a VM with this name or uuid that the hypervisor does not know; None if nothing is."""
    configs = {config.uuid for config in host.configs}
    for (pool, uuid), entry in sorted(host.intents.items()):
        called = entry is not None and name in (entry.creates, entry.deletes, uuid)
        if called and uuid not in configs and vm_dataset(pool, uuid) in host.datasets:
            return leftovers_of(host, pool, uuid)
    return None
