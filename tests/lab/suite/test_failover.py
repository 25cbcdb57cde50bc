# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first machine loses its power, and the other one brings the VM back from its replicas, on real ZFS and SSH."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import Lab
from pair import Both
from paired_vm import SIZES, VM, digest, hashes, lawful, lose_power, paired_vm, play, uuids, vmadm, volumes, write

pytestmark = pytest.mark.full
APART = "zones/flexdisk/diverged"
REPLICAS = "zones/flexdisk/replica"


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A running VM with three disks and with data."""
    yield from paired_vm(lab, peer)


def test_a_failover_and_the_way_back(lab: Lab, peer: Lab, both: Both) -> None:
    """The VM comes back as it was at the last sync. What it wrote since is kept on its old host until the word."""
    vm = ["-e", "flexdisk_vm=db01"]
    to = [*vm, "-e", f"flexdisk_target={peer.name}", "-e", "flexdisk_fenced=true", "-e", "flexdisk_max_data_loss=3600"]
    lab.ad_hoc("flexdisk.hypervisor.vm_snapshot", json.dumps({"vm": "db01", "name": "before"}))
    play(both, "replicate", "-e", "flexdisk_failover=true")
    write(lab, 0, 3, 20)
    play(both, "replicate")
    before, contents = vmadm(lab), hashes(lab)
    assert before["autoboot"] is False
    disks = uuids(lab)
    write(lab, 1, 40, 9)
    lost = hashes(lab)
    lose_power(lab)

    assert f"{lab.name}, the host of db01, answers" in play(both, "failover_vm", *to, status=2)
    both.hide(lab.name)
    play(both, "failover_vm", *to)
    after = vmadm(peer)
    for key in ("state", "autoboot", "customer_metadata", "flexible_disk_size", "nics"):
        assert after[key] == before[key], key
    assert hashes(peer) == contents
    taken = peer.zfs("list", "-H", "-o", "name", "-t", "snapshot", "-r", f"zones/{VM}").split()
    assert sum(name.endswith("before") for name in taken) == len(SIZES) + 1
    lawful(peer)

    both.hide("")
    assert f"{peer.name} has taken it over" in play(both, "start_host", "--limit", lab.name)
    assert vmadm(lab)["state"] == "stopped"
    assert hashes(lab) == lost
    write(peer, 2, 30, 9)
    contents = hashes(peer)
    play(both, "failover_vm", *vm, "-e", "flexdisk_failover_state=returned")
    assert vmadm(lab) == {}
    kept = [uuid for uuid in disks if f"{APART}/{uuid}" in volumes(lab)]
    assert disks[1] in kept  # and disks of which ZFS forgot the log after the loss of power, which counts as written
    others = [f"{REPLICAS}/{uuid}" for uuid in disks if uuid not in kept]
    assert volumes(lab) == sorted([*(f"{APART}/{uuid}" for uuid in kept), *others])
    assert [digest(lab, f"{APART}/{uuid}") for uuid in kept] == [lost[disks.index(uuid)] for uuid in kept]

    play(both, "failover_vm", *vm, "-e", "flexdisk_failover_state=given_up")
    assert volumes(lab) == sorted(f"{REPLICAS}/{uuid}" for uuid in disks)
    play(both, "replicate", *vm, "-e", f"flexdisk_replica_host={lab.name}")
    play(both, "move_vm", *vm, "-e", f"flexdisk_target={lab.name}")
    assert (hashes(lab), vmadm(peer)) == (contents, {})
    assert vmadm(lab)["state"] == "running"
    lawful(lab)
