# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM moves from one machine of the lab to the other and back, with the real ZFS and the real SSH."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from guests import Guest
from harness import Lab
from pair import Both, changed
from paired_domains import contents, converge, definition, disks, fill, paired_domains

pytestmark = pytest.mark.full
VM = "aaaaaaaa-0000-4000-8000-000000000202"
SIZES = (96, 64, 48)


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A running VM with three named disks and no free space, and with data. The second disk is preserved."""
    for one in (lab, peer):
        one.reset()
    payload = {
        "uuid": VM,
        "alias": "db01",
        "brand": "bhyve",
        "ram": 128,
        "vcpus": 1,
        "quota": 1,
        "flexible_disk_size": sum(SIZES),
        "customer_metadata": {"role": "database"},
        "disks": [{"boot": number == 0, "model": "virtio", "size": size} for number, size in enumerate(SIZES)],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    entries = [{"name": f"disk{number}", "uuid": disk["uuid"]} for number, disk in enumerate(machine(lab)["disks"])]
    entries[1]["preserve"] = True
    lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"vms": [{"vm": "db01", "disks": entries}]}))
    for number, size in enumerate(SIZES):
        write(lab, number, 0, size)
    yield Both(lab, peer, flexdisk_replicas=[{"vm": "db01", "host": peer.name}])
    for one in (lab, peer):
        one.reset()


@pytest.fixture
def domains(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A domain with three named disks and data."""
    yield from paired_domains(lab, peer)


def write(lab: Lab, disk: int, start: int, count: int) -> None:
    """Write so many MiB of random data to a disk."""
    fill(lab, f"/dev/zvol/zones/{VM}/disk{disk}", start, count)


def machine(lab: Lab) -> dict[str, Any]:
    """What vmadm says of the VM, {} if it is not there."""
    found = json.loads(lab.run(["vmadm", "lookup", "-j", f"uuid={VM}"]).stdout)
    return found[0] if found else {}


def hashes(lab: Lab) -> list[str]:
    """The contents of the disks."""
    return [lab.run(["sha256sum", f"/dev/zvol/zones/{VM}/disk{n}"]).stdout.split()[0] for n in range(len(SIZES))]


def move(both: Both, target: Lab, *words: str) -> str:
    """What the playbook prints."""
    done = both.play("move_vm", "-e", "flexdisk_vm=db01", "-e", f"flexdisk_target={target.name}", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lawful(lab: Lab) -> None:
    """Check that quota and reservation need no repair."""
    assert '"changed": false' in lab.ad_hoc("flexdisk.hypervisor.zfs_quota", json.dumps({"vms": ["db01"]})).stdout


def test_there_and_back(lab: Lab, peer: Lab, both: Both) -> None:
    """A disk grows between the first sync and the move. The second run is idle, and the way back is an increment, with
    a snapshot of the VM.
    """
    assert both.play("replicate").returncode == 0
    grown = {"vm": "db01", "flexible_disk_size": sum(SIZES) + 16, "disks": [{"name": "disk2", "size": 64}]}
    lab.ad_hoc(
        "flexdisk.hypervisor.vm_disks", json.dumps({"allow_restart": True, "vms": [{**grown, "unlisted": "keep"}]})
    )
    write(lab, 2, 40, 24)
    before, contents = machine(lab), hashes(lab)
    printed = move(both, peer)
    assert re.search(r"db01 is on lab02; it was down for [\d.]+ s", printed)
    print(re.findall(r"down for [\d.]+ s", printed))
    after = machine(peer)
    assert machine(lab) == {}
    assert hashes(peer) == contents
    for key in ("state", "autoboot", "customer_metadata", "flexible_disk_size"):
        assert after[key] == before[key], key
    lawful(peer)
    assert not changed(move(both, peer))
    roomy: Any = {"vm": "db01", "flexible_disk_size": 3 * sum(SIZES), "unlisted": "keep"}
    peer.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps({"vms": [roomy]}))
    smartos: Any = ("vmadm", ["disk0", "disk1", "disk2"])
    snapshot(peer, *smartos)
    write(peer, 0, 3, 20)
    contents = hashes(peer)
    printed = move(both, lab)
    print(re.findall(r"down for [\d.]+ s", printed))
    assert hashes(lab) == contents
    assert machine(peer) == {}
    lawful(lab)
    assert '"changed": false' in snapshot(lab, *smartos)


def snapshot(lab: Lab, hypervisor: str, names: list[str], **words: Any) -> str:
    """What vm_snapshot says of the snapshot "then" of the VM, which is to be whole afterwards, with these disks."""
    told = {"hypervisor": hypervisor, "vms": ["db01"], "name": "then", **words}
    said = lab.ad_hoc("flexdisk.hypervisor.vm_snapshot", json.dumps(told)).stdout
    (found,) = json.loads(said[said.index("{") :])["vms"][0]["snapshots"]
    assert (found["name"], sorted(found["disks"])) == ("then", names)
    return said


def test_a_domain_there_and_back(lab: Lab, peer: Lab, domains: Both) -> None:
    """Two disks grow between the first sync and the move. The guest sees its disks there as here, and at the end they
    go back to a snapshot from before all this.
    """
    here, there = Guest(lab, "db01"), Guest(peer, "db01")
    assert domains.play("replicate").returncode == 0
    domain: Any = ("libvirt", ["data", "logs", "root"])
    snapshot(lab, *domain)
    then = contents(lab)
    converge(lab, {"disks": [{"name": "root"}, {"name": "data", "size": 64}, {"name": "logs", "size": 40}]})
    fill(lab, disks(lab)["data"]["path"], 50, 9)
    before, hashes, xml = disks(lab), contents(lab), definition(lab)
    seen = here.start()
    printed = move(domains, peer)
    print(re.findall(r"down for [\d.]+ s", printed))
    there.wait_for(seen)
    assert (definition(peer), disks(lab)) == (xml, {})
    after = disks(peer)
    for name, disk in before.items():
        kept = {key: disk[key] for key in ("uuid", "pci_slot", "size", "type", "preserve", "boot")}
        assert {key: after[name][key] for key in kept} == kept
    assert "Autostart:      enable" in there.virsh("dominfo")
    assert contents(peer) == hashes
    quota = {"hypervisor": "libvirt", "vms": ["db01"]}
    assert '"changed": false' in peer.ad_hoc("flexdisk.hypervisor.zfs_quota", json.dumps(quota)).stdout
    assert not changed(move(domains, peer))
    assert '"changed": false' in snapshot(peer, *domain)
    for disk in after.values():
        device = there.device_of(disk["uuid"].replace("-", "")[:20])
        there.ask(f"dd if=/dev/urandom of={device} bs=1M count=2 seek=20 && sync")
    printed = move(domains, lab)
    print(re.findall(r"down for [\d.]+ s", printed))
    here.wait_for(seen)
    assert (definition(lab), disks(peer)) == (xml, {})
    assert contents(lab) != hashes
    assert '"changed": false' in snapshot(lab, *domain)
    here.virsh("destroy")
    snapshot(lab, *domain, state="rolled_back")
    assert contents(lab) == then
    assert [disks(lab)[name]["size"] for name in ("data", "logs")] == [48, 32]
