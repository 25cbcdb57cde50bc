# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the properties that this collection writes on datasets are valid and set where they should be."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from ..model.vm import Vm
from . import identity, slots
from .failover import AT_HOME_PROPERTY, FAILOVER_PROPERTY, RIVALS_PROPERTY
from .findings import Finding, own_task
from .moves import STAYED_PROPERTY
from .property_text import LIMIT
from .replicas import SPACE
from .verify_facts import About, Facts, Findings, busy, listed, of_vm, vm_disks

_OF_GROUPS = ("generation", "member", "drained")
_OF_VMS = (
    identity.FLEXIBLE,
    "package",
    "indestructible",
    *_OF_GROUPS,
    SPACE,
    FAILOVER_PROPERTY,
    RIVALS_PROPERTY,
    AT_HOME_PROPERTY,
    STAYED_PROPERTY,
)
_OF_DISKS = tuple(name for name in identity.NAMES if name not in (*_OF_VMS, "from", "released"))


def properties_of_vm(facts: Facts, vm: Vm) -> Findings:
    """Yield findings about the properties of a VM and its disks."""
    seen = set()
    for disk in (*vm.disks, *vm.orphans):
        if disk.volume.name not in seen:
            yield from properties(About(facts, disk, vm))
            yield from marks(About(facts, disk, vm))
        seen.add(disk.volume.name)
    received = _received(vm.root, _OF_VMS)
    if received:
        names = ", ".join(received)
        message = f"{names} of {vm.root.name} came with zfs receive"
        why_not = busy(vm)
        repair = {"repair": own_task("received_property", vm.config.uuid), "args": {"facts": received}}
        more = {} if why_not else {**repair, "repairable": True}
        message += f"; not repaired here: {why_not}" if why_not else ""
        yield of_vm(vm, "received_property", message, **more)


def properties(about: About) -> Findings:
    """Yield findings about the properties of one disk."""
    volume = about.disk.volume
    # Facts that differ from the hypervisor are another finding.
    copied = ("uuid", "vm", "index", "slot", "boot") if about.disk.path and about.disk.adopted else ()
    wrong = [n for n in sorted(volume.user) if n not in (*copied, "name") and not _is_valid(n, volume.user[n])]
    name = volume.user.get("name", "")
    if wrong:
        text = ", ".join(f"{identity.PREFIX}{n} = {volume.user[n]!r:.60}" for n in wrong)
        yield about("invalid_property", f"{text}; the right value is not known here")
    if name and not identity.DISK_NAME.match(name):
        message = f"{name!r:.80} is not a valid name (letters, digits and ._-, at most 64)"
        yield about("invalid_name", f"{message}; the right name is not known here")
    elif identity.mistakable(name):
        message = f"name {name}: {identity.mistakable(name)}"
        yield about("invalid_name", f"{message}; rename the disk with its uuid and a new name in vm_disks")
    for n, value in sorted(volume.user.items()):
        length = len(value.encode("utf-8", "replace"))
        if length > LIMIT:
            message = f"{identity.PREFIX}{n} has {length} bytes, but the limit is {LIMIT}; shorten it by hand"
            yield about("property_too_long", message)
    received = _received(volume, _OF_DISKS)
    if received:
        names = ", ".join(identity.PREFIX + name for name in received)
        yield about.repairable("received_property", f"{names} came with zfs receive", args={"facts": received})


def _is_valid(name: str, value: str) -> bool:
    return (not value or bool(slots.valid(value))) if name == "slot" else identity.is_valid(name, value)


def _received(dataset: Dataset, names: t.Sequence[str]) -> t.Dict[str, str]:
    """Return properties that came with C(zfs receive) and that this collection would set to the same values."""
    values = {name: dataset.user.get(name, "") for name in names if name in dataset.received}
    return {name: value for name, value in values.items() if value and _is_valid(name, value)}


def marks(about: About) -> Findings:
    """Yield marks of an unfinished operation: the guard, and flexdisk:from."""
    disk, vm = about.disk, about.vm
    moved_from = disk.volume.user.get("from", "")
    if disk.guarded:
        yield about.repairable("guard", f"{disk.volume.name}@{identity.GUARD_SNAPSHOT} still exists")
    if not moved_from:
        return
    if vm is not None and disk.path:
        message = f"was moved here from {moved_from}, and is configured here"
        yield about.repairable("from_mark", message, args={"facts": {"from": ""}})
    elif vm is not None:
        message = f"was moved here from {moved_from}, where the VM is configured to have it"
        yield about("from_mark", message, repair=vm_disks(vm, adopt=True))
    elif moved_from == identity.CONVERTING:
        yield about("from_mark", "its conversion was interrupted; run the same task again to finish it")
    else:
        text = f"its creation was interrupted ({moved_from}) and it may be incomplete"
        yield about("from_mark", f"{text}; run the same task again to finish it")


def inherited_properties(facts: Facts) -> Findings:
    """Yield one finding for each dataset whose properties VMs or disks inherit."""
    host = facts.host
    above: t.Dict[str, t.Tuple[t.Set[str], t.List[str]]] = {}
    looked = [(disk.volume, _OF_DISKS) for vm in host.vms for disk in (*vm.disks, *vm.orphans)]
    looked += [(disk.volume, _OF_DISKS) for disk in host.detached] + [(vm.root, _OF_VMS) for vm in host.vms]
    for dataset, names in looked:
        for name, source in dataset.inherited.items():
            if name in names:
                inherited, below = above.setdefault(source, (set(), []))
                inherited.add(name)
                below += [dataset.name] if dataset.name not in below[-1:] else []
    for source, (inherited, below) in sorted(above.items()):
        names = tuple(sorted(inherited))
        full = ", ".join(identity.PREFIX + name for name in names)
        message = f"{full} of {source} shows through in {listed(sorted(below))}"
        task = own_task("inherited_property")
        yield Finding("inherited_property", message, volume=source, repair=task, repairable=True, args={"names": names})
