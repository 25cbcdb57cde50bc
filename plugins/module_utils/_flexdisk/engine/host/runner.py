# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs programs with argv lists, without a shell, with LC_ALL=C, and counts them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t

from ...model.command import Answer, changes
from ...model.errors import FlexdiskError

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
_GRACE = 5
_PIECE = 1 << 20
_F_SETPIPE_SZ = 1031  # of Linux; the module fcntl has a name for it since Python 3.10
_MAX_ERRORS = 65536  # of what a program says about its errors


def search_path() -> str:
    """Return the search path for programs."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"


def beside_zfs(name: str) -> str:
    """Return what a simulated node has under this name beside its program zfs; "" on any other host.

    Whoever can create something beside zfs could also replace that program. What is beside the system's zfs is ignored.
    """
    zfs = shutil.which("zfs", path=search_path())
    folder = os.path.dirname(os.path.abspath(zfs)) if zfs else ""
    place = os.path.join(folder, name)
    return place if folder not in ("", *SYSTEM_PATH.split(":")) and os.path.lexists(place) else ""


class SubprocessRunner:
    """The runner in production."""

    def __init__(self) -> None:
        self.calls = 0
        """The number of processes so far."""
        self.inherited: t.Tuple[int, ...] = ()
        """File descriptors that processes which may change something inherit."""
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

    def carry(
        self, first: t.Sequence[str], second: t.Sequence[str], carried: t.Callable[[int], None]
    ) -> t.Tuple[Answer, Answer]:
        """Run two programs, and copy the output of the first to the second. carried: called with each number of bytes.

        If this process is killed, both programs reach the end of their pipes.
        """
        self.calls += 2
        with tempfile.TemporaryFile() as writer_errors, tempfile.TemporaryFile() as reader_errors:
            writer = self._start(first, subprocess.DEVNULL, stderr=writer_errors)
            try:
                reader = self._start(second, stdout=reader_errors, stderr=reader_errors)
            except BaseException:
                _end(writer)
                raise
            try:
                _copy_bytes(t.cast(t.IO[bytes], writer.stdout), t.cast(t.IO[bytes], reader.stdin), carried)
                for process in (writer, reader):
                    process.wait()
            except BaseException:
                _end(writer)
                _end(reader)
                raise
            return Answer(writer.returncode, "", _text(writer_errors)), Answer(
                reader.returncode, "", _text(reader_errors)
            )

    def _start(
        self,
        argv: t.Sequence[str],
        stdin: t.Union[int, t.IO[bytes]] = subprocess.PIPE,
        stdout: t.Union[int, t.IO[bytes]] = subprocess.PIPE,
        stderr: t.Union[int, t.IO[bytes]] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=self._environment,
                pass_fds=self.inherited if changes(argv) else (),
            )
        except FileNotFoundError:
            raise FlexdiskError("CommandNotFound", f"{argv[0]} is not on this host's PATH") from None
        except PermissionError as exc:
            raise FlexdiskError("NotPermitted", f"{argv[0]} cannot be run: {exc}") from exc
        except (OSError, ValueError) as exc:
            raise FlexdiskError("CommandFailed", f"{argv[0]} cannot be run: {exc}") from exc


def _copy_bytes(source: t.IO[bytes], sink: t.IO[bytes], carried: t.Callable[[int], None]) -> None:
    """Copy bytes until the source ends, or nobody reads any more. Close both."""
    with source:
        try:
            with sink:
                _widen(source)
                _widen(sink)
                while True:
                    piece = os.read(source.fileno(), _PIECE)
                    if not piece:
                        return
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[os.write(sink.fileno(), rest) :]
                    carried(len(piece))
        except BrokenPipeError:
            pass


def _widen(pipe: t.IO[bytes]) -> None:
    """Enlarge the pipe's buffer. With Linux's 64 KiB, copying takes a third longer than the two programs alone."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):  # its user has too many large pipes
            fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, _PIECE)


def _text(file: t.IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_ERRORS).decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process without waiting forever: one that waits for a suspended pool cannot be killed."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
