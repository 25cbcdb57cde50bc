# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads how small a guest's disk can become: its table, or what fills it."""

from __future__ import annotations

import typing as t

from ...guest import layers, observed, room
from ...guest.growth import ZFS
from ...guest.room import Room
from ...guest.table import HEAD_BYTES, parse_table
from ...model.errors import FlexdiskError
from .guest_observe import PVS, Guest, read_bytes

_EXT = ("ext2", "ext3", "ext4")


class RoomReader(Guest):
    """Reads how small a disk of a guest can become."""

    def room(self, kname: str) -> Room:
        """Return the answer for the disk of this name in /sys/block. Unknown content counts as the whole disk."""
        path = f"/dev/{kname}"
        device, content, answer = self._read_disk(path)
        if answer.rc == 0 and "corrupt" in answer.stderr:  # it has answered from one header alone
            return room.unknown(path, device.size, f"sfdisk says of it: {' '.join(answer.stderr.split())}")
        if answer.rc == 0 and not content.kind:
            return self._partitions(path, device, answer.stdout)
        if answer.rc == 0:
            return room.unknown(path, device.size, f"it has a partition table and {content.kind} on it", content.kind)
        if not content.kind:
            return room.unknown(path, device.size, f"it has {content.name} on it")
        try:
            return room.filled(path, device.size, content.kind, self._end(path, device, content))
        except FlexdiskError as exc:
            return room.unknown(path, device.size, exc.message, content.kind)

    def _partitions(self, path: str, device: observed.Device, text: str) -> Room:
        users = [above.name for above in device.above if above.kind != "part"]
        if users:
            return room.unknown(path, device.size, f"{', '.join(users)} uses it as a whole")
        known = [self._place(above.kname) for above in device.above]
        head = read_bytes(path, 0, HEAD_BYTES)
        try:
            table = parse_table(text, head, device.size, self._sector(device.kname))
        except FlexdiskError as exc:
            if exc.code != "UnknownLayout":
                raise
            return room.unknown(path, device.size, exc.message)
        return room.partitioned(path, device.size, table, head, [(each.start + each.size) * 512 for each in known])

    def _end(self, path: str, device: observed.Device, content: observed.Content) -> int:
        """Return the end (bytes) of the content that fills a disk. Raises FlexdiskError if that is not known."""
        kind = content.kind
        if kind == "LVM2_member":
            return room.physical_end(path, self._run(*PVS, path))
        if kind == "crypto_LUKS":
            return self._crypt(device)
        if device.above:
            used = ", ".join(above.name for above in device.above)
            raise FlexdiskError("UnknownLayout", f"it has {kind} on it, but {used} uses it")
        mounts = self._mounts()
        if kind in _EXT:
            mounted = any(device.numbers == mount.numbers or path == mount.source for mount in mounts)
            return room.ext_end(path, self._run("dumpe2fs", "-h", path), mounted)
        if kind == ZFS:
            raise FlexdiskError("UnknownLayout", "a ZFS pool cannot shrink")
        if kind not in ("xfs", "btrfs"):
            raise FlexdiskError("UnknownLayout", f"how far its {kind} reaches is not known")
        mount = layers.chosen_mount(content, path, device.numbers, mounts)
        if kind == "xfs":
            return layers.xfs_layer(kind, mount, self._run("xfs_growfs", "-n", mount)).size
        shown = self._run("btrfs", "filesystem", "show", "--raw", path)
        return layers.btrfs_layer(kind, (path,), mount, shown).size

    def _crypt(self, device: observed.Device) -> int:
        names = [above.name for above in device.above]
        if len(names) != 1 or device.above[0].kind != "crypt":
            raise FlexdiskError(
                "UnknownLayout", f"its LUKS device is not open, or {', '.join(names) or 'nothing'} uses it"
            )
        return room.crypt_end(names[0], self._run("cryptsetup", "status", names[0]))


def result(answer: Room) -> t.Dict[str, t.Any]:
    """Return the result of the module."""
    return {
        "changed": False,
        "msg": answer.description(),
        "device": answer.device,
        "size_bytes": answer.size,
        "table": answer.table,
        "content": answer.content,
        "end_bytes": answer.end,
        "backup_bytes": answer.backup,
        "min_size_bytes": answer.min_bytes,
        "min_size_mib": room.whole_mib(answer.min_bytes),
        "relocate": room.shown(answer.relocate),
        "relocated_min_size_mib": room.whole_mib(answer.compact if answer.relocate else answer.min_bytes),
        "reason": answer.reason,
    }
