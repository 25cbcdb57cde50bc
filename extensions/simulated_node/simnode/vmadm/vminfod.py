# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vminfod's cache of ZFS: event driven, so it can be stale.

A rename carries the old name only, so a dataset renamed into a VM stays unseen until something happens to it or to its
parent, or until the whole cache is read anew every five minutes. Guest writes raise no event at all.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from simnode.vmadm.host import VmadmHost, pools

REFRESH_SECONDS = 300
WATCH_TIMEOUT = 60
COLUMNS = (
    "compression",
    "creation",
    "filesystem_limit",
    "guid",
    "mountpoint",
    "name",
    "quota",
    "recsize",
    "refquota",
    "refreservation",
    "snapshot_limit",
    "type",
    "usedbysnapshots",
    "userrefs",
    "volblocksize",
    "volsize",
    "written",
    "zoned",
)
_CACHED = {
    "filesystem": (
        "compression",
        "creation",
        "filesystem_limit",
        "guid",
        "quota",
        "recsize",
        "refquota",
        "snapshot_limit",
    ),
    "volume": ("compression", "guid", "refreservation", "usedbysnapshots", "volblocksize", "volsize"),
    "snapshot": ("creation", "userrefs", "written"),
}
_LOADS = frozenset(("create", "clone", "snapshot", "set", "hold", "release", "rename", "rollback"))
_EXPIRES = frozenset(("set", "hold", "release", "rename", "rollback", "destroy"))
_CHUNK = 200

Row = Dict[str, Any]


def datasets(host: VmadmHost) -> Dict[str, Row]:
    """Return vminfod's cache of ZFS, after pending events and a refresh that is due."""
    cache: Dict[str, Any] = host.state.setdefault("vminfod", {"datasets": {}, "cursor": 0, "refreshed": None})
    if cache["refreshed"] is None or host.now() - cache["refreshed"] >= REFRESH_SECONDS:
        refresh(host)
    else:
        _follow_events(host, cache)
    rows: Dict[str, Row] = host.state["vminfod"]["datasets"]
    return rows


def refresh(host: VmadmHost) -> None:
    """Read everything again."""
    cache = host.state.setdefault("vminfod", {"datasets": {}, "cursor": 0, "refreshed": None})
    pending = host.events(cache["cursor"])
    if pending:
        cache["cursor"] = pending[-1][0]
    cache["datasets"] = _list(host, 2, [])
    cache["refreshed"] = host.now()


def load(host: VmadmHost, names: List[str]) -> None:
    """Read these datasets with their snapshots and children, as for a VM that has just been made."""
    host.state["vminfod"]["datasets"].update(_list(host, 1, names))


def _follow_events(host: VmadmHost, cache: Dict[str, Any]) -> None:
    pending = host.events(cache["cursor"])
    if not pending:
        return
    if cache["cursor"] and pending[0][0] > cache["cursor"] + 1 and len(pending) >= 2000:
        refresh(host)
        return
    cache["cursor"] = pending[-1][0]
    rows: Dict[str, Row] = cache["datasets"]
    arrivals = _Arrivals(pending, rows)
    loads: Dict[str, int] = {}
    for sequence, kind, name in pending:
        if not _concerns_vms(host, name):
            continue
        if kind in _EXPIRES:
            rows.pop(name, None)
        if kind in _LOADS:
            loads[name.partition("@")[0]] = sequence
    names = sorted(loads)
    for start in range(0, len(names), _CHUNK):
        for name, row in _list(host, 1, names[start : start + _CHUNK]).items():
            dataset = name.partition("@")[0]
            newest_event = max(
                loads.get(dataset, 0), loads.get(dataset.rpartition("/")[0], 0) if dataset == name else 0
            )
            if newest_event > arrivals.of(dataset, row):
                rows[name] = row


class _Arrivals:
    """When datasets got their current names by renames, as far as the events of one batch show.

    The real vminfod reads ZFS at each event, but here a batch is read at its end. So an event must not load a dataset
    that was renamed to its name later.
    """

    def __init__(self, pending: List[Tuple[int, str, str]], rows: Dict[str, Row]) -> None:
        self.known = {name: row["guid"] for name, row in rows.items() if "@" not in name}
        self.moved: Dict[int, int] = {}
        self.unresolved = 0
        self.left: Dict[str, int] = {}
        self.made: Dict[str, int] = {}
        for sequence, kind, name in pending:
            if kind in ("create", "clone"):
                self.made[name] = sequence
            elif kind == "rename" and "@" not in name:
                self.left[name] = sequence
                if name in self.known:
                    self.moved[self.known[name]] = sequence
                else:
                    self.unresolved = sequence

    def of(self, name: str, row: Row) -> int:
        """Return the sequence number of the rename that gave a dataset its name, 0 for none."""
        if not self.left or "guid" not in row:
            return 0
        left = self.left.get(name, 0)
        if self.made.get(name, 0) > left or (not left and self.known.get(name) == row["guid"]):
            return 0
        return max(self.moved.get(row["guid"], 0), self.unresolved)


def _concerns_vms(host: VmadmHost, name: str) -> bool:
    parts = name.partition("@")[0].split("/")
    if len(parts) == 2:
        return True
    return any(record["zpool"] == parts[0] for record in host.state.get("vms", {}).values())


def _list(host: VmadmHost, depth: int, names: List[str]) -> Dict[str, Row]:
    argv = ["list", "-H", "-p", "-t", "filesystem,snapshot,volume", "-o", ",".join(COLUMNS), "-d", str(depth), *names]
    if not names and not pools(host):
        return {}
    _code, out, _err = host.zfs(argv)
    rows: Dict[str, Row] = {}
    for line in out.splitlines():
        values = line.split("\t")
        if len(values) == len(COLUMNS):
            row = dict(zip(COLUMNS, values))
            cached: Row = {key: int(row[key]) if row[key].isdigit() else row[key] for key in _CACHED[row["type"]]}
            cached["type"] = row["type"]
            rows[row["name"]] = cached
    return rows
