# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios on a simulated node of Proxmox VE, and those that only this has.

A scenario makes its VMs in the words of vmadm. Here these words make volumes and files below /etc/pve.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_monitor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_config import VmFile
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_snapshots import (
    ProxmoxSnapshots,
)
from tests.faults import scenarios
from tests.faults.backend import POOL, Backend
from tests.faults.node import NodeBackend
from tests.faults.scenarios import IMAGE_MIB, WEB, A, B, Scenario, declare, must, of_snapshot
from tests.faults.shim import Fault
from tests.unit.proxmox.two_vms import ProxmoxHost

HERE = "rpool"
_VOLUME = re.compile(POOL + r"/([0-9a-f-]{36})/disk(\d+)")
STAMPS = ("ctime", "mtime", "serial_no")
_SLOT = re.compile(r'"0:4:(\d)"')
SCOPE = ProxmoxSnapshots.capabilities.scope


class ProxmoxBackend(NodeBackend):
    """A Backend. Without a host, one of Proxmox VE without VMs."""

    def __init__(self, host: ProxmoxHost | None = None) -> None:
        self.host = host or ProxmoxHost()
        super().__init__(self.host.node)

    def save(self) -> bytes:
        return pickle.dumps(self.host)

    def _driver(self) -> Any:
        return ProxmoxSnapshots(self._runner, str(self.host.files), self.node.sleep)

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        if fault is None:
            self._as_the_refusal_says()
        slots = json.loads(_SLOT.sub(r'"virtio\1"', json.dumps(arguments)))
        with patch.object(pve_monitor, "blocks", self.host._blocks):
            return super().task(slots, check=check, fault=fault)

    def _as_the_refusal_says(self) -> None:
        """Do what an operator does who reads that a qm that was killed has left a lock, and half a snapshot."""
        for uuid, number in self.host.numbers.items():
            file = VmFile(self.host.config(uuid).read_bytes())
            lock = file.main.values.get("lock", "")
            half = [name for name, values in file.snapshots.items() if "snapstate" in values]
            if lock:
                self.host.run("qm", "unlock", str(number))
            for name in half if lock.startswith("snapshot") else ():
                self.host.run("qm", "delsnapshot", str(number), name, "--force", "1")

    def _tear(self, last: int, argv: list[str], stdin: str) -> None:
        if argv[0] == "qm":
            self.admin("pve-kill", str(last))
            self.node.run(argv, stdin)
        else:
            super()._tear(last, argv, stdin)

    # -- what scenarios say in the words of vmadm

    def admin(self, command: str, *argv: str) -> None:
        """There are no images; a guest that does not shut down is of no interest, because nobody stops it."""
        if command.startswith("pve-"):
            self.host.admin(command, *argv)

    def run(self, *argv: str, stdin: str = "") -> str:
        if argv[0] == "vmadm":
            return self._vmadm(argv[1], argv[2:], stdin)
        if argv[1:2] == ("set",) and argv[-1] in {f"{POOL}/{uuid}" for uuid in self.host.numbers}:
            return ""  # the dataset of a VM, which has none here
        return super().run(*(self._named(word) for word in argv), stdin=stdin)

    def _named(self, word: str) -> str:
        """What a volume is called here."""

        def volume(match: re.Match[str]) -> str:
            return f"{HERE}/data/vm-{self.host.numbers[match[1]]}-disk-{match[2]}"

        return re.sub(rf"\b{POOL}\b", HERE, _VOLUME.sub(volume, word))

    def _vmadm(self, action: str, words: tuple[str, ...], stdin: str) -> str:
        if action == "create":
            return self._create(json.loads(stdin))
        if action == "get":
            return json.dumps({"state": self._vms()[words[0]]["state"]})
        if action == "lookup":
            return json.dumps([*self._vms().values()])
        if action == "create-snapshot":
            self._snapshot(words[0], words[1])
            return ""
        assert action == "stop", action
        return super().run("qm", "stop", str(self.host.numbers[words[0]]))

    def _create(self, payload: Mapping[str, Any]) -> str:
        self.host.create([disk.get("size", IMAGE_MIB) for disk in payload["disks"]], payload["uuid"], payload["alias"])
        if payload["autoboot"]:
            super().run("qm", "start", str(self.host.numbers[payload["uuid"]]))
        number = self.host.numbers[payload["uuid"]]
        for index, disk in enumerate(payload["disks"]):
            volume = f"{HERE}/data/vm-{number}-disk-{index}"
            super().run("zfs", "set", f"flexdisk:uuid={disk['uuid']}", volume)
        must(self, {"vms": [{"vm": payload["uuid"], "flexible_disk_size": payload["flexible_disk_size"]}]})
        return ""

    def _snapshot(self, vm: str, name: str) -> None:
        """One of every disk, that the VM does not know: a disk that is in a snapshot of its VM stays there."""
        prefix = f"{HERE}/data/vm-{self.host.numbers[vm]}-"
        volumes = [n for n in super().run("zfs", "list", "-Ho", "name", "-r", HERE).split() if n.startswith(prefix)]
        super().run("zfs", "snapshot", *(f"{volume}@{name}" for volume in volumes))

    def _vms(self) -> dict[str, dict[str, Any]]:
        return {uuid: self._vm(uuid, number) for uuid, number in self.host.numbers.items()}

    def _vm(self, uuid: str, number: int) -> dict[str, Any]:
        """All that the file of the VM says: each line is what a disk is to vmadm."""
        file = VmFile(self.host.config(uuid).read_bytes())
        record = self.host.files / "etc/pve/flexdisk" / f"{uuid}.json"
        kept = json.loads(record.read_text()) if record.exists() else {"disks": {}}
        disks = {serial: {k: v for k, v in one.items() if k not in STAMPS} for serial, one in kept["disks"].items()}
        lines = [f"{section.name} {key}: {value}" for section in file.sections for key, value in section.values.items()]
        plugged = self._plugged(number)
        return {
            "uuid": uuid,
            "alias": file.main.values["name"],
            "state": "running" if plugged is not None else "stopped",
            "flexible_disk_size": {**kept, "disks": disks},
            "disks": [{"path": re.sub("snaptime: .*", "", line)} for line in lines],
            "ram": plugged,
        }

    def _plugged(self, number: int) -> dict[str, int] | None:
        qemu = self.node.state.get("pve", {}).get("running", {}).get(str(number))
        return None if qemu is None else {key: one["size"] for key, one in qemu["plugged"].items() if one}


# -- scenarios


def with_snapshot(backend: Backend) -> None:
    """A stopped VM with a snapshot of qm, and what was written since."""
    scenarios.stopped(backend)
    must(backend, of_snapshot(name="before"))
    backend.run("guest", "write", f"{POOL}/{WEB}/disk1", "1", "2", "77")


def with_two_snapshots(backend: Backend) -> None:
    with_snapshot(backend)
    must(backend, of_snapshot(name="later"))


def unused(backend: Backend) -> None:
    """A disk that somebody has detached by hand."""
    scenarios.stopped(backend)
    backend.run("qm", "set", "100", "--delete", "virtio1")


OWN = (
    Scenario("snapshot-newest-back", with_snapshot, of_snapshot(name="before", state="rolled_back"), rewrites=True),
    Scenario("snapshot-old-absent", with_two_snapshots, of_snapshot(name="before", state="absent")),
    Scenario("unused-attach", unused, declare(A, B)),
    Scenario("unused-detach", unused, declare(B, unlisted="detach")),
    Scenario("unused-remove", unused, declare({**A, "state": "absent"}, B)),
    Scenario("key-wanted", scenarios.detached, declare({**A, "pci_slot": "scsi4", "size": 80}, B)),
    Scenario("grow-two-running", scenarios.running, declare({**A, "size": 72}, {**B, "size": 160})),
    Scenario("mixed-keys-stay", scenarios.three, declare(
        scenarios.SHRUNK, {**B, "size": 128, "description": "bigger"}, scenarios.NEW,
        unlisted="keep", flexible_disk_size=1536,
    )),
)  # fmt: skip
REFUSED = {
    "clone": "image aaaaaaaa-0000-4000-8000-000000000001 is missing",
    "quota": "there is nothing that a quota could be set for",
    "slots": "model 'nvme' is not valid",
    "mixed": f"b pci_slot virtio2 -> virtio6: {SCOPE}",
    "restart": f"b pci_slot virtio2 -> virtio6: {SCOPE}",
    "recreate-boot": "the boot disk cannot be replaced",
}
"""The scenarios that are refused, each with what the message says."""
ELSEWHERE = {
    "boot-back": "begins with a boot disk that was replaced",
    "quota-law": "no VM has a quota",
    "verify-orphan": "no finding is repaired",
    "snapshot-absent": "snapshots are those of qm: snapshot-old-absent",
    "snapshot-back": "snapshots are those of qm, and only the newest: snapshot-newest-back",
}
"""Scenarios that cannot begin here, with the reason. Those of the module vm are refused before anything is read."""


def _here(name: str) -> bool:
    return name not in (*REFUSED, *ELSEWHERE) and not name.startswith("vm-")


SCENARIOS = {name: one for name, one in scenarios.SCENARIOS.items() if _here(name)} | {one.name: one for one in OWN}
