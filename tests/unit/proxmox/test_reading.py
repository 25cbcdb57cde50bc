# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules read of a node of Proxmox VE. None of them starts qm, and none changes anything."""

from __future__ import annotations

import pytest

from tests.unit.modules.test_modules import TOP, assert_documented, documentation

from .conftest import DATA, DB, ROOT_DISK, WEB

READING = {
    "vm_info": {"space": True, "leases": True},
    "disk_info": {"space": True},
    "host_info": {},
    "host_metrics": {},
    "host_status": {},
    "disk_verify": {},
    "replica_info": {},
    "zfs_quota": {},
}


def only(result, alias):
    [vm] = [vm for vm in result["vms"] if vm["alias"] == alias]
    return vm


@pytest.mark.parametrize("module", sorted(READING))
def test_nothing_changes_and_no_program_of_proxmox_runs(pve, module):
    """With all that can be asked for: the same in check mode, and the files are the same to the byte."""
    before = pve.everything()
    results = [pve(module, check=check, **READING[module]) for check in (True, False)]
    assert not [result for result in results if result.get("failed")]
    assert pve.everything() == before
    assert {argv[0] for argv in pve.commands} <= {"zfs", "zpool"}
    found = results[0]
    if module != "host_metrics":
        assert not found["changed"]
    documented = documentation(module, "RETURN")
    if module in ("vm_info", "disk_info", "host_info"):
        assert_documented({key: found[key] for key in set(found) - TOP}, documented)


@pytest.mark.parametrize("module", ["vm_info", "disk_info", "host_info", "disk_verify"])
def test_processes_for_any_number_of_vms(pve, module):
    for vmid in range(200, 240):
        pve.volume(f"rpool/data/vm-{vmid}-disk-0")
        pve.vm(vmid, f"scsi0: local-zfs:vm-{vmid}-disk-0", uuid=f"dddddddd-0000-4000-8000-{vmid:012}")
    pve.commands.clear()
    assert not pve(module).get("failed")
    assert len(pve.commands) <= 3


def test_a_vm_and_its_disks(pve):
    vm = only(pve("vm_info", space=True), "web")
    assert (vm["uuid"], vm["state"], vm["autoboot"], vm["memory"], vm["vcpus"]) == (WEB, "stopped", True, 2048, 2)
    assert vm["tags"] == {"prod": "", "web": ""}
    keys = ("name", "key", "pci_slot", "model", "boot", "size", "type", "uuid", "preserve", "volume")
    shown = [tuple(disk[key] for key in keys) for disk in vm["disks"]]
    assert shown == [
        ("root", "virtio0", "0:10:0", "virtio", True, 8192, "sparse", ROOT_DISK, False, "rpool/data/vm-100-disk-0"),
        ("data", "scsi1", "", "scsi", False, 20480, "sparse", DATA, True, "tank/vms/vm-100-disk-0"),
    ]
    assert vm["unmanaged"] == ["rpool/data/vm-100-disk-2", "rpool/data/vm-100-disk-3"]
    assert vm["flexible_disk_size"] is None
    assert vm["proxmox"] == {
        "vmid": 100,
        "lock": "",
        "protection": False,
        "pending": [],
        "snapshots": [],
        "unfinished": [],
        "unused": {"unused0": "rpool/data/vm-100-disk-2"},
        "ha": False,
        "replication": [],
        "left_alone": ["efidisk0 (local-zfs:vm-100-disk-1) is left alone: it is a disk of the firmware"],
        "unreadable": [],
    }
    [disk] = only(pve("vm_info"), "db")["disks"]
    assert (disk["key"], disk["boot"], disk["name"], disk.get("uuid")) == ("sata0", True, "", None)


def test_what_is_under_way_is_shown(pve):
    """Lock, pending changes, snapshots, HA, replication and lines that Proxmox VE cannot read."""
    pve.vm(
        101,
        "lock: backup",
        "name: db",
        "parent: before",
        "protection: 1",
        "sata0: local-zfs:vm-101-disk-0,size=4G",
        "virtio16: local-zfs:vm-101-disk-9",
        "Wrong line",
        "[PENDING]",
        "delete: !sata0",
        "virtio1: local-zfs:vm-100-disk-3,size=1G",
        "[before]",
        "sata0: local-zfs:vm-101-disk-0,size=4G",
        "snaptime: 1",
        "vmstate: local-zfs:vm-101-state-before",
        uuid=DB,
    )
    pve.volume("rpool/data/vm-101-state-before")
    pve.write("ha/resources.cfg", "vm: 101\n\tstate started\n\nct: 100\n\tstate started\n")
    pve.write("replication.cfg", "local: 101-0\n\ttarget pve2\n\nlocal: 101-1\n\ttarget pve3\n")
    found = pve("vm_info")
    shown = only(found, "db")["proxmox"]
    assert {key: shown[key] for key in ("lock", "protection", "pending", "snapshots", "ha", "replication")} == {
        "lock": "backup",
        "protection": True,
        "pending": ["sata0", "virtio1"],
        "snapshots": ["before"],
        "ha": True,
        "replication": ["101-0", "101-1"],
    }
    assert shown["unreadable"] == ["Wrong line", "virtio16: local-zfs:vm-101-disk-9"]
    assert only(found, "db")["unmanaged"] == []  # the saved memory is in use
    assert not only(found, "web")["proxmox"]["ha"]
    # what waits for db to stop is no volume that nobody uses, although it is called after web
    assert only(found, "web")["unmanaged"] == ["rpool/data/vm-100-disk-2"]


def test_running_and_saved(pve):
    pve.node("qm", "start", "101")
    assert only(pve("vm_info"), "db")["state"] == "running"
    pid = pve.files / "run/qemu-server/101.pid"
    (pve.files / "proc" / pid.read_text().strip()).rename(pve.directory / "gone")
    assert only(pve("vm_info"), "db")["state"] == "stopped"
    pid.unlink()
    pve.vm(101, "lock: suspended", "name: db", "sata0: local-zfs:vm-101-disk-0", uuid=DB)
    assert only(pve("vm_info"), "db")["state"] == "saved"


def test_disks_and_what_destroying_them_frees(pve):
    disks = pve("disk_info", space=True)["disks"]
    shown = {disk["volume"]: (disk["state"], disk["alias"], disk["frees_bytes"]["reserved"]) for disk in disks}
    assert shown == {
        "rpool/data/vm-100-disk-0": ("attached", "web", None),
        "tank/vms/vm-100-disk-0": ("attached", "web", None),
        "rpool/data/vm-100-disk-2": ("orphaned", "web", None),
        "rpool/data/vm-100-disk-3": ("orphaned", "web", None),
        "rpool/data/vm-101-disk-0": ("attached", "db", None),
    }
    pve.node("zfs", "create", "rpool/flexdisk")
    pve.volume("rpool/flexdisk/aaaaaaaa-0000-4000-8000-000000000009", uuid="aaaaaaaa-0000-4000-8000-000000000009")
    assert [disk["state"] for disk in pve("disk_info", state=["detached"])["disks"]] == ["detached"]


def test_the_serial_must_be_that_of_the_volume(pve):
    """A restored backup or a moved disk has its serial, and a volume without the properties."""
    pve.node("zfs", "set", f"flexdisk:uuid={DB}", "rpool/data/vm-100-disk-0")
    found = pve("disk_verify")["findings"]
    assert ("serial_mismatch", "root") in {(one["kind"], one["disk"]) for one in found}
    assert not [one for one in found if one["repairable"]]


def test_findings(pve):
    pve.vm(102, "name: odd", "scsi0: local-zfs:vm-102-disk-0", "scsi1: local-zfs:vm-102-disk-7", uuid=DATA)
    pve.volume("rpool/data/vm-102-disk-0")
    kinds = {(one["kind"], one["volume"]) for one in pve("disk_verify")["findings"]}
    volumes = ("rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0")
    assert kinds == {
        ("orphan_volume", "rpool/data/vm-100-disk-2"),
        ("orphan_volume", "rpool/data/vm-100-disk-3"),
        ("dangling_reference", "rpool/data/vm-102-disk-7"),
    } | {("stale_copy", name) for name in volumes}


LEFT_ALONE = {
    "scsi2: ceph:vm-101-disk-1,size=1G": "is not a volume of a storage of type zfspool",
    "scsi2: gone:vm-101-disk-1,size=1G": "no storage is called gone",
    "scsi2: elsewhere:vm-101-disk-1": "storage elsewhere is not active on node pve1",
    "scsi2: /dev/zvol/rpool/data/vm-101-disk-1": "it is named by its path",
    "scsi2: local-zfs:vm-100-disk-3": "its volume is called after VM 100, which Proxmox VE destroys with that VM",
    "scsi2: local-zfs:vm-101-disk-0": "it has the volume of sata0",
    "scsi2: local-zfs:foo": "foo in storage local-zfs is not the name of a VM's volume",
    "scsi2: local-zfs:vm-101-disk-1,=": "cannot be read",
    "tpmstate0: local-zfs:vm-101-disk-1": "it is a disk of the firmware",
}


@pytest.mark.parametrize(("line", "reason"), LEFT_ALONE.items())
def test_disks_that_are_left_alone(pve, line, reason):
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", line, uuid=DB)
    vm = only(pve("vm_info"), "db")
    assert [disk["key"] for disk in vm["disks"]] == ["sata0"]
    [sentence] = vm["proxmox"]["left_alone"]
    assert reason in sentence
    assert not pve("disk_verify").get("failed")


SKIPPED = {
    "a template": (("template: 1", "scsi0: local-zfs:base-300-disk-0"), "it is a template"),
    "no disk of a zfspool": (("scsi0: ceph:vm-300-disk-0",), "no disk of it can be managed: scsi0 (ceph:"),
    "no disk": ((), "no disk of it can be managed: it has no disks"),
}


@pytest.mark.parametrize("kind", SKIPPED)
def test_vms_that_are_left_alone(pve, kind):
    lines, reason = SKIPPED[kind]
    pve.vm(300, "name: odd", *lines, uuid=DATA)
    [skipped] = pve("vm_info")["skipped_vms"]
    assert (skipped["uuid"], skipped["alias"]) == (DATA, "odd")
    assert skipped["reason"].startswith(reason)
    [kind] = {one["kind"] for one in pve("disk_verify", vms=["db"])["findings"]} or {""}
    assert not kind
    assert "vm_without_dataset" not in {one["kind"] for one in pve("disk_verify")["findings"]}


def test_a_vm_without_a_uuid_or_with_that_of_another(pve):
    """A copied file has the UUID of the original. Neither VM is taken for the other."""
    pve.vm(300, "name: old", "scsi0: local-zfs:vm-300-disk-0")
    pve.vm(301, "name: twin", "scsi0: local-zfs:vm-301-disk-0", uuid=DB)
    found = pve("vm_info")
    assert [vm["alias"] for vm in found["vms"]] == ["web"]
    reasons = {vm["alias"]: vm["reason"] for vm in found["skipped_vms"]}
    assert reasons["old"] == "its configuration has no UUID; qm set 300 --smbios1 uuid=UUID gives it one"
    assert {reasons["db"], reasons["twin"]} == {
        f"VMs 101, 301 have the same UUID {DB} in smbios1; give all but one another with qm set"
    }
    assert len({vm["uuid"] for vm in found["skipped_vms"]}) == 3


def test_containers_and_vms_of_other_nodes(pve):
    pve.write("nodes/pve1/lxc/400.conf", "hostname: box\nrootfs: local-zfs:subvol-400-disk-0,size=1G\n")
    pve.write("nodes/pve2/qemu-server/500.conf", "name: far\n")
    found = pve("vm_info")
    assert [(vm["alias"], vm["reason"]) for vm in found["skipped_vms"]] == [("box", "brand lxc")]


def test_bytes_that_are_no_text(pve):
    pve.vm(101, "name: d\udce4b", "sata0: local-zfs:vm-101-disk-0,serial=%ff", "tags: \udcff", uuid=DB)
    assert {vm["alias"] for vm in pve("vm_info")["vms"]} == {"web", "d\ufffdb"}


def test_vms_of_one_pool_are_read_with_all_their_disks(pve):
    """The pool of a VM is that of the disk that it boots from."""
    vm = only(pve("vm_info", pool="rpool"), "web")
    assert [disk["key"] for disk in vm["disks"]] == ["virtio0", "scsi1"]
    assert "unread_pool" not in {one["kind"] for one in pve("disk_verify", pool="rpool")["findings"]}
    assert pve("vm_info", pool="tank")["vms"] == []


def test_space_of_the_host(pve):
    host = pve("host_info")["host"]
    assert host["driver"] == "proxmox"
    assert {pool["name"] for pool in host["pools"]} == {"rpool", "tank"}
    assert {vm["alias"] for vm in host["vms"]} == {"web", "db"}


def test_a_dataset_with_the_uuid_of_a_vm_is_not_its_own(pve):
    """Somebody has moved the VM here from another hypervisor, or the dataset is left over."""
    properties = {"flexible_disk_size": "1024", "failover": "on:1", "indestructible": "true", "package": "old"}
    words = [word for key, value in properties.items() for word in ("-o", f"flexdisk:{key}={value}")]
    pve.node("zfs", "create", *words, f"rpool/{WEB}")
    vm = only(pve("vm_info"), "web")
    assert (vm["flexible_disk_size"], vm["package"], vm["indestructible"], vm["autoboot"]) == (None, "", False, True)


def test_no_quota_is_looked_for(pve):
    for check in (True, False):
        found = pve("zfs_quota", check=check, vms=["web", "db"])
        reasons = {vm["alias"]: vm["reason"] for vm in found["skipped_vms"]}
        assert (found["changed"], found["vms"]) == (False, [])
        assert reasons == dict.fromkeys(("web", "db"), "Proxmox VE has no dataset for a VM, so there is no quota")


def test_a_vm_by_its_name(pve):
    assert [vm["alias"] for vm in pve("vm_info", vms=["db"])["vms"]] == ["db"]
    assert pve("vm_info", vms=["nobody"])["error_code"] == "ResourceNotFound"


def test_a_cluster_that_cannot_be_read(pve):
    (pve.files / "etc/pve/local").unlink()
    failed = pve("vm_info")
    assert failed["error_code"] == "HypervisorUnreachable"
    assert "pmxcfs" in failed["msg"]
