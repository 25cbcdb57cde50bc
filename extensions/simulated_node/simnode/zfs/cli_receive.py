# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`zfs receive`: datasets, their next snapshots, and what is kept of a stream that was cut."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional

from simnode.zfs import kernel, stream
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.kernel.properties import SPECIAL
from simnode.zfs.model import VOLUME, Dataset, Snapshot
from simnode.zfs.session import Session, assignments, checked, name_problem, options

_ONCE = ("volsize", "volblocksize")


class _Wanted:
    """What the words of a command ask for."""

    def __init__(self, argv: List[str]) -> None:
        given, names = options(argv, "o:x:uvFsA")
        self.flags = {flag for flag, _value in given}
        self.own = assignments([value for flag, value in given if flag == "-o"])
        self.without = {value for flag, value in given if flag == "-x"}
        if len(names) != 1:
            raise UsageError("too many arguments" if names else "missing snapshot argument")
        self.name, _at, self.short = names[0].partition("@")

    def of(self, header: Dict[str, Any]) -> _Wanted:
        """The same for a part of a package (`zfs send -R`), which may bring a dataset below."""
        wanted = copy.copy(self)
        wanted.name += header.get("below", "")
        return wanted


def receive(session: Session, argv: List[str], stdin: str) -> int:
    """`zfs receive [-Fsuv] [-o PROPERTY=VALUE] [-x PROPERTY] DATASET[@SNAPSHOT]` or `zfs receive -A DATASET`.

    Properties of the stream get the source `received`, those of -o `local`.
    """
    wanted = _Wanted(argv)
    if "-A" in wanted.flags:
        return _abort(session, wanted.name)
    if not stdin:
        raise CliError("cannot receive: failed to read from stream")
    try:
        parts = stream.read(stdin)
    except ValueError:
        raise CliError("cannot receive: invalid stream (bad magic number)") from None
    for part in parts:
        _receive(session, wanted.of(part.header), part)
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


def _receive(session: Session, wanted: _Wanted, part: stream.Part) -> None:
    header, storage = part.header, session.storage
    what = f"cannot receive {_stream_of(header)} stream"
    if name_problem(wanted.name, "fv"):
        raise CliError(f"{what}: invalid name")
    own = _own(wanted, header, what)
    short = wanted.short or header["snapshot"]
    target = storage.pool_of(wanted.name).datasets.get(wanted.name)
    if target is not None and header["fromguid"] and _has(target, header["toguid"], short):
        return  # zfs reads the stream to its end, too, and says nothing
    target = _begun(session, wanted, part, target, what)
    _set(session, wanted, target, header, own)
    roomy = kernel.take_in(storage, target, part.pieces)
    if part.whole and roomy:
        kernel.finish_receive(storage, target, part, short)
        _reserve(session, wanted, target, header, own)
        return
    why = _kept(target) if roomy else f"destination {target.name} space quota exceeded."
    if "-s" not in wanted.flags:
        kernel.abort_receive(storage, target)
        why = "incomplete stream" if roomy else why
    raise CliError(f"{what}: {why}")


def _has(target: Dataset, guid: int, short: str) -> bool:
    return any((snap.guid, snap.name) == (guid, short) for snap in target.snapshots)


def _stream_of(header: Dict[str, Any]) -> str:
    if "resume" in header:
        return "resume"
    return "incremental" if header["fromguid"] else "new filesystem"


def _kept(target: Dataset) -> str:
    assert target.partial is not None
    return (
        "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n"
        "A resuming stream can be generated on the sending system by running:\n"
        f"    zfs send -t {stream.token(target.partial)}"
    )


def _own(wanted: _Wanted, header: Dict[str, Any], what: str) -> Dict[str, Any]:
    """The properties of -o as they are stored."""
    for name in _ONCE:
        if name in wanted.own:
            raise CliError(f"cannot receive: invalid property '{name}'")
    own = {name: value for name, value in wanted.own.items() if name != "origin"}
    return checked(own, "v" if header["kind"] == VOLUME else "f", False, what)


def _begun(session: Session, wanted: _Wanted, part: stream.Part, target: Optional[Dataset], what: str) -> Dataset:
    """The dataset that takes the pieces of this part; CliError if none can."""
    header, name, storage = part.header, wanted.name, session.storage
    short = wanted.short or header["snapshot"]
    if "resume" in header:
        return _resumed(target, header, what, name)
    if not header["fromguid"] and target is not None:
        if target.partial is not None:
            raise CliError(f'{what}: destination {name} contains partially-complete state from "zfs receive -s".')
        raise CliError(f"{what}: destination '{name}' exists\nmust specify -F to overwrite it")
    if target is None and header["fromguid"] and not header["clone"]:
        raise CliError(f"{what}: destination '{name}' does not exist")
    try:
        if target is None:
            return kernel.begin_new(storage, name, header, _origin(session, wanted, header))
        kernel.begin_receive(storage, target, header, short)
        return target
    except ZfsError as refusal:
        raise CliError(_refusal(refusal, name, short, what)) from None


def _origin(session: Session, wanted: _Wanted, header: Dict[str, Any]) -> Optional[Snapshot]:
    if not header["fromguid"]:
        return None
    for dataset in session.storage.pool_of(wanted.name).datasets.values():
        for snap in dataset.snapshots:
            if snap.guid == header["fromguid"]:
                return snap
    short = wanted.short or header["snapshot"]
    raise CliError(f"cannot receive: local origin for clone {wanted.name}@{short} does not exist")


def _resumed(target: Optional[Dataset], header: Dict[str, Any], what: str, name: str) -> Dataset:
    if target is None:
        raise CliError(f"{what}: destination '{name}' does not exist")
    state = target.partial
    if state is None or (state["toguid"], len(state["pieces"])) != (header["toguid"], header["resume"]):
        raise CliError(f"{what}: it does not go on where {name} has stopped")
    return target


def _refusal(refusal: ZfsError, name: str, short: str, what: str) -> str:
    if refusal.code == "EEXIST":
        return f"cannot restore to {name}@{short}: destination already exists"
    if refusal.code == "ENOENT":
        above = name.rpartition("/")[0]
        return f"cannot open '{above}': dataset does not exist\n{what}: unable to restore to destination"
    texts = {
        "EBUSY": f'destination {name} contains partially-complete state from "zfs receive -s".',
        "ENODEV": f"most recent snapshot of {name} does not\nmatch incremental source",
        "ETXTBSY": f"destination {name} has been modified\nsince most recent snapshot",
    }
    return f"{what}: {texts.get(refusal.code, refusal.text)}"


def _set(session: Session, wanted: _Wanted, target: Dataset, header: Dict[str, Any], own: Dict[str, Any]) -> None:
    sent = {name: value for name, value in header["props"].items() if name not in wanted.without | {"encryption"}}
    target.received.update({name: value for name, value in sent.items() if name not in SPECIAL})
    kernel.set_props(session.storage, target, {name: value for name, value in own.items() if name not in SPECIAL})


def _reserve(session: Session, wanted: _Wanted, target: Dataset, header: Dict[str, Any], own: Dict[str, Any]) -> None:
    """What reserves space comes last. A failure is printed, but the command succeeds."""
    sent = {name: value for name, value in header["props"].items() if name not in wanted.without | {"volsize"}}
    for name, value in {**sent, **own}.items():
        if name in SPECIAL and kernel.set_props(session.storage, target, {name: value}):
            session.fail(f"cannot receive {name} property on {target.name}", "size is greater than available space")
