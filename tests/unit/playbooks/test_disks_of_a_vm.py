# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks add_disk, resize_disk and remove_disk on two simulated nodes: four steps, refusals, reach."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from .nodes import Nodes

WEB = ("-e", "flexdisk_vm=web", "-e", "flexdisk_disk=data", "-e", "flexible_disks_allow_restart=true")
DECLARED = [{"vm": "db", "disks": [{"name": "root", "boot": True}]}]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": "", "hv02": ""})
    made.create("hv01", "web", 2048, 10, {}, flexible=80)
    made.create("hv02", "db", 2048, 20, {}, flexible=60)
    for host in ("hv01", "hv02"):
        made.create(host, "both", 512, 1, {}, flexible=5)
    made.variables["hv02"] = {"flexible_disks_vms": DECLARED}
    return made


def volumes(nodes, host="hv01"):
    return nodes.run(host, "zfs", "list", "-Hpo", "name,volsize", "-t", "volume")


def four_steps(nodes, playbook, *words):
    """Check, real, check, real. What they print; the host is changed by the first real run alone, as predicted."""
    printed = []
    for options, changes in (["--check"], 1), ([], 1), (["--check"], 0), ([], 0):
        before = volumes(nodes)
        status, said = nodes.play(playbook, *WEB, *words, *options)
        assert status == 0, said
        assert re.findall(r"^(\w+) +: ok=\d+ +changed=(\d)", said, re.MULTILINE) == [
            ("hv01", str(changes)),
            ("hv02", "0"),
        ]
        assert (volumes(nodes) != before) == (changes == 1 and not options)
        printed.append(re.findall(r'^ok: \[hv01\] => \{\n    "msg": (\[.*?\])', said, re.MULTILINE | re.DOTALL)[-1])
        assert "hv02 does not have web" in said
    assert printed[0] == printed[1]
    assert printed[2] == printed[3]
    return json.loads(printed[0]), json.loads(printed[2])


def refused(nodes, playbook, *words, status=2):
    """What a playbook says that changes nothing."""
    before = [volumes(nodes, host) for host in ("hv01", "hv02")]
    found, said = nodes.play(playbook, *words)
    assert found == status, said
    assert [volumes(nodes, host) for host in ("hv01", "hv02")] == before
    assert re.findall(r"changed=[1-9]", said) == []
    return said


def test_a_disk_is_added_resized_and_destroyed(nodes):
    given = ("-e", "flexdisk_preserve=true", "-e", '{"flexdisk_pci_slot": "0:4:5"}')
    done, again = four_steps(nodes, "add_disk", "-e", "flexdisk_disk_size=20GiB", *given)
    assert done[0] == "1 VM: 1 change, 1 restart, +20 GiB, 0 B destroyed"
    assert "  + data 20 GiB at 0:4:5" in done
    assert again == ["1 VM: nothing to change"]
    for playbook, words, why in (
        ("add_disk", ("-e", "flexdisk_disk_size=30GiB"), "the VM has a disk data of 20 GiB already"),
        (
            "add_disk",
            ("-e", "flexdisk_disk=new", "-e", "flexdisk_disk_size=2GiB", "-e", "flexdisk_pci_slot=0:4:0"),
            "pci_slot 0:4:0 has its boot disk without a name",
        ),
        ("resize_disk", ("-e", "flexdisk_disk_size=30GiB", "-e", "flexdisk_disk=dat"), "has no disk dat"),
        ("resize_disk", ("-e", "flexdisk_disk_size=30GiB", "-e", "flexible_disks_allow_restart=no"), "[VmNotStopped]"),
        ("resize_disk", ("-e", "flexdisk_disk_size=10GiB"), "; -e flexdisk_dangerous_allow_shrink=true allows it"),
    ):
        assert why in refused(nodes, playbook, *WEB, *words)
    # All at once, of the VM as the user calls it, in words of who runs a playbook.
    words = ("-e", "flexdisk_disk_size=10GiB", "-e", "flexible_disks_allow_restart=no")
    said = refused(nodes, "resize_disk", *WEB, *words)
    assert re.search(r"VM web: disk data: .*; -e flexdisk_dangerous_allow_shrink=true allows it", said)
    assert re.search(r"VM web: the VM is running .*; -e flexible_disks_allow_restart=true allows a shutdown", said)
    assert "allow_restart: true" not in said
    said = refused(nodes, "remove_disk", *WEB, "-e", "flexible_disks_allow_restart=no")
    vm = r"VM web \([0-9a-f-]{36}\)"
    assert re.search(vm + ": the VM is running .*; -e flexible_disks_allow_restart=true allows a shutdown", said)
    done, again = four_steps(nodes, "resize_disk", "-e", "flexdisk_disk_size=25GiB")
    assert done[0] == "1 VM: 1 change, 1 restart, +5 GiB, 0 B destroyed"
    assert "  ~ data 20 GiB -> 25 GiB" in done
    assert again[0].endswith("nothing to change")
    done, again = four_steps(nodes, "remove_disk")
    assert done[0] == "1 VM: 1 change, 1 restart, -25 GiB, 25 GiB destroyed"
    assert any("data" in line and "DESTROYED" in line for line in done)
    (words,) = again
    assert words.startswith("VM web has no disk data. Its disks: ")


def test_a_disk_that_is_not_adopted_is_to_be_adopted_first(nodes):
    """Reports show it as (disk0). It was "no disk" for remove_disk, which ended well."""
    command = """flexdisk.hypervisor.adopt -e '{\\"flexdisk_adopt_vms\\": [{\\"vm\\": \\"web\\"}]}'"""
    for name in ("disk0", "(disk0)"):
        for playbook, words in (
            ("remove_disk", ()),
            ("resize_disk", ("-e", "flexdisk_disk_size=30GiB")),
            ("detach_disk", ()),
        ):
            said = refused(nodes, playbook, *WEB, "-e", f"flexdisk_disk={name}", *words)
            assert f"{name} of VM web is not adopted: it has no name yet. Nothing was changed." in said
            assert command in said
    said = refused(nodes, "detach_disk", "-e", "flexdisk_disk=disk0")
    assert "disk disk0 is on none of hv01, hv02. A disk without a name is shown so, of web on hv01, " in said


def test_an_orphan_is_named_with_the_command_that_ends_it(nodes):
    """list_disks shows it. It was "no disk" for remove_disk, which ended well. Then it is a disk as others."""
    uuid = nodes.run("hv01", "vmadm", "lookup", "alias=both").strip()
    identity = ("-o", "flexdisk:uuid=aaaaaaaa-0000-4000-8000-00000000000f", "-o", "flexdisk:name=lost")
    for volume, more in (("disk7", identity), ("disk8", ())):
        nodes.run("hv01", "zfs", "create", "-V", "64M", *more, f"zones/{uuid}/{volume}")
    given = ("-e", f"flexdisk_vm={uuid}", "--limit", "hv01")
    for name, volume in (("lost", "disk7"), (identity[1][14:].upper(), "disk7"), ("(disk8)", "disk8")):
        for playbook, words in (("remove_disk", ()), ("resize_disk", ("-e", "flexdisk_disk_size=1GiB"))):
            said = refused(nodes, playbook, *given, "-e", f"flexdisk_disk={name}", *words)
            assert f"{name} of VM {uuid} is orphaned: zones/{uuid}/{volume} lies below" in said
    assert "has no disk other" in nodes.play("remove_disk", *given, "-e", "flexdisk_disk=other")[1]
    (repair,) = set(re.findall(r"--limit hv01 -e '(\{.*?\})'", said.replace('\\"', '"')))
    assert nodes.play("verify_disks", "--limit", "hv01", "-e", repair)[0] == 0
    assert nodes.play("remove_disk", *given, "-e", "flexdisk_disk=lost")[0] == 0
    assert "disk7" not in volumes(nodes)
    assert "0000000f" not in volumes(nodes)


@pytest.mark.parametrize(
    ("playbook", "words", "entry"),
    [
        ("add_disk", ("-e", "flexdisk_disk_size=5GiB"), {"name": "data", "size": "5GiB"}),
        ("resize_disk", ("-e", "flexdisk_disk_size=5GiB"), {"name": "data", "size": "5GiB"}),
        ("remove_disk", (), {"name": "data", "state": "absent"}),
    ],
)
def test_what_the_inventory_declares_is_changed_there(nodes, playbook, words, entry):
    said = refused(nodes, playbook, *WEB, "-e", "flexdisk_vm=db", *words)
    assert "The inventory declares the disks of VM db, which is on hv02" in said
    (shown,) = re.findall(r"Write (\{.*?\}) to flexible_disks_vms of hv02, in the entry db;", said.replace('\\"', '"'))[
        :1
    ]
    assert json.loads(shown) == entry


@pytest.mark.parametrize("named", [("-e", "flexdisk_vm=db"), ()])
def test_what_the_inventory_declares_is_not_detached(nodes, named):
    """With the VM, and by the name of the disk alone."""
    nodes.variables["hv02"] = {}
    given = ("-e", "flexdisk_vm=db", "-e", "flexdisk_disk=logs", "-e", "flexible_disks_allow_restart=true")
    words = (*named, *given[2:])
    assert nodes.play("add_disk", *given, "-e", "flexdisk_disk_size=1GiB")[0] == 0
    nodes.variables["hv02"] = {"flexible_disks_vms": DECLARED}
    said = refused(nodes, "detach_disk", *words)
    what = "the disks of VM db" if named else "disk logs"
    assert f"The inventory declares {what}, which is on hv02, and the next run for it would undo this change." in said
    assert "Take disk logs out of flexible_disks_vms of hv02, in the entry db, which needs unlisted: detach" in said
    nodes.variables["hv02"] = {}
    for playbook, more in (("detach_disk", words), ("detach_disk", words)):  # the second one does nothing
        assert nodes.play(playbook, *more)[0] == 0
    nodes.variables["hv02"] = {"flexible_disks_vms": DECLARED}
    said = refused(nodes, "attach_disk", *given).replace('\\"', '"')
    assert "The inventory declares the disks of VM db, which is on hv02" in said
    assert 'Write {"name": "logs"} to flexible_disks_vms of hv02, in the entry db;' in said
    nodes.variables["hv02"] = {}
    assert nodes.play("attach_disk", *given)[0] == 0
    assert nodes.play("remove_disk", *given)[0] == 0
    nodes.variables["hv02"] = {"flexible_disks_vms": DECLARED}


def test_the_vm_can_be_named_by_its_uuid(nodes):
    uuid = nodes.run("hv01", "vmadm", "lookup", "alias=web").strip()
    words = ("-e", f"flexdisk_vm={uuid}", "-e", "flexdisk_disk=u", "-e", "flexible_disks_allow_restart=true")
    for playbook, more in (
        ("add_disk", ("-e", "flexdisk_disk_size=2GiB")),
        ("resize_disk", ("-e", "flexdisk_disk_size=3GiB")),
        ("detach_disk", ()),
        ("attach_disk", ()),
        ("remove_disk", ()),
        ("adopt", ("-e", json.dumps({"flexdisk_adopt_vms": [{"vm": uuid}]}))),
    ):
        status, said = nodes.play(playbook, *(words if playbook != "adopt" else ()), *more)
        assert status == 0, said
    replicas = json.dumps({"flexdisk_replicas": [{"vm": "db", "host": "hv02"}]})
    said = refused(nodes, "replicate", "-e", f"flexdisk_vm={uuid}", "-e", replicas)
    assert f"flexdisk_replicas of hv01 has no entry for VM {uuid}, but for db. Say with flexdisk_replica_host" in said


def test_one_name_means_one_vm_on_one_host(nodes):
    for playbook, words in (("add_disk", ("-e", "flexdisk_disk_size=5GiB")), ("remove_disk", ())):
        said = refused(nodes, playbook, *WEB, "-e", "flexdisk_vm=both", *words)
        assert re.search(r"VM both is on hv01 \(\S+\) and on hv02 \(\S+\)", said)
    said = nodes.play("resize_disk", *WEB, "-e", "flexdisk_disk_size=5GiB", unreachable="hv02")[1]
    assert "hv02 could not be read and may have a VM of this name too" in said


def test_a_rollback_asks_all_hosts_for_the_name(nodes):
    words = ("-e", "flexdisk_vm=web", "-e", "flexdisk_snapshot_name=one")
    status, said = nodes.play("rollback", *words, unreachable="hv02")
    assert status != 0
    assert "hv02 could not be read and may have a VM of this name too" in said


def test_a_detached_disk_of_this_name_is_not_made_again(nodes):
    words = (*WEB, "-e", "flexdisk_disk=old", "-e", "flexdisk_disk_size=1GiB")
    assert nodes.play("add_disk", *words)[0] == 0
    status, said = nodes.play("detach_disk", *WEB, "-e", "flexdisk_disk=old")
    assert status == 0, said
    assert '"  - old 1 GiB detached"' in said
    assert "a disk old of 1 GiB has been detached from the VM. attach_disk brings it back" in refused(
        nodes, "add_disk", *words
    )


def test_playbooks_that_follow_each_other(nodes):
    """What one of them has found is not what the next one looks for."""
    new = {"flexdisk_vm": "web", "flexdisk_disk": "first", "flexdisk_disk_size": "1GiB"}
    given = {"add_disk": {**new, "flexible_disks_allow_restart": True}, "plan": {"flexdisk_vm": "db"}, "list_disks": {}}
    plays = [
        {"ansible.builtin.import_playbook": f"flexdisk.hypervisor.{name}", "vars": values}
        for name, values in given.items()
    ]
    (nodes.folder / "site.yml").write_text(yaml.safe_dump(plays))
    status, said = nodes.play(str(nodes.folder / "site.yml"))
    assert status == 0, said
    assert '"  + first 1 GiB at ' in said
    assert re.search(r'"hv02: 1 VM: .*, digest [a-p]', said)
    assert '"hv01: does not have db"' in said
    assert re.search(r'"web +first +attached ', said)
