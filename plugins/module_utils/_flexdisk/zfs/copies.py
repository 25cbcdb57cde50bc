# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Streams, snapshots and bookmarks of disks and replicas: zfs calls for many of them by one process."""

from __future__ import annotations

import re
import typing as t

from ..model.command import Runner
from ..model.errors import FlexdiskError
from . import errors, read

_TO_GUID = re.compile(r"^\ttoguid = (0x[0-9a-f]{1,16})$", re.MULTILINE)
EVERYTHING = "filesystem,volume,snapshot,bookmark"
Cell = t.Tuple[str, str]  # value and source
Table = t.Dict[str, t.Dict[str, Cell]]


def arguments(names: t.Sequence[str], properties: t.Sequence[str], types: str, depth: int) -> t.Tuple[str, ...]:
    """Return the arguments of zfs get whose output rows() reads."""
    options = ("-Hp", "-d", str(depth), "-t", types, "-o", "name,property,value,source")
    return ("zfs", "get", *options, ",".join(properties), *names)


def rows(text: str) -> Table:
    """Return the rows in the output of zfs get. Raises FlexdiskError UnexpectedOutput."""
    result: Table = {}
    for name, prop, value, source in read.cells(text):
        row = result.setdefault(name, {})
        if prop in row:  # a user property may hold what looks like lines of other datasets
            raise FlexdiskError("UnexpectedOutput", f"zfs get printed {prop} of {name} twice")
        row[prop] = (value, source)
    return result


class Copies:
    """The zfs calls. Every method raises ZfsError with the command and its message."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def _run(self, *argv: str) -> str:
        answer = self._runner(argv)
        if answer.rc != 0:
            raise errors.classify(argv, answer.rc, answer.stderr)
        return answer.stdout

    def table(self, names: t.Sequence[str], properties: t.Sequence[str], types: str, depth: int = 1) -> Table:
        """Return the properties of datasets and of those below, by name and property. Empty without names."""
        return self._table(names, properties, types, depth) if names else {}

    def tops(self, properties: t.Sequence[str]) -> Table:
        """Return the properties of all pools, and of the file systems at most three levels below."""
        return self._table((), properties, "filesystem", 3)

    def _table(self, names: t.Sequence[str], properties: t.Sequence[str], types: str, depth: int) -> Table:
        out = self._run(*arguments(names, properties, types, depth))
        both = "filesystem" in types and ("volume" in types or not names)
        read.check_whole(out, names, properties, both)
        return rows(out)

    def encrypting(self, pools: t.Sequence[str]) -> t.Set[str]:
        """Return the pools that can have encrypted datasets. Raises FlexdiskError UnexpectedOutput."""
        return self._with("encryption", pools)

    def knowing_writes(self, pool: str) -> bool:
        """Whether ZFS knows what was written since a bookmark. OpenZFS before 2.0 knows no such feature of a pool."""
        try:
            return bool(self._with("bookmark_written", [pool]))
        except errors.ZfsError as exc:
            if "invalid property" not in exc.message:
                raise
            return False

    def _with(self, feature: str, pools: t.Sequence[str]) -> t.Set[str]:
        out = self._run("zpool", "get", "-H", "-o", "name,value", f"feature@{feature}", *pools) if pools else ""
        values = dict(line.split("\t", 1) for line in out.splitlines() if "\t" in line)
        if values.keys() != {*pools}:
            raise FlexdiskError("UnexpectedOutput", f"zpool get of {', '.join(pools)} printed {out!r:.200}")
        return {name for name, value in values.items() if value in ("enabled", "active")}

    def token_guid(self, token: str) -> int:
        """Return the guid of the snapshot that an interrupted stream brings. 0 if it cannot be resumed: its snapshot or
        its base is gone, or ZFS cannot read the token.
        """
        answer = self._runner(("zfs", "send", "-nvPt", token))
        match = _TO_GUID.search(answer.stdout)
        return int(match[1], 16) if match and answer.rc == 0 else 0

    def bookmark(self, snapshot: str, name: str) -> None:
        """Make a bookmark of a snapshot."""
        self._run("zfs", "bookmark", snapshot, f"{snapshot.partition('@')[0]}#{name}")

    def destroy(self, name: str) -> None:
        """Destroy a snapshot or a bookmark, and nothing else."""
        if not set(name) & set("@#"):
            raise ValueError(f"{name} is a dataset")
        self._run("zfs", "destroy", name)

    def on_hold(self, tag: str, snapshots: t.Sequence[str]) -> t.Set[str]:
        """Return those of the snapshots that have a hold with this tag."""
        if not snapshots:
            return set()
        lines = (line.split("\t") for line in self._run("zfs", "holds", "-H", *snapshots).splitlines())
        return {fields[0] for fields in lines if fields[1:2] == [tag]}

    def roll_back(self, snapshot: str) -> None:
        """Roll a dataset back to its newest snapshot. ZFS refuses any other."""
        self._run("zfs", "rollback", snapshot)

    def give_up(self, dataset: str) -> None:
        """Discard what has arrived of an interrupted stream."""
        self._run("zfs", "receive", "-A", dataset)
