# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cost of a step of a group: what the planner takes on the controller, and how often modules run on hosts."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tree import BIN, BUILD, dev_tree

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import roll
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.judged import judge_members
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.member_places import find
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import RESTART, Member
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import RollPolicy

BATCHES = 20  # of a roll
WORK = BUILD / "bench" / "group"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
SIMNODE = dev_tree() / "ansible_collections/flexdisk/hypervisor/extensions/simulated_node"

# Writes a line for each module that was run on a host: the task, the module and whether it was in check mode.
CALLBACK = """
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "counted"

    def v2_runner_on_ok(self, result):
        if not result.is_skipped():
            with open("calls.log", "a") as stream:
                stream.write(f"{result.task_name}\\t{result.task.action}\\n")
"""


def planner(count: int) -> tuple[float, float, float]:
    """Milliseconds to plan the next step of a group with its members over ten hosts, to plan its whole roll, and to
    find its members in what the hosts say.
    """
    members = tuple(Member(f"web-{n}", n, f"hv{n % 10}", change=RESTART) for n in range(count))
    group, batch = roll.Group("web", count, members), max(1, count // BATCHES)
    policy = RollPolicy(count - batch, batch, max_down_per_host=batch)
    times = [time.process_time()]
    roll.next_step(group, policy)
    times.append(time.process_time())
    steps, end = roll.all_steps(group, policy)
    times.append(time.process_time())
    if not roll.is_done(end) or len(steps) < min(count, BATCHES):
        raise SystemExit(f"a roll of {count} members did not end as planned: {len(steps)} steps")
    found = find(said_by(members), declaration(count), [])["members"]
    judge_members(found, {}, [member.name for member in members], count, False)
    times.append(time.process_time())
    step, whole, look = ((later - earlier) * 1000 for earlier, later in itertools.pairwise(times))
    return step, whole, look


def declaration(count: int) -> dict[str, Any]:
    template = {"package": "p", "image": IMAGE, "disks": [{"name": "root"}, {"name": "data", "size": 16}]}
    return {
        "name": "web",
        "size": count,
        "hosts": [f"hv{n}" for n in range(10)],
        "members": {},
        "replace": [],
        "generation": "",
        "policy": {},
        "template": template,
    }


def said_by(members: tuple[Member, ...]) -> dict[str, Any]:
    """What vm_info returns for each host."""
    hosts: dict[str, Any] = {}
    for n, member in enumerate(members):
        disks = [
            {"name": name, "uuid": f"{n}-{name}", "size": 16, "preserve": False, "boot": name == "root"}
            for name in ("root", "data")
        ]
        vm = {"uuid": str(n), "alias": member.name, "state": "running", "drained": False, "disks": disks}
        empty: dict[str, Any] = {
            "vms": [],
            "skipped_vms": [],
            "parked": [],
            "intents": [],
            "pools": [{"name": "zones", "guid": 1}],
        }
        hosts.setdefault(member.host, empty)["vms"].append(vm)
    return hosts


def calls(hosts: int) -> list[str]:
    """Roll a group with one member on each of so many simulated nodes in one step, and count the modules that are run
    on them. What is more than it should be.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "callbacks").mkdir(parents=True)
    (WORK / "callbacks" / "counted.py").write_text(CALLBACK)
    names = [f"hv{n}" for n in range(hosts)]
    for seed, name in enumerate(names):
        for words in (["init", "--pool", "zones:64G", "--seed", str(seed)], ["image-import", IMAGE, "16"]):
            command = [sys.executable, "-m", "simnode", "--dir", str(WORK / name), *words]
            subprocess.run(
                command, check=True, env={**os.environ, "PYTHONPATH": str(SIMNODE)}, stdout=subprocess.DEVNULL
            )
    path = f"{WORK}/{{{{ inventory_hostname }}}}/bin:{os.environ['PATH']}"
    shared = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "flexdisk_environment": {"PATH": path},
    }
    (WORK / "inventory.json").write_text(
        json.dumps({"hypervisors": {"hosts": {key: {} for key in names}, "vars": shared}})
    )
    play(hosts, vcpus=1)
    (WORK / "calls.log").unlink()
    started = time.monotonic()
    play(hosts, vcpus=2)
    seconds = time.monotonic() - started
    tasks = Counter(
        line.split("\t")[0].split(" : ")[-1]
        for line in (WORK / "calls.log").read_text().splitlines()
        if line.split("\t")[1].rsplit(".", 1)[-1] in ("vm", "vm_info")
    )
    print(
        f"a step of {hosts} members on {hosts} hosts: {seconds:.1f} s, modules run on hosts: "
        + ", ".join(f"{count} {task!r}" for task, count in tasks.items())
    )
    return ["module calls of a step"] if tasks["Change the members"] != hosts else []


def play(hosts: int, vcpus: int) -> None:
    group = {**declaration(hosts), "hosts": [f"hv{n}" for n in range(hosts)], "policy": {"max_batch_size": hosts}}
    del group["replace"], group["generation"]  # the playbooks take one from a variable, and refuse an empty other one
    group["template"]["vcpus"] = vcpus
    packages = [{"name": "p", "disk": 1024, "flexible_disk": True, "memory": 128, "vcpus": 1}]
    (WORK / "vars.json").write_text(json.dumps({"flexdisk_groups": [group], "flexdisk_packages": packages}))
    command: list[str | Path] = [
        BIN / "ansible-playbook",
        "-i",
        "inventory.json",
        "-e",
        "@vars.json",
        "-e",
        "flexdisk_group=web",
        "flexdisk.hypervisor.update_group",
    ]
    env = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(dev_tree()),
        "ANSIBLE_CALLBACK_PLUGINS": str(WORK / "callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "counted",
    }
    done = subprocess.run(command, cwd=WORK, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
