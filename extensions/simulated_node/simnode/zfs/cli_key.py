# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs load-key`, `zfs unload-key` and `zfs change-key`, of one dataset at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Tuple

from simnode.zfs import crypt, kernel
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.model import Dataset
from simnode.zfs.session import Session, assignments, options

_FILE = "file://"


def load_key(session: Session, argv: List[str]) -> int:
    """`zfs load-key [-n] [-L KEYLOCATION] DATASET`."""
    given, names = options(argv, "nL:")
    dataset = _only(session, names)
    if dataset is None:
        return 1
    flags = dict(given)
    problem = _not_a_root(session, dataset, "loaded")
    if not problem and "-n" not in flags and dataset.crypt.get("loaded", True):
        problem = f"Key already loaded for '{dataset.name}'."
    if not problem:
        where = flags.get("-L", str(dataset.props.get("keylocation", "prompt")))
        key, problem = _given_key(session, where)
        if not problem and key != dataset.crypt.get("key", ""):
            problem = f"Incorrect key provided for '{dataset.name}'."
    if problem:
        return session.fail("Key load error", problem)
    if "-n" not in flags:
        _change(session, dataset, {"loaded": True})
    return 0


def unload_key(session: Session, argv: List[str]) -> int:
    """`zfs unload-key DATASET`."""
    dataset = _only(session, options(argv, "")[1])
    if dataset is None:
        return 1
    problem = _not_a_root(session, dataset, "unloaded")
    if not problem and not dataset.crypt.get("loaded", True):
        problem = f"Key already unloaded for '{dataset.name}'."
    if problem:
        return session.fail("Key unload error", problem)
    _change(session, dataset, {"loaded": False})
    return 0


def change_key(session: Session, argv: List[str]) -> int:
    """`zfs change-key [-o PROPERTY=VALUE] DATASET` or `zfs change-key -i DATASET`."""
    given, names = options(argv, "io:")
    dataset = _only(session, names)
    if dataset is None:
        return 1
    pool, failure = session.pool(dataset), "Key change error"
    if not dataset.cryptroot:
        return session.fail(failure, "Dataset not encrypted.")
    if not crypt.is_loaded(pool, dataset):
        return session.fail(failure, "Key must be loaded.")
    if ("-i", "") in given:
        parent = dataset.parent
        if dataset.cryptroot != dataset.guid:
            return session.fail(failure, "Key inheritting can only be performed on encryption roots.")
        if parent is None or not parent.cryptroot:
            return session.fail(failure, "Parent must be encrypted.")
        if not crypt.is_loaded(pool, parent):
            return session.fail(failure, "Parent key must be loaded.")
        root = crypt.root_of(pool, parent)
        for below in (one for one in dataset.walk() if one.cryptroot == dataset.guid and root is not None):
            below.cryptroot = parent.cryptroot
            below.crypt.update({"key": root.crypt["key"] if root is not None else ""})
        for name in ("keylocation", "keyformat", "encryption"):
            dataset.props.pop(name, None)
        _change(session, dataset, {})
        return 0
    props = assignments([value for flag, value in given if flag == "-o"])
    where = props.get("keylocation", str(dataset.props.get("keylocation", "prompt")))
    key, problem = _given_key(session, where)
    if problem:
        return session.fail(failure, problem)
    root_guid = dataset.cryptroot
    dataset.props.update({"keylocation": where, **props})
    for below in (one for one in dataset.walk() if one.cryptroot in (root_guid, dataset.guid)):
        below.cryptroot, below.crypt["key"] = dataset.guid, key
    _change(session, dataset, {"loaded": True})
    return 0


def key_of_new(session: Session, props: Dict[str, str]) -> str:
    """Return the user's key of a dataset that is created. Without any, as a test may leave it: ""."""
    return _given_key(session, props.get("keylocation", "prompt"))[0]


def _only(session: Session, names: List[str]) -> Optional[Dataset]:
    if len(names) != 1:
        raise UsageError("Too many arguments" if names else "Missing dataset argument(s)")
    return session.dataset(names[0])


def _not_a_root(session: Session, dataset: Dataset, verb: str) -> str:
    root = crypt.root_of(session.pool(dataset), dataset)
    if root is None:
        return f"'{dataset.name}' is not encrypted."
    if root is not dataset:
        return f"Keys must be {verb} for encryption root of '{dataset.name}' ({root.name})."
    return ""


def _given_key(session: Session, where: str) -> Tuple[str, str]:
    """Return the key at this location, and why there is none."""
    if not where.startswith(_FILE):
        return session.stdin.partition("\n")[0], ""
    try:
        return Path(where[len(_FILE) :]).read_bytes().hex(), ""
    except OSError as exc:
        return "", f"Failed to open key material file: {exc.strerror}"


def _change(session: Session, dataset: Dataset, values: Dict[str, bool]) -> None:
    try:
        kernel.writable(session.storage, dataset.name)
    except ZfsError as refusal:
        raise CliError(refusal.text) from None
    dataset.crypt.update(values)
    session.storage.next_txg()
