# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Receivers of streams as processes of this host. After its sender lost power, one would wait for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ...model.command import Runner
from ..host import lock

_TRIES, _PAUSE = 20, 0.5


def note_of(uuid: str) -> str:
    """The file in which the receiver of a disk notes its process."""
    return os.path.join(lock.place(), f"receive-{uuid}")


def end_receiver(runner: Runner, uuid: str) -> None:
    """End what receives for a disk, and wait until it has ended."""
    note = note_of(uuid)
    try:
        with open(note, encoding="ascii") as file:
            process = int(file.read(32))
    except FileNotFoundError:
        return
    except ValueError:
        process = 0
    for number in range(_TRIES):
        if process <= 1 or not _receives(runner, process, uuid):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM if number < _TRIES // 2 else signal.SIGKILL)
        time.sleep(_PAUSE)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(note)


def _receives(runner: Runner, process: int, uuid: str) -> bool:
    """Whether a process is a receiver of the disk. illumos tells 80 characters, which is up to a part of the uuid."""
    said = runner(("ps", "-o", "args=", "-p", str(process))).stdout
    return " receive " in said and uuid[:18] in said
