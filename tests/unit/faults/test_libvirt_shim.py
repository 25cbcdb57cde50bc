# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shim before a library that writes down what it did: which calls are counted, who is killed, who is told what."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import libvirt_shim, shim
from tests.faults.shim import Fault

LIBRARY = """
class libvirtError(Exception):
    pass
class virConnect:
    pass
class virDomain:
    pass
def method(name):
    def call(self, *words):
        print(name, *words, flush=True)
    return call
for kind, names in {calls}.items():
    for name in names:
        setattr(globals()[kind], name, method(name))
virDomain.name = method("name")
"""
MODULE = """
import libvirt
try:
    libvirt.virDomain().blockResize("vda", 5)
    libvirt.virDomain().name()
    libvirt.virConnect().defineXML("<domain/>")
except libvirt.libvirtError as error:
    print("told", error)
"""
QUESTIONS = {"XMLDesc", "UUIDString", "autostart", "isPersistent", "listAllDomains", "lookupByUUIDString", "name"}
QUESTIONS |= {"saveImageGetXMLDesc", "listAllSecrets", "getInfo", "getMemoryStats", "state", "storagePoolLookupByName"}
QUESTIONS |= {"getVersion", "isActive", "jobInfo"}
ROOT = Path(__file__).resolve().parents[3]
RESIZED, NAMED, DEFINED = "blockResize vda 5", "name", "defineXML <domain/>"


@pytest.fixture
def module(tmp_path):
    """Runs MODULE with a fault: (its exit status, its lines)."""
    for folder in ("shim/modules", "real"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(shim.__file__, tmp_path / "shim" / "shim.py")
    shutil.copy(libvirt_shim.__file__, tmp_path / "shim" / "modules" / "libvirt.py")
    (tmp_path / "real" / "libvirt.py").write_text(LIBRARY.replace("{calls}", repr(libvirt_shim.CALLS)))
    path = os.pathsep.join([str(tmp_path / "shim" / "modules"), str(tmp_path / "real")])

    def run(fault):
        shim.tell(tmp_path / "shim", fault)
        environment = {**os.environ, "PYTHONPATH": path}
        argv = [sys.executable, "-c", MODULE]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    return run


def test_calls_that_change_something_are_counted(module, tmp_path):
    assert module(None) == (0, [RESIZED, NAMED, DEFINED])
    calls = shim.calls(tmp_path / "shim")
    assert calls == [["libvirt", "blockResize"], ["libvirt", "defineXML"]]
    assert all(map(shim.changes, calls))


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (Fault(1, kill="first"), []),
        (Fault(1, kill="last", effect=True), [RESIZED]),
        (Fault(2, kill="first"), [RESIZED, NAMED]),
        (Fault(2, kill="last", effect=True), [RESIZED, NAMED, DEFINED]),
    ],
)
def test_the_module_is_killed_before_or_after_a_call(module, fault, done):
    assert module(fault) == (-signal.SIGKILL, done)


def test_calls_fail_with_and_without_an_effect(module):
    complaint = {"": "{what}: denied"}
    failed = "told cannot blockResize 'blockResize': denied"
    assert module(Fault(1, status=1, complaint=complaint)) == (0, [failed])
    assert module(Fault(1, status=1, complaint=complaint, effect=True)) == (0, [RESIZED, failed])


def test_every_call_of_the_driver_that_changes_something_is_counted():
    files = [ROOT / f"plugins/module_utils/_flexdisk/hypervisor/libvirt_{name}.py" for name in ("connection", "memory")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    text = text.partition("class LibvirtMemory")[0]  # what follows asks the methods before it
    made = set(re.findall(r"\b(?:domain|_connection)\.(\w+)\(", text))
    counted = {name for names in libvirt_shim.CALLS.values() for name in names}
    assert made - counted == QUESTIONS | {"undefine"}  # the latter where undefineFlags has failed
    assert counted <= made
