# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node with a bhyve VM or two, and the engine's runs on it in process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from simnode import Node
from simnode.node import PoolSpec
from simnode.vmadm.admin import COMMANDS
from simnode.vmadm.boundaries import GIVEN_UP

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import zfs_quota
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import PoolGeometry
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
VM = "cccccccc-0000-4000-8000-000000000001"


class Simulated:
    """The node, and everything a test does to it."""

    def __init__(self, size: int = 256 << 30, version: str = "illumos", vdev: str = "disk", seed: int = 1) -> None:
        vdevs = [{"type": vdev, "disks": 1 if vdev == "disk" else 5}]
        self.node = Node.create(None, [PoolSpec("zones", size, 12, vdevs, version)], seed)
        self.calls: list[list[str]] = []
        self.stdin = ""
        self.fault: Callable[[list[str]], str | None] | None = None
        self.waits: list[float] = []
        assert COMMANDS["image-import"](self.node, [IMAGE, "10240"])[0] == 0

    def runner(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        """One command. It fails if fault says so; a vmadm that takes longer than its time-out is killed."""
        self.calls.append(list(argv))
        self.stdin = stdin
        if self.fault is not None:
            answered = self.fault(list(argv))
            if answered is not None:
                return Answer(1, "", answered)
        self.node.patience = timeout
        answer = Answer(*self.node.run(list(argv), stdin))
        self.node.patience = None
        if answer.rc == GIVEN_UP:
            raise FlexdiskError("CommandTimeout", "%s did not end within %d s" % (" ".join(argv), timeout))
        return answer

    def fingerprint(self) -> str:
        """Everything that is, but for what vminfod remembers of its reading."""
        vmadm = {key: value for key, value in self.node.vmadm_state.items() if key != "vminfod"}
        return json.dumps([self.node.pools.to_json(), vmadm], sort_keys=True)

    def run(self, *argv: str, stdin: str = "") -> str:
        status, out, err = self.node.run(argv, stdin)
        assert status == 0, f"{argv}: {err}"
        return out

    def admin(self, command: str, *argv: str) -> None:
        assert COMMANDS[command](self.node, list(argv))[0] == 0

    def create(self, flexible: int | None = 30720, sizes: tuple[int, ...] = (2048,), **more: Any) -> str:
        uuid = more.pop("uuid", VM)
        payload: dict[str, Any] = {
            "uuid": uuid,
            "brand": "bhyve",
            "alias": more.pop("alias", "web01"),
            "autoboot": False,
            "ram": 1024,
            "vcpus": 1,
            "disks": [
                {"image_uuid": IMAGE, "boot": True, "model": "virtio"},
                *({"size": s, "model": "virtio"} for s in sizes),
            ],
        }
        if flexible is not None:
            payload["flexible_disk_size"] = flexible
        payload.update(more)
        self.run("vmadm", "create", stdin=json.dumps(payload))
        if payload["autoboot"]:
            return str(uuid)
        state = self.get(uuid)["state"]
        if state == "running":
            self.run("vmadm", "stop", uuid, "-F")
        return str(uuid)

    def get(self, uuid: str = VM) -> dict[str, Any]:
        return dict(json.loads(self.run("vmadm", "get", uuid)))

    def vm(self, uuid: str = VM) -> Vm:
        host = observe(Zfs(self.runner), Vmadm(self.runner))
        return next(v for v in host.vms if v.config.uuid == uuid)

    def geometry(self) -> PoolGeometry:
        return observe(Zfs(self.runner), Vmadm(self.runner)).geometry["zones"]

    def disks(self, uuid: str = VM) -> dict[str, Disk]:
        """The VM's attached disks by name."""
        return {disk.name: disk for disk in self.vm(uuid).disks}

    def detached(self, uuid: str = VM) -> dict[str, Disk]:
        return {disk.name: disk for disk in self.vm(uuid).detached}

    def adopted(self, *sizes: int, **more: Any) -> None:
        """web01 with root (10 GiB) and data disks a, b, c... of these sizes, all adopted, stopped."""
        self.create(sizes=sizes, **more)
        vm = self.vm(more.get("uuid", VM))
        names = ["root", *"abcdefg"]
        entries = [{"name": name, "uuid": disk.uuid} for name, disk in zip(names, vm.disks, strict=False)]
        done = self.converge({"vm": vm.config.uuid, "disks": entries})
        assert (done.problems, done.failure) == ([], None)

    def converge(self, *vms: dict[str, Any], check: bool = False, **policy: Any) -> Outcome:
        hypervisor = Vmadm(self.runner, self.waits.append)
        return converge(Zfs(self.runner), hypervisor, vms, Policy(**policy), None, check)

    def quota(
        self, check: bool = False, reclaim: bool = False, names: list[str] | None = None, proceed: bool = False
    ) -> Outcome:
        zfs, hypervisor = Zfs(self.runner), Vmadm(self.runner)
        outcome, self.skipped = zfs_quota.recalculate(zfs, hypervisor, names, None, reclaim, check, proceed)
        return outcome

    def four_steps(self, *vms: dict[str, Any], **policy: Any) -> Outcome:
        """As tests.unit.four_steps; afterwards every VM is lawful."""

        def go(check: bool) -> Outcome:
            return self.converge(*vms, check=check, **policy)

        def lawful() -> None:
            for vm in observe(Zfs(self.runner), Vmadm(self.runner)).vms:
                self.assert_lawful(vm.config.uuid)

        done: Outcome = four_steps(self, go, holds=lawful)
        return done

    def assert_lawful(self, uuid: str = VM) -> None:
        host = observe(Zfs(self.runner), Vmadm(self.runner))
        vm = next(v for v in host.vms if v.config.uuid == uuid)
        if vm.flexible:
            assert space.quota_drift(vm, host.geometry[vm.config.pool]) == (0, 0)

    def write(self, volume: str, seed: int, offset: int = 0, length: int = 8) -> None:
        self.run("guest", "write", volume, str(offset), str(length), str(seed))

    def digest(self, volume: str, *where: str) -> str:
        return self.run("guest", "hash", volume, *where).strip()


def running(autoboot: bool = True, **more: Any) -> Simulated:
    """A node whose web01 has root and one adopted disk, and runs."""
    sim = Simulated()
    sim.adopted(2048, **more)
    sim.run("vmadm", "start", VM)
    if not autoboot:
        sim.run("vmadm", "update", VM, "autoboot=false")
    return sim


@pytest.fixture
def sim() -> Simulated:
    return Simulated()
