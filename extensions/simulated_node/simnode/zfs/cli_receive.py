# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs receive`: datasets, their next snapshots, and what is kept of a stream that was cut."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional

from simnode.zfs import crypt, kernel, stream
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.kernel.properties import SPECIAL
from simnode.zfs.model import VOLUME, Dataset, Snapshot
from simnode.zfs.session import Session, assignments, checked, name_problem, options

_ONCE = ("volsize", "volblocksize")


class _Request:
    """The parsed arguments of a command."""

    def __init__(self, argv: List[str]) -> None:
        given, names = options(argv, "o:x:uvFsA")
        self.flags = {flag for flag, _value in given}
        self.assigned = assignments([value for flag, value in given if flag == "-o"])
        self.without = {value for flag, value in given if flag == "-x"}
        if len(names) != 1:
            raise UsageError("too many arguments" if names else "missing snapshot argument")
        self.name, _at, self.short = names[0].partition("@")

    def of(self, header: Dict[str, Any]) -> _Request:
        """Return the request for a part of a package (`zfs send -R`), which may have a dataset below."""
        request = copy.copy(self)
        request.name += header.get("below", "")
        return request


def receive(session: Session, argv: List[str], stdin: str) -> int:
    """`zfs receive [-Fsuv] [-o PROPERTY=VALUE] [-x PROPERTY] DATASET[@SNAPSHOT]` or `zfs receive -A DATASET`.

    Properties of the stream get the source `received`, those of -o `local`.
    """
    request = _Request(argv)
    if "-A" in request.flags:
        return _abort(session, request.name)
    if not stdin:
        raise CliError("cannot receive: failed to read from stream")
    try:
        parts = stream.read(stdin)
    except ValueError:
        raise CliError("cannot receive: invalid stream (bad magic number)") from None
    for part in parts:
        _receive(session, request.of(part.header), part)
    return 0


def _abort(session: Session, name: str) -> int:
    target = session.dataset(name)
    if target is None:
        return 1
    if target.partial is None:
        session.err.append(f"'{name}' does not have any resumable receive state to abort\n")
        return 1
    kernel.abort_receive(session.storage, target)
    return 0


def _receive(session: Session, request: _Request, part: stream.Part) -> None:
    header, storage = part.header, session.storage
    failure = f"cannot receive {_stream_of(header)} stream"
    if name_problem(request.name, "fv"):
        raise CliError(f"{failure}: invalid name")
    properties = _checked_properties(request, header, failure)
    short = request.short or header["snapshot"]
    target = storage.pool_of(request.name).datasets.get(request.name)
    if target is not None and header["fromguid"] and _has_snapshot(target, header["toguid"], short):
        return  # zfs, too, reads the stream to its end without a message
    target = _begin(session, request, part, target, failure)
    _set_properties(session, request, target, header, properties)
    fits = kernel.take_in(storage, target, part.pieces)
    if part.complete and fits:
        kernel.finish_receive(storage, target, part, short)
        _set_reservations(session, request, target, header, properties)
        return
    reason = _resume_message(target) if fits else f"destination {target.name} space quota exceeded."
    if "-s" not in request.flags:
        kernel.abort_receive(storage, target)
        reason = "incomplete stream" if fits else reason
    raise CliError(f"{failure}: {reason}")


def _has_snapshot(target: Dataset, guid: int, short: str) -> bool:
    return any((snap.guid, snap.name) == (guid, short) for snap in target.snapshots)


def _stream_of(header: Dict[str, Any]) -> str:
    if "resume" in header:
        return "resume"
    return "incremental" if header["fromguid"] else "new filesystem"


def _resume_message(target: Dataset) -> str:
    assert target.partial is not None
    return (
        "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n"
        "A resuming stream can be generated on the sending system by running:\n"
        f"    zfs send -t {stream.token(target.partial)}"
    )


def _checked_properties(request: _Request, header: Dict[str, Any], failure: str) -> Dict[str, Any]:
    """Return the properties of -o as they are stored."""
    for name in _ONCE:
        if name in request.assigned:
            raise CliError(f"cannot receive: invalid property '{name}'")
    properties = {name: value for name, value in request.assigned.items() if name != "origin"}
    return checked(properties, "v" if header["kind"] == VOLUME else "f", False, failure)


def _begin(session: Session, request: _Request, part: stream.Part, target: Optional[Dataset], failure: str) -> Dataset:
    """Return the dataset that receives the pieces of this part. Raises CliError if none can."""
    header, name, storage = part.header, request.name, session.storage
    short = request.short or header["snapshot"]
    if "resume" in header:
        return _resumed(target, header, failure, name)
    if not header["fromguid"] and target is not None:
        if target.partial is not None:
            raise CliError(f'{failure}: destination {name} contains partially-complete state from "zfs receive -s".')
        raise CliError(f"{failure}: destination '{name}' exists\nmust specify -F to overwrite it")
    if target is None and header["fromguid"] and not header["clone"]:
        raise CliError(f"{failure}: destination '{name}' does not exist")
    _check_keys(session, request, target, header, failure)
    try:
        if target is None:
            return kernel.begin_new(storage, name, header, _origin(session, request, header))
        kernel.begin_receive(storage, target, header, short)
        return target
    except ZfsError as refusal:
        raise CliError(_refusal(refusal, name, short, failure)) from None


def _check_keys(
    session: Session, request: _Request, target: Optional[Dataset], header: Dict[str, Any], failure: str
) -> None:
    """Raise CliError for a stream that does not fit the encryption of its target, or of what is above a new one."""
    raw, pool = header.get("raw"), session.storage.pool_of(request.name)
    if raw and not pool.encrypts:
        raise CliError(f"{failure}: pool must be upgraded to receive this stream.")
    if target is None:
        above = pool.datasets.get(request.name.rpartition("/")[0])
        if not raw and above is not None and above.cryptroot and not crypt.is_loaded(pool, above):
            raise CliError(f"{failure}: inherited key must be loaded")
    elif not raw:
        if target.cryptroot and not crypt.can_read(pool, target):
            raise CliError(f"{failure}: inherited key must be loaded")
    elif not target.cryptroot:
        raise CliError(f"{failure}: cannot perform raw receive on top of existing unencrypted dataset")
    elif crypt.master_of(target) != raw["master"]:
        raise CliError(f"{failure}: encryption key does not match existing key")
    elif target.crypt.get("mixed"):
        raise CliError(f"{failure}: IV set guid mismatch. See the 'zfs receive' man page section")


def _origin(session: Session, request: _Request, header: Dict[str, Any]) -> Optional[Snapshot]:
    if not header["fromguid"]:
        return None
    for dataset in session.storage.pool_of(request.name).datasets.values():
        for snap in dataset.snapshots:
            if snap.guid == header["fromguid"]:
                return snap
    short = request.short or header["snapshot"]
    raise CliError(f"cannot receive: local origin for clone {request.name}@{short} does not exist")


def _resumed(target: Optional[Dataset], header: Dict[str, Any], failure: str, name: str) -> Dataset:
    if target is None:
        raise CliError(f"{failure}: destination '{name}' does not exist")
    state = target.partial
    if state is None or (state["toguid"], len(state["pieces"])) != (header["toguid"], header["resume"]):
        raise CliError(f"{failure}: it does not go on where {name} has stopped")
    return target


def _refusal(refusal: ZfsError, name: str, short: str, failure: str) -> str:
    if refusal.code == "EEXIST":
        return f"cannot restore to {name}@{short}: destination already exists"
    if refusal.code == "ENOENT":
        above = name.rpartition("/")[0]
        return f"cannot open '{above}': dataset does not exist\n{failure}: unable to restore to destination"
    texts = {
        "EBUSY": f'destination {name} contains partially-complete state from "zfs receive -s".',
        "ENODEV": f"most recent snapshot of {name} does not\nmatch incremental source",
        "ETXTBSY": f"destination {name} has been modified\nsince most recent snapshot",
    }
    return f"{failure}: {texts.get(refusal.code, refusal.text)}"


def _set_properties(
    session: Session, request: _Request, target: Dataset, header: Dict[str, Any], properties: Dict[str, Any]
) -> None:
    sent = {name: value for name, value in header["props"].items() if name not in request.without | {"encryption"}}
    target.received.update({name: value for name, value in sent.items() if name not in SPECIAL})
    kernel.set_props(
        session.storage, target, {name: value for name, value in properties.items() if name not in SPECIAL}
    )


def _set_reservations(
    session: Session, request: _Request, target: Dataset, header: Dict[str, Any], properties: Dict[str, Any]
) -> None:
    """Set the properties that reserve space, last. A failure is printed, but the command succeeds."""
    sent = {name: value for name, value in header["props"].items() if name not in request.without | {"volsize"}}
    for name, value in {**sent, **properties}.items():
        if name in SPECIAL and kernel.set_props(session.storage, target, {name: value}):
            session.fail(f"cannot receive {name} property on {target.name}", "size is greater than available space")
