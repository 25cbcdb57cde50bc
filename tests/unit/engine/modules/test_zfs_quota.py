# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""zfs_quota on the node: every way to drift, told by its cause, repaired without a stop, idle afterwards."""

from __future__ import annotations

import json

import pytest

from ..conftest import VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
MIB = 1 << 20
ROOT = f"zones/{VM}"
DISK1 = f"{ROOT}/disk1"


def update(sim, payload, succeed=True):
    rc, _out, err = sim.node.run(("vmadm", "update", VM), json.dumps(payload))
    assert (rc == 0) == succeed, err


def removed_disk(sim):
    update(sim, {"remove_disks": ["/dev/zvol/rdsk/" + DISK1]})


def detached_by_hand(sim):
    sim.run("zfs", "create", "-o", "mountpoint=none", "zones/elsewhere")
    sim.run("zfs", "rename", DISK1, "zones/elsewhere/disk1")
    update(sim, {"remove_disks": ["/dev/zvol/rdsk/" + DISK1]})


def attached_without_room(sim):
    detached_by_hand(sim)
    sim.quota()
    sim.run("zfs", "rename", "zones/elsewhere/disk1", DISK1)
    sim.run("zfs", "set", "flexdisk:vm=" + VM, DISK1)
    disk = {"path": "/dev/zvol/rdsk/" + DISK1, "nocreate": True, "size": 2048, "model": "virtio"}
    update(sim, {"add_disks": [disk]})


def half_applied_raise(sim):
    update(sim, {"flexible_disk_size": 400000}, succeed=False)


def repair_half_applied_raise(sim):
    update(sim, {"flexible_disk_size": 30720})


def half_applied_lowering(sim):
    sim.run("zfs", "set", "reservation=11G", ROOT)


def poisoned(sim):
    """Raising F and using the new space in one update (#977)."""
    path = "/dev/zvol/rdsk/" + DISK1
    update(sim, {"flexible_disk_size": 40960, "update_disks": [{"path": path, "size": 25600}]}, succeed=False)
    assert sim.get()["flexible_disk_size"] == 40960


def custom_refreservation(sim):
    update(sim, {"update_disks": [{"path": "/dev/zvol/rdsk/" + DISK1, "refreservation": 3000}]})


def lowered_refreservation(sim):
    sim.run("zfs", "set", "refreservation=100M", DISK1)


def rolled_back_growth(sim):
    sim.run("vmadm", "create-snapshot", VM, "s1")
    update(sim, {"update_disks": [{"path": "/dev/zvol/rdsk/" + DISK1, "size": 4096}]})
    rollback(sim)


def rolled_back_shrink(sim):
    sim.run("vmadm", "create-snapshot", VM, "s1")
    path = "/dev/zvol/rdsk/" + DISK1
    update(sim, {"update_disks": [{"path": path, "size": 512, "dangerous_allow_shrink": True}]})
    rollback(sim)


def two_removed_disks(sim):
    paths = ["/dev/zvol/rdsk/%s/disk%d" % (ROOT, n) for n in (1, 2)]
    update(sim, {"remove_disks": paths})


def reservation_by_hand_and_a_snapshot(sim):
    sim.run("zfs", "snapshot", DISK1 + "@s")
    sim.run("zfs", "set", "refreservation=1500M", DISK1)


def reservation_of_another_size_by_hand(sim):
    """What ZFS would give a disk of 1024 MiB. No resize has moved the quota, so none was rolled back."""
    other = sim.vm().disks[2].volume.refreservation
    sim.run("zfs", "snapshot", DISK1 + "@s")
    sim.run("zfs", "set", f"refreservation={other}", DISK1)


def rolled_back_beside_a_quota_by_hand(sim):
    rolled_back_growth(sim)
    sim.run("zfs", "set", "quota=60G", ROOT)


def rolled_back_beside_a_reservation_by_hand(sim):
    rolled_back_growth(sim)
    sim.run("zfs", "set", "refreservation=1500M", ROOT + "/disk2")


def moved(sim, more):
    quota = sim.vm().root.quota + more
    sim.run("zfs", "set", f"quota={quota}", f"reservation={quota}", ROOT)


def raised_by_hand(sim):
    moved(sim, 7 << 30)


def lowered_by_hand(sim):
    moved(sim, -(3 << 30))


def lowered_by_less_than_a_mib(sim):
    moved(sim, -4096)


def both_by_hand(sim):
    sim.run("zfs", "set", "quota=60G", "reservation=50G", ROOT)


def stray_volume_and_a_quota_by_hand(sim):
    stray_volume(sim)
    moved(sim, -4096)


def rollback(sim):
    sim.run("vmadm", "rollback-snapshot", VM, "s1")
    sim.run("vmadm", "stop", VM, "-F")


def stray_volume(sim):
    sim.run("zfs", "create", "-V", "64M", ROOT + "/stray")


def base_without_reservation(sim):
    sim.run("zfs", "set", "refreservation=none", ROOT)


OVERHEAD = "overhead of a removed disk"
OFF_AUTO = "refreservation off auto"
POISONED = "poisoned flexible_disk_size or lowered by hand"
ROLLBACK = "rollback over a resize"
UNKNOWN = "unknown"
CAUSES = [
    (removed_disk, OVERHEAD),
    (detached_by_hand, OVERHEAD),
    (attached_without_room, "disk attached without its overhead"),
    (half_applied_lowering, "half-applied set"),
    (poisoned, POISONED),
    (custom_refreservation, OFF_AUTO),
    (lowered_refreservation, OFF_AUTO),
    (rolled_back_growth, ROLLBACK),
    (rolled_back_shrink, ROLLBACK),
    (stray_volume, "volumes that the VM does not know"),
    (base_without_reservation, "refreservation of the VM's dataset"),
    (two_removed_disks, OVERHEAD),
    (reservation_by_hand_and_a_snapshot, OFF_AUTO),
    (reservation_of_another_size_by_hand, OFF_AUTO),
    (rolled_back_beside_a_quota_by_hand, ROLLBACK),
    (rolled_back_beside_a_reservation_by_hand, OFF_AUTO),
    (raised_by_hand, UNKNOWN),
    (lowered_by_hand, POISONED),
    (lowered_by_less_than_a_mib, UNKNOWN),
    (both_by_hand, UNKNOWN),
    (stray_volume_and_a_quota_by_hand, UNKNOWN),
]


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
@pytest.mark.parametrize(("break_it", "cause"), CAUSES, ids=lambda c: getattr(c, "__name__", ""))
def test_drift_is_told_and_repaired(break_it, cause, running):
    sim = Simulated()
    sim.create(sizes=(2048, 1024))
    assert not sim.quota().changed
    break_it(sim)
    if running:
        sim.run("vmadm", "start", VM)
    before = sim.fingerprint()
    predicted = sim.quota(check=True)
    assert sim.fingerprint() == before
    assert predicted.problems == []
    result = predicted.vms[0]
    assert (result["cause"], result["changed"]) == (cause, True)
    assert result["drift"] == {
        "quota_bytes": result["actual"]["quota_bytes"] - result["expected_bytes"],
        "reservation_bytes": result["actual"]["reservation_bytes"] - result["expected_bytes"],
    }
    sim.calls.clear()
    done = sim.quota()
    assert (done.failure, done.vms, done.diff) == (None, predicted.vms, predicted.diff)
    assert not [call for call in sim.calls if call[0] == "vmadm" and call[1] not in ("lookup", "get")]
    assert done.vms[0]["after"]["quota_bytes"] == done.vms[0]["after"]["reservation_bytes"]
    sim.assert_lawful()
    again = sim.quota()
    assert (again.changed, again.vms[0]["cause"], again.diff) == (False, "", "")
    # vmadm's own recompute agrees: it changes nothing when F is moved and moved back.
    held = sim.vm().root.quota
    flexible = sim.get()["flexible_disk_size"]
    update(sim, {"flexible_disk_size": flexible + 1})
    update(sim, {"flexible_disk_size": flexible})
    assert sim.vm().root.quota == held


def test_a_raise_beyond_the_pool(sim):
    """F says what the pool cannot give: refused with figures; a feasible F by vm_disks heals it."""
    sim.create(sizes=(2048,))
    half_applied_raise(sim)
    assert sim.vm().root.quota != sim.vm().root.reservation
    refused = sim.quota()
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    sim.four_steps({"vm": "web01", "flexible_disk_size": 30720})


def test_an_inflexible_vm_whose_reservation_alone_was_lowered(sim):
    """The room that a removed disk has left is not taken away for that: a snapshot may live in it."""
    sim.create(flexible=None, sizes=(2048, 2048))
    update(sim, {"remove_disks": [f"/dev/zvol/rdsk/zones/{VM}/disk2"]})
    sim.write(DISK1, 1, 0, 1024)
    sim.run("zfs", "snapshot", DISK1 + "@s")
    root = sim.vm().root
    for run in (sim.quota, lambda: sim.converge({"vm": "web01", "quota": "1GiB"})):
        sim.run("zfs", "set", "reservation=1G", ROOT)
        done = run()
        assert (done.problems, done.failure, done.changed) == ([], None, True)
        now = sim.vm().root
        assert (now.quota, now.reservation) == (root.quota, root.quota)
    assert [p.code for p in sim.quota(reclaim=True).problems] == ["InUse"]


def test_a_lowering_below_use(sim):
    """No zfs set can repair the attribute: refused with the smallest that fits, which then heals it."""
    sim.create(sizes=(2048,))
    update(sim, {"flexible_disk_size": 1000}, succeed=False)
    refused = sim.quota()
    assert [(p.code, p.vm) for p in refused.problems] == [("InsufficientSpace", "web01")]
    assert "must be at least 12 GiB" in refused.problems[0].message
    declared = {"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "a", "size": 2048}]}
    assert [p.code for p in sim.converge(declared).problems] == ["InsufficientSpace"]
    sim.four_steps({**declared, "flexible_disk_size": 12288})
    assert not sim.quota().changed


def test_drift_of_a_full_vm_whose_snapshots_took_the_slack(sim):
    sim.create(flexible=10240 + 2048, sizes=(2048,))
    sim.run("vmadm", "create-snapshot", VM, "s1")
    assert sim.converge({"vm": "web01"}, check=True).vms[0]["allocatable"] < 0
    sim.run("zfs", "set", "quota=20G", "reservation=20G", ROOT)
    assert sim.quota(check=True).problems == []
    assert sim.quota().failure is None
    sim.assert_lawful()


def test_rollback_of_a_shrink_on_a_full_vm(sim):
    """The rolled-back volume needs more reservation than the drifted quota has."""
    sim.create(flexible=10240 + 2048 + 64, sizes=(2048,))
    rolled_back_shrink(sim)
    assert sim.quota().failure is None
    sim.assert_lawful()
    assert sim.vm().disks[1].volume.refreservation > 2048 * MIB


def test_what_a_rollback_made_too_big_is_made_to_fit(sim):
    """The VM holds more than F allows until the second step: its quota must not stand in the way of the first."""
    sim.create(flexible=10240 + 2048, sizes=(2048,))
    rolled_back_shrink(sim)
    sim.run("zfs", "set", "flexdisk:name=a", DISK1)
    sim.run("zfs", "create", "-V", "1280M", f"{ROOT}/stray")
    small = {"name": "a", "size": 512, "dangerous_allow_shrink": True}
    done = sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}, small]})
    assert [s["step"] for s in done.vms[0]["steps"]][:2] == ["normalise", "shrink"]
    assert not sim.quota().changed


def test_of_two_rolled_back_the_one_that_gives_back_comes_first(sim):
    """disk1 was shrunk and wants more, disk2 was grown and has too much; nothing else is free."""
    sim.create(flexible=10240 + 3072, sizes=(2048, 1024))
    sim.run("vmadm", "create-snapshot", VM, "s1")
    disk2 = DISK1[:-1] + "2"
    for path, size in ((DISK1, 1024), (disk2, 2048)):
        entry = {"path": "/dev/zvol/rdsk/" + path, "size": size, "dangerous_allow_shrink": True}
        update(sim, {"update_disks": [entry]})
    rollback(sim)
    assert sim.quota().failure is None
    assert not sim.quota().changed
    sim.assert_lawful()


def test_a_lowering_below_use_with_a_reservation_that_fits_the_old_quota(sim):
    """Nothing can be set, and yet the VM is not under the law: that is told, too."""
    sim.create(sizes=(2048,))
    update(sim, {"flexible_disk_size": 1000}, succeed=False)
    root = sim.vm().root
    sim.run("zfs", "set", f"reservation={root.quota}", ROOT)
    assert [(p.code, p.vm) for p in sim.quota().problems] == [("InsufficientSpace", "web01")]


def test_a_lowering_below_use_is_healed_before_the_quota_falls(sim):
    sim.create(sizes=(2048,), quota=2)
    update(sim, {"flexible_disk_size": 1000}, succeed=False)
    disks = [{"name": "root", "boot": True}, {"name": "a", "size": 2048}]
    sim.four_steps({"vm": "web01", "flexible_disk_size": 20480, "quota": "1GiB", "disks": disks})


def test_a_recursive_snapshot_that_takes_more_than_the_quota(sim):
    """ZFS checks each disk by itself. A disk can leave all the same, though no quota can be set before."""
    sim.adopted(64, 64, flexible=10240 + 128 + 70)
    for name in "ab":
        sim.write(sim.disks()[name].volume.name, 1, 0, 64)
    sim.run("vmadm", "create-snapshot", VM, "s")
    root = sim.vm().root
    assert root.used > root.quota
    sim.run("zfs", "set", f"reservation={root.reservation - (8 << 20)}", ROOT)
    sim.four_steps({"vm": "web01", "unlisted": "detach", "disks": [{"name": "root"}, {"name": "a"}]})


def test_rollback_beyond_what_f_allows(sim):
    """Snapshot of 2 GiB, shrunk, F lowered, rolled back: only a larger F helps."""
    sim.create(flexible=10240 + 2048 + 64, sizes=(2048,))
    sim.run("vmadm", "create-snapshot", VM, "s1")
    path = "/dev/zvol/rdsk/" + DISK1
    update(sim, {"update_disks": [{"path": path, "size": 512, "dangerous_allow_shrink": True}]})
    update(sim, {"flexible_disk_size": 10240 + 1024})
    rollback(sim)
    refused = sim.quota()
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert "12289 MiB" in refused.problems[0].message
    sim.four_steps({"vm": "web01", "flexible_disk_size": 12300})
    assert not sim.quota().changed


def test_sparse_volumes_stay_sparse_and_count_with_their_overhead(sim):
    """F=300 and a sparse disk of 200 MiB: vmadm's formula would give the guest 100 MiB only."""
    sim.create(sizes=(2048,))
    sim.run("zfs", "set", "refreservation=none", DISK1)
    sim.quota()
    assert sim.vm().disks[1].volume.refreservation == 0
    sim.assert_lawful()


# -- inflexible VMs


def test_an_inflexible_vm_keeps_the_room_of_a_removed_disk(sim):
    sim.create(flexible=None, sizes=(2048,))
    assert not sim.quota().changed
    removed_disk(sim)
    retained = sim.quota()
    assert (retained.changed, retained.vms[0]["cause"]) == (False, OVERHEAD)
    assert retained.vms[0]["drift"]["quota_bytes"] > 2048 * MIB
    predicted = sim.quota(check=True, reclaim=True)
    assert predicted.changed
    done = sim.quota(reclaim=True)
    assert done.vms == predicted.vms
    assert done.vms[0]["after"]["quota_bytes"] == done.vms[0]["expected_bytes"]
    assert not sim.quota(reclaim=True).changed


@pytest.mark.parametrize(("more", "cause"), [(7 << 30, UNKNOWN), (-(512 << 10), UNKNOWN)])
def test_an_inflexible_vm_whose_quota_was_set_by_hand(more, cause):
    """Nothing has been removed and there is no flexible_disk_size to be poisoned."""
    sim = Simulated()
    sim.create(flexible=None, sizes=(2048,))
    moved(sim, more)
    assert sim.quota(check=True).vms[0]["cause"] == cause


def test_reclaim_below_what_snapshots_hold(sim):
    """What a removed disk left is held by a snapshot now: refused with figures, nothing changed."""
    sim.create(flexible=None, sizes=(2048,))
    removed_disk(sim)
    sim.write(f"{ROOT}/disk0", 1, 0, 1000)
    sim.run("zfs", "snapshot", f"{ROOT}/disk0@s")
    before = sim.fingerprint()
    refused = sim.quota(reclaim=True)
    assert [p.code for p in refused.problems] == ["InUse"]
    assert sim.fingerprint() == before


def test_an_inflexible_vm_below_the_law_is_raised(sim):
    sim.create(flexible=None, sizes=(2048,))
    rolled_back_shrink_inflexible(sim)
    assert sim.quota().failure is None
    vm = sim.vm()
    assert vm.root.quota == vm.root.reservation >= (1 << 30) + sum(v.refreservation for v in vm.volumes)
    assert not sim.quota().changed


def rolled_back_shrink_inflexible(sim):
    sim.run("zfs", "set", "quota=20G", ROOT)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    path = "/dev/zvol/rdsk/" + DISK1
    update(sim, {"update_disks": [{"path": path, "size": 512, "dangerous_allow_shrink": True}]})
    rollback(sim)


# -- several


def test_all_or_the_named(sim):
    sim.create(sizes=(64,))
    sim.create(uuid=OTHER, alias="web02", sizes=(64,))
    for vm in (VM, OTHER):
        sim.run("zfs", "set", "quota=200G", f"zones/{vm}")
    assert [v["alias"] for v in sim.quota(check=True).vms] == ["web01", "web02"]
    named = sim.quota(names=["web02", OTHER])
    assert [v["alias"] for v in named.vms] == ["web02"]
    assert sim.vm(VM).root.quota == 200 << 30
    assert [p.code for p in sim.quota(names=["web02", "nobody"]).problems] == ["ResourceNotFound"]


def one_refused(sim):
    """web01's flexible_disk_size is below what it holds; web02 and web03 have drifted."""
    sim.create(sizes=(2048,))
    for number in (2, 3):
        uuid = OTHER[:-1] + str(number)
        sim.create(uuid=uuid, alias=f"web0{number}", sizes=(64,), flexible=10240 + 64)
        sim.run("zfs", "set", "quota=90G", f"zones/{uuid}")
    update(sim, {"flexible_disk_size": 5000}, succeed=False)


@pytest.mark.parametrize("check", [True, False])
def test_one_refused_vm_keeps_all_from_being_repaired_but_not_from_being_reported(sim, check):
    one_refused(sim)
    before = sim.fingerprint()
    refused = sim.quota(check=check)
    assert [(p.vm, p.code) for p in refused.problems] == [("web01", "InsufficientSpace")]
    assert (refused.changed, refused.diff, refused.failure) == (False, "", None)
    assert sim.fingerprint() == before
    assert [(vm["alias"], vm["cause"]) for vm in refused.vms] == [
        (name, "half-applied set") for name in ("web01", "web02", "web03")
    ]
    for vm in refused.vms:
        root = sim.vm(vm["uuid"]).root
        assert (vm["changed"], vm["steps"], vm["after"]) == (False, [], vm["actual"])
        assert vm["actual"] == {"quota_bytes": root.quota, "reservation_bytes": root.reservation}
        assert vm["drift"]["quota_bytes"] == root.quota - vm["expected_bytes"] > 0


def test_on_refusal_continue_repairs_the_others_and_still_refuses(sim):
    one_refused(sim)
    before = sim.run("zfs", "get", "-Hp", "quota,reservation,refreservation", ROOT)
    predicted, done = (sim.quota(check=check, proceed=True) for check in (True, False))
    for outcome in (predicted, done):
        assert [p.vm for p in outcome.problems] == ["web01"]
        assert [(vm["alias"], vm["changed"]) for vm in outcome.vms] == [
            ("web01", False),
            ("web02", True),
            ("web03", True),
        ]
    assert (done.changed, done.vms, done.diff) == (True, predicted.vms, predicted.diff)
    assert sim.run("zfs", "get", "-Hp", "quota,reservation,refreservation", ROOT) == before
    sim.assert_lawful(OTHER)
    again = sim.quota(proceed=True)
    assert ([p.vm for p in again.problems], again.changed) == (["web01"], False)


def test_an_unknown_name_hides_no_report(sim):
    sim.create(sizes=(64,))
    sim.run("zfs", "set", "quota=90G", ROOT)
    refused = sim.quota(names=["nobody", "web01"])
    assert [vm["cause"] for vm in refused.vms] == ["half-applied set"]
    assert sim.vm().root.quota == 90 << 30
    assert sim.quota(names=["nobody", "web01"], proceed=True).changed
    sim.assert_lawful()


def test_other_brands_are_skipped(sim):
    image = "aaaaaaaa-0000-4000-8000-000000000009"
    sim.admin("image-import", image, "0", "type=zone-dataset")
    uuid = "dddddddd-0000-4000-8000-000000000001"
    payload = {"uuid": uuid, "brand": "joyent-minimal", "image_uuid": image, "alias": "zone01", "quota": 5}
    sim.run("vmadm", "create", stdin=json.dumps(payload))
    sim.create()
    before = sim.run("zfs", "get", "-Hp", "all", f"zones/{uuid}")
    assert [v["alias"] for v in sim.quota().vms] == ["web01"]
    assert sim.skipped == [{"uuid": uuid, "alias": "zone01", "reason": "brand joyent-minimal"}]
    assert sim.run("zfs", "get", "-Hp", "all", f"zones/{uuid}") == before
    assert [p.code for p in sim.quota(names=["zone01"]).problems] == ["BrandNotSupported"]


def test_a_base_reserved_to_the_last_byte_as_platforms_before_os_8499(sim):
    sim.create()
    sim.run("zfs", "set", "refreservation=1G", ROOT)
    assert not sim.quota().changed


def test_the_pool_lacks_the_room(sim):
    sim.create(sizes=(64,))
    sim.run("zfs", "set", "reservation=5G", ROOT)
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (64 << 20)}", "zones/ballast")
    for proceed in (False, True):
        refused = sim.quota(proceed=proceed)  # there is no other VM to go on with
        assert [p.code for p in refused.problems] == ["InsufficientSpace"]
        assert "64 MiB left" in refused.problems[0].message
        assert [(vm["alias"], vm["cause"], vm["changed"]) for vm in refused.vms] == [
            ("web01", "half-applied set", False)
        ]
