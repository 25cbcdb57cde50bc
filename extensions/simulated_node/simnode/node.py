# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node: its pools, its clock, its VMs' state, and the commands one runs on it."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
    cast,
)

from simnode.clock import STEP, Clock
from simnode.zfs.storage import Event, Storage

if TYPE_CHECKING:  # each program of the node starts faster without them
    from pathlib import Path
    from types import TracebackType

Result = Tuple[int, str, str]
REMOTE = ("ssh", "ssh-keygen", "getent")  # programs that ask no node
PVE = ("qm", "pvesm")


class PoolSpec(NamedTuple):
    """What a pool is made of. `size` is what it can hold in bytes, redundancy already taken off.

    `vdevs` are top-level vdevs: {"type": "disk" | "mirror" | "raidz1".."raidz3" | "draid1:4d", "disks": n}.
    `version` is "illumos", "2.1" or "2.3". An encrypted pool has a `passphrase`, which is loaded.
    `encrypts`: its feature `encryption` is enabled.
    """

    name: str = "zones"
    size: int = 64 << 30
    ashift: int = 12
    vdevs: Sequence[Dict[str, Any]] = ({"type": "disk", "disks": 1},)
    version: str = "illumos"
    passphrase: str = ""
    encrypts: bool = True


class Node:
    """A simulated node, in memory or in a directory; `open` is a context manager that locks, loads and saves."""

    def __init__(
        self, directory: Optional[Union[Path, str]], pools: Storage, vmadm_state: Optional[Dict[str, Any]]
    ) -> None:
        self.directory = directory
        self.pools = pools
        self.clock = pools.clock
        self._vmadm_state = vmadm_state
        self._vmadm_text = ""
        self._lock: Optional[IO[str]] = None
        self.at_boundary: Optional[Callable[[str], None]] = None  # as simnode.vmadm.boundaries has it
        self.patience: Optional[float] = None

    # -- birth, opening, saving ------------------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Optional[Path], pools: List[PoolSpec], seed: int = 1) -> Node:
        """Create a node with empty pools. It is written to `directory` at once unless that is None."""
        storage = Storage(Clock(), seed)
        for spec in pools:
            pool = storage.add_pool(spec.name, spec.size, spec.ashift, spec.vdevs, spec.version, spec.passphrase)
            pool.encrypts = spec.encrypts
        node = cls(directory, storage, {} if seed == 1 else {"seed": f"simulated node {seed}"})  # disks of its own
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            node.save()
        return node

    @classmethod
    def open(cls, directory: Union[Path, str]) -> Node:
        """Open the node in `directory`. Wait for its lock, which is held until `close`."""
        lock = open(os.path.join(directory, "lock"), "a")  # noqa: SIM115  close() closes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = json.loads(_read(os.path.join(directory, "state.json")))
        clock = Clock(float(_read(os.path.join(directory, "clock"))))
        node = cls(directory, Storage.from_json(clock, data), None)
        node._lock = lock
        return node

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.save()
            self._reconcile_guests()
        self.close()

    def _reconcile_guests(self) -> None:
        if self.directory is not None and os.path.exists(os.path.join(self.directory, "guests", "command")):
            from pathlib import Path

            from simnode import guests

            guests.reconcile(self, Path(self.directory))

    def close(self) -> None:
        """Give the lock back without saving."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def save(self) -> None:
        """Write what has changed (no-op for a node in memory)."""
        if self.directory is None:
            return
        if self.pools.dirty:
            _replace(os.path.join(self.directory, "state.json"), _dump(self.pools.to_json()))
            self.pools.dirty = False
        if self._vmadm_state is not None:
            text = _dump(self._vmadm_state)
            if text != self._vmadm_text:
                _replace(os.path.join(self.directory, "vmadm.json"), text)
                self._vmadm_text = text
        _replace(os.path.join(self.directory, "clock"), repr(self.clock.now()))

    # -- vmadm's view ----------------------------------------------------------------------------------------------

    @property
    def vmadm_state(self) -> Dict[str, Any]:
        """The state of vmadm: a dictionary of JSON values, loaded at first use."""
        if self._vmadm_state is None:
            path = os.path.join(self.directory or "", "vmadm.json")
            self._vmadm_text = _read(path) if os.path.exists(path) else "{}"
            self._vmadm_state = cast(Dict[str, Any], json.loads(self._vmadm_text))
        return self._vmadm_state

    @property
    def state(self) -> Dict[str, Any]:
        """The same, under the name that `vmadm` knows."""
        return self.vmadm_state

    @state.setter
    def state(self, value: Dict[str, Any]) -> None:
        self._vmadm_state = value

    def zfs(self, argv: List[str], stdin: str = "") -> Result:
        """`zfs` with these arguments."""
        from simnode.zfs import cli

        return cli.zfs_main(self.pools, list(argv), stdin)

    def zpool(self, argv: List[str]) -> Result:
        """`zpool` with these arguments."""
        from simnode.zfs import cli_zpool

        return cli_zpool.main(self.pools, list(argv))

    def zdb(self, argv: List[str]) -> Result:
        """`zdb` with these arguments."""
        from simnode.zfs import cli_zdb

        return cli_zdb.main(self.pools, list(argv))

    def guest(self, argv: List[str]) -> Result:
        """`guest` with these arguments."""
        from simnode import guest

        return guest.main(self.pools, list(argv))

    def events(self, cursor: int) -> List[Event]:
        """Events newer than `cursor`, at most the newest 2000."""
        return self.pools.events(cursor)

    def now(self) -> float:
        """Epoch seconds of the virtual clock."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Advance the virtual clock."""
        self.clock.advance(seconds)

    # -- everyone's view -------------------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], stdin: str = "") -> Result:
        """Run a command line; argv[0] is the name of a program. Returns exit status, stdout, stderr."""
        program, rest = argv[0].rpartition("/")[2], list(argv[1:])
        self.clock.advance(STEP)
        if program == "zfs":
            return self.zfs(rest, stdin)
        if program == "zpool":
            return self.zpool(rest)
        if program == "zdb":
            return self.zdb(rest)
        if program == "guest":
            return self.guest(rest)
        if program in PVE:
            from simnode.pve import on_node

            return on_node.run(self, program, rest)
        from simnode import vmadm

        if program in vmadm.PROGRAMS:
            return vmadm.run(program, self, rest, stdin)
        return 127, "", f"{program}: not found\n"


def run_program(directory: str, program: str, argv: List[str]) -> int:
    """What the generated programs do: run one command on the node in `directory`; returns the exit status.

    A negative one is that of a vmadm that is killed: this process ends by the same signal, when the node is saved.
    """
    if program in REMOTE:
        from pathlib import Path

        from simnode import ssh

        return ssh.main(Path(directory), program, argv)
    stdin = sys.stdin.read() if _reads_stdin(program, argv) else ""
    with Node.open(directory) as node:
        status, out, err = node.run([program, *argv], stdin)
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    return status


def _reads_stdin(program: str, argv: List[str]) -> bool:
    """`zfs receive` takes a stream, other commands a key; vmadm takes its payload from stdin unless it got a file or
    key=value arguments.
    """
    if program == "zfs":
        keyed = argv[:1] == ["create"] and any("keyformat=passphrase" in text for text in argv)
        return keyed or argv[:1] in (["receive"], ["recv"], ["load-key"], ["change-key"])
    if (
        program != "vmadm"
        or not argv
        or argv[0] not in ("create", "update", "validate", "reprovision", "receive", "recv")
    ):
        return False
    return "-f" not in argv and not any("=" in text for text in argv[1:])


def _dump(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _read(path: str) -> str:
    with open(path) as stream:
        return stream.read()


def _replace(path: str, text: str) -> None:
    fresh = path + ".new"
    with open(fresh, "w") as stream:
        stream.write(text)
    os.replace(fresh, path)
