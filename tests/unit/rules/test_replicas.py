# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts as written to a replica"""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import is_changed


@pytest.mark.parametrize(
    ("empty", "forgiven"),
    # sectors of 512, 4096 and 8192 bytes, plain and encrypted; others are not told
    [(12288, 1024), (50176, 1024), (43008, 8192), (70656, 8192), (79872, 16384), (99328, 16384), (0, 1024), (7, 1024)],
)
def test_two_sectors_are_what_zfs_has_written_itself(empty, forgiven):
    """A write of a guest can take as many bytes where the sectors are smaller."""
    assert [one for one in (0, 512, 1024, 6656, 8192, 16384, 53248) if not is_changed(one, empty)] == [0, forgiven]
