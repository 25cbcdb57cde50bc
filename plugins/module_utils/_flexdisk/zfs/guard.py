# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guard a disk while it is detached: a hold makes every destroy of its volume fail.

With libzfs_core the hold is bound to this process, so the kernel releases it if the process dies. The command line can
only place an ordinary hold and release it. The hold is on a snapshot of the disk that nobody else uses.
"""

from __future__ import annotations

import os
import typing as t

from ..rules.identity import GUARD_SNAPSHOT
from . import exact
from .commands import Zfs
from .errors import ZfsError

SNAPSHOT = GUARD_SNAPSHOT
TAG = "flexdisk-guard"


def load_libzfs_core() -> t.Tuple[t.Any, str]:
    """Return the library if a call to it works, and else why not.

    The release 0.2.3 on PyPI is recognised by a missing function and refused: its C signatures are those of 2016 and
    crash the interpreter. A library that can be imported may still lack its C half, so one harmless call is made.
    """
    try:
        import libzfs_core  # type: ignore[import-not-found,unused-ignore]
    except Exception as exc:  # pylint: disable=broad-except  # it may be there for another Python
        return None, f"libzfs_core cannot be imported: {exc}"
    if not hasattr(libzfs_core, "lzc_channel_program"):
        return None, "libzfs_core is the release 0.2.3 of PyPI, which crashes on every OpenZFS since 0.8"
    try:
        libzfs_core.lzc_exists(b"flexdisk-probe")
    except Exception as exc:  # pylint: disable=broad-except
        return None, f"libzfs_core does not work here: {exc}"
    return libzfs_core, ""


class Guard:
    """Context manager around the critical part of a detach.

    backend: what protects the disk: C(libzfs_core), C(cli), or C(none) if there was no space for the snapshot that the
    hold needs.
    """

    def __init__(self, zfs: Zfs, library: t.Any) -> None:
        self._zfs = zfs
        self._library = library
        self._fd = -1
        self._volumes: t.List[str] = []
        self._snapshot = ""
        self.backend = "none"

    def __enter__(self) -> Guard:
        return self

    def protect(self, volume: str, newest: str = "") -> None:
        """Place a hold on a snapshot taken for it. Without space, use newest, the short name of the newest snapshot."""
        self._volumes, self._snapshot = [volume], SNAPSHOT
        try:
            self._zfs.snapshot(f"{volume}@{SNAPSHOT}")
        except ZfsError as exc:
            if exc.code == "InsufficientSpace":
                self._snapshot = newest
            elif exc.code != "AlreadyExists":
                raise
        if self._snapshot and not self._hold_by_library():
            self._hold_by_command()

    def _hold_by_library(self) -> bool:
        if self._library is None:
            return False
        try:
            self._fd = os.open("/dev/zfs", os.O_EXCL | os.O_RDWR)
            name = f"{self._volumes[0]}@{self._snapshot}"
            self._library.lzc_hold({name.encode(): TAG.encode()}, fd=self._fd)
        except Exception:  # pylint: disable=broad-except  # its errors share no base class with ours
            self._drop()
            return False
        self.backend = "libzfs_core"
        return True

    def _hold_by_command(self) -> None:
        try:
            self._zfs.hold(TAG, f"{self._volumes[0]}@{self._snapshot}")
        except ZfsError as exc:
            if exc.code != "AlreadyExists":
                raise
        self.backend = "cli"

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def moving(self, volume: str) -> None:
        """Record that the volume is about to be renamed together with its snapshots."""
        self._volumes.append(volume)

    def __exit__(self, kind: t.Optional[t.Type[BaseException]], *exc: object) -> None:
        """Remove the guard. An error of the guarded part is not hidden by an error here."""
        by_command = self._fd < 0
        self._drop()
        try:
            for volume in self._volumes if self._snapshot else ():
                lift(self._zfs, volume, self._snapshot, by_command)
        except ZfsError:
            if kind is None:
                raise


def lift(zfs: Zfs, volume: str, snapshot: str = SNAPSHOT, on_hold: bool = True) -> None:
    """Remove a guard, if there is one. Raises ZfsError NotApplied if it is still there: nothing would show it later."""
    name = f"{volume}@{snapshot}"
    if on_hold:
        _unless_gone(lambda: zfs.release(TAG, name))
    if snapshot == SNAPSHOT and _unless_gone(lambda: exact.destroy_own(zfs, name)) and zfs.exists(name):
        raise ZfsError("NotApplied", f"{name} still exists, although zfs reported no error when it destroyed it")


def _unless_gone(step: t.Callable[[], None]) -> bool:
    """Run a step. Return False if its dataset does not exist any more."""
    try:
        step()
    except ZfsError as exc:
        if exc.code != "ResourceNotFound":
            raise
        return False
    return True
