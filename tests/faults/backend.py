# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a scenario can be run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.faults.shim import Fault

POOL = "zones"
KILLED = "killed"


def module_of(task: Mapping[str, Any]) -> str:
    """The name of the module that a task calls."""
    return str(task.get("module") or ("disk" if "disks" in task else "vm_disks"))


def arguments_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the module."""
    return {key: value for key, value in task.items() if key != "module"}


class Backend(Protocol):
    """A hypervisor with a way to spoil the commands of a module. Sizes are bytes."""

    def run(self, *argv: str, stdin: str = "") -> str:
        """stdout of a command of the operator, which must succeed."""

    def admin(self, command: str, *argv: str) -> None:
        """What no command of a hypervisor can do, such as image-import."""

    def task(self, arguments: Mapping[str, Any], *, check: bool = False, fault: Fault | None = None) -> dict[str, Any]:
        """The result of the task's module, {"killed": True} if it was killed."""

    def calls(self) -> list[list[str]]:
        """The commands of the last task."""

    def digests(self, lengths: Mapping[str, int]) -> dict[str, str]:
        """Digests of the first bytes of volumes and of volumes' snapshots."""

    def litter(self) -> Sequence[str]:
        """What tasks have left on the host outside ZFS and the VMs."""
