# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The XML of a new domain: the user's template, or a plain q35 machine with KVM and no network."""

from __future__ import annotations

from string import Template
from xml.sax.saxutils import escape

from ..model.desired import NewVm
from ..model.errors import FlexdiskError
from .xml_text import Text

PORTS = 12
TEMPLATE = """<domain type='kvm'>
  <name>${name}</name>
  <uuid>${uuid}</uuid>
  <memory unit='MiB'>${memory}</memory>
  <vcpu>${vcpus}</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/><apic/></features>
  <cpu mode='host-passthrough'/>
  <devices>
    <controller type='pci' index='0' model='pcie-root'/>%s
    <controller type='usb' model='none'/>
    <serial type='pty'/>
    <console type='pty'/>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <memballoon model='none'/>
  </devices>
</domain>
""" % "".join(f"\n    <controller type='pci' index='{n}' model='pcie-root-port'/>" for n in range(1, PORTS + 1))


def rendered(new: NewVm) -> str:
    """Return the template with C(${name}), C(${uuid}), C(${memory}) in MiB and C(${vcpus}) filled in.

    Raises FlexdiskError InvalidArgument if it has other names in such braces, or if the result is another VM.
    """
    values = {"name": new.alias, "uuid": new.uuid, "memory": new.memory, "vcpus": new.vcpus}
    try:
        xml = Template(new.template or TEMPLATE).substitute({k: escape(str(v)) for k, v in values.items()})
    except (KeyError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"template: {exc}; it may have ${{{'}, ${'.join(values)}}}") from exc
    domain = Text(xml).root
    if (domain.get("name"), domain.get("uuid").lower()) != (new.alias, new.uuid):
        raise FlexdiskError("InvalidArgument", "template: <name> and <uuid> must be ${name} and ${uuid}")
    if not domain.all("devices"):
        raise FlexdiskError("InvalidArgument", "template has no <devices>")
    return xml
