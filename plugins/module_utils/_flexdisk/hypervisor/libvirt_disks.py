# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver for libvirt: QEMU/KVM on Linux, and bhyve on FreeBSD, where libvirt changes nothing while a VM runs.

The driver changes a configuration by defining it again, and a running domain by hot-plug. The engine sets sizes and
quotas.
"""

from __future__ import annotations

import re
import time
import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import ZVOL
from ..model.errors import FlexdiskError
from ..model.resources import Resources
from ..model.sizes import MIB
from ..model.vm import SAVED, DiskConfig, Use, VmConfig
from ..rules.disk_element import SECRETS_KNOWN
from ..rules.identity import disk_in, serial_of
from . import (
    domain,
    domain_disk,
    domain_edit,
    domain_uses,
)
from .libvirt_connection import Domains, Status
from .protocol import WholeVms
from .xml_text import Element, Text

# The device of a partition.
_PART = re.compile(r"(/zd\d+p\d+|-part\d+)$")
PATIENCE = 60
ASK_AGAIN = 15
_ALWAYS = (
    "normalise", "law", "flexible", "quota", "compression", "identity", "destroy_parked", "unguard", "park",
    "snapshot", "delete_snapshot", "properties", "convert", "discard", "retire",
)  # fmt: skip
_HOT = ("grow", "attach", "create", "detach", "destroy")


class LibvirtDisks:
    """The driver for VMs that are there. It refuses a change if something else has changed the configuration."""

    storage = None
    resizing = None
    records = None
    waiting = None
    guests = None
    snapshots = None
    vms_as_a_whole: t.Optional[WholeVms] = None

    def __init__(self, domains: Domains, uri: str, pause: t.Callable[[float], None] = time.sleep) -> None:
        self._domains = domains
        self.pause = pause
        self._seen: t.Dict[str, str] = {}
        self._host_offers: t.Optional[t.FrozenSet[str]] = None
        bhyve = uri.startswith("bhyve")
        self.capabilities = Capabilities(
            name="libvirt",
            brand=domain.BRAND,
            live=frozenset(_ALWAYS if bhyve else _ALWAYS + _HOT),
            models=("virtio", "scsi"),
            quota_unit=MIB,
            device_prefix=ZVOL,
            functions_per_slot=1,
            slotless=frozenset(["scsi", "sata", "ide", "usb", "sd", "fdc"]),
            platform="freebsd" if bhyve else "linux",
            keeps_storage=False,
            removal_destroys=False,
            moves_autoboot=False,
            usual_quota=MIB,
            new_vm_options=frozenset(("template", "image_file")),
            types=("thick", "sparse") if bhyve else ("thick", "sparse", "file"),
        )

    def vms(self) -> t.List[VmConfig]:
        result = []
        for status in self._domains.all():
            try:
                result.append(self._read(status))
            except FlexdiskError as exc:
                # The domain has ended or been undefined meanwhile.
                if exc.code != "ResourceNotFound":
                    raise
        return result

    def vm(self, vm: str) -> VmConfig:
        return self._read(self._domains.status(vm))

    def resources(self) -> Resources:
        return self._domains.resources()

    def _read(self, status: Status) -> VmConfig:
        xml = self._domains.xml(status.uuid, not status.persistent)
        up = status.persistent and status.state not in ("stopped", SAVED)
        live = self._domains.xml(status.uuid, True) if up else ""
        snapshots = self._domains.snapshots(status.uuid)
        backup = self._domains.backup(status.uuid) if up else ""
        try:
            config = domain_uses.parse_vm(
                xml,
                live,
                *status[2:],
                snapshots=snapshots,
                volume_at=self._used,
                backup=backup,
                device_at=self._whole,
            )
        except FlexdiskError as exc:
            raise FlexdiskError(exc.code, f"{status.name} ({status.uuid}): {exc.message}") from exc
        self._seen[config.uuid] = config.digest
        uses: t.Dict[str, Use] = {}
        for path, use in config.uses.items():
            uses.setdefault(self._used(path), use)
        uses.pop("", None)
        return replace(config, uses=uses, offers=config.offers | self._secrets())

    def _secrets(self) -> t.FrozenSet[str]:
        """Read the secrets of the host, once, as what its VMs can use. Nothing if libvirt does not report them."""
        if self._host_offers is None:
            known = self._domains.secrets()
            offers = [] if known is None else [SECRETS_KNOWN, *(f"secret {one}" for one in known)]
            self._host_offers = frozenset(offers)
        return self._host_offers

    def _used(self, use: str) -> str:
        """Return the volume or the file of a disk that a domain uses under any name; "" for anything else.

        Only devices are looked up, because other paths may be on a network file system that does not answer. A missing
        device gets the name of its volume: below /dev/zvol, or right below /dev.
        """
        path = self._domains.path(*use.split("//", 1)) if "//" in use else use
        if not path.startswith("/dev/"):
            return path if disk_in(path) else ""
        named = domain.volume_of(path)
        if named and not domain.PARTITION.search(path):
            return named
        named = named or domain.volume_of(ZVOL + path[len("/dev/") :])
        return self._domains.volume(path) or domain.PARTITION.sub("", named)

    def _whole(self, use: str) -> str:
        """Return the volume whose device has this name, if it exists; "" for a partition and for anything else."""
        path = self._domains.path(*use.split("//", 1)) if "//" in use else use
        return self._domains.volume(path) if path.startswith("/dev/") and not _PART.search(path) else ""

    def boot_id(self) -> str:
        return self._domains.boot_id()

    def _fresh(self, vm: str) -> str:
        """Return the configuration, if it has not changed since the last read. Raises FlexdiskError Changed."""
        xml = self._domains.xml(vm, False)
        if self._seen.get(vm) != domain.digest(xml):
            raise FlexdiskError("Changed", "the domain's configuration was changed by something else since it was read")
        return xml

    def _live(self, vm: str) -> str:
        """Return the XML of the running domain; "" if it does not run."""
        return self._domains.xml(vm, True) if self._domains.status(vm).state == "running" else ""

    def _define(self, vm: str, xml: str) -> None:
        self._domains.define(xml)
        self.vm(vm)

    def _prove(self, vm: str, disk_path: str, change: str, **wanted: t.Any) -> None:
        """Check that the disk is as wanted in the configuration and, if the domain runs, in the running domain."""
        for live in (False, True) if self._live(vm) else (False,):
            xml = self._domains.xml(vm, live)
            seen = domain.parse_vm(xml, "", "", False, True)
            disk = next((d for d in seen.disks if d.path == disk_path), DiskConfig(""))
            if any(getattr(disk, key) != value for key, value in wanted.items()):
                where = "running domain" if live else "configuration"
                raise FlexdiskError(
                    "NotApplied",
                    f"{change} has not taken effect in the {where}, although libvirt reported no error",
                )

    def announce_size(self, vm: str, path: str, size: int, shrink: bool) -> None:
        live = self._live(vm)
        disk = domain.find(Text(live).root, path) if live else None
        if disk is not None:
            if shrink:
                raise FlexdiskError("VmNotStopped", f"{path} cannot shrink while the VM runs")
            self._domains.block_resize(vm, disk.get("target", "dev"), size * MIB)

    def edit_disks(self, vm: str, entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        self._define(vm, domain_edit.edited(self._fresh(vm), entries))
        for entry in entries:
            wanted = {key: entry[key] for key in ("boot", "model", "pci_slot") if key in entry}
            if "uuid" in entry:
                wanted["serial"] = serial_of(entry["uuid"])
            path = ZVOL + entry["volume"] if "volume" in entry else entry["path"]
            self._prove(vm, path, f"{', '.join(entry)} of {path}", path=path, **wanted)

    def attach_disk(self, vm: str, disk: t.Mapping[str, t.Any]) -> None:
        path = disk["path"]
        self._await_device(path)
        xml, live = self._fresh(vm), self._live(vm)
        if live:
            tuned = domain_edit.tuned(xml, disk)
            if tuned != xml:  # before the disk is there: an interrupted run does it again
                self._define(vm, tuned)
            self._domains.attach(vm, domain_edit.device(xml, disk, live))
            self.vm(vm)
        else:
            self._define(vm, domain_edit.added(xml, disk))
        wanted = {key: disk[key] for key in ("path", "model", "pci_slot") if disk[key]}
        self._prove(vm, path, f"disk {path}", serial=serial_of(disk["uuid"]), **wanted)
        if disk.get("element"):
            self._prove_given(vm, path, Text(domain_edit.device(xml, disk, live)).root)

    def _prove_given(self, vm: str, path: str, wanted: Element) -> None:
        """Check that a disk has got back its settings. Its target and its boot order are chosen again."""
        for live in (False, True) if self._live(vm) else (False,):
            actual = domain.find(Text(self._domains.xml(vm, live)).root, path)
            lacking = domain_disk.absent(wanted, actual) if actual is not None else ["the disk"]
            if lacking:
                where = "running domain" if live else "configuration"
                text = f"{', '.join(lacking)} of disk {path} is not in the {where}, although libvirt reported no error"
                raise FlexdiskError("NotApplied", text)

    def _await_device(self, path: str) -> None:
        if domain.volume_of(path):
            self._wait(lambda: self._domains.device(path), "NoDevice", f"{path} does not appear on the host")

    def add_ports(self, vm: str, ports: t.Sequence[int]) -> None:
        self._define(vm, domain_edit.ported(self._fresh(vm), ports))

    def forget_disk(self, vm: str, path: str) -> None:
        """Remove the disk from the guest first. If the guest does not release it, it stays in the configuration."""
        self._fresh(vm)
        live = self._live(vm)
        running = Text(live) if live else None
        disk = domain.find(running.root, path) if running else None
        if running is not None and disk is not None:
            self._domains.detach(vm, running.of(disk))
            self._wait(
                lambda: domain.find(Text(self._domains.xml(vm, True)).root, path) is None,
                "GuestHoldsDisk",
                f"the guest has not released {path} and still has it",
            )
        self._define(vm, domain_edit.removed(self._fresh(vm), path))
        self._prove(vm, path, f"the removal of {path}", path="")

    def _wait(self, done: t.Callable[[], bool], code: str, message: str) -> None:
        for _second in range(PATIENCE):
            if done():
                return
            self.pause(1)
        if not done():
            raise FlexdiskError(code, f"{message} after {int(PATIENCE)} s")

    def stop(self, vm: str, timeout: int, force: bool) -> None:
        """Shut the guest down. The request is repeated, because a guest that is still booting ignores it."""
        for second in range(max(timeout, 1)):
            if second % ASK_AGAIN == 0:
                self._ask_to_stop(vm)
            self.pause(1)
            if self._is_down(vm):
                break
        else:
            if not force:
                raise FlexdiskError(
                    "VmNotStopped",
                    f"the guest did not shut down within stop_timeout={timeout} s and is still running; "
                    "allow_force_stop: true halts it",
                )
            self._domains.destroy(vm)
        self.vm(vm)

    def _is_down(self, vm: str) -> bool:
        return self._domains.status(vm).state == "stopped"

    def _ask_to_stop(self, vm: str) -> None:
        try:
            self._domains.shutdown(vm)
        except FlexdiskError:
            if not self._is_down(vm):
                raise

    def start(self, vm: str, saved: bool = False) -> None:
        """Start the VM. It is no error if it is still running because its guest did not shut down."""
        if self._domains.status(vm).state in ("stopped", *([SAVED] if saved else [])):
            self._domains.create(vm)
        state = self.vm(vm).state
        if state != "running":
            raise FlexdiskError("VmNotStarted", f"the VM is {state} after its start")

    def set_autoboot(self, vm: str, autoboot: bool) -> None:
        self._domains.set_autostart(vm, autoboot)
