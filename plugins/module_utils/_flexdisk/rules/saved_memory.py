# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may be done with the saved memory of a guest that moves: it is restored at most once, over its own disks only.

A hypervisor restores a file with memory as often as it is asked to. A guest that goes on twice, or over disks that were
written to since, destroys its file systems. So a journal on the dataset with the file says how far it has come:

saving      the guest is about to be saved, or is being saved, or was saved by a run that did not get further
saved       the file is whole, and so is a set of snapshots of all disks that was taken before anything else ran
restoring   somebody has begun to restore it: from now on, nobody begins again
restored    the guest is in memory again, and has not gone on
running     the guest has gone on
"""

from __future__ import annotations

import typing as t

from . import identity
from .property_text import decode_object, encode_object
from .replicas import is_synced

MEMORY_PROPERTY = "memory"
SAVING, SAVED, RESTORING, RESTORED, RUNNING = "saving", "saved", "restoring", "restored", "running"
WORDS = (SAVING, SAVED, RESTORING, RESTORED, RUNNING)
"""In their order: a journal never goes back."""
_BEGUN = (RESTORING, RESTORED, RUNNING)

SAVE = "save"
"""Save the guest. It runs."""
KEEP = "keep"
"""The guest is saved: take the snapshots of its disks and of the file, and write down that it is."""
SEND = "send"
"""All that there is of its memory is saved, and may leave."""
RESTORE = "restore"
"""Write down that it is being restored, then restore it without letting it run."""
RESUME = "resume"
"""Write down that it is restored, then let it go on."""
DONE = "done"
"""The guest runs. The file is of no use any more."""
BOOT = "boot"
"""Start the VM without the memory, as after a power failure. There is no other way to go on."""
GIVE_UP = "give_up"
"""The memory cannot be restored. To start the VM without it needs the word of somebody who knows that."""
WAIT = "wait"
"""The hypervisor is still at work, or somebody else has made the VM what it is."""
STAYS = "stays"
"""The guest goes on where it was: the move can only be given up."""


class Journal(t.NamedTuple):
    """How far the memory of a guest has come on this host."""

    word: str
    """One of WORDS."""
    vm: str
    """The UUID of the VM."""
    points: t.Mapping[str, int] = {}
    """The guid of each disk's snapshot in the set that was taken with the file, by UUID. It is empty before there is a
    set, and if the guest goes on where it was before there is one.
    """


class Guest(t.NamedTuple):
    """What a host shows of a VM whose memory is saved, or was."""

    state: str
    """As in VmConfig."""
    ended_with_save: bool = False
    """The hypervisor knows that nobody has started the VM since its guest was saved."""
    apart: str = ""
    """As why_apart() has it."""


class SavedDisk(t.NamedTuple):
    """A disk of the VM, as it is now."""

    label: str
    guid: int
    """That of its newest snapshot of a sync, 0 without any."""
    written: int
    """The bytes written since, also by ZFS itself and between later snapshots of others."""


def encode(journal: Journal) -> str:
    """Return the value of MEMORY_PROPERTY."""
    return encode_object(f"the journal of the memory of VM {journal.vm}", journal._asdict())


def decode(text: str) -> t.Optional[Journal]:
    """Return the journal in a property; None for anything that encode() has not written."""
    try:
        journal = Journal(**decode_object(text))
    except (TypeError, ValueError):
        return None
    return journal if _is_valid(journal) else None


def _is_guid(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_valid(journal: Journal) -> bool:
    points = journal.points
    return (
        journal.word in WORDS
        and isinstance(journal.vm, str)
        and identity.is_uuid(journal.vm)
        and isinstance(points, dict)
        and all(identity.is_uuid(uuid) and _is_guid(guid) for uuid, guid in points.items())
        and (bool(points) if journal.word == SAVED else not points or journal.word != SAVING)
    )


def advance(journal: Journal, word: str) -> Journal:
    """Return the journal with a later word. Raises ValueError for one that is not later."""
    if WORDS.index(word) <= WORDS.index(journal.word):
        raise ValueError(f"the journal of VM {journal.vm} says {journal.word}, and does not go back to {word}")
    return journal._replace(word=word)


def taken(journal: Journal, points: t.Mapping[str, int]) -> Journal:
    """Return the journal of a guest that is saved. points: as in Journal."""
    return advance(journal, SAVED)._replace(points=dict(points))


def why_apart(points: t.Mapping[str, int], disks: t.Mapping[str, SavedDisk]) -> str:
    """Return why the memory does not belong to the disks as they are now; "" if it does.

    points: as in Journal. disks: by UUID. Whatever was written counts, even by ZFS itself: a guest that goes on has
    parts of its disks in memory.
    """
    lacking = sorted(points.keys() - disks.keys())
    if lacking:
        return f"the VM lacks disk {', '.join(lacking)}, which it had when it was saved"
    added = sorted(disks[uuid].label for uuid in disks.keys() - points.keys())
    if added:
        return f"the VM has got disk {', '.join(added)} since it was saved"
    changed = sorted(disk.label for uuid, disk in disks.items() if disk.guid != points[uuid] or disk.written)
    return f"disk {', '.join(changed)} was changed after the guest had been saved" if changed else ""


def newest_points(disks: t.Mapping[str, t.Sequence[t.Tuple[str, int]]]) -> t.Mapping[str, int]:
    """Return the guid of each disk's newest snapshot of a sync, by UUID; nothing unless all are of one set.

    disks: the short names and guids of the snapshots, the oldest first, by UUID.
    """
    newest = {uuid: [one for one in parts if is_synced(one[0])][-1:] for uuid, parts in disks.items()}
    names = {name for parts in newest.values() for name, _guid in parts}
    if len(names) != 1 or not all(newest.values()):
        return {}
    return {uuid: parts[0][1] for uuid, parts in newest.items()}


def to_leave(word: str, guest: Guest) -> str:
    """Return what is next on the host that the VM leaves. word: "" before the first, and if it did not run."""
    if word in _BEGUN:
        return STAYS
    if word == SAVED:
        return SEND if guest.state == "stopped" and not guest.apart else GIVE_UP
    if guest.state == "running":
        return SAVE
    if guest.state != "stopped":
        return WAIT
    if not word:
        return SEND
    return KEEP if guest.ended_with_save else GIVE_UP


def to_run(word: str, guest: Guest) -> str:
    """Return what is next on the host where the guest goes on: that which it comes to, or that where it stays.

    word: "" if nothing of a memory is there.
    """
    if guest.state == "running":
        return DONE
    if not word:
        return BOOT if guest.state == "stopped" else WAIT
    if word in _BEGUN:
        return _after_restore(word, guest.state)
    if guest.state != "stopped":
        return WAIT
    whole = guest.ended_with_save if word == SAVING else not guest.apart
    return RESTORE if whole else GIVE_UP


def _after_restore(word: str, state: str) -> str:
    """Return what is next once somebody has begun to restore the memory, and the guest does not run."""
    if state == "stopped":
        return BOOT
    if word == RUNNING:
        return DONE  # somebody has made it stand still since
    return RESUME if state == "paused" else WAIT
