# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of the suite use to work in the lab."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import boot
import progress
import remote

COLLECTION = ("ansible_collections", "flexdisk", "hypervisor")
PLAYBOOK_SECONDS = 1800.0
# A table with one partition of 2048 sectors, from sector 2048 on.
PARTITION = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") * 2
PARTITION_TABLE = bytes(446) + PARTITION + bytes(48) + b"\x55\xaa"
Completed = subprocess.CompletedProcess[str]


class Lab:
    """A running machine of the lab.

    Args:
        workdir: scratch folder for the collections path and Ansible's local files.
        name: the machine, one of `boot.MACHINES`.
    """

    pool = remote.POOL

    def __init__(self, workdir: Path, name: str = boot.MACHINES[0]) -> None:
        self.workdir = workdir
        self.name = name
        with boot.machine(name):
            self.inventory = boot.run_dir() / "inventory.ini"
        self.collections = workdir / "collections"
        link = self.collections.joinpath(*COLLECTION)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(remote.ROOT)
        self.config = workdir / "ansible.cfg"
        self.config.touch()

    def run(
        self, argv: Sequence[str], stdin: str = "", *, check: bool = True, seconds: float = remote.COMMAND_SECONDS
    ) -> Completed:
        """Run a command in the lab as root; with `check` a failure raises AssertionError with its output."""
        with boot.machine(self.name):
            result = remote.run(argv, stdin=stdin, seconds=seconds)
        if check and result.returncode:
            raise AssertionError(f"{list(argv)} ended with status {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def python(self, text: str) -> str:
        """Run Python source in the lab's own interpreter; returns stdout."""
        return self.run(["python3", "-"], stdin=text).stdout

    def zfs(self, *arguments: str) -> str:
        """Run `zfs ARGUMENTS`; returns stdout without the final newline."""
        return self.run(["zfs", *arguments]).stdout.rstrip("\n")

    def get(self, dataset: str, *properties: str) -> dict[str, str]:
        """Properties of one dataset as `zfs get -Hp` prints them (sizes in bytes)."""
        lines = self.zfs("get", "-Hp", "-o", "property,value", ",".join(properties), dataset).splitlines()
        return {name: value for name, _tab, value in (line.partition("\t") for line in lines)}

    def partition(self, device: str) -> None:
        """Write a table with one partition, and let the host look."""
        self.python(f"import os; os.write(os.open({device!r}, os.O_WRONLY), {PARTITION_TABLE!r})")
        self.run(["blockdev", "--rereadpt", device], check=False)  # "Invalid argument" where there cannot be any

    def partitions(self, device: str) -> int:
        """How many the host has of this device."""
        disk, *parts = self.run(["lsblk", "-n", "-o", "TYPE", device]).stdout.split()
        assert (disk, {*parts} - {"part"}) == ("disk", set())
        return len(parts)

    def playbook(self, path: Path, *arguments: str, check: bool = True, **extra: str) -> Completed:
        """Run ansible-playbook on the lab with this collection; `extra` are environment variables."""
        return self._ansible("ansible-playbook", str(path), *arguments, check=check, extra=extra)

    def ad_hoc(self, module: str, module_arguments: str = "", *options: str, check: bool = True) -> Completed:
        """Run one module on the lab: `ansible hypervisors -m MODULE -a ARGUMENTS OPTIONS`."""
        arguments = ["-a", module_arguments] if module_arguments else []
        return self._ansible("ansible", "hypervisors", "-m", module, *arguments, *options, check=check, extra={})

    def reset(self, passphrase: str = "") -> None:
        """An empty pool and no VMs. passphrase: of an encrypted pool."""
        with boot.machine(self.name):
            remote.reset(passphrase)

    def lose_power(self) -> None:
        """Reset the machine, and return when it answers again, with its pool imported."""
        with boot.machine(self.name):
            before = remote.boot_id()
            boot.reset()
            remote.wait_for_ssh(before)
            remote.join_network()

    def ansible_argv(self, program: str, *arguments: str) -> list[str]:
        """The command line of one of Ansible's programs on the lab."""
        return [str(Path(sys.executable).with_name(program)), "-i", str(self.inventory), *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of Ansible's programs."""
        variables = {
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(
                [str(self.collections), *filter(None, [os.environ.get("ANSIBLE_COLLECTIONS_PATH")])]
            ),
            "ANSIBLE_CONFIG": str(self.config),
            "ANSIBLE_LOCAL_TEMP": str(self.workdir / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        return {**os.environ, **variables}

    @staticmethod
    def local(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Completed:
        """Run a program here that works on the lab; a failure is an exit status."""
        done = progress.run(argv, PLAYBOOK_SECONDS, cwd=cwd, env=env)
        texts = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(list(argv), done.returncode, *texts)

    def _ansible(self, program: str, *arguments: str, check: bool, extra: dict[str, str]) -> Completed:
        argv = self.ansible_argv(program, *arguments)
        result = self.local(argv, self.workdir, {**self.environment(), **extra})
        if check and result.returncode:
            raise AssertionError(f"{argv} ended with status {result.returncode}:\n{result.stdout}\n{result.stderr}")
        return result
