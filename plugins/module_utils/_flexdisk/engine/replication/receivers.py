# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends receivers of streams on this host, which wait forever if their sender has lost power."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ...model.command import Runner
from ..host import lock

_TRIES, _PAUSE = 20, 0.5


def pid_file(uuid: str) -> str:
    """Return the path of the file in which the receiver of a disk writes its process id."""
    return os.path.join(lock.place(), f"receive-{uuid}")


def end_receiver(runner: Runner, uuid: str) -> None:
    """End the receiver of a disk, and wait for its end."""
    path = pid_file(uuid)
    try:
        with open(path, encoding="ascii") as file:
            process = int(file.read(32))
    except FileNotFoundError:
        return
    except ValueError:
        process = 0
    for number in range(_TRIES):
        if process <= 1 or not _is_receiver(runner, process, uuid):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM if number < _TRIES // 2 else signal.SIGKILL)
        time.sleep(_PAUSE)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _is_receiver(runner: Runner, process: int, uuid: str) -> bool:
    """Return whether a process is a receiver of the disk. illumos shows only 80 characters of the command line."""
    arguments = runner(("ps", "-o", "args=", "-p", str(process))).stdout
    return " receive " in arguments and uuid[:18] in arguments
