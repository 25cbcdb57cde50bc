# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the growth of a disk in a guest, step by step. After any step, the next run can plan again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import typing as t

from ...guest.observed import SWAP_HEADER_BYTES, swap_page
from ...guest.steps import Backup, CopySwapHeader, Plan, Run, SetActive, Step, Unchanged
from ...guest.table import ACTIVE, HEAD_BYTES, protective
from ...hypervisor import whole_files
from ...model.command import Answer
from ...model.errors import FlexdiskError
from ...model.sizes import MIB
from ..host.runner import SubprocessRunner

_WRONG_PASSPHRASE = 2  # the status of cryptsetup
LOCK_TIMEOUT = 30  # seconds. udev holds the lock while it reads a disk, for example when one has grown.


class GuestApplier:
    """Carries out the steps of a plan. backups: a directory. passphrase: of LUKS."""

    def __init__(self, runner: SubprocessRunner, backups: str, passphrase: str = "") -> None:
        self._runner = runner
        self._backups = backups
        self._passphrase = passphrase

    def test(self, plan: Plan) -> None:
        """Check, before anything is changed, what could fail later.

        Raises FlexdiskError InvalidArgument, InsufficientSpace, GrowthFailed.
        """
        for step in plan.steps:
            if isinstance(step, Backup):
                check_room(self._backups, step)
        for each in plan.tests:
            answer = self._runner(each.argv, stdin=self._passphrase if each.secret else each.stdin)
            if each.secret and answer.rc == _WRONG_PASSPHRASE:
                raise FlexdiskError("InvalidArgument", f"luks_passphrase is none of those of {each.argv[-1]}")
            if answer.rc:
                raise _failed(each, answer)

    def apply(self, plan: Plan) -> None:
        """Carry out all steps. Raises FlexdiskError GrowthFailed, Changed, Locked, FileFailed, InsufficientSpace."""
        table, rest = plan.steps[: plan.table], plan.steps[plan.table :]
        with _locked(plan.device, self._runner) if table else contextlib.nullcontext():
            self._apply_table(plan.device, table)
        for step in rest:
            self.step(plan.device, step)

    def _apply_table(self, device: str, steps: t.Sequence[Step]) -> None:
        """Carry out the steps for the partition table. Undo them after a failure before the table is written."""
        undo: t.List[Step] = []
        try:
            for step in steps:
                self.step(device, step)
                if isinstance(step, Run):
                    undo = [] if step.argv[0] == "sfdisk" else [*map(Run, step.undo), *undo]
        except FlexdiskError as exc:
            undo += [step for step in steps if isinstance(step, SetActive) and self._has_marker(step)]
            errors = [error for error in (self._try(device, step) for step in undo) if error]
            if not errors:
                raise
            text = f"{exc.message}; what was done before could not be undone: {'; '.join(errors)}"
            raise FlexdiskError(exc.code, text) from exc

    def _has_marker(self, step: SetActive) -> bool:
        return os.path.exists(os.path.join(self._backups, step.name))

    def _try(self, device: str, step: Step) -> str:
        """Carry out a step. Return why it failed, "" if it did not."""
        try:
            self.step(device, step)
        except FlexdiskError as exc:
            return exc.message
        return ""

    def step(self, device: str, step: Step) -> None:
        """Carry out one step."""
        if isinstance(step, Backup):
            write_backup(self._backups, step)
        elif isinstance(step, CopySwapHeader):
            copy_swap_header(device, step)
        elif isinstance(step, SetActive):
            set_active(device, os.path.join(self._backups, step.name))
        elif isinstance(step, Unchanged):
            if self._runner(("sfdisk", "-d", device)).stdout != step.text:
                raise FlexdiskError("Changed", f"somebody has changed the partition table of {device} meanwhile")
        else:
            answer = self._runner(step.argv, stdin=self._passphrase if step.secret else step.stdin, timeout=3600)
            if answer.rc:
                raise _failed(step, answer)


def _failed(step: Run, answer: Answer) -> FlexdiskError:
    output = (answer.stderr + answer.stdout).strip()[-2000:]
    return FlexdiskError("GrowthFailed", f"{' '.join(step.argv)} ended with status {answer.rc}: {output}")


@contextlib.contextmanager
def _locked(device: str, runner: SubprocessRunner) -> t.Iterator[None]:
    """Lock the disk as systemd's rules for block devices ask for. Programs that outlive this run hold the lock, too.

    The device is opened for writing, because udev, which ignores a locked disk, reads it again when that is closed.
    """
    with open(device, "r+b", buffering=0) as file:
        end = time.monotonic() + LOCK_TIMEOUT
        while not _flock(file.fileno()):
            if time.monotonic() >= end:
                raise FlexdiskError("Locked", f"another program has locked {device}; run again")
            time.sleep(0.1)
        runner.inherited = (file.fileno(),)
        try:
            yield
        finally:
            runner.inherited = ()


def _flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_room(folder: str, backup: Backup) -> None:
    """Raise FlexdiskError InsufficientSpace if the file system has no space for a backup."""
    existing = os.path.abspath(folder)
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    status = os.statvfs(existing)
    full = status.f_bfree * status.f_frsize < len(backup.text.encode())
    if full or (status.f_files and not status.f_ffree):
        raise _no_room(folder, backup)


def _no_room(folder: str, backup: Backup) -> FlexdiskError:
    path, size = os.path.join(folder, backup.name), len(backup.text.encode())
    return FlexdiskError(
        "InsufficientSpace",
        f"the partition table's backup {path} needs {size} bytes, and its file system is full; nothing was changed. "
        "Make room there, or name another directory with backup_dir",
    )


def write_backup(folder: str, backup: Backup) -> None:
    """Write a backup so that it survives a crash. Raises FlexdiskError FileFailed, InsufficientSpace."""
    path = os.path.join(folder, backup.name)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        whole_files.replace(path, backup.text.encode())
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(folder, backup) from exc
        raise FlexdiskError("FileFailed", f"the backup {path} cannot be written: {exc}") from exc


def set_active(device: str, marker: str) -> None:
    """Set the active flag of a protective MBR, then remove a file. Raises FlexdiskError Changed, FileFailed."""
    try:
        handle = os.open(device, os.O_RDWR)
        try:
            at = protective(os.pread(handle, HEAD_BYTES, 0))
            if not at:
                raise FlexdiskError("Changed", f"{device} has no protective MBR any more")
            os.pwrite(handle, bytes([ACTIVE]), at)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.unlink(marker)
    except OSError as exc:
        raise FlexdiskError("FileFailed", f"{device} cannot be written, or {marker} not removed: {exc}") from exc


def copy_swap_header(device: str, step: CopySwapHeader) -> None:
    """Copy the header of a swap area to another place, and zero the rest of the first MiB there.

    Raises FlexdiskError UnknownLayout, FileFailed.
    """
    try:
        handle = os.open(device, os.O_RDWR)
        try:
            head = os.pread(handle, SWAP_HEADER_BYTES, step.source)
            page, flaw = swap_page(head)
            if flaw:
                raise FlexdiskError("UnknownLayout", f"the swap at byte {step.source} of {device} has {flaw}")
            os.pwrite(handle, head[:page] + bytes(MIB - page), step.target)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as exc:
        raise FlexdiskError("FileFailed", f"{device} cannot be written: {exc}") from exc
