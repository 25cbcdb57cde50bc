# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which VMs create_vm makes on which host, and which it looks for a host for."""

from __future__ import annotations

import pytest

from .plays import DB, WEB, calls, order, refused

WEB_ENTRY, DB_ENTRY = {"vm": "web", "package": "small"}, {"name": "db", "package": "small"}
NEW, NEWER = ({"name": name, "package": "small"} for name in ("new-0", "new-1"))


def auto(entry):
    return {**entry, "hypervisor": "auto"}


def declares(**entries):
    return {host: {"virtual_machine_vms": some} for host, some in entries.items()}


def create(inventory, given=None, does=calls, **more):
    return does("create_vm", given or {}, inventory=inventory, **more)


def test_each_host_gets_what_is_declared_for_it_and_none_is_read():
    assert create(declares(hv01=[WEB_ENTRY, DB_ENTRY]), read={}) == {
        "hv01": {"vms": [WEB_ENTRY, DB_ENTRY]},
        "hv02": {"vms": []},
    }


def test_the_named_vm_concerns_the_host_for_which_it_is_declared():
    inventory = declares(hv01=[WEB_ENTRY, NEW], hv02=[DB_ENTRY])
    assert create(inventory, {"flexdisk_vm": "web"}) == {"hv01": {"vms": [WEB_ENTRY, NEW]}}
    assert create(inventory, {"flexdisk_vm": "new-0"}) == {"hv01": {"vms": [WEB_ENTRY, NEW]}}
    found = create(inventory, {"flexdisk_vm": "new-0"}, order)
    assert (found.here, found.without) == ({"hv01": {}, "hv02": {}}, "")


@pytest.mark.parametrize(
    ("inventory", "text"),
    [
        (declares(), "VM web is declared for none of hv01, hv02. virtual_machine_vms has no VM."),
        (
            declares(hv01=[NEW], hv02=[DB_ENTRY, NEW]),
            "VM web is declared for none of hv01, hv02. virtual_machine_vms has new-0, db.",
        ),
        (
            declares(hv01=[WEB_ENTRY], hv02=[WEB_ENTRY]),
            "VM web is declared for hv01 and hv02. Say with --limit for which one.",
        ),
        (
            declares(hv01=[auto(WEB_ENTRY)], hv02=[WEB_ENTRY]),
            "web must have hypervisor: auto on each host for which it is declared, or on none",
        ),
    ],
)
def test_a_declaration_for_no_host_or_for_several(inventory, text):
    """It is refused before a host is read."""
    assert create(inventory, {"flexdisk_vm": "web"}, refused, read={}) == [text]


def test_a_vm_that_another_host_has():
    inventory = declares(hv01=[DB_ENTRY], hv02=[WEB_ENTRY])
    (text,) = create(inventory, {"flexdisk_vm": "web"}, refused)
    assert text == "VM web is on hv01, but is declared for another host"
    (text,) = create(declares(hv01=[auto(DB_ENTRY)]), {}, refused)
    assert text == "VM db is on hv02, but is declared for another host"


def test_a_host_that_cannot_be_read_may_have_the_vm():
    (text,) = create(declares(hv01=[auto(NEW)]), {}, refused, unread=["hv03"])
    assert "hv03 could not be read and may have a VM of this name" in text
    assert create(declares(hv01=[NEW]), read={}, unread=["hv03"])


def test_hosts_are_chosen_for_vms_that_are_nowhere_and_those_that_are_somewhere_stay():
    entries = [auto(WEB_ENTRY), auto(NEW), auto(NEWER)]
    inventory = declares(hv01=[*entries, {"name": "own"}], hv02=entries)
    assert create(inventory, {}, order, read={}).reads
    found = create(inventory, {}, order)
    assert (found.problems, found.calls) == ([], {})
    assert found.place == {"hv01": [NEW, NEWER], "hv02": [NEW, NEWER]}
    assert create(inventory, placed={"new-0": "hv02", "new-1": "hv01"}) == {
        "hv01": {"vms": [WEB_ENTRY, NEWER, {"name": "own"}]},
        "hv02": {"vms": [NEW]},
    }


def test_a_host_is_chosen_for_the_named_vm_alone():
    entries = [auto(NEW), auto(NEWER)]
    inventory = declares(hv01=entries, hv02=entries)
    given = {"flexdisk_vm": "new-1"}
    assert create(inventory, given, order).place == {"hv01": [NEWER], "hv02": [NEWER]}
    assert create(inventory, given, placed={"new-1": "hv02"}) == {"hv02": {"vms": [NEWER]}}


def test_nothing_is_chosen_for_vms_that_are_there():
    inventory = declares(hv01=[auto(WEB_ENTRY), auto({"vm": DB})], hv02=[auto(WEB_ENTRY), auto({"vm": DB})])
    assert create(inventory) == {"hv01": {"vms": [WEB_ENTRY]}, "hv02": {"vms": [{"vm": DB}]}}
    assert WEB not in str(create(inventory))
