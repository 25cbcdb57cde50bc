# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that variables of playbooks name."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.named_hosts import named


@pytest.mark.parametrize("listed", [None, "db01", {"vm": "a", "host": "b"}, ["db01", None]])
def test_a_variable_of_a_wrong_type_names_none(listed):
    """Another check says what is wrong with it."""
    assert named({"flexdisk_replicas": listed, "flexdisk_target": "hv02"}) == [("flexdisk_target", "hv02")]


def test_each_entry_names_its_host():
    given = {"flexdisk_replica_host": "hv03", "flexdisk_replicas": [{"vm": "a", "host": "hv01"}, {"host": ""}]}
    assert named(given) == [("flexdisk_replica_host", "hv03"), ("flexdisk_replicas, vm a", "hv01")]
