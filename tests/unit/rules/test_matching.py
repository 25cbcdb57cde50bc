# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which entry is which disk: the rules in their order, and what is refused."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import DiskDeclaration
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import Problems
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.matching import match


def uuid(number):
    return "aaaaaaaa-0000-4000-8000-%012d" % number


def disk(number, name="", size=1024, **more):
    user = {"name": name, "uuid": uuid(number)} if name else {}
    where = f"zones/flexdisk/{uuid(number)}" if more.get("parked") else "zones/v/disk%d" % number
    volume = Dataset(where, "volume", volsize=more.pop("bytes", size * MIB), user=user)
    fields = {"uuid": uuid(number), "pci_slot": "0:4:%d" % number, "boot": number == 0, "path": "/" + where, **more}
    return Disk(volume=volume, vm="v", index=number, name=name, **fields)


def vm(*disks, orphans=()):
    config = VmConfig("v", "web", "bhyve", "stopped", False, "zones", "zones/v", None)
    attached = tuple(d for d in disks if not d.detached)
    return Vm(config, Dataset("zones/v", "filesystem"), attached, orphans, tuple(d for d in disks if d.detached))


def run(machine, *specs, matching="name", of_other_vms=(), unlisted="refuse"):
    answer = Problems("web")
    result = match(machine, specs, of_other_vms, matching, answer, unlisted)
    pairs = {spec.label: d.index for spec, d in result.pairs}
    return pairs, [s.label for s in result.creates], [d.index for d in result.unlisted], answer


def spec(name="", **more):
    return DiskDeclaration(name=name, **more)


ROOT = disk(0, "root")


def test_an_absent_disk_that_only_reports_call_so():
    machine = vm(ROOT, disk(1), disk(2, "disk1"))
    absent = spec("disk1", present=False)
    assert match(machine, [absent], (), "name", Problems("web")).warnings == []
    (warning,) = match(vm(ROOT, disk(1)), [absent], (), "name", Problems("web"), "keep").warnings
    assert warning.startswith("no disk is called disk1, so none is destroyed; zones/v/disk1 has no name yet")


def test_uuid_before_name():
    machine = vm(ROOT, disk(1, "a"), disk(2, "b"))
    pairs, creates, unlisted, problems = run(machine, spec("a", uuid=uuid(2)), spec("b", uuid=uuid(1)), spec("root"))
    assert (pairs, creates, unlisted, problems) == ({"a": 2, "b": 1, "root": 0}, [], [], [])


def test_attached_before_detached():
    machine = vm(ROOT, disk(1, "a"), disk(7, "a", detached=True))
    assert run(machine, spec("root"), spec("a"))[0]["a"] == 1


def test_detached_by_name_and_those_of_other_vms_by_uuid_alone():
    machine = vm(ROOT, disk(7, "mine", detached=True))
    other = disk(8, "theirs", detached=True)
    pairs, creates, _unlisted, problems = run(machine, spec("mine"), spec("theirs"), of_other_vms=[other])
    assert (pairs, creates, problems) == ({"mine": 7}, ["theirs"], [])
    assert run(machine, spec("new", uuid=uuid(8)), of_other_vms=[other])[0] == {"new": 8}


def test_two_of_one_uuid_or_name_are_not_chosen_between():
    machine = vm(ROOT, disk(7, "a", detached=True), disk(8, "a", detached=True))
    pairs, creates, _unlisted, problems = run(machine, spec("a"))
    assert (pairs, creates, [p.code for p in problems]) == ({}, [], ["Ambiguous"])
    assert uuid(7) in problems[0].message
    assert uuid(8) in problems[0].message


def test_a_named_disk_never_becomes_another_entrys():
    """Not by slot, not by boot, not by being the only one of the size."""
    machine = vm(ROOT, disk(1, "a"))
    entry = spec("x", size=1024, pci_slot="0:4:1", boot=None)
    pairs, creates, unlisted, problems = run(machine, entry, spec("y", boot=True))
    assert (pairs, creates, unlisted) == ({}, [], [])
    assert [(p.code, p.disk) for p in problems] == [("InvalidArgument", "x"), ("InvalidArgument", "y")]


def test_slot_then_boot_then_size():
    machine = vm(disk(0), disk(1, size=10), disk(2, size=10), disk(3, size=30))
    specs = (spec("s", pci_slot="4:2", size=10), spec("b", boot=True), spec("x", size=10), spec("y", size=30))
    assert run(machine, *specs)[0] == {"s": 2, "b": 0, "x": 1, "y": 3}


def test_hidden_disks_are_nobodys():
    machine = vm(disk(0), disk(1, hidden=True))
    assert run(machine, spec("b", boot=True), spec("x"))[:3] == ({"b": 0}, ["x"], [])


@pytest.mark.parametrize(
    ("sizes", "wanted", "pairs"),
    [
        ([10, 20], [20, 10], {"0": 2, "1": 1}),
        ([10], [10], {"0": 1}),
        ([10, 20], [None, 10], None),
        ([10, 20, 30], [30, 10], None),
        ([10], [10, 30], None),
        ([10], [None], None),
        ([10, 10], [10, 10], None),
        ([10, 20], [None, None], None),
        ([10, 20], [10, 40], None),
        ([10, 20], [30], None),
    ],
)
def test_the_only_assignment_that_changes_no_size(sizes, wanted, pairs):
    machine = vm(ROOT, *(disk(n, size=s) for n, s in enumerate(sizes, 1)))
    specs = [spec(name, size=size) for name, size in zip("0123", wanted, strict=False)]
    matches, creates, unlisted, problems = run(machine, spec("root"), *specs)
    if pairs is None:
        assert [p.code for p in problems] == ["Ambiguous"]
        assert (matches, creates, unlisted) == ({"root": 0}, [], [])
    else:
        assert (matches, problems) == ({"root": 0, **pairs}, [])
        assert (creates, unlisted) == ([], [])


def test_a_size_that_is_no_whole_mib_is_not_equal():
    machine = vm(ROOT, disk(1, bytes=10 * MIB + 8192))
    assert [p.code for p in run(machine, spec("root"), spec("a", size=10))[3]] == ["Ambiguous"]


def test_remaining_and_absent_claim_nothing_by_size():
    machine = vm(ROOT, disk(1))
    entries = (spec("root"), spec("r", remaining=True), spec("g", present=False))
    assert run(machine, *entries, unlisted="keep") == ({"root": 0}, ["r"], [1], [])
    pairs, creates, unlisted, problems = run(machine, *entries)
    assert (pairs, creates, unlisted) == ({"root": 0}, [], [])
    assert [p.code for p in problems] == ["Ambiguous"]
    assert "{uuid: %s, name: CHOOSE}" % uuid(1) in problems[0].message
    assert "Say which is which, once; r keeps its size: remaining beside the uuid:" in problems[0].message


def test_words_to_paste():
    machine = vm(ROOT, disk(1), disk(2, uuid="", pci_slot="0:5:1"))
    message = run(machine, spec("root"), spec("a"))[3][0].message
    assert "{uuid: %s, name: CHOOSE}" % uuid(1) in message
    assert '{pci_slot: "0:5:1", name: CHOOSE}' in message


def test_orphans_come_last_and_need_an_identity():
    ours, other = disk(3, "a", path=""), disk(4, path="")
    machine = vm(ROOT, orphans=(ours, other))
    assert run(machine, spec("root"), spec("a"))[0] == {"root": 0, "a": 3}
    assert [p.code for p in run(machine, spec("root"), spec("b", uuid=uuid(4)))[3]] == ["ResourceNotFound"]
    nameless = vm(ROOT, orphans=(disk(3, "a", path="", uuid=""),))  # a name alone is none
    assert run(nameless, spec("root"), spec("a"))[:2] == ({"root": 0}, ["a"])


def test_unknown_uuids():
    machine = vm(ROOT)
    assert [p.code for p in run(machine, spec("root", uuid=uuid(9)))[3]] == ["ResourceNotFound"]
    assert run(machine, spec(uuid=uuid(9), present=False)) == ({}, [], [], [])


SIZES = st.lists(st.sampled_from([10, 20, 30]), max_size=5)


WISHES = st.lists(st.sampled_from([None, "remaining", 10, 20, 30]), max_size=5)
UNLISTED = st.sampled_from(["refuse", "keep", "detach", "destroy"])


def wishes(wanted):
    return [
        spec("s%d" % n, size=size if isinstance(size, int) else None, remaining=size == "remaining")
        for n, size in enumerate(wanted)
    ]


@given(SIZES, WISHES)
def test_against_every_assignment(sizes, wanted):
    """Size alone matches exactly where trying all assignments of equal sizes finds one, and nothing is left over."""
    machine = vm(ROOT, *(disk(n, size=s) for n, s in enumerate(sizes, 1)))
    matches, creates, unlisted, problems = run(machine, spec("root"), *wishes(wanted))
    labels = ["s%d" % n for n in range(len(wanted))]
    ways = [w for w in permutations(range(len(sizes))) if [sizes[k] for k in w] == wanted]
    if not sizes or not wanted:
        assert (matches, creates, problems) == ({"root": 0}, labels, [])
        assert unlisted == list(range(1, len(sizes) + 1))
    elif len(ways) == 1:
        pairs = {label: k + 1 for label, k in zip(labels, ways[0], strict=True)}
        assert (matches, creates, unlisted, problems) == ({"root": 0, **pairs}, [], [], [])
    else:
        assert (matches, creates, unlisted) == ({"root": 0}, [], [])
        assert [p.code for p in problems] == ["Ambiguous"]
        assert ("more than one" in problems[0].message) == bool(ways)
        assert all(uuid(n) in problems[0].message for n in range(1, len(sizes) + 1))


@given(st.lists(st.sampled_from(["", "x", "y"]), max_size=4), SIZES, WISHES, UNLISTED, st.sampled_from(["", "boot"]))
def test_the_law_of_boot_disks_and_names(names, sizes, wanted, unlisted, boot_name):
    """No entry gets a boot disk or a disk of another name; size decides with unlisted=refuse alone."""
    data = [disk(n, name and f"{name}{n}", size=s) for n, (name, s) in enumerate(zip(names, sizes), 1)]  # noqa: B905
    machine = vm(disk(0, boot_name, size=10), *data)
    problems = Problems("web")
    result = match(machine, wishes(wanted), [], "name", problems, unlisted)
    assert not any(d.boot or d.name for _s, d in result.pairs)
    assert all(s.size == d.size_mib for s, d in result.pairs)
    if unlisted != "refuse":
        assert result.pairs == []
        alike = {s.label for s in wishes(wanted) for d in machine.disks if not d.name and s.size == d.size_mib}
        assert {w.split()[0] for w in result.warnings if "no name" in w} == alike
        assert (problems, len(result.creates)) == ([], len(wanted))
    elif result.pairs:
        assert not result.creates
        assert len(result.pairs) == len(wanted) - len(problems) == sum(not d.name for d in data)


@given(SIZES, WISHES, UNLISTED)
def test_order_never_takes_a_boot_disk(sizes, wanted, unlisted):
    machine = vm(disk(0, size=10, remaining="1:2"), *(disk(n, size=s) for n, s in enumerate(sizes, 1)))
    result = match(machine, wishes(wanted)[:1], [], "order", Problems("web"), unlisted)
    assert not any(d.boot for _s, d in result.pairs)


def test_a_boot_disk_of_the_size_leaves_a_choice():
    """Who forgot boot=true may mean it: the data disk does not become root."""
    machine = vm(disk(0, size=10), disk(1, size=10))
    pairs, creates, unlisted, problems = run(machine, spec("root", size=10))
    assert (pairs, creates, unlisted, [p.code for p in problems]) == ({}, [], [], ["Ambiguous"])
    assert "{uuid: %s, name: CHOOSE, boot: true}" % uuid(0) in problems[0].message
    pairs, creates, _unlisted, problems = run(machine, spec("root", boot=True), spec("data", size=10))
    assert (pairs, creates, problems) == ({"root": 0, "data": 1}, [], [])


@pytest.mark.parametrize("unlisted", ["keep", "detach", "destroy"])
def test_a_new_disk_of_a_size_that_an_unnamed_one_has_is_warned_of(unlisted):
    machine = vm(disk(0, size=10), disk(1, size=10), disk(2, "named", size=10), disk(3, size=10, uuid=""))
    problems = Problems("web")
    result = match(machine, [spec("backup", size=10), spec("other", size=11)], [], "name", problems, unlisted)
    assert ([s.label for s in result.creates], result.pairs, problems) == (["backup", "other"], [], [])
    warning = result.warnings[0]
    assert [uuid(2) in w for w in result.warnings[1:]] == [True] * (unlisted == "destroy")
    assert "- {uuid: %s, name: backup}" % uuid(1) in warning
    assert "- {uuid: %s, name: backup, boot: true}" % uuid(0) in warning
    assert '- {pci_slot: "0:4:3", name: backup}' in warning
    assert uuid(2) not in warning


def test_destroy_of_what_a_new_disk_could_mean_is_refused():
    """A disk that has an identity and no name."""
    doomed = disk(1, size=10)
    doomed.volume.user["uuid"] = uuid(1)
    assert doomed.adopted
    pairs, creates, unlisted, problems = run(vm(ROOT, doomed), spec("data", size=10), unlisted="destroy")
    assert (pairs, creates, unlisted, [p.code for p in problems]) == ({}, [], [], ["Ambiguous"])
    assert "- {uuid: %s, name: CHOOSE}" % uuid(1) in problems[0].message


# -- another name


def test_each_entry_that_means_a_disk_of_another_name_is_told_so():
    machine = vm(disk(0, "disk0", size=10), disk(1, "disk1", size=50), disk(2, "disk2", size=30), disk(3, "d3", size=7))
    entries = (
        spec("root", boot=True),
        spec("data", size=60, pci_slot="4:1"),
        spec("log", size=30),
        spec("rest", remaining=True),
        spec("new", size=99),
    )
    pairs, creates, unlisted, problems = run(machine, *entries)
    assert (pairs, creates, unlisted) == ({}, ["new"], [])
    assert [p.disk for p in problems] == ["root", "data", "log", "rest"]
    first = problems[0].message
    assert f"disk0 (uuid {uuid(0)}) is the boot disk and has another name" in first
    assert "to rename it, give its uuid: - {uuid: %s, name: root, boot: true}" % uuid(0) in first
    for number, problem in enumerate(problems[1:], 1):
        assert "- {uuid: %s, name: %s}" % (uuid(number), problem.disk) in problem.message


@pytest.mark.parametrize(("unlisted", "warnings"), [("keep", 1), ("detach", 0), ("destroy", 0)])
def test_where_a_disk_of_another_name_may_go_or_stay_a_new_one_is_meant(unlisted, warnings):
    machine = vm(ROOT, disk(1, "one", size=10), disk(2, "two", size=10))
    entries = (spec("root"), spec("new", size=10), spec("more", size=20, pci_slot="0:4:1"))
    _pairs, creates, _unlisted, problems = run(machine, *entries, unlisted=unlisted)
    assert [p.disk for p in problems] == ["more"] * warnings
    assert creates == ["new", "more"][: 2 - warnings]


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True)


@given(NAMES, NAMES, st.booleans(), st.sampled_from(["name", "order"]), UNLISTED)
def test_no_disk_twice_and_names_keep_to_themselves(have, want, sized, matching, unlisted):
    machine = vm(ROOT, *(disk(n, name) for n, name in enumerate(have, 1)))
    specs = [spec(name, size=1024 if sized else None) for name in want]
    problems = Problems("web")
    result = match(machine, specs, [], matching, problems, unlisted)
    claimed = [d.volume.name for _s, d in result.pairs]
    assert len(set(claimed)) == len(claimed)
    assert not set(claimed) & {d.volume.name for d in result.unlisted}
    new, left = set(want) - set(have), set(have) - set(want)
    refused = new if left and unlisted == "refuse" else set()
    assert {p.disk for p in problems} == refused
    assert {(s.name, d.name) for s, d in result.pairs} == {(n, n) for n in want if n in have}
    assert {s.name for s in result.creates} == new - refused
    assert {d.name for d in result.unlisted} == (set() if refused else left)


# -- order


def test_order_is_first_fit_of_growing():
    machine = vm(ROOT, disk(1, size=20), disk(2, size=10))
    pairs = run(machine, spec("root", boot=True), spec("x", size=10), spec("y", size=20), matching="order")[0]
    assert pairs == {"root": 0, "x": 2, "y": 1}


@pytest.mark.parametrize("more", [{}, {"size": 10}, {"image": "i"}, {"remaining": True}])
def test_order_finds_no_data_disk_for_an_entry_that_boots(more):
    """The boot disk may be away because it is made anew."""
    machine = vm(disk(1, size=10), disk(2, size=10, image="i"), disk(3, size=10, remaining="40:20"))
    pairs, creates, unlisted, _problems = run(machine, spec("r", boot=True, **more), matching="order", unlisted="keep")
    assert (pairs, creates, unlisted) == ({}, ["r"], [1, 2, 3])


def test_order_never_takes_a_disk_of_another_name():
    """Not by its slot, not as the boot disk, not because it is the rest, and not as the first that fits."""
    machine = vm(disk(0, "system", size=10), disk(1, "one"), disk(2, "two", remaining="1:2"), disk(3))
    specs = (spec("x", pci_slot="0:4:1"), spec("y", remaining=True), spec("z", boot=True), spec("n"), spec("m"))
    pairs, creates, unlisted, problems = run(machine, *specs, matching="order", unlisted="keep")
    assert (pairs, creates, unlisted) == ({"n": 3}, ["y", "m"], [2])
    assert {p.disk: p.code for p in problems} == {"x": "InvalidArgument", "z": "InvalidArgument"}
    assert "system (uuid %s) is the boot disk and has another name; to rename it" % uuid(0) in problems[1].message
    machine = vm(ROOT, disk(1, "x", size=10), disk(2, "y", size=10))
    for unlisted in ("detach", "destroy"):
        pairs, creates, gone, problems = run(
            machine, spec("root", boot=True), spec("y", size=10), matching="order", unlisted=unlisted
        )
        assert (pairs, creates, gone, problems) == ({"root": 0, "y": 2}, [], [1], [])


def test_order_warns_of_a_new_disk_beside_one_that_is_destroyed():
    machine = vm(ROOT, disk(1, "x", size=10))
    problems = Problems("web")
    result = match(machine, [spec("root"), spec("y", size=10)], [], "order", problems, "destroy")
    assert (problems, [s.name for s in result.creates], [d.name for d in result.unlisted]) == ([], ["y"], ["x"])
    assert "y is a new disk, and unlisted=destroy destroys x of the same size" in result.warnings[0]


def test_order_knows_the_rest_by_its_basis():
    machine = vm(ROOT, disk(1), disk(2, remaining="1:2"))
    pairs, creates, _unlisted, _problems = run(machine, spec("r", remaining=True), spec("x"), matching="order")
    assert (pairs, creates) == ({"r": 2, "x": 1}, [])


def test_order_destroys_by_name_alone():
    machine = vm(ROOT, disk(1, "one"), disk(2, "two"), disk(3))
    specs = (spec("two", present=False), spec("one"), spec("x"))
    assert run(machine, *specs, matching="order")[0] == {"two": 2, "one": 1, "x": 3}
    assert run(machine, spec("three", present=False), matching="order")[0] == {}


def test_destroy_of_a_named_disk_that_a_new_one_could_mean_is_warned_of():
    machine = vm(ROOT, disk(1, "disk1", size=10), disk(2, "kept", size=10, user_properties={"preserve": True}))
    specs = [spec("root"), spec("data", size=10)]
    for unlisted, count in (("destroy", 1), ("detach", 0), ("keep", 0)):
        warnings = match(machine, specs, [], "name", Problems("web"), unlisted).warnings
        assert len(warnings) == count
    (warning,) = match(machine, specs, [], "name", Problems("web"), "destroy").warnings
    assert "destroys disk1 of the same size" in warning
    assert warning.endswith("- {uuid: %s, name: data}" % uuid(1))
