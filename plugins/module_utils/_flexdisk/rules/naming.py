# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Which VMs or disks a name means."""

from __future__ import annotations

import typing as t

SHORTEST_PREFIX = 4


class Names(t.NamedTuple):
    """What a VM or a disk can be called."""

    uuid: str
    alias: str


class _Named(t.Protocol):
    @property
    def uuid(self) -> str: ...

    @property
    def alias(self) -> str: ...


_N = t.TypeVar("_N", bound=_Named)


def fitting(wanted: str, things: t.Iterable[_N], prefixes: bool = True) -> t.List[_N]:
    """Those with this uuid, else those with this alias, else those whose uuid begins so."""
    every, lower = list(things), wanted.lower()
    long_enough = prefixes and len(wanted) >= SHORTEST_PREFIX
    return (
        [thing for thing in every if wanted and thing.uuid == lower]
        or [thing for thing in every if wanted and thing.alias == wanted]
        or [thing for thing in every if long_enough and thing.uuid.startswith(lower)]
    )
