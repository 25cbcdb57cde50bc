# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""All calls to libvirt. The XML of a domain may contain passwords, so no message shows it."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ..model.errors import FlexdiskError
from ..model.resources import Resources, checked
from ..model.vm import SAVED
from .domain import volume_of
from .xml_text import Text

_STATES = {1: "running", 2: "running", 3: "paused", 4: "shutting down", 5: "stopped", 6: "crashed", 7: "suspended"}
_NO_SUPPORT, _INVALID_ARG, _NO_DOMAIN, _NO_STORAGE_POOL, _NO_SNAPSHOT = 3, 8, 42, 49, 72
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CACHES = ("buffers", "cached")
_CODES = {_NO_DOMAIN: "ResourceNotFound", 88: "NotPermitted", 45: "NotPermitted"}
_CODES_OF_DEFINITION = {**_CODES, 9: "AlreadyExists"}  # any other call fails with it for any other reason


class Status(t.NamedTuple):
    """The status of a domain. state: C(running), C(stopped), C(saved) if it is stopped with a saved image of its
    memory, or a word for a state in between.
    """

    uuid: str
    name: str
    state: str
    autostart: bool
    persistent: bool


class Domains(t.Protocol):
    """Domains by uuid. All methods raise FlexdiskError."""

    def all(self) -> t.List[Status]:
        """Return every domain."""

    def status(self, uuid: str) -> Status: ...

    def xml(self, uuid: str, live: bool) -> str:
        """Return the persistent configuration, or with live=True that of the running domain."""

    def snapshots(self, uuid: str) -> t.List[str]:
        """Return the XML of libvirt's own snapshots of a domain."""

    def backup(self, uuid: str) -> str:
        """Return the XML of the backup that libvirt makes of a running domain; "" for none or if it is unknown."""

    def secrets(self) -> t.Optional[t.List[str]]:
        """Return the uuids and usages of the secrets that libvirt has, None if it does not tell. Never their values."""

    def resources(self) -> Resources:
        """Memory and CPUs of the host."""

    def boot_id(self) -> str:
        """Return a text that differs from boot to boot of the host; "" where there is none."""

    def device(self, path: str) -> bool:
        """Whether the host has this block device, and it belongs to the volume that the path names."""

    def volume(self, path: str) -> str:
        """Return the volume whose device, or a partition of it, is at the path; "" if there is none."""

    def path(self, pool: str, volume: str) -> str:
        """Return the path of a volume in one of libvirt's storage pools; "" if it is unknown."""

    def define(self, xml: str) -> None:
        """Store a configuration."""

    def attach(self, uuid: str, xml: str) -> None:
        """Add a device to the running domain and to its configuration."""

    def detach(self, uuid: str, xml: str) -> None:
        """Ask the guest of a running domain to release a device. The configuration does not change."""

    def block_resize(self, uuid: str, target: str, size: int) -> None:
        """Give the running guest the size (bytes) of a disk."""

    def shutdown(self, uuid: str) -> None:
        """Ask the guest to shut down. This does not wait."""

    def create(self, uuid: str) -> None:
        """Start a domain."""

    def destroy(self, uuid: str) -> None: ...

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        """Store whether the domain starts with the host."""

    def undefine(self, uuid: str) -> None:
        """Remove a domain that does not run, with everything that libvirt keeps of it."""


class Connection:
    """Domains of one libvirt daemon."""

    def __init__(self, uri: str, volume_at: t.Callable[[str], str]) -> None:
        """volume_at returns the volume whose device, or a partition of it, is at a path."""
        self._uri = uri
        self._volume_at = volume_at
        self._pools: t.Dict[str, str] = {}
        try:
            import libvirt  # type: ignore[import-not-found,unused-ignore]
        except ImportError as exc:
            raise FlexdiskError(
                "CommandNotFound", f"the Python module libvirt is needed (Debian: python3-libvirt): {exc}"
            ) from exc
        self._library = libvirt
        libvirt.registerErrorHandler(lambda ignored, error: None, None)
        try:
            self._connection = libvirt.open(uri)
        except libvirt.libvirtError as exc:
            raise FlexdiskError("HypervisorUnreachable", f"libvirt at {uri}: {exc}") from exc

    @contextlib.contextmanager
    def _call(self, action: str, codes: t.Optional[t.Mapping[int, str]] = None) -> t.Iterator[None]:
        try:
            yield
        except self._library.libvirtError as exc:
            code = (codes or _CODES).get(exc.get_error_code(), "LibvirtFailed")
            raise FlexdiskError(code, f"libvirt at {self._uri}, {action}: {exc.get_error_message()}") from exc

    @contextlib.contextmanager
    def _domain(self, uuid: str, action: str) -> t.Iterator[t.Any]:
        with self._call(f"{action} of {uuid}"):
            yield self._connection.lookupByUUIDString(uuid)

    def all(self) -> t.List[Status]:
        with self._call("list"):
            result = []
            for domain in self._connection.listAllDomains():
                try:
                    result.append(self._status(domain))
                except self._library.libvirtError as exc:
                    # A transient domain may have ended meanwhile.
                    if exc.get_error_code() != _NO_DOMAIN:
                        raise
            return result

    def status(self, uuid: str) -> Status:
        with self._domain(uuid, "state") as domain:
            return self._status(domain)

    def _status(self, domain: t.Any) -> Status:
        persistent = bool(domain.isPersistent())
        autostart = persistent and bool(domain.autostart())
        state = _STATES.get(domain.state()[0], "unknown")
        if state == "stopped" and self._unless(_NO_SUPPORT, domain.hasManagedSaveImage):
            state = SAVED
        return Status(domain.UUIDString(), domain.name(), state, autostart, persistent)

    def _unless(self, code: int, ask: t.Callable[[], t.Any]) -> t.Any:
        """Return the answer of a call, or None if libvirt fails with this code."""
        try:
            return ask()
        except self._library.libvirtError as exc:
            if exc.get_error_code() != code:
                raise
            return None

    def snapshots(self, uuid: str) -> t.List[str]:
        with self._domain(uuid, "snapshots") as domain:
            taken = self._unless(_NO_SUPPORT, domain.listAllSnapshots) or ()
            # One may have been deleted meanwhile.
            documents = [self._unless(_NO_SNAPSHOT, functools.partial(one.getXMLDesc, 0)) for one in taken]
            return [str(xml) for xml in documents if xml is not None]

    def backup(self, uuid: str) -> str:
        try:
            return str(self._connection.lookupByUUIDString(uuid).backupGetXMLDesc(0))
        except (AttributeError, self._library.libvirtError):
            return ""

    def xml(self, uuid: str, live: bool) -> str:
        inactive = 0 if live else self._library.VIR_DOMAIN_XML_INACTIVE
        with self._domain(uuid, "description") as domain:
            return str(domain.XMLDesc(self._library.VIR_DOMAIN_XML_SECURE | inactive))

    def secrets(self) -> t.Optional[t.List[str]]:
        try:
            every = self._connection.listAllSecrets()
            return [word for one in every for word in (one.UUIDString(), one.usageID()) if word]
        except (AttributeError, self._library.libvirtError):
            return None

    def resources(self) -> Resources:
        """Memory that caches would give back counts as free. ZFS's own cache is not among them."""
        with self._call("memory and CPUs"):
            memory = self._connection.getMemoryStats(self._library.VIR_NODE_MEMORY_STATS_ALL_CELLS)
            node = self._connection.getInfo()
        return _resources(memory, node)

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def device(self, path: str) -> bool:
        volume = volume_of(path)
        return bool(volume) and self._volume_at(path) == volume

    def volume(self, path: str) -> str:
        return self._volume_at(path)

    def path(self, pool: str, volume: str) -> str:
        """Return the path, by the pool's description: a pool that is not active knows no volumes."""
        if pool not in self._pools:
            self._pools[pool] = self._target(pool)
        return f"{self._pools[pool]}/{volume}" if self._pools[pool] else ""

    def _target(self, pool: str) -> str:
        with self._call(f"storage pool {pool}"):
            try:
                return Text(self._connection.storagePoolLookupByName(pool).XMLDesc(0)).root.get("target/path")
            except self._library.libvirtError as exc:
                if exc.get_error_code() not in (_NO_SUPPORT, _NO_STORAGE_POOL):
                    raise
                return ""

    def define(self, xml: str) -> None:
        with self._call("definition", _CODES_OF_DEFINITION):
            self._connection.defineXML(xml)

    def attach(self, uuid: str, xml: str) -> None:
        flags = self._library.VIR_DOMAIN_AFFECT_LIVE | self._library.VIR_DOMAIN_AFFECT_CONFIG
        with self._domain(uuid, "attachment") as domain:
            domain.attachDeviceFlags(xml, flags)

    def detach(self, uuid: str, xml: str) -> None:
        with self._domain(uuid, "detachment") as domain:
            domain.detachDeviceFlags(xml, self._library.VIR_DOMAIN_AFFECT_LIVE)

    def block_resize(self, uuid: str, target: str, size: int) -> None:
        with self._domain(uuid, "resize") as domain:
            domain.blockResize(target, size, self._library.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    def shutdown(self, uuid: str) -> None:
        with self._domain(uuid, "shutdown") as domain:
            domain.shutdown()

    def create(self, uuid: str) -> None:
        with self._domain(uuid, "start") as domain:
            domain.create()

    def destroy(self, uuid: str) -> None:
        with self._domain(uuid, "halt") as domain:
            domain.destroy()

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        with self._domain(uuid, "autostart") as domain:
            domain.setAutostart(int(autostart))

    def undefine(self, uuid: str) -> None:
        library = self._library
        flags = library.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | library.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        flags |= library.VIR_DOMAIN_UNDEFINE_NVRAM | library.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        with self._domain(uuid, "deletion") as domain:
            try:
                domain.undefineFlags(flags)
            except library.libvirtError as exc:
                # bhyve's driver accepts no flags, and an older driver does not have this call.
                if exc.get_error_code() not in (_NO_SUPPORT, _INVALID_ARG):
                    raise
                domain.undefine()


def _resources(memory: t.Any, node: t.Any) -> Resources:
    """The figures, from libvirt's in KiB and its description of the host, whose third entry is the number of CPUs."""
    try:
        free = memory["free"] + sum(memory.get(key, 0) for key in _CACHES)
        resources = Resources(int(memory["total"]) // 1024, int(free) // 1024, int(node[2]))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
        text = f"libvirt describes the host in a form that is not supported: {exc!r}"
        raise FlexdiskError("UnexpectedOutput", text) from exc
    return checked(resources, "libvirt")
