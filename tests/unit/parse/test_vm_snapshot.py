# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the arguments of vm_snapshot to a declaration, or to all their problems."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Keep,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_snapshot import parse_snapshot

DEFAULTS = {
    "vms": ["web01"],
    "state": "present",
    "name": None,
    "keep": None,
    "newer": None,
    "destroy_newer": False,
    "flexible_disk_size": None,
    "packages": None,
}
ROLLBACK = {"state": "rolled_back", "name": "a"}


def parse(**options):
    return parse_snapshot({**DEFAULTS, **options})


def refused(**options):
    """The messages of all problems."""
    problems = parse(**options)[1]
    assert {(p.code, p.vm, p.disk) for p in problems} == {("InvalidArgument", "", "")}
    return [problem.message for problem in problems]


def keep(last=None, daily=None, weekly=None):
    return {"last": last, "daily": daily, "weekly": weekly}


def test_what_is_valid_becomes_a_declaration():
    assert parse(name="a", keep=keep(last=2, weekly=3)) == (SnapshotDeclaration("present", "a", Keep(2, 0, 3)), [])
    names = {**keep(daily=1), "names": ["a*", "b"]}
    wanted = SnapshotDeclaration("absent", "", Keep(0, 1, 0, ("a*", "b")))
    assert parse(state="absent", keep=names) == (wanted, [])
    assert parse(**ROLLBACK, flexible_disk_size="1G") == (
        SnapshotDeclaration("rolled_back", "a", flexible_disk_size=1024),
        [],
    )
    assert parse(**ROLLBACK, newer=["b"]) == (SnapshotDeclaration("rolled_back", "a", newer=("b",)), [])
    assert parse(**ROLLBACK, destroy_newer=True) == (SnapshotDeclaration("rolled_back", "a", newer=None), [])
    (package,) = parse(name="a", packages=[{"name": "p", "disk": 5}])[0].packages
    assert (package.name, package.disk) == ("p", 5)


@pytest.mark.parametrize("name", ["a b", "x" * 65, "a\n", "a@b", "-F", "ä"])
def test_names_that_no_snapshot_can_have(name):
    (message,) = refused(name=name)
    assert message == f"snapshot name {name!r} is not valid: use 1 to 64 letters, digits and -_.:%, no dash first"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "state=present needs the name of a snapshot"),
        ({"state": "absent"}, "state=absent needs the name of a snapshot"),
        (
            {"name": "a", "keep": keep(0, None, 0)},
            "one number above 0 and no negative ones: it has last 0, weekly 0",
        ),
        ({"name": "a", "keep": keep(-1, 3, 0)}, "keep needs at least one number above 0 and no negative ones: "),
        ({"state": "absent", "keep": keep(1)}, "keep needs the name of a snapshot, or names, the patterns of those"),
        ({"name": "a", "keep": {**keep(1), "names": ["a*", ""]}}, "keep.names: a pattern is empty"),
        ({"name": "a", "keep": keep(100001)}, "keep: no number can be above 100000: "),
        ({"name": "a", "newer": ["x"]}, "work only with state=rolled_back"),
        ({"name": "a", "destroy_newer": True}, "work only with state=rolled_back"),
        ({"name": "a", "flexible_disk_size": 5}, "work only with state=rolled_back"),
        ({"name": "a", "packages": [{"name": "a", "disk": "x"}]}, "disk of package a"),
        (
            {**ROLLBACK, "newer": ["b"], "destroy_newer": True},
            "destroy_newer: true gives all newer snapshots up, so that newer",
        ),
        ({**ROLLBACK, "vms": None}, "state=rolled_back needs vms, the VMs to roll back"),
        ({**ROLLBACK, "keep": keep(1)}, "keep works only with state=present and state=absent"),
    ],
)
def test_each_problem(options, text):
    (message,) = refused(**options)
    assert text in message


def test_two_wrong_values_of_one_entry_are_both_named():
    text = refused(name="a b", keep=keep(-1, 100001))
    assert [message.split(":")[0] for message in text] == [
        "snapshot name 'a b' is not valid",
        "keep needs at least one number above 0 and no negative ones",
        "keep",
    ]
    package, memory = refused(name="a", packages=[{"name": "p", "disk": "x", "memory": "y"}])
    assert (package.split('"')[0], memory.split('"')[0]) == ("disk of package p ", "memory of package p ")


def test_wrong_values_of_two_entries_are_all_named():
    text = refused(
        name="a b",
        flexible_disk_size="much",
        packages=[{"name": "p", "disk": "x"}, {"name": "q", "disk": 5, "vcpus": 0}],
    )
    assert [message.split(" is ")[0] for message in text] == [
        "snapshot name 'a b'",
        'flexible_disk_size "much"',
        "newer, destroy_newer and flexible_disk_size work only with state=rolled_back",
        'disk of package p "x"',
        "vcpus of package q",
    ]
