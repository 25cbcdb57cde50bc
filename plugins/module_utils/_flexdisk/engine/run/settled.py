# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what a host has of a VM while another run, perhaps one without a controller, may be changing that."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ..host import lock
from .module_run import Call, locked

_Read = t.TypeVar("_Read")
_CERTAIN = ("Ambiguous", "InvalidArgument")


def read_settled(
    call: Call, params: t.Mapping[str, t.Any], task: str, read: t.Callable[[], _Read], empty: t.Callable[[_Read], bool]
) -> _Read:
    """Return what read() returns, as it is before or after a change of another run, never in its midst.

    Nobody waits for a run that does not disturb: a host can be busy with another VM for hours. If read() fails while
    the host is being changed, it is tried again when the change has ended. If it finds nothing then (empty), it is
    tried at once: what was written down before the VM ended is there by now. Raises FlexdiskError Locked, which names
    the other run, if that does not end within lock_timeout.
    """
    busy = bool(lock.busy(None))
    try:
        seen = read()
        return read() if busy and empty(seen) else seen
    except FlexdiskError as exc:
        if exc.code in _CERTAIN or not (busy or lock.busy(None)):
            raise
    with locked(call.runner, None, params, task, lambda _line: None):
        return read()
