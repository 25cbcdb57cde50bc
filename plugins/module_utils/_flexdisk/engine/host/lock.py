# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks (flock), so that one task at a time changes a pool. They lie in a private directory (docs/architecture.md)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import stat
import time
import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import check_pool, render_time
from . import progress
from .progress import HeldLock, Run
from .runner import SubprocessRunner, beside_zfs

HOST = "host.lock"
ROOT_FOLDER = "/var/run/flexdisk"
NODE_FOLDER = "flexdisk-locks"  # simnode.__main__ makes it
TRANSFER = "transfer-"
_SUFFIX = ".lock"
_AS_ROOT = f"root (become: true) has its own, {ROOT_FOLDER}"
_POLL = 0.2
_SILENT_SECONDS = 5  # seconds without news before messages mention them


def place() -> str:
    """Return the directory of locks: one for the host, or one beside the program zfs of a simulated node.

    A lock protects the storage that the program zfs reaches, so tasks with another zfs need not wait.

    Without root, the directory is in the user's home directory, as the user database has it, because nobody else can
    create one there. Its name contains the host's name, because homes can be shared. Environment variables are not
    used, because a session and a cron job of one user differ in them. Raises FlexdiskError NotPermitted for a user
    without a home directory.
    """
    beside = beside_zfs(NODE_FOLDER)
    if beside:
        return beside
    return os.path.join(_home(), f".flexdisk-locks-{os.uname().nodename}") if os.geteuid() else ROOT_FOLDER


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError as exc:
        text = f"uid {os.geteuid()} is no user of this host, so there is no place for its locks; {_AS_ROOT}"
        raise FlexdiskError("NotPermitted", text) from exc


def _unusable(path: str, reason: object) -> FlexdiskError:
    remedy = f"; {_AS_ROOT}" if os.geteuid() else ""
    return FlexdiskError("NotPermitted", f"the directory of locks {path} cannot be used: {reason}{remedy}")


def _directory(create: bool) -> int:
    """Open the directory of locks. It must belong to the current user alone, and be no symbolic link."""
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
    status = os.fstat(fd)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(fd)
        raise _unusable(path, f"it must be a directory of uid {os.geteuid()} with mode 0700")
    return fd


def _file_of(pool: str) -> str:
    return f"pool-{check_pool(pool)}.lock"


def _try_lock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno not in (errno.EAGAIN, errno.EACCES):
            raise _unusable(place(), exc) from exc
        return False
    return True


def _read_holder(fd: int) -> t.Optional[Run]:
    """Return the holder that a lock file names, None if it names none."""
    try:
        values = json.loads(os.pread(fd, 4096, 0).decode("utf-8", "replace"))
        result = Run(int(values["pid"]), str(values["host"]), str(values["since"]), str(values["task"]))
    except (KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return result


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as exc:
        return getattr(exc, "errno", 0) == errno.EPERM
    return True


def _holder(directory: int, name: str, fd: int) -> str:
    """Return a message about the holder of a lock, with its progress."""
    run = _read_holder(fd)
    if run is None:
        return "a task that has not identified itself yet"
    text = f"{run.task} (pid {run.pid} on {run.host} since {run.since})"
    if not _is_alive(run.pid):
        text += ", which is gone, but a program that it started still runs"
    position = progress.read(_progress_of(name), directory)
    if position is None or not _is_run_of(position[0], run):
        return text
    no_news = f", no news for {position[2]} s" if position[2] >= _SILENT_SECONDS else ""
    return f"{text}, {position[1].line}{no_news}"


def _is_run_of(run: Run, holder: t.Optional[Run]) -> bool:
    """Return whether a run is the holder of a lock."""
    return holder is not None and (run.pid, run.since) == (holder.pid, holder.since)


def _progress_of(name: str) -> str:
    return name[: -len(_SUFFIX)] + progress.SUFFIX


def _holders(directory: int, pool: t.Optional[str]) -> t.List[str]:
    """Return messages about the holders of locks that a task for the pool, or all pools (None), would wait for."""
    result = []
    for name in sorted(os.listdir(directory)):
        if not name.endswith(_SUFFIX) or name.startswith(TRANSFER) or not _concerns(name, pool):
            continue
        with _if_held(directory, name) as fd:
            if fd is not None:
                result.append(_holder(directory, name, fd))
    return result


def _concerns(name: str, pool: t.Optional[str]) -> bool:
    """Return whether a task for the pool, or all pools (None), would wait for this lock."""
    return pool is None or name in (HOST, _file_of(pool))


@contextlib.contextmanager
def _if_held(directory: int, name: str) -> t.Iterator[t.Optional[int]]:
    """Open a lock file. The value is its descriptor if somebody holds the lock, else None."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    except OSError:
        yield None
        return
    try:
        yield None if _try_lock(fd, fcntl.LOCK_SH) else fd
    finally:
        os.close(fd)


def under_way(pool: t.Optional[str]) -> t.List[t.Dict[str, t.Any]]:
    """Return the progress of all transfers, and of runs that a task for the pool, or all pools (None), would wait for.

    state: C(running), C(outlived) if only a program still runs that it has started, or C(dead).
    """
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return []  # without the directory, no run holds a lock
    try:
        names = [name for name in sorted(os.listdir(directory)) if name.endswith(progress.SUFFIX)]
        locks = [name[: -len(progress.SUFFIX)] + _SUFFIX for name in names]
        return [
            one
            for name in locks
            if name.startswith(TRANSFER) or _concerns(name, pool)
            for one in _result_of_run(directory, name)
        ]
    finally:
        os.close(directory)


def _result_of_run(directory: int, name: str) -> t.Iterator[t.Dict[str, t.Any]]:
    first = progress.read(_progress_of(name), directory)
    if first is None:
        return
    run, position, silent_seconds = first
    with _if_held(directory, name) as fd:
        is_held, holder = fd is not None, None if fd is None else _read_holder(fd)
    if is_held and holder is None:
        return  # the progress may be that of an earlier run
    second = progress.read(_progress_of(name), directory)
    if second is None or second[0] != run:
        return  # the run has ended meanwhile: it removes its file before it releases the lock
    state = "dead"
    if _is_run_of(run, holder):
        state = "running" if _is_alive(run.pid) else "outlived"
    lock = name[: -len(_SUFFIX)]
    yield {
        "lock": lock,
        "state": state,
        "silent": silent_seconds,
        **run._asdict(),
        **position._asdict(),
        "line": position.line,
    }


def busy(pool: t.Optional[str]) -> t.List[str]:
    """Return warnings about runs that are changing the host, for tasks that only read."""
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return []
    try:
        return [f"the host is being changed by {who}" for who in _holders(directory, pool)]
    finally:
        os.close(directory)


def transfer_of(vm: str) -> str:
    """Return a message about the run that replicates or moves the VM with this UUID, "" for none."""
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return ""
    try:
        name = f"{TRANSFER}{vm}{_SUFFIX}"
        with _if_held(directory, name) as fd:
            return _holder(directory, name, fd) if fd is not None else ""
    finally:
        os.close(directory)


def transfers_under_way() -> t.Set[str]:
    """Return the UUIDs of the VMs that somebody replicates or moves at the moment."""
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return set()
    try:
        uuids = set()
        for name in os.listdir(directory):
            if name.startswith(TRANSFER) and name.endswith(_SUFFIX):
                with _if_held(directory, name) as fd:
                    uuids |= set() if fd is None else {name[len(TRANSFER) : -len(_SUFFIX)]}
        return uuids
    finally:
        os.close(directory)


@contextlib.contextmanager
def exclusive(runner: SubprocessRunner, pool: t.Optional[str], timeout: float, task: str) -> t.Iterator[HeldLock]:
    """Lock a pool, or all pools (None), for the body. timeout is seconds; the lock is tried at least once.

    Raises FlexdiskError Locked, which names the holder, or NotPermitted if there is no safe place for locks.
    """
    files = [(HOST, fcntl.LOCK_EX)] if pool is None else [(HOST, fcntl.LOCK_SH), (_file_of(pool), fcntl.LOCK_EX)]
    deadline = time.monotonic() + timeout
    directory = _directory(create=True)
    fds: t.List[int] = []
    before = runner.inherited
    try:
        for name, operation in files:
            try:
                fds.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory))
            except OSError as exc:
                raise _unusable(place(), exc) from exc
            while not _try_lock(fds[-1], operation):
                if time.monotonic() >= deadline:
                    raise _locked(_holders(directory, pool), timeout)
                time.sleep(_POLL)
        run = _run(task)
        _write_holder(fds[-1], run)
        runner.inherited = (*before, *fds)
        yield HeldLock(os.path.join(place(), _progress_of(files[-1][0])), run)
    finally:
        runner.inherited = before
        for fd in [*fds, directory]:
            os.close(fd)


@contextlib.contextmanager
def transfers(runner: SubprocessRunner, vms: t.Sequence[str], task: str) -> t.Iterator[HeldLock]:
    """Lock the transfers of VMs (by UUID) for the body. Only one run at a time replicates a VM.

    The progress is stored with the lock of the first VM. A transfer may take hours, so there is no waiting for it.
    Raises FlexdiskError as exclusive() does.
    """
    names, run = [f"{TRANSFER}{vm}{_SUFFIX}" for vm in vms], _run(task)
    directory = _directory(create=True)
    fds: t.List[int] = []
    before = runner.inherited
    try:
        for name in sorted(names):
            fds.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory))
            if not _try_lock(fds[-1], fcntl.LOCK_EX):
                time.sleep(_POLL)  # a reader that tests the lock holds it for a moment
                if not _try_lock(fds[-1], fcntl.LOCK_EX):
                    raise FlexdiskError(
                        "Locked", f"the disks are being replicated by {_holder(directory, name, fds[-1])}"
                    )
            _write_holder(fds[-1], run)
        runner.inherited = (*before, *fds)
        yield HeldLock(os.path.join(place(), _progress_of(names[0])) if names else "", run)
    finally:
        runner.inherited = before
        for fd in [*fds, directory]:
            os.close(fd)


def _locked(holders: t.Sequence[str], timeout: float) -> FlexdiskError:
    who = "; ".join(holders) or "a task that has just ended"
    return FlexdiskError("Locked", f"the host is being changed by {who}; waited {int(timeout)} s (lock_timeout)")


def _run(task: str) -> Run:
    since = render_time(time.time())
    return Run(os.getpid(), os.uname().nodename, since, task[:500])


def _write_holder(fd: int, run: Run) -> None:
    """Write the holder into the lock file. Errors are ignored, because the lock is held anyway."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(run._asdict()).encode(), 0)
