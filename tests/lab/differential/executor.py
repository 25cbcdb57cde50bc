# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs inside the lab: a whole sequence of commands on a fresh pool, with a look at all properties after each.

Standard library only; it is sent over as text. Reads a request as JSON from stdin (see `main`), writes JSON to stdout.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

MIB = 1 << 20
FOLDER = "/var/tmp"
ENVIRONMENT = {**os.environ, "LC_ALL": "C"}
SECONDS = 1800
BLKZNAME = 0x8100127D
"""ioctl of a zvol's device: the name of its dataset (256 bytes)."""
BLKDISCARD = 0x1277
"""ioctl of a block device: offset and length (bytes) to discard."""


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=False)


def must(*argv: str) -> str:
    """Run a program that has to succeed; its stdout."""
    done = call(*argv)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stderr.strip()}")
    return done.stdout


def fresh_pool(pool: str, size_mib: int, key_file: str) -> int:
    """Make the pool anew on a sparse file; returns the bytes that its datasets may use."""
    drop_pool(pool)
    path = f"{FOLDER}/{pool}.img"
    with open(path, "wb") as image:
        image.truncate(size_mib * MIB)
    with open(key_file, "wb") as key:
        key.write(b"0123456789abcdef" * 2)
    must("zpool", "create", "-f", "-o", "ashift=12", "-O", "compression=off", "-O", "mountpoint=none", pool, path)
    return sum(map(int, must("zfs", "get", "-Hp", "-o", "value", "used,available", pool).split()))


@contextmanager
def alone() -> Iterator[None]:
    """While no other lane does: look into the devices of all lanes, or run commands. To look is to open, and what is
    open is busy.
    """
    with open(f"{FOLDER}/devices.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def drop_pool(pool: str) -> None:
    """Destroy the pool if it is there."""
    if call("zpool", "list", pool).returncode == 0:
        call("udevadm", "settle")
        with alone():
            must("zpool", "destroy", "-f", pool)
    if os.path.exists(f"{FOLDER}/{pool}.img"):
        os.unlink(f"{FOLDER}/{pool}.img")


def find(dataset: str) -> str:
    """The path of a volume's device, "" if there is none."""
    for path in glob.glob("/dev/zd*"):
        if "p" in path:  # a partition
            continue
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:  # it goes away just now
            continue
        name = fcntl.ioctl(handle, BLKZNAME, bytes(256)).split(b"\0")[0].decode()
        os.close(handle)
        if name == dataset:
            return path
    return ""


def device(dataset: str, flags: int) -> int:
    """The opened device of a volume. udev's links linger or get lost when volumes are renamed: the device says who it
    is. Raises FileNotFoundError when there is no such volume: a command before this one failed here and not there.
    """
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        with alone():
            path = find(dataset)
            if path:
                return os.open(path, flags)
        if call("zfs", "list", dataset).returncode:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        call("udevadm", "settle")
        time.sleep(0.05)
    raise RuntimeError(f"no device is {dataset}")


def guest(argv: list[str]) -> tuple[int, str]:
    """`guest write DATASET OFFSET_MIB LENGTH_MIB SEED` and `guest trim DATASET OFFSET_MIB LENGTH_MIB`."""
    start, length = int(argv[2]), int(argv[3])
    try:
        if argv[0] == "write":
            write(device(argv[1], os.O_WRONLY), start, length, argv[4])
        else:
            discard(device(argv[1], os.O_WRONLY), start, length)
        return 0, ""
    except OSError as error:
        return 1, f"guest: cannot {argv[0]} '{argv[1]}': {error.strerror}\n"


def write(handle: int, start: int, length: int, seed: str) -> None:
    """Each MiB is 128 KiB, made from seed and position, over and over: a record of a volume has nothing to compress."""
    try:
        for index in range(start, start + length):
            block = random.Random(f"{seed}:{index}").randbytes(MIB // 8) * 8
            if os.pwrite(handle, block, index * MIB) != MIB:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(handle: int, start: int, length: int) -> None:
    """Give blocks back."""
    try:
        fcntl.ioctl(handle, BLKDISCARD, struct.pack("QQ", start * MIB, length * MIB))
    finally:
        os.close(handle)


def stream(argv: list[str]) -> tuple[int, str]:
    """`stream BYTES SEND... | RECEIVE...`: the stream is cut after so many bytes, unless they are 0."""
    middle = argv.index("|")
    tokens = [token(word) for word in argv[2:middle]]
    sent = subprocess.run(["zfs", *tokens], env=ENVIRONMENT, capture_output=True, timeout=SECONDS, check=False)
    if sent.returncode:
        return sent.returncode, sent.stderr.decode()
    data = sent.stdout[: int(argv[1]) or None]
    receive = ["zfs", *argv[middle + 1 :]]
    done = subprocess.run(receive, input=data, env=ENVIRONMENT, capture_output=True, timeout=SECONDS, check=False)
    return done.returncode, done.stderr.decode()


def token(word: str) -> str:
    """`TOKEN:DATASET` becomes the token of what has been received there; nothing if there is no such dataset."""
    if not word.startswith("TOKEN:"):
        return word
    return call("zfs", "get", "-H", "-o", "value", "receive_resume_token", word.partition(":")[2]).stdout.strip()


class Executor:
    """Runs commands one after the other."""

    def __init__(self, pool: str, look: list[str]) -> None:
        self.pool = pool
        self.look = look
        self.unsettled = False
        """Whether udev may still be busy with devices that came or went."""

    def run(self, argv: list[str]) -> list[object]:
        """Run one command; [exit status, stderr, `zfs get` of everything]."""
        verb = argv[1]
        if self.unsettled and verb in ("destroy", "rename", "rollback"):
            call("udevadm", "settle")
            self.unsettled = False
        if argv[0] == "guest":
            rc, err = guest(argv[1:])
        elif argv[0] == "stream":
            call("udevadm", "settle")
            with alone():
                rc, err = stream(argv)
            self.unsettled = True
        else:
            with alone():
                done = call(*argv)
            rc, err = done.returncode, done.stderr
            self.unsettled |= verb in ("create", "clone", "rename", "rollback")
        if argv[0] != "zfs" or verb in ("destroy", "rollback", "release") or "volsize=" in " ".join(argv):
            must("zpool", "sync", self.pool)
        if verb in ("destroy", "rollback", "release"):
            must("zpool", "wait", "-t", "free", self.pool)
        return [rc, err, must(*self.look)]


def contents(pool: str, written: list[int]) -> dict[str, dict[int, str]]:
    """Digest of every MiB of every volume that is not all zero, among those that were ever written."""
    result: dict[str, dict[int, str]] = {}
    zero = bytes(MIB)
    lines = must("zfs", "list", "-Hp", "-o", "name,volsize", "-t", "volume", "-r", pool).splitlines()
    for name in [name for name, size in map(str.split, lines) if size != "0"]:  # that waits for the rest of a stream
        result[name] = {}
        with os.fdopen(device(name, os.O_RDONLY), "rb", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            for index in [index for index in written if index * MIB < size]:
                stream.seek(index * MIB)
                block = stream.read(MIB)
                if block != zero[: len(block)]:
                    result[name][index] = hashlib.sha256(block).hexdigest()[:16]
    return result


def main() -> None:
    """Request: pool, lane, size_mib, key_file, look (a command), commands, written (MiB to compare).

    Answer: usable (bytes), results (one for each command), contents. Lanes run side by side, each in a pool of its own;
    requests and answers name the pool without the lane.
    """
    text = sys.stdin.read()
    name = json.loads(text)["pool"]
    pool = name + str(json.loads(text)["lane"])
    request = json.loads(text.replace(name, pool))
    with open(f"{FOLDER}/{pool}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer: dict[str, object] = {"usable": fresh_pool(pool, request["size_mib"], request["key_file"])}
        try:
            executor = Executor(pool, request["look"])
            answer["results"] = [executor.run(argv) for argv in request["commands"]]
            answer["contents"] = contents(pool, request["written"]) if request["commands"] else {}
        finally:
            drop_pool(pool)
    sys.stdout.write(json.dumps(answer).replace(pool, name))


if __name__ == "__main__":
    main()
