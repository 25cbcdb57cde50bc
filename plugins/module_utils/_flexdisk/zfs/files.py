# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that are disks: create, resize, copy to and from devices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import typing as t

from .errors import ZfsError

PIECE = 4 << 20
MOUNTS = "/proc/self/mounts"
DEVICES = "/dev/"
PROCESSES = "/proc"
_BLKROGET = 0x125E  # linux/fs.h: _IO(0x12, 94)
_ESCAPED = re.compile(r"\\([0-7]{3})")
_Progress = t.Callable[[int], None]


class Files:
    """Files of disks. Paths are absolute, sizes are bytes. Raises ZfsError FileFailed with the path and the reason."""

    def mounted(self, folder: str, name: str) -> bool:
        """Whether this file system is mounted at the path, uncovered. Raises ZfsError Changed if another one is."""
        with _opened(MOUNTS, os.O_RDONLY) as handle, open(handle, "rb", closefd=False) as stream:
            return _mounted([line.split() for line in os.fsdecode(stream.read()).splitlines()], folder, name)

    def size(self, path: str) -> int:
        """Return the size of a file, -1 if there is none."""
        try:
            return os.lstat(path).st_size
        except FileNotFoundError:
            return -1
        except OSError as exc:
            raise _failed(path, exc) from exc

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return os.path.lexists(path)

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise _failed(path, exc) from exc

    def make(self, path: str, size: int) -> None:
        """Create a file of zeros that only root can read. An existing file keeps its data and gets the size."""
        with _opened(path, os.O_RDWR | os.O_CREAT) as handle:
            os.ftruncate(handle, size)
            os.fsync(handle)

    def resize(self, path: str, size: int) -> None:
        """Set the size of a file. A smaller size cuts data off."""
        with _opened(path, os.O_RDWR) as handle:
            os.ftruncate(handle, size)
            os.fsync(handle)

    def copy(self, source: str, target: str, size: int, progress: _Progress) -> None:
        """Copy the first bytes of a file or device to an empty one, and sync it. progress: called with the bytes done.

        Zeros are not written, so the copy takes no space for them.
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
                progress(done)
            os.fsync(writing)

    def is_read_only(self, device: str) -> bool:
        """Whether nobody can open a device for writing.

        ZFS looks at the property readonly of a volume only when nobody else has it open. Until then, the old one holds.
        """
        with _opened(device, os.O_RDONLY) as handle:
            return any(fcntl.ioctl(handle, _BLKROGET, bytes(4)))

    def programs(self, folder: str) -> t.List[str]:
        """Return the processes that keep the file system of a folder mounted, each with its name."""
        device = os.stat(folder).st_dev
        return [f"{_name(process)} ({process})" for process in _processes() if _uses(process, device)]

    def remove_folder(self, folder: str) -> None:
        """Remove a folder if it is empty and nothing is mounted on it."""
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _processes() -> t.List[str]:
    return sorted(filter(str.isdecimal, os.listdir(PROCESSES)), key=int)


def _name(process: str) -> str:
    with contextlib.suppress(OSError), open(f"{PROCESSES}/{process}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return "?"


def _uses(process: str, device: int) -> bool:
    """Whether a process has its place, or something open or mapped, on a device. One that has ended uses nothing."""
    links = [f"{PROCESSES}/{process}/{name}" for name in ("cwd", "root")]
    for name in ("fd", "map_files"):
        folder = f"{PROCESSES}/{process}/{name}"
        with contextlib.suppress(OSError):
            links += [f"{folder}/{entry}" for entry in os.listdir(folder)]
    for link in links:
        with contextlib.suppress(OSError):
            if os.stat(link).st_dev == device:
                return True
    return False


def _mounted(lines: t.Iterable[t.Sequence[str]], folder: str, name: str) -> bool:
    """Whether the file system is mounted, by the lines of MOUNTS. A later mount at or above a path covers it."""
    places = [[_ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), word) for word in line[:2]] for line in lines]
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
    """Open a device or a file. The path of a volume is a link, that of a file is not."""
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
