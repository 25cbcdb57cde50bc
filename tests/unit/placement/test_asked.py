# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts say of VMs that do not exist yet, and which of them a host gets."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.asked import (
    new_vms,
    placed_vms,
)

WEB = {"vm": "web", "package": "small", "options": {"tags": {"role": "web"}}}
TAKES = {"vms": [{"vm": "web", "memory": 1024, "vcpus": 2, "takes": {"zones": 10240}}], "problems": []}
REFUSES = {"problems": [{"vm": "web", "message": "no such image"}, {"vm": "db", "message": "other"}]}


def on(*checks):
    return {"vms": [WEB], "checks": list(checks), "beside": 1, "spread": "webs"}


def test_what_a_vm_takes_of_a_host_and_why_another_one_refuses_it():
    (new,) = new_vms({"hv01": on(TAKES), "hv02": on(REFUSES), "hv03": on({"msg": "it is off"}), "hv04": on()})
    assert (new["name"], new["tags"], new["spread"]) == ("web", {"role": "web"}, "webs")
    assert new["hosts"] == {
        "hv01": {"memory": 1024, "vcpus": 2, "disks": {"zones": 10240}, "beside": 1},
        "hv02": {"refused": "no such image"},
        "hv03": {"refused": "it is off"},
        "hv04": {"refused": "says nothing of it"},
    }


def test_the_last_answer_counts():
    """It was asked for alone then."""
    assert "refused" not in new_vms({"hv01": on(REFUSES, TAKES)})[0]["hosts"]["hv01"]
    assert "refused" in new_vms({"hv01": on(TAKES, REFUSES)})[0]["hosts"]["hv01"]


def test_vms_for_which_another_host_was_chosen_are_left_out():
    entries = [{"vm": "db"}, {"vm": "web-0", "hypervisor": "auto"}, {"name": "web-1", "hypervisor": "auto"}]
    assert placed_vms(entries, ["web-0"]) == [{"vm": "db"}, {"vm": "web-0"}]
