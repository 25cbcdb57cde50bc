# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Everything that can forbid a VM's declaration, found before the first change. Each check names numbers."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.errors import Collector
from ..model.sizes import MIB, render_apart, render_bytes, render_change, render_mib
from ..model.vm import THICK, Disk, Vm
from ..rules import slots, space
from ..rules.differences import crosses, put_aside
from ..rules.disk_values import check_new_name
from ..rules.inventory import Host
from ..rules.layout import container, copy_place, parked_place
from ..rules.reservation import PoolGeometry
from . import predict
from .resolve import Intent, Leaver, Target, slots_after, staying_bytes


def check(intent: Intent, host: Host, capabilities: Capabilities, found: Collector) -> None:
    """All checks of one VM that need no order of steps."""
    for target in intent.targets:
        _target(intent, target, capabilities, found)
        check_type(target, host, intent.vm.config.pool, capabilities, found)
    for leaver in intent.leavers:
        _leaver(leaver, found)
        _protected(intent.vm, leaver.disk, "removed", found)
    _moves(intent, host, found)
    _writers(intent, host, found)
    _names(intent, found)
    _boot(intent, found)
    _functions(intent, found)
    _inflexible(intent, found)
    _space(intent, host, found)
    _reserved(intent, host.geometry[intent.vm.config.pool], found)
    _quota(intent, capabilities, found)


def check_departures(intent: Intent, host: Host, found: Collector) -> None:
    """What forbids that a VM is deleted, its disks destroyed or parked, the boot disk too."""
    for leaver in intent.leavers:
        _gone(leaver, found)
    _moves(intent, host, found)
    _writers(intent, host, found)


def _target(intent: Intent, target: Target, capabilities: Capabilities, found: Collector) -> None:
    check_name(target, found)
    models = intent.vm.config.models or capabilities.models
    if target.spec.model is not None and target.spec.model not in models:
        found.add(
            "InvalidArgument",
            "model %r is not valid: it must be one of %s" % (target.spec.model, ", ".join(models)),
            target.label,
        )
    if target.disk is not None and check_shrink(target, found):
        _ownership(target.disk, "shrink", found)
        _protected(intent.vm, target.disk, "made smaller", found)


def check_name(target: Target, found: Collector) -> None:
    """What the entry makes the name of a disk. One that the disk has already is not given to it."""
    name = target.spec.name
    if name and (target.disk is None or name != target.disk.name):
        check_new_name(found, target.label, name)


def check_shrink(target: Target, found: Collector) -> bool:
    """Whether the disk becomes smaller; what forbids that is noted."""
    disk = target.disk
    if disk is None or target.bytes >= disk.size:
        return False
    change = render_change(disk.size, target.bytes)
    if not target.spec.dangerous_allow_shrink:
        found.add(
            "InvalidArgument",
            "%s would cut off data; dangerous_allow_shrink=true allows it" % change,
            target.label,
        )
    if target.size < disk.image_size:
        found.add(
            "InvalidArgument",
            "%s is refused: the disk cannot be smaller than its image%s, which has %s"
            % (change, " " + disk.image if disk.image else "", render_mib(disk.image_size)),
            target.label,
        )
    return True


def _ownership(disk: Disk, what: str, found: Collector) -> None:
    if disk.disowned:
        found.add(
            "IdentityMismatch",
            "will not %s %s: the hypervisor says uuid %s, the volume says %s"
            % (what, disk.volume.name, disk.uuid or "none", disk.volume.user["uuid"]),
            disk.label,
        )


def _protected(vm: Vm, disk: Disk, what: str, found: Collector) -> None:
    """RFD 154 left open whether a VM's deletion protection is also that of its disks. Here it is."""
    if vm.config.indestructible and not disk.parked:
        found.add("Indestructible", "the VM is indestructible, so none of its disks can be %s" % what, disk.label)


def _leaver(leaver: Leaver, found: Collector) -> None:
    disk = leaver.disk
    if disk.boot and disk.path:
        found.add("InvalidArgument", "the boot disk cannot be removed", disk.label)
    _gone(leaver, found)


def _gone(leaver: Leaver, found: Collector) -> None:
    disk = leaver.disk
    _ownership(disk, "destroy" if leaver.destroy else "detach", found)
    if leaver.destroy:
        check_destruction(leaver, found)


def check_destruction(leaver: Leaver, found: Collector) -> None:
    """What a disk takes with it must have been given up."""
    disk = leaver.disk
    clones = [c for snapshot in disk.snapshots for c in snapshot.clones if c not in leaver.clones]
    if clones:
        found.add("HasClones", "cannot be destroyed: it has clones (%s)" % ", ".join(clones), disk.label)
    held = [snapshot.name for snapshot in disk.snapshots if snapshot.userrefs]
    if held and not leaver.held:
        found.add("Held", "cannot be destroyed: snapshots are held (%s)" % ", ".join(held), disk.label)
    if disk.snapshots and not leaver.snapshots:
        found.add(
            "HasSnapshots",
            "has %d snapshots that hold %s and would be destroyed with it; destroy_snapshots=true allows it"
            % (len(disk.snapshots), render_bytes(disk.volume.pinned)),
            disk.label,
        )


def _writers(intent: Intent, host: Host, found: Collector) -> None:
    claimed = [target.disk for target in intent.targets if target.disk is not None]
    for name in sorted({disk.volume.name for disk in (*intent.vm.disks, *intent.vm.orphans, *claimed)}):
        others = [c.label for c in host.users.get(name, ()) if c.uuid != intent.vm.config.uuid]
        if others:
            found.add(
                "InUse", "%s is also attached to %s; two writers would destroy its data" % (name, ", ".join(others))
            )


def _moves(intent: Intent, host: Host, found: Collector) -> None:
    """Volumes that are renamed must stay below their encryption root."""
    pool = intent.vm.config.pool
    above = host.datasets.get(container(pool)) or host.datasets[pool]
    for leaver in intent.leavers:
        if leaver.moves:
            _encryption(leaver.disk, above, "detached", found)
            place = parked_place(leaver.disk)
            if place in host.datasets:
                found.add("AlreadyExists", "cannot be moved out: %s already exists" % place, leaver.disk.label)
    for target in intent.targets:
        if target.disk is not None and target.disk.parked:
            if target.disk.volume.pool != pool:
                found.add(
                    "InvalidArgument",
                    "is in pool %s, but the VM is in pool %s" % (target.disk.volume.pool, pool),
                    target.label,
                )
            _encryption(target.disk, intent.vm.root, "attached", found)


def check_type(target: Target, host: Host, pool: str, capabilities: Capabilities, found: Collector) -> None:
    """What forbids that a disk has its type, or becomes of another one by a copy."""
    disk = target.disk
    if target.type not in capabilities.types:
        found.add(
            "NotSupported",
            "type %s is not supported: with %s, a disk can only be %s"
            % (target.type, capabilities.name, " or ".join(capabilities.types)),
            target.label,
        )
    if disk is None or not crosses(target.type, disk):
        return
    _gone(Leaver(disk, True, target.spec.destroy_snapshots), found)
    spare = parked_place(disk)
    taken = {spare, copy_place(spare)} & {*host.datasets} - {disk.volume.name, disk.half}
    for name in sorted(taken):
        found.add("AlreadyExists", "cannot be converted: %s already exists" % name, target.label)
    if not disk.parked:
        _encryption(disk, host.datasets.get(container(pool)) or host.datasets[pool], "converted", found)


def _encryption(disk: Disk, destination: Dataset, verb: str, found: Collector) -> None:
    own = disk.volume.encryptionroot
    if own and own != disk.volume.name and own != destination.encryptionroot:
        found.add(
            "EncryptionRoot",
            "cannot be %s: its encryption root is %s, that of %s is %s"
            % (verb, own, destination.name, destination.encryptionroot or "none"),
            disk.label,
        )


def _names(intent: Intent, found: Collector) -> None:
    """One name space for a VM's attached disks and those parked from it."""
    claimed = {id(g.disk) for g in intent.targets if g.disk is not None}
    leaving = {id(leaver.disk): leaver for leaver in intent.leavers}
    others: t.Dict[str, str] = {}
    for disk in intent.vm.disks + intent.vm.parked:
        leaver = leaving.get(id(disk))
        gone = leaver is not None and (leaver.destroy or leaver.nameless)
        if disk.name and id(disk) not in claimed and not gone:
            others[disk.name] = disk.volume.name
    for target in intent.targets:
        name = target.spec.name or (target.disk.name if target.disk is not None else "")
        if name in others:
            found.add("NameConflict", "the name %s is already used by %s" % (name, others[name]), target.label)
        elif name:
            others[name] = target.disk.volume.name if target.disk is not None else "the new disk"


def _boot(intent: Intent, found: Collector) -> None:
    """One boot disk, where the VM has one; and none that the hypervisor cannot make the boot disk."""
    vm = intent.vm
    boots = [disk.label for disk in vm.disks if disk.boot and _stays_unmanaged(intent, disk)]
    for target in intent.targets:
        now = _boots_now(intent, target)
        if target.spec.boot or (target.spec.boot is None and now):
            boots.append(target.label)
        if target.spec.boot:
            _check_boot_disk(intent, target, now, found)
    if len(boots) > 1:
        found.add("InvalidArgument", "the VM would have several boot disks: %s" % ", ".join(boots))
    leaving = {id(leaver.disk) for leaver in intent.leavers}
    if not boots and any(d.boot for d in vm.disks) and not any(d.boot and id(d) in leaving for d in vm.disks):
        found.add("InvalidArgument", "the VM would have no boot disk")


def _check_boot_disk(intent: Intent, target: Target, now: bool, found: Collector) -> None:
    """Whether the hypervisor can boot from a disk that is declared so; now: it does already."""
    config = intent.vm.config
    if target.stays and not now and config.boot_types:
        found.add(
            "NotSupported",
            "cannot become the boot disk: the VM boots by type of device (%s); give its devices a boot order"
            % config.boot_types,
            target.label,
        )
    elif not target.stays and config.bare and _loses_boot(intent):
        found.add(
            "NotSupported",
            "cannot be added and become the boot disk in one task; add it first, then make it the boot disk",
            target.label,
        )


def _replaced_for_now(intent: Intent) -> bool:
    """Whether another disk only boots as long as the data of the boot disk is copied."""
    returns = any(g.disk is not None and g.disk.boot and put_aside(intent.vm, g.disk) for g in intent.targets)
    return returns and intent.vm.config.first_boots


def _stays_unmanaged(intent: Intent, disk: Disk) -> bool:
    """Whether a disk boots in the end that no entry means."""
    named = [g.disk for g in intent.targets] + [leaver.disk for leaver in intent.leavers]
    return not _replaced_for_now(intent) and not any(disk is other for other in named)


def _boots_now(intent: Intent, target: Target) -> bool:
    """Whether the target's disk is the boot disk, or was it before it was parked to be copied."""
    disk = target.disk
    if disk is None or not disk.boot:
        return False
    return not _replaced_for_now(intent) if target.stays else put_aside(intent.vm, disk)


def _loses_boot(intent: Intent) -> bool:
    """Whether a disk that stays is told not to be the boot disk any more."""
    return any(g.stays and g.disk is not None and g.disk.boot and g.spec.boot is False for g in intent.targets)


def _functions(intent: Intent, found: Collector) -> None:
    """No disk comes to where no guest finds it, and none stays there alone."""
    pci, (before, after) = intent.vm.config.pci, slots_after(intent)
    for slot in sorted(slots.unseen(after, pci) - slots.unseen(before, pci)):
        words = 'pci_slot "%s": nothing is at %s then, and without it no guest finds this disk'
        places = (slots.render_slot(slot), slots.render_slot(slot._replace(function=0)))
        found.add("InvalidArgument", words % places, after[slot])


def _inflexible(intent: Intent, found: Collector) -> None:
    if intent.flexible is not None:
        return
    for target in intent.targets:
        verb = ""
        if target.spec.remaining:
            verb = "size=remaining"
        elif not target.stays and not (intent.new and target.disk is None):
            verb = "adding a disk"
        elif target.disk is not None and target.bytes > target.disk.size:
            verb = "growing a disk"
        if verb:
            found.add(
                "VmWithoutFlexibleDiskSize",
                "%s needs flexible_disk_size, and this VM has none; declare it to convert the VM" % verb,
                target.label,
            )


def _space(intent: Intent, host: Host, found: Collector) -> None:
    """The exact law: everything the VM holds in the end must fit into flexible_disk_size.

    Where a snapshot has taken more than there was, nothing that has to do with space can be done, but nothing is to be
    either as long as no size is to change.
    """
    if intent.flexible is None:
        return
    need = staying_bytes(intent)
    missing = need - intent.flexible * MIB
    if missing <= _overdrawn(intent.vm) or _at_rest(intent, host.geometry[intent.vm.config.pool]):
        return
    hidden = intent.vm.hidden_mib
    declared = (intent.flexible - hidden) * MIB
    figures = "%s is %s too small: disks and snapshots need %s" % render_apart(declared, missing, declared + missing)
    growing = [_demand(g) for g in intent.targets if g.disk is None or g.disk.parked or g.bytes > g.disk.size]
    wanted = " (wanted: %s)" % ", ".join(growing) if growing else ""
    found.add(
        "InsufficientSpace",
        "flexible_disk_size %s%s; the smallest that fits is %d MiB" % (figures, wanted, -(-need // MIB) - hidden),
        growing[0].split(" ")[0] if len(growing) == 1 else "",
    )


def _reserved(intent: Intent, geometry: PoolGeometry, found: Collector) -> None:
    """Without flexible_disk_size what snapshots hold is not counted, so a quota may lack room for a reservation."""
    growing = [g for g in intent.targets if g.disk is not None and g.stays and _converts(g) and g.type == THICK]
    if intent.flexible is not None or not growing:
        return
    volumes = [t.cast(Disk, g.disk).volume for g in growing]
    need = sum(predict.resized(v, v.volsize, geometry).used - v.used for v in volumes)
    room = max(intent.vm.root.quota, space.expected_quota(intent.vm, geometry)) - intent.vm.root.used
    if need > room:
        figures = render_apart(need, max(0, room))
        found.add(
            "InsufficientSpace",
            "type thick needs %s more, but the VM's quota has only %s left" % figures,
            ", ".join(g.label for g in growing),
        )


def _converts(target: Target) -> bool:
    return target.disk is not None and target.spec.type not in (None, target.disk.type)


def _at_rest(intent: Intent, geometry: PoolGeometry) -> bool:
    """Whether a VM under the law keeps its disks, their sizes, its flexible_disk_size and its quota."""
    vm = intent.vm
    asked = (intent.flexible, intent.quota) != (vm.config.flexible_disk_size, vm.root.refquota)
    resized = any(not g.stays or g.disk is None or g.bytes != g.disk.size or _converts(g) for g in intent.targets)
    return not (asked or resized or intent.leavers or space.drift_cause(vm, geometry))


def _overdrawn(vm: Vm) -> int:
    """How far into the slack of 1 MiB the VM is already, by a snapshot say: no more than that may stay missing."""
    room = space.allocatable(vm)
    return 0 if room is None else min(MIB, max(0, -room))


def _demand(target: Target) -> str:
    if target.disk is None:
        return "%s %s new" % (target.label, render_mib(target.size))
    return "%s %s" % (target.label, render_change(target.disk.size, target.bytes))


def _quota(intent: Intent, capabilities: Capabilities, found: Collector) -> None:
    root = intent.vm.root
    if intent.quota == root.refquota:
        return
    check_quota_unit(intent.quota, capabilities, found)
    held = root.usedbydataset
    if intent.quota < held:
        found.add(
            "InUse",
            "quota %s is below the %s that %s holds" % (*render_apart(intent.quota, held), root.name),
        )


def check_quota_unit(quota: int, capabilities: Capabilities, found: Collector) -> None:
    """quota is bytes."""
    unit = capabilities.whole_quota
    if quota % unit or quota < unit:
        found.add(
            "InvalidArgument",
            "quota %s is not valid: %s takes only multiples of %s"
            % (render_apart(quota, unit)[0], capabilities.name, render_bytes(unit)),
        )
