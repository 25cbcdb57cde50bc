# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The example of docs/declaring-disks.md, and the roles, as Ansible runs them: plan, somebody interferes, apply."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from simnode import scenarios
from simnode.__main__ import install_programs

ROOT = Path(__file__).resolve().parents[3]
SECTION = (ROOT / "docs" / "declaring-disks.md").read_text().split("\n## Approve a plan\n")[1].split("\n## ")[0]
ROLE = "flexdisk.hypervisor.flexible_disks"


def run(folder, tasks):
    """The status of a play with these tasks on the demo node, and what it printed."""
    scenarios.build("demo", folder / "node").save()
    install_programs(folder / "node")
    hosts = {"hv01": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"hypervisors": {"hosts": hosts}}))
    place = folder / "collections" / "ansible_collections" / "flexdisk"
    place.mkdir(parents=True)
    (place / "hypervisor").symlink_to(ROOT)
    path = f"{folder / 'node' / 'bin'}:{os.environ['PATH']}"
    play = {"hosts": "hypervisors", "gather_facts": False, "environment": {"PATH": path}, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(folder / "collections"), ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "hosts.yml", "play.yml"]
    done = subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout + done.stderr


def role(size, check=False, **more):
    disks = [{"name": "root", "boot": True}, {"name": "data", "size": size}]
    given = {"flexible_disks_vms": [{"vm": "web01", "disks": disks}], **more}
    what = {"name": ROLE, **({"apply": {"check_mode": True}} if check else {})}
    return {"ansible.builtin.include_role": what, "vars": given}


def test_the_page_and_the_role(tmp_path):
    plan, ask, apply = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)[0])
    root, data = {"name": "root", "boot": True}, {"name": "data", "pci_slot": "0:4:1"}
    adopts = {"flexdisk.hypervisor.vm_disks": {"vms": [{"vm": "web01", "disks": [root, data]}]}, "name": "Adopt"}
    disks = [root, {**data, "size": "30GiB"}]
    interferes = {"flexdisk.hypervisor.vm_disks": {"vms": [{"vm": "web01", "disks": disks}]}, "name": "Interfere"}
    keep = {"ansible.builtin.set_fact": {"approved": "{{ flexible_disks_result }}"}}
    expected = {"flexible_disks_expect_plan": "{{ approved.plan_digest }}"}
    expected["flexible_disks_expect_lines"] = "{{ approved.plan }}"
    more = {"block": [role("52GiB", flexible_disks_recalculate_quota=True, **expected)]}
    more["rescue"] = [{"ansible.builtin.debug": {"msg": "others must wait"}}]
    tasks = [adopts, plan, ask, interferes, {**apply, "ignore_errors": True}, plan, apply, apply]
    lost = {"block": [role("52GiB", flexible_disks_expect_plan=None)], "rescue": [more["rescue"][0]]}
    tasks += [role("51GiB", check=True), keep, role("51GiB", **expected), more, lost, role("52GiB", **expected)]
    status, printed = run(tmp_path, tasks)
    assert status == 2, printed
    refused = r"the plan has changed since it was approved: its digest is ([a-p]\w{31}), not ([a-p]\w{31})"
    assert len(set(re.findall(refused, printed))) == 2, "once by the page, once by the role"
    for line in (
        "- web01 .*~ data 20 GiB -> 50 GiB",
        "+ web01 .*~ data 30 GiB -> 50 GiB",
        "+ web01 .*~ data 51 GiB -> 52 GiB",
    ):
        assert re.search(re.escape(line[:2]) + line[2:], printed), line
    states = re.findall(
        r"^TASK \[(?:\S+ : )?(.*?)\].*\n(?:.*\n)*?^(ok|changed|fatal|skipping): ", printed, re.MULTILINE
    )
    of_page = [state for name, state in states if name == apply["name"]]
    assert of_page == ["fatal", "changed", "ok"]
    of_role = [state for name, state in states if name == "Change the disks of the declared VMs"]
    assert of_role == ["changed", "changed"]
    compared = [state for name, state in states if name == "Compare the plans of all hosts with the approved ones"]
    assert compared == ["skipping", "ok", "fatal", "fatal", "fatal"]
    assert "approves the disks of the declared VMs only" in printed
    assert printed.count("others must wait") == 2
