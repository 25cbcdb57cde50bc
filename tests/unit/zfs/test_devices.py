# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is no volume's device. Those of volumes are in the lab: tests/lab/suite/test_devices.py."""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import devices


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "ZVOL", f"{tmp_path}/")
    return tmp_path


def test_nothing_there():
    assert devices.called("zones/disk0") == ""


def test_a_folder_and_a_file(place):
    (place / "zones").mkdir()
    (place / "zones" / "disk0").write_text("no device")
    assert [devices.called(name) for name in ("zones", "zones/disk0")] == ["", ""]


def test_the_name_of_a_character_device_is_right(place):
    (place / "disk0").symlink_to("/dev/null")
    assert devices.called("disk0") == "disk0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_block_device_that_is_no_volume(place):
    os.mknod(place / "disk0", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    assert devices.called("disk0") == ""


@pytest.mark.parametrize(("node", "expected"), [("zd16", "tank/x"), ("zd16p1", "tank/x"), ("sda", ""), ("dm-3", "")])
def test_only_devices_of_volumes_are_asked(place, monkeypatch, node, expected):
    """Under whatever name; others are not even opened."""
    (place / node).touch()
    (place / "link").symlink_to(place / node)
    opened = []
    monkeypatch.setattr(devices, "stat", SimpleNamespace(S_ISBLK=lambda _mode: True))
    monkeypatch.setattr(
        devices, "fcntl", SimpleNamespace(ioctl=lambda *asked: opened.append(asked) or b"tank/x\0".ljust(256, b"\0"))
    )
    assert [devices.at(str(place / name)) for name in (node, "link")] == [expected] * 2
    assert len(opened) == (2 if expected else 0)


def test_a_character_device_elsewhere_is_no_volume():
    assert devices.at("/dev/null") == ""
