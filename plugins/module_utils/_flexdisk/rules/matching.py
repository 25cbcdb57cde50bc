# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Match declared disks with existing ones: by uuid, name, slot or boot, and by size where nothing else can be meant.

The order of these rules matters. A disk with a name is never matched with an entry of another name, and the boot disk
never with an entry without boot: true. Where several matches are possible, the user has to choose.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..model.desired import DiskDeclaration
from ..model.errors import Problems
from ..model.sizes import MIB, render_apart, render_exact, render_mib
from ..model.vm import Disk, Vm
from . import slots
from .differences import birth_differences
from .instance_group_matching import match_disks
from .naming import names_volume
from .released_identity import has_any_identity
from .unmanaged import former_vm, of_former_vm

# An entry, the disks that it clearly means, and what they have in common with it.
_Meant = t.Tuple[DiskDeclaration, t.List[Disk], str]


@dataclass
class Match:
    """Which entries and disks belong together."""

    # Entries, each with its disk.
    pairs: t.List[t.Tuple[DiskDeclaration, Disk]] = field(default_factory=list)
    # Entries without a disk.
    creates: t.List[DiskDeclaration] = field(default_factory=list)
    # Attached data disks without an entry.
    unlisted: t.List[Disk] = field(default_factory=list)
    # Volumes with an identity of ours that neither an entry nor the VM's configuration knows.
    orphans: t.List[Disk] = field(default_factory=list)
    # Warnings about disks that entries for new disks may mean. With matching=order, about data that is lost.
    warnings: t.List[str] = field(default_factory=list)


class _Matcher:
    def __init__(
        self, vm: Vm, specs: t.Sequence[DiskDeclaration], of_other_vms: t.Sequence[Disk], problems: Problems
    ) -> None:
        self.problems = problems
        self.match = Match()
        self.open_specs = list(specs)
        self.attached = [d for d in vm.disks if not d.hidden]
        self.detached = list(vm.detached)
        orphans = [d for d in vm.orphans if has_any_identity(d) and d.uuid]
        self.orphans = [d for d in orphans if not former_vm(vm, d)]
        # Orphans of other VMs. Only their uuid matches them.
        self.foreign = [d for d in orphans if former_vm(vm, d)]
        self.vm = vm
        self.of_other_vms = list(of_other_vms)

    def _claim(self, spec: DiskDeclaration, disk: Disk) -> None:
        self.match.pairs.append((spec, disk))
        self.open_specs = [s for s in self.open_specs if s is not spec]
        for pile in (self.attached, self.detached, self.orphans, self.foreign, self.of_other_vms):
            pile[:] = [d for d in pile if d is not disk]

    def _one_of(self, spec: DiskDeclaration, candidates: t.Sequence[Disk], attributeon: str) -> None:
        if len(candidates) > 1:
            self.problems.add(
                "Ambiguous",
                f"{spec.label} is the {attributeon} of {len(candidates)} disks: "
                f"{', '.join(f'{d.uuid} ({d.volume.name})' for d in candidates)}",
                spec.label,
            )
            self.open_specs = [s for s in self.open_specs if s is not spec]
        elif candidates:
            self._claim(spec, candidates[0])

    def by_uuid(self) -> None:
        for spec in [s for s in self.open_specs if s.uuid]:
            everywhere = self.attached + self.detached + self.orphans + self.foreign + self.of_other_vms
            self._one_of(spec, [d for d in everywhere if d.uuid == spec.uuid], "uuid")
            if spec in self.open_specs:
                self.open_specs = [s for s in self.open_specs if s is not spec]
                if spec.present:
                    self.problems.add(
                        "ResourceNotFound",
                        f"no disk of this VM and no detached disk has the uuid {spec.uuid}",
                        spec.label,
                    )

    def by_name(self) -> None:
        """Match by names."""
        for spec in [s for s in self.open_specs if s.name]:
            for pile in (self.attached, self.detached, self.orphans):
                candidates = [d for d in pile if d.name == spec.name]
                if candidates:
                    self._one_of(spec, candidates, "name")
                    break
            else:
                self._refuse_foreign(spec)

    def _refuse_foreign(self, spec: DiskDeclaration) -> None:
        """Refuse an entry whose name only orphans of other VMs have: it may mean one of them, or a new disk."""
        foreign = [d for d in self.foreign if d.name == spec.name] if spec.present else []
        for disk in foreign:
            text = f"{of_former_vm(self.vm, disk)}; for a new disk, take its name off it first"
            text += f" (zfs inherit flexdisk:name {disk.volume.name}), or destroy it"
            self.problems.add("Ambiguous", text, spec.label)
        self._withdraw([spec] if foreign else [], [])

    def _unnamed(self) -> t.List[Disk]:
        return [d for d in self.attached if not d.name]

    def by_slot_or_boot(self) -> None:
        """Match by slot or boot among disks without a name."""
        for spec in [s for s in self.open_specs if s.present and s.pci_slot]:
            wanted = slots.normalise(spec.pci_slot or "")
            there = [d for d in self._unnamed() if d.pci_slot == wanted]
            if there and _other_size(spec, there[0]):
                self.problems.add("Ambiguous", _taken_slot_text(spec, there[0]), spec.label)
                self._withdraw([spec], there)
            else:
                self._first(spec, there)
        for spec in [s for s in self.open_specs if s.present and s.boot]:
            self._first(spec, [d for d in self._unnamed() if d.boot])

    def _first(self, spec: DiskDeclaration, candidates: t.Sequence[Disk]) -> None:
        if candidates:
            self._claim(spec, candidates[0])

    def by_other_name(self, unlisted: str, by_size: bool = True) -> None:
        """Refuse entries whose name no disk has, and that clearly mean a disk with another name: by slot or boot, with
        by_size also by size.

        Otherwise they would fail with errors that only follow from this: two boot disks, a slot that is taken, a new
        disk without a size. If the disk may leave the VM, a new disk can have its slot and its size.
        """
        named = [d for d in self.attached if d.name]
        meant = [m for m in (_same_boot_or_slot(spec, named, unlisted) for spec in self._fresh()) if m is not None]
        if unlisted == "refuse" and by_size:
            meant += self._by_size_or_none([d for d in named if not d.boot], meant)
        for spec, there, reason in meant:
            self.problems.add("InvalidArgument", _renaming_text(spec, there, reason), spec.label)
        self._withdraw([spec for spec, _d, _w in meant], [d for _s, there, _w in meant for d in there])

    def _by_size_or_none(self, data: t.Sequence[Disk], meant: t.Sequence[_Meant]) -> t.List[_Meant]:
        """Pair the entries and data disks that are not in `meant`: those of the same size, then entries without a size
        with the disks that are left.
        """
        result: t.List[_Meant] = []
        for fits, reason in ((_fits, "has its size"), (_open_size, "is not listed")):
            done = [*meant, *result]
            free = [d for d in data if not any(d is other for _s, there, _w in done for other in there)]
            for spec in (s for s in self._fresh() if not s.boot and not any(s is other for other, _t, _w in done)):
                there = [d for d in free if fits(spec, d)]
                if there:
                    result.append((spec, there, reason))
        return result

    def _fresh(self) -> t.List[DiskDeclaration]:
        """Return the entries that should be present and match no disk yet."""
        return [s for s in self.open_specs if s.present]

    def by_size(self, unlisted: str) -> None:
        """Match by size alone if nothing else can be meant.

        Otherwise the entry is a new disk, with a warning if an unnamed disk has its size.
        """
        unnamed, specs = self._unnamed(), self._fresh()
        disks = [d for d in unnamed if not d.boot]
        if unlisted == "refuse" and disks and specs:
            self._pair_by_size(specs, disks, [d for d in unnamed if d.boot])
            return
        for spec in specs:
            self._warn_of_unnamed(spec, [d for d in unnamed if _fits(spec, d)], unlisted)
            if unlisted == "destroy":
                self._warn_of_replaced(spec)

    def _pair_by_size(
        self, specs: t.Sequence[DiskDeclaration], disks: t.Sequence[Disk], boots: t.Sequence[Disk]
    ) -> None:
        """Match by size if all entries and unnamed data disks pair up in one way, without a boot disk or disks left."""
        boots = [d for d in boots if any(_fits(spec, d) for spec in specs)]
        options = [[k for k, disk in enumerate(disks) if _fits(spec, disk)] for spec in specs]
        solutions = _up_to_two_choices(options) if len(specs) == len(disks) and not boots else []
        if len(solutions) == 1:
            for spec, k in zip(specs, solutions[0]):
                self._claim(spec, disks[k])
            return
        if len(specs) == len(disks) == 1 and not boots and _other_size(specs[0], disks[0]):
            self.problems.add("Ambiguous", _other_size_text(specs[0], disks[0]), specs[0].label)
        else:
            why = "more than one assignment fits" if solutions else "their sizes do not tell which is which"
            self.problems.add("Ambiguous", _choice_text(specs, [*boots, *disks], why))
        self._withdraw(specs, disks)

    def _warn_of_unnamed(self, spec: DiskDeclaration, alike: t.Sequence[Disk], unlisted: str) -> None:
        """Warn that unnamed disks have the size of a new disk (alike). If one would be destroyed, it is a problem."""
        doomed = [d for d in alike if not d.boot and d.adopted and not d.preserve]
        if unlisted == "destroy" and doomed:
            why = "unlisted=destroy would destroy a disk of the same size"
            self.problems.add("Ambiguous", _choice_text([spec], doomed, why), spec.label)
            self._withdraw([spec], doomed)
        elif alike:
            self.match.warnings.append(_same_size_text(spec, alike))

    def _warn_of_replaced(self, spec: DiskDeclaration) -> None:
        """Warn if a disk of the same size and another name is destroyed: the new disk may be meant to be that one."""
        lost = [d for d in self.attached if d.name and not d.boot and not d.preserve and _fits(spec, d)]
        if lost:
            self.match.warnings.append(_replaced_text(spec, lost))

    def _withdraw(self, specs: t.Sequence[DiskDeclaration], disks: t.Sequence[Disk]) -> None:
        """Remove entries and disks with a problem from the matching."""
        self.open_specs = [s for s in self.open_specs if not any(s is other for other in specs)]
        self.attached = [d for d in self.attached if not any(d is other for other in disks)]

    def by_first_fit(self, unlisted: str) -> None:
        """Match disks without a name as instance groups do (matching=order). unlisted: what happens to the others.

        An entry with boot: true has matched the boot disk already, or wants a new one: it never means a data disk.
        """
        for spec in [s for s in self.open_specs if s.present and s.remaining and not s.boot]:
            self._first(spec, [d for d in self._unnamed() if d.remaining and not d.boot])
        specs = [s for s in self.open_specs if s.present and not (s.remaining or s.boot)]
        disks = [d for d in self._unnamed() if not d.boot]
        images = {s.image for s in specs}
        result = match_disks([_present(d, images, unlisted) for d in disks], [_desired(s) for s in specs], "order")
        for current, desired in result["mapping"]:
            self._claim(specs[desired], disks[current])
        for warning in result["warnings"]:
            if warning["code"] != "ORPHAN_LEFT" or unlisted in ("detach", "destroy"):
                self.match.warnings.append(_warning_text(warning, disks, specs))

    def warn_of_replaced(self) -> None:
        """Call _warn_of_replaced() for each new disk."""
        for spec in self._fresh():
            self._warn_of_replaced(spec)

    def finish(self) -> Match:
        gone = [s for s in self.open_specs if not s.present]
        open_disks = [d for d in self.attached if not d.adopted]
        there = [(s, d) for s in gone for d in open_disks if names_volume(s.name, d.name, d.volume.name)]
        self.match.warnings += [_nothing_destroyed_text(spec, disk) for spec, disk in there]
        self.match.creates = [s for s in self.open_specs if s.present]
        self.match.unlisted = [d for d in self.attached if not d.boot]
        self.match.orphans = self.orphans
        return self.match


def match(
    vm: Vm,
    specs: t.Sequence[DiskDeclaration],
    of_other_vms: t.Sequence[Disk],
    matching: str,
    problems: Problems,
    unlisted: str = "refuse",
) -> Match:
    """Match entries with disks. of_other_vms: detached disks that other VMs had; only their uuid matches them.

    Problems are added to problems. Entries and disks with a problem are in no part of the result.
    """
    matcher = _Matcher(vm, specs, of_other_vms, problems)
    matcher.by_uuid()
    matcher.by_name()
    matcher.by_slot_or_boot()
    if matching == "order":
        matcher.by_other_name(unlisted, by_size=False)
        matcher.by_first_fit(unlisted)
        matcher.by_other_name(unlisted)
        if unlisted == "destroy":
            matcher.warn_of_replaced()
    else:
        matcher.by_other_name(unlisted)
        matcher.by_size(unlisted)
    return matcher.finish()


def _same_boot_or_slot(spec: DiskDeclaration, named: t.Sequence[Disk], unlisted: str) -> t.Optional[_Meant]:
    """Return the boot disk, or the disk in the entry's slot, if it has another name; None if there is none."""
    there = [d for d in named if spec.boot and d.boot]
    if there:
        return spec, there, "is the boot disk"
    if spec.pci_slot and unlisted in ("refuse", "keep"):
        there = [d for d in named if d.pci_slot == slots.normalise(spec.pci_slot)]
    if not there:
        return None
    return spec, there, f"has pci_slot {there[0].pci_slot} ({there[0].path})"


def _other_size(spec: DiskDeclaration, disk: Disk) -> bool:
    """Whether only a slot connects the entry with a disk without a name that has another size: the entry may mean a new
    disk.

    An entry without a name can only mean an existing disk, if that has an identity already.
    """
    if disk.name or spec.size is None or (spec.boot and disk.boot) or not (spec.name or not disk.adopted):
        return False
    return spec.size * MIB != disk.size


def _taken_slot_text(spec: DiskDeclaration, disk: Disk) -> str:
    """Return the message that an entry may mean a new disk or the one in its slot, with both ways to write it."""
    kind = "the boot disk" if disk.boot else "a disk"
    handle = f"uuid: {disk.uuid}" if disk.uuid else f'pci_slot: "{disk.pci_slot}", size: {render_mib(disk.size_mib)}'
    text = f"pci_slot {disk.pci_slot} has {kind} without a name ({disk.path}, {render_mib(disk.size_mib)}), and the"
    text += f" entry says {render_mib(spec.size or 0)}. If it means that disk, write - {{{handle}, name: "
    return (
        text + f"{spec.name or 'NAME'}{', boot: true' if disk.boot else ''}}}; if a new one, give it another pci_slot"
    )


def _fits(spec: DiskDeclaration, disk: Disk) -> bool:
    """Whether a disk has the declared size, and nothing that the entry rules out."""
    if (spec.boot and not disk.boot) or birth_differences(spec, disk):
        return False
    return spec.size == disk.size_mib and disk.size % MIB == 0


def _open_size(spec: DiskDeclaration, disk: Disk) -> bool:
    """Whether an entry without a size could mean the disk."""
    return spec.size is None and not birth_differences(spec, disk)


def _up_to_two_choices(options: t.Sequence[t.Sequence[int]]) -> t.List[t.List[int]]:
    """Return up to two ways to choose an option of each row, none twice, in polynomial time."""
    first = _choose(options)
    if first is None:
        return []
    for row, chosen in enumerate(first):
        others = [[k for k in ks if n != row or k != chosen] for n, ks in enumerate(options)]
        second = _choose(others)
        if second is not None:
            return [first, second]
    return [first]


def _choose(options: t.Sequence[t.Sequence[int]]) -> t.Optional[t.List[int]]:
    """Return one of each row's options, none twice, or None (augmenting paths)."""
    owner: t.Dict[int, int] = {}

    def place(row: int, tried: t.Set[int]) -> bool:
        for k in options[row]:
            if k not in tried:
                tried.add(k)
                if k not in owner or place(owner[k], tried):
                    owner[k] = row
                    return True
        return False

    if not all(place(row, set()) for row in range(len(options))):
        return None
    chosen = {row: k for k, row in owner.items()}
    return [chosen[row] for row in range(len(options))]


def _choice_text(specs: t.Sequence[DiskDeclaration], disks: t.Sequence[Disk], why: str) -> str:
    """Return the message that the user must choose, with entries to paste."""
    rest = "".join(f"; {s.label} keeps its size: remaining beside the uuid" for s in specs if s.remaining)
    return "%s could be any of the VM's unnamed disks: %s. Say which is which, once%s:\n%s" % (
        ", ".join(s.label for s in specs),
        why,
        rest,
        "\n".join(f"{_entry_to_paste(d, 'CHOOSE')}  # {render_mib(d.size_mib)}, {d.path}" for d in disks),
    )


def _other_size_text(spec: DiskDeclaration, disk: Disk) -> str:
    """Return the message that an entry has another size than the only disk it could mean, and the right entry."""
    exact = disk.size % MIB == 0
    is_now, declared = render_apart(disk.size, (spec.size or 0) * MIB)
    size = f", size: {render_exact(disk.size_mib).replace(' ', '')}" if exact else ""
    text = (
        f"no disk has this name. The only one that could be meant is {disk.path}: it has no name, and is {is_now}, not"
    )
    text += f" {declared}. If it is meant, give it the name first, as it is, and change its size afterwards:"
    return f"{text} {_entry_to_paste(disk, spec.label)[:-1]}{size}}}. If a new disk is meant, list that one, too"


def _nothing_destroyed_text(spec: DiskDeclaration, disk: Disk) -> str:
    """Return the warning that an absent disk has no name yet, and only reports show it under this name."""
    return (
        f"no disk is called {spec.name}, so none is destroyed; {disk.volume.name} has no name yet, and disk_adopt "
        "would give it one"
    )


def _same_size_text(spec: DiskDeclaration, disks: t.Sequence[Disk]) -> str:
    """Return the warning that an unnamed disk has the same size as a new one."""
    return "%s is a new disk, but %s the same size and no name; to use %s instead, write %s" % (
        spec.label,
        " and ".join(d.path + (" (the boot disk)" if d.boot else "") for d in disks)
        + (" has" if len(disks) == 1 else " have"),
        "it" if len(disks) == 1 else "one of them",
        " or ".join(_entry_to_paste(d, spec.label) for d in disks),
    )


def _replaced_text(spec: DiskDeclaration, disks: t.Sequence[Disk]) -> str:
    """Return the warning that an unlisted disk of the same size and another name is destroyed."""
    return (
        f"{spec.label} is a new disk, and unlisted=destroy destroys "
        f"{' and '.join(d.name for d in disks)} of the same size; to rename it and keep its "
        f"data, write {' or '.join(_entry_to_paste(d, spec.label) for d in disks)}"
    )


def _renaming_text(spec: DiskDeclaration, disks: t.Sequence[Disk], reason: str) -> str:
    """Return the message that an entry means a disk with another name."""
    parts = [f"{d.name} (uuid {d.uuid or 'unknown'}) {reason} and has another name" for d in disks]
    return (
        f"no disk has this name; {'; '.join(parts)}; to rename "
        f"{'it' if len(disks) == 1 else 'one of them'}, give its uuid: "
        f"{' or '.join(_entry_to_paste(d, spec.label) for d in disks)}"
    )


def _entry_to_paste(disk: Disk, name: str) -> str:
    """Return an entry to paste: with the uuid of a disk, or with its slot if it has no uuid yet."""
    handle = f"uuid: {disk.uuid}" if disk.uuid else f'pci_slot: "{disk.pci_slot}"'
    return f"- {{{handle}, name: {name}{', boot: true' if disk.boot else ''}}}"


_ANY_SIZE = 1 << 62


def _present(disk: Disk, images: t.Container[t.Optional[str]], unlisted: str) -> t.Dict[str, t.Any]:
    """Return a disk as input of the filter matching. images: those of entries; any other image counts as none."""
    return {
        "name": disk.name,
        "description": disk.user_properties.get("description", ""),
        "image": disk.image if disk.image in images else None,
        "size": max(1, disk.size_mib),
        "preserve": disk.preserve or unlisted != "destroy",
    }


def _desired(spec: DiskDeclaration) -> t.Dict[str, t.Any]:
    """Return an entry as input of the matching filter. An entry without a size fits any disk."""
    size = _ANY_SIZE if spec.size is None else spec.size
    return {
        "name": spec.name,
        "description": spec.user_properties.get("description"),
        "image": spec.image,
        "size": size,
    }


def _warning_text(warning: t.Mapping[str, t.Any], disks: t.Sequence[Disk], specs: t.Sequence[DiskDeclaration]) -> str:
    """Return a warning of the matching filter as text, with the labels of the disks."""
    pairs = warning.get("mapping") or warning.get("candidates") or ()
    names = [disks[i].label for i in warning.get("current", ())]
    names += [f"{disks[i].label} -> {specs[j].label}" for i, j in pairs]
    size = f"; {render_mib(warning['size'])}" if "size" in warning else ""
    return f"matching=order: {warning['message']}: {', '.join(names)}{size} ({warning['code']})"
