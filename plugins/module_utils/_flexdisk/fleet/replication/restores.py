# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host on which a disk is restored tells the host that has the replica. The reader checks every value."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass

from ...model.errors import FlexdiskError
from ...rules import identity
from .transfers import TOKEN

_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Target:
    """What the host on which a disk is restored has of it."""

    # The pool where the disk will lie, and its guid.
    pool: str
    pool_guid: int
    # The disk that has the new name, for people; "" for none. existing: what it was made from, as it notes it.
    exists: str = ""
    existing: str = ""
    # Of a restore in place: the disk has got contents already, and this one is what it had before. For what, as noted.
    replaced: str = ""
    # Of a restore in place: the exchange of the volumes was interrupted.
    begun: bool = False
    # Its creation was interrupted.
    unfinished: bool = False
    # Something has come of a snapshot already. partial: of which one, as it is noted.
    is_partial: bool = False
    partial: str = ""
    # The stream goes on with it, "" for none.
    token: str = ""
    # The guids of snapshots that have come wholly.
    guids: t.Tuple[int, ...] = ()


def as_result(target: Target) -> _Dict:
    """Return it as a result."""
    return asdict(target)


def read_target(given: t.Mapping[str, t.Any]) -> Target:
    """Return it from a result. Raises FlexdiskError InvalidArgument for anything that is none."""
    try:
        token = str(given["token"])
        if not identity.is_pool(given["pool"]) or (token and not TOKEN.fullmatch(token)):
            raise ValueError(str(given)[:200])
        return Target(
            pool=given["pool"],
            pool_guid=int(given["pool_guid"]),
            exists=str(given["exists"])[:500],
            existing=str(given["existing"])[:500],
            replaced=str(given["replaced"])[:500],
            begun=bool(given["begun"]),
            unfinished=bool(given["unfinished"]),
            is_partial=bool(given["is_partial"]),
            partial=str(given["partial"])[:500],
            token=token,
            guids=tuple(int(guid) for guid in given["guids"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"peer is no result of the step look: {exc!r}") from exc
