# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate that needs guest agents, by ansible-playbook: the nodes' VMs are domains of a libvirt for reading."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.engine.conftest import IMAGE

from .farm import Farm

POLICY = {"min_in_service": 0, "max_batch_size": 2, "failure_budget": 2}
# VMS is the file of the simulated vmadm. In the folder LOOKS, each VM has a file with the number of looks that find its
# guest agent disconnected.
LIBRARY = '''
import io, json, os
VIR_DOMAIN_XML_SECURE, VIR_DOMAIN_XML_INACTIVE = 1, 2
DISK = """<disk type="block" device="disk"><source dev="/dev/zvol/zones/{uuid}/disk{number}"/>
<target dev="vd{number}" bus="virtio"/><address type="pci" domain="0" bus="0" slot="{slot}" function="0"/></disk>"""
DOMAIN = """<domain type="kvm"><name>{name}</name><uuid>{uuid}</uuid><memory unit="MiB">512</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><devices><controller type="pci" index="0" model="pci-root"/>{disks}
<channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"{state}/></channel></devices></domain>"""

class libvirtError(Exception):
    pass

class Domain:
    def __init__(self, uuid, name):
        self.UUIDString, self.name = lambda: uuid, lambda: name
        self.state, self.isPersistent, self.autostart = lambda: [1, 0], lambda: 1, lambda: 1
        self.hasManagedSaveImage = lambda *ignored: 0
        self.listAllSnapshots = self.listAllCheckpoints = lambda *ignored: []

    def XMLDesc(self, flags):
        uuid, name = self.UUIDString(), self.name()
        disks = "".join(DISK.format(uuid=uuid, number=number, slot=number + 4) for number in (0, 1))
        state = "" if flags & VIR_DOMAIN_XML_INACTIVE else ' state="%s"' % look(name)
        return DOMAIN.format(name=name, uuid=uuid, disks=disks, state=state)

class Connection:
    def listAllSecrets(self, *ignored):
        return []

    def listAllDomains(self):
        with io.open(os.environ["VMS"]) as stream:
            return [Domain(uuid, vm["cfg"]["alias"]) for uuid, vm in json.load(stream)["vms"].items()]

    def lookupByUUIDString(self, uuid):
        return next(domain for domain in self.listAllDomains() if domain.UUIDString() == uuid)

def look(name):
    with io.open(os.path.join(os.environ["LOOKS"], name), "r+") as stream:
        left = int(stream.read())
        stream.seek(0)
        stream.write("%-9d" % max(0, left - 1))
    return "disconnected" if left else "connected"

def open(uri):
    return Connection()

def registerErrorHandler(*ignored):
    pass
'''


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    """Two members on two nodes, both with the mark of a run that was killed after it had changed them."""
    farm = Farm(tmp_path, 2, 2, processes=True)  # for its PYTHONPATH
    for host, vm in farm.look().vms().values():
        mark = ["set", "flexdisk:drained=true", f"zones/{vm['uuid']}"]
        subprocess.run([farm.node(host) / "bin" / "zfs", *mark], check=True)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "libvirt.py").write_text(LIBRARY)
    (tmp_path / "looks").mkdir()
    hosts = yaml.safe_load((tmp_path / "hosts.yml").read_text())
    own = "{{ inventory_dir }}/{{ inventory_hostname }}/vmadm.json"
    more = {"PYTHONPATH": f"{tmp_path}/library", "LOOKS": f"{tmp_path}/looks", "VMS": own}
    hosts["all"]["vars"]["flexdisk_environment"].update(more)
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    return farm


def test_a_member_is_back_when_its_agent_is_connected_and_stays_out_without(farm):
    for name, looks in {"web-0": 10, "web-1": 10**6}.items():
        (farm.balancer / name).unlink()
        (farm.folder / "looks" / name).write_text(str(looks))
    gate = {"guest_agent": True, "retries": 8, "delay": 0}
    run = farm.run(IMAGE, policy=POLICY, template={}, hypervisor="libvirt", gate=gate)
    assert run.code != 0, run.output
    assert "FAILED - RETRYING: [hv0]: Wait for their guest agents" in run.output
    assert "web-1: not as declared" in run.words
    assert (farm.pooled(), farm.marked()) == ({"web-0"}, {"web-1"})


def test_vms_of_which_the_hypervisor_cannot_tell_are_refused(farm):
    vms, pooled = farm.vms(), farm.pooled()
    run = farm.run(IMAGE, policy=POLICY, template={}, gate={"guest_agent": True})
    assert run.code != 0, run.output
    assert "web-0: guest_agent: the hypervisor reports no channel for a guest agent [InvalidArgument]" in run.words
    assert (farm.vms(), farm.pooled()) == (vms, pooled)
