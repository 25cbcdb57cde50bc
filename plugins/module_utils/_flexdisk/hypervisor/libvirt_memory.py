# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Save the memory of a domain's guest in a file, and restore it, also on another host and with other paths of disks.

A file is restored as often as this is asked for, whatever its disks are by then: rules/saved_memory.py decides.
"""

from __future__ import annotations

import hashlib
import typing as t

from ..model.errors import FlexdiskError
from . import domain, domain_incoming, domain_travel
from .libvirt_host import HostConnection, HostDomains
from .xml_text import Element, Text

_SHUT_OFF, _ENDED_WITH_SAVE = 5, 5  # a state of domains, and a reason for it
# Devices with which libvirt saves no domain, or whose state is not in the file.
_NOT_SAVED = ("hostdev", "shmem", "filesystem", "tpm", "vsock", "memory")
_OF_THE_HOST = ("host-passthrough", "maximum")  # CPUs that another host shows only if its own is the same


class MemoryDomains(HostDomains, t.Protocol):
    """Domains, and the memory of their guests."""

    def save_memory(self, uuid: str, path: str) -> None:
        """Save the memory of a guest in a new file, and end its run. If it fails, the guest does what it did before.

        If the caller is killed, libvirt goes on to the end.
        """

    def pause(self, uuid: str) -> None:
        """Let a running guest stand still."""

    def is_saving(self, uuid: str) -> bool:
        """Whether libvirt is at work on a job of a domain, such as a save."""

    def ended_with_save(self, uuid: str) -> bool:
        """Whether libvirt knows that the last run of a stopped domain has ended with a save of its memory.

        It does not know it any more once its daemon was started again.
        """

    def running_xml(self, uuid: str) -> str:
        """Return a domain as it runs, without what only this run of it has on this host."""

    def memory_xml(self, path: str) -> str:
        """Return the domain as it ran when its memory was saved in this file."""

    def restore_memory(self, path: str, xml: str) -> None:
        """Restore the domain that is described, with the memory in the file. Its guest stands still."""

    def resume(self, uuid: str) -> None:
        """Let a guest go on that stands still."""

    def qemu_version(self) -> int:
        """Return the version of the host's QEMU, as libvirt counts it: major * 1000000 + minor * 1000 + release."""


class MemoryConnection(HostConnection):
    """All calls to libvirt, with those about the memory of guests."""

    def save_memory(self, uuid: str, path: str) -> None:
        # With VIR_DOMAIN_SAVE_PAUSED, libvirt would leave a guest paused whose save has failed.
        with self._domain(uuid, "save") as domain:
            domain.saveFlags(path, None, 0)

    def pause(self, uuid: str) -> None:
        with self._domain(uuid, "pause") as domain:
            domain.suspend()

    def is_saving(self, uuid: str) -> bool:
        with self._domain(uuid, "job") as domain:
            return bool(domain.isActive()) and domain.jobInfo()[0] != self._library.VIR_DOMAIN_JOB_NONE

    def ended_with_save(self, uuid: str) -> bool:
        with self._domain(uuid, "state") as domain:
            return list(domain.state()[:2]) == [_SHUT_OFF, _ENDED_WITH_SAVE]

    def running_xml(self, uuid: str) -> str:
        flags = self._library.VIR_DOMAIN_XML_SECURE | self._library.VIR_DOMAIN_XML_MIGRATABLE
        with self._domain(uuid, "description") as domain:
            return str(domain.XMLDesc(flags))

    def memory_xml(self, path: str) -> str:
        with self._call(f"saved domain in {path}"):
            return str(self._connection.saveImageGetXMLDesc(path, self._library.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))

    def restore_memory(self, path: str, xml: str) -> None:
        with self._call(f"restore from {path}"):
            self._connection.restoreFlags(path, xml, self._library.VIR_DOMAIN_SAVE_PAUSED)

    def resume(self, uuid: str) -> None:
        with self._domain(uuid, "resumption") as domain:
            domain.resume()

    def qemu_version(self) -> int:
        with self._call("the version of QEMU"):
            return int(self._connection.getVersion())


class LibvirtMemory:
    """The memory of guests of libvirt (protocol.GuestMemory). Raises FlexdiskError."""

    def __init__(self, domains: MemoryDomains) -> None:
        self._domains = domains

    def refuses(self, vm: str) -> t.List[str]:
        """As in GuestMemory. Each disk of the running domain must be in its configuration, too."""
        text, stored = self._domains.running_xml(vm), self._domains.xml(vm, False)
        backup = self._domains.backup(vm)
        jobs = [one for one in Text(backup).root.walk() if one.attributes.get("backup") == "yes"] if backup else []
        result = [*not_saved(Text(text).root), *(["a block job (backup)"] if jobs else [])]
        try:
            with_paths_of(text, stored)
        except FlexdiskError as exc:
            result.append(exc.message)
        return result

    def traveller(self, vm: str, path: str = "") -> t.Dict[str, t.Any]:
        """As in GuestMemory: the domain as it runs, or ran, and the version of QEMU."""
        text = self._domains.memory_xml(path) if path else without_terminals(self._domains.running_xml(vm))
        memory = domain.parse_vm(text, "", "running", False, True).memory
        return {"domain": text, "memory": memory, "qemu": self._domains.qemu_version()}

    def demands(self, vm: str) -> str:
        """As in GuestMemory."""
        shown = self.traveller(vm)
        needs = _needs(shown["domain"])
        asked = (needs._replace(ports=frozenset()), sorted(needs.ports), shown["memory"], shown["qemu"])
        parts = (asked, _refused(shown["domain"], ()), self.refuses(vm))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def lacks(self, vm: str, traveller: t.Mapping[str, t.Any], allowed: t.Collection[str]) -> t.List[str]:
        """As in GuestMemory. Disks have other paths here, and ports are chosen again."""
        refused = _refused(traveller["domain"], allowed)
        if refused or Text(traveller["domain"]).root.get("uuid") != vm:
            return refused or ["the description of this domain, not of another one"]
        needs = _needs(traveller["domain"])
        theirs, own = traveller["qemu"], self._domains.qemu_version()
        older = [f"QEMU {_version(theirs)} or later (it has {_version(own)})"] if own < theirs else []
        return [*self._domains.lacks(needs), *older]

    def pause(self, vm: str) -> None:
        """As in GuestMemory."""
        self._domains.pause(vm)
        self._check(vm, "paused")

    def is_saving(self, vm: str) -> bool:
        """As in GuestMemory."""
        return self._domains.is_saving(vm)

    def save(self, vm: str, path: str) -> None:
        """As in GuestMemory. Afterwards, the VM is stopped."""
        self._domains.save_memory(vm, path)
        self._check(vm, "stopped")

    def ended_with_save(self, vm: str) -> bool:
        """As in MemoryDomains."""
        return self._domains.ended_with_save(vm)

    def saved_domain(self, vm: str, path: str, allowed: t.Collection[str]) -> str:
        """Return the VM as it ran when its memory was saved, with the paths that its disks have now. Read only.

        allowed: as for WholeVms.refuses(), because the file may come from a hostile host.
        """
        saved = self._domains.memory_xml(path)
        refused = _refused(saved, allowed)
        if refused:
            raise FlexdiskError("NotPermitted", f"the saved domain in {path} asks for {'; '.join(refused)}")
        if Text(saved).root.get("uuid") != vm:
            raise FlexdiskError("Changed", f"{path} has the memory of another domain than {vm}")
        return with_paths_of(saved, self._domains.xml(vm, False))

    def restore(self, vm: str, path: str, saved: str) -> None:
        """Restore the memory of a stopped VM. The guest stands still. saved: what saved_domain() has returned."""
        self._domains.restore_memory(path, saved)
        self._check(vm, "paused")

    def resume(self, vm: str) -> None:
        """Let the guest go on."""
        self._domains.resume(vm)
        self._check(vm, "running")

    def _check(self, vm: str, wanted: str) -> None:
        state = self._domains.status(vm).state
        if state != wanted:
            raise FlexdiskError("NotApplied", f"the VM is {state}, not {wanted}, although libvirt reported no error")


def _needs(text: str) -> domain_travel.Needs:
    """Return what a host must have for a domain as it runs, without its managed disks."""
    return domain_travel.needs(domain_travel.plain(domain_travel.template(text)))


def _refused(text: str, allowed: t.Collection[str]) -> t.List[str]:
    """Return what another host may not ask this one for, in a domain as it runs."""
    disks = domain_travel.elements(text).values()
    return [
        *domain_incoming.refused(domain_travel.plain(domain_travel.template(text)), allowed),
        *(word for disk in disks for word in domain_incoming.refused_disk(disk, allowed)),
    ]


def _version(number: int) -> str:
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


def not_saved(live: Element) -> t.List[str]:
    """Return the parts of a running domain with which its memory is not saved, or not restored on another host."""
    devices = [f"<{one.name}>" for one in domain.devices(live) if one.name in _NOT_SAVED]
    jobs = [f"a block job of {disk.get('target', 'dev')}" for disk in domain.disks(live) if disk.all("mirror")]
    unsafe = [
        f"cache='unsafe' of {disk.get('target', 'dev')}, for its writes are not on the disk when the guest stands still"
        for disk in domain.disks(live)
        if disk.get("driver", "cache") == "unsafe"
    ]
    return [*dict.fromkeys(devices), *jobs, *unsafe, *(word for cpu in live.all("cpu") for word in _odd_cpu(live, cpu))]


def _odd_cpu(live: Element, cpu: Element) -> t.Iterator[str]:
    mode = cpu.attributes.get("mode", "custom")
    if mode in _OF_THE_HOST:
        yield f"a CPU of the host ({mode})"
    features = {one.attributes.get("name"): one.attributes.get("policy", "require") for one in cpu.all("feature")}
    timers = [timer.attributes for clock in live.all("clock") for timer in clock.all("timer")]
    fixed = any(timer.get("name") == "tsc" and timer.get("frequency") for timer in timers)
    if features.get("invtsc", "disable") not in ("disable", "forbid") and not fixed:
        yield "the CPU feature invtsc without a frequency of the TSC"


def without_terminals(live: str) -> str:
    """Return a running domain without the terminals of this host on which it listens."""
    text = Text(live)
    for device in domain.devices(text.root):
        if device.attributes.get("type") == "pty":
            text.set(device, "tty", "")
            for source in device.all("source"):
                text.set(source, "path", "")
    return str(text)


def with_paths_of(saved: str, stored: str) -> str:
    """Return the domain as it ran, with the paths that its disks have in its stored configuration.

    Disks are known by their serials. All else that the guest sees stays as it was. Raises FlexdiskError Changed if a
    disk of one is not in the other.
    """
    text, known = Text(saved), Text(stored).root
    paths = {disk.get("serial"): domain.path_of(disk) for disk in domain.disks(known) if domain.managed(known, disk)}
    disks = [disk for disk in domain.disks(text.root) if domain.managed(text.root, disk)]
    serials = [disk.get("serial") for disk in disks]
    if "" in serials or len({*serials}) < len(serials) or {*serials} != {*paths}:
        raise FlexdiskError("Changed", "the disks of the saved domain are not those of its configuration")
    for disk, serial in zip(disks, serials):
        (source,) = disk.all("source")
        text.set(source, "dev" if "dev" in source.attributes else "file", paths[serial])
    return str(text)
