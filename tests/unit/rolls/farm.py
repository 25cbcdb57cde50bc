# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes in folders, a load balancer that is a folder too, and ansible-playbook with the role instance_group.

Everything is as a user has it: an inventory, a playbook, hooks, and the command, which can be killed.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from simnode import Node
from simnode.__main__ import install_programs

from tests.unit.fleet.cluster import PACKAGES, Cluster, Raw, Roll, boot_image, group_of
from tests.unit.playbooks.nodes import CONFIG

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from tree import in_forks

ROOT = Path(__file__).resolve().parents[3]
MARK = "FLEXDISK_RUN"  # in the environment of all that a run starts: its process, workers, modules and their commands
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "environment": "{{ flexdisk_environment }}",
        "roles": ["flexdisk.hypervisor.instance_group"],
    }
]
OUT = {"name": "Take it out", "ansible.builtin.raw": "rm -f {{ balancer }}/{{ instance_group_member.name }}"}
IN = {"name": "Put it in", "ansible.builtin.raw": "touch {{ balancer }}/{{ instance_group_member.name }}"}


def refuse(where: str) -> Raw:
    """A task that fails for a member while there is a file WHERE-MEMBER."""
    path = f"broken ~ '/{where}-' ~ instance_group_member.name"
    return {"ansible.builtin.assert": {"that": f"({path}) is not exists", "fail_msg": f"{where} is broken"}}


HOOKS = {
    "before_member": [refuse("before"), OUT],
    "after_member": [refuse("after"), IN],
    "gate": [refuse("gate")],
}


@functools.cache
def made(size: int, hosts: int) -> Cluster:
    """A group on nodes in memory, every data disk with contents of its own."""
    cluster = Cluster(hosts)
    names = [f"hv{number}" for number in range(hosts)]
    plan = Roll(cluster, group_of(size, hosts=names, policy={"max_batch_size": size, "max_down_per_host": size})).run()
    assert plan["done"], plan
    for number, name in enumerate(sorted(cluster.vms())):
        sim, volume = cluster.volume(name)
        sim.write(volume, number + 1, 0, 16)
    return cluster


class Farm:
    """The nodes in a folder, one each for the hosts of a group, and what runs on them. processes: modules, and what
    they call, are processes of their own, which can be killed.
    """

    def __init__(self, folder: Path, size: int, hosts: int, processes: bool = False) -> None:
        self.folder = folder
        self.processes = processes
        self.size = size
        self.hosts = [f"hv{number}" for number in range(hosts)]
        self.balancer = folder / "balancer"
        self.broken = folder / "broken"
        for path in (self.balancer, self.broken):
            path.mkdir(parents=True)
        cluster = copy.deepcopy(made(size, hosts))
        for host, sim in cluster.hosts.items():
            self.node(host).mkdir()
            sim.node.directory, sim.node.pools.dirty = self.node(host), True
            sim.node.save()
            install_programs(self.node(host))
        for name in cluster.vms():
            (self.balancer / name).touch()
        self._write()

    def node(self, host: str) -> Path:
        return self.folder / host

    def _write(self) -> None:
        """The inventory, the playbook and its hooks, and a collections path."""
        link = self.folder / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
        path = "{{ inventory_dir }}/{{ inventory_hostname }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "flexdisk_environment": {"PATH": path},
            "flexdisk_packages": PACKAGES,
            "balancer": str(self.balancer),
            "broken": str(self.broken),
            "instance_group_name": "web",
            "instance_group_size": self.size,
            "instance_group_before_member": [f"{self.folder}/before_member.yml"],
            "instance_group_after_member": [f"{self.folder}/after_member.yml"],
        }
        every = {"hosts": {host: {} for host in self.hosts}, "vars": common}
        files = {"hosts": {"all": every}, "roll": PLAY, **HOOKS}
        for name, content in files.items():
            (self.folder / f"{name}.yml").write_text(yaml.safe_dump(content))
        (self.folder / "ansible.cfg").write_text(CONFIG)

    # -- runs

    def start(self, image: str, *options: str, policy: Raw, **more: Any) -> Run:
        """The command. more: further variables of the role, without instance_group_."""
        group = group_of(self.size, image, policy=policy)
        words = {"template": group["template"], "policy": group["policy"], **more}
        given = json.dumps({f"instance_group_{key}": value for key, value in words.items()})
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "roll.yml", "-e", given]
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_REMOTE_TEMP": str(self.folder / "ansible" / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORKS": "4",
            "ANSIBLE_PIPELINING": "1",
            **({} if self.processes else in_forks()),
        }
        return Run([*command, *options], self.folder, env)

    def run(self, image: str, *options: str, policy: Raw, **more: Any) -> Run:
        """The command, until it ends by itself."""
        with self.start(image, *options, policy=policy, **more) as run:
            run.wait()
        return run

    # -- what is there

    def look(self) -> Cluster:
        """The nodes as they are now, in memory: what is done with them there stays there."""
        cluster = copy.copy(made(self.size, len(self.hosts)))
        cluster.hosts = {host: copy.copy(sim) for host, sim in cluster.hosts.items()}
        for host, sim in cluster.hosts.items():
            sim.node = Node.open(self.node(host))
            assert sim.node.vmadm_state
            sim.node.close()
            sim.node.directory = None
        cluster.pooled = self.pooled()
        return cluster

    def infos(self) -> dict[str, Raw]:
        """What vm_info says of each node."""
        roll = Roll(self.look(), group_of(self.size))
        return {host: roll.info(host) for host in self.hosts}

    def marked(self) -> set[str]:
        """The members that a run has taken out of service."""
        return {vm["alias"] for info in self.infos().values() for vm in info["vms"] if vm["drained"]}

    def lease(self) -> str | None:
        """Who has the lease of the group."""
        held = ("get", "-Hpo", "value", "flexdisk:lease.web", "zones/flexdisk")
        values = [sim.run("zfs", *held).strip() for sim in self.look().hosts.values()]
        found = [str(json.loads(value)["holder"]) for value in values if value != "-"]
        assert len(found) < 2, found
        return found[0] if found else None

    def check_safe(self, before: dict[str, tuple[str, Raw]], digests: dict[str, str]) -> None:
        """What is true at any time: the members are the same, where they were, and so are their data."""
        cluster = self.look()
        after = cluster.vms()
        places = {name: (host, vm["uuid"]) for name, (host, vm) in after.items()}
        assert places == {name: (host, vm["uuid"]) for name, (host, vm) in before.items()}
        assert cluster.digests() == digests

    def check_whole(
        self, before: dict[str, tuple[str, Raw]], digests: dict[str, str], wanted: dict[str, str], parked: int
    ) -> None:
        """What is true after a roll: all members have their image and serve, and nothing is left over but so many old
        boot disks of each.
        """
        self.check_safe(before, digests)
        cluster = self.look()
        assert {vm["state"] for _host, vm in cluster.vms().values()} == {"running"}
        assert images(cluster) == wanted
        assert self.pooled() == set(before)
        assert self.marked() == set()
        for host, info in self.infos().items():
            assert info["intents"] == [], host
            assert [vm["intent"] for vm in info["vms"]] == [None] * len(info["vms"]), host
            mine = [vm["uuid"] for vm in info["vms"]]
            assert sorted(disk["vm"] for disk in info["parked"]) == sorted(mine * parked), host

    def pooled(self) -> set[str]:
        """The members in the load balancer."""
        return {entry.name for entry in os.scandir(self.balancer)}

    def cut(self, host: str) -> None:
        """From now on, Ansible cannot reach the host: nobody listens at port 1."""
        text = yaml.safe_load((self.folder / "hosts.yml").read_text())
        text["all"]["hosts"][host] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(text))

    def files(self) -> dict[str, bytes]:
        """The nodes, byte for byte, without their clocks, which go on when anybody looks."""
        names = ("state.json", "vmadm.json")
        return {f"{host}/{name}": (self.node(host) / name).read_bytes() for host in self.hosts for name in names}

    def vms(self) -> dict[str, Raw]:
        """What vmadm keeps of each VM. A lease that is taken and given back is not in it."""
        return {host: json.loads((self.node(host) / "vmadm.json").read_bytes())["vms"] for host in self.hosts}


def recap(output: str) -> dict[str, int]:
    """The number of changed tasks of each host."""
    return {host: int(count) for host, count in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) ", output, re.MULTILINE)}


def images(cluster: Cluster) -> dict[str, str]:
    """The images of the members."""
    return {name: boot_image(vm) for name, (_host, vm) in cluster.vms().items()}


class Run:
    """One run of ansible-playbook. lines: what it has said so far."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        self.id = str(uuid.uuid4())
        self.lines: list[str] = []
        self._tasks = 0
        self._said = threading.Condition()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**env, MARK: self.id},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ignored: object) -> None:
        """Nothing of it is left."""
        self.kill_all()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._said:
                self.lines.append(line)
                self._tasks += line.startswith("TASK [")
                self._said.notify_all()
        with self._said:
            self._tasks = sys.maxsize
            self._said.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def words(self) -> str:
        """The same with one space between any two words."""
        return " ".join(self.output.split())

    @property
    def code(self) -> int:
        """0 if all is well, a signal below it if it was killed."""
        return self._process.wait()

    @property
    def task(self) -> str:
        """The task that it has come to."""
        found = re.findall(r"^TASK \[(?:flexdisk\.hypervisor\.)?(?:instance_group : )?(.*?)\] \*", self.output, re.M)
        return str(found[-1]) if found else ""

    def wait(self) -> int:
        """Until it has ended and has said all. Whatever it has left behind may keep its output open."""
        code = self._process.wait()
        self._reader.join()
        return code

    def came_to(self, task: str) -> bool:
        return f"TASK [flexdisk.hypervisor.instance_group : {task}] *" in self.output

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, task: str) -> bool:
        """Until it has come to the task. False if it has ended before."""
        with self._said:
            self._said.wait_for(lambda: self._tasks == sys.maxsize or self.came_to(task))
            return self._tasks < sys.maxsize

    def wait_for(self, tasks: int) -> bool:
        """Until it has come to so many tasks. False if it has ended before."""
        with self._said:
            self._said.wait_for(lambda: self._tasks >= tasks)
            return self._tasks < sys.maxsize

    # -- the ways to kill it

    def kill_controller(self) -> None:
        """ansible-playbook alone. Its workers and modules go on."""
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """ansible-playbook and all that it has started. Processes that stand still start no others meanwhile."""
        seen: set[int] = set()
        while fresh := set(self.processes()) - seen:
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            seen |= fresh
        for pid in seen:
            send(pid, signal.SIGKILL)
        self._process.wait()
        while self.processes():
            time.sleep(0.01)

    def kill_module(self) -> str:
        """One running module: the task at which it was. "" if the run has ended and none has run any more."""
        while self._process.poll() is None:
            for pid in self.processes():
                if arguments(pid) == [sys.executable]:  # it has got the module by its standard input
                    send(pid, signal.SIGKILL)
                    return self.task
            time.sleep(0.01)
        return ""

    def processes(self) -> list[int]:
        """All that it has started and that lives, whoever the parent is by now."""
        mark = f"{MARK}={self.id}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                text = contents(entry.name, "environ")
                if mark in text.split(b"\0") and b") Z " not in contents(entry.name, "stat"):
                    found.append(int(entry.name))
        return found


def contents(pid: int | str, name: str) -> bytes:
    """A file of a process, empty for a process that is no more."""
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


def arguments(pid: int) -> list[str]:
    return contents(pid, "cmdline").decode().split("\0")[:-1]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Watch(threading.Thread):
    """Looks again and again whether the members in the load balancer run. broken: what was not as promised."""

    def __init__(self, farm: Farm, floor: int) -> None:
        super().__init__()
        self.farm = farm
        self.floor = floor
        self.broken: list[str] = []
        self.looks = 0
        self.least = farm.size
        self._known: dict[str, tuple[tuple[int, int], dict[str, str]]] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.look()

    def look(self) -> None:
        """A member leaves the load balancer before it stops, so what is in it before and after a look runs."""
        before = self.farm.pooled()
        states = {name: state for host in self.farm.hosts for name, state in self._states(host).items()}
        asked = before & self.farm.pooled()
        down = sorted(name for name in asked if states.get(name) != "running")
        self.looks += 1
        self.least = min(self.least, len(asked) - len(down))
        if down:
            self.broken.append(f"in the load balancer, but not running: {', '.join(down)}")
        if len(asked) - len(down) < self.floor:
            self.broken.append(f"only {len(asked) - len(down)} in service: {', '.join(sorted(asked))}")

    def _states(self, host: str) -> dict[str, str]:
        """The VMs of a node and whether they run, read anew if its file is another one. Files are replaced whole."""
        path = self.farm.node(host) / "vmadm.json"
        with path.open(encoding="utf-8") as stream:
            status = os.fstat(stream.fileno())
            stamp = (status.st_ino, status.st_mtime_ns)
            if self._known.get(host, ((0, 0), {}))[0] != stamp:
                vms = json.load(stream)["vms"].values()
                self._known[host] = stamp, {vm["cfg"]["alias"]: vm["zone_state"] for vm in vms}
        return self._known[host][1]


@contextmanager
def watched(farm: Farm, floor: int) -> Iterator[Watch]:
    """Watched from here to the end."""
    watch = Watch(farm, floor)
    watch.start()
    try:
        yield watch
    finally:
        watch._ended.set()
        watch.join()
