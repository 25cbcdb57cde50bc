# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Caches what is read of a host, as long as nothing is changed."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.command import Answer, Runner, changes
from ...model.vm import VmConfig


class ReadOnce:
    """A runner that caches commands that only read. A command that may change something clears the cache."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._known: t.Dict[t.Tuple[str, ...], Answer] = {}

    def __call__(self, argv: t.Sequence[str], stdin: str = "", timeout: float = 300) -> Answer:
        if stdin or changes(argv):
            self._known.clear()
            return self._runner(argv, stdin, timeout)
        key = tuple(argv)
        if key not in self._known:
            self._known[key] = self._runner(argv, stdin, timeout)
        return self._known[key]


class _VmsOnce:
    """A driver that caches the list of VMs. It is for plans only."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._vms: t.Optional[t.List[VmConfig]] = None

    def vms(self) -> t.List[VmConfig]:
        """All VMs."""
        if self._vms is None:
            self._vms = self._hypervisor.vms()
        return self._vms

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._hypervisor, name)


def vms_once(hypervisor: Hypervisor) -> Hypervisor:
    """Return the driver with a cached list of VMs, for many plans in a row. Nothing must be changed with it."""
    return t.cast(Hypervisor, _VmsOnce(hypervisor))
