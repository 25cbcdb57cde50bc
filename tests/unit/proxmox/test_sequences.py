# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random tasks one after the other on Proxmox VE: check mode says each, and a second run does nothing.

Nothing is lost that no task gave up by name, and nothing of another VM is touched. C(FLEXDISK_FULL=1) does 200 times 20
tasks. C(FLEXDISK_SEED) is the first seed.
"""

from __future__ import annotations

import json
import os
import random

import pytest
from simnode.zfs import extents

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_config import VmFile
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import vm_record
from tests.unit.four_steps import four_steps

from .test_registry import adoption, steps
from .test_snapshots import Snapshots

FULL = bool(os.environ.get("FLEXDISK_FULL"))
SEQUENCES, TASKS = (200, 20) if FULL else (4, 8)
PARTS = 8 if FULL else SEQUENCES  # tests, so that they run beside each other
FOLDER = "etc/pve/nodes/pve1/qemu-server"
DB = "cccccccc-0000-4000-8000-000000000002"
DB_FILE = f"""#another one
boot: order=scsi0
name: db
scsi0: local-zfs:vm-101-disk-0,size=1G
scsi1: thick:vm-101-disk-0,backup=0,size=512M
scsihw: virtio-scsi-single
smbios1: uuid={DB}
unused0: thick:vm-101-disk-1
"""
OTHERS = ("rpool/data/vm-101-disk-0", "tank/vms/vm-101-disk-0", "tank/vms/vm-101-disk-1", "tank/vms/vm-999-disk-0")
MIB = 1 << 20


class Allowed:
    """What a task may do to volumes, by their guids: destroy them, cut them off, give them other contents, or take
    snapshots away.
    """

    def __init__(self):
        self.destroyed, self.cut, self.rolled, self.snapshots = set(), {}, set(), set()


class Node(Snapshots):
    """Two VMs and volumes that nobody knows, all with contents. One task after the other concerns the first VM."""

    def __init__(self, chance):
        super().__init__()
        self.chance = chance
        for volume in OTHERS:
            self.run("zfs", "create", "-V", "512M" if "tank" in volume else "1G", volume)
        self.write("nodes/pve1/qemu-server/101.conf", DB_FILE)
        self.run("zfs", "create", "-V", "64M", "tank/backup")
        self.done({"name": "root"}, {"name": "data"})
        for volume in self.volumes():
            self.write_to(volume)
        self.run("zfs", "snapshot", "tank/vms/vm-101-disk-1@mine")
        self.run("zfs", "snapshot", "tank/vms/vm-100-disk-0@mine")

    def volumes(self):
        return self.run("zfs", "list", "-Ho", "name", "-t", "volume").split()

    def write_to(self, volume, seed=None):
        self.run("guest", "write", volume, "0", "4", str(seed or self.chance.randrange(10**6)))

    # -- what is there

    def contents(self):
        """Size and blocks of each volume and snapshot by guid."""
        found = {}
        for pool in self.node.pools.pools.values():
            for dataset in pool.datasets.values():
                for one in (dataset, *dataset.snapshots) if dataset.volsize else ():
                    found[one.guid] = (dataset.guid, one.volsize, one.extents)
        return found

    def others(self):
        """All of the other VM and of nobody's volumes: files and properties."""
        properties = [self.run("zfs", "get", "-Hp", "all", volume) for volume in (*OTHERS, "tank/backup")]
        lines = [line for text in properties for line in text.splitlines() if "\tavailable\t" not in line]
        return (self.files / FOLDER / "101.conf").read_bytes(), lines

    def lines(self):
        """What the file of the VM has beside disks, unused volumes, and what goes with snapshots."""
        values = VmFile(self.path.read_bytes()).main.values
        return {k: v for k, v in values.items() if not (pve_disk.is_disk_key(k) or k in ("boot", "parent"))}

    def check(self, before, others, lines, allowed):
        now = self.contents()
        for guid, (owner, size, blocks) in before.items():
            if owner in allowed.destroyed or guid in allowed.snapshots:
                continue
            assert guid in now, "lost"
            if owner in allowed.rolled and guid == owner:
                continue
            length = min(size, allowed.cut.get(guid, size))
            assert now[guid][1] >= length
            digests = [extents.digest(one, 0, length) for one in (blocks, now[guid][2])]
            assert digests[0] == digests[1], "other contents"
        assert self.others() == others
        assert self.lines() == lines


# -- tasks: each returns how it goes, and what it may do


def grow(node):
    disk = node.chance.choice(node.vm().disks)
    size = f"{disk.size_mib + node.chance.choice((1, 512, 1000))}MiB"
    return vm_disks(node, {"name": disk.name, "size": size})


def shrink(node):
    allowed, disk = Allowed(), node.chance.choice(node.vm().disks)
    if node.running or disk.size_mib < 64:
        return describe(node)
    allowed.cut[disk.volume.guid] = disk.size // 2 // MIB * MIB
    entry = {"name": disk.name, "size": f"{disk.size_mib // 2}MiB", "dangerous_allow_shrink": True}
    return vm_disks(node, entry, allowed=allowed)


def create(node):
    taken = {disk.key for disk in node.vm().disks}
    keys = [key for key in (f"{bus}{n}" for bus in ("virtio", "scsi") for n in range(2, 15)) if key not in taken]
    slot = {"pci_slot": node.chance.choice(keys)} if node.chance.random() < 0.5 else {}
    kind = node.chance.choice(("thick", "sparse"))
    return vm_disks(node, {"name": f"d{node.chance.randrange(10**6)}", "size": "64MiB", "type": kind, **slot})


def describe(node):
    disk = node.chance.choice(node.vm().disks)
    entry = {"name": disk.name, "description": str(node.chance.random()), "preserve": not disk.preserve}
    return vm_disks(node, entry)


def rename(node):
    disk = node.chance.choice(node.vm().disks)
    return vm_disks(node, {"uuid": disk.uuid, "name": f"n{node.chance.randrange(10**6)}"})


def free(node):
    """The disks that may leave: none that a snapshot of the VM has."""
    vm = node.vm()
    held = {volume for one in vm.config.snapshots for volume in one.volumes}
    return [disk for disk in vm.disks if not disk.boot and disk.volume.name not in held]


def leave(node):
    """Detach or destroy disks, by what happens to those that are not listed."""
    going, vm, how = (
        [d for d in free(node) if node.chance.random() < 0.4],
        node.vm(),
        node.chance.choice(("detach", "destroy")),
    )
    allowed, uuids = Allowed(), {disk.uuid for disk in going}
    for disk in going if how == "destroy" else ():
        if not disk.preserve:
            allowed.destroyed.add(disk.volume.guid)
    stay = [{"uuid": disk.uuid} for disk in vm.disks if disk.uuid not in uuids]
    if any(disk.snapshots for disk in going if disk.volume.guid in allowed.destroyed):
        return describe(node)
    return vm_disks(node, *stay, allowed=allowed, vm={"unlisted": how})


def drop(node):
    allowed, vm = Allowed(), node.vm()
    choice = node.chance.choice([*free(node), *vm.detached] or [None])
    if choice is None:
        return create(node)
    allowed.destroyed.add(choice.volume.guid)
    return vm_disks(node, {"uuid": choice.uuid, "state": "absent", "destroy_snapshots": True}, allowed=allowed)


def come_back(node):
    gone = node.vm().detached
    return vm_disks(node, {"uuid": node.chance.choice(gone).uuid}) if gone else create(node)


def one_disk(node):
    """By the module disk."""
    gone = node.vm().detached
    if gone and node.chance.random() < 0.6:
        entry = {"uuid": node.chance.choice(gone).uuid, "vm": "web", "state": "attached"}
    elif free(node):
        entry = {"uuid": node.chance.choice(free(node)).uuid, "vm": "web", "state": "detached"}
    else:
        entry = {"name": f"s{node.chance.randrange(10**6)}", "vm": "web", "size": "64MiB"}
    return lambda: steps(node, entry), Allowed()


def adopt(node):
    return lambda: four_steps(node, lambda check: adoption(node, [{"vm": "web"}], check=check)), Allowed()


def snapshot(node):
    name = f"s{node.chance.randrange(10**6)}"
    return lambda: node.steps(name), Allowed()


def delete(node):
    names = [one.name for one in node.vm().config.snapshots]
    if not names:
        return snapshot(node)
    name, allowed = node.chance.choice(names), Allowed()
    allowed.snapshots = parts(node, name)
    return lambda: node.steps(name, state="absent"), allowed


def roll_back(node):
    """To the newest one, as long as the VM has its disks, and nothing newer is there."""
    vm, allowed = node.vm(), Allowed()
    newest = [one.name for one in vm.config.snapshots if one.name == node.setting("parent")]
    ours = {volume for one in vm.config.snapshots for volume in one.volumes if one.name in newest}
    last = {disk.snapshots[-1].name.partition("@")[2] for disk in vm.disks if disk.snapshots}
    if node.running or not newest or ours != {disk.volume.name for disk in vm.disks} or last != {*newest}:
        return snapshot(node)
    if any(one.disks_differ for one in vm.config.snapshots if one.name in newest):
        return describe(node)
    allowed.rolled = {disk.volume.guid for disk in vm.disks}
    return lambda: node.steps(newest[0], state="rolled_back"), allowed


def parts(node, name):
    return {s.guid for disk in node.vm().disks for s in disk.snapshots if s.name.endswith(f"@{name}")}


def vm_disks(node, *entries, allowed=None, **more):
    return lambda: node.four_steps(*entries, **more), allowed or Allowed()


KINDS = (grow, shrink, create, describe, rename, leave, drop, come_back, one_disk, adopt, snapshot, delete, roll_back)


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_comes_after_what(part):
    first = int(os.environ["FLEXDISK_SEED"]) if FULL else 0
    for seed in range(first + part, first + SEQUENCES, PARTS):
        sequence(seed)


def sequence(seed):
    chance = random.Random(seed)
    node = Node(chance)
    done = []
    try:
        for _number in range(TASKS):
            one(node, chance, done)
    except BaseException:
        print(f"seed {seed}: {json.dumps(done)}")
        raise


def one(node, chance, done):
    """One task, with all that people do beside."""
    if chance.random() < 0.3:
        node.run("qm", "stop" if node.running else "start", "100")
    if chance.random() < 0.3:
        node.write_to(chance.choice(node.vm().disks).volume.name)
    kind = chance.choice(KINDS)
    done.append(kind.__name__)
    keys = {disk.uuid: disk.key for disk in node.vm().disks}
    go, allowed = kind(node)
    before, others, lines = node.contents(), node.others(), node.lines()
    go()
    node.check(before, others, lines, allowed)
    vm = node.vm()
    now = {disk.uuid: disk.key for disk in vm.disks}
    assert {uuid: key for uuid, key in keys.items() if uuid in now} == {u: k for u, k in now.items() if u in keys}
    assert (vm.orphans, vm.missing, vm.interrupted) == ((), (), None)
    assert "[PENDING]" not in node.file
    assert "unused" not in node.file
    assert vm_record.differences(vm.config, vm.disks) == []
    if node.running:
        assert node.plugged() == {disk.key: disk.size_mib for disk in vm.disks}
