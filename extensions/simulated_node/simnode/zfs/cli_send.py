# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs send` and `zfs receive` of whole volumes and file systems; the stream is one line of text."""

from __future__ import annotations

import json
from typing import Any, Dict, List

from simnode.zfs import kernel
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.kernel.properties import SPECIAL
from simnode.zfs.model import VOLUME, Snapshot
from simnode.zfs.session import Session, assignments, checked, name_problem, options

_MAGIC = "simnode-stream"


def send(session: Session, argv: List[str]) -> int:
    """`zfs send [-p] SNAPSHOT`: the snapshot's contents, with -p also the dataset's own properties."""
    given, names = options(argv, "pvnPLec")
    if len(names) != 1:
        raise UsageError("too many arguments" if names else "missing snapshot argument")
    snap = session.open(names[0], "s")
    if not isinstance(snap, Snapshot):
        return 1
    dataset = snap.dataset
    props = {name: value for name, value in dataset.props.items() if value is not None}
    stream: Dict[str, Any] = {
        "magic": _MAGIC,
        "kind": dataset.kind,
        "block": dataset.volblocksize,
        "volsize": snap.volsize,
        "guid": snap.guid,
        "snapshot": snap.name,
        "extents": [extent[:3] for extent in snap.extents if extent[0] >= 0],
        "props": {**dataset.received, **props} if any(flag == "-p" for flag, _value in given) else {},
        "snapprops": snap.props if any(flag == "-p" for flag, _value in given) else {},
    }
    session.out.append(json.dumps(stream) + "\n")
    return 0


def receive(session: Session, argv: List[str], stdin: str) -> int:
    """`zfs receive DATASET[@SNAP]`: properties of the stream get the source `received`, those of -o `local`."""
    given, names = options(argv, "o:uvF")
    own = assignments([value for flag, value in given if flag == "-o"])
    if len(names) != 1:
        raise UsageError("too many arguments" if names else "missing snapshot argument")
    try:
        stream = json.loads(stdin)
        whole = stream["magic"] == _MAGIC
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise CliError("cannot receive: invalid stream (bad magic number)")
    name, _at, short = names[0].partition("@")
    what = "cannot receive new filesystem stream"
    if name_problem(name, "fv"):
        raise CliError(f"{what}: invalid name")
    if name in session.storage.pool_of(name).datasets:
        raise CliError(f"{what}: destination '{name}' exists\nmust specify -F to overwrite it")
    try:
        stored = checked(own, "v" if stream["kind"] == VOLUME else "f", False, what)
        _receive(session, name, short or stream["snapshot"], stream)
        kernel.set_props(session.storage, session.storage.pool_of(name).datasets[name], stored)
    except ZfsError as refusal:
        raise CliError(f"{what}: {refusal.text}") from None
    return 0


def _receive(session: Session, name: str, short: str, stream: Dict[str, Any]) -> None:
    storage = session.storage
    props = {key: value for key, value in stream["props"].items() if key not in SPECIAL and key != "encryption"}
    reserved = {key: value for key, value in stream["props"].items() if key in SPECIAL and key != "volsize"}
    size = {"volsize": stream["volsize"]} if stream["kind"] == VOLUME else {}
    dataset = kernel.create(storage, name, stream["kind"], size, stream["block"])
    for start, end, content in stream["extents"]:
        kernel.write(storage, dataset, start, end, content)
    dataset.received.update(props)
    kernel.set_props(storage, dataset, reserved)
    kernel.take_snapshots(storage, [f"{name}@{short}"], {})
    snap = dataset.snapshots[-1]
    snap.guid = stream["guid"]
    snap.received.update(stream["snapprops"])
