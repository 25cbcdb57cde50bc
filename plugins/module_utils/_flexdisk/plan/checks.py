# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that refuse a VM's declaration before the first change. Their messages have the figures."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset
from ..model.errors import Problems
from ..model.sizes import MIB, render_apart, render_bytes, render_change, render_exact, render_mib
from ..model.text import count, visible
from ..model.vm import THICK, Disk, DiskConfig, Vm, VmConfig
from ..rules import slots, space
from ..rules.differences import crosses, in_conversion
from ..rules.disk_values import check_new_name
from ..rules.identity import is_serial, serial_of
from ..rules.inventory import Host
from ..rules.keys import leaves_its_root
from ..rules.layout import arriving_prefix, container, copy_place, detached_place
from ..rules.replicas import hosts
from ..rules.reservation import PoolGeometry
from ..rules.unmanaged import former_vm
from ..rules.usage import also_attached, labels, why_renamed
from . import disk_travel, predict
from .resolve import Leaver, Resolved, Target, slots_after, staying_bytes


def check(resolved: Resolved, host: Host, capabilities: Capabilities, problems: Problems) -> None:
    """Run all checks of one VM that do not depend on the order of steps."""
    for target in resolved.targets:
        _check_target(resolved, target, capabilities, problems)
        check_type(target, host, resolved.vm.config.pool, capabilities, problems)
    for leaver in resolved.leavers:
        _check_leaver(resolved.vm.config, leaver, problems)
        disk_travel.check_leaving(resolved.vm, leaver, problems)
        _check_protection(resolved.vm, leaver.disk, "removed", problems)
    _check_moves(resolved, host, problems)
    _check_writers(resolved, host, problems)
    _check_renamed(resolved, problems)
    _check_twins(resolved, problems)
    _check_names(resolved, problems)
    _check_boot(resolved, problems)
    _check_last(resolved, problems)
    _check_pci_functions(resolved, problems)
    _check_flexible(resolved, problems)
    _check_space(resolved, host, problems)
    _check_other_pools(resolved, host, problems)
    _check_reservation(resolved, host.geometry[resolved.vm.config.pool], problems)
    _check_quota(resolved, capabilities, problems)


def check_departures(resolved: Resolved, host: Host, problems: Problems) -> None:
    """Check a VM that is deleted. All its disks are destroyed or detached, so the boot disk may leave, too."""
    for leaver in resolved.leavers:
        _check_removal(leaver, problems)
        disk_travel.check_keeping(leaver, problems)
    _check_moves(resolved, host, problems)
    _check_writers(resolved, host, problems)


def _check_target(resolved: Resolved, target: Target, capabilities: Capabilities, problems: Problems) -> None:
    check_name(target, problems)
    disk_travel.check_coming(resolved.vm.config, target, problems)
    disk_travel.check_size(target, problems)
    if target.stays and target.disk is not None and crosses(target.type, target.disk):
        disk_travel.check_leaving(resolved.vm, Leaver(target.disk, False), problems)
    models = resolved.vm.config.models or capabilities.models
    if target.spec.model is not None and target.spec.model not in models:
        problems.add(
            "InvalidArgument",
            f"model {target.spec.model!r} is not valid: it must be one of {', '.join(models)}",
            target.label,
        )
    if target.disk is not None and check_shrink(target, problems):
        _check_ownership(target.disk, "shrink", problems)
        _check_protection(resolved.vm, target.disk, "made smaller", problems)
    if target.disk is None and target.replaces is not None:
        check_guest(target, target.replaces, problems)


def check_name(target: Target, problems: Problems) -> None:
    """Check the name that the entry gives to a disk, unless the disk has this name already."""
    name = target.spec.name
    if name and (target.disk is None or name != target.disk.name):
        check_new_name(problems, target.label, name)


def check_guest(target: Target, disk: Disk, problems: Problems) -> bool:
    """Whether a disk, or the one that replaces it, would be smaller than its guest needs. Adds a problem if so."""
    min_mib = target.spec.min_size
    if min_mib is None or not target.bytes < min(disk.size, min_mib * MIB):
        return False
    wanted, limit = render_apart(target.bytes, min_mib * MIB)
    problems.add(
        "TooSmallForGuest",
        f"{wanted} would cut off what the guest uses: min_size_from_guest is {limit}, and the disk has "
        f"{render_bytes(disk.size)}",
        target.label,
    )
    return True


def check_shrink(target: Target, problems: Problems) -> bool:
    """Whether the disk becomes smaller. Adds a problem for each reason against that."""
    disk = target.disk
    if disk is None or target.bytes >= disk.size:
        return False
    if target.size < 1:  # size=remaining leaves nothing, and was refused for that
        return True
    _check_replicas(disk, "made smaller", problems)
    change = render_change(disk.size, target.bytes)
    if not check_guest(target, disk, problems) and not target.spec.dangerous_allow_shrink:
        problems.add(
            "InvalidArgument",
            f"{change} would cut off data; dangerous_allow_shrink: true allows it",
            target.label,
        )
    if target.size < disk.image_size:
        problems.add(
            "InvalidArgument",
            f"{change} is refused: the disk cannot be smaller than its "
            f"image{' ' + disk.image if disk.image else ''}, which has "
            f"{render_mib(disk.image_size)}",
            target.label,
        )
    return True


def _check_replicas(disk: Disk, action: str, problems: Problems) -> None:
    """Add a problem if the disk has replicas, which cannot follow this change: they must be given up first."""
    there = hosts(disk)
    if there:
        text = f"cannot be {action}: it has replicas on {', '.join(there)}; the playbook replicate with"
        vm = f" and flexdisk_vm={disk.vm}, flexdisk_replica_host={', then '.join(there)}" if disk.detached else ""
        problems.add("Replicated", f"{text} flexdisk_replica_state=absent{vm} gives them up", disk.label)


def _check_ownership(disk: Disk, action: str, problems: Problems) -> None:
    if disk.disowned:
        problems.add(
            "IdentityMismatch",
            f"will not {action} {disk.volume.name}: the hypervisor says uuid {disk.uuid or 'none'}, "
            f"the volume says {disk.volume.user['uuid']}",
            disk.label,
        )


def _check_protection(vm: Vm, disk: Disk, action: str, problems: Problems) -> None:
    """Add a problem if the VM is indestructible: this protects its disks, too. RFD 154 leaves it open."""
    if vm.config.indestructible and not disk.detached:
        problems.add("Indestructible", f"the VM is indestructible, so none of its disks can be {action}", disk.label)
    particulars = vm.config.proxmox
    if action == "removed" and particulars.get("protection") and not disk.detached:
        text = "the VM is protected, so Proxmox VE removes none of its disks"
        way = f"qm set {particulars['vmid']} --protection 0 ends that"
        problems.add("Indestructible", f"{text}; {way}", disk.label)


def _check_leaver(config: VmConfig, leaver: Leaver, problems: Problems) -> None:
    disk = leaver.disk
    if disk.boot and disk.path and not leaver.replaced:
        problems.add("InvalidArgument", "the boot disk cannot be removed", disk.label)
    if config.boot_unknown and disk.path:
        problems.add("NotSupported", f"cannot be removed: {config.boot_unknown}", disk.label)
    _check_removal(leaver, problems)


def _check_removal(leaver: Leaver, problems: Problems) -> None:
    disk = leaver.disk
    _check_ownership(disk, "destroy" if leaver.destroy else "detach", problems)
    if leaver.destroy:
        check_destruction(leaver, problems)


def check_destruction(leaver: Leaver, problems: Problems) -> None:
    """Refuse to destroy a disk with replicas, clones, snapshots on hold or snapshots that must stay."""
    disk = leaver.disk
    _check_replicas(disk, "destroyed or replaced", problems)
    clones = [c for snapshot in disk.snapshots for c in snapshot.clones if c not in leaver.clones]
    if clones:
        problems.add("HasClones", f"cannot be destroyed: it has clones ({', '.join(clones)})", disk.label)
    on_hold = [snapshot.name for snapshot in disk.snapshots if snapshot.userrefs]
    if on_hold and not leaver.release_holds:
        problems.add("Held", f"cannot be destroyed: snapshots are held ({', '.join(on_hold)})", disk.label)
    if disk.snapshots and not leaver.snapshots:
        problems.add(
            "HasSnapshots",
            f"has {count(len(disk.snapshots), 'snapshot that holds', 'snapshots that hold')} "
            f"{render_bytes(disk.volume.pinned)} and would be destroyed with it; destroy_snapshots: true allows it",
            disk.label,
        )


def _check_writers(resolved: Resolved, host: Host, problems: Problems) -> None:
    vm = resolved.vm
    claimed = [target.disk for target in resolved.targets if target.disk is not None]
    claimed += [leaver.disk for leaver in resolved.leavers]
    attached = {disk.volume.name for disk in vm.disks}
    # The VM may use these in another way. A run that was cut off may have left them in its own list: that counts not.
    loose = {disk.volume.name for disk in claimed} - attached
    for name in sorted({*attached, *loose, *(disk.volume.name for disk in vm.orphans)}):
        users = host.usage.of(name)
        others = labels(u for u in users if u.config.uuid != vm.config.uuid or (u.use.how and name in loose))
        if others:
            problems.add("InUse", also_attached(name, others))


def _check_renamed(resolved: Resolved, problems: Problems) -> None:
    """Refuse to touch a volume that is configured under another name."""
    claimed = [target.disk for target in resolved.targets] + [leaver.disk for leaver in resolved.leavers]
    for disk in (d for d in resolved.vm.orphans if any(d is other for other in claimed)):
        why = why_renamed(resolved.vm, disk)
        if why:
            problems.add("InUse", why, disk.label)


def _check_twins(resolved: Resolved, problems: Problems) -> None:
    """Refuse to attach a disk whose serial an attached one has."""
    for disk, label in ((target.disk, target.label) for target in resolved.targets if target.disk is not None):
        twin = _twin_of(resolved.vm, disk)
        if twin is not None:
            command = f"qm set {resolved.vm.config.proxmox['vmid']} --{twin.key}"
            way = f"Give the attached one another serial ({command}, with the rest of its line), or, while the VM is"
            problems.add("Ambiguous", f"{_either(disk, twin)}. {way} stopped, another name by its pci_slot", label)


def why_not_destroyed(vm: Vm, name: t.Optional[str], disk: Disk) -> str:
    """Return why an entry with a name does not destroy a disk: another has its serial, or its name. "" if it does."""
    if not name or not vm.config.prefixes:
        return ""
    twin, way = _twin_of(vm, disk), f"say - {{uuid: {disk.uuid}, state: absent}}, without a name"
    if twin is not None:
        return f"{_either(disk, twin)}. If that is to be destroyed, {way}"
    others = [one for one in (*vm.disks, *vm.orphans, *vm.detached) if one.name == name and one.uuid != disk.uuid]
    names = ", ".join(one.volume.name for one in others if not former_vm(vm, one))
    return f"{names} is called so, too. If {disk.volume.name} is to be destroyed, {way}" if names else ""


def _either(disk: Disk, twin: DiskConfig) -> str:
    shown = f"{twin.key} ({twin.volume or visible(twin.path)})"
    text = f"{disk.volume.name} is not attached, and {shown} has its serial {serial_of(disk.uuid)}"
    return f"{text}, as a restored disk has: either may be meant"


def _twin_of(vm: Vm, disk: Disk) -> t.Optional[DiskConfig]:
    """Return the attached disk that has the serial of one that is not attached, as after a restore, None without one.
    It may be in any storage. Nobody knows which of the two is meant by a name.
    """
    config = vm.config
    if not config.prefixes or disk.path or not disk.uuid:
        return None
    volumes = {entry.volume: entry for entry in config.disks if entry.volume}
    named = {one.uuid: volumes[one.volume.name] for one in vm.disks if one.volume.name in volumes}
    # One that got its uuid while the VM ran gets its serial with this change.
    serials = {serial_of(uuid): entry for uuid, entry in named.items() if uuid and not is_serial(entry.serial)}
    beyond = [one for one in (*config.disks, *config.unreadable) if one.serial]
    serials.update({entry.serial: entry for entry in (*beyond, *volumes.values())})
    return serials.get(serial_of(disk.uuid))


def _check_moves(resolved: Resolved, host: Host, problems: Problems) -> None:
    """Check renamed volumes: same pool, below their encryption root, and the new name must be free."""
    config = resolved.vm.config
    for leaver in resolved.leavers:
        if leaver.moves or (config.prefixes and not leaver.disk.detached):
            pool = leaver.disk.volume.pool
            above = host.datasets.get(container(pool)) or host.datasets[pool]
            _check_encryption(leaver.disk, above, "detached", problems, _way_out_of_vm(config, leaver))
            place = detached_place(leaver.disk)
            if place in host.datasets:
                problems.add("AlreadyExists", f"cannot be moved out: {place} already exists", leaver.disk.label)
    for target in resolved.targets:
        if target.disk is not None and target.disk.detached:
            pool = target.disk.volume.pool
            prefix = arriving_prefix(config, pool)
            if pool != config.pool and not prefix:
                place = f"the VM is in pool {config.pool}"
                if config.prefixes:
                    place = f"no active zfspool of this node, in which the VM could have it, is in {pool}"
                problems.add("InvalidArgument", f"is in pool {pool}, but {place}", target.label)
            parent = host.datasets.get(prefix.rpartition("/")[0], resolved.vm.root) if prefix else resolved.vm.root
            _check_encryption(target.disk, parent, "attached", problems)


def check_type(target: Target, host: Host, pool: str, capabilities: Capabilities, problems: Problems) -> None:
    """Check that the hypervisor supports the disk's type, and that a conversion by copy is possible."""
    disk = target.disk
    if target.type not in capabilities.types:
        problems.add(
            "NotSupported",
            f"type {target.type} is not supported: with {capabilities.name}, a disk can only be "
            f"{' or '.join(capabilities.types)}",
            target.label,
        )
    if disk is None or not crosses(target.type, disk):
        return
    _check_removal(Leaver(disk, True, target.spec.destroy_snapshots), problems)
    spare = detached_place(disk)
    taken = {spare, copy_place(spare)} & {*host.datasets} - {disk.volume.name, disk.partial_copy}
    for name in sorted(taken):
        problems.add("AlreadyExists", f"cannot be converted: {name} already exists", target.label)
    if not disk.detached:
        _check_encryption(disk, host.datasets.get(container(pool)) or host.datasets[pool], "converted", problems)


def _way_out_of_vm(config: VmConfig, leaver: Leaver) -> str:
    """Return how a disk leaves a VM of Proxmox VE that cannot be moved away, as the end of a text."""
    if not (config.prefixes and leaver.disk.path):
        return ""
    command = f"qm disk unlink {config.proxmox['vmid']} --idlist {leaver.disk.key}"
    if leaver.destroy:
        return f"; {command} --force 1 destroys it"
    return f"; {command} takes it out of the VM, and leaves it where it is as unused"


def _check_encryption(disk: Disk, destination: Dataset, verb: str, problems: Problems, way: str = "") -> None:
    if leaves_its_root(disk.volume, destination):
        problems.add(
            "EncryptionRoot",
            f"cannot be {verb}: its encryption root is {disk.volume.encryptionroot}, that of {destination.name} is "
            f"{destination.encryptionroot or 'none'}{way}",
            disk.label,
        )


def _check_names(resolved: Resolved, problems: Problems) -> None:
    """Check that names are unique among the VM's attached disks and those detached from it."""
    claimed = {id(g.disk) for g in resolved.targets if g.disk is not None}
    leaving = {id(leaver.disk): leaver for leaver in resolved.leavers}
    others: t.Dict[str, str] = {}
    for disk in resolved.vm.disks + resolved.vm.detached:
        leaver = leaving.get(id(disk))
        gone = leaver is not None and (leaver.destroy or leaver.nameless)
        if disk.name and id(disk) not in claimed and not gone:
            others[disk.name] = disk.volume.name
    for target in resolved.targets:
        name = target.spec.name or (target.disk.name if target.disk is not None else "")
        if name in others:
            problems.add("NameConflict", f"the name {name} is already used by {others[name]}", target.label)
        elif name:
            others[name] = target.disk.volume.name if target.disk is not None else "the new disk"


def _check_boot(resolved: Resolved, problems: Problems) -> None:
    """Check the boot disk: a VM has at most one, keeps it, and the hypervisor must be able to boot from it."""
    vm = resolved.vm
    boots = [disk.label for disk in vm.disks if disk.boot and _stays_unmanaged(resolved, disk)]
    for target in resolved.targets:
        now = _boots_now(resolved, target)
        if target.spec.boot or (target.spec.boot is None and now):
            boots.append(target.label)
        if target.spec.boot:
            _check_boot_disk(resolved, target, now, problems)
        if target.spec.boot and not (now or vm.config.identity_in_zfs):
            # No task declares a CD-ROM, and vmadm starts no VM in which a second device boots.
            alone = [one for one in vm.config.disks if one.media != "disk" or one.left_out or one.path in vm.strays]
            boots += [entry.path for entry in alone if entry.boot]
    if len(boots) > 1:
        problems.add("InvalidArgument", f"the VM would have several boot disks: {', '.join(boots)}")
    leaving = {id(leaver.disk) for leaver in resolved.leavers}
    if not boots and any(d.boot for d in vm.disks) and not any(d.boot and id(d) in leaving for d in vm.disks):
        problems.add("InvalidArgument", "the VM would have no boot disk")


def _check_last(resolved: Resolved, problems: Problems) -> None:
    """Refuse to take the last disk from a VM without a dataset of its own: it would have no place for another one."""
    going = [leaver.disk for leaver in resolved.leavers if leaver.disk.path]
    stays = any(target.stays for target in resolved.targets)
    if resolved.vm.config.prefixes and len(going) == len(resolved.vm.disks) and not stays:
        text = "is the last disk of the VM that can be managed, and without one the VM cannot be; add another before"
        for disk in going:
            problems.add("NotSupported", text, disk.label)


def _check_boot_disk(resolved: Resolved, target: Target, now: bool, problems: Problems) -> None:
    """Check that the hypervisor can boot from a disk that is declared to boot. now: it is the boot disk already."""
    config = resolved.vm.config
    if target.stays and not now and config.boot_types:
        problems.add(
            "NotSupported",
            f"cannot become the boot disk: the VM boots by type of device ({config.boot_types}); "
            "give its devices a boot order",
            target.label,
        )
    elif target.replaces_another and config.identity_in_zfs:
        kind = "Proxmox VE" if config.prefixes else "libvirt"
        problems.add(
            "NotSupported",
            f"the boot disk cannot be replaced with {kind}, where another disk would be the boot disk for a moment; "
            "create the VM anew",
            target.label,
        )
    elif not target.stays and config.identity_in_zfs and _loses_boot(resolved):
        problems.add(
            "NotSupported",
            "cannot be added and become the boot disk in one task; add it first, then make it the boot disk",
            target.label,
        )


def _replaced_for_now(resolved: Resolved) -> bool:
    """Whether another disk is the boot disk only while the data of the real boot disk is copied."""
    returns = any(g.disk is not None and g.disk.boot and in_conversion(resolved.vm, g.disk) for g in resolved.targets)
    return returns and resolved.vm.config.first_boots


def _stays_unmanaged(resolved: Resolved, disk: Disk) -> bool:
    """Whether a boot disk that no entry means stays the boot disk."""
    named = [g.disk for g in resolved.targets] + [leaver.disk for leaver in resolved.leavers]
    return not _replaced_for_now(resolved) and not any(disk is other for other in named)


def _boots_now(resolved: Resolved, target: Target) -> bool:
    """Whether the target's disk is the boot disk, or was the boot disk until it was detached to be copied."""
    disk = target.disk
    if disk is None or not disk.boot:
        return False
    return not _replaced_for_now(resolved) if target.stays else in_conversion(resolved.vm, disk)


def _loses_boot(resolved: Resolved) -> bool:
    """Whether an entry declares that a disk stays and is no longer the boot disk."""
    return any(g.stays and g.disk is not None and g.disk.boot and g.spec.boot is False for g in resolved.targets)


def _check_pci_functions(resolved: Resolved, problems: Problems) -> None:
    """Refuse a change that hides a disk from guests because nothing is at function 0 of its device then, or one that
    gives a disk the slot of another device.
    """
    pci, (before, after) = resolved.vm.config.pci, slots_after(resolved)
    for label, place, other in slots.clashes(((label, slot) for slot, label in after.items()), pci):
        if resolved.new or slots.parse_slot(place) not in before:
            problems.add("InvalidArgument", f'pci_slot "{place}": {other} has it', label)
    for slot in sorted(slots.unseen(after, pci) - slots.unseen(before, pci)):
        text = 'pci_slot "%s": nothing is at %s then, and without it no guest finds this disk'
        places = (slots.render_slot(slot), slots.render_slot(slot._replace(function=0)))
        problems.add("InvalidArgument", text % places, after[slot])


def _check_flexible(resolved: Resolved, problems: Problems) -> None:
    if resolved.flexible is not None:
        return
    for target in resolved.targets:
        verb = ""
        if target.spec.remaining:
            verb = "size=remaining"
        elif resolved.vm.config.prefixes:  # its disks are limited by the pool alone
            continue
        elif not target.stays and not (resolved.new and target.disk is None):
            verb = "adding a disk"
        elif target.disk is not None and target.bytes > target.disk.size:
            verb = "growing a disk"
        if verb:
            problems.add(
                "VmWithoutFlexibleDiskSize",
                f"{verb} needs flexible_disk_size, and this VM has none; declare it to convert the VM",
                target.label,
            )


def _check_space(resolved: Resolved, host: Host, problems: Problems) -> None:
    """Check that everything that the VM holds in the end fits into flexible_disk_size, exactly.

    If snapshots already hold more, every change that concerns space is refused. A task without such a change is not.
    """
    if resolved.flexible is None:
        return
    need = staying_bytes(resolved)
    missing = need - resolved.flexible * MIB
    if missing <= _overdrawn(resolved.vm) or _at_rest(resolved, host.geometry[resolved.vm.config.pool]):
        return
    hidden = resolved.vm.hidden_mib
    declared = (resolved.flexible - hidden) * MIB
    figures = "%s is %s too small: disks and snapshots need %s" % render_apart(declared, missing, declared + missing)
    growing = [_demand(g) for g in resolved.targets if g.disk is None or g.disk.detached or g.bytes > g.disk.size]
    wanted = f" (wanted: {', '.join(growing)})" if growing else ""
    problems.add(
        "InsufficientSpace",
        f"flexible_disk_size {figures}{wanted}; the smallest that fits is {render_exact(-(-need // MIB) - hidden)}",
        growing[0].split(" ")[0] if len(growing) == 1 else "",
    )


def _check_other_pools(resolved: Resolved, host: Host, problems: Problems) -> None:
    """Refuse to resize a thick disk in a pool that computes reservations otherwise than the pool of the VM."""
    pool = resolved.vm.config.pool
    for target in resolved.targets:
        volume = target.disk.volume if target.disk is not None else resolved.vm.root
        resized = target.disk is not None and target.bytes != target.disk.size and target.type == THICK
        if resized and host.geometry.get(volume.pool, host.geometry[pool]) != host.geometry[pool]:
            text = f"cannot be resized: pool {volume.pool} is built otherwise than pool {pool}, which the VM boots from"
            problems.add("NotSupported", text, target.label)


def _check_reservation(resolved: Resolved, geometry: PoolGeometry, problems: Problems) -> None:
    """Check that an inflexible VM has room for a reservation. Its quota does not count snapshots, so it may lack it."""
    growing = [g for g in resolved.targets if g.disk is not None and g.stays and _converts(g) and g.type == THICK]
    if resolved.flexible is not None or not growing:
        return
    volumes = [t.cast(Disk, g.disk).volume for g in growing]
    need = sum(predict.resized(v, v.volsize, geometry).used - v.used for v in volumes)
    room = max(resolved.vm.root.quota, space.expected_quota(resolved.vm, geometry)) - resolved.vm.root.used
    if need > room:
        figures = render_apart(need, max(0, room))
        problems.add(
            "InsufficientSpace",
            "type thick needs %s more, but the VM's quota has only %s left" % figures,
            ", ".join(g.label for g in growing),
        )


def _converts(target: Target) -> bool:
    return target.disk is not None and target.spec.type not in (None, target.disk.type)


def _at_rest(resolved: Resolved, geometry: PoolGeometry) -> bool:
    """Whether the VM follows the quota law, and the task changes no disk, size, flexible_disk_size or quota."""
    vm = resolved.vm
    asked = (resolved.flexible, resolved.quota) != (vm.config.flexible_disk_size, vm.root.refquota)
    resized = any(not g.stays or g.disk is None or g.bytes != g.disk.size or _converts(g) for g in resolved.targets)
    drifted = not vm.config.prefixes and bool(space.drift_cause(vm, geometry))
    return not (asked or resized or resolved.leavers or drifted)


def _overdrawn(vm: Vm) -> int:
    """Return the bytes, at most 1 MiB, that the VM lacks already, as by a snapshot. The plan may lack as much."""
    room = space.allocatable(vm)
    return 0 if room is None else min(MIB, max(0, -room))


def _demand(target: Target) -> str:
    if target.disk is None:
        return f"{target.label} {render_mib(target.size)} new"
    return f"{target.label} {render_change(target.disk.size, target.bytes)}"


def _check_quota(resolved: Resolved, capabilities: Capabilities, problems: Problems) -> None:
    root = resolved.vm.root
    if resolved.quota == root.refquota:
        return
    if resolved.vm.config.prefixes:
        text = "the VM has no dataset of its own, so there is nothing that a quota could be set for"
        problems.add("NotSupported", text)
        return
    check_quota_unit(resolved.quota, capabilities, problems)
    used = root.usedbydataset
    if resolved.quota < used:
        problems.add(
            "InUse",
            "quota %s is below the %s that %s holds" % (*render_apart(resolved.quota, used), root.name),
        )


def check_quota_unit(quota: int, capabilities: Capabilities, problems: Problems) -> None:
    """Refuse a quota (bytes) that is not a multiple of the hypervisor's unit."""
    unit = capabilities.quota_unit
    if quota % unit or quota < unit:
        problems.add(
            "InvalidArgument",
            f"quota {render_apart(quota, unit)[0]} is not valid: {capabilities.name} takes only "
            f"multiples of {render_bytes(unit)}",
        )
