# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A virtual machine with real OpenZFS to test in: `python3 tests/lab/lab.py up`, see README.md beside this file."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import aptconfig
import boot
import machines
import progress
import recipe
import remote
from recipe import LabError, step

IDLE_SECONDS = 15 * 60.0  # of everything: nobody waits so long for nothing
WORK_SECONDS = 40 * 60.0  # of processor time without a word
FULL_WORK_SECONDS = 4 * 3600.0
SUITE = Path(__file__).resolve().parent / "suite"


def why_impossible() -> str | None:
    """The reason why no lab can be had on this machine; None when it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"the lab needs Linux on x86_64, this is {platform.system()} on {platform.machine()}"
    build = not (recipe.image_dir() / "disk.img").exists()
    can_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if (missing := recipe.missing_tools(build=build)) and not can_install:
        return f"missing packages {' '.join(missing)}, and only root on a system with apt can install them"
    if build and os.geteuid() != 0:
        return "no image is cached, and only root can build one"
    if build and not shutil.which("apt-config"):
        return "no image is cached, and a system without apt cannot build one"
    if build and not aptconfig.source_lines(recipe.RELEASE, recipe.COMPONENTS):
        return f"no image is cached, and apt has no source of Debian {recipe.RELEASE}"
    return None


def possible(_arguments: argparse.Namespace) -> int:
    """say whether a lab can be had here (status 0), or why not (status 1)"""
    reason = why_impossible()
    print(f"lab: {reason or 'possible'}")
    return 1 if reason else 0


def up(_arguments: argparse.Namespace) -> int:
    """build the image if needed, boot, make the pool, install vmadm"""
    if reason := why_impossible():
        raise LabError(reason)
    machines.bring_up()
    return 0


def down(_arguments: argparse.Namespace) -> int:
    """stop the machine and throw its disks away"""
    print("lab: stopped" if boot.stop() else "lab: was down")
    return 0


def status(_arguments: argparse.Namespace) -> int:
    """say whether it is up (status 0) or down (status 3)"""
    image = recipe.image_dir()
    print(f"lab: image {image}{'' if (image / 'disk.img').exists() else ' (not built)'}")
    number = boot.pid()
    if number is None:
        print("lab: down")
        return 3
    print(f"lab: up, process {number}, ssh port {boot.port()}, inventory {boot.run_dir() / 'inventory.ini'}")
    return 0


def ssh(arguments: argparse.Namespace) -> int:
    """run a command in the lab, or open a shell"""
    _need_up()
    command = " ".join(arguments.command) or None
    return subprocess.run(remote.ssh_argv(command), check=False).returncode


def push(_arguments: argparse.Namespace) -> int:
    """copy the simulated node's package into the running lab again"""
    _need_up()
    machines.push()
    return 0


def reset(_arguments: argparse.Namespace) -> int:
    """destroy the pool and the hypervisor's state and begin anew"""
    _need_up()
    with boot.alone(), step("resetting the pool"):
        remote.reset()
    return 0


def test(_arguments: argparse.Namespace) -> int:
    """run the suite's share in `make verify`"""
    same = os.environ.get("FLEXDISK_SEED", "1")  # so that the same code gets the same verdict; full takes a new one
    return _suite(["-m", "not full"], {"FLEXDISK_SEED": same}, WORK_SECONDS)


def full(_arguments: argparse.Namespace) -> int:
    """run the whole suite with full counts"""
    return _suite([], {"FLEXDISK_FULL": "1"}, FULL_WORK_SECONDS)


def _suite(selection: list[str], extra: dict[str, str], work: float) -> int:
    interpreter = remote.ROOT / ".venv" / "bin" / "python"
    python = str(interpreter) if interpreter.exists() else sys.executable
    argv = [python, "-u", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--durations=20", str(SUITE), *selection]
    down_before = [name for name in (*boot.MACHINES, boot.GUEST) if not _is_up(name)]
    try:
        up(argparse.Namespace())
        with step("running the suite"):
            code, why = progress.watched(argv, remote.ROOT, {**os.environ, **extra}, IDLE_SECONDS, work)
        if why:
            raise LabError(f"the suite was ended, for it made no progress ({why}):\n{boot.console_tail()}")
        return code
    finally:
        for name in down_before:
            with boot.machine(name):
                boot.stop()


def _is_up(name: str) -> bool:
    with boot.machine(name):
        return boot.pid() is not None


def _need_up() -> None:
    if boot.pid() is None:
        raise LabError("the lab is down; `up` starts it")


COMMANDS = {
    "possible": possible, "up": up, "down": down, "status": status, "ssh": ssh, "push": push, "reset": reset,
    "test": test, "full": full,
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns its exit status."""
    parser = argparse.ArgumentParser(prog="lab.py", description=__doc__)
    parser.add_argument("--machine", choices=boot.MACHINES, default=boot.MACHINES[0], help="the one that it is about")
    commands = parser.add_subparsers(dest="name", required=True)
    for name, function in COMMANDS.items():
        command = commands.add_parser(name, help=function.__doc__)
        if name == "ssh":
            command.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with boot.machine(arguments.machine):
            return COMMANDS[arguments.name](arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
