# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole VMs as domains of libvirt: made, changed, deleted, and every interruption of that ended by a second run."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_new import TEMPLATE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from tests.unit.four_steps import four_steps

from .conftest import LinuxHost, domain

IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
PACKAGES = [
    {"name": "small", "disk": 1024, "flexible_disk": True, "memory": 512, "vcpus": 1},
    {"name": "large", "disk": 2048, "flexible_disk": True, "memory": "1GiB", "vcpus": 2},
    {"name": "inflexible", "disk": 64, "memory": 512},
]
NEW = {
    "vm": "web01",
    "state": "present",
    "package": "small",
    "image": IMAGE,
    "unlisted": "refuse",
    "destroy_disks": False,
    "destroy_snapshots": False,
}
DISKS = [{"name": "root"}, {"name": "data", "size": 128, "preserve": True}, {"name": "rest", "size": "remaining"}]
IMPORT = {"image": IMAGE.replace("1", "2"), "image_file": "/images/debian.qcow2"}
GONE = {"vm": "web01", "state": "absent", "destroy_disks": True, "destroy_snapshots": True}


def go(linux, *vms, check=False, pool="tank", **policy):
    zfs, wanted = linux.zfs(), [{**NEW, **vm} for vm in vms]
    return run(zfs, linux.driver(), wanted, PACKAGES, Policy(**policy), pool, check)


def settle(linux, *vms, **policy):
    """A task in four steps."""
    return four_steps(linux, lambda check: go(linux, *vms, check=check, **policy), holds=linux.assert_whole)


def refusal(linux, code, *vms, **more):
    before = linux.fingerprint()
    predicted, refused = (go(linux, *vms, check=check, **more).problems for check in (True, False))
    assert linux.fingerprint() == before
    assert predicted == refused
    assert {p.code for p in refused} == {code}, refused
    return "; ".join(p.message for p in refused)


def host():
    linux = LinuxHost()
    linux.run("zfs", "create", "-V", "64M", f"tank/{IMAGE}")
    linux.run("guest", "write", f"tank/{IMAGE}", "0", "8", "1")
    linux.run("zfs", "snapshot", f"tank/{IMAGE}@final")
    return linux


@pytest.fixture
def linux():
    return host()


@pytest.mark.parametrize(("was", "kind"), [("thick", "file"), ("file", "thick"), ("file", "sparse")])
def test_a_new_vm_takes_a_disk_as_what_it_is(linux, was, kind):
    """Its disk is not copied on the way."""
    entry = {"name": "d", "size": 32, "type": was}
    settle(linux, {"disks": [{"name": "root"}, entry, {"name": "e", "size": 16}]})
    uuid = linux.vm(next(iter(linux.domains.configs))).disks[1].uuid
    assert linux.converge({"vm": "web01", "unlisted": "detach", "disks": [{"name": "root"}, {"name": "e"}]}).changed
    new = {"vm": "web02", "disks": [{"name": "root"}, {"uuid": uuid, "type": kind}]}
    assert f"type {kind} is refused: tank/flexdisk/{uuid} is a {was} disk" in refusal(linux, "NotSupported", new)
    done = settle(linux, {**new, "disks": [{"name": "root"}, {"uuid": uuid}]})
    assert done.vms[0]["disks"][1]["type"] == was


def volumes(done):
    return {d["name"]: d["volume"] for d in done.vms[0]["disks"]}


def test_a_vm_is_made_with_a_machine_of_its_own(linux):
    done = settle(linux, {"disks": DISKS})
    vm = done.vms[0]
    assert [(d["name"], d["size"], d["pci_slot"], d["boot"]) for d in vm["disks"]] == [
        ("root", 64, "1:0:0", True),
        ("data", 128, "2:0:0", False),
        ("rest", 832, "3:0:0", False),
    ]
    assert (vm["memory"], vm["vcpus"], vm["package"], vm["flexible_disk_size"]) == (512, 1, "small", 1024)
    assert (vm["vm_quota_bytes"], vm["allocatable"]) == (1 << 20, 0)
    root = f"tank/{vm['uuid']}"
    assert linux.run("zfs", "get", "-Ho", "value", "quota", root) == linux.run(
        "zfs", "get", "-Ho", "value", "reservation", root
    )
    image = linux.run("guest", "hash", f"tank/{IMAGE}", "0", "8")
    assert linux.run("guest", "hash", f"{root}/disk0", "0", "8") == image
    config = linux.domains.xml(vm["uuid"], False)
    assert config.count('<boot order="1"') == 1
    assert config.count("pcie-root-port") == 12


def test_a_new_vm_has_the_ports_that_its_disks_ask_for(linux):
    done = settle(linux, {"disks": [{"name": "root"}, {"name": "data", "size": 16, "pci_slot": "14:0:0"}]})
    assert done.vms[0]["steps"][0]["text"].endswith(" at 14:0:0, PCIe root ports 13 to 14")
    assert linux.domains.xml(done.vms[0]["uuid"], False).count("pcie-root-port") == 14


def test_an_inflexible_one_too(linux):
    done = settle(linux, {"package": "inflexible"})
    assert [(d["size"], d["pci_slot"]) for d in done.vms[0]["disks"]] == [(64, "1:0:0"), (64, "2:0:0")]
    done = settle(linux, {"package": "small"})
    assert done.vms[0]["flexible_disk_size"] == 1024


def test_packages_change_memory_cpus_and_space(linux):
    settle(linux, {"disks": DISKS[:2], "state": "running"})
    done = settle(linux, {"disks": DISKS[:2], "package": "large", "autoboot": True})
    vm = done.vms[0]
    assert (vm["memory"], vm["vcpus"], vm["flexible_disk_size"], vm["autoboot"]) == (1024, 2, 2048, True)
    assert "next start" in done.warnings[0]
    config = linux.domains.xml(vm["uuid"], False)
    assert '<memory unit="MiB">1024</memory>' in config
    assert ">2</vcpu>" in config
    settle(linux, {"disks": DISKS[:2], "state": "stopped"})


TOPOLOGY = "<topology sockets='1' dies='1' cores='2' threads='1'/>"
CELLS = "<numa><cell id='0' cpus='0-1' memory='524288' unit='KiB'/></numa>"


@pytest.mark.parametrize(
    ("cpu", "more", "change", "text"),
    [
        (TOPOLOGY, "", {"vcpus": 4}, "vcpus 2 -> 4 is refused: the <topology> of its CPU says the same, and would not"),
        (CELLS, "", {"vcpus": 4}, "vcpus 2 -> 4 is refused: the <numa> cells of its CPU"),
        (CELLS, "", {"memory": 1024}, "memory 512 MiB -> 1 GiB is refused: the <numa> cells of its CPU"),
        ("", "<vcpus><vcpu id='0' enabled='yes'/></vcpus>", {"vcpus": 4}, "the list <vcpus> says the same"),
        ("", "", {"package": "large"}, ""),
    ],
)
def test_what_another_element_fixes_is_not_changed(linux, cpu, more, change, text):
    template = TEMPLATE.replace("<cpu mode='host-passthrough'/>", f"<cpu mode='host-passthrough'>{cpu}</cpu>{more}")
    settle(linux, {"disks": DISKS[:2], "template": template, "vcpus": 2})
    settle(linux, {"disks": DISKS[:2], "vcpus": 2, "memory": 512})
    if text:
        assert text in refusal(linux, "NotSupported", {"disks": DISKS[:2], "vcpus": 2, "memory": 512, **change})
    else:
        settle(linux, {"disks": DISKS[:2], **change})


SCHED = "<vcpusched vcpus='0-3' scheduler='fifo' priority='1'/>"


@pytest.mark.parametrize(
    ("tune", "part", "last"),
    [
        (SCHED, "<vcpusched vcpus='0-3'> of its <cputune>", 3),
        (
            "<cachetune vcpus='0-1,^1,2'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>",
            "<cachetune vcpus='0-1,^1,2'> of its <cputune>",
            2,
        ),
        (
            "<memorytune vcpus='2'><node id='0' bandwidth='60'/></memorytune>",
            "<memorytune vcpus='2'> of its <cputune>",
            2,
        ),
        ("<vcpupin vcpu='3' cpuset='0'/>", "", 0),
    ],
)
def test_vcpus_that_another_element_names_stay(linux, tune, part, last):
    template = TEMPLATE.replace("<cpu mode", f"<cputune>{tune}</cputune><cpu mode")
    settle(linux, {"disks": DISKS[:2], "template": template, "vcpus": 4, "memory": 512})
    declaration = {"disks": DISKS[:2], "vcpus": 2}
    if not part:
        settle(linux, declaration)
        return
    problem = refusal(linux, "NotSupported", declaration)
    assert f"vcpus 4 -> 2 is refused: {part} names vcpu {last}, and would not follow; change both with virsh" in problem
    settle(linux, {**declaration, "vcpus": 6})


def test_a_template_that_names_more_vcpus_is_refused(linux):
    template = TEMPLATE.replace("<cpu mode", f"<cputune>{SCHED}</cputune><cpu mode")
    problem = refusal(linux, "InvalidArgument", {"template": template, "vcpus": 2})
    assert "vcpus is 2, but <vcpusched vcpus='0-3'> of its <cputune> in template names vcpu 3" in problem


def test_memory_devices_fix_the_memory(linux):
    dimm = "<memory model='dimm'><target><size unit='MiB'>64</size></target></memory></devices>"
    settle(linux, {"disks": DISKS[:2], "template": TEMPLATE.replace("</devices>", dimm)})
    assert "its <memory> devices" in refusal(linux, "NotSupported", {"disks": DISKS[:2], "memory": 1024})


def test_a_template_with_another_topology_is_refused(linux):
    template = TEMPLATE.replace("<cpu mode='host-passthrough'/>", f"<cpu mode='host-passthrough'>{TOPOLOGY}</cpu>")
    problem = refusal(linux, "InvalidArgument", {"template": template, "vcpus": 4})
    assert "vcpus is 4, but the <topology> in template makes 2" in problem


def test_another_template(linux):
    xml = TEMPLATE.replace("q35", "pc").replace("pcie-root'", "pci-root'")
    xml = "\n".join(line for line in xml.splitlines() if "root-port" not in line)
    done = settle(linux, {"disks": DISKS, "template": xml})
    assert [d["pci_slot"] for d in done.vms[0]["disks"]] == ["0:3:0", "0:4:0", "0:5:0"]


NO_DEVICES = TEMPLATE[: TEMPLATE.index("<devices>")] + "%s</domain>"


@pytest.mark.parametrize("machine", ["q35", "pc"])
def test_a_template_without_a_device(linux, machine):
    done = settle(linux, {"disks": DISKS, "template": (NO_DEVICES % "<devices/>").replace("q35", machine)})
    assert len(done.vms[0]["disks"]) == 3


@pytest.mark.parametrize(
    ("code", "vm", "text"),
    [
        ("InvalidArgument", {"template": NO_DEVICES % ""}, "template has no <devices>"),
        ("InvalidArgument", {"template": TEMPLATE.replace("${name}", "other")}, "must be ${name} and ${uuid}"),
        ("InvalidArgument", {"template": TEMPLATE.replace("${memory}", "${ram}")}, "'ram'; it may have ${name}"),
        ("UnexpectedOutput", {"template": "none"}, "no XML"),
        ("InvalidArgument", {"options": {"nics": []} | {"a": 1}}, "options works only with vmadm"),
        ("InvalidArgument", {"secret_metadata": {"a": "12345678"}}, "secret_metadata works only with vmadm"),
        ("InvalidArgument", {"quota": "1MiB", "disks": [{}, {"size": 5, "model": "nvme"}]}, "model 'nvme'"),
        ("ResourceNotFound", {"image": IMAGE.replace("1", "2")}, "there is no tank/"),
    ],
)
def test_what_cannot_be_made(linux, code, vm, text):
    assert text in refusal(linux, code, vm)


def test_a_template_with_a_disk(linux):
    disk = "<disk type='block' device='disk'><source dev='/dev/sda'/><target dev='vda' bus='virtio'/></disk>"
    xml = TEMPLATE.replace("<memballoon", disk + "<memballoon")
    assert "declare them in disks" in refusal(linux, "InvalidArgument", {"template": xml})


def test_the_pool_is_asked_for_where_nothing_tells_it(linux):
    assert "needs a pool" in refusal(linux, "MissingParameter", {}, pool=None)
    settle(linux, {})
    settle(linux, {}, {"vm": "web02"}, pool=None)


def test_the_boot_disk_is_not_made_anew(linux):
    """For a moment another disk would be the boot disk."""
    second = IMAGE.replace("1", "5")
    linux.run("zfs", "create", "-V", "64M", f"tank/{second}")
    linux.run("zfs", "snapshot", f"tank/{second}@final")
    settle(linux, {"disks": DISKS, "state": "running"})
    wanted = {"image": second, "disks": [{"name": "root", "recreate": True}, *DISKS[1:]]}
    assert "cannot be replaced with libvirt" in refusal(linux, "NotSupported", wanted, allow_restart=True)


def test_no_detached_disk_becomes_the_boot_disk_either(linux):
    settle(linux, {"disks": DISKS})
    names = [disk["name"] for disk in DISKS]
    settle(linux, {"disks": DISKS[:-1], "unlisted": "detach"})
    [left] = settle(linux, {"disks": DISKS[:-1]}).vms[0]["parked"]
    assert left["name"] == names[-1]
    wanted = {"disks": [{"uuid": left["uuid"], "boot": True, "recreate": True}, *DISKS[1:-1]]}
    assert "cannot be replaced with libvirt" in refusal(linux, "NotSupported", wanted, allow_restart=True)


def test_a_mark_says_that_a_vm_is_out_of_service(linux):
    assert settle(linux, {"disks": DISKS, "state": "running", "drained": True}).vms[0]["drained"] is True
    done = settle(linux, {"disks": DISKS, "state": "running", "drained": False})
    assert [(step["text"], step["class"]) for step in done.vms[0]["steps"]] == [("~ drained true -> false", "live")]


def test_protection_is_kept_with_the_dataset(linux):
    uuid = settle(linux, {"disks": DISKS, "indestructible": True}).vms[0]["uuid"]
    refusal(linux, "Indestructible", GONE)
    entries = [{"name": "root"}, {"name": "rest"}]
    problems = linux.converge({"vm": uuid, "unlisted": "detach", "disks": entries}).problems
    assert [p.code for p in problems] == ["Indestructible"]
    linux.run("zfs", "snapshot", f"tank/{uuid}@indestructible")
    own = {**GONE, "destroy_snapshots": False, "indestructible": False}
    assert "would be destroyed with it: indestructible;" in refusal(linux, "HasSnapshots", own)
    settle(linux, {"disks": DISKS, "indestructible": False})
    settle(linux, {**GONE})


def test_a_deleted_vm_leaves_what_is_preserved_and_finds_it_again(linux):
    made = settle(linux, {"disks": DISKS, "state": "running"})
    linux.run("guest", "write", volumes(made)["data"], "0", "8", "7")
    data = linux.run("guest", "hash", volumes(made)["data"])
    assert "rest (832 MiB" in refusal(linux, "DataDisks", {**GONE, "destroy_disks": False})
    done = settle(linux, GONE)
    assert [d["name"] for d in done.vms[0]["parked"]] == ["data"]
    assert linux.run("guest", "hash", done.vms[0]["parked"][0]["volume"]) == data
    assert linux.domains.configs == {}
    again = settle(linux, {"disks": DISKS})
    assert linux.run("guest", "hash", volumes(again)["data"]) == data
    assert again.vms[0]["uuid"] == made.vms[0]["uuid"]


def test_an_image_is_imported_once(linux):
    image = IMAGE.replace("1", "2")
    new = {"image": image, "image_file": "/images/debian.qcow2", "disks": DISKS}
    done = settle(linux, new, {**new, "vm": "web02"})
    assert f"+ image tank/{image} of 64 MiB from /images/debian.qcow2" in done.diff
    assert [call[:2] for call in linux.calls].count(["qemu-img", "convert"]) == 1
    for vm in done.vms:
        assert vm["disks"][0]["image"] == image
        root = linux.run("guest", "hash", vm["disks"][0]["volume"])
        assert root == linux.run("guest", "hash", f"tank/{image}")
    assert linux.run("zfs", "get", "-Hpo", "value", "refreservation", f"tank/{image}") == "0\n"
    settle(linux, {**new, "vm": "web03"})


def test_an_image_that_is_missing_has_the_ways_to_bring_it(linux):
    image = IMAGE.replace("1", "2")
    problem = refusal(linux, "ResourceNotFound", {"image": image, "disks": DISKS})
    assert (
        f"image {image} is missing: there is no tank/{image}@final. A new VM imports it from a raw or qcow2" in problem
    )
    assert "that image_file names beside image" in problem
    assert f"qemu-img convert -n -O raw FILE /dev/zvol/tank/{image}; zfs snapshot tank/{image}@final" in problem


def test_what_is_no_image_is_left_alone(linux):
    image = IMAGE.replace("1", "2")
    linux.run("zfs", "create", "-V", "64M", f"tank/{image}")
    message = refusal(linux, "AlreadyExists", {"image": image, "image_file": "/images/debian.qcow2"})
    assert f"tank/{image} exists without its snapshot @final" in message
    refusal(linux, "MissingParameter", {"image": None, "image_file": "/images/debian.qcow2"})
    assert "absolute path" in refusal(linux, "InvalidArgument", {"image": IMAGE.replace("1", "3"), "image_file": "x"})


def test_a_guest_that_does_not_shut_down_is_not_deleted(linux):
    uuid = settle(linux, {"state": "running", "disks": DISKS}).vms[0]["uuid"]
    linux.domains.deaf.add(uuid)
    done = go(linux, GONE, stop_timeout=3)
    assert (done.failure["error_code"], done.failure["restarted"]) == ("VmNotStopped", None)
    assert (done.vms[0]["state"], len(done.vms[0]["disks"])) == ("running", 3)


def test_a_vm_whose_disks_lie_elsewhere_is_not_forgotten(linux):
    linux.run("zfs", "create", "-V", "64M", "tank/elsewhere")
    linux.domains.add(domain(["tank/elsewhere"]))
    assert "{vm: web01, adopt: true}" in refusal(linux, "ResourceNotFound", GONE)


class Killed(BaseException):
    pass


def interrupted(linux, when, number, vm):
    """A run that is killed before or after a change of that number; whether it came so far."""
    left = [number]

    def hook(name, arguments, moment):
        if moment == when:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

    linux.hook = linux.domains.hook = hook
    try:
        go(linux, vm)
    except Killed:
        return True
    finally:
        linux.hook = linux.domains.hook = None
    return False


@pytest.mark.parametrize("vm", [{"disks": DISKS, "state": "running"}, GONE], ids=["make", "delete"])
def test_snapshots_of_the_whole_pool_keep_no_interrupted_run_from_being_ended(vm):
    number, came = 0, True
    while came:
        number += 1
        linux = host()
        if vm is GONE:
            go(linux, {"disks": DISKS, "state": "running"})
        came = interrupted(linux, "after", number, vm)
        linux.run("zfs", "snapshot", "-r", "tank@hourly")
        predicted, done = go(linux, vm, check=True), go(linux, vm)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        assert predicted.plan == done.plan
    assert number > 3


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "vm", [{"disks": DISKS, "state": "running"}, {}, IMPORT, GONE], ids=["make", "usual", "import", "delete"]
)
def test_killed_at_any_change_a_second_run_ends_it(when, vm):
    number, came = 0, True
    while came:
        number += 1
        linux = host()
        if vm is GONE:
            made = go(linux, {"disks": DISKS, "state": "running"})
            linux.run("guest", "write", volumes(made)["data"], "0", "8", "7")
            data = linux.run("guest", "hash", volumes(made)["data"])
        came = interrupted(linux, when, number, vm)
        done = go(linux, vm)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        again = go(linux, vm, check=True)
        assert (again.problems, again.changed) == ([], False), (number, again.diff)
        names = linux.run("zfs", "list", "-Ho", "name").split()
        if vm is GONE:
            assert linux.domains.configs == {}
            assert [linux.run("guest", "hash", n) for n in names if n.startswith("tank/flexdisk/")] == [data]
        else:
            uuid = next(iter(linux.domains.configs))
            assert [d.name for d in linux.vm(uuid).disks] == [
                d["name"] for d in vm.get("disks", [{"name": "disk0"}, {"name": "disk1"}])
            ]
            linux.assert_whole()
            assert {n for n in names if n.count("/") == 1} <= {
                f"tank/{uuid}",
                f"tank/{IMAGE}",
                "tank/flexdisk",
                f"tank/{IMPORT['image']}",
            }
    assert number > 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_that_was_killed_stays_a_stop(when):
    number, came, off = 0, True, {"state": "stopped", "package": "large"}
    while came:
        number += 1
        linux = host()
        uuid = go(linux, {"state": "running", "autoboot": True, "disks": DISKS[:2]}).vms[0]["uuid"]
        came = interrupted(linux, when, number, off)
        done = go(linux, off)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        vm = linux.vm(uuid)
        result = (vm.config.state, vm.config.autoboot, vm.config.memory, vm.interrupted)
        assert result == ("stopped", True, 1024, None), number
        assert not go(linux, off).changed
    assert number > 3
