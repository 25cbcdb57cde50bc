# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""New VMs: their names, the options that their hypervisor supports, and their disks.

Disks follow RFD 154: those of the request, else those of the package, else the defaults. The defaults are the image
and, with a flexible package, the remaining space; else one disk of the package's size.
"""

from __future__ import annotations

import typing as t

from ..model.desired import VmDeclaration
from ..model.errors import Problem, Problems
from ..model.vm import Disk
from . import identity
from .layout import disk_name

MOST_DISKS = 8
_Raw = t.Mapping[str, t.Any]
_Entries = t.List[t.Dict[str, t.Any]]


NAME_RULE = "use up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"


def check_new_name(name: str, problems: Problems) -> None:
    """Add a problem if a new VM cannot have this name. No other VM may be addressed by it."""
    if identity.is_uuid(name.lower()):
        problems.add(
            "ResourceNotFound", "no VM has this uuid; a new VM needs a name, and gets its uuid from the option uuid"
        )
    elif identity.begins_uuid(name, identity.SURE_PREFIX):
        text = (
            f"no VM is called so, and a new one cannot be: {identity.SURE_PREFIX} or more hex "
            "digits are the beginning of a VM's uuid"
        )
        problems.add("InvalidArgument", text)
    elif not identity.VM_NAME.match(name):
        problems.add("InvalidArgument", f"name {name!r} of a new VM is not valid: {NAME_RULE}")


def foreign(declared: VmDeclaration, supported: t.Collection[str]) -> t.List[Problem]:
    """Return a problem for each option that this hypervisor does not support. supported: those that it does."""
    homes = {"options": "vmadm", "customer_metadata": "vmadm", "template": "libvirt", "image_file": "libvirt"}
    given = {
        "options": declared.options,
        "customer_metadata": declared.metadata,
        "template": declared.template,
        "image_file": declared.image_file,
    }
    names = {"customer_metadata": "customer_metadata or secret_metadata"}
    wrong = [key for key in homes if given[key] and key not in supported]
    return [
        Problem("InvalidArgument", f"{names.get(key, key)} works only with {homes[key]}", declared.vm) for key in wrong
    ]


def flexible_of(declared: VmDeclaration) -> t.Optional[int]:
    """Return the declared flexible_disk_size in MiB, that of the package included; None if none is declared."""
    if declared.package is not None:
        return declared.package.disk if declared.package.flexible_disk else None
    return declared.flexible_disk_size


def initial_disks(declared: VmDeclaration, problems: Problems) -> _Entries:
    """Return the entries of a new VM's disks. Each has a name, and the first one boots unless another one does."""
    package = declared.package
    if declared.disks is not None and package is not None and not package.flexible_disk:
        problems.add("InvalidArgument", f"disks needs a package with flexible_disk: true; {package.name} is not one")
    entries = named(_asked_disks(declared))
    if len(entries) > MOST_DISKS:
        text = f"{len(entries)} disks are too many: a new VM can have at most {MOST_DISKS}"
        problems.add("InvalidArgument", text)
    if entries and not any(entry.get("boot") for entry in entries):
        entries[0]["boot"] = True
    if declared.image:
        for entry in entries:
            if entry.get("boot"):
                _boot_from(declared.image, entry, problems)
    return entries


def with_new_image(declared: VmDeclaration, entries: _Entries, boot_disk: t.Optional[Disk], problems: Problems) -> bool:
    """Whether the boot disk of an existing VM may be recreated from the VM's image. Its entry gets boot and image then.

    Its entry is the one that names the boot disk, else the one with C(boot), else the first one, as for a new VM. After
    an interrupted run there may be no boot disk to be named, so only the first entry can do without C(boot).
    """
    if not (declared.image and entries):
        return False
    boots = next((entry for entry in entries if boot_disk is not None and _names(entry, boot_disk)), None)
    boots = boots or next((entry for entry in entries if entry.get("boot")), entries[0])
    if not boots.get("recreate") or boots.get("uuid"):
        return False
    if boots.get("boot") is None and boots is not entries[0]:
        text = "is the boot disk, but not the first entry; recreate: true makes it anew only with boot: true"
        problems.add("InvalidArgument", text, boots["name"])
    elif boots.get("boot") is None:
        boots["boot"] = True
    _boot_from(declared.image, boots, problems)
    return True


def _names(entry: _Raw, disk: Disk) -> bool:
    return bool(entry.get("uuid") == disk.uuid if entry.get("uuid") else disk.name and entry["name"] == disk.name)


def _asked_disks(declared: VmDeclaration) -> t.Sequence[_Raw]:
    """Return the disks of the task, else those of the package, else a boot disk and a disk of the package's size."""
    package = declared.package
    if declared.disks is not None:
        return declared.disks
    if package is None:
        return [{}]
    if package.disks is not None:
        return package.disks
    return [{}, {"size": "remaining" if package.flexible_disk else package.disk}]


def _boot_from(image: str, entry: t.Dict[str, t.Any], problems: Problems) -> None:
    """Create the boot disk from the VM's image, unless the entry means an existing disk."""
    if entry.get("image") not in (None, image):
        text = f"disk {entry['name']} boots from image {entry['image']}, so no disk would be made of image {image}"
        problems.add("InvalidArgument", f"{text}; give one of them")
    elif not entry.get("uuid"):
        entry["image"] = image


def named(entries: t.Sequence[_Raw]) -> _Entries:
    """Return the entries with names. One without a name or uuid is named after its place in the list, from disk0 on."""
    return [
        dict(entry, name=entry.get("name") or ("" if entry.get("uuid") else disk_name(number)))
        for number, entry in enumerate(entries)
    ]
