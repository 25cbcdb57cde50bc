# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Does what concerns disks that no VM has: makes, copies, resizes them."""

from __future__ import annotations

import typing as t
import uuid

from ..model.dataset import Dataset
from ..model.sizes import MIB
from ..model.vm import FILE, Vm
from ..plan.steps import Step
from ..rules import identity
from ..rules.layout import container
from ..rules.reservation import PoolGeometry
from ..zfs.guard import SNAPSHOT, lift
from . import file_disks
from .apply import RESERVATION, Applier, stamp


def create(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    """With its identity from its first moment. One that takes several commands is marked until it is whole."""
    args, own = step.args, str(uuid.uuid4())
    applier.make_container(vm.root.pool)
    made = {**args, "volume": "%s/%s" % (container(vm.root.pool), own)}
    facts = {**args["facts"], **stamp({}), "uuid": own}
    if not (args["copy_of"] or args["origin"]):
        applier.make_disk(made, facts, geometry)
        return
    if args["copy_of"]:
        _copy(applier, args["copy_of"], made["volume"], {**facts, "from": identity.IMPORTING})
    else:
        options = {"compression": args["own_compression"]} if args["own_compression"] else {}
        applier.zfs.clone(args["origin"], made["volume"], options, {**facts, "from": identity.IMPORTING})
    _end(applier, applier.read(made["volume"]), args["size"], args["type"])
    if args["copy_of"] and args["own_compression"]:
        applier.zfs.set(made["volume"], compression=args["own_compression"])


def _copy(applier: Applier, source: str, volume: str, facts: t.Mapping[str, str]) -> None:
    """Of a snapshot; of a disk as it is at this moment, by a snapshot that goes again."""
    copied = "%s@%s" % (volume, SNAPSHOT)
    if "@" in source:
        applier.zfs.copy(source, copied, facts)
        return
    snapshot = "%s@%s" % (source, SNAPSHOT)
    lift(applier.zfs, source)
    applier.zfs.snapshot(snapshot)
    try:
        applier.zfs.copy(snapshot, copied, facts)
    finally:
        lift(applier.zfs, source)


def _end(applier: Applier, volume: Dataset, size: int, kind: str) -> None:
    """What is left of the making of a disk that has all its data."""
    lift(applier.zfs, volume.name)
    figures: t.Dict[str, t.Union[int, str]] = {} if volume.volsize == size * MIB else {"volsize": size * MIB}
    applier.zfs.set(volume.name, **figures, **RESERVATION[kind])
    applier.zfs.set_facts(volume.name, {"from": ""})


def finish(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    _end(applier, applier.read(step.args["volume"], step.args["guid"]), step.args["size"], step.args["type"])


def end_conversion(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    args = step.args
    now = applier.read(args["volume"], args["guid"])
    if args["target"] != args["volume"]:
        applier.zfs.rename(args["volume"], args["target"])
    applier.zfs.set_facts(args["target"], {key: v for key, v in args["facts"].items() if v or key in now.user})


def resize(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    now = applier.read(step.args["volume"], step.args["guid"])
    if step.args["type"] == FILE:
        file_disks.resize(applier.zfs, now, step.args["size"] * MIB, geometry)
    else:
        applier.zfs.set(now.name, volsize=step.args["size"] * MIB, **RESERVATION[step.args["type"]])
    applier.zfs.set_facts(now.name, stamp(now.user))


VERBS = {
    "create_detached": create,
    "finish_detached": finish,
    "end_conversion": end_conversion,
    "resize_detached": resize,
}
