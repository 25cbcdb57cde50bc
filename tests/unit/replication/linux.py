# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts with domains of libvirt, on which the engine does a move in this process."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from simnode import Node, PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import guests_service
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_driver import Libvirt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_memory import (
    LibvirtMemory,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.domains.conftest import domain
from tests.unit.domains.fake import FakeDomains, child
from tests.unit.domains.files import FakeFiles
from tests.unit.domains.memory import Disks

from .world import OTHER, PASSPHRASE, VM, Host, World

DEVICES = "/dev/zvol/"
# What an operator has set by hand of a disk, and of the machine.
OWN_DISK = "<driver name='qemu' type='raw' cache='writeback' io='threads'/><blockio logical_block_size='4096'/>"
NVRAM = "/var/lib/libvirt/qemu/nvram/db01_VARS.fd"
UEFI = (
    "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>"
    f"<nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>{NVRAM}</nvram>"
)
OWN_WORDS = "<title>It costs $5</title><metadata><mine xmlns='http://example.com/'>kept</mine></metadata>"


class LinuxHost(Host):
    """Every change of a domain or a file is a command, too: the run can be killed before it or after."""

    stop = "virsh shutdown"

    def __init__(self, node: Node, folder: Any, world: World) -> None:
        super().__init__(node, folder, world)
        self.files = FakeFiles(node.pools)
        self.domains = FakeDomains(self._size, Disks(self._on_node, self.files))
        self.domains.hook = self.files.hook = self._hooked
        self.boots_counted = 1

    def __call__(self, argv: Any, stdin: str = "", timeout: float = 300) -> Any:
        if list(argv[:2]) == ["zfs", "mount"]:  # the node has everything mounted always
            self.files.mount(argv[2])
            return Answer(0, "", "")
        return super().__call__(argv, stdin, timeout)

    def _hooked(self, _name: str, _arguments: Any, when: str) -> None:
        self.world.acting(self)
        if when == "after":
            self.world.watch()
            self.world.guard()
        self.world.blow(when == "after")

    def _on_node(self, argv: list[str]) -> tuple[int, str, str]:
        return self.node.run(argv)

    def _size(self, path: str) -> int | None:
        if not path.startswith(DEVICES):
            return self.files.size(path) if self.files.size(path) >= 0 else None
        rc, out, _err = self.node.run(["zfs", "get", "-Hpo", "value", "volsize", path[len(DEVICES) :]])
        return int(out) if rc == 0 else None

    def _called(self, name: str) -> str:
        return name if self.node.run(["zfs", "get", "-Ho", "value", "volsize", name])[0] == 0 else ""

    def zfs(self) -> Zfs:
        return Zfs(self, lambda _seconds: None, self._called, self.files)

    def driver(self) -> Any:
        memory = LibvirtMemory(self.domains)
        return Libvirt(self.domains, "qemu:///system", self, lambda _seconds: None, memory)

    def state(self) -> Any:
        domains = {key: value for key, value in vars(self.domains).items() if key not in ("_volsize", "_disks", "hook")}
        return copy.deepcopy((self.node, domains))

    def restore(self, state: Any) -> None:
        self.node, domains = copy.deepcopy(state)
        vars(self.domains).update(domains)
        self.files.storage = self.node.pools
        self.files.unmounted.clear()

    def quietly(self, ask: Any) -> Any:
        """What a test itself asks is none of the run's commands."""
        fuse, watch, guard = self.world.fuse, self.world.watch, self.world.guard
        self.world.fuse, self.world.watch, self.world.guard = type(fuse)(), lambda: None, lambda: None
        try:
            return ask()
        finally:
            self.world.fuse, self.world.watch, self.world.guard = fuse, watch, guard

    def disks(self, uuid: str) -> list[dict[str, Any]]:
        host = self.quietly(lambda: observe(self.zfs(), self.driver(), all_pools=True))
        disks_of_vm = [disk for vm in host.vms if vm.config.uuid == uuid for disk in vm.disks]
        return [{"uuid": disk.uuid, "dataset": disk.volume.name, "boot": disk.boot} for disk in disks_of_vm]

    def boots(self, uuid: str) -> list[str]:
        paths = self.domains.paths(uuid) if uuid in self.domains.configs else []
        return [path[len(DEVICES) :] for path in paths[:1]]

    def config(self, uuid: str) -> dict[str, Any]:
        status = self.domains.status(uuid)
        root = ET.fromstring(self.domains.xml(uuid, False))
        for element in root.iter():
            element.text, element.tail = (element.text or "").strip(), ""
        elements = sorted(ET.tostring(one, encoding="unicode") for one in root.findall("devices/*"))
        others = [ET.tostring(one, encoding="unicode") for one in root if one.tag != "devices"]
        options = {"state": status.state, "autoboot": status.autostart, "variables": self.domains.variables(NVRAM)}
        return {**options, "devices": elements, "others": others}

    def power(self, uuid: str) -> str:
        return self.domains.status(uuid).state if uuid in self.domains.configs else ""

    def power_on(self, uuid: str) -> None:
        self.domains.boot(uuid)
        self.domains.saves.discard(uuid)

    def suspend(self, uuid: str) -> None:
        self.domains.save(uuid)

    def forget_memory(self, uuid: str) -> None:
        self.domains.saves.discard(uuid)

    def power_off(self, uuid: str) -> None:
        if uuid in self.domains.lives:
            self.domains.halt(uuid)

    def reboot(self) -> None:
        self.boots_counted += 1
        self.files.unmount()
        self.domains.restart_daemon()
        self.domains.booted = f"9d0e6f1c-0000-4000-8000-{self.boots_counted:012}"

    def autoboots(self, uuid: str) -> bool:
        return self.domains.autostarts.get(uuid, False)

    def set_autoboot(self, uuid: str, autoboot: bool) -> None:
        self.domains.autostarts[uuid] = autoboot

    def rename(self, uuid: str, alias: str) -> None:
        for root in [roots[uuid] for roots in (self.domains.configs, self.domains.lives) if uuid in roots]:
            child(root, "name").text = alias

    def annotate(self, uuid: str, text: str) -> None:
        child(self.domains.configs[uuid], "title").text = text

    def create(self, payload: dict[str, Any]) -> None:
        """A domain with this uuid and alias, and the first of the disks."""
        uuid, paths = payload["uuid"], []
        self.ok("zfs", "create", f"zones/{uuid}")
        for disk in payload.get("disks", ())[:1]:
            paths = [f"zones/{uuid}/disk0"]
            serial = disk.get("uuid", "")
            self.ok(
                "zfs", "create", "-V", f"{disk['size']}M", *(["-o", f"flexdisk:uuid={serial}"] * bool(serial)), paths[0]
            )
        text = domain(paths, uuid=uuid, name=payload["alias"], machine="pc-q35-7.2")
        self.domains.add(text.replace("52:54:00:aa:bb:cc", "52:54:00:aa:bb:dd"))

    def delete(self, uuid: str) -> None:
        self.domains.lives.pop(uuid, None)
        del self.domains.configs[uuid]
        self.ok("zfs", "destroy", "-r", f"zones/{uuid}")


class LinuxWorld(World):
    """A running domain with UEFI and three disks. The last one is a file; the second is preserved."""

    names = ("root", "data", "logs")
    allocatable = 1 << 20
    cold: Mapping[str, str] = {"pci_slot": "5:0:0"}
    choices = ({"pci_slot": "3:0:0"}, {"pci_slot": "5:0:0"})
    scarce = 20

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        # Whatever the machine does on which the tests run.
        for name, value in (("_UNITS", ()), ("_RUNLEVELS", str(folder / "none")), ("_QEMU_CONF", str(folder / "none"))):
            monkeypatch.setattr(guests_service, name, value)
        super().__init__(folder, monkeypatch)

    def host(self, seed: int) -> Host:
        vdevs = [{"type": "disk", "disks": 1}]
        spec = PoolSpec("zones", 64 << 30, 12, vdevs, "openzfs-2.1", self.passphrase(seed))
        made = self.named[f"hv{seed:02}"] = LinuxHost(Node.create(None, [spec], seed), self.folder, self)
        return made

    def make(self) -> None:
        home = cast(LinuxHost, self.home)
        home.ok("zfs", "create", f"zones/{VM}")
        for number, size in enumerate((64, 32)):
            home.ok("zfs", "create", "-V", f"{size}M", f"zones/{VM}/disk{number}")
        text = domain([f"zones/{VM}/disk{n}" for n in range(2)], uuid=VM, name="db01", machine="pc-q35-7.2")
        text = text.replace("<driver name='qemu' type='raw'/>", OWN_DISK, 1)
        text = text.replace("  <memory", f"  {OWN_WORDS}\n  <memory")
        home.domains.add(text.replace("<boot dev", f"{UEFI}<boot dev"))


class SecretLinuxWorld(LinuxWorld):
    """Both have encrypted pools, each with a key of its own."""

    passphrases = (PASSPHRASE, OTHER)
