# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter failed_hosts: one table, where hosts with the same reason share a line."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.failed_hosts import failed_hosts

CHECKED = {"changed": False}


def table(variables, *names):
    return failed_hosts(list(variables), variables, names or ["_flexdisk", "flexible_disks_result"])


def test_hosts_with_the_same_reason_share_a_line():
    lost = {"unreachable": True, "msg": "Task failed: Failed to connect: no route"}
    small = {"failed": True, "msg": "pool zones has 1 GiB left [InsufficientSpace]\nmore"}
    variables = {
        "hv01": {"_flexdisk": CHECKED, "flexible_disks_result": lost},
        "hv02": {"_flexdisk": CHECKED, "flexible_disks_result": small},
        "hv03": {"_flexdisk": CHECKED, "flexible_disks_result": lost},
    }
    assert table(variables) == [
        "3 hosts failed:",
        "hv01, hv03: unreachable: Failed to connect: no route",
        "hv02: pool zones has 1 GiB left [InsufficientSpace] (and more, above)",
    ]


def test_a_reason_with_the_name_of_its_host_is_the_same_on_others():
    variables = {host: {"_flexdisk": {"failed": True, "msg": f"{host} is off"}} for host in ("hv01", "hv02")}
    assert table(variables) == ["2 hosts failed:", "hv01, hv02: HOST is off"]


@pytest.mark.parametrize("result", [{}, {"_flexdisk": CHECKED}, {"_flexdisk": {"failed": True}}])
def test_a_host_whose_reason_is_not_known_is_named(result):
    assert table({"hv01": result}) == ["1 host failed:", "hv01: see the output above"]


def test_a_long_reason_is_cut():
    assert len(table({"hv01": {"_flexdisk": {"failed": True, "msg": "x" * 999}}})[1]) < 250


def test_what_is_no_result_is_refused():
    with pytest.raises(AnsibleFilterError, match="failed_hosts wants"):
        failed_hosts(["hv01"], {"hv01": {"_flexdisk": 1}}, ["_flexdisk"])
