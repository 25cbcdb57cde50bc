# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of VMs of Proxmox VE on real OpenZFS: the playbooks, with a simulated qm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import remote
from harness import Lab

pytestmark = pytest.mark.full
NODE = "/var/lib/simnode-pve"
FILES = f"{NODE}/root/etc/pve/qemu-server"
VOLUME = re.compile(r"^((?:virtio|scsi)\d+): local-zfs:([^,\s]+)", re.MULTILINE)
LINES = re.compile(r"^ +(?:[~+=-]|->) .*|^\d+ VMs?: .*", re.MULTILINE)
# The first MiB of each volume, by its guid. A device comes a moment after its volume.
CONTENTS = """
udevadm settle
zfs list -H -t volume -o name,guid | while read name guid; do
    echo "$guid $(dd if=/dev/zvol/$name bs=1M count=1 status=none | sha256sum)"
done
"""
WEB = [{"name": "root", "boot": True, "size": "2GiB"}, {"name": "data", "pci_slot": "scsi1", "preserve": True}]


class Pve:
    """A node of Proxmox VE in the lab. Each of its volumes has contents of its own."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        lab.reset()
        lab.run(["rm", "-rf", NODE])
        words = [f"PYTHONPATH={remote.NODE_TARGET}", "python3", "-m", "simnode.real_pve", NODE, lab.pool]
        lab.run(["env", *words])
        self._environment = json.dumps({"flexdisk_environment": {"PATH": f"{NODE}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})

    def qm(self, *words: str, check: bool = True) -> str:
        return self.lab.run([f"{NODE}/bin/qm", *words], check=check).stdout

    def fill(self) -> None:
        """Write contents into volumes that have none."""
        for name in self.lab.zfs("list", "-H", "-t", "volume", "-o", "name").splitlines():
            device = f"/dev/zvol/{name}"
            script = (
                f"udevadm settle; cmp -s -n 1048576 {device} /dev/zero && dd if=/dev/urandom of={device} bs=1M count=1"
            )
            self.lab.run(["sh", "-c", f"{script} conv=fsync status=none; sync"])

    def contents(self) -> dict[str, str]:
        return dict(line.split(" ", 1) for line in self.lab.run(["sh", "-c", CONTENTS]).stdout.splitlines())

    def file(self, vmid: int) -> str:
        return self.lab.run(["cat", f"{FILES}/{vmid}.conf"]).stdout

    def slots(self, vmid: int) -> dict[str, str]:
        """The volumes of a VM, by key."""
        return dict(VOLUME.findall(self.file(vmid)))

    def state(self) -> str:
        """All that tasks could change."""
        files = self.lab.run(["sh", "-c", f"cd {NODE}/root/etc && find . -type f | sort | xargs tail -n +1"]).stdout
        properties = "name,guid,volsize,refreservation,flexdisk:name,flexdisk:uuid,flexdisk:preserve,flexdisk:vm"
        return files + self.lab.zfs("list", "-H", "-t", "volume,snapshot,filesystem", "-o", properties)

    def play(self, playbook: str, *words: str, status: int = 0, **variables: Any) -> str:
        """Run a playbook. What it prints."""
        given = [*words, "--diff", "-e", self._environment, "-e", json.dumps(variables)]
        done = self.lab.playbook(Path(f"flexdisk.hypervisor.{playbook}"), *given, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def four_steps(self, playbook: str, **variables: Any) -> list[str]:
        """Check, do, and both again: the second pair changes nothing, and the first check says what is done. The lines
        of the plan.
        """
        before = self.state()
        foreseen = self.play(playbook, "--check", **variables)
        assert self.state() == before
        done = self.play(playbook, **variables)
        assert LINES.findall(done) == LINES.findall(foreseen)
        assert "changed=1" in done
        settled = self.state()
        assert settled != before
        for words in (("--check",), ()):
            assert "changed=0" in self.play(playbook, *words, **variables)
            assert self.state() == settled
        print(playbook, *LINES.findall(done), sep="\n", flush=True)
        return LINES.findall(done)


@pytest.fixture
def pve(lab: Lab) -> Iterator[Pve]:
    """A node with two stopped VMs."""
    made = Pve(lab)
    made.qm("create", "100", "--name", "web", "--memory", "128", "--virtio0", "local-zfs:1", "--scsi1", "local-zfs:1")
    made.qm("set", "100", "--boot", "order=virtio0")
    made.qm("create", "101", "--name", "db", "--memory", "128", "--virtio0", "local-zfs:1")
    made.qm("set", "101", "--boot", "order=virtio0")
    made.fill()
    yield made
    lab.run(["rm", "-rf", NODE])
    lab.reset()


def declared(*disks: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return [{"vm": "web", "disks": list(disks), **options}]


def test_disks_come_change_their_vm_and_go(pve: Pve) -> None:
    """Each volume has at any time what was written to it, and the slots of the others stay."""
    original, contents = pve.file(101), pve.contents()
    slots = pve.slots(100)
    logs = {"name": "logs", "size": "1GiB"}
    pve.four_steps("converge", flexible_disks_vms=declared(*WEB, logs))
    created = {**pve.slots(100)}
    assert {key: created.pop(key) for key in slots} == slots
    assert len(created) == 1
    assert pve.lab.get(f"zones/data/{slots['virtio0']}", "volsize") == {"volsize": str(2 << 30)}
    pve.fill()
    assert contents.items() <= pve.contents().items()
    contents = pve.contents()

    pve.four_steps("detach_disk", flexdisk_vm="web", flexdisk_disk="logs")
    assert (pve.slots(100), pve.contents()) == (slots, contents)
    assert "unused" not in pve.file(100)
    pve.four_steps("attach_disk", flexdisk_vm="db", flexdisk_disk="logs")
    assert set(pve.slots(101)) == {"virtio0", "virtio1"}
    assert pve.contents() == contents
    pve.four_steps("resize_disk", flexdisk_vm="db", flexdisk_disk="logs", flexdisk_disk_size="2GiB")
    assert pve.contents() == contents
    pve.four_steps("remove_disk", flexdisk_vm="db", flexdisk_disk="logs")
    assert len(pve.contents()) == 3
    assert pve.contents().items() <= contents.items()
    assert pve.slots(100) == slots
    assert re.sub(r"serial=\w+,", "", pve.file(101)) == original
    assert "0 findings" in pve.play("verify_disks") or "nothing" in pve.play("verify_disks")


def test_a_disk_outlives_its_vm(pve: Pve) -> None:
    """Nothing that qm does reaches a disk that is detached."""
    pve.four_steps("converge", flexible_disks_vms=declared(*WEB))
    contents = pve.contents()
    pve.four_steps("detach_disk", flexdisk_vm="web", flexdisk_disk="data")
    pve.qm("destroy", "100", "--purge", "1", "--destroy-unreferenced-disks", "1")
    left = pve.contents()
    assert len(left) == 2
    assert left.items() <= contents.items()
    pve.four_steps("attach_disk", flexdisk_vm="db", flexdisk_disk="data")
    assert pve.contents() == left


def test_a_smaller_disk_and_snapshots(pve: Pve) -> None:
    """The rest of the contents stays as it was. A rollback brings back what a snapshot had."""
    pve.four_steps("converge", flexible_disks_vms=declared(*WEB))
    for playbook in ("detach_disk", "attach_disk"):  # the place of detached disks tells how large a sector is
        pve.play(playbook, flexdisk_vm="web", flexdisk_disk="data")
    before = pve.contents()
    pve.four_steps("snapshot", flexdisk_vm="web", flexdisk_snapshot_name="before")
    device = f"/dev/zvol/zones/data/{pve.slots(100)['scsi1']}"
    pve.lab.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", "count=1", "conv=fsync", "status=none"])
    assert pve.contents() != before
    pve.four_steps("rollback", flexdisk_vm="web", flexdisk_snapshot_name="before")
    assert pve.contents() == before
    pve.four_steps("snapshot", flexdisk_vm="web", flexdisk_snapshot_name="before", flexdisk_snapshot_state="absent")
    smaller = {"name": "root", "boot": True, "size": "1GiB", "dangerous_allow_shrink": True}
    pve.four_steps("converge", flexible_disks_vms=declared(smaller, WEB[1]))
    assert pve.contents() == before


def test_of_a_running_vm(pve: Pve) -> None:
    """Disks come, grow and go without a stop."""
    pve.four_steps("converge", flexible_disks_vms=declared(*WEB))
    pve.qm("start", "100")
    contents = pve.contents()
    pve.four_steps("add_disk", flexdisk_vm="web", flexdisk_disk="logs", flexdisk_disk_size="1GiB")
    pve.four_steps("resize_disk", flexdisk_vm="web", flexdisk_disk="logs", flexdisk_disk_size="2GiB")
    pve.four_steps("detach_disk", flexdisk_vm="web", flexdisk_disk="logs")
    assert contents.items() <= pve.contents().items()
    assert "status: running" in pve.qm("status", "100")
