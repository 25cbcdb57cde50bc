# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of an entry that are about the disk itself, in the modules vm_disks, vm and disk alike."""

from __future__ import annotations

import typing as t
from functools import partial

from ..model.desired import DiskDeclaration
from ..model.errors import Problems
from ..model.sizes import REMAINING, parse_size, parse_size_or_remaining
from ..model.vm import FILE, SPARSE, THICK
from ..rules import disk_properties, disk_values, identity
from .values import Raw, check_image, optional_slot

COMPRESSIONS = ("on", "off", "lz4", "lzjb", "zle", "gzip", *(f"gzip-{level}" for level in range(1, 10)))
TYPES = (THICK, SPARSE, FILE)
_OF_VOLUMES = {
    "image": "a clone of an image is a volume",
    "block_size": "the file has blocks of 128 KiB",
}
_UNCHANGED = ("boot", "image", "model", "block_size", "type", "compression")


def parse_disk_entry(raw: Raw, label: str, problems: Problems) -> DiskDeclaration:
    """Return the declaration in an entry. label: what messages call the disk. Problems are added to problems."""
    name, uuid = str(raw.get("name") or ""), str(raw.get("uuid") or "").lower()
    disk_values.check_name(problems, label, name)
    disk_values.check_uuid(problems, label, uuid)
    size, remaining = _size(problems, label, raw)
    slot = optional_slot(raw.get("pci_slot"), label, problems)
    if raw.get("image") is not None:
        check_image(raw["image"], problems, label)
    _check_block_size(problems, label, raw)
    _check_type(problems, label, raw)
    _check_choice(problems, label, raw, "compression", COMPRESSIONS)
    return DiskDeclaration(
        name=name,
        uuid=uuid,
        present=(raw.get("state") or "present") == "present",
        size=size,
        remaining=remaining,
        pci_slot=slot,
        user_properties=disk_properties.parsed(problems, label, raw),
        dangerous_allow_shrink=bool(raw.get("dangerous_allow_shrink")),
        min_size=_min_size(problems, label, raw),
        destroy_snapshots=bool(raw.get("destroy_snapshots")),
        recreate=bool(raw.get("recreate")),
        recreate_for=_recreate_for(raw, label, problems),
        **{key: raw.get(key) for key in _UNCHANGED},
    )


def _recreate_for(raw: Raw, label: str, problems: Problems) -> str:
    word = identity.check_word("recreate_for", str(raw.get("recreate_for") or ""), problems, label)
    if word and not (raw.get("recreate") and raw.get("boot")):
        problems.add("MissingParameter", "recreate_for needs recreate: true and boot: true", label)
    return word


def _size(problems: Problems, label: str, raw: Raw) -> t.Tuple[t.Optional[int], bool]:
    """Return the size in MiB, and whether it is what the other disks leave."""
    if raw.get("size") is None:
        return None, False
    size = problems.attempt(label, parse_size_or_remaining, raw["size"])
    return (None, True) if size == REMAINING else (size, False)


def _min_size(problems: Problems, label: str, raw: Raw) -> t.Optional[int]:
    value = raw.get("min_size_from_guest")
    if value is None:
        return None
    return t.cast(t.Optional[int], problems.attempt(label, partial(parse_size, name="min_size_from_guest"), value))


def _check_block_size(problems: Problems, label: str, raw: Raw) -> None:
    block = raw.get("block_size")
    if block is None:
        return
    if block < 512 or block > 131072 or block & (block - 1):
        problems.add(
            "InvalidArgument", f"block_size {block} is not valid: it must be a power of two from 512 to 131072", label
        )
    if raw.get("image") is not None:
        problems.add("InvalidArgument", "block_size and image exclude each other: the image has its own", label)


def _check_type(problems: Problems, label: str, raw: Raw) -> None:
    _check_choice(problems, label, raw, "type", TYPES)
    for option, why in _OF_VOLUMES.items():
        if raw.get("type") == FILE and raw.get(option) is not None:
            problems.add("InvalidArgument", f"{option} and type=file exclude each other: {why}", label)


def _check_choice(problems: Problems, label: str, raw: Raw, option: str, choices: t.Sequence[str]) -> None:
    value = raw.get(option)
    if value is not None and value not in choices:
        problems.add(
            "InvalidArgument", f"{option} {value!r} is not valid: it must be one of {', '.join(choices)}", label
        )
