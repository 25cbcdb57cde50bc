# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter disk_table."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.disk_table import LONG, FilterModule, disk_table, sort_disks

GONE = "99999999-0000-4000-8000-000000000009"


def disk(name, size, **more):
    return {"name": name, "size": size, "pci_slot": "0:4:0", "preserve": False, "state": "stopped", **more}


def vm(alias, disks, **more):
    return {"uuid": "uuid-of-" + alias, "alias": alias, "disks": disks, "parked": [], **more}


def test_lays_out_every_disk_under_its_vm():
    old = disk("old", 10240, state="parked", pci_slot="0:4:7", preserve=True)
    web = vm(
        "web01",
        [disk("root", 20480), disk("", 2048, volume="zones/uuid-of-web01/disk1", pci_slot="")],
        parked=[old],
        free_space=30106,
        allocatable=0,
    )
    legacy = vm("legacy01", [], free_space=None, allocatable=None)
    detached = [{**old, "vm": "uuid-of-web01"}, {**old, "vm": GONE}]
    assert disk_table({"vms": [web, legacy], "parked": detached}) == [
        "VM                                    DISK     SLOT     SIZE  PRESERVE  PARKED      FREE  ALLOCATABLE",
        "web01                                 root     0:4:0  20 GiB  no        no      29.4 GiB        0 MiB",
        "                                      (disk1)  -       2 GiB  no        no",
        "                                      old      0:4:7  10 GiB  yes       yes",
        "legacy01                              -        -           -  -         -              -            -",
        "99999999-0000-4000-8000-000000000009  old      0:4:7  10 GiB  yes       yes            -            -",
    ]


def test_hidden_characters_are_shown():
    skipped = [{"alias": "w\u202e", "uuid": "u", "reason": "no disks\n"}]
    vms = [{"alias": "a\u202e", "uuid": "v", "disks": [], "parked": []}]
    table = disk_table({"vms": vms, "parked": [], "skipped_vms": skipped})
    assert table[1].startswith("a[U+202E]  -")
    assert table[0].startswith("VM         DISK")
    assert table[2] == "w[U+202E]: no disks[U+000A]"


def test_leaves_space_open_when_it_was_not_asked_for():
    assert disk_table({"vms": [vm("web01", [disk("root", 1024)])], "parked": []})[1].split()[-2:] == ["-", "-"]


def test_vms_that_no_task_serves_have_their_reason_below_the_table():
    skipped = [
        {"uuid": "u1", "alias": "zone01", "reason": "brand joyent"},
        {"uuid": "u2", "alias": "web02", "reason": "the VM is configured: its deletion was interrupted"},
        {"uuid": "u3", "alias": "", "reason": "no dataset zones/u3"},
    ]
    lines = disk_table({"vms": [], "parked": [], "skipped_vms": skipped})
    assert lines[1:] == [
        "web02: the VM is configured: its deletion was interrupted",
        "u3: no dataset zones/u3",
    ]


def test_a_host_without_vms_has_only_the_heading():
    assert disk_table({"vms": [], "parked": []}) == ["VM  DISK  SLOT  SIZE  PRESERVE  PARKED  FREE  ALLOCATABLE"]


def test_refuses_what_is_no_result_of_vm_info():
    with pytest.raises(AnsibleFilterError, match="vm_info"):
        FilterModule().filters()["disk_table"]({"msg": "failed"})


def test_lays_out_disks_of_disk_info():
    web = {"vm": "uuid-of-web01", "alias": "web01", "type": "thick", "never_used": False, "uuid": "u1"}
    frees = {"pool": 8650752, "allocatable": 2 << 30, "reserved": None}
    lost = {
        **web,
        "vm": GONE,
        "alias": "",
        "never_used": True,
        "uuid": "u2",
        "frees_bytes": {**frees, "allocatable": None},
    }
    disks = [
        {**web, **disk("root", 20480, state="attached"), "frees_bytes": frees},
        {**lost, **disk("old", 10240, state="detached", pci_slot="")},
        {**web, **disk("", 64, state="orphaned", volume="zones/x/disk9"), "vm": "", "alias": "", "uuid": ""},
    ]
    lines = disk_table({"disks": disks})
    assert [line[38:] for line in lines] == [
        "DISK     STATE     TYPE   SLOT     SIZE  EVER USED  FREES POOL  FREES VM  UUID",
        "root     attached  thick  0:4:0  20 GiB  yes           8.2 MiB     2 GiB  u1",
        "old      detached  thick  -      10 GiB  no            8.2 MiB         -  u2",
        "(disk9)  orphaned  thick  0:4:0  64 MiB  yes                 -         -  -",
    ]
    assert [line[:38].rstrip() for line in lines] == ["VM", "web01", GONE, "-"]
    assert disk_table({"disks": []})[0].startswith("VM  DISK  STATE")


def listed(name, size, slot, **more):
    full = {
        "vm": "u",
        "alias": "web01",
        "type": "thick",
        "never_used": False,
        "uuid": "u-" + name,
        "tags": {},
        "boot": False,
    }
    full.update(
        block_size=8192, image="", snapshots=0, ctime="2026-01-02T03:04:05Z", description="", volume="zones/u/disk3"
    )
    return {**full, **disk(name, size, state="attached", pci_slot=slot), **more}


DISKS = [
    listed("b", 1024, "0:4:10", tags={"owner": "it"}, description="of the shop"),
    listed("a", 20480, "0:4:2", alias="db01", frees_bytes={"pool": 1 << 20, "allocatable": None}, snapshots=3),
    listed("c", 1024, "", alias="", vm="gone", boot=True),
]


def test_the_columns_that_are_asked_for():
    assert disk_table({"disks": DISKS}, ["size", "name", "vm"]) == [
        "  SIZE  DISK  VM",
        " 1 GiB  b     web01",
        "20 GiB  a     db01",
        " 1 GiB  c     gone",
    ]
    assert disk_table({"disks": DISKS}, ["name"], header=False) == ["b", "a", "c"]
    assert disk_table({"disks": DISKS}, ["name"], long=True) == ["DISK", "b", "a", "c"]


def test_the_long_table():
    lines = disk_table({"disks": DISKS}, long=True)
    heads = [column.replace("_", " ").upper() for column in LONG]
    assert lines[0].split("  ")[0] == "VM"
    assert all(head.replace("PCI SLOT", "SLOT").replace("NAME", "DISK") in lines[0] for head in heads)
    assert lines[1].endswith('{"owner": "it"}  2026-01-02T03:04:05Z  -      of the shop')
    assert " 8 KiB " in lines[1]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (["name"], "abc"),
        (["-name"], "cba"),
        (["size"], "bca"),
        (["-size"], "abc"),
        (["size", "-name"], "cba"),
        (["pci_slot"], "abc"),
        (["-pci_slot"], "bac"),
        (["vm"], "acb"),
        (["frees_pool"], "abc"),
        (["-boot", "name"], "cab"),
        ([], "bac"),
    ],
)
def test_sorted_by_columns(by, names):
    assert [found["name"] for found in sort_disks(DISKS, by)] == list(names)


def test_columns_that_do_not_exist():
    with pytest.raises(AnsibleFilterError, match=r"no column colour\. The columns are vm, name, state"):
        disk_table({"disks": DISKS}, ["name", "colour"])
    with pytest.raises(AnsibleFilterError, match="no column colour"):
        sort_disks(DISKS, ["-colour"])
    with pytest.raises(AnsibleFilterError, match="disk_info"):
        sort_disks([{}], ["name", "vm"])
