# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Makes the steps of single disks: the words for the human, the arguments for the engine."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import RECORD
from ..model.sizes import MIB, render_bytes, render_change, render_mib
from ..model.vm import FILE, SPARSE, THICK, Disk, Vm
from ..rules import identity, slots, snapshots
from ..rules.differences import crosses, fact_changes, put_aside
from ..rules.layout import copy_place, index_of, parked_place
from ..rules.reservation import PoolGeometry, automatic_reservation
from .resolve import Leaver, Target
from .steps import Step

PARKED_PREFIX = "flexdisk-parked-"
DEFAULT_BLOCK = 16384


def facts_of(disk: Disk, **changes: t.Any) -> t.Dict[str, str]:
    """The properties that describe the disk as the hypervisor and we see it, with changes."""
    fields: t.Dict[str, t.Any] = {
        "uuid": disk.uuid or disk.volume.user.get("uuid", ""),
        "name": disk.name,
        "vm": disk.vm,
        "index": disk.index,
        "slot": disk.pci_slot,
        "model": disk.model,
        "boot": disk.boot,
        "kind": disk.type,
        "preserve": disk.preserve,
        "description": disk.description,
        "tags": disk.tags,
        "remaining": disk.remaining,
    }
    fields.update(changes)
    return identity.facts(**fields)


def _stale(disk: Disk, facts: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Of the facts those that the volume does not carry yet."""
    return {key: value for key, value in facts.items() if disk.volume.user.get(key, "") != value}


def _unmarked(disk: Disk) -> t.Dict[str, str]:
    """Of a disk that is where it shall be, what a conversion has left."""
    return {"from": "", "copied": ""} if identity.is_aside(disk.volume.user.get("from", "")) else {}


def _wanted(disk: Disk, target: Target) -> t.Dict[str, str]:
    changes = {key: wanted for key, (_now, wanted) in fact_changes(target.spec, disk).items()}
    facts = facts_of(disk, remaining=target.basis if target.spec.remaining else "", **changes)
    return {**facts, **(_unmarked(disk) if disk.path else {})}


def persist(vm: Vm, places: bool) -> t.Optional[Step]:
    """Uuids for disks that an old vmadm gave none, and with places=True the slots where bhyve has put them so far.

    Without its slot written down a disk would move when another one is taken away. The uuid follows from the guid, so
    that it can be predicted.
    """
    entries: t.Dict[str, t.Dict[str, t.Any]] = {}
    configured = {entry.path: entry for entry in vm.config.disks}
    for disk in vm.disks:
        entry = configured[disk.path]
        lacks: t.Dict[str, t.Any] = {}
        if not (entry.uuid or disk.hidden or disk.disowned) and disk.volume.guid:
            lacks["uuid"] = disk.uuid or identity.uuid_of(disk.volume.guid)
        if places and not entry.pci_slot and disk.pci_slot:
            lacks["pci_slot"] = disk.pci_slot
        if lacks:
            entries[disk.volume.name] = lacks
    if not entries:
        return None
    words = ", ".join(vm_disk.label for vm_disk in vm.disks if vm_disk.volume.name in entries)
    paths = {disk.volume.name: disk.path for disk in vm.disks}
    return Step("edit", "~ uuid and slot of %s written down" % words, args={"entries": entries, "paths": paths})


def ports(numbers: t.Sequence[int]) -> t.Iterator[Step]:
    """Numbers follow each other."""
    if numbers:
        yield Step("ports", "+ %s" % ports_text(numbers), args={"ports": tuple(numbers)})


def ports_text(numbers: t.Sequence[int]) -> str:
    if len(numbers) == 1:
        return "PCIe root port %d" % numbers[0]
    return "PCIe root ports %d to %d" % (numbers[0], numbers[-1])


def forget(vm: Vm) -> t.Iterator[Step]:
    """Take out of the configuration what lies parked; vmadm finds nothing there to destroy."""
    configured = {entry.path: entry for entry in vm.config.disks}
    parked = {disk.uuid: disk for disk in vm.parked}
    for entry in (configured[path] for path in vm.ghosts):
        label = parked[entry.uuid].label
        text = "- %s, parked already, out of the configuration" % label
        yield Step("forget", text, label, args={"path": entry.path, "volume": entry.volume})


def unguard(disks: t.Iterable[Disk]) -> t.Iterator[Step]:
    """Remove the guards of an interrupted run."""
    for disk in disks:
        if disk.guarded:
            yield Step("unguard", "- left-over guard of %s" % disk.label, disk.label, args={"volume": disk.volume.name})


def identity_step_text(disk: Disk, target: Target) -> str:
    changes = fact_changes(target.spec, disk)
    if not disk.adopted:
        return "= %s adopted (%s at %s)" % (target.label, disk.volume.name, disk.pci_slot or "legacy slot")
    words = []
    for key, (now, wanted) in changes.items():
        words.append("renamed from %s" % now if key == "name" else "%s %s -> %s" % (key, _word(now), _word(wanted)))
    return "~ %s %s" % (target.label, ", ".join(words))


def _word(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join("%s=%s" % item for item in sorted(value.items())) or "none"
    return repr(value) if value else "none"


def identity_of(disk: Disk, target: Target) -> t.Optional[Step]:
    """What of the disk's own facts must be written; the volume's copy of the hypervisor's word silently."""
    stale = _stale(disk, _wanted(disk, target))
    if not stale:
        return None
    reported = not disk.adopted or fact_changes(target.spec, disk)
    if not reported:
        return Step("copy", "", target.label, args={"volume": disk.volume.name, "facts": stale})
    text = identity_step_text(disk, target)
    return Step("identity", text, target.label, args={"volume": disk.volume.name, "facts": stale})


def copy(disk: Disk) -> t.Optional[Step]:
    """Bring an adopted disk's properties in line with the hypervisor."""
    stale = _stale(disk, {**facts_of(disk), **_unmarked(disk)}) if disk.adopted else {}
    return Step("copy", "", disk.label, args={"volume": disk.volume.name, "facts": stale}) if stale else None


def register(disk: Disk, changes: t.Mapping[str, t.Any], more: t.Mapping[str, str]) -> Step:
    """Give an attached disk its identity; more are properties that do not describe it."""
    facts = facts_of(disk, **changes)
    again = " again" if more.get("serial_no") else ""
    at = disk.pci_slot or "legacy slot"
    text = "= %s adopted%s (%s at %s)" % (facts["name"], again, disk.volume.name, at)
    args = {"volume": disk.volume.name, "facts": {**_stale(disk, facts), **more}}
    return Step("identity", text, facts["name"], args=args)


def _leaving(disk: Disk, vm: Vm, nameless: bool, returns: bool = False) -> t.Dict[str, t.Any]:
    renames = []
    for snapshot in disk.snapshots:
        short = snapshot.name.split("@", 1)[1]
        if short.startswith(snapshots.PREFIX):
            new = "%s%s-%d-%s" % (PARKED_PREFIX, vm.config.uuid[:8], snapshot.createtxg, short)
            renames.append((short, new))
    changes: t.Dict[str, t.Any] = {} if returns else {"boot": False, "remaining": ""}
    facts = {**facts_of(disk, **changes, **({"name": ""} if nameless else {})), **_unmarked(disk)}
    if returns and disk.volume.user.get("from") != identity.MAKING:
        facts["from"] = identity.ASIDE
    return {
        "volume": disk.volume.name,
        "path": disk.path,
        "target": parked_place(disk),
        "renames": tuple(renames),
        "facts": _stale(disk, facts),
        "guid": disk.volume.guid,
        "newest": _newest(disk, dict(renames)),
    }


def _newest(disk: Disk, renamed: t.Mapping[str, str]) -> str:
    """Short name of the newest snapshot after the renames, "" without one."""
    if not disk.snapshots:
        return ""
    short = disk.snapshots[-1].name.split("@", 1)[1]
    return renamed.get(short, short)


def detach(vm: Vm, leaver: Leaver, lean: bool) -> Step:
    """lean: a later step sets the VM's reservation anyway, so that the pool need not give the disk's space twice.

    A volume that the VM does not have attached is parked in the same way, whether the VM runs or not.
    """
    disk = leaver.disk
    text = "- %s %s%s parked%s" % (
        disk.label,
        render_mib(disk.size_mib),
        "" if disk.path else " (not attached)",
        " without its name (uuid %s)" % disk.uuid if leaver.nameless else "",
    )
    args = _leaving(disk, vm, leaver.nameless)
    return Step("detach" if disk.path else "park", text, disk.label, args={**args, "lean": lean})


def step_aside(vm: Vm, disk: Disk, label: str) -> Step:
    """A detach for the time that its data is copied: what the VM makes of the disk stays with it."""
    text = "- %s %s parked to be copied" % (label, render_mib(disk.size_mib))
    args = {**_leaving(disk, vm, False, True), "lean": True, "aside": True}
    return Step("detach" if disk.path else "park", text, label, args=args)


def cold(vm: Vm, model: str, slot: str, capabilities: Capabilities) -> str:
    """Why a disk does not come to a slot, or leave it, while the VM runs."""
    if capabilities.functions_per_slot > 1:
        return ""
    if model not in capabilities.models:
        return "a disk of model %s comes and goes only while the VM is stopped" % model
    if not slot:
        return ""
    place, pci = slots.parse_slot(slot), vm.config.pci
    taken = [slots.parse_slot(e.pci_slot) for e in vm.config.disks if e.pci_slot]
    if place.function or not slots.alone(place, taken):
        return "disks that share a PCI slot come and go together"
    if slot in pci.hot:
        return ""
    free = [s for s in map(slots.parse_slot, pci.hot) if s not in taken and slots.alone(s, taken)]
    return "%s is no slot for hot-plug%s" % (slot, "" if free or place in taken else ", and none is free")


def unname(disk: Disk) -> Step:
    """A preserved disk that no VM has makes way for a new one of its name."""
    text = "~ %s stays where it is without its name (uuid %s)" % (disk.label, disk.uuid)
    facts = {"name": "", **_stale(disk, _unmarked(disk))}
    return Step("identity", text, disk.label, args={"volume": disk.volume.name, "facts": facts})


def destroy(leaver: Leaver) -> Step:
    """An attached disk is taken out of the VM first, as for a detach; only then its volume is destroyed."""
    disk = leaver.disk
    with_snapshots = ""
    if disk.snapshots:
        with_snapshots = " with %d snapshots (%s)" % (len(disk.snapshots), render_bytes(disk.volume.pinned))
    text = "- %s %s%s DESTROYED%s" % (
        disk.label,
        render_mib(disk.size_mib),
        "" if disk.path else " (parked)" if disk.parked else " (not attached)",
        with_snapshots,
    )
    facts = facts_of(disk, uuid=disk.uuid or identity.uuid_of(disk.volume.guid))
    args = {
        "volume": disk.volume.name,
        "path": disk.path,
        "target": parked_place(disk),
        "facts": _stale(disk, facts),
        "snapshots": tuple(s.name.split("@", 1)[1] for s in disk.snapshots),
        "guid": disk.volume.guid,
        "newest": _newest(disk, {}),
    }
    return Step("destroy" if disk.path else "destroy_parked", text, disk.label, True, args)


def resize(target: Target, kind: str) -> t.Optional[Step]:
    disk = t.cast(Disk, target.disk)
    smaller = target.bytes < disk.size
    if target.bytes == disk.size or smaller != (kind == "shrink"):
        return None
    text = "~ %s %s" % (target.label, render_change(disk.size, target.bytes))
    kept = target.kept if kind == "shrink" else target.type
    args = {"volume": disk.volume.name, "path": disk.path, "size": target.size, "guid": disk.volume.guid, "type": kept}
    return Step(kind, text, target.label, smaller, {**args, "snapshots": bool(disk.snapshots)})


def discard(disks: t.Iterable[Disk]) -> t.Iterator[Step]:
    """Remove what interrupted conversions have copied so far; the disks are whole without."""
    for disk in (d for d in disks if d.half):
        text = "- half a copy of %s, left by an interrupted conversion, DESTROYED" % disk.label
        args = {"volume": disk.volume.name, "guid": disk.volume.guid, "half": disk.half}
        yield Step("discard", text, disk.label, True, args)


def convert(
    disk: Disk, wanted: str, geometry: PoolGeometry, label: str = "", block_size: int = DEFAULT_BLOCK, cold: str = ""
) -> t.Optional[Step]:
    """The disk becomes one of another type. What becomes a file, or was one, must be parked: its data is copied.

    block_size (bytes) is that of a volume that was a file.
    """
    if disk.type == wanted:
        return None
    label = label or disk.label
    text = "~ %s %s -> %s" % (label, disk.type, wanted)
    args: t.Dict[str, t.Any] = {"volume": disk.volume.name, "guid": disk.volume.guid, "type": wanted}
    if crosses(wanted, disk):
        block = RECORD if wanted == FILE else block_size
        spare = parked_place(disk)
        args.update(
            uuid=disk.uuid or identity.uuid_of(disk.volume.guid),
            half=copy_place(spare) if disk.volume.name != copy_place(spare) else spare,
            block_size=block,
            compression=disk.volume.compression,
            snapshots=tuple(s.name.split("@", 1)[1] for s in disk.snapshots),
            facts={"type": "" if wanted == THICK else wanted},
            beside=0 if wanted == SPARSE else automatic_reservation(disk.size, block, geometry),
        )
        if wanted == SPARSE:
            args["beside"] = disk.size
        text += ": %s to copy%s" % (
            render_mib(disk.size_mib),
            ", %d snapshots DESTROYED" % len(disk.snapshots) if disk.snapshots else "",
        )
    return Step("convert", text, label, bool("half" in args and disk.snapshots), args, cold)


def compression(target: Target) -> t.Optional[Step]:
    disk, wanted = t.cast(Disk, target.disk), target.spec.compression
    if wanted is None or wanted == disk.volume.compression:
        return None
    text = "~ %s compression %s -> %s" % (target.label, disk.volume.compression, wanted)
    return Step(
        "compression", text, target.label, args={"volume": disk.volume.name, "path": disk.path, "value": wanted}
    )


def _free_index(vm: Vm, remembered: int) -> int:
    """The remembered index if it is free, else the lowest that no path and no volume uses."""
    used = used_indexes(vm)
    if remembered and remembered not in used:
        return remembered
    index = 0
    while index in used:
        index += 1
    return index


def used_indexes(vm: Vm) -> t.Set[int]:
    """Those of the VM's volumes. A configured path that no volume backs (a missing disk) keeps its index."""
    return {index_of(name) for name in (*(v.name for v in vm.volumes), *vm.missing)}


def arrive(vm: Vm, target: Target, capabilities: Capabilities) -> Step:
    """Create or attach: both end with the volume in place and one add to the configuration."""
    disk = target.disk
    adrift = disk is not None and not disk.parked
    remembered = disk.index if disk else 0
    index = remembered if adrift else _free_index(vm, remembered if target.spec.index is None else target.spec.index)
    volume = "%s/disk%d" % (vm.config.dataset, index) if not adrift or disk is None else disk.volume.name
    spec = target.spec
    again = disk is not None and disk.boot and put_aside(vm, disk)
    boot = (again if spec.boot is None else spec.boot) or (vm.config.first_boots and not vm.config.disks)
    uuid = disk.uuid if disk else target.uuid
    config = {
        "path": path_of(capabilities, volume, target.type, uuid),
        "size": target.size,
        "model": target.model,
        "boot": boot,
        "pci_slot": target.slot,
        "uuid": uuid,
    }
    changes = {key: wanted for key, (_now, wanted) in fact_changes(spec, disk).items()} if disk else {}
    base = disk or Disk(volume=vm.root, vm=vm.config.uuid, index=index, uuid=uuid)
    facts = facts_of(
        base,
        **{
            "vm": vm.config.uuid,
            "index": index,
            "slot": target.slot,
            "model": target.model,
            "boot": boot,
            "kind": target.type,
            "remaining": target.basis,
            **({"name": spec.name, "preserve": bool(spec.preserve)} if disk is None else {}),
            **({"description": spec.description or "", "tags": spec.tags or {}} if disk is None else {}),
            **changes,
        },
    )
    args: t.Dict[str, t.Any] = {"volume": volume, "size": target.size, "config": config, "type": target.type}
    why = cold(vm, target.model, target.slot, capabilities)
    if disk is not None:
        return replace(_attach(vm, target, disk, {**args, "facts": _stale(disk, facts)}), cold=why)
    return replace(_create(vm, target, {**args, "facts": facts}), cold=why)


def path_of(capabilities: Capabilities, volume: str, kind: str, uuid: str) -> str:
    """Where the hypervisor finds a disk."""
    return identity.file_of(uuid) if kind == FILE else capabilities.device_prefix + volume


def _at(target: Target) -> str:
    return " at %s" % target.slot if target.slot else ""


def _attach(vm: Vm, target: Target, disk: Disk, args: t.Dict[str, t.Any]) -> Step:
    since = identity.decode_time(disk.volume.user.get("mtime", ""))
    same = target.size * MIB == disk.size
    wanted, now = target.spec.compression, disk.volume.compression
    text = "+ %s %s re-attached%s%s%s%s" % (
        target.label,
        render_mib(target.size) if same else render_change(disk.size, target.size * MIB),
        _at(target),
        ", %s -> %s" % (target.kept, target.type) if target.type != target.kept else "",
        ", compression %s -> %s" % (now, wanted) if wanted not in (None, now) else "",
        ", parked since %s" % since if since and disk.parked else "",
    )
    smaller = target.size * MIB < disk.size
    args.update(disk=disk, source=disk.volume.name, guid=disk.volume.guid, compression=wanted or now)
    args["snapshots"] = bool(disk.snapshots) and target.size * MIB != disk.size
    return Step("attach", text, target.label, smaller, args)


def _create(vm: Vm, target: Target, args: t.Dict[str, t.Any]) -> Step:
    spec = target.spec
    text = "+ %s %s%s%s%s" % (
        target.label,
        render_mib(target.size),
        " %s" % target.type if target.type != THICK else "",
        _at(target),
        " from image %s" % spec.image if spec.image else "",
    )
    args.update(
        block_size=target.block_size,
        compression=spec.compression or vm.root.compression,
        own_compression=spec.compression or "",
        origin=target.origin.name if target.origin else "",
        image_size=target.image_size,
    )
    return Step("create", text, target.label, args=args)
