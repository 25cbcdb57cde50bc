# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two VMs, web01 and web02, with each driver on a node of its own: what top-level disks can do is the same."""

from __future__ import annotations

import contextlib
import json
import pickle
from functools import cache
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk import DiskOutcome, run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.disk import Place, disk_places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import Host
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.domains.conftest import LinuxHost, domain
from tests.unit.engine.conftest import Simulated
from tests.unit.four_steps import four_steps, refused
from tests.unit.proxmox.two_vms import ProxmoxHost

ONE = "cccccccc-0000-4000-8000-000000000001"
TWO = "cccccccc-0000-4000-8000-000000000002"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"


class Killed(Exception):
    """The run ends here."""


class Bench:
    """A host with web01 (root, a, b of 32 MiB) and web02 (root, c of 32 MiB), all adopted and stopped."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.host: Any = {"vmadm": Simulated, "libvirt": LinuxHost, "proxmox": ProxmoxHost}[kind]()
        self.pool = {"vmadm": "zones", "libvirt": "tank", "proxmox": "rpool"}[kind]
        self.plan = ("", 0)
        self.count = 0
        for uuid, alias, names in ((ONE, "web01", "ab"), (TWO, "web02", "c")):
            self._make(uuid, alias, names)
        self.host.calls.clear()
        if kind == "libvirt":
            self.host.hook = self._hook
            self.host.domains.hook = self._hook

    def _make(self, uuid: str, alias: str, names: str) -> None:
        sizes = (32,) * len(names)
        if self.kind == "vmadm":
            self.host.create(flexible=40960, sizes=sizes, uuid=uuid, alias=alias)
        elif self.kind == "proxmox":
            self.host.create((64, *sizes), uuid, alias)
        else:
            self.host.create((64, *sizes), uuid=uuid, name=alias, machine="pc-q35-7.2")
        vm = self.vm(uuid)
        entries = [{"name": n, "pci_slot": d.pci_slot} for n, d in zip(["root", *names], vm.disks, strict=True)]
        wanted: dict[str, Any] = {"vm": uuid, "disks": entries}
        wanted.update({} if self.kind == "vmadm" else {"flexible_disk_size": "1GiB"})
        done = self.host.converge(wanted)
        assert (done.problems, done.failure) == ([], None)

    # -- commands, and where they are cut off

    def _hook(self, _what: str, _args: Any, when: str) -> None:
        self.count += when == "before"
        if (when, self.count) == self.plan:
            raise Killed

    def runner(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        changing = self.kind != "libvirt" and changes(argv)
        if changing:
            self._hook("", argv, "before")
        answer: Answer = self.host.runner(argv, stdin, timeout)
        if changing:
            self._hook("", argv, "after")
        return answer

    def pipe(self, first: Any, second: Any) -> tuple[Answer, Answer]:
        sent = self.runner(first)
        return sent, self.runner(second, sent.stdout)

    def sides(self) -> tuple[Zfs, Any]:
        if self.kind == "vmadm":
            return Zfs(self.runner, lambda seconds: None, pipe=self.pipe), Vmadm(self.runner)
        if self.kind == "proxmox":
            return Zfs(self.runner, lambda seconds: None, pipe=self.pipe), self.host.driver_with(self.runner)
        zfs = Zfs(self.runner, lambda seconds: None, self.host.called, self.host.files, self.pipe)
        return zfs, self.host.driver()

    # -- runs

    def go(self, *disks: dict[str, Any], check: bool = False, pool: str | None = None, **policy: Any) -> DiskOutcome:
        """pool "": all that have VMs."""
        return run(*self.sides(), disks, Policy(**policy), self.pool if pool is None else pool or None, check)

    def four_steps(self, *disks: dict[str, Any], **policy: Any) -> DiskOutcome:
        def go(check: bool) -> DiskOutcome:
            return self.go(*disks, check=check, **policy)

        def told(done: DiskOutcome) -> dict[str, Any]:
            return dict(results.result(done), disks=done.disks)

        done: DiskOutcome = four_steps(self, go, told, self.assert_lawful)
        return done

    def refused(self, code: str, *disks: dict[str, Any], **policy: Any) -> str:
        problems = refused(self, lambda check: self.go(*disks, check=check, **policy))
        scope = getattr(self.sides()[1].capabilities, "scope", "")
        problems = [p for p in problems if not (scope and p.message.endswith(scope))] or problems
        assert {p.code for p in problems} == {code}, problems
        return "; ".join(p.message for p in problems)

    def killed(self, when: str, number: int, *disks: dict[str, Any], **policy: Any) -> bool:
        """A run that is killed before or after its change of that number; whether it came so far."""
        self.plan, self.count = (when, number), 0
        try:
            with contextlib.suppress(Killed):
                self.go(*disks, **policy)
            return self.count >= number
        finally:
            self.plan = ("", 0)

    # -- what is there

    def read(self) -> Host:
        return observe(*self.sides(), pool=self.pool)

    def vm(self, uuid: str = ONE) -> Vm:
        return next(v for v in self.read().vms if v.config.uuid == uuid)

    def place(self, name: str) -> Place:
        found = [p for p in disk_places(self.read()) if p.disk.name == name]
        assert len(found) == 1, found
        return found[0]

    def disk(self, name: str) -> Disk:
        return self.place(name).disk

    def names(self, uuid: str = ONE) -> dict[str, int]:
        return {disk.name: disk.index for disk in self.vm(uuid).disks}

    def run(self, *argv: str) -> str:
        return str(self.host.run(*argv))

    def write(self, name: str, seed: int = 7) -> str:
        self.run("guest", "write", self.disk(name).volume.name, "0", "8", str(seed))
        return self.digest(name)

    def digest(self, name: str) -> str:
        return self.run("guest", "hash", self.disk(name).volume.name, "0", "8")

    def start(self, uuid: str = ONE) -> None:
        if self.kind == "vmadm":
            self.run("vmadm", "start", uuid)
        elif self.kind == "proxmox":
            self.run("qm", "start", str(self.host.numbers[uuid]))
        else:
            self.host.domains.boot(uuid)

    def stop(self, uuid: str = ONE) -> None:
        if self.kind == "vmadm":
            self.run("vmadm", "stop", uuid, "-F")
        elif self.kind == "proxmox":
            self.run("qm", "stop", str(self.host.numbers[uuid]))
        else:
            self.host.domains.halt(uuid)

    def in_transition(self, uuid: str) -> None:
        if self.kind == "vmadm":
            self.host.admin("vm-state", uuid, "stopping")
        elif self.kind == "proxmox":
            pytest.skip("a VM is locked meanwhile, and the refusal says so")
        else:
            self.start(uuid)
            self.host.domains.states[uuid] = "paused"

    def another_pool(self, uuid: str, alias: str) -> None:
        """With a VM of one disk."""
        version = "illumos" if self.kind == "vmadm" else "openzfs-2.1"
        self.host.node.pools.add_pool("other", 8 << 30, 12, [{"type": "disk", "disks": 1}], version)
        if self.kind == "vmadm":
            payload = {"uuid": uuid, "alias": alias, "brand": "bhyve", "zpool": "other", "quota": 1, "autoboot": False}
            disks = [{"size": 8, "model": "virtio", "boot": True}]
            self.host.run("vmadm", "create", stdin=json.dumps({**payload, "disks": disks, "flexible_disk_size": 512}))
        elif self.kind == "proxmox":
            self.run("zfs", "create", "other/vms")
            self.host.create((8,), uuid, alias, "other:other/vms")
            storage = self.host.files / "etc/pve/storage.cfg"
            storage.write_text(storage.read_text().replace("\tdisable 1\n", ""))
        else:
            self.run("zfs", "create", f"other/{uuid}")
            self.run("zfs", "create", "-V", "8M", f"other/{uuid}/disk0")
            self.run("zfs", "set", "flexdisk:flexible_disk_size=512", f"other/{uuid}")
            self.host.domains.add(domain([f"other/{uuid}/disk0"], uuid=uuid, name=alias))

    def fingerprint(self) -> str:
        return str(self.host.fingerprint())

    def assert_lawful(self) -> None:
        host = self.read()
        for vm in host.vms:
            assert vm.config.prefixes or space.quota_drift(vm, host.geometry[self.pool]) == (0, 0)
            assert (vm.orphans, vm.missing) == ((), ())


@pytest.fixture(params=["vmadm", "libvirt", "proxmox"])
def bench(request: Any) -> Bench:
    made: Bench = pickle.loads(built(request.param))
    return made


@cache
def built(kind: str) -> bytes:
    """A bench as it is at first. To copy it takes a hundredth of the time that it takes to build it."""
    return pickle.dumps(Bench(kind))
