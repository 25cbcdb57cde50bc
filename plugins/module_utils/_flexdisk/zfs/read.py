# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsers of the output of zfs and zpool. They take text and run nothing."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import RECORD, Dataset
from ..model.errors import FlexdiskError
from ..rules.identity import FLEXIBLE, NAMES, PREFIX
from ..rules.journal import INDEX_PROPERTY
from ..rules.reservation import PoolGeometry, Vdev, automatic_reservation
from ..rules.snapshots import PARTS_PROPERTY

_NUMBERS = (
    "guid",
    "createtxg",
    "creation",
    "used",
    "available",
    "referenced",
    "written",
    "logicalreferenced",
    "logicalused",
    "volsize",
    "volblocksize",
    "quota",
    "refquota",
    "reservation",
    "refreservation",
    "usedbysnapshots",
    "usedbydataset",
    "usedbyrefreservation",
    "userrefs",
)
_TEXTS = ("origin", "compression", "encryptionroot", "keystatus", "keylocation")
PROPERTIES = (
    "type",
    *_NUMBERS,
    *_TEXTS,
    "clones",
    *tuple(PREFIX + name for name in (*NAMES, FLEXIBLE, INDEX_PROPERTY, PARTS_PROPERTY)),
)
_OUR_SOURCES = ("local", "received")
_INHERITED = "inherited from "


def parse_get(stdout: str) -> t.List[Dataset]:
    """Return the datasets in the output of C(zfs get -Hp -o name,property,value,source).

    Raises FlexdiskError on a line with other fields, and on a property that occurs twice: a user property may contain
    tabs and newlines, and with them what looks like lines of other datasets.
    """
    rows: t.Dict[str, t.Dict[str, str]] = {}
    sources: t.Dict[str, t.Dict[str, str]] = {}
    row: t.Dict[str, str] = {}
    last: t.Optional[str] = None
    for name, prop, value, source in cells(stdout):
        if name != last:
            row, last = rows.setdefault(name, {}), name
        if prop in row:
            raise FlexdiskError("UnexpectedOutput", f"zfs get printed {prop} of {name} twice")
        if value == source == "-":  # most lines are of properties that nobody has set
            row[prop] = value
            continue
        is_ours = prop.startswith(PREFIX)
        row[prop] = "-" if is_ours and source not in _OUR_SOURCES else value
        if is_ours and source not in ("local", "-") and "@" not in name:
            sources.setdefault(name, {})[prop[len(PREFIX) :]] = source
    return _with_files({name: _dataset(name, row, sources.get(name, {})) for name, row in rows.items()})


def check_whole(stdout: str, names: t.Collection[str], properties: t.Collection[str], datasets: bool = True) -> None:
    """Raise FlexdiskError UnexpectedOutput if the output is incomplete: each dataset must have each property once, each
    of the names must occur, and so must the parents of those below them. Otherwise a truncated output would look as if
    datasets were missing.

    datasets: file systems and volumes were requested, not only their snapshots or bookmarks.
    """
    by_name: t.Dict[str, t.List[str]] = {}
    for name, prop, _value, _source in cells(stdout):
        by_name.setdefault(name, []).append(prop)
    above = {_above(name) for name in by_name} - {""} if datasets else set()
    inside = tuple(f"{name}/" for name in names)
    lacking = sorted({*names} - by_name.keys()) if datasets else []
    lacking += sorted(name for name in above - by_name.keys() if not inside or name.startswith(inside))
    wanted = sorted(properties)
    short = [name for name, props in by_name.items() if sorted(props) != wanted]
    if stdout and stdout[-1] != "\n":
        short.append(stdout.rpartition("\n")[2].split("\t")[0])
    if lacking or short:
        text = f"nothing of {lacking[0]}" if lacking else f"not all of {short[0]}"
        raise FlexdiskError("UnexpectedOutput", f"zfs get printed {text}, and no error: its answer is not whole")


def _above(name: str) -> str:
    """Return the dataset above one, or that of a snapshot or bookmark; "" for a pool."""
    dataset = re.split("[@#]", name)[0]
    return dataset if dataset != name else name.rpartition("/")[0]


def cells(stdout: str) -> t.Iterator[t.List[str]]:
    """Yield name, property, value and source from each line. Raises FlexdiskError on a line with other fields."""
    lines = stdout.split("\n")
    for line in lines if lines[-1] else lines[:-1]:
        fields = line.split("\t")
        if len(fields) != 4:
            raise FlexdiskError("UnexpectedOutput", f"zfs get printed {line!r}: not 4 fields")
        yield fields


def _number(name: str, prop: str, value: str) -> int:
    if value in ("-", "none", ""):
        return 0
    try:
        return int(value)
    except ValueError:
        raise FlexdiskError(
            "UnexpectedOutput", f"zfs get reports {prop} of {name} as {value!r}, which is not a number"
        ) from None


def _dataset(name: str, row: t.Mapping[str, str], sources: t.Mapping[str, str]) -> Dataset:
    numbers = {prop: _number(name, prop, row.get(prop, "-")) for prop in _NUMBERS}
    texts = {prop: "" if row.get(prop, "-") == "-" else row[prop] for prop in _TEXTS}
    clones = row.get("clones", "-")
    return Dataset(
        name=name,
        kind=row.get("type", ""),
        clones=tuple(c for c in clones.split(",") if c) if clones != "-" else (),
        user={p[len(PREFIX) :]: v for p, v in row.items() if v != "-" and p.startswith(PREFIX)},
        received=frozenset(prop for prop, source in sources.items() if source == "received"),
        inherited={p: s[len(_INHERITED) :] for p, s in sources.items() if s.startswith(_INHERITED)},
        **{**numbers, **texts},  # type: ignore[arg-type]
    )


_SIZE = re.compile(r"\A[1-9][0-9]{0,18}\Z")


def _with_files(datasets: t.Dict[str, Dataset]) -> t.List[Dataset]:
    """Return the datasets with the sizes of disks that are files. ZFS stores these in our property; on a snapshot only
    if the size has changed.
    """
    for name, dataset in datasets.items():
        if dataset.kind == "filesystem" and dataset.user.get("type") == "file":
            datasets[name] = replace(dataset, volsize=_size_of(dataset, 0), volblocksize=RECORD)
    for name, dataset in datasets.items():
        above = datasets.get(dataset.parent) if dataset.kind == "snapshot" else None
        if above is not None and above.kind == "filesystem" and above.volsize:
            datasets[name] = replace(dataset, volsize=_size_of(dataset, above.volsize), volblocksize=RECORD)
    return list(datasets.values())


def _size_of(dataset: Dataset, other: int) -> int:
    stored = dataset.user.get("size", "")
    return int(stored) if _SIZE.match(stored) else other


_DRAID = re.compile(r"\Adraid(\d?)(?::(\d+)d)?(?::(\d+)c)?(?::(\d+)s)?-\d+\Z")
_RAIDZ = re.compile(r"\Araidz(\d?)-\d+\Z")


def parse_status(stdout: str) -> t.Dict[str, t.Tuple[Vdev, ...]]:
    """Return the top-level data vdevs of each pool from C(zpool status), which does not show ashift (so 0)."""
    pools: t.Dict[str, t.List[t.List[t.Any]]] = {}
    pool, data = "", False
    for line in stdout.splitlines():
        text = line.strip()
        if text.startswith("pool: "):
            pool, data = text[6:], False
            pools[pool] = []
        depth = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip()) - 8
        name = text.split()[0] if text else ""
        if not line.startswith("\t") or not name or name == "NAME":
            continue
        if depth == 0:
            data = name == pool
        elif data and depth == 2:
            pools[pool].append([name, 0])
        elif data and depth == 4 and pools[pool]:
            pools[pool][-1][1] += 1
    return {name: tuple(_vdev(v, disks) for v, disks in vdevs) for name, vdevs in pools.items()}


def _vdev(name: str, disks: int) -> Vdev:
    raidz = _RAIDZ.match(name)
    if raidz:
        return _whole(name, Vdev("raidz", 0, disks, int(raidz.group(1) or 1), 0), disks)
    draid = _DRAID.match(name)
    if draid:
        parity = int(draid.group(1) or 1)
        spares = int(draid.group(4) or 0)
        children = int(draid.group(3) or disks)
        data = int(draid.group(2) or children - spares - parity)
        return _whole(name, Vdev("draid", 0, children, parity, data), parity + data)
    return Vdev("plain", 0, max(1, disks), 0, 0)


def _whole(name: str, vdev: Vdev, disks: int) -> Vdev:
    """Return the vdev. Raises FlexdiskError if it has no room for data beside its parity."""
    if not 0 < vdev.parity < disks:
        raise FlexdiskError("UnexpectedOutput", f"zpool status shows a {name} of {vdev.disks} disks")
    return vdev


_TOP = re.compile(r"^( *)children\[0\]:$", re.MULTILINE)


def needs_ashift(vdevs: t.Iterable[Vdev]) -> bool:
    """Whether zdb must be asked for the ashift of a vdev."""
    return any(v.kind != "plain" for v in vdevs)


def with_ashift(vdevs: t.Tuple[Vdev, ...], zdb: str) -> t.Tuple[Vdev, ...]:
    """Return the vdevs with the sector sizes that C(zdb -C POOL) printed, in its order.

    It shows special vdevs like others, and those are never raidz or draid, so kinds are compared.
    """
    tops = _tops(zdb)
    ashifts = [next((ashift for kind, ashift in tops if kind == v.kind), 0) for v in vdevs]
    if 0 in ashifts:
        at = ashifts.index(0)
        raise FlexdiskError("UnexpectedOutput", f"zdb -C does not tell the ashift of vdev {at} ({vdevs[at].kind})")
    return tuple(replace(v, ashift=ashift) for v, ashift in zip(vdevs, ashifts))


def _tops(zdb: str) -> t.Iterator[t.Tuple[str, int]]:
    """Yield kind and ashift of each top-level vdev that holds data."""
    first = _TOP.search(zdb)
    if not first:
        return
    margin = "(?m)^" + first.group(1)
    for block in re.split(margin + r"children\[[0-9]+\]:$", zdb)[1:]:
        facts = dict(re.findall(margin + r"    (type|ashift|is_log): '?([a-z]+|[0-9]{1,2})'?$", block))
        kind, ashift = facts.get("type", ""), facts.get("ashift", "")
        if facts.get("is_log") != "1" and kind not in ("hole", "indirect") and ashift.isdigit():
            yield kind if kind in ("raidz", "draid") else "plain", int(ashift)


def geometry(vdevs: t.Tuple[Vdev, ...], volumes: t.Iterable[Dataset]) -> PoolGeometry:
    """Return the pool's geometry. Its volumes show which of the two roundings its ZFS uses."""
    classic, modern = PoolGeometry(vdevs, "classic"), PoolGeometry(vdevs, "modern")
    if needs_ashift(vdevs):
        for v in volumes:
            if v.kind == "volume" and v.refreservation:
                forecasts = [automatic_reservation(v.volsize, v.volblocksize, g) for g in (classic, modern)]
                if forecasts[0] != forecasts[1] and v.refreservation in forecasts:
                    return (classic, modern)[forecasts.index(v.refreservation)]
    return classic
