# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a VM of Proxmox VE and its disks from its file. Everything that the file names is listed, managed or not."""

from __future__ import annotations

import contextlib
import itertools
import re
import typing as t
from dataclasses import replace
from urllib.parse import unquote

from ..model.dataset import ZVOL
from ..model.errors import FlexdiskError
from ..model.text import visible
from ..model.vm import SAVED, SPARSE, THICK, DiskConfig, ListedSnapshot, NewDisks, Pci, Use, VmConfig, Waiting
from ..rules import vm_record
from ..rules.identity import is_pool, is_serial, is_uuid, uuid_for
from ..rules.layout import pool_of, sibling_prefix, sibling_prefixes, vm_dataset
from . import pve_disk, pve_storage
from .pve_config import MAIN, PENDING, SNAPSHOT, Section, VmFile

BRAND = "qemu"
CONTAINER_BRAND = "lxc"
CLUSTER = "/etc/pve"
LOCAL = CLUSTER + "/local"
RECORDS = "flexdisk"  # the folder of our own files
_SLOTS = 6  # virtio0 has PCI device 10, and so on. Others are behind bridges, whose numbers the guest chooses.
_FIRST_DEVICE = 10
_HOTPLUG = "network,disk,usb"  # the default
_HOT_SCSI = ("virtio-scsi-pci", "virtio-scsi-single")
_SUSPENDED = "suspended"
# Keys that differ between a VM and each of its snapshots, and that a rollback does not bring back.
_OF_SNAPSHOTS = (
    *("snaptime", "snapstate", "parent", "description", "lock", "digest"),
    *("vmstate", "runningcpu", "runningmachine", "running-nets-host-mtu"),
    "vmgenid",  # a VM that goes back gets a new one
)
# Settings that decide which disks a VM has, where its guest sees them, and which VM it is.
_OF_DISKS = ("arch", "bios", "boot", "bootdisk", "machine", "scsihw", "smbios1", "template")
# What people have chosen freely.
_TEXTS = ("description", "hostname", "name", "parent", "tags")
_DEFAULT_MEMORY = 512  # MiB of a VM whose file has none
_I440FX = re.compile(r"(type=)?(pc|pc-i440fx-[^,]*)?(,.*)?")  # "machine"; on q35 the same slots are behind a bridge
# A drive that Proxmox VE makes for cloud-init. A rollback makes its volume, or leaves it behind.
_CLOUD_INIT = re.compile(r"[^,]*:(\S*/)?(vm-\d+-)?cloudinit\b")
_IN_ORDER = "it is in the boot order, from which Proxmox VE takes no disk while the VM runs"
_SMBIOS = re.compile(rb"^smbios1:\s*(\S+)", re.MULTILINE)
_KEY_ORDER = re.compile(r"([a-z]+)(\d+)")


class Cluster(t.NamedTuple):
    """What the files of the cluster say, beside those of its VMs."""

    node: str
    """The name of this node."""
    storages: t.Mapping[str, pve_storage.Storage]
    ha: t.FrozenSet[int]
    """The VMs that HA manages."""
    replication: t.Mapping[int, t.Sequence[str]]
    """The names of the replication jobs of each VM."""
    pools: t.Optional[t.FrozenSet[str]] = None
    """The pools that are imported, None if that is not known."""


def parse_cluster(node: str, storages: str, ha: str, replication: str) -> Cluster:
    """Return what storage.cfg, ha/resources.cfg and replication.cfg say; "" for a file that is not there."""
    managed = (name for kind, name, _values in pve_storage.sections(ha) if kind == "vm")
    jobs: t.Dict[int, t.List[str]] = {}
    for _kind, name, _values in pve_storage.sections(replication):
        owner = name.rpartition("-")[0]
        if _number(owner):
            jobs.setdefault(int(owner), []).append(name)
    numbers = frozenset(_number(name) for name in managed if _number(name))
    return Cluster(node, pve_storage.parse_storages(storages), numbers, jobs)


def parse_vm(vmid: int, content: bytes, cluster: Cluster, process: str) -> VmConfig:
    """Return the configuration of a VM from its file. process: the id of its running QEMU, "" if it has none."""
    file = _readable(content)
    values = file.main.values
    disks = _Disks(vmid, cluster, file, bool(process))
    uuid = _uuid(values.get("smbios1", ""))
    pools = [pool_of(entry.volume) for entry in sorted(disks.entries, key=lambda e: not e.boot) if entry.volume]
    config = VmConfig(
        uuid=uuid or _stand_in(cluster, vmid),
        brand=BRAND,
        state=_state(process, values),
        pool=pools[0] if pools else "",
        dataset=vm_dataset(pools[0], uuid) if pools and uuid else "",
        flexible_disk_size=None,
        disks=tuple(disks.entries),
        pci=disks.pci,
        new_disks=disks.new_disks,
        identity_in_zfs=True,
        frozen=_why_frozen(vmid, file, cluster, disks),
        waiting=tuple(waiting(file, cluster.storages)),
        why_waiting=_why_waiting(vmid, file),
        uses=disks.uses,
        digest=VmFile(content).digest,
        run_id=process,
        prefixes=disks.prefixes,
        unused=disks.unused_volumes,
        unstoppable=_why_unstoppable(vmid, cluster),
        unused_nowhere=disks.unused_nowhere,
        unreadable=tuple(disks.unreadable_disks),
        snapshots=tuple(_listed(vmid, name, file, cluster) for name in file.snapshots),
        snapshotted=_snapshot_volumes(values, cluster)[0],
        unsnapshotted=tuple(_unsnapshotted(file, cluster)),
        proxmox=_particulars(vmid, file, cluster, disks),
        boot_unknown=_why_boot_unknown(vmid, file.main.values),
        **_settings_shown(vmid, values),
    )
    why = _unsupported(vmid, values, uuid, disks)
    return left_alone(config, why) if why else config


def _settings_shown(vmid: int, values: t.Mapping[str, str]) -> t.Dict[str, t.Any]:
    """Return the fields of a configuration that are settings of the VM, and not of its disks."""
    return {
        "alias": values.get("name", "") or f"vm{vmid}",
        "autoboot": _is_on(values, "onboot"),
        "tags": {tag: "" for tag in re.split(r"[;,\s]+", values.get("tags", "")) if tag},
        "memory": _number(values.get("memory", "").rpartition("=")[2]) or _DEFAULT_MEMORY,
        "vcpus": (_number(values.get("cores", "")) or 1) * (_number(values.get("sockets", "")) or 1),
    }


def _listed(vmid: int, name: str, file: VmFile, cluster: Cluster) -> ListedSnapshot:
    """Return a snapshot in the file of a VM."""
    then, now = file.snapshots[name], file.main.values
    volumes, beyond, off = _snapshot_volumes(then, cluster)
    if "vmstate" in then:
        beyond.append("the memory of the VM")
    differ = differing(then, now)
    serials = {key: _serial(then[key]) for key in differ if _has_other_serial(key, then, now)}
    of_disks = [key for key in differ if key not in serials and _is_of_disks(key, then, now)]
    settings = [f"serial of {key}" if key in serials else key for key in differ if key not in of_disks]
    return ListedSnapshot(
        name,
        tuple(volumes.values()),
        _number(then.get("snaptime", ""), 12),
        tuple(beyond),
        "snapstate" in then,
        tuple(of_disks),
        tuple(settings),
        _settings_shown(vmid, then) if settings else {},
        serials,
        tuple(off),
        tuple(
            one.dataset
            for key in sorted(then)
            if pve_disk.is_unused_key(key)
            for one in pve_storage.mentioned(cluster.storages, then[key])
        ),
    )


def differing(then: t.Mapping[str, str], now: t.Mapping[str, str]) -> t.List[str]:
    """Return the keys that a rollback would change. then: settings of the snapshot. now: settings of the VM."""
    differ = (key for key in sorted({*then, *now}) if _plain_value(key, then) != _plain_value(key, now))
    return [key for key in differ if key not in _OF_SNAPSHOTS and not pve_disk.is_unused_key(key)]


def _is_of_disks(key: str, *sections: t.Mapping[str, str]) -> bool:
    """Return whether a setting decides which disks the VM has. What lies in a drive for discs does not."""
    if key in _OF_DISKS or any(_CLOUD_INIT.match(values.get(key, "")) for values in sections):
        return True
    return any(key in values and is_snapshotted(key, values) for values in sections)


def _has_other_serial(key: str, then: t.Mapping[str, str], now: t.Mapping[str, str]) -> bool:
    """Return whether a disk differs in nothing but its serial, and that in the snapshot stands for no UUID."""
    if not pve_disk.is_disk_key(key) or key not in then or key not in now:
        return False
    try:
        before, after = pve_disk.parse(then[key]), pve_disk.parse(now[key])
    except FlexdiskError:
        return False
    same = before.volume == after.volume and pve_disk.but_for(before, "serial") == pve_disk.but_for(after, "serial")
    return same and not before.is_cdrom and not is_serial(_serial(then[key]))


def _serial(text: str) -> str:
    return _serial_of(pve_disk.parse(text))


def _serial_of(disk: pve_disk.PveDisk) -> str:
    return unquote(disk.options.get("serial", ""))


def _unsnapshotted(file: VmFile, cluster: Cluster) -> t.Iterator[str]:
    _volumes, beyond, off = _snapshot_volumes(file.main.values, cluster)
    yield from (f"{why}; make it available first" for why in off)
    for one in beyond:
        yield f"{visible(one)} is no volume of a {pve_storage.ZFS} of this node, and how it gets one was not seen"


def _snapshot_volumes(
    values: t.Mapping[str, str], cluster: Cluster
) -> t.Tuple[t.Dict[str, str], t.List[str], t.List[str]]:
    """Return the volumes that a snapshot with these settings has, by their keys, its other disks, and why some cannot
    be reached.
    """
    volumes: t.Dict[str, str] = {}
    beyond: t.List[str] = []
    off: t.List[str] = []
    for key in sorted(key for key in values if is_snapshotted(key, values)):
        try:
            disk = pve_disk.parse(values[key])
            storage = cluster.storages.get(disk.volume.partition(":")[0])
            there = storage is not None and storage.is_active(cluster.node)
            why_off = _why_off(storage, cluster)
            name = pve_storage.volume(cluster.storages, disk.volume).dataset
        except FlexdiskError:
            there, name, why_off = False, "", ""
        if why_off:
            off.append(f"{key} lies in {why_off}")
        elif there:
            volumes[key] = name
        else:
            beyond.append(f"{key} ({values[key]})")
    return volumes, beyond, off


def _why_off(storage: t.Optional[pve_storage.Storage], cluster: Cluster) -> str:
    """Return which storage of volumes cannot be reached at the moment, and why; "" for any other."""
    if storage is None or not storage.dataset:
        return ""
    if not storage.is_active(cluster.node):
        return f"storage {storage.name}, which is not active on node {cluster.node}"
    if cluster.pools is not None and pool_of(storage.dataset) not in cluster.pools:
        return f"storage {storage.name}, whose pool {pool_of(storage.dataset)} is not imported"
    return ""


def is_snapshotted(key: str, values: t.Mapping[str, str]) -> bool:
    """Return whether a setting is a disk that snapshots have. They have all but drives for discs."""
    is_disk = pve_disk.is_disk_key(key) or key in pve_disk.FIRMWARE
    return is_disk and "media=cdrom" not in values[key].split(",")


def _plain_value(key: str, values: t.Mapping[str, str]) -> t.Any:
    """Return a value to be compared: of a disk without its size, which follows the volume."""
    value = values.get(key, "")
    if not value or not (pve_disk.is_disk_key(key) or key in pve_disk.FIRMWARE):
        return value
    try:
        disk = pve_disk.parse(value)
    except FlexdiskError:
        return value
    return disk.volume, pve_disk.but_for(disk)


def left_alone(config: VmConfig, why: str) -> VmConfig:
    """Return a VM that no task manages. why: as a sentence. Its disks count as used."""
    uses = {**config.uses, **{entry.volume: Use() for entry in config.disks if entry.volume}}
    nowhere = replace(config, pool="", dataset="", prefixes=(), disks=(), identity_in_zfs=False)
    return replace(nowhere, uses=uses, unsupported=why)


def with_unique_uuids(
    configs: t.Sequence[VmConfig], cluster: Cluster, elsewhere: t.Mapping[str, t.Sequence[str]]
) -> t.List[VmConfig]:
    """Return the VMs; those with the same UUID are left alone, because nobody knows which one is meant.

    elsewhere: the VMs of other nodes, by their UUIDs. A record (rules/vm_record.py) is of a UUID in the whole cluster.
    """
    vms: t.Dict[str, t.List[VmConfig]] = {}
    for config in configs:
        vms.setdefault(config.uuid, []).append(config)
    result = []
    for config in configs:
        others = vms[config.uuid]
        if len(others) > 1:
            numbers = ", ".join(str(one.proxmox["vmid"]) for one in others)
            why = f"VMs {numbers} have the same UUID {config.uuid} in smbios1; give all but one another with qm set"
            config = left_alone(replace(config, uuid=_stand_in(cluster, config.proxmox["vmid"])), why)
        elif config.uuid in elsewhere:
            twins = ", ".join((f"{config.proxmox['vmid']} of node {cluster.node}", *elsewhere[config.uuid]))
            why = f"VMs {twins} have the same UUID {config.uuid} in smbios1; give all but one another with qm set"
            config = left_alone(config, why)
        result.append(config)
    return result


def file_of(vmid: int, folder: str = "qemu-server") -> str:
    """Return the path of the file of a VM of this node, or of a container."""
    return f"{LOCAL}/{folder}/{vmid}.conf"


def record_file(uuid: str) -> str:
    """Return the path of the record of a VM. The cluster carries it to every node."""
    return f"{CLUSTER}/{RECORDS}/{uuid}.json"


def with_record(config: VmConfig, content: t.Optional[bytes]) -> VmConfig:
    """Return a VM with its record. content: None without one."""
    if content is None:
        return config
    try:
        return replace(config, record=vm_record.parse(content))
    except ValueError as exc:
        text = f"{record_file(config.uuid)} has not what this collection has written ({visible(str(exc))})"
        return replace(
            config, frozen=config.frozen or f"{text}; correct it, or remove it if its disks have their names"
        )


def container(vmid: int, content: bytes, cluster: Cluster) -> VmConfig:
    """Return a container, which is listed and left alone."""
    file = _readable(content)
    name = file.main.values.get("hostname", "") or f"ct{vmid}"
    uses = _uses(vmid, cluster, file)
    return VmConfig(_stand_in(cluster, vmid), name, CONTAINER_BRAND, "unknown", False, "", "", None, uses=uses)


def _readable(content: bytes) -> VmFile:
    """Return a file whose text fits into a result, whatever its bytes are. It must not be written."""
    return VmFile(content.decode("utf-8", "replace").encode())


def _stand_in(cluster: Cluster, vmid: int) -> str:
    """Return a UUID for a VM that has none of its own."""
    return uuid_for("proxmox", cluster.node, vmid)


def _uuid(smbios: str) -> str:
    fields = dict(word.partition("=")[::2] for word in smbios.split(","))
    uuid = fields.get("uuid", "").lower()
    return uuid if is_uuid(uuid) else ""


def uuid_in(content: bytes) -> str:
    """Return the UUID of a VM from its file, "" if it has none. Quicker than parse_vm(), for files of other nodes."""
    line = _SMBIOS.search(content.partition(b"\n[")[0])
    return _uuid(line.group(1).decode("utf-8", "replace")) if line else ""


def _number(text: str, digits: int = 9) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else 0


def _is_on(values: t.Mapping[str, str], key: str) -> bool:
    return pve_disk.boolean(values.get(key, "")) is True


def _state(process: str, values: t.Mapping[str, str]) -> str:
    if process:
        return "running"
    return SAVED if values.get("lock") == _SUSPENDED else "stopped"


def _unsupported(vmid: int, values: t.Mapping[str, str], uuid: str, disks: _Disks) -> str:
    if _is_on(values, "template"):
        return "it is a template, and is left alone with its disks"
    if not uuid:
        return f"its configuration has no UUID; qm set {vmid} --smbios1 uuid=UUID gives it one"
    if not any(entry.volume for entry in disks.entries):
        reasons = [entry.left_out for entry in disks.entries if entry.left_out]
        reasons += [f"{key} ({visible(volume)}) is attached to nothing" for key, volume in disks.unused.items()]
        return f"no disk of it can be managed: {'; '.join(reasons) or 'it has no disks'}"
    return ""


def _why_frozen(vmid: int, file: VmFile, cluster: Cluster, disks: _Disks) -> str:
    """Return why nothing of the VM may be changed, "" if it may be."""
    lock, jobs = file.main.values.get("lock", ""), cluster.replication.get(vmid, ())
    unreadable = [*file.unreadable, *disks.unreadable]
    if lock:
        return f"VM {vmid} is locked by Proxmox VE ({visible(lock)}){unlocking(vmid, file)}"
    if unreadable:
        lines = "; ".join(visible(line) for line in unreadable)
        return f"Proxmox VE cannot read a part of the file of VM {vmid} ({lines}), and drops it with any change"
    if jobs:
        return f"VM {vmid} has the replication job {', '.join(jobs)} of Proxmox VE"
    return ""


def unlocking(vmid: int, file: VmFile) -> str:
    """Return how what an interrupted command for snapshots has left is given up, as the end of a text; "" without."""
    lock = file.main.values.get("lock", "")
    works = "delete" if lock == "snapshot-delete" else "prepare"
    begun = {name: values for name, values in file.snapshots.items() if values.get("snapstate") == works}
    text = f"; if no task of Proxmox VE works on it any more, qm unlock {vmid}"
    if lock in ("snapshot", "snapshot-delete"):
        with_memory = [name for name in sorted(begun) if "vmstate" in begun[name]]
        names = ", ".join(name for name in sorted(begun) if name not in with_memory)
        ways = [f"vm_snapshot with state=absent deletes what is left of snapshot {names}"] if names else []
        ways += [f"qm delsnapshot {vmid} {name} --force 1 deletes what is left of it" for name in with_memory]
        then = f", and then {', and '.join(ways)}" if ways else ""
        return f"{text}{then or ' takes the lock away'}"
    return f"{text}, and then the same rollback again, end it" if lock == "rollback" else ""


def _why_unstoppable(vmid: int, cluster: Cluster) -> str:
    text = f"HA manages VM {vmid}, and starts it again wherever it wants; let HA stop it first"
    return text if vmid in cluster.ha else ""


def _why_waiting(vmid: int, file: VmFile) -> str:
    keys = ",".join(pending_keys(file))
    text = f"VM {vmid} has changes that wait for its stop ({keys}), and any other could apply them"
    return f"{text}; stop it, or take them back with qm set {vmid} --revert {keys}" if keys else ""


def settings(file: VmFile) -> t.Dict[t.Tuple[str, str], str]:
    """Return all settings of all sections, by the name of the section in messages and their key.

    Descriptions are one setting of each section, however they are written.
    """
    found: t.Dict[t.Tuple[str, str], str] = {}
    for section in file.sections:
        where = _where(section)
        found.update({(where, key): value for key, value in section.values.items() if key != "description"})
        if section.description:
            found[where, "description"] = section.description
    return found


def volumes_in_use(file: VmFile) -> t.Set[str]:
    """Return what the disks of the VM name as their volumes."""
    values = [value for key, value in file.main.values.items() if pve_disk.is_disk_key(key)]
    return {pve_disk.parse(value).volume for value in values}


def pending_keys(file: VmFile) -> t.List[str]:
    """Return the keys whose change or removal waits."""
    return sorted({*file.pending, *file.deletes})


def waiting(file: VmFile, storages: t.Mapping[str, pve_storage.Storage]) -> t.Iterator[Waiting]:
    """Yield the changes that wait. Their volume is known of those that this collection could have begun: they add a
    disk, give one another serial, or take one out of the VM and of its boot order, but do not destroy it.
    """
    leaving = leaves(file)
    for key in pending_keys(file):
        change = Waiting(key)
        with contextlib.suppress(FlexdiskError):
            if leaving and key in (leaving, "boot"):
                volume = pve_disk.parse(file.main.values[leaving]).volume
                change = Waiting(key, pve_storage.volume(storages, volume).dataset, leaves=True)
            elif pve_disk.is_disk_key(key) and key not in file.deletes:
                change = _waiting_disk(key, file, storages)
        yield change


def leaves(file: VmFile) -> str:
    """Return the key of the disk that waits to leave the VM, if nothing else waits but what comes of it; else ""."""
    key, order = next(iter(file.deletes), ""), boot_order(file.main.values)
    disk = pve_disk.is_disk_key(key) and key in file.main.values and not file.deletes[key]
    alone = len(file.deletes) == 1 and set(file.pending) <= {"boot"}
    boots = "boot" not in file.pending or boot_order(file.pending) == [one for one in order if one != key]
    return key if disk and alone and boots else ""


def _waiting_disk(key: str, file: VmFile, storages: t.Mapping[str, pve_storage.Storage]) -> Waiting:
    then = pve_disk.parse(file.pending[key])
    comes = key not in file.main.values
    now = then if comes else pve_disk.parse(file.main.values[key])
    if now.volume != then.volume or pve_disk.but_for(now, "serial") != pve_disk.but_for(then, "serial"):
        return Waiting(key)
    volume, serial = pve_storage.volume(storages, then.volume).dataset, then.options.get("serial", "")
    return Waiting(key, volume, serial, pve_disk.words(then) if comes else ())


def _particulars(vmid: int, file: VmFile, cluster: Cluster, disks: _Disks) -> t.Dict[str, t.Any]:
    values = file.main.values
    return {
        "vmid": vmid,
        "lock": values.get("lock", ""),
        "protection": _is_on(values, "protection"),
        "pending": pending_keys(file),
        "snapshots": sorted(file.snapshots),
        "unfinished": sorted(name for name, then in file.snapshots.items() if "snapstate" in then),
        "unused": disks.unused,
        "ha": vmid in cluster.ha,
        "replication": list(cluster.replication.get(vmid, ())),
        "left_alone": [entry.left_out for entry in disks.entries if entry.left_out],
        "unreadable": [*file.unreadable, *disks.unreadable],
    }


class _Disks:
    """The disks in the file of a VM."""

    def __init__(self, vmid: int, cluster: Cluster, file: VmFile, running: bool) -> None:
        self._vmid = vmid
        self._cluster = cluster
        self._file = file
        self._running = running
        # The snapshots that have each volume.
        self._snapshots = _snapshots(cluster, file)
        self.entries: t.List[DiskConfig] = []
        # Volumes that the VM uses otherwise than as a managed disk.
        self.uses = _uses(vmid, cluster, file)
        # Lines that Proxmox VE drops because of their values.
        self.unreadable: t.List[str] = []
        # Volumes that the VM has but does not use, by their keys.
        self.unused: t.Dict[str, str] = {}
        # Disks in a zfspool that cannot be read at the moment.
        self.unreadable_disks: t.List[DiskConfig] = []
        values = file.main.values
        boot = _boot_disk(values)
        self.unreadable += [f"{key}: {values[key]}" for key in values if pve_disk.is_beyond(key)]
        self.unreadable += _unreadable_elsewhere(file)
        self._values = values
        for key in sorted(values, key=_order):
            if pve_disk.is_disk_key(key) or key in pve_disk.FIRMWARE:
                self.entries.append(self._entry(key, values[key], key == boot))
            elif pve_disk.is_unused_key(key):
                self.unused[key] = unused_volume(values[key], cluster.storages) or values[key]
        nowhere = {key: text for key, text in self.unused.items() if pve_storage.is_nowhere(cluster.storages, text)}
        self.unreadable_disks += [DiskConfig(text, key=key) for key, text in nowhere.items()]

    @property
    def unused_volumes(self) -> t.Tuple[str, ...]:
        """The datasets of unused volumes that are called after the VM. Volumes of other storages have none."""
        return tuple(name for name in self.unused.values() if sibling_prefix(name).endswith(f"-{self._vmid}-"))

    @property
    def unused_nowhere(self) -> t.Dict[str, str]:
        """What is named as unused in storages that the cluster does not have, by the keys."""
        named = {key: self._values[key] for key in self.unused if ":" in self._values[key]}
        return {key: text for key, text in named.items() if text.partition(":")[0] not in self._cluster.storages}

    @property
    def new_disks(self) -> t.Optional[NewDisks]:
        """New disks go to the storage of the disk that the VM boots from, else of its first one."""
        for entry in sorted((one for one in self.entries if one.volume), key=lambda one: not one.boot):
            name = pve_disk.parse(self._values[entry.key]).volume.partition(":")[0]
            storage = self._cluster.storages[name]
            prefix = sibling_prefixes(storage.dataset, self._vmid)[0]
            kind = SPARSE if storage.sparse else THICK
            return NewDisks(prefix, kind, pve_disk.parse_size(storage.blocksize.upper()) or 0)
        return None

    @property
    def pci(self) -> Pci:
        """The places for disks: all keys, which of them take a disk while the VM runs, and their addresses.

        Drives that are left alone keep their keys, and nothing gets a key from which the VM would boot then. Pending
        changes do not count: if somebody else has made them, the VM is not changed, and ours are taken back.
        """
        others = {one.key: f"{one.key} ({visible(one.path)})" for one in self.entries if not one.volume}
        order = f"the boot order ({visible(self._values.get('boot', ''))})"
        others.update(dict.fromkeys(_stale_in_order(self._values), order))
        known = self._values.get("arch", "x86_64") == "x86_64" and _I440FX.fullmatch(self._values.get("machine", ""))
        addresses = {f"virtio{number}": f"0:{_FIRST_DEVICE + number}:0" for number in range(_SLOTS)}
        every = (f"{bus}{number}" for bus in pve_disk.BUSES for number in range(pve_disk.BUSES[bus]))
        keys = tuple(key for key in every if key not in others)
        hot = frozenset(key for key in keys if key.rstrip("0123456789") in self._hot_buses)
        known_addresses = addresses if known else {}
        fixed = dict.fromkeys(boot_order(self._values), _IN_ORDER) if self._running else {}
        return Pci(keys, hot, functions=1, strict=True, others=others, addresses=known_addresses, fixed=fixed)

    @property
    def _hot_buses(self) -> t.Set[str]:
        """The buses whose disks come and go while the VM runs, as far as that was seen."""
        hotplug = self._values.get("hotplug", _HOTPLUG)
        if "disk" not in (_HOTPLUG if hotplug == "1" else hotplug).split(","):
            return set()
        return {"virtio", "scsi"} if self._values.get("scsihw", "") in _HOT_SCSI else {"virtio"}

    @property
    def prefixes(self) -> t.Tuple[str, ...]:
        """How the names of the VM's volumes begin, in every zfspool of this node, first in those that take disks."""
        active = [storage for storage in self._cluster.storages.values() if self._is_usable(storage)]
        ordered = sorted(active, key=lambda one: (not one.takes_disks, one.dataset))
        names = dict.fromkeys(one.dataset for one in ordered)
        return tuple(prefix for name in names for prefix in sibling_prefixes(name, self._vmid))

    def _is_usable(self, storage: pve_storage.Storage) -> bool:
        active = bool(storage.dataset) and storage.is_active(self._cluster.node) and is_pool(pool_of(storage.dataset))
        return active and self._is_imported(storage)

    def _is_imported(self, storage: pve_storage.Storage) -> bool:
        return self._cluster.pools is None or pool_of(storage.dataset) in self._cluster.pools

    def _entry(self, key: str, text: str, boot: bool) -> DiskConfig:
        try:
            disk = pve_disk.parse(text)
            pve_disk.check_options(key, disk)
        except FlexdiskError as exc:
            self.unreadable.append(f"{key}: {text}")
            return _left_out(key, text, exc.message)
        if disk.is_cdrom:
            return DiskConfig(disk.volume, media="cdrom", key=key)
        why = self._why_left_out(key, disk)
        if why:
            self._note_unreadable(key, disk)
            return replace(_left_out(key, disk.volume, why), serial=unquote(disk.options.get("serial", "")))
        volume = pve_storage.volume(self._cluster.storages, disk.volume).dataset
        return DiskConfig(
            path=ZVOL + volume,
            volume=volume,
            boot=boot,
            model=_KEY_ORDER.sub(r"\1", key),
            pci_slot=key,
            serial=_serial_of(disk),
            element=pve_disk.element(disk),
            mentions=(*(f"its snapshot {name}" for name in self._snapshots.get(volume, ())), *self._twice(key, volume)),
            key=key,
        )

    def _twice(self, key: str, volume: str) -> t.Iterator[str]:
        """Yield the other places beside snapshots at which the file names the volume of a disk."""
        for section, other, named in _named(self._cluster, self._file):
            own = other == key or (section.kind == MAIN and pve_disk.is_unused_key(other))
            if named.dataset == volume and section.kind != SNAPSHOT and not own:
                yield _place(section, other)

    def _note_unreadable(self, key: str, disk: pve_disk.PveDisk) -> None:
        """Note a disk that would be managed if its storage could be read."""
        storage = self._cluster.storages.get(disk.volume.partition(":")[0])
        if pve_storage.is_nowhere(self._cluster.storages, disk.volume) and key not in pve_disk.FIRMWARE:
            self.unreadable_disks.append(DiskConfig(disk.volume, serial=_serial_of(disk), key=key))
        if storage is None or not storage.dataset or self._is_usable(storage) or key in pve_disk.FIRMWARE:
            return
        with contextlib.suppress(FlexdiskError):
            name = pve_storage.volume(self._cluster.storages, disk.volume).dataset
            self.unreadable_disks.append(DiskConfig(disk.volume, volume=name, serial=_serial_of(disk), key=key))

    def _why_left_out(self, key: str, disk: pve_disk.PveDisk) -> str:
        if key in pve_disk.FIRMWARE:
            return "it is a disk of the firmware"
        if disk.is_path:
            return "it is named by its path, not by a storage"
        storage = self._cluster.storages.get(disk.volume.partition(":")[0])
        if storage is None and ":" in disk.volume:
            return (
                f"no storage is called {visible(disk.volume.partition(':')[0])}; its volume may be there all the same"
            )
        if storage is not None and storage.dataset and not self._is_imported(storage):
            return f"pool {pool_of(storage.dataset)} of storage {storage.name} is not imported"
        if storage is not None and storage.dataset and not self._is_usable(storage):
            return f"storage {storage.name} is not active on node {self._cluster.node}"
        try:
            volume = pve_storage.volume(self._cluster.storages, disk.volume)
        except FlexdiskError as exc:
            return exc.message
        if volume.owner != self._vmid:
            return f"its volume is called after VM {volume.owner}, which Proxmox VE destroys with that VM"
        if volume.is_base:
            return "it is a base volume, on which the disks of linked clones may lie"
        twice = [entry.key for entry in self.entries if entry.volume == volume.dataset]
        return f"it has the volume of {twice[0]}" if twice else ""


def _unreadable_elsewhere(file: VmFile) -> t.Iterator[str]:
    """Yield lines of disks in pending changes and snapshots that Proxmox VE drops because of their values."""
    for section in file.sections:
        for key, value in section.values.items() if section.kind in (PENDING, SNAPSHOT) else ():
            if pve_disk.is_beyond(key) or _why_unreadable(key, value):
                yield f"{key}: {value}{_where(section)}"


def _why_unreadable(key: str, value: str) -> str:
    """Return why Proxmox VE drops a line, if it is that of a disk and can be told to be wrong; "" for any other."""
    if not (pve_disk.is_disk_key(key) or key in pve_disk.FIRMWARE):
        return ""
    try:
        pve_disk.check_options(key, pve_disk.parse(value))
    except FlexdiskError as exc:
        return exc.message
    return ""


def _uses(vmid: int, cluster: Cluster, file: VmFile) -> t.Dict[str, Use]:
    """Return how the VM uses each volume that a line of its file names, of whatever section and form.

    Descriptions are no use, and neither are the VM's own volumes as unusedN.
    """
    uses: t.Dict[str, Use] = {}
    for section, key, one in _named(cluster, file):
        unused = section.kind == MAIN and pve_disk.is_unused_key(key)
        if not (unused and sibling_prefix(one.dataset).endswith(f"-{vmid}-")):
            how = f"as {_place(section, key)}"
            use = Use(f"perhaps, {how} ({one.doubt})" if one.doubt else how)
            known = uses.setdefault(one.dataset, use)
            uses[one.dataset] = use if known.how.startswith("perhaps") else known
    return uses


def unused_volume(text: str, storages: t.Mapping[str, pve_storage.Storage]) -> str:
    """Return the dataset that an C(unusedN) names, "" if it is in no zfspool."""
    try:
        return pve_storage.dataset_of(storages, pve_disk.parse(text).volume)
    except FlexdiskError:
        return ""


def _named(cluster: Cluster, file: VmFile) -> t.Iterator[t.Tuple[Section, str, pve_storage.Mention]]:
    """Yield each volume that a line names, with the section and the key. Names and descriptions of VMs name none."""
    for section in file.sections:
        for line in section.lines:
            if line.comment is None and line.key not in _TEXTS:
                for one in pve_storage.mentioned(cluster.storages, line.value if line.key else line.raw):
                    yield section, line.key, one


def _place(section: Section, key: str) -> str:
    if key == "vmstate":
        return "its saved memory"
    return (key or "part of a line that cannot be read") + _where(section)


def _where(section: Section) -> str:
    places = {MAIN: "", PENDING: " in its pending changes", SNAPSHOT: f" in its snapshot {section.name}"}
    return places.get(section.kind, f" in the section {section.name} of its file")


def _left_out(key: str, path: str, why: str) -> DiskConfig:
    return DiskConfig(path, left_out=f"{key} ({visible(path)}) is left alone: {why}", key=key)


def _order(key: str) -> t.Tuple[str, int]:
    match = _KEY_ORDER.fullmatch(key)
    return (match.group(1), int(match.group(2))) if match else (key, 0)


def boot_order(values: t.Mapping[str, str]) -> t.List[str]:
    """Return the keys in the boot order."""
    order = re.search(r"order=([^,]*)", values.get("boot", ""))
    keys = order.group(1).split(";") if order else [values.get("bootdisk", "")]
    return [key for key in keys if key]


def _may_boot(values: t.Mapping[str, str]) -> t.List[str]:
    """Return the keys of disks in the boot order, whether the file has them or not."""
    keys = boot_order(values)
    return [key for key in keys if pve_disk.is_disk_key(key) and "media=cdrom" not in values.get(key, "")]


def _boot_disk(values: t.Mapping[str, str]) -> str:
    """Return the key of the first disk in the boot order that the file has, "" if there is none."""
    return next((key for key in _may_boot(values) if key in values), "")


def _stale_in_order(values: t.Mapping[str, str]) -> t.List[str]:
    """Return the keys in the boot order before that disk. The VM would boot from whatever got one of them."""
    return [*itertools.takewhile(lambda key: key not in values, _may_boot(values))]


def _why_boot_unknown(vmid: int, values: t.Mapping[str, str]) -> str:
    """Return why the file does not say which disk the VM boots from, "" if it says that it is one, or none."""
    stale, by_keys = _stale_in_order(values), "order=" in values.get("boot", "")
    if by_keys and stale:
        text = f"the boot order of VM {vmid} begins with {', '.join(stale)}, which the VM does not have, so it may boot"
        rest = [key for key in boot_order(values) if key not in stale] or ["KEY"]
        return f"{text} from this disk; qm set {vmid} --boot 'order={';'.join(rest)}' takes that out of the order"
    if by_keys or _boot_disk(values):
        return ""
    text = f"VM {vmid} has no boot order, so Proxmox VE chooses the disk that it boots from, and it may be this one"
    return f"{text}; qm set {vmid} --boot order=KEY names that, such as virtio0"


def _snapshots(cluster: Cluster, file: VmFile) -> t.Dict[str, t.List[str]]:
    """Return the names of the snapshots that have each volume."""
    found: t.Dict[str, t.List[str]] = {}
    for name, values in file.snapshots.items():
        for value in values.values():
            for one in pve_storage.mentioned(cluster.storages, value):
                found.setdefault(one.dataset, []).append(name)
    return found
