# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the service libvirt-guests of a host starts domains whose autostart is off."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.guests_service import (
    why_guests_start,
)

UNIT = "etc/systemd/system/multi-user.target.wants/libvirt-guests.service"
SCRIPT, RPM, DEBIAN = "usr/libexec/libvirt-guests.sh", "etc/sysconfig/libvirt-guests", "etc/default/libvirt-guests"
COMMENT = "# action taken on boot\n#ON_BOOT=ignore\n"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({}, ""),
        ({SCRIPT: "ON_BOOT=start\n", RPM: "ON_BOOT=start\n"}, ""),  # it is not enabled
        ({UNIT: ""}, "/etc/sysconfig/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\nON_SHUTDOWN=suspend\n"}, "/etc/sysconfig/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\n", DEBIAN: COMMENT}, "/etc/default/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n", DEBIAN: COMMENT}, ""),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\n", RPM: "ON_BOOT=ignore\n"}, ""),
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n", DEBIAN: 'ON_BOOT="start"\n'}, "/etc/default/libvirt-guests"),
        ({UNIT: "", DEBIAN: "ON_BOOT=start\n  ON_BOOT='ignore'\n"}, ""),
    ],
)
def test_what_it_does_after_a_boot(tmp_path, files, place):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert why_guests_start(str(tmp_path)).partition("ON_BOOT=ignore in ")[2] == place


def test_an_unreadable_file_says_nothing(tmp_path):
    (tmp_path / UNIT).parent.mkdir(parents=True)
    (tmp_path / UNIT).touch()
    (tmp_path / RPM).mkdir(parents=True)
    assert why_guests_start(str(tmp_path)).endswith("set ON_BOOT=ignore in /etc/sysconfig/libvirt-guests")
