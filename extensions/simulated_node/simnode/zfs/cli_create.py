# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs create`, `zfs clone` and `zfs rename`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from simnode.zfs import cli_key, kernel, numbers
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.model import FILESYSTEM, VOLUME, Dataset, Pool, Snapshot
from simnode.zfs.properties import AUTO
from simnode.zfs.session import Session, assignments, checked, name_problem, options


def _parents(session: Session, path: str, failure: str) -> Optional[Dataset]:
    """`check_parents` of libzfs: the parent file system, or None after printing why there is none."""
    above, slash, _leaf = path.rpartition("/")
    if not slash:
        session.fail(failure, "missing dataset name")
        return None
    pool = above.split("/", 1)[0]
    if pool not in session.storage.pools:
        session.fail(failure, f"no such pool '{pool}'")
        return None
    try:
        parent = session.storage.dataset(above)
    except ZfsError:
        session.fail(failure, "parent does not exist")
        return None
    if parent.kind != FILESYSTEM:
        session.fail(failure, "parent is not a filesystem")
        return None
    return parent


def _ancestors(session: Session, path: str) -> None:
    parts = path.split("/")
    for count in range(2, len(parts)):
        name = "/".join(parts[:count])
        if name not in session.storage.pool_of(name).datasets:
            try:
                kernel.create(session.storage, name, FILESYSTEM, {})
            except ZfsError as refusal:
                raise CliError(f"cannot create '{name}': {refusal.text}") from None


class _Request:
    """The options of `zfs create`, in the order they were given."""

    def __init__(self, argv: List[str]) -> None:
        self.flags = ""
        self.volume = False
        self.sized: Dict[str, int] = {}
        self.props: Dict[str, str] = {}
        given, names = options(argv, "PV:b:nso:puv")
        pairs: List[str] = []
        for flag, value in given:
            if flag == "-V":
                self.volume = True
                pairs.append(f"volsize={_size(value, 'size')}")
            elif flag == "-b":
                pairs.append(f"volblocksize={_size(value, 'block size')}")
            elif flag == "-o":
                pairs.append(value)
            else:
                self.flags += flag[1]
        self.props = assignments(pairs)
        kind = "volume" if self.volume else "filesystem"
        if not self.volume and ("s" in self.flags or any(flag == "-b" for flag, _value in given)):
            raise UsageError("'-s' and '-b' can only be used when creating a volume")
        if not names:
            raise UsageError(f"missing {kind} argument")
        if len(names) > 1:
            raise UsageError("too many arguments")
        self.name = names[0]


def _size(text: str, option: str) -> int:
    try:
        return numbers.parse(text)
    except ValueError as error:
        raise CliError(f"bad volume {option} '{text}': {error}") from None


def create(session: Session, argv: List[str]) -> int:
    """`zfs create`."""
    request = _Request(argv)
    dry = "n" in request.flags
    if dry or request.volume:
        pool = session.storage.pools.get(request.name.split("/", 1)[0])
        if pool is None:
            return session.fail(f"cannot open '{request.name.split('/', 1)[0]}'", "no such pool")
        checked(request.props, "v" if request.volume else "f", True,
                f"cannot {'verify' if dry else 'create'} '{request.name}'")  # fmt: skip
        if request.volume:
            _complete(session, pool, request)
    if "p" in request.flags and not name_problem(request.name, "fv"):
        try:
            session.storage.dataset(request.name)
            return 0
        except ZfsError:
            pass
    _describe(session, request, dry)
    if dry:
        return 0
    if "p" in request.flags and request.name.split("/", 1)[0] in session.storage.pools:
        _ancestors(session, request.name)
    return _create(session, request)


def _complete(session: Session, pool: Pool, request: _Request) -> None:
    """Fill in block size, rounded size and reservation of a volume as `zfs_do_create` does."""
    props = request.props
    stored = checked(props, "v", True, "")
    block = int(stored.get("volblocksize", 0))
    if block:
        _warn(session, pool, block)
    else:
        block = pool.default_block
        if block != pool.base_block:
            props["volblocksize"] = str(block)
    size = -(-int(stored["volsize"]) // block) * block
    props["volsize"] = str(size)
    if "s" not in request.flags and "refreservation" not in props and size:
        props["refreservation"] = str(pool.auto(size, block))


def _warn(session: Session, pool: Pool, block: int) -> None:
    """OpenZFS's advice on a small block size."""
    if pool.version == "illumos":
        return
    best, lowest = pool.default_block, pool.least_allocation
    if block < pool.base_block:
        session.err.append(
            f"Warning: volblocksize ({block}) is less than the default minimum block size ({pool.base_block}).\n"
            f"To reduce wasted space a volblocksize of {best} is recommended.\n"
        )
    elif block < best:
        session.err.append(
            f"Warning: volblocksize ({block}) is much less than the minimum allocation\nunit ({lowest}), which wastes "
            f"at least {100 * (lowest - block) // lowest}% of space. To reduce wasted space,\nuse a larger "
            f"volblocksize ({best} is recommended), fewer dRAID data disks\nper group, "
            "or smaller sector size (ashift).\n"
        )


def _describe(session: Session, request: _Request, dry: bool) -> None:
    if not set("vP") & set(request.flags):
        return
    exact = "P" in request.flags
    would = "would create" if dry else "create"
    if "p" in request.flags:
        text = f"create_ancestors\t{request.name}\n" if exact else f"{would} ancestors of {request.name}\n"
        session.out.append(text)
    session.out.append(f"create\t{request.name}\n" if exact else f"{would} {request.name}\n")
    for name, value in request.props.items():
        session.out.append(f"property\t{name}\t{value}\n" if exact else f"\t{name}={value}\n")


def _create(session: Session, request: _Request) -> int:
    name = request.name
    failure = f"cannot create '{name}'"
    wrong = name_problem(name, "fv")
    if wrong:
        return session.fail(failure, wrong)
    if _parents(session, name, failure) is None:
        return 1
    if name in session.storage.pool_of(name).datasets:
        return session.fail(failure, "dataset already exists")
    stored = checked(request.props, "v" if request.volume else "f", True, failure)
    block = 0
    if request.volume:
        if not stored["volsize"]:
            return session.fail(failure, "volume size cannot be zero")
        block = int(stored.pop("volblocksize", session.storage.pool_of(name).default_block))
    key = cli_key.key_of_new(session, request.props) if "encryption" in request.props else ""
    try:
        kernel.create(session.storage, name, VOLUME if request.volume else FILESYSTEM, stored, block, key)
    except ZfsError as refusal:
        return session.fail(failure, refusal.text)
    return 0


def clone(session: Session, argv: List[str]) -> int:
    """`zfs clone`; -F is illumos's."""
    given, names = options(argv, "o:puF")
    flags = [flag for flag, _value in given]
    props = assignments([value for flag, value in given if flag == "-o"])
    if len(names) < 2:
        raise UsageError(f"missing {'target' if names else 'source'} dataset argument")
    if len(names) > 2:
        raise UsageError("too many arguments")
    origin = session.open(names[0], "s")
    if not isinstance(origin, Snapshot):
        return 1
    target = names[1]
    failure = f"cannot create '{target}'"
    wrong = name_problem(target, "fv")
    if wrong:
        return session.fail(failure, wrong)
    if "-p" in flags and target.split("/", 1)[0] in session.storage.pools:
        if target in session.storage.pool_of(target).datasets:
            return 0
        _ancestors(session, target)
    if _parents(session, target, failure) is None:
        return 1
    stored = _clone_props(session, origin, props, failure)
    try:
        kernel.clone(session.storage, target, origin, stored)
    except ZfsError as refusal:
        why = "source and target pools differ" if refusal.code == "EXDEV" else refusal.text
        return session.fail(failure, why)
    return 0


def _clone_props(session: Session, origin: Snapshot, props: Dict[str, str], failure: str) -> Dict[str, Any]:
    dataset = origin.dataset
    stored = checked(props, "v" if dataset.kind == VOLUME else "f", False, failure)
    size = stored.get("volsize")
    if size is not None and (size == 0 or size % dataset.volblocksize):
        nice = numbers.nice(dataset.volblocksize)
        why = f"must be a multiple of volume block size ({nice})" if size else "cannot be zero"
        raise CliError(f"{failure}: 'volsize' {why}")
    if stored.get("refreservation") == AUTO:
        stored["refreservation"] = session.pool(dataset).auto(size or origin.volsize, dataset.volblocksize)
    return stored


def rename(session: Session, argv: List[str]) -> int:
    """`zfs rename`."""
    given, names = options(argv, "pruf")
    flags = {flag for flag, _value in given}
    if len(names) < 2:
        raise UsageError(f"missing {'target' if names else 'source'} dataset argument")
    if len(names) > 2:
        raise UsageError("too many arguments")
    source, target = names
    if "-r" in flags and "-p" in flags:
        raise UsageError("-p and -r options are mutually exclusive")
    if "-r" in flags and "@" not in source:
        raise UsageError("source dataset for recursive rename must be a snapshot")
    item = session.open(source, "f" if "-u" in flags else "fv" if "-p" in flags else "fvs")
    if item is None:
        return 1
    if isinstance(item, Snapshot):
        return _rename_snapshot(session, item, target, "-r" in flags)
    if "-p" in flags and target.split("/", 1)[0] in session.storage.pools:
        _ancestors(session, target)
    return _rename(session, item, target)


def _rename(session: Session, item: Dataset, target: str) -> int:
    if item.name == target:
        return 0
    wrong = name_problem(target, "fv")
    if wrong:
        return session.fail(f"cannot rename to '{target}'", wrong)
    if _parents(session, target, f"cannot create '{target}'") is None:
        return 1
    if target.split("/", 1)[0] != item.name.split("/", 1)[0]:
        return session.fail(f"cannot rename to '{target}'", "datasets must be within same pool")
    if target.startswith(item.name + "/"):
        why = "New dataset name cannot be a descendant of current dataset name"
        return session.fail(f"cannot rename to '{target}'", why)
    failure = f"cannot rename '{item.name}'"
    try:
        kernel.rename(session.storage, item, target)
    except ZfsError as refusal:
        return session.fail(failure, refusal.text)
    return 0


def _rename_snapshot(session: Session, snap: Snapshot, target: str, recursive: bool) -> int:
    above, at, short = target.rpartition("@")
    if at and above and above != snap.dataset.name:
        return session.fail(f"cannot rename to '{target}'", "snapshots must be part of same dataset")
    full = f"{snap.dataset.name}@{short}"
    wrong = name_problem(full, "s")
    if wrong:
        return session.fail(f"cannot rename to '{full}'", wrong)
    if short == snap.name:
        return 0
    snaps = [snap]
    if recursive:
        snapshots = [node.snapshot(snap.name) for node in snap.dataset.walk()]
        snaps = [one for one in snapshots if one is not None]
    try:
        kernel.rename_snapshots(session.storage, snaps, short)
    except ZfsError as refusal:
        reason = refusal.text
        if recursive and refusal.code == "EEXIST":
            reason = "a child dataset already has a snapshot with the new name"
        return session.fail(f"cannot rename '{snap.fullname}'", reason)
    return 0
