# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may be said in a payload: type, bounds, and for which brand and action each property is allowed."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, NamedTuple, Optional

EVERY = ("bhyve", "joyent", "joyent-minimal", "builder", "kvm", "lx")
OS = ("joyent", "joyent-minimal", "builder", "lx")
HVM = ("bhyve", "kvm")
NO_DEFAULT = object()

TYPES = {"bhyve": "BHYVE", "kvm": "KVM", "lx": "LX", "joyent": "OS", "joyent-minimal": "OS", "builder": "OS"}
DISK_MODELS = {"bhyve": ("virtio", "ahci", "nvme"), "kvm": ("virtio", "scsi", "ide")}
MEMORY_OVERHEAD = {"bhyve": 1280, "kvm": 1024}
MIN_MEMORY_OVERHEAD = {"bhyve": 256, "kvm": 256}
HVM_LIMIT_PRIV = ("default", "-file_link_any", "-net_access", "-proc_fork", "-proc_info", "-proc_session")
ZONEROOT_IMAGES = {"lx": ("docker", "lx-dataset")}
REQUIRED = {"brand": ("joyent", "joyent-minimal", "builder", "kvm", "lx"), "image_uuid": OS, "kernel_version": ("lx",)}
COMPRESSIONS = ("on", "off", "gzip", *("gzip-%d" % level for level in range(1, 10)), "lz4", "lzjb", "zle")
BOOTROMS = ("bios", "uefi")
UPDATABLE_DISK_PROPERTIES = ("boot", "guest_block_size", "model", "notrim", "pci_slot", "uuid")
KEEP_ZERO = ("tmpfs",)


class Property(NamedTuple):
    """kind: the type's name; actions: create and update for a VM's property, add and update for a disk's."""

    kind: str
    brands: FrozenSet[str]
    actions: FrozenSet[str]
    minimum: Optional[int] = None
    maximum: Optional[int] = None
    default: Any = NO_DEFAULT
    check_as: Optional[str] = None


PROPERTIES: Dict[str, Property] = {}


def _define(names: str, kind: str, brands: Iterable[str], actions: str, **more: Any) -> None:
    for name in names.split():
        PROPERTIES[name] = Property(kind, frozenset(brands), frozenset(actions.split()), **more)


def _define_vm_properties() -> None:
    both = "create update"
    _define("alias billing_id hostname owner_uuid", "string", EVERY, both)
    _define("zfs_root_compression", "string", EVERY, both, default="off")
    _define("autoboot", "boolean", EVERY, both)
    _define(
        "archive_on_delete do_not_inventory firewall_enabled indestructible_delegated indestructible_zoneroot",
        "boolean",
        EVERY,
        both,
        default=False,
    )
    _define(
        "cpu_cap cpu_shares max_locked_memory max_lwps max_msg_ids max_physical_memory max_sem_ids max_shm_ids"
        " max_shm_memory quota ram zfs_io_priority",
        "integer",
        EVERY,
        both,
        minimum=0,
    )
    _define("max_swap", "integer", EVERY, both, minimum=256)
    _define("zfs_filesystem_limit zfs_snapshot_limit", "integer", EVERY, both, minimum=0, default="none")
    _define("zfs_root_recsize", "integer", EVERY, both, minimum=0, default=131072)
    _define("internal_metadata_namespaces limit_priv resolvers", "list", EVERY, both)
    _define("brand zonename", "string", EVERY, "create")
    _define("image_uuid uuid", "uuid", EVERY, "create")
    _define("zpool", "zpool", EVERY, "create")
    _define("zfs_storage_pool_name", "zpool", (*OS, "kvm"), "create")
    _define("customer_metadata internal_metadata routes tags", "flat-object", EVERY, "create")
    _define("set_customer_metadata set_internal_metadata set_routes set_tags", "flat-object", EVERY, "update")
    _define(
        "remove_customer_metadata remove_filesystems remove_internal_metadata remove_nics remove_routes remove_tags",
        "list",
        EVERY,
        "update",
    )
    _define("nics", "object-array", EVERY, "create")
    _define("add_nics update_nics", "object-array", EVERY, "update", check_as="nics")


def _define_brand_properties() -> None:
    both = "create update"
    _define("bhyve_extra_opts bootrom com1 com2", "string", ("bhyve",), both)
    _define("flexible_disk_size", "integer", ("bhyve",), both, minimum=0)
    _define("pci_devices", "object-array", ("bhyve",), both)
    _define("add_pci_devices", "object-array", ("bhyve",), both, check_as="pci_devices")
    _define("update_pci_devices", "object-array", ("bhyve",), "update", check_as="pci_devices")
    _define("remove_pci_devices", "list", ("bhyve",), "update")
    _define("boot disk_driver nic_driver vnc_password", "string", HVM, both)
    _define("vcpus", "integer", HVM, both, minimum=1)
    _define("vnc_port", "integer", HVM, both, minimum=-1)
    _define("zone_dataset_uuid", "uuid", HVM, "create")
    _define("disks", "object-array", HVM, "create")
    _define("add_disks update_disks", "object-array", HVM, "update", check_as="disks")
    _define("remove_disks", "list", HVM, "update")
    _define("cpu_type qemu_extra_opts qemu_opts spice_opts spice_password vga", "string", ("kvm",), both)
    _define("spice_port", "integer", ("kvm",), both, minimum=-1)
    _define("virtio_txburst virtio_txtimer", "integer", ("kvm",), both, minimum=0)
    _define("dns_domain init_name", "string", OS, both)
    _define("package_name package_version", "string", (*OS, "kvm"), both)
    _define("zfs_data_compression", "string", OS, both, default="off")
    _define("kernel_version", "string", ("lx",), both)
    _define("fs_allowed", "list", OS, both)
    _define("maintain_resolvers", "boolean", OS, both, default=False)
    _define("restart_init", "boolean", OS, both, default=True)
    _define("docker", "boolean", ("joyent-minimal", "lx"), both, default=False)
    _define("tmpfs zfs_data_recsize zlog_max_size", "integer", OS, both, minimum=0)
    _define("mdata_exec_timeout", "integer", OS, "create", minimum=0)
    _define("delegate_dataset nowait", "boolean", OS, "create")
    _define("dataset_uuid", "uuid", OS, "create")
    _define("filesystems", "object-array", OS, "create")
    _define("add_filesystems update_filesystems", "object-array", (*OS, "kvm"), "update", check_as="filesystems")


def _star(prefix: str, names: str) -> str:
    return " ".join("%s.*.%s" % (prefix, name) for name in names.split())


def _define_list_properties() -> None:
    _define(_star("disks", "block_size image_size"), "integer", HVM, "add", minimum=0)
    _define(_star("disks", "size"), "integer", HVM, "add update", minimum=0)
    _define(_star("disks", "refreservation"), "integer", HVM, "add update", minimum=0)
    _define(_star("disks", "boot"), "boolean", HVM, "add update")
    _define(_star("disks", "compression media model path"), "string", HVM, "add update")
    _define(_star("disks", "dangerous_allow_shrink"), "boolean", ("bhyve",), "update")
    _define(_star("disks", "guest_block_size pci_slot"), "string", ("bhyve",), "add update")
    _define(_star("disks", "notrim"), "boolean", ("bhyve",), "add update")
    _define(_star("disks", "uuid"), "uuid", ("bhyve",), "add update")
    _define(_star("disks", "image_name"), "string", ("kvm",), "add update")
    _define(_star("disks", "image_uuid"), "uuid", HVM, "add")
    _define(_star("disks", "nocreate"), "boolean", HVM, "add")
    _define(_star("disks", "zpool"), "string", HVM, "add")
    _define(_star("pci_devices", "path pci_slot"), "string", ("bhyve",), "add update")
    _define(
        _star(
            "nics",
            "allow_dhcp_spoofing allow_ip_spoofing allow_mac_spoofing allow_restricted_traffic dhcp_server primary",
        ),
        "boolean",
        EVERY,
        "add update",
        default=False,
    )
    _define(_star("nics", "allow_unfiltered_promisc"), "boolean", HVM, "add update", default=False)
    _define(_star("nics", "model"), "string", HVM, "add update")
    _define(_star("nics", "gateway interface ip mac netmask nic_tag vrrp_primary_ip"), "string", EVERY, "add update")
    _define(_star("nics", "allowed_ips blocked_outgoing_ports gateways ips"), "list", EVERY, "add update")
    _define(_star("nics", "network_uuid"), "uuid", EVERY, "add update")
    _define(_star("nics", "mtu"), "integer", EVERY, "add update", minimum=576, maximum=9000)
    _define(_star("nics", "vlan_id"), "integer", EVERY, "add update", minimum=0, maximum=4095)
    _define(_star("nics", "vrrp_vrid"), "integer", EVERY, "add update", minimum=0, maximum=255)
    _define(_star("filesystems", "raw source target type"), "string", OS, "add update")
    _define(_star("filesystems", "options"), "list", OS, "add update")


_define_vm_properties()
_define_brand_properties()
_define_list_properties()
# The size of a disk can be updated for bhyve alone.
SIZE_UPDATE_BRANDS = ("bhyve",)


def allowed(name: str, brand: str, action: str) -> bool:
    """Return whether `name` is allowed for this brand and action. Other properties are dropped silently."""
    found = PROPERTIES.get(name)
    if found is None or brand not in found.brands or action not in found.actions:
        return False
    return not (name == "disks.*.size" and action == "update" and brand not in SIZE_UPDATE_BRANDS)
