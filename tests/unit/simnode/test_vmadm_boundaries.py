# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a vmadm leaves that ends in the middle of its work, at each of the commands that it runs."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from simnode import Node, PoolSpec
from simnode.__main__ import install_programs
from simnode.vmadm.boundaries import GIVEN_UP, KILLED, POINTS, WATCHES

from tests.unit.simnode.vmadm_support import IMAGE, ROOT, UUID, Machine

DISK = {"size": 64, "model": "virtio"}
WHOLE = {
    "uuid": UUID,
    "brand": "bhyve",
    "alias": "web",
    "autoboot": False,
    "ram": 1024,
    "flexible_disk_size": 2048,
    "customer_metadata": {"k": "v"},
    "disks": [{"image_uuid": IMAGE, "boot": True, "model": "virtio"}, DISK],
}


def of(machine: Machine) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = json.loads(machine.good("lookup", "-j", f"uuid={UUID}"))
    return found[0] if found else None


def left(machine: Machine) -> tuple[Any, ...]:
    """State, zone_state, whether vmadm knows the dataset, the disks that are missing, and whether ZFS has it."""
    exists = machine.node.run(["zfs", "list", ROOT])[0] == 0
    vm = of(machine)
    if vm is None:
        return (None, exists)
    missing = [disk.get("missing", False) for disk in vm["disks"]]
    return (vm["state"], vm["zone_state"], "zpool" in vm and "zfs_filesystem" in vm, missing, exists)


CREATED = {
    "root": (None, True),
    "volumes": (None, True),
    "quota": (None, True),
    "zonecfg": ("configured", "configured", False, [True, True], True),
    "dataset": ("configured", "configured", True, [False, False], True),
    "install": ("provisioning", "installed", True, [False, False], True),
    "metadata": ("provisioning", "installed", True, [False, False], True),
    "provisioned": ("stopped", "installed", True, [False, False], True),
}
DELETED = {
    "autoboot": ("running", "running", True, [False, False], True),
    "halt": ("stopped", "installed", True, [False, False], True),
    "uninstall": ("configured", "configured", False, [True, True], False),
    "volumes": ("configured", "configured", False, [True, True], False),
    "zonecfg": (None, False),
}


@pytest.mark.parametrize("part", CREATED)
def test_a_create_that_is_killed(part: str) -> None:
    machine = Machine()
    machine.admin("vm-fault", f"create {part}", "kill")
    assert machine.vmadm("create", **WHOLE) == (KILLED, "", "")
    assert left(machine) == CREATED[part]
    if of(machine):
        machine.good("delete", UUID)
        assert of(machine) is None


@pytest.mark.parametrize("part", DELETED)
def test_a_delete_that_is_killed(part: str) -> None:
    machine = Machine()
    machine.good("create", **WHOLE)
    machine.good("start", UUID)
    machine.admin("vm-fault", f"delete {part}", "kill")
    assert machine.vmadm("delete", UUID) == (KILLED, "", "")
    assert left(machine) == DELETED[part]
    if of(machine):
        machine.good("delete", UUID)
    assert left(machine) == (None, False)


def test_every_part_is_a_boundary() -> None:
    assert {f"create {part}" for part in CREATED} | {f"delete {part}" for part in DELETED} <= {*POINTS}
    assert {*WATCHES} <= {*POINTS}
    seen: list[str] = []
    machine = Machine()
    machine.node.at_boundary = seen.append
    machine.good("create", **WHOLE)
    machine.good("start", UUID)
    machine.good("stop", UUID)
    machine.good("delete", UUID)
    assert [point for point in seen if point in POINTS] == [
        *(f"create {part}" for part in CREATED),
        "start boot",
        "stop autoboot",
        "stop signal",
        *(f"delete {part}" for part in DELETED),
    ]


@pytest.mark.parametrize("point", [point for point in WATCHES if point.startswith("create")])
def test_a_create_that_vminfod_does_not_confirm(point: str) -> None:
    machine = Machine()
    machine.admin("vm-fault", point, "timeout")
    assert machine.bad("create", **WHOLE) == f"first of 1 error: vminfod {WATCHES[point] % UUID} timeout exceeded\n"
    assert left(machine) == CREATED[point.split()[1]]


@pytest.mark.parametrize("part", ["uninstall", "zonecfg"])
def test_a_delete_that_vminfod_does_not_confirm(part: str) -> None:
    machine = Machine()
    machine.good("create", **WHOLE)
    machine.admin("vm-fault", f"delete {part}", "timeout")
    watch = WATCHES[f"delete {part}"] % UUID
    words = f"Failed to delete VM {UUID}: first of 1 error: vminfod {watch} timeout exceeded\n"
    assert machine.bad("delete", UUID) == words
    assert left(machine) == DELETED[part]


def test_an_uninstall_that_fails_does_not_end_the_delete() -> None:
    machine = Machine()
    machine.good("create", **WHOLE)
    machine.admin("vm-fault", "delete uninstall", "fail")
    assert machine.good("delete", UUID) == f"Successfully deleted VM {UUID}\n"
    assert of(machine) is None
    assert machine.zfs("list", "-H", "-o", "name", "-r", ROOT).split() == [ROOT]


def test_a_dataset_that_is_busy_makes_the_uninstall_fail() -> None:
    machine = Machine()
    machine.good("create", **WHOLE)
    machine.node.pools.faults[f"busy:{ROOT}"] = 1
    machine.good("delete", UUID)
    assert left(machine) == (None, True)


def test_a_create_that_ends_when_nobody_waits_for_it_any_longer() -> None:
    machine = Machine()
    machine.admin("vm-fault", "create volumes", "late:100")
    assert machine.vmadm("create", **WHOLE) == (GIVEN_UP, "", "")
    assert left(machine) == CREATED["volumes"]
    machine.node.sleep(100)
    assert left(machine) == CREATED["provisioned"]
    assert machine.get()["customer_metadata"] == {"k": "v"}
    machine.admin("vm-fault", "delete halt", "late")
    assert machine.vmadm("delete", UUID) == (GIVEN_UP, "", "")
    machine.admin("vm-finish")
    assert left(machine) == (None, False)


def test_faults_are_for_one_time_each() -> None:
    machine = Machine()
    machine.admin("vm-fault", "create root", "kill", "fail")
    assert machine.vmadm("create", **WHOLE)[0] == KILLED
    machine.zfs("destroy", ROOT)
    assert machine.vmadm("create", **WHOLE)[0] == 1
    machine.admin("vm-fault", "create root", "kill")
    machine.admin("vm-fault", "create root")
    machine.good("create", **WHOLE)


def test_what_no_fault_is() -> None:
    from simnode.vmadm.admin import COMMANDS

    machine = Machine()
    for argv in (["create nothing", "kill"], ["create root", "explode"], ["create root", "timeout"], []):
        assert COMMANDS["vm-fault"](machine.node, argv)[0] == 2
    assert COMMANDS["vm-finish"](machine.node, ["x"])[0] == 2


def test_a_guest_that_takes_its_time() -> None:
    machine = Machine()
    machine.good("create", **WHOLE)
    machine.good("start", UUID)
    machine.admin("vm-stop-takes", UUID, "90")
    machine.admin("vm-fault", "stop signal", "kill")
    assert machine.vmadm("stop", UUID)[0] == KILLED
    found = machine.get()
    assert (found["state"], found["autoboot"]) == ("running", False)
    machine.node.sleep(90)
    assert machine.get()["state"] == "stopped"
    machine.good("start", UUID)
    began = machine.node.now()
    machine.good("stop", UUID)
    assert 90 < machine.node.now() - began < 100
    machine.good("start", UUID)
    machine.node.patience = 30
    assert machine.vmadm("stop", UUID, "-t", "600")[0] == GIVEN_UP
    machine.node.patience = None
    assert machine.get()["state"] == "running"
    machine.node.sleep(60)
    assert machine.get()["state"] == "stopped"
    machine.good("start", UUID)
    began = machine.node.now()
    machine.good("stop", UUID, "-t", "20")
    assert 20 < machine.node.now() - began < 30


def test_a_program_ends_by_the_signal(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    node = Node.create(directory, [PoolSpec(size=64 << 30)])
    node.save()
    install_programs(directory)
    payload = {**WHOLE, "disks": [DISK]}

    def ended(*argv: str, stdin: str = "") -> int:
        return subprocess.run(
            [str(directory / "bin" / argv[0]), *argv[1:]], input=stdin, text=True, check=False
        ).returncode

    with Node.open(directory) as opened:
        from simnode.vmadm.admin import COMMANDS

        assert COMMANDS["vm-fault"](opened, ["create zonecfg", "kill"])[0] == 0
        assert COMMANDS["vm-fault"](opened, ["delete volumes", "late:10000"])[0] == 0
    assert ended("vmadm", "create", stdin=json.dumps(payload)) == -signal.SIGKILL
    assert ended("vmadm", "delete", UUID) == -signal.SIGTERM
    with Node.open(directory) as opened:
        assert opened.vmadm_state["vms"][UUID]["zone_state"] == "configured"
        assert COMMANDS["vm-finish"](opened, [])[0] == 0
        assert opened.vmadm_state["vms"] == {}


# -- small things of the real one


def test_nics_have_short_addresses_and_ips() -> None:
    machine = Machine()
    nic = {
        "nic_tag": "admin",
        "mac": "02:08:20:AA:bb:01",
        "ip": "10.0.0.5",
        "netmask": "255.255.255.0",
        "model": "virtio",
    }
    machine.create(
        flexible_disk_size=2048,
        nics=[nic, {"nic_tag": "admin", "mac": "02:08:20:aa:bb:02", "ip": "dhcp", "model": "virtio"}],
    )
    first, second = machine.get()["nics"]
    assert (first["mac"], first["ips"]) == ("2:8:20:aa:bb:1", ["10.0.0.5/24"])
    assert (second["mac"], second["ips"]) == ("2:8:20:aa:bb:2", ["dhcp"])
    machine.good("update", UUID, update_nics=[{"mac": "2:8:20:aa:bb:1", "ip": "10.0.0.6"}])
    machine.good("update", UUID, remove_nics=["2:8:20:aa:bb:2"])
    (only,) = machine.get()["nics"]
    assert (only["mac"], only["ips"]) == ("2:8:20:aa:bb:1", ["10.0.0.6/24"])


def test_device_only_with_disks() -> None:
    machine = Machine()
    machine.good("create", uuid=UUID, brand="bhyve", ram=1024, autoboot=False)
    assert "device" not in machine.get()
    machine.good("delete", UUID)
    machine.good("create", **WHOLE)
    assert "device" in machine.get()


def test_the_digest_of_cloud_inits_data() -> None:
    machine = Machine("nocloud=yes")
    machine.create(flexible_disk_size=2048)
    assert "cloudinit_nocloud_hash" not in machine.get()["internal_metadata"]
    machine.good("start", UUID)
    first = machine.get()["internal_metadata"]["cloudinit_nocloud_hash"]
    machine.good("stop", UUID)
    machine.good("start", UUID)
    assert machine.get()["internal_metadata"]["cloudinit_nocloud_hash"] == first
    machine.good("stop", UUID)
    machine.good("update", UUID, "alias=other")
    machine.good("start", UUID)
    assert machine.get()["internal_metadata"]["cloudinit_nocloud_hash"] != first
