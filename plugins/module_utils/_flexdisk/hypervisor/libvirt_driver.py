# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt: VMs are domains. This driver also makes, changes, deletes and moves them."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..model.command import Runner
from ..model.dataset import ZVOL
from ..model.desired import Description, ImageFile, NewVm
from ..model.errors import FlexdiskError
from ..model.vm import VmConfig
from ..rules import uefi
from ..rules.identity import serial_of
from ..rules.layout import vm_dataset
from . import domain, domain_edit, domain_incoming, domain_new, domain_travel, domain_variables, images
from .libvirt_disks import LibvirtDisks
from .libvirt_host import HostDomains
from .protocol import GuestMemory
from .xml_text import Element, Text


class Libvirt(LibvirtDisks):
    """The whole driver for libvirt."""

    def __init__(
        self,
        domains: HostDomains,
        uri: str,
        runner: Runner,
        pause: t.Callable[[float], None] = time.sleep,
        guest_memory: t.Optional[GuestMemory] = None,
    ) -> None:
        super().__init__(domains, uri, pause)
        self.guest_memory = guest_memory
        self._host = domains
        self._runner = runner
        self.vms_as_a_whole = self

    def draft(self, new: NewVm) -> VmConfig:
        rendered = domain_new.rendered(new)
        config = domain.parse_vm(rendered, "", "stopped", False, True)
        makes = domain.topology(Text(rendered).root)
        if makes not in (0, config.vcpus):
            text = f"vcpus is {config.vcpus}, but the <topology> in template makes {makes}; libvirt takes only the same"
            raise FlexdiskError("InvalidArgument", text)
        lacking = [part for part, minimum in config.min_vcpus.items() if minimum > config.vcpus]
        if lacking:
            text = (
                f"vcpus is {config.vcpus}, but {lacking[0]} in template names vcpu {config.min_vcpus[lacking[0]] - 1}"
            )
            raise FlexdiskError("InvalidArgument", text)
        if config.disks:
            raise FlexdiskError("InvalidArgument", "template must not contain disks; declare them in disks")
        return replace(
            config,
            pool=new.pool,
            dataset=vm_dataset(new.pool, new.uuid),
            flexible_disk_size=new.flexible_disk_size,
        )

    def hidden_disks(self, image: str) -> t.List[t.Tuple[int, int]]:
        return []

    def image_file(self, path: str) -> ImageFile:
        return images.probe(self._runner, path)

    def import_image(self, image: ImageFile, volume: str) -> None:
        self._await_device(ZVOL + volume)
        images.convert(self._runner, image, ZVOL + volume)

    def create_vm(
        self, new: NewVm, disks: t.Sequence[t.Mapping[str, t.Any]], protected: bool, ports: t.Sequence[int]
    ) -> None:
        xml = domain_edit.ported(domain_new.rendered(new), ports)
        for disk in disks:
            self._await_device(disk["path"])
            xml = domain_edit.added(xml, disk)
        self._define(new.uuid, xml)
        for disk in disks:
            self._prove(new.uuid, disk["path"], f"disk {disk['path']}", serial=serial_of(disk["uuid"]))

    def description(self, vm: str) -> Description:
        xml = self._domains.xml(vm, not self._domains.status(vm).persistent)
        variables = self._variables(Text(xml).root)
        stays = (*domain_travel.stays(xml), *self._host.keeps(vm), *domain_variables.too_large(variables))
        return Description(
            template=domain_travel.template(xml),
            variables="" if stays else uefi.encode(variables),
            disks=domain_travel.elements(xml),
            host_bound=stays,
        )

    def _variables(self, root: Element) -> bytes:
        path = domain_variables.path_of(root)
        return self._host.variables(path) if domain_variables.is_place(path) else b""

    def refuses(
        self, description: t.Mapping[str, t.Any], disks: t.Sequence[str], allowed: t.Collection[str]
    ) -> t.List[str]:
        xml = domain_travel.plain(description["template"])
        inside = [word for disk in disks for word in domain_incoming.refused_disk(disk, allowed)]
        return [*domain_incoming.refused(xml, allowed), *inside]

    def lacks(self, vm: str, description: t.Mapping[str, t.Any], disks: t.Sequence[str]) -> t.List[str]:
        """Return what this host lacks for the VM. The description comes from another host, so it is checked first."""
        xml = domain_travel.plain(description["template"])
        odd = [*domain_travel.stays(xml), *(word for disk in disks for word in domain_travel.odd_disk(disk))]
        if odd:
            return odd
        needs, macs = domain_travel.needs(xml), domain_travel.macs(Text(xml).root)
        there = [(one.name, one.uuid, not one.persistent) for one in self._domains.all()]
        others = [(name, Text(self._domains.xml(uuid, live)).root) for name, uuid, live in there if uuid != vm]
        ports = {port for _name, domain in others for port in domain_travel.ports(domain)}
        taken = {mac: name for name, domain in others for mac in domain_travel.macs(domain)}
        return [
            *self._host.lacks(needs),
            *(f"a free port {port}" for port in sorted(needs.ports & ports)),
            *(f"the MAC address {mac}, which {taken[mac]} has" for mac in sorted(macs & taken.keys())),
            *self._lacks_place(Text(xml).root, [domain for _name, domain in others], len(others) == len(there)),
        ]

    def _lacks_place(self, root: Element, others: t.Sequence[Element], new: bool) -> t.Iterator[str]:
        """Return the path of its UEFI variables, if another domain uses it. new: the domain is not on this host yet."""
        path = domain_variables.path_of(root)
        if path and (path in map(domain_variables.path_of, others) or (new and self._variables(root))):
            yield f"a free place {path}"

    def restore_variables(self, description: t.Mapping[str, t.Any]) -> None:
        path = domain_variables.path_of(Text(domain_travel.plain(description["template"])).root)
        content = uefi.decode(description.get("variables", ""))
        if content:
            if not domain_variables.is_place(path):
                raise FlexdiskError("InvalidArgument", "the VM has UEFI variables, and no place for them")
            self._host.set_variables(path, content)

    def dress(self, vm: str, disks: t.Mapping[str, str]) -> None:
        self._define(vm, domain_travel.dressed(self._fresh(vm), disks))
        for path in disks:
            self._prove(vm, path, f"what disk {path} had", path=path)

    def delete_vm(self, vm: str) -> None:
        self._domains.undefine(vm)
        if any(status.uuid == vm for status in self._domains.all()):
            raise FlexdiskError("NotApplied", "the domain still exists after it was undefined; it may be running")

    def set_machine(self, vm: str, changes: t.Mapping[str, int]) -> None:
        self._define(vm, domain_edit.resized(self._fresh(vm), changes))
        seen = self.vm(vm)
        if any(getattr(seen, key) != value for key, value in changes.items()):
            raise FlexdiskError(
                "NotApplied",
                f"memory is still {seen.memory} MiB and vcpus {seen.vcpus}, although libvirt reported no error",
            )
