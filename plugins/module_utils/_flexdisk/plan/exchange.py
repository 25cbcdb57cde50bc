# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that give disks of a VM the contents that were restored of them. What they had stays, detached."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError, Problems
from ..model.sizes import render_apart, render_bytes, render_mib
from ..model.text import count
from ..model.vm import FILE, SPARSE, THICK, Disk, DiskConfig, Vm
from ..rules import exchange, replicas, restore, slots, space, usage
from ..rules.differences import in_conversion
from ..rules.disk_element import ELEMENT_PROPERTY
from ..rules.exchange import EXCHANGE, READY, REPLACED, Exchange
from ..rules.identity import type_fact
from ..rules.inventory import Host, attached_disk, detached_disk, made_from
from ..rules.layout import container, detached_dataset, last_part
from ..rules.power import interrupted_run_text, stop_command, why_not_started
from ..rules.replicas import REPLICAS_PROPERTY, is_synced
from ..rules.reservation import PoolGeometry
from ..rules.restore import RESTORED, Origin
from ..rules.usage import check_whole, labels
from . import departures, disk_travel, ordering, predict, recovery
from .disk_steps import Exchanged, ExchangeDisks
from .resolve import Leaver, creation_interrupted, unfinished_disk_text
from .steps import StepReport, VmPlan

# Properties that belong to what is on a volume, or to where it is, and not to the disk.
_OF_VOLUME = (RESTORED, REPLACED, EXCHANGE, READY, ELEMENT_PROPERTY, "from", "copied", "size", "type")
_SNAPSHOT = "snapshot"


class Wanted(t.NamedTuple):
    """A disk that gets restored contents."""

    disk: str
    """Its UUID."""
    name: str
    """The name of the restored disk, and afterwards of what the disk had."""
    origin: t.Optional[Origin] = None
    """What it is restored from. None if that is known already: an exchange is ended."""
    size: int = 0
    """Bytes of the restored disk if it has not come yet. 0: it must be there."""
    source: str = ""
    """The host of the replica that it is restored from. "" if it is not known."""


class _Pair(t.NamedTuple):
    """Both volumes of an exchange."""

    former: Dataset
    restored: Dataset
    origin: Origin
    begun: t.Optional[Exchange]


def vm_of(host: Host, uuid: str) -> Vm:
    """Return the VM that has this disk. Raises FlexdiskError ResourceNotFound or InUse."""
    for vm in host.vms:
        if any(disk.uuid == uuid and disk.path for disk in vm.disks):
            return vm
        if any(one.disk == uuid for one in exchange.begun(vm)):
            return vm
    if any(disk.uuid == uuid for disk in host.detached):
        text = f"disk {uuid} is detached: nothing is restored in its place. Restore it as a new disk"
        raise FlexdiskError("InUse", text)
    raise FlexdiskError("ResourceNotFound", f"no VM of this host has the disk {uuid}")


def plan_exchange(host: Host, wanted: t.Sequence[Wanted], policy: Policy, capabilities: Capabilities) -> VmPlan:
    """Return the plan for disks of one VM. Raises FlexdiskError as vm_of() does."""
    vm = vm_of(host, wanted[0].disk)
    problems = Problems(vm.config.alias or vm.config.uuid)
    if not check_whole(vm, problems):
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    left = [one for one in wanted if not _is_done(vm, one)]
    if not left and (vm.interrupted is None or _of_other_run(vm)):
        return VmPlan(vm.config.uuid, vm, vm)
    pairs = [_pair(host, vm, one, problems) for one in left]
    _check_others(vm, wanted, problems)
    if left:
        _check_power(vm, policy, problems)
    if None in pairs:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    geometry = host.geometry[vm.config.pool]
    exchanged = tuple(_exchanged(vm, t.cast(_Pair, pair), one, len(left), geometry) for pair, one in zip(pairs, left))
    for pair, one in zip(pairs, exchanged):
        _check_names(host, t.cast(_Pair, pair), one, problems)
    text = _text(t.cast(t.List[_Pair], pairs), exchanged) + _other_replicas(vm, left)
    seq = _sequence(vm, exchanged, text, geometry, capabilities)
    room = space.allocatable(seq.vm)
    if room is not None and room < min(0, space.allocatable(vm) or 0):
        text = f"disks and snapshots would need {render_bytes(-room)} more than flexible_disk_size"
        problems.add("InsufficientSpace", text)
    if problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(problems))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), tuple(recovery.stays_down(vm, seq.vm)))


def _of_other_run(vm: Vm) -> bool:
    """Return whether an interrupted run has left what only its own task ends."""
    left = vm.interrupted
    if left is None or exchange.begun(vm):
        return False
    return bool(left.rollback or vm.ghosts or vm.orphans or any(in_conversion(vm, disk) for disk in vm.detached))


def _is_done(vm: Vm, wanted: Wanted) -> bool:
    """Return whether the disk was exchanged already: what it had has the name, and says what it was exchanged for."""
    former = next((disk for disk in vm.detached if disk.name == wanted.name), None)
    known = restore.decode_origin(former.volume.user.get(REPLACED, "")) if former is not None else None
    if known is None or known.disk != wanted.disk or any(one.disk == wanted.disk for one in exchange.begun(vm)):
        return False
    return wanted.origin is None or known.guid == wanted.origin.guid


def is_interrupted(host: Host, uuid: str, name: str) -> bool:
    """Return whether a run that gives a disk other contents was interrupted after it had begun with the exchange. The
    same task ends it, whatever replicas have meanwhile: it starts the VM. name: of what the disk had before.
    """
    for vm in host.vms:
        if any(one.disk == uuid for one in exchange.begun(vm)):
            return True
        has_disk = any(disk.uuid == uuid and disk.path for disk in vm.disks)
        if has_disk and vm.interrupted is not None and not _of_other_run(vm):
            return _is_done(vm, Wanted(uuid, name))
    return False


def _check_others(vm: Vm, wanted: t.Sequence[Wanted], problems: Problems) -> None:
    """Refuse to leave out a disk whose exchange has begun: the VM would have data of different times."""
    named = {one.disk for one in wanted}
    left = [one for one in exchange.begun(vm) if one.disk not in named]
    if left:
        text = f"the restore of {', '.join(one.disk for one in left)} was interrupted, too; restore all disks together"
        problems.add("InUse", text)


def _check_power(vm: Vm, policy: Policy, problems: Problems) -> None:
    state = usage.power_problem(vm)
    if state:
        problems.add("VmInTransition", state)
    if vm.interrupted is not None and _of_other_run(vm):
        problems.add("InUse", interrupted_run_text(vm.interrupted, vm))
    if vm.config.frozen:
        problems.add("NotSupported", f"{vm.config.frozen}; it cannot be changed")
    if vm.config.state == "running" and not policy.allow_restart:
        text = f"the VM is running and must be stopped while its disks get other contents: {stop_command(vm.config)}"
        problems.add("VmNotStopped", f"{text}. Or allow_restart: true allows a shutdown and a start")


def _sequence(
    vm: Vm, exchanged: t.Tuple[Exchanged, ...], text: str, geometry: PoolGeometry, capabilities: Capabilities
) -> ordering.Sequence:
    """Return all steps: the exchange, and around it what it needs of the VM's power and of an interrupted run."""
    seq = ordering.Sequence(vm, geometry)
    seq.add(recovery.recover(vm))
    ran = bool(exchanged) and vm.config.state == "running"
    if ran:
        seq.add(ordering.stop(capabilities))
    if exchanged:
        label = exchanged[0].disk.label if len(exchanged) == 1 else ""
        seq.add(ExchangeDisks(StepReport(text, label), exchanged=exchanged))
    seq.extend(ordering.repairs(seq.vm, geometry, False))
    if ran and not why_not_started(seq.vm)[0]:
        seq.add(recovery.start(capabilities))
    seq.extend(recovery.power(vm, seq.vm, capabilities))
    return seq


def _text(pairs: t.Sequence[_Pair], exchanged: t.Sequence[Exchanged]) -> str:
    """Return the line of the plan. All disks of a task come from snapshots of one moment, which have one name."""
    disks = ", ".join(f"{one.disk.label} {render_mib(one.disk.size_mib)}" for one in exchanged)
    points = ", ".join(dict.fromkeys(pair.origin.snapshot for pair in pairs))
    names = ", ".join(one.former.name for one in exchanged)
    shorts = [snapshot.name.partition("@")[2] for one in exchanged for snapshot in one.former.snapshots]
    number = sum(not is_synced(short) for short in shorts)
    gets, had, has = ("gets", "it had", "it has") if len(exchanged) == 1 else ("get", "they had", "they have")
    kept = f"what {has} now stays detached as {names}{f', with {count(number, _SNAPSHOT)}' if number else ''}"
    return f"~ {disks} {gets} back what {had} at {points}; {kept}"


def _other_replicas(vm: Vm, left: t.Sequence[Wanted]) -> str:
    """Return, as the end of a text, which hosts may have replicas from which no sync can go on.

    The streams of a sync have all snapshots that the disk had, so the replica of a sync has those that are older.
    """
    hosts: t.Dict[str, None] = {}
    for disk, origin, source in _known(vm, left):
        made = {restore.short_name(one): one for one in disk.snapshots}
        point = next((one for one in made.values() if one.guid == origin.guid), None)
        for note in replicas.decode_notes(disk.volume.user.get(REPLICAS_PROPERTY, "")):
            sets = [one.createtxg for name, one in made.items() if replicas.is_set_of(name, note)]
            if note.host != source and not (point is not None and point.createtxg <= max(sets, default=0)):
                hosts[note.host] = None
    if not hosts:
        return ""
    text = f"; {', '.join(hosts)} may lack that snapshot: then the next sync there is refused (NoCommonSnapshot) until"
    return f"{text} the playbook replicate with flexdisk_replica_state=absent has made the replica anew"


def _known(vm: Vm, left: t.Sequence[Wanted]) -> t.Iterator[t.Tuple[Disk, Origin, str]]:
    """Yield the disks whose exchange has not begun, with what they get, and from which host."""
    for one in left:
        disk = next((disk for disk in vm.disks if disk.uuid == one.disk), None)
        if disk is not None and one.origin is not None and one.source:
            yield disk, one.origin, one.source


# -- the two volumes


def _pair(host: Host, vm: Vm, wanted: Wanted, problems: Problems) -> t.Optional[_Pair]:
    begun = next((one for one in exchange.begun(vm) if one.disk == wanted.disk), None)
    if begun is not None:
        return _begun_pair(host, vm, wanted, begun, problems)
    disk = next((one for one in vm.disks if one.uuid == wanted.disk), None)
    if disk is None:
        problems.add("ResourceNotFound", f"the VM does not have the disk {wanted.disk}")
        return None
    _check_disk(host, vm, disk, problems)
    restored = _restored(host, vm, disk, wanted, problems)
    if restored is None:
        return None
    if restored.volsize > disk.size:
        now, then = render_apart(disk.size, restored.volsize)
        text = f"has {now}, and had {then} then: what is restored does not fit. Restore it as a new disk"
        problems.add("InvalidArgument", text, disk.label)
    origin = wanted.origin or restore.decode_origin(restored.user.get(RESTORED, ""))
    return _Pair(disk.volume, restored, origin, None) if origin is not None else None


def _begun_pair(host: Host, vm: Vm, wanted: Wanted, begun: Exchange, problems: Problems) -> t.Optional[_Pair]:
    """Return the volumes of an exchange that was interrupted, wherever they are now."""
    every = [disk.volume for disk in (*vm.disks, *vm.orphans, *vm.detached)]
    restored = next(one for one in every if exchange.exchange_of(one) == begun)
    former = next((one for one in every if one.guid == begun.former), None)
    origin = restore.decode_origin(restored.user.get(RESTORED, ""))
    if former is None or origin is None:
        text = f"what disk {wanted.disk} had before, a volume with the guid {begun.former}, is not there any more"
        problems.add("ResourceNotFound", text)
        return None
    if begun.name != wanted.name:
        text = f"was interrupted with the name {begun.name} for what disk {wanted.disk} had, not {wanted.name}"
        problems.add("NameConflict", f"the restore {text}: give that name")
        return None
    return _Pair(former, restored, origin, begun)


def _check_disk(host: Host, vm: Vm, disk: Disk, problems: Problems) -> None:
    label, name = disk.label, disk.volume.name
    if disk.hidden or not disk.adopted:
        problems.add("NotSupported", f"{name} is not adopted; adopt it first, with disk_adopt", label)
    if disk.type == FILE:
        problems.add("NotSupported", "is a file: nothing is restored in its place. Restore it as a new disk", label)
    if disk.volume.encryptionroot:
        problems.add("EncryptionRoot", f"{name} is encrypted: nothing is restored in its place", label)
    if disk.volume.parent != vm.root.name:
        problems.add("NotSupported", f"{name} does not lie right below {vm.root.name}", label)
    if disk.guarded or disk.partial_copy:
        problems.add("InUse", f"{name} has what an interrupted run has left; vm_disks ends it", label)
    others = host.usage.of(name, vm.config.uuid)
    if others:
        problems.add("InUse", f"{name} is also attached to {labels(others)}, which would keep what it has now", label)
    places = [place for place in host.duplicates.get(disk.uuid, ()) if place != name]
    if places:
        problems.add("Ambiguous", f"the uuid {disk.uuid} is on several volumes: {', '.join([name, *places])}", label)
    disk_travel.check_keeping(Leaver(disk, False), problems)


def _restored(host: Host, vm: Vm, disk: Disk, wanted: Wanted, problems: Problems) -> t.Optional[Dataset]:
    """Return the volume that was restored; a stand-in for one that has not come yet."""
    there = [one for one in (*vm.disks, *vm.orphans, *vm.detached) if one.name == wanted.name]
    if not there:
        if not wanted.size:
            problems.add("ResourceNotFound", f"there is no restored disk {wanted.name} of the VM", disk.label)
            return None
        pool = disk.volume.pool
        blank = Dataset(f"{container(pool)}/{wanted.name}", "volume", volblocksize=disk.volume.volblocksize)
        blank = replace(blank, compression=disk.volume.compression, user={"name": wanted.name})
        return predict.resized(blank, wanted.size, host.geometry[pool])
    (one, *more) = there
    if more:
        problems.add("Ambiguous", f"several disks of the VM are called {wanted.name}", disk.label)
        return None
    why = _why_not_it(one, disk, wanted)
    if why:
        problems.add("NameConflict", f"{one.volume.name}, called {wanted.name}, {why}", disk.label)
        return None
    if creation_interrupted(one) and not wanted.size:
        problems.add("InUse", unfinished_disk_text(one.volume.name), disk.label)
    if host.usage.of(one.volume.name):
        problems.add(
            "InUse", f"{one.volume.name} is configured in {labels(host.usage.of(one.volume.name))}", disk.label
        )
    return one.volume


def _why_not_it(one: Disk, disk: Disk, wanted: Wanted) -> str:
    known = restore.decode_origin(one.volume.user.get(RESTORED, ""))
    if known is None or known.disk != disk.uuid or not one.detached:
        return f"is no disk that was restored of {disk.label}; give another name"
    if wanted.origin is not None and known.guid != wanted.origin.guid:
        return f"was restored from {known.snapshot}, not from {wanted.origin.snapshot}; give another name"
    if not (wanted.size or exchange.is_ready(one.volume)):
        text = "was restored beside the disk, or attached since, and may have other data now; give another name"
        return f"{text}, so that the snapshot is restored again"
    if one.volume.pool != disk.volume.pool:
        return f"lies in another pool than {disk.volume.name}"
    return ""


def _check_names(host: Host, pair: _Pair, one: Exchanged, problems: Problems) -> None:
    """Refuse an exchange if another dataset has a name that a volume or a snapshot of it needs on its way."""
    aside = [one.aside] if pair.former.name == one.place else []
    spare = [one.spare] if one.restored_guid else []  # without a volume, its name is not known yet
    both = (one.former_guid, one.restored_guid)
    needed: t.Dict[str, t.Tuple[int, ...]] = dict.fromkeys((*aside, one.place, *spare), both)
    needed.update({f"{pair.former.name}@{new}": () for _old, new in one.renames})
    for name, guids in needed.items():
        other = host.datasets.get(name)
        if other is not None and other.guid not in guids:
            problems.add("AlreadyExists", f"cannot change its place: {name} already exists", one.disk.label)


# -- what is done with them


def _exchanged(vm: Vm, pair: _Pair, wanted: Wanted, together: int, geometry: PoolGeometry) -> Exchanged:
    uuid = wanted.disk
    attached = next((disk for disk in vm.disks if disk.volume.guid == pair.former.guid), None)
    mark = pair.begun or Exchange(
        uuid, pair.former.guid, last_part(pair.former.name), pair.restored.user.get("uuid", ""), wanted.name, together
    )
    place = f"{vm.root.name}/{mark.place}"
    spare = detached_dataset(vm.config.pool, mark.uuid) if mark.uuid else pair.restored.name
    has_facts = pair.restored.user.get("uuid") == uuid
    leaving = disk_travel.facts_of_leaver(attached) if attached is not None else {}
    facts = {} if has_facts else _facts(pair.former, uuid)
    former_facts = {
        "uuid": mark.uuid,
        "name": mark.name,
        "boot": "false",
        "remaining": "",
        REPLICAS_PROPERTY: "",
        RESTORED: "",  # of an earlier restore: it was written to since
        READY: "",
        REPLACED: restore.encode_origin(pair.origin),
    }
    kind = THICK if pair.former.refreservation else SPARSE
    renames = dict(departures.detach(vm, Leaver(attached, False), True).renames) if attached is not None else {}
    return Exchanged(
        uuid=uuid,
        place=place,
        former_guid=pair.former.guid,
        restored_guid=pair.restored.guid,
        aside=detached_dataset(vm.config.pool, uuid),
        spare=spare,
        mark=exchange.encode(mark),
        size_bytes=max(pair.restored.volsize, pair.former.volsize),
        type=kind,
        compression=pair.former.compression,
        facts=facts,
        facts_leaving=leaving,
        facts_former=former_facts,
        renames=tuple(renames.items()),
        disk=_disk_after(vm, pair, place, {**pair.restored.user, **facts, EXCHANGE: "", READY: ""}, kind, geometry),
        former=_former_after(vm, pair, spare, {**pair.former.user, **leaving, **former_facts}, renames),
    )


def _facts(former: Dataset, uuid: str) -> t.Dict[str, str]:
    """Return the properties of the disk, which its volume had so far, for the volume that it gets."""
    facts = {key: value for key, value in former.user.items() if key not in _OF_VOLUME and key not in former.received}
    image = made_from(former)
    return {
        **facts,
        "uuid": uuid,
        **type_fact(THICK if former.refreservation else SPARSE),
        **({"image": image} if image else {}),
    }


def _written(user: t.Mapping[str, str]) -> t.Dict[str, str]:
    return {key: value for key, value in user.items() if value}


def _disk_after(vm: Vm, pair: _Pair, place: str, user: t.Mapping[str, str], kind: str, geometry: PoolGeometry) -> Disk:
    """Return the disk with what was restored, as the configuration of the VM has it."""
    entry = next(e for e in vm.config.disks if e.volume == place)
    volume = replace(pair.restored.renamed(place), user=_written(user), compression=pair.former.compression)
    size = max(pair.restored.volsize, pair.former.volsize)
    volume = replace(predict.with_type(replace(volume, volsize=size), kind, geometry), origin="")
    slot = slots.positions(vm.config.disks, vm.config.pci)[entry.path]
    known: DiskConfig = replace(entry, uuid=user["uuid"])
    return attached_disk(vm.config, known, slot, volume, 0, snapshots=(), guarded=False, partial_copy="")


def _former_after(vm: Vm, pair: _Pair, spare: str, user: t.Mapping[str, str], renames: t.Mapping[str, str]) -> Disk:
    """Return what the disk had before, as a detached disk."""
    every = (*vm.disks, *vm.orphans, *vm.detached)
    known = next(disk for disk in every if disk.volume.guid == pair.former.guid)
    shorts = [(one, one.name.split("@", 1)[1]) for one in known.snapshots]
    moved = tuple(replace(one, name=f"{spare}@{renames.get(short, short)}") for one, short in shorts)
    volume = replace(pair.former.renamed(spare), user=_written(user))
    return detached_disk(volume, known.image_size, snapshots=moved, guarded=False, partial_copy="")
