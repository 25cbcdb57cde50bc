# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nouns of a pool: datasets, snapshots, the pool itself, and how space is counted.

Space follows OpenZFS's DSL: `dsl_dir.c` and `dsl_dataset.c`. All sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Dict, List, Optional, Tuple

from simnode.zfs import extents as ext
from simnode.zfs.reservation import Vdev, auto_refreservation, deflated

MIB = 1 << 20
FILESYSTEM = "filesystem"
VOLUME = "volume"
FILE_BLOCK = 128 * 1024
# What an empty dataset has, measured on OpenZFS 2.1 by sector size (tests/lab/suite/test_unwritten.py): `referenced` in
# sectors, and `logicalreferenced` in bytes. Of sizes that are not there: in proportion to those of 4096.
_META = {
    (VOLUME, 9): (24, 6144),
    (VOLUME, 12): (14, 28672),
    (VOLUME, 13): (14, 53248),
    (FILESYSTEM, 9): (48, 12288),
    (FILESYSTEM, 12): (24, 43008),
    (FILESYSTEM, 13): (24, 79872),
}
TEXT = "text"  # contents of a name that begins so compress to next to nothing
ZEROS = "zeros"  # nor is anything kept of these
_TEXT_BYTES = 10  # of a block of text, in its pointer
_POINTER_BYTES = 90
_MIN_SLOP = 128 * MIB
_MAX_SLOP = 128 * 1024 * MIB


class Snapshot:
    """A snapshot; `extents`, `volsize` and `referenced` are frozen, `used` is what only it holds."""

    __slots__ = (
        "clones", "created", "createtxg", "dataset", "defer", "extents", "guid", "holds", "name", "props", "received",
        "referenced", "used", "volsize",
    )  # fmt: skip

    def __init__(self, dataset: Dataset, name: str, guid: int, createtxg: int, created: int) -> None:
        self.dataset = dataset
        self.name = name
        self.guid = guid
        self.createtxg = createtxg
        self.created = created
        self.extents: ext.Extents = dataset.extents
        self.volsize = dataset.volsize
        self.referenced = dataset.referenced
        self.used = 0
        self.holds: Dict[str, int] = {}
        self.props: Dict[str, Any] = {}
        self.received: Dict[str, Any] = {}
        self.defer = False
        self.clones: List[Dataset] = []

    @property
    def fullname(self) -> str:
        """`dataset@snapshot`."""
        return f"{self.dataset.name}@{self.name}"


class Bookmark:
    """The place of a snapshot in time; it keeps no data."""

    __slots__ = ("created", "createtxg", "dataset", "guid", "name", "referenced")

    def __init__(self, dataset: Dataset, name: str, guid: int, createtxg: int, created: int, referenced: int) -> None:
        self.dataset = dataset
        self.name = name
        self.guid = guid
        self.createtxg = createtxg
        self.created = created
        self.referenced = referenced

    @property
    def fullname(self) -> str:
        """`dataset#bookmark`."""
        return f"{self.dataset.name}#{self.name}"


class Dataset:
    """A file system or volume. Zero stands for none in quota, refquota, reservation and refreservation. `partial` is
    what has been received of a stream that was cut.
    """

    __slots__ = (
        "bookmarks", "charge", "children", "created", "createtxg", "crypt", "cryptroot", "extents", "guid", "head",
        "kind", "logical", "name", "origin", "parent", "partial", "props", "received", "referenced", "snapshots",
        "snapused", "unique", "used", "volblocksize", "volsize",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, guid: int, createtxg: int, created: int) -> None:
        self.name = name
        self.kind = kind
        self.guid = guid
        self.createtxg = createtxg
        self.created = created
        self.parent: Optional[Dataset] = None
        self.children: Dict[str, Dataset] = {}
        self.origin: Optional[Snapshot] = None
        self.cryptroot = 0
        self.crypt: Dict[str, Any] = {}
        self.props: Dict[str, Any] = {}
        self.received: Dict[str, Any] = {}
        self.volsize = 0
        self.volblocksize = 0
        self.extents: ext.Extents = []
        self.logical: Tuple[List[ext.Extents], int, int] = ([], 0, 0)  # see values.py
        self.snapshots: List[Snapshot] = []
        self.bookmarks: List[Bookmark] = []
        self.partial: Optional[Dict[str, Any]] = None
        self.referenced = 0
        self.unique = 0
        self.head = 0
        self.snapused = 0
        self.charge = 0
        self.used = 0

    @property
    def quota(self) -> int:
        """Most that this dataset and everything below it may use."""
        return int(self.props.get("quota", 0))

    @property
    def refquota(self) -> int:
        """Most that this dataset alone may reference."""
        return int(self.props.get("refquota", 0))

    @property
    def reservation(self) -> int:
        """Bytes reserved for this dataset and everything below it."""
        return int(self.props.get("reservation", 0))

    @property
    def refreservation(self) -> int:
        """Bytes reserved for this dataset alone."""
        return int(self.props.get("refreservation", 0))

    @property
    def refreserved(self) -> int:
        """`usedbyrefreservation`: what the refreservation holds beyond the data born since the last snapshot."""
        return max(0, self.refreservation - self.unique)

    @property
    def last_txg(self) -> int:
        """Blocks born later than this belong to the head alone."""
        if self.snapshots:
            return self.snapshots[-1].createtxg
        return self.origin.createtxg if self.origin else 0

    @property
    def block(self) -> int:
        """Block size that contents are stored in."""
        return self.volblocksize or FILE_BLOCK

    def snapshot(self, name: str) -> Optional[Snapshot]:
        """Return the snapshot of that short name, None if there is none."""
        for snap in self.snapshots:
            if snap.name == name:
                return snap
        return None

    def bookmark(self, name: str) -> Optional[Bookmark]:
        """Return the bookmark of that short name, None if there is none."""
        return next((mark for mark in self.bookmarks if mark.name == name), None)

    def receiving_from(self, snap: Snapshot) -> bool:
        """Return whether a partly received stream follows this snapshot."""
        return self.partial is not None and not self.partial["new"] and self.partial["fromguid"] == snap.guid

    @property
    def incomplete(self) -> bool:
        """Whether the dataset was created by a stream that has not been received completely."""
        return self.partial is not None and bool(self.partial["new"])

    def walk(self) -> Iterator[Dataset]:
        """Itself and everything below it, parents first, by name."""
        yield self
        for leaf in sorted(self.children):
            yield from self.children[leaf].walk()

    def ancestors(self) -> Iterator[Dataset]:
        """Itself and every parent up to the pool."""
        node: Optional[Dataset] = self
        while node is not None:
            yield node
            node = node.parent


class Pool:
    """A pool: its vdevs, its root dataset and the arithmetic of space."""

    def __init__(self, name: str, size: int, ashift: int, vdevs: List[Vdev], version: str, guid: int) -> None:
        self.name = name
        self.size = size
        self.ashift = ashift
        self.vdevs = vdevs
        self.version = version
        self.guid = guid
        self.encrypts = True
        self.root: Dataset = Dataset(name, FILESYSTEM, 0, 0, 0)
        self.datasets: Dict[str, Dataset] = {}

    # -- volumes ---------------------------------------------------------------------------------------------------

    @property
    def default_block(self) -> int:
        """volblocksize of a volume when nobody says otherwise (`default_volblocksize` of zfs)."""
        block = self.base_block
        while self.version != "illumos" and block * 2 <= self.least_allocation:
            block *= 2
        return block

    @property
    def base_block(self) -> int:
        """Default value of the volblocksize property, whatever the pool's layout."""
        return 16384 if self.version == "2.3" else 8192

    @property
    def least_allocation(self) -> int:
        """Bytes of the smallest sensible allocation: one sector, two or four on raidz, a whole stripe on draid."""
        sectors = [1]
        for vdev in self.vdevs:
            if vdev.type.startswith("draid"):
                sectors.append(vdev.data_disks)
            elif vdev.is_parity:
                sectors.append(2 if vdev.parity == 1 else 4)
        return max(sectors) << self.ashift

    def auto(self, volsize: int, block: int) -> int:
        """Return the bytes of refreservation=auto in this pool."""
        return auto_refreservation(volsize, block, self.vdevs, self.ashift, self.version == "2.3")

    # -- space -----------------------------------------------------------------------------------------------------

    @property
    def slop(self) -> int:
        """Space that no dataset may use: 1/32, at least 128 MiB, at most 128 GiB, never more than half the pool."""
        slop = min(self.size >> 5, _MAX_SLOP)
        return max(slop, min(self.size >> 1, _MIN_SLOP))

    def weigh(self, dataset: Dataset, pieces: ext.Extents) -> int:
        """Return the bytes of these blocks of a dataset in `used`, with indirect blocks."""
        block_bytes = deflated(dataset.block, self.vdevs, self.ashift) + _POINTER_BYTES
        total = 0
        for start, end, content, blocks in _blocks(dataset, pieces):
            size = _TEXT_BYTES if content.startswith(TEXT) else block_bytes
            total += end - start if start < 0 else blocks * size
        return total

    def logical(self, dataset: Dataset, pieces: ext.Extents) -> int:
        """Return the bytes before compression."""
        meta = self._meta(dataset.kind)[1]
        return sum(meta if piece[0] < 0 else piece[3] * dataset.block for piece in _blocks(dataset, pieces))

    def _meta(self, kind: str) -> Tuple[int, int]:
        sectors, logical = _META[kind, 12]
        return _META.get((kind, self.ashift), (sectors, logical << self.ashift >> 12))

    def meta_size(self, kind: str) -> int:
        """Return the bytes that an empty dataset references."""
        return self._meta(kind)[0] << self.ashift

    def touch(self, dataset: Dataset, txg: int) -> None:
        """Rewrite the dataset's own metadata, as every change of contents does."""
        dataset.extents = ext.write(dataset.extents, -self.meta_size(dataset.kind), 0, "", txg)

    def recount(self, dataset: Dataset) -> None:
        """Derive a dataset's figures from its blocks and its snapshots, and charge its parents."""
        last = dataset.last_txg
        origin_txg = dataset.origin.createtxg if dataset.origin else 0
        dataset.referenced = self.weigh(dataset, dataset.extents)
        dataset.unique = self.weigh(dataset, [e for e in dataset.extents if e[3] > last])
        dataset.head = dataset.referenced
        if origin_txg:
            dataset.head = self.weigh(dataset, [e for e in dataset.extents if e[3] > origin_txg])
        snapused, before = 0, origin_txg
        for index, snap in enumerate(dataset.snapshots):
            later = dataset.snapshots[index + 1].extents if index + 1 < len(dataset.snapshots) else dataset.extents
            gone = ext.difference(snap.extents, later)
            snapused += self.weigh(dataset, [e for e in gone if e[3] > origin_txg])
            snap.used = self.weigh(dataset, [e for e in gone if e[3] > before])
            before = snap.createtxg
        dataset.snapused = snapused
        self.settle(dataset)

    def settle(self, dataset: Dataset) -> None:
        """Recompute `used` here and upwards after a change of blocks, children, reservation or refreservation."""
        node: Optional[Dataset] = dataset
        while node is not None:
            parent = node.parent
            before = node.used
            node.used = node.head + node.snapused + node.refreserved + node.charge
            if parent is None:
                return
            change = max(node.used, node.reservation) - max(before, node.reservation)
            parent.charge += change
            node = parent

    def rebuild(self) -> None:
        """Recompute `used` and the parents' charges of all datasets from scratch (figures of blocks stand)."""
        for dataset in reversed(list(self.root.walk())):
            below = sum(max(child.used, child.reservation) for child in dataset.children.values())
            dataset.charge = below + self._pending(dataset)
            dataset.used = dataset.head + dataset.snapused + dataset.refreserved + dataset.charge

    def _pending(self, dataset: Dataset) -> int:
        """What a stream that was cut has brought to a dataset that has snapshots already."""
        if dataset.partial is None or dataset.partial["new"]:
            return 0
        pieces = [(start, end, content, 0) for start, end, content in dataset.partial["pieces"] if content is not None]
        return self.weigh(dataset, pieces)

    def reserve(self, dataset: Dataset, value: int) -> None:
        """Set `reservation` and charge the parents for it (no checks)."""
        if dataset.parent is not None:
            dataset.parent.charge += max(dataset.used, value) - max(dataset.used, dataset.reservation)
        dataset.props["reservation"] = value
        if dataset.parent is not None:
            self.settle(dataset.parent)

    def room(self, dataset: Optional[Dataset], ancestor: Optional[Dataset] = None, delta: int = 0) -> int:
        """`dsl_dir_space_available`: what this directory may still take through all quotas above it."""
        if dataset is None:
            return 1 << 63
        parent_room = self.room(dataset.parent, ancestor, delta)
        quota = dataset.quota or 1 << 63
        used = dataset.used
        if dataset.parent is None:
            quota = min(quota, self.size - self.slop)
        else:
            parent_room += max(0, dataset.reservation - used)
        if dataset is ancestor:
            used += delta
            if dataset.parent is not None:
                parent_room -= delta
        return max(0, min(parent_room, quota - used))

    def available(self, dataset: Dataset) -> int:
        """The `available` property: room plus the unused refreservation, within refquota."""
        space = self.room(dataset) + dataset.refreserved
        if dataset.refquota:
            space = min(space, max(0, dataset.refquota - dataset.referenced))
        return space

    @property
    def allocated(self) -> int:
        """Bytes of real blocks in the pool."""
        return sum(dataset.head + dataset.snapused for dataset in self.datasets.values())


def _blocks(dataset: Dataset, pieces: ext.Extents) -> Iterator[Tuple[int, int, str, int]]:
    """Start, end, content and number of blocks of each piece; a block that two of them share is the first one's."""
    block, counted = dataset.block, 0
    for start, end, content, _birth in pieces:
        first, last = max(counted, start // block), -(-end // block)
        yield start, end, content, max(0, last - first)
        counted = max(counted, last)
