# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that give the disks of a VM their identity, or remove it and save it as a property of each volume."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.desired import AdoptionDeclaration, ReleasedIdentity
from ..model.errors import Problems
from ..model.sizes import render_mib
from ..model.text import count
from ..model.vm import FILE, Disk, DiskConfig, Vm
from ..rules import disk_properties, exchange, identity, released_identity, vm_record
from ..rules.inventory import Host, may_have_uuid, own_uuid, serial_shown
from ..rules.layout import disk_name, index_of, pool_of
from ..rules.power import interrupted_run_text
from ..rules.unmanaged import unmanaged
from ..rules.usage import check_whole
from . import changes, ordering
from .disk_steps import ReleaseDisk, SyncFacts
from .ordering import Sequence
from .steps import Step, StepReport, VmPlan
from .unseen import why_taken
from .vm_steps import GiveUp, Remember, WritePackage


def plan_adoption(host: Host, vm: Vm, spec: AdoptionDeclaration) -> VmPlan:
    """Return the plan that gives an identity to every disk of the VM that has none."""
    problems = Problems(spec.vm)
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    _contradictions(host, vm, problems)
    volumes = {entry.path: entry.volume for entry in vm.config.disks}
    for path in (path for path in vm.strays if pool_of(volumes[path]) == vm.root.pool):
        problems.add("NotSupported", f"{path} lies outside {vm.root.name}; vm_disks with adopt: true moves it in")
    declared = _declared_identities(vm, spec, problems)
    warnings = list(_left_alone(vm))
    candidates = [
        _Candidate(vm, disk, declared.get(disk.volume.name, ReleasedIdentity()), warnings) for disk in _open(vm)
    ]
    adopted = [disk for disk in vm.disks if not disk.hidden and released_identity.has_whole_identity(disk.volume)]
    _check_names(host, vm, adopted, candidates, declared, problems)
    _check_uuids(host, candidates, problems)
    _check_serials(vm, candidates, problems)
    known = _with_uuids(vm, candidates)
    seq = Sequence(known, host.geometry[vm.config.pool])
    # Without a dataset of the VM, the next change of its disks writes serials: an interrupted one leaves traces.
    if vm.config.state == "stopped" and not vm.config.prefixes:
        seq.add(changes.configure_defaults(known, False))
    for candidate in candidates:
        seq.add(candidate.step(seq.volume_of(candidate.disk)))
    for disk in adopted:
        warnings += _ignored(vm, disk, declared.get(disk.volume.name, ReleasedIdentity()))
        seq.add(_settled(seq.volume_of(disk), warnings))
    if spec.package and vm.config.prefixes:
        problems.add("NotSupported", "a package is kept on the dataset of its VM, and this VM has none")
    seq.add(_package(vm, spec))
    if vm.config.prefixes and (seq.steps or vm_record.differences(vm.config, vm.disks)):
        seq.add(Remember(StepReport("")))
    if seq.steps and vm.interrupted is not None:
        problems.add("InUse", exchange.why_refused(vm) or interrupted_run_text(vm.interrupted))
    warnings += [f"{vm.label}: disk {d.label} has no uuid yet" for d in seq.vm.disks if not (d.hidden or d.uuid)]
    return _plan(vm, seq, problems, warnings)


def plan_release(host: Host, vm: Vm, forget: bool) -> VmPlan:
    """Return the plan that removes the identity of the VM's disks. forget: remove the saved copy, too."""
    problems = Problems(vm.config.alias or vm.config.uuid)
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    _contradictions(host, vm, problems)
    for disk in vm.detached:
        problems.add("InUse", would_become_unknown(disk), disk.label)
    for disk in vm.orphans:
        if released_identity.facts_to_release(disk.volume):
            problems.add(
                "InUse",
                f"{disk.volume.name} is not attached and would become unknown; vm_disks attaches or detaches it",
                disk.label,
            )
    seq = Sequence(vm, host.geometry[vm.config.pool])
    for disk in vm.disks:
        seq.add(_release(vm, disk, problems))
    seq.add(_out_of_record(vm))
    root, package = vm.root.name, vm.root.user.get("package")
    if package:
        facts = {released_identity.RELEASED_PROPERTY: package, "package": ""}
        seq.add(WritePackage(StepReport(f"- package {package} released"), dataset=root, facts=facts))
    if forget:
        for disk in seq.vm.disks:
            if released_identity.RELEASED_PROPERTY in disk.volume.user:
                text = f"- saved identity of {disk.volume.name} FORGOTTEN"
                seq.add(_released(vm, disk, text, {released_identity.RELEASED_PROPERTY: ""}))
        if released_identity.RELEASED_PROPERTY in seq.vm.root.user:
            report = StepReport(f"- saved identity of {root} FORGOTTEN")
            seq.add(WritePackage(report, dataset=root, facts={released_identity.RELEASED_PROPERTY: ""}))
    return _plan(vm, seq, problems, [])


def would_become_unknown(disk: Disk) -> str:
    """Return the message that a detached disk prevents a release."""
    return (
        f"{disk.volume.name} ({render_mib(disk.size_mib)}, uuid {disk.uuid or 'none'}) is "
        "detached and would become unknown; attach or destroy it first"
    )


def released(vm: Vm) -> t.Optional[t.Dict[str, t.Any]]:
    """Return the identities that a release saves or has saved, as an entry of O(vms); None if there are none."""
    disks = []
    for disk in vm.disks:
        saved = released_identity.identity_of(disk)
        if saved.uuid or saved.name:
            placed = replace(saved, pci_slot=disk.key) if disk.key else replace(saved, index=disk.index)
            disks.append(released_identity.entry(placed))
    package = vm.package or vm.root.user.get(released_identity.RELEASED_PROPERTY, "")
    if not (disks or package):
        return None
    result: t.Dict[str, t.Any] = {"vm": vm.config.uuid, "disks": disks}
    return {**result, "package": package} if package else result


def _plan(vm: Vm, seq: Sequence, problems: Problems, warnings: t.Sequence[str]) -> VmPlan:
    if seq.steps:
        ordering.check_ready(vm, problems)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), tuple(warnings))


def _contradictions(host: Host, vm: Vm, problems: Problems) -> None:
    """Refuse disks whose identity is not clear. They are neither adopted nor released."""
    for disk in vm.disks:
        if disk.disowned:
            problems.add(
                "Ambiguous",
                f"{disk.volume.name} has uuid {disk.volume.user['uuid']}, but the hypervisor says "
                f"{disk.uuid or 'another'}: it was moved by hand",
                disk.label,
            )
    for disk in vm.disks + vm.orphans + vm.detached:
        places = host.duplicates.get(disk.uuid)
        if places:
            problems.add("Ambiguous", f"the uuid {disk.uuid} is on several volumes: {', '.join(places)}", disk.label)


# -- adopt


def _open(vm: Vm) -> t.List[Disk]:
    """Return the disks that lack an identity, or a part of it."""
    return [disk for disk in vm.disks if not disk.hidden and not released_identity.has_whole_identity(disk.volume)]


def _configured(vm: Vm, disk: Disk) -> DiskConfig:
    return next(entry for entry in vm.config.disks if entry.path == disk.path)


class _Candidate:
    """A disk that gets an identity, with everything that is known about it."""

    def __init__(self, vm: Vm, disk: Disk, declared: ReleasedIdentity, warnings: t.List[str]) -> None:
        entry = _configured(vm, disk)
        saved = released_identity.saved_identity(disk.volume)
        if released_identity.RELEASED_PROPERTY in disk.volume.user and (
            saved is None or (saved.uuid and not may_have_uuid(entry, saved.uuid))
        ):
            why = "cannot be read" if saved is None else f"is that of another disk, {saved.uuid},"
            warnings.append(f"{vm.label}: the saved identity of {disk.volume.name} {why} and is not used")
            saved = None
        self.disk = disk
        self.saved = saved
        self.identity = released_identity.merged(declared, saved)
        self.name = self.identity.name or disk.name or _default_name(vm, disk)
        self.uuid = own_uuid(vm.config, entry, disk.volume) or self._uuid(vm, entry)
        # A serial that is the beginning of the uuid needs no edit.
        self.shown = bool(self.uuid) and serial_shown(entry)

    def _uuid(self, vm: Vm, entry: DiskConfig) -> str:
        """Return the uuid of a disk without a configured one; "" if unknown, or if the hypervisor gives one later."""
        report = vm.config.identity_in_zfs or vm.config.state == "stopped"
        known = self.identity.uuid or self.disk.uuid
        if known and may_have_uuid(entry, known):
            return known if report else ""
        if serial_shown(entry):
            return identity.uuid_with(entry.serial, self.disk.volume.guid)
        return changes.with_uuid(vm.config, self.disk).uuid

    def step(self, disk: Disk) -> Step:
        """Return the step that writes the identity. disk: the disk at this point of the plan."""
        merged = self.identity
        wanted: t.Dict[str, t.Any] = {"name": self.name, **merged.user_properties}
        if merged.remaining is not None:
            wanted["remaining"] = merged.remaining
        stamps = {"ctime": merged.ctime, "mtime": merged.mtime, "serial_no": str(merged.serial_no or "")}
        more = {key: value for key, value in stamps.items() if value}
        return changes.give_identity(
            disk, wanted, more if self.saved is None else {**more, released_identity.RELEASED_PROPERTY: ""}
        )


def _default_name(vm: Vm, disk: Disk) -> str:
    """Return the name of a disk that nobody has named: after its number, or after its key if another disk has that."""
    alike = [other for other in vm.disks if other.index == disk.index]
    return disk.key if disk.key and len(alike) > 1 else disk_name(disk.index)


def _declared_identities(vm: Vm, spec: AdoptionDeclaration, problems: Problems) -> t.Dict[str, ReleasedIdentity]:
    """Return the identities that the task declares, by the names of the volumes."""
    result: t.Dict[str, ReleasedIdentity] = {}
    for number, declared in enumerate(spec.disks):
        label = declared.name or declared.uuid or f"disks[{number}]"
        fitting = [disk for disk in vm.disks if _matches(declared, disk, _configured(vm, disk))]
        if len(fitting) > 1:
            problems.add("Ambiguous", f"{_address(declared)} fits several disks: {_listed(fitting)}", label)
        elif not fitting:
            lost = [path for path in vm.missing if declared.index is not None and index_of(path) == declared.index]
            why = f"the volume of {lost[0]} does not exist" if lost else f"there are: {_listed(vm.disks)}"
            problems.add("ResourceNotFound", f"no disk with {_address(declared)}; {why}", label)
        elif fitting[0].hidden:
            problems.add(
                "InvalidArgument", f"{fitting[0].volume.name} is a disk of the platform and cannot be adopted", label
            )
        elif fitting[0].volume.name in result:
            problems.add("InvalidArgument", f"{fitting[0].volume.name} is listed twice", label)
        else:
            result[fitting[0].volume.name] = declared
    return result


def _matches(declared: ReleasedIdentity, disk: Disk, entry: DiskConfig) -> bool:
    """Whether index, slot and uuid of an entry match the disk. A uuid that nothing confirms does not suffice alone."""
    if declared.index not in (None, disk.index) or declared.pci_slot not in (None, disk.pci_slot):
        return False
    if not declared.uuid:
        return True
    placed = declared.index is not None or declared.pci_slot is not None
    saved = released_identity.saved_identity(disk.volume)
    theirs = disk.uuid or (saved.uuid if saved is not None else "")
    if not may_have_uuid(entry, declared.uuid) or theirs not in ("", declared.uuid):
        return False
    return placed or bool(theirs) or serial_shown(entry)


def _address(declared: ReleasedIdentity) -> str:
    parts = [("uuid", declared.uuid), ("index", declared.index), ("pci_slot", declared.pci_slot)]
    return ", ".join(f"{key} {value}" for key, value in parts if value not in (None, ""))


def _listed(disks: t.Iterable[Disk]) -> str:
    shown = [f"index {d.index} at {d.pci_slot or 'none'}, uuid {d.uuid or 'none'}" for d in disks]
    return "; ".join(shown) or "none"


def _check_names(
    host: Host,
    vm: Vm,
    adopted: t.Sequence[Disk],
    candidates: t.Sequence[_Candidate],
    declared: t.Mapping[str, ReleasedIdentity],
    problems: Problems,
) -> None:
    """Check that names are unique among the VM's attached disks and those detached from it."""
    taken = {disk.name: disk.volume.name for disk in (*adopted, *vm.detached) if disk.name}
    for disk in adopted:
        wanted = declared.get(disk.volume.name, ReleasedIdentity()).name
        if wanted not in ("", disk.name):
            is_now = f"is called {disk.name}" if disk.name else "is adopted without a name"
            problems.add("NameConflict", f"{disk.volume.name} {is_now}; vm_disks renames it", wanted)
    for candidate in candidates:
        name, volume = candidate.name, candidate.disk.volume.name
        if name in taken:
            free = next(n for n in (f"{name[:58]}-{k}" for k in range(2, len(taken) + 3)) if n not in taken)
            problems.add(
                "NameConflict",
                f"{volume} and {taken[name]} would have the same name; choose another: disks: "
                f"[{{{_place(candidate.disk)}, name: {free}}}]",
                name,
            )
        taken.setdefault(name, volume)
        why = why_taken(vm, name, candidate.uuid, host)
        if why:
            problems.add("NameConflict", why, name)


def _place(disk: Disk) -> str:
    """Return what of an entry tells a disk from all others of its VM."""
    return f"pci_slot: {disk.key}" if disk.key else f"index: {disk.index}"


def _check_uuids(host: Host, candidates: t.Sequence[_Candidate], problems: Problems) -> None:
    """Refuse duplicate UUIDs that only a saved identity or the task has. The inventory does not know these."""
    everything = [disk for vm in host.vms for disk in vm.disks + vm.orphans] + list(host.detached)
    places: t.Dict[str, t.Set[str]] = {}
    for disk in everything:
        places.setdefault(disk.uuid, set()).add(disk.volume.name)
    for candidate in candidates:
        places.setdefault(candidate.uuid, set()).add(candidate.disk.volume.name)
    for candidate in (c for c in candidates if c.uuid and c.uuid not in host.duplicates):
        if len(places[candidate.uuid]) > 1:
            volumes = ", ".join(sorted(places[candidate.uuid]))
            problems.add("Ambiguous", f"the uuid {candidate.uuid} is on several volumes: {volumes}", candidate.name)


def _check_serials(vm: Vm, candidates: t.Sequence[_Candidate], problems: Problems) -> None:
    """Refuse UUIDs that give two disks of a VM one serial, where that is all that its configuration has of them."""
    known = {disk.uuid: disk.volume.name for disk in (*vm.disks, *vm.orphans, *vm.detached) if disk.uuid}
    for candidate in candidates if vm.config.prefixes else ():
        uuid, serial = candidate.uuid, identity.serial_of(candidate.uuid)
        for other, volume in known.items() if uuid else ():
            if other != uuid and identity.serial_of(other) == serial and volume != candidate.disk.volume.name:
                text = f"uuid {uuid} gives it serial {serial}, as {other} gives {volume}; choose another"
                problems.add("Ambiguous", text, candidate.name)
        known[uuid] = candidate.disk.volume.name


def _with_uuids(vm: Vm, candidates: t.Sequence[_Candidate]) -> Vm:
    """Return the VM with the UUIDs that its disks get."""
    uuids = {candidate.disk.path: candidate for candidate in candidates}
    disks = tuple(replace(d, uuid=uuids[d.path].uuid) if d.path in uuids else d for d in vm.disks)
    entries = tuple(
        replace(e, uuid=uuids[e.path].uuid) if e.path in uuids and uuids[e.path].shown else e for e in vm.config.disks
    )
    return replace(vm, disks=disks, config=replace(vm.config, disks=entries))


def _settled(disk: Disk, warnings: t.List[str]) -> t.Optional[Step]:
    """Return the step for a disk with its identity: it corrects facts and removes the saved one. None for nothing."""
    step = changes.sync_facts(disk)
    if released_identity.RELEASED_PROPERTY not in disk.volume.user:
        return step
    saved = released_identity.decode(disk.volume.user[released_identity.RELEASED_PROPERTY])
    if saved is None or saved.uuid != disk.volume.user.get("uuid", ""):
        warnings.append(
            f"{disk.volume.name} has an identity, and a saved one of another disk (zfs inherit "
            f"{identity.PREFIX}{released_identity.RELEASED_PROPERTY} removes that)"
        )
        return step
    facts = {**(step.facts if step is not None else {}), released_identity.RELEASED_PROPERTY: ""}
    return SyncFacts(StepReport("", disk.label), volume=disk.volume.name, facts=facts)


def _ignored(vm: Vm, disk: Disk, declared: ReleasedIdentity) -> t.Iterator[str]:
    for key in disk_properties.differing(declared.user_properties, disk.user_properties):
        yield f"{vm.label}: disk {disk.label} is adopted and keeps its {key}; vm_disks changes it"


def _left_alone(vm: Vm) -> t.Iterator[str]:
    for orphan in vm.orphans:
        yield f"{vm.label}: volume {orphan.volume.name} is not in the VM's configuration and is not adopted"
    for path in vm.missing:
        yield f"{vm.label}: the volume of {path} does not exist"
    yield from (f"{vm.label}: {text}" for text in unmanaged(vm))


def _package(vm: Vm, spec: AdoptionDeclaration) -> t.Optional[Step]:
    """Return the step that writes the package that the task names or a release has saved; None if it is not needed."""
    saved = vm.root.user.get(released_identity.RELEASED_PROPERTY, "")
    package = spec.package or saved
    if not package or vm.package not in ("", saved):
        return None
    facts = {"package": package, **({released_identity.RELEASED_PROPERTY: ""} if saved else {})}
    return WritePackage(StepReport(f"= package {package}"), dataset=vm.root.name, facts=facts)


# -- release


def _release(vm: Vm, disk: Disk, problems: Problems) -> t.Optional[Step]:
    present = released_identity.facts_to_release(disk.volume)
    if not present:
        return _saved_from_record(vm, disk)
    saved = problems.attempt(disk.label, lambda: released_identity.encode(released_identity.identity_of(disk)))
    uuid = disk.volume.user.get("uuid")
    text = f"- {disk.label} released ({disk.volume.name}{f', uuid {uuid}' if uuid else ''})"
    if vm.config.prefixes and disk.volume.user.get("type"):
        present.insert(1, "type")  # Proxmox VE sets no reservations, so nobody needs to know that this one has none
    facts = dict.fromkeys(present, "")
    if disk.volume.user.get(released_identity.RELEASED_PROPERTY) != saved:
        facts[released_identity.RELEASED_PROPERTY] = saved or ""
    return _released(vm, disk, text, facts)


def _saved_from_record(vm: Vm, disk: Disk) -> t.Optional[Step]:
    """Return the step that saves on a volume the identity that only the record of its VM has; None for any other."""
    if not vm_record.has_from_record(vm.config, disk):
        return None
    facts = {released_identity.RELEASED_PROPERTY: disk.volume.user[released_identity.RELEASED_PROPERTY]}
    return _released(vm, disk, f"- {disk.label} released ({disk.volume.name})", facts)


def _out_of_record(vm: Vm) -> t.Optional[Step]:
    """Return the step that takes all disks out of the record of the VM, after each is saved on its volume; None if it
    has none.
    """
    serials = tuple(sorted(vm_record.known(vm.config)))
    report = StepReport(f"- {count(len(serials), 'disk')} out of the record of the VM")
    return GiveUp(report, serials=serials) if serials else None


def _released(vm: Vm, disk: Disk, text: str, facts: t.Mapping[str, str]) -> Step:
    entry, user = _configured(vm, disk), {**disk.volume.user, **facts}
    identity_left = released_identity.saved_identity(
        replace(disk.volume, user={key: value for key, value in user.items() if value})
    )
    saved = identity_left.uuid if identity_left is not None and may_have_uuid(entry, identity_left.uuid) else ""
    uuid = disk.uuid if disk.type == FILE else own_uuid(vm.config, entry, disk.volume) or saved
    return ReleaseDisk(StepReport(text, disk.label), dataset=disk.volume.name, facts=facts, uuid=uuid)
