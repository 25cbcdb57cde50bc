# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cases again, put to vm_disks, or to zfs_quota where the quota is the case; on the simulated node alone.

Cases that other tests put to the modules are not repeated here: cases.yml names those.
"""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.modules.vm_disks import VM as OPTIONS
from tests.conformance.support import BIOS_IMAGE, GIB, LX_IMAGE, UEFI_IMAGE, ZONE_IMAGE
from tests.unit.engine.conftest import IMAGE, VM, Simulated, running

ROOT = {"name": "root"}
A = {"name": "a"}
NOBODY = "eeeeeeee-0000-4000-8000-00000000000e"
NOBODY_ELSE = "eeeeeeee-0000-4000-8000-00000000000f"
INVALID = "InvalidArgument"
ISO = {"path": "/isos/x.iso", "media": "cdrom", "model": "ahci", "boot": False}


def vm(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def new(number=1, **wishes):
    return {"name": "new%d" % number, "size": 64, **wishes}


def made(*sizes, **more):
    """A node with web01: root, and a, b, ... of these sizes, all of them named."""
    sim = Simulated()
    sim.adopted(*sizes, **more)
    return sim


def update(sim, succeed=True, **payload):
    status, _out, err = sim.node.run(("vmadm", "update", VM), json.dumps(payload))
    assert (status == 0) is succeed, err


def path(sim, name):
    return sim.disks()[name].path


def slots(*functions):
    return ["0:4:%d" % function for function in functions]


# -- done as declared: case, data disks and flexible_disk_size before, declaration, what vmadm then says of each disk

DONE = [
    (
        "R01",
        (),
        30720,
        {"vm": "web01", "disks": [{**ROOT, "boot": False}, new(image=IMAGE, size=11264, boot=True)]},
        {"size": [10240, 11264], "image_uuid": [IMAGE, IMAGE], "boot": [False, True]},
    ),
    (
        "R03",
        (),
        11264,
        {"vm": "web01", "disks": [{**ROOT, "size": 11264}]},
        {"size": [11264], "image_uuid": [IMAGE], "boot": [True]},
    ),
    ("R04", (2048,), 13312, vm({**A, "size": 3072}), {"size": [10240, 3072]}),
    ("R08", (), 11264, vm(new(size=1024)), {"size": [10240, 1024]}),
    ("R11", (2048,), 12288, vm({**A, "size": 4096}, flexible_disk_size=14336), {"size": [10240, 4096]}),
    ("R17", (), 13312, vm(new(size="100")), {"size": [10240, 100]}),
    ("P01", (), 30720, vm(new(size=512)), {"pci_slot": slots(0, 1)}),
    ("P03", (), 30720, vm(*(new(n, size=256) for n in range(1, 8))), {"pci_slot": slots(*range(8))}),
    (
        "P05",
        (),
        30720,
        vm(new(1, pci_slot="4:1"), new(2, pci_slot="5")),
        {"pci_slot": ["0:4:0", "0:4:1", "0:5:0"]},
    ),
    (
        "P30",
        (16,) * 7,
        20480,
        vm(*({"name": n} for n in "abcdefg"), new(pci_slot="5:0")),
        {"pci_slot": [*slots(*range(8)), "0:5:0"]},
    ),
    (
        "P31",
        (512,),
        13312,
        vm({**A, "state": "absent"}, new(size=256)),
        {"size": [10240, 256], "pci_slot": slots(0, 1)},
    ),
    ("M09", (), 30720, vm(new(size=512)), {"refreservation": [10563, 530]}),
    ("M22", (), 30720, vm(new(size=512, block_size=16384)), {"size": [10240, 512], "block_size": [8192, 16384]}),
]


@pytest.mark.parametrize(
    ("sizes", "flexible", "declared", "said"), [row[1:] for row in DONE], ids=[row[0] for row in DONE]
)
def test_done(sizes, flexible, declared, said):
    sim = made(*sizes, flexible=flexible)
    sim.four_steps(declared)
    disks = sim.get()["disks"]
    assert {key: [disk[key] for disk in disks] for key in said} == said
    sim.run("vmadm", "start", VM)


# -- nothing to do

IDLE = [
    ("R09", vm({**A, "size": 2048})),
    ("Q17", vm(A, flexible_disk_size=30720)),
    ("M13", vm(A, {"name": "nowhere", "state": "absent"})),
    ("V01", {"vm": "web01"}),
]


@pytest.mark.parametrize("declared", [row[1] for row in IDLE], ids=[row[0] for row in IDLE])
def test_idle(declared):
    sim = made(2048)
    sim.calls.clear()
    sim.four_steps(declared)
    assert not any(changes(call) for call in sim.calls)


# -- refused, and not a bit of the node changed: case, data disks before, declaration, codes, words of the messages

RESERVED = ["0:0:0", "0:0:1", "0:6:0", "0:6:1", "0:30:0", "0:30:1", "0:31:0", "0:31:1"]
MALFORMED = ["foo", "4:0:0:0", "256:0:0", "-1:0:0", "4:32:0", "4:0:8"]
REFUSED = [
    (
        "R20",
        (1024, 2048),
        vm({**A, "size": 2048}, {"name": "b", "size": 1024}),
        [INVALID],
        ["2 GiB -> 1 GiB", "dangerous_allow_shrink"],
    ),
    ("P10", (), vm(new(pci_slot="0:4:0")), [INVALID], ["0:4:0", "disk0"]),
    *(("P%d" % n, (), vm(new(pci_slot=slot)), [INVALID], [slot, "reserved"]) for n, slot in enumerate(RESERVED, 11)),
    *(("P%d" % n, (), vm(new(pci_slot=slot)), [INVALID], [slot]) for n, slot in enumerate(MALFORMED, 19)),
    (
        "U04",
        (),
        vm(new(1, uuid=NOBODY), new(2, uuid=NOBODY_ELSE)),
        ["ResourceNotFound"] * 2,
        [NOBODY, NOBODY_ELSE],
    ),
    *(("U%02d" % n, (), vm(new(uuid=bad)), [INVALID], [bad]) for n, bad in enumerate(["not-a-uuid", "0", "[]"], 8)),
    ("Q14", (), {"vm": "web01", "quota": "none"}, [INVALID], ["quota", "none"]),
    ("Q18", (), {"vm": "web01", "flexible_disk_size": 10 * 2**40}, [INVALID], ["flexible_disk_size", "8 EiB"]),
    ("Q19", (), vm(new(size=10 * 2**40)), [INVALID], ["8 EiB"]),
    ("M19", (), vm(new(1, size=256), new(2, size=40960)), ["InsufficientSpace"], ["new2"]),
    *(
        ("V%d" % n, (), vm(new(block_size=size)), [INVALID], [str(size), "power of two"])
        for n, size in enumerate([256, 132096, 31337], 14)
    ),
]


@pytest.mark.parametrize(
    ("sizes", "declared", "codes", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(sizes, declared, codes, words):
    check_refused(made(*sizes), declared, codes, words)


def check_refused(sim, declared, codes, words):
    before = sim.fingerprint()
    for check in (True, False):
        problems = sim.converge(declared, check=check).problems
        assert [problem.code for problem in problems] == codes, problems
        said = "; ".join(problem.message for problem in problems)
        assert [word for word in words if word not in said] == [], said
        assert sim.fingerprint() == before


OPTIONS_WITHOUT = [
    ("R15", vm({**A, "size": 1024, "dangrous_allow_shrink": True}), "dangrous_allow_shrink"),
    ("M12", vm(new(path="/dev/zvol/rdsk/zones/x/disk1")), "path"),
    ("M14", {"vm": "web01", "remove_disks": [{"path": "/dev/zvol/rdsk/zones/x/disk1"}]}, "remove_disks"),
    ("M15", vm({**A, "media": "cdrom"}), "media"),
    ("M17", vm({**A, "guest_block_size": 4096}), "guest_block_size"),
    ("V11", vm(new(image=IMAGE, image_size=31337)), "image_size"),
]


@pytest.mark.parametrize(
    ("declared", "option"), [row[1:] for row in OPTIONS_WITHOUT], ids=[row[0] for row in OPTIONS_WITHOUT]
)
def test_no_such_option(declared, option):
    """vmadm drops it, aborts or waits in vain; here Ansible refuses it before anything is looked at."""
    spec = {"vms": {"type": "list", "elements": "dict", "options": OPTIONS}}
    said = ArgumentSpecValidator(spec).validate({"vms": [declared]}).error_messages
    assert [option in message and "Supported parameters" in message for message in said] == [True]


def test_r18_bad_sizes():
    sim = made(2048)
    for size in (-1, 1.5):
        for disks in ([{**A, "size": size}], [A, new(size=size)]):
            check_refused(sim, vm(*disks), [INVALID], [str(size)])
    sim.four_steps(vm(A, new(size="remaining")))
    assert [disk["size"] for disk in sim.get()["disks"]] == [10240, 2048, 30720 - 12288]


def poisoned():
    """F says 14336 MiB, the quota still 12288."""
    sim = made(2048, flexible=12288)
    changed = [{"path": path(sim, "a"), "size": 4096}]
    update(sim, succeed=False, flexible_disk_size=14336, update_disks=changed)
    assert sim.get()["flexible_disk_size"] == 14336
    return sim


def test_r14a_the_same_flexible_disk_size_repairs():
    sim = poisoned()
    assert sim.four_steps(vm(A, flexible_disk_size=14336)).changed
    assert sim.get()["free_space"] == 2048


def test_r14b_what_is_promised_can_be_had():
    sim = poisoned()
    sim.four_steps(vm({**A, "size": 4096}))
    assert sim.get()["free_space"] == 0


def test_r14c_zfs_quota_repairs():
    sim = poisoned()
    assert sim.quota().changed
    assert [call[:2] for call in sim.calls[-20:] if call[:2] == ["vmadm", "update"]] == []
    sim.four_steps(vm({**A, "size": 4096}, flexible_disk_size=14336))
    assert sim.get()["free_space"] == 0


# -- slots


def test_p04_slots_are_sticky():
    sim = made()
    sim.four_steps(vm(*(new(n, pci_slot="0:4:%d" % (n + 4)) for n in (1, 2, 3))))
    sim.run("vmadm", "start", VM)
    sim.run("vmadm", "reboot", VM)
    assert not sim.converge(vm(*(new(n) for n in (1, 2, 3)))).changed
    assert [disk["pci_slot"] for disk in sim.get()["disks"]] == slots(0, 5, 6, 7)


def test_p06_lowest_hole():
    sim = made()
    sim.four_steps(vm(new(1, pci_slot="0:4:2")))
    sim.four_steps(vm(new(1), new(2)))
    assert sim.disks()["new2"].pci_slot == "0:4:1"


# -- uuids


@pytest.mark.parametrize("more", [[], [new()], [new(uuid="")]], ids=["U01", "U02", "U07"])
def test_every_disk_has_a_uuid_of_its_own(more):
    sim = made(100, flexible=15360)
    done = sim.four_steps(vm(A, *more)) if more else sim.converge(vm(A))
    uuids = [disk["uuid"] for disk in sim.get()["disks"]]
    assert len(set(uuids)) == 2 + len(more)
    assert [disk["uuid"] for disk in done.vms[0]["disks"]] == uuids
    assert [disk.volume.user["uuid"] for disk in sim.vm().disks] == uuids


def test_u06_uuid_of_a_disk_that_another_entry_names():
    sim = made(100)
    check_refused(sim, vm(A, new(uuid=sim.disks()["a"].uuid)), ["MissingParameter", INVALID], ["would cut off data"])


def test_u11_kept_over_stop_and_start():
    sim = running()
    before = [disk["uuid"] for disk in sim.get()["disks"]]
    sim.four_steps(vm({**A, "size": 4096}), allow_restart=True)
    assert [disk["uuid"] for disk in sim.get()["disks"]] == before


# -- quota and flexible_disk_size

LAWS = [
    ("Q01", {"quota": 1}, 12149325824),
    ("Q02", {"quota": 1, "flexible_disk_size": 15360}, 17518034944),
    ("Q03", {"quota": 10}, 21813002240),
    ("Q05", {}, 12149325824),
]


@pytest.mark.parametrize(("more", "expected"), [row[1:] for row in LAWS], ids=[row[0] for row in LAWS])
def test_the_law_is_vmadms_formula(more, expected):
    sim = Simulated()
    sim.create(flexible=None, sizes=(), **more)
    done = sim.quota()
    assert (done.changed, done.vms[0]["expected_bytes"]) == (False, expected)
    sim.run("zfs", "set", "quota=50G", "reservation=50G", "zones/" + VM)
    assert sim.quota(reclaim=True).changed
    assert (sim.vm().root.quota, sim.vm().root.reservation) == (expected, expected)


def figures(sim):
    root = sim.vm().root
    return [root.refquota, root.refreservation, root.quota, root.reservation]


@pytest.mark.parametrize(("quota", "flexible"), [(1, None), (1, 15360), (10, None)])
def test_q04_quota_doubled_and_back(quota, flexible):
    sim = made(flexible=flexible, quota=quota)
    before = figures(sim)
    sim.four_steps({"vm": "web01", "quota": "%dGiB" % (2 * quota)})
    assert figures(sim) == [value + quota * GIB for value in before]
    sim.four_steps({"vm": "web01", "quota": "%dGiB" % quota})
    assert figures(sim) == before


BRANDS = ["kvm", "joyent", "joyent-minimal", "lx"]


def of_brand(brand):
    sim = Simulated()
    payload = {"uuid": VM, "brand": brand, "alias": "web01", "autoboot": False, "ram": 512}
    if brand == "kvm":
        payload["disks"] = [{"size": 100, "model": "virtio", "boot": True}]
    else:
        payload["image_uuid"] = LX_IMAGE if brand == "lx" else ZONE_IMAGE
        sim.admin(
            "image-import", payload["image_uuid"], "0", "type=lx-dataset" if brand == "lx" else "type=zone-dataset"
        )
    if brand == "lx":
        payload["kernel_version"] = "4.10"
    sim.run("vmadm", "create", stdin=json.dumps(payload))
    return sim


@pytest.mark.parametrize("brand", BRANDS, ids=["Q06", "Q07", "Q08", "Q09"])
def test_the_quota_of_other_brands_is_left_alone(brand):
    sim = of_brand(brand)
    before = sim.fingerprint()
    assert not sim.quota(reclaim=True).changed
    assert [vm["reason"] for vm in sim.skipped] == ["brand " + brand]
    assert sim.fingerprint() == before
    assert sim.get()["quota"] == 10


@pytest.mark.parametrize("brand", ["joyent-minimal", "joyent", "kvm", "lx"], ids=["Q10", "Q11", "Q12", "Q13"])
def test_other_brands_have_no_flexible_space(brand):
    declared = {"vm": "web01", "flexible_disk_size": 12288}
    check_refused(of_brand(brand), declared, ["BrandNotSupported"], [brand])


def test_q20_the_law_after_a_removal():
    """By vmadm: the overhead stays, until zfs_quota takes it. By vm_disks: nothing stays."""
    sim = made(1024, 1024, flexible=15360)
    update(sim, remove_disks=[path(sim, "b")])
    assert sim.quota(check=True).vms[0]["drift"] == {"quota_bytes": 35651584, "reservation_bytes": 35651584}
    assert sim.quota().changed
    sim.four_steps(vm({**A, "state": "absent"}))
    assert not sim.quota().changed


@pytest.mark.parametrize(
    ("flexible", "cdrom", "free"),
    [(20480, False, 8192), (20480, True, 8192), (None, False, None)],
    ids=["Q21", "Q22", "Q23"],
)
def test_free_space(flexible, cdrom, free):
    sim = made(2048, flexible=flexible)
    if cdrom:
        update(sim, add_disks=[ISO])
    assert sim.converge({"vm": "web01"}).vms[0]["free_space"] == free


# -- changes of disks


def test_m01_model_from_the_first_disk():
    sim = made(flexible=13312)
    sim.four_steps({"vm": "web01", "disks": [{**ROOT, "model": "nvme"}]})
    sim.four_steps(vm(new(size=512)))
    assert [disk["model"] for disk in sim.get()["disks"]] == ["nvme", "nvme"]


@pytest.mark.parametrize("case", ["M02", "V17"])
def test_compression(case):
    """M02 of a VM that runs, V17 of a new disk."""
    sim = running() if case == "M02" else made()
    name = "a" if case == "M02" else "new"
    for value in ("gzip", "off"):
        entries = [{"name": "root", "compression": value}, {"name": name, "size": 2048, "compression": value}]
        sim.four_steps({"vm": "web01", "disks": entries})
        assert [disk["compression"] for disk in sim.get()["disks"]] == [value, value]
    assert sim.get()["state"] == ("running" if case == "M02" else "stopped")


LIVE = [
    ("M03", vm({**A, "state": "absent"}), ["a 2 GiB"]),
    (
        "M11",
        {"vm": "web01", "disks": [{**ROOT, "boot": False}, {**A, "boot": True, "model": "nvme", "pci_slot": "0:4:7"}]},
        ["boot", "model virtio -> nvme", "0:4:7"],
    ),
]


@pytest.mark.parametrize(("declared", "words"), [row[1:] for row in LIVE], ids=[row[0] for row in LIVE])
def test_not_while_running(declared, words):
    check_refused(running(), declared, ["VmNotStopped"], words)


def test_m05_a_reservation_of_ones_own_is_taken_back():
    """Where vmadm keeps it until the next change of the quota."""
    sim = made(512)
    for name, size in (("root", 5120), ("a", 256)):
        update(sim, update_disks=[{"path": path(sim, name), "refreservation": size}])
    assert sim.four_steps(vm(A)).changed
    assert [disk["refreservation"] for disk in sim.get()["disks"]] == [10563, 530]


def test_m21_disks_are_sorted():
    sim = made(512)
    update(sim, update_disks=[{"path": path(sim, "root"), "notrim": True}])
    assert [disk["name"] for disk in sim.converge({"vm": "web01"}).vms[0]["disks"]] == ["root", "a"]


# -- images


def with_images(boot, **more):
    sim = Simulated()
    sim.admin("image-import", BIOS_IMAGE, "10240", "bootrom=bios")
    sim.admin("image-import", UEFI_IMAGE, "10240", "bootrom=uefi")
    sim.adopted(disks=[{"image_uuid": boot, "boot": True, "model": "virtio"}], **more)
    return sim


SUCCESSORS = [
    ("V18", {}, UEFI_IMAGE, "uefi"),
    ("V19", {"bootrom": "uefi"}, UEFI_IMAGE, "uefi"),
    ("V20", {"bootrom": "bios"}, BIOS_IMAGE, "bios"),
    ("V21", {"bootrom": "bios"}, UEFI_IMAGE, "uefi"),
    ("V22", {"bootrom": "uefi"}, BIOS_IMAGE, "bios"),
]


@pytest.mark.parametrize(
    ("more", "image", "bootrom"), [row[1:] for row in SUCCESSORS], ids=[row[0] for row in SUCCESSORS]
)
def test_a_new_boot_disk_brings_its_bootrom(more, image, bootrom):
    """No bootrom is wrong for it, as for vmadm create: the VM gets the one that the image wants."""
    sim = with_images(IMAGE, **more)
    sim.four_steps({"vm": "web01", "disks": [{**ROOT, "boot": False}, new(image=image, size=10240, boot=True)]})
    assert sim.get()["bootrom"] == bootrom
    sim.run("vmadm", "start", VM)


MIXES = [
    ("V23", BIOS_IMAGE, {}, UEFI_IMAGE, "bios"),
    ("V24", BIOS_IMAGE, {"bootrom": "bios"}, UEFI_IMAGE, "bios"),
    ("V27", UEFI_IMAGE, {}, BIOS_IMAGE, "uefi"),
    ("V28", UEFI_IMAGE, {"bootrom": "uefi"}, BIOS_IMAGE, "uefi"),
]


@pytest.mark.parametrize(
    ("boot", "more", "image", "bootrom"), [row[1:] for row in MIXES], ids=[row[0] for row in MIXES]
)
def test_only_the_boot_disks_image_counts(boot, more, image, bootrom):
    sim = with_images(boot, **more)
    sim.four_steps(vm(new(image=image, size=10240)))
    assert [disk["image_uuid"] for disk in sim.get()["disks"]] == [boot, image]
    assert sim.get()["bootrom"] == bootrom
    sim.four_steps({**vm(), "unlisted": "detach"})
    sim.four_steps(vm({"name": "new1"}))
    assert sim.get()["bootrom"] == bootrom


def test_a_vm_that_boots_by_default_goes_on_to_do_so():
    sim = with_images(IMAGE)
    assert "bootrom" not in sim.get()
    sim.four_steps(vm(new(image=UEFI_IMAGE, size=10240)))
    assert sim.get()["bootrom"] == "bios"
