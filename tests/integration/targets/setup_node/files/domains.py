# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes and shows VMs of libvirt in the words that vmadm has for them, so that one test is run with both.

create (a payload on stdin) | update UUID (another) | stop UUID -F | start UUID | get UUID | delete UUID | lookup [-j]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from typing import Any
from uuid import UUID, uuid5

import libvirt  # type: ignore[import-not-found,unused-ignore]

POOL = os.environ.get("NODE_POOL", "zones")
GUEST = "/var/lib/guest"
CONSOLES = "/var/log/libvirt/qemu"
BOOT_SECONDS = 900
MIB = 1 << 20
STATES = {libvirt.VIR_DOMAIN_RUNNING: "running", libvirt.VIR_DOMAIN_SHUTOFF: "stopped"}
# The guest has no agent: nobody answers behind the channel.
DOMAIN = """<domain type='qemu'>
  <name>{alias}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>128</memory>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{guest}/vmlinux</kernel>
    <initrd>{guest}/initrd.img</initrd>
    <cmdline>console=ttyS0 loglevel=1 mitigations=off nokaslr lsm= no_timer_check tsc=reliable lpj=5000000</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <controller type='usb' model='none'/>
    <controller type='scsi' index='0' model='virtio-scsi'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0'/>
    </controller>
    <controller type='virtio-serial' index='0'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x1f' function='0x0'/>
    </controller>
    {disks}
    <serial type='pty'><log file='{consoles}/{alias}.console' append='on'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <memballoon model='none'/>
  </devices>
</domain>
"""
DISK = """<disk type='block' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>
      <source dev='/dev/zvol/{volume}'/>
      <target dev='vd{letter}' bus='virtio'/>
      <serial>{serial}</serial>
      <address type='pci' domain='0x0000' bus='0x00' slot='{slot:#04x}' function='0x0'/>
    </disk>"""


def zfs(*arguments: str) -> str:
    """The output of a zfs command that has to succeed."""
    done = subprocess.run(["zfs", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.strip()


def booted(alias: str) -> int:
    """How often the guest has said which disks it has."""
    try:
        with open(f"{CONSOLES}/{alias}.console", encoding="utf-8", errors="replace") as console:
            return sum(line.startswith("DISKS ") for line in console)  # it may be the first thing that is said
    except FileNotFoundError:
        return 0


def create(connection: libvirt.virConnect, payload: dict[str, Any]) -> None:
    """Volumes, the file system above them under the law, and the domain; returns when its guest is up."""
    uuid, alias = payload["uuid"], payload["alias"]
    root = f"{POOL}/{uuid}"
    zfs("create", "-o", "mountpoint=none", "-o", "canmount=off", root)
    flexible = payload.get("flexible_disk_size")
    disks, spare, reserved = [], flexible * MIB if flexible else 0, 0
    for number, disk in enumerate(payload["disks"]):
        volume, identity = f"{root}/disk{number}", disk.get("uuid") or str(uuid5(UUID(uuid), f"disk{number}"))
        own = ["-o", f"flexdisk:uuid={identity}"]
        if "image_uuid" in disk:
            zfs("clone", *own, f"{POOL}/{disk['image_uuid']}@final", volume)
            zfs("set", "refreservation=auto", volume)
        else:
            zfs("create", *own, "-V", f"{disk['size']}M", volume)
        size, reservation = map(int, zfs("get", "-Hpo", "value", "volsize,refreservation", volume).split())
        spare, reserved = spare - size, reserved + reservation
        serial = identity.replace("-", "")[:20]
        disks.append(DISK.format(volume=volume, letter="abcdefgh"[number], serial=serial, slot=4 + number))
    quota = payload["quota"] << 30
    total = quota + reserved + (spare if flexible else 0)
    stored = [f"flexdisk:flexible_disk_size={flexible}"] if flexible else []
    zfs("set", f"quota={total}", f"reservation={total}", f"refquota={quota}", *stored, root)
    zfs("set", f"refreservation={quota - MIB}", root)
    subprocess.run(["udevadm", "settle"], check=True)
    text = DOMAIN.format(alias=alias, uuid=uuid, guest=GUEST, consoles=CONSOLES, disks="\n".join(disks))
    domain = connection.defineXML(text)
    domain.setAutostart(int(payload["autoboot"]))
    if payload["autoboot"]:
        before = booted(alias)
        domain.create()
        deadline = time.monotonic() + BOOT_SECONDS
        while booted(alias) == before:
            if time.monotonic() > deadline:
                raise SystemExit(f"the guest of {alias} has not booted within {BOOT_SECONDS} s")
            time.sleep(1)


def delete(connection: libvirt.virConnect, uuid: str) -> None:
    """Halt and forget the domain, destroy its file system with all that is in it."""
    domain = connection.lookupByUUIDString(uuid)
    if domain.isActive():
        domain.destroy()
    domain.undefine()
    destroy(f"{POOL}/{uuid}")


def destroy(dataset: str) -> None:
    """With all that is in it; udev may be looking into a volume."""
    for attempt in range(6):
        subprocess.run(["udevadm", "settle"], check=True)
        if subprocess.run(["zfs", "destroy", "-R", dataset], check=False).returncode == 0:
            return
        time.sleep(attempt)
    raise SystemExit(f"{dataset} cannot be destroyed")


def update(domain: libvirt.virDomain, payload: dict[str, Any]) -> None:
    """Remove and resize disks of a stopped VM, as somebody would by hand who knows of no quota."""
    for disk in payload.get("update_disks", []):
        zfs("set", f"volsize={disk['size']}M", volume_of(disk["path"]))
    for path in payload.get("remove_disks", []):
        found = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)).findall("devices/disk")
        volume = volume_of(path)
        (element,) = (e for e in found if e.find(f"source[@dev='/dev/zvol/{volume}']") is not None)
        domain.detachDeviceFlags(ET.tostring(element, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        destroy(volume)


def volume_of(path: str) -> str:
    """The volume of a device's path, libvirt's or vmadm's."""
    return path.removeprefix("/dev/zvol/").removeprefix("rdsk/")


def shown(domain: libvirt.virDomain) -> dict[str, Any]:
    """The VM as C(vmadm get) would show it, from its configuration; what runs must have the same disks."""
    uuid = domain.UUIDString()
    disks = described(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    if domain.isActive():
        live = described(domain.XMLDesc(0))
        if live != disks:
            raise SystemExit(f"{domain.name()} runs with {live} and is configured with {disks}")
        for path in (disk["path"] for disk in disks if disk["path"].startswith("/dev/zvol/")):
            seen, size = domain.blockInfo(path)[0], int(zfs("get", "-Hpo", "value", "volsize", volume_of(path)))
            if seen != size:
                raise SystemExit(f"{domain.name()} runs with {seen} bytes of {path}, which has {size}")
    stored = zfs("get", "-Hpo", "value", "-s", "local", "flexdisk:flexible_disk_size", f"{POOL}/{uuid}")
    flexible = {"flexible_disk_size": int(stored)} if stored else {}
    state = STATES.get(domain.state()[0], "other")
    place = {"zfs_filesystem": f"{POOL}/{uuid}"}
    return {"uuid": uuid, "alias": domain.name(), "state": state, "disks": disks, **place, **flexible}


def described(text: str) -> list[dict[str, Any]]:
    """The disks of a domain's XML."""
    found = []
    for disk in ET.fromstring(text).findall("devices/disk"):
        source, address = disk.find("source"), disk.find("address")
        if source is None or address is None:
            raise SystemExit(f"a disk without source or address in {text}")
        path = source.get("dev") or source.get("file") or ""
        uuid = path.split("/")[4] if path.startswith("/var/lib/flexdisk/") else ""
        place = [int(address.get(word, "0"), 16) for word in ("bus", "slot", "function")]
        found.append(
            {
                "path": path,
                "serial": disk.findtext("serial"),
                "uuid": uuid or zfs("get", "-Hpo", "value", "flexdisk:uuid", volume_of(path)),
                "pci_slot": ":".join(map(str, place)) if address.get("type") == "pci" else "",
            }
        )
    return found


def main(word: str, *arguments: str) -> None:
    """One command."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    connection = libvirt.open("qemu:///system")
    try:
        if word == "create":
            create(connection, json.load(sys.stdin))
        elif word == "delete":
            delete(connection, *arguments)
        elif word == "update":
            update(connection.lookupByUUIDString(*arguments), json.load(sys.stdin))
        elif word == "stop":
            connection.lookupByUUIDString(arguments[0]).destroy()
        elif word == "start":
            connection.lookupByUUIDString(*arguments).create()
        elif word == "get":
            print(json.dumps(shown(connection.lookupByUUIDString(*arguments))))
        else:
            vms = sorted(connection.listAllDomains(), key=lambda domain: str(domain.UUIDString()))
            print(json.dumps(list(map(shown, vms))) if arguments else "\n".join(vm.UUIDString() for vm in vms))
    except libvirt.libvirtError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main(*sys.argv[1:])
