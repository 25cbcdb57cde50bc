# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of what hosts tell, with their types."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement import raw
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError


@pytest.mark.parametrize(
    ("given", "kind", "default", "value"),
    [
        ({"a": 1}, int, None, 1),
        ({"a": True}, bool, None, True),
        ({"a": False}, bool, True, False),
        ({"a": 1.5}, (int, float), None, 1.5),
        ({}, int, 7, 7),
        ({}, int, 0, 0),
        ({"a": "x"}, str, "y", "x"),
    ],
)
def test_values(given, kind, default, value):
    assert raw.typed_value(given, "host a", "a", kind, default) == value


@pytest.mark.parametrize(
    ("given", "kind", "default", "words"),
    [
        ({"a": True}, int, None, "host a: a is True, which is not of the right type"),  # True is an int for Python
        ({"a": True}, (int, float), 7, "host a: a is True, which is not of the right type"),
        ({"a": 1}, bool, None, "host a: a is 1, which is not of the right type"),
        ({"a": None}, int, 7, "host a: a is None, which is not of the right type"),
        ({"b": 1, "c": 2}, int, None, "host a has no a; it has b, c"),
        ({}, int, None, "host a has no a; it has nothing"),
        ([], int, 7, "host a is [], but must be an object with a"),
    ],
)
def test_what_is_none(given, kind, default, words):
    with pytest.raises(FlexdiskError) as caught:
        raw.typed_value(given, "host a", "a", kind, default)
    assert (caught.value.code, caught.value.message) == ("InvalidArgument", words)
