# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the lab's share of the tests where a lab can be had; elsewhere says loudly what stays untested.

With FLEXDISK_LAB=required, no lab is a failure; with FLEXDISK_LAB=off, it is not even tried.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tree import BIN, ROOT, environment, run

BANNER = """
{line}
  THE LAB WAS SKIPPED: {reason}

  Untested, therefore:
  - every claim about real OpenZFS: only the simulated node was asked
  - real zvols: reservations, quotas, snapshots, clones and renames as the kernel accounts for them
  - libzfs_core and its hold on a disk that is detached or removed
  - data on the disks, followed by hash through resize, detach and attach

  A lab wants root, QEMU and mmdebstrap, on Debian both with apt. FLEXDISK_LAB=required makes this a failure.
{line}
"""


def main() -> None:
    """Exit with the suite's exit code, or with that of the missing lab."""
    wish = os.environ.get("FLEXDISK_LAB", "auto")
    if wish not in ("auto", "required", "off"):
        sys.exit(f"FLEXDISK_LAB is auto, required or off, not {wish}")
    if wish == "off":
        skip("FLEXDISK_LAB=off")
    lab = [BIN / "python", ROOT / "tests" / "lab" / "lab.py"]
    possible = subprocess.run([*lab, "possible"], env=environment(), check=False, capture_output=True, text=True)
    if possible.returncode == 0:
        sys.exit(run([*lab, "test"]))
    skip((possible.stdout + possible.stderr).strip() or "no reason given", code=wish == "required")


def skip(reason: str, code: int = 0) -> None:
    """Say that there was no lab, and end."""
    print(BANNER.format(line="!" * 100, reason=reason), flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
