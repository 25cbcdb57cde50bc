# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that YAML or people take for something else."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import mistakable

UUID = "cccccccc-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    "name",
    [
        *("12", "0", "yes", "No", "TRUE", "off", "null", "None", "1e3", "1.5", "0x1f", "1_000", "2026-01-31"),
        *(UUID, UUID.upper(), UUID.replace("-", ""), UUID[:20]),
    ],
)
def test_refused(name):
    assert mistakable(name)


@pytest.mark.parametrize("name", ["disk0", "a", "n", "yes1", "1st", "v1.5.1", "2026-01-31-data", "deadbeef", "node"])
def test_taken(name):
    assert mistakable(name) == ""
