# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change the XML of a libvirt domain: text in, text out. All other bytes stay the same."""

from __future__ import annotations

import typing as t
from xml.sax.saxutils import escape

from ..model.dataset import ZVOL
from ..model.errors import FlexdiskError
from ..rules.identity import disk_in, serial_of
from ..rules.slots import parse_slot
from . import domain as facts
from . import domain_disk
from .xml_text import Element, Text, render

_PREFIX = {"virtio": "vd", "scsi": "sd"}
_Entry = t.Mapping[str, t.Any]


def device(xml: str, disk: _Entry, live: str = "") -> str:
    """Return the XML element of a new disk: path, uuid, pci_slot, model, boot. live: the running domain's XML or ""."""
    domain = Text(xml).root
    both = [domain, Text(live).root] if live else [domain]
    boots = disk["boot"] and _by_os(domain)
    block = not (facts.is_bhyve(domain) or disk_in(disk["path"]))
    given = _preserved(domain, disk)
    source = render("source", **{"dev" if block else "file": disk["path"]})
    target = {"dev": _target(disk["model"], both, boots), "bus": disk["model"], **given.target}
    parts = [
        render("disk", type="block" if block else "file", device="disk", **given.attributes)[: -len("/>")] + ">",
        *(f"  {child}" for child in given.children),
        "  " + (f"{source[: -len('/>')]}>{given.source}</source>" if given.source else source),
        "  " + render("target", **target),
        f"  <serial>{serial_of(disk['uuid'])}</serial>",
        "  " + render("boot", order=str(_free_order(domain))) if disk["boot"] and not boots else "",
        "  " + _address(disk, both),
        "</disk>",
    ]
    return "\n".join(part for part in parts if part.strip())


def _preserved(domain: Element, disk: _Entry) -> domain_disk.DiskParts:
    """Return the settings that a disk had before; for a new disk, the usual ones."""
    usual = facts.usual_driver(domain)
    text = disk.get("element", "") or f"<disk>{usual}</disk>"
    return domain_disk.parts(text, disk.get("without", ()))


def tuned(xml: str, disk: _Entry) -> str:
    """Return the XML with the disk's limits in <blkiotune>, for its present path."""
    given = _preserved(Text(xml).root, disk).tune
    if not given:
        return xml
    text = Text(untuned(xml, disk["path"]))
    device = f"<device><path>{escape(disk['path'])}</path>{given}</device>"
    tunes = text.root.all("blkiotune")
    if tunes:
        text.append(tunes[0], device)
    else:
        text.append(text.root, f"<blkiotune>{device}</blkiotune>", text.root.all("memory")[0])
    return str(text)


def untuned(xml: str, path: str) -> str:
    """Return the XML without the limits in <blkiotune> for a path."""
    text = Text(xml)
    for device in domain_disk.tunes(text.root, path):
        text.remove(device)
    return str(text)


def added(xml: str, disk: _Entry) -> str:
    """Return the XML with one more disk."""
    text = Text(tuned(xml, disk))
    there = facts.disks(text.root)
    text.append(_devices(text), device(xml, disk), there[-1] if there else None)
    return with_multifunction(str(text))


def removed(xml: str, path: str) -> str:
    """Return the XML without the disk that has this path."""
    text = Text(untuned(xml, path))
    text.remove(_disk_at(text, path))
    return with_multifunction(str(text))


def edited(xml: str, entries: t.Sequence[_Entry]) -> str:
    """Return the XML with other values for the disks with these paths: uuid, pci_slot, model and boot, where given.

    All change at once, so that two disks can swap slots. volume gives a disk another path.
    """
    text = Text(xml)
    renamed = {entry["path"] for entry in entries if "model" in entry}
    for booting in [entry["path"] for entry in entries if entry.get("boot")] or _first(text.root, renamed):
        _boot(text, _disk_at(text, booting))
    for entry in entries:
        text = Text(str(text))
        _edit(text, entry)
    return with_multifunction(str(text))


def _edit(text: Text, entry: _Entry) -> None:
    disk = _disk_at(text, entry["path"], "volume" in entry)
    if "uuid" in entry:
        _put(text, disk, "serial", f"<serial>{serial_of(entry['uuid'])}</serial>")
    if "model" in entry:
        attributes = {key: value for one in disk.all("target") for key, value in one.attributes.items()}
        attributes.update(dev=_target(entry["model"], [text.root]), bus=entry["model"])
        _put(text, disk, "target", render("target", **attributes))
    if "pci_slot" in entry or "model" in entry:
        _put(text, disk, "address", _address(entry, [text.root]))
    if "volume" in entry:
        _set_source(text, disk, ZVOL + entry["volume"])
        for path in (path for device in domain_disk.tunes(text.root, entry["path"]) for path in device.all("path")):
            text.replace(path, f"<path>{escape(ZVOL + entry['volume'])}</path>")


def _set_source(text: Text, disk: Element, path: str) -> None:
    """Give a disk another path. A volume of a libvirt storage pool becomes a block device."""
    (source,) = disk.all("source")
    if disk.attributes.get("type") != "volume":
        text.set(source, "dev" if disk.get("source", "dev") else "file", path)
        return
    text.set(disk, "type", "block")
    inner = "".join(text.of(child) for child in source.children)
    start = render("source", dev=path)
    text.replace(source, f"{start[: -len('/>')]}>{inner}</source>" if inner else start)


def resized(xml: str, changes: t.Mapping[str, int]) -> str:
    """Return the XML with other memory (MiB) and vcpus, where given."""
    text = Text(xml)
    values = {"vcpu": str(changes["vcpus"])} if "vcpus" in changes else {}
    if "memory" in changes:
        values.update({"memory": str(changes["memory"]), "currentMemory": str(changes["memory"])})
    for name, value in values.items():
        for element in text.root.all(name):
            attributes = {key: word for key, word in element.attributes.items() if key not in ("unit", "current")}
            unit = {} if name == "vcpu" else {"unit": "MiB"}
            start = render(name, **attributes, **unit)[: -len("/>")]
            text.replace(element, f"{start}>{value}</{name}>")
    return str(text)


def with_multifunction(xml: str) -> str:
    """Return the XML with multifunction set on devices that have several functions in use."""
    text = Text(xml)
    domain = text.root
    places = [(disk, facts.slot_of(disk)) for disk in facts.disks(domain) if facts.managed(domain, disk)]
    slots = [slot for _disk, slot in places if slot is not None]
    for disk, slot in places:
        if slot is not None and slot.function == 0 and sum(s[:2] == slot[:2] for s in slots) > 1:
            address = disk.all("address")[0]
            if address.attributes.get("multifunction") != "on":
                text.replace(address, render("address", **{**address.attributes, "multifunction": "on"}))
    return str(text)


def ported(xml: str, buses: t.Iterable[int]) -> str:
    """Return the XML with added root ports, with these bus numbers."""
    text = Text(xml)
    controllers = facts.controllers(text.root)
    added = [render("controller", type="pci", index=str(bus), model=facts.PORT) for bus in buses]
    if added:
        text.append(_devices(text), "\n".join(added), controllers[-1] if controllers else None)
    return str(text)


def _devices(text: Text) -> Element:
    return text.root.all("devices")[0]


def _disk_at(text: Text, path: str, any_name: bool = False) -> Element:
    """Return the managed disk with this path. any_name: also one that only its name keeps from being managed."""
    disk = facts.find(text.root, path)
    if disk is None and any_name:
        disk = next((one for one in facts.hard_disks(text.root) if facts.name_of(one) == path), None)
    if disk is None:
        raise FlexdiskError("Changed", f"the domain has no disk {path} any more")
    return disk


def _put(text: Text, parent: Element, name: str, new: str) -> None:
    """Replace the child with this name, or append it; "" removes it."""
    present = next(iter(parent.all(name)), None)
    if present is not None and new:
        text.replace(present, new)
    elif present is not None:
        text.remove(present)
    elif new:
        text.append(parent, new)


def _address(entry: _Entry, domains: t.Sequence[Element]) -> str:
    """Return a disk's address: its slot, or a unit other than 0 at the first SCSI controller; "" if libvirt chooses."""
    if entry.get("pci_slot"):
        slot = parse_slot(entry["pci_slot"])
        return "<address type='pci' domain='0x0000' bus='0x%02x' slot='0x%02x' function='0x%x'/>" % slot
    controllers = facts.scsi_controllers(domains[0]) if entry.get("model") == "scsi" else []
    if not controllers or controllers[0] == 0:
        return ""
    number = str(controllers[0])
    places = [a.attributes for domain in domains for d in facts.devices(domain) for a in d.all("address")]
    taken = {int(p.get("unit", "0")) for p in places if p.get("type") == "drive" and p.get("controller") == number}
    # Unit 7 is the controller itself.
    unit = next(unit for unit in range(len(taken) + 2) if unit not in taken | {7})
    return render("address", type="drive", controller=number, bus="0", target="0", unit=str(unit))


def _by_os(domain: Element) -> bool:
    return any(part.all("boot") for part in domain.all("os"))


def _free_order(domain: Element) -> int:
    orders = {facts.order_of(one) for one in facts.devices(domain)}
    return next(number for number in range(1, len(orders) + 2) if number not in orders)


def _boot(text: Text, disk: Element) -> None:
    """Make a disk the boot disk, in the place of the present one. Devices that are not disks keep their places."""
    types = facts.boot_types(text.root)
    if types:
        raise FlexdiskError(
            "NotSupported", f"the domain boots by type of device ({types}); give its devices a boot order"
        )
    for part in text.root.all("os"):
        for boot in part.all("boot"):
            text.remove(boot)
    before = facts.boot_disk(text.root)
    mine = facts.order_of(disk)
    order = facts.order_of(before) if before is not None else 0
    _put(text, disk, "boot", render("boot", order=str(order or _free_order(text.root))))
    if order and before is not None:
        _put(text, before, "boot", render("boot", order=str(mine)) if mine else "")


def _first(domain: Element, renamed: t.Container[str]) -> t.List[str]:
    """Return the disk that boots only as the first one, if it is renamed: it may not be the first afterwards."""
    disk = facts.boot_disk(domain)
    path = facts.path_of(disk) if disk is not None and not facts.order_of(disk) else ""
    return [path] if path in renamed and not facts.boot_types(domain) else []


def _target(model: str, domains: t.Iterable[Element], boots: bool = False) -> str:
    """Return a free name after that of the first disk, which may boot only as the first. boots: this disk boots."""
    prefix = _PREFIX.get(model, "vd")
    names = {disk.get("target", "dev") for domain in domains for disk in facts.disks(domain)}
    free = [number for number in range(702) if _name(prefix, number) not in names]
    first = -1 if boots else next((number for number in range(702) if _name(prefix, number) in names), -1)
    return _name(prefix, next((number for number in free if number > first), free[0]))


def _name(prefix: str, number: int) -> str:
    letters = ""
    while number >= 0:
        letters = chr(ord("a") + number % 26) + letters
        number = number // 26 - 1
    return prefix + letters
