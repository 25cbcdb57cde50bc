# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the growth of a guest's disk: the steps by which its partition and file system take the new space."""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass, field, replace

from ..model.errors import FlexdiskError
from ..model.sizes import MIB, render_apart, render_bytes
from .growth import Growth, places
from .layers import Layer
from .observed import Content, Swap, fstab_swap
from .steps import Backup, CopySwapHeader, Plan, Run, SetActive, Step, Unchanged
from .table import Partition, Table, activate, changed, restorable, script

_SECTOR = 512  # bytes, in which the kernel counts
_SPARE_BYTES = 64 * MIB  # of memory, when a swap is turned off: what is available is an estimate, and changes


@dataclass(frozen=True)
class KernelPartition:
    """A partition as the kernel knows it, in sectors of 512 bytes. numbers: MAJOR:MINOR of its device."""

    start: int
    size: int
    numbers: str = ""


@dataclass(frozen=True)
class Disk:
    """All that is known about one disk before the plan."""

    device: str
    # Bytes.
    size: int
    # The layers on the partition that grows, or on the disk.
    layers: t.Tuple[Layer, ...]
    table: t.Optional[Table] = None
    # The output of sfdisk -d.
    dump: str = ""
    growth: t.Optional[Growth] = None
    # The partitions that the kernel knows.
    kernel: t.Mapping[int, KernelPartition] = field(default_factory=dict)
    # The contents of the partitions of the table.
    contents: t.Mapping[int, Content] = field(default_factory=dict)
    # The swaps of the guest.
    swaps: t.Tuple[Swap, ...] = ()
    # The text of /etc/fstab.
    fstab: str = ""
    # Bytes of memory that are available.
    memory: int = 0
    # Why the swap cannot be moved, "" for nothing.
    flaw: str = ""
    # A run has cleared the active flag of the protective MBR.
    marked: bool = False


def plan(disk: Disk) -> Plan:
    """Return the growth of a disk, without steps if nothing is to do. Raises FlexdiskError with the layout found."""
    if disk.table is None or disk.growth is None:
        lines, runs = _layers(disk.layers, disk.size)
        return Plan(disk.device, disk.size, lines, runs, tests=_tests(disk.layers, runs))
    return _partitioned(disk, disk.table, disk.growth)


def _partitioned(disk: Disk, table: Table, growth: Growth) -> Plan:
    new = places(table, growth)
    after = changed(table, new)
    _check_kernel(disk, table, growth)
    _check_swap(disk, growth, new)
    sync = _Sync(disk, growth, {part.number: part for part in after.partitions})
    below = sync.after[growth.grown.number].size * table.sector
    layer_lines, layer_steps = _layers(disk.layers, below)
    lines = _table_lines(table, growth, new)
    if not new and sync.needed:
        lines = ("~ the kernel learns the partition table",)
    moves = _moves(growth, new)
    before = _before(disk, table, growth.swap, sync) if moves or sync.dropped else ()
    write = _write(disk, table, growth, new) if new else ()
    backup = _backup(disk, table) if new else ()
    active = (SetActive(active_name(table)),) if disk.marked or (new and table.active) else ()
    lines += () if new else tuple("~ the protective MBR is active again" for _step in active)
    steps = (*backup, *before, *write, *active, *sync.after_write())
    if steps or layer_steps:
        on = _on(disk, table, growth.swap, bool(before))
        lines += tuple(f"> {growth.swap.name} is turned on" for _run in on if growth.swap and not moves)
        steps += on
    tests = (*_trial(write), *_tests(disk.layers, layer_steps))
    return Plan(disk.device, disk.size, (*lines, *layer_lines), (*steps, *layer_steps), len(steps), tests)


def _layers(layers: t.Sequence[Layer], below: int) -> t.Tuple[t.Tuple[str, ...], t.Tuple[Run, ...]]:
    lines, steps = [], []
    for layer in layers:
        new = layer.grown(below)
        if new != layer.size:
            lines.append(layer.line(below))
            steps.append(Run(layer.argv, secret=layer.secret))
        below = new
    return tuple(lines), tuple(steps)


def _tests(layers: t.Sequence[Layer], steps: t.Sequence[Run]) -> t.Tuple[Run, ...]:
    """Return the tests of the layers that these steps grow."""
    grown = [step.argv for step in steps]
    return tuple(Run(layer.test, secret=True) for layer in layers if layer.test and layer.argv in grown)


def _trial(write: t.Sequence[Step]) -> t.Tuple[Run, ...]:
    """Return the call of sfdisk without writing, so that a table it refuses is known before a swap is off."""
    runs = (step for step in write if isinstance(step, Run))
    return tuple(replace(run, argv=(run.argv[0], "--no-act", *run.argv[1:])) for run in runs)


def _moves(growth: Growth, new: t.Sequence[Partition]) -> bool:
    return any(growth.swap is not None and part.number == growth.swap.number for part in new)


def _table_lines(table: Table, growth: Growth, new: t.Sequence[Partition]) -> t.Tuple[str, ...]:
    if not new:
        return ()
    before, after = render_apart(growth.grown.size * table.sector, new[0].size * table.sector)
    lines = [f"~ {growth.grown.name} {before} -> {after}"]
    if growth.swap is not None and _moves(growth, new):
        size = render_bytes(growth.swap.size * table.sector)
        lines.append(f"> swap {growth.swap.name} moves to the end, {size}, UUID kept")
    return tuple(lines)


def _check_kernel(disk: Disk, table: Table, growth: Growth) -> None:
    concerned = {part.number for part in growth.parts()}
    scale = table.sector // _SECTOR
    for part in table.partitions:
        known = disk.kernel.get(part.number)
        same = known is not None and known.start == part.start * scale
        if part.number not in concerned and not (same and (part.extended or _size(known) == part.size * scale)):
            raise _disagrees(part)
        if part.number == growth.grown.number and not (same and _size(known) <= part.size * scale):
            raise _disagrees(part)
    for number in sorted(set(disk.kernel) - {part.number for part in table.partitions}):
        raise FlexdiskError(
            "UnknownLayout", f"the kernel knows a partition {number} of {disk.device} that its table does not have"
        )


def _check_swap(disk: Disk, growth: Growth, new: t.Sequence[Partition]) -> None:
    if growth.swap is not None and disk.flaw and _moves(growth, new):
        raise FlexdiskError("UnknownLayout", f"the swap {growth.swap.name} cannot be moved: it has {disk.flaw}")


def _size(known: t.Optional[KernelPartition]) -> int:
    return known.size if known is not None else 0


def _disagrees(part: Partition) -> FlexdiskError:
    return FlexdiskError(
        "UnknownLayout", f"the kernel has another {part.name} than the table; somebody has changed it: boot first"
    )


class _Sync:
    """The updates that the kernel needs before the table is written, and after it."""

    def __init__(self, disk: Disk, growth: Growth, after: t.Mapping[int, Partition]) -> None:
        self.after = after
        self._device = disk.device
        self._kernel = disk.kernel
        scale = (disk.table.sector if disk.table else _SECTOR) // _SECTOR
        others = [after[part.number] for part in growth.parts()[1:]]
        self.dropped = [part for part in others if self._elsewhere(part, scale)]
        self._added = [part for part in others if part.number not in self._kernel or part in self.dropped]
        present = [after[growth.grown.number], *(part for part in others if part not in self._added)]
        self._resized = [
            part for part in present if not part.extended and self._kernel[part.number].size != part.size * scale
        ]

    def _elsewhere(self, part: Partition, scale: int) -> bool:
        known = self._kernel.get(part.number)
        return known is not None and known.start != part.start * scale

    @property
    def needed(self) -> bool:
        """Whether the kernel needs any update."""
        return bool(self.dropped or self._added or self._resized)

    def before_write(self) -> t.Tuple[Run, ...]:
        """Return the steps before the table is written: partitions that move go, a container after its partitions."""
        return tuple(
            replace(self._partx("-d", part), undo=(self._partx("-a", part).argv,)) for part in reversed(self.dropped)
        )

    def after_write(self) -> t.Tuple[Run, ...]:
        """Return the steps after the table is written. A partition not removed before is still at its old place."""
        return (*(self._partx("-u", part) for part in self._resized), *(self._partx("-a", p) for p in self._added))

    def _partx(self, how: str, part: Partition) -> Run:
        return Run(("partx", how, "--nr", str(part.number), self._device))


def _active(disk: Disk, swap: t.Optional[Partition]) -> t.Optional[Swap]:
    known = disk.kernel.get(swap.number) if swap is not None else None
    return next((each for each in disk.swaps if known is not None and known.numbers == each.numbers != ""), None)


def _before(disk: Disk, table: Table, swap: t.Optional[Partition], sync: _Sync) -> t.Tuple[Run, ...]:
    """Return the steps before the table is written. When all is undone, the swap is turned on last."""
    steps = (*_off(disk, swap), *sync.before_write())
    on = tuple(run.argv for run in _on(disk, table, swap, True))
    return (replace(steps[0], undo=(*steps[0].undo, *on)), *steps[1:]) if steps else ()


def _off(disk: Disk, swap: t.Optional[Partition]) -> t.Tuple[Run, ...]:
    active = _active(disk, swap)
    if active is None or swap is None:
        return ()
    if active.used and active.used + _SPARE_BYTES > disk.memory:
        used, there = render_apart(active.used, disk.memory)
        raise FlexdiskError(
            "InsufficientSpace",
            f"swap {active.device} holds {used}, and only {there} of memory "
            f"are available, of which {render_bytes(_SPARE_BYTES)} must stay, so it cannot be turned off to be moved",
        )
    return (Run(("swapoff", swap.node)),)


def _on(disk: Disk, table: Table, swap: t.Optional[Partition], turned_off: bool) -> t.Tuple[Run, ...]:
    """Return the steps that turn a swap on again. After a killed run, only fstab shows whether it was on."""
    if swap is None:
        return ()
    active = _active(disk, swap)
    if active is not None:
        priority = ("-p", str(active.priority)) if active.priority >= 0 else ()
        return (Run(("swapon", *priority, swap.node)),) if turned_off else ()
    content = disk.contents[swap.number]
    entry = table.identity[2:] + f"-{swap.number:02x}" if table.label == "dos" else swap.uuid
    names = (swap.node, f"UUID={content.uuid}", f"LABEL={content.label}", f"PARTUUID={entry}")
    paths = (
        f"/dev/disk/by-uuid/{content.uuid}",
        f"/dev/disk/by-label/{content.label}",
        f"/dev/disk/by-partuuid/{entry}",
    )
    options = fstab_swap(disk.fstab, (*names, *paths))
    return () if options is None else (Run(("swapon", "-o", options, swap.node)),)


def _backup(disk: Disk, table: Table) -> t.Tuple[Backup, ...]:
    active = table.active or disk.marked
    digest = hashlib.sha256(disk.dump.encode()).hexdigest()[:8]
    text = (
        "# The partition table before it was changed. It would cut a file system that has grown. To write it again:\n"
        f"# sfdisk --no-reread {disk.device} < this file"
    )
    if active:
        text += f"\n# {' '.join(activate(disk.device))}"
    saved = Backup(f"{table.identity.lower()}-{digest}.sfdisk", f"{text}\n{restorable(disk.dump)}")
    marker = f"The protective MBR of {disk.device} was active. It becomes so again, and then this file goes.\n"
    return (saved, Backup(active_name(table), marker)) if active else (saved,)


def active_name(table: Table) -> str:
    """Return the name of the file that remembers the active flag of a protective MBR while sfdisk has cleared it."""
    return f"{table.identity.lower()}.active"


def _write(disk: Disk, table: Table, growth: Growth, new: t.Sequence[Partition]) -> t.Tuple[Step, ...]:
    copies: t.Tuple[Step, ...] = ()
    if growth.swap is not None and _moves(growth, new):
        copies = (CopySwapHeader(growth.swap.start * table.sector, new[-1].start * table.sector),)
    argv = ("sfdisk", "--no-reread", "--no-tell-kernel", "--wipe=never", "--wipe-partitions=never", "-q", disk.device)
    return (Unchanged(disk.dump), *copies, Run(argv, script(disk.dump, new)))
