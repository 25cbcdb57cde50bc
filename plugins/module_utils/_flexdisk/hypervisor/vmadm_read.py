# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsers of vmadm's JSON and error messages. They take text and run nothing."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import replace

from ..model.dataset import RAW_ZVOL
from ..model.errors import FlexdiskError
from ..model.vm import DiskConfig, DiskElement, Use, VmConfig
from ..rules.identity import is_pool, is_uuid, mac_of, seconds_of
from ..rules.slots import smartos

# The devices of a volume: that of disks, and the one beside it.
_ZVOL = re.compile(r"/dev/zvol/r?dsk/([^,\s\"'\\]+)")
OLDEST_PLATFORM = "20181206"
# Options of a VM that may name the path of a disk.
_MAY_NAME_PATHS = ("bhyve_extra_opts", "qemu_extra_opts", "qemu_opts", "filesystems", "pci_devices")
# Settings that vmadm has of a disk beyond our model, and the values that it accepts.
DISK_OPTIONS: t.Mapping[str, t.Callable[[t.Any], bool]] = {
    "guest_block_size": lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9]{1,7}(/[0-9]{1,7})?", value)),
    "notrim": lambda value: isinstance(value, bool),
}
VMINFOD_TIMEOUT = re.compile(r"vminfod watchFor(Changes|Event) .* timeout exceeded")
# zone_state of a VM that vmadm has not finished to make, or to delete. Its dataset is not always known, nor is that of
# a VM that is still provisioning, if somebody has destroyed it.
_UNINSTALLED = ("configured", "incomplete")

_NIC_TAG = re.compile(r"[A-Za-z0-9_]{1,31}")
_ERRORS = (
    (r"state is \"stopped\"", "VmNotStopped"),
    (r"VM \S+ not found|No such zone configured|bad statusCode: 404", "ResourceNotFound"),
    (r"size is greater than available space|out of space", "InsufficientSpace"),
    (r"size is less than current used or reserved space", "InUse"),
    (r"dataset is busy", "Busy"),
    (r"read-only", "ReadOnly"),
    (r"currently suspended", "Suspended"),
    (r"cannot resize disk", "InvalidArgument"),
    (r"Invalid value|Missing required propert|is not (a )?valid|invalid", "InvalidArgument"),
    (r"duplicate disk uuid|multiple disks in pci_slot", "InvalidArgument"),
    (r"cannot run because", "NotPermitted"),
)


def classify(argv: t.Sequence[str], rc: int, stderr: str) -> FlexdiskError:
    """Return the error for a failed vmadm. A negative rc, or one from 128, means that vmadm itself has crashed."""
    code = next((code for pattern, code in _ERRORS if re.search(pattern, stderr)), "VmadmFailed")
    if rc < 0 or rc >= 128:
        code = "VmadmCrashed"
    hint = "; it needs root in the global zone (become: true)" if code == "NotPermitted" else ""
    message = f"{stderr.strip() or 'the command failed without a message'}{hint} (rc {rc} of: {' '.join(argv)})"
    return FlexdiskError(code, message)


def parse_json(stdout: str) -> t.Any:
    """Return the parsed value; None if the text is not JSON."""
    try:
        return json.loads(stdout)
    except (RecursionError, ValueError):
        return None


def parse_manifest(stdout: str) -> t.Dict[str, t.Any]:
    """Return the manifest of an image, from C(imgadm get)."""
    data = parse_json(stdout)
    manifest = data.get("manifest") if isinstance(data, dict) else None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("tags", {}), dict):
        raise FlexdiskError("UnexpectedOutput", "imgadm get did not print the JSON of an image")
    return manifest


def parse_lookup(stdout: str) -> t.List[VmConfig]:
    """Return the VMs from C(vmadm lookup -j).

    A VM in an unknown form does not prevent work on the others: it gets no dataset, so nothing can be done to it.
    """
    rows = parse_json(stdout)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("uuid") for row in rows):
        raise FlexdiskError("UnexpectedOutput", "vmadm lookup -j did not print a JSON list of VMs")
    for row in rows:
        check_platform(row)
    return [_vm_or_stub(row) for row in rows]


def _vm_or_stub(row: t.Mapping[str, t.Any]) -> VmConfig:
    try:
        return parse_vm(row)
    except FlexdiskError:
        uuid = str(row["uuid"])
        if not is_uuid(uuid):
            raise
        return VmConfig(uuid, _text(row, "alias"), _text(row, "brand"), "unknown", False, "", "", None)


def parse_vm(row: t.Mapping[str, t.Any]) -> VmConfig:
    """Return the configuration of one VM. Keys that the platform omits get their defaults.

    Raises FlexdiskError UnexpectedOutput for a VM of another form.
    """
    try:
        return _vm(row)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as exc:
        raise FlexdiskError(
            "UnexpectedOutput", f"vmadm describes a VM in a form that is not supported: {exc!r}"
        ) from exc


def _vm(row: t.Mapping[str, t.Any]) -> VmConfig:
    hidden = (row.get("internal_metadata") or {}).get("cloudinit_nocloud_path")
    uuid, pool, dataset = str(row["uuid"]), _text(row, "zpool"), _text(row, "zfs_filesystem")
    if not dataset and (row.get("zone_state") in _UNINSTALLED or row.get("state") == "provisioning"):
        pool, dataset = _place(_text(row, "zonepath"), uuid)
    # These values become part of command lines.
    if not is_uuid(uuid) or (pool and not is_pool(pool)) or dataset.split("/", 1)[0] != pool:
        raise ValueError(f"uuid {uuid!r}, pool {pool!r}, dataset {dataset!r}")
    return VmConfig(
        uuid=uuid,
        alias=_text(row, "alias"),
        brand=_text(row, "brand"),
        state=_text(row, "state") or "unknown",
        autoboot=bool(row.get("autoboot")),
        pool=pool,
        dataset=dataset,
        flexible_disk_size=int(row.get("flexible_disk_size") or 0) or None,
        disks=tuple(_with_mentions(_disk(disk), row) for disk in row.get("disks") or ()),
        hidden_paths=frozenset([str(hidden)] if hidden else []),
        indestructible=bool(row.get("indestructible_zoneroot")),
        transition=_text(row, "transition_to"),
        tags=_tags(row.get("tags")),
        pci=smartos(passed_through(row)),
        uses=dict(_uses(row)),
        memory=int(row.get("ram") or 0),
        vcpus=int(row.get("vcpus") or 0),
        bootrom=_text(row, "bootrom") or "bios",
        run_id=_text(row, "boot_timestamp") if row.get("state") == "running" else "",
        ended_at=_moment(_text(row, "exit_timestamp")) if row.get("state") == "stopped" else 0,
    )


def _uses(row: t.Mapping[str, t.Any]) -> t.Iterator[t.Tuple[str, Use]]:
    """Return the volumes that the VM uses other than as a disk: as a CD-ROM, by another device, for bhyve itself."""
    for disk in row.get("disks") or ():
        path, media = _text(disk, "path"), _text(disk, "media") or "disk"
        match = _ZVOL.fullmatch(path)
        if match and (media != "disk" or not path.startswith(RAW_ZVOL)):
            yield match.group(1), Use(f"as {media} {path}", "vmadm update with remove_disks ends that", media == "disk")
    for key, text in _naming(row).items():
        for volume in _ZVOL.findall(text):
            yield volume, Use(f"in {key}", f"vmadm update with another {key} ends that")


def _place(zonepath: str, uuid: str) -> t.Tuple[str, str]:
    """Return the pool and the dataset from the zone path of a VM whose dataset vmadm does not report."""
    pool = zonepath.strip("/").partition("/")[0]
    return (pool, f"{pool}/{uuid}") if zonepath == f"/{pool}/{uuid}" and is_pool(pool) else ("", "")


def _text(row: t.Mapping[str, t.Any], key: str) -> str:
    return str(row.get(key) or "")


def _moment(text: str) -> int:
    """Return seconds since 1970 of a time as vmadm writes it; 0 for anything else."""
    try:
        return seconds_of(f"{text[:19]}Z") if text.endswith("Z") else 0
    except ValueError:
        return 0


def _tags(tags: t.Any) -> t.Dict[str, str]:
    """Return the tags. Nothing depends on them, so a VM with malformed tags is still accepted."""
    pairs = tags.items() if isinstance(tags, dict) else ()
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in pairs}


def macs(row: t.Mapping[str, t.Any]) -> t.FrozenSet[str]:
    """Return the MAC addresses of a VM's NICs. Malformed ones are ignored."""
    nics = row.get("nics")
    addresses = [nic.get("mac") for nic in nics if isinstance(nic, dict)] if isinstance(nics, list) else []
    return frozenset(mac_of(str(mac)) for mac in addresses) - {""}


def nic_tags(row: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the network tags of a VM's NICs that C(nictagadm) knows. Those of overlays are left out."""
    nics = row.get("nics")
    names = [nic.get("nic_tag") for nic in nics if isinstance(nic, dict)] if isinstance(nics, list) else []
    return sorted({tag for tag in names if isinstance(tag, str) and _NIC_TAG.fullmatch(tag)})


def taken_macs(stdout: str, but: str) -> t.Dict[str, str]:
    """Return the VMs by their MAC addresses, from C(vmadm lookup -j). but: the UUID of a VM to leave out."""
    data = parse_json(stdout)
    rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
    others = [row for row in rows if row.get("uuid") != but]
    return {mac: _text(row, "alias") or _text(row, "uuid") for row in others for mac in macs(row)}


def _with_mentions(disk: DiskConfig, row: t.Mapping[str, t.Any]) -> DiskConfig:
    """Return the disk with the VM's options and other disks that name its path or another device of its volume."""
    match = _ZVOL.fullmatch(disk.path)
    stem = match.group(1) if match else disk.path
    others = [_text(one, "path") for one in row.get("disks") or () if _text(one, "path") != disk.path]
    texts = {**_naming(row), **({"disks": " ".join(others)} if others else {})}
    texts = {key: text for key, text in texts.items() if stem and stem in text}
    if not texts:  # nearly always, and a pattern of its own for each disk takes long to compile
        return disk
    name = rf"/dev/zvol/r?dsk/{re.escape(stem)}(?:[sp]\d+)?" if match else re.escape(stem)
    path = re.compile(name + r"(?![A-Za-z0-9_.:/-])")
    hits = {key: path.search(text) for key, text in texts.items()}
    shown = {key: f"{key} as {hit.group()}" if hit.group() != disk.path else key for key, hit in hits.items() if hit}
    return replace(disk, mentions=tuple(shown.values()))


def passed_through(row: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """Return the devices of the host that a VM has or gets: their paths by their slots. Malformed ones are ignored."""
    result: t.Dict[str, str] = {}
    for key in ("pci_devices", "add_pci_devices"):
        devices = row.get(key)
        for device in devices if isinstance(devices, list) else ():
            if isinstance(device, dict):
                result[_text(device, "pci_slot")] = _text(device, "path")
    return result


def _naming(row: t.Mapping[str, t.Any]) -> t.Dict[str, str]:
    """Return the options of a VM that may name devices, as text."""
    return {key: json.dumps(row[key]) for key in _MAY_NAME_PATHS if row.get(key)}


def _disk(row: t.Mapping[str, t.Any]) -> DiskConfig:
    path = _text(row, "path")
    media = _text(row, "media") or "disk"
    is_zvol = media == "disk" and path.startswith(RAW_ZVOL)
    return DiskConfig(
        path=path,
        volume=path[len(RAW_ZVOL) :] if is_zvol else "",
        boot=row.get("boot") in (True, "true"),
        model=_text(row, "model"),
        media=media,
        image=_text(row, "image_uuid"),
        image_size=int(row.get("image_size") or 0),
        pci_slot=_text(row, "pci_slot"),
        uuid=_text(row, "uuid").lower(),
        element=DiskElement(encode_options({key: row[key] for key in DISK_OPTIONS if row.get(key) not in (None, "")})),
    )


def encode_options(options: t.Mapping[str, t.Any]) -> str:
    """Return the settings that vmadm has of a disk beyond our model as text, "" if there are none."""
    return json.dumps(dict(options), sort_keys=True, separators=(",", ":")) if options else ""


def decode_options(text: str) -> t.Dict[str, t.Any]:
    """Return the settings that encode_options() has written. Raises FlexdiskError InvalidArgument for anything else,
    because the text is untrusted.
    """
    options = parse_json(text) if text else {}
    known = isinstance(options, dict) and all(DISK_OPTIONS.get(key, _never)(value) for key, value in options.items())
    if not known:
        raise FlexdiskError("InvalidArgument", "what is kept of the disk is not of vmadm")
    return dict(options)


def _never(value: t.Any) -> bool:
    return False


def check_platform(row: t.Mapping[str, t.Any]) -> None:
    """Refuse platforms whose failed add_disks destroyed disk0 (OS-7004, OS-7353)."""
    platform = str(row.get("platform_buildstamp") or "")
    if platform and platform[:8] < OLDEST_PLATFORM:
        raise FlexdiskError(
            "PlatformTooOld",
            f"SmartOS platform {platform}: before {OLDEST_PLATFORM} a failing vmadm could destroy "
            "disk0; update the platform first",
        )
