# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for SmartOS: bhyve VMs through vmadm.

vmadm ignores unknown keys, with exit code 0. It crashes on some payloads. It may report a time-out (vminfod) although
the change was made. So every payload is built from validated values, makes one kind of change, and is verified by
reading it back.
"""

from __future__ import annotations

import json
import time
import typing as t

from ..model.capabilities import Capabilities
from ..model.command import Answer, Runner
from ..model.dataset import RAW_ZVOL, Dataset
from ..model.errors import FlexdiskError
from ..model.resources import Resources
from ..model.sizes import MIB
from ..model.vm import DiskConfig, VmConfig
from . import sysinfo_read, vmadm_read
from .protocol import WholeVms

PATIENCE = 600
GIB = 1024 * MIB
_LIVE = frozenset((
    "normalise", "law", "flexible", "quota", "compression", "identity", "park", "destroy_parked", "unguard",
    "snapshot", "delete_snapshot", "properties", "convert", "retire",
))  # fmt: skip


class VmadmDisks:
    """The driver for VMs that are there. vmadm writes all its text to stderr, and its exit code 0 proves nothing."""

    capabilities = Capabilities(
        name="vmadm",
        brand="bhyve",
        live=_LIVE,
        models=("virtio", "ahci", "nvme"),
        quota_unit=GIB,
        device_prefix=RAW_ZVOL,
        functions_per_slot=8,
        usual_quota=10 * GIB,
        default_pool="zones",
        new_vm_options=frozenset(("options", "customer_metadata")),
    )

    def __init__(self, runner: Runner, pause: t.Callable[[float], None] = time.sleep) -> None:
        self._runner = runner
        self.pause = pause
        self.storage = self
        self.resizing = self
        self.records = None
        self.waiting = None
        self.guests = None
        self.snapshots = None
        self.vms_as_a_whole: t.Optional[WholeVms] = None

    def _vmadm(self, *argv: str, stdin: str = "", timeout: float = PATIENCE) -> Answer:
        return self._runner(("vmadm", *argv), stdin=stdin, timeout=timeout)

    def _checked(self, *argv: str, timeout: float = PATIENCE) -> str:
        answer = self._vmadm(*argv, timeout=timeout)
        if answer.rc != 0:
            raise vmadm_read.classify(("vmadm", *argv), answer.rc, answer.stderr)
        return answer.stdout

    def _confirmed(self, *argv: str, stdin: str = "") -> Answer:
        """Return the answer of a command whose effect the caller verifies. A time-out of vminfod is no failure."""
        answer = self._vmadm(*argv, stdin=stdin)
        if answer.rc != 0 and not vmadm_read.VMINFOD_TIMEOUT.search(answer.stderr):
            raise vmadm_read.classify(("vmadm", *argv), answer.rc, answer.stderr)
        return answer

    def vms(self) -> t.List[VmConfig]:
        return vmadm_read.parse_lookup(self._checked("lookup", "-j"))

    def vm(self, vm: str) -> VmConfig:
        return vmadm_read.parse_vm(vmadm_read.parse_json(self._checked("get", vm)))

    def resources(self) -> Resources:
        sysinfo = self._checked_of(("sysinfo",))
        return sysinfo_read.parse_resources(sysinfo, self._checked_of(("kstat", "-p", sysinfo_read.FREE_PAGES)))

    def boot_id(self) -> str:
        answer = self._runner(("kstat", "-p", *sysinfo_read.BOOT))
        return sysinfo_read.parse_boot(answer.stdout) if answer.rc == 0 else ""

    def _update(
        self, vm: str, payload: t.Mapping[str, t.Any], proof: t.Callable[[VmConfig], bool], change: str
    ) -> None:
        """Make one update and verify it. After a time-out of vminfod, only reading the VM back shows the outcome."""
        answer = self._confirmed("update", vm, stdin=json.dumps(payload))
        if not proof(self.vm(vm)):
            raise FlexdiskError("NotApplied", f"{change} has not taken effect (rc {answer.rc} of: vmadm update {vm})")

    def resize_disk(self, vm: str, path: str, size: int, planned: t.Optional[Dataset] = None) -> None:
        entry: t.Dict[str, t.Any] = {"path": path, "size": size}
        if planned is not None:
            entry["dangerous_allow_shrink"] = True
        # Sizes that vmadm reports can be stale, so the engine reads the volume itself.
        self._update(vm, {"update_disks": [entry]}, lambda seen: _disk(seen, path) is not None, f"disk {path}")

    def announce_size(self, vm: str, path: str, size: int, shrink: bool) -> None:
        """Do nothing: vmadm tells the guest when it resizes the disk."""

    def set_flexible(self, vm: str, size: int) -> None:
        self._update(
            vm,
            {"flexible_disk_size": size},
            lambda seen: seen.flexible_disk_size == size,
            f"flexible_disk_size {size}",
        )

    def set_quota(self, vm: str, quota: int) -> None:
        # vmadm reports refquota, but the engine reads it from ZFS anyway.
        self._update(vm, {"quota": quota // GIB}, lambda seen: True, "quota")

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Change several disks in one update, so that two disks can swap their slots."""

        def proof(seen: VmConfig) -> bool:
            for entry in entries:
                disk = _disk(seen, entry["path"])
                if disk is None or any(getattr(disk, key) != value for key, value in entry.items()):
                    return False
            return True

        self._update(vm, {"update_disks": [dict(e) for e in entries]}, proof, f"update_disks {list(entries)}")

    def set_compression(self, vm: str, path: str, compression: str) -> None:
        entry = {"path": path, "compression": compression}
        self._update(vm, {"update_disks": [entry]}, lambda seen: _disk(seen, path) is not None, f"disk {path}")

    def create_snapshot(self, vm: str, name: str) -> None:
        self._checked("create-snapshot", vm, name)

    def delete_snapshot(self, vm: str, name: str) -> None:
        self._checked("delete-snapshot", vm, name)

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        options = vmadm_read.decode_options(disk.get("element", ""))
        known = {key: value for key, value in disk.items() if key not in ("element", "without")}
        entry = dict(known, nocreate=True, media="disk", **options)
        if "image_uuid" in entry and not self._installed(entry["image_uuid"]):
            # vmadm refuses an image that imgadm does not know any more. The clone still shows its origin.
            del entry["image_uuid"], entry["image_size"]
        payload: t.Dict[str, t.Any] = {"add_disks": [entry]}
        if "image_uuid" in entry and not entry.get("boot"):
            # Otherwise vmadm gives the VM the bootrom of this image, though the VM does not boot from it.
            payload["bootrom"] = self.vm(vm).bootrom
        self._update(
            vm,
            payload,
            lambda seen: _is_attached(_disk(seen, disk["path"]), disk["uuid"], vmadm_read.encode_options(options)),
            f"disk {disk['path']}",
        )

    def _installed(self, image: str) -> bool:
        argv = ("imgadm", "get", image)
        answer = self._runner(argv)
        if answer.rc != 0 and "ImageNotInstalled" not in answer.stderr:
            raise vmadm_read.classify(argv, answer.rc, answer.stderr)
        return answer.rc == 0

    def forget_disk(self, vm: str, path: str) -> None:
        self._update(vm, {"remove_disks": [path]}, lambda seen: _disk(seen, path) is None, f"the removal of {path}")

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        """Stop the VM. vmadm halts a guest at its time-out, with exit 0; without force, that one lies beyond ours."""
        try:
            self._checked(
                "stop",
                vm,
                "-t",
                str(timeout if force else timeout + PATIENCE),
                timeout=timeout + PATIENCE if force else timeout,
            )
        except FlexdiskError as exc:
            if exc.code != "CommandTimeout":
                raise
            raise FlexdiskError(
                "VmNotStopped",
                f"the guest did not shut down within stop_timeout={timeout} s and is still running; "
                "allow_force_stop: true halts it",
            ) from exc
        state = self.vm(vm).state
        if state != "stopped":
            raise FlexdiskError("VmNotStopped", f"the VM is {state} after vmadm stop")

    def start(self, vm: str, saved: bool = False) -> None:
        del saved  # bhyve saves no memory
        self._confirmed("start", vm)
        state = self.vm(vm).state
        if state != "running":
            raise FlexdiskError(
                "VmNotStarted", f"the VM is {state} after vmadm start; see its logs/platform.log below the zone"
            )

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        self._update(vm, {"autoboot": autoboot}, lambda seen: seen.autoboot == autoboot, f"autoboot {autoboot}")

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        raise FlexdiskError("NotSupported", "VMs of SmartOS have no root ports")

    def set_indestructible(self, vm: str, protected: bool) -> None:
        self._update(
            vm,
            {"indestructible_zoneroot": protected},
            lambda seen: seen.indestructible == protected,
            f"indestructible_zoneroot {protected}",
        )

    def _checked_of(self, argv: t.Tuple[str, ...]) -> str:
        answer = self._runner(argv)
        if answer.rc != 0:
            raise vmadm_read.classify(argv, answer.rc, answer.stderr)
        return answer.stdout


def _is_attached(disk: t.Optional[DiskConfig], uuid: str, element: str) -> bool:
    return disk is not None and (disk.uuid, disk.element.text) == (uuid, element)


def _disk(vm: VmConfig, path: str) -> t.Optional[DiskConfig]:
    return next((disk for disk in vm.disks if disk.path == path), None)
