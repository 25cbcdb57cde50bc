# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long to wait for something on a machine that may be busy: by work done, not by the clock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import boot

IDLE = 0.3  # of a processor: a machine that only waits, with guests that only wait, wants less
CPUS = 2
PACE_SECONDS = 1.0
LAST_WORDS_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Processor seconds: used, and those that others on the machine have kept them waiting for."""

    used: float
    delayed: float


class Patience:
    """Ends when those waited for have been idle for so many seconds, or have worked without end.

    Who waits for a processor is not idle, and only what was used counts as work: others on the machine delay the end
    and never bring it.

    Args:
        seconds: what is patient enough on an idle machine.
        usage: of those waited for so far; unless said, of this process, all below it, and the labs.
        work: processor seconds that they may use; unless said, all that a machine of their own gives in `seconds`.
    """

    def __init__(
        self,
        seconds: float,
        usage: Callable[[], Usage] | None = None,
        work: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.work = seconds * CPUS if work is None else work
        self._usage = usage or (lambda: usage_of((os.getpid(), *boot.pids())))
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Something has come of it: begin anew."""
        self._last = self._usage()
        self._began = self._since = self._clock()
        self._used = self._wanted = 0.0

    def over(self) -> str:
        """Why it has ended; "" while it has not. To be asked again and again: what ends between is not seen."""
        now, usage = self._clock(), self._usage()
        used, delayed = (max(0.0, new - old) for new, old in zip(usage, self._last, strict=True))
        self._last = usage
        self._used += used
        self._wanted += used + delayed
        if self._used >= self.work:
            return f"{self._used:.0f} s of processor time in {now - self._began:.0f} s"
        if (waited := now - self._since) < self.seconds:
            return ""
        idle = self._wanted < waited * IDLE
        self._since, self._wanted = now, 0.0
        return f"idle for {waited:.0f} s" if idle else ""


def usage_of(roots: Iterable[int | None]) -> Usage:
    """Of these processes and all below them, ended ones included as far as the system tells."""
    ticks: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            number = int(path.parent.name)
            below.setdefault(int(fields[1]), []).append(number)
            ticks[number] = sum(map(int, fields[11:15]))
    result: set[int] = set()
    left = [number for number in roots if number is not None]
    while left:
        number = left.pop()
        if number not in result:
            result.add(number)
            left += below.get(number, [])
    return Usage(sum(ticks.get(number, 0) for number in result) / TICKS, sum(map(_delay, result)))


def _delay(number: int) -> float:
    nanoseconds = 0
    for path in Path(f"/proc/{number}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            nanoseconds += int(path.read_text(encoding="utf-8").split()[1])
    return nanoseconds / 1e9


def processes(root: int) -> list[str]:
    """Process ids and command lines of a process and all below it."""
    out = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=False).stdout
    rows = [line.split(None, 2) for line in out.splitlines()]
    tree, lines = {str(root)}, []
    for number, parent, *command in sorted(rows, key=lambda row: int(row[0])):
        if number in tree or parent in tree:
            tree.add(number)
            lines.append(f"{number} {' '.join(command)[:200]}")
    return lines


def run(
    argv: Sequence[str],
    seconds: float,
    data: bytes | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`subprocess.run` with all output; subprocess.TimeoutExpired when Patience ends."""
    patience = Patience(seconds)
    with tempfile.TemporaryFile() as source:  # communicate() forgets what it has not written when its time is over
        source.write(data or b"")
        source.seek(0)
        with subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:  # fmt: skip
            try:
                while True:
                    try:
                        out, err = process.communicate(timeout=PACE_SECONDS)
                        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)
                    except subprocess.TimeoutExpired as expired:
                        if patience.over():
                            left = (seconds, expired.output, expired.stderr)
                            raise subprocess.TimeoutExpired(list(argv), *left) from None
            finally:
                process.kill()


def watched(argv: Sequence[str], cwd: Path, env: Mapping[str, str], idle: float, work: float) -> tuple[int, str]:
    """Run with all output passed on; exit status, and why it was ended: "" where it has ended by itself.

    Each line of output begins the patience anew. Before it is ended it says where it is, if it knows how (SIGABRT).
    """
    with subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        patience = Patience(idle, lambda: usage_of((process.pid, *boot.pids())), work)
        output_seen = threading.Event()
        reader = threading.Thread(target=_pass_on, args=(process, output_seen), daemon=True)
        reader.start()
        why = ""
        try:
            while not why:
                try:
                    process.wait(timeout=PACE_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if output_seen.is_set():
                        output_seen.clear()
                        patience.restart()
                    why = patience.over()
            if why:
                print(f"\nlab: no progress: {why}; running:", *processes(process.pid), sep="\n  ", flush=True)
                process.send_signal(signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=LAST_WORDS_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(timeout=LAST_WORDS_SECONDS)
        return process.returncode, why


def _pass_on(process: subprocess.Popen[bytes], output_seen: threading.Event) -> None:
    assert process.stdout is not None
    while piece := os.read(process.stdout.fileno(), 65536):
        output_seen.set()
        sys.stdout.write(piece.decode(errors="replace"))
        sys.stdout.flush()
