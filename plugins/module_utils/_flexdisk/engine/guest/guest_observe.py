# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a disk of a guest: its partition table, what the kernel knows of it, and its contents."""

from __future__ import annotations

import os
import re
import stat
import typing as t
from dataclasses import dataclass, replace

from ...guest import growth, layers, observed, zfs
from ...guest.plan import Disk, KernelPartition, active_name
from ...guest.table import HEAD_BYTES, Partition, Table, parse_table
from ...model.command import Answer, Runner
from ...model.errors import FlexdiskError

_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_LSBLK = ("lsblk", "-J", "-b", "-o", "NAME,KNAME,TYPE,SIZE,SERIAL,MAJ:MIN")
_LVM = ("--reportformat", "json", "--units", "b", "--nosuffix", "-o")
PVS = ("pvs", *_LVM, "pv_name,vg_name,pv_size,pv_free,pe_start,vg_extent_size,pv_mda_count")
_LVS = "lv_name,vg_name,lv_size,segtype,lv_attr"


@dataclass(frozen=True)
class GrowthOptions:
    """What the user asks for."""

    logical_volume: t.Optional[str] = None
    """The logical volume that grows."""
    passphrase: bool = False
    """There is a passphrase for LUKS."""
    backups: str = ""
    """The directory of backups."""


class Guest:
    """Reads the disks of a guest. root: where its /sys, /proc and /etc are."""

    def __init__(self, runner: Runner, root: str = "/") -> None:
        self._runner = runner
        self._root = root

    def find(self, serial: t.Optional[str], pci_address: t.Optional[str]) -> str:
        """Return the name in /sys/block of the disk with this serial number or at this address.

        Raises FlexdiskError InvalidArgument, ResourceNotFound, Ambiguous.
        """
        disks = [disk for disk in self._lsblk("-d") if disk.kind == "disk"]
        if serial is not None:
            text = f"with the serial number {serial}"
            values = {disk.kname: disk.serial or self._serial(disk.kname) for disk in disks}
            matches = [name for name, value in values.items() if value and value == serial]
        else:
            address = _normalized(pci_address or "")
            text = f"at the PCI address {address}"
            values = {disk.kname: self._address(disk.kname) for disk in disks}
            matches = [name for name, value in values.items() if value == address]
        known = ", ".join(f"{name} ({value or 'none'})" for name, value in values.items()) or "no disk"
        if not matches:
            raise FlexdiskError("ResourceNotFound", f"no disk {text}; there are {known}")
        if len(matches) > 1:
            raise FlexdiskError("Ambiguous", f"several disks {text}: {', '.join(matches)}")
        return matches[0]

    def below(self, mount_point: str) -> t.Tuple[str, t.Optional[str]]:
        """Return the disk below a mounted file system, as in /sys/block, and the logical volume, if there is one.

        Raises FlexdiskError NotMounted, ResourceNotFound, Ambiguous.
        """
        mounts = [mount for mount in self._mounts() if mount.target == mount_point]
        if not mounts:
            raise FlexdiskError("NotMounted", f"nothing is mounted at {mount_point}")
        mount = mounts[-1]
        if mount.kind == "zfs":
            pool = mount.source.partition("/")[0]
            device = zfs.sole_device(pool, self._run("zpool", "list", "-HvLP", pool))
            mount = replace(mount, source=device, numbers="")
        pairs = [
            (disk, holder) for disk in self._lsblk() for holder in _with_users(disk) if _is_source_of(holder, mount)
        ]
        if not pairs:
            raise FlexdiskError("ResourceNotFound", f"no disk is below {mount.kind} on {mount.source} at {mount_point}")
        disks = sorted({disk.kname for disk, _own in pairs})
        if len(disks) > 1:
            raise FlexdiskError("Ambiguous", f"several disks are below {mount_point}: {', '.join(disks)}")
        holder = pairs[0][1]
        is_volume = holder.kind == "lvm"
        lvs = ("lvs", "--noheadings", "-o", "lv_name", f"/dev/mapper/{holder.name}")
        return disks[0], self._run(*lvs).strip() if is_volume else None

    def read(self, kname: str, options: GrowthOptions) -> Disk:
        """Return all that a plan needs of a disk. Raises FlexdiskError for an unsupported layout."""
        path = f"/dev/{kname}"
        device, kind, answer = self._read_disk(path)
        if answer.rc or kind.kind:
            if kind.kind not in growth.GROWABLE:
                raise FlexdiskError("UnknownLayout", f"{path} has {kind.name} on it")
            if answer.rc == 0:
                raise FlexdiskError("UnknownLayout", f"{path} has a partition table and {kind.kind} on it")
            return Disk(path, device.size, self._layers(device, device.size, kind, options))
        table = parse_table(answer.stdout, read_bytes(path, 0, HEAD_BYTES), device.size, self._sector(kname))
        return self._partitioned(device, table, options)

    def _read_disk(self, path: str) -> t.Tuple[observed.Device, observed.Content, Answer]:
        """Return a disk, the content that fills it, and the output of sfdisk -J."""
        (device,) = self._lsblk(path)
        self._run("blockdev", "--flushbufs", path)  # the kernel's cache of the disk outside partitions is old
        return device, self._blkid(path), self._runner(("sfdisk", "-J", path))

    def _sector(self, kname: str) -> int:
        """Return the bytes of a disk's sector, 0 if the kernel does not report them."""
        return int(self._text(f"sys/block/{kname}/queue/logical_block_size") or 0)

    def _partitioned(self, device: observed.Device, table: Table, options: GrowthOptions) -> Disk:
        path = f"/dev/{device.kname}"
        users = [above.name for above in device.above if above.kind != "part"]
        if users:
            raise FlexdiskError("UnknownLayout", f"{path} is used as a whole by {', '.join(users)}")
        known = {self._number(above.kname): above for above in device.above}
        kernel = {number: self._place(above.kname) for number, above in known.items()}
        contents = {
            part.number: self._content(path, table, part, kernel.get(part.number))
            for part in table.partitions
            if not part.extended
        }
        if self._is_whole_pool(table, known, contents):
            return Disk(path, device.size, ())
        cast = growth.find_growth(table, contents)
        grown = known.get(cast.grown.number)
        if grown is None:
            raise FlexdiskError("UnknownLayout", f"the kernel does not know {cast.grown.name}: boot first")
        new = growth.places(table, cast)
        end = (new or (cast.grown,))[0].size * table.sector
        if new and contents[cast.grown.number].kind == growth.ZFS:
            self._check_end(path, cast.grown, new[0].start * table.sector + end // zfs.LABEL_BYTES * zfs.LABEL_BYTES)
        return Disk(
            path,
            device.size,
            self._layers(grown, end, contents[cast.grown.number], options),
            table,
            self._run("sfdisk", "-d", path),
            cast,
            kernel,
            contents,
            tuple(replace(each, numbers=_numbers(each)) for each in observed.parse_swaps(self._text("proc/swaps"))),
            self._text("etc/fstab"),
            observed.available_memory(self._text("proc/meminfo")),
            _swap_flaw(path, table, cast.swap),
            os.path.exists(os.path.join(options.backups, active_name(table))),
        )

    def _layers(
        self, device: observed.Device, below: int, content: observed.Content, options: GrowthOptions
    ) -> t.Tuple[layers.Layer, ...]:
        """Return the layers on a device that will have that many bytes, from below."""
        path = f"/dev/{device.kname}"
        if content.kind == "LVM2_member":
            return self._lvm(device, below, path, options)
        if content.kind == "crypto_LUKS":
            layers.check_luks(path, self._run("cryptsetup", "luksDump", path))
            above = _only_user(device, device.above, "crypt")
            status = self._run("cryptsetup", "status", above.name)
            layer = layers.crypt_layer(above.name, path, status, options.passphrase, below)
            more = self._layers(above, layer.grown(below), self._blkid(f"/dev/{above.kname}"), options)
            return (layer, *more)
        if device.above:
            used = ", ".join(above.name for above in device.above)
            raise FlexdiskError("UnknownLayout", f"{path} has {content.kind or 'nothing'} on it, but {used} uses it")
        return (self._file_system(device, below, content),)

    def _lvm(
        self, device: observed.Device, below: int, path: str, options: GrowthOptions
    ) -> t.Tuple[layers.Layer, ...]:
        pvs, lvs = self._run(*PVS, path), self._run("lvs", *_LVM, _LVS)
        lvm, name = layers.lvm_layers(path, pvs, lvs, options.logical_volume)
        if not name:
            return lvm
        above = _only_user(device, [above for above in device.above if above.name == name], "lvm")
        if self._text(f"sys/block/{above.kname}/dm/suspended").strip() == "1":
            text = f"{lvm[1].name} is suspended, as when lvextend was killed; run: lvchange --refresh {lvm[1].name}"
            raise FlexdiskError("UnknownLayout", text)
        below = lvm[0].grown(below)
        lvm = (lvm[0], layers.activated(lvm[1], above.size, below))
        below = lvm[1].grown(below)
        return (*lvm, *self._layers(above, below, self._blkid(f"/dev/{above.kname}"), options))

    def _file_system(self, device: observed.Device, below: int, content: observed.Content) -> layers.Layer:
        path, kind = f"/dev/{device.kname}", content.kind
        if kind == growth.ZFS:
            return self._pool(device, below)
        if kind not in ("ext2", "ext3", "ext4", "xfs", "btrfs"):
            raise FlexdiskError("UnknownLayout", f"{path} has {kind or 'nothing that is known'} on it")
        shown, known_as = "", (path, f"/dev/mapper/{device.name}")
        if kind == "btrfs":
            shown = self._run("btrfs", "filesystem", "show", "--raw", path)
            full = layers.full_btrfs(known_as, shown, below)
            if full is not None:
                return full
        mount = layers.chosen_mount(content, path, device.numbers, self._mounts())
        name = f"{kind} on {device.name} at {mount}"
        if kind == "xfs":
            return layers.xfs_layer(name, mount, self._run("xfs_growfs", "-n", mount))
        if kind == "btrfs":
            return layers.btrfs_layer(name, known_as, mount, shown)
        return layers.ext_layer(name, path, self._run("dumpe2fs", "-h", path), below)

    def _is_whole_pool(
        self,
        table: Table,
        known: t.Mapping[int, observed.Device],
        contents: t.Mapping[int, observed.Content],
    ) -> bool:
        """Return whether a ZFS pool has the whole disk. Raises FlexdiskError UnknownLayout if it uses less."""
        part = zfs.data_partition(table, contents)
        device = known.get(part.number) if part is not None else None
        if part is None or device is None or not self._label(f"/dev/{device.kname}").whole_disk:
            return False
        self._pool(device, zfs.whole_size(table, part))
        return True

    def _label(self, path: str) -> zfs.Label:
        return zfs.parse_label(path, self._runner(("zdb", "-l", path)).stdout)

    def _pool(self, device: observed.Device, below: int) -> layers.Layer:
        path = f"/dev/{device.kname}"
        label = self._label(path)
        pool = zfs.pool_name(path, label, self._run("zpool", "list", "-Hp", "-o", "guid,health,readonly,name"))
        name = f"ZFS pool {pool} on {device.name}"
        shown = self._run("zpool", "list", "-HpvLP", pool)
        if not zfs.alone(label):
            zfs.check_member(path, label, pool, shown, below - device.size)
            return layers.Layer(name, (), below)
        layer = zfs.pool_layer(name, path, label, pool, shown)
        zfs.check_whole(layer, label, path, pool, below)
        return layer

    def _check_end(self, path: str, part: Partition, end: int) -> None:
        """Raise FlexdiskError if there is an old label of ZFS at the new end of its partition."""
        if zfs.old_label(read_bytes(path, end - 2 * zfs.LABEL_BYTES, 2 * zfs.LABEL_BYTES)):
            raise FlexdiskError(
                "UnknownLayout",
                f"where {part.name} would end, at byte {end} of {path}, there are labels of an old ZFS pool; ZFS would "
                "take them for its own: overwrite them first",
            )

    def _mounts(self) -> t.List[observed.Mount]:
        mounts = observed.parse_findmnt(self._run("findmnt", "-J", "-l", "-o", "SOURCE,TARGET,FSTYPE,OPTIONS,MAJ:MIN"))
        return [
            replace(each, source=os.path.realpath(each.source)) if each.source.startswith("/dev/") else each
            for each in mounts
        ]

    def _content(
        self, path: str, table: Table, part: Partition, known: t.Optional[KernelPartition]
    ) -> observed.Content:
        """Return the content of a partition, read from the disk if the kernel does not know the partition there."""
        if known is not None and known.start * 512 == part.start * table.sector:
            return self._blkid(part.node)
        start, size = part.start * table.sector, part.size * table.sector
        return self._blkid("-O", str(start), "-S", str(size), path)

    def _blkid(self, *where: str) -> observed.Content:
        answer = self._runner(("blkid", "-p", "-o", "export", *where))
        return observed.parse_blkid(answer.rc, answer.stdout)

    def _lsblk(self, *more: str) -> t.Tuple[observed.Device, ...]:
        return observed.parse_lsblk(self._run(*_LSBLK, *more))

    def _run(self, *argv: str) -> str:
        answer = self._runner(argv)
        if answer.rc:
            raise FlexdiskError("GrowthFailed", f"{' '.join(argv)}: {answer.stderr.strip() or answer.rc}")
        return answer.stdout

    def _text(self, name: str) -> str:
        try:
            with open(os.path.join(self._root, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _number(self, kname: str) -> int:
        return int(self._text(f"sys/class/block/{kname}/partition") or 0)

    def _place(self, kname: str) -> KernelPartition:
        start, size = (int(self._text(f"sys/class/block/{kname}/{name}") or 0) for name in ("start", "size"))
        return KernelPartition(start, size, self._text(f"sys/class/block/{kname}/dev").strip())

    def _serial(self, kname: str) -> str:
        return (self._text(f"sys/block/{kname}/serial") or self._text(f"sys/block/{kname}/device/serial")).strip()

    def _address(self, kname: str) -> str:
        """Return the address of the last PCI device in the path of a disk."""
        path = os.path.realpath(os.path.join(self._root, "sys/block", kname))
        parts = [part for part in path.split("/") if _PCI.fullmatch(part)]
        return parts[-1] if parts else ""


def _only_user(device: observed.Device, above: t.Sequence[observed.Device], kind: str) -> observed.Device:
    if len(above) != 1 or above[0].kind != kind:
        used = ", ".join(f"{each.name} ({each.kind})" for each in above) or "nothing"
        wanted = {"crypt": "an open LUKS device", "lvm": "an active logical volume"}[kind]
        raise FlexdiskError("UnknownLayout", f"on {device.name} there should be {wanted}, but there is {used}")
    return above[0]


def _with_users(device: observed.Device) -> t.Iterator[observed.Device]:
    """Yield a device and all devices on it."""
    yield device
    for above in device.above:
        yield from _with_users(above)


def _is_source_of(device: observed.Device, mount: observed.Mount) -> bool:
    known_as = (f"/dev/{device.kname}", f"/dev/mapper/{device.name}")
    return mount.source in known_as or (bool(device.numbers) and device.numbers == mount.numbers)


def _normalized(address: str) -> str:
    match = _PCI.fullmatch(address.lower())
    if match is None:
        raise FlexdiskError("InvalidArgument", f'pci_address {address} is not like "0000:00:04.1" or "00:04.1", quoted')
    return f"{match.group(1) or '0000'}:{match.group(2)}:{match.group(3)}.{match.group(4)}"


def _numbers(swap: observed.Swap) -> str:
    """Return the device numbers of a swap. The kernel appends (deleted) to the name if the device was replaced."""
    try:
        status = os.stat(re.sub(r" ?\(deleted\)\Z", "", swap.device))
    except OSError:
        return ""
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if stat.S_ISBLK(status.st_mode) else ""


def _swap_flaw(path: str, table: Table, swap: t.Optional[Partition]) -> str:
    if swap is None:
        return ""
    return observed.swap_page(read_bytes(path, swap.start * table.sector, observed.SWAP_HEADER_BYTES))[1]


def read_bytes(path: str, start: int, size: int) -> bytes:
    """Return a part of a disk. Raises FlexdiskError FileFailed."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)
    except OSError as exc:
        raise FlexdiskError("FileFailed", f"{path} cannot be read: {exc}") from exc
