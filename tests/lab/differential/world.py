# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What there is to choose from: the simulated pool as the generator sees it, and random draws from it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from simnode import Node
from simnode.zfs.model import Dataset, Snapshot

from differential.model import MIB, POOL, USER

FILESYSTEMS = ("a", "b", "c", "a/n", "b/n")
VOLUMES = ("disk0", "disk1", "disk2", "disk3")
SNAPSHOTS = ("s0", "s1", "s2", "s3", "s4", "s5", "s6")
TAGS = ("keep", "lock")
BLOCKS = (8192, 8192, 8192, 4096, 16384, 65536)
ENCRYPTED = "e"
CROWD = (10, 12)
"""Datasets and snapshots, with which there are enough."""


class World:
    """The present of a simulated node, and a source of random draws from it. None: there is nothing of that sort."""

    def __init__(self, node: Node, rng: random.Random, crowd: tuple[int, int] = CROWD) -> None:
        self.node = node
        self.rng = rng
        self.crowd = crowd
        self.serial = 0

    @property
    def datasets(self) -> list[Dataset]:
        """All but the pool's own and those that wait for the rest of a stream, sorted by name."""
        by_name = self.node.pools.pools[POOL].datasets
        return [by_name[name] for name in sorted(by_name) if name != POOL and not by_name[name].partial]

    @property
    def unfinished(self) -> list[Dataset]:
        """Those that wait for the rest of a stream."""
        datasets = self.node.pools.pools[POOL].datasets
        return [datasets[name] for name in sorted(datasets) if datasets[name].partial]

    @property
    def snapshots(self) -> list[Snapshot]:
        """All, by dataset and age."""
        return [snap for dataset in self.datasets for snap in dataset.snapshots]

    def room(self, dataset: Dataset | None) -> int:
        """Bytes that a dataset may still take (the pool's root for None)."""
        pool = self.node.pools.pools[POOL]
        return pool.room(dataset or pool.root)

    def available(self, dataset: Dataset) -> int:
        """Bytes that a dataset may take, those set aside for it included."""
        return self.node.pools.pools[POOL].available(dataset)

    def auto(self, volume: Dataset, size: int) -> int:
        """The automatic reservation of a volume at another size."""
        return self.node.pools.pools[POOL].auto(size, volume.volblocksize)

    def pick(self, items: Sequence[Dataset]) -> Dataset | None:
        """One of them."""
        return self.rng.choice(items) if items else None

    def filesystem(self) -> Dataset | None:
        """A file system."""
        return self.pick([dataset for dataset in self.datasets if dataset.kind == "filesystem"])

    def volume(self) -> Dataset | None:
        """A volume."""
        return self.pick([dataset for dataset in self.datasets if dataset.kind == "volume"])

    def any(self) -> Dataset | None:
        """A file system or volume."""
        return self.pick(self.datasets)

    def snapshot(self, *, held: bool | None = None, cloned: bool | None = None) -> Snapshot | None:
        """A snapshot, if wished one (not) held and (not) cloned."""
        candidates = [
            snap for snap in self.snapshots if held in (None, bool(snap.holds)) and cloned in (None, bool(snap.clones))
        ]
        return self.rng.choice(candidates) if candidates else None

    def written(self) -> list[Dataset]:
        """Volumes that hold data and whose device takes writes."""
        candidates = [one for one in self.writable() if any(piece[0] >= 0 for piece in one.extents)]
        return [one for one in candidates if one.volsize >= MIB]

    def writable(self) -> list[Dataset]:
        """Volumes whose device takes writes."""
        return [one for one in self.datasets if one.kind == "volume" and not read_only(one)]

    def parent(self) -> str:
        """A file system to put a volume in, rarely the pool itself."""
        filesystem = self.filesystem()
        return POOL if filesystem is None or self.rng.random() < 0.1 else filesystem.name

    def free_filesystem(self) -> str:
        """The name of a file system that may be there or not, mostly not."""
        names = [f"{POOL}/{name}" for name in FILESYSTEMS]
        free = [name for name in names if self.free(name)]
        return self.rng.choice(free or names)

    def free_volume(self) -> str:
        """The name of a volume to be, below some file system."""
        parent = self.parent()
        free = [f"{parent}/{leaf}" for leaf in VOLUMES if self.free(f"{parent}/{leaf}")]
        return self.rng.choice(free or [f"{parent}/{VOLUMES[0]}"])

    def free(self, name: str) -> bool:
        """Whether no dataset has that name and its parent is there."""
        datasets = self.node.pools.pools[POOL].datasets
        return name not in datasets and name.rpartition("/")[0] in datasets

    def free_snapshot(self, dataset: Dataset, *, below: bool = False) -> str:
        """A short name that no snapshot of the dataset (or anything below it) has."""
        taken = {snap.name for node in (dataset.walk() if below else [dataset]) for snap in node.snapshots}
        return self.rng.choice([name for name in SNAPSHOTS if name not in taken] or list(SNAPSHOTS))

    def crowded(self) -> bool:
        """Whether nothing more should be created."""
        return len(self.datasets) >= self.crowd[0] or len(self.snapshots) >= self.crowd[1]

    def size(self, volume: Dataset | None = None) -> int:
        """A volume size: mostly whole MiB, now and then any number of blocks."""
        size = self.rng.choice((4, 8, 16, 24, 32, 48, 64, 96, 128, 160)) * MIB
        block = volume.volblocksize if volume else 65536
        return size + block * self.rng.randrange(1, 100) if self.rng.random() < 0.15 else size

    def amount(self, lowest: int, highest: int) -> int:
        """Bytes between two bounds: whole MiB, whole KiB or anything."""
        value = self.rng.randint(lowest, max(lowest, highest))
        unit = self.rng.choice((MIB, MIB, 1024, 1))
        return max(value // unit * unit, 0)

    def user(self) -> str:
        """The name of a user property."""
        return self.rng.choice(USER)

    def text(self) -> str:
        """The value of a user property."""
        self.serial += 1
        return self.rng.choice((f"v{self.serial}", "a b", "none", "x=y:z", "0", "100%", f"{self.serial}" * 40))

    def quota_of(self, dataset: Dataset, used: int) -> int:
        """A quota around what is used: tight, comfortable or wide."""
        extra = self.rng.choice((self.amount(4 * MIB, 24 * MIB), self.amount(24 * MIB, 200 * MIB), 900 * MIB))
        return max(used, dataset.reservation) + extra


def read_only(dataset: Dataset) -> bool:
    """Whether the property readonly is on, here or inherited."""
    given = [node.props["readonly"] for node in dataset.ancestors() if node.props.get("readonly") is not None]
    return bool(given) and given[0] == "on"
