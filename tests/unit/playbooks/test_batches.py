# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What operators can set about the hosts of a run: forks, strategy, serial, and when a failure stops others."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from .nodes import CONFIG, ROOT, Nodes

HOSTS = ["hv01", "hv02", "hv03", "hv04"]
PLAYBOOKS = [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "playbooks" / "parts").glob("*.yml")]


@pytest.fixture
def nodes(tmp_path):
    """Each host has a VM that gets a second disk."""
    made = Nodes(tmp_path, dict.fromkeys(HOSTS, ""))
    made.variables["all"] = {"flexible_disks_allow_restart": True}
    for host in HOSTS:
        made.create(host, f"vm-{host}", 512, 2, {}, flexible=8)
        made.variables[host] = declared(host, "1GiB")
    return made


def declared(host, size):
    disks = [{"name": "root", "boot": True}, {"name": "data", "size": size}]
    return {"flexible_disks_vms": [{"vm": f"vm-{host}", "disks": disks}]}


def changed(nodes):
    """The hosts whose VM has got its second disk."""
    return [host for host in HOSTS if len(json.loads(nodes.run(host, "vmadm", "lookup", "-j"))[0]["disks"]) == 2]


def role(nodes, **keywords):
    """Play the role in a play with these keywords. The status."""
    book = nodes.folder / "book.yml"
    play = {"hosts": "hypervisors", "gather_facts": False, "environment": "{{ flexdisk_environment }}"}
    book.write_text(yaml.safe_dump([{**play, "roles": ["flexdisk.hypervisor.flexible_disks"], **keywords}]))
    return nodes.play(str(book))


def of_all_hosts(play):
    """Whether a play has tasks that one host does for all, or that stop all hosts."""
    return bool(re.search(r"run_once|any_errors_fatal|import_tasks|include_tasks", json.dumps(play)))


def test_plays_that_need_all_hosts_at_a_time_say_so():
    """With another strategy each host goes on by itself, and any_errors_fatal stops nobody."""
    plays = {
        f"{path.name}: {play['name']}": play.get("strategy", "none")
        for path in PLAYBOOKS
        for play in yaml.safe_load(path.read_text())
        if "hosts" in play and of_all_hosts(play)
    }
    assert len(plays) > 30
    free = {"stage.yml: Carry out moves"}  # the moves of a stage do not wait for each other
    assert {name for name, strategy in plays.items() if strategy != "ansible.builtin.linear"} == free


def test_a_strategy_of_the_configuration_changes_no_playbook(nodes):
    """converge compares the plans of all hosts before it changes one, and says once who failed."""
    (nodes.folder / "ansible.cfg").write_text(CONFIG + "strategy = free\n")
    nodes.variables["hv02"]["flexible_disks_expect_plan"] = "1" * 32
    status, printed = nodes.play("converge")
    assert status == 2, printed
    assert changed(nodes) == []
    del nodes.variables["hv02"]["flexible_disks_expect_plan"]
    nodes.variables["hv02"].update(declared("hv02", "1TiB"))
    status, printed = nodes.play("converge")
    assert status == 2, printed
    assert changed(nodes) == ["hv01", "hv03", "hv04"]
    assert printed.count("1 host failed:") == 1


@pytest.mark.parametrize("forks", [1, 50])
def test_forks_change_nothing_but_the_time(nodes, forks):
    status, printed = nodes.play("converge", "--forks", str(forks))
    assert status == 0, printed
    assert changed(nodes) == HOSTS


def test_in_a_play_of_ones_own_hosts_change_in_batches_until_too_many_have_failed(nodes):
    nodes.variables["hv02"].update(declared("hv02", "1TiB"))
    status, printed = role(nodes, serial=[1, "100%"], max_fail_percentage=50)
    assert status == 2, printed
    assert changed(nodes) == ["hv01", "hv03", "hv04"], "one of three is less than a half"
    for host in ("hv03", "hv04"):
        nodes.variables[host].update(declared(host, "2GiB"))
    status, printed = role(nodes, serial=2, max_fail_percentage=0)
    assert status == 2, printed
    sizes = [json.loads(nodes.run(host, "vmadm", "lookup", "-j"))[0]["disks"][1]["size"] for host in ("hv03", "hv04")]
    assert sizes == [1024, 1024], "the second batch was not begun"


def test_a_batch_that_fails_as_a_whole_is_the_last_one(nodes):
    nodes.variables["hv01"].update(declared("hv01", "1TiB"))
    status, printed = role(nodes, serial=1)
    assert status == 2, printed
    assert changed(nodes) == []


def test_plans_are_compared_within_a_batch(nodes):
    """What an earlier batch has changed stays changed."""
    nodes.variables["hv03"]["flexible_disks_expect_plan"] = "1" * 32
    status, printed = role(nodes, serial=2)
    assert status == 2, printed
    assert changed(nodes) == ["hv01", "hv02"]


def test_the_strategy_free_lets_no_host_wait_in_a_play_of_ones_own(nodes):
    """Each host still does exactly what was approved for it, or nothing. It does not wait for the plans of others."""
    nodes.variables["hv02"]["flexible_disks_expect_plan"] = "1" * 32
    status, printed = role(nodes, strategy="free")
    assert status == 2, printed
    assert changed(nodes) == ["hv01", "hv03", "hv04"]
