# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks cost the controller: tasks, CPU seconds and MiB, on hosts whose modules answer at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SIMNODE = ROOT / "extensions" / "simulated_node"
VMS = 2  # on each host
FORKS = 4
SAMPLE = 0.5  # seconds between two looks at the memory of all processes
HEAD = "controller                hosts forks  tasks per host  CPU s per host of them empty peak MiB all forks seconds"
FLOORS = 2  # so many times the CPU seconds of a play of as many tasks that do nothing
TARGET = 0.12  # CPU seconds for each host of a run of converge without changes
MEMORY = 1024  # MiB of the controller's largest process, for any number of hosts
LARGE = ("converge", "plan", "report")  # what is measured on more than a hundred hosts
ROUNDS = 3  # so often a play with a target of CPU seconds is measured, in turns with its empty play; medians count
NOISE = 1.25  # by how much a figure of linear growth may come out too large
READ: dict[str, dict[str, Any]] = {
    "vm_info": {"space": True},
    "host_info": {},
    "disk_info": {"space": True},
    "disk_verify": {},
    "zfs_quota": {"_ansible_check_mode": True},
}
# The Python of the hosts: it gets the module on its standard input, and prints what that said when it was recorded. In
# UUIDs it puts the number of the host, which is the name it is called by. All this is work of a host: it is done by a
# process for which nobody waits, so that it does not count as work of the controller.
ANSWER = """#!/bin/sh
exec 3<&0
{{
{name}
number=${{0##*/}}
sleep {delay}
exec sed "s/NUMBER/$number/g; s/TENS/${{number#${{number%%[1-9]*}}}}/g" "{answers}/$name.json"
}} <&3 3<&- &
"""
# What a module is called: with its state, if that decides what it says.
NAME = r"""words=$(grep -a -o -E 'hypervisor[.]plugins[.]modules[.][a-z_]+|"state": "(reported|held|released)"')
state=$(echo "$words" | sed -n 's/"state": "\(.*\)"/-\1/p' | head -1)
name=$(echo "$words" | sed -n 's/.*modules[.]//p' | head -1)$state"""
# A Python that keeps what modules say.
RECORD = """#!/bin/sh
cat > "{folder}/payload"
name() {{
{name}
}}
name < "{folder}/payload"
{python} < "{folder}/payload" | tee "{folder}/$name.json"
"""
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
MEMBERS = 10  # of a group, on each host
GROUP = {"name": "web", "size": MEMBERS, "template": {"package": "small", "image": IMAGE, "disks": [{"name": "root"}]}}
OF_GROUP = {
    "flexdisk_group": "web",
    "flexdisk_packages": [
        {"name": "small", "memory": "1GiB", "disk": "10GiB", "flexible_disk": True, "vcpus": 1},
    ],
}
# Loaded before any process is forked, so all of them count. Each read of the variables of a host appends one byte.
COUNTER = """
import os
from ansible.plugins.callback import CallbackBase
from ansible.vars.hostvars import HostVars

STREAM = os.open("{folder}/reads", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
READ = HostVars.raw_get


def counted(self, host_name):
    os.write(STREAM, b".")
    return READ(self, host_name)


HostVars.raw_get = counted


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "counter"
    CALLBACK_NEEDS_ENABLED = True
"""
TASK = "    - ansible.builtin.assert: {that: true, quiet: true}\n"
EMPTY = "- hosts: hypervisors\n  gather_facts: false\n  tasks:\n"


class Cost(NamedTuple):
    """What one run has cost."""

    tasks: int  # results of tasks, of all hosts together
    seconds: float  # CPU seconds of the controller with all its processes
    mib: float  # peak memory of its largest process
    total: float  # peak of what all its processes take together, MiB
    elapsed: float  # seconds
    printed: str
    reads: int  # how often a template or an action has read the variables of a host through hostvars


class Fleet:
    """Hosts on this machine, all alike. wanted: what their VMs have, as declarations. delay: seconds of each module."""

    def __init__(self, folder: Path, forks: int = FORKS, delay: float = 0) -> None:
        self.folder, self.forks = folder, forks
        shutil.rmtree(folder, ignore_errors=True)
        link = folder / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
        (folder / "ansible.cfg").write_text("[defaults]\n")
        _program(folder / "answer", ANSWER.format(name=NAME, answers=folder, delay=delay))
        _program(folder / "member", ANSWER.format(name=NAME, answers=folder / "group", delay=delay))
        (folder / "callbacks").mkdir()
        (folder / "callbacks" / "counter.py").write_text(COUNTER.format(folder=folder))
        self.wanted, self.digest = self._record()

    def _record(self) -> tuple[list[dict[str, Any]], str]:
        """Let modules look at a simulated node, and keep what they say. Also the digest of a plan without changes."""
        node = self.folder / "node"
        env = {**os.environ, "PYTHONPATH": f"{SIMNODE}:{self.folder / 'collections'}"}
        env["PATH"] = f"{node}/bin:{os.environ['PATH']}"
        command = [sys.executable, "-m", "simnode", "--dir", str(node), "init", "--scenario", f"bench:{VMS}"]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        looked = subprocess.run([f"{node}/bin/vmadm", "lookup", "-j"], env=env, check=True, capture_output=True)
        wanted = [{"vm": vm["uuid"], "disks": _declared(vm)} for vm in json.loads(looked.stdout)]
        _said("vm_disks", {"vms": wanted}, env)  # its disks get their names
        for name, options in {**READ, "vm_disks": {"vms": wanted}}.items():
            (self.folder / f"{name}.json").write_text(_numbered(_said(name, options, env)))
        return wanted, json.loads((self.folder / "vm_disks.json").read_text())["plan_digest"]

    def run(self, playbook: str, hosts: int, variables: dict[str, Any]) -> Cost:
        """Run a playbook on so many hosts."""
        names = [f"hv{number:04}" for number in range(hosts)]
        answer = "answer"
        if playbook == "update_group":
            answer = "member"
            if not (self.folder / "group").exists():
                self.record_group()
            variables = {**OF_GROUP, "flexdisk_groups": [{**GROUP, "size": MEMBERS * hosts}]}
        if playbook == "apply":
            variables = {**variables, "flexdisk_plan_digests": dict.fromkeys(names, self.digest)}
        everyone = {name: {"ansible_python_interpreter": self._python(answer, name[2:])} for name in names}
        return self._play(playbook, everyone, variables)

    def beside_empty(self, playbook: str, hosts: int, variables: dict[str, Any]) -> tuple[Cost, Cost]:
        """What a play costs, and straight after it one with as many tasks that do nothing."""
        cost = self.run(playbook, hosts, variables)
        return cost, self.run(self.empty(round(cost.tasks / hosts)), hosts, {})

    def _play(self, playbook: str, everyone: dict[str, dict[str, str]], variables: dict[str, Any]) -> Cost:
        common = {"ansible_connection": "local"}
        inventory, printed, reads = (self.folder / name for name in ("inventory.json", "printed", "reads"))
        reads.write_text("")
        inventory.write_text(json.dumps({"hypervisors": {"hosts": everyone, "vars": {**common, **variables}}}))
        book = playbook if "/" in playbook else f"flexdisk.hypervisor.{playbook}"
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory), book]
        begun, peak, samples = time.monotonic(), 0.0, 0
        with printed.open("w") as stream:
            child = subprocess.Popen(command, env=self._environment(), stdout=stream, stderr=stream)
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            while pid == 0:
                time.sleep(0.01)
                if time.monotonic() - begun > SAMPLE * (samples + 1):
                    samples += 1
                    peak = max(peak, _memory(child.pid))
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            child.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.monotonic() - begun
        text = printed.read_text()
        if child.returncode != 0:
            raise SystemExit(f"{playbook} has failed: {text[-3000:]}")
        tasks = len(re.findall(r"^(?:ok|changed|skipping|fatal): \[", text, re.MULTILINE))
        tasks += sum(line.count(",") + 1 for line in re.findall(r"^included: .*", text, re.MULTILINE))
        seconds, mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        return Cost(tasks, seconds, mib, max(peak, mib), elapsed, text, reads.stat().st_size)

    def _python(self, answer: str, number: str) -> str:
        link = self.folder / f"{answer}s" / number
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(f"../{answer}")
        return str(link)

    def record_group(self) -> None:
        """Let a group be made on a simulated node, and keep what modules say when nothing is left to do."""
        folder = self.folder / "group"
        node = folder / "node"
        folder.mkdir()
        for words in (
            ["init", "--pool", "zones:1T"],
            ["machine", "memory=65536", "cpus=16"],
            ["image-import", IMAGE, "64"],
        ):
            _simnode(node, *words)
        _program(folder / "record", RECORD.format(name=NAME, folder=folder, python=sys.executable))
        place = {"PATH": f"{node}/bin:{os.environ['PATH']}"}
        variables = {
            **OF_GROUP,
            "flexdisk_groups": [{**GROUP, "policy": {"max_batch_size": MEMBERS, "min_in_service": 0}}],
            "flexdisk_environment": place,
        }
        for python in (sys.executable, str(folder / "record")):
            self._play("update_group", {"hv0000": {"ansible_python_interpreter": python}}, variables)
        uuids = re.findall(r'"uuid": "([0-9a-f]{8}-[0-9a-f-]{27})"', (folder / "vm_info.json").read_text())
        for path in folder.glob("*.json"):
            text = re.sub(r"\bweb-([0-9])\b", r"web-TENS\1", _numbered(path.read_text()))
            for uuid in dict.fromkeys(uuids):
                text = text.replace(uuid, f"{uuid[:9]}NUMBER{uuid[13:]}")
            path.write_text(text)

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        return {
            **ours,
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_CALLBACK_PLUGINS": str(self.folder / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "counter",
            "ANSIBLE_FORKS": str(self.forks),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
        }

    def empty(self, tasks: int) -> str:
        """A playbook of tasks that do nothing."""
        path = self.folder / f"empty{tasks}.yml"
        path.write_text(EMPTY + TASK * tasks)
        return str(path)

    def plays(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """What is measured: a playbook, and the variables of its hosts."""
        declared = {"flexible_disks_vms": self.wanted}
        return {
            "converge, nothing declared": ("converge", {"flexible_disks_vms": []}),
            **{name: (name, declared) for name in ("converge", "plan", "apply")},
            **{name: (name, {}) for name in ("report", "list_disks", "verify_disks")},
            "report, page": ("report", {"flexdisk_report_html": str(self.folder / "report.html")}),
            "plan_moves": ("plan_moves", {"flexdisk_move_request": "rebalance"}),
            "update_group": ("update_group", {}),
        }

    def on_few(self, name: str) -> list[Cost]:
        """What a play costs on one host, on two, and on three."""
        playbook, variables = self.plays()[name]
        return [self.run(playbook, hosts, variables) for hosts in (1, 2, 3)]


def _declared(vm: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": f"disk{n}", "uuid": disk["uuid"], "size": disk["size"], **({"boot": True} if disk.get("boot") else {})}
        for n, disk in enumerate(vm["disks"])
    ]


def _simnode(node: Path, *words: str) -> None:
    command = [sys.executable, "-m", "simnode", "--dir", str(node), *words]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SIMNODE)}, check=True, stdout=subprocess.DEVNULL)


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _numbered(text: str) -> str:
    """What a module has said, with NUMBER where the VMs and pools of hosts must differ."""
    text = re.sub(r"\bbbbbbbbb-0000-", "bbbbbbbb-NUMBER-", text)
    return re.sub(r'("guid": "?[0-9]{4})[0-9]{4}', r"\1NUMBER", text)


def _said(module: str, options: dict[str, Any], env: dict[str, str]) -> str:
    command = [sys.executable, "-m", f"ansible_collections.flexdisk.hypervisor.plugins.modules.{module}"]
    given = json.dumps({"ANSIBLE_MODULE_ARGS": options})
    done = subprocess.run(command, env=env, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{module} has failed: {done.stdout} {done.stderr}")
    return done.stdout


def _memory(parent: int) -> float:
    """What a process and its children take together, MiB: what they share counts once."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text().rpartition(")")[2].split()
            if parent in (int(path.name), int(state[1])):
                total += int(re.findall(r"^Pss: +([0-9]+)", (path / "smaps_rollup").read_text(), re.MULTILINE)[0])
        except (IndexError, OSError):  # it has ended
            continue
    return total / 1024


def controller(
    folder: Path, sizes: list[int], only: Sequence[str] = (), forks: Sequence[int] = (FORKS,), delay: float = 0
) -> list[str]:
    """Print what playbooks cost on so many hosts; which targets are missed.

    only: the names of what is measured, on all these numbers of hosts.
    """
    missed: list[str] = []
    fleets = {number: Fleet(folder / str(number), number, delay) for number in forks}
    print(HEAD)
    for name, number in ((name, number) for name in fleets[forks[0]].plays() for number in forks):
        fleet = fleets[number]
        playbook, variables = fleet.plays()[name]
        before: tuple[int, float] | None = None
        for hosts in (size for size in sizes if (name in only if only else size <= 100 or name in LARGE)):
            targeted = hosts >= 100 and name.startswith("converge")
            pairs = [fleet.beside_empty(playbook, hosts, variables) for _round in range(ROUNDS if targeted else 1)]
            cost = pairs[0][0]
            each = median(one.seconds for one, _empty in pairs) / hosts
            floor = median(empty.seconds for _one, empty in pairs) / hosts
            floors = median(one.seconds / empty.seconds for one, empty in pairs)
            row = f"{name:<25} {hosts:>5} {number:>5} {cost.tasks / hosts:>14.1f} {each:>14.3f} {floor:>13.3f}"
            print(f"{row} {cost.mib:>8.0f} {cost.total:>10.0f} {cost.elapsed:>7.1f}", flush=True)
            if before and each > NOISE * before[1]:
                missed.append(f"growth of {name} from {before[0]} to {hosts} hosts")
            if cost.mib > MEMORY:
                missed.append(f"memory of {name} on {hosts} hosts")
            if targeted:
                print(f"  in {ROUNDS} rounds {floors:.2f} times an empty play")
                if each > TARGET:
                    missed.append(f"CPU seconds of {name} on {hosts} hosts")
                if floors > FLOORS:
                    missed.append(f"CPU seconds of {name} beside those of empty tasks on {hosts} hosts")
            before = (hosts, each)
    return missed
