# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which VMs use a volume, from all that the hypervisor reports. All checks ask here."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.errors import Problems
from ..model.vm import SAVED, Disk, DiskConfig, Sharer, Use, Vm, VmConfig
from . import identity
from .power import MEMORY_LOST

_Places = t.Mapping[str, str]


class User(t.NamedTuple):
    """A VM that uses a volume, and how."""

    config: VmConfig
    use: Use

    @property
    def label(self) -> str:
        """The VM in messages, with how it uses the volume if not as a disk of its list."""
        return f"{self.config.label} {self.use.how}".rstrip()


class Usage:
    """The users of volumes on the host."""

    def __init__(self, configs: t.Iterable[VmConfig] = (), places: t.Optional[_Places] = None) -> None:
        """places has the datasets of disks that are files, by the UUIDs of the disks."""
        self._users: t.Dict[str, t.Dict[str, User]] = {}
        for config in configs:
            for volume, use in uses(config, places).items():
                self._users.setdefault(volume, {})[config.uuid] = User(config, use)

    def within(self, prefixes: t.Tuple[str, ...]) -> t.Set[str]:
        """Return the volumes with such names that any VM uses, whether they exist or not."""
        return {volume for volume in self._users if volume.startswith(prefixes)}

    def of(self, volume: str, besides: str = "") -> t.List[User]:
        """Return the VMs that use a volume, sorted by label. besides: the UUID of a VM that does not count."""
        users = (user for uuid, user in self._users.get(volume, {}).items() if uuid != besides)
        return sorted(users, key=lambda user: user.label)


def uses(config: VmConfig, places: t.Optional[_Places] = None) -> t.Dict[str, Use]:
    """Return how the VM uses each volume: as a disk of its list, or in any other way that the hypervisor reports.

    places: the datasets of files by the uuids of their disks. Without it, a disk that is a file is listed by its path.
    """
    places = places or {}
    result = {places.get(identity.disk_in(name), name): use for name, use in config.uses.items()}
    result.update({entry.volume: Use() for entry in config.disks if entry.volume})
    return result


def besides(config: VmConfig, volumes: t.Collection[str]) -> VmConfig:
    """Return the VM as if it used these volumes only as disks of its list, if at all."""
    return replace(config, uses={volume: use for volume, use in config.uses.items() if volume not in volumes})


def sharers(config: VmConfig, usage: Usage) -> t.Tuple[Sharer, ...]:
    """Return the other VMs that have disks of a VM, by volume."""
    volumes = sorted({entry.volume for entry in config.disks if entry.volume and entry.media == "disk"})
    users = [(volume, user) for volume in volumes for user in usage.of(volume, config.uuid)]
    return tuple(Sharer(volume, u.config.uuid, u.label, u.config.state) for volume, u in users)


def labels(users: t.Iterable[t.Union[User, Sharer]]) -> str:
    """Return the labels of the users in one line."""
    return ", ".join(user.label for user in users)


def also_attached(volume: str, others: str) -> str:
    """Return the message about a volume that other VMs have, too. others: these VMs in one line."""
    return f"{volume} is also attached to {others}; two writers would destroy its data"


def hidden_use(vm: VmConfig, used: Usage, orphans: t.Sequence[Disk]) -> t.Tuple[str, bool]:
    """Return why nothing of a VM may be changed, because it uses a volume in its dataset that its list of disks does
    not show; "" if there is none. The second value is True if this is only a doubt: the hypervisor names no volume, and
    it could be this one.

    Such a volume looks unused, but is the base of an overlay, a copy that is being made, or a disk under another path.
    """
    orphan_uses = [(orphan, _use_of(vm, used, orphan)) for orphan in orphans]
    hidden = [(orphan, use) for orphan, use in orphan_uses if use is not None and use.hides]
    if hidden:
        return _message(vm, used, *hidden[0]), False
    for orphan in orphans:
        for entry in vm.unclear if not orphan.adopted else ():
            return _message(vm, used, orphan, _perhaps(vm, entry)), True
    return "", False


def _message(vm: VmConfig, used: Usage, orphan: Disk, use: Use) -> str:
    name = orphan.volume.name
    text = f"it uses {name} {use.how}, so its list of disks does not tell what it has"
    others = used.of(name, vm.uuid)
    if use.writes and others:
        text += f"; {labels(others)} has {name}, too, and would see other data if the overlay was written back "
        return text + "into it: end that first"
    adopts = ", or let vm_disks with adopt: true do so" if any(e.named == name for e in vm.disks) else ""
    return f"{text}; {use.remedy}{adopts}" if use.remedy else text


def _use_of(vm: VmConfig, used: Usage, orphan: Disk) -> t.Optional[Use]:
    """Return how the VM uses a volume, or may, if it resembles a disk whose base the hypervisor does not report."""
    known = [user.use for user in used.of(orphan.volume.name) if user.config.uuid == vm.uuid]
    known += [_perhaps(vm, entry) for entry in vm.unclear if _may_be(entry, orphan)]
    return next(iter(known), None)


def _perhaps(vm: VmConfig, entry: DiskConfig) -> Use:
    how = f"perhaps, below {entry.path}, of which the stored configuration does not say what it lies on"
    start = "the playbook start_vm" if vm.failover else f"virsh start {vm.alias}"  # start_vm asks whether it may
    return Use(how, f"{start} shows it: a running VM names everything below its disks", True)


def as_it_ran(vm: Vm) -> Vm:
    """Return the VM as if its list of disks were complete. It is used only to start the VM, which changes no volume.

    If a run has stopped the VM, it was running before, and the hypervisor reported everything below its disks. If a
    task starts it and changes nothing else, the hypervisor reports that afterwards.
    """
    frozen = "" if vm.config.frozen == vm.overlaid else vm.config.frozen
    return replace(vm, overlaid="", doubted=False, config=replace(vm.config, frozen=frozen))


def _may_be(entry: DiskConfig, orphan: Disk) -> bool:
    """Whether a volume with an identity may be the disk of an entry: serial or slot agree, or neither can be compared.

    A serial that a user has chosen cannot be compared: a disk that was adopted while its VM ran has no other.
    """
    agreements: t.Dict[str, bool] = {}
    if orphan.uuid and identity.is_serial(entry.serial):
        agreements["serial"] = entry.serial == identity.serial_of(orphan.uuid)
    if orphan.pci_slot and entry.pci_slot:
        agreements["slot"] = entry.pci_slot == orphan.pci_slot
    return any(agreements.values()) or (orphan.adopted and not agreements)


def why_renamed(vm: Vm, orphan: Disk) -> str:
    """Return why an orphan is not touched: it is configured under another name, with its identity. "" if it is not.

    Attached again it would be in the VM twice, and a detach would leave its entry behind.
    """
    for entry in vm.config.disks:
        lost = entry.path in vm.missing or entry.path in vm.strays
        same = orphan.uuid and (entry.uuid == orphan.uuid or entry.serial == identity.serial_of(orphan.uuid))
        if lost and same and entry.volume not in ("", orphan.volume.user.get("from")):
            name = orphan.volume.name
            text = f"{name} has the uuid of {entry.path}, which does not exist: somebody has renamed it"
            return f"{text}; zfs rename {name} {entry.volume} brings it back"
    return ""


def power_problem(vm: Vm) -> str:
    """Return why a VM is neither running nor stopped, and what helps; "" if it is either."""
    config = vm.config
    if config.transition or config.state not in ("running", "stopped"):
        towards = f" (to become {config.transition})" if config.transition else ""
        if config.state == SAVED:
            text = "the VM is shut off with a saved image of its memory, and its next start would go on with that on"
            return f"{text} other disks; {_ways_out_of_saved(vm)}, {MEMORY_LOST}"
        return f"the VM is {config.state}{towards}; only running or stopped VMs can be changed"
    return ""


def _ways_out_of_saved(vm: Vm) -> str:
    """Return what ends that a VM is saved. If it may run on another host, it must not be started by hand."""
    name = vm.config.alias or vm.config.uuid
    if vm.config.frozen not in ("", vm.overlaid):
        return f"it does not start on this host, so give the image up (virsh managedsave-remove {vm.config.uuid})"
    if vm.config.failover and not vm.at_home:
        text = "the playbook start_host asks whether another host has taken it over, and may start it; or give the"
        return f"{text} image up (virsh managedsave-remove {vm.config.uuid})"
    return f"start it (virsh start {name}), or give the image up (virsh managedsave-remove {name})"


def check_whole(vm: Vm, problems: Problems) -> bool:
    """Whether the list of disks shows what the VM uses. If not, the task gets this one problem even if it would change
    nothing, because such a list cannot be compared with the declaration.
    """
    if vm.overlaid:
        problems.add("InUse", vm.overlaid)
    return not vm.overlaid
