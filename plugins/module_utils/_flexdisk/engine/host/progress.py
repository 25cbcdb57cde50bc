# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The progress of a run: its step, VM and disk, and the bytes of a copy, in a file and in the host's log."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import typing as t
from contextvars import ContextVar

from ...hypervisor import whole_files
from ...model.sizes import render_bytes

SUFFIX = ".progress"
_GAP, _COPY, _LOG = 0.02, 1.0, 10.0  # seconds between two files, two files of one copy, and two lines of it in the log
_MAX_TEXT = 500  # characters of a text
_MAX_FILE = 1 << 16  # bytes of a file
_NUMBER_LIMIT = 1 << 63
_Log = t.Callable[[str], None]


class Run(t.NamedTuple):
    """The holder of a lock."""

    pid: int
    host: str
    since: str
    """A time (UTC)."""
    task: str
    """What it does, for users."""


class HeldLock(t.NamedTuple):
    """A lock that this run holds."""

    path: str
    """The file for the run's progress."""
    run: Run


class Position(t.NamedTuple):
    """How far a run has come. The fields are the keys of the progress file."""

    vm: str = ""
    disk: str = ""
    text: str = ""
    """What is done now."""
    at_step: int = 0
    """The number of the current step, 0 without a plan."""
    steps: int = 0
    """The number of steps, 0 without a plan."""
    done_bytes: int = 0
    """Bytes copied or sent so far."""
    total_bytes: int = 0
    """The estimated total, 0 if unknown."""
    rate_bytes: int = 0
    """Bytes per second."""

    @property
    def line(self) -> str:
        """One line for users."""
        disk = f"disk {self.disk}" if self.disk and f" {self.disk}" not in self.text else ""
        step = f"at step {self.at_step} of {self.steps}" if self.at_step else ""
        where = ", ".join(part for part in (step, f"VM {self.vm}" if self.vm else "", disk) if part)
        text = ", ".join(part for part in (self.text, *self._copied()) if part)
        return ": ".join(part for part in (where, text) if part)

    def _copied(self) -> t.Iterator[str]:
        done, total, rate = self.done_bytes, self.total_bytes, self.rate_bytes
        if not done:
            return
        yield render_bytes(done) + (f" of {render_bytes(total)} ({100 * done // total} %)" if done <= total else "")
        if rate:
            yield f"{render_bytes(rate)}/s"
            if done < total:
                yield f"{(total - done) // rate} s left"


class Progress:
    """Writes the progress of a run, and limits the rate of a transfer. Errors while writing are ignored.

    Args:
        lock: the lock of the run, None to write nothing.
        log: gets a line for each step, and at most one every 10 seconds during a copy.
        limit: bytes per second, 0 for no limit.
    """

    def __init__(
        self,
        lock: t.Optional[HeldLock] = None,
        log: t.Optional[_Log] = None,
        limit: int = 0,
        clock: t.Callable[[], float] = time.monotonic,
        pause: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.carried = 0
        self._lock, self._log, self._limit = lock, log, limit
        self._clock, self._pause = clock, pause
        self._current = Position()
        self._started = self._logged = clock()
        self._written = self._started - _GAP

    def add_steps(self, steps: int) -> None:
        """Add to the number of remaining steps."""
        self._current = self._current._replace(steps=self._current.steps + steps)

    def step(self, vm: str, disk: str, text: str) -> None:
        """Begin the next step."""
        self._current = self._current._replace(at_step=self._current.at_step + 1)
        self._logged = self._clock() - _LOG
        self.begin(0)
        self.now(vm, disk, text)

    def now(self, vm: str, disk: str, text: str) -> None:
        """Report what is done now, within a step or without a plan."""
        self._current = self._current._replace(vm=_printable(vm), disk=_printable(disk), text=_printable(text))
        self._write_position()

    def reading_again(self) -> None:
        """Report that the host is read again after the steps."""
        self.begin(0)
        self.now("", "", "read again")

    def begin(self, total: int) -> None:
        """Begin a copy or transfer of an estimated number of bytes."""
        self._current = self._current._replace(total_bytes=total)
        self.carried = 0
        self._started = self._clock()

    def add(self, count: int) -> None:
        """Count bytes, and wait as long as the limit requires."""
        self.reach(self.carried + count)

    def reach(self, carried: int) -> None:
        """Like add(), with the number of bytes since begin()."""
        self.carried = carried
        if self._limit:
            early = self.carried / self._limit - (self._clock() - self._started)
            if early > 0:
                self._pause(early)
        if self._clock() - self._written >= _COPY:
            self._write_position()

    def end(self) -> None:
        """Remove the progress file."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._lock.path)

    def _position(self) -> Position:
        took = max(self._clock() - self._started, 0.001)
        return self._current._replace(done_bytes=self.carried, rate_bytes=int(self.carried / took))

    def _write_position(self) -> None:
        if self._lock is None:
            return
        early = self._written + _GAP - self._clock()
        if early > 0:  # wait rather than skip: a skipped step could be the one that lasts for hours
            self._pause(early)
        self._written = now = self._clock()
        position = self._position()
        if self._log is not None and now - self._logged >= _LOG:
            self._logged = now
            with contextlib.suppress(Exception):  # any error of the host's log is ignored
                self._log(position.line)
        try:
            _write(self._lock.path, {**self._lock.run._asdict(), **position._asdict()})
        except OSError:
            self.end()


def _printable(text: str) -> str:
    """Replace control characters, because users choose names, and terminals and logs interpret such characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MAX_TEXT])


def _write(path: str, content: t.Mapping[str, t.Any]) -> None:
    """Replace the file without fsync, because it need not survive a crash of the host."""
    whole_files.replace(path, json.dumps(content).encode(), durable=False)


_SILENT = Progress()
_CURRENT: ContextVar[Progress] = ContextVar("progress", default=_SILENT)


def current() -> Progress:
    """Return the progress of the current run. Outside a run, a silent one."""
    return _CURRENT.get()


@contextlib.contextmanager
def reporting(lock: HeldLock, log: _Log, limit: int = 0) -> t.Iterator[Progress]:
    """Report the progress of the body, which holds a lock. A file that a killed holder has left is removed first."""
    progress = Progress(lock, log, limit)
    progress.end()
    before = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        _CURRENT.reset(before)
        progress.end()


def read(name: str, folder: int) -> t.Optional[t.Tuple[Run, Position, int]]:
    """Read a progress file in a folder, given by its descriptor. Return the run, its position and the file's age.

    The age is in seconds. None if there is no such file, or no run has written it.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = json.loads(os.read(fd, _MAX_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    run_values, position_values = _values_of(content, Run(0, "", "", "")), _values_of(content, Position())
    if run_values is None or position_values is None:
        return None
    return Run(*run_values), Position(*position_values), max(0, int(time.time() - status.st_mtime))


def _values_of(content: t.Any, defaults: t.Union[Run, Position]) -> t.Optional[t.List[t.Any]]:
    """Return the values of a named tuple from JSON, None if one is missing, or has a wrong type or range."""
    values = [content.get(key) if isinstance(content, dict) else None for key in defaults._fields]
    for value, default in zip(values, defaults):
        if type(value) is not type(default) or (isinstance(value, int) and not 0 <= value < _NUMBER_LIMIT):
            return None
    return [_printable(value) if isinstance(value, str) else value for value in values]
