# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for Proxmox VE that changes disks of VMs, by qm.

Each change is one command with the digest of the file that was read. Then the file, the volume and a running QEMU are
read again, whatever the exit status was.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t
from dataclasses import replace

from ..model.command import Runner
from ..model.dataset import ZVOL, Dataset
from ..model.errors import FlexdiskError
from ..model.sizes import MIB, render_apart
from ..model.text import visible
from ..model.vm import GuestDisk, VmConfig, VmRecord
from ..rules import vm_record
from ..rules.identity import serial_of
from ..rules.layout import within
from ..rules.usage import uses
from . import pve_disk, pve_lock, pve_monitor, pve_qm, pve_storage, pve_vm, whole_files
from .pve_config import VmFile
from .pve_vms import ProxmoxVms

PATIENCE = 600  # seconds; a volume whose device does not come takes five minutes
_NOT_BEGUN = ("Changed", "InUse", "Busy", "ReadOnly")  # qm looks for these before it writes anything
_LEAVING = frozenset(("detach", "park", "destroy", "destroy_parked", "forget"))
_LIVE = (
    frozenset(("identity", "grow", "create", "attach", "compression", "flexible", "give_up", "normalise")) | _LEAVING
)
_ABILITIES = _LIVE | {"copy", "edit uuid", "flexible", "remember", "move in", "shrink", "stop", "start"}
_SCOPE = (
    "on Proxmox VE, this release adds, names, resizes, detaches, attaches and destroys disks, and changes nothing else"
)


class _Place(t.NamedTuple):
    """A disk in the file of its VM, as it was read."""

    vmid: int
    key: str
    disk: pve_disk.PveDisk
    dataset: str
    file: VmFile

    @property
    def label(self) -> str:
        return f"{self.key} of VM {self.vmid}"


class ProxmoxDisks(ProxmoxVms):
    """The driver for disks of VMs that are there. It refuses a change if something else has changed the file."""

    capabilities = replace(ProxmoxVms.capabilities, live=_LIVE, only_read=False, abilities=_ABILITIES, scope=_SCOPE)

    def __init__(self, runner: Runner, root: str = "", pause: t.Callable[[float], None] = time.sleep) -> None:
        super().__init__(root, pause)
        self._runner = runner
        self.resizing = self
        self.records = self
        self.waiting = self
        self.guests = self
        # The VMs as they were read last, by UUID.
        self._seen: t.Dict[str, VmConfig] = {}

    def vms(self) -> t.List[VmConfig]:
        why = self._why_read_only()
        configs = [replace(one, frozen=one.frozen or why) for one in super().vms()]
        self._seen = {config.uuid: config for config in configs}
        return configs

    def _why_read_only(self) -> str:
        """Return why nothing below /etc/pve can be written, "" if it can be."""
        if self._quorate() and os.access(self._root + pve_vm.LOCAL, os.W_OK):
            return ""
        return f"{pve_vm.CLUSTER} is read-only: this node has no quorum (pvecm status), and what it says may be old"

    def _quorate(self) -> bool:
        """Whether the cluster has a quorum; True if pmxcfs does not say, as on a node without a cluster."""
        return not re.search(r'"quorate"\s*:\s*0', self._text(f"{pve_vm.CLUSTER}/.members"))

    def resize_disk(self, vm: str, path: str, size: int, planned: t.Optional[Dataset] = None) -> None:
        """Make a disk larger. qm sets the volume, tells QEMU, and writes the size to the file, in this order."""
        place = self._place(vm, path)
        if planned is not None:
            self._shrink(place, size, planned)
            return
        if self._process(place.vmid):
            self._qemu_size(place)  # if it cannot be asked, nothing is begun
        argv = ("qm", "disk", "resize", str(place.vmid), place.key, f"{size}M", "--digest", place.file.digest)
        answer = self._runner(argv, timeout=PATIENCE)
        lacking = self._not_resized(place, size * MIB) or self._dropped(place)
        if lacking:
            raise pve_qm.failure(argv, answer, lacking)
        self.vms()

    def _shrink(self, place: _Place, size: int, planned: Dataset) -> None:
        """Make a disk of a stopped VM smaller, which qm refuses. Then the file gets the size by writing the disk again.

        While the volume is changed, nothing can start the VM: its guest would write behind the end. If it is not the
        planned one any more, or has another size, more would be cut off than the plan has said.
        """
        argv = ("zfs", "set", f"volsize={size}M", place.dataset)
        with pve_lock.held(self._root, place.vmid, self.pause):
            if self._file(place.vmid).digest != place.file.digest:
                raise FlexdiskError("Changed", f"the file of VM {place.vmid} was changed by something else")
            if self._process(place.vmid):
                raise FlexdiskError("Changed", f"VM {place.vmid} runs by now, and {place.label} cannot become smaller")
            self._check_planned(planned)
            answer = self._runner(argv)
        volume = self._volsize(place.dataset)
        if volume != size * MIB:
            text = "%s has %s, not %s" % (place.dataset, *render_apart(volume, size * MIB))
            raise pve_qm.failure(argv, answer, text)
        self._set(place, place.disk.options)

    def _check_planned(self, planned: Dataset) -> None:
        """Raise FlexdiskError Changed unless a volume is the one that was planned with, and as large."""
        answer = self._runner(("zfs", "get", "-Hpo", "value", "guid,volsize", planned.name))
        guid, volsize = (*answer.stdout.split(), "", "")[:2]
        if answer.rc != 0 or not (guid.isdigit() and volsize.isdigit()):
            raise FlexdiskError("UnexpectedOutput", f"{planned.name} cannot be read: {answer.stderr.strip()}")
        if guid != str(planned.guid):
            raise FlexdiskError("Changed", f"{planned.name} is another volume by now; nothing was cut off")
        if volsize != str(planned.volsize):
            sizes = render_apart(int(volsize), planned.volsize)
            raise FlexdiskError("Changed", "%s has %s by now, not %s; nothing was cut off" % (planned.name, *sizes))

    def _not_resized(self, place: _Place, size: int) -> str:
        """Return what has not the new size, as a sentence; "" if everything has it."""
        volume = self._volsize(place.dataset)
        if volume != size:
            return "%s has %s, not %s" % (place.dataset, *render_apart(volume, size))
        text = f"{place.dataset} has its new size"
        if self._process(place.vmid):
            seen = self._qemu_size(place)
            if seen != size:
                return f"{text}, but {self._old_size(seen)}"
        now = pve_disk.parse(self._file(place.vmid).main.values.get(place.key, place.disk.volume))
        written = now.options.get("size", "")
        if pve_disk.parse_size(written) != size:
            return f"{text}, but the file still says size={written or 'nothing'}; run the task again"
        return ""

    @staticmethod
    def _old_size(seen: int) -> str:
        figures = "QEMU still has %s" % render_apart(seen, seen)[0]
        return (
            f"{figures}, and qm tells it only while a volume grows: the guest has the new size after a stop and a start"
        )

    def announce_size(self, vm: str, path: str, size: int, shrink: bool) -> None:
        """Write down a size that an interrupted run has left out of the file. QEMU cannot be told it any more."""
        place = self._place(vm, path)
        if pve_disk.parse_size(place.disk.options.get("size", "")) != size * MIB:
            self._set(place, place.disk.options)

    def disk_sizes(self, vm: str) -> t.Dict[str, int]:
        config = self._unchanged(vm)
        sizes = self._qemu_sizes(config.proxmox["vmid"])
        return {entry.path: sizes[entry.key] for entry in config.disks if entry.volume and entry.key in sizes}

    def opened(self, vm: str = "") -> t.List[GuestDisk]:
        storages, result = self._cluster().storages, []
        for config in (one for one in self._seen.values() if vm in ("", one.uuid)):
            vmid = config.proxmox.get("vmid", 0)
            for block in self._blocks(vmid) if vmid and self._process(vmid) else ():
                volumes = tuple(one.dataset for one in pve_storage.mentioned(storages, block.text))
                key = next((part for part in block.parts if pve_disk.is_disk_key(part)), "")
                result.append(GuestDisk(config.uuid, config.label, key, volumes))
        return result

    @contextlib.contextmanager
    def unused(self, vm: str, volume: str) -> t.Iterator[None]:
        config = self._seen.get(vm) or self.vm(vm)
        with pve_lock.held(self._root, config.proxmox["vmid"], self.pause):
            users = [one.label for one in super().vms() if volume in uses(one)]
            opened = self.opened() if within(config, volume) else ()
            users += [one.label for one in opened if volume in one.volumes]
            if users:
                raise FlexdiskError("Changed", f"{users[0]} uses {volume} since it was read; nothing was done with it")
            self._unchanged(vm)
            yield

    def write_record(self, vm: str, record: VmRecord) -> None:
        """Replace the record of a VM, or remove one that says nothing. pmxcfs has no modes, and no disk to wait for."""
        path = pve_vm.record_file(vm)
        try:
            if not vm_record.says_something(record):
                os.unlink(self._root + path)
                self.vms()
                return
            os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
            whole_files.replace(self._root + path, vm_record.render(record), mode=None, durable=False)
        except OSError as exc:
            raise FlexdiskError("FileFailed", f"{path} cannot be written: {exc.strerror}") from exc
        self.vms()

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Write the serials that stand for UUIDs, disk by disk. An interrupted run writes the rest."""
        for entry in entries:
            place = self._place(vm, entry["path"])
            self._set(place, {**place.disk.options, "serial": serial_of(entry["uuid"])})

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        """Give a VM a volume of its own name as a disk. qm removes an C(unusedN) with it."""
        config, file = self._fresh(vm)
        vmid, key, dataset = config.proxmox["vmid"], disk["pci_slot"], disk["path"][len(ZVOL) :]
        if key in file.main.values:
            raise FlexdiskError("Changed", f"{key} of VM {vmid} is taken by now")
        if not disk["uuid"]:
            raise FlexdiskError("IdentityMismatch", f"{dataset} has no uuid for the serial of {key} of VM {vmid}")
        place = _Place(vmid, key, pve_disk.PveDisk(self._volume_id(dataset), {}), dataset, file)
        options = pve_disk.options_of(disk.get("element", ""), disk.get("without", ()))
        self._set(place, {**options, "serial": serial_of(disk["uuid"])})

    def forget_disk(self, vm: str, path: str) -> None:
        """Take a disk out of a VM. qm keeps its volume as C(unusedN); call this again when the volume has been renamed.

        qm destroys the volume of an C(unusedN) that it forgets, so that must not be there any more.
        """
        config, file = self._fresh(vm)
        if any(one.path == path and one.volume for one in config.disks):
            self._take_out(self._place(vm, path))
            return
        dataset, storages = path[len(ZVOL) :], self._cluster().storages
        values = file.main.values
        keys = [key for key in values if pve_disk.is_unused_key(key)]
        keys = [key for key in keys if dataset == pve_vm.unused_volume(values[key], storages)]
        if keys:
            self._forget_unused(config.proxmox["vmid"], keys, dataset, file)

    def _take_out(self, place: _Place) -> None:
        running = self._process(place.vmid)
        if running:
            self._qemu_sizes(place.vmid)  # if it cannot be asked, nothing is begun
        argv = ("qm", "set", str(place.vmid), "--delete", place.key, "--digest", place.file.digest)
        answer = self._runner(argv, timeout=PATIENCE)
        lacking = self._not_out(place) or self._dropped(place, [place.key])
        if lacking:
            failure = pve_qm.failure(argv, answer, lacking)
            left = self._put_back(place, failure.code)
            raise FlexdiskError(failure.code, f"{failure.message}{left}{self._lost_by_guest(place, failure.code)}")
        self.vms()

    def _not_out(self, place: _Place) -> str:
        """Return where a disk still is, as a sentence; "" if nothing but an C(unusedN) has it."""
        file = self._file(place.vmid)
        if place.key in file.main.values:
            return f"{place.label} is still there"
        if place.key in pve_vm.pending_keys(file):
            return f"the removal of {place.label} waits for a stop of the VM"
        if self._process(place.vmid) and place.key in self._qemu_sizes(place.vmid):
            return f"the running QEMU still has {place.key}"
        return ""

    def _put_back(self, place: _Place, code: str) -> str:
        """Take back the removal of a disk that waits, if the command has begun it. Return what is left."""
        file = self._file(place.vmid)
        keys = pve_vm.pending_keys(file)
        ours = bool(keys) and pve_vm.leaves(file) == place.key and code not in _NOT_BEGUN
        if keys and not ours:
            return f"; somebody else's change of {', '.join(keys)} waits for a stop of the VM, and stays there"
        return self._reverted(place.vmid, keys) if keys else ""

    def _lost_by_guest(self, place: _Place, code: str) -> str:
        """Return whether the running QEMU has a disk that its guest has not given up, as the end of a text."""
        if code != "GuestHoldsDisk" or place.key not in self._file(place.vmid).main.values:
            return ""
        again = "QEMU lacks it then, until the VM has been stopped and started, or this task has been done"
        with contextlib.suppress(FlexdiskError):
            if self._process(place.vmid) and place.key not in self._qemu_sizes(place.vmid):
                return f"; the guest has lost the disk, which the VM keeps: {again}"
        return f"; the VM keeps the disk. If the guest gives it up later: {again}"

    def _forget_unused(self, vmid: int, keys: t.Sequence[str], dataset: str, file: VmFile) -> None:
        if self._exists(dataset):
            raise FlexdiskError("Changed", f"{dataset} is there again, and qm would destroy it with {', '.join(keys)}")
        argv = ("qm", "set", str(vmid), "--delete", ",".join(keys), "--digest", file.digest)
        answer = self._runner(argv, timeout=PATIENCE)
        left = [key for key in keys if key in self._file(vmid).main.values]
        if left:
            text = f"{', '.join(left)} of VM {vmid} still names {dataset}, which is not there"
            raise pve_qm.failure(argv, answer, text)
        self.vms()

    def _exists(self, dataset: str) -> bool:
        answer = self._runner(("zfs", "list", "-Ho", "name", dataset))
        if answer.rc != 0 and "does not exist" not in answer.stderr:
            raise FlexdiskError("UnexpectedOutput", f"{dataset} cannot be read: {answer.stderr.strip()}")
        return answer.rc == 0

    def _volume_id(self, dataset: str) -> str:
        """Return what Proxmox VE calls a volume. Two storages may have it: one that VMs can use is taken."""
        parent, _slash, name = dataset.rpartition("/")
        cluster = self._cluster()
        active = [one for one in cluster.storages.values() if one.dataset == parent and one.is_active(cluster.node)]
        if not active:
            raise FlexdiskError("Changed", f"no active storage of this node has {parent} any more")
        return f"{min(active, key=lambda one: not one.takes_disks).name}:{name}"

    def _set(self, place: _Place, options: t.Mapping[str, str]) -> None:
        """Give a disk these options, which replace all that it has. qm reads its size from the volume."""
        wanted = pve_disk.PveDisk(place.disk.volume, {key: options[key] for key in options if key != "size"})
        value = pve_disk.render(wanted)
        argv = ("qm", "set", str(place.vmid), f"--{place.key}", value, "--digest", place.file.digest)
        answer = self._runner(argv, timeout=PATIENCE)
        lacking = self._not_set(place, wanted) or self._dropped(place)
        if lacking:
            failure = pve_qm.failure(argv, answer, lacking)
            raise FlexdiskError(failure.code, f"{failure.message}{self._undone(place, wanted, failure.code)}")
        self.vms()

    def _not_set(self, place: _Place, wanted: pve_disk.PveDisk) -> str:
        """Return what differs from the value that the disk should have, as a sentence; "" for nothing."""
        file = self._file(place.vmid)
        now = pve_disk.parse(file.main.values.get(place.key, "none"))
        if now.volume != wanted.volume or pve_disk.but_for(now) != pve_disk.but_for(wanted):
            return f"{place.label} is not as it should be in the file of the VM"
        if place.key in pve_vm.pending_keys(file):
            return f"the change of {place.label} waits for a stop of the VM"
        size = self._volsize(place.dataset)
        if pve_disk.parse_size(now.options.get("size", "")) != size:
            return f"{place.label} has another size="
        if self._process(place.vmid) and place.key not in self._qemu_sizes(place.vmid):
            return f"the running QEMU does not have {place.key}"
        return ""

    def _dropped(self, place: _Place, removed: t.Collection[str] = ()) -> str:
        """Return which lines Proxmox VE has dropped from the file, as a sentence; "" if none. removed: keys that go."""
        before, now = pve_vm.settings(place.file), pve_vm.settings(self._file(place.vmid))
        used = pve_vm.volumes_in_use(place.file) | {place.disk.volume}
        gone = {at: value for at, value in before.items() if at not in now and at[1] != "delete"}
        gone = {at: value for at, value in gone.items() if at not in {("", key) for key in removed}}
        kept = {at: value for at, value in gone.items() if not self._is_unused(at[1], value, used)}
        lost = [f"{key}: {visible(value)}{where}" for (where, key), value in kept.items()]
        return f"the change was made, but Proxmox VE has dropped {'; '.join(lost)} from the file" if lost else ""

    @staticmethod
    def _is_unused(key: str, value: str, used: t.Collection[str]) -> bool:
        """Whether the line names a volume as unused that the VM uses. Proxmox VE removes it."""
        return pve_disk.is_unused_key(key) and pve_disk.parse(value).volume in used

    def _undone(self, place: _Place, wanted: pve_disk.PveDisk, code: str) -> str:
        """Take back what the command has left in the pending changes, which were none before. Return what is left.

        A command that was refused has left nothing, so whatever waits then is somebody else's.
        """
        file = self._file(place.vmid)
        if place.key not in pve_vm.pending_keys(file):
            return ""
        if code in _NOT_BEGUN or not self._waits(file, place.key, wanted):
            return f"; somebody else's change of {place.key} waits for a stop of the VM, and stays there"
        return self._reverted(place.vmid, [place.key])

    @staticmethod
    def _waits(file: VmFile, key: str, wanted: pve_disk.PveDisk) -> bool:
        """Whether the change that waits is exactly this one."""
        try:
            waits = pve_disk.parse(file.pending.get(key, ""))
        except FlexdiskError:
            return False
        same = waits.volume == wanted.volume and pve_disk.but_for(waits) == pve_disk.but_for(wanted)
        return same and key not in file.deletes

    def _reverted(self, vmid: int, keys: t.Sequence[str]) -> str:
        """Take back pending changes, all at once: what is left of them would be made by the way.

        Return what is left of them, as the end of a text.
        """
        file = self._file(vmid)
        argv = ("qm", "set", str(vmid), "--revert", ",".join(keys), "--digest", file.digest)
        if keys:
            self._runner(argv, timeout=PATIENCE)
        left = [key for key in keys if key in pve_vm.pending_keys(self._file(vmid))]
        text = f"; {', '.join(left)} waits for a stop of the VM: qm set {vmid} --revert {','.join(left)} takes it back"
        return text if left else ""

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        """Shut the guest down by qm, which halts it after the timeout if force permits that.

        What waits for the stop of the VM would be made with it. So nothing does: this collection leaves nothing there.
        """
        config, file = self._fresh(vm)
        vmid = config.proxmox["vmid"]
        if config.unstoppable:
            raise FlexdiskError("NotSupported", config.unstoppable)
        halt = ("--forceStop", "1") if force else ()
        argv = ("qm", "shutdown", str(vmid), "--timeout", str(max(timeout, 1)), *halt)
        answer = self._runner(argv, timeout=timeout + PATIENCE)
        if not self._process(vmid):
            if self._file(vmid).digest != file.digest:
                raise FlexdiskError("Changed", f"the file of VM {vmid} was changed by something else while it stopped")
            self.vms()
            return
        if "got timeout" in answer.stderr:
            text = f"the guest did not shut down within stop_timeout={timeout} s and is still running"
            raise FlexdiskError("VmNotStopped", f"{text}; allow_force_stop: true halts it")
        raise pve_qm.failure(argv, answer, f"VM {vmid} is still running")

    def start(self, vm: str, saved: bool = False) -> None:
        """Start the VM. It is no error if it is still running because its guest did not shut down."""
        vmid = self.vm(vm).proxmox["vmid"]
        if self._process(vmid):
            return
        argv = ("qm", "start", str(vmid))
        answer = self._runner(argv, timeout=PATIENCE)
        if not self._process(vmid):
            text = f"VM {vmid} is not running ({visible(answer.stdout.strip())})"
            raise FlexdiskError("VmNotStarted", pve_qm.failure(argv, answer, text).message)
        self.vms()

    def take_back(self, vm: str) -> None:
        config = self._unchanged(vm)
        vmid, keys = config.proxmox["vmid"], [one.key for one in config.waiting if one.volume]
        left = self._reverted(vmid, keys) if len(keys) == len(config.waiting) else f"; {config.why_waiting}"
        if left:
            raise FlexdiskError("Changed", f"VM {vmid} cannot be changed{left}")
        self.vms()

    def _fresh(self, vm: str) -> t.Tuple[VmConfig, VmFile]:
        """Return a VM and its file, which nothing else has changed, and in which nothing waits.

        Raises FlexdiskError Changed.
        """
        config = self._unchanged(vm)
        if config.waiting:
            raise FlexdiskError("Changed", f"{config.why_waiting}; it cannot be changed")
        return config, self._file(config.proxmox["vmid"])

    def _unchanged(self, vm: str) -> VmConfig:
        config = self._seen.get(vm) or self.vm(vm)
        vmid = config.proxmox["vmid"]
        if config.digest != self._file(vmid).digest:
            raise FlexdiskError("Changed", f"the file of VM {vmid} was changed by something else since it was read")
        return config

    def _place(self, vm: str, path: str) -> _Place:
        """Return where a disk is. Raises FlexdiskError Changed if the file has changed since it was read."""
        config, file = self._fresh(vm)
        entry = next((one for one in config.disks if one.path == path and one.volume), None)
        if entry is None:
            raise FlexdiskError("Changed", f"{path} is no disk of VM {config.proxmox['vmid']} any more")
        disk = pve_disk.parse(file.main.values[entry.key])
        return _Place(config.proxmox["vmid"], entry.key, disk, entry.volume, file)

    def _file(self, vmid: int) -> VmFile:
        """Return the file of a VM as it is now, without any repair of its bytes."""
        content = self._bytes(pve_vm.file_of(vmid))
        if content is None:
            raise FlexdiskError("Changed", f"VM {vmid} is not on this node any more")
        return VmFile(content)

    def _volsize(self, dataset: str) -> int:
        """Return the bytes of a volume."""
        argv = ("zfs", "get", "-Hpo", "value", "volsize", dataset)
        answer = self._runner(argv)
        text = answer.stdout.strip()
        if answer.rc != 0 or not text.isdigit():
            raise FlexdiskError("UnexpectedOutput", f"the size of {dataset} cannot be read: {answer.stderr.strip()}")
        return int(text)

    def _qemu_size(self, place: _Place) -> int:
        """Return the bytes of a disk that the running QEMU has. Raises FlexdiskError if it does not say."""
        sizes = self._qemu_sizes(place.vmid)
        if place.key not in sizes:
            raise FlexdiskError("Changed", f"the running QEMU of VM {place.vmid} does not have {place.key}")
        return sizes[place.key]

    def _qemu_sizes(self, vmid: int) -> t.Dict[str, int]:
        return pve_monitor.sizes(self._blocks(vmid))

    def _blocks(self, vmid: int) -> t.List[pve_monitor.Block]:
        return pve_monitor.blocks(f"{self._root}/run/qemu-server/{vmid}.qmp")
