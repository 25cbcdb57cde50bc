# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disk of a guest is meant: by serial number, uuid or PCI address, never by the name that it has today."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.guest_observe import Guest
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

DISKS = {
    "vda": ("pci0000:00/0000:00:04.0/virtio1/block/vda", "11c1a5a7aaaabbbbcccc"),
    "vdb": ("pci0000:00/0000:00:02.0/0000:01:00.0/virtio2/block/vdb", ""),
    "sda": ("pci0000:00/0000:00:05.0/virtio3/host0/block/sda", "A"),
    "sdb": ("pci0000:00/0000:00:05.0/virtio3/host0/block/sdb", "B"),
}


@pytest.fixture
def guest(tmp_path):
    (tmp_path / "sys/block").mkdir(parents=True)
    rows = []
    for name, (path, serial) in DISKS.items():
        (tmp_path / "sys/devices" / path).mkdir(parents=True)
        (tmp_path / "sys/block" / name).symlink_to(f"../devices/{path}")
        rows.append({"name": name, "kname": name, "type": "disk", "size": 1, "serial": serial or None})
    (tmp_path / "sys/block/vdb/serial").write_text("fromsysfs\n")
    rows.append({"name": "loop0", "kname": "loop0", "type": "loop", "size": 1, "serial": "L"})

    def run(argv, stdin="", timeout=0):
        assert argv[0] == "lsblk"
        return Answer(0, json.dumps({"blockdevices": rows}), "")

    return Guest(run, str(tmp_path))


@pytest.mark.parametrize(
    ("serial", "address", "found"),
    [
        ("11c1a5a7aaaabbbbcccc", None, "vda"),
        ("fromsysfs", None, "vdb"),
        (None, "0000:00:04.0", "vda"),
        (None, "00:04.0", "vda"),
        (None, "01:00.0", "vdb"),
    ],
)
def test_found(guest, serial, address, found):
    assert guest.find(serial, address) == found


@pytest.mark.parametrize(
    ("serial", "address", "code", "words"),
    [
        (
            "11c1",
            None,
            "ResourceNotFound",
            r"no disk with the serial number 11c1; there are vda \(11c1a5a7aaaabbbbcccc\)",
        ),
        ("L", None, "ResourceNotFound", "no disk with"),
        ("", None, "ResourceNotFound", "no disk with"),
        (None, "00:05.0", "Ambiguous", "several disks at the PCI address 0000:00:05.0: sda, sdb"),
        (None, "00:02.0", "ResourceNotFound", "no disk at the PCI address 0000:00:02.0"),
        (None, "/dev/vda", "InvalidArgument", "pci_address /dev/vda is not like"),
    ],
)
def test_not_found(guest, serial, address, code, words):
    with pytest.raises(FlexdiskError, match=words) as refused:
        guest.find(serial, address)
    assert refused.value.code == code
