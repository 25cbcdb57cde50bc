# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A few domains as libvirt keeps them: texts of a configuration and of what runs, and what it refuses."""

from __future__ import annotations

import copy
import itertools
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_travel import Needs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.libvirt_connection import Status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.resources import Resources

from .memory import Disks, Image, differs, why_not_saved

CHANGES = (
    "define", "attach", "detach", "block_resize", "shutdown", "create", "destroy", "set_autostart", "undefine",
    "pause", "save_memory", "restore_memory", "resume",
)  # fmt: skip
_IMAGES = itertools.count(1)


def failed(message: str) -> FlexdiskError:
    return FlexdiskError("LibvirtFailed", message)


def _check_vcpusched(root: ET.Element) -> None:
    vcpus = int(root.findtext("vcpu", "1"))
    for one in root.findall("cputune/vcpusched"):
        last = int(one.get("vcpus", "0").rpartition("-")[2])
        if last >= vcpus:
            raise failed(f"unsupported configuration: vCPU '{last}' is not present in domain definition")


class FakeDomains:
    """The thin layer below the driver. volsize says how large a device is, None where there is none.

    disks: what guests write, for those that write records.
    """

    def __init__(self, volsize: Callable[[str], int | None], disks: Disks | None = None) -> None:
        self._volsize = volsize
        self._disks = disks
        self.configs: dict[str, ET.Element] = {}
        self.lives: dict[str, ET.Element] = {}
        self.autostarts: dict[str, bool] = {}
        self.states: dict[str, str] = {}
        self.guest_sizes: dict[tuple[str, str], int] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.hook: Callable[[str, tuple[Any, ...], str], None] | None = None
        self.held: set[str] = set()
        self.deaf: set[str] = set()
        self.links: dict[str, str] = {}
        self.saves: set[str] = set()
        self.taken: dict[str, list[str]] = {}
        self.pools: dict[str, str] = {}
        self.backed_up: dict[str, list[str]] = {}  # targets by uuid
        self.memory, self.own, self.cpus = 65536, 4096, 16
        self.qemu = 7002022
        self.kept: list[str] = []
        self.known_secrets: list[str] | None = []
        self.starts = 0
        self.booted = "9d0e6f1c-0000-4000-8000-000000000001"
        self.lacking: set[str] = set()
        self.needed: list[Needs] = []
        self.files: dict[str, bytes] = {}
        self.last_words: bytes | None = None  # the UEFI variables that guests write when they are shut down
        self._leaving: list[tuple[str, str]] = []
        self.ended_saved: set[str] = set()  # the daemon knows that the domain's last run ended with a save
        self.records: dict[str, int] = {}  # the last record that each running guest has written, as its memory has it
        self.restored: list[int] = []  # the numbers of the images that were restored here
        self.goes_on: list[int] = []  # the numbers of those whose guests went on
        self.cannot_save = self.cannot_restore = ""
        self._loaded: dict[str, Image] = {}
        # File, how often somebody still sees it unfinished, and what the guest did before.
        self._saving: dict[str, tuple[str, int, str]] = {}

    # -- what tests do

    def add(self, text: str, transient: bool = False) -> str:
        root = self._normal(ET.fromstring(text))
        uuid = root.findtext("uuid", "")
        self.autostarts[uuid] = False
        if transient:
            self.lives[uuid] = root
        else:
            self.configs[uuid] = root
        return uuid

    def boot_id(self) -> str:
        return self.booted

    def boot(self, uuid: str) -> None:
        """As its operator starts it."""
        self._check_writable(self.configs[uuid])
        self.lives[uuid] = copy.deepcopy(self.configs[uuid])
        self.starts += 1
        self.lives[uuid].set("id", str(self.starts))
        if self.nvram(uuid):
            self.files.setdefault(self.nvram(uuid), b"as in the template")
        self.guest_sizes.update({(uuid, p): self._volsize(p) or 0 for p in self.paths(uuid, True)})
        self.states.pop(uuid, None)
        self._ended(uuid)

    def _check_writable(self, root: ET.Element) -> None:
        """QEMU opens disks for writing. An empty drive has nothing to open."""
        for disk in root.findall("devices/disk[source]"):
            if self._disks and self._disks.is_read_only(source(disk)):
                raise failed(f"Could not open '{source(disk)}': Read-only file system")

    def halt(self, uuid: str) -> None:
        del self.lives[uuid]
        self.states.pop(uuid, None)
        self._ended(uuid)

    def _ended(self, uuid: str) -> None:
        """Another run of the domain: nothing of the last one counts."""
        self.ended_saved.discard(uuid)
        self.records.pop(uuid, None)
        self._loaded.pop(uuid, None)
        self._saving.pop(uuid, None)

    def restart_daemon(self) -> None:
        """It does not know any more how domains have ended. A save that was under way has failed."""
        for uuid in list(self._saving):
            self._save_failed(uuid, self._saving.pop(uuid)[2])
        self.ended_saved.clear()

    def write(self, uuid: str) -> None:
        """The guest writes its next record on all its disks, unless it does not run."""
        assert self._disks is not None
        if self.status(uuid).state != "running":
            return
        there = {path: self._disks.last(path) for path in self.paths(uuid, True)}
        known = self.records.setdefault(uuid, min(there.values()))  # a guest that has booted looks at its disks
        assert {*there.values()} == {known}, f"memory with {known} over disks with {there}"
        self.records[uuid] += 1
        for path in there:
            self._disks.write(path, self.records[uuid])

    def save(self, uuid: str) -> None:
        """virsh managedsave."""
        self.halt(uuid)
        self.saves.add(uuid)

    def snapshot(self, uuid: str, name: str, metadata: bool = True, chain: bool = True) -> None:
        """virsh snapshot-create-as --disk-only. chain: the stored configuration tells what lies below, as today's
        libvirt does it.
        """
        before = ET.tostring(self.configs[uuid], encoding="unicode")
        disks = []
        for root in [roots[uuid] for roots in (self.configs, self.lives) if uuid in roots]:
            for disk in root.findall("devices/disk"):
                top = f"/var/lib/libvirt/images/{root.findtext('name', '')}-{target(disk)}.{name}"
                below = ET.Element("backingStore", type=disk.get("type", ""))
                below.append(child(disk, "source"))
                for old in disk.findall("backingStore"):
                    disk.remove(old)
                    below.append(old)
                disk.remove(below[0])
                disk.set("type", "file")
                child(disk, "driver").set("type", "qcow2")
                ET.SubElement(disk, "source", file=top)
                if chain or root is not self.configs[uuid]:
                    disk.append(below)
                disks.append(
                    f"<disk name='{target(disk)}' snapshot='external' type='file'><source file='{top}'/></disk>"
                )
        if metadata:
            text = f"<domainsnapshot><name>{name}</name><disks>{''.join(disks)}</disks>{before}</domainsnapshot>"
            self.taken.setdefault(uuid, []).append(text)

    def paths(self, uuid: str, live: bool = False) -> list[str]:
        root = (self.lives if live else self.configs)[uuid]
        return [s.get("dev", s.get("file", "")) for s in root.findall("devices/disk/source")]

    def addresses(self, uuid: str, live: bool = False) -> dict[str, tuple[int, int, int]]:
        """Serial to bus, device and function."""
        root = (self.lives if live else self.configs)[uuid]
        return {
            d.findtext("serial", ""): place(d) for d in root.findall("devices/disk") if d.find("address") is not None
        }

    def last_record(self, uuid: str) -> int:
        """The last record on the disks of a running domain: all before it are there, and all disks have the same."""
        assert self._disks is not None
        (record,) = {self._disks.last(path) for path in self.paths(uuid, True)}
        return record

    # -- the protocol

    def _called(self, name: str, *arguments: Any) -> Callable[[], None]:
        self.calls.append((name, arguments))
        if self.hook:
            self.hook(name, arguments, "before")
        return lambda: self.hook(name, arguments, "after") if self.hook else None

    def all(self) -> list[Status]:
        return [self.status(uuid) for uuid in sorted({*self.configs, *self.lives})]

    def status(self, uuid: str) -> Status:
        if uuid not in self.configs and uuid not in self.lives:
            raise FlexdiskError("ResourceNotFound", f"Domain not found: {uuid}")
        self._save_goes_on(uuid)
        state = self.states.get(uuid, "running") if uuid in self.lives else "stopped"
        state = "saved" if uuid in self.saves else state
        name = {**self.lives, **self.configs}[uuid].findtext("name", "")
        return Status(uuid, name, state, self.autostarts[uuid], uuid in self.configs)

    def xml(self, uuid: str, live: bool) -> str:
        if live:
            self._release(uuid)
        self.status(uuid)
        return ET.tostring((self.lives if live and uuid in self.lives else self.configs)[uuid], encoding="unicode")

    def resources(self) -> Resources:
        """As if every running domain had touched all its memory (KiB)."""
        running = sum(int(live.findtext("memory", "0")) for live in self.lives.values()) // 1024
        return Resources(self.memory, max(0, self.memory - self.own - running), self.cpus)

    def secrets(self) -> list[str] | None:
        return self.known_secrets

    def snapshots(self, uuid: str) -> list[str]:
        self.status(uuid)
        return list(self.taken.get(uuid, ()))

    def backup(self, uuid: str) -> str:
        self.status(uuid)
        rows = "".join(f"<disk name='{name}' backup='yes' type='file'/>" for name in self.backed_up.get(uuid, ()))
        rows += "<disk name='vdz' backup='no'/>"
        return f"<domainbackup mode='push'><disks>{rows}</disks></domainbackup>" if uuid in self.backed_up else ""

    def keeps(self, uuid: str) -> list[str]:
        self.status(uuid)
        return list(self.kept)

    def variables(self, path: str) -> bytes:
        return self.files.get(path, b"")

    def set_variables(self, path: str, content: bytes) -> None:
        after = self._called("set_variables", path)
        self.files[path] = content
        after()

    def nvram(self, uuid: str) -> str:
        """The file with the UEFI variables of a domain."""
        return self.configs[uuid].findtext("os/nvram", "")

    def lacks(self, needs: Needs) -> list[str]:
        self.needed.append(needs)
        every = (*needs.networks, *needs.bridges, *needs.devices, *needs.filters, *needs.paths, needs.machine)
        return sorted(self.lacking & set(every))

    def device(self, path: str) -> bool:
        return self._volsize(path) is not None

    def volume(self, path: str) -> str:
        return self.links.get(path, "")

    def path(self, pool: str, volume: str) -> str:
        return f"{self.pools[pool]}/{volume}" if pool in self.pools else ""

    def define(self, xml: str) -> None:
        root = self._normal(ET.fromstring(xml))
        after = self._called("define", root.findtext("uuid", ""))
        uuid, name = root.findtext("uuid", ""), root.findtext("name", "")
        if any(other != uuid and xml.findtext("name") == name for other, xml in self.configs.items()):
            raise failed(f"operation failed: domain '{name}' already exists")
        self.configs[uuid] = root
        self.autostarts.setdefault(uuid, False)
        after()

    def attach(self, uuid: str, xml: str) -> None:
        after = self._called("attach", uuid, xml)
        disk = ET.fromstring(xml)
        if uuid not in self.lives:
            raise failed("domain is not running")
        path = source(disk)
        if not self.device(path):
            raise failed(f"Could not open '{path}': No such file or directory")
        if disk.find("address") is not None:
            self._hot(self.lives[uuid], disk)
        roots = [copy.deepcopy(root) for root in (self.configs[uuid], self.lives[uuid])]
        for root in roots:
            child(root, "devices").append(copy.deepcopy(disk))
        self.configs[uuid], self.lives[uuid] = (self._normal(root) for root in roots)
        self.guest_sizes[uuid, path] = self._volsize(path) or 0
        after()

    def detach(self, uuid: str, xml: str) -> None:
        after = self._called("detach", uuid, xml)
        disk = ET.fromstring(xml)
        path = source(disk)
        if child(disk, "target").get("bus") in ("sata", "ide"):
            raise failed("Operation not supported: This type of disk cannot be hot unplugged")
        if path not in self.held:
            self._leaving.append((uuid, path))
        after()

    def _release(self, uuid: str) -> None:
        """The guest lets go a little later, of everything that shares the slot."""
        for leaving in [one for one in self._leaving if one[0] == uuid]:
            self._leaving.remove(leaving)
            devices = child(self.lives[uuid], "devices")
            gone = [d for d in devices.findall("disk") if source(d) == leaving[1]]
            slots = {place(d)[:2] for d in gone if child(d, "address").get("type") == "pci"}
            for disk in devices.findall("disk"):
                if disk in gone or (child(disk, "address").get("type") == "pci" and place(disk)[:2] in slots):
                    devices.remove(disk)

    def block_resize(self, uuid: str, target: str, size: int) -> None:
        after = self._called("block_resize", uuid, target, size)
        disk = next(d for d in self.lives[uuid].findall("devices/disk") if child(d, "target").get("dev") == target)
        path = source(disk)
        if target in self.backed_up.get(uuid, ()) or disk.find("mirror") is not None:
            raise failed("Device is in use by block job")
        if size > (self._volsize(path) or 0):
            raise failed("Cannot grow device files")
        assert size >= self.guest_sizes[uuid, path], "the guest would see its disk shrink"
        self.guest_sizes[uuid, path] = size
        after()

    def shutdown(self, uuid: str) -> None:
        after = self._called("shutdown", uuid)
        if uuid not in self.deaf:
            self.halt(uuid)
            if self.last_words is not None:
                self.files[self.nvram(uuid)] = self.last_words
        after()

    def create(self, uuid: str) -> None:
        after = self._called("create", uuid)
        if uuid in self.lives:
            raise failed("Requested operation is not valid: domain is already running")
        ours = ("/dev/zvol/", "/var/lib/flexdisk/")
        lacking = [p for p in self.paths(uuid) if p.startswith(ours) and not self.device(p)]
        if lacking:
            raise failed(f"Could not open {lacking}")
        limited = [one.text or "" for one in self.configs[uuid].findall("blkiotune/device/path")]
        if [p for p in limited if not p.startswith("/dev/") or (p.startswith(ours) and not self.device(p))]:
            raise failed(f"Path must be a block device: {limited}")
        self.boot(uuid)
        self.saves.discard(uuid)
        after()

    # -- the memory of guests

    def save_memory(self, uuid: str, path: str) -> None:
        """The guest stands still while it is saved. The daemon goes on if the caller is killed meanwhile."""
        after = self._called("save_memory", uuid, path)
        if uuid not in self.lives:
            raise failed("Requested operation is not valid: domain is not running")
        reason = why_not_saved(self.lives[uuid], uuid in self.backed_up)
        if reason:
            raise failed(f"Requested operation is not valid: {reason}")
        self._saving[uuid] = (path, 1, self.states.get(uuid, ""))
        self.states[uuid] = "paused"
        after()  # in the middle of it, the guest stands still
        after = self._called("save_memory", uuid, path)
        reason = self._finish_save(uuid)
        if reason:
            raise failed(f"operation failed: {reason}")
        after()

    def _save_goes_on(self, uuid: str) -> None:
        """Whoever was killed in the middle of a save: the next one sees the guest stand still once, then it is done."""
        path, often, before = self._saving.get(uuid, ("", 0, ""))
        if often > 0:
            self._saving[uuid] = (path, often - 1, before)
        elif path:
            self._finish_save(uuid)

    def _finish_save(self, uuid: str) -> str:
        """Return why it has failed. Then the guest goes on."""
        path, _often, before = self._saving.pop(uuid)
        live, disks = self.lives[uuid], self._disks
        assert disks is not None
        contents = {target(d): disks.content(source(d)) for d in live.findall("devices/disk")}
        image = Image(next(_IMAGES), ET.tostring(live, encoding="unicode"), self.records.get(uuid), contents)
        reason = self.cannot_save or disks.save(path, image, int(live.findtext("memory", "0")))
        if reason:
            self._save_failed(uuid, before)
            return reason
        self.halt(uuid)
        self.ended_saved.add(uuid)
        return ""

    def _save_failed(self, uuid: str, before: str) -> None:
        """The guest does what it did before."""
        del self.states[uuid]
        if before:
            self.states[uuid] = before

    def pause(self, uuid: str) -> None:
        after = self._called("pause", uuid)
        if self.status(uuid).state != "running":
            raise failed("Requested operation is not valid: domain is not running")
        self.states[uuid] = "paused"
        after()

    def is_saving(self, uuid: str) -> bool:
        return uuid in self._saving

    def running_xml(self, uuid: str) -> str:
        return self.xml(uuid, True)

    def qemu_version(self) -> int:
        return self.qemu

    def ended_with_save(self, uuid: str) -> bool:
        return self.status(uuid).state == "stopped" and uuid in self.ended_saved

    def memory_xml(self, path: str) -> str:
        return self._image(path).xml

    def _image(self, path: str) -> Image:
        image = self._disks.load(path) if self._disks else None
        if image is None:
            raise failed(f"Failed to open file '{path}': No such file or directory")
        return image

    def restore_memory(self, path: str, xml: str) -> None:
        """Nothing here prevents that one image is restored twice, or over disks that it does not fit to."""
        after = self._called("restore_memory", path)
        image = self._image(path)
        known, root = ET.fromstring(image.xml), ET.fromstring(xml)
        uuid = root.findtext("uuid", "")
        if uuid in self.lives:
            raise failed(f"operation failed: domain '{root.findtext('name')}' is already active with uuid {uuid}")
        reason = differs(known, root)
        if reason:
            raise failed(f"unsupported configuration: {reason}")
        lacking = [source(d) for d in root.findall("devices/disk") if not self.device(source(d))]
        if lacking:
            raise failed(f"Could not open {lacking}")
        self._check_writable(root)
        if self.cannot_restore:
            raise failed(f"internal error: process exited while connecting to monitor: {self.cannot_restore}")
        self.starts += 1
        root.set("id", str(self.starts))
        self.lives[uuid] = root
        self.autostarts.setdefault(uuid, False)
        self._ended(uuid)
        self.states[uuid] = "paused"
        self.guest_sizes.update({(uuid, p): self._volsize(p) or 0 for p in self.paths(uuid, True)})
        self._loaded[uuid] = image
        if image.record is not None:
            self.records[uuid] = image.record
        self.restored.append(image.number)
        after()

    def resume(self, uuid: str) -> None:
        after = self._called("resume", uuid)
        if uuid not in self.lives:
            raise failed("Requested operation is not valid: domain is not running")
        if uuid in self._saving:
            raise failed("Timed out during operation: cannot acquire state change lock")
        self.states.pop(uuid, None)
        image = self._loaded.pop(uuid, None)
        if image is not None and self._disks:
            disks = self.lives[uuid].findall("devices/disk")
            now = {target(d): self._disks.content(source(d)) for d in disks}
            assert now == image.contents, "the guest goes on with memory that does not belong to its disks"
            self.goes_on.append(image.number)
        after()

    def destroy(self, uuid: str) -> None:
        after = self._called("destroy", uuid)
        self.halt(uuid)
        after()

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        after = self._called("set_autostart", uuid, autostart)
        self.autostarts[uuid] = autostart
        after()

    def undefine(self, uuid: str) -> None:
        after = self._called("undefine", uuid)
        self.status(uuid)
        self.files.pop(self.nvram(uuid), None)
        self.saves.discard(uuid)
        self.taken.pop(uuid, None)
        del self.configs[uuid], self.autostarts[uuid]
        after()

    # -- what libvirt makes of a definition

    def _normal(self, root: ET.Element) -> ET.Element:
        """Disks in libvirt's order, addresses for all, and refused what QEMU would not start."""
        made = [int(one.get("sockets", 1)) * int(one.get("cores", 1)) for one in root.findall("cpu/topology")]
        if made and made != [int(root.findtext("vcpu", "1"))]:
            raise failed("unsupported configuration: CPU topology doesn't match maximum vcpu count")
        _check_vcpusched(root)
        devices = child(root, "devices")
        disks = ordered(devices.findall("disk"))
        if len({target(d) for d in disks}) < len(disks):
            raise failed("target '%s' duplicated" % [target(d) for d in disks])
        orders = [b.get("order") for b in devices.findall("*/boot")]
        if len(set(orders)) < len(orders) or (orders and root.findall("os/boot")):
            raise failed(f"boot orders {orders}")
        for disk in disks:
            devices.remove(disk)
            devices.append(disk)
        for disk in disks:
            if disk.find("address") is None:
                self._place(root, disk)
        places = [
            place(d) for d in devices if d.find("address") is not None and child(d, "address").get("type") == "pci"
        ]
        if len(set(places)) < len(places):
            raise failed(f"Attempted double use of PCI Address {sorted(places)}")
        buses = {0} | {int(c.get("index", "0")) for c in devices.findall("controller[@type='pci']")}
        if {bus for bus, _device, _function in places} - buses:
            raise failed("Invalid PCI address: no controller for its bus")
        for disk in devices.findall("disk"):
            shared = [p for p in places if p[:2] == place(disk)[:2]] if pci(disk) else []
            if len(shared) > 1 and place(disk)[2] == 0 and child(disk, "address").get("multifunction") != "on":
                raise failed("PCI slot is in use by several functions without multifunction")
        return root

    def _place(self, root: ET.Element, disk: ET.Element) -> None:
        if child(disk, "target").get("bus") != "virtio":
            ET.SubElement(disk, "address", type="drive", controller="0", bus="0", target="0", unit=target(disk))
            return
        taken = {place(d)[:2] for d in child(root, "devices") if d.find("address") is not None and pci(d)}
        ports = [int(c.get("index", "0")) for c in root.findall("devices/controller[@model='pcie-root-port']")]
        free = [(p, 0) for p in ports] if ports else [(0, d) for d in range(3, 32)]
        bus, device = next(p for p in free if p not in taken)
        ET.SubElement(disk, "address", type="pci", domain="0x0000", bus=hex(bus), slot=hex(device), function="0x0")

    def _hot(self, live: ET.Element, disk: ET.Element) -> None:
        if not pci(disk):
            return
        bus, _device, function = place(disk)
        ports = {int(c.get("index", "0")) for c in live.findall("devices/controller[@model='pcie-root-port']")}
        if function or (ports and bus not in ports):
            raise failed("Bus does not support hotplugging")


def ordered(disks: list[ET.Element]) -> list[ET.Element]:
    """As libvirt inserts them: those of one bus in the order of their targets, a bus where its first disk is."""
    done: list[ET.Element] = []
    for disk in disks:
        same = [
            n for n, other in enumerate(done) if child(other, "target").get("bus") == child(disk, "target").get("bus")
        ]
        later = [n for n in same if (len(target(done[n])), target(done[n])) > (len(target(disk)), target(disk))]
        done.insert(later[0] if later else same[-1] + 1 if same else len(done), disk)
    return done


def child(element: ET.Element, name: str) -> ET.Element:
    result = element.find(name)
    assert result is not None, name
    return result


def target(disk: ET.Element) -> str:
    return child(disk, "target").get("dev", "")


def source(disk: ET.Element) -> str:
    """A disk says what kind of source it has, and libvirt believes it."""
    return child(disk, "source").get({"block": "dev", "file": "file"}[disk.get("type", "")], "")


def pci(device: ET.Element) -> bool:
    return child(device, "address").get("type") == "pci"


def place(device: ET.Element) -> tuple[int, int, int]:
    address = child(device, "address")
    bus, slot, function = (int(address.get(key, "0"), 0) for key in ("bus", "slot", "function"))
    return bus, slot, function
