# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a libvirt host lacks for a domain, and what libvirt stores for a domain beside its configuration."""

from __future__ import annotations

import os
import typing as t

from .domain_travel import Needs

_NO_SUPPORT, _NO_NETWORK, _NO_FILTER = 3, 43, 62
_INCOMPATIBLE = 0
NET, KVM = "/sys/class/net", "/dev/kvm"
_Ask = t.Callable[[], t.Any]


def unless(library: t.Any, code: int, ask: _Ask) -> t.Any:
    """Return the answer of a call, or None if libvirt fails with this code."""
    try:
        return ask()
    except library.libvirtError as exc:
        if exc.get_error_code() != code:
            raise
        return None


class LibvirtHost:
    """A connection with its library. Methods raise the library's own errors."""

    def __init__(self, connection: t.Any, library: t.Any) -> None:
        self._connection = connection
        self._library = library

    def keeps(self, domain: t.Any) -> t.List[str]:
        """Return what libvirt stores for a domain beside its configuration, as text."""
        result = ["a saved state (managed save)"] if self._unless(_NO_SUPPORT, domain.hasManagedSaveImage) else []
        for kind, ask in (("snapshots", domain.listAllSnapshots), ("checkpoints", domain.listAllCheckpoints)):
            names = sorted(one.getName() for one in self._unless(_NO_SUPPORT, ask) or ())
            result += [f"{kind} of libvirt ({', '.join(names)})"] if names else []
        return result

    def _unless(self, code: int, ask: _Ask) -> t.Any:
        return unless(self._library, code, ask)

    def lacks(self, needs: Needs) -> t.List[str]:
        """Return which of these needs the host does not meet, as text. Ports are not checked."""
        missing = [
            *self._machine(needs),
            *(f"the network {name}" for name in needs.networks if not self._network(name)),
        ]
        missing += [f"the filter {name}" for name in needs.filters if not self._filter(name)]
        missing += [f"the bridge {name}" for name in needs.bridges if not _is_bridge(name)]
        missing += [f"the network device {name}" for name in needs.devices if not _is_net(name)]
        return missing + [path for path in needs.paths if not os.path.exists(path)]

    def _machine(self, needs: Needs) -> t.Iterator[str]:
        """Yield the machine or CPU that libvirt says it cannot provide. Without KVM, it would store a KVM domain, but
        not start it.
        """
        if needs.kind == "kvm" and not os.path.exists(KVM):
            yield "KVM"
        parts = (needs.emulator or None, needs.arch or None, needs.machine or None, needs.kind)
        try:
            self._connection.getDomainCapabilities(*parts, 0)
            if needs.cpu and self._connection.compareHypervisorCPU(*parts, needs.cpu, 0) == _INCOMPATIBLE:
                yield "the features of its CPU"
        except self._library.libvirtError as exc:
            yield f"its machine ({exc.get_error_message()})"

    def _network(self, name: str) -> bool:
        """Whether there is an active network with this name."""
        network = self._unless(_NO_NETWORK, lambda: self._connection.networkLookupByName(name))
        return network is not None and bool(network.isActive())

    def _filter(self, name: str) -> bool:
        return self._unless(_NO_FILTER, lambda: self._connection.nwfilterLookupByName(name)) is not None


def _is_net(name: str) -> bool:
    return "/" not in name and os.path.exists(f"{NET}/{name}")


def _is_bridge(name: str) -> bool:
    """Whether it is a Linux bridge, or one of Open vSwitch, which looks like any other device."""
    return _is_net(name) and (os.path.exists(f"{NET}/{name}/bridge") or os.path.exists(f"{NET}/ovs-system"))
