# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two volumes change places again and again: under the name of one there is never the device of the other."""

from __future__ import annotations

import remote
from harness import Lab

SOURCES = remote.ROOT / "plugins" / "module_utils" / "_flexdisk"
FOLDER = "/tmp/devices"
ROUNDS = 8
CHANGE_PLACES = f"""
import os, subprocess, sys, time
sys.path.insert(0, "{FOLDER}")
from _flexdisk.model.command import Answer
from _flexdisk.zfs.commands import Zfs
from _flexdisk.zfs.devices import called

def run(argv, stdin="", timeout=0):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)

def held(name):
    deadline = time.monotonic() + 600
    while called(name) != name and time.monotonic() < deadline:
        time.sleep(0.05)
    handle = os.open("/dev/zvol/" + name, os.O_RDONLY)
    try:
        return os.pread(handle, 1, 0).decode()
    finally:
        os.close(handle)

zfs = Zfs(run)
one, two, aside = ("SCRATCH/" + name for name in ("one", "two", "aside"))
for name, letter in ((one, "1"), (two, "2")):
    subprocess.run(["zfs", "create", "-V", "16M", name], check=True)
    subprocess.run(["udevadm", "settle"], check=True)
    with open("/dev/zvol/" + name, "wb") as device:
        device.write(letter.encode() * 4096)
for _round in range({ROUNDS}):
    zfs.rename(one, aside)
    zfs.rename(two, one)
    print(held(one), end="")
    zfs.rename(aside, two)
"""


def test_a_device_is_that_of_the_volume_whose_name_it_has(lab: Lab, scratch: str) -> None:
    unpack = f"rm -rf {FOLDER}; mkdir -p {FOLDER}/_flexdisk; tar -xC {FOLDER}/_flexdisk"
    remote.script(unpack, stdin=remote.archive(SOURCES))
    assert lab.python(CHANGE_PLACES.replace("SCRATCH", scratch)) == "21" * (ROUNDS // 2)
