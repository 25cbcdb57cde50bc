# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Packages and wishes for whole VMs: from arguments to what is wanted, and which disks a new VM gets.

The table of RFD 154: the disks of the request win over those of the package, these over the usual ones, which are the
image and, on a flexible package, what remains, else one disk of the package's size.
"""

from __future__ import annotations

import typing as t

from ..model.desired import Package, Wish
from ..model.errors import Problem
from ..model.sizes import parse_quota, parse_size
from . import identity
from .declaration import Collector, check_vm
from .layout import disk_name

MOST_DISKS = 8
_Raw = t.Mapping[str, t.Any]
_Entries = t.List[t.Dict[str, t.Any]]


def parse_packages(raw: t.Sequence[_Raw]) -> t.Tuple[t.Dict[str, Package], t.List[Problem]]:
    """Packages by their names."""
    found = Collector("")
    packages: t.Dict[str, Package] = {}
    for entry in raw:
        name = str(entry.get("name") or "")
        if not identity.VM_NAME.match(name):
            found.add("InvalidArgument", "package name %r is not valid: %s" % (name, _NAME_RULE))
        elif name in packages:
            found.add("InvalidArgument", "two packages are called %s" % name)
        else:
            packages[name] = _package(name, entry, found)
    return packages, found.problems


_NAME_RULE = "use up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"


def _package(name: str, raw: _Raw, found: Collector) -> Package:
    disks = raw.get("disks")
    if disks is not None and not raw.get("flexible_disk"):
        found.add("InvalidArgument", "package %s has disks, so it needs flexible_disk=true" % name)
    return Package(
        name=name,
        disk=found.attempt("", lambda: parse_size(raw.get("disk"), what="disk of package %s" % name)) or 0,
        flexible_disk=bool(raw.get("flexible_disk")),
        memory=_size(raw, "memory", found, "memory of package %s" % name),
        vcpus=_vcpus(raw, found, " of package %s" % name),
        disks=disks,
    )


def _size(raw: _Raw, key: str, found: Collector, what: str) -> t.Optional[int]:
    value = raw.get(key)
    return None if value is None else t.cast(int, found.attempt("", lambda: parse_size(value, what=what)))


def _vcpus(raw: _Raw, found: Collector, of: str = "") -> t.Optional[int]:
    count = raw.get("vcpus")
    if count is not None and not 1 <= count <= 255:
        found.add("InvalidArgument", "vcpus%s is %d; it must be from 1 to 255" % (of, count))
    return count


def check_new_name(name: str, found: Collector) -> None:
    """What a new VM can be called: nothing that another VM could be addressed by."""
    if identity.is_uuid(name.lower()):
        found.add(
            "ResourceNotFound", "no VM has this uuid; a new VM needs a name, and gets its uuid from the option uuid"
        )
    elif identity.begins_uuid(name, identity.SURE_PREFIX):
        words = "no VM is called so, and a new one cannot be: %d or more hex digits are the beginning of a VM's uuid"
        found.add("InvalidArgument", words % identity.SURE_PREFIX)
    elif not identity.VM_NAME.match(name):
        found.add("InvalidArgument", "name %r of a new VM is not valid: %s" % (name, _NAME_RULE))


def parse_wish(raw: _Raw, packages: t.Mapping[str, Package]) -> t.Tuple[Wish, t.List[Problem]]:
    """One entry of O(vms)."""
    vm, uuid = str(raw["vm"]), str(raw.get("uuid") or "").lower()
    found = Collector(vm)
    check_vm(vm, found)
    if uuid and not identity.is_uuid(uuid):
        found.add("InvalidArgument", "uuid %r is not a uuid" % uuid)
    if raw.get("image") and not identity.is_uuid(str(raw["image"])):
        found.add("InvalidArgument", "image must be the uuid of an image; got %r" % raw["image"])
    if raw.get("image_file") and not raw.get("image"):
        found.add("MissingParameter", "image_file needs image, the uuid under which it is imported")
    if raw.get("image") and raw.get("disks") == [] and raw["state"] != "absent":
        words = (
            "disks is empty, so no disk would be made of image %s; leave disks out, or list the disk that boots from it"
        )
        found.add("InvalidArgument", words % raw["image"])
    wanted = raw.get("package")
    package = packages.get(wanted) if wanted else None
    if wanted and package is None:
        have = ", ".join(sorted(packages)) or "none"
        found.add("ResourceNotFound", "there is no package %s; known packages: %s" % (wanted, have))
    if package is not None and raw.get("flexible_disk_size") is not None:
        found.add("InvalidArgument", "flexible_disk_size and package exclude each other: the package sets it")
    metadata, secret = raw.get("customer_metadata") or {}, raw.get("secret_metadata") or {}
    both = sorted(map(str, {*metadata} & {*secret}))
    if both:
        found.add("InvalidArgument", "customer_metadata and secret_metadata both have %s" % ", ".join(both))
    quota = raw.get("quota")
    wish = Wish(
        vm=vm,
        uuid=uuid,
        state=raw["state"],
        package=package,
        flexible_disk_size=_size(raw, "flexible_disk_size", found, "flexible_disk_size"),
        memory=_size(raw, "memory", found, "memory"),
        vcpus=_vcpus(raw, found),
        quota=None if quota is None else found.attempt("", parse_quota, quota),
        image=str(raw.get("image") or ""),
        image_file=raw.get("image_file") or "",
        disks=raw.get("disks"),
        unlisted=raw.get("unlisted") or "refuse",
        autoboot=raw.get("autoboot"),
        indestructible=raw.get("indestructible"),
        destroy_disks=bool(raw.get("destroy_disks")),
        destroy_snapshots=bool(raw.get("destroy_snapshots")),
        template=raw.get("template") or "",
        options=raw.get("options") or {},
        metadata={**metadata, **secret},
    )
    return wish, found.problems


def foreign(wish: Wish, own: t.Collection[str]) -> t.List[Problem]:
    """Options that mean nothing to this hypervisor; own are those that do."""
    homes = {"options": "vmadm", "customer_metadata": "vmadm", "template": "libvirt", "image_file": "libvirt"}
    said = {
        "options": wish.options,
        "customer_metadata": wish.metadata,
        "template": wish.template,
        "image_file": wish.image_file,
    }
    names = {"customer_metadata": "customer_metadata or secret_metadata"}
    wrong = [key for key in homes if said[key] and key not in own]
    return [
        Problem("InvalidArgument", "%s works only with %s" % (names.get(key, key), homes[key]), wish.vm)
        for key in wrong
    ]


def flexible_of(wish: Wish) -> t.Optional[int]:
    """The flexible_disk_size that a wish comes down to, in MiB; None: none is asked for."""
    if wish.package is not None:
        return wish.package.disk if wish.package.flexible_disk else None
    return wish.flexible_disk_size


def initial_disks(wish: Wish, found: Collector) -> _Entries:
    """The entries of a new VM's disks, each with a name, the first to boot unless another one is."""
    package = wish.package
    if wish.disks is not None and package is not None and not package.flexible_disk:
        found.add("InvalidArgument", f"disks needs a package with flexible_disk=true; {package.name} is not one")
    entries = named(_asked_disks(wish))
    if len(entries) > MOST_DISKS:
        words = f"{len(entries)} disks are too many: a new VM can have at most {MOST_DISKS}"
        found.add("InvalidArgument", words)
    if entries and not any(entry.get("boot") for entry in entries):
        entries[0]["boot"] = True
    if wish.image:
        for entry in entries:
            if entry.get("boot"):
                _boot_from(wish.image, entry, found)
    return entries


def _asked_disks(wish: Wish) -> t.Sequence[_Raw]:
    """The disks that a task asks for, else those of the package, else a boot disk and what the package's size says."""
    package = wish.package
    if wish.disks is not None:
        return wish.disks
    if package is None:
        return [{}]
    if package.disks is not None:
        return package.disks
    return [{}, {"size": "remaining" if package.flexible_disk else package.disk}]


def _boot_from(image: str, entry: t.Dict[str, t.Any], found: Collector) -> None:
    """Makes the boot disk of the VM's image, unless it is a disk that exists."""
    if entry.get("image") not in (None, image):
        words = f"disk {entry['name']} boots from image {entry['image']}, so no disk would be made of image {image}"
        found.add("InvalidArgument", f"{words}; give one of them")
    elif not entry.get("uuid"):
        entry["image"] = image


def named(entries: t.Sequence[_Raw]) -> _Entries:
    """Entries without a name or uuid are called by their place in the list, from disk0 on."""
    return [
        dict(entry, name=entry.get("name") or ("" if entry.get("uuid") else disk_name(number)))
        for number, entry in enumerate(entries)
    ]
