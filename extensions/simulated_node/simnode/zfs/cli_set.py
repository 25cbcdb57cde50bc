# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs set` and `zfs inherit`."""

from __future__ import annotations

from typing import Any, Dict, List

from simnode.zfs import kernel, numbers
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.model import Bookmark, Dataset
from simnode.zfs.properties import AUTO, INHERIT, READONLY, Prop, is_user, native
from simnode.zfs.session import Selection, Session, assignments, checked, options
from simnode.zfs.values import Item, kind_of, name_of

_LESS = "size is less than current used or reserved space"
_MORE = "size is greater than available space"
_NO_SPACE = {"quota": _LESS, "refquota": _LESS, "reservation": _MORE, "refreservation": _MORE}
_OTHER = {"EROFS": "dataset is read-only", "E2BIG": "property value too long"}


def set_(session: Session, argv: List[str]) -> int:
    """`zfs set`: several properties on several datasets. A failure does not stop the rest."""
    _given, rest = options(argv, "u")
    if not rest:
        raise UsageError("missing arguments")
    pairs = [text for text in rest if "=" in text]
    names = [text for text in rest if "=" not in text]
    if not pairs:
        raise UsageError("missing property=value argument(s)")
    if not names:
        raise UsageError("missing dataset name(s)")
    if rest[: len(pairs)] != pairs:
        raise UsageError("invalid argument order")
    failure = 255 if session.version == "2.3" else 1
    try:
        props = assignments(pairs)
    except CliError as error:
        raise CliError(error.text, 255) from None
    status = 0
    for name in names:
        item = session.open(name, "fvs")
        if item is None:
            status = status or 1
        elif not _set(session, item, props):
            status = failure
    return status


def _set(session: Session, item: Item, props: Dict[str, str]) -> bool:
    failure = f"cannot set property for '{name_of(item)}'"
    try:
        stored = checked(props, kind_of(item), False, failure)
    except CliError as error:
        session.err.append(error.text + "\n")
        return False
    try:
        if isinstance(item, Dataset):
            return _set_dataset(session, item, stored, failure)
        return _set_snapshot(session, item, stored, failure)
    except ZfsError as refusal:
        session.fail(failure, refusal.text)
        return False


def _set_snapshot(session: Session, item: Item, props: Dict[str, Any], failure: str) -> bool:
    kernel.writable(session.storage, name_of(item))
    for name, value in props.items():
        if len(str(value).encode()) > kernel.MAX_USER_VALUE:
            session.fail(failure, _OTHER["E2BIG"])
            return False
        item.props[name] = value
    session.storage.next_txg()
    session.storage.emit("set", name_of(item))
    return True


def _set_dataset(session: Session, item: Dataset, props: Dict[str, Any], failure: str) -> bool:
    pool = session.pool(item)
    size = props.get("volsize")
    if size is not None and (size == 0 or size % item.volblocksize):
        nice = numbers.nice(item.volblocksize, "" if pool.version == "illumos" else "B")
        reason = f"must be a multiple of volume block size ({nice})" if size else "cannot be zero"
        session.fail(failure, f"'volsize' {reason}")
        return False
    added = False
    if size is not None and "refreservation" not in props:
        added = item.refreservation == pool.auto(item.volsize, item.volblocksize)
    if added or props.get("refreservation") == AUTO:
        added = True
        props["refreservation"] = pool.auto(size or item.volsize, item.volblocksize)
    old_volsize = item.volsize
    errors = kernel.set_props(session.storage, item, props)
    for name, _code in errors:
        code = errors[-1][1]
        reason = _NO_SPACE.get(name, "") if code == "ENOSPC" else _OTHER.get(code, "")
        session.fail(failure, reason or ZfsError(code).text)
    if errors and added and errors[-1][1] == "ENOSPC" and size is not None:
        kernel.set_props(session.storage, item, {"volsize": old_volsize})
    return not errors


def inherit(session: Session, argv: List[str]) -> int:
    """`zfs inherit`."""
    given, rest = options(argv, "rS")
    flags = {flag for flag, _value in given}
    if len(rest) < 2:
        raise UsageError(f"missing {'dataset' if rest else 'property'} argument")
    name, names = rest[0], rest[1:]
    received = "-S" in flags
    if not is_user(name):
        name = _inheritable(name, received)
    deep = "-r" in flags
    selection = Selection("fvs", deep, 1 << 30 if deep else None)
    items, status = selection.pick(session, names)
    for item in items:
        if isinstance(item, Bookmark):
            continue
        if not is_user(name) and kind_of(item) not in native(name).types:
            if not deep:
                status |= session.fail(
                    f"cannot inherit {name} for '{name_of(item)}'", "property doesn't apply to datasets of this type"
                )
            continue
        try:
            _inherit(session, item, name, received)
        except ZfsError as refusal:
            status = session.fail(f"cannot inherit {name} for '{name_of(item)}'", refusal.text)
    return status


def _inheritable(name: str, received: bool) -> str:
    try:
        prop: Prop = native(name)
    except KeyError:
        raise UsageError(f"invalid property '{name}'") from None
    if prop.mode == READONLY:
        raise CliError(f"{name} property is read-only")
    if prop.mode != INHERIT and not received:
        text = f"'{name}' property cannot be inherited"
        if prop.name in _NO_SPACE:
            text += f"\nuse 'zfs set {name}=none' to clear\nuse 'zfs inherit -S {name}' to revert to received value"
        raise CliError(text)
    if received and prop.name in ("volsize", "version"):
        raise CliError(f"'{name}' property cannot be reverted to a received value")
    return prop.name


def _inherit(session: Session, item: Item, name: str, received: bool) -> None:
    kernel.writable(session.storage, name_of(item))
    if name in _NO_SPACE and isinstance(item, Dataset):
        kernel.set_props(session.storage, item, {name: 0}, quiet=True)
    if name in item.received and not received:
        item.props[name] = None
    else:
        item.props.pop(name, None)
    session.storage.next_txg()
    session.storage.emit("inherit", name_of(item))
