# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both machines of the lab as the world of a move: the engine runs in this process, and each of its commands there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boot
import progress
import remote
from harness import Lab

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.conformance.support import ServedBackend
from tests.unit.replication.world import VM, Fuse, Host, Killed, World

SIZES = (48, 32)
SECONDS = 300.0


class Node:
    """What a host has for a simulated node: commands run on a machine of the lab, by a process that stays there."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._server: ServedBackend | None = None

    def run(self, argv: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        """Exit status, stdout and stderr of a command."""
        if self._server is None:
            with boot.machine(self.lab.name):
                self._server = ServedBackend(remote.ssh_argv(remote.SERVE))
        rc, out, err = self._server.run(argv, stdin)
        return rc, out, err

    def end(self) -> None:
        """No process stays on the machine."""
        if self._server is not None:
            self._server.process.kill()
            self._server.close()
            self._server = None

    def lose_power(self) -> None:
        """Return when the machine answers again."""
        self.end()
        self.lab.lose_power()

    def stream(self, command: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        """The same of a command that reads or writes a stream."""
        with boot.machine(self.lab.name):
            done = progress.run(remote.ssh_argv(command), SECONDS, stdin)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")


class LabHost(Host):
    """A machine of the lab, and the runner of the engine on it."""

    node: Any
    world: LabWorld

    def __init__(self, lab: Lab, folder: Path, world: LabWorld) -> None:
        node: Any = Node(lab)
        super().__init__(node, folder, world)
        self.lab = lab

    def __call__(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        """Until the VM is stopped, its guest writes."""
        if tuple(argv[:2]) == ("vmadm", "stop") and self.power(VM) == "running":
            self.world.write(0, 3, 7)
            self.world.contents = self.world.hashes()
        return super().__call__(argv, stdin, timeout)

    def carry(self, first: Any, second: Any, carried: Any) -> tuple[Answer, Answer]:
        """The stream goes through this process. Torn in the middle, it kills the run as well."""
        self.world.fuse.blow(False)
        rc, data, err = self.node.stream(shlex.join(first))
        self.world.streams += 1
        torn = self.world.streams == self.world.torn
        data = data[: len(data) // 2] if torn else data
        answer = self.world.peer.node.stream(shlex.join(self.opened(second)), data)
        carried(len(data))
        if torn:
            raise Killed
        self.world.fuse.blow(True)
        return Answer(rc, "", err), Answer(answer[0], "", answer[2])

    def zfs(self) -> Zfs:
        return Zfs(self, called=self._called)

    def driver(self) -> Any:
        return Vmadm(self)

    def _called(self, volume: str) -> str:
        """The volume, if its device has its name. The kernel renames devices later than ZFS renames volumes."""
        there = ["sh", "-c", f"udevadm settle; test -e {shlex.quote('/dev/zvol/' + volume)}"]
        return volume if self.node.run(there)[0] == 0 else ""

    def has(self, dataset: str) -> bool:
        return bool(self.node.run(["zfs", "list", dataset])[0] == 0)

    def device(self, disk: dict[str, Any]) -> str:
        """The path of a disk of the VM."""
        return "/dev/zvol/" + str(disk["dataset"])


class PowerCut(Fuse):
    """A machine loses its power after a command of the run, and so the run ends."""

    def __init__(self, at: int, host: LabHost) -> None:
        super().__init__(at, True)
        self.host = host

    def blow(self, after: bool) -> None:
        try:
            super().blow(after)
        except Killed:
            self.host.node.lose_power()
            raise


class LabWorld(World):
    """A running VM on the first machine, without free space.

    contents: the hashes of its disks when it was stopped. torn: the number of the stream that is torn, 0 for none.
    """

    home: LabHost
    peer: LabHost

    def __init__(self, labs: Sequence[Lab], folder: Path, monkeypatch: Any) -> None:
        self.labs = labs
        self.contents: list[str] = []
        self.streams = self.torn = 0
        super().__init__(folder, monkeypatch)
        self.home_name, self.peer_name = (lab.name for lab in labs)

    def host(self, seed: int) -> LabHost:
        return LabHost(self.labs[seed - 1], self.folder, self)

    def end(self) -> None:
        """Nothing stays on the machines."""
        for host in (self.home, self.peer):
            host.node.end()
            host.lab.reset()

    def make(self) -> None:
        for lab in self.labs:
            lab.reset()
        payload = {
            "uuid": VM,
            "alias": "db01",
            "brand": "bhyve",
            "ram": 128,
            "vcpus": 1,
            "quota": 1,
            "flexible_disk_size": sum(SIZES),
            "disks": [{"boot": number == 0, "model": "virtio", "size": size} for number, size in enumerate(SIZES)],
        }
        self.home.lab.run(["vmadm", "create"], stdin=json.dumps(payload))

    def write(self, disk: int, mib: int, start: int = 0) -> None:
        command = ["dd", "if=/dev/urandom", f"of={self.home.device(self.home.disks(VM)[disk])}", "bs=1M"]
        self.home.lab.run([*command, f"seek={start}", f"count={mib}", "conv=fsync,notrunc"])

    def hashes(self) -> list[str]:
        return hashes(self.home)

    def forget(self) -> None:
        """Nothing is left on the peer of earlier moves: neither replicas nor a tombstone. Nor does the VM know them."""
        self.peer.lab.reset()
        self.home.ok("zfs", "inherit", "flexdisk:replicas", *self.disks().values())


def hashes(host: LabHost) -> list[str]:
    """The contents of the VM's disks on a host."""
    return [host.lab.run(["sha256sum", host.device(disk)]).stdout.split()[0] for disk in host.disks(VM)]
