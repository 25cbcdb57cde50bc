# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task at a time changes a pool: flock on files in a directory that only we can write (docs/architecture.md)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import shutil
import stat
import time
import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import check_pool, render_time
from . import progress
from .progress import Held, Run
from .runner import SYSTEM_PATH, SubprocessRunner, search_path

HOST = "host.lock"
OF_ROOT = "/var/run/flexdisk"
OF_A_NODE = "flexdisk-locks"  # simnode.__main__ makes it
TRANSFER = "transfer-"
_SUFFIX = ".lock"
_AS_ROOT = f"root (become: true) has its own, {OF_ROOT}"
_POLL = 0.2
_SILENT = 5  # seconds without news that are worth to be told


def place() -> str:
    """The directory of locks: one for the host, or one beside the program zfs, as a simulated node has.

    A lock protects the storage that the program zfs reaches, so tasks with another zfs need not wait. Whoever can put a
    directory beside zfs could replace that program, too. A directory beside the system's zfs is ignored.

    Without root, it is in the home of the user as the host's user database has it, and named after the host, because
    homes can be shared. Nothing in the environment counts: a session and a cron job of one user differ there. Nobody
    else can make a directory in a home. Raises FlexdiskError NotPermitted for a user without a home.
    """
    zfs = shutil.which("zfs", path=search_path())
    folder = os.path.dirname(os.path.abspath(zfs)) if zfs else ""
    beside = os.path.join(folder, OF_A_NODE)
    if folder not in ("", *SYSTEM_PATH.split(":")) and os.path.lexists(beside):
        return beside
    return os.path.join(_home(), f".flexdisk-locks-{os.uname().nodename}") if os.geteuid() else OF_ROOT


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError as exc:
        text = f"uid {os.geteuid()} is no user of this host, so there is no place for its locks; {_AS_ROOT}"
        raise FlexdiskError("NotPermitted", text) from exc


def _unusable(path: str, why: object) -> FlexdiskError:
    way_out = f"; {_AS_ROOT}" if os.geteuid() else ""
    return FlexdiskError("NotPermitted", f"the directory of locks {path} cannot be used: {why}{way_out}")


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


def _said(fd: int) -> t.Optional[Run]:
    """What a lock file says of its holder."""
    try:
        said = json.loads(os.pread(fd, 4096, 0).decode("utf-8", "replace"))
        result = Run(int(said["pid"]), str(said["host"]), str(said["since"]), str(said["task"]))
    except (KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return result


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as exc:
        return getattr(exc, "errno", 0) == errno.EPERM
    return True


def _holder(directory: int, name: str, fd: int) -> str:
    """The holder of a lock, and where it is."""
    said = _said(fd)
    if said is None:
        return "a task that has not identified itself yet"
    text = f"{said.task} (pid {said.pid} on {said.host} since {said.since})"
    if not _lives(said.pid):
        text += ", which is gone, but a program that it started still runs"
    told = progress.read(_progress_of(name), directory)
    if told is None or not _is_of(told[0], said):
        return text
    silent = f", no news for {told[2]} s" if told[2] >= _SILENT else ""
    return f"{text}, {told[1].line}{silent}"


def _is_of(run: Run, holder: t.Optional[Run]) -> bool:
    """Whether what a run tells is told by the holder of a lock."""
    return holder is not None and (run.pid, run.since) == (holder.pid, holder.since)


def _progress_of(name: str) -> str:
    return name[: -len(_SUFFIX)] + progress.SUFFIX


def _holders(directory: int, pool: t.Optional[str]) -> t.List[str]:
    """The holders of locks that a task for the pool, or for all pools (None), would wait for."""
    result = []
    for name in sorted(os.listdir(directory)):
        if not name.endswith(_SUFFIX) or name.startswith(TRANSFER) or not _concerns(name, pool):
            continue
        with _held(directory, name) as fd:
            if fd is not None:
                result.append(_holder(directory, name, fd))
    return result


def _concerns(name: str, pool: t.Optional[str]) -> bool:
    """Whether a task for the pool, or for all (None), would wait for this lock."""
    return pool is None or name in (HOST, _file_of(pool))


@contextlib.contextmanager
def _held(directory: int, name: str) -> t.Iterator[t.Optional[int]]:
    """A descriptor of a lock file that somebody holds, None if nobody does."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    except OSError:
        yield None
        return
    try:
        yield None if _take(fd, fcntl.LOCK_SH) else fd
    finally:
        os.close(fd)


def under_way(pool: t.Optional[str]) -> t.List[t.Dict[str, t.Any]]:
    """Where runs are that a task for the pool, or for all pools (None), would wait for; and all transfers.

    state: C(running), C(outlived) if only a program still runs that it has started, or C(dead).
    """
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return []  # there is none, so nobody tells anything
    try:
        names = [name for name in sorted(os.listdir(directory)) if name.endswith(progress.SUFFIX)]
        locks = [name[: -len(progress.SUFFIX)] + _SUFFIX for name in names]
        return [
            one
            for name in locks
            if name.startswith(TRANSFER) or _concerns(name, pool)
            for one in _told(directory, name)
        ]
    finally:
        os.close(directory)


def _told(directory: int, name: str) -> t.Iterator[t.Dict[str, t.Any]]:
    told = progress.read(_progress_of(name), directory)
    if told is None:
        return
    run, where, silent = told
    with _held(directory, name) as fd:
        held, said = fd is not None, None if fd is None else _said(fd)
    if held and said is None:
        return  # nobody knows whether it is that of the holder
    again = progress.read(_progress_of(name), directory)
    if again is None or again[0] != run:
        return  # it has ended meanwhile: who ends removes its file before it gives up its lock
    state = "dead"
    if _is_of(run, said):
        state = "running" if _lives(run.pid) else "outlived"
    lock = name[: -len(_SUFFIX)]
    yield {"lock": lock, "state": state, "silent": silent, **run._asdict(), **where._asdict(), "line": where.line}


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


def transfer_of(vm: str) -> str:
    """Return who replicates or moves the VM with this uuid at the moment, and where that is; "" for nobody."""
    try:
        directory = _directory(create=False)
    except FlexdiskError:
        return ""
    try:
        name = f"{TRANSFER}{vm}{_SUFFIX}"
        with _held(directory, name) as fd:
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
        found = set()
        for name in os.listdir(directory):
            if name.startswith(TRANSFER) and name.endswith(_SUFFIX):
                with _held(directory, name) as fd:
                    found |= set() if fd is None else {name[len(TRANSFER) : -len(_SUFFIX)]}
        return found
    finally:
        os.close(directory)


@contextlib.contextmanager
def exclusive(
    runner: SubprocessRunner,
    pool: t.Optional[str],
    timeout: float,
    task: str,
    pause: t.Callable[[float], None] = time.sleep,
) -> t.Iterator[Held]:
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
        run = _run(task)
        _say(fds[-1], run)
        runner.inherited = (*before, *fds)
        yield Held(os.path.join(place(), _progress_of(wanted[-1][0])), run)
    finally:
        runner.inherited = before
        for fd in [*fds, directory]:
            os.close(fd)


@contextlib.contextmanager
def transfers(runner: SubprocessRunner, vms: t.Sequence[str], task: str) -> t.Iterator[Held]:
    """Lock transfers of VMs (by uuids) for the body, beside whatever else is locked: one run at a time replicates a VM.
    What is held is named by the first.

    A transfer may take hours, so nobody waits for it. Raises FlexdiskError as exclusive() does.
    """
    names, run = [f"{TRANSFER}{vm}{_SUFFIX}" for vm in vms], _run(task)
    directory = _directory(create=True)
    fds: t.List[int] = []
    before = runner.inherited
    try:
        for name in sorted(names):
            fds.append(os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory))
            if not _take(fds[-1], fcntl.LOCK_EX):
                time.sleep(_POLL)  # those who look whether it is held hold it for a moment
                if not _take(fds[-1], fcntl.LOCK_EX):
                    raise FlexdiskError(
                        "Locked", f"the disks are being replicated by {_holder(directory, name, fds[-1])}"
                    )
            _say(fds[-1], run)
        runner.inherited = (*before, *fds)
        yield Held(os.path.join(place(), _progress_of(names[0])) if names else "", run)
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


def _say(fd: int, run: Run) -> None:
    """Write who holds a lock. It is held all the same if that cannot be written."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(run._asdict()).encode(), 0)
