# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moving a libvirt domain to another host: which parts are moved, which are bound to the host, and what the other host
must have. By its text only.
"""

from __future__ import annotations

import typing as t

from ..model.errors import FlexdiskError
from ..rules.identity import mac_of
from . import domain as facts
from . import domain_variables
from .xml_text import Element, Text

_TOP = (
    "name uuid genid title description metadata memory currentMemory maxMemory memtune memoryBacking vcpu vcpus "
    "iothreads iothreadids defaultiothread cputune blkiotune resource sysinfo os features cpu clock on_poweroff "
    "on_reboot on_crash pm perf devices seclabel throttlegroups"
)
_DEVICES = (
    "emulator disk controller interface input graphics video sound audio serial console parallel channel rng watchdog "
    "memballoon panic vsock hub redirdev redirfilter iommu"
)
_DISK = (
    "driver source target serial wwn vendor product boot address alias iotune blockio geometry backingStore readonly"
)
_CPU_TIME = (
    "shares period quota global_period global_quota emulator_period emulator_quota iothread_period iothread_quota"
)
# The children that travel, by the name of the element.
_TRAVELS: t.Mapping[str, t.Collection[str]] = {
    "domain": frozenset(_TOP.split()),
    "devices": frozenset(_DEVICES.split()),
    "disk": frozenset(_DISK.split()),
    "cputune": frozenset(_CPU_TIME.split()),
    "blkiotune": ("weight",),
    "memoryBacking": ("nosharepages", "locked", "source", "access", "allocation", "discard"),
    "backingStore": (),
}
# Backends of character devices that QEMU itself serves.
_SERVED = ("pty", "unix", "file", "null", "vc", "spicevmc", "spiceport", "qemu-vdagent", "dbus")
_TYPES: t.Mapping[str, t.Collection[str]] = {
    "interface": ("network", "bridge", "direct", "user"),
    **dict.fromkeys(("serial", "console", "parallel", "channel", "redirdev"), _SERVED),
    "graphics": ("vnc", "spice", "egl-headless", "dbus"),
    "audio": ("none", "spice", "dbus"),
    "input": ("tablet", "mouse", "keyboard"),
    "seclabel": ("none",),
}
_ANYWHERE = ("", "127.0.0.1", "0.0.0.0", "::", "::1", "localhost")
_NO_PATHS = ("metadata", "title", "description", "sysinfo", "cmdline", "resource", "emulator")
_PORTS = ("port", "tlsPort", "websocket")


class Needs(t.NamedTuple):
    """What a host must have for a domain."""

    kind: str
    arch: str
    machine: str
    emulator: str
    # The text of a model of CPU that the host must be able to show, "" for none.
    cpu: str
    networks: t.Tuple[str, ...]
    bridges: t.Tuple[str, ...]
    # Network devices.
    devices: t.Tuple[str, ...]
    filters: t.Tuple[str, ...]
    # Absolute paths.
    paths: t.Tuple[str, ...]
    # Ports that only this domain may have.
    ports: t.FrozenSet[int]


def template(xml: str) -> str:
    """Return the domain without its managed disks, as a template for a new one."""
    text = Text(xml)
    for disk in facts.disks(text.root):
        if facts.managed(text.root, disk):
            text.remove(disk)
    return str(text).replace("$", "$$")


def plain(given: str) -> str:
    """Return the domain that a template describes."""
    return given.replace("$$", "$")


def elements(xml: str) -> t.Dict[str, str]:
    """Return the managed disks by their paths, as they are in the text."""
    text = Text(xml)
    return {facts.path_of(disk): text.of(disk) for disk in facts.disks(text.root) if facts.managed(text.root, disk)}


def dressed(xml: str, given: t.Mapping[str, str]) -> str:
    """Return the domain whose managed disks are these elements, by the paths that they have now."""
    text = Text(xml)
    for path, element in given.items():
        disk = facts.find(text.root, path)
        if disk is None:
            raise FlexdiskError("Changed", f"the domain has no disk {path} any more")
        new = Text(element)
        (source,) = new.root.all("source")
        new.set(source, "dev" if source.attributes.get("dev") else "file", path)
        text.replace(disk, str(new))
    return str(text)


def stays(xml: str) -> t.List[str]:
    """Return the parts of a domain that are bound to its host, as text."""
    domain = Text(xml).root
    kind = domain.attributes.get("type", "")
    if kind not in ("kvm", "qemu"):
        return [f"the hypervisor {kind}"]
    items = [word for element in domain.walk() for word in _odd(element)]
    items += domain_variables.stays(domain)
    items += ["CPUs of its own (cpuset)"] if domain.get("vcpu", "cpuset") else []
    items += [f"the address {one}, at which it listens" for one in _listens(domain)]
    return list(dict.fromkeys(items))


def odd_disk(element: str) -> t.List[str]:
    """Return the parts of a disk's element that are bound to its host, or do not belong to a disk, as text."""
    root = Text(element).root
    sources = root.all("source")
    right = root.name == "disk" and len(sources) == 1 and bool(facts.path_of(root))
    return [word for one in root.walk() for word in _odd(one)] if right else ["a disk without one source"]


def _odd(element: Element) -> t.Iterator[str]:
    """Yield the parts of an element that cannot be moved."""
    name, kind = element.name, element.attributes.get("type", "")
    allowed = _TRAVELS.get(name)
    if allowed is not None:
        yield from (f"<{child.name}>" for child in element.children if child.name not in allowed)
    if name in _TYPES and kind and kind not in _TYPES[name]:
        yield f"<{name} type='{kind}'>"
    if name == "disk" and any(source.children for source in element.all("source")):
        yield "a source of more than a path"
    if name == "rng" and element.get("backend", "model") not in ("random", "builtin"):
        yield "<rng> of another source"
    if name == "partition" and element.text.strip() != "/machine":
        yield f"the partition {element.text.strip()}"
    if name == "vsock" and element.get("cid", "auto") != "yes":
        yield "<vsock> with a fixed number"


def _listens(domain: Element) -> t.Iterator[str]:
    for graphics in _devices(domain, "graphics"):
        given = (graphics.attributes.get("listen", ""), *_of_listens(graphics, "address"))
        yield from (address for address in given if address not in _ANYWHERE)


def _of_listens(graphics: Element, attribute: str) -> t.List[str]:
    return [listen.attributes.get(attribute, "") for listen in graphics.all("listen")]


def _devices(domain: Element, name: str) -> t.List[Element]:
    return [device for device in facts.devices(domain) if device.name == name]


def needs(xml: str) -> Needs:
    """Return what a host must have for a domain."""
    text = Text(xml)
    domain = text.root
    nics, graphics = _devices(domain, "interface"), _devices(domain, "graphics")
    networks = [nic.get("source", "network") for nic in nics]
    return Needs(
        kind=domain.attributes.get("type", ""),
        arch=next((part.get("type", "arch") for part in domain.all("os")), ""),
        machine=domain.get("os/type", "machine"),
        emulator=domain.get("devices/emulator"),
        cpu=_cpu(text),
        networks=_named(networks + [name for one in graphics for name in _of_listens(one, "network")]),
        bridges=_named(nic.get("source", "bridge") for nic in nics if nic.attributes.get("type") == "bridge"),
        devices=_named(nic.get("source", "dev") for nic in nics),
        filters=_named(nic.get("filterref", "filter") for nic in nics),
        paths=_named(_paths(domain)),
        ports=ports(domain),
    )


def _named(names: t.Iterable[str]) -> t.Tuple[str, ...]:
    return tuple(sorted({one for one in names if one}))


def _cpu(text: Text) -> str:
    """Return a CPU model to compare with the host's. The host's own models are always available."""
    for cpu in text.root.all("cpu"):
        custom = cpu.attributes.get("mode", "custom") == "custom" and cpu.all("model")
        if custom and cpu.attributes.get("check") != "none" and text.root.attributes.get("type") == "kvm":
            return text.of(cpu)
    return ""


def macs(domain: Element) -> t.FrozenSet[str]:
    """Return the MAC addresses of the NICs in the domain."""
    return frozenset(mac_of(nic.get("mac", "address")) for nic in _devices(domain, "interface")) - {""}


def ports(domain: Element) -> t.FrozenSet[int]:
    """Return the ports of the host that the domain uses."""
    fixed = (g.attributes for g in _devices(domain, "graphics") if g.attributes.get("autoport") != "yes")
    given = (one.get(key, "") for one in fixed for key in _PORTS)
    return frozenset(int(text) for text in given if text.isdecimal()) - {0}


def _paths(element: Element, kind: str = "") -> t.Iterator[str]:
    """Yield absolute paths that must exist, and the folders of files to be created. kind: type of the parent."""
    if element.name in _NO_PATHS:
        return
    made = element.name == "log" or kind == "file" or element.attributes.get("mode") == "bind"
    for value in (*element.attributes.values(), element.text.strip()):
        if value.startswith("/"):
            its_file = element.name == "nvram" and value == domain_variables.path_of_nvram(element)
            yield value.rpartition("/")[0] if made or its_file else value
    for child in element.children:
        yield from _paths(child, element.attributes.get("type", ""))
