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
from harness import Lab
from pair import Both, changed

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


def write(lab: Lab, disk: int, start: int, count: int) -> None:
    """Write so many MiB of random data."""
    device = f"/dev/zvol/zones/{VM}/disk{disk}"
    lab.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"seek={start}", f"count={count}", "conv=fsync,notrunc"])


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
    """A disk grows between the first sync and the move. The second run is idle, and the way back is an increment."""
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
    write(peer, 0, 3, 20)
    contents = hashes(peer)
    printed = move(both, lab)
    print(re.findall(r"down for [\d.]+ s", printed))
    assert hashes(lab) == contents
    assert machine(peer) == {}
    lawful(lab)
