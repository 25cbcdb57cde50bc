# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of whole VMs: which there are, what they hold, which of them a retention rule keeps."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from ..model.vm import Vm
from .pins import without_snapshots
from .replicas import is_synced
from .space import committed

PREFIX = "vmsnap-"  # vmadm's own
PROTECTION = "@indestructible"
PARTS_PROPERTY = "parts"  # our property of a snapshot of a VM's dataset that was made again where the VM came to
_NAMED = 20
_NAME = re.compile(r"\A[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]{0,63}\Z")
_DIGITS = re.compile("[0-9]+")
_PARTS = re.compile(r"\A([0-9]{1,10})=((?:[0-9a-f]{1,16},)*)\Z")


class Origin(t.NamedTuple):
    """What a snapshot was before its VM moved: when it was taken, in seconds since 1970, and the guids of its parts on
    the disks. A stream keeps guids, but not the transaction groups.
    """

    creation: int
    guids: t.Tuple[int, ...]


def encode(origin: Origin) -> str:
    """The value of FACT."""
    return f"{origin.creation}={''.join(f'{guid:x},' for guid in origin.guids)}"


def decode(text: str) -> t.Optional[Origin]:
    """The origin in the value of FACT; None for anything that this collection would not have written."""
    match = _PARTS.match(text)
    return Origin(int(match[1]), tuple(int(guid, 16) for guid in match[2].split(",")[:-1])) if match else None


@dataclass(frozen=True)
class VmSnapshot:
    """The snapshots of one name on a VM's dataset and its volumes, the dataset's first if it has one.

    below: those of the file systems that others have made below. They come and go with it, but are not rolled back. If
    nothing else is left of the snapshot, they are its parts.
    """

    name: str
    parts: t.Tuple[Dataset, ...]
    below: t.Tuple[Dataset, ...] = ()

    @property
    def whole_parts(self) -> t.Tuple[Dataset, ...]:
        """All that goes with the snapshot, the dataset's first if it has one."""
        return (*self.parts, *self.below)

    @property
    def createtxg(self) -> int:
        """The transaction group in which the snapshot was taken; older snapshots have lower ones."""
        return self.parts[0].createtxg

    @property
    def origin(self) -> t.Optional[Origin]:
        """What the snapshot was before its VM moved here; None if it was taken here."""
        return decode(self.parts[0].user.get(PARTS_PROPERTY, ""))

    @property
    def creation(self) -> int:
        """Seconds since 1970."""
        return self.origin.creation if self.origin else self.parts[0].creation

    @property
    def strange(self) -> t.List[Dataset]:
        """Parts that were not taken with the others. A rollback would bring back a disk's past in another VM."""
        return self.strangers(self.parts)

    def strangers(self, parts: t.Iterable[Dataset]) -> t.List[Dataset]:
        """Which of the parts were not taken with the first one, nor came with it from another host."""
        known = self.origin.guids if self.origin else ()
        return [part for part in parts if part.createtxg != self.createtxg and part.guid not in known]

    @property
    def moment(self) -> datetime:
        """The time of the snapshot, in UTC."""
        return datetime.fromtimestamp(self.creation, timezone.utc)

    def of(self, dataset: str) -> t.Optional[Dataset]:
        """The snapshot of one dataset, None if it is not in this one."""
        return next((part for part in self.parts if part.parent == dataset), None)


def is_name(name: str) -> bool:
    """Whether vmadm accepts this name of a snapshot."""
    return bool(_NAME.match(name))


def is_of_others(name: str) -> bool:
    """Whether neither this collection nor vm_snapshot has taken the snapshot of this whole name."""
    short = name.partition("@")[2]
    return not (short.startswith(PREFIX) or is_synced(short) or "@" + short == PROTECTION)


def foreign_snapshots_text(names: t.Iterable[str]) -> str:
    """Words that name the snapshots among these that others have taken; "" for none."""
    foreign = [name for name in names if is_of_others(name)]
    if not foreign:
        return ""
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    listed = ", ".join(foreign[:_NAMED])
    return f". Snapshots that others have taken of its disks take room, too: {listed}{more}; zfs destroy frees that"


def check_name(name: str) -> str:
    """The name if a snapshot can have it, else FlexdiskError InvalidArgument."""
    if not is_name(name):
        raise FlexdiskError(
            "InvalidArgument",
            f"snapshot name {name!r} is not valid: use 1 to 64 letters, digits and -_.:%, no dash first",
        )
    return name


def snapshots_of(vm: Vm) -> t.List[VmSnapshot]:
    """The VM's snapshots, the oldest first, without those that others made under names of their own."""
    by_name, below = _by_name(_every(vm)), _by_name(vm.snapshots_below)
    every = [VmSnapshot(name, parts, below.get(name, ())) for name, parts in by_name.items()]
    every += [VmSnapshot(name, parts) for name, parts in below.items() if name not in by_name]
    return sorted(every, key=lambda s: (s.createtxg, s.name))


def _by_name(parts: t.Iterable[Dataset]) -> t.Dict[str, t.Tuple[Dataset, ...]]:
    result: t.Dict[str, t.Tuple[Dataset, ...]] = {}
    for part in parts:
        name = part.name.partition("@")[2]
        if name.startswith(PREFIX):
            result[name[len(PREFIX) :]] = (*result.get(name[len(PREFIX) :], ()), part)
    return result


def _every(vm: Vm) -> t.Iterator[Dataset]:
    yield from vm.snapshots
    for disk in vm.disks + vm.orphans:
        yield from disk.snapshots


def protection(vm: Vm) -> t.Optional[Dataset]:
    """The snapshot by which vmadm protects a VM. It goes with the protection and counts as none of the VM's."""
    if vm.config.identity_in_zfs or not vm.config.indestructible:
        return None
    return next((s for s in vm.snapshots if s.name == vm.root.name + PROTECTION), None)


def disks_in(vm: Vm, snapshot: VmSnapshot) -> t.List[str]:
    """Labels of the VM's disks that are in the snapshot."""
    return [disk.label for disk in vm.disks + vm.orphans if snapshot.of(disk.volume.name) is not None]


def find(vm: Vm, name: str) -> t.Optional[VmSnapshot]:
    """The snapshot of this name, None if the VM has none."""
    return next((s for s in snapshots_of(vm) if s.name == name), None)


def is_complete(vm: Vm, snapshot: VmSnapshot) -> bool:
    """Whether the snapshot is complete. An interrupted deletion leaves a part, because the VM's dataset goes last."""
    return snapshot.of(vm.root.name) is not None


def origin_of(snapshot: VmSnapshot) -> Origin:
    """What a whole snapshot is for the host that its VM moves to."""
    strange = snapshot.strange
    return Origin(snapshot.creation, tuple(part.guid for part in snapshot.parts[1:] if part not in strange))


def newer(vm: Vm, snapshot: VmSnapshot) -> t.List[Dataset]:
    """Every newer snapshot, whoever made it. A rollback to this one destroys them."""
    since = {part.parent: part.createtxg for part in snapshot.parts}
    return [s for s in _every(vm) if s.parent in since and s.createtxg > since[s.parent]]


def freed(vm: Vm, snapshot: VmSnapshot) -> int:
    """Bytes that deleting the snapshot gives back to the VM's disks."""
    return committed(vm) - committed(without_snapshots(vm, {part.name for part in snapshot.parts}))


def changed_since(vm: Vm, snapshot: VmSnapshot) -> bool:
    """Whether a disk differs from the snapshot. The VM's file system does not count: hypervisors write there."""
    if any(part.written or not is_synced(part.name.partition("@")[2]) for part in newer(vm, snapshot)):
        return True
    for disk in vm.disks + vm.orphans:
        part = snapshot.of(disk.volume.name)
        if part is not None and (disk.volume.written or disk.volume.volsize != part.volsize):
            return True
    return False


def counted(snapshots: t.Sequence[VmSnapshot], names: t.Sequence[str], name: str) -> t.List[VmSnapshot]:
    """The snapshots that a retention rule counts: those whose names fit a pattern (C(*), C(?), C([0-9])). Without
    patterns, those that are called like name: their names differ from it in digits alone.
    """
    if names:
        return [s for s in snapshots if any(fnmatchcase(s.name, pattern) for pattern in names)]
    return [s for s in snapshots if _shape(s.name) == _shape(name)]


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def retained(snapshots: t.Sequence[VmSnapshot], last: int, daily: int, weekly: int) -> t.Set[str]:
    """Names that a retention rule keeps: the newest ones, and the newest of each of so many days and ISO weeks (UTC)
    that have any. The newest of all is always kept. Which one is newer, the pool says: a VM that has moved has
    snapshots by the clocks of two hosts.
    """
    ordered = sorted(snapshots, key=lambda s: (s.createtxg, s.creation), reverse=True)
    names = {s.name for s in ordered[: max(last, 1)]}
    for form, count in (("%Y-%m-%d", daily), ("%G-%V", weekly)):
        periods: t.Dict[str, str] = {}
        for snapshot in ordered:
            periods.setdefault(snapshot.moment.strftime(form), snapshot.name)
        names |= set(list(periods.values())[:count])
    return names
