# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Records of VMs that come to this host, in files that only root can read: they may hold secrets of the VMs."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ..model.errors import FlexdiskError
from . import lock

_FOLDER = "/var/lib/flexdisk/moves"
_OF_A_NODE = "moves"
_NEW = ".new"


def _folder() -> str:
    """The directory: one for the host, or one beside the locks of a simulated node."""
    place = lock.place()
    return os.path.join(place, _OF_A_NODE) if os.path.basename(place) == lock.OF_A_NODE else _FOLDER


def _path(uuid: str) -> str:
    return os.path.join(_folder(), f"{uuid}.json")


def save(uuid: str, record: t.Mapping[str, t.Any]) -> None:
    """Write a record, whole or not at all."""
    try:
        _save(uuid, record)
    except OSError as exc:
        raise FlexdiskError("NotPermitted", f"the record of VM {uuid} cannot be written: {exc}") from exc


def _save(uuid: str, record: t.Mapping[str, t.Any]) -> None:
    os.makedirs(_folder(), mode=0o700, exist_ok=True)
    os.chmod(_folder(), 0o700)
    new = _path(uuid) + _NEW
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, _path(uuid))
    folder = os.open(_folder(), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def differs(uuid: str, record: t.Mapping[str, t.Any]) -> bool:
    """Whether there is another record of the VM than this one, or none."""
    return not os.path.exists(_path(uuid)) or load(uuid) != json.loads(json.dumps(record))


def load(uuid: str) -> t.Any:
    """A record. Raises FlexdiskError ResourceNotFound if there is none."""
    try:
        with open(_path(uuid), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError as exc:
        words = f"there is no record of VM {uuid} ({_path(uuid)}), which was to come here"
        raise FlexdiskError("ResourceNotFound", words) from exc
    except (OSError, ValueError) as exc:
        raise FlexdiskError("NotPermitted", f"the record of VM {uuid} cannot be read: {_path(uuid)}") from exc


def remove(uuid: str) -> None:
    """Remove a record, if there is one."""
    for path in (_path(uuid), _path(uuid) + _NEW):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
