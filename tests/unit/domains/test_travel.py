# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a domain travels to another host, and what the other host must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import (
    domain_travel,
    libvirt_host,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_new import TEMPLATE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_travel import Needs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_variables import FOLDER
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .conftest import OTHER, VM, LinuxHost, domain
from .test_connection import URI, Recorder, Trouble, connection

FILES = sorted((Path(__file__).resolve().parents[1] / "data" / "domains").glob("*.xml"))


def with_device(text: str) -> str:
    return domain(["tank/a/disk0"]).replace("</devices>", f"{text}</devices>")


def with_top(text: str) -> str:
    return domain(["tank/a/disk0"]).replace("<devices>", f"{text}<devices>")


def with_nvram(text: str) -> str:
    return with_top(f"<os><loader type='pflash'>/a</loader>{text}</os>")


@pytest.mark.parametrize(
    ("xml", "text"),
    [
        (domain(["tank/a/disk0"]), []),
        (TEMPLATE, []),
        (domain([]).replace("kvm", "bhyve"), ["the hypervisor bhyve"]),
        (with_device("<hostdev mode='subsystem' type='pci'/>"), ["<hostdev>"]),
        (with_device("<tpm model='tpm-crb'><backend type='emulator'/></tpm>"), ["<tpm>"]),
        (with_device("<filesystem type='mount'/>"), ["<filesystem>"]),
        (with_device("<interface type='hostdev'/>"), ["<interface type='hostdev'>"]),
        (with_device("<interface type='vhostuser'/>"), ["<interface type='vhostuser'>"]),
        (with_device("<serial type='tcp'><source mode='bind' service='4555'/></serial>"), ["<serial type='tcp'>"]),
        (with_device("<rng><backend model='egd' type='unix'/></rng>"), ["<rng> of another source"]),
        (with_device("<rng><backend model='random'>/dev/urandom</backend></rng>"), []),
        (with_device("<vsock><cid auto='no' address='3'/></vsock>"), ["<vsock> with a fixed number"]),
        (with_device("<vsock><cid auto='yes'/></vsock>"), []),
        (
            with_device("<graphics type='vnc'><listen type='address' address='10.0.0.1'/></graphics>"),
            ["the address 10.0.0.1, at which it listens"],
        ),
        (with_device("<graphics type='vnc' listen='127.0.0.1'/>"), []),
        (with_top("<numatune><memory nodeset='0'/></numatune>"), ["<numatune>"]),
        (with_top("<cputune><shares>9</shares><vcpupin vcpu='0' cpuset='1'/></cputune>"), ["<vcpupin>"]),
        (with_top("<memoryBacking><hugepages/></memoryBacking>"), ["<hugepages>"]),
        (with_top("<vcpu cpuset='0-3'>2</vcpu>"), ["CPUs of its own (cpuset)"]),
        (with_top("<os firmware='efi'/>"), ["UEFI variables (nvram) in a file that its XML does not name"]),
        (with_top("<os firmware='efi'><loader stateless='yes'/></os>"), []),
        (
            with_top("<os><loader type='pflash'>/a</loader></os>"),
            ["UEFI variables (nvram) in a file that its XML does not name"],
        ),
        (with_top("<os><varstore path='/a'/></os>"), ["UEFI variables (varstore)"]),
        (with_nvram(f"<nvram>{FOLDER}/a.fd</nvram>"), []),
        (with_nvram(f"<nvram type='file' format='qcow2'><source file='{FOLDER}/a.qcow2'/></nvram>"), []),
        (
            with_nvram(f"<nvram>{FOLDER}/../a.fd</nvram>"),
            [f"UEFI variables (nvram) in {FOLDER}/../a.fd, which is not in {FOLDER}"],
        ),
        (
            with_nvram(f"<nvram>{FOLDER}/..</nvram>"),
            [f"UEFI variables (nvram) in {FOLDER}/.., which is not in {FOLDER}"],
        ),
        (with_nvram("<nvram/>"), [f"UEFI variables (nvram) in no file, which is not in {FOLDER}"]),
        (
            with_nvram("<nvram type='block'><source dev='/dev/sda'/></nvram>"),
            ["UEFI variables (nvram) that are not in a plain file"],
        ),
        (
            with_nvram(f"<nvram type='file'><source file='{FOLDER}/a'><seclabel/></source></nvram>"),
            ["UEFI variables (nvram) that are not in a plain file"],
        ),
        (
            with_nvram(f"<nvram>{FOLDER}/a.fd</nvram><nvram>{FOLDER}/b.fd</nvram>"),
            ["UEFI variables (nvram) that are not in a plain file"],
        ),
        (with_top("<resource><partition>/machine</partition></resource>"), []),
        (with_top("<resource><partition>/production</partition></resource>"), ["the partition /production"]),
        (
            domain(["tank/a/disk0"]).replace("<driver", "<encryption format='luks'/><driver"),
            ["<encryption>"],
        ),
        (domain(["tank/a/disk0"]).replace("<driver", "<backingStore/><driver"), []),
    ],
)
def test_what_stays(xml, text):
    assert domain_travel.stays(xml) == text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_domains_of_libvirts_own_tests(file):
    """Of each, the template is one without its managed disks, and its disks come back as they were."""
    xml = file.read_text(encoding="utf-8")
    template, disks = domain_travel.template(xml), domain_travel.elements(xml)
    assert domain_travel.elements(domain_travel.plain(template)) == {}
    assert domain_travel.dressed(xml, disks) == xml
    assert all(isinstance(word, str) for word in domain_travel.stays(xml))
    assert domain_travel.needs(xml) == domain_travel.needs(domain_travel.plain(template))


@pytest.mark.parametrize(
    "element",
    [
        "<hostdev/>",
        "<disk type='block'/>",
        "<disk type='block'><source dev='/dev/sda'/><source dev='/dev/sdb'/></disk>",
        "<disk type='block'><source dev='/dev/sda'><seclabel/></source></disk>",
        "<disk type='block'><source dev='/dev/sda'/><mirror file='/etc/shadow'/></disk>",
        "<disk type='network'><source protocol='rbd' name='a/b'/></disk>",
    ],
)
def test_what_another_host_says_of_a_disk_is_data(element):
    assert domain_travel.odd_disk(element)


def test_a_disk_gets_the_path_that_it_has_here():
    xml = domain(["tank/a/disk0", "tank/a/disk1"])
    disks = domain_travel.elements(domain(["other/a/disk0"]).replace("type='raw'", "type='raw' cache='writeback'"))
    (element,) = disks.values()
    assert domain_travel.odd_disk(element) == []
    dressed = domain_travel.dressed(xml, {"/dev/zvol/tank/a/disk0": element})
    assert dressed.replace('"', "'") == xml.replace("type='raw'", "type='raw' cache='writeback'", 1)
    with pytest.raises(FlexdiskError, match="has no disk /dev/zvol/tank/a/disk9 any more"):
        domain_travel.dressed(xml, {"/dev/zvol/tank/a/disk9": element})


def test_what_a_host_must_have():
    more = (
        "<interface type='bridge'><source bridge='br0'/><filterref filter='clean-traffic'/></interface>"
        "<interface type='direct'><source dev='eth0'/></interface>"
        "<serial type='unix'><source mode='bind' path='/run/vms/a.console'/><log file='/var/log/vms/a'/></serial>"
        "<graphics type='vnc' port='5901'/><graphics type='spice' autoport='yes' port='5902'/>"
        "<graphics type='vnc' port='-1'><listen type='network' network='admin'/></graphics>"
    )
    nvram = f"<loader type='pflash'>/uefi/code.fd</loader><nvram template='/uefi/vars.fd'>{FOLDER}/a.fd</nvram>"
    xml = with_device(more).replace("</os>", f"{nvram}<kernel>/boot/guest</kernel><cmdline>/sbin/init</cmdline></os>")
    xml = xml.replace("<devices>", "<cpu match='exact' check='partial'><model>EPYC</model></cpu><devices>")
    assert domain_travel.needs(domain_travel.plain(domain_travel.template(xml))) == Needs(
        kind="kvm",
        arch="x86_64",
        machine="pc-i440fx-7.2",
        emulator="/usr/bin/qemu-system-x86_64",
        cpu="<cpu match='exact' check='partial'><model>EPYC</model></cpu>",
        networks=("admin", "default"),
        bridges=("br0",),
        devices=("eth0",),
        filters=("clean-traffic",),
        paths=("/boot/guest", "/run/vms", "/uefi/code.fd", "/uefi/vars.fd", FOLDER, "/var/log/vms"),
        ports=frozenset({5901}),
    )


def test_a_host_lacks_what_it_does_not_have(monkeypatch, tmp_path):
    monkeypatch.setattr(libvirt_host, "NET", str(tmp_path))
    monkeypatch.setattr(libvirt_host, "KVM", str(tmp_path / "eth0"))
    (tmp_path / "br0" / "bridge").mkdir(parents=True)
    (tmp_path / "eth0").mkdir()
    needs = Needs(
        "kvm", "x86_64", "q35", "/bin/qemu", "<cpu/>", ("n",), ("br0",), ("eth0",), ("f",), ("/",), frozenset()
    )
    recorder = Recorder(compareHypervisorCPU=1, isActive=1)
    assert connection(monkeypatch, recorder).lacks(needs) == []
    texts = ("/bin/qemu", "x86_64", "q35", "kvm")
    assert recorder.calls[:2] == [("getDomainCapabilities", *texts, 0), ("compareHypervisorCPU", *texts, "<cpu/>", 0)]
    answers = {"networkLookupByName": Trouble(43), "nwfilterLookupByName": Trouble(62), "compareHypervisorCPU": 0}
    absent = needs._replace(bridges=("eth0", "br1"), devices=("eth1", "a/b"), paths=("/nowhere",))
    assert connection(monkeypatch, Recorder(**answers)).lacks(absent) == [
        "the features of its CPU",
        "the network n",
        "the filter f",
        "the bridge eth0",
        "the bridge br1",
        "the network device eth1",
        "the network device a/b",
        "/nowhere",
    ]
    monkeypatch.setattr(libvirt_host, "KVM", "/nowhere")
    assert connection(monkeypatch, Recorder(compareHypervisorCPU=1)).lacks(needs) == ["KVM"]
    (tmp_path / "ovs-system").mkdir()
    recorder = Recorder(getDomainCapabilities=Trouble(8), isActive=0)
    lacks = connection(monkeypatch, recorder).lacks(needs._replace(bridges=("eth0",)))
    assert lacks == ["KVM", "its machine (trouble)", "the network n"]
    with pytest.raises(FlexdiskError, match=f"{URI}, what a domain needs: trouble"):
        connection(monkeypatch, Recorder(networkLookupByName=Trouble(38))).lacks(needs)


def test_what_libvirt_keeps_of_a_domain(monkeypatch):
    none = Recorder(hasManagedSaveImage=0, listAllSnapshots=[], listAllCheckpoints=Trouble(3))
    assert connection(monkeypatch, none).keeps(VM) == []
    some = Recorder(hasManagedSaveImage=1, listAllSnapshots=[Recorder(getName="b"), Recorder(getName="a")])
    some._answers["listAllCheckpoints"] = [Recorder(getName="c")]
    expected = ["a saved state (managed save)", "snapshots of libvirt (a, b)", "checkpoints of libvirt (c)"]
    assert connection(monkeypatch, some).keeps(VM) == expected


def test_a_port_or_a_mac_that_another_domain_has():
    """Only one of them could start."""
    linux = LinuxHost()
    linux.create()
    linux.create(uuid=OTHER, name="web02")
    for uuid in (VM, OTHER):
        graphics = linux.domains.configs[uuid].find("devices/graphics")
        graphics.set("port", "5901")
    nic = linux.domains.configs[OTHER].find("devices/interface/mac")
    same = nic.get("address")
    nic.set("address", "52:54:0:1:2:3")
    driver = linux.driver()
    description = driver.description(VM)
    assert (description.of_new["options"], description.of_new["metadata"], list(description.host_bound)) == ({}, {}, [])
    assert driver.lacks(VM, description.of_new, list(description.disks.values())) == ["a free port 5901"]
    linux.domains.lacking = {"default"}
    assert driver.lacks(VM, description.of_new, []) == ["default", "a free port 5901"]
    nic.set("address", same.upper())
    assert driver.lacks(VM, description.of_new, [])[2:] == [f"the MAC address {same}, which web02 has"]
    linux.domains.kept = ["snapshots of libvirt (a)"]
    assert driver.description(VM).host_bound == ("snapshots of libvirt (a)",)
    odd = {**description.of_new, "template": description.template.replace("<devices>", "<devices><hostdev/>")}
    assert driver.lacks(VM, odd, ["<filesystem/>"]) == ["<hostdev>", "a disk without one source"]
