# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a rollback by the hypervisor has begun, and whether it is complete: right after it, and after a kill."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_bytes
from ..model.vm import Intent, SinceSnapshot, Vm, VmConfig
from . import identity, snapshots
from .journal import removal_command

NOT_BEGUN, COMPLETE, UNKNOWN = "not begun", "complete", ""
LOCK = "rollback"  # the lock of Proxmox VE while it works
# What a volume has written since a snapshot after a rollback to it: nothing, or two sectors, of 512 bytes, 4 or 8 KiB,
# for its root without a log (measured: tests/lab/suite/test_unwritten.py). A write takes 13 sectors at least, so with
# sectors of 4 KiB or more, none has such a figure.
_UNWRITTEN = (0, *(2 << ashift for ashift in (9, 12, 13)))


def compared(vm: Vm, name: str) -> t.Tuple[SinceSnapshot, ...]:
    """Return the volumes of a listed snapshot, compared with it. None of them if one of them is not known."""
    return tuple(one for _label, one in _labelled(vm, name))


def _labelled(vm: Vm, name: str) -> t.List[t.Tuple[str, SinceSnapshot]]:
    listed, disks = snapshots.listed_as(vm, name), {disk.volume.name: disk for disk in snapshots.volumes_of(vm)}
    result = []
    for volume in sorted({*listed.volumes}) if listed is not None else ():
        disk = disks.get(volume)
        part = next((one for one in disk.snapshots if one.name == f"{volume}@{name}"), None) if disk else None
        if disk is None or part is None:
            return []
        newer = [one for one in disk.snapshots if one.createtxg > part.createtxg]
        written = sum(one.written for one in (disk.volume, *newer))
        same_size = disk.volume.volsize == part.volsize
        result.append((disk.label, SinceSnapshot(disk.volume.guid, part.guid, written, same_size)))
    return result


def is_back(one: SinceSnapshot, any_written: bool = False) -> bool:
    """Return whether a volume is as in its snapshot. Newer snapshots that hold nothing are no difference.

    any_written: what was written is not compared.
    """
    return one.same_size and (any_written or one.written in _UNWRITTEN)


def has_not_begun(before: t.Iterable[SinceSnapshot], now: t.Iterable[SinceSnapshot], same_config: bool) -> bool:
    """Return whether no volume has gone back.

    A volume that has gone back has written less since the snapshot than before, until its VM writes again.

    same_config: the configuration is as before, which suffices if figures of volumes are not known.
    """
    was, became = _by_guids(before), _by_guids(now)
    known = bool(was) and was.keys() == became.keys()
    return (known or same_config) and all(became[at].written >= was[at].written for at in was if at in became)


def written_config(config: VmConfig) -> str:
    """Return what stands for the configuration of a VM and when it was written, "" if the latter is not known.

    The first thing that a rollback does is to write a lock into it. Taken away again, that leaves it as it was, but for
    the time.
    """
    return f"{config.digest} {config.written_at}" if config.written_at else ""


def _by_guids(figures: t.Iterable[SinceSnapshot]) -> t.Dict[t.Tuple[int, int], SinceSnapshot]:
    return {(one.volume, one.snapshot): one for one in figures}


def outcome(vm: Vm, entry: Intent) -> str:
    """Return how an interrupted rollback has ended, as far as the VM shows it.

    The settings of the VM come back last, with another generation, if it has one. Then it is complete, whatever was
    written since. Figures of volumes alone do not show that it has never begun, because the VM may have run since. So
    its configuration must not have been written since.
    """
    listed, now = snapshots.listed_as(vm, entry.rollback), compared(vm, entry.rollback)
    known = bool(now) and _by_guids(now).keys() == _by_guids(entry.before).keys()
    if listed is None or not known or vm.config.proxmox.get("lock") == LOCK:
        return UNKNOWN
    other_generation = bool(entry.generation) and vm.config.generation not in ("", entry.generation)
    if listed.is_back and all(is_back(one, other_generation) for one in now):
        return COMPLETE
    earlier = 0 < vm.config.written_at < identity.seconds_of(entry.since)
    same_config = earlier and written_config(vm.config) == entry.config
    return NOT_BEGUN if same_config and has_not_begun(entry.before, now, same_config) else UNKNOWN


def settled_text(vm: Vm, entry: Intent) -> str:
    """Return the message about an interrupted rollback of which nothing is left to do."""
    ended = "is complete" if outcome(vm, entry) == COMPLETE else "has never begun, so nothing has gone back"
    return f"the rollback to snapshot {entry.rollback} that was interrupted at {entry.since} {ended}"


def interrupted_text(vm: Vm, entry: Intent) -> str:
    """Return the message about an interrupted rollback by the hypervisor: both ways out, first the harmless one."""
    name = entry.rollback
    text = f"a rollback to snapshot {name} was interrupted at {entry.since}"
    if snapshots.listed_as(vm, name) is None:
        return f"{text}, so its disks may be of different times, and the snapshot is gone; {keeps_disks(vm)}"
    if outcome(vm, entry) == NOT_BEGUN:
        text += ". Nothing has gone back so far; if that is so a minute after it, it counts as never begun"
    else:
        text += ", so its disks may be of different times"
    then = "" if vm.config.state == "stopped" else "when the VM is stopped, "
    text += f". Either {keeps_disks(vm)}; or {then}vm_snapshot with state=rolled_back and this name ends it"
    return f"{text}, and takes back {taken_back(vm, entry)}"


def keeps_disks(vm: Vm) -> str:
    """Return what ends an interrupted rollback without any change of the disks, as a sentence."""
    return f"{removal_command(vm.config.pool, vm.config.uuid)} accepts the disks as they are now, and changes no data"


def taken_back(vm: Vm, entry: Intent) -> str:
    """Return what another rollback would take back now, beside what there was to take back before the first."""
    before = {one.volume: render_bytes(one.written) for one in entry.before}
    parts = []
    for label, one in _labelled(vm, entry.rollback):
        then = f" ({before[one.volume]} before it)" if one.volume in before else ""
        parts.append(f"{label} {render_bytes(one.written)}{then}")
    text = f"what was written since snapshot {entry.rollback}"
    return f"{text}: {', '.join(parts)}" if parts else text
