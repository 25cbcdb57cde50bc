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
USAGE = """usage: guest write DATASET OFFSET_MIB LENGTH_MIB SEED
       guest trim DATASET OFFSET_MIB LENGTH_MIB
       guest hash DATASET [OFFSET_MIB LENGTH_MIB]
"""
Result = Tuple[int, str, str]


def main(argv: List[str]) -> Result:
    """Run `guest` with these arguments: exit status, stdout, stderr."""
    command, rest = argv[0] if argv else "", argv[1:]
    wanted = {"write": (4,), "trim": (3,), "hash": (1, 3)}.get(command, ())
    if len(rest) not in wanted or not all(text.isdigit() for text in rest[1:3]):
        return 2, "", USAGE
    start, length = (int(rest[1]), int(rest[2])) if len(rest) > 1 else (0, 0)
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
    """The volume's device, as soon as it is there, or a file in the file system."""
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
    """The MiB of that index: the same for the same seed, incompressible."""
    return random.Random(f"{seed}:{index}").randbytes(MIB)


def _write(dataset: str, path: str, start: int, length: int, seed: str) -> Result:
    device = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC if "/dev/" not in path else os.O_WRONLY | os.O_SYNC)
    try:
        for index in range(start, start + length):
            try:
                os.pwrite(device, _data(seed, index), index * MIB)
            except OSError as error:
                return 1, "", f"guest: cannot write '{dataset}': {error.strerror} at {index} MiB\n"
    finally:
        os.close(device)
        subprocess.run(["zpool", "sync", dataset.split("/")[0]], check=False)
    return 0, "", ""


def _hash(path: str, start: int, length: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        stream.seek(start * MIB)
        left = length * MIB if length else 1 << 62
        while left > 0:
            block = stream.read(min(left, MIB))
            if not block:
                break
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _trim(path: str, start: int, length: int) -> Result:
    argv = ["blkdiscard", "-o", str(start * MIB), "-l", str(length * MIB), path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    subprocess.run(["zpool", "sync"], check=False)
    return done.returncode, done.stdout, done.stderr
