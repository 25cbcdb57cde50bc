# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Files that are disks: made, sized, copied to and from devices."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

from .errors import ZfsError

PIECE = 4 << 20
MOUNTS = "/proc/self/mounts"
DEVICES = "/dev/"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_Told = t.Callable[[int], None]


class Files:
    """Paths are absolute, sizes bytes. Raises ZfsError FileFailed with the path and what the system said."""

    def mounted(self, folder: str, name: str) -> bool:
        """Whether this file system is mounted there, uncovered. Raises ZfsError Changed where another one is."""
        with _opened(MOUNTS, os.O_RDONLY) as handle, open(handle, "rb", closefd=False) as stream:
            return _mounted([line.split() for line in os.fsdecode(stream.read()).splitlines()], folder, name)

    def size(self, path: str) -> int:
        """-1 where there is no such file."""
        try:
            return os.lstat(path).st_size
        except FileNotFoundError:
            return -1
        except OSError as exc:
            raise _failed(path, exc) from exc

    def make(self, path: str, size: int) -> None:
        """A new file that reads as zeros, or one of that size that is there already; root's alone."""
        with _opened(path, os.O_RDWR | os.O_CREAT) as handle:
            os.ftruncate(handle, size)
            os.fsync(handle)

    def resize(self, path: str, size: int) -> None:
        """What is beyond a smaller size is gone."""
        with _opened(path, os.O_RDWR) as handle:
            os.ftruncate(handle, size)
            os.fsync(handle)

    def copy(self, source: str, target: str, size: int, told: _Told) -> None:
        """The first bytes of one onto another that is empty, and synced; told how far it is after each piece.

        Zeros are not written, so that what takes no space in one takes none in the other.
        """
        zeros = bytes(PIECE)
        with _opened(source, os.O_RDONLY) as reading, _opened(target, os.O_RDWR) as writing:
            done = 0
            while done < size:
                piece = os.pread(reading, min(PIECE, size - done), done)
                if not piece:
                    raise ZfsError("FileFailed", f"{source} ends after {done} of {size} bytes")
                if piece != zeros[: len(piece)]:
                    _write(writing, piece, done)
                done += len(piece)
                told(done)
            os.fsync(writing)

    def remove_folder(self, folder: str) -> None:
        """Only an empty one that nothing is mounted on; any other stays."""
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _mounted(lines: t.Iterable[t.Sequence[str]], folder: str, name: str) -> bool:
    """By the lines of MOUNTS, of which a later one covers what an earlier one has mounted there or above."""
    places = [[_ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), word) for word in line[:2]] for line in lines]
    if not any(place == folder for _device, place in places):
        return False
    device, place = [p for p in places if (folder + "/").startswith(p[1].rstrip("/") + "/")][-1]
    if [device, place] != [name, folder]:
        raise ZfsError("Changed", f"{device} is mounted at {place}, where {name} belongs")
    return True


def _write(handle: int, piece: bytes, offset: int) -> None:
    while piece:
        written = os.pwrite(handle, piece, offset)
        piece, offset = piece[written:], offset + written


@contextlib.contextmanager
def _opened(path: str, flags: int) -> t.Iterator[int]:
    """A volume's name is a link of udev's; a file's is none."""
    handle, device = -1, path.startswith(DEVICES)
    try:
        handle = os.open(path, flags | os.O_CLOEXEC | (0 if device else os.O_NOFOLLOW), 0o600)
        if device and not stat.S_ISBLK(os.fstat(handle).st_mode):
            raise ZfsError("FileFailed", f"{path} is no block device")
        yield handle
    except OSError as exc:
        raise _failed(path, exc) from exc
    finally:
        if handle >= 0:
            os.close(handle)


def _failed(path: str, exc: OSError) -> ZfsError:
    return ZfsError("FileFailed", f"{path}: {exc.strerror or exc}")
