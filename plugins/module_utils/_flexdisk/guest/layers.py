# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The layers on a partition: encryption, LVM, file systems; and how each takes the space of the one below."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass, replace

from ..model.errors import FlexdiskError
from ..model.sizes import render_change
from .growth import MIN_GROWTH_BYTES
from .observed import Content, Mount

_LARGEST_32_BIT = 2**32


@dataclass(frozen=True)
class Layer:
    """One layer of a disk, from the partition up. All figures are bytes."""

    name: str
    # The command by which the layer takes the space below.
    argv: t.Tuple[str, ...]
    size: int
    # Bytes below that the layer does not use.
    offset: int = 0
    unit: int = 1
    min_growth: int = MIN_GROWTH_BYTES
    # The program and the test read the passphrase from their stdin.
    secret: bool = False
    # The command that tests the passphrase.
    test: t.Tuple[str, ...] = ()

    def grown(self, below: int) -> int:
        """Return its size on a device of this size. A growth of less than min_growth is not worth a change."""
        new = (below - self.offset) // self.unit * self.unit
        return new if new - self.size >= self.min_growth else self.size

    def line(self, below: int) -> str:
        """Return the change for people."""
        return f"~ {self.name} {render_change(self.size, self.grown(below))}"


@dataclass(frozen=True)
class Logical:
    """A logical volume. size is bytes, segment its type of segments."""

    name: str
    size: int
    segment: str
    attributes: str


def chosen_mount(content: Content, device: str, numbers: str, mounts: t.Sequence[Mount]) -> str:
    """Return where the file system of a device is mounted. numbers: those of the device, for a root that is called
    /dev/root.

    Raises FlexdiskError NotMounted, UnknownLayout.
    """
    root = next((mount for mount in reversed(mounts) if mount.target == "/"), None)
    device_mounts = [mount for mount in mounts if mount.source == device or (numbers and mount.numbers == numbers)]
    if root is not None and root.kind == "overlay" and _may_be_below(root, device_mounts):
        raise FlexdiskError("UnknownLayout", f"the root file system is an overlay; {device} may be what lies below it")
    if not device_mounts:
        raise FlexdiskError("NotMounted", f"the {content.kind} on {device} is not mounted; only mounted ones are grown")
    writable = [mount.target for mount in device_mounts if "rw" in mount.options]
    if not writable:
        raise FlexdiskError(
            "NotMounted", f"the {content.kind} on {device} is mounted read-only at {device_mounts[0].target}"
        )
    return min(writable, key=lambda target: (len(target), target))


def _may_be_below(overlay: Mount, mounts: t.Sequence[Mount]) -> bool:
    """Whether one of these mounts may contain a layer of an overlay, by the folders in its options."""
    named = [option.partition("=") for option in overlay.options]
    values = [value for key, _equals, value in named if key.rstrip("+") in ("lowerdir", "upperdir", "workdir")]
    folders = [folder for value in values for folder in value.split(":") if folder]
    if not (mounts and folders):
        return True
    return any(f"{folder}/".startswith(mount.target.rstrip("/") + "/") for folder in folders for mount in mounts)


def ext_layer(name: str, device: str, text: str, below: int) -> Layer:
    """Return an ext file system (2 to 4) from the output of dumpe2fs -h. Raises UnknownLayout, UnexpectedOutput."""
    block = _figure(text, r"^Block size:\s+(\d+)", "dumpe2fs")
    state = re.search(r"^Filesystem state:\s+(.*)$", text, re.MULTILINE)
    if state and "errors" in state.group(1):
        raise FlexdiskError("UnknownLayout", f"the file system on {device} has errors; check it with e2fsck first")
    features = re.search(r"^Filesystem features:\s+(.*)$", text, re.MULTILINE)
    if below // block >= _LARGEST_32_BIT and "64bit" not in (features.group(1).split() if features else ()):
        raise FlexdiskError("UnknownLayout", f"the file system on {device} has no feature 64bit, so it is too large")
    group = sum(
        _figure(text, rf"^{key}:\s+(\d+)", "dumpe2fs", 0) for key in ("Inode blocks per group", "Reserved GDT blocks")
    )
    # ext does not create a last group that would hold little more than its own tables.
    min_growth = max(MIN_GROWTH_BYTES, (2 * group + 128) * block)
    size = _figure(text, r"^Block count:\s+(\d+)", "dumpe2fs") * block
    return Layer(name, ("resize2fs", device), size, min_growth=min_growth)


def xfs_layer(name: str, mount: str, text: str) -> Layer:
    """Return an XFS file system from the output of xfs_growfs -n. Raises UnexpectedOutput."""
    match = re.search(r"^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)", text, re.MULTILINE)
    if match is None:
        raise _unexpected("xfs_growfs -n", text)
    return Layer(name, ("xfs_growfs", mount), int(match.group(1)) * int(match.group(2)))


def btrfs_layer(name: str, devices: t.Sequence[str], mount: str, text: str) -> Layer:
    """Return one device of a btrfs, by any of its paths, from the output of btrfs filesystem show --raw.

    Raises FlexdiskError UnexpectedOutput.
    """
    for number, size, path in _members(text):
        if path in devices:
            return Layer(name, ("btrfs", "filesystem", "resize", f"{number}:max", mount), int(size))
    raise _unexpected("btrfs filesystem show", text)


def full_btrfs(devices: t.Sequence[str], text: str, below: int) -> t.Optional[Layer]:
    """Return a btrfs of several devices that already takes all of this one; None if it has only one device.

    A mount names only one of several devices, so it would not be known where the file system is mounted. text: the
    output of btrfs filesystem show --raw. Raises FlexdiskError UnknownLayout if it should grow, UnexpectedOutput.
    """
    count = _figure(text, r"^\s*Total devices\s+(\d+)", "btrfs filesystem show")
    if count == 1:
        return None
    members = _members(text)
    number, size = next(((number, int(size)) for number, size, path in members if path in devices), ("DEVID", 0))
    layer = Layer(f"btrfs on {devices[0]}", (), size)
    if layer.grown(below) == size:
        return layer
    raise FlexdiskError(
        "UnknownLayout",
        f"the btrfs on {devices[0]} has {count} devices ({', '.join(path for _number, _size, path in members)}); make "
        f"its partition larger, if it has one, and run: btrfs filesystem resize {number}:max MOUNT_POINT",
    )


def _members(text: str) -> t.List[t.Tuple[str, str, str]]:
    return re.findall(r"devid\s+(\d+)\s+size\s+(\d+)\s+used\s+\d+\s+path\s+(\S+)", text)


def crypt_layer(name: str, device: str, text: str, passphrase: bool, below: int) -> Layer:
    """Return an open LUKS device, from the output of cryptsetup status. passphrase: whether one was given.

    A passphrase is only needed for a growth. Raises FlexdiskError MissingParameter, UnexpectedOutput.
    """
    size = _figure(text, r"^\s*size:\s+(\d+)", "cryptsetup status") * 512
    offset = _figure(text, r"^\s*offset:\s+(\d+)", "cryptsetup status") * 512
    argv = ("cryptsetup", "resize", "--key-file=-", name) if passphrase else ("cryptsetup", "-q", "resize", name)
    test = ("cryptsetup", "open", "--test-passphrase", "--key-file=-", device) if passphrase else ()
    layer = Layer(name, argv, size, offset, 512, secret=passphrase, test=test)
    keyring = re.search(r"^\s*key location:\s+keyring", text, re.MULTILINE)
    if keyring and not passphrase and layer.grown(below) != size:
        raise FlexdiskError("MissingParameter", f"{name}: the key is in the kernel's keyring; give luks_passphrase")
    return layer


def check_luks(device: str, text: str) -> None:
    """Check that a LUKS device can grow, by the output of cryptsetup luksDump. Raises FlexdiskError UnknownLayout.

    cryptsetup itself would refuse only after the partition has grown.
    """
    match = re.search(r"^\s*integrity:\s+(\S+)", text, re.MULTILINE)
    if match is not None:
        raise FlexdiskError(
            "UnknownLayout",
            f"the LUKS on {device} has integrity ({match.group(1)}); cryptsetup cannot grow such a device",
        )


def lvm_layers(device: str, pvs: str, lvs: str, wanted: t.Optional[str]) -> t.Tuple[t.Tuple[Layer, ...], str]:
    """Return a physical volume and the logical volume that takes its space, and the name of the latter in /dev/mapper
    or "".

    pvs and lvs: JSON reports in bytes, pvs of this device. wanted: the logical volume; None takes the only one, "" none
    at all. Raises FlexdiskError UnknownLayout, Ambiguous, ResourceNotFound, UnexpectedOutput.
    """
    try:
        (row,) = json.loads(pvs)["report"][0]["pv"]
        group, known_as = row["vg_name"], row["pv_name"]
        size, free, start, extent = (int(row[key]) for key in ("pv_size", "pv_free", "pe_start", "vg_extent_size"))
        volumes = _logicals([row for row in json.loads(lvs)["report"][0]["lv"] if row["vg_name"] == group])
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise _unexpected("pvs or lvs", pvs) from exc
    if not group:
        raise FlexdiskError("UnknownLayout", f"{device} is a physical volume without volume group")
    # The end may hold a second copy of LVM's metadata.
    physical = Layer(
        f"physical volume {known_as}", ("pvresize", known_as), size, start, extent, max(MIN_GROWTH_BYTES, 2 * extent)
    )
    if wanted == "":
        return (physical,), ""
    volume = _choose(group, volumes, wanted)
    name = f"{group}/{volume.name}"
    argv = ("lvextend", "-l", "+100%FREE", name, known_as)
    logical = Layer(name, argv, volume.size, size - free - volume.size, extent, extent)
    return (physical, logical), f"{group.replace('-', '--')}-{volume.name.replace('-', '--')}"


def activated(volume: Layer, active: int, below: int) -> Layer:
    """Return a logical volume with the size of its device, which is less than LVM says if lvextend was killed.

    lvextend fails without free extents.
    """
    if active >= volume.size:
        return volume
    argv = volume.argv if volume.grown(below) != volume.size else ("lvchange", "--refresh", volume.name)
    return replace(volume, size=active, argv=argv)


def _choose(group: str, volumes: t.Sequence[Logical], wanted: t.Optional[str]) -> Logical:
    named = [volume for volume in volumes if wanted is None or volume.name == wanted]
    names = ", ".join(sorted(volume.name for volume in volumes)) or "none"
    if not named:
        raise FlexdiskError("ResourceNotFound", f"logical_volume: {group} has no such volume; it has {names}")
    if len(named) > 1:
        raise FlexdiskError("Ambiguous", f"{group} has the volumes {names}; name one of them with logical_volume")
    if named[0].segment != "linear" or named[0].attributes[:1] not in ("-", ""):
        raise FlexdiskError("UnknownLayout", f"{group}/{named[0].name} is not a plain linear volume")
    return named[0]


def _logicals(rows: t.Sequence[t.Mapping[str, str]]) -> t.List[Logical]:
    """Return one volume for each name. lvs prints a row for each segment."""
    by_name: t.Dict[str, Logical] = {}
    for row in rows:
        name, segment = row["lv_name"], row["segtype"]
        if name in by_name and segment == "linear":
            continue
        by_name[name] = Logical(name, int(row["lv_size"]), segment, row["lv_attr"])
    return list(by_name.values())


def _figure(text: str, pattern: str, program: str, missing: t.Optional[int] = None) -> int:
    match = re.search(pattern, text, re.MULTILINE)
    if match is not None:
        return int(match.group(1))
    if missing is None:
        raise _unexpected(program, text)
    return missing


def _unexpected(program: str, text: str) -> FlexdiskError:
    return FlexdiskError("UnexpectedOutput", f"{program} printed something unknown: {text[:200]!r}")
