# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of Proxmox VE in a directory: its programs as processes, its files, and the flocks that others hold."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from simnode.__main__ import PVE_FILES, main

from tests.unit.simnode.test_node import program


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    assert main(["--dir", str(tmp_path), "init", "--proxmox"]) == 0
    return tmp_path


def good(directory: Path, line: str) -> str:
    done = program(directory, line)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_programs_and_files(directory: Path) -> None:
    good(directory, "qm create 100 --name web01 --memory 128 --virtio0 local-zfs:1,serial=abc")
    files = directory / "bin" / PVE_FILES
    text = (files / "etc/pve/qemu-server/100.conf").read_text()
    assert "virtio0: local-zfs:vm-100-disk-0,serial=abc,size=1G\n" in text
    assert (files / "etc/pve/local/qemu-server/100.conf").read_text() == text
    assert "vm-100-disk-0" in good(directory, "pvesm list local-zfs")
    good(directory, "qm start 100")
    number = (files / "run/qemu-server/100.pid").read_text().strip()
    assert (files / "proc" / number / "comm").read_text() == "kvm\n"
    good(directory, "qm stop 100")
    assert not (files / "run/qemu-server/100.pid").exists()
    assert not (files / "proc" / number / "comm").exists()
    good(directory, "qm destroy 100")
    assert not (files / "etc/pve/qemu-server/100.conf").exists()
    assert not (directory / "bin" / "vmadm").exists()


def test_a_file_that_somebody_edits(directory: Path) -> None:
    good(directory, "qm create 100 --name web01")
    path = directory / "bin" / PVE_FILES / "etc/pve/qemu-server/100.conf"
    path.write_bytes(b"#caf%C3%A9 \xe4\r\nmemory: 64\r\n")
    assert good(directory, "qm config 100") == "description: caf%C3%A9 %E4\nmemory: 64\n"
    done = program(directory, "qm set 100 --memory 128 --digest 0123456789012345678901234567890123456789")
    assert "checksum mismatch" in done.stderr
    assert path.read_bytes() == b"#caf%C3%A9 \xe4\r\nmemory: 64\r\n"


def test_a_flock_that_is_held(directory: Path) -> None:
    good(directory, "qm create 100 --name web01")
    path = directory / "bin" / PVE_FILES / "var/lock/qemu-server/lock-100.conf"
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = program(directory, "qm set 100 --memory 256")
    assert done.returncode != 0
    assert "trying to acquire lock...\n" in done.stderr
    good(directory, "qm set 100 --memory 256")


def test_administration(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good(directory, "qm create 100 --name web01 --virtio0 local-zfs:1,serial=abc")
    good(directory, "qm start 100")
    assert main(["--dir", str(directory), "pve-plugged", "100"]) == 0
    device = "/dev/zvol/rpool/data/vm-100-disk-0"
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"virtio0": {"size": 1 << 30, "device": device, "serial": "abc"}}
    assert main(["--dir", str(directory), "pve-plugged", "101"]) == 2
    assert main(["--dir", str(directory), "pve-guest", "100", "asleep"]) == 2
    assert capsys.readouterr().err == "usage: pve-plugged VMID\nusage: pve-guest VMID deaf|answers\n"
    assert main(["--dir", str(directory), "pve-kill", "1"]) == 0
    assert program(directory, "qm set 100 --name web02").returncode == -9


def test_a_scenario_is_no_node_of_proxmox(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="pool and hypervisor"):
        main(["--dir", str(tmp_path), "init", "--scenario", "demo", "--proxmox"])
