# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No volume that a line of a VM's file names is called an orphan, and nothing wrong is shown as good."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import (
    pve_config,
    pve_disk,
    pve_storage,
    pve_vm,
)

from .conftest import DB, STORAGE
from .test_reading import only

CASES = Path(__file__).resolve().parents[2] / "conformance" / "data" / "proxmox"
USED = "rpool/data/vm-101-disk-1"
NAMED = {
    "an EFI disk that waits": ("[PENDING]", "efidisk0: local-zfs:vm-101-disk-1,size=1M"),
    "a TPM that waits": ("[PENDING]", "tpmstate0: local-zfs:vm-101-disk-1"),
    "a disk that waits, its file last": ("[PENDING]", "virtio1: cache=none,file=local-zfs:vm-101-disk-1"),
    "a snapshot alone": ("[s1]", "scsi1: local-zfs:vm-101-disk-1,size=1G"),
    "an unused disk of a snapshot": ("[s1]", "unused0: local-zfs:vm-101-disk-1"),
    "an image for fleecing": ("[special:fleecing]", "fleecing-images: local-zfs:vm-101-disk-1"),
    "an unknown section": ("[special:odd]", "x: local-zfs:vm-101-disk-1"),
    "an unknown key": ("virtio16: local-zfs:vm-101-disk-1",),
    "a line that cannot be read": (" SCSI1:local-zfs:vm-101-disk-1",),
    "a value that cannot be read": ("scsi1: local-zfs:vm-101-disk-1,=",),
    "a key that is there twice": ("scsi1: local-zfs:vm-101-disk-1", "scsi1: none,media=cdrom"),
    "arguments of QEMU": ("args: -drive file=/dev/zvol/rpool/data/vm-101-disk-1-part1,if=none",),
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_a_line_names_is_no_orphan(pve, kind):
    pve.volume(USED)
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", uuid=DB)
    assert only(pve("vm_info"), "db")["unmanaged"] == [USED]
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", *NAMED[kind], uuid=DB)
    assert only(pve("vm_info"), "db")["unmanaged"] == []


def test_what_is_in_use_is_neither_orphaned_nor_found(pve):
    pve.volume(USED)
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", *NAMED["a snapshot alone"], uuid=DB)
    assert USED not in {disk["volume"] for disk in pve("disk_info")["disks"]}
    assert USED not in {one["volume"] for one in pve("disk_verify")["findings"]}


def test_a_description_is_no_use_and_an_unused_disk_is_an_orphan_in_any_form(pve):
    pve.volume(USED)
    lines = (
        "#local-zfs:vm-101-disk-1",
        "description: local-zfs:vm-101-disk-1",
        "unused0: file=local-zfs:vm-101-disk-1",
    )
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", *lines, uuid=DB)
    vm = only(pve("vm_info"), "db")
    assert (vm["unmanaged"], vm["proxmox"]["unused"]) == ([USED], {"unused0": USED})
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", "unused0: local-zfs:vm-100-disk-3", uuid=DB)
    assert only(pve("vm_info"), "web")["unmanaged"] == ["rpool/data/vm-100-disk-2"]


def test_a_pool_that_is_not_imported(pve):
    """The VMs of the other pools are read as always."""
    for pool in ("rpool", "tank"):
        (pve.files / "proc/spl/kstat/zfs" / pool).mkdir(parents=True)
    pve.write("storage.cfg", STORAGE + "\nzfspool: usb\n\tpool usb/vms\n\tcontent images\n")
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0", "sata1: usb:vm-101-disk-0", uuid=DB)
    vm = only(pve("vm_info"), "db")
    assert [disk["key"] for disk in vm["disks"]] == ["sata0"]
    [sentence] = vm["proxmox"]["left_alone"]
    assert sentence.endswith("pool usb of storage usb is not imported")
    for module in ("disk_info", "host_info", "host_status"):
        assert not pve(module).get("failed")


def test_a_vm_that_has_only_an_unused_disk(pve):
    pve.vm(101, "name: db", "unused0: local-zfs:vm-101-disk-0", uuid=DB)
    [skipped] = pve("vm_info")["skipped_vms"]
    assert skipped["reason"].endswith("unused0 (rpool/data/vm-101-disk-0) is attached to nothing")


@pytest.mark.parametrize("option", ["colour=red", "iothread=1", "backup=perhaps"])
def test_a_disk_whose_line_is_dropped(pve, option):
    line = f"sata1: local-zfs:vm-101-disk-1,{option}"
    pve.vm(101, "name: db", "sata0: local-zfs:vm-101-disk-0,backup=Yes,mbps_rd_max=1.5", line, uuid=DB)
    vm = only(pve("vm_info"), "db")
    assert [disk["key"] for disk in vm["disks"]] == ["sata0"]
    assert vm["proxmox"]["unreadable"] == [line]
    assert "cannot be read" in vm["proxmox"]["left_alone"][0] or "neither on nor off" in vm["proxmox"]["left_alone"][0]


def test_values(pve):
    """Words for yes, and a memory that is not there or no number: Proxmox VE then takes 512 MiB."""
    disk = "virtio0: local-zfs:vm-101-disk-0"
    pve.vm(101, "name: db", "onboot: yes", "protection: True", "memory: \u00b2", disk, uuid=DB)
    vm = only(pve("vm_info"), "db")
    assert (vm["autoboot"], vm["proxmox"]["protection"], vm["memory"]) == (True, True, 512)
    assert vm["disks"][0]["pci_slot"] == "0:10:0"
    pve.vm(101, "template: on", disk, uuid=DB)
    assert [one["alias"] for one in pve("vm_info")["skipped_vms"]] == ["vm101"]


@pytest.mark.parametrize(
    ("line", "slot"),
    [("machine: q35", ""), ("machine: pc-q35-9.0,viommu=intel", ""), ("arch: aarch64", ""), ("machine: type=q35", ""),
     ("machine: pc", "0:10:0"), ("machine: pc-i440fx-9.0", "0:10:0"), ("machine: viommu=virtio", "")],
)  # fmt: skip
def test_slots_of_other_machines_are_not_known(pve, line, slot):
    pve.vm(101, "name: db", line, "virtio0: local-zfs:vm-101-disk-0", uuid=DB)
    assert only(pve("vm_info"), "db")["disks"][0]["pci_slot"] == slot


def test_a_storage_as_proxmox_ve_reads_it():
    """A tab behind a key, a key twice, and a section of a kind with other letters, which ends the one before it."""
    text = "zfspool: a\n\tpool\trpool/a\n\tpool rpool/b\n\nmy-san2: x\n\tpool other\n\tdisable\n"
    storages = pve_storage.parse_storages(text)
    assert (storages["a"].dataset, storages["a"].disabled, storages["x"].disabled) == ("rpool/a", False, True)


def test_a_host_that_was_renamed(pve):
    local = pve.files / "etc/pve/local"
    local.unlink()
    local.symlink_to("nodes/new")
    failed = pve("vm_info")
    assert failed["error_code"] == "HypervisorUnreachable"
    assert "node new, which does not exist" in failed["msg"]


def test_what_is_no_file_of_a_vm(pve):
    folder = pve.files / "etc/pve/nodes/pve1/qemu-server"
    (folder / "102.conf").mkdir()
    pve.write("nodes/pve1/qemu-server/0101.conf", "name: copy\n")
    found = pve("vm_info")
    assert ([vm["alias"] for vm in found["vms"]], found["skipped_vms"]) == (["web", "db"], [])


def test_options_of_every_bus():
    for key in ("ide0", "sata0", "scsi0", "virtio0"):
        pve_disk.check_options(key, pve_disk.parse("aa:vm-1-b,discard=on,size=1G,iops_rd_max_length=3,replicate=0"))
    for key, option in (("efidisk0", "efitype=4m"), ("efidisk0", "pre-enrolled-keys=1"), ("tpmstate0", "version=v2.0")):
        pve_disk.check_options(key, pve_disk.parse(f"aa:vm-1-b,{option}"))


def test_disks_that_are_unreadable_are_those_that_the_real_program_warns_of():
    """Of all files that were recorded with a command that reads them."""
    warned_of = 0
    cluster = pve_vm.parse_cluster("pve1", STORAGE, "", "")
    for case in [case for path in sorted(CASES.glob("*.json")) for case in json.loads(path.read_text())["cases"]]:
        if case["argv"][:2] in (["qm", "set"], ["qm", "config"]) and case["rc"] == 0:
            content = case["before"]["config"][case["argv"][2]].encode()
            shown = pve_vm.parse_vm(100, content, cluster, "").proxmox["unreadable"]
            lines = set(shown) - set(pve_config.VmFile(content).unreadable)
            warned = set(re.findall(r"unable to parse value of '([a-z]+[0-9]+)' - format error", case["stderr"]))
            warned |= set(re.findall(r"unknown setting '((?:ide|sata|scsi|virtio)[0-9]+)'", case["stderr"]))
            assert {line.partition(":")[0] for line in lines} == warned, case["id"]
            warned_of += len(warned)
    assert warned_of


def test_a_long_line_takes_no_long_time():
    """Proxmox VE allows files of 1 MiB. In quadratic time this would take hours."""
    storages = pve_storage.parse_storages(STORAGE)
    assert pve_storage.mentioned(storages, "a" * (1 << 20)) == []
    assert pve_storage.mentioned(storages, "/dev/" * 200000 + " local-zfs:vm-1-a")[-1].dataset == "rpool/data/vm-1-a"
