# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image files, raw or qcow2: qemu-img reads their size, and copies them to a volume."""

from __future__ import annotations

import contextlib
import json
import os

from ..model.command import Runner
from ..model.desired import ImageFile
from ..model.errors import FlexdiskError

FORMATS = ("raw", "qcow2")
PATIENCE = 4 * 3600


class _Opened:
    """Context manager: keep an image file open, so that it stays the same file even if its path is replaced."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def __enter__(self) -> _Opened:
        # If it does not exist, qemu-img reports it.
        with contextlib.suppress(OSError):
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def fingerprint(self) -> str:
        """The identity of the file and its last change. The time of an inode's change cannot be set by users."""
        if self._fd < 0:
            return ""
        now = os.fstat(self._fd)
        return f"{now.st_dev}:{now.st_ino}:{now.st_size}:{now.st_mtime_ns}:{now.st_ctime_ns}"

    @property
    def name(self) -> str:
        """A path by which a child process opens exactly this file, where the platform has one."""
        mine = f"/proc/{os.getpid()}/fd/{self._fd}"
        return mine if self._fd >= 0 and os.path.exists(mine) else self.path

    def _swapped(self) -> bool:
        """Whether a child process, which opens the file by its path, may have got another one."""
        if self._fd < 0 or self.name != self.path:
            return False
        try:
            return not os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except OSError:
            return True

    def confirm(self, known: str) -> None:
        """Raise FlexdiskError C(Changed) if it is not the planned file, or has changed since."""
        if self._swapped() or self.fingerprint != known:
            raise FlexdiskError("Changed", f"image_file {self.path} changed since it was read; run the task again")


def probe(runner: Runner, path: str) -> ImageFile:
    """Read an image file.

    Raises FlexdiskError InvalidArgument for a path that is not absolute or names no file, for other formats, and for an
    overlay, which depends on another file at a path that its author has chosen.
    """
    if not path.startswith("/") or any(ord(c) < 32 for c in path):
        raise FlexdiskError(
            "InvalidArgument", f"image_file {path!r}: give the absolute path of a file on the hypervisor"
        )
    with _Opened(path) as file:
        fingerprint = file.fingerprint
        answer = runner(("qemu-img", "info", "--output=json", file.name))
        if answer.rc != 0:
            text = answer.stderr.strip().replace(file.name, path)
            raise FlexdiskError("InvalidArgument", f"image_file {path}: {text or 'no message'}")
        file.confirm(fingerprint)
    return _parse(path, answer.stdout)._replace(fingerprint=fingerprint)


def _parse(path: str, stdout: str) -> ImageFile:
    try:
        data = json.loads(stdout)
        image = ImageFile(path, data["format"], int(data["virtual-size"]))
    except (KeyError, RecursionError, TypeError, ValueError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"qemu-img info {path} printed no JSON of an image: {exc!r}") from exc
    if image.format not in FORMATS or image.size <= 0:
        parts = (path, image.format, image.size, " or ".join(FORMATS))
        raise FlexdiskError(
            "InvalidArgument", "image_file %s is an image of format %s and %d bytes; it must be %s" % parts
        )
    if data.get("backing-filename") or data.get("format-specific", {}).get("data", {}).get("data-file"):
        raise FlexdiskError("InvalidArgument", f"image_file {path} depends on another file; flatten it first")
    return image


def convert(runner: Runner, image: ImageFile, device: str) -> None:
    """Copy the whole image to a device, which must be large enough and empty. Raises FlexdiskError Changed if it is not
    the file that was read before, or changes meanwhile.
    """
    with _Opened(image.path) as file:
        file.confirm(image.fingerprint)
        argv = ("qemu-img", "convert", "-n", "--target-is-zero", "-f", image.format, "-O", "raw", file.name, device)
        answer = runner(argv, timeout=PATIENCE)
        if answer.rc != 0:
            text = answer.stderr.strip().replace(file.name, image.path)
            raise FlexdiskError(
                "ImageNotImported",
                f"{text or 'qemu-img failed without a message'} (rc {answer.rc} of: {' '.join(argv)})",
            )
        file.confirm(image.fingerprint)
