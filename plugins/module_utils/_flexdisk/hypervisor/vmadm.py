# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""SmartOS: VMs are zones, and vmadm manages them. This driver also makes, changes, deletes and moves them."""

from __future__ import annotations

import json
import time
import typing as t

from ..model.command import Runner
from ..model.desired import Description, ImageFile, NewVm
from ..model.errors import FlexdiskError
from ..model.vm import VmConfig
from ..rules.layout import vm_dataset
from ..rules.slots import smartos
from . import vmadm_incoming, vmadm_read
from .protocol import GuestMemory
from .vmadm_disks import GIB, VmadmDisks

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


class Vmadm(VmadmDisks):
    """The whole driver for vmadm."""

    def __init__(self, runner: Runner, pause: t.Callable[[float], None] = time.sleep) -> None:
        super().__init__(runner, pause)
        self.vms_as_a_whole = self
        self.guest_memory: t.Optional[GuestMemory] = None

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
        """Return the network tags that the host lacks. None if it does not report them; vmadm refuses the VM then."""
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


def _new_disk(disk: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return the entry of a disk that vmadm creates. vmadm chooses the path, with the lowest free number in turn."""
    keys = ("size", "model", "boot", "pci_slot", "uuid", "image_uuid", "block_size", "compression")
    return dict({key: disk[key] for key in keys if disk.get(key) not in (None, "")}, media="disk")
