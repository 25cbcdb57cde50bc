# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domain XML that others wrote: read without complaint, and changed in nothing but what is asked for."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import (
    domain,
    domain_edit,
    domain_uses,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.xml_text import Text
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import slots
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

FILES = sorted((Path(__file__).resolve().parents[1] / "data" / "domains").glob("*.xml"))
UUID = "dddddddd-1111-4222-8333-444444444444"
PATH = "/dev/zvol/tank/vm/disk7"
DISK = {"path": PATH, "uuid": UUID, "pci_slot": "", "model": "virtio", "boot": False}
NAMES = [path.stem for path in FILES]

every = pytest.mark.parametrize("path", FILES, ids=NAMES)


def read(xml: str, live: str = "") -> VmConfig:
    return domain.parse_vm(xml, live, "stopped", False, True)


def meaning(xml: str, without: str = "") -> str:
    """Canonical XML by another parser, comments, instructions and prefixes included; without a disk, and without the
    white space around children of devices.
    """
    builder = ET.TreeBuilder(insert_comments=True, insert_pis=True)
    root = ET.fromstring(xml, ET.XMLParser(target=builder))
    for devices in root.findall("devices"):
        devices.text = None
        for device in list(devices):
            device.tail = None
            source = device.find("source")
            if device.tag == "disk" and source is not None and without in source.attrib.values():
                devices.remove(device)
    return str(ET.canonicalize(ET.tostring(root, encoding="unicode"), with_comments=True))


def test_there_are_many():
    assert len(FILES) >= 40
    assert sum("<!--" in path.read_text() for path in FILES) >= 5
    assert sum("xmlns" in path.read_text() for path in FILES) >= 4
    assert sum("bhyve" in path.name for path in FILES) >= 4


AGENT = "<target type='virtio' name='org.qemu.guest_agent.0'%s/>"


@pytest.mark.parametrize("state", ["connected", "disconnected"])
def test_the_guest_agent_is_what_the_running_domain_says(state):
    xml = (FILES[0].parent / "x86_64-q35-headless.x86_64-latest.xml").read_text()
    live = xml.replace(AGENT % "", AGENT % f" state='{state}'")
    assert live != xml
    assert domain.parse_vm(xml, live, "running", False, True).guest_agent == state


@every
def test_nobody_tells_of_a_guest_agent_without_a_state(path):
    xml = path.read_text()
    assert (read(xml).guest_agent, read(xml, xml).guest_agent) == ("", "")


@every
def test_read(path):
    xml = path.read_text()
    root = ET.fromstring(xml)
    config = read(xml)
    assert (config.uuid, config.alias) == (root.findtext("uuid"), root.findtext("name"))
    assert len(config.disks) == len(root.findall("devices/disk"))
    assert not [disk for disk in config.disks if disk.volume], "none of them has a volume of ZFS"
    assert sum(disk.boot for disk in config.disks) <= 1
    for slot in config.pci.candidates:
        assert slot.rsplit(":", 1)[0] not in config.pci.taken
    assert config.pci.hot <= set(config.pci.candidates)


@every
def test_no_change_is_the_same_bytes(path):
    xml = path.read_text()
    assert str(Text(xml)) == xml
    assert domain_edit.with_multifunction(xml) == xml


@every
def test_a_disk_that_comes_and_goes_leaves_the_same_bytes(path):
    xml = path.read_text()
    added = domain_edit.added(xml, DISK)
    assert meaning(added, PATH) == meaning(xml)
    assert [disk.path for disk in read(added).disks if disk.volume] == [PATH]
    assert read(added).disks[-1].serial == serial_of(UUID)
    assert domain_edit.removed(added, PATH) == xml


@every
def test_only_the_disk_is_edited(path):
    xml = path.read_text()
    added = domain_edit.added(xml, DISK)
    slot = next(iter(read(xml).pci.candidates), "0:7:0")
    other = UUID.replace("4", "5")
    edited = domain_edit.edited(added, [{"path": PATH, "uuid": other, "pci_slot": slot}])
    ports = [c for c in ET.fromstring(edited).iter("controller") if c.get("model") == "pcie-root-port"]
    if len(ports) == len([c for c in ET.fromstring(xml).iter("controller") if c.get("model") == "pcie-root-port"]):
        assert meaning(edited, PATH) == meaning(xml)
    [disk] = [disk for disk in read(edited).disks if disk.volume]
    assert (disk.serial, disk.pci_slot) == (serial_of(other), slot)
    cold = domain_edit.edited(edited, [{"path": PATH, "model": "scsi"}])
    [disk] = [disk for disk in read(cold).disks if disk.volume]
    assert (disk.model, disk.pci_slot, disk.serial) == ("scsi", "", serial_of(other))


@every
def test_moved(path):
    added = domain_edit.added(path.read_text(), DISK)
    moved = domain_edit.edited(added, [{"path": PATH, "volume": "tank/uuid/disk0"}])
    assert moved == added.replace(PATH, "/dev/zvol/tank/uuid/disk0").replace('dev="', 'dev="')


def test_moved_with_all_that_its_source_has():
    child = "<!-- > --><seclabel model='dac' relabel='no'/>"
    source = "<source startupPolicy='dev=\"x\"' dev = '%%s'\n index='1'>%s</source>" % child
    xml = (ORDERED % ("", "", "", "")).replace("<source dev='/dev/zvol/t/a'/>", source % "/dev/zvol/t/a")
    moved = domain_edit.edited(xml, [{"path": "/dev/zvol/t/a", "volume": "t/u/disk0"}])
    assert moved.replace('dev = "/dev/zvol/t/u/disk0"', "dev = '/dev/zvol/t/a'") == xml


# -- boot


def boots(xml: str) -> list[str]:
    return [disk.path for disk in read(xml).disks if disk.boot]


ORDERED = (
    """<domain type='kvm'><name>a</name><uuid>%s</uuid><os><type machine='pc'>hvm</type>%%s</os><devices>
  <disk type='block' device='disk'><source dev='/dev/zvol/t/a'/><target dev='vda' bus='virtio'/>%%s</disk>
  <disk type='block' device='disk'><source dev='/dev/zvol/t/b'/><target dev='vdb' bus='virtio'/>%%s</disk>
  <interface type='user'>%%s</interface>
</devices></domain>"""
    % UUID
)


@pytest.mark.parametrize(
    ("fill", "before", "orders"),
    [
        (("<boot dev='hd'/>", "", "", ""), "a", [None, "1", None]),
        (("", "", "", ""), "a", [None, "1", None]),
        (("", "<boot order='2'/>", "", "<boot order='1'/>"), "a", [None, "2", "1"]),
        (("", "<boot order='2'/>", "<boot order='3'/>", "<boot order='1'/>"), "a", ["3", "2", "1"]),
        (("", "", "", "<boot order='1'/>"), None, [None, "2", "1"]),
    ],
)
def test_the_boot_disk_changes_places(fill, before, orders):
    xml = ORDERED % fill
    assert boots(xml) == ([] if before is None else ["/dev/zvol/t/" + before])
    edited = domain_edit.edited(
        xml, [{"path": "/dev/zvol/t/a", "boot": False}, {"path": "/dev/zvol/t/b", "boot": True}]
    )
    assert boots(edited) == ["/dev/zvol/t/b"]
    root = ET.fromstring(edited)
    matches = [d.find("boot") for d in root.findall("devices/*")]
    assert [b if b is None else b.get("order") for b in matches] == orders
    assert root.findall("os/boot") == []


def test_a_boot_order_by_type_of_device_is_not_guessed():
    xml = ORDERED % ("<boot dev='network'/><boot dev='hd'/>", "", "", "")
    with pytest.raises(FlexdiskError, match=r"boots by type of device \(network, hd\)"):
        domain_edit.edited(xml, [{"path": "/dev/zvol/t/b", "boot": True}])


# -- slots


PCIE = f"""<domain type='kvm'><name>a</name><uuid>{UUID}</uuid><os><type machine='pc-q35-7.2'>hvm</type></os><devices>
  <controller type='pci' index='0' model='pcie-root'/>
  <controller type='pci' index='1' model='pcie-root-port'>
    <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0' multifunction='on'/>
  </controller>
  <controller type='pci' index='2' model='pcie-root-port'/>
  <controller type='pci' index='3' model='pcie-root-port'><target hotplug='off'/></controller>
  <controller type='pci' index='4' model='pcie-root-port'/>
  <interface type='user'><mac address='52:54:00:00:00:01'/>
    <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/></interface>
</devices></domain>"""


def test_root_ports():
    pci = read(PCIE).pci
    assert pci.candidates[:5] == ("1:0:0", "3:0:0", "4:0:0", "5:0:0", "6:0:0")
    assert pci.hot == {"1:0:0", "4:0:0"}
    assert pci.taken["2:0"] == "interface 52:54:00:00:00:01"
    assert pci.taken["0:2"] == "controller pci 1"
    assert pci.taken["0:31"] == "the LPC bridge"


def test_a_port_that_does_not_run_yet_is_not_hot():
    live = PCIE.replace("<controller type='pci' index='4' model='pcie-root-port'/>", "")
    assert read(PCIE, live).pci.hot == {"1:0:0"}


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ([], ["4:0:0"], [5, 6, 7]),  # a port that is for cold disks only is none to spare
        ([], ["5:0:0"], [5, 6, 7]),
        ([], ["8:0:0"], [5, 6, 7, 8]),
        ([], ["1:0:0", "4:0:0", "8:0:0"], [5, 6, 7, 8, 9]),
        ([], ["5:0:0", "5:0:1"], [5, 6, 7]),
        (["4:0:0"], ["4:0:0"], []),
        (["1:0:0", "4:0:0"], ["4:0:0"], []),
        ([], ["0:5:0"], []),
        ([], ["20:0:0"], list(range(5, 21))),
    ],
)
def test_ports_for_disks_and_spare_ones(before, after, new):
    pci = read(PCIE).pci
    assert list(slots.new_ports(map(slots.parse_slot, before), map(slots.parse_slot, after), pci)) == new
    ported = domain_edit.ported(PCIE, new)
    assert sorted(domain.ports(Text(ported).root)) == [1, 2, 3, 4, *new]
    assert slots.new_ports(map(slots.parse_slot, before), map(slots.parse_slot, after), read(ported).pci) == ()


def test_functions_of_one_slot():
    one = domain_edit.added(PCIE, {**DISK, "pci_slot": "4:0:0"})
    assert "multifunction" not in one.rsplit("interface", maxsplit=1)[-1] + one[one.index(PATH) :]
    two = domain_edit.added(one, {**DISK, "path": PATH + "b", "pci_slot": "4:0:3"})
    assert [disk.pci_slot for disk in read(two).disks] == ["4:0:0", "4:0:3"]
    assert ET.fromstring(two).find("devices/disk/address").get("multifunction") == "on"


def test_conventional_slots():
    xml = ORDERED % ("", "", "", "<address type='pci' domain='0' bus='0' slot='0x3' function='0x0'/>")
    pci = read(xml).pci
    assert pci.candidates[0] == "0:4:0"
    assert len(pci.candidates) == 28
    assert pci.hot == set(pci.candidates)


def test_bhyve():
    xml = (Path(FILES[0]).parent / "bhyve-disk-virtio.xml").read_text()
    added = domain_edit.added(xml, {**DISK, "pci_slot": "0:9:0"})
    assert "type='file'" in added
    assert "<driver" not in added[added.index(PATH) - 100 : added.index(PATH) + 300]
    pci = read(added).pci
    assert (pci.hot, pci.functions) == (frozenset(), 1)
    assert "0:1:0" not in pci.candidates


# -- names, hostile texts


def test_names_of_targets():
    assert [domain_edit._name("vd", n) for n in (0, 25, 26, 27, 701)] == ["vda", "vdz", "vdaa", "vdab", "vdzz"]


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<domain>",
        "<domain/>",
        "<domain><uuid>x</uuid></domain>",
        "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><domain><uuid>&b;</uuid></domain>",
        f"<domain><uuid>{UUID}</uuid><devices><disk><boot order='x'/></disk></devices></domain>",
        f"<domain><uuid>{UUID}</uuid>{'<a>' * 5000}{'</a>' * 5000}</domain>",
    ],
)
def test_what_is_no_domain(xml):
    with pytest.raises(FlexdiskError) as caught:
        domain_uses.parse_vm(xml, "", "stopped", False, True)
    assert caught.value.code == "UnexpectedOutput"


def test_paths():
    assert domain.volume_of("/dev/zvol/tank/a/b") == "tank/a/b"
    assert domain.volume_of("/dev/zvol/tank/a/my+disk") == "tank/a/my disk"
    for path in ("", "/dev/zvol/tank", "/dev/zvol/-x/y", "/dev/zvol/tank/../x@y", "/dev/sda", "/dev/zvol/tank//a"):
        assert domain.volume_of(path) == ""


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        ("<d>\n  <a:devices x='/'/>\n</d>", "<d>\n  <a:devices x='/'>\n    <n/>\n  </a:devices>\n</d>"),
        ("<d><devices /></d>", "<d><devices >\n  <n/>\n</devices></d>"),
    ],
)
def test_a_child_of_an_empty_element(xml, expected):
    text = Text(xml)
    text.append(text.root.children[0], "<n/>")
    assert str(text) == expected
    assert [child.name for child in Text(expected).root.children[0].children] == ["n"]


def test_texts_survive():
    xml = "<d a='>'>\n  <devices>\n    <x/><!-- \u20ac --><y>/></y>\n  </devices>\n</d>"
    text = Text(xml)
    devices = text.root.children[0]
    text.append(devices, "<n/>")
    text.remove(devices.children[1])
    assert str(text) == "<d a='>'>\n  <devices>\n    <x/><!-- \u20ac -->\n    <n/>\n  </devices>\n</d>"
