# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Everything that can be told to be wrong with the disks of a host, from one read of it. Nothing is changed here."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from datetime import datetime, timezone

from ..model.dataset import Dataset
from ..model.sizes import MIB, render_bytes, render_change, render_mib
from ..model.vm import Disk, DiskConfig, IntentRecord, Vm, VmConfig
from . import identity, journal, slots, space
from .findings import OURS, Finding, Task, own_task
from .inventory import Host, container, parked_place, unlinked_reason
from .reservation import PoolGeometry
from .unwritten import unwritten

_DAY = 86400
_SHOWN = 5
_OF_VMS = (identity.FLEXIBLE, "package", "indestructible")
_OF_DISKS = tuple(name for name in identity.NAMES if name not in (*_OF_VMS, "from", "released"))
_Found = t.Iterator[Finding]


def never_used(host: Host, volume: Dataset) -> bool:
    """Whether nothing was written to a disk, none of its snapshots holds anything, and it did not begin as a copy."""
    return not volume.origin and unwritten(volume, host.datasets.get(container(volume.pool)))


def findings(host: Host, now: int, unused_days: int) -> t.List[Finding]:
    """All of them, VM by VM, then what concerns no VM. now is seconds since 1970."""
    facts = _Facts(host)
    found: t.List[Finding] = []
    for vm in host.vms:
        for check in _OF_A_VM:
            found += check(facts, vm)
    for disk in sorted(host.parked, key=lambda d: d.volume.name):
        found += _parked(facts, disk, now - unused_days * _DAY)
    for of_host in _OF_THE_HOST:
        found += of_host(facts)
    return found


class _Facts:
    """What several checks ask of the host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        configs = [*(vm.config for vm in host.vms), *host.other_brands, *host.unlinked]
        self.configs = {config.uuid: config for config in configs}
        self.users: t.Dict[str, t.Dict[str, VmConfig]] = {}
        for config in configs:
            for entry in config.disks:
                if entry.volume:
                    self.users.setdefault(entry.volume, {})[config.uuid] = config
        for volume, users in host.users.items():
            self.users.setdefault(volume, {}).update({config.uuid: config for config in users})
        self.by_uuid: t.Dict[str, t.List[str]] = {}
        # A copy that a conversion has not ended is no disk.
        guids = {str(dataset.guid) for dataset in host.datasets.values()}
        for dataset in host.datasets.values():
            if dataset.backs and "uuid" in dataset.user and dataset.user.get("from") not in guids:
                self.by_uuid.setdefault(dataset.user["uuid"], []).append(dataset.name)
        self.taken = {disk.uuid for vm in host.vms for disk in vm.disks} | {disk.uuid for disk in host.parked}

    def others(self, volume: str, vm: str) -> t.List[str]:
        """Labels of the other VMs that have a volume."""
        return sorted(config.label for uuid, config in self.users.get(volume, {}).items() if uuid != vm)

    def alias(self, vm: str) -> str:
        return self.configs[vm].alias if vm in self.configs else ""


def busy(vm: Vm) -> str:
    """Why nothing of a VM is repaired here, "" where it is."""
    config = vm.config
    if vm.interrupted is not None:
        return "an interrupted run must be finished first"
    if config.transition or config.state not in ("running", "stopped"):
        return "the VM is %s" % config.state
    outside = [disk.volume.name for disk in vm.disks if not _within(vm, disk.volume.name)]
    return config.frozen or ("%s lies outside %s" % (outside[0], vm.root.name) if outside else "")


@dataclass
class _About:
    """A disk of a VM, or one of no VM, that findings are about."""

    facts: _Facts
    disk: Disk
    vm: t.Optional[Vm] = None

    def __call__(self, kind: str, message: str, **more: t.Any) -> Finding:
        uuid = self.disk.vm
        more.setdefault("volume", self.disk.volume.name)
        return Finding(kind, message, uuid, self.facts.alias(uuid), self.disk.label, **more)

    def mended(self, kind: str, message: str, why_not: str = "", **more: t.Any) -> Finding:
        """A finding that this module repairs, unless something stands in the way."""
        why_not = why_not or (busy(self.vm) if self.vm is not None else "")
        if why_not:
            return self(kind, "%s; not repaired here: %s" % (message, why_not), repair=more.get("repair"))
        task = own_task(kind, self.vm.config.uuid if self.vm is not None else "")
        return self(kind, message, repairable=True, **{"repair": task, **more})


def _of_vm(vm: Vm, kind: str, message: str, **more: t.Any) -> Finding:
    more.setdefault("volume", vm.root.name)
    return Finding(kind, message, vm.config.uuid, vm.config.alias, **more)


def _vm_disks(vm: Vm, **more: t.Any) -> Task:
    return {OURS + "vm_disks": {"vms": [{"vm": vm.config.uuid, **more}]}}


def _listed(words: t.Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (" and %d more" % more if more > 0 else "")


# -- configuration and volumes


def _references(facts: _Facts, vm: Vm) -> _Found:
    ghosts = set(vm.ghosts)
    entries = {entry.path: entry for entry in vm.config.disks}
    parked = {disk.uuid: disk for disk in vm.parked if disk.uuid}
    for path in vm.missing:
        if path in ghosts:
            about = _About(facts, parked[entries[path].uuid], vm)
            stopped = vm.config.state == "stopped"
            yield about.mended(
                "parked_still_configured",
                "%s is in %s, but still configured as %s" % (about.disk.label, about.disk.volume.name, path),
                "" if stopped else "the VM is running; stop it first",
            )
        else:
            yield _dangling(facts, vm, entries[path])
    for path in vm.strays:
        volume = entries[path].volume
        if any(orphan.volume.user.get("from") == volume for orphan in vm.orphans):
            continue
        if volume in facts.host.datasets:
            yield _stray(vm, path, volume)
        else:
            yield _dangling(facts, vm, entries[path])
    for disk in vm.disks:
        if not _within(vm, disk.volume.name):
            yield _stray(vm, disk.path, disk.volume.name)
    for path in vm.config.unplugged:
        yield _of_vm(vm, "not_plugged", "%s is configured, but the running VM does not have it; restart the VM" % path)


def _within(vm: Vm, volume: str) -> bool:
    return volume.startswith(vm.root.name + "/")


def _dangling(facts: _Facts, vm: Vm, entry: DiskConfig) -> Finding:
    """Where a volume with the entry's identity lies, if anywhere."""
    known = entry.uuid and facts.by_uuid.get(entry.uuid)
    if not known and entry.serial:
        known = [
            name for uuid in facts.by_uuid if identity.serial_of(uuid) == entry.serial for name in facts.by_uuid[uuid]
        ]
    hint = "its data may be in %s: zfs rename brings it back" % _listed(known) if known else "no volume has its uuid"
    message = "%s is configured as %s but does not exist; %s; restore it or remove the entry by hand"
    return _of_vm(vm, "dangling_reference", message % (entry.volume, entry.path, hint), volume=entry.volume)


def _stray(vm: Vm, path: str, volume: str) -> Finding:
    message = "%s lies outside %s" % (path, vm.root.name)
    if vm.config.bare:
        return _of_vm(vm, "stray_volume", message, volume=volume, repair=_vm_disks(vm, adopt=True))
    return _of_vm(
        vm, "stray_volume", message + "; zfs rename moves it, and vmadm must be told the new path", volume=volume
    )


def _sharing(facts: _Facts, vm: Vm) -> _Found:
    seen: t.Set[str] = set()
    for entry in vm.config.disks:
        if not entry.volume:
            continue
        others = facts.others(entry.volume, vm.config.uuid)
        if others:
            message = "%s is also a disk of %s; decide by hand whose it is" % (entry.volume, ", ".join(others))
            yield _of_vm(vm, "shared_volume", message, volume=entry.volume)
        if entry.volume in seen:
            message = "%s is in the VM's list of disks more than once; decide by hand which entry to remove"
            yield _of_vm(vm, "disk_twice", message % entry.volume, volume=entry.volume)
        seen.add(entry.volume)


def _slots(facts: _Facts, vm: Vm) -> _Found:
    places = slots.positions(vm.config.disks, vm.config.pci)
    once = [(path, slots.parse_slot(slot)) for path, slot in places.items() if slot]
    for slot, paths in slots.conflicts(once):
        message = "%s all have PCI slot %s; pci_slot in vm_disks moves the one that you choose"
        yield _of_vm(vm, "slot_conflict", message % (", ".join(paths), slots.render_slot(slot)))


def _orphans(facts: _Facts, vm: Vm) -> _Found:
    for disk in vm.orphans:
        if "from" not in disk.volume.user:
            message = "%s (%s) is not in the VM's list of disks" % (disk.volume.name, render_mib(disk.size_mib))
            yield _About(facts, disk, vm).mended("orphan_volume", message, _stays(facts, vm, disk))


def _stays(facts: _Facts, vm: Vm, disk: Disk) -> str:
    """Why a volume cannot be moved out of its VM's dataset."""
    host, place = facts.host, parked_place(disk)
    above = host.datasets.get(container(vm.root.pool)) or host.datasets[vm.root.pool]
    if disk.volume.name in facts.users:
        users = facts.users[disk.volume.name].values()
        return "%s has it open or configured" % ", ".join(sorted(config.label for config in users))
    if place in host.datasets:
        return "%s already exists" % place
    if disk.uuid in host.duplicates:
        return "another volume has its uuid"
    if disk.volume.encryptionroot not in ("", disk.volume.name, above.encryptionroot):
        return "it would leave its encryption root %s" % disk.volume.encryptionroot
    return ""


# -- identity


def _identities(facts: _Facts, vm: Vm) -> _Found:
    configured = {entry.path: entry for entry in vm.config.disks}
    volumes = [disk.volume.name for disk in vm.disks]
    for disk in vm.disks:
        about, volume = _About(facts, disk, vm), disk.volume.name
        contested = bool(facts.others(volume, vm.config.uuid)) or volumes.count(volume) > 1
        if disk.disowned:
            yield _disowned(about, configured[disk.path], contested)
        elif disk.adopted and not contested and _within(vm, volume):
            yield from _stale(about)
            yield from _unconfigured(about, configured[disk.path])


def _disowned(about: _About, entry: DiskConfig, contested: bool) -> Finding:
    disk, own = about.disk, about.disk.volume.user["uuid"]
    if not entry.uuid and not entry.serial:
        return about("invalid_property", "%suuid = %.60r; the right value is not known here" % (identity.PREFIX, own))
    if entry.serial and not entry.uuid:
        message = "the guest is shown serial %s, the volume's uuid %s would be %s; decide by hand which is right"
        return about("serial_mismatch", message % (entry.serial, own, identity.serial_of(own)))
    swapped = own in about.facts.taken
    why_not = (
        "another disk has the uuid %s: volumes were exchanged; zfs rename takes that back" % own if swapped else ""
    )
    elsewhere = [v for v in about.facts.by_uuid.get(disk.uuid, ()) if v != disk.volume.name]
    why_not = why_not or ("%s has the hypervisor's uuid" % ", ".join(elsewhere) if elsewhere else "")
    why_not = "the volume is configured more than once" if contested else why_not
    message = "the hypervisor says uuid %s, the volume %s" % (entry.uuid, own)
    return about.mended("uuid_mismatch", message, why_not, args={"facts": {"uuid": disk.uuid}})


def _stale(about: _About) -> _Found:
    disk, user = about.disk, about.disk.volume.user
    boot = "true" if disk.boot else "false"
    word = {"vm": disk.vm, "index": str(disk.index), "slot": disk.pci_slot, "model": disk.model, "boot": boot}
    facts = {name: value for name, value in word.items() if user.get(name, "") != value}
    if facts:
        words = ["%s is %s, not %s" % (n, value or "none", user.get(n) or "none") for n, value in facts.items()]
        yield about.mended("stale_copy", "; ".join(words), args={"facts": facts})


def _unconfigured(about: _About, entry: DiskConfig) -> _Found:
    own = about.disk.volume.user.get("uuid", "")
    if not own or entry.uuid or entry.serial:
        return
    vm = t.cast(Vm, about.vm)
    what = "no serial number" if vm.config.bare else "no uuid"
    entries = [{"uuid": disk.uuid} for disk in vm.disks if disk.adopted and disk.uuid]
    yield about(
        "uuid_not_configured",
        "the configuration has %s for %s; vm_disks writes it down with the next change while the VM is stopped"
        % (what, about.disk.path),
        repair=_vm_disks(vm, unlisted="keep", disks=entries),
    )


def _names(facts: _Facts, vm: Vm) -> _Found:
    """Attached disks, orphans, and those parked from the VM are one name space."""
    found: t.Dict[str, t.List[Disk]] = {}
    for disk in (*vm.disks, *vm.orphans, *vm.parked):
        if disk.name and not any(disk.volume.name == other.volume.name for other in found.get(disk.name, ())):
            found.setdefault(disk.name, []).append(disk)
    for name, disks in found.items():
        if len(disks) > 1:
            which = ", ".join("%s (uuid %s)" % (d.volume.name, d.uuid or "none") for d in disks)
            message = (
                "name %s: %s; decide which one keeps it, and rename the other with its uuid and a new name in vm_disks"
            )
            yield _of_vm(vm, "duplicate_name", message % (name, which), disk=name, volume=disks[0].volume.name)


# -- properties


def _properties_of_vm(facts: _Facts, vm: Vm) -> _Found:
    seen = set()
    for disk in (*vm.disks, *vm.orphans):
        if disk.volume.name not in seen:
            yield from _properties(_About(facts, disk, vm))
            yield from _marks(_About(facts, disk, vm))
        seen.add(disk.volume.name)
    received = _received(vm.root, _OF_VMS)
    if received:
        message = "%s of %s came with zfs receive" % (", ".join(received), vm.root.name)
        why_not = busy(vm)
        repair = {"repair": own_task("received_property", vm.config.uuid), "args": {"facts": received}}
        more = {} if why_not else {**repair, "repairable": True}
        message += "; not repaired here: %s" % why_not if why_not else ""
        yield _of_vm(vm, "received_property", message, **more)


def _properties(about: _About) -> _Found:
    volume = about.disk.volume
    # The hypervisor's word on an attached disk is another finding.
    copied = ("uuid", "vm", "index", "slot", "boot") if about.disk.path and about.disk.adopted else ()
    wrong = [n for n in sorted(volume.user) if n not in (*copied, "name") and not _is_valid(n, volume.user[n])]
    name = volume.user.get("name", "")
    if wrong:
        words = ", ".join("%s%s = %.60r" % (identity.PREFIX, n, volume.user[n]) for n in wrong)
        yield about("invalid_property", "%s; the right value is not known here" % words)
    if name and not identity.DISK_NAME.match(name):
        message = "%.80r is not a valid name (letters, digits and ._-, at most 64); the right name is not known here"
        yield about("invalid_name", message % name)
    elif identity.mistakable(name):
        words = "name %s: %s; rename the disk with its uuid and a new name in vm_disks"
        yield about("invalid_name", words % (name, identity.mistakable(name)))
    for n, value in sorted(volume.user.items()):
        length = len(value.encode("utf-8", "replace"))
        if length > identity.LIMIT:
            message = "%s%s has %d bytes, but the limit is %d; shorten it by hand"
            yield about("property_too_long", message % (identity.PREFIX, n, length, identity.LIMIT))
    received = _received(volume, _OF_DISKS)
    if received:
        message = "%s came with zfs receive" % ", ".join(identity.PREFIX + name for name in received)
        yield about.mended("received_property", message, args={"facts": received})


def _is_valid(name: str, value: str) -> bool:
    return (not value or bool(slots.valid(value))) if name == "slot" else identity.is_valid(name, value)


def _received(dataset: Dataset, names: t.Sequence[str]) -> t.Dict[str, str]:
    """What came with C(zfs receive) and would be set in the same way here."""
    values = {name: dataset.user.get(name, "") for name in names if name in dataset.received}
    return {name: value for name, value in values.items() if value and _is_valid(name, value)}


def _marks(about: _About) -> _Found:
    disk, vm = about.disk, about.vm
    mark = disk.volume.user.get("from", "")
    if disk.guarded:
        yield about.mended("guard", "%s@%s still exists" % (disk.volume.name, identity.GUARD_SNAPSHOT))
    if not mark:
        return
    if vm is not None and disk.path:
        message = "was moved here from %s, and is configured here" % mark
        yield about.mended("from_mark", message, args={"facts": {"from": ""}})
    elif vm is not None:
        message = "was moved here from %s, where the VM is configured to have it" % mark
        yield about("from_mark", message, repair=_vm_disks(vm, adopt=True))
    elif mark == identity.ASIDE:
        yield about("from_mark", "its conversion was interrupted; run the same task again to finish it")
    else:
        yield about(
            "from_mark",
            "its creation was interrupted (%s) and it may be incomplete; run the same task again to finish it" % mark,
        )


# -- disks that are parked


def _parked(facts: _Facts, disk: Disk, before: int) -> _Found:
    about, volume = _About(facts, disk), disk.volume
    yield from _properties(about)
    yield from _marks(about)
    place = parked_place(disk) if disk.uuid or not identity.is_uuid(_last(volume.name)) else volume.name
    if place != volume.name or not disk.uuid:
        uuid = _last(place)
        clash = place != volume.name and place in facts.host.datasets
        why_not = "%s already exists" % place if clash else ""
        others = [name for name in facts.by_uuid.get(uuid, ()) if name != volume.name]
        if others or disk.uuid in facts.host.duplicates or (not disk.uuid and uuid in facts.taken):
            why_not = "another volume has its uuid"
        message = "%s has uuid %s and should be %s" % (volume.name, disk.uuid, place)
        message = message if disk.uuid else "%s has no uuid; %s is its own" % (volume.name, uuid)
        yield about.mended("parked_place", message, why_not, args={"uuid": uuid, "target": place})
    if disk.vm and disk.vm not in facts.configs:
        message = "%s was a disk of VM %s, which is not on this host; ask its owner whether it is still needed"
        yield about("unknown_vm", message % (disk.label, disk.vm))
    if volume.creation <= before and never_used(facts.host, volume) and not disk.snapshots:
        yield about(
            "never_used",
            "%s (%s) was made on %s, and nothing has been written to it; the task given here DESTROYS it"
            % (disk.label, render_mib(disk.size_mib), _date(volume.creation)),
            repair={OURS + "disk": {"uuid": disk.uuid, "state": "absent"}} if disk.uuid else None,
        )


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")


# -- space


def _quota(facts: _Facts, vm: Vm) -> _Found:
    volumes = [disk.volume.name for disk in vm.disks]
    counted = len({*volumes}) == len(volumes) and all(_within(vm, name) for name in volumes)
    if not counted or (vm.config.bare and not vm.flexible and not vm.root.refquota):
        return
    geometry = facts.host.geometry[vm.config.pool]
    off = space.off_automatic(vm, geometry)
    if off:
        words = ["%s of %s" % (render_bytes(v.refreservation), v.name) for v in off]
        yield _lawless(vm, "reservation_off_auto", "%s is not the automatic one" % _listed(words))
    if not off or any(space.quota_drift(vm, geometry)):
        yield from _drift(vm, geometry)


def _drift(vm: Vm, geometry: PoolGeometry) -> _Found:
    quota, reservation = space.quota_drift(vm, geometry)
    cause = space.drift_cause(vm, geometry)
    if not cause:
        return
    law, root = space.expected_quota(vm, geometry), vm.root
    figures = "quota %s, reservation %s (%s)" % (
        render_change(root.quota, law),
        render_change(root.reservation, law),
        cause,
    )
    if not vm.flexible and min(quota, reservation) >= 0 and space.base_reservation_ok(root):
        if max(quota, reservation):
            task = {OURS + "zfs_quota": {"vms": [vm.config.uuid], "reclaim": True}}
            yield _of_vm(vm, "unused_quota", figures + "; kept as room for another disk", repair=task)
        return
    yield _lawless(vm, "quota_drift", figures)


def _lawless(vm: Vm, kind: str, message: str) -> Finding:
    room = space.allocatable(vm)
    why_not = busy(vm)
    if room is not None and room < -MIB:
        why_not = "disks and snapshots take %s more than flexible_disk_size, which must be at least %d MiB" % (
            render_bytes(-room),
            space.smallest_flexible_mib(vm) - vm.hidden_mib,
        )
    if why_not:
        return _of_vm(vm, kind, "%s; not repaired here: %s" % (message, why_not))
    return _of_vm(vm, kind, message, repair=own_task(kind, vm.config.uuid), repairable=True)


# -- the host


def _duplicates(facts: _Facts) -> _Found:
    for uuid, volumes in sorted(facts.host.duplicates.items()):
        if len({*volumes}) > 1:
            message = "uuid %s: %s; decide by hand which one it belongs to" % (uuid, ", ".join(volumes))
            yield Finding("duplicate_uuid", message, disk=uuid, volume=volumes[0])


def _unlinked(facts: _Facts) -> _Found:
    for config in facts.host.unlinked:
        if not config.bare:
            place = config.dataset or next((entry.volume for entry in config.disks if entry.volume), "")
            message = "%s: %s; zfs rename or a backup may bring it back" % (config.label, unlinked_reason(config))
            yield Finding("vm_without_dataset", message, config.uuid, config.alias, volume=place)


def _inherited(facts: _Facts) -> _Found:
    """One finding for each dataset that something shows through from."""
    host = facts.host
    above: t.Dict[str, t.Tuple[t.Set[str], t.List[str]]] = {}
    looked = [(disk.volume, _OF_DISKS) for vm in host.vms for disk in (*vm.disks, *vm.orphans)]
    looked += [(disk.volume, _OF_DISKS) for disk in host.parked] + [(vm.root, _OF_VMS) for vm in host.vms]
    for dataset, names in looked:
        for name, source in dataset.inherited.items():
            if name in names:
                found, below = above.setdefault(source, (set(), []))
                found.add(name)
                below += [dataset.name] if dataset.name not in below[-1:] else []
    for source, (found, below) in sorted(above.items()):
        names = tuple(sorted(found))
        message = "%s of %s shows through in %s" % (
            ", ".join(identity.PREFIX + name for name in names),
            source,
            _listed(sorted(below)),
        )
        task = own_task("inherited_property")
        yield Finding("inherited_property", message, volume=source, repair=task, repairable=True, args={"names": names})


def _strangers(facts: _Facts) -> _Found:
    host = facts.host
    known = {disk.volume.name for vm in host.vms for disk in (*vm.disks, *vm.orphans)}
    known |= {disk.volume.name for disk in host.parked}
    roots = tuple(config.dataset + "/" for config in facts.configs.values() if config.dataset)
    for uuid in sorted(filter(identity.is_uuid, facts.by_uuid)):
        for name in facts.by_uuid[uuid]:
            if name not in known and not name.startswith(roots):
                message = "%s has the identity of disk %s but no task looks there; ask its owner what it is for"
                yield Finding("stranger_volume", message % (name, uuid), disk=uuid, volume=name)


def _imports(facts: _Facts) -> _Found:
    shelf = tuple(container(pool) + "/" for pool in facts.host.geometry)
    for dataset in facts.host.datasets.values():
        if dataset.user.get("from") == identity.IMPORTING and not dataset.name.startswith(shelf):
            message = "the import of image %s was interrupted; the next task that needs the image imports it anew"
            yield Finding("from_mark", message % _last(dataset.name), volume=dataset.name)


def _intents(facts: _Facts) -> _Found:
    vms = {vm.config.uuid: vm for vm in facts.host.vms}
    for (pool, uuid), record in sorted(facts.host.intents.items()):
        vm, alias = vms.get(uuid), facts.alias(uuid)
        about: t.Dict[str, t.Any] = {"vm": uuid, "alias": alias, "volume": container(pool)}
        if record is None:
            yield _forgotten("intent_unreadable", "what was written down for VM %s is unreadable" % uuid, about)
        elif record.host != facts.host.name:
            message = "run of %s on host %s: %s" % (record.since, record.host, _listed(record.steps) or "no steps")
            yield _forgotten("intent_of_other_host", message, about)
        elif vm is not None:
            message = "run of %s: %s" % (record.since, _listed(record.steps) or "no steps")
            yield Finding("intent", message, repair=_taken_up(vm, record), **about)
        elif uuid in facts.configs:
            yield Finding("intent", "run of %s; the VM itself cannot be used" % record.since, **about)
        elif record.creates and "%s/%s" % (pool, uuid) in facts.host.datasets:
            message = "VM %s was being made at %s, and parts of it are there; the same task of vm makes it"
            yield Finding("intent_without_vm", message % (record.creates, record.since), **about)
        else:
            yield _forgotten("intent_without_vm", "run of %s: VM %s is not here" % (record.since, uuid), about)


def _forgotten(kind: str, message: str, about: t.Mapping[str, t.Any]) -> Finding:
    return Finding(kind, message, repair=own_task(kind), repairable=True, **about)


def _taken_up(vm: Vm, record: IntentRecord) -> Task:
    if record.rollback:
        return {OURS + "vm_snapshot": {"vms": [vm.config.uuid], "name": record.rollback, "state": "rolled_back"}}
    return _vm_disks(vm)


def listed_intents(host: Host, pool: str) -> str:
    """What the list of intents should be."""
    return journal.encode_index(vm for of, vm in host.intents if of == pool)


def _index(facts: _Facts) -> _Found:
    host = facts.host
    for pool in sorted(host.geometry):
        box = host.datasets.get(container(pool))
        said, right = box.user.get(journal.INDEX, "") if box else "", listed_intents(host, pool)
        if said != right:
            message = "%s%s of %s is %.200r, and there is %r" % (
                identity.PREFIX,
                journal.INDEX,
                container(pool),
                said,
                right,
            )
            task = own_task("intent_index")
            yield Finding("intent_index", message, volume=container(pool), repair=task, repairable=True)


_OF_A_VM: t.Tuple[t.Callable[[_Facts, Vm], _Found], ...] = (
    _references,
    _sharing,
    _slots,
    _orphans,
    _identities,
    _names,
    _properties_of_vm,
    _quota,
)
_OF_THE_HOST: t.Tuple[t.Callable[[_Facts], _Found], ...] = (
    _duplicates,
    _unlinked,
    _inherited,
    _strangers,
    _imports,
    _intents,
    _index,
)
