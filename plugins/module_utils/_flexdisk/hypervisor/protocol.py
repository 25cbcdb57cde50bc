# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interface of a hypervisor's driver. A driver carries out a command and verifies it; it never decides."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset, DatasetId
from ..model.desired import Description, ImageFile, NewVm
from ..model.resources import Resources
from ..model.vm import GuestDisk, VmConfig, VmRecord


class Resizing(t.Protocol):
    """The command of a hypervisor that resizes volumes itself. Else the engine does."""

    def resize_disk(self, vm: str, path: str, size: int, planned: t.Optional[Dataset] = None) -> None:
        """Resize a disk, and tell a running guest. planned: the volume that the user permits to be cut off."""


class Snapshots(t.Protocol):
    """Snapshots that a hypervisor keeps in the configurations of VMs, by their own names."""

    def create_snapshot(self, vm: str, name: str) -> None:
        """Take a snapshot of all disks of the VM."""

    def delete_snapshot(self, vm: str, name: str) -> None:
        """Delete a snapshot, also what an interrupted command has left of it."""

    def roll_back(self, vm: str, name: str, parts: t.Sequence[DatasetId]) -> None:
        """Bring a stopped VM back to its newest snapshot, with its settings. It stays stopped.

        parts: the snapshots of its volumes.
        """


class Storage(Resizing, t.Protocol):
    """Commands of a hypervisor that also manages quotas and snapshots of VMs itself. Else the engine does."""

    def set_flexible(self, vm: str, size: int) -> None:
        """Set the stored flexible_disk_size."""

    def set_quota(self, vm: str, quota: int) -> None:
        """Set the quota in bytes, a multiple of capabilities.quota_unit."""

    def set_compression(self, vm: str, path: str, compression: str) -> None: ...

    def create_snapshot(self, vm: str, name: str) -> None:
        """Take a snapshot of the VM's dataset and everything below it, at one moment."""

    def delete_snapshot(self, vm: str, name: str) -> None: ...

    def set_indestructible(self, vm: str, protected: bool) -> None: ...


class Records(t.Protocol):
    """Keeps records of VMs beside their configurations, so that both go the same ways."""

    def write_record(self, vm: str, record: VmRecord) -> None:
        """Replace the record of a VM. C(VmConfig.record) has it."""


class WaitingChanges(t.Protocol):
    """Changes that a hypervisor has begun and not made yet (C(VmConfig.waiting))."""

    def take_back(self, vm: str) -> None:
        """Take back what an interrupted run of this collection has left waiting.

        Raises FlexdiskError Changed if anything else waits, or the VM has changed since it was read.
        """


class Guests(t.Protocol):
    """What running guests have of their disks, for a hypervisor that may have failed to tell them a size."""

    def disk_sizes(self, vm: str) -> t.Mapping[str, int]:
        """Return the bytes of each disk that a running VM has, by its path. This starts no process."""

    def opened(self, vm: str = "") -> t.Sequence[GuestDisk]:
        """Return what a running VM, or each of them, has open, whatever its configuration says."""

    def unused(self, vm: str, volume: str) -> t.ContextManager[None]:
        """Keep a VM from being changed and started, while a volume changes that no VM uses.

        Raises FlexdiskError Changed if one uses the volume, or the VM has changed since it was read; Busy.
        """


class GuestMemory(t.Protocol):
    """The memory of guests that move. A file is restored as often as this is asked for: rules/saved_memory.py decides.

    Each method raises FlexdiskError.
    """

    def refuses(self, vm: str) -> t.List[str]:
        """Return what keeps the memory of a guest from being saved here and restored elsewhere. Read only."""

    def traveller(self, vm: str, path: str = "") -> t.Dict[str, t.Any]:
        """Return what another host must know to say whether it can restore a guest: memory (MiB), and more. Read only.

        path: the file, if it was saved.
        """

    def demands(self, vm: str) -> str:
        """Return a digest of what lacks() asks for a guest that runs, and of what refuses() says. Read only."""

    def lacks(self, vm: str, traveller: t.Mapping[str, t.Any], allowed: t.Collection[str]) -> t.List[str]:
        """Return what keeps this host from restoring a guest of another host, as text. Read only.

        traveller: what traveller() has returned on the other host, after saved_memory.read_traveller(). allowed: as for
        saved_domain().
        """

    def pause(self, vm: str) -> None:
        """Let a running guest stand still. All that it has written is on its disks then."""

    def is_saving(self, vm: str) -> bool:
        """Whether the hypervisor is at work on a save, or something else that takes its time."""

    def save(self, vm: str, path: str) -> None:
        """Save the memory of a guest that stands still in a file, and end its run. If that fails, it still does."""

    def ended_with_save(self, vm: str) -> bool:
        """Whether the hypervisor knows that the last run of a stopped VM has ended with a save of its memory."""

    def saved_domain(self, vm: str, path: str, allowed: t.Collection[str]) -> str:
        """Return what restore() takes: the VM as it ran when its memory was saved, with its disks of now. Read only.

        allowed: as for WholeVms.refuses(), because the file may come from a hostile host.
        """

    def restore(self, vm: str, path: str, saved: str) -> None:
        """Restore the memory of a stopped VM. The guest stands still. saved: what saved_domain() has returned."""

    def resume(self, vm: str) -> None:
        """Let the guest go on."""


class WholeVms(t.Protocol):
    """Commands that make, change, delete and move whole VMs."""

    @property
    def guest_memory(self) -> t.Optional[GuestMemory]:
        """What saves and restores the memory of guests. None if the hypervisor cannot, or in a module that does not."""

    def draft(self, new: NewVm) -> VmConfig:
        """Return the configuration that a new VM will have, without its disks. This changes nothing."""

    def hidden_disks(self, image: str) -> t.List[t.Tuple[int, int]]:
        """Return size (MiB) and block size (bytes) of the disks that the platform adds to a VM with this image."""

    def image_file(self, path: str) -> ImageFile:
        """Return the image in a file on the host."""

    def import_image(self, image: ImageFile, volume: str) -> None:
        """Copy an image to a volume, which must be large enough and empty."""

    def create_vm(
        self, new: NewVm, disks: t.Sequence[t.Mapping[str, t.Any]], protected: bool, ports: t.Sequence[int]
    ) -> None:
        """Create a stopped VM without autoboot, with all its disks and these root ports, or not at all.

        disks: as for attach_disk(). A hypervisor with storage also creates their volumes, with block_size and
        compression.
        """

    def description(self, vm: str) -> Description:
        """Return what create_vm() needs to create the VM on another host, and which parts cannot be moved."""

    def refuses(
        self, description: t.Mapping[str, t.Any], disks: t.Sequence[str], allowed: t.Collection[str]
    ) -> t.List[str]:
        """Return the parts of a VM from another host that must not be accepted, each as its kind and value.

        description and disks: as for lacks(). They come from a host that may be hostile. allowed: what the inventory of
        this host allows (rules/incoming.py).
        """

    def lacks(self, vm: str, description: t.Mapping[str, t.Any], disks: t.Sequence[str]) -> t.List[str]:
        """Return what a VM from another host needs and this host does not have, as text. Nothing is changed.

        description: fields of a NewVm in a Description. disks: those of a Description. Both are untrusted data.
        """

    def restore_variables(self, description: t.Mapping[str, t.Any]) -> None:
        """Write the UEFI variables that a VM had on another host. It has no disks yet. description: as for lacks()."""

    def dress(self, vm: str, disks: t.Mapping[str, str]) -> None:
        """Give the disks of a stopped VM, by path, their settings in a Description."""

    def delete_vm(self, vm: str) -> None:
        """Delete a stopped VM. A hypervisor with storage also deletes everything below its dataset."""

    def set_machine(self, vm: str, changes: t.Mapping[str, int]) -> None:
        """Set memory (MiB) and vcpus, where given. A running VM has them after its next start."""


class Hypervisor(t.Protocol):
    """A driver. Sizes are MiB. Each method raises FlexdiskError, and leaves the VM as it was or as requested."""

    capabilities: Capabilities

    @property
    def storage(self) -> t.Optional[Storage]:
        """The hypervisor's own commands for storage; None if it leaves storage to ZFS."""

    @property
    def resizing(self) -> t.Optional[Resizing]:
        """The hypervisor's own command for the size of a disk; None if it leaves that to ZFS."""

    @property
    def waiting(self) -> t.Optional[WaitingChanges]:
        """Takes back changes that wait; None if the hypervisor makes every change at once."""

    @property
    def snapshots(self) -> t.Optional[Snapshots]:
        """Takes and deletes snapshots of VMs; None if Storage or ZFS does."""

    @property
    def guests(self) -> t.Optional[Guests]:
        """What running guests have; None if a later run can tell them what an interrupted one has not."""

    @property
    def records(self) -> t.Optional[Records]:
        """Where records of VMs are kept; None if the datasets of the VMs have what they would say."""

    @property
    def vms_as_a_whole(self) -> t.Optional[WholeVms]:
        """What the driver does with whole VMs; None in a module that neither makes, changes nor moves any."""

    @property
    def pause(self) -> t.Callable[[float], None]:
        """A function that waits for a number of seconds."""

    def vms(self) -> t.List[VmConfig]:
        """Return all VMs, those of other brands too, by one process."""

    def vm(self, vm: str) -> VmConfig:
        """Return one VM."""

    def resources(self) -> Resources:
        """Return memory and CPUs of the host, by at most two processes."""

    def boot_id(self) -> str:
        """Return a text that differs for each boot of this host; "" if boots cannot be told apart."""

    def announce_size(self, vm: str, path: str, size: int, shrink: bool) -> None:
        """Tell a running guest the size of a disk. A smaller size is an error: no guest learns that a disk shrank."""

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Change attached disks, all at once: for each path those of uuid, pci_slot, model and boot that change."""

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        """Configure an existing volume as a disk: path, size, uuid, pci_slot, model, boot, image."""

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        """Add root ports with these numbers to a stopped VM."""

    def forget_disk(self, vm: str, path: str) -> None:
        """Remove a disk from the configuration, or what that still says of one whose volume has been renamed."""

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        """Stop the VM. A guest that still runs after timeout seconds is an error, unless force permits to halt it."""

    def start(self, vm: str, saved: bool = False) -> None:
        """Start the VM. saved: if the memory of its guest is in a file, go on with that, else it is an error."""

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        """Store whether the VM starts with the host."""


def whole_vms(hypervisor: Hypervisor) -> WholeVms:
    """Return what a driver does with whole VMs. Only a module that opens its host with it may ask."""
    if hypervisor.vms_as_a_whole is None:
        raise AssertionError("this module has opened its host without what whole VMs need")
    return hypervisor.vms_as_a_whole
