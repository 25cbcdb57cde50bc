# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolls as users run them, with ansible-playbook on nodes in folders: what they promise, and how they fail."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess

import pytest
import yaml

from tests.unit.engine.conftest import IMAGE
from tests.unit.fleet.cluster import SECOND

from .farm import Farm, images, recap, watched

TWO = {"min_in_service": 10, "max_batch_size": 2, "action_ceiling": "recreate"}


def table(output, title):
    """The rows of a table in the output, each as its words."""
    rows = [line.strip().strip('",').split() for line in output.splitlines() if line.startswith('        "')]
    heads = [number for number, row in enumerate(rows) if row[0] == "STEP" and title in " ".join(row)]
    if not heads:
        return []
    rest = rows[heads[-1] + 1 :]
    ends = [number for number, row in enumerate(rest) if not row[0].isdigit()]
    return rest[: ends[0]] if ends else rest


def done(output):
    """What was done: step, member, action and result of each."""
    return [(int(row[0]), row[1], row[3], " ".join(row[6:])) for row in table(output, "RESULT")]


def boot_disks(vms):
    """The uuid of each member's boot disk."""
    return {name: [disk["uuid"] for disk in vm["disks"] if disk.get("boot")] for name, (_host, vm) in vms.items()}


def planned_for(farm):
    """The rows of the plan of the new image: step, member and action."""
    check = farm.run(SECOND, "--check", policy=TWO)
    assert check.code == 0, check.output
    return [(int(row[0]), row[1], row[3]) for row in table(check.output, "DESTROYS")]


def test_twelve_members_are_planned_and_three_at_a_time_refused(tmp_path):
    farm = Farm(tmp_path, 12, 4)
    vms, pooled, files = farm.vms(), farm.pooled(), farm.files()
    planned = planned_for(farm)
    assert [(member, do) for _step, member, do in planned] == [(f"web-{n}", "recreate") for n in range(11, -1, -1)]
    assert [step for step, _member, _do in planned] == [n // 2 + 1 for n in range(12)]
    assert farm.files() == files
    refused = farm.run(SECOND, policy={**TWO, "max_batch_size": 3})
    assert refused.code != 0
    said = "10 of 12 members in service and 3 changed at a time take 13 members, but the members keep disks"
    assert said in refused.words
    assert (farm.vms(), farm.pooled()) == (vms, pooled)


@pytest.mark.skipif(
    not os.environ.get("FLEXDISK_FULL"), reason="takes minutes; fleet/test_cluster.py has it in process"
)
def test_twelve_members_get_a_new_image(tmp_path):
    farm = Farm(tmp_path, 12, 4)
    before, digests = farm.look().vms(), farm.look().digests()
    assert len(set(digests.values())) == 12
    planned = planned_for(farm)
    with watched(farm, floor=10) as watch:
        run = farm.run(SECOND, policy=TWO)
    assert run.code == 0, run.output
    assert (watch.broken, watch.least) == ([], 10)
    assert done(run.output) == [(*row, "ok") for row in planned]
    farm.check_whole(before, digests, dict.fromkeys(before, SECOND), parked=1)

    again = farm.run(SECOND, policy=TWO)
    assert (again.code, recap(again.output)) == (0, dict.fromkeys(farm.hosts, 0)), again.output
    farm.check_whole(before, digests, dict.fromkeys(before, SECOND), parked=1)


def test_one_step_and_a_second_run_at_the_same_time(tmp_path):
    farm = Farm(tmp_path, 4, 2)
    before, digests = farm.look().vms(), farm.look().digests()
    policy = {"min_in_service": 2, "max_batch_size": 2, "action_ceiling": "recreate"}
    go = tmp_path / "go"
    hook = [{"name": "Wait", "ansible.builtin.raw": f"until [ -e {go} ]; do sleep 0.1; done"}]
    (tmp_path / "wait.yml").write_text(yaml.safe_dump(hook))
    more = {"most_steps": 1, "before_step": [f"{tmp_path}/wait.yml"]}
    with watched(farm, floor=2) as watch, farm.start(SECOND, policy=policy, **more) as first:
        assert first.wait_until("Run the hooks before the step"), first.output
        files = farm.files()
        second = farm.run(SECOND, policy=policy)
        assert (first.running, farm.files()) == (True, files)
        go.touch()
        first.wait()
    assert second.code != 0
    who = f"{getpass.getuser()} on {socket.gethostname()}, process {first.pid}"
    assert f"web: {who}" in second.words
    assert "Read the VMs of each host" not in second.output
    assert set(recap(second.output).values()) == {0}
    # The first did its one step, and the rest is left.
    assert first.code == 0, first.output
    assert done(first.output) == [(1, "web-3", "recreate", "ok"), (1, "web-2", "recreate", "ok")]
    assert watch.broken == []
    wanted = {"web-0": IMAGE, "web-1": IMAGE, "web-2": SECOND, "web-3": SECOND}
    assert images(farm.look()) == wanted
    assert farm.pooled() == set(before)
    assert farm.lease() is None
    assert farm.look().digests() == digests


def test_hooks_and_a_gate_that_fail(tmp_path):
    """Three members fail in three ways. They are left as they are, and the same command puts them back first."""
    farm = Farm(tmp_path, 4, 2)
    before, digests = farm.look().vms(), farm.look().digests()
    policy = {"min_in_service": 1, "max_batch_size": 3, "max_down_per_host": 2, "action_ceiling": "recreate"}
    more = {"policy": policy, "gate": {"tasks": [f"{tmp_path}/gate.yml"]}}
    for name in ("before-web-3", "after-web-2", "gate-web-1"):
        (farm.broken / name).touch()
    with watched(farm, floor=1) as watch:
        run = farm.run(SECOND, **more)
        assert run.code != 0
        assert "failure_budget is 0, but web-1, web-2, web-3 failed" in run.words
        assert done(run.output) == [(1, name, "recreate", "FAILED") for name in ("web-3", "web-2", "web-1")]
        assert images(farm.look()) == {"web-0": IMAGE, "web-1": SECOND, "web-2": SECOND, "web-3": IMAGE}
        assert farm.marked() == {"web-1", "web-2", "web-3"}
        assert farm.pooled() == {"web-0", "web-3"}  # web-3 failed before it had left
        assert {vm["state"] for _host, vm in farm.look().vms().values()} == {"running"}
        assert farm.lease() is None

        for path in farm.broken.iterdir():
            path.unlink()
        run = farm.run(SECOND, **more)
    assert run.code == 0, run.output
    first = [(1, name, "return", "ok") for name in ("web-3", "web-2", "web-1")]
    assert done(run.output) == [*first, *((2, name, "recreate", "ok") for name in ("web-3", "web-0"))]
    assert watch.broken == []
    farm.check_whole(before, digests, dict.fromkeys(before, SECOND), parked=1)


def test_a_step_that_fails_is_gone_back_on(tmp_path):
    """The first look at web-2 after its change says no, so both members of the step get their old disks again."""
    farm = Farm(tmp_path, 4, 2)
    before, digests = farm.look().vms(), farm.look().digests()
    once = {"ansible.builtin.raw": "! rm {{ broken }}/once-{{ instance_group_member.name }}"}
    (tmp_path / "gate.yml").write_text(yaml.safe_dump([{"name": "Say no once", **once}]))
    (farm.broken / "once-web-2").touch()
    policy = {"min_in_service": 2, "max_batch_size": 2, "action_ceiling": "recreate", "on_failure": "revert"}
    with watched(farm, floor=2) as watch:
        run = farm.run(SECOND, policy=policy, gate={"tasks": [f"{tmp_path}/gate.yml"]})
    assert run.code != 0
    assert "failure_budget is 0, but web-2 failed [InvalidArgument]; back to what they were: web-2, web-3" in run.words
    assert done(run.output) == [(1, "web-3", "recreate", "reverted"), (1, "web-2", "recreate", "FAILED, reverted")]
    assert watch.broken == []
    farm.check_safe(before, digests)
    cluster = farm.look()
    assert images(cluster) == dict.fromkeys(before, IMAGE)
    assert boot_disks(cluster.vms()) == boot_disks(before)
    assert {vm["state"] for _host, vm in cluster.vms().values()} == {"running"}
    assert (farm.pooled(), farm.marked(), farm.lease()) == (set(before), set(), None)


def test_task_files_that_are_missing_are_refused(tmp_path):
    farm = Farm(tmp_path, 2, 2)
    files = farm.files()
    hooks = {"before_step": ["/nowhere/a.yml"], "gate": {"tasks": ["/nowhere/b.yml"]}, "after_step": ["/nowhere/a.yml"]}
    refused = farm.run(SECOND, policy={"action_ceiling": "recreate"}, **hooks)
    assert refused.code != 0
    assert "no such task file: /nowhere/a.yml, /nowhere/b.yml" in refused.words
    assert farm.files() == files


def test_a_host_that_cannot_be_reached(tmp_path):
    farm = Farm(tmp_path, 2, 2)
    before, digests, files, vms = farm.look().vms(), farm.look().digests(), farm.files(), farm.vms()
    farm.cut("hv1")
    policy = {"action_ceiling": "recreate"}
    refused = farm.run(SECOND, policy=policy)
    assert refused.code != 0
    assert "could have the lease of another run: hv1" in refused.words
    assert """-e '{"flexdisk_lease_without": ["hv1"]}'""" in refused.words
    off = {"lease_without": ["hv1"]}
    refused = farm.run(SECOND, policy={**policy, "min_in_service": 1, "failure_budget": 3}, **off)
    assert refused.code != 0
    assert "web-0 cannot be changed: 1 member is in service, at least 1 must be" in refused.words
    assert (farm.vms(), farm.pooled()) == (vms, set(before))

    run = farm.run(SECOND, policy={**policy, "failure_budget": 3}, **off)
    assert run.code != 0
    assert "web-1: not as declared" in run.words
    assert done(run.output) == [(1, "web-0", "recreate", "ok")]
    assert images(farm.look()) == {"web-0": SECOND, "web-1": IMAGE}
    assert (farm.pooled(), farm.marked(), farm.look().digests()) == (set(before), set(), digests)
    assert (farm.node("hv1") / "state.json").read_bytes() == files["hv1/state.json"]


def test_members_without_marks_are_adopted_and_a_short_lease_outlasts_the_pauses(tmp_path):
    """The members are as version 0.2.0 has made them. The lease is short, so it is renewed while the run waits."""
    farm = Farm(tmp_path, 2, 1)
    before, digests = farm.look().vms(), farm.look().digests()
    for host, vm in before.values():
        zfs = farm.node(host) / "bin" / "zfs"
        subprocess.run([zfs, "inherit", "flexdisk:member", f"zones/{vm['uuid']}"], check=True)
    policy = {"action_ceiling": "recreate", "pause_time": 8}
    more = {"adopt": ["web-0", "web-1"], "lease_ttl": 10, "stop_timeout": 5, "gate": {"retries": 1, "delay": 1}}
    run = farm.run(SECOND, policy=policy, **more)
    assert run.code == 0, run.output
    assert "Mark the VMs that become members" in run.output
    assert done(run.output) == [(1, "web-1", "recreate", "ok"), (2, "web-0", "recreate", "ok")]
    assert run.output.count("TASK [flexdisk.hypervisor.instance_group : Take or renew the lease]") >= 5
    assert {vm["member"] for info in farm.infos().values() for vm in info["vms"]} == set(before)
    farm.check_whole(before, digests, dict.fromkeys(before, SECOND), parked=1)
    assert farm.lease() is None


def test_a_deadline_stops_a_roll_between_steps(tmp_path):
    """A hook after a step sets the begin of the run back, so nothing here depends on how long anything takes."""
    farm = Farm(tmp_path, 2, 2)
    before, digests = farm.look().vms(), farm.look().digests()
    policy = {"min_in_service": 1, "action_ceiling": "recreate", "deadline": 3600}
    begun = "{'memory': {'begun': _instance_group_turn.memory.begun - 3600}}"
    earlier = {"_instance_group_turn": "{{ _instance_group_turn | combine(" + begun + ", recursive=true) }}"}
    (tmp_path / "later.yml").write_text(yaml.safe_dump([{"ansible.builtin.set_fact": earlier}]))
    run = farm.run(SECOND, policy=policy, after_step=[f"{tmp_path}/later.yml"])
    assert run.code != 0
    assert "the deadline of 3600 s is over" in run.words
    assert done(run.output) == [(1, "web-1", "recreate", "ok")]
    assert images(farm.look()) == {"web-0": IMAGE, "web-1": SECOND}
    assert (farm.pooled(), farm.marked(), farm.lease()) == (set(before), set(), None)
    farm.check_safe(before, digests)
