# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conformance cases that ZFS decides, with the real one below vmadm."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import remote
from harness import Lab

SHARE = "za3 or zc4 or ze3 or zj5 or r14_feasible"
LEAST = {SHARE: 5, "": 110}


def run(lab: Lab, selection: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The marked cases, or those of them that a -k expression selects. Shows how far it has come."""
    lab.reset()
    lab.run(["mkdir", "-p", "/var/lib/simnode"])
    argv = [sys.executable, "-m", "pytest", "-v", "--durations=10", "-p", "no:cacheprovider", "-n", "0"]
    argv += [
        "tests/conformance",
        "-m",
        "zfs_decides",
        "--conformance-machine",
        shlex.join(remote.ssh_argv(remote.SERVE)),
    ]
    if selection:
        argv += ["-k", selection]
    said = ""
    with subprocess.Popen(argv, cwd=remote.ROOT, stdout=subprocess.PIPE, text=True) as cases, capsys.disabled():
        for line in cases.stdout or ():
            said += line
            print(line, end="", flush=True)
    assert cases.returncode == 0
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) >= LEAST[selection]


def test_sampled_cases(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run(lab, SHARE, capsys)


@pytest.mark.full
def test_all_cases(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run(lab, "", capsys)
