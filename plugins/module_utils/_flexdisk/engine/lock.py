# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""One task at a time changes a pool: flock on files in a directory that only we can write (docs/architecture.md)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
import typing as t

from ..model.errors import FlexdiskError
from ..rules.identity import check_pool
from .runner import SYSTEM_PATH, SubprocessRunner, search_path

HOST = "host.lock"
OF_A_NODE = "flexdisk-locks"  # simnode.__main__ makes it
_POLL = 0.2
_TRANSFER = "transfer-"


def place() -> str:
    """The directory of locks: one for the host, or one beside the program zfs, as a simulated node has.

    A lock protects the storage that the program zfs reaches, so tasks with another zfs need not wait. Whoever can put a
    directory beside zfs could replace that program, too. A directory beside the system's zfs is ignored.
    """
    zfs = shutil.which("zfs", path=search_path())
    folder = os.path.dirname(os.path.abspath(zfs)) if zfs else ""
    beside = os.path.join(folder, OF_A_NODE)
    if folder not in ("", *SYSTEM_PATH.split(":")) and os.path.lexists(beside):
        return beside
    uid, base = os.geteuid(), os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return os.path.join(base, f"flexdisk-{uid}") if uid else "/var/run/flexdisk"


def _unusable(path: str, why: object) -> FlexdiskError:
    return FlexdiskError("NotPermitted", f"the directory of locks {path} cannot be used: {why}")


def _directory(create: bool) -> int:
    """A descriptor of the directory of locks. The directory must be ours alone, and no link."""
    path = place()
    if not os.path.isabs(path):
        raise _unusable(path, "its path is not absolute")
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        raise _unusable(path, exc) from exc
    found = os.fstat(fd)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise _unusable(path, f"it must be a directory of uid {os.geteuid()} with mode 0700")
    return fd


def _file_of(pool: str) -> str:
    return f"pool-{check_pool(pool)}.lock"


def _take(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno not in (errno.EAGAIN, errno.EACCES):
            raise _unusable(place(), exc) from exc
        return False
    return True


def _holder(fd: int) -> str:
    try:
        said = json.loads(os.pread(fd, 4096, 0).decode("utf-8", "replace"))
        text = f"{said['task']} (pid {said['pid']} on {said['host']} since {said['since']})"
    except (KeyError, OSError, TypeError, ValueError):
        return "a task that has not identified itself yet"
    try:
        os.kill(int(said["pid"]), 0)
    except (OSError, OverflowError) as exc:
        if getattr(exc, "errno", 0) != errno.EPERM:
            return text + ", which is gone, but a program that it started still runs"
    return text


def _holders(directory: int, pool: t.Optional[str]) -> t.List[str]:
    """The holders of locks that a task for the pool, or for all pools (None), would wait for."""
    found = []
    wanted = {HOST, _file_of(pool)} if pool is not None else None
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".lock") or name.startswith(_TRANSFER) or (wanted is not None and name not in wanted):
            continue
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
        except OSError:
            continue
        try:
            if not _take(fd, fcntl.LOCK_SH):
                found.append(_holder(fd))
        finally:
            os.close(fd)
    return found


def busy(pool: t.Optional[str]) -> t.List[str]:
    """Warnings for tasks that only read: who changes the host at the moment."""
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return []
    try:
        return [f"the host is being changed by {who}" for who in _holders(directory, pool)]
    finally:
        os.close(directory)


@contextlib.contextmanager
def exclusive(
    runner: SubprocessRunner,
    pool: t.Optional[str],
    timeout: float,
    task: str,
    pause: t.Callable[[float], None] = time.sleep,
) -> t.Iterator[None]:
    """Lock a pool, or all pools (None), for the body. timeout is seconds; the lock is tried at least once.

    Raises FlexdiskError Locked, which names the holder, or NotPermitted if there is no safe place for locks.
    """
    wanted = [(HOST, fcntl.LOCK_EX)] if pool is None else [(HOST, fcntl.LOCK_SH), (_file_of(pool), fcntl.LOCK_EX)]
    deadline = time.monotonic() + timeout
    directory = _directory(create=True)
    fds: t.List[int] = []
    before = runner.inherited
    try:
        for name, how in wanted:
            try:
                fds.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory))
            except OSError as exc:
                raise _unusable(place(), exc) from exc
            while not _take(fds[-1], how):
                if time.monotonic() >= deadline:
                    raise _locked(_holders(directory, pool), timeout)
                pause(_POLL)
        _say(fds[-1], task)
        runner.inherited = (*before, *fds)
        yield
    finally:
        runner.inherited = before
        for fd in [*fds, directory]:
            os.close(fd)


@contextlib.contextmanager
def transfers(runner: SubprocessRunner, vms: t.Iterable[str], task: str) -> t.Iterator[None]:
    """Lock transfers of VMs (by uuids) for the body, beside whatever else is locked: one run at a time replicates a VM.

    A transfer may take hours, so nobody waits for it. Raises FlexdiskError as exclusive() does.
    """
    directory = _directory(create=True)
    fds: t.List[int] = []
    before = runner.inherited
    try:
        for name in sorted(f"{_TRANSFER}{vm}.lock" for vm in vms):
            fds.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory))
            if not _take(fds[-1], fcntl.LOCK_EX):
                raise FlexdiskError("Locked", f"the disks are being replicated by {_holder(fds[-1])}")
            _say(fds[-1], task)
        runner.inherited = (*before, *fds)
        yield
    finally:
        runner.inherited = before
        for fd in [*fds, directory]:
            os.close(fd)


def _locked(holders: t.Sequence[str], timeout: float) -> FlexdiskError:
    who = "; ".join(holders) or "a task that has just ended"
    return FlexdiskError("Locked", f"the host is being changed by {who}; waited {int(timeout)} s (lock_timeout)")


def _say(fd: int, task: str) -> None:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"pid": os.getpid(), "host": os.uname().nodename, "since": since, "task": task[:500]}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(said).encode(), 0)
