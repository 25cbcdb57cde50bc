# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab as a backend of the fault injection: real ZFS, tasks over ssh, shims before programs and libvirt."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import remote
from harness import Lab
from progress import Patience

from tests.faults import libvirt_shim, shim
from tests.faults.backend import Backend, arguments_of, module_of
from tests.faults.shim import Fault

FOLDER = "/opt/flexdisk-faults"
DOMAINS = remote.ROOT / "tests" / "integration" / "targets" / "setup_node" / "files" / "domains.py"
PYTHON = f"{FOLDER}/python"
MODULES = f"{FOLDER}/modules"
INTERPRETER = f'#!/bin/sh\nPATH={FOLDER}:$PATH PYTHONPATH={MODULES} exec /usr/bin/python3 "$@"\n'
KILL_SECONDS = 120.0
PATIENCE = 600  # a task whose controller was killed goes on
RESULT = re.compile(r"^lab01 \| (\S+) => (\{.*)", re.MULTILINE | re.DOTALL)
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# Of a device that is mostly empty, what is not; past the host's cache.
DIGESTS = """
import hashlib, json, mmap, os, sys, time
BLOCK = 4 << 20
EMPTY = bytes(BLOCK)
buffer = mmap.mmap(-1, BLOCK)

def digest(name, length):
    path, deadline = "/dev/zvol/" + name, time.monotonic() + 600
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    found = hashlib.sha256()
    device = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for start in range(0, length, BLOCK):
        count = min(os.preadv(device, [buffer], start), length - start)
        if buffer[:count] != EMPTY[:min(BLOCK, length - start)]:
            found.update(b"%d %d " % (start, count) + buffer[:count])
    os.close(device)
    return found.hexdigest()

print(json.dumps({name: digest(name, length) for name, length in json.load(sys.stdin).items()}))
"""
KEPT = "/var/lib/simnode.kept"
KEEP = f"udevadm settle; zpool checkpoint {remote.POOL}; rm -rf {KEPT}; cp -a /var/lib/simnode {KEPT}"
REWIND = f"""
for try in 1 2 3 4 5 6; do udevadm settle; if zpool export {remote.POOL}; then break; fi; sleep $try; done
zpool import --rewind-to-checkpoint -d /dev/disk/by-id {remote.POOL}
zpool checkpoint {remote.POOL}
rm -rf /var/lib/simnode; cp -a {KEPT} /var/lib/simnode
"""
KEPT_DOMAINS = "/var/lib/libvirt/flexdisk.kept"
# The kept state of a running guest is its memory, too: to boot one takes minutes.
KEEP_DOMAINS = f"""
rm -rf {KEPT_DOMAINS}; mkdir {KEPT_DOMAINS}; cd {KEPT_DOMAINS}
virsh -q list --all --autostart --name > autostart
for domain in $(virsh -q list --all --name); do virsh -q dumpxml --inactive $domain > $domain.xml; done
for domain in $(virsh -q list --name); do virsh -q save $domain $domain.memory; done
{KEEP}"""
START_KEPT = f"""
cd {KEPT_DOMAINS}
for memory in $(find . -name "*.memory"); do virsh -q restore --running $memory; done
"""
REWIND_DOMAINS = f"""
for domain in $(virsh -q list --name); do virsh -q destroy $domain; done
for domain in $(virsh -q list --all --name); do virsh -q undefine $domain; done
{REWIND}
cd {KEPT_DOMAINS}; udevadm settle
for xml in *.xml; do virsh -q define $xml; done
for domain in $(cat autostart); do virsh -q autostart $domain; done
"""
# One line for each lock that somebody holds.
LOCKS = """
import fcntl, glob
for path in glob.glob("/var/run/flexdisk/*.lock"):
    with open(path) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(path)
"""


def name_of(task: Mapping[str, Any]) -> str:
    """The whole name of the module of a task."""
    return f"flexdisk.hypervisor.{module_of(task)}"


class LabBackend:
    """A Backend on the lab: a state that is made once and can be had again."""

    keep, rewind = KEEP, REWIND

    def __init__(self, lab: Lab, prepare: Callable[[Backend], object]) -> None:
        self._lab = lab
        self._begin()
        prepare(self)
        remote.script(self.keep)

    def again(self) -> None:
        """The state as it was made."""
        remote.script(self.rewind)

    def _begin(self) -> None:
        lab = self._lab
        lab.reset()
        lab.run(["mkdir", "-p", FOLDER])
        self._write("shim.py", Path(shim.__file__).read_text(encoding="utf-8"))
        lab.run(["python3", f"{FOLDER}/shim.py", FOLDER])
        self._write("python", INTERPRETER)
        lab.run(["chmod", "755", PYTHON])

    def _write(self, name: str, text: str) -> None:
        self._lab.run(["dd", "status=none", f"of={FOLDER}/{name}"], stdin=text)

    def run(self, *argv: str, stdin: str = "") -> str:
        return self._lab.run(argv, stdin=stdin).stdout

    def admin(self, command: str, *argv: str) -> None:
        self._lab.run(["env", f"PYTHONPATH={remote.NODE_TARGET}", "python3", "-m", "simnode.real", command, *argv])

    def digests(self, lengths: Mapping[str, int]) -> dict[str, str]:
        """SHA-256 of what the devices show. A snapshot has one only while it is visible."""
        shown = sorted({name.partition("@")[0] for name in lengths if "@" in name})
        for volume in shown:
            self._lab.zfs("set", "snapdev=visible", volume)
        try:
            self.run("udevadm", "settle")
            result: dict[str, str] = json.loads(self.run("python3", "-c", DIGESTS, stdin=json.dumps(lengths)))
            return result
        finally:
            for volume in shown:
                self._lab.run(["sh", "-euc", f"udevadm settle; zfs inherit snapdev {volume}; udevadm settle"])

    def litter(self) -> Sequence[str]:
        return self._lab.python(LOCKS).split()

    def calls(self) -> list[list[str]]:
        return shim.commands(self._lab.run(["cat", f"{FOLDER}/calls"]).stdout)

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        """Run the module over ssh as Ansible does; a fault may kill its Python on the lab, or Ansible here."""
        self._write("calls", "")
        self._write("fault", shim.render_fault(fault))
        options_of_task = {**arguments, "lock_timeout": PATIENCE}
        options = ["-e", f"ansible_python_interpreter={PYTHON}", *(["--check"] if check else [])]
        if fault is not None and fault.kill == "controller":
            return self._killed_controller(options_of_task, options, fault.nth)
        done = self._lab.ad_hoc(
            name_of(options_of_task), json.dumps(arguments_of(options_of_task)), *options, check=False
        )
        return parse(done.stdout or done.stderr)

    def _killed_controller(
        self, options_of_task: Mapping[str, Any], options: Sequence[str], nth: int
    ) -> dict[str, Any]:
        """Kill ansible-playbook and all its processes here while the command number nth waits on the lab."""
        book = self._lab.workdir / "interrupted.json"
        play = {
            "hosts": "hypervisors",
            "gather_facts": False,
            "tasks": [{name_of(options_of_task): arguments_of(options_of_task)}],
        }
        book.write_text(json.dumps([play]), encoding="utf-8")
        with subprocess.Popen(
            self._lab.ansible_argv("ansible-playbook", str(book), *options), env=self._lab.environment(),
            cwd=self._lab.workdir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as controller:  # fmt: skip
            patience = Patience(KILL_SECONDS)
            while len(self.calls()) < nth and controller.poll() is None and not patience.over():
                time.sleep(0.2)
            for number in [controller.pid, *descendants(controller.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        return {"killed": True}


class DomainsBackend(LabBackend):
    """The same with VMs of libvirt: each disk is a PCI device of its own, and snapshots are ZFS's alone."""

    keep, rewind = KEEP_DOMAINS + START_KEPT, REWIND_DOMAINS + START_KEPT

    def _begin(self) -> None:
        super()._begin()
        self._write(DOMAINS.name, DOMAINS.read_text(encoding="utf-8"))
        self._lab.run(["mkdir", "-p", MODULES])
        self._write("modules/libvirt.py", Path(libvirt_shim.__file__).read_text(encoding="utf-8"))

    def run(self, *argv: str, stdin: str = "") -> str:
        if argv[:2] == ("vmadm", "create-snapshot"):
            argv = ("zfs", "snapshot", "-r", f"{self._lab.pool}/{argv[2]}@{argv[3]}")
        elif argv[0] == "vmadm":
            argv = ("python3", f"{FOLDER}/{DOMAINS.name}", *argv[1:])
        return super().run(*argv, stdin=stdin)

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        devices = re.sub(r'"0:4:(\d)"', lambda match: f'"0:{4 + int(match[1])}:0"', json.dumps(arguments))
        return super().task({**json.loads(devices), "hypervisor": "libvirt"}, check=check, fault=fault)


def parse(stdout: str) -> dict[str, Any]:
    """The result that `ansible` printed for the only host; {"killed": True} of a module that was killed."""
    printed = RESULT.search(stdout)
    assert printed, stdout
    status, result = printed[1], json.loads(printed[2])
    if "UNREACHABLE" in status or ("error_code" not in result and result.get("rc") in KILLED):
        return {"killed": True}
    return {**result, "failed": "FAILED" in status}


def descendants(number: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == number:
            child = int(path.parent.name)
            yield child
            yield from descendants(child)
