# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of a disk that only the hypervisor has: how a detached disk keeps them, and which a VM can have."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from ..model.vm import DiskElement, VmConfig
from .identity import PREFIX
from .property_text import decode_object, encode_object

ELEMENT_PROPERTY = "element"
# An entry of VmConfig.offers: the hypervisor has listed its secrets, so a secret that is not listed does not exist.
SECRETS_KNOWN = "all that are known"
FORMAT = "format"
# Limits of the host for the path of a disk. A running VM gets them only at its next start.
LATE_LIMITS = "blkiotune until the next start"
# No VM starts with such limits for the path of a file.
BLOCK_LIMITS = "blkiotune, which only a block device can have"
# In a need: an option, and then the models of disks that can have it.
ONLY = ", which only "
_SECRET, _IOTHREAD = "secret ", "iothread "
_RAW = ("", "luks")


def encode(element: DiskElement) -> str:
    """Return the property's value, "" if there is nothing to keep. Raises FlexdiskError InvalidArgument if too long."""
    if not element.text:
        return ""
    fields = {"text": element.text, "format": element.format, "needs": element.needs, "claims": element.claims}
    return encode_object("what the hypervisor knows of it", {key: value for key, value in fields.items() if value})


def decode(volume: Dataset) -> DiskElement:
    """Return the settings that a volume keeps. A received value does not count: it comes from another host."""
    value = volume.user.get(ELEMENT_PROPERTY, "")
    if not value or ELEMENT_PROPERTY in volume.received:
        return DiskElement()
    try:
        raw = decode_object(value)
        parts = [raw.get("text", ""), raw.get("format", ""), *raw.get("needs", ()), *raw.get("claims", ())]
        if not all(isinstance(word, str) for word in parts):
            raise ValueError("no text")
        return DiskElement(parts[0], parts[1], tuple(raw.get("needs", ())), tuple(raw.get("claims", ())))
    except (TypeError, ValueError):
        return DiskElement()


def why_not_known(volume: Dataset) -> str:
    """Return why the format of the data on a volume is not known: the property was received, as from a backup. "" if it
    is known.

    Without the property, a guest would see a qcow2, encrypted or read-only disk as raw and writable.
    """
    if not volume.user.get(ELEMENT_PROPERTY) or ELEMENT_PROPERTY not in volume.received:
        return ""
    name = PREFIX + ELEMENT_PROPERTY
    return (
        f"what {name} of {volume.name} says of its format and options came with zfs receive, and counts only if it is "
        f"set here; if zfs get {name} {volume.name} shows what is right, disk_verify with repair: received_property "
        f"sets it, and zfs inherit {name} {volume.name} gives it up: the disk is a plain one then"
    )


def storable(element: DiskElement) -> DiskElement:
    """Return the settings that a detached disk can keep. If they are too long for a property, `lost` says so, or
    `holds` if the data could not be read without them.
    """
    try:
        encode(element)
    except FlexdiskError as exc:
        if element.format:
            return replace(element, holds=(*element.holds, exc.message))
        return DiskElement(lost=(*element.lost, exc.message), holds=element.holds)
    return element


def lacking(element: DiskElement, config: VmConfig, model: str, is_file: bool = False) -> t.Tuple[str, ...]:
    """Return the settings that a VM cannot have, because it lacks what they need, or another of its devices has it
    already. model: that of the disk.
    """
    taken = {claim for entry in config.disks for claim in entry.element.claims} | config.claims
    limits = BLOCK_LIMITS if is_file else LATE_LIMITS
    needs = [limits if need == LATE_LIMITS else need for need in element.needs]
    lacking = [need for need in needs if not need.startswith(_SECRET) and not _met(need, config, model)]
    return (*lacking, *(claim for claim in element.claims if claim in taken))


def _met(need: str, config: VmConfig, model: str) -> bool:
    kind, _space, _rest = need.partition(" ")
    if ONLY in need:
        return model in need.rpartition(ONLY)[2].split()
    if need == LATE_LIMITS:
        return config.state != "running"
    if need == BLOCK_LIMITS:
        return False
    if kind in ("virtio", "scsi"):
        return model == kind
    return need in config.offers and (model == "virtio" or not need.startswith(_IOTHREAD))


def lacking_secrets(element: DiskElement, config: VmConfig) -> t.List[str]:
    """Return the secrets that the disk needs and the hypervisor does not have, as far as it reports them."""
    if SECRETS_KNOWN not in config.offers:
        return []
    return [need for need in element.needs if need.startswith(_SECRET) and need not in config.offers]


def has_own_size(element: DiskElement) -> bool:
    """Whether the data on the volume has a size of its own, which does not follow the size of the volume."""
    return element.format not in _RAW
