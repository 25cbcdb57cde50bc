# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are there get names and lose them again: files of VMs stay byte for byte, and ZFS as it was."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path

import pytest
from simnode.pve import on_node

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk_adopt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_config import VmFile
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.pve_disk import is_unused_key
from tests.conformance import proxmox
from tests.unit.four_steps import four_steps

from .test_leaving import record
from .test_verified import findings
from .world import ROOT_DISK, VM, Fault, Killed, World, changes_of

FULL = bool(os.environ.get("FLEXDISK_FULL"))
STEP = 1 if FULL else 12  # of the states of all cases, how many are left out


class Recorded(World):
    """A node in the state before a case that was recorded. Each VM gets a UUID, and the first one the name web."""

    def __init__(self, case):
        directory = Path(tempfile.mkdtemp(prefix="pve"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.node, _host = proxmox.prepare(case, directory)
        self.files = directory / on_node.FOLDER
        self.calls, self.spoil = [], None
        self.folder = self.files / "etc/pve/nodes/pve1/qemu-server"
        for number, path in enumerate(sorted(self.folder.glob("*.conf"))):
            path.write_bytes(identified(path.read_bytes(), f"cccccccc-0000-4000-8000-{number:012}"))

    def configs(self):
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.conf"))}

    def facts(self):
        """The properties of ours on all datasets but the containers."""
        lines = self.run("zfs", "get", "-Hpo", "name,property,value,source", "all").splitlines()
        rows = [line.split("\t") for line in lines if "\tflexdisk:" in line]
        return [row for row in rows if "@" not in row[0] and not row[0].endswith("/flexdisk")]


def identified(content, uuid):
    """The file of a VM with a UUID, in front of all that its main section has."""
    return content if b"smbios1: " in content.partition(b"\n[")[0] else f"smbios1: uuid={uuid}\n".encode() + content


def states():
    """The states before all cases, each once."""
    found = {}
    for name, case in proxmox.cases().items():
        before = {key: case["before"].get(key) for key in ("config", "volumes", "storage_cfg", "running", "plugged")}
        if before["config"] and "flock" not in case.get("inject", {}) and case["argv"][:2] != ["qm", "rollback"]:
            found.setdefault(json.dumps(before, sort_keys=True), (name, case))
    return dict(found.values())


def adoption(world, state="adopted", check=False, forget=False):
    return disk_adopt.run(world.zfs, world.driver, None, state, forget, None, check)


STATES = states()


@pytest.mark.parametrize("start", range(STEP if FULL else 1))
def test_adoption_of_what_was_recorded_is_done_and_undone(start):
    """A VM that must not be changed is refused, and then nothing of the node is changed."""
    done = 0
    for name, case in itertools.islice(STATES.items(), start, None, STEP):
        world = Recorded(case)
        configs, before = world.configs(), world.facts()
        if adoption(world, check=True).outcome.problems:
            assert adoption(world).outcome.problems, name
            assert (world.configs(), world.facts()) == (configs, before), name
            continue
        four_steps(world, lambda check, world=world: adoption(world, check=check))
        adopted = world.facts()
        assert world.configs() == configs, name
        if any("would become unknown" in one.message for one in adoption(world, "released", True).outcome.problems):
            assert "flexdisk" in json.dumps(case["before"]), name
            continue
        four_steps(world, lambda check, world=world: adoption(world, "released", check, forget=True))
        assert (world.configs(), world.facts()) == (configs, [row for row in before if row[3] != "local"]), name
        assert not [*world.files.glob("etc/pve/flexdisk/*.json")], name
        done += adopted != before
    assert done > 10


# -- a release


def released(world, check=False, forget=False):
    world.calls.clear()
    return disk_adopt.run(world.zfs, world.driver, [{"vm": "web"}], "released", forget, None, check)


def adopted(world, check=False):
    world.calls.clear()
    return disk_adopt.run(world.zfs, world.driver, [{"vm": "web"}], "adopted", False, None, check)


def rich():
    world = World()
    world.done({"name": "root", "description": "of the shop"}, {"name": "data", "preserve": True, "tags": {"a": "b"}})
    return world


@pytest.mark.parametrize("running", [False, True])
def test_a_release_is_undone_by_an_adoption(running):
    """What the identities were is kept on the volumes, and nothing in the record. No other task brings them back."""
    world = rich()
    if running:
        world.run("qm", "start", "100")
    before, file = record(world), world.file
    done = four_steps(world, lambda check: released(world, check))
    assert "- 2 disks out of the record of the VM" in done.outcome.diff
    assert (record(world), world.file) == ({}, file)
    assert [key for disk in world.vm().disks for key in disk.volume.user] == ["released", "released"]
    assert not any(kind == "record_differs" for kind, _disk in findings(world))
    assert not world.done(vm={"disks": None}).changed
    assert record(world) == {}
    four_steps(world, lambda check: adopted(world, check))
    assert plain(record(world)) == plain(before)
    assert world.disks()["data"].preserve


def plain(disks):
    return {serial: {k: v for k, v in one.items() if k not in ("mtime", "serial_no")} for serial, one in disks.items()}


def test_a_disk_that_only_the_record_knows_is_released_too():
    """Proxmox VE has moved it to another storage: its identity is saved on the new volume."""
    world = rich()
    for name in world.disks()["root"].volume.user:
        world.run("zfs", "inherit", f"flexdisk:{name}", "rpool/data/vm-100-disk-0")
    four_steps(world, lambda check: released(world, check))
    four_steps(world, lambda check: adopted(world, check))
    root = world.disks()["root"]
    assert (root.uuid, root.user_properties["description"]) == (ROOT_DISK, "of the shop")


def test_what_a_release_returns_brings_back_what_it_forgot():
    """The disks of two pools have the same number, so the entries have their keys."""
    world = rich()
    before = plain(record(world))
    done = released(world, forget=True)
    assert [one["pci_slot"] for one in done.released[0]["disks"]] == ["virtio0", "scsi1"]
    disk_adopt.run(world.zfs, world.driver, done.released, "adopted", False, None, False)
    assert plain(record(world)) == before


def test_what_flexible_disk_size_is_stays():
    """It is a promise to the VM, and no identity of a disk."""
    world = World()
    world.done({"name": "root"}, {"name": "data"}, vm={"flexible_disk_size": "20GiB"})
    four_steps(world, lambda check: released(world, check, forget=True))
    assert world.vm().config.flexible_disk_size == 20480
    assert record(world) == {}


def test_a_release_is_refused_while_a_disk_is_detached():
    world = rich()
    world.done({"name": "root"}, vm={"unlisted": "detach"})
    before = world.fingerprint()
    (problem,) = released(world).outcome.problems
    assert "is detached and would become unknown; attach or destroy it first" in problem.message
    assert world.fingerprint() == before


@pytest.mark.parametrize("forget", [False, True])
def test_a_release_that_is_interrupted(forget):
    """At every command: the same task ends it, and the VM is as if nothing had happened."""
    world = rich()
    straight = changes_of(world, lambda: released(world, forget=forget))
    picture = facts_of(world)
    assert len(straight) > 4
    for number in straight:
        for effect in (False, True):
            again = rich()
            again.calls.clear()
            Fault(number, effect)(again)
            with contextlib.suppress(Killed):
                released(again, forget=forget)
            again.spoil = None
            four_steps_or_done(again, forget)
            assert facts_of(again) == picture, (number, effect)


def four_steps_or_done(world, forget):
    done = released(world, forget=forget)
    assert (done.outcome.problems, done.outcome.failure) == ([], None)
    assert not released(world, forget=forget).outcome.changed


def facts_of(world):
    users = [{k: "" if k == "released" else v for k, v in disk.volume.user.items()} for disk in world.vm().disks]
    return users, world.file, record(world)


# -- files as people have them

FILES = {
    "several buses": """#The shop.
#Ask before you touch it%3A 5%25
agent: 1,fstrim_cloned_disks=1
balloon: 1024
bios: ovmf
boot: order=scsi0;ide2;net0
cores: 4
cpu: x86-64-v2-AES
efidisk0: local-zfs:vm-100-disk-0,efitype=4m,pre-enrolled-keys=1,size=4M
hostpci0: 0000:01:00,pcie=1
ide0: local-zfs:vm-100-disk-1,size=1G
ide2: local:iso/debian-12.iso,media=cdrom,size=631M
machine: q35
memory: 4096
name: web
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=20
numa: 1
onboot: 1
ostype: l26
sata1: thick:vm-100-disk-0,backup=0,size=512M
scsi0: local-zfs:vm-100-disk-2,cache=writeback,discard=on,iothread=1,size=4G,ssd=1
scsi3: thick:vm-100-disk-1,mbps_rd=100,serial=OWNSERIAL,size=1G
scsihw: virtio-scsi-single
smbios1: uuid={vm},manufacturer=UUVNVQ==,base64=1
startup: order=2,up=30
tags: prod;shop
tpmstate0: local-zfs:vm-100-disk-3,size=4M,version=v2.0
unused0: local-zfs:vm-100-disk-4
usb0: host=1-2
vga: qxl
virtio2: thick:vm-100-disk-2,aio=io_uring,replicate=0,size=1G
vmgenid: 5212c5c4-e126-43fc-88a6-57a1a94f3963
""",
    "snapshots": """boot: order=virtio0
memory: 512
name: web
parent: later
scsihw: virtio-scsi-pci
smbios1: uuid={vm}
virtio0: local-zfs:vm-100-disk-2,size=4G
virtio1: thick:vm-100-disk-1,size=1G

[early]
#before%3A the upgrade
boot: order=virtio0
memory: 256
name: web
scsihw: virtio-scsi-pci
smbios1: uuid={vm}
snaptime: 1767225600
virtio0: local-zfs:vm-100-disk-2,size=4G

[later]
boot: order=virtio0
memory: 512
name: web
parent: early
scsihw: virtio-scsi-pci
smbios1: uuid={vm}
snaptime: 1767225700
virtio0: local-zfs:vm-100-disk-2,size=4G
virtio1: thick:vm-100-disk-1,size=1G
""",
    "old": """bootdisk: ide0
boot: c
description: made long ago%0Aby hand
ide0: local-zfs:vm-100-disk-2,size=32G
ide3: none,media=cdrom
memory: 512
name: web
net0: e1000=BC:24:11:00:00:02,bridge=vmbr1
smbios1: uuid={vm}
virtio5: volume=thick:vm-100-disk-1,size=1048576K
""",
    "cloud-init": """boot: order=scsi0
cicustom: user=local:snippets/user.yaml
ciuser: admin
ide2: local-zfs:vm-100-cloudinit,media=cdrom
ipconfig0: ip=dhcp
memory: 512
name: web
scsi0: local-zfs:vm-100-disk-2,discard=on
scsi1: local-zfs:vm-100-disk-1,ro=1,size=1G
scsihw: virtio-scsi-pci
smbios1: uuid={vm}
sshkeys: ssh-ed25519%20AAAA%20me
""",
}
VOLUMES = {
    "rpool/data/vm-100-disk-0": "4M",
    "rpool/data/vm-100-disk-1": "1G",
    "rpool/data/vm-100-disk-2": "4G",
    "rpool/data/vm-100-disk-3": "4M",
    "rpool/data/vm-100-disk-4": "1G",
    "rpool/data/vm-100-cloudinit": "4M",
    "tank/vms/vm-100-disk-0": "512M",
    "tank/vms/vm-100-disk-1": "1G",
    "tank/vms/vm-100-disk-2": "1G",
}


def lived_in(name):
    """A node with a VM as somebody has it who has never heard of this collection."""
    world = World()
    for volume in ("rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"):
        world.run("zfs", "destroy", volume)
    for volume, size in VOLUMES.items():
        world.run("zfs", "create", *(["-s"] if volume.startswith("rpool") else []), "-V", size, volume)
        world.run("guest", "write", volume, "0", "1", "x")
    if name == "snapshots":
        for part in ("data/vm-100-disk-2@early", "data/vm-100-disk-2@later"):
            world.run("zfs", "snapshot", f"rpool/{part}")
        world.run("zfs", "snapshot", "tank/vms/vm-100-disk-1@later")
    world.file = FILES[name].replace("{vm}", VM)
    return world


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_vm_as_people_have_it_is_adopted_and_released(name, running):
    """It is planned, shown, done and undone. Nothing but properties of its volumes changes."""
    world = lived_in(name)
    if running:
        world.run("qm", "start", "100")
    file = world.file
    before = {disk.volume.name: dict(disk.volume.user) for disk in world.vm().disks}
    four_steps(world, lambda check: adopted(world, check))
    assert all(disk.adopted for disk in world.vm().disks)
    assert world.file == file
    four_steps(world, lambda check: released(world, check, forget=True))
    assert world.file == file
    assert {disk.volume.name: dict(disk.volume.user) for disk in world.vm().disks} == before
    assert not [*world.files.glob("etc/pve/flexdisk/*.json")]


TASKS = {
    "name": ([], {"name": "first", "description": "x"}),
    "grow": ([], {"name": "first", "size": "5GiB"}),
    "add": ([], {"name": "new", "size": "1GiB"}),
    "leave": ([{"name": "new", "size": "1GiB"}], {"name": "new", "state": "absent"}),
    "shrink": ([], {"name": "first", "size": "1GiB", "dangerous_allow_shrink": True}),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", FILES)
def test_all_that_a_task_does_not_concern_stays(name, task):
    """Every key and every section, those that this collection does not know, too."""
    world = lived_in(name)
    first = {"name": "first", "pci_slot": next(disk for disk in world.vm().disks if "disk-2" in disk.volume.name).key}
    before, entry = settings(world), TASKS[task][1]
    world.done(first, *TASKS[task][0])
    world.four_steps(*([{**first, **entry}] if entry["name"] == "first" else [first, entry]))
    after = settings(world)
    changed = {at for at in {*before, *after} if before.get(at) != after.get(at)}
    keys = {disk.key for disk in world.vm().disks}
    assert {key for where, key in changed if not where} <= keys
    assert {where for where, _key in changed} <= {""}
    assert {key for key in (one for where, one in before if not where) if is_unused_key(key)} == {
        key for key in (one for where, one in after if not where) if is_unused_key(key)
    }


def settings(world):
    """What Proxmox VE reads: it writes descriptions otherwise, and a switch as 1."""
    found = pve_vm.settings(VmFile(world.file.encode()))
    return {at: value.replace("volume=", "") for at, value in found.items()}
