# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of vmadm: exit codes, texts, states, lookups."""

from __future__ import annotations

import json
import time

import pytest

from tests.unit.simnode.vmadm_support import IMAGE, ROOT, UUID, Machine

NOBODY = "cccccccc-0000-4000-8000-00000000ffff"


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.create({"size": 256, "model": "virtio"}, flexible_disk_size=2048)
    return machine


# -- usage and unknown VMs


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["frobnicate"], 'Invalid command: "frobnicate".'),
        (["get", "short"], "Invalid or missing UUID for get"),
        (["get"], "Invalid or missing UUID for get"),
        (["create-snapshot", UUID], 'Wrong number of parameters to "create-snapshot"'),
        (["rollback-snapshot", UUID, "a", "b"], 'Wrong number of parameters to "rollback-snapshot"'),
        (["validate"], "Will not validate without a valid action."),
        (["validate", "update"], "Will not validate without a valid action and brand."),
        ([], "Usage: "),
    ],
)
def test_usage(machine: Machine, argv: list[str], text: str) -> None:
    status, out, err = machine.vmadm(*argv)
    assert (status, out) == (2, "")
    assert err.startswith(text)
    assert "create-snapshot <uuid> <snapname>" in err


def test_help(machine: Machine) -> None:
    status, out, err = machine.vmadm("help")
    assert (status, err) == (0, "")
    assert out.startswith("Usage: ")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["get", NOBODY], f"zoneadm: {NOBODY}: No such zone configured\n"),
        (["update", NOBODY, "alias=x"], f"VM {NOBODY} not found\n"),
        (["delete", NOBODY], f"Failed to delete VM {NOBODY}: VM {NOBODY} not found\n"),
        (["start", NOBODY], f"Unable to start VM {NOBODY}: bad statusCode: 404\n"),
    ],
)
def test_unknown_vm(machine: Machine, argv: list[str], text: str) -> None:
    assert machine.bad(*argv) == text


def test_create_an_existing_uuid(machine: Machine) -> None:
    assert machine.bad("create", uuid=UUID, brand="bhyve") == f"VM with UUID {UUID} already exists\n"


def test_payload_that_is_no_json(machine: Machine) -> None:
    status, _out, err = machine.node.run(["vmadm", "update", UUID], "{")
    assert status == 1
    assert err.startswith("Invalid JSON payload: ")
    assert machine.bad("create", "-f", "/nowhere/payload.json") == "File: /nowhere/payload.json does not exist.\n"


def test_words_are_converted(machine: Machine) -> None:
    assert machine.good("update", UUID, "flexible_disk_size=3072", "autoboot=true") == (
        f"Successfully updated VM {UUID}\n"
    )
    found = machine.get()
    assert (found["flexible_disk_size"], found["autoboot"]) == (3072, True)
    assert (
        machine.bad("update", UUID, "flexible_disk_size=abc") == "Invalid value for flexible_disk_size: null:number\n"
    )


def test_unknown_keys_are_dropped(machine: Machine) -> None:
    before = machine.get()
    machine.good("update", UUID, frobnicate=1, package_name="p")
    after = machine.get()
    assert {key: after[key] for key in after if key != "last_modified"} == {
        key: before[key] for key in before if key != "last_modified"
    }


def test_lists_must_be_lists(machine: Machine) -> None:
    assert machine.bad("update", UUID, add_disks="disk") == "add_disks must be an array.\n"


# -- start, stop, reboot


def test_start_and_stop(machine: Machine) -> None:
    assert machine.good("start", UUID) == f"Successfully started VM {UUID}\n"
    found = machine.get()
    assert (found["state"], found["zone_state"], found["autoboot"]) == ("running", "running", True)
    assert {"pid", "boot_timestamp"} <= set(found)
    assert machine.good("start", UUID) == f"Unable to start VM {UUID}: VM {UUID} is already 'running'\n"
    assert machine.good("stop", UUID) == f"Successfully completed stop for VM {UUID}\n"
    found = machine.get()
    assert (found["state"], found["zone_state"], found["autoboot"]) == ("stopped", "installed", False)
    assert machine.good("stop", UUID) == f"VM {UUID} is already not 'running' (currently: stopped)\n"
    assert machine.bad("stop", UUID, "-F") == (
        f"first of 1 error: VM {UUID} is already not 'running' (currently: stopped)\n"
    )


def test_reboot(machine: Machine) -> None:
    assert machine.bad("reboot", UUID) == 'Cannot reboot vm from state "stopped", must be "running"\n'
    assert machine.bad("reboot", UUID, "-F") == 'Cannot reset vm from state "stopped", must be "running".\n'
    machine.good("start", UUID)
    assert machine.good("reboot", UUID) == f"Successfully completed reboot for VM {UUID}\n"
    assert machine.get()["state"] == "running"


@pytest.mark.parametrize(("argv", "seconds"), [([], 180), (["-t", "30"], 30), (["-F"], 0)])
def test_stop_of_a_guest_that_ignores_it(machine: Machine, argv: list[str], seconds: int) -> None:
    machine.good("start", UUID)
    machine.admin("vm-stop-hangs", UUID, "on")
    before = machine.node.clock.now()
    machine.good("stop", UUID, *argv)
    assert seconds <= machine.node.clock.now() - before < seconds + 10
    assert machine.get()["state"] == "stopped"


def test_stop_of_a_guest_that_really_takes_its_time(machine: Machine) -> None:
    machine.good("start", UUID)
    machine.admin("vm-stop-hangs", UUID, "really")
    before = time.monotonic()
    machine.good("stop", UUID, "-t", "1")
    assert time.monotonic() - before >= 1
    machine.good("start", UUID)
    machine.admin("vm-stop-hangs", UUID, "off")
    before = machine.node.clock.now()
    machine.good("stop", UUID)
    assert machine.node.clock.now() - before < 10


def test_transitional_states(machine: Machine) -> None:
    machine.admin("vm-state", UUID, "stopping")
    found = machine.get()
    assert (found["state"], found["zone_state"]) == ("stopping", "installed")
    text = 'Cannot start vm from state "stopping", must be "stopped".'
    assert machine.bad("start", UUID) == f"Unable to start VM {UUID}: {text}\n"
    assert "currently: stopping (installed)" in machine.bad("update", UUID, remove_disks=[])
    machine.admin("vm-state", UUID, "-")
    assert machine.get()["state"] == "stopped"


def test_lost_event(machine: Machine) -> None:
    machine.admin("vm-lose-event", UUID)
    before = machine.node.clock.now()
    text = f'first of 1 error: vminfod watchForChanges "VM.js update ({UUID})" timeout exceeded\n'
    assert machine.bad("update", UUID, alias="other") == text
    assert machine.node.clock.now() - before >= 60
    assert machine.get()["alias"] == "other"
    machine.good("update", UUID, alias="third")


def test_last_modified_follows(machine: Machine) -> None:
    before = machine.get()["last_modified"]
    machine.good("update", UUID, alias="other")
    after = machine.get()["last_modified"]
    assert before < after
    machine.good("create-snapshot", UUID, "s1")
    assert after < machine.get()["last_modified"]


# -- snapshots


@pytest.mark.parametrize("name", ["x" * 65, "a b", "a,b", "a/b", "a\nb", ""])
def test_bad_snapshot_names(machine: Machine, name: str) -> None:
    assert machine.bad("create-snapshot", UUID, name) == "Invalid snapshot name\n"
    assert machine.get()["snapshots"] == []


def test_snapshots(machine: Machine) -> None:
    for name in ("1", "2", "3"):
        assert machine.good("create-snapshot", UUID, name) == f"Created snapshot {name} for VM {UUID}\n"
    machine.zfs("snapshot", f"{ROOT}@mine")
    found = machine.get()["snapshots"]
    assert [snapshot["name"] for snapshot in found] == ["3", "2", "1"]
    assert set(found[0]) == {"name", "size", "created_at"}
    assert machine.bad("create-snapshot", UUID, "2") == 'snapshot with name "2" already exists.\n'
    assert machine.good("rollback-snapshot", UUID, "2") == f"Rolled back snapshot 2 for VM {UUID}\n"
    assert [snapshot["name"] for snapshot in machine.get()["snapshots"]] == ["2", "1"]
    assert machine.good("delete-snapshot", UUID, "1") == f"Deleted snapshot 1 for VM {UUID}\n"
    assert machine.bad("delete-snapshot", UUID, "zz") == f'No snapshot named "zz" for {UUID}\n'


def test_a_rollback_knows_one_pool_alone() -> None:
    """vmadm looks for the snapshots in zones, whichever pool the VM is in. It does so before it halts the VM."""
    machine = Machine()
    machine.node.pools.add_pool("tank", 64 << 30, 12, [{"type": "disk", "disks": 1}], "illumos")
    disks = [{"size": 8, "model": "virtio", "boot": True}]
    machine.good("create", uuid=UUID, brand="bhyve", zpool="tank", quota=1, autoboot=True, disks=disks)
    machine.good("create-snapshot", UUID, "s1")
    assert f"cannot open '{ROOT}': dataset does not exist" in machine.bad("rollback-snapshot", UUID, "s1")
    assert machine.get()["state"] == "running"


def test_no_snapshots_of_kvm(machine: Machine) -> None:
    uuid = NOBODY
    disk = {"size": 100, "model": "virtio", "boot": True}
    machine.good("create", uuid=uuid, brand="kvm", autoboot=False, disks=[disk])
    assert machine.bad("create-snapshot", uuid, "s1") == "snapshots for kvm VMs currently unsupported\n"


# -- protection


def test_indestructible(machine: Machine) -> None:
    machine.good("update", UUID, indestructible_zoneroot=True)
    assert machine.get()["indestructible_zoneroot"] is True
    text = f"Failed to delete VM {UUID}: indestructible_zoneroot is set, cannot delete\n"
    assert machine.bad("delete", UUID) == text
    text = f"Failed to reprovision VM {UUID}: indestructible_zoneroot is set, cannot reprovision\n"
    assert machine.bad("reprovision", UUID, image_uuid=IMAGE) == text
    machine.zfs("hold", "another", f"{ROOT}@indestructible")
    machine.good("update", UUID, indestructible_zoneroot=False)
    assert "indestructible_zoneroot" not in machine.get()
    assert machine.good("delete", UUID) == f"Successfully deleted VM {UUID}\n"


def test_delegated_dataset() -> None:
    machine = Machine()
    image = IMAGE[:-1] + "5"
    machine.admin("image-import", image, "0", "type=zone-dataset")
    machine.good("create", uuid=UUID, brand="joyent", image_uuid=image, autoboot=False, delegate_dataset=True)
    assert machine.get()["datasets"] == [f"{ROOT}/data"]
    text = "Cannot currently snapshot zones that have datasets\n"
    assert machine.bad("create-snapshot", UUID, "s1") == text
    machine.good("update", UUID, indestructible_zoneroot=True, indestructible_delegated=True)
    machine.good("update", UUID, indestructible_zoneroot=False)
    assert "indestructible_delegated is set, cannot delete" in machine.bad("delete", UUID)
    machine.good("update", UUID, indestructible_delegated=False)
    machine.good("delete", UUID)


def test_indestructible_at_create() -> None:
    machine = Machine()
    machine.create(indestructible_zoneroot=True)
    assert "indestructible_zoneroot is set" in machine.bad("delete", UUID)
    machine.zfs("release", "do_not_destroy", f"{ROOT}@indestructible")
    machine.good("update", UUID, indestructible_zoneroot=False)
    machine.good("delete", UUID)


# -- reprovision


def test_reprovision(machine: Machine) -> None:
    other = IMAGE[:-1] + "2"
    machine.admin("image-import", other, "512")
    machine.zfs("snapshot", f"{ROOT}/disk0@old")
    machine.good("reprovision", UUID, image_uuid=other)
    disk = machine.get()["disks"][0]
    assert (disk["image_uuid"], disk["size"], disk["refreservation"]) == (other, 512, 0)
    assert machine.zfs("get", "-Hpo", "value", "origin", f"{ROOT}/disk0") == f"zones/{other}@final\n"
    assert machine.zfs("list", "-Hr", "-t", "snapshot", "-o", "name", ROOT) == ""


def test_reprovision_with_a_larger_image(machine: Machine) -> None:
    other = IMAGE[:-1] + "2"
    machine.admin("image-import", other, "2048")
    text = f"Failed to reprovision VM {UUID}: Cannot reprovision: image (2048 MiB) > disk0 (1024 MiB)\n"
    assert machine.bad("reprovision", UUID, image_uuid=other) == text


# -- lookup and list


def test_lookup(machine: Machine) -> None:
    machine.good(
        "create", uuid=NOBODY, brand="bhyve", alias="db", autoboot=False, ram=512, tags={"role": "db", "a.b": 1}
    )

    def found(*filters: str) -> list[str]:
        return machine.good("lookup", *filters).split()

    assert found() == [UUID, NOBODY]
    assert found("alias=web") == [UUID]
    assert found("alias=~^W") == [UUID]
    assert found("ram=512", "state=stopped") == [NOBODY]
    assert found("disks.*.size=256") == [UUID]
    assert found("disks.1.size=256") == [UUID]
    assert found("disks.0.size=256") == []
    assert found("flexible_disk_size=2048", "type=BHYV") == [UUID]
    assert found("tags.role=db") == [NOBODY]
    assert found("tags.a.b=1") == [NOBODY]
    assert machine.vmadm("lookup", "-1", "alias=nobody") == (1, "", "Requested unique lookup but found 0 results.\n")
    assert machine.vmadm("lookup", "-1", "state=stopped")[2] == "Requested unique lookup but found 2 results.\n"
    assert machine.good("lookup", "-1", "alias=web") == UUID + "\n"


def test_lookup_as_json(machine: Machine) -> None:
    assert json.loads(machine.good("lookup", "-j", "alias=nobody")) == []
    assert json.loads(machine.good("lookup", "-j", "-o", "uuid,state")) == [{"uuid": UUID, "state": "stopped"}]
    full = json.loads(machine.good("lookup", "-j"))
    assert full == [{**machine.get(), "type": "BHYV"}]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-o", "uuid"], "Cannot specify -o without -j\n"),
        (["frobnicate=1"], 'Invalid lookup key: "frobnicate"\n'),
        (["disks.*.path=/x"], 'Invalid lookup key: "disks.*.path"\n'),
        (["disks.0.uuid=x"], 'Invalid lookup key: "disks.0.uuid"\n'),
    ],
)
def test_bad_lookups(machine: Machine, argv: list[str], text: str) -> None:
    assert machine.bad("lookup", *argv) == text


def test_list(machine: Machine) -> None:
    machine.good("create", uuid=NOBODY, brand="bhyve", alias="db", autoboot=False, ram=512)
    lines = machine.good("list").splitlines()
    assert lines[0] == "UUID                                  TYPE  RAM      STATE             ALIAS"
    assert lines[1:] == [
        f"{NOBODY}  BHYV  512      stopped           db",
        f"{UUID}  BHYV  1024     stopped           web",
    ]
    assert machine.good("list", "-H", "-o", "alias,free_space", "-s", "-alias").splitlines() == [
        "web         768",
        "db          -",
    ]
    assert machine.good("list", "-p", "-o", "alias,flexible_disk_size", "alias=db") == "db:\n"
    assert machine.bad("list", "-o", "nonsense") == "invalid order field: nonsense\n"


def test_images(machine: Machine) -> None:
    status, out, _err = machine.node.run(["imgadm", "get", IMAGE])
    assert status == 0
    image = json.loads(out)
    assert (image["manifest"]["image_size"], image["zpool"]) == (1024, "zones")
    assert json.loads(machine.node.run(["imgadm", "list", "-j"])[1]) == [image]
    status, out, err = machine.node.run(["imgadm", "get", NOBODY])
    assert (status, out) == (1, "")
    assert "ImageNotInstalled" in err
    machine.good("delete", UUID)
    machine.zfs("destroy", "-r", f"zones/{IMAGE}")
    assert machine.node.run(["imgadm", "list", "-j"])[1] == "[]\n"


def test_not_simulated(machine: Machine) -> None:
    assert machine.bad("sysrq", UUID, "nmi") == "vmadm sysrq is not simulated\n"
