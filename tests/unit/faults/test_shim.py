# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shim before programs that write down what they did: who is killed, who is told what, and what is counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.shim import Fault

PROGRAM = """#!{python} -IS
import subprocess, sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "update":
    for number in "123":
        subprocess.run(["zfs", "get", "all", number])
        subprocess.run(["zfs", "set", "a=" + number, "zones"])
print("did it")
sys.exit(3 if sys.argv[1] == "bad" else 0)
"""
MODULE = """
import json, subprocess, sys
for argv in json.loads(sys.argv[1]):
    done = subprocess.run(argv, capture_output=True, text=True, input="payload")
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


class Host:
    """Programs, the shim before them, and a module that runs commands one after the other."""

    def __init__(self, folder: Path) -> None:
        self.shim, self.log = folder / "shim", folder / "log"
        (folder / "bin").mkdir()
        for program in ("zfs", "vmadm"):
            path = folder / "bin" / program
            path.write_text(PROGRAM.format(python=sys.executable, log=str(self.log)))
            path.chmod(0o755)
        subprocess.run([sys.executable, shim.__file__, str(self.shim)], check=True)
        self.path = os.pathsep.join([str(self.shim), str(folder / "bin"), os.environ["PATH"]])

    def module(self, fault, *commands):
        """(its exit status, what it was told of each command, what was done)."""
        shim.tell(self.shim, fault)
        self.log.write_text("")
        argv = [sys.executable, "-c", MODULE, json.dumps([command.split() for command in commands])]
        done = subprocess.run(argv, env={**os.environ, "PATH": self.path}, capture_output=True, text=True, check=False)
        told = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
        return done.returncode, told, self.log.read_text().splitlines()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


SET = "zfs set a=b zones"
FINE = (0, "did it\n", "")


def test_without_a_fault_nothing_is_spoilt_and_all_is_counted(host):
    assert host.module(None, SET, "zfs bad") == (0, [FINE, (3, "did it\n", "")], ["set a=b zones", "bad"])
    assert shim.calls(host.shim) == [["zfs", "set", "a=b", "zones"], ["zfs", "bad"]]


def test_a_command_fails_without_effect(host):
    fault = Fault(nth=2, status=1, complaint={"zfs": "{what}: dataset is busy\n", "": "other\n"})
    said = (1, "", "cannot rename 'b': dataset is busy\n")
    assert host.module(fault, SET, "zfs rename a b", SET) == (0, [FINE, said, FINE], ["set a=b zones"] * 2)
    assert host.module(fault, SET, "vmadm stop x")[1][1] == (1, "", "other\n")


def test_a_command_takes_effect_and_says_that_it_failed(host):
    fault = Fault(nth=1, effect=True, status=5, complaint={"": "lost\n"})
    assert host.module(fault, SET) == (0, [(5, "", "lost\n")], ["set a=b zones"])


@pytest.mark.parametrize("effect", [False, True])
def test_a_command_dies_by_a_signal(host, effect):
    fault = Fault(nth=1, effect=effect, status=-signal.SIGTERM)
    assert host.module(fault, SET) == (0, [(-signal.SIGTERM, "", "")], ["set a=b zones"] * effect)


def test_some_commands_fail_from_one_on(host):
    fault = Fault(nth=2, lasting=True, only=["zfs set"], status=1)
    told = host.module(fault, SET, "zfs get x y", SET, "zfs get x y", SET)[1]
    assert [answer[0] for answer in told] == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (Fault(nth=2, kill="first"), 1),
        (Fault(nth=2, kill="last", effect=True), 2),
        (Fault(nth=2, kill="first", effect=True, seconds=0.2), 2),
    ],
)
def test_the_module_is_killed(host, fault, done):
    status, told, effects = host.module(fault, SET, SET, SET)
    assert (status, told) == (-signal.SIGKILL, [FINE])
    while len(effects) < done:
        effects = host.log.read_text().splitlines()
    assert len(effects) == done


def test_what_a_command_runs_itself_is_not_counted(host):
    assert len(host.module(None, "vmadm update x")[2]) == 7
    assert shim.calls(host.shim) == [["vmadm", "update", "x"]]


def test_a_command_is_torn(host):
    fault = Fault(nth=1, tear=2, status=-signal.SIGKILL)
    status, told, done = host.module(fault, "vmadm update x", SET)
    assert (status, told) == (0, [(-signal.SIGKILL, "", ""), FINE])
    assert done == ["update x", "get all 1", "set a=1 zones", "get all 2", "set a=2 zones", "set a=b zones"]
    assert host.module(fault, "zfs set a=b c=d zones")[2] == ["set a=b zones"]


def test_only_what_can_change_something_is_a_change():
    changing = ["zfs set a=b x", "zfs create x", "zfs hold t x", "vmadm update x", "vmadm stop x"]
    looking = ["zfs get all", "zfs list", "zfs create -nP x", "vmadm lookup -j", "zpool status", "imgadm get x"]
    assert [line for line in changing + looking if shim.changes(line.split())] == changing
