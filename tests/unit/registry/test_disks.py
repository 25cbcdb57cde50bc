# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are made without a VM, come to one, go to another one, and are destroyed only when nobody has them."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Approval
from tests.unit.domains.conftest import domain

from .conftest import IMAGE, ONE, TWO, Bench

DATA = {"name": "data", "size": 64}
# With Proxmox VE, an attached disk keeps its key.
OTHERWISE = {"vmadm": {"pci_slot": "0:4:7"}, "libvirt": {"pci_slot": "6:0:0"}, "proxmox": {"description": "x"}}


def test_a_disk_is_made_without_a_vm(bench):
    done = bench.four_steps({**DATA, "tags": {"owner": "sales"}, "description": "für alle", "preserve": True})
    disk = bench.place("data")
    assert (disk.state, disk.vm, disk.disk.vm) == ("detached", None, "")
    assert disk.disk.volume.name == f"{bench.pool}/flexdisk/{disk.disk.uuid}"
    assert disk.disk.user_properties == {"preserve": True, "description": "für alle", "tags": {"owner": "sales"}}
    assert disk.disk.volume.user["serial_no"] == "1"
    assert (done.disks[0]["state"], done.disks[0]["size"], done.disks[0]["vm"]) == ("detached", 64, "")
    lines = ["detached disks: +64 MiB, 0 B destroyed", f"detached disks of pool {bench.pool}:"]
    assert done.diff.splitlines()[:2] == lines


def test_what_is_there_is_changed_where_it_is(bench):
    bench.four_steps(DATA)
    digest = bench.write("data")
    bench.four_steps({**DATA, "size": 96, "compression": "lz4", "tags": {"a": "b"}})
    disk = bench.disk("data")
    assert (disk.size_mib, disk.volume.compression, disk.user_properties["tags"]) == (96, "lz4", {"a": "b"})
    assert disk.volume.refreservation > disk.size
    bench.four_steps({"vm": "web01", "name": "a", "size": 48, "description": "x"})
    assert (bench.disk("a").size_mib, bench.disk("a").user_properties["description"]) == (48, "x")
    bench.four_steps({"uuid": bench.disk("data").uuid, "name": "other"})
    assert bench.digest("other") == digest


def test_attach_detach_and_to_another_vm(bench):
    bench.four_steps(DATA)
    digest = bench.write("data")
    uuid = bench.disk("data").uuid
    done = bench.four_steps({"name": "data", "vm": "web01", "state": "attached"})
    assert bench.names() == {"root": 0, "a": 1, "b": 2, "data": 3}
    assert (done.disks[0]["state"], done.disks[0]["vm"], done.disks[0]["index"]) == ("attached", ONE, 3)
    slot = bench.disk("data").pci_slot
    assert bench.go({"vm": "web01", "index": 3, "state": "detached"}).changed
    assert "no disk with index 3" in bench.refused("ResourceNotFound", {"vm": "web01", "index": 3, "state": "detached"})
    bench.four_steps({"name": "data", "vm": "web01", "state": "detached"})
    assert bench.place("data").state == "detached"
    bench.four_steps({"name": "data", "vm": "web01", "state": "attached"})
    assert bench.disk("data").pci_slot == slot
    bench.four_steps({"name": "data", "from_vm": "web01", "vm": "web02", "state": "attached", "take": True})
    assert (bench.names(), bench.names(TWO)) == ({"root": 0, "a": 1, "b": 2}, {"root": 0, "c": 1, "data": 3})
    assert (bench.digest("data"), bench.disk("data").uuid) == (digest, uuid)


def test_all_of_a_task_are_planned_together(bench):
    """The list order is none: who gives goes first, and each VM has one block in the plan."""
    bench.four_steps(DATA)
    done = bench.four_steps(
        {"name": "data", "vm": "web02", "state": "attached"},
        {"name": "a", "vm": "web02", "state": "attached", "take": True},
        {"name": "c", "state": "detached"},
        {"name": "new", "size": 16, "vm": "web02"},
    )
    assert sorted(bench.names(TWO)) == ["a", "data", "root"]
    assert sorted(d.name for d in bench.vm(TWO).detached) == ["c", "new"]
    assert [d["name"] for d in done.disks] == ["data", "a", "c", "new"]
    assert done.diff.count("(cccccccc") == 2


@pytest.mark.parametrize("index", [None, -1, 1, 7])
def test_the_index_is_sticky_and_can_be_chosen(bench, index):
    bench.four_steps({"name": "a", "state": "detached"})
    bench.four_steps({"name": "b", "state": "detached"})
    bench.four_steps({"name": "b", "vm": "web01", "state": "attached", "index": index})
    assert bench.names() == {"root": 0, "b": {None: 2, -1: 2}.get(index, index)}


def test_the_last_one_can_be_changed(bench):
    bench.four_steps({"vm": "web01", "index": -1, "size": 64})
    assert (bench.disk("a").size_mib, bench.disk("b").size_mib) == (32, 64)


def test_absent_destroys_only_what_nobody_has(bench):
    said = bench.refused("InUse", {"name": "a", "state": "absent"})
    assert "attached in web01" in said
    assert "state=detached first" in said
    bench.four_steps({"name": "a", "state": "detached"})
    bench.four_steps({"name": "a", "state": "absent"})
    assert bench.names() == {"root": 0, "b": 2}
    assert bench.vm().detached == ()


def test_a_disk_that_is_not_adopted_has_no_name(bench):
    """Reports show its volume. A task that wants it gone must not end well."""
    old = "cccccccc-0000-4000-8000-000000000003"
    if bench.kind == "vmadm":
        bench.host.create(flexible=40960, sizes=(32,), uuid=old, alias="old")
    elif bench.kind == "proxmox":
        bench.host.create((64, 32), old, "old")
    else:
        bench.host.create((64, 32), uuid=old, name="old", machine="pc-q35-7.2")
        bench.host.converge({"vm": old, "flexible_disk_size": "1GiB"})
    volume = bench.vm(old).disks[1].volume.name
    for state in ("detached", "absent", "attached"):
        said = bench.refused("ResourceNotFound", {"name": volume.rsplit("/", 1)[-1], "vm": "old", "state": state})
        assert said == f"{volume} has no name yet, so no disk is called so; adopt it first, with disk_adopt"


def test_what_goes_with_a_disk_must_be_given_up(bench):
    bench.four_steps(DATA)
    volume = bench.disk("data").volume.name
    bench.run("zfs", "snapshot", volume + "@mine")
    bench.run("zfs", "hold", "backup", volume + "@mine")
    bench.four_steps({"name": "child", "source": "data", "source_snapshot": "mine", "source_method": "clone"})
    child = bench.disk("child").volume.name
    gone = {"name": "data", "state": "absent"}
    before = bench.fingerprint()
    problems = bench.go(gone).problems
    assert {p.code for p in problems} == {"HasClones", "HasSnapshots", "Held"}
    assert bench.fingerprint() == before
    words = {"destroy_snapshots": True, "release_holds": True}
    assert child in bench.refused("HasClones", {**gone, **words})
    bench.refused("Held", {**gone, "destroy_snapshots": True, "destroy_clones": [child]})
    bench.refused("HasSnapshots", {**gone, "release_holds": True, "destroy_clones": [child]})
    bench.four_steps({**gone, **words, "destroy_clones": [child]})
    assert bench.read().detached == ()


def test_a_clone_that_a_vm_has_is_never_given_up(bench):
    bench.four_steps(DATA)
    bench.run("zfs", "snapshot", bench.disk("data").volume.name + "@mine")
    bench.four_steps({"name": "child", "source": "data", "source_snapshot": "mine", "source_method": "clone"})
    bench.four_steps({"name": "child", "vm": "web01", "state": "attached"})
    words = {"destroy_snapshots": True, "destroy_clones": [bench.disk("child").volume.name]}
    assert "is not a detached disk" in bench.refused("InUse", {"name": "data", "state": "absent", **words})


@pytest.mark.parametrize("size", [None, 96])
def test_a_copy_has_data_of_its_own(bench, size):
    digest = bench.write("a")
    bench.four_steps({"name": "twin", "source": "a", "size": size, "compression": "lz4"})
    twin = bench.disk("twin")
    assert (twin.size_mib, twin.volume.origin, twin.volume.compression) == (size or 32, "", "lz4")
    assert twin.volume.refreservation > twin.size
    assert bench.digest("twin") == digest
    bench.write("a", 8)
    assert bench.digest("twin") == digest
    assert [d.snapshots for d in (twin, bench.disk("a"))] == [(), ()]
    assert "from" not in twin.volume.user


def test_a_copy_of_a_snapshot_is_as_the_disk_was_then(bench):
    digest = bench.write("a")
    bench.run("zfs", "snapshot", bench.disk("a").volume.name + "@then")
    bench.write("a", 8)
    bench.four_steps({"name": "twin", "source": bench.disk("a").uuid, "source_snapshot": "then"})
    assert bench.digest("twin") == digest
    assert bench.disk("twin").snapshots == ()


@pytest.mark.parametrize("method", ["copy", "clone"])
def test_a_copy_of_another_snapshot_of_the_name_is_not_what_was_approved(bench, method):
    snapshot = bench.disk("a").volume.name + "@then"
    bench.run("zfs", "snapshot", snapshot)
    twin = {"name": "twin", "source": "a", "source_snapshot": "then", "source_method": method}
    approved = Approval(bench.go(twin, check=True).plan_digest)
    for command in ("destroy", "snapshot"):
        bench.run("zfs", command, snapshot)
    assert [p.code for p in bench.go(twin, approval=approved).problems] == ["PlanChanged"]
    approved = Approval(bench.go(twin, check=True).plan_digest)
    assert bench.go(twin, approval=approved).failure is None
    assert bench.disk("twin").size_mib == 32


@pytest.mark.parametrize("method", ["copy", "clone"])
def test_a_snapshot_that_is_exchanged_in_the_last_moment_is_not_copied(bench, method):
    volume = bench.disk("a").volume.name
    bench.run("zfs", "snapshot", volume + "@then")
    known = bench.host.runner

    def runner(argv, stdin="", timeout=300):
        if list(argv[:2]) == ["zfs", "get"] and argv[-1] == volume + "@then":
            bench.run("zfs", "destroy", volume + "@then")
            bench.run("zfs", "snapshot", volume + "@then")
        return known(argv, stdin, timeout)

    bench.host.runner = runner
    twin = {"name": "twin", "source": "a", "source_snapshot": "then", "source_method": method}
    done = bench.go(twin)
    assert done.failure["error_code"] == "Changed"
    assert [d.name for d in bench.read().detached] == []


def test_a_disk_of_an_image(bench):
    if bench.kind != "vmadm":
        bench.run("zfs", "create", "-V", "64M", f"{bench.pool}/{IMAGE}")
        bench.run("zfs", "snapshot", f"{bench.pool}/{IMAGE}@final")
    bench.four_steps({"name": "data", "image": IMAGE})
    disk = bench.disk("data")
    assert (disk.image, disk.volume.refreservation > disk.size) == (IMAGE, True)
    assert disk.size_mib == (10240 if bench.kind == "vmadm" else 64)
    bench.four_steps({"name": "data", "image": IMAGE, "size": disk.size_mib + 64})
    bench.four_steps({"name": "data", "vm": "web02", "state": "attached"})


def test_a_new_disk_in_the_names_of_a_vm_is_attached_by_its_list(bench):
    bench.four_steps({**DATA, "vm": "web01"})
    assert bench.disk("data").vm == ONE
    done = bench.host.converge({"vm": "web01", "unlisted": "keep", "disks": [{"name": "data"}]})
    assert (done.problems, done.failure) == ([], None)
    assert "data" in bench.names()


# -- the optimistic lock


def test_serial_no_counts_every_change(bench):
    def serial():
        return int(bench.disk("data").volume.user["serial_no"])

    bench.four_steps(DATA)
    for number, change in enumerate(
        (
            {"size": 96},
            {"tags": {"a": "b"}},
            {"compression": "lz4"},
            {"vm": "web01", "state": "attached"},
            {"vm": "web01", "state": "attached", **OTHERWISE[bench.kind]},
            {"vm": "web01", "compression": "off"},
            {"vm": "web01", "state": "detached"},
        ),
        start=2,
    ):
        bench.four_steps({"name": "data", **change})
        assert serial() == number


def test_serial_no_is_a_lock(bench):
    bench.four_steps(DATA)
    bench.four_steps({**DATA, "size": 80})
    change = {"name": "data", "size": 96}
    said = bench.refused("Changed", {**change, "serial_no": 1})
    assert "data has serial_no 2, not 1" in said
    for state in ({"vm": "web01", "state": "attached"}, {"state": "absent"}):
        bench.refused("Changed", {"name": "data", **state, "serial_no": 3})
    bench.four_steps({**change, "serial_no": 2})
    assert bench.disk("data").size_mib == 96


# -- running VMs


def test_a_running_vm(bench):
    bench.four_steps(DATA)
    bench.start()
    attach = {"name": "data", "vm": "web01", "state": "attached"}
    if bench.kind == "vmadm":
        bench.refused("VmNotStopped", attach)
    bench.four_steps(attach, allow_restart=True)
    bench.four_steps({"name": "data", "vm": "web01", "state": "detached"}, allow_restart=True)
    assert bench.vm().config.state == "running"


def test_taking_from_a_running_vm(bench):
    bench.start()
    take = {"name": "a", "vm": "web02", "state": "attached", "take": True}
    if bench.kind == "vmadm":
        bench.refused("VmNotStopped", take)
    bench.four_steps(take, allow_restart=True)
    assert (bench.vm().config.state, bench.vm(TWO).config.state) == ("running", "stopped")


# -- refusals

NOT_THERE = "eeeeeeee-0000-4000-8000-00000000000e"


@pytest.mark.parametrize(
    ("code", "entry", "said"),
    [
        ("InvalidArgument", {}, "a disk needs a name, a uuid, or a VM and its index"),
        ("InvalidArgument", {"name": "x", "state": "attached"}, "state=attached needs vm"),
        ("InvalidArgument", {"index": 1}, "index and pci_slot need vm"),
        ("InvalidArgument", {"vm": "web01", "index": -2}, "from 0 to 99999, or -1"),
        ("InvalidArgument", {"name": "a", "vm": "web01", "state": "attached", "index": -2}, "from 0 to 99999, or -1"),
        ("InvalidArgument", {"vm": "web01", "index": 1, "name": "a"}, "without name and uuid"),
        ("InvalidArgument", {"vm": "web01", "index": 1, "state": "absent"}, "needs a name or a uuid"),
        ("InvalidArgument", {"vm": "web01", "pci_slot": "0:4:1", "state": "absent"}, "needs a name or a uuid"),
        ("InvalidArgument", {"vm": "web01", "index": -1, "state": "detached"}, "another disk the next time"),
        (
            "InvalidArgument",
            {"name": "a", "state": "detached", "size": 5},
            "size works only with state=present and attached",
        ),
        ("InvalidArgument", {"name": "a", "state": "absent", "take": True}, "take works only with state=attached"),
        ("InvalidArgument", {"name": "a", "destroy_snapshots": True}, "destroy_snapshots works only with state=absent"),
        ("InvalidArgument", {"name": "x", "size": "remaining"}, "in vm_disks"),
        ("InvalidArgument", {"name": "x", "size": "0"}, "at least 1 MiB"),
        ("InvalidArgument", {"name": "x/y", "size": 5}, "disk name 'x/y'"),
        ("InvalidArgument", {"uuid": "x"}, "is not a uuid"),
        ("InvalidArgument", {"name": "x", "source": "a", "image": IMAGE}, "exclude each other"),
        ("InvalidArgument", {"name": "x", "source": "a", "block_size": 4096}, "the source has its own"),
        ("InvalidArgument", {"name": "x", "source_snapshot": "a"}, "needs source"),
        ("InvalidArgument", {"name": "x", "source": "a", "source_method": "clone"}, "needs source_snapshot"),
        ("InvalidArgument", {"name": "x", "source": "a", "size": 16}, "size 16 MiB is too small"),
        ("InvalidArgument", {"name": "a", "serial_no": -1}, "from 0 to 999999999999999"),
        ("InvalidArgument", {"name": "a", "size": 16}, "dangerous_allow_shrink: true allows it"),
        (
            "TooSmallForGuest",
            {"name": "a", "size": 16, "dangerous_allow_shrink": True, "min_size_from_guest": 17},
            "16 MiB would cut off what the guest uses: min_size_from_guest is 17 MiB",
        ),
        (
            "InvalidArgument",
            {"name": "a", "state": "absent", "min_size_from_guest": 17},
            "min_size_from_guest works only with state=present and attached",
        ),
        ("InvalidArgument", {"vm": "web01", "index": 0, "state": "detached"}, "the boot disk cannot be removed"),
        ("InvalidArgument", {"name": "a", "vm": "web01", "state": "attached", "index": 5}, "has index 1"),
        ("InvalidArgument", {"name": "a", "model": "x"}, "model 'x' is not valid: it must be one of"),
        ("MissingParameter", {"name": "x"}, "needs a size, an image or a source"),
        ("ResourceNotFound", {"name": "x", "state": "detached"}, "the disk does not exist"),
        ("ResourceNotFound", {"name": "x", "vm": "web01", "state": "attached"}, "the disk does not exist"),
        ("ResourceNotFound", {"uuid": NOT_THERE, "size": 5}, "the disk does not exist"),
        ("ResourceNotFound", {"vm": "web01", "index": 9}, "no disk with index 9; it has: 0, 1, 2"),
        ("ResourceNotFound", {"name": "x", "vm": "nobody"}, "no VM with this"),
        ("ResourceNotFound", {"name": "x", "source": "y"}, "source y: no disk has"),
        ("ResourceNotFound", {"name": "x", "source": "a", "source_snapshot": "s"}, "has no snapshot s; it has: none"),
        ("ResourceNotFound", {"name": "x", "image": NOT_THERE}, "there is no"),
        ("Ambiguous", {"name": "root"}, "2 disks have it"),
        ("InUse", {"name": "a", "vm": "web02", "state": "attached"}, "take: true moves it to web02"),
        ("FixedAtBirth", {"name": "a", "block_size": 65536}, "block_size of a"),
        ("InsufficientSpace", {"name": "x", "size": "1TiB"}, "this task needs"),
        ("InsufficientSpace", {"name": "a", "size": "50GiB"}, "flexible_disk_size"),
    ],
)
def test_refusals(bench, code, entry, said):
    assert said in bench.refused(code, entry)


def test_a_disk_is_listed_once(bench):
    by_uuid = {"uuid": bench.disk("a").uuid, "state": "detached"}
    assert "listed twice, also as a" in bench.refused("InvalidArgument", {"name": "a", "size": 64}, by_uuid)
    assert "two new disks" in bench.refused("InvalidArgument", DATA, DATA)


def test_what_two_vms_take_from_each_other_takes_two_tasks(bench):
    there = {"name": "a", "vm": "web02", "state": "attached", "take": True}
    back = {"name": "c", "vm": "web01", "state": "attached", "take": True}
    assert "take disks from each other" in bench.refused("InvalidArgument", there, back)


def test_names_are_unique_in_a_vm(bench):
    bench.four_steps({"name": "c", "size": 8, "vm": "web01"})
    uuid = bench.vm().detached[0].uuid
    taken = {"uuid": bench.disk("a").uuid, "name": "c"}
    bench.refused("NameConflict", taken)
    bench.refused("NameConflict", {"uuid": uuid, "name": "a"})
    bench.refused("NameConflict", {"uuid": uuid, "vm": "web02", "state": "attached"})


def test_an_index_or_a_slot_that_is_taken(bench):
    bench.four_steps(DATA)
    attach = {"name": "data", "vm": "web01", "state": "attached"}
    assert "index 1 belongs to" in bench.refused("InvalidArgument", {**attach, "index": 1})
    slot = bench.disk("a").pci_slot
    assert f'pci_slot "{slot}" belongs to' in bench.refused("InvalidArgument", {**attach, "pci_slot": slot})


def test_one_uuid_on_two_volumes_is_refused_for_both(bench):
    bench.four_steps(DATA)
    bench.four_steps({"name": "other", "size": 8})
    uuid = bench.disk("data").uuid
    bench.run("zfs", "set", "flexdisk:uuid=" + uuid, bench.disk("other").volume.name)
    attach = {"vm": "web01", "state": "attached"}
    for entry in (
        {"uuid": uuid, "state": "absent"},
        {"name": "other", "state": "absent"},
        {"name": "other", "size": 16},
        {"name": "other", **attach},
        {"name": "data", "state": "detached"},
    ):
        said = bench.refused("Ambiguous", entry)
        assert bench.disk("data").volume.name in said


def test_a_detached_disk_that_a_domain_is_configured_with():
    """By hand: our configuration does not have it, the domain's does, and it could be started at any moment."""
    bench = Bench("libvirt")
    bench.four_steps(DATA)
    disk = bench.disk("data")
    other = "cccccccc-0000-4000-8000-000000000003"
    bench.run("zfs", "create", f"tank/{other}")
    bench.host.domains.add(domain([disk.volume.name], uuid=other, name="web03"))
    for entry in ({"size": 96}, {"state": "absent"}, {"state": "detached"}):
        assert "is configured in web03" in bench.refused("InUse", {"name": "data", **entry})


def test_a_copy_needs_room_for_what_its_snapshot_pins(bench):
    if bench.kind == "proxmox":
        pytest.skip("its VMs have no quota")
    bench.write("a")
    root = bench.vm().root.name
    bench.run("zfs", "set", "reservation=0", root)
    bench.run("zfs", "set", "quota=%d" % (bench.vm().root.used + (4 << 20)), root)
    assert "for its snapshot" in bench.refused("InsufficientSpace", {"name": "twin", "source": "a"})


def test_an_idle_run_starts_three_processes_for_many_disks(bench):
    wanted = [{"name": f"d{n}", "size": 1, "tags": {"n": str(n)}} for n in range(40)]
    bench.go(*wanted)
    bench.host.calls.clear()
    assert not bench.go(*wanted).changed
    assert len(bench.host.calls) == (3 if bench.kind == "vmadm" else 2), bench.host.calls


# -- on_refusal


def proceed(bench, *entries):
    """Check mode and the real run with on_refusal=continue, which say the same; refused entries by their labels."""
    predicted, done = (bench.go(*entries, check=check, continue_on_refusal=True) for check in (True, False))
    assert predicted.problems == done.problems
    assert (predicted.changed, predicted.diff) == (done.changed, done.diff)
    assert len(predicted.disks) == len(done.disks)
    return done, [problem.disk for problem in done.problems]


def test_the_other_entries_are_done(bench):
    entries = [{"name": "x", "size": 0}, {"name": "n", "size": 8}, {"uuid": ONE, "state": "detached"}]
    stopped = bench.go(*entries)
    assert (len(stopped.problems), stopped.changed) == (1, False)
    done, refused = proceed(bench, *entries)
    assert (refused, [disk["name"] for disk in done.disks]) == (["x", ONE], ["n"])


def test_entries_of_one_vm_are_refused_together(bench):
    done, refused = proceed(
        bench,
        {"name": "a", "vm": "web01", "state": "detached", "serial_no": 77},
        {"name": "b", "vm": "web01", "description": "text"},
        {"name": "c", "vm": "web02", "description": "text"},
    )
    assert (refused, [disk["name"] for disk in done.disks]) == (["a"], ["c"])
    assert [disk.user_properties["description"] for disk in bench.vm(ONE).disks] == ["", "", ""]


def test_the_vm_that_gives_a_disk_up_is_refused_with_the_one_that_takes_it(bench):
    done, refused = proceed(
        bench,
        {"name": "a", "from_vm": "web01", "vm": "web02", "state": "attached"},
        {"name": "b", "vm": "web01", "description": "text"},
        {"name": "n", "size": 8},
    )
    assert (refused, [disk["name"] for disk in done.disks]) == (["a"], ["n"])


def test_a_source_is_not_destroyed_if_its_copy_is_refused(bench):
    assert bench.go({"name": "old", "size": 16}).failure is None
    done, refused = proceed(
        bench,
        {"name": "new", "source": "old", "size": 8},
        {"name": "old", "state": "absent"},
        {"name": "n", "size": 8},
    )
    assert (refused, [disk["name"] for disk in done.disks]) == (["new"], ["n"])
    assert bench.place("old").state == "detached"


def test_the_disk_that_the_pool_has_no_room_for(bench):
    done, _refused = proceed(bench, {"name": "n", "size": 8}, {"name": "huge", "size": "900TiB"})
    assert [problem.code for problem in done.problems] == ["InsufficientSpace"]
    assert [disk["name"] for disk in done.disks] == ["n"]


@pytest.mark.parametrize("place", [{"index": 77}, {"pci_slot": "0:9:0"}])
def test_a_place_where_no_disk_is(bench, place):
    said = bench.refused("ResourceNotFound", {"vm": "web01", "state": "detached", **place})
    assert str(*place.values()) in said


def test_detached_needs_a_disk_and_absent_none(bench):
    bench.refused("ResourceNotFound", {"name": "nothing", "state": "detached"})
    bench.four_steps({"name": "nothing", "state": "absent"})


@pytest.mark.parametrize("name", ["12", "yes", "1e3", "2026-01-31", ONE])
def test_no_disk_gets_a_name_that_is_mistaken(bench, name):
    uuid = next(disk.uuid for disk in bench.vm(ONE).disks if disk.name == "a")
    for entry in ({"name": name, "size": 8}, {"uuid": uuid, "name": name}):
        assert "is not valid" in bench.refused("InvalidArgument", entry)


@pytest.mark.parametrize("tags", [{"a": True}, {"a": [1, 2]}, {"a": None}, {"a": 1}, {1: "a"}])
def test_tags_are_strings(bench, tags):
    assert "not a string" in bench.refused("InvalidArgument", {"name": "new", "size": 8, "tags": tags})
