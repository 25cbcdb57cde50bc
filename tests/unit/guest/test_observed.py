# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is on a device, for a reader."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.guest.observed import Content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Content(), "nothing that is known"),
        (Content("ext4"), "ext4"),
        (Content("ext4", table="dos"), "ext4"),  # the boot code of a file system looks like a table
        (
            Content(table="gpt"),
            "a partition table (gpt), of which sfdisk -J tells nothing (before util-linux 2.27 it has no -J)",
        ),
    ],
)
def test_what_is_there(content, message):
    assert content.name == message
