# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys of transfers: made on the home, allowed on the peer for some minutes, removed from both."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
import typing as t

from ...fleet.replication import trust
from ...fleet.replication.transfers import HOST_KEY, KEY
from ...hypervisor import whole_files
from ...model.command import Runner
from ...model.errors import FlexdiskError
from ..host import lock

KNOWN_HOSTS = "known_hosts"  # in the folder of the keys: the keys of the other host
_LOCK_TIMEOUT, _PAUSE = 30, 0.05  # seconds to wait for the lock on the folder of authorized_keys, and between attempts
_HOST_KEY_FILE = re.compile(r"ssh_host_[a-z0-9]{1,20}_key\.pub")


def unresolved(runner: Runner, address: trust.Address) -> str:
    """Return why SSH cannot resolve the address, "" if it can.

    It is also "" on hosts without C(getent), which resolves names as SSH does. An IP address is not looked up, because
    C(getent hosts) of Linux would ask for its name.
    """
    if trust.is_ip(address.host):
        return ""
    try:
        answer = runner(("getent", "hosts", address.host))
    except FlexdiskError as exc:
        if exc.code != "CommandNotFound":
            raise
        return ""
    return f"address {address.host} is not known here: getent hosts finds nothing" if answer.rc == 2 else ""


def keys_folder(vm: str) -> str:
    """Return the folder for the keys of a VM's transfers, in a directory that only the current user can read."""
    return os.path.join(lock.place(), f"transfer-{vm}")


def make_keys(runner: Runner, vm: str, disks: t.Iterable[str]) -> t.Dict[str, str]:
    """Make new keys for the disks of a VM, and remove older ones. Return the public keys by the UUIDs of the disks."""
    forget_keys(vm)
    folder = keys_folder(vm)
    os.mkdir(folder, 0o700)
    result = {}
    for uuid in disks:
        path = os.path.join(folder, uuid)
        answer = runner(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path))
        if answer.rc != 0:
            raise FlexdiskError("CommandFailed", f"ssh-keygen made no key: {answer.stderr.strip()}")
        key = KEY.match(_read(path + ".pub"))
        if key is None:
            raise FlexdiskError("UnexpectedOutput", f"ssh-keygen made no key of ssh-ed25519 in {path}.pub")
        result[uuid] = key[0]
    return result


def forget_keys(vm: str) -> bool:
    """Remove the keys of a VM's transfers, and those that a killed run has left. Return whether there were any."""
    folder = keys_folder(vm)
    if not os.path.lexists(folder):
        return False
    shutil.rmtree(folder)
    return True


def host_keys(folders: t.Sequence[str]) -> t.List[str]:
    """Return the public host keys of this host, from the first of the directories that has any."""
    for folder in folders:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            names = sorted(name for name in os.listdir(folder) if _HOST_KEY_FILE.fullmatch(name))
            texts = [_read(os.path.join(folder, name)) for name in names]
            result = [match[0] for match in map(HOST_KEY.match, texts) if match]
            if result:
                return result
    text = f"no public key of this host, such as ssh_host_ed25519_key.pub, is in {' or '.join(folders)}"
    raise FlexdiskError("ResourceNotFound", text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def expiry(amount: int) -> str:
    """Return the time until which streams of a sync with so many bytes may begin, in local time of this host."""
    return _moment(trust.lifetime(amount))


def _moment(later: int = 0) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + later))


def add_authorized(path: str, lines: t.Mapping[str, str]) -> None:
    """Add lines to authorized_keys, by the UUIDs of the disks. Earlier lines of these disks are replaced."""
    with _locked(path):
        text = trust.without(_authorized(path), lines, _moment())
        text += "" if not text or text.endswith("\n") else "\n"
        _write(path, text + "".join(line + "\n" for line in lines.values()))


def remove_authorized(path: str, uuids: t.Collection[str]) -> None:
    """Remove the lines of these disks from authorized_keys, and those that have expired."""
    if not os.path.lexists(path):
        return
    with _locked(path):
        before = _authorized(path)
        text = trust.without(before, uuids, _moment())
        if text != before:
            _write(path, text)


@contextlib.contextmanager
def _locked(path: str) -> t.Iterator[None]:
    """Lock (flock) the folder of the file, so that concurrent runs do not lose each other's lines."""
    folder = os.path.dirname(os.path.realpath(path))
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise FlexdiskError("NotPermitted", f"{folder} cannot be used: {exc}") from exc
    try:
        _wait_for(fd, folder)
        yield
    finally:
        os.close(fd)


def _wait_for(fd: int, folder: str) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise FlexdiskError("NotPermitted", f"{folder} cannot be locked: {exc}") from exc
            if time.monotonic() > deadline:
                text = f"another program has held the lock on {folder} for {_LOCK_TIMEOUT} s"
                text += "; authorized_keys is not changed"
                raise FlexdiskError("Locked", text) from exc
        time.sleep(_PAUSE)


def _authorized(path: str) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise FlexdiskError("NotPermitted", f"{path} cannot be read: {exc}") from exc


def _write(path: str, text: str) -> None:
    """Replace a file atomically, with the same owner and mode. The target of a symbolic link is replaced."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        try:
            existing = os.stat(path)
        except FileNotFoundError:
            whole_files.replace(path, text.encode())
        else:
            whole_files.replace(path, text.encode(), existing.st_mode & 0o7777, (existing.st_uid, existing.st_gid))
    except OSError as exc:
        raise FlexdiskError("NotPermitted", f"{path} cannot be written: {exc}") from exc
