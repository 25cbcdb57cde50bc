# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of whole VMs: which exist, how much space they hold, and which of them a retention rule keeps."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from ..model.vm import Disk, ListedSnapshot, Vm
from .pins import without_snapshots
from .replicas import empty_size, is_changed, is_synced
from .space import committed

PREFIX = "vmsnap-"  # vmadm's own
PROTECTION = "@indestructible"
PARTS_PROPERTY = "parts"  # our property of a snapshot of a VM's dataset that was made again where the VM came to
_NAMED = 20
_LONGEST = 3600  # seconds, in which the parts of a listed snapshot are taken one after the other
_NAME = re.compile(r"\A[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]{0,63}\Z")
_DIGITS = re.compile("[0-9]+")
_PARTS = re.compile(r"\A([0-9]{1,10})=((?:[0-9a-f]{1,16},)*)\Z")


class Origin(t.NamedTuple):
    """A snapshot as it was before its VM moved: its creation in seconds since 1970, and the guids of its parts on the
    disks. A stream keeps guids, but not transaction groups.
    """

    creation: int
    guids: t.Tuple[int, ...]


def encode(origin: Origin) -> str:
    """Return the value of PARTS_PROPERTY."""
    return f"{origin.creation}={''.join(f'{guid:x},' for guid in origin.guids)}"


def decode(text: str) -> t.Optional[Origin]:
    """Return the origin in the value of PARTS_PROPERTY; None for anything that this collection has not written."""
    match = _PARTS.match(text)
    return Origin(int(match[1]), tuple(int(guid, 16) for guid in match[2].split(",")[:-1])) if match else None


@dataclass(frozen=True)
class VmSnapshot:
    """The snapshots with one name on a VM's dataset and its volumes. That of the dataset is the first, if it exists.

    below: snapshots of file systems that others have created below the dataset. They are taken and destroyed with the
    others, but not rolled back. If no other part is left, they are the parts.
    """

    name: str
    parts: t.Tuple[Dataset, ...]
    below: t.Tuple[Dataset, ...] = ()
    # The configuration of the VM says what belongs together: the parts were taken one after the other, from taken_at on
    # (seconds since 1970, 0 if it does not say).
    listed: bool = False
    taken_at: int = 0

    @property
    def whole_parts(self) -> t.Tuple[Dataset, ...]:
        """All snapshots that are destroyed together. That of the VM's dataset is the first, if it exists."""
        return (*self.parts, *self.below)

    @property
    def createtxg(self) -> int:
        """The transaction group in which the snapshot was taken. Older snapshots have lower ones."""
        return self.parts[0].createtxg

    @property
    def age(self) -> t.Tuple[int, int, int]:
        """What older snapshots of the VM have less of. Transaction groups of two pools cannot be compared."""
        return self.taken_at, self.createtxg, self.creation

    @property
    def origin(self) -> t.Optional[Origin]:
        """The snapshot as it was before its VM moved here; None if it was taken here."""
        return decode(self.parts[0].user.get(PARTS_PROPERTY, ""))

    @property
    def creation(self) -> int:
        """Seconds since 1970."""
        if self.taken_at:
            return self.taken_at
        return self.origin.creation if self.origin else self.parts[0].creation

    @property
    def strange(self) -> t.List[Dataset]:
        """Parts that were not taken with the others. A rollback to them would mix data of different times or VMs."""
        return self.strangers(self.parts)

    def strangers(self, parts: t.Iterable[Dataset]) -> t.List[Dataset]:
        """Return those of the parts that were neither taken with the first one, nor came with it from another host."""
        if self.listed:
            last = self.taken_at + _LONGEST
            return [part for part in parts if self.taken_at and not self.taken_at <= part.creation <= last]
        known = self.origin.guids if self.origin else ()
        return [part for part in parts if part.createtxg != self.createtxg and part.guid not in known]

    @property
    def moment(self) -> datetime:
        """The time of the snapshot, in UTC."""
        return datetime.fromtimestamp(self.creation, timezone.utc)

    def of(self, dataset: str) -> t.Optional[Dataset]:
        """Return the snapshot of one dataset, None if it has no part here."""
        return next((part for part in self.parts if part.parent == dataset), None)


def is_name(name: str) -> bool:
    """Whether vmadm accepts this name of a snapshot."""
    return bool(_NAME.match(name))


def is_of_others(name: str) -> bool:
    """Whether the snapshot with this full name was taken neither by this collection nor by vmadm."""
    short = name.partition("@")[2]
    return not (short.startswith(PREFIX) or is_synced(short) or "@" + short == PROTECTION)


def foreign_snapshots_text(names: t.Iterable[str]) -> str:
    """Return a text that names the snapshots that others have taken; "" for none."""
    foreign = [name for name in names if is_of_others(name)]
    if not foreign:
        return ""
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    listed = ", ".join(foreign[:_NAMED])
    return f". Snapshots that others have taken of its disks take room, too: {listed}{more}; zfs destroy frees that"


def check_name(name: str) -> str:
    """Return the name if a snapshot can have it. Raises FlexdiskError InvalidArgument."""
    if not is_name(name):
        raise FlexdiskError(
            "InvalidArgument",
            f"snapshot name {name!r} is not valid: use 1 to 64 letters, digits and -_.:%, no dash first",
        )
    return name


def snapshots_of(vm: Vm) -> t.List[VmSnapshot]:
    """Return the VM's snapshots, the oldest first, without those that others have taken."""
    if vm.config.prefixes:
        return sorted(_listed(vm), key=lambda s: (s.age, s.name))
    by_name, below = _by_name(_every(vm)), _by_name(vm.snapshots_below)
    every = [VmSnapshot(name, parts, below.get(name, ())) for name, parts in by_name.items()]
    every += [VmSnapshot(name, parts) for name, parts in below.items() if name not in by_name]
    return sorted(every, key=lambda s: (s.createtxg, s.name))


def _listed(vm: Vm) -> t.Iterator[VmSnapshot]:
    there = {part.name: part for part in _every(vm)}
    for one in vm.config.snapshots:
        names = [f"{volume}@{one.name}" for volume in one.volumes]
        parts = tuple(there[name] for name in names if name in there)
        if parts:
            yield VmSnapshot(one.name, parts, listed=True, taken_at=one.taken_at)


def listed_as(vm: Vm, name: str) -> t.Optional[ListedSnapshot]:
    """Return the snapshot of this name in the configuration of the VM, None without one."""
    return next((one for one in vm.config.snapshots if one.name == name), None)


def left_over(vm: Vm, one: ListedSnapshot) -> t.List[str]:
    """Return the volumes of a listed snapshot that nothing but it has: they become unused ones of the VM without it."""
    known = {*vm.config.snapshotted.values()}
    known.update(volume for other in vm.config.snapshots if other is not one for volume in other.volumes)
    return [volume for volume in dict.fromkeys((*one.volumes, *one.unused)) if volume not in known]


def deletion_command(vm: Vm, one: ListedSnapshot, lacks: bool = False) -> str:
    """Return the command that deletes a listed snapshot, "" if vm_snapshot does. lacks: a part of it is not there.

    Nothing is known here of the memory in one, and an interrupted rollback keeps all other tasks from its VM.
    """
    if not (lacks or one.beyond or left_over(vm, one)) and vm.interrupted is None:
        return ""
    return f"qm delsnapshot {vm.config.proxmox['vmid']} {one.name}{' --force 1' if lacks or one.unfinished else ''}"


def what_deletes(vm: Vm, one: ListedSnapshot, lacks: bool = False) -> str:
    """Return what deletes a listed snapshot. lacks: a part of it is not there."""
    first = f"{'; '.join(one.off)}; when it is available again, " if one.off else ""
    command = deletion_command(vm, one, lacks)
    return f"{first}{command} deletes it" if command else f"{first}vm_snapshot with state=absent deletes it"


def volumes_of(vm: Vm) -> t.Tuple[Disk, ...]:
    """Return all volumes that snapshots of the VM may have."""
    return vm.disks + vm.orphans + vm.beside


def taken_of(vm: Vm) -> t.List[Dataset]:
    """Return what a new snapshot of the VM has: all of its datasets, or those that its configuration names."""
    if not vm.config.prefixes:
        return [vm.root, *vm.volumes]
    names = {*vm.config.snapshotted.values()}
    return [disk.volume for disk in volumes_of(vm) if disk.volume.name in names]


def full_name(vm: Vm, name: str) -> str:
    """Return what ZFS calls the snapshot of this name, after the @."""
    return name if vm.config.prefixes else PREFIX + name


def _by_name(parts: t.Iterable[Dataset]) -> t.Dict[str, t.Tuple[Dataset, ...]]:
    result: t.Dict[str, t.Tuple[Dataset, ...]] = {}
    for part in parts:
        name = part.name.partition("@")[2]
        if name.startswith(PREFIX):
            result[name[len(PREFIX) :]] = (*result.get(name[len(PREFIX) :], ()), part)
    return result


def _every(vm: Vm) -> t.Iterator[Dataset]:
    yield from vm.snapshots
    for disk in volumes_of(vm):
        yield from disk.snapshots


def protection(vm: Vm) -> t.Optional[Dataset]:
    """Return the snapshot by which vmadm protects a VM. It goes with the protection, and is none of the VM's."""
    if vm.config.identity_in_zfs or not vm.config.indestructible:
        return None
    return next((s for s in vm.snapshots if s.name == vm.root.name + PROTECTION), None)


def disks_in(vm: Vm, snapshot: VmSnapshot) -> t.List[str]:
    """Return the labels of the VM's disks that are in the snapshot."""
    return [disk.label for disk in volumes_of(vm) if snapshot.of(disk.volume.name) is not None]


def find(vm: Vm, name: str) -> t.Optional[VmSnapshot]:
    """Return the snapshot of this name, None if the VM has none."""
    return next((s for s in snapshots_of(vm) if s.name == name), None)


def is_complete(vm: Vm, snapshot: VmSnapshot) -> bool:
    """Whether the snapshot is complete. After an interrupted deletion the part of the VM's dataset is missing or alone,
    because it is destroyed last.
    """
    if vm.config.prefixes:
        one, known = listed_as(vm, snapshot.name), {disk.volume.name for disk in volumes_of(vm)}
        return one is not None and not one.unfinished and all(snapshot.of(v) for v in one.volumes if v in known)
    return snapshot.of(vm.root.name) is not None


def origin_of(snapshot: VmSnapshot) -> Origin:
    """Return the origin to store with a complete snapshot when its VM moves to another host."""
    strange = snapshot.strange
    return Origin(snapshot.creation, tuple(part.guid for part in snapshot.parts[1:] if part not in strange))


def newer(vm: Vm, snapshot: VmSnapshot) -> t.List[Dataset]:
    """Return every newer snapshot, whoever took it. A rollback to this one destroys them."""
    since = {part.parent: part.createtxg for part in snapshot.parts}
    return [s for s in _every(vm) if s.parent in since and s.createtxg > since[s.parent]]


def freed(vm: Vm, snapshot: VmSnapshot) -> int:
    """Return the bytes that the deletion of the snapshot releases for the VM's disks."""
    return committed(vm) - committed(without_snapshots(vm, {part.name for part in snapshot.parts}))


def changed_since(vm: Vm, snapshot: VmSnapshot, datasets: t.Mapping[str, Dataset]) -> bool:
    """Whether a disk differs from the snapshot. The VM's file system does not count: hypervisors write there. What ZFS
    itself writes to a volume that goes back does not, either, if the sector size of its pool is known (is_changed).

    datasets: all of the host.
    """
    if any(part.written or not is_synced(part.name.partition("@")[2]) for part in newer(vm, snapshot)):
        return True
    for disk in volumes_of(vm):
        part = snapshot.of(disk.volume.name)
        if part is None:
            continue
        written = is_changed(disk.volume.written, empty_size(datasets, disk.volume.pool))
        if written or disk.volume.volsize != part.volsize:
            return True
    return False


def out_of_order(snapshots: t.Iterable[VmSnapshot]) -> str:
    """Return which of the snapshots have times that contradict the order on a volume, as a sentence; "" for none."""
    last: t.Dict[str, t.Tuple[int, str]] = {}
    for snapshot in sorted(snapshots, key=lambda s: s.age):
        for part in snapshot.parts:
            createtxg, name = last.get(part.parent, (0, ""))
            if createtxg > part.createtxg:
                return f"by their times, {snapshot.name} is newer than {name}, and older on {part.parent}"
            last[part.parent] = part.createtxg, snapshot.name
    return ""


def counted(snapshots: t.Sequence[VmSnapshot], names: t.Sequence[str], name: str) -> t.List[VmSnapshot]:
    """Return the snapshots that a retention rule counts: those whose names match a pattern (C(*), C(?), C([0-9])).

    Without patterns, those whose names differ from `name` in digits only.
    """
    if names:
        return [s for s in snapshots if any(fnmatchcase(s.name, pattern) for pattern in names)]
    return [s for s in snapshots if _shape(s.name) == _shape(name)]


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def retained(snapshots: t.Sequence[VmSnapshot], last: int, daily: int, weekly: int) -> t.Set[str]:
    """Return the names that a retention rule keeps: the newest `last` ones, and the newest of each of so many days and
    ISO weeks (UTC) that have any. The newest of all is always kept.

    The order is that of the pool's transaction groups, because a VM that has moved has snapshots by the clocks of two
    hosts. A VM whose disks may lie in two pools has them in the order of their times.
    """
    ordered = sorted(snapshots, key=lambda s: s.age, reverse=True)
    names = {s.name for s in ordered[: max(last, 1)]}
    for form, count in (("%Y-%m-%d", daily), ("%G-%V", weekly)):
        periods: t.Dict[str, str] = {}
        for snapshot in ordered:
            periods.setdefault(snapshot.moment.strftime(form), snapshot.name)
        names |= set(list(periods.values())[:count])
    return names
