# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where everything lies in a pool, and what the names of datasets say.

POOL/UUID                   a VM's dataset
POOL/UUID/diskN             a disk of the VM
POOL/flexdisk               the container: detached disks, the journal, and leases of groups
POOL/flexdisk/UUID          a detached disk, by the UUID of the disk
POOL/flexdisk/UUID.copy     what a conversion makes of it, until the copy is whole
POOL/flexdisk/replica       the replicas of VMs of other hosts
POOL/flexdisk/restoring     what has come of a restored disk, by the UUID of the disk that it was, until it is whole
POOL/flexdisk/diverged      disks of VMs that another host has taken over, as their old home left them
POOL/flexdisk/move/UUID     what is written down of a VM that leaves or comes, by the UUID of the VM
POOL/flexdisk/move/UUID/memory   the saved memory of its guest, until that goes on
POOL/DATASET/vm-N-...       a disk of VM N in a storage of Proxmox VE, where VMs have no datasets
POOL/IMAGE@final            an image; disks are clones of this snapshot
"""

from __future__ import annotations

import re
import typing as t

from ..model.dataset import Dataset
from ..model.vm import Disk, VmConfig
from . import identity

CONTAINER = "flexdisk"
_COPY = ".copy"
_REPLICA = "replica"
_DIVERGED = "diverged"
_RESTORING = "restoring"
_MOVE = "move"
_MEMORY = "memory"
_FINAL = "final"
_INDEX = re.compile(r"/disk(\d{1,5})\Z")
_SIBLING_INDEX = re.compile(r"/(?:vm|base)-\d{1,9}-disk-(\d{1,5})\Z")
_SIBLING = re.compile(r"(.*/(?:vm|base)-\d{1,9}-)[^/@]+")


def container(pool: str) -> str:
    """Return the dataset below which the detached disks of a pool lie."""
    return f"{pool}/{CONTAINER}"


def replicas_container(pool: str) -> str:
    """Return the dataset below which the replicas in a pool lie."""
    return f"{container(pool)}/{_REPLICA}"


def diverged_container(pool: str) -> str:
    """Return the dataset below which the diverged disks of a pool lie."""
    return f"{container(pool)}/{_DIVERGED}"


def restoring_container(pool: str) -> str:
    """Return the dataset below which disks lie that are restored from another host, until they are whole."""
    return f"{container(pool)}/{_RESTORING}"


def moves_container(pool: str) -> str:
    """Return the dataset that has one child for each VM that leaves this host, has left it, or comes here."""
    return f"{container(pool)}/{_MOVE}"


def memory_dataset(pool: str, uuid: str) -> str:
    """Return the file system with the saved memory of a guest that moves, by the UUID of the VM."""
    return memory_below(f"{moves_container(pool)}/{uuid}")


def memory_below(place: str) -> str:
    """As memory_dataset(), by the dataset of the move."""
    return f"{place}/{_MEMORY}"


def vm_dataset(pool: str, uuid: str) -> str:
    """Return the dataset of a VM."""
    return f"{pool}/{uuid}"


def find_vm_dataset(uuid: str, names: t.Iterable[str]) -> str:
    """Return the dataset of a VM in any pool, the first by name; "" for none."""
    return min((name for name in names if name.count("/") == 1 and last_part(name) == uuid), default="")


def pools_in_use(names: t.Iterable[str]) -> t.List[str]:
    """Return the pools that have a container or the dataset of a VM. names: all datasets right below the pools."""
    below = (name.split("/") for name in names if name.count("/") == 1)
    return sorted({pool for pool, last in below if last == CONTAINER or identity.is_uuid(last)})


def pool_of(name: str) -> str:
    """Return the pool of a dataset, "" for ""."""
    return name.split("/", 1)[0]


def disk_name(index: int) -> str:
    """Return the default name of a disk, which is also the last part of its dataset's name."""
    return f"disk{index}"


def disk_dataset(root: str, index: int) -> str:
    """Return the dataset of a disk with this index, below the dataset of its VM. root: that dataset."""
    return f"{root}/{disk_name(index)}"


def index_of(volume: str) -> int:
    """Return the index in the name of a disk's dataset, 0 if the name has none."""
    match = _INDEX.search(volume)
    return int(match.group(1)) if match else 0


def index_within(config: VmConfig, volume: str) -> int:
    """Return the index in the name of a volume of this VM, 0 if the name has none."""
    match = _SIBLING_INDEX.search(volume) if config.prefixes else None
    return int(match.group(1)) if match else index_of(volume)


def detached_dataset(pool: str, uuid: str) -> str:
    """Return the dataset of a detached disk."""
    return f"{container(pool)}/{uuid}"


def detached_place(disk: Disk) -> str:
    """Return the dataset of the disk once it is detached. Without a UUID, it gets one that follows from its guid."""
    return detached_dataset(disk.volume.pool, disk.uuid or identity.uuid_of(disk.volume.guid))


def copy_place(place: str) -> str:
    """Return the dataset in which a conversion makes the copy of a detached disk."""
    return place + _COPY


def is_partial_copy(original: Dataset, copy: Dataset) -> bool:
    """Whether a conversion has begun `copy` as the copy of `original`.

    The mark alone does not suffice: the copy must also have the disk's uuid, and the name that copies of that disk get.
    """
    known = original.user.get("uuid", "")
    uuid = known if identity.is_uuid(known) else identity.uuid_of(original.guid)
    place = detached_dataset(original.pool, uuid)
    marked = copy.user.get("from") == str(original.guid) and copy.user.get("uuid") == uuid
    return marked and copy.name != original.name and copy.name in (place, copy_place(place))


def image_dataset(pool: str, image: str) -> str:
    """Return the volume of an image."""
    return f"{pool}/{image}"


def final(volume: str) -> str:
    """Return the snapshot of an image's volume that disks are clones of."""
    return f"{volume}@{_FINAL}"


def image_of(origin: str) -> str:
    """Return the image that a volume is a clone of, from its origin C(POOL/IMAGE@SNAPSHOT); "" for none."""
    _pool, _slash, image = origin.split("@", 1)[0].partition("/")
    return image if identity.is_uuid(image) else ""


def is_below(name: str, above: str) -> bool:
    """Whether a dataset lies below another one, however deep."""
    return name.startswith(above + "/")


def within(config: VmConfig, volume: str) -> bool:
    """Whether a volume is where those of a VM belong: below its dataset, or among those that are called after it."""
    return volume.startswith(config.prefixes) if config.prefixes else is_below(volume, config.dataset)


def sibling_prefixes(dataset: str, number: int) -> t.Tuple[str, ...]:
    """Return how the names of a VM's volumes begin, which lie in this dataset beside those of other VMs.

    number: the VM's, in Proxmox VE. C(base) has those of a template.
    """
    return tuple(f"{dataset}/{kind}-{number}-" for kind in ("vm", "base"))


def new_sibling(prefix: str, taken: t.Iterable[str], wanted: t.Optional[int] = None) -> str:
    """Return the name of a new volume, with the wanted number or the lowest free one. Those of other VMs lie beside it.

    prefix: one of sibling_prefixes(), not that of a template, whose volumes take numbers as well.
    """
    pattern = re.compile(re.escape(prefix).replace("/vm\\-", "/(?:vm|base)\\-") + r"disk-(\d{1,5})")
    matches = (pattern.fullmatch(name) for name in taken)
    numbers = {int(match.group(1)) for match in matches if match}
    free = next(n for n in range(len(numbers) + 1) if n not in numbers)
    return f"{prefix}disk-{free if wanted is None or wanted in numbers else wanted}"


def arriving_prefix(config: VmConfig, pool: str) -> str:
    """Return how the name of a volume of this pool begins when it comes to a VM without a dataset of its own: as those
    of its new disks, else as those of its disks, else as any may; "" if the VM has no place in the pool.
    """
    usual = [config.new_disks.prefix] if config.new_disks is not None else []
    has = [sibling_prefix(entry.volume) for entry in config.disks if within(config, entry.volume)]
    names = (*usual, *(has if config.prefixes else ()), *config.prefixes)
    return next((one for one in names if last_part(one).startswith("vm-") and pool_of(one) == pool), "")


def sibling_prefix(volume: str) -> str:
    """Return which of sibling_prefixes() a volume has, "" for none."""
    match = _SIBLING.fullmatch(volume)
    return match.group(1) if match else ""


def sibling_number(volume: str) -> int:
    """Return the number of the VM that a volume is called after, 0 for none."""
    number = sibling_prefix(volume).rstrip("-").rpartition("-")[2]
    return int(number) if number else 0


def last_part(name: str) -> str:
    """Return the last part of a dataset's name."""
    return name.rsplit("/", 1)[-1]
