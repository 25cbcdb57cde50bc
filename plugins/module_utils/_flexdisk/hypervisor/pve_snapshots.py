# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for Proxmox VE that also takes, deletes and goes back to snapshots of VMs, by qm.

qm compares no digest for them. So the file is compared right before. Afterwards the file and the volumes are read
again, whatever qm has said.
"""

from __future__ import annotations

import time
import typing as t

from ..model.command import Answer, Runner
from ..model.dataset import DatasetId
from ..model.errors import FlexdiskError, Unchanged
from . import pve_qm, pve_storage, pve_vm
from .pve_config import VmFile
from .pve_disk import parse
from .pve_disks import PATIENCE, ProxmoxDisks

# What a volume has written since a snapshot after a rollback to it: nothing, or two sectors, of 512 bytes to 64 KiB,
# for its root without a log (measured: tests/lab/suite/test_unwritten.py). In a pool, a write takes more.
_UNWRITTEN = (0, *(2 << ashift for ashift in range(9, 17)))

# The locks of the commands while they work.
_LOCKS = {"snapshot": "snapshot", "delsnapshot": "snapshot-delete", "rollback": "rollback"}

_Figures = t.Dict[str, t.Dict[str, str]]


class ProxmoxSnapshots(ProxmoxDisks):
    """The driver for snapshots of VMs that are there."""

    def __init__(self, runner: Runner, root: str = "", pause: t.Callable[[float], None] = time.sleep) -> None:
        super().__init__(runner, root, pause)
        self.snapshots = self

    def create_snapshot(self, vm: str, name: str) -> None:
        vmid, file = self._before(vm)
        argv = ("qm", "snapshot", str(vmid), name)
        answer = self._qm(argv)
        now = self._file(vmid)
        self._finish(argv, answer, self._not_taken(now, name) or self._lost(file, now))

    def delete_snapshot(self, vm: str, name: str) -> None:
        vmid, file = self._before(vm)
        section = file.snapshots.get(name, {})
        argv = ("qm", "delsnapshot", str(vmid), name, *(("--force", "1") if "snapstate" in section else ()))
        answer = self._qm(argv)
        lacking = f"snapshot {name} is still there" if name in self._file(vmid).snapshots else ""
        parts = [f"{volume}@{name}" for volume in self._volumes(section)]
        left = [part for part in parts if self._exists(part)] if not lacking else []
        if left:
            lacking = (
                f"the VM does not have snapshot {name} any more, but {', '.join(left)} is left; zfs destroy does it"
            )
        self._finish(argv, answer, lacking)

    def roll_back(self, vm: str, name: str, parts: t.Sequence[DatasetId]) -> None:
        try:
            vmid, file = self._before(vm)
        except FlexdiskError as exc:
            raise Unchanged(FlexdiskError(exc.code, f"{exc.message}; it was not rolled back")) from exc
        if self._process(vmid):
            raise Unchanged(FlexdiskError("Changed", f"VM {vmid} runs by now; it was not rolled back"))
        before = self._since(file, name)
        argv = ("qm", "rollback", str(vmid), name)
        answer = self._qm(argv)
        now = self._file(vmid)
        lacking = self._settings_not_back(now, name) or self._volumes_not_back(argv, answer, now, parts)
        untouched = self._is_untouched(file, now, before, self._since(now, name))
        if lacking and answer.rc != 0 and untouched and (now.digest == file.digest or not self._process(vmid)):
            raise Unchanged(pve_qm.failure(argv, answer, "it was not rolled back"))
        self._finish(argv, answer, lacking)

    def _before(self, vm: str) -> t.Tuple[int, VmFile]:
        config, file = self._fresh(vm)
        return config.proxmox["vmid"], file

    def _qm(self, argv: t.Sequence[str]) -> Answer:
        """Return the answer of qm. If it took too long, the task of Proxmox VE that it has begun may go on."""
        try:
            return self._runner(argv, timeout=PATIENCE)
        except FlexdiskError as exc:
            if exc.code != "CommandTimeout":
                raise
            vmid = int(argv[2])
            file = self._file(vmid)
            lock = file.main.values.get("lock", "")
            state = f"VM {vmid} is locked now ({lock})" if lock else f"VM {vmid} is not locked"
            text = f"{exc.message}; {state}, and a task of Proxmox VE may still work on it: wait for the end of that"
            raise FlexdiskError(exc.code, f"{text}{pve_vm.unlocking(vmid, file)}") from exc

    def _finish(self, argv: t.Sequence[str], answer: Answer, lacking: str) -> None:
        """Raise FlexdiskError if something lacks, with the way out if the VM is locked now. Else read the VMs again.

        A lock of something else, such as a backup that has begun since, is no failure of the command.
        """
        vmid = int(argv[2])
        file = self._file(vmid)
        lock = file.main.values.get("lock", "")
        if lacking or lock == _LOCKS[argv[1]]:
            failure = pve_qm.failure(argv, answer, lacking or f"VM {vmid} is locked ({lock})")
            raise FlexdiskError(failure.code, f"{failure.message}{pve_vm.unlocking(vmid, file)}")
        self.vms()

    @staticmethod
    def _lost(before: VmFile, now: VmFile) -> str:
        """Return which lines Proxmox VE has dropped from the file, as a sentence; "" if none."""
        there = pve_vm.settings(now)
        gone = {at: value for at, value in pve_vm.settings(before).items() if at not in there}
        lost = [f"{key}: {value}{where}" for (where, key), value in gone.items()]
        return f"the change was made, but Proxmox VE has dropped {'; '.join(lost)} from the file" if lost else ""

    def _volumes(self, section: t.Mapping[str, str]) -> t.List[str]:
        """Return the datasets of the volumes that a snapshot with these settings has."""
        storages = self._cluster().storages
        keys = sorted(key for key in section if pve_vm.is_snapshotted(key, section))
        return [pve_storage.volume(storages, parse(section[key]).volume).dataset for key in keys]

    def _not_taken(self, file: VmFile, name: str) -> str:
        """Return what a new snapshot lacks, as a sentence; "" if it is whole."""
        section = file.snapshots.get(name)
        if section is None or "snapstate" in section or file.main.values.get("parent") != name:
            return f"there is no whole snapshot {name}"
        missing = [part for part in (f"{volume}@{name}" for volume in self._volumes(section)) if not self._exists(part)]
        return f"snapshot {name} lacks {', '.join(missing)}" if missing else ""

    @staticmethod
    def _settings_not_back(file: VmFile, name: str) -> str:
        """Return which settings of the VM are not as in the snapshot, as a sentence; "" if all are."""
        section, values = file.snapshots.get(name, {}), file.main.values
        if values.get("parent") != name or not any(pve_vm.is_snapshotted(key, section) for key in section):
            return f"the VM is not at snapshot {name}"
        keys = [*pve_vm.differing(section, values), *pve_vm.pending_keys(file)]
        return f"{', '.join(keys)} of the VM is not as in snapshot {name}" if keys else ""

    def _volumes_not_back(
        self, argv: t.Sequence[str], answer: Answer, file: VmFile, parts: t.Sequence[DatasetId]
    ) -> str:
        """Return which volumes are not as in the snapshot, as a sentence; "" if all are.

        Of a VM that runs again by now, what was written is not compared if qm has reported no error: its settings come
        back last.
        """
        vmid, name = int(argv[2]), argv[3]
        volumes = self._volumes(file.snapshots[name])
        figures, unknown = self._figures(volumes)
        if unknown:
            return f"nobody knows whether its disks are as in snapshot {name}: {unknown}"
        guids = {part.name: str(part.guid) for part in parts}
        runs = bool(self._process(vmid))
        any_written = runs and pve_qm.failure(argv, answer, "").code == "NotApplied"
        at = {volume: _is_at(figures, volume, f"{volume}@{name}", guids, any_written) for volume in volumes}
        changed = [volume for volume in volumes if not at[volume]]
        if not changed:
            return ""
        text = f"{', '.join(changed)} is not as in snapshot {name}"
        return f"{text}; VM {vmid} runs by now, and another rollback takes back what it writes, too" if runs else text

    def _since(self, file: VmFile, name: str) -> t.Dict[str, int]:
        """Return the bytes that each volume has written since a snapshot, none if they are not known."""
        volumes = self._volumes(file.snapshots.get(name, {}))
        figures, unknown = self._figures(volumes) if volumes else ({}, "")
        found = (
            {volume: _written_since(figures, volume, f"{volume}@{name}") for volume in volumes} if not unknown else {}
        )
        return {volume: number for volume, number in found.items() if number is not None}

    @staticmethod
    def _is_untouched(file: VmFile, now: VmFile, before: t.Mapping[str, int], after: t.Mapping[str, int]) -> bool:
        """Return whether a rollback that was refused has begun with no volume, whatever else has changed the file.

        Then each volume has written as much since the snapshot as before, at least. If that is not known, the file must
        be the same.
        """
        if now.main.values.get("lock") == _LOCKS["rollback"]:
            return False
        known = bool(before) and before.keys() == after.keys()
        return (known or now.digest == file.digest) and all(after[one] >= before[one] for one in before if one in after)

    def _figures(self, volumes: t.Sequence[str]) -> t.Tuple[_Figures, str]:
        """Return properties of volumes and their snapshots by name, and why they are not known."""
        wanted = ("guid", "createtxg", "written", "volsize")
        argv = ("zfs", "get", "-Hpr", "-t", "volume,snapshot", "-o", "name,property,value", ",".join(wanted), *volumes)
        answer = self._runner(argv)
        figures: _Figures = {}
        for row in (line.split("\t") for line in answer.stdout.splitlines()):
            if len(row) == 3:
                figures.setdefault(row[0], {})[row[1]] = row[2]
        whole = all(len(figures.get(volume, ())) == len(wanted) for volume in volumes)
        return figures, "" if answer.rc == 0 and whole else answer.stderr.strip() or "zfs has not printed all of them"


def _is_at(figures: _Figures, volume: str, part: str, guids: t.Mapping[str, str], any_written: bool) -> bool:
    """Return whether a volume is as in its snapshot: the one of the plan, the newest, and nothing written since.

    any_written: what was written is not compared.
    """
    then, now = figures.get(part, {}), figures[volume]
    if not then or then["guid"] != guids.get(part) or _newer(figures, volume, part):
        return False
    return (any_written or int(now["written"]) in _UNWRITTEN) and now["volsize"] == then["volsize"]


def _newer(figures: _Figures, volume: str, part: str) -> t.List[t.Dict[str, str]]:
    """Return the figures of the snapshots of a volume that are newer than this one."""
    others = [values for name, values in figures.items() if name.startswith(f"{volume}@") and name != part]
    return [values for values in others if int(values["createtxg"]) > int(figures[part]["createtxg"])]


def _written_since(figures: _Figures, volume: str, part: str) -> t.Optional[int]:
    """Return the bytes that a volume and its newer snapshots have written since this one, None without it."""
    if part not in figures:
        return None
    return sum(int(values["written"]) for values in (figures[volume], *_newer(figures, volume, part)))
