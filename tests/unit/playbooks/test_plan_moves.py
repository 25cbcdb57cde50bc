# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook plan_moves on four simulated nodes, as a user runs it."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

from .nodes import Nodes

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "placement.md").read_text()
GROUPS = {"hv01": "a", "hv02": "a", "hv03": "b", "hv04": "b"}
VMS = {
    "hv01": [("web-0", 4096, 20, {"role": "web"}), ("db-0", 8192, 40, {"role": "db"})],
    "hv02": [("web-1", 4096, 20, {"role": "web"})],
    "hv03": [("huge", 26624, 10, {})],
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), GROUPS)
    for host, vms in VMS.items():
        for name, memory, disk, tags in vms:
            made.create(host, name, memory, disk, tags)
    return made


def planned(nodes, request, *words, **more):
    """The status of the playbook, and what it prints."""
    given = {"flexdisk_move_request": request, **more}
    return nodes.play("plan_moves", "-e", json.dumps(given), *words)


def shown(printed):
    """The lines of the table."""
    found = re.search(r'"msg": (\[.*?\n    \])', printed, re.DOTALL)
    assert found, printed
    return json.loads(found[1])


def command(request):
    """The words of the page's command for a request."""
    (words,) = re.findall(rf"plan_moves (-e flexdisk_move_request={request} .*(?:\n      .*)?)", PAGE)
    return words.replace("\\\n", " ").split()


def told(lines):
    """Whether the page shows these lines."""
    return textwrap.indent("\n".join(lines), "    ") in PAGE


def test_one_host_is_emptied(nodes):
    status, printed = nodes.play("plan_moves", *command("evacuate"))
    assert status == 0, printed
    lines = shown(printed)
    assert told(lines)
    assert [line.split()[:5] for line in lines[2:-1]] == [
        ["1", "db-0", "hv01", "hv02", "a"],
        ["2", "web-0", "hv01", "hv02", "a"],
    ]
    asked = re.findall(r"(?:ok|skipping): \[(hv\d+)\]", printed.split("Read memory")[1].split("TASK")[0])
    assert sorted(re.findall(r"skipping: \[(hv\d+)\]", printed)) == ["hv03", "hv04"], (
        "hosts of other groups are not asked"
    )
    assert sorted(asked) == ["hv01", "hv02", "hv03", "hv04"]
    assert "changed=1" not in printed


def test_a_tagged_set_changes_its_group(nodes):
    more = {"flexdisk_move_tags": {"role": "web"}, "flexdisk_move_to_groups": ["b"], "flexdisk_moves_per_host": 1}
    status, printed = planned(nodes, "change_group", flexdisk_move_format="json", **more)
    assert status == 0, printed
    found = json.loads(re.search(r'"msg": (\{\n.*?\n    \})', printed, re.DOTALL)[1])
    assert {entry["name"]: entry["to"] for entry in found["moved"]} == {"web-0": "hv04", "web-1": "hv04"}
    assert [job["depends"] for job in found["jobs"]] == [[], [1]]
    assert found["score"]["after"] != found["score"]["before"]


def test_a_refusal_is_explained_for_each_host(nodes):
    status, printed = nodes.play("plan_moves", *command("change_group"))
    assert status == 2, printed
    lines = shown(printed)
    assert lines[0].startswith("change_group: 0 VMs move, 1 cannot")
    assert lines[1] == "huge: no host"
    assert told(lines[1:])
    assert re.fullmatch(r"  hv01  memory: 26 GiB needed, [\d.]+ GiB free", lines[2])
    assert re.fullmatch(r"  hv02  memory: 26 GiB needed, [\d.]+ GiB free", lines[3])
    partial = {"flexdisk_move_vms": ["huge"], "flexdisk_move_to_groups": ["a"], "flexdisk_move_allow_partial": True}
    status, printed = planned(nodes, "change_group", **partial)
    assert status == 0, printed


def test_a_host_that_cannot_be_read_is_named(nodes):
    more = {"flexdisk_move_vms": ["web-0"], "flexdisk_move_from_hosts": ["hv01"]}
    status, printed = nodes.play(
        "plan_moves",
        "-e",
        json.dumps({"flexdisk_move_request": "evacuate", **more}),
        unreachable="hv02",
    )
    assert status == 2, printed
    assert any(line.startswith("  hv02  could not be read: ") for line in shown(printed))


def test_the_inventory_of_the_page(nodes):
    """hv02 is drained, hv03 and hv04 have tags of their own, and two VMs of one role are not on one host. What is said
    of a group whose hosts are not asked does no harm, but a group that no host is in is refused.
    """
    (block,) = re.findall(r"```yaml\n(hypervisors:.*?)```", PAGE, re.DOTALL)
    told = yaml.safe_load(block)["hypervisors"]
    assert {host: said["flexdisk_host_group"] for host, said in told["hosts"].items()} == GROUPS
    nodes.variables = {"all": told["vars"], **told["hosts"]}
    try:
        _status, printed = planned(nodes, "evacuate", flexdisk_move_from_hosts="hv01")
        assert "  hv02  is drained" in shown(printed)
        _status, printed = planned(nodes, "evacuate", flexdisk_move_from_hosts="hv03")
        assert [line.split()[1:4] for line in shown(printed)[2:-1]] == [["huge", "hv03", "hv04"]]
        _status, printed = planned(nodes, "change_group", flexdisk_move_vms="huge")
        assert "  hv01  lacks tags that VMs of the present host need" in shown(printed)
        roles = {"flexdisk_move_tags": {"role": "web"}, "flexdisk_move_to_groups": "b"}
        _status, printed = planned(nodes, "change_group", **roles)
        assert "  hv04  has a VM with the exclusive tag role=web" in shown(printed)
        nodes.variables["all"] = {"flexdisk_host_groups": [{"name": "c", "cpu_ratio": 4}]}
        _status, printed = planned(nodes, "evacuate", flexdisk_move_from_hosts="hv03")
        assert "host group c has no host; there are b [InvalidArgument]" in printed
    finally:
        nodes.variables = {}


@pytest.mark.parametrize(
    ("request_", "more", "said"),
    [
        (
            "evacuate",
            {"flexdisk_move_from_hosts": ["hv09"]},
            "from_hosts: there is no host hv09, but hv01, hv02, hv03, hv04",
        ),
        (
            "change_group",
            {"flexdisk_move_vms": ["web-9"]},
            "there is no VM web-9 on hv01, hv02, hv03, hv04. Did you mean web-",
        ),
        ("place", {}, "value of flexdisk_move_request must be one of"),
        ("evacuate", {"flexdisk_move_target": "hv02"}, "flexdisk_move_target is unknown"),
    ],
)
def test_what_is_no_request(nodes, request_, more, said):
    status, printed = planned(nodes, request_, **more)
    assert status == 2
    assert said in printed
