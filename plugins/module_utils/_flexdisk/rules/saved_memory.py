# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may be done with the saved memory of a guest that moves: it is restored at most once, over its own disks only.

A hypervisor restores a file with memory as often as it is asked to. A guest that goes on twice, or over disks that were
written to since, destroys its file systems. So a journal on the dataset with the file says how far it has come:

saving      the guest stands still, its disks are read-only for whoever opens them next, and it is saved into this file
saved       the file is whole, and all disks are read-only: no hypervisor starts the VM, and nobody writes to them
opening     the disks are being made writable again, right before it is restored
restoring   somebody has begun to restore it, and the disks can be written to: from now on, nobody begins again
restored    the guest is in memory again, and has not gone on
running     the guest has gone on
lost        the VM is started without the memory

The file is new, and was begun after the disks had become read-only and a snapshot of them was taken, the seal. So as
long as nothing was written since that snapshot, the file belongs to the disks, whoever was killed meanwhile. On the
host that it comes to, the disks have no room for a snapshot, and the bookmarks of the set that came are the seal.
"""

from __future__ import annotations

import typing as t

from ..model import vm as model
from ..model.errors import FlexdiskError
from . import identity
from .property_text import decode_object, encode_object
from .replicas import is_synced, sync_name, sync_number

SAVING, SAVED, OPENING, RESTORING, RESTORED, RUNNING = "saving", "saved", "opening", "restoring", "restored", "running"
LOST = "lost"
WORDS = (SAVING, SAVED, OPENING, RESTORING, RESTORED, RUNNING, LOST)
"""In their order: a journal never goes back, except from OPENING if the disks could not be opened."""
UNREADABLE = "unreadable"
"""There is no journal, or nobody can read it. A guest that runs or stands still has all that it needs in itself."""
PATIENT_SECONDS = 3600
"""How long a call waits for the lock of a host for a guest that stands still: others may save or restore theirs."""
_BEGUN = (RESTORING, RESTORED, RUNNING, LOST)
_FOLDER = "/var/lib/flexdisk/memory"
_OFF = ("atime", "setuid", "devices", "exec", "sharenfs", "sharesmb")  # the pool may be shared with others
_PRIVATE = {"canmount": "noauto", **dict.fromkeys(_OFF, "off")}

SAVE = "save"
"""Save the guest. It runs, or stands still."""
KEEP = "keep"
"""The guest is saved: make its disks read-only, and write down that it is."""
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
FORGET = "forget"
"""Nothing was saved: the guest had ended before. The VM is as any VM that is stopped."""
GO_ON = "go_on"
"""Nothing was saved yet, and the guest stands still: let it go on."""
GIVE_UP = "give_up"
"""The memory cannot be restored. To start the VM without it needs the word of somebody who knows that."""
BY_HAND = "by_hand"
"""Somebody has let the hypervisor save the guest (virsh managedsave): only its next start by hand goes on with that."""
WAIT = "wait"
"""The hypervisor is still at work, or somebody else has made the VM what it is."""
STAYS = "stays"
"""The guest goes on where it was: the move can only be given up."""


class Journal(t.NamedTuple):
    """How far the memory of a guest has come on this host."""

    word: str
    """One of WORDS, or UNREADABLE."""
    vm: str
    """The UUID of the VM."""
    seal: str = ""
    """The guids of the snapshots of its disks from right before the save. On the host that it comes to, of the set that
    it has come with."""
    figures: str = ""
    """What ZFS shows of its disks as long as nobody writes to them, on the host that it comes to."""
    set: str = ""
    """The name of that set. Its snapshots become bookmarks there."""
    boot: str = ""
    """The boot of the host in which it was restored, "" before that, or if it is not known."""


class Guest(t.NamedTuple):
    """What a host shows of a VM whose memory is saved, or was."""

    state: str
    """As in VmConfig."""
    guarded: bool = False
    """All its disks are read-only, unless they are being opened, and nothing was written to them since it was saved."""
    has_file: bool = False
    """There is a file, whole or not."""
    is_saving: bool = False
    """The hypervisor is at work on a save."""
    ended_with_save: bool = False
    """The hypervisor says that its last run has ended with a save, into whatever file."""


def folder(vm: str) -> str:
    """Return where the file system with the memory of a VM is mounted. vm: its UUID."""
    return f"{_FOLDER}/{vm}"


def properties(vm: str) -> t.Dict[str, str]:
    """Return the properties of the file system with the memory of a VM. vm: its UUID."""
    return {**_PRIVATE, "mountpoint": folder(vm)}


def seal_name(seconds: int) -> str:
    """Return what the snapshots of a seal are called: as of a sync, with no host. seconds: since 1970."""
    return sync_name(0, seconds)


def is_seal(name: str) -> bool:
    """Whether a snapshot, by its short name, is of a seal."""
    return sync_number(name, 0) is not None


def key_name(vm: str) -> str:
    """Return what the key is called with which the memory of a VM comes. vm: its UUID."""
    return f"{vm}.memory"


def encode(journal: Journal) -> str:
    """Return the value of moves.MEMORY_PROPERTY."""
    return encode_object(f"the journal of the memory of VM {journal.vm}", journal._asdict())


def decode(text: str) -> t.Optional[Journal]:
    """Return the journal in a property; None for anything that encode() has not written."""
    try:
        journal = Journal(**decode_object(text))
    except (TypeError, ValueError):
        return None
    is_text = all(isinstance(one, str) for one in journal)
    return journal if is_text and journal.word in WORDS and identity.is_uuid(journal.vm) else None


def advance(journal: Journal, word: str) -> Journal:
    """Return the journal with a later word. Raises ValueError for one that is not later."""
    if journal.word != UNREADABLE and WORDS.index(word) <= WORDS.index(journal.word):
        raise ValueError(f"the journal of VM {journal.vm} says {journal.word}, and does not go back to {word}")
    return journal._replace(word=word)


def common_set(memory: t.Sequence[str], disks: t.Iterable[t.Sequence[str]]) -> str:
    """Return the newest set of a memory that has come, if it is the newest one of all replicas that have come, else "".

    Only then they belong together. memory and disks: the short names of the snapshots of each, the oldest first.
    """
    newest = [next(filter(is_synced, reversed(names)), "") for names in (memory, *disks)]
    return newest[0] if len({*newest}) == 1 else ""


def _is_size(value: t.Any) -> bool:
    return value.__class__ is int and 0 < value < 1 << 40


def read_traveller(given: t.Any) -> t.Dict[str, t.Any]:
    """Return what another host says of a guest whose memory is to come. Raises FlexdiskError InvalidArgument."""
    kinds: t.Mapping[str, type] = {"domain": str, "encrypted": bool}
    try:
        result = {key: given[key] for key in (*kinds, "memory", "qemu")}
        good = all(isinstance(result[key], kind) for key, kind in kinds.items())
        if not good or any(not _is_size(result[key]) for key in ("memory", "qemu")):
            raise ValueError("a field has another type")
    except (KeyError, TypeError, ValueError) as exc:
        text = f"memory is not what a host says of a guest ({type(exc).__name__})"
        raise FlexdiskError("InvalidArgument", text) from exc
    return result


def to_leave(word: str, guest: Guest) -> str:
    """Return what is next on the host that the VM leaves. word: "" before the first, and if it did not run."""
    if word in (OPENING, *_BEGUN):
        return STAYS
    if word == SAVED:
        return SEND if guest.state == "stopped" and guest.guarded else GIVE_UP
    if word == UNREADABLE and guest.state == "stopped":
        return GIVE_UP
    if guest.state == "running" or (guest.state == "paused" and not guest.is_saving):
        return SAVE
    if guest.state != "stopped":
        return BY_HAND if guest.state == model.SAVED else WAIT
    return _after_save(guest, KEEP, FORGET) if word else SEND


def _after_save(guest: Guest, whole: str, nothing: str) -> str:
    """Return what is next once a guest has ended that was about to be saved."""
    if not guest.has_file and not guest.ended_with_save:
        return nothing
    return whole if guest.has_file and guest.guarded else GIVE_UP


def to_run(word: str, guest: Guest) -> str:
    """Return what is next on the host where the guest goes on: that which it comes to, or that where it stays.

    word: "" if nothing of a memory is there.
    """
    if guest.state in ("running", model.SAVED):
        return DONE if guest.state == "running" else BY_HAND
    if word in ("", SAVING, UNREADABLE) and guest.state == "paused" and not guest.is_saving:
        return GO_ON
    if word in ("", LOST):
        return BOOT if guest.state == "stopped" else WAIT
    if word in _BEGUN:
        return _after_restore(word, guest)
    if guest.state != "stopped":
        return WAIT
    if word == SAVING:
        return _after_save(guest, RESTORE, BOOT)
    return RESTORE if guest.guarded else GIVE_UP


def _after_restore(word: str, guest: Guest) -> str:
    """Return what is next once somebody has begun to restore the memory, and the guest does not run."""
    if guest.state == "stopped":
        return BOOT
    if word == RUNNING:
        return DONE  # somebody has made it stand still since
    return RESUME if guest.state == "paused" and not guest.is_saving else WAIT
