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
from ..model.dataset import RAW_ZVOL
from ..model.desired import Description, NewVm
from ..model.errors import FlexdiskError
from ..model.resources import Resources
from ..model.sizes import MIB
from ..model.vm import DiskConfig, VmConfig
from ..rules.layout import vm_dataset
from ..rules.slots import smartos
from . import sysinfo_read, vmadm_incoming, vmadm_read
from .images import ImageFile

PATIENCE = 600
GIB = 1024 * MIB
NOCLOUD = (16, 512)  # size in MiB and block size in bytes of the disk with cloud-init's data
NOCLOUD_HASH = "cloudinit_nocloud_hash"  # vmadm fills that disk at the start of the VM, unless this is right
DATASOURCE = "org.smartos:cloudinit_datasource"
_OURS = frozenset((
    "uuid", "zonename", "alias", "brand", "zpool", "image_uuid", "ram", "vcpus", "quota", "autoboot", "disks",
    "add_disks", "flexible_disk_size", "indestructible_zoneroot", "customer_metadata",
))  # fmt: skip
# Other options of vmadm create for bhyve, as in the simulated node's table. vmadm ignores all others silently.
_OPTIONS = frozenset((
    "add_pci_devices", "archive_on_delete", "bhyve_extra_opts", "billing_id", "boot", "bootrom", "com1", "com2",
    "cpu_cap", "cpu_shares", "disk_driver", "do_not_inventory", "firewall_enabled", "hostname",
    "indestructible_delegated", "internal_metadata", "internal_metadata_namespaces", "limit_priv",
    "max_locked_memory", "max_lwps", "max_msg_ids", "max_physical_memory", "max_sem_ids", "max_shm_ids",
    "max_shm_memory", "max_swap", "nic_driver", "nics", "owner_uuid", "pci_devices", "resolvers", "routes", "tags",
    "vnc_password", "vnc_port", "zfs_filesystem_limit", "zfs_io_priority", "zfs_root_compression",
    "zfs_root_recsize", "zfs_snapshot_limit", "zone_dataset_uuid",
))  # fmt: skip
_LIVE = frozenset((
    "normalise", "law", "flexible", "quota", "compression", "identity", "park", "destroy_parked", "unguard",
    "snapshot", "delete_snapshot", "properties", "convert", "retire",
))  # fmt: skip


class Vmadm:
    """The driver for vmadm. vmadm writes all its text to stderr, and its exit code 0 proves nothing."""

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

    def _vmadm(self, *argv: str, stdin: str = "", timeout: float = PATIENCE) -> Answer:
        return self._runner(("vmadm", *argv), stdin=stdin, timeout=timeout)

    def _checked(self, *argv: str, stdin: str = "", timeout: float = PATIENCE) -> str:
        answer = self._vmadm(*argv, stdin=stdin, timeout=timeout)
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
        """Make one update and verify it. After a time-out of vminfod, only the VM as it is read back shows whether it
        was made.
        """
        answer = self._confirmed("update", vm, stdin=json.dumps(payload))
        if not proof(self.vm(vm)):
            raise FlexdiskError("NotApplied", f"{change} has not taken effect (rc {answer.rc} of: vmadm update {vm})")

    def resize_disk(self, vm: str, path: str, size: int, shrink: bool) -> None:
        entry: t.Dict[str, t.Any] = {"path": path, "size": size}
        if shrink:
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
        """Stop the VM. vmadm halts a guest at its own time-out, with exit 0; without force, that time-out is set beyond
        ours.
        """
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

    def start(self, vm: str) -> None:
        self._confirmed("start", vm)
        state = self.vm(vm).state
        if state != "running":
            raise FlexdiskError(
                "VmNotStarted", f"the VM is {state} after vmadm start; see its logs/platform.log below the zone"
            )

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        self._update(vm, {"autoboot": autoboot}, lambda seen: seen.autoboot == autoboot, f"autoboot {autoboot}")

    # -- whole VMs

    def draft(self, new: NewVm) -> VmConfig:
        ours = sorted({*new.options} & _OURS)
        if ours:
            raise FlexdiskError("InvalidArgument", f"options cannot set {', '.join(ours)}: the module sets that itself")
        unknown = sorted(map(str, {*new.options} - _OPTIONS))
        if unknown:
            text = (
                f"options: vmadm create does not know {', '.join(unknown)} for a bhyve VM; it knows: "
                f"{', '.join(sorted(_OPTIONS))}"
            )
            raise FlexdiskError("InvalidArgument", text)
        return VmConfig(
            uuid=new.uuid,
            alias=new.alias,
            brand=self.capabilities.brand,
            state="stopped",
            autoboot=False,
            pool=new.pool,
            dataset=vm_dataset(new.pool, new.uuid),
            flexible_disk_size=new.flexible_disk_size,
            pci=smartos(vmadm_read.passed_through(new.options)),
            memory=new.memory,
            vcpus=new.vcpus,
        )

    def hidden_disks(self, image: str) -> t.List[t.Tuple[int, int]]:
        argv = ("imgadm", "get", image)
        manifest = vmadm_read.parse_manifest(self._checked_of(argv))
        return [NOCLOUD] if manifest.get("tags", {}).get(DATASOURCE) == "nocloud" else []

    def image_file(self, path: str) -> ImageFile:
        raise FlexdiskError(
            "InvalidArgument", "image_file works only with libvirt; on SmartOS, import the image with imgadm"
        )

    def import_image(self, image: ImageFile, volume: str) -> None:
        self.image_file(image.path)

    def _checked_of(self, argv: t.Tuple[str, ...]) -> str:
        answer = self._runner(argv)
        if answer.rc != 0:
            raise vmadm_read.classify(argv, answer.rc, answer.stderr)
        return answer.stdout

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        raise FlexdiskError("NotSupported", "VMs of SmartOS have no root ports")

    def create_vm(
        self, new: NewVm, disks: t.Sequence[t.Mapping[str, t.Any]], protected: bool, ports: t.Sequence[int]
    ) -> None:
        payload: t.Dict[str, t.Any] = {
            **new.options,
            "uuid": new.uuid,
            "alias": new.alias,
            "brand": self.capabilities.brand,
            "zpool": new.pool,
            "ram": new.memory,
            "vcpus": new.vcpus,
            "quota": new.quota // GIB,
            "autoboot": False,
            "disks": [_new_disk(disk) for disk in disks],
        }
        if new.flexible_disk_size is not None:
            payload["flexible_disk_size"] = new.flexible_disk_size
        if new.metadata:
            payload["customer_metadata"] = dict(new.metadata)
        if protected:
            payload["indestructible_zoneroot"] = True
        answer = self._confirmed("create", stdin=json.dumps(payload))
        state = self.vm(new.uuid).state
        if state != "stopped":
            text = f" (rc {answer.rc}: {answer.stderr.strip()})" if answer.rc else ""
            raise FlexdiskError(
                "NotApplied", f"the VM is {state} after vmadm create{text}; the same task makes it anew"
            )

    def description(self, vm: str) -> Description:
        raw = vmadm_read.parse_json(self._checked("get", vm))
        options = {key: raw[key] for key in sorted(_OPTIONS & raw.keys()) if raw[key] not in (None, [], {}, "")}
        if NOCLOUD_HASH in options.get("internal_metadata", {}):
            metadata = {key: value for key, value in options["internal_metadata"].items() if key != NOCLOUD_HASH}
            options["internal_metadata"] = metadata
        stays = ("PCI devices of this host",) if raw.get("pci_devices") else ()
        known = {disk.path: disk.element.text for disk in vmadm_read.parse_vm(raw).disks if disk.element.text}
        return Description(options, raw.get("customer_metadata") or {}, disks=known, host_bound=stays)

    def refuses(
        self, description: t.Mapping[str, t.Any], disks: t.Sequence[str], allowed: t.Collection[str]
    ) -> t.List[str]:
        return vmadm_incoming.refused(description["options"], _OPTIONS, allowed)

    def lacks(self, vm: str, description: t.Mapping[str, t.Any], disks: t.Sequence[str]) -> t.List[str]:
        try:
            for element in disks:
                vmadm_read.decode_options(element)
        except FlexdiskError:
            return ["options of disks that are not known"]
        macs = vmadm_read.macs(description["options"])
        if not macs:
            return []
        taken = vmadm_read.taken_macs(self._checked("lookup", "-j"), vm)
        missing = [f"the MAC address {mac}, which {taken[mac]} has" for mac in sorted(macs & taken.keys())]
        tags = vmadm_read.nic_tags(description["options"])
        return missing + [f"the network tag {tag}" for tag in (self._missing_tags(tags) if tags else ())]

    def _missing_tags(self, tags: t.Sequence[str]) -> t.List[str]:
        """Return the network tags that the host does not have. None if it does not report them; vmadm itself refuses
        the VM then.
        """
        try:
            answer = self._runner(("nictagadm", "exists", "-l", *tags))
        except FlexdiskError:
            return []
        missing = answer.stderr.split("\n") if answer.rc == 1 else []
        return [tag for tag in tags if tag in missing]

    def restore_variables(self, description: t.Mapping[str, t.Any]) -> None:
        """Do nothing: bhyve stores none outside of the VM's own dataset."""

    def dress(self, vm: str, disks: t.Mapping[str, str]) -> None:
        entries = [{"path": path, **vmadm_read.decode_options(text)} for path, text in disks.items()]
        if entries:
            done = {path: vmadm_read.encode_options(vmadm_read.decode_options(text)) for path, text in disks.items()}

            def proof(seen: VmConfig) -> bool:
                return all(d.element.text == done.get(d.path, d.element.text) for d in seen.disks)

            self._update(vm, {"update_disks": entries}, proof, "what the disks had beside their sizes")

    def delete_vm(self, vm: str) -> None:
        """Delete the VM. If vmadm ends early because vminfod does not answer, it continues when it is run again."""
        for _attempt in range(2):
            answer = self._confirmed("delete", vm)
            left = [config for config in self.vms() if config.uuid == vm]
            if not left:
                return
            if answer.rc == 0:
                break
        text = f" (rc {answer.rc}: {answer.stderr.strip()})" if answer.rc else ""
        raise FlexdiskError("NotApplied", f"the VM still exists after vmadm delete, and is {left[0].state}{text}")

    def set_machine(self, vm: str, changes: t.Mapping[str, int]) -> None:
        names = {"memory": "ram", "vcpus": "vcpus"}
        self._update(
            vm,
            {names[key]: value for key, value in changes.items()},
            lambda seen: all(getattr(seen, key) == value for key, value in changes.items()),
            ", ".join("%s %d" % change for change in sorted(changes.items())),
        )

    def set_indestructible(self, vm: str, protected: bool) -> None:
        self._update(
            vm,
            {"indestructible_zoneroot": protected},
            lambda seen: seen.indestructible == protected,
            f"indestructible_zoneroot {protected}",
        )


def _new_disk(disk: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return the entry of a disk that vmadm creates. vmadm chooses the path, with the lowest free number in turn."""
    keys = ("size", "model", "boot", "pci_slot", "uuid", "image_uuid", "block_size", "compression")
    return dict({key: disk[key] for key in keys if disk.get(key) not in (None, "")}, media="disk")


def _is_attached(disk: t.Optional[DiskConfig], uuid: str, element: str) -> bool:
    return disk is not None and (disk.uuid, disk.element.text) == (uuid, element)


def _disk(vm: VmConfig, path: str) -> t.Optional[DiskConfig]:
    return next((disk for disk in vm.disks if disk.path == path), None)
