# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds of faults: what each does to a command, and to which commands it can happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simnode.vmadm.boundaries import POINTS, WATCHES

from tests.faults.shim import Fault, changes

Argv = Sequence[str]
VMINFOD = 'first of 1 error: vminfod watchForChanges "VM.js update (x)" timeout exceeded\n'
COMMAND_FAILED = "first of 1 error: Command failed: "


BUSY = ("zfs rename", "zfs destroy")
# What may be lost without a word: that the entry of the journal is cleared at the end of a run. The index does not list
# it any more, so no task takes it up; the next entry of the VM replaces it; and disk_verify finds it (intent_index).
# The read at the end does not show it, for zfs reads user properties of all datasets by name, or all properties: each
# task that changes something would need another process to see it.
MAY_BE_LOST = ("zfs inherit flexdisk:intent.",)
LONG = 10.0
MOST_STEPS = 6


@dataclass(frozen=True)
class Kind:
    """A fault without its number; `where` says to which commands it happens.

    To commands that only look happen only the kinds that differ there.
    """

    fault: Fault
    where: Callable[[Argv], bool] = changes

    def at(self, nth: int) -> Fault:
        """The fault of the command number nth."""
        return self.fault.replace(nth=nth)

    @property
    def outlives(self) -> bool:
        """Whether the command goes on after the module's death."""
        return self.fault.kill in ("first", "controller") and self.fault.effect

    @property
    def in_process(self) -> bool:
        """Whether it means anything where a command is a call: one that is merely slow does not."""
        return not 0 < self.fault.seconds < LONG

    @property
    def in_processes(self) -> bool:
        """Whether the simulated node's programs can be made to do it: they run whole or not at all, and soon."""
        return not (
            self.fault.seconds >= LONG
            or self.fault.tear
            or self.fault.cut
            or self.fault.guest
            or self.fault.boundary
            or self.fault.kill == "controller"
        )

    @property
    def in_lab(self) -> bool:
        return self.fault.seconds < LONG and not (self.fault.cut or self.fault.guest or self.fault.boundary)


def _any(_argv: Argv) -> bool:
    return True


def _process(argv: Argv) -> bool:
    """What can die by itself and outlive its caller; a call to libvirt cannot."""
    return argv[0] != "libvirt" and changes(argv)


def _prints(argv: Argv) -> bool:
    """What prints many lines, each about something else."""
    return (argv[0] == "zfs" and argv[1] in ("get", "list")) or tuple(argv[:2]) == ("vmadm", "lookup")


def _lies(argv: Argv) -> bool:
    return changes(argv) and not " ".join(argv).startswith(MAY_BE_LOST)


def _at_boundary(point: str, fault: str) -> Kind:
    command = ["vmadm", point.partition(" ")[0]]
    return Kind(Fault(boundary=f"{point}: {fault}", only=(" ".join(command),)), lambda argv: list(argv[:2]) == command)


def _boundaries() -> dict[str, Kind]:
    """Kinds of faults between two steps of vmadm, called as `kill-create-zonecfg`."""
    every = [(point, fault) for point in POINTS for fault in ("kill", "fail", "late:30")]
    every += [(point, "timeout") for point in WATCHES]
    named = {f"{fault.partition(':')[0]}-{point.replace(' ', '-')}": (point, fault) for point, fault in every}
    return {name: _at_boundary(*arguments) for name, arguments in named.items()}


def _qm(argv: Argv) -> bool:
    return argv[0] == "qm" and changes(argv)


def _torn_qm() -> dict[str, Kind]:
    """Kinds of faults within qm, which is killed after so many of its own steps, alone or with the module."""
    ways = {"torn": Fault(status=-9, only=("qm ",)), "dead": Fault(kill="last", only=("qm ",))}
    steps = range(1, MOST_STEPS + 1)
    return {f"qm-{way}-{n}": Kind(fault.replace(tear=n), _qm) for way, fault in ways.items() for n in steps}


def _asks_guest(argv: Argv) -> bool:
    return list(argv[:2]) == ["vmadm", "stop"] and "-F" not in argv


def _busy(argv: Argv) -> bool:
    return " ".join(argv).startswith(BUSY)


def _takes_space(argv: Argv) -> bool:
    growing = ("set", "create", "clone", "rename", "snapshot")
    return (argv[0] == "zfs" and argv[1] in growing and changes(argv)) or _update(argv)


def _update(argv: Argv) -> bool:
    return argv[:2] == ["vmadm", "update"]


def _several(argv: Argv) -> bool:
    """An update by vmadm, or several properties at once, which ZFS sets one after the other."""
    return _update(argv) or (argv[:2] == ["zfs", "set"] and len(argv) > 4 and "flexdisk:" not in argv[2])


def _failing(zfs: str, vmadm: str, *, status: int = 1, effect: bool = False, lasting: bool = False) -> Fault:
    complaint = {"": zfs + "\n" if zfs else "", "vmadm": vmadm + "\n" if vmadm else ""}
    return Fault(status=status, effect=effect, lasting=lasting, complaint=complaint)


KINDS = {
    # The module dies, or the controller that started it.
    "kill-before": Kind(Fault(kill="first"), _any),
    "kill-after": Kind(Fault(kill="last", effect=True)),
    "outlived": Kind(Fault(kill="first", effect=True, seconds=1.5), _process),
    "controller": Kind(Fault(kill="controller", effect=True, seconds=6)),
    # The command fails and has done nothing.
    "denied": Kind(
        _failing("{what}: permission denied", "vmadm: cannot run because: You must be root in the global zone"), _any
    ),
    "space": Kind(
        _failing("{what}: out of space", COMMAND_FAILED + "cannot set property: size is greater than available space"),
        _takes_space,
    ),
    "busy": Kind(_failing("{what}: dataset is busy", ""), _busy),
    "busy-long": Kind(_failing("{what}: dataset is busy", "", lasting=True).replace(only=BUSY), _busy),
    "signal": Kind(_failing("", "", status=-9), _process),
    "vminfod-lost": Kind(_failing("", VMINFOD.strip()), _update),
    # Nothing works any more.
    "suspended": Kind(
        _failing(
            "{what}: pool I/O is currently suspended",
            COMMAND_FAILED + "{what}: pool I/O is currently suspended",
            lasting=True,
        )
    ),
    # The command has done its work and says otherwise.
    "lost": Kind(_failing("{what}: I/O error", COMMAND_FAILED + "I/O error", effect=True)),
    "lost-signal": Kind(_failing("", "", status=-15, effect=True), _process),
    "vminfod": Kind(_failing("", VMINFOD.strip(), effect=True), _update),
    "timeout": Kind(Fault(effect=True, seconds=3600), _process),
    # The command has done a part of its work.
    "torn": Kind(Fault(status=-9, tear=1), _several),
    "torn-later": Kind(Fault(status=-9, tear=2), _update),
    # The command says that all is well, and has done nothing.
    "silent": Kind(Fault(spares=MAY_BE_LOST), _lies),
    # A command that looks ends well, and half of what it prints is lost.
    "cut": Kind(Fault(cut=True), _prints),
    # The guest does not shut down in time. It does it after the run has ended, or while a later one waits for it.
    "guest-late": Kind(Fault(guest=1200, only=("vmadm stop",)), _asks_guest),
    "guest-slow": Kind(Fault(guest=790, only=("vmadm stop",)), _asks_guest),
    # vmadm ends between two of its steps, or does the rest after its caller has given it up.
    **_boundaries(),
    # qm, which takes some commands of zfs and writes files of VMs, ends in the middle.
    **_torn_qm(),
    # Only late.
    "delay": Kind(Fault(effect=True, seconds=0.3)),
}
