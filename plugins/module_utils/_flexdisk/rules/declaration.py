# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""From the module's arguments to a declaration: every value checked by itself, all problems of a VM together."""

from __future__ import annotations

import typing as t

from ..model.desired import DiskSpec, VmSpec
from ..model.errors import FlexdiskError, Problem
from ..model.sizes import REMAINING, parse_quota, parse_size, parse_size_or_remaining
from ..model.vm import FILE, SPARSE, THICK, VmConfig
from . import identity, slots

COMPRESSIONS = ("on", "off", "lz4", "lzjb", "zle", "gzip", *tuple("gzip-%d" % n for n in range(1, 10)))
_OF_VOLUMES = {
    "image": "a clone of an image is a volume",
    "block_size": "the file has blocks of 128 KiB",
}
TYPES = (THICK, SPARSE, FILE)
_Raw = t.Mapping[str, t.Any]


class Collector:
    """Problems of one VM, so that the operator sees all of them at once."""

    def __init__(self, vm: str) -> None:
        self.vm = vm
        self.problems: t.List[Problem] = []

    def add(self, code: str, message: str, disk: str = "") -> None:
        self.problems.append(Problem(code, message, self.vm, disk))

    def attempt(self, disk: str, check: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
        """The check's result, or None and its error noted."""
        try:
            return check(*args)
        except FlexdiskError as exc:
            self.add(exc.code, exc.message, disk)
            return None


def check_vm(vm: str, found: Collector) -> None:
    if not vm or any(ord(c) < 32 for c in vm):
        found.add("InvalidArgument", "vm must be a uuid, a unique prefix of one, or an alias; got %r" % vm)


def parse_vm_spec(raw: _Raw) -> t.Tuple[VmSpec, t.List[Problem]]:
    """One entry of O(vms)."""
    vm = str(raw.get("vm") or "")
    found = Collector(vm)
    check_vm(vm, found)
    flexible = raw.get("flexible_disk_size")
    if flexible is not None:
        flexible = found.attempt("", lambda: parse_size(flexible, what="flexible_disk_size"))
    quota = raw.get("quota")
    if quota is not None:
        quota = found.attempt("", parse_quota, quota)
    disks = raw.get("disks")
    specs = None if disks is None else tuple(_entry(found, number, disk) for number, disk in enumerate(disks))
    if specs is not None:
        _check_list(found, specs)
    unlisted = raw.get("unlisted") or "refuse"
    return VmSpec(vm, flexible, quota, unlisted, specs, bool(raw.get("adopt"))), found.problems


def slot_problems(spec: VmSpec, config: VmConfig) -> t.List[Problem]:
    """Slots that no disk of this VM can have. Where a disk is already, libvirt has put it."""
    found = Collector(spec.vm)
    there = {disk.pci_slot for disk in config.disks} if config.pci.strict else set()
    for disk in spec.disks or ():
        if disk.pci_slot and disk.pci_slot not in there:
            reason = slots.obstacle(slots.parse_slot(disk.pci_slot), config.pci)
            if reason:
                found.add("InvalidArgument", 'pci_slot "%s": %s' % (disk.pci_slot, reason), disk.label)
    return found.problems


def _entry(found: Collector, number: int, raw: _Raw) -> DiskSpec:
    label = str(raw.get("name") or raw.get("uuid") or "disks[%d]" % number)
    if not (raw.get("name") or raw.get("uuid")):
        found.add("InvalidArgument", "a disk needs a name or a uuid", label)
    return disk_spec(found, label, raw)


def disk_spec(found: Collector, label: str, raw: _Raw) -> DiskSpec:
    """What an entry says of a disk. Problems go to found."""
    name, uuid = str(raw.get("name") or ""), str(raw.get("uuid") or "").lower()
    _check_identity(found, label, name, uuid)
    size, remaining = _size(found, label, raw)
    slot = raw.get("pci_slot")
    if slot is not None:
        slot = found.attempt(label, slots.normalise, str(slot))
    if raw.get("image") is not None and not identity.is_uuid(str(raw["image"])):
        found.add("InvalidArgument", "image must be the uuid of an image; got %r" % raw["image"], label)
    _check_block_size(found, label, raw)
    if raw.get("type") is not None and raw["type"] not in TYPES:
        found.add(
            "InvalidArgument", "type %r is not valid: it must be one of %s" % (raw["type"], ", ".join(TYPES)), label
        )
    for what in ("image", "block_size"):
        if raw.get("type") == FILE and raw.get(what) is not None:
            found.add("InvalidArgument", "%s and type=file exclude each other: %s" % (what, _OF_VOLUMES[what]), label)
    if raw.get("compression") is not None and raw["compression"] not in COMPRESSIONS:
        found.add(
            "InvalidArgument",
            "compression %r is not valid: it must be one of %s" % (raw["compression"], ", ".join(COMPRESSIONS)),
            label,
        )
    tags = parse_tags(found, label, raw.get("tags"))
    if raw.get("description") is not None:
        found.attempt(label, lambda: identity.check_value("description", identity.encode_text(raw["description"])))
    return DiskSpec(
        name=name,
        uuid=uuid,
        present=(raw.get("state") or "present") == "present",
        size=size,
        remaining=remaining,
        pci_slot=slot,
        tags=tags,
        dangerous_allow_shrink=bool(raw.get("dangerous_allow_shrink")),
        destroy_snapshots=bool(raw.get("destroy_snapshots")),
        recreate=bool(raw.get("recreate")),
        **{
            key: raw.get(key)
            for key in ("boot", "image", "model", "block_size", "type", "compression", "preserve", "description")
        },
    )


def _check_identity(found: Collector, label: str, name: str, uuid: str) -> None:
    if name and not identity.DISK_NAME.match(name):
        found.add(
            "InvalidArgument",
            "disk name %r is not valid: use up to 64 letters, digits, dots, dashes and underscores, the first a letter "
            "or digit" % name,
            label,
        )
    if uuid and not identity.is_uuid(uuid):
        found.add("InvalidArgument", "disk uuid %r is not a uuid" % uuid, label)


def check_new_name(found: Collector, label: str, name: str) -> None:
    """A name that a disk does not have yet. Disks that have a mistakable one keep it until they are renamed."""
    why = identity.mistakable(name)
    if why:
        found.add(
            "InvalidArgument", "disk name %r is not valid: %s; add a letter, as in disk-%s" % (name, why, name), label
        )


def parse_tags(found: Collector, label: str, tags: t.Optional[t.Mapping[t.Any, t.Any]]) -> t.Optional[t.Dict[str, str]]:
    """Strings by strings. What has lost its type in YAML would be stored as something else than was written."""
    if tags is None:
        return None
    wrong = len(found.problems)
    for key, value in tags.items():
        if not isinstance(key, str):
            words = "tags: the key %r is not a string; quote it"
            found.add("InvalidArgument", words % (key,), label)
        elif isinstance(value, (bool, int, float)):
            words = "tags: the value %r of %s is not a string; quote it"
            found.add("InvalidArgument", words % (value, key), label)
        elif not isinstance(value, str):
            words = "tags: the value %r of %s is not a string; a tag holds one string"
            found.add("InvalidArgument", words % (value, key), label)
    if len(found.problems) > wrong:
        return None
    found.attempt(label, lambda: identity.check_value("tags", identity.encode_tags(tags)))
    return dict(tags)


def _size(found: Collector, label: str, raw: _Raw) -> t.Tuple[t.Optional[int], bool]:
    if raw.get("size") is None:
        return None, False
    size = found.attempt(label, parse_size_or_remaining, raw["size"])
    return (None, True) if size == REMAINING else (size, False)


def _check_block_size(found: Collector, label: str, raw: _Raw) -> None:
    block = raw.get("block_size")
    if block is None:
        return
    if block < 512 or block > 131072 or block & (block - 1):
        found.add(
            "InvalidArgument", "block_size %d is not valid: it must be a power of two from 512 to 131072" % block, label
        )
    if raw.get("image") is not None:
        found.add("InvalidArgument", "block_size and image exclude each other: the image has its own", label)


def _check_list(found: Collector, specs: t.Sequence[DiskSpec]) -> None:
    """What can only be said of the whole list."""
    for what in ("name", "uuid"):
        seen: t.Set[str] = set()
        for value in (getattr(spec, what) for spec in specs if getattr(spec, what)):
            if value in seen:
                found.add("InvalidArgument", "two disks have the %s %s" % (what, value), value)
            seen.add(value)
    present = [spec for spec in specs if spec.present]
    remaining = [spec.label for spec in present if spec.remaining]
    if len(remaining) > 1:
        found.add("InvalidArgument", "only one disk of a VM can have size=remaining, not %s" % ", ".join(remaining))
    booting = [spec.label for spec in present if spec.boot]
    if len(booting) > 1:
        found.add("InvalidArgument", "only one disk of a VM can have boot=true, not %s" % ", ".join(booting))
    by_slot: t.Dict[str, t.List[str]] = {}
    for spec in present:
        if spec.pci_slot:
            by_slot.setdefault(spec.pci_slot, []).append(spec.label)
    for slot, labels in by_slot.items():
        if len(labels) > 1:
            found.add("InvalidArgument", 'pci_slot "%s" is asked for by %s' % (slot, " and ".join(labels)))
