# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt uses beside its lists of disks: bases of overlays, copies under way, saved images, other paths."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    disk,
    disk_adopt,
    vm_snapshot,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run as run_vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Policy,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import usage
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.journal import UNTOLD

from .conftest import OTHER, SCSI, VM, domain

OVERLAY = "/var/lib/libvirt/images/web01-vda.before"
VOLUME = f"tank/{VM}/disk0"
ROOT, A = {"name": "root", "boot": True}, {"name": "a"}


def vm_task(linux, check=False, **declared):
    wanted = {"vm": "web01", "unlisted": "refuse", "destroy_disks": True, "destroy_snapshots": True, **declared}
    return run_vm(linux.zfs(), linux.driver(), [wanted], [], Policy(allow_restart=True), None, check)


def snapshot_task(linux, spec, check=False):
    return vm_snapshot.run(
        linux.zfs(), linux.driver(), [VM], spec, Policy(allow_restart=True), None, check, 1_800_000_000
    )


def disk_task(linux, check=False, **declared):
    policy = Policy(allow_restart=True)
    return disk.run(linux.zfs(), linux.driver(), [{"state": "present", **declared}], policy, None, check)


def identity_task(linux, check, state):
    return disk_adopt.run(linux.zfs(), linux.driver(), [{"vm": VM}], state, False, None, check).outcome


# Tasks that touch the VM or its volumes.
TASKS = {
    "grow": lambda linux, check: linux.converge(
        {"vm": VM, "disks": [ROOT, {**A, "size": 48}]}, check=check, allow_restart=True
    ),
    "as it is": lambda linux, check: linux.converge({"vm": VM, "disks": [ROOT, A]}, check=check),
    "unlisted": lambda linux, check: linux.converge(
        {"vm": VM, "disks": [], "unlisted": "detach"}, check=check, allow_restart=True
    ),
    "nothing declared": lambda linux, check: linux.converge({"vm": VM, "flexible_disk_size": "2GiB"}, check=check),
    "absent": lambda linux, check: vm_task(linux, check, state="absent"),
    "stopped": lambda linux, check: vm_task(linux, check, state="stopped"),
    "snapshot": lambda linux, check: snapshot_task(linux, SnapshotDeclaration("present", "x"), check),
    "back": lambda linux, check: snapshot_task(linux, SnapshotDeclaration("rolled_back", "one", newer=None), check),
    "disk": lambda linux, check: disk_task(linux, check, vm=VM, name="a", size="48MiB"),
    "adopt": lambda linux, check: identity_task(linux, check, "adopted"),
    "release": lambda linux, check: identity_task(linux, check, "released"),
}


@pytest.fixture
def host(linux):
    linux.adopted(32)
    snapshot_task(linux, SnapshotDeclaration("present", "one"))
    linux.run("guest", "write", VOLUME, "0", "4", "1")
    return linux


def refused(linux, task):
    """The only problem of a task, which check mode tells as well, and which leaves everything as it is."""
    before = linux.fingerprint()
    [problem] = TASKS[task](linux, True).problems
    done = TASKS[task](linux, False)
    assert done.problems == [problem]
    assert (done.failure, linux.fingerprint()) == (None, before)
    return problem


def findings(linux, *repair):
    return verify(linux.zfs(), linux.driver(), None, repair, None, 30, False, int(linux.node.now()))


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(("metadata", "chain"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("task", TASKS)
def test_a_volume_below_an_overlay(host, task, metadata, chain, running):
    if running:
        host.domains.boot(VM)
    host.domains.snapshot(VM, "before", metadata=metadata, chain=chain)
    problem = refused(host, task)
    assert problem.code == "InUse"
    assert VOLUME in problem.message
    assert OVERLAY in problem.message
    if metadata or chain or running:
        assert f"virsh blockcommit web01 vda --base /dev/zvol/{VOLUME} --active --pivot" in problem.message
    else:
        assert "virsh start web01" in problem.message


@pytest.mark.parametrize("metadata", [True, False])
def test_no_repair_touches_the_base_of_an_overlay(host, metadata):
    host.domains.snapshot(VM, "before", metadata=metadata)
    host.domains.snapshot(VM, "second", metadata=metadata)
    before = host.fingerprint()
    reported = findings(host, *REPAIRABLE)
    assert host.fingerprint() == before
    assert [f.kind for f in reported.findings] == ["overlaid_disk"]
    assert "web01-vda.second" in reported.findings[0].message
    assert not reported.outcome.changed


def test_after_the_commit_all_is_as_before(host):
    """The snapshot's metadata stays until somebody deletes it, and forbids nothing."""
    host.domains.boot(VM)
    configs = [host.domains.xml(VM, live) for live in (False, True)]
    host.domains.snapshot(VM, "before")
    refused(host, "grow")
    host.domains.configs[VM], host.domains.lives[VM] = map(ET.fromstring, configs)
    host.four_steps({"vm": VM, "disks": [ROOT, {**A, "size": 48}]})


def test_a_volume_that_only_a_snapshot_names(host):
    """Somebody has taken the disk out of the configuration by hand, and libvirt could still go back."""
    stored = host.domains.xml(VM, False)
    devices = host.domains.configs[VM].find("devices")
    devices.remove(devices.findall("disk")[1])
    host.domains.taken[VM] = [f"<domainsnapshot><name>old</name><disks/>{stored}</domainsnapshot>"]
    problem = refused(host, "as it is")
    assert f"it uses tank/{VM}/disk1 in libvirt's snapshot old" in problem.message
    assert "virsh snapshot-delete web01 old --metadata" in problem.message
    host.domains.taken.clear()
    host.four_steps({"vm": VM, "disks": [ROOT, A]})


@pytest.mark.parametrize(
    "path", ["/dev/zd16", f"/dev/tank/{VM}/disk1", "/dev/disk/by-id/zvol-x", f"/dev/zvol/tank/{VM}/disk1-part1"]
)
def test_a_disk_under_another_path(host, path):
    host.domains.links = {"/dev/zd16": f"tank/{VM}/disk1", "/dev/disk/by-id/zvol-x": f"tank/{VM}/disk1"}
    host.domains.configs[VM].findall("devices/disk/source")[1].set("dev", path)
    for task in TASKS:
        problem = refused(host, task)
        assert f"tank/{VM}/disk1 as vdb, by the path {path}" in problem.message
    reported = findings(host, *REPAIRABLE)
    assert [f.kind for f in reported.findings] == ["overlaid_disk"]


def test_a_name_with_a_space(linux):
    linux.create((64,))
    linux.run("zfs", "create", "-V", "32M", f"tank/{VM}/my disk")
    linux.domains.add(domain([], uuid=OTHER, name="web02").replace("<devices>", f"<devices>{CD % (VM, 'my+disk')}"))
    [user] = linux.host().usage.of(f"tank/{VM}/my disk")
    assert user.label == f"web02 ({OTHER}) as cdrom sda"


CD = "<disk type='block' device='cdrom'><source dev='/dev/zvol/tank/%s/%s'/><target dev='sda' bus='sata'/></disk>"
ARGUMENT = (
    "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
    "<qemu:arg value='-drive'/><qemu:arg value='file=/dev/zvol/tank/%s/disk1,format=raw'/></qemu:commandline>"
)


@pytest.mark.parametrize(
    "more", [CD % (VM, "disk1"), f"<serial type='dev'><source path='/dev/zvol/tank/{VM}/disk1'/></serial>"]
)
def test_another_vm_that_has_it_open_in_any_way(host, more):
    host.domains.add(domain([], uuid=OTHER, name="web02").replace("<devices>", f"<devices>{more}"))
    problem = refused(host, "grow")
    assert f"tank/{VM}/disk1 is also attached to web02 ({OTHER})" in problem.message


def test_a_linked_clone_of_another_vm(host):
    """What lies below a disk of another VM is told as well, and its own disks can change."""
    host.run("zfs", "create", f"tank/{OTHER}")
    clone = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/clone.qcow2'/>"
    clone += f"<backingStore type='block'><source dev='/dev/zvol/{VOLUME}'/></backingStore>"
    clone += "<target dev='vda' bus='virtio'/></disk>"
    host.domains.add(domain([], uuid=OTHER, name="web02").replace("<devices>", f"<devices>{clone}"))
    assert "web02" in refused(host, "grow").message
    assert "below the overlay /images/clone.qcow2 (vda)" in refused(host, "grow").message
    done = host.converge({"vm": OTHER, "flexible_disk_size": "1GiB", "disks": [{"name": "d", "size": 16}]})
    assert (done.problems, done.failure) == ([], None)


def test_a_block_job(host):
    host.domains.boot(VM)
    disk = host.domains.lives[VM].findall("devices/disk")[1]
    disk.append(ET.fromstring("<mirror type='file' job='copy'><source file='/images/copy'/></mirror>"))
    problem = refused(host, "grow")
    assert "a block job copies its disk vdb" in problem.message
    assert "virsh blockjob web01 vdb" in problem.message
    assert not host.converge({"vm": VM, "disks": [ROOT, A]}).changed


def test_a_backup_under_way(host):
    """QEMU resizes no disk that a backup reads, and libvirt shows that job in no configuration."""
    host.domains.boot(VM)
    host.domains.backed_up[VM] = ["vdb"]
    for declaration in ([ROOT, {**A, "size": 48}], [ROOT, {**A, "state": "absent"}], [ROOT, {**A, "type": "file"}]):
        outcome = host.converge({"vm": VM, "disks": declaration}, allow_restart=True)
        [reported] = [problem for problem in outcome.problems if problem.code == "InUse"]
        assert reported.message == (
            "a backup reads it: virsh domjobinfo web01 shows it, and virsh domjobabort web01 ends it"
        )
    host.four_steps({"vm": VM, "disks": [{**ROOT, "size": 72}, A, {"name": "b", "size": 16}]})


def test_a_backup_keeps_an_interrupted_run_from_its_end(host):
    """The end tells the guest the sizes of its disks."""
    host.domains.boot(VM)

    def kill(name, *_call):
        if name == "block_resize":
            host.domains.hook = None
            raise KeyboardInterrupt

    host.domains.hook = kill
    declaration = {"vm": VM, "disks": [ROOT, {**A, "size": 48}]}
    with pytest.raises(KeyboardInterrupt):
        host.converge(declaration)
    host.domains.backed_up[VM] = ["vdb"]
    assert host.converge(declaration).problems[0].message.startswith("a backup reads it")
    del host.domains.backed_up[VM]
    assert host.converge(declaration).failure is None


def test_a_block_job_that_writes_to_a_volume(host):
    host.domains.add(domain([], uuid=OTHER, name="web02"))
    host.domains.boot(OTHER)
    disk = "<disk type='file' device='disk'><source file='/images/x'/><target dev='vda' bus='virtio'/>"
    disk += f"<mirror type='block' job='copy'><source dev='/dev/zvol/tank/{VM}/disk1'/></mirror></disk>"
    host.domains.lives[OTHER].find("devices").append(ET.fromstring(disk))
    assert "as what a block job copies vda to" in refused(host, "grow").message


# -- saved images


SAVED = {name: task for name, task in TASKS.items() if name not in ("as it is", "adopt")}


@pytest.mark.parametrize("task", SAVED)
def test_a_saved_vm_is_not_stopped(host, task):
    host.domains.boot(VM)
    host.domains.save(VM)
    problem = refused(host, task)
    assert problem.code == "VmInTransition"
    assert "virsh managedsave-remove web01" in problem.message
    assert "virsh start web01" in problem.message


@pytest.mark.parametrize("task", ["shrink", "cold", "running"])
def test_more_that_a_saved_vm_does_not_take(host, task):
    host.domains.boot(VM)
    host.domains.save(VM)
    before = host.fingerprint()
    ways = {
        "shrink": lambda: host.converge({"vm": VM, "disks": [ROOT, {**A, "size": 16, "dangerous_allow_shrink": True}]}),
        "cold": lambda: host.converge({"vm": VM, "disks": [ROOT, {**A, "pci_slot": "0:9:0"}]}),
        "running": lambda: vm_task(host, state="running"),
    }
    [problem] = ways[task]().problems
    assert "virsh managedsave-remove web01" in problem.message
    assert host.fingerprint() == before


def test_a_saved_vm_is_left_alone_and_goes_on(host):
    host.domains.boot(VM)
    host.domains.save(VM)
    assert not host.converge({"vm": VM, "disks": [ROOT, A]}).changed
    assert host.vm().config.state == "saved"
    host.domains.create(VM)
    host.four_steps({"vm": VM, "disks": [ROOT, {**A, "size": 48}]})


def test_what_is_saved_or_overlaid_does_not_move(host):
    host.domains.boot(VM)
    host.domains.save(VM)
    assert any("managedsave-remove" in p.message for p in vm_move.refusals(host.host(), host.vm(), ()))
    host.domains.saves.clear()
    host.domains.snapshot(VM, "before")
    [reported] = vm_move.refusals(host.host(), host.vm(), ())
    assert OVERLAY in reported.message


def test_a_guest_that_is_saved_while_it_is_asked_to_stop(host):
    """A saved VM has not stopped: what needs a stop is not done."""
    host.domains.boot(VM)
    host.domains.deaf.add(VM)

    def save(name, arguments, when):
        if (name, when) == ("shutdown", "after"):
            host.domains.save(VM)
            host.domains.hook = None

    host.domains.hook = save
    done = host.converge({"vm": VM, "disks": [ROOT, {**A, "pci_slot": "0:9:0"}]}, allow_restart=True, stop_timeout=3)
    assert done.failure["error_code"] == "VmNotStopped"
    assert host.vm().config.state == "saved"


# -- what is not read


def test_a_pool_that_is_not_read(host):
    """Nothing is said of a volume in another pool, but that this task does not know it."""
    path = "/dev/zvol/data/vm/disk7"
    host.domains.configs[VM].findall("devices/disk/source")[1].set("dev", path)
    reported = [f for f in findings(host).findings if f.kind in ("unread_pool", "dangling_reference")]
    assert [f.kind for f in reported] == ["unread_pool"]
    assert "lies in pool data, which this task does not read" in reported[0].message
    host.domains.configs[VM].findall("devices/disk/source")[1].set("dev", f"/dev/zvol/tank/{OTHER}/disk7")
    assert "dangling_reference" in [f.kind for f in findings(host).findings]


def test_the_remains_of_a_vm_whose_disks_are_not_read(linux):
    """A VM whose dataset is gone, but with a disk in another pool, is not deleted as if nothing of it was left."""
    linux.domains.add(domain([f"tank/{VM}/disk0", "data/vm/disk1"]))
    assert vm_task(linux, state="absent").problems
    assert VM in linux.domains.configs
    linux.domains.undefine(VM)
    linux.domains.add(domain([f"tank/{VM}/disk0"]))
    assert not vm_task(linux, state="absent").problems
    assert VM not in linux.domains.configs


def test_serials_and_slots_tell_a_base(host):
    """Without a chain and metadata, what is left is that the overlay has the serial and the slot of its disk."""
    host.domains.snapshot(VM, "before", metadata=False, chain=False)
    unclear = host.vm().config.unclear
    assert [entry.serial for entry in unclear] == [serial_of(d.uuid) for d in host.vm().orphans]
    for element in host.domains.configs[VM].findall("devices/disk"):
        element.remove(element.find("serial"))
    assert OVERLAY in refused(host, "as it is").message


def test_a_volume_that_somebody_renamed_within_its_vm(host):
    """libvirt would take it a second time, and the VM would not start again for the path that is not there."""
    host.run("zfs", "rename", f"tank/{VM}/disk1", f"tank/{VM}/disk9")
    problem = refused(host, "as it is")
    assert f"zfs rename tank/{VM}/disk9 tank/{VM}/disk1" in problem.message
    host.run("zfs", "rename", f"tank/{VM}/disk9", f"tank/{VM}/disk1")
    host.four_steps({"vm": VM, "disks": [ROOT, {**A, "size": 48}]})


@pytest.mark.parametrize("orphan", [False, True])
def test_a_rollback_takes_nothing_back_that_another_domain_has_written(linux, orphan):
    linux.adopted(32)
    name = f"tank/{VM}/{'scratch' if orphan else 'disk1'}"
    if orphan:
        linux.run("zfs", "create", "-V", "16M", name)
    linux.domains.add(domain([name], uuid=OTHER, name="web02"))
    linux.domains.boot(OTHER)
    snapshot_task(linux, SnapshotDeclaration("present", "one"))
    linux.run("guest", "write", name, "0", "4", "1")
    written = linux.run("guest", "hash", name)
    for check in (True, False):
        done = snapshot_task(linux, SnapshotDeclaration("rolled_back", "one", newer=()), check)
        [problem] = done.problems
        assert f"{name} is also attached to web02 ({OTHER})" in problem.message
    assert linux.run("guest", "hash", name) == written


def test_a_rollback_names_a_file_that_it_cannot_take_back(linux):
    linux.adopted(32)
    linux.domains.configs[VM].find("devices").append(
        ET.fromstring(
            "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/logs.qcow2'/>"
            "<target dev='vdz' bus='virtio'/></disk>"
        )
    )
    snapshot_task(linux, SnapshotDeclaration("present", "one"))
    linux.run("guest", "write", f"tank/{VM}/disk1", "0", "4", "1")
    [warning] = snapshot_task(linux, SnapshotDeclaration("rolled_back", "one", newer=())).warnings
    assert f"/images/logs.qcow2 is not in snapshot one and stays as it is, because it is not below tank/{VM}" in warning


def test_a_snapshot_is_deleted_with_that_of_a_file_system_below_the_vm(linux):
    linux.adopted(32)
    linux.run("zfs", "create", f"tank/{VM}/extra")
    for state in ("present", "absent", "present"):
        done = snapshot_task(linux, SnapshotDeclaration(state, "n"))
        assert (done.problems, done.failure, done.changed) == ([], None, True)


def test_no_commit_into_a_base_of_several(host):
    """web02 lies on the volume as well, and would see what web01 has written since its snapshot."""
    top = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/web02'/>%s"
    top += "<target dev='vda' bus='virtio'/></disk>"
    below = f"<backingStore type='block'><source dev='/dev/zvol/{VOLUME}'/></backingStore>"
    host.domains.add(domain([], uuid=OTHER, name="web02").replace("<devices>", f"<devices>{top % below}"))
    host.domains.snapshot(VM, "before")
    problem = refused(host, "grow")
    assert f"web02 ({OTHER}) below the overlay /images/web02 (vda) has {VOLUME}, too" in problem.message
    assert "blockcommit" not in problem.message


def test_the_base_of_a_commit_in_a_storage_pool(host):
    host.domains.pools["images"] = f"/dev/zvol/tank/{VM}"
    host.domains.snapshot(VM, "before")
    for entry in host.domains.configs[VM].findall("devices/disk/backingStore/source"):
        name = entry.attrib.pop("dev").rsplit("/", 1)[1]
        entry.attrib.update(pool="images", volume=name)
    host.domains.taken.clear()
    assert (
        "blockcommit web01 vda --base $(virsh vol-path --pool images disk0) --active" in refused(host, "grow").message
    )


# -- a chain of which only a part is told


QCOW2 = "<format type='qcow2'/>"
BASE = "<source file='/images/base'/>"


def overlaid_twice(linux, told):
    linux.adopted(32)
    for name in ("one", "two"):
        linux.domains.snapshot(VM, name, metadata=told == "forgotten" or (told, name) == ("upper", "two"), chain=False)
    if told == "forgotten":  # as the message about the snapshot advises
        linux.domains.taken[VM].pop(0)
    for entry in linux.domains.configs[VM].findall("devices/disk") if told == "stored" else ():
        below = entry.find("source").get("file").replace(".two", ".one")
        entry.append(ET.fromstring(f"<backingStore type='file'>{QCOW2}<source file='{below}'/></backingStore>"))


@pytest.mark.parametrize("task", [name for name in TASKS if name != "back"])
@pytest.mark.parametrize("told", ["upper", "forgotten", "stored"])
def test_only_the_upper_overlay_is_told(linux, told, task):
    """What a chain begins with does not tell what it ends in, and libvirt goes on looking from there."""
    overlaid_twice(linux, told)
    problem = refused(linux, task)
    assert "virsh start web01" in problem.message


@pytest.mark.parametrize("told", ["upper", "forgotten", "stored"])
def test_no_repair_touches_the_base_of_two_overlays(linux, told):
    overlaid_twice(linux, told)
    before = linux.fingerprint()
    assert "overlaid_disk" in [f.kind for f in findings(linux, *REPAIRABLE).findings]
    assert linux.fingerprint() == before


@pytest.mark.parametrize(
    ("end", "clear"),
    [
        ("<backingStore/>", True),
        (f"<backingStore type='file'><format type='raw'/>{BASE}</backingStore>", True),
        ("<backingStore type='block'><source dev='/dev/zvol/tank/base'/></backingStore>", True),
        (f"<backingStore type='file'>{QCOW2}{BASE}<backingStore/></backingStore>", True),
        (f"<backingStore type='file'>{QCOW2}{BASE}</backingStore>", False),
        (f"<backingStore type='file'>{BASE}</backingStore>", False),
        ("", False),
    ],
)
def test_where_a_chain_ends(linux, end, clear):
    linux.adopted(32)
    top = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/top'/>%s"
    top += "<target dev='vdz' bus='virtio'/></disk>"
    linux.domains.configs[VM].find("devices").append(ET.fromstring(top % end))
    assert [entry.path for entry in linux.vm().config.unclear] == ([] if clear else ["/images/top"])


@pytest.fixture(params=["scsi", "sata", "a serial of the user"])
def without_identity(linux, request):
    """Disks that were adopted while their VM ran, at no PCI slot: then an overlay shows nothing of its disk."""
    bus = "sata" if request.param == "sata" else "scsi"
    linux.create()
    text = domain([f"tank/{VM}/disk{n}" for n in range(2)], more="\n" + SCSI)
    linux.domains.add(text.replace("bus='virtio'", f"bus='{bus}'").replace("'vd", "'sd"))
    if request.param != bus:
        for number, entry in enumerate(linux.domains.configs[VM].findall("devices/disk")):
            ET.SubElement(entry, "serial").text = f"WD-{number}"
    linux.domains.boot(VM)
    assert not identity_task(linux, False, "adopted").problems
    linux.domains.snapshot(VM, "before", metadata=False, chain=False)
    linux.domains.halt(VM)
    return linux


@pytest.mark.parametrize("task", [name for name in TASKS if name not in ("back", "disk")])
def test_an_overlay_without_serial_and_slot_may_have_any_base(without_identity, task):
    problem = refused(without_identity, task)
    assert "perhaps, below /var/lib/libvirt/images/web01-sd" in problem.message


def test_no_repair_touches_what_may_be_a_base(without_identity):
    before = without_identity.fingerprint()
    findings(without_identity, *REPAIRABLE)
    assert without_identity.fingerprint() == before


def test_another_serial_or_slot_rules_a_base_out(linux):
    """Then an orphan is that of an interrupted attach, and is attached."""
    linux.adopted(32)
    linux.converge({"vm": VM, "disks": [ROOT], "unlisted": "detach"})
    [gone] = linux.vm().detached
    linux.run("zfs", "rename", gone.volume.name, f"tank/{VM}/disk1")
    top = f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>{BASE}<target dev='vdz' bus='virtio'/>"
    for more in (f"<serial>{serial_of(OTHER)}</serial></disk>", "<address type='pci' bus='0' slot='0x1d'/></disk>"):
        entry = ET.fromstring(top + more)
        linux.domains.configs[VM].find("devices").append(entry)
        assert linux.vm().config.unclear
        assert not linux.vm().overlaid
        linux.domains.configs[VM].find("devices").remove(entry)


# -- a VM of which a doubt remains while it is stopped


class Killed(BaseException):
    pass


COLD = {"vm": VM, "unlisted": "keep", "disks": [ROOT, {**A, "size": 24, "dangerous_allow_shrink": True}]}


@pytest.fixture
def doubtful(linux):
    """A VM that runs, with a qcow2 file of its own that lies on nothing, and a volume that somebody made by hand."""
    linux.adopted(32)
    top = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/seed'/>"
    top += "<target dev='vdz' bus='virtio'/><address type='pci' domain='0' bus='0' slot='0x1e' function='0'/></disk>"
    linux.domains.configs[VM].find("devices").append(ET.fromstring(top))
    linux.run("zfs", "create", "-V", "16M", f"tank/{VM}/scratch")
    linux.domains.boot(VM)
    linux.domains.lives[VM].findall("devices/disk")[-1].append(ET.Element("backingStore"))
    return linux


def shrunk(linux):
    """As four_steps, with a disk of which the host's double knows no size."""
    check = linux.converge(COLD, check=True, allow_restart=True)
    done = linux.converge(COLD, allow_restart=True)
    assert (check.problems, done.problems, done.failure, done.diff) == ([], [], None, check.diff)
    assert (linux.disks()["a"].size_mib, VM in linux.domains.lives) == (24, True)
    assert not linux.converge(COLD, allow_restart=True).changed


def test_a_doubt_is_told_only_while_the_vm_is_stopped(doubtful):
    assert not doubtful.vm().overlaid
    doubtful.domains.halt(VM)
    assert "virsh start web01" in refused(doubtful, "as it is").message


def test_a_doubtful_vm_is_started_where_nothing_else_is_declared(doubtful):
    """A running VM tells what its disks lie on."""
    doubtful.domains.halt(VM)
    check, done = (vm_task(doubtful, check, state="running") for check in (True, False))
    assert (check.problems, done.problems, done.failure, done.diff) == ([], [], None, check.diff)
    assert [step["step"] for step in done.vms[0]["steps"]] == ["law", "start"]  # the volume counts in the quota
    assert (VM in doubtful.domains.lives, doubtful.vm().overlaid) == (True, "")
    assert not vm_task(doubtful, False, state="running").changed


@pytest.mark.parametrize("more", [{"memory": 512}, {"disks": [ROOT, {**A, "size": 48}]}])
def test_a_doubtful_vm_is_not_changed_before_its_start(doubtful, more):
    doubtful.domains.halt(VM)
    before = doubtful.fingerprint()
    [problem] = vm_task(doubtful, False, state="running", **more).problems
    assert (problem.code, doubtful.fingerprint()) == ("InUse", before)
    assert "virsh start web01 shows it" in problem.message


def test_a_doubtful_vm_is_not_started_beside_another_one_that_has_the_volume(doubtful):
    doubtful.domains.halt(VM)
    doubtful.domains.add(domain([f"tank/{VM}/scratch"], uuid=OTHER, name="db01"))
    assert [problem.code for problem in vm_task(doubtful, True, state="running").problems] == ["InUse"]


def test_a_start_of_a_vm_whose_overlay_is_certain_is_refused(doubtful):
    """What its list hides is known, and the message says how that ends."""
    doubtful.domains.snapshot(VM, "before", metadata=False, chain=False)
    doubtful.domains.halt(VM)
    assert doubtful.vm().overlaid
    assert not doubtful.vm().doubted
    assert [problem.code for problem in vm_task(doubtful, True, state="running").problems] == ["InUse"]


def test_a_cold_change_of_a_doubtful_vm(doubtful):
    shrunk(doubtful)


def test_a_doubtful_vm_runs_again_after_a_failure(doubtful):
    def fail(argv, stdin="", timeout=300):
        failing = any("volsize=" in word for word in argv)
        return Answer(1, "", "cannot set: I/O error") if failing else works(argv, stdin, timeout)

    works, doubtful.runner = doubtful.runner, fail
    done = doubtful.converge(COLD, allow_restart=True)
    assert (done.failure["restarted"], VM in doubtful.domains.lives) == (True, True)
    doubtful.runner = works
    shrunk(doubtful)


def test_a_doubtful_vm_runs_again_after_a_step_that_took_days(doubtful, monkeypatch):
    """Its entry is as old as one of a run that was killed and has stopped nothing. This run knows what it has done."""

    def fail(argv, stdin="", timeout=300):
        if not any("volsize=" in word for word in argv):
            return works(argv, stdin, timeout)
        monkeypatch.setattr(time, "time", lambda: days_later)
        return Answer(1, "", "cannot set: I/O error")

    days_later = time.time() + UNTOLD
    works, doubtful.runner = doubtful.runner, fail
    done = doubtful.converge(COLD, allow_restart=True)
    assert (done.failure["restarted"], VM in doubtful.domains.lives) == (True, True)


def killed_while_stopped(linux):
    def kill(who, arguments, when):
        if any("volsize=" in str(word) for word in arguments):
            raise Killed

    linux.hook = kill
    with pytest.raises(Killed):
        linux.converge(COLD, allow_restart=True)
    linux.hook = None
    assert VM not in linux.domains.lives


def test_a_doubtful_vm_runs_again_after_a_kill(doubtful):
    """It ran when the plan was made, so all that its disks lay on was told."""
    killed_while_stopped(doubtful)
    shrunk(doubtful)


def test_an_overlay_since_a_kill_is_no_mere_doubt(doubtful):
    killed_while_stopped(doubtful)
    doubtful.domains.snapshot(VM, "before", metadata=False, chain=False)
    assert OVERLAY in refused(doubtful, "as it is").message


def test_a_moved_vm_is_not_started_because_it_is_in_doubt(doubtful):
    """What forbids a start is no matter of its disks."""
    doubtful.domains.halt(VM)
    vm = doubtful.vm()
    moved = replace(vm, config=replace(vm.config, frozen="it is moving to hv2"))
    assert (usage.as_it_ran(vm).config.frozen, usage.as_it_ran(moved).config.frozen) == ("", "it is moving to hv2")
