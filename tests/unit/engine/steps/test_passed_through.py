# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of the host that a VM has (pci_devices): no disk gets the slot of one, and a conflict is named."""

from __future__ import annotations

import json

import pytest

from ..conftest import VM
from ..modules.test_disk_verify import go as verify
from ..modules.test_vm import NEW, NOCLOUD, refusal, settle

GPU = "/devices/pci@0,0/display@2"
WORDS = f"the passed-through device {GPU}"
ROOT = {"name": "root"}


def at(slot):
    return [{"path": GPU, "pci_slot": slot, "model": "passthru"}]


def passed(sim, slot):
    sim.node.vmadm_state["vms"][VM]["pci_devices"] = at(slot)


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


@pytest.mark.parametrize("slot", ["0:4:2", "4:2"])
def test_a_new_disk_gets_another_slot(sim, slot):
    sim.adopted(64)
    passed(sim, slot)
    sim.four_steps(one({"name": "a"}, {"name": "b", "size": 64}))
    assert sim.disks()["b"].pci_slot == "0:4:3"
    sim.run("vmadm", "start", VM)
    assert sim.get()["state"] == "running"


def test_a_disk_that_comes_back_gets_another_slot(sim):
    sim.adopted(64)
    sim.four_steps(one(unlisted="detach"))
    passed(sim, "0:4:1")
    sim.four_steps(one({"name": "a"}))
    assert sim.disks()["a"].pci_slot == "0:4:2"


@pytest.mark.parametrize("name", ["a", "b"])
def test_its_slot_is_refused_to_disks(sim, name):
    sim.adopted(64)
    passed(sim, "0:8:0")
    entry = {"name": name, "pci_slot": "8", **({"size": 64} if name == "b" else {})}
    [problem] = sim.converge(one(entry, unlisted="keep")).problems
    assert (problem.code, problem.message) == ("InvalidArgument", f'pci_slot "0:8:0": {WORDS} has it')
    sim.four_steps(one({**entry, "pci_slot": "8:1"}, unlisted="keep"))


def test_a_conflict_that_is_there_is_named_and_ended(sim):
    sim.adopted(64)
    assert verify(sim).findings == []
    passed(sim, "0:4:1")
    sim.run("vmadm", "start", VM)
    assert sim.get()["state"] == "stopped"
    [finding] = verify(sim).findings
    assert finding.kind == "slot_conflict"
    path = sim.disks()["a"].path
    assert f"{path} has PCI slot 0:4:1, and {WORDS}, too; pci_slot in vm_disks moves the disk" in finding.message
    done = sim.converge(one({"name": "a"}), check=True)
    assert f"web01: a is at 0:4:1, and so is {WORDS}: the VM will not start until pci_slot moves the disk" in (
        done.warnings
    )
    sim.four_steps(one({"name": "a", "pci_slot": "0:4:2"}))
    assert verify(sim).findings == []
    sim.run("vmadm", "start", VM)
    assert sim.get()["state"] == "running"


def test_a_disk_without_a_slot_counts_where_bhyve_puts_it(sim):
    sim.create()
    for device in sim.node.vmadm_state["vms"][VM]["devices"]:
        device.pop("pci_slot", None)
    passed(sim, "0:5:0")
    assert "slot_conflict" in [finding.kind for finding in verify(sim).findings]


def test_a_new_vm_keeps_clear_of_its_devices(sim):
    sim.run("vmadm", "lookup")
    new = {**NEW, "disks": [{}, {"size": 64}], "options": {"pci_devices": at("0:4:1")}, "state": "running"}
    done = settle(sim, new)
    assert [disk["pci_slot"] for disk in done.vms[0]["disks"]] == ["0:4:0", "0:4:2"]
    assert done.vms[0]["state"] == "running"


def test_a_disk_of_the_platform_counts_in_a_new_vm(sim):
    sim.run("vmadm", "lookup")
    sim.admin("image-import", NOCLOUD, "10240", "nocloud=yes")
    new = {**NEW, "image": NOCLOUD, "options": {"pci_devices": at("0:5:0")}}
    assert f'pci_slot "0:5:0": {WORDS} has it' in refusal(sim, "InvalidArgument", new)


def test_two_disks_in_one_slot_of_another_bus_end_bhyve(sim):
    """vmadm compares the slots of bus 0 only."""
    sim.adopted(64, 64)
    edits = [{"path": sim.disks()[name].path, "pci_slot": "1:0:0"} for name in "ab"]
    sim.run("vmadm", "update", VM, stdin=json.dumps({"update_disks": edits}))
    sim.run("vmadm", "start", VM)
    assert sim.get()["state"] == "stopped"
    assert "slot_conflict" in [finding.kind for finding in verify(sim).findings]
