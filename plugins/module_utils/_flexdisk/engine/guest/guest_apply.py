# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the growth of a disk in a guest, step by step. Each may be the last: the next run plans anew."""

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
PATIENCE = 30  # seconds. udev holds the lock while it looks at a disk, as it does at once when one has grown.


class Doer:
    """Does the steps of a plan. backups is a directory, passphrase that of LUKS."""

    def __init__(self, runner: SubprocessRunner, backups: str, passphrase: str = "") -> None:
        self._runner = runner
        self._backups = backups
        self._passphrase = passphrase

    def test(self, plan: Plan) -> None:
        """What can fail later is tried before anything changes.

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

    def do(self, plan: Plan) -> None:
        """All steps of a plan. Raises FlexdiskError GrowthFailed, Changed, Locked, FileFailed, InsufficientSpace."""
        table, rest = plan.steps[: plan.table], plan.steps[plan.table :]
        with _locked(plan.device, self._runner) if table else contextlib.nullcontext():
            self._table(plan.device, table)
        for step in rest:
            self.step(plan.device, step)

    def _table(self, device: str, steps: t.Sequence[Step]) -> None:
        """What was done before a failure is undone, unless the table is written by then."""
        undo: t.List[Step] = []
        try:
            for step in steps:
                self.step(device, step)
                if isinstance(step, Run):
                    undo = [] if step.argv[0] == "sfdisk" else [*map(Run, step.undo), *undo]
        except FlexdiskError as exc:
            undo += [step for step in steps if isinstance(step, SetActive) and self._marked(step)]
            failed = [said for said in (self._try(device, step) for step in undo) if said]
            if not failed:
                raise
            text = f"{exc.message}; what was done before could not be undone: {'; '.join(failed)}"
            raise FlexdiskError(exc.code, text) from exc

    def _marked(self, step: SetActive) -> bool:
        return os.path.exists(os.path.join(self._backups, step.name))

    def _try(self, device: str, step: Step) -> str:
        """Why a step failed, "" if it did not."""
        try:
            self.step(device, step)
        except FlexdiskError as exc:
            return exc.message
        return ""

    def step(self, device: str, step: Step) -> None:
        """One step."""
        if isinstance(step, Backup):
            keep(self._backups, step)
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
    said = (answer.stderr + answer.stdout).strip()[-2000:]
    return FlexdiskError("GrowthFailed", f"{' '.join(step.argv)} ended with status {answer.rc}: {said}")


@contextlib.contextmanager
def _locked(device: str, runner: SubprocessRunner) -> t.Iterator[None]:
    """Hold the disk as systemd's rules for block devices have it. Programs that outlive this run hold it too.

    It is opened for writing, because udev looks again when such a file is closed. It has left the locked disk alone.
    """
    with open(device, "r+b", buffering=0) as file:
        end = time.monotonic() + PATIENCE
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
    """That a backup can be written, as far as its file system tells. Raises FlexdiskError InsufficientSpace."""
    there = os.path.abspath(folder)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    found = os.statvfs(there)
    full = found.f_bfree * found.f_frsize < len(backup.text.encode())
    if full or (found.f_files and not found.f_ffree):
        raise _no_room(folder, backup)


def _no_room(folder: str, backup: Backup) -> FlexdiskError:
    path, size = os.path.join(folder, backup.name), len(backup.text.encode())
    return FlexdiskError(
        "InsufficientSpace",
        f"the partition table's backup {path} needs {size} bytes, and its file system is full; nothing was changed. "
        "Make room there, or name another directory with backup_dir",
    )


def keep(folder: str, backup: Backup) -> None:
    """Write a backup so that it outlives a crash. Raises FlexdiskError FileFailed, InsufficientSpace."""
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
    """Make the header of a swap the start of another place, and the rest of its first MiB zeros.

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
