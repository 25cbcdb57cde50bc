# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said about things that a host refuses of VMs that other hosts describe."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.incoming import way_out

LIST = "if it shall be allowed, list the path or the name in flexdisk_incoming_allowed"


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (["serial source /etc/cron.d/x"], LIST),
        (["bootrom /etc/shadow", "allow_mac_spoofing", "seclabel none", "com1 of the other host"], LIST),
        (["disk device lun"], "change on hv01 what cannot be allowed: disk device lun"),
        (["disk source ../x"], "change on hv01 what cannot be allowed: disk source ../x"),
        (["disk driver vmdk", "seclabel none"], f"{LIST}; change on hv01 what cannot be allowed: disk driver vmdk"),
    ],
)
def test_the_message_offers_only_what_can_be_allowed(refused, said):
    assert way_out(refused, "hv01") == said
