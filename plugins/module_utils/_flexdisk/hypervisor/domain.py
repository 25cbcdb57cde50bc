# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a VM and its disks from the XML of a libvirt domain. Takes text and runs nothing."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
import re
import typing as t
from dataclasses import replace

from ..model.dataset import ZVOL
from ..model.errors import FlexdiskError
from ..model.sizes import MIB
from ..model.vm import DiskConfig, Pci, VmConfig
from ..rules.identity import disk_in, is_pool, is_uuid
from ..rules.layout import vm_dataset
from ..rules.slots import Slot, render_slot
from . import domain_disk
from .xml_text import Element, Text

BRAND = "libvirt"
AGENT = "org.qemu.guest_agent.0"
PORT = "pcie-root-port"
# How many root ports a stopped VM can get in addition.
_COMING_PORTS = 16
_NAMES = (("b", "bytes"), ("k", "KiB"), ("M", "MiB"), ("G", "GiB"), ("T", "TiB"))
_UNITS = {unit: 1024**power for power, names in enumerate(_NAMES) for unit in names}
_HOST_BRIDGE, _GRAPHICS = "the host bridge", "the primary graphics card"
_RESERVED_PC = {"0:0": _HOST_BRIDGE, "0:1": "the ISA bridge", "0:2": _GRAPHICS}
_RESERVED_Q35 = {"0:0": _HOST_BRIDGE, "0:1": _GRAPHICS, "0:31": "the LPC bridge"}
_RESERVED_BHYVE = {"0:0": _HOST_BRIDGE, "0:1": "the LPC bridge"}
_USUAL_DRIVER = '<driver cache="none" discard="unmap" name="qemu" type="raw"/>'
PARTITION = re.compile(r"-part\d+$")
_VOLUME = re.compile(r"[A-Za-z][A-Za-z0-9_.: -]*(/[A-Za-z0-9_.:-][A-Za-z0-9_.: -]*)+")


def volume_of(path: str) -> str:
    """Return the dataset of the device at a path, "" for others. udev writes a space as +, which no name has."""
    name = path[len(ZVOL) :].replace("+", " ") if path.startswith(ZVOL) else ""
    return name if _VOLUME.fullmatch(name) else ""


def path_of(disk: Element) -> str:
    """Return the path of the device or file that backs a disk; "" if there is none."""
    return disk.get("source", "dev") or disk.get("source", "file")


def name_of(disk: Element) -> str:
    """Return the path of a disk, or POOL//VOLUME for a volume of libvirt's; "" if there is neither."""
    source = next(iter(disk.all("source")), disk).attributes
    return path_of(disk) or (f"{source['pool']}//{source['volume']}" if {"pool", "volume"} <= source.keys() else "")


def managed(domain: Element, disk: Element) -> bool:
    """Whether a disk is managed: a plain disk on a volume (a file to bhyve's driver), or in one of our files."""
    ours = not is_bhyve(domain) and bool(disk_in(path_of(disk)))
    kind = "file" if ours or is_bhyve(domain) else "block"
    right = disk.attributes.get("type") == kind and disk.attributes.get("device", "disk") == "disk"
    return right and (ours or bool(volume_of(path_of(disk))))


def is_bhyve(domain: Element) -> bool:
    """Whether the domain runs in bhyve."""
    return domain.attributes.get("type") == "bhyve"


def devices(domain: Element) -> t.List[Element]:
    """Return the elements below <devices>."""
    return [device for part in domain.all("devices") for device in part.children]


def disks(domain: Element) -> t.List[Element]:
    """Return the <disk> elements."""
    return [device for device in devices(domain) if device.name == "disk"]


def hard_disks(domain: Element) -> t.List[Element]:
    """Return the disks, except drives with removable media."""
    return [disk for disk in disks(domain) if disk.attributes.get("device", "disk") in ("disk", "lun")]


def find(domain: Element, path: str) -> t.Optional[Element]:
    """Return the managed disk with this path."""
    return next((d for d in disks(domain) if path_of(d) == path and managed(domain, d)), None)


def slot_of(device: Element) -> t.Optional[Slot]:
    """Return the PCI slot of a device. None without one, or outside of PCI domain 0, which our slots cannot express."""
    address = next(iter(device.all("address")), None)
    if address is None or address.attributes.get("type") != "pci":
        return None
    numbers = [int(address.attributes.get(key, "0"), 0) for key in ("domain", "bus", "slot", "function")]
    return None if numbers[0] else Slot(*numbers[1:])


def ports(domain: Element) -> t.Dict[int, Element]:
    """Return the root ports by the number of the bus behind each."""
    return {
        int(c.attributes.get("index", "0")): c for c in controllers(domain) if c.attributes.get("model", "") == PORT
    }


def controllers(domain: Element, kind: str = "pci") -> t.List[Element]:
    """Return the controllers of this kind."""
    return [d for d in devices(domain) if d.name == "controller" and d.attributes.get("type") == kind]


def scsi_controllers(domain: Element) -> t.List[int]:
    """Return the numbers of the SCSI controllers that take disks of the model scsi."""
    virtio_scsi = (c.attributes for c in controllers(domain, "scsi") if c.attributes.get("model") == "virtio-scsi")
    return sorted(int(attributes.get("index", "0")) for attributes in virtio_scsi)


def digest(xml: str) -> str:
    """Return the SHA-256 of the text, which shows any change."""
    return hashlib.sha256(xml.encode()).hexdigest()


def parse_vm(xml: str, live: str, state: str, autostart: bool, persistent: bool) -> VmConfig:
    """Return the configuration of one VM. xml: the stored one. live: the running one, "" if the VM does not run.

    domain_uses reads what else the domain uses. Raises FlexdiskError UnexpectedOutput for a domain of another form.
    """
    with supported():
        running = Text(live).root if live else None
        return vm_of(Text(xml).root, running, digest(xml), state, autostart, persistent)


@contextlib.contextmanager
def supported() -> t.Iterator[None]:
    """Context manager around the parsing of a domain. An unknown form is FlexdiskError UnexpectedOutput."""
    try:
        yield
    except (IndexError, KeyError, RecursionError, ValueError) as exc:
        raise FlexdiskError(
            "UnexpectedOutput", f"libvirt describes a domain in a form that is not supported: {exc!r}"
        ) from exc


def vm_of(
    domain: Element, running: t.Optional[Element], digested: str, state: str, autostart: bool, persistent: bool
) -> VmConfig:
    """Return the configuration from the root elements, like parse_vm()."""
    uuid = domain.get("uuid").lower()
    if not is_uuid(uuid):
        raise ValueError(f"uuid {uuid!r}")
    entries = tuple(_entries(domain, running))
    both = [domain] if running is None else [domain, running]
    # Where its dataset is, else where it boots from.
    placed = sorted((e for e in entries if e.volume), key=lambda e: (f"/{uuid}/" not in e.volume, not e.boot))
    pool = placed[0].volume.split("/", 1)[0] if placed else ""
    if pool and not is_pool(pool):
        raise ValueError(f"pool {pool!r}")
    return VmConfig(
        uuid=uuid,
        alias=domain.get("name"),
        brand=BRAND,
        state=state,
        autoboot=autostart,
        pool=pool,
        dataset=vm_dataset(pool, uuid) if pool else "",
        flexible_disk_size=None,
        disks=entries,
        pci=_pci(domain, running),
        identity_in_zfs=True,
        models=("virtio", "scsi") if scsi_controllers(domain) else ("virtio",),
        first_boots=not any(order_of(d) for d in devices(domain)),
        boot_types=boot_types(domain),
        frozen=_frozen(domain, running, persistent),
        unplugged=_unplugged(domain, running),
        digest=digested,
        memory=_memory(domain),
        vcpus=int(domain.get("vcpu") or 1),
        guest_agent=_guest_agent(running) if running is not None else "",
        offers=frozenset.intersection(*map(domain_disk.offers, both)),
        claims=domain_disk.claims(
            d for one in both for d in devices(one) if not (d.name == "disk" and managed(one, d))
        ),
        run_id=running.attributes.get("id", "") if running is not None else "",
        fixed=_fixed(domain),
        min_vcpus=min_vcpus(domain),
    )


def _guest_agent(running: Element) -> str:
    """Return the state of the channel of QEMU's guest agent. Only a running domain has one."""
    channels = [device for device in devices(running) if device.get("target", "name") == AGENT]
    return channels[0].get("target", "state") if channels else ""


def _memory(domain: Element) -> int:
    """The memory in MiB. libvirt writes KiB."""
    unit: int = _UNITS[domain.get("memory", "unit") or "KiB"]
    return int(domain.get("memory") or 0) * unit // MIB


def _fixed(domain: Element) -> t.Dict[str, str]:
    """Return why memory or vcpus cannot change: libvirt refuses a contradictory configuration, or changes it back."""
    result = {}
    cells = any(numa.all("cell") for cpu in domain.all("cpu") for numa in cpu.all("numa"))
    if topology(domain):
        result["vcpus"] = "the <topology> of its CPU"
    elif cells or domain.all("vcpus"):
        result["vcpus"] = "the <numa> cells of its CPU" if cells else "the list <vcpus>"
    if cells or any(device.name == "memory" for device in devices(domain)):
        result["memory"] = "the <numa> cells of its CPU" if cells else "its <memory> devices"
    return result


def min_vcpus(domain: Element) -> t.Dict[str, int]:
    """Return how many vcpus each element of <cputune> needs. libvirt refuses a list with more, or cuts it."""
    result = {}
    for part in domain.all("cputune"):
        for name in ("vcpusched", "cachetune", "memorytune"):
            for one in part.all(name):
                listed = one.attributes.get("vcpus", "")
                label = f"<{name} vcpus='{listed}'> of its <cputune>"
                result[label] = 1 + max(_numbers(listed), default=-1)
    return result


def _numbers(listed: str) -> t.Set[int]:
    """The numbers of a list such as C(0-3,^2)."""
    result: t.Set[int] = set()
    for word in listed.replace(" ", "").split(","):
        if word.startswith("^"):
            result.discard(int(word[1:]))
        elif word:
            first, _dash, last = word.partition("-")
            result.update(range(int(first), int(last or first) + 1))
    return result


def topology(domain: Element) -> int:
    """Return how many vcpus the CPU topology has, 0 without one."""
    for cpu in domain.all("cpu"):
        for one in cpu.all("topology"):
            parts = [int(one.attributes.get(key, "1")) for key in ("sockets", "dies", "clusters", "cores", "threads")]
            return functools.reduce(operator.mul, parts)
    return 0


def order_of(device: Element) -> int:
    """Return the boot order of a device; 0 if it has none."""
    return int(device.get("boot", "order") or 0)


def boot_types(domain: Element) -> str:
    """Return the types of device that the domain boots from, in order; "" if they are only disks, or none is given."""
    types = [boot.attributes.get("dev", "") for part in domain.all("os") for boot in part.all("boot")]
    return ", ".join(types) if set(types) - {"hd"} else ""


def boot_disk(domain: Element) -> t.Optional[Element]:
    """Return the first disk in the boot order; without any order, the first disk."""
    rows = hard_disks(domain)
    if any(order_of(d) for d in devices(domain)):
        rows = sorted((d for d in rows if order_of(d)), key=order_of)
    return rows[0] if rows else None


def _entries(domain: Element, running: t.Optional[Element] = None) -> t.Iterator[DiskConfig]:
    boot = boot_disk(domain)
    for disk in disks(domain):
        media = disk.attributes.get("device", "disk")
        if not managed(domain, disk):
            reason = _left_out(domain, disk, media)
            yield DiskConfig(path=path_of(disk) or "none", media=media, boot=disk is boot, left_out=reason)
            continue
        yield described(domain, running, disk, disk is boot)


def described(domain: Element, running: t.Optional[Element], disk: Element, boot: bool) -> DiskConfig:
    """Return a disk with all its settings."""
    slot = slot_of(disk)
    return DiskConfig(
        path=path_of(disk),
        volume=volume_of(path_of(disk)),
        boot=boot,
        model=disk.get("target", "bus"),
        pci_slot=render_slot(slot) if slot else "",
        serial=disk.get("serial"),
        element=domain_disk.known(domain, disk, path_of(disk), usual_driver(domain)),
        mentions=_mentions(domain, running, disk),
    )


def _left_out(domain: Element, disk: Element, media: str) -> str:
    """Return which disk is not managed, and why; "" for drives with removable media."""
    if media not in ("disk", "lun"):
        return ""
    kind, path = disk.attributes.get("type", ""), path_of(disk)
    where = f"{disk.get('target', 'dev')} ({path or kind})"
    if kind == "volume":
        text = f"it is volume {disk.get('source', 'volume')} of libvirt's storage pool {disk.get('source', 'pool')}"
        return f"disk {where} is left alone: {text}, and not a path below {ZVOL}"
    if media == "lun":
        return f"disk {where} is left alone: its guest talks to the device itself (device='lun')"
    if volume_of(path):
        return f"disk {where} is left alone: its type is {kind}, not {'file' if is_bhyve(domain) else 'block'}"
    if kind == "block":
        return f"disk {where} is left alone: its path is not that of a volume below {ZVOL}"
    return (
        f"disk {where} is left alone: it is {'a file' if kind == 'file' else f'of type {kind}'}, and no volume of ZFS"
    )


def usual_driver(domain: Element) -> str:
    """Return the driver element of a new disk; bhyve's has none."""
    return "" if is_bhyve(domain) else _USUAL_DRIVER


def _mentions(domain: Element, running: t.Optional[Element], disk: Element) -> t.Tuple[str, ...]:
    """Return where else the configuration or the running domain names the path of a disk."""
    path, names = path_of(disk), [domain_disk.mentions(domain, disk, path_of(disk))] if path_of(disk) else []
    same = find(running, path) if running is not None else None
    if running is not None and same is not None:
        names.append(domain_disk.mentions(running, same, path))
    return tuple(dict.fromkeys(word for group in names for word in group))


def _frozen(domain: Element, running: t.Optional[Element], persistent: bool) -> str:
    if not persistent:
        return "the domain is transient: it has no configuration that could be changed"
    if running is not None:
        more = sorted({path_of(d) for d in hard_disks(running)} - {path_of(d) for d in disks(domain)} - {""})
        if more:
            return f"the running domain has disks that are missing from its configuration: {', '.join(more)}"
    return ""


def _unplugged(domain: Element, running: t.Optional[Element]) -> t.Tuple[str, ...]:
    """Return the configured disks that the running guest lacks. It may have released one when nobody waited."""
    there = {path_of(d) for d in disks(running)} if running is not None else set()
    paths = (path_of(d) for d in disks(domain) if managed(domain, d))
    return tuple(p for p in paths if p not in there) if running is not None else ()


def _who(device: Element) -> str:
    name = device.attributes.get("type", "") if device.name == "controller" else device.get("target", "dev")
    parts = (device.name, device.get("mac", "address") or name, device.attributes.get("index", ""))
    return " ".join(word for word in parts if word)


def _pci(domain: Element, running: t.Optional[Element]) -> Pci:
    """Return the PCI slots of a domain: free, in use, and usable while it runs. running: the running domain, if any."""
    both = [domain] if running is None else [domain, running]
    taken = _taken(both)
    if is_bhyve(domain):
        return _offer([f"0:{device}:0" for device in range(2, 31)], [], {**_RESERVED_BHYVE, **taken}, 1)
    roots = {c.attributes.get("model", ""): c for c in controllers(domain)}
    machine = domain.get("os/type", "machine")
    if "pcie-root" in roots or "q35" in machine:
        return _pci_express(both, taken)
    if "pci-root" in roots or "pc" in machine:
        return _pci_conventional(roots.get("pci-root"), taken)
    return Pci(strict=True, taken=taken)


def _taken(both: t.Sequence[Element]) -> t.Dict[str, str]:
    """Return the owners of the slots BUS:DEVICE of devices other than managed disks."""
    taken = {}
    for one in both:
        for device in devices(one):
            slot = slot_of(device)
            if slot is not None and not (device.name == "disk" and managed(one, device)):
                taken["%d:%d" % slot[:2]] = _who(device)
    return taken


def _pci_express(both: t.Sequence[Element], taken: t.Mapping[str, str]) -> Pci:
    """Return the slots of a PCI Express machine. Each is behind a root port, and more ports can be added while the
    guest is stopped.

    both: the configuration and, if the domain runs, the running domain.
    """
    there = [sorted(ports(one)) for one in both]
    last = max([int(c.attributes.get("index", "0")) for one in both for c in controllers(one)] or [0])
    coming = range(last + 1, min(last + _COMING_PORTS, 255) + 1)
    candidates = [_port_slot(bus) for bus in (*there[0], *coming)]
    fixed = {bus for bus, port in ports(both[0]).items() if _is_fixed(port)}
    hot = [_port_slot(bus) for bus in there[0] if bus in there[-1] and bus not in fixed]
    offer = _offer(candidates, hot, {**_RESERVED_Q35, **taken}, 8)
    free = tuple(_port_slot(bus) for bus in there[0] if bus not in fixed and f"{bus}:0" not in taken)
    return replace(offer, ports=free, addable_ports=tuple(map(_port_slot, coming)))


def _pci_conventional(root: t.Optional[Element], taken: t.Mapping[str, str]) -> Pci:
    """Return slots of a conventional PCI machine: all are on the root bus."""
    candidates = [f"0:{device}:0" for device in range(3, 32)]
    fixed = root is not None and _is_fixed(root)
    return _offer(candidates, [] if fixed else candidates, {**_RESERVED_PC, **taken}, 8)


def _is_fixed(controller: Element) -> bool:
    """Whether no device can be added to a controller while the guest runs."""
    return controller.get("target", "hotplug") == "off"


def _port_slot(bus: int) -> str:
    """Return the only slot behind a root port, by the number of the bus."""
    return f"{bus}:0:0"


def _offer(candidates: t.Iterable[str], hot: t.Iterable[str], taken: t.Mapping[str, str], functions: int) -> Pci:
    free = tuple(slot for slot in candidates if slot.rsplit(":", 1)[0] not in taken)
    return Pci(free, frozenset(hot) & frozenset(free), taken, functions, True)
