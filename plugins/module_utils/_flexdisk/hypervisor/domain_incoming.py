# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse dangerous parts of a libvirt domain that another host describes, unless this host's inventory allows them.

The other host may be hostile. Its description must not let a guest read or write files of this host, run programs of
its choice, or run unconfined. What libvirt itself serves is allowed; everything else is refused by name.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from ..rules.incoming import allows_path
from . import domain_variables
from .xml_text import Element, Text

UNCONFINED = "seclabel none"
_EMULATOR = re.compile(r"/usr/(?:local/)?(?:bin|libexec)/(?:qemu-system-[a-z0-9_]+|qemu-kvm|kvm)")
_FIRMWARE = "/usr/share/"
_IMAGES = "/var/lib/libvirt/images/"
# Where libvirt keeps the sockets of a guest's channels, by the first 20 characters of the name of its domain.
_SOCKETS = (
    r"/(?:var/lib|run|var/run)/libvirt/qemu/channel/(?:target/)?(?:domain-(?:[0-9]+-)?%s/|%s\.org\.)[A-Za-z0-9._-]+"
)
_RANDOM = ("/dev/urandom", "/dev/random")
# Elements that nothing opens, attributes that hold no path although a slash may be in them, and texts of that kind.
_TEXT_ONLY = ("metadata", "title", "description", "cmdline")
_NO_PATH = ("timezone",)
_PLAIN_TEXTS = ("entry", "serial", "vendor", "product", "wwn", "name")
# Attributes and texts that hold a path, also a relative one.
_PATH = frozenset(("path", "file", "socket", "dir", "template", "logFile", "tap", "vhost", "rendernode", "tty"))
_PATH_TEXTS = frozenset(("kernel", "initrd", "dtb", "emulator", "loader", "nvram", "table", "shim", "bootloader"))
# Attributes that a disk of the collection may have.
_DISK_ATTRIBUTES: t.Mapping[str, t.Collection[str]] = {
    "type": ("block", "file"),
    "device": ("disk",),
    "model": ("virtio", "virtio-transitional", "virtio-non-transitional"),
    "snapshot": ("no", "internal"),
}
_OF_SOURCE = ("index", "startupPolicy")


def refused(xml: str, allowed: t.Collection[str]) -> t.List[str]:
    """Return the refused parts of the domain, each as its kind and its value.

    allowed: paths and names, as rules/incoming.py checks them.
    """
    root = Text(xml).root
    refusals = [word for element in root.children for word in _below(element, (root,), allowed)]
    return list(dict.fromkeys(refusals))


def refused_disk(element: str, allowed: t.Collection[str]) -> t.List[str]:
    """Return the refused parts of a managed disk's element. Only the path of its source is replaced here."""
    root = Text(element).root
    refusals = [
        f"disk {key} {value}" for key, value in root.attributes.items() if value not in _DISK_ATTRIBUTES.get(key, ())
    ]
    wanted = {"block": "dev", "file": "file"}.get(root.attributes.get("type", ""), "")
    for source in root.all("source"):
        refusals += [f"disk source {key}" for key in source.attributes if key not in (wanted, *_OF_SOURCE)]
    # Of other formats QEMU opens further files, whose names are in the data of the disk.
    formats = [driver.attributes.get("type", "raw") for driver in root.all("driver")]
    refusals += [word for word in (f"disk driver {kind}" for kind in formats if kind != "raw") if word not in allowed]
    inside = [child for child in root.children if child.name != "source"]
    return refusals + [word for child in inside for word in _below(child, (root,), allowed)]


def _below(element: Element, above: t.Tuple[Element, ...], allowed: t.Collection[str]) -> t.Iterator[str]:
    if element.name in _TEXT_ONLY:
        return
    if element.name == "seclabel" and element.attributes.get("type") == "none" and UNCONFINED not in allowed:
        yield UNCONFINED
    for path in _paths(element, above[-1]):
        if not allows_path(allowed, path) and not _is_known(element, path, above):
            yield f"{_label(element, above)} {path}"
    for child in element.children:
        yield from _below(child, (*above, element), allowed)


def _paths(element: Element, parent: Element) -> t.Iterator[str]:
    """Return the values that may be a path or a name on this host: all with a slash, and all of a source."""
    source = element.name == "source" and parent.name == "disk"
    for key, value in element.attributes.items():
        slash = "/" in value and key not in _NO_PATH and not key.startswith("xmlns")
        if value and (slash or key in _PATH or (source and key not in _OF_SOURCE)):
            yield value
    text = element.text.strip()
    if text and (element.name in _PATH_TEXTS or ("/" in text and element.name not in _PLAIN_TEXTS)):
        yield text


def _label(element: Element, above: t.Tuple[Element, ...]) -> str:
    """Return the element for people, after the device that it belongs to."""
    if above[0].name == "disk":
        return f"disk {element.name}"
    return f"{above[2].name} {element.name}" if len(above) > 2 else element.name


def _is_known(element: Element, path: str, above: t.Tuple[Element, ...]) -> bool:
    """Whether every libvirt host has this path for this purpose."""
    if not path or posixpath.normpath(path) != path:
        return False
    name, parent = element.name, above[-1]
    if name == "emulator":
        return bool(_EMULATOR.fullmatch(path))
    if name == "loader":
        return path.startswith(_FIRMWARE) and element.attributes.get("readonly") != "no"
    if name == "nvram" or parent.name == "nvram":
        template = element.attributes.get("template") == path
        return path.startswith(_FIRMWARE) if template else domain_variables.is_place(path)
    if name == "partition":
        return parent.name == "resource"  # a group of processes, which stays() has checked
    if name == "backend":
        return parent.name == "rng" and path in _RANDOM
    if name == "source" and parent.attributes.get("type") == "unix":
        domain_name = re.escape(above[0].get("name")[:20])
        return (
            bool(re.fullmatch(_SOCKETS % (domain_name, domain_name), path))
            and element.attributes.get("mode", "bind") == "bind"
        )
    if name == "source" and parent.name == "disk":
        return _is_medium(parent, path)
    return False


def _is_medium(disk: Element, path: str) -> bool:
    """Whether this is an image in the usual folder that a guest can only read."""
    reads = disk.attributes.get("device") == "cdrom"
    return reads and path.startswith(_IMAGES) and path.endswith(".iso")
