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

pytestmark = pytest.mark.full
VM = "aaaaaaaa-0000-4000-8000-000000000203"
SIZES = (96, 64, 48)
APART = "zones/flexdisk/diverged"
REPLICAS = "zones/flexdisk/replica"


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A running VM with three disks and with data. It has room for a snapshot."""
    clear(lab, peer)
    payload = {
        "uuid": VM,
        "alias": "db01",
        "brand": "bhyve",
        "ram": 128,
        "vcpus": 1,
        "quota": 1,
        "autoboot": True,
        "flexible_disk_size": 3 * sum(SIZES),
        "customer_metadata": {"role": "database"},
        "disks": [{"boot": number == 0, "model": "virtio", "size": size} for number, size in enumerate(SIZES)],
    }
    lab.run(["vmadm", "create"], stdin=json.dumps(payload))
    for number, size in enumerate(SIZES):
        write(lab, number, 0, size // 2)
    yield Both(lab, peer, flexdisk_replicas=[{"vm": "db01", "host": peer.name}])
    clear(lab, peer)


def clear(*machines: Lab) -> None:
    """No VMs, and no records of those that could be taken over."""
    for one in machines:
        one.reset()
        one.run(["rm", "-rf", "/var/lib/flexdisk/failover", "/var/lib/flexdisk/moves"])


def write(lab: Lab, disk: int, start: int, count: int) -> None:
    """Write so many MiB of random data."""
    device = f"/dev/zvol/zones/{VM}/disk{disk}"
    lab.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"seek={start}", f"count={count}", "conv=fsync,notrunc"])


def machine(lab: Lab) -> dict[str, object]:
    """What vmadm says of the VM, {} if it is not there."""
    found = json.loads(lab.run(["vmadm", "lookup", "-j", f"uuid={VM}"]).stdout)
    return found[0] if found else {}


def digest(lab: Lab, dataset: str) -> str:
    """The contents of a volume."""
    lab.run(["udevadm", "settle"])
    return lab.run(["sha256sum", f"/dev/zvol/{dataset}"]).stdout.split()[0]


def hashes(lab: Lab) -> list[str]:
    """The contents of the VM's disks."""
    return [digest(lab, f"zones/{VM}/disk{number}") for number in range(len(SIZES))]


def volumes(lab: Lab) -> list[str]:
    """Those of the collection that are no disks of VMs."""
    return lab.zfs("list", "-H", "-o", "name", "-t", "volume", "-r", "zones/flexdisk").split()


def play(both: Both, playbook: str, *words: str, status: int = 0) -> str:
    """What the playbook prints."""
    done = both.play(playbook, *words)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def lose_power(lab: Lab) -> None:
    """The VM is down when the machine is back: the simulated vmadm would say that it runs."""
    lab.run(["sync"])
    lab.lose_power()
    lab.run(["vmadm", "stop", VM, "-F"])


def lawful(lab: Lab) -> None:
    """Check that quota and reservation need no repair."""
    assert '"changed": false' in lab.ad_hoc("flexdisk.hypervisor.zfs_quota", json.dumps({"vms": ["db01"]})).stdout


def test_a_failover_and_the_way_back(lab: Lab, peer: Lab, both: Both) -> None:
    """The VM comes back as it was at the last sync. What it wrote since is kept on its old host until the word."""
    vm = ["-e", "flexdisk_vm=db01"]
    to = [*vm, "-e", f"flexdisk_target={peer.name}", "-e", "flexdisk_fenced=true", "-e", "flexdisk_max_data_loss=3600"]
    lab.ad_hoc("flexdisk.hypervisor.vm_snapshot", json.dumps({"vm": "db01", "name": "before"}))
    play(both, "replicate", "-e", "flexdisk_failover=true")
    write(lab, 0, 3, 20)
    play(both, "replicate")
    before, contents = machine(lab), hashes(lab)
    assert before["autoboot"] is False
    uuids = [disk["uuid"] for disk in before["disks"]]  # type: ignore[attr-defined]
    write(lab, 1, 40, 9)
    lost = hashes(lab)
    lose_power(lab)

    assert f"{lab.name}, the host of db01, answers" in play(both, "failover_vm", *to, status=2)
    both.hide(lab.name)
    play(both, "failover_vm", *to)
    after = machine(peer)
    for key in ("state", "autoboot", "customer_metadata", "flexible_disk_size", "nics"):
        assert after[key] == before[key], key
    assert hashes(peer) == contents
    taken = peer.zfs("list", "-H", "-o", "name", "-t", "snapshot", "-r", f"zones/{VM}").split()
    assert sum(name.endswith("before") for name in taken) == len(SIZES) + 1
    lawful(peer)

    both.hide("")
    assert f"{peer.name} has taken it over" in play(both, "start_host", "--limit", lab.name)
    assert machine(lab)["state"] == "stopped"
    assert hashes(lab) == lost
    write(peer, 2, 30, 9)
    contents = hashes(peer)
    play(both, "failover_vm", *vm, "-e", "flexdisk_failover_state=returned")
    assert machine(lab) == {}
    kept = [uuid for uuid in uuids if f"{APART}/{uuid}" in volumes(lab)]
    assert uuids[1] in kept  # and disks of which ZFS forgot the log after the loss of power, which counts as written
    others = [f"{REPLICAS}/{uuid}" for uuid in uuids if uuid not in kept]
    assert volumes(lab) == sorted([*(f"{APART}/{uuid}" for uuid in kept), *others])
    assert [digest(lab, f"{APART}/{uuid}") for uuid in kept] == [lost[uuids.index(uuid)] for uuid in kept]

    play(both, "failover_vm", *vm, "-e", "flexdisk_failover_state=given_up")
    assert volumes(lab) == sorted(f"{REPLICAS}/{uuid}" for uuid in uuids)
    play(both, "replicate", *vm, "-e", f"flexdisk_replica_host={lab.name}")
    play(both, "move_vm", *vm, "-e", f"flexdisk_target={lab.name}")
    assert (hashes(lab), machine(peer)) == (contents, {})
    assert machine(lab)["state"] == "running"
    lawful(lab)
