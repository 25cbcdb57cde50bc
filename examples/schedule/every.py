#!/usr/bin/env python3
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a command every so many seconds, never twice at the same time: every.py SECONDS COMMAND [ARGUMENT ...]

For controllers without timers, as the service in flexdisk-replicate.xml. It says when a run has failed, and goes on.
"""

from __future__ import annotations

import subprocess
import sys
import time


def main() -> None:
    """Run until somebody ends this process."""
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    due = time.monotonic()
    while True:
        status = subprocess.run(command, check=False).returncode
        if status:
            print(f"{command[0]} ended with {status}", file=sys.stderr, flush=True)
        due = max(due + seconds, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
