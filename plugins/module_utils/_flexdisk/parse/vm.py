# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of the module vm: a whole VM."""

from __future__ import annotations

import typing as t

from ..model.desired import Package, VmDeclaration
from ..model.errors import Problem, Problems
from ..rules import identity
from .packages import parse_vcpus
from .values import Raw, check_image, check_vm, optional_quota, optional_size

RESTARTED = "restarted"


def parse_vm(raw: Raw, packages: t.Mapping[str, Package]) -> t.Tuple[VmDeclaration, t.List[Problem]]:
    """Return one entry of O(vms), and all its problems. packages: the known packages by name."""
    vm, uuid = str(raw["vm"]), str(raw.get("uuid") or "").lower()
    problems = Problems(vm)
    check_vm(vm, problems)
    if uuid and not identity.is_uuid(uuid):
        problems.add("InvalidArgument", f"uuid {uuid!r} is not a uuid")
    _check_image(raw, problems)
    package = _package(raw, packages, problems)
    metadata = _metadata(raw, problems)
    declared = VmDeclaration(
        vm=vm,
        uuid=uuid,
        state="running" if raw["state"] == RESTARTED else raw["state"],
        package=package,
        flexible_disk_size=optional_size(raw.get("flexible_disk_size"), "flexible_disk_size", problems),
        memory=optional_size(raw.get("memory"), "memory", problems),
        vcpus=parse_vcpus(raw, problems),
        quota=optional_quota(raw.get("quota"), problems),
        image=str(raw.get("image") or ""),
        image_file=raw.get("image_file") or "",
        disks=raw.get("disks"),
        unlisted=raw.get("unlisted") or "refuse",
        autoboot=raw.get("autoboot"),
        indestructible=raw.get("indestructible"),
        drained=raw.get("drained"),
        generation=identity.check_word("generation", str(raw.get("generation") or ""), problems),
        member=_member(raw, problems),
        restart=bool(raw.get("restart")),
        restarted=raw["state"] == RESTARTED,
        destroy_disks=bool(raw.get("destroy_disks")),
        destroy_snapshots=bool(raw.get("destroy_snapshots")),
        template=raw.get("template") or "",
        options=raw.get("options") or {},
        metadata=metadata,
    )
    return declared, problems


def _check_image(raw: Raw, problems: Problems) -> None:
    image = raw.get("image")
    if image:
        check_image(image, problems)
    if raw.get("image_file") and not image:
        problems.add("MissingParameter", "image_file needs image, the uuid under which it is imported")
    if image and raw.get("disks") == [] and raw["state"] != "absent":
        problems.add(
            "InvalidArgument",
            f"disks is empty, so no disk would be made of image {image}; leave disks out, or list the disk that boots "
            "from it",
        )


def _member(raw: Raw, problems: Problems) -> t.Optional[str]:
    """Return the member of a group that the VM is, "" for none, None if the task does not declare it."""
    member = raw.get("member")
    if member is None:
        return None
    if member and not (identity.VM_NAME.match(member) and identity.member_of(member)[0]):
        wanted = "the name of a member, such as web-0; an empty one means that the VM is in no group"
        problems.add("InvalidArgument", f"member {member!r:.80} is not {wanted}")
    return str(member)


def _package(raw: Raw, packages: t.Mapping[str, Package], problems: Problems) -> t.Optional[Package]:
    wanted = raw.get("package")
    package = packages.get(wanted) if wanted else None
    if wanted and package is None:
        have = ", ".join(sorted(packages)) or "none"
        problems.add("ResourceNotFound", f"there is no package {wanted}; known packages: {have}")
    if package is not None and raw.get("flexible_disk_size") is not None:
        problems.add("InvalidArgument", "flexible_disk_size and package exclude each other: the package sets it")
    return package


def _metadata(raw: Raw, problems: Problems) -> t.Dict[t.Any, t.Any]:
    """Return customer metadata and secret metadata in one map."""
    metadata, secret = raw.get("customer_metadata") or {}, raw.get("secret_metadata") or {}
    both = sorted(map(str, {*metadata} & {*secret}))
    if both:
        problems.add("InvalidArgument", f"customer_metadata and secret_metadata both have {', '.join(both)}")
    return {**metadata, **secret}
