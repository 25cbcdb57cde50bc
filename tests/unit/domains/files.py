# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files on simulated file systems: their bytes are the file system's, their length is a block far behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from simnode.zfs import kernel
from simnode.zfs.errors import ZfsError as Refusal
from simnode.zfs.model import Dataset
from simnode.zfs.storage import Storage

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.files import Files

_FAR = 1 << 50
_DEVICE = "/dev/zvol/"


class FakeFiles(Files):
    """A file is the one in the file system that is mounted on its folder."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.hook: Callable[[str, tuple[Any, ...], str], None] | None = None
        self.folders: set[str] = set()
        self.unmounted: set[int] = set()  # guids of file systems
        self.broken = ""
        self.over: dict[str, str] = {}
        self.programs_of: dict[str, list[str]] = {}
        self.open_since: dict[str, bool] = {}  # volumes that a program has open, and whether they were read-only then

    @contextlib.contextmanager
    def _called(self, name: str, *arguments: Any) -> Iterator[None]:
        self.calls.append((name, arguments))
        if self.hook:
            self.hook(name, arguments, "before")
        yield
        if self.hook:
            self.hook(name, arguments, "after")

    def _on(self, folder: str) -> Dataset | None:
        if folder in self.over:
            return self.storage.dataset(self.over[folder])
        pools = self.storage.pools.values()
        known = [d for pool in pools for d in pool.datasets.values() if d.guid not in self.unmounted]
        every = [d for d in known if d.props.get("mountpoint") == folder]
        assert len(every) < 2, "two file systems with one mountpoint"
        return every[0] if every else None

    def _of(self, path: str) -> Dataset:
        if path.startswith(_DEVICE):
            return self.storage.dataset(path[len(_DEVICE) :])
        matches = self._on(path.rpartition("/")[0])
        if matches is None:
            raise ZfsError("FileFailed", f"{path}: No such file or directory")
        return matches

    def _write(self, dataset: Dataset, start: int, end: int, content: str) -> None:
        try:
            kernel.write(self.storage, dataset, start, end, content)
        except Refusal as refusal:
            raise ZfsError("FileFailed", f"{dataset.name}: {refusal.text}") from None

    def mounted(self, folder: str, name: str) -> bool:
        result = self._on(folder)
        if result is None:
            return False
        self.folders.add(folder)
        if result.name != name:
            raise ZfsError("Changed", f"{result.name} is mounted at {folder}, where {name} belongs")
        return True

    def size(self, path: str) -> int:
        matches = self._on(path.rpartition("/")[0])
        lengths = [e[2] for e in matches.extents if e[0] >= _FAR] if matches is not None else []
        return int(lengths[0]) if lengths else -1

    def unmount(self) -> None:
        """The host has booted: ZFS mounts nothing that has canmount=noauto."""
        pools = self.storage.pools.values()
        every = [d for pool in pools for d in pool.datasets.values()]
        self.unmounted |= {d.guid for d in every if d.props.get("canmount") == "noauto"}

    def mount(self, name: str) -> None:
        """A program mounts a file system."""
        with self._called("mount", name):
            self.unmounted.discard(self.storage.dataset(name).guid)

    def exists(self, path: str) -> bool:
        return path in self.folders or self.size(path) >= 0

    def remove(self, path: str) -> None:
        with self._called("remove", path):
            if self.size(path) >= 0:
                kernel.trim(self.storage, self._of(path), 0, 2 * _FAR)

    def make(self, path: str, size: int) -> None:
        with self._called("make", path, size):
            self._length(path, size)

    def resize(self, path: str, size: int) -> None:
        with self._called("resize", path, size):
            assert self.size(path) >= 0
            kernel.trim(self.storage, self._of(path), size, _FAR)
            self._length(path, size)

    def _length(self, path: str, size: int) -> None:
        if self.size(path) != size:
            self._write(self._of(path), _FAR, _FAR + 512, str(size))

    def copy(self, source: str, target: str, size: int, progress: Callable[[int], None]) -> None:
        with self._called("copy", source, target, size):
            for start, end, content, _birth in list(self._of(source).extents):
                if 0 <= start < size:
                    self._write(self._of(target), start, min(end, size), content)
                    progress(min(end, size))
                    if self.broken:
                        raise ZfsError("FileFailed", f"{target}: {self.broken}")
            progress(size)

    # -- what programs other than this collection write

    def dataset_of(self, path: str) -> str:
        """The file system with a file."""
        return self._of(path).name

    def extents(self, name: str) -> list[Any]:
        """What a dataset holds."""
        return list(self.storage.dataset(name).extents)

    def store(self, path: str, size: int, content: str) -> None:
        """A program writes a file of this size from its beginning. What was in it is gone."""
        dataset = self._of(path)
        kernel.trim(self.storage, dataset, 0, _FAR)
        self._write(dataset, 0, size, content)
        self._length(path, size)

    def stored(self, path: str) -> str:
        """What store() has written, "" where there is no such file."""
        found = self._on(path.rpartition("/")[0])
        contents = [e[2] for e in found.extents if e[0] == 0] if found is not None else []
        return contents[0] if contents else ""

    def is_read_only(self, device: str) -> bool:
        dataset = self.storage.dataset(device[len(_DEVICE) :])
        values = [one.props["readonly"] for one in dataset.ancestors() if one.props.get("readonly") is not None]
        return self.open_since.get(dataset.name, values[:1] == ["on"])

    def programs(self, folder: str) -> list[str]:
        return self.programs_of.get(folder, [])

    def remove_folder(self, folder: str) -> None:
        assert self._on(folder) is None
        with self._called("remove_folder", folder):
            self.folders.discard(folder)
