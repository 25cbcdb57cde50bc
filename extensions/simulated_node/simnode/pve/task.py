# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run of a command: what it has printed, its locks, and the zfs commands it has started."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Set

from simnode.pve.errors import PveError
from simnode.pve.host import PveHost

LOCK_SECONDS = 10
BUSY_ATTEMPTS = 6


class Run:
    """A command on a node. `worker`: the command runs as a task, whose warnings go to stdout."""

    def __init__(self, host: PveHost) -> None:
        self.host = host
        self.worker = False
        self.out: List[str] = []
        self.err: List[str] = []
        self.activated: Set[str] = set()
        self.warnings = 0

    def say(self, text: str) -> None:
        """Print a line on stdout."""
        self.out.append(text + "\n")

    def warn(self, text: str) -> None:
        """Print a warning: on stderr, of a task on stdout."""
        (self.out if self.worker else self.err).append(text + "\n")

    def task_warning(self, text: str) -> None:
        """Print a warning that the task counts."""
        self.say("WARN: " + text)
        self.warnings += 1

    @property
    def device_seconds(self) -> int:
        """How long the device of a volume is waited for: tasks have more patience."""
        return 300 if self.worker else 10

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        """Hold the flock of a file. Raises PveError if another process holds it for ten seconds."""
        if not self.host.lock(path):
            self.err.append("trying to acquire lock...\n")
            self.host.sleep(LOCK_SECONDS)
            if not self.host.lock(path):
                raise PveError(f"can't lock file '{path}' - got timeout", 4)
        try:
            yield
        finally:
            self.host.unlock(path)

    def zfs(self, *argv: str) -> str:
        """Return the stdout of a zfs command.

        Raises PveError with the last line of its stderr; the others are printed.
        """
        status, out, err = self.host.zfs(list(argv))
        if status:
            lines = err.splitlines() or ["command failed"]
            for line in lines[:-1]:
                self.warn(line)
            raise PveError("zfs error: " + lines[-1], 1)
        return out

    def zfs_destroy(self, dataset: str) -> None:
        """Destroy a volume with its snapshots. What is busy is tried six times, what is not there is fine."""
        for attempt in range(BUSY_ATTEMPTS):
            try:
                self.zfs("destroy", "-r", dataset)
            except PveError as error:
                if "dataset does not exist" in error.text:
                    return
                if "dataset is busy" not in error.text or attempt == BUSY_ATTEMPTS - 1:
                    raise
                self.host.sleep(1)
            else:
                return


def ordered(run: Run, keys: List[str]) -> List[str]:
    """Return the keys in the order of a hash, which differs from run to run.

    The state may say `order`: a list of keys, which come first and in this order.
    """
    wanted: List[str] = run.host.state.get("order", [])
    count = int(run.host.state.get("hashes", 0)) + 1
    run.host.state["hashes"] = count

    def place(key: str) -> Any:
        if key in wanted:
            return 0, wanted.index(key), ""
        import hashlib

        return 1, 0, hashlib.sha256(f"{count}:{key}".encode()).hexdigest()

    return sorted(keys, key=place)


def qemus(run: Run) -> Dict[str, Dict[str, Any]]:
    """Return what the running QEMUs have, by the VM's id as text."""
    found: Dict[str, Dict[str, Any]] = run.host.state.setdefault("running", {})
    return found
