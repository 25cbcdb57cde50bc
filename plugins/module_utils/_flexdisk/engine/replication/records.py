# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of VMs of other hosts, in files that only root can read: they may hold secrets of the VMs."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ...hypervisor import whole_files
from ...model.errors import FlexdiskError
from ..host import lock

_FOLDER = "/var/lib/flexdisk"
MOVES = "moves"  # of VMs that come to this host
FAILOVER = "failover"  # of VMs that this host can take over
_SUFFIX = ".json"


def _folder(kind: str) -> str:
    """Return the directory of records of a kind. A simulated node has its own, beside its locks."""
    place = lock.place()
    return os.path.join(place if os.path.basename(place) == lock.NODE_FOLDER else _FOLDER, kind)


def _path(uuid: str, kind: str) -> str:
    return os.path.join(_folder(kind), f"{uuid}{_SUFFIX}")


def known(kind: str) -> t.List[str]:
    """Return the UUIDs of the VMs with a record."""
    try:
        return sorted(name[: -len(_SUFFIX)] for name in os.listdir(_folder(kind)) if name.endswith(_SUFFIX))
    except FileNotFoundError:
        return []


def save(uuid: str, record: t.Mapping[str, t.Any], kind: str = MOVES) -> None:
    """Write a record atomically."""
    try:
        _save(_path(uuid, kind), _folder(kind), record)
    except OSError as exc:
        raise FlexdiskError("NotPermitted", f"the record of VM {uuid} cannot be written: {exc}") from exc


def _save(path: str, place: str, record: t.Mapping[str, t.Any]) -> None:
    os.makedirs(place, mode=0o700, exist_ok=True)
    os.chmod(place, 0o700)
    whole_files.replace(path, json.dumps(record).encode())


def absent(uuid: str, kind: str = MOVES) -> bool:
    """Return whether there is no record of the VM."""
    return not os.path.exists(_path(uuid, kind))


def differs(uuid: str, record: t.Mapping[str, t.Any], kind: str = MOVES) -> bool:
    """Return whether the stored record of the VM is another one, or missing."""
    return absent(uuid, kind) or load(uuid, kind) != json.loads(json.dumps(record))


def load(uuid: str, kind: str = MOVES) -> t.Any:
    """Return a record. Raises FlexdiskError ResourceNotFound if there is none."""
    try:
        with open(_path(uuid, kind), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError as exc:
        text = f"there is no record of VM {uuid} ({_path(uuid, kind)}), which was to come here"
        raise FlexdiskError("ResourceNotFound", text) from exc
    except (OSError, ValueError) as exc:
        raise FlexdiskError("NotPermitted", f"the record of VM {uuid} cannot be read: {_path(uuid, kind)}") from exc


def remove(uuid: str, kind: str = MOVES) -> bool:
    """Remove a record. Return whether there was one."""
    removed = False
    for path in (_path(uuid, kind), _path(uuid, kind) + whole_files.NEW):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            removed = True
    return removed
