# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts, one of which sends and the other receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

POOL = "zones"


class Done(NamedTuple):
    """How a command ended."""

    rc: int
    stdout: str
    stderr: str


class Host(ABC):
    """A host with a pool."""

    @abstractmethod
    def run(self, *argv: str) -> Done:
        """Run a command."""

    @abstractmethod
    def run_with(self, stdin: str, *argv: str) -> Done:
        """Run a command with this input."""

    @abstractmethod
    def write(self, volume: str, start: int, length: int, seed: str) -> None:
        """Write so many MiB from so many MiB on: for another seed, other data."""

    @abstractmethod
    def digest(self, volume: str) -> str:
        """Equal for equal contents of whole volumes."""

    def zfs(self, *words: str) -> str:
        """What a command that succeeds prints."""
        done = self.run("zfs", *words)
        assert done.rc == 0, done
        return done.stdout.rstrip("\n")

    def refused(self, *words: str) -> str:
        """What a command that fails says."""
        done = self.run("zfs", *words)
        assert done.rc != 0, done
        return done.stderr

    def get(self, name: str, prop: str) -> str:
        """The exact value of a property."""
        return self.zfs("get", "-Hp", "-o", "value", prop, name)

    def source(self, name: str, prop: str) -> str:
        """Where a property comes from."""
        return self.zfs("get", "-Hp", "-o", "source", prop, name)

    def token(self, name: str) -> str:
        """With which an interrupted stream can be resumed; "-" if none was."""
        return self.get(name, "receive_resume_token")

    def snapshots(self, name: str) -> list[str]:
        """Short names, oldest first."""
        lines = self.zfs("list", "-H", "-o", "name", "-t", "snapshot", "-s", "createtxg", name).splitlines()
        return [line.partition("@")[2] for line in lines]


class Pair(ABC):
    """A source and a target."""

    source: Host
    target: Host

    @abstractmethod
    def pipe(self, send: list[str], receive: list[str], cut: int) -> Done:
        """Send to the target, cut after so many bytes (0: not at all). What the receiver said, or a failed sender."""

    @abstractmethod
    def pipe_back(self, send: list[str], receive: list[str], cut: int) -> Done:
        """The same from the target to the source."""

    def stream(self, send: str, receive: str, cut: int = 0) -> Done:
        """Words of `zfs send` and of `zfs receive`."""
        return self.pipe(["send", *send.split()], ["receive", *receive.split()], cut)

    def sent(self, send: str, receive: str) -> None:
        """The same; it succeeds without a word."""
        done = self.stream(send, receive)
        assert (done.rc, done.stderr) == (0, ""), done

    def refused(self, send: str, receive: str, cut: int = 0) -> str:
        """The same; it fails. What it says."""
        done = self.stream(send, receive, cut)
        assert done.rc != 0, done
        return done.stderr
