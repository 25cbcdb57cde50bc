# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Linux host: simulated ZFS, domains of libvirt, and the engine's runs on both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.outcome import Outcome
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_driver import Libvirt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.inventory import Host
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

from .fake import FakeDomains
from .files import FakeFiles
from .memory import Disks

VM = "cccccccc-0000-4000-8000-000000000001"
OTHER = "cccccccc-0000-4000-8000-000000000002"
PC = """<domain type='kvm'>
  <name>%(name)s</name>
  <uuid>%(uuid)s</uuid>
  <memory unit='KiB'>65536</memory>
  <os><type arch='x86_64' machine='%(machine)s'>hvm</type><boot dev='hd'/></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
%(disks)s
%(controllers)s
    <interface type='network'>
      <mac address='52:54:00:aa:bb:cc'/>
      <source network='default'/>
      <model type='virtio'/>
      <address type='pci' domain='0x0000' bus='%(nic)s' slot='%(nicslot)s' function='0x0'/>
    </interface>
    <graphics type='vnc' port='-1' passwd='secret'/>
  </devices>
</domain>"""
DISK = """    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/>
      <source dev='/dev/zvol/%s'/>
      <target dev='vd%s' bus='virtio'/>
    </disk>"""
SCSI = "    <controller type='scsi' index='0' model='virtio-scsi'/>"


def domain(
    volumes: list[str],
    uuid: str = VM,
    name: str = "web01",
    machine: str = "pc-i440fx-7.2",
    ports: int = 6,
    more: str = "",
) -> str:
    q35 = "q35" in machine
    controllers = [f"    <controller type='pci' index='0' model='{'pcie-root' if q35 else 'pci-root'}'/>"]
    controllers += [
        "    <controller type='pci' index='%d' model='pcie-root-port'/>" % n for n in range(1, ports + 1) if q35
    ]
    return PC % {
        "name": name,
        "uuid": uuid,
        "machine": machine,
        "disks": "\n".join(DISK % (volume, letter) for volume, letter in zip(volumes, "abcdefg", strict=False)),
        "controllers": "\n".join(controllers) + more,
        "nic": "0x01" if q35 else "0x00",
        "nicslot": "0x00" if q35 else "0x03",
    }


class LinuxHost:
    """The host and what a test does to it."""

    def __init__(self) -> None:
        self.node = Node.create(None, [PoolSpec("tank", 64 << 30, 12, [{"type": "disk", "disks": 1}], "openzfs-2.1")])
        self.calls: list[list[str]] = []
        self.files = FakeFiles(self.node.pools)
        self.domains = FakeDomains(self._volsize, Disks(self._on_node, self.files))
        self.hook: Any = None
        self.uri = "qemu:///system"

    def _on_node(self, argv: list[str]) -> tuple[int, str, str]:
        return self.node.run(argv, "")

    def _volsize(self, path: str) -> int | None:
        if not path.startswith("/dev/zvol/"):
            return self.files.size(path) if self.files.size(path) >= 0 else None
        name = path[len("/dev/zvol/") :]
        rc, out, _err = self.node.run(["zfs", "get", "-Hpo", "value", "volsize", name], "")
        return int(out) if rc == 0 else None

    def runner(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        self.calls.append(list(argv))
        hooked = self.hook if changes(argv) else None
        if hooked:
            hooked("zfs", tuple(argv), "before")
        answer = self._qemu_img(argv) if argv[0] == "qemu-img" else Answer(*self.node.run(list(argv), stdin))
        if hooked:
            hooked("zfs", tuple(argv), "after")
        return answer

    def _qemu_img(self, argv: Any) -> Answer:
        """What it says of a file of 64 MiB less a byte, and what it writes of that."""
        if argv[1] == "info":
            image = {"virtual-size": (64 << 20) - 1, "format": "qcow2", "filename": argv[-1]}
            return Answer(0, json.dumps(image), "")
        return Answer(*self.node.run(["guest", "write", argv[-1][len("/dev/zvol/") :], "0", "8", "image"], ""))

    def run(self, *argv: str) -> str:
        status, out, err = self.node.run(argv, "")
        assert status == 0, f"{argv}: {err}"
        return str(out)

    def create(self, sizes: tuple[int, ...] = (64, 32), uuid: str = VM, **more: Any) -> None:
        """A VM with volumes of these MiB in the collection's layout, made by hand."""
        self.run("zfs", "create", f"tank/{uuid}")
        for number, size in enumerate(sizes):
            self.run("zfs", "create", "-V", f"{size}M", f"tank/{uuid}/disk{number}")
        self.domains.add(domain([f"tank/{uuid}/disk{n}" for n in range(len(sizes))], uuid=uuid, **more))

    def adopted(self, *sizes: int, flexible: Any = "1GiB", **more: Any) -> None:
        """web01 with root and data disks a, b, c... of these sizes, all with identity and serial, stopped."""
        self.create((64, *sizes), **more)
        entries = [{"name": name} for name in ["root", *"abcdef"][: len(sizes) + 1]]
        for number, entry in enumerate(entries):
            vm = self.vm()
            entry["pci_slot"] = vm.disks[number].pci_slot
        done = self.converge({"vm": VM, "flexible_disk_size": flexible, "disks": entries})
        assert (done.problems, done.failure) == ([], None)

    def driver(self) -> Libvirt:
        return Libvirt(self.domains, self.uri, self.runner, lambda seconds: None)

    def host(self) -> Host:
        return observe(self.zfs(), self.driver())

    def zfs(self) -> Zfs:
        return Zfs(self.runner, lambda seconds: None, self.called, self.files)

    def called(self, name: str) -> str:
        return name if self.node.run(["zfs", "get", "-Ho", "value", "volsize", name], "")[0] == 0 else ""

    def vm(self, uuid: str = VM) -> Vm:
        return next(v for v in self.host().vms if v.config.uuid == uuid)

    def disks(self, uuid: str = VM) -> dict[str, Disk]:
        return {disk.name: disk for disk in self.vm(uuid).disks}

    def converge(self, *vms: dict[str, Any], check: bool = False, **policy: Any) -> Outcome:
        return converge(self.zfs(), self.driver(), vms, Policy(**policy), None, check)

    def fingerprint(self) -> str:
        both = [{u: self.domains.xml(u, live) for u in xs} for live, xs in self._texts()]
        return json.dumps([self.node.pools.to_json(), *both, self.domains.autostarts], sort_keys=True)

    def _texts(self) -> list[tuple[bool, list[str]]]:
        return [(False, list(self.domains.configs)), (True, list(self.domains.lives))]

    def four_steps(self, *vms: dict[str, Any], **policy: Any) -> Outcome:
        """As tests.unit.four_steps; afterwards both configurations of every domain agree."""
        done: Outcome = four_steps(
            self, lambda check: self.converge(*vms, check=check, **policy), holds=self.assert_whole
        )
        return done

    def assert_whole(self) -> None:
        """The law holds, and what runs is what a cold start would show."""
        host = self.host()
        for vm in (v for v in host.vms if v.flexible):
            assert space.quota_drift(vm, host.geometry["tank"]) == (0, 0)
        for uuid in self.domains.lives:
            if uuid in self.domains.configs:
                assert self.domains.addresses(uuid, True) == self.domains.addresses(uuid)
                assert self.domains.paths(uuid, True) == self.domains.paths(uuid)
                for path in self.domains.paths(uuid, True):
                    assert self.domains.guest_sizes[uuid, path] == self._volsize(path)
                assert "passwd=" in self.domains.xml(uuid, False) or "<graphics" not in self.domains.xml(uuid, True)


def killed(linux: LinuxHost, number: int, declaration: dict[str, Any]) -> None:
    """The run of vm_disks for a wish is killed before its command, or call of libvirt, of this number."""
    left = number

    def kill(*_call: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            linux.domains.hook = linux.hook = None
            raise KeyboardInterrupt

    linux.domains.hook = linux.hook = kill
    with pytest.raises(KeyboardInterrupt):
        linux.converge(declaration)


@pytest.fixture
def linux() -> LinuxHost:
    return LinuxHost()
