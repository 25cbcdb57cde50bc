# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The deliberate bugs of tests/mutations still fit the code they are put into."""

from __future__ import annotations

import pytest

from tests.mutations.mutations import MUTATIONS
from tests.mutations.run import HOUSE, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_applies_exactly_once(mutation):
    assert (ROOT / HOUSE / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert (ROOT / mutation.tests).exists()


def test_names_differ():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 12
