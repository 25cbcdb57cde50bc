# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for Proxmox VE that only reads: the files of the node, without any process."""

from __future__ import annotations

import os
import re
import time
import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import ZVOL
from ..model.errors import FlexdiskError
from ..model.resources import Resources, checked
from ..model.sizes import MIB
from ..model.vm import VmConfig
from . import pve_disk, pve_vm
from .protocol import Guests, Records, Resizing, Snapshots, WaitingChanges, WholeVms

_LOCAL = pve_vm.LOCAL
_MEMORY = "/proc/meminfo"
_BOOT = "/proc/sys/kernel/random/boot_id"
_POOLS = "/proc/spl/kstat/zfs"  # has a folder for each pool that is imported
_CONFIG = re.compile(r"([1-9][0-9]{2,8})\.conf")  # Proxmox VE sees no other


class ProxmoxVms:
    """The driver. Everything that would change a VM raises FlexdiskError NotSupported."""

    storage = None
    resizing: t.Optional[Resizing] = None
    records: t.Optional[Records] = None
    waiting: t.Optional[WaitingChanges] = None
    guests: t.Optional[Guests] = None
    snapshots: t.Optional[Snapshots] = None
    vms_as_a_whole: t.Optional[WholeVms] = None
    capabilities = Capabilities(
        name="proxmox",
        brand=pve_vm.BRAND,
        live=frozenset(),
        models=tuple(sorted(pve_disk.BUSES, reverse=True)),
        quota_unit=MIB,
        device_prefix=ZVOL,
        functions_per_slot=1,
        platform="linux",
        keeps_storage=False,
        removal_destroys=False,
        moves_autoboot=False,
        types=("thick", "sparse"),
        only_read=True,
    )

    def __init__(self, root: str = "", pause: t.Callable[[float], None] = time.sleep) -> None:
        """root: where the files of the node are, "" for the host itself."""
        self._root = root
        self.pause = pause
        self._elsewhere: t.Optional[t.Mapping[str, t.Sequence[str]]] = None

    def vms(self) -> t.List[VmConfig]:
        cluster = self._cluster()
        configs = []
        for vmid, content in self._files("qemu-server"):
            try:
                configs.append(pve_vm.parse_vm(vmid, content, cluster, self._process(vmid)))
            except FlexdiskError as exc:
                raise FlexdiskError(exc.code, f"VM {vmid}: {exc.message}") from exc
        containers = [pve_vm.container(vmid, content, cluster) for vmid, content in self._files("lxc")]
        unique = pve_vm.with_unique_uuids(configs, cluster, self._of_other_nodes())
        return [*(self._with_record(one) for one in unique), *containers]

    def _with_record(self, config: VmConfig) -> VmConfig:
        """Return a VM with its record. That of a UUID which a VM of another node has too may be of either."""
        if config.uuid in self._of_other_nodes():
            return config
        return pve_vm.with_record(config, self._bytes(pve_vm.record_file(config.uuid)))

    def _of_other_nodes(self) -> t.Mapping[str, t.Sequence[str]]:
        """Return the VMs of all other nodes of the cluster by their UUIDs, as they were when this was asked first."""
        if self._elsewhere is None:
            found: t.Dict[str, t.List[str]] = {}
            for node in self._other_nodes():
                for vmid, content in self._files("qemu-server", f"{pve_vm.CLUSTER}/nodes/{node}"):
                    found.setdefault(pve_vm.uuid_in(content), []).append(f"{vmid} of node {node}")
            found.pop("", None)
            self._elsewhere = found
        return self._elsewhere

    def _other_nodes(self) -> t.List[str]:
        path = f"{pve_vm.CLUSTER}/nodes"
        try:
            return [name for name in sorted(os.listdir(self._root + path)) if name != self._node()]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise _unreadable(path, exc) from exc

    def vm(self, vm: str) -> VmConfig:
        config = next((one for one in self.vms() if one.uuid == vm), None)
        if config is None:
            raise FlexdiskError("ResourceNotFound", f"node {self._node()} has no VM {vm}")
        return config

    def _cluster(self) -> pve_vm.Cluster:
        names = ("storage.cfg", "ha/resources.cfg", "replication.cfg")
        cluster = pve_vm.parse_cluster(self._node(), *(self._text(f"{pve_vm.CLUSTER}/{name}") for name in names))
        return cluster._replace(pools=self._pools())

    def _pools(self) -> t.Optional[t.FrozenSet[str]]:
        """Return the pools that are imported, None if that is not known."""
        try:
            with os.scandir(self._root + _POOLS) as entries:
                return frozenset(entry.name for entry in entries if entry.is_dir())
        except OSError:
            return None

    def _node(self) -> str:
        try:
            node = os.path.basename(os.readlink(self._root + _LOCAL))
        except OSError as exc:
            text = f"{_LOCAL} cannot be read: {exc.strerror}; pmxcfs, the file system of the cluster, must be mounted"
            raise FlexdiskError("HypervisorUnreachable", text) from exc
        if not os.path.isdir(self._root + _LOCAL):
            text = f"{_LOCAL} leads to node {node}, which does not exist; was the host renamed?"
            raise FlexdiskError("HypervisorUnreachable", f"{text} The folders in {pve_vm.CLUSTER}/nodes have its VMs")
        return node

    def _files(self, folder: str, node: str = _LOCAL) -> t.Iterator[t.Tuple[int, bytes]]:
        """Yield the number and the content of each file of a node. A file that goes meanwhile is left out."""
        path = f"{node}/{folder}"
        try:
            names = os.listdir(self._root + path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as exc:
            raise _unreadable(path, exc) from exc
        matches = (_CONFIG.fullmatch(name) for name in names)
        for vmid in sorted(int(match.group(1)) for match in matches if match):
            content = self._bytes(f"{path}/{vmid}.conf")
            if content is not None:
                yield vmid, content

    def _bytes(self, path: str) -> t.Optional[bytes]:
        """Return what is in a file, None if there is none, or a directory."""
        try:
            with open(self._root + path, "rb") as stream:
                return stream.read()
        except (FileNotFoundError, IsADirectoryError):
            return None
        except OSError as exc:
            raise _unreadable(path, exc) from exc

    def _text(self, path: str) -> str:
        return (self._bytes(path) or b"").decode("utf-8", "replace")

    def _process(self, vmid: int) -> str:
        """Return the id of the VM's QEMU, "" if its file names no process that is there."""
        number = self._text(f"/run/qemu-server/{vmid}.pid").strip()
        return number if number.isascii() and number.isdigit() and os.path.isdir(f"{self._root}/proc/{number}") else ""

    def resources(self) -> Resources:
        with open(_MEMORY, encoding="ascii") as stream:
            rows = (line.split() for line in stream)
            figures = {row[0].rstrip(":"): int(row[1]) // 1024 for row in rows}
        total, free = figures.get("MemTotal", 0), figures.get("MemAvailable", 0)
        return checked(Resources(total, free, os.sysconf("SC_NPROCESSORS_ONLN")), _MEMORY)

    def boot_id(self) -> str:
        return self._text(_BOOT).strip()

    def announce_size(self, vm: str, path: str, size: int, shrink: bool) -> None:
        raise _refusal()

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        raise _refusal()

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        raise _refusal()

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        raise _refusal()

    def forget_disk(self, vm: str, path: str) -> None:
        raise _refusal()

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        raise _refusal()

    def start(self, vm: str, saved: bool = False) -> None:
        raise _refusal()

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        raise _refusal()


def _unreadable(path: str, exc: OSError) -> FlexdiskError:
    code = "NotPermitted" if isinstance(exc, PermissionError) else "HypervisorUnreachable"
    return FlexdiskError(code, f"{path} cannot be read: {exc.strerror}")


def _refusal() -> FlexdiskError:
    return FlexdiskError("NotSupported", "this is not supported on Proxmox VE")
