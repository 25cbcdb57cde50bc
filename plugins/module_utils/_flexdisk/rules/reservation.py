# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Forecast of what ZFS reserves for a thick volume (C(refreservation=auto)). All figures are bytes.

Source of the formula: zvol_volsize_to_reservation of libzfs (illumos, OpenZFS). Its factor C(copies) is left out on
purpose: libzfs looks the property up as a string where it holds a number, so that every volume is reserved as one of
C(copies=1), whatever its copies are.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.errors import FlexdiskError
from ..model.sizes import MIB

_TYPICAL_BLOCK = 131072
_METADATA_BLOCK = 131072
_POINTERS_PER_BLOCK = 1024
_METADATA_LEVELS = 7
_METADATA_COPIES = 2
_UINT64 = 2**64
_OPENZFS = ("linux", "freebsd")


@dataclass(frozen=True)
class Vdev:
    """A top-level vdev. C(plain) stands for disks, files and mirrors, whose other figures do not matter.

    ashift is the binary logarithm of the sector size; disks and parity count for raidz, data and parity for draid.
    """

    kind: str
    ashift: int
    disks: int
    parity: int
    data: int


@dataclass(frozen=True)
class PoolGeometry:
    """What the forecast needs to know about a pool.

    rounding is C(classic) (illumos, OpenZFS up to 2.2) or C(modern) (OpenZFS 2.3 and later); they differ on raidz and
    draid only.
    """

    vdevs: t.Tuple[Vdev, ...]
    rounding: str


def automatic_reservation(volsize: int, volblocksize: int, geometry: PoolGeometry) -> int:
    """Return the refreservation that ZFS gives a volume by itself.

    Raises FlexdiskError C(InvalidArgument) for figures that no volume has.
    """
    if volsize < 0 or volblocksize < 512:
        raise FlexdiskError("InvalidArgument", f"no volume has volsize {volsize} and volblocksize {volblocksize}")
    blocks = volsize // volblocksize
    return _data(blocks, volblocksize, geometry) + _metadata(blocks)


def overhead(volsize: int, volblocksize: int, geometry: PoolGeometry) -> int:
    """Return the bytes of the automatic reservation beyond the volume's size."""
    return automatic_reservation(volsize, volblocksize, geometry) - volsize


def is_automatic(refreservation: int, volsize: int, volblocksize: int, geometry: PoolGeometry) -> bool:
    """Whether a reservation is the automatic one, of this ZFS or of one with the other rounding."""
    return refreservation in (
        automatic_reservation(volsize, volblocksize, replace(geometry, rounding=rounding))
        for rounding in ("classic", "modern")
    )


def automatic_size(refreservation: int, volblocksize: int, geometry: PoolGeometry) -> t.Optional[int]:
    """Return the size in bytes, of whole MiB, that has this automatic reservation. Found by bisection."""
    low, high = 1, 2 * refreservation // MIB + 1
    while low < high:
        middle = (low + high) // 2
        if automatic_reservation(middle * MIB, volblocksize, geometry) < refreservation:
            low = middle + 1
        else:
            high = middle
    return low * MIB if automatic_reservation(low * MIB, volblocksize, geometry) == refreservation else None


def default_block_size(geometry: PoolGeometry, *, platform: str = "illumos") -> int:
    """Return the volblocksize of a new volume whose entry names none.

    illumos: vmadm's choice, 8 KiB, or 32 KiB when every vdev has 4 KiB sectors and one is raidz (OS-8531). linux,
    freebsd: 16 KiB, as OpenZFS since 2.2.
    """
    if platform in _OPENZFS:
        return 16384
    if platform != "illumos":
        raise FlexdiskError("InvalidArgument", f'platform "{platform}" is not known')
    wide = any(v.kind == "raidz" for v in geometry.vdevs) and all(v.ashift == 12 for v in geometry.vdevs)
    return 32768 if wide else 8192


def _metadata(blocks: int) -> int:
    count = _METADATA_LEVELS
    while blocks > 1:
        blocks = -(-blocks // _POINTERS_PER_BLOCK)
        count += blocks
    return count * _METADATA_COPIES * _METADATA_BLOCK


def _data(blocks: int, volblocksize: int, geometry: PoolGeometry) -> int:
    scaled = max((_scaled(blocks, volblocksize, v, geometry.rounding) for v in geometry.vdevs), default=0)
    return scaled or blocks * volblocksize


def _scaled(blocks: int, volblocksize: int, vdev: Vdev, rounding: str) -> int:
    """Data with padding and parity, less what blocks of 128 KiB would take for them; 0 for a plain vdev."""
    if vdev.kind == "plain":
        return 0
    allocated = blocks * _asize(volblocksize, vdev)
    typical = _asize(_TYPICAL_BLOCK, vdev)
    if rounding == "modern":
        return allocated // (typical >> 9) * (_TYPICAL_BLOCK >> 9)
    if rounding == "classic":
        # The product is taken in 64 bits there and overflows at about 128 TiB.
        return allocated * _TYPICAL_BLOCK % _UINT64 // typical
    raise FlexdiskError("InvalidArgument", f'rounding "{rounding}" is not known')


def _asize(size: int, vdev: Vdev) -> int:
    """Return what a block of the size takes on all disks of a raidz or draid vdev."""
    sectors = ((size - 1) >> vdev.ashift) + 1
    if vdev.kind == "draid":
        rows = -(-sectors // vdev.data)
        return (rows * (vdev.data + vdev.parity)) << vdev.ashift
    if vdev.kind == "raidz":
        sectors += vdev.parity * -(-sectors // (vdev.disks - vdev.parity))
        return (-(-sectors // (vdev.parity + 1)) * (vdev.parity + 1)) << vdev.ashift
    raise FlexdiskError("InvalidArgument", f'vdev kind "{vdev.kind}" is not known')
