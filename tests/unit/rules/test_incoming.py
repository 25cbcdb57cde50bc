# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said about things that a host refuses of VMs that other hosts describe."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.incoming import way_out

LIST = "to allow it, write to the variables of hv02 in the inventory: flexdisk_incoming_allowed: "


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (["serial source /etc/cron.d/x y"], f'{LIST}["/srv/iso", "/etc/cron.d/x y"]'),
        (
            ["bootrom /etc/shadow", "allow_mac_spoofing", "seclabel none", "com1 of the other host"],
            f'{LIST}["/srv/iso", "bootrom", "allow_mac_spoofing", "seclabel none", "com1"]',
        ),
        (["disk device lun"], "change on hv01 what cannot be allowed: disk device lun"),
        (["disk source ../x"], "change on hv01 what cannot be allowed: disk source ../x"),
        (
            ["disk driver vmdk", "seclabel none"],
            f'{LIST}["/srv/iso", "seclabel none"]; change on hv01 what cannot be allowed: disk driver vmdk',
        ),
    ],
)
def test_the_message_offers_only_what_can_be_allowed(refused, message):
    """The line is to be pasted, so it has what is allowed already, too."""
    assert way_out(refused, "hv01", "hv02", ["/srv/iso"]) == message
