# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Which VMs or disks a name means."""

from __future__ import annotations

import typing as t

from . import identity


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
    """The objects with this uuid, else those with this alias or with a uuid that begins with it."""
    every, lower = list(things), wanted.lower()
    begins = prefixes and identity.begins_uuid(lower)
    return [thing for thing in every if wanted and thing.uuid == lower] or [
        thing for thing in every if wanted and (thing.alias == wanted or (begins and thing.uuid.startswith(lower)))
    ]
