# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands before zfs, zpool, vmadm and imgadm on PATH, counts the commands of a module and spoils those it is told to.

A single file with nothing but the standard library, so that it can be copied to any machine, and of that no more than
it must: it starts before every command. `python3 shim.py FOLDER`
installs it there under the names of the programs; put FOLDER first on PATH. FOLDER/fault holds a Fault, none
without it; FOLDER/calls gets a line for each command. The real programs are the next ones on PATH, and the
commands that they run themselves are not counted.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROGRAMS = ("zfs", "zpool", "vmadm", "imgadm", "sysinfo", "kstat")
CHANGES = ("set", "inherit", "create", "clone", "rename", "destroy", "snapshot", "hold", "release")
SIGKILL = 9
TEAR = "FLEXDISK_FAULT_TEAR"
WORDS = {"set": "set property for", "inherit": "inherit property for", "get": "open", "status": "open"}


class Fault:
    """What happens to the command number `nth` of a module, counted from 1.

    Attributes:
        lasting: to every command from there on, too.
        only: the beginnings of command lines that it happens to; any without.
        spares: the beginnings of those that it does not happen to.
        effect: whether the command is carried out.
        kill: the module dies "first" or "last", before or after the command's effect; "controller" if another kills
            the controller while the command waits; "" if all live.
        status: what the module is told: 0 for the truth, else an exit status, negative for death by that signal.
        complaint: what is said on stderr, by program; {what} stands for the words of zfs about what it cannot do.
        seconds: what the command waits before its effect; beyond the time-out of the caller, it is given up.
        guest: seconds that the guest needs to shut down, which this command asks it to.
        boundary: "POINT: FAULT", what happens to vmadm between two of its own steps (simnode/vmadm/boundaries.py).
        cut: the command is carried out, and the second half of the lines that it prints is lost.
        tear: vmadm dies after this number of its own changes to ZFS, zfs after the first of several properties; 0 if
            the command is left alone.
    """

    def __init__(
        self,
        nth: int = 0,
        lasting: bool = False,
        only: Sequence[str] = (),
        effect: bool = False,
        kill: str = "",
        status: int = 0,
        complaint: Mapping[str, str] | None = None,
        seconds: float = 0.0,
        tear: int = 0,
        cut: bool = False,
        spares: Sequence[str] = (),
        guest: float = 0.0,
        boundary: str = "",
    ) -> None:
        self.nth = nth
        self.lasting = lasting
        self.only = only
        self.effect = effect
        self.kill = kill
        self.status = status
        self.complaint = complaint or {}
        self.seconds = seconds
        self.tear = tear
        self.cut = cut
        self.spares = spares
        self.guest = guest
        self.boundary = boundary

    def replace(self, **changed: object) -> Fault:
        """The same but for what is changed."""
        return Fault(**{**vars(self), **changed})

    def hits(self, number: int, argv: Sequence[str]) -> bool:
        """Whether it happens to the command of that number."""
        begun = number == self.nth or (self.lasting and number > self.nth > 0)
        line = " ".join(argv)
        return (
            begun and (not self.only or line.startswith(tuple(self.only))) and not line.startswith(tuple(self.spares))
        )


def changes(argv: Sequence[str]) -> bool:
    """Whether a command can change anything, as every call to libvirt does that is counted."""
    if argv[0] == "libvirt":
        return True
    if argv[0] == "vmadm":
        return argv[1] not in ("get", "lookup", "list", "validate", "info")
    if argv[0] == "qm":
        return argv[1] not in ("config", "list", "pending", "status")
    return argv[0] == "zfs" and argv[1] in CHANGES and list(argv[1:3]) != ["create", "-nP"]


def complain(fault: Fault, argv: Sequence[str]) -> str:
    """What the spoiled command says on stderr."""
    command = argv[1] if len(argv) > 1 else argv[0]  # sysinfo has no arguments
    problem = f"cannot {WORDS.get(command, command)} '{argv[-1]}'"
    return fault.complaint.get(argv[0], fault.complaint.get("", "")).format(what=problem, name=argv[-1])


def shortened(text: str) -> str:
    """The first half of the lines of a text."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: len(lines) // 2])


def part(argv: Sequence[str]) -> list[str]:
    """A zfs command that dies after the first of several properties."""
    return [*argv[:3], argv[-1]] if argv[0] == "zfs" else list(argv)


def install(folder: str | Path) -> None:
    """Write the programs into `folder`; they run with this interpreter."""
    os.makedirs(folder, exist_ok=True)
    text = f"#!{sys.executable} -IS\n{_read(__file__)}"
    for program in PROGRAMS:
        path = os.path.join(folder, program)
        _write(path, text)
        os.chmod(path, 0o755)


def tell(folder: str | Path, fault: Fault | None) -> None:
    """Spoil from now on, and count anew; None spoils nothing."""
    _write(os.path.join(folder, "calls"), "")
    _write(os.path.join(folder, "fault"), render_fault(fault))


def render_fault(fault: Fault | None) -> str:
    """What FOLDER/fault says."""
    return ascii(vars(fault)) if fault else ""


def calls(folder: str | Path) -> list[list[str]]:
    """The commands since the last `tell`."""
    return commands(_read(os.path.join(folder, "calls")))


def commands(text: str) -> list[list[str]]:
    """What FOLDER/calls says."""
    from ast import literal_eval

    return [literal_eval(line) for line in text.splitlines()]


def count(path: str, argv: Sequence[str]) -> int:
    """Write the command, or a call to libvirt, down; its number."""
    with open(path, "a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        number = len(stream.readlines()) + 1
        stream.write(ascii(list(argv)) + "\n")
    return number


def read_fault(folder: str) -> Fault | None:
    """What FOLDER/fault says; None if it says nothing."""
    try:
        text = _read(os.path.join(folder, "fault"))
    except FileNotFoundError:
        return None
    if not text:
        return None
    from ast import literal_eval

    return Fault(**literal_eval(text))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _others(folder: str) -> list[str]:
    """PATH without the shim."""
    return [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.realpath(entry) != folder]


def _undisturbed(folder: str) -> dict[str, str]:
    """The environment of a program whose own commands are its own business."""
    return dict(os.environ, PATH=os.pathsep.join(_others(folder)))


def _real(folder: str, program: str) -> str:
    for entry in _others(folder):
        path = os.path.join(entry, program)
        if os.access(path, os.X_OK):
            return path
    sys.exit(f"{folder}: there is no other {program} on PATH")


def _kill_caller() -> None:
    os.kill(os.getppid(), SIGKILL)


def _tear(folder: str, argv: Sequence[str], last: int) -> int:
    """A change that a vmadm makes which dies after `last` of them."""
    import subprocess

    done = subprocess.run([_real(folder, argv[0]), *argv[1:]], check=False)
    if changes(argv) and count(os.path.join(folder, "torn"), argv) == last:
        _kill_caller()
    return done.returncode


def _spoil(folder: str, fault: Fault, argv: Sequence[str]) -> int:
    import subprocess

    if fault.kill == "first":
        _kill_caller()
    time.sleep(fault.seconds)
    status = 0
    if fault.effect or fault.tear:
        _write(os.path.join(folder, "torn"), "")
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


def main(folder: str, argv: Sequence[str]) -> int:
    """Run one command as told; returns its exit status, unless this process becomes the real program."""
    if TEAR in os.environ:
        return _tear(folder, argv, int(os.environ[TEAR]))
    fault = read_fault(folder)
    number = count(os.path.join(folder, "calls"), argv)
    if fault is not None and fault.hits(number, argv):
        return _spoil(folder, fault, argv)
    real = _real(folder, argv[0])
    return os.execve(real, [real, *argv[1:]], _undisturbed(folder))


if __name__ == "__main__":
    own, name = os.path.split(os.path.realpath(sys.argv[0]))
    if name in PROGRAMS:
        sys.exit(main(own, [name, *sys.argv[1:]]))
    install(sys.argv[1])
