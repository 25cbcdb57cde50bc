# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random sequences of qm and pvesm: every command ends as a program does, and what it writes can be read."""

from __future__ import annotations

import os
import random

import pytest
from simnode.pve import config_text

from tests.unit.simnode.pve_support import PveNode

SEED = int(os.environ["FLEXDISK_SEED"])
SEQUENCES, LENGTH = 12, 60
VMS = ("100", "101", "102")
KEYS = ("virtio0", "virtio1", "scsi0", "scsi1", "sata0", "ide2", "unused0", "unused1", "efidisk0", "memory", "boot")
VALUES = (
    "local-zfs:1",
    "thick:0.5",
    "local-zfs:vm-100-disk-1",
    "local-zfs:vm-101-disk-0,serial=x",
    "local-zfs:vm-100-disk-1,iothread=1,mbps=5",
    "local-zfs:base-100-disk-0/vm-101-disk-0",
    "local:iso/debian.iso,media=cdrom",
    "none,media=cdrom",
    "/dev/zvol/rpool/data/vm-100-disk-0",
    "nowhere:1",
    "256",
    "order=virtio0;virtio1",
)
LINES = (
    "qm set VM --KEY VALUE",
    "qm set VM --KEY VALUE --KEY VALUE",
    "qm set VM --delete KEY",
    "qm set VM --delete KEY,KEY --force 1",
    "qm set VM --revert KEY",
    "qm set VM --scsihw virtio-scsi-pci",
    "qm set VM --protection 1",
    "qm set VM --hotplug 0",
    "qm set VM --lock backup",
    "qm resize VM KEY +1G",
    "qm disk move VM KEY --target-vmid VM --target-disk KEY",
    "qm disk move VM KEY thick --delete 1",
    "qm disk rescan",
    "qm start VM",
    "qm stop VM",
    "qm shutdown VM --timeout 3",
    "qm reboot VM",
    "qm suspend VM --todisk 1",
    "qm snapshot VM s1",
    "qm snapshot VM s2 --vmstate 1",
    "qm delsnapshot VM s1",
    "qm rollback VM s1",
    "qm clone VM VM",
    "qm template VM",
    "qm create VM --name new --virtio0 local-zfs:1",
    "qm destroy VM --destroy-unreferenced-disks 1",
    "qm unlock VM",
    "qm config VM",
    "qm pending VM",
    "qm listsnapshot VM",
    "qm list",
    "pvesm list local-zfs",
    "pvesm free VALUE",
    "pvesm alloc thick VM free 64M",
)


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_a_random_sequence(number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    node = PveNode()
    done = 0
    for _step in range(LENGTH):
        if chance.random() < 0.1:
            node.admin("pve-guest", chance.choice(VMS), chance.choice(("deaf", "answers")))
        line = chance.choice(LINES)
        for word, choices in (("VM", VMS), ("KEY", KEYS), ("VALUE", VALUES)):
            while f" {word}" in line or f",{word}" in line or f"-{word}" in line:
                line = line.replace(word, chance.choice(choices), 1)
        status, _out, err = node.run(*line.split())
        assert status == 0 or err, line
        done += status == 0
        for vmid in map(int, VMS):
            text = node.file(vmid)
            if text is not None:
                lost: list[str] = []
                again = config_text.write(config_text.parse(vmid, text, lost.append))
                assert (again.replace("boot:  ", "boot: "), lost) == (text.replace("boot:  ", "boot: "), []), line
    assert done > LENGTH / 10
