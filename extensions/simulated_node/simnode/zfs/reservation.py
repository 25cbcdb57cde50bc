# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `refreservation=auto` reserves for a volume (libzfs `zvol_volsize_to_reservation`)."""

from __future__ import annotations

from typing import Any, NamedTuple

BLOCK_128K = 1 << 17
_METADATA_LEVELS = 7
_POINTERS_PER_BLOCK = 1024


class Vdev(NamedTuple):
    """A top-level vdev: `type` is disk, mirror, raidz1..3 or draid<parity>:<data>d; `disks` counts its members."""

    type: str
    disks: int = 1

    @property
    def parity(self) -> int:
        """Parity disks per stripe, 0 for disk and mirror."""
        if self.type.startswith("raidz"):
            return int(self.type[5:] or 1)
        if self.type.startswith("draid"):
            head = self.type[5:].split(":")[0]
            return int(head or 1)
        return 0

    @property
    def is_parity(self) -> bool:
        """True for raidz and draid."""
        return self.type.startswith(("raidz", "draid"))

    @property
    def data_disks(self) -> int:
        """Data disks of one draid group (8 unless the type says otherwise, as zpool does)."""
        for part in self.type.split(":")[1:]:
            if part.endswith("d"):
                return int(part[:-1])
        return min(8, self.disks - self.parity)

    def asize(self, size: int, ashift: int) -> int:
        """Return the bytes allocated on this vdev for one block of `size` bytes."""
        sector = 1 << ashift
        if self.type.startswith("draid"):
            row = self.data_disks * sector
            return -(-size // row) * (self.data_disks + self.parity) * sector
        sectors = -(-size // sector)
        if self.type.startswith("raidz"):
            sectors += self.parity * -(-sectors // (self.disks - self.parity))
            sectors = -(-sectors // (self.parity + 1)) * (self.parity + 1)
        return sectors * sector

    def to_json(self) -> dict[str, Any]:
        """Plain form for the state file."""
        return {"type": self.type, "disks": self.disks}


def auto_refreservation(volsize: int, block: int, vdevs: list[Vdev], ashift: int, modern: bool) -> int:
    """Bytes that `refreservation=auto` reserves for `volsize` bytes in blocks of `block` bytes.

    `modern` selects the rounding of OpenZFS 2.3 and later; illumos and OpenZFS up to 2.2 use the older one.
    `copies` plays no part: libzfs looks it up in the wrong form and always finds 1.
    """
    blocks = volsize // block
    parity = [vdev for vdev in vdevs if vdev.is_parity]
    data = max([_scaled(blocks, block, vdev, ashift, modern) for vdev in parity] or [blocks * block])
    metadata = _METADATA_LEVELS
    level = blocks
    while level > 1:
        level = -(-level // _POINTERS_PER_BLOCK)
        metadata += level
    return data + 2 * metadata * BLOCK_128K


def _scaled(blocks: int, block: int, vdev: Vdev, ashift: int, modern: bool) -> int:
    full = vdev.asize(BLOCK_128K, ashift)
    size = blocks * vdev.asize(block, ashift)
    return size // (full >> 9) * (BLOCK_128K >> 9) if modern else size * BLOCK_128K // full


def deflated(size: int, vdevs: list[Vdev], ashift: int) -> int:
    """Return the bytes of a block in `used` (raidz and draid are deflated by their 128K ratio)."""
    parity = [vdev for vdev in vdevs if vdev.is_parity]
    if not parity:
        sector = 1 << ashift
        return -(-size // sector) * sector
    return max(_deflated(size, vdev, ashift) for vdev in parity)


def _deflated(size: int, vdev: Vdev, ashift: int) -> int:
    ratio = BLOCK_128K // (vdev.asize(BLOCK_128K, ashift) >> 9)
    return (vdev.asize(size, ashift) >> 9) * ratio
