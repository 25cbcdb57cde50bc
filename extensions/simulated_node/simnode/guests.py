# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests as processes: a node that has been told a command runs it once for each boot of each of its VMs.

DIR/guests has `command`, and for each guest UUID.pid (its process and its boot), UUID.json (what `vmadm get` said when
it booted) and UUID.log. All of it is changed under the node's lock alone, and from what is there: a command that is
killed leaves nothing that the next one does not put right.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn

if TYPE_CHECKING:
    from simnode.node import Node

POLL_SECONDS = 0.2
"""Seconds between two checks by a keeper whether its guest has ended, or the node is gone."""

_COMMAND = "command"


class Process:
    """A process, identified by its start time, too, because its number may be used again."""

    def __init__(self, pid: int, start: str) -> None:
        self.pid = pid
        self.start = start

    def is_alive(self) -> bool:
        """Return whether it has not ended. A zombie counts as ended."""
        fields = _stat(self.pid)
        return bool(fields) and fields[19] == self.start and fields[0] not in ("Z", "X")

    def end(self) -> None:
        """Kill it with its group, which it leads, and wait until it has ended."""
        while self.is_alive():
            _kill(self.pid)
            time.sleep(0.002)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _stat(pid: int) -> List[str]:
    """Return the fields of /proc/PID/stat after the name: 0 is the state, 19 the start. None without a process."""
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    except OSError:
        return []


def switch_on(directory: Path, command: List[str]) -> None:
    """Let guests run `command` in the current folder. Those that run another one end, and boot again."""
    switch_off(directory)
    folder = directory / "guests"
    folder.mkdir(exist_ok=True)
    _write(folder / _COMMAND, {"argv": command, "folder": os.getcwd()})


def switch_off(directory: Path) -> None:
    """End all guests. Then VMs have no processes."""
    for path in (directory / "guests").glob("*.pid"):
        _end(path)
    (directory / "guests" / _COMMAND).unlink(missing_ok=True)


def reconcile(node: Node, directory: Path) -> None:
    """End the guests of boots that are over, and start a guest for each boot without one.

    A guest that has ended by itself is not started again before the next boot.
    """
    folder = directory / "guests"
    boots = {
        uuid: [record["created"], record.get("boots", 0)]
        for uuid, record in node.vmadm_state.get("vms", {}).items()
        if record["zone_state"] == "running"
    }
    for path in folder.glob("*.pid"):
        if json.loads(path.read_text())["boot"] != boots.get(path.stem):
            _end(path)
    command: Dict[str, Any] = json.loads((folder / _COMMAND).read_text())
    for uuid, boot in boots.items():
        path = folder / (uuid + ".pid")
        if not path.exists():
            _begin(node, path, boot, command)


def _end(path: Path) -> None:
    stored = json.loads(path.read_text())
    Process(stored["pid"], stored["start"]).end()
    path.unlink()


def _begin(node: Node, path: Path, boot: Any, command: Dict[str, Any]) -> None:
    """Start a guest, and return when it runs the command, or that has failed."""
    from simnode.vmadm import vmobj

    _write(path.with_suffix(".json"), vmobj.load(node, path.stem))
    error_reader, error_writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(lambda: _become_keeper(path, boot, command, error_writer))
    os.close(error_writer)
    os.waitpid(child, 0)
    with os.fdopen(error_reader) as stream:
        failure = stream.read()
    if failure:
        with path.with_suffix(".log").open("a") as log:
            log.write(failure + "\n")


def _child(act: Callable[[], None]) -> NoReturn:
    """Run the rest of a forked process, which must never return to the code of its parent."""
    try:
        act()
    finally:
        os._exit(1)


def _become_keeper(path: Path, boot: Any, command: Dict[str, Any], error_writer: int) -> None:
    """Become the keeper of a new guest: a daemon in a session of its own.

    It holds the node's lock, which it has inherited, until the .pid file is written. So no other command runs before
    that, even if the one that started the guest is killed. It kills the guest's process group when the group's first
    process ends, and when the .pid file vanishes because somebody removes the node's folder.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    pid = os.fork()
    if pid == 0:
        _child(lambda: _become_guest(path, command, error_writer))
    try:
        _write(path, {"pid": pid, "start": _stat(pid)[19], "boot": boot})
        _close_all()
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None and path.exists():
            time.sleep(POLL_SECONDS)
    finally:
        _kill(pid)  # not waited for yet, so its number is nobody else's


def _become_guest(path: Path, command: Dict[str, Any], error_writer: int) -> None:
    """Become the guest. Write errors to the program that waits for it."""
    try:
        os.setsid()
        log = os.open(str(path.with_suffix(".log")), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that would be inherited
        os.chdir(command["folder"])
        _close_all(but=error_writer)
        environment = {**os.environ, "SIMNODE_VM": str(path.with_suffix(".json"))}
        os.execvpe(command["argv"][0], [*command["argv"], path.stem], environment)
    except OSError as error:
        os.write(error_writer, ("simnode: the guest did not start: %s" % error).encode())


def _close_all(but: int = -1) -> None:
    """Close inherited descriptors, because a guest must not hold locks and pipes of the program that started its VM."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != but:
            with contextlib.suppress(OSError):  # one of them was open for the list alone
                os.close(int(name))


def _write(path: Path, data: Any) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(data))
    os.replace(fresh, path)
