# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter plan_text."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.plan_text import FilterModule

plan_text = FilterModule().filters()["plan_text"]
GIB = 1 << 30


def result(*lines, quotas=()):
    vms = [{"quota_bytes": {"before": before * GIB, "after": after * GIB}} for before, after in quotas]
    return {"plan": list(lines), "plan_digest": "abcdefghijklmnop", "vms": vms}


def test_each_host_has_a_line_before_the_plans():
    results = {
        "hv01": result("1 VM: 1 change, no restarts, +5 GiB, 0 B destroyed", "web (u):", "  + data 5 GiB at 0:4:1",
                       quotas=[(10, 15), (20, 20)]),
        "hv02": result("2 VMs: nothing to change", quotas=[(1, 1)]),
    }  # fmt: skip
    pools = {"hv01": [{"name": "zones", "available": 90 * 1024}, {"name": "tank", "available": 512}]}
    heads = [
        "hv01: 1 VM: 1 change, no restarts, +5 GiB, 0 B destroyed, digest abcdefghijklmnop",
        "hv02: 2 VMs: nothing to change, digest abcdefghijklmnop",
        "hv03: nothing is declared",
    ]
    block = ["hv01:", "  web (u):", "    + data 5 GiB at 0:4:1"]
    space = "  space: quotas of these VMs 30 GiB -> 35 GiB"
    assert plan_text(results, pools, {"hv03": "nothing is declared"}) == [
        *heads,
        *block,
        space + ", pool zones has 90 GiB left now, pool tank has 512 MiB left now",
    ]
    assert plan_text(results) == [*heads[:2], *block, space]


def test_hidden_characters_are_shown():
    text = plan_text({"h\u202ev": result("1 VM", "we\nb:", quotas=[(1, 1)])}, {}, {"hv\x07": "lost\u2066"})
    assert text[0] == "h[U+202E]v: 1 VM, digest abcdefghijklmnop"
    assert "hv[U+0007]: lost[U+2066]" in text
    assert "  we[U+000A]b:" in text


def test_no_host_at_all():
    assert plan_text({}) == []


@pytest.mark.parametrize("results", [{"hv01": {"msg": "failed"}}, [], {"hv01": result()}])
def test_what_is_no_result(results):
    with pytest.raises(AnsibleFilterError, match="vm_disks"):
        plan_text(results)
