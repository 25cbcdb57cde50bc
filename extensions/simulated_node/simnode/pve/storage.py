# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""storage.cfg, and what a zfspool storage does with its volumes: each function is the zfs commands of the real one."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

from simnode.pve.errors import NotRecorded, ParameterError, PveError
from simnode.pve.host import DEVICES, NODE, STORAGE_CFG
from simnode.pve.task import Run

_HEAD = re.compile(r"([a-z]+):\s*(\S+)\s*")
_NAME = re.compile(r"(?:(base-\d+-\S+?)/)?((base|vm|subvol|basevol)-(\d+)-\S+)")
_LISTED = re.compile(r"(vm|base|subvol|basevol)-(\d+)-\S+")
LIST_OPTIONS = ("-o", "name,volsize,origin,type,refquota", "-t", "volume,filesystem", "-d1", "-Hp")
BASE_SNAPSHOT = "__base__"
FEATURE_MISSING = "snapshot feature is not available"


class Storage(NamedTuple):
    """A section of storage.cfg."""

    name: str
    kind: str
    settings: Dict[str, str]

    @property
    def dataset(self) -> str:
        return self.settings.get("pool", "")

    @property
    def contents(self) -> List[str]:
        return self.settings.get("content", "").split(",")

    @property
    def disabled(self) -> bool:
        return "disable" in self.settings

    @property
    def is_here(self) -> bool:
        nodes = self.settings.get("nodes", "")
        return not nodes or NODE in nodes.split(",")


class Volume(NamedTuple):
    """A volume's name taken apart: `base` is what it is a linked clone of, '' for others."""

    storage: str
    name: str
    base: str
    owner: int

    @property
    def is_base(self) -> bool:
        return self.name.startswith("base-")

    def id(self) -> str:
        """Return the volume's id, as a VM's file has it."""
        return f"{self.storage}:{self.base}/{self.name}" if self.base else f"{self.storage}:{self.name}"


class Listed(NamedTuple):
    """A volume as a storage lists it."""

    volume: Volume
    size: int
    origin: str


def parse(text: str) -> Dict[str, Storage]:
    """Return the storages of storage.cfg; `local` is always one."""
    found: Dict[str, Storage] = {}
    current: Optional[Storage] = None
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            current = found[head.group(2)] = Storage(head.group(2), head.group(1), {})
        elif current is not None and line[:1].isspace() and line.strip():
            key, _blank, value = line.strip().partition(" ")
            current.settings[key] = value.strip()
    if "local" not in found:
        local = Storage("local", "dir", {"path": "/var/lib/vz", "content": "iso,vztmpl,backup"})
        found = {"local": local, **found}
    return found


def write(storages: Dict[str, Storage]) -> str:
    """Return the text of storage.cfg."""
    parts = []
    for storage in storages.values():
        lines = [f"\t{key} {value}".rstrip() for key, value in storage.settings.items()]
        parts.append("\n".join([f"{storage.kind}: {storage.name}", *lines]) + "\n")
    return "\n".join(parts)


def storages(run: Run) -> Dict[str, Storage]:
    """Return the storages of the cluster."""
    return parse(run.host.read(STORAGE_CFG) or "")


def pools(run: Run) -> List[Storage]:
    """Return the zfspool storages that are active on this node."""
    return [one for one in storages(run).values() if one.kind == "zfspool" and not one.disabled and one.is_here]


def storage(run: Run, name: str) -> Storage:
    """Return the storage of that name. Raises PveError."""
    found = storages(run).get(name)
    if found is None:
        raise PveError(f"storage '{name}' does not exist")
    if found.disabled:
        raise PveError(f"storage '{name}' is disabled")
    if not found.is_here:
        raise PveError(f"storage '{name}' is not available on node '{NODE}'")
    return found


def zfs_storage(run: Run, name: str) -> Storage:
    """Return the storage of that name, which has to be a zfspool. Raises PveError."""
    found = storage(run, name)
    if found.kind != "zfspool":
        raise NotRecorded(f"volumes of storage '{name}', which is of type {found.kind}")
    return found


def for_images(run: Run, name: str) -> Storage:
    """Return the storage of that name, which has to take disks. Raises PveError."""
    found = storage(run, name)
    if "images" not in found.contents:
        raise ParameterError({"storage": f"storage '{name}' does not support vm images"}, 255)
    return zfs_storage(run, name)


def volume(name: str) -> Volume:
    """Return the parts of STORAGE:NAME. Raises PveError for what is no name of a volume."""
    storage_name, _colon, rest = name.partition(":")
    match = _NAME.fullmatch(rest)
    if match is None:
        raise PveError(f"unable to parse zfs volume name '{rest}'")
    return Volume(storage_name, match.group(2), match.group(1) or "", int(match.group(4)))


def dataset(run: Run, one: Volume) -> str:
    """Return the name of the volume's dataset."""
    return f"{zfs_storage(run, one.storage).dataset}/{one.name}"


def activate(run: Run, one: Storage) -> None:
    """Look after the pool and its file systems, once in a run: nothing of the storage's dataset is mounted."""
    if one.name in run.activated:
        return
    run.activated.add(one.name)
    run.host.zpool(["list", "-o", "name", "-H", one.dataset.partition("/")[0]])
    run.host.zfs(["mount", "-a"])


def listed(run: Run, one: Storage) -> List[Listed]:
    """Return the volumes directly below the storage's dataset whose names are those of volumes, by name."""
    activate(run, one)
    found = []
    for line in run.zfs("list", *LIST_OPTIONS, one.dataset).splitlines():
        name, size, origin, kind, _quota = line.split("\t")
        parent, _slash, short = name.rpartition("/")
        match = _LISTED.fullmatch(short)
        if parent != one.dataset or match is None:
            continue
        if kind != "volume":
            raise NotRecorded(f"'{name}', the file system of a container")
        base = origin.partition("@")[0].rpartition("/")[2] if origin.endswith("@" + BASE_SNAPSHOT) else ""
        found.append(Listed(Volume(one.name, short, base, int(match.group(2))), int(size), origin))
    return sorted(found)


def lock_path(one: Storage) -> str:
    """Return the file whose flock who creates, renames or destroys volumes of a storage has."""
    return f"/var/lock/pve-manager/pve-storage-{one.name}"


def free_name(run: Run, one: Storage, vmid: int) -> str:
    """Return the name with the lowest free number for a disk of a VM."""
    names = {item.volume.name for item in listed(run, one)}
    number = 0
    while f"vm-{vmid}-disk-{number}" in names or f"base-{vmid}-disk-{number}" in names:
        number += 1
    return f"vm-{vmid}-disk-{number}"


def create(run: Run, one: Storage, vmid: int, kib: int, name: str = "") -> Volume:
    """Create a volume, of the size in KiB, rounded up to MiB. Without a name, it gets the next free one."""
    activate(run, one)
    with run.lock(lock_path(one)):
        name = name or free_name(run, one, vmid)
        options = ["-s"] if one.settings.get("sparse") in ("1", "yes", "on", "") else []
        if "blocksize" in one.settings:
            options += ["-b", one.settings["blocksize"]]
        run.zfs("create", *options, "-V", f"{-(-kib // 1024) * 1024}k", f"{one.dataset}/{name}")
    return Volume(one.name, name, "", vmid)


def destroy(run: Run, one: Volume) -> None:
    """Destroy a volume with its snapshots. Raises PveError for a base that has clones."""
    place = zfs_storage(run, one.storage)
    activate(run, place)
    with run.lock(lock_path(place)):
        if one.is_base and clones(run, one):
            raise PveError(f"base volume '{one.name}' is still in use by linked clones")
        run.zfs_destroy(f"{place.dataset}/{one.name}")


def clones(run: Run, one: Volume) -> List[Listed]:
    """Return the linked clones of a base."""
    return [item for item in listed(run, zfs_storage(run, one.storage)) if item.volume.base == one.name]


def rename(run: Run, one: Volume, vmid: int) -> Volume:
    """Give a volume to another VM: it gets the next free name there."""
    place = zfs_storage(run, one.storage)
    activate(run, place)
    with run.lock(lock_path(place)):
        name = free_name(run, place, vmid)
        if run.host.zfs(["get", "-H", "name", f"{place.dataset}/{name}"])[0] == 0:
            raise PveError(f"target volume '{name}' already exists")
        run.zfs("rename", f"{place.dataset}/{one.name}", f"{place.dataset}/{name}")
    return one._replace(name=name, owner=vmid)


def make_base(run: Run, one: Volume) -> Volume:
    """Turn a volume into a base, which can have linked clones."""
    place = zfs_storage(run, one.storage)
    activate(run, place)
    name = "base" + one.name[2:]
    with run.lock(lock_path(place)):
        run.zfs("rename", f"{place.dataset}/{one.name}", f"{place.dataset}/{name}")
        run.zfs("snapshot", f"{place.dataset}/{name}@{BASE_SNAPSHOT}")
    return one._replace(name=name, base="")


def clone(run: Run, base: Volume, vmid: int) -> Volume:
    """Make a linked clone of a base."""
    place = zfs_storage(run, base.storage)
    activate(run, place)
    with run.lock(lock_path(place)):
        name = free_name(run, place, vmid)
        run.zfs("clone", f"{place.dataset}/{base.name}@{BASE_SNAPSHOT}", f"{place.dataset}/{name}")
    return Volume(base.storage, name, base.name, vmid)


def wait_for_device(run: Run, one: Volume) -> None:
    """Wait for the device of a volume. Raises PveError when it does not come."""
    place = zfs_storage(run, one.storage)
    activate(run, place)
    if run.host.device(f"{DEVICES}{place.dataset}/{one.name}") is None:
        run.host.sleep(run.device_seconds)
        raise PveError(f"timeout: no zvol device link for '{one.name}' found after {run.device_seconds} sec.")


def size(run: Run, one: Volume) -> int:
    """Return the bytes of a volume."""
    text = run.zfs("get", "-o", "value", "-Hp", "volsize,usedbydataset", dataset(run, one))
    return int(text.split()[0])
