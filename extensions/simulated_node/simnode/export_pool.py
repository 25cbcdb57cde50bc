# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pools rebuilt from the output of `zfs get -Hp`, `zpool status` and `zdb -C`.

Names, sizes, reservations, quotas, guids, origins, snapshots, encryption roots and our own user properties are taken
over. Contents are invented: as many bytes as the export says are referenced and written, so that space figures come
close.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Set, Tuple

from simnode.export_layout import ExportError, layout, sector_size
from simnode.node import Node
from simnode.zfs.model import Pool

MIB = 1 << 20
OURS = "flexdisk:"
LIMITS = ("refquota", "refreservation", "quota", "reservation")
_INLINE = ("compression", "recordsize", "mountpoint", "canmount")

Values = Dict[str, Tuple[str, str]]
Datasets = Dict[str, Values]


def parse(text: str) -> Datasets:
    """{dataset: {property: (value, source)}} of name, property, value and source separated by tabs.

    Values of user properties that are not ours may hold tabs and newlines: all of it up to the next row is left out.
    The rows of a dataset stand together, its type first and no property twice. A value that looks like rows breaks
    that, and the export is refused, unless they tell of what the export does not: those are believed.
    """
    datasets: Datasets = {}
    current, foreign = "", False
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split("\t")
        name, prop = fields[0], fields[1] if len(fields) > 1 else ""
        if name == current and len(fields) > 2 and _is_foreign(prop):
            foreign = True
        elif len(fields) == 4 and (name == current or prop == "type" or name in datasets):
            _add(datasets, current, number, fields)
            current, foreign = name, False
        elif line.strip() and not foreign:
            problem = f"has {len(fields)} fields instead of 4"
            if len(fields) == 4:
                problem = f"belongs to {name}, but the rows of {name} do not begin with its type"
            raise ExportError(f"line {number} of the zfs export {problem}")
    if not datasets:
        raise ExportError("the zfs export is empty")
    return datasets


def _is_foreign(prop: str) -> bool:
    return ":" in prop and not prop.startswith(OURS)


def _add(datasets: Datasets, current: str, number: int, fields: List[str]) -> None:
    name, prop, value, source = fields
    if name in datasets and name != current:
        raise ExportError(f"line {number} of the zfs export belongs to {name}, but the rows of {name} ended earlier")
    values = datasets.setdefault(name, {})
    if prop in values:
        raise ExportError(f"line {number} of the zfs export repeats {prop} of {name}")
    values[prop] = (value, source)


def number(values: Values, prop: str) -> int:
    """Return a number, 0 if there is none."""
    value = values.get(prop, ("0", ""))[0]
    return int(value) if value.isdigit() else 0


def rebuild(node: Node, datasets: Datasets, status: str, zdb: str) -> None:
    """Replace the node's pools by those of the export."""
    for name in sorted(name for name in datasets if "/" not in name and "@" not in name):
        vdevs = layout(status, name)
        ashift_of_export = sector_size(zdb, name, vdevs)
        replaced = node.pools.pools.pop(name, None)
        ashift, version = (replaced.ashift, replaced.version) if replaced else (12, "illumos")
        pool = node.pools.add_pool(name, 1 << 60, ashift_of_export or ashift, vdevs, version)
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
        for name in names:
            self._encrypt(name)
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
            raise ExportError(f"the zfs export does not contain {name}")
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

    def _encrypt(self, name: str) -> None:
        root = self.values[name].get("encryptionroot", ("-", ""))[0]
        if root in self.values:
            dataset = self.node.pools.dataset(name)
            dataset.cryptroot = self.node.pools.dataset(root).guid
            if root == name:
                dataset.props["encryption"] = self.values[name]["encryption"][0]
                dataset.crypt = {"master": dataset.guid, "key": "", "loaded": True}

    def _limit(self, name: str) -> None:
        """Quotas and reservations as they are, whether or not zfs would grant them now."""
        dataset = self.node.pools.dataset(name)
        for prop in LIMITS:
            value, source = self.values[name].get(prop, ("0", ""))
            if value.isdigit() and int(value) and source != "default":
                dataset.props[prop] = int(value)
