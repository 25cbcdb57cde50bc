# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a libvirt host lacks for a domain, and what libvirt stores for a domain beside its configuration."""

from __future__ import annotations

import os
import typing as t

from ..model.vm import SAVED_STATE
from . import variable_files
from .domain_travel import Needs
from .libvirt_connection import Connection, Domains

_NO_SUPPORT, _NO_NETWORK, _NO_FILTER = 3, 43, 62
_INCOMPATIBLE = 0
NET, KVM = "/sys/class/net", "/dev/kvm"


class HostDomains(Domains, t.Protocol):
    """Domains, and what their host has for them."""

    def keeps(self, uuid: str) -> t.List[str]:
        """Return what libvirt keeps of a domain beside its configuration, in words."""

    def lacks(self, needs: Needs) -> t.List[str]:
        """Return what of these the host lacks, in words. Ports are not looked at."""

    def variables(self, path: str) -> bytes:
        """Return the content of a file with UEFI variables, as far as it may travel; none if it does not exist."""

    def set_variables(self, path: str, content: bytes) -> None:
        """Write such a file, whole or not at all."""


class HostConnection(Connection):
    """All calls to libvirt."""

    def keeps(self, uuid: str) -> t.List[str]:
        with self._domain(uuid, "what belongs to it") as domain:
            return self._keeps(domain)

    def _keeps(self, domain: t.Any) -> t.List[str]:
        result = [SAVED_STATE] if self._unless(_NO_SUPPORT, domain.hasManagedSaveImage) else []
        for kind, ask in (("snapshots", domain.listAllSnapshots), ("checkpoints", domain.listAllCheckpoints)):
            names = sorted(one.getName() for one in self._unless(_NO_SUPPORT, ask) or ())
            result += [f"{kind} of libvirt ({', '.join(names)})"] if names else []
        return result

    def lacks(self, needs: Needs) -> t.List[str]:
        with self._call("what a domain needs"):
            return self._lacks(needs)

    def _lacks(self, needs: Needs) -> t.List[str]:
        missing = [
            *self._machine(needs),
            *(f"the network {name}" for name in needs.networks if not self._network(name)),
        ]
        missing += [f"the filter {name}" for name in needs.filters if not self._filter(name)]
        missing += [f"the bridge {name}" for name in needs.bridges if not _is_bridge(name)]
        missing += [f"the network device {name}" for name in needs.devices if not _is_net(name)]
        return missing + [path for path in needs.paths if not os.path.exists(path)]

    def variables(self, path: str) -> bytes:
        return variable_files.read(path)

    def set_variables(self, path: str, content: bytes) -> None:
        variable_files.write(path, content)

    def _machine(self, needs: Needs) -> t.Iterator[str]:
        """Yield the machine or CPU that libvirt cannot provide. Without KVM, a KVM domain is stored, but cannot run."""
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
