# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of Proxmox VE in this process, whose every command can fail, and be the last one of a run."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from simnode import Node
from simnode.node import PoolSpec
from simnode.pve import on_node
from simnode.pve.admin import COMMANDS
from simnode.pve.qmp import Monitor

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_monitor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_disks import ProxmoxDisks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

VM = "cccccccc-0000-4000-8000-000000000001"
ROOT_DISK, DATA = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
STORAGE = """zfspool: local-zfs
\tpool rpool/data
\tcontent images,rootdir
\tsparse 1

zfspool: thick
\tpool tank/vms
\tcontent images
"""
FILE = f"""#what people write%3A 5%25
boot: order=virtio0;net0
cores: 2
ide2: none,media=cdrom
memory: 512
name: web
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0
scsi1: thick:vm-100-disk-0,discard=on,serial={DATA.replace("-", "")[:20]},size=2G
scsihw: virtio-scsi-single
smbios1: uuid={VM}
tags: prod;web
virtio0: local-zfs:vm-100-disk-0,cache=writeback,iothread=on,serial={ROOT_DISK.replace("-", "")[:20]},size=4G
"""
Runner = Callable[[Sequence[str]], Answer]


class Killed(BaseException):
    """The module is dead: nothing of it runs any more."""


def _pools(gib: int, vdev: str) -> list[PoolSpec]:
    vdevs = {"rpool": "disk", "tank": vdev}
    disks = {"disk": 1, "raidz1": 3}
    return [PoolSpec(n, gib << 30, 12, [{"type": v, "disks": disks[v]}], "2.3") for n, v in vdevs.items()]


class World:
    """A node with one VM, which has a disk in each of two pools; the second is thick."""

    def __init__(self, running: bool = False, pool_gib: int = 64, vdev: str = "disk") -> None:
        directory = Path(tempfile.mkdtemp(prefix="pve"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.node = Node.create(directory, _pools(pool_gib, vdev))
        on_node.install(self.node, "rpool")
        self.files = directory / on_node.FOLDER
        self.run("zfs", "create", "tank/vms")
        self.write("storage.cfg", STORAGE)
        self.volume("rpool/data/vm-100-disk-0", "4G", ROOT_DISK, "root", "-s")
        self.volume("tank/vms/vm-100-disk-0", "2G", DATA, "data")
        self.file = FILE
        if running:
            self.run("qm", "start", "100")
        self.calls: list[list[str]] = []
        # What a command becomes instead; None for the command itself.
        self.spoil: Callable[[int, list[str], Runner], Answer] | None = None

    # -- the node

    def run(self, *argv: str) -> str:
        status, out, err = self.node.run(argv)
        assert status == 0, f"{argv}: {err}"
        return str(out)

    def admin(self, command: str, *argv: str) -> None:
        assert COMMANDS[command](self.node, list(argv))[0] == 0

    def write(self, name: str, text: str) -> None:
        path = self.files / "etc" / "pve" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def volume(self, volume: str, size: str, uuid: str = "", name: str = "", *options: str) -> None:
        facts = {"uuid": uuid, "name": name, "vm": VM} if uuid else {}
        words = [word for key, value in facts.items() for word in ("-o", f"flexdisk:{key}={value}")]
        self.run("zfs", "create", *options, *words, "-V", size, volume)

    @property
    def path(self) -> Path:
        return self.files / "etc/pve/nodes/pve1/qemu-server/100.conf"

    @property
    def file(self) -> str:
        return self.path.read_text()

    @file.setter
    def file(self, text: str) -> None:
        self.path.write_text(text)

    def setting(self, key: str) -> str:
        return dict(line.split(": ", 1) for line in self.file.splitlines() if ": " in line).get(key, "")

    def plugged(self) -> dict[str, int]:
        """The disks of the running QEMU with their sizes in MiB."""
        text = COMMANDS["pve-plugged"](self.node, ["100"])[1]
        return {key: one["size"] >> 20 for key, one in json.loads(text).items() if one}

    @property
    def running(self) -> bool:
        return "100" in on_node.NodeHost(self.node).state.get("running", {})

    def volsize(self, volume: str) -> int:
        return int(self.run("zfs", "get", "-Hpo", "value", "volsize", volume)) >> 20

    def fingerprint(self) -> str:
        files = {str(path): path.read_text() for path in sorted(self.files.rglob("*")) if path.is_file()}
        state = {key: value for key, value in self.node.vmadm_state.items() if key != "clock"}
        return json.dumps([self.node.pools.to_json(), state, files], sort_keys=True)

    # -- the module

    def _runner(self, argv: Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        self.calls.append(list(argv))

        def real(command: Sequence[str]) -> Answer:
            return Answer(*self.node.run(list(command), stdin))

        return self.spoil(len(self.calls), list(argv), real) if self.spoil else real(argv)

    def _blocks(self, path: str) -> list[pve_monitor.Block]:
        vmid = re.sub(r".*/(\d+)\.qmp", r"\1", path)
        monitor, qemu = Monitor(), on_node.NodeHost(self.node).state["running"][vmid]
        asked = [monitor.answer(qemu, {"execute": question}) for question in pve_monitor._QUESTIONS]
        return list(pve_monitor.parse_blocks(asked[-1]))

    @property
    def driver(self) -> ProxmoxDisks:
        return ProxmoxDisks(self._runner, str(self.files), self.node.sleep)

    @property
    def zfs(self) -> Zfs:
        return Zfs(self._runner, self.node.sleep, pipe=self._pipe)

    def _pipe(self, first: Sequence[str], second: Sequence[str]) -> tuple[Answer, Answer]:
        sent = self._runner(first)
        return sent, self._runner(second, sent.stdout)

    def converge(
        self, *disks: dict[str, Any], check: bool = False, vm: Any = None, pool: str | None = None, **policy: Any
    ) -> Outcome:
        declared = {"vm": "web", "unlisted": "keep", "disks": list(disks), **(vm or {})}
        self.calls.clear()
        with patch.object(pve_monitor, "blocks", self._blocks):
            return converge(self.zfs, self.driver, [declared], Policy(**policy), pool, check)

    def done(self, *disks: dict[str, Any], **more: Any) -> Outcome:
        outcome = self.converge(*disks, **more)
        assert (outcome.problems, outcome.failure) == ([], None)
        return outcome

    def refusal(self, *disks: dict[str, Any], **more: Any) -> str:
        """Why a task is refused: in check mode, too, and nothing has changed."""
        before = self.fingerprint()
        predicted, real = (self.converge(*disks, check=check, **more).problems for check in (True, False))
        assert self.fingerprint() == before
        assert predicted == real
        assert real != []
        return "\n".join(f"{one.disk}: {one.message} [{one.code}]" for one in real)

    def four_steps(self, *disks: dict[str, Any], **more: Any) -> Outcome:
        done: Outcome = four_steps(self, lambda check: self.converge(*disks, check=check, **more))
        return done

    def four_steps_of(self, declared: list[dict[str, Any]]) -> Outcome:
        """As four_steps(), of several VMs."""

        def go(check: bool) -> Outcome:
            with patch.object(pve_monitor, "blocks", self._blocks):
                return converge(self.zfs, self.driver, declared, Policy(), None, check)

        done: Outcome = four_steps(self, go)
        return done

    def vm(self) -> Vm:
        return self.vm_of(VM)

    def vm_of(self, uuid: str) -> Vm:
        host = observe(self.zfs, self.driver)
        return next(vm for vm in host.vms if vm.config.uuid == uuid)

    def disks(self) -> dict[str, Disk]:
        return {disk.name: disk for disk in self.vm().disks}


class Fault(NamedTuple):
    """What happens at the command with this number."""

    number: int
    effect: bool = True  # it is carried out
    torn: int = 0  # qm itself is killed after so many of its own steps
    kills: bool = True  # the module is killed, too; else it goes on with what the command says
    answer: Answer | None = None

    def __call__(self, world: World) -> None:
        def spoil(number: int, argv: list[str], real: Runner) -> Answer:
            if number < self.number:
                return real(argv)
            if number > self.number and self.kills:
                raise Killed
            if number > self.number:
                return real(argv)
            if self.torn:
                world.admin("pve-kill", str(self.torn))
            truth = real(argv) if self.effect else None
            if self.kills:
                raise Killed
            return self.answer or truth or Answer(1, "", "it has failed\n")

        world.spoil = spoil


def faults(make: Callable[[], World], *disks: dict[str, Any], **more: Any) -> Iterator[Fault]:
    """Every command of the task that may change something: killed before and after it, failed before and after it.

    Of qm also: killed in itself after each of its steps, with the module, or alone.
    """
    world = make()
    world.done(*disks, **more)
    for number, argv in enumerate(world.calls, 1):
        if not changes(argv):
            continue
        yield from (Fault(number, effect, kills=kills) for effect in (False, True) for kills in (False, True))
        yield Fault(number, kills=False, answer=Answer(255, "", "it has failed\n"))
        if argv[0] == "qm":
            steps = _steps(make, number, *disks, **more)
            yield from (
                Fault(number, torn=torn, kills=kills) for torn in range(1, steps + 1) for kills in (False, True)
            )


def changes_of(world: World, go: Callable[[], Any]) -> list[int]:
    """Run a task. Return the numbers of its commands that may change something."""
    world.calls.clear()
    go()
    return [number for number, argv in enumerate(world.calls, 1) if changes(argv)]


def _steps(make: Callable[[], World], number: int, *disks: dict[str, Any], **more: Any) -> int:
    """How many steps the command with this number has."""
    seen: list[str] = []
    world = make()

    def spoil(at: int, argv: list[str], real: Runner) -> Answer:
        world.node.at_boundary = seen.append if at == number else None
        return real(argv)

    world.spoil = spoil
    world.done(*disks, **more)
    return len(seen)
