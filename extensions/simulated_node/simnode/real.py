# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated `vmadm` over the real `zfs` of a laboratory machine.

`python3 -m simnode.real install DIR --pool zones` writes the programs vmadm, imgadm, sysinfo, kstat and guest into
DIR; further commands are `advance SECONDS`, those of `simnode.vmadm.admin`, and `serve`, which runs one program after
the other as lines of JSON on stdin demand. The VMs' configurations are kept in /var/lib/simnode, locked while a
command runs. ZFS's own history is the source of events. Waiting moves a clock of its own and takes no time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Dict, List, Optional, Tuple

from simnode import vmadm
from simnode.vmadm import admin

STATE = Path("/var/lib/simnode")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROGRAMS = (*vmadm.PROGRAMS, "guest")
BUSY_ATTEMPTS = 5
_HISTORY = re.compile(
    r"\S+ \[txg:(\d+)\] (create|clone swap|clone|set|inherit|rename|destroy|snapshot|hold|release) (\S+) \(\d+\)"
)
_ROLLBACK = "/%rollback"
_EVENTS_PER_TXG = 20
# Options that only SmartOS's clone and destroy know.
_SMARTOS_ONLY = {"-rF": "-r"}
_PROGRAM = """#!{python} -IS
import sys

sys.path.insert(0, {library!r})

from simnode.real import run_program

sys.exit(run_program({program!r}, sys.argv[1:], {directory!r}))
"""
Result = Tuple[int, str, str]


def run_command(argv: List[str], stdin: str = "") -> Result:
    """Run a real command with messages in English."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


class RealHost:
    """A VmadmHost whose zfs is real. A context manager: locked and loaded inside, saved at its end."""

    def __init__(self, directory: Path = STATE) -> None:
        self.directory = directory
        self.state: Dict[str, Any] = {}
        self._pools: List[str] = []
        self._lock: Optional[IO[str]] = None

    def __enter__(self) -> RealHost:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("a")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        path = self.directory / "state.json"
        self.state = json.loads(path.read_text()) if path.exists() else {"seed": os.urandom(16).hex()}
        self.state["booted"] = int(BOOT_ID.read_text()[:8], 16)  # not when, but it differs from boot to boot
        return self

    def __exit__(self, *_error: object) -> None:
        fresh = self.directory / "state.new"
        fresh.write_text(json.dumps(self.state))
        os.replace(fresh, self.directory / "state.json")
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def zfs(self, argv: List[str]) -> Result:
        if argv[:1] in (["clone"], ["destroy"]):
            argv = [_SMARTOS_ONLY.get(word, word) for word in argv if word != "-F"]
        for _attempt in range(BUSY_ATTEMPTS):
            result = run_command(["zfs", *argv])
            if result[0] == 0 or argv[0] not in ("destroy", "rollback") or "dataset is busy" not in result[2]:
                break
            # Whoever reacts to a new device has it open for a moment.
            run_command(["udevadm", "settle"])
        return result

    def zpool(self, argv: List[str]) -> Result:
        return run_command(["zpool", *argv])

    def events(self, cursor: int) -> List[Tuple[int, str, str]]:
        result: List[Tuple[int, str, str]] = []
        self._pools = self._pools or self.zpool(["list", "-H", "-o", "name"])[1].split()
        for pool in self._pools:
            result.extend(parse_history(self.zpool(["history", "-i", pool])[1]))
        return sorted(event for event in result if event[0] > cursor)

    def now(self) -> float:
        return time.time() + float(self.state.get("clock_offset", 0.0))

    def sleep(self, seconds: float) -> None:
        self.state["clock_offset"] = float(self.state.get("clock_offset", 0.0)) + seconds


def parse_history(text: str) -> List[Tuple[int, str, str]]:
    """Events of `zpool history -i`: (sequence, kind, dataset). Sequences are made of the transaction group."""
    result: List[Tuple[int, str, str]] = []
    group, index = -1, 0
    for line in text.splitlines():
        match = _HISTORY.match(line)
        if match is None:
            continue
        txg, kind, name = int(match.group(1)), match.group(2), match.group(3)
        index = index + 1 if txg == group else 0
        group = txg
        if name.endswith(_ROLLBACK):
            if kind != "clone swap":
                continue
            kind, name = "rollback", name[: -len(_ROLLBACK)]
        result.append(((txg << _EVENTS_PER_TXG) + index, kind, name))
    return result


def run_program(program: str, argv: List[str], directory: str = str(STATE)) -> int:
    """Run an installed program. Return the exit status."""
    stdin = sys.stdin.read() if program == "vmadm" and vmadm.reads_stdin(argv) else ""
    result = _execute(program, argv, stdin, Path(directory))
    if result[0] < 0:
        os.kill(os.getpid(), -result[0])
    sys.stdout.write(result[1])
    sys.stdout.flush()
    sys.stderr.write(result[2])
    return result[0]


def _execute(program: str, argv: List[str], stdin: str, directory: Path) -> Result:
    """One program: ours in this process, any other as it is."""
    if program == "guest":
        from simnode import real_guest

        return real_guest.main(argv)
    if program not in PROGRAMS and program != "admin":
        return run_command([program, *argv], stdin)
    with RealHost(directory) as host:
        if program == "admin":
            return _administer(host, argv)
        return vmadm.run(program, host, argv, stdin)


def _administer(host: RealHost, argv: List[str]) -> Result:
    if argv[0] == "advance":
        host.sleep(float(argv[1]))
        return 0, "", ""
    if argv[0] == "now":
        return 0, f"{host.now()}\n", ""
    return admin.COMMANDS[argv[0]](host, argv[1:])


def serve(directory: Path) -> None:
    """For each line {"argv": [...], "stdin": "..."} run the program and answer a line [status, stdout, stderr]."""
    for line in sys.stdin:
        wanted = json.loads(line)
        result = _execute(wanted["argv"][0], wanted["argv"][1:], wanted.get("stdin", ""), directory)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def install(target: Path, pool: str, directory: Path) -> None:
    """Write the programs into `target`. Raises ValueError if there is no such pool."""
    if run_command(["zpool", "list", "-H", pool])[0] != 0:
        raise ValueError(f"there is no pool {pool}")
    target.mkdir(parents=True, exist_ok=True)
    library = str(Path(__file__).resolve().parent.parent)
    for program in PROGRAMS:
        path = target / program
        path.write_text(
            _PROGRAM.format(python=sys.executable, library=library, program=program, directory=str(directory))
        )
        path.chmod(0o755)
    with RealHost(directory):
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simnode.real", description="vmadm over a real zfs")
    parser.add_argument("--state", type=Path, default=STATE, help="where the VMs' configurations are kept")
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="write the programs into a folder")
    installing.add_argument("target", type=Path)
    installing.add_argument("--pool", default="zones")
    commands.add_parser("serve", help="run programs as lines of JSON on stdin demand")
    advance = commands.add_parser("advance", help="move the clock")
    advance.add_argument("seconds", type=float)
    for name, command in admin.COMMANDS.items():
        extra = commands.add_parser(name, help=(command.__doc__ or "").partition("\n")[0])
        extra.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main(argv: Optional[List[str]] = None) -> int:
    """Run the administration command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "install":
        try:
            install(arguments.target, arguments.pool, arguments.state)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        return 0
    if arguments.command == "serve":
        serve(arguments.state)
        return 0
    command_arguments = [str(arguments.seconds)] if arguments.command == "advance" else arguments.arguments
    with RealHost(arguments.state) as host:
        status, out, err = _administer(host, [arguments.command, *command_arguments])
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


if __name__ == "__main__":
    sys.exit(main())
