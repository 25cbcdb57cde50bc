# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks plan and apply on simulated nodes: what a person approves is done, on all hosts, or nothing is."""

from __future__ import annotations

import json
import re

import pytest

from .nodes import ROOT, Nodes

PAGE = (ROOT / "docs" / "playbooks.md").read_text()
BOOT = {"name": "root", "boot": True}


def declared(vm, size):
    return {"flexible_disks_vms": [{"vm": vm, "disks": [BOOT, {"name": "data", "size": size}]}]}


@pytest.fixture
def nodes(tmp_path):
    """web on hv01, db and log on hv02, nothing declared on hv03."""
    made = Nodes(tmp_path, {"hv01": "", "hv02": "", "hv03": ""})
    (tmp_path / "ansible.cfg").write_text((tmp_path / "ansible.cfg").read_text() + "show_custom_stats = true\n")
    for host, vm in (("hv01", "web"), ("hv02", "db"), ("hv02", "log")):
        made.create(host, vm, 2048, 10, {}, flexible=60)
    made.variables["hv01"] = declared("web", "20GiB")
    made.variables["hv02"] = {
        "flexible_disks_vms": declared("db", "5GiB")["flexible_disks_vms"]
        + declared("log", "6GiB")["flexible_disks_vms"]
    }
    made.variables["all"] = {"flexible_disks_recalculate_quota": True, "flexible_disks_allow_restart": True}
    return made


def volumes(nodes):
    return [nodes.run(host, "zfs", "list", "-Hpo", "name,volsize", "-t", "volume") for host in nodes.groups]


def plan(nodes, *words, status=0, **how):
    """What a workflow would hand on, as a file of extra variables, and the last output."""
    before = volumes(nodes)
    found, said = nodes.play("plan", *words, **how)
    assert found == status, said
    assert volumes(nodes) == before
    assert re.findall(r"changed=[1-9]", said) == []
    stats = json.loads(re.search(r"RUN: (\{.*\})\n", said, re.DOTALL)[1])
    assert sorted(stats) == ["flexdisk_plan_digests", "flexdisk_plan_lines"]
    lines = "".join(f"  {host}: !unsafe '{digest}'\n" for host, digest in stats["flexdisk_plan_digests"].items())
    (nodes.folder / "extravars").write_text(f"flexdisk_plan_digests:\n{lines}")
    text = re.findall(r'"msg": (\[.*?\])\n\}', said, re.DOTALL)[-1]
    return stats, json.loads(text)


def apply(nodes, *words, **how):
    return nodes.play("apply", "-e", f"@{nodes.folder}/extravars", *words, **how)


def changed(said):
    return re.findall(r"^(\w+) +: ok=\d+ +changed=(\d)", said, re.MULTILINE)


def shape(line):
    return re.sub(r"\b[a-p][0-9a-f]{31}\b|[0-9a-f]{8}-[0-9a-f-]+|[0-9.]+", "#", line)


def test_four_steps_of_all_declarations(nodes):
    stats, text = plan(nodes)
    assert plan(nodes, "--check", "--diff") == (stats, text)
    digests, lines = stats["flexdisk_plan_digests"], stats["flexdisk_plan_lines"]
    assert sorted(digests) == ["hv01", "hv02"]
    assert text[:3] == [
        f"hv01: 1 VM: 1 change, 1 restart, +20 GiB, 0 B destroyed, digest {digests['hv01']}",
        f"hv02: 2 VMs: 2 changes, 2 restarts, +11 GiB, 0 B destroyed, digest {digests['hv02']}",
        "hv03: nothing is declared",
    ]
    assert [f"  {line}" for line in lines["hv01"][1:]] == text[4 : 3 + len(lines["hv01"])]
    assert "    + data 20 GiB at 0:4:1" in text
    assert re.fullmatch(r"  space: quotas of these VMs \S+ GiB -> \S+ GiB, pool zones has \S+ GiB left now", text[-1])
    block = re.findall(r"(?m)^    hv01: (?:.*\n)*?\n", PAGE)[0].replace("web01", "web").replace("hv02", "hv03")
    assert [line for line in block.splitlines() if line and shape(line[4:]) not in map(shape, text)] == []
    shown = []
    for options, changes in (["--check"], "1"), ([], "1"), (["--check"], "0"), ([], "0"):
        before = volumes(nodes)
        status, said = apply(nodes, *options)
        assert status == 0, said
        assert changed(said) == [("hv01", changes), ("hv02", changes), ("hv03", "0")]
        assert (volumes(nodes) != before) == (changes == "1" and not options)
        shown.append(json.loads(re.findall(r'"msg": (\[.*?\])\n\}', said, re.DOTALL)[-1]))
    assert shown[0] == shown[1]
    assert shown[0] == [re.sub(", pool zones .*", "", line) for line in text]
    assert shown[2] == shown[3]
    assert "hv01: 1 VM: nothing to change, digest" in shown[2][0]


def test_what_has_changed_on_one_host_stops_all(nodes):
    """The inventory of hv02 says something else now; then it is the VM of hv01 that is not what it was."""
    stats, _text = plan(nodes)
    before = volumes(nodes)
    nodes.variables["hv02"]["flexible_disks_vms"][0]["disks"][1]["size"] = "7GiB"
    status, said = apply(nodes, "-e", json.dumps({"flexdisk_plan_lines": stats["flexdisk_plan_lines"]}))
    assert status == 2
    assert "- db (" in said
    assert "[PlanChanged]" in said
    assert changed(said) == [("hv01", "0"), ("hv02", "0"), ("hv03", "0")]
    nodes.variables["hv02"]["flexible_disks_vms"][0]["disks"][1]["size"] = "5GiB"
    nodes.variables["hv03"] = declared("new", "1GiB")
    assert "hv03 has declared VMs, but flexdisk_plan_digests has no digest of it." in apply(nodes)[1]
    del nodes.variables["hv03"]
    assert apply(nodes, unreachable="hv02")[0] != 0
    with (nodes.folder / "extravars").open("a") as given:
        given.write("  hv9: !unsafe 'dddddddddddddddd'\n")
    assert "hv9 is in flexdisk_plan_digests, but not in the inventory." in apply(nodes)[1]
    assert volumes(nodes) == before


def test_one_vm_and_the_hosts_of_a_limit(nodes):
    _stats, text = plan(nodes, "-e", "flexdisk_vm=db")
    assert text[0].startswith("hv02: 1 VM: 1 change, 1 restart, +5 GiB")
    assert text[1:3] == ["hv01: does not have db", "hv03: does not have db"]
    before = volumes(nodes)
    status, said = apply(nodes)
    assert status == 2
    assert "hv01 has declared VMs, but flexdisk_plan_digests has no digest of it." in said
    assert "PlanChanged" in apply(nodes, "--limit", "hv02")[1]
    assert volumes(nodes) == before
    status, said = apply(nodes, "-e", "flexdisk_vm=db")
    assert status == 0, said
    assert changed(said) == [("hv01", "0"), ("hv02", "1"), ("hv03", "0")]
    plan(nodes)
    status, said = apply(nodes, "--limit", "hv01")
    assert status == 0, said
    assert "hv02: approved, but not among the hosts of this run, so nothing was done there" in said
    assert changed(said) == [("hv01", "1")]


def test_what_cannot_be_planned_is_named(nodes):
    nodes.variables["hv01"]["flexible_disks_vms"][0]["disks"][1]["size"] = "900GiB"
    stats, text = plan(nodes, status=4, unreachable="hv02")
    assert stats == {"flexdisk_plan_digests": {"hv01": "", "hv02": ""}, "flexdisk_plan_lines": {}}
    assert text[0] == "hv03: nothing is declared"
    assert text[1].startswith("hv01: NO PLAN: VM web: ")
    # ssh has ended before or after Ansible writes to it: two messages of one fact
    assert re.match("hv02: NO PLAN: .*(Connection refused|could not be sent to remote host)", text[2])
    nodes.variables["hv01"] = {}
    _status, said = nodes.play("plan", "-e", "flexdisk_vm=web")
    assert "VM web is on hv01, but flexible_disks_vms does not declare it there. It declares no VM." in said


def test_a_plan_that_reaches_no_host_withdraws_what_an_older_one_has_handed_on(nodes):
    """As the slice of a workflow: the jobs after it get its variables, and those of older plans of other names."""
    status, printed = nodes.play("plan", "--limit", "hv02", unreachable="hv02")
    assert status == 4
    assert json.loads(re.search(r"RUN: (\{.*\})\n", printed, re.DOTALL)[1]) == {"flexdisk_plan_digests": {"hv02": ""}}
    status, printed = nodes.play("apply", "-e", json.dumps({"flexdisk_plan_digests": {"hv02": ""}}), "--limit", "hv02")
    assert status == 2
    assert "hv02 has declared VMs, but its digest in flexdisk_plan_digests is empty" in printed
    assert changed(printed) == [("hv02", "0")]
