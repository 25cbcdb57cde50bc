# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes as the hosts of an inventory, and playbooks of this collection on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from tree import in_forks

ROOT = Path(__file__).resolve().parents[3]
SIMULATED_NODE = ROOT / "extensions" / "simulated_node"
CONFIG = "[defaults]\ninternal_poll_interval = 0.01\n"  # not every millisecond: a tenth of a playbook's CPU


class Nodes:
    """groups: the host group of each host. memory: MiB of each. pools: of each."""

    def __init__(
        self, folder: Path, groups: dict[str, str], memory: int = 32768, pools: Sequence[str] = ("zones",)
    ) -> None:
        self.folder = folder
        self.groups = groups
        self.variables: dict[str, Any] = {}
        self.processes = False  # whether modules, and what they call, are processes, as on a host
        link = folder / "collections" / "ansible_collections" / "flexdisk" / "hypervisor"
        link.parent.mkdir(parents=True)
        link.symlink_to(ROOT)
        (folder / "ansible.cfg").write_text(CONFIG)
        for number, host in enumerate(groups):
            sizes = [word for pool in pools for word in ("--pool", f"{pool}:256G")]
            self.simnode(host, "init", *sizes, "--seed", str(number))
            self.simnode(host, "machine", f"memory={memory}", "cpus=8")

    def simnode(self, host: str, *words: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(SIMULATED_NODE)}
        command = [sys.executable, "-m", "simnode", "--dir", str(self.folder / host), *words]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def connect(self, host: str, *others: str) -> None:
        """Let ssh of a host reach others by their names in the inventory."""
        for other in others:
            self.simnode(host, "connect", other, str(self.folder / other))
            place = str(self.folder / other / "ssh")
            mine = self.variables.setdefault(other, {})
            mine.update(flexdisk_transfer_address=other, flexdisk_transfer_ssh_directories=[place])
            mine.update(flexdisk_transfer_authorized_keys=f"{place}/authorized_keys")

    def die(self, host: str, dead: bool = True) -> None:
        """Let a host answer nobody any more, or be there again."""
        mark = self.folder / host / "dead"
        mark.touch() if dead else mark.unlink()
        for other in set(self.groups) - {host}:
            self.simnode(other, "connect", host, str(self.folder / ("nowhere" if dead else host)))

    def calls(self) -> list[str]:
        """The host of each module, or other program, that playbooks have run so far."""
        return (self.folder / "calls").read_text().split()

    def kills_at_stop(self, host: str, name: str) -> Callable[[str], bool]:
        """Watches for the moment at which a VM is stopped for its move, and kills the module that has done it.

        Without its controller, the module would go on. Jobs print the name of a task when it has ended, so the one
        before is awaited.
        """
        locks = self.folder / host / "bin" / "flexdisk-locks"

        def watch(line: str) -> bool:
            if not (line.startswith("TASK [") and "Plan the last transfer" in line):
                return False
            end = time.monotonic() + 120
            while time.monotonic() < end:
                (vm,) = json.loads(self.run(host, "vmadm", "lookup", "-j", f"alias={name}"))
                if vm["state"] == "stopped":
                    os.kill(json.loads((locks / f"transfer-{vm['uuid']}.lock").read_text())["pid"], signal.SIGKILL)
                    return True
            raise AssertionError(f"{name} was not stopped within 120 s")

        return watch

    def run(self, host: str, *words: str, stdin: str | None = None) -> str:
        """What a program of the node prints."""
        command = [str(self.folder / host / "bin" / words[0]), *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=stdin).stdout

    def create(
        self,
        host: str,
        name: str,
        memory: int,
        disk_gib: int,
        tags: dict[str, str],
        flexible: int = 0,
        more: Sequence[int] = (),
    ) -> str:
        """A VM with one disk and more, which is running. Its UUID. flexible: GiB of flexible disk space."""
        identity = _uuid(name)
        payload = {
            "uuid": identity,
            "alias": name,
            "brand": "bhyve",
            "ram": memory,
            "vcpus": 2,
            "quota": 1,
            "autoboot": True,
            "tags": tags,
            "disks": [
                {"boot": number == 0, "model": "virtio", "size": size * 1024, "uuid": _uuid(f"{name}-{number}")}
                for number, size in enumerate((disk_gib, *more))
            ],
            **({"flexible_disk_size": flexible * 1024} if flexible else {}),
        }
        self.run(host, "vmadm", "create", stdin=json.dumps(payload))
        return identity

    def inventory(self, unreachable: str) -> Path:
        hosts: dict[str, Any] = {}
        for host, group in self.groups.items():
            path = f"{self.folder / host / 'bin'}:{os.environ['PATH']}"
            hosts[host] = {
                "ansible_connection": "mortal",
                "ansible_python_interpreter": sys.executable,
                "flexdisk_environment": {"PATH": path},
                **({"flexdisk_host_group": group} if group else {}),
                **self.variables.get(host, {}),
            }
        if unreachable:
            hosts[unreachable].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
        found = self.folder / "inventory.yml"
        found.write_text(yaml.safe_dump({"hypervisors": {"hosts": hosts, "vars": self.variables.get("all", {})}}))
        return found

    def play(
        self, playbook: str, *words: str, unreachable: str = "", watch: Callable[[str], bool] | None = None
    ) -> tuple[int, str]:
        """The status of a playbook of the collection, or of one in a file, and what it prints.

        watch is called with each line while it runs, and says whether everything is killed now.
        """
        book = playbook if "/" in playbook else f"flexdisk.hypervisor.{playbook}"
        env = {
            **{
                key: value
                for key, value in os.environ.items()
                if (not key.startswith("ANSIBLE_") or "CALLBACK" in key) and key != "PYTHONUNBUFFERED"
            },
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).with_name("connection")),
            "FLEXDISK_NODES": str(self.folder),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            **({} if self.processes else in_forks()),
        }
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.inventory(unreachable))]
        if watch is not None:
            return _watched([*command, book, *words], env, watch)
        done = subprocess.run([*command, book, *words], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def _uuid(name: str) -> str:
    """The same for a name on every node."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def _watched(command: list[str], env: dict[str, str], watch: Callable[[str], bool]) -> tuple[int, str]:
    printed = []
    with subprocess.Popen(
        command, env=env, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            printed.append(line)
            if watch(line):
                os.killpg(running.pid, signal.SIGKILL)
    return running.returncode, "".join(printed)
