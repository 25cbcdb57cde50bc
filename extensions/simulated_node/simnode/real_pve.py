# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated `qm` and `pvesm` over the real `zfs` of a laboratory machine.

`python3 -m simnode.real_pve DIR POOL` makes a node in a new folder DIR: its files are below DIR/root, and DIR/bin has
the programs qm and pvesm, and zfs and zpool, which are those of the machine. Whoever has DIR/bin first on PATH works on
that node. Its volumes are in POOL/data. What a QEMU would have open is not open, so ZFS lets it be destroyed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, List, Optional, cast

from simnode import pve
from simnode.__main__ import LOCKS, PVE_FILES
from simnode.node import Node
from simnode.pve import on_node
from simnode.pve.errors import PveError
from simnode.pve.host import DEVICES, Device, Result
from simnode.real import RealHost, run_command

_PROGRAM = """#!{python} -IS
import sys

sys.path.insert(0, {library!r})

from simnode.real_pve import run_program

sys.exit(run_program({program!r}, sys.argv[1:], {directory!r}))
"""


class _Machine(RealHost):
    """The machine, as the files of a node need it."""

    at_boundary: Any = None


class RealPveHost(on_node.NodeHost):
    """A PveHost whose zfs and devices are real."""

    def note_open(self) -> None:
        pass

    def device(self, path: str) -> Optional[Device]:
        dataset = path[len(DEVICES) :]
        if not path.startswith(DEVICES) or not os.path.exists(path):
            return None
        status, out, _err = self.node.zfs(["get", "-Hp", "-o", "value", "volsize,guid", dataset])
        size, _newline, guid = out.strip().partition("\n")
        return None if status else Device(int(size), guid)

    def copy(self, source: str, target: str) -> None:
        words = [f"if={DEVICES}{source}", f"of={DEVICES}{target}", "bs=1M", "conv=sparse,fsync"]
        status, _out, err = run_command(["dd", *words])
        if status:
            raise PveError(f"copy failed: {err}")


def run_program(program: str, argv: List[str], directory: str) -> int:
    """Run qm or pvesm on the node in a directory. Return the exit status."""
    status, out, err = _run(program, argv, Path(directory))
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.write(err)
    return status


def _run(program: str, argv: List[str], directory: Path) -> Result:
    with _Machine(directory) as machine:
        return pve.run(program, RealPveHost(cast(Node, machine)), argv)


def install(directory: Path, pool: str) -> None:
    """Make a node in a new folder."""
    binaries = directory / "bin"
    (binaries / LOCKS).mkdir(mode=0o700, parents=True)
    (binaries / PVE_FILES).symlink_to(os.path.join("..", on_node.FOLDER))
    for program in ("zfs", "zpool"):
        (binaries / program).symlink_to(str(shutil.which(program)))
    library = str(Path(__file__).resolve().parent.parent)
    for program in pve.PROGRAMS:
        values = {"python": sys.executable, "library": library, "program": program, "directory": str(directory)}
        path = binaries / program
        path.write_text(_PROGRAM.format(**values))
        path.chmod(0o755)
    with _Machine(directory) as machine:
        on_node.install(cast(Node, machine), pool)


if __name__ == "__main__":
    install(Path(sys.argv[1]), sys.argv[2])
