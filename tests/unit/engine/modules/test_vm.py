# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole VMs on the node: made exactly as predicted, changed by their packages, deleted without what was to be kept."""

from __future__ import annotations

import contextlib
import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

from ..conftest import IMAGE, Simulated

PACKAGES = [
    {"name": "flexible", "disk": 102400, "flexible_disk": True, "memory": 1024, "vcpus": 2},
    {"name": "larger", "disk": "200GiB", "flexible_disk": True, "memory": 2048, "vcpus": 4},
    {"name": "smaller", "disk": 40960, "flexible_disk": True, "memory": 1024, "vcpus": 2},
    {"name": "tiny", "disk": 11264, "flexible_disk": True, "memory": 1024, "vcpus": 1},
    {"name": "whole", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{"size": "remaining"}]},
    {"name": "boot-only", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{}]},
    {"name": "mixed", "disk": 30720, "flexible_disk": True, "memory": 1024, "disks": [{}, {"size": 512}]},
    {"name": "inflexible", "disk": 4096, "memory": 1024, "vcpus": 1},
]
NOCLOUD = "aaaaaaaa-0000-4000-8000-000000000002"
OTHER = "dddddddd-0000-4000-8000-000000000009"
NEW = {"vm": "web01", "package": "flexible", "image": IMAGE, "state": "present"}
DEFAULTS = {
    "vm": "web01",
    "state": "present",
    "unlisted": "refuse",
    "destroy_disks": False,
    "destroy_snapshots": False,
}


def go(sim, *vms, check=False, **policy):
    zfs, hypervisor = Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner, sim.waits.append)
    return run(zfs, hypervisor, [{**DEFAULTS, **vm} for vm in vms], PACKAGES, Policy(**policy), None, check)


def settle(sim, *vms, **policy):
    """A task in four steps."""
    return four_steps(sim, lambda check: go(sim, *vms, check=check, **policy))


def refusal(sim, code, *vms, **policy):
    before = sim.fingerprint()
    predicted, refused = (go(sim, *vms, check=check, **policy).problems for check in (True, False))
    assert sim.fingerprint() == before
    assert predicted == refused
    assert {p.code for p in refused} == {code}, refused
    return "; ".join(p.message for p in refused)


def sizes(done):
    return [disk["size"] for disk in done.vms[0]["disks"]]


@pytest.fixture
def sim():
    sim = Simulated(512 << 30)
    sim.run("vmadm", "lookup")
    return sim


@pytest.mark.parametrize(
    ("package", "disks", "expected"),
    [
        ("flexible", None, [10240, 92160]),
        ("flexible", [{}, {"size": 20480}, {"size": "remaining"}], [10240, 20480, 71680]),
        ("flexible", [{}, {"size": "remaining"}, {"size": 512}], [10240, 91648, 512]),
        ("flexible", [{"size": 20480}], [20480]),
        ("whole", None, [30720]),
        ("boot-only", None, [10240]),
        ("mixed", None, [10240, 512]),
        ("mixed", [{}, {"size": "1GiB"}], [10240, 1024]),
        ("inflexible", None, [10240, 4096]),
    ],
)
def test_disks_of_request_package_or_the_usual_ones(sim, package, disks, expected):
    done = settle(sim, {"package": package, "image": IMAGE, "disks": disks})
    assert sizes(done) == expected
    vm = sim.vm(done.vms[0]["uuid"])
    assert [disk.size_mib for disk in vm.disks] == expected
    assert (vm.config.memory, vm.package, vm.config.state) == (1024, package, "stopped")
    assert [disk.pci_slot for disk in vm.disks] == [f"0:4:{n}" for n in range(len(expected))]
    assert [disk.boot for disk in vm.disks] == [True] + [False] * (len(expected) - 1)
    sim.assert_lawful(vm.config.uuid)


@pytest.mark.parametrize(
    ("code", "vm", "text"),
    [
        ("InvalidArgument", {"package": "inflexible", "disks": [{}, {"size": 512}]}, "needs a package with flexible"),
        ("InvalidArgument", {"disks": [{}, *[{"size": 1}] * 8]}, "9 disks are too many: a new VM can have at most 8"),
        ("InvalidArgument", {"disks": [{}, {"size": "remaining"}, {"size": "remaining"}]}, "only one disk"),
        ("InvalidArgument", {"disks": [{"size": 5120}]}, f"size 5 GiB is too small: image {IMAGE} has 10 GiB"),
        ("InvalidArgument", {"disks": [{}, {"size": 0}]}, "at least 1 MiB"),
        ("InvalidArgument", {"disks": [{}, {"size": 5, "state": "absent"}]}, "cannot have a disk with state=absent"),
        ("InvalidArgument", {"disks": [{}, {"size": 5, "pci_slot": "0:6:1"}]}, "reserved for network"),
        (
            "InvalidArgument",
            {"disks": [{}, {"size": 5, "model": "scsi"}]},
            "model 'scsi' is not valid: it must be one of",
        ),
        ("InvalidArgument", {"quota": "512MiB"}, "takes only multiples of 1 GiB"),
        ("InvalidArgument", {"vm": "web 01"}, "name 'web 01' of a new VM is not valid: use up to 64 letters"),
        ("InvalidArgument", {"uuid": "x"}, "not a uuid"),
        ("InvalidArgument", {"image": "x"}, "image must be the uuid"),
        ("InvalidArgument", {"vcpus": 0}, "vcpus is 0; it must be from 1 to 255"),
        (
            "InvalidArgument",
            {"options": {"ram": 5, "brand": "kvm"}},
            "options cannot set brand, ram: the module sets that itself",
        ),
        ("InvalidArgument", {"template": "<domain/>"}, "template works only with libvirt"),
        ("InvalidArgument", {"flexible_disk_size": 5}, "the package sets it"),
        ("InsufficientSpace", {"package": "tiny", "disks": [{}, {"size": 1025}]}, "1 MiB too small"),
        (
            "InsufficientSpace",
            {"package": "tiny", "disks": [{}, {"size": 1024}, {"size": "remaining"}]},
            "leaves 0 MiB",
        ),
        ("MissingParameter", {"disks": [{}, {}]}, "a new disk needs a size or an image"),
        ("MissingParameter", {"package": None, "flexible_disk_size": 20480}, "needs memory"),
        ("ResourceNotFound", {"package": "huge"}, "there is no package huge; known packages: boot-only, flexible"),
        ("ResourceNotFound", {"disks": [{}, {"uuid": IMAGE}]}, "uuid"),
        ("VmadmFailed", {"image": IMAGE.replace("1", "2")}, "ImageNotInstalled"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything(sim, code, vm, text):
    assert text in refusal(sim, code, {"package": "flexible", "image": IMAGE, **vm})


def test_a_package_is_checked_by_itself(sim):
    bad = [
        {"name": "a", "disk": 0},
        {"name": "b", "disk": 5, "disks": []},
        {"name": "b", "disk": 1},
        {"name": "-", "disk": 1},
    ]
    zfs, hypervisor = Zfs(sim.runner), Vmadm(sim.runner)
    outcome = run(zfs, hypervisor, [DEFAULTS], bad, Policy(), None, True)
    assert [p.code for p in outcome.problems] == ["InvalidArgument"] * 4
    message = "; ".join(p.message for p in outcome.problems)
    for text in (
        "disk of package a",
        "package b has disks, so it needs",
        "two packages are called b",
        "package name '-'",
    ):
        assert text in message


def test_names_and_uuids_of_others(sim):
    settle(sim, NEW)
    zone = {"uuid": IMAGE.replace("aaaa", "dddd"), "brand": "joyent-minimal", "alias": "zone", "image_uuid": IMAGE}
    sim.admin("image-import", IMAGE.replace("1", "3"), "0", "type=zone-dataset")
    zone["image_uuid"] = IMAGE.replace("1", "3")
    sim.run("vmadm", "create", stdin=json.dumps(zone))
    refusal(sim, "BrandNotSupported", {**NEW, "vm": "zone"})
    assert "listed twice" in refusal(sim, "InvalidArgument", NEW, NEW)
    twins = ({**NEW, "vm": name, "uuid": OTHER} for name in ("new01", "new02"))
    assert "listed twice, also as new01" in refusal(sim, "InvalidArgument", *twins)
    assert "that of VM zone" in refusal(sim, "InvalidArgument", {**NEW, "vm": "web02", "uuid": zone["uuid"]})
    assert "is not dddddddd-" in refusal(sim, "InvalidArgument", {**NEW, "uuid": OTHER})
    sim.run("zfs", "create", f"zones/{OTHER}")
    assert f"zones/{OTHER} exists, belongs to no VM, and may still be needed" in refusal(
        sim, "AlreadyExists", {**NEW, "vm": "new", "uuid": OTHER}
    )


def addresses(uuid):
    return [uuid, uuid.upper(), uuid[:13], uuid[:8]]


def test_a_vm_without_an_alias_is_changed_and_deleted(sim):
    uuid = sim.create(alias="", uuid=OTHER, flexible=102400)
    for number, address in enumerate(addresses(uuid)):
        done = settle(sim, {"vm": address, "package": "larger" if number % 2 else "flexible", "vcpus": 3 + number})
        assert (done.vms[0]["vm"], done.vms[0]["uuid"], done.vms[0]["alias"]) == (address, uuid, "")
        assert done.diff.splitlines()[1] == f"{uuid}:"
    done = settle(sim, {"vm": uuid, "state": "absent", "destroy_disks": True})
    assert f"- VM {uuid} DESTROYED" in done.diff
    assert (done.vms[0]["vm"], done.vms[0]["uuid"], done.vms[0]["state"]) == (uuid, uuid, "absent")
    assert sim.run("vmadm", "lookup") == ""


def test_a_uuid_that_no_vm_has(sim):
    assert not settle(sim, {"vm": OTHER, "state": "absent"}).changed
    for state in ("present", "running", "stopped"):
        assert "no VM has this uuid" in refusal(sim, "ResourceNotFound", {**NEW, "vm": OTHER.upper(), "state": state})


@pytest.mark.parametrize("name", ["deadbeef", "DeadBeef", "dddddddd-0000", "12345678-"])
def test_no_new_vm_is_called_like_the_beginning_of_a_uuid(sim, name):
    assert "beginning of a VM's uuid" in refusal(sim, "InvalidArgument", {**NEW, "vm": name})
    assert not settle(sim, {"vm": name, "state": "absent"}).changed


@pytest.mark.parametrize("name", ["bee", "db01", "beef-1", "deadbeef1", "web01"])
def test_any_other_name_will_do(sim, name):
    assert settle(sim, {**NEW, "vm": name}).vms[0]["alias"] == name


def test_a_name_that_another_vms_uuid_begins_with_makes_and_changes_nothing(sim):
    """db01 is to be made; the uuid of another VM begins with db01."""
    uuid = sim.create(alias="web09", uuid="db01" + OTHER[4:])
    message = refusal(sim, "InvalidArgument", {**NEW, "vm": "db01"})
    assert (
        f"only the beginning of the uuid of VM web09 ({uuid}); a task that could make a VM of this name takes"
        in message
    )
    refusal(sim, "InvalidArgument", {"vm": uuid[:7], "state": "running"})
    assert settle(sim, {"vm": uuid[:8], "state": "running"}).changed


def test_a_deletion_takes_no_mere_prefix(sim):
    """The second run of a deletion by alias must not delete the VM whose uuid begins so."""
    uuid = sim.create(alias="web09", uuid=OTHER)
    away = {"state": "absent", "destroy_disks": True}
    for address in (*addresses(uuid)[2:], uuid[:4]):
        message = refusal(sim, "InvalidArgument", {"vm": address, **away})
        assert (
            f"only the beginning of the uuid of VM web09 ({uuid}); state=absent takes its whole uuid or its alias"
            in message
        )
    other = sim.create(alias=uuid[:4], uuid=IMAGE.replace("aaaaaaaa", "eeeeeeee"))
    message = refusal(sim, "Ambiguous", {"vm": uuid[:4], **away})
    assert f"dddd ({other}), web09 ({uuid})" in message
    settle(sim, {"vm": other, **away})
    refusal(sim, "InvalidArgument", {"vm": uuid[:4], **away})
    settle(sim, {"vm": uuid.upper(), **away})


def test_a_deletion_takes_no_alias_that_is_a_uuid(sim):
    """The second run of a deletion by uuid must not delete the VM that is called so."""
    first = sim.create(alias="web09", uuid=OTHER)
    second = sim.create(alias=first, uuid=IMAGE.replace("aaaaaaaa", "eeeeeeee"))
    away = {"state": "absent", "destroy_disks": True}
    assert not go(sim, {"vm": first, "vcpus": 2}, check=True).problems
    assert go(sim, {"vm": first, **away}).changed
    message = refusal(sim, "InvalidArgument", {"vm": first, **away})
    assert f"the alias of VM {first} ({second}); state=absent takes the VM's own uuid" in message
    assert settle(sim, {"vm": first, "vcpus": 2}).vms[0]["uuid"] == second
    settle(sim, {"vm": second, **away})


def test_the_same_vm_by_two_addresses_is_listed_twice(sim):
    uuid = sim.create(uuid=OTHER)
    assert "listed twice, also as web01" in refusal(sim, "InvalidArgument", {"vm": "web01"}, {"vm": uuid[:8]})


def test_a_configuration_without_alias_and_dataset_is_deleted(sim):
    uuid = sim.create(alias="", uuid=OTHER)
    sim.run("zfs", "destroy", "-r", f"zones/{uuid}")
    refusal(sim, "InvalidArgument", {"vm": uuid[:8], "state": "absent"})
    assert f"- VM {uuid} DESTROYED" in settle(sim, {"vm": uuid, "state": "absent"}).diff
    assert sim.run("vmadm", "lookup") == ""


def test_the_platforms_own_disk_gets_room_of_its_own():
    sim = Simulated(512 << 30)
    sim.run("vmadm", "lookup")
    sim.admin("image-import", NOCLOUD, "10240", "nocloud=yes")
    done = settle(sim, {**NEW, "image": NOCLOUD, "disks": [{}, {"size": 2048}, {"size": "remaining"}]})
    assert [(d["size"], d["hidden"]) for d in done.vms[0]["disks"]] == [
        (10240, False),
        (2048, False),
        (90112, False),
        (16, True),
    ]
    assert done.vms[0]["flexible_disk_size"] == 102400
    assert "16 MiB of the platform" in done.diff
    sim.run("vmadm", "start", done.vms[0]["uuid"])


def test_power_is_as_wanted(sim):
    done = settle(sim, {**NEW, "state": "running"})
    assert (done.vms[0]["state"], done.vms[0]["autoboot"]) == ("running", True)
    assert not go(sim, {**NEW, "state": "present"}).changed
    done = settle(sim, {**NEW, "state": "stopped", "autoboot": True})
    assert (done.vms[0]["state"], done.vms[0]["autoboot"]) == ("stopped", True)
    done = settle(sim, {**NEW, "state": "running", "autoboot": False})
    assert (done.vms[0]["state"], done.vms[0]["autoboot"]) == ("running", False)


def test_a_package_changes_all_that_it_has(sim):
    settle(sim, {**NEW, "state": "running"})
    done = settle(sim, {**NEW, "package": "larger"})
    vm = done.vms[0]
    assert (vm["memory"], vm["vcpus"], vm["flexible_disk_size"], vm["package"]) == (2048, 4, 204800, "larger")
    assert done.warnings == [f"web01 ({vm['uuid']}): memory and vcpus change at its next start"]
    sim.assert_lawful(vm["uuid"])
    message = refusal(sim, "InsufficientSpace", {**NEW, "package": "smaller"})
    assert "disks and snapshots need 100 GiB" in message
    assert "by RFD 154 existing disk usage is 100 GiB" in message


@pytest.mark.parametrize("package", ["larger", "smaller"])
def test_package_and_disks_in_one_task_in_the_right_order(sim, package):
    """Growing: the package first; shrinking: the disk first."""
    settle(sim, {**NEW, "disks": [{"name": "root"}, {"name": "data", "size": 51200}]})
    size = 153600 if package == "larger" else 20480
    disks = [{"name": "root"}, {"name": "data", "size": size, "dangerous_allow_shrink": True}]
    done = settle(sim, {**NEW, "package": package, "disks": disks})
    assert sizes(done) == [10240, size]
    sim.assert_lawful(done.vms[0]["uuid"])


def test_space_moves_from_one_disk_to_another_in_one_task(sim):
    names = ("root", "a", "b")
    made = settle(
        sim, {**NEW, "disks": [{"name": "root"}, {"name": "a", "size": 61440}, {"name": "b", "size": "30720"}]}
    )
    uuid = made.vms[0]["uuid"]
    for number in range(3):
        sim.write(f"zones/{uuid}/disk{number}", 40 + number, 0, 100)
    before = [sim.digest(f"zones/{uuid}/disk{n}", "0", "100") for n in range(3)]
    for a, b in ((20480, 71680), (81920, 10240)):
        wanted = [10240, a, b]
        disks = [{"name": n, "size": s, "dangerous_allow_shrink": True} for n, s in zip(names, wanted, strict=True)]
        assert sizes(settle(sim, {**NEW, "disks": disks})) == wanted
        assert [sim.digest(f"zones/{uuid}/disk{n}", "0", "100") for n in range(3)] == before


SECOND = IMAGE.replace("1", "5")


def test_another_image_for_a_vm_that_is_there_is_refused(sim):
    """Without a change, whatever else the entry says; the image that it has, and none, are right."""
    sim.admin("image-import", SECOND, "10240")
    sim.admin("image-import", NOCLOUD, "10240")
    settle(sim, NEW)
    for more in ({}, {"disks": [{"name": "disk0"}], "unlisted": "keep"}, {"package": "larger"}):
        message = refusal(sim, "FixedAtBirth", {**NEW, **more, "image": SECOND})
        assert f"boots from image {IMAGE}, and only a new boot disk gets image {SECOND}" in message
    [problem] = go(sim, {**NEW, "image": SECOND}, check=True).problems
    assert problem.as_dict()["class"] == "recreate"
    assert not go(sim, {**NEW, "image": None}, check=True).changed
    data = {"name": "data", "size": 10240, "image": SECOND}
    assert go(sim, {**NEW, "package": "larger", "disks": [data], "unlisted": "keep"}).changed


@pytest.mark.parametrize("more_of_entry", [{}, {"image": SECOND}, {"boot": True}])
def test_another_image_makes_the_boot_disk_anew_where_its_entry_allows_it(sim, more_of_entry):
    """The VM keeps its UUID, its network cards, its metadata and its other disks, which nobody touches."""
    sim.admin("image-import", SECOND, "10240")
    root, data = {"name": "root", **more_of_entry}, {"name": "data", "size": 64}
    nics = [{"nic_tag": "admin", "ips": ["dhcp"]}]
    more = {"options": {"nics": nics}, "customer_metadata": {"role": "web"}, "state": "running"}
    made = {"name": "root"}
    uuid = settle(sim, {**NEW, **more, "disks": [made, data]}).vms[0]["uuid"]
    fixed = ("uuid", "nics", "customer_metadata", "create_timestamp", "alias", "ram", "vcpus", "autoboot")
    before = {key: json.loads(sim.run("vmadm", "get", uuid)).get(key) for key in fixed}
    assert before["nics"][0]["mac"]
    sim.write(f"zones/{uuid}/disk1", 7)
    digest = sim.digest(f"zones/{uuid}/disk1")
    wanted = {**NEW, **more, "image": SECOND, "disks": [{**root, "recreate": True}, data]}
    done = settle(sim, wanted, allow_restart=True)
    steps = [(step["step"], step["disk"], step["class"]) for step in done.vms[0]["steps"]]
    assert steps == [
        ("stop", "", "restart"), ("detach", "root", "recreate"),
        ("create", "root", "recreate"), ("start", "", "restart"),
    ]  # fmt: skip
    assert {key: json.loads(sim.run("vmadm", "get", uuid)).get(key) for key in fixed} == before
    assert [(d["name"], d["image"], d["pci_slot"]) for d in done.vms[0]["disks"]] == [
        ("root", SECOND, "0:4:0"), ("data", "", "0:4:1"),
    ]  # fmt: skip
    assert sim.digest(f"zones/{uuid}/disk1") == digest
    assert [(d["image"], d["name"]) for d in done.vms[0]["parked"]] == [(IMAGE, "")]


def two_disks(sim):
    """A VM with disks root and data, and a second image. Returns what declares the VM with that image."""
    sim.admin("image-import", SECOND, "10240")
    vm = {**NEW, "disks": [{"name": "root"}, {"name": "data", "size": 64}]}
    settle(sim, vm)

    def wanted(*disks):
        return {**vm, "image": SECOND, "disks": list(disks)}

    return wanted


ANEW = {"name": "root", "recreate": True}


def test_the_entry_that_names_the_boot_disk_is_made_anew_wherever_it_stands(sim):
    wanted = two_disks(sim)
    data = {"name": "data", "size": 64}
    done = settle(sim, wanted(data, {**ANEW, "boot": True}))
    assert [(d["name"], d["image"]) for d in done.vms[0]["disks"]] == [("root", SECOND), ("data", "")]


def test_an_entry_that_is_not_first_needs_boot(sim):
    """A second run would not know it if this one were interrupted."""
    wanted = two_disks(sim)
    message = refusal(sim, "InvalidArgument", wanted({"name": "data"}, ANEW))
    assert message == "is the boot disk, but not the first entry; recreate: true makes it anew only with boot: true"


def test_a_data_disk_never_becomes_the_boot_disk_because_it_stands_first(sim):
    wanted = two_disks(sim)
    message = refusal(sim, "FixedAtBirth", wanted({"name": "data", "recreate": True}, {"name": "root"}))
    assert "only a new boot disk gets image" in message
    first = {"name": "data", "recreate": True, "boot": True}
    assert "is a data disk" in refusal(sim, "InvalidArgument", {**wanted(first), "unlisted": "keep"})


def test_a_boot_disk_that_is_listed_by_its_uuid_is_not_made_anew(sim):
    """The entry would not find the new one."""
    wanted = two_disks(sim)
    uuid = next(d.uuid for d in sim.vm(go(sim, {**NEW, "image": None}).vms[0]["uuid"]).disks if d.boot)
    entry = {"uuid": uuid, "recreate": True, "boot": True}
    assert "only a new boot disk" in refusal(sim, "FixedAtBirth", wanted(entry, {"name": "data"}))


def test_an_entry_that_says_boot_false_is_not_overruled(sim):
    wanted = two_disks(sim)
    message = refusal(sim, "InvalidArgument", wanted({**ANEW, "boot": False}, {"name": "data"}))
    assert "only with boot: true" in message


def test_an_image_that_is_not_known_is_not_compared(sim):
    """The boot disk was promoted, say, or comes from elsewhere."""
    payload = {"uuid": OTHER, "brand": "bhyve", "alias": "web01", "ram": 1024, "flexible_disk_size": 102400}
    disks = [{"size": 10240, "boot": True, "model": "virtio"}]
    sim.run("vmadm", "create", stdin=json.dumps({**payload, "vcpus": 2, "autoboot": False, "disks": disks}))
    settle(sim, NEW)
    settle(sim, {**NEW, "image": NOCLOUD})


def test_an_image_that_no_disk_would_have_is_refused(sim):
    sim.admin("image-import", SECOND, "10240")
    assert f"no disk would be made of image {IMAGE}" in refusal(sim, "InvalidArgument", {**NEW, "disks": []})
    other = {**NEW, "disks": [{"name": "root", "image": SECOND}]}
    assert f"disk root boots from image {SECOND}, so no disk" in refusal(sim, "InvalidArgument", other)
    settle(sim, {**NEW, "image": None, "disks": []})


def test_each_difference_says_what_it_takes(sim):
    """The same for a VM that runs and for one that is stopped, in check mode and for real."""
    sim.admin("image-import", SECOND, "1024")
    disks = [{"name": "root"}, {"name": "a", "size": 1024}, {"name": "b", "size": 1024}]
    made = settle(sim, {**NEW, "state": "running", "disks": disks})
    assert {step["class"] for step in made.vms[0]["steps"]} == {""}
    late = [disks[0], {**disks[1], "size": 2048}, {**disks[2], "image": SECOND, "recreate": True}]
    wanted = {**NEW, "package": "larger", "disks": late, "quota": "11GiB"}
    before = go(sim, wanted, check=True)
    assert [(p.code, p.as_dict()["class"]) for p in before.problems] == [("VmNotStopped", "restart")]
    refused = go(sim, {**wanted, "disks": [*late[:2], {**late[2], "recreate": False}]}, check=True, allow_restart=True)
    assert [(p.code, p.as_dict()["class"]) for p in refused.problems] == [("FixedAtBirth", "recreate")]
    lacking = go(sim, {**wanted, "package": "tiny"}, check=True, allow_restart=True)
    assert {p.as_dict()["class"] for p in lacking.problems} == {"refused"}
    predicted, done = (go(sim, wanted, check=check, allow_restart=True) for check in (True, False))
    assert predicted.vms[0]["steps"] == done.vms[0]["steps"]
    classes = {(step["step"], step["disk"]): step["class"] for step in done.vms[0]["steps"]}
    assert classes == {
        ("properties", ""): "restart",
        ("stop", ""): "restart",
        ("destroy", "b"): "recreate",
        ("flexible", ""): "live",
        ("quota", ""): "live",
        ("grow", "a"): "restart",
        ("create", "b"): "recreate",
        ("start", ""): "restart",
    }
    done = settle(sim, {**wanted, "state": "stopped", "indestructible": True})
    assert [(s["step"], s["class"]) for s in done.vms[0]["steps"]] == [("stop", "restart"), ("properties", "live")]
    done = settle(sim, {**wanted, "state": "running", "indestructible": False})
    assert {step["class"] for step in done.vms[0]["steps"]} == {"live"}


def test_inflexible_becomes_flexible_and_never_back(sim):
    settle(sim, {**NEW, "package": "inflexible"})
    done = settle(sim, {**NEW, "package": "flexible"})
    assert done.vms[0]["flexible_disk_size"] == 102400
    assert "it cannot be taken away" in refusal(sim, "InvalidArgument", {**NEW, "package": "inflexible"})


def test_a_mark_says_that_a_vm_is_out_of_service(sim):
    """A running VM gets it and loses it without a stop, and everybody who reads the VM sees it."""
    vm = {**NEW, "disks": [{"name": "root"}], "state": "running"}
    assert settle(sim, vm).vms[0]["drained"] is False
    done = settle(sim, {"vm": "web01", "drained": True})
    steps = [(step["step"], step["text"], step["class"]) for step in done.vms[0]["steps"]]
    assert steps == [("properties", "~ drained false -> true", "live")]
    assert done.vms[0]["drained"] is True
    assert info(Zfs(sim.runner), Vmadm(sim.runner), None, None, False).vms[0]["drained"] is True
    both = settle(sim, {**vm, "state": "stopped", "vcpus": 2})  # who does not speak of the mark does not change it
    assert both.vms[0]["drained"] is True
    done = settle(sim, {"vm": "web01", "drained": False, "state": "running"})
    assert [step["text"] for step in done.vms[0]["steps"]] == ["~ drained true -> false", "start"]
    root = f"zones/{done.vms[0]['uuid']}"
    assert "flexdisk:drained" not in sim.run("zfs", "get", "-Hpo", "property", "all", root).split()
    settle(sim, {"vm": "web01", "state": "absent", "drained": True})
    assert settle(sim, {**vm, "drained": True}).vms[0]["drained"] is True


@pytest.mark.parametrize("autoboot", [True, False])
def test_a_change_that_waits_for_a_start_gets_one_if_the_task_wants_it(sim, autoboot):
    vm = {**NEW, "disks": [{"name": "root"}], "state": "running", "autoboot": autoboot}
    settle(sim, vm)
    more = {"vm": "web01", "vcpus": 5, "restart": True}
    message = refusal(sim, "VmNotStopped", more)
    assert "must be restarted for: ~ vcpus" in message
    done = settle(sim, more, allow_restart=True)
    steps = [step["step"] for step in done.vms[0]["steps"]]
    assert steps == ["stop", "properties", "start", *([] if autoboot else ["autoboot"])]
    assert {step["class"] for step in done.vms[0]["steps"][:3]} == {"restart"}
    assert (done.vms[0]["state"], done.vms[0]["autoboot"], done.vms[0]["vcpus"]) == ("running", autoboot, 5)
    assert done.warnings == []
    settle(sim, {"vm": "web01", "state": "stopped"})
    done = settle(sim, {**more, "vcpus": 6}, allow_restart=True)
    assert [step["step"] for step in done.vms[0]["steps"]] == ["properties"]


def test_a_generation_restarts_a_vm_once(sim):
    vm = {**NEW, "disks": [{"name": "root"}], "state": "running", "generation": "one"}
    assert settle(sim, vm).vms[0]["generation"] == "one"
    assert "~ generation one -> two" in refusal(sim, "VmNotStopped", {"vm": "web01", "generation": "two"})
    both = {"vm": "web01", "generation": "two", "disks": [{"name": "root", "size": 20480}]}
    done = settle(sim, both, allow_restart=True)
    steps = [(step["step"], step["class"]) for step in done.vms[0]["steps"] if step["step"] != "law"]
    assert steps == [("stop", "restart"), ("properties", "restart"), ("grow", "restart"), ("start", "restart")]
    assert info(Zfs(sim.runner), Vmadm(sim.runner), None, None, False).vms[0]["generation"] == "two"
    assert settle(sim, {"vm": "web01", "state": "stopped"}).vms[0]["generation"] == "two"
    settle(sim, {"vm": "web01", "generation": "three", "state": "stopped"})
    assert "generation 'a b' is not" in refusal(sim, "InvalidArgument", {"vm": "web01", "generation": "a b"})


def test_the_mark_of_a_group(sim):
    """Nobody has said anything, the VM is a member, the VM is none: three things, and only the task changes them."""
    vm = {**NEW, "disks": [{"name": "root"}], "state": "running"}
    assert settle(sim, vm).vms[0]["member"] is None
    done = settle(sim, {"vm": "web01", "member": "web-1"})
    assert [(step["text"], step["class"]) for step in done.vms[0]["steps"]] == [("~ member unknown -> web-1", "live")]
    assert settle(sim, {"vm": "web01", "memory": 2048}).vms[0]["member"] == "web-1"
    assert settle(sim, {"vm": "web01", "member": ""}).vms[0]["member"] == ""
    assert info(Zfs(sim.runner), Vmadm(sim.runner), None, None, False).vms[0]["member"] == ""
    for wrong in ("web", "web-01", "-", "-1", "a b-1"):
        assert f"member {wrong!r} is not the name" in refusal(sim, "InvalidArgument", {"vm": "web01", "member": wrong})
    for other, mark in (("", "a VM of no group"), ("web-1", "web-1")):
        settle(sim, {"vm": "web01", "member": other})
        message = refusal(sim, "NotMarked", {"vm": "web01", "state": "absent", "member": "web-2"})
        assert f"only web-2 is deleted here, but the VM is marked as {mark}" in message
        assert "if it is web-2 all the same, say so first ({vm: web01, member: web-2})" in message
    settle(sim, {"vm": "web01", "state": "absent", "member": "web-1"})
    for member in ("web-0", ""):
        new = {**vm, "vm": "new" + member, "uuid": "", "member": member}
        assert settle(sim, new).vms[0]["member"] == member


def test_protection_is_also_that_of_the_disks(sim):
    vm = {**NEW, "disks": [{"name": "root"}, {"name": "a", "size": 2048}], "indestructible": True}
    done = settle(sim, vm)
    assert done.vms[0]["indestructible"] is True
    uuid = done.vms[0]["uuid"]
    smaller = {**vm, "disks": [{"name": "root"}, {"name": "a", "size": 1024, "dangerous_allow_shrink": True}]}
    for change in (
        smaller,
        {**vm, "disks": [{"name": "root"}], "unlisted": "detach"},
        {"vm": "web01", "state": "absent"},
    ):
        refusal(sim, "Indestructible", {**change, "destroy_disks": True})
    entries = [{"name": "root"}, {"name": "a", "state": "absent"}]
    assert [p.code for p in sim.converge({"vm": uuid, "disks": entries}).problems] == ["Indestructible"]
    settle(sim, {**smaller, "indestructible": False})
    settle(sim, vm | smaller | {"indestructible": True})
    settle(sim, {"vm": "web01", "state": "absent", "destroy_disks": True, "indestructible": False})


def test_the_protections_own_snapshot_is_nobodys(sim):
    """It goes with the protection, so it is none that a deletion takes along or that somebody must give up."""
    uuid = settle(sim, {**NEW, "disks": [{}], "indestructible": True}).vms[0]["uuid"]
    own = f"zones/{uuid}@indestructible"
    assert own in sim.run("zfs", "list", "-t", "snapshot", "-Ho", "name")
    refusal(sim, "Indestructible", GONE)
    goes = "~ indestructible true -> false; the protection's own snapshot @indestructible goes with it"
    assert goes in go(sim, {**NEW, "indestructible": False}, check=True).diff
    done = settle(sim, {**GONE, "indestructible": False})
    assert done.diff.splitlines()[1:] == [f"web01 ({uuid}):", f"  {goes}", "  - VM web01 DESTROYED with disk0 10 GiB"]


def test_another_snapshot_beside_the_protections_own_is_given_up_by_name(sim):
    uuid = settle(sim, {**NEW, "disks": [{}], "indestructible": True}).vms[0]["uuid"]
    sim.run("zfs", "snapshot", f"zones/{uuid}@mine")
    gone = {**GONE, "indestructible": False}
    message = refusal(sim, "HasSnapshots", gone)
    assert "snapshots that would be destroyed with it: mine; destroy" in message
    sim.run("zfs", "destroy", f"zones/{uuid}@mine")
    sim.run("zfs", "release", "do_not_destroy", f"zones/{uuid}@indestructible")
    message = refusal(sim, "HasSnapshots", gone)
    assert "indestructible (left of a protection whose hold somebody has released)" in message
    assert "with disk0 10 GiB, 1 snapshot\n" in settle(sim, {**gone, "destroy_snapshots": True}).diff


def kept():
    disks = [{"name": "root"}, {"name": "data", "size": 2048, "preserve": True}, {"name": "scratch", "size": 1024}]
    return {**NEW, "disks": disks, "state": "running"}


GONE = {"vm": "web01", "state": "absent"}


def test_a_deleted_vm_leaves_what_is_preserved_and_finds_it_again(sim):
    uuid = settle(sim, kept()).vms[0]["uuid"]
    for number in range(3):
        sim.write(f"zones/{uuid}/disk{number}", 50 + number, 0, 100)
    data = sim.digest(f"zones/{uuid}/disk1", "0", "100")
    sim.run("vmadm", "create-snapshot", uuid, "one")
    assert "scratch (1 GiB" in refusal(sim, "DataDisks", {**GONE, "destroy_snapshots": True})
    assert "vmsnap-one" in refusal(sim, "HasSnapshots", {**GONE, "destroy_disks": True})
    done = settle(sim, {**GONE, "destroy_disks": True, "destroy_snapshots": True})
    assert [(d["name"], d["snapshots"]) for d in done.vms[0]["parked"]] == [("data", 1)]
    assert (done.vms[0]["state"], done.vms[0]["disks"]) == ("absent", [])
    assert [step["step"] for step in done.vms[0]["steps"]] == ["stop", "detach", "delete_vm"]
    detached = done.vms[0]["parked"][0]["volume"]
    assert sim.digest(detached, "0", "100") == data
    assert "VM web01 DESTROYED with root 10 GiB and its snapshots" in done.diff
    again = settle(sim, kept())
    assert again.vms[0]["uuid"] == uuid
    shown = {d["name"]: (d["size"], d["pci_slot"]) for d in again.vms[0]["disks"]}
    assert shown == {"root": (10240, "0:4:0"), "data": (2048, "0:4:1"), "scratch": (1024, "0:4:2")}
    volumes = {d["name"]: d["volume"] for d in again.vms[0]["disks"]}
    assert sim.digest(volumes["data"], "0", "100") == data
    assert len({d["uuid"] for d in again.vms[0]["disks"]}) == 3


def test_a_boot_disk_with_preserve_is_kept_too(sim):
    vm = {**NEW, "disks": [{"name": "root", "preserve": True}]}
    uuid = settle(sim, vm).vms[0]["uuid"]
    sim.write(f"zones/{uuid}/disk0", 5, 0, 50)
    data = sim.digest(f"zones/{uuid}/disk0", "0", "50")
    done = settle(sim, GONE)
    assert sim.digest(done.vms[0]["parked"][0]["volume"], "0", "50") == data
    message = refusal(sim, "InvalidArgument", vm)
    assert "a new VM cannot boot from an existing disk" in message
    detached = done.vms[0]["parked"][0]["uuid"]
    settle(sim, {**NEW, "disks": [{"name": "fresh"}, {"uuid": detached, "name": "old"}]})


def test_what_nobody_has_named_is_not_destroyed_with_a_vm(sim):
    uuid = settle(sim, {**NEW, "disks": [{}]}).vms[0]["uuid"]
    sim.run("zfs", "create", "-V", "10M", f"zones/{uuid}/mine")
    sim.run("zfs", "create", f"zones/{uuid}/files")
    message = refusal(sim, "InUse", GONE)
    assert f"zones/{uuid}/files, zones/{uuid}/mine would be destroyed" in message
    sim.run("zfs", "destroy", f"zones/{uuid}/mine")
    sim.run("zfs", "destroy", f"zones/{uuid}/files")
    sim.run("zfs", "snapshot", f"zones/{uuid}/disk0@x")
    sim.run("zfs", "clone", f"zones/{uuid}/disk0@x", "zones/clone")
    refusal(sim, "HasClones", {**GONE, "destroy_snapshots": True})
    sim.run("zfs", "destroy", "zones/clone")
    sim.run("zfs", "hold", "mine", f"zones/{uuid}/disk0@x")
    refusal(sim, "Held", {**GONE, "destroy_snapshots": True})


def test_a_volume_that_comes_meanwhile_stops_the_deletion(sim):
    uuid = settle(sim, {**NEW, "disks": [{}]}).vms[0]["uuid"]

    def comes(argv):
        if argv[:2] == ["vmadm", "get"] and sim.node.run(["zfs", "list", f"zones/{uuid}/late"], "")[0] != 0:
            sim.node.run(["zfs", "create", "-V", "10M", f"zones/{uuid}/late"], "")

    sim.fault = comes
    done = go(sim, GONE)
    assert done.failure["error_code"] == "Changed"
    assert f"zones/{uuid}/late" in done.failure["message"]
    assert sim.get(uuid)["state"] == "stopped"


def test_absent_where_nothing_is(sim):
    done = settle(sim, GONE)
    assert (done.changed, done.vms) == (False, [])


def test_a_configuration_without_its_dataset_is_deleted(sim):
    uuid = settle(sim, NEW).vms[0]["uuid"]
    sim.run("zfs", "destroy", "-r", f"zones/{uuid}")
    settle(sim, GONE)
    assert sim.run("vmadm", "lookup") == ""


def test_a_creation_that_fails_leaves_nothing(sim):
    sim.fault = lambda argv: "Invalid value(s) for: nics" if argv[:2] == ["vmadm", "create"] else None
    done = go(sim, {**NEW, "options": {"nics": "x"}})
    assert done.failure["error_code"] == "InvalidArgument"
    assert sim.run("zfs", "get", "-H", "-s", "local", "-o", "property", "all", "zones/flexdisk").split() == [
        "mountpoint",
        "canmount",
    ]
    sim.fault = None
    settle(sim, NEW)


def test_what_an_interrupted_creation_alone_cannot_have_left_stays():
    """The intent is there still, the configuration has got lost: somebody's data, whatever the intent says."""
    for *touches, stays in (
        ["guest write {}/disk1 0 512B 1", True],
        ["guest write {}/disk1 0 512B text", True],
        ["zfs snapshot {}/disk0@x", "zfs hold mine {}/disk0@x", True],
        ["zfs snapshot {}/disk1@x", "zfs clone {}/disk1@x zones/clone", True],
        ["zfs snapshot -r {}@x", "zfs hold mine {}@x", True],
        ["zfs snapshot {}/disk0@x", False],
        ["zfs snapshot -r {}@x", "zfs snapshot -r {}@y", False],
    ):
        sim = Simulated(512 << 30)
        count = 0

        def dies(argv):
            nonlocal count
            count += argv[:2] == ["vmadm", "create"]
            if count and argv[:2] == ["vmadm", "get"]:
                raise Killed

        sim.fault = dies
        with pytest.raises(Killed):
            go(sim, NEW)
        sim.fault = None
        root = next(n for n in sim.run("zfs", "list", "-Ho", "name").split() if n.endswith("/disk0")).rpartition("/")[0]
        del sim.node.vmadm_state["vms"][root.partition("/")[2]]
        assert not go(sim, NEW, check=True).problems
        for touch in touches:
            sim.run(*touch.format(root).split())
        if stays:
            refusal(sim, "AlreadyExists", NEW)
        else:
            settle(sim, NEW)


class Killed(Exception):
    """The run ends here."""


def interrupted(sim, when, number, *vms, **policy):
    """A run that is killed before or after its change of that number, or whose change fails; whether it came so far."""
    count, came = 0, False
    runner = sim.runner

    def killing(argv, stdin="", timeout=300):
        nonlocal count, came
        changing = changes(argv)
        count += changing
        came = came or count == number
        if changing and count == number and when == "failed":
            return Answer(1, "", "internal error: out of memory")
        if changing and count == number and when == "before":
            raise Killed
        answer = runner(argv, stdin, timeout)
        if changing and count == number and when == "after":
            raise Killed
        return answer

    zfs, hypervisor = Zfs(killing, lambda seconds: None), Vmadm(killing, lambda seconds: None)
    with contextlib.suppress(Killed):
        done = run(zfs, hypervisor, [{**DEFAULTS, **vm} for vm in vms], PACKAGES, Policy(**policy), None, False)
        assert (done.failure is not None) is came
    return came


@pytest.mark.parametrize("when", ["before", "after", "failed"])
@pytest.mark.parametrize("vm", [kept(), {**NEW, "disks": None}, GONE], ids=["make", "usual", "delete"])
def test_killed_at_any_change_a_second_run_ends_it(when, vm):
    number, came = 0, True
    while came:
        number += 1
        sim = Simulated(512 << 30)
        wanted = {**vm, "destroy_disks": True}
        if vm["state"] == "absent":
            uuid = go(sim, kept()).vms[0]["uuid"]
            sim.write(f"zones/{uuid}/disk1", 9, 0, 20)
            data = sim.digest(f"zones/{uuid}/disk1", "0", "20")
        came = interrupted(sim, when, number, wanted)
        done = go(sim, wanted)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        again = go(sim, wanted, check=True)
        assert (again.problems, again.changed) == ([], False), (number, again.diff)
        vms = json.loads(sim.run("vmadm", "lookup", "-j"))
        if vm["state"] == "absent":
            assert vms == []
            detached = [
                n for n in sim.run("zfs", "list", "-Ho", "name", "-r", "zones/flexdisk").split() if n.count("/") == 2
            ]
            assert [sim.digest(volume, "0", "20") for volume in detached] == [data]
        else:
            assert [(v["alias"], v["state"]) for v in vms] == [("web01", vm["state"].replace("present", "stopped"))]
            names = [disk.name for disk in sim.vm(vms[0]["uuid"]).disks]
            assert names == (["root", "data", "scratch"] if vm["disks"] else ["disk0", "disk1"])
            left = [n for n in sim.run("zfs", "list", "-Ho", "name").split() if n.count("/") == 1]
            assert set(left) <= {f"zones/{vms[0]['uuid']}", f"zones/{IMAGE}", "zones/flexdisk"}
    assert number > 3


@pytest.mark.parametrize("when", ["before", "after", "failed"])
def test_a_restart_that_is_killed_at_any_change_is_ended_by_the_same_task(when):
    """The VM runs again with what it was restarted for, starts with its host, and starts once for the generation."""
    number, came = 0, True
    while came:
        number += 1
        sim = Simulated(512 << 30)
        go(sim, {**NEW, "disks": [{"name": "root"}], "state": "running", "autoboot": True})
        wanted = {"vm": "web01", "generation": "two", "vcpus": 5, "restart": True}
        came = interrupted(sim, when, number, wanted, allow_restart=True)
        done = go(sim, wanted, allow_restart=True)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        vm = done.vms[0]
        assert [vm[key] for key in ("state", "generation", "vcpus", "autoboot")] == ["running", "two", 5, True], number
        again = go(sim, wanted, check=True)
        assert (again.problems, again.changed) == ([], False), (number, again.diff)
    assert number > 4


def test_a_vm_is_restarted_by_name(sim):
    """Each time; a stopped one is started. Nothing else changes, and it needs the permission."""
    go(sim, {**NEW, "disks": [{"name": "root"}], "state": "running", "autoboot": True, "generation": "one"})
    wanted = {"vm": "web01", "state": "restarted"}
    assert "the VM is running and must be restarted; allow_restart: true" in refusal(sim, "VmNotStopped", wanted)
    for _time in range(2):
        done = go(sim, wanted, allow_restart=True)
        assert [step["step"] for step in done.vms[0]["steps"]] == ["stop", "start"]
        vm = done.vms[0]
        assert [vm[key] for key in ("state", "autoboot", "generation")] == ["running", True, "one"]
    settle(sim, {"vm": "web01", "state": "stopped"})
    done = go(sim, wanted)
    assert [step["step"] for step in done.vms[0]["steps"]] == ["start"]
    changed = go(sim, {**wanted, "vcpus": 3}, allow_restart=True)
    assert [step["step"] for step in changed.vms[0]["steps"]] == ["stop", "properties", "start"]


@pytest.mark.parametrize("when", ["before", "after", "failed"])
def test_a_restart_by_name_that_is_killed_leaves_a_vm_that_the_same_task_starts(when):
    number, came = 0, True
    while came:
        number += 1
        sim = Simulated(512 << 30)
        go(sim, {**NEW, "disks": [{"name": "root"}], "state": "running", "autoboot": True})
        wanted = {"vm": "web01", "state": "restarted"}
        came = interrupted(sim, when, number, wanted, allow_restart=True)
        done = go(sim, wanted, allow_restart=True)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        assert [done.vms[0][key] for key in ("state", "autoboot")] == ["running", True], number
    assert number > 3


@pytest.mark.parametrize("when", ["before", "after", "failed"])
def test_a_creation_that_was_killed_can_go_on_with_another_image(when):
    """The boot disk that is there already is made anew, if its entry allows that."""
    number, came = 0, True
    disks = [{"name": "root", "recreate": True}, {"name": "data", "size": 64, "preserve": True}]
    while came:
        number += 1
        sim = Simulated(512 << 30)
        sim.admin("image-import", SECOND, "10240")
        came = interrupted(sim, when, number, {**NEW, "disks": disks})
        wanted = {**NEW, "image": SECOND, "disks": disks, "state": "running"}
        done = go(sim, wanted, allow_restart=True)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        again = go(sim, wanted, check=True)
        assert (again.problems, again.changed) == ([], False), (number, again.diff)
        vm = done.vms[0]
        assert [(disk["name"], disk["image"]) for disk in vm["disks"]] == [("root", SECOND), ("data", "")], number
        assert vm["state"] == "running"
    assert number > 3


@pytest.mark.parametrize("second", [1, 2, 4, 6, 8])
def test_a_creation_that_is_killed_twice_is_still_one(second):
    """The run that goes on with it says so too: nothing else tells which disk is which."""
    number, came = 0, True
    wanted = kept()
    while came:
        number += 1
        sim = Simulated(512 << 30)
        came = interrupted(sim, "after", number, wanted)
        interrupted(sim, "before", second, wanted)
        done = go(sim, wanted)
        assert (done.problems, done.failure) == ([], None), (number, done.problems, done.failure)
        assert [disk["name"] for disk in done.vms[0]["disks"]] == ["root", "data", "scratch"]
        again = go(sim, wanted, check=True)
        assert (again.problems, again.changed) == ([], False), (number, again.diff)
