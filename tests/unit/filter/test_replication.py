# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the playbooks replicate and write_metrics: what they give, and what they do not take."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.replication import FilterModule

FILTERS = FilterModule().filters()
FRESH = {"name": "web", "to": "hv02", "seconds": 90}
CALLS = {"hv01": {"peers": [None, None], "fresh": [FRESH] * 3}, "hv02": {"peers": [], "fresh": [FRESH]}}


def test_rounds():
    assert FILTERS["replication_rounds"](CALLS) == [0, 1]
    assert FILTERS["replication_rounds"]({}) == []


def test_lines():
    found = FILTERS["replication_lines"](CALLS, {"hv01": {}, "hv02": {"_flexdisk_ended_syncs": []}}, ["No VM x."])
    lines = ["no replica is due, 4 replicas are fresh, 1 failed", "the next one, web to hv02, is due in 90 s"]
    assert found == {"lines": lines, "failures": ["No VM x."]}


def test_intervals():
    entries = [{"vm": "db01", "host": "hv02", "every": 900, "keep": {"daily": 1}}, {"vm": "web01", "host": "hv02"}]
    assert FILTERS["replication_intervals"](entries) == [{"vm": "db01", "host": "hv02", "every": 900}]


@pytest.mark.parametrize(
    ("name", "given", "more"),
    [
        ("replication_rounds", [1], ()),
        ("replication_rounds", {"hv01": {}}, ()),
        ("replication_lines", CALLS, ({},)),
        ("replication_intervals", [1], ()),
    ],
)
def test_what_they_do_not_take(name, given, more):
    with pytest.raises(AnsibleFilterError, match=name):
        FILTERS[name](given, *more)
