# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Destroys exactly the volume that was planned, whatever has got its name meanwhile."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from .commands import Zfs

# A channel program runs within one transaction: what it has compared cannot become another volume before it destroys.
# Everything is tried before anything is done, for nothing is undone.
PROGRAM = b"""
local args = ...
local argv = args["argv"]
local volume, guid, uuid = argv[1], argv[2], argv[3]
if tostring(zfs.get_prop(volume, "guid")) ~= guid then
    return "guid"
end
if uuid ~= "" and zfs.get_prop(volume, "flexdisk:uuid") ~= uuid then
    return "uuid"
end
local known = {}
for n = 4, #argv do
    known[argv[n]] = true
end
local snapshots = {}
for snapshot in zfs.list.snapshots(volume) do
    if not known[snapshot] then
        return "snapshots"
    end
    snapshots[#snapshots + 1] = snapshot
end
if #snapshots ~= #argv - 3 then
    return "snapshots"
end
for n = 1, #snapshots do
    if zfs.check.destroy(snapshots[n]) ~= 0 then
        return "busy"
    end
end
for n = 1, #snapshots do
    local errno = zfs.sync.destroy(snapshots[n])
    if errno ~= 0 then
        return "errno " .. errno
    end
end
local errno = zfs.sync.destroy(volume)
if errno ~= 0 then
    return "errno " .. errno
end
return "destroyed"
"""

_DIFFERS = ("guid", "uuid", "snapshots")


def destroy(zfs: Zfs, library: t.Any, volume: Dataset, snapshots: t.Sequence[str]) -> str:
    """Destroy a volume that was just read, with the snapshots that it may have. Returns what did it, C(libzfs_core) or
    C(cli).

    library is libzfs_core or None. Raises FlexdiskError Changed if another volume has its name by now.
    """
    said = _run(library, volume, snapshots) if library is not None else ""
    if said in _DIFFERS:
        raise FlexdiskError("Changed", f"{volume.name} changed since it was read: another {said}")
    if said == "destroyed":
        return "libzfs_core"
    zfs.destroy(volume.name, bool(snapshots))
    return "cli"


def _run(library: t.Any, volume: Dataset, snapshots: t.Sequence[str]) -> str:
    """The answer of the channel program, "" if it could not be run. A guid is a signed number there."""
    guid = volume.guid - (1 << 64) if volume.guid >= 1 << 63 else volume.guid
    words = [volume.name, str(guid), volume.user.get("uuid", ""), *snapshots]
    try:
        said = library.lzc_channel_program(volume.pool.encode(), PROGRAM, params=[word.encode() for word in words])
    except Exception:  # pylint: disable=broad-except  # its errors share no base class with ours
        return ""
    return said.decode() if isinstance(said, bytes) else ""
