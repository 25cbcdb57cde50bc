# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All pools of a node, what names mean, the events they raise, and their form on disk."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from simnode.clock import Clock
from simnode.zfs.crypt import encrypt
from simnode.zfs.errors import ZfsError
from simnode.zfs.model import Bookmark, Dataset, Pool, Snapshot
from simnode.zfs.reservation import Vdev

MAX_EVENTS = 2000
MAX_HISTORY = 500
Event = Tuple[int, str, str]
Row = List[Any]


class Storage:
    """The pools of a node.

    `faults` are switches for tests, all off by default: `readonly` and `suspended` (true: every change is refused),
    `busy:<dataset>` (a count: that many destroys and renames of the dataset fail with "dataset is busy"),
    `open` (guids of volumes that a process has open: their destroy fails so, whatever they are called).
    """

    def __init__(self, clock: Clock, seed: int = 1) -> None:
        self.clock = clock
        self.seed = seed
        self.serial = 0
        self.txg = 10
        self.pools: Dict[str, Pool] = {}
        self.sequence = 0
        self.log: List[Event] = []
        self.history: List[Tuple[int, str]] = []
        self.faults: Dict[str, Any] = {}
        self.dirty = True

    # -- identities and time ---------------------------------------------------------------------------------------

    def new_guid(self) -> int:
        """Return the next guid. It looks random, but is the same for the same seed and commands."""
        self.serial += 1
        import hashlib  # slow to import, and needed only to create something

        value = hashlib.sha256(f"{self.seed}:{self.serial}".encode()).digest()
        return int.from_bytes(value[:8], "big") or 1

    def next_txg(self) -> int:
        """Open the next transaction group."""
        self.txg += 1
        self.dirty = True
        return self.txg

    def seconds(self) -> int:
        """Return the current time in seconds since 1970."""
        return int(self.clock.now())

    # -- events ----------------------------------------------------------------------------------------------------

    def emit(self, kind: str, name: str) -> None:
        """Record a system event. Only the newest 2000 are kept."""
        self.sequence += 1
        self.log.append((self.sequence, kind, name))
        if len(self.log) > MAX_EVENTS:
            del self.log[: len(self.log) - MAX_EVENTS]
        self.dirty = True

    def events(self, cursor: int) -> List[Event]:
        """Return the events after `cursor`. If the first sequence is above cursor + 1, some were lost."""
        if not self.log or self.log[-1][0] <= cursor:
            return []
        first = self.log[0][0]
        return self.log[max(0, cursor + 1 - first) :]

    # -- names -----------------------------------------------------------------------------------------------------

    def pool_of(self, name: str) -> Pool:
        """Return the pool of a dataset or snapshot name. Raises ZfsError ENOENT."""
        pool = self.pools.get(name.split("/", 1)[0].split("@", 1)[0].split("#", 1)[0])
        if pool is None:
            raise ZfsError("ENOENT", name)
        return pool

    def dataset(self, name: str) -> Dataset:
        """Return the dataset of that name. Raises ZfsError ENOENT."""
        dataset = self.pool_of(name).datasets.get(name)
        if dataset is None:
            raise ZfsError("ENOENT", name)
        return dataset

    def snapshot(self, name: str) -> Snapshot:
        """Return the snapshot of that full name. Raises ZfsError ENOENT."""
        parent, _at, short = name.partition("@")
        snapshot = self.dataset(parent).snapshot(short)
        if snapshot is None:
            raise ZfsError("ENOENT", name)
        return snapshot

    def find(self, name: str) -> Union[Dataset, Snapshot]:
        """Return the dataset or snapshot of that name. Raises ZfsError ENOENT."""
        return self.snapshot(name) if "@" in name else self.dataset(name)

    def bookmark(self, name: str) -> Bookmark:
        """Return the bookmark of that full name. Raises ZfsError ENOENT."""
        above, _separator, short = name.partition("#")
        bookmark = self.dataset(above).bookmark(short)
        if bookmark is None:
            raise ZfsError("ENOENT", name)
        return bookmark

    # -- pools -----------------------------------------------------------------------------------------------------

    def add_pool(
        self, name: str, size: int, ashift: int, vdevs: Sequence[Dict[str, Any]], version: str, passphrase: str = ""
    ) -> Pool:
        """Create an empty pool. size: its bytes without redundancy. passphrase: of an encrypted pool, "" for others."""
        layout = [Vdev(str(vdev["type"]), int(vdev.get("disks", 1))) for vdev in vdevs]
        pool = Pool(name, size, ashift, layout, version, self.new_guid())
        pool.root.guid = self.new_guid()
        pool.root.createtxg = 1
        pool.root.created = self.seconds()
        pool.datasets[name] = pool.root
        if passphrase:
            encrypt(pool.root, passphrase)
            pool.root.props.update({"encryption": "on", "keyformat": "passphrase", "keylocation": "prompt"})
        pool.touch(pool.root, 1)
        pool.recount(pool.root)
        self.pools[name] = pool
        self.dirty = True
        return pool

    # -- form on disk ----------------------------------------------------------------------------------------------

    def to_json(self) -> Dict[str, Any]:
        """Return a copy of everything as JSON values."""
        return {
            "seed": self.seed,
            "serial": self.serial,
            "txg": self.txg,
            "sequence": self.sequence,
            "events": self.log,
            "history": self.history,
            "faults": self.faults,
            "pools": [_pool_to_json(pool) for pool in self.pools.values()],
        }

    @classmethod
    def from_json(cls, clock: Clock, data: Dict[str, Any]) -> Storage:
        """Return the storage from the result of to_json()."""
        storage = cls(clock, data["seed"])
        storage.serial = data["serial"]
        storage.txg = data["txg"]
        storage.sequence = data["sequence"]
        storage.log = [(event[0], event[1], event[2]) for event in data["events"]]
        storage.history = [(entry[0], entry[1]) for entry in data["history"]]
        storage.faults = data["faults"]
        for entry in data["pools"]:
            pool = _pool_from_json(entry)
            storage.pools[pool.name] = pool
        storage.dirty = False
        return storage


def _snapshot_row(snap: Snapshot, shared: Optional[List[Any]]) -> Row:
    return [
        snap.name, snap.guid, snap.createtxg, snap.created, None if snap.extents is shared else snap.extents,
        snap.volsize, snap.referenced, snap.used, snap.holds, snap.props, snap.received, int(snap.defer),
    ]  # fmt: skip


def _dataset_row(dataset: Dataset) -> Row:
    rows = []
    shared: Optional[List[Any]] = dataset.extents
    for snap in reversed(dataset.snapshots):
        rows.append(_snapshot_row(snap, shared))
        shared = snap.extents
    return [
        dataset.name, int(dataset.kind == "volume"), dataset.guid, dataset.createtxg, dataset.created,
        dataset.origin.fullname if dataset.origin else "", dataset.cryptroot, dataset.props, dataset.received,
        dataset.volsize, dataset.volblocksize, dataset.extents, dataset.referenced, dataset.unique, dataset.head,
        dataset.snapused, rows,
        [[one.name, one.guid, one.createtxg, one.created, one.referenced] for one in dataset.bookmarks],
        dataset.partial, dataset.crypt,
    ]  # fmt: skip


def _pool_to_json(pool: Pool) -> Dict[str, Any]:
    return {
        "name": pool.name,
        "size": pool.size,
        "ashift": pool.ashift,
        "vdevs": [vdev.to_json() for vdev in pool.vdevs],
        "version": pool.version,
        "guid": pool.guid,
        "encrypts": pool.encrypts,
        "datasets": [_dataset_row(dataset) for dataset in pool.root.walk()],
    }


def _pool_from_json(data: Dict[str, Any]) -> Pool:
    layout = [Vdev(vdev["type"], vdev["disks"]) for vdev in data["vdevs"]]
    pool = Pool(data["name"], data["size"], data["ashift"], layout, data["version"], data["guid"])
    pool.encrypts = data.get("encrypts", True)
    snapshots: Dict[str, Snapshot] = {}
    origins: List[Tuple[Dataset, str]] = []
    for row in data["datasets"]:
        dataset = Dataset(row[0], "volume" if row[1] else "filesystem", row[2], row[3], row[4])
        dataset.cryptroot, dataset.props, dataset.received, dataset.volsize, dataset.volblocksize = row[6:11]
        dataset.extents = [(e[0], e[1], e[2], e[3]) for e in row[11]]
        dataset.referenced, dataset.unique, dataset.head, dataset.snapused = row[12:16]
        if row[16]:
            _load_snapshots(dataset, row[16], snapshots)
        dataset.bookmarks = [Bookmark(dataset, *bookmark_row) for bookmark_row in row[17]]
        dataset.partial, dataset.crypt = row[18:20]
        if row[5]:
            origins.append((dataset, row[5]))
        _place(pool, dataset)
    for dataset, name in origins:
        dataset.origin = snapshots[name]
        dataset.origin.clones.append(dataset)
    pool.rebuild()
    return pool


def _load_snapshots(dataset: Dataset, rows: List[Row], index: Dict[str, Snapshot]) -> None:
    shared = dataset.extents
    for row in rows:
        snap = Snapshot(dataset, row[0], row[1], row[2], row[3])
        if row[4] is not None:
            shared = [(e[0], e[1], e[2], e[3]) for e in row[4]]
        snap.extents = shared
        snap.volsize, snap.referenced, snap.used, snap.holds, snap.props, snap.received = row[5:11]
        snap.defer = bool(row[11])
        index[snap.fullname] = snap
        dataset.snapshots.insert(0, snap)


def _place(pool: Pool, dataset: Dataset) -> None:
    pool.datasets[dataset.name] = dataset
    above, slash, leaf = dataset.name.rpartition("/")
    if not slash:
        pool.root = dataset
        return
    parent = pool.datasets[above]
    dataset.parent = parent
    parent.children[leaf] = dataset
