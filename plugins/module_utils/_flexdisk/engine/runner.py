# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Runs programs with argv lists, without a shell, with LC_ALL=C, and counts them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import typing as t

from ..model.command import Answer, changes
from ..model.errors import FlexdiskError

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
_GRACE = 5


def search_path() -> str:
    """The path on which programs are looked for."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"


class SubprocessRunner:
    """The Runner in production. calls counts the processes; those that change something get the files in inherited."""

    def __init__(self) -> None:
        self.calls = 0
        self.inherited: t.Tuple[int, ...] = ()
        self._environment = dict(os.environ, LC_ALL="C", LANG="C", PATH=search_path())

    def __call__(self, argv: t.Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        self.calls += 1
        process = self._start(argv)
        try:
            out, err = process.communicate(stdin.encode(), timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise FlexdiskError(
                "CommandTimeout", f"{argv[0]} did not end within {int(timeout)} s and was killed: {' '.join(argv)}"
            ) from None
        except BaseException:
            _end(process)
            raise
        return Answer(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def pipe(self, first: t.Sequence[str], second: t.Sequence[str]) -> t.Tuple[Answer, Answer]:
        """Run two programs at once. The second reads what the first writes."""
        self.calls += 2
        writer = self._start(first, subprocess.DEVNULL)
        try:
            reader = self._start(second, t.cast(t.IO[bytes], writer.stdout))
        except BaseException:
            _end(writer)
            raise
        # Otherwise the writer does not notice that its reader has gone.
        t.cast(t.IO[bytes], writer.stdout).close()
        writer.stdout = None
        try:
            out, err = reader.communicate()
            _none, said = writer.communicate()
        except BaseException:
            _end(reader)
            _end(writer)
            raise
        return Answer(writer.returncode, "", said.decode("utf-8", "replace")), Answer(
            reader.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )

    def _start(
        self, argv: t.Sequence[str], stdin: t.Union[int, t.IO[bytes]] = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                pass_fds=self.inherited if changes(argv) else (),
            )
        except FileNotFoundError:
            raise FlexdiskError("CommandNotFound", f"{argv[0]} is not on this host's PATH") from None
        except PermissionError as exc:
            raise FlexdiskError("NotPermitted", f"{argv[0]} cannot be run: {exc}") from exc
        except (OSError, ValueError) as exc:
            raise FlexdiskError("CommandFailed", f"{argv[0]} cannot be run: {exc}") from exc


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process without waiting forever: one that waits for a suspended pool cannot be killed."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
