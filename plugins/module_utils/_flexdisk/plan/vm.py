# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Plans for whole VMs: changing one that is there, and deleting one."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.desired import Policy, VmDeclaration, VmDisksDeclaration
from ..model.errors import Collector, Problem
from ..model.sizes import MIB, render_bytes, render_mib
from ..model.vm import Disk, Vm, VmConfig
from ..rules import identity, packages, snapshots, space
from ..rules.inventory import Host
from ..rules.layout import is_below, vm_dataset
from ..rules.reservation import PoolGeometry
from ..rules.slots import slot_problems
from ..spec.vm_disks import parse_vm_disks
from . import checks, departures, ordering, predict, recovery
from .ordering import Sequence
from .planner import find_config, plan_vm
from .resolve import Intent, Leaver
from .steps import Step, Told, VmPlan
from .vm_steps import DeleteVm, SetAutoboot, SetProperties


def addressed(host: Host, wish: VmDeclaration) -> t.Union[VmConfig, Problem, None]:
    """The VM that a wish means, None where there is none; or why that cannot be said.

    A deletion takes only what cannot turn into another VM once it is done.
    """
    config = find_config(host, wish.vm)
    if isinstance(config, Problem):
        return config
    if config is None:
        owner = next((c for c in host.configs if c.uuid == wish.uuid), None)
        words = "no VM has this name, and the uuid %s is that of VM %s"
        return Problem("InvalidArgument", words % (owner.uuid, owner.label), wish.vm) if owner is not None else None
    if wish.uuid not in ("", config.uuid):
        words = "the uuid of VM %s is not %s; a VM keeps its uuid" % (config.label, wish.uuid)
        return Problem("InvalidArgument", words, wish.vm)
    reason = _unsure(config, wish)
    return Problem("InvalidArgument", reason, wish.vm) if reason else config


def _unsure(config: VmConfig, wish: VmDeclaration) -> str:
    """Why these words could mean a new VM, or after the deletion of this one another; "" if they cannot."""
    lower, absent = wish.vm.lower(), wish.state == "absent"
    if lower == config.uuid:
        return ""
    if wish.vm != config.alias:
        if not absent and len(lower) >= identity.SURE_PREFIX:
            return ""
        takes = "state=absent takes" if absent else "a task that could make a VM of this name takes"
        either = " or its alias" if config.alias else ""
        return "this is only the beginning of the uuid of VM %s; %s its whole uuid%s" % (config.label, takes, either)
    if absent and identity.is_uuid(lower):
        return "no VM has this uuid, and it is the alias of VM %s; state=absent takes the VM's own uuid" % config.label
    return ""


def plan_change(host: Host, vm: Vm, wish: VmDeclaration, policy: Policy, capabilities: Capabilities) -> VmPlan:
    """Steps for a VM that is there."""
    found = Collector(wish.vm)
    geometry = host.geometry[vm.config.pool]
    spec = _spec(vm, wish, found)
    found.problems += slot_problems(spec, vm.config)
    _fits(vm, wish, found)
    _same_image(vm, wish, found)
    if found.problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(found.problems))
    seq = Sequence(vm, geometry)
    if wish.state == "stopped" and vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    seq.add(_properties(seq.vm, wish))
    disks = plan_vm(host, seq.vm, spec, policy, capabilities)
    if disks.problems:
        return VmPlan(vm.config.uuid, vm, vm, (), disks.problems)
    seq.extend(disks.steps)
    seq.extend(power(seq.vm, wish, capabilities))
    if seq.steps:
        ordering.check_ready(vm, found)
    if found.problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(found.problems))
    warnings = (*disks.warnings, *_pending(vm, seq))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps), (), warnings)


def _spec(vm: Vm, wish: VmDeclaration, found: Collector) -> VmDisksDeclaration:
    """What vm_disks would be told. The disks of a VM whose creation was interrupted are those of a new one."""
    left = vm.interrupted
    creating = left is not None and bool(left.creates)
    disks = packages.initial_disks(wish, found) if creating else None
    if not creating and wish.disks is not None:
        disks = packages.named(wish.disks)
    if creating:
        uuids = {disk.uuid for disk in vm.disks}
        for number, entry in enumerate(disks or ()):
            made = uuid_of_new(vm.config.uuid, number, ())
            if not entry.get("uuid") and made in uuids:
                entry["uuid"] = made
    spec, problems = parse_vm_disks({"vm": wish.vm, "disks": disks, "unlisted": wish.unlisted})
    found.problems += problems
    return replace(spec, flexible_disk_size=packages.flexible_of(wish), quota=wish.quota)


def uuid_of_new(vm: str, number: int, taken: t.Collection[str]) -> str:
    """The uuid of a new VM's disk by its place in the list: the first that no disk has."""
    return next(u for u in (identity.uuid_for(vm, number, turn) for turn in range(len(taken) + 1)) if u not in taken)


def _fits(vm: Vm, wish: VmDeclaration, found: Collector) -> None:
    """The package against what the VM has; RFD 154 asks only that sizes and snapshots are not above its disk."""
    package = wish.package
    if package is None:
        return
    if not package.flexible_disk:
        if vm.flexible:
            found.add(
                "InvalidArgument",
                "package %s has no flexible disk space, but the VM has; it cannot be taken away" % package.name,
            )
        return
    usage = rfd_usage_mib(vm)
    need = space.smallest_flexible_mib(vm) - vm.hidden_mib
    if wish.disks is None and need > package.disk:
        found.add(
            "InsufficientSpace",
            "package %s has %s, disks and snapshots need %s; %d MiB is the smallest that fits (by RFD 154 existing "
            "disk usage is %d MiB)" % (package.name, render_mib(package.disk), render_mib(need), need, usage),
        )


def _same_image(vm: Vm, wish: VmDeclaration, found: Collector) -> None:
    """A VM that is there keeps its image. What a disk was made of is not always known."""
    boots = next((disk for disk in vm.disks if disk.boot and not disk.hidden), None)
    named = {wish.image, *(entry.get("image") for entry in wish.disks or ())}
    if wish.image and boots is not None and boots.image and boots.image not in named:
        found.add(
            "FixedAtBirth",
            "the VM boots from image %s, and only a new VM gets image %s; declare its image or none to keep the VM, or "
            "delete it first with state=absent to make it anew" % (boots.image, wish.image),
            boots.label,
        )


def rfd_usage_mib(vm: Vm) -> int:
    """What RFD 154 compares with a package's disk: all sizes, and snapshots in whole MiB, without hidden disks."""
    shown = [d.volume for d in vm.disks if not d.hidden]
    return sum(-(-v.volsize // MIB) + -(-v.usedbysnapshots // MIB) for v in shown)


def _properties(vm: Vm, wish: VmDeclaration) -> t.Optional[SetProperties]:
    """memory, vcpus, protection and the package's name, in one step."""
    package = wish.package
    wanted: t.Dict[str, t.Any] = {
        "memory": wish.memory if wish.memory is not None else package and package.memory,
        "vcpus": wish.vcpus if wish.vcpus is not None else package and package.vcpus,
        "indestructible": wish.indestructible,
        "package": package and package.name,
    }
    now = dict(machine(vm))
    changes = {key: value for key, value in wanted.items() if value is not None and value != now[key]}
    if not changes:
        return None
    words = ["%s %s -> %s" % (key, _word(key, now[key]), _word(key, value)) for key, value in changes.items()]
    own = snapshots.protection(vm) if "indestructible" in changes else None
    with_it = "; the protection's own snapshot %s goes with it" % snapshots.PROTECTION if own is not None else ""
    return SetProperties(
        Told(f"~ {', '.join(words)}{with_it}"),
        memory_mib=changes.get("memory"),
        vcpus=changes.get("vcpus"),
        indestructible=changes.get("indestructible"),
        package=changes.get("package"),
    )


def _word(key: str, value: t.Any) -> str:
    if key == "memory":
        return render_mib(value)
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def machine(vm: Vm) -> t.Dict[str, t.Any]:
    """What a VM is besides its disks; memory is MiB."""
    config = vm.config
    return {
        "memory": config.memory,
        "vcpus": config.vcpus,
        "indestructible": config.indestructible,
        "package": vm.package,
    }


def power(vm: Vm, wish: VmDeclaration, capabilities: Capabilities) -> t.Iterator[Step]:
    """What brings a VM into the wanted state at the end."""
    autoboot = vm.config.autoboot
    if wish.state == "running" and vm.config.state == "stopped":
        yield recovery.start(capabilities)
        autoboot = autoboot or capabilities.moves_autoboot
    if wish.autoboot is not None and wish.autoboot != autoboot:
        word = "on" if wish.autoboot else "off"
        yield SetAutoboot(Told(f"autoboot {word}"), autoboot=wish.autoboot)


def _pending(vm: Vm, seq: Sequence) -> t.Iterator[str]:
    late = [key for step in seq.steps if isinstance(step, SetProperties) for key in step.machine]
    restarts = any(step.stops for step in seq.steps)
    if late and vm.config.state == "running" and not restarts:
        yield "%s: %s changes at its next start" % (vm.label, " and ".join(late))


# -- delete


def plan_deletion(host: Host, vm: Vm, wish: VmDeclaration, capabilities: Capabilities) -> VmPlan:
    """Steps that delete the VM; its disks with preserve=true are parked first, with their snapshots."""
    found = Collector(wish.vm)
    geometry = host.geometry[vm.config.pool]
    if vm.interrupted is not None and vm.interrupted.rollback:
        found.add("InUse", recovery.unfinished(vm.interrupted))
    if vm.config.indestructible and wish.indestructible is not False:
        found.add("Indestructible", "the VM is indestructible; set indestructible=false in this task to delete it")
    leavers = [Leaver(d, not d.preserve, wish.destroy_snapshots) for d in vm.disks if not d.hidden] + _orphans(vm)
    checks.check_departures(Intent(vm, None, vm.root.refquota, [], leavers, []), host, found)
    _unknown(host, vm, found)
    _given_up(vm, wish, found)
    ordering.check_ready(vm, found)
    if found.problems:
        return VmPlan(vm.config.uuid, vm, vm, (), tuple(found.problems))
    return _deletion(vm, [leaver for leaver in leavers if not leaver.destroy], geometry, capabilities)


def _orphans(vm: Vm) -> t.List[Leaver]:
    """What an interrupted run has taken out of the configuration and not out of the VM is parked, as there."""
    names = {d.name for d in vm.disks + vm.parked}
    return [Leaver(d, False, nameless=d.name in names) for d in vm.orphans if d.adopted and d.uuid]


def _unknown(host: Host, vm: Vm, found: Collector) -> None:
    """Whatever lies below the VM's dataset is destroyed with it: nothing that nobody has named."""
    known = {disk.volume.name for disk in vm.disks} | {leaver.disk.volume.name for leaver in _orphans(vm)}
    below = [d for d in host.datasets.values() if is_below(d.name, vm.root.name) and d.kind != "snapshot"]
    strange = sorted(d.name for d in below if d.name not in known)
    if strange:
        found.add("InUse", "%s would be destroyed with the VM, but is not one of its disks" % ", ".join(strange))


def _given_up(vm: Vm, wish: VmDeclaration, found: Collector) -> None:
    data = [d for d in vm.disks if not (d.boot or d.hidden or d.preserve)]
    if data and not wish.destroy_disks:
        names = ", ".join("%s (%s, uuid %s)" % (d.label, render_mib(d.size_mib), d.uuid) for d in data)
        found.add(
            "DataDisks",
            "the VM has data disks that would be destroyed: %s; destroy_disks=true allows it, preserve=true keeps one"
            % names,
        )
    protection = snapshots.protection(vm)
    own = [s for s in vm.snapshots if s is not protection]
    if own and not wish.destroy_snapshots:
        found.add(
            "HasSnapshots",
            "the VM has snapshots that would be destroyed with it: %s; destroy_snapshots=true allows it"
            % ", ".join(_snapshot_words(vm, s) for s in own),
        )
    used = [s.name for s in own if s.clones or s.userrefs]
    if used:
        found.add("InUse", "snapshots cannot be destroyed because they have clones or holds: %s" % ", ".join(used))


def _snapshot_words(vm: Vm, snapshot: Dataset) -> str:
    left = not vm.config.bare and snapshot.name == vm.root.name + snapshots.PROTECTION
    name = snapshot.name.partition("@")[2]
    return name + (" (left of a protection whose hold somebody has released)" if left else "")


def _deletion(vm: Vm, parking: t.Sequence[Leaver], geometry: PoolGeometry, capabilities: Capabilities) -> VmPlan:
    seq = Sequence(vm, geometry)
    seq.extend(departures.unguard(vm.disks + vm.orphans))
    if vm.config.state == "running":
        seq.add(ordering.stop(capabilities))
    seq.extend(departures.forget(vm))
    seq.add(_properties(seq.vm, VmDeclaration(vm.label, indestructible=False)))
    for leaver in parking:
        seq.add(departures.detach(seq.vm, replace(leaver, disk=seq.volume_of(leaver.disk)), True))
    seq.add(delete(seq.vm))
    return VmPlan(vm.config.uuid, vm, seq.vm, tuple(seq.steps))


def delete(vm: Vm) -> DeleteVm:
    """The last step of a VM. What it destroys is named."""
    gone = [_described(disk) for disk in vm.disks]
    count = len({s.name.partition("@")[2] for s in (*vm.snapshots, *(s for d in vm.disks for s in d.snapshots))})
    gone += ["%d snapshot%s" % (count, "" if count == 1 else "s")] if count else []
    text = "- VM %s DESTROYED%s" % (vm.config.alias or vm.config.uuid, " with " + ", ".join(gone) if gone else "")
    parts = tuple((disk.volume.name, disk.volume.guid) for disk in vm.disks)
    return DeleteVm(Told(text, destroys=True), parts=parts)


def _described(disk: Disk) -> str:
    held = " and its snapshots (%s)" % render_bytes(disk.volume.pinned) if disk.snapshots else ""
    return "%s %s%s" % (disk.label, render_mib(disk.size_mib), held)


def plan_remains(host: Host, config: VmConfig) -> VmPlan:
    """A VM whose dataset has gone, as by an interrupted deletion: its configuration is all that is left to delete."""
    pool = config.pool if config.pool in host.geometry else next(iter(host.geometry))
    config = replace(config, pool=pool, dataset=config.dataset or vm_dataset(pool, config.uuid))
    vm = Vm(config, Dataset(config.dataset, ""))
    step = delete(vm)
    return VmPlan(config.uuid, vm, predict.apply(vm, step, host.geometry[pool]), (step,))
