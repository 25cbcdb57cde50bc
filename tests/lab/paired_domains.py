# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A domain with three disks that both machines of the lab can have: two volumes, and a file or a third one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import guests
from guests import Disk, Guest
from harness import Lab
from pair import Both

NAME = "db01"


def paired_domains(lab: Lab, peer: Lab, third: str = "file") -> Iterator[Both]:
    """Both machines, with a domain with three named disks and data on the first. The second disk is preserved.

    third: the type of the third one.
    """
    here = Guest(lab, NAME)
    clear(lab, peer)
    root = f"zones/{guests.uuid(1)}"
    lab.zfs("create", "-o", "mountpoint=none", "-o", "volmode=dev", root)
    volumes = [Disk(f"{root}/disk{number}", number + 1, f"unknown-{number}") for number in range(2)]
    for volume in volumes:
        lab.zfs("create", "-V", "48M", volume.dataset)
    lab.run(["udevadm", "settle"])
    here.define(volumes)
    here.virsh("desc", "--title", "It costs $5")
    here.virsh("autostart")
    entries: list[dict[str, Any]] = [{"name": "root", "pci_slot": "1:0:0"}, {"name": "data", "pci_slot": "2:0:0"}]
    entries[1]["preserve"] = True
    entries.append({"name": "logs", "type": third, "size": 32})
    converge(lab, {"flexible_disk_size": "1GiB", "disks": entries})
    for disk in disks(lab).values():
        fill(lab, disk["path"], 0, 32)
    variables = {"flexible_disks_hypervisor": "libvirt", "flexible_disks_stop_timeout": 600}
    allowed = [guests.FOLDER, guests.SOCKETS, guests.LOGS]  # kernel and console of its guest
    replicas = [{"vm": NAME, "host": peer.name}]
    yield Both(lab, peer, flexdisk_replicas=replicas, flexdisk_incoming_allowed=allowed, **variables)
    clear(lab, peer)


def clear(*machines: Lab) -> None:
    """No domain, nothing in the pools, and no records of VMs of the other machine."""
    for machine in machines:
        Guest(machine, NAME).remove()
        machine.reset()
        machine.run(["rm", "-rf", "/var/lib/flexdisk/failover", "/var/lib/flexdisk/moves"])


def converge(lab: Lab, declared: dict[str, Any]) -> None:
    """The domain gets these disks."""
    words = {"hypervisor": "libvirt", "vms": [{"vm": NAME, **declared}]}
    lab.ad_hoc("flexdisk.hypervisor.vm_disks", json.dumps(words))


def disks(lab: Lab) -> dict[str, Any]:
    """The disks of the domain by their names."""
    said = lab.ad_hoc("flexdisk.hypervisor.disk_info", json.dumps({"hypervisor": "libvirt"})).stdout
    return {disk["name"]: disk for disk in json.loads(said[said.index("{") :])["disks"]}


def fill(lab: Lab, path: str, start: int, count: int) -> None:
    """Write so many MiB of random data."""
    lab.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"seek={start}", f"count={count}", "conv=fsync,notrunc"])


def contents(lab: Lab) -> dict[str, str]:
    """The hashes of the domain's disks by their names."""
    return {name: lab.run(["sha256sum", disk["path"]]).stdout.split()[0] for name, disk in disks(lab).items()}


def definition(lab: Lab) -> list[str]:
    """The lines of the domain's configuration. libvirt puts controllers in an order of its own."""
    return sorted(Guest(lab, NAME).virsh("dumpxml", "--inactive", "--security-info").splitlines())


def state(lab: Lab) -> str:
    """What libvirt says of the domain, "" if it is not there."""
    return lab.run(["virsh", "-q", "domstate", NAME], check=False).stdout.strip()


def autostarts(lab: Lab) -> bool:
    """Whether libvirt starts the domain with its host."""
    return "Autostart:      enable" in Guest(lab, NAME).virsh("dominfo")
