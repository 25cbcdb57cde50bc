# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for Proxmox VE that also takes, deletes and goes back to snapshots of VMs, by qm.

qm compares no digest for them. So the file is compared right before, and read again afterwards, as for every change.
"""

from __future__ import annotations

import time
import typing as t

from ..model.command import Answer, Runner
from ..model.errors import FlexdiskError, Unchanged
from . import pve_qm, pve_storage, pve_vm
from .pve_config import VmFile
from .pve_disk import parse
from .pve_disks import PATIENCE, ProxmoxDisks


class ProxmoxSnapshots(ProxmoxDisks):
    """The driver for snapshots of VMs that are there."""

    def __init__(self, runner: Runner, root: str = "", pause: t.Callable[[float], None] = time.sleep) -> None:
        super().__init__(runner, root, pause)
        self.snapshots = self

    def create_snapshot(self, vm: str, name: str) -> None:
        vmid, file = self._before(vm)
        argv = ("qm", "snapshot", str(vmid), name)
        answer = self._runner(argv, timeout=PATIENCE)
        now = self._file(vmid)
        section = now.snapshots.get(name)
        lacking = "" if section is not None and "snapstate" not in section else f"there is no whole snapshot {name}"
        self._finish(argv, answer, lacking or self._lost(file, now))

    def delete_snapshot(self, vm: str, name: str) -> None:
        vmid, file = self._before(vm)
        unfinished = "snapstate" in file.snapshots.get(name, {})
        argv = ("qm", "delsnapshot", str(vmid), name, *(("--force", "1") if unfinished else ()))
        answer = self._runner(argv, timeout=PATIENCE)
        lacking = f"snapshot {name} is still there" if name in self._file(vmid).snapshots else ""
        self._finish(argv, answer, lacking)

    def roll_back(self, vm: str, name: str) -> None:
        vmid, file = self._before(vm)
        if self._process(vmid):
            raise Unchanged(FlexdiskError("Changed", f"VM {vmid} runs by now; it was not rolled back"))
        argv = ("qm", "rollback", str(vmid), name)
        answer = self._runner(argv, timeout=PATIENCE)
        now = self._file(vmid)
        lacking = self._not_back(now, name)
        if lacking and answer.rc != 0 and now.digest == file.digest:
            raise Unchanged(pve_qm.failure(argv, answer, "it was not rolled back"))
        self._finish(argv, answer, lacking)

    def _before(self, vm: str) -> t.Tuple[int, VmFile]:
        config, file = self._fresh(vm)
        return config.proxmox["vmid"], file

    def _finish(self, argv: t.Sequence[str], answer: Answer, lacking: str) -> None:
        """Raise FlexdiskError if something lacks, with the way out if the VM is locked now. Else read the VMs again."""
        vmid = int(argv[2])
        file = self._file(vmid)
        if lacking or "lock" in file.main.values:
            failure = pve_qm.failure(argv, answer, lacking or f"VM {vmid} is locked ({file.main.values['lock']})")
            raise FlexdiskError(failure.code, f"{failure.message}{pve_vm.unlocking(vmid, file)}")
        self.vms()

    @staticmethod
    def _lost(before: VmFile, now: VmFile) -> str:
        """Return which lines Proxmox VE has dropped from the file, as a sentence; "" if none."""
        there = pve_vm.settings(now)
        gone = {at: value for at, value in pve_vm.settings(before).items() if at not in there}
        lost = [f"{key}: {value}{where}" for (where, key), value in gone.items()]
        return f"the change was made, but Proxmox VE has dropped {'; '.join(lost)} from the file" if lost else ""

    def _not_back(self, file: VmFile, name: str) -> str:
        """Return which disk is not as in the snapshot, as a sentence; "" if all are."""
        storages = self._cluster().storages
        keys = [key for key in file.snapshots.get(name, {}) if pve_vm.is_snapshotted(key, file.snapshots[name])]
        if file.main.values.get("parent") != name or not keys:
            return f"the VM is not at snapshot {name}"
        volumes = [pve_storage.volume(storages, parse(file.main.values[key]).volume).dataset for key in keys]
        answer = self._runner(("zfs", "get", "-Hpo", "name,value", "written", *volumes))
        rows = [line.split("\t") for line in answer.stdout.splitlines()]
        if answer.rc != 0 or len(rows) != len(volumes):
            return f"nobody knows whether its disks are: {answer.stderr.strip()}"
        changed = [row[0] for row in rows if row[1:] != ["0"]]
        return f"{', '.join(changed)} has been written to since snapshot {name}" if changed else ""
