# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as AWX has ansible-runner play them, on simulated nodes: what was approved is done, or nothing."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from fetched import core, cores

from ..playbooks.nodes import Nodes
from .jobs import Jobs
from .test_objects import TEMPLATES

FULL = bool(os.environ.get("FLEXDISK_FULL"))
ROOT = {"name": "root", "boot": True}


@pytest.fixture(params=["own", *cores()])
def programs(request):
    """The folder of an ansible-core: that of .venv, and the others."""
    if request.param == "own":
        return None
    if not FULL:
        pytest.skip("FLEXDISK_FULL=1 tries the other series of ansible-core")
    return core(request.param) or pytest.skip(f"no Python here for ansible-core {request.param}")


def declared(vm, size, uuid=""):
    disks = [ROOT, {"name": "data", "size": size, **({"uuid": uuid} if uuid else {"pci_slot": "0:4:1"})}]
    return {"flexible_disks_vms": [{"vm": vm, "disks": disks}]}


def volumes(nodes):
    return [nodes.run(host, "zfs", "list", "-Hpo", "name,volsize", "-t", "volume") for host in nodes.groups]


def found(nodes, host, name):
    (vm,) = json.loads(nodes.run(host, "vmadm", "lookup", "-j", f"alias={name}"))
    return vm


@pytest.fixture
def nodes(tmp_path):
    """web01 and db01, which run, are declared; app01 is not."""
    made = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    made.create("hv01", "web01", 1024, 10, {}, flexible=60, more=[5])
    made.create("hv02", "db01", 1024, 10, {}, flexible=40)
    made.create("hv02", "app01", 1024, 10, {"role": "app"}, flexible=40)
    made.variables["all"] = {"flexible_disks_allow_restart": True}
    made.variables["hv01"] = declared("web01", "20GiB", found(made, "hv01", "web01")["disks"][1]["uuid"])
    made.variables["hv02"] = declared("db01", "8GiB")
    return made


def test_what_was_approved_is_done_or_nothing(nodes, programs):
    """In between, somebody changes the inventory, stops a VM, and takes what the pool had left."""
    jobs = Jobs(nodes, programs)
    plan = jobs.launch("plan", {})
    assert plan.status == "successful", plan.stdout
    assert sorted(plan.artifacts) == ["flexdisk_plan_digests", "flexdisk_plan_lines"]
    digests = plan.artifacts["flexdisk_plan_digests"]
    assert sorted(digests) == ["hv01", "hv02"]
    shown = plan.stdout.split("PLAY RECAP")[0].splitlines()[-40:]
    assert [digest for digest in digests.values() if f"digest {digest}" not in "\n".join(shown)] == []
    before = volumes(nodes)

    def refused(code):
        job = jobs.launch("apply", workflow=plan.artifacts)
        assert (job.status, volumes(nodes)) == ("failed", before), job.stdout
        assert f"[{code}]" in job.stdout, job.stdout

    nodes.variables["hv02"] = declared("db01", "9GiB")
    refused("PlanChanged")
    nodes.variables["hv02"] = declared("db01", "8GiB")
    web = found(nodes, "hv01", "web01")["uuid"]
    nodes.run("hv01", "vmadm", "stop", web)
    refused("PlanChanged")
    nodes.run("hv01", "vmadm", "start", web)
    left = int(nodes.run("hv02", "zfs", "get", "-Hp", "-o", "value", "available", "zones"))
    nodes.run("hv02", "zfs", "create", "-o", f"refreservation={left - 64 * 2**20}", "zones/other")
    refused("InsufficientSpace")
    nodes.run("hv02", "zfs", "destroy", "zones/other")

    applied = jobs.launch("apply", workflow=plan.artifacts)
    assert applied.status == "successful", applied.stdout
    sizes = [
        [disk["size"] // 1024 for disk in found(nodes, *place)["disks"]]
        for place in (("hv01", "web01"), ("hv02", "db01"))
    ]
    assert sizes == [[10, 20], [10, 8]]
    after = volumes(nodes)
    by_hand = {"flexdisk_plan_digests": json.dumps(digests), "flexdisk_vm": ""}
    again = jobs.launch("apply", by_hand)
    assert (again.status, volumes(nodes)) == ("successful", after), again.stdout


def test_a_slice_does_what_each_host_does_by_itself_and_no_more(nodes):
    """AWX gives a slice an inventory of some hosts, with the variables of all groups."""
    jobs = Jobs(nodes)
    nodes.variables["all"]["flexdisk_host_count"] = 2
    for part, vm in (((1, 2), "web01"), ((2, 2), "db01")):
        job = jobs.launch("list_disks", {}, part=part)
        assert job.status == "successful", job.stdout
        assert vm in job.stdout
    before = volumes(nodes)
    for playbook, answers, why in (
        ("list_disks", {"flexdisk_list_vm": "web01"}, "web01 must be looked for on all hosts"),
        ("plan", {"flexdisk_vm": "web01"}, "web01 must be looked for on all hosts"),
        ("delete_vm", {"flexdisk_vm": "web01", "flexdisk_destroy_disks": "true"}, "delete_vm needs all hosts"),
    ):
        job = jobs.launch(playbook, answers, part=(1, 2))
        text = f"{why}, but the inventory has only 1 of 2 hosts of the group hypervisors (flexdisk_host_count)"
        assert job.status == "failed", job.stdout
        assert text in " ".join(job.stdout.split()), job.stdout
    assert volumes(nodes) == before
    assert jobs.launch("converge", part=(2, 2)).status == "successful"
    assert len(volumes(nodes)[1].splitlines()) == len(before[1].splitlines()) + 1


def test_plans_of_slices_are_approved_once(nodes):
    """AWX hands on one variable of each name, of all slices of a job: the one of the slice that has ended last."""
    jobs = Jobs(nodes)
    nodes.variables["all"]["flexdisk_host_count"] = 2
    artifacts: dict[str, object] = {}
    for part in ((2, 2), (1, 2)):
        plan = jobs.launch("plan", part=part)
        assert plan.status == "successful", plan.stdout
        artifacts.update(plan.artifacts)
    assert len(artifacts) == 4
    before = volumes(nodes)

    nodes.variables["hv02"] = declared("db01", "9GiB")
    for part, status in (((2, 2), "failed"), ((1, 2), "successful")):
        job = jobs.launch("apply", workflow=artifacts, part=part)
        assert job.status == status, job.stdout
        assert ("[PlanChanged]" in job.stdout) == (status == "failed")
    text = "other slices: 1 host has a digest, but is not in the inventory of this slice"
    assert text in job.stdout
    assert volumes(nodes)[0] != before[0]
    assert volumes(nodes)[1] == before[1], "its own plan is another one now, whatever the other slice has done"

    nodes.variables["hv02"] = declared("db01", "8GiB")
    (missing,) = [name for name in artifacts if "digests" in name and "hv02" in artifacts[name]]
    others = {name: value for name, value in artifacts.items() if name != missing}
    job = jobs.launch("apply", workflow=others, part=(2, 2))
    assert job.status == "failed", job.stdout
    assert "hv02 has declared VMs, but flexdisk_plan_digests has no digest of it." in " ".join(job.stdout.split())
    assert volumes(nodes)[1] == before[1]
    newer = {**artifacts, "flexdisk_plan_digests_0123abcd": {"hv01": "", "hv02": artifacts[missing]["hv02"]}}
    job = jobs.launch("apply", workflow=newer)
    assert job.status == "failed", job.stdout
    assert "hv01 has two different values in flexdisk_plan_digests" in " ".join(job.stdout.split())
    assert volumes(nodes)[1] == before[1]
    whole = jobs.launch("apply", workflow=artifacts)  # not sliced: it joins them, too
    assert whole.status == "successful", whole.stdout
    assert volumes(nodes)[1] != before[1]


def test_a_host_without_changes_has_five_events(nodes):
    """AWX stores each of them: with more, its pages are slow for a thousand hosts. The first host also has the tasks
    that one host does for all.
    """
    jobs = Jobs(nodes)
    assert jobs.launch("converge").status == "successful"
    job = jobs.launch("converge")
    assert "changed=1" not in job.stdout
    found = [event["event"] for event in job.events if event.get("event_data", {}).get("host") == "hv02"]
    assert Counter(found) == {"runner_on_start": 2, "runner_on_ok": 2, "runner_on_file_diff": 1}


IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
NEW = {"vm": "new01", "state": "running", "package": "small", "image": IMAGE, "disks": [{"name": "root"}]}
GROUP = {
    "name": "web",
    "size": 1,
    "hosts": ["hv01"],
    "template": {"package": "small", "image": IMAGE, "disks": [{"name": "root"}]},
}
OF_APP = {"flexdisk_vm": "app01", "flexdisk_disk": "logs"}
RESTART = {"flexible_disks_allow_restart": "true"}
# Playbook, answers of its survey, and what the job says. One is played after the other; what is refused ends with !
SAMPLE = [
    (
        "add_disk",
        {**OF_APP, "flexdisk_disk_size": "2GiB", "flexdisk_pci_slot": "4:1"},
        "! has arrived as the number 241",
    ),
    (
        "snapshot",
        {"flexdisk_vm": "app01", "flexdisk_snapshot_name": "2026-11-23"},
        "! has arrived as the date 2026-11-23",
    ),
    (
        "list_disks",
        {"flexdisk_list_state": ["attached"], "flexdisk_list_tags": "", "flexdisk_list_vm": "app01"},
        "app01",
    ),
]
ALL = [
    ("adopt", {"flexdisk_adopt_vms": "- vm: app01\n  disks:\n    - {index: 0, name: root}"}, "app01"),
    ("plan", {"flexdisk_vm": "web01"}, "1 VM"),
    ("apply", {"flexdisk_plan_digests": "hv01: aaaaaaaaaaaaaaaa", "flexdisk_vm": "web01"}, "! [PlanChanged]"),
    ("converge", {}, "+ data 8 GiB"),
    (
        "add_disk",
        {**OF_APP, **RESTART, "flexdisk_disk_size": "2GiB", "flexdisk_pci_slot": "0:4:5"},
        "+ logs 2 GiB at 0:4:5",
    ),
    ("resize_disk", {**OF_APP, **RESTART, "flexdisk_disk_size": "3GiB"}, "~ logs 2 GiB -> 3 GiB"),
    ("detach_disk", {**OF_APP, **RESTART}, "logs"),
    ("attach_disk", {**OF_APP, **RESTART, "flexdisk_pci_slot": '"0:4:6"'}, "0:4:6"),
    ("snapshot", {"flexdisk_snapshot_vms": "app01\ndb01", "flexdisk_snapshot_name": "before"}, "before"),
    ("rollback", {"flexdisk_vm": "app01", "flexdisk_snapshot_name": "before", **RESTART}, "Roll the VMs back"),
    ("remove_disk", {**OF_APP, **RESTART, "flexdisk_destroy_snapshots": "true"}, "- logs"),
    (
        "verify_disks",
        {"flexdisk_verify_fail_on": "error", "flexdisk_verify_repair": ["quota_drift"]},
        "nothing is wrong",
    ),
    ("recalculate_quota", {"flexdisk_quota_vms": "app01, db01"}, "hv02"),
    ("report", {"flexdisk_report_format": "table"}, "app01"),
    ("create_vm", {"flexdisk_vm": "new01"}, "new01"),
    ("change_package", {"flexdisk_vm": "new01", "flexdisk_package": "medium"}, "! would undo this change"),
    ("delete_vm", {"flexdisk_vm": "new01", "flexdisk_destroy_disks": "true"}, "! would undo this change"),
    ("update_group", {"flexdisk_group": "web"}, "web-0"),
    ("restart_group", {"flexdisk_group": "web", "flexdisk_generation": "again", "flexdisk_most_steps": 1}, "web-0"),
    ("scale_group", {"flexdisk_group": "web", "flexdisk_size": 0}, "web-0"),
    ("replicate", {"flexdisk_vm": "app01", "flexdisk_replica_host": "hv01"}, "app01"),
    ("restore_disk", {"flexdisk_vm": "app01", "flexdisk_disk": "root", "flexdisk_restored_name": "before"}, "+ before"),
    ("restore_vm", {"flexdisk_vm": "app01", "flexdisk_replaced_suffix": "wrong", **RESTART}, "+ root-wrong"),
    ("plan_moves", {"flexdisk_move_request": "evacuate", "flexdisk_move_from_hosts": "hv02"}, "app01"),
    ("evacuate_host", {"flexdisk_move_from_hosts": "hv02", "flexdisk_move_digest": "aaaaaaaaaaaaaaaa"}, "! digest"),
    (
        "change_group",
        {"flexdisk_move_vms": "app01", "flexdisk_move_to_groups": "none"},
        "! there is no host group none",
    ),
    ("rebalance", {"flexdisk_move_max_moves": 1, "flexdisk_move_min_gain": 0.5}, "rebalance: 0 VMs move"),
    ("move_vm", {"flexdisk_vm": "app01", "flexdisk_target": "hv01"}, "app01"),
    (
        "failover_vm",
        {"flexdisk_vm": "app01", "flexdisk_target": "hv02", "flexdisk_fenced": "false"},
        "! flexdisk_fenced",
    ),
    ("stop_vm", {"flexdisk_power_vms": "app01"}, "app01"),
    ("start_vm", {"flexdisk_vm": "app01"}, "app01"),
    ("restart_vm", {"flexdisk_vm": "app01"}, "app01"),
    ("list_replicas", {"flexdisk_list_vm": "app01"}, "flexdisk-sync-"),
    ("status", {"flexdisk_status_fail_on": "never"}, "app01: has moved to hv01"),
    ("write_metrics", {}, "! path is /var/lib/prometheus/node-exporter/flexdisk.prom"),
    ("start_host", {"flexdisk_start_unasked": "false"}, "hv01"),
    ("change_package", {"flexdisk_vm": "app01", "flexdisk_package": "medium"}, "app01"),
    ("delete_vm", {"flexdisk_vm": "app01", "flexdisk_destroy_disks": "true"}, "! [Replicated]"),
    ("grow_guests", {"flexdisk_group": "web"}, "no hosts matched"),  # this inventory has no guests
]


def prepared(nodes):
    """What the inventory and the hosts have for all playbooks."""
    nodes.connect("hv01", "hv02")
    nodes.connect("hv02", "hv01")
    for host in nodes.groups:
        nodes.simnode(host, "image-import", IMAGE, "64")
    sizes = {"disk": "10GiB", "flexible_disk": True, "vcpus": 1}
    packages = [{"name": "small", "memory": "1GiB", **sizes}, {"name": "medium", "memory": "2GiB", **sizes}]
    nodes.variables["all"].update(flexdisk_packages=packages, flexdisk_groups=[GROUP])
    nodes.variables["hv01"]["virtual_machine_vms"] = [NEW]


def test_wrappers_with_the_answers_of_their_surveys(nodes, programs):
    """What is written is what is meant, or it is refused with the way to write it."""
    prepared(nodes)
    jobs = Jobs(nodes, programs)
    wrong = []
    for playbook, answers, says in SAMPLE + (ALL if FULL else []):
        job = jobs.launch(playbook, answers)
        words = says.removeprefix("! ")
        if job.status != ("failed" if says.startswith("! ") else "successful") or words not in job.stdout:
            wrong.append(f"{playbook} {answers}: {job.status}, not {says!r}\n{job.stdout[-6000:]}")
    assert wrong == [], "\n\n".join(wrong)


def test_no_event_has_a_secret_of_the_inventory(nodes):
    """AWX keeps what each task returns, and shows it to whoever may see the job."""
    prepared(nodes)
    secret = {"secret_metadata": {"root_pw": "correct-horse"}}
    nodes.variables["all"]["flexdisk_groups"] = [{**GROUP, "template": {**GROUP["template"], **secret}}]
    nodes.variables["hv01"]["virtual_machine_vms"] = [{**NEW, **secret}]
    jobs = Jobs(nodes)
    for playbook, answers in (("create_vm", {"flexdisk_vm": "new01"}), ("update_group", {"flexdisk_group": "web"})):
        job = jobs.launch(playbook, answers, check=True)
        assert job.status == "successful", job.stdout
    events = [path for path in nodes.folder.glob("awx_*/artifacts/**/*") if path.is_file()]
    assert len(events) > 50
    assert [path for path in events if "correct-horse" in path.read_text()] == []


def test_every_wrapper_is_tried():
    assert {playbook for playbook, _answers, _says in ALL} | {"list_disks"} == set(TEMPLATES)
