# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read everything that a domain uses from its XML and that of its snapshots, beyond its list of disks."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.vm import DiskConfig, Use, VmConfig
from ..rules.layout import pool_of, vm_dataset
from ..rules.slots import render_slot
from . import domain, domain_disk
from .xml_text import Element, Text

_PATHS = ("dev", "file", "path")
_EXTERNAL = "external"


class Snapshot:
    """The content of one libvirt snapshot: the domain and its disks at that time."""

    def __init__(self, xml: str) -> None:
        root = Text(xml).root
        self.name = root.get("name")
        # The domain at that time: the configuration, and the running domain.
        self.domains = [part for name in ("domain", "inactiveDomain") for part in root.all(name)]
        rows = [disk for part in root.all("disks") for disk in part.all("disk")]
        # The overlays that were created, by the disks' targets.
        self.overlays = {
            disk.attributes.get("name", ""): domain.path_of(disk)
            for disk in rows
            if disk.attributes.get("snapshot", _EXTERNAL) == _EXTERNAL and domain.path_of(disk)
        }

    def bases(self) -> t.Iterator[t.Tuple[str, Element]]:
        """Return each overlay with the disk below it, as it was."""
        for part in reversed(self.domains):
            for disk in domain.disks(part):
                top = self.overlays.get(disk.get("target", "dev")) or self.overlays.get(domain.path_of(disk))
                if top and top != domain.path_of(disk):
                    yield top, disk


def parse_vm(
    xml: str,
    live: str,
    state: str,
    autostart: bool,
    persistent: bool,
    snapshots: t.Sequence[str] = (),
    volume_at: t.Callable[[str], str] = domain.volume_of,
    backup: str = "",
    device_at: t.Callable[[str], str] = lambda path: "",
) -> VmConfig:
    """Return the configuration like domain.parse_vm(), with all paths that the domain uses.

    snapshots: the XML of libvirt's snapshots. volume_at: returns the volume of a device, "" for any other path.
    device_at: the same for an existing device as a whole. backup: the XML of a running backup, if any. Raises
    FlexdiskError UnexpectedOutput for a domain of another form.
    """
    with domain.supported():
        stored = Text(xml).root
        running = Text(live).root if live else None
        taken = [Snapshot(text) for text in snapshots]
        config = domain.vm_of(stored, running, domain.digest(xml), state, autostart, persistent)
        both = [stored] if running is None else [stored, running]
        rows = zip(domain.disks(stored), config.disks)
        named = [_by_other_name(stored, running, disk, entry, device_at) for disk, entry in rows]
        disks = _with_names(named, both, volume_at)
        pool = config.pool or next((pool_of(e.named) for e in sorted(named, key=lambda e: not e.boot) if e.named), "")
        return replace(
            config,
            pool=pool,
            dataset=vm_dataset(pool, config.uuid) if pool else "",
            disks=tuple(_with_backup(disks, config.alias, both[-1], backup)),
            uses=_uses(config.alias, both, taken),
            unclear=() if running is not None else tuple(_unclear(stored, taken)),
            frozen=config.frozen or _copied(config.alias, running),
        )


def _by_other_name(
    stored: Element,
    running: t.Optional[Element],
    disk: Element,
    entry: DiskConfig,
    device_at: t.Callable[[str], str],
) -> DiskConfig:
    """Return the entry of a disk. If only its name, such as /dev/zd16, is not managed, `named` is its volume."""
    kind = disk.attributes.get("type")
    plain = entry.left_out and entry.media == "disk" and kind in ("block", "volume") and not domain.is_bhyve(stored)
    name = domain.name_of(disk)
    volume = device_at(name if kind == "volume" else re.sub("/+", "/", name)) if plain and name else ""
    if not volume:
        return entry
    known = domain.described(stored, running, disk, entry.boot)
    return replace(known, path=name, volume="", left_out=entry.left_out, named=volume)


def _with_names(
    entries: t.Iterable[DiskConfig], both: t.Iterable[Element], volume_at: t.Callable[[str], str]
) -> t.Iterator[DiskConfig]:
    """Return the disks with the elements that name their volumes by another path, such as /dev/zd16."""
    names: t.Dict[str, t.List[t.Tuple[str, str]]] = {}
    for one in both:
        ours = [disk for disk in domain.disks(one) if domain.managed(one, disk)]
        for element, path in domain_disk.other_names(one, ours):
            names.setdefault(volume_at(re.sub("/+", "/", path)), []).append((path, f"<{element}> as {path}"))
    for entry in entries:
        volume = entry.volume or entry.named
        there = names.get(volume, ()) if volume else ()
        more = [text for path, text in there if domain.PARTITION.sub("", path) != entry.path]
        yield replace(entry, mentions=tuple(dict.fromkeys((*entry.mentions, *more))))


def _with_backup(entries: t.Iterable[DiskConfig], name: str, running: Element, backup: str) -> t.Iterator[DiskConfig]:
    """Return the disks, marked as busy if a running backup uses them."""
    rows = [disk for part in Text(backup).root.all("disks") for disk in part.all("disk")] if backup else []
    targets = {row.attributes.get("name") for row in rows if row.attributes.get("backup", "yes") == "yes"}
    paths = {domain.path_of(disk) for disk in domain.disks(running) if disk.get("target", "dev") in targets}
    busy = f"a backup reads it: virsh domjobinfo {name} shows it, and virsh domjobabort {name} ends it"
    for entry in entries:
        yield replace(entry, element=replace(entry.element, busy=busy)) if entry.path in paths else entry


def _uses(name: str, both: t.Sequence[Element], snapshots: t.Sequence[Snapshot]) -> t.Dict[str, Use]:
    """Return the paths that a domain names, POOL//VOLUME for a volume of libvirt's. The first use counts."""
    result: t.Dict[str, Use] = {}
    for one in both:
        for path, use in _of_domain(name, one, one is both[0]):
            result.setdefault(path, use)
    for one in both:
        for disk in domain.disks(one):
            for path in map(domain.path_of, _bases(disk, snapshots)):
                result.setdefault(path, _overlay(name, disk, path, snapshots))
    for snapshot in snapshots:
        remedy = f"virsh snapshot-delete {name} {snapshot.name} --metadata forgets it, if nobody wants to go back to it"
        use = Use(f"in libvirt's snapshot {snapshot.name}", remedy, True)
        for path in [path for part in snapshot.domains for path in _paths(part)]:
            result.setdefault(path, use)
    return result


def _bases(disk: Element, snapshots: t.Sequence[Snapshot]) -> t.List[Element]:
    """Return the disks below a disk that it was based on before, as far as the snapshots show."""
    below = {top: base for snapshot in snapshots for top, base in snapshot.bases()}
    chain, seen = [disk], set()
    top = domain.path_of(_lowest(disk))
    while top in below and top not in seen:
        seen.add(top)
        chain.append(below[top])
        top = domain.path_of(_lowest(below[top]))
    return chain[1:]


def _lowest(disk: Element) -> Element:
    """Return the end of the chain that a disk is configured with."""
    return next((_lowest(part) for part in disk.all("backingStore")), disk)


def _of_domain(name: str, one: Element, stored: bool) -> t.Iterator[t.Tuple[str, Use]]:
    """Yield paths and how they are used. Plain uses come first: a disk may also be below another one."""
    for disk in domain.disks(one):
        if domain.managed(one, disk) and not domain.PARTITION.search(domain.path_of(disk)):
            running = f"as disk {disk.get('target', 'dev')} of the running VM"
            yield domain.path_of(disk), Use() if stored else Use(running, "its configuration lacks that disk", True)
    for disk in domain.disks(one):
        yield from _of_disk(name, disk)
    edit = Use("in its configuration beside its disks", f"virsh edit {name} takes it out")
    yield from ((path, edit) for path in _paths(one))


def _of_disk(name: str, disk: Element) -> t.Iterator[t.Tuple[str, Use]]:
    target = disk.get("target", "dev")
    media = disk.attributes.get("device", "disk")
    for part in disk.children:
        for path in _paths(part):
            if part.name == "mirror":
                yield path, Use(f"as what a block job copies {target} to", _end_of_job(name, target), True)
            elif part.name == "backingStore":
                yield path, _overlay(name, disk, path, ())
            elif part.name == "source" and media == "disk":
                remedy = f"give {target} the path /dev/zvol/POOL/VOLUME of its volume (virsh edit {name})"
                yield path, Use(f"as {target}, by the path {path}", remedy, True)
            elif part.name == "source":
                yield path, Use(f"as {media} {target}", f"virsh edit {name} takes it out")


def _overlay(name: str, disk: Element, base: str, snapshots: t.Sequence[Snapshot]) -> Use:
    """Return the use of the volume below an overlay. Data written since then is only in the overlay.

    Without --base it would be written back to the end of the chain, which may be an image that others use, too.
    """
    target, top = disk.get("target", "dev"), domain.path_of(disk)
    made = [f"virsh snapshot-delete {name} {one.name} --metadata" for one in snapshots if top in one.overlays.values()]
    pool, _slashes, volume = base.partition("//")
    path = f"$(virsh vol-path --pool {pool} {volume})" if volume else base
    remedy = f"start the VM, and virsh blockcommit {name} {target} --base {path} --active --pivot --wait "
    remedy += f"writes {top} back into it"
    remedy += f"; then {made[0]}" if made else ""
    return Use(f"below the overlay {top} ({target})", remedy, True, True)


def _end_of_job(name: str, target: str) -> str:
    return f"virsh blockjob {name} {target} shows the job, and with --abort ends it"


def _paths(element: Element) -> t.Iterator[str]:
    """Yield the paths that an element or one below it has as a source, and devices in arguments of QEMU."""
    for one in element.walk():
        if one.name == "source":
            source = one.attributes
            if "pool" in source and "volume" in source:
                yield f"{source['pool']}//{source['volume']}"
            paths = (re.sub("/+", "/", source.get(key, "")) for key in _PATHS)
            yield from (path for path in paths if path[:1] == "/")
        elif one.name == "qemu:arg":
            yield from domain_disk.DEVICE.findall(one.attributes.get("value", ""))


def _unclear(stored: Element, snapshots: t.Sequence[Snapshot]) -> t.Iterator[DiskConfig]:
    """Return disks that may be overlays. libvirt reports a chain that it only detected for running VMs alone."""
    for disk in domain.hard_disks(stored):
        if any(_is_told(one) for one in (disk, *_bases(disk, snapshots))):
            continue
        slot = domain.slot_of(disk)
        yield DiskConfig(
            path=domain.path_of(disk) or "none",
            pci_slot=render_slot(slot) if slot else "",
            serial=disk.get("serial"),
        )


def _is_told(disk: Element) -> bool:
    """Whether the chain of a disk is described up to its end. libvirt detects the rest of any other chain itself.

    The end is an empty element, a raw one, or a volume without further description.
    """
    last = _lowest(disk)
    if last.name == "backingStore" and not last.all("source"):
        return True
    kind = last.get("format" if last.name == "backingStore" else "driver", "type")
    if last.name == "backingStore" and not kind:
        return bool(domain.volume_of(domain.path_of(last)))
    return kind in ("", "raw")


def _copied(name: str, running: t.Optional[Element]) -> str:
    """Return why a VM is not changed while a block job copies one of its disks: it may end with another disk."""
    for disk in domain.disks(running) if running is not None else ():
        if disk.all("mirror"):
            target = disk.get("target", "dev")
            return f"a block job copies its disk {target}: {_end_of_job(name, target)}"
    return ""
