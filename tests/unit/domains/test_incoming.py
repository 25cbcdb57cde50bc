# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a hostile host may not ask for in the description of a VM."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import vmadm_incoming
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_incoming import (
    refused,
    refused_disk,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_new import TEMPLATE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_travel import template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import _OPTIONS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import incoming

from .conftest import domain
from .test_travel import with_device, with_top

FILES = sorted((Path(__file__).resolve().parents[1] / "data" / "domains").glob("*.xml"))
CHANNEL = "/var/lib/libvirt/qemu/channel/target/domain-1-web01/org.qemu.guest_agent.0"
OTHERS = CHANNEL.replace("web01", "web02")
ISO = "/var/lib/libvirt/images/debian.iso"
SHADOW = "/etc/shadow"
ODD = {
    "hostdev-scsi-virtio-scsi": {
        *(f"hostdev source iqn.1992-01.com.example{end}" for end in ("/0", "/1", ":storage/1", ":storage/2")),
    },
    "aarch64-virtio-pci-manual-addresses": {"dtb /aarch64.dtb", "initrd /aarch64.initrd", "kernel /aarch64.kernel"},
    "bhyve-grub-bootorder": {"bootloader /usr/local/sbin/grub-bhyve"},
    "q35-pcie.x86_64-latest": {
        "filesystem source /export/to/guest",
        "filesystem target /import/from/host",
        "input source /dev/input/event1234",
    },
}


def system(text: str) -> str:
    return with_top(f"<os><type>hvm</type>{text}</os>")


@pytest.mark.parametrize(
    ("xml", "named"),
    [
        (with_device("<emulator>/usr/bin/qemu-system-x86_64</emulator>"), ""),
        (with_device("<emulator>/tmp/evil</emulator>"), "emulator /tmp/evil"),
        (with_device("<emulator>/usr/bin/../../tmp/qemu-kvm</emulator>"), "emulator /usr/bin/../../tmp/qemu-kvm"),
        (with_device("<emulator>evil</emulator>"), "emulator evil"),
        (system(f"<kernel>{SHADOW}</kernel>"), f"kernel {SHADOW}"),
        (system(f"<initrd>{SHADOW}</initrd>"), f"initrd {SHADOW}"),
        (system("<kernel>vmlinuz</kernel>"), "kernel vmlinuz"),
        (system("<cmdline>/dev/vda root=/dev/vda</cmdline>"), ""),
        (system("<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>"), ""),
        (
            system("<loader readonly='no' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>"),
            "loader /usr/share/OVMF/OVMF_CODE.fd",
        ),
        (system(f"<loader readonly='yes'>{SHADOW}</loader>"), f"loader {SHADOW}"),
        (system("<nvram template='/usr/share/OVMF/VARS.fd'>/var/lib/libvirt/qemu/nvram/a.fd</nvram>"), ""),
        (
            system(f"<nvram template='{SHADOW}'>/var/lib/libvirt/qemu/nvram/a.fd</nvram>"),
            f"nvram {SHADOW}",
        ),
        (with_top(f"<sysinfo type='fwcfg'><entry name='a' file='{SHADOW}'/></sysinfo>"), f"entry {SHADOW}"),
        (with_top("<sysinfo type='smbios'><bios><entry name='vendor'>/me/</entry></bios></sysinfo>"), ""),
        (with_top("<metadata><a xmlns='urn:a' path='/etc/shadow'>/etc</a></metadata>"), ""),
        (with_top("<seclabel type='none'/>"), "seclabel none"),
        (
            with_device("<serial type='file'><source path='/etc/cron.d/evil'/><target port='0'/></serial>"),
            "serial source /etc/cron.d/evil",
        ),
        (
            with_device("<serial type='pty'><log file='/etc/cron.d/evil'/></serial>"),
            "serial log /etc/cron.d/evil",
        ),
        (with_device("<serial type='pty'><log file='evil'/></serial>"), "serial log evil"),
        (with_device(f"<channel type='unix'><source mode='bind' path='{CHANNEL}'/></channel>"), ""),
        (
            with_device("<channel type='unix'><source mode='connect' path='/run/docker.sock'/></channel>"),
            "channel source /run/docker.sock",
        ),
        (
            with_device(f"<channel type='unix'><source mode='connect' path='{CHANNEL}'/></channel>"),
            f"channel source {CHANNEL}",
        ),
        (
            with_device(f"<channel type='unix'><source mode='bind' path='{OTHERS}'/></channel>"),
            f"channel source {OTHERS}",
        ),
        (with_device("<serial type='unix'><source mode='bind' path='run/x'/></serial>"), "serial source run/x"),
        (with_device("<serial type='file'><source path='evil'/></serial>"), "serial source evil"),
        (
            with_device("<interface type='user'><backend type='passt' logFile='evil'/></interface>"),
            "interface backend evil",
        ),
        (with_device("<interface type='bridge'><script path='reboot'/></interface>"), "interface script reboot"),
        (with_device("<disk type='block' device='cdrom'><source dev='sda'/></disk>"), "disk source sda"),
        (with_device("<disk type='network' device='disk'><source protocol='rbd' name='x'/></disk>"), "disk source rbd"),
        (system("<acpi><table type='slic'>evil</table></acpi>"), "acpi table evil"),
        (system("<shim>evil</shim>"), "shim evil"),
        (with_top("<clock offset='timezone' timezone='Europe/Berlin'/>"), ""),
        (with_device("<interface type='bridge'><script path='/tmp/evil'/></interface>"), "interface script /tmp/evil"),
        (with_device("<interface type='bridge'><source bridge='br0'/><target dev='vnet0'/></interface>"), ""),
        (with_device("<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"), ""),
        (with_device("<rng model='virtio'><backend model='random'>/dev/sda</backend></rng>"), "rng backend /dev/sda"),
        (
            with_device("<disk type='block' device='disk'><source dev='/dev/sda'/><target dev='sdb'/></disk>"),
            "disk source /dev/sda",
        ),
        (
            with_device(f"<disk type='file' device='cdrom'><source file='{ISO}'/><target dev='sdb'/></disk>"),
            "",
        ),
        (
            with_device(f"<disk type='file' device='disk'><source file='{ISO}'/><target dev='sdb'/></disk>"),
            f"disk source {ISO}",
        ),
        (
            with_device("<disk type='file' device='cdrom'><source file='/var/lib/libvirt/images/o.qcow2'/></disk>"),
            "disk source /var/lib/libvirt/images/o.qcow2",
        ),
        (
            with_device("<graphics type='vnc'><listen type='socket' socket='/etc/evil'/></graphics>"),
            "graphics listen /etc/evil",
        ),
    ],
)
def test_each_is_refused_by_its_name(xml, named):
    """A path or a name of the inventory allows it, and no other one does."""
    described = template(xml)
    assert refused(described, ())[:1] == ([named] if named else [])
    if named and (named in incoming.NAMES or named.rpartition(" ")[2].startswith("/")):
        path = named.rpartition(" ")[2]
        key = named if named in incoming.NAMES else path
        assert refused(described, ["/srv/other", key[:-1]]) == [named]
        if key in incoming.NAMES or not incoming.problems([key]):
            assert refused(described, [key]) == []


def test_a_folder_allows_what_is_in_it():
    medium = "<disk type='file' device='cdrom'><source file='/srv/iso/a.iso'/><target dev='sdb'/></disk>"
    xml = template(with_device(medium))
    for allowed in (["/srv"], ["/srv/iso"], ["/srv/iso/a.iso"]):
        assert refused(xml, allowed) == []
    assert refused(xml, ["/srv/is"]) == ["disk source /srv/iso/a.iso"]
    climbing = xml.replace("/srv/iso/a.iso", "/srv/iso/../../etc/shadow")
    assert refused(climbing, ["/srv"]) == ["disk source /srv/iso/../../etc/shadow"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_usual_domains_are_accepted(file):
    """Of libvirt's own examples, only disks that are no volumes, and these, need a word of the inventory."""
    odd = {word for word in refused(template(file.read_text()), ()) if not word.startswith("disk ")}
    assert odd == ODD.get(file.stem, set())


def test_the_own_template_is_accepted():
    assert refused(TEMPLATE, ()) == []
    assert refused(template(domain(["tank/a/disk0"])), ()) == []


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("", "", []),
        ("/></disk>", "><source file='/etc/shadow'/></backingStore></disk>", ["disk source /etc/shadow"]),
        ("type='block'", "type='file'", ["disk source dev"]),
        ("<source ", "<source file='/etc/shadow' ", ["disk source file"]),
        ("type='block' ", "type='volume' ", ["disk type volume", "disk source dev"]),
        ("device='disk'", "device='lun' rawio='yes'", ["disk device lun", "disk rawio yes"]),
        ("type='raw'", "type='qcow2'", ["disk driver qcow2"]),
    ],
)
def test_the_element_of_a_disk(old, new, named):
    """Its source is replaced by the path that the disk has here, and nothing else of it."""
    element = (
        "<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/zvol/tank/a/disk0'/>"
        "<target dev='vda' bus='virtio'/><backingStore/></disk>"
    )
    assert refused_disk(element.replace(old, new, 1) if old else element, ()) == named
    if named == ["disk driver qcow2"]:
        assert refused_disk(element.replace(old, new, 1), named) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"nics": [{"mac": "02:08:20:00:00:01"}], "resolvers": ["9.9.9.9"], "vnc_port": 0}, []),
        ({"limit_priv": "default,-file_link_any,-net_access"}, []),
        ({"limit_priv": "default,sys_mount"}, ["limit_priv default,sys_mount"]),
        ({"limit_priv": "all"}, ["limit_priv all"]),
        ({"bootrom": "uefi", "com1": "/dev/zconsole", "com2": "socket,/tmp/vm.com2"}, []),
        ({"bootrom": "/etc/shadow"}, ["bootrom /etc/shadow"]),
        ({"bootrom": "/usr/share/bhyve/../../../etc/shadow"}, ["bootrom /usr/share/bhyve/../../../etc/shadow"]),
        ({"com1": "/dev/dsk/c0t0d0"}, ["com1 /dev/dsk/c0t0d0"]),
        ({"bhyve_extra_opts": "-s 9,passthru,1/2/3"}, ["bhyve_extra_opts -s 9,passthru,1/2/3"]),
        ({"bhyve_extra_opts": ""}, []),
        ({"pci_devices": [{"path": "/devices/a"}]}, ["pci_devices of the other host"]),
        ({"nics": [{"mac": "02:08:20:00:00:01", "allow_ip_spoofing": True}]}, ["allow_ip_spoofing"]),
        ({"nics": [{"allow_restricted_traffic": True}]}, ["allow_restricted_traffic"]),
        ({"nics": [{"allow_unfiltered_promisc": True}]}, ["allow_unfiltered_promisc"]),
        ({"fs_allowed": "ufs"}, ["fs_allowed, which is no option of a bhyve VM"]),
    ],
)
def test_options_of_vmadm(options, named):
    assert vmadm_incoming.refused(options, _OPTIONS, ()) == named
    if named and "which is" not in named[0]:
        assert vmadm_incoming.refused(options, _OPTIONS, [named[0].partition(" ")[0]]) == []


@pytest.mark.parametrize("entry", ["", "/", "srv/iso", "/srv/../etc", "/srv/", "bhyve_extra_opt", "seclabel"])
def test_a_misspelt_entry_is_refused(entry):
    (message,) = incoming.problems([entry, "/srv/iso", "seclabel none"])
    assert repr(entry) in message
