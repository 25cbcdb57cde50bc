# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pools rebuilt from the output of `zfs get -Hp` and `zpool status`.

Names, sizes, reservations, quotas, guids, origins, snapshots and our own user properties are taken over. Contents are
invented: as many bytes as the export says are referenced and written, so that space figures come close.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Set, Tuple

from simnode.node import Node
from simnode.zfs.model import Pool

MIB = 1 << 20
OURS = "flexdisk:"
LIMITS = ("refquota", "refreservation", "quota", "reservation")
_INLINE = ("compression", "recordsize", "mountpoint", "canmount")
_LAYOUT = re.compile(r"(\s+)(raidz[123]?|mirror|draid[^\s-]*)-\d+\s")

Values = Dict[str, Tuple[str, str]]
Datasets = Dict[str, Values]


class ExportError(Exception):
    """The export cannot be understood or rebuilt."""


def parse(text: str) -> Datasets:
    """{dataset: {property: (value, source)}} of name, property, value and source separated by tabs."""
    found: Datasets = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 4:
            raise ExportError(f"line {number} of the zfs export has {len(fields)} fields instead of 4")
        name, prop, value, source = fields
        if ":" not in prop or prop.startswith(OURS):
            found.setdefault(name, {})[prop] = (value, source)
    if not found:
        raise ExportError("the zfs export is empty")
    return found


def layout(status: str) -> List[Dict[str, Any]]:
    """Top-level vdevs with redundancy in the output of `zpool status`; one plain disk if there are none."""
    vdevs: List[Dict[str, Any]] = []
    indent = 0
    for line in status.splitlines():
        top = _LAYOUT.match(line)
        if top is not None:
            indent = len(top.group(1))
            vdevs.append({"type": top.group(2), "disks": 0})
        elif vdevs and line.strip() and len(line) - len(line.lstrip()) > indent:
            vdevs[-1]["disks"] += 1
        elif vdevs:
            indent = 1 << 10
    return [vdev for vdev in vdevs if vdev["disks"]] or [{"type": "disk", "disks": 1}]


def number(values: Values, prop: str) -> int:
    """A figure; 0 where there is none."""
    value = values.get(prop, ("0", ""))[0]
    return int(value) if value.isdigit() else 0


def rebuild(node: Node, datasets: Datasets, status: str) -> None:
    """Replace the node's pools by those of the export."""
    for name in sorted(name for name in datasets if "/" not in name and "@" not in name):
        old = node.pools.pools.pop(name, None)
        ashift, version = (old.ashift, old.version) if old else (12, "illumos")
        pool = node.pools.add_pool(name, 1 << 60, ashift, layout(status), version)
        _Builder(node, datasets, pool).build()


class _Builder:
    """Makes the datasets of one pool: parents before children, origins before clones."""

    def __init__(self, node: Node, datasets: Datasets, pool: Pool) -> None:
        self.node = node
        self.pool = pool
        self.values = {name: values for name, values in datasets.items() if re.split("[/@]", name)[0] == pool.name}
        self.snapshots: Dict[str, List[str]] = {}
        for name in self.values:
            if "@" in name:
                self.snapshots.setdefault(name.partition("@")[0], []).append(name)
        for names in self.snapshots.values():
            names.sort(key=lambda name: number(self.values[name], "createtxg"))
        self.done: Set[str] = {pool.name}

    def build(self) -> None:
        names = sorted(name for name in self.values if "@" not in name)
        for name in names:
            self._ensure(name)
        for name in reversed(names):
            self._limit(name)
        self.pool.rebuild()
        root = self.values[self.pool.name]
        self._resize(self.pool.root.used + number(root, "available"))

    def _resize(self, usable: int) -> None:
        """Make the pool so large that, with its slop space taken off, `usable` bytes are left."""
        self.pool.size = usable
        for _attempt in range(8):
            self.pool.size = usable + self.pool.slop
        self.node.pools.dirty = True

    def _zfs(self, *argv: str) -> None:
        status, _out, err = self.node.zfs(list(argv))
        if status != 0:
            raise ExportError(f"zfs {' '.join(argv)}: {err.strip()}")

    def _ensure(self, name: str) -> None:
        if name in self.done:
            return
        if name not in self.values:
            raise ExportError(f"the zfs export has no {name}")
        self.done.add(name)
        self._ensure(name.rpartition("/")[0])
        origin = self.values[name].get("origin", ("-", ""))[0]
        if origin not in ("-", ""):
            self._ensure(origin.partition("@")[0])
        self._create(name, origin if origin not in ("-", "") else None)
        self._fill(name)
        self._identify(name)

    def _create(self, name: str, origin: Optional[str]) -> None:
        values = self.values[name]
        options: List[str] = []
        for prop in _INLINE:
            value, source = values.get(prop, ("", ""))
            if source in ("local", "received"):
                options += ["-o", f"{prop}={value}"]
        if origin is not None:
            self._zfs("clone", *options, origin, name)
        elif values["type"][0] == "volume":
            block, size = number(values, "volblocksize"), self._first_size(name)
            self._zfs("create", "-s", *options, "-o", f"volblocksize={block}", "-V", str(size), name)
        else:
            self._zfs("create", *options, name)

    def _first_size(self, name: str) -> int:
        stages = [*self.snapshots.get(name, []), name]
        return next(size for size in (number(self.values[stage], "volsize") for stage in stages) if size)

    def _fill(self, name: str) -> None:
        """Write and take snapshots so that each holds about what it held."""
        origin = self.values[name].get("origin", ("-", ""))[0]
        before = number(self.values[origin], "referenced") // MIB if origin in self.values else 0
        for stage in [*self.snapshots.get(name, []), name]:
            values = self.values[stage]
            size = number(values, "volsize")
            if size and size != self.node.pools.dataset(name).volsize:
                self._zfs("set", f"volsize={size}", name)
            now = number(values, "referenced") // MIB
            self._write(name, before, now, number(values, "written") // MIB, stage)
            before = now
            if stage != name:
                self._zfs("snapshot", stage)
                snap = self.node.pools.snapshot(stage)
                snap.created = number(values, "creation")
                if number(values, "userrefs"):
                    self._zfs("hold", "held-in-export", stage)

    def _write(self, name: str, before: int, now: int, written: int, seed: str) -> None:
        end = number(self.values[name], "volsize") // MIB or 1 << 30
        grown = max(0, min(now, end) - before)
        rewritten = min(max(0, written - grown), before, end)
        for start, length in ((before, grown), (0, rewritten)):
            if length > 0:
                self.node.guest(["write", name, str(start), str(length), seed])
        if now < before:
            self.node.guest(["trim", name, str(now), str(before - now)])

    def _identify(self, name: str) -> None:
        values = self.values[name]
        dataset = self.node.pools.dataset(name)
        dataset.guid = number(values, "guid") or dataset.guid
        dataset.created = number(values, "creation") or dataset.created
        for prop, (value, source) in values.items():
            if prop.startswith(OURS) and source == "received":
                dataset.received[prop] = value
            elif prop.startswith(OURS) and source == "local":
                self._zfs("set", f"{prop}={value}", name)

    def _limit(self, name: str) -> None:
        """Quotas and reservations as they are, whether or not zfs would grant them now."""
        dataset = self.node.pools.dataset(name)
        for prop in LIMITS:
            value, source = self.values[name].get(prop, ("0", ""))
            if value.isdigit() and int(value) and source != "default":
                dataset.props[prop] = int(value)
