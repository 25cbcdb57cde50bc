# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands before zfs, zpool, vmadm and imgadm on PATH, counts the commands of a module and spoils those it is told to.

A single file with nothing but the standard library, so that it can be copied to any machine. `python3 shim.py FOLDER`
installs it there under the names of the programs; put FOLDER first on PATH. FOLDER/fault.json holds a Fault, none
without it; FOLDER/calls gets one line of JSON for each command. The real programs are the next ones on PATH, and the
commands that they run themselves are not counted.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("zfs", "zpool", "vmadm", "imgadm")
CHANGES = ("set", "inherit", "create", "clone", "rename", "destroy", "snapshot", "hold", "release")
TEAR = "FLEXDISK_FAULT_TEAR"
WORDS = {"set": "set property for", "inherit": "inherit property for", "get": "open", "status": "open"}


class Fault(NamedTuple):
    """What happens to the command number `nth` of a module, counted from 1.

    Attributes:
        lasting: to every command from there on, too.
        only: the beginnings of command lines that it happens to; any without.
        effect: whether the command is carried out.
        kill: the module dies "first" or "last", before or after the command's effect; "controller" if another kills
            the controller while the command waits; "" if all live.
        status: what the module is told: 0 for the truth, else an exit status, negative for death by that signal.
        complaint: what is said on stderr, by program; {what} stands for the words of zfs about what it cannot do.
        seconds: what the command waits before its effect; beyond the time-out of the caller, it is given up.
        tear: vmadm dies after this number of its own changes to ZFS, zfs after the first of several properties; 0 if
            the command is left alone.
    """

    nth: int = 0
    lasting: bool = False
    only: Sequence[str] = ()
    effect: bool = False
    kill: str = ""
    status: int = 0
    complaint: Mapping[str, str] = {}
    seconds: float = 0.0
    tear: int = 0

    def hits(self, number: int, argv: Sequence[str]) -> bool:
        """Whether it happens to the command of that number."""
        begun = number == self.nth or (self.lasting and number > self.nth > 0)
        return begun and (not self.only or " ".join(argv).startswith(tuple(self.only)))


def changes(argv: Sequence[str]) -> bool:
    """Whether a command can change anything."""
    if argv[0] == "vmadm":
        return argv[1] not in ("get", "lookup", "list", "validate", "info")
    return argv[0] == "zfs" and argv[1] in CHANGES and list(argv[1:3]) != ["create", "-nP"]


def complain(fault: Fault, argv: Sequence[str]) -> str:
    """What the spoiled command says on stderr."""
    what = "cannot %s '%s'" % (WORDS.get(argv[1], argv[1]), argv[-1])
    return fault.complaint.get(argv[0], fault.complaint.get("", "")).format(what=what, name=argv[-1])


def part(argv: Sequence[str]) -> list[str]:
    """A zfs command that dies after the first of several properties."""
    return [*argv[:3], argv[-1]] if argv[0] == "zfs" else list(argv)


def install(folder: Path) -> None:
    """Write the programs into `folder`; they run with this interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "#!%s -IS\n%s" % (sys.executable, Path(__file__).read_text(encoding="utf-8"))
    for program in PROGRAMS:
        path = folder / program
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


def tell(folder: Path, fault: Fault | None) -> None:
    """Spoil from now on, and count anew; None spoils nothing."""
    (folder / "calls").write_text("", encoding="utf-8")
    (folder / "fault.json").write_text(json.dumps(fault._asdict() if fault else {}), encoding="utf-8")


def calls(folder: Path) -> list[list[str]]:
    """The commands since the last `tell`."""
    return [json.loads(line) for line in (folder / "calls").read_text(encoding="utf-8").splitlines()]


def _count(path: Path, argv: Sequence[str]) -> int:
    """Write the command down; its number."""
    with path.open("a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        number = len(stream.readlines()) + 1
        stream.write(json.dumps(list(argv)) + "\n")
    return number


def _told(folder: Path) -> Fault:
    try:
        return Fault(**json.loads((folder / "fault.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Fault()


def _others(folder: Path) -> list[str]:
    """PATH without the shim."""
    return [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.realpath(entry) != str(folder)]


def _undisturbed(folder: Path) -> dict[str, str]:
    """The environment of a program whose own commands are its own business."""
    return dict(os.environ, PATH=os.pathsep.join(_others(folder)))


def _real(folder: Path, program: str) -> str:
    for entry in _others(folder):
        found = os.path.join(entry, program)
        if os.access(found, os.X_OK):
            return found
    sys.exit("%s: there is no other %s on PATH" % (folder, program))


def _kill_caller() -> None:
    os.kill(os.getppid(), signal.SIGKILL)


def _tear(folder: Path, argv: Sequence[str], last: int) -> int:
    """A change that a vmadm makes which dies after `last` of them."""
    import subprocess

    done = subprocess.run([_real(folder, argv[0]), *argv[1:]], check=False)
    if changes(argv) and _count(folder / "torn", argv) == last:
        _kill_caller()
    return done.returncode


def _spoil(folder: Path, fault: Fault, argv: Sequence[str]) -> int:
    import subprocess  # takes longer to import than all the rest

    if fault.kill == "first":
        _kill_caller()
    time.sleep(fault.seconds)
    status = 0
    if fault.effect or fault.tear:
        (folder / "torn").unlink(missing_ok=True)
        environment = dict(os.environ, **{TEAR: str(fault.tear)}) if fault.tear else _undisturbed(folder)
        quiet = subprocess.DEVNULL if fault.status else None
        real = [_real(folder, argv[0]), *(part(argv) if fault.tear else argv)[1:]]
        status = subprocess.run(real, env=environment, stdout=quiet, stderr=quiet, check=False).returncode
    if fault.kill == "last":
        _kill_caller()
    if fault.status < 0:
        os.kill(os.getpid(), -fault.status)
    sys.stderr.write(complain(fault, argv))
    return fault.status or status


def main(folder: Path, argv: Sequence[str]) -> int:
    """Run one command as told; returns its exit status, unless this process becomes the real program."""
    if TEAR in os.environ:
        return _tear(folder, argv, int(os.environ[TEAR]))
    fault = _told(folder)
    if fault.hits(_count(folder / "calls", argv), argv):
        return _spoil(folder, fault, argv)
    real = _real(folder, argv[0])
    return os.execve(real, [real, *argv[1:]], _undisturbed(folder))


if __name__ == "__main__":
    own = Path(sys.argv[0]).resolve()
    if own.name in PROGRAMS:
        sys.exit(main(own.parent, [own.name, *sys.argv[1:]]))
    install(Path(sys.argv[1]))
