# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The template of a group: what it may say, and the entries of vm that come of it."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import template

DATA = {"name": "data", "size": 16, "preserve": True}
WEB1 = {"name": "web-1", "index": 1, "host": "hv01", "disks": []}


@pytest.mark.parametrize(
    ("given", "own", "said"),
    [
        ({"package": "p", "disks": [{"name": "root"}]}, {"web-1": {"uuid": "u", "memory": 1024, "address": "::1"}}, []),
        (
            {"vm": "web", "state": "stopped", "uuid": "u", "drained": True, "restart": True, "generation": "a"},
            {},
            ["template has vm, uuid, state, drained, generation, restart, which the update of the group sets itself"],
        ),
        ({}, {"web-0": {"name": "x"}}, ["web-0 has name, which the update of the group sets itself"]),
        (
            {"options": {"nics": [{"mac": "{instance.mac}"}]}, "tags": {"of": "{instance.zone}"}},
            {},
            [
                "{instance.mac}, {instance.zone}: no such placeholder; those here are {instance.address}, "
                "{instance.host}, {instance.index}, {instance.name}"
            ],
        ),
        (
            {},
            {"web-2": {}, "db-0": {}, "web-00": {}},
            [f"{name} is not a member of web, and has words of its own" for name in ("db-0", "web-00")],
        ),
        ({}, {"web-0": None}, ["web-0 is None, but must be a dictionary of the words of vm"]),
        ([], {}, ["template is [], but must be a dictionary of the words of vm"]),
        ({"disks": "20GiB"}, {}, ["template: disks is '20GiB', but must be a list of dictionaries"]),
        ({"disks": [DATA]}, {"web-0": {"disks": [16]}}, ["web-0: disks is [16], but must be a list of dictionaries"]),
        (
            {"options": ["x"], "secret_metadata": "secret99"},
            {},
            ["template: options, secret_metadata must be a dictionary"],
        ),
        ({"disks": None, "options": None}, {}, []),
        ({"address": "10.0.0.1"}, {}, ["address is '10.0.0.1' for all members; it needs a placeholder"]),
        ({"address": "{instance.name}.example.org"}, {}, []),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_template(given, own, said):
    assert [problem.message for problem in template.check_template("web", given, own)] == said


def test_all_that_is_wrong_is_said_together():
    problems = template.check_template(
        "web", {"state": "absent", "tags": {"a": "{instance.x}"}}, {"web-7": {"vm": "a"}}
    )
    assert len(problems) == 3
    assert {problem.code for problem in problems} == {"InvalidArgument"}


def test_a_member_fills_the_template():
    given = {
        "package": "p",
        "address": "{instance.name}.example.org",
        "tags": {"number": "{instance.index}", "at": "{instance.host}"},
        "customer_metadata": {"fqdn": "{instance.address}", "role": "web"},
    }
    assert template.entry(WEB1, given, {}, recreate=False) == {
        "vm": "web-1",
        "state": "running",
        "member": "web-1",
        "package": "p",
        "tags": {"number": 1, "at": "hv01"},
        "customer_metadata": {"fqdn": "web-1.example.org", "role": "web"},
    }


def test_own_values_replace_words_and_add_to_dictionaries():
    given = {"memory": 512, "tags": {"a": 1}, "options": {"a": 1, "b": 2}, "secret_metadata": {"pw": "x"}}
    own = {"web-1": {"memory": 1024, "tags": {"b": 2}, "options": {"b": 3}, "customer_metadata": {"c": 4}}}
    found = template.entry(WEB1, given, own, recreate=False)
    assert found["memory"] == 1024
    assert found["tags"] == {"b": 2}
    assert found["options"] == {"a": 1, "b": 3}
    assert (found["customer_metadata"], found["secret_metadata"]) == ({"c": 4}, {"pw": "x"})
    assert template.entry(WEB1, {"options": None}, {"web-1": {"options": None}}, recreate=False)["options"] == {}
    assert template.entry({**WEB1, "name": "web-0"}, given, own, recreate=False)["memory"] == 512


@pytest.mark.parametrize(
    ("given", "own", "address"),
    [
        ({}, {}, "web-1"),
        ({"address": "10.0.0.{instance.index}"}, {}, "10.0.0.1"),
        ({"address": "10.0.0.{instance.index}"}, {"web-1": {"address": "10.9.9.9"}}, "10.9.9.9"),
    ],
)
def test_where_the_gate_asks(given, own, address):
    assert template.facts_of(WEB1, given, own)["address"] == address


@pytest.mark.parametrize(
    ("disks", "boots"),
    [([{"name": "root"}, DATA], [0]), ([DATA, {"name": "root", "boot": True}], [1]), ([], []), (None, [])],
)
def test_only_the_boot_disk_may_be_made_anew(disks, boots):
    given = {} if disks is None else {"disks": disks}
    allowed = template.entry(WEB1, given, {}, recreate=True).get("disks") or []
    assert [number for number, disk in enumerate(allowed) if disk.get("recreate")] == boots
    assert [number for number, disk in enumerate(allowed) if disk.get("boot")] == boots
    assert "recreate" not in str(template.entry(WEB1, given, {}, recreate=False))
    assert "recreate" not in str(given)


def test_a_removal_allows_what_the_template_allows():
    given = {"package": "p", "destroy_disks": True, "disks": [DATA]}
    assert template.removal(WEB1, given) == {"vm": "web-1", "state": "absent", "destroy_disks": True, "member": "web-1"}
    assert template.removal(WEB1, {}) == {"vm": "web-1", "state": "absent", "member": "web-1"}


def test_what_a_member_was():
    disks = [
        {"name": "root", "uuid": "u", "size": 32, "preserve": False, "boot": True},
        {"name": "data", "uuid": "v", "size": 16, "preserve": True, "boot": False},
    ]
    member = {**WEB1, "memory": 512, "vcpus": None, "disks": disks}
    same = {"vm": "web-1", "state": "running", "restart": True, "unlisted": "keep", "memory": 512}
    assert template.restore_entry(member, recreated=False) == {**same, "disks": []}
    root = {"name": "root", "uuid": "u", "boot": True, "recreate": True}
    assert template.restore_entry(member, recreated=True) == {**same, "disks": [root]}


@pytest.mark.parametrize(
    ("disks", "keeps"), [(None, True), ([], False), ([{"name": "root"}], False), ([{"name": "root"}, DATA], True)]
)
def test_whether_a_further_member_would_lack_disks(disks, keeps):
    assert template.keeps_disks({"package": "p"} if disks is None else {"disks": disks}) is keeps
