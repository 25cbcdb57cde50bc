# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the molecule scenarios: those named, or all that need no lab.

Usage: run_molecule.py [scenario ...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tree import BIN, ROOT, built_once, environment, require

ON_THE_LAB = "libvirt"  # run by tests/lab/suite/test_targets.py


def main() -> None:
    """Exit with molecule's exit code, or 1 if a play had no hosts: molecule calls that a success.

    Molecule finds its shared configuration only when started from ROOT.
    """
    require("extensions/molecule")
    names = [f"--scenario-name={name}" for name in sys.argv[1:]] or ["--all", f"--exclude={ON_THE_LAB}"]
    idle = False
    command = [str(BIN / "molecule"), "test", *names]
    with tempfile.TemporaryDirectory() as folder:
        env = environment(**built_once(folder))
        with subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as molecule:
            for line in molecule.stdout or ():
                print(line, end="", flush=True)
                idle = idle or "no hosts matched" in line
    if idle:
        sys.exit("molecule: a play had no hosts, so it tested nothing")
    sys.exit(molecule.returncode)


if __name__ == "__main__":
    main()
