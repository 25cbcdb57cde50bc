# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Progress of transfers: bytes, rate and time left, in a file that others read, and in the log of the host."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ..model.sizes import render_bytes

_FILE = "transfer-{}.progress"
_WRITE, _LOG = 1.0, 10.0


class Progress:
    """Counts bytes that were carried, keeps a limit, and tells how far it has come.

    path: the file, which is replaced at most once a second. log: is told a line at most every 10 seconds.
    limit: bytes a second, 0 for none.
    """

    def __init__(
        self,
        path: str,
        log: t.Callable[[str], None],
        limit: int = 0,
        clock: t.Callable[[], float] = time.monotonic,
        pause: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.carried = 0
        self._path, self._log, self._limit = path, log, limit
        self._clock, self._pause = clock, pause
        self._total = 0
        self._what = ""
        self._began = self._written = self._logged = clock()

    def begin(self, total: int) -> None:
        """Bytes that are to be carried, by estimate."""
        self._total = total
        self._began = self._clock()

    def now(self, vm: str, disk: str) -> None:
        """Which disk is sent now."""
        self._what = f"VM {vm}, disk {disk}"
        self._tell()

    def add(self, count: int) -> None:
        """Count bytes, and wait as long as the limit demands."""
        self.carried += count
        if self._limit:
            early = self.carried / self._limit - (self._clock() - self._began)
            if early > 0:
                self._pause(early)
        if self._clock() - self._written >= _WRITE:
            self._tell()

    def line(self) -> str:
        """How far it has come, for people."""
        took = max(self._clock() - self._began, 0.001)
        rate = self.carried / took
        words = f"{self._what}: {render_bytes(self.carried)} sent, {render_bytes(int(rate))}/s"
        left = self._total - self.carried
        return f"{words}, {int(left / rate)} s left" if rate and left > 0 else words

    def _tell(self) -> None:
        """Never let this fail a transfer."""
        now = self._clock()
        self._written = now
        text = self.line()
        if now - self._logged >= _LOG:
            self._logged = now
            self._log(text)
        with contextlib.suppress(OSError):
            with open(self._path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(self._path + ".new", self._path)

    def end(self) -> None:
        """Nothing is under way any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def path(folder: str, vm: str) -> str:
    """The file for a transfer, by the uuid of its first VM."""
    return os.path.join(folder, _FILE.format(vm))


def lines(folder: str, vms: t.Optional[t.Collection[str]]) -> t.List[str]:
    """How far transfers have come: those of these VMs, or all."""
    names = [_FILE.format(vm) for vm in vms] if vms is not None else sorted(_listed(folder))
    found = []
    for name in names:
        where = os.path.join(folder, os.path.basename(name))
        with contextlib.suppress(OSError), open(where, encoding="utf-8", errors="replace") as file:
            found.append(file.read())
    return found


def _listed(folder: str) -> t.List[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith("transfer-") and name.endswith(".progress")]
    except OSError:
        return []
