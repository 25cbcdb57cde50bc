# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of a disk in a libvirt domain beyond path, target, address and serial: read as text, written back."""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError
from ..model.vm import DiskElement
from ..rules.disk_element import BLOCK_LIMITS, FORMAT, LATE_LIMITS
from ..rules.identity import is_serial
from .xml_text import Element, Text, dump

_BLKIOTUNE = "blkiotune"
# Attributes and children that a disk keeps. "tune" has the limits for its path in <blkiotune> of the domain.
_ATTRIBUTES = ("snapshot", "model")
_CHILDREN = (
    "driver", "iotune", "throttlefilters", "blockio", "geometry", "wwn", "vendor", "product", "readonly", "shareable",
    "transient", "encryption",
)  # fmt: skip
_OF_SOURCE = ("encryption", "seclabel", "reservations", "slices")
_OF_TARGET = ("removable", "rotation_rate", "tray")
_TUNE = "tune"
# Children that a disk gets again wherever it is attached, or that libvirt only reports.
_ANEW = ("source", "target", "address", "serial", "boot", "privateData")
# Without these the data cannot be read, or is incomplete.
_HOLDS = ("backingStore", "dataStore", "mirror", "auth")
# Options of the driver that only disks of the model virtio have.
_VIRTIO = ("queues", "queue_size", "ioeventfd", "event_idx", "iommu", "ats", "packed", "page_per_vq")
_SCSI = ("vendor", "product", "wwn")
_OWN_ALIAS = "ua-"
_NOT_A_PATH = "A-Za-z0-9_./:-"
# The path of a device in an attribute, a text or an argument.
DEVICE = re.compile(r"/dev/[^,\s\"'\\]+")


def known(domain: Element, disk: Element, path: str, usual: str) -> DiskElement:
    """Return the settings that the domain has of a disk. usual: the driver element of a new disk, "" for none."""
    parts = [dump(child) for child in disk.children if _is_kept(child)]
    inner = "".join(dump(c) for one in disk.all("source") for c in one.children if c.name in _OF_SOURCE)
    parts += [_wrap("source", {}, inner)] if inner else []
    target = {key: value for one in disk.all("target") for key, value in one.attributes.items() if key in _OF_TARGET}
    parts += [_wrap("target", target, "")] if target else []
    parts += [_wrap(_TUNE, {}, "".join(map(dump, tune))) for tune in [_tunes(domain, path)] if tune]
    attributes = {key: value for key, value in disk.attributes.items() if key in _ATTRIBUTES}
    odd = [c.name for c in disk.children if not (_is_kept(c) or c.name in _ANEW or c.name == "alias")]
    odd += [c.name for s in disk.all("source") for c in s.children if c.name not in (*_OF_SOURCE, "privateData")]
    text = "" if parts == [usual] * bool(usual) and not attributes else _wrap("disk", attributes, "".join(parts))
    names = [f"<{name}>" for name in odd]
    return DiskElement(
        text=text,
        format=_format(disk),
        needs=(*dict.fromkeys(_needs(disk)), *([LATE_LIMITS] if _tunes(domain, path) else [])),
        claims=tuple(_claims(disk)),
        lost=(*(word for word in names if word[1:-1] not in _HOLDS), *_serial(disk)),
        holds=tuple(f"its data needs {word}" for word in names if word[1:-1] in _HOLDS),
        unresizable=_unresizable(disk),
    )


def _serial(disk: Element) -> t.Iterator[str]:
    """Yield the serial of a disk, if it does not come from a uuid. An attached disk shows the serial of its uuid."""
    serial = disk.get("serial")
    if serial and not is_serial(serial):
        yield f"serial {serial}"


def _unresizable(disk: Element) -> str:
    """Return why QEMU cannot resize the disk: it is read-only, or its data is smaller than its volume."""
    if disk.all("readonly"):
        return "it is read-only"
    if any(one.name == "slices" for one in disk.walk()):
        return "it is a part of its volume"
    kind = _format(disk)
    return f"it is {'encrypted' if kind == 'luks' else kind}" if kind else ""


def _is_kept(child: Element) -> bool:
    """Whether a disk keeps an element. Aliases of libvirt are chosen again; of a backing chain only the end stays."""
    if child.name == "alias":
        return child.attributes.get("name", "").startswith(_OWN_ALIAS)
    if child.name == "backingStore":
        return not child.attributes and not child.children
    return child.name in _CHILDREN


def _wrap(name: str, attributes: t.Mapping[str, str], inner: str) -> str:
    return dump(Text(f"<{name}>{inner}</{name}>").root, attributes)


def tunes(domain: Element, path: str) -> t.List[Element]:
    """Return the elements of <blkiotune> for a path."""
    every = [device for part in domain.all(_BLKIOTUNE) for device in part.all("device")]
    return [device for device in every if device.get("path") == path]


def _tunes(domain: Element, path: str) -> t.List[Element]:
    return [child for device in tunes(domain, path) for child in device.children if child.name != "path"]


def _format(disk: Element) -> str:
    kind = disk.get("driver", "type")
    if kind not in ("", "raw"):
        return kind
    return "luks" if any(one.name == "encryption" for one in disk.walk()) else ""


def _needs(disk: Element) -> t.Iterator[str]:
    for driver in disk.all("driver"):
        if driver.attributes.get("iothread"):
            yield f"iothread {driver.attributes['iothread']}"
        yield from (f"iothread {one.attributes.get('id', '')}" for one in driver.walk() if one.name == "iothread")
        yield from (f"virtio option {key}" for key in driver.attributes if key in _VIRTIO)
    yield from ["virtio model"] if disk.attributes.get("model") else []
    yield from (f"scsi {name}" for name in _SCSI if disk.all(name))
    yield from (f"scsi {key}" for one in disk.all("target") for key in one.attributes if key == "rotation_rate")
    for one in disk.walk():
        if one.name == "secret":
            yield f"secret {one.attributes.get('uuid') or one.attributes.get('usage', '')}"
        if one.name == "throttlefilter":
            yield f"throttle group {one.attributes.get('group', '')}"


def _claims(disk: Element) -> t.Iterator[str]:
    for alias in disk.all("alias"):
        if _is_kept(alias):
            yield f"alias {alias.attributes['name']}"
    yield from (f"wwn {one.text.strip()}" for one in disk.all("wwn"))


# -- what a domain has for it


def offers(domain: Element) -> t.FrozenSet[str]:
    """Return which needs of disks a domain can meet."""
    ids = [one.attributes.get("id", "") for part in domain.all("iothreadids") for one in part.all("iothread")]
    count = domain.get("iothreads")
    free = (str(number) for number in range(1, len(ids) + 1 + (int(count) if count.isdigit() else 0)))
    more = int(count) - len(ids) if count.isdigit() else 0
    ids += [number for number in free if number not in ids][: max(0, more)]
    groups = [one.get("group_name") for part in domain.all("throttlegroups") for one in part.children]
    return frozenset([f"iothread {one}" for one in ids] + [f"throttle group {one}" for one in groups if one])


def claims(others: t.Iterable[Element]) -> t.FrozenSet[str]:
    """Return which values that must be unique devices other than our disks have."""
    return frozenset(claim for device in others for claim in _claims(device))


def mentions(domain: Element, disk: Element, path: str) -> t.Tuple[str, ...]:
    """Return the elements that name a disk or its partition, besides its own source and its limit in <blkiotune>."""
    token = re.compile(rf"(?<![{_NOT_A_PATH}]){re.escape(path)}(?:-part\d+)?(?![{_NOT_A_PATH}])")
    sources = disk.all("source")
    ours = [*sources, *(part for device in tunes(domain, path) for part in device.all("path"))]
    actual = [
        f"<{one.name}>" for one in _functional(domain) if not any(one is other for other in ours) and _names(one, token)
    ]
    return tuple(dict.fromkeys(actual))


def other_names(domain: Element, disks: t.Iterable[Element]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield the elements that name a device, each with its path. The sources of these disks are left out."""
    sources = [source for disk in disks for source in disk.all("source")]
    for one in _functional(domain):
        if not any(one is source for source in sources):
            texts = (*one.attributes.values(), one.text)
            yield from ((one.name, path) for text in texts for path in DEVICE.findall(text))


def _names(element: Element, token: t.Pattern[str]) -> bool:
    return any(token.search(value) for value in (*element.attributes.values(), element.text))


def _functional(element: Element) -> t.Iterator[Element]:
    """Yield all elements, except those that only people or other tools read."""
    for child in element.children:
        if child.name not in ("metadata", "title", "description"):
            yield child
            yield from _functional(child)


# -- and back


class DiskParts(t.NamedTuple):
    """The preserved settings for a new disk element: attributes, attributes of the target, children of the source,
    other children as text, and the limits of <blkiotune>.
    """

    attributes: t.Mapping[str, str]
    target: t.Mapping[str, str]
    source: str
    children: t.Tuple[str, ...]
    tune: str


def parts(text: str, without: t.Collection[str] = ()) -> DiskParts:
    """Return the settings in the text that known() has written. without: the names of those that the VM cannot have."""
    root = Text(text).root
    if root.name != "disk":
        raise FlexdiskError("InvalidArgument", "what is kept of the disk is not of libvirt")
    raw = FORMAT in without
    children = [c for c in root.children if _is_kept(c) and not _left_out(c, without, raw)]
    source = "".join(dump(c) for s in root.all("source") for c in s.children if _may_return(c, raw))
    target = {k: v for one in root.all("target") for k, v in one.attributes.items() if k in _OF_TARGET}
    if "scsi rotation_rate" in without:
        target.pop("rotation_rate", None)
    limits = [] if BLOCK_LIMITS in without else [c for one in root.all(_TUNE) for c in one.children]
    return DiskParts(
        {k: v for k, v in root.attributes.items() if k in _ATTRIBUTES and f"virtio {k}" not in without},
        target,
        source,
        tuple(_driver(c, without, raw) if c.name == "driver" else dump(c) for c in children),
        "".join(dump(c) for c in limits if c.name.endswith("_sec") or c.name == "weight"),
    )


def _may_return(child: Element, raw: bool) -> bool:
    return child.name in _OF_SOURCE and not (raw and child.name in ("encryption", "slices"))


def _left_out(child: Element, without: t.Collection[str], raw: bool) -> bool:
    if child.name in ("encryption", "backingStore") and raw:
        return True
    if child.name == "throttlefilters":
        return any(word.startswith("throttle group ") for word in without)
    return f"scsi {child.name}" in without or any(claim in without for claim in _claims_of(child))


def _claims_of(child: Element) -> t.List[str]:
    if child.name == "alias":
        return [f"alias {child.attributes.get('name', '')}"]
    return [f"wwn {child.text.strip()}"] if child.name == "wwn" else []


def _driver(driver: Element, without: t.Collection[str], raw: bool) -> str:
    """Return the driver element without iothreads and options that the VM cannot have."""
    lacks_threads = any(word.startswith("iothread ") for word in without)
    gone = {word[len("virtio option ") :] for word in without if word.startswith("virtio option ")}
    attributes = {
        k: v for k, v in driver.attributes.items() if k not in gone and not (lacks_threads and k == "iothread")
    }
    attributes.update({"type": "raw"} if raw and "type" in attributes else {})
    inner = [dump(c) for c in driver.children if not (lacks_threads and c.name == "iothreads")]
    return _wrap("driver", attributes, "".join(inner))


def absent(wanted: Element, actual: Element) -> t.List[str]:
    """Return the children of a wanted element that the actual one lacks, or has with other values, as text."""
    return [
        f"<{one.name}>" for one in wanted.children if not any(_covers(one, other) for other in actual.all(one.name))
    ]


def _covers(wanted: Element, actual: Element) -> bool:
    same = all(actual.attributes.get(key) == value for key, value in wanted.attributes.items())
    return same and wanted.text.strip() == actual.text.strip() and not absent(wanted, actual)
