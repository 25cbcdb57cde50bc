# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placeholders: what is filled, what stays, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import placeholders
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

FACTS = {"name": "web-3", "index": 3, "host": "hv01"}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text().filter(lambda text: "{instance." not in text),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("{instance.name}.example.net", "web-3.example.net"),
        ("80{instance.index}", "803"),
        ("{instance.index}", 3),
        ("{instance.index}\n", "3\n"),
        ({"a": ["{instance.host}", {"b": "{instance.index}:{instance.index}"}]}, {"a": ["hv01", {"b": "3:3"}]}),
        ({"{instance.nobody}": 1}, {"{instance.nobody}": 1}),
        ("{instance} {{instance.name}} { instance.name }", "{instance} {web-3} { instance.name }"),
    ],
)  # fmt: skip
def test_what_is_filled(value, wanted):
    found = placeholders.filled(value, FACTS)
    assert (found, type(found)) == (wanted, type(wanted))


@given(PLAIN)
def test_what_has_no_placeholder_stays(value):
    assert placeholders.used(value) == set()
    assert placeholders.filled(value, {}) == value


@given(st.text())
def test_facts_are_not_searched_for_placeholders(fact):
    assert placeholders.filled("<{instance.name}>", {"name": fact}) == f"<{fact}>"
    assert placeholders.filled("{instance.name}", {"name": "{instance.host}"}) == "{instance.host}"


def test_unknown_ones_are_refused_together():
    value = {"a": "{instance.port}", "b": ["{instance.name}", "{instance.}"]}
    assert placeholders.used(value) == {"port", "name", ""}
    with pytest.raises(FlexdiskError) as refused:
        placeholders.filled(value, FACTS)
    assert (refused.value.code, refused.value.message) == (
        "InvalidArgument",
        "{instance.}, {instance.port}: no such placeholder; "
        "those here are {instance.host}, {instance.index}, {instance.name}",
    )


def test_a_refusal_without_any_facts():
    with pytest.raises(FlexdiskError, match=r"\{instance.name\}: no such placeholder; there are none here"):
        placeholders.filled("{instance.name}", {})
