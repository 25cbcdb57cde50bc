# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the state of a VM while another run, perhaps one without a controller, may be changing it."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ..host import lock
from .module_run import Call, locked

_Read = t.TypeVar("_Read")
_CERTAIN = ("Ambiguous", "InvalidArgument")


def read_settled(
    call: Call,
    params: t.Mapping[str, t.Any],
    task: str,
    read: t.Callable[[], _Read],
    is_empty: t.Callable[[_Read], bool],
) -> _Read:
    """Return the result of read() from before or after a change by another run, never from the middle of it.

    A run that does not disturb is not waited for, because a host can be busy with another VM for hours. If read()
    fails while the host is being changed, it is repeated after the change. If it finds nothing (is_empty), it is
    repeated at once, because an entry that is written before a VM ends exists by then. Raises FlexdiskError Locked,
    which names the other run, if that does not end within lock_timeout.
    """
    busy = bool(lock.busy(None))
    try:
        first_result = read()
        return read() if busy and is_empty(first_result) else first_result
    except FlexdiskError as exc:
        if exc.code in _CERTAIN or not (busy or lock.busy(None)):
            raise
    with locked(call.runner, None, params, task, lambda _line: None):
        return read()
