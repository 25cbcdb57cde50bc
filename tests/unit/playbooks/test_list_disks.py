# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook list_disks, with the options of a list of disks: columns, order, more columns, no heading, JSON."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.filter.disk_table import FIELDS

from .nodes import ROOT, Nodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": ""})
    made.create("hv01", "web", 1024, 10, {}, more=(5, 20))
    made.create("hv01", "db", 1024, 7, {})
    return made


def shown(nodes, *words, check=("--check",)):
    """The last thing that the playbook shows."""
    status, said = nodes.play("list_disks", *words, *check)
    assert status == 0, said
    assert re.findall(r"changed=[1-9]", said) == []
    return json.loads(re.findall(r'"msg": (\[.*?\n    \])\n\}', said, re.DOTALL)[-1])


def test_columns_and_their_order_are_chosen(nodes):
    lines = shown(nodes, "-e", "flexdisk_list_fields=vm,pci_slot,size", "-e", "flexdisk_list_sort=-size")
    assert [line.split() for line in lines] == [
        ["VM", "SLOT", "SIZE"],
        ["web", "0:4:2", "20", "GiB"],
        ["web", "0:4:0", "10", "GiB"],
        ["db", "0:4:0", "7", "GiB"],
        ["web", "0:4:1", "5", "GiB"],
    ]


def test_more_columns_without_a_heading(nodes):
    given = {"flexdisk_list_long": "yes", "flexdisk_list_header": "no", "flexdisk_list_sort": "vm\n-pci_slot"}
    lines = shown(nodes, "-e", json.dumps(given), check=())
    assert [line.split()[0] for line in lines] == ["db", "web", "web", "web"]
    assert [re.search(r"0:4:\d", line)[0] for line in lines] == ["0:4:0", "0:4:2", "0:4:1", "0:4:0"]
    assert all(" 8 KiB " in line for line in lines)


def test_data_is_sorted_too(nodes):
    disks = shown(nodes, "-e", "flexdisk_list_format=json", "-e", "flexdisk_list_sort=size")
    assert [disk["size"] for disk in disks] == [5120, 7168, 10240, 20480]
    assert {"uuid", "frees_bytes", "clones", "path"} <= set(disks[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"flexdisk_list_sort": ["-colour"]}, "flexdisk_list_sort has colour, but the columns are vm, name, state"),
        ({"flexdisk_list_fields": "name,colour"}, "flexdisk_list_fields"),
        ({"flexdisk_list_format": "json", "flexdisk_list_long": True}, "flexdisk_list_long works only with a table"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_a_host_is_read(nodes, given, words):
    status, said = nodes.play("list_disks", "-e", json.dumps(given), unreachable="hv01")
    assert status == 2
    assert words in said


def test_the_page_has_all_columns():
    section = (ROOT / "docs" / "playbooks.md").read_text().split("\n## List disks\n")[1]
    assert tuple(re.findall(r"`(\w+)`", section.split("\nColumns are ")[1].split(". ")[0])) == FIELDS
