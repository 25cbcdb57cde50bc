# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Images in files, raw or qcow2, through qemu-img: it reads their size, and copies them onto a volume."""

from __future__ import annotations

import json
import typing as t

from ..model.command import Runner
from ..model.errors import FlexdiskError

FORMATS = ("raw", "qcow2")
PATIENCE = 4 * 3600


class ImageFile(t.NamedTuple):
    """An image in a file. size is bytes, as a guest sees it."""

    path: str
    format: str
    size: int


def probe(runner: Runner, path: str) -> ImageFile:
    """Read an image file. Raises FlexdiskError InvalidArgument for a path that is not absolute or names no file, for
    other formats, and for an overlay, whose other half is at a path that somebody has written into it.
    """
    if not path.startswith("/") or any(ord(c) < 32 for c in path):
        raise FlexdiskError(
            "InvalidArgument", f"image_file {path!r}: give the absolute path of a file on the hypervisor"
        )
    argv = ("qemu-img", "info", "--output=json", path)
    answer = runner(argv)
    if answer.rc != 0:
        raise FlexdiskError("InvalidArgument", f"image_file {path}: {answer.stderr.strip() or 'no message'}")
    return _parse(path, answer.stdout)


def _parse(path: str, stdout: str) -> ImageFile:
    try:
        found = json.loads(stdout)
        image = ImageFile(path, found["format"], int(found["virtual-size"]))
    except (KeyError, RecursionError, TypeError, ValueError) as exc:
        raise FlexdiskError("UnexpectedOutput", f"qemu-img info {path} printed no JSON of an image: {exc!r}") from exc
    if image.format not in FORMATS or image.size <= 0:
        words = (path, image.format, image.size, " or ".join(FORMATS))
        raise FlexdiskError(
            "InvalidArgument", "image_file %s is an image of format %s and %d bytes; it must be %s" % words
        )
    if found.get("backing-filename") or found.get("format-specific", {}).get("data", {}).get("data-file"):
        raise FlexdiskError("InvalidArgument", f"image_file {path} depends on another file; flatten it first")
    return image


def convert(runner: Runner, image: ImageFile, device: str) -> None:
    """Copy the whole image onto a device, which must be large enough and empty."""
    argv = ("qemu-img", "convert", "-n", "--target-is-zero", "-f", image.format, "-O", "raw", image.path, device)
    answer = runner(argv, timeout=PATIENCE)
    if answer.rc != 0:
        raise FlexdiskError(
            "ImageNotImported",
            f"{answer.stderr.strip() or 'qemu-img failed without a message'} (rc {answer.rc} of: {' '.join(argv)})",
        )
