# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a run is: its step, VM and disk, and the bytes of a copy, in a file that others read, and in the host's log."""

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
_LONGEST = 500  # characters of a text
_LARGEST = 1 << 16  # bytes of a file
_MOST = 1 << 63
_Log = t.Callable[[str], None]


class Run(t.NamedTuple):
    """Who holds a lock. since is a time (UTC), task the run in words."""

    pid: int
    host: str
    since: str
    task: str


class Held(t.NamedTuple):
    """A lock that is held: where its holder tells how far it has come, and who it is."""

    path: str
    run: Run


class Standing(t.NamedTuple):
    """Where a run is."""

    vm: str = ""
    disk: str = ""
    text: str = ""
    # The number of the present step. 0 of 0 if the run has no plan.
    at_step: int = 0
    steps: int = 0
    # Copied or sent so far.
    done_bytes: int = 0
    # An estimate, 0 if nobody knows.
    total_bytes: int = 0
    # A second.
    rate_bytes: int = 0

    @property
    def line(self) -> str:
        """The same for people."""
        disk = f"disk {self.disk}" if self.disk and f" {self.disk}" not in self.text else ""
        step = f"at step {self.at_step} of {self.steps}" if self.at_step else ""
        where = ", ".join(words for words in (step, f"VM {self.vm}" if self.vm else "", disk) if words)
        text = ", ".join(words for words in (self.text, *self._copied()) if words)
        return ": ".join(words for words in (where, text) if words)

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
    """Tells where a run is, and keeps the limit of a transfer. What cannot be told is not told: nothing fails by it.

    held: None tells nobody. log: is told a line for each step, and one for a copy at most every 10 seconds. limit:
    bytes a second, 0 for none.
    """

    def __init__(
        self,
        held: t.Optional[Held] = None,
        log: t.Optional[_Log] = None,
        limit: int = 0,
        clock: t.Callable[[], float] = time.monotonic,
        pause: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.carried = 0
        self._held, self._log, self._limit = held, log, limit
        self._clock, self._pause = clock, pause
        self._where = Standing()
        self._began = self._logged = clock()
        self._written = self._began - _GAP

    def more(self, steps: int) -> None:
        """So many steps more are to be done."""
        self._where = self._where._replace(steps=self._where.steps + steps)

    def step(self, vm: str, disk: str, text: str) -> None:
        """The next step begins."""
        self._where = self._where._replace(at_step=self._where.at_step + 1)
        self._logged = self._clock() - _LOG
        self.begin(0)
        self.now(vm, disk, text)

    def now(self, vm: str, disk: str, text: str) -> None:
        """What is done now, as a part of a step or without a plan."""
        self._where = self._where._replace(vm=_plain(vm), disk=_plain(disk), text=_plain(text))
        self._tell()

    def reads(self) -> None:
        """All steps are done, or one has failed: the host is read again."""
        self.begin(0)
        self.now("", "", "read again")

    def begin(self, total: int) -> None:
        """A copy or transfer begins, of so many bytes by estimate."""
        self._where = self._where._replace(total_bytes=total)
        self.carried = 0
        self._began = self._clock()

    def add(self, count: int) -> None:
        """Count bytes, and wait as long as the limit demands."""
        self.reach(self.carried + count)

    def reach(self, carried: int) -> None:
        """Bytes so far; otherwise as add."""
        self.carried = carried
        if self._limit:
            early = self.carried / self._limit - (self._clock() - self._began)
            if early > 0:
                self._pause(early)
        if self._clock() - self._written >= _COPY:
            self._tell()

    def end(self) -> None:
        """Nothing is under way any more."""
        if self._held is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._held.path)

    def _standing(self) -> Standing:
        took = max(self._clock() - self._began, 0.001)
        return self._where._replace(done_bytes=self.carried, rate_bytes=int(self.carried / took))

    def _tell(self) -> None:
        if self._held is None:
            return
        early = self._written + _GAP - self._clock()
        if early > 0:  # a step that is skipped here could be the one that lasts for hours
            self._pause(early)
        self._written = now = self._clock()
        found = self._standing()
        if self._log is not None and now - self._logged >= _LOG:
            self._logged = now
            with contextlib.suppress(Exception):  # whatever the log of a host may have
                self._log(found.line)
        try:
            _write(self._held.path, {**self._held.run._asdict(), **found._asdict()})
        except OSError:
            self.end()


def _plain(text: str) -> str:
    """Names are anybody's: without what a terminal or a log would take for a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST])


def _write(path: str, told: t.Mapping[str, t.Any]) -> None:
    """Replace the file. It need not outlive the host, so nothing waits for its storage."""
    whole_files.replace(path, json.dumps(told).encode(), durable=False)


_SILENT = Progress()
_CURRENT: ContextVar[Progress] = ContextVar("progress", default=_SILENT)


def current() -> Progress:
    """That of the run in whose course this is called; without one, nobody is told."""
    return _CURRENT.get()


@contextlib.contextmanager
def telling(held: Held, log: _Log, limit: int = 0) -> t.Iterator[Progress]:
    """The progress of the body, which holds a lock. First, what a killed holder has left goes."""
    made = Progress(held, log, limit)
    made.end()
    before = _CURRENT.set(made)
    try:
        yield made
    finally:
        _CURRENT.reset(before)
        made.end()


def read(name: str, folder: int) -> t.Optional[t.Tuple[Run, Standing, int]]:
    """What a file in a folder (its descriptor) tells: who, where, and for how many seconds nothing has been new.

    None if there is no such file, or none that a run has written.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        told = json.loads(os.read(fd, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    who, where = _taken(told, Run(0, "", "", "")), _taken(told, Standing())
    if who is None or where is None:
        return None
    return Run(*who), Standing(*where), max(0, int(time.time() - found.st_mtime))


def _taken(told: t.Any, empty: t.Union[Run, Standing]) -> t.Optional[t.List[t.Any]]:
    """The values of a tuple from JSON; None if one is missing, or is of another type, or no number that can be."""
    values = [told.get(key) if isinstance(told, dict) else None for key in empty._fields]
    for value, default in zip(values, empty):
        if type(value) is not type(default) or (isinstance(value, int) and not 0 <= value < _MOST):
            return None
    return [_plain(value) if isinstance(value, str) else value for value in values]
