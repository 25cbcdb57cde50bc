# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `guest` command on a real volume, or on a file in a file system, the disk if there is one."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import subprocess
import time
from typing import List, Tuple

MIB = 1 << 20
DEVICE_SECONDS = 20
USAGE = """usage: guest write DATASET OFFSET LENGTH SEED
       guest trim DATASET OFFSET LENGTH
       guest hash DATASET [OFFSET LENGTH]
Figures are MiB, with a K behind them KiB, with a B bytes. A SEED that begins with text or zeros is what is written.
"""
Result = Tuple[int, str, str]
_UNITS = {"K": 1024, "B": 1}
_TEXT = b"The quick brown fox jumps over the lazy dog. "


def size(text: str) -> int:
    """Return the bytes of a size, -1 for anything else."""
    unit = _UNITS.get(text[-1:], MIB)
    digits = text[:-1] if text[-1:] in _UNITS else text
    return int(digits) * unit if digits.isdigit() else -1


def main(argv: List[str]) -> Result:
    """Run `guest` with these arguments: exit status, stdout, stderr."""
    command, rest = argv[0] if argv else "", argv[1:]
    wanted = {"write": (4,), "trim": (3,), "hash": (1, 3)}.get(command, ())
    if len(rest) not in wanted or any(size(text) < 0 for text in rest[1:3]):
        return 2, "", USAGE
    start, length = (size(rest[1]), size(rest[2])) if len(rest) > 1 else (0, 0)
    try:
        path = _path(rest[0])
        if command == "hash":
            return 0, _hash(path, start, length) + "\n", ""
        if command == "trim":
            return _trim(path, start, length)
        return _write(rest[0], path, start, length, rest[3])
    except OSError as error:
        return 1, "", f"guest: cannot {command} '{rest[0]}': {error.strerror}\n"


def _path(dataset: str) -> str:
    """Return the volume's device, as soon as it exists, or a file in the file system."""
    kind = _property(dataset, "type")
    if kind == "filesystem":
        disk = os.path.join(_property(dataset, "mountpoint"), "disk.raw")
        return disk if os.path.exists(disk) else os.path.join(_property(dataset, "mountpoint"), "guest-data")
    path = "/dev/zvol/" + dataset
    deadline = time.monotonic() + DEVICE_SECONDS
    while not os.path.exists(path) and time.monotonic() < deadline:
        subprocess.run(["udevadm", "settle"], check=False)
        time.sleep(0.1)
    return path


def _property(dataset: str, name: str) -> str:
    argv = ["zfs", "get", "-Hpo", "value", name, dataset]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.ENOENT, "dataset does not exist")
    return done.stdout.strip()


def _data(seed: str, index: int) -> bytes:
    """The MiB of that index: the same for the same seed, incompressible unless the seed says text or zeros."""
    if seed.startswith("zeros"):
        return bytes(MIB)
    if seed.startswith("text"):
        return (_TEXT * (MIB // len(_TEXT) + 1))[:MIB]
    return random.Random(f"{seed}:{index}").randbytes(MIB)


def _write(dataset: str, path: str, start: int, length: int, seed: str) -> Result:
    device = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC if "/dev/" not in path else os.O_WRONLY | os.O_SYNC)
    try:
        for index in range(start // MIB, -(-(start + length) // MIB)):
            first, last = max(start, index * MIB), min(start + length, (index + 1) * MIB)
            try:
                os.pwrite(device, _data(seed, index)[first - index * MIB : last - index * MIB], first)
            except OSError as error:
                return 1, "", f"guest: cannot write '{dataset}': {error.strerror} at {index} MiB\n"
    finally:
        os.close(device)
        subprocess.run(["zpool", "sync", dataset.split("/")[0]], check=False)
    return 0, "", ""


def _hash(path: str, start: int, length: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        stream.seek(start)
        left = length if length else 1 << 62
        while left > 0:
            block = stream.read(min(left, MIB))
            if not block:
                break
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _trim(path: str, start: int, length: int) -> Result:
    argv = ["blkdiscard", "-o", str(start), "-l", str(length), path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    subprocess.run(["zpool", "sync"], check=False)
    return done.returncode, done.stdout, done.stderr
