# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each case of Ganeti's disk templates has a test that is there, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
CASES = yaml.safe_load((HERE / "data" / "ganeti_types.yml").read_text())["cases"]


@pytest.mark.parametrize("case", CASES)
def test_the_case_is_covered(case):
    entry = CASES[case]
    assert ("test" in entry) != ("reason" in entry)
    assert set(entry) <= {"test", "reason", "note"}
    if "test" in entry:
        path, name = entry["test"].split("::")
        assert re.search(rf"^def {name}\(", (HERE / path).read_text(), re.MULTILINE), entry["test"]


def test_none_is_left_out():
    told = {name.split()[0] for name in CASES}
    assert {*(f"U{number}" for number in range(47, 57)), "T01", "T02", "1.10", "1.11"} <= told
