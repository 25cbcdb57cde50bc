# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What the engine asks of a hypervisor. A driver does as told and reads back; it never decides."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.desired import NewVm
from ..model.vm import VmConfig
from .images import ImageFile


class Storage(t.Protocol):
    """What a hypervisor does that keeps sizes, quotas and snapshots of its VMs itself; else the engine does it."""

    def set_flexible(self, vm: str, size: int) -> None:
        """The stored flexible_disk_size."""

    def set_quota(self, vm: str, quota: int) -> None:
        """quota is bytes, a multiple of capabilities.whole_quota."""

    def set_compression(self, vm: str, path: str, compression: str) -> None: ...

    def create_snapshot(self, vm: str, name: str) -> None:
        """Of the VM's dataset and everything below it, at one moment."""

    def delete_snapshot(self, vm: str, name: str) -> None: ...

    def set_indestructible(self, vm: str, protected: bool) -> None: ...

    def roll_back(self, vm: str, name: str) -> None:
        """Every dataset of the VM that has the snapshot, with newer snapshots destroyed. The VM runs afterwards."""


class Hypervisor(t.Protocol):
    """One driver. Sizes are MiB; every method raises FlexdiskError and leaves the VM as it was found or as asked."""

    capabilities: Capabilities

    @property
    def storage(self) -> t.Optional[Storage]:
        """Its own commands for storage, None if it leaves all to ZFS."""

    @property
    def pause(self) -> t.Callable[[float], None]:
        """Waits so many seconds."""

    def vms(self) -> t.List[VmConfig]:
        """All VMs, other brands too, in one process."""

    def vm(self, vm: str) -> VmConfig:
        """One VM."""

    def resize_disk(self, vm: str, path: str, size: int, shrink: bool) -> None:
        """shrink is the user's own permission for a smaller size."""

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Attributes of attached disks (path, and of uuid, pci_slot, model, boot what changes), all at once."""

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        """Configure a volume that is there as a disk: path, size, uuid, pci_slot, model, boot, image."""

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        """Root ports with these numbers, to a stopped VM."""

    def forget_disk(self, vm: str, path: str) -> None:
        """Take a disk whose volume has been moved away out of the configuration."""

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        """A guest that is still up after timeout seconds is an error unless force allows to halt it."""

    def start(self, vm: str) -> None: ...

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        """Store whether the VM starts with the host."""

    def draft(self, new: NewVm) -> VmConfig:
        """The configuration that a new VM will have, without its disks. Nothing is changed."""

    def hidden_disks(self, image: str) -> t.List[t.Tuple[int, int]]:
        """MiB and block size of what the platform adds to a VM that boots from an image."""

    def image_file(self, path: str) -> ImageFile:
        """What a file on the host holds."""

    def import_image(self, image: ImageFile, volume: str) -> None:
        """Onto a volume that is large enough and empty."""

    def create_vm(
        self, new: NewVm, disks: t.Sequence[t.Mapping[str, t.Any]], protected: bool, ports: t.Sequence[int]
    ) -> None:
        """A stopped VM that does not boot by itself, with all its disks or not at all, and with these root ports added.

        disks are as for attach_disk; a hypervisor with storage makes their volumes, with block_size and compression.
        """

    def delete_vm(self, vm: str) -> None:
        """A stopped VM; with storage everything below its dataset, too."""

    def set_machine(self, vm: str, changes: t.Mapping[str, int]) -> None:
        """memory (MiB) and vcpus, as far as given; a running VM has them after its next start."""
