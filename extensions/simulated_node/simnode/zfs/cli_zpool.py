# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `zpool` command: list, status, get, history."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Tuple

from simnode.zfs import numbers
from simnode.zfs.errors import CliError, UsageError
from simnode.zfs.model import Pool
from simnode.zfs.session import Session, options
from simnode.zfs.storage import Storage

_HEADERS = {
    "name": "NAME", "size": "SIZE", "allocated": "ALLOC", "free": "FREE", "capacity": "CAP", "health": "HEALTH",
    "altroot": "ALTROOT", "dedupratio": "DEDUP", "fragmentation": "FRAG", "guid": "GUID", "ashift": "ASHIFT",
    "expandsize": "EXPANDSZ", "checkpoint": "CKPOINT", "readonly": "RDONLY", "listsnapshots": "LISTSNAPS",
    "version": "VERSION",
}  # fmt: skip
_ALIASES = {"alloc": "allocated", "cap": "capacity", "frag": "fragmentation", "dedup": "dedupratio",
            "listsnaps": "listsnapshots", "ckpoint": "checkpoint", "expandsz": "expandsize"}  # fmt: skip
_DEFAULT = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot"
_SIZES = ("size", "allocated", "free")
# zpool get knows them, and zpool list does not
_ENCRYPTION, _BOOKMARK_WRITTEN = "feature@encryption", "feature@bookmark_written"


def raw_size(pool: Pool) -> Tuple[int, int]:
    """(size, allocated) as zpool counts them: parity included on raidz and draid."""
    size, allocated = pool.size, pool.allocated
    for vdev in pool.vdevs:
        if vdev.is_parity:
            factor = vdev.asize(1 << 17, pool.ashift) / (1 << 17)
            return int(size * factor), int(allocated * factor)
    return size, allocated


def _values(session: Session, pool: Pool, literal: bool) -> Dict[str, str]:
    size, allocated = raw_size(pool)
    faults = session.storage.faults
    show: Callable[[int], str] = str if literal else numbers.nice
    percent = "" if literal else "%"
    return {
        "name": pool.name,
        "size": show(size),
        "allocated": show(allocated),
        "free": show(size - allocated),
        "capacity": f"{allocated * 100 // size}{percent}",
        "health": "SUSPENDED" if faults.get("suspended") else "ONLINE",
        "altroot": "-",
        "dedupratio": "1.00" if literal else "1.00x",
        "fragmentation": f"0{percent}",
        "guid": str(pool.guid),
        "ashift": str(pool.ashift),
        "expandsize": "-",
        "checkpoint": "-",
        "readonly": "on" if faults.get("readonly") else "off",
        "listsnapshots": "off",
        "version": "-",
        _ENCRYPTION: _encryption(pool),
        _BOOKMARK_WRITTEN: "disabled" if faults.get("old_pool") else "enabled",
    }


def _encryption(pool: Pool) -> str:
    if not pool.encrypts:
        return "disabled"
    return "active" if any(dataset.cryptroot for dataset in pool.datasets.values()) else "enabled"


def _pools(session: Session, names: List[str]) -> Tuple[List[Pool], int]:
    pools, status = [], 0
    for name in names or list(session.storage.pools):
        if name in session.storage.pools:
            pools.append(session.storage.pools[name])
        else:
            status = session.fail(f"cannot open '{name}'", "no such pool")
    return pools, status


def _names(text: str, *features: str) -> List[str]:
    names = [_ALIASES.get(word, word) for word in text.split(",")]
    for name in names:
        if name not in _HEADERS and name not in features:
            raise UsageError(f"bad property list: invalid property '{name}'")
    return names


def _list(session: Session, argv: List[str]) -> int:
    given, rest = options(argv, "Hpo:vPLg")
    fields = _names(dict(given).get("-o", _DEFAULT))
    flags = {flag for flag, _value in given}
    pools, status = _pools(session, rest)
    rows = []
    for pool in pools:
        values = _values(session, pool, "-p" in flags)
        rows.append([values[field] for field in fields])
    if "-H" in flags:
        session.out.extend("\t".join(row) + "\n" for row in rows)
        return status
    table = [[_HEADERS[field] for field in fields], *rows]
    wide = [max(len(row[at]) for row in table) for at in range(len(fields))]
    for row in table:
        cells = [text.ljust(wide[at]) if fields[at] in ("name", "health", "altroot") else text.rjust(wide[at])
                 for at, text in enumerate(row)]  # fmt: skip
        session.out.append("  ".join(cells).rstrip() + "\n")
    return status


def _get(session: Session, argv: List[str]) -> int:
    given, rest = options(argv, "Hpo:")
    if not rest:
        raise UsageError("missing property argument")
    every = [name for name in _HEADERS if name != "name"]
    fields = every if rest[0] == "all" else _names(rest[0], _ENCRYPTION, _BOOKMARK_WRITTEN)
    flags = {flag for flag, _value in given}
    columns = dict(given).get("-o", "name,property,value,source").split(",")
    pools, status = _pools(session, rest[1:])
    rows = []
    for pool in pools:
        values = _values(session, pool, "-p" in flags)
        for field in fields:
            default = field in ("readonly", "listsnapshots", "altroot", "version")
            source = "local" if field.startswith("feature@") else "default" if default else "-"
            document = {"name": pool.name, "property": field, "value": values[field], "source": source}
            rows.append([document[column] for column in columns])
    if "-H" in flags:
        session.out.extend("\t".join(row) + "\n" for row in rows)
    elif rows:
        table = [[column.upper() for column in columns], *rows]
        wide = [max(len(row[at]) for row in table) for at in range(len(columns))]
        session.out.extend("  ".join(c.ljust(wide[at]) for at, c in enumerate(row)).rstrip() + "\n" for row in table)
    return status


def vdev_tree(pool: Pool) -> List[Tuple[int, str]]:
    """(depth, name) of every vdev: mirror-0, raidz1-0, draid1:4d:6c:0s-0 and the disks c0t0d0, c0t1d0..."""
    lines: List[Tuple[int, str]] = []
    disk = 0
    for index, vdev in enumerate(pool.vdevs):
        depth = 1
        if vdev.type != "disk":
            name = vdev.type
            if vdev.type.startswith("draid"):
                name = f"draid{vdev.parity}:{vdev.data_disks}d:{vdev.disks}c:0s"
            lines.append((1, f"{name}-{index}"))
            depth = 2
        for _member in range(vdev.disks if vdev.type != "disk" else 1):
            lines.append((depth, f"c0t{disk}d0"))
            disk += 1
    return lines


def _status(session: Session, argv: List[str]) -> int:
    _given, rest = options(argv, "vxPLgp")
    pools, status = _pools(session, rest)
    for pool in pools:
        state = _values(session, pool, False)["health"]
        session.out.append(f"  pool: {pool.name}\n state: {state}\n  scan: none requested\nconfig:\n\n")
        tree = [(0, pool.name), *vdev_tree(pool)]
        wide = max(10, *(len(name) + 2 * depth for depth, name in tree))
        session.out.append(f"\t{'NAME':<{wide}}  STATE     READ WRITE CKSUM\n")
        for depth, name in tree:
            text = "  " * depth + name
            session.out.append(f"\t{text:<{wide}}  {state:<8} {0:>5} {0:>5} {0:>5}\n")
        session.out.append("\nerrors: No known data errors\n")
    if not pools and not rest:
        session.out.append("no pools available\n")
    return status


def _history(session: Session, argv: List[str]) -> int:
    _given, rest = options(argv, "il")
    pools, status = _pools(session, rest)
    for pool in pools:
        session.out.append(f"History for '{pool.name}':\n")
        for when, text in session.storage.history:
            stamp = time.strftime("%Y-%m-%d.%H:%M:%S", time.gmtime(when))
            session.out.append(f"{stamp} {text}\n")
        session.out.append("\n")
    return status


_COMMANDS: Dict[str, Tuple[Callable[[Session, List[str]], int], str]] = {
    "list": (_list, "list [-gHLpPv] [-o property[,...]] [pool] ..."),
    "get": (_get, 'get [-Hp] [-o "all" | field[,...]] <"all" | property[,...]> <pool> ...'),
    "status": (_status, "status [-gLPvx] [pool] ..."),
    "history": (_history, "history [-il] [<pool>] ..."),
}


def main(storage: Storage, argv: List[str]) -> Tuple[int, str, str]:
    """Run `zpool` with these arguments; exit status, stdout, stderr."""
    if not argv or argv[0] not in _COMMANDS:
        problem = f"unrecognized command '{argv[0]}'" if argv else "missing command"
        usages = "".join(f"\t{usage}\n" for _command, usage in _COMMANDS.values())
        return 2, "", f"{problem}\nusage: zpool command args ...\nwhere 'command' is one of the following:\n\n{usages}"
    session = Session(storage)
    command, usage = _COMMANDS[argv[0]]
    try:
        status = command(session, argv[1:])
    except UsageError as error:
        session.err.append(f"{error.text}\nusage:\n\t{usage}\n")
        status = error.rc
    except CliError as error:
        session.err.append(error.text + "\n")
        status = error.rc
    return status, "".join(session.out), "".join(session.err)
