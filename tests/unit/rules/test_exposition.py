# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text format of Prometheus."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.exposition import Family, render


def test_families():
    families = [
        Family("a_bytes", "A size.", [({"pool": "zones"}, 7), ({"pool": "tank", "vm": ""}, -1)]),
        Family("b", "Nothing.", []),
        Family("c", "A number.", [({}, 0)]),
    ]
    assert render(families) == (
        "# HELP a_bytes A size.\n# TYPE a_bytes gauge\n"
        'a_bytes{pool="zones"} 7\na_bytes{pool="tank",vm=""} -1\n'
        "# HELP c A number.\n# TYPE c gauge\nc 0\n"
    )
    assert render([]) == ""


def test_what_would_end_a_label():
    """A name of a VM may have any characters."""
    text = render([Family("a", "A.", [({"name": 'x"} 1\n\\n é'}, 1)])])
    assert text.splitlines()[2:] == ['a{name="x\\"} 1\\n\\\\n é"} 1']
