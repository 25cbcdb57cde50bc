# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Does what concerns a VM as a whole: make it, delete it, change its machine, take snapshots and go back to them."""

from __future__ import annotations

import typing as t

from ..model.errors import FlexdiskError
from ..model.vm import FILE, Vm
from ..plan.steps import Step
from ..rules import identity
from ..rules.journal import used
from ..rules.layout import container, image_of
from ..rules.reservation import PoolGeometry
from . import file_disks
from .apply import Applier, stamp


def create_vm(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    args = step.args
    if applier.storage is None:
        _make_storage(applier, after, args, geometry)
    disks = [_entry(disk) for disk in args["disks"]]
    applier.hypervisor.create_vm(args["new"], disks, args["indestructible"], args["ports"])
    if applier.storage is not None:
        if any(args["facts"].values()):
            applier.zfs.set_facts(after.root.name, {k: v for k, v in args["facts"].items() if v})
        for disk in args["disks"]:
            applier.zfs.set_facts(disk["volume"], {**disk["facts"], **stamp({})})


def _make_storage(applier: Applier, after: Vm, args: t.Mapping[str, t.Any], geometry: PoolGeometry) -> None:
    """The configuration comes last: a VM that is there has all its disks."""
    root = after.root
    figures = ("quota", "reservation", "refquota", "refreservation")
    options = {key: str(getattr(root, key)) for key in figures if getattr(root, key)}
    applier.zfs.create_filesystem(root.name, {"mountpoint": "none", "canmount": "off", **options}, args["facts"])
    for disk in args["disks"]:
        applier.make_disk(disk, {**disk["facts"], **stamp({})}, geometry)


def import_image(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    """Marked until it is whole; thick until then, so that it does not run out of room on the way."""
    args = step.args
    volume, final = args["volume"], args["volume"] + "@final"
    if applier.zfs.exists(final):
        return  # another VM of this task has had it imported
    if applier.zfs.exists(volume):
        if applier.read(volume).user.get("from") != identity.IMPORTING:
            raise FlexdiskError("Changed", "the host changed since it was read: %s now exists" % volume)
        applier.zfs.destroy(volume)
    options = {"volblocksize": str(args["block_size"])}
    applier.zfs.create_volume(volume, args["size"], options, {"from": identity.IMPORTING})
    applier.hypervisor.import_image(args["file"], volume)
    applier.zfs.set(volume, refreservation="none")
    applier.zfs.snapshot(final)
    applier.zfs.set_facts(volume, {"from": ""})


def clear(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    """Exactly what was read, and unused still."""
    left = step.args["left"]
    there, empty = applier.zfs.datasets(step.args["root"]), applier.read(container(after.root.pool))
    if {d.name for d in there} != set(left) or used(there, empty):
        raise FlexdiskError("Changed", "the host changed since it was read: other datasets exist below %s" % left[0])
    applier.zfs.destroy(step.args["root"], True)


def delete_vm(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    volumes = dict(step.args["volumes"])
    if vm.root.kind:
        _only_these(applier, vm, volumes)
    if applier.storage is None:
        for name, guid in volumes.items():
            now = applier.read(name, guid)
            applier.zfs.destroy(name, True)
            file_disks.removed(applier.zfs, now)
        if vm.root.kind:
            applier.zfs.destroy(vm.root.name, True)
    applier.hypervisor.delete_vm(vm.config.uuid)
    if vm.root.kind and applier.zfs.exists(vm.root.name):
        raise FlexdiskError("NotApplied", "the VM is deleted, but %s still exists" % vm.root.name)


def _only_these(applier: Applier, vm: Vm, volumes: t.Mapping[str, int]) -> None:
    """Whatever is below the VM's dataset goes with it: the last look before that."""
    below = {d.name: d.guid for d in applier.zfs.datasets(vm.root.name, snapshots=False) if d.name != vm.root.name}
    if below != volumes:
        wrong = sorted({name for name, _guid in {*below.items()} ^ {*volumes.items()}})
        raise FlexdiskError("Changed", "the VM changed since it was read: %s; it is not deleted" % ", ".join(wrong))


def properties(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    changes = dict(step.args["changes"])
    protected, package = changes.pop("indestructible", None), changes.pop("package", None)
    if changes:
        applier.hypervisor.set_machine(vm.config.uuid, changes)
    if protected is not None and applier.storage is not None:
        applier.storage.set_indestructible(vm.config.uuid, protected)
    elif protected is not None:
        applier.zfs.set_facts(vm.root.name, {"indestructible": "true" if protected else ""})
    if package is not None:
        applier.zfs.set_facts(vm.root.name, {"package": package})


def snapshot(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    if applier.storage is not None:
        applier.storage.create_snapshot(vm.config.uuid, step.args["name"])
    else:
        applier.zfs.snapshot("%s@%s" % (vm.root.name, step.args["full_name"]), recursive=True)


def delete_snapshot(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    args = step.args
    if applier.storage is not None and args["whole"]:
        applier.storage.delete_snapshot(vm.config.uuid, args["name"])
    else:
        for part in args["parts"]:
            applier.zfs.destroy(part)


def rollback(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    if applier.storage is not None:
        applier.storage.roll_back(vm.config.uuid, step.args["name"])
    else:
        files = {d.volume.name: d.volume for d in after.disks + after.orphans if d.type == FILE}
        for part in step.args["parts"]:
            applier.zfs.rollback(part)
            name = part.partition("@")[0]
            if name in files:
                # Our property is not among what goes back.
                applier.zfs.set_facts(name, {"size": str(files[name].volsize)})


def _entry(disk: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """A new VM's disk for the driver; what has an image has its block size, too."""
    made = {"image_uuid": image_of(disk["origin"])} if disk["origin"] else {"block_size": disk["block_size"]}
    return {**disk["config"], **made, "compression": disk["own_compression"]}


VERBS = {
    "snapshot": snapshot,
    "delete_snapshot": delete_snapshot,
    "rollback": rollback,
    "create_vm": create_vm,
    "clear": clear,
    "import_image": import_image,
    "delete_vm": delete_vm,
    "properties": properties,
}
