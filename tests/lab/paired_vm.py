# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM of vmadm with three disks that both machines of the lab can have, and with failover."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness import Lab
from pair import Both

VM = "aaaaaaaa-0000-4000-8000-000000000203"
SIZES = (96, 64, 48)


def paired_vm(lab: Lab, peer: Lab, passphrases: tuple[str, str] = ("", "")) -> Iterator[Both]:
    """Both machines, with a running VM with data. It has room for a snapshot.

    passphrases: of the pools of both, "" for one that is not encrypted.
    """
    for machine, passphrase in zip((lab, peer), passphrases, strict=True):
        clear(machine, passphrase)
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
    for machine in (lab, peer):
        clear(machine)


def clear(lab: Lab, passphrase: str = "") -> None:
    """No VMs, and no records of those that could be taken over."""
    lab.reset(passphrase)
    lab.run(["rm", "-rf", "/var/lib/flexdisk/failover", "/var/lib/flexdisk/moves"])


def write(lab: Lab, disk: int, start: int, count: int) -> None:
    """Write so many MiB of random data."""
    device = f"/dev/zvol/zones/{VM}/disk{disk}"
    lab.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"seek={start}", f"count={count}", "conv=fsync,notrunc"])


def vmadm(lab: Lab) -> dict[str, object]:
    """What vmadm says of the VM, {} if it is not there."""
    found = json.loads(lab.run(["vmadm", "lookup", "-j", f"uuid={VM}"]).stdout)
    return found[0] if found else {}


def uuids(lab: Lab) -> list[str]:
    """Those of the VM's disks."""
    return [disk["uuid"] for disk in vmadm(lab)["disks"]]  # type: ignore[attr-defined]


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
