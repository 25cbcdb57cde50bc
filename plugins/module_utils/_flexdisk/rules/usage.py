# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a volume is in use, and by whom: the one answer, from all that the hypervisor says of its VMs."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.errors import Problems
from ..model.vm import SAVED, Disk, DiskConfig, Sharer, Use, Vm, VmConfig
from . import identity

_Places = t.Mapping[str, str]


class User(t.NamedTuple):
    """A VM that uses a volume, and how."""

    config: VmConfig
    use: Use

    @property
    def label(self) -> str:
        """The VM in messages, with how it uses the volume if that is not as a disk of its list."""
        return f"{self.config.label} {self.use.how}".rstrip()


class Usage:
    """The users of volumes, on the host as it was read."""

    def __init__(self, configs: t.Iterable[VmConfig] = (), places: t.Optional[_Places] = None) -> None:
        """places has the datasets of disks that are files, by the UUIDs of the disks."""
        self._users: t.Dict[str, t.Dict[str, User]] = {}
        for config in configs:
            for volume, use in uses(config, places).items():
                self._users.setdefault(volume, {})[config.uuid] = User(config, use)

    def of(self, volume: str, besides: str = "") -> t.List[User]:
        """The VMs that use a volume, by their labels. besides: the UUID of one that does not count."""
        users = (user for uuid, user in self._users.get(volume, {}).items() if uuid != besides)
        return sorted(users, key=lambda user: user.label)


def uses(config: VmConfig, places: t.Optional[_Places] = None) -> t.Dict[str, Use]:
    """How the VM uses each volume: as a disk of its list, or in any other way that the hypervisor tells. A disk that is
    a file has its path, without places.
    """
    places = places or {}
    result = {places.get(identity.disk_in(name), name): use for name, use in config.uses.items()}
    result.update({entry.volume: Use() for entry in config.disks if entry.volume})
    return result


def sharers(config: VmConfig, usage: Usage) -> t.Tuple[Sharer, ...]:
    """The other VMs that have disks of a VM, by volume."""
    volumes = sorted({entry.volume for entry in config.disks if entry.volume and entry.media == "disk"})
    users = [(volume, user) for volume in volumes for user in usage.of(volume, config.uuid)]
    return tuple(Sharer(volume, u.config.uuid, u.label, u.config.state) for volume, u in users)


def labels(users: t.Iterable[t.Union[User, Sharer]]) -> str:
    """Users in one line."""
    return ", ".join(user.label for user in users)


def also_attached(volume: str, others: str) -> str:
    """The message about a volume that other VMs have, too. others: these VMs in one line."""
    return f"{volume} is also attached to {others}; two writers would destroy its data"


def hidden_use(vm: VmConfig, used: Usage, orphans: t.Sequence[Disk]) -> t.Tuple[str, bool]:
    """Return why nothing of a VM may be changed: its list of disks hides that it uses a volume in its dataset. "" if it
    hides none. The second value says whether this is only a doubt: no volume is named, and this one could be it.

    Such a volume looks like one that nobody needs, and is the base of an overlay, a copy under way, or a disk under
    another path.
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
    """How the VM uses a volume, or may do so: one that is like a disk of which the hypervisor does not tell what is
    below.
    """
    known = [user.use for user in used.of(orphan.volume.name) if user.config.uuid == vm.uuid]
    known += [_perhaps(vm, entry) for entry in vm.unclear if _may_be(entry, orphan)]
    return next(iter(known), None)


def _perhaps(vm: VmConfig, entry: DiskConfig) -> Use:
    how = f"perhaps, below {entry.path}, of which the stored configuration does not say what it lies on"
    return Use(how, f"virsh start {vm.alias} shows it: a running VM names everything below its disks", True)


def as_it_ran(vm: Vm) -> Vm:
    """The VM as if its list of disks told what it has: to start it again, which changes no volume.

    If a run has stopped it, it ran right before, and the hypervisor told all that its disks lay on. If a task starts it
    and changes nothing else, the hypervisor tells that afterwards.
    """
    frozen = "" if vm.config.frozen == vm.overlaid else vm.config.frozen
    return replace(vm, overlaid="", doubted=False, config=replace(vm.config, frozen=frozen))


def _may_be(entry: DiskConfig, orphan: Disk) -> bool:
    """Whether a volume with an identity may be that of an entry: by serial or slot, or because neither can be compared.

    A serial that a user has chosen, or none, tells nothing: a disk that was adopted while its VM ran has no other.
    """
    agreements: t.Dict[str, bool] = {}
    if orphan.uuid and identity.is_serial(entry.serial):
        agreements["serial"] = entry.serial == identity.serial_of(orphan.uuid)
    if orphan.pci_slot and entry.pci_slot:
        agreements["slot"] = entry.pci_slot == orphan.pci_slot
    return any(agreements.values()) or (orphan.adopted and not agreements)


def why_renamed(vm: Vm, orphan: Disk) -> str:
    """Why an orphan is left where it is: it is configured under another name, with its identity. "" if it is not.

    Attached once more it would be in the VM twice, and a detach would leave its entry behind.
    """
    for entry in vm.config.disks:
        lost = entry.path in vm.missing or entry.path in vm.strays
        same = orphan.uuid and (entry.uuid == orphan.uuid or entry.serial == identity.serial_of(orphan.uuid))
        if lost and same and entry.volume not in ("", orphan.volume.user.get("from")):
            name = orphan.volume.name
            text = f"{name} has the uuid of {entry.path}, which does not exist: somebody has renamed it"
            return f"{text}; zfs rename {name} {entry.volume} brings it back"
    return ""


def power_problem(config: VmConfig) -> str:
    """Return why a VM is neither running nor stopped, and what ends that; "" if it is either."""
    if config.transition or config.state not in ("running", "stopped"):
        towards = f" (to become {config.transition})" if config.transition else ""
        if config.state == SAVED:
            return (
                "the VM is shut off with a saved image of its memory, and its next start would go on with that on "
                f"other disks; start it (virsh start {config.alias}), or give the image up (virsh managedsave-remove "
                f"{config.alias})"
            )
        return f"the VM is {config.state}{towards}; only running or stopped VMs can be changed"
    return ""


def check_whole(vm: Vm, problems: Problems) -> bool:
    """Return whether the list of disks tells what the VM has. If not, that is the only problem, also of a task that
    would change nothing: nothing can be compared with such a list.
    """
    if vm.overlaid:
        problems.add("InUse", vm.overlaid)
    return not vm.overlaid
