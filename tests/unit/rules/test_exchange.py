# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark of a volume that is about to take the place of another one."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import exchange

DISK = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "aaaaaaaa-0000-4000-8000-000000000002"
MARK = exchange.Exchange(DISK, (1 << 64) - 1, "disk1", OTHER, "data-wrong")


def test_there_and_back():
    value = exchange.encode(MARK)
    assert exchange.decode(value) == MARK
    assert exchange.exchange_of(Dataset("zones/x", "volume", user={"exchange": value})) == MARK


def test_a_mark_that_a_stream_has_brought_is_none():
    volume = Dataset("zones/x", "volume", user={"exchange": exchange.encode(MARK)}, received=frozenset(["exchange"]))
    assert exchange.exchange_of(volume) is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        exchange.encode(MARK) + "\n",
        exchange.encode(MARK._replace(disk="a" * 36)),
        exchange.encode(MARK._replace(uuid="a" * 36)),
        exchange.encode(MARK._replace(name="-x")),
        exchange.encode(MARK._replace(place="a/b")),
    ],
)
def test_what_is_no_mark(value):
    assert exchange.decode(value) is None
