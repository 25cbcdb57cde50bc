# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all `zfs` subcommands share: output, options, opening datasets, choosing which ones a command is about."""

from __future__ import annotations

import getopt
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.model import Bookmark, Dataset, Pool, Snapshot
from simnode.zfs.properties import check
from simnode.zfs.storage import Storage
from simnode.zfs.values import Item, Listed, kind_of, name_of

_TYPES = {"filesystem": "f", "fs": "f", "volume": "v", "vol": "v", "snapshot": "s", "snap": "s", "bookmark": "b",
          "all": "fvsb"}  # fmt: skip
_TYPE_NAMES = {"f": "filesystem", "v": "volume", "s": "snapshot", "b": "bookmark"}
MAX_NAME = 255
BAD_TYPE = "operation not applicable to datasets of this type"


class Session:
    """One run of a command: the pools and what has been printed so far."""

    def __init__(self, storage: Storage, stdin: str = "") -> None:
        self.storage = storage
        self.stdin = stdin
        self.out: List[str] = []
        self.err: List[str] = []

    def fail(self, failure: str, reason: str) -> int:
        """Print "failure: reason" on stderr. Return 1."""
        self.err.append(f"{failure}: {reason}\n")
        return 1

    @property
    def version(self) -> str:
        """The version of zfs: illumos, 2.1 or 2.3."""
        for pool in self.storage.pools.values():
            return pool.version
        return "illumos"

    def open(self, name: str, types: str) -> Optional[Item]:
        """Return the dataset or snapshot of that name if it is of one of `types` (f, v, s), else print why not."""
        item = self.listed(name, types)
        return None if isinstance(item, Bookmark) else item

    def point(self, name: str) -> Optional[Union[Snapshot, Bookmark]]:
        """Return the snapshot or bookmark of that name, else None, with a message printed."""
        item = self.listed(name, "sb")
        return None if isinstance(item, Dataset) else item

    def listed(self, name: str, types: str) -> Optional[Listed]:
        """Return the item of that name if it is of one of `types` (f, v, s, b), else print why not."""
        failure = f"cannot open '{name}'"
        problem = name_problem(name, types)
        if problem:
            self.fail(failure, problem)
            return None
        try:
            item: Listed = self.storage.bookmark(name) if "#" in name else self.storage.find(name)
        except ZfsError as refusal:
            self.fail(failure, refusal.text)
            return None
        if kind_of(item) not in types:
            self.fail(failure, BAD_TYPE)
            return None
        return item

    def dataset(self, name: str) -> Optional[Dataset]:
        """Like `open`, for file systems and volumes."""
        item = self.open(name, "fv")
        return item if isinstance(item, Dataset) else None

    def pool(self, item: Listed) -> Pool:
        """Return the pool of an item."""
        return self.storage.pool_of(name_of(item))


def name_problem(name: str, types: str) -> str:
    """Return why a dataset of these types cannot have the name, '' if it can."""
    if "s" not in types and "@" in name:
        return "snapshot delimiter '@' is not expected here"
    if types == "s" and "@" not in name:
        return "missing '@' delimiter in snapshot name"
    if "#" in name and "b" not in types:
        return "bookmark delimiter '#' is not expected here"
    if len(name) > MAX_NAME:
        return "name is too long"
    if name.startswith("/") or name.endswith("/"):
        return f"{'leading' if name.startswith('/') else 'trailing'} slash in name"
    name = name.replace("#", "@")
    if "/" in name.partition("@")[2]:
        return "trailing slash in name"
    if name.count("@") > 1:
        return "multiple '@' and/or '#' delimiters in name"
    problems = [_part_problem(part) for part in name.replace("@", "/").split("/")]
    return next((problem for problem in problems if problem), "")


def _part_problem(part: str) -> str:
    if not part:
        return "empty component or misplaced '@' or '#' delimiter in name"
    for char in part:
        if not (char.isascii() and (char.isalnum() or char in "-_.: ")):
            return f"invalid character '{char}' in name"
    if part == ".":
        return "self reference, '.' is found in name"
    return "parent reference, '..' is found in name" if part == ".." else ""


def options(argv: List[str], spec: str) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Parse options as zfs does, options first, then names."""
    try:
        return getopt.getopt(argv, spec)
    except getopt.GetoptError as error:
        if "requires argument" in error.msg:
            raise UsageError(f"missing argument for '{error.opt}' option") from None
        raise UsageError(f"invalid option '{error.opt}'") from None


def assignments(texts: List[str]) -> Dict[str, str]:
    """Parse property=value arguments. Raises CliError for malformed or repeated ones."""
    result: Dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CliError("missing '=' for property=value argument")
        if name in result:
            raise CliError(f"property '{name}' specified multiple times")
        result[name] = value
    return result


def checked(props: Dict[str, str], kind: str, creating: bool, failure: str) -> Dict[str, Any]:
    """Return properties as they are stored. Raises CliError "failure: reason" for the first invalid one."""
    result: Dict[str, Any] = {}
    for name, value in props.items():
        try:
            full, stored = check(name, value, kind, creating)
        except CliError as error:
            raise CliError(f"{failure}: {error.text}") from None
        result[full] = stored
    return result


def types_of(text: str) -> str:
    """Return the letters of a -t argument."""
    letters = ""
    for name in text.split(","):
        if name not in _TYPES:
            raise UsageError(f"invalid type '{name}'")
        letters += _TYPES[name]
    return letters


def type_name(item: Listed) -> str:
    """Return filesystem, volume, snapshot or bookmark."""
    return _TYPE_NAMES[kind_of(item)]


def depth_of(text: str) -> int:
    """Return the number of a -d argument."""
    if not text.isdigit():
        raise UsageError(f"{text} is not an integer" if text else "empty depth")
    return int(text)


def order(item: Listed) -> Tuple[str, int, int]:
    """Return the sort key of listings: datasets by name, each with its snapshots, then its bookmarks, oldest first."""
    if isinstance(item, Dataset):
        return item.name, 0, 0
    return item.dataset.name, 1 if isinstance(item, Snapshot) else 2, item.createtxg


class Selection:
    """The datasets that a `get` or `list` prints."""

    def __init__(self, types: str, snapshots: bool, depth: Optional[int]) -> None:
        self.types = types
        self.snapshots = snapshots
        self.depth = depth

    def pick(self, session: Session, names: List[str]) -> Tuple[List[Listed], int]:
        """Return the items, sorted, and 1 if a name could not be opened, else 0."""
        items: Dict[int, Listed] = {}
        status = 0
        if not names:
            depth = self.depth if self.depth is not None else 1 << 30
            for pool in session.storage.pools.values():
                for item in self._below(pool.root, depth):
                    items[id(item)] = item
        depth = self.depth or 0
        allowed = self.types
        if depth:
            allowed += "f" + ("v" if set("sb") & set(self.types) else "")
        for name in names:
            opened = session.listed(name, allowed)
            if opened is None:
                status = 1
                continue
            for item in self._below(opened, depth):
                items[id(item)] = item
        return sorted(items.values(), key=order), status

    def _below(self, item: Listed, depth: int) -> Iterator[Listed]:
        if kind_of(item) in self.types:
            yield item
        if depth <= 0 or not isinstance(item, Dataset):
            return
        if "s" in self.types and self.snapshots:
            yield from item.snapshots
        if "b" in self.types and self.snapshots:
            yield from item.bookmarks
        for leaf in item.children.values():
            yield from self._below(leaf, depth - 1)
